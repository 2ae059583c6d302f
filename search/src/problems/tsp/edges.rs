//! Decisions about edges at one node of the search, and their consequences.

use crate::problems::tsp::Instance;

/// The state of an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Edge {
    Free,
    Required,
    Forbidden,
}

/// By pair of cities: the state of its edge. Both directions are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edges {
    cities: usize,
    states: Vec<Edge>,
}

/// No tour satisfies all decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Infeasible;

impl Edges {
    pub(crate) fn new(cities: usize) -> Self {
        let mut edges = Self { cities, states: vec![Edge::Free; cities * cities] };
        for city in 0..cities {
            edges.states[city * cities + city] = Edge::Forbidden;
        }
        edges
    }

    pub(crate) fn get(&self, one: usize, other: usize) -> Edge {
        self.states[one * self.cities + other]
    }

    /// Decides a free edge. The opposite of an earlier decision is infeasible.
    pub(crate) fn decide(
        &mut self,
        one: usize,
        other: usize,
        state: Edge,
    ) -> Result<(), Infeasible> {
        let known = self.get(one, other);
        if known != Edge::Free && known != state {
            return Err(Infeasible);
        }
        self.states[one * self.cities + other] = state;
        self.states[other * self.cities + one] = state;
        Ok(())
    }

    /// The cities at the other ends of a city's edges in a state.
    pub(crate) fn ends(&self, city: usize, state: Edge) -> impl Iterator<Item = usize> + '_ {
        let row = &self.states[city * self.cities..][..self.cities];
        let is_it = move |(other, known): (usize, &Edge)| {
            (*known == state && other != city).then_some(other)
        };
        row.iter().enumerate().filter_map(is_it)
    }

    /// Draws all conclusions of the degrees and of closed paths.
    pub(crate) fn propagate(&mut self) -> Result<(), Infeasible> {
        loop {
            let mut changed = false;
            for city in 0..self.cities {
                changed |= self.propagate_degree(city)?;
            }
            changed |= self.forbid_short_cycles()?;
            if !changed {
                return Ok(());
            }
        }
    }

    /// Two required edges at a city forbid the others; two that are left are required.
    fn propagate_degree(&mut self, city: usize) -> Result<bool, Infeasible> {
        let required = self.ends(city, Edge::Required).count();
        let free: Vec<usize> = self.ends(city, Edge::Free).collect();
        if required > 2 || required + free.len() < 2 {
            return Err(Infeasible);
        }
        if free.is_empty() {
            return Ok(false);
        }
        let state = match required {
            2 => Edge::Forbidden,
            _ if required + free.len() == 2 => Edge::Required,
            _ => return Ok(false),
        };
        for other in free {
            self.decide(city, other, state)?;
        }
        Ok(true)
    }

    /// Forbids the edge that closes a path of required edges, unless the path has all cities.
    fn forbid_short_cycles(&mut self) -> Result<bool, Infeasible> {
        let mut seen = vec![false; self.cities];
        let mut changed = false;
        for first in 0..self.cities {
            if seen[first] || self.ends(first, Edge::Required).count() != 1 {
                continue;
            }
            let (last, length) = self.follow(first, &mut seen);
            if length < self.cities && self.get(first, last) == Edge::Free {
                self.decide(first, last, Edge::Forbidden)?;
                changed = true;
            }
        }
        self.refuse_short_cycle(&mut seen)?;
        Ok(changed)
    }

    /// Follows required edges from an end of their path to the other end; counts the cities.
    fn follow(&self, first: usize, seen: &mut [bool]) -> (usize, usize) {
        let (mut city, mut length) = (first, 1);
        seen[first] = true;
        loop {
            let next = self.ends(city, Edge::Required).find(|&next| !seen[next]);
            let Some(next) = next else { return (city, length) };
            seen[next] = true;
            (city, length) = (next, length + 1);
        }
    }

    /// Cities that no path has reached and that have required edges are on a cycle of these.
    fn refuse_short_cycle(&self, seen: &mut [bool]) -> Result<(), Infeasible> {
        for first in 0..self.cities {
            if seen[first] || self.ends(first, Edge::Required).next().is_none() {
                continue;
            }
            if self.follow(first, seen).1 < self.cities {
                return Err(Infeasible);
            }
        }
        Ok(())
    }

    /// The distances of the instance, with required edges far below and forbidden far above them.
    pub(crate) fn costs(&self, instance: &Instance, scale: i64, far: i64) -> Vec<i64> {
        let state = self.states.iter().zip(&instance.distances);
        state
            .map(|(state, distance)| match state {
                Edge::Free => distance * scale,
                Edge::Required => distance * scale - far,
                Edge::Forbidden => distance * scale + far,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_required_edges_forbid_the_others_of_their_city() {
        let mut edges = Edges::new(5);
        edges.decide(0, 1, Edge::Required).unwrap();
        edges.decide(0, 2, Edge::Required).unwrap();
        edges.propagate().unwrap();
        assert_eq!(edges.get(0, 3), Edge::Forbidden);
        assert_eq!(edges.get(4, 0), Edge::Forbidden);
        // The edge that closes the path of three cities; then two edges are left at city 1.
        assert_eq!(edges.get(1, 2), Edge::Forbidden);
        assert_eq!(edges.get(1, 3), Edge::Free);
        assert_eq!(edges.decide(0, 3, Edge::Required), Err(Infeasible));
    }

    #[test]
    fn two_edges_that_are_left_are_required() {
        let mut edges = Edges::new(4);
        edges.decide(0, 1, Edge::Forbidden).unwrap();
        edges.propagate().unwrap();
        let required: Vec<usize> = edges.ends(0, Edge::Required).collect();
        assert_eq!(required, [2, 3]);
        assert_eq!(edges.get(2, 3), Edge::Forbidden);
        assert_eq!(edges.get(1, 2), Edge::Required);
    }

    #[test]
    fn a_cycle_of_some_cities_is_infeasible() {
        let mut edges = Edges::new(6);
        for (one, other) in [(0, 1), (1, 2), (2, 0)] {
            edges.decide(one, other, Edge::Required).unwrap();
        }
        assert_eq!(edges.propagate(), Err(Infeasible));
    }

    #[test]
    fn a_city_with_one_edge_is_infeasible() {
        let mut edges = Edges::new(4);
        edges.decide(0, 1, Edge::Forbidden).unwrap();
        edges.decide(0, 2, Edge::Forbidden).unwrap();
        assert_eq!(edges.propagate(), Err(Infeasible));
    }
}
