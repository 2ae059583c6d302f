use super::*;
use crate::limits::COPY_RECENT_CHANGES;

const P: PartitionId = PartitionId(3);

fn write(key: &'static str, value: Option<&'static str>) -> wire::RecordWrite {
    let (key, value, removed) = (key.into(), value.unwrap_or_default().into(), value.is_none());
    wire::RecordWrite { key, value, removed }
}

/// A primary's change of one key.
fn changed(primary: &mut Copies, epoch: u64, key: &'static str) -> Arc<wire::Change> {
    primary.advance(P, epoch, vec![write(key, Some("v"))], &mut Batch::default())
}

fn take(copies: &mut Copies, change: &Arc<wire::Change>) -> Result<Batch, Refused> {
    let mut batch = Batch::default();
    copies.take(change, &mut batch).map(|()| batch)
}

#[test]
fn a_copy_takes_each_change_once_and_in_order() {
    let (mut primary, mut backup) = (Copies::default(), Copies::default());
    let changes: Vec<_> = ["a", "b", "c"].map(|key| changed(&mut primary, 1, key)).to_vec();
    assert!(take(&mut backup, &changes[0]).is_ok());
    let at = Position { epoch: 1, seq: 1 };
    assert_eq!(take(&mut backup, &changes[0]), Err(Refused::Elsewhere { at }));
    assert_eq!(take(&mut backup, &changes[2]), Err(Refused::Elsewhere { at }));
    let batch = take(&mut backup, &changes[1]).unwrap();
    assert_eq!(batch.writes[0].key, b"b");
    assert!(take(&mut backup, &changes[2]).is_ok());
    assert_eq!(backup.position(P), primary.position(P));
    assert_eq!(backup.since(P, at).unwrap(), changes[1..]);
    assert_eq!(backup.since(P, Position { epoch: 9, seq: 1 }), None);
}

#[test]
fn a_replica_that_has_promised_takes_nothing_of_an_earlier_primary() {
    let (mut old, mut backup) = (Copies::default(), Copies::default());
    let change = changed(&mut old, 1, "a");
    backup.promise(P, 2, &mut Batch::default());
    assert_eq!(take(&mut backup, &change), Err(Refused::Promised { epoch: 2 }));
    let mut new = Copies::default();
    assert!(take(&mut backup, &changed(&mut new, 2, "b")).is_ok());
    // The old primary's history is equally long but different.
    assert_eq!(old.position(P), Position { epoch: 1, seq: 1 });
    assert_eq!(backup.position(P), Position { epoch: 2, seq: 1 });
}

#[test]
fn a_snapshot_replaces_everything_and_has_a_position_only_at_its_end() {
    let (mut primary, mut learner) = (Copies::default(), Copies::default());
    take(&mut learner, &changed(&mut Copies::default(), 1, "stale")).unwrap();
    for key in ["a", "b"] {
        changed(&mut primary, 2, key);
    }
    let snapshot_chunk = |snapshot_chunk: SnapshotChunk, after: Option<wire::Position>| {
        let writes = vec![write("x", Some("y"))];
        let snapshot_chunk = snapshot_chunk as i32;
        Arc::new(wire::Change {
            partition: P.0,
            epoch: 2,
            before: None,
            after,
            snapshot_chunk,
            writes,
        })
    };
    assert_eq!(
        take(&mut learner, &snapshot_chunk(SnapshotChunk::More, None)),
        Err(Refused::NotInstalling)
    );
    let batch = take(&mut learner, &snapshot_chunk(SnapshotChunk::First, None)).unwrap();
    assert_eq!(batch.cleared, [P]);
    assert!(learner.is_installing_snapshot(P));
    let change = changed(&mut primary, 2, "c");
    assert!(take(&mut learner, &change).is_err(), "a change of a copy, not of a snapshot");
    take(&mut learner, &snapshot_chunk(SnapshotChunk::More, None)).unwrap();
    let after = Some(primary.position(P).into());
    let batch = take(&mut learner, &snapshot_chunk(SnapshotChunk::Last, after)).unwrap();
    assert_eq!(learner.position(P), primary.position(P));
    // A stored record restores the same state.
    let Write { partition, key, value } = batch.writes.last().unwrap().clone();
    let mut again = Copies::default();
    again.load(&Record { partition, key, value: value.unwrap() }).unwrap();
    assert_eq!((again.position(P), again.is_installing_snapshot(P)), (learner.position(P), false));
}

#[test]
fn old_changes_are_forgotten() {
    let mut primary = Copies::default();
    for _ in 0..COPY_RECENT_CHANGES + 5 {
        changed(&mut primary, 1, "k");
    }
    let at = |seq| Position { epoch: u64::from(seq > 0), seq };
    assert_eq!(primary.since(P, at(0)), None);
    assert_eq!(primary.since(P, at(4)), None);
    assert_eq!(primary.since(P, at(5)).unwrap().len(), COPY_RECENT_CHANGES);
}
