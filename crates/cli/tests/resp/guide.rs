//! The Python of the guide, as redis-py runs it.

use std::process::Command;

use crate::support::service::Service;
use crate::support::{Folder, root, server};

/// The blocks of Python on the page, one behind the other, and what they say that they print.
fn page() -> (String, String) {
    let page = std::fs::read_to_string(root().join("docs/guide/redis-clients.md")).unwrap();
    let mut blocks = page.split("```python\n").skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap().to_owned();
    assert!(blocks.next().is_none(), "one block, so that it can be pasted");
    let printed = page.split("It prints:\n\n```text\n").nth(1).unwrap();
    (block, printed.split("```").next().unwrap().to_owned())
}

#[test]
fn the_python_of_the_guide_prints_what_it_says() {
    let folder = Folder::new();
    let rules = root().join("docs/examples/service.yaml");
    let args = ["--rules", rules.to_str().unwrap(), "--resp", "127.0.0.1:0"];
    let service = Service::with(&args, &[]);
    let (script, printed) = page();
    assert!(script.contains("port=6380"));
    let port = service.resp.rsplit_once(':').unwrap().1;
    let script = folder.file("limits.py", &script.replace("port=6380", &format!("port={port}")));
    let output = Command::new(server("redis-python")).arg(script).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), printed);
}
