//! The programs of `docs/guide/clients.md`, taken from the page and run with a real service.
//! `docs.rs` runs what it shows of curl, and the examples its program in Rust.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::net::TcpListener;
use std::process::{Command, Output};

use support::service::Service;
use support::{Folder, root};

/// A program of the page, in a file of its own.
struct Program {
    _folder: Folder,
    command: Vec<String>,
}

impl Program {
    /// The one block in a language; nothing if its tool is not here.
    fn in_language(fence: &str, file: &str, command: &[&str]) -> Option<Self> {
        let is_here = Command::new(command[0])
            .arg(if command[0] == "go" { "version" } else { "--version" })
            .output();
        is_here.ok().filter(|ran| ran.status.success())?;
        let folder = Folder::new();
        let [program] = blocks(fence).try_into().unwrap();
        let path = folder.file(file, &program);
        let command = command.iter().map(|&part| part.to_owned()).chain([path]).collect();
        Some(Self { _folder: folder, command })
    }

    fn run(&self, service: &str) -> Output {
        let mut command = Command::new(&self.command[0]);
        // Go asks for nothing newer than what is here.
        command.args(&self.command[1..]).env("SLUICEGATE", service).env("GOTOOLCHAIN", "local");
        command.output().unwrap()
    }

    /// It prints what the page says, and goes on without a service.
    fn does_what_the_page_says(&self) {
        let rules = root().join("docs/examples/clients.yaml");
        let service = Service::start(rules.to_str().unwrap(), "127.0.0.1:0", &[]);
        let ran = self.run(&format!("http://{}", service.http));
        let complaint = String::from_utf8_lossy(&ran.stderr).into_owned();
        let [said] = blocks("text").try_into().unwrap();
        // A slow machine has waited for a part of it already.
        let printed = String::from_utf8(ran.stdout).unwrap().replace("wait 1 s", "wait 2 s");
        assert!(ran.status.success(), "{complaint}");
        assert_eq!(printed, said, "{complaint}");

        // Nobody listens at a port that was just free.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ran = self.run(&format!("http://{free}"));
        let printed = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(printed, "call 1: go\ncall 2: go\n", "without a service");
        assert!(!ran.status.success(), "a reservation that was not made is told");
    }
}

/// The blocks of the page that are in this language.
fn blocks(fence: &str) -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/guide/clients.md")).unwrap();
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
    let program = Program::in_language("python", "ask.py", &["python3"]);
    program.expect("python3 is needed: scripts/servers installs it").does_what_the_page_says();
}

#[test]
fn go() {
    optional(Program::in_language("go", "ask.go", &["go", "run"]), "go");
}

#[test]
fn node() {
    optional(Program::in_language("js", "ask.mjs", &["node"]), "node");
}
