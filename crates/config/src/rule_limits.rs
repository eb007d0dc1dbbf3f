//! Edits of the limits of one rule in the text of a file of rules: everything else stays as it is,
//! comments included.
//!
//! The rule is one of the first entries of descriptors, by key and value. If the file has none, it
//! is added behind the last. The result is read again: an edit that would change anything else is
//! refused.

use std::fmt::{self, Display};

use serde_json::json;

use crate::text_edit::{Lines, block_items, inserted, line_ending, replaced, shown};
use crate::yaml::{self, Content, Node, Pair};

/// New limits of a rule.
///
/// ```
/// use sluicegate_config::rule_limits::{RuleLimits, set_limits};
///
/// let text = "domain: shop\ndescriptors:\n  - key: user # each\n    limits: { algorithm: token_bucket, rate: 1/s }\n";
/// let limits = RuleLimits {
///     key: "user".to_owned(),
///     value: None,
///     limits: "{ algorithm: token_bucket, rate: 2/s, burst: 9 }".to_owned(),
/// };
/// assert_eq!(
///     set_limits(text, &limits)?,
///     text.replace("rate: 1/s }", "rate: 2/s, burst: 9 }")
/// );
/// # Ok::<(), sluicegate_config::rule_limits::LimitsEditError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleLimits {
    /// The key of the entry.
    pub key: String,
    /// Its value; `None` matches any value.
    pub value: Option<String>,
    /// The limits as a YAML flow on one line.
    pub limits: String,
}

/// The file is not written in lines that can be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsEditError;

/// Keys that make a node one for some values.
const VALUES: [&str; 3] = ["value", "cidr", "regex"];
/// Keys that limits are written as.
const FORMS: [&str; 2] = ["limits", "rate_limit"];
const DESCRIPTORS: &str = "descriptors";

/// The text with these limits of the rule, in the place of those it has.
///
/// Only this file is read: load the result with all other files before it is used.
///
/// # Errors
/// When the file is not a mapping of keys at the beginning of lines, or the rule is not written as
/// one key a line.
pub fn set_limits(text: &str, new: &RuleLimits) -> Result<String, LimitsEditError> {
    let root = root(text)?;
    let ending = line_ending(text);
    let Some(pair) = pair_of(&root, DESCRIPTORS) else {
        let section = format!("{DESCRIPTORS}:{ending}{}", new.item(2, ending));
        return checked(&root, inserted(text, text.len(), &section, ending), new);
    };
    let Content::Sequence(nodes) = &pair.value.content else { return Err(LimitsEditError) };
    let lines = Lines::new(text);
    let items = block_items(nodes, &lines, pair.key.at.line).ok_or(LimitsEditError)?;
    let last = items.last().ok_or(LimitsEditError)?;
    let found = nodes.iter().zip(&items).find(|(node, _)| new.is_for(node));
    let edited = match found {
        None => inserted(text, last.end, &new.item(last.indent, ending), ending),
        Some((node, item)) => {
            let (start, end, indent) =
                limits_lines(node, &lines, item.end).ok_or(LimitsEditError)?;
            let tail = if end == text.len() && !text.ends_with('\n') { "" } else { ending };
            let line = format!("{}limits: {}{tail}", " ".repeat(indent), new.limits);
            replaced(text, start, end, &line)
        }
    };
    checked(&root, edited, new)
}

