//! The programs of `docs/guide/clients.md` and `docs/guide/llm-budgets.md`, taken from the page and
//! run with a real service. `docs.rs` runs their commands, and the examples the program in Rust.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::net::TcpListener;
use std::process::{Command, Output};

use support::process::Process;
use support::service::Service;
use support::{Folder, root, server};

const CLIENTS: &str = "docs/guide/clients.md";
const LLM_BUDGETS: &str = "docs/guide/llm-budgets.md";

/// A program of a page, in a file of its own.
struct Program {
    page: &'static str,
    _folder: Folder,
    command: Vec<String>,
}

impl Program {
    /// The one block in a language; nothing if its tool is not here.
    fn in_language(page: &'static str, fence: &str, file: &str, command: &[&str]) -> Option<Self> {
        let is_here = Command::new(command[0])
            .arg(if command[0] == "go" { "version" } else { "--version" })
            .output();
        is_here.ok().filter(|ran| ran.status.success())?;
        let folder = Folder::new();
        let [program] = blocks(page, fence).try_into().unwrap();
        let path = folder.file(file, &program);
        let command = command.iter().map(|&part| part.to_owned()).chain([path]).collect();
        Some(Self { page, _folder: folder, command })
    }

    fn run(&self, service: &str, environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(&self.command[0]);
        // Go asks for nothing newer than what is here.
        command.args(&self.command[1..]).env("SLUICEGATE", service).env("GOTOOLCHAIN", "local");
        command.envs(environment.iter().copied()).output().unwrap()
    }

    /// It prints the one block of text of its page.
    fn prints_what_the_page_says(&self, service: &Service, environment: &[(&str, &str)]) {
        let ran = self.run(&format!("http://{}", service.http), environment);
        let complaint = String::from_utf8_lossy(&ran.stderr).into_owned();
        let [said] = blocks(self.page, "text").try_into().unwrap();
        // A slow machine has waited for a part of it already.
        let printed = String::from_utf8(ran.stdout).unwrap().replace("wait 1 s", "wait 2 s");
        assert!(ran.status.success(), "{complaint}");
        assert_eq!(without_wait(&printed), without_wait(&said), "{complaint}");
    }

    /// It prints what the page says, and goes on without a service.
    fn does_what_the_page_says(&self) {
        let rules = root().join("docs/examples/clients.yaml");
        let service = Service::start(rules.to_str().unwrap(), "127.0.0.1:0", &[]);
        self.prints_what_the_page_says(&service, &[]);

        // Nobody listens at a port that was just free.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ran = self.run(&format!("http://{free}"), &[]);
        let printed = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(printed, "call 1: go\ncall 2: go\n", "without a service");
        assert!(!ran.status.success(), "a reservation that was not made is told");
    }
}

/// The output without the time of "Wait 9 hours and", which depends on the time of day.
fn without_wait(output: &str) -> String {
    let mut parts = output.split("Wait ");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| format!("{text}Wait{}", part.trim_start_matches(|c| c != '.')))
}

/// The blocks of a page that are in this language.
fn blocks(page: &str, fence: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join(page)).unwrap();
    let beginning = format!("\n```{fence}\n");
    let blocks = page.split(&beginning).skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

fn optional(program: Option<Program>, tool: &str) {
    match program {
        Some(program) => program.does_what_the_page_says(),
        // Written past the harness, which keeps what tests that pass have printed to itself.
        None => {
            use std::io::Write as _;
            let _ = writeln!(
                std::io::stderr(),
                "left out: {tool} is not here, so its program in docs/guide/clients.md was not run"
            );
        }
    }
}

#[test]
fn python() {
    let program = Program::in_language(CLIENTS, "python", "ask.py", &["python3"]);
    program.expect("python3 is needed: scripts/servers installs it").does_what_the_page_says();
}

#[test]
fn go() {
    optional(Program::in_language(CLIENTS, "go", "ask.go", &["go", "run"]), "go");
}

#[test]
fn node() {
    let node = server("node");
    let program = Program::in_language(CLIENTS, "js", "ask.mjs", &[node.to_str().unwrap()]);
    program.unwrap().does_what_the_page_says();
}

/// The path "LLM budgets from Python": the rules and the program of the guide, with a stand-in for
/// the model; then the same program without the service.
#[test]
fn path_of_llm_budgets_from_python() {
    let python = server("client-python");
    let python = python.to_str().unwrap();
    let program = Program::in_language(LLM_BUDGETS, "python", "program.py", &[python]).unwrap();
    let rules = root().join("docs/examples/llm.yaml");
    let unmatched = [("SLUICEGATE_UNMATCHED", "error")];
    let service = Service::start(rules.to_str().unwrap(), "127.0.0.1:0", &unmatched);
    let script = root().join("docs/examples/model.py");
    let mut model = Process::start("model", Command::new(python).arg(script).arg("0"));
    let url = model.says("model at ").split_whitespace().last().unwrap().to_owned();
    let package = root().join("clients/python/src");
    let environment = [("MODEL", &*url), ("PYTHONPATH", package.to_str().unwrap())];
    program.prints_what_the_page_says(&service, &environment);

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = program.run(&format!("http://{free}"), &environment);
    let printed = String::from_utf8(ran.stdout).unwrap();
    let uncounted = "search: 250 words; usage unknown\n\
                     search: RemoteProtocolError; usage unknown\n\
                     trial: 250 words; usage unknown\n\
                     trial: 250 words; usage unknown\n";
    assert_eq!(printed, uncounted, "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success());
}
