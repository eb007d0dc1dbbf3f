//! Edits of YAML by whole lines, so that all other lines stay as they are, comments included.

use crate::yaml::{Content, Node};

/// An item of a block list: whole lines.
pub(crate) struct Item {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The column of its dash.
    pub(crate) indent: usize,
    /// Where the line of the key begins, if the list follows at once.
    pub(crate) key_start: Option<usize>,
}

impl Item {
    /// Whether the file ends with it, without a line break.
    pub(crate) fn ends_file(&self, text: &str) -> bool {
        self.end == text.len() && !text.ends_with('\n')
    }
}

/// The items of a list behind the key of a line; `None` unless each has a dash of its own line.
pub(crate) fn block_items(items: &[Node], lines: &Lines<'_>, key_line: usize) -> Option<Vec<Item>> {
    let mut all = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let first = item.at.line;
        let line = lines.text(first);
        let before = line.get(..item.at.column.saturating_sub(1)).unwrap_or_default();
        let indent =
            before.find('-').filter(|at| before.trim() == "-" && before[..*at].trim().is_empty());
        let indent = indent?;
        let mut last = first;
        for number in first + 1..=lines.count() {
            let line = lines.text(number);
            let own = line.len() - line.trim_start_matches(' ').len();
            match (line.trim().is_empty(), own > indent) {
                (true, _) => {}
                (false, true) => last = number,
                (false, false) => break,
            }
        }
        let key = (index == 0 && first == key_line + 1).then(|| lines.start(key_line));
        let (start, end) = (lines.start(first), lines.end(last));
        all.push(Item { start, end, indent, key_start: key });
    }
    Some(all)
}

/// The lines of a text, from 1; each with its line break.
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        starts.push(text.len());
        Self { text, starts }
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    pub(crate) fn start(&self, number: usize) -> usize {
        self.starts.get(number.saturating_sub(1)).copied().unwrap_or(self.text.len())
    }

    pub(crate) fn end(&self, number: usize) -> usize {
        self.start(number + 1)
    }

    pub(crate) fn text(&self, number: usize) -> &'t str {
        self.text.get(self.start(number)..self.end(number)).unwrap_or_default()
    }
}

pub(crate) fn line_ending(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

pub(crate) fn replaced(text: &str, start: usize, end: usize, new: &str) -> String {
    let (before, after) = (text.get(..start), text.get(end..));
    format!("{}{new}{}", before.unwrap_or_default(), after.unwrap_or_default())
}

/// Adds lines behind a line. A text without a line break at its end gets none.
pub(crate) fn inserted(text: &str, at: usize, new: &str, ending: &str) -> String {
    match at == text.len() && !text.is_empty() && !text.ends_with('\n') {
        true => format!("{text}{ending}{new}"),
        false => replaced(text, at, at, &format!("{new}{ending}")),
    }
}

/// A node without positions, for comparison.
pub(crate) fn shown(node: &Node) -> String {
    match &node.content {
        Content::Scalar { text, style } => format!("{style:?}{text:?}"),
        Content::Sequence(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(","))
        }
        Content::Mapping(pairs) => {
            let pairs =
                pairs.iter().map(|pair| format!("{}:{}", shown(&pair.key), shown(&pair.value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        }
    }
}
