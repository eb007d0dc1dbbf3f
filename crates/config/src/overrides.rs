//! Edits of `overrides` in the text of a file of rules: everything else stays as it is, comments
//! included.
//!
//! An override is one line, added behind the last of the list. A file without `overrides` gets the
//! key at its end, and loses it with the last override. The result is read again: an edit that
//! would change anything else is refused.

use std::fmt::{self, Display};

use serde_json::{Map, Value, json};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::overrides::TemporaryOverride;
use sluicegate_rules::zone::show_moment;

use crate::problem::Problems;
use crate::rules::Source;
use crate::rules::overrides::{
    BLOCK, FACTOR, LIMITS, MATCH, NOTE, RULE, UNLIMITED, UNTIL, read_overrides,
};
use crate::text_edit::{Item, Lines, block_items, inserted, line_ending, replaced, shown};
use crate::units::show_factor;
use crate::yaml::{self, Content, Node, Pair};

/// The identities of an override, and the rule that it changes: a file has one override of each.
#[derive(Debug, Clone, PartialEq)]
pub struct OverrideTarget {
    /// The value of each entry: a text, or an object with `cidr` or `regex`.
    pub matches: Vec<(String, Value)>,
    /// The rule, if it is not all of them.
    pub rule: Option<String>,
}

/// An override to be written.
///
/// ```
/// use sluicegate_config::overrides::{ChangeSpec, OverrideSpec, OverrideTarget, add, remove};
/// use sluicegate_core::time::Timestamp;
///
/// let text = "domain: shop # of ours\n";
/// let target = OverrideTarget { matches: vec![("user_id".to_owned(), "mallory".into())], rule: None };
/// let (until, note) = (Timestamp::from_micros(1_796_083_200_000_000), "ticket 4711".to_owned());
/// let spec = OverrideSpec { target, change: ChangeSpec::Block, until, note };
/// let added = add(text, &spec)?;
/// assert_eq!(
///     added,
///     "domain: shop # of ours
/// overrides:
///   - { match: { \"user_id\": \"mallory\" }, block: true, until: 2026-12-01T00:00:00Z, note: \"ticket 4711\" }
/// "
/// );
/// assert_eq!(remove(&added, &spec.target)?, text);
/// # Ok::<(), sluicegate_config::overrides::EditError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct OverrideSpec {
    /// Its identities.
    pub target: OverrideTarget,
    /// What it changes.
    pub change: ChangeSpec,
    /// When it ends.
    pub until: Timestamp,
    /// Why it is made.
    pub note: String,
}

