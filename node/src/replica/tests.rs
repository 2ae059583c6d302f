//! The findings of the model of partitions (`docs/design/019-model.md`), one scenario each.

use std::sync::Arc;

use crate::Mutant;
use kvs::membership::{apply, command};
use kvs::{Page, Write, make_replicated_map};
use proto::wire::map_command::Body as Change;
use proto::{Incarnation, NodeId, PartitionId, Span, Time, wire};

use super::map::MapNews;
use super::primary::Learner;
use super::{Config, Replica, ReplicaQueryKind};
use crate::replica::limits::REFUSAL_TIMEOUT;

pub(super) const P: PartitionId = PartitionId(0);
/// Leases of an earlier incarnation have expired by then.
pub(super) const LATER: Time = Time(Span::from_secs(100).0);

/// Three nodes with a replica each of one partition; n0 is its primary, and all are up.
fn first_map() -> wire::ClusterMap {
    let mut map = make_replicated_map(1, 3, 1, 3);
    map.partitions[0].replicas = vec![0, 1, 2];
    for node in 0..3 {
        let (incarnation, store) = (1, u64::from(node) + 1);
        let up = wire::MemberUp { node, incarnation, store, slots: 1, ..Default::default() };
        assert!(apply(&mut map, &command(Change::Up(up))));
    }
    map
}

/// One node's side, and the map on which all have agreed.
pub(super) struct Scenario {
    pub(super) replica: Replica,
    pub(super) map: wire::ClusterMap,
    batch: u64,
}

impl Scenario {
    pub(super) fn of(node: u32) -> Self {
        Self::broken(node, None)
    }
    pub(super) fn broken(node: u32, mutant: Option<Mutant>) -> Self {
        let map = first_map();
        let config = Config {
            store: u64::from(node) + 1,
            seed: 1,
            mutant,
            ..Config::new(NodeId(node), Arc::new(map.clone()))
        };
        let replica = Replica::new(&config, Arc::new(map.clone()), Time(0));
        let mut scenario = Self { replica, map, batch: 0 };
        scenario.learn();
        scenario
    }
    pub(super) fn learn(&mut self) -> MapNews {
        self.replica.on_map(Time(0), Arc::new(self.map.clone()))
    }
    pub(super) fn agree(&mut self, change: Change) -> MapNews {
        assert!(apply(&mut self.map, &command(change)));
        self.learn()
    }
    pub(super) fn epoch(&self) -> u64 {
        self.map.partitions[0].epoch
    }
    pub(super) fn hand_over(&mut self, to: u32) -> MapNews {
        let epoch = self.epoch();
        self.agree(Change::Handover(wire::Handover { partition: 0, epoch, to }))
    }
    pub(super) fn write(&mut self) {
        let (key, value) = (b"k".to_vec(), Some(b"v".to_vec()));
        self.replica.ship(vec![Write { partition: P, key, value }]);
        self.step();
    }
    /// A step in which all writes are synced.
    pub(super) fn step(&mut self) {
        let batch = self.replica.end_step(LATER, self.batch, self.batch, false);
        self.batch = batch.map_or(self.batch, |batch| batch.seq);
    }
    pub(super) fn hear(&mut self, from: u32, refused: bool) {
        let number = self.replica.number;
        let refusal = wire::Refusal { number, partition: P.0 };
        let refused = refused.then_some(refusal).into_iter().collect();
        let told = wire::Replicated { logged: number, synced: number, refused };
        self.replica.on_replicated(NodeId(from), told);
    }
    pub(super) fn is_everywhere(&self) -> bool {
        self.replica.synced(self.batch) == self.batch
    }
    pub(super) fn answer(&mut self, from: u32, kind: ReplicaQueryKind, position: wire::Position) {
        let (epoch, kind) = (self.epoch(), kind as i32);
        let (position, partition) = (Some(position), P.0);
        let answer = wire::ReplicaAnswer { partition, epoch, kind, position, ..Default::default() };
        self.replica.member_answered(NodeId(from), answer);
    }
    pub(super) fn wants(&mut self, wanted: &Change) -> bool {
        self.replica.wants_anew = true;
        let commands = self.replica.wanted().expect("it was told to look");
        commands.iter().any(|command| command.body.as_ref() == Some(wanted))
    }
    pub(super) fn activated(&self, node: u32) -> Change {
        let partitions = vec![wire::PartitionEpoch { partition: 0, epoch: self.epoch() }];
        Change::Activated(wire::Activated { node, incarnation: 1, partitions })
    }
    /// The same, one epoch later.
    fn drop_of_next(&self, node: u32) -> Change {
        let epoch = self.epoch() + 1;
        Change::DropReplica(wire::DropReplica { partition: 0, epoch, node })
    }
    pub(super) fn drop_of(&self, node: u32) -> Change {
        Change::DropReplica(wire::DropReplica { partition: 0, epoch: self.epoch(), node })
    }
}

