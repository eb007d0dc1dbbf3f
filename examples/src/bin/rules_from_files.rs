//! Rules from files, changed at run time.
//!
//! The example follows a directory of rules. First each user has 3 requests per day; Alice uses 2
//! of them; then the file changes to 5, and Alice has 3 left. An invalid edit changes nothing and
//! is reported with its position and a correction.
//!
//! Uses a manual clock and polls the files explicitly, so that the output is deterministic. A
//! service would call `follower.start(RULES_POLL_INTERVAL, ...)` once.
//!
//! ```console
//! cargo run -p sluicegate-examples --bin rules_from_files
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use sluicegate::clock::ManualClock;
use sluicegate::config::files::ReadOptions;
use sluicegate::config::watch::Watch;
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::{Change, Engine, Follower};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("sluicegate-rules-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let shown = show(&folder);
    fs::remove_dir_all(&folder)?;
    shown
}

fn show(folder: &Path) -> Result<(), Box<dyn Error>> {
    write(folder, "rate: 3/day")?;
    let engine = Engine::builder(Default::default()).clock(ManualClock::new()).build()?;
    let watch = Watch::new([folder], ReadOptions::default());
    let (mut follower, _warnings) = engine.follow(watch, Default::default())?;
    check(&engine, "alice");
    check(&engine, "alice");

    write(folder, "rate: 5/day")?;
    follow(&mut follower, folder);
    check(&engine, "alice");
    check(&engine, "bob");

    write(folder, "rat: 7/day")?;
    follow(&mut follower, folder);
    check(&engine, "alice");
    Ok(())
}

fn write(folder: &Path, rate: &str) -> std::io::Result<()> {
    let limits = format!("{{ algorithm: fixed_window, {rate} }}");
    let rules = format!("domain: shop\ndescriptors:\n  - key: user\n    limits: {limits}\n");
    fs::write(folder.join("shop.yaml"), rules)
}

/// A change is applied by the second poll that finds it.
fn follow(follower: &mut Follower, folder: &Path) {
    let change = follower.poll().or_else(|| follower.poll());
    match change {
        None => println!("nothing has changed"),
        Some(Change::Taken { reloaded, .. }) => println!("{} rule changed", reloaded.changed),
        Some(Change::Switched(reloaded)) => {
            println!("{} rule changed by its schedule", reloaded.changed);
        }
        Some(Change::Refused(error)) => {
            let folder = format!("{}/", folder.display());
            println!("the rules stay as they were:\n{}", error.to_string().replace(&folder, ""));
        }
        Some(Change::Withheld(domains)) => {
            domains.iter().for_each(|domain| println!("still withheld: {domain}"));
        }
    }
}

fn check(engine: &Engine, user: &str) {
    let entries = [Entry::new("user", user)];
    let descriptors = [Descriptor::of(&entries)];
    let checked = engine.check(&Request { domain: "shop", descriptors: &descriptors, hits: 1 });
    let left = checked.statuses[0].verdict.remaining.unwrap_or_default();
    println!("{user}: {}, {left} left", if checked.allowed { "may go" } else { "may not" });
}
