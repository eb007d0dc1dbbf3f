use super::*;

use std::fs::{create_dir, create_dir_all, remove_file, rename, write};

/// A temporary directory, removed on drop.
struct WatchedFolder(PathBuf);

impl WatchedFolder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("sluicegate-watch-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn watch(&self) -> Watch {
        Watch::new([&self.0], ReadOptions::default())
    }
}

impl Drop for WatchedFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Formats the result of a poll, with the texts of a change.
fn describe(result: PollResult) -> String {
    match result {
        PollResult::Same => "same".to_owned(),
        PollResult::Changing => "changing".to_owned(),
        PollResult::Changed(Ok(sources)) => {
            let texts: Vec<&str> = sources.iter().map(|source| &*source.text).collect();
            format!("changed: {}", texts.join("+"))
        }
        PollResult::Changed(Err(error)) => {
            let message = error.to_string();
            format!("broken: {}", message.rsplit('/').next().unwrap())
        }
    }
}

fn looks<const N: usize>(watch: &mut Watch) -> [String; N] {
    std::array::from_fn(|_| describe(watch.poll()))
}

#[test]
fn a_change_is_read_when_it_has_come_to_rest() {
    let folder = WatchedFolder::new("rest");
    write(folder.at("a.yaml"), "one").unwrap();
    let mut watch = folder.watch();
    assert_eq!(watch.read().unwrap()[0].text, "one");
    assert_eq!(looks(&mut watch), ["same", "same"]);
    write(folder.at("a.yaml"), "two more").unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: two more", "same", "same"]);
}

#[test]
fn a_file_that_keeps_changing_is_left_alone() {
    let folder = WatchedFolder::new("busy");
    write(folder.at("a.yaml"), "one").unwrap();
    let mut watch = folder.watch();
    watch.read().unwrap();
    for length in 10..20 {
        write(folder.at("a.yaml"), "x".repeat(length)).unwrap();
        assert_eq!(describe(watch.poll()), "changing");
    }
    assert_eq!(describe(watch.poll()), format!("changed: {}", "x".repeat(19)));
}

#[test]
fn a_touch_is_no_change() {
    let folder = WatchedFolder::new("touch");
    write(folder.at("a.yaml"), "one").unwrap();
    let mut watch = folder.watch();
    watch.read().unwrap();
    // Another file with the same text in its place.
    write(folder.at(".new"), "one").unwrap();
    rename(folder.at(".new"), folder.at("a.yaml")).unwrap();
    assert_eq!(looks(&mut watch), ["changing", "same", "same"]);
}

#[test]
fn a_second_write_in_one_tick_is_seen_though_the_file_looks_the_same() {
    let folder = WatchedFolder::new("tick");
    write(folder.at("a.yaml"), "one").unwrap();
    let mut watch = folder.watch();
    watch.read().unwrap();
    write(folder.at("a.yaml"), "two").unwrap();
    // As if the file system's clock had not advanced.
    watch.read = watch.stamps();
    assert_eq!(looks(&mut watch), ["changed: two", "same"]);
}

#[test]
fn files_that_come_and_go_are_changes() {
    let folder = WatchedFolder::new("come");
    write(folder.at("a.yaml"), "one").unwrap();
    let mut watch = folder.watch();
    watch.read().unwrap();
    write(folder.at("b.yaml"), "two").unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: one+two"]);
    remove_file(folder.at("a.yaml")).unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: two"]);
    rename(folder.at("b.yaml"), folder.at("c.yaml")).unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: two"], "it has another name");
}

#[test]
fn what_cannot_be_read_is_told_once_and_so_is_its_return() {
    let folder = WatchedFolder::new("gone");
    write(folder.at("a.yaml"), "one").unwrap();
    let mut watch = Watch::new([folder.at("a.yaml")], ReadOptions::default());
    watch.read().unwrap();
    remove_file(folder.at("a.yaml")).unwrap();
    let gone = "broken: a.yaml: there is no such file; check the path";
    assert_eq!(looks(&mut watch), ["changing", gone, "same", "same"]);
    write(folder.at("a.yaml"), "one").unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: one", "same"]);
}

/// As Kubernetes mounts a ConfigMap: links to files behind a link to a directory, which is
/// exchanged.
#[cfg(unix)]
#[test]
fn the_exchange_of_a_config_map_is_one_change() {
    use std::os::unix::fs::symlink;

    let folder = WatchedFolder::new("configmap");
    let version = |name: &str, text: &str| {
        create_dir(folder.at(name)).unwrap();
        write(folder.at(name).join("rules.yaml"), text).unwrap();
    };
    version("..2026_11_15_01", "one");
    symlink("..2026_11_15_01", folder.at("..data")).unwrap();
    symlink("..data/rules.yaml", folder.at("rules.yaml")).unwrap();
    let mut watch = folder.watch();
    assert_eq!(watch.read().unwrap().len(), 1);
    assert_eq!(looks(&mut watch), ["same", "same"]);

    version("..2026_11_15_02", "two");
    assert_eq!(describe(watch.poll()), "same", "nobody leads there yet");
    symlink("..2026_11_15_02", folder.at("..data_tmp")).unwrap();
    rename(folder.at("..data_tmp"), folder.at("..data")).unwrap();
    fs::remove_dir_all(folder.at("..2026_11_15_01")).unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: two", "same"]);
}

/// As envoyproxy/ratelimit's runtime directory: the root itself is a link that is exchanged.
#[cfg(unix)]
#[test]
fn the_exchange_of_the_directory_itself_is_one_change() {
    use std::os::unix::fs::symlink;

    let folder = WatchedFolder::new("root");
    for (name, text) in [("v1", "one"), ("v2", "two")] {
        create_dir(folder.at(name)).unwrap();
        write(folder.at(name).join("rules.yaml"), text).unwrap();
    }
    symlink("v1", folder.at("current")).unwrap();
    let mut watch = Watch::new([folder.at("current")], ReadOptions::default());
    watch.read().unwrap();
    symlink("v2", folder.at("next")).unwrap();
    rename(folder.at("next"), folder.at("current")).unwrap();
    assert_eq!(looks(&mut watch), ["changing", "changed: two", "same"]);
}
