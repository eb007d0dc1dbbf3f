//! `GET /api/v1/openapi.json`: the OpenAPI document of the JSON API of operators.
//!
//! The handlers write JSON by hand; `paths` and `schema` describe it. A test sends real requests to
//! every path and validates the responses, so that neither has what the other lacks.

mod errors;
mod paths;
mod schema;
mod traffic;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa::openapi::schema::{AdditionalProperties, Schema};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{OpenApi as Document, RefOr};
use utoipa::{Modify, OpenApi};

use super::access::{Caller, Role};
use super::{AdminInner, session};

/// Where the document is.
pub(super) const PATH: &str = "/api/v1/openapi.json";

/// The document of the admin API.
///
/// ```
/// let document: serde_json::Value = serde_json::from_str(sluicegate_server::admin::openapi())?;
/// assert_eq!(document["paths"]["/api/v1/rules"]["get"]["x-role"], "read");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn openapi() -> &'static str {
    static DOCUMENT: LazyLock<String> =
        LazyLock::new(|| AdminDocument::openapi().to_json().unwrap_or_default());
    &DOCUMENT
}

pub(super) fn routes() -> Router<Arc<AdminInner>> {
    Router::new().route("/api/v1/openapi.json", get(document))
}

async fn document(caller: Caller) -> Result<Response, Response> {
    caller.require(Role::Read).map_err(|refused| *refused)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], openapi()).into_response())
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluicegate admin API",
        description = "For operators, on the admin address. `x-role` of an operation is the role that it needs: `read`, \
                       `operate` includes `read`, and `edit` includes both. Figures of traffic are those of the node that \
                       answers.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        paths::rules, paths::check_rules, paths::export_rules, paths::import_rules, paths::candidate,
        paths::nodes,
        paths::revisions, paths::propose, paths::revision, paths::approve, paths::activate,
        paths::withdraw, paths::rollback, paths::overrides, paths::add_override,
        paths::lift_override, paths::inspect, paths::reset, paths::credit, paths::explain,
        paths::usage, paths::audit, paths::document, traffic::overview, traffic::rules,
        traffic::rule, traffic::what_if, traffic::limited, traffic::talkers, traffic::events,
    ),
    servers(
        (url = "/", description = "The address that this document comes from."),
        (url = "http://127.0.0.1:6070", description = "The default admin address of `sluicegate serve`."),
    ),
    components(schemas(errors::AdminErrorResponse)),
    modifiers(&AdminSchemes, &ClosedObjects),
    tags(
        (name = "rules", description = "Rules and their revisions."),
        (name = "overrides", description = "Blocks and grants with an end."),
        (name = "keys", description = "Counters of identities."),
        (name = "traffic", description = "What this node has decided."),
        (name = "usage", description = "Usage records."),
        (name = "service", description = "Audit log, and this document."),
    ),
)]
struct AdminDocument;

/// Adds the ways to authenticate.
struct AdminSchemes;

impl Modify for AdminSchemes {
    fn modify(&self, document: &mut Document) {
        let description = "The token of `--admin-token-file` (role `edit`), or one of the file of `--admin-tokens`. Not \
                           required on loopback while no token is set.";
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
        let token = SecurityScheme::Http(scheme.description(Some(description)).build());
        let cookie = ApiKeyValue::with_description(session::COOKIE, "Session of the console.");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("admin_token", token);
        components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
        let requirement = |name: &str| SecurityRequirement::new(name, [""; 0]);
        document.security = Some(vec![
            SecurityRequirement::default(),
            requirement("admin_token"),
            requirement("session"),
        ]);
    }
}

/// Objects have the described fields only.
struct ClosedObjects;

impl Modify for ClosedObjects {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        for schema in components.schemas.values_mut() {
            if let RefOr::T(Schema::Object(object)) = schema
                && !object.properties.is_empty()
                && object.additional_properties.is_none()
            {
                object.additional_properties =
                    Some(Box::new(AdditionalProperties::FreeForm(false)));
            }
        }
    }
}
