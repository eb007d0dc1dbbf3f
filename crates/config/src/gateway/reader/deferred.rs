//! `deferred`, and `queue` of routes.

use super::{GatewayReader, is_mapping, parse};
use crate::fields::{Fields, Value};
use crate::gateway::deferred::{CallbackPattern, DeferredConfig, DeferredPlace, QueueConfig};
use crate::gateway::keys::{DEFERRED, GATEWAY, PER_IDENTITY, QUEUE};
use crate::gateway::route::{Action, OnLimit};
use crate::problem::quoted;
use crate::units::UnitError;

impl GatewayReader<'_> {
    pub(super) fn deferred(&mut self, value: &Value<'_, '_>) -> Option<DeferredConfig> {
        let default = DeferredConfig::default();
        if !is_mapping(value) {
            let example = GATEWAY.example_of("deferred");
            let path = value.read(example, parse::path, self.report).ok()?;
            let path = self.base.join(path);
            self.refer_to(value, &path, true);
            return Some(DeferredConfig { place: DeferredPlace::File(path), ..default });
        }
        let mut fields = self.open(value, &DEFERRED)?;
        let path = self.any_file(&mut fields, &DEFERRED, "path", true);
        let store = self.get(&mut fields, &DEFERRED, "store", store);
        let has = |name| fields.written(name) != "nothing";
        match (has("path"), has("store")) {
            (true, true) => {
                let message = "stands beside `path`, got both; keep one of them".to_owned();
                fields.refuse("store", self.report, message);
            }
            (false, false) => {
                let remedy = "say where: add `path: deferred.redb`, or `store: redis`";
                fields.missing("path", remedy, self.report);
            }
            _ => {}
        }
        let config = DeferredConfig {
            tickets: self
                .get(&mut fields, &DEFERRED, "tickets", parse::plain_path)
                .map_or(default.tickets, |path| path.trim_end_matches('/').to_owned()),
            response_retention: self
                .get(&mut fields, &DEFERRED, "keep", parse::duration)
                .unwrap_or(default.response_retention),
            dead_retention: self
                .get(&mut fields, &DEFERRED, "keep_dead", parse::duration)
                .unwrap_or(default.dead_retention),
            bytes_max: self
                .get(&mut fields, &DEFERRED, "max_bytes", parse::bytes)
                .unwrap_or(default.bytes_max),
            place: path.map(DeferredPlace::File).or(store).unwrap_or(DeferredPlace::Redis),
        };
        self.close(fields, &DEFERRED);
        Some(config)
    }

    /// `queue` of a route, and whether its requests can be deferred.
    pub(super) fn queue(
        &mut self,
        fields: &mut Fields<'_>,
        queue: Option<Value<'_, '_>>,
        on_limit: Option<OnLimit>,
        settled_by: Option<&str>,
        action: Option<&Action>,
    ) -> QueueConfig {
        if queue.is_some() && !matches!(on_limit, None | Some(OnLimit::Queue)) {
            let message = format!(
                "has no effect beside `on_limit: {}`, got {}; write `on_limit: queue`, or remove it",
                fields.written("on_limit"),
                fields.written("queue")
            );
            fields.refuse("queue", self.report, message);
        }
        let problem = match (settled_by, action) {
            _ if on_limit != Some(OnLimit::Queue) => None,
            _ if !self.origins.has_deferred => Some(
                "needs a place for the requests, got `queue`; add `deferred: deferred.redb`".into(),
            ),
            (Some(key), _) => Some(format!(
                "does not fit `limit.{key}`, whose requests are charged by their response, got \
                 `queue`; remove one"
            )),
            (None, None | Some(Action::Forward { .. })) => None,
            (None, Some(_)) => Some(
                "needs an upstream, which processes the requests later, got `queue`; write `deny`, \
                 or add `upstream`"
                    .into(),
            ),
        };
        if let Some(problem) = problem {
            fields.refuse("on_limit", self.report, problem);
        }
        queue.and_then(|value| self.queue_bounds(&value)).unwrap_or_default()
    }

    fn queue_bounds(&mut self, value: &Value<'_, '_>) -> Option<QueueConfig> {
        let mut fields = self.open(value, &QUEUE)?;
        let default = QueueConfig::default();
        let body = self.get(&mut fields, &QUEUE, "max_bytes", parse::stored_bytes);
        let response = self.get(&mut fields, &QUEUE, "max_response_bytes", parse::stored_bytes);
        let age = self.get(&mut fields, &QUEUE, "max_age", parse::duration);
        let count = self.get(&mut fields, &QUEUE, "max_count", parse::deferred_count);
        let mut bounds = QueueConfig {
            body_bytes_max: body.unwrap_or(default.body_bytes_max),
            response_bytes_max: response.unwrap_or(default.response_bytes_max),
            age_max: age.unwrap_or(default.age_max),
            count_max: count.unwrap_or(default.count_max),
            ..default
        };
        if let Some(value) = self.value(&mut fields, &QUEUE, "per_identity")
            && let Some(mut fields) = self.open(&value, &PER_IDENTITY)
        {
            let count = self.get(&mut fields, &PER_IDENTITY, "count", parse::deferred_count);
            let bytes = self.get(&mut fields, &PER_IDENTITY, "bytes", parse::bytes);
            bounds.identity_count_max = count.unwrap_or(bounds.identity_count_max);
            bounds.identity_bytes_max = bytes.unwrap_or(bounds.identity_bytes_max);
            self.close(fields, &PER_IDENTITY);
        }
        let attempts = self.get(&mut fields, &QUEUE, "attempts", parse::attempts);
        bounds.attempts_max = attempts.unwrap_or(bounds.attempts_max);
        if let Some(value) = self.value(&mut fields, &QUEUE, "callback") {
            let example = QUEUE.example_of("callback");
            bounds.callbacks =
                self.one_or_many(&value, "[https://hooks.example.com/*]", |reader, item| {
                    item.read(example, callback, reader.report).ok()
                });
        }
        self.close(fields, &QUEUE);
        Some(bounds)
    }
}

fn store(text: &str) -> Result<DeferredPlace, UnitError> {
    crate::units::choice(text, &[("redis", ())]).map(|()| DeferredPlace::Redis)
}

fn callback(text: &str) -> Result<CallbackPattern, UnitError> {
    text.trim().parse().map_err(|()| {
        let got = quoted(text);
        UnitError::new(format!(
            "must be a URL with a path, got {got}; write it like `https://hooks.example.com/*`"
        ))
    })
}
