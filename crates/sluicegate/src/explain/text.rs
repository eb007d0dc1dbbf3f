//! A request, explained for a person.

use sluicegate_rules::explain::{Look, Met};
use sluicegate_rules::plan::List;
use sluicegate_rules::set::How;

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
    let Some(under) = &one.under else { return out };
    row("rule", &under.id);
    under.limits.iter().for_each(|limit| row("limit", limit));
    if let Some(settings) = &under.settings {
        row("settings", settings);
    }
    if let Some(promise) = &under.promise {
        row("promise", promise);
    }
    if let Some(outage) = &under.outage {
        row("outage", outage);
    }
    row("cost", &grouped(one.cost));
    if !under.counter.is_empty() {
        row("counter of", &under.counter.join(" · "));
    }
    if let Some(by) = &under.replaced_by {
        row("replaced", &format!("it does not count in this request: {by} replaces it"));
    }
    if let Some(now) = &under.now {
        row("now", &now.in_words());
    }
    out
}

fn look_in_words(look: &Look<'_>) -> String {
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
fn tried(look: &Look<'_>) -> String {
    let exact = format!("exactly `{}={}`", look.entry.key, look.entry.value);
    let all = [exact.as_str(), "networks", "patterns", "any value"];
    let count = match look.met.as_ref().map(|met| met.how) {
        Some(How::Exact) => 1,
        Some(How::Network) => 2,
        Some(How::Pattern) => 3,
        Some(How::AnyValue) | None => 4,
    };
    all[..count].join(", ")
}

fn why(look: &Look<'_>, met: &Met) -> String {
    let says = match met.how {
        How::Exact => "exactly this value".to_owned(),
        How::Network => format!("the longest network that holds {}", look.entry.value),
        How::Pattern => "the first pattern in the file that matches".to_owned(),
        How::AnyValue => "it takes any value".to_owned(),
    };
    match &met.counted_as {
        Some(shared) if *shared == met.node => format!("{says}; all its values share a counter"),
        Some(network) => format!("{says}; addresses of {network} share a counter"),
        None => says,
    }
}
