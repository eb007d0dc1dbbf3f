//! Telling a store what it has missed: while it could not be asked, and when it was replaced.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use sluicegate_core::change::Keep;
use tokio::time::sleep;

use super::Inner;
use super::journal::Entry;
use super::recent::Seen;
use crate::redis::script::{self, Charter, LongError, LongPart};

/// How long to wait before telling it again, each time that it could not be told.
const PAUSES: [Duration; 8] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1_600),
    Duration::from_millis(3_200),
];
/// How many identities are told of at a time.
const AT_A_TIME: usize = 16;

impl Inner {
    /// Tells the store what was admitted without it, since it answers again.
    pub(super) fn settle_journal(self: &Arc<Self>) {
        let entries = self.journal.take(self.now());
        if entries.is_empty() {
            return;
        }
        let inner = self.clone();
        tokio::spawn(async move {
            let told = stream::iter(entries).for_each_concurrent(AT_A_TIME, |(key, entry)| {
                let inner = &inner;
                async move { inner.settle(key, entry).await }
            });
            told.await;
        });
    }

    async fn settle(&self, key: Arc<[u8]>, entry: Entry) {
        let part = long_part(&key, entry.charter.clone());
        let told =
            script::absorb(&self.link, &self.plans, &part, &entry.account, self.clock()).await;
        match told {
            Ok(()) => {
                self.settled.fetch_add(1, Ordering::Relaxed);
            }
            // It may have happened all the same. If so it happens twice, and a little less passes than might.
            Err(LongError::Store(_) | LongError::Contended) => {
                self.journal.put_back((key, entry), self.now());
            }
            Err(_) => {}
        }
    }

    async fn reassert(&self, key: Arc<[u8]>, seen: Seen) {
        let Seen { charter, account, epoch, .. } = seen;
        let part = long_part(&key, charter);
        // A server that has just been promoted is slow, and its clients have all come back at once.
        for pause in PAUSES {
            self.leave_plan_of(&part.charter).await;
            let seen = (&account, epoch);
            match script::reassert(&self.link, &self.plans, &part, seen, self.clock()).await {
                Ok(told) => {
                    self.reasserted.fetch_add(u64::from(told), Ordering::Relaxed);
                    return;
                }
                Err(LongError::Store(_) | LongError::Contended) => sleep(pause).await,
                Err(_) => return,
            }
        }
    }
}

/// Says again what was seen, whenever the store may have forgotten something; until it is dropped.
pub(super) async fn mend(store: Weak<Inner>) {
    let Some(mut changes) = store.upgrade().map(|store| store.link.changed()) else { return };
    while changes.changed().await.is_ok() {
        let Some(store) = store.upgrade() else { return };
        let all = store.recent.all();
        let told = stream::iter(all).for_each_concurrent(AT_A_TIME, |(key, seen)| {
            let store = &store;
            async move { store.reassert(key, seen).await }
        });
        told.await;
    }
}

fn long_part(key: &Arc<[u8]>, charter: Arc<Charter>) -> LongPart {
    LongPart { key: key.clone(), charter, open: false, cost: None, keep: Keep::Used }
}
