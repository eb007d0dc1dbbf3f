//! Plot of requests over time, with those that are denied, would be, or wait.

use sluicegate_config::units::show_span;
use std::ops::Range;

use sluicegate_core::time::Timestamp;
use sluicegate_plot::plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use sluicegate_plot::plotters::prelude::{AreaSeries, Color as _, RGBColor, Rectangle, Text};
use sluicegate_plot::{AMBER, Area, BLUE, Drawn, GREEN, INK, RED, chart, style, svg, text};

use super::findings::grouped;
use super::series::{Bucket, Series};

const HEIGHT: u32 = 300;
const LEGEND_TOP: u32 = 236;
const Y_LABELS: u32 = 72;
const LEGEND_LEFT: i32 = 90;
/// Ticks of the time axis at most.
const TICKS_MAX: u64 = 8;
/// Distances of ticks in seconds.
const STEPS: [u64; 18] = [
    1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800,
];
const DAY: u64 = 86_400;

/// A kind of request in the plot.
struct Layer {
    name: &'static str,
    color: RGBColor,
    count: fn(&Bucket) -> u64,
}

/// Drawn one over the other: each is a part of those before it.
const LAYERS: [Layer; 4] = [
    Layer { name: "requests", color: BLUE, count: |bucket| bucket.requests },
    Layer { name: "do not pass at once", color: GREEN, count: Bucket::restricted },
    Layer {
        name: "denied, or would be (shadow mode)",
        color: AMBER,
        count: |bucket| bucket.denied + bucket.shadow_denied,
    },
    Layer { name: "denied", color: RED, count: |bucket| bucket.denied },
];

impl Series {
    /// Draws requests over time.
    ///
    /// # Errors
    /// When the plotting library fails.
    pub fn plot(&self, title: &str) -> Result<String, String> {
        svg(title, HEIGHT, |area| {
            let (upper, legend) = area.split_vertically(LEGEND_TOP);
            self.draw(&upper)?;
            self.draw_legend(&legend)
        })
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
        let width = self.width().as_micros() / 1_000_000;
        let begin = self.buckets().next().map_or(0, |(at, _)| seconds(at));
        let end = self.buckets().last().map_or(begin, |(at, _)| seconds(at)) + width;
        let max = self.buckets().map(|(_, bucket)| bucket.requests).max().unwrap_or(0).max(1);
        let mut chart = chart(area, Y_LABELS)
            .build_cartesian_2d(ClockAxis(begin..end), 0.0..max as f64 * 1.05)?;
        let span = end - begin;
        style(&mut chart.configure_mesh())
            .x_desc("time (UTC)")
            .y_desc(format!("requests in {}", show_span(self.width())))
            .y_labels(5)
            .x_label_formatter(&|at| tick_label(*at as u64, span))
            .y_label_formatter(&|count| match count.fract() {
                0.0 => grouped(*count as u64),
                _ => String::new(),
            })
            .draw()?;
        for layer in self.layers() {
            // Counts of a bucket hold from its beginning to its end.
            let steps = self.buckets().flat_map(|(at, bucket)| {
                let (from, count) = (seconds(at), (layer.count)(&bucket) as f64);
                [(from as f64, count), ((from + width) as f64, count)]
            });
            let (fill, line) = (layer.color.mix(0.25), layer.color);
            chart.draw_series(AreaSeries::new(steps, 0.0, fill).border_style(line))?;
        }
        Ok(())
    }

    /// All requests, and the other layers that differ from the one above them.
    fn layers(&self) -> impl Iterator<Item = &'static Layer> {
        let total =
            |layer: &Layer| -> u64 { self.buckets().map(|(_, one)| (layer.count)(&one)).sum() };
        let totals: Vec<u64> = LAYERS.iter().map(total).collect();
        LAYERS.iter().enumerate().filter_map(move |(index, layer)| {
            let next = totals.get(index + 1).copied().unwrap_or(0);
            (index == 0 || totals[index] > next).then_some(layer)
        })
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let mut x = LEGEND_LEFT;
        for layer in self.layers() {
            let total: u64 = self.buckets().map(|(_, one)| (layer.count)(&one)).sum();
            let words = format!("{} {}", grouped(total), layer.name);
            area.draw(&Rectangle::new([(x, 16), (x + 12, 28)], layer.color.mix(0.6).filled()))?;
            area.draw(&Text::new(words.clone(), (x + 18, 15), text(&INK)))?;
            x += 46 + area.estimate_text_size(&words, &text(&INK))?.0 as i32;
        }
        Ok(())
    }
}

/// Seconds since the epoch, with ticks at round times.
struct ClockAxis(Range<u64>);

impl Ranged for ClockAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        let share = (value - start) / (end - start).max(1.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        ticks(self.0.start, self.0.end).into_iter().map(|at| at as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.start as f64..self.0.end as f64
    }
}

/// Round times between two, in seconds.
fn ticks(begin: u64, end: u64) -> Vec<u64> {
    let span = end.saturating_sub(begin);
    let fits = |step: &u64| span / step < TICKS_MAX;
    let step = STEPS.into_iter().find(fits).unwrap_or(span / (TICKS_MAX - 1));
    let first = begin.div_ceil(step.max(1));
    (first..).map(|number| number * step).take_while(|at| *at <= end).collect()
}

/// A time as short as the span of the axis permits.
fn tick_label(at: u64, span: u64) -> String {
    let shown = sluicegate_rules::zone::show_moment(Timestamp::from_micros(at * 1_000_000));
    let (date, time) = shown.split_once('T').unwrap_or((&shown, ""));
    let (minutes, seconds) = (time.get(..5).unwrap_or(""), time.trim_end_matches('Z'));
    let day = date.get(5..).unwrap_or(date);
    match span {
        0..=480 => seconds.to_owned(),
        481..=DAY => minutes.to_owned(),
        _ if span > 60 * DAY => date.to_owned(),
        _ if minutes == "00:00" => day.to_owned(),
        _ => format!("{day} {minutes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::verdict::ReplayVerdict;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(3, 8), [3, 4, 5, 6, 7, 8]);
        assert_eq!(ticks(3_601, 7_199), [4_200, 4_800, 5_400, 6_000, 6_600]);
        for span in [0, 1, 100, 86_400, 10_000_000, 4_000_000_000] {
            let count = ticks(1_000_000, 1_000_000 + span).len() as u64;
            assert!((1..=TICKS_MAX + 1).contains(&count), "{span}: {count}");
        }
    }

    #[test]
    fn labels_have_what_differs() {
        let label = |span| tick_label(1_794_744_000, span);
        assert_eq!([label(60), label(DAY)], ["12:00:00", "12:00"]);
        assert_eq!([label(5 * DAY), label(100 * DAY)], ["11-15 12:00", "2026-11-15"]);
    }

    #[test]
    fn layers_without_requests_are_left_out() {
        let mut series = Series::default();
        series.add(Timestamp::from_micros(5_000_000), ReplayVerdict::Allowed);
        assert!(!series.plot("t").unwrap().contains("denied"));
        series.add(Timestamp::from_micros(6_000_000), ReplayVerdict::Denied);
        let plot = series.plot("t").unwrap();
        assert!(plot.contains("1 denied") && plot.contains("2 requests"), "{plot}");
        assert!(!plot.contains("do not pass at once"));
    }
}
