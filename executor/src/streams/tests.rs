use super::*;
use std::fs;

use crate::limits::STREAM_RECORD_BYTES_MAX;
use proto::NodeId;

fn piece(job: u64, local: u64, stderr: bool, data: &[u8]) -> Piece<'_> {
    Piece { task: TaskId::new(job, local), attempt: Attempt(1), stderr, carried: false, data }
}

fn text(streams: &Streams, job: u64, tasks: &[u64], stderr: bool) -> String {
    let tasks: Vec<_> = tasks.iter().map(|task| LocalId(*task)).collect();
    let mut text = String::new();
    for piece in streams.read(JobId(job), &tasks, stderr) {
        let piece = piece.unwrap();
        text.push_str(&format!("{}:", piece.task.local.index()));
        text.push_str(std::str::from_utf8(&piece.data).unwrap());
    }
    text
}

#[test]
fn pieces_come_back_by_job_task_and_kind() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open(directory.path()).unwrap();
    streams.append(&[]).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing for nothing");
    let first = [piece(1, 1, false, b"a"), piece(1, 2, true, b"b"), piece(2, 1, false, b"c")];
    streams.append(&first).unwrap();
    streams.append(&[piece(1, 1, false, b"d"), piece(1, 3, false, b"")]).unwrap();
    assert_eq!(text(&streams, 1, &[], false), "1:a1:d");
    assert_eq!(text(&streams, 1, &[2], true), "2:b");
    assert_eq!(text(&streams, 1, &[2], false), "");
    assert_eq!(text(&streams, 2, &[], false), "1:c");
    assert_eq!(text(&streams, 3, &[], false), "");
    drop(streams);
    let streams = Streams::open(directory.path()).unwrap();
    assert_eq!(text(&streams, 1, &[], false), "1:a1:d");
}

#[test]
fn reading_goes_on_behind_a_place() {
    let directory = tempfile::tempdir().unwrap();
    // Each append begins a segment of its own.
    let streams = Streams::open_with(directory.path(), 1).unwrap();
    let mut place = Place::default();
    let mut read = || {
        let (pieces, next) = streams.read_after(JobId(1), &[], false, place);
        place = next;
        let data: Vec<Vec<u8>> = pieces.map(|piece| piece.unwrap().data).collect();
        String::from_utf8(data.concat()).unwrap()
    };
    assert_eq!(read(), "");
    streams.append(&[piece(1, 1, false, b"a"), piece(2, 1, false, b"x")]).unwrap();
    assert_eq!((read(), read()), ("a".to_owned(), String::new()));
    streams.append(&[piece(2, 1, false, b"y")]).unwrap();
    streams.append(&[piece(1, 2, false, b"b"), piece(1, 1, true, b"e")]).unwrap();
    streams.append(&[piece(1, 1, false, b"c")]).unwrap();
    assert_eq!((read(), read()), ("bc".to_owned(), String::new()));
    // In one segment.
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open(directory.path()).unwrap();
    streams.append(&[piece(1, 1, false, b"a")]).unwrap();
    let (_, place) = streams.read_after(JobId(1), &[], false, Place::default());
    streams.append(&[piece(1, 1, false, b"b")]).unwrap();
    let (pieces, _) = streams.read_after(JobId(1), &[], false, place);
    let data: Vec<Vec<u8>> = pieces.map(|piece| piece.unwrap().data).collect();
    assert_eq!(data, [b"b"]);
}

