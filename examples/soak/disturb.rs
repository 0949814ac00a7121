//! What happens beside the load: writes announced as Okapi announces them, purges, restarts.

use crate::people::{PERMISSIONS, Person, Right, SLACK};
use crate::process::Process;
use crate::stage::{HOLD, PERMISSION_MEMORY, Stage, TTL, USER_MEMORY};
use crate::support::raw;
use crate::support::standin::call::FilterCall;
use crate::work::Lots;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long a write is made to take that is to lose its bound: as long as the auth module may then still remember, when
/// the hold is over, what it has learnt during the write.
const LATE_WRITE: Duration = HOLD.saturating_add(USER_MEMORY).saturating_sub(SECOND);
const SECOND: Duration = Duration::from_secs(1);
/// A hold for a permission ends with the first refresh: about the pace of refreshes after `REVOCATION_HOLD`.
const REFRESHED: Duration = Duration::from_secs(1);

/// The tasks that disturb; each for ever.
pub(crate) fn start(stage: &Arc<Stage>, process: &Arc<Process>) -> Vec<JoinHandle<()>> {
    let both = || (stage.clone(), process.clone());
    let (revoking, switching, replacing, purging, restarting) =
        (both(), both(), both(), both(), stage.clone());
    vec![
        tokio::spawn(async move { revoke_permissions(&revoking.0, &revoking.1).await }),
        tokio::spawn(async move { switch_off(&switching.0, &switching.1).await }),
        tokio::spawn(async move { replace(&replacing.0, &replacing.1).await }),
        tokio::spawn(async move { purge(&purging.0, &purging.1).await }),
        tokio::spawn(async move { restart(&restarting).await }),
    ]
}

/// The auth call for a write, as Okapi makes it before it lets the write through.
async fn announced(
    stage: &Stage,
    process: &Process,
    tenant: &str,
    method: &str,
    path: &str,
) -> bool {
    let call = FilterCall::new(method, path)
        .tenant(tenant)
        .token(stage.admin_token(tenant))
        .required(&["soak.admin"]);
    stage.sent.fetch_add(1, Ordering::Relaxed);
    let sent = Instant::now();
    match raw::ask(process.addr, &call.request()).await {
        Ok(answer) => {
            stage.count(answer.status);
            let away = stage.was_away(sent, Instant::now());
            if answer.status != 202 && !away {
                stage.violation(format!("an administrator was refused: {}", answer.status));
            }
            answer.status == 202
        }
        Err(error) => {
            stage.violation(format!("an administrator got no answer: {error}"));
            false
        }
    }
}

async fn revoke_permissions(stage: &Stage, process: &Process) {
    let mut lots = Lots::new(101);
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (place, index) = (lots.draw(stage.places()), lots.draw(PERMISSIONS.len()));
        let (id, tenant) = whose(stage, place);
        let permission = PERMISSIONS[index];
        let path = format!("/perms/users/{id}/permissions/{permission}?indexField=userId");
        let began = Instant::now();
        if !announced(stage, process, tenant, "DELETE", &path).await {
            continue;
        }
        set(stage, place, &id, |person| {
            person.rights[index] = Right::Changing;
            person.revoke(REFRESHED);
        });
        dawdle(stage).await;
        stage
            .with(|standin| standin.world(|world| world.revoke(tenant, &id, permission)))
            .await;
        let written = stage.written(began);
        set(stage, place, &id, |person| {
            person.rights[index] = Right::Gone(written);
        });

        gone(stage, Duration::from_secs(7), PERMISSION_MEMORY).await;
        // Until it is back for good nobody counts on either answer.
        set(stage, place, &id, |person| {
            person.rights[index] = Right::Changing;
        });
        stage
            .with(|standin| standin.world(|world| world.grant(tenant, &id, permission)))
            .await;
        set(stage, place, &id, |person| {
            person.rights[index] = Right::Back(Instant::now());
        });
    }
}