/// The lines of the limits of a rule, or an empty place behind its key; with their indentation.
fn limits_lines(node: &Node, lines: &Lines<'_>, item_end: usize) -> Option<(usize, usize, usize)> {
    let Content::Mapping(pairs) = &node.content else { return None };
    let has_own_lines = pairs.windows(2).all(|two| two[0].key.at.line < two[1].key.at.line);
    let first = pairs.first()?;
    let is_flow = lines.text(first.key.at.line).contains('{')
        && !matches!(first.value.content, Content::Mapping(_) | Content::Sequence(_));
    if !has_own_lines || is_flow {
        return None;
    }
    let limits = pairs.iter().position(|pair| FORMS.contains(&key_of(pair)));
    let Some(index) = limits else {
        // Behind the first key, which is on the line of the dash.
        let end = lines.end(first.key.at.line);
        let indent = first.key.at.column - 1;
        return matches!(first.value.content, Content::Scalar { .. }).then_some((end, end, indent));
    };
    // The first key is on the line of the dash, which the edit must not replace.
    let pair = pairs.get(index).filter(|_| index > 0)?;
    let (line, indent) = (pair.key.at.line, pair.key.at.column - 1);
    let mut last = line;
    for number in line + 1..=lines.count() {
        if lines.end(number) > item_end {
            break;
        }
        let text = lines.text(number);
        let own = text.len() - text.trim_start_matches(' ').len();
        let is_item = own == indent && text.trim_start().starts_with("- ");
        match (text.trim().is_empty(), own > indent || is_item) {
            (true, _) => {}
            (false, true) => last = number,
            (false, false) => break,
        }
    }
    Some((lines.start(line), lines.end(last), indent))
}

impl RuleLimits {
    /// A list item with this rule.
    fn item(&self, indent: usize, ending: &str) -> String {
        let space = " ".repeat(indent);
        let value =
            self.value.as_ref().map(|value| format!("{space}  value: {}{ending}", json!(value)));
        format!(
            "{space}- key: {}{ending}{}{space}  limits: {}",
            json!(self.key),
            value.unwrap_or_default(),
            self.limits
        )
    }

    /// Whether this node is the rule.
    fn is_for(&self, node: &Node) -> bool {
        let Content::Mapping(pairs) = &node.content else { return false };
        let scalar = |name: &str| {
            let pair = pairs.iter().find(|pair| key_of(pair) == name)?;
            match &pair.value.content {
                Content::Scalar { text, .. } => Some(&**text),
                _ => None,
            }
        };
        let has_key = scalar("key") == Some(&*self.key);
        let is_any = !pairs.iter().any(|pair| VALUES.contains(&key_of(pair)));
        has_key
            && match &self.value {
                Some(value) => scalar("value") == Some(value),
                None => is_any,
            }
    }
}

fn root(text: &str) -> Result<Node, LimitsEditError> {
    match yaml::first_document(text) {
        Ok((Some(root), None)) => match &root.content {
            Content::Mapping(pairs) if pairs.iter().all(|pair| pair.key.at.column == 1) => Ok(root),
            _ => Err(LimitsEditError),
        },
        _ => Err(LimitsEditError),
    }
}

fn pair_of<'n>(root: &'n Node, name: &str) -> Option<&'n Pair> {
    let Content::Mapping(pairs) = &root.content else { return None };
    pairs.iter().find(|pair| key_of(pair) == name)
}

fn key_of(pair: &Pair) -> &str {
    match &pair.key.content {
        Content::Scalar { text, .. } => text,
        _ => "",
    }
}

/// The edited text, if nothing but the limits of the rule has changed.
fn checked(before: &Node, edited: String, new: &RuleLimits) -> Result<String, LimitsEditError> {
    let after = root(&edited)?;
    let of_rule = format!("domain: d\ndescriptors:\n{}\n", new.item(2, "\n"));
    let expected = root(&of_rule)?;
    let limits = |root: &Node| -> Vec<String> {
        let rules = nodes(root).iter().filter(|node| new.is_for(node));
        let pairs = rules.filter_map(|node| pair_of(node, "limits"));
        pairs.map(|pair| shown(&pair.value)).collect()
    };
    let is_expected = limits(&after) == limits(&expected);
    match is_expected && others(before, new) == others(&after, new) {
        true => Ok(edited),
        false => Err(LimitsEditError),
    }
}

fn nodes(root: &Node) -> &[Node] {
    match pair_of(root, DESCRIPTORS).map(|pair| &pair.value.content) {
        Some(Content::Sequence(nodes)) => nodes,
        _ => &[],
    }
}

