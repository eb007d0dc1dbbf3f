//! Options of `sluicegate gateway`: flags, and variables in their place.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail};
use sluicegate_config::gateway::upstream::ServerConfig;
use sluicegate_server::settings::Vars;

use super::hash_key::HashKeyArgs;
use crate::rules::{StoreArgs, set_rules};

/// Arguments of `gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate gateway --upstream http://127.0.0.1:3000 --limit 10/s   each client address\n  \
    sluicegate gateway --upstream http://127.0.0.1:3000 --rules rules.yaml   rules of one domain\n  \
    sluicegate gateway --config gateway.yaml   routes, TLS, identities; reloaded when it changes\n  \
    sluicegate check gateway.yaml              validates that file and its rules\n\n\
    Each option is also a variable: `--config` is SLUICEGATE_CONFIG. Flags and variables have precedence over the file.\n\
    Further variables are those of `sluicegate serve`: see docs/guide/service.md.\n\n\
    SIGHUP reloads the file and the rules. SIGTERM and Ctrl-C end the gateway after requests in progress are answered.\n\
    Exit codes: 0 ended, 1 the file or the rules are invalid, 2 failed, such as an address in use.")]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    pub(crate) command: Option<GatewayCommand>,
    /// File with listeners, routes and upstreams; reloaded when it changes
    #[arg(long, value_name = "PATH", conflicts_with_all = ["upstream", "limit"])]
    config: Option<PathBuf>,
    /// Server that requests are forwarded to, such as http://127.0.0.1:3000; repeat for more
    #[arg(long, value_name = "URL")]
    upstream: Vec<ServerConfig>,
    /// Requests of each client address, such as 10/s or 100/m
    #[arg(long, value_name = "RATE")]
    limit: Option<String>,
    /// Address of the gateway; port 0 picks a free one [default: 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Admin endpoint: metrics, readiness, configuration [default: 127.0.0.1:6070]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// File or directory of rules; repeat for more of the same configuration; or
    /// postgres://USER@HOST/DB
    #[arg(long, value_name = "PATH", conflicts_with = "limit")]
    rules: Vec<PathBuf>,
    #[command(flatten)]
    rule_store: StoreArgs,
    /// Store of the counters: memory, or redis://, rediss://, unix://, redis-sentinel:// or
    /// redis-cluster://… [default: memory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Send events to this URL, such as thresholds of budgets that are reached (`notify`)
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Worker threads [default: one for each core]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Print the addresses as one JSON object
    #[arg(long)]
    json: bool,
}

/// Commands beside the gateway itself.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum GatewayCommand {
    /// Print the line of an API key for the file of API keys
    HashKey(HashKeyArgs),
}

/// Options that the service does not have.
#[derive(Debug)]
pub(crate) struct GatewayOptions {
    pub(crate) target: Target,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) workers: Option<usize>,
}

/// Where requests go.
#[derive(Debug)]
pub(crate) enum Target {
    /// To the routes of a file.
    Config(PathBuf),
    /// To these servers, with a limit by client address.
    Servers { servers: Vec<ServerConfig>, limit: Option<String> },
}

impl GatewayArgs {
    /// Flags, then variables; and the variables of the settings.
    pub(crate) fn read(&self) -> anyhow::Result<(GatewayOptions, Vars)> {
        self.read_from(Vars::from_env())
    }

    fn read_from(&self, mut vars: Vars) -> anyhow::Result<(GatewayOptions, Vars)> {
        let flags = [
            ("--admin", &self.admin),
            ("--store", &self.store),
            ("--webhook-url", &self.webhook_url),
        ];
        for (flag, text) in flags {
            if let Some(text) = text {
                vars.set_flag(flag, text);
            }
        }
        if self.json {
            vars.set_flag("--json", "true");
        }
        self.rule_store.set_flags(&mut vars);
        if !self.rules.is_empty() {
            set_rules(&mut vars, &self.rules)?;
        }
        // Taken from the variables in any case: the settings of the service do not know them.
        let listen = variable(&mut vars, "SLUICEGATE_LISTEN", "an address such as `0.0.0.0:8000`")?;
        let workers = variable(&mut vars, "SLUICEGATE_WORKERS", "a number of threads")?;
        let config = vars.take("SLUICEGATE_CONFIG").map(PathBuf::from);
        let limit = vars.take("SLUICEGATE_LIMIT");
        let upstream = vars.take("SLUICEGATE_UPSTREAM");
        let upstream = upstream.iter().flat_map(|text| text.split(','));
        let upstream = upstream.map(|text| text.trim().parse::<ServerConfig>());
        let upstream: Vec<_> = upstream.collect::<Result<_, _>>().context("SLUICEGATE_UPSTREAM")?;
        let target = match (&self.config, self.upstream.is_empty()) {
            (Some(_), _) if limit.is_some() => bail!(
                "SLUICEGATE_LIMIT: has no effect beside a file; write the limit into its rules, or remove it"
            ),
            (Some(path), _) => Target::Config(path.clone()),
            (None, false) => {
                let limit = self.limit.clone().or(limit);
                Target::Servers { servers: self.upstream.clone(), limit }
            }
            (None, true) => match (config, upstream.is_empty()) {
                (Some(_), false) => bail!(
                    "SLUICEGATE_CONFIG and SLUICEGATE_UPSTREAM: only one of them has an effect; remove one"
                ),
                (Some(path), true) if self.limit.is_none() && limit.is_none() => {
                    Target::Config(path)
                }
                (Some(_), true) => bail!(
                    "--limit: has no effect beside a file; write the limit into its rules, or remove it"
                ),
                (None, false) => {
                    Target::Servers { servers: upstream, limit: self.limit.clone().or(limit) }
                }
                (None, true) => bail!(
                    "nothing to forward to: give `--upstream http://127.0.0.1:3000`, or a file with \
                     `--config gateway.yaml`"
                ),
            },
        };
        if matches!(&target, Target::Servers { limit: Some(_), .. })
            && vars.get("SLUICEGATE_RULES").is_some()
        {
            bail!(
                "--limit: stands beside rules, got both; write the limit into the rules, or remove one"
            );
        }
        let options = GatewayOptions {
            target,
            listen: self.listen.or(listen),
            workers: self.workers.or(workers),
        };
        if options.workers == Some(0) {
            bail!("--workers: must be at least 1, got `0`; leave it out for one of each core");
        }
        Ok((options, vars))
    }
}