/// What an override changes.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeSpec {
    /// Requests are denied.
    Block,
    /// Requests are not limited.
    Unlimited,
    /// The limits times thousandths.
    Factor(u64),
    /// Other limits, as JSON or as one of the words.
    Limits(Value),
}

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EditError {
    /// The file is invalid as it is.
    InvalidFile(Problems),
    /// The override is invalid.
    InvalidOverride(Problems),
    /// The file has no override of this target.
    Missing,
    /// The notation of the file; the text names it, and the remedy.
    Notation(&'static str),
}

/// The text with the override, in the place of one of the same target, or as the last.
///
/// Only this file is read: load the result with all other files before it is used.
///
/// # Errors
/// When the file or the override is invalid, or `overrides` is written in a way that cannot be
/// edited.
pub fn add(text: &str, spec: &OverrideSpec) -> Result<String, EditError> {
    let before = parsed(text).map_err(EditError::InvalidFile)?;
    let list = List::find(text)?;
    let line = spec.to_line();
    let new = alone(&line)?;
    let ending = line_ending(text);
    let index = before.iter().position(|one| is_same_target(one, &new));
    let edited = match (&list, index) {
        (List::Items(items), Some(index)) => {
            let item = items.get(index).ok_or(EditError::Notation(BLOCK_LIST))?;
            let indent = " ".repeat(item.indent);
            let tail = if item.ends_file(text) { "" } else { ending };
            replaced(text, item.start, item.end, &format!("{indent}- {line}{tail}"))
        }
        (List::Items(items), None) => {
            let last = items.last().ok_or(EditError::Notation(BLOCK_LIST))?;
            let indent = " ".repeat(last.indent);
            inserted(text, last.end, &format!("{indent}- {line}"), ending)
        }
        // Without indentation: the key was there before.
        (List::Empty(end), _) => inserted(text, *end, &format!("- {line}"), ending),
        (List::EmptyFlow(start, end), _) => replaced(text, *start, *end, &format!("[{line}]")),
        (List::SingleFlow(start, end), Some(_)) => {
            replaced(text, *start, *end, &format!("[{line}]"))
        }
        (List::SingleFlow(..), None) => return Err(EditError::Notation(BLOCK_LIST)),
        (List::Absent, _) => {
            let key = format!("overrides:{ending}  - {line}");
            inserted(text, text.len(), &key, ending)
        }
    };
    let mut expected = before;
    match index.and_then(|index| expected.get_mut(index)) {
        Some(one) => *one = new,
        None => expected.push(new),
    }
    checked(text, edited, &expected)
}

/// The text without the override of a target.
///
/// # Errors
/// When the file is invalid or has no such override, or `overrides` is written in a way that cannot
/// be edited.
pub fn remove(text: &str, target: &OverrideTarget) -> Result<String, EditError> {
    let before = parsed(text).map_err(EditError::InvalidFile)?;
    let list = List::find(text)?;
    let spec = OverrideSpec {
        target: target.clone(),
        change: ChangeSpec::Factor(1_000),
        until: Timestamp::EPOCH,
        note: "-".to_owned(),
    };
    let wanted = alone(&spec.to_line())?;
    let index = before.iter().position(|one| is_same_target(one, &wanted));
    let index = index.ok_or(EditError::Missing)?;
    let edited = match &list {
        List::Items(items) => {
            let item = items.get(index).ok_or(EditError::Notation(BLOCK_LIST))?;
            let key = item.key_start.filter(|_| items.len() == 1 && item.indent > 0);
            let start = key.unwrap_or(item.start);
            let mut edited = replaced(text, start, item.end, "");
            if item.ends_file(text) {
                // The line break before it was added with it.
                let trimmed =
                    edited.strip_suffix('\n').map(|rest| rest.trim_end_matches('\r').len());
                edited.truncate(trimmed.unwrap_or(edited.len()));
            }
            edited
        }
        List::SingleFlow(start, end) => replaced(text, *start, *end, "[]"),
        List::Empty(_) | List::EmptyFlow(..) | List::Absent => return Err(EditError::Missing),
    };
    let mut expected = before;
    expected.remove(index);
    checked(text, edited, &expected)
}

const BLOCK_LIST: &str = "`overrides` is not a list with a line of its own for each dash; write it so, or edit it by hand";
const ROOT: &str =
    "the file does not have its keys at the beginning of lines; write it so, or edit it by hand";

impl OverrideSpec {
    /// As one line of YAML.
    fn to_line(&self) -> String {
        let value = |value: &Value| match value {
            Value::Object(_) | Value::Array(_) => flow(value),
            Value::String(text) => quoted(text),
            other => quoted(&other.to_string()),
        };
        let matches: Vec<String> = self
            .target
            .matches
            .iter()
            .map(|(key, matched)| format!("{}: {}", quoted(key), value(matched)))
            .collect();
        let rule = self.target.rule.as_ref();
        let rule =
            rule.map(|rule| format!("{}: {}, ", RULE.name, quoted(rule))).unwrap_or_default();
        let change = match &self.change {
            ChangeSpec::Block => format!("{}: true", BLOCK.name),
            ChangeSpec::Unlimited => format!("{}: true", UNLIMITED.name),
            ChangeSpec::Factor(factor) => format!("{}: {}", FACTOR.name, show_factor(*factor)),
            // A word has no quotes.
            ChangeSpec::Limits(Value::String(word)) => format!("{LIMITS}: {word}"),
            ChangeSpec::Limits(limits) => format!("{LIMITS}: {}", flow(limits)),
        };
        let (until, note) = (show_moment(self.until), quoted(&self.note));
        let (end, why) = (UNTIL.name, NOTE.name);
        let matches = matches.join(", ");
        format!("{{ {MATCH}: {{ {matches} }}, {rule}{change}, {end}: {until}, {why}: {note} }}")
    }
}

/// JSON strings are YAML, but for characters that YAML has no place for.
fn quoted(text: &str) -> String {
    let mut quoted = String::new();
    for letter in json!(text).to_string().chars() {
        match letter {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'..='\u{ffff}' => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => quoted.push(letter),
        }
    }
    quoted
}

/// JSON with blanks after colons, which YAML requires.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: &Map<String, Value> = fields;
            let all: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", quoted(key), flow(value)))
                .collect();
            format!("{{ {} }}", all.join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

// === the list in the text ===

/// How the list is written, in bytes of the text.
enum List {
    Absent,
    /// The key without a value: the end of its line.
    Empty(usize),
    /// `[]`.
    EmptyFlow(usize, usize),
    /// `[{ … }]` on one line.
    SingleFlow(usize, usize),
    Items(Vec<Item>),
}

impl List {
    fn find(text: &str) -> Result<Self, EditError> {
        let root = root(text)?;
        let Content::Mapping(pairs) = &root.content else { return Err(EditError::Notation(ROOT)) };
        let lines = Lines::new(text);
        let is_key = |pair: &&Pair| matches!(&pair.key.content, Content::Scalar { text, .. } if &**text == "overrides");
        if pairs.iter().any(|pair| pair.key.at.column != 1) {
            return Err(EditError::Notation(ROOT));
        }
        let Some(pair) = pairs.iter().find(is_key) else { return Ok(Self::Absent) };
        let key_line = pair.key.at.line;
        let key_text = lines.text(key_line);
        let rest = key_text.trim_end().strip_prefix("overrides:").map(str::trim_start);
        let rest = rest.ok_or(EditError::Notation(BLOCK_LIST))?;
        let flow = |rest: &str| {
            let start = lines.start(key_line) + key_text.find('[')?;
            Some((start, start + rest.len()))
        };
        match &pair.value.content {
            Content::Scalar { .. } if rest.is_empty() || rest.starts_with('#') => {
                Ok(Self::Empty(lines.end(key_line)))
            }
            Content::Sequence(items) if items.is_empty() && rest == "[]" => flow(rest)
                .map(|(a, b)| Self::EmptyFlow(a, b))
                .ok_or(EditError::Notation(BLOCK_LIST)),
            Content::Sequence(items)
                if items.len() == 1 && rest.starts_with("[{") && rest.ends_with("}]") =>
            {
                flow(rest)
                    .map(|(a, b)| Self::SingleFlow(a, b))
                    .ok_or(EditError::Notation(BLOCK_LIST))
            }
            Content::Sequence(items) if rest.is_empty() || rest.starts_with('#') => {
                let items = block_items(items, &lines, key_line);
                items.map(Self::Items).ok_or(EditError::Notation(BLOCK_LIST))
            }
            _ => Err(EditError::Notation(BLOCK_LIST)),
        }
    }
}

// === checks ===

fn parsed(text: &str) -> Result<Vec<TemporaryOverride>, Problems> {
    read_overrides(&Source { name: "rules".to_owned(), text: text.to_owned() })
}

/// The override of a line.
fn alone(line: &str) -> Result<TemporaryOverride, EditError> {
    let text = format!("domain: d\noverrides:\n  - {line}\n");
    let mut one = parsed(&text).map_err(EditError::InvalidOverride)?;
    one.pop().ok_or(EditError::Missing)
}

fn is_same_target(one: &TemporaryOverride, other: &TemporaryOverride) -> bool {
    let matches = |one: &TemporaryOverride| {
        let mut all: Vec<String> = one.matches.iter().map(ToString::to_string).collect();
        all.sort_unstable();
        all
    };
    one.rule == other.rule && matches(one) == matches(other)
}

fn root(text: &str) -> Result<Node, EditError> {
    match yaml::first_document(text) {
        Ok((Some(root), None)) => Ok(root),
        _ => Err(EditError::Notation(ROOT)),
    }
}

/// The edited text, if it has the expected overrides and is otherwise the same.
fn checked(
    before: &str,
    edited: String,
    expected: &[TemporaryOverride],
) -> Result<String, EditError> {
    let found = parsed(&edited).map_err(|_| EditError::Notation(BLOCK_LIST))?;
    let is_expected = format!("{found:?}") == format!("{expected:?}");
    let (old, new) = (root(before)?, root(&edited)?);
    match is_expected && others(&old) == others(&new) {
        true => Ok(edited),
        false => Err(EditError::Notation(BLOCK_LIST)),
    }
}

/// Everything of a file but its overrides, without positions.
fn others(root: &Node) -> Vec<String> {
    let Content::Mapping(pairs) = &root.content else { return Vec::new() };
    let all = pairs.iter().map(|pair| (shown(&pair.key), shown(&pair.value)));
    all.filter(|(key, _)| !key.contains("\"overrides\"")).map(|(key, value)| key + &value).collect()
}

impl Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidFile(problems) | Self::InvalidOverride(problems) => problems.fmt(f),
            Self::Missing => f.write_str("no override has this `match` and this `rule`"),
            Self::Notation(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for EditError {}

#[cfg(test)]
mod tests;
