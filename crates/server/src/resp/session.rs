//! State of a client (protocol, authentication, name), and commands about client and server.

use std::fmt::Write;
use std::net::IpAddr;

use super::RespServer;
use super::commands::{Command, unknown_subcommand};
use super::frame::Args;
use super::reply::{ReplyWriter, RespError, RespVersion, parse_int, shown};
use crate::auth::{AuthEndpoint, AuthError};
use crate::metrics::resident_bytes;

/// State of a client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) protocol: RespVersion,
    /// Whether it may use all commands: after the password, or without one.
    pub(super) is_authenticated: bool,
    id: i64,
    name: Vec<u8>,
    peer: Option<IpAddr>,
    /// Rejected passwords of this connection.
    failures: u8,
}

/// Wrong passwords after which a connection is closed.
const FAILURES_MAX: u8 = 5;

/// The only user.
const USER: &[u8] = b"default";
const NO_PASSWORD: &str = "AUTH was called without any password configured for the default user; leave it out, or set SLUICEGATE_RESP_PASSWORD";
const TOO_MANY_PASSWORDS: &str = "ERR too many wrong passwords from this address: this one was not compared; reconnect in a second";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Session {
    pub(super) fn new(server: &RespServer, peer: Option<IpAddr>) -> Self {
        let (is_authenticated, id) = (server.password.is_none(), server.next_id());
        let (protocol, name) = (RespVersion::default(), Vec::new());
        Self { protocol, is_authenticated, id, name, peer, failures: 0 }
    }

    /// Its address.
    pub(super) const fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether the connection is closed for wrong passwords.
    pub(super) const fn is_locked_out(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Whether it may use a command.
    pub(super) fn is_allowed(&self, command: Option<&Command>) -> bool {
        self.is_authenticated || command.is_some_and(Command::is_allowed_before_auth)
    }

    /// `RESET`.
    pub(super) fn reset(&mut self, server: &RespServer) {
        self.protocol = RespVersion::default();
        self.is_authenticated = server.password.is_none();
        self.name.clear();
    }

    /// `HELLO [2|3] [AUTH user password] [SETNAME name]`, all or nothing.
    pub(super) fn hello(
        &mut self,
        args: Args<'_>,
        server: &RespServer,
        out: &mut ReplyWriter<'_>,
    ) -> Result<(), RespError> {
        let protocol = match args.get(1).map(parse_int::<i64>) {
            None => self.protocol,
            Some(Some(2)) => RespVersion::Resp2,
            Some(Some(3)) => RespVersion::Resp3,
            Some(Some(_)) => {
                return Err(RespError::service("NOPROTO unsupported protocol version"));
            }
            Some(None) => {
                return Err(RespError::invalid(
                    "Protocol version is not an integer or out of range",
                ));
            }
        };
        let (mut is_authenticated, mut name) = (self.is_authenticated, None);
        let mut words = args.skip(2).iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"AUTH") {
                let (Some(user), Some(password)) = (words.next(), words.next()) else {
                    return Err(syntax("HELLO", word));
                };
                self.authenticate(user, password, server)?;
                is_authenticated = true;
            } else if word.eq_ignore_ascii_case(b"SETNAME") {
                name = Some(words.next().ok_or_else(|| syntax("HELLO", word))?);
            } else {
                return Err(syntax("HELLO", word));
            }
        }
        if !is_authenticated {
            return Err(RespError::service(
                "NOAUTH HELLO needs the password here: HELLO <protocol> AUTH default <password>, or AUTH <password> before it",
            ));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        (self.is_authenticated, self.protocol) = (is_authenticated, protocol);
        out.protocol = protocol;
        self.put_hello(out);
        Ok(())
    }

    fn put_hello(&self, out: &mut ReplyWriter<'_>) {
        let protocol = if self.protocol == RespVersion::Resp2 { 2 } else { 3 };
        out.map(7);
        for (key, value) in [("server", "sluicegate"), ("version", env!("CARGO_PKG_VERSION"))] {
            out.bulk(key.as_bytes());
            out.bulk(value.as_bytes());
        }
        for (key, value) in [("proto", protocol), ("id", self.id)] {
            out.bulk(key.as_bytes());
            out.int(value);
        }
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            out.bulk(key.as_bytes());
            out.bulk(value.as_bytes());
        }
        out.bulk(b"modules");
        out.array(0);
    }

    /// `AUTH [user] password`.
    pub(super) fn auth(
        &mut self,
        args: Args<'_>,
        server: &RespServer,
        out: &mut ReplyWriter<'_>,
    ) -> Result<(), RespError> {
        let (user, password) = match (args.get(1), args.get(2)) {
            (Some(password), None) => (USER, password),
            (Some(user), Some(password)) if args.len() == 3 => (user, password),
            _ => return Err(RespError::arity("auth")),
        };
        self.authenticate(user, password, server)?;
        self.is_authenticated = true;
        out.ok();
        Ok(())
    }

    fn authenticate(
        &mut self,
        user: &[u8],
        password: &[u8],
        server: &RespServer,
    ) -> Result<(), RespError> {
        let Some(secret) = &server.password else { return Err(RespError::invalid(NO_PASSWORD)) };
        let is_right = || {
            str::from_utf8(password).is_ok_and(|password| secret.matches(password)) && user == USER
        };
        match server.app.authenticate(AuthEndpoint::Resp, self.peer, is_right) {
            Ok(()) => {
                self.failures = 0;
                Ok(())
            }
            Err(AuthError::Wrong) => {
                self.failures += 1;
                Err(RespError::service(WRONG_PASSWORD))
            }
            Err(AuthError::TooMany) => {
                self.failures = FAILURES_MAX;
                Err(RespError::overload(TOO_MANY_PASSWORDS))
            }
        }
    }

    /// `CLIENT …`, which libraries send when they connect.
    pub(super) fn client(
        &mut self,
        args: Args<'_>,
        out: &mut ReplyWriter<'_>,
    ) -> Result<(), RespError> {
        const KNOWN: &str = "GETNAME, ID, INFO, NO-EVICT, NO-TOUCH, SETINFO or SETNAME";

        let subcommand = args.get(1).unwrap_or_default();
        let is = |word: &str, words| {
            subcommand.eq_ignore_ascii_case(word.as_bytes()) && args.len() == words
        };
        match () {
            () if is("SETNAME", 3) => {
                self.set_name(args.get(2).unwrap_or_default())?;
                out.ok();
            }
            () if is("GETNAME", 2) && self.name.is_empty() => out.null(),
            () if is("GETNAME", 2) => out.bulk(&self.name),
            () if is("ID", 2) => out.int(self.id),
            () if is("INFO", 2) => {
                let protocol = if self.protocol == RespVersion::Resp2 { 2 } else { 3 };
                let name = String::from_utf8_lossy(&self.name);
                out.text(&format!("id={} name={name} db=0 resp={protocol}\n", self.id));
            }
            () if is("SETINFO", 4) || is("NO-EVICT", 3) || is("NO-TOUCH", 3) => out.ok(),
            () => return Err(unknown_subcommand("CLIENT", subcommand, KNOWN)),
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), RespError> {
        const BYTES_MAX: usize = 256;

        if name.len() > BYTES_MAX {
            return Err(RespError::invalid(format_args!(
                "Client names cannot be longer than {BYTES_MAX} bytes, got {}",
                name.len()
            )));
        }
        if !name.iter().all(u8::is_ascii_graphic) {
            return Err(RespError::invalid(
                "Client names cannot contain spaces, newlines or special characters.",
            ));
        }
        name.clone_into(&mut self.name);
        Ok(())
    }
}

