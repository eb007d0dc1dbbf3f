//! The programs that are measured and are not this one: found, built or installed.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::args::Args;
use crate::contestant::Programs;

/// The version that the library's bench has too.
const THROTTLECRAB: &str = "0.4.40";

/// All of them, and what is to be said about those that are left out.
pub(crate) fn find(args: &Args, rules: &str) -> anyhow::Result<(Programs, Vec<String>)> {
    let mut notes = Vec::new();
    let peers = target()?.join("peers");
    if args.install_peers {
        install(&peers)?;
    }
    let throttlecrab = Some(peers.join("bin/throttlecrab-server")).filter(|path| path.exists());
    if throttlecrab.is_none() {
        notes.push(
            "throttlecrab-server is left out, since it is not installed: `--install-peers` does it"
                .to_owned(),
        );
    }
    let sluicegate = match &args.sluicegate {
        Some(path) => path.clone(),
        None => built()?,
    };
    let path = target()?.join("service-rules.yaml");
    fs::write(&path, rules).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok((Programs { sluicegate, other: args.other.clone(), throttlecrab, rules: path }, notes))
}

/// Where this program was built.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let this = env::current_exe().context("this program's own path")?;
    let target = this.parent().and_then(Path::parent);
    Ok(target.context("this program lies in no directory")?.to_owned())
}

/// Builds `sluicegate` from the workspace that the bench is in, as it is released.
fn built() -> anyhow::Result<PathBuf> {
    eprintln!("building sluicegate; `--sluicegate PATH` takes one that is there");
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

fn install(root: &Path) -> anyhow::Result<()> {
    let status = Command::new("cargo")
        .args(["install", "throttlecrab-server", "--locked", "--version", THROTTLECRAB, "--root"])
        .arg(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "throttlecrab-server cannot be installed; its build needs protoc: \
         install protobuf-compiler, or give the path of a protoc in `PROTOC`"
    );
    Ok(())
}
