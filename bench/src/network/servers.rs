//! Servers on one core. A server ends when its value is dropped.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::contestants::Endpoint;
use super::programs::Programs;
use super::proxies::{self, Proxy};
use super::requests::RULES;
use super::store::{self, StoreMetrics};
use crate::child;

/// CPU affinity of the server and of the load.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const LOAD_CORE: usize = 1;

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// One of the [`baselines`](super::baselines).
    Baseline(&'static str),
    Sluicegate,
    OtherBuild,
    /// Counters in Redis.
    OnRedis,
    /// The rules of `OnRedis`, counters in memory.
    InMemory,
    /// Counters on the keys of envoyproxy/ratelimit.
    OnEnvoysKeys,
    ThrottlecrabGrpc,
    ThrottlecrabHttp,
    ThrottlecrabResp,
    Ratelimit,
    Redis,
    RedisCell,
    Nginx,
    /// A proxy with an upstream.
    Proxy(Proxy),
    Gubernator,
    Limitador,
}

/// A running server with its store.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    /// Admin endpoint of ours with counters in Redis.
    pub(crate) admin: Option<SocketAddr>,
    children: Vec<Child>,
    /// Worker processes of the server.
    workers: Vec<u32>,
    folders: Vec<Folder>,
    /// Behind a proxy; not measured.
    pub(super) upstream: Option<Box<Self>>,
}

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

