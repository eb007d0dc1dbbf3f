//! nginx and Apache.

use super::*;

fn usual() -> Record<'static> {
    Record {
        at: at("2015-05-17T10:05:03Z"),
        client_ip: ip("83.149.9.216"),
        method: text("GET"),
        uri: text("/images/kibana-search.png"),
        status: Some(200),
        bytes: Some(203_023),
        headers: headers(&[
            ("referer", "http://semicomplete.com/"),
            ("user-agent", "Mozilla/5.0 (X11)"),
        ]),
        ..Record::default()
    }
}

const USUAL: &str = r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /images/kibana-search.png HTTP/1.1" 200 203023 "http://semicomplete.com/" "Mozilla/5.0 (X11)""#;

#[test]
fn the_usual_line() {
    check("combined", "", USUAL, &usual());
    check("nginx", "", USUAL, &usual());
}

#[test]
fn the_common_format_has_no_headers() {
    let line =
        r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#;
    let expected = Record {
        at: at("2000-10-10T20:55:36Z"),
        client_ip: ip("127.0.0.1"),
        user: text("frank"),
        method: text("GET"),
        uri: text("/apache_pb.gif"),
        status: Some(200),
        bytes: Some(2326),
        ..Record::default()
    };
    check("common", "", line, &expected);
    check("combined", "", &format!("{line} 0.005 extra"), &expected);
}

#[test]
fn ipv6_absent_fields_and_offsets() {
    let line =
        r#"2001:db8::7 - - [29/Feb/2024:23:59:60 +0530] "HEAD /?a=%20b HTTP/2.0" 304 - "-" "-""#;
    let expected = Record {
        at: at("2024-02-29T18:30:00Z"),
        client_ip: ip("2001:db8::7"),
        method: text("HEAD"),
        uri: text("/?a=%20b"),
        status: Some(304),
        ..Record::default()
    };
    check("combined", "", line, &expected);
    let mapped = line.replace("2001:db8::7", "::ffff:192.0.2.7");
    check("combined", "", &mapped, &Record { client_ip: ip("192.0.2.7"), ..expected.clone() });
    let zone = line.replace("2001:db8::7", "fe80::1%eth0");
    check("combined", "", &zone, &Record { client_ip: ip("fe80::1"), ..expected.clone() });
    // With `HostnameLookups`, and for a socket in the file system.
    let name = line.replace("2001:db8::7", "crawl-66-249.example.com");
    check("combined", "", &name, &Record { client_ip: None, ..expected.clone() });
    check(
        "combined",
        "",
        &line.replace("2001:db8::7", "unix:"),
        &Record { client_ip: None, ..expected },
    );
}

