//! The SVG parts that all charts share: the frame, the legend, the axes, and escaped text.

use std::fmt::Write as _;

use super::axis::{Axis, Placed};

pub(super) const WIDTH_PX: f64 = 720.0;
pub(super) const HEIGHT_PX: f64 = 400.0;
const LEFT_PX: f64 = 76.0;
const RIGHT_PX: f64 = WIDTH_PX - 20.0;
const BOTTOM_PX: f64 = HEIGHT_PX - 52.0;
const TITLE_BASELINE_PX: f64 = 24.0;
const LEGEND_TOP_PX: f64 = 46.0;
const LEGEND_ROW_PX: f64 = 18.0;
/// The assumed width of a character in the legend, an upper estimate.
const CHARACTER_PX: f64 = 7.2;
/// The number of colours before they repeat.
const COLORS: usize = 8;
/// Dashes, so that lines differ without colour.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];

/// Colours that most eyes can distinguish, on light and on dark.
const STYLE: &str = "\
.starling-chart{font:13px system-ui,sans-serif;color:#1b1f24;background:#fff}\
.starling-chart .grid{color:#d8dce1}\
.starling-chart .c0{color:#0072b2}.starling-chart .c1{color:#d55e00}\
.starling-chart .c2{color:#009e73}.starling-chart .c3{color:#b2509a}\
.starling-chart .c4{color:#b07a00}.starling-chart .c5{color:#3a8fc9}\
.starling-chart .c6{color:#6b6f76}.starling-chart .c7{color:#a3262b}\
@media (prefers-color-scheme:dark){\
.starling-chart{color:#e4e7ea;background:#16191d}.starling-chart .grid{color:#363b42}\
.starling-chart .c0{color:#4aa8e0}.starling-chart .c1{color:#ff8a3d}\
.starling-chart .c2{color:#2fcb9d}.starling-chart .c3{color:#e08cc6}\
.starling-chart .c4{color:#e6b23a}.starling-chart .c5{color:#8fc7f0}\
.starling-chart .c6{color:#a9aeb6}.starling-chart .c7{color:#f07178}}";

/// Escapes text for markup, and removes the control characters that XML forbids.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A pixel coordinate, to a tenth.
pub(super) fn px(value: f64) -> String {
    let tenths = (value * 10.0).round() / 10.0;
    // Adding 0 turns a negative zero into a plain one.
    format!("{}", tenths + 0.0)
}

/// The index of the colour of a series.
pub(super) fn color(series: usize) -> usize {
    series % COLORS
}

pub(super) fn dash(series: usize) -> &'static str {
    DASHES[series / 2 % DASHES.len()]
}

/// An SVG picture under construction.
#[derive(Debug)]
pub(super) struct Svg {
    text: String,
    /// The top of the plot area.
    pub(super) top_px: f64,
}

/// The mark of a series in the legend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    Line,
    Point,
    Area,
}

