//! The same scenario many times: with several seeds, or with several values of a variable.

use std::fmt;
use std::str::FromStr;

use crate::figures::Figures;
use crate::scenario::{LevelPlan, Scenario};
use crate::{Outcome, run};

/// One run of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFigures {
    /// Seed.
    pub seed: u64,
    /// Value of the swept variable.
    pub value: u64,
    /// Its figures.
    pub figures: Figures,
    /// Violations, as text.
    pub violations: Vec<String>,
}

/// A variable of a sweep, and its values.
///
/// ```
/// use sluicegate_sim::spread::{Sweep, SweepVariable};
///
/// let sweep: Sweep = "nodes=1,2,4".parse()?;
/// assert_eq!((sweep.variable, sweep.values), (SweepVariable::Nodes, vec![1, 2, 4]));
/// assert_eq!("skew=0ms,50ms".parse::<Sweep>()?.values, [0, 50]);
/// assert!("node=1".parse::<Sweep>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// The variable.
    pub variable: SweepVariable,
    /// Its values, in its unit.
    pub values: Vec<u64>,
}

/// What a sweep varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepVariable {
    /// Number of nodes.
    Nodes,
    /// Clocks of the nodes are apart by up to this, in milliseconds.
    Skew,
    /// Lost calls and lost replies, in percent.
    Loss,
    /// Delay of the network in each direction, in milliseconds.
    Delay,
    /// Sync interval of eventual rules, in milliseconds.
    SyncInterval,
    /// Call timeout in milliseconds.
    Timeout,
}

const VARIABLES: [(&str, SweepVariable, &str); 6] = [
    ("nodes", SweepVariable::Nodes, ""),
    ("skew", SweepVariable::Skew, "ms"),
    ("loss", SweepVariable::Loss, "%"),
    ("delay", SweepVariable::Delay, "ms"),
    ("sync_interval", SweepVariable::SyncInterval, "ms"),
    ("timeout", SweepVariable::Timeout, "ms"),
];
/// The most values of a sweep.
const VALUES_MAX: usize = 64;
const NODES_MAX: u64 = 64;

impl SweepVariable {
    /// Its name and unit.
    #[must_use]
    pub fn name(self) -> (&'static str, &'static str) {
        let known = VARIABLES.into_iter().find(|(_, variable, _)| *variable == self);
        known.map_or(("", ""), |(name, _, unit)| (name, unit))
    }

    /// The scenario with this value.
    ///
    /// # Errors
    /// When the scenario does not have the variable.
    pub fn apply(self, scenario: &Scenario, value: u64) -> Result<Scenario, String> {
        let mut scenario = scenario.clone();
        let conditions = &mut scenario.fault_plan.conditions;
        match self {
            Self::Nodes => {
                let nodes = usize::try_from(value).unwrap_or(usize::MAX);
                if !scenario.fault_plan.faults.is_empty()
                    || scenario.streams.iter().any(|stream| !stream.nodes.is_empty())
                {
                    return Err("`--sweep nodes` needs a scenario without events, whose streams \
                                call all nodes; remove `events` and `traffic[].nodes`"
                        .to_owned());
                }
                let clock = scenario.clocks.first().copied().unwrap_or((0, 0));
                scenario.clocks.resize(nodes, clock);
                scenario.initial = nodes;
            }
            Self::Skew => {
                let count = scenario.clocks.len().max(2) as i64 - 1;
                let apart = i64::try_from(value * 1_000).unwrap_or(i64::MAX);
                for (index, clock) in (0_i64..).zip(&mut scenario.clocks) {
                    clock.0 = apart * index / count - apart / 2;
                }
            }
            Self::Loss => (conditions.lost, conditions.unanswered) = (value * 5, value * 5),
            Self::Delay => {
                let jitter = conditions.delay_ms - conditions.least_ms;
                (conditions.least_ms, conditions.delay_ms) = (value, value + jitter);
            }
            Self::Timeout => scenario.store.timeout_ms = value.max(1),
            Self::SyncInterval => set_sync_interval(&mut scenario, value.max(1))?,
        }
        Ok(scenario)
    }
}

