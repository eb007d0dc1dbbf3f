//! The events of a response on their way to the client.
//!
//! An event is held until it is complete, so that one can be left out, and the stream can be ended
//! behind one. Events that are longer than the bound pass as they come.

use super::sse::{EventPart, EventReader};
use super::usage::UsageReader;

/// Bytes of an event that is held.
const HELD_MAX: usize = 64 << 10;

/// What happens to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventAction {
    Pass,
    /// It is left out.
    Drop,
    /// It is the last one.
    End,
}

/// A stream of events.
#[derive(Debug)]
pub(super) struct EventStream {
    reader: EventReader,
    usage: UsageReader,
    /// The beginning of an event.
    held: Vec<u8>,
    /// Whether the event passes as it comes.
    is_passing: bool,
}

impl EventStream {
    pub(super) const fn new(reader: EventReader, usage: UsageReader) -> Self {
        Self { reader, usage, held: Vec::new(), is_passing: false }
    }

    /// Reads a piece: what is sent of it, and whether the stream ends behind that.
    pub(super) fn read(
        &mut self,
        piece: &[u8],
        mut decide: impl FnMut(&UsageReader) -> EventAction,
    ) -> (Vec<u8>, bool) {
        let Self { reader, usage, held, is_passing } = self;
        let mut sent = Vec::with_capacity(held.len() + piece.len());
        let (mut from, mut has_ended) = (0, false);
        reader.read(piece, |part| match part {
            _ if has_ended => {}
            EventPart::Data(bytes) => usage.read(bytes),
            EventPart::End(at) => {
                let action = decide(usage);
                usage.restart();
                if action == EventAction::Drop && !*is_passing {
                    held.clear();
                } else {
                    sent.append(held);
                    sent.extend_from_slice(piece.get(from..at).unwrap_or_default());
                }
                (from, *is_passing) = (at, false);
                has_ended = action == EventAction::End;
            }
        });
        let rest = piece.get(from..).filter(|_| !has_ended).unwrap_or_default();
        if *is_passing || held.len() + rest.len() > HELD_MAX {
            *is_passing = true;
            sent.append(held);
            sent.extend_from_slice(rest);
        } else {
            held.extend_from_slice(rest);
        }
        (sent, has_ended)
    }

    /// The rest, which no blank line ends, and its usage.
    pub(super) fn finish(&mut self) -> (Vec<u8>, &UsageReader) {
        (std::mem::take(&mut self.held), &self.usage)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_config::gateway::tokens::ModelApi;

    use super::*;
    use crate::tokens::usage::ReportedUsage;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\n: ping\n\n\
        data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\n\
        data: [DONE]\n\ndata: cut";

    fn passed(
        stream: &[u8],
        cut: usize,
        decide: impl Fn(&UsageReader) -> EventAction,
    ) -> (String, ReportedUsage) {
        let usage = UsageReader::new(ModelApi::OpenAi);
        let mut events = EventStream::new(EventReader::default(), usage);
        let (mut out, mut reported) = (Vec::new(), ReportedUsage::default());
        for piece in stream.chunks(cut) {
            let (mut sent, has_ended) = events.read(piece, |usage| {
                usage.report(&mut reported);
                decide(usage)
            });
            out.append(&mut sent);
            if has_ended {
                return (String::from_utf8(out).unwrap(), reported);
            }
        }
        out.append(&mut events.finish().0);
        (String::from_utf8(out).unwrap(), reported)
    }

    #[test]
    fn a_long_event_passes_as_it_comes() {
        let long = format!(
            "data: {{\"choices\":[],\"x\":\"{}\"}}\n\ndata: 1\n\n",
            "x".repeat(2 * HELD_MAX)
        );
        let (out, _) = passed(long.as_bytes(), 1_000, |_| EventAction::Drop);
        assert_eq!(out.len(), long.len() - "data: 1\n\n".len());
    }

    proptest! {
        #[test]
        fn any_pieces_have_the_same_usage_and_leave_out_the_same(cut in 1_usize..90) {
            let (out, usage) = passed(STREAM.as_bytes(), cut, |_| EventAction::Pass);
            prop_assert_eq!(out, STREAM);
            prop_assert_eq!(usage.output, Some(4));
            prop_assert_eq!(usage.input(ModelApi::OpenAi).unwrap().input, 3);
            let (out, usage) = passed(STREAM.as_bytes(), cut, |usage| match usage.is_usage_alone() {
                true => EventAction::Drop,
                false => EventAction::Pass,
            });
            prop_assert_eq!(usage.output, Some(4));
            let (before, rest) = STREAM.split_once("data: {\"choices\":[],").unwrap();
            let (_, after) = rest.split_once("\n\n").unwrap();
            prop_assert_eq!(out, format!("{before}{after}"));
            let (out, _) = passed(STREAM.as_bytes(), cut, |usage| match usage.is_usage_alone() {
                true => EventAction::End,
                false => EventAction::Pass,
            });
            prop_assert_eq!(out, STREAM.split_once("data: [DONE]").unwrap().0);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1_usize..9) {
            let mut events = EventStream::new(EventReader::default(), UsageReader::new(ModelApi::Anthropic));
            for piece in bytes.chunks(cut) {
                events.read(piece, |_| EventAction::Pass);
            }
        }
    }
}
