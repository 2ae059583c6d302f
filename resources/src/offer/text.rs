//! The texts of `--resource` and `--coupling` of a node.

use std::fmt;

use crate::amount::Amount;
use crate::limits::{GROUPS_MAX, INDICES_MAX};
use crate::name::Name;
use crate::offer::{Coupling, GroupRef, OfferError, Pool, PoolKind};

/// `gpus=[]`: a node does not offer the pools of this name, although they are found. `None`: the
/// text is of a pool. Each node has cpus and memory.
#[must_use]
pub fn parse_no_pool(text: &str) -> Option<Name> {
    let (name, definition) = text.split_once('=')?;
    let name = Name::pool(name.trim()).ok()?;
    let is_needed = name == Name::cpus() || name == Name::memory();
    (definition.trim() == "[]" && !is_needed).then_some(name)
}

/// A pool by its text:
///
/// | text | pool |
/// |---|---|
/// | `gpus=[0,1]`, `gpus=["a b",c]` | indices by name |
/// | `gpus=[[0,1],[2,3]]` | indices in groups |
/// | `cpus=[0-7]`, `cpus=range(0-7)`, `cpus=[[0-3],[4-7]]` | ranges of indices |
/// | `cpus=2x4` | two groups of four, counted from 0 |
/// | `cpus=8` | as `range(0-7)`; for memory: a sum |
/// | `memory=sum(64GiB)`, `licences=sum(10)` | an amount |
pub fn parse_pool(text: &str) -> Result<Pool, OfferError> {
    let wrong = || OfferError::Syntax(text.to_owned());
    let (name, definition) = text.split_once('=').ok_or_else(wrong)?;
    let name = Name::pool(name.trim())?;
    let definition = definition.trim();
    if let Some(inner) = call("sum", definition) {
        return Pool::sum(name, inner.parse()?);
    }
    if let Some(inner) = call("range", definition) {
        return match range(inner) {
            Ok(Some(indices)) => Pool::indexed(name, vec![indices]),
            Ok(None) | Err(OfferError::Syntax(_)) => Err(wrong()),
            Err(error) => Err(error),
        };
    }
    if definition.starts_with('[') {
        let groups = List::new(definition).groups().ok_or_else(wrong)?;
        return Pool::indexed(name, groups?);
    }
    let size = definition.split_once('x').map(|(n, m)| (n.parse(), m.parse()));
    if let Some((Ok(groups), Ok(size))) = size {
        return grid(name, groups, size);
    }
    let amount: Amount = definition.parse().map_err(|_| wrong())?;
    match (name.is_bytes(), amount.fraction()) {
        (true, _) => Pool::sum(name, amount),
        (false, 0) => grid(name, 1, usize::try_from(amount.whole_part()).unwrap_or(usize::MAX)),
        (false, _) => Err(wrong()),
    }
}

/// `cpus[0]:gpus[0]`, `cpus[0]:gpus[0]=64`.
pub fn parse_coupling(text: &str) -> Result<Coupling, OfferError> {
    let wrong = || OfferError::CouplingSyntax(text.to_owned());
    let (ends, weight) = text.split_once('=').map_or((text, None), |(e, w)| (e, Some(w)));
    let weight = weight.map_or(Some(Coupling::DEFAULT_WEIGHT), |text| text.trim().parse().ok());
    let weight = weight.filter(|&weight| weight > 0).ok_or_else(wrong)?;
    let (left, right) = ends.split_once(':').ok_or_else(wrong)?;
    let end = |text: &str| {
        let (pool, group) = text.trim().strip_suffix(']')?.split_once('[')?;
        Some(GroupRef { pool: Name::pool(pool).ok()?, group: group.parse().ok()? })
    };
    let (left, right) = end(left).zip(end(right)).ok_or_else(wrong)?;
    Ok(Coupling::new(left, right, weight))
}

fn call<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    text.strip_prefix(name)?.trim_start().strip_prefix('(')?.strip_suffix(')').map(str::trim)
}

/// `groups` groups of `size` indices each.
fn grid(name: Name, groups: usize, size: usize) -> Result<Pool, OfferError> {
    let count = groups.saturating_mul(size);
    if groups > GROUPS_MAX || count > INDICES_MAX {
        let (things, count, most) = match count > INDICES_MAX {
            true => ("indices of a pool", count, INDICES_MAX),
            false => ("groups of a pool", groups, GROUPS_MAX),
        };
        return Err(OfferError::TooMany { things, count, most });
    }
    let group = |at: usize| (at * size..(at + 1) * size).map(|index| index.to_string()).collect();
    Pool::indexed(name, (0..groups).map(group).collect())
}

