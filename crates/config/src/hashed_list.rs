//! Files that list secrets by their hashes: API keys of clients, tokens of operators.

use std::collections::HashMap;

use crate::fields::{self, Path, Value};
use crate::problem::{Problems, Report, Reported, quoted};
use crate::rules::Source;
use crate::units::UnitError;

/// Reads a list whose entries have a hash and a name. No hash may occur twice.
pub(crate) fn read<T>(
    source: &Source,
    example: &str,
    entry: fn(&Value<'_, '_>, &mut Report) -> Result<T, Reported>,
    identity: fn(&T) -> ([u8; 32], &str),
) -> Result<Vec<T>, Problems> {
    let mut report = Report::new(&source.name);
    let read = list(&source.text, example, entry, identity, &mut report);
    report.finish(read)
}

fn list<T>(
    text: &str,
    example: &str,
    entry: fn(&Value<'_, '_>, &mut Report) -> Result<T, Reported>,
    identity: fn(&T) -> ([u8; 32], &str),
    report: &mut Report,
) -> Result<Vec<T>, Reported> {
    let root = fields::document(text, example, report)?;
    let list = Value { node: &root, path: Path::Root };
    if !list.is_list() {
        let got = list.node.described();
        let message = format!("must be a list of keys, got {got}; write it like `{example}`");
        return Err(list.refuse(report, message));
    }
    let mut lines = HashMap::new();
    let mut entries = Ok(Vec::new());
    for item in list.items() {
        let read = entry(&item, report).and_then(|one| {
            let (hash, name) = identity(&one);
            match lines.insert(hash, item.at().line) {
                None => Ok(one),
                Some(line) => {
                    let name = quoted(name);
                    let message = format!(
                        "is the key of line {line} again, got {name}; give every client a key of its own"
                    );
                    Err(item.refuse(report, message))
                }
            }
        });
        match (&mut entries, read) {
            (Ok(entries), Ok(one)) => entries.push(one),
            (_, Err(reported)) => entries = Err(reported),
            (Err(_), Ok(_)) => {}
        }
    }
    entries
}

/// A hash in hexadecimal digits; `command` prints it.
pub(crate) fn sha256(text: &str, command: &str) -> Result<[u8; 32], UnitError> {
    // The value is not repeated: it may be the key itself.
    let refuse = || {
        UnitError::new(format!(
            "must be 64 hexadecimal digits, got {} characters; write the output of `{command}`",
            text.chars().count()
        ))
    };
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return Err(refuse());
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| refuse())?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(refuse());
        }
        *byte = u8::from_str_radix(digits, 16).map_err(|_| refuse())?;
    }
    Ok(hash)
}
