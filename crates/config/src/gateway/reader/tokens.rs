//! `tokens` of a limit.

use sluicegate_rules::mapping::{DescriptorMapping, UsageUnit};

use super::{GatewayReader, is_mapping, parse};
use crate::fields::Value;
use crate::gateway::keys::{LIMIT, TOKENS};
use crate::gateway::tokens::{self, ModelApi, PriceSource, TokensConfig};
use crate::problem::{Position, quoted};
use crate::units::{self, UnitError};

const MAX_OUTPUT: u64 = 4_096;
const BODY_BYTES_MAX: usize = 4 << 20;

impl GatewayReader<'_> {
    /// The section, and whether it names prices, also if they have problems.
    pub(super) fn tokens(&mut self, value: &Value<'_, '_>) -> Option<(TokensConfig, bool)> {
        let mut fields = self.open(value, &TOKENS)?;
        let api = self.need(&mut fields, &TOKENS, "api", api);
        let max_output = self.get(&mut fields, &TOKENS, "max_output", parse::token_count);
        let max_body = self.get(&mut fields, &TOKENS, "max_body", parse::model_request_bytes);
        let stream_usage = self.get(&mut fields, &TOKENS, "stream_usage", units::truth);
        let prices = self.value(&mut fields, &TOKENS, "prices");
        let has_prices = prices.is_some();
        let prices = prices.map(|value| match is_mapping(&value) {
            true => {
                let table = tokens::table(&value, units::millionths, self.report);
                table.ok().map(PriceSource::Table)
            }
            false => self.path(&value).map(PriceSource::File),
        });
        let weights = self.value(&mut fields, &TOKENS, "weights");
        let weights = weights.map(|value| tokens::table(&value, units::decimal, self.report).ok());
        self.close(fields, &TOKENS);
        let config = TokensConfig {
            api: api?,
            max_output: max_output.unwrap_or(MAX_OUTPUT),
            body_bytes_max: max_body.unwrap_or(BODY_BYTES_MAX),
            stream_usage: stream_usage.unwrap_or(true),
            // Those that cannot be read are a problem of the file.
            prices: prices.flatten(),
            weights: weights.flatten(),
        };
        Some((config, has_prices))
    }

    /// Refuses hits in units that the route does not count.
    pub(super) fn check_usage_unit(
        &mut self,
        descriptor: &DescriptorMapping,
        (has_tokens, has_prices): (bool, bool),
        at: Position,
        path: &str,
    ) {
        let Some(unit) = descriptor.usage_unit() else { return };
        let (got, path) = (quoted(unit.name()), path.trim_end_matches(".entries"));
        let path = format!("{path}.hits");
        if !has_tokens {
            let message = format!(
                "no tokens are counted here, got {got}; add `tokens: {}` to the limit",
                LIMIT.example_of("tokens")
            );
            self.report.add(at, path, message);
        } else if unit == UsageUnit::Money && !has_prices {
            let message = format!(
                "no prices are known, got {got}; add `prices: {}` to `tokens`",
                TOKENS.example_of("prices")
            );
            self.report.add(at, path, message);
        }
    }
}

fn api(text: &str) -> Result<ModelApi, UnitError> {
    units::choice(text, &[("openai", ModelApi::OpenAi), ("anthropic", ModelApi::Anthropic)])
}
