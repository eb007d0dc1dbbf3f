//! The measured programs: found, built or installed; or why they are missing.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::contestants::{Contestant, Endpoint};
use super::proxies::Proxy;
use super::requests::RULES;
use super::servers::ServerKind;
use super::store;
use crate::{Common, child};

/// Paths of the programs and of their rules.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) sluicegate: PathBuf,
    /// Older builds have no RESP endpoint.
    sluicegate_has_resp: bool,
    /// A second build.
    pub(crate) other: Option<PathBuf>,
    pub(crate) rules: PathBuf,
    /// For counters in Redis.
    pub(crate) redis_rules: PathBuf,
    pub(crate) throttlecrab: Option<PathBuf>,
    pub(crate) ratelimit: Option<PathBuf>,
    pub(crate) redis: Option<PathBuf>,
    pub(crate) redis_cell: Option<PathBuf>,
    pub(crate) nginx: Option<PathBuf>,
    pub(crate) haproxy: Option<PathBuf>,
    pub(crate) envoy: Option<PathBuf>,
}

/// The version of the library benchmark.
const THROTTLECRAB: &str = "0.4.40";
/// Of January 2026: the version whose answers the tests of the service have.
const RATELIMIT: &str = "v1.4.1-0.20260122083618-3fb702589d36";
/// The latest on crates.io.
const REDIS_CELL: &str = "0.2.2";

// === impl Programs ===

impl Programs {
    pub(crate) fn find(common: &Common) -> anyhow::Result<Self> {
        let target = target()?;
        let peers = target.join("peers");
        if common.install_peers {
            install(&peers)?;
        }
        let rules = write_rules(&target.join("doors-rules.yaml"), RULES)?;
        let redis_rules = write_rules(&target.join("doors-redis-rules.yaml"), store::RULES)?;
        let sluicegate = match &common.sluicegate {
            Some(path) => path.clone(),
            None => build()?,
        };
        let installed = |name: &str| Some(peers.join(name)).filter(|path| path.exists());
        Ok(Self {
            sluicegate_has_resp: has_resp(&sluicegate)?,
            sluicegate,
            other: None,
            rules,
            redis_rules,
            throttlecrab: installed("bin/throttlecrab-server"),
            ratelimit: installed("bin/service_cmd"),
            redis: server("redis-server"),
            redis_cell: installed("lib/libredis_cell.so"),
            nginx: server("nginx"),
            haproxy: server("haproxy"),
            envoy: server("envoy"),
        })
    }

    /// Why a contestant cannot be measured.
    pub(crate) fn missing(&self, one: &Contestant) -> Option<String> {
        const INSTALL: &str = "`--install-peers` installs it";
        const REDIS: &str = "no `redis-server` on the path; Debian's package is redis-server";
        const NGINX: &str = "no `nginx` on the path; `--install-peers` installs it";
        let why = match one.server {
            ServerKind::Sluicegate | ServerKind::InMemory => {
                let is_resp = matches!(one.endpoint, Endpoint::Resp1 | Endpoint::Resp16);
                (is_resp && !self.sluicegate_has_resp).then_some("this build has no RESP endpoint")
            }
            ServerKind::Baseline(_) | ServerKind::OtherBuild => None,
            ServerKind::ThrottlecrabGrpc
            | ServerKind::ThrottlecrabHttp
            | ServerKind::ThrottlecrabResp => self.throttlecrab.is_none().then_some(INSTALL),
            ServerKind::Redis | ServerKind::OnRedis | ServerKind::OnEnvoysKeys => {
                self.redis.is_none().then_some(REDIS)
            }
            ServerKind::Ratelimit if self.redis.is_none() => Some(REDIS),
            ServerKind::Ratelimit => self.ratelimit.is_none().then_some(INSTALL),
            ServerKind::RedisCell if self.redis.is_none() => Some(REDIS),
            ServerKind::RedisCell => self.redis_cell.is_none().then_some(INSTALL),
            ServerKind::Nginx => self.nginx.is_none().then_some(NGINX),
            // The upstream of all.
            ServerKind::Proxy(_) if self.nginx.is_none() => Some(NGINX),
            ServerKind::Proxy(proxy) => {
                let (needed, why) = match proxy {
                    Proxy::Nginx
                    | Proxy::Gateway
                    | Proxy::GatewayUnlimited
                    | Proxy::GatewayWith(_) => return None,
                    Proxy::Haproxy => (&self.haproxy, INSTALL),
                    Proxy::EnvoyLocal | Proxy::EnvoyRls => (&self.envoy, INSTALL),
                    Proxy::GatewayRedis => (&self.redis, REDIS),
                    Proxy::EnvoyRatelimit if self.redis.is_none() => (&self.redis, REDIS),
                    Proxy::EnvoyRatelimit if self.envoy.is_none() => (&self.envoy, INSTALL),
                    Proxy::EnvoyRatelimit => (&self.ratelimit, INSTALL),
                };
                needed.is_none().then_some(why)
            }
            ServerKind::Limitador => Some("its server is in no registry"),
            ServerKind::Gubernator => Some("no client; its Go module could not be fetched"),
        };
        why.map(str::to_owned)
    }
}

