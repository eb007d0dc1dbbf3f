//! Position of a problem.

use sluicegate_config::problem::Problem;

/// Panics unless a problem has this source, a position in its text, and a message of one line.
pub fn check(problem: &Problem, name: &str, text: &str) {
    assert_eq!(problem.source(), name);
    let message = problem.to_string();
    assert!(!message.contains(['\n', '\r', '\u{1b}']), "{message:?}");
    let (line, column) = (problem.line(), problem.column());
    assert!(line >= 1 && column >= 1, "{message}");
    // The end of the text is a valid position: on the last line, or on the next after a break.
    let lines = text.split_inclusive(['\n', '\r']).count();
    assert!(line <= lines + 1, "line {line} of {lines}: {message}");
    let longest = text.split(['\n', '\r']).map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(column <= longest + 1, "column {column} of {longest}: {message}");
}