#[test]
fn a_primary_that_takes_a_partition_back_waits_for_the_map() {
    let mut n0 = Scenario::of(0);
    n0.agree(Change::SetCopies(wire::SetCopies { copies: 2 }));
    n0.agree(n0.drop_of(2));
    n0.write();
    n0.hand_over(1);
    // The successor dies with all messages to it. It may return, and become the primary.
    n0.agree(Change::Down(wire::MemberDown { node: 1, incarnation: 1 }));
    assert_eq!(n0.map.partitions[0].former, [1]);
    n0.step();
    assert!(!n0.is_everywhere(), "n1 has not got it and could be the next primary");
    n0.step();
    let page = n0.replica.page_number;
    let page = Page { partition: P, number: page, records: Vec::new(), end: true };
    n0.replica.on_page(page);
    assert!(!n0.is_everywhere());
    n0.agree(n0.activated(0));
    assert!(n0.is_everywhere(), "every copy has it");
}

#[test]
fn what_is_written_in_the_step_in_which_a_primary_is_left_alone_waits_for_the_map() {
    let mut n0 = Scenario::of(0);
    n0.agree(Change::SetCopies(wire::SetCopies { copies: 2 }));
    n0.agree(n0.drop_of(2));
    let (key, value) = (b"k".to_vec(), Some(b"v".to_vec()));
    n0.replica.ship(vec![Write { partition: P, key, value }]);
    // In the same step n1 starts a new incarnation, and must receive all records.
    let up = wire::MemberUp { node: 1, incarnation: 2, store: 2, slots: 1, ..Default::default() };
    n0.agree(Change::Up(up));
    assert_eq!(n0.map.partitions[0].former, [1]);
    n0.step();
    // The learner restarts again before it has received anything, and is asked again.
    n0.replica.learner_restarted(NodeId(1));
    n0.replica.restart_learner(P, NodeId(1));
    n0.step();
    assert!(!n0.is_everywhere(), "n1 may go on without it");
    n0.agree(n0.activated(0));
    assert!(n0.is_everywhere());
}

#[test]
fn a_primary_that_two_members_left_acknowledges_nothing() {
    let mut n0 = Scenario::of(0);
    n0.write();
    n0.hear(1, true);
    n0.hear(2, true);
    n0.agree(n0.drop_of(1));
    assert!(!n0.is_everywhere());
    n0.agree(n0.drop_of(2));
    assert!(!n0.is_everywhere(), "no other copy has it");
    let epoch = n0.epoch();
    n0.agree(Change::AddLearner(wire::AddLearner {
        partition: 0,
        epoch,
        node: 1,
        ..Default::default()
    }));
    assert!(!n0.is_everywhere());
    let caught_up = wire::CaughtUp { partition: 0, epoch, learner: 1, incarnation: 1 };
    n0.agree(Change::CaughtUp(caught_up));
    assert!(n0.is_everywhere(), "two have it: a learner has all when it is counted");
}

