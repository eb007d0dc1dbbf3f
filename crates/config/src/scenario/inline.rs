//! Rules inside a scenario: the lines of a block mapping, at their own lines and columns, so that
//! the reader of rules reports the positions of the scenario's file.

use super::RulesText;
use crate::fields::Value;
use crate::problem::{Report, Reported};
use crate::yaml::Content;

const EXAMPLE: &str = "rules: rules.yaml";

/// Reads `rules`: a file name, or the rules themselves.
pub(super) fn rules(
    text: &str,
    value: &Value<'_, '_>,
    report: &mut Report,
) -> Result<RulesText, Reported> {
    if let Content::Mapping(_) = &value.node.content {
        return match block(text, value.at().line, value.at().column) {
            Some(block) => Ok(RulesText::Inline(block)),
            None => {
                let message = "rules inside a scenario must be in block style, got `{`; write a \
                               line for each key, or name a file";
                Err(value.refuse(report, message.to_owned()))
            }
        };
    }
    let name = value.text(EXAMPLE, report)?;
    Ok(RulesText::File(name.to_owned(), value.at()))
}

/// The lines of a block mapping that begins at a position, after as many empty lines as precede it.
fn block(text: &str, line: usize, column: usize) -> Option<String> {
    let indent = column.saturating_sub(1);
    let mut lines = text.lines().skip(line.saturating_sub(1));
    let first = lines.next()?;
    let before: String = first.chars().take(indent).collect();
    // Behind a key, or in braces, it has no lines of its own.
    if !before.chars().all(|c| c == ' ') || first.trim_start().starts_with('{') {
        return None;
    }
    let is_inside = |line: &&str| {
        let bare = line.trim_start();
        bare.is_empty() || bare.starts_with('#') || line.len() - bare.len() >= indent
    };
    let mut block = "\n".repeat(line.saturating_sub(1));
    for line in std::iter::once(first).chain(lines.take_while(is_inside)) {
        block.push_str(line);
        block.push('\n');
    }
    Some(block)
}
