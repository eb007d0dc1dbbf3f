//! Plots of a report: the trade-off between rate and burst, and the distribution of peaks.

use sluicegate_config::units::{show_rate, show_span};
use sluicegate_core::time::Span;
use sluicegate_plot::plotters::prelude::{
    BindKeyPoints as _, Circle, Color as _, EmptyElement, IntoLogRange as _, LineSeries,
    PathElement, RGBColor, Text,
};
use sluicegate_plot::plotters::style::text_anchor::{HPos, Pos, VPos};
use sluicegate_plot::{
    AMBER, Area, BLUE, Drawn, GREEN, INK, PALE, RED, chart, stroke, style, svg, text,
};

use super::goal::percent;
use super::shape::LimitShape;
use super::trade_off::{SHOWN_SHARES, TradeOffPoint};
use super::{TuneResult, Tuning};

const HEIGHT: u32 = 420;
const LEGEND_HEIGHT: u32 = 34;
const Y_LABELS: u32 = 70;
const COLORS: [RGBColor; SHOWN_SHARES.len()] = [PALE, AMBER, RED];
const DOT: i32 = 5;

type Line = (String, RGBColor, Vec<(f64, f64)>);

/// Sizes over rates, or over windows.
pub(super) fn trade_off_plot(tuning: &Tuning) -> Result<String, String> {
    let points = |size: &dyn Fn(&TradeOffPoint) -> u64| -> Vec<(f64, f64)> {
        tuning.curve.iter().map(|point| (x_of(point.shape), size(point).max(1) as f64)).collect()
    };
    let mut lines: Vec<Line> = (0..SHOWN_SHARES.len())
        .map(|i| (percent(SHOWN_SHARES[i]), COLORS[i], points(&|point| point.shown[i])))
        .collect();
    if tuning.has_promise() {
        lines.push(("promised".to_owned(), BLUE, points(&|point| point.size)));
    }
    let chosen = match &tuning.result {
        TuneResult::Limit(limit) => Some((limit.shape, limit.size)),
        TuneResult::Protection(found) => found.per_client.map(|limit| (limit.shape, limit.size)),
        TuneResult::Shortage(_) => None,
    };
    let mark = chosen.map(|(shape, size)| (x_of(shape), size as f64, shape.words(size)));
    let (title, x_name, y_name) = match tuning.is_bucket() {
        true => ("Burst over rate, by share of denied clients", "rate", "burst (requests)"),
        false => ("Number over window, by share of denied clients", "window", "requests"),
    };
    let is_bucket = tuning.is_bucket();
    let label = move |x: f64| if is_bucket { rate_label(x) } else { seconds_label(x) };
    let keys = if is_bucket { rate_keys() } else { window_keys() };
    let axes = Axes { x_name, y_name, keys, label: &label };
    svg(title, HEIGHT, |area| draw(area, &lines, mark, &axes))
}

/// The share of clients with a higher peak.
pub(super) fn peaks_plot(tuning: &Tuning) -> Result<String, String> {
    let peaks = &tuning.peaks;
    let count = peaks.len().max(1) as f64;
    // Steps: the share above each peak that occurs.
    let mut line = Vec::new();
    let mut share = 1.0;
    for (index, peak) in peaks.iter().enumerate() {
        if peaks.get(index + 1) != Some(peak) {
            line.push((*peak as f64, share));
            share = (peaks.len() - index - 1) as f64 / count;
            line.push((*peak as f64, share.max(0.5 / count)));
        }
    }
    let lines = [("clients".to_owned(), BLUE, line)];
    let horizon = show_span(tuning.options.horizon);
    let x_name = format!("peak (requests in {horizon})");
    let keys = (0..16).map(|decade| 10_f64.powi(decade)).collect();
    let label = |x: f64| short(x);
    let axes = Axes { x_name: &x_name, y_name: "share with a higher peak", keys, label: &label };
    let bound = tuning.good.map(|good| good.peak_max as f64);
    svg("Peaks of clients", HEIGHT, |area| draw_shares(area, &lines, bound, &axes))
}

struct Axes<'a> {
    x_name: &'a str,
    y_name: &'a str,
    keys: Vec<f64>,
    label: &'a dyn Fn(f64) -> String,
}

/// The range of values, widened to be more than a point.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let min = values.clone().fold(f64::INFINITY, f64::min);
    let max = values.fold(0.0, f64::max);
    if min.is_finite() && max > 0.0 { (min / 1.3, (max * 1.3).max(min * 3.0)) } else { (0.5, 10.0) }
}