#[test]
fn a_removed_primary_with_refused_writes_ends() {
    let mut n0 = Scenario::of(0);
    n0.write();
    n0.hear(1, true);
    n0.hear(2, false);
    assert!(!n0.hand_over(1).must_end);
    n0.agree(n0.activated(1));
    assert!(!n0.is_everywhere());
    assert!(n0.agree(n0.drop_of(0)).must_end, "it would tell clients of what is nowhere else");
    // A node with changes that have all been accepted need not end.
    let mut n0 = Scenario::of(0);
    n0.write();
    n0.hear(1, false);
    n0.hear(2, false);
    n0.hand_over(1);
    n0.agree(n0.activated(1));
    assert!(!n0.agree(n0.drop_of(0)).must_end);
}

#[test]
fn a_refusing_replica_leaves_without_a_write() {
    let mut n1 = Scenario::of(1);
    n1.hand_over(1);
    n1.step();
    let (here, elsewhere) = (wire::Position::default(), wire::Position { epoch: 1, seq: 7 });
    for node in [0, 2] {
        n1.answer(node, ReplicaQueryKind::Drained, here);
    }
    n1.step();
    n1.answer(0, ReplicaQueryKind::Prepare, here);
    n1.answer(2, ReplicaQueryKind::Prepare, elsewhere);
    n1.step();
    let page = n1.replica.page_number;
    n1.replica.on_page(Page { partition: P, number: page, records: Vec::new(), end: true });
    let activated = n1.activated(1);
    assert!(n1.wants(&activated));
    n1.agree(activated);
    assert!(n1.wants(&n1.drop_of(2)) && !n1.wants(&n1.drop_of(0)));
}

#[test]
fn a_partition_is_active_when_all_members_caught_up_or_left() {
    let mut n1 = Scenario::of(1);
    // n1 and n2 each have changes of n0 that the others lack in part.
    let change = |seq: u64| wire::Change {
        partition: P.0,
        epoch: 1,
        before: Some(wire::Position { epoch: u64::from(seq > 1), seq: seq - 1 }),
        after: Some(wire::Position { epoch: 1, seq }),
        ..Default::default()
    };
    let changes = vec![change(1), change(2)];
    n1.replica.on_replicate(NodeId(0), wire::Replicate { number: 1, changes, client_waits: false });
    n1.step();
    n1.hand_over(1);
    n1.step();
    let (whole, lags) = (wire::Position { epoch: 1, seq: 2 }, wire::Position { epoch: 1, seq: 1 });
    for node in [0, 2] {
        n1.answer(node, ReplicaQueryKind::Drained, whole);
    }
    n1.step();
    n1.answer(0, ReplicaQueryKind::Prepare, whole);
    n1.answer(2, ReplicaQueryKind::Prepare, lags);
    n1.step();
    let page = n1.replica.page_number;
    n1.replica.on_page(Page { partition: P, number: page, records: Vec::new(), end: true });
    let activated = n1.activated(1);
    assert!(!n1.wants(&activated), "n2 has not said that it has taken what it lacked");
    n1.hear(2, true);
    assert!(n1.wants(&activated), "it never will");
    n1.agree(activated);
    assert!(n1.wants(&n1.drop_of(2)));
}

#[test]
fn a_learner_that_the_map_may_count_has_to_give_a_lease() {
    let mut n0 = Scenario::of(0);
    n0.agree(Change::SetCopies(wire::SetCopies { copies: 2 }));
    n0.agree(n0.drop_of(1));
    n0.agree(n0.drop_of(2));
    let epoch = n0.epoch();
    n0.agree(Change::AddLearner(wire::AddLearner {
        partition: 0,
        epoch,
        node: 1,
        ..Default::default()
    }));
    n0.step();
    assert!(n0.replica.may_answer(LATER, true), "no other node can be primary");
    let answer = wire::ReplicaAnswer {
        partition: 0,
        epoch: n0.epoch(),
        kind: ReplicaQueryKind::Position as i32,
        position: Some(wire::Position::default()),
        ..Default::default()
    };
    n0.replica.learner_answered(NodeId(1), &answer);
    n0.replica.wanted().expect("it wants the map to count it");
    // The map may show it now, and declare n0 failed the next moment.
    assert!(!n0.replica.may_answer(LATER, true));
    n0.replica.leases.confirmed(NodeId(1), LATER);
    assert!(n0.replica.may_answer(LATER, true));
}

