//! Answers of the filter that the recordings do not show; those about tokens alone are in `tokens`.

use std::io::ErrorKind;
use std::time::Duration;

use crate::support::raw::{Connection, Request};
use crate::support::standin::call::FilterCall;
use crate::support::standin::world::LookUp;
use crate::support::standin::{DESK, READER};
use crate::{LOANS, ask, ask_request, loans, standin};

#[tokio::test]
async fn the_health_route_answers_in_every_spelling() {
    let standin = standin().await;

    for target in [
        "/admin/health",
        "/admin/health/",
        "//admin/health",
        "/admin//health",
        "/%61dmin/health",
        "/x/../admin/health",
        "/x/%2e%2e/admin/./health?q=1",
        "http://authtoken/admin/health",
    ] {
        let answer = ask(&standin, &FilterCall::get(target).token("junk")).await;
        assert_eq!((answer.status, answer.text()), (200, "OK"), "{target}");
    }
    for target in [
        "/admin/healthy",
        "/x/admin/health",
        "/admin%2Fhealth",
        "/..\\admin\\health",
    ] {
        let answer = ask(&standin, &FilterCall::get(target).token("junk")).await;
        assert_eq!(
            (answer.status, answer.text()),
            (401, "Invalid token"),
            "{target}"
        );
    }
    let answer = ask(
        &standin,
        &FilterCall::new("HEAD", "/admin/health").token("junk"),
    )
    .await;
    assert_eq!(answer.status, 401);
}

#[tokio::test]
async fn the_router_answers_what_is_no_path() {
    let standin = standin().await;

    for (request, status, body) in [
        (Request::new("GET", "/x%zz"), 400, "Bad Request"),
        (Request::new("GET", "/x%"), 400, "Bad Request"),
        (Request::new("OPTIONS", "*"), 404, "Not Found"),
    ] {
        let answer = ask_request(&standin, &request).await;
        assert_eq!((answer.status, answer.text()), (status, body));
        assert_eq!(answer.headers.names(), ["content-length"]);
    }
}

#[tokio::test]
async fn own_routes_are_found_by_raw_prefix() {
    let standin = standin().await;
    let token = standin.access_token("diku", DESK);

    for target in ["/token", "/tokens/1", "/token/signs", "/refreshtoken/x"] {
        let answer = ask(&standin, &loans(&token).to(target)).await;
        assert_eq!(answer.status, 401, "{target}");
        assert!(
            answer
                .text()
                .starts_with("Missing required module-level permissions")
        );
        assert_eq!(answer.headers.names(), ["transfer-encoding"]);
    }
    for target in ["/_/tenantpermissions", "/_/tenant/1", "/token/invalidate"] {
        let answer = ask(&standin, &loans(&token).to(target)).await;
        assert_eq!(answer.status, 202, "{target}");
        assert_eq!(
            answer.headers.names(),
            [
                "transfer-encoding",
                "X-Okapi-Permissions",
                "X-Okapi-Token",
                "X-Okapi-Module-Tokens"
            ]
        );
    }
    for target in [
        "//token",
        "/%74oken",
        "/x/../token",
        "/x/token",
        "http://h/x",
    ] {
        let answer = ask(&standin, &loans(&token).to(target)).await;
        assert_eq!(
            answer.headers.get("content-type"),
            Some("text/plain"),
            "{target}"
        );
        assert_eq!(answer.status, 202, "{target}");
    }
}

#[tokio::test]
async fn forms_are_not_understood() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));

    for form in [
        "application/x-www-form-urlencoded",
        "Multipart/Form-Data; boundary=x",
    ] {
        let plain = call.clone().client_header("Content-Type", form);
        let answer = ask(&standin, &plain.clone().chunked()).await;
        assert_eq!(
            (answer.status, answer.text()),
            (500, "Internal Server Error")
        );
        assert_eq!(ask(&standin, &plain).await.status, 202);
    }
}

#[tokio::test]
async fn a_list_is_split_as_java_splits() {
    let standin = standin().await;
    let token = standin.access_token("diku", DESK);
    let required = |list: &str| FilterCall::get("/x").token(&token).required(&[list]);

    for (list, status) in [
        (String::new(), 403),
        (",".to_owned(), 202),
        (format!("{LOANS},,"), 202),
        (format!(",{LOANS}"), 403),
        (format!("users.item.get, {LOANS}"), 403),
        (format!("[\"{LOANS}\"]"), 403),
    ] {
        assert_eq!(
            ask(&standin, &required(&list)).await.status,
            status,
            "{list}"
        );
    }
}

#[tokio::test]
async fn desired_permissions_are_found_anywhere() {
    let standin = standin().await;
    let token = standin.access_token("diku", READER);
    let told = async |desired: &str| {
        let call = FilterCall::get("/x").token(&token).desired(&[desired]);
        let answer = ask(&standin, &call).await;
        answer.headers.get("X-Okapi-Permissions").map(str::to_owned)
    };

    let all = Some(r#"["users.item.get"]"#.to_owned());
    for desired in ["", "*", "item", "users.*", "*.get", "u*i*g", "x,,users"] {
        assert_eq!(told(desired).await, all, "{desired}");
    }
    for desired in ["x", "get*users", "users.item.get.", ","] {
        assert_eq!(told(desired).await.as_deref(), Some("[]"), "{desired}");
    }
}

#[tokio::test]
async fn another_tenant_is_open_to_a_consortium_only() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK)).tenant("college");

    assert_eq!(ask(&standin, &call).await.status, 403);
    standin.world(|world| world.set_cross_tenant(true));
    assert_eq!(ask(&standin, &call).await.status, 403);
    standin.world(|world| world.set_consortium("college", true));
    // Remembered, true and false alike, for half a day.
    assert_eq!(ask(&standin, &call).await.status, 403);
    standin.restart();
    let answer = ask(&standin, &call).await;
    assert_eq!(answer.status, 202);
    standin.world(|world| world.set_consortium("college", false));
    assert_eq!(ask(&standin, &call).await.status, 202);
    standin.world(|world| world.set_cross_tenant(false));
    assert_eq!(ask(&standin, &call).await.status, 403);
}

