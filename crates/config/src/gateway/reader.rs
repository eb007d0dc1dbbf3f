//! Reads a gateway's file.
//!
//! Reading goes on after a problem, so that all are reported at once: a value that cannot be read
//! is left out, and the problem in the report prevents that the configuration is used.

mod checks;
mod deferred;
mod identity;
mod listener;
mod parse;
mod route;
mod settle;
mod tokens;
mod upstream;

use std::path::{Path, PathBuf};

use super::GatewayConfig;
use super::keys::{ACCESS, CONNECTIONS, GATEWAY, NETWORK_FILE, Section, TIMEOUTS};
use super::source::{FileReference, Origins};
use super::{AccessConfig, ConnectionLimits, NetworkList};
use crate::fields::{self, Field, Fields, Value, unknown};
use crate::problem::Report;
use crate::units::{self, UnitError};

/// A value of a file that has no problem so far.
pub(super) struct Read {
    pub(super) config: GatewayConfig,
    pub(super) origins: Origins,
}

/// Reads the sections of one file.
pub(super) struct GatewayReader<'r> {
    pub(super) report: &'r mut Report,
    /// Directory that paths are relative to.
    base: &'r Path,
    origins: Origins,
}

/// Reads a text; problems go to the report.
pub(super) fn read(text: &str, base: &Path, report: &mut Report) -> Option<Read> {
    let root = fields::document(text, GATEWAY.example, report).ok()?;
    let root = Value::root(&root);
    let source = report.source().to_owned();
    let mut reader = GatewayReader { report, base, origins: Origins::new(source) };
    let config = reader.gateway(&root)?;
    Some(Read { config, origins: reader.origins })
}

impl GatewayReader<'_> {
    fn gateway(&mut self, root: &Value<'_, '_>) -> Option<GatewayConfig> {
        let mut fields = self.open(root, &GATEWAY)?;
        let mut config = GatewayConfig::default();
        if let Some(value) = self.value(&mut fields, &GATEWAY, "listen") {
            self.origins.listen = Some(value.at());
            config.listeners =
                self.one_or_many(&value, GATEWAY.example_of("listen"), Self::listener);
        }
        config.admin = self.get(&mut fields, &GATEWAY, "admin", parse::address);
        config.webhook = self.get(&mut fields, &GATEWAY, "webhook", parse::webhook);
        let handover = self.get(&mut fields, &GATEWAY, "handover", parse::path);
        config.handover = handover.map(|path| self.base.join(path));
        self.origins.has_rules = fields.written("rules") != "nothing";
        if let Some(value) = self.value(&mut fields, &GATEWAY, "rules") {
            config.rules = self.one_or_many(&value, "rules.yaml", Self::path);
        }
        if let Some(value) = self.value(&mut fields, &GATEWAY, "trusted_proxies") {
            config.trusted_proxies = self.networks(&value);
        }
        if let Some(value) = self.value(&mut fields, &GATEWAY, "access") {
            config.access = self.access(&value);
        }
        if let Some(value) = self.value(&mut fields, &GATEWAY, "connections") {
            config.connections = self.connections(&value);
        }
        if let Some(value) = self.value(&mut fields, &GATEWAY, "timeouts") {
            self.timeouts(&value, &mut config);
        }
        if let Some(bytes) =
            self.get(&mut fields, &GATEWAY, "max_header_bytes", parse::header_bytes)
        {
            config.header_bytes_max = bytes;
        }
        config.body_bytes_max = self.get(&mut fields, &GATEWAY, "max_body_bytes", parse::bytes);
        if let Some(value) = self.value(&mut fields, &GATEWAY, "identity") {
            config.identity = self.identity(&value);
        }
        if let Some(value) = self.value(&mut fields, &GATEWAY, "access_log") {
            config.access_log = self.access_log(&value);
        }
        config.limit_headers =
            self.get(&mut fields, &GATEWAY, "limit_headers", units::truth).unwrap_or_default();
        config.request_id = self.get(&mut fields, &GATEWAY, "request_id", parse::header_name);
        if let Some(value) = self.value(&mut fields, &GATEWAY, "deferred") {
            self.origins.has_deferred = true;
            config.deferred = self.deferred(&value);
        }
        let upstreams = self.value(&mut fields, &GATEWAY, "upstreams");
        let mut known = Vec::new();
        if let Some(value) = &upstreams {
            (config.upstreams, known) = self.upstreams(value);
        }
        match self.value(&mut fields, &GATEWAY, "routes") {
            Some(value) => config.routes = self.routes(&value, &known),
            None => self.require(&fields, &GATEWAY, "routes"),
        }
        if let Some(value) = &upstreams {
            self.warn_of_unused(value, &config);
        }
        self.close(fields, &GATEWAY);
        self.cross_check(&config);
        Some(config)
    }

    fn access(&mut self, value: &Value<'_, '_>) -> AccessConfig {
        let Some(mut fields) = self.open(value, &ACCESS) else { return AccessConfig::default() };
        let mut list = |name: &'static str| {
            let value = self.value(&mut fields, &ACCESS, name);
            value.map(|value| self.network_list(&value)).unwrap_or_default()
        };
        let access = AccessConfig { allow: list("allow"), deny: list("deny") };
        self.close(fields, &ACCESS);
        access
    }

    /// Networks, and files of networks.
    fn network_list(&mut self, value: &Value<'_, '_>) -> NetworkList {
        let mut list = NetworkList::default();
        self.one_or_many(value, "[10.0.0.0/8, { file: list.txt }]", |reader, item| {
            if !is_mapping(item) {
                list.networks.push(reader.network(item)?);
                return Some(());
            }
            let mut fields = reader.open(item, &NETWORK_FILE)?;
            let file = reader.need_file(&mut fields, &NETWORK_FILE, "file");
            reader.close(fields, &NETWORK_FILE);
            list.files.push(file?);
            Some(())
        });
        list
    }

    fn connections(&mut self, value: &Value<'_, '_>) -> ConnectionLimits {
        let Some(mut fields) = self.open(value, &CONNECTIONS) else {
            return ConnectionLimits::default();
        };
        let limits = ConnectionLimits {
            open: self.get(&mut fields, &CONNECTIONS, "open", parse::count_from_1),
            rate: self.get(&mut fields, &CONNECTIONS, "rate", parse::rate),
            tls_rate: self.get(&mut fields, &CONNECTIONS, "tls_rate", parse::rate),
        };
        self.close(fields, &CONNECTIONS);
        limits
    }

    fn timeouts(&mut self, value: &Value<'_, '_>, config: &mut GatewayConfig) {
        let Some(mut fields) = self.open(value, &TIMEOUTS) else { return };
        let timeouts = &mut config.timeouts;
        for (name, place) in [
            ("header", &mut timeouts.header),
            ("body", &mut timeouts.body),
            ("idle", &mut timeouts.idle),
            ("tls_handshake", &mut timeouts.tls_handshake),
        ] {
            if let Some(time) = self.get(&mut fields, &TIMEOUTS, name, parse::duration) {
                *place = time;
            }
        }
        self.close(fields, &TIMEOUTS);
    }
}