async fn switch_off(stage: &Stage, process: &Process) {
    let mut lots = Lots::new(102);
    loop {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let place = lots.draw(stage.places());
        let (id, tenant) = whose(stage, place);
        let path = format!("/users/{id}");
        let began = Instant::now();
        if !announced(stage, process, tenant, "PUT", &path).await {
            continue;
        }
        set(stage, place, &id, |person| {
            person.active = Right::Changing;
            person.revoke(USER_MEMORY);
        });
        dawdle(stage).await;
        stage
            .with(|standin| standin.world(|world| world.set_active(tenant, &id, false)))
            .await;
        let written = stage.written(began);
        set(stage, place, &id, |person| {
            person.active = Right::Gone(written);
        });

        gone(stage, Duration::from_secs(9), USER_MEMORY).await;
        set(stage, place, &id, |person| {
            person.active = Right::Changing;
        });
        stage
            .with(|standin| standin.world(|world| world.set_active(tenant, &id, true)))
            .await;
        set(stage, place, &id, |person| {
            person.active = Right::Back(Instant::now());
        });
    }
}

/// A user is deleted, a new one comes.
async fn replace(stage: &Stage, process: &Process) {
    let mut lots = Lots::new(103);
    let mut generation = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let place = lots.draw(stage.places());
        let (id, tenant) = whose(stage, place);
        let undisturbed = {
            let person = stage.person(place);
            matches!(person.active, Right::Held)
                && person
                    .rights
                    .iter()
                    .all(|right| matches!(right, Right::Held))
        };
        // Whoever is being disturbed stays: the other tasks will give back what they took.
        if !undisturbed
            || !announced(stage, process, tenant, "DELETE", &format!("/users/{id}")).await
        {
            continue;
        }
        generation += 1;
        let newcomer = stage
            .with(|standin| Person::new(standin, place, generation))
            .await;
        *stage.person(place) = newcomer;
    }
}

async fn purge(stage: &Stage, process: &Process) {
    let mut lots = Lots::new(104);
    for round in 1_u64.. {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let place = lots.draw(stage.places());
        let (id, tenant) = whose(stage, place);
        let path = match round % 6 {
            0 => "/cache".to_owned(),
            3 => format!("/cache/{tenant}"),
            _ => format!("/cache/{tenant}/{id}"),
        };
        match process.try_admin("DELETE", &path).await {
            Ok(answer) if answer.status == 204 => {}
            Ok(answer) => stage.violation(format!("a purge was refused: {}", answer.status)),
            Err(error) => stage.violation(format!("a purge got no answer: {error}")),
        }
        for place in 0..stage.places() {
            let mut person = stage.person(place);
            let concerned = match round % 6 {
                0 => true,
                3 => person.tenant == tenant,
                _ => person.id == id,
            };
            if concerned {
                person.forget();
            }
        }
    }
}

async fn restart(stage: &Stage) {
    loop {
        tokio::time::sleep(Duration::from_secs(19)).await;
        stage.restart(Duration::from_millis(500)).await;
    }
}

/// The write itself: at once, unless it is to be late.
async fn dawdle(stage: &Stage) {
    if stage.late_writes {
        tokio::time::sleep(LATE_WRITE).await;
    }
}

/// Passes the time until what was taken away is given back: past the ttl where that is all the bound there is.
async fn gone(stage: &Stage, usual: Duration, memory: Duration) {
    tokio::time::sleep(if stage.late_writes {
        memory + TTL + SLACK + 2 * SECOND
    } else {
        usual
    })
    .await;
}

fn whose(stage: &Stage, place: usize) -> (String, &'static str) {
    let person = stage.person(place);
    (person.id.clone(), person.tenant)
}

/// Changes the person in this place, unless somebody else has taken it.
fn set(stage: &Stage, place: usize, id: &str, change: impl FnOnce(&mut Person)) {
    let mut person = stage.person(place);
    if person.id == id {
        change(&mut person);
    }
}
