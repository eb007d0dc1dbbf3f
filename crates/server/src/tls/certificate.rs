//! A certificate with its key, the names in it, and its validity.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, SignatureScheme};
use sluicegate::Timestamp;
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::TlsError;
use super::files::CertificateFiles;

/// A certificate with its key.
#[derive(Debug)]
pub struct Certificate {
    /// Chain and key.
    pub key: Arc<CertifiedKey>,
    /// DNS names in lower case; `*.example.com` for all directly below.
    pub names: Vec<Box<str>>,
    /// `None` if it cannot be read.
    pub validity: Option<Validity>,
}

/// When a certificate is valid, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub start: i64,
    /// The last second.
    pub end: i64,
}

/// Why clients refuse a certificate, or soon will.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidityWarning {
    /// It is not valid yet.
    NotYetValid,
    /// Its renewal is overdue.
    ExpiresSoon,
    /// It has expired.
    Expired,
}

/// A certificate expires soon when so many seconds are left…
const SOON_MAX: i64 = 7 * 24 * 3_600;
/// …and at most this part of its lifetime: some live for six days only.
const SOON_PART: i64 = 4;

impl Certificate {
    /// A chain with its key.
    ///
    /// # Errors
    /// When the key does not match, or one of them is malformed.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Error> {
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        let first = key.end_entity_cert()?;
        let parsed = EndEntityCert::try_from(first).ok();
        let names = parsed.iter().flat_map(|parsed| parsed.valid_dns_names());
        let names = names.map(|name| name.to_ascii_lowercase().into()).collect();
        let validity = Validity::of(first);
        Ok(Self { key: Arc::new(key), names, validity })
    }

    /// Reads the contents of its files.
    pub(super) fn from_files(
        files: &CertificateFiles,
        [cert, key]: [Vec<u8>; 2],
    ) -> Result<Self, TlsError> {
        let chain = read_chain(&files.cert, &cert)?;
        let key = match PrivateKeyDer::from_pem_slice(&key) {
            Ok(key) => key,
            Err(pem::Error::NoItemsFound) => {
                return Err(TlsError::NoKey { path: files.key.clone() });
            }
            Err(error) => return Err(malformed(&files.key, &error)),
        };
        Self::new(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                TlsError::KeyMismatch { cert: files.cert.clone(), key: files.key.clone() }
            }
            Error::General(reason) => malformed(&files.key, &reason),
            error => malformed(&files.cert, &error),
        })
    }

    /// Whether every client that could get this certificate gets one of those before it, or it has
    /// no name that a client could request.
    pub(super) fn is_unused_after(&self, others: &[Arc<Self>]) -> bool {
        let is_before = |name: &str| {
            let has_name = |other: &Self| other.names.iter().any(|one| **one == *name);
            others.iter().any(|other| has_name(other) && other.can_sign_for(self))
        };
        self.names.iter().all(|name| is_before(name))
    }

    /// Whether each client that accepts the key of the other one accepts this one's.
    fn can_sign_for(&self, other: &Self) -> bool {
        let can = |one: &Self, scheme| one.key.key.choose_scheme(&[scheme]).is_some();
        SCHEMES.into_iter().all(|scheme| !can(other, scheme) || can(self, scheme))
    }
}

/// Signatures that clients can accept.
const SCHEMES: [SignatureScheme; 10] = [
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
];

impl Validity {
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let validity = parsed.validity();
        let (start, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Some(Self { start, end })
    }

    /// What to warn of at a time.
    #[must_use]
    pub fn warning(self, now: Timestamp) -> Option<ValidityWarning> {
        let now = i64::try_from(now.as_micros() / 1_000_000).unwrap_or(i64::MAX);
        let lifetime = self.end.saturating_sub(self.start);
        if now > self.end {
            Some(ValidityWarning::Expired)
        } else if now < self.start {
            Some(ValidityWarning::NotYetValid)
        } else if self.end.saturating_sub(now) < SOON_MAX.min(lifetime / SOON_PART) {
            Some(ValidityWarning::ExpiresSoon)
        } else {
            None
        }
    }

    /// The first second as a date.
    pub(crate) fn start(self) -> jiff::Timestamp {
        date(self.start)
    }

    /// The last second as a date.
    pub(crate) fn end(self) -> jiff::Timestamp {
        date(self.end)
    }
}

/// The nearest date that can be shown.
fn date(seconds: i64) -> jiff::Timestamp {
    let (min, max) = (jiff::Timestamp::MIN, jiff::Timestamp::MAX);
    let seconds = seconds.clamp(min.as_second(), max.as_second());
    jiff::Timestamp::from_second(seconds).unwrap_or(max)
}

/// The certificates in a PEM file.
pub(super) fn read_chain(
    path: &Path,
    contents: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(contents).collect();
    let certificates = certificates.map_err(|error| malformed(path, &error))?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(certificates)
}

pub(super) fn malformed(path: &Path, reason: &dyn Display) -> TlsError {
    TlsError::Malformed { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3_600;

    #[test]
    fn a_certificate_expires_soon_in_its_last_week_or_quarter() {
        use ValidityWarning::{Expired, ExpiresSoon, NotYetValid};

        let warning = |lifetime: i64, now: i64| {
            let validity = Validity { start: 100 * DAY, end: (100 + lifetime) * DAY };
            let now = u64::try_from((100 + now) * DAY).unwrap() * 1_000_000;
            validity.warning(Timestamp::from_micros(now))
        };
        for (lifetime, now, expected) in [
            (90, -1, Some(NotYetValid)),
            (90, 0, None),
            (90, 83, None),
            (90, 84, Some(ExpiresSoon)),
            (90, 90, Some(ExpiresSoon)),
            (90, 91, Some(Expired)),
            (6, 4, None),
            (6, 5, Some(ExpiresSoon)),
        ] {
            assert_eq!(warning(lifetime, now), expected, "{now} of {lifetime} days");
        }
    }
}
