//! Assigns numbers to names in the order of first mention. The readers of formats use it.

use std::hash::BuildHasher as _;

use hashbrown::HashTable;

/// Names in one text, each with a number from 0.
#[derive(Debug, Default)]
pub(crate) struct Names {
    text: String,
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    state: foldhash::fast::FixedState,
}

impl Names {
    /// The number of names.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// # Panics
    /// When there is no such number.
    pub(crate) fn name(&self, number: u32) -> &str {
        part(&self.text, &self.ends, number)
    }

    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        let (text, ends) = (&self.text, &self.ends);
        let hash = self.state.hash_one(name);
        self.numbers.find(hash, |number| part(text, ends, *number) == name).copied()
    }

    /// The name's number, and whether it is new.
    pub(crate) fn number(&mut self, name: &str) -> (u32, bool) {
        if let Some(number) = self.get(name) {
            return (number, false);
        }
        let number = self.ends.len() as u32;
        self.text.push_str(name);
        self.ends.push(self.text.len());
        let (text, ends, state) = (&self.text, &self.ends, &self.state);
        let rehash = |number: &u32| state.hash_one(part(text, ends, *number));
        self.numbers.insert_unique(state.hash_one(name), number, rehash);
        (number, true)
    }
}

fn part<'t>(text: &'t str, ends: &[usize], number: u32) -> &'t str {
    let at = number as usize;
    let start = if at == 0 { 0 } else { ends[at - 1] };
    &text[start..ends[at]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers() {
        let mut names = Names::default();
        assert_eq!(names.number("a"), (0, true));
        assert_eq!(names.number(""), (1, true));
        assert_eq!(names.number("a"), (0, false));
        for index in 0..1000_u32 {
            assert_eq!(names.number(&format!("t{index}")), (index + 2, true));
        }
        assert_eq!((names.get("t7"), names.get("t1000"), names.len()), (Some(9), None, 1002));
        assert_eq!((names.name(0), names.name(1), names.name(9)), ("a", "", "t7"));
    }
}
