//! A service behind a proxy with TLS.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod support;

use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sluicegate_client::{Client, UnavailablePolicy};
use support::{PATIENT, of, service_in_process};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

const RULES: &str = "domain: shop\ndescriptors: [{ key: user, limits: { name: daily, algorithm: fixed_window, rate: 3/day } }]";

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Issuer {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "ca");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A service whose certificate is for a name; its port.
async fn service_for(name: &str, authority: &Issuer) -> u16 {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = service_in_process(RULES);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // Whoever does not trust us hangs up.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    port
}

#[tokio::test]
async fn only_who_is_trusted_and_has_the_name_is_asked() {
    let (ours, theirs) = (authority(), authority());
    for (name, signed_by, is_asked) in
        [("localhost", &ours, true), ("elsewhere", &ours, false), ("localhost", &theirs, false)]
    {
        let port = service_for(name, signed_by).await;
        let client = Client::builder(format!("https://localhost:{port}")).trust(ours.pem());
        let client =
            client.timeout(PATIENT).on_unavailable(UnavailablePolicy::Error).build().unwrap();
        let answer = client.check(&of("user", "alice")).await;
        match answer {
            Ok(decision) => assert_eq!((is_asked, decision.remaining), (true, Some(2))),
            Err(error) => {
                assert!(!is_asked, "{error}");
                assert!(error.to_string().contains("cannot be reached: "), "{error}");
            }
        }
    }
}

#[test]
fn nobody_is_trusted_untold() {
    let error = Client::new("https://localhost").unwrap_err();
    assert!(error.to_string().contains("set one by `trust`"), "{error}");
    for no in ["-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n", "no"] {
        assert!(Client::builder("https://localhost").trust(no).build().is_err());
    }
}
