//! Programs and files of the deploy kit.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Folder, root, server};

/// A file of `deploy/`.
pub fn file(path: &str) -> String {
    let path = root().join("deploy").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The standard output of a command, which must succeed and print no warnings.
pub fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, errors] = texts(&output);
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}\n{out}");
    out
}

/// The standard error of a command, which must fail.
pub fn failure(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, errors] = texts(&output);
    assert!(!output.status.success(), "{command:?} succeeded: {out}");
    errors
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// The documents of a YAML text.
pub fn yaml(text: &str) -> Vec<Value> {
    const PROGRAM: &str =
        "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let mut python = Command::new(server("schemas-python"));
    python.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "not YAML:\n{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Helm, in the root of the repository.
pub fn helm(args: &[&str]) -> Command {
    let mut command = Command::new(server("helm"));
    command.args(args).current_dir(root());
    // Without access to a cluster, and without plugins of the user.
    command.env("KUBECONFIG", "/dev/null").env("HELM_PLUGINS", "/dev/null");
    command
}

/// Writes the rules of a file into a folder of their own; its path.
pub fn rules(folder: &Folder, name: &str, text: &str) -> String {
    folder.file(&format!("rules/{name}"), text);
    format!("{}/rules", folder.path())
}

/// Strings of a JSON array.
pub fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}
