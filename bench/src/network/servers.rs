//! Servers that run while a value lives, all on one core.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::asks::RULES;
use crate::contestant::Door;
use crate::peers::Programs;
use crate::redis::Told;

/// The core for the server, and the one for the load.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const LOAD_CORE: usize = 1;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sluicegate,
    /// The same with its counters in Redis.
    OnRedis,
    /// The same rules, with counters in the service's own memory.
    InMemory,
    /// The same on the keys of envoyproxy/ratelimit.
    OnEnvoysKeys,
    ThrottlecrabGrpc,
    ThrottlecrabHttp,
    ThrottlecrabResp,
    Ratelimit,
    Redis,
    RedisCell,
    Nginx,
    Gubernator,
    Limitador,
}

/// A server that runs, with whatever is behind it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Where ours says what it counts about its Redis, if it has one.
    pub(crate) admin: Option<SocketAddr>,
    children: Vec<Child>,
    /// Processes that it has started itself.
    workers: Vec<u32>,
    folder: Option<Folder>,
}

/// A directory that is gone when nobody needs it.
#[derive(Debug)]
struct Folder(PathBuf);

/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program on one core alone.
pub(crate) fn pinned(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

// === impl Kind ===

impl Kind {
    /// Starts it, and waits until it can be asked.
    pub(crate) fn start(self, programs: &Programs, door: Door) -> anyhow::Result<Running> {
        match self {
            Self::Sluicegate => sluicegate(programs, &programs.rules, door),
            Self::InMemory => sluicegate(programs, &programs.redis_rules, door),
            Self::OnRedis => on_redis(programs, &programs.redis_rules, &[]),
            Self::OnEnvoysKeys => on_redis(programs, &programs.rules, &["--compat", "envoy"]),
            Self::ThrottlecrabGrpc => throttlecrab(programs, "grpc"),
            Self::ThrottlecrabHttp => throttlecrab(programs, "http"),
            Self::ThrottlecrabResp => throttlecrab(programs, "redis"),
            Self::Redis => redis(programs, None),
            Self::RedisCell => redis(programs, programs.redis_cell.as_deref()),
            Self::Ratelimit => ratelimit(programs),
            Self::Nginx => nginx(programs),
            Self::Gubernator | Self::Limitador => bail!("there is none here"),
        }
    }
}

/// All doors are open, as in earnest; one of them is asked.
fn sluicegate(programs: &Programs, rules: &Path, door: Door) -> anyhow::Result<Running> {
    let mut command = serve(programs, rules, "warn");
    let name = match door {
        Door::Rls | Door::Redis | Door::Levels => "grpc",
        Door::Http => "http",
        Door::Resp1 | Door::Resp16 => {
            command.args(["--resp", "127.0.0.1:0"]);
            "resp"
        }
    };
    Ok(served(&mut command, [name])?.0)
}

/// Ours, with a Redis of its own on the same core. It may wait for an answer: what is measured is what one costs.
fn on_redis(programs: &Programs, rules: &Path, more: &[&str]) -> anyhow::Result<Running> {
    let mut store = redis(programs, None)?;
    let mut running = asking(programs, rules, store.address, |command| {
        command.args(more).env("SLUICEGATE_STORE_TIMEOUT", "1s");
    })?;
    running.children.append(&mut store.children);
    running.folder = store.folder.take();
    Ok(running)
}

/// Ours, and a Redis that is there already. Whoever asks next finds them connected.
pub(crate) fn asking(
    programs: &Programs,
    rules: &Path,
    store: SocketAddr,
    more: impl FnOnce(&mut Command),
) -> anyhow::Result<Running> {
    // That its Redis comes and goes is meant.
    let mut command = serve(programs, rules, "error");
    command.args(["--store", &format!("redis://{store}")]);
    more(&mut command);
    let (mut running, [_, admin]) = served(&mut command, ["grpc", "admin"])?;
    running.admin = Some(admin);
    let began = Instant::now();
    while !Told::by(admin)?.is_up {
        if began.elapsed() > PATIENCE {
            bail!("sluicegate has not found its Redis after {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(running)
}

fn serve(programs: &Programs, rules: &Path, log_level: &str) -> Command {
    let mut command = pinned(SERVER_CORE, &programs.sluicegate);
    command.arg("serve").arg("--rules").arg(rules).args(["--json", "--log-level", log_level]);
    for name in ["--grpc", "--http", "--admin"] {
        command.args([name, "127.0.0.1:0"]);
    }
    command
}

/// Ours, and where it can be asked: at the first of these doors.
fn served<const N: usize>(
    command: &mut Command,
    doors: [&str; N],
) -> anyhow::Result<(Running, [SocketAddr; N])> {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut child = spawned(command.stdout(Stdio::piped()))?;
    let said = child.stdout.take().context("a server without an output")?;
    // Ends with `running`, also if it says nonsense.
    let mut running = Running::of(child, nowhere);
    // One line of JSON says where it listens.
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    let said: serde_json::Value = serde_json::from_str(&line)
        .with_context(|| format!("sluicegate said `{}` in place of its addresses", line.trim()))?;
    let mut addresses = [nowhere; N];
    for (door, address) in doors.iter().zip(&mut addresses) {
        let told = said.get(door).and_then(|address| address.as_str()?.parse().ok());
        *address = told.with_context(|| format!("sluicegate has no address `{door}`"))?;
    }
    running.address = addresses.first().copied().unwrap_or(nowhere);
    Ok((running, addresses))
}

/// As its documentation says, with one door open.
fn throttlecrab(programs: &Programs, door: &str) -> anyhow::Result<Running> {
    let path = programs.throttlecrab.as_deref().context("no throttlecrab-server")?;
    let address = free()?;
    let mut command = pinned(SERVER_CORE, path);
    command.arg(format!("--{door}"));
    command.args([format!("--{door}-host"), "127.0.0.1".to_owned()]);
    command.args([format!("--{door}-port"), address.port().to_string()]);
    command.args(["--store-capacity", "1000000", "--log-level", "error"]);
    Running::of(spawned(command.stdout(Stdio::null()))?, address).listening()
}

/// Without files.
pub(crate) fn redis(programs: &Programs, module: Option<&Path>) -> anyhow::Result<Running> {
    let path = programs.redis.as_deref().context("no redis-server")?;
    let address = free()?;
    let folder = Folder::new(address)?;
    let mut command = pinned(SERVER_CORE, path);
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "no", "--dir"]).arg(&folder.0);
    if let Some(module) = module {
        command.arg("--loadmodule").arg(module);
    }
    Running::of(spawned(command.stdout(Stdio::null()))?, address).within(folder).listening()
}

/// With a Redis of its own on the same core, and without statistics: its best case.
fn ratelimit(programs: &Programs) -> anyhow::Result<Running> {
    let path = programs.ratelimit.as_deref().context("no envoyproxy/ratelimit")?;
    let mut store = redis(programs, None)?;
    let (address, http, debug) = (free()?, free()?, free()?);
    let folder = Folder::new(address)?;
    let config = folder.0.join("ratelimit/config");
    fs::create_dir_all(&config)?;
    fs::write(config.join("rules.yaml"), RULES)?;
    let mut command = pinned(SERVER_CORE, path);
    command.env("RUNTIME_ROOT", &folder.0).env("RUNTIME_SUBDIRECTORY", "ratelimit");
    command.envs([
        ("HOST", "127.0.0.1"),
        ("GRPC_HOST", "127.0.0.1"),
        ("DEBUG_HOST", "127.0.0.1"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("USE_STATSD", "false"),
        ("DISABLE_STATS", "true"),
        ("LOG_LEVEL", "error"),
    ]);
    command.env("REDIS_URL", store.address.to_string());
    let ports = [("PORT", http), ("GRPC_PORT", address), ("DEBUG_PORT", debug)];
    command.envs(ports.map(|(name, address)| (name, address.port().to_string())));
    let child = spawned(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    let mut running = Running::of(child, address).within(folder);
    running.children.append(&mut store.children);
    running.listening()
}

/// One worker, a file of thirteen bytes, and a limit for each value of `k`.
fn nginx(programs: &Programs) -> anyhow::Result<Running> {
    let path = programs.nginx.as_deref().context("no nginx")?;
    let address = free()?;
    let folder = Folder::new(address)?;
    let home = folder.0.display();
    fs::write(folder.0.join("index.html"), "Hello, World!")?;
    fs::write(folder.0.join("probe"), "Hello, World!")?;
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {home}/{name};\n"))
        .concat();
    // The file is found once and kept open. The probe: one at once and two more.
    let config = format!(
        "worker_processes 1;\ndaemon off;\npid {home}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n{temporary}  access_log off;\n  open_file_cache max=10 inactive=1h;\n  open_file_cache_valid 1h;\n  \
         keepalive_requests 1000000000;\n  limit_req_status 429;\n  limit_req_log_level info;\n  \
         limit_req_zone $arg_k zone=all:128m rate=10000r/s;\n  \
         limit_req_zone $server_name zone=probe:1m rate=1r/m;\n  \
         server {{\n    listen {address};\n    server_name bench;\n    root {home};\n    \
         location / {{ limit_req zone=all burst=10000 nodelay; }}\n    \
         location /probe {{ limit_req zone=probe burst=2 nodelay; }}\n  }}\n}}\n"
    );
    fs::write(folder.0.join("nginx.conf"), config)?;
    let mut command = pinned(SERVER_CORE, path);
    command
        .arg("-p")
        .arg(&folder.0)
        .arg("-c")
        .arg(folder.0.join("nginx.conf"))
        .args(["-e", "stderr"]);
    let child = spawned(command.stdout(Stdio::null()))?;
    let mut running = Running::of(child, address).within(folder).listening()?;
    let began = Instant::now();
    while running.workers.is_empty() {
        if began.elapsed() > PATIENCE {
            bail!("nginx has no worker after {} s", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
        running.workers =
            running.children.iter().flat_map(|child| children_of(child.id())).collect();
    }
    Ok(running)
}

fn children_of(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn spawned(command: &mut Command) -> anyhow::Result<Child> {
    let child = command.stdin(Stdio::null()).spawn();
    child.with_context(|| format!("cannot start {command:?}; is taskset there?"))
}

/// An address that nobody has.
fn free() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

// === impl Running ===

impl Running {
    fn of(child: Child, address: SocketAddr) -> Self {
        Self { address, admin: None, children: vec![child], workers: Vec::new(), folder: None }
    }

    fn within(mut self, folder: Folder) -> Self {
        self.folder = Some(folder);
        self
    }

    /// All that it consists of.
    pub(crate) fn processes(&self) -> Vec<u32> {
        // taskset becomes the program that it starts.
        self.children.iter().map(Child::id).chain(self.workers.iter().copied()).collect()
    }

    /// Those that have the core for themselves: where several share it they wait for each other, which is their own affair.
    pub(crate) fn alone(&self) -> Vec<u32> {
        if self.children.len() == 1 { self.processes() } else { Vec::new() }
    }

    fn listening(mut self) -> anyhow::Result<Self> {
        let began = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.children[0].try_wait()? {
                bail!("the server has ended: {status}");
            }
            if began.elapsed() > PATIENCE {
                bail!("nobody listens on `{}` after {} s", self.address, PATIENCE.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A server with workers takes them along when it is asked to end, not when it is killed.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < PATIENCE {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.folder = None;
    }
}

// === impl Folder ===

impl Folder {
    /// The port makes it one of its kind.
    fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("sluicegate-doors-{}", address.port()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
