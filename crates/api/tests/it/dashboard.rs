//! The files of the dashboard, and where they are answered.

use std::io::Read as _;

use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::keys::key;
use crate::support::{Fixture, fixture};

const FILES: [&str; 5] = ["", "/app.js", "/app.css", "/icon.svg", "/licenses.txt"];

async fn get(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = Request::get(path);
    let request = headers.iter().fold(request, |it, (name, value)| it.header(*name, *value));
    fixture.site.router().clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn bytes(response: Response) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn files_are_answered_in_either_coding_and_not_again_to_those_who_have_them() {
    let fixture = fixture(vec![key("ops", true)]);
    let mut in_all = 0;
    for file in FILES {
        let path = format!("/dashboard{file}");
        let plain = get(&fixture, &path, &[]).await;
        let tag = plain.headers()["etag"].to_str().unwrap().to_owned();
        let plain = bytes(plain).await;
        let compressed = get(&fixture, &path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(compressed.headers()["content-encoding"], "gzip");
        let compressed = bytes(compressed).await;
        in_all += compressed.len();
        let mut inflated = Vec::new();
        GzDecoder::new(&*compressed).read_to_end(&mut inflated).unwrap();
        assert!(!plain.is_empty() && plain == inflated, "{path}");
        assert_eq!(get(&fixture, &path, &[("if-none-match", &tag)]).await.status(), 304);
    }
    assert!(in_all <= 80_000, "{in_all} bytes");
}

#[tokio::test(start_paused = true)]
async fn every_file_lets_the_browser_ask_the_engine_alone() {
    let fixture = fixture(vec![key("ops", true)]);
    for file in FILES {
        let answer = get(&fixture, &format!("/dashboard{file}"), &[]).await;
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';") && !policy.contains("unsafe"));
        assert!(policy.contains("frame-ancestors 'none'"));
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    }
    let page = String::from_utf8(bytes(get(&fixture, "/dashboard", &[]).await).await).unwrap();
    for foreign in ["http:", "https:", "<style", "style=", "onload="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_within_the_dashboard_is_the_page_and_a_missing_file_is_none() {
    let fixture = fixture(vec![key("ops", true)]);
    let page = bytes(get(&fixture, "/dashboard", &[]).await).await;
    for path in ["/dashboard/lanes", "/dashboard/notifications/0199-a"] {
        assert_eq!(bytes(get(&fixture, path, &[]).await).await, page, "{path}");
    }
    assert_eq!(get(&fixture, "/dashboard/old-app.js", &[]).await.status(), 404);
    let answer = get(&fixture, "/", &[]).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["location"]),
        (303, &"/dashboard".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn where_operators_have_an_address_the_dashboard_is_there_alone() {
    let mut fixture = fixture(vec![key("ops", true)]);
    fixture.site = fixture.operators.clone();
    assert_eq!(get(&fixture, "/dashboard", &[]).await.status(), 200);
    fixture.site = fixture.public.clone();
    for file in FILES {
        assert_eq!(get(&fixture, &format!("/dashboard{file}"), &[]).await.status(), 404);
    }
    assert_eq!(get(&fixture, "/", &[]).await.status(), 404);
}
