//! `metadata`: free data, as it is written.

use sluicegate_rules::rule::Metadata;

use super::keys::Form;
use super::reader::Reader;
use super::scalar::{Meaning, meaning};
use crate::fields::Value;
use crate::problem::{Reported, quoted};
use crate::yaml::{Content, Pair, Style};

impl Reader<'_> {
    /// Reads an arbitrary mapping; null counts as absent.
    pub(super) fn metadata(&mut self, input: &Value<'_, '_>) -> Result<Option<Metadata>, Reported> {
        match &input.node.content {
            Content::Mapping(pairs) => self.map(input, pairs).map(Some),
            _ if input.node.is_null() => Ok(None),
            _ => {
                let got = input.node.described();
                let message = format!(
                    "error loading config file: `metadata` must be a mapping, got {got}; write it \
                     like `metadata: {{ tier: gold }}`"
                );
                Err(self.refuse(input, message))
            }
        }
    }

    fn map<'t>(&mut self, input: &Value<'t, '_>, pairs: &'t [Pair]) -> Result<Metadata, Reported> {
        let mut map: Vec<(String, Metadata)> = Vec::with_capacity(pairs.len());
        let mut read = Ok(());
        let mut origins = std::collections::HashMap::new();
        // A written key overrides a merged one.
        let native = self.form == Form::Native;
        let merged = pairs.iter().filter(|pair| native && pair.merged);
        for pair in merged.chain(pairs.iter().filter(|pair| !(native && pair.merged))) {
            let Content::Scalar { text, .. } = &pair.key.content else {
                let got = pair.key.described();
                let message = format!(
                    "error parsing metadata: a name must be one word, got {got}; write it so"
                );
                self.report.add(pair.key.at, input.path, message);
                read = Err(Reported);
                continue;
            };
            let below = input.field(pair);
            let value = match self.data(&below) {
                Ok(value) => value,
                Err(reported) => {
                    read = Err(reported);
                    continue;
                }
            };
            match origins.insert(text, (map.len(), pair)) {
                None => map.push((text.to_string(), value)),
                Some((index, first)) => {
                    if !first.merged {
                        let line = first.key.at.line;
                        let message = format!("is given twice, first on line {line}; remove one");
                        self.warn_or_refuse(pair.key.at, &below.path, message);
                    }
                    origins.insert(text, (index, pair));
                    if let Some((_, known)) = map.get_mut(index) {
                        *known = value;
                    }
                }
            }
        }
        read.map(|()| Metadata::Map(map))
    }

    fn data(&mut self, input: &Value<'_, '_>) -> Result<Metadata, Reported> {
        match &input.node.content {
            Content::Scalar { text, style: Style::Quoted } => Ok(Metadata::Text(text.to_string())),
            Content::Scalar { text, style: Style::Plain } => match meaning(text) {
                Meaning::Null => Ok(Metadata::Null),
                Meaning::Bool(truth) => Ok(Metadata::Bool(truth)),
                // Envoy's protocol has only double-precision numbers.
                #[allow(clippy::cast_precision_loss)]
                Meaning::Int(number) => Ok(Metadata::Number(number as f64)),
                #[allow(clippy::cast_precision_loss)]
                Meaning::Large(number) => Ok(Metadata::Number(number as f64)),
                Meaning::Float(number) if number.is_finite() => Ok(Metadata::Number(number)),
                Meaning::Float(_) => {
                    let got = quoted(text);
                    let message = format!(
                        "error parsing metadata: this is no number that can be sent, got {got}; for \
                         a text put it in quotes"
                    );
                    Err(self.refuse(input, message))
                }
                Meaning::Text => Ok(Metadata::Text(text.to_string())),
            },
            Content::Sequence(_) => {
                let mut list = Vec::new();
                let mut read = Ok(());
                for item in input.items() {
                    match self.data(&item) {
                        Ok(value) => list.push(value),
                        Err(reported) => read = Err(reported),
                    }
                }
                read.map(|()| Metadata::List(list))
            }
            Content::Mapping(pairs) => self.map(input, pairs),
        }
    }
}
