//! Every command there is, and `COMMAND`, which tells clients of them.

use super::check::Want;
use super::frame::Args;
use super::refusal::{Refusal, shown};
use super::reply::Replies;
use crate::telemetry::Endpoint;

/// What there is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
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

/// A command, as clients are told of it.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: Name,
    pub(super) text: &'static str,
    /// How many words it has, itself included; below 0, at least so many.
    arity: i8,
    flags: &'static [&'static str],
    /// Whether its first argument is a key.
    has_key: bool,
    group: &'static str,
    /// Its arguments, as they are written.
    syntax: &'static str,
    summary: &'static str,
}

const HANDSHAKE: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth"];
const LOOK: &[&str] = &["loading", "stale"];
const DECIDE: &[&str] = &["write", "fast"];

/// In the order of their names.
pub(super) const ALL: &[Command] = &[
    Command {
        name: Name::Auth,
        text: "AUTH",
        arity: -2,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "[username] password",
        summary: "Shows the password of the service.",
    },
    Command {
        name: Name::Throttle,
        text: "CL.THROTTLE",
        arity: -5,
        flags: DECIDE,
        has_key: true,
        group: "limits",
        syntax: "key max_burst count period [quantity]",
        summary: "Takes from the bucket of a key, whose limit comes with the command.",
    },
    Command {
        name: Name::Client,
        text: "CLIENT",
        arity: -2,
        flags: LOOK,
        has_key: false,
        group: "connection",
        syntax: "GETNAME | ID | INFO | NO-EVICT on-off | NO-TOUCH on-off | SETINFO attribute value | SETNAME name",
        summary: "What client libraries tell of themselves.",
    },
    Command {
        name: Name::Command,
        text: "COMMAND",
        arity: -1,
        flags: LOOK,
        has_key: false,
        group: "server",
        syntax: "[COUNT | DOCS [name ...] | INFO [name ...] | LIST]",
        summary: "Tells of the commands.",
    },
    Command {
        name: Name::Config,
        text: "CONFIG",
        arity: -2,
        flags: LOOK,
        has_key: false,
        group: "server",
        syntax: "GET parameter [parameter ...]",
        summary: "Tells redis-benchmark that nothing is saved as Redis would.",
    },
    Command {
        name: Name::Echo,
        text: "ECHO",
        arity: 2,
        flags: LOOK,
        has_key: false,
        group: "connection",
        syntax: "message",
        summary: "Says what it is told.",
    },
    Command {
        name: Name::Hello,
        text: "HELLO",
        arity: -1,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "[protover [AUTH username password] [SETNAME name]]",
        summary: "Chooses the protocol.",
    },
    Command {
        name: Name::Info,
        text: "INFO",
        arity: -1,
        flags: LOOK,
        has_key: false,
        group: "server",
        syntax: "[section ...]",
        summary: "Tells of the service.",
    },
    Command {
        name: Name::Ping,
        text: "PING",
        arity: -1,
        flags: LOOK,
        has_key: false,
        group: "connection",
        syntax: "[message]",
        summary: "Whether somebody is there.",
    },
    Command {
        name: Name::Quit,
        text: "QUIT",
        arity: -1,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "",
        summary: "Closes the connection.",
    },
    Command {
        name: Name::Reset,
        text: "RESET",
        arity: 1,
        flags: HANDSHAKE,
        has_key: false,
        group: "connection",
        syntax: "",
        summary: "Makes the connection as new.",
    },
    Command {
        name: Name::Select,
        text: "SELECT",
        arity: 2,
        flags: LOOK,
        has_key: false,
        group: "connection",
        syntax: "0",
        summary: "Chooses the one database there is.",
    },
    Command {
        name: Name::Cancel,
        text: "SG.CANCEL",
        arity: -2,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "token [ID id]",
        summary: "Gives back what is reserved, or a slot.",
    },
    Command {
        name: Name::Check,
        text: "SG.CHECK",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [ID id]",
        summary: "Asks the rules whether this may go, and charges it then.",
    },
    Command {
        name: Name::Commit,
        text: "SG.COMMIT",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "token used [ID id]",
        summary: "Settles what is reserved with what was really used.",
    },
    Command {
        name: Name::Peek,
        text: "SG.PEEK",
        arity: -3,
        flags: &["readonly", "fast"],
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost]",
        summary: "Asks the rules whether this would go, and charges nothing.",
    },
    Command {
        name: Name::Refund,
        text: "SG.REFUND",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [ID id]",
        summary: "Gives back what was charged for what did not happen.",
    },
    Command {
        name: Name::Reserve,
        text: "SG.RESERVE",
        arity: -3,
        flags: DECIDE,
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [TTL milliseconds] [ID id]",
        summary: "Charges an estimate, which is settled later.",
    },
    Command {
        name: Name::Wait,
        text: "SG.WAIT",
        arity: -3,
        flags: &["write", "blocking"],
        has_key: false,
        group: "limits",
        syntax: "domain key=value [key=value ...] [| key=value ...] [COST cost] [TIMEOUT milliseconds] [ID id]",
        summary: "Waits until it may go.",
    },
];

