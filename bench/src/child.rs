//! A measurement in a process of its own: this program calls itself, and reads one line of JSON.

use std::env;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cell::Cell;
use crate::one_cell::Sample;
use crate::one_fill::Growth;
use crate::roster::{self, Entry};

/// Runs one cell in a fresh process.
pub(crate) fn cell(contestant: &str, cell: &str, checks: usize) -> anyhow::Result<Sample> {
    ask(&["one-cell", contestant, cell, &checks.to_string()])
}

/// Fills one store in a fresh process.
pub(crate) fn fill(contestant: &str, ids: usize) -> anyhow::Result<Growth> {
    ask(&["one-fill", contestant, &ids.to_string()])
}

/// The child's side of [`cell`].
pub(crate) fn serve_cell(contestant: &str, cell: &str, checks: usize) -> anyhow::Result<ExitCode> {
    let cell = Cell::named(cell).with_context(|| format!("there is no cell `{cell}`"))?;
    answer((entry(contestant)?.speed)(&cell, checks))
}

/// The child's side of [`fill`].
pub(crate) fn serve_fill(contestant: &str, ids: usize) -> anyhow::Result<ExitCode> {
    answer((entry(contestant)?.memory)(ids))
}

fn entry(name: &str) -> anyhow::Result<Entry> {
    let found = roster::all().into_iter().find(|entry| entry.name == name);
    found.with_context(|| format!("there is no contestant `{name}`"))
}

fn answer<T: Serialize>(measured: Result<T, String>) -> anyhow::Result<ExitCode> {
    let measured = measured.map_err(|wrong| anyhow!(wrong))?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(ExitCode::SUCCESS)
}

fn ask<T: DeserializeOwned>(arguments: &[&str]) -> anyhow::Result<T> {
    let this = env::current_exe().context("this program's own path")?;
    let output = Command::new(this)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("starting this program anew")?;
    if !output.status.success() {
        let says = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}: {}", arguments.join(" "), output.status, says.trim());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{arguments:?}: its answer"))
}
