//! A set of files as one YAML stream, for export and import.
//!
//! Each file is a document behind a line `--- # file: NAME`. The text of a file is unchanged, its
//! comments included.

use std::fmt;

use sluicegate_config::rules::Source;

const HEADER: &str = "--- # file: ";
/// Behind the name of a file whose last line has no end.
const NO_NEWLINE: &str = " (no newline at the end)";
/// Name of the file of a stream without headers.
const PLAIN_NAME: &str = "rules.yaml";

/// Why a set cannot be exported or imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError(String);

/// One YAML stream of all files.
///
/// ```
/// use sluicegate_config::rules::Source;
/// use sluicegate_rulestore::{export, import};
///
/// let files = vec![Source { name: "shop.yaml".to_owned(), text: "domain: shop\n".to_owned() }];
/// let stream = export(&files)?;
/// assert_eq!(stream, "--- # file: shop.yaml\ndomain: shop\n");
/// assert_eq!(import(&stream)?, files);
/// # Ok::<(), sluicegate_rulestore::ImportError>(())
/// ```
///
/// # Errors
/// When a file has a line that looks like the header of one.
pub fn export(sources: &[Source]) -> Result<String, ImportError> {
    let mut stream = String::new();
    for Source { name, text } in sources {
        if text.lines().any(|line| line.starts_with(HEADER)) {
            return Err(ImportError(format!(
                "`{name}` has a line that begins with `{HEADER}`, which separates files; change that line"
            )));
        }
        let is_complete = text.is_empty() || text.ends_with('\n');
        let mark = if is_complete { "" } else { NO_NEWLINE };
        stream.extend([HEADER, name, mark, "\n", text]);
        if !is_complete {
            stream.push('\n');
        }
    }
    Ok(stream)
}

/// The files of a stream; one without headers is one file.
///
/// # Errors
/// When text precedes the first header.
pub fn import(stream: &str) -> Result<Vec<Source>, ImportError> {
    if !stream.lines().any(|line| line.starts_with(HEADER)) {
        return Ok(vec![Source { name: PLAIN_NAME.to_owned(), text: stream.to_owned() }]);
    }
    let mut files: Vec<(Source, bool)> = Vec::new();
    for line in stream.split_inclusive('\n') {
        if let Some(name) = line.strip_prefix(HEADER) {
            let name = name.trim_end_matches(['\n', '\r']);
            let complete = name.strip_suffix(NO_NEWLINE);
            let source = Source { name: complete.unwrap_or(name).to_owned(), text: String::new() };
            files.push((source, complete.is_none()));
        } else if let Some((source, _)) = files.last_mut() {
            source.text.push_str(line);
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            return Err(ImportError(format!(
                "text precedes the first `{HEADER}NAME`; put it behind such a line"
            )));
        }
    }
    let finish = |(mut source, is_complete): (Source, bool)| {
        if !is_complete && source.text.ends_with('\n') {
            source.text.pop();
        }
        source
    };
    Ok(files.into_iter().map(finish).collect())
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImportError {}
