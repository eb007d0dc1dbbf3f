//! The effective settings as JSON for `/config`, without secrets.

use serde_json::{Value, json};
use sluicegate::http::Reset;

use super::{RedisServer, Settings, Store};
use crate::xds::XdsOptions;

impl Settings {
    /// The settings as JSON, without secrets.
    ///
    /// ```
    /// use sluicegate_server::settings::{Settings, Vars};
    ///
    /// let vars = Vars::new([("SLUICEGATE_ADMIN_TOKEN", "open sesame")]);
    /// let (settings, _) = Settings::read(&vars)?;
    /// let json = settings.to_json();
    /// assert_eq!(json["admin_token"], "hidden");
    /// assert!(!json.to_string().contains("sesame"));
    /// # Ok::<(), sluicegate_server::settings::SettingsError>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Value {
        let seconds = |time: &std::time::Duration| time.as_secs_f64();
        let path = |path: &std::path::Path| path.display().to_string();
        let headers = |names: &crate::rls::HeaderNames| json!({ "limit": names.limit, "remaining": names.remaining, "reset": names.reset });
        let traces = self.traces.as_ref().map(|traces| {
            json!({
                "endpoint": traces.endpoint.as_ref().map(ToString::to_string),
                "protocol": format!("{:?}", traces.protocol).to_lowercase(),
                "resource": traces.resource,
                "sampling_rate": traces.sampling_rate,
                "headers": if traces.headers.is_empty() { "none" } else { "hidden" },
            })
        });
        let tls = self.tls.as_ref().map(|tls| {
            json!({
                "cert": tls.certificates.first().map(|files| path(&files.cert)),
                "key": tls.certificates.first().map(|files| path(&files.key)),
                "client_ca": tls.client_ca.as_deref().map(path),
                "client_san": tls.client_san,
            })
        });
        let log = json!({
            "level": format!("{:?}", self.log.level).to_lowercase(),
            "format": format!("{:?}", self.log.format).to_lowercase(),
            "per_second": self.log.per_second,
        });
        json!({
            "http": self.http.to_string(),
            "grpc": self.grpc.to_string(),
            "admin": self.admin.to_string(),
            "admin_token": self.admin_token.as_ref().map(|_| "hidden"),
            "admin_tokens": self.admin_tokens.as_deref().map(path),
            "audit_log": self.audit_log.as_deref().map(path),
            "metrics": self.metrics.as_ref().map(|metrics| format!("{}{}", metrics.address, metrics.path)),
            "statsd": self.statsd.as_ref().map(|statsd| json!({
                "host": statsd.host,
                "port": statsd.port,
                "flush_interval_s": seconds(&statsd.flush_interval),
                "tags": statsd.tags,
            })),
            "resp": self.resp.map(|resp| resp.to_string()),
            "resp_password": self.resp_password.as_ref().map(|_| "hidden"),
            "rules": self.rules.paths.iter().map(|rules| path(rules)).collect::<Vec<_>>(),
            "rules_database": self.rules.database.as_ref().map(ToString::to_string),
            "rules_cache": self.rule_store.cache.as_deref().map(path),
            "rules_read_only": self.rule_store.read_only,
            "rules_approval": self.rule_store.require_approval,
            "xds": self.rules.xds.as_ref().map(xds),
            "merge_domains": self.rules.options.merge_domains,
            "metric_values": self.rules.metric_values,
            "ignore_dot_files": self.rules.files.ignore_dot_files,
            "start_without_rules": self.start_without_rules,
            "rules_removal_grace_s": seconds(&self.rules_removal_grace),
            "needs_a_domain": self.needs_domain,
            "near_limit_ratio": (f64::from(self.near_limit_ratio) * 1e6).round() / 1e6,
            "shadow": self.rls.shadow_mode,
            "quota_mode": self.rls.quota_mode,
            "dynamic_metadata": self.rls.dynamic_metadata,
            "refunds": self.rls.refunds.name(),
            "traffic_statistics": self.traffic_statistics,
            "unmatched": self.rls.unmatched.name(),
            "response_headers": self.rls.response_headers.as_ref().map(headers),
            "request_headers": self.rls.request_headers.as_ref().map(headers),
            "descriptors_max": self.rls.limits.descriptors,
            "entries_max": self.rls.limits.entries,
            "headers": match (self.style.x_headers, self.style.ietf_fields) {
                (true, true) => "both",
                (true, false) => "x-ratelimit",
                (false, true) => "ietf",
                (false, false) => "none",
            },
            "reset": match self.style.reset {
                Reset::UnixSeconds => "unix-seconds",
                Reset::UnixMillis => "unix-millis",
                Reset::SecondsToGo => "seconds-to-go",
            },
            "errors": if self.problem_json { "problem" } else { "envelope" },
            "tls": tls,
            "connection_age_s": seconds(&self.connection_age.0),
            "connection_age_grace_s": seconds(&self.connection_age.1),
            "connections_max": self.connections_max,
            "in_flight_max": self.in_flight_max,
            "reservations_max": self.reservations_max,
            "waiting_max": self.waiting_max,
            "memory_budget_bytes": self.memory_budget,
            "drain_delay_s": seconds(&self.drain.0),
            "drain_timeout_s": seconds(&self.drain.1),
            "store": store(&self.store),
            "snapshot": self.snapshot.as_deref().map(path),
            "snapshot_every_s": seconds(&self.snapshot_every),
            "identities_max": self.identities_max,
            "log": log,
            "traces": traces,
            "usage": self.usage.as_ref().map(|usage| json!({
                "directory": path(&usage.directory),
                "rules": usage.rules,
                "every_s": seconds(&usage.every),
                "identities_max": usage.identities_max,
                "retention_days": usage.retention_days,
            })),
            "webhook": self.webhook.as_ref().map(|webhook| json!({
                "url": webhook.to_string(),
                "secret": webhook.secret.as_ref().map(|_| "hidden"),
            })),
        })
    }
}