fn draw(
    area: &Area<'_>,
    lines: &[Line],
    mark: Option<(f64, f64, String)>,
    axes: &Axes<'_>,
) -> Drawn {
    let (plot_area, legend) = area.split_vertically(HEIGHT - LEGEND_HEIGHT - 34);
    let marked = mark.iter().map(|(x, y, _)| (*x, *y));
    let points = lines.iter().flat_map(|(_, _, points)| points).copied().chain(marked);
    let (x_min, x_max) = range(points.clone().map(|(x, _)| x));
    let (y_min, y_max) = range(points.map(|(_, y)| y));
    let within = |key: &f64, min: f64, max: f64| *key >= min && *key <= max;
    let keys = axes.keys.iter().copied().filter(|key| within(key, x_min, x_max)).collect();
    let decades = sizes_keys().into_iter().filter(|key| within(key, y_min, y_max)).collect();
    let mut chart = chart(&plot_area, Y_LABELS).build_cartesian_2d(
        (x_min..x_max).log_scale().with_key_points(keys),
        (y_min..y_max).log_scale().with_key_points(decades),
    )?;
    style(&mut chart.configure_mesh())
        .x_desc(axes.x_name)
        .y_desc(axes.y_name)
        .x_label_formatter(&|x| (axes.label)(*x))
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    for (_, color, points) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), stroke(*color)))?;
    }
    if let Some((x, y, words)) = mark {
        let is_right = x > (x_min * x_max).sqrt();
        let side = if is_right { HPos::Right } else { HPos::Left };
        let style = text(&INK).pos(Pos::new(side, VPos::Bottom));
        let offset = (if is_right { -9 } else { 9 }, -7);
        let plot = chart.plotting_area();
        plot.draw(&Circle::new((x, y), DOT, GREEN.filled()))?;
        plot.draw(&(EmptyElement::at((x, y)) + Text::new(words, offset, style)))?;
    }
    draw_legend(&legend, lines)
}

fn draw_shares(area: &Area<'_>, lines: &[Line], bound: Option<f64>, axes: &Axes<'_>) -> Drawn {
    let points = lines.iter().flat_map(|(_, _, points)| points).copied();
    let xs = points.clone().map(|(x, _)| x).chain(bound);
    let (x_min, x_max) = range(xs);
    let y_min = points.map(|(_, y)| y).fold(1.0, f64::min).min(0.5) / 1.3;
    let within = |key: &f64| *key >= x_min && *key <= x_max;
    let keys = axes.keys.iter().copied().filter(within).collect();
    let shares = (0..12).map(|decade| 10_f64.powi(-decade)).filter(|share| *share >= y_min);
    let mut chart = chart(area, Y_LABELS).build_cartesian_2d(
        (x_min..x_max).log_scale().with_key_points(keys),
        (y_min..1.05).log_scale().with_key_points(shares.collect()),
    )?;
    style(&mut chart.configure_mesh())
        .x_desc(axes.x_name)
        .y_desc(axes.y_name)
        .x_label_formatter(&|x| (axes.label)(*x))
        .y_label_formatter(&|y| percent(*y))
        .draw()?;
    for (_, color, points) in lines {
        chart.draw_series(LineSeries::new(points.iter().copied(), stroke(*color)))?;
    }
    if let Some(bound) = bound {
        let plot = chart.plotting_area();
        plot.draw(&PathElement::new(
            [(bound, y_min), (bound, 1.05)],
            RED.mix(0.7).stroke_width(1),
        ))?;
        let style = text(&INK).pos(Pos::new(HPos::Right, VPos::Top));
        let label = Text::new("good clients", (-6, 6), style);
        plot.draw(&(EmptyElement::at((bound, 1.0)) + label))?;
    }
    Ok(())
}

fn draw_legend(area: &Area<'_>, lines: &[Line]) -> Drawn {
    let mut x = Y_LABELS as i32 + 18;
    area.draw(&Text::new("denied clients:", (x, 7), text(&INK)))?;
    x += 20 + area.estimate_text_size("denied clients:", &text(&INK))?.0 as i32;
    for (name, color, _) in lines {
        area.draw(&PathElement::new([(x, 14), (x + 22, 14)], stroke(*color)))?;
        area.draw(&Text::new(name.clone(), (x + 28, 7), text(&INK)))?;
        x += 52 + area.estimate_text_size(name, &text(&INK))?.0 as i32;
    }
    Ok(())
}

/// The rate in units per second, or the window in seconds.
fn x_of(shape: LimitShape) -> f64 {
    match shape {
        LimitShape::TokenBucket(rate) => {
            rate.count() as f64 / rate.period().as_micros() as f64 * 1e6
        }
        LimitShape::SlidingLog(window)
        | LimitShape::SlidingWindow(window)
        | LimitShape::FixedWindow(window) => window.as_micros() as f64 / 1e6,
    }
}

/// Rates with labels, with their units.
const RATE_KEYS: [(u64, u64); 11] = [
    (1, 86_400),
    (5, 86_400),
    (1, 3_600),
    (10, 3_600),
    (1, 60),
    (10, 60),
    (1, 1),
    (10, 1),
    (100, 1),
    (1_000, 1),
    (10_000, 1),
];

fn rate_keys() -> Vec<f64> {
    RATE_KEYS.map(|(count, seconds)| count as f64 / seconds as f64).into()
}

fn rate_label(rate: f64) -> String {
    let is_near = |(count, seconds): &(u64, u64)| {
        (rate / (*count as f64 / *seconds as f64) - 1.0).abs() < 0.01
    };
    match RATE_KEYS.iter().find(|key| is_near(key)) {
        Some((count, seconds)) => show_rate(*count, Span::from_secs(*seconds)),
        None => String::new(),
    }
}

fn window_keys() -> Vec<f64> {
    [0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3_600.0, 86_400.0, 604_800.0].into()
}

fn seconds_label(seconds: f64) -> String {
    show_span(Span::from_micros((seconds * 1e6).round() as u64))
}

fn sizes_keys() -> Vec<f64> {
    (0..16).flat_map(|decade| [1.0, 3.0].map(|step| step * 10_f64.powi(decade))).collect()
}

/// 1000 as `1k`.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", v / 1e9),
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => v.to_string(),
    }
}
