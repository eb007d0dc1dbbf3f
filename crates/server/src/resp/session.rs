//! What a client is, as far as it has said: which protocol it speaks, whether it may ask, and what it calls itself.

use std::net::IpAddr;

use super::commands::{Command, unknown_part};
use super::frame::Args;
use super::refusal::{Refusal, shown, whole};
use super::reply::{Protocol, Replies};
use super::shared::Shared;
use crate::auth::{AuthEndpoint, AuthError};

/// What a client is, as far as it has said.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) protocol: Protocol,
    /// Whether it has shown the password; always, if there is none.
    pub(super) is_known: bool,
    id: i64,
    name: Vec<u8>,
    peer: Option<IpAddr>,
    /// Rejected passwords of this connection.
    failures: u8,
}

/// Wrong passwords after which a connection is closed.
const FAILURES_MAX: u8 = 5;

/// The one user that there is.
const USER: &[u8] = b"default";
const NO_PASSWORD: &str = "AUTH was called without any password configured for the default user; leave it out, or set SLUICEGATE_RESP_PASSWORD where the service runs";
const TOO_MANY_PASSWORDS: &str = "ERR too many wrong passwords from this address: this one was not compared; reconnect in a second";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl Session {
    pub(super) fn new(shared: &Shared, peer: Option<IpAddr>) -> Self {
        let (is_known, id) = (shared.password.is_none(), shared.next_id());
        let (protocol, name) = (Protocol::default(), Vec::new());
        Self { protocol, is_known, id, name, peer, failures: 0 }
    }

    /// Whether the connection is to be closed for wrong passwords.
    pub(super) const fn is_over(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Whether a command is for it.
    pub(super) fn may(&self, command: Option<&Command>) -> bool {
        self.is_known || command.is_some_and(Command::is_for_strangers)
    }

    /// `RESET`.
    pub(super) fn reset(&mut self, shared: &Shared) {
        self.protocol = Protocol::default();
        self.is_known = shared.password.is_none();
        self.name.clear();
    }

    /// `HELLO [2|3] [AUTH user password] [SETNAME name]`: all of it, or nothing.
    pub(super) fn hello(
        &mut self,
        args: Args<'_>,
        shared: &Shared,
        out: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        let protocol = match args.get(1).map(whole::<i64>) {
            None => self.protocol,
            Some(Some(2)) => Protocol::Resp2,
            Some(Some(3)) => Protocol::Resp3,
            Some(Some(_)) => return Err(Refusal::service("NOPROTO unsupported protocol version")),
            Some(None) => {
                return Err(Refusal::invalid("Protocol version is not an integer or out of range"));
            }
        };
        let (mut is_known, mut name) = (self.is_known, None);
        let mut words = args.behind(2).iter();
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"AUTH") {
                let (Some(user), Some(password)) = (words.next(), words.next()) else {
                    return Err(syntax("HELLO", word));
                };
                self.authenticate(user, password, shared)?;
                is_known = true;
            } else if word.eq_ignore_ascii_case(b"SETNAME") {
                name = Some(words.next().ok_or_else(|| syntax("HELLO", word))?);
            } else {
                return Err(syntax("HELLO", word));
            }
        }
        if !is_known {
            return Err(Refusal::service(
                "NOAUTH HELLO needs the password here: HELLO <protocol> AUTH default <password>, or AUTH <password> before it",
            ));
        }
        if let Some(name) = name {
            self.set_name(name)?;
        }
        (self.is_known, self.protocol) = (is_known, protocol);
        out.protocol = protocol;
        self.put_hello(out);
        Ok(())
    }

    fn put_hello(&self, out: &mut Replies<'_>) {
        let protocol = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
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
        shared: &Shared,
        out: &mut Replies<'_>,
    ) -> Result<(), Refusal> {
        let (user, password) = match (args.get(1), args.get(2)) {
            (Some(password), None) => (USER, password),
            (Some(user), Some(password)) if args.len() == 3 => (user, password),
            _ => return Err(Refusal::arity("auth")),
        };
        self.authenticate(user, password, shared)?;
        self.is_known = true;
        out.ok();
        Ok(())
    }

    fn authenticate(
        &mut self,
        user: &[u8],
        password: &[u8],
        shared: &Shared,
    ) -> Result<(), Refusal> {
        let Some(secret) = &shared.password else { return Err(Refusal::invalid(NO_PASSWORD)) };
        let is_right =
            || str::from_utf8(password).is_ok_and(|password| secret.is(password)) && user == USER;
        match shared.service.authenticate(AuthEndpoint::Resp, self.peer, is_right) {
            Ok(()) => {
                self.failures = 0;
                Ok(())
            }
            Err(AuthError::Wrong) => {
                self.failures += 1;
                Err(Refusal::service(WRONG_PASSWORD))
            }
            Err(AuthError::TooMany { .. }) => {
                self.failures = FAILURES_MAX;
                Err(Refusal::overload(TOO_MANY_PASSWORDS))
            }
        }
    }

    /// `CLIENT …`: what libraries say of themselves when they begin.
    pub(super) fn client(&mut self, args: Args<'_>, out: &mut Replies<'_>) -> Result<(), Refusal> {
        const KNOWN: &str = "GETNAME, ID, INFO, NO-EVICT, NO-TOUCH, SETINFO or SETNAME";

        let part = args.get(1).unwrap_or_default();
        let is =
            |word: &str, words| part.eq_ignore_ascii_case(word.as_bytes()) && args.len() == words;
        match () {
            () if is("SETNAME", 3) => {
                self.set_name(args.get(2).unwrap_or_default())?;
                out.ok();
            }
            () if is("GETNAME", 2) && self.name.is_empty() => out.null(),
            () if is("GETNAME", 2) => out.bulk(&self.name),
            () if is("ID", 2) => out.int(self.id),
            () if is("INFO", 2) => {
                let protocol = if self.protocol == Protocol::Resp2 { 2 } else { 3 };
                let name = String::from_utf8_lossy(&self.name);
                out.text(&format!("id={} name={name} db=0 resp={protocol}\n", self.id));
            }
            () if is("SETINFO", 4) || is("NO-EVICT", 3) || is("NO-TOUCH", 3) => out.ok(),
            () => return Err(unknown_part("CLIENT", part, KNOWN)),
        }
        Ok(())
    }

    fn set_name(&mut self, name: &[u8]) -> Result<(), Refusal> {
        const BYTES_MAX: usize = 256;

        if name.len() > BYTES_MAX {
            return Err(Refusal::invalid(format_args!(
                "Client names cannot be longer than {BYTES_MAX} bytes, got {}",
                name.len()
            )));
        }
        if !name.iter().all(u8::is_ascii_graphic) {
            return Err(Refusal::invalid(
                "Client names cannot contain spaces, newlines or special characters.",
            ));
        }
        name.clone_into(&mut self.name);
        Ok(())
    }
}

/// `SELECT`: there is one database, and it has no number for others.
pub(super) fn select(args: Args<'_>, out: &mut Replies<'_>) -> Result<(), Refusal> {
    match args.get(1).and_then(whole::<i64>) {
        Some(0) => out.ok(),
        Some(_) => return Err(Refusal::invalid("DB index is out of range; the only one is 0")),
        None => return Err(Refusal::invalid("value is not an integer or out of range")),
    }
    Ok(())
}

fn syntax(command: &str, word: &[u8]) -> Refusal {
    Refusal::invalid(format_args!("Syntax error in {command} option '{}'", shown(word)))
}
