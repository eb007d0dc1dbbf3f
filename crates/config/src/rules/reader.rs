//! Reads mappings and scalars of a rule file.
//!
//! envoyproxy/ratelimit reads a file twice: first it checks every key and the type of every value,
//! then it decodes. This reader rejects the input of either pass with the same message; if both
//! reject it, the first is reported. Of two equal keys the later wins there; here that is a
//! warning, and in a native file an error.

use super::keys::{self, Form, KEYS_MAX, Key, Level};
use super::scalar::{Meaning, meaning};
use crate::fields::{Path, Value};
use crate::problem::{Position, Report, Reported, quoted};
use crate::suggest;
use crate::yaml::{Content, Node, Pair, Style};

/// Reads one file.
pub(super) struct Reader<'r> {
    pub(super) form: Form,
    /// The key that makes the form native, and where it is.
    pub(super) native: Option<(Key, Position)>,
    /// Index of the source.
    pub(super) source: usize,
    /// Whether the value is replaced later, so that envoyproxy/ratelimit checks only its types.
    pub(super) replaced: bool,
    pub(super) report: &'r mut Report,
}

/// The known pairs of a mapping, by key.
pub(super) struct Found<'t> {
    pairs: [Option<&'t Pair>; KEYS_MAX],
    /// Earlier `rate_limit`s, which in Envoy's form a later one completes instead of replacing.
    pub(super) earlier: Vec<&'t Pair>,
    /// The first unknown keys.
    unknown: Vec<&'t str>,
}

/// Maximum number of unknown keys of a mapping that are compared with a missing one.
const UNKNOWN_KEYS_MAX: usize = 8;

impl<'t> Found<'t> {
    pub(super) fn get(&self, key: Key) -> Option<&'t Pair> {
        self.pairs.get(key as usize).copied().flatten()
    }

    /// Whether a missing key is probably one of the unknown ones, which are reported already.
    pub(super) fn is_misspelled(&self, key: Key) -> bool {
        self.unknown.iter().any(|word| suggest::nearest(word, [key.name()]).is_some())
    }
}

