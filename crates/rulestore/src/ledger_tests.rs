//! Interleavings of editors on the rules of the store.

use proptest::prelude::*;

use super::*;
use crate::revision::RevisionKind;

const NOON: i64 = 1_794_744_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOON + seconds).unwrap()
}

fn proposal(base: Option<u64>, author: &str, activation: Activation) -> Command {
    let proposal = Proposal {
        base,
        author: author.to_owned(),
        note: "why".to_owned(),
        kind: RevisionKind::Edit,
        restores: None,
        sources: Vec::new(),
        activation,
    };
    Command::Propose { proposal, digest: String::new() }
}

impl Ledger {
    fn run(
        &mut self,
        command: Command,
        policy: Policy,
        now: Timestamp,
    ) -> Result<Change, StoreError> {
        let change = self.decide(command, policy, now)?;
        change.revisions().for_each(|one| self.restore(one.clone()));
        Ok(change)
    }

    fn active_number(&self) -> Option<u64> {
        self.active.as_ref().map(|active| active.number)
    }
}

/// What an editor does: it reads the active revision, or acts on what it read before.
#[derive(Debug, Clone)]
enum Step {
    Read,
    Propose(u8),
    Approve(u64),
    Activate(u64),
    Withdraw(u64),
    Wait(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Read),
        (0..4_u8).prop_map(Step::Propose),
        (1..12_u64).prop_map(Step::Approve),
        (1..12_u64).prop_map(Step::Activate),
        (1..12_u64).prop_map(Step::Withdraw),
        (0..40_i64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever two editors do: numbers have no gaps, a revision never changes but for its state,
    /// one is active, and it was based on the one that it replaced.
    #[test]
    fn no_update_is_lost(
        steps in prop::collection::vec((0..2_usize, step()), 1..60),
        require_approval: bool,
    ) {
        let policy = Policy { require_approval };
        let (mut ledger, mut now) = (Ledger::default(), 0);
        let mut read = [None; 2];
        let mut all: BTreeMap<u64, Revision> = BTreeMap::new();
        for (editor, step) in steps {
            let name = ["alice", "bob"][editor].to_owned();
            let command = match step {
                Step::Read => {
                    read[editor] = ledger.active_number();
                    continue;
                }
                Step::Wait(seconds) => {
                    now += seconds;
                    Command::ActivateDue
                }
                Step::Propose(0) => proposal(read[editor], &name, Activation::Shadow),
                Step::Propose(1) => proposal(read[editor], &name, Activation::At(at(now + 20))),
                Step::Propose(_) => proposal(read[editor], &name, Activation::Now),
                Step::Approve(number) => Command::Approve { number, by: name },
                Step::Activate(number) => Command::Activate { number, by: name },
                Step::Withdraw(number) => Command::Withdraw { number },
            };
            let before = ledger.clone();
            let Ok(change) = ledger.run(command, policy, at(now)) else {
                prop_assert_eq!(before.active_number(), ledger.active_number());
                continue;
            };
            for one in change.revisions() {
                let known = all.insert(one.number, one.clone());
                if let Some(known) = known {
                    let immutable = |r: &Revision| (r.base, r.author.clone(), r.at, r.digest.clone());
                    prop_assert_eq!(immutable(&known), immutable(one));
                    let is_final = matches!(known.state, RevisionState::Superseded | RevisionState::Withdrawn);
                    prop_assert!(!is_final, "{:?} becomes {:?}", known, one);
                } else {
                    prop_assert_eq!(one.number, before.last + 1);
                }
            }
            if let Some(active) = change.activated() {
                prop_assert_eq!(active.base, before.active_number(), "an update was lost");
                let by_another = active.approved_by.as_ref().is_some_and(|by| *by != active.author);
                prop_assert!(!require_approval || by_another);
            }
            let count = all.values().filter(|one| one.state == RevisionState::Active).count();
            prop_assert_eq!(count, usize::from(ledger.active.is_some()));
            prop_assert!(all.values().filter(|one| one.state == RevisionState::Shadow).count() <= 1);
            prop_assert_eq!(all.len() as u64, ledger.last);
        }
    }
}

#[test]
fn a_scheduled_activation_suspends_itself_when_its_base_changed() {
    let (mut ledger, policy) = (Ledger::default(), Policy::default());
    ledger.run(proposal(None, "alice", Activation::Now), policy, at(0)).unwrap();
    for seconds in [60, 50] {
        ledger.run(proposal(Some(1), "alice", Activation::At(at(seconds))), policy, at(0)).unwrap();
    }
    assert_eq!(ledger.next_due(), Some(at(50)));
    assert!(ledger.run(Command::ActivateDue, policy, at(49)).unwrap().is_empty());
    let change = ledger.run(Command::ActivateDue, policy, at(50)).unwrap();
    assert_eq!(change.activated().unwrap().number, 3);
    ledger.run(Command::ActivateDue, policy, at(60)).unwrap();
    let suspended = &ledger.open[&2];
    assert_eq!(suspended.state, RevisionState::Suspended);
    let reason = suspended.suspended_because.as_ref().unwrap();
    assert!(reason.contains("revision 3 of `alice` is active since (why)"), "{reason}");
    assert_eq!(ledger.next_due(), None);
    let past = ledger.run(proposal(Some(3), "alice", Activation::At(at(60))), policy, at(60));
    assert!(matches!(past, Err(StoreError::BadRequest(_))));
}
