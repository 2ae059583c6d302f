//! The travelling salesman: the shortest closed tour through all cities.
//!
//! [`Tsp`] branches on edges and has the bound of Held and Karp. [`Paths`] extends a path city by
//! city and has the bound of a spanning tree, which is weaker and cheaper.
//! Witness: the cities of the tour in their order, from 0.

mod distance;
mod edges;
mod one_tree;
mod parse;
mod paths;
mod problem;
mod start;
#[cfg(test)]
mod tests;

pub use parse::{CITIES_MAX, DISTANCE_MAX, parse};
pub use paths::{Paths, PathsChildren, PathsNode};
pub use problem::{Tsp, TspChildren, TspNode};
#[cfg(test)]
pub(crate) use start::improve;

/// The symmetric distances of some cities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    cities: usize,
    /// By city and city.
    distances: Vec<i64>,
}

impl Instance {
    pub(crate) fn new(cities: usize, distances: Vec<i64>) -> Self {
        assert_eq!(distances.len(), cities * cities, "there is one distance for each pair");
        Self { cities, distances }
    }

    /// The number of cities.
    #[must_use]
    pub fn cities(&self) -> usize {
        self.cities
    }

    /// The distance of two cities.
    #[must_use]
    pub fn distance(&self, one: usize, other: usize) -> i64 {
        self.distances[one * self.cities + other]
    }

    /// The length of a closed tour.
    #[must_use]
    pub fn length(&self, tour: &[usize]) -> i64 {
        let next = tour.iter().cycle().skip(1);
        tour.iter().zip(next).map(|(&one, &other)| self.distance(one, other)).sum()
    }
}

/// Cities as the numbers of a witness.
fn witness(tour: &[usize]) -> Vec<i64> {
    tour.iter().map(|&city| crate::problems::text::to_i64(city)).collect()
}