/// `0-7` as indices, with both ends. `None`: not a range. `7-0` is a wrong one.
fn range(text: &str) -> Result<Option<Vec<String>>, OfferError> {
    let Some((first, last)) = text.split_once('-') else { return Ok(None) };
    let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) else {
        return Ok(None);
    };
    let count = (last as usize + 1).saturating_sub(first as usize);
    if count > INDICES_MAX {
        return Err(OfferError::TooMany { things: "indices of a pool", count, most: INDICES_MAX });
    }
    if count == 0 {
        return Err(OfferError::Syntax(text.to_owned()));
    }
    Ok(Some((first..=last).map(|index| index.to_string()).collect()))
}

/// A reader of `[...]`.
struct List<'t> {
    rest: &'t str,
}

impl<'t> List<'t> {
    fn new(text: &'t str) -> Self {
        Self { rest: text }
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.rest = self.rest.trim_start();
        let rest = self.rest.strip_prefix(wanted);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// `None`: the text is no list.
    fn groups(mut self) -> Option<Result<Vec<Vec<String>>, OfferError>> {
        self.eat('[').then_some(())?;
        let mut groups = Vec::new();
        if self.rest.trim_start().starts_with('[') {
            loop {
                self.eat('[').then_some(())?;
                match self.indices()? {
                    Ok(indices) => groups.push(indices),
                    Err(error) => return Some(Err(error)),
                }
                if !self.eat(',') {
                    break;
                }
            }
            self.eat(']').then_some(())?;
        } else {
            match self.indices()? {
                Ok(indices) => groups.push(indices),
                Err(error) => return Some(Err(error)),
            }
        }
        self.rest.trim().is_empty().then_some(Ok(groups))
    }

    /// The indices up to the end of their list.
    fn indices(&mut self) -> Option<Result<Vec<String>, OfferError>> {
        let mut indices = Vec::new();
        if self.eat(']') {
            return Some(Ok(indices));
        }
        loop {
            if self.eat('"') {
                let (quoted, rest) = self.rest.split_once('"')?;
                indices.push(quoted.to_owned());
                self.rest = rest;
            } else {
                self.rest = self.rest.trim_start();
                let end = self.rest.find([',', ']'])?;
                let word = self.rest[..end].trim_end();
                self.rest = &self.rest[end..];
                match range(word) {
                    Ok(Some(range)) => indices.extend(range),
                    Ok(None) if word.is_empty() || word.contains(['[', '"']) => return None,
                    Ok(None) => indices.push(word.to_owned()),
                    // The error of the whole text.
                    Err(OfferError::Syntax(_)) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
            if indices.len() > INDICES_MAX {
                let (count, most) = (indices.len(), INDICES_MAX);
                return Some(Err(OfferError::TooMany { things: "indices of a pool", count, most }));
            }
            if self.eat(']') {
                return Some(Ok(indices));
            }
            self.eat(',').then_some(())?;
        }
    }
}

/// The text that [`parse_pool`] reads.
impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            PoolKind::Label => write!(f, "{}", self.name),
            PoolKind::Sum(amount) if self.name.is_bytes() => {
                write!(f, "{}=sum({})", self.name, amount.as_size())
            }
            PoolKind::Sum(amount) => write!(f, "{}=sum({amount})", self.name),
            PoolKind::Indexed(groups) => {
                let list = |group: &Vec<String>| format!("[{}]", spans(group).join(","));
                match &groups[..] {
                    [group] => write!(f, "{}={}", self.name, list(group)),
                    groups => {
                        let lists: Vec<String> = groups.iter().map(list).collect();
                        write!(f, "{}=[{}]", self.name, lists.join(","))
                    }
                }
            }
        }
    }
}

/// Indices with runs of numbers as ranges.
fn spans(group: &[String]) -> Vec<String> {
    let number =
        |index: &String| index.parse::<u32>().ok().filter(|number| number.to_string() == *index);
    let mut spans: Vec<(Option<u32>, Option<u32>, String)> = Vec::new();
    for index in group {
        let this = number(index);
        match spans.last_mut() {
            Some((Some(first), last @ Some(_), text))
                if this.is_some() && last.and_then(|last| last.checked_add(1)) == this =>
            {
                *last = this;
                *text = format!("{first}-{index}");
            }
            _ => {
                let is_plain = !index.contains(['[', ']', ' ']) && matches!(range(index), Ok(None));
                let text = if is_plain { index.clone() } else { format!("\"{index}\"") };
                spans.push((this, this, text));
            }
        }
    }
    spans.into_iter().map(|(_, _, text)| text).collect()
}
