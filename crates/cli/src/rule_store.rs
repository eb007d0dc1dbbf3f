//! `sluicegate rules`: revisions of the rules of a node, over its admin endpoint.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluicegate_config::files::{ReadOptions, read};
use sluicegate_config::rules::Source;
use sluicegate_rulestore::export;

use crate::admin_client::{AdminClient, AdminReply};
use crate::deferred::query;
use crate::written;

/// Arguments of `rules`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sluicegate rules history                               the last revisions, with authors and notes\n  \
    sluicegate rules show 12                               a revision, and what it changed\n  \
    sluicegate rules import rules/ --note 'first import'   files become the active revision\n  \
    sluicegate rules export > rules.yaml                   all files as one YAML stream\n  \
    sluicegate rules rollback 11 --note 'too strict'       restores a revision, as a new one\n\n\
    SLUICEGATE_ADMIN_TOKEN has the token of the admin endpoint, if it needs one.\n\
    Exit codes: 0 success, 1 refused, such as invalid rules or a conflict, 2 failed.")]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
    /// Admin endpoint of a node
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:6070")]
    admin: String,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// List revisions, the newest first
    History {
        /// Number of revisions, up to 200
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Show a revision and its difference from its base
    Show {
        /// Its number
        revision: u64,
        /// Another revision to compare with
        #[arg(long, value_name = "N")]
        against: Option<u64>,
    },
    /// Print the active rules, or those of a revision, as one YAML stream
    Export {
        /// Its number
        #[arg(long, value_name = "N")]
        revision: Option<u64>,
    },
    /// Replace all rules by those of a directory or a file
    Import {
        /// A directory of rules, or a file, such as one of `rules export`
        path: PathBuf,
        /// Why
        #[arg(long)]
        note: String,
        /// The revision that must be active, against changes meanwhile
        #[arg(long, value_name = "N")]
        base: Option<u64>,
    },
    /// Restore a revision, as a new one
    Rollback {
        /// Its number
        revision: u64,
        /// Why
        #[arg(long)]
        note: String,
    },
    /// Approve the revision of another person
    Approve {
        /// Its number
        revision: u64,
    },
    /// Activate the candidate
    Activate {
        /// Its number
        revision: u64,
    },
    /// Withdraw a revision that is not enforced
    Withdraw {
        /// Its number
        revision: u64,
    },
}

/// Runs `rules`.
pub(crate) fn run(args: &RulesArgs) -> anyhow::Result<ExitCode> {
    let token = std::env::var("SLUICEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
    let client = AdminClient::new(&args.admin, token)?;
    let text = |number: &Option<u64>| number.map(|number| number.to_string());
    let post = |revision: &u64, action: &str| {
        client.send("POST", &format!("/api/v1/rules/revisions/{revision}/{action}"))
    };
    let reply = match &args.command {
        RulesCommand::History { limit } => {
            let limit = limit.to_string();
            client.send("GET", &format!("/api/v1/rules/revisions?limit={limit}"))
        }
        RulesCommand::Show { revision, against } => {
            let against = text(against);
            let query = query(&[("against", against.as_deref())]);
            client.send("GET", &format!("/api/v1/rules/revisions/{revision}{query}"))
        }
        RulesCommand::Export { revision: Some(revision) } => {
            client.send("GET", &format!("/api/v1/rules/revisions/{revision}"))
        }
        RulesCommand::Export { revision: None } => client.send("GET", "/api/v1/rules"),
        RulesCommand::Import { path, note, base } => {
            let base = text(base);
            let query = query(&[("note", Some(note)), ("base", base.as_deref())]);
            client.send_body("POST", &format!("/api/v1/rules/import{query}"), &stream(path)?)
        }
        RulesCommand::Rollback { revision, note } => {
            let path = format!("/api/v1/rules/revisions/{revision}/rollback");
            client.send_body("POST", &path, &json!({ "note": note }).to_string())
        }
        RulesCommand::Approve { revision } => post(revision, "approve"),
        RulesCommand::Activate { revision } => post(revision, "activate"),
        RulesCommand::Withdraw { revision } => post(revision, "withdraw"),
    };
    let AdminReply { status, body } = reply?;
    if (200..300).contains(&status) {
        let out = match args.json {
            true => format!("{body}\n"),
            false => readable(&args.command, &body)?,
        };
        written(io::stdout().lock().write_all(out.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let error = &body["error"];
    match status {
        400 | 403 | 404 | 409 | 422 if args.json => {
            written(io::stdout().lock().write_all(format!("{body}\n").as_bytes()))?;
        }
        400 | 403 | 404 | 409 | 422 => {
            let message = error["message"].as_str().unwrap_or("no message");
            let lines: String = message.lines().map(|line| format!("{line}\n")).collect();
            written(io::stderr().lock().write_all(lines.as_bytes()))?;
        }
        _ => {
            let message = error["message"].as_str().unwrap_or("no message");
            bail!("`{}` answers {status}: {message}", args.admin)
        }
    }
    Ok(ExitCode::from(1))
}

/// The files of a path as one stream; a stream stays what it is.
fn stream(path: &Path) -> anyhow::Result<String> {
    let sources = read(path, &ReadOptions::default())?;
    if !path.is_dir() {
        let file = sources.into_iter().next().context("the file is empty")?;
        let is_stream = file.text.lines().any(|line| line.starts_with("--- # file: "));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = file.text;
        return if is_stream { Ok(text) } else { Ok(export(&[Source { name, text }])?) };
    }
    let relative = |source: Source| {
        let name = Path::new(&source.name);
        let name = name.strip_prefix(path).unwrap_or(name).to_string_lossy().into_owned();
        Source { name, text: source.text }
    };
    let sources: Vec<Source> = sources.into_iter().map(relative).collect();
    Ok(export(&sources)?)
}

fn readable(command: &RulesCommand, body: &Value) -> anyhow::Result<String> {
    match command {
        RulesCommand::History { .. } => {
            let revisions = body["revisions"].as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(revisions.iter().map(line).collect())
        }
        RulesCommand::Show { .. } => Ok(format!(
            "{}\n{}",
            line(&body["revision"]),
            body["diff"].as_str().unwrap_or_default()
        )),
        RulesCommand::Export { .. } => {
            let files = body["files"].as_array().map(Vec::as_slice).unwrap_or_default();
            let text = |file: &Value, key: &str| file[key].as_str().unwrap_or_default().to_owned();
            let source =
                |file: &Value| Source { name: text(file, "name"), text: text(file, "text") };
            Ok(export(&files.iter().map(source).collect::<Vec<_>>())?)
        }
        _ => Ok(line(&body["revision"])),
    }
}

/// A revision on one line.
fn line(revision: &Value) -> String {
    let text = |key: &str| revision[key].as_str().unwrap_or_default();
    let (number, state, author) = (&revision["number"], text("state"), text("author"));
    let restores = match revision["restores"].as_u64() {
        Some(restored) => format!(" (restores {restored})"),
        None => String::new(),
    };
    let note = text("note").replace(['\n', '\r'], " ");
    format!(
        "{number:>5}  {:<20}  {state:<10}  {:<8}  {author}: {note}{restores}\n",
        text("at"),
        text("kind")
    )
}
