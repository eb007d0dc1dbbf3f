//! The commands of a page of documentation, run one after the other, and what a reader would see.

use std::process::Command;

use sluicegate_testkit::redis::Single;

use super::process::Process;
use super::upstream::Upstream;
use super::{on_path, root, server, shell};

/// Where a page says that a service listens: the word in its greeting, and the address.
const SHOWN: [(&str, &str); 4] = [
    ("grpc", "127.0.0.1:8081"),
    ("http", "127.0.0.1:8080"),
    ("admin", "127.0.0.1:6070"),
    ("resp", "127.0.0.1:6380"),
];
/// How a page opens the last of them, which is closed otherwise.
const OPEN_RESP: &str = "--resp 127.0.0.1:6380";

/// Where a page says that a second service listens, which it is told by flags.
const SECOND: [(&str, &str); 3] =
    [("grpc", "127.0.0.1:9081"), ("http", "127.0.0.1:9080"), ("admin", "127.0.0.1:9070")];
/// Where a page says that a gateway listens, and the lines of its greeting.
const GATEWAY: [(&str, &str); 3] =
    [("listen", "127.0.0.1:8000"), ("limit", ""), ("admin", "127.0.0.1:6070")];
/// Where a page says that an upstream listens, and how it starts one.
const UPSTREAM: &str = "127.0.0.1:3000";
const START_UPSTREAM: &str = "python3 -m http.server 3000";
/// Where a page says that Redis listens.
const REDIS: &str = "127.0.0.1:6379";

/// A terminal; what runs in the background ends with this value.
#[derive(Default)]
pub struct Terminal {
    service: Option<Running>,
    second: Option<Running>,
    redis: Option<(Single, String)>,
    upstream: Option<Upstream>,
}

/// A service on ports of its own, so that a page can speak of the usual ones while others have
/// them.
struct Running {
    _process: Process,
    /// Where it says that it listens, and where it really does.
    addresses: Vec<(&'static str, String)>,
}

impl Terminal {
    /// What a command prints. One that ends with `&` is a service, and goes on until there is
    /// another or the page ends; or it is a Redis.
    pub fn run(&mut self, command: &str) -> String {
        if let Some(service) = command.strip_suffix(" &") {
            if service.starts_with("redis-server ") {
                let redis = Single::start();
                let address = format!("127.0.0.1:{}", redis.port());
                self.redis = Some((redis, address));
                return String::new();
            }
            if service.starts_with(START_UPSTREAM) {
                self.upstream = Some(Upstream::answering(|_| async { "hello\n" }));
                return String::new();
            }
            let upstream = self.upstream.as_ref().map_or(UPSTREAM, |one| &one.address);
            let service = self.with_redis(service).replace(UPSTREAM, upstream);
            let (running, greeting) = Running::start(&service);
            let is_second = running.addresses.iter().any(|(shown, _)| *shown == SECOND[0].1);
            *(if is_second { &mut self.second } else { &mut self.service }) = Some(running);
            return self.as_shown(&greeting);
        }
        let run = shell(&self.as_it_is(&self.with_redis(command)), &root());
        self.as_shown(&(run.stdout + &run.stderr))
    }

    fn as_it_is(&self, command: &str) -> String {
        self.addresses().fold(command.to_owned(), |command, (shown, real)| {
            let (_, port) = shown.split_once(':').unwrap();
            let command = command.replace(&format!("localhost:{port}"), real);
            let typed = format!("redis-cli -p {port}");
            if !command.contains(&typed) {
                return command;
            }
            let (_, real_port) = real.rsplit_once(':').unwrap();
            // It prints otherwise to a program than to a person.
            let cli = format!("{} --no-raw -p {real_port}", server("redis-cli").display());
            command.replace(&typed, &cli)
        })
    }

    fn as_shown(&self, printed: &str) -> String {
        let mut text = printed.replace('\r', "");
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        self.addresses().fold(text, |text, (shown, real)| text.replace(real, shown))
    }

