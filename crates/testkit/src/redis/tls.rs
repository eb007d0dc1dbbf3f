//! Temporary certificates for a server and its clients.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::process::write;

/// Parties that present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// The server alone.
    Server,
    /// Server and clients; others are rejected.
    Mutual,
}

/// Paths of the PEM files of both sides.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate authority of all certificates, trusted by no one else.
    pub ca: PathBuf,
    /// Server certificate, for `localhost` and `127.0.0.1`.
    pub server_certificate: PathBuf,
    /// Key of the server.
    pub server_key: PathBuf,
    /// Client certificate.
    pub client_certificate: PathBuf,
    /// Key of the client.
    pub client_key: PathBuf,
}

/// Generates all files.
pub(crate) fn make(folder: &Path) -> TlsFiles {
    made(folder).unwrap_or_else(|error| panic!("cannot make certificates: {error}"))
}

fn made(folder: &Path) -> Result<TlsFiles, rcgen::Error> {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        write(&path, text);
        path
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority of a test");
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let signed = |names: &[&str], common: &str| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, common);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca)?;
        Ok::<_, rcgen::Error>((certificate.pem(), key.serialize_pem()))
    };
    let (server, server_key) = signed(&["localhost", "127.0.0.1"], "server")?;
    let (client, client_key) = signed(&["client"], "client")?;
    Ok(TlsFiles {
        ca: file("ca.pem", &ca.pem()),
        server_certificate: file("server.pem", &server),
        server_key: file("server.key", &server_key),
        client_certificate: file("client.pem", &client),
        client_key: file("client.key", &client_key),
    })
}
