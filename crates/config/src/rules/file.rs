//! Reads one file: its domain, form, lists and descriptors.

use sluicegate_rules::domain::{DescriptorConfig, LIMITER_DOMAIN, ListEntry};

use super::descriptor::Origin;
use super::forward_auth::ForwardAuthSource;
use super::keys::{Form, Key, Level};
use super::overrides::PositionedOverride;
use super::plans::PlanName;
use super::reader::{Found, Reader};
use super::{KEY_CHARS_MAX, Source, VALUE_CHARS_MAX};
use crate::fields::{Path, Value};
use crate::problem::{Position, Report, Reported};
use crate::yaml::{self, Content, Node};

/// The content of a file.
pub(super) struct FileRead {
    /// The name of its domain, and where it is written.
    pub(super) domain: String,
    pub(super) at: Position,
    pub(super) form: Form,
    /// Whether the file removes its domain.
    pub(super) removed: bool,
    pub(super) allow: Vec<PositionedEntry>,
    pub(super) deny: Vec<PositionedEntry>,
    pub(super) forward_auth: Option<ForwardAuthSource>,
    pub(super) plans: Vec<PlanName>,
    pub(super) overrides: Vec<PositionedOverride>,
    pub(super) descriptors: Vec<DescriptorConfig>,
    pub(super) origins: Vec<Origin>,
}

const START: Position = Position { line: 1, column: 1 };

/// Reads a file. Problems are added to the report; the valid parts are returned, so that they are
/// compared with other files.
pub(super) fn read(index: usize, source: &Source, report: &mut Report) -> Option<FileRead> {
    let (root, second) = match yaml::first_document(&source.text) {
        Ok(read) => read,
        Err(error) => {
            let message = format!("error loading config file: {}", error.message);
            report.add(error.at, Path::Root, message);
            return None;
        }
    };
    let native = root.as_ref().and_then(native_key);
    let form = if native.is_some() { Form::Native } else { Form::Envoy };
    let mut reader = Reader { form, native, source: index, replaced: false, report };
    if let Some(at) = second {
        let message = "a second document begins here and only the first is read; write a file for \
                       each domain";
        reader.warn_or_refuse(at, &Path::Root, message.to_owned());
    }
    let root = root.filter(|root| !root.is_null());
    match &root {
        Some(root) => reader.file(&Value::root(root)),
        None => {
            let message = "config file cannot have empty domain, the file holds nothing; write \
                           `domain: shop` and its `descriptors`, or remove the file";
            reader.report.add(START, Path::Root, message.to_owned());
            None
        }
    }
}

