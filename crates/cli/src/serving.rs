//! `sluicegate serve`: the service.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use sluicegate::config::rules::Options;
use sluicegate::config::watch::Watch;
use sluicegate::{Change, Engine, Following, LOOK_EVERY, RulesError, rules_of};
use sluicegate_server::rls::service::Service;
use sluicegate_server::{EXAMPLE_RULES, grpc, http};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::output::written;
use crate::reading::ReadArgs;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate serve                             with example rules; prints a line to try it with\n  \
    sluicegate serve --rules /etc/sluicegate     with rules of your own, followed while they change\n  \
    sluicegate serve --grpc 0.0.0.0:8081         for an Envoy on another machine\n\n\
    It ends on SIGTERM or Ctrl-C, when what has begun has been answered.\n\
    Exit codes: 0 ended, 1 the rules are invalid, 2 broken, such as an address that is taken.")]
pub(crate) struct ServeArgs {
    /// A file or directory of rules; give it again for more of the same configuration
    #[arg(long, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// Where Envoy asks; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    grpc: SocketAddr,
    /// Where people and scripts ask; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    #[command(flatten)]
    reading: ReadArgs,
    /// Print the addresses as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs `serve`.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let engine = Engine::new(Default::default())?;
    let options = Options { merge_domains: args.reading.merges()? };
    let _following = match start(&engine, options, args) {
        Ok(following) => following,
        Err(RulesError::Unreadable(error)) => return Err(error.into()),
        Err(error) => {
            eprintln!("{error}\ninvalid rules: see `sluicegate check`");
            return Ok(ExitCode::FAILURE);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(serve(engine, args))?;
    Ok(ExitCode::SUCCESS)
}

/// Takes the rules, and follows them if they are in files.
fn start(
    engine: &Engine,
    options: Options,
    args: &ServeArgs,
) -> Result<Option<Following>, RulesError> {
    if args.rules.is_empty() {
        let rules = rules_of(EXAMPLE_RULES)?;
        engine.reload(rules).map_err(|error| RulesError::Unfit(error.to_string()))?;
        return Ok(None);
    }
    let watch = Watch::new(&args.rules, args.reading.files());
    let (follower, warnings) = engine.follow(watch, options)?;
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let following = follower.start(LOOK_EVERY, |change| match change {
        Change::Taken { reloaded, warnings } => {
            warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            eprintln!(
                "rules reloaded: {} changed, {} added, {} removed, {} as they were",
                reloaded.changed, reloaded.added, reloaded.removed, reloaded.same
            );
        }
        Change::Refused(error) => eprintln!("{error}\nrules not reloaded: they stay as they were"),
    });
    following.map(Some).map_err(|error| RulesError::Unfit(format!("cannot follow files: {error}")))
}

async fn serve(engine: Engine, args: &ServeArgs) -> anyhow::Result<()> {
    let listener = async |address: SocketAddr| {
        let bound = TcpListener::bind(address).await;
        bound.with_context(|| format!("cannot listen on `{address}`"))
    };
    let (for_grpc, for_http) = (listener(args.grpc).await?, listener(args.http).await?);
    let (grpc_at, http_at) = (for_grpc.local_addr()?, for_http.local_addr()?);
    // Whoever starts us may have closed its ears; that is no reason to end.
    let _ = written(io::stdout().lock().write_all(greeting(args, grpc_at, http_at).as_bytes()));

    let stopping = watch::Sender::new(false);
    let stopped = || {
        let mut stopping = stopping.subscribe();
        async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
        }
    };
    let service = Service::new(engine);
    let envoy = grpc::serve(for_grpc, service.clone(), grpc::Options::default(), stopped());
    let people = http::serve(for_http, service, stopped());
    let signal = async {
        told_to_stop().await;
        stopping.send_replace(true);
    };
    let (envoy, people, ()) = tokio::join!(envoy, people, signal);
    envoy.context("gRPC has ended")?;
    people.context("HTTP has ended")
}

fn greeting(args: &ServeArgs, grpc: SocketAddr, http: SocketAddr) -> String {
    if args.json {
        let addresses = serde_json::json!({ "grpc": grpc.to_string(), "http": http.to_string() });
        return format!("{addresses}\n");
    }
    let mut text = format!(
        "grpc   {grpc}   Envoy's rate limit service\nhttp   {http}   /json, /healthcheck\n"
    );
    match args.rules.as_slice() {
        [] => text.push_str(&format!(
            "rules  an example; `--rules PATH` for your own\n\n\
             A user has three requests a minute. Paste this four times:\n\n  \
             curl -i http://{http}/json -d '{TRY}'\n"
        )),
        paths => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            text.push_str(&format!("rules  {}\n", paths.join(", ")));
        }
    }
    text
}

const TRY: &str =
    r#"{"domain":"example","descriptors":[{"entries":[{"key":"user","value":"me"}]}]}"#;

#[cfg(unix)]
async fn told_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

#[cfg(not(unix))]
async fn told_to_stop() {
    let _ = tokio::signal::ctrl_c().await;
}
