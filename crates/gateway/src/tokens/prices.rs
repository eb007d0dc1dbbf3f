//! Prices and weights of the tokens of a route.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluicegate_config::gateway::route::RouteConfig;
use sluicegate_config::gateway::tokens::{
    ModelTable, PriceSource, TokenClasses, TokensConfig, read_prices,
};
use sluicegate_rules::mapping::UsageUnit;

use crate::error::ProxyError;
use crate::identity::{FollowedFiles, IdentityError};

/// How the tokens of a route are counted, with its prices.
#[derive(Debug)]
pub(crate) struct TokenPlan {
    pub(crate) config: TokensConfig,
    /// Prices of a million tokens, in millionths.
    prices: Option<Arc<ArcSwap<ModelTable>>>,
    /// Whether a descriptor has such hits.
    needs_prices: bool,
    needs_weights: bool,
}

/// Prices and weights of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelRates {
    pub(super) price: Option<TokenClasses>,
    /// In thousandths.
    pub(super) weight: TokenClasses,
}

const MILLION: u64 = 1_000_000;
const THOUSAND: u64 = 1_000;
const WEIGHT_ONE: TokenClasses =
    TokenClasses { input: THOUSAND, cached: THOUSAND, cache_write: THOUSAND, output: THOUSAND };

impl TokenPlan {
    /// The plan of a route, if it has one. A file of prices is read, and followed.
    pub(crate) fn new(
        route: &RouteConfig,
        files: &mut FollowedFiles,
    ) -> Result<Option<Arc<Self>>, IdentityError> {
        let Some(limit) = &route.limit else { return Ok(None) };
        let Some(config) = &limit.tokens else { return Ok(None) };
        let prices = match &config.prices {
            None => None,
            Some(PriceSource::Table(table)) => Some(Arc::new(ArcSwap::from_pointee(table.clone()))),
            Some(PriceSource::File(path)) => {
                let table = Arc::new(ArcSwap::default());
                let target = table.clone();
                files.follow_text("prices", path, move |source| {
                    let prices = read_prices(source).map_err(|problems| problems.to_string())?;
                    target.store(Arc::new(prices));
                    Ok(())
                })?;
                Some(table)
            }
        };
        let has = |unit| limit.mapping.descriptors.iter().any(|one| one.usage_unit() == Some(unit));
        Ok(Some(Arc::new(Self {
            config: config.clone(),
            prices,
            needs_prices: has(UsageUnit::Money),
            needs_weights: has(UsageUnit::Tokens),
        })))
    }

    /// The numbers of a model. One that has none is refused: it would be free.
    pub(super) fn rates(&self, model: &str) -> Result<ModelRates, ProxyError> {
        let price = self.prices.as_ref().and_then(|table| table.load().find(model).copied());
        if self.needs_prices && price.is_none() {
            return Err(ProxyError::UnknownModel);
        }
        let weight = match &self.config.weights {
            None => WEIGHT_ONE,
            Some(table) => match table.find(model) {
                Some(weight) => *weight,
                None if self.needs_weights => return Err(ProxyError::UnknownModel),
                None => WEIGHT_ONE,
            },
        };
        Ok(ModelRates { price, weight })
    }
}

impl ModelRates {
    /// What these tokens cost.
    pub(super) fn cost(&self, unit: UsageUnit, tokens: &TokenClasses) -> u64 {
        let cost = match unit {
            UsageUnit::Tokens => tokens.weighted(&self.weight, THOUSAND),
            UsageUnit::InputTokens => tokens.total_input(),
            UsageUnit::OutputTokens => tokens.output,
            UsageUnit::Money => self.money(tokens).unwrap_or(0),
        };
        cost.min(crate::settle::COST_MAX)
    }

    /// The price of these tokens in millionths, if it is known.
    pub(super) fn money(&self, tokens: &TokenClasses) -> Option<u64> {
        self.price.map(|price| tokens.weighted(&price, MILLION))
    }
}

/// Files of prices that cannot be used, each with the reason.
pub(crate) fn unusable_files(routes: &[RouteConfig]) -> Vec<(PathBuf, String)> {
    let mut files = FollowedFiles::default();
    let failed = |route: &RouteConfig| {
        let reason = TokenPlan::new(route, &mut files).err()?.reason;
        let tokens = route.limit.as_ref()?.tokens.as_ref()?;
        let Some(PriceSource::File(path)) = &tokens.prices else { return None };
        Some((path.clone(), reason))
    };
    routes.iter().filter_map(failed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_exact_and_rounded_up() {
        let price = TokenClasses { input: 150_000, output: 600_000, ..TokenClasses::default() };
        let weight = TokenClasses { output: 4_000, cached: 100, ..WEIGHT_ONE };
        let rates = ModelRates { price: Some(price), weight };
        let tokens = TokenClasses { input: 12, cached: 5, cache_write: 0, output: 250 };
        assert_eq!(rates.cost(UsageUnit::Money, &tokens), 152, "151.8");
        assert_eq!(rates.cost(UsageUnit::Tokens, &tokens), 1_013, "1012.5");
        assert_eq!(rates.cost(UsageUnit::InputTokens, &tokens), 17);
        assert_eq!(rates.cost(UsageUnit::OutputTokens, &tokens), 250);
        let most = TokenClasses { input: u64::MAX, cached: u64::MAX, cache_write: 0, output: 0 };
        assert_eq!(rates.cost(UsageUnit::Money, &most), crate::settle::COST_MAX);
    }
}
