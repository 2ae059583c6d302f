//! Series over two axes.

use super::axis::{Axis, Placed};
use super::svg::{Mark, Svg, color, px, stroke};
use super::table::{Table, figure};

/// The maximum number of points of a line for which each is marked.
const MARKED_MAX: usize = 64;

/// Lines, points, steps and level rules over two axes. Series are drawn in the order of their
/// addition.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

#[derive(Clone, PartialEq, Debug)]
struct Series {
    name: String,
    kind: Kind,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Line,
    Points,
    Steps,
    Rule,
}

impl Chart {
    #[must_use]
    pub fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self { title: title.to_owned(), x, y, series: Vec::new() }
    }

    /// A line through these points, in this order.
    #[must_use]
    pub fn line(self, name: &str, points: &[(f64, f64)]) -> Self {
        self.with(name, Kind::Line, points.to_vec())
    }

    /// Points without a line: single figures, such as published ones.
    #[must_use]
    pub fn points(self, name: &str, points: &[(f64, f64)]) -> Self {
        self.with(name, Kind::Points, points.to_vec())
    }

    /// Values that hold until the next one, with the area below them. The last one only ends the
    /// area.
    #[must_use]
    pub fn steps(self, name: &str, points: &[(f64, f64)]) -> Self {
        self.with(name, Kind::Steps, points.to_vec())
    }

    /// A horizontal line across the whole chart.
    #[must_use]
    pub fn rule(self, name: &str, y: f64) -> Self {
        self.with(name, Kind::Rule, vec![(f64::NAN, y)])
    }

    fn with(mut self, name: &str, kind: Kind, points: Vec<(f64, f64)>) -> Self {
        self.series.push(Series { name: name.to_owned(), kind, points });
        self
    }

    /// The complete SVG picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let mark = |kind| match kind {
            Kind::Line | Kind::Rule => Mark::Line,
            Kind::Points => Mark::Point,
            Kind::Steps => Mark::Area,
        };
        let legend: Vec<(&str, Mark)> =
            self.series.iter().map(|series| (series.name.as_str(), mark(series.kind))).collect();
        let names: Vec<&str> = legend.iter().map(|(name, _)| *name).collect();
        let description = format!("{} over {}: {}", self.y.title, self.x.title, names.join(", "));
        let mut svg = Svg::new(&self.title, &description, &legend);
        let (left, right, bottom, top) = svg.plot();
        let all = || self.series.iter().flat_map(|series| &series.points);
        let x = self.x.place(all().map(|point| point.0), false, left, right);
        let y = self.y.place(all().map(|point| point.1), true, bottom, top);
        svg.x_axis(&x);
        svg.y_axis(&self.y, &y);
        for (number, series) in self.series.iter().enumerate() {
            svg.put(&format!("<g class=\"c{}\">\n", color(number)));
            self.draw(&mut svg, number, series, (&x, &y));
            svg.put("</g>\n");
        }
        svg.x_base(&self.x.title);
        svg.finish()
    }

    fn draw(&self, svg: &mut Svg, number: usize, series: &Series, (x, y): (&Placed, &Placed)) {
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .copied()
            .filter(|point| self.x.takes(point.0) && self.y.takes(point.1))
            .collect();
        let at = |point: &(f64, f64)| (x.at(point.0), y.at(point.1));
        let line = format!("fill=\"none\" {}", stroke(number));
        match series.kind {
            Kind::Rule => {
                for &(_, level) in series.points.iter().filter(|point| self.y.takes(point.1)) {
                    let (left, right) = (px(x.start_px), px(x.end_px));
                    svg.path(&format!("M{left} {}H{right}", px(y.at(level))), &line);
                }
            }
            Kind::Steps => {
                let Some((first, rest)) = points.split_first() else { return };
                let (start, level) = at(first);
                let mut edge = format!("M{} {}", px(start), px(level));
                for point in rest {
                    let (step, level) = at(point);
                    edge += &format!("H{}V{}", px(step), px(level));
                }
                let end = px(points.last().map_or(start, |point| at(point).0));
                let base = px(y.base());
                let area = format!("{edge}V{base}H{}Z", px(start));
                svg.path(&area, "fill=\"currentColor\" fill-opacity=\"0.25\" stroke=\"none\"");
                svg.path(&format!("{edge}H{end}"), &line);
            }
            Kind::Line | Kind::Points => {
                if series.kind == Kind::Line && points.len() > 1 {
                    let mut path = String::new();
                    for (index, point) in points.iter().enumerate() {
                        let (x, y) = at(point);
                        path +=
                            &format!("{}{} {}", if index == 0 { "M" } else { "L" }, px(x), px(y));
                    }
                    svg.path(&path, &line);
                }
                if series.kind == Kind::Points || points.len() <= MARKED_MAX {
                    for point in &points {
                        let (x, y) = at(point);
                        let told =
                            format!("{}: {}, {}", series.name, figure(point.0), figure(point.1));
                        svg.marker(number, x, y, &told);
                    }
                }
            }
        }
    }

    /// The original values, one row each.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["series", &self.x.title, &self.y.title]);
        for series in &self.series {
            for &(x, y) in &series.points {
                let x = if series.kind == Kind::Rule { String::new() } else { x.to_string() };
                table = table.row(&[series.name.clone(), x, y.to_string()]);
            }
        }
        table
    }

    #[must_use]
    pub fn csv(&self) -> String {
        self.table().csv()
    }
}
