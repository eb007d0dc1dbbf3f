//! Plots of runs: a timeline, and figures against a swept variable.

use crate::Outcome;
use crate::figures::Figures;
use crate::spread::{RunFigures, Sweep};
use sluicegate_plot::plotters::prelude::{
    AreaSeries, Circle, Color as _, LineSeries, PathElement, Text,
};
use sluicegate_plot::{AMBER, Area, BLUE, Drawn, GREEN, INK, PALE, RED};
use sluicegate_plot::{chart, stroke, style, svg, text};

use super::text::events;

const TIMELINE_HEIGHT: u32 = 380;
const SWEEP_HEIGHT: u32 = 460;
const LEGEND_HEIGHT: u32 = 28;
const Y_LABELS: u32 = 62;
/// Events with a label; the others have a line only.
const LABELS_MAX: usize = 8;
const DOT: i32 = 4;

/// Requests per second over time: admitted, denied, and what one node admits; events as lines.
///
/// # Errors
/// When the plotting library fails.
pub fn timeline_plot(outcome: &Outcome, figures: &Figures) -> Result<String, String> {
    let points = &figures.timeline;
    let step_ms = points.get(1).map_or(1_000, |second| second.at_ms).max(1);
    let rate = |count: u64| count as f64 * 1e3 / step_ms as f64;
    let end = outcome.scenario.length_ms as f64 / 1e3;
    let totals = points.iter().map(|one| rate((one.allowed + one.denied).max(one.possible)));
    let max = totals.fold(1.0, f64::max) * 1.15;
    let series = |of: &dyn Fn(usize) -> u64| -> Vec<(f64, f64)> {
        let each = points.iter().enumerate();
        each.map(|(index, one)| (one.at_ms as f64 / 1e3, rate(of(index)))).collect()
    };
    let admitted = series(&|index| points[index].allowed);
    let offered = series(&|index| points[index].allowed + points[index].denied);
    let possible = series(&|index| points[index].possible);
    svg(&outcome.scenario.name, TIMELINE_HEIGHT, |area| {
        let (upper, legend) = area.split_vertically(TIMELINE_HEIGHT - LEGEND_HEIGHT - 34);
        let mut chart = chart(&upper, Y_LABELS).build_cartesian_2d(0.0..end, 0.0..max)?;
        style(&mut chart.configure_mesh())
            .x_desc("seconds")
            .y_desc("requests per second")
            .y_labels(6)
            .draw()?;
        chart.draw_series(AreaSeries::new(offered, 0.0, RED.mix(0.18)))?;
        chart.draw_series(AreaSeries::new(admitted.iter().copied(), 0.0, GREEN.mix(0.30)))?;
        chart.draw_series(LineSeries::new(admitted, stroke(GREEN)))?;
        chart.draw_series(LineSeries::new(possible, BLUE.stroke_width(1)))?;
        let plot = chart.plotting_area();
        for (index, (at, what)) in events(outcome).into_iter().enumerate() {
            let x = at as f64 / 1e3;
            plot.draw(&PathElement::new([(x, 0.0), (x, max)], AMBER))?;
            if index < LABELS_MAX {
                let y = max * (0.99 - 0.055 * (index % 4) as f64);
                let what: String = what.chars().take(38).collect();
                plot.draw(&Text::new(format!(" {what}"), (x, y), text(&PALE)))?;
            }
        }
        legend_of(
            &legend,
            &[("admitted", GREEN), ("denied", RED), ("one node admits", BLUE), ("event", AMBER)],
        )
    })
}

/// Amount above the limit and use of the quota against a variable.
///
/// # Errors
/// When the plotting library fails.
pub fn sweep_plot(title: &str, sweep: &Sweep, runs: &[RunFigures]) -> Result<String, String> {
    let (name, unit) = sweep.variable.name();
    let label = match unit {
        "" => name.to_owned(),
        unit => format!("{name} in {unit}"),
    };
    let points = |of: &dyn Fn(&Figures) -> f64| -> Vec<(f64, f64)> {
        runs.iter().map(|run| (run.value as f64, of(&run.figures))).collect()
    };
    let over = points(&|figures| figures.over_permille() as f64 / 10.0);
    let bound = points(&|figures| {
        let each = figures.rules.iter().filter_map(|rule| {
            rule.bound.map(|bound| bound as f64 * 100.0 / rule.capacity.max(1) as f64)
        });
        each.fold(0.0, f64::max)
    });
    let used = points(&|figures| figures.utilization_permille() as f64 / 10.0);
    let first = runs.iter().map(|run| run.value).min().unwrap_or(0) as f64;
    let last = runs.iter().map(|run| run.value).max().unwrap_or(1) as f64;
    let range = first..if last > first { last } else { first + 1.0 };
    svg(title, SWEEP_HEIGHT, |area| {
        let (upper, rest) = area.split_vertically(190);
        let (lower, legend) = rest.split_vertically(SWEEP_HEIGHT - 190 - LEGEND_HEIGHT - 34);
        let max = over.iter().chain(&bound).map(|(_, y)| *y).fold(1.0, f64::max) * 1.1;
        lines(
            &upper,
            (range.clone(), max),
            ("", "% above the limit"),
            &[(&bound, PALE), (&over, RED)],
        )?;
        let max = used.iter().map(|(_, y)| *y).fold(100.0, f64::max) * 1.05;
        lines(&lower, (range, max), (&label, "% of the possible"), &[(&used, BLUE)])?;
        let names = [("measured", RED), ("bound", PALE), ("used of the possible", BLUE)];
        legend_of(&legend, &names)
    })
}

type Colored<'a> = (&'a Vec<(f64, f64)>, sluicegate_plot::plotters::style::RGBColor);

fn lines(
    area: &Area<'_>,
    (range, max): (std::ops::Range<f64>, f64),
    (x, y): (&str, &str),
    series: &[Colored<'_>],
) -> Drawn {
    let mut chart = chart(area, Y_LABELS).build_cartesian_2d(range, 0.0..max)?;
    style(&mut chart.configure_mesh()).x_desc(x).y_desc(y).y_labels(5).draw()?;
    for (points, color) in series {
        chart.draw_series(LineSeries::new(points.iter().copied(), stroke(*color)))?;
        chart.draw_series(points.iter().map(|point| Circle::new(*point, DOT, color.filled())))?;
    }
    Ok(())
}

fn legend_of(
    area: &Area<'_>,
    names: &[(&str, sluicegate_plot::plotters::style::RGBColor)],
) -> Drawn {
    let mut x = Y_LABELS as i32 + 20;
    for (name, color) in names {
        area.draw(&Circle::new((x, 12), DOT, color.filled()))?;
        area.draw(&Text::new((*name).to_owned(), (x + 10, 5), text(&INK)))?;
        x += 40 + area.estimate_text_size(name, &text(&INK))?.0 as i32;
    }
    Ok(())
}
