//! What was built, and where: this program, and the one that is measured.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Where this program was built.
pub(crate) fn target() -> anyhow::Result<PathBuf> {
    let this = env::current_exe().context("this program's own path")?;
    let target = this.parent().and_then(Path::parent);
    Ok(target.context("this program lies in no directory")?.to_owned())
}

/// Builds `sluicegate` from the workspace that the bench is in, as it is released.
pub(crate) fn built() -> anyhow::Result<PathBuf> {
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
