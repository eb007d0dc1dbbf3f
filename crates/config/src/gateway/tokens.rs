//! `tokens`: what requests to a language model cost, in tokens and in money.

use std::collections::HashSet;
use std::path::PathBuf;

use super::keys::{CLASSES, Section};
use crate::fields::{self, Field, Value};
use crate::problem::{Problems, Report, Reported, quoted};
use crate::rules::Source;
use crate::rules::glob::matches;
use crate::units::{self, UnitError};

/// How the tokens of a route are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensConfig {
    /// `api`.
    pub api: ModelApi,
    /// `max_output`: output tokens of a request that names no maximum.
    pub max_output: u64,
    /// `max_body`: bytes of a request, which is read before it is forwarded.
    pub body_bytes_max: usize,
    /// `stream_usage`: whether the usage of a stream is requested, where the API needs that.
    pub stream_usage: bool,
    /// `prices` of a million tokens, in millionths.
    pub prices: Option<PriceSource>,
    /// `weights` of a token, in thousandths.
    pub weights: Option<ModelTable>,
}

/// The API of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelApi {
    /// `openai`: chat completions, completions, responses, embeddings.
    OpenAi,
    /// `anthropic`: messages.
    Anthropic,
}

/// Where prices come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PriceSource {
    /// A file, which is read again when it changes.
    File(PathBuf),
    /// In the file of the gateway.
    Table(ModelTable),
}

/// A number for each class of tokens: their count, their weights, or their prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenClasses {
    /// `input` that no cache has.
    pub input: u64,
    /// `cached`: input that was read from a cache.
    pub cached: u64,
    /// `cache_write`: input that was written to a cache.
    pub cache_write: u64,
    /// `output`.
    pub output: u64,
}

/// Numbers by model.
///
/// ```
/// use sluicegate_config::gateway::tokens::read_prices;
/// use sluicegate_config::rules::Source;
///
/// let text = "gpt-4o: { input: 2.50, cached: 1.25, output: 10 }\ngpt-*: { input: 5, output: 20 }\n";
/// let prices = read_prices(&Source { name: "prices.yaml".into(), text: text.into() })?;
/// assert_eq!(prices.find("gpt-4o").unwrap().cached, 1_250_000);
/// assert_eq!(prices.find("gpt-5").unwrap().cached, 5_000_000);
/// assert!(prices.find("o3").is_none());
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelTable {
    /// Names, or patterns with `*`, the most specific first.
    rows: Vec<(Box<str>, TokenClasses)>,
}

impl TokenClasses {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total_input().saturating_add(self.output)
    }

    /// Input of every class.
    #[must_use]
    pub const fn total_input(&self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.cache_write)
    }

    /// The sum of these counts by their weights, each of so many parts; rounded up.
    ///
    /// ```
    /// use sluicegate_config::gateway::tokens::TokenClasses;
    ///
    /// let used = TokenClasses { input: 3, output: 1, ..TokenClasses::default() };
    /// let price = TokenClasses { input: 500_000, output: 1_500_000, ..TokenClasses::default() };
    /// assert_eq!(used.weighted(&price, 1_000_000), 3);
    /// assert_eq!(TokenClasses { input: 4, ..used }.weighted(&price, 1_000_000), 4);
    /// ```
    #[must_use]
    pub fn weighted(&self, weights: &Self, parts: u64) -> u64 {
        let of = |count: u64, weight: u64| u128::from(count).saturating_mul(weight.into());
        let sum = of(self.input, weights.input)
            .saturating_add(of(self.cached, weights.cached))
            .saturating_add(of(self.cache_write, weights.cache_write))
            .saturating_add(of(self.output, weights.output));
        u64::try_from(sum.div_ceil(u128::from(parts.max(1)))).unwrap_or(u64::MAX)
    }
}

impl ModelTable {
    /// The numbers of a model: by its name, or by the pattern with the most other characters.
    #[must_use]
    pub fn find(&self, model: &str) -> Option<&TokenClasses> {
        let fits = |(pattern, _): &&(Box<str>, TokenClasses)| matches(pattern, model);
        self.rows.iter().find(fits).map(|(_, classes)| classes)
    }

    /// Whether it has numbers for every model.
    #[must_use]
    pub fn has_default(&self) -> bool {
        self.find("\u{1}").is_some()
    }

    /// Number of its rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Reads a file of prices.
///
/// # Errors
/// When it is not a mapping from models to prices.
pub fn read_prices(source: &Source) -> Result<ModelTable, Problems> {
    let mut report = Report::new(&source.name);
    let read = fields::document(&source.text, PRICES_EXAMPLE, &mut report)
        .and_then(|root| table(&Value::root(&root), units::millionths, &mut report));
    report.finish(read)
}

pub(super) const PRICES_EXAMPLE: &str = "{ gpt-4o: { input: 2.50, output: 10 } }";

/// A table from models to the numbers of their classes.
pub(super) fn table(
    value: &Value<'_, '_>,
    read: fn(&str) -> Result<u64, UnitError>,
    report: &mut Report,
) -> Result<ModelTable, Reported> {
    let mut fields = value.fields("a table of models", PRICES_EXAMPLE, report)?;
    let (mut rows, mut seen) = (Ok(Vec::new()), HashSet::new());
    for (model, value) in fields.all() {
        let row = classes(&value, &CLASSES, read, report).and_then(|classes| {
            match seen.insert(model.to_owned()) && !model.trim().is_empty() {
                true => Ok(classes),
                false => {
                    let got = quoted(model);
                    let message = format!(
                        "must be the name of one model, got {got}; write `\"*\"` for any other one"
                    );
                    Err(value.refuse(report, message))
                }
            }
        });
        match (&mut rows, row) {
            (Ok(rows), Ok(classes)) => rows.push((Box::from(model), classes)),
            (_, Err(reported)) => rows = Err(reported),
            (Err(_), Ok(_)) => {}
        }
    }
    let mut rows: Vec<(Box<str>, TokenClasses)> = rows?;
    if rows.is_empty() {
        let message = format!("must name a model, got nothing; write it like `{PRICES_EXAMPLE}`");
        return Err(value.refuse(report, message));
    }
    rows.sort_by_key(|(pattern, _)| {
        let letters = pattern.chars().filter(|letter| *letter != '*').count();
        (pattern.contains('*'), std::cmp::Reverse(letters))
    });
    Ok(ModelTable { rows })
}

fn classes(
    value: &Value<'_, '_>,
    section: &Section,
    read: fn(&str) -> Result<u64, UnitError>,
    report: &mut Report,
) -> Result<TokenClasses, Reported> {
    let mut fields = value.fields(section.subject, section.example, report)?;
    let field = |name| Field { name, example: section.example_of(name), read };
    let input = fields.required(&field("input"), report);
    let cached = fields.optional(&field("cached"), report);
    let cache_write = fields.optional(&field("cache_write"), report);
    let output = fields.required(&field("output"), report);
    fields.finish(report, |key| fields::unknown(key, &section.names()))?;
    let (input, output) = (input?, output?);
    let (cached, cache_write) = (cached?.unwrap_or(input), cache_write?.unwrap_or(input));
    Ok(TokenClasses { input, cached, cache_write, output })
}
