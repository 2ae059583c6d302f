//! What a queue learns from its first node.

use std::collections::BTreeMap;

use resources::{Amount, Name, Totals};
use serde::{Deserialize, Serialize};

/// The offer of a node of a queue; empty: no node has come yet.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Learned {
    /// The amount of each pool, as text.
    pub pools: BTreeMap<String, String>,
    pub labels: Vec<String>,
}

impl Learned {
    #[must_use]
    pub fn of(offer: &Totals) -> Self {
        let pools = offer.pools().map(|(name, amount)| (name.to_string(), amount.to_string()));
        // The group of one batch job is not that of the next one.
        let labels = offer.labels().iter().filter(|label| label.group_name().is_none());
        Self { pools: pools.collect(), labels: labels.map(Name::to_string).collect() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    /// The whole cpus; 0: they are not known.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        let cpus = self.pools.get(Name::cpus().as_str());
        cpus.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// An offer with what it leaves out.
    pub(crate) fn complete(&self, offer: Totals) -> Totals {
        let pool = |(name, amount): (&String, &String)| {
            Some((Name::pool(name).ok()?, amount.parse::<Amount>().ok()?))
        };
        let labels = self.labels.iter().filter_map(|label| Name::label(label).ok());
        offer.with_missing(self.pools.iter().filter_map(pool), labels)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use resources::{Offer, Pool, parse_pool};

    use super::*;

    /// The offer of a node with these pools, a label, and the group of its batch job.
    pub(crate) fn learned(pools: &[&str]) -> Learned {
        let pools = pools.iter().map(|text| parse_pool(text).expect("a pool"));
        let labels = [Name::label("fast").expect("a label"), Name::group("7")].map(Pool::label);
        let offer = Offer::new(pools.chain(labels).collect(), Vec::new()).expect("an offer");
        Learned::of(&Totals::from(&offer))
    }

    #[test]
    fn what_a_node_offers_is_kept_and_completes_an_offer() {
        let learned = learned(&["cpus=2", "memory=1GiB", "licences=sum(0.5)"]);
        assert_eq!((learned.cpus(), &learned.labels[..]), (2, &["fast".to_owned()][..]));
        let text = serde_json::to_string(&learned).expect("it is JSON");
        assert_eq!(serde_json::from_str::<Learned>(&text).expect("the same"), learned);
        let offer = learned.complete(Totals::cpus(4)).to_string();
        assert_eq!(offer, "cpus=4, licences=0.5, memory=1GiB, label=fast");
        assert!(Learned::default().is_empty() && Learned::default().cpus() == 0);
    }
}