#[tokio::test]
async fn the_first_of_duplicate_headers_counts() {
    let standin = standin().await;
    let desk = standin.access_token("diku", DESK);
    let reader = standin.access_token("diku", READER);

    let answer = ask(&standin, &loans(&desk).header("X-Okapi-Token", &reader)).await;
    assert_eq!(answer.headers.get("X-Okapi-User-Id"), Some(DESK));
    let answer = ask(&standin, &loans(&reader).header("X-Okapi-Token", &desk)).await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn bytes_beyond_ascii_count_like_any_others() {
    let standin = standin().await;
    let dummy = loans(&standin.dummy_token("diku", "UNDEFINED_USER__x", &[LOANS]));
    let desk = loans(&standin.access_token("diku", DESK));
    let odd = b"m\xfcller";

    let answer = ask(&standin, &dummy.header("X-Okapi-User-Id", odd)).await;
    assert_eq!(answer.status, 202);
    assert_eq!(answer.headers.bytes("X-Okapi-User-Id"), Some(&odd[..]));
    let call = desk.clone().header("X-Okapi-User-Id", odd);
    assert_eq!(ask(&standin, &call).await.status, 403);
    let call = desk.without("X-Okapi-Permissions-Required");
    let answer = ask(
        &standin,
        &call
            .tenant("diku")
            .header("X-Okapi-Permissions-Required", odd),
    )
    .await;
    assert_eq!(answer.status, 403);
}

#[tokio::test]
async fn extra_permissions_leak_into_the_token_of_the_answer() {
    let standin = standin().await;
    let token = standin.module_token("diku", READER, "mod-x-1", &["a"]);
    let call = loans(&token).header("X-Okapi-Extra-Permissions", LOANS);

    let answer = ask(&standin, &call).await;

    let expected = standin.module_token("diku", READER, "mod-x-1", &["a", LOANS]);
    assert_eq!(answer.headers.get("X-Okapi-Token"), Some(expected.as_str()));
}

#[tokio::test]
async fn trouble_with_other_modules_is_told_in_their_words() {
    let standin = standin().await;
    let call = loans(&standin.access_token("diku", DESK));

    standin.world(|world| world.fail(LookUp::User, Some(503)));
    let answer = ask(&standin, &call).await;
    let text = format!("Invalid token: Unexpected user response code 503 for user id {DESK}");
    assert_eq!((answer.status, answer.text()), (401, text.as_str()));
    assert_eq!(answer.headers.names(), ["Content-Type", "content-length"]);

    standin.world(|world| {
        world.fail(LookUp::User, None);
        world.fail(LookUp::UserPermissions, Some(503));
    });
    let answer = ask(&standin, &call).await;
    let text = format!(
        "Unable to retrieve permissions for user with id '{DESK}': \
         Unable to retrieve permissions (code 503): look-up failed"
    );
    assert_eq!((answer.status, answer.text()), (400, text.as_str()));
    assert_eq!(answer.headers.names()[0], "X-Okapi-Module-Tokens");

    standin.world(|world| world.fail(LookUp::UserPermissions, None));
    assert_eq!(ask(&standin, &call).await.status, 202);
}

#[tokio::test]
async fn a_failed_look_up_of_a_system_set_is_never_answered() {
    let standin = standin().await;
    let token = standin.module_token("diku", DESK, "mod-x-1", &["SYS#mod-x-1#/y#[GET]"]);
    standin.world(|world| world.fail(LookUp::PermissionSets, Some(403)));

    let mut connection = Connection::open(standin.addr())
        .await
        .expect("a connection")
        .patience(Duration::from_millis(300));
    let waited = connection.ask(&loans(&token).request()).await;

    let error = waited.expect_err("no answer");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn broken_module_permissions_are_unanswered_after_a_look_up() {
    let standin = standin().await;
    let token = standin.module_token("diku", DESK, "mod-x-1", &["SYS#mod-x-1#/y#[GET]"]);
    let call = loans(&token).module_permissions(r#"{"m":"p"}"#);

    let mut connection = Connection::open(standin.addr())
        .await
        .expect("a connection")
        .patience(Duration::from_millis(300));
    assert!(connection.ask(&call.request()).await.is_err());

    // A set with parts is remembered, so that no look-up comes before the exception.
    standin.world(|world| world.change_set("diku", "SYS#mod-x-1#/y#[GET]", &["p"]));
    standin.clock().advance(Duration::from_secs(31));
    for _ in 0..2 {
        ask(&standin, &loans(&token)).await;
    }
    assert_eq!(ask(&standin, &call).await.status, 500);
}
