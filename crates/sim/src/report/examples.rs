//! Ready scenarios, shown by `simulate --example`.

/// A ready scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScenarioExample {
    /// Its name.
    pub name: &'static str,
    /// Its YAML.
    pub text: &'static str,
}

/// All of them.
pub const EXAMPLES: [ScenarioExample; 6] = [
    ScenarioExample { name: "store-outage", text: include_str!("examples/store-outage.yaml") },
    ScenarioExample { name: "leased", text: include_str!("examples/leased.yaml") },
    ScenarioExample { name: "eventual-skew", text: include_str!("examples/eventual-skew.yaml") },
    ScenarioExample { name: "failover", text: include_str!("examples/failover.yaml") },
    ScenarioExample { name: "cluster", text: include_str!("examples/cluster.yaml") },
    ScenarioExample { name: "rollout", text: include_str!("examples/rollout.yaml") },
];

impl ScenarioExample {
    /// The example of a name.
    ///
    /// ```
    /// use sluicegate_sim::report::ScenarioExample;
    ///
    /// let failover = ScenarioExample::of("failover").unwrap();
    /// assert!(failover.text.contains("lost: 300ms"));
    /// assert_eq!(ScenarioExample::of("nothing"), None);
    /// ```
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        EXAMPLES.into_iter().find(|example| example.name == name)
    }

    /// What it shows: its first line.
    #[must_use]
    pub fn title(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches("# ")
    }
}

#[cfg(test)]
mod tests {
    use crate::figures::Figures;

    use super::*;

    /// Every example runs without a violation, and its bound holds.
    #[test]
    fn examples_hold_their_bounds() {
        for ScenarioExample { name, text } in EXAMPLES {
            let scenario = crate::read(name, text, "".as_ref(), 1).unwrap();
            let outcome = crate::run(scenario, false).unwrap();
            let figures = Figures::of(&outcome);
            assert_eq!(outcome.violations, [], "{name}");
            assert!(figures.requests > 500, "{name}: {figures:?}");
            for rule in &figures.rules {
                let bound = rule.bound.unwrap_or(u64::MAX);
                assert!(rule.over <= bound, "{name}: {rule:?}");
            }
        }
    }
}
