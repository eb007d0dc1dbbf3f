//! A client of HTTP and HTTPS, for what a process itself fetches and sends. It follows no
//! redirects.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

/// Sends each request on a connection of its own.
pub type HttpsClient<B, R = GaiResolver> = Client<HttpsConnector<HttpConnector<R>>, B>;

/// A client that trusts these authorities.
///
/// # Errors
/// When TLS cannot be configured.
pub fn https_client<B>(roots: RootCertStore) -> Result<HttpsClient<B>, String>
where
    B: Body<Data = Bytes> + Send,
{
    https_client_resolving(roots, GaiResolver::new())
}

/// The same with another resolver of names.
///
/// # Errors
/// When TLS cannot be configured.
pub fn https_client_resolving<B, R>(
    roots: RootCertStore,
    resolver: R,
) -> Result<HttpsClient<B, R>, String>
where
    B: Body<Data = Bytes> + Send,
    HttpsConnector<HttpConnector<R>>: Connect + Clone,
{
    let connector = https_connector(roots, resolver)?;
    Ok(Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector))
}

/// The connections of such a client.
pub(crate) fn https_connector<R>(
    roots: RootCertStore,
    resolver: R,
) -> Result<HttpsConnector<HttpConnector<R>>, String> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut http = HttpConnector::new_with_resolver(resolver);
    // Both schemes are accepted.
    http.enforce_http(false);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    Ok(builder.enable_http1().wrap_connector(http))
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
