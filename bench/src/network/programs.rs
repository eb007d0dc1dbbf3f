//! The programs that are measured and are not this one: found, built or installed; or why they are not here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::args::Args;
use crate::asks::RULES;
use crate::built::{built, target};
use crate::contestant::{Contestant, Door};
use crate::redis;
use crate::servers::Kind;

/// Where they are.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) sluicegate: PathBuf,
    /// Builds from before there was one have no RESP door.
    sluicegate_has_resp: bool,
    pub(crate) rules: PathBuf,
    /// Of those whose counters are in Redis.
    pub(crate) redis_rules: PathBuf,
    pub(crate) throttlecrab: Option<PathBuf>,
    pub(crate) ratelimit: Option<PathBuf>,
    pub(crate) redis: Option<PathBuf>,
    pub(crate) redis_cell: Option<PathBuf>,
    pub(crate) nginx: Option<PathBuf>,
}

/// The version that the library's bench has too.
const THROTTLECRAB: &str = "0.4.40";
/// Of January 2026, whose answers the service's tests know.
const RATELIMIT: &str = "v1.4.1-0.20260122083618-3fb702589d36";
/// The last one that crates.io has.
const REDIS_CELL: &str = "0.2.2";

// === impl Programs ===

impl Programs {
    pub(crate) fn find(args: &Args) -> anyhow::Result<Self> {
        let target = target()?;
        let peers = target.join("peers");
        if args.install_peers {
            install(&peers)?;
        }
        let rules = written(&target.join("doors-rules.yaml"), RULES)?;
        let redis_rules = written(&target.join("doors-redis-rules.yaml"), redis::RULES)?;
        let sluicegate = match &args.sluicegate {
            Some(path) => path.clone(),
            None => built()?,
        };
        let installed = |name: &str| Some(peers.join(name)).filter(|path| path.exists());
        Ok(Self {
            sluicegate_has_resp: has_resp(&sluicegate)?,
            sluicegate,
            rules,
            redis_rules,
            throttlecrab: installed("bin/throttlecrab-server"),
            ratelimit: installed("bin/service_cmd"),
            redis: on_path("redis-server"),
            redis_cell: installed("lib/libredis_cell.so"),
            nginx: on_path("nginx"),
        })
    }

    /// Why somebody cannot be measured, if that is so.
    pub(crate) fn missing(&self, one: &Contestant) -> Option<String> {
        const INSTALL: &str = "`--install-peers` installs it";
        const REDIS: &str = "no `redis-server` on the path; Debian's package is redis-server";
        let why = match one.kind {
            Kind::Sluicegate | Kind::InMemory => {
                let asks_for_resp = matches!(one.door, Door::Resp1 | Door::Resp16);
                (asks_for_resp && !self.sluicegate_has_resp)
                    .then_some("this build has no RESP door")
            }
            Kind::ThrottlecrabGrpc | Kind::ThrottlecrabHttp | Kind::ThrottlecrabResp => {
                self.throttlecrab.is_none().then_some(INSTALL)
            }
            Kind::Redis | Kind::OnRedis | Kind::OnEnvoysKeys => {
                self.redis.is_none().then_some(REDIS)
            }
            Kind::Ratelimit if self.redis.is_none() => Some(REDIS),
            Kind::Ratelimit => self.ratelimit.is_none().then_some(INSTALL),
            Kind::RedisCell if self.redis.is_none() => Some(REDIS),
            Kind::RedisCell => self.redis_cell.is_none().then_some(INSTALL),
            Kind::Nginx => {
                self.nginx.is_none().then_some("no `nginx` on the path; Debian's package is nginx")
            }
            // By another load on another machine, its Redis included.
            Kind::Limitador => Some("in no registry; elsewhere 99 µs, 11,000/s"),
            // A client that was never tried with the server would measure nothing.
            Kind::Gubernator => {
                Some("no client; its Go module could not be had when this was written")
            }
        };
        why.map(str::to_owned)
    }
}

/// A file of rules with this in it.
pub(crate) fn written(path: &Path, rules: &str) -> anyhow::Result<PathBuf> {
    fs::write(path, rules).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(path.to_owned())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    // Servers are not always where users look.
    let folders = env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.exists())
}

fn has_resp(path: &Path) -> anyhow::Result<bool> {
    let help = Command::new(path).args(["serve", "--help"]).output();
    let help = help.with_context(|| format!("cannot start `{}`", path.display()))?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--resp"))
}

/// Whom registries have. One who cannot be had is told, and the others are installed.
fn install(root: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(root.join("bin"))?;
    fs::create_dir_all(root.join("lib"))?;
    for (name, outcome) in [
        ("throttlecrab-server", install_throttlecrab(root)),
        ("envoyproxy/ratelimit", install_ratelimit(root)),
        ("redis-cell", install_redis_cell(root)),
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

/// A module of Redis is a library, which `cargo install` does not install: it is built as somebody's dependency.
fn install_redis_cell(root: &Path) -> anyhow::Result<()> {
    let home = root.join("redis-cell");
    fs::create_dir_all(home.join("src"))?;
    let manifest = format!(
        "[workspace]\n[package]\nname = \"holder\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
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