impl Svg {
    /// The frame with its title and legend.
    pub(super) fn new(title: &str, description: &str, legend: &[(&str, Mark)]) -> Self {
        let mut svg = Self { text: String::new(), top_px: LEGEND_TOP_PX };
        let (width, height) = (px(WIDTH_PX), px(HEIGHT_PX));
        let label = escape(title);
        svg.put(&format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"starling-chart\" role=\"img\" \
             aria-label=\"{label}\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<title>{label}</title>\n<desc>{}</desc>\n\
             <style>{STYLE}</style>\n",
            escape(description)
        ));
        svg.label(LEFT_PX, TITLE_BASELINE_PX, "font-size=\"16\" font-weight=\"600\"", title);
        svg.legend(legend);
        svg
    }

    fn legend(&mut self, legend: &[(&str, Mark)]) {
        let mut left = LEFT_PX;
        for (series, (name, mark)) in legend.iter().enumerate() {
            let width = 34.0 + name.chars().count() as f64 * CHARACTER_PX;
            if left > LEFT_PX && left + width > RIGHT_PX {
                left = LEFT_PX;
                self.top_px += LEGEND_ROW_PX;
            }
            let middle = self.top_px - 5.0;
            self.put(&format!("<g class=\"c{}\">", color(series)));
            match mark {
                Mark::Line => self.path(
                    &format!("M{} {}h20", px(left), px(middle)),
                    &format!("fill=\"none\" {}", stroke(series)),
                ),
                Mark::Point => self.marker(series, left + 10.0, middle, ""),
                Mark::Area => self.rect(left + 2.0, middle - 6.0, 16.0, 12.0, ""),
            }
            self.put("</g>");
            self.label(left + 26.0, self.top_px, "", name);
            left += width;
        }
        self.top_px += 14.0;
    }

    pub(super) fn put(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    /// Text with its baseline at this point; `attributes` are written into the tag unchanged.
    pub(super) fn label(&mut self, x_px: f64, y_px: f64, attributes: &str, text: &str) {
        let (x, y, text) = (px(x_px), px(y_px), escape(text));
        let _ = writeln!(
            self.text,
            "<text x=\"{x}\" y=\"{y}\" fill=\"currentColor\" {attributes}>{text}</text>"
        );
    }

    pub(super) fn path(&mut self, data: &str, attributes: &str) {
        let _ = writeln!(self.text, "<path d=\"{data}\" {attributes}/>");
    }

    /// A rectangle in the colour of its group; its title is shown as a tooltip.
    pub(super) fn rect(
        &mut self,
        x_px: f64,
        y_px: f64,
        width_px: f64,
        height_px: f64,
        title: &str,
    ) {
        let (x, y, width, height) = (px(x_px), px(y_px), px(width_px), px(height_px));
        let title = title_tag(title);
        let _ = writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             fill=\"currentColor\">{title}</rect>"
        );
    }

    /// A point with a shape that depends on its series.
    pub(super) fn marker(&mut self, series: usize, x_px: f64, y_px: f64, title: &str) {
        let (x, y) = (px(x_px), px(y_px));
        let form = match series % 4 {
            0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
            1 => "m-3.5 -3.5h7v7h-7z",
            2 => "m0 -5l5 5l-5 5l-5 -5z",
            _ => "m0 -5l4.5 8h-9z",
        };
        let title = title_tag(title);
        let _ = writeln!(
            self.text,
            "<path class=\"point\" d=\"M{x} {y}{form}\" fill=\"currentColor\">{title}</path>"
        );
    }

    /// The plot area: left, right, bottom, top.
    pub(super) fn plot(&self) -> (f64, f64, f64, f64) {
        (LEFT_PX, RIGHT_PX, BOTTOM_PX, self.top_px)
    }

    /// The horizontal lines and labels of the vertical axis.
    pub(super) fn y_axis(&mut self, axis: &Axis, placed: &Placed) {
        let (left, right, bottom, top) = self.plot();
        for (at, label) in placed.ticks() {
            let line = format!("M{} {}H{}", px(left), px(at), px(right));
            self.path(&line, "class=\"grid\" fill=\"none\" stroke=\"currentColor\"");
            self.label(left - 8.0, at + 4.0, "text-anchor=\"end\"", &label);
        }
        let (x, y) = (18.0, f64::midpoint(top, bottom));
        let turn = format!("text-anchor=\"middle\" transform=\"rotate(-90 {} {})\"", px(x), px(y));
        self.label(x, y, &turn, &axis.title);
    }

    /// The vertical lines and labels of the horizontal axis.
    pub(super) fn x_axis(&mut self, placed: &Placed) {
        let (_, _, bottom, top) = self.plot();
        for (at, label) in placed.ticks() {
            let line = format!("M{} {}V{}", px(at), px(bottom), px(top));
            self.path(&line, "class=\"grid\" fill=\"none\" stroke=\"currentColor\"");
            self.label(at, bottom + 18.0, "text-anchor=\"middle\"", &label);
        }
    }

    /// The base line, and the title of the horizontal axis.
    pub(super) fn x_base(&mut self, title: &str) {
        let (left, right, bottom, _) = self.plot();
        let line = format!("M{} {}H{}", px(left), px(bottom), px(right));
        self.path(&line, "fill=\"none\" stroke=\"currentColor\"");
        let middle = f64::midpoint(left, right);
        self.label(middle, HEIGHT_PX - 12.0, "text-anchor=\"middle\"", title);
    }

    pub(super) fn finish(mut self) -> String {
        self.put("</svg>\n");
        self.text
    }
}

/// The attributes of a series' line.
pub(super) fn stroke(series: usize) -> String {
    let dash = dash(series);
    let dash =
        if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("stroke=\"currentColor\" stroke-width=\"2\" stroke-linejoin=\"round\"{dash}")
}

fn title_tag(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}
