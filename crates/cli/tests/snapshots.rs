//! Snapshots of `sluicegate serve` that are damaged, locked, or written while the process is
//! killed.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use support::service::Service;
use support::{Folder, Run, sluicegate};

/// No window ends while a test runs.
const TWO_A_YEAR: &str = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 2 } }]\n";

struct Bed {
    folder: Folder,
    rules: String,
    snapshot: String,
}

impl Bed {
    /// A folder with a snapshot in which alice has used 1 of 2.
    fn new() -> (Self, Vec<u8>) {
        let folder = Folder::new();
        let rules = folder.file("rules.yaml", TWO_A_YEAR);
        let snapshot = folder.file("state/counts", "");
        fs::remove_file(&snapshot).unwrap();
        let bed = Self { folder, rules, snapshot };
        let mut service = bed.start(&[]);
        assert_eq!(service.check("shop", "alice"), 200);
        end(&mut service);
        let intact = fs::read(&bed.snapshot).unwrap();
        (bed, intact)
    }

    fn start(&self, args: &[&str]) -> Service {
        let mut all = vec!["--rules", &self.rules, "--snapshot", &self.snapshot];
        all.extend(args);
        Service::with(&all, &[])
    }

    fn fails(&self, path: &str) -> Run {
        let args = ["--rules", &self.rules, "--snapshot", path, "--http", "127.0.0.1:0"];
        let args = [&["serve", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"], &args[..]];
        sluicegate(&args.concat(), "")
    }

    fn names(&self) -> Vec<String> {
        let folder = Path::new(&self.snapshot).parent().unwrap();
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap())).collect();
        names.sort();
        names
    }

    /// The contents of the files that were moved aside.
    fn set_aside(&self) -> Vec<Vec<u8>> {
        let folder = Path::new(&self.snapshot).parent().unwrap();
        let names = self.names().into_iter().filter(|name| name.starts_with("counts.damaged-"));
        names.map(|name| fs::read(folder.join(name)).unwrap()).collect()
    }
}

fn end(service: &mut Service) {
    service.signal("TERM");
    assert_eq!(service.ends(), Some(0));
}

fn metric(service: &Service, name: &str) -> u64 {
    let page = service.admin("/metrics").body;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn a_snapshot_that_is_not_understood_is_moved_aside_and_reported() {
    let (bed, intact) = Bed::new();
    let flipped = |place: usize| {
        let mut bytes = intact.clone();
        bytes[place] ^= 1;
        bytes
    };
    let half = intact.len() / 2;
    let damaged = [
        ("empty", Vec::new()),
        ("cut in the magic", intact[..5].to_vec()),
        ("cut in the header", intact[..20].to_vec()),
        ("cut in the middle", intact[..half].to_vec()),
        ("cut at the end", intact[..intact.len() - 1].to_vec()),
        ("a newer version", flipped(8)),
        ("a bit of the header", flipped(13)),
        ("a bit of the middle", flipped(half)),
        ("a bit of the checksum", flipped(intact.len() - 1)),
        ("a byte too many", [&intact[..], b"\0"].concat()),
    ];
    for (place, (what, bytes)) in damaged.iter().enumerate() {
        fs::write(&bed.snapshot, bytes).unwrap();
        let mut service = bed.start(&[]);
        let line = service.has_said("snapshot not restored: counters start at zero");
        assert!(line.contains("ERROR") && line.contains(".damaged-"), "{what}: {line}");
        assert_eq!(metric(&service, "sluicegate_snapshot_restore_errors_total"), 1, "{what}");
        assert_eq!(service.check("shop", "alice"), 200);
        end(&mut service);
        let set_aside = bed.set_aside();
        assert_eq!(set_aside.len(), place + 1, "{what}: none replaces another: {:?}", bed.names());
        assert!(set_aside.contains(bytes), "{what}: it is there as it was");
        let mut service = bed.start(&[]);
        service.has_said("snapshot restored");
        assert_eq!(metric(&service, "sluicegate_snapshot_restore_errors_total"), 0, "{what}");
        end(&mut service);
    }
}

#[test]
fn a_missing_folder_is_an_error_and_a_missing_file_is_not() {
    let (bed, _) = Bed::new();
    let run = bed.fails(&format!("{}/no/such/folder/counts", bed.folder.path()));
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("no/such/folder/counts: its folder does not exist"),
        "{}",
        run.stderr
    );
    fs::remove_file(&bed.snapshot).unwrap();
    let mut service = bed.start(&[]);
    assert_eq!(metric(&service, "sluicegate_snapshot_restore_errors_total"), 0);
    end(&mut service);
}

#[test]
fn of_two_processes_the_second_does_not_start() {
    let (bed, _) = Bed::new();
    let mut first = bed.start(&[]);
    let run = bed.fails(&bed.snapshot);
    assert_eq!(run.code, 2, "{}", run.stderr);
    for part in [&bed.snapshot, "another process", "name another file"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    assert_eq!(first.check("shop", "alice"), 200, "the first is not affected");
    end(&mut first);
    let mut second = bed.start(&[]);
    assert_eq!(second.check("shop", "alice"), 429, "its counts are there");
    // A process that is killed leaves no lock behind.
    second.kill();
    let mut third = bed.start(&[]);
    third.has_said("snapshot restored");
}

#[test]
fn a_process_that_is_killed_while_it_saves_leaves_a_snapshot_that_can_be_read() {
    let (bed, _) = Bed::new();
    for round in 0..8 {
        let mut service = bed.start(&["--snapshot-every", "1ms"]);
        service.has_said("snapshot restored");
        for user in 0..20 {
            assert_eq!(service.check("shop", &format!("{round}-{user}")), 200);
        }
        for _ in 0..=round {
            service.says("snapshot saved");
        }
        service.kill();
        assert!(bed.set_aside().is_empty(), "{:?}", bed.names());
    }
    let mut service = bed.start(&[]);
    service.has_said("snapshot restored");
    assert_eq!([(); 2].map(|()| service.check("shop", "alice")), [200, 429]);
    end(&mut service);
    assert_eq!(bed.names(), ["counts", "counts.lock"], "half-written files are removed");
}

#[cfg(unix)]
#[test]
fn without_room_on_the_disk_the_last_snapshot_stays() {
    let (bed, intact) = Bed::new();
    // No file may be longer than a block: what goes beyond is an error, as on a full disk.
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]);
    limited.arg(env!("CARGO_BIN_EXE_sluicegate"));
    let args = ["--rules", &bed.rules, "--snapshot", &bed.snapshot, "--drain-delay", "1h"];
    let mut service = Service::run(limited, &args, &[]);
    for user in 0..200 {
        assert_eq!(service.check("shop", &user.to_string()), 200);
    }
    service.signal("TERM");
    let line = service.says("snapshot not saved");
    assert!(line.contains("ERROR") && line.contains("state/counts"), "{line}");
    assert_eq!(metric(&service, "sluicegate_snapshot_save_errors_total"), 1);
    assert_eq!(fs::read(&bed.snapshot).unwrap(), intact);
    assert_eq!(bed.names(), ["counts", "counts.lock"]);
}
