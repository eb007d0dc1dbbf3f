//! Style of all SVG plots: palette, fonts, axes and labels.
//!
//! The plots themselves are with their data: trials and consistency levels in `lab`, load tests in
//! `load`.

use std::error::Error;

use plotters::chart::{ChartBuilder, MeshStyle};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::{
    Color as _, DrawingArea, DrawingBackend, FontStyle, IntoDrawingArea as _, IntoFont as _,
    RGBColor, SVGBackend, ShapeStyle, Text, TextStyle, WHITE,
};

pub use plotters;

/// Part of a plot, in pixels from its top left.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Result of drawing.
pub type Drawn = Result<(), Box<dyn Error>>;

/// Text.
pub const INK: RGBColor = RGBColor(51, 51, 51);
/// Axes and tick labels.
pub const PALE: RGBColor = RGBColor(102, 102, 102);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(230, 230, 230);
/// Measured values.
pub const BLUE: RGBColor = RGBColor(9, 105, 218);
/// Admitted requests.
pub const GREEN: RGBColor = RGBColor(26, 127, 55);
/// Errors and denied requests of a trial.
pub const RED: RGBColor = RGBColor(207, 34, 46);
/// Requests above the limit.
pub const AMBER: RGBColor = RGBColor(191, 135, 0);

const FONT: &str = "system-ui, sans-serif";
const WIDTH: u32 = 760;
const MARGIN: u32 = 18;
const TITLE_HEIGHT: u32 = 34;

/// Draws an SVG of this height with a title; `draw` gets the area below the title.
///
/// # Errors
/// The error of `draw`.
pub fn svg(
    title: &str,
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, String> {
    let mut svg = String::new();
    let drawn = (|| {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE)?;
        // XML does not allow control characters.
        let title: String = title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let style = (FONT, 18).into_font().style(FontStyle::Bold).color(&INK);
        root.draw(&Text::new(title, (MARGIN as i32, 10), style))?;
        draw(&root.margin(TITLE_HEIGHT, 0, 0, 0))?;
        root.present()?;
        Ok(())
    })();
    drawn.map_err(|error: Box<dyn Error>| format!("the plot cannot be drawn: {error}"))?;
    Ok(svg)
}

/// A chart with the common margins; `labels` is the width of the labels of the y axis.
pub fn chart<'a, 'b>(area: &'a Area<'b>, labels: u32) -> ChartBuilder<'a, 'a, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin_left(MARGIN).margin_right(MARGIN).margin_top(8).y_label_area_size(labels);
    chart.x_label_area_size(44);
    chart
}

/// Applies the common style to the axes and the grid.
pub fn style<'m, 'a, 'b, X, Y, DB>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB>
where
    X: Ranged + ValueFormatter<X::ValueType>,
    Y: Ranged + ValueFormatter<Y::ValueType>,
    DB: DrawingBackend,
{
    mesh.axis_style(PALE)
        .bold_line_style(GRID)
        .max_light_lines(0)
        .label_style(text(&PALE))
        .axis_desc_style(text(&INK))
}

/// Text of labels.
#[must_use]
pub fn text(color: &'static RGBColor) -> TextStyle<'static> {
    (FONT, 14).into_font().color(color)
}

/// Style of lines.
#[must_use]
pub fn stroke(color: RGBColor) -> ShapeStyle {
    color.stroke_width(2)
}

/// A round number of microseconds, for an axis.
///
/// ```
/// use sluicegate_plot::time_label;
///
/// assert_eq!([0.1, 100.0, 1e4, 1e6].map(time_label), ["100 ns", "100 µs", "10 ms", "1 s"]);
/// ```
#[must_use]
pub fn time_label(us: f64) -> String {
    match us {
        _ if us < 0.999 => format!("{} ns", (us * 1e3).round()),
        _ if us < 999.0 => format!("{} µs", us.round()),
        _ if us < 999_000.0 => format!("{} ms", (us / 1e3).round()),
        _ => format!("{} s", (us / 1e6).round()),
    }
}
