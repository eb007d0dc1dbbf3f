//! Names of rules in the metrics of envoyproxy/ratelimit.

use std::borrow::Cow;

use super::identity::{CountedValue, split_part, split_value};
use super::{Kind, Node, RuleNo, RuleSet};
use crate::domain::{Counter, Joint};

impl RuleSet {
    /// Appends the name of a rule and an identity in envoyproxy/ratelimit's metrics:
    /// `shop.user_id.path_/login*`.
    ///
    /// Values are part of the name where the rule has `detailed_metric` or the descriptor has
    /// `value_to_metric`. Values that share a counter are named by their pattern, addresses that
    /// share one by their network.
    ///
    /// ```
    /// use sluicegate_rules::domain::{DescriptorConfig, Domain};
    /// use sluicegate_rules::plan::Plan;
    /// use sluicegate_rules::request::{Descriptor, Entry, Request};
    /// use sluicegate_rules::rule::{Limits, RuleConfig};
    /// use sluicegate_rules::set::RuleSet;
    /// use sluicegate_rules::unit::Unit;
    ///
    /// let rule = RuleConfig::new(Limits::Envoy { requests_per_unit: 20, unit: Unit::Minute });
    /// let mut users = DescriptorConfig::any("user_id");
    /// (users.rule, users.value_to_metric) = (Some(rule), true);
    /// let rules = RuleSet::new(vec![Domain { descriptors: vec![users], ..Domain::new("shop") }])?;
    /// let entries = [Entry::new("user_id", "42")];
    /// let (mut plan, mut key) = (Plan::default(), String::new());
    /// let descriptors = [Descriptor::of(&entries)];
    /// rules.plan(&Request { domain: "shop", descriptors: &descriptors, hits: 1 }, &mut plan);
    /// let no = rules.rules().next().unwrap();
    /// assert!(rules.names_values(no));
    /// rules.write_stat_key(no, plan.identity(&plan.steps()[0]), &mut key);
    /// assert_eq!(key, "shop.user_id_42");
    /// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
    /// ```
    ///
    /// # Panics
    /// When the rule is of another set.
    pub fn write_stat_key(&self, no: RuleNo, identity: &[u8], out: &mut String) {
        let detailed = self.rule(no).detailed_metric;
        // As in envoyproxy/ratelimit: an entry without a value retains its `_`, unless a node
        // shares its counter.
        let joint_stays = detailed && !self.path_to(no).any(Node::is_shared);
        let mut rest = identity;
        split_part(&mut rest);
        out.push_str(self.domain_of(no));
        let pool = self.pool_of(no);
        for node in self.path_to(no) {
            let Some(key) = split_part(&mut rest) else { return };
            let key = String::from_utf8_lossy(key);
            let value = match split_value(&mut rest) {
                CountedValue::Value(value) => Some(String::from_utf8_lossy(value)),
                CountedValue::Network(network) => Some(Cow::Owned(network.to_string())),
                CountedValue::Node(_) => None,
            };
            out.push('.');
            match value {
                Some(value) if detailed || node.value_to_metric => {
                    out.push_str(&key);
                    if joint_stays || !value.is_empty() {
                        out.push('_');
                        out.push_str(&value);
                    }
                }
                _ => self.write_configured(node, &key, out),
            }
        }
        if let Some(pool) = pool {
            out.push('.');
            out.push_str(pool);
        }
    }

    /// Whether the name of a rule in metrics depends on the values of requests.
    ///
    /// # Panics
    /// When the rule is of another set.
    #[must_use]
    pub fn names_values(&self, no: RuleNo) -> bool {
        let detailed = self.rule(no).detailed_metric;
        self.path_to(no).any(|node| {
            let value = self.written(node).1;
            let is_exact =
                node.kind == Kind::Text && value.is_some_and(|value| !value.contains('*'));
            (detailed || node.value_to_metric) && !node.is_shared() && !is_exact
        })
    }

    fn path_to(&self, no: RuleNo) -> impl Iterator<Item = &Node> {
        self.nodes_to(self.rules[no.0 as usize].node)
    }

    /// Appends the text of a node. Where key and value are one text, a pattern may have been
    /// written for another key; as there, the entry's key comes first then.
    fn write_configured(&self, node: &Node, key: &str, out: &mut String) {
        let text = self.text(node);
        let joined = node.of_level.joint() == Joint::Joined;
        if joined && text.contains('*') {
            let rest = text.strip_prefix(key).and_then(|rest| rest.strip_prefix('_'));
            out.push_str(key);
            out.push('_');
            out.push_str(rest.unwrap_or(text));
        } else {
            out.push_str(text);
        }
    }
}

impl Node {
    /// Whether all its values share a counter.
    fn is_shared(&self) -> bool {
        self.counter == Counter::Shared
    }
}