#[test]
fn escapes_of_nginx_and_apache() {
    let line = |uri: &str, agent: &str| {
        format!(
            r#"192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET {uri} HTTP/1.1" 200 2 "-" "{agent}""#
        )
    };
    let expected = |uri: &'static str, agent: &'static str| Record {
        client_ip: ip("192.0.2.7"),
        uri: text(uri),
        bytes: Some(2),
        headers: headers(&[("user-agent", agent)]),
        ..usual()
    };
    check(
        "nginx",
        "",
        &line(r"/a\x22b\x5Cc", r"say \x22hi\x22 \xC3\xA9"),
        &expected("/a\"b\\c", "say \"hi\" é"),
    );
    check(
        "apache",
        "",
        &line(r#"/a\"b\\"#, r#"\"quoted\"\t\n\x07 \d"#),
        &expected("/a\"b\\", "\"quoted\"\t\n\u{7} \\d"),
    );
    // An escaped backslash before the closing quote does not escape it.
    check("apache", "", &line("/", r"back\\"), &expected("/", "back\\"));
    check("nginx", "", &line("/a b HTTP/1.0 c", "x"), &expected("/a b HTTP/1.0 c", "x"));
}

#[test]
fn connections_without_a_request() {
    let expected = Record {
        method: None,
        uri: None,
        status: Some(400),
        bytes: Some(0),
        headers: headers(&[]),
        ..usual()
    };
    for request in [
        r"\x16\x03\x01\x02\x00\x01",
        "-",
        "",
        " / HTTP/1.1",
        r"\x03 /a HTTP/1.0",
        "GET",
        "GET  HTTP/1.1",
    ] {
        let line =
            format!(r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "{request}" 400 0 "-" "-""#);
        check("combined", "", &line, &expected);
    }
    let line = r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "-" 000 0 "-" "-""#;
    check("combined", "", line, &Record { status: None, ..expected.clone() });
    let line = r#"83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /old" 400 0 "-" "-""#;
    check("combined", "", line, &Record { method: text("GET"), uri: text("/old"), ..expected });
}

#[test]
fn users_with_spaces_and_brackets() {
    for user in ["John Doe", "a [b] c", "[x", "- -", "é"] {
        let line = USUAL.replace("- - [", &format!("ident {user} ["));
        check("combined", "", &line, &Record { user: Some(user.as_bytes()), ..usual() });
    }
    let line = USUAL.replace("- - [", "ident - [");
    check("combined", "", &line, &usual());
}

#[test]
fn fields_behind_the_user_agent_are_ignored() {
    let more = [
        "0.005",
        r#""-""#,
        r#"rt=0.1 "a" b"#,
        r#""gzip" 7"#,
        r#"13 "router@docker" "http://10.0.0.1:80" 5ms"#,
        "denied",
    ];
    for more in more {
        check("combined", "", &format!("{USUAL} {more}"), &usual());
    }
    // The format `main` of nginx's packages.
    let forwarded = headers(&[
        ("referer", "http://semicomplete.com/"),
        ("user-agent", "Mozilla/5.0 (X11)"),
        ("x-forwarded-for", "203.0.113.5, 2001:db8::1"),
    ]);
    let line = format!(r#"{USUAL} "203.0.113.5, 2001:db8::1" 0.1"#);
    check("combined", "", &line, &Record { headers: forwarded, ..usual() });
}

#[test]
fn virtual_hosts() {
    let line = format!("shop.example:443 {USUAL}");
    check("vhost_combined", "", &line, &Record { host: text("shop.example:443"), ..usual() });
}

#[test]
fn the_gateway_writes_combined_too() {
    let line = r#"192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] "GET /a\x22b\x0A HTTP/1.1" 429 12 "-" "curl/8 \x22 200\x0A127.0.0.1" denied"#;
    let expected = Record {
        at: at("2023-11-14T22:13:20Z"),
        client_ip: ip("192.0.2.7"),
        method: text("GET"),
        uri: text("/a\"b\n"),
        status: Some(429),
        bytes: Some(12),
        headers: headers(&[("user-agent", "curl/8 \" 200\n127.0.0.1")]),
        ..Record::default()
    };
    check("combined", "", line, &expected);
}

#[test]
fn malformed_lines_name_the_column() {
    let cases = [
        ("", "x", 2, "no time"),
        ("+0000]", "+000]", 18, "no time"),
        ("[17/", "[32/", 18, "no time"),
        ("May", "Mai", 18, "no time"),
        (":03 ", ":61 ", 18, "no time"),
        ("2015", "1969", 18, "no time"),
        ("2015", "9999", 18, "no time"),
        ("+0000] ", "+0000]", 45, "no `]`"),
        ("\"GET", "GET", 47, "no request line"),
        (" 200 ", " 2000 ", 88, "the status"),
        (" 200 ", " 2x0 ", 88, "the status"),
        (" 203023 ", " -1 ", 92, "the size"),
        ("\"Mozilla/5.0 (X11)\"", "\"Mozilla", 134, "the closing quote"),
    ];
    for (part, by, column, reason) in cases {
        let line = if part.is_empty() { by.to_owned() } else { USUAL.replace(part, by) };
        let error = error_of("combined", "", line.as_bytes());
        assert_eq!(error.column, column, "{line}: {error}");
        assert!(error.reason.starts_with(reason), "{line}: {error}");
    }
    assert_eq!(
        error_of("combined", "", USUAL.replace(" 200 ", " ok ").as_bytes()).to_string(),
        "column 88: the status is not a number of at most three digits"
    );
}
