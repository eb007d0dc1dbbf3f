//! The image: its root file system, built from the Dockerfile's last stage and run by chroot.
//!
//! The debug binary stands for the static one, so the root also has the libraries that it needs.
//! Nothing in the root belongs to the user of the image, and nothing there may change.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use sluicegate_testkit::redis::{Options, Single, Tls};
use sluicegate_testkit::until;

use crate::support::http::get;
use crate::support::service::Service;
use crate::support::{Folder, root, server};
use crate::tools::{failure, file, stdout};

/// The last stage of the Dockerfile.
#[derive(Default)]
struct Image {
    base: String,
    copies: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    user: String,
    entrypoint: Vec<String>,
    command: Vec<String>,
}

fn image() -> Image {
    let mut image = Image::default();
    for line in file("Dockerfile").replace("\\\n", "").lines() {
        let Some((instruction, rest)) = line.split_once(' ') else { continue };
        let words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
        match instruction {
            "FROM" => image = Image { base: words[0].clone(), ..Image::default() },
            "COPY" if words[0] == "--from=build" => {
                image.copies.push((words[1].clone(), words[2].clone()));
            }
            "ENV" => image.environment.extend(words.iter().map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                (name.to_owned(), value.to_owned())
            })),
            "USER" => image.user = rest.to_owned(),
            "ENTRYPOINT" => image.entrypoint = serde_json::from_str(rest).unwrap(),
            "CMD" => image.command = serde_json::from_str(rest).unwrap(),
            "#" | "EXPOSE" | "RUN" | "WORKDIR" | "COPY" => {}
            other => panic!("the test does not know the instruction `{other}`"),
        }
    }
    image
}

impl Image {
    /// The root file system; `authority` is the text that stands for the authorities of Debian.
    fn build(&self, authority: &str) -> Folder {
        let folder = Folder::new();
        let copy = |from: &Path, to: &str| {
            let to = format!("{}{to}", folder.path());
            std::fs::create_dir_all(Path::new(&to).parent().unwrap()).unwrap();
            std::fs::copy(from, to).unwrap();
        };
        let binary = Path::new(env!("CARGO_BIN_EXE_sluicegate"));
        for (from, to) in &self.copies {
            match from.as_str() {
                "/out/sluicegate" => copy(binary, to),
                "/etc/ssl/certs/ca-certificates.crt" => drop(folder.file(&to[1..], authority)),
                other => panic!("the test does not know the file `{other}`"),
            }
        }
        let libraries = stdout(Command::new("ldd").arg(binary));
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            copy(Path::new(library), library);
        }
        folder
    }

    /// The entry point in that root, as the user of the image. A caller that is not root is mapped
    /// to another user by a user namespace.
    fn enter(&self, root: &Folder) -> Command {
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command =
            Command::new(if is_root { "/usr/sbin/chroot" } else { "/usr/bin/unshare" });
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        if is_root {
            command.arg(format!("--userspec={}", self.user));
        } else {
            command.args(["--user", "--map-root-user", "/usr/sbin/chroot"]);
        }
        command.arg(root.path()).args(&self.entrypoint);
        command
    }
}

/// Every file below a folder, with its size and the time of its last change.
fn listing(folder: &Path, files: &mut BTreeMap<PathBuf, (u64, SystemTime)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        files.insert(entry.path(), (metadata.len(), metadata.modified().unwrap()));
        if metadata.is_dir() {
            listing(&entry.path(), files);
        }
    }
}

fn files(root: &Folder) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut files = BTreeMap::new();
    listing(Path::new(root.path()), &mut files);
    files
}

#[test]
fn the_image_runs_without_root_and_writes_nothing() {
    let image = image();
    assert_eq!((image.base.as_str(), image.user.as_str()), ("scratch", "65532:65532"));
    assert_eq!(image.command, ["serve"]);
    let redis = Single::with(Options { tls: Some(Tls::Server), ..Options::default() });
    let authority = std::fs::read_to_string(&redis.tls_files().ca).unwrap();
    let root = image.build(&authority);
    let rules = image.environment.iter().find(|(name, _)| name == "SLUICEGATE_RULES").unwrap();
    root.file(&format!("{}/shop.yaml", &rules.1[1..]), &file("compose/rules/shop.yaml"));
    let before = files(&root);

    // The certificate of this Redis is valid because of the authorities in the image.
    let store = format!("rediss://127.0.0.1:{}", redis.port());
    let mut service = Service::run(image.enter(&root), &["--store", &store], &[]);
    let ready = || (service.admin("/ready").status == 200).then_some(());
    until("the service in the image is ready", ready);
    assert_eq!(get(&service.http, "/healthcheck", &[]).status, 200);
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
    assert!(!status.contains("Uid:\t0\t"), "{status}");
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));
    assert_eq!(files(&root), before);
}

#[test]
fn an_image_without_rules_refuses_to_start() {
    let image = image();
    let root = image.build("");
    let errors = failure(image.enter(&root).args(&image.command));
    assert!(errors.contains("/etc/sluicegate/rules"), "{errors}");
}

#[test]
fn the_linter_of_dockerfiles_finds_nothing() {
    const PROGRAM: &str =
        "import os, sys; os.execv(sys.prefix + '/bin/hadolint', ['hadolint', *sys.argv[1:]])";
    let lint = |text: &str| {
        let folder = Folder::new();
        let path = folder.file("Dockerfile", text);
        let mut command = Command::new(server("schemas-python"));
        // Packages of the build stage are not pinned: Debian removes old versions.
        command.args(["-c", PROGRAM, "--ignore", "DL3008", &path]).output().unwrap()
    };
    let text = file("Dockerfile");
    let output = lint(&text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!lint(&text.replace("WORKDIR /src", "WORKDIR src")).status.success());
}

#[test]
fn the_build_stage_uses_what_the_repository_has() {
    let text = file("Dockerfile");
    let stage = text.split("FROM scratch").next().unwrap();
    let script = root().join("scripts/release");
    assert!(stage.contains("./scripts/release") && script.exists());
    let script = std::fs::read_to_string(script).unwrap();
    assert!(stage.contains("target/dist/sluicegate") && script.contains("target/dist/sluicegate"));
    for line in file("Dockerfile.dockerignore").lines() {
        assert!([".git", "target", "**/target"].contains(&line), "{line} is left out of the build");
    }
}