/// Everything of a file but the rule; of the rule everything but its limits and its name.
fn others(root: &Node, rule: &RuleLimits) -> Vec<String> {
    let Content::Mapping(pairs) = &root.content else { return Vec::new() };
    let sections = pairs.iter().filter(|pair| key_of(pair) != DESCRIPTORS);
    let mut all: Vec<String> =
        sections.map(|pair| shown(&pair.key) + &shown(&pair.value)).collect();
    for node in nodes(root) {
        match &node.content {
            Content::Mapping(pairs) if rule.is_for(node) => {
                let rest = pairs.iter().filter(|pair| {
                    !FORMS.contains(&key_of(pair))
                        && key_of(pair) != "key"
                        && key_of(pair) != "value"
                });
                all.extend(rest.map(|pair| shown(&pair.key) + &shown(&pair.value)));
            }
            _ => all.push(shown(node)),
        }
    }
    all
}

impl Display for LimitsEditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the rule cannot be edited: write `descriptors` as a list, and the rule with a line for \
             each of its keys, `key` first; or edit it by hand",
        )
    }
}

impl std::error::Error for LimitsEditError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, key: &str) -> Result<String, LimitsEditError> {
        let limits = "{ algorithm: token_bucket, rate: 7/s, burst: 9 }".to_owned();
        set_limits(text, &RuleLimits { key: key.to_owned(), value: None, limits })
    }

    const NEW: &str = "limits: { algorithm: token_bucket, rate: 7/s, burst: 9 }";

    #[test]
    fn limits_are_replaced_and_everything_else_stays() {
        let text = "# ours\ndomain: shop\ndescriptors:\n  - key: user # each\n    limits:\n      # old\n      - { algorithm: token_bucket, rate: 1/s }\n\n    consistency: leased # cheap\n    descriptors:\n      - { key: path, limits: { algorithm: token_bucket, rate: 1/s } }\n  - key: user\n    value: bob\n    limits: { algorithm: token_bucket, rate: 1/s }\nallow: []\n";
        let expected = text.replace(
            "    limits:\n      # old\n      - { algorithm: token_bucket, rate: 1/s }\n",
            &format!("    {NEW}\n"),
        );
        assert_eq!(edited(text, "user").unwrap(), expected);
        let flush = "domain: a\ndescriptors:\n- key: b\n  limits:\n  - { algorithm: fixed_window, rate: 1/s }\n- key: c\n  rate_limit: { unit: second, requests_per_unit: 1 }";
        let first = edited(flush, "b").unwrap();
        assert_eq!(
            first,
            flush.replace("limits:\n  - { algorithm: fixed_window, rate: 1/s }", NEW)
        );
        let last = edited(flush, "c").unwrap();
        assert!(last.ends_with(&format!("- key: c\n  {NEW}")), "{last}");
    }

    #[test]
    fn missing_limits_and_rules_are_added() {
        let text =
            "domain: a\r\ndescriptors:\r\n  - key: b\r\n    descriptors:\r\n      - key: c\r\n";
        let added = edited(text, "b").unwrap();
        assert_eq!(added, text.replace("- key: b\r\n", &format!("- key: b\r\n    {NEW}\r\n")));
        let rule = edited(text, "z").unwrap();
        assert_eq!(rule, format!("{text}  - key: \"z\"\r\n    {NEW}\r\n"));
        let section = edited("domain: a", "z").unwrap();
        assert_eq!(section, format!("domain: a\ndescriptors:\n  - key: \"z\"\n    {NEW}"));
    }

    #[test]
    fn what_cannot_be_edited_by_lines_is_refused() {
        for text in [
            "",
            "{ domain: a, descriptors: [] }",
            "domain: a\ndescriptors: [{ key: b }]\n",
            "domain: a\ndescriptors: []\n",
            "domain: a\ndescriptors:\n  - { key: b, limits: { algorithm: token_bucket, rate: 1/s } }\n",
            "domain: a\ndescriptors:\n  - limits: { algorithm: token_bucket, rate: 1/s }\n    key: b\n",
            "domain: a\ndescriptors:\n  - key: b\n    limits: &x { algorithm: token_bucket, rate: 1/s }\n  - key: c\n    limits: *x\n",
            "domain: a\n---\ndomain: b\n",
        ] {
            assert_eq!(edited(text, "b"), Err(LimitsEditError), "{text}");
        }
    }
}