impl Reader<'_> {
    /// Reports a likely mistake that envoyproxy/ratelimit accepts: a warning in its form, else an
    /// error.
    pub(super) fn warn_or_refuse(&mut self, at: Position, path: &Path<'_>, message: String) {
        match self.form {
            Form::Envoy => self.report.warn(at, path, message),
            Form::Native => {
                self.report.add(at, path, message);
            }
        }
    }

    pub(super) fn refuse(&mut self, value: &Value<'_, '_>, message: String) -> Reported {
        value.refuse(self.report, message)
    }

    /// The known pairs of a mapping; of several of one key the last.
    pub(super) fn known<'t>(&mut self, mapping: &Value<'t, '_>, level: Level) -> Found<'t> {
        let mut found = Found { pairs: [None; KEYS_MAX], earlier: Vec::new(), unknown: Vec::new() };
        let Content::Mapping(pairs) = &mapping.node.content else { return found };
        for pair in in_order(pairs, self.form) {
            let Some(key) = self.key(mapping, pair, level) else {
                if let Content::Scalar { text, .. } = &pair.key.content
                    && found.unknown.len() < UNKNOWN_KEYS_MAX
                {
                    found.unknown.push(text);
                }
                continue;
            };
            let Some(slot) = found.pairs.get_mut(key as usize) else { continue };
            if let Some(earlier) = slot.replace(pair) {
                self.again(mapping, key, pair, earlier);
                self.types_of(mapping, key, earlier);
                if self.form == Form::Envoy && key == Key::RateLimit {
                    found.earlier.push(earlier);
                }
            }
        }
        found
    }

    /// Checks the type of a replaced value; Envoy's form rejects a wrong one too.
    fn types_of<'t>(&mut self, mapping: &Value<'t, '_>, key: Key, pair: &'t Pair) {
        let fraction = matches!(&pair.value.content, Content::Scalar { text, style: Style::Plain }
            if matches!(meaning(text), Meaning::Float(_) | Meaning::Large(_)));
        if self.form == Form::Native || fraction {
            return;
        }
        let value = mapping.field(pair);
        match key {
            Key::RequestsPerUnit => drop(self.number(&value)),
            Key::Unlimited
            | Key::ShadowMode
            | Key::QuotaMode
            | Key::DetailedMetric
            | Key::ValueToMetric
            | Key::ShareThreshold => drop(self.truth(&value)),
            _ => {}
        }
    }

    /// Reports a duplicate key.
    fn again<'t>(&mut self, mapping: &Value<'t, '_>, key: Key, pair: &'t Pair, earlier: &Pair) {
        // Overriding a key of a template is the purpose of templates.
        if earlier.merged {
            return;
        }
        let line = earlier.key.at.line;
        let counts = match (self.form, key) {
            (Form::Native, _) => "",
            (Form::Envoy, Key::RateLimit) => ", and their fields are mixed",
            (Form::Envoy, _) => ", and only the last counts",
        };
        let message = format!("is given twice, first on line {line}{counts}; remove one");
        self.warn_or_refuse(pair.key.at, &mapping.field(pair).path, message);
    }

    /// The key of a pair, if it is known at this level.
    fn key<'t>(&mut self, mapping: &Value<'t, '_>, pair: &'t Pair, level: Level) -> Option<Key> {
        // A known key is a text in any notation.
        let key = match &pair.key.content {
            Content::Scalar { text, .. } => Key::of(text),
            Content::Sequence(_) | Content::Mapping(_) => None,
        };
        if let Some(key) = key.filter(|key| key.belongs(level, self.form)) {
            return Some(key);
        }
        let text = self.key_text(mapping, pair)?;
        let value = mapping.field(pair);
        match key {
            Some(key) if self.form == Form::Native || key.form() == Form::Envoy => {
                let (home, name) = (key.home(), key.name());
                let message = format!(
                    "has no effect here, `{name}` belongs to {home}; move it there (check the \
                     indentation), or remove it"
                );
                self.warn_or_refuse(pair.key.at, &value.path, message);
                if key != Key::Metadata && self.form == Form::Envoy {
                    let _ = self.check_nested(&value);
                }
            }
            _ => self.unknown_key(&value, pair, text, level),
        }
        None
    }

    fn unknown_key(&mut self, value: &Value<'_, '_>, pair: &Pair, text: &str, level: Level) {
        if self.report.is_full() {
            return;
        }
        let remedy = keys::remedy(text, level, self.form);
        let name = crate::problem::shortened(text);
        let message = format!("config error, unknown key '{name}'; {remedy}");
        if self.replaced {
            self.report.warn(pair.key.at, value.path, message);
        } else {
            self.report.add(pair.key.at, value.path, message);
        }
    }

    /// The text of a key, if it has one.
    fn key_text<'t>(&mut self, mapping: &Value<'t, '_>, pair: &'t Pair) -> Option<&'t str> {
        let Content::Scalar { text, style } = &pair.key.content else {
            let got = pair.key.described();
            let message = format!(
                "error loading config file: invalid map key, a key must be one word, got {got}; \
                 check the brackets and colons"
            );
            self.report.add(pair.key.at, mapping.path, message);
            return None;
        };
        if *style == Style::Plain && self.form == Form::Envoy {
            match meaning(text) {
                Meaning::Text => {}
                other => {
                    let shown = other.in_go(text);
                    let got = quoted(text);
                    let message = format!(
                        "config error, key is not of type string: {shown}, got {got}; write the \
                         name of a key"
                    );
                    self.report.add(pair.key.at, mapping.field(pair).path, message);
                    return None;
                }
            }
        }
        Some(text)
    }
}

