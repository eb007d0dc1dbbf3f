//! Caddy, as `docs/guide/caddy.md` has it.

use std::path::PathBuf;
use std::process::Command;

use crate::bed::{Bed, assert_seconds, error, expected, told};
use crate::client::{ALICE, BOB, HERE};
use crate::page::{Page, replaced};
use crate::ports;
use crate::support::process::Process;
use crate::support::root;

/// A Caddy; ends with this value.
struct Caddy {
    _process: Process,
    address: String,
}

impl Caddy {
    /// Starts one with a site of the page, at an address of its own.
    fn start(site: &str, bed: &Bed) -> Self {
        let address = ports::free();
        let (host, port) = address.split_once(':').unwrap();
        let changes = [
            (":8000 {", format!(":{port} {{\n\tbind {host}")),
            ("127.0.0.1:8080", bed.service.http.clone()),
            ("127.0.0.1:3000", bed.upstream.address.clone()),
        ];
        let site = replaced(site, &changes);
        let config = format!("{{\n\tadmin off\n\tauto_https off\n}}\n\n{site}");
        let config = bed.folder.file("Caddyfile", &config);
        let mut command = Command::new(program());
        command.args(["run", "--adapter", "caddyfile", "--config", &config]);
        for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, bed.folder.path());
        }
        let mut process = Process::start("caddy", &mut command);
        process.says("serving initial configuration");
        Self { _process: process, address }
    }
}

/// As `scripts/servers` installs it. It is never left out: without Caddy nothing here is tested.
fn program() -> PathBuf {
    let named = std::env::var_os("SLUICEGATE_TEST_CADDY").map(PathBuf::from);
    let program = named.unwrap_or_else(|| root().join("target/servers/bin/caddy"));
    assert!(program.exists(), "there is no {}: run ./scripts/servers first", program.display());
    program
}

fn page() -> Page {
    Page::read("caddy")
}

/// The short configuration.
fn short(page: &Page) -> &str {
    page.block("caddyfile", ":8000 {\n\tforward_auth")
}

/// The one that tells clients what is left.
fn long(page: &Page) -> &str {
    page.block("caddyfile", ":8000 {\n\treverse_proxy")
}

