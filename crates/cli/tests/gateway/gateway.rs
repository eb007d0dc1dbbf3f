//! A running gateway.

use std::process::Command;

use serde_json::Value;

use crate::support::http::{Answer, get};
use crate::support::process::Process;

/// A gateway; ends with this value.
pub struct Gateway {
    pub process: Process,
    /// Its first address.
    pub address: String,
    pub addresses: Vec<String>,
    pub admin: String,
}

impl Gateway {
    /// Starts one with these arguments, at free ports unless they name others.
    pub fn start(args: &[&str]) -> Self {
        Self::with(args, &[])
    }

    /// The same with variables.
    pub fn with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args(["gateway", "--json"]).envs(environment.iter().copied());
        for flag in ["--listen", "--admin"] {
            let variable = format!("SLUICEGATE_{}", flag.trim_start_matches('-').to_uppercase());
            let is_named = environment.iter().any(|(name, _)| *name == variable);
            if !args.contains(&flag) && !is_named {
                command.args([flag, "127.0.0.1:0"]);
            }
        }
        Self::run(command.args(args))
    }

    /// Starts one at the addresses of its file.
    pub fn at_addresses_of(config: &str) -> Self {
        Self::at_addresses_with(config, &[])
    }

    /// The same with more arguments.
    pub fn at_addresses_with(config: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        let args = ["gateway", "--json", "--admin", "127.0.0.1:0", "--config", config];
        Self::run(command.args(args).args(more))
    }

    fn run(command: &mut Command) -> Self {
        let mut process = Process::start("sluicegate gateway", command);
        let started: Value = serde_json::from_str(&process.says("\"listen\":")).unwrap();
        let address = |value: &Value| value.as_str().unwrap().to_owned();
        let addresses = started["listeners"].as_array().unwrap().iter().map(address).collect();
        let (listen, admin) = (address(&started["listen"]), address(&started["admin"]));
        Self { address: listen, addresses, admin, process }
    }

    /// A request on a connection of its own.
    pub fn get(&self, path: &str) -> Answer {
        get(&self.address, path, &[])
    }

    /// The value of a metric without labels, or with those that are written.
    pub fn metric(&self, name: &str) -> Option<String> {
        let page = get(&self.admin, "/metrics", &[]).body;
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.map(str::to_owned)
    }

    /// Sends a signal, such as `HUP`.
    pub fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap();
        assert!(sent.success());
    }
}
