//! Bodies of requests.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluicegate::config::rules::Source;
use sluicegate_rulestore::Activation;

use super::super::error;

/// A file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFileBody {
    name: String,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckRulesBody {
    pub(super) files: Vec<RuleFileBody>,
    /// The revision to compare with; the active one without it.
    #[serde(default)]
    pub(super) base: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProposalBody {
    pub(super) files: Vec<RuleFileBody>,
    #[serde(default)]
    pub(super) base: Option<u64>,
    #[serde(default)]
    pub(super) note: String,
    #[serde(default)]
    pub(super) activate: ActivateBody,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoteBody {
    #[serde(default)]
    pub(super) note: String,
    #[serde(default)]
    pub(super) base: Option<u64>,
}

/// `now`, `shadow` or a time.
#[derive(Debug, Default)]
pub(super) struct ActivateBody(Activation);

impl<'de> Deserialize<'de> for ActivateBody {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let activation = match text.as_str() {
            "now" => Activation::Now,
            "shadow" => Activation::Shadow,
            text => Activation::At(text.parse().map_err(|_| {
                serde::de::Error::custom(
                    "`activate` must be `now`, `shadow` or a time such as `2026-12-01T09:00:00Z`",
                )
            })?),
        };
        Ok(Self(activation))
    }
}

impl From<ActivateBody> for Activation {
    fn from(body: ActivateBody) -> Self {
        body.0
    }
}

impl From<RuleFileBody> for Source {
    fn from(RuleFileBody { name, text }: RuleFileBody) -> Self {
        Self { name, text }
    }
}

/// Decodes a body of JSON.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, Box<Response>> {
    serde_json::from_slice(body).map_err(|problem| {
        let message = format!("the body must be JSON of this form: {problem}");
        Box::new(error(StatusCode::BAD_REQUEST, "bad_request", &message))
    })
}
