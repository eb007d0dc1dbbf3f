//! The rules of a moment: schedules and overrides applied.
//!
//! Matching and counting know no schedules: the set of rules is a function of the configuration and
//! the time, and is computed again at each boundary, when a part of a schedule begins or ends or an
//! override ends.

use sluicegate_core::time::{CLOCK_SLACK, Timestamp};

use crate::domain::{DescriptorConfig, Domain, ListEntry};
use crate::overrides::{self, OverrideChange, OverrideError};
use crate::schedule::Schedule;

/// The rules of a moment.
#[derive(Debug)]
pub struct Resolved {
    /// The domains.
    pub domains: Vec<Domain>,
    /// When they are to be computed again; `None` if they do not depend on the time.
    pub next: Option<Timestamp>,
}

/// Rules as they are written, and when they are to be resolved again.
///
/// ```
/// use sluicegate_core::time::Timestamp;
/// use sluicegate_rules::domain::Domain;
/// use sluicegate_rules::resolve::TimedDomains;
///
/// let timed = TimedDomains::new(vec![Domain::new("shop")]);
/// let (domains, timed) = timed.resolve(Timestamp::EPOCH)?;
/// assert_eq!((domains.len(), timed.is_due(Timestamp::MAX)), (1, false));
/// # Ok::<(), sluicegate_rules::overrides::OverrideError>(())
/// ```
#[derive(Debug, Clone)]
pub struct TimedDomains {
    domains: Vec<Domain>,
    resolved_at: Timestamp,
    next: Option<Timestamp>,
}

impl TimedDomains {
    /// Rules that are not resolved yet, and due at any time.
    #[must_use]
    pub const fn new(domains: Vec<Domain>) -> Self {
        Self { domains, resolved_at: Timestamp::EPOCH, next: Some(Timestamp::EPOCH) }
    }

    /// The rules of a moment.
    ///
    /// # Errors
    /// When an override cannot be applied.
    pub fn resolve(&self, now: Timestamp) -> Result<(Vec<Domain>, Self), OverrideError> {
        let Resolved { domains, next } = resolve(self.domains.clone(), now)?;
        Ok((domains, Self { domains: self.domains.clone(), resolved_at: now, next }))
    }

    /// Whether another part of a schedule holds, or may hold: the clock may have been set back.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.next.is_some_and(|next| next <= now || now.after(CLOCK_SLACK) < self.resolved_at)
    }
}

/// Applies schedules and overrides as of a moment.
///
/// ```
/// use sluicegate_rules::domain::{Domain, ListEntry, Pattern};
/// use sluicegate_rules::overrides::{OverrideChange, TemporaryOverride};
/// use sluicegate_rules::resolve::resolve;
/// use sluicegate_rules::zone::moment_of;
///
/// let until = moment_of("2026-12-01T00:00:00Z").unwrap();
/// let mallory = ListEntry { key: "user_id".to_owned(), value: Pattern::Text("mallory".to_owned()) };
/// let block = TemporaryOverride {
///     matches: vec![mallory],
///     rule: None,
///     change: OverrideChange::Block,
///     until,
///     note: "credential stuffing".into(),
/// };
/// let shop = Domain { overrides: vec![block], ..Domain::new("shop") };
/// let resolved = resolve(vec![shop.clone()], moment_of("2026-11-30T00:00:00Z").unwrap())?;
/// assert_eq!((resolved.domains[0].deny.len(), resolved.next), (1, Some(until)));
/// let resolved = resolve(vec![shop], until)?;
/// assert_eq!((resolved.domains[0].deny.len(), resolved.next), (0, None));
/// # Ok::<(), sluicegate_rules::overrides::OverrideError>(())
/// ```
///
/// # Errors
/// When an override cannot be applied.
pub fn resolve(mut domains: Vec<Domain>, now: Timestamp) -> Result<Resolved, OverrideError> {
    let mut next: Option<Timestamp> = None;
    let mut at = |moment: Timestamp| next = Some(next.map_or(moment, |next| next.min(moment)));
    for domain in domains.iter_mut().filter(|one| one.is_timed() && !one.is_resolved) {
        domain.is_resolved = true;
        schedules(&mut domain.descriptors, now, &mut at);
        let in_force = overrides::in_force(domain, now);
        in_force.iter().for_each(|one| at(one.until));
        for one in in_force.iter().filter(|one| one.is_listed()) {
            let list = match one.change {
                OverrideChange::Block => &mut domain.deny,
                _ => &mut domain.allow,
            };
            for entry in &one.matches {
                add_entry(list, entry);
            }
        }
        overrides::apply(domain, &in_force)?;
    }
    Ok(Resolved { domains, next })
}

/// Lists hold no entry twice.
fn add_entry(list: &mut Vec<ListEntry>, entry: &ListEntry) {
    let shown = entry.to_string();
    if !list.iter().any(|known| known.to_string() == shown) {
        list.push(entry.clone());
    }
}

fn schedules(nodes: &mut [DescriptorConfig], now: Timestamp, at: &mut impl FnMut(Timestamp)) {
    for node in nodes {
        if let Some(rule) = &mut node.rule
            && let Some(schedule) = rule.rare.as_mut().and_then(|rare| rare.schedule.as_mut())
        {
            let in_force = schedule.at(now);
            schedule.in_force = Some(in_force);
            let limits = schedule.limits(in_force.part).clone();
            overrides::set_limits(rule, limits);
            at(Schedule::next(in_force, now));
        }
        schedules(&mut node.descriptors, now, at);
    }
}
