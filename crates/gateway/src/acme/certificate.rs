//! A certificate of the authority with its key, verified before it is used.

use std::sync::Arc;

use instant_acme::CertificateIdentifier;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sluicegate_server::tls;

use super::schedule::TimeWindow;

/// A certificate of one domain.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) validity: TimeWindow,
    /// Private key and chain, as they are stored.
    pub(super) pem: String,
}

impl Certificate {
    /// Reads a private key with a chain for a domain.
    ///
    /// # Errors
    /// A reason, if they do not belong together, or to another domain.
    pub(super) fn parse(pem: String, domain: &str) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
        let key = key.map_err(|error| format!("no usable key: {error}"))?;
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| format!("not PEM: {error}"))?;
        if chain.is_empty() {
            return Err("no certificate".to_owned());
        }
        let tls::Certificate { key, names, validity } =
            tls::Certificate::new(chain, key).map_err(|error| error.to_string())?;
        if !names.iter().any(|name| name.eq_ignore_ascii_case(domain)) {
            return Err(format!("the certificate is not for `{domain}`"));
        }
        let validity = validity.ok_or("the certificate is malformed")?;
        let millis = |seconds: i64| seconds.saturating_mul(1_000);
        let validity = TimeWindow { start: millis(validity.start), end: millis(validity.end) };
        Ok(Self { key, validity, pem })
    }

    /// Its id for renewal information (RFC 9773).
    pub(super) fn id(&self) -> Option<CertificateIdentifier<'static>> {
        let id = CertificateIdentifier::try_from(self.key.cert.first()?).ok()?;
        Some(id.into_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A self-signed certificate with its key.
    pub(crate) fn pem_of(domain: &str) -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([domain.to_owned()]).unwrap();
        format!("{}{}", key.serialize_pem(), params.self_signed(&key).unwrap().pem())
    }

    #[test]
    fn only_a_certificate_of_the_domain_with_its_key_is_used() {
        let (one, other) = (pem_of("a.example"), pem_of("a.example"));
        let parsed = Certificate::parse(one.clone(), "a.example").unwrap();
        assert!(parsed.validity.start < parsed.validity.end);
        let key_of =
            |pem: &str| pem.split_inclusive("-----END PRIVATE KEY-----").next().map(str::to_owned);
        let foreign_key =
            format!("{}{}", key_of(&other).unwrap(), &one[key_of(&one).unwrap().len()..]);
        for (pem, domain, expected) in [
            (one.as_str(), "b.example", "not for `b.example`"),
            ("", "a.example", "no usable key"),
            (&key_of(&one).unwrap(), "a.example", "no certificate"),
            (&foreign_key, "a.example", "keys may not be consistent"),
        ] {
            let error = Certificate::parse(pem.to_owned(), domain).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
