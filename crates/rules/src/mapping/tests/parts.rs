//! Parsing of parts, and mappings built from them.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Attributes, Identity, Mapping, Part, Source};
use super::{DescriptorMapping, Lines, described, descriptor, in_headers, in_uri, value};

#[test]
fn parts_are_written_as_they_are_read() {
    for text in [
        "client_ip",
        "method",
        "scheme",
        "host",
        "path",
        "uri",
        "bearer",
        "header X-User",
        "cookie session",
        "query key",
        "jwt sub",
        "jwt realm_access.plan or free",
        "jwt https://example.com/plan",
        "json user.id",
        "form user[name]",
        "api_key",
        "api_key or anonymous",
        "api_key plan or free",
        "ja4",
        "asn",
        "country or ZZ",
        "path_template",
        "route",
        "client_certificate",
        "text everybody",
        "text a or b",
        "path or none",
        "header X-Plan or not known",
    ] {
        assert_eq!(text.parse::<Part>().unwrap().to_string(), text);
    }
    assert_eq!(
        "  header   X-A   or   b c ".parse::<Part>().unwrap().to_string(),
        "header X-A or b c"
    );
    assert_eq!("header or".parse::<Part>().unwrap().to_string(), "header or", "a name like others");
}

#[test]
fn what_is_no_part_is_refused() {
    for (text, why) in [
        ("", "`` is no part of a request"),
        ("ip", "`ip` is no part of a request"),
        ("Header X-User", "`Header` is no part of a request"),
        ("header", "`header` needs a name behind it"),
        ("header or free", "`header` needs a name behind it"),
        ("header X:User", "no header has the name `X:User`"),
        ("header Überzahl", "no header has the name `Überzahl`"),
        ("cookie a;b", "no cookie has the name `a;b`"),
        ("query a=b", "no query has the name `a=b`"),
        ("jwt", "`jwt` needs a name behind it"),
        ("json or 1", "`json` needs a name behind it"),
        ("form", "`form` needs a name behind it"),
        ("form a\u{7f}", "no form has the name `a\u{7f}`"),
        ("ja4 x", "`x` is too much; only `or …` may stand there"),
        ("api_key plan free", "`free` is too much; only `or …` may stand there"),
        ("header X-A X-B", "`X-B` is too much; only `or …` may stand there"),
        ("path or", "`or` needs a text behind it"),
        ("text", "`text` needs a text behind it"),
    ] {
        assert_eq!(text.parse::<Part>().unwrap_err().to_string(), why, "{text}");
    }
}

/// An identity that knows everything.
struct Known;

impl Identity for Known {
    fn value<'a>(&'a self, source: &Source) -> Option<Cow<'a, str>> {
        Some(format!("<{source}>").into())
    }
}

#[test]
fn what_only_the_gateway_knows_is_missing_elsewhere() {
    let none: Lines<'_> = &[];
    let elsewhere = Attributes::of(&none);
    let gateway = Attributes { identity: Some(&Known), ..elsewhere };
    for word in Part::GATEWAY_WORDS {
        let named = if matches!(word, "jwt" | "json" | "form") {
            format!("{word} a.b")
        } else {
            word.into()
        };
        assert!(named.parse::<Part>().unwrap().source.is_gateway_only(), "{named}");
        assert_eq!(value(&named, &elsewhere), "-", "{named}");
        assert_eq!(value(&format!("{named} or none"), &elsewhere), "none", "{named}");
        assert_eq!(value(&named, &gateway), format!("<{named}>"));
    }
    for word in Part::WORDS {
        let named = if matches!(word, "header" | "cookie" | "query" | "text") {
            format!("{word} a")
        } else {
            word.into()
        };
        assert!(!named.parse::<Part>().unwrap().source.is_gateway_only(), "{named}");
    }
}