fn variable<T: FromStr>(vars: &mut Vars, name: &str, expected: &str) -> anyhow::Result<Option<T>> {
    let Some(text) = vars.take(name) else { return Ok(None) };
    match text.trim().parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => bail!("{name}: must be {expected}, got `{text}`"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: GatewayArgs,
    }

    fn read(line: &str, vars: &[(&str, &str)]) -> Result<GatewayOptions, String> {
        let words = std::iter::once("gateway").chain(line.split_whitespace());
        let args = Line::try_parse_from(words).map_err(|error| error.to_string())?.args;
        let vars = Vars::new(vars.iter().copied());
        let read = args.read_from(vars).map_err(|error| format!("{error:#}"));
        read.map(|(options, _)| options)
    }

    #[test]
    fn flags_have_precedence_over_variables() {
        let vars = [
            ("SLUICEGATE_CONFIG", "a.yaml"),
            ("SLUICEGATE_LISTEN", "127.0.0.1:1"),
            ("SLUICEGATE_WORKERS", "3"),
        ];
        let options = read("", &vars).unwrap();
        assert!(matches!(&options.target, Target::Config(path) if path.ends_with("a.yaml")));
        assert_eq!((options.listen.unwrap().port(), options.workers), (1, Some(3)));
        let options = read("--config b.yaml --listen 127.0.0.1:2 --workers 1", &vars).unwrap();
        assert!(matches!(&options.target, Target::Config(path) if path.ends_with("b.yaml")));
        assert_eq!((options.listen.unwrap().port(), options.workers), (2, Some(1)));
        let options = read("--upstream http://a", &vars).unwrap();
        assert!(
            matches!(&options.target, Target::Servers { servers, limit: None } if servers.len() == 1)
        );
        let vars = [("SLUICEGATE_UPSTREAM", "http://a, http://b"), ("SLUICEGATE_LIMIT", "5/s")];
        let options = read("", &vars).unwrap();
        let Target::Servers { servers, limit } = options.target else { panic!() };
        assert_eq!((servers.len(), limit.as_deref()), (2, Some("5/s")));
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let both = [("SLUICEGATE_CONFIG", "a"), ("SLUICEGATE_UPSTREAM", "http://a")];
        for (line, vars, expected) in [
            ("", &[][..], "nothing to forward to"),
            ("", &both[..], "only one of them has an effect"),
            ("--limit 5/s", &both[..1], "--limit: has no effect beside a file"),
            ("--config a --limit 5/s", &[][..], "cannot be used with"),
            ("--config a", &[("SLUICEGATE_LIMIT", "5/s")][..], "SLUICEGATE_LIMIT: has no effect"),
            ("--config a --upstream http://b", &[][..], "cannot be used with"),
            ("--upstream b", &[][..], "has no scheme"),
            (
                "",
                &[("SLUICEGATE_UPSTREAM", "b")][..],
                "SLUICEGATE_UPSTREAM: server `b` has no scheme",
            ),
            ("", &[("SLUICEGATE_LISTEN", "x")][..], "SLUICEGATE_LISTEN: must be an address"),
            ("--upstream http://b --workers 0", &[][..], "--workers: must be at least 1"),
            (
                "--upstream http://b --limit 5/s",
                &[("SLUICEGATE_RULES", "r.yaml")][..],
                "--limit: stands beside rules",
            ),
        ] {
            let error = read(line, vars).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