#[test]
fn the_output_of_an_attempt_is_passed_on_to_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open_with(directory.path(), 1).unwrap();
    let other = Piece { attempt: Attempt(9), ..piece(1, 1, false, b"x") };
    let own = [piece(1, 1, false, b"a"), piece(1, 1, true, b"b"), piece(1, 2, false, b"y")];
    streams.append(&own).unwrap();
    streams.append(&[other, piece(1, 1, false, b"c")]).unwrap();
    let copy = |keep: &dyn Fn(&Piece<'_>) -> Result<(), OutputLoss>| {
        streams.copy_attempt(TaskId::new(1, 1), Attempt(1), Attempt(2), keep)
    };
    copy(&|piece| {
        assert!(piece.attempt == Attempt(2) && piece.carried);
        streams.append(std::slice::from_ref(piece)).unwrap();
        Ok(())
    })
    .unwrap();
    assert_eq!(text(&streams, 1, &[1], false), "1:a1:x1:c1:a1:c");
    assert_eq!(text(&streams, 1, &[1], true), "1:b1:b");
    let read = streams.read(JobId(1), &[LocalId(1)], false).map(|piece| piece.unwrap());
    let carried: Vec<bool> = read.map(|piece| piece.carried).collect();
    assert_eq!(carried, [false, false, false, true, true], "a reader tells them apart");
    let full = || Err::<(), _>(OutputLoss::Full("full".to_owned()));
    assert_eq!(copy(&|_| full()), full());
    // A damaged pack is a loss. A pack that was removed to make room is none.
    let pack = segment::path(directory.path(), 0);
    let bytes = fs::read(&pack).unwrap();
    fs::write(&pack, vec![0; bytes.len()]).unwrap();
    assert!(matches!(copy(&|_| Ok(())), Err(OutputLoss::Failed(_))));
    fs::remove_file(&pack).unwrap();
    assert_eq!(copy(&|_| Ok(())), Ok(()));
}

#[test]
fn a_torn_tail_is_ignored_wherever_it_is_torn() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open(directory.path()).unwrap();
    streams.append(&[piece(1, 1, false, b"whole")]).unwrap();
    let whole = streams.size_bytes() as usize;
    streams.append(&[piece(1, 2, false, b"torn away")]).unwrap();
    drop(streams);
    let pack = segment::path(directory.path(), 0);
    let bytes = fs::read(&pack).unwrap();
    for length in whole..bytes.len() {
        fs::remove_dir_all(directory.path()).unwrap();
        fs::create_dir(directory.path()).unwrap();
        fs::write(&pack, &bytes[..length]).unwrap();
        let streams = Streams::open(directory.path()).unwrap();
        assert_eq!(text(&streams, 1, &[], false), "1:whole", "torn at {length}");
        // New records are written to another segment: the tear hides nothing later.
        streams.append(&[piece(1, 3, false, b"later")]).unwrap();
        drop(streams);
        let streams = Streams::open(directory.path()).unwrap();
        assert_eq!(text(&streams, 1, &[], false), "1:whole3:later", "torn at {length}");
    }
}

#[test]
fn a_flipped_bit_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open(directory.path()).unwrap();
    streams.append(&[piece(1, 1, false, b"good"), piece(1, 2, false, b"bad!")]).unwrap();
    let pack = segment::path(directory.path(), 0);
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&pack, &bytes).unwrap();
    let pieces: Vec<_> = streams.read(JobId(1), &[], false).collect();
    assert!(pieces[0].is_ok());
    assert!(pieces[1].is_err());
    assert_eq!(pieces.len(), 2);
}

#[test]
fn segments_are_bounded_and_a_lost_sidecar_is_rebuilt() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open_with(directory.path(), 200).unwrap();
    let mut expected = String::new();
    for task in 0..20 {
        streams.append(&[piece(5, task, task % 2 == 1, b"0123456789")]).unwrap();
        if task % 2 == 0 {
            expected.push_str(&format!("{task}:0123456789"));
        }
    }
    assert!(streams.state().segments.len() >= 4);
    drop(streams);
    fs::remove_file(directory.path().join("000001.jobs")).unwrap();
    fs::write(directory.path().join("000002.jobs"), "starling streams 1\nsum 0\n").unwrap();
    let streams = Streams::open_with(directory.path(), 200).unwrap();
    assert_eq!(text(&streams, 5, &[], false), expected);
}

#[test]
fn long_output_is_cut_into_records() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open(directory.path()).unwrap();
    let long = vec![b'x'; STREAM_RECORD_BYTES_MAX * 2 + 1];
    streams.append(&[piece(1, 1, true, &long)]).unwrap();
    let pieces: Vec<_> = streams.read(JobId(1), &[], true).map(Result::unwrap).collect();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces.iter().map(|piece| piece.data.len()).sum::<usize>(), long.len());
}

