//! Runs the binary as a person would.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod browser;
pub mod http;
pub mod process;
pub mod receiver;
pub mod service;
pub mod terminal;
pub mod upstream;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A program as `scripts/servers` installs it, or as a variable names it. It is never left out:
/// without it nothing is tested.
pub fn server(name: &str) -> PathBuf {
    let variable =
        format!("SLUICEGATE_TEST_{}", name.replace(['-', '.'], "_").to_ascii_uppercase());
    let named = std::env::var_os(&variable).map(PathBuf::from);
    let program = named.unwrap_or_else(|| root().join("target/servers/bin").join(name));
    let at = program.display();
    assert!(program.exists(), "there is no {name} at {at}: run ./scripts/servers first");
    program
}

pub fn sluicegate(args: &[&str], stdin: &str) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    fed(command.args(args), stdin)
}

/// A command line, with `sluicegate` on the path.
pub fn shell(line: &str, folder: &Path) -> Run {
    fed(on_path(Command::new("bash").args(["-c", line]).current_dir(folder)), "")
}

fn on_path(command: &mut Command) -> &mut Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_sluicegate")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    command.env("PATH", path)
}

fn fed(command: &mut Command, stdin: &str) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read its input; that is no failure of the test.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    Run {
        code: status.code().unwrap(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

/// A directory that is gone when the test is over.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluicegate-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Writes a file; its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        self.bytes(name, text.as_bytes())
    }

    pub fn bytes(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