#[test]
fn three_pass_and_the_fourth_is_told_when() {
    let page = page();
    let bed = Bed::start(page.rules());
    let caddy = Caddy::start(short(&page), &bed);
    assert_eq!(HERE.statuses(&caddy.address, "/"), [200, 200, 200]);
    let answer = HERE.get(&caddy.address, "/", &[]);
    assert_eq!((answer.status, bed.upstream.reached()), (429, 3));
    assert_eq!(told(&answer), expected("per-address", 3, 0));
    assert_seconds(&answer, "retry-after", 1..=1200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = error(&answer);
    assert_eq!(
        (&error["code"], &error["context"]["limit"]),
        (&"rate_limited".into(), &"per-address".into())
    );

    // Every header that the page shows, and no other about limits.
    let shown = page.block("text", "HTTP/1.1 429");
    let shown: Vec<&str> =
        shown.lines().skip(1).map_while(|line| Some(line.split_once(": ")?.0)).collect();
    let ours = |name: &&str| !["Server", "Date", "Content-Length", "Connection"].contains(name);
    let sent: Vec<&str> =
        answer.headers.iter().map(|(name, _)| name.as_str()).filter(ours).collect();
    assert_eq!(sent, shown);
}

#[test]
fn whoever_passes_is_told_what_is_left() {
    let page = page();
    let bed = Bed::start(page.rules());
    let caddy = Caddy::start(long(&page), &bed);
    for left in [2, 1, 0] {
        let answer = HERE.send(&caddy.address, "POST", "/a?b=c", &[], "all of it");
        assert_eq!((answer.status, answer.body.as_str()), (200, "POST /a?b=c all of it"));
        assert_eq!(told(&answer), expected("per-address", 3, left));
    }
    let answer = HERE.get(&caddy.address, "/", &[]);
    assert_eq!((answer.status, told(&answer)), (429, expected("per-address", 3, 0)));

    let free = page.rules().replace("    - { remote_address: client_ip }\n", "");
    let bed = Bed::start(&free);
    let caddy = Caddy::start(long(&page), &bed);
    let answer = HERE.get(&caddy.address, "/", &[]);
    assert_eq!(
        (answer.status, answer.header("x-ratelimit-limit")),
        (200, None),
        "no rule, no header"
    );
}

#[test]
fn each_client_has_its_own_and_cannot_make_up_another() {
    let page = page();
    for site in [short(&page), long(&page)] {
        let bed = Bed::start(page.rules());
        let caddy = Caddy::start(site, &bed);
        assert_eq!(ALICE.statuses(&caddy.address, "/"), [200, 200, 200, 429]);
        assert_eq!(BOB.statuses(&caddy.address, "/login"), [200, 429], "one login an hour");
        assert_eq!(BOB.statuses(&caddy.address, "/"), [200, 200, 429]);
        for made_up in [
            ("X-Forwarded-For", "203.0.113.9"),
            ("X-Real-IP", "203.0.113.9"),
            ("Forwarded", "for=203.0.113.9"),
            ("X-Forwarded-Uri", "/other"),
        ] {
            assert_eq!(ALICE.get(&caddy.address, "/", &[made_up]).status, 429, "{made_up:?}");
        }
        let answer = ALICE.get(&caddy.address, "/", &[("X-Original-URI", "/other")]);
        assert_eq!((answer.status, &error(&answer)["code"]), (400, &"conflicting_headers".into()));
    }
}

#[test]
fn what_the_server_forbids_stays_forbidden_and_bodies_reach_it() {
    let page = page();
    let bed = Bed::start(page.rules());
    let caddy = Caddy::start(short(&page), &bed);
    let answer = HERE.get(&caddy.address, "/forbidden", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (403, "GET /forbidden "));
    let answer = HERE.send(&caddy.address, "PUT", "/x", &[], "all of it");
    assert_eq!((answer.status, answer.body.as_str()), (200, "PUT /x all of it"));
}

#[test]
fn a_proxy_that_is_not_trusted_is_told_so() {
    let page = page();
    let bed = Bed::start(&page.rules().replace("[127.0.0.1]", "[10.0.0.0/8]"));
    let caddy = Caddy::start(short(&page), &bed);
    let answer = HERE.get(&caddy.address, "/", &[]);
    assert_eq!((answer.status, &error(&answer)["code"]), (403, &"untrusted_proxy".into()));
    assert_eq!(bed.upstream.reached(), 0);
}

#[test]
fn without_sluicegate_nobody_passes() {
    let page = page();
    let mut bed = Bed::start(page.rules());
    let caddy = Caddy::start(short(&page), &bed);
    bed.service.kill();
    assert_eq!(HERE.statuses(&caddy.address, "/"), [502]);
    assert_eq!(bed.upstream.reached(), 0);
}

#[test]
fn without_sluicegate_everybody_passes_if_told() {
    let page = page();
    let mut bed = Bed::start(page.rules());
    let open = page.block("caddyfile", "\thandle_errors");
    let last = "\treverse_proxy 127.0.0.1:3000\n";
    let caddy = Caddy::start(&replaced(short(&page), &[(last, format!("{last}{open}"))]), &bed);
    assert_eq!(HERE.statuses(&caddy.address, "/"), [200, 200, 200, 429], "as before");
    bed.service.kill();
    let answer = HERE.get(&caddy.address, "/open", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "GET /open "));
}

#[test]
fn behind_another_proxy_the_client_is_found() {
    let page = page();
    // Alice is the other proxy.
    let bed = Bed::start(&page.rules().replace("[127.0.0.1]", "[127.0.0.1, 127.0.0.3]"));
    let other = replaced(
        page.block("caddyfile", "\t\ttrusted_proxies"),
        &[("10.0.0.5", "127.0.0.3".to_owned())],
    );
    let uri = "\t\turi /v1/forward-auth/web\n";
    let caddy = Caddy::start(&replaced(short(&page), &[(uri, format!("{uri}{other}"))]), &bed);
    let through = |list: &str| ALICE.get(&caddy.address, "/", &[("X-Forwarded-For", list)]).status;
    let made_up = ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"];
    assert_eq!(
        made_up.map(|made_up| through(&format!("{made_up}, 203.0.113.9"))),
        [200, 200, 200, 429]
    );
    assert_eq!(through("203.0.113.10"), 200);
    // Who is no proxy of ours is the client, whatever it says.
    let bob = |address: &str| BOB.get(&caddy.address, "/", &[("X-Forwarded-For", address)]).status;
    assert_eq!(made_up.map(bob), [200, 200, 200, 429]);
}