fn set_sync_interval(scenario: &mut Scenario, ms: u64) -> Result<(), String> {
    const KEY: &str = "sync_interval:";
    if !scenario.revisions.iter().any(|text| text.contains(KEY)) {
        return Err("`--sweep sync_interval` needs a rule with `consistency: { eventual: { \
                    sync_interval: 50ms } }`; add it to a rule"
            .to_owned());
    }
    for text in &mut scenario.revisions {
        let mut parts = text.split(KEY);
        let mut changed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let value = part.trim_start();
            let end = value.find(|c: char| !c.is_alphanumeric()).unwrap_or(value.len());
            changed.push_str(&format!("{KEY} {ms}ms{}", &value[end..]));
        }
        *text = changed;
    }
    for rule in &mut scenario.rules {
        if let LevelPlan::Eventual { sync_ms } = &mut rule.level {
            *sync_ms = ms;
        }
    }
    Ok(())
}

/// Runs a scenario with several seeds.
///
/// # Errors
/// When it cannot be set up.
pub fn seeds(
    scenario: &Scenario,
    from: u64,
    count: u64,
    mut on_run: impl FnMut(u64),
) -> anyhow::Result<Vec<RunFigures>> {
    let mut runs = Vec::new();
    for seed in from..from.saturating_add(count) {
        runs.push(one(Scenario { seed, ..scenario.clone() }, seed)?);
        on_run(runs.len() as u64);
    }
    Ok(runs)
}

/// Runs a scenario with each value of a sweep.
///
/// # Errors
/// When a value does not fit the scenario, or it cannot be set up.
pub fn sweep(
    scenario: &Scenario,
    sweep: &Sweep,
    mut on_run: impl FnMut(u64),
) -> anyhow::Result<Vec<RunFigures>> {
    let mut runs = Vec::new();
    for value in &sweep.values {
        let scenario = sweep.variable.apply(scenario, *value).map_err(anyhow::Error::msg)?;
        runs.push(one(scenario, *value)?);
        on_run(runs.len() as u64);
    }
    Ok(runs)
}

fn one(scenario: Scenario, value: u64) -> anyhow::Result<RunFigures> {
    let seed = scenario.seed;
    let outcome: Outcome = run(scenario, false)?;
    let violations = outcome.violations.iter().map(ToString::to_string).collect();
    Ok(RunFigures { seed, value, figures: Figures::of(&outcome), violations })
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || VARIABLES.map(|(name, ..)| name).join("`, `");
        let Some((name, values)) = text.split_once('=') else {
            return Err(format!(
                "must be a variable and its values, got `{text}`; write it like \
                                `nodes=1,2,4`"
            ));
        };
        let Some((_, variable, unit)) = VARIABLES.into_iter().find(|(one, ..)| *one == name) else {
            return Err(format!("unknown variable `{name}`; the variables are `{}`", known()));
        };
        let values = values.split(',').map(|value| {
            let number = value.trim().strip_suffix(unit).unwrap_or(value.trim());
            let number = number.parse::<u64>().ok().filter(|number| match variable {
                SweepVariable::Nodes => (1..=NODES_MAX).contains(number),
                SweepVariable::Loss => *number <= 100,
                _ => *number <= 3_600_000,
            });
            number.ok_or_else(|| {
                format!("must be whole numbers in range, got `{value}`; write them like `{name}=1{unit},2{unit}`")
            })
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        if values.len() > VALUES_MAX {
            return Err(format!("has {} values; write at most {VALUES_MAX}", values.len()));
        }
        Ok(Self { variable, values })
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = self.variable.name();
        let values: Vec<String> =
            self.values.iter().map(|value| format!("{value}{unit}")).collect();
        write!(f, "{name}={}", values.join(","))
    }
}
