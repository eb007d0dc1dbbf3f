//! What is refused before anything is parsed.

use super::{START, TEXT_BYTES_MAX, Unreadable, unreadable};
use crate::problem::Position;

pub(super) fn refuse_long(text: &str) -> Result<(), Unreadable> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    let most = TEXT_BYTES_MAX >> 20;
    let message = format!("longer than {most} MiB; split the file");
    Err(unreadable(START, message))
}

/// YAML's printable characters, and no others: the parser takes a NUL for the end.
pub(super) fn refuse_unprintable(text: &str) -> Result<(), Unreadable> {
    let forbidden = |letter: char| {
        let control = letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{85}');
        control || matches!(letter, '\u{fffe}' | '\u{ffff}')
    };
    // Nearly all texts are plain ASCII, which is looked through much faster by bytes.
    let plain = |byte: u8| matches!(byte, b' '..=b'~') | matches!(byte, b'\t' | b'\n' | b'\r');
    if text.as_bytes().chunks(64).all(|bytes| bytes.iter().fold(true, |all, b| all & plain(*b))) {
        return Ok(());
    }
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
