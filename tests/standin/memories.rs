//! What mod-authtoken and mod-permissions remember, and for how long.

use std::time::Duration;

use crate::support::standin::call::FilterCall;
use crate::support::standin::{DESK, READER, Standin};
use crate::{LOANS, ask, loans, standin};

const SET: &str = "ui-loans.view";

async fn status(standin: &Standin, call: &FilterCall) -> u16 {
    ask(standin, call).await.status
}

fn pass(standin: &Standin, seconds: u64) {
    standin.clock().advance(Duration::from_secs(seconds));
}

#[tokio::test]
async fn a_deactivated_user_is_noticed_after_a_minute() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK)).header("Authtoken-Refresh-Cache", "true");
    assert_eq!(status(&standin, &call).await, 202);

    standin.world(|world| world.set_active("diku", DESK, false));
    pass(&standin, 59);
    assert_eq!(status(&standin, &call).await, 202);
    pass(&standin, 2);
    let answer = ask(&standin, &call).await;
    assert_eq!(
        answer.text(),
        format!("Invalid token: user with id {DESK} is not active")
    );

    // A no is remembered as long.
    standin.world(|world| world.set_active("diku", DESK, true));
    pass(&standin, 59);
    assert_eq!(status(&standin, &call).await, 401);
    pass(&standin, 2);
    assert_eq!(status(&standin, &call).await, 202);
}

#[tokio::test]
async fn a_deleted_user_is_noticed_after_a_minute() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));
    assert_eq!(status(&standin, &call).await, 202);

    standin.world(|world| world.delete_user("diku", DESK));
    pass(&standin, 58);
    assert_eq!(status(&standin, &call).await, 202);
    pass(&standin, 3);
    let answer = ask(&standin, &call).await;
    assert_eq!(
        answer.text(),
        format!("Invalid token: User with id {DESK} does not exist")
    );
}

#[tokio::test]
async fn a_revoked_permission_is_noticed_after_a_minute() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));
    assert_eq!(status(&standin, &call).await, 202);

    standin.world(|world| world.revoke("diku", DESK, LOANS));
    pass(&standin, 59);
    assert_eq!(status(&standin, &call).await, 202);
    pass(&standin, 1);
    assert_eq!(status(&standin, &call).await, 403);
    standin.world(|world| world.grant("diku", DESK, LOANS));
    assert_eq!(status(&standin, &call).await, 403);
    pass(&standin, 60);
    assert_eq!(status(&standin, &call).await, 202);
}

#[tokio::test]
async fn the_refresh_header_empties_the_permissions_of_all_tenants() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));
    let other = loans(&standin.access_token("college", READER)).tenant("college");
    assert_eq!(status(&standin, &call).await, 202);
    standin.world(|world| world.revoke("diku", DESK, LOANS));

    let with = |call: &FilterCall, value| call.clone().header("Authtoken-Refresh-Cache", value);
    let dummy = FilterCall::get("/x").token(&standin.dummy_token("diku", "_AUTHZ_MODULE_", &[]));
    let own = call.clone().to("/token/invalidate");
    let junk = call.clone().token("junk");
    let token_less = FilterCall::get("/x");
    for useless in [
        with(&call, "TRUE"),
        with(&call, "1"),
        with(&dummy, "true"),
        with(&own, "true"),
        with(&junk, "true"),
        with(&token_less, "true"),
    ] {
        ask(&standin, &useless).await;
        assert_eq!(status(&standin, &call).await, 202);
    }

    // Even by somebody of another tenant who is then refused.
    assert_eq!(status(&standin, &with(&other, "true")).await, 403);
    assert_eq!(status(&standin, &call).await, 403);
}

#[tokio::test]
async fn a_tokens_own_permissions_are_remembered_for_five_minutes() {
    let standin = standin().await;
    let token = standin.module_token("diku", READER, "mod-x-1", &[SET]);
    let call = loans(&token);
    standin.world(|world| world.change_set("diku", SET, &[LOANS]));
    assert_eq!(status(&standin, &call).await, 202);

    standin.world(|world| world.change_set::<&str>("diku", SET, &[]));
    // mod-permissions is asked about the user every minute, which keeps its own memory young.
    for _ in 0..4 {
        pass(&standin, 61);
        assert_eq!(status(&standin, &call).await, 202);
    }
    pass(&standin, 61);
    assert_eq!(status(&standin, &call).await, 403);
}

#[tokio::test]
async fn a_system_set_is_remembered_for_good_and_by_name_alone() {
    let standin = standin().await;
    let set = "SYS#mod-x-1#/x#[POST]";
    let here = loans(&standin.module_token("diku", READER, "mod-x-1", &[set]))
        .header("Authtoken-Refresh-Cache", "true");
    let there =
        loans(&standin.module_token("college", READER, "mod-x-1", &[set])).tenant("college");
    // Not known yet: no parts, and that is not trusted.
    assert_eq!(status(&standin, &here).await, 403);
    standin.world(|world| world.change_set("diku", set, &[LOANS]));
    pass(&standin, 31);
    assert_eq!(status(&standin, &here).await, 403);
    assert_eq!(status(&standin, &here).await, 202);

    assert_eq!(status(&standin, &there).await, 202);
    standin.world(|world| world.delete_set("diku", set));
    for _ in 0..10 {
        pass(&standin, 24 * 3600);
        assert_eq!(status(&standin, &here).await, 202);
    }
    pass(&standin, 4 * 24 * 3600);
    assert_eq!(status(&standin, &here).await, 403);
}

#[tokio::test]
async fn mod_permissions_gives_an_old_set_once_more_while_it_renews() {
    let standin = standin().await;
    standin.world(|world| {
        world.change_set("diku", SET, &[LOANS]);
        world.grant("diku", READER, SET);
    });
    let call =
        loans(&standin.access_token("diku", READER)).header("Authtoken-Refresh-Cache", "true");
    assert_eq!(status(&standin, &call).await, 202);
    standin.world(|world| world.change_set::<&str>("diku", SET, &[]));

    // No header clears what mod-permissions remembers.
    assert_eq!(status(&standin, &call).await, 202);
    pass(&standin, 29);
    assert_eq!(status(&standin, &call).await, 202);
    pass(&standin, 2);
    assert_eq!(status(&standin, &call).await, 202);
    assert_eq!(status(&standin, &call).await, 403);
}

#[tokio::test]
async fn a_restart_with_another_key_makes_all_tokens_invalid() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));
    assert_eq!(status(&standin, &call).await, 202);

    standin.restart();
    assert_eq!(status(&standin, &call).await, 202);
    standin.restart_with_key("another key");
    let answer = ask(&standin, &call).await;
    assert_eq!((answer.status, answer.text()), (401, "Invalid token"));
    let call = loans(&standin.access_token("diku", DESK));
    assert_eq!(status(&standin, &call).await, 202);
}
