//! Table of commands, and `COMMAND`, which lists them.

use super::check::RuleCommand;
use super::frame::Args;
use super::reply::ReplyWriter;
use super::reply::{RespError, shown};
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
    Check,
    Peek,
    Refund,
    Reserve,
    Commit,
    Cancel,
    Wait,
}

/// Description of a command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: CommandName,
    pub(super) text: &'static str,
    /// Number of arguments including the name; negative for a minimum.
    arity: i8,
    flags: &'static [&'static str],
    /// Whether its first argument is a key.
    has_key: bool,
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
    Command {
        name: CommandName::Auth,
        text: "AUTH",
        arity: -2,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "[username] password",
        summary: "Authenticates with the password of the service.",
    },
    Command {
        name: CommandName::Throttle,
        text: "CL.THROTTLE",
        arity: -5,
        flags: DECIDE,
        has_key: true,
        group: "limits",
        syntax: "key max_burst count period [quantity]",
        summary: "Charges a token bucket whose limit is in the command.",
    },
    Command {
        name: CommandName::Client,
        text: "CLIENT",
        arity: -2,
        flags: READ,
        has_key: false,
        group: "connection",
        syntax: "GETNAME | ID | INFO | NO-EVICT on-off | NO-TOUCH on-off | SETINFO attribute value | SETNAME name",
        summary: "Name and attributes of the client.",
    },
    Command {
        name: CommandName::Command,
        text: "COMMAND",
        arity: -1,
        flags: READ,
        has_key: false,
        group: "server",
        syntax: "[COUNT | DOCS [name ...] | INFO [name ...] | LIST]",
        summary: "Describes the commands.",
    },
    Command {
        name: CommandName::Config,
        text: "CONFIG",
        arity: -2,
        flags: READ,
        has_key: false,
        group: "server",
        syntax: "GET parameter [parameter ...]",
        summary: "Parameters that redis-benchmark reads.",
    },
    Command {
        name: CommandName::Echo,
        text: "ECHO",
        arity: 2,
        flags: READ,
        has_key: false,
        group: "connection",
        syntax: "message",
        summary: "Returns the message.",
    },
    Command {
        name: CommandName::Hello,
        text: "HELLO",
        arity: -1,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "[protover [AUTH username password] [SETNAME name]]",
        summary: "Selects the protocol version.",
    },
    Command {
        name: CommandName::Info,
        text: "INFO",
        arity: -1,
        flags: READ,
        has_key: false,
        group: "server",
        syntax: "[section ...]",
        summary: "Describes the service.",
    },
    Command {
        name: CommandName::Ping,
        text: "PING",
        arity: -1,
        flags: READ,
        has_key: false,
        group: "connection",
        syntax: "[message]",
        summary: "Returns PONG, or the message.",
    },
    Command {
        name: CommandName::Quit,
        text: "QUIT",
        arity: -1,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "",
        summary: "Closes the connection.",
    },
    Command {
        name: CommandName::Reset,
        text: "RESET",
        arity: 1,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "",
        summary: "Resets the connection.",
    },
    Command {
        name: CommandName::Select,
        text: "SELECT",
        arity: 2,
        flags: READ,
        has_key: false,
        group: "connection",
        syntax: "0",
        summary: "Selects the only database.",
    },
    Command {
        name: CommandName::Cancel,
        text: "SG.CANCEL",
        arity: -2,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "token [ID id]",
        summary: "Cancels a reservation, or releases a slot.",
    },
    Command {
        name: CommandName::Check,
        text: "SG.CHECK",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [ID id]",
        summary: "Decides a request by the rules, and charges it if admitted.",
    },
    Command {
        name: CommandName::Commit,
        text: "SG.COMMIT",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "token used [ID id]",
        summary: "Settles a reservation with what was used.",
    },
    Command {
        name: CommandName::Peek,
        text: "SG.PEEK",
        arity: -3,
        flags: &["readonly", "fast"],
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost]",
        summary: "Decides a request by the rules without charging it.",
    },
    Command {
        name: CommandName::Refund,
        text: "SG.REFUND",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [ID id]",
        summary: "Refunds a charged request.",
    },
    Command {
        name: CommandName::Reserve,
        text: "SG.RESERVE",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [TTL milliseconds] [ID id]",
        summary: "Charges an estimate, to be settled later.",
    },
    Command {
        name: CommandName::Wait,
        text: "SG.WAIT",
        arity: -3,
        flags: &["write", "blocking"],
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [TIMEOUT milliseconds] [ID id]",
        summary: "Waits until a request is admitted.",
    },
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
            Self::Check => Some(Endpoint::RespCheck),
            Self::Peek => Some(Endpoint::RespPeek),
            Self::Refund => Some(Endpoint::RespRefund),
            Self::Reserve => Some(Endpoint::RespReserve),
            Self::Commit => Some(Endpoint::RespCommit),
            Self::Cancel => Some(Endpoint::RespCancel),
            Self::Wait => Some(Endpoint::RespWait),
            _ => None,
        }
    }

    /// The rule command, if it is one that does not wait for a turn.
    pub(super) const fn rule_command(self) -> Option<RuleCommand> {
        Some(match self {
            Self::Check => RuleCommand::Check,
            Self::Peek => RuleCommand::Peek,
            Self::Refund => RuleCommand::Refund,
            Self::Reserve => RuleCommand::Reserve,
            Self::Commit => RuleCommand::Commit,
            Self::Cancel => RuleCommand::Cancel,
            _ => return None,
        })
    }
}

impl Command {
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
        let key = i64::from(self.has_key);
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
        None => {
            out.array(ALL.len());
            ALL.iter().for_each(|command| command.put_info(out));
        }
        Some(_) if is("COUNT") => out.int(ALL.len() as i64),
        Some(_) if is("LIST") => {
            out.array(ALL.len());
            ALL.iter().for_each(|command| out.bulk(command.text.to_ascii_lowercase().as_bytes()));
        }
        Some(_) if is("INFO") && names.is_empty() => {
            out.array(ALL.len());
            ALL.iter().for_each(|command| command.put_info(out));
        }
        Some(_) if is("INFO") => {
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
        Some(subcommand) => {
            return Err(unknown_subcommand("COMMAND", subcommand, "COUNT, DOCS, INFO or LIST"));
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
