//! `INFO` and `CONFIG GET`: what the service says of itself, in the words of Redis where it has any.

use std::fmt::Write;

use super::commands::unknown_part;
use super::frame::Args;
use super::refusal::Refusal;
use super::reply::Replies;
use super::shared::Shared;
use crate::metrics::resident_bytes;

/// Tools that look at the version want to know which commands and replies to expect.
const AS_REDIS: &str = "7.0.0";

const SECTIONS: [&str; 5] = ["server", "clients", "memory", "stats", "keyspace"];

/// `INFO [section …]`.
pub(super) fn info(args: Args<'_>, shared: &Shared, out: &mut Replies<'_>) {
    let mut wanted = args.behind(1).iter().peekable();
    let everything = wanted.peek().is_none();
    let names: Vec<&[u8]> = wanted.collect();
    let is = |section: &str| {
        names.iter().any(|name| {
            let all = ["all", "default", "everything"];
            name.eq_ignore_ascii_case(section.as_bytes())
                || all.iter().any(|all| name.eq_ignore_ascii_case(all.as_bytes()))
        })
    };
    let mut text = String::new();
    for section in SECTIONS.into_iter().filter(|section| everything || is(section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut title = section.to_owned();
        title.get_mut(..1).unwrap_or_default().make_ascii_uppercase();
        // To write to memory never fails.
        let _ = write!(text, "# {title}\r\n");
        for (name, value) in fields(section, shared) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    out.text(&text);
}

fn fields(section: &str, shared: &Shared) -> Vec<(&'static str, String)> {
    let engine = shared.service.engine();
    match section {
        "server" => vec![
            ("server_name", "sluicegate".to_owned()),
            ("sluicegate_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("redis_version", AS_REDIS.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("process_id", std::process::id().to_string()),
            (
                "uptime_in_seconds",
                (engine.now().since(shared.begun).as_micros() / 1_000_000).to_string(),
            ),
        ],
        "clients" => vec![
            ("connected_clients", shared.connections().to_string()),
            ("maxclients", shared.bounds.connections.to_string()),
        ],
        "memory" => vec![("used_memory_rss", resident_bytes().unwrap_or(0).to_string())],
        "stats" => vec![
            ("total_connections_received", shared.connections_ever().to_string()),
            ("total_commands_processed", shared.commands().to_string()),
        ],
        _ => vec![
            ("entries", engine.memory().entries().to_string()),
            ("entries_max", engine.memory().entries_max().to_string()),
        ],
    }
}

/// `CONFIG GET parameter …`: redis-benchmark asks how Redis saves, and it does not.
pub(super) fn config(args: Args<'_>, out: &mut Replies<'_>) -> Result<(), Refusal> {
    const KNOWN: [(&str, &str); 2] = [("save", ""), ("appendonly", "no")];

    let part = args.get(1).unwrap_or_default();
    if !part.eq_ignore_ascii_case(b"GET") {
        return Err(unknown_part(
            "CONFIG",
            part,
            "GET; settings are flags and variables of the service",
        ));
    }
    let is_wanted = |name: &str| {
        args.behind(2).iter().any(|wanted| wanted.eq_ignore_ascii_case(name.as_bytes()))
    };
    let found = || KNOWN.iter().filter(|(name, _)| is_wanted(name));
    out.map(found().count());
    for (name, value) in found() {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    Ok(())
}
