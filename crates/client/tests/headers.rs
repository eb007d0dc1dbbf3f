//! What APIs write, and what is read from it.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use sluicegate_client::pace::{ServerHints, Window};

fn read(status: u16, lines: &str) -> ServerHints {
    let mut headers = HeaderMap::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    ServerHints::of(StatusCode::from_u16(status).unwrap(), &headers)
}

/// What is told of windows, as `name quota remaining reset_after`.
fn windows(lines: &str) -> Vec<String> {
    let one = |Window { name, quota, remaining, reset_after }: Window| {
        let quota = quota.map_or("?".to_owned(), |quota| quota.to_string());
        format!("{name} {quota} {remaining} {reset_after:?}").trim().to_owned()
    };
    read(200, lines).windows.into_iter().map(one).collect()
}

#[test]
fn every_dialect() {
    for (lines, expected) in [
        (r#"RateLimit: "default";r=50;t=30"#, vec!["default ? 50 30s"]),
        ("RateLimit: default;r=50;t=30", vec!["default ? 50 30s"]),
        (
            "RateLimit-Policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400
             RateLimit: \"burst\";r=50;t=30, \"daily\";r=7;t=3600",
            vec!["burst 100 50 30s", "daily 1000 7 3600s"],
        ),
        (
            "RateLimit: \"a\";r=1;t=2
             RateLimit: \"b\";r=3;t=4",
            vec!["a ? 1 2s", "b ? 3 4s"],
        ),
        // Without a time, the window is how long it can take.
        (
            "RateLimit-Policy: \"p\";q=10;w=60
             RateLimit: \"p\";r=0",
            vec!["p 10 0 60s"],
        ),
        (
            r#"RateLimit: "p";r=1;t=2;pk=:YQ==:, "p";r=3;t=2;pk=:Yg==:"#,
            vec!["p;:YQ==: ? 1 2s", "p;:Yg==: ? 3 2s"],
        ),
        ("RateLimit: limit=100, remaining=50, reset=5", vec!["100 50 5s"]),
        (
            "RateLimit-Limit: 100, 100;w=60
             RateLimit-Remaining: 99
             RateLimit-Reset: 50",
            vec!["100 99 50s"],
        ),
        (
            "X-RateLimit-Limit: 60
             X-RateLimit-Remaining: 0
             X-RateLimit-Reset: 12.5",
            vec!["60 0 12.5s"],
        ),
        (
            "Date: Tue, 14 Nov 2023 22:13:20 GMT
             X-RateLimit-Remaining: 4
             X-RateLimit-Reset: 1700000042",
            vec!["? 4 42s"],
        ),
        (
            "Date: Tue, 14 Nov 2023 22:13:20 GMT
             X-Rate-Limit-Remaining: 4
             X-Rate-Limit-Reset: 1700000042500",
            vec!["? 4 42.5s"],
        ),
        // It was before the answer was written: now.
        (
            "Date: Tue, 14 Nov 2023 22:13:20 GMT
             X-RateLimit-Remaining: 4
             X-RateLimit-Reset: 1600000000",
            vec!["? 4 0ns"],
        ),
        // What the older form says does not matter where there is the newer.
        (
            "RateLimit: \"a\";r=1;t=2
             X-RateLimit-Remaining: 9
             X-RateLimit-Reset: 9",
            vec!["a ? 1 2s"],
        ),
        ("X-RateLimit-Remaining: -3\nX-RateLimit-Reset: 1", vec!["? 0 1s"]),
        // Without a date nobody knows when that is.
        ("X-RateLimit-Remaining: 4\nX-RateLimit-Reset: 1700000042", vec![]),
        ("X-RateLimit-Remaining: 4", vec![]),
        ("RateLimit: \"a\";r=x;t=2, \"b\";t=2, \"c\";r=1;t=soon", vec![]),
        ("RateLimit: ,,;;\"", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(windows(lines), expected, "{lines}");
    }
}

#[test]
fn who_is_turned_away_and_for_how_long() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let date = "Date: Tue, 14 Nov 2023 22:13:20 GMT\n";
    for (status, lines, denied, retry_after) in [
        (429, "Retry-After: 30".to_owned(), true, seconds(30)),
        (429, format!("{date}Retry-After: Tue, 14 Nov 2023 22:14:20 GMT"), true, seconds(60)),
        (429, format!("{date}Retry-After: Tue, 14 Nov 2023 22:00:00 GMT"), true, seconds(0)),
        (429, "Retry-After: Tue, 14 Nov 2023 22:14:20 GMT".to_owned(), true, None),
        (429, "Retry-After: soon".to_owned(), true, None),
        (429, String::new(), true, None),
        (503, "Retry-After: 5".to_owned(), true, seconds(5)),
        (503, String::new(), false, None),
        (200, "Retry-After: 5".to_owned(), false, None),
        (301, "Retry-After: 5".to_owned(), false, None),
    ] {
        let hints = read(status, &lines);
        assert_eq!((hints.denied, hints.retry_after), (denied, retry_after), "{status} {lines}");
    }
}

/// What Sluicegate itself writes is understood.
#[tokio::test]
async fn the_headers_of_our_own_service() {
    use axum::body::Body;
    use sluicegate_server::app::App;
    use sluicegate_server::http::{Options, router};
    use tower::ServiceExt;

    let rules = "domain: shop\ndescriptors: [{ key: user, limits: { name: daily, algorithm: fixed_window, rate: 2/day } }]";
    let engine = sluicegate::Engine::new(sluicegate::rules_of(rules).unwrap()).unwrap();
    let router = router(App::new(engine), Options::default());
    let hints = async || {
        let body = r#"{"domain":"shop","descriptors":[{"user":"42"}]}"#;
        let request = http::Request::post("/v1/check").body(Body::from(body)).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        ServerHints::of(answer.status(), answer.headers())
    };
    for (denied, remaining) in [(false, 1), (false, 0), (true, 0)] {
        let hints = hints().await;
        let [window] = &*hints.windows else { panic!("{hints:?}") };
        assert_eq!((hints.denied, window.remaining), (denied, remaining));
        assert_eq!((&*window.name, window.quota), ("daily", Some(2)));
        assert_eq!(hints.retry_after, denied.then_some(window.reset_after));
    }
}
