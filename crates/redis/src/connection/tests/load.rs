//! Concurrent callers, and a record of their results.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::count;
use crate::CallError;
use crate::connection::Link;

/// Callers that run until they are stopped.
pub(super) struct Load {
    callers: JoinSet<Books>,
    stop: Arc<AtomicBool>,
    answers: watch::Sender<u64>,
}

/// The results of callers.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By key: every count that was answered.
    pub(super) answers: HashMap<String, Vec<i64>>,
    /// By key: time-outs and broken connections.
    pub(super) unclear: HashMap<String, u64>,
    /// Not sent, or not done.
    pub(super) not_done: Vec<CallError>,
}

impl Load {
    /// Callers for each key.
    pub(super) fn start(link: &Link, keys: &[String], callers: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let answers = watch::Sender::new(0);
        let mut set = JoinSet::new();
        for key in keys {
            for _ in 0..callers {
                let (link, key, stop) = (link.clone(), key.clone(), stop.clone());
                set.spawn(call(link, key, stop, answers.clone()));
            }
        }
        Self { callers: set, stop, answers }
    }

    /// Waits for this many further answers.
    pub(super) async fn answered(&self, more: u64) {
        let mut answers = self.answers.subscribe();
        let wanted = *answers.borrow() + more;
        answers.wait_for(|answers| *answers >= wanted).await.unwrap();
    }

    pub(super) async fn stop(mut self) -> Books {
        self.stop.store(true, Relaxed);
        let mut all = Books::default();
        while let Some(books) = self.callers.join_next().await {
            all.add(books.unwrap());
        }
        all
    }
}

async fn call(
    link: Link,
    key: String,
    stop: Arc<AtomicBool>,
    answers: watch::Sender<u64>,
) -> Books {
    let mut books = Books::default();
    while !stop.load(Relaxed) {
        match count(&link, &key).await {
            Ok(count) => {
                books.answers.entry(key.clone()).or_default().push(count);
                answers.send_modify(|answers| *answers += 1);
            }
            Err(CallError::TimedOut | CallError::Broken) => {
                *books.unclear.entry(key.clone()).or_default() += 1;
            }
            Err(error) => {
                books.not_done.push(error);
                later(&link).await;
            }
        }
    }
    books
}

/// Rejected callers back off until the state changes, or briefly; otherwise they would starve the
/// tasks that reconnect.
async fn later(link: &Link) {
    let mut changed = link.epoch_changes();
    let _changed_or_not = timeout(Duration::from_millis(1), changed.changed()).await;
}

impl Books {
    fn add(&mut self, other: Self) {
        for (key, answers) in other.answers {
            self.answers.entry(key).or_default().extend(answers);
        }
        for (key, unclear) in other.unclear {
            *self.unclear.entry(key).or_default() += unclear;
        }
        self.not_done.extend(other.not_done);
    }

    pub(super) fn unclear(&self) -> u64 {
        self.unclear.values().sum()
    }

    /// Compares the results with the store: each answered call was executed once, an unclear one at
    /// most once.
    pub(super) async fn compare(&self, link: &Link) {
        for (key, answers) in &self.answers {
            let distinct: HashSet<_> = answers.iter().collect();
            assert_eq!(distinct.len(), answers.len(), "a count was answered twice for {key}");
            let happened = u64::try_from(count(link, key).await.unwrap() - 1).unwrap();
            let answered = u64::try_from(answers.len()).unwrap();
            let unclear = self.unclear.get(key).copied().unwrap_or_default();
            assert!(
                (answered..=answered + unclear).contains(&happened),
                "{key}: {happened} happened, {answered} were answered, {unclear} are unclear"
            );
        }
    }
}
