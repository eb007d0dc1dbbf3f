//! `sluicegate hash-token`: a line for the file of operators' tokens.

use std::process::ExitCode;

use sluicegate::config::admin_tokens::Role;

use crate::gateway::hash_key::write_line;

/// Arguments of `hash-token`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate hash-token alice --role edit --generate >> tokens.yaml   a new token, shown once on standard error\n  \
    sluicegate hash-token ci --role read < token.txt >> tokens.yaml     a token that exists\n  \
    sluicegate serve --admin-tokens tokens.yaml                         reads the file again when it changes\n\n\
    Roles: read sees statistics and rules; operate also resets and credits counters; edit also changes rules.")]
pub(crate) struct HashTokenArgs {
    /// Name of the operator or program, the author of its changes
    #[arg(value_name = "NAME")]
    name: String,
    /// What the token allows: read, operate or edit
    #[arg(long, value_name = "ROLE", value_parser = role)]
    role: Role,
    /// Generate a token, and print it to standard error
    #[arg(long)]
    generate: bool,
}

/// Runs `hash-token`.
pub(crate) fn run(args: &HashTokenArgs) -> anyhow::Result<ExitCode> {
    write_line("token", &args.name, &format!("role: {}, ", args.role.name()), args.generate)
}

fn role(text: &str) -> Result<Role, String> {
    let role = Role::ALL.into_iter().find(|role| role.name() == text);
    role.ok_or_else(|| format!("must be `read`, `operate` or `edit`, got `{text}`"))
}
