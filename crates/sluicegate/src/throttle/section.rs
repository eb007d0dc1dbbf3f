//! The throttle as a section of its store: snapshots and reclaiming.
//!
//! In a snapshot every key is an account of three states, so that the file format is the same with
//! and without a throttle: its state; limit and count of its parameters; their period. The last two
//! are plain amounts.

use std::io;
use std::sync::Arc;

use sluicegate_core::account::Account;
use sluicegate_core::limit::State;
use sluicegate_core::mode::Mode;

use super::params::{RawParams, ThrottleParams};
use super::shards::ThrottleShards;
use crate::memory::Section;
use crate::memory::shard_set::SHARD_BITS;
use crate::snapshot::{Entry, Sink};

/// The name of the throttle among the limiters of its store.
const NAME: &str = "sluicegate::throttle";

impl Section for ThrottleShards {
    fn name(&self) -> &str {
        NAME
    }

    fn write_to(&self, sink: &mut Sink<'_>) -> io::Result<()> {
        sink.limiter(NAME, SHARD_BITS, Mode::Hard, &[])?;
        self.each_live(|hash, params, state| {
            sink.entry(&Entry { hash, account: to_account(&params, state) })
        })?;
        sink.end()
    }

    fn is_retired(&self) -> bool {
        false
    }

    fn reclaim(&self) {
        self.reclaim();
    }
}

/// Registers the throttle with its store and restores its keys.
pub(super) fn register(shards: &Arc<ThrottleShards>) {
    let store = shards.store();
    store.with_restored(|restored| {
        restored.limiter(
            NAME,
            |_, _| (),
            |(), Entry { hash, account }| {
                if let Some((params, state)) = from_account(account) {
                    shards.restore(hash, &params, state);
                }
            },
        );
    });
    let section: Arc<dyn Section> = shards.clone();
    store.add_limiter(&section);
}

fn to_account(params: &ThrottleParams, state: State) -> Account {
    let RawParams { limit, count, period_s } = params.raw;
    Account::from_states([
        (state, State::New),
        (State::Spent(limit), State::Spent(count)),
        (State::Spent(period_s), State::New),
    ])
}

/// The inverse of [`to_account`]; `None` if malformed.
fn from_account(account: Account) -> Option<(ThrottleParams, State)> {
    let mut states = account.into_states().ok()?.into_iter();
    let (state @ State::Gcra(_), State::New) = states.next()? else { return None };
    let (State::Spent(limit), State::Spent(count)) = states.next()? else { return None };
    let (State::Spent(period_s), State::New) = states.next()? else { return None };
    let params = ThrottleParams::from_raw(RawParams { limit, count, period_s })?;
    states.next().is_none().then_some((params, state))
}
