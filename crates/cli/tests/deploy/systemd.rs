//! The systemd unit.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::service::Service;
use crate::support::{Folder, server};
use crate::tools::{file, rules, stdout};

const UNIT: &str = "systemd/sluicegate.service";
/// Exposure level in tenths, of 100. README.md states the level that was measured.
const EXPOSURE_MAX: &str = "12";

/// The values of a key of the unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// A root file system with the unit, the units of systemd and the programs that the unit names.
fn install(unit: &str) -> Folder {
    let root = Folder::new();
    root.file("etc/systemd/system/sluicegate.service", unit);
    for program in ["usr/local/bin/sluicegate", "bin/kill"] {
        let path = root.file(program, "#!/bin/sh\n");
        stdout(Command::new("chmod").args(["+x", &path]));
    }
    let units = root.file("usr/lib/systemd/.new", "");
    let units = Path::new(&units).with_file_name("system");
    stdout(Command::new("cp").args(["-r", "/lib/systemd/system"]).arg(units));
    symlink("usr/lib", format!("{}/lib", root.path())).unwrap();
    root
}

/// Standard output and error of `systemd-analyze verify`, which must both be empty.
fn verify(unit: &str) -> String {
    let root = install(unit);
    let mut command = Command::new(server("systemd-analyze"));
    command.args(["verify", "--man=no", &format!("--root={}", root.path())]);
    let output = command.arg("/etc/systemd/system/sluicegate.service").output().unwrap();
    let warnings = [output.stdout, output.stderr].concat();
    format!(
        "{}{}",
        if output.status.success() { "" } else { "failed: " },
        String::from_utf8_lossy(&warnings)
    )
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = file(UNIT);
    assert_eq!(verify(&unit), "");
    for (from, to) in
        [("ProtectHome=", "ProtectHouse="), ("bin/sluicegate serve", "bin/sluice serve")]
    {
        assert_ne!(verify(&unit.replace(from, to)), "", "{to}");
    }
}

#[test]
fn the_unit_is_hardened() {
    let root = install(&file(UNIT));
    let mut command = Command::new(server("systemd-analyze"));
    command.args(["security", "--offline=true", "--no-pager", "--threshold", EXPOSURE_MAX]);
    command.arg(format!("{}/etc/systemd/system/sluicegate.service", root.path()));
    let report = stdout(&mut command);
    assert!(report.contains("Overall exposure level"), "{report}");
}

#[test]
fn the_command_of_the_unit_starts_and_reloads() {
    let unit = file(UNIT);
    let [command] = values(&unit, "ExecStart").try_into().unwrap();
    let folder = Folder::new();
    let rules = rules(&folder, "shop.yaml", &file("compose/rules/shop.yaml"));
    let command = command.replace("/etc/sluicegate/rules", &rules);
    let mut words = command.split(' ');
    assert_eq!([words.next(), words.next()], [Some("/usr/local/bin/sluicegate"), Some("serve")]);
    let environment: Vec<(&str, &str)> =
        values(&unit, "Environment").iter().map(|line| line.split_once('=').unwrap()).collect();
    let mut service = Service::with(&words.collect::<Vec<_>>(), &environment);
    assert_eq!(service.admin("/ready").status, 200);
    assert_eq!(values(&unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    service.signal("HUP");
    service.says("rules reloaded");
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));
}
