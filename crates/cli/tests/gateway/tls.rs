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
