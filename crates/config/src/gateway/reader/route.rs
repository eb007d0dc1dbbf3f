//! `routes`.

use sluicegate_rules::mapping::{Mapping, Part};

use super::{GatewayReader, is_mapping, parse, settle};
use crate::fields::{Fields, Value};
use crate::gateway::keys::{
    DENIAL, FILES, FORWARD, HEADERS, LIMIT, REDIRECT, RESPOND, ROUTE, SHAPE, Section,
};
use crate::gateway::route::{
    Action, Credential, DenialConfig, HeaderChanges, LimitConfig, OnLimit, OnMissing, RouteConfig,
    ShapeConfig,
};
use crate::gateway::source::{LimitOrigin, RouteOrigin};
use crate::problem::quoted;
use crate::rules::forward_auth;
use crate::suggest;
use crate::units::{self, UnitError};

/// Keys that say what answers a request.
const ACTIONS: [&str; 4] = ["upstream", "redirect", "files", "respond"];
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// Keeps method and body, and is cached.
const REDIRECT_STATUS: u16 = 308;

impl GatewayReader<'_> {
    /// All routes; `upstreams` are the names of the groups.
    pub(super) fn routes(
        &mut self,
        value: &Value<'_, '_>,
        upstreams: &[String],
    ) -> Vec<RouteConfig> {
        if !value.is_list() || value.items().len() == 0 {
            let got = value.node.described();
            let message = format!(
                "must be a list with at least one route, got {got}; write it like `[{}]`",
                ROUTE.example
            );
            value.refuse(self.report, message);
            return Vec::new();
        }
        let mut routes = Vec::new();
        for item in value.items() {
            let mut origin = RouteOrigin::new(item.at(), item.path.to_string());
            if let Some(route) = self.route(&item, upstreams, &mut origin) {
                routes.push(route);
                self.origins.routes.push(origin);
            }
        }
        routes
    }

    fn route(
        &mut self,
        value: &Value<'_, '_>,
        upstreams: &[String],
        origin: &mut RouteOrigin,
    ) -> Option<RouteConfig> {
        let mut fields = self.open(value, &ROUTE)?;
        let name = self.get(&mut fields, &ROUTE, "name", parse::text);
        let hosts = self.hosts(&mut fields);
        let path = self.value(&mut fields, &ROUTE, "path");
        if let Some(path) = &path {
            origin.path_at = path.at();
        }
        let path = self.need(&mut fields, &ROUTE, "path", parse::request_path);
        let methods = self.value(&mut fields, &ROUTE, "methods");
        let methods = methods.map(|value| {
            self.one_or_many(&value, "[GET]", |reader, item| {
                item.read("GET", parse::method, reader.report).ok()
            })
        });
        let action = self.action(&mut fields, upstreams, origin);
        let require = self.require_credential(&mut fields);
        let limit = self.value(&mut fields, &ROUTE, "limit");
        let has_limit = limit.is_some();
        let limit = limit.map(|value| self.limit(&value, origin));
        let on_limit = self.get(&mut fields, &ROUTE, "on_limit", on_limit);
        let shape = self.value(&mut fields, &ROUTE, "shape");
        let queue = self.value(&mut fields, &ROUTE, "queue");
        let denial = self.value(&mut fields, &ROUTE, "denial");
        for (name, is_written) in [
            ("on_limit", on_limit.is_some()),
            ("shape", shape.is_some()),
            ("queue", queue.is_some()),
            ("denial", denial.is_some()),
        ] {
            if is_written && !has_limit {
                let message = format!(
                    "has no effect, the route has no `limit`, got {}; add `limit: {}`, or remove it",
                    fields.written(name),
                    ROUTE.example_of("limit")
                );
                fields.refuse(name, self.report, message);
            }
        }
        if let (Some(_), Some(OnLimit::Deny | OnLimit::Mark | OnLimit::Queue)) = (&shape, on_limit)
        {
            let message = format!(
                "has no effect beside `on_limit: {}`, got {}; write `on_limit: shape`, or remove it",
                fields.written("on_limit"),
                fields.written("shape")
            );
            fields.refuse("shape", self.report, message);
        }
        let settled = limit.iter().flatten().find(|limit| limit.is_settled());
        let settled_by =
            settled.map(|limit| if limit.tokens.is_some() { "tokens" } else { "settle" });
        if let (Some(key), Some(OnLimit::Shape)) = (settled_by, on_limit) {
            let message = format!(
                "does not fit `limit.{key}`, whose requests do not wait, got `shape`; remove one"
            );
            fields.refuse("on_limit", self.report, message);
        }
        let queue = self.queue(&mut fields, queue, on_limit, settled_by, action.as_ref());
        let shape = shape.and_then(|value| self.shape(&value)).unwrap_or_default();
        let denial = denial.and_then(|value| self.denial(&value, origin)).unwrap_or_default();
        let mut changes = |name: &'static str| {
            let value = self.value(&mut fields, &ROUTE, name);
            value.and_then(|value| self.header_changes(&value, name, origin)).unwrap_or_default()
        };
        let request_headers = changes("request_headers");
        let response_headers = changes("response_headers");
        self.close(fields, &ROUTE);
        let path = path?;
        let route = RouteConfig {
            name: name.unwrap_or_else(|| path.clone()),
            hosts,
            path,
            methods: methods.unwrap_or_default(),
            action: action?,
            require,
            // A limit that cannot be read is a problem of the file: it is not left out silently.
            limit: limit.flatten(),
            on_limit: on_limit.unwrap_or_default(),
            shape,
            queue,
            denial,
            request_headers,
            response_headers,
        };
        Some(route)
    }

    /// `host` and `hosts`, which mean the same.
    fn hosts(&mut self, fields: &mut Fields<'_>) -> Vec<String> {
        let host = self.value(fields, &ROUTE, "host");
        let hosts = self.value(fields, &ROUTE, "hosts");
        if host.is_some() && hosts.is_some() {
            let message = "stands beside `hosts`, got both; keep one of them".to_owned();
            fields.refuse("host", self.report, message);
        }
        let mut read: Vec<String> = Vec::new();
        for value in [host, hosts].into_iter().flatten() {
            read.extend(self.one_or_many(&value, "[api.example.com]", |reader, item| {
                item.read("api.example.com", parse::host, reader.report).ok()
            }));
        }
        read
    }

    fn action(
        &mut self,
        fields: &mut Fields<'_>,
        upstreams: &[String],
        origin: &mut RouteOrigin,
    ) -> Option<Action> {
        let values = ACTIONS.map(|name| (name, self.value(fields, &ROUTE, name)));
        let mut written = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let Some((name, value)) = written.next() else {
            if ACTIONS.iter().all(|name| fields.written(name) == "nothing") {
                let remedy = format!("write one of {}", suggest::one_of(&ACTIONS));
                fields.missing("upstream", &format!("say what answers: {remedy}"), self.report);
            }
            return None;
        };
        if let Some((other, _)) = written.next() {
            let message = format!("stands beside `{name}`, got both; keep one of them");
            fields.refuse(other, self.report, message);
        }
        origin.record(name, value.at(), value.path.to_string());
        match name {
            "upstream" => self.forward(&value, upstreams),
            "redirect" => self.redirect(&value),
            "files" => self.files(&value),
            _ => self.respond(&value),
        }
    }

    fn forward(&mut self, value: &Value<'_, '_>, upstreams: &[String]) -> Option<Action> {
        if !is_mapping(value) {
            let upstream = self.upstream_index(value, upstreams)?;
            return Some(Action::Forward { upstream, strip_prefix: None, host: None });
        }
        let mut fields = self.open(value, &FORWARD)?;
        let upstream = match self.value(&mut fields, &FORWARD, "name") {
            Some(value) => self.upstream_index(&value, upstreams),
            None => {
                self.require(&fields, &FORWARD, "name");
                None
            }
        };
        let strip_prefix = self.get(&mut fields, &FORWARD, "strip_prefix", parse::plain_path);
        let host = self.get(&mut fields, &FORWARD, "host", parse::text);
        self.close(fields, &FORWARD);
        Some(Action::Forward { upstream: upstream?, strip_prefix, host })
    }

    fn upstream_index(&mut self, value: &Value<'_, '_>, upstreams: &[String]) -> Option<usize> {
        let name = value.text("api", self.report).ok()?;
        let index = upstreams.iter().position(|known| known == name);
        if index.is_none() {
            let got = quoted(name);
            let known: Vec<&str> = upstreams.iter().map(String::as_str).take(8).collect();
            let hint = suggest::hint(name, known.iter().copied());
            let remedy = match known.as_slice() {
                [] => format!("add `upstreams: {{ {name}: http://127.0.0.1:3000 }}`"),
                known => format!("{hint}the upstreams are {}", suggest::all_of(known)),
            };
            value.refuse(self.report, format!("unknown upstream, got {got}; {remedy}"));
        }
        index
    }

    fn redirect(&mut self, value: &Value<'_, '_>) -> Option<Action> {
        if !is_mapping(value) {
            let example = ROUTE.example_of("redirect");
            let to = value.read(example, parse::redirect_target, self.report).ok()?;
            return Some(Action::Redirect { to, status: REDIRECT_STATUS });
        }
        let mut fields = self.open(value, &REDIRECT)?;
        let to = self.need(&mut fields, &REDIRECT, "to", parse::redirect_target);
        let status = self.get(&mut fields, &REDIRECT, "status", parse::redirect_status);
        self.close(fields, &REDIRECT);
        Some(Action::Redirect { to: to?, status: status.unwrap_or(REDIRECT_STATUS) })
    }

    fn files(&mut self, value: &Value<'_, '_>) -> Option<Action> {
        if !is_mapping(value) {
            return Some(Action::Files { root: self.path(value)?, index: None });
        }
        let mut fields = self.open(value, &FILES)?;
        let root = self.need_file(&mut fields, &FILES, "root");
        let index = self.get(&mut fields, &FILES, "index", parse::text);
        self.close(fields, &FILES);
        Some(Action::Files { root: root?, index })
    }

    fn respond(&mut self, value: &Value<'_, '_>) -> Option<Action> {
        let mut fields = self.open(value, &RESPOND)?;
        let status = self.need(&mut fields, &RESPOND, "status", parse::response_status);
        let body = self.get(&mut fields, &RESPOND, "body", parse::any_text);
        let content_type = self.get(&mut fields, &RESPOND, "content_type", parse::header_value);
        self.close(fields, &RESPOND);
        let content_type = content_type.unwrap_or_else(|| PLAIN_TEXT.to_owned());
        Some(Action::Respond { status: status?, body: body.unwrap_or_default(), content_type })
    }

    fn require_credential(&mut self, fields: &mut Fields<'_>) -> Option<Credential> {
        let credential = self.get(fields, &ROUTE, "require", credential)?;
        let missing = match credential {
            Credential::ApiKey if !self.origins.has_api_keys => {
                "no API keys are configured, got `api_key`; add `identity: { api_keys: { file: keys.yaml } }`"
            }
            Credential::Jwt if !self.origins.has_jwt => {
                "no tokens can be verified, got `jwt`; add `identity: { jwt: { jwks: jwks.json, audience: api } }`"
            }
            Credential::ClientCertificate if !self.origins.has_client_ca => {
                "no listener asks for certificates, got `client_certificate`; add `tls: { client_ca: clients.pem }` to one"
            }
            _ => return Some(credential),
        };
        fields.refuse("require", self.report, missing.to_owned());
        Some(credential)
    }

    fn limit(&mut self, value: &Value<'_, '_>, origin: &mut RouteOrigin) -> Option<LimitConfig> {
        let mut fields = self.open(value, &LIMIT)?;
        let domain_at = self.value(&mut fields, &LIMIT, "domain").map(|value| value.at());
        let domain = self.need(&mut fields, &LIMIT, "domain", parse::text);
        let descriptors = match self.value(&mut fields, &LIMIT, "descriptors") {
            Some(value) => forward_auth::descriptors(&value, settle::descriptor, self.report).ok(),
            None => {
                self.require(&fields, &LIMIT, "descriptors");
                None
            }
        };
        let hits = self.get(&mut fields, &LIMIT, "hits", hits);
        if let Some(hits) = &hits {
            self.check_part(hits, value);
        }
        let on_missing = self.get(&mut fields, &LIMIT, "on_missing", on_missing);
        let on_missing = on_missing.unwrap_or_default();
        let (places, descriptors): (Vec<_>, Vec<_>) = descriptors.iter().flatten().cloned().unzip();
        let settle = self.value(&mut fields, &LIMIT, "settle");
        origin.settle = settle.as_ref().map(|value| (value.at(), value.path.to_string()));
        // Without descriptors their problem is reported, and no name is known.
        let settle = settle.filter(|_| !descriptors.is_empty());
        let settle = settle.map(|value| self.settle(&value, &descriptors)).unwrap_or_default();
        let tokens = self.value(&mut fields, &LIMIT, "tokens");
        let has_tokens = tokens.is_some();
        if let Some(value) = &tokens {
            origin.tokens = Some((value.at(), value.path.to_string()));
        }
        let tokens = tokens.and_then(|value| self.tokens(&value));
        let has_prices = tokens.as_ref().is_none_or(|(_, has_prices)| *has_prices);
        let tokens = tokens.map(|(tokens, _)| tokens);
        self.close(fields, &LIMIT);
        for ((at, path), one) in places.iter().zip(&descriptors) {
            self.check_parts_of_hits(one, *at, path);
            self.check_usage_unit(one, (has_tokens, has_prices), *at, path);
            for (_, part) in &one.entries {
                self.check_part_at(part, *at, path);
                if on_missing == OnMissing::Reject {
                    self.warn_of_unknown_addresses(part, *at, path);
                }
            }
        }
        let path = value.path.to_string();
        origin.limit = Some(LimitOrigin { at: domain_at?, path, descriptors: places });
        let mapping = Mapping { descriptors, hits };
        Some(LimitConfig { domain: domain?, mapping, on_missing, settle, tokens })
    }

    fn shape(&mut self, value: &Value<'_, '_>) -> Option<ShapeConfig> {
        let mut fields = self.open(value, &SHAPE)?;
        let default = ShapeConfig::default();
        let queue = self.get(&mut fields, &SHAPE, "queue", parse::queue_size);
        let max_wait = self.get(&mut fields, &SHAPE, "max_wait", parse::duration);
        let fair_by = self.get(&mut fields, &SHAPE, "fair_by", forward_auth::part);
        if let Some(part) = &fair_by {
            self.check_part(part, value);
        }
        self.close(fields, &SHAPE);
        Some(ShapeConfig {
            queue_max: queue.unwrap_or(default.queue_max),
            max_wait: max_wait.unwrap_or(default.max_wait),
            fair_by: fair_by.unwrap_or(default.fair_by),
        })
    }

    fn denial(&mut self, value: &Value<'_, '_>, origin: &mut RouteOrigin) -> Option<DenialConfig> {
        let mut fields = self.open(value, &DENIAL)?;
        let hide = self.value(&mut fields, &DENIAL, "hide");
        let hide = hide.map(|value| {
            self.one_or_many(&value, "[protective]", |reader, item| {
                let name = item.read("protective", parse::text, reader.report).ok()?;
                origin.hide.push((item.at(), item.path.to_string()));
                Some(name)
            })
        });
        let denial = DenialConfig {
            status: self.get(&mut fields, &DENIAL, "status", parse::denial_status),
            body: self.get(&mut fields, &DENIAL, "body", parse::any_text),
            content_type: self.get(&mut fields, &DENIAL, "content_type", parse::header_value),
            html: self.get(&mut fields, &DENIAL, "html", parse::any_text),
            hide: hide.unwrap_or_default(),
        };
        if denial.content_type.is_some() && fields.written("body") == "nothing" {
            let message = "is the type of `body`, got no body; add `body: …`, or remove it";
            fields.refuse("content_type", self.report, message.to_owned());
        }
        self.close(fields, &DENIAL);
        Some(denial)
    }

    fn header_changes(
        &mut self,
        value: &Value<'_, '_>,
        key: &str,
        origin: &mut RouteOrigin,
    ) -> Option<HeaderChanges> {
        let section: &Section = &HEADERS;
        let mut fields = self.open(value, section)?;
        let mut set = Vec::new();
        if let Some(value) = self.value(&mut fields, section, "set") {
            let example = section.example_of("set");
            if let Ok(mut pairs) = value.fields("`set`", example, self.report) {
                for (name, value) in pairs.all() {
                    let place = format!("{key}.set.{name}");
                    origin.record(place, value.at(), value.path.to_string());
                    if let Err(error) = parse::header_name(name) {
                        value.refuse(self.report, error.into_message());
                    }
                    if let Ok(text) = value.read("text", parse::header_template, self.report) {
                        set.push((name.to_owned(), text));
                    }
                }
            }
        }
        let remove = self.value(&mut fields, section, "remove");
        let remove = remove.map(|value| {
            self.one_or_many(&value, "[Server]", |reader, item| {
                let name = item.read("Server", parse::header_name, reader.report).ok()?;
                let place = format!("{key}.remove.{name}");
                origin.record(place, item.at(), item.path.to_string());
                Some(name)
            })
        });
        self.close(fields, section);
        Some(HeaderChanges { set, remove: remove.unwrap_or_default() })
    }
}

fn on_limit(text: &str) -> Result<OnLimit, UnitError> {
    let words = [
        ("deny", OnLimit::Deny),
        ("mark", OnLimit::Mark),
        ("shape", OnLimit::Shape),
        ("queue", OnLimit::Queue),
    ];
    units::choice(text, &words)
}

pub(super) fn hits(text: &str) -> Result<Part, UnitError> {
    forward_auth::number_part(text, forward_auth::part)
}

fn on_missing(text: &str) -> Result<OnMissing, UnitError> {
    units::choice(text, &[("reject", OnMissing::Reject), ("pass", OnMissing::Pass)])
}

fn credential(text: &str) -> Result<Credential, UnitError> {
    let words = [
        ("api_key", Credential::ApiKey),
        ("jwt", Credential::Jwt),
        ("client_certificate", Credential::ClientCertificate),
    ];
    units::choice(text, &words)
}