/// In a native file an explicit key wins over a merged one, wherever it is.
fn in_order(pairs: &[Pair], form: Form) -> impl Iterator<Item = &Pair> {
    let first = move |pair: &&Pair| form == Form::Native && pair.merged;
    pairs.iter().filter(first).chain(pairs.iter().filter(move |pair| !first(pair)))
}

// === checks at every level ===

impl Reader<'_> {
    /// Checks the keys and types of all values below a value without meaning.
    fn check_nested(&mut self, value: &Value<'_, '_>) -> Result<(), Reported> {
        match &value.node.content {
            Content::Scalar { text, style: Style::Plain } => self.check_integral(value, text),
            Content::Scalar { .. } => Ok(()),
            Content::Sequence(_) => {
                let mut checked = Ok(());
                for item in value.items() {
                    checked = self.check_nested_item(&item).and(checked);
                }
                checked
            }
            Content::Mapping(pairs) => {
                let mut checked = Ok(());
                for pair in pairs.iter() {
                    checked = self.check_nested_pair(value, pair).and(checked);
                }
                checked
            }
        }
    }

    fn check_nested_item(&mut self, item: &Value<'_, '_>) -> Result<(), Reported> {
        match &item.node.content {
            Content::Mapping(_) => self.check_nested(item),
            _ => Err(self.refuse_item(item)),
        }
    }

    fn check_nested_pair<'t>(
        &mut self,
        mapping: &Value<'t, '_>,
        pair: &'t Pair,
    ) -> Result<(), Reported> {
        let Some(text) = self.key_text(mapping, pair) else { return Err(Reported) };
        let value = mapping.field(pair);
        match Key::of(text).filter(|key| key.form() == Form::Envoy) {
            Some(Key::Metadata) => Ok(()),
            Some(_) => self.check_nested(&value),
            None => {
                self.unknown_key(&value, pair, text, Level::Descriptor);
                Err(Reported)
            }
        }
    }

    /// An item of a list that should be a mapping.
    pub(super) fn refuse_item(&mut self, item: &Value<'_, '_>) -> Reported {
        let shown = crate::problem::shortened(&in_go(item.node));
        let remedy = match &item.node.content {
            Content::Scalar { .. } if item.node.is_null() => "remove the lone `-`",
            Content::Scalar { .. } => "write it like `- key: …` (mind the blank after the colon)",
            _ => "check the indentation and the dashes",
        };
        let message = format!(
            "config error, yaml file contains list of type other than map: {shown}; {remedy}"
        );
        self.refuse(item, message)
    }

    /// Rejects numbers with a fraction or beyond 64 bits at every level.
    fn check_integral(&mut self, value: &Value<'_, '_>, text: &str) -> Result<(), Reported> {
        if self.form == Form::Native {
            return Ok(());
        }
        match meaning(text) {
            Meaning::Float(_) | Meaning::Large(_) => {
                let (got, text) = (quoted(text), crate::problem::shortened(text));
                let message = format!(
                    "error checking config, this is a number with a fraction or beyond 64 bits, got \
                     {got}; put it in quotes to mean the text, like `'{text}'`"
                );
                Err(self.refuse(value, message))
            }
            _ => Ok(()),
        }
    }
}

/// Formats a value as Go does.
fn in_go(node: &Node) -> String {
    match &node.content {
        Content::Scalar { text, style: Style::Quoted } => text.to_string(),
        Content::Scalar { text, style: Style::Plain } => meaning(text).in_go(text),
        Content::Sequence(items) => {
            // Longer output is truncated anyway.
            let shown: Vec<String> = items.iter().take(32).map(in_go).collect();
            format!("[{}]", shown.join(" "))
        }
        Content::Mapping(pairs) => {
            let shown: Vec<String> = pairs
                .iter()
                .take(32)
                .map(|pair| format!("{}:{}", in_go(&pair.key), in_go(&pair.value)))
                .collect();
            format!("map[{}]", shown.join(" "))
        }
    }
}

// === scalars ===

/// The largest number of requests.
pub(crate) const REQUESTS_MAX: u32 = u32::MAX;

