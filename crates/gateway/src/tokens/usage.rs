//! What a response says about itself: its usage, its texts, and what ends it.

use std::sync::{Arc, LazyLock};

use sluicegate_config::gateway::tokens::{ModelApi, TokenClasses};

use crate::json_scanner::{JsonPath, JsonScanner, json_path};

/// Counts above this are not believed: no model has so long a context.
const REPORTED_MAX: u64 = 10_000_000;

/// Members of a response or an event, in the order of the paths below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Id,
    Model,
    Created,
    Object,
    Type,
    Index,
    Sequence,
    Choices,
    ResponseId,
    ResponseCreated,
    ResponseModel,
}

const MEMBERS: [&str; 11] = [
    "id",
    "model",
    "created",
    "object",
    "type",
    "index",
    "sequence_number",
    "choices",
    "response.id",
    "response.created_at",
    "response.model",
];

/// A count of tokens, and the members that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Figure {
    Input,
    Cached,
    CacheWrite,
    Output,
}

const OPENAI: [(Figure, &str); 9] = [
    (Figure::Input, "usage.prompt_tokens"),
    (Figure::Input, "usage.input_tokens"),
    (Figure::Input, "response.usage.input_tokens"),
    (Figure::Output, "usage.completion_tokens"),
    (Figure::Output, "usage.output_tokens"),
    (Figure::Output, "response.usage.output_tokens"),
    (Figure::Cached, "usage.prompt_tokens_details.cached_tokens"),
    (Figure::Cached, "usage.input_tokens_details.cached_tokens"),
    (Figure::Cached, "response.usage.input_tokens_details.cached_tokens"),
];

const ANTHROPIC: [(Figure, &str); 8] = [
    (Figure::Input, "usage.input_tokens"),
    (Figure::Output, "usage.output_tokens"),
    (Figure::Cached, "usage.cache_read_input_tokens"),
    (Figure::CacheWrite, "usage.cache_creation_input_tokens"),
    (Figure::Input, "message.usage.input_tokens"),
    (Figure::Output, "message.usage.output_tokens"),
    (Figure::Cached, "message.usage.cache_read_input_tokens"),
    (Figure::CacheWrite, "message.usage.cache_creation_input_tokens"),
];

/// Members whose texts are output. The first one is that of events of the responses API, whose
/// other events repeat the texts.
const TEXTS: [&str; 9] = [
    "delta",
    "content",
    "text",
    "arguments",
    "refusal",
    "reasoning",
    "reasoning_content",
    "thinking",
    "partial_json",
];

static OPENAI_PATHS: LazyLock<Arc<[JsonPath]>> = LazyLock::new(|| paths(&OPENAI));
static ANTHROPIC_PATHS: LazyLock<Arc<[JsonPath]>> = LazyLock::new(|| paths(&ANTHROPIC));

fn paths(figures: &[(Figure, &str)]) -> Arc<[JsonPath]> {
    let members = MEMBERS.iter().copied();
    members.chain(figures.iter().map(|(_, path)| *path)).map(json_path).collect()
}

/// What a response has reported so far. Counts of a stream are cumulative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ReportedUsage {
    /// Of OpenAI, the cached part is included.
    input: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    pub(super) output: Option<u64>,
    /// Whether a count was no whole number, or too large.
    pub(super) is_invalid: bool,
}

/// Texts that have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PassedOutput {
    /// Events with a text.
    events: u64,
    bytes: u64,
}

/// Reads the JSON of a response, or of one event after the other.
#[derive(Debug)]
pub(super) struct UsageReader {
    api: ModelApi,
    scanner: JsonScanner,
}

impl UsageReader {
    pub(super) fn new(api: ModelApi) -> Self {
        let paths = match api {
            ModelApi::OpenAi => &OPENAI_PATHS,
            ModelApi::Anthropic => &ANTHROPIC_PATHS,
        };
        Self { api, scanner: JsonScanner::counting(paths, &TEXTS) }
    }

    pub(super) fn read(&mut self, piece: &[u8]) {
        self.scanner.read(piece);
    }

