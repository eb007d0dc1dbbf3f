//! The tests of the client packages in `clients/`, with the binary of this build.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::process::Command;

use support::{root, server};

/// Runs a tool in the folder of a package; its output, if it fails.
fn passes(package: &str, tool: &str, args: &[&str]) {
    let ran = Command::new(server(tool))
        .args(args)
        .current_dir(root().join("clients").join(package))
        .env("SLUICEGATE_TEST_SERVICE", env!("CARGO_BIN_EXE_sluicegate"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{tool} {}:\n{stdout}\n{stderr}", args.join(" "));
}

#[test]
fn python_tests() {
    passes("python", "client-python", &["-m", "pytest"]);
}

#[test]
fn python_types() {
    let cache = root().join("target/servers/mypy");
    passes("python", "client-python", &["-m", "mypy", "--cache-dir", cache.to_str().unwrap()]);
}

#[test]
fn node_tests() {
    passes("node", "node", &["--test", "index.test.js"]);
}
