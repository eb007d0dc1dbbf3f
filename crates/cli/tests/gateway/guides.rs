//! The guides, run as they are written, with nothing changed but addresses.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::StatusCode;

use crate::gateway::Gateway;
use crate::support::http::{Answer, asked_on, get, post};
use crate::support::process::Process;
use crate::support::upstream::Upstream;
use crate::support::{Folder, root, server, shell};

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(format!("docs/guide/{name}.md"))).unwrap()
}

/// The block of a language that begins so.
fn block<'a>(page: &'a str, language: &str, beginning: &str) -> &'a str {
    let fence = format!("```{language}\n");
    let blocks = page.split(fence.as_str()).skip(1);
    let mut blocks = blocks.map(|rest| rest.split("```").next().unwrap());
    let found = blocks.find(|block| block.starts_with(beginning));
    found.unwrap()
}

/// The gateway of a page before this server.
fn started(folder: &Folder, page: &str, domain: &str, app: &Upstream) -> Gateway {
    folder.file("rules.yaml", block(page, "yaml", &format!("domain: {domain}\n")));
    let config = block(page, "yaml", "listen: ").replace("127.0.0.1:3000", &app.address);
    Gateway::start(&["--config", &folder.file("gateway.yaml", &config)])
}

fn app() -> Upstream {
    Upstream::answering(|_| async { "app" })
}

/// nginx with the server of the page.
fn nginx(folder: &Folder, page: &str, app: &Upstream) -> (Process, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let server_block = block(page, "nginx", "limit_req_zone")
        .replace("listen 8000;", &format!("listen {address};"))
        .replace("127.0.0.1:3000", &app.address);
    let at = folder.path();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths = kinds.map(|kind| format!("{kind}_temp_path {at}/{kind};\n")).concat();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {at}/nginx.pid;\nerror_log stderr notice;\nevents {{}}\nhttp {{\naccess_log off;\n{paths}{server_block}}}\n"
    );
    let config = folder.file("nginx.conf", &config);
    let mut command = Command::new(server("nginx"));
    let mut process =
        Process::start("nginx", command.args(["-e", "stderr", "-p", at, "-c", &config]));
    process.says("event method");
    (process, address)
}

#[test]
fn limits_of_nginx_mean_the_same_here() {
    let (folder, page, app) = (Folder::new(), page("gateway-from-nginx"), app());
    let (_nginx, nginx) = nginx(&folder, &page, &app);
    let gateway = started(&folder, &page, "web", &app);
    let statuses = |address: &str| [(); 8].map(|()| get(address, "/", &[]).status);
    let expected = [200, 200, 200, 200, 200, 200, 429, 429];
    assert_eq!(statuses(&nginx), expected);
    assert_eq!(statuses(&gateway.address), expected);
}

#[test]
fn limits_of_traefik_mean_the_same_here() {
    let (folder, page, app) = (Folder::new(), page("gateway-from-traefik"), app());
    let gateway = started(&folder, &page, "web", &app);
    let statuses = |user: &str| {
        [(); 4].map(|()| get(&gateway.address, "/", &[("x-user", user.as_bytes())]).status)
    };
    assert_eq!(statuses("alice"), [200, 200, 200, 429]);
    assert_eq!(statuses("bob"), [200, 200, 200, 429]);
    assert_eq!(gateway.get("/").status, 400, "without the header");
}

/// A server that refuses wrong passwords.
fn login_app() -> Upstream {
    Upstream::answering(|request: Request| async move {
        let is_login = request.method() == "POST" && request.uri().path() == "/login";
        let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let is_wrong = is_login && !String::from_utf8_lossy(&body).contains("right");
        if is_wrong { StatusCode::UNAUTHORIZED } else { StatusCode::OK }
    })
}

