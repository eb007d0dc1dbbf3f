//! Checks the files of an endpoint without using them.

use std::sync::Arc;

use sluicegate::Timestamp;

use super::TlsError;
use super::certificate::{Certificate, ValidityWarning};
use super::client::verifier;
use super::files::{CertificateFiles, Loaded, TlsFiles};

/// What a check of an endpoint's files has found.
#[derive(Debug, Default)]
pub struct TlsCheck {
    /// Certificates that cannot be used, by index; without one, the client CA.
    pub problems: Vec<(Option<usize>, TlsError)>,
    /// Certificates of no use, by index.
    pub warnings: Vec<(usize, String)>,
}

impl TlsFiles {
    /// Reads all files.
    #[must_use]
    pub fn check(&self, now: Timestamp) -> TlsCheck {
        let mut check = TlsCheck::default();
        let mut before: Vec<Arc<Certificate>> = Vec::new();
        for (index, files) in self.certificates.iter().enumerate() {
            let load = |contents| Certificate::from_files(files, contents).map(Arc::new);
            match Loaded::new(files.paths(), load) {
                Ok(loaded) => {
                    check.warn_of((index, files), &loaded.value, &before, now);
                    before.push(loaded.value);
                }
                Err(error) => check.problems.push((Some(index), error)),
            }
        }
        if let Some(path) = &self.client_ca {
            let san = self.client_san.as_deref();
            let loaded = Loaded::new([path], |[contents]| verifier(path, &contents, san));
            check.problems.extend(loaded.err().map(|error| (None, error)));
        }
        check
    }
}

impl TlsCheck {
    fn warn_of(
        &mut self,
        (index, files): (usize, &CertificateFiles),
        certificate: &Certificate,
        before: &[Arc<Certificate>],
        now: Timestamp,
    ) {
        let path = files.cert.display();
        let mut warn = |message| self.warnings.push((index, message));
        let validity = certificate.validity;
        if let Some((validity, warning)) = validity.and_then(|it| Some((it, it.warning(now)?))) {
            match warning {
                ValidityWarning::Expired => warn(format!(
                    "the certificate in `{path}` expired at {}, so clients refuse it; renew it",
                    validity.end()
                )),
                ValidityWarning::NotYetValid => warn(format!(
                    "the certificate in `{path}` is not valid before {}, so clients refuse it; check \
                     the clock, or have it issued again",
                    validity.start()
                )),
                ValidityWarning::ExpiresSoon => {}
            }
        }
        // The first one is for unknown names too.
        if !before.is_empty() && certificate.is_unused_after(before) {
            let message = match &*certificate.names {
                [] => format!(
                    "the certificate in `{path}` has no DNS name, so no client gets it; name it \
                     first, or remove it"
                ),
                [name, ..] => format!(
                    "the certificate in `{path}` is never used, certificates before it have all of its \
                     names, such as `{name}`; remove one of them"
                ),
            };
            warn(message);
        }
    }
}
