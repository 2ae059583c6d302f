//! Alike failures in groups: "300 alike".

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::groups::Merge;
use crate::limits::VIEW_EXAMPLES_MAX;

/// The length of the common text of alike failures, in characters.
const VIEW_FAILURE_CHARS_MAX: usize = 200;

/// Failures with an equal key are alike.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct FailureKey {
    pub kind: String,
    pub exit_code: i32,
    /// The error without numbers and paths; see [`common_text`].
    pub text: String,
}

/// One failed task.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Example {
    pub task: String,
    pub name: String,
    pub node: u32,
    pub error: String,
    /// The end of the error output, if it is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// The sum of alike failures.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FailureGroup {
    pub tasks: u64,
    /// The times of the first and the last one, in microseconds; absent if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_us: Option<u64>,
    /// The nodes with the smallest numbers, and whether there are more.
    pub nodes: BTreeSet<u32>,
    #[serde(default)]
    pub more_nodes: bool,
    pub examples: BTreeSet<Example>,
}

impl FailureGroup {
    #[must_use]
    pub fn of(example: Example, at_us: Option<u64>) -> Self {
        Self {
            tasks: 1,
            first_us: at_us,
            last_us: at_us,
            nodes: BTreeSet::from([example.node]),
            more_nodes: false,
            examples: BTreeSet::from([example]),
        }
    }
}

impl Merge for FailureGroup {
    fn merge(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.first_us = [self.first_us, other.first_us].into_iter().flatten().min();
        self.last_us = self.last_us.max(other.last_us);
        self.nodes.extend(&other.nodes);
        self.more_nodes |= other.more_nodes || self.nodes.len() > VIEW_EXAMPLES_MAX;
        while self.nodes.len() > VIEW_EXAMPLES_MAX {
            self.nodes.pop_last();
        }
        self.examples.extend(other.examples.iter().cloned());
        while self.examples.len() > VIEW_EXAMPLES_MAX {
            self.examples.pop_last();
        }
    }
}

/// The part of an error that alike failures share: its first line, with `#` for each number and
/// each long word of hexadecimal digits, and `<path>` for each path.
#[must_use]
pub fn common_text(error: &str) -> String {
    let line = error.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let words: Vec<String> = line.split_whitespace().map(common_word).collect();
    words.join(" ").chars().take(VIEW_FAILURE_CHARS_MAX).collect()
}

fn common_word(word: &str) -> String {
    let plain = word.trim_matches(|letter: char| "'\"`(),:;[]".contains(letter));
    if plain.len() > 1 && plain.contains('/') {
        return word.replace(plain, "<path>");
    }
    let is_hex = |letter: char| letter.is_ascii_hexdigit() || letter == 'x';
    if plain.len() >= 8 && plain.chars().all(is_hex) && plain.chars().any(|it| it.is_ascii_digit())
    {
        return word.replace(plain, "#");
    }
    mask_digits(word)
}

/// The text with `#` for each run of digits.
fn mask_digits(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut in_number = false;
    for letter in text.chars() {
        if !letter.is_ascii_digit() {
            masked.push(letter);
        } else if !in_number {
            masked.push('#');
        }
        in_number = letter.is_ascii_digit();
    }
    masked
}

/// The kind of a task as far as its name shows it: the name without its numbers and without signs
/// at the ends.
#[must_use]
pub fn kind_of_name(name: &str) -> String {
    let masked = mask_digits(name);
    let plain = masked.trim_matches(|letter: char| "#-_.:, ".contains(letter));
    if plain.is_empty() { "task".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alike_errors_have_one_text() {
        let text = "cannot open '<path>': error # at #";
        assert_eq!(common_text("\ncannot open '/a/b7.txt': error 12 at 0xdeadbeef1\nmore"), text);
        assert_eq!(common_text("cannot open '/c': error 9 at 0123456789abcdef"), text);
        assert_eq!(common_text(&"x".repeat(999)).len(), VIEW_FAILURE_CHARS_MAX);
        assert_eq!(common_text(""), "");
    }

    #[test]
    fn a_kind_is_a_name_without_numbers() {
        for (name, kind) in
            [("sh-3", "sh"), ("count-{i}", "count-{i}"), ("a_1_b2", "a_#_b"), ("17", "task")]
        {
            assert_eq!(kind_of_name(name), kind);
        }
    }

    #[test]
    fn groups_merge_in_any_order() {
        let group = |number: u32, at| {
            let example =
                Example { task: format!("0.{number}"), node: number, ..Example::default() };
            FailureGroup::of(example, at)
        };
        let all: Vec<_> = (0..9).map(|it| group(it, (it > 2).then(|| u64::from(it)))).collect();
        let merged = |order: &[usize]| {
            let mut sum = all[order[0]].clone();
            order[1..].iter().for_each(|&at| sum.merge(&all[at]));
            sum
        };
        let one = merged(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(one, merged(&[8, 3, 5, 1, 7, 0, 2, 6, 4]));
        assert_eq!((one.tasks, one.first_us, one.last_us), (9, Some(3), Some(8)));
        assert_eq!((one.nodes.len(), one.more_nodes, one.examples.len()), (3, true, 3));
    }
}
