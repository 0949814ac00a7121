//! Every recorded request, asked of the stand-in; its answer must be the recorded one, to the byte.
//!
//! What the recorded module drew by lot (subjects of token-less requests, refresh tokens, job ids) is taken from the recorded
//! answer, the time from the recorded request. Changes of the world are made where the recordings made them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::Value;

use crate::support::golden::{self, Exchange};
use crate::support::raw::{Answer, Connection};
use crate::support::standin::world::User;
use crate::support::standin::{Options, READER, Standin};

/// Tokens of the recorded stack lived ten years, so that its recordings stay good.
const TEN_YEARS: i64 = 315_360_000;

/// How many exchanges must come out equal: all but those in `DIFFERENT`.
const EQUAL: usize = 371;

/// What cannot come out equal: file, position, scenario, why.
const DIFFERENT: [(&str, usize, &str, &str); 1] = [(
    "filter",
    114,
    "extra permissions json",
    "the body quotes mod-permissions' CQL parser",
)];

#[tokio::test]
async fn every_recorded_exchange_comes_out_equal() {
    let mut equal = 0;
    let mut wrong = Vec::new();
    let standin = Standin::start(Options {
        access_token_life: TEN_YEARS,
        refresh_token_life: TEN_YEARS,
        ..Options::default()
    })
    .await;
    standin.clock().stop();
    // One stand-in for all files, since one module was recorded: `filter` shows a refresh token that `login` gave out.
    for file in ["tenant", "login", "check-out", "filter", "events"] {
        for exchange in &golden::exchanges(file) {
            load_chance(&standin, exchange);
            if let Some(time) = exchange.request.headers.get("X-Okapi-request-timestamp") {
                let time = time.parse().expect("milliseconds");
                standin.clock().set_wall(Duration::from_millis(time));
            }

            let answer = ask(&standin, exchange).await;

            change_world(&standin, exchange);
            let listed = DIFFERENT.iter().find(|(file, index, scenario, _)| {
                (*file, *index, *scenario)
                    == (exchange.file, exchange.index, exchange.scenario.as_str())
            });
            match (answer == exchange.answer, listed) {
                (true, None) => equal += 1,
                (false, Some(_)) => {}
                (true, Some((_, _, _, why))) => {
                    wrong.push(format!("{}: equal, though {why}", name(exchange)));
                }
                (false, None) => wrong.push(format!(
                    "{}:\n  recorded {:?}\n  got      {answer:?}\n  differs  {}",
                    name(exchange),
                    exchange.answer,
                    difference(&exchange.answer, &answer)
                )),
            }
        }
    }
    eprintln!(
        "{equal} recorded exchanges equal, {} skipped:",
        DIFFERENT.len()
    );
    for (file, index, scenario, why) in DIFFERENT {
        eprintln!("  {file}.ndjson, line {}, {scenario}: {why}", index + 1);
    }

    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(equal, EQUAL);
}

fn name(exchange: &Exchange) -> String {
    format!(
        "{}.ndjson, line {}, {}: {} {}",
        exchange.file,
        exchange.index + 1,
        exchange.scenario,
        exchange.request.method,
        exchange.request.target
    )
}

fn difference(recorded: &Answer, got: &Answer) -> String {
    let (recorded_names, got_names) = (recorded.headers.names(), got.headers.names());
    if recorded_names != got_names {
        return format!("header names {recorded_names:?}, {got_names:?}");
    }
    let values = recorded.headers.iter().zip(got.headers.iter());
    for ((name, value), (_, other)) in values {
        if value != other {
            return format!("value of {name}");
        }
    }
    format!(
        "start line, interim or body: {:?} {:?}",
        recorded.text(),
        got.text()
    )
}

async fn ask(standin: &Standin, exchange: &Exchange) -> Answer {
    // A connection each: some of them end theirs.
    let mut connection = Connection::open(standin.addr())
        .await
        .expect("a connection");
    connection
        .ask(&exchange.request)
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", name(exchange)))
}

/// What the recorded module drew by lot for this answer.
fn load_chance(standin: &Standin, exchange: &Exchange) {
    let answer = &exchange.answer;
    standin.chance(|chance| {
        if !exchange.request.headers.has("X-Okapi-Token")
            && let Some(token) = answer.headers.get("X-Okapi-Token")
        {
            chance.next_subject(subject(token));
        }
        if let Some(location) = answer.headers.get("location") {
            chance.next_job(location.rsplit('/').next().expect("an id"));
        }
        if answer.status == 201
            && let Ok(body) = serde_json::from_slice::<Value>(&answer.body)
            && let Some(token) = body["refreshToken"].as_str()
        {
            chance.next_refresh_token(token);
        }
    });
}

fn subject(token: &str) -> String {
    let payload = token.split('.').nth(1).expect("a payload");
    let payload = BASE64URL.decode(payload).expect("base64url");
    let claims: Value = serde_json::from_slice(&payload).expect("claims");
    claims["sub"].as_str().expect("a subject").to_owned()
}

/// What the recorded request went on to change, once it had passed the filter.
fn change_world(standin: &Standin, exchange: &Exchange) {
    const LOANS: &str = "circulation.loans.collection.get";
    const NEW: &str = "77777777-7777-4777-8777-777777777777";
    if !matches!(exchange.request.method.as_str(), "POST" | "PUT" | "DELETE") {
        return;
    }
    standin.world(|world| match (exchange.file, exchange.scenario.as_str()) {
        ("filter", "grant") => world.grant("diku", READER, LOANS),
        ("filter", "revoke") => world.revoke("diku", READER, LOANS),
        ("events", "create user") => world.add_user(
            "diku",
            NEW,
            User {
                username: "new".to_owned(),
                active: Some(true),
                permissions: Vec::new(),
            },
        ),
        ("events", "grant by permission user id" | "grant by user id") => {
            world.grant("diku", NEW, LOANS);
        }
        ("events", "revoke by permission user id" | "revoke by user id, query first") => {
            world.revoke("diku", NEW, LOANS);
        }
        ("events", "update user") => world.set_active("diku", NEW, true),
        ("events", "delete user") => world.delete_user("diku", NEW),
        _ => {}
    });
}
