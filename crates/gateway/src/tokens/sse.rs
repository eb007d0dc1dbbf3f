//! Events of a stream (WHATWG, server-sent events), found while it passes, in pieces of any size.
//!
//! Nothing is stored: the bytes of `data` are slices of the piece. Lines end with LF or CRLF.

/// A reader of one stream.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: LineState,
    /// Whether the event has anything but comments.
    has_lines: bool,
}

/// The place in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineState {
    /// So many bytes, which are the beginning of `data:`.
    Name(usize),
    /// Behind `data:`.
    Blank,
    Data,
    /// In another field, or in a comment.
    Other,
    /// Behind the CR that a blank line begins with.
    Return,
}

/// A part of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventPart<'a> {
    /// Bytes of `data`; a line break between its lines.
    Data(&'a [u8]),
    /// The event is complete, with so many bytes of the piece.
    End(usize),
}

const DATA: &[u8] = b"data:";

impl EventReader {
    /// Reads a piece.
    pub(super) fn read<'a>(&mut self, piece: &'a [u8], mut each: impl FnMut(EventPart<'a>)) {
        // Where the data begins that was not passed on.
        let mut data = 0;
        for (at, byte) in piece.iter().copied().enumerate() {
            match (self.line, byte) {
                // A line without data is an empty line of the event.
                (LineState::Data | LineState::Blank, b'\n') => {
                    if self.line == LineState::Blank {
                        data = at;
                    }
                    each(EventPart::Data(piece.get(data..=at).unwrap_or_default()));
                    self.line = LineState::Name(0);
                }
                (LineState::Data, _) => {}
                (LineState::Name(0) | LineState::Return, b'\n') => {
                    self.line = LineState::Name(0);
                    if std::mem::take(&mut self.has_lines) {
                        each(EventPart::End(at + 1));
                    }
                }
                (_, b'\n') => self.line = LineState::Name(0),
                (LineState::Name(0), b'\r') => self.line = LineState::Return,
                (LineState::Name(read), byte) => {
                    self.has_lines = true;
                    self.line = match DATA.get(read) {
                        Some(expected) if *expected == byte && read + 1 == DATA.len() => {
                            LineState::Blank
                        }
                        Some(expected) if *expected == byte => LineState::Name(read + 1),
                        _ => LineState::Other,
                    };
                }
                (LineState::Blank, byte) => {
                    data = if byte == b' ' { at + 1 } else { at };
                    self.line = LineState::Data;
                }
                (LineState::Other | LineState::Return, _) => self.line = LineState::Other,
            }
        }
        if self.line == LineState::Data
            && let Some(rest) = piece.get(data..)
            && !rest.is_empty()
        {
            each(EventPart::Data(rest));
        }
    }
}

impl Default for LineState {
    fn default() -> Self {
        Self::Name(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The data of each event, and where it ends in the stream.
    fn events(pieces: &[&[u8]]) -> Vec<(String, usize)> {
        let (mut reader, mut events, mut data, mut before) =
            (EventReader::default(), Vec::new(), Vec::new(), 0);
        for piece in pieces {
            reader.read(piece, |part| match part {
                EventPart::Data(bytes) => data.extend_from_slice(bytes),
                EventPart::End(at) => {
                    let text = String::from_utf8(std::mem::take(&mut data)).unwrap();
                    events.push((text.replace("\r\n", "\n").trim_end().to_owned(), before + at));
                }
            });
            before += piece.len();
        }
        events
    }

    #[test]
    fn the_data_of_an_event_is_that_of_its_lines() {
        let stream = "event: a\ndata: {\"x\":\ndata:1}\nid: 7\n\n: comment\n\ndata\n\n\n\ndataset: x\ndata:  two\n\n";
        let found: Vec<_> =
            events(&[stream.as_bytes()]).into_iter().map(|(text, _)| text).collect();
        assert_eq!(found, ["{\"x\":\n1}", "", "", " two"]);
        let empty_line = events(&[b"data:\ndata::\n\n"]);
        assert_eq!(empty_line[0].0, "\n:");
        assert_eq!(events(&[b"data: unfinished\n"]), []);
        assert_eq!(events(&[b"\n\r\n\n"]), []);
    }

    proptest! {
        #[test]
        fn any_pieces_have_the_same_events(
            lines in proptest::collection::vec(
                "(data: ?[a-z: ]{0,6}|event: x|:[a-z]{0,3}|datum|data|)", 0..12),
            is_crlf: bool, cut in 1_usize..9,
        ) {
            let ending = if is_crlf { "\r\n" } else { "\n" };
            let stream: String = lines.iter().map(|line| format!("{line}{ending}")).collect();
            let pieces: Vec<&[u8]> = stream.as_bytes().chunks(cut).collect();
            let whole = events(&[stream.as_bytes()]);
            prop_assert_eq!(&events(&pieces), &whole);
            let plain: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let texts = |found: &[(String, usize)]| {
                found.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>()
            };
            prop_assert_eq!(texts(&events(&[plain.as_bytes()])), texts(&whole));
        }
    }
}
