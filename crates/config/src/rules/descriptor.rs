//! Reads descriptors and their children.

use sluicegate_rules::domain::{Counter, DescriptorConfig, Pattern};

use super::keys::{Form, Key, Level};
use super::plans::PlanRules;
use super::reader::{Found, Reader};
use super::{DEPTH_MAX, KEY_CHARS_MAX, VALUE_CHARS_MAX};
use crate::fields::Value;
use crate::problem::{Position, Reported, quoted, shortened};
use crate::yaml::{Content, Pair};

impl Reader<'_> {
    /// Reads a list of descriptors, `depth` levels below the file.
    pub(super) fn descriptors(
        &mut self,
        list: &Value<'_, '_>,
        depth: usize,
    ) -> (Vec<DescriptorConfig>, Vec<Origin>) {
        let Content::Sequence(items) = &list.node.content else {
            if !list.node.is_null() {
                let must = "`descriptors` must be a list";
                let remedy = "begin each descriptor with a dash, like `- key: user_id`";
                self.mistyped(list, "[]config.YamlDescriptor", must, remedy);
            }
            return (Vec::new(), Vec::new());
        };
        if self.form == Form::Native && depth > DEPTH_MAX {
            let message = format!(
                "descriptors are nested more than {DEPTH_MAX} deep; a request has as many entries: \
                 put several into one"
            );
            self.refuse(list, message);
            return (Vec::new(), Vec::new());
        }
        let mut nodes = Vec::with_capacity(items.len());
        let mut origins = Vec::with_capacity(items.len());
        for (index, item) in list.items().enumerate() {
            if !matches!(item.node.content, Content::Mapping(_)) {
                self.refuse_item(&item);
            } else if let Some((node, origin)) = self.descriptor(&item, index, depth) {
                nodes.push(node);
                origins.push(origin);
            }
        }
        (nodes, origins)
    }

    fn descriptor(
        &mut self,
        input: &Value<'_, '_>,
        index: usize,
        depth: usize,
    ) -> Option<(DescriptorConfig, Origin)> {
        let found = self.known(input, Level::Descriptor);
        let key = self.key_of(input, &found);
        let value = self.pattern(input, &found, VALUE_CHARS_MAX);
        let counter = match (&key, &value) {
            (Ok(key), Ok(value)) => self.counter(input, &found, key, value),
            _ => Err(Reported),
        };
        let value_to_metric = self.flag(input, &found, Key::ValueToMetric);
        let mut names = Names::default();
        let (rule, plans) = self.rule(input, &found, &mut names).unwrap_or_default();
        let (descriptors, below) = match found.get(Key::Descriptors) {
            Some(pair) => self.descriptors(&input.field(pair), depth.saturating_add(1)),
            None => (Vec::new(), Vec::new()),
        };
        let limited = found.get(Key::RateLimit).or(found.get(Key::Limits)).is_some();
        let childless = found.get(Key::Descriptors).is_none_or(|pair| pair.value.is_null());
        self.without_effect(input, &found, limited, childless);
        // Invalid parts are reported; the rest remains, so that further problems are found.
        let node = DescriptorConfig {
            key: key.ok()?.to_owned(),
            value: value.ok()?,
            counter: counter.unwrap_or_default(),
            value_to_metric: value_to_metric.unwrap_or_default(),
            rule,
            descriptors,
        };
        let names = (names != Names::default()).then(|| Box::new(names));
        let origin = Origin { source: self.source, at: input.at(), index, names, plans, below };
        Some((node, origin))
    }

    /// The key of a descriptor or of an entry in a list.
    pub(super) fn key_of<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
    ) -> Result<&'t str, Reported> {
        let Some(pair) = found.get(Key::Entry) else {
            if found.is_misspelled(Key::Entry) {
                return Err(Reported);
            }
            let message = "descriptor has empty key, got none; add it, like `key: user_id`";
            return Err(self.refuse(input, message.to_owned()));
        };
        let below = input.field(pair);
        let key = self.text(&below)?;
        if key.is_empty() {
            let message = "descriptor has empty key; write a name, like `key: user_id`";
            return Err(self.refuse(&below, message.to_owned()));
        }
        if self.form == Form::Native && key.contains('*') {
            let got = quoted(key);
            let message = format!(
                "must not contain `*`, got {got}; a key is compared as it is, write the `*` in \
                 `value`"
            );
            return Err(self.refuse(&below, message));
        }
        self.check_length(&below, key, KEY_CHARS_MAX)
    }

    /// A text that is not too long.
    pub(super) fn check_length<'t>(
        &mut self,
        input: &Value<'_, '_>,
        text: &'t str,
        chars_max: usize,
    ) -> Result<&'t str, Reported> {
        if text.len() <= chars_max || text.chars().count() <= chars_max {
            return Ok(text);
        }
        let (count, got) = (text.chars().count(), quoted(text));
        let message = format!(
            "must have at most {chars_max} characters, got {count}: {got}; write a shorter one"
        );
        Err(self.refuse(input, message))
    }

    pub(super) fn flag<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        key: Key,
    ) -> Result<bool, Reported> {
        found.get(key).map_or(Ok(false), |pair| self.truth(&input.field(pair)))
    }

    /// Which values share a counter.
    fn counter<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        key: &str,
        value: &Pattern,
    ) -> Result<Counter, Reported> {
        let share_threshold = self.flag(input, found, Key::ShareThreshold);
        let native = self.native_counter(input, found, value);
        if share_threshold? {
            let wild = value.is_glob() || key.contains('*');
            if !wild {
                return Err(self.refuse_share_threshold(input, found, key, value));
            }
            if native.is_ok_and(|native| native.is_some()) {
                let message = "stands beside `shared` or `prefix`, got both; keep one of them";
                return Err(self.refuse_key(input, found, Key::ShareThreshold, message));
            }
            return Ok(Counter::Shared);
        }
        Ok(native?.unwrap_or_default())
    }

    fn refuse_share_threshold<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        key: &str,
        value: &Pattern,
    ) -> Reported {
        let name = shortened(&super::composite(key, value));
        let or_shared = match (self.form, value) {
            (Form::Native, Pattern::Text(_)) | (Form::Envoy, _) => "",
            (Form::Native, _) => ", write `shared: true`",
        };
        let message = format!(
            "share_threshold can only be used with wildcard values (containing '*'), but found key \
             '{name}'; add a `*` to `value`, or remove it{or_shared}"
        );
        self.refuse_key(input, found, Key::ShareThreshold, &message)
    }

    /// Reports a problem with the value of a present key.
    pub(super) fn refuse_key<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        key: Key,
        message: &str,
    ) -> Reported {
        match found.get(key) {
            Some(pair) => self.refuse(&input.field(pair), message.to_owned()),
            None => self.refuse(input, message.to_owned()),
        }
    }

    /// Why a key that envoyproxy/ratelimit accepts is an error in this file.
    fn native_reason(&self, key: Key) -> String {
        match self.native {
            Some((native, at)) if key.belongs(Level::Descriptor, Form::Envoy) => format!(
                " (only a warning in Envoy's form; `{}` on line {} makes this file native)",
                native.name(),
                at.line
            ),
            _ => String::new(),
        }
    }

    /// Reports settings without effect.
    fn without_effect<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        limited: bool,
        childless: bool,
    ) {
        let warn = |reader: &mut Self, key: Key, pair: &'t Pair, message: &str| {
            // In Envoy's form, disabling an absent setting is not an error.
            let idle = reader.form == Form::Envoy && is_off(pair);
            if !idle {
                let message = format!("{message}{}", reader.native_reason(key));
                reader.warn_or_refuse(pair.key.at, &input.field(pair).path, message);
            }
        };
        if limited {
            return;
        }
        let message = match self.form {
            Form::Envoy => "has no effect without `rate_limit`; add one, or remove this",
            Form::Native => {
                "has no effect without `limits` or `rate_limit`; add one of them, or remove this"
            }
        };
        for key in ON_LIMITS {
            if let Some(pair) = found.get(key) {
                warn(self, key, pair, message);
            }
        }
        let message = "has no effect without a limit here or below; add one, or remove this";
        for key in ON_IDENTITIES {
            if let Some(pair) = found.get(key).filter(|_| childless) {
                warn(self, key, pair, message);
            }
        }
    }
}