    pub(super) fn restart(&mut self) {
        self.scanner.restart();
    }

    /// A member as it is written.
    pub(super) fn member(&self, member: Member) -> Option<&str> {
        str::from_utf8(self.scanner.value(member as usize)?).ok()
    }

    /// Whether the text has a usage, and no output: OpenAI's last event.
    pub(super) fn is_usage_alone(&self) -> bool {
        let is_empty = |choices: &str| {
            let inner = choices.trim().strip_prefix('[').and_then(|one| one.strip_suffix(']'));
            inner.is_some_and(|inner| inner.trim().is_empty())
        };
        self.member(Member::Choices).is_some_and(is_empty)
            && self.figures().any(|(_, value)| value.is_some())
    }

    fn figures(&self) -> impl Iterator<Item = (Figure, Option<&[u8]>)> {
        let figures: &[(Figure, &str)] = match self.api {
            ModelApi::OpenAi => &OPENAI,
            ModelApi::Anthropic => &ANTHROPIC,
        };
        let value = |(index, (figure, _)): (usize, &(Figure, &str))| {
            (*figure, self.scanner.value(MEMBERS.len() + index))
        };
        figures.iter().enumerate().map(value)
    }

    /// Adds the usage of a text that is complete, as far as it has one.
    pub(super) fn report(&self, usage: &mut ReportedUsage) {
        for (figure, value) in self.figures() {
            let Some(value) = value.filter(|value| *value != b"null") else { continue };
            let count = crate::settle::number(value).filter(|count| *count <= REPORTED_MAX);
            let place = match figure {
                Figure::Input => &mut usage.input,
                Figure::Cached => &mut usage.cached,
                Figure::CacheWrite => &mut usage.cache_write,
                Figure::Output => &mut usage.output,
            };
            match count {
                Some(count) => *place = Some(place.unwrap_or(0).max(count)),
                None => usage.is_invalid = true,
            }
        }
    }

    /// Adds the texts of a complete text, or of one that has broken off.
    pub(super) fn count(&self, passed: &mut PassedOutput) {
        let deltas = self.scanner.text_bytes(0);
        let is_response =
            self.member(Member::Type).is_some_and(|one| one.starts_with("\"response."));
        let bytes = match deltas == 0 && !is_response {
            true => (1..TEXTS.len()).map(|text| self.scanner.text_bytes(text)).sum(),
            false => deltas,
        };
        passed.bytes = passed.bytes.saturating_add(bytes);
        passed.events += u64::from(bytes > 0);
    }
}

impl ReportedUsage {
    /// The counts of input by class; `None` if there are none, or all are 0.
    pub(super) fn input(&self, api: ModelApi) -> Option<TokenClasses> {
        let (cached, cache_write) = (self.cached.unwrap_or(0), self.cache_write.unwrap_or(0));
        let input = self.input?;
        let input = match api {
            ModelApi::OpenAi => {
                let cached = cached.min(input);
                TokenClasses { input: input - cached, cached, ..TokenClasses::default() }
            }
            ModelApi::Anthropic => TokenClasses { input, cached, cache_write, output: 0 },
        };
        (input.total() > 0).then_some(input)
    }
}

impl PassedOutput {
    /// Output tokens of a stream, or of a whole response: one for each event, or for every 4 bytes
    /// where events have more than 8 bytes on average.
    pub(super) const fn tokens(&self) -> u64 {
        match self.bytes > self.events.saturating_mul(8) {
            true => self.bytes.div_ceil(4),
            false => self.events,
        }
    }

