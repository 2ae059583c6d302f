//! The choice of groups for all pools of a variant together.

use smallvec::SmallVec;

use crate::groups::{Counts, Need, Set, Sets};
use crate::limits::COMBINATIONS_MAX;
use crate::mutant::Mutant;
use crate::request::Shape;

/// The need of one indexed pool, and the free indices there.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) need: Need,
    pub(crate) shape: Shape,
    pub(crate) counts: Counts,
    /// The number of groups to choose.
    pub(crate) number: usize,
}

/// A coupling between two needs of a variant, by their positions among its items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) left: (usize, usize),
    pub(crate) right: (usize, usize),
    pub(crate) weight: u64,
    /// Both needs are strict.
    pub(crate) strict: bool,
}

/// The chosen groups of each item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) sets: SmallVec<[Set; 4]>,
    /// The sum of the links between chosen groups of strict needs.
    pub(crate) strict_weight: u64,
}

/// The best choice: the largest sum of strict links, then of all links, then the lowest ranks.
/// `None`: an item has no set that is enough.
pub(crate) fn choose(items: &[Item], links: &[Link], mutant: Option<Mutant>) -> Option<Choice> {
    let links = if mutant == Some(Mutant::CouplingIgnored) { &[] } else { links };
    let lists: SmallVec<[Sets; 4]> = items
        .iter()
        .enumerate()
        .map(|(at, item)| {
            let mut sets = item.counts.sets(item.need, item.shape, item.number, |_| 0, mutant);
            // Without a link the best set is the one with the lowest rank.
            if !links.iter().any(|link| link.left.0 == at || link.right.0 == at) {
                let best = sets.iter().min_by_key(|set| set.rank).copied();
                sets = best.into_iter().collect();
            }
            sets
        })
        .collect();
    let combinations = lists.iter().try_fold(1_usize, |all, sets| all.checked_mul(sets.len()));
    match combinations {
        Some(0) => None,
        Some(1) => Some(choice(links, lists.iter().map(|sets| sets[0]).collect())),
        Some(count) if count <= COMBINATIONS_MAX => best_combination(&lists, links),
        _ => one_after_another(items, &lists, links, mutant),
    }
}

fn choice(links: &[Link], sets: SmallVec<[Set; 4]>) -> Choice {
    let strict_weight = weights(links, &sets).0;
    Choice { sets, strict_weight }
}

/// The sums of the strict links and of all links.
type Weights = (u64, u64);

/// The weights between chosen groups.
fn weights(links: &[Link], sets: &[Set]) -> Weights {
    let is_chosen = |(item, group): (usize, usize)| {
        sets.get(item).is_some_and(|set| set.groups & 1 << group != 0)
    };
    let joined = links.iter().filter(|link| is_chosen(link.left) && is_chosen(link.right));
    joined.fold((0, 0), |(strict, all), link| {
        (strict + if link.strict { link.weight } else { 0 }, all + link.weight)
    })
}

fn best_combination(lists: &[Sets], links: &[Link]) -> Option<Choice> {
    let mut at: SmallVec<[usize; 4]> = lists.iter().map(|_| 0).collect();
    let mut best: Option<(Weights, SmallVec<[Set; 4]>)> = None;
    loop {
        let sets: SmallVec<[Set; 4]> = lists.iter().zip(&at).map(|(sets, &at)| sets[at]).collect();
        let weight = weights(links, &sets);
        let ranks = |sets: &[Set]| sets.iter().map(|set| set.rank).collect::<SmallVec<[_; 4]>>();
        let is_better = best.as_ref().is_none_or(|(most, chosen)| {
            weight > *most || weight == *most && ranks(&sets) < ranks(chosen)
        });
        if is_better {
            best = Some((weight, sets));
        }
        let Some(next) = (0..at.len()).find(|&item| at[item] + 1 < lists[item].len()) else {
            return best.map(|(_, sets)| choice(links, sets));
        };
        at[next] += 1;
        at[..next].fill(0);
    }
}

/// Chooses for one item after another, each by its links to those before it.
fn one_after_another(
    items: &[Item],
    lists: &[Sets],
    links: &[Link],
    mutant: Option<Mutant>,
) -> Option<Choice> {
    let mut chosen: SmallVec<[Set; 4]> = SmallVec::new();
    for (at, item) in items.iter().enumerate() {
        let bonus = |group: usize| {
            let other = |link: &Link| match (link.left, link.right) {
                (this, other) | (other, this) if this == (at, group) => Some(other),
                _ => None,
            };
            let is_chosen = |(item, group): (usize, usize)| {
                chosen.get(item).is_some_and(|set: &Set| set.groups & 1 << group != 0)
            };
            let near = links.iter().filter(|link| other(link).is_some_and(is_chosen));
            near.map(|link| link.weight).sum()
        };
        let near = item.counts.sets(item.need, item.shape, item.number, bonus, mutant);
        let candidates = if near.len() == 1 { &near } else { &lists[at] };
        let with = |set: &Set| {
            let mut sets = chosen.clone();
            sets.push(*set);
            weights(links, &sets)
        };
        let best = candidates.iter().min_by_key(|set| {
            let (strict, all) = with(set);
            (u64::MAX - strict, u64::MAX - all, set.rank)
        });
        let best = *best?;
        chosen.push(best);
    }
    Some(choice(links, chosen))
}
