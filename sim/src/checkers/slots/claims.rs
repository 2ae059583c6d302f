//! *Claims*: no attempt has an index, a part or an amount that another one has on the same node.
//!
//! *Ends*: no task starts on a node that ends before it, or where its signal is due at once.
//!
//! *Match*: a task runs only on a node that offers its request, with the amounts of one variant.

use std::collections::BTreeMap;

use proto::Time;
use proto::work::{Granted, GrantedPool, Launch};
use resources::{Amount, EndOfLife, Name, Offer, Quantity, Request, Totals, Variant};

use crate::checkers::{Verdict, Violation};

const UNITS: u64 = Amount::PER_ONE;

/// The units of each index of a pool: all are whole, except for the last one of a part.
fn units_of(pool: &GrantedPool) -> impl Iterator<Item = (&str, u64)> {
    let (count, part) = (pool.indices.len(), pool.units % UNITS);
    let of = move |at: usize| if at + 1 == count && part > 0 { part } else { UNITS };
    pool.indices.iter().enumerate().map(move |(at, index)| (index.as_str(), of(at)))
}

pub(crate) fn are_free<'a>(
    launch: &'a Launch,
    offer: Option<&Offer>,
    others: impl Iterator<Item = &'a Granted>,
) -> Verdict {
    let Some(offer) = offer else { return Ok(()) };
    let own = launch.granted.as_deref();
    let mut indices: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for pool in others.chain(own).flat_map(|granted| &granted.pools) {
        *sums.entry(&pool.name).or_default() += pool.units;
        for (index, units) in units_of(pool) {
            *indices.entry((&pool.name, index)).or_default() += units;
        }
    }
    if let Some(((pool, index), units)) = indices.iter().find(|(_, units)| **units > UNITS) {
        let text = format!("{}: {units} units of index {index} of {pool} are given", launch.task);
        return Err(Violation::new("claims", text));
    }
    let totals = Totals::from(offer);
    for (name, total) in totals.pools() {
        let given = sums.get(name.as_str()).copied().unwrap_or(0);
        if given > total.units() {
            let text = format!("{}: {given} units of {name} are given, of {total}", launch.task);
            return Err(Violation::new("claims", text));
        }
    }
    Ok(())
}

/// *Ends*: nothing starts that cannot end before its node does, or that gets its signal at once.
/// `before_ns`: it gets the signal this long before the end.
pub(crate) fn ends_in_time(
    launch: &Launch,
    before_ns: u64,
    now: Time,
    end: Option<EndOfLife>,
) -> Verdict {
    let request = launch.spec.time_request_ns.max(before_ns);
    match end {
        Some(end) if request > 0 && !end.fits(now.0, request) => {
            let text = format!("{} asks for {request} ns at {now:?}: {end:?}", launch.task);
            Err(Violation::new("ends", text))
        }
        _ => Ok(()),
    }
}

pub(crate) fn matches(
    launch: &Launch,
    request: Option<&Request>,
    offer: Option<&Offer>,
) -> Verdict {
    let Some(request) = request else { return Ok(()) };
    let wrong = |text: String| {
        Err(Violation::new("match", format!("{} asks for {request}: {text}", launch.task)))
    };
    let Some(offer) = offer else { return wrong("its node has no resources".into()) };
    if let Some(refusal) = Totals::from(offer).refusal(request) {
        return wrong(refusal.to_string());
    }
    let Some(granted) = launch.granted.as_deref() else {
        return wrong("it has no claim".into());
    };
    let Some(variant) = request.variants().get(usize::from(granted.variant)) else {
        return wrong(format!("there is no variant {}", granted.variant));
    };
    match variant_fits(variant, granted, offer) {
        None => Ok(()),
        Some(name) => wrong(format!("its claim of {name} is another one")),
    }
}

/// A need of the variant that differs from the claim, if any.
fn variant_fits(variant: &Variant, granted: &Granted, offer: &Offer) -> Option<Name> {
    for want in variant.wants() {
        let of =
            |pool: &&GrantedPool| Name::pool(&pool.name).is_ok_and(|name| want.pool.covers(&name));
        let has = granted.pools.iter().find(of).map(|pool| pool.units);
        let needs = match want.quantity {
            Quantity::Amount(amount) => Some(amount.units()),
            Quantity::All => offer.pool(&want.pool).and_then(|it| it.amount()).map(Amount::units),
        };
        if has.is_none() || has != needs {
            return Some(want.pool.clone());
        }
    }
    let is_label = |label: &Name| offer.pool(label).is_some_and(|pool| pool.amount().is_none());
    variant.labels().iter().find(|label| !is_label(label)).cloned()
}

/// Whether a request fits beside these attempts for certain: parts of indices count as whole ones.
pub(crate) fn is_free_for<'a>(
    request: &Request,
    offer: &Offer,
    running: impl Iterator<Item = &'a Granted>,
) -> bool {
    let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
    let mut broken: BTreeMap<&str, std::collections::BTreeSet<&str>> = BTreeMap::new();
    for pool in running.flat_map(|granted| &granted.pools) {
        *taken.entry(&pool.name).or_default() += pool.units;
        broken.entry(&pool.name).or_default().extend(pool.indices.iter().map(String::as_str));
    }
    let totals = Totals::from(offer);
    let free: Vec<u64> = totals
        .pools()
        .map(|(name, total)| match broken.get(name.as_str()).filter(|used| !used.is_empty()) {
            Some(used) => total.units().saturating_sub(used.len() as u64 * UNITS),
            None => {
                total.units() - taken.get(name.as_str()).copied().unwrap_or(0).min(total.units())
            }
        })
        .collect();
    totals.with_free(&free).fits(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(units: u64, indices: &[&str]) -> GrantedPool {
        GrantedPool {
            name: "gpus".into(),
            variable: "gpus".into(),
            units,
            indices: indices.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_last_index_has_the_part() {
        let all = |pool: GrantedPool| -> Vec<(String, u64)> {
            units_of(&pool).map(|(index, units)| (index.to_owned(), units)).collect()
        };
        assert_eq!(all(pool(15_000, &["a", "b"])), [("a".into(), 10_000), ("b".into(), 5_000)]);
        assert_eq!(all(pool(20_000, &["a", "b"])), [("a".into(), 10_000), ("b".into(), 10_000)]);
        assert_eq!(all(pool(2_500, &["a"])), [("a".into(), 2_500)]);
    }
}
