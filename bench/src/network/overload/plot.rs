//! SVG plot of the first group: goodput, latency and refusals by priority over time.

use sluicegate_plot::plotters::prelude::{
    Color as _, IntoLogRange as _, LineSeries, PathElement, RGBColor, SeriesLabelPosition, WHITE,
};
use sluicegate_plot::{
    AMBER, Area, BLUE, Drawn, GREEN, INK, PALE, RED, chart, stroke, style, svg, text, time_label,
};

use super::{ClassSecond, Contestant, GROUPS, Overloaded};
use crate::frame::Results;

const HEIGHT: u32 = 1_116;
const PANEL_HEIGHT: u32 = 216;
const Y_LABELS: u32 = 72;

/// A line: name, color, and a value for each second.
type Line = (&'static str, RGBColor, Vec<f64>);

pub(super) fn plot(results: &Results<Overloaded>, phases: [u64; 3]) -> Result<String, String> {
    let of = |one: Contestant| {
        let row = results.rows.iter().find(|row| row.name == one.name());
        row.and_then(|row| row.readings().next())
    };
    let readings: Vec<_> =
        Contestant::ALL.into_iter().filter_map(|one| Some((one, of(one)?))).collect();
    if readings.is_empty() {
        return Err("there is nothing to draw".to_owned());
    }
    let group = results.rows.first().map_or("", |row| &row.group);
    let capacity = GROUPS.iter().find(|(name, _)| *name == group);
    let capacity = capacity.map_or(1.0, |(_, server)| server.capacity());
    let lines = |value: fn(&ClassSecond, &ClassSecond) -> f64| -> Vec<Line> {
        let line = |(one, reading): &(Contestant, &Overloaded)| {
            let seconds = reading.important.seconds.iter().zip(&reading.others.seconds);
            (one.name(), one.color(), seconds.map(|(one, other)| value(one, other)).collect())
        };
        readings.iter().map(line).collect()
    };
    let title = format!(
        "Half, twice and half of the capacity of an upstream, {capacity:.0} requests per second"
    );
    svg(&title, HEIGHT, |area| {
        let (goodput, rest) = area.split_vertically(PANEL_HEIGHT);
        let (important_latency, rest) = rest.split_vertically(PANEL_HEIGHT);
        let (latency, rest) = rest.split_vertically(PANEL_HEIGHT);
        let (important, others) = rest.split_vertically(PANEL_HEIGHT);
        let mut all = lines(|one, other| (one.allowed + other.allowed) as f64);
        let seconds = phases.iter().sum::<u64>() as usize;
        all.push(("capacity", PALE, vec![capacity; seconds]));
        panel(&goodput, "responses in time, per second", &all, capacity * 1.3, true)?;
        let high = lines(|one, _| one.p99_ms);
        latency_panel(&important_latency, "p99 of important responses", &high)?;
        latency_panel(&latency, "p99 of the others", &lines(|_, other| other.p99_ms))?;
        let high = lines(|one, _| refused_percent(one));
        panel(&important, "important requests refused, %", &high, 100.0, false)?;
        let low = lines(|_, other| refused_percent(other));
        panel(&others, "others refused, %", &low, 100.0, false)
    })
}

/// Refused, or not answered in time.
fn refused_percent(second: &ClassSecond) -> f64 {
    100.0 * (1.0 - super::served(std::slice::from_ref(second), &[]))
}

fn panel(area: &Area<'_>, title: &str, lines: &[Line], top: f64, legend: bool) -> Drawn {
    let right = lines.iter().map(|line| line.2.len()).max().unwrap_or(1) as f64;
    let mut chart = chart(area, Y_LABELS).build_cartesian_2d(0.0..right, 0.0..top * 1.04)?;
    style(&mut chart.configure_mesh())
        .x_desc("seconds")
        .y_desc(title)
        .x_labels(11)
        .y_labels(5)
        .x_label_formatter(&|second| format!("{second}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for (name, color, values) in lines {
        let points = values.iter().enumerate().map(|(at, value)| (at as f64 + 0.5, *value));
        let drawn = chart.draw_series(LineSeries::new(points, stroke(*color)))?;
        let color = *color;
        if legend {
            drawn
                .label(*name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], stroke(color)));
        }
    }
    if legend {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::MiddleMiddle)
            .background_style(WHITE.mix(0.85))
            .label_font(text(&INK))
            .draw()?;
    }
    Ok(())
}

fn latency_panel(area: &Area<'_>, title: &str, lines: &[Line]) -> Drawn {
    let right = lines.iter().map(|line| line.2.len()).max().unwrap_or(1) as f64;
    let mut chart =
        chart(area, Y_LABELS).build_cartesian_2d(0.0..right, (10.0..2_000.0).log_scale())?;
    style(&mut chart.configure_mesh())
        .x_desc("seconds")
        .y_desc(title)
        .x_labels(11)
        .x_label_formatter(&|second| format!("{second}"))
        .y_label_formatter(&|ms| time_label(*ms * 1e3))
        .draw()?;
    for (_, color, values) in lines {
        // Seconds without a response have no latency.
        let points = values.iter().enumerate().filter(|(_, ms)| **ms > 0.0);
        let points = points.map(|(at, ms)| (at as f64 + 0.5, *ms));
        chart.draw_series(LineSeries::new(points, stroke(*color)))?;
    }
    Ok(())
}

impl Contestant {
    const fn color(self) -> RGBColor {
        match self {
            Self::Unlimited => RED,
            Self::Fixed => GREEN,
            Self::Adaptive => BLUE,
            Self::Envoy => AMBER,
        }
    }
}
