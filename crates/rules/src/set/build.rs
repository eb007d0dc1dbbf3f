//! Compiles the configured trees.

use std::collections::HashSet;

use super::patterns::{Glob, Patterns};
use super::table::{Table, hash};
use super::{
    DEPTH_MAX, Kind, Level, LevelNo, NEAR, NONE, Node, Root, RuleEntry, RuleSet, RuleSetError,
};
use crate::domain::{DescriptorConfig, Domain, Joint, ListEntry, Pattern};
use crate::rule::Limits;

pub(super) fn build(domains: Vec<Domain>) -> Result<RuleSet, RuleSetError> {
    let mut builder = Builder::default();
    let mut roots: Vec<Root> = Vec::with_capacity(domains.len());
    let mut names = HashSet::with_capacity(domains.len());
    for domain in domains {
        if !names.insert(domain.name.clone()) {
            return Err(RuleSetError::DuplicateDomain { name: domain.name });
        }
        let mut context = NodeContext {
            domain: number(roots.len())?,
            joint: domain.joint,
            parent: NONE,
            depth: 1,
        };
        let first = number(builder.nodes.len())?;
        let level = builder.level(domain.descriptors, context)?;
        let nodes = first..number(builder.nodes.len())?;
        context.joint = Joint::Apart;
        let mut list = |listed: Vec<ListEntry>| match listed.is_empty() {
            true => Ok(None),
            false => builder.level(listed.into_iter().map(leaf).collect(), context).map(Some),
        };
        let (allow, deny) = (list(domain.allow)?, list(domain.deny)?);
        let forward_auth = domain.forward_auth.map(Box::new);
        let (name, overrides) = (domain.name.into(), domain.overrides.into());
        roots.push(Root { name, level, nodes, allow, deny, forward_auth, overrides });
    }
    builder.finish(roots)
}

fn leaf(listed: ListEntry) -> DescriptorConfig {
    DescriptorConfig::new(listed.key, listed.value)
}

#[derive(Debug, Default)]
struct Builder {
    /// Levels with patterns or networks.
    levels: Vec<Level>,
    /// The number of other levels.
    plain_levels: usize,
    nodes: Vec<Node>,
    texts: String,
    /// The hashes of the nodes that the table finds.
    hashes: Vec<(u64, u32)>,
    rules: Vec<RuleEntry>,
    longest: usize,
}

/// The position of nodes in the tree.
#[derive(Debug, Clone, Copy)]
struct NodeContext {
    domain: u32,
    joint: Joint,
    parent: u32,
    depth: usize,
}

impl Builder {
    /// Adds a level with everything below it.
    fn level(
        &mut self,
        written: Vec<DescriptorConfig>,
        context: NodeContext,
    ) -> Result<LevelNo, RuleSetError> {
        let no = self.level_no(&written, context.joint)?;
        let mut level = Level::default();
        let mut expressions = HashSet::new();
        for node in written {
            if context.depth > DEPTH_MAX {
                return Err(RuleSetError::TooDeep { path: node.key });
            }
            let number = self.node(&node, no, context)?;
            match &node.value {
                Pattern::Regex(regex) => {
                    if !expressions.insert((node.key.clone(), regex.as_str().to_owned())) {
                        let path = format!("{}={regex}", node.key);
                        return Err(RuleSetError::DuplicateDescriptor { path });
                    }
                    level.patterns.add_expression(&node.key, regex.clone(), number);
                }
                Pattern::Networks(all) => {
                    for network in all {
                        level.networks.add(&node.key, *network, number);
                    }
                }
                Pattern::Any | Pattern::Text(_) => {
                    self.by_text(number, &node, context, &mut level.patterns);
                }
            }
            if !node.descriptors.is_empty() {
                let below = NodeContext { parent: number, depth: context.depth + 1, ..context };
                self.nodes[number as usize].level = self.level(node.descriptors, below)?;
            }
            if let Some(rule) = node.rule {
                self.nodes[number as usize].rule = self::number(self.rules.len())?;
                let pools: Vec<_> = rule.pools().iter().map(|pool| rule.of_pool(pool)).collect();
                for (rule, pool) in std::iter::once(rule).chain(pools).zip(0..) {
                    let domain = context.domain;
                    self.rules.push(RuleEntry { rule, node: number, domain, pool });
                }
            }
        }
        level.patterns.finish();
        level.networks.finish().map_err(|(key, network)| RuleSetError::DuplicateDescriptor {
            path: format!("{key}={network}"),
        })?;
        if let Some(index) = no.tried() {
            self.levels[index] = level;
        }
        Ok(no)
    }

    /// The number of a level with these nodes.
    fn level_no(
        &mut self,
        written: &[DescriptorConfig],
        joint: Joint,
    ) -> Result<LevelNo, RuleSetError> {
        let is_tried = |node: &DescriptorConfig| match (&node.value, joint) {
            (Pattern::Regex(_) | Pattern::Networks(_), _) => true,
            (Pattern::Text(_), _) if node.value.is_glob() => true,
            (Pattern::Any | Pattern::Text(_), Joint::Joined) => node.key.contains('*'),
            (Pattern::Any | Pattern::Text(_), Joint::Apart) => false,
        };
        let tried = written.iter().any(is_tried);
        let index = if tried { self.levels.len() } else { self.plain_levels };
        match tried {
            // Filled when everything below it is built.
            true => self.levels.push(Level::default()),
            false => self.plain_levels += 1,
        }
        LevelNo::new(index, joint, tried).ok_or(RuleSetError::TooMany)
    }

