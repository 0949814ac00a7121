//! Whole check-outs, call by call in recorded order: how many questions reach the auth module.

use crate::golden::played;
use crate::harness::Sidecar;
use crate::rule;
use crate::support::golden::{self, Exchange};
use crate::support::raw::Connection;
use crate::support::standin::lookups::LookUps;
use crate::support::standin::okapi::Okapi;
use crate::support::standin::{Options, Standin};
use crate::wire_rules::answer_differs;

/// Which part of a scenario an exchange is, by whose token it carries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// mod-authtoken's own question, asked while it answers another.
    LookUp,
    /// The login before the check-out: no token yet, or one minted for this login alone.
    Login,
    /// The check-out itself.
    CheckOut,
}

impl Part {
    fn of(exchange: &Exchange) -> Self {
        let Some(token) = exchange.request.headers.get("X-Okapi-Token") else {
            return Self::Login;
        };
        let claims = rule::claims(token).expect("a readable token");
        match claims["sub"].as_str().expect("a subject") {
            "_AUTHZ_MODULE_" => Self::LookUp,
            subject if subject.starts_with("UNDEFINED_USER__") => Self::Login,
            _ => Self::CheckOut,
        }
    }
}

/// Calls of one recorded scenario: made by Okapi, and those of them that reached the auth module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    scenario: String,
    calls: u64,
    asked: u64,
    look_ups_asked: u64,
    login_asked: u64,
}

fn counts(scenario: &str, calls: u64, asked: u64, look_ups_asked: u64) -> Counts {
    Counts {
        scenario: scenario.to_owned(),
        calls,
        asked,
        look_ups_asked,
        login_asked: 0,
    }
}

/// 34 from an empty cache, 0 when warm, 31 for the next user, 1 after a new login of the same user.
fn expected() -> [Counts; 4] {
    [
        counts("check-out cold", 33, 31, 3),
        counts("check-out warm", 33, 0, 0),
        counts("second user cold check-out", 33, 31, 0),
        counts("same user, new token", 33, 1, 0),
    ]
}

fn report(how: &str, table: &[Counts]) {
    for row in table {
        eprintln!(
            "{how}: {}: {} calls, {} asked, {} look-ups, {} for the login",
            row.scenario, row.calls, row.asked, row.look_ups_asked, row.login_asked
        );
    }
}

/// The row of this exchange's scenario, begun if it is the first.
fn row<'a>(table: &'a mut Vec<Counts>, exchange: &Exchange) -> &'a mut Counts {
    if table
        .last()
        .is_none_or(|row| row.scenario != exchange.scenario)
    {
        table.push(counts(&exchange.scenario, 0, 0, 0));
    }
    table.last_mut().expect("just made")
}

/// A login is new each time and is asked each time; the rest is what the table says.
fn assert_expected(table: &[Counts], logins: [u64; 4]) {
    let table: Vec<_> = table.to_vec();
    let expected: Vec<_> = expected()
        .into_iter()
        .zip(logins)
        .map(|(row, login_asked)| Counts { login_asked, ..row })
        .collect();
    assert_eq!(table, expected);
}

#[tokio::test]
async fn a_recorded_check_out_costs_34_calls_cold_0_warm_and_1_after_a_new_login() {
    let (playback, sidecar) = played().await;
    let mut okapi = sidecar.connect().await;
    let mut table = Vec::new();

    for exchange in golden::exchanges("check-out") {
        playback.play(&exchange.answer);
        playback.forget_calls();
        let answer = okapi.ask(&exchange.request).await.expect("an answer");

        let differs = answer_differs(&exchange.answer, &answer, &exchange.request);
        assert_eq!(differs, None, "line {}", exchange.index + 1);
        let asked = playback.calls() as u64;
        let row = row(&mut table, &exchange);
        match Part::of(&exchange) {
            Part::LookUp => row.look_ups_asked += asked,
            Part::Login => row.login_asked += asked,
            Part::CheckOut => {
                row.calls += 1;
                row.asked += asked;
            }
        }
    }

    report("played back", &table);
    assert_expected(&table, [0, 0, 6, 6]);
}

/// The same against the module itself, whose look-ups come back through a gateway and the sidecar.
async fn against_the_standin(settings: &[(&str, &str)]) -> Vec<Counts> {
    let gateway = Okapi::start().await;
    let standin = Standin::start(Options {
        look_ups: LookUps::Gateway(gateway.url()),
        ..Options::default()
    })
    .await;
    standin.clock().stop();
    let sidecar = Sidecar::start(&standin.url(), settings).await;
    standin.seen(1).await;
    gateway.connect(sidecar.addr, &standin);
    let mut okapi = Connection::open(sidecar.addr).await.expect("a connection");
    let mut table = Vec::new();

    for exchange in golden::exchanges("check-out") {
        let part = Part::of(&exchange);
        if part == Part::LookUp {
            continue;
        }
        standin.forget_calls();
        let answer = okapi.ask(&exchange.request).await.expect("an answer");

        if part == Part::CheckOut {
            let differs = answer_differs(&exchange.answer, &answer, &exchange.request);
            assert_eq!(differs, None, "line {}", exchange.index + 1);
        }
        let calls = standin.calls();
        let row = row(&mut table, &exchange);
        if part == Part::CheckOut {
            row.calls += 1;
            row.asked += calls.total - calls.look_ups;
            row.look_ups_asked += calls.look_ups;
        } else {
            row.login_asked += calls.total;
        }
    }
    table
}

#[tokio::test]
async fn a_check_out_costs_the_same_where_look_ups_come_back_through_the_sidecar() {
    let table = against_the_standin(&[("REVOCATION_LISTEN", "false")]).await;

    report("stand-in", &table);
    assert_expected(&table, [0, 0, 6, 6]);
}

#[tokio::test]
async fn listening_for_revocations_costs_a_check_out_nothing() {
    let table = against_the_standin(&[]).await;

    report("stand-in, listening", &table);
    assert_expected(&table, [0, 0, 6, 6]);
}

#[tokio::test]
async fn without_a_cache_every_call_of_a_check_out_is_asked() {
    let table = against_the_standin(&[("CACHE_TTL", "0s")]).await;

    report("stand-in, no cache", &table);
    assert!(table.iter().all(|row| row.asked == row.calls));
    assert_eq!(table[0].calls + table[0].look_ups_asked, 36);
}
