//! The YAML of a mode: how strictly a rule is enforced.
//!
//! ```yaml
//! mode: hard          # never above the limit
//! mode: shadow        # judged and counted, never denied
//! mode: { soft: 10% } # up to a tenth above is admitted, and marked
//! mode: { elastic: { up_to: 2x, below: 70%, above: 85% } }
//! ```

use sluicegate_core::mode::{ELASTIC_FACTOR_MAX, GateLevels, Mode, SOFT_PERCENT_MAX};

use crate::fields::{self, Field, Fields, Value, unknown};
use crate::problem::{Problems, Report, Reported, quoted};
use crate::suggest;
use crate::units::{self, UnitError, show_factor};
use crate::yaml::Content;

/// Reads a mode.
///
/// ```
/// use sluicegate_config::mode::mode;
/// use sluicegate_core::mode::Mode;
///
/// assert_eq!(mode("--mode", "shadow"), Ok(Mode::Shadow));
/// assert_eq!(mode("--mode", "soft: 10%"), Ok(Mode::Soft { percent: 10 }));
/// assert!(mode("--mode", "soft").is_err());
/// ```
///
/// # Errors
/// All problems of the text.
pub fn mode(source_name: &str, text: &str) -> Result<Mode, Problems> {
    let mut report = Report::new(source_name);
    let read = fields::document(text, "hard", &mut report)
        .and_then(|root| mode_of(&Value::root(&root), &mut report));
    report.finish(read)
}

/// Reads the mode of a value.
pub(crate) fn mode_of(value: &Value<'_, '_>, report: &mut Report) -> Result<Mode, Reported> {
    match &value.node.content {
        Content::Scalar { text, .. } if !value.node.is_null() => match &**text {
            "hard" => Ok(Mode::Hard),
            "shadow" => Ok(Mode::Shadow),
            "soft" => {
                let remedy = format!("`soft: {SOFT_EXAMPLE}`");
                Err(incomplete(value, "a percentage", &remedy, report))
            }
            "elastic" => {
                let remedy = format!("`elastic: {ELASTIC_EXAMPLE}`");
                Err(incomplete(value, "its levels", &remedy, report))
            }
            other => Err(value.refuse(report, unknown_mode(&quoted(other), other))),
        },
        Content::Mapping(_) => {
            let fields = value.fields("a mode", "{ soft: 10% }", report)?;
            mode_with_numbers(value, fields, report)
        }
        _ => Err(value.refuse(report, unknown_mode(&value.node.described(), ""))),
    }
}

// === modes that are one word ===

fn incomplete(value: &Value<'_, '_>, lacks: &str, remedy: &str, report: &mut Report) -> Reported {
    let got = value.node.described();
    value.refuse(report, format!("needs {lacks}, got {got}; write it like {remedy}"))
}

fn unknown_mode(got: &str, word: &str) -> String {
    let hint = suggest::hint(word, MODES);
    format!(
        "unknown mode, got {got}; {hint}write `hard`, `shadow`, `soft: {SOFT_EXAMPLE}` or \
         `elastic: {ELASTIC_EXAMPLE}`"
    )
}

// === modes with numbers ===

const MODES: [&str; 4] = ["hard", "shadow", "soft", "elastic"];
const SOFT_EXAMPLE: &str = "10%";
const ELASTIC_EXAMPLE: &str = "{ up_to: 2x, below: 70%, above: 85% }";

pub(crate) const SOFT: Field<u64> =
    Field { name: "soft", example: SOFT_EXAMPLE, read: soft_percent };
pub(crate) const ELASTIC: &str = "elastic";
pub(crate) const UP_TO: Field<u64> = Field { name: "up_to", example: "2x", read: up_to };
pub(crate) const BELOW: Field<u64> = Field { name: "below", example: "70%", read: units::percent };
pub(crate) const ABOVE: Field<u64> = Field { name: "above", example: "85%", read: units::percent };

fn mode_with_numbers(
    value: &Value<'_, '_>,
    mut fields: Fields<'_>,
    report: &mut Report,
) -> Result<Mode, Reported> {
    let soft = fields.optional(&SOFT, report);
    let elastic = match fields.filled(ELASTIC, ELASTIC_EXAMPLE, report) {
        Ok(Some(value)) => elastic(&value, report).map(Some),
        Ok(None) => Ok(None),
        Err(reported) => Err(reported),
    };
    let no_unknown = fields.finish(report, |key| match key {
        "hard" | "shadow" => format!("takes no value, got it as a field; write just `{key}`"),
        _ => unknown_mode(&quoted(key), key),
    });
    match (soft?, elastic?) {
        (Some(_), Some(_)) => {
            let message = "a rule has one mode, got `soft` and `elastic`; keep one of them";
            Err(value.refuse(report, message.to_owned()))
        }
        (Some(percent), None) => Ok(Mode::Soft { percent }),
        (None, Some(elastic)) => Ok(elastic),
        (None, None) => match no_unknown {
            Err(reported) => Err(reported),
            Ok(()) => Err(value.refuse(report, unknown_mode("an empty mapping", ""))),
        },
    }
}

fn elastic(value: &Value<'_, '_>, report: &mut Report) -> Result<Mode, Reported> {
    let mut fields = value.fields("`elastic`", ELASTIC_EXAMPLE, report)?;
    let up_to = fields.required(&UP_TO, report);
    let below = fields.required(&BELOW, report);
    let above = fields.required(&ABOVE, report);
    let gate = match (below, above) {
        (Ok(below), Ok(above)) => gate(below, above, &fields, report),
        (Err(reported), _) | (_, Err(reported)) => Err(reported),
    };
    let known = [UP_TO.name, BELOW.name, ABOVE.name];
    fields.finish(report, |key| unknown(key, &known))?;
    let (up_to, gate) = (up_to?, gate?);
    Ok(Mode::Elastic { up_to, gate })
}

fn gate(
    below: u64,
    above: u64,
    fields: &Fields<'_>,
    report: &mut Report,
) -> Result<GateLevels, Reported> {
    // A percentage is at most 2^53, so its thousandths fit.
    let thousandths = |percent: u64| percent.saturating_mul(10);
    GateLevels::new(thousandths(below), thousandths(above)).map_err(|_| {
        let (got, above) = (fields.written(BELOW.name), fields.written(ABOVE.name));
        let message = format!(
            "must not exceed `above`, which is {above}, got {got}; it opens below the one and \
             closes above the other"
        );
        fields.refuse(BELOW.name, report, message)
    })
}

// === numbers within core's bounds ===

fn soft_percent(text: &str) -> Result<u64, UnitError> {
    let percent = units::percent(text)?;
    if (1..=SOFT_PERCENT_MAX).contains(&percent) {
        return Ok(percent);
    }
    let got = quoted(text);
    Err(UnitError::new(format!(
        "must be from `1%` to `{SOFT_PERCENT_MAX}%`, got {got}; for nothing above the limit write \
         `hard`"
    )))
}

fn up_to(text: &str) -> Result<u64, UnitError> {
    let factor = units::factor(text)?;
    if (1_000..=ELASTIC_FACTOR_MAX).contains(&factor) {
        return Ok(factor);
    }
    let (max, got) = (show_factor(ELASTIC_FACTOR_MAX), quoted(text));
    Err(UnitError::new(format!(
        "must be from `1x` to `{max}x`, got {got}; for no more than the limit write `hard`"
    )))
}

#[cfg(test)]
mod tests;
