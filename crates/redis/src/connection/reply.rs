//! What a server says when it does not do what it is asked.

use redis::{ServerError, Value};

use super::address::Host;

/// What a server said.
#[derive(Debug)]
pub(super) enum Said {
    /// It did what it was asked.
    Done(Value),
    /// It does not know the script.
    NoScript,
    /// The slot lies elsewhere.
    Moved(Redirect),
    /// The slot is on its way elsewhere, and this key has left.
    Ask(Redirect),
    /// The slot is on its way elsewhere, and some of the keys have left.
    TryAgain(Box<str>),
    /// It is a replica.
    Replica(Box<str>),
    /// It cannot do anything yet, or for now.
    Unready(Box<str>),
    /// The Cluster has lost a part.
    ClusterDown(Box<str>),
    /// We are not logged in, or may not do this.
    Locked(Box<str>),
    /// Anything else that is wrong.
    Refused(Box<str>),
}

/// Where to go instead.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) slot: u16,
    /// Without a name it is the one that was asked.
    pub(super) host: Host,
}

impl Said {
    pub(super) fn of(value: Value) -> Self {
        match value {
            Value::ServerError(error) => Self::of_error(&error),
            value => Self::Done(value),
        }
    }

    fn of_error(error: &ServerError) -> Self {
        let text = text_of(error);
        match error.code() {
            "NOSCRIPT" => Self::NoScript,
            "MOVED" | "ASK" => match error.details().and_then(Redirect::parse) {
                Some(to) if error.code() == "ASK" => Self::Ask(to),
                Some(to) => Self::Moved(to),
                None => Self::Refused(text),
            },
            "TRYAGAIN" => Self::TryAgain(text),
            "READONLY" => Self::Replica(text),
            "LOADING" | "BUSY" | "MASTERDOWN" => Self::Unready(text),
            "CLUSTERDOWN" => Self::ClusterDown(text),
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Self::Locked(text),
            // Before version 7 what a command inside of a script says is packed into something longer.
            "ERR" if text.contains("-READONLY ") => Self::Replica(text),
            _ => Self::Refused(text),
        }
    }
}

impl Redirect {
    /// `3999 127.0.0.1:6381`.
    fn parse(details: &str) -> Option<Self> {
        let (slot, host) = details.split_once(' ')?;
        // In a script, more words follow.
        let host = host.split(' ').next()?;
        let (name, port) = host.rsplit_once(':')?;
        let name = name.trim_start_matches('[').trim_end_matches(']');
        Some(Self { slot: slot.parse().ok()?, host: Host::new(name, port.parse().ok()?) })
    }
}

/// The server's own words.
pub(super) fn text_of(error: &ServerError) -> Box<str> {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()).into(),
        None => error.code().into(),
    }
}

/// A text of any kind.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        Value::Okay => Some("OK"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_read() {
        let to = |slot, name: &str, port| Some(Redirect { slot, host: Host::new(name, port) });
        assert_eq!(Redirect::parse("3999 127.0.0.1:6381"), to(3999, "127.0.0.1", 6381));
        assert_eq!(Redirect::parse("3999 :6381"), to(3999, "", 6381));
        assert_eq!(Redirect::parse("1 ::1:6381"), to(1, "::1", 6381));
        for broken in ["", "3999", "x a:1", "70000 a:1", "1 a:x", "1 a:70000", "1 a"] {
            assert_eq!(Redirect::parse(broken), None, "{broken}");
        }
    }
}
