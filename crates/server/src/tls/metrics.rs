//! Metrics of the certificates of endpoints.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use super::{Certificate, Tls};
use crate::metrics::{Labels, MetricsSource, Page};

/// Files on the metrics page; further ones are left out.
const LISTED_MAX: usize = 1_000;

/// TLS of an endpoint that does not change.
#[derive(Debug)]
pub(crate) struct EndpointCertificates {
    /// Its address.
    pub(crate) listener: String,
    pub(crate) tls: Tls,
}

impl MetricsSource for EndpointCertificates {
    fn put(&self, page: &mut Page) {
        put_certificates(page, &[(self.listener.clone(), self.tls.clone())]);
    }
}

/// Certificates from files, of endpoints by address.
pub fn put_certificates(page: &mut Page, endpoints: &[(String, Tls)]) {
    if endpoints.iter().all(|(_, tls)| tls.inner.failures.is_empty()) {
        return;
    }
    let labels = |listener: &str, path: &Path| {
        Labels::new("listener", listener).and("path", &path.to_string_lossy())
    };
    let help = "Unix time at which the certificate in use from a file expires.";
    let mut family = page.gauge("sluicegate_certificate_file_expiry_timestamp_seconds", help);
    let expiries = endpoints.iter().flat_map(|(listener, tls)| {
        let current = tls.inner.current.load();
        let files = tls.inner.files.certificates.iter().zip(&current.certificates);
        // A path may be named twice.
        let by_path: BTreeMap<_, _> =
            files.map(|(files, certificate)| (&files.cert, certificate.clone())).collect();
        by_path.into_iter().map(move |(path, certificate)| (labels(listener, path), certificate))
    });
    for (labels, certificate) in expiries.take(LISTED_MAX) {
        let Certificate { names, validity, .. } = &*certificate;
        if let Some(validity) = validity {
            let domain = names.first().map_or("", |name| name);
            family.labeled(&labels.and("domain", domain), validity.end);
        }
    }
    let help =
        "Changed certificates and client CAs that were not loaded; the last good one stays in use.";
    let mut family = page.counter("sluicegate_certificate_file_failures_total", help);
    let failures = endpoints.iter().flat_map(|(listener, tls)| {
        let failures = tls.inner.failures.iter();
        failures.map(move |(path, count)| (labels(listener, path), count))
    });
    for (labels, count) in failures.take(LISTED_MAX) {
        family.labeled(&labels, count.load(Relaxed));
    }
}
