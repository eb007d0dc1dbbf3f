//! A real Envoy.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::process::Process;
use crate::support::{Folder, http, root};

/// An Envoy; ends with this value.
pub struct Envoy {
    process: Process,
    admin: String,
    /// Where it listens, in the order of the configuration.
    pub listeners: Vec<String>,
}

impl Envoy {
    /// Starts one, whose ports should all be 0. When this returns it accepts connections.
    pub fn start(config: &str, folder: &Folder) -> Self {
        // Every JSON is YAML.
        let config = folder.file("envoy.yaml", config);
        let admin = format!("{}/admin", folder.path());
        let mut command = Command::new(program());
        command.args(["--config-path", &config, "--admin-address-path", &admin]);
        command.args([
            "--file-flush-interval-msec",
            "1",
            "--concurrency",
            "1",
            "--use-dynamic-base-id",
            "--disable-hot-restart",
        ]);
        command.args(["--log-level", "warning", "--component-log-level", "main:info"]);
        let mut process = Process::start("envoy", &mut command);
        process.says("starting main dispatch loop");
        let admin = std::fs::read_to_string(admin).unwrap();
        assert_eq!(http::get(&admin, "/ready", &[]).body.trim(), "LIVE");
        let listeners: Value =
            serde_json::from_str(&http::get(&admin, "/listeners?format=json", &[]).body).unwrap();
        let listeners = listeners["listener_statuses"].as_array().unwrap();
        let listeners =
            listeners.iter().map(|listener| address(&listener["local_address"])).collect();
        Self { process, admin, listeners }
    }

    /// The next line with this text in it: waits until it is said.
    pub fn says(&mut self, text: &str) -> String {
        self.process.says(text)
    }

    /// One of its own counters.
    pub fn counted(&self, name: &str) -> u64 {
        let text = http::get(&self.admin, &format!("/stats?filter=^{name}$"), &[]).body;
        let value = text.trim().strip_prefix(&format!("{name}: "));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Waits until one of its counters has come so far.
    pub fn counts(&self, name: &str, count: u64) {
        // Each look is a request to Envoy, which it answers between its other work: seconds, at the
        // worst.
        const LOOKS_MAX: usize = 20_000;
        let there = (0..LOOKS_MAX).any(|_| self.counted(name) >= count);
        assert!(there, "{name} has not come to {count}, it is {}", self.counted(name));
    }
}

/// Has Envoy look at a configuration, which must be valid.
pub fn validated(config: &str, folder: &Folder) {
    let path = folder.file("envoy.yaml", config);
    let mut command = Command::new(program());
    command.args(["--mode", "validate", "--config-path", &path, "--log-level", "error"]);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{config}");
}

fn address(local: &Value) -> String {
    let socket = &local["socket_address"];
    format!("{}:{}", socket["address"].as_str().unwrap(), socket["port_value"])
}

/// As `scripts/servers` installs it. It is never left out: without Envoy nothing here is tested.
fn program() -> PathBuf {
    let named = std::env::var_os("SLUICEGATE_TEST_ENVOY").map(PathBuf::from);
    let program = named.unwrap_or_else(|| root().join("target/servers/bin/envoy"));
    assert!(
        program.exists(),
        "there is no Envoy at {}: run ./scripts/servers first",
        program.display()
    );
    program
}
