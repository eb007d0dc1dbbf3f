//! What happens to an engine, and how a file of rules is edited.

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_core::mode::Mode;
use sluicegate_rules::domain::{Counter, DescriptorConfig, Domain};
use sluicegate_rules::rule::{Limits, RuleConfig};

use super::anything::{
    Asked, Numbers, asked, counter, limit_of, limits, mode, name, node, numbers, rule, rule_set,
    tidy,
};
use super::model::Want;

#[derive(Debug, Clone)]
pub enum Deed {
    Ask(Want, Asked),
    /// Microseconds.
    Advance(u64),
    Back(u64),
    Load(u64),
    Edit(Vec<(Index, Edit)>),
    Replace(Vec<Domain>),
    Sweep,
    /// Saved, and another engine made of it, with rules that may be others.
    Restart(Vec<(Index, Edit)>),
}

/// What is done to one node of all.
#[derive(Debug, Clone)]
pub enum Edit {
    Numbers(Numbers),
    Limits(Limits),
    Mode(Mode),
    Name(Option<Box<str>>),
    Counter(Counter),
    Cost(u64),
    Rule(Option<Box<RuleConfig>>),
    Remove,
    Add(Box<DescriptorConfig>),
    /// To the front of its domain.
    Move,
    /// Behind its neighbours.
    Last,
}

pub fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let first = prop::option::of(Just(Deed::Load(100)));
    (first, prop::collection::vec(deed(), 1..80)).prop_map(|(first, deeds)| {
        let mut all = Vec::from_iter(first);
        all.extend(deeds);
        all
    })
}

fn deed() -> impl Strategy<Value = Deed> {
    let us = prop_oneof![
        2 => 0u64..20,
        2 => 0u64..20_000,
        2 => 0u64..2_000_000,
        2 => 0u64..70_000_000,
        1 => Just(86_400_000_000),
    ];
    let want = prop_oneof![
        12 => Just(Want::Check),
        4 => Just(Want::Peek),
        2 => Just(Want::Refund),
        1 => Just(Want::Reset),
    ];
    prop_oneof![
        30 => (want, asked()).prop_map(|(want, asked)| Deed::Ask(want, asked)),
        4 => us.prop_map(Deed::Advance),
        1 => prop_oneof![0u64..50, 0u64..2_000_000].prop_map(Deed::Back),
        3 => prop::sample::select(vec![100, 100, 100, 299, 300, 500, 700, 900]).prop_map(Deed::Load),
        2 => prop::collection::vec((any::<Index>(), edit()), 1..=3).prop_map(Deed::Edit),
        1 => rule_set().prop_map(Deed::Replace),
        1 => Just(Deed::Sweep),
        1 => prop::collection::vec((any::<Index>(), edit()), 0..=1).prop_map(Deed::Restart),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => numbers().prop_map(Edit::Numbers),
        2 => limits().prop_map(Edit::Limits),
        2 => mode().prop_map(Edit::Mode),
        1 => prop::option::of(name()).prop_map(Edit::Name),
        1 => counter().prop_map(Edit::Counter),
        1 => (1u64..4).prop_map(Edit::Cost),
        1 => prop::option::of(rule().prop_map(Box::new)).prop_map(Edit::Rule),
        1 => Just(Edit::Remove),
        1 => node(2).prop_map(|node| Edit::Add(Box::new(node))),
        1 => Just(Edit::Move),
        1 => Just(Edit::Last),
    ]
}

/// The rules after some edits.
pub fn edited(mut domains: Vec<Domain>, edits: &[(Index, Edit)]) -> Vec<Domain> {
    for (index, edit) in edits {
        let count: usize = domains.iter().map(|domain| size(&domain.descriptors)).sum();
        if count == 0 {
            break;
        }
        let mut place = index.index(count);
        for domain in &mut domains {
            let size = size(&domain.descriptors);
            if place < size {
                let mut moved = None;
                apply(&mut domain.descriptors, place, edit, &mut moved);
                domain.descriptors.splice(0..0, moved);
                break;
            }
            place -= size;
        }
    }
    tidy(domains)
}

fn size(level: &[DescriptorConfig]) -> usize {
    level.iter().map(|node| 1 + size(&node.descriptors)).sum()
}

fn apply(
    level: &mut Vec<DescriptorConfig>,
    mut place: usize,
    edit: &Edit,
    moved: &mut Option<DescriptorConfig>,
) {
    for at in 0..level.len() {
        if place == 0 {
            match edit {
                Edit::Remove => {
                    level.remove(at);
                }
                Edit::Move => *moved = Some(level.remove(at)),
                Edit::Last => {
                    let node = level.remove(at);
                    level.push(node);
                }
                _ => change(&mut level[at], edit),
            }
            return;
        }
        place -= 1;
        let below = size(&level[at].descriptors);
        if place < below {
            return apply(&mut level[at].descriptors, place, edit, moved);
        }
        place -= below;
    }
}

fn change(node: &mut DescriptorConfig, edit: &Edit) {
    match edit {
        Edit::Add(new) => node.descriptors.push((**new).clone()),
        Edit::Counter(counter) => node.counter = *counter,
        Edit::Rule(rule) => node.rule = rule.as_deref().cloned(),
        _ => {}
    }
    let Some(rule) = &mut node.rule else { return };
    match edit {
        Edit::Numbers(numbers) => renumber(&mut rule.limits, *numbers),
        Edit::Limits(limits) => rule.limits = limits.clone(),
        Edit::Mode(mode) => rule.mode = *mode,
        Edit::Name(name) => rule.name = name.clone(),
        Edit::Cost(cost) => rule.cost = *cost,
        _ => {}
    }
}

/// The same algorithms with other numbers.
fn renumber(limits: &mut Limits, numbers: Numbers) {
    match limits {
        Limits::Unlimited => {}
        Limits::Envoy { requests_per_unit, .. } => *requests_per_unit = numbers.2 as u32,
        Limits::Native(limits) => {
            for limit in limits.iter_mut() {
                let algorithm = (0..15).find(|algorithm| {
                    limit_of(None, *algorithm, numbers).algorithm() == limit.algorithm()
                });
                let name = limit.name().map(str::to_owned);
                *limit = limit_of(name, algorithm.unwrap_or(15), numbers);
            }
        }
    }
}