/// Access to values, with the examples of the tables.
impl GatewayReader<'_> {
    /// Opens a mapping.
    fn open<'v>(&mut self, value: &'v Value<'_, '_>, section: &Section) -> Option<Fields<'v>> {
        value.fields(section.subject, section.example, self.report).ok()
    }

    /// Reports the fields that were not taken.
    fn close(&mut self, fields: Fields<'_>, section: &Section) {
        let _ = fields.finish(self.report, |key| unknown(key, &section.names()));
    }

    /// A field of any form, if it has a value.
    fn value<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        section: &Section,
        name: &'static str,
    ) -> Option<Value<'a, 'a>> {
        fields.filled(name, section.example_of(name), self.report).ok().flatten()
    }

    /// A scalar.
    fn get<T>(
        &mut self,
        fields: &mut Fields<'_>,
        section: &Section,
        name: &'static str,
        read: fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        let field = Field { name, example: section.example_of(name), read };
        fields.optional(&field, self.report).ok().flatten()
    }

    /// A scalar that must be there.
    fn need<T>(
        &mut self,
        fields: &mut Fields<'_>,
        section: &Section,
        name: &'static str,
        read: fn(&str) -> Result<T, UnitError>,
    ) -> Option<T> {
        let field = Field { name, example: section.example_of(name), read };
        fields.required(&field, self.report).ok()
    }

    /// Reports that a field is missing, unless it was reported already.
    fn require(&mut self, fields: &Fields<'_>, section: &Section, name: &'static str) {
        if fields.written(name) == "nothing" {
            let remedy = format!("add it, like `{name}: {}`", section.example_of(name));
            fields.missing(name, &remedy, self.report);
        }
    }

    /// One value, or a list that is not empty.
    fn one_or_many<T>(
        &mut self,
        value: &Value<'_, '_>,
        example: &str,
        mut read: impl FnMut(&mut Self, &Value<'_, '_>) -> Option<T>,
    ) -> Vec<T> {
        if !value.is_list() {
            return read(self, value).into_iter().collect();
        }
        let items = value.items();
        if items.len() == 0 {
            let message = format!(
                "must not be empty, got an empty list; write it like `{example}`, or remove the \
                 field"
            );
            value.refuse(self.report, message);
        }
        items.filter_map(|item| read(self, &item)).collect()
    }

    /// A path relative to the file; it need not exist.
    fn path(&mut self, value: &Value<'_, '_>) -> Option<PathBuf> {
        let path = value.read("rules.yaml", parse::path, self.report).ok()?;
        let path = self.base.join(path);
        self.refer_to(value, &path, false);
        Some(path)
    }

    /// Records a file.
    fn refer_to(&mut self, value: &Value<'_, '_>, file: &Path, is_created: bool) {
        self.origins.files.push(FileReference {
            at: value.at(),
            path: value.path.to_string(),
            file: file.to_owned(),
            is_created,
        });
    }

    /// A file that must exist.
    fn file(
        &mut self,
        fields: &mut Fields<'_>,
        section: &Section,
        name: &'static str,
    ) -> Option<PathBuf> {
        self.any_file(fields, section, name, false)
    }

    /// A file that must exist, unless the gateway creates it.
    fn any_file(
        &mut self,
        fields: &mut Fields<'_>,
        section: &Section,
        name: &'static str,
        is_created: bool,
    ) -> Option<PathBuf> {
        let value = self.value(fields, section, name)?;
        let path = value.read(section.example_of(name), parse::path, self.report).ok()?;
        let path = self.base.join(path);
        self.refer_to(&value, &path, is_created);
        Some(path)
    }

    fn need_file(
        &mut self,
        fields: &mut Fields<'_>,
        section: &Section,
        name: &'static str,
    ) -> Option<PathBuf> {
        let file = self.file(fields, section, name);
        if file.is_none() {
            self.require(fields, section, name);
        }
        file
    }
}

fn is_mapping(value: &Value<'_, '_>) -> bool {
    matches!(value.node.content, crate::yaml::Content::Mapping(_))
}
