//! The programs that are measured and are not this one: found, built or installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::args::Args;
use crate::built::{built, target};
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
