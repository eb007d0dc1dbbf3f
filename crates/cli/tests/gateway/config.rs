//! The file of a gateway: start, precedence of flags, and changes while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::gateway::Gateway;
use crate::support::process::Process;
use crate::support::upstream::Upstream;
use crate::support::{Folder, sluicegate};

const RULES: &str = "domain: api\ndescriptors:\n  - key: remote_address\n    limits: { name: yearly, algorithm: fixed_window, rate: 2/year }\n";

/// A server that answers with its name and the port of the gateway's connection to it.
fn upstream(name: &'static str) -> Upstream {
    Upstream::answering(move |_| async move { name })
}

fn file(upstream: &str, routes: &str) -> String {
    format!("rules: rules.yaml\nupstreams: {{ app: http://{upstream} }}\nroutes:\n{routes}")
}

const OPEN: &str = "  - { path: /open/*, upstream: app }\n";
const LIMITED: &str = "  - path: /api/*\n    upstream: app\n    limit: { domain: api, descriptors: [{ remote_address: client_ip }] }\n";

fn write(folder: &Folder, text: &str) -> String {
    folder.file("rules.yaml", RULES);
    folder.file("gateway.yaml", text)
}

#[test]
fn routes_and_limits_of_a_file_are_enforced() {
    let (folder, app) = (Folder::new(), upstream("app"));
    let path = write(&folder, &file(&app.address, &format!("{OPEN}{LIMITED}")));
    let gateway = Gateway::start(&["--config", &path]);
    let statuses = |path: &str| [(); 3].map(|()| gateway.get(path).status);
    assert_eq!(statuses("/open/a"), [200, 200, 200]);
    assert_eq!(statuses("/api/a"), [200, 200, 429]);
    assert_eq!(gateway.get("/elsewhere").status, 404);
    assert_eq!(gateway.metric("sluicegate_gateway_config_last_reload_successful").unwrap(), "1");
}

#[test]
fn flags_and_variables_have_precedence_over_the_file() {
    let (folder, app) = (Folder::new(), upstream("app"));
    let text = format!(
        "listen: 192.0.2.1:1\nadmin: 192.0.2.1:2\n{}",
        file(&app.address, &format!("{OPEN}{LIMITED}"))
    );
    let path = write(&folder, &text);
    let closed = folder.file("closed.yaml", &RULES.replace("2/year", "0/year"));
    let gateway = Gateway::start(&["--config", &path, "--rules", &closed]);
    assert_eq!(gateway.get("/api/a").status, 429);
    let variables = [
        ("SLUICEGATE_CONFIG", path.as_str()),
        ("SLUICEGATE_LISTEN", "127.0.0.1:0"),
        ("SLUICEGATE_ADMIN", "127.0.0.1:0"),
        ("SLUICEGATE_RULES", &closed),
        ("SLUICEGATE_WORKERS", "1"),
    ];
    let gateway = Gateway::with(&[], &variables);
    assert_eq!(gateway.get("/api/a").status, 429);
    assert_eq!(gateway.get("/open/a").status, 200);
}

#[test]
fn rules_without_a_file_limit_by_their_only_domain() {
    let (folder, app) = (Folder::new(), upstream("app"));
    let (rules, server) = (folder.file("rules.yaml", RULES), format!("http://{}", app.address));
    let gateway = Gateway::start(&["--upstream", &server, "--rules", &rules]);
    assert_eq!([(); 3].map(|()| gateway.get("/").status), [200, 200, 429]);

    let two = folder.file("two/a.yaml", RULES);
    folder.file("two/b.yaml", &RULES.replace("domain: api", "domain: web"));
    let two = two.trim_end_matches("/a.yaml");
    let run = sluicegate(&["gateway", "--upstream", &server, "--rules", two], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("must have one domain, got 2 (`api`, `web`)"), "{}", run.stderr);

    let other = folder.file("other.yaml", &RULES.replace("remote_address", "address"));
    let run = sluicegate(&["gateway", "--upstream", &server, "--rules", &other], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--rules: nothing would be limited"), "{}", run.stderr);
}

#[test]
fn a_second_process_at_an_address_is_a_warning() {
    let app = upstream("app");
    let server = format!("http://{}", app.address);
    let first = Gateway::start(&["--upstream", &server]);
    let mut second = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    second.args(["gateway", "--upstream", &server, "--admin", "127.0.0.1:0"]);
    let mut second = Process::start("gateway", second.args(["--listen", &first.address]));
    second.says("another process listens here too");
}

#[test]
fn invalid_files_do_not_start() {
    let folder = Folder::new();
    let limited = file("127.0.0.1:1", LIMITED);
    for (text, code, expected) in [
        ("routes: []", 1, "gateway.yaml:1:9: routes: must be a list with at least one route"),
        (
            limited.strip_prefix("rules: rules.yaml\n").unwrap(),
            1,
            "gateway.yaml:5:22: routes[0].limit: no rules are named, so nothing would be limited",
        ),
        (
            &file("127.0.0.1:1", &format!("{OPEN}{OPEN}")),
            1,
            "gateway.yaml:5:13: routes[1].path: `/open/*` is the path of routes[0] too; remove one",
        ),
        (
            "rules: none.yaml\nroutes: [{ path: /, respond: { status: 204 } }]",
            1,
            "none.yaml: there is no such file; check the path",
        ),
    ] {
        let path = write(&folder, text);
        let run = sluicegate(&["gateway", "--config", &path], "");
        assert_eq!(run.code, code, "{}", run.stderr);
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        assert!(
            run.stderr.contains("invalid configuration: see `sluicegate check "),
            "{}",
            run.stderr
        );
    }
    let run = sluicegate(&["gateway", "--config", &format!("{}/none", folder.path())], "");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("there is no such file"), "{}", run.stderr);
}

