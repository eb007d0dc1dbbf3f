//! Runs every example and verifies its output.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sluicegate::clock::SystemClock;
use sluicegate_examples::{Reply, get, get_from};
use sluicegate_server::server::Server;
use sluicegate_server::settings::{Settings, Vars};
use sluicegate_testkit::redis::Single;

/// Examples take less than a second; a busy machine may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running example and its output lines. Dropping it ends the process.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(program: &str, arguments: &[&str]) -> Self {
        Self::spawn(Command::new(program).args(arguments))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let _ = sender.send(line.unwrap());
            }
        });
        Self { child, lines }
    }

    fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it does not end"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All lines of an example that exits successfully.
fn output(program: &str) -> Vec<String> {
    let mut running = Running::start(program, &[]);
    let lines = std::iter::from_fn(|| running.line()).collect();
    assert!(running.child.wait().unwrap().success());
    lines
}

#[test]
fn plain_loop() {
    let expected = [
        "alice: taken, 2 left",
        "alice: taken, 1 left",
        "alice: taken, 0 left",
        "alice: come back in 20 s",
        "alice: come back in 20 s",
        "bob: taken, 2 left",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_plain_loop")), expected);
}

#[test]
fn rules_from_files() {
    let lines = output(env!("CARGO_BIN_EXE_rules_from_files"));
    let expected = [
        "alice: may go, 2 left",
        "alice: may go, 1 left",
        "1 rule changed",
        "alice: may go, 2 left",
        "bob: may go, 4 left",
        "the rules stay as they were:",
    ];
    assert_eq!(lines[..6], expected);
    let told = |line: &String| {
        line.starts_with("shop.yaml:4:40: ") && line.contains("did you mean `rate`?")
    };
    assert!(lines[6..].iter().any(told), "{lines:?}");
    assert_eq!(lines.last().unwrap(), "alice: may go, 1 left");
}

#[test]
fn shared_counters() {
    let expected = [
        "node 1: may go, 2 left",
        "node 2: may go, 1 left",
        "node 1: may go, 0 left",
        "node 2: may not, 0 left",
        "node 1 without Redis: may not, 0 left",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_shared_counters")), expected);
}

#[test]
fn worker_pool() {
    let lines = output(env!("CARGO_BIN_EXE_worker_pool"));
    assert_eq!(lines[0], "8 workers wrote 24 reports");
    let seen = lines[2].split(' ').nth(2).unwrap();
    assert!((1..=3).contains(&seen.parse::<u64>().unwrap()), "{lines:?}");
    assert_eq!(lines[3], "3 slots are free again");
}

#[test]
fn pacing_client() {
    let lines = output(env!("CARGO_BIN_EXE_pacing_client"));
    assert!(lines[0].starts_with("hasty: 200 requests, "), "{lines:?}");
    assert_ne!(lines[0], "hasty: 200 requests, 0 denied");
    assert_eq!(lines[1], "polite: 40 requests, 0 denied");
}

#[test]
fn axum_api() {
    let lines = output(env!("CARGO_BIN_EXE_axum_api"));
    let expected = [
        "alice: 200 hello, 2 left",
        "alice: 200 hello, 1 left",
        "alice: 200 hello, 0 left",
        r#"alice: 429 {"error":{"code":"rate_limited","message":"Request quota exceeded. Wait 20 minutes"#,
        "somebody: 200 hello, 1 left",
        "bob: 200 hello, 0 left",
        r#"bob: 429 {"error":{"code":"rate_limited","message":"Request quota exceeded. Wait 12 minutes"#,
        "health: 200 fine",
    ];
    assert_eq!(lines.len(), expected.len());
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
    assert!(lines[3].contains(r#""limit":"user""#) && lines[6].contains(r#""limit":"global""#));
}

#[test]
fn plans() {
    let expected = [
        "k-alice: 200, 1 left, upgrade -",
        "k-alice: 200, 0 left, upgrade -",
        "k-alice: 429, 0 left, upgrade /plans",
        "k-bob: 200, 3 left, upgrade -",
        "k-bob: 200, 2 left, upgrade -",
        "k-bob: 200, 1 left, upgrade -",
        "k-bob: 200, 0 left, upgrade -",
        "k-bob: 429, 0 left, upgrade -",
        "forged-1: 200, 1 left, upgrade -",
        "forged-2: 200, 0 left, upgrade -",
        "forged-3: 429, 0 left, upgrade /plans",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_plans")), expected);
}

#[test]
fn tonic_service() {
    let expected = [
        "call 1: Serving, 2 left",
        "call 2: Serving, 1 left",
        "call 3: Serving, 0 left",
        "call 4: ResourceExhausted: Request quota exceeded. Wait 20 minutes and try again. \
         (retry-after 1200, pushback -1)",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_tonic_service")), expected);
}

#[test]
fn llm_budget() {
    let expected = [
        "summarise: reserved 4000, used 1250, 8750 left",
        "translate: reserved 6000, used 5600, 3150 left",
        "time out: reserved 3000, failed, 3150 left",
        "write a book: 8000 tokens are over the limit: try again in 29.1s",
        "explain: reserved 3000, used 3900, -750 left",
        "one word: 10 tokens are over the limit: try again in 4.56s",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_llm_budget")), expected);
}

#[test]
fn live_change() {
    let expected = [
        "10 become 20, keep Used: 12 left",
        "10 become 20, keep Remaining: 2 left",
        "10 become 20, keep Proportion: 4 left",
        "10 become 20, keep Nothing: 20 left",
        "10 become 5, keep Used: -3 left",
        "alice may go: false",
        "bob may go: true",
        "0 a day: the rate's number must be at least 1, got `0`",
        "still: -3 left",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_live_change")), expected);
}

#[test]
fn client() {
    let expected = [
        "alice: allowed true, 1 left, says Service",
        "alice: allowed true, 0 left, says Service",
        "alice: allowed false, 0 left, says Service",
        "alice: allowed false, 0 left, says Remembered",
        "mail: allowed true after waiting its turn",
        "mail: allowed true after waiting its turn",
        "mail: allowed true after waiting its turn",
        "tokens: 200 left while 800 are reserved",
        "tokens: 250 were used, 550 came back",
        "api: 7 of 7 calls were answered, at its pace",
    ];
    assert_eq!(output(env!("CARGO_BIN_EXE_client")), expected);
}

/// The program of the guide, with the service of the guide.
#[tokio::test(flavor = "multi_thread")]
async fn ask_service() {
    let (root, guide) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/.."), include_str!("../../docs/guide/clients.md"));
    let block = |fence: &str| guide.split(fence).nth(1).unwrap().split("```").next().unwrap();
    assert!(
        include_str!("../src/bin/ask_service.rs").ends_with(block("```rust,no_run\n")),
        "the guide shows another program"
    );
    let free = ["SLUICEGATE_HTTP", "SLUICEGATE_GRPC", "SLUICEGATE_ADMIN"]
        .map(|name| (name, "127.0.0.1:0"));
    let mut vars = Vars::new(free);
    vars.set_flag("--rules", format!("{root}/docs/examples/clients.yaml"));
    let server = Server::start(Settings::read(&vars).unwrap().0).await.unwrap();
    let address = format!("http://{}", server.addresses().http);
    let (_keep, reread) = tokio::sync::mpsc::channel(1);
    tokio::spawn(server.run(std::future::pending(), reread));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ask_service"));
    let ran = tokio::task::spawn_blocking(move || command.env("SLUICEGATE", address).output());
    let ran = ran.await.unwrap().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap().replace("wait 1 s", "wait 2 s");
    assert_eq!(printed, block("```text\n"), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// The address of the guide's axum service.
fn axum_service(redis_url: Option<&str>) -> (Running, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_axum_service"));
    command.arg("127.0.0.1:0").env_remove("REDIS_URL");
    let running = Running::spawn(command.envs(redis_url.map(|url| ("REDIS_URL", url))));
    let line = running.line().unwrap();
    let address = line.strip_prefix("serving on ").unwrap().parse().unwrap();
    (running, address)
}

/// Requests of one key until it is denied; returns how many were admitted, and the denial.
async fn until_denied(servers: &[SocketAddr], key: &str) -> (u64, Reply) {
    for (admitted, server) in (0..1_000).zip(servers.iter().cycle()) {
        let headers = [("x-api-key", key), ("x-forwarded-for", "203.0.113.1")];
        let reply = get(*server, "/hello", &headers).await.unwrap();
        if reply.status == 429 {
            return (admitted, reply);
        }
        assert_eq!((reply.status, reply.body.as_str()), (200, "hello\n"));
    }
    panic!("never denied");
}

/// Requests with one key each, from an address with forged headers: how many are admitted.
async fn admitted_from(server: SocketAddr, source: Ipv4Addr, count: u64) -> u64 {
    let mut admitted = 0;
    for n in 0..count {
        let (key, client) = (format!("{source}-{n}"), format!("198.51.100.{n}"));
        let headers = [("x-api-key", &*key), ("x-forwarded-for", &*client)];
        let reply = get_from(source, server, "/hello", &headers).await.unwrap();
        admitted += u64::from(reply.status == 200);
    }
    admitted
}

async fn limits_as_the_guide_says(servers: &[SocketAddr]) {
    let clock = SystemClock::get();
    let seconds_since = |begun| clock.read().since(begun).as_micros() / 1_000_000;
    let begun = clock.read();
    let (admitted, denial) = until_denied(servers, "alice").await;
    let refilled = seconds_since(begun) / 3 + 1;
    assert!((20..=20 + refilled).contains(&admitted), "{admitted} of 20");
    assert_eq!(denial.header("x-ratelimit-limit"), "20");
    assert_eq!(denial.header("x-ratelimit-remaining"), "0");
    assert!(denial.header("ratelimit-policy").starts_with(r#""key";q=20;w=60"#));
    assert!((1..=3).contains(&denial.header("retry-after").parse::<u64>().unwrap()));
    assert!(denial.body.contains(r#""limit":"key""#), "{}", denial.body);
    let reply = get(servers[0], "/hello", &[]).await.unwrap();
    assert_eq!(reply.status, 400, "without a key: {}", reply.body);

    // 127.0.0.1 is a trusted proxy, with 70 clients; 127.0.0.2 is one client: its headers are
    // ignored.
    assert_eq!(admitted_from(servers[0], Ipv4Addr::LOCALHOST, 70).await, 70);
    let begun = clock.read();
    let admitted = admitted_from(servers[0], Ipv4Addr::new(127, 0, 0, 2), 70).await;
    let refilled = seconds_since(begun) + 1;
    assert!((60..=60 + refilled).contains(&admitted), "{admitted} of 60");
}

#[tokio::test]
async fn path_of_an_axum_service_on_memory() {
    let (_running, address) = axum_service(None);
    limits_as_the_guide_says(&[address]).await;
}

/// Two processes count together.
#[tokio::test]
async fn path_of_an_axum_service_on_redis() {
    let redis = Single::start();
    let (_first, first) = axum_service(Some(redis.url()));
    let (_second, second) = axum_service(Some(redis.url()));
    limits_as_the_guide_says(&[first, second]).await;
}

#[test]
fn path_of_an_axum_service_is_that_of_the_guide() {
    let guide = include_str!("../../docs/guide/embedding.md");
    let block = |fence: &str| guide.split(fence).nth(1).unwrap().split("```").next().unwrap();
    let shown = format!("{}\n{}", block("```rust,no_run\n"), block("```rust\n"));
    let program = include_str!("../src/bin/axum_service.rs");
    assert!(program.ends_with(&shown), "the guide shows another program");
}

#[test]
fn servers_stay_if_told() {
    let programs = [
        env!("CARGO_BIN_EXE_axum_api"),
        env!("CARGO_BIN_EXE_plans"),
        env!("CARGO_BIN_EXE_tonic_service"),
    ];
    for program in programs {
        let running = Running::start(program, &["--serve", "127.0.0.1:0"]);
        let line = running.line().unwrap();
        let address = line.strip_prefix("serving on ").unwrap();
        std::net::TcpStream::connect(address).unwrap();
    }
}

#[test]
fn every_example_is_in_the_list() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    let list = include_str!("../README.md");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".rs").unwrap();
        assert!(list.contains(&format!("--bin {name}`")), "`{name}` is not in README.md");
    }
}
