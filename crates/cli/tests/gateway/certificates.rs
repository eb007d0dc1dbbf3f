//! Files that a gateway names: `check` and the start open them, and report all problems at once.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::gateway::Gateway;
use crate::support::{Folder, sluicegate};

const ROUTES: &str = "routes: [{ path: /*, respond: { status: 200 } }]\n";

/// Writes a self-signed certificate with its key that expires in a year.
fn write(folder: &Folder, file: &str, name: &str, year: i32) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    folder.file(&format!("{file}.pem"), &params.self_signed(&key).unwrap().pem());
    folder.file(&format!("{file}.key"), &key.serialize_pem());
}

/// A file with nine problems, and the files that it names.
fn broken(folder: &Folder) -> String {
    for name in ["good", "other"] {
        write(folder, name, &format!("{name}.example"), 2200);
    }
    folder.file("empty.pem", "no certificate\n");
    folder.file("list.txt", "10.0.0.0/8\n10.0.0.300\n");
    folder.file(
        "gateway.yaml",
        "access: { deny: [{ file: list.txt }] }
access_log: { path: logs/access.log }
identity: { api_keys: { file: list.txt } }
listen:
  - address: 127.0.0.1:0
    tls:
      certificates:
        - { cert: good.pem, key: good.key }
        - { cert: empty.pem, key: good.key }
        - { cert: other.pem, key: good.key }
        - { cert: none.pem, key: good.key }
      client_ca: empty.pem
upstreams:
  api: { servers: https://127.0.0.1:1, tls: { ca: empty.pem, cert: good.pem, key: other.key } }
routes:
  - { path: /a//b, upstream: api }
",
    )
}

/// The place of each, and a part of its message.
const PROBLEMS: [(&str, &str); 9] = [
    ("1:26: access.deny[0].file: ", "list.txt:2: `10.0.0.300` is not a network"),
    ("2:21: access_log.path: cannot open `", "name a file in a directory that exists"),
    ("3:31: identity.api_keys.file: ", "list.txt:1:1: must be a list of keys"),
    ("9:19: listen[0].tls.certificates[1].cert: ", "empty.pem: contains no certificate"),
    ("10:35: listen[0].tls.certificates[2].key: ", "the key does not match the certificate in"),
    ("11:19: listen[0].tls.certificates[3].cert: ", "none.pem: there is no such file"),
    ("12:18: listen[0].tls.client_ca: ", "empty.pem: contains no certificate"),
    ("14:51: upstreams.api.tls.ca: ", "empty.pem` cannot be used: it has no `BEGIN CERTIFICATE`"),
    ("14:83: upstreams.api.tls.key: ", "other.key` does not match the certificate in `"),
];

fn assert_reported(output: &str) {
    for (place, message) in PROBLEMS {
        let line = output.lines().find(|line| line.contains(&format!("gateway.yaml:{place}")));
        assert!(line.is_some_and(|line| line.contains(message)), "{place} {message}:\n{output}");
    }
    assert!(output.contains("gateway.yaml:16:13: routes[0].path: no request has the path"));
}

#[test]
fn check_and_the_start_report_all_unusable_files_at_once() {
    let folder = Folder::new();
    let path = broken(&folder);
    let run = sluicegate(&["check", &path], "");
    assert_eq!(run.code, 1);
    assert_reported(&run.stderr);
    assert!(run.stderr.contains("invalid: 10 problems in 1 file"), "{}", run.stderr);
    let run = sluicegate(&["gateway", "--config", &path], "");
    assert_eq!(run.code, 1);
    assert_reported(&run.stderr);
}

#[test]
fn check_and_the_start_warn_of_certificates_that_are_of_no_use() {
    let folder = Folder::new();
    write(&folder, "first", "a.example", 2200);
    write(&folder, "expired", "b.example", 2020);
    write(&folder, "again", "A.example", 2200);
    let path = folder.file(
        "gateway.yaml",
        &format!(
            "listen:
  - address: 127.0.0.1:0
    tls:
      certificates:
        - {{ cert: first.pem, key: first.key }}
        - {{ cert: expired.pem, key: expired.key }}
        - {{ cert: again.pem, key: again.key }}
        - {{ cert: first.pem, key: first.key }}
{ROUTES}"
        ),
    );
    let warnings = [
        ("6:19: ", "[1].cert: the certificate in `", "expired at 2020-01-01T00:00:00Z, so clients"),
        (
            "7:19: ",
            "[2].cert: the certificate in `",
            "is never used, certificates before it have all",
        ),
        ("8:19: ", "[3].cert: the certificate in `", "its names, such as `a.example`; remove one"),
    ];
    let run = sluicegate(&["check", &path], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("3 warnings"), "{}", run.stdout);
    for (place, key, message) in warnings {
        let start = format!("gateway.yaml:{place}warning: listen[0].tls.certificates{key}");
        let line = run.stderr.lines().find(|line| line.contains(&start));
        assert!(line.is_some_and(|line| line.contains(message)), "{start}:\n{}", run.stderr);
    }
    assert_eq!(sluicegate(&["check", "--strict", &path], "").code, 1);
    let mut gateway = Gateway::at_addresses_of(&path);
    gateway.process.has_said("expired at 2020-01-01T00:00:00Z, so clients refuse it; renew it");
    gateway.process.says("certificate in use has expired");
}

#[test]
fn a_change_of_the_file_is_loaded_while_a_certificate_in_use_is_broken() {
    let folder = Folder::new();
    write(&folder, "a", "a.example", 2200);
    let listener = "listen: [{ address: '127.0.0.1:0' }, { address: '127.0.0.1:0', tls: { certificates: [{ cert: a.pem, key: a.key }] } }]\n";
    let path = folder.file("gateway.yaml", &format!("{listener}{ROUTES}"));
    let mut gateway = Gateway::at_addresses_of(&path);
    folder.file("a.pem", "no certificate\n");
    folder.file("gateway.yaml", &format!("{listener}{}", ROUTES.replace("200", "204")));
    gateway.process.says("gateway configuration reloaded");
    assert_eq!(gateway.get("/").status, 204);
}