/// The keys that configure the limits of a descriptor.
pub(crate) const ON_LIMITS: [Key; 15] = [
    Key::Id,
    Key::Mode,
    Key::ShadowMode,
    Key::QuotaMode,
    Key::Cost,
    Key::Replaces,
    Key::Consistency,
    Key::OnStoreFailure,
    Key::OnLimit,
    Key::Overflow,
    Key::Pools,
    Key::Notify,
    Key::Schedule,
    Key::DetailedMetric,
    Key::Metadata,
];

/// The keys that configure the limits of a descriptor and its descendants.
pub(crate) const ON_IDENTITIES: [Key; 4] =
    [Key::Shared, Key::ShareThreshold, Key::Prefix, Key::ValueToMetric];

fn is_off(pair: &Pair) -> bool {
    use super::scalar::{Meaning, meaning};
    match &pair.value.content {
        Content::Scalar { text, .. } => {
            matches!(meaning(text), Meaning::Bool(false) | Meaning::Null)
        }
        Content::Sequence(_) | Content::Mapping(_) => false,
    }
}

/// Where a node was written, and those below it in the same order.
#[derive(Debug)]
pub(super) struct Origin {
    /// Which source.
    pub(super) source: usize,
    pub(super) at: Position,
    /// The index in its list; invalid nodes are not in the tree.
    pub(super) index: usize,
    /// Where its rule is named, where it names others, and where it has a failure policy.
    pub(super) names: Option<Box<Names>>,
    /// Its rule for each plan, where `limits` are by plan.
    pub(super) plans: Option<Box<PlanRules>>,
    pub(super) below: Vec<Self>,
}

/// Where names, and a failure policy, are written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// An `id`, which no other rule of the domain may have.
    pub(super) id: Option<Position>,
    /// Each name in `replaces`.
    pub(super) replaces: Vec<Position>,
    /// `on_store_failure`; none where the default applies.
    pub(super) on_store_failure: Option<Position>,
}
