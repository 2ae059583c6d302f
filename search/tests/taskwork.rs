//! A travelling salesman with the callbacks of TASKWORK.

use std::cell::Cell;
use std::sync::Arc;

use search::taskwork::{States, Taskwork};
use search::{Bag, Optimise, Solution, Status, Tally, TreeBag, Vars};

/// The distances between all pairs of cities.
struct Tours(Vec<Vec<i64>>);

#[derive(Clone)]
struct Tour {
    path: Vec<usize>,
    cost: i64,
}

impl Tours {
    fn new(cities: i64) -> Self {
        let distance = |one: i64, other: i64| (one * 7 + other * 7 + one * other * 31) % 97 + 1;
        let row = |one| (0..cities).map(move |other| distance(one, other)).collect();
        Self((0..cities).map(row).collect())
    }

    fn last(tour: &Tour) -> usize {
        *tour.path.last().expect("a tour starts somewhere")
    }

    /// The cheapest tour, by trying all of them.
    fn cheapest(&self, tour: &Tour) -> i64 {
        let states = self.branch(tour);
        if self.is_leaf_state(tour) {
            return self.get_cost(tour);
        }
        states.iter().map(|state| self.cheapest(state)).min().expect("a city is left")
    }
}

impl States for Tours {
    type State = Tour;

    fn initial_state(&self) -> Tour {
        Tour { path: vec![0], cost: 0 }
    }

    fn branch(&self, tour: &Tour) -> Vec<Tour> {
        let last = Self::last(tour);
        let cities = (0..self.0.len()).filter(|city| !tour.path.contains(city));
        let states = cities.map(|city| {
            let path = tour.path.iter().copied().chain([city]).collect();
            Tour { path, cost: tour.cost + self.0[last][city] }
        });
        states.collect()
    }

    fn is_leaf_state(&self, tour: &Tour) -> bool {
        tour.path.len() == self.0.len()
    }

    fn get_cost(&self, tour: &Tour) -> i64 {
        tour.cost + self.0[Self::last(tour)][0]
    }

    fn get_lower_bound(&self, tour: &Tour) -> i64 {
        tour.cost + (self.0.len() - tour.path.len()) as i64
    }

    fn get_path(&self, tour: &Tour) -> Vec<i64> {
        tour.path.iter().map(|city| *city as i64).collect()
    }
}

struct UpperBound(Cell<i64>);

impl Vars for UpperBound {
    fn best(&self) -> i64 {
        self.0.get()
    }

    fn improve(&self, solution: Solution) {
        self.0.set(self.0.get().min(solution.value));
    }
}

#[test]
fn the_callbacks_find_the_cheapest_tour() {
    let tours = Tours::new(8);
    let cheapest = tours.cheapest(&tours.initial_state());
    let problem = Arc::new(Taskwork(tours));
    let mut nodes = Vec::new();
    for prune in [true, false] {
        let bound = UpperBound(Cell::new(i64::MAX));
        let mut bags = vec![TreeBag::new(Arc::clone(&problem), Optimise { prune })];
        let mut tally = Tally::default();
        // `potentialSplit`, as if a slot were always idle.
        while let Some(bag) = bags.last_mut() {
            let status = bag.step(50, &bound, &mut tally);
            let piece = bag.split();
            if status == Status::Empty {
                bags.pop();
            }
            bags.extend(piece);
        }
        assert_eq!(bound.best(), cheapest);
        nodes.push(tally.nodes);
    }
    assert!(nodes[0] < nodes[1], "bounds cut states off: {nodes:?}");
}
