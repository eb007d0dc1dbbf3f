//! A server that runs while this value lives.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::contestant::Case;

/// The core for the server, and the one for the load.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const LOAD_CORE: usize = 1;

/// How a server is started.
#[derive(Debug, Clone)]
pub(crate) enum Start {
    /// This program as one of its `servers`.
    Own(&'static str),
    /// `sluicegate serve`.
    Sluicegate { path: PathBuf, rules: PathBuf },
    /// As its documentation says.
    Throttlecrab { path: PathBuf },
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
}

/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program on one core alone.
pub(crate) fn pinned(core: usize, program: &std::path::Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

// === impl Start ===

impl Start {
    /// Starts it, on a core of its own, and waits until it can be asked.
    pub(crate) fn start(&self) -> anyhow::Result<Running> {
        match self {
            Self::Own(name) => {
                let this = env::current_exe().context("this program's own path")?;
                let mut command = pinned(SERVER_CORE, &this);
                command.args(["server", name]);
                announced(command)
            }
            Self::Sluicegate { path, rules } => {
                let mut command = pinned(SERVER_CORE, path);
                command.arg("serve").arg("--rules").arg(rules).arg("--json");
                command.args(["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
                if has_admin(path)? {
                    command.args(["--admin", "127.0.0.1:0"]);
                }
                announced(command)
            }
            Self::Throttlecrab { path } => {
                let (grpc, http) = (free()?, free()?);
                let mut command = pinned(SERVER_CORE, path);
                command.args(["--grpc", "--grpc-host", "127.0.0.1", "--grpc-port"]);
                command.arg(grpc.port().to_string());
                command.args(["--http", "--http-host", "127.0.0.1", "--http-port"]);
                command.arg(http.port().to_string());
                command.args(["--store-capacity", "1000000", "--log-level", "error"]);
                let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
                let child = child.with_context(|| format!("cannot start `{}`", path.display()))?;
                let mut running = Running { child, grpc: Some(grpc), http: Some(http) };
                running.until_it_listens()?;
                Ok(running)
            }
        }
    }
}

/// Whether this build has a port for operators: it is given one, as it would have in earnest.
fn has_admin(path: &std::path::Path) -> anyhow::Result<bool> {
    let help = Command::new(path).args(["serve", "--help"]).output();
    let help = help.with_context(|| format!("cannot start `{}`", path.display()))?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--admin"))
}

/// Starts a server that says where it listens: one line of JSON.
fn announced(mut command: Command) -> anyhow::Result<Running> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {command:?}; is taskset there?"))?;
    let mut running = Running { child, grpc: None, http: None };
    let said = running.child.stdout.take().context("a server without an output")?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    let said: serde_json::Value = serde_json::from_str(&line)
        .with_context(|| format!("{command:?} said `{}` in place of its addresses", line.trim()))?;
    let address = |name: &str| said.get(name)?.as_str()?.parse().ok();
    (running.grpc, running.http) = (address("grpc"), address("http"));
    Ok(running)
}

/// An address that nobody has.
fn free() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

// === impl Running ===

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        // taskset becomes the program that it starts.
        self.child.id()
    }

    /// Where it is asked.
    pub(crate) fn address(&self, case: Case) -> anyhow::Result<SocketAddr> {
        let address = match case {
            Case::Rls => self.grpc,
            Case::Http => self.http,
        };
        address.with_context(|| format!("the server has no address for `{}`", case.name()))
    }

    fn until_it_listens(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        for address in [self.grpc, self.http].into_iter().flatten() {
            while TcpStream::connect(address).is_err() {
                if let Some(status) = self.child.try_wait()? {
                    bail!("the server has ended: {status}");
                }
                if began.elapsed() > PATIENCE {
                    bail!("nobody listens on `{address}` after {} s", PATIENCE.as_secs());
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
