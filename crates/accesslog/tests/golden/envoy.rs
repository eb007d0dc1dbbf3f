//! Envoy and Istio, as text.

use super::*;

const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80""#;

fn usual() -> Record<'static> {
    Record {
        at: at("2016-04-15T20:17:00.310Z"),
        client_ip: ip("10.0.35.28"),
        method: text("POST"),
        host: text("locations"),
        uri: text("/api/v1/locations"),
        status: Some(204),
        bytes: Some(0),
        duration: millis(226),
        headers: headers(&[
            ("x-forwarded-for", "10.0.35.28"),
            ("user-agent", "nsq2http"),
            ("x-request-id", "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2"),
        ]),
        ..Record::default()
    }
}

#[test]
fn the_default_format() {
    check("envoy", "", ENVOY, &usual());
}

#[test]
fn the_last_forwarded_address_is_the_client() {
    let line = ENVOY.replace("10.0.35.28", "1.1.1.1, 2001:db8::5");
    let forwarded = headers(&[
        ("x-forwarded-for", "1.1.1.1, 2001:db8::5"),
        ("user-agent", "nsq2http"),
        ("x-request-id", "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2"),
    ]);
    let expected = Record { client_ip: ip("2001:db8::5"), headers: forwarded, ..usual() };
    check("envoy", "", &line, &expected);
}

#[test]
fn a_denied_and_a_broken_request() {
    let line = r#"[2024-01-02T03:04:05Z] "- - HTTP/1.1" 400 DPE 0 11 - - "-" "-" "-" "-" "-""#;
    let expected = Record {
        at: at("2024-01-02T03:04:05Z"),
        status: Some(400),
        bytes: Some(11),
        ..Record::default()
    };
    check("envoy", "", line, &expected);
    let line = ENVOY.replace("204 -", "0 DC,URX");
    check("envoy", "", &line, &Record { status: None, ..usual() });
}

#[test]
fn istio() {
    let line = r#"[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 3 "-" "curl/7.73.0-DEV" "84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "10.44.1.27:80" outbound|8000||httpbin.foo.svc.cluster.local 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default"#;
    let expected = Record {
        at: at("2020-11-25T21:26:18.409Z"),
        client_ip: ip("10.44.1.23"),
        method: text("GET"),
        host: text("httpbin:8000"),
        uri: text("/status/418"),
        status: Some(418),
        bytes: Some(135),
        duration: millis(4),
        headers: headers(&[
            ("user-agent", "curl/7.73.0-DEV"),
            ("x-request-id", "84961386-6d84-929d-98bd-c5aee93b5c88"),
        ]),
        ..Record::default()
    };
    check("envoy", "", line, &expected);
    let line = line.replace("10.44.1.23:46520", "[2001:db8::9]:46520");
    check("istio", "", &line, &Record { client_ip: ip("2001:db8::9"), ..expected });
}

#[test]
fn malformed_lines() {
    let cases = [
        ("[2016", "2016", 1, "no `[`"),
        ("04-15", "13-45", 2, "no time"),
        ("] \"", " \"", 184, "no `]`"),
        ("204", "abcd", 60, "the status"),
        (" 226 ", " x ", 72, "neither a number nor `-`"),
        ("\"nsq2http\"", "\"nsq\"2\"http\"", 98, "no request id"),
    ];
    for (part, by, column, reason) in cases {
        let line = ENVOY.replace(part, by);
        let error = error_of("envoy", "", line.as_bytes());
        assert!(error.reason.starts_with(reason), "{line}: {error}");
        if reason != "no `]`" {
            assert_eq!(error.column, column, "{line}: {error}");
        }
    }
}
