//! Permutations of the locations that keep all distances.

use crate::problems::qap::Instance;

/// The most symmetries that are used. An instance with more is searched without any.
const SYMMETRIES_MAX: usize = 2_000;
/// The most partial permutations that are tried.
const TRIES_MAX: usize = 1_000_000;

/// The group of all permutations of the locations that keep all distances; the identity alone if
/// there are too many.
pub(crate) fn group(instance: &Instance) -> Vec<Vec<u8>> {
    let mut search = Search { instance, found: Vec::new(), tries: 0 };
    if search.extend(&mut Vec::new()) {
        return search.found;
    }
    vec![(0..instance.size).filter_map(|location| u8::try_from(location).ok()).collect()]
}

/// Of the free locations, the least one of each class that the symmetries form which keep all of
/// `used` in place.
pub(crate) fn representatives(group: &[Vec<u8>], used: &[u8], free: u64) -> u64 {
    let stays = |symmetry: &&Vec<u8>| used.iter().all(|&at| symmetry[usize::from(at)] == at);
    let mut least = free;
    for symmetry in group.iter().filter(stays) {
        for (from, &to) in symmetry.iter().enumerate() {
            if usize::from(to) > from && free >> from & 1 == 1 {
                least &= !(1 << to);
            }
        }
    }
    least
}

struct Search<'a> {
    instance: &'a Instance,
    found: Vec<Vec<u8>>,
    tries: usize,
}

impl Search<'_> {
    /// Adds all symmetries that begin with `images`; false if that takes too long.
    fn extend(&mut self, images: &mut Vec<u8>) -> bool {
        let (size, at) = (self.instance.size, images.len());
        if at == size {
            self.found.push(images.clone());
            return self.found.len() <= SYMMETRIES_MAX;
        }
        for image in (0..size).filter_map(|image| u8::try_from(image).ok()) {
            self.tries += 1;
            if self.tries > TRIES_MAX {
                return false;
            }
            if images.contains(&image) {
                continue;
            }
            images.push(image);
            let keeps = (0..=at).all(|other| self.keeps(images, at, other));
            if keeps && !self.extend(images) {
                return false;
            }
            images.pop();
        }
        true
    }

    fn keeps(&self, images: &[u8], one: usize, other: usize) -> bool {
        let (to, other_to) = (usize::from(images[one]), usize::from(images[other]));
        self.instance.distance(one, other) == self.instance.distance(to, other_to)
            && self.instance.distance(other, one) == self.instance.distance(other_to, to)
    }
}
