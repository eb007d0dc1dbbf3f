//! SVG plot of measured accuracy and latency of the consistency levels.
//!
//! Each level has a row. The left half shows the decision latency, from the median to the 99th
//! percentile. The right half shows the excess above the limit or the unused quota below it, with
//! the guaranteed bound in pale.
//!
//! Input lines have tab-separated fields: level; p50 and p99 in microseconds; excess, its bound,
//! shortfall and its bound in percent of the limit; store calls per decision.

use std::ops::Range;

use sluicegate_plot::plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use sluicegate_plot::plotters::prelude::{
    BindKeyPoints as _, Circle, Color as _, Cross, EmptyElement, IntoLogRange as _, PathElement,
    Rectangle, Text,
};
use sluicegate_plot::plotters::style::text_anchor::{HPos, Pos, VPos};
use sluicegate_plot::{Area, BLUE, Drawn, INK, RED, chart, stroke, style, svg, text, time_label};

/// Measurements of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Label in the plot.
    pub name: String,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile latency in microseconds.
    pub p99_us: f64,
    /// Excess above the limit, in percent of it.
    pub over: f64,
    /// Bound of the excess.
    pub over_bound: f64,
    /// Shortfall below the limit, in percent of it.
    pub short: f64,
    /// Bound of the shortfall.
    pub short_bound: f64,
    /// Store calls per decision.
    pub calls: f64,
}

