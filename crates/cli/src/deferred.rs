//! `sluicegate deferred`: the deferred requests of a gateway, over its admin endpoint.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::admin_client::{AdminClient, AdminReply};
use crate::written;

/// Arguments of `deferred`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sluicegate deferred list --state dead                 dead letters\n  \
    sluicegate deferred list --route orders --json        requests of a route, one JSON object\n  \
    sluicegate deferred inspect ID                        a request, with its head and its body\n  \
    sluicegate deferred redrive ID                        sends a dead letter again\n  \
    sluicegate deferred redrive --all --route orders      all dead letters of a route\n  \
    sluicegate deferred delete ID                         deletes a request that is not being sent\n\n\
    SLUICEGATE_ADMIN_TOKEN has the token of the admin endpoint, if it needs one.\n\
    Exit codes: 0 success, 1 there is no such request or it is in another state, 2 failed.")]
pub(crate) struct DeferredArgs {
    #[command(subcommand)]
    command: DeferredCommand,
    /// Admin endpoint of the gateway
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:6070")]
    admin: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum DeferredCommand {
    /// List requests: those that wait, final ones, dead letters; of each the oldest first
    List {
        /// State: queued, running, done, failed, expired, or dead for failed and expired
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// Name of the route
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
        /// Requests of a page
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// The page that the last list named
        #[arg(long, value_name = "PAGE")]
        after: Option<String>,
    },
    /// Show a request
    Inspect {
        /// Its id
        id: String,
    },
    /// Send dead letters again, as if they had come now
    Redrive {
        /// The id of one
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// All dead letters
        #[arg(long)]
        all: bool,
        /// All of a route
        #[arg(long, value_name = "NAME", requires = "all")]
        route: Option<String>,
    },
    /// Delete a request
    Delete {
        /// Its id
        id: String,
    },
}

/// Runs `deferred`.
pub(crate) fn run(args: &DeferredArgs) -> anyhow::Result<ExitCode> {
    let token = std::env::var("SLUICEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
    let client = AdminClient::new(&args.admin, token)?;
    let reply = match &args.command {
        DeferredCommand::List { state, route, limit, after } => {
            let limit = limit.to_string();
            let query = query(&[
                ("limit", Some(limit.as_str())),
                ("state", state.as_deref()),
                ("route", route.as_deref()),
                ("after", after.as_deref()),
            ]);
            client.send("GET", &format!("/deferred{query}"))?
        }
        DeferredCommand::Inspect { id } => {
            client.send("GET", &format!("/deferred/{}", plain(id)?))?
        }
        DeferredCommand::Redrive { id: Some(id), .. } => {
            client.send("POST", &format!("/deferred/{}/redrive", plain(id)?))?
        }
        DeferredCommand::Redrive { id: None, route, .. } => {
            let query = query(&[("route", route.as_deref())]);
            client.send("POST", &format!("/deferred/redrive{query}"))?
        }
        DeferredCommand::Delete { id } => {
            client.send("DELETE", &format!("/deferred/{}", plain(id)?))?
        }
    };
    let AdminReply { status, body } = reply;
    if status == 200 {
        let out = if args.json { format!("{body}\n") } else { readable(&args.command, &body) };
        written(io::stdout().lock().write_all(out.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let message = body["error"]["message"].as_str().unwrap_or("no message").to_owned();
    match status {
        404 if body["error"]["code"] == "not_found" && message.contains("there are /") => {
            bail!("`{}` is no gateway with `deferred`: {message}", args.admin)
        }
        404 | 409 if args.json => {
            written(io::stdout().lock().write_all(format!("{body}\n").as_bytes()))
        }
        404 | 409 => {
            written(io::stderr().lock().write_all(format!("sluicegate: {message}\n").as_bytes()))
        }
        _ => bail!("`{}` answers {status}: {message}", args.admin),
    }?;
    Ok(ExitCode::from(1))
}

/// An id for a path.
fn plain(id: &str) -> anyhow::Result<&str> {
    match !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(id),
        false => {
            bail!("`{id}` is not an id: it has letters and digits, as `deferred list` prints it")
        }
    }
}

/// The query of a path.
pub(crate) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut query = String::new();
    for (name, value) in pairs {
        let Some(value) = value else { continue };
        query.push(if query.is_empty() { '?' } else { '&' });
        query.push_str(name);
        query.push('=');
        for byte in value.bytes() {
            match byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
                true => query.push(char::from(byte)),
                false => query.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    query
}

/// A reply for people.
fn readable(command: &DeferredCommand, body: &Value) -> String {
    match command {
        DeferredCommand::List { .. } => listed(body),
        DeferredCommand::Inspect { .. } => format!("{body:#}\n"),
        DeferredCommand::Redrive { .. } => format!("redriven: {}\n", body["redriven"]),
        DeferredCommand::Delete { .. } => format!("deleted: {}\n", body["deleted"]),
    }
}

fn listed(body: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.chars().filter(|c| !c.is_control()).collect(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let fields = ["id", "state", "route", "method", "target", "created_at", "attempts", "error"];
    let heads = ["ID", "STATE", "ROUTE", "METHOD", "TARGET", "CREATED", "ATTEMPTS", "ERROR"];
    let mut rows = vec![heads.map(str::to_owned)];
    let none = Vec::new();
    let requests = body["requests"].as_array().unwrap_or(&none);
    rows.extend(requests.iter().map(|request| fields.map(|field| text(&request[field]))));
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    if let Some(next) = body["next"].as_str() {
        out.push_str(&format!("more: --after {next}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn queries_are_escaped_and_ids_checked() {
        let pairs = [("state", Some("dead")), ("after", None), ("route", Some("/a b&c"))];
        assert_eq!(query(&pairs), "?state=dead&route=%2Fa%20b%26c");
        assert!(plain("abc234").is_ok());
        assert!(plain("../rlconfig").is_err());
    }

    #[test]
    fn a_list_has_columns_and_the_next_page() {
        let body = json!({
            "requests": [{ "id": "abc", "state": "failed", "error": "status 503\u{1b}", "attempts": 8 }],
            "next": "2-100",
        });
        let out = listed(&body);
        assert!(out.starts_with("ID   STATE   ROUTE"), "{out}");
        assert!(out.contains("abc  failed  -") && out.contains("status 503\n"), "{out}");
        assert!(out.ends_with("more: --after 2-100\n"), "{out}");
    }
}