    fn node(
        &mut self,
        written: &DescriptorConfig,
        level: LevelNo,
        context: NodeContext,
    ) -> Result<u32, RuleSetError> {
        let no = number(self.nodes.len())?;
        let start = self.texts.len();
        self.texts.push_str(&written.key);
        match &written.value {
            Pattern::Any => {}
            Pattern::Text(text) => self.value(text),
            Pattern::Regex(regex) => self.value(regex.as_str()),
            Pattern::Networks(networks) => {
                let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
                self.value(&texts.join(","));
            }
        }
        let text = &self.texts.as_bytes()[start..];
        let mut near = [0; NEAR];
        near.iter_mut().zip(text).for_each(|(near, byte)| *near = *byte);
        self.nodes.push(Node {
            near,
            text_start: number(start)?,
            text_length: number(text.len())?,
            key_length: number(written.key.len())?,
            of_level: level,
            parent: context.parent,
            level: LevelNo::NONE,
            rule: NONE,
            kind: match written.value {
                Pattern::Any | Pattern::Text(_) => Kind::Text,
                Pattern::Regex(_) => Kind::Regex,
                Pattern::Networks(_) => Kind::Networks,
            },
            counter: written.counter,
            value_to_metric: written.value_to_metric,
        });
        Ok(no)
    }

    fn value(&mut self, text: &str) {
        self.texts.push('_');
        self.texts.push_str(text);
    }

    /// Adds a node to the table, and to the patterns if there is a star in its text.
    fn by_text(
        &mut self,
        no: u32,
        written: &DescriptorConfig,
        context: NodeContext,
        patterns: &mut Patterns,
    ) {
        let node = &self.nodes[no as usize];
        let start = node.text_start as usize;
        let text = &self.texts[start..start + node.text_length as usize];
        self.hashes.push((hash(node.of_level.0, text.as_bytes()), no));
        self.longest = self.longest.max(text.len());
        let (glob, key_length) = match context.joint {
            Joint::Joined => (Glob::new(text, 0), None),
            // A star in the key is no wildcard here.
            Joint::Apart => (Glob::new(text, written.key.len()), Some(written.key.len())),
        };
        if let Some(glob) = glob {
            patterns.add_glob(glob, key_length, no);
        }
    }

    fn finish(mut self, roots: Vec<Root>) -> Result<RuleSet, RuleSetError> {
        let names = roots.iter().zip(0..).map(|(root, no)| (hash(NONE, root.name.as_bytes()), no));
        let domain_table = Table::new(names.collect::<Vec<_>>().into_iter());
        let mut set = RuleSet {
            domain_table,
            domains: roots.into(),
            has_pools: self.rules.iter().any(|entry| entry.pool > 0),
            replacing: self.rules.iter().any(|entry| !entry.rule.replaces().is_empty()),
            levels: self.levels.into(),
            nodes: self.nodes.into(),
            texts: self.texts.into(),
            table: Table::default(),
            rules: self.rules.into(),
            longest: self.longest,
            digests: Box::default(),
        };
        // Before the table is built: many equal hashes would make its probe sequences long.
        self.hashes.sort_unstable();
        if let Some(node) = set.twin(&self.hashes) {
            let (key, value) = set.written(node);
            let value = value.map(|value| format!("={value}")).unwrap_or_default();
            return Err(RuleSetError::DuplicateDescriptor { path: format!("{key}{value}") });
        }
        set.table = Table::new(self.hashes.into_iter());
        if let Some(name) = set.repeated_name() {
            return Err(RuleSetError::DuplicateName { name });
        }
        Ok(set)
    }
}

impl RuleSet {
    /// A name that two rules of a domain share, which would not identify them across reloads.
    fn repeated_name(&self) -> Option<String> {
        let named =
            self.rules.iter().filter(|entry| matches!(entry.rule.limits, Limits::Native(_)));
        let named = named.filter(|entry| entry.pool == 0);
        let mut names = named.filter_map(|entry| Some((entry.domain, entry.rule.name.as_ref()?)));
        let mut seen = HashSet::new();
        names.find(|name| !seen.insert(*name)).map(|(_, name)| name.to_string())
    }

    /// A node that matches the same entries as one before it; `hashes` are sorted.
    fn twin(&self, hashes: &[(u64, u32)]) -> Option<&Node> {
        let same = |node: &Node, other: &Node| {
            other.of_level == node.of_level
                && (node.of_level.joint() == Joint::Joined || other.key_length == node.key_length)
                && self.text(other) == self.text(node)
        };
        for alike in hashes.chunk_by(|(one, _), (other, _)| one == other) {
            let node = |(_, no): &(u64, u32)| &self.nodes[*no as usize];
            for (index, later) in alike.iter().enumerate() {
                if alike[..index].iter().any(|earlier| same(node(earlier), node(later))) {
                    return Some(node(later));
                }
            }
        }
        None
    }
}

fn number(count: usize) -> Result<u32, RuleSetError> {
    u32::try_from(count).ok().filter(|number| *number != NONE).ok_or(RuleSetError::TooMany)
}
