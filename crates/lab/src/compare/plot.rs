//! Plots of a comparison: the admitted over time, the fullest windows, and the trade-off.

use sluicegate_plot::plotters::prelude::{
    AreaSeries, Circle, Color as _, EmptyElement, LineSeries, PathElement, Rectangle, Text,
};
use sluicegate_plot::{Area, BLUE, Drawn, GREEN, INK, PALE, RED, chart, stroke, style, svg, text};

use super::figures::{AlgorithmComparison, AlgorithmFigures};
use super::findings::{amount, decimal, percent};
use super::series::TimeSeries;

const ROW: u32 = 108;
const Y_LABELS: u32 = 64;
const NAMES: u32 = 200;
const BAR_ROW: u32 = 30;
const TRADE_OFF_HEIGHT: u32 = 420;
/// Height of a label of the trade-off plot, and of a letter of it, in pixels.
const LABEL_HEIGHT: i32 = 16;

/// The admitted over time, a panel for each algorithm, with the demand behind it in pale.
///
/// # Errors
/// When the plotting library fails.
pub fn plot_admitted(comparison: &AlgorithmComparison) -> Result<String, String> {
    let panels = comparison.algorithms.len() as u32;
    let title = format!("Admitted requests per second, limit {} a client", comparison.rate);
    let axis = TimeUnit::of(comparison);
    let top = highest(comparison);
    svg(&title, 40 + ROW * panels + 44, |area| {
        let mut rest = area.clone();
        for (index, figures) in (1..).zip(&comparison.algorithms) {
            let is_last = index == panels;
            let height = if is_last { ROW + 44 } else { ROW };
            let (panel, below) = rest.split_vertically(height);
            draw_panel(comparison, figures, &axis, top, is_last, &panel)?;
            rest = below;
        }
        Ok(())
    })
}

/// The unit of the time axis.
struct TimeUnit {
    name: &'static str,
    us: f64,
    end: f64,
}

impl TimeUnit {
    fn of(comparison: &AlgorithmComparison) -> Self {
        let length = (comparison.last_us - comparison.first_us).max(1) as f64;
        let units = [
            ("days", 86_400e6),
            ("hours", 3_600e6),
            ("minutes", 60e6),
            ("seconds", 1e6),
            ("milliseconds", 1e3),
        ];
        let unit = units.into_iter().find(|(_, us)| length >= 2.0 * us);
        let (name, us) = unit.unwrap_or(("microseconds", 1.0));
        Self { name, us, end: length / us }
    }
}

/// Steps of a series: the rate per second over time.
fn steps(series: &TimeSeries, unit: &TimeUnit) -> Vec<(f64, f64)> {
    let (width, seconds) = (series.width_us() as f64 / unit.us, series.width_us() as f64 / 1e6);
    let step = |(bin, count): (usize, &u64)| {
        let (from, rate) = (bin as f64 * width, *count as f64 / seconds);
        [(from.min(unit.end), rate), ((from + width).min(unit.end), rate)]
    };
    series.bins().iter().enumerate().flat_map(step).collect()
}

/// The top of all panels: the highest rate that an algorithm admitted, with room for its demand
/// as far as that does not flatten the panels.
fn highest(comparison: &AlgorithmComparison) -> f64 {
    let most = |series: &TimeSeries| {
        let count = series.bins().iter().copied().max().unwrap_or(0);
        count as f64 * 1e6 / series.width_us() as f64
    };
    let admitted = comparison.algorithms.iter().map(|figures| most(&figures.series));
    let admitted = admitted.fold(0.0, f64::max);
    most(&comparison.demand_series).min(admitted * 1.5).max(1e-9) * 1.1
}

fn draw_panel(
    comparison: &AlgorithmComparison,
    figures: &AlgorithmFigures,
    unit: &TimeUnit,
    top: f64,
    is_last: bool,
    area: &Area<'_>,
) -> Drawn {
    let mut chart = chart(area, Y_LABELS);
    if !is_last {
        chart.x_label_area_size(4);
    }
    let mut chart = chart.margin_top(20).build_cartesian_2d(0.0..unit.end, 0.0..top)?;
    let mut mesh = chart.configure_mesh();
    let mesh = style(&mut mesh).y_labels(3).y_label_formatter(&|rate| rate_label(*rate));
    let x_label = |x: &f64| if is_last { decimal(*x) } else { String::new() };
    let mesh = mesh.x_label_formatter(&x_label);
    if is_last {
        mesh.x_desc(format!("{} since the first request", unit.name));
    }
    mesh.draw()?;
    let clipped = |series: &TimeSeries| {
        steps(series, unit).into_iter().map(move |(x, rate)| (x, rate.min(top)))
    };
    chart.draw_series(AreaSeries::new(clipped(&comparison.demand_series), 0.0, PALE.mix(0.15)))?;
    chart.draw_series(AreaSeries::new(clipped(&figures.series), 0.0, GREEN.mix(0.25)))?;
    chart.draw_series(LineSeries::new(clipped(&figures.series), stroke(GREEN)))?;
    let heading = format!(
        "{}: {}, at most {} in a window",
        figures.algorithm,
        amount(figures.admitted),
        amount(figures.peak.amount)
    );
    area.draw(&Text::new(heading, (Y_LABELS as i32 + 22, 2), text(&INK)))?;
    Ok(())
}

