//! The data structure of envoyproxy/ratelimit in Rust: a map in every node, and a new string per
//! lookup.

use std::collections::HashMap;

use sluicegate_rules::domain::{DescriptorConfig, Domain, Pattern};
use sluicegate_rules::request::Entry;

/// A node, and a whole domain.
#[derive(Debug, Default)]
pub(crate) struct Nested {
    below: HashMap<String, Self>,
    /// Texts that end in a star, in the order of the file.
    globs: Vec<String>,
    rule: Option<u64>,
}

impl Nested {
    /// `None` if a rule is not in Envoy's form.
    pub(crate) fn new(domain: &Domain) -> Option<Self> {
        let mut root = Self::default();
        root.add(&domain.descriptors)?;
        Some(root)
    }

    fn add(&mut self, nodes: &[DescriptorConfig]) -> Option<()> {
        for node in nodes {
            let text = match &node.value {
                Pattern::Any => node.key.clone(),
                Pattern::Text(text) => format!("{}_{text}", node.key),
                Pattern::Regex(_) | Pattern::Networks(_) => return None,
            };
            if text.ends_with('*') {
                self.globs.push(text.clone());
            }
            let mut below =
                Self { rule: node.rule.as_ref().map(|rule| rule.cost), ..Self::default() };
            below.add(&node.descriptors)?;
            self.below.insert(text, below);
        }
        Some(())
    }

    /// The rule of these entries.
    pub(crate) fn find(&self, entries: &[Entry<'_>]) -> Option<u64> {
        let mut node = self;
        for entry in entries {
            let text = format!("{}_{}", entry.key, entry.value);
            let glob = || {
                let matches = |glob: &&String| text.starts_with(&glob[..glob.len() - 1]);
                node.below.get(node.globs.iter().find(matches)?)
            };
            let exact = node.below.get(&text);
            node = exact.or_else(glob).or_else(|| node.below.get(entry.key))?;
        }
        node.rule
    }
}
