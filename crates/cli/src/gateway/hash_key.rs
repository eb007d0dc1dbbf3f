//! `sluicegate gateway hash-key`: a line for the file of API keys.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use sluicegate_gateway::identity::{KEY_BYTES_MAX, generate_key, hash_key};

use crate::written;

/// Keys with fewer characters are found from their hash.
const STRONG_CHARS: usize = 20;

/// Arguments of `gateway hash-key`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate gateway hash-key acme < key.txt >> keys.yaml       a key that exists\n  \
    sluicegate gateway hash-key acme --generate >> keys.yaml      a new key, shown once on standard error\n\n\
    The key is read from standard input, because arguments stay in the history of the shell.\n\
    A running gateway reads the file again when it changes.")]
pub(crate) struct HashKeyArgs {
    /// Name of the client, in limits as `api_key`
    #[arg(value_name = "NAME")]
    name: String,
    /// Generate a key, and print it to standard error
    #[arg(long)]
    generate: bool,
}

/// Runs `gateway hash-key`.
pub(crate) fn run(args: &HashKeyArgs) -> anyhow::Result<ExitCode> {
    write_line("key", &args.name, "", args.generate)
}

/// Writes the line of a key: a generated one, or that of standard input. `fields` are those between
/// the name and the hash.
pub(crate) fn write_line(
    noun: &str,
    name: &str,
    fields: &str,
    generate: bool,
) -> anyhow::Result<ExitCode> {
    if name.is_empty() {
        bail!("NAME: must not be empty; write it like `acme`");
    }
    let key = if generate {
        generate_key().context("the system has no random numbers")?
    } else {
        read_key()?
    };
    // JSON is YAML: any name is one value.
    let name = serde_json::to_string(name)?;
    let line = format!("- {{ name: {name}, {fields}sha256: {} }}\n", hash_key(&key));
    if !written(io::stdout().lock().write_all(line.as_bytes()))? {
        bail!("the line was not written, and the key was dropped");
    }
    if generate {
        eprintln!("{noun} of {name}, shown once: {key}");
    } else if key.len() < STRONG_CHARS {
        eprintln!(
            "sluicegate: warning: a {noun} of {} characters can be guessed from its hash; replace it by one of \
             `--generate`",
            key.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The first line of standard input.
fn read_key() -> anyhow::Result<String> {
    let mut input = io::stdin().lock();
    if input.is_terminal() {
        eprint!("key: ");
    }
    let mut line = Vec::new();
    // The line and its end.
    let bytes_max = KEY_BYTES_MAX as u64 + 2;
    input.by_ref().take(bytes_max).read_until(b'\n', &mut line).context("standard input")?;
    let line = line.trim_ascii();
    if line.is_empty() {
        bail!("standard input: no key; write one to it, or use `--generate`");
    }
    if line.len() > KEY_BYTES_MAX {
        bail!("standard input: a key has at most {KEY_BYTES_MAX} bytes");
    }
    match std::str::from_utf8(line) {
        Ok(key) if key.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') => {
            Ok(key.to_owned())
        }
        // The value is not repeated: it is a secret.
        _ => bail!("standard input: a key must consist of visible ASCII characters"),
    }
}
