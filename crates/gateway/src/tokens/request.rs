//! The request to a model: what it may cost, estimated before it is forwarded.
//!
//! ```text
//!   input    a token for every 3 bytes of names and texts, one for each number, 1600 for each
//!            image or file; on the high side for most languages
//!   output   the maximum that the request names, for each choice; else that of the configuration
//! ```

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Method};
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use sluicegate_config::gateway::tokens::{ModelApi, TokenClasses};
use sluicegate_rules::mapping::UsageUnit;

use super::input::InputText;
use super::prices::{ModelRates, TokenPlan};
use crate::body::RequestBody;
use crate::error::ProxyError;
use crate::identity::folded;

/// The largest number of output tokens of one choice, and of choices: more are denied by every
/// budget.
const OUTPUT_MAX: u64 = 1_000_000_000;
const CHOICES_MAX: u64 = 1_000_000;
/// Names of the model in logs.
const MODEL_BYTES_MAX: usize = 128;

const MALFORMED: ProxyError = ProxyError::TokensUnreadable("The body of the request is not JSON.");
const AMBIGUOUS: ProxyError =
    ProxyError::TokensUnreadable("The body of the request has a field twice, or in two cases.");

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelEndpoint {
    /// Chat completions, and what is like them.
    Chat,
    /// Completions of a prompt.
    Completions,
    /// The responses API.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Without output.
    Embeddings,
}

/// A request to a model.
#[derive(Debug)]
pub(crate) struct TokenRequest {
    pub(super) plan: Arc<TokenPlan>,
    pub(super) endpoint: ModelEndpoint,
    pub(super) model: Box<str>,
    pub(super) is_stream: bool,
    pub(super) estimate: TokenClasses,
    pub(super) choices: u64,
    pub(super) rates: ModelRates,
    /// What requests the usage of a stream, if the client did not.
    usage_request: Option<Edit>,
}

/// A replacement of a part of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    at: Range<usize>,
    text: &'static str,
}

/// Fields that decide about the cost.
#[derive(Debug, Default)]
struct RequestFields<'a> {
    model: Option<Cow<'a, str>>,
    is_stream: bool,
    max_output: Option<u64>,
    choices: Option<u64>,
    stream_options: Option<&'a RawValue>,
    has_messages: bool,
    input: InputText,
}

/// Fields that are read. None may occur twice, or in another case: servers differ in which one they
/// use.
const READ: [&str; 9] = [
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "messages",
];

impl TokenRequest {
    /// Estimates a request by its body.
    pub(crate) fn new(
        plan: &Arc<TokenPlan>,
        head: &Parts,
        body: &[u8],
    ) -> Result<Self, ProxyError> {
        let fields = RequestFields::parse(body)?;
        let endpoint = ModelEndpoint::of(plan.config.api, head.uri.path(), &fields);
        let model: &str = fields.model.as_deref().unwrap_or_default();
        let choices = fields.choices.unwrap_or(1).clamp(1, CHOICES_MAX);
        let output = match endpoint {
            ModelEndpoint::Embeddings => 0,
            _ => {
                let each = fields.max_output.unwrap_or(plan.config.max_output).min(OUTPUT_MAX);
                each.saturating_mul(choices)
            }
        };
        let estimate =
            TokenClasses { input: fields.input.tokens(), output, ..TokenClasses::default() };
        let reports_on_request = plan.config.stream_usage
            && plan.config.api == ModelApi::OpenAi
            && matches!(endpoint, ModelEndpoint::Chat | ModelEndpoint::Completions);
        let usage_request = match reports_on_request && fields.is_stream {
            true => usage_request(body, fields.stream_options)?,
            false => None,
        };
        Ok(Self {
            plan: plan.clone(),
            endpoint,
            rates: plan.rates(model)?,
            model: model.chars().take(MODEL_BYTES_MAX).collect(),
            is_stream: fields.is_stream,
            estimate,
            choices,
            usage_request,
        })
    }

    /// What it may cost; at least 1.
    pub(crate) fn estimated_cost(&self, unit: UsageUnit) -> u64 {
        self.rates.cost(unit, &self.estimate).max(1)
    }

    /// What tokens cost by its model.
    pub(crate) fn cost(&self, unit: UsageUnit, tokens: &TokenClasses) -> u64 {
        self.rates.cost(unit, tokens)
    }

    /// The API of its route.
    pub(super) fn api(&self) -> ModelApi {
        self.plan.config.api
    }

    /// Whether the client does not expect the usage at the end of the stream.
    pub(super) const fn hides_usage(&self) -> bool {
        self.usage_request.is_some()
    }

