//! The guides leave nothing out, and what they show is right. `docs.rs` runs their commands,
//! `envoy/guide.rs` their configuration of Envoy.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use support::process::Process;
use support::{Folder, root, sluicegate};

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn every_flag_of_serve_is_in_the_guide() {
    let guide = page("docs/guide/service.md");
    let help = sluicegate(&["serve", "--help"], "").stdout;
    let words = help.split(|c: char| !c.is_ascii_lowercase() && c != '-');
    let flags: BTreeSet<&str> = words.filter(|word| word.starts_with("--")).collect();
    for flag in flags.iter().filter(|flag| !matches!(**flag, "--help" | "--version")) {
        let row = [format!("| `{flag}`"), format!("| `{flag} ")];
        let told = row.iter().any(|row| guide.contains(row));
        assert!(told, "`{flag}` has no row in docs/guide/service.md");
    }
    assert!(flags.len() > 10, "only {flags:?} were found");
}

/// The names stand in the source as texts, so that is where they are looked for.
#[test]
fn every_variable_is_in_the_guide() {
    let guide = page("docs/guide/service.md");
    let mut count = 0;
    let settings = root().join("crates/server/src/settings");
    let folders = [settings.join("store"), settings];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten());
    for file in files.map(|file| file.path()).filter(|path| path.is_file()) {
        let source = std::fs::read_to_string(&file).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap().lines();
        let code = code.filter(|line| !line.trim_start().starts_with("//"));
        for name in code.flat_map(|line| line.split('"').skip(1).step_by(2)) {
            let name_of_one =
                |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || "_*".contains(c);
            let is_name = name.contains('_') || ["HOST", "PORT"].contains(&name);
            let is_part = name.starts_with('_') || name.ends_with('_') || name == "LIMIT_REQUEST";
            if !is_name || is_part || !name.chars().all(name_of_one) {
                continue;
            }
            let told = guide.contains(&format!("`{name}"));
            assert!(told, "`{name}` of {} is not in docs/guide/service.md", file.display());
            count += 1;
        }
    }
    assert!(count > 80, "only {count} names were found");
}

/// A user of Redis who may do what the guide says may do all that scripts do.
#[test]
fn every_command_of_a_script_is_in_the_guide() {
    let guide = page("docs/guide/redis.md");
    let rule =
        guide.split("ACL SETUSER sluicegate on").nth(1).unwrap().split("```").next().unwrap();
    let allowed: BTreeSet<&str> = rule.split(['+', ' ', '\n', '\'']).collect();
    let source = root().join("crates/redis/src");
    let scripts = ["script/lua", "store/lua"].iter().flat_map(|folder| {
        std::fs::read_dir(source.join(folder)).unwrap().map(|file| file.unwrap().path())
    });
    let mut files: Vec<_> =
        scripts.filter(|path| path.extension() == Some("lua".as_ref())).collect();
    files.push(source.join("script/rule.rs"));
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for part in ["call('", "in_portions('"].iter().flat_map(|mark| text.split(mark).skip(1)) {
            let command = part.split('\'').next().unwrap().to_ascii_lowercase();
            assert!(
                allowed.contains(&*command),
                "`+{command}` of {} is not in the guide",
                file.display()
            );
            count += 1;
        }
    }
    assert!(count > 30, "only {count} commands were found");
}

#[test]
fn every_command_for_deferred_requests_is_in_the_guides() {
    let pages = ["docs/guide/gateway-deferred.md", "docs/guide/redis.md"].map(page).concat();
    let allowed: BTreeSet<&str> = pages.split(['+', ' ', '\n', '\'', '`']).collect();
    let mut count = 0;
    for file in std::fs::read_dir(root().join("crates/redis/src/durable_queue/lua")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for part in text.split("call('").skip(1) {
            let command = part.split('\'').next().unwrap().to_ascii_lowercase();
            assert!(allowed.contains(&*command), "`+{command}` is in no guide");
            count += 1;
        }
    }
    assert!(count > 30, "only {count} commands were found");
}

#[test]
fn the_line_to_paste_is_the_same_in_the_readme_and_in_the_greeting() {
    let readme = page("README.md");
    let pasted = readme.lines().find(|line| line.starts_with("curl -i http://127.0.0.1:8080/"));
    let mut serve = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    serve.arg("serve");
    for name in ["HTTP", "GRPC", "ADMIN"] {
        serve.env(format!("SLUICEGATE_{name}"), "127.0.0.1:0");
    }
    let mut service = Process::start("sluicegate", &mut serve);
    let http = service.says("http   ").split_whitespace().nth(1).unwrap().to_owned();
    let greeting = service.says("curl -i ").trim().replace(&http, "127.0.0.1:8080");
    assert_eq!(pasted, Some(greeting.as_str()));
}

/// Blocks of rules begin with a domain or a descriptor; others are for Envoy, Prometheus,
/// Kubernetes or Limitador.
#[test]
fn every_rule_of_the_guides_is_valid() {
    let folder = Folder::new();
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs/guide")).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        for block in text.split("```yaml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let rules = match block {
                _ if block.starts_with("domain:") => block.to_owned(),
                _ if block.starts_with("- key:") => format!("domain: guide\ndescriptors:\n{block}"),
                _ => continue,
            };
            let path = folder.file("block.yaml", &rules);
            let run = sluicegate(&["check", "--strict", &path], "");
            assert_eq!(run.code, 0, "{}: {}\n{rules}", entry.path().display(), run.stderr);
            count += 1;
        }
    }
    assert!(count > 10, "only {count} blocks were found");
}

/// What a guide shows of a file in `docs/examples` is that file, its comments aside.
#[test]
fn examples_are_shown_as_they_are() {
    let bare = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split(" #").next().unwrap().trim_end().to_owned());
        lines.filter(|line| !line.is_empty() && !line.trim_start().starts_with('#')).collect()
    };
    for (guide, example) in [
        ("service", "service"),
        ("migrating", "limitador"),
        ("clients", "clients"),
        ("llm-budgets", "llm"),
    ] {
        let text = page(&format!("docs/guide/{guide}.md"));
        let is_rules = |block: &&str| {
            ["domain: shop", "domain: llm"].iter().any(|domain| block.starts_with(domain))
        };
        let shown = text.split("```yaml\n").find(is_rules).unwrap();
        let file = page(&format!("docs/examples/{example}.yaml"));
        assert_eq!(bare(shown.split("```").next().unwrap()), bare(&file), "{guide}");
    }
}
