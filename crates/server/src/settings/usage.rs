//! Settings of usage records.

use std::time::Duration;

use super::vars::Reader;
use crate::usage::UsageOptions;

/// Bounds of the number of identities.
const IDENTITIES: (u64, u64) = (100_000, 10_000_000);

/// Reads them; none without a directory.
pub(super) fn read(read: &mut Reader<'_>) -> Option<UsageOptions> {
    const DIRECTORY: &str = "SLUICEGATE_USAGE";
    const RULES: &str = "SLUICEGATE_USAGE_RULES";
    let rules = read.text(RULES).unwrap_or_default().split(',').map(str::trim);
    let rules: Vec<String> = rules.filter(|one| !one.is_empty()).map(str::to_owned).collect();
    let every = read.duration("SLUICEGATE_USAGE_EVERY").unwrap_or(Duration::from_secs(60));
    let identities = read.number("SLUICEGATE_USAGE_MAX_IDENTITIES", 0, IDENTITIES.1);
    let retention_days = read.number("SLUICEGATE_USAGE_RETENTION_DAYS", 0, 36_500).unwrap_or(0);
    let Some(directory) = read.path(DIRECTORY) else {
        if !rules.is_empty() {
            let source = read.source(RULES);
            read.errors.push(format!(
                "{source}: has no effect without a directory: set SLUICEGATE_USAGE too"
            ));
        }
        return None;
    };
    if rules.is_empty() {
        let source = read.source(DIRECTORY);
        read.errors.push(format!(
            "{source}: no rule is selected: set SLUICEGATE_USAGE_RULES to domains and ids of rules, \
             such as `shop,llm/team`, or to `*` for all"
        ));
    }
    if every.is_zero() {
        read.errors.push("SLUICEGATE_USAGE_EVERY: must be more than 0, such as `1m`".to_owned());
    }
    let identities_max = identities.unwrap_or(IDENTITIES.0) as usize;
    Some(UsageOptions { directory, rules, every, identities_max, retention_days })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Vars;

    fn of(given: &[(&'static str, &'static str)]) -> Result<Option<UsageOptions>, String> {
        let vars = Vars::new(given.to_vec());
        let mut reader = Reader::new(&vars);
        let options = read(&mut reader);
        if reader.errors.is_empty() { Ok(options) } else { Err(reader.errors.join("\n")) }
    }

    #[test]
    fn a_directory_and_rules_belong_together() {
        assert_eq!(of(&[]), Ok(None));
        let (directory, rules) =
            (("SLUICEGATE_USAGE", "/u"), ("SLUICEGATE_USAGE_RULES", "a, b/*,"));
        let options = of(&[directory, rules]).unwrap().unwrap();
        assert_eq!(options.rules, ["a", "b/*"]);
        assert_eq!((options.every.as_secs(), options.identities_max), (60, 100_000));
        assert!(of(&[directory]).unwrap_err().contains("no rule is selected"));
        assert!(of(&[rules]).unwrap_err().contains("set SLUICEGATE_USAGE too"));
        let never = ("SLUICEGATE_USAGE_EVERY", "0s");
        assert!(of(&[directory, rules, never]).unwrap_err().contains("must be more than 0"));
    }
}
