//! Client addresses from forwarding headers.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::{HOPS_MAX, Proxies};
use super::Lines;

fn ours() -> Proxies {
    Proxies::new(["10.0.0.0/8", "fd00::/8"].map(|text| text.parse().unwrap()).to_vec())
}

fn client(lines: Lines<'_>) -> String {
    ours().client_ip("10.0.0.1".parse().unwrap(), &lines).to_string()
}

#[test]
fn the_nearest_that_is_not_ours() {
    for (line, expected) in [
        ("203.0.113.9", "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9", "203.0.113.9"),
        ("6.6.6.6, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("2001:db8::9", "2001:db8::9"),
        ("[2001:db8::9]", "2001:db8::9"),
        ("[2001:db8::9]:443", "2001:db8::9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("203.0.113.9, ::ffff:10.0.0.2", "203.0.113.9"),
        ("203.0.113.9, fd00::2", "203.0.113.9"),
        (" 203.0.113.9 ,, ", "203.0.113.9"),
        // An invalid address ends the trusted chain.
        ("6.6.6.6, unknown", "10.0.0.1"),
        ("6.6.6.6, unix:, 10.0.0.2", "10.0.0.2"),
        ("6.6.6.6, _hidden, 10.0.0.2", "10.0.0.2"),
        ("203.0.113.999", "10.0.0.1"),
        ("[203.0.113.9]", "10.0.0.1"),
        ("203.0.113.9:", "10.0.0.1"),
        ("203.0.113.9 6.6.6.6", "10.0.0.1"),
        ("\"203.0.113.9\"", "10.0.0.1"),
        ("", "10.0.0.1"),
    ] {
        assert_eq!(client(&[("x-forwarded-for", line.as_bytes())]), expected, "{line}");
    }
    assert_eq!(client(&[]), "10.0.0.1", "nobody says anything");
}

#[test]
fn several_lines_are_one_list() {
    let lines: Lines<'_> = &[
        ("X-Forwarded-For", b"6.6.6.6"),
        ("x-forwarded-for", b"203.0.113.9, 10.0.0.3"),
        ("x-forwarded-for", b"10.0.0.2"),
    ];
    assert_eq!(client(lines), "203.0.113.9");
}

#[test]
fn forwarded_is_read_where_there_is_no_other() {
    for (line, expected) in [
        ("for=203.0.113.9", "203.0.113.9"),
        ("For=\"[2001:db8::9]:4711\";proto=https;by=10.0.0.1", "2001:db8::9"),
        ("for=6.6.6.6, for=203.0.113.9;proto=http, for=10.0.0.2", "203.0.113.9"),
        ("proto=https; for=203.0.113.9", "203.0.113.9"),
        ("for=6.6.6.6, proto=https", "10.0.0.1"),
        ("for=unknown", "10.0.0.1"),
        // A client's unclosed quote swallows no later element.
        ("for=6.6.6.6;x=\", for=203.0.113.9", "10.0.0.1"),
        ("for=6.6.6.6;x=\", for=\"[2001:db8::9]\"", "10.0.0.1"),
        ("x=\"a, for=6.6.6.6\", for=203.0.113.9", "203.0.113.9"),
        ("x=\"\\\", for=6.6.6.6\", for=203.0.113.9", "203.0.113.9"),
    ] {
        assert_eq!(client(&[("forwarded", line.as_bytes())]), expected, "{line}");
    }
    let both: Lines<'_> = &[("forwarded", b"for=6.6.6.6"), ("x-forwarded-for", b"203.0.113.9")];
    assert_eq!(client(both), "203.0.113.9");
}

#[test]
fn x_real_ip_is_the_last_resort() {
    assert_eq!(client(&[("x-real-ip", b"203.0.113.9")]), "203.0.113.9");
    assert_eq!(
        client(&[("x-real-ip", b"6.6.6.6"), ("x-forwarded-for", b"203.0.113.9")]),
        "203.0.113.9"
    );
    assert_eq!(client(&[("x-real-ip", b"6.6.6.6"), ("forwarded", b"for=unknown")]), "10.0.0.1");
}

#[test]
fn there_is_an_end_to_proxies() {
    let many = "10.0.0.9, ".repeat(HOPS_MAX) + "10.0.0.8";
    let line = format!("203.0.113.9, {many}");
    assert_eq!(client(&[("x-forwarded-for", line.as_bytes())]), "10.0.0.9");
}

/// Reference implementation: joins all lines and returns the last untrusted address.
fn naive(lines: &[String]) -> String {
    let all = lines.join(",");
    let hops: Vec<&str> = all.split(',').map(str::trim).filter(|hop| !hop.is_empty()).collect();
    let trusted = |hop: &str| hop.starts_with("10.");
    let mut client = "10.0.0.1".to_owned();
    for place in (0..hops.len()).rev().take(HOPS_MAX) {
        let Ok(address) = hops[place].trim_end_matches(":80").parse::<IpAddr>() else { break };
        client = address.to_string();
        if !trusted(&client) {
            break;
        }
    }
    client
}

proptest! {
    #[test]
    fn the_client_is_that_of_a_naive_reading(
        lines in vec(
            vec(
                select(&["10.0.0.2", "10.9.9.9:80", "203.0.113.9", "2001:db8::9", " 6.6.6.6:80 ", "unknown", "", "10.0.0"][..]),
                0..6,
            ),
            0..10,
        ),
    ) {
        let lines: Vec<String> = lines.iter().map(|hops| hops.join(",")).collect();
        let headers: Vec<(&str, &[u8])> =
            lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
        prop_assert_eq!(client(&headers), naive(&lines));
    }

    /// The address appended by a trusted proxy overrides all client input.
    #[test]
    fn nobody_can_pass_for_another(
        name in select(&["x-forwarded-for", "forwarded"][..]),
        made_up in vec(any::<u8>(), 0..40),
        own_line in any::<bool>(),
    ) {
        let added = if name == "forwarded" { "for=203.0.113.9" } else { "203.0.113.9" };
        let one = [made_up.as_slice(), b", ", added.as_bytes()].concat();
        let lines: Vec<(&str, &[u8])> = match own_line {
            true => vec![(name, &made_up), (name, added.as_bytes())],
            false => vec![(name, &one)],
        };
        let client = client(&lines);
        prop_assert!(client == "203.0.113.9" || client == "10.0.0.1", "{client}");
    }
}
