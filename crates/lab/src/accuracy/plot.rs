//! SVG plots: wrong decisions and rate error of each method, and what the adversary gets.

use sluicegate_plot::plotters::prelude::{
    BindKeyPoints as _, Circle, Color as _, Cross, EmptyElement, IntoLogRange as _, LineSeries,
    PathElement, SeriesLabelPosition, Text,
};
use sluicegate_plot::plotters::style::RGBColor;
use sluicegate_plot::plotters::style::text_anchor::{HPos, Pos, VPos};
use sluicegate_plot::{AMBER, BLUE, GREEN, INK, RED, chart, stroke, style, svg, text};

use super::{Adversary, Figures};

const ROW: u32 = 34;
const NAMES: u32 = 220;
const DOT: i32 = 5;
/// Smallest share on the axis, which stands for none.
const NONE: f64 = 1e-8;

/// Draws the shares of wrong decisions, a row for each method: admitted as dots, denied as crosses.
///
/// ```
/// use sluicegate_lab::accuracy::{parse_figures, plot_errors};
///
/// let figures = parse_figures("two counts\t100\t90\t3\t2\t0.05\t0.4\t1.2\n")?;
/// assert!(plot_errors("errors", &figures)?.contains("two counts"));
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// When the plotting library fails.
pub fn plot_errors(title: &str, figures: &[Figures]) -> Result<String, String> {
    let height = 100 + ROW * figures.len() as u32;
    svg(title, height, |area| {
        let decades: Vec<f64> = (-4..=0).map(|pair| 10f64.powi(2 * pair)).collect();
        let mut chart = chart(area, NAMES).build_cartesian_2d(
            (NONE..1.0).log_scale().with_key_points(decades),
            0.0..figures.len().max(1) as f64,
        )?;
        style(&mut chart.configure_mesh())
            .disable_y_mesh()
            .y_labels(0)
            .x_desc("share of requests: wrongly admitted (dot), wrongly denied (cross)")
            .x_label_formatter(&|share| percent(*share))
            .draw()?;
        let plot = chart.plotting_area();
        let name = text(&INK).pos(Pos::new(HPos::Right, VPos::Center));
        for (row, one) in figures.iter().rev().enumerate() {
            let y = row as f64 + 0.5;
            let share = |wrong: u64| (wrong as f64 / one.requests.max(1) as f64).max(NONE);
            plot.draw(&Cross::new((share(one.wrongly_denied), y), DOT, stroke(BLUE)))?;
            plot.draw(&Circle::new((share(one.wrongly_admitted), y), DOT, RED.filled()))?;
            let label = Text::new(one.name.clone(), (-8, 0), name.clone());
            plot.draw(&(EmptyElement::at((NONE, y)) + label))?;
        }
        Ok(())
    })
}

fn percent(share: f64) -> String {
    if share <= NONE * 1.001 {
        return "none".to_owned();
    }
    let digits = (-(share * 100.0).log10()).round().max(0.0) as usize;
    format!("{:.digits$} %", share * 100.0)
}

/// Points of a line of the plot of the adversary.
const POINTS: u64 = 700;
/// Colours of the methods in the plot of the adversary.
const COLORS: [RGBColor; 4] = [RED, AMBER, BLUE, GREEN];

/// Draws what each method admitted within the last window, over time, and the limit.
///
/// # Errors
/// When the plotting library fails.
pub fn plot_adversary(limit: u64, window_us: u64, runs: &[&Adversary]) -> Result<String, String> {
    svg("A window's worst case: admitted within the last window", 360, |area| {
        let windows = |us: u64| us as f64 / window_us.max(1) as f64;
        let mut chart = chart(area, 60).build_cartesian_2d(0.9..3.0, 0.0..limit as f64 * 2.2)?;
        style(&mut chart.configure_mesh())
            .x_desc("time in windows")
            .y_desc("admitted in the last window")
            .draw()?;
        chart.draw_series([PathElement::new(
            [(0.9, limit as f64), (3.0, limit as f64)],
            INK.stroke_width(1),
        )])?;
        for (run, color) in runs.iter().zip(COLORS.into_iter().cycle()) {
            let points = (0..=POINTS).map(|point| {
                let now = window_us * 9 / 10 + window_us * 21 / 10 * point / POINTS;
                (windows(now), run.held(now, window_us) as f64)
            });
            chart
                .draw_series(LineSeries::new(points, stroke(color)))?
                .label(run.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], stroke(color)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font(text(&INK))
            .border_style(INK.mix(0.2))
            .draw()?;
        Ok(())
    })
}
