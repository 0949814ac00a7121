//! mod-authtoken's own routes, as logins and tenant installs use them.

use serde_json::Value;

use crate::support::raw::{Answer, Request};
use crate::support::standin::call::{self, FilterCall};
use crate::support::standin::{DESK, Options, Standin};
use crate::{ask, ask_request, loans, standin};

/// The token of a module that may sign, refresh and log in the old way.
fn login_module(standin: &Standin) -> String {
    standin.dummy_token(
        "diku",
        "UNDEFINED_USER__x",
        &[
            "auth.token.sign.post",
            "auth.token.refresh.post",
            "auth.token.post",
            "auth.refreshtoken.post",
        ],
    )
}

/// Both steps: the filter call, then the handler call with what it was answered.
async fn both(standin: &Standin, path: &str, token: &str, body: &str) -> Answer {
    let filter = ask(standin, &FilterCall::new("POST", path).token(token)).await;
    assert_eq!(filter.status, 202, "{path}");
    let magic = filter
        .headers
        .get("X-Okapi-Permissions")
        .expect("a magic permission");
    ask_request(standin, &call::handler(path, "diku", token, magic, body)).await
}

fn member(answer: &Answer, name: &str) -> String {
    let body: Value = serde_json::from_slice(&answer.body).expect("JSON");
    body[name].as_str().expect("a text").to_owned()
}

fn login_body() -> String {
    format!(r#"{{"payload":{{"sub":"desk","user_id":"{DESK}"}}}}"#)
}

fn refresh_body(token: &str) -> String {
    format!(r#"{{"refreshToken":"{token}"}}"#)
}

#[tokio::test]
async fn a_login_gives_an_access_token_that_works() {
    let standin = standin().await;
    let module = login_module(&standin);

    for (path, name) in [("/token/sign", "accessToken"), ("/token", "token")] {
        let answer = both(&standin, path, &module, &login_body()).await;
        assert_eq!(answer.status, 201);
        assert_eq!(
            ask(&standin, &loans(&member(&answer, name))).await.status,
            202
        );
    }
    standin.world(|world| world.set_legacy_login("diku", false));
    assert_eq!(
        both(&standin, "/token", &module, &login_body())
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn a_refresh_token_works_once_and_its_reuse_ends_all_of_them() {
    let standin = standin().await;
    let module = login_module(&standin);
    let first = member(
        &both(&standin, "/token/sign", &module, &login_body()).await,
        "refreshToken",
    );
    let other = member(
        &both(&standin, "/token/sign", &module, &login_body()).await,
        "refreshToken",
    );
    let refresh =
        async |token: &str| both(&standin, "/token/refresh", &module, &refresh_body(token)).await;

    let answer = refresh(&first).await;
    assert_eq!(answer.status, 201);
    let second = member(&answer, "refreshToken");
    assert_eq!(refresh(&first).await.status, 401);
    assert_eq!(refresh(&second).await.status, 401);
    let answer = refresh(&other).await;
    assert_eq!((answer.status, answer.text()), (401, "Invalid token"));
    assert_eq!(refresh("no-such").await.status, 401);
}

#[tokio::test]
async fn a_logout_ends_refresh_tokens_not_access_tokens() {
    let standin = standin().await;
    let module = login_module(&standin);
    let login = both(&standin, "/token/sign", &module, &login_body()).await;
    let (access, first) = (
        member(&login, "accessToken"),
        member(&login, "refreshToken"),
    );
    let login = both(&standin, "/token/sign", &module, &login_body()).await;
    let second = member(&login, "refreshToken");
    let login = both(&standin, "/token/sign", &module, &login_body()).await;
    let third = member(&login, "refreshToken");

    let answer = both(
        &standin,
        "/token/invalidate",
        &access,
        &refresh_body(&first),
    )
    .await;
    assert_eq!((answer.status, answer.headers.len()), (204, 0));
    let answer = both(&standin, "/token/refresh", &module, &refresh_body(&second)).await;
    assert_eq!(answer.status, 201);
    assert_eq!(
        both(&standin, "/token/invalidate-all", &access, "")
            .await
            .status,
        204
    );
    let answer = both(&standin, "/token/refresh", &module, &refresh_body(&third)).await;
    assert_eq!(answer.status, 401);
    assert_eq!(ask(&standin, &loans(&access)).await.status, 202);
    // Only the holder of an access token can be logged out everywhere.
    assert_eq!(
        both(&standin, "/token/invalidate-all", &module, "")
            .await
            .status,
        500
    );
}

#[tokio::test]
async fn a_signed_dummy_expires() {
    let standin = Standin::start(Options {
        access_token_life: 60,
        ..Options::default()
    })
    .await;
    let module = login_module(&standin);
    let body = format!(
        r#"{{"payload":{{"sub":"reset","dummy":true,"extra_permissions":["{}"]}}}}"#,
        crate::LOANS
    );
    let token = member(
        &both(&standin, "/token/sign", &module, &body).await,
        "token",
    );

    assert_eq!(ask(&standin, &loans(&token)).await.status, 202);
    standin.clock().advance(std::time::Duration::from_secs(62));
    assert_eq!(ask(&standin, &loans(&token)).await.status, 401);
}

#[tokio::test]
async fn a_filter_call_with_the_magic_permission_reaches_the_handler() {
    let standin = standin().await;
    let call = FilterCall::new("POST", "/token/sign")
        .token(&standin.access_token("diku", DESK))
        .client_header("X-Okapi-Permissions", r#"["L3Rva2VuL3NpZ24=.execute"]"#);

    let answer = ask(&standin, &call).await;
    assert_eq!((answer.status, answer.text()), (400, "Bad Request"));
    let mut request = call.request();
    request.method = "PUT".to_owned();
    assert_eq!(ask_request(&standin, &request).await.status, 405);
}

#[tokio::test]
async fn a_tenant_job_is_made_shown_and_deleted() {
    let standin = standin().await;
    let magic = r#"["L18vdGVuYW50.execute"]"#;
    let tenant = |method: &str, path: &str, body: &str| {
        let token = standin.dummy_token("diku", "UNDEFINED_USER__x", &[]);
        let mut request: Request = call::handler(path, "diku", &token, magic, body);
        request.method = method.to_owned();
        request
    };

    let system = call::system("POST", "/_/tenant", "diku");
    let answer = ask_request(&standin, &system).await;
    assert_eq!(answer.headers.get("X-Okapi-Permissions"), Some(magic));
    let answer = ask_request(
        &standin,
        &tenant("POST", "/_/tenant", r#"{"module_to":"m-1"}"#),
    )
    .await;
    assert_eq!(answer.status, 201);
    let path = answer
        .headers
        .get("location")
        .expect("a location")
        .to_owned();
    assert_eq!(path, format!("/_/tenant/{}", member(&answer, "id")));
    assert_eq!(
        ask_request(&standin, &tenant("GET", &path, ""))
            .await
            .status,
        200
    );
    assert_eq!(
        ask_request(&standin, &tenant("DELETE", &path, ""))
            .await
            .status,
        204
    );
    let answer = ask_request(&standin, &tenant("GET", &path, "")).await;
    assert_eq!(
        (answer.status, answer.headers.get("content-type")),
        (404, Some("text/plain"))
    );
    let purge = tenant("POST", "/_/tenant", r#"{"module_from":"m-1","purge":true}"#);
    assert_eq!(ask_request(&standin, &purge).await.status, 204);
}
