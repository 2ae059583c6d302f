//! Finds a good tour before the search: nearest neighbours, then 2-opt and Or-opt, from several
//! first cities, then the same after double bridges.

use crate::problems::chance::Chance;
use crate::problems::tsp::Instance;

/// The most first cities that are tried.
const FIRST_MAX: usize = 20;
/// The number of double bridges that are tried, and cities times this many at most.
const KICKS: usize = 400;
/// The longest chain of cities that Or-opt moves.
const CHAIN_MAX: usize = 3;

/// A short tour. The same instance always has the same one.
pub(crate) fn tour(instance: &Instance) -> Vec<usize> {
    let firsts = instance.cities().min(FIRST_MAX);
    let mut best: Option<(i64, Vec<usize>)> = None;
    for first in 0..firsts {
        let mut tour = nearest_neighbours(instance, first);
        improve(instance, &mut tour);
        keep(instance, &mut best, tour);
    }
    let mut chance = Chance::new(1);
    let kicks = if instance.cities() < 8 { 0 } else { KICKS };
    for _ in 0..kicks {
        let Some((_, known)) = &best else { break };
        let mut tour = double_bridge(known, &mut chance);
        improve(instance, &mut tour);
        keep(instance, &mut best, tour);
    }
    best.map_or_else(Vec::new, |(_, tour)| tour)
}

fn keep(instance: &Instance, best: &mut Option<(i64, Vec<usize>)>, tour: Vec<usize>) {
    let length = instance.length(&tour);
    if best.as_ref().is_none_or(|(known, _)| length < *known) {
        *best = Some((length, tour));
    }
}

fn nearest_neighbours(instance: &Instance, first: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..instance.cities()).filter(|&city| city != first).collect();
    let mut tour = vec![first];
    let mut here = first;
    while let Some(place) = (0..left.len()).min_by_key(|&at| instance.distance(here, left[at])) {
        here = left.swap_remove(place);
        tour.push(here);
    }
    tour
}

/// Takes improving moves until there is none. Each shortens the tour, so this ends.
pub(crate) fn improve(instance: &Instance, tour: &mut [usize]) {
    while two_opt(instance, tour) || or_opt(instance, tour) {}
}

/// Reverses parts of the tour where that shortens it.
fn two_opt(instance: &Instance, tour: &mut [usize]) -> bool {
    let count = tour.len();
    let mut found = false;
    for from in 0..count.saturating_sub(2) {
        for to in from + 2..count {
            let (a, b) = (tour[from], tour[from + 1]);
            let (c, d) = (tour[to], tour[(to + 1) % count]);
            if a == d {
                continue;
            }
            let before = instance.distance(a, b) + instance.distance(c, d);
            if instance.distance(a, c) + instance.distance(b, d) < before {
                tour[from + 1..=to].reverse();
                found = true;
            }
        }
    }
    found
}

/// Moves one chain of cities to another place, possibly reversed, if that shortens the tour.
fn or_opt(instance: &Instance, tour: &mut [usize]) -> bool {
    let count = tour.len();
    for length in 1..=CHAIN_MAX.min(count.saturating_sub(3)) {
        for at in 0..count {
            // The chain is at the front of the turned tour.
            tour.rotate_left(usize::from(at > 0));
            let (first, last) = (tour[0], tour[length - 1]);
            let (before, after) = (tour[count - 1], tour[length]);
            let gain = instance.distance(before, first) + instance.distance(last, after)
                - instance.distance(before, after);
            for place in length..count - 1 {
                let (a, b) = (tour[place], tour[place + 1]);
                let gap = instance.distance(a, b);
                let straight = instance.distance(a, first) + instance.distance(last, b) - gap;
                let reversed = instance.distance(a, last) + instance.distance(first, b) - gap;
                if straight.min(reversed) < gain {
                    if reversed < straight {
                        tour[..length].reverse();
                    }
                    tour[..=place].rotate_left(length);
                    return true;
                }
            }
        }
    }
    false
}

/// Exchanges two neighbouring parts of the tour.
fn double_bridge(tour: &[usize], chance: &mut Chance) -> Vec<usize> {
    let mut cuts = [0; 3];
    for cut in &mut cuts {
        *cut = 1 + chance.below(tour.len() - 1);
    }
    cuts.sort_unstable();
    let [a, b, c] = cuts;
    [&tour[..a], &tour[b..c], &tour[a..b], &tour[c..]].concat()
}
