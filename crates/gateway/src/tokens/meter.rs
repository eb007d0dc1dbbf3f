//! Counts the tokens of a response while it passes, and decides what is charged at its end.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use sluicegate_config::gateway::tokens::TokenClasses;

use super::TokenRequest;
use super::event_stream::{EventAction, EventStream};
use super::sse::EventReader;
use super::stream_end::StreamEnd;
use super::usage::{PassedOutput, ReportedUsage, UsageReader};
use crate::exchange::CLIENT_CLOSED;
use crate::identity::is_json;

/// Tokens between two partial commits.
const COMMIT_EVERY: u64 = 32;

/// Where the counts of a response come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenReport {
    /// The provider has reported them.
    Reported,
    /// The provider has reported nothing: the estimate.
    Estimated,
    /// The response broke off, or was ended: what has passed.
    Partial,
    /// The provider has reported less than half of the output that has passed: that.
    Underreported,
    /// The provider has reported something that is no count: the estimate in its place.
    Invalid,
    /// There is no response, or it is an error: nothing.
    Failed,
}

impl TokenReport {
    pub(crate) const ALL: [Self; 6] = [
        Self::Reported,
        Self::Estimated,
        Self::Partial,
        Self::Underreported,
        Self::Invalid,
        Self::Failed,
    ];

    /// Its name, in logs and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Estimated => "estimated",
            Self::Partial => "partial",
            Self::Underreported => "underreported",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

/// A piece of a body on its way to the client.
#[derive(Debug)]
pub(crate) struct MeteredPiece {
    pub(crate) bytes: Bytes,
    /// Whether nothing of the upstream follows.
    pub(crate) is_last: bool,
}

/// Counts one response.
#[derive(Debug)]
pub(crate) struct TokenMeter {
    request: Arc<TokenRequest>,
    body: MeteredBody,
    usage: ReportedUsage,
    passed: PassedOutput,
    end: StreamEnd,
    /// Output tokens from which on the reservation is exceeded.
    commit_from: u64,
    /// Whether the whole response has come.
    is_complete: bool,
    is_ended: bool,
}

/// How a body is read.
#[derive(Debug)]
enum MeteredBody {
    /// Not at all: none yet, or another type.
    Unread,
    Json(Box<UsageReader>),
    Events(Box<EventStream>),
}

/// What a request has cost.
#[derive(Debug, Clone)]
pub(crate) struct TokenUsage {
    pub(crate) tokens: TokenClasses,
    pub(crate) report: TokenReport,
    /// Its price in millionths, if it is known.
    pub(crate) money: Option<u64>,
    pub(crate) model: Box<str>,
    pub(crate) is_ended: bool,
}

impl TokenMeter {
    pub(crate) fn new(request: Arc<TokenRequest>) -> Self {
        let commit_from = request.estimate.output.saturating_add(1);
        Self {
            request,
            body: MeteredBody::Unread,
            usage: ReportedUsage::default(),
            passed: PassedOutput::default(),
            end: StreamEnd::default(),
            commit_from,
            is_complete: false,
            is_ended: false,
        }
    }

    pub(crate) const fn request(&self) -> &Arc<TokenRequest> {
        &self.request
    }

    /// The head of the response; whether its events may be changed.
    pub(crate) fn respond(&mut self, headers: &HeaderMap) -> bool {
        let usage = UsageReader::new(self.request.api());
        if is_json(headers) {
            self.body = MeteredBody::Json(Box::new(usage));
        } else if is_event_stream(headers) {
            let events = EventStream::new(EventReader::default(), usage);
            self.body = MeteredBody::Events(Box::new(events));
            return true;
        }
        false
    }

    /// Reads a piece. `is_exhausted` charges what exceeds the reservation, and says whether the
    /// stream has to end.
    pub(crate) fn read(
        &mut self,
        piece: Bytes,
        mut is_exhausted: impl FnMut(&TokenRequest, Option<TokenClasses>) -> bool,
    ) -> MeteredPiece {
        let Self { request, usage, passed, end, commit_from, .. } = self;
        let events = match &mut self.body {
            MeteredBody::Unread => return MeteredPiece { bytes: piece, is_last: false },
            MeteredBody::Json(reader) => {
                reader.read(&piece);
                return MeteredPiece { bytes: piece, is_last: false };
            }
            MeteredBody::Events(events) => events,
        };
        let (mut sent, is_last) = events.read(&piece, |event| {
            event.report(usage);
            event.count(passed);
            end.observe(event);
            if request.hides_usage() && event.is_usage_alone() {
                return EventAction::Drop;
            }
            let output = passed.tokens_min().max(usage.output.unwrap_or(0));
            let exceeding = (output >= *commit_from).then(|| {
                *commit_from = output.saturating_add(COMMIT_EVERY);
                TokenClasses { output, ..input_of(request, usage) }
            });
            match is_exhausted(request, exceeding) {
                true => EventAction::End,
                false => EventAction::Pass,
            }
        });
        if is_last {
            self.is_ended = true;
            let used = self.passed();
            sent.extend_from_slice(self.end.events(&self.request, &used).as_bytes());
        }
        MeteredPiece { bytes: sent.into(), is_last }
    }

