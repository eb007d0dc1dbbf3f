//! The format of a log is found by its first lines.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use sluicegate_accesslog::detect;

const COMBINED: &str =
    r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 2 "-" "curl/8""#;
const VHOST: &str = r#"shop.example:80 192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 2 "-" "curl/8""#;
const ENVOY: &str = r#"[2016-04-15T20:17:00.310Z] "POST /api HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "nsq2http" "cc21" "locations" "tcp://10.0.2.1:80""#;
const ISTIO: &str = r#"[2020-11-25T21:26:18.409Z] "GET /s HTTP/1.1" 418 - via_upstream - "-" 0 135 4 3 "-" "curl" "84" "httpbin:8000" "10.44.1.27:80" o 10.44.1.23:37652 10.0.45.184:8000 10.44.1.23:46520 - default"#;
const ENVOY_JSON: &str =
    r#"{"start_time":"2024-05-06T07:08:09.123Z","method":"GET","path":"/","response_code":200}"#;
const CADDY: &str = r#"{"level":"info","ts":1646861401.5,"request":{"remote_ip":"127.0.0.1","method":"GET","uri":"/"},"status":200}"#;
const GATEWAY: &str = r#"{"time":"2023-11-14T22:13:20.123Z","client":"192.0.2.7","method":"GET","host":"h","path":"/","status":200,"verdict":"allowed"}"#;
const CLOUDFRONT: &str =
    "#Version: 1.0\n#Fields: date time c-ip cs-method\n2019-12-04\t21:02:31\t192.0.2.1\tGET";
const ALB: &str = r#"http 2018-07-02T22:23:00.186641Z app/lb/50 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET http://h:80/a HTTP/1.1" "curl" - - arn "Root=1-5" "h" "-" 1 2018-07-02T22:22:48.364000Z"#;

#[test]
fn formats() {
    let table = [
        (COMBINED, "combined"),
        (VHOST, "vhost_combined"),
        (ENVOY, "envoy"),
        (ISTIO, "envoy"),
        (ENVOY_JSON, "envoy-json"),
        (CADDY, "caddy"),
        (GATEWAY, "gateway"),
        (CLOUDFRONT, "cloudfront"),
        (ALB, "alb"),
    ];
    for (line, format) in table {
        assert_eq!(detect(line.as_bytes()).unwrap().to_string(), format, "{line}");
        let lines = format!("\r\n{line}\r\n{line}\n");
        assert_eq!(detect(lines.as_bytes()).unwrap().to_string(), format, "{lines}");
        // Up to half of the lines may be something else; a head without its end is enough.
        let mixed = format!("{line}\n{line}\n{line}\nsomething\nelse");
        assert_eq!(detect(mixed.as_bytes()).unwrap().to_string(), format, "{mixed}");
    }
    let mixed = format!("a\nb\nc\n{COMBINED}\n{COMBINED}\n");
    assert!(detect(mixed.as_bytes()).is_err());
}

#[test]
fn logs_without_a_format_have_a_remedy() {
    let cases = [
        ("", "the log is empty; name the format if lines will follow"),
        ("\n\r\n", "the log is empty; name the format if lines will follow"),
        ("hello world\n", "no format reads the first lines (`hello world`…); name one: `combined`"),
        ("1,2,3\n", "no format reads the first lines (`1,2,3`…); name one"),
        (
            "client,TIMESTAMP,ContextTokens\na,1,2\n",
            "CSV with `client`, `TIMESTAMP`, `ContextTokens` has columns of any meaning; name them, such as `csv:time=TIMESTAMP`",
        ),
        (
            "ts\tip\n1\t2\n",
            "TSV with `ts`, `ip` has columns of any meaning; name them, such as `tsv:time=ts`",
        ),
        (
            "{\"@t\":1,\"when\":2,\"path\":\"/\"}\n",
            "JSON with `@t`, `when`, `path` has columns of any meaning; name them, such as `json:time=when`",
        ),
        // Members of any product; without a verdict it is not our gateway.
        (
            "{\"time\":1,\"path\":\"/\",\"status\":200}\n",
            "JSON with `time`, `path`, `status` has columns",
        ),
    ];
    for (head, message) in cases {
        let error = detect(head.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{head:?}: {error}");
        assert!(!error.contains('\n') && error.len() < 2_000, "{error}");
    }
    let hostile = format!("\u{1b}[31m{}", "é".repeat(100_000));
    let error = detect(hostile.as_bytes()).unwrap_err().to_string();
    assert!(!error.contains('\u{1b}') && error.len() < 1_000, "{error}");
}