impl Reader<'_> {
    /// A text; null is the empty one.
    pub(super) fn text<'t>(&mut self, value: &Value<'t, '_>) -> Result<&'t str, Reported> {
        match &value.node.content {
            Content::Scalar { text, style: Style::Quoted } => Ok(text),
            Content::Scalar { .. } if value.node.is_null() => Ok(""),
            Content::Scalar { text, .. } => self.check_integral(value, text).map(|()| &**text),
            _ => Err(self.mistyped(value, "string", "must be one value", "write one value")),
        }
    }

    /// A boolean; null is false.
    pub(super) fn truth(&mut self, value: &Value<'_, '_>) -> Result<bool, Reported> {
        let must = "must be `true` or `false`";
        let remedy = match &value.node.content {
            Content::Scalar { text, style: Style::Plain } => {
                self.check_integral(value, text)?;
                match meaning(text) {
                    Meaning::Bool(truth) => return Ok(truth),
                    Meaning::Null => return Ok(false),
                    _ => "write `true` or `false`",
                }
            }
            Content::Scalar { text, style: Style::Quoted }
                if matches!(meaning(text), Meaning::Bool(_)) =>
            {
                "remove the quotes"
            }
            _ => "write `true` or `false`",
        };
        Err(self.mistyped(value, "bool", must, remedy))
    }

    /// A whole number of 32 bits; null is 0.
    pub(super) fn number(&mut self, value: &Value<'_, '_>) -> Result<u32, Reported> {
        let must = format!("must be a whole number from `0` to `{REQUESTS_MAX}`");
        let remedy = match &value.node.content {
            Content::Scalar { text, style: Style::Plain } => match meaning(text) {
                Meaning::Int(number) => match u32::try_from(number) {
                    Ok(number) => return Ok(number),
                    Err(_) if number < 0 => "write `0` to let nothing pass, or a positive number",
                    Err(_) => "write a smaller number, or `unlimited: true` for no limit",
                },
                Meaning::Null => return Ok(0),
                Meaning::Float(_) | Meaning::Large(_) => {
                    let got = quoted(text);
                    let message = format!(
                        "error checking config, {must}, got {got}; write it without a fraction or \
                         an exponent"
                    );
                    return Err(self.refuse(value, message));
                }
                Meaning::Bool(_) | Meaning::Text => "write it like `requests_per_unit: 100`",
            },
            Content::Scalar { text, style: Style::Quoted }
                if matches!(meaning(text), Meaning::Int(0..)) =>
            {
                "remove the quotes"
            }
            _ => "write it like `requests_per_unit: 100`",
        };
        Err(self.mistyped(value, "uint32", &must, remedy))
    }

    /// Reports a value of the wrong type in the words of yaml.v2, unless a nested value is rejected
    /// first.
    pub(super) fn mistyped(
        &mut self,
        value: &Value<'_, '_>,
        go_type: &str,
        must: &str,
        remedy: &str,
    ) -> Reported {
        let got = match &value.node.content {
            Content::Scalar { text, style } => {
                let tag = match style {
                    Style::Plain => meaning(text).tag(),
                    Style::Quoted => "!!str",
                };
                format!("{tag} `{}`", cut(text))
            }
            Content::Sequence(_) => "!!seq".to_owned(),
            Content::Mapping(_) => "!!map".to_owned(),
        };
        let root = matches!(value.path, Path::Root);
        if self.form == Form::Envoy && !root && self.check_nested(value).is_err() {
            return Reported;
        }
        let message = format!(
            "error loading config file: {must}, cannot unmarshal {got} into {go_type}; {remedy}"
        );
        self.refuse(value, message)
    }
}

/// A value as yaml.v2 cuts it.
fn cut(text: &str) -> String {
    let shown = if text.len() > 10 {
        let end = (0..=7).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        format!("{}...", text.get(..end).unwrap_or_default())
    } else {
        text.to_owned()
    };
    crate::problem::on_one_line(&shown)
}
