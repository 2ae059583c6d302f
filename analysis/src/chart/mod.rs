/*!
Charts and pages as text: SVG, HTML and CSV without dependencies. `starling eval` uses them.

A [`Chart`] draws series over two axes (lines, points, steps with the area below them, and level
rules). [`Bars`] are groups of bars over categories, and a [`Table`] is rows of cells. Each is text
by itself. A [`Page`] combines them into one HTML file that needs no script, font or network, and
follows the reader's choice of light or dark.

Values that cannot be drawn (not finite, or not above zero on a logarithmic axis) are left out, so a
failed measurement leaves only a gap.

```
use analysis::chart::{Axis, Chart, Page, Table};
let chart = Chart::new("Throughput", Axis::new("cores").log(), Axis::new("tasks/s").from(0.0))
    .line("ours", &[(1.0, 20.0), (10.0, 190.0), (100.0, 1900.0)])
    .points("published", &[(100.0, 1500.0)]);
let table = Table::new(&["cores", "tasks/s"]).row(&["100", "1900"]);
let page = Page::new("How far it goes").heading("Throughput").figure(&chart.svg(), "").table(&table);
assert!(page.html().contains("<svg") && chart.csv().starts_with("series,cores,tasks/s\n"));
```
*/

mod axis;
mod bars;
mod page;
mod svg;
mod table;
mod xy;

pub use axis::Axis;
pub use bars::Bars;
pub use page::Page;
pub use table::{Table, figure};
pub use xy::Chart;

#[cfg(test)]
mod tests;
