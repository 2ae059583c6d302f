//! Finds the task with a name, or the writer of a file, without expanding any array.

use hashbrown::HashMap;

use super::array::Array;
use proto::entry::{self, Split};

use crate::graph::expand;

/// The table of a text; `sub` distinguishes its outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) group: u32,
    pub(super) sub: u32,
}

/// The position of an array element, or of the only task of a table without an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) owner: Owner,
    pub(super) position: u32,
}

/// Two owners of one text.
#[derive(Debug)]
pub(super) struct Conflict {
    pub(super) text: String,
    pub(super) first: Found,
    pub(super) second: Found,
}

/// The text after the first `{i}`, its width, and the owner.
#[derive(Clone, Copy, Debug)]
struct Template<'t> {
    width: usize,
    after: &'t str,
    owner: Owner,
}

impl Template<'_> {
    /// The text after the last `{i}`.
    fn end(&self) -> &str {
        let mut end = self.after;
        while let Some(split) = entry::split(end) {
            end = split.after;
        }
        end
    }
}

/// Texts, with and without `{i}`, and their owners.
#[derive(Debug)]
pub(super) struct Index<'t> {
    arrays: &'t [Option<&'t Array>],
    literals: HashMap<&'t str, Found, foldhash::fast::FixedState>,
    /// By the text before the first `{i}`; then the text after it.
    templates: HashMap<&'t str, Vec<Template<'t>>, foldhash::fast::FixedState>,
    conflict: Option<Conflict>,
}

impl<'t> Index<'t> {
    pub(super) fn new(arrays: &'t [Option<&'t Array>]) -> Self {
        Self { arrays, literals: HashMap::default(), templates: HashMap::default(), conflict: None }
    }

    pub(super) fn insert(&mut self, text: &'t str, owner: Owner) {
        let array = self.arrays[owner.group as usize];
        match (entry::split(text), array) {
            (Some(Split { before, width, after }), Some(_)) => {
                let template = Template { width, after, owner };
                self.templates.entry(before).or_default().push(template);
            }
            _ => {
                let found = Found { owner, position: 0 };
                let earlier = self.literals.insert(text, found);
                // All elements of an array would own it.
                let is_shared = array.is_some_and(|array| array.count() > 1);
                let conflict = match earlier {
                    Some(first) => Some((first, found)),
                    None if is_shared => Some((found, Found { owner, position: 1 })),
                    None => None,
                };
                if let (Some((first, second)), None) = (conflict, &self.conflict) {
                    self.conflict = Some(Conflict { text: text.to_owned(), first, second });
                }
            }
        }
    }

    /// The owner of a text without `{i}`.
    pub(super) fn find(&self, text: &str) -> Option<Found> {
        let literal = self.literals.get(text).copied();
        literal.or_else(|| self.matches(text, |_| true))
    }

    /// The first array element that matches the text and satisfies `wanted`.
    fn matches(&self, text: &str, wanted: impl Fn(Found) -> bool) -> Option<Found> {
        if self.templates.is_empty() {
            return None;
        }
        let bytes = text.as_bytes();
        for start in 0..bytes.len() {
            if !bytes[start].is_ascii_digit() {
                continue;
            }
            let Some(templates) = self.templates.get(&text[..start]) else { continue };
            let run = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            for end in start + 1..=start + run {
                let Ok(element) = text[start..end].parse::<u64>() else { break };
                for template in templates {
                    let Template { width, after, owner } = *template;
                    let array = self.arrays[owner.group as usize].expect("templates have arrays");
                    let is_it = text.ends_with(template.end())
                        && text[start..end] == entry::text(element, width)
                        && text[end..] == expand(after, element);
                    if let Some(position) = array.position(element).filter(|_| is_it) {
                        let found = Found { owner, position };
                        if wanted(found) {
                            return Some(found);
                        }
                    }
                }
            }
        }
        None
    }

    /// A text with two owners, if there is one, in the order of the owners.
    pub(super) fn conflict(&mut self) -> Option<Conflict> {
        let mut conflict = self.any_conflict()?;
        let place = |found: Found| (found.owner.group, found.owner.sub, found.position);
        if place(conflict.first) > place(conflict.second) {
            std::mem::swap(&mut conflict.first, &mut conflict.second);
        }
        Some(conflict)
    }

    fn any_conflict(&mut self) -> Option<Conflict> {
        if let Some(conflict) = self.conflict.take() {
            return Some(conflict);
        }
        for (text, found) in &self.literals {
            if let Some(second) = self.matches(text, |_| true) {
                return Some(Conflict { text: (*text).to_owned(), first: *found, second });
            }
        }
        let all: Vec<(&str, Template<'_>)> = self
            .templates
            .iter()
            .flat_map(|(before, list)| list.iter().map(|template| (*before, *template)))
            .collect();
        all.iter().find_map(|template| self.overlap(template, &all))
    }

    /// Examines the elements of a template only if another template could match one of them.
    fn overlap(
        &self,
        &(before, template): &(&str, Template<'_>),
        all: &[(&str, Template<'_>)],
    ) -> Option<Conflict> {
        let Template { width, after, owner } = template;
        let end = template.end();
        let may_meet = all.iter().any(|&(other_before, other)| {
            let other_end = other.end();
            other.owner != owner
                && (before.starts_with(other_before) || other_before.starts_with(before))
                && (end.ends_with(other_end) || other_end.ends_with(end))
        });
        if !may_meet {
            return None;
        }
        let array = self.arrays[owner.group as usize].expect("templates have arrays");
        array.elements().enumerate().find_map(|(position, element)| {
            let number = entry::text(element, width);
            let text = format!("{before}{number}{}", expand(after, element));
            let first = Found { owner, position: position as u32 };
            let second = self.matches(&text, |found| found != first)?;
            Some(Conflict { text, first, second })
        })
    }
}
