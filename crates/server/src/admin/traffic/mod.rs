//! Traffic statistics of this node, as JSON under `/api/v1/traffic` and as events.
//!
//! Every answer has `scope: node`: a node knows what it has decided itself. A value that is not
//! known is `null`, and `unknown` says why.

mod events;
pub(super) mod identities;
pub(super) mod overview;
mod query;
pub(super) mod rules;
pub(super) mod what_if;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use sluicegate::Timestamp;

use super::access::{Caller, Role};
use super::{AdminInner, error};
use crate::logs::rfc3339;
use crate::traffic::Traffic;

pub(super) use self::identities::Ranking;
pub(super) use self::rules::{Sort, rule_of};

/// Routes of the traffic statistics, of the role `read`.
pub(super) fn routes() -> Router<Arc<AdminInner>> {
    Router::new()
        .route("/api/v1/traffic", get(overview::overview))
        .route("/api/v1/traffic/rules", get(rules::list))
        .route("/api/v1/traffic/rules/{*id}", get(rules::one))
        .route(
            "/api/v1/traffic/what-if",
            post(what_if::post).layer(DefaultBodyLimit::max(what_if::BODY_BYTES_MAX)),
        )
        .route("/api/v1/events", get(events::events))
        .route("/api/v1/traffic/limited", get(identities::limited))
        .route("/api/v1/traffic/talkers", get(identities::talkers))
}

/// A response of an error.
#[derive(Debug)]
struct Refused(Box<Response>);

impl From<Box<Response>> for Refused {
    fn from(response: Box<Response>) -> Self {
        Self(response)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        *self.0
    }
}

/// The overview without series.
pub(crate) use overview::summary;

/// The statistics, for a caller who may read them.
fn traffic<'a>(admin: &'a AdminInner, caller: &Caller) -> Result<&'a Traffic, Box<Response>> {
    caller.require(Role::Read)?;
    admin.app.traffic().ok_or_else(|| {
        let message =
            "traffic statistics are off; remove SLUICEGATE_TRAFFIC_STATISTICS=false to have them";
        Box::new(error(StatusCode::CONFLICT, "traffic_off", message))
    })
}

/// A time in JSON.
fn time(at: Timestamp) -> Value {
    rfc3339(at).to_string().into()
}

fn optional_time(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, time)
}

/// Milliseconds since 1970, for the axes of plots.
const fn unix_ms(at: Timestamp) -> u64 {
    at.as_micros() / 1_000
}

/// A share with four digits behind the point; `null` of nothing.
fn share(part: u64, whole: u64) -> Value {
    match whole {
        0 => Value::Null,
        _ => json!((part as f64 / whole as f64 * 10_000.0).round() / 10_000.0),
    }
}