#[test]
fn paths_have_one_form() {
    for (uri, path) in [
        ("/login", "/login"),
        ("/login?next=/#x", "/login"),
        ("/login#x?y", "/login"),
        ("/%6Cogin", "/login"),
        ("//login", "/login"),
        ("/./x/../login", "/login"),
        ("/x/%2e%2E/login", "/login"),
        ("/../../login", "/login"),
        ("/login/", "/login/"),
        ("/login/.", "/login/"),
        ("/login/x/..", "/login/"),
        ("/", "/"),
        ("/..", "/"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%252Fb", "/a%252Fb"),
        ("/100%", "/100%25"),
        ("/%zz", "/%25zz"),
        ("/caf%C3%A9", "/café"),
        ("/café", "/café"),
        ("/%ff%00", "/%FF%00"),
        ("/a+b%20c", "/a+b c"),
        ("/.well-known/x", "/.well-known/x"),
        ("http://shop.example:80/login?x", "/login"),
        ("http://shop.example", "/"),
        ("http://shop.example?/x", "/"),
        ("*", "*"),
        ("", "-"),
    ] {
        assert_eq!(in_uri("path", uri.as_bytes()), path, "{uri}");
    }
    assert_eq!(in_uri("path", b"/caf\xe9"), "/caf%E9");
    assert_eq!(in_uri("uri", b"/a%2fb?c=%20"), "/a%2fb?c=%20", "as it came");
}

#[test]
fn parameters_are_read_whole_or_not_at_all() {
    for (uri, key) in [
        ("/?key=42", "42"),
        ("/?a=b&key=4%32&key=43", "42"),
        ("/?k%65y=4+2", "4 2"),
        ("/?key=caf%C3%A9%26", "café&"),
        ("/?key=a=b", "a=b"),
        ("/?key", "-"),
        ("/?key=", "-"),
        ("/?Key=42", "-"),
        ("/?%zz=1&key=42", "42"),
        ("/key=42", "-"),
        ("/#?key=42", "-"),
        (
            "/?key=%4",
            "`query key` of the request has a `%` without two hexadecimal digits behind it",
        ),
        ("/?key=%ff", "`query key` of the request has bytes that are no UTF-8"),
    ] {
        assert_eq!(in_uri("query key", uri.as_bytes()), key, "{uri}");
    }
}

#[test]
fn headers_cookies_and_tokens() {
    let lines: Lines<'_> = &[
        ("X-User", b" 42 "),
        ("x-role", b"a"),
        ("X-ROLE", b"b"),
        ("cookie", b"theme=dark; session=one"),
        ("cookie", b"session=two"),
        ("authorization", b"bEARER  t0ken"),
        ("x-empty", b""),
        ("x-bytes", b"\xff"),
    ];
    for (part, expected) in [
        ("header x-user", "42"),
        ("header X-Role", "a, b"),
        ("header X-None", "-"),
        ("header X-None or nobody", "nobody"),
        ("header X-Empty or nobody", "nobody"),
        ("header X-Bytes or nobody", "`header X-Bytes` of the request has bytes that are no UTF-8"),
        ("cookie session", "one"),
        ("cookie Session", "-"),
        ("bearer", "t0ken"),
        ("text all of us", "all of us"),
        ("client_ip", "-"),
        ("path", "-"),
    ] {
        assert_eq!(in_headers(part, lines), expected, "{part}");
    }
    assert_eq!(in_headers("bearer", &[("authorization", b"Basic dTpw")]), "-");
    assert_eq!(in_headers("bearer", &[("authorization", b"Bearer")]), "-");
}

#[test]
fn hosts_and_the_rest() {
    let none: Lines<'_> = &[];
    for (host, expected) in [
        ("Shop.Example", "shop.example"),
        ("shop.example:443", "shop.example"),
        ("shop.example.", "shop.example"),
        ("shop.example.:80", "shop.example"),
        ("[2001:DB8::1]:443", "[2001:db8::1]"),
        ("[2001:db8::1", "[2001:db8::1"),
        ("a:b", "a:b"),
        ("", "-"),
    ] {
        let request = Attributes { host: Some(host.as_bytes()), ..Attributes::of(&none) };
        assert_eq!(value("host", &request), expected, "{host}");
    }
    let request = Attributes {
        client_ip: Some("::ffff:192.0.2.7".parse().unwrap()),
        method: Some(b"GET"),
        scheme: Some(b"HTTPS"),
        ..Attributes::of(&none)
    };
    assert_eq!(value("client_ip", &request), "192.0.2.7");
    assert_eq!(
        (value("method", &request), value("scheme", &request)),
        ("GET".into(), "https".into())
    );
}

#[test]
fn a_descriptor_with_a_missing_part_is_left_out() {
    let mapping = Mapping {
        descriptors: vec![
            descriptor(&[("all", "text us")]),
            descriptor(&[("user", "header X-User"), ("plan", "header X-Plan")]),
            descriptor(&[("user", "header X-User"), ("plan", "header X-Plan or free")]),
        ],
        hits: Some("header X-Cost or 2".parse().unwrap()),
    };
    let some: Lines<'_> = &[("x-user", b"42")];
    let expected = ["all=us", "user=42,plan=free"].map(str::to_owned).to_vec();
    assert_eq!(described(&mapping, &some), (expected, 2));
    let every: Lines<'_> = &[("x-user", b"42"), ("x-plan", b"gold"), ("x-cost", b"7")];
    let expected = ["all=us", "user=42,plan=gold", "user=42,plan=gold"].map(str::to_owned).to_vec();
    assert_eq!(described(&mapping, &every), (expected, 7));
    for cost in [b"-1".as_slice(), b"1.5", b"+3", b"many", b"99999999999999999999999"] {
        let lines: Lines<'_> = &[("x-cost", cost)];
        let refused = mapping.describe(&Attributes::of(&lines)).unwrap_err();
        assert_eq!(refused.to_string(), "`header X-Cost` of the request is no whole number");
    }
}

