//! Request targets that the HTTP library would not pass on as they came.

use crate::harness::{self, pair};

#[tokio::test]
async fn a_target_with_a_fragment_is_refused_and_nothing_is_asked() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", crate::support::standin::DESK);
    for target in [
        "/circulation/loans#x",
        "/admin/health#/../users",
        "/#",
        "/x?a=b#c",
    ] {
        let call = harness::loans(&token).to(target);

        let answer = sidecar.ask(&call).await;

        assert_eq!(answer.status, 400, "{target}");
    }
    assert_eq!(standin.calls().total, 0);
}

#[tokio::test]
async fn a_fragment_cut_by_a_packet_s_end_is_seen_all_the_same() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", crate::support::standin::DESK);
    let bytes = harness::loans(&token)
        .to("/admin/health#/../users")
        .request()
        .to_bytes();
    let mut connection = sidecar.connect().await;

    connection.send(&bytes[..20]).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    connection.send(&bytes[20..]).await.unwrap();

    assert_eq!(connection.answer(false).await.unwrap().status, 400);
    assert_eq!(standin.calls().total, 0);
}

#[tokio::test]
async fn names_of_permission_sets_in_headers_are_no_fragments() {
    let (standin, sidecar) = pair(&[]).await;
    let token = standin.access_token("diku", crate::support::standin::DESK);
    let call = harness::loans(&token).module_permissions(r#"{"m-1":["SYS#m-1#/x#[GET]"]}"#);
    let mut connection = sidecar.connect().await;

    for _ in 0..3 {
        assert_eq!(connection.ask(&call.request()).await.unwrap().status, 202);
    }
}
