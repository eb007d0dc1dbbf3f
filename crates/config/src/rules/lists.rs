//! `allow` and `deny`: who passes everything, and who nothing.

use sluicegate_rules::domain::Listed;

use super::VALUE_CHARS_MAX;
use super::keys::Level;
use super::reader::Reader;
use crate::fields::Value;
use crate::problem::Position;
use crate::yaml::Content;

/// An entry of a list, and where it was written.
pub(super) struct Entry {
    pub(super) listed: Listed,
    pub(super) source: usize,
    pub(super) at: Position,
    /// Such as `deny[3]`.
    pub(super) path: String,
}

impl Reader<'_> {
    pub(super) fn list(&mut self, spot: &Value<'_, '_>) -> Vec<Entry> {
        const EXAMPLE: &str = "[{ key: remote_address, cidr: 10.0.0.0/8 }]";
        if !spot.is_list() {
            let (path, got) = (spot.path, spot.node.described());
            let message = format!("must be a list, got {got}; write it like `{path}: {EXAMPLE}`");
            self.refuse(spot, message);
        }
        let mut entries = Vec::new();
        for item in spot.items() {
            if !matches!(item.node.content, Content::Mapping(_)) {
                let got = item.node.described();
                let message = format!(
                    "must be a mapping, got {got}; write it like `{{ key: user_id, value: mallory }}`"
                );
                self.refuse(&item, message);
                continue;
            }
            let found = self.known(&item, Level::Listed);
            let key = self.key_of(&item, &found);
            let value = self.pattern(&item, &found, VALUE_CHARS_MAX);
            if let (Ok(key), Ok(value)) = (key, value) {
                entries.push(Entry {
                    listed: Listed { key: key.to_owned(), value },
                    source: self.source,
                    at: item.at(),
                    path: item.path.to_string(),
                });
            }
        }
        entries
    }
}
