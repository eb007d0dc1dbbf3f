//! Matching and planning take no memory once the buffers that are handed in have grown.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.
#![allow(unsafe_code, reason = "an allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use regex::Regex;
use sluicegate_rules::domain::{Counter, DescriptorConfig, Domain, Joint, ListEntry, Pattern};
use sluicegate_rules::network::Prefix;
use sluicegate_rules::plan::Plan;
use sluicegate_rules::request::{Descriptor, Entry, Override, Request};
use sluicegate_rules::rule::{Limits, RuleConfig, RuleExtras};
use sluicegate_rules::set::{MatchPath, RuleSet};
use sluicegate_rules::unit::Unit;

struct Counting;

thread_local! {
    // Of this thread alone: the harness works beside the test.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed on to the system's allocator as it came; counting touches no memory
// of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn limited(node: DescriptorConfig) -> DescriptorConfig {
    let limits = Limits::Envoy { requests_per_unit: 10, unit: Unit::Second };
    DescriptorConfig { rule: Some(RuleConfig::new(limits)), ..node }
}

fn expression(text: &str) -> Pattern {
    Pattern::Regex(Regex::new(text).unwrap())
}

/// Every kind of node, three levels deep; more globs than are simply tried.
fn rules(joint: Joint) -> RuleSet {
    let leaves = || {
        let mut level: Vec<DescriptorConfig> = (0..20)
            .map(|no| limited(DescriptorConfig::text("path", format!("/area{no}/*.html"))))
            .collect();
        level.push(limited(DescriptorConfig::new("path", expression("^/[a-z]+/[0-9]+$"))));
        level.push(DescriptorConfig {
            counter: Counter::Shared,
            ..limited(DescriptorConfig::text("path", "/shared/*"))
        });
        level.push(limited(DescriptorConfig::any("path")));
        level
    };
    let networks = Pattern::Networks(vec!["10.0.0.0/8".parse().unwrap(), "::/0".parse().unwrap()]);
    let by_network = Counter::PerNetwork(Prefix { v4: 24, v6: 64 });
    let users = |node: DescriptorConfig| DescriptorConfig { descriptors: leaves(), ..node };
    let second = vec![
        users(DescriptorConfig { counter: by_network, ..DescriptorConfig::new("ip", networks) }),
        users(DescriptorConfig::text("user", "admin")),
        users(DescriptorConfig::any("user")),
    ];
    let mut replacing = limited(DescriptorConfig::any("tier"));
    let rare = RuleExtras { replaces: vec!["plain".into()], ..RuleExtras::default() };
    replacing.rule.as_mut().unwrap().rare = Some(Box::new(rare));
    let listed = |value: Pattern| ListEntry { key: "country".to_owned(), value };
    let domain = Domain {
        joint,
        allow: vec![listed(Pattern::Text("home".to_owned()))],
        deny: vec![listed(expression("^un"))],
        descriptors: vec![
            DescriptorConfig { descriptors: second, ..DescriptorConfig::any("tenant") },
            replacing,
        ],
        ..Domain::new("shop")
    };
    RuleSet::new(vec![domain]).unwrap()
}

/// How often memory was taken.
fn taken(work: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    work();
    TAKEN.get() - before
}

#[test]
fn matching_and_planning_take_no_memory() {
    let tenant = Entry::new("tenant", "acme");
    let three = |key, who, path| [tenant, Entry::new(key, who), Entry::new("path", path)];
    let asked = [
        three("user", "admin", "/area7/index.html"),
        three("user", "someone", "/shop/42"),
        three("ip", "10.1.2.3", "/shared/x"),
        three("ip", "2001:db8::1", "/anything else"),
        three("user", "nobody with a very long name, longer than all others", "/"),
    ];
    let (tier, limit) = ([Entry::new("tier", "gold")], (10, Unit::Hour));
    let limit = Override { requests_per_unit: limit.0, unit: limit.1 };
    let mut descriptors: Vec<_> = asked.iter().map(|entries| Descriptor::of(entries)).collect();
    descriptors.push(Descriptor::of(&tier));
    descriptors.push(Descriptor { limit: Some(limit), ..Descriptor::of(&tier) });
    let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };

    for joint in [Joint::Apart, Joint::Joined] {
        let set = rules(joint);
        let (mut way, mut plan) = (MatchPath::default(), Plan::default());
        let mut all = || {
            let domain = set.domain("shop").unwrap();
            for entries in &asked {
                assert!(set.find_in(domain, entries, &mut way).is_some(), "{entries:?}");
            }
            set.plan(&request, &mut plan);
            assert_eq!(plan.steps().len(), descriptors.len());
        };
        assert!(taken(&mut all) > 0, "the buffers grow, or nothing is counted");
        for round in 0..100 {
            assert_eq!(taken(&mut all), 0, "round {round}");
        }
    }
}
