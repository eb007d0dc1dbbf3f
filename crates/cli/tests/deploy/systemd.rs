//! The systemd units, of the service and of the gateway.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::gateway::Gateway;
use crate::support::service::Service;
use crate::support::{Folder, root, server};
use crate::tools::{file, rules, stdout};

const UNIT: &str = "systemd/sluicegate.service";
const GATEWAY: &str = "systemd/sluicegate-gateway.service";
/// Units, with their exposure level in tenths, of 100. README.md states the measured levels.
const EXPOSURE_MAX: [(&str, &str); 2] = [(UNIT, "12"), (GATEWAY, "15")];

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
fn systemd_accepts_the_units() {
    for unit in [UNIT, GATEWAY].map(file) {
        assert_eq!(verify(&unit), "");
        for (from, to) in [
            ("ProtectHome=", "ProtectHouse="),
            ("=/usr/local/bin/sluicegate ", "=/usr/bin/sluice "),
        ] {
            assert!(unit.contains(from), "{from}");
            assert_ne!(verify(&unit.replace(from, to)), "", "{to}");
        }
    }
}

#[test]
fn the_units_are_hardened() {
    for (unit, threshold) in EXPOSURE_MAX {
        let root = install(&file(unit));
        let mut command = Command::new(server("systemd-analyze"));
        command.args(["security", "--offline=true", "--no-pager", "--threshold", threshold]);
        command.arg(format!("{}/etc/systemd/system/sluicegate.service", root.path()));
        let report = stdout(&mut command);
        assert!(report.contains("Overall exposure level"), "{report}");
    }
}

#[test]
fn the_gateway_has_the_sandbox_of_the_service_and_may_bind_low_ports() {
    const KEYS: [&str; 3] = ["CapabilityBoundingSet=", "AmbientCapabilities=", "PrivateUsers="];
    let (service, gateway) = (file(UNIT), file(GATEWAY));
    let sandbox = |unit: &str| {
        let (_, lines) = unit.split_once("NoNewPrivileges").unwrap();
        let is_common = |line: &&str| !KEYS.iter().any(|key| line.starts_with(key));
        lines.lines().filter(is_common).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(sandbox(&service), sandbox(&gateway));
    for key in ["CapabilityBoundingSet", "AmbientCapabilities"] {
        assert_eq!(values(&gateway, key), ["CAP_NET_BIND_SERVICE"]);
    }
    // In a user namespace of its own, a process has no capability on ports of the host.
    assert!(values(&gateway, "PrivateUsers").is_empty());
    let [state] = values(&gateway, "StateDirectory").try_into().unwrap();
    assert!(gateway.contains(&format!("/var/lib/{state}/acme")));
}

#[test]
fn the_command_of_the_gateway_starts_and_reloads() {
    let unit = file(GATEWAY);
    let [command] = values(&unit, "ExecStart").try_into().unwrap();
    let config = root().join("docs/examples/gateway.yaml");
    let command = command.replace("/etc/sluicegate/gateway.yaml", config.to_str().unwrap());
    let mut words = command.split(' ');
    assert_eq!([words.next(), words.next()], [Some("/usr/local/bin/sluicegate"), Some("gateway")]);
    let environment: Vec<(&str, &str)> =
        values(&unit, "Environment").iter().map(|line| line.split_once('=').unwrap()).collect();
    let mut gateway = Gateway::with(&words.collect::<Vec<_>>(), &environment);
    assert_eq!(gateway.get("/health").body, "ok");
    assert_eq!(values(&unit, "ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    gateway.signal("HUP");
    gateway.process.says("reloaded");
    gateway.signal("TERM");
    assert_eq!(gateway.process.ends(), Some(0));
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
