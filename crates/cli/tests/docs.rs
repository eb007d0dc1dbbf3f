//! The commands in the documentation do what the documentation says.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::path::{Path, PathBuf};

use support::terminal::{Terminal, keeping_times};
use support::{root, shell};

fn pages() -> Vec<PathBuf> {
    fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                markdown(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    let mut found = vec![root().join("README.md")];
    for folder in ["docs", "deploy"] {
        markdown(&root().join(folder), &mut found);
    }
    found.sort();
    found
}

/// The page with each command of a ```` ```console ```` block followed by what it prints now.
///
/// A command begins with `$ `, its further lines with `> `; blocks without one are left alone. All
/// of a page are run in one terminal: a service that is started there is there for those that
/// follow.
fn rerun(text: &str, count: &mut usize) -> String {
    let mut terminal = Terminal::default();
    let mut page = String::new();
    let mut lines = text.lines().peekable();
    let mut inside = false;
    while let Some(line) = lines.next() {
        page.push_str(&format!("{line}\n"));
        if line.starts_with("```") {
            inside = line == "```console";
        }
        let Some(first) = line.strip_prefix("$ ").filter(|_| inside) else {
            continue;
        };
        let mut command = first.to_owned();
        while let Some(more) = lines.peek().and_then(|line| line.strip_prefix("> ")) {
            command.push_str(&format!("\n{more}"));
            page.push_str(&format!("> {more}\n"));
            lines.next();
        }
        let ends = |line: &&str| line.starts_with("```") || line.starts_with("$ ");
        let said: Vec<&str> = std::iter::from_fn(|| lines.next_if(|line| !ends(line))).collect();
        page.push_str(&keeping_times(&said, &terminal.run(&command)));
        *count += 1;
    }
    page
}

#[test]
fn every_command_prints_what_its_page_says() {
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let now = rerun(&text, &mut count);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&page, &now).unwrap();
        }
        let differs = || text.lines().zip(now.lines()).find(|(said, says)| said != says);
        let updated = std::env::var_os("UPDATE").is_some();
        assert!(
            text == now || updated,
            "{}: a command prints something else: {:#?}; with UPDATE=1 the page is written anew",
            page.display(),
            differs()
        );
    }
    assert!(count > 10, "only {count} commands were found");
}

#[test]
fn the_pictures_are_what_the_code_draws() {
    let folder = root().join("docs/pictures");
    let scratch = std::env::temp_dir().join(format!("sluicegate-pictures-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        let script = entry.path();
        if script.extension().is_none_or(|ending| ending != "txt") {
            continue;
        }
        let drawn = scratch.join("picture.svg");
        let command =
            format!("sluicegate try --script '{}' --svg '{}'", script.display(), drawn.display());
        let run = shell(&command, &root());
        assert_eq!(run.code, 0, "{}: {}", script.display(), run.stderr);
        let drawn = std::fs::read_to_string(drawn).unwrap();
        let picture = script.with_extension("svg");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&picture, &drawn).unwrap();
        }
        let on_disk = std::fs::read_to_string(&picture).unwrap_or_default();
        assert!(on_disk == drawn, "{} is old: run the tests with UPDATE=1", picture.display());
        count += 1;
    }
    std::fs::remove_dir_all(&scratch).unwrap();
    assert!(count >= 9, "only {count} pictures");
}

/// The flash sale of the guide to `compare`.
#[test]
fn the_picture_of_compared_algorithms_is_what_the_code_draws() {
    let picture = root().join("docs/pictures/compare.svg");
    let scratch = std::env::temp_dir().join(format!("sluicegate-compare-{}", std::process::id()));
    let command = format!(
        "sluicegate compare --traffic 'flash_sale: {{ clients: 50, rate: 10/s }}' --rate 100/m --svg '{}'",
        scratch.display()
    );
    let run = shell(&command, &root());
    assert_eq!(run.code, 0, "{}", run.stderr);
    let drawn = std::fs::read_to_string(&scratch).unwrap();
    std::fs::remove_file(&scratch).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&picture, &drawn).unwrap();
    }
    let on_disk = std::fs::read_to_string(&picture).unwrap_or_default();
    assert!(on_disk == drawn, "{} is old: run the tests with UPDATE=1", picture.display());
}
