//! `sluicegate serve`, running.

use std::process::Command;

use serde_json::Value;

use super::http::{Answer, get, post};
use super::process::Process;

/// A service; ends with this value.
pub struct Service {
    process: Process,
    pub grpc: String,
    pub http: String,
    pub admin: String,
    /// For clients of Redis, with `--resp`; otherwise empty.
    pub resp: String,
    /// For metrics alone, with `--metrics`; otherwise empty.
    pub metrics: String,
}

impl Service {
    /// Starts one with rules, at an address for gRPC whose port may be 0, with variables of the
    /// environment.
    pub fn start(rules: &str, grpc: &str, environment: &[(&str, &str)]) -> Self {
        Self::with(&["--grpc", grpc, "--rules", rules], environment)
    }

    /// Starts one with these arguments and variables, at free ports.
    pub fn with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_sluicegate")), args, environment)
    }

    /// Starts one by a command that takes the arguments of the binary.
    pub fn run(mut command: Command, args: &[&str], environment: &[(&str, &str)]) -> Self {
        command.args(["serve", "--json"]);
        for door in ["--http", "--grpc", "--admin"] {
            if !args.contains(&door) {
                command.args([door, "127.0.0.1:0"]);
            }
        }
        command.args(args).envs(environment.iter().copied());
        Self::of(command)
    }

    /// Starts one by variables alone, which should set free ports, and more arguments.
    pub fn by_variables(environment: &[(String, String)], args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(["serve", "--json"]).args(args);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut process = Process::start("sluicegate", &mut command);
        let addresses: Value = serde_json::from_str(&process.says("\"grpc\":")).unwrap();
        let address = |name: &str| addresses[name].as_str().unwrap().to_owned();
        let optional = |name: &str| addresses[name].as_str().unwrap_or_default().to_owned();
        let (resp, metrics) = (optional("resp"), optional("metrics"));
        let (grpc, http, admin) = (address("grpc"), address("http"), address("admin"));
        Self { grpc, http, admin, resp, metrics, process }
    }

    /// Asks over HTTP whether one more of a user may go; the status.
    pub fn check(&self, domain: &str, user: &str) -> u16 {
        let body = format!(r#"{{"domain":"{domain}","descriptors":[{{"user":"{user}"}}]}}"#);
        post(&self.http, "/v1/check", &body).status
    }

    /// What operators are addresses.
    pub fn admin(&self, path: &str) -> Answer {
        get(&self.admin, path, &[])
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; the exit code.
    pub fn ends(&mut self) -> Option<i32> {
        self.process.ends()
    }

    /// A line with this text in it, whether it was said already, at the start, or is waited for.
    pub fn has_said(&mut self, text: &str) -> String {
        self.process.has_said(text)
    }

    /// The next line with this text in it: waits until it is said.
    pub fn says(&mut self, text: &str) -> String {
        self.process.says(text)
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}
