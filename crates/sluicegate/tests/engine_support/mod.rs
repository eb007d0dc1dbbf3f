//! Requests as one writes them in a sentence.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use sluicegate::clock::ManualClock;
use sluicegate::rules::request::{Descriptor, Entry, Override, Request};
use sluicegate::rules::set::RuleSet;
use sluicegate::rules::unit::Unit;
use sluicegate::{Checked, Engine, rules_of};

/// An engine with the rules of a text, on a clock that stands still.
pub fn engine(text: &str) -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let engine = Engine::builder(rules(text)).clock(clock.clone()).build().unwrap();
    (engine, clock)
}

pub fn rules(text: &str) -> RuleSet {
    rules_of(text).unwrap_or_else(|error| panic!("{error}"))
}

/// What is asked: `user=42,path=/ x3 | tenant=a`: descriptors with their entries, and how many hits, if it says so. `limit=5/minute` at
/// the end of a descriptor comes with it.
pub fn ask(text: &str, then: impl FnOnce(&Request<'_>) -> Checked) -> Checked {
    ask_in("shop", text, then)
}

pub fn ask_in(domain: &str, text: &str, then: impl FnOnce(&Request<'_>) -> Checked) -> Checked {
    let parts: Vec<(Vec<Entry<'_>>, Option<u64>, Option<Override>)> =
        text.split('|').map(part).collect();
    let descriptors: Vec<Descriptor<'_>> = parts
        .iter()
        .map(|(entries, hits, limit)| Descriptor {
            hits: *hits,
            limit: *limit,
            ..Descriptor::of(entries)
        })
        .collect();
    then(&Request { domain, descriptors: &descriptors, hits: 1 })
}

fn part(text: &str) -> (Vec<Entry<'_>>, Option<u64>, Option<Override>) {
    let (mut entries, mut hits, mut limit) = (Vec::new(), None, None);
    for word in text.split_whitespace() {
        if let Some(number) = word.strip_prefix('x').and_then(|number| number.parse().ok()) {
            hits = Some(number);
        } else if let Some((number, unit)) =
            word.strip_prefix("limit=").and_then(|l| l.split_once('/'))
        {
            let requests_per_unit = number.parse().unwrap();
            limit = Some(Override { requests_per_unit, unit: Unit::of(unit).unwrap() });
        } else {
            for pair in word.split(',') {
                let (key, value) = pair.split_once('=').unwrap();
                entries.push(Entry::new(key, value));
            }
        }
    }
    (entries, hits, limit)
}

/// Whether it may go, and what each descriptor has left: `yes 4 - 0`; a descriptor that is denied has a `!`.
pub fn told(checked: &Checked) -> String {
    let mut told = if checked.allowed { "yes" } else { "no" }.to_owned();
    for status in &checked.statuses {
        told.push(' ');
        match status.verdict.remaining {
            Some(left) => told.push_str(&left.to_string()),
            None => told.push('-'),
        }
        if !status.verdict.is_allowed() {
            told.push('!');
        }
    }
    told
}

pub fn check(engine: &Engine, text: &str) -> String {
    told(&ask(text, |request| engine.check(request)))
}

pub fn peek(engine: &Engine, text: &str) -> String {
    told(&ask(text, |request| engine.peek(request)))
}

pub fn refund(engine: &Engine, text: &str) -> String {
    told(&ask(text, |request| engine.refund(request)))
}
