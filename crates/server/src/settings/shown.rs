//! The settings as they are in effect, for operators to look at. Secrets are hidden.

use serde_json::{Value, json};
use sluicegate::http::Reset;

use super::Settings;

impl Settings {
    /// All of them as JSON, without secrets.
    ///
    /// ```
    /// use sluicegate_server::settings::{Settings, Vars};
    ///
    /// let (settings, _) = Settings::read(&Vars::of([("SLUICEGATE_ADMIN_TOKEN", "open sesame")]))?;
    /// let shown = settings.to_json();
    /// assert_eq!(shown["admin_token"], "hidden");
    /// assert!(!shown.to_string().contains("sesame"));
    /// # Ok::<(), sluicegate_server::settings::Wrong>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Value {
        let seconds = |time: &std::time::Duration| time.as_secs_f64();
        let path = |path: &std::path::Path| path.display().to_string();
        let headers = |names: &crate::rls::options::HeaderNames| json!({ "limit": names.limit, "remaining": names.remaining, "reset": names.reset });
        let traces = self.traces.as_ref().map(|traces| {
            json!({
                "endpoint": traces.endpoint.as_ref().map(ToString::to_string),
                "protocol": format!("{:?}", traces.protocol).to_lowercase(),
                "resource": traces.resource,
                "sampling_rate": traces.sampling_rate,
                "headers": if traces.headers.is_empty() { "none" } else { "hidden" },
            })
        });
        json!({
            "http": self.http.to_string(),
            "grpc": self.grpc.to_string(),
            "admin": self.admin.to_string(),
            "admin_token": self.admin_token.as_ref().map(|_| "hidden"),
            "resp": self.resp.map(|resp| resp.to_string()),
            "resp_password": self.resp_password.as_ref().map(|_| "hidden"),
            "rules": self.rules.iter().map(|rules| path(rules)).collect::<Vec<_>>(),
            "merge_domains": self.merge_domains,
            "ignore_dot_files": self.ignore_dot_files,
            "start_without_rules": self.start_without_rules,
            "needs_a_domain": self.needs_a_domain,
            "near_limit_ratio": (f64::from(self.near_limit_ratio) * 1e6).round() / 1e6,
            "shadow": self.rls.shadow_mode,
            "quota_mode": self.rls.quota_mode,
            "dynamic_metadata": self.rls.dynamic_metadata,
            "response_headers": self.rls.response_headers.as_ref().map(headers),
            "request_headers": self.rls.request_headers.as_ref().map(headers),
            "descriptors_max": self.rls.most.descriptors,
            "entries_max": self.rls.most.entries,
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
            "tls": self.tls.as_ref().map(|tls| json!({
                "cert": path(&tls.cert),
                "key": path(&tls.key),
                "client_ca": tls.client_ca.as_deref().map(path),
                "client_san": tls.client_san,
            })),
            "connection_age_s": seconds(&self.connection_age.0),
            "connection_age_grace_s": seconds(&self.connection_age.1),
            "connections_max": self.connections_max,
            "in_flight_max": self.in_flight_max,
            "reservations_max": self.reservations_max,
            "waiting_max": self.waiting_max,
            "drain_delay_s": seconds(&self.drain.0),
            "drain_timeout_s": seconds(&self.drain.1),
            "snapshot": self.snapshot.as_deref().map(path),
            "snapshot_every_s": seconds(&self.snapshot_every),
            "identities_max": self.identities_max,
            "log": {
                "level": format!("{:?}", self.log.level).to_lowercase(),
                "format": format!("{:?}", self.log.format).to_lowercase(),
                "per_second": self.log.per_second,
            },
            "traces": traces,
        })
    }
}
