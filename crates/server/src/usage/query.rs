//! Sums of usage records over a time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::HOUR;
use super::file::time;
use super::table::{Amounts, UsageRow};

/// Rows of a report; the sums are of all.
const ROWS_MAX: usize = 10_000;

/// Which usage is summed up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct UsageQuery {
    /// An id of a rule.
    pub(crate) rule: Option<String>,
    /// An identity: `team=search`.
    pub(crate) identity: Option<String>,
    /// From the hour of this time on, in microseconds since 1970.
    pub(crate) from: u64,
    /// Up to this time, exclusive.
    pub(crate) to: u64,
}

/// The result.
#[derive(Debug, Default)]
pub(crate) struct UsageReport {
    rows: BTreeMap<RowKey, Amounts>,
    total: Option<Amounts>,
    is_truncated: bool,
}

/// Hour, domain, rule, pool and identity.
type RowKey = (u64, String, String, Option<String>, Option<String>);

impl UsageQuery {
    /// The days since 1970.
    pub(super) const fn days(&self) -> RangeInclusive<u64> {
        self.from / HOUR / 24..=self.to / HOUR / 24
    }

    fn includes(&self, row: &UsageRow) -> bool {
        let is_wanted = |wanted: &Option<String>, found: Option<&String>| {
            wanted.is_none() || wanted.as_ref() == found
        };
        (self.from - self.from % HOUR..self.to).contains(&row.hour)
            && is_wanted(&self.rule, Some(&row.rule))
            && is_wanted(&self.identity, row.descriptor.as_ref())
    }
}

impl UsageReport {
    /// Adds a row if the query includes it.
    pub(super) fn add(&mut self, query: &UsageQuery, row: UsageRow) {
        if !query.includes(&row) {
            return;
        }
        let UsageRow { hour, domain, rule, pool, descriptor, amounts } = row;
        match &mut self.total {
            Some(total) => total.add(&amounts),
            None => self.total = Some(amounts),
        }
        let key = (hour, domain, rule, pool, descriptor);
        if let Some(known) = self.rows.get_mut(&key) {
            known.add(&amounts);
        } else if self.rows.len() < ROWS_MAX {
            self.rows.insert(key, amounts);
        } else {
            self.is_truncated = true;
        }
    }

    /// As JSON.
    pub(crate) fn to_json(&self, query: &UsageQuery) -> Value {
        let row = |(key, amounts): (&RowKey, &Amounts)| {
            let (hour, domain, rule, pool, descriptor) = key.clone();
            json!(UsageRow { hour, domain, rule, pool, descriptor, amounts: *amounts })
        };
        let Amounts { admitted, denied, refunded, .. } = self.total.unwrap_or_default();
        json!({
            "from": time::text(query.from),
            "to": time::text(query.to),
            "total": { "admitted": admitted, "denied": denied, "refunded": refunded },
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "truncated": self.is_truncated,
        })
    }
}