#[test]
fn a_limit_that_no_rule_has_is_reported_at_the_start() {
    let (folder, app) = (Folder::new(), upstream("app"));
    let path = write(&folder, &file(&app.address, &LIMITED.replace("domain: api", "domain: apy")));
    let mut gateway = Gateway::start(&["--config", &path]);
    let line = gateway.process.has_said("nothing is limited here");
    assert!(line.contains("did you mean `api`?"), "{line}");
}

/// A connection that stays open.
struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(gateway: &Gateway) -> Self {
        Self { reader: BufReader::new(TcpStream::connect(&gateway.address).unwrap()) }
    }

    /// The status and the body of a response with a length.
    fn get(&mut self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
        self.reader.get_mut().write_all(request.as_bytes()).unwrap();
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "the connection was closed");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}

/// A server that answers with the number of the connection that a request came on.
fn numbering() -> (String, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let thread = std::thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            let Ok(socket) = socket else { return };
            std::thread::spawn(move || {
                let mut reader = BufReader::new(socket);
                loop {
                    let mut line = String::new();
                    match reader.read_line(&mut line) {
                        Ok(0) | Err(_) => return,
                        Ok(_) if line == "\r\n" => {
                            let body = number.to_string();
                            let head = format!(
                                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
                                body.len()
                            );
                            let _ = reader.get_mut().write_all((head + &body).as_bytes());
                        }
                        Ok(_) => {}
                    }
                }
            });
        }
    });
    (address, thread)
}

#[test]
fn a_valid_change_is_taken_over_without_dropping_a_connection() {
    let folder = Folder::new();
    let (server, _thread) = numbering();
    let path = write(&folder, &file(&server, OPEN));
    let mut gateway = Gateway::start(&["--config", &path, "--workers", "1"]);
    let mut client = Client::connect(&gateway);
    assert_eq!(client.get("/open/a"), (200, "0".to_owned()));
    assert_eq!(client.get("/new/a").0, 404);
    let hash = |gateway: &Gateway| {
        let page = crate::support::http::get(&gateway.admin, "/metrics", &[]).body;
        let line = page.lines().find(|line| line.starts_with("sluicegate_gateway_config_hash{"));
        line.unwrap().to_owned()
    };
    let before = hash(&gateway);

    // Another server beside it; the old one keeps its idle connection.
    let more = "  - { path: /new/*, upstream: app }\n";
    folder.file("gateway.yaml", &file(&server, &format!("{OPEN}{more}{LIMITED}")));
    gateway.process.says("gateway configuration reloaded");
    assert_eq!(client.get("/new/a"), (200, "0".to_owned()), "the same connections on both sides");
    assert_eq!([(); 3].map(|()| client.get("/api/a").0), [200, 200, 429]);
    assert_ne!(before, hash(&gateway));

    // Counters survive a change of the file, and of the rules.
    folder.file("gateway.yaml", &file(&server, LIMITED));
    gateway.process.says("gateway configuration reloaded");
    assert_eq!(client.get("/new/a").0, 404);
    assert_eq!(client.get("/api/a").0, 429);
    folder.file("rules.yaml", &RULES.replace("2/year", "3/year"));
    gateway.process.says("rules reloaded");
    assert_eq!([(); 2].map(|()| client.get("/api/a").0), [200, 429]);
}

