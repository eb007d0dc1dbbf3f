//! A request, explained for a person.

use sluicegate_rules::explain::{Lookup, LookupMatch};
use sluicegate_rules::plan::List;
use sluicegate_rules::set::MatchKind;

use super::rule::words::{counted, grouped, plainly};
use super::told::{One, Told};

/// Everything, from the first look to the verdict.
pub(super) fn explained(told: &Told<'_>) -> String {
    let hits = counted(usize::try_from(told.hits).unwrap_or(usize::MAX), "hit");
    let mut out = format!("domain {}, {hits}\n", plainly(told.domain));
    if let Some(listed) = &told.listed {
        let (list, then) = match listed.list {
            List::Allow => ("allow", "it passes, and no limit is asked"),
            List::Deny => ("deny", "it does not pass, and no limit is asked"),
        };
        let entry = plainly(&listed.entry);
        out.push_str(&format!("\n  `{entry}` is on the {list} list: {then}\n"));
    }
    match &told.unknown_domain {
        Some(hint) => out.push_str(&format!("\n  {}\n", plainly(hint))),
        None => told.descriptors.iter().for_each(|one| out.push_str(&descriptor(one))),
    }
    out.push_str(&format!("\nnow: {}\n", plainly(&told.why)));
    out
}

fn descriptor(one: &One<'_>) -> String {
    let mut out = match one.text.as_str() {
        "" => "\na descriptor without entries\n\n".to_owned(),
        text => format!("\ndescriptor {}\n\n", plainly(text)),
    };
    for look in &one.looks {
        out.push_str(&look_in_words(look));
    }
    if !one.looks.is_empty() {
        out.push('\n');
    }
    let mut row =
        |name: &str, says: &str| out.push_str(&format!("  {name:<10}  {}\n", plainly(says)));
    if let Some(why) = &one.why_not {
        row("no rule", why);
    }
    let Some(applied) = &one.applied else { return out };
    row("rule", &applied.id);
    applied.limits.iter().for_each(|limit| row("limit", limit));
    if let Some(settings) = &applied.settings {
        row("settings", settings);
    }
    if let Some(promise) = &applied.promise {
        row("promise", promise);
    }
    if let Some(outage) = &applied.outage {
        row("outage", outage);
    }
    row("cost", &grouped(one.cost));
    if !applied.counter.is_empty() {
        row("counter of", &applied.counter.join(" · "));
    }
    if let Some(by) = &applied.replaced_by {
        row("replaced", &format!("it does not count in this request: {by} replaces it"));
    }
    if let Some(now) = &applied.now {
        row("now", &now.in_words());
    }
    out
}

fn look_in_words(look: &Lookup<'_>) -> String {
    let entry = look.entry;
    let (some, more) = &look.configured;
    let more = match more {
        0 => String::new(),
        more => format!(" and {} more", grouped(*more as u64)),
    };
    let configured = format!("{}{more}", some.join(", "));
    let taken = match &look.met {
        Some(met) => format!("{}: {}", met.node, why(look, met)),
        None => "nothing".to_owned(),
    };
    let mut out = format!("  {}\n", plainly(&format!("{}={}", entry.key, entry.value)));
    for (name, says) in [("configured", configured), ("tried", tried(look)), ("taken", taken)] {
        out.push_str(&format!("    {name:<10}  {}\n", plainly(&says)));
    }
    out
}

/// What was looked for, in its order, up to what was found.
fn tried(look: &Lookup<'_>) -> String {
    let exact = format!("exactly `{}={}`", look.entry.key, look.entry.value);
    let all = [exact.as_str(), "networks", "patterns", "any value"];
    let count = match look.met.as_ref().map(|met| met.how) {
        Some(MatchKind::Exact) => 1,
        Some(MatchKind::Network) => 2,
        Some(MatchKind::Pattern) => 3,
        Some(MatchKind::AnyValue) | None => 4,
    };
    all[..count].join(", ")
}

fn why(look: &Lookup<'_>, met: &LookupMatch) -> String {
    let says = match met.how {
        MatchKind::Exact => "exactly this value".to_owned(),
        MatchKind::Network => format!("the longest network that holds {}", look.entry.value),
        MatchKind::Pattern => "the first pattern in the file that matches".to_owned(),
        MatchKind::AnyValue => "it takes any value".to_owned(),
    };
    match &met.counted_as {
        Some(shared) if *shared == met.node => format!("{says}; all its values share a counter"),
        Some(network) => format!("{says}; addresses of {network} share a counter"),
        None => says,
    }
}
