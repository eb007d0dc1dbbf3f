//! Line charts as SVG, with axes, units and a legend. Colours are classes of the style sheet.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

/// A series of a chart.
#[derive(Debug, Clone)]
pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    /// Class of its line, which has a dash pattern of its own beside its colour.
    pub(super) class: &'static str,
    /// Values, the oldest first; `None` where nothing was observed.
    pub(super) values: Vec<Option<f64>>,
}

/// A chart of series over time; all have the same number of values.
#[derive(Debug, Clone)]
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    /// Unit of the values, such as `requests/s`.
    pub(super) unit: &'a str,
    pub(super) series: Vec<Series<'a>>,
    /// Seconds of one value.
    pub(super) step_s: u64,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;
/// Lines of the grid.
const LINES: u32 = 4;

impl Chart<'_> {
    /// The figure.
    pub(super) fn render(&self) -> Markup {
        let count = self.series.iter().map(|one| one.values.len()).max().unwrap_or(0);
        let seen = self.series.iter().flat_map(|one| one.values.iter().flatten().copied());
        let top = ceiling(seen.fold(0.0, f64::max));
        html! {
            figure.chart {
                figcaption { (self.title) " " span.unit { "(" (self.unit) ")" } }
                ul.legend {
                    @for one in &self.series {
                        li {
                            span.key.(one.class) aria-hidden="true" {}
                            (one.name) ": "
                            @match one.values.last().copied().flatten() {
                                Some(value) => { strong { (number(value)) } }
                                None => { "no value" }
                            }
                        }
                    }
                }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.description(count)) {
                    (PreEscaped(self.body(count, top)))
                }
            }
        }
    }

    /// The text for screen readers.
    fn description(&self, count: usize) -> String {
        let mut text =
            format!("{}, {}, the last {}.", self.title, self.unit, ago(count as u64 * self.step_s));
        for one in &self.series {
            let seen: Vec<f64> = one.values.iter().flatten().copied().collect();
            let last = one.values.last().copied().flatten();
            let most = seen.iter().copied().fold(0.0, f64::max);
            let _ = match last {
                Some(last) => {
                    write!(text, " {}: now {}, at most {}.", one.name, number(last), number(most))
                }
                None => write!(text, " {}: no value.", one.name),
            };
        }
        text
    }

    fn body(&self, count: usize, top: f64) -> String {
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let x = |index: usize| LEFT + width * index as f64 / (count.max(2) - 1) as f64;
        let y = |value: f64| TOP + height * (1.0 - value / top);
        let mut out = String::new();
        for line in 0..=LINES {
            let value = top * f64::from(line) / f64::from(LINES);
            let at = y(value);
            let (right, text_x, text_y) = (WIDTH - RIGHT, LEFT - 8.0, at + 4.0);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{text_x}\" y=\"{text_y:.1}\" text-anchor=\"end\">{}</text>",
                number(value)
            );
        }
        let mut labelled = None;
        for quarter in 0..=4_u64 {
            let index = (count.saturating_sub(1)) as u64 * quarter / 4;
            if labelled.replace(index) == Some(index) {
                continue;
            }
            let back = (count.saturating_sub(1) as u64 - index) * self.step_s;
            let anchor = ["start", "middle", "middle", "middle", "end"][quarter as usize];
            let label = if back == 0 { "now".to_owned() } else { format!("−{}", clock(back)) };
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{label}</text>",
                x(index as usize),
                HEIGHT - 8.0
            );
        }
        for one in &self.series {
            let mut path = String::new();
            let mut is_drawing = false;
            for (index, value) in one.values.iter().enumerate() {
                let Some(value) = value else {
                    is_drawing = false;
                    continue;
                };
                let command = if is_drawing { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {:.1}", x(index), y(*value));
                is_drawing = true;
            }
            let _ = write!(out, "<path class=\"line {}\" d=\"{path}\"/>", one.class);
        }
        out
    }
}

/// The top of an axis: 1, 2 or 5 times a power of ten, at least 1.
fn ceiling(most: f64) -> f64 {
    let most = if most.is_finite() { most.max(1.0) } else { 1.0 };
    let power = 10_f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= most).unwrap_or(10.0 * power)
}

/// A value with three significant digits and a suffix.
pub(super) fn number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        size if size >= 999_500_000.0 => (value / 1e9, "G"),
        size if size >= 999_500.0 => (value / 1e6, "M"),
        size if size >= 9_999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 99.95 || scaled.fract() == 0.0 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.digits$}{suffix}")
}

/// A time span of an axis: minutes and seconds, or hours and minutes.
fn clock(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h", seconds / 3_600, seconds / 60 % 60),
    }
}

/// A time span in its largest unit.
pub(super) fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_above_its_values() {
        for (most, expected) in [
            (0.0, 1.0),
            (0.3, 1.0),
            (1.0, 1.0),
            (1.2, 2.0),
            (49.0, 50.0),
            (51.0, 100.0),
            (2_001.0, 5_000.0),
        ] {
            assert_eq!(ceiling(most), expected, "{most}");
        }
        assert_eq!(ceiling(f64::NAN), 1.0);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, expected) in [
            (0.0, "0"),
            (0.256, "0.26"),
            (12.34, "12.3"),
            (999.0, "999"),
            (9_999.0, "9999"),
            (10_400.0, "10.4k"),
            (1_000_000.0, "1M"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn a_gap_is_not_drawn_and_axes_are_labelled() {
        let series =
            Series { name: "allowed", class: "allowed", values: vec![Some(1.0), None, Some(3.0)] };
        let chart =
            Chart { title: "Requests", unit: "requests/s", series: vec![series], step_s: 60 };
        let text = chart.render().into_string();
        assert!(text.contains("d=\"M64.0 156.0M708.0 84.0\""), "{text}");
        assert!(text.contains(">now</text>") && text.contains(">−2:00 min</text>"), "{text}");
        assert!(text.contains("allowed: now 3, at most 3."), "{text}");
    }

    #[test]
    fn a_chart_without_values_has_axes() {
        let series = Series { name: "allowed", class: "allowed", values: Vec::new() };
        let chart =
            Chart { title: "Requests", unit: "requests/s", series: vec![series], step_s: 1 };
        assert!(chart.render().into_string().contains("no value"));
    }
}
