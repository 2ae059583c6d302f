//! The bound of Gilmore and Lawler at a partial assignment.
//!
//! A free facility at a free location pays at least: its flows to placed facilities, and the least
//! product of its other flows with the distances from there. The cheapest assignment of these costs
//! bounds all completions.

use crate::problems::qap::Instance;
use crate::problems::qap::assignment::{Assignment, solve};

/// The rows of both matrices, sorted once.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// By facility: the others, by decreasing flow to them.
    flows: Vec<Vec<(i64, u8)>>,
    /// By location: the others, by increasing distance to them.
    distances: Vec<Vec<(i64, u8)>>,
}

/// A partial assignment. Free facilities and locations are as many.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    /// By facility: its location.
    pub(crate) locations: Vec<Option<u8>>,
    /// The cost of all pairs of placed facilities.
    pub(crate) cost: i64,
    /// A bit for each free location.
    pub(crate) free: u64,
}

/// The bound of a partial assignment, and the assignment of the rest that it comes from.
pub(crate) struct Bounded {
    pub(crate) bound: i64,
    /// The free facilities: the rows of `rest`.
    pub(crate) facilities: Vec<usize>,
    /// The free locations: the columns of `rest`.
    pub(crate) sites: Vec<usize>,
    pub(crate) rest: Assignment,
}

impl Partial {
    pub(crate) fn new(size: usize) -> Self {
        Self { locations: vec![None; size], cost: 0, free: u64::MAX >> (64 - size) }
    }

    /// The placed facilities with their locations.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let known = self.locations.iter().enumerate();
        known.filter_map(|(facility, at)| at.map(|at| (facility, usize::from(at))))
    }

    pub(crate) fn is_free(&self, location: usize) -> bool {
        self.free >> location & 1 == 1
    }

    /// The cost that one more facility adds to the placed ones.
    pub(crate) fn added(&self, instance: &Instance, facility: usize, location: usize) -> i64 {
        let own = instance.flow(facility, facility) * instance.distance(location, location);
        let pairs = self.placed().map(|(other, at)| {
            instance.flow(facility, other) * instance.distance(location, at)
                + instance.flow(other, facility) * instance.distance(at, location)
        });
        own + pairs.sum::<i64>()
    }

    pub(crate) fn place(&mut self, instance: &Instance, facility: usize, location: u8) {
        self.cost += self.added(instance, facility, usize::from(location));
        self.locations[facility] = Some(location);
        self.free &= !(1 << location);
    }
}

impl Sorted {
    pub(crate) fn new(instance: &Instance) -> Self {
        let rows = |matrix: &[i64], sign: i64| -> Vec<Vec<(i64, u8)>> {
            let row = |at: usize| {
                let numbers = (0..=u8::MAX).zip(&matrix[at * instance.size..][..instance.size]);
                let others = numbers.filter(|(other, _)| usize::from(*other) != at);
                let mut others: Vec<(i64, u8)> = others.map(|(to, &number)| (number, to)).collect();
                others.sort_by_key(|(number, _)| sign * number);
                others
            };
            (0..instance.size).map(row).collect()
        };
        Self { flows: rows(&instance.flows, -1), distances: rows(&instance.distances, 1) }
    }

    pub(crate) fn bound(&self, instance: &Instance, partial: &Partial) -> Bounded {
        let size = instance.size;
        let is_free = |facility: &usize| partial.locations[*facility].is_none();
        let facilities: Vec<usize> = (0..size).filter(is_free).collect();
        let sites: Vec<usize> = (0..size).filter(|&site| partial.is_free(site)).collect();
        let flows = facilities.iter().map(|&facility| {
            let row = self.flows[facility].iter();
            let free = row.filter(|(_, other)| partial.locations[usize::from(*other)].is_none());
            free.map(|(flow, _)| *flow).collect()
        });
        let flows: Vec<Vec<i64>> = flows.collect();
        let distances = sites.iter().map(|&site| {
            let row = self.distances[site].iter();
            let free = row.filter(|(_, other)| partial.is_free(usize::from(*other)));
            free.map(|(distance, _)| *distance).collect()
        });
        let distances: Vec<Vec<i64>> = distances.collect();
        let mut costs = Vec::with_capacity(facilities.len() * facilities.len());
        for (&facility, flows) in facilities.iter().zip(&flows) {
            for (&site, distances) in sites.iter().zip(&distances) {
                let least: i64 = flows.iter().zip(distances).map(|(flow, far)| flow * far).sum();
                costs.push(partial.added(instance, facility, site) + least);
            }
        }
        let rest = solve(&costs, facilities.len());
        Bounded { bound: partial.cost + rest.cost, facilities, sites, rest }
    }
}

impl Bounded {
    /// The complete assignment of the bound.
    pub(crate) fn complete(&self, partial: &Partial) -> Vec<usize> {
        let placed = partial.locations.iter().map(|at| at.map_or(0, usize::from));
        let mut locations: Vec<usize> = placed.collect();
        for (row, &facility) in self.facilities.iter().enumerate() {
            locations[facility] = self.sites[self.rest.columns[row]];
        }
        locations
    }
}
