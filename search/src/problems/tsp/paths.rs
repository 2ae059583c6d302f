//! Branch and bound on paths: a node is a path from city 0. The bound is the path, the shortest
//! tree of the cities that are left, and the shortest edges to both ends of the path.

use crate::problems::ProblemError;
use crate::problems::tsp::{Instance, start, witness};
use crate::{Problem, Solution};

/// The most cities: a node has one bit for each.
const CITIES_MAX: usize = 64;

/// The travelling salesman, with the bound of a spanning tree.
#[derive(Debug)]
pub struct Paths {
    instance: Instance,
    start: Vec<usize>,
}

/// A path from city 0.
#[derive(Clone, Debug)]
pub struct PathsNode {
    path: Vec<u8>,
    /// A bit for each city that is not on the path.
    left: u64,
    length: i64,
}

/// The cities that may follow a path, the nearest last.
#[derive(Clone, Debug)]
pub struct PathsChildren {
    node: PathsNode,
    next: Vec<u8>,
}

impl Paths {
    /// # Errors
    /// If the instance has too many cities.
    pub fn new(instance: Instance) -> Result<Self, ProblemError> {
        let cities = instance.cities();
        if cities > CITIES_MAX {
            let message = format!("a path may have {CITIES_MAX} cities, but there are {cities}");
            return Err(ProblemError::content(message, "use tsp: instead of tsp-paths:"));
        }
        let start = start::tour(&instance);
        Ok(Self::with_start(instance, start))
    }

    pub(crate) fn with_start(instance: Instance, start: Vec<usize>) -> Self {
        Self { instance, start }
    }

    fn last(node: &PathsNode) -> usize {
        node.path.last().map_or(0, |&city| usize::from(city))
    }

    /// The shortest spanning tree of the cities that are left, by Prim's algorithm, and the
    /// shortest edges from there to both ends of the path.
    fn rest(&self, node: &PathsNode) -> i64 {
        let last = Self::last(node);
        let mut left: [u8; CITIES_MAX] = [0; CITIES_MAX];
        let mut key = [i64::MAX; CITIES_MAX];
        let mut count = 0;
        let (mut to_first, mut to_last) = (i64::MAX, i64::MAX);
        for city in cities(node.left) {
            (left[count], count) = (city, count + 1);
            to_first = to_first.min(self.instance.distance(0, usize::from(city)));
            to_last = to_last.min(self.instance.distance(last, usize::from(city)));
        }
        if count == 0 {
            return self.instance.distance(last, 0);
        }
        let mut sum = to_first + to_last;
        count -= 1;
        let mut joined = usize::from(left[count]);
        while count > 0 {
            let (mut least, mut place) = (i64::MAX, 0);
            for at in 0..count {
                let distance = self.instance.distance(joined, usize::from(left[at]));
                key[at] = key[at].min(distance);
                if key[at] < least {
                    (least, place) = (key[at], at);
                }
            }
            sum += least;
            count -= 1;
            joined = usize::from(left[place]);
            (left[place], key[place]) = (left[count], key[count]);
        }
        sum
    }
}

/// The cities of a set, in order.
fn cities(mut set: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let city = u8::try_from(set.trailing_zeros()).ok().filter(|_| set != 0)?;
        set &= set - 1;
        Some(city)
    })
}

impl Problem for Paths {
    type Node = PathsNode;
    type Children = PathsChildren;

    fn root(&self) -> PathsNode {
        let all = u64::MAX >> (CITIES_MAX - self.instance.cities());
        PathsNode { path: vec![0], left: all & !1, length: 0 }
    }

    fn children(&self, node: PathsNode) -> PathsChildren {
        let last = Self::last(&node);
        let mut next: Vec<u8> = cities(node.left).collect();
        // Of a tour and its reverse only one is searched: city 1 comes before city 2.
        if node.left & 0b110 == 0b110 {
            next.retain(|&city| city != 2);
        }
        next.sort_by_key(|&city| -self.instance.distance(last, usize::from(city)));
        PathsChildren { node, next }
    }

    fn next(&self, children: &mut PathsChildren) -> Option<PathsNode> {
        let city = children.next.pop()?;
        let node = &children.node;
        let mut path = Vec::with_capacity(node.path.len() + 1);
        path.extend_from_slice(&node.path);
        path.push(city);
        let step = self.instance.distance(Self::last(node), usize::from(city));
        Some(PathsNode { path, left: node.left & !(1 << city), length: node.length + step })
    }

    fn left(&self, children: &PathsChildren) -> u32 {
        u32::try_from(children.next.len()).unwrap_or(u32::MAX)
    }

    fn skip(&self, children: &mut PathsChildren, count: u32) {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        children.next.truncate(children.next.len().saturating_sub(count));
    }

    fn value(&self, node: &PathsNode) -> Option<i64> {
        let home = self.instance.distance(Self::last(node), 0);
        (node.left == 0).then_some(node.length + home)
    }

    fn bound(&self, node: &PathsNode, _best: i64) -> i64 {
        node.length + self.rest(node)
    }

    fn witness(&self, node: &PathsNode) -> Vec<i64> {
        node.path.iter().map(|&city| i64::from(city)).collect()
    }

    fn start(&self) -> Option<Solution> {
        let value = self.instance.length(&self.start);
        Some(Solution { value, witness: witness(&self.start) })
    }
}
