//! Groups of bars over categories.

use super::axis::Axis;
use super::svg::{Mark, Svg, color};
use super::table::{Table, figure};

/// The number of bars above which values are not written over them.
const LABELLED_MAX: usize = 24;
/// The share of a category that its bars take.
const FILLED_SHARE: f64 = 0.8;

/// One group of bars for each category, with one bar for each series.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    title: String,
    y: Axis,
    categories: Vec<String>,
    series: Vec<(String, Vec<Option<f64>>)>,
}

impl Bars {
    #[must_use]
    pub fn new(title: &str, y: Axis, categories: &[impl AsRef<str>]) -> Self {
        let categories = categories.iter().map(|name| name.as_ref().to_owned()).collect();
        Self { title: title.to_owned(), y, categories, series: Vec::new() }
    }

    /// Adds a series: a value for each category, in order. `None` draws no bar.
    #[must_use]
    pub fn series(mut self, name: &str, values: &[Option<f64>]) -> Self {
        self.series.push((name.to_owned(), values.to_vec()));
        self
    }

    /// The complete SVG picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let legend: Vec<(&str, Mark)> =
            self.series.iter().map(|(name, _)| (name.as_str(), Mark::Area)).collect();
        let description = format!("{} for {}", self.y.title, self.categories.join(", "));
        let mut svg = Svg::new(&self.title, &description, &legend);
        let (left, right, bottom, top) = svg.plot();
        let values = self.series.iter().flat_map(|(_, values)| values).copied().flatten();
        let y = self.y.place(values, true, bottom, top);
        svg.y_axis(&self.y, &y);
        let group_px = (right - left) / self.categories.len().max(1) as f64;
        let bar_px = group_px * FILLED_SHARE / self.series.len().max(1) as f64;
        let labelled = self.categories.len() * self.series.len() <= LABELLED_MAX;
        for (number, (name, values)) in self.series.iter().enumerate() {
            svg.put(&format!("<g class=\"c{}\">\n", color(number)));
            for (category, value) in self.categories.iter().zip(values).enumerate() {
                let (category_name, Some(value)) = value else { continue };
                if !self.y.takes(*value) {
                    continue;
                }
                let start = left
                    + group_px * (category as f64 + (1.0 - FILLED_SHARE) / 2.0)
                    + bar_px * number as f64;
                let (end, base) = (y.at(*value), y.base());
                let told = format!("{name}, {category_name}: {}", figure(*value));
                svg.rect(start + 1.0, end.min(base), bar_px - 2.0, (end - base).abs(), &told);
                if labelled {
                    let middle = start + bar_px / 2.0;
                    let attributes = "text-anchor=\"middle\" font-size=\"11\"";
                    svg.label(middle, end.min(base) - 4.0, attributes, &figure(*value));
                }
            }
            svg.put("</g>\n");
        }
        for (category, name) in self.categories.iter().enumerate() {
            let middle = left + group_px * (category as f64 + 0.5);
            svg.label(middle, bottom + 18.0, "text-anchor=\"middle\"", name);
        }
        svg.x_base("");
        svg.finish()
    }

    /// The original values: one row per category, one column per series.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut header = vec![""];
        header.extend(self.series.iter().map(|(name, _)| name.as_str()));
        let mut table = Table::new(&header);
        for (at, category) in self.categories.iter().enumerate() {
            let value = |values: &[Option<f64>]| {
                values.get(at).copied().flatten().map_or_else(String::new, |v| v.to_string())
            };
            let mut row = vec![category.clone()];
            row.extend(self.series.iter().map(|(_, values)| value(values)));
            table = table.row(&row);
        }
        table
    }

    #[must_use]
    pub fn csv(&self) -> String {
        self.table().csv()
    }
}