/// `SELECT`: there is one database.
pub(super) fn select(args: Args<'_>, out: &mut ReplyWriter<'_>) -> Result<(), RespError> {
    match args.get(1).and_then(parse_int::<i64>) {
        Some(0) => out.ok(),
        Some(_) => return Err(RespError::invalid("DB index is out of range; the only one is 0")),
        None => return Err(RespError::invalid("value is not an integer or out of range")),
    }
    Ok(())
}

fn syntax(command: &str, word: &[u8]) -> RespError {
    RespError::invalid(format_args!("Syntax error in {command} option '{}'", shown(word)))
}

// === INFO and CONFIG ===

/// Version of Redis whose commands and replies clients may expect.
const REDIS_VERSION: &str = "7.0.0";

const SECTIONS: [&str; 5] = ["server", "clients", "memory", "stats", "keyspace"];

/// `INFO [section …]`.
pub(super) fn info(args: Args<'_>, server: &RespServer, out: &mut ReplyWriter<'_>) {
    let mut wanted = args.skip(1).iter().peekable();
    let everything = wanted.peek().is_none();
    let names: Vec<&[u8]> = wanted.collect();
    let is = |section: &str| {
        names.iter().any(|name| {
            let all = ["all", "default", "everything"];
            name.eq_ignore_ascii_case(section.as_bytes())
                || all.iter().any(|all| name.eq_ignore_ascii_case(all.as_bytes()))
        })
    };
    let mut text = String::new();
    for section in SECTIONS.into_iter().filter(|section| everything || is(section)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let mut title = section.to_owned();
        title.get_mut(..1).unwrap_or_default().make_ascii_uppercase();
        // Writing to memory cannot fail.
        let _ = write!(text, "# {title}\r\n");
        for (name, value) in fields(section, server) {
            let _ = write!(text, "{name}:{value}\r\n");
        }
    }
    out.text(&text);
}