#[test]
fn an_invalid_change_is_reported_and_the_old_configuration_stays() {
    let (folder, app) = (Folder::new(), upstream("app"));
    let good = file(&app.address, &format!("{OPEN}{LIMITED}"));
    let path = write(&folder, &good);
    let mut gateway = Gateway::start(&["--config", &path]);
    let successful = |gateway: &Gateway| {
        gateway.metric("sluicegate_gateway_config_last_reload_successful").unwrap()
    };
    folder.file("gateway.yaml", &good.replace("upstream: app", "upstream: apq"));
    gateway.process.says("unknown upstream, got `apq`; did you mean `app`?");
    gateway.process.says("gateway configuration not loaded: the previous one stays in force");
    assert_eq!(successful(&gateway), "0");
    assert_eq!([(); 3].map(|()| gateway.get("/api/a").status), [200, 200, 429]);

    // A signal reports it again.
    gateway.signal("HUP");
    gateway.process.says("unknown upstream, got `apq`");
    // What only a restart can change.
    folder.file("other.yaml", RULES);
    folder.file("gateway.yaml", &good.replace("rules.yaml", "other.yaml"));
    gateway.process.says("`rules` takes effect at a restart only; restart the gateway");
    // A file that vanishes switches nothing off.
    std::fs::remove_file(&path).unwrap();
    gateway.process.says("there is no such file");
    assert_eq!(gateway.get("/api/a").status, 429);
    folder.file("gateway.yaml", &good);
    gateway.process.says("gateway configuration reloaded");
    assert_eq!(successful(&gateway), "1");
}

#[test]
fn the_start_message_says_what_the_gateway_does() {
    let (folder, app) = (Folder::new(), upstream("app"));
    let path = write(&folder, &file(&app.address, &format!("{OPEN}{LIMITED}")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    command.args(["gateway", "--config", &path]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut process = Process::start("sluicegate gateway", &mut command);
    for expected in
        ["listen    127.0.0.1:", "upstream  app", "route     /open/*", "route     /api/*"]
    {
        process.has_said(expected);
    }
    let route = process.has_said("route     /api/*");
    assert!(route.ends_with("to app, limited in `api` by remote_address: client_ip"), "{route}");
    process.has_said("admin     127.0.0.1:");
}

#[test]
fn check_summarises_the_file_and_its_rules() {
    let folder = Folder::new();
    let text = file(
        "127.0.0.1:3000",
        &format!("{OPEN}{LIMITED}  - {{ path: /, respond: {{ status: 204 }} }}\n"),
    );
    let path = write(&folder, &text);
    let run = sluicegate(&["check", &path], "");
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "listen    127.0.0.1:8000  plain text",
            "upstream  app             http://127.0.0.1:3000",
            "route     /               answers 204, no limit",
            "route     /open/*         to app, no limit",
            "route     /api/*          to app, limited in `api` by remote_address: client_ip",
        ],
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("domain api: 1 rule"), "{}", run.stdout);
    assert_eq!(
        *lines.last().unwrap(),
        "valid: 1 listener, 3 routes, 1 upstream, 1 domain, 1 rule, 1 limit"
    );
    let run = sluicegate(&["check", "--json", &path], "");
    let all: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(all["gateway"]["routes"][2]["limit"]["domain"], "api");
    assert_eq!((&all["valid"], &all["totals"]["rules"]), (&true.into(), &1.into()));
    assert_eq!(all["files"].as_array().unwrap().len(), 2);
}

#[test]
fn check_reports_problems_of_both_files() {
    let folder = Folder::new();
    let path =
        write(&folder, &file("127.0.0.1:3000", &LIMITED.replace("remote_address:", "adress:")));
    let run = sluicegate(&["check", "--strict", &path], "");
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("warning: routes[0].limit.descriptors[0]: has no effect"),
        "{}",
        run.stderr
    );
    folder.file("rules.yaml", "domain: api\ndescriptors: [{ key: user, limit: 5 }]\n");
    let run = sluicegate(&["check", &path], "");
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("rules.yaml:2:"), "{}", run.stderr);
    assert!(run.stderr.contains("invalid: "), "{}", run.stderr);
    let run = sluicegate(&["check", "--schema", "gateway"], "");
    assert!(run.stdout.contains("\"title\": \"Sluicegate gateway\""));
}
