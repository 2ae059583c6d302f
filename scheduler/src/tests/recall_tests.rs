//! Which answers end the wait of a held-back end.

use std::collections::BTreeMap;

use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::recall::{Pending, bare_recall};
use crate::output::Out;
use crate::tests::staging_tests::scheduler;
use crate::{Policy, Scheduler, Tuning};

const OWN: PartitionId = PartitionId(3);
const READERS: PartitionId = PartitionId(4);

fn task() -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(OWN, 0) }
}

/// The second attempt of a task waits for the job's home, then for readers of both partitions.
fn waiting() -> Scheduler {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let attempt = Attempt(2);
    let recall = |partition: PartitionId| wire::Recall {
        child: vec![LocalId::new(partition, 1).0],
        slot: vec![0],
        ..bare_recall(task(), attempt, partition)
    };
    let later: BTreeMap<_, _> = [OWN, READERS].map(|place| (place, recall(place))).into();
    let completion = wire::Completion {
        job: task().job.0,
        local: task().local.0,
        attempt: attempt.0,
        ..wire::Completion::default()
    };
    let pending = Pending {
        from: NodeId(1),
        completion,
        outputs: vec![0],
        later,
        unanswered: [(OWN, bare_recall(task(), attempt, OWN))].into(),
        used: false,
    };
    scheduler.ledger.recalls.pending.insert(task(), pending);
    scheduler
}

/// Answers, and returns the partitions with readers that have not answered.
fn answer(scheduler: &mut Scheduler, partition: PartitionId, readers: bool) -> Vec<PartitionId> {
    let answer = wire::Recalled {
        job: task().job.0,
        parent: task().local.0,
        attempt: 2,
        partition: partition.0,
        used: false,
        counted: true,
        readers,
    };
    scheduler.on_recalled(Time(0), answer, &mut Out::default());
    let pending = scheduler.ledger.recalls.pending.get(&task());
    pending.map(|pending| pending.unanswered.keys().copied().collect()).unwrap_or_default()
}

#[test]
fn a_repeated_answer_of_the_jobs_home_is_no_answer_of_readers() {
    let mut scheduler = waiting();
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN, READERS]);
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN, READERS], "it is the first once more");
    assert_eq!(answer(&mut scheduler, READERS, true), [OWN]);
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN]);
    assert!(answer(&mut scheduler, OWN, true).is_empty());
    assert!(!scheduler.ledger.recalls.pending.contains_key(&task()));
}

#[test]
fn an_answer_of_readers_does_not_stand_for_the_jobs_home() {
    let mut scheduler = waiting();
    assert_eq!(answer(&mut scheduler, OWN, true), [OWN], "of an earlier recall");
    assert_eq!(answer(&mut scheduler, OWN, false), [OWN, READERS]);
}
