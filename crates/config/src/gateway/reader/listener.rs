//! `listen`: addresses and their TLS.

use std::time::Duration;

use sluicegate_rules::network::Network;

use super::{GatewayReader, is_mapping, parse};
use crate::fields::Value;
use crate::gateway::keys::{ACME, CERTIFICATE, EXTERNAL_ACCOUNT, LISTENER, TLS};
use crate::gateway::listener::{
    AcmeChallenge, AcmeConfig, CertificateFiles, ExternalAccount, ListenerConfig, TlsConfig,
    TlsVersion,
};
use crate::rules::pattern::network_of;
use crate::units;

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Two thirds, as most clients of ACME.
const RENEW_AFTER_PERCENT: u8 = 67;
const RETRY: Duration = Duration::from_secs(60);

impl GatewayReader<'_> {
    /// An address, or a mapping with one.
    pub(super) fn listener(&mut self, value: &Value<'_, '_>) -> Option<ListenerConfig> {
        let files_before = self.origins.files.len();
        let listener = self.listener_of(value)?;
        self.origins.listeners.push(files_before..self.origins.files.len());
        Some(listener)
    }

    fn listener_of(&mut self, value: &Value<'_, '_>) -> Option<ListenerConfig> {
        if !is_mapping(value) {
            let address = value.read("0.0.0.0:8000", parse::address, self.report).ok()?;
            return Some(ListenerConfig::new(address));
        }
        let mut fields = self.open(value, &LISTENER)?;
        let address = self.need(&mut fields, &LISTENER, "address", parse::address);
        let tls = self.value(&mut fields, &LISTENER, "tls");
        let tls = tls.map(|value| self.tls(&value).unwrap_or_default());
        let peers = self.value(&mut fields, &LISTENER, "proxy_protocol");
        let proxy_protocol = peers.map(|value| self.networks(&value)).unwrap_or_default();
        let redirect_to_https =
            self.get(&mut fields, &LISTENER, "redirect_to_https", units::truth).unwrap_or_default();
        if redirect_to_https && tls.is_some() {
            let message = "stands beside `tls`, got both: the redirect would lead here again; remove one of them";
            fields.refuse("redirect_to_https", self.report, message.to_owned());
        }
        self.close(fields, &LISTENER);
        Some(ListenerConfig { address: address?, tls, proxy_protocol, redirect_to_https })
    }

    fn tls(&mut self, value: &Value<'_, '_>) -> Option<TlsConfig> {
        let mut fields = self.open(value, &TLS)?;
        let certificates = self.value(&mut fields, &TLS, "certificates");
        let acme = self.value(&mut fields, &TLS, "acme");
        if certificates.is_none() && acme.is_none() {
            let message = format!(
                "has no certificate; add `certificates: {}` or `acme: {}`",
                TLS.example_of("certificates"),
                TLS.example_of("acme")
            );
            value.refuse(self.report, message);
        }
        let example = TLS.example_of("certificates");
        let certificates = certificates
            .map(|value| self.one_or_many(&value, example, Self::certificate))
            .unwrap_or_default();
        let acme = acme.and_then(|value| self.acme(&value));
        let client_ca = self.file(&mut fields, &TLS, "client_ca");
        let by_tls = acme.as_ref().is_some_and(|acme| acme.challenge == AcmeChallenge::TlsAlpn01);
        if client_ca.is_some() && by_tls {
            let message = "stands beside `challenge: tls-alpn-01`, got both: the authority has no client \
                           certificate; use `http-01`";
            fields.refuse("client_ca", self.report, message.to_owned());
        }
        self.origins.has_tls = true;
        self.origins.has_client_ca |= client_ca.is_some();
        let versions =
            |text: &str| units::choice(text, &[("1.2", TlsVersion::V12), ("1.3", TlsVersion::V13)]);
        let min_version = self.get(&mut fields, &TLS, "min_version", versions).unwrap_or_default();
        self.close(fields, &TLS);
        Some(TlsConfig { certificates, acme, client_ca, min_version })
    }

    fn certificate(&mut self, value: &Value<'_, '_>) -> Option<CertificateFiles> {
        let mut fields = self.open(value, &CERTIFICATE)?;
        let cert = self.need_file(&mut fields, &CERTIFICATE, "cert");
        let key = self.need_file(&mut fields, &CERTIFICATE, "key");
        self.close(fields, &CERTIFICATE);
        Some(CertificateFiles { cert: cert?, key: key? })
    }

    fn acme(&mut self, value: &Value<'_, '_>) -> Option<AcmeConfig> {
        let mut fields = self.open(value, &ACME)?;
        let domains = match self.value(&mut fields, &ACME, "domains") {
            Some(value) => self.one_or_many(&value, "[api.example.com]", |reader, item| {
                item.read("api.example.com", parse::domain, reader.report).ok()
            }),
            None => {
                self.require(&fields, &ACME, "domains");
                Vec::new()
            }
        };
        let challenge = |text: &str| {
            let words =
                [("http-01", AcmeChallenge::Http01), ("tls-alpn-01", AcmeChallenge::TlsAlpn01)];
            units::choice(text, &words)
        };
        let challenge = self.get(&mut fields, &ACME, "challenge", challenge).unwrap_or_default();
        let mut names = domains.iter().enumerate();
        if let Some((_, name)) = names.find(|(index, name)| domains[..*index].contains(name)) {
            let message = format!("has a name twice, got `{name}`; remove one");
            fields.refuse("domains", self.report, message);
        }
        let email = self.get(&mut fields, &ACME, "email", parse::email);
        let directory = self.get(&mut fields, &ACME, "directory", parse::url);
        let directory_ca = self.file(&mut fields, &ACME, "directory_ca");
        // Created by the gateway, so it need not exist.
        let state = self.need(&mut fields, &ACME, "state", parse::path);
        let profile = self.get(&mut fields, &ACME, "profile", parse::text);
        let renew_after = self.get(&mut fields, &ACME, "renew_after", parse::percent);
        let retry = self.get(&mut fields, &ACME, "retry", parse::duration);
        let external_account = self.value(&mut fields, &ACME, "external_account");
        let external_account = external_account.and_then(|value| self.external_account(&value));
        self.close(fields, &ACME);
        Some(AcmeConfig {
            domains,
            email,
            directory: directory.unwrap_or_else(|| LETS_ENCRYPT.to_owned()),
            directory_ca,
            state: self.base.join(state?),
            challenge,
            profile,
            renew_after_percent: renew_after.unwrap_or(RENEW_AFTER_PERCENT),
            retry: retry.unwrap_or(RETRY),
            external_account,
        })
    }

    fn external_account(&mut self, value: &Value<'_, '_>) -> Option<ExternalAccount> {
        let mut fields = self.open(value, &EXTERNAL_ACCOUNT)?;
        let id = self.need(&mut fields, &EXTERNAL_ACCOUNT, "id", parse::text);
        let key = self.need_file(&mut fields, &EXTERNAL_ACCOUNT, "key");
        self.close(fields, &EXTERNAL_ACCOUNT);
        Some(ExternalAccount { id: id?, key: key? })
    }

    /// Networks, one or a list.
    pub(super) fn networks(&mut self, value: &Value<'_, '_>) -> Vec<Network> {
        self.one_or_many(value, "[10.0.0.0/8]", Self::network)
    }

    pub(super) fn network(&mut self, value: &Value<'_, '_>) -> Option<Network> {
        let text = value.text("10.0.0.0/8", self.report).ok()?;
        network_of(text).map_err(|message| value.refuse(self.report, message)).ok()
    }
}
