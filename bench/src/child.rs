//! Measurements in a fresh process: this program runs itself and reads one line of JSON.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The path of this program.
pub(crate) fn this() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find the path of this program")
}

/// Runs this program with the arguments and decodes its output.
pub(crate) fn run<T: DeserializeOwned>(arguments: &[&str]) -> anyhow::Result<T> {
    decoded(Command::new(this()?).args(arguments))
}

/// Runs a command and decodes its output.
pub(crate) fn decoded<T: DeserializeOwned>(command: &mut Command) -> anyhow::Result<T> {
    let output = command.stdin(Stdio::null()).output();
    decode(&output.with_context(|| format!("cannot start {command:?}"))?)
}

/// Decodes the output of a child that has ended.
pub(crate) fn decode<T: DeserializeOwned>(output: &Output) -> anyhow::Result<T> {
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("invalid output of the child process")
}

/// The child's side: prints the measurement.
pub(crate) fn print<T: Serialize>(measured: &T) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(measured)?);
    Ok(())
}
