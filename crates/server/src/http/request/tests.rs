//! What is read, and what is said of what is not.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use super::{RequestError, read_checks};
use crate::http::BodyLimits;

fn not(body: &str) -> RequestError {
    match read_checks(body.as_bytes(), &BodyLimits::default()) {
        Ok(batch) => panic!("{body} is taken as {batch:?}"),
        Err(not) => not,
    }
}

#[test]
fn descriptors_are_read_in_short_and_in_long() {
    let body = r#"{"hits":9007199254740993,"domain":"sh\u006fp","descriptors":[
        {"user":"42","hits":0,"path":"/"},
        {"limit":{"unit":"WEEK","requests_per_unit":7},"entries":[{"value":"1","key":"hits"},{"key":"hits","value":"2"}]},
        {"a":"b","hits":1e3},{"a":"b","hits":99999999999999999999999}]}"#;
    let batch = read_checks(body.as_bytes(), &BodyLimits::default()).unwrap();
    assert!(!batch.is_list);
    batch.checks[0].with_request(|request| {
        assert_eq!((request.domain, request.hits), ("shop", (1 << 53) - 1));
        let said: Vec<String> = request
            .descriptors
            .iter()
            .map(|one| {
                let entries: Vec<String> = one
                    .entries
                    .iter()
                    .map(|entry| format!("{}={}", entry.key, entry.value))
                    .collect();
                let limit = one.limit.map(|limit| (limit.requests_per_unit, limit.unit.name()));
                format!("{} {:?} {limit:?}", entries.join(","), one.hits)
            })
            .collect();
        assert_eq!(
            said,
            [
                "user=42,path=/ Some(0) None",
                r#"hits=1,hits=2 None Some((7, "week"))"#,
                "a=b Some(1000) None",
                "a=b Some(9007199254740991) None",
            ]
        );
    });
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_a_remedy() {
    for (body, field, says) in [
        ("", "", "the body is empty; send JSON"),
        ("[]", "", r#"expected an object such as {"domain":"shop""#),
        (r#"{"domain":"shop""#, "", "EOF while parsing an object"),
        ("{}", "", "`domain` is missing; name the domain"),
        (r#"{"domain":""}"#, "", "`domain` is empty"),
        (r#"{"domain":5}"#, "domain", "must be a string, got `5`; write it in quotes: \"5\""),
        (r#"{"domain":null}"#, "domain", "expected a string"),
        (r#"{"domain":"s"}"#, "", "`descriptors` is missing; send at least one"),
        (r#"{"domain":"s","descriptors":[]}"#, "", "`descriptors` is empty"),
        (r#"{"domain":"s","descriptors":{}}"#, "descriptors", "expected a list of descriptors"),
        (
            r#"{"domian":"s"}"#,
            "domian",
            "unknown field `domian`; did you mean `domain`? known are domain, descriptors, hits, limits, pool, checks",
        ),
        (r#"{"domain":"s","domain":"s"}"#, "domain", "occurs twice"),
        (r#"{"domain":"s","hits":-1}"#, "hits", "got `-1`; to give hits back, send"),
        (r#"{"domain":"s","hits":1.5}"#, "hits", "must be a whole number from 0 on, got `1.5`"),
        (r#"{"domain":"s","hits":"1"}"#, "hits", "expected a whole number from 0 on"),
        (r#"{"domain":"s","descriptors":[{}]}"#, "descriptors[0]", "has no entries"),
        (
            r#"{"domain":"s","descriptors":[{"a":"b"},7]}"#,
            "descriptors[1]",
            r#"expected a descriptor such as {"user":"42"}"#,
        ),
        (r#"{"domain":"s","descriptors":[{"a":"b","a":"c"}]}"#, "descriptors[0].a", "occurs twice"),
        (
            r#"{"domain":"s","descriptors":[{"entries":[],"limt":{}}]}"#,
            "descriptors[0].limt",
            "did you mean `limit`?",
        ),
        (
            r#"{"domain":"s","descriptors":[{"a":"b","entries":[]}]}"#,
            "descriptors[0]",
            "use one of the two forms",
        ),
        (
            r#"{"domain":"s","descriptors":[{"hits":"3"}]}"#,
            "descriptors[0].hits",
            "expected a whole number",
        ),
        (
            r#"{"domain":"s","descriptors":[{"entries":[{"key":"a"}]}]}"#,
            "descriptors[0].entries[0]",
            "`value` is missing",
        ),
        (
            r#"{"domain":"s","descriptors":[{"entries":[{"kee":"a"}]}]}"#,
            "descriptors[0].entries[0].kee",
            "did you mean `key`?",
        ),
        (
            r#"{"domain":"s","descriptors":[{"limit":{"unit":"fortnight"}}]}"#,
            "descriptors[0].limit.unit",
            "unknown unit `fortnight`; write one of second, minute",
        ),
        (
            r#"{"domain":"s","descriptors":[{"limit":{"requests_per_unit":4294967296}}]}"#,
            "descriptors[0].limit.requests_per_unit",
            "must be at most 4294967295",
        ),
        (
            r#"{"domain":"s","descriptors":[{"limit":{"unit":"day"}}]}"#,
            "descriptors[0].limit",
            "`requests_per_unit` is missing",
        ),
        (r#"{"checks":[]}"#, "", "`checks` is empty"),
        (
            r#"{"checks":[{"domain":"s","descriptors":[{"a":"b"}]},{"domain":"s"}]}"#,
            "checks[1]",
            "`descriptors` is missing",
        ),
        (
            r#"{"checks":[{"checks":[]}]}"#,
            "checks[0].checks",
            "unknown field `checks`; known are domain",
        ),
        (
            r#"{"hits":1,"checks":[{"domain":"s","descriptors":[{"a":"b"}]}]}"#,
            "",
            "`checks` stands alone",
        ),
        (r#"{"domain":"s","descriptors":[{"a":"b"}]} x"#, "", "trailing characters"),
    ] {
        let not = not(body);
        assert_eq!(not.field, field, "{body}: {not}");
        assert!(not.message.contains(says), "{body}: {not}");
        assert!(not.line >= 1, "{body}: {not}");
    }
}

#[test]
fn bodies_that_are_not_json_are_recognized() {
    let example = r#"send JSON, such as `{"domain":"shop","descriptors":[{"user":"42"}]}`"#;
    let table = [
        ("", "line 1, column 1: the body is empty; "),
        (" \r\n", "line 1, column 1: the body is empty; "),
        ("domain=shop&user=42", "line 1, column 1: the body is form-encoded; "),
        ("user%5B0%5D=42", "line 1, column 1: the body is form-encoded; "),
        (
            "--x1\r\nContent-Disposition: form-data; name=\"domain\"\r\n\r\nshop\r\n--x1--\r\n",
            "line 1, column 1: the body is a multipart form; ",
        ),
    ];
    for (body, due) in table {
        let error = read_checks(body.as_bytes(), &BodyLimits::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("{due}{example}"), "{body:?}");
    }
    for (body, position) in [
        ("{'domain':'shop'}", "line 1, column 2"),
        ("{\n \"domain\": 'shop'}", "line 2, column 12"),
        (r#"{"domain":"d","descriptors":[{'user':"42"}]}"#, "line 1, column 31"),
    ] {
        let error = read_checks(body.as_bytes(), &BodyLimits::default()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{position}: there is a single quote; ")), "{error}");
        assert!(error.contains(r#"double quotes around names and strings, such as `{"domain""#));
    }
    for body in ["{\"a=b\"", "[1=2]", "\"a=b\"", "=", "null"] {
        let error = read_checks(body.as_bytes(), &BodyLimits::default()).unwrap_err();
        assert!(!error.to_string().contains("form-encoded"), "{body:?}: {error}");
    }
}
