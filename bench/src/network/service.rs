//! Who is measured: what is asked of them, and how they are started.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::load::Wire;
use crate::running::Start;

/// What is compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Case {
    /// Envoy's rate limit service over gRPC, or what the peer has in its place.
    Rls,
    /// A check over HTTP.
    Http,
}

/// One of them in one case.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    /// In the table.
    pub(crate) name: &'static str,
    pub(crate) case: Case,
    pub(crate) wire: Wire,
    pub(crate) start: Start,
}

pub(crate) const STUB: &str = "stub";
pub(crate) const SLUICEGATE: &str = "sluicegate";
pub(crate) const OTHER: &str = "sluicegate, other build";
pub(crate) const TONIC: &str = "tonic";
pub(crate) const THROTTLECRAB: &str = "throttlecrab-server";
pub(crate) const HELLO: &str = "axum hello";

/// The programs that are measured and are not this one.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) sluicegate: PathBuf,
    pub(crate) other: Option<PathBuf>,
    pub(crate) throttlecrab: Option<PathBuf>,
    /// The rules that ours are given.
    pub(crate) rules: PathBuf,
}

/// Everybody, in the order of the table.
pub(crate) fn all(programs: &Programs) -> Vec<Contestant> {
    let ours = |path: &Path| Start::Sluicegate { path: path.into(), rules: programs.rules.clone() };
    let mut all = Vec::new();
    let mut add = |name, case, wire, start| all.push(Contestant { name, case, wire, start });
    add(STUB, Case::Rls, Wire::Rls, Start::Own("stub"));
    add(SLUICEGATE, Case::Rls, Wire::Rls, ours(&programs.sluicegate));
    if let Some(other) = &programs.other {
        add(OTHER, Case::Rls, Wire::Rls, ours(other));
    }
    add(TONIC, Case::Rls, Wire::Rls, Start::Own("tonic"));
    if let Some(path) = &programs.throttlecrab {
        add(THROTTLECRAB, Case::Rls, Wire::Throttle, Start::Throttlecrab { path: path.clone() });
    }
    add(HELLO, Case::Http, Wire::Hello, Start::Own("hello"));
    add(SLUICEGATE, Case::Http, Wire::Check, ours(&programs.sluicegate));
    if let Some(other) = &programs.other {
        add(OTHER, Case::Http, Wire::Check, ours(other));
    }
    if let Some(path) = &programs.throttlecrab {
        let start = Start::Throttlecrab { path: path.clone() };
        add(THROTTLECRAB, Case::Http, Wire::HttpThrottle, start);
    }
    all
}

// === impl Case ===

impl Case {
    pub(crate) const ALL: [Self; 2] = [Self::Rls, Self::Http];

    /// On the command line and in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rls => "rls",
            Self::Http => "http",
        }
    }

    /// How many connections, and how many calls at once on each.
    pub(crate) const fn connections(self) -> (usize, usize) {
        match self {
            Self::Rls => (8, 32),
            Self::Http => (32, 1),
        }
    }
}