    /// The whole response has come; returns the rest to be sent.
    pub(crate) fn complete(&mut self) -> Bytes {
        self.is_complete = true;
        match &mut self.body {
            MeteredBody::Events(events) if !self.is_ended => events.finish().0.into(),
            _ => Bytes::new(),
        }
    }

    /// What has passed so far.
    fn passed(&self) -> TokenClasses {
        let output = self.passed.tokens().max(self.usage.output.unwrap_or(0));
        TokenClasses { output, ..input_of(&self.request, &self.usage) }
    }

    /// What is charged. `status` is that of the gateway if no response has come.
    pub(crate) fn finish(mut self, status: u16, has_response: bool) -> TokenUsage {
        match &mut self.body {
            MeteredBody::Unread => {}
            MeteredBody::Json(reader) => {
                reader.report(&mut self.usage);
                reader.count(&mut self.passed);
            }
            // An event that no blank line ends.
            MeteredBody::Events(events) if !self.is_ended => {
                let (_, reader) = events.finish();
                reader.report(&mut self.usage);
                reader.count(&mut self.passed);
            }
            MeteredBody::Events(_) => {}
        }
        let (tokens, report) = match has_response {
            true => self.charged(status),
            false => self.charged_without_response(status),
        };
        let money = self.request.rates.money(&tokens);
        let (model, is_ended) = (self.request.model.clone(), self.is_ended);
        TokenUsage { tokens, report, money, model, is_ended }
    }

    fn charged_without_response(&self, status: u16) -> (TokenClasses, TokenReport) {
        let estimate = self.request.estimate;
        match status {
            // A stream is cancelled with its client; other requests go on at the provider.
            CLIENT_CLOSED if self.request.is_stream => {
                (TokenClasses { output: 0, ..estimate }, TokenReport::Partial)
            }
            // The provider may answer, and bill.
            CLIENT_CLOSED | 504 => (estimate, TokenReport::Estimated),
            _ => (TokenClasses::default(), TokenReport::Failed),
        }
    }

    fn charged(&self, status: u16) -> (TokenClasses, TokenReport) {
        let (estimate, usage) = (self.request.estimate, &self.usage);
        let input = usage.input(self.request.api());
        let has_usage = input.is_some() || usage.output.is_some_and(|output| output > 0);
        if status >= StatusCode::BAD_REQUEST.as_u16() && !has_usage {
            return (TokenClasses::default(), TokenReport::Failed);
        }
        let passed = self.passed();
        let is_stream = matches!(self.body, MeteredBody::Events(_));
        // A response that is no stream is complete at the provider, whatever has come of it.
        let is_whole = !self.is_ended && (self.is_complete || !is_stream);
        let is_reported = has_usage && (usage.output.is_some() || estimate.output == 0);
        match is_whole {
            false => (passed, TokenReport::Partial),
            true if is_reported => {
                let output = usage.output.unwrap_or(0);
                let visible = self.passed.tokens();
                match output.saturating_mul(2) < visible {
                    true => {
                        (TokenClasses { output: visible, ..passed }, TokenReport::Underreported)
                    }
                    false if usage.is_invalid => {
                        (TokenClasses { output, ..passed }, TokenReport::Invalid)
                    }
                    false => (TokenClasses { output, ..passed }, TokenReport::Reported),
                }
            }
            true => {
                let report = match usage.is_invalid {
                    true => TokenReport::Invalid,
                    false => TokenReport::Estimated,
                };
                let output = estimate.output.max(passed.output);
                (TokenClasses { output, ..passed }, report)
            }
        }
    }
}

/// The input as reported, else as estimated.
fn input_of(request: &TokenRequest, usage: &ReportedUsage) -> TokenClasses {
    let estimate = TokenClasses { output: 0, ..request.estimate };
    usage.input(request.api()).unwrap_or(estimate)
}

/// Whether a body is a plain stream of events.
fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("text/event-stream") && !headers.contains_key(CONTENT_ENCODING)
}
