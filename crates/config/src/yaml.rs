//! YAML text as a tree of nodes that know where they stand.
//!
//! The parser (`saphyr-parser`) gives a stream of events; here they become nodes: a scalar with its
//! text and whether it was quoted, a sequence, or a mapping that keeps its order and its duplicate
//! keys. What a scalar *means* (a number, a rate) is for whoever asks for it to say: `10/s` and
//! `1_000` are no types of YAML's.
//!
//! Everything is bounded, since a rule file may come from anywhere: the text, the nesting, and the
//! number of nodes. An alias stands for the node of its anchor and shares it, so it takes no
//! memory, but whoever walks the tree meets the node again each time; so an alias counts as all the
//! nodes it stands for, and a few lines of aliases to aliases cannot hold anybody up.
//!
//! Departures from YAML 1.2, all on the strict side: characters that YAML forbids are refused (the
//! parser would take a NUL for the end of the text), and so are tags beyond those of the core
//! schema, of which only `!!str` means something: a text that is not null.

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use crate::problem::{Position, on_one_line, quoted};

/// The longest text that is read.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;
/// How deeply sequences and mappings may be nested.
pub(crate) const DEPTH_MAX: usize = 64;
/// The most nodes of a text, aliases counted as all that they stand for.
pub(crate) const NODES_MAX: usize = 1_000_000;

/// A value and where it was written; cheap to clone.
///
/// A node met through an alias stands where its anchor does: that is the text to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) content: Content,
}

/// What a node holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Scalar {
        text: Rc<str>,
        style: Style,
    },
    Sequence(Rc<[Node]>),
    /// Keys and values in their order, duplicates included.
    Mapping(Rc<[(Node, Node)]>),
}

/// How a scalar was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Bare: `null` is null.
    Plain,
    /// In quotes, as a block, or tagged `!!str`: `"null"` is a word.
    Quoted,
}

/// Why a text is not YAML, or more than we read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) at: Position,
    pub(crate) message: String,
}

/// The one document of a text; `None` if there is none.
pub(crate) fn document(text: &str) -> Result<Option<Node>, Unreadable> {
    let mut documents = documents(text)?.into_iter();
    let first = documents.next();
    match documents.next() {
        None => Ok(first.map(|document| document.root)),
        Some(second) => {
            let message =
                "a second document begins here and only one is read; remove the line `---`";
            Err(unreadable(second.begins, message.to_owned()))
        }
    }
}

/// A document of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    /// Where it begins: its `---`, or its root.
    pub(crate) begins: Position,
    pub(crate) root: Node,
}

/// Every document of a text, in order.
pub(crate) fn documents(text: &str) -> Result<Vec<Document>, Unreadable> {
    refuse_long(text)?;
    refuse_unprintable(text)?;
    let mut parser = Parser::new_from_str(text);
    let mut documents = Vec::new();
    let mut begins = START;
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| not_yaml(&error, text))?;
        let at = position(&span.start);
        match event {
            Event::DocumentStart(_) => begins = at,
            Event::DocumentEnd => {
                let root = builder.root.take().unwrap_or_else(|| null(begins));
                documents.push(Document { begins, root });
                // Anchors end with their document; the count of nodes is that of the text.
                builder.anchors.clear();
            }
            event => builder.take(event, at)?,
        }
    }
    Ok(documents)
}

impl Node {
    /// Whether this is YAML's null: nothing at all, `~` or `null`, unquoted.
    pub(crate) fn is_null(&self) -> bool {
        match &self.content {
            Content::Scalar { text, style } => {
                let null = matches!(&**text, "" | "~" | "null" | "Null" | "NULL");
                null && *style == Style::Plain
            }
            Content::Sequence(_) | Content::Mapping(_) => false,
        }
    }

    /// What it is, for a message about it being something else.
    pub(crate) fn described(&self) -> String {
        match &self.content {
            Content::Scalar { .. } if self.is_null() => "nothing".to_owned(),
            Content::Scalar { text, .. } => quoted(text),
            Content::Sequence(_) => "a list".to_owned(),
            Content::Mapping(_) => "a mapping".to_owned(),
        }
    }
}

// === building the tree ===

const START: Position = Position { line: 1, column: 1 };

#[derive(Debug, Default)]
struct Builder {
    /// The sequences and mappings that are not closed yet, outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Built>,
    root: Option<Node>,
    /// Nodes so far, an alias counted as all that it stands for.
    nodes: usize,
}

/// A sequence or mapping being filled; a mapping's items are keys and values in turn.
#[derive(Debug)]
struct Open {
    at: Position,
    anchor: usize,
    mapping: bool,
    items: Vec<Node>,
    nodes: usize,
    height: usize,
}

