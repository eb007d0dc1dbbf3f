//! Replies of a server, classified by the caller's next action.

use redis::{ServerError, Value};

use super::address::Host;

#[derive(Debug)]
pub(super) enum ServerReply {
    /// The command was executed.
    Value(Value),
    /// The script is not loaded.
    NoScript,
    /// The slot has moved to another node.
    Moved(Redirect),
    /// The slot is migrating, and this key has moved already.
    Ask(Redirect),
    /// The slot is migrating, and some of the keys have moved.
    TryAgain(Box<str>),
    /// The server is a replica.
    ReadOnly(Box<str>),
    /// The server cannot execute anything for now.
    NotReady(Box<str>),
    /// The Cluster has no owner for some slots.
    ClusterDown(Box<str>),
    /// Authentication or permission failed.
    AccessDenied(Box<str>),
    /// Any other error.
    Refused(Box<str>),
}

/// Target of a `MOVED` or `ASK` redirect.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) slot: u16,
    /// An empty name means the replying node.
    pub(super) host: Host,
}

impl From<Value> for ServerReply {
    fn from(value: Value) -> Self {
        let Value::ServerError(error) = value else { return Self::Value(value) };
        let text = error_text(&error);
        match error.code() {
            "NOSCRIPT" => Self::NoScript,
            "MOVED" | "ASK" => match error.details().and_then(Redirect::parse) {
                Some(to) if error.code() == "ASK" => Self::Ask(to),
                Some(to) => Self::Moved(to),
                None => Self::Refused(text),
            },
            "TRYAGAIN" => Self::TryAgain(text),
            "READONLY" => Self::ReadOnly(text),
            "LOADING" | "BUSY" | "MASTERDOWN" => Self::NotReady(text),
            "CLUSTERDOWN" => Self::ClusterDown(text),
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Self::AccessDenied(text),
            // Before version 7, the error of a command within a script is part of a longer text.
            "ERR" if text.contains("-READONLY ") => Self::ReadOnly(text),
            _ => Self::Refused(text),
        }
    }
}

impl Redirect {
    /// Parses `3999 127.0.0.1:6381`; further words follow if a script was redirected.
    fn parse(details: &str) -> Option<Self> {
        let (slot, host) = details.split_once(' ')?;
        let (name, port) = host.split(' ').next()?.rsplit_once(':')?;
        let name = name.trim_start_matches('[').trim_end_matches(']');
        Some(Self { slot: slot.parse().ok()?, host: Host::new(name, port.parse().ok()?) })
    }
}

pub(super) fn error_text(error: &ServerError) -> Box<str> {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()).into(),
        None => error.code().into(),
    }
}

/// A string of any RESP type.
pub(super) fn as_str(value: &Value) -> Option<&str> {
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
    fn redirects_are_parsed() {
        let to = |slot, name: &str, port| Some(Redirect { slot, host: Host::new(name, port) });
        assert_eq!(Redirect::parse("3999 127.0.0.1:6381"), to(3999, "127.0.0.1", 6381));
        assert_eq!(Redirect::parse("3999 :6381"), to(3999, "", 6381));
        assert_eq!(Redirect::parse("1 ::1:6381"), to(1, "::1", 6381));
        for broken in ["", "3999", "x a:1", "70000 a:1", "1 a:x", "1 a:70000", "1 a"] {
            assert_eq!(Redirect::parse(broken), None, "{broken}");
        }
    }
}
