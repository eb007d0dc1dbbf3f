//! `upstreams`: groups of servers.

use super::{GatewayReader, is_mapping, parse};
use crate::fields::Value;
use crate::gateway::GatewayConfig;
use crate::gateway::keys::{
    BALANCE, CONCURRENCY, EJECT, GATEWAY, HEALTH, UPSTREAM, UPSTREAM_TIMEOUTS, UPSTREAM_TLS,
};
use crate::gateway::route::Action;
use crate::gateway::upstream::{
    ADAPTIVE_MAX, ADAPTIVE_MIN, ADAPTIVE_START, AdaptiveConfig, Balance, CONCURRENCY_WAIT,
    CapacitySignal, ConcurrencyConfig, Ejection, HealthCheck, ServerConfig, UpstreamConfig,
    UpstreamProtocol, UpstreamTimeouts, UpstreamTls,
};
use crate::rules::forward_auth::part;
use crate::units;

impl GatewayReader<'_> {
    /// All groups, and their names: also of those with problems, which routes may name.
    pub(super) fn upstreams(
        &mut self,
        value: &Value<'_, '_>,
    ) -> (Vec<UpstreamConfig>, Vec<String>) {
        let example = GATEWAY.example_of("upstreams");
        let fields = value.fields("`upstreams`", example, self.report);
        let Ok(mut fields) = fields else { return (Vec::new(), Vec::new()) };
        let (mut upstreams, mut names) = (Vec::new(), Vec::new());
        for (name, value) in fields.all() {
            names.push(name.to_owned());
            // Indices of both lists agree.
            let upstream = self.upstream(name, &value);
            upstreams.push(upstream.unwrap_or_else(|| UpstreamConfig::new(name, Vec::new())));
        }
        let _ = fields.finish(self.report, |_| String::new());
        (upstreams, names)
    }

    /// A URL, a list of URLs, or a mapping.
    fn upstream(&mut self, name: &str, value: &Value<'_, '_>) -> Option<UpstreamConfig> {
        if !is_mapping(value) {
            return Some(UpstreamConfig::new(name, self.servers(value)));
        }
        let mut fields = self.open(value, &UPSTREAM)?;
        let mut upstream = UpstreamConfig::new(name, Vec::new());
        match self.value(&mut fields, &UPSTREAM, "servers") {
            Some(value) => upstream.servers = self.servers(&value),
            None => self.require(&fields, &UPSTREAM, "servers"),
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "balance") {
            upstream.balance = self.balance(&value).unwrap_or_default();
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "health") {
            upstream.health = self.health(&value);
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "eject") {
            upstream.eject = self.eject(&value).unwrap_or_default();
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "concurrency") {
            upstream.concurrency = self.concurrency(&value);
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "timeouts") {
            upstream.timeouts = self.upstream_timeouts(&value).unwrap_or_default();
        }
        if let Some(idle_max) = self.get(&mut fields, &UPSTREAM, "max_idle", parse::count) {
            upstream.idle_max = usize::try_from(idle_max).unwrap_or(usize::MAX);
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "tls") {
            let is_https = |one: &ServerConfig| one.protocol == UpstreamProtocol::Https;
            if !upstream.servers.is_empty() && !upstream.servers.iter().any(is_https) {
                let message = "has no effect, no server has the scheme `https`; correct the URLs, or remove it";
                value.refuse(self.report, message.to_owned());
            }
            upstream.tls = self.upstream_tls(&value).unwrap_or_default();
        }
        if let Some(value) = self.value(&mut fields, &UPSTREAM, "resolvers") {
            upstream.resolvers = self.one_or_many(&value, "[10.0.0.53:53]", |reader, item| {
                item.read("10.0.0.53:53", parse::address, reader.report).ok()
            });
        }
        self.close(fields, &UPSTREAM);
        Some(upstream)
    }

    fn servers(&mut self, value: &Value<'_, '_>) -> Vec<ServerConfig> {
        const EXAMPLE: &str = "http://127.0.0.1:3000";
        let mut servers: Vec<ServerConfig> = Vec::new();
        self.one_or_many(value, "[http://127.0.0.1:3000]", |reader, item| {
            let server = item.read(EXAMPLE, parse::server, reader.report).ok()?;
            if servers.contains(&server) {
                let message = format!("is listed twice, got `{server}`; remove one");
                item.refuse(reader.report, message);
            }
            servers.push(server);
            Some(())
        });
        servers
    }

    fn balance(&mut self, value: &Value<'_, '_>) -> Option<Balance> {
        if is_mapping(value) {
            let mut fields = self.open(value, &BALANCE)?;
            let hash = self.need(&mut fields, &BALANCE, "hash", part);
            self.close(fields, &BALANCE);
            let hash = hash?;
            self.check_part(&hash, value);
            return Some(Balance::Hash(hash));
        }
        let is_least = |text: &str| {
            units::choice(text, &[("round_robin", false), ("least_connections", true)])
        };
        let is_least = value.read("round_robin", is_least, self.report).ok()?;
        Some(if is_least { Balance::LeastConnections } else { Balance::RoundRobin })
    }

    /// The path, or a mapping.
    fn health(&mut self, value: &Value<'_, '_>) -> Option<HealthCheck> {
        let default = HealthCheck::default();
        if !is_mapping(value) {
            let path = value.read("/health", parse::plain_path, self.report).ok()?;
            return Some(HealthCheck { path, ..default });
        }
        let mut fields = self.open(value, &HEALTH)?;
        let path = self.get(&mut fields, &HEALTH, "path", parse::plain_path);
        let every = self.get(&mut fields, &HEALTH, "every", parse::duration);
        let timeout = self.get(&mut fields, &HEALTH, "timeout", parse::duration);
        let healthy = self.get(&mut fields, &HEALTH, "healthy_after", parse::count_from_1);
        let unhealthy = self.get(&mut fields, &HEALTH, "unhealthy_after", parse::count_from_1);
        let status = self.get(&mut fields, &HEALTH, "status", parse::status_range);
        self.close(fields, &HEALTH);
        Some(HealthCheck {
            path: path.unwrap_or(default.path),
            every: every.unwrap_or(default.every),
            timeout: timeout.unwrap_or(default.timeout),
            healthy_after: healthy.unwrap_or(default.healthy_after),
            unhealthy_after: unhealthy.unwrap_or(default.unhealthy_after),
            status: status.unwrap_or(default.status),
        })
    }

    /// The number, or a mapping.
    fn concurrency(&mut self, value: &Value<'_, '_>) -> Option<ConcurrencyConfig> {
        if !is_mapping(value) {
            let max = value.read("100", parse::count_from_1, self.report).ok()?;
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            return Some(ConcurrencyConfig { max, adaptive: None, max_wait: CONCURRENCY_WAIT });
        }
        let section = &CONCURRENCY;
        let mut fields = self.open(value, section)?;
        let count = |reader: &mut Self, fields: &mut _, name| {
            let count = reader.get(fields, section, name, parse::count_from_1)?;
            Some(usize::try_from(count).unwrap_or(usize::MAX))
        };
        let max = count(self, &mut fields, "max");
        let signal = self.get(&mut fields, section, "adaptive", capacity_signal);
        let (min, start) = (count(self, &mut fields, "min"), count(self, &mut fields, "start"));
        let max_wait = self.get(&mut fields, section, "max_wait", parse::duration);
        let max_wait = max_wait.unwrap_or(CONCURRENCY_WAIT);
        if signal.is_none() && fields.written("adaptive") == "nothing" {
            for (name, written) in [("min", min), ("start", start)] {
                if written.is_some() {
                    let message = "has no effect, the limit is not adaptive; add `adaptive: latency`, or remove it";
                    fields.refuse(name, self.report, message.to_owned());
                }
            }
            if max.is_none() {
                let remedy = "write `max: 100`, or `adaptive: latency`";
                fields.missing("max", remedy, self.report);
            }
        }
        let highest = max.unwrap_or(ADAPTIVE_MAX);
        for (name, number) in [("min", min), ("start", start)] {
            if number.is_some_and(|number| number > highest) {
                let got = fields.written(name);
                let message = format!("must be at most `max`, `{highest}`, got {got}");
                fields.refuse(name, self.report, message);
            }
        }
        self.close(fields, section);
        let adaptive = signal.map(|signal| {
            let min = min.unwrap_or_else(|| ADAPTIVE_MIN.min(highest));
            let start = start.unwrap_or(ADAPTIVE_START).clamp(min, highest.max(min));
            AdaptiveConfig { signal, min, start }
        });
        let max = if adaptive.is_some() { Some(highest) } else { max };
        Some(ConcurrencyConfig { max: max?, adaptive, max_wait })
    }

    fn eject(&mut self, value: &Value<'_, '_>) -> Option<Ejection> {
        let mut fields = self.open(value, &EJECT)?;
        let failures = self.get(&mut fields, &EJECT, "failures", parse::count);
        let duration = self.get(&mut fields, &EJECT, "duration", parse::duration);
        self.close(fields, &EJECT);
        let default = Ejection::default();
        Some(Ejection {
            failures: failures.unwrap_or(default.failures),
            duration: duration.unwrap_or(default.duration),
        })
    }

    fn upstream_timeouts(&mut self, value: &Value<'_, '_>) -> Option<UpstreamTimeouts> {
        let section = &UPSTREAM_TIMEOUTS;
        let mut fields = self.open(value, section)?;
        let mut timeouts = UpstreamTimeouts::default();
        for (name, place) in [
            ("connect", &mut timeouts.connect),
            ("first_byte", &mut timeouts.first_byte),
            ("idle", &mut timeouts.idle),
        ] {
            if let Some(time) = self.get(&mut fields, section, name, parse::duration) {
                *place = time;
            }
        }
        timeouts.total = self.get(&mut fields, section, "total", parse::duration);
        self.close(fields, section);
        Some(timeouts)
    }

    fn upstream_tls(&mut self, value: &Value<'_, '_>) -> Option<UpstreamTls> {
        let section = &UPSTREAM_TLS;
        let mut fields = self.open(value, section)?;
        let tls = UpstreamTls {
            ca: self.file(&mut fields, section, "ca"),
            cert: self.file(&mut fields, section, "cert"),
            key: self.file(&mut fields, section, "key"),
            server_name: self.get(&mut fields, section, "server_name", parse::server_name),
        };
        if tls.cert.is_some() != tls.key.is_some() {
            let (name, other) = if tls.cert.is_some() { ("cert", "key") } else { ("key", "cert") };
            let message = format!("needs `{other}` beside it; add it, or remove both");
            fields.refuse(name, self.report, message);
        }
        self.close(fields, section);
        Some(tls)
    }

    /// Warns of groups that no route uses.
    pub(super) fn warn_of_unused(&mut self, value: &Value<'_, '_>, config: &GatewayConfig) {
        let uses = |index: usize| {
            config.routes.iter().any(|route| {
                matches!(route.action, Action::Forward { upstream, .. } if upstream == index)
            })
        };
        let Ok(mut fields) = value.fields("`upstreams`", "", self.report) else { return };
        // Routes with problems may be those that use them.
        if self.report.count() > 0 {
            return;
        }
        for (index, (_, value)) in fields.all().into_iter().enumerate() {
            if !uses(index) {
                let message = "no route uses it; add a route, or remove it".to_owned();
                self.report.warn(value.at(), value.path, message);
            }
        }
    }
}

fn capacity_signal(text: &str) -> Result<CapacitySignal, units::UnitError> {
    let words = [("latency", CapacitySignal::Latency), ("failures", CapacitySignal::Failures)];
    units::choice(text, &words)
}
