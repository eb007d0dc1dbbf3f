//! `sluicegate top`: the traffic of a running node in the terminal, over its admin endpoint.

mod view;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::{Value, json};

use self::view::{View, draw, to_text};
use crate::admin_client::AdminClient;
use crate::written;

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate top\n  \
    sluicegate top --admin http://10.0.0.7:6070 --sort hits\n  \
    sluicegate top --once --json | jq '.rules.rules[] | {rule, denied_share}'\n\n\
    Keys: d, s, h and r sort by denied hits, hits denied in shadow mode, hits, and rule; q quits.\n\
    SLUICEGATE_ADMIN_TOKEN has the token of the admin endpoint, if it needs one.\n\
    Exit codes: 0 success, 2 failed.")]
pub(crate) struct TopArgs {
    /// Admin endpoint of the node
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:6070")]
    admin: String,
    /// Order of the rules
    #[arg(long, value_enum, default_value_t = TopSort::Denied)]
    sort: TopSort,
    /// Seconds between two refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,
    /// Print once and end
    #[arg(long)]
    once: bool,
    /// With --once, print one JSON object
    #[arg(long, requires = "once")]
    json: bool,
}

/// Orders of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopSort {
    Denied,
    ShadowDenied,
    Hits,
    Rule,
}

/// What a refresh has read.
#[derive(Debug, Clone, Default)]
pub(crate) struct TopData {
    pub(crate) overview: Value,
    pub(crate) rules: Value,
    pub(crate) limited: Value,
}

/// Rows of rules and of identities.
const ROWS: usize = 200;

/// Time after which a key is looked for again.
const KEY_POLL: Duration = Duration::from_millis(100);

/// Runs `top`.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let token = std::env::var("SLUICEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
    let client = AdminClient::new(&args.admin, token)?;
    let data = read(&client, args.sort)?;
    if args.once {
        let out = match args.json {
            true => {
                let TopData { overview, rules, limited } = data;
                format!("{}\n", json!({ "overview": overview, "rules": rules, "limited": limited }))
            }
            false => to_text(&View { data, sort: args.sort, error: None }),
        };
        written(io::stdout().lock().write_all(out.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::try_init().context("the terminal cannot be used; try --once")?;
    let shown = show(&mut terminal, args, client, data);
    ratatui::restore();
    shown.map(|()| ExitCode::SUCCESS)
}

/// Reads the figures of a node.
fn read(client: &AdminClient, sort: TopSort) -> anyhow::Result<TopData> {
    let get = |path: &str| {
        let reply = client.send("GET", path)?;
        if reply.status != 200 {
            let message = reply.body["error"]["message"].as_str().unwrap_or_default();
            bail!("the node answers {}: {message}", reply.status);
        }
        Ok(reply.body)
    };
    Ok(TopData {
        overview: get("/api/v1/traffic?series=seconds")?,
        rules: get(&format!("/api/v1/traffic/rules?limit={ROWS}&sort={}", sort.name()))?,
        limited: get(&format!("/api/v1/traffic/limited?limit={ROWS}"))?,
    })
}

/// Shows the figures until a key quits.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    args: &TopArgs,
    client: AdminClient,
    data: TopData,
) -> anyhow::Result<()> {
    let mut view = View { data, sort: args.sort, error: None };
    // The reader waits for the node, and the keys do not.
    let (orders, ordered) = mpsc::channel::<TopSort>();
    let (readings, read_last) = mpsc::channel();
    let (interval, mut sort) = (Duration::from_secs(args.interval), args.sort);
    thread::spawn(move || {
        loop {
            match ordered.recv_timeout(interval) {
                Ok(order) => sort = order,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if readings.send(read(&client, sort)).is_err() {
                return;
            }
        }
    });
    loop {
        while let Ok(reading) = read_last.try_recv() {
            match reading {
                Ok(data) => (view.data, view.error) = (data, None),
                // The last figures stay.
                Err(error) => view.error = Some(format!("{error:#}")),
            }
        }
        terminal.draw(|frame| draw(frame, &view))?;
        if !event::poll(KEY_POLL)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
        let order = match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if is_interrupt => return Ok(()),
            KeyCode::Char('d') => TopSort::Denied,
            KeyCode::Char('s') => TopSort::ShadowDenied,
            KeyCode::Char('h') => TopSort::Hits,
            KeyCode::Char('r') => TopSort::Rule,
            _ => continue,
        };
        view.sort = order;
        orders.send(order).context("the reader has ended")?;
    }
}

impl TopSort {
    /// Its name in the API.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::Hits => "hits",
            Self::Rule => "rule",
        }
    }
}
