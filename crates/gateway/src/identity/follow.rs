//! Files of identities, read again when they change. A change that is not valid is reported, and
//! the last good content stays in force.

use std::fmt;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};

use sluicegate::RULES_POLL_INTERVAL;
use sluicegate_config::files::ReadOptions;
use sluicegate_config::rules::Source;
use sluicegate_config::watch::{FileStamp, PollResult, Watch};
use tokio::task::{AbortHandle, spawn_blocking};
use tracing::{error, info};

use super::IdentityError;

/// Files that are followed together.
#[derive(Default)]
pub(crate) struct FollowedFiles {
    polls: Vec<Box<dyn FnMut() + Send>>,
}

/// A task that ends with this value.
#[derive(Debug)]
pub(crate) struct TaskGuard(AbortHandle);

impl FollowedFiles {
    /// Loads a text file now and after each change.
    pub(crate) fn follow_text(
        &mut self,
        kind: &'static str,
        path: &Path,
        mut load: impl FnMut(&Source) -> Result<(), String> + Send + 'static,
    ) -> Result<(), IdentityError> {
        let mut watch = Watch::new([path], ReadOptions { ignore_dot_files: false });
        let read = watch.read().map_err(|error| failed(kind, path, &error))?;
        let mut load_all = move |sources: &[Source]| sources.iter().try_for_each(&mut load);
        load_all(&read).map_err(|reason| failed(kind, path, &reason))?;
        let path = path.to_owned();
        self.polls.push(Box::new(move || match watch.poll() {
            PollResult::Same | PollResult::Changing => {}
            PollResult::Changed(Ok(sources)) => report(kind, &path, load_all(&sources)),
            PollResult::Changed(Err(error)) => report(kind, &path, Err(error.to_string())),
        }));
        Ok(())
    }

    /// Loads a binary file now and after each change.
    pub(super) fn follow_binary(
        &mut self,
        kind: &'static str,
        path: &Path,
        mut load: impl FnMut(Vec<u8>) -> Result<(), String> + Send + 'static,
    ) -> Result<(), IdentityError> {
        let mut stamp = FileStamp::read(path);
        let read = |path: &PathBuf| fs::read(path).map_err(|error| error.to_string());
        let path = path.to_owned();
        read(&path).and_then(&mut load).map_err(|reason| failed(kind, &path, &reason))?;
        let mut changing = None;
        self.polls.push(Box::new(move || {
            let now = FileStamp::read(&path);
            // Read only after a poll without a further change: it may still be written.
            if now == stamp {
                changing = None;
            } else if changing.as_ref() == Some(&now) {
                report(kind, &path, read(&path).and_then(&mut load));
                (stamp, changing) = (now, None);
            } else {
                changing = Some(now);
            }
        }));
        Ok(())
    }

    /// Polls the files until the guard is dropped. Must be called within a Tokio runtime.
    pub(super) fn start(self) -> Option<TaskGuard> {
        let mut polls = self.polls;
        if polls.is_empty() {
            return None;
        }
        Some(TaskGuard::spawn(async move {
            loop {
                tokio::time::sleep(RULES_POLL_INTERVAL).await;
                let polled = spawn_blocking(move || {
                    polls.iter_mut().for_each(|poll| poll());
                    polls
                });
                polls = match polled.await {
                    Ok(polls) => polls,
                    Err(_) => return,
                };
            }
        }))
    }
}

fn report(kind: &str, path: &Path, loaded: Result<(), String>) {
    let path = path.display();
    match loaded {
        Ok(()) => info!(%path, "{kind} reloaded"),
        Err(reason) => error!(%path, reason, "{kind} not loaded; the last good one stays in force"),
    }
}

fn failed(kind: &str, path: &Path, reason: &dyn fmt::Display) -> IdentityError {
    IdentityError {
        step: format!("load the {kind} `{}`", path.display()),
        reason: reason.to_string(),
    }
}

impl TaskGuard {
    /// Must be called within a Tokio runtime.
    pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task).abort_handle())
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for FollowedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowedFiles").field("files", &self.polls.len()).finish()
    }
}
