//! What a store wants of a throttle: its part of a snapshot, and room that it does not need.
//!
//! In a snapshot every key is an account of three cells, so that a file has the same form with a throttle and without:
//! its state; limit and count of the terms that made it; their period. The last two are amounts, and no states of anything.

use std::io;
use std::sync::Arc;

use sluicegate_core::account::Account;
use sluicegate_core::limit::State;
use sluicegate_core::mode::Mode;

use super::params::{Figures, Terms};
use super::shards::{SHARD_BITS, Shards};
use crate::memory::Section;
use crate::snapshot::{Entry, Sink};

/// What a throttle is called beside the limiters of its store.
const NAME: &str = "sluicegate::throttle";

impl Section for Shards {
    fn name(&self) -> &str {
        NAME
    }

    fn write_to(&self, sink: &mut Sink<'_>) -> io::Result<()> {
        sink.limiter(NAME, SHARD_BITS, Mode::Hard, &[])?;
        self.each_kept(|hash, terms, state| {
            sink.entry(&Entry { hash, account: to_account(&terms, state) })
        })?;
        sink.end()
    }

    fn is_retired(&self) -> bool {
        false
    }

    fn reclaim(&self) {
        self.reclaim_all();
    }
}

/// Lets a store know of its throttle, and the throttle of what the store was saved with.
pub(super) fn introduce(shards: &Arc<Shards>) {
    let store = shards.store();
    store.with_restored(|restored| {
        restored.limiter(
            NAME,
            |_, _| (),
            |(), Entry { hash, account }| {
                if let Some((terms, state)) = from_account(account) {
                    shards.restore(hash, &terms, state);
                }
            },
        );
    });
    let section: Arc<dyn Section> = shards.clone();
    store.add_limiter(&section);
}

fn to_account(terms: &Terms, state: State) -> Account {
    let Figures { limit, count, period_s } = terms.figures;
    Account::from_states([
        (state, State::New),
        (State::Spent(limit), State::Spent(count)),
        (State::Spent(period_s), State::New),
    ])
}

/// What [`to_account`] was given; `None` if that makes no sense.
fn from_account(account: Account) -> Option<(Terms, State)> {
    let mut cells = account.into_states().ok()?.into_iter();
    let (state @ State::Gcra(_), State::New) = cells.next()? else { return None };
    let (State::Spent(limit), State::Spent(count)) = cells.next()? else { return None };
    let (State::Spent(period_s), State::New) = cells.next()? else { return None };
    let terms = Terms::of(Figures { limit, count, period_s })?;
    cells.next().is_none().then_some((terms, state))
}
