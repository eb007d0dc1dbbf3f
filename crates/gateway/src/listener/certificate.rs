//! Certificates of clients.

use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The names in a verified certificate of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// Subject alternative names: URIs, DNS names, and e-mail addresses, in this order.
    names: Vec<String>,
    /// The subject, such as `CN=alice, O=Example`.
    subject: String,
}

impl ClientCertificate {
    /// Reads the names; `None` if it cannot be parsed.
    pub(crate) fn new(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let mut names = Vec::new();
        if let Ok(Some(extension)) = parsed.subject_alternative_name() {
            let all = &extension.value.general_names;
            names.extend(all.iter().filter_map(|name| match name {
                GeneralName::URI(name) => Some((0, (*name).to_owned())),
                GeneralName::DNSName(name) => Some((1, (*name).to_owned())),
                GeneralName::RFC822Name(name) => Some((2, (*name).to_owned())),
                _ => None,
            }));
        }
        names.sort_by_key(|(kind, _)| *kind);
        let names = names.into_iter().map(|(_, name)| name).collect();
        Some(Self { names, subject: parsed.subject().to_string() })
    }

    /// The identity of the client: the first alternative name, otherwise the subject.
    pub(crate) fn identity(&self) -> &str {
        self.names.first().unwrap_or(&self.subject)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn identity(names: &[SanType]) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.subject_alt_names = names.to_vec();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate::new(certificate.der()).unwrap().identity().to_owned()
    }

    #[test]
    fn the_identity_is_an_alternative_name_or_the_subject() {
        let dns = SanType::DnsName("alice.example".try_into().unwrap());
        let uri = SanType::URI("spiffe://example/alice".try_into().unwrap());
        assert_eq!(identity(&[dns.clone(), uri]), "spiffe://example/alice");
        assert_eq!(identity(&[dns]), "alice.example");
        assert!(identity(&[]).contains("CN=alice"), "{}", identity(&[]));
    }

    #[test]
    fn malformed_certificates_have_no_names() {
        assert_eq!(ClientCertificate::new(&CertificateDer::from(vec![0x30, 0x82, 1])), None);
    }
}