#[test]
fn a_page_of_an_earlier_primary_that_comes_late_does_not_empty_a_copy() {
    let mut n1 = Scenario::of(1);
    let change = wire::Change {
        partition: P.0,
        epoch: 1,
        before: Some(wire::Position::default()),
        after: Some(wire::Position { epoch: 1, seq: 1 }),
        ..Default::default()
    };
    let replicate =
        |number, change| wire::Replicate { number, changes: vec![change], client_waits: false };
    n1.replica.on_replicate(NodeId(0), replicate(1, change));
    n1.step();
    n1.hand_over(2);
    // n2 learns the position of this replica, and the map may count the replica with that.
    let query = wire::ReplicaQuery {
        partition: P.0,
        epoch: n1.epoch(),
        kind: ReplicaQueryKind::Position as i32,
        position: None,
        map_epoch: n1.map.epoch,
    };
    n1.replica.pending_queries.add(NodeId(2), vec![query]);
    n1.step();
    let begin = wire::SnapshotChunk::First as i32;
    let late =
        wire::Change { partition: P.0, epoch: 1, snapshot_chunk: begin, ..Default::default() };
    n1.replica.on_replicate(NodeId(0), replicate(2, late));
    n1.step();
    assert!(!n1.replica.copies.is_installing_snapshot(P), "it has told n2 that it has everything");
}

/// n0 has the only one of two wanted replicas, and has heard n1.
fn alone_beside_n1() -> Scenario {
    let mut n0 = Scenario::of(0);
    n0.agree(Change::SetCopies(wire::SetCopies { copies: 2 }));
    n0.agree(n0.drop_of(1));
    n0.agree(n0.drop_of(2));
    let (from, from_incarnation, to, to_incarnation) = (1, 1, 0, 1);
    let packet = wire::Packet { from, from_incarnation, to, to_incarnation, ..Default::default() };
    n0.replica.receive(LATER, packet);
    n0
}

/// The map is to fill a replica on n1.
fn learner(epoch: u64) -> Change {
    Change::AddLearner(wire::AddLearner { partition: 0, epoch, node: 1, ..Default::default() })
}

#[test]
fn a_learner_that_restarted_according_to_the_map_is_asked_again() {
    let mut n0 = alone_beside_n1();
    n0.agree(learner(n0.epoch()));
    n0.replica.ask_learners();
    assert!(n0.replica.unasked.is_empty());
    let up = wire::MemberUp { node: 1, incarnation: 2, store: 2, slots: 1, ..Default::default() };
    n0.agree(Change::Up(up));
    assert!(n0.replica.unasked.contains(&(P, NodeId(1))), "its earlier life may have been asked");
}

#[test]
fn a_learner_that_was_counted_and_dropped_unnoticed_is_asked_again() {
    let mut n0 = alone_beside_n1();
    let caught_up = |epoch| {
        let (partition, learner, incarnation) = (0, 1, 1);
        Change::CaughtUp(wire::CaughtUp { partition, epoch, learner, incarnation })
    };
    n0.agree(learner(n0.epoch()));
    n0.replica.ask_learners();
    let answer = wire::ReplicaAnswer {
        partition: P.0,
        epoch: n0.epoch(),
        kind: ReplicaQueryKind::Position as i32,
        position: Some(n0.replica.copies.position(P).into()),
        ..Default::default()
    };
    n0.replica.learner_answered(NodeId(1), &answer);
    assert!(n0.wants(&caught_up(n0.epoch())));
    // n1 is counted, dropped as surplus, and drops its replica; then it is wanted again.
    for change in [caught_up(n0.epoch()), n0.drop_of_next(1), learner(n0.epoch() + 2)] {
        assert!(apply(&mut n0.map, &command(change)));
    }
    n0.learn();
    assert!(!n0.wants(&caught_up(n0.epoch())), "it may have nothing by now");
    assert!(n0.replica.unasked.contains(&(P, NodeId(1))));
}

