//! Limit overrides on the command line.

use sluicegate_rules::request::Override;
use sluicegate_rules::unit::Unit;

/// Parses a limit override: `5/minute`.
pub(crate) fn limit(text: &str) -> Result<Override, String> {
    let units = || Unit::ALL.map(Unit::name).join("`, `");
    let read = |text: &str| {
        let (number, unit) = text.split_once('/')?;
        let requests_per_unit = number.trim().parse().ok()?;
        Some(Override { requests_per_unit, unit: Unit::of(unit.trim())? })
    };
    read(text).ok_or_else(|| {
        format!(
            "must be a number of at most 32 bits per unit, got `{text}`; write it like `5/minute`, \
             with one of `{}`",
            units()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_per_unit() {
        let five = Override { requests_per_unit: 5, unit: Unit::Minute };
        assert_eq!(limit("5/minute"), Ok(five));
        assert_eq!(limit("5 / MINUTE"), Ok(five));
        for text in ["5", "5/fortnight", "-1/minute", "4294967296/minute", "5/m"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
