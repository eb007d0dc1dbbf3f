//! Certificates from files, as openssl sees them.

use crate::gateway::Gateway;
use crate::pebble::presented;
use crate::support::Folder;

/// Writes a self-signed certificate with its key; the certificate.
fn write(folder: &Folder, name: &str) -> String {
    let made = rcgen::generate_simple_self_signed([format!("{name}.example")]).unwrap();
    folder.file(&format!("{name}.key"), &made.signing_key.serialize_pem());
    folder.file(&format!("{name}.pem"), &made.cert.pem());
    made.cert.pem().replace("\r\n", "\n")
}

#[test]
fn certificates_by_name_are_reloaded_when_their_files_change() {
    let folder = Folder::new();
    let (first, second) = (write(&folder, "a"), write(&folder, "b"));
    let file = folder.file(
        "gateway.yaml",
        "listen: { address: '127.0.0.1:0', tls: { certificates: [{ cert: a.pem, key: a.key }, { cert: b.pem, key: b.key }] } }\n\
         routes: [{ path: /*, respond: { status: 200 } }]\n",
    );
    let mut gateway = Gateway::at_addresses_of(&file);
    let port = gateway.address.rsplit(':').next().unwrap().parse().unwrap();
    let names = ["a.example", "b.example", "c.example"];
    let all = || names.map(|name| presented(port, name, ""));
    assert_eq!(all(), [first.clone(), second, first.clone()]);
    let renewed = write(&folder, "b");
    gateway.process.says("certificate loaded");
    assert_eq!(all(), [first.clone(), renewed, first]);
}

#[test]
fn a_broken_certificate_keeps_the_last_good_one_and_the_others_are_replaced() {
    let folder = Folder::new();
    let first = write(&folder, "a");
    write(&folder, "b");
    let file = folder.file(
        "gateway.yaml",
        "listen: { address: '127.0.0.1:0', tls: { certificates: [{ cert: a.pem, key: a.key }, { cert: b.pem, key: b.key }] } }\n\
         routes: [{ path: /*, respond: { status: 200 } }]\n",
    );
    let mut gateway = Gateway::at_addresses_of(&file);
    let path = folder.file("a.pem", "-----BEGIN CERTIFICATE-----\n");
    let renewed = write(&folder, "b");
    gateway.process.says("certificate loaded");
    gateway
        .process
        .has_said(&format!("certificate not loaded: the previous one stays in use path={path}"));
    let port = gateway.address.rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(["a.example", "b.example"].map(|name| presented(port, name, "")), [first, renewed]);
    let labels = format!("{{listener=\"{}\",path=\"{path}\"}}", gateway.address);
    let failures = gateway.metric(&format!("sluicegate_certificate_file_failures_total{labels}"));
    assert_eq!(failures.unwrap(), "1");
}