    /// Whether the client expects the usage at the end of the stream.
    pub(super) const fn expects_usage(&self) -> bool {
        self.is_stream && self.usage_request.is_none()
    }

    /// Requests the usage of a stream. The rest of the body stays as it is.
    pub(crate) fn request_usage(&self, head: &mut Parts, body: &mut RequestBody) {
        let (Some(edit), RequestBody::Buffered(buffered)) = (&self.usage_request, body) else {
            return;
        };
        let bytes = buffered.bytes();
        let (Some(before), Some(after)) = (bytes.get(..edit.at.start), bytes.get(edit.at.end..))
        else {
            return;
        };
        let edited = Bytes::from([before, edit.text.as_bytes(), after].concat());
        if head.headers.contains_key(CONTENT_LENGTH) {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(edited.len()));
        }
        buffered.replace(edited);
    }
}

/// Whether a request has a body that names a model: one without a body costs nothing, and so does
/// one that only counts tokens.
pub(crate) fn is_metered(plan: &TokenPlan, head: &Parts, body: &RequestBody) -> bool {
    let is_free = plan.config.api == ModelApi::Anthropic
        && head.uri.path().ends_with("/messages/count_tokens");
    !is_free
        && !body.is_empty()
        && !matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS)
}

impl ModelEndpoint {
    fn of(api: ModelApi, path: &str, fields: &RequestFields<'_>) -> Self {
        let path = path.trim_end_matches('/');
        match api {
            ModelApi::Anthropic => Self::Messages,
            ModelApi::OpenAi if path.ends_with("/responses") => Self::Responses,
            ModelApi::OpenAi if path.ends_with("/embeddings") => Self::Embeddings,
            ModelApi::OpenAi if fields.has_messages => Self::Chat,
            ModelApi::OpenAi if path.ends_with("/completions") => Self::Completions,
            ModelApi::OpenAi => Self::Responses,
        }
    }
}

impl<'a> RequestFields<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, ProxyError> {
        let members = Members::parse(body)?;
        let mut fields = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in &members.0 {
            let known = READ.iter().find(|known| folded(known).eq(folded(name)));
            if let Some(known) = known {
                if known != name || seen.contains(known) {
                    return Err(AMBIGUOUS);
                }
                seen.push(known);
            }
            let count = || value.get().parse::<u64>().ok();
            match &**name {
                "model" => fields.model = serde_json::from_str(value.get()).ok().map(Cow::Owned),
                "stream" => fields.is_stream = value.get() == "true",
                "stream_options" => fields.stream_options = Some(value),
                "max_tokens" | "max_completion_tokens" | "max_output_tokens" => {
                    fields.max_output = fields.max_output.max(count());
                }
                "n" | "best_of" => fields.choices = fields.choices.max(count()),
                "user" | "metadata" => {}
                name => {
                    fields.has_messages |= name == "messages";
                    if value.get().starts_with(['"', '[', '{']) {
                        fields.input.add(value.get()).ok_or(MALFORMED)?;
                    }
                }
            }
        }
        Ok(fields)
    }
}

/// The members of an object, as they are written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn parse(text: &'a [u8]) -> Result<Self, ProxyError> {
        let mut json = serde_json::Deserializer::from_slice(text);
        let members = json.deserialize_map(MembersVisitor).map_err(|_| MALFORMED)?;
        json.end().map_err(|_| MALFORMED)?;
        Ok(members)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Members<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = entries.next_key::<String>()? {
            // Further ones are no fields of an API.
            if members.len() == 1_000 {
                return Err(A::Error::custom("too many members"));
            }
            members.push((name, entries.next_value()?));
        }
        Ok(Members(members))
    }
}

