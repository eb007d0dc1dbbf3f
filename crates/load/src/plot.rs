//! SVG plot of a run: latency by percentile and throughput by second.

use sluicegate_plot::plotters::prelude::{
    AreaSeries, Circle, Color as _, EmptyElement, IntoLogRange as _, LineSeries, PathElement,
    SeriesLabelPosition, Text, WHITE,
};
use sluicegate_plot::{
    AMBER, Area, BLUE, Drawn, INK, RED, chart, stroke, style, svg, text, time_label,
};

use crate::report::{Point, Report, count, time};

const HEIGHT: u32 = 568;
const LATENCY_HEIGHT: u32 = 286;
const Y_LABELS: u32 = 72;

/// Draws a run as SVG.
///
/// # Errors
/// Without responses.
pub fn plot(report: &Report) -> Result<String, String> {
    if report.answered == 0 {
        return Err("there is no answer to draw".to_owned());
    }
    let per_second = count(report.per_second.round() as u64);
    let title = format!("{} {}: {per_second} answers per second", report.target, report.address);
    svg(&title, HEIGHT, |area| {
        let (upper, lower) = area.split_vertically(LATENCY_HEIGHT);
        latency(report, &upper)?;
        rate(report, &lower)
    })
}

/// Percentiles, each step to the right with ten times fewer requests that took longer.
fn latency(report: &Report, area: &Area<'_>) -> Drawn {
    // x: one in this many requests took longer. The last step is the maximum.
    let points: Vec<(f64, f64)> = report
        .curve
        .iter()
        .map(|(percent, us)| (1.0 / (1.0 - percent / 100.0), us.max(0.1)))
        .take_while(|(one_in, _)| *one_in <= report.answered as f64 * 2.0)
        .collect();
    let right = points.last().map_or(10.0, |last| last.0).max(10.0);
    let least = points.iter().map(|point| point.1).fold(f64::MAX, f64::min);
    let max = points.iter().map(|point| point.1).fold(0.1, f64::max);
    // Powers of ten, so that both ends have a tick.
    let (bottom, top) = (10f64.powf(least.log10().floor()), 10f64.powf(max.log10().ceil()));
    let mut chart = chart(area, Y_LABELS).build_cartesian_2d(
        (1.0..right).log_scale(),
        (bottom..top.max(bottom * 10.0)).log_scale(),
    )?;
    let from =
        if report.rate_wanted.is_some() { "from the scheduled time" } else { "from sending" };
    style(&mut chart.configure_mesh())
        .x_desc("share of requests that took no longer")
        .y_desc(format!("latency, {from}"))
        .x_label_formatter(&|one_in| percentile(*one_in))
        .y_label_formatter(&|us| time_label(*us))
        .draw()?;
    chart.draw_series(LineSeries::new(points, stroke(BLUE)))?;
    let latency = &report.latency_us;
    let labels = [
        ("p50", 2.0, latency.p50),
        ("p90", 10.0, latency.p90),
        ("p99", 100.0, latency.p99),
        ("p99.9", 1_000.0, latency.p999),
    ];
    let marks = labels.into_iter().filter(|mark| mark.1 <= right).map(|(name, one_in, us)| {
        let words = format!("{name} {}", time(us));
        EmptyElement::at((one_in, us.max(0.1)))
            + Circle::new((0, 0), 4, BLUE.filled())
            + Text::new(words, (6, 8), text(&INK))
    });
    chart.draw_series(marks)?;
    Ok(())
}

/// Answers per second, and the denied and failed ones among them.
fn rate(report: &Report, area: &Area<'_>) -> Drawn {
    let of = |number: fn(&Point) -> u64| -> Vec<(f64, f64)> {
        let steps = report.series.iter().flat_map(|point| {
            let rate = number(point) as f64 / point.seconds.max(0.001);
            [(point.second as f64, rate), (point.second as f64 + point.seconds, rate)]
        });
        steps.collect()
    };
    let answered = of(|point| point.answered);
    let right = answered.last().map_or(1.0, |last| last.0);
    let top = answered.iter().map(|point| point.1).fold(1.0, f64::max) * 1.15;
    let mut chart = chart(area, Y_LABELS).build_cartesian_2d(0.0..right, 0.0..top)?;
    style(&mut chart.configure_mesh())
        .x_desc("seconds")
        .y_desc("answers per second")
        .x_labels(11)
        .y_labels(5)
        .x_label_formatter(&|second| format!("{second}"))
        .y_label_formatter(&|rate| short(*rate))
        .draw()?;
    chart.draw_series(AreaSeries::new(answered.iter().copied(), 0.0, BLUE.mix(0.12)))?;
    let lines = [
        ("answered", BLUE, answered, true),
        ("denied", AMBER, of(|point| point.denied), report.denied > 0),
        ("errors", RED, of(|point| point.errors), report.errors > 0),
    ];
    let several = report.denied > 0 || report.errors > 0;
    for (name, color, points, _) in lines.into_iter().filter(|line| line.3) {
        let drawn = chart.draw_series(LineSeries::new(points, stroke(color)))?;
        if several {
            drawn
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], stroke(color)));
        }
    }
    if several {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .label_font(text(&INK))
            .draw()?;
    }
    Ok(())
}

/// 1 in 100 is `99 %`.
fn percentile(one_in: f64) -> String {
    let digits = (one_in.log10().round() as usize).saturating_sub(2);
    format!("{:.digits$} %", 100.0 * (1.0 - 1.0 / one_in))
}

/// `120k` for an axis.
fn short(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{}M", (rate / 1e5).round() / 10.0),
        _ if rate >= 1e3 => format!("{}k", (rate / 1e2).round() / 10.0),
        _ => format!("{rate}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_short() {
        assert_eq!([1.0, 10.0, 100.0, 1_000.0].map(percentile), ["0 %", "90 %", "99 %", "99.9 %"]);
        assert_eq!([0.0, 500.0, 1_500.0, 2e6].map(short), ["0", "500", "1.5k", "2M"]);
    }
}