/// Writes a file of rules.
pub(crate) fn write_rules(path: &Path, rules: &str) -> anyhow::Result<PathBuf> {
    fs::write(path, rules).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(path.to_owned())
}

/// The target directory of this program.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let this = child::this()?;
    let target = this.parent().and_then(Path::parent);
    Ok(target.context("this program has no target directory")?.to_owned())
}

/// Builds `sluicegate` from the enclosing workspace, in release mode.
fn build() -> anyhow::Result<PathBuf> {
    eprintln!("building sluicegate; `--sluicegate PATH` uses an existing build");
    let output = Command::new("cargo")
        .args(["build", "--release", "--package", "sluicegate-cli"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "sluicegate cannot be built");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut paths = messages.filter_map(|message| Some(message["executable"].as_str()?.into()));
    paths.find(|path: &PathBuf| path.ends_with("sluicegate")).context("cargo built no sluicegate")
}

/// A server on the path, or of `scripts/servers`.
fn server(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/servers/bin");
    // Servers are often outside the user's path.
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), installed.into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

fn has_resp(path: &Path) -> anyhow::Result<bool> {
    let help = Command::new(path).args(["serve", "--help"]).output();
    let help = help.with_context(|| format!("cannot start `{}`", path.display()))?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--resp"))
}

/// Installs the peers that registries have. A failure is reported and the others are installed.
fn install(root: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(root.join("bin"))?;
    fs::create_dir_all(root.join("lib"))?;
    for (name, outcome) in [
        ("throttlecrab-server", install_throttlecrab(root)),
        ("envoyproxy/ratelimit", install_ratelimit(root)),
        ("redis-cell", install_redis_cell(root)),
        ("nginx, HAProxy or Envoy", install_servers()),
    ] {
        if let Err(error) = outcome {
            eprintln!("{name} cannot be installed: {error:#}");
        }
    }
    Ok(())
}

fn install_throttlecrab(root: &Path) -> anyhow::Result<()> {
    let status = Command::new("cargo")
        .args(["install", "throttlecrab-server", "--locked", "--version", THROTTLECRAB, "--root"])
        .arg(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "its build needs protoc: install protobuf-compiler, or give the path of a protoc in `PROTOC`"
    );
    Ok(())
}

/// In the target directory of the enclosing workspace, as for its tests.
fn install_servers() -> anyhow::Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/servers");
    let status = Command::new(script).args(["nginx", "haproxy", "envoy"]).status();
    ensure!(status.context("cannot start scripts/servers")?.success(), "scripts/servers failed");
    Ok(())
}

fn install_ratelimit(root: &Path) -> anyhow::Result<()> {
    let status = Command::new("go")
        .arg("install")
        .arg(format!("github.com/envoyproxy/ratelimit/src/service_cmd@{RATELIMIT}"))
        .env("GOBIN", root.join("bin"))
        .status()
        .context("cannot start go")?;
    ensure!(status.success(), "`go install` failed");
    Ok(())
}

/// A Redis module is a library, which `cargo install` rejects: it is built as a dependency.
fn install_redis_cell(root: &Path) -> anyhow::Result<()> {
    let home = root.join("redis-cell");
    fs::create_dir_all(home.join("src"))?;
    let manifest = format!(
        "[workspace]\n[package]\nname = \"redis-cell-build\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [dependencies]\nredis-cell = \"={REDIS_CELL}\"\n"
    );
    fs::write(home.join("Cargo.toml"), manifest)?;
    fs::write(home.join("src/lib.rs"), "")?;
    let status = Command::new("cargo")
        .args(["rustc", "--release", "--package", "redis-cell", "--crate-type", "cdylib"])
        .current_dir(&home)
        .env("CARGO_TARGET_DIR", home.join("target"))
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "its build needs a C compiler");
    let built = [home.join("target/release"), home.join("target/release/deps")];
    let mut built = built.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let module = built.find(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("libredis_cell") && name.ends_with(".so")
    });
    let module = module.context("cargo built no module")?.path();
    fs::copy(&module, root.join("lib/libredis_cell.so")).context("cannot copy it")?;
    Ok(())
}
