//! Markdown tables with aligned columns.

use std::fmt::Write as _;

use crate::frame::{Reading, Row};

/// Renders rows under a head. The first `words` columns are flush left, the others flush right.
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

/// A table with a row per name and a number per column.
pub(crate) fn of_columns<R: Reading>(
    title: &str,
    columns: &[(&str, fn(&R) -> f64)],
    rows: &[Row<R>],
    places: usize,
) -> String {
    let head: Vec<&str> =
        [title].into_iter().chain(columns.iter().map(|column| column.0)).collect();
    let cells = |row: &Row<R>| {
        let numbers = columns.iter().map(|(_, number)| row.shown(places, number));
        [row.name.clone()].into_iter().chain(numbers).collect()
    };
    render(&head, 1, &rows.iter().map(cells).collect::<Vec<_>>())
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
