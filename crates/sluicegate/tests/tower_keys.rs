//! Whose request it is.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod tower_support;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use http::Request;
use http::request::Parts;
use sluicegate::clock::ManualClock;
use sluicegate::limit::FixedWindow;
use sluicegate::tower::key::{
    Everybody, Identify, PeerAddr, Proxies, first_of, header, ip, peer, peer_ip,
};
use sluicegate::tower::{MISSING_KEY, Missing, RateLimitLayer};
use tower_support::{Upstream, ask, from, limiter, statuses, text};

fn key(identify: &impl Identify, request: Request<()>) -> Option<String> {
    let mut key = Vec::new();
    identify.identify(&request.into_parts().0, &mut key)?;
    Some(String::from_utf8(key).unwrap())
}

fn at(address: &str) -> Request<()> {
    let address: IpAddr = address.parse().unwrap();
    Request::builder().extension(PeerAddr(SocketAddr::new(address, 50_000))).body(()).unwrap()
}

fn with(headers: &[(&str, &str)]) -> Request<()> {
    let builder =
        headers.iter().fold(Request::builder(), |b, (name, value)| b.header(*name, *value));
    builder.body(()).unwrap()
}

// === one key ===

#[test]
fn a_header_is_the_key_as_it_is() {
    let user = header("X-User");
    assert_eq!(key(&user, from("alice")).unwrap(), "alice");
    assert_eq!(key(&user, with(&[("x-user", "a"), ("x-user", "b")])).unwrap(), "a");
    assert_eq!(key(&user, with(&[("x-user", "")])), None, "empty is none");
    assert_eq!(key(&user, with(&[])), None);
}

#[test]
#[should_panic(expected = "`x user` cannot be the name of a header: use letters, digits and `-`")]
fn a_name_that_no_header_has_is_found_at_the_start() {
    let _ = header("x user");
}

#[test]
fn a_closure_is_a_key() {
    let method = |request: &Parts| Some(request.method.to_string());
    assert_eq!(key(&method, from("alice")).unwrap(), "GET");
    let never = |_: &Parts| None::<[u8; 4]>;
    assert_eq!(key(&never, from("alice")), None);
}

#[test]
fn everybody_is_one() {
    assert_eq!(key(&Everybody, from("alice")).unwrap(), "");
}

// === addresses ===

#[test]
fn addresses_count_by_their_network() {
    let cases = [
        (32, 64, "192.0.2.7", "192.0.2.7"),
        (32, 64, "::ffff:192.0.2.7", "192.0.2.7"),
        (32, 64, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        (32, 64, "2001:db8:1:2::", "2001:db8:1:2::/64"),
        (32, 64, "2001:db8:1:3::", "2001:db8:1:3::/64"),
        (32, 64, "::1", "::/64"),
        (24, 48, "192.0.2.7", "192.0.2.0/24"),
        (24, 48, "::ffff:192.0.2.7", "192.0.2.0/24"),
        (24, 48, "2001:db8:1:2::6", "2001:db8:1::/48"),
        (32, 56, "2001:db8:1:2ff::6", "2001:db8:1:200::/56"),
        (0, 0, "192.0.2.7", "0.0.0.0/0"),
        (0, 0, "2001:db8::6", "::/0"),
        (99, 999, "192.0.2.7", "192.0.2.7"),
        (99, 999, "2001:db8::6", "2001:db8::6"),
    ];
    for (v4, v6, address, expected) in cases {
        let by = peer().v4_prefix(v4).v6_prefix(v6);
        assert_eq!(key(&by, at(address)).unwrap(), expected, "{address} by {v4} and {v6}");
    }
}

#[test]
fn neighbours_in_one_network_share_a_budget_and_others_do_not() {
    let layer = RateLimitLayer::new(limiter(FixedWindow::per_hour(1), &ManualClock::new()), peer());
    let (_, service) = Upstream::behind(&layer);
    let status = |address| ask(&service, at(address)).status().as_u16();
    assert_eq!(status("2001:db8:1:2::1"), 200);
    assert_eq!(status("2001:db8:1:2:ffff::9"), 429);
    assert_eq!(status("2001:db8:1:3::1"), 200);
    assert_eq!(status("192.0.2.7"), 200);
    assert_eq!(status("::ffff:192.0.2.7"), 429);
    assert_eq!(status("192.0.2.8"), 200);
}

#[test]
fn the_address_comes_from_any_extension_or_header() {
    /// As axum has it.
    #[derive(Clone)]
    struct ConnectInfo<T>(T);

    let axum = peer_ip(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0));
    let info = ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 1)));
    let request = Request::builder().extension(info).body(()).unwrap();
    assert_eq!(key(&axum, request).unwrap(), "192.0.2.7");
    assert_eq!(key(&axum, at("192.0.2.7")), None, "another extension");

    let proxied = ip(|request| request.headers.get("x-real-ip")?.to_str().ok()?.parse().ok());
    assert_eq!(key(&proxied, with(&[("x-real-ip", "2001:db8::1")])).unwrap(), "2001:db8::/64");
    assert_eq!(key(&proxied, with(&[("x-real-ip", "nonsense")])), None);
}