/// An attempt to log in.
fn attempt(gateway: &Gateway, account: &str, password: &str) -> Answer {
    let body = format!("username={account}&password={password}");
    let length = body.len();
    let request = format!(
        "POST /login HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    asked_on(TcpStream::connect(&gateway.address).unwrap(), request.as_bytes())
}

/// Runs the lines of a block, after the functions before them; the comment behind each is what it
/// prints.
fn run_lines(folder: &Folder, gateway: &Gateway, functions: &str, lines: &str) -> usize {
    let lines = lines.lines();
    lines.clone().for_each(|line| {
        let (command, expected) = line.split_once(" # ").unwrap();
        let script = format!("{functions}\n{command}");
        let script = script.replace("127.0.0.1:8000", &gateway.address);
        assert_eq!(run(folder, &script), expected, "{command}");
    });
    lines.count()
}

/// What a script prints, on one line.
fn run(folder: &Folder, script: &str) -> String {
    let run = shell(script, Path::new(folder.path()));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{script}");
    run.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_login_page_is_limited_by_address_and_by_account() {
    let (folder, page, app) = (Folder::new(), page("gateway-login"), login_app());
    let mut gateway = started(&folder, &page, "login", &app);
    let statuses = [(); 4].map(|()| attempt(&gateway, "alice", "x").status);
    assert_eq!(statuses, [401, 401, 401, 429], "one account");
    let denied = attempt(&gateway, "alice", "right");
    assert!(denied.header("retry-after").is_some());
    assert_eq!(denied.header("x-ratelimit-limit"), None, "hidden");
    gateway.process.says(r#""rule":"login/account""#);
    // The denied attempts have not used up the five of the address.
    let others = ["bob", "carol", "dave"].map(|account| attempt(&gateway, account, "x").status);
    assert_eq!(others, [401, 401, 429], "one address");
    assert_eq!(gateway.get("/").status, 200, "everything else is not limited");
    assert_eq!(post(&gateway.address, "/login", "username=alice").status, 400, "no form");
    let gateway = started(&folder, &page, "login", &app);
    let passwords = ["x", "x", "right", "x", "x"];
    let statuses = passwords.map(|password| attempt(&gateway, "alice", password).status);
    assert_eq!(statuses, [401, 401, 200, 401, 401], "a success resets the account");
}

#[test]
fn forms_of_the_login_page_are_limited_as_the_page_says() {
    let (folder, page, app) = (Folder::new(), page("gateway-login"), login_app());
    let gateway = started(&folder, &page, "login", &app);
    let (function, lines) = block(&page, "sh", "attempt()").split_once("\n}\n").unwrap();
    assert_eq!(run_lines(&folder, &gateway, &format!("{function}\n}}"), lines), 7);
}

#[test]
fn budgets_of_a_model_are_those_of_the_page() {
    let (folder, page) = (Folder::new(), page("gateway-llm"));
    let mut model = Process::start(
        "model.py",
        Command::new("python3").arg(root().join("docs/examples/model.py")).arg("0"),
    );
    let started = model.says("model at ");
    let address = started.split("http://").nth(1).unwrap().trim().to_owned();
    let keys = block(&page, "sh", "alice=");
    run(&folder, keys);
    folder.file("rules.yaml", block(&page, "yaml", "domain: llm\n"));
    folder.file("prices.yaml", block(&page, "yaml", "gpt-4o-mini: "));
    let config = block(&page, "yaml", "listen: ").replace("127.0.0.1:9000", &address);
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", &config)]);
    let (variables, _) = keys.split_once('\n').unwrap();
    let functions = format!("{variables}\n{}", block(&page, "sh", "ask()"));
    assert_eq!(run_lines(&folder, &gateway, &functions, block(&page, "sh", "ask $alice")), 9);
    let program = block(&page, "py", "from openai").replace("127.0.0.1:8000", &gateway.address);
    let program = folder.file("program.py", &program);
    let ran = Command::new(server("model-python")).arg(program).output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert_eq!(said, block(&page, "text", "262 tokens"), "{errors}");
}

#[test]
fn plans_of_tokens_are_limited_as_the_page_says() {
    let (folder, page, app) = (Folder::new(), page("gateway-plans"), app());
    let functions = block(&page, "sh", "encode()");
    run(&folder, functions);
    let gateway = started(&folder, &page, "api", &app);
    // The key is there already: the functions alone.
    let functions = functions.replace("openssl genrsa", "true openssl genrsa");
    let requests = block(&page, "sh", "free=");
    let (tokens, requests) = requests.split_once('\n').unwrap();
    let functions = format!("{functions}\n{tokens}");
    assert_eq!(run_lines(&folder, &gateway, &functions, requests), 8);
}

#[test]
fn requests_are_accepted_now_and_processed_later_as_the_page_says() {
    let (folder, page, app) = (Folder::new(), page("gateway-deferred"), app());
    let gateway = started(&folder, &page, "reports", &app);
    let functions = block(&page, "sh", "send()").replace("127.0.0.1:8000", &gateway.address);
    let lines = block(&page, "sh", "for i in").replace("127.0.0.1:6070", &gateway.admin);
    assert_eq!(run_lines(&folder, &gateway, &functions, &lines), 7);
}
