//! Table of commands, and `COMMAND`, which lists them.

use super::check::RuleCommand;
use super::frame::Args;
use super::reply::{ReplyWriter, RespError, shown};
use crate::telemetry::Endpoint;

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandName {
    Auth,
    Throttle,
    Client,
    Command,
    Config,
    Echo,
    Hello,
    Info,
    Ping,
    Quit,
    Reset,
    Select,
    Wait,
    Rule(RuleCommand),
}

/// Description of a command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: CommandName,
    pub(super) text: &'static str,
    /// Number of arguments including the name; negative for a minimum.
    arity: i8,
    flags: &'static [&'static str],
    group: &'static str,
    /// Syntax of its arguments.
    syntax: &'static str,
    summary: &'static str,
}

const HANDSHAKE: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const READ: &[&str] = &["loading", "stale"];
const DECIDE: &[&str] = &["write", "fast"];

/// In the order of their names.
pub(super) const ALL: &[Command] = &[
    Command::new(CommandName::Auth, "AUTH", -2, HANDSHAKE, "connection")
        .with_docs("[username] password", "Authenticates with the password of the service."),
    Command::new(CommandName::Throttle, "CL.THROTTLE", -5, DECIDE, "limits")
        .with_docs("key max_burst count period [quantity]", "Charges a token bucket whose limit is in the command."),
    Command::new(CommandName::Client, "CLIENT", -2, READ, "connection")
        .with_docs("GETNAME | ID | INFO | NO-EVICT on-off | NO-TOUCH on-off | SETINFO attribute value | SETNAME name", "Name and attributes of the client."),
    Command::new(CommandName::Command, "COMMAND", -1, READ, "server")
        .with_docs("[COUNT | DOCS [name ...] | INFO [name ...] | LIST]", "Describes the commands."),
    Command::new(CommandName::Config, "CONFIG", -2, READ, "server")
        .with_docs("GET parameter [parameter ...]", "Parameters that redis-benchmark reads."),
    Command::new(CommandName::Echo, "ECHO", 2, READ, "connection")
        .with_docs("message", "Returns the message."),
    Command::new(CommandName::Hello, "HELLO", -1, HANDSHAKE, "connection")
        .with_docs("[protover [AUTH username password] [SETNAME name]]", "Selects the protocol version."),
    Command::new(CommandName::Info, "INFO", -1, READ, "server")
        .with_docs("[section ...]", "Describes the service."),
    Command::new(CommandName::Ping, "PING", -1, READ, "connection")
        .with_docs("[message]", "Returns PONG, or the message."),
    Command::new(CommandName::Quit, "QUIT", -1, HANDSHAKE, "connection")
        .with_docs("", "Closes the connection."),
    Command::new(CommandName::Reset, "RESET", 1, HANDSHAKE, "connection")
        .with_docs("", "Resets the connection."),
    Command::new(CommandName::Select, "SELECT", 2, READ, "connection")
        .with_docs("0", "Selects the only database."),
    Command::new(CommandName::Rule(RuleCommand::Cancel), "SG.CANCEL", -2, DECIDE, "limits")
        .with_docs("token [RETURNED] [ID id]", "Cancels a reservation, or releases a slot."),
    Command::new(CommandName::Rule(RuleCommand::Check), "SG.CHECK", -3, DECIDE, "limits")
        .with_docs("domain key=value [key=value ...] [HITS hits] [| key=value ...] [COST cost] [ID id]", "Decides a request by the rules, and charges it if admitted."),
    Command::new(CommandName::Rule(RuleCommand::Commit), "SG.COMMIT", -3, DECIDE, "limits")
        .with_docs("token used [PARTIAL] [RETURNED] [ID id]", "Settles a reservation with what was used."),
    Command::new(CommandName::Rule(RuleCommand::Explain), "SG.EXPLAIN", -3, READ, "limits")
        .with_docs("domain key=value [key=value ...] [HITS hits] [| key=value ...] [COST cost] [TOKEN token]", "Explains rules and outcome of a request, for operators."),
    Command::new(CommandName::Rule(RuleCommand::Inspect), "SG.INSPECT", -3, READ, "limits")
        .with_docs("domain key=value [key=value ...] [| key=value ...] [TOKEN token]", "State of every limit of a request, for operators."),
    Command::new(CommandName::Rule(RuleCommand::Peek), "SG.PEEK", -3, &["readonly", "fast"], "limits")
        .with_docs("domain key=value [key=value ...] [HITS hits] [| key=value ...] [COST cost]", "Decides a request by the rules without charging it."),
    Command::new(CommandName::Rule(RuleCommand::Refund), "SG.REFUND", -3, DECIDE, "limits")
        .with_docs("domain key=value [key=value ...] [HITS hits] [| key=value ...] [COST cost] [RETURNED] [ID id]", "Refunds a charged request."),
    Command::new(CommandName::Rule(RuleCommand::Renew), "SG.RENEW", 3, DECIDE, "limits")
        .with_docs("token milliseconds", "Restarts the lifetime of a reservation, and the leases of its slots."),
    Command::new(CommandName::Rule(RuleCommand::Reserve), "SG.RESERVE", -3, DECIDE, "limits")
        .with_docs("domain key=value [key=value ...] [HITS hits] [| key=value ...] [COST cost] [TTL milliseconds] [TIMEOUT milliseconds] [ID id]", "Charges an estimate, to be settled later."),
    Command::new(CommandName::Wait, "SG.WAIT", -3, &["write", "blocking"], "limits")
        .with_docs("domain key=value [key=value ...] [HITS hits] [| key=value ...] [COST cost] [TIMEOUT milliseconds] [ID id]", "Waits until a request is admitted."),
];

