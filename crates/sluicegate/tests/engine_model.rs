//! The engine and a naive one, written from docs/SEMANTICS.md: they say the same to whatever is asked, however the rules are
//! changed meanwhile.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

mod engine_model_support;

use std::path::PathBuf;

use engine_model_support::anything::{Asked, rule_set};
use engine_model_support::changes::{Deed, deeds, edited};
use engine_model_support::matching::{Lasting, all};
use engine_model_support::model::{IsUnder, Model, Told, Want};
use proptest::prelude::*;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use sluicegate::backend::ready;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::rules::domain::Domain;
use sluicegate::rules::plan::Target;
use sluicegate::rules::set::RuleSet;
use sluicegate::{Engine, Memory, Span, Stats, Status};

/// So many cases, the same ones every time; `PROPTEST_CASES` asks for more, and for others each time.
fn cases(at_least: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..ProptestConfig::default()
    }
}

fn engine(domains: &[Domain], memory: &Memory, clock: &ManualClock) -> Engine {
    let rules = RuleSet::new(domains.to_vec()).unwrap();
    Engine::builder(rules).memory(memory).clock(clock.clone()).build().unwrap()
}

/// What the real one says, in the words of the model.
fn told(engine: &Engine, want: Want, asked: &Asked) -> Told {
    let checked = asked.with(|request| match want {
        Want::Check => engine.check(request),
        Want::Peek => engine.peek(request),
        Want::Refund => engine.refund(request),
        Want::Reset => engine.reset(request),
    });
    let snapshot = engine.snapshot();
    let rules = snapshot.rules();
    let under = |under| match under {
        Target::None(_) => IsUnder::Nothing,
        Target::Rule(no) => IsUnder::Rule(rules.path_of(no), rules.rule(no).clone()),
        Target::Replaced(no) => IsUnder::Replaced(rules.path_of(no), rules.rule(no).clone()),
        Target::Override(limit) => IsUnder::Override(limit),
    };
    let statuses = checked.statuses.iter().map(|said| (under(said.target), said.verdict)).collect();
    Told { allowed: checked.allowed, statuses }
}

/// A file of its own, in memory where the system has a folder for that.
fn saved() -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let shared = PathBuf::from("/dev/shm");
    let folder = if shared.is_dir() { shared } else { std::env::temp_dir() };
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("sluicegate-model-{}-{next}", std::process::id()))
}

fn run(domains: Vec<Domain>, deeds: &[Deed]) -> Result<(), TestCaseError> {
    let (mut memory, clock) = (Memory::new(), ManualClock::new());
    let mut engine = engine(&domains, &memory, &clock);
    let mut model = Model::new(domains);
    for (place, deed) in deeds.iter().enumerate() {
        let now = clock.now();
        match deed {
            Deed::Ask(want, asked) => {
                let asked = &asked.aimed(&model.domains);
                let (said, expected) = (told(&engine, *want, asked), model.ask(*want, asked, now));
                prop_assert_eq!(said, expected, "deed {}: {:?} {:?}", place, want, asked);
                inspected_as_told(&engine, asked)?;
            }
            Deed::Advance(us) => {
                clock.set(now.after(Span::from_micros(*us)));
                model.advanced(clock.now());
            }
            Deed::Back(us) => {
                clock.set(now.before(Span::from_micros(*us)).max(model.earliest()));
            }
            Deed::Load(load) => {
                engine.set_load(*load);
                model.set_load(*load, now);
            }
            Deed::Edit(_) | Deed::Replace(_) => {
                let domains = match deed {
                    Deed::Edit(edits) => edited(model.domains.clone(), edits),
                    Deed::Replace(domains) => domains.clone(),
                    _ => continue,
                };
                engine.reload(RuleSet::new(domains.clone()).unwrap()).unwrap();
                model.reload(domains, now);
            }
            Deed::Sweep => engine.sweep(),
            Deed::Restart(edits) => {
                let domains = edited(model.domains.clone(), edits);
                // What has no rule any more waits in the file until there is one again: that is not told by the specification.
                let domains =
                    if model.all_go_on(&domains) { domains } else { model.domains.clone() };
                let path = saved();
                memory.save(&path).unwrap();
                memory = Memory::restore(&path).unwrap();
                std::fs::remove_file(path).unwrap();
                engine = self::engine(&domains, &memory, &clock);
                model.reload(domains, now);
                model.restart();
            }
        }
        counted_alike(&engine, &model)?;
    }
    Ok(())
}

/// The limits one by one say what they say together.
fn inspected_as_told(engine: &Engine, asked: &Asked) -> Result<(), TestCaseError> {
    let peeked = asked.with(|request| engine.peek(request));
    let inspected = asked.with(|request| {
        ready(engine.inspect(engine.call(&engine.snapshot(), request))).unwrap().unwrap()
    });
    prop_assert_eq!(inspected.len(), peeked.statuses.len());
    for (inspected, Status { target, verdict, .. }) in inspected.iter().zip(&peeked.statuses) {
        prop_assert_eq!(inspected.target, *target);
        // What was not asked, because of a list, is inspected all the same.
        if peeked.listed().is_none() {
            let decisive = verdict.decided_by.and_then(|index| inspected.limits.get(index));
            let remaining = decisive.and_then(|limit| limit.remaining);
            let reset_after = decisive.map(|limit| limit.reset_after).unwrap_or_default();
            prop_assert_eq!((remaining, reset_after), (verdict.remaining, verdict.reset_after));
        }
    }
    Ok(())
}

fn counted_alike(engine: &Engine, model: &Model) -> Result<(), TestCaseError> {
    let snapshot = engine.snapshot();
    prop_assert_eq!(snapshot.override_stats(), model.counts.overrides);
    let rules = snapshot.rules();
    let mut counted: Vec<_> =
        rules.rules().map(|no| (rules.path_of(no), snapshot.stats(no))).collect();
    let due = |lasting: &Lasting| model.counts.rules.get(lasting).copied().unwrap_or_default();
    let placed = all(&model.domains);
    let mut due: Vec<_> = placed.into_iter().map(|one| (one.way, due(&one.lasting))).collect();
    // Text and pattern may be written alike, and then two rules have one way.
    let by_all =
        |(way, stats): &(String, Stats)| (way.clone(), stats.total_hits, stats.within_limit);
    counted.sort_by_key(by_all);
    due.sort_by_key(by_all);
    prop_assert_eq!(counted, due);
    Ok(())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn the_engine_says_what_the_naive_one_says(domains in rule_set(), deeds in deeds()) {
        run(domains, &deeds)?;
    }
}
