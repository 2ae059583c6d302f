//! Finds a good assignment before the search: exchanges of two facilities, from several starts.

use crate::problems::chance::Chance;
use crate::problems::qap::Instance;

/// The number of assignments from which the exchanges start.
const STARTS: usize = 200;

/// A cheap assignment. The same instance always has the same one.
pub(crate) fn assignment(instance: &Instance) -> Vec<usize> {
    let mut chance = Chance::new(1);
    let mut locations: Vec<usize> = (0..instance.size).collect();
    let mut best: Option<(i64, Vec<usize>)> = None;
    for _ in 0..STARTS {
        improve(instance, &mut locations);
        let cost = instance.cost(&locations);
        if best.as_ref().is_none_or(|(known, _)| cost < *known) {
            best = Some((cost, locations.clone()));
        }
        for at in (1..locations.len()).rev() {
            locations.swap(at, chance.below(at + 1));
        }
    }
    best.map_or(locations, |(_, best)| best)
}

/// Exchanges pairs while that saves something. Each exchange lowers the cost, so this ends.
fn improve(instance: &Instance, locations: &mut [usize]) {
    loop {
        let mut found = false;
        for one in 0..locations.len() {
            for other in 0..one {
                if change(instance, locations, one, other) < 0 {
                    locations.swap(one, other);
                    found = true;
                }
            }
        }
        if !found {
            return;
        }
    }
}

/// The change of the cost when two facilities exchange their locations.
fn change(instance: &Instance, locations: &[usize], one: usize, other: usize) -> i64 {
    let flow = |from, to| instance.flow(from, to);
    let distance = |from, to| instance.distance(from, to);
    let (here, there) = (locations[one], locations[other]);
    let mut sum = (flow(one, one) - flow(other, other))
        * (distance(there, there) - distance(here, here))
        + (flow(one, other) - flow(other, one)) * (distance(there, here) - distance(here, there));
    for (third, &at) in locations.iter().enumerate() {
        if third != one && third != other {
            sum += (flow(one, third) - flow(other, third))
                * (distance(there, at) - distance(here, at));
            sum += (flow(third, one) - flow(third, other))
                * (distance(at, there) - distance(at, here));
        }
    }
    sum
}
