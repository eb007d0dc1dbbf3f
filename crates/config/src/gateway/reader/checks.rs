//! Checks across sections.

use sluicegate_rules::mapping::{DescriptorMapping, Part, Source};

use super::GatewayReader;
use crate::fields::Value;
use crate::gateway::GatewayConfig;
use crate::gateway::listener::AcmeChallenge;
use crate::problem::Position;

impl GatewayReader<'_> {
    /// Refuses a part that needs an identity which is not configured: its limits would never match.
    pub(super) fn check_part(&mut self, part: &Part, value: &Value<'_, '_>) {
        let path = value.path.to_string();
        self.check_part_at(part, value.at(), &path);
    }

    /// The same for the hits of a descriptor.
    pub(super) fn check_parts_of_hits(
        &mut self,
        descriptor: &DescriptorMapping,
        at: Position,
        path: &str,
    ) {
        descriptor.hits.iter().for_each(|part| self.check_part_at(part, at, path));
    }

    pub(super) fn check_part_at(&mut self, part: &Part, at: Position, path: &str) {
        let has = &self.origins;
        let remedy = match &part.source {
            Source::Jwt(_) if !has.has_jwt => {
                "identity: { jwt: { jwks: jwks.json, audience: api } }"
            }
            Source::ApiKey | Source::ApiKeyAttribute(_) if !has.has_api_keys => {
                "identity: { api_keys: { file: keys.yaml } }"
            }
            Source::Asn if !has.has_asn => "identity: { geo: { asn: asn.mmdb } }",
            Source::Country if !has.has_country => "identity: { geo: { country: country.mmdb } }",
            Source::Ja4 if !has.has_tls => "tls: …` to a listener, or remove `ja4",
            Source::ClientCertificate if !has.has_client_ca => {
                "tls: { client_ca: clients.pem, … }` to a listener, or remove `client_certificate"
            }
            _ => return,
        };
        let message = format!("no request has this part, got `{part}`; add `{remedy}`");
        self.report.add(at, path, message);
    }

    /// Reports that addresses which a database does not have are rejected.
    pub(super) fn warn_of_unknown_addresses(&mut self, part: &Part, at: Position, path: &str) {
        let has_database = match part.source {
            Source::Asn => self.origins.has_asn,
            Source::Country => self.origins.has_country,
            _ => return,
        };
        if has_database && part.or.is_none() {
            let message = format!(
                "addresses that the database does not have are rejected, got `{part}`; write \
                 `{part} or unknown`"
            );
            self.report.warn(at, path, message);
        }
    }

    /// Checks the listeners together.
    pub(super) fn cross_check(&mut self, config: &GatewayConfig) {
        let Some(at) = self.origins.listen else { return };
        for (index, listener) in config.listeners.iter().enumerate() {
            let before = config.listeners.get(..index).unwrap_or_default();
            let address = listener.address;
            if address.port() != 0 && before.iter().any(|other| other.address == address) {
                let message = format!("has an address twice, got `{address}`; remove one");
                self.report.add(at, "listen", message);
            }
        }
        self.check_acme(config, at);
        let has_tls = config.listeners.iter().any(|listener| listener.tls.is_some());
        if !has_tls && config.listeners.iter().any(|listener| listener.redirect_to_https) {
            let message = "redirects to HTTPS, but no listener has `tls`; add one, unless another proxy \
                           serves it";
            self.report.warn(at, "listen", message.to_owned());
        }
    }
    /// Checks that authorities can reach the listeners, and that a name has one certificate.
    fn check_acme(&mut self, config: &GatewayConfig, at: Position) {
        let listeners = || config.listeners.iter();
        let all: Vec<_> = listeners().filter_map(|one| one.tls.as_ref()?.acme.as_ref()).collect();
        for (index, acme) in all.iter().enumerate() {
            let before = all.iter().take(index).filter(|other| other != &acme);
            let mut others = before.flat_map(|other| &other.domains);
            if let Some(name) = others.find(|name| acme.domains.contains(name)) {
                let message = format!(
                    "has a name with different `acme` options, got `{name}`; write the same options, or \
                     remove one"
                );
                self.report.add(at, "listen", message);
            }
        }
        let has_port = |port: u16, by_tls: bool| {
            listeners().any(|one| one.address.port() == port && one.tls.is_some() == by_tls)
        };
        let has_plain = listeners().any(|one| one.tls.is_none());
        let uses = |challenge| all.iter().any(|acme| acme.challenge == challenge);
        if uses(AcmeChallenge::Http01) && !has_port(80, false) {
            let remedy = match has_plain {
                true => "map port 80 to a listener without `tls`, or add one",
                false => "add a listener without `tls`, like `0.0.0.0:80`, or use `tls-alpn-01`",
            };
            let message = format!("authorities verify `http-01` on port 80 only; {remedy}");
            self.report.warn(at, "listen", message);
        }
        if uses(AcmeChallenge::TlsAlpn01) && !has_port(443, true) {
            let message =
                "authorities verify `tls-alpn-01` on port 443 only; map it to this listener";
            self.report.warn(at, "listen", message.to_owned());
        }
    }
}
