//! The copy of the active revision on disk: a line with a checksum, then JSON.

use std::io;
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sluicegate_config::rules::Source;

use crate::digest::sha256;
use crate::files::Disk;
use crate::revision::{Revision, StoredRevision};

const HEADER: &str = "sluicegate-rules-cache 1 sha256 ";

#[derive(Serialize, Deserialize)]
struct Content {
    written_at: Timestamp,
    revision: Revision,
    files: Vec<(String, String)>,
}

/// Replaces the copy as a whole.
pub(super) fn write(path: &Path, stored: &StoredRevision, now: Timestamp) -> io::Result<()> {
    let file = |source: &Source| (source.name.clone(), source.text.clone());
    let content = Content {
        written_at: now,
        revision: stored.revision.clone(),
        files: stored.sources.iter().map(file).collect(),
    };
    let json = serde_json::to_string(&content).map_err(io::Error::other)?;
    let text = format!("{HEADER}{}\n{json}", sha256(json.as_bytes()));
    Disk::default().replace(path, text.as_bytes())
}

/// The copy, and when it was written; none if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<(StoredRevision, Timestamp)>, String> {
    let shown = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(format!("the copy of the rules `{shown}` cannot be read: {error}"));
        }
    };
    let content = (|| {
        let (header, json) = text.split_once('\n')?;
        let is_intact = header.strip_prefix(HEADER)? == sha256(json.as_bytes());
        is_intact.then(|| serde_json::from_str::<Content>(json).ok())?
    })();
    let damaged = || format!("the copy of the rules `{shown}` is damaged, and is not used");
    let Content { written_at, revision, files } = content.ok_or_else(damaged)?;
    let sources = files.into_iter().map(|(name, text)| Source { name, text }).collect();
    Ok(Some((StoredRevision { revision, sources }, written_at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::{RevisionKind, RevisionState};

    #[test]
    fn a_damaged_copy_is_not_used() {
        let path = std::env::temp_dir().join(format!("sluicegate-cache-{}", std::process::id()));
        assert_eq!(read(&path), Ok(None));
        let now = Timestamp::from_second(1_794_744_000).unwrap();
        let revision = Revision {
            number: 7,
            base: Some(6),
            author: "alice".to_owned(),
            at: now,
            note: "why".to_owned(),
            kind: RevisionKind::Edit,
            state: RevisionState::Active,
            digest: String::new(),
            restores: None,
            activate_at: None,
            activated_at: Some(now),
            approved_by: None,
            suspended_because: None,
        };
        let source = Source { name: "a.yaml".to_owned(), text: "domain: a\n".to_owned() };
        let stored = StoredRevision { revision, sources: vec![source] };
        write(&path, &stored, now).unwrap();
        assert_eq!(read(&path), Ok(Some((stored, now))));
        let whole = std::fs::read(&path).unwrap();
        for end in [0, 10, whole.len() - 1] {
            std::fs::write(&path, &whole[..end]).unwrap();
            assert!(read(&path).unwrap_err().contains("is damaged"), "{end}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
