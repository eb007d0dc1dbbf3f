//! Services with the same rules and the same Redis.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio, id};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// How long a service may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// They end with this value.
pub(crate) struct Fleet {
    pub(crate) services: Vec<Service>,
    rules: PathBuf,
}

/// A service that has reached the store.
pub(crate) struct Service {
    pub(crate) grpc: SocketAddr,
    child: Child,
}

// === impl Fleet ===

impl Fleet {
    pub(crate) fn start(
        sluicegate: &Path,
        count: u32,
        store: &str,
        rules: &str,
    ) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("sluicegate-levels-{}.yaml", id()));
        fs::write(&path, rules).with_context(|| format!("cannot write `{}`", path.display()))?;
        let mut fleet = Self { services: Vec::new(), rules: path };
        for _ in 0..count {
            let service = Service::start(sluicegate, &fleet.rules, store)?;
            fleet.services.push(service);
        }
        Ok(fleet)
    }

    /// One of them ends, as by a crash.
    pub(crate) fn kill_one(&mut self) {
        self.services.pop();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.rules);
    }
}

// === impl Service ===

impl Service {
    fn start(sluicegate: &Path, rules: &Path, store: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(sluicegate);
        command.args(["serve", "--json", "--log-level", "error", "--store", store, "--rules"]);
        command.arg(rules);
        for door in ["--grpc", "--http", "--admin"] {
            command.args([door, "127.0.0.1:0"]);
        }
        // A call that came too late would be charged, and not be answered.
        command.env("SLUICEGATE_STORE_TIMEOUT", "10s");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("cannot start `{}`", sluicegate.display()))?;
        // From here on it ends with this value.
        let mut service = Self { grpc: SocketAddr::from(([127, 0, 0, 1], 0)), child };
        let mut line = String::new();
        let said = service.child.stdout.take().context("a service without an output")?;
        BufReader::new(said).read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line).context("what a service says first")?;
        let address = |name: &str| -> anyhow::Result<SocketAddr> {
            Ok(told[name].as_str().with_context(|| format!("no `{name}` in {told}"))?.parse()?)
        };
        service.grpc = address("grpc")?;
        await_ready(address("admin")?)?;
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn await_ready(admin: SocketAddr) -> anyhow::Result<()> {
    let began = Instant::now();
    while !is_ready(admin)? {
        let seconds = PATIENCE.as_secs();
        ensure!(began.elapsed() < PATIENCE, "a service has not reached Redis after {seconds} s");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn is_ready(admin: SocketAddr) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect(admin).context("the service's own port")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /ready HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")?;
    let mut said = String::new();
    stream.read_to_string(&mut said).context("whether the service is ready")?;
    Ok(said.starts_with("HTTP/1.1 200"))
}