/// Timeout of a server's start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A program pinned to a core.
pub(crate) fn pinned(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

// === impl ServerKind ===

impl ServerKind {
    /// Starts the server and waits until it accepts connections.
    pub(crate) fn start(self, programs: &Programs, endpoint: Endpoint) -> anyhow::Result<Running> {
        match self {
            Self::Baseline(name) => {
                let mut command = pinned(SERVER_CORE, &child::this()?);
                command.args(["server", name]);
                Ok(announced(&mut command, [endpoint.flag()])?.0)
            }
            Self::Sluicegate => sluicegate(&programs.sluicegate, &programs.rules, endpoint),
            Self::OtherBuild => {
                let path = programs.other.as_ref().context("no other build")?;
                sluicegate(path, &programs.rules, endpoint)
            }
            Self::InMemory => sluicegate(&programs.sluicegate, &programs.redis_rules, endpoint),
            Self::OnRedis => on_redis(programs, &programs.redis_rules, &[]),
            Self::OnEnvoysKeys => on_redis(programs, &programs.rules, &["--compat", "envoy"]),
            Self::ThrottlecrabGrpc => throttlecrab(programs, "grpc"),
            Self::ThrottlecrabHttp => throttlecrab(programs, "http"),
            Self::ThrottlecrabResp => throttlecrab(programs, "redis"),
            Self::Redis => redis(programs, None),
            Self::RedisCell => redis(programs, programs.redis_cell.as_deref()),
            Self::Ratelimit => ratelimit(programs, RULES),
            Self::Nginx => nginx(programs, SERVER_CORE, limited_file),
            Self::Proxy(proxy) => proxy.start_probed(programs),
            Self::Gubernator | Self::Limitador => bail!("it cannot be started"),
        }
    }
}

/// All endpoints are open, as in production.
pub(crate) fn sluicegate(path: &Path, rules: &Path, endpoint: Endpoint) -> anyhow::Result<Running> {
    let mut command = serve(pinned(SERVER_CORE, path), rules, "warn");
    if endpoint.flag() == "resp" {
        command.args(["--resp", "127.0.0.1:0"]);
    }
    Ok(announced(&mut command, [endpoint.flag()])?.0)
}

/// Ours, with the address of its HTTP endpoint.
pub(crate) struct Both {
    pub(crate) running: Running,
    pub(crate) http: SocketAddr,
}

/// Ours with counters in memory, for load on gRPC and HTTP.
pub(crate) fn both(path: &Path, rules: &Path) -> anyhow::Result<Both> {
    let mut command = serve(pinned(SERVER_CORE, path), rules, "warn");
    let (running, [_, http]) = announced(&mut command, ["grpc", "http"])?;
    Ok(Both { running, http })
}

/// Ours with a Redis on the same core. The timeout is long: the cost of an answer is measured.
fn on_redis(programs: &Programs, rules: &Path, more: &[&str]) -> anyhow::Result<Running> {
    let store = redis(programs, None)?;
    let running = connected(programs, rules, store.address, |command| {
        command.args(more).env("SLUICEGATE_STORE_TIMEOUT", "1s");
    })?;
    Ok(running.with(store))
}

/// Ours, connected to an existing Redis.
pub(crate) fn connected(
    programs: &Programs,
    rules: &Path,
    store: SocketAddr,
    more: impl FnOnce(&mut Command),
) -> anyhow::Result<Running> {
    let mut command = serve(pinned(SERVER_CORE, &programs.sluicegate), rules, "error");
    command.args(["--store", &format!("redis://{store}")]);
    more(&mut command);
    ready(&mut command)
}

/// Starts ours and waits until it has reached its Redis.
pub(crate) fn ready(command: &mut Command) -> anyhow::Result<Running> {
    ready_at(command, "grpc")
}

/// Ours with this endpoint, once it has reached its Redis.
pub(super) fn ready_at(command: &mut Command, endpoint: &str) -> anyhow::Result<Running> {
    let (mut running, [_, admin]) = announced(command, [endpoint, "admin"])?;
    running.admin = Some(admin);
    wait("sluicegate has not reached its Redis", || {
        Ok(StoreMetrics::read(admin)?.is_up && store::get(admin, "/ready").is_ok())
    })?;
    Ok(running)
}

/// `sluicegate serve` on free ports.
pub(crate) fn serve(mut command: Command, rules: &Path, log_level: &str) -> Command {
    command.arg("serve").arg("--rules").arg(rules).args(["--json", "--log-level", log_level]);
    for name in ["--grpc", "--http", "--admin"] {
        command.args([name, "127.0.0.1:0"]);
    }
    command
}

/// Starts a server that prints its addresses as one line of JSON. Its address is the first of
/// these.
pub(super) fn announced<const N: usize>(
    command: &mut Command,
    endpoints: [&str; N],
) -> anyhow::Result<(Running, [SocketAddr; N])> {
    let unknown = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut child = spawn(command.stdout(Stdio::piped()))?;
    let stdout = child.stdout.take().context("a server without standard output")?;
    // From here on it ends with `running`.
    let mut running = Running::new(child, unknown);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let announced: serde_json::Value = serde_json::from_str(&line).with_context(|| {
        format!("the server printed `{}` instead of its addresses", line.trim())
    })?;
    let mut addresses = [unknown; N];
    for (name, address) in endpoints.iter().zip(&mut addresses) {
        let found = announced.get(name).and_then(|address| address.as_str()?.parse().ok());
        *address = found.with_context(|| format!("the server has no address `{name}`"))?;
    }
    running.address = addresses.first().copied().unwrap_or(unknown);
    Ok((running, addresses))
}

/// As its documentation says, with one endpoint.
fn throttlecrab(programs: &Programs, endpoint: &str) -> anyhow::Result<Running> {
    let path = programs.throttlecrab.as_deref().context("no throttlecrab-server")?;
    let address = free_address()?;
    let mut command = pinned(SERVER_CORE, path);
    command.arg(format!("--{endpoint}"));
    command.args([format!("--{endpoint}-host"), "127.0.0.1".to_owned()]);
    command.args([format!("--{endpoint}-port"), address.port().to_string()]);
    command.args(["--store-capacity", "1000000", "--log-level", "error"]);
    Running::new(spawn(command.stdout(Stdio::null()))?, address).listening()
}

/// A Redis without persistence.
pub(crate) fn redis(programs: &Programs, module: Option<&Path>) -> anyhow::Result<Running> {
    let path = programs.redis.as_deref().context("no redis-server")?;
    let address = free_address()?;
    let folder = Folder::new(address)?;
    let mut command = pinned(SERVER_CORE, path);
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.args(["--appendonly", "no", "--dir"]).arg(&folder.0);
    if let Some(module) = module {
        command.arg("--loadmodule").arg(module);
    }
    Running::new(spawn(command.stdout(Stdio::null()))?, address).within(folder).listening()
}

/// With a Redis on the same core, and without statistics: its best case.
pub(super) fn ratelimit(programs: &Programs, rules: &str) -> anyhow::Result<Running> {
    let path = programs.ratelimit.as_deref().context("no envoyproxy/ratelimit")?;
    let store = redis(programs, None)?;
    let (address, http, debug) = (free_address()?, free_address()?, free_address()?);
    let folder = Folder::new(address)?;
    let config = folder.0.join("ratelimit/config");
    fs::create_dir_all(&config)?;
    fs::write(config.join("rules.yaml"), rules)?;
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
    let child = spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    Running::new(child, address).within(folder).with(store).listening()
}

/// Directives of nginx: a file of thirteen bytes, and a limit for each value of `k`.
fn limited_file(home: &Path, address: SocketAddr) -> anyhow::Result<String> {
    fs::write(home.join("index.html"), "Hello, World!")?;
    fs::write(home.join("probe"), "Hello, World!")?;
    let home = home.display();
    // The file is kept open. The probe: one request and a burst of two.
    Ok(format!(
        "  open_file_cache max=10 inactive=1h;\n  open_file_cache_valid 1h;\n  \
         limit_req_zone $arg_k zone=all:128m rate=10000r/s;\n  \
         limit_req_zone $server_name zone=probe:1m rate=1r/m;\n  \
         server {{\n    listen {address};\n    server_name bench;\n    root {home};\n    \
         location / {{ limit_req zone=all burst=10000 nodelay; }}\n    \
         location /probe {{ limit_req zone=probe burst=2 nodelay; }}\n  }}\n"
    ))
}

/// nginx with one worker and these directives of `http`.
pub(super) fn nginx(
    programs: &Programs,
    core: usize,
    directives: impl FnOnce(&Path, SocketAddr) -> anyhow::Result<String>,
) -> anyhow::Result<Running> {
    let path = programs.nginx.as_deref().context("no nginx")?;
    let address = free_address()?;
    let folder = Folder::new(address)?;
    let directives = directives(&folder.0, address)?;
    let home = folder.0.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {home}/{name};\n"))
        .concat();
    let config = format!(
        "worker_processes 1;\ndaemon off;\npid {home}/pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n{temporary}  access_log off;\n  keepalive_requests 1000000000;\n  \
         limit_req_status 429;\n  limit_req_log_level info;\n{directives}}}\n"
    );
    fs::write(folder.0.join("nginx.conf"), config)?;
    let mut command = pinned(core, path);
    command
        .arg("-p")
        .arg(&folder.0)
        .arg("-c")
        .arg(folder.0.join("nginx.conf"))
        .args(["-e", "stderr"]);
    let child = spawn(command.stdout(Stdio::null()))?;
    let mut running = Running::new(child, address).within(folder).listening()?;
    wait("nginx has no worker", || {
        running.workers =
            running.children.iter().flat_map(|child| children_of(child.id())).collect();
        Ok(!running.workers.is_empty())
    })?;
    Ok(running)
}

/// Polls until a condition holds.
fn wait(failure: &str, mut condition: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let began = Instant::now();
    while !condition()? {
        if began.elapsed() > START_TIMEOUT {
            bail!("{failure} after {} s", START_TIMEOUT.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn children_of(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

pub(super) fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    let child = command.stdin(Stdio::null()).spawn();
    child.with_context(|| format!("cannot start {command:?}; is taskset there?"))
}

/// An unused address.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

// === impl Running ===

impl Running {
    pub(super) fn new(child: Child, address: SocketAddr) -> Self {
        Self {
            address,
            admin: None,
            children: vec![child],
            workers: Vec::new(),
            folders: Vec::new(),
            upstream: None,
        }
    }

    pub(super) fn within(mut self, folder: Folder) -> Self {
        self.folders.push(folder);
        self
    }

    /// Together with its store or its limiter.
    pub(super) fn with(mut self, mut other: Self) -> Self {
        self.children.append(&mut other.children);
        self.workers.append(&mut other.workers);
        self.folders.append(&mut other.folders);
        self
    }

    /// All processes: the service, its store, its workers.
    pub(crate) fn processes(&self) -> Vec<u32> {
        // taskset becomes the program that it starts.
        self.children.iter().map(Child::id).chain(self.workers.iter().copied()).collect()
    }

    /// Processes that have the core to themselves; several on one core wait for each other.
    pub(crate) fn alone(&self) -> Vec<u32> {
        if self.children.len() == 1 { self.processes() } else { Vec::new() }
    }

    /// Processes of the upstream, if they are on this core.
    pub(super) fn upstream_on(&self, core: usize) -> Vec<u32> {
        let upstream = self.upstream.as_ref().filter(|_| proxies::upstream_core() == core);
        upstream.map_or(Vec::new(), |upstream| upstream.processes())
    }

    pub(super) fn listening(mut self) -> anyhow::Result<Self> {
        let address = self.address;
        wait("the server does not listen", || {
            if let Some(status) = self.children[0].try_wait()? {
                bail!("the server has ended: {status}");
            }
            Ok(TcpStream::connect(address).is_ok())
        })?;
        Ok(self)
    }
}

impl Running {
    /// Ends the service as by a crash.
    pub(crate) fn kill(mut self) {
        self.children.iter_mut().for_each(|child| _ = child.kill());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // A server ends its workers on SIGTERM, not on SIGKILL.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < START_TIMEOUT {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        self.folders.clear();
    }
}

// === impl Folder ===

impl Folder {
    /// The port makes the name unique.
    pub(super) fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("sluicegate-bench-{}", address.port()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
