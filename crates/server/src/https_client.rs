//! A client of HTTP and HTTPS, for what a process itself fetches and sends. It follows no
//! redirects.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// Sends each request on a connection of its own.
pub type HttpsClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// A client that trusts these authorities.
///
/// # Errors
/// When TLS cannot be configured.
pub fn https_client<B>(roots: RootCertStore) -> Result<HttpsClient<B>, String>
where
    B: Body<Data = Bytes> + Send,
{
    let connector = https_connector(roots)?;
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
}

/// The connections of such a client.
pub(crate) fn https_connector(
    roots: RootCertStore,
) -> Result<HttpsConnector<HttpConnector>, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build())
}

/// The authorities of the system; `SSL_CERT_FILE` and `SSL_CERT_DIR` replace them.
#[must_use]
pub fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// An error with its causes, separated by colons.
#[must_use]
pub fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
