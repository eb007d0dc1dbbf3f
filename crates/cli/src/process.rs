//! What every long-running command shares: settings, logging, runtime, signals, exit codes.

mod trim;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use sluicegate::RulesError;
use sluicegate::clock::{Clock, SystemClock};
use sluicegate_server::logs::{self, Format};
use sluicegate_server::memory::MemoryBudget;
use sluicegate_server::server::StartError;
use sluicegate_server::settings::{RulesSettings, Settings, Vars};
use tokio::sync::mpsc;

use crate::{error_lines, written};

/// Reason why the process ended, with the exit code.
pub(crate) struct Fatal {
    code: u8,
    message: String,
}

/// Runs a process by its variables until it ends.
pub(crate) fn run<F>(vars: &Vars, serve: impl FnOnce(Settings) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Fatal>>,
{
    let Err(Fatal { code, message }) = start(vars, serve) else { return ExitCode::SUCCESS };
    // Also for programs that read the log: before it starts and after its end.
    let format = Settings::read_log(vars).format;
    let lines = match (format, code) {
        (Format::Json, _) => fatal_lines(&message, format),
        (Format::Text, 1) => format!("{message}\n"),
        (Format::Text, _) => error_lines(&message),
    };
    eprint!("{lines}");
    ExitCode::from(code)
}

/// Log lines of an error, each with the current time; empty lines are left out.
pub(crate) fn fatal_lines(message: &str, format: Format) -> String {
    let lines: Vec<&str> = message.lines().filter(|line| !line.trim().is_empty()).collect();
    logs::fatal_lines(&lines.join("\n"), SystemClock::get().now(), format)
}

/// Whether a command line that cannot be parsed is one of a process with a log in JSON.
pub(crate) fn logs_json(args: impl Iterator<Item = String>) -> bool {
    const FLAG: &str = "--log-format";
    let args: Vec<String> = args.collect();
    let mut vars = Vars::from_env();
    let separate = args.windows(2).find(|pair| pair[0] == FLAG).map(|pair| pair[1].as_str());
    let joined = || args.iter().find_map(|arg| arg.strip_prefix(FLAG)?.strip_prefix('='));
    if let Some(format) = separate.or_else(joined) {
        vars.set_flag(FLAG, format);
    }
    let is_process = args.get(1).is_some_and(|command| command == "serve" || command == "gateway");
    is_process && Settings::read_log(&vars).format == Format::Json
}

/// Panics as log lines. They are written directly: the panic may be one of the logging.
fn log_panics(format: Format) {
    if format == Format::Json {
        std::panic::set_hook(Box::new(move |panic| {
            eprint!("{}", fatal_lines(&panic.to_string(), format));
        }));
    }
}

fn start<F>(vars: &Vars, serve: impl FnOnce(Settings) -> F) -> Result<(), Fatal>
where
    F: Future<Output = Result<(), Fatal>>,
{
    let (settings, warnings) = Settings::read(vars).map_err(anyhow::Error::from)?;
    // Dropped at the end, it writes the last lines.
    let _guard = logs::start(settings.log).context("cannot log")?;
    log_panics(settings.log.format);
    warnings.iter().for_each(|warning| logs::events::setting_warning(warning));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_park(trim::on_thread_park)
        .build();
    runtime.context("cannot start")?.block_on(serve(settings))
}

/// Returns memory to the system after bursts, in the background.
pub(crate) fn trim_memory(memory: MemoryBudget) {
    tokio::spawn(trim::run(memory));
}

/// Prints the start message, unless it would be no line of a JSON log.
pub(crate) fn print_startup(log: Format, json: bool, message: &str) {
    if log == Format::Json && !json {
        return;
    }
    // A closed standard output is not an error.
    let _ = written(io::stdout().lock().write_all(message.as_bytes()));
}

impl From<anyhow::Error> for Fatal {
    fn from(error: anyhow::Error) -> Self {
        Self { code: 2, message: format!("{error:#}") }
    }
}

impl Fatal {
    /// A file is invalid.
    pub(crate) const fn invalid(message: String) -> Self {
        Self { code: 1, message }
    }

    /// Why a process with these rules did not start.
    pub(crate) fn of(error: StartError, rules: &RulesSettings) -> Self {
        match error {
            StartError::Rules(error) if !matches!(error, RulesError::Unreadable(_)) => {
                let message = format!("{error}\ninvalid rules: see `sluicegate check`");
                Self { code: 1, message }
            }
            StartError::Rules(error) => Self { code: 2, message: rules.describe(&error) },
            error => anyhow::Error::from(error).into(),
        }
    }
}

/// Signal handlers, installed on creation.
pub(crate) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// SIGHUP sends to `reload`.
    #[cfg(unix)]
    pub(crate) fn new(reload: mpsc::Sender<()>) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                // A full channel already requests a reload.
                let _ = reload.try_send(());
            }
        });
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    #[cfg(not(unix))]
    pub(crate) fn new(_reload: mpsc::Sender<()>) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Completes on SIGTERM or SIGINT.
    #[cfg(unix)]
    pub(crate) async fn terminated(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(crate) async fn terminated(self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_errors_of_a_json_log_are_found_on_the_command_line() {
        let is_json =
            |line: &str| logs_json(format!("sluicegate {line}").split(' ').map(str::to_owned));
        assert!(is_json("serve --log-format json --htp x"));
        assert!(is_json("serve --htp x --log-format=json"));
        assert!(!is_json("serve --htp x --log-format text"));
        assert!(!is_json("serve --log-format"));
        assert!(!is_json("check --log-format json"));
        let panic = "thread 'main' panicked at a.rs:1:\n\nno more";
        let lines = fatal_lines(panic, Format::Json);
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert!(lines.lines().all(|line| line.contains(r#""level":"fatal""#)), "{lines}");
    }
}