/// What has to be written so that the last event of a stream has the usage; nothing if the client
/// requests it.
fn usage_request(body: &[u8], options: Option<&RawValue>) -> Result<Option<Edit>, ProxyError> {
    let offset = |part: &str| part.as_ptr().addr().checked_sub(body.as_ptr().addr());
    let Some(options) = options else {
        // A body of a stream has a member already.
        let open = body.iter().position(|byte| *byte == b'{').ok_or(MALFORMED)? + 1;
        let text = r#""stream_options":{"include_usage":true},"#;
        return Ok(Some(Edit { at: open..open, text }));
    };
    let start = offset(options.get()).ok_or(MALFORMED)?;
    if options.get() == "null" {
        let text = r#"{"include_usage":true}"#;
        return Ok(Some(Edit { at: start..start + "null".len(), text }));
    }
    let members = Members::parse(options.get().as_bytes())?.0;
    let mut same = members.iter().filter(|(name, _)| folded(name).eq("include_usage".chars()));
    match (same.next(), same.next()) {
        (None, _) => {
            let text = match members.is_empty() {
                true => r#""include_usage":true"#,
                false => r#""include_usage":true,"#,
            };
            Ok(Some(Edit { at: start + 1..start + 1, text }))
        }
        (Some((name, value)), None) if name == "include_usage" => {
            let at = offset(value.get()).ok_or(MALFORMED)?;
            let edit = Edit { at: at..at + value.get().len(), text: "true" };
            Ok((value.get() != "true").then_some(edit))
        }
        _ => Err(AMBIGUOUS),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn fields(body: &str) -> Result<RequestFields<'_>, ProxyError> {
        RequestFields::parse(body.as_bytes())
    }

    #[test]
    fn the_output_is_the_maximum_of_the_request() {
        for (body, expected) in [
            (r#"{"max_tokens":5}"#, Some(5)),
            (r#"{"max_tokens":1,"max_completion_tokens":7}"#, Some(7)),
            (r#"{"max_output_tokens":9}"#, Some(9)),
            (r#"{"max_tokens":null}"#, None),
            (r#"{"max_tokens":-5}"#, None),
            (r#"{"max_tokens":1.5}"#, None),
            (r#"{"max_tokens":"5"}"#, None),
        ] {
            assert_eq!(fields(body).unwrap().max_output, expected, "{body}");
        }
        assert_eq!(fields(r#"{"n":3,"best_of":2}"#).unwrap().choices, Some(3));
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for (body, expected) in [
            (r#"{"model":"a","model":"b"}"#, AMBIGUOUS),
            (r#"{"model":"a","Model":"b"}"#, AMBIGUOUS),
            (r#"{"MAX_TOKENS":5}"#, AMBIGUOUS),
            (r#"{"m\u006fdel":"a","model":"b"}"#, AMBIGUOUS),
            (r#"["model"]"#, MALFORMED),
            (r#"{"model":"a"} x"#, MALFORMED),
            ("", MALFORMED),
            (r#"{"model":"a""#, MALFORMED),
        ] {
            assert_eq!(fields(body).err(), Some(expected), "{body}");
        }
        let deep = format!(r#"{{"messages":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
        assert_eq!(fields(&deep).err(), Some(MALFORMED));
    }

    fn edited(body: &str) -> Option<String> {
        let fields = fields(body).unwrap();
        let edit = usage_request(body.as_bytes(), fields.stream_options).unwrap()?;
        let mut text = body.to_owned();
        text.replace_range(edit.at, edit.text);
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        Some(text)
    }

    #[test]
    fn the_usage_is_requested_and_the_rest_stays_as_it_is() {
        for (body, expected) in [
            (
                r#" { "stream" : true , "x":1}"#,
                Some(r#" {"stream_options":{"include_usage":true}, "stream" : true , "x":1}"#),
            ),
            (
                r#"{"stream":true,"stream_options": null }"#,
                Some(r#"{"stream":true,"stream_options": {"include_usage":true} }"#),
            ),
            (
                r#"{"stream_options":{},"stream":true}"#,
                Some(r#"{"stream_options":{"include_usage":true},"stream":true}"#),
            ),
            (
                r#"{"stream_options":{ "x":[1]},"stream":true}"#,
                Some(r#"{"stream_options":{"include_usage":true, "x":[1]},"stream":true}"#),
            ),
            (
                r#"{"stream_options":{"include_usage" : false},"stream":true}"#,
                Some(r#"{"stream_options":{"include_usage" : true},"stream":true}"#),
            ),
            (r#"{"stream_options":{"include_usage": true},"stream":true}"#, None),
        ] {
            assert_eq!(edited(body).as_deref(), expected, "{body}");
        }
        let twice = r#"{"include_usage":true,"include_usage":false}"#;
        let options: &RawValue = serde_json::from_str(twice).unwrap();
        assert_eq!(usage_request(twice.as_bytes(), Some(options)), Err(AMBIGUOUS));
    }

    proptest! {
        #[test]
        fn an_edit_adds_one_member_and_nothing_else(
            names in proptest::collection::btree_map("[a-c]{1,2}", "[a-z\"\\\\]{0,4}", 0..4), pretty: bool,
        ) {
            let mut body: Value = json!(names);
            body["stream"] = true.into();
            let text = if pretty { format!("{body:#}") } else { body.to_string() };
            let read: Value = serde_json::from_str(&edited(&text).unwrap()).unwrap();
            body["stream_options"] = json!({ "include_usage": true });
            prop_assert_eq!(read, body);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RequestFields::parse(&bytes);
        }
    }
}