/// The same without being counted: one step of the epoch.
#[test]
fn a_learner_that_was_dropped_and_is_wanted_again_is_asked_again() {
    let mut n0 = Scenario::of(0);
    n0.agree(n0.drop_of(1));
    n0.agree(learner(n0.epoch()));
    n0.replica.ask_learners();
    assert!(n0.replica.unasked.is_empty());
    let number = n0.replica.number;
    let caught_up = Learner::CaughtUp { number, ready: true };
    let served = n0.replica.served.get_mut(&P).expect("n0 is its primary");
    *served.learners.get_mut(&NodeId(1)).expect("the map has it") = caught_up;
    for change in [n0.drop_of(1), learner(n0.epoch() + 1)] {
        assert!(apply(&mut n0.map, &command(change)));
    }
    n0.learn();
    assert!(n0.replica.unasked.contains(&(P, NodeId(1))));
}

/// n2 lagged when n0 handed over, and n1 has brought it along: no node informs n0.
#[test]
fn a_former_primary_that_waits_for_settled_writes_restarts() {
    let mut n0 = Scenario::of(0);
    n0.write();
    n0.hear(1, false);
    n0.hear(2, true);
    let late = LATER + REFUSAL_TIMEOUT;
    n0.step();
    assert!(!n0.replica.is_stuck(late), "the map is to let n2 go");
    n0.hand_over(1);
    n0.step();
    assert!(!n0.replica.is_stuck(late), "n1 may not have received it yet");
    n0.agree(n0.activated(1));
    n0.step();
    assert!(!n0.is_everywhere() && !n0.replica.is_stuck(LATER));
    assert!(n0.replica.is_stuck(late));
    // Nor if the map shows meanwhile how it was settled.
    n0.agree(n0.drop_of(2));
    n0.step();
    assert!(n0.is_everywhere() && !n0.replica.is_stuck(late));
}

/// An earlier incarnation of n1 has promised the partition to a primary that its first map does not
/// know: a node that asks may have been replaced since.
#[test]
fn a_node_with_an_older_map_than_its_promises_gives_no_lease() {
    let gives = |promised: u64| {
        let (mut earlier, mut n1) = (Scenario::of(1), Scenario::of(1));
        let mut batch = kvs::Batch::default();
        earlier.replica.copies.promise(P, promised, &mut batch);
        for write in batch.writes {
            let value = write.value.expect("a promise is a record");
            let record = kvs::Record { partition: write.partition, key: write.key, value };
            n1.replica.load(&record).expect("it is what a copy writes");
        }
        let query = wire::message::Body::LeaseRequest(wire::LeaseRequest { sent_ns: 1 });
        n1.replica.on_body(LATER, NodeId(0), Incarnation(1), query);
        n1.replica.leases.free_at(|_, _| true) > LATER
    };
    let epoch = first_map().partitions[0].epoch;
    assert!(gives(epoch));
    assert!(!gives(epoch + 1));
}

/// The first change that n0 ever sends n1 arrives when n1 knows already that its replica is not
/// wanted: no later map would make n1 drop it.
#[test]
fn what_comes_late_of_a_copy_that_is_not_wanted_any_more_is_not_kept() {
    let keeps = |is_dropped| {
        let mut n1 = Scenario::of(1);
        let epoch = n1.epoch();
        if is_dropped {
            n1.agree(n1.drop_of(1));
        }
        let after = Some(wire::Position { epoch, seq: 1 });
        let change = wire::Change { partition: P.0, epoch, after, ..Default::default() };
        let replicate = wire::Replicate { number: 1, changes: vec![change], client_waits: false };
        let body = wire::message::Body::Replicate(replicate);
        n1.replica.on_body(LATER, NodeId(0), Incarnation(1), body);
        n1.replica.copies.position(P).seq == 1
    };
    assert_eq!([false, true].map(keeps), [true, false]);
}
