//! Tasks that no present node can run, and that nodes of an allocation queue could.

use client::Client;
use proto::wire::{self, MemberPhase};
use resources::{Amount, Name, Request, Totals};
use verb::errors::Failure;
use workloads::Graph;

use crate::alloc::records::Records;

/// Lets tasks wait for nodes of a queue, if no present node offers what they ask for.
pub(crate) async fn await_nodes(client: &Client, graph: &mut Graph) -> Result<(), Failure> {
    let map = client.raw().map();
    let members = map.members.iter().filter(|member| {
        member.phase() != MemberPhase::Removed && member.slots > 0 && !member.keeper
    });
    let present = Offers::of(members.filter_map(offer));
    if !graph.specs().iter().any(|spec| present.lack(spec)) {
        return Ok(());
    }
    let mut queues = Vec::new();
    for queue in Records::new(client)?.queues().await? {
        // Its first node may have any number of cpus.
        let learned = if queue.state.cpus > 0 { queue.state.cpus } else { u32::from(u16::MAX) };
        queues.extend(queue.config.offer(learned).ok());
    }
    let queues = Offers::of(queues.into_iter());
    graph.await_nodes(|spec| present.lack(spec) && !queues.lack(spec));
    Ok(())
}

fn offer(member: &wire::Member) -> Option<Totals> {
    match member.offer.is_empty() {
        true => Some(Totals::cpus(member.slots)),
        false => Totals::decode(&member.offer).ok(),
    }
}

/// The different offers of nodes.
#[derive(Debug)]
struct Offers {
    all: Vec<Totals>,
    /// The most cpus of one node.
    widest: u32,
}

impl Offers {
    fn of(offers: impl Iterator<Item = Totals>) -> Self {
        let mut all: Vec<Totals> = Vec::new();
        for offer in offers.map(|offer| offer.with_end(None)) {
            if !all.contains(&offer) {
                all.push(offer);
            }
        }
        let cpus = |(name, amount): (&Name, Amount)| {
            let whole = u32::try_from(amount.whole_part()).unwrap_or(u32::MAX);
            (*name == Name::cpus()).then_some(whole)
        };
        let widest = all.iter().flat_map(Totals::pools).filter_map(cpus).max().unwrap_or(0);
        Self { all, widest }
    }

    /// Whether no node has what a task asks for.
    fn lack(&self, spec: &wire::Spec) -> bool {
        if spec.request.is_empty() {
            return spec.cpus.max(1) > self.widest;
        }
        // A home refuses a request that is not valid.
        let request = Request::decode(&spec.request).ok();
        request.is_some_and(|request| !self.all.iter().any(|offer| offer.fits(&request)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_node_offers_is_found() {
        let offers = Offers::of([Totals::cpus(2), Totals::cpus(4), Totals::cpus(4)].into_iter());
        assert_eq!((offers.all.len(), offers.widest), (2, 4));
        let wide = |cpus| wire::Spec { cpus, ..Default::default() };
        assert!(offers.lack(&wide(5)) && !offers.lack(&wide(4)));
        let request = "gpus=1".parse::<Request>().expect("a request").encode();
        assert!(offers.lack(&wire::Spec { request, ..Default::default() }));
        assert!(Offers::of(std::iter::empty()).lack(&wide(1)), "keepers alone");
    }
}