#[test]
fn the_oldest_packs_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open_with(directory.path(), 200).unwrap();
    for job in 1..=6 {
        streams.append(&[piece(job, 1, false, &[b'x'; 150])]).unwrap();
        streams.append(&[piece(job, 2, false, &[b'x'; 150])]).unwrap();
    }
    let before = streams.packs();
    assert!(before.len() > 3, "{before:?}");
    let newest: u64 = before.iter().rev().take(2).map(|(_, length)| length).sum();
    assert!(streams.make_room(10, newest + 10));
    assert_eq!(streams.packs(), before[before.len() - 2..]);
    assert_eq!(text(&streams, 1, &[], false), "");
    assert!(text(&streams, 6, &[], false).len() >= 300);
    assert!(!streams.make_room(10, 9), "that never fits");
    assert_eq!(streams.packs().len(), 2, "so nothing is removed for it");
    assert!(streams.make_room(9, 9));
    streams.append(&[piece(7, 1, false, b"next")]).unwrap();
    drop(streams);
    let reopened = Streams::open(directory.path()).unwrap();
    assert!(text(&reopened, 7, &[], false).ends_with("next"));
    assert_eq!(reopened.packs().len(), 1);
}

/// Sends all of a node's packs as its copies request them; returns the number of parts.
fn copy(from: &Streams, to: &Streams, store: u64) -> usize {
    let packs = from.packs();
    let part = |pack, offset, data: &[u8]| {
        let (maker, first) = (NodeId(7), packs[0].0);
        to.copies().keep(&CopiedRecords { maker, store, first, pack, offset, data })
    };
    let mut parts = 0;
    for &(pack, length) in &packs {
        let mut has = part(pack, 0, &[]).unwrap();
        while has < length {
            has = part(pack, has, &from.records_from(pack, has).unwrap()).unwrap();
            parts += 1;
        }
    }
    parts
}

fn copied(streams: &Streams, job: u64) -> String {
    let pieces = streams.copies().read(NodeId(7), JobId(job), &[], false);
    let bytes: Vec<u8> = pieces.flat_map(|piece| piece.unwrap().data).collect();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_copy_grows_with_its_pack_and_survives_restarts() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let maker = Streams::open_with(directories[0].path(), 200).unwrap();
    let open = || Streams::open(directories[1].path()).unwrap();
    let keeper = open();
    assert_eq!(copied(&keeper, 1), "");
    maker.append(&[piece(1, 1, false, b"a"), piece(2, 1, false, b"other")]).unwrap();
    assert_eq!(copy(&maker, &keeper, 5), 1);
    assert_eq!(copy(&maker, &keeper, 5), 0, "nothing is new");
    maker.append(&[piece(1, 2, false, b"b")]).unwrap();
    copy(&maker, &keeper, 5);
    assert_eq!((copied(&keeper, 1), copied(&keeper, 2)), ("ab".into(), "other".into()));
    drop(keeper);
    let keeper = open();
    assert_eq!(copied(&keeper, 1), "ab");
    drop(keeper);
    // Opened twice: records added after the first opening count at the second.
    let keeper = open();
    let long = vec![b'x'; 2 * STREAM_RECORD_BYTES_MAX];
    maker.append(&[piece(1, 3, false, &long), piece(1, 4, false, b"c")]).unwrap();
    assert!(copy(&maker, &keeper, 5) >= 2, "in parts");
    drop(keeper);
    let keeper = open();
    assert_eq!(copied(&keeper, 1).len(), 3 + long.len());
    assert_eq!(keeper.copies().size_bytes(), maker.size_bytes());
    assert_eq!(text(&keeper, 1, &[], false), "", "it is not its own");
    // The maker has lost its store: the next store leaves the copies of the first as they are.
    let next = tempfile::tempdir().unwrap();
    let maker = Streams::open(next.path()).unwrap();
    maker.append(&[piece(1, 9, false, b"d")]).unwrap();
    copy(&maker, &keeper, 6);
    assert!(copied(&keeper, 1).ends_with("cd"));
}

