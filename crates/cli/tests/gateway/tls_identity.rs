//! What TLS reveals of a client: its certificate, and its fingerprint.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::gateway::Gateway;
use crate::support::{Folder, root, server};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    // Unlike the names of what it issues: otherwise those count as signed by themselves.
    params.distinguished_name.push(DnType::CommonName, "authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes `NAME.crt` and `NAME.key`.
fn issue(folder: &Folder, authority: &Authority, name: &str, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(names).unwrap().signed_by(&key, authority).unwrap();
    folder.file(&format!("{name}.crt"), &cert.pem());
    folder.file(&format!("{name}.key"), &key.serialize_pem());
}

/// The status that curl gets, `000` without a response; behind it the challenge.
fn curl(folder: &Folder, address: &str, args: &[&str]) -> String {
    let port = address.rsplit(':').next().unwrap();
    let mut command = Command::new(server("curl"));
    command.args(["-s", "-o", "/dev/null", "-w", "%{http_code} %header{www-authenticate}"]);
    command.args(["--resolve", &format!("gateway.example:{port}:127.0.0.1"), "--cacert", "ca.crt"]);
    command.arg(format!("https://gateway.example:{port}/")).args(args).current_dir(folder.path());
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim_end().to_owned()
}

#[test]
fn a_client_certificate_is_required_and_limited() {
    let (folder, servers, clients) = (Folder::new(), authority(), authority());
    folder.file("ca.crt", &servers.pem());
    folder.file("clients.crt", &clients.pem());
    issue(&folder, &servers, "gateway", &["gateway.example"]);
    for name in ["alice", "bob"] {
        issue(&folder, &clients, name, &[&format!("{name}.example")]);
    }
    issue(&folder, &servers, "mallory", &["alice.example"]);
    folder.file("rules.yaml", "domain: api\ndescriptors: [{ key: client, limits: { algorithm: fixed_window, rate: 1/year } }]\n");
    let tls = "certificates: { cert: gateway.crt, key: gateway.key }";
    let text = format!(
        "rules: rules.yaml
listen:
  - {{ address: 127.0.0.1:0, tls: {{ {tls}, client_ca: clients.crt }} }}
  - {{ address: 127.0.0.1:0, tls: {{ {tls} }} }}
routes:
  - path: /*
    respond: {{ status: 200 }}
    require: client_certificate
    limit: {{ domain: api, descriptors: [{{ client: client_certificate }}] }}
"
    );
    let gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", &text));
    let with = |name: &str| {
        let (cert, key) = (format!("{name}.crt"), format!("{name}.key"));
        curl(&folder, &gateway.addresses[0], &["--cert", &cert, "--key", &key])
    };
    assert_eq!(["alice", "alice", "bob"].map(with), ["200", "429", "200"]);
    assert_eq!(with("mallory"), "000", "of another authority");
    assert_eq!(curl(&folder, &gateway.addresses[0], &[]), "000", "none");
    // A listener that does not ask for one.
    assert_eq!(curl(&folder, &gateway.addresses[1], &[]), "401 ClientCertificate");
}

/// Passes one connection on; the first bytes of its client.
struct Recorder {
    address: String,
    recorded: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    fn before(gateway: &Gateway) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (recorded, target) = (Arc::<Mutex<Vec<u8>>>::default(), gateway.address.clone());
        let record = Arc::clone(&recorded);
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut gateway = TcpStream::connect(target).unwrap();
            let (mut back, mut answers) =
                (client.try_clone().unwrap(), gateway.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut back);
                let _ = back.shutdown(Shutdown::Both);
            });
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = client.read(&mut bytes) {
                record.lock().unwrap().extend(&bytes[..count]);
                if gateway.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
            let _ = gateway.shutdown(Shutdown::Both);
        });
        Self { address, recorded }
    }

    /// The fingerprint, by a program that shares nothing with the gateway's.
    fn ja4(&self) -> String {
        let script = root().join("crates/cli/tests/gateway/ja4.py");
        let mut child = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed: scripts/servers installs it");
        child.stdin.take().unwrap().write_all(&self.recorded.lock().unwrap()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }
}

/// The status that a client of rustls gets.
fn rustls(authority: &Authority, address: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("gateway.example").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn ja4_of_two_clients_is_that_of_the_specification() {
    let (folder, authority) = (Folder::new(), authority());
    folder.file("ca.crt", &authority.pem());
    issue(&folder, &authority, "gateway", &["gateway.example"]);
    let rules = |values: [&str; 2]| {
        let limit = "limits: { algorithm: fixed_window, rate: 0/year }";
        let rule = |value: &str| format!("  - {{ key: tls, value: {value}, {limit} }}\n");
        folder.file(
            "rules.yaml",
            &format!("domain: web\ndescriptors:\n{}", values.map(rule).concat()),
        );
    };
    rules(["none", "other"]);
    let text = "rules: rules.yaml
listen: { address: 127.0.0.1:0, tls: { certificates: { cert: gateway.crt, key: gateway.key } } }
routes:
  - { path: /*, respond: { status: 200 }, limit: { domain: web, descriptors: [{ tls: ja4 }] } }\n";
    let mut gateway = Gateway::at_addresses_of(&folder.file("gateway.yaml", text));
    let recorders = [Recorder::before(&gateway), Recorder::before(&gateway)];
    assert_eq!(curl(&folder, &recorders[0].address, &[]), "200");
    assert_eq!(rustls(&authority, &recorders[1].address), "200");
    let [of_curl, of_rustls] = recorders.each_ref().map(Recorder::ja4);
    assert_ne!(of_curl, of_rustls);
    assert!(of_curl.starts_with("t13d") && of_rustls.starts_with("t13d"), "{of_curl} {of_rustls}");
    // A rule for the fingerprint of each client denies that client alone.
    let mut statuses = |value: &str| {
        rules([value, "other"]);
        gateway.process.says("rules reloaded");
        (curl(&folder, &gateway.address, &[]), rustls(&authority, &gateway.address))
    };
    assert_eq!(statuses(&of_curl), ("429".to_owned(), "200".to_owned()));
    assert_eq!(statuses(&of_rustls), ("200".to_owned(), "429".to_owned()));
}
