//! The rank by which ready queues are ordered.

use std::ops::RangeInclusive;

use crate::Order;
use crate::holder::task::Work;

/// Set for tasks that were ready before; they go first.
pub(crate) const RANK_FIRST: u64 = 1 << 63;
/// Set for tasks on a critical path, which go before all others.
const RANK_CRITICAL: u64 = 1 << 62;
/// Both are set for tasks with a rank of their user, which go before these.
const RANK_OF_USER: u64 = RANK_CRITICAL | RANK_SPAWNED;
/// Set for spawned tasks: below the critical paths, above input bytes.
const RANK_SPAWNED: u64 = 1 << 61;
/// The place of a spawned task's depth in its rank.
const SPAWN_DEPTH_SHIFT: u32 = 47;
const SPAWN_DEPTH_MAX: u32 = (1 << 14) - 1;

/// The ranks of spawned tasks that wait for the first time. A thief takes the lowest of them, which
/// is next to the root and has the most work below it.
pub(crate) const SPAWNED_RANKS: RangeInclusive<u64> = RANK_SPAWNED..=RANK_CRITICAL - 1;
/// A path is critical if it takes this part of the whole job's time on all slots, or more.
const CRITICAL_PART: u64 = 10;

/// The rank of a task; the highest is first. `slots` are those of all nodes.
pub(crate) fn rank(order: Order, work: &Work, slots: u64) -> u64 {
    let rank = match order {
        Order::Bytes => work.input_bytes().min(RANK_SPAWNED - 1),
        Order::Urgency => work.urgency.min(RANK_SPAWNED - 1),
        Order::Critical if is_critical(work, slots) => {
            RANK_CRITICAL | work.urgency.min(RANK_SPAWNED - 1)
        }
        Order::Critical => work.input_bytes().min(RANK_SPAWNED - 1),
    };
    if work.again && work.deaths > 0 {
        // The task with the fewest deaths is the least suspect.
        return RANK_FIRST | u64::from(u8::MAX - work.deaths);
    }
    let first = if work.again { RANK_FIRST } else { 0 };
    if work.spec.rank > 0 {
        return first | of_user(work.spec.rank.into());
    }
    if work.depth > 0 {
        // Deep tasks first: the queue stays as short as the tree is deep.
        let depth = u64::from(work.depth.min(SPAWN_DEPTH_MAX)) << SPAWN_DEPTH_SHIFT;
        return first | RANK_SPAWNED | depth | rank.min((1 << SPAWN_DEPTH_SHIFT) - 1);
    }
    first | rank.min(RANK_FIRST - 1)
}

/// The rank in the queues of a task to which its user gives this rank.
pub(crate) fn of_user(rank: u64) -> u64 {
    RANK_OF_USER | rank.min(u32::MAX.into())
}

/// Whether the path from a task to an end of its graph may decide when the job ends. A path that is
/// short compared with the whole job gets its turn in time in any order; then tasks had better
/// follow their data.
fn is_critical(work: &Work, slots: u64) -> bool {
    let job_ns = work.settings.work_ns / slots.max(1);
    work.settings.work_ns > 0 && work.urgency >= job_ns / CRITICAL_PART
}

#[cfg(test)]
mod tests {
    use proto::{Span, wire};

    use super::*;
    use crate::{Policy, Tuning};

    /// A task of a job of 1,000 s, with this path to the end and these input bytes.
    fn task(urgency_s: u64, bytes: u64) -> Work {
        let settings = wire::JobSettings { work_ns: 1_000_000_000_000, ..Default::default() };
        let input = wire::InputAt { size_bytes: bytes, ..wire::InputAt::default() };
        Work {
            spec: Default::default(),
            settings: settings.into(),
            entry: 0,
            duration: Span::ZERO,
            urgency: urgency_s * 1_000_000_000,
            output_sizes: Vec::new(),
            name: Box::default(),
            payload: Default::default(),
            inputs: vec![input],
            deaths: 0,
            alone: false,
            again: false,
            depth: 0,
            resume: None,
        }
    }

    #[test]
    fn long_paths_go_first_and_short_ones_by_their_bytes() {
        // A tenth of the job's time on ten slots is ten seconds.
        let rank = |work: &Work| rank(Order::Critical, work, 10);
        let (longest, long) = (task(50, 0), task(10, 1 << 40));
        let (heavy, light) = (task(1, 1 << 40), task(9, 1));
        assert!(rank(&longest) > rank(&long) && rank(&long) > rank(&heavy));
        assert!(rank(&heavy) > rank(&light));
        // On more slots the job takes less time, and more of it is critical.
        assert!(
            super::rank(Order::Critical, &light, 100) > super::rank(Order::Critical, &heavy, 100)
        );
        let unknown = Work { settings: wire::JobSettings::default().into(), ..task(50, 1) };
        assert_eq!(rank(&unknown), 1, "nothing is known of its job");
    }

    #[test]
    fn the_users_rank_comes_before_paths_depths_and_bytes() {
        let ranked = |rank: u32| {
            let spec = wire::Spec { rank, ..wire::Spec::default() };
            Work { spec: spec.into(), ..task(0, 0) }
        };
        let rank = |work: &Work| rank(Order::Critical, work, 10);
        let deep = Work { depth: u32::MAX, ..task(0, 0) };
        let others = [task(1_000_000, 0), deep, task(0, u64::MAX)];
        assert!(others.iter().all(|other| rank(other) < rank(&ranked(1))));
        assert!(rank(&ranked(1)) < rank(&ranked(2)));
        assert!(rank(&ranked(u32::MAX)) < rank(&Work { again: true, ..task(0, 0) }));
        assert!(SPAWNED_RANKS.contains(&rank(&Work { depth: 1, ..task(0, 0) })));
        assert!(!SPAWNED_RANKS.contains(&rank(&ranked(1))));
    }

    #[test]
    fn what_was_ready_before_goes_before_all() {
        for order in [Order::Bytes, Order::Urgency, Order::Critical] {
            let again = Work { again: true, ..task(0, 0) };
            let endless = Work { urgency: u64::MAX, ..task(0, u64::MAX) };
            assert!(rank(order, &again, 1) > rank(order, &endless, 1), "{order:?}");
        }
    }

    #[test]
    fn the_papers_policies_go_by_bytes() {
        let named = |policy: Policy, order: Option<&str>| {
            let order = order.map(str::to_owned);
            let policy = Some(policy.name().to_owned());
            Tuning::default().with(&wire::Tuning { policy, order, ..Default::default() }).unwrap()
        };
        use Policy::{Adaptive, Eft, Flds, Mdl, Mlb, Rlds};
        for policy in [Mlb, Mdl, Rlds, Flds, Adaptive] {
            assert_eq!(named(policy, None).order, Order::Bytes, "{policy:?}");
        }
        assert_eq!(named(Eft, None).order, Order::Critical);
        for policy in Policy::ALL {
            assert_eq!(named(policy, Some("urgency")).order, Order::Urgency);
        }
        let bytes = Tuning { order: Order::Bytes, ..Tuning::default() };
        assert_eq!(bytes.with(&wire::Tuning::default()).unwrap().order, Order::Bytes);
    }
}
