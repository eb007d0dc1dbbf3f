//! Sends spans to the collector, a batch at a time, through `opentelemetry-otlp`.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use opentelemetry::KeyValue;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{
    Compression, RetryPolicy, SpanExporter as OtlpExporter, WithExportConfig, WithHttpConfig,
    WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{Counts, Options, Protocol};
use crate::https_client::{describe, https_connector, native_roots};
use crate::logs::events;

/// The receiving end of a tracer's queue.
///
/// Spans that the collector does not accept are counted and dropped, never sent again: a collector
/// that is down must fill neither the memory nor the log.
#[derive(Debug)]
pub struct Exporter {
    options: Options,
    otlp: OtlpExporter,
    cause: Cause,
    spans: mpsc::Receiver<SpanData>,
    counts: Arc<Counts>,
    batch: Vec<SpanData>,
    /// Spans of requests without a result. They count as lost if the request is abandoned.
    in_flight: usize,
}

/// The exporter cannot be built.
#[derive(Debug)]
pub struct ExporterError(String);

impl Exporter {
    pub(super) fn new(
        options: Options,
        spans: mpsc::Receiver<SpanData>,
        counts: Arc<Counts>,
    ) -> Result<Self, ExporterError> {
        let cause = Cause::default();
        let mut otlp = match options.protocol {
            Protocol::Http => over_http(&options, cause.clone()),
            Protocol::Grpc => over_grpc(&options),
        }?;
        let attributes = options.resource.iter();
        let attributes = attributes.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        otlp.set_resource(&Resource::builder_empty().with_attributes(attributes).build());
        Ok(Self { options, otlp, cause, spans, counts, batch: Vec::new(), in_flight: 0 })
    }

    /// Exports until `stop` is ready, and then the queued spans within [`Options::flush`].
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let flush = self.options.flush;
        let deadline = loop {
            tokio::select! {
                biased;
                () = &mut stop => break Instant::now() + flush,
                more = self.gather() => if !more { break Instant::now() + flush },
            }
            let sending = self.send();
            tokio::pin!(sending);
            tokio::select! {
                biased;
                () = &mut sending => {}
                () = &mut stop => {
                    let deadline = Instant::now() + flush;
                    let _ = timeout_at(deadline, sending).await;
                    break deadline;
                }
            }
        };
        self.spans.close();
        let _ = timeout_at(deadline, self.send_rest()).await;
        self.abandon();
    }

    /// Waits for a full batch, or for [`Options::delay`] after its first span; `false` when the
    /// queue is closed.
    async fn gather(&mut self) -> bool {
        let max = self.options.batch_max.max(1);
        if self.spans.recv_many(&mut self.batch, max).await == 0 {
            return false;
        }
        let delay = sleep(self.options.delay);
        tokio::pin!(delay);
        while self.batch.len() < max {
            let room = max - self.batch.len();
            tokio::select! {
                () = &mut delay => break,
                count = self.spans.recv_many(&mut self.batch, room) => if count == 0 { break },
            }
        }
        true
    }

    async fn send_rest(&mut self) {
        let max = self.options.batch_max.max(1);
        loop {
            if self.batch.is_empty() && self.spans.recv_many(&mut self.batch, max).await == 0 {
                return;
            }
            self.send().await;
        }
    }

    async fn send(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let spans = batch.len();
        self.in_flight += spans;
        let sent = timeout(self.options.timeout, self.otlp.export(batch)).await;
        self.in_flight -= spans;
        match sent {
            Ok(Ok(())) => {
                self.counts.exported.fetch_add(spans as u64, Ordering::Relaxed);
            }
            Ok(Err(error)) => match self.cause.0.lock().take() {
                Some(cause) => self.lose(spans, &cause),
                None => self.lose(spans, &error),
            },
            Err(_) => self.lose(spans, &"request timed out"),
        }
    }

    fn abandon(&mut self) {
        let mut spans = self.batch.len() + self.in_flight;
        while self.spans.try_recv().is_ok() {
            spans += 1;
        }
        if spans > 0 {
            self.lose(spans, &"shutdown before they were sent");
        }
    }

    fn lose(&self, spans: usize, error: &dyn fmt::Display) {
        self.counts.lost.fetch_add(spans as u64, Ordering::Relaxed);
        events::traces_lost(spans as u64, error);
    }
}

// === transports ===

fn over_http(options: &Options, cause: Cause) -> Result<OtlpExporter, ExporterError> {
    let endpoint = endpoint(options, "http://localhost:4318/v1/traces");
    let connector =
        https_connector(roots(&endpoint, options)?, GaiResolver::new()).map_err(ExporterError)?;
    let client =
        OtlpHttpClient { inner: HyperClient::new(connector, options.timeout, None), cause };
    let headers = options.headers.iter();
    let headers: HashMap<String, String> = headers
        .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
        .collect();
    let mut exporter = OtlpExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
        .with_endpoint(endpoint.to_string())
        .with_headers(headers)
        .with_timeout(options.timeout)
        .with_retry_policy(RetryPolicy::disabled());
    if options.gzip {
        exporter = exporter.with_compression(Compression::Gzip);
    }
    exporter.build().map_err(ExporterError::new)
}

fn over_grpc(options: &Options) -> Result<OtlpExporter, ExporterError> {
    let endpoint = endpoint(options, "http://localhost:4317");
    let mut exporter = OtlpExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint.to_string())
        .with_metadata(MetadataMap::from_headers(options.headers.clone()))
        .with_timeout(options.timeout)
        .with_retry_policy(RetryPolicy::disabled());
    if options.gzip {
        exporter = exporter.with_compression(Compression::Gzip);
    }
    if endpoint.scheme() == Some(&Scheme::HTTPS) {
        let tls = ClientTlsConfig::new();
        exporter = exporter.with_tls_config(match read_certificate(options)? {
            Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
            None => tls.with_native_roots(),
        });
    }
    exporter.build().map_err(ExporterError::new)
}

fn endpoint(options: &Options, default: &'static str) -> Uri {
    options.endpoint.clone().unwrap_or_else(|| Uri::from_static(default))
}

fn roots(endpoint: &Uri, options: &Options) -> Result<RootCertStore, ExporterError> {
    let mut roots = RootCertStore::empty();
    if endpoint.scheme() != Some(&Scheme::HTTPS) {
        return Ok(roots);
    }
    let Some(pem) = read_certificate(options)? else { return Ok(native_roots()) };
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let added = certificate.map(|certificate| roots.add(certificate));
        added.map_err(ExporterError::new)?.map_err(ExporterError::new)?;
    }
    Ok(roots)
}

fn read_certificate(options: &Options) -> Result<Option<Vec<u8>>, ExporterError> {
    let Some(path) = &options.certificate else { return Ok(None) };
    let unreadable = |error| ExporterError(format!("{}: {error}", path.display()));
    std::fs::read(path).map(Some).map_err(unreadable)
}

/// Cause of the last failed HTTP request: `opentelemetry-otlp` reports just "network error".
#[derive(Debug, Clone, Default)]
struct Cause(Arc<Mutex<Option<String>>>);

#[derive(Debug)]
struct OtlpHttpClient {
    inner: HyperClient<HttpsConnector<HttpConnector>>,
    cause: Cause,
}

#[async_trait]
impl HttpClient for OtlpHttpClient {
    async fn send_bytes(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, HttpError> {
        let result = self.inner.send_bytes(request).await;
        *self.cause.0.lock() = result.as_ref().err().map(|error| describe(&**error));
        result
    }
}

impl ExporterError {
    fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for ExporterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for ExporterError {}