    /// Output tokens that a stream has at least: one for each event, and for every 8 bytes.
    pub(super) const fn tokens_min(&self) -> u64 {
        let by_bytes = self.bytes / 8;
        if by_bytes > self.events { by_bytes } else { self.events }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(api: ModelApi, texts: &[&str]) -> (ReportedUsage, PassedOutput) {
        let (mut reader, mut usage, mut passed) =
            (UsageReader::new(api), ReportedUsage::default(), PassedOutput::default());
        for text in texts {
            reader.read(text.as_bytes());
            reader.report(&mut usage);
            reader.count(&mut passed);
            reader.restart();
        }
        (usage, passed)
    }

    fn input(api: ModelApi, text: &str) -> Option<(u64, u64, u64)> {
        let input = read(api, &[text]).0.input(api)?;
        Some((input.input, input.cached, input.cache_write))
    }

    #[test]
    fn every_api_has_its_members() {
        use ModelApi::{Anthropic, OpenAi};
        let chat = r#"{"usage":{"prompt_tokens":12,"completion_tokens":5,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":8}}}"#;
        assert_eq!(input(OpenAi, chat), Some((4, 8, 0)));
        assert_eq!(read(OpenAi, &[chat]).0.output, Some(5));
        let response = r#"{"type":"response.completed","response":{"usage":{"input_tokens":9,"output_tokens":3,"input_tokens_details":{"cached_tokens":9}}}}"#;
        assert_eq!(input(OpenAi, response), Some((0, 9, 0)));
        let message = r#"{"usage":{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":6}}"#;
        assert_eq!(input(Anthropic, message), Some((3, 5, 4)));
        let stream = [
            r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":40}}"#,
            r#"{"type":"message_delta","usage":{"output_tokens":41}}"#,
        ];
        let (usage, _) = read(Anthropic, &stream);
        assert_eq!((usage.input(Anthropic).unwrap().input, usage.output), (3, Some(41)));
    }

    #[test]
    fn what_is_no_count_is_not_believed() {
        for (count, is_invalid) in [
            ("7", false),
            ("null", false),
            ("-1", true),
            ("1.5", true),
            ("1e3", true),
            ("\"7\"", true),
            ("10000001", true),
            ("99999999999999999999999", true),
        ] {
            let text = format!(r#"{{"usage":{{"completion_tokens":{count}}}}}"#);
            let (usage, _) = read(ModelApi::OpenAi, &[&text]);
            let expected = (count == "7").then_some(7);
            assert_eq!((usage.output, usage.is_invalid), (expected, is_invalid), "{count}");
        }
        assert_eq!(input(ModelApi::OpenAi, r#"{"usage":{"prompt_tokens":0}}"#), None);
        assert_eq!(
            input(
                ModelApi::OpenAi,
                r#"{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":9}}}"#
            ),
            Some((0, 5, 0))
        );
    }

    #[test]
    fn output_is_counted_once() {
        let chat = [
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hello "}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}"#,
            r#"{"choices":[],"usage":null}"#,
        ];
        let (_, passed) = read(ModelApi::OpenAi, &chat);
        assert_eq!(passed, PassedOutput { events: 2, bytes: 8 });
        let responses = [
            r#"{"type":"response.output_text.delta","delta":"Hello "}"#,
            r#"{"type":"response.output_text.done","text":"Hello "}"#,
            r#"{"type":"response.completed","response":{"output":[{"content":[{"text":"Hello "}]}]}}"#,
        ];
        let (_, passed) = read(ModelApi::OpenAi, &responses);
        assert_eq!(passed, PassedOutput { events: 1, bytes: 6 });
        assert_eq!(PassedOutput { events: 3, bytes: 15 }.tokens(), 3);
        assert_eq!(PassedOutput { events: 1, bytes: 41 }.tokens(), 11);
        assert_eq!(PassedOutput { events: 1, bytes: 41 }.tokens_min(), 5);
    }

    #[test]
    fn the_event_with_the_usage_alone_is_known() {
        let is_alone = |text: &str| {
            let mut reader = UsageReader::new(ModelApi::OpenAi);
            reader.read(text.as_bytes());
            reader.is_usage_alone()
        };
        assert!(is_alone(r#"{"choices":[ ],"usage":{"prompt_tokens":1}}"#));
        assert!(!is_alone(r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#));
        assert!(!is_alone(r#"{"choices":[],"usage":null}"#));
        assert!(!is_alone(r#"{"usage":{"prompt_tokens":1}}"#));
    }
}