fn rate_label(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{}M", decimal(rate / 1e6)),
        _ if rate >= 1e4 => format!("{}k", decimal(rate / 1e3)),
        _ => decimal(rate),
    }
}

/// The fullest rolling window of each algorithm beside the limit.
///
/// # Errors
/// When the plotting library fails.
pub fn plot_peaks(comparison: &AlgorithmComparison) -> Result<String, String> {
    let count = comparison.algorithms.len();
    let height = 96 + BAR_ROW * count as u32;
    let title = "Most requests of a client in any rolling window";
    svg(title, height, |area| {
        let limit = comparison.limit as f64;
        let peaks = comparison.algorithms.iter().map(|figures| figures.peak.amount as f64);
        let right = peaks.fold(limit, f64::max) * 1.12;
        let mut chart =
            chart(area, NAMES).build_cartesian_2d(0.0..right, 0.0..count.max(1) as f64)?;
        style(&mut chart.configure_mesh())
            .disable_y_mesh()
            .disable_y_axis()
            .y_labels(0)
            .x_desc("requests in a window; the line is the limit")
            .x_label_formatter(&|x| rate_label(*x))
            .draw()?;
        let plot = chart.plotting_area();
        for (row, figures) in comparison.algorithms.iter().rev().enumerate() {
            let (y, peak) = (row as f64, figures.peak.amount as f64);
            let within = [(0.0, y + 0.22), (peak.min(limit), y + 0.78)];
            plot.draw(&Rectangle::new(within, BLUE.mix(0.55).filled()))?;
            if peak > limit {
                let above = [(limit, y + 0.22), (peak, y + 0.78)];
                plot.draw(&Rectangle::new(above, RED.mix(0.7).filled()))?;
            }
            let label = EmptyElement::at((peak, y + 0.5))
                + Text::new(amount(figures.peak.amount), (5, -7), text(&INK));
            plot.draw(&label)?;
            let name = EmptyElement::at((0.0, y + 0.5))
                + Text::new(figures.algorithm.clone(), (6 - NAMES as i32, -7), text(&INK));
            plot.draw(&name)?;
        }
        plot.draw(&PathElement::new([(limit, 0.0), (limit, count as f64)], stroke(INK)))?;
        Ok(())
    })
}

/// What an algorithm admits above the limit against what it refuses without need: the best are at
/// the lower left.
///
/// # Errors
/// When the plotting library fails.
pub fn plot_trade_off(comparison: &AlgorithmComparison) -> Result<String, String> {
    svg("Too much and too little", TRADE_OFF_HEIGHT, |area| {
        let points: Vec<(f64, f64, &str)> = comparison
            .algorithms
            .iter()
            .filter(|figures| figures.same_decisions_as.is_none())
            .map(|figures| {
                let excess = figures.excess_worst as f64 / comparison.limit as f64;
                (excess, figures.refused_share(), figures.algorithm.as_str())
            })
            .collect();
        let right = points.iter().map(|point| point.0).fold(0.1, f64::max);
        let top = points.iter().map(|point| point.1).fold(0.01, f64::max);
        let mut chart = chart(area, Y_LABELS)
            .build_cartesian_2d(-0.03 * right..right * 1.3, -0.06 * top..top * 1.12)?;
        style(&mut chart.configure_mesh())
            .x_desc("excess of the fullest rolling window, part of the limit")
            .y_desc("denials without need")
            .x_label_formatter(&|x| axis_percent(*x))
            .y_label_formatter(&|y| axis_percent(*y))
            .draw()?;
        let plot = chart.plotting_area();
        // Labels of points at one place are below each other.
        let mut labels: Vec<(i32, i32)> = Vec::new();
        for (x, y, name) in points {
            let (left, middle) = plot.map_coordinate(&(x, y));
            let mut at = middle - LABEL_HEIGHT / 2;
            while labels
                .iter()
                .any(|label| (label.0 - left).abs() < 120 && (label.1 - at).abs() < LABEL_HEIGHT)
            {
                at -= LABEL_HEIGHT;
            }
            labels.push((left, at));
            plot.draw(&Circle::new((x, y), 5, BLUE.filled()))?;
            let label =
                EmptyElement::at((x, y)) + Text::new(name.to_owned(), (9, at - middle), text(&INK));
            plot.draw(&label)?;
        }
        Ok(())
    })
}

/// A percentage of an axis, which may have a tick below 0.
fn axis_percent(part: f64) -> String {
    if part < -1e-9 { String::new() } else { percent((part * 1e6).round() / 1e6) }
}
