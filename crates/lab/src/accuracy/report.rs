//! Figures as a table of tab-separated values, which is published beside the plot made from it.

use std::fmt::Write as _;

use super::Figures;

const HEADER: &str = "# method\trequests\tadmitted\twrongly admitted\twrongly denied\t\
                      mean rate error\tmax rate error\tpeak";

/// Figures as a table, one method per line.
#[must_use]
pub fn figures_table(figures: &[Figures]) -> String {
    let mut text = format!("{HEADER}\n");
    for one in figures {
        let Figures { name, requests, admitted, wrongly_admitted, wrongly_denied, .. } = one;
        let (mean, max, peak) = (one.error_mean(), one.error_max, one.peak);
        let _ = writeln!(
            text,
            "{name}\t{requests}\t{admitted}\t{wrongly_admitted}\t{wrongly_denied}\t{mean:.7}\t\
             {max:.7}\t{peak:.4}"
        );
    }
    text
}

/// Parses a table; lines that begin with `#` are comments.
///
/// ```
/// use sluicegate_lab::accuracy::{Figures, figures_table, parse_figures};
///
/// let one = Figures { name: "a".to_owned(), requests: 4, error_sum: 1.0, ..Figures::default() };
/// assert_eq!(parse_figures(&figures_table(&[one.clone()])), Ok(vec![one]));
/// ```
///
/// # Errors
/// The invalid line.
pub fn parse_figures(text: &str) -> Result<Vec<Figures>, String> {
    let lines = (1..).zip(text.lines());
    let rows = lines.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
    rows.map(|(number, line)| {
        parse_line(line).ok_or_else(|| {
            format!(
                "line {number}: must be a name and 7 numbers with tabs between them, got `{line}`"
            )
        })
    })
    .collect()
}

fn parse_line(line: &str) -> Option<Figures> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, counts @ .., mean, max, peak] = fields.as_slice() else { return None };
    let counts: Vec<u64> = counts.iter().map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let [requests, admitted, wrongly_admitted, wrongly_denied] = *counts else { return None };
    let number = |field: &str| {
        let number: f64 = field.parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number)
    };
    Some(Figures {
        name: (*name).to_owned(),
        requests,
        admitted,
        wrongly_admitted,
        wrongly_denied,
        error_sum: number(mean)? * requests as f64,
        error_max: number(max)?,
        peak: number(peak)?,
    })
}