/// Parses measurements; lines that begin with `#` are comments.
///
/// ```
/// let levels = sluicegate_lab::levels::parse("# comment\nleased\t0.5\t1.5\t0\t0\t0\t5\t0.01\n")?;
/// assert_eq!((levels[0].p99_us, levels[0].short_bound), (1.5, 5.0));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// The invalid line.
pub fn parse(text: &str) -> Result<Vec<Measured>, String> {
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

fn parse_line(line: &str) -> Option<Measured> {
    let mut fields = line.split('\t');
    let name = fields.next()?.to_owned();
    let numbers: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>().ok()?;
    let [p50_us, p99_us, over, over_bound, short, short_bound, calls] = *numbers else {
        return None;
    };
    let is_valid = numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
    is_valid.then_some(Measured {
        name,
        p50_us,
        p99_us,
        over,
        over_bound,
        short,
        short_bound,
        calls,
    })
}

const ROW: u32 = 34;
const LATENCY_WIDTH: u32 = 440;
const NAMES: u32 = 140;
const DOT: i32 = 5;

/// Ticks of the deviation axis, in percent of the limit.
const PERCENTS: [f64; 11] =
    [-400.0, -100.0, -50.0, -20.0, -5.0, 0.0, 5.0, 20.0, 50.0, 100.0, 400.0];

/// Draws the measurements: one row per level, latency on the left and deviation on the right.
///
/// ```
/// use sluicegate_lab::levels::{parse, plot};
///
/// let svg = plot(&parse("strict\t150\t400\t0\t0\t0\t0\t1\n")?)?;
/// assert!(svg.contains("strict"));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// When the plotting library fails.
pub fn plot(levels: &[Measured]) -> Result<String, String> {
    let height = 100 + ROW * levels.len() as u32;
    svg("Decision latency and deviation from the limit", height, |area| {
        let (left, right) = area.split_horizontally(LATENCY_WIDTH);
        latency(levels, &left)?;
        deviation(levels, &right)
    })
}

/// The median, with a line to the 99th percentile, on a logarithmic axis.
fn latency(levels: &[Measured], area: &Area<'_>) -> Drawn {
    let min = levels.iter().map(|level| level.p50_us).fold(1.0, f64::min).max(0.001);
    let max = levels.iter().map(|level| level.p99_us).fold(10.0, f64::max);
    let (min, max) = (min.log10().floor(), max.log10().ceil());
    let decades = (min as i32..=max as i32).map(|decade| 10f64.powi(decade)).collect();
    let (min, max) = (10f64.powf(min), 10f64.powf(max));
    let mut chart = chart(area, NAMES).build_cartesian_2d(
        (min..max).log_scale().with_key_points(decades),
        0.0..levels.len().max(1) as f64,
    )?;
    style(&mut chart.configure_mesh())
        .disable_y_mesh()
        .y_labels(0)
        .x_desc("latency: median to 99th percentile")
        .x_label_formatter(&|us| time_label(*us))
        .draw()?;
    let plot = chart.plotting_area();
    let name = text(&INK).pos(Pos::new(HPos::Right, VPos::Center));
    for (y, level) in rows(levels) {
        let (median, tail) = (level.p50_us.max(min), level.p99_us.max(min));
        plot.draw(&PathElement::new([(median, y), (tail, y)], stroke(BLUE)))?;
        plot.draw(&Circle::new((median, y), DOT, BLUE.filled()))?;
        let label = Text::new(level.name.clone(), (-8, 0), name.clone());
        plot.draw(&(EmptyElement::at((min, y)) + label))?;
    }
    Ok(())
}

/// The excess or the shortfall, and its bound in pale, on a square-root axis.
fn deviation(levels: &[Measured], area: &Area<'_>) -> Drawn {
    let up = levels.iter().map(|level| level.over.max(level.over_bound)).fold(5.0, f64::max);
    let down = levels.iter().map(|level| level.short.max(level.short_bound)).fold(5.0, f64::max);
    let mut chart = chart(area, 0)
        .build_cartesian_2d(SquareRootAxis(-down..up), 0.0..levels.len().max(1) as f64)?;
    style(&mut chart.configure_mesh())
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(0)
        .x_desc("deviation from the limit: measured, bound (pale)")
        .x_label_formatter(&|percent| match percent {
            0.0 => "limit".to_owned(),
            percent => format!("{percent:+}%"),
        })
        .draw()?;
    let plot = chart.plotting_area();
    plot.draw(&PathElement::new([(0.0, 0.0), (0.0, levels.len() as f64)], INK))?;
    for (y, level) in rows(levels) {
        let bound = [(-level.short_bound, y - 0.25), (level.over_bound, y + 0.25)];
        plot.draw(&Rectangle::new(bound, BLUE.mix(0.18).filled()))?;
        // The shortfall if there is one, otherwise the excess; mostly both are zero.
        if level.short > 0.0 {
            plot.draw(&Cross::new((-level.short, y), DOT, stroke(RED)))?;
        } else {
            plot.draw(&Circle::new((level.over, y), DOT, BLUE.filled()))?;
        }
    }
    Ok(())
}

/// Percent on a square-root scale, so that small values are visible.
struct SquareRootAxis(Range<f64>);

impl Ranged for SquareRootAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, percent: &f64, (left, right): (i32, i32)) -> i32 {
        let root = |percent: f64| percent.abs().sqrt().copysign(percent);
        let (start, end) = (root(self.0.start), root(self.0.end));
        let part = (root(*percent) - start) / (end - start);
        left + (f64::from(right - left) * part).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, _: H) -> Vec<f64> {
        PERCENTS
            .into_iter()
            .filter(|percent| (self.0.start..=self.0.end).contains(percent))
            .collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

/// The levels from top to bottom, each with the centre of its row.
fn rows(levels: &[Measured]) -> impl Iterator<Item = (f64, &Measured)> {
    levels.iter().rev().enumerate().map(|(row, level)| (row as f64 + 0.5, level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_measurements_are_reported_with_their_line() {
        for bad in ["strict\t1\t2", "strict\t1\t2\t3\t4\t5\t6\tx", "strict\t1\t2\t3\t4\t5\t6\tNaN"]
        {
            let error = parse(&format!("# comment\n\n{bad}\n")).unwrap_err();
            assert!(error.starts_with("line 3: must be a name and 7 numbers"), "{error}");
        }
        assert_eq!(parse("# nothing\n"), Ok(Vec::new()));
    }

    #[test]
    fn an_excess_is_a_dot_and_a_shortfall_a_cross() {
        let circles = |text: &str| plot(&parse(text).unwrap()).unwrap().matches("<circle").count();
        assert_eq!(circles("a\t0.5\t1\t12\t20\t0\t0\t0\n"), 2);
        assert_eq!(circles("b\t0.5\t1\t12\t20\t3\t5\t0\n"), 1);
    }
}