fn fields(section: &str, server: &RespServer) -> Vec<(&'static str, String)> {
    let engine = server.app.engine();
    match section {
        "server" => vec![
            ("server_name", "sluicegate".to_owned()),
            ("sluicegate_version", env!("CARGO_PKG_VERSION").to_owned()),
            ("redis_version", REDIS_VERSION.to_owned()),
            ("redis_mode", "standalone".to_owned()),
            ("process_id", std::process::id().to_string()),
            (
                "uptime_in_seconds",
                (engine.now().since(server.started_at).as_micros() / 1_000_000).to_string(),
            ),
        ],
        "clients" => vec![
            ("connected_clients", server.admission.open().to_string()),
            ("maxclients", server.limits.connections.to_string()),
        ],
        "memory" => vec![("used_memory_rss", resident_bytes().unwrap_or(0).to_string())],
        "stats" => vec![
            ("total_connections_received", server.connections_ever().to_string()),
            ("total_commands_processed", server.commands().to_string()),
        ],
        _ => vec![
            ("entries", engine.memory().entries().to_string()),
            ("entries_max", engine.memory().entries_max().to_string()),
        ],
    }
}

/// `CONFIG GET parameter …`, for redis-benchmark, which queries persistence.
pub(super) fn config(args: Args<'_>, out: &mut ReplyWriter<'_>) -> Result<(), RespError> {
    const KNOWN: [(&str, &str); 2] = [("save", ""), ("appendonly", "no")];

    let subcommand = args.get(1).unwrap_or_default();
    if !subcommand.eq_ignore_ascii_case(b"GET") {
        return Err(unknown_subcommand(
            "CONFIG",
            subcommand,
            "GET; settings are flags and variables of the service",
        ));
    }
    let is_wanted =
        |name: &str| args.skip(2).iter().any(|wanted| wanted.eq_ignore_ascii_case(name.as_bytes()));
    let found = || KNOWN.iter().filter(|(name, _)| is_wanted(name));
    out.map(found().count());
    for (name, value) in found() {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    Ok(())
}
