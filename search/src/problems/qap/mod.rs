//! The quadratic assignment: each facility gets a location of its own, and each pair of facilities
//! pays its flow times the distance of its locations.
//!
//! The bound is that of Gilmore and Lawler. Symmetries of the locations are used: of locations
//! that are equal in all respects only one is tried.
//! Witness: by facility, its location, both from 0.

mod assignment;
mod gilmore_lawler;
mod parse;
mod problem;
mod start;
mod symmetry;
#[cfg(test)]
mod tests;

pub use parse::{ENTRY_MAX, SIZE_MAX, parse};
pub use problem::{Qap, QapChildren, QapNode};

/// Flows between facilities and distances between locations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    pub(crate) size: usize,
    /// By facility and facility.
    pub(crate) flows: Vec<i64>,
    /// By location and location.
    pub(crate) distances: Vec<i64>,
}

impl Instance {
    /// The number of facilities, and of locations.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn flow(&self, one: usize, other: usize) -> i64 {
        self.flows[one * self.size + other]
    }

    pub(crate) fn distance(&self, one: usize, other: usize) -> i64 {
        self.distances[one * self.size + other]
    }

    /// The cost of an assignment: by facility, its location.
    #[must_use]
    pub fn cost(&self, locations: &[usize]) -> i64 {
        let mut sum = 0;
        for (one, &here) in locations.iter().enumerate() {
            for (other, &there) in locations.iter().enumerate() {
                sum += self.flow(one, other) * self.distance(here, there);
            }
        }
        sum
    }

    /// Whether all costs are even: both matrices are symmetric and have zeros on the diagonal.
    pub(crate) fn is_even(&self) -> bool {
        let is_even = |matrix: &[i64]| {
            (0..self.size).all(|row| {
                matrix[row * self.size + row] == 0
                    && (0..row).all(|column| {
                        matrix[row * self.size + column] == matrix[column * self.size + row]
                    })
            })
        };
        is_even(&self.flows) && is_even(&self.distances)
    }
}