    fn addresses(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let services = self.service.iter().chain(&self.second);
        let listed = services.flat_map(|service| &service.addresses);
        let redis = self.redis.iter().map(|(_, real)| (REDIS, real.as_str()));
        let upstream = self.upstream.iter().map(|one| (UPSTREAM, one.address.as_str()));
        let listed = listed.map(|(shown, real)| (*shown, real.as_str()));
        listed.filter(|(shown, _)| !shown.is_empty()).chain(redis).chain(upstream)
    }

    fn with_redis(&self, command: &str) -> String {
        let real = self.redis.as_ref().map_or(REDIS, |(_, real)| real);
        command.replace(REDIS, real)
    }
}

impl Running {
    /// The service, and its greeting.
    fn start(command: &str) -> (Self, String) {
        let mut bash = Command::new("bash");
        let mut shown = if command.contains(OPEN_RESP) { &SHOWN[..] } else { &SHOWN[..3] };
        let mut command = command.replace(OPEN_RESP, "--resp 127.0.0.1:0");
        if command.contains(SECOND[0].1) {
            shown = &SECOND;
            command =
                SECOND.iter().fold(command, |command, (_, at)| command.replace(at, "127.0.0.1:0"));
        }
        if command.starts_with("sluicegate gateway") {
            shown = &GATEWAY;
        }
        on_path(bash.args(["-c", &format!("exec {command}")]).current_dir(root()));
        for (name, _) in shown.iter().filter(|(_, at)| !at.is_empty()) {
            bash.env(format!("SLUICEGATE_{}", name.to_uppercase()), "127.0.0.1:0");
        }
        // A reader has a machine that is quiet, and takes a moment before he types on.
        bash.env("SLUICEGATE_STORE_TIMEOUT", "10s");
        let mut process = Process::start("sluicegate", &mut bash);
        let says = |(name, _): &(&str, &str)| {
            process.says(&match shown == GATEWAY {
                true => format!("{name:<9} "),
                false => format!("{name:<6} 127.0.0.1:"),
            })
        };
        let lines: Vec<String> = shown.iter().map(says).collect();
        if command.contains("--store redis") {
            process.has_said("the store answers");
        }
        let address = |line: &String| line.split_whitespace().nth(1).unwrap().to_owned();
        let addresses = shown.iter().map(|(_, at)| *at).zip(lines.iter().map(address)).collect();
        (Self { _process: process, addresses }, lines.join("\n") + "\n")
    }
}

/// What is printed now, except that a line which differs from the same line of the page in times
/// alone is left as it is there.
pub fn keeping_times(page: &[&str], now: &str) -> String {
    let known = page.iter().map(Some).chain(std::iter::repeat(None));
    let lines = now.lines().zip(known).map(|(now, known)| match known {
        Some(known) if timeless(known) == timeless(now) => format!("{known}\n"),
        _ => format!("{now}\n"),
    });
    lines.collect()
}

/// A line without what depends on when it was written.
fn timeless(line: &str) -> String {
    const TIMES: [&str; 10] = [
        "_after_ms\":",
        "\"renewal\":",
        "-reset: ",
        "retry-after: ",
        ";t=",
        "content-length: ",
        "pass after ",
        // The last two numbers of a reply to a client of Redis.
        "4) (integer) ",
        "5) (integer) ",
        // When the window of a counter in Redis began.
        "@1",
    ];
    let mut line = line.to_owned();
    for mark in TIMES {
        let parts = line.split(mark).map(str::to_owned).collect::<Vec<_>>();
        let rest = parts[1..]
            .iter()
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_alphanumeric()));
        line = [parts[0].as_str()].into_iter().chain(rest).collect::<Vec<_>>().join(mark);
    }
    if let (Some(from), Some(to)) = (line.find("Wait "), line.find(" and try again")) {
        line.replace_range(from..to, "Wait");
    }
    if line.starts_with("date: ") { "date: ".to_owned() } else { line }
}
