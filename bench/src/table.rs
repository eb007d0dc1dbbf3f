//! A markdown table whose columns also line up in a terminal.

use std::fmt::Write as _;

/// Renders rows under a head. The first `words` columns are text and flush left, the others numbers and
/// flush right.
pub(crate) fn render(head: &[&str], words: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count(), 3]).max().unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    line(&mut text, head.iter().copied(), &widths, words);
    let rule = widths.iter().enumerate().map(|(column, &width)| {
        if column < words { "-".repeat(width) } else { format!("{}:", "-".repeat(width - 1)) }
    });
    let rule: Vec<String> = rule.collect();
    line(&mut text, rule.iter().map(String::as_str), &widths, words);
    for row in rows {
        line(&mut text, row.iter().map(String::as_str), &widths, words);
    }
    text
}

fn line<'a>(
    text: &mut String,
    cells: impl Iterator<Item = &'a str>,
    widths: &[usize],
    words: usize,
) {
    for (column, (cell, &width)) in cells.zip(widths).enumerate() {
        let _ = if column < words {
            write!(text, "| {cell:<width$} ")
        } else {
            write!(text, "| {cell:>width$} ")
        };
    }
    text.push_str("|\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let table = render(&["who", "ns"], 1, &[vec!["governor".into(), "60".into()]]);
        assert_eq!(table, "| who      |  ns |\n| -------- | --: |\n| governor |  60 |\n");
    }
}