impl Reader<'_> {
    fn file(&mut self, root: &Value<'_, '_>) -> Option<FileRead> {
        if !matches!(root.node.content, Content::Mapping(_)) {
            let must = "a file of rules must be a mapping";
            let remedy = "begin it with `domain: shop` (mind the blank after the colon)";
            self.mistyped(root, "map[interface {}]interface {}", must, remedy);
            return None;
        }
        let found = self.known(root, Level::Root);
        let domain = match found.get(Key::Domain) {
            Some(pair) => self.domain(&root.field(pair)),
            None if found.is_misspelled(Key::Domain) => Err(Reported),
            None => {
                let message = "config file cannot have empty domain, got none; add it, like \
                               `domain: shop`";
                Err(self.refuse(root, message.to_owned()))
            }
        };
        let removed = self.removed(root, &found);
        let mut list =
            |key: Key| found.get(key).map_or_else(Vec::new, |pair| self.list(&root.field(pair)));
        let (allow, deny) = (list(Key::Allow), list(Key::Deny));
        let forward_auth =
            found.get(Key::ForwardAuth).and_then(|pair| self.forward_auth(&root.field(pair)).ok());
        let plans = found.get(Key::Plans).map_or_else(Vec::new, |p| self.plans(&root.field(p)));
        let overrides =
            found.get(Key::Overrides).map_or_else(Vec::new, |p| self.overrides(&root.field(p)));
        let (descriptors, origins) = match found.get(Key::Descriptors) {
            Some(pair) => self.descriptors(&root.field(pair), 1),
            None => (Vec::new(), Vec::new()),
        };
        let at = found.get(Key::Domain).map_or(START, |pair| pair.value.at);
        let (domain, form) = (domain.ok()?, self.form);
        Some(FileRead {
            domain,
            at,
            form,
            removed,
            allow,
            deny,
            forward_auth,
            plans,
            overrides,
            descriptors,
            origins,
        })
    }

    /// Reads `removed: true`, which must be alone: a removed domain with rules is ambiguous, and so
    /// is `removed: false`.
    fn removed<'t>(&mut self, root: &Value<'t, '_>, found: &Found<'t>) -> bool {
        let Some(pair) = found.get(Key::Removed) else { return false };
        let removed = root.field(pair);
        match self.truth(&removed) {
            Ok(true) => {}
            Ok(false) => {
                let message = "must be `true`, which removes the domain; remove this line to limit the \
                               domain by its rules";
                self.refuse(&removed, message.to_owned());
            }
            Err(Reported) => {}
        }
        for key in NOT_REMOVED {
            let Some(pair) = found.get(key) else { continue };
            let name = key.name();
            let message = format!(
                "has no meaning in a domain that is removed; delete `{name}`, or delete `removed` to \
                 limit the domain"
            );
            self.refuse(&root.field(pair), message);
        }
        true
    }

    fn domain(&mut self, input: &Value<'_, '_>) -> Result<String, Reported> {
        let name = self.text(input)?;
        if name.is_empty() {
            let message = "config file cannot have empty domain; write a name, like `domain: shop`";
            return Err(self.refuse(input, message.to_owned()));
        }
        if name == LIMITER_DOMAIN {
            let message = "is reserved for limiters of the library, whose counters its rules would \
                           share, got `@limiter`; choose another name, like `domain: shop`";
            return Err(self.refuse(input, message.to_owned()));
        }
        self.check_length(input, name, KEY_CHARS_MAX).map(str::to_owned)
    }
}

/// The keys that have no meaning in a domain that is removed.
pub(crate) const NOT_REMOVED: [Key; 6] =
    [Key::Descriptors, Key::Allow, Key::Deny, Key::ForwardAuth, Key::Plans, Key::Overrides];

/// The first native key of a file, and where it is: it makes the form of the file native.
fn native_key(node: &Node) -> Option<(Key, Position)> {
    let Content::Mapping(pairs) = &node.content else { return None };
    pairs.iter().find_map(|pair| {
        let Content::Scalar { text, .. } = &pair.key.content else { return None };
        match (Key::of(text)?, &pair.value.content) {
            (key, _) if key.form() == Form::Native => Some((key, pair.key.at)),
            (Key::Descriptors, Content::Sequence(items)) => items.iter().find_map(native_key),
            _ => None,
        }
    })
}

/// An entry of a list, and where it was written.
pub(super) struct PositionedEntry {
    pub(super) listed: ListEntry,
    pub(super) source: usize,
    pub(super) at: Position,
    /// Such as `deny[3]`.
    pub(super) path: String,
}

impl Reader<'_> {
    pub(super) fn list(&mut self, input: &Value<'_, '_>) -> Vec<PositionedEntry> {
        const EXAMPLE: &str = "[{ key: remote_address, cidr: 10.0.0.0/8 }]";
        if !input.is_list() {
            let (path, got) = (input.path, input.node.described());
            let message = format!("must be a list, got {got}; write it like `{path}: {EXAMPLE}`");
            self.refuse(input, message);
        }
        let mut entries = Vec::new();
        for item in input.items() {
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
                entries.push(PositionedEntry {
                    listed: ListEntry { key: key.to_owned(), value },
                    source: self.source,
                    at: item.at(),
                    path: item.path.to_string(),
                });
            }
        }
        entries
    }
}
