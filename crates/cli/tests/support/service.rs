//! `sluicegate serve`, running.

use std::process::Command;

use serde_json::Value;

use super::process::Process;

/// A service; ends with this value.
pub struct Service {
    process: Process,
    pub grpc: String,
    pub http: String,
}

impl Service {
    /// Starts one with rules, at an address for gRPC whose port may be 0, with variables of the environment.
    pub fn start(rules: &str, grpc: &str, environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
        command.args([
            "serve",
            "--json",
            "--http",
            "127.0.0.1:0",
            "--grpc",
            grpc,
            "--rules",
            rules,
        ]);
        command.envs(environment.iter().copied());
        let mut process = Process::start("sluicegate", &mut command);
        let told: Value = serde_json::from_str(&process.says("{")).unwrap();
        let address = |name: &str| told[name].as_str().unwrap().to_owned();
        Self { grpc: address("grpc"), http: address("http"), process }
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
