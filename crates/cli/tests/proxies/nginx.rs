//! nginx, as `docs/guide/nginx.md` has it.

use std::path::PathBuf;
use std::process::Command;

use crate::bed::{Bed, assert_seconds, error, expected, told};
use crate::client::{ALICE, BOB, HERE};
use crate::page::{Page, replaced};
use crate::ports;
use crate::support::process::Process;
use crate::support::{Folder, root};

/// An nginx; ends with this value.
struct Nginx {
    _process: Process,
    address: String,
}

impl Nginx {
    /// Starts one with the server of the page, at an address of its own.
    fn start(server: &str, bed: &Bed) -> Self {
        let address = ports::free();
        let changes = [
            ("listen 8000;", format!("listen {address};")),
            ("127.0.0.1:8080", bed.service.http.clone()),
            ("127.0.0.1:3000", bed.upstream.address.clone()),
        ];
        let config = around(&replaced(server, &changes), &bed.folder);
        let config = bed.folder.file("nginx.conf", &config);
        let mut command = Command::new(program());
        command.args(["-e", "stderr", "-p", bed.folder.path(), "-c", &config]);
        let mut process = Process::start("nginx", &mut command);
        // It listens before it says so.
        process.says("event method");
        Self { _process: process, address }
    }
}

/// What a distribution's `nginx.conf` has around files in `conf.d`; in one process, which ends when
/// it is killed, and with nothing outside of a folder.
fn around(server: &str, folder: &Folder) -> String {
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String =
        kinds.map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.path())).concat();
    format!(
        "daemon off;\nmaster_process off;\npid {}/nginx.pid;\nerror_log stderr notice;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{server}}}\n",
        folder.path()
    )
}

/// As `scripts/servers` installs it. It is never left out: without nginx nothing here is tested.
fn program() -> PathBuf {
    let named = std::env::var_os("SLUICEGATE_TEST_NGINX").map(PathBuf::from);
    let program = named.unwrap_or_else(|| root().join("target/servers/bin/nginx"));
    assert!(program.exists(), "there is no {}: run ./scripts/servers first", program.display());
    program
}

fn page() -> Page {
    Page::read("nginx")
}

fn server(page: &Page) -> &str {
    page.block("nginx", "upstream sluicegate {")
}

/// The server of the page with another of its blocks before a line.
fn with(server: &str, block: &str, before: &str) -> String {
    replaced(server, &[(before, format!("{block}{before}"))])
}

