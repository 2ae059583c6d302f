//! The distances of TSPLIB as whole numbers: the same on all machines, though the last bit of a
//! cosine may not be.

use crate::problems::tsp::parse::DISTANCE_MAX;

/// A rule that gives the distance of two points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Metric {
    /// `EUC_2D`: rounded to the nearest whole number.
    Euclidean,
    /// `CEIL_2D`: rounded up.
    EuclideanUp,
    /// `GEO`: on the sphere; coordinates are degrees and minutes.
    Geographic,
    /// `ATT`.
    PseudoEuclidean,
}

/// TSPLIB defines this value; with more digits some distances differ.
#[expect(clippy::approx_constant, reason = "TSPLIB defines six digits")]
const PI: f64 = 3.141_592;
const EARTH_KM: f64 = 6_378.388;

/// The full matrix; none if a distance is over [`DISTANCE_MAX`].
pub(crate) fn matrix(points: &[(f64, f64)], metric: Metric) -> Option<Vec<i64>> {
    let mut matrix = Vec::with_capacity(points.len() * points.len());
    for (row, &from) in points.iter().enumerate() {
        for (column, &to) in points.iter().enumerate() {
            let distance = if row == column { 0 } else { distance(from, to, metric) };
            if distance > DISTANCE_MAX {
                return None;
            }
            matrix.push(distance);
        }
    }
    Some(matrix)
}

fn distance(from: (f64, f64), to: (f64, f64), metric: Metric) -> i64 {
    let (dx, dy) = (from.0 - to.0, from.1 - to.1);
    let square = dx * dx + dy * dy;
    match metric {
        Metric::Euclidean => whole(square.sqrt() + 0.5),
        Metric::EuclideanUp => whole(square.sqrt().ceil()),
        Metric::Geographic => geographic(from, to),
        Metric::PseudoEuclidean => {
            let exact = (square / 10.0).sqrt();
            let near = (exact + 0.5).floor();
            whole(if near < exact { near + 1.0 } else { near })
        }
    }
}

fn geographic(from: (f64, f64), to: (f64, f64)) -> i64 {
    let (latitude, longitude) = (radians(from.0), radians(from.1));
    let (other_latitude, other_longitude) = (radians(to.0), radians(to.1));
    let q1 = (longitude - other_longitude).cos();
    let q2 = (latitude - other_latitude).cos();
    let q3 = (latitude + other_latitude).cos();
    let cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3);
    whole(EARTH_KM * cosine.clamp(-1.0, 1.0).acos() + 1.0)
}

/// Degrees before the point, minutes after it.
fn radians(coordinate: f64) -> f64 {
    let degrees = coordinate.trunc();
    let minutes = coordinate - degrees;
    PI * (degrees + 5.0 * minutes / 3.0) / 180.0
}

/// The whole part; coordinates are below 1e9, so the number fits.
#[expect(clippy::cast_possible_truncation, reason = "the whole part is wanted and fits")]
fn whole(number: f64) -> i64 {
    number as i64
}