fn xds(options: &XdsOptions) -> Value {
    let XdsOptions { server, node_id, node_metadata, headers, tls, retry, message_bytes_max } =
        options;
    json!({
        "server": server,
        "node_id": node_id,
        "node_metadata": node_metadata,
        "headers": if headers.is_empty() { "none" } else { "hidden" },
        "tls": tls.as_ref().map(|tls| json!({
            "ca": tls.ca,
            "cert": tls.identity.as_ref().map(|(cert, _)| cert),
            "key": tls.identity.as_ref().map(|(_, key)| key),
            "server_name": tls.server_name,
        })),
        "retry_s": [retry.first.as_secs_f64(), retry.longest.as_secs_f64()],
        "message_bytes_max": message_bytes_max,
    })
}

fn store(store: &Store) -> Value {
    let Store::Redis(redis) = store else { return json!("memory") };
    json!({
        "server": server(&redis.server),
        "per_second": redis.per_second.as_ref().map(server),
        "timeout_s": redis.server.options.timeout.as_secs_f64(),
        "wait_replicas": redis.server.options.wait_replicas.map_or(0, |(replicas, _)| replicas),
        "namespace": redis.namespace,
        "health_needs_connection": redis.health_needs_connection,
        "compat": redis.compat.as_ref().map(|keys| json!({
            "keys": "envoy",
            "prefix": keys.prefix,
            "jitter_max_s": keys.jitter_max_s,
            "stop_increment_when_over": keys.stop_increment_when_over,
            "local_cache_bytes": keys.local_cache_bytes,
        })),
    })
}

fn server(server: &RedisServer) -> Value {
    let RedisServer { address, source, options } = server;
    json!({
        "address": address.to_string(),
        "told_by": source,
        "username": options.username,
        "password": options.password.as_ref().map(|_| "hidden"),
        "password_file": options.password_file,
        "sentinel_username": options.sentinel_username,
        "sentinel_password": options.sentinel_password.as_ref().map(|_| "hidden"),
        "tls": address.is_tls().then(|| json!({
            "ca": options.tls.ca,
            "cert": options.tls.client_cert,
            "key": options.tls.client_key,
            "skip_hostname_verification": options.tls.skip_hostname_verification,
        })),
        "connect_timeout_s": options.connect_timeout.as_secs_f64(),
        "connections": options.connections,
    })
}