#[test]
fn three_pass_and_the_fourth_is_told_when() {
    let page = page();
    let bed = Bed::start(page.rules());
    let nginx = Nginx::start(server(&page), &bed);
    for left in [2, 1, 0] {
        let answer = HERE.get(&nginx.address, "/a?b=c", &[]);
        assert_eq!((answer.status, answer.body.as_str()), (200, "GET /a?b=c "));
        assert_eq!(told(&answer), expected("per-address", 3, left));
        assert_eq!(answer.header("retry-after"), None);
    }
    let answer = HERE.get(&nginx.address, "/", &[]);
    assert_eq!((answer.status, bed.upstream.reached()), (429, 3));
    assert_eq!(told(&answer), expected("per-address", 3, 0));
    assert_seconds(&answer, "retry-after", 1..=1200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-sluicegate-error"), None, "it is in the body");
    let error = error(&answer);
    assert_eq!(
        (&error["code"], &error["context"]["limit"]),
        (&"rate_limited".into(), &"per-address".into())
    );

    // Every header that the page shows, and no other about limits.
    let page = Page::read("nginx");
    let shown = page.block("text", "HTTP/1.1 429");
    let shown: Vec<&str> =
        shown.lines().skip(1).map_while(|line| Some(line.split_once(": ")?.0)).collect();
    let ours = |name: &&str| !["Server", "Date", "Content-Length", "Connection"].contains(name);
    let sent: Vec<&str> =
        answer.headers.iter().map(|(name, _)| name.as_str()).filter(ours).collect();
    assert_eq!(sent, shown);
}

#[test]
fn each_client_has_its_own_and_cannot_make_up_another() {
    let page = page();
    let bed = Bed::start(page.rules());
    let nginx = Nginx::start(server(&page), &bed);
    assert_eq!(ALICE.statuses(&nginx.address, "/"), [200, 200, 200, 429]);
    assert_eq!(BOB.statuses(&nginx.address, "/login"), [200, 429], "one login an hour");
    assert_eq!(BOB.statuses(&nginx.address, "/%6cogin"), [429], "it is the same");
    assert_eq!(BOB.statuses(&nginx.address, "/"), [200, 200, 429]);
    for made_up in [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Real-IP", "203.0.113.9"),
        ("Forwarded", "for=203.0.113.9"),
        ("X-Forwarded-Uri", "/other"),
    ] {
        assert_eq!(ALICE.get(&nginx.address, "/", &[made_up]).status, 429, "{made_up:?}");
    }
}

#[test]
fn bodies_and_methods_reach_the_server() {
    let page = page();
    let bed = Bed::start(page.rules());
    let nginx = Nginx::start(server(&page), &bed);
    let answer = HERE.send(&nginx.address, "PUT", "/x", &[], "all of it");
    assert_eq!((answer.status, answer.body.as_str()), (200, "PUT /x all of it"));
}

#[test]
fn what_the_server_forbids_stays_forbidden() {
    let page = page();
    let bed = Bed::start(page.rules());
    let nginx = Nginx::start(server(&page), &bed);
    let answer = HERE.get(&nginx.address, "/forbidden", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (403, "GET /forbidden "));
    assert_eq!(told(&answer), expected("per-address", 3, 2));

    // Also where nginx puts pages of its own in the place of what its server says.
    let intercepting =
        with(server(&page), "proxy_intercept_errors on;\n", "auth_request /_limits;");
    let nginx = Nginx::start(&intercepting, &bed);
    let answer = HERE.get(&nginx.address, "/forbidden", &[]);
    assert_eq!((answer.status, answer.header("retry-after")), (403, None), "{answer:?}");
}

#[test]
fn what_nginx_forbids_stays_forbidden() {
    let page = page();
    let bed = Bed::start(page.rules());
    let denied = with(server(&page), "deny 127.0.0.3;\n", "auth_request /_limits;");
    let nginx = Nginx::start(&denied, &bed);
    let answer = ALICE.get(&nginx.address, "/", &[]);
    assert_eq!((answer.status, answer.header("retry-after")), (403, None), "{answer:?}");
    assert_eq!(BOB.get(&nginx.address, "/", &[]).status, 200);
}

#[test]
fn a_proxy_that_is_not_trusted_is_a_403() {
    let page = page();
    let bed = Bed::start(&page.rules().replace("[127.0.0.1]", "[10.0.0.0/8]"));
    let nginx = Nginx::start(server(&page), &bed);
    let answer = HERE.get(&nginx.address, "/", &[]);
    assert_eq!((answer.status, bed.upstream.reached()), (403, 0));
}

#[test]
fn a_request_that_cannot_be_judged_is_a_500() {
    let page = page();
    let bed = Bed::start(page.rules());
    let nginx = Nginx::start(server(&page), &bed);
    let answer = HERE.get(&nginx.address, "/a", &[("X-Original-URI", "/b")]);
    assert_eq!((answer.status, bed.upstream.reached()), (500, 0));
}

#[test]
fn without_sluicegate_nobody_passes() {
    let page = page();
    let mut bed = Bed::start(page.rules());
    let nginx = Nginx::start(server(&page), &bed);
    bed.service.kill();
    assert_eq!(HERE.statuses(&nginx.address, "/"), [500]);
    assert_eq!(bed.upstream.reached(), 0);
}

#[test]
fn without_sluicegate_everybody_passes_if_told() {
    let page = page();
    let mut bed = Bed::start(page.rules());
    let asked = page.block("nginx", "        proxy_connect_timeout");
    // A busy machine may need longer.
    let asked = replaced(asked, &[("100ms", "60s".to_owned())]);
    let open = page.block("nginx", "    location @open");
    let server = with(server(&page), &asked, "        proxy_pass_request_body off;");
    let server = with(&server, open, "    location @limited");
    let nginx = Nginx::start(&server, &bed);
    assert_eq!(HERE.statuses(&nginx.address, "/"), [200, 200, 200, 429], "as before");
    bed.service.kill();
    let answer = HERE.get(&nginx.address, "/open", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "GET /open "));
    assert_eq!(answer.header("x-ratelimit-limit"), None);
}

#[test]
fn behind_another_proxy_the_client_is_found() {
    let page = page();
    // Alice is the other proxy.
    let bed = Bed::start(&page.rules().replace("[127.0.0.1]", "[127.0.0.1, 127.0.0.3]"));
    let handed_on = page.block("nginx", "        proxy_set_header X-Forwarded-For    $proxy_add");
    let own = "        proxy_set_header X-Forwarded-For    $remote_addr;\n";
    let server = replaced(server(&page), &[(own, handed_on.to_owned())]);
    let nginx = Nginx::start(&server, &bed);
    let through = |list: &str| ALICE.get(&nginx.address, "/", &[("X-Forwarded-For", list)]).status;
    assert_eq!(
        ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]
            .map(|made_up| through(&format!("{made_up}, 203.0.113.9"))),
        [200, 200, 200, 429]
    );
    assert_eq!(through("203.0.113.10"), 200);
    // Who is no proxy of ours is the client, whatever it says.
    let made_up =
        |address: &str| BOB.get(&nginx.address, "/", &[("X-Forwarded-For", address)]).status;
    assert_eq!(["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"].map(made_up), [200, 200, 200, 429]);
}
