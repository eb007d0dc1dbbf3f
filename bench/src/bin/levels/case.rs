//! What is measured.

use std::fmt;

/// A level, with so many services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) level: Level,
    pub(crate) nodes: u32,
}

/// How a rule is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Strict,
    Leased,
    /// And one of the services is killed while it holds a lease.
    LeasedKilled,
    /// With this interval, in milliseconds.
    Eventual(u32),
}

/// Every level with every number of services.
pub(crate) fn all(nodes: &[u32]) -> impl Iterator<Item = Case> {
    nodes.iter().flat_map(|&nodes| Level::ALL.map(|level| Case { level, nodes }))
}

// === impl Case ===

impl Case {
    /// One rule with one limit, in a window that no reading sees the end of.
    pub(crate) fn rules(self, limit: u64) -> String {
        let consistency = self.level.consistency();
        format!(
            "domain: bench\ndescriptors:\n  - key: hot\n    consistency: {consistency}\n    on_store_failure: error\n    \
             limits: {{ algorithm: fixed_window, rate: {limit}/year }}\n"
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} nodes", self.level.name(), self.nodes)
    }
}

// === impl Level ===

impl Level {
    pub(crate) const ALL: [Self; 6] = [
        Self::Strict,
        Self::Leased,
        Self::LeasedKilled,
        Self::Eventual(20),
        Self::Eventual(100),
        Self::Eventual(500),
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Strict => "strict".to_owned(),
            Self::Leased => "leased".to_owned(),
            Self::LeasedKilled => "leased, one killed".to_owned(),
            Self::Eventual(ms) => format!("eventual {ms} ms"),
        }
    }

    /// As it is written in a rule.
    fn consistency(self) -> String {
        match self {
            Self::Strict => "strict".to_owned(),
            Self::Leased | Self::LeasedKilled => "leased".to_owned(),
            Self::Eventual(ms) => format!("{{ eventual: {{ sync_interval: {ms}ms }} }}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_are_valid() {
        for case in all(&[2]) {
            assert!(sluicegate::rules_of(&case.rules(1_000)).is_ok(), "{case}");
        }
    }
}
