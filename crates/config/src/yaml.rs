//! Parses YAML text into a tree of nodes with positions.
//!
//! The parser (`saphyr-parser`) emits events; this module builds nodes from them: a scalar with its
//! text and whether it was quoted, a sequence, or a mapping that preserves order and duplicate
//! keys. The caller interprets scalars (a number, a rate): `10/s` and `1_000` are not YAML types.
//!
//! Since a rule file may be untrusted, the length of the text, the nesting and the number of nodes
//! are bounded. An alias shares the node of its anchor and takes no memory, but a traversal visits
//! the node once per alias. So an alias counts as all the nodes below its anchor, which bounds the
//! cost of nested aliases.
//!
//! A mapping may merge the pairs of others (`<<: *base`, or a list of them), as in YAML 1.1. The
//! merged pairs replace the `<<` and are marked; the reader of the mapping resolves duplicate keys.
//!
//! Other departures from YAML 1.2, all stricter: characters that YAML forbids are rejected (the
//! parser would treat a NUL as the end of the text), and so are tags outside the core schema.
//! `!!str` makes a scalar a non-null text; the other tags ignore quotes.

mod text;

use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};

use self::text::Words;
use self::text::{refuse_long, refuse_unprintable};
use crate::problem::{Position, on_one_line, quoted};

/// The longest text that is read.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;
/// How deeply sequences and mappings may be nested.
pub(crate) const DEPTH_MAX: usize = 64;
/// The maximum number of nodes of a text, aliases expanded.
pub(crate) const NODES_MAX: usize = 16_000_000;

/// A value and its position; cheap to clone.
///
/// A node reached through an alias has the position of its anchor, which is the text to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) content: Content,
}

/// The content of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Scalar {
        text: Rc<str>,
        style: Style,
    },
    Sequence(Rc<[Node]>),
    /// In their order, duplicates included.
    Mapping(Rc<[Pair]>),
}

/// A key of a mapping and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: Node,
    pub(crate) value: Node,
    /// Whether it was merged from another mapping.
    pub(crate) merged: bool,
}

/// How a scalar was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Bare, or tagged as something that is no text: `null` is null.
    Plain,
    /// In quotes, as a block, or tagged `!!str`: `"null"` is a text.
    Quoted,
}

/// Why a text is not YAML, or exceeds a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) at: Position,
    pub(crate) message: String,
}

/// Parses the single document of a text; `None` if it is empty.
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

/// The first document of a text, if any, and the position of a second; the text after that is not
/// read and may be invalid.
pub(crate) fn first_document(text: &str) -> Result<(Option<Node>, Option<Position>), Unreadable> {
    refuse_long(text)?;
    refuse_unprintable(text)?;
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder { nodes_max: NODES_MAX, ..Builder::default() };
    let mut begins = None;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| not_yaml(&error, text))?;
        let at = position(&span.start);
        match event {
            Event::DocumentStart(_) => begins = Some(at),
            Event::DocumentEnd => break,
            event => builder.take(event, at)?,
        }
    }
    let second = match parser.next_event() {
        Some(Ok((Event::DocumentStart(_), span))) => Some(position(&span.start)),
        Some(Err(error)) => Some(within(text, position(error.marker()))),
        _ => None,
    };
    let root = builder.root.take();
    Ok((root.or_else(|| begins.map(null)), second))
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
    documents_within(text, NODES_MAX)
}

fn documents_within(text: &str, nodes_max: usize) -> Result<Vec<Document>, Unreadable> {
    refuse_long(text)?;
    refuse_unprintable(text)?;
    let mut parser = Parser::new_from_str(text);
    let mut documents = Vec::new();
    let mut begins = START;
    let mut builder = Builder { nodes_max, ..Builder::default() };
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

    /// Whether this, as a key, merges the pairs of its value.
    fn is_merge(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, style: Style::Plain } if &**text == "<<")
    }

    /// Describes the type, for messages about an unexpected one.
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
    /// The nodes in them; a mapping's are keys and values in turn.
    items: Vec<Node>,
    words: Words,
    anchors: HashMap<usize, Built>,
    root: Option<Node>,
    /// The number of nodes so far, aliases expanded.
    nodes: usize,
    nodes_max: usize,
}

/// A sequence or mapping being filled.
#[derive(Debug)]
struct Open {
    at: Position,
    anchor: usize,
    mapping: bool,
    /// Where its nodes begin among all.
    first: usize,
    nodes: usize,
    height: usize,
}

