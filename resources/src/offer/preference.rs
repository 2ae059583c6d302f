//! Preferences: which of its ready tasks a node takes first.

use std::fmt;
use std::ops::RangeInclusive;

use super::{Offer, OfferError};
use crate::name::Name;
use crate::request::Variant;

/// Which task is taken, of those that are equally urgent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Pick {
    /// The task with the highest rank.
    Biggest,
    /// The task with the lowest rank.
    Smallest,
    /// The next task in the ordinary order.
    Any,
    /// The next task in the ordinary order, of those with a rank from `A` to `B`.
    Range(RangeInclusive<u64>),
}

/// One entry of a node's list: the tasks that take of a pool or need a label, and the pick.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Preference {
    /// `None`: every task.
    pub pool: Option<Name>,
    pub pick: Pick,
}

impl Preference {
    /// Whether the entry is about tasks that run by this variant.
    #[must_use]
    pub fn is_about(&self, variant: &Variant) -> bool {
        let Some(pool) = &self.pool else { return true };
        variant.wants().iter().any(|want| pool.covers(&want.pool) || want.pool.covers(pool))
            || variant.labels().contains(pool)
    }
}

/// A list such as `gpus:biggest,cpus:smallest,any`. Each entry is a pool or a label with `biggest`,
/// `smallest`, `any` or a range of ranks such as `5..9`; `any` alone is every task, and is last.
pub fn parse_preferences(text: &str) -> Result<Vec<Preference>, OfferError> {
    let wrong = |entry: &str| OfferError::PreferenceSyntax(entry.to_owned());
    let mut all: Vec<Preference> = Vec::new();
    for entry in text.split(',').map(str::trim) {
        if all.last().is_some_and(|last| last.pool.is_none()) {
            return Err(OfferError::AnyIsLast(entry.to_owned()));
        }
        if entry == "any" {
            all.push(Preference { pool: None, pick: Pick::Any });
            continue;
        }
        // A label may have colons of its own.
        let (pool, pick) = entry.rsplit_once(':').ok_or_else(|| wrong(entry))?;
        let pick = pick_of(pick.trim()).ok_or_else(|| wrong(entry))?;
        let pool = Some(Name::label(pool.trim())?);
        let preference = Preference { pool, pick };
        if all.contains(&preference) {
            return Err(OfferError::PreferredTwice(preference));
        }
        all.push(preference);
    }
    Ok(all)
}

fn pick_of(text: &str) -> Option<Pick> {
    match text {
        "biggest" => Some(Pick::Biggest),
        "smallest" => Some(Pick::Smallest),
        "any" => Some(Pick::Any),
        range => {
            let (from, to) = range.split_once("..")?;
            let range = from.trim().parse().ok()?..=to.trim().parse().ok()?;
            (!range.is_empty()).then_some(Pick::Range(range))
        }
    }
}

impl Offer {
    /// The same offer with a list of preferences, which name pools and labels of it.
    pub fn with_preferences(self, preferences: Vec<Preference>) -> Result<Self, OfferError> {
        let mut pools = preferences.iter().filter_map(|it| it.pool.as_ref());
        let has = |name: &Name| self.pools().iter().any(|pool| name.covers(&pool.name));
        match pools.find(|name| !has(name)) {
            Some(name) => Err(OfferError::NoPreferred(name.clone())),
            None => Ok(self.keep_preferences(preferences)),
        }
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Biggest => f.write_str("biggest"),
            Self::Smallest => f.write_str("smallest"),
            Self::Any => f.write_str("any"),
            Self::Range(ranks) => write!(f, "{}..{}", ranks.start(), ranks.end()),
        }
    }
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pool {
            Some(pool) => write!(f, "{pool}:{}", self.pick),
            None => write!(f, "{}", self.pick),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, parse_pool, parse_variant};

    fn parsed(text: &str) -> Vec<String> {
        parse_preferences(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_are_read_and_written_alike() {
        let text = "gpus:biggest,group:a:smallest,cpus:5..9,cpus:any,any";
        assert_eq!(parsed(text).join(","), text);
        for wrong in ["", "gpus", "gpus:most", "any,gpus:any", "cpus:9..5", "a b:any", "biggest"] {
            assert!(parse_preferences(wrong).is_err(), "{wrong}");
        }
        assert!(parse_preferences("cpus:any,cpus:any").is_err());
    }

    #[test]
    fn a_preference_names_pools_and_labels_of_the_offer() {
        let pools = || {
            let label = Pool::label(Name::label("fast").unwrap());
            vec![parse_pool("cpus=2").unwrap(), parse_pool("gpus/amd=1").unwrap(), label]
        };
        let offer = |text: &str| {
            let offer = Offer::new(pools(), Vec::new()).unwrap();
            offer.with_preferences(parse_preferences(text).unwrap())
        };
        assert!(offer("gpus:biggest,fast:any").is_ok());
        assert!(offer("fpgas:any").unwrap_err().to_string().contains("fpgas"));
        let part = offer("gpus:biggest").unwrap().part(0, 2, |_| true);
        assert_eq!(part.preferences().len(), 1);
        assert_eq!(part.with_cpus(9).unwrap().preferences().len(), 1);
    }

    #[test]
    fn a_pool_is_named_by_its_kinds_and_by_its_general_name() {
        let names = |entry: &str, variant: &str| {
            parse_preferences(entry).unwrap()[0].is_about(&parse_variant(variant).unwrap())
        };
        assert!(names("gpus:any", "gpus/amd=1") && names("gpus/amd:any", "gpus=1"));
        assert!(names("fast:any", "label=fast") && names("any", "cpus=3"));
        assert!(names("cpus:any", "gpus=1") && !names("gpus:any", "cpus=1"));
    }
}
