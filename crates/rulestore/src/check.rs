//! Validation of a set of files, as `sluicegate check` does it.

use sluicegate_config::rules::{Loaded, Options, Source, load};
use sluicegate_core::time::Timestamp;
use sluicegate_rules::resolve::resolve;
use sluicegate_rules::set::RuleSet;

use crate::error::StoreError;

/// Maximum size of the files of a revision that is proposed, in bytes.
pub const SET_BYTES_MAX: usize = 4 << 20;
/// Maximum number of its files.
pub const FILE_COUNT_MAX: usize = 1_000;
/// Longest note, author and name of a file, in bytes.
const NOTE_BYTES_MAX: usize = 4 << 10;
const AUTHOR_BYTES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 255;

/// Valid rules.
#[derive(Debug)]
pub struct CheckedRules {
    /// The compiled set.
    pub set: RuleSet,
    /// What it was compiled from.
    pub loaded: Loaded,
}

impl CheckedRules {
    pub(crate) fn digest(&self) -> String {
        format!("{:016x}", self.set.digest())
    }
}

/// Validates files as one configuration. Its warnings are in `loaded`.
///
/// # Errors
/// All problems ([`StoreError::Invalid`]).
pub fn check(
    sources: &[Source],
    options: &Options,
    now: jiff::Timestamp,
) -> Result<CheckedRules, StoreError> {
    let mut loaded = load(sources, options).map_err(|invalid| StoreError::Invalid {
        problems: invalid.problems.iter().cloned().collect(),
        warnings: invalid.warnings,
    })?;
    let unfit = |error: &dyn std::fmt::Display| {
        StoreError::BadRequest(format!("the rules cannot be enforced together: {error}"))
    };
    // Schedules and overrides as of now.
    let now = Timestamp::from_micros(u64::try_from(now.as_microsecond()).unwrap_or_default());
    let resolved =
        resolve(std::mem::take(&mut loaded.domains), now).map_err(|error| unfit(&error))?;
    loaded.domains = resolved.domains;
    let set = RuleSet::new(loaded.domains.clone()).map_err(|error| unfit(&error))?;
    Ok(CheckedRules { set, loaded })
}

/// Checks what surrounds the rules: sizes, names, note and author. Sorts the files by name.
pub(crate) fn check_form(
    sources: &mut [Source],
    author: &str,
    note: &str,
) -> Result<(), StoreError> {
    let bad = |message: String| Err(StoreError::BadRequest(message));
    if note.trim().is_empty() {
        return bad("a note is required: write why the rules change".to_owned());
    }
    if note.len() > NOTE_BYTES_MAX || author.len() > AUTHOR_BYTES_MAX {
        return bad(format!(
            "a note may have {NOTE_BYTES_MAX} bytes, and the name of an author {AUTHOR_BYTES_MAX}; shorten it"
        ));
    }
    if author.trim().is_empty() {
        return bad("an author is required".to_owned());
    }
    if sources.len() > FILE_COUNT_MAX {
        return bad(format!("a revision may have {FILE_COUNT_MAX} files, got {}", sources.len()));
    }
    let bytes: usize = sources.iter().map(|source| source.text.len()).sum();
    if bytes > SET_BYTES_MAX {
        return bad(format!(
            "a revision may have {} MiB, got {bytes} bytes; large sets of rules come from files",
            SET_BYTES_MAX >> 20
        ));
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    for source in sources.iter() {
        check_name(&source.name)?;
    }
    match sources.windows(2).find(|two| two[0].name == two[1].name) {
        Some(two) => bad(format!("the file `{}` is given twice; merge both", two[0].name)),
        None => Ok(()),
    }
}

/// A relative path without dot files, so that it stays within the directory and is read.
fn check_name(name: &str) -> Result<(), StoreError> {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.');
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\\' | ':');
    let parts = name.split('/').count();
    if name.len() <= NAME_BYTES_MAX
        && parts <= 8
        && name.split('/').all(is_part)
        && name.chars().all(is_plain)
    {
        return Ok(());
    }
    let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
    Err(StoreError::BadRequest(format!(
        "the name `{shown}` of a file must be a relative path without dot files, such as `shop.yaml`"
    )))
}
