//! Automatic certificates, with a real authority.

use serde_json::json;
use sluicegate_testkit::port::Port;
use sluicegate_testkit::redis::Single;

use crate::gateway::Gateway;
use crate::pebble::{Pebble, presented, state_file};
use crate::support::http::get;
use crate::support::{Folder, sluicegate};

const LONG: u64 = 8_000_000;
const NAME: &str = "a.example.com";
const EXPIRY: &str =
    "sluicegate_gateway_certificate_expiry_timestamp_seconds{domain=\"a.example.com\"}";
const FAILURES: &str = "sluicegate_gateway_certificate_failures_total{domain=\"a.example.com\"}";

fn start(file: &str) -> Gateway {
    Gateway::at_addresses_of(file)
}

fn ordered(gateway: &mut Gateway) -> String {
    gateway.process.says("certificate obtained")
}

#[test]
fn both_challenges_obtain_a_certificate_that_clients_verify() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let profile = |lifetime_s: u64| json!({ "description": "", "validityPeriod": lifetime_s });
        let profiles = json!({ "long": profile(LONG), "short": profile(60) });
        let pebble = Pebble::with(60, json!({ "profiles": profiles }));
        let (state, port) = (Folder::new(), pebble.tls.number());
        let more = format!(", challenge: {challenge}, email: ops@example.com, profile: long");
        let mut gateway = start(&pebble.file(NAME, &state, &more));
        let line = ordered(&mut gateway);
        assert!(line.contains("domain=a.example.com valid_s=79999"), "{line}");
        let run = pebble.curl(NAME, port, "");
        assert_eq!((run.code, &*run.stdout), (0, "served"), "{challenge}: {}", run.stderr);
        let expiry: u64 = gateway.metric(EXPIRY).unwrap().parse().unwrap();
        assert!(expiry > 1_700_000_000, "{expiry}");
        assert_eq!(gateway.metric(FAILURES).as_deref(), Some("0"));
        // Nothing is pending any more: not redirected, and not answered.
        let token = "/.well-known/acme-challenge/LoqXcYV8q5ONbJQxbmR7SCTNo3tiAXDfowyjxAjEuX0";
        assert_eq!(get(&gateway.address, token, &[]).body, "served");
        assert_eq!(get(&gateway.address, "/", &[]).status, 308);
        assert_eq!(presented(port, NAME, "-alpn acme-tls/1"), "");
        assert_ne!(presented(port, NAME, "-alpn h2"), "");
    }
}

#[test]
fn a_restart_uses_the_stored_certificate_also_without_the_authority() {
    let (mut pebble, state) = (Pebble::start(LONG), Folder::new());
    let (port, file) = (pebble.tls.number(), pebble.file(NAME, &state, ""));
    let mut gateway = start(&file);
    ordered(&mut gateway);
    let first = presented(port, NAME, "");
    assert!(state_file(&state, "a.example.com.pem").contains(&*first));
    drop(gateway);
    pebble.kill();
    let gateway = start(&file);
    assert_eq!(presented(port, NAME, ""), first);
    assert_eq!(gateway.metric(FAILURES).as_deref(), Some("0"), "nothing was ordered");
}

#[test]
fn renewal_information_of_the_authority_renews_early() {
    let (pebble, state) = (Pebble::start(LONG), Folder::new());
    let (port, file) = (pebble.tls.number(), pebble.file(NAME, &state, ""));
    let mut gateway = start(&file);
    ordered(&mut gateway);
    let first = presented(port, NAME, "");
    drop(gateway);
    // As after an incident: renew now.
    let window = ["2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"];
    pebble.set_renewal_window(&first, window);
    let mut gateway = start(&file);
    ordered(&mut gateway);
    assert_ne!(presented(port, NAME, ""), first);
}

#[test]
fn a_failing_authority_keeps_the_certificate_and_renewals_go_on_after_it() {
    let (mut pebble, state) = (Pebble::start(5), Folder::new());
    let (port, file) = (pebble.tls.number(), pebble.file(NAME, &state, ""));
    let mut gateway = start(&file);
    ordered(&mut gateway);
    pebble.kill();
    let line = gateway.process.says("certificate not renewed, and near its expiry");
    assert!(line.contains("ERROR") && line.contains("client error (Connect)"), "{line}");
    let last = state_file(&state, "a.example.com.pem");
    let presented_then = presented(port, NAME, "");
    assert!(!presented_then.is_empty() && last.contains(&presented_then), "{presented_then}");
    assert_ne!(gateway.metric(FAILURES).as_deref(), Some("0"));
    // It comes back without the account and the certificate that it knew.
    pebble.restart();
    ordered(&mut gateway);
    assert_ne!(presented(port, NAME, ""), presented_then);
}

#[test]
fn a_refused_domain_is_reported_and_does_not_stop_the_others() {
    let (pebble, state) = (Pebble::start(LONG), Folder::new());
    let port = pebble.tls.number();
    let domains = format!("blocked.example.com, {NAME}");
    let mut gateway = start(&pebble.file(&domains, &state, ""));
    let line = gateway.process.says("certificate not obtained; TLS connections to this name fail");
    assert!(line.contains("WARN") && line.contains("domain=blocked.example.com"), "{line}");
    assert!(line.contains("issuance is forbidden by policy"), "{line}");
    gateway.process.has_said("certificate obtained");
    assert_eq!(pebble.curl(NAME, port, "").stdout, "served");
    // The first certificate that there is, which is not valid for the name.
    let run = pebble.curl("blocked.example.com", port, "");
    assert!(
        run.stderr.contains("no alternative certificate subject name matches"),
        "{}",
        run.stderr
    );
    gateway.process.says("a client requests a name that has no certificate yet");
    // It serves what it can: the authority reaches it through load balancers.
    assert_eq!(get(&gateway.admin, "/ready", &[]).status, 200);
}