#[test]
fn a_descriptor_may_have_hits_of_its_own() {
    let tokens = DescriptorMapping {
        hits: Some("header X-Tokens".parse().unwrap()),
        ..descriptor(&[("tokens", "header X-User")])
    };
    let descriptors = vec![descriptor(&[("plan", "header X-Plan")]), tokens];
    let mapping = Mapping { descriptors, hits: Some("text 3".parse().unwrap()) };
    let own = |lines: Lines<'_>| {
        let described = mapping.describe(&Attributes::of(&lines)).unwrap();
        let indices: Vec<usize> = described.indices().collect();
        described.with_request("web", |request| {
            let hits = request.descriptors.iter().map(|one| one.hits).collect::<Vec<_>>();
            (hits, request.hits, indices)
        })
    };
    let some: Lines<'_> = &[("x-user", b"42"), ("x-plan", b"a"), ("x-tokens", b"500")];
    assert_eq!(own(some), (vec![None, Some(500)], 3, vec![0, 1]));
    // Without its cost it has that of the request, and a missing part leaves one out.
    assert_eq!(own(&[("x-user", b"42")]), (vec![None], 3, vec![1]));
    let lines: Lines<'_> = &[("x-user", b"42"), ("x-tokens", b"1e3")];
    let refused = mapping.describe(&Attributes::of(&lines)).unwrap_err();
    assert_eq!(refused.to_string(), "`header X-Tokens` of the request is no whole number");
}

/// Reference path normalization: unescapes byte by byte, then resolves segment by segment.
fn naive_path(path: &str) -> String {
    let mut text = String::new();
    let letters: Vec<char> = path.chars().collect();
    let mut at = 0;
    while at < letters.len() {
        let digits: String = letters.iter().skip(at + 1).take(2).collect();
        let hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let byte = if hex { u8::from_str_radix(&digits, 16).ok() } else { None };
        match (letters[at], byte) {
            ('%', Some(b)) if b == b'/' || b == b'%' || !(b' '..0x7f).contains(&b) => {
                text.push_str(&format!("%{b:02X}"));
            }
            ('%', Some(b)) => text.push(char::from(b)),
            ('%', None) => text.push_str("%25"),
            (letter, _) => text.push(letter),
        }
        at += if letters[at] == '%' && byte.is_some() { 3 } else { 1 };
    }
    let mut segments: Vec<String> = Vec::new();
    let mut open = true;
    for segment in text.split('/').skip(1) {
        open = ["", ".", ".."].contains(&segment);
        if segment == ".." {
            segments.pop();
        } else if !open {
            segments.push(segment.to_owned());
        }
    }
    let path = segments.iter().map(|segment| format!("/{segment}")).collect::<String>();
    if open { path + "/" } else { path }
}

proptest! {
    #[test]
    fn paths_are_those_of_a_naive_reading(path in "/([a-c./%]|%2[eEfF5]|%6[12]|%0[0a]|%[7f]f){0,12}") {
        let told = in_uri("path", path.as_bytes());
        prop_assert_eq!(&told, &naive_path(&path));
        // Normalization is idempotent.
        prop_assert_eq!(in_uri("path", told.as_bytes()), told);
    }

    #[test]
    fn parameters_come_back_as_they_were_sent(key in "\\PC{1,8}", value in "\\PC{1,8}") {
        let escaped = |text: &str| text.bytes().map(|b| format!("%{b:02x}")).collect::<String>();
        let uri = format!("/?other=1&{}={}&x", escaped("key"), escaped(&format!("{key}{value}")));
        prop_assert_eq!(in_uri("query key", uri.as_bytes()), format!("{key}{value}"));
    }

    #[test]
    fn nothing_panics_and_nothing_grows(
        uri in vec(any::<u8>(), 0..64),
        lines in vec((0_usize..4, vec(any::<u8>(), 0..32)), 0..8),
    ) {
        let names = ["x-user", "cookie", "authorization", "x-cost"];
        let lines: Vec<(&str, &[u8])> =
            lines.iter().map(|(name, line)| (names[*name], line.as_slice())).collect();
        let size = uri.len() + lines.iter().map(|(_, line)| line.len() + 2).sum::<usize>();
        let lines = lines.as_slice();
        let request = Attributes {
            host: Some(&uri), scheme: Some(&uri), method: Some(&uri), uri: Some(&uri), ..Attributes::of(&lines)
        };
        for part in [
            "method", "scheme", "host", "path", "uri", "bearer", "header X-User", "cookie a", "query a", "client_ip",
        ] {
            if let Ok(Some(value)) = part.parse::<Part>().unwrap().value(&request) {
                prop_assert!(!value.is_empty() && value.len() <= 3 * size + 1, "{part}: {value}");
            }
        }
    }

    #[test]
    fn any_text_is_a_part_or_refused(text in "(client_ip|header|query|text|path|or|X-A|[ -~é]{0,4}| ){0,6}") {
        if let Ok(part) = text.parse::<Part>() {
            prop_assert_eq!(part.to_string().parse::<Part>(), Ok(part));
        }
    }
}