#[test]
fn a_copy_takes_whole_records_where_it_ends_and_nothing_else() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let maker = Streams::open_with(directories[0].path(), 1).unwrap();
    for text in [&b"one"[..], b"two", b"three"] {
        maker.append(&[piece(1, 1, false, text)]).unwrap();
    }
    let keeper = Streams::open(directories[1].path()).unwrap();
    let data = maker.records_from(0, 0).unwrap();
    let records = |offset, data| CopiedRecords {
        maker: NodeId(7),
        store: 5,
        first: 0,
        pack: 0,
        offset,
        data,
    };
    assert!(keeper.copies().keep(&records(0, &data[..data.len() - 1])).is_err());
    assert!(keeper.copies().keep(&records(0, b"no record at all")).is_err());
    assert_eq!(keeper.copies().keep(&records(9, &data)).unwrap(), 0, "there is a gap");
    copy(&maker, &keeper, 5);
    assert_eq!(keeper.copies().keep(&records(0, &data)).unwrap(), data.len() as u64, "repeated");
    assert_eq!(copied(&keeper, 1), "onetwothree");
    // Packs that the maker has removed are removed here too.
    let gone = CopiedRecords { first: 2, pack: 2, ..records(0, &[]) };
    keeper.copies().keep(&gone).unwrap();
    assert_eq!(copied(&keeper, 1), "three");
    drop(keeper);
    let keeper = Streams::open(directories[1].path()).unwrap();
    assert_eq!(copied(&keeper, 1), "three");
}

fn copy_of(streams: &Streams, maker: &Streams, first: u32, pack: u32) {
    let data = maker.records_from(pack, 0).unwrap();
    let (node, store) = (NodeId(1), 9);
    let records = CopiedRecords { maker: node, store, first, pack, offset: 0, data: &data };
    streams.copies().keep(&records).unwrap();
}

fn packs_below(directory: &Path) -> usize {
    let names = |at: &Path| -> Vec<PathBuf> {
        fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut count = 0;
    for path in names(directory) {
        match path.is_dir() {
            true => count += packs_below(&path),
            false => count += usize::from(path.extension().is_some_and(|it| it == "pack")),
        }
    }
    count
}

#[test]
fn a_forgotten_job_leaves_no_copy_of_what_it_printed() {
    let [own, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let maker = Streams::open(other.path()).unwrap();
    maker.append(&[piece(1, 1, false, b"alone")]).unwrap();
    let streams = Streams::open(own.path()).unwrap();
    copy_of(&streams, &maker, 0, 0);
    assert_eq!(packs_below(own.path()), 1);
    streams.forget(JobId(2)).unwrap();
    assert_eq!(packs_below(own.path()), 1, "of another job");
    streams.forget(JobId(1)).unwrap();
    assert_eq!((packs_below(own.path()), streams.copies().size_bytes()), (0, 0));
    // The maker's own pack is removed, and `first_pack` shows it.
    assert_eq!(maker.first_pack(), 0);
    maker.forget(JobId(1)).unwrap();
    assert_eq!((packs_below(other.path()), maker.first_pack()), (0, 1));
}

#[test]
fn what_cannot_be_removed_stays_known() {
    let directory = tempfile::tempdir().unwrap();
    let streams = Streams::open(directory.path()).unwrap();
    streams.append(&[piece(1, 1, false, b"said")]).unwrap();
    // A directory in place of the sidecar: it can be neither replaced nor removed.
    fs::create_dir(directory.path().join("000000.jobs")).unwrap();
    assert!(streams.forget(JobId(1)).is_err());
    assert_eq!(text(&streams, 1, &[], false), "1:said");
    fs::remove_dir(directory.path().join("000000.jobs")).unwrap();
    streams.forget(JobId(1)).unwrap();
    assert_eq!(text(&streams, 1, &[], false), "");
    assert_eq!(packs_below(directory.path()), 0);
}