#[test]
fn a_domain_of_a_changed_file_is_ordered_without_a_restart() {
    let (pebble, state) = (Pebble::start(LONG), Folder::new());
    let port = pebble.tls.number();
    let mut gateway = start(&pebble.file(NAME, &state, ""));
    ordered(&mut gateway);
    let first = presented(port, NAME, "");
    pebble.file(&format!("{NAME}, b.example.com"), &state, "");
    assert!(ordered(&mut gateway).contains("domain=b.example.com"));
    assert_eq!(pebble.curl("b.example.com", port, "").stdout, "served");
    assert_eq!(presented(port, NAME, ""), first, "not ordered again");
}

#[test]
fn an_account_can_be_bound_to_an_external_one() {
    let keys =
        json!({ "kid-1": "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W" });
    let more = json!({ "externalAccountBindingRequired": true, "externalAccountMACKeys": keys });
    let (pebble, state) = (Pebble::with(LONG, more), Folder::new());
    let mut gateway = start(&pebble.file(NAME, &state, ""));
    gateway.process.says("externalAccountRequired");
    drop(gateway);
    let key = state.file("eab.key", &format!("{}\n", keys["kid-1"].as_str().unwrap()));
    let more = format!(", external_account: {{ id: kid-1, key: {key} }}");
    ordered(&mut start(&pebble.file(NAME, &state, &more)));
}

/// The same file for a node at other ports, which the authority does not reach.
fn elsewhere(pebble: &Pebble, file: &str, ports: &[Port; 2], folder: &Folder) -> String {
    let mut text = std::fs::read_to_string(file).unwrap();
    for (own, other) in [&pebble.http, &pebble.tls].into_iter().zip(ports) {
        let [own, other] = [own, other].map(|port| format!("127.0.0.1:{}", port.number()));
        assert!(text.contains(&own));
        text = text.replace(&own, &other);
    }
    folder.file("gateway.yaml", &text)
}

#[test]
fn nodes_of_one_store_make_one_order() {
    let (mut pebble, redis) = (Pebble::start(LONG), Single::start());
    let (states, ports) = ([(); 3].map(|()| Folder::new()), [Port::free(), Port::free()]);
    let file = |state: &Folder| {
        let file = pebble.file(NAME, state, "");
        elsewhere(&pebble, &file, &ports, state)
    };
    let (first, second) = (pebble.file(NAME, &states[0], ""), file(&states[1]));
    let third = file(&states[2]);
    let store = ["--store", redis.url()];
    let mut nodes = [&first, &second].map(|file| Gateway::at_addresses_with(file, &store));
    let lines = nodes.each_mut().map(ordered);
    let own = lines.iter().filter(|line| line.contains("from=\"the authority\"")).count();
    assert_eq!(own, 1, "{lines:?}");
    let certificates = [&pebble.tls, &ports[1]].map(|port| presented(port.number(), NAME, ""));
    assert_eq!(certificates[0], certificates[1]);
    assert_ne!(certificates[0], "");
    // A node without state takes the certificate, also without the authority.
    drop(nodes);
    pebble.kill();
    let mut node = Gateway::at_addresses_with(&third, &store);
    assert!(ordered(&mut node).contains("from=\"another node\""));
    assert_eq!(presented(ports[1].number(), NAME, ""), certificates[0]);
}

#[test]
fn a_node_answers_challenges_of_another_one() {
    let (pebble, redis) = (Pebble::start(LONG), Single::start());
    let (states, ports) = ([(); 2].map(|()| Folder::new()), [Port::free(), Port::free()]);
    let store = ["--store", redis.url()];
    let file = pebble.file("other.example.com", &states[0], "");
    let mut reached = Gateway::at_addresses_with(&file, &store);
    ordered(&mut reached);
    let file = elsewhere(&pebble, &pebble.file(NAME, &states[1], ""), &ports, &states[1]);
    let mut orders = Gateway::at_addresses_with(&file, &store);
    assert!(ordered(&mut orders).contains("from=\"the authority\""));
    let keys = redis.cli(&["KEYS", "sg:1:value:acme:token:*"]);
    assert_eq!(keys, "", "nothing is pending");
}

#[test]
fn state_that_cannot_be_used_fails_the_start() {
    let (pebble, state) = (Pebble::start(LONG), Folder::new());
    let file = pebble.file(NAME, &state, "");
    state.file("state", "a file");
    let run = sluicegate(&["gateway", "--config", &file, "--admin", "127.0.0.1:0"], "");
    assert_eq!(run.code, 2, "{}", run.stderr);
    let expected = "cannot use automatic certificates: `";
    assert!(
        run.stderr.contains(expected) && run.stderr.contains("name a directory"),
        "{}",
        run.stderr
    );
}