/// Finds a command by name, ignoring case.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    ALL.iter().find(|command| command.text.as_bytes().eq_ignore_ascii_case(name))
}

impl CommandName {
    /// The endpoint that its calls count for, if any.
    pub(super) const fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::Throttle => Some(Endpoint::Throttle),
            Self::Rule(command) => Some(command.endpoint()),
            Self::Wait => Some(Endpoint::RespWait),
            _ => None,
        }
    }
}

impl Command {
    const fn new(
        name: CommandName,
        text: &'static str,
        arity: i8,
        flags: &'static [&'static str],
        group: &'static str,
    ) -> Self {
        Self { name, text, arity, flags, group, syntax: "", summary: "" }
    }

    const fn with_docs(self, syntax: &'static str, summary: &'static str) -> Self {
        Self { syntax, summary, ..self }
    }

    /// Whether it takes so many arguments, including the name.
    pub(super) fn takes(&self, words: usize) -> bool {
        let min = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= min } else { words == min }
    }

    /// Whether it is allowed before authentication.
    pub(super) fn is_allowed_before_auth(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    fn put_info(&self, out: &mut ReplyWriter<'_>) {
        // Only this one has a key: its first argument.
        let key = i64::from(self.name == CommandName::Throttle);
        out.array(10);
        out.bulk(self.text.to_ascii_lowercase().as_bytes());
        out.int(self.arity.into());
        out.set(self.flags.len());
        self.flags.iter().for_each(|flag| out.simple(flag));
        // First key, last key, step.
        (0..3).for_each(|_| out.int(key));
        // ACL categories, tips, key specifications and subcommands: none.
        (0..4).for_each(|_| out.array(0));
    }

    fn put_docs(&self, out: &mut ReplyWriter<'_>) {
        out.bulk(self.text.to_ascii_lowercase().as_bytes());
        let parts = [
            ("summary", self.summary),
            ("since", env!("CARGO_PKG_VERSION")),
            ("group", self.group),
            ("syntax", self.syntax),
        ];
        out.map(parts.len());
        for (name, text) in parts {
            out.bulk(name.as_bytes());
            out.bulk(text.as_bytes());
        }
    }
}

/// `COMMAND`.
pub(super) fn command(args: Args<'_>, out: &mut ReplyWriter<'_>) -> Result<(), RespError> {
    let names = args.skip(2);
    let is = |word: &str| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
    match args.get(1) {
        Some(_) if is("COUNT") => out.int(ALL.len() as i64),
        Some(_) if is("LIST") => {
            out.array(ALL.len());
            ALL.iter().for_each(|command| out.bulk(command.text.to_ascii_lowercase().as_bytes()));
        }
        Some(_) if is("INFO") && !names.is_empty() => {
            out.array(names.len());
            names.iter().for_each(|name| match find(name) {
                Some(command) => command.put_info(out),
                None => out.null(),
            });
        }
        Some(_) if is("DOCS") => {
            let is_wanted = |command: &&Command| {
                let text = command.text.as_bytes();
                names.is_empty() || names.iter().any(|name| text.eq_ignore_ascii_case(name))
            };
            let wanted = || ALL.iter().filter(is_wanted);
            out.map(wanted().count());
            wanted().for_each(|command| command.put_docs(out));
        }
        Some(subcommand) if !is("INFO") => {
            return Err(unknown_subcommand("COMMAND", subcommand, "COUNT, DOCS, INFO or LIST"));
        }
        _ => {
            out.array(ALL.len());
            ALL.iter().for_each(|command| command.put_info(out));
        }
    }
    Ok(())
}

/// Error of an unknown subcommand.
pub(super) fn unknown_subcommand(command: &str, subcommand: &[u8], known: &str) -> RespError {
    let subcommand = shown(subcommand);
    RespError::invalid(format_args!("unknown subcommand '{subcommand}'. Try {command} {known}."))
}

/// Error of an unknown command.
pub(super) fn unknown_command(args: Args<'_>) -> RespError {
    let name = args.get(0).unwrap_or_default();
    if name.eq_ignore_ascii_case(b"MULTI") || name.eq_ignore_ascii_case(b"EXEC") {
        return RespError::invalid(format_args!(
            "unknown command '{}': there are no transactions here, send the commands in a plain pipeline (redis-py: pipeline(transaction=False))",
            shown(name)
        ));
    }
    let mut listed = String::new();
    for arg in args.iter().skip(1) {
        if listed.len() > 128 {
            break;
        }
        listed += &format!("'{}' ", shown(arg));
    }
    let name = shown(name);
    RespError::invalid(format_args!("unknown command '{name}', with args beginning with: {listed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_in_order_and_found_in_any_case() {
        assert!(ALL.is_sorted_by_key(|command| command.text));
        for command in ALL {
            let found = find(command.text.to_ascii_lowercase().as_bytes()).unwrap();
            assert_eq!(found.name, command.name);
        }
        assert!(find(b"GET").is_none() && find(b"").is_none());
    }

    #[test]
    fn words_are_counted_as_redis_counts_them() {
        let [echo, ping] = ["ECHO", "PING"].map(|name| find(name.as_bytes()).unwrap());
        assert!(!echo.takes(1) && echo.takes(2) && !echo.takes(3));
        assert!(ping.takes(1) && ping.takes(2));
    }
}
