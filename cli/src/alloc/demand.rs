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
    let Some(added) = class_of(row) else { return };
    let key = (added.request.encode(), added.time_ms, added.nodes);
    let (tasks, work_ms) = (added.tasks, added.work_ms);
    let class = classes.entry(key).or_insert(ClassDemand { tasks: 0, work_ms: 0, ..added });
    class.tasks = class.tasks.saturating_add(tasks);
    class.work_ms = class.work_ms.saturating_add(work_ms);
}

/// `None`: it has a request of a later version.
pub(super) fn class_of(row: &wire::ClassDemand) -> Option<ClassDemand> {
    let request = match row.request.is_empty() {
        true => Request::cpus(row.cpus.max(1)),
        false => Request::decode(&row.request).ok()?,
    };
    Some(ClassDemand {
        request,
        time_ms: row.time_request_ns.div_ceil(NS_PER_MS),
        tasks: row.tasks,
        work_ms: row.work_ns / NS_PER_MS,
        nodes: row.nodes.max(1),
    })
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
