//! The rules that the client received last, for the thread that follows them, and the outcome of
//! loading them, for the client.

use std::sync::Arc;

use parking_lot::Mutex;
use sluicegate::Change;
use sluicegate::config::rules::Source;
use sluicegate::config::watch::{PollResult, RulesSource, SourceError};
use tokio::sync::oneshot;

/// What was received, or why it cannot be read.
type Received = Result<Vec<Source>, String>;
/// Whether the rules were taken, or what is wrong with them.
pub(super) type Outcome = Result<(), String>;

/// Rules that were received, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct ReceivedRules(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// None before the first set.
    last: Option<Received>,
    is_read: bool,
    /// Gets the outcome of the last set.
    outcome: Option<oneshot::Sender<Outcome>>,
}

/// The source of these rules.
#[derive(Debug)]
pub(crate) struct XdsRules {
    control_plane: String,
    received: Arc<ReceivedRules>,
}

impl ReceivedRules {
    /// Replaces the rules; the receiver gets the outcome.
    pub(super) fn replace(&self, received: Received) -> oneshot::Receiver<Outcome> {
        let (sender, outcome) = oneshot::channel();
        *self.0.lock() = State { last: Some(received), is_read: false, outcome: Some(sender) };
        outcome
    }

    /// Reports a change: the outcome of the last set, if that was read.
    pub(crate) fn report(&self, change: &Change) {
        let outcome = match change {
            Change::Taken { .. } => Ok(()),
            Change::Refused(error) => Err(error.to_string()),
            Change::Withheld(_) | Change::Switched(_) => return,
        };
        let mut state = self.0.lock();
        if !state.is_read {
            return;
        }
        if let Some(sender) = state.outcome.take() {
            // The stream may have ended.
            let _ = sender.send(outcome);
        }
    }
}

impl XdsRules {
    pub(super) const fn new(control_plane: String, received: Arc<ReceivedRules>) -> Self {
        Self { control_plane, received }
    }

    fn take(&self, state: &mut State) -> Result<Vec<Source>, SourceError> {
        state.is_read = true;
        let error = match &state.last {
            Some(Ok(sources)) => return Ok(sources.clone()),
            Some(Err(error)) => error.as_str(),
            None => {
                "no rules were received yet: check that the control plane runs and has rules for \
                 this node id (CONFIG_GRPC_XDS_NODE_ID)"
            }
        };
        Err(SourceError::Remote(format!("{}: {error}", self.control_plane)))
    }
}

impl RulesSource for XdsRules {
    fn read(&mut self) -> Result<Vec<Source>, SourceError> {
        self.take(&mut self.received.0.lock())
    }

    fn poll(&mut self) -> PollResult<SourceError> {
        let mut state = self.received.0.lock();
        match state.last.is_some() && !state.is_read {
            true => PollResult::Changed(self.take(&mut state)),
            false => PollResult::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::RulesError;

    use super::*;

    #[test]
    fn an_outcome_belongs_to_the_set_that_was_read() {
        let received = Arc::<ReceivedRules>::default();
        let mut rules = XdsRules::new("xds:c:1".to_owned(), received.clone());
        let error = rules.read().unwrap_err().to_string();
        assert!(error.starts_with("xds:c:1: no rules were received yet"), "{error}");
        assert!(matches!(rules.poll(), PollResult::Same));
        let refused = || Change::Refused(RulesError::Unfit("bad".to_owned()));

        let mut outcome = received.replace(Ok(Vec::new()));
        received.report(&refused());
        assert!(outcome.try_recv().is_err(), "of an earlier reading");
        assert!(matches!(rules.poll(), PollResult::Changed(Ok(_))));
        assert!(matches!(rules.poll(), PollResult::Same));
        received.report(&Change::Withheld(Vec::new()));
        received.report(&refused());
        received.report(&refused());
        assert_eq!(outcome.try_recv(), Ok(Err("bad".to_owned())));

        let _outcome = received.replace(Err("what is this".to_owned()));
        let PollResult::Changed(Err(error)) = rules.poll() else { panic!("not read") };
        assert_eq!(error.to_string(), "xds:c:1: what is this");
    }
}