// === several keys ===

#[test]
fn all_of_several_never_meet_by_concatenation() {
    let both = (header("a"), header("b"));
    assert_eq!(key(&both, with(&[("a", "x"), ("b", "yz")])).unwrap(), "1:x,2:yz,");
    let values = ["x", "y", "xy", "1:x,", "1:x,1:y,", ",", "1:", "11:", "1"];
    let pairs = values.iter().flat_map(|a| values.map(|b| [("a", *a), ("b", b)]));
    let keys: HashSet<_> = pairs.map(|pair| key(&both, with(&pair)).unwrap()).collect();
    assert_eq!(keys.len(), values.len() * values.len());
}

#[test]
fn several_of_several() {
    let who = (header("a"), (header("b"), header("c")), |_: &Parts| Some("d"), Everybody);
    let request = with(&[("a", "1"), ("b", "2"), ("c", "3")]);
    assert_eq!(key(&who, request).unwrap(), "1:1,8:1:2,1:3,,1:d,0:,");
}

#[test]
fn who_lacks_one_of_several_is_not_known() {
    let all = (header("a"), header("b"), header("c"));
    assert_eq!(key(&all, with(&[("a", "1"), ("c", "3")])), None);
}

#[test]
fn the_first_that_is_known() {
    let who = first_of((header("x-api-key"), (header("a"), header("b")), peer()));
    assert_eq!(key(&who, with(&[("x-api-key", "k7")])).unwrap(), "0/k7");
    assert_eq!(key(&who, with(&[("a", "1"), ("b", "2")])).unwrap(), "1/1:1,1:2,");
    assert_eq!(key(&who, at("192.0.2.7")).unwrap(), "2/192.0.2.7");
    assert_eq!(key(&who, with(&[])), None);
    let mut half_known = at("192.0.2.7");
    half_known.headers_mut().insert("a", "1".parse().unwrap());
    assert_eq!(key(&who, half_known).unwrap(), "2/192.0.2.7", "nothing of the others is left");
    assert_ne!(
        key(&who, with(&[("x-api-key", "192.0.2.7")])),
        key(&who, at("192.0.2.7")),
        "a key that looks like an address"
    );
}

// === no key ===

fn without_users(missing: Missing) -> (Upstream, sluicegate::tower::RateLimit<Upstream>) {
    let limiter = limiter(FixedWindow::per_hour(1), &ManualClock::new());
    Upstream::behind(&RateLimitLayer::new(limiter, header("x-user")).on_missing(missing))
}

#[test]
fn all_without_a_key_share_one_budget() {
    let limiter = limiter(FixedWindow::per_hour(2), &ManualClock::new());
    let (_, service) = Upstream::behind(&RateLimitLayer::new(limiter.clone(), header("x-user")));
    let statuses = [(); 3].map(|()| ask(&service, with(&[])).status().as_u16());
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(ask(&service, from("alice")).status(), 200);
    assert_eq!(limiter.of(MISSING_KEY).peek().remaining, Some(0));
}

#[test]
fn those_without_a_key_may_pass() {
    let (_, service) = without_users(Missing::Pass);
    for _ in 0..3 {
        let response = ask(&service, with(&[]));
        assert_eq!((response.status().as_u16(), response.headers().len()), (200, 0));
    }
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
}

#[test]
fn who_passes_one_limiter_without_a_key_is_still_under_the_others() {
    let clock = ManualClock::new();
    let (users, all) =
        (limiter(FixedWindow::per_hour(5), &clock), limiter(FixedWindow::per_hour(1), &clock));
    let layer =
        RateLimitLayer::new(users, header("x-user")).and(all, Everybody).on_missing(Missing::Pass);
    let (_, service) = Upstream::behind(&layer);
    assert_eq!(ask(&service, with(&[])).headers()["x-ratelimit-limit"], "1");
    assert_eq!(ask(&service, with(&[])).status(), 429);
}

