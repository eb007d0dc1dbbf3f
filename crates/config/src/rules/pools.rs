//! The further pools of a rule.

use sluicegate_rules::rule::{Limits, OnLimit, POOLS_MAX, PoolConfig, RuleConfig};

use super::compatibility::{checked, unshared};
use super::keys::Key;
use super::reader::{Found, Reader};
use crate::fields::{Field, Value, unknown};
use crate::limit;
use crate::problem::{Reported, quoted};

const EXAMPLE: &str = "{ name: credits, limits: { algorithm: fixed_window, rate: 500000/year } }";

/// The name of a pool.
pub(crate) const POOL_NAME: Field<String> =
    Field { name: "name", example: "credits", read: limit::name };
/// Its limits.
pub(crate) const POOL_LIMITS: &str = "limits";

impl Reader<'_> {
    /// Reads the pools of a rule.
    pub(super) fn pools(&mut self, list: &Value<'_, '_>) -> Result<Vec<PoolConfig>, Reported> {
        if !list.is_list() {
            let got = list.node.described();
            let message =
                format!("must be a list of pools, got {got}; write it like `[{EXAMPLE}]`");
            return Err(self.refuse(list, message));
        }
        let items = list.items();
        let count = items.len();
        if count == 0 || count > POOLS_MAX {
            let message = format!(
                "must hold 1 to {POOLS_MAX} pools, got `{count}`; the `limits` of the rule are the \
                 pool before them"
            );
            return Err(self.refuse(list, message));
        }
        let mut pools: Vec<PoolConfig> = Vec::with_capacity(count);
        let mut read = Ok(());
        for item in items {
            match self.pool(&item) {
                Ok(pool) if pools.iter().any(|known| known.name == pool.name) => {
                    let got = quoted(&pool.name);
                    let message = format!(
                        "two pools are named {got}; a pool is known by its name, rename one"
                    );
                    read = Err(self.refuse(&item, message));
                }
                Ok(pool) => pools.push(pool),
                Err(reported) => read = Err(reported),
            }
        }
        read.map(|()| pools)
    }

    fn pool(&mut self, item: &Value<'_, '_>) -> Result<PoolConfig, Reported> {
        let mut fields = item.fields("a pool", EXAMPLE, self.report)?;
        let name = fields.required(&POOL_NAME, self.report);
        let limits = match fields.value(POOL_LIMITS) {
            Some(value) => limit::limits_of(&value, self.report),
            None => {
                let remedy = format!("write it like `{EXAMPLE}`");
                Err(fields.missing(POOL_LIMITS, &remedy, self.report))
            }
        };
        fields.finish(self.report, |key| unknown(key, &[POOL_NAME.name, POOL_LIMITS]))?;
        Ok(PoolConfig { name: name?.into(), limits: limits?.into() })
    }

    /// Reports pools that do not fit their rule.
    pub(super) fn fit_pools<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
    ) -> Result<(), Reported> {
        if rule.pools().is_empty() {
            return Ok(());
        }
        let mut fits = Ok(());
        let waits = match rule.on_limit {
            OnLimit::Deny => None,
            OnLimit::Shape => Some("shape"),
            OnLimit::Queue => Some("queue"),
        };
        if let Some(word) = waits {
            let message = format!(
                "`{word}` stands beside `pools`, got both; a request that one pool denies draws from \
                 the next at once: remove one of them"
            );
            fits = Err(self.refuse_key(input, found, Key::OnLimit, &message));
        }
        if let Some(reason) = rule.refused_pools() {
            let message = format!("{reason}; remove one of them");
            fits = Err(self.refuse_key(input, found, Key::Pools, &message));
        }
        for pool in rule.pools() {
            let limits = Limits::Native(pool.limits.clone());
            let checked = checked(&limits);
            fits = self.modes(input, found, rule, &checked).and(fits);
            if let Some(message) = checked.iter().find_map(|one| unshared(rule.consistency, one)) {
                fits = Err(self.refuse_key(input, found, Key::Consistency, &message));
            }
        }
        fits
    }
}
