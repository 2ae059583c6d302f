//! The pools and labels of a node, and what of them is free.

use client::Client;
use proto::wire::{Demand, Member};
use resources::{Amount, Name, Totals};
use serde::Serialize;
use verb::cluster::survival::PATIENCE;

use crate::cluster::node::NodeRow;

/// A pool as JSON.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct PoolRow {
    name: String,
    /// Bytes of memory.
    amount: f64,
    /// `None`: the node has not said it.
    free: Option<f64>,
}

/// Pools and labels of a node.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Pools {
    pools: Vec<PoolRow>,
    labels: Vec<String>,
    /// Which ready tasks the node takes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    preferences: Vec<String>,
}

fn number(amount: Amount) -> f64 {
    amount.units() as f64 / Amount::PER_ONE as f64
}

impl Pools {
    /// `demand`: with the free amounts.
    pub(super) fn of(member: &Member, demand: Option<&Demand>) -> Self {
        let offer = match member.offer.is_empty() {
            true => Totals::cpus(member.slots),
            false => Totals::decode(&member.offer).unwrap_or_default(),
        };
        let free: Option<Vec<Amount>> = demand.map(|demand| {
            let units = match demand.free_units.is_empty() || member.offer.is_empty() {
                true => vec![u64::from(demand.free_cpus) * Amount::PER_ONE],
                false => demand.free_units.clone(),
            };
            offer.with_free(&units).free().map(|(_, free)| free).collect()
        });
        let row = |(at, (name, amount)): (usize, (&Name, Amount))| PoolRow {
            name: name.to_string(),
            amount: number(amount),
            free: free.as_ref().map(|free| number(free[at])),
        };
        let labels = offer.labels().iter().map(ToString::to_string).collect();
        let preferences = offer.preferences().iter().map(ToString::to_string).collect();
        Self { pools: offer.pools().enumerate().map(row).collect(), labels, preferences }
    }

    /// `1 of 2 cpus, 4GiB of 8GiB memory; avx512`, with the free amounts first.
    pub(super) fn text(&self) -> String {
        let size = |pool: &PoolRow, amount: f64| match pool.name == Name::memory().to_string() {
            true => Amount::whole(amount as u64).unwrap_or_default().rounded_size(),
            false => amount.to_string(),
        };
        let pool = |pool: &PoolRow| {
            let amount = size(pool, pool.amount);
            match pool.free {
                Some(free) => format!("{} of {amount} {}", size(pool, free), pool.name),
                None => format!("{amount} {}", pool.name),
            }
        };
        let pools: Vec<String> = self.pools.iter().map(pool).collect();
        let prefers = match &self.preferences[..] {
            [] => String::new(),
            list => format!("prefers {}", list.join(", ")),
        };
        let parts = [pools.join(", "), self.labels.join(", "), prefers];
        parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("; ")
    }
}

/// Adds to rows of nodes what is free of their pools.
pub(super) async fn add_free(client: &Client, rows: &mut [NodeRow]) {
    for (node, state) in client.raw().demands(PATIENCE).await {
        let Ok(state) = state else { continue };
        let row = rows.iter_mut().find(|row| row.id == node.0);
        if let (Some(row), Some(member), Some(demand)) = (row, &state.member, &state.demand) {
            row.offer = Pools::of(member, Some(demand));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_shown_with_what_is_free() {
        let offer = "cpus=2, memory=1GiB, gpus=1";
        let pools = offer.split(", ").map(|text| resources::parse_pool(text).expect("a pool"));
        let label = resources::Pool::label(Name::label("fast").expect("a label"));
        let offer = resources::Offer::new(pools.chain([label]).collect(), Vec::new());
        let totals = Totals::from(&offer.expect("an offer"));
        let member = Member { slots: 2, offer: totals.encode(), ..Member::default() };
        let whole = Pools::of(&member, None);
        assert_eq!(whole.text(), "2 cpus, 1 gpus, 1GiB memory; fast");
        let units = |n: u64| n * Amount::PER_ONE;
        let free_units = vec![units(1), 5_000, units(1 << 29)];
        let demand = Demand { free_cpus: 1, free_units, ..Demand::default() };
        let free = Pools::of(&member, Some(&demand));
        assert_eq!(free.text(), "1 of 2 cpus, 0.5 of 1 gpus, 512MiB of 1GiB memory; fast");
        let plain = Member { slots: 4, ..Member::default() };
        let demand = Demand { free_cpus: 3, ..Demand::default() };
        assert_eq!(Pools::of(&plain, Some(&demand)).text(), "3 of 4 cpus");
    }
}
