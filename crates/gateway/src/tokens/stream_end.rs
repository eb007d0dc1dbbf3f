//! The events that end a stream in the form of its API, as if the model had reached its maximum of
//! tokens: clients show what has come, and know that it is incomplete.

use sluicegate_config::gateway::tokens::TokenClasses;

use super::request::{ModelEndpoint, TokenRequest};
use super::usage::{Member, UsageReader};

/// What the final events repeat of the events before them, as it is written.
#[derive(Debug, Default)]
pub(super) struct StreamEnd {
    id: Option<Box<str>>,
    model: Option<Box<str>>,
    created: Option<Box<str>>,
    object: Option<Box<str>>,
    sequence: u64,
    /// The index of a content block that has not ended.
    block: Option<Box<str>>,
}

impl StreamEnd {
    /// An event passes.
    pub(super) fn observe(&mut self, event: &UsageReader) {
        // Control characters would be other lines of the stream.
        let text = |member| event.member(member).filter(|text| !text.chars().any(char::is_control));
        let set_once = |place: &mut Option<Box<str>>, members: [Member; 2]| {
            if place.is_none() {
                *place = members.into_iter().find_map(text).map(Box::from);
            }
        };
        set_once(&mut self.id, [Member::Id, Member::ResponseId]);
        set_once(&mut self.model, [Member::Model, Member::ResponseModel]);
        set_once(&mut self.created, [Member::Created, Member::ResponseCreated]);
        set_once(&mut self.object, [Member::Object, Member::Object]);
        if let Some(sequence) = text(Member::Sequence).and_then(|text| text.parse().ok()) {
            self.sequence = sequence;
        }
        match text(Member::Type) {
            Some(r#""content_block_start""#) => self.block = text(Member::Index).map(Box::from),
            Some(r#""content_block_stop""#) => self.block = None,
            _ => {}
        }
    }

    /// The final events. `used` is the reported usage, where the client expects one.
    pub(super) fn events(&self, request: &TokenRequest, used: &TokenClasses) -> String {
        let or_null = |text: &Option<Box<str>>| text.as_deref().unwrap_or("null").to_owned();
        let (id, model) = (or_null(&self.id), or_null(&self.model));
        let created = or_null(&self.created);
        let (input, output) = (used.total_input(), used.output);
        match request.endpoint {
            ModelEndpoint::Messages => {
                let block = self.block.as_ref().map(|index| {
                    format!(
                        "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n"
                    )
                });
                format!(
                    "{}event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"max_tokens\",\
                     \"stop_sequence\":null}},\"usage\":{{\"output_tokens\":{output}}}}}\n\n\
                     event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n",
                    block.unwrap_or_default()
                )
            }
            ModelEndpoint::Responses | ModelEndpoint::Embeddings => {
                let sequence = self.sequence.saturating_add(1);
                let total = used.total();
                format!(
                    "event: response.incomplete\ndata: {{\"type\":\"response.incomplete\",\"sequence_number\":{sequence},\
                     \"response\":{{\"id\":{id},\"object\":\"response\",\"created_at\":{created},\"model\":{model},\
                     \"status\":\"incomplete\",\"error\":null,\"incomplete_details\":{{\"reason\":\"max_output_tokens\"}},\
                     \"output\":[],\"usage\":{{\"input_tokens\":{input},\"output_tokens\":{output},\
                     \"total_tokens\":{total}}}}}}}\n\n"
                )
            }
            ModelEndpoint::Chat | ModelEndpoint::Completions => {
                let text = match request.endpoint {
                    ModelEndpoint::Chat => "\"delta\":{}",
                    _ => "\"text\":\"\"",
                };
                let choice = |index: u64| {
                    format!(
                        "{{\"index\":{index},{text},\"logprobs\":null,\"finish_reason\":\"length\"}}"
                    )
                };
                let choices: Vec<String> = (0..request.choices).map(choice).collect();
                let head = format!(
                    "{{\"id\":{id},\"object\":{},\"created\":{created},\"model\":{model}",
                    or_null(&self.object)
                );
                let choices = choices.join(",");
                let usage = match request.expects_usage() {
                    false => String::new(),
                    true => format!(
                        "data: {head},\"choices\":[],\"usage\":{{\"prompt_tokens\":{input},\
                         \"completion_tokens\":{output},\"total_tokens\":{}}}}}\n\n",
                        used.total()
                    ),
                };
                format!("data: {head},\"choices\":[{choices}]}}\n\n{usage}data: [DONE]\n\n")
            }
        }
    }
}