#[test]
fn those_without_a_key_may_be_rejected() {
    let (upstream, service) = without_users(Missing::Reject);
    let response = ask(&service, with(&[]));
    assert_eq!(response.status(), 400);
    assert_eq!(response.headers()["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_str(&text(response)).unwrap();
    assert_eq!(body["error"]["code"], "identity_missing");
    assert!(body["error"]["message"].as_str().unwrap().starts_with("Request does not say who"));

    let call = ask(&service, with(&[("content-type", "application/grpc")]));
    assert_eq!(
        (call.status().as_u16(), &call.headers()["grpc-status"]),
        (200, &"3".parse().unwrap())
    );
    assert_eq!(upstream.calls(), 0);
    assert_eq!(statuses(&service, "alice", 2), [200, 429]);
}

/// Limits by plan, whose keys pass where another plan applies, and a limit by address.
#[test]
fn a_limit_by_address_applies_beside_keys_that_pass() {
    let cases = [(None, [200, 200, 429]), (Some(Missing::Reject), [400, 400, 400])];
    for (of_address, expected) in cases {
        let clock = ManualClock::new();
        let new = |max| limiter(FixedWindow::per_hour(max), &clock);
        let plan = |name: &'static str| {
            let key = move |request: &Parts| (request.headers.get("x-plan")? == name).then_some("");
            key.on_missing(Missing::Pass)
        };
        let layer = RateLimitLayer::new(new(9), plan("free")).and(new(9), plan("pro"));
        let layer = match of_address {
            None => layer.and(new(2), peer()),
            Some(missing) => layer.and(new(2), peer().on_missing(missing)),
        };
        let (_, service) = Upstream::behind(&layer);
        let send = |plan| ask(&service, with(&[("x-plan", plan)])).status().as_u16();
        assert_eq!(["free", "pro", "none"].map(send), expected, "no request has an address");
    }
}

#[test]
fn the_treatment_of_a_part_is_that_of_the_combined_key() {
    let user = || header("x-user").on_missing(Missing::Pass);
    assert_eq!((header("x-tenant"), user()).missing(), Some(Missing::Pass));
    assert_eq!(
        first_of((user(), peer().on_missing(Missing::Reject))).missing(),
        Some(Missing::Pass)
    );
    assert_eq!((header("x-tenant"), Everybody).missing(), None);
}

// === proxies ===

#[test]
fn the_client_behind_trusted_proxies_is_the_key() {
    let client = peer().behind(Proxies::parse(["10.0.0.0/8", "fd00::/8"]).unwrap());
    let from = |address: &str, headers: &[(&str, &str)]| {
        let mut request = at(address);
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            request.headers_mut().append(name, value.parse().unwrap());
        }
        key(&client, request).unwrap()
    };
    let forged = "6.6.6.6, 203.0.113.9";
    for (peer, headers, expected) in [
        ("198.51.100.1", vec![("x-forwarded-for", forged)], "198.51.100.1"),
        ("10.0.0.1", vec![("x-forwarded-for", forged)], "203.0.113.9"),
        ("::ffff:10.0.0.1", vec![("x-forwarded-for", "203.0.113.9, 10.0.0.2")], "203.0.113.9"),
        (
            "10.0.0.1",
            vec![("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.9")],
            "203.0.113.9",
        ),
        (
            "fd00::1",
            vec![("forwarded", r#"for="[2001:db8:1:2::7]:443";proto=https"#)],
            "2001:db8:1:2::/64",
        ),
        ("10.0.0.1", vec![("x-real-ip", "203.0.113.9")], "203.0.113.9"),
        ("10.0.0.1", vec![("x-forwarded-for", "203.0.113.9, nonsense")], "10.0.0.1"),
        ("10.0.0.1", vec![], "10.0.0.1"),
    ] {
        assert_eq!(from(peer, &headers), expected, "{peer} {headers:?}");
    }
    assert_eq!(key(&client, with(&[("x-forwarded-for", forged)])), None, "the peer is unknown");
    let by_network = peer().v4_prefix(24).behind(Proxies::default());
    let mut request = at("127.0.0.1");
    request.headers_mut().insert("x-forwarded-for", "203.0.113.9".parse().unwrap());
    assert_eq!(key(&by_network, request).unwrap(), "203.0.113.0/24");
}
