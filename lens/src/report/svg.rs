//! Slot time by cause over time, as a picture that needs no script.

use std::fmt::Write as _;

use super::Report;
use crate::causes::CAUSES;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 180.0;

/// Stacked areas; the first cause is at the bottom. Their classes are `cause0`, `cause1`, ...
pub(super) fn causes(report: &Report<'_>) -> String {
    let series = &report.causes.series;
    if series.is_empty() || report.slots == 0 {
        return String::new();
    }
    let x = |step: usize| step as f64 * WIDTH / series.len() as f64;
    let y = |slots: f64| HEIGHT - slots * HEIGHT / report.slots as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"Slots by cause over time\">\n"
    );
    let mut below = vec![0.0; series.len()];
    for (number, (_, word)) in CAUSES.iter().enumerate() {
        let above: Vec<f64> =
            series.iter().zip(&below).map(|(it, below)| below + it.all()[number]).collect();
        if above.iter().zip(&below).all(|(above, below)| above - below < 1e-9) {
            continue;
        }
        let mut path = String::new();
        let mut point = |x: f64, y: f64| {
            let sign = if path.is_empty() { 'M' } else { 'L' };
            // Writing to a string does not fail.
            let _ = write!(path, "{sign}{x:.1} {y:.1}");
        };
        for (step, &slots) in above.iter().enumerate() {
            point(x(step), y(slots));
            point(x(step + 1), y(slots));
        }
        for (step, &slots) in below.iter().enumerate().rev() {
            point(x(step + 1), y(slots));
            point(x(step), y(slots));
        }
        let _ = writeln!(
            svg,
            "<path class=\"cause{number}\" d=\"{path}Z\"><title>{word}</title></path>"
        );
        below = above;
    }
    svg + "</svg>\n"
}