/// The command of a name, in letters of any size.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    ALL.iter().find(|command| command.text.as_bytes().eq_ignore_ascii_case(name))
}

impl Name {
    /// Where its calls are counted, if they are.
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

    /// What it wants of the rules, if anything that is answered without a turn.
    pub(super) const fn want(self) -> Option<Want> {
        Some(match self {
            Self::Check => Want::Check,
            Self::Peek => Want::Peek,
            Self::Refund => Want::Refund,
            Self::Reserve => Want::Reserve,
            Self::Commit => Want::Commit,
            Self::Cancel => Want::Cancel,
            _ => return None,
        })
    }
}

impl Command {
    /// Whether it can have so many words.
    pub(super) fn takes(&self, words: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= least } else { words == least }
    }

    /// Whether it is for those who have not shown the password, too.
    pub(super) fn is_for_strangers(&self) -> bool {
        self.flags.contains(&"no_auth")
    }

    fn put_info(&self, out: &mut Replies<'_>) {
        let key = i64::from(self.has_key);
        out.array(10);
        out.bulk(self.text.to_ascii_lowercase().as_bytes());
        out.int(self.arity.into());
        out.set(self.flags.len());
        self.flags.iter().for_each(|flag| out.simple(flag));
        // The first key, the last, and the step from one to the next.
        (0..3).for_each(|_| out.int(key));
        // Categories of who may, hints, more about keys, and parts: there are none.
        (0..4).for_each(|_| out.array(0));
    }

    fn put_docs(&self, out: &mut Replies<'_>) {
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
pub(super) fn command(args: Args<'_>, out: &mut Replies<'_>) -> Result<(), Refusal> {
    let names = args.behind(2);
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
        Some(part) => return Err(unknown_part("COMMAND", part, "COUNT, DOCS, INFO or LIST")),
    }
    Ok(())
}

/// A part of a command that is none.
pub(super) fn unknown_part(command: &str, part: &[u8], known: &str) -> Refusal {
    let part = shown(part);
    Refusal::invalid(format_args!("unknown subcommand '{part}'. Try {command} {known}."))
}

/// A command that is none.
pub(super) fn unknown(args: Args<'_>) -> Refusal {
    let name = args.get(0).unwrap_or_default();
    if name.eq_ignore_ascii_case(b"MULTI") || name.eq_ignore_ascii_case(b"EXEC") {
        return Refusal::invalid(format_args!(
            "unknown command '{}': there are no transactions here, send the commands in a plain pipeline (redis-py: pipeline(transaction=False))",
            shown(name)
        ));
    }
    let mut beginning = String::new();
    for arg in args.iter().skip(1) {
        if beginning.len() > 128 {
            break;
        }
        beginning += &format!("'{}' ", shown(arg));
    }
    let name = shown(name);
    Refusal::invalid(format_args!(
        "unknown command '{name}', with args beginning with: {beginning}"
    ))
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
