//! `deploy/README.md`: its files exist, its versions are current, and its Helm commands render.

use crate::support::root;
use crate::tools::{file, helm, stdout, yaml};

/// The commands of the page's shell blocks; continued lines are joined.
fn commands() -> Vec<String> {
    let page = file("README.md");
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<String>();
    joined.lines().map(str::to_owned).collect()
}

/// Words of a command without its comment, and without quotes and escapes of the shell.
fn words(command: &str) -> Vec<String> {
    let command = command.split(" #").next().unwrap();
    command.split_whitespace().map(|word| word.replace('\'', "")).collect()
}

#[test]
fn every_file_that_the_page_names_exists() {
    let mut count = 0;
    for command in commands() {
        for word in words(&command).iter().filter(|word| word.starts_with("deploy/")) {
            assert!(root().join(word).exists(), "{word}: {command}");
            count += 1;
        }
    }
    assert!(count >= 5, "only {count} files were found");
}

#[test]
fn the_kit_is_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = &yaml(&file("helm/sluicegate/Chart.yaml"))[0];
    assert_eq!([&chart["version"], &chart["appVersion"]], [version, version]);
    let compose = &yaml(&file("compose/compose.yaml"))[0];
    let image = format!("sluicegate:{version}");
    assert_eq!(compose["services"]["sluicegate"]["image"], image);
    let compose = &yaml(&file("compose/gateway.yaml"))[0];
    assert_eq!(compose["services"]["gateway"]["image"], image);
    let page = file("README.md");
    assert_eq!(page.matches(&image).count(), page.matches("/sluicegate:").count());
}

#[test]
fn the_helm_commands_of_the_page_render() {
    let mut count = 0;
    for command in commands().iter().filter(|command| command.starts_with("helm ")) {
        let words = words(command);
        assert!(["install", "upgrade"].contains(&words[1].as_str()), "{command}");
        let rest = words[2..].iter().filter(|word| *word != "--reuse-values");
        stdout(helm(&["template"]).args(rest));
        count += 1;
    }
    assert!(count >= 2, "only {count} commands were found");
}