/// A node with what it counts for.
#[derive(Debug, Clone)]
struct Built {
    node: Node,
    /// How many nodes it stands for, itself included.
    nodes: usize,
    /// How many sequences and mappings are nested in it, itself included.
    height: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: Position) -> Result<(), Unreadable> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, at)?;
                let plain = style == ScalarStyle::Plain && !is_text(tag.as_deref(), at)?;
                let style = if plain { Style::Plain } else { Style::Quoted };
                let text = Rc::from(&*text);
                let content = Content::Scalar { text, style };
                let node = Node { at, content };
                self.close(anchor, Built { node, nodes: 1, height: 0 })
            }
            Event::SequenceStart(anchor, tag) => self.open(anchor, tag.as_deref(), false, at),
            Event::MappingStart(anchor, tag) => self.open(anchor, tag.as_deref(), true, at),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.close(open.anchor, open.built()),
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(built) => {
                    let built = built.clone();
                    self.count(built.nodes, at)?;
                    self.close(0, built)
                }
                None => {
                    let message =
                        "an alias cannot stand inside what it refers to; write the value out";
                    Err(unreadable(at, message.to_owned()))
                }
            },
            // Documents are the caller's, the stream's ends mean nothing to a tree.
            _ => Ok(()),
        }
    }

    fn open(
        &mut self,
        anchor: usize,
        tag: Option<&Tag>,
        mapping: bool,
        at: Position,
    ) -> Result<(), Unreadable> {
        is_text(tag, at)?;
        self.count(1, at)?;
        self.open.push(Open { at, anchor, mapping, items: Vec::new(), nodes: 1, height: 1 });
        // Refused here and not when it is closed, so that no text makes us go deeper first.
        self.refuse_deep(0, at)
    }

    /// Puts a finished node where it belongs.
    fn close(&mut self, anchor: usize, built: Built) -> Result<(), Unreadable> {
        self.refuse_deep(built.height, built.node.at)?;
        match self.open.last_mut() {
            Some(parent) => {
                // The sum stays within what `count` has let pass.
                parent.nodes = parent.nodes.saturating_add(built.nodes);
                parent.height = parent.height.max(built.height.saturating_add(1));
                parent.items.push(built.node.clone());
            }
            None => self.root = Some(built.node.clone()),
        }
        if anchor > 0 {
            self.anchors.insert(anchor, built);
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Unreadable> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= NODES_MAX {
            return Ok(());
        }
        let message = format!(
            "more than {NODES_MAX} values, each alias counted as all that it stands for; split \
             the file, or write fewer aliases of aliases"
        );
        Err(unreadable(at, message))
    }

    fn refuse_deep(&self, height: usize, at: Position) -> Result<(), Unreadable> {
        if self.open.len().saturating_add(height) <= DEPTH_MAX {
            return Ok(());
        }
        let message = format!("nested more than {DEPTH_MAX} deep; write it flatter");
        Err(unreadable(at, message))
    }
}

impl Open {
    fn built(self) -> Built {
        let content = if self.mapping {
            let mut items = self.items.into_iter();
            let mut pairs = Vec::with_capacity(items.len() / 2);
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                pairs.push((key, value));
            }
            Content::Mapping(pairs.into())
        } else {
            Content::Sequence(self.items.into())
        };
        let node = Node { at: self.at, content };
        Built { node, nodes: self.nodes, height: self.height }
    }
}

/// Whether a tag says that a scalar is a text whatever it looks like.
fn is_text(tag: Option<&Tag>, at: Position) -> Result<bool, Unreadable> {
    let Some(tag) = tag else { return Ok(false) };
    let known = ["str", "int", "float", "bool", "null", "seq", "map"];
    // A lone `!` is YAML's own way to say "a text".
    if tag.handle.is_empty() && tag.suffix == "!" {
        return Ok(true);
    }
    if tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str()) {
        return Ok(tag.suffix == "str");
    }
    let name = quoted(&format!("{}{}", tag.handle, tag.suffix));
    Err(unreadable(at, format!("a tag has no meaning here, got {name}; remove it")))
}

// === what is refused before parsing ===

fn refuse_long(text: &str) -> Result<(), Unreadable> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let most = TEXT_BYTES_MAX >> 20;
    let message = format!("longer than {most} MiB; split the file");
    Err(unreadable(START, message))
}

/// YAML's printable characters, and no others: the parser takes a NUL for the end.
fn refuse_unprintable(text: &str) -> Result<(), Unreadable> {
    let forbidden = |letter: char| {
        let control = letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{85}');
        control || matches!(letter, '\u{fffe}' | '\u{ffff}')
    };
    let Some((index, letter)) = text.char_indices().find(|(_, letter)| forbidden(*letter)) else {
        return Ok(());
    };
    let before = text.get(..index).unwrap_or_default();
    let line_start = before.rfind(['\n', '\r']).map_or(0, |last| last + 1);
    let lines = before.replace("\r\n", "\n");
    let at = Position {
        line: lines.matches(['\n', '\r']).count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
    };
    let name = letter.escape_unicode();
    let message = format!(
        "a character that YAML forbids, got `{name}`; remove it, or write it escaped in double \
         quotes"
    );
    Err(unreadable(at, message))
}

// === small things ===

fn unreadable(at: Position, message: String) -> Unreadable {
    Unreadable { at, message }
}

fn not_yaml(error: &saphyr_parser::ScanError, text: &str) -> Unreadable {
    let info = lower_first(error.info());
    let message =
        format!("not YAML: {info}; check the indentation, quotes and brackets before this place");
    unreadable(within(text, position(error.marker())), message)
}

/// The parser places what is missing at the end on a line after the last; nobody has such a line.
fn within(text: &str, at: Position) -> Position {
    let lines = text.replace("\r\n", "\n").matches(['\n', '\r']).count() + 1;
    if at.line <= lines {
        return at;
    }
    let last_line = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    Position { line: lines, column: last_line.chars().count() + 1 }
}

/// The parser's own words, in our case.
fn lower_first(info: &str) -> String {
    let mut letters = info.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    on_one_line(&first.into_iter().chain(letters).collect::<String>())
}

fn null(at: Position) -> Node {
    let content = Content::Scalar { text: Rc::from(""), style: Style::Plain };
    Node { at, content }
}

fn position(marker: &Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col().saturating_add(1) }
}

#[cfg(test)]
mod tests;
