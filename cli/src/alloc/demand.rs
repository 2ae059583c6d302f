//! The ready tasks of the cluster and the free parts of its nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use allocation::{ClassDemand, Demand};
use client::Client;
use proto::wire::{self, MemberPhase};
use resources::{Request, Totals};

/// A node that does not answer within this time is left out.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);
const NS_PER_MS: u64 = 1_000_000;

/// The request of a class, its time request, and its nodes.
type ClassKey = (Vec<u8>, u64, u32);

pub(super) async fn of(client: &Client) -> Demand {
    let mut classes: BTreeMap<ClassKey, ClassDemand> = BTreeMap::new();
    let mut free = Vec::new();
    for (_, state) in client.raw().demands(NODE_TIMEOUT).await {
        let Ok(state) = state else { continue };
        let Some(demand) = state.demand else { continue };
        if let Some(member) = &state.member {
            free.extend(free_part(member, &demand));
        }
        demand.classes.iter().for_each(|row| add(&mut classes, row));
    }
    Demand { classes: classes.into_values().collect(), free }
}

fn add(classes: &mut BTreeMap<ClassKey, ClassDemand>, row: &wire::ClassDemand) {
    let request = match row.request.is_empty() {
        true => Request::cpus(row.cpus.max(1)),
        false => match Request::decode(&row.request) {
            Ok(request) => request,
            Err(_) => return, // Of a later version.
        },
    };
    let (time_ms, key) = (row.time_request_ns.div_ceil(NS_PER_MS), request.encode());
    let nodes = row.nodes.max(1);
    let fresh = || ClassDemand { request, time_ms, tasks: 0, work_ms: 0, nodes };
    let class = classes.entry((key, time_ms, nodes)).or_insert_with(fresh);
    class.tasks = class.tasks.saturating_add(row.tasks);
    class.work_ms = class.work_ms.saturating_add(row.work_ns / NS_PER_MS);
}

fn free_part(member: &wire::Member, demand: &wire::Demand) -> Option<Totals> {
    if member.slots == 0 || member.phase() != MemberPhase::Up {
        return None;
    }
    if demand.free_units.is_empty() || member.offer.is_empty() {
        return Some(Totals::cpus(demand.free_cpus));
    }
    let offer = Totals::decode(&member.offer).ok()?;
    Some(offer.with_free(&demand.free_units))
}