/// A node with its expanded size.
#[derive(Debug, Clone)]
struct Built {
    node: Node,
    /// The number of nodes, itself included, aliases expanded.
    nodes: usize,
    /// How many sequences and mappings are nested in it, itself included.
    height: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: Position) -> Result<(), Unreadable> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, at)?;
                let tagged = tag.as_deref().map(|tag| is_text(tag, at)).transpose()?;
                let style = match tagged {
                    Some(true) => Style::Quoted,
                    Some(false) => Style::Plain,
                    None if style == ScalarStyle::Plain => Style::Plain,
                    None => Style::Quoted,
                };
                let text = self.words.share(&text);
                let content = Content::Scalar { text, style };
                let node = Node { at, content };
                self.close(anchor, Built { node, nodes: 1, height: 0 })
            }
            Event::SequenceStart(anchor, tag) => self.open(anchor, tag.as_deref(), false, at),
            Event::MappingStart(anchor, tag) => self.open(anchor, tag.as_deref(), true, at),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => {
                    let items = self.items.drain(open.first.min(self.items.len())..);
                    let built = open.built(items)?;
                    self.close(open.anchor, built)
                }
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
        tag.map(|tag| is_text(tag, at)).transpose()?;
        self.count(1, at)?;
        let first = self.items.len();
        self.open.push(Open { at, anchor, mapping, first, nodes: 1, height: 1 });
        // Rejected on opening and not on closing, to bound the depth of recursion.
        self.refuse_deep(0, at)
    }

    /// Adds a finished node to its parent.
    fn close(&mut self, anchor: usize, built: Built) -> Result<(), Unreadable> {
        self.refuse_deep(built.height, built.node.at)?;
        if anchor > 0 {
            self.anchors.insert(anchor, built.clone());
        }
        match self.open.last_mut() {
            Some(parent) => {
                // The sum stays within what `count` has let pass.
                parent.nodes = parent.nodes.saturating_add(built.nodes);
                parent.height = parent.height.max(built.height.saturating_add(1));
                self.items.push(built.node);
            }
            None => self.root = Some(built.node),
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Unreadable> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= self.nodes_max {
            return Ok(());
        }
        let message = format!(
            "more than {} values, each alias counted as all that it stands for; split \
             the file, or write fewer aliases of aliases",
            self.nodes_max
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
    fn built(&self, mut items: impl ExactSizeIterator<Item = Node>) -> Result<Built, Unreadable> {
        let content = if self.mapping {
            let mut pairs = Vec::with_capacity(items.len() / 2);
            while let (Some(key), Some(value)) = (items.next(), items.next()) {
                if key.is_merge() {
                    merge(&value, &mut pairs)?;
                } else {
                    pairs.push(Pair { key, value, merged: false });
                }
            }
            Content::Mapping(pairs.into())
        } else {
            Content::Sequence(items.collect())
        };
        let node = Node { at: self.at, content };
        Ok(Built { node, nodes: self.nodes, height: self.height })
    }
}

/// Adds the pairs of a `<<`. The node count stays correct: the alias was counted in full, and the
/// pairs replace it.
fn merge(value: &Node, pairs: &mut Vec<Pair>) -> Result<(), Unreadable> {
    let mut take = |node: &Node| match &node.content {
        Content::Mapping(base) => {
            pairs.extend(base.iter().map(|pair| Pair { merged: true, ..pair.clone() }));
            Ok(())
        }
        _ => {
            let got = node.described();
            let message = format!(
                "map merge requires map or sequence of maps as the value, got {got}; write it like \
                 `<<: *base`"
            );
            Err(unreadable(node.at, message))
        }
    };
    match &value.content {
        // The first of several has the highest precedence, so it comes last.
        Content::Sequence(items) => items.iter().rev().try_for_each(take),
        _ => take(value),
    }
}

/// Whether a tag makes a scalar a text regardless of its content; other tags make it plain in spite
/// of quotes.
fn is_text(tag: &Tag, at: Position) -> Result<bool, Unreadable> {
    let known = ["str", "int", "float", "bool", "null", "seq", "map"];
    // A lone `!` is YAML's non-specific tag for a text.
    if tag.handle.is_empty() && tag.suffix == "!" {
        return Ok(true);
    }
    if tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str()) {
        return Ok(tag.suffix == "str");
    }
    let name = quoted(&format!("{}{}", tag.handle, tag.suffix));
    Err(unreadable(at, format!("a tag has no meaning here, got {name}; remove it")))
}

// === helpers ===

fn unreadable(at: Position, message: String) -> Unreadable {
    Unreadable { at, message }
}

fn not_yaml(error: &saphyr_parser::ScanError, text: &str) -> Unreadable {
    let info = lower_first(error.info());
    let at = within(text, position(error.marker()));
    let remedy = match tab_near(text, at) {
        Some(line) => format!("there is a tab on line {line}: write blanks in its place"),
        None => "check the indentation, quotes and brackets before this place".to_owned(),
    };
    unreadable(at, format!("not YAML: {info}; {remedy}"))
}

/// The line of a tab used as indentation, at or just before a position.
fn tab_near(text: &str, at: Position) -> Option<usize> {
    let indented = |line: &str| {
        let blank = line.len() - line.trim_start().len();
        let after_colon = line.contains(":\t") || line.contains("-\t");
        after_colon || line.get(..blank).is_some_and(|blank| blank.contains('\t'))
    };
    let first = at.line.saturating_sub(2);
    let lines = text.lines().enumerate().skip(first).take(at.line.saturating_sub(first));
    lines.filter(|(_, line)| indented(line)).map(|(index, _)| index + 1).last()
}

/// Clamps a position to the text: the parser reports errors at the end on a line after the last.
fn within(text: &str, at: Position) -> Position {
    let lines = text.replace("\r\n", "\n").matches(['\n', '\r']).count() + 1;
    if at.line <= lines {
        return at;
    }
    let last_line = text.rsplit(['\n', '\r']).next().unwrap_or_default();
    Position { line: lines, column: last_line.chars().count() + 1 }
}

/// The parser's message, starting in lower case.
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
