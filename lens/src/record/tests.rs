use proptest::prelude::*;
use proto::{LocalId, PartitionId};

use super::*;
use crate::attempt::{Outcome, coarse, fine_code, of_fine_code};

fn attempt() -> impl Strategy<Value = AttemptRow> {
    let place =
        (0u32..4, 0u32..5, prop::collection::vec(0u32..8, 0..3), 0u64..1 << 40, 0u64..1 << 36);
    let task = (0u32..3, 0u64..1 << 20, 1u32..4, 0u32..3, 0usize..4);
    let sizes = (any::<u64>(), any::<u64>(), 0u64..1 << 40, 0u64..1 << 30);
    (place, task, sizes).prop_map(|((node, slot, more, start_us, ran_us), task, sizes)| {
        let (partition, index, number, kind, outcome) = task;
        AttemptRow {
            node,
            slot,
            more: more.into(),
            start_us,
            ran_us,
            wait_us: coarse(sizes.2),
            fetch_us: coarse(sizes.3),
            task: LocalId::new(PartitionId(partition), index),
            number,
            kind,
            outcome: Outcome::ALL[outcome],
            moved_bytes: sizes.0,
            local_bytes: sizes.1,
            is_part: false,
        }
    })
}

/// Numbers that a record keeps exactly.
fn measured(cpu_us: u64, max_rss_kib: u64) -> Used {
    let kept = |value| of_fine_code(fine_code(value));
    Used { cpu_us: kept(cpu_us), max_rss_kib: kept(max_rss_kib) }
}

fn task() -> impl Strategy<Value = TaskRow> {
    let name = prop_oneof!["[a-c]{0,3}-[0-9]{1,20}", "\\PC{0,12}", "x[0-9]{1,3}(_y)?"];
    let used = prop_oneof![Just((0, 0)), (any::<u64>(), 0u64..1 << 40)];
    (0u32..3, 0u64..1 << 39, name, 0u8..7, any::<i32>(), used).prop_map(
        |(partition, index, name, state, exit_code, (cpu_us, max_rss_kib))| TaskRow {
            task: LocalId::new(PartitionId(partition), index),
            name,
            state,
            exit_code,
            used: measured(cpu_us, max_rss_kib),
        },
    )
}

prop_compose! {
    fn record()(
        attempts in prop::collection::vec(attempt(), 0..40),
        parts in prop::collection::vec(attempt(), 0..9),
        tasks in prop::collection::vec(task(), 0..40),
        name in "\\PC{0,20}",
    ) -> Record {
        let meta = Meta { schema: 1, name, kinds: vec!["a".to_owned()], ..Meta::default() };
        let parts = parts.into_iter().map(|row| AttemptRow { is_part: true, ..row }).collect();
        let mut record = Record { meta, tasks, attempts, parts };
        record.sort();
        record
    }
}

proptest! {
    #[test]
    fn a_record_is_read_as_it_was_written(record in record()) {
        let file = record.write().unwrap();
        prop_assert_eq!(Record::read_meta(&file).unwrap(), record.meta.clone());
        prop_assert_eq!(Record::read(&file).unwrap(), record);
    }

    #[test]
    fn a_cut_record_is_refused(record in record(), share in 0.0f64..1.0) {
        let file = record.write().unwrap();
        let cut = (file.len() as f64 * share) as usize;
        let error = Record::read(&file[..cut]).unwrap_err();
        let expected = if cut == 0 { RecordError::NotARecord } else { RecordError::Cut(cut) };
        prop_assert_eq!(error, expected);
    }

    #[test]
    fn a_changed_byte_is_found(record in record(), share in 0.0f64..1.0, flip in 1u8..=255) {
        let mut file = record.write().unwrap();
        let at = (file.len() as f64 * share) as usize;
        file[at] ^= flip;
        prop_assert!(Record::read(&file).is_err());
    }

    /// With a right checksum, any content is read or refused; nothing panics or takes much memory.
    #[test]
    fn garbage_in_a_section_is_refused_or_read(
        tag in prop::sample::select(vec![b'M', b'T', b'A', b'E', b'u', b'x', b'Z']),
        raw in prop::collection::vec(prop_oneof![4 => 0u8..4, 1 => any::<u8>()], 0..200),
    ) {
        drop(Record::read(&sections::tests::of_sections(&[(tag, &raw)])));
    }

    #[test]
    fn garbage_columns_are_refused_or_read(
        rows in 0u64..40,
        columns in prop::collection::vec(
            prop::collection::vec(prop_oneof![6 => 0u8..4, 1 => any::<u8>()], 0..40), 16
        ),
        (number, tag) in prop::sample::select(vec![(7, b'T'), (16, b'A'), (3, b'u')]),
    ) {
        let block = varint::block(rows as usize, &columns[..number]);
        drop(Record::read(&sections::tests::of_sections(&[(tag, &block)])));
    }
}

/// A place as a share of the whole, and the bytes that replace one byte there.
fn edits() -> impl Strategy<Value = Vec<(f64, Vec<u8>)>> {
    prop::collection::vec((0.0f64..1.0, prop::collection::vec(any::<u8>(), 0..3)), 1..4)
}

proptest! {
    /// Blocks with right checksums and wrong content: they are refused, or shown in all forms.
    #[test]
    fn a_changed_block_is_refused_or_shown(record in record(), edits in edits()) {
        let damaged = |mut block: Vec<u8>| {
            for (share, bytes) in &edits {
                let at = (block.len() as f64 * share) as usize;
                let end = (at + 1).min(block.len());
                block.splice(at..end, bytes.iter().copied());
            }
            block
        };
        let meta = serde_json::to_vec(&record.meta).unwrap();
        let attempts = attempts::write(&record.attempts);
        let tasks = tasks::write(&record.tasks);
        for (tag, block) in [(b'A', attempts), (b'T', tasks), (b'M', meta.clone())] {
            let block = damaged(block);
            let file = sections::tests::of_sections(&[(b'M', &meta), (tag, &block)]);
            let Ok(read) = Record::read(&file) else { continue };
            let report = crate::Report::of(&read);
            let page = report.to_page(&file, None, &|_| String::new());
            prop_assert!(page.len() < 1 << 20);
            drop((report.to_text(), report.to_csv(), report.to_json()));
            crate::trace::chrome(&read, &mut Vec::new()).unwrap();
            crate::trace::perfetto(&read, &mut Vec::new()).unwrap();
            if read.attempts.is_sorted_by_key(AttemptRow::key) {
                prop_assert_eq!(Record::read(&read.write().unwrap()).unwrap(), read);
            }
        }
    }
}

#[test]
fn each_refusal_names_its_reason() {
    let file = Record::default().write().unwrap();
    assert_eq!(Record::read(b"hello, world"), Err(RecordError::NotARecord));
    assert_eq!(Record::read(b""), Err(RecordError::NotARecord));
    let mut newer = file.clone();
    newer[8] = 9;
    let error = Record::read(&newer).unwrap_err();
    assert_eq!(error.to_string(), "the run record has version 9; this program reads version 1");
    let mut longer = file.clone();
    longer.push(0);
    assert!(matches!(Record::read(&longer), Err(RecordError::Malformed { .. })));
    let unknown = sections::tests::of_sections(&[(b'Z', b"")]);
    assert_eq!(Record::read(&unknown), Err(RecordError::UnknownSection('Z')));
    let headless = sections::tests::of_sections(&[]);
    assert!(matches!(Record::read(&headless), Err(RecordError::Malformed { what: "no head", .. })));
}

#[test]
fn slots_out_of_range_and_too_many_are_refused() {
    let row = |slot| AttemptRow { slot, more: Box::new([1, 2, 3]), ..AttemptRow::default() };
    let read = |slot, mut left: u64| {
        attempts::read(&attempts::write(&[row(slot)]), 0, &mut Vec::new(), &mut left)
    };
    assert_eq!(read(proto::limits::SLOTS_MAX - 1, 3), Ok(()));
    assert_eq!(read(crate::attempt::SLOT_UNKNOWN, 3), Ok(()));
    let beyond = RecordError::Malformed { at: 0, what: "a slot out of range" };
    assert_eq!(read(proto::limits::SLOTS_MAX, 3), Err(beyond));
    assert_eq!(read(0, 2), Err(RecordError::TooLarge("the slots of wide attempts")));
}

#[test]
fn the_names_of_all_tasks_are_bounded() {
    let name = |name: &str| TaskRow { name: name.to_owned(), ..TaskRow::default() };
    let block = tasks::write(&[name("abc"), name("abcd")]);
    let read = |mut left: usize| tasks::read(&block, 0, &mut Vec::new(), &mut left);
    assert_eq!(read(7), Ok(()));
    assert_eq!(read(6), Err(RecordError::TooLarge("the names of the tasks")));
}

#[test]
fn a_section_that_may_be_left_out_is_left_out() {
    let meta = serde_json::to_vec(&Meta::default()).unwrap();
    let file = sections::tests::of_sections(&[(b'M', &meta), (b'x', b"anything")]);
    assert_eq!(Record::read(&file).unwrap(), Record::default());
}

/// A run of many sleeps: 64 slots on 8 nodes, tasks from arrays, waits that grow and shrink.
pub(crate) fn large(tasks: u64) -> Record {
    let (nodes, slots) = (8u64, 8u64);
    let mut state = 1u64;
    let mut random = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut record = Record::default();
    record.meta.kinds = ["align", "count", "sum"].map(str::to_owned).to_vec();
    record.meta.nodes = (0..nodes)
        .map(|node| MetaNode { node: node as u32, slots: slots as u32, ..MetaNode::default() })
        .collect();
    for node in 0..nodes {
        let mut free: std::collections::BTreeSet<(u64, u64)> =
            (0..slots).map(|slot| (0, slot)).collect();
        for number in 0..tasks / nodes {
            let (at, slot) = free.pop_first().unwrap();
            let start_us = at + 30 + random(25) + if random(50) == 0 { random(2_000) } else { 0 };
            let ran_us = 50_060 + random(300);
            free.insert((start_us + ran_us, slot));
            let partition = PartitionId((node * 97 + number % 3) as u32);
            let task = LocalId::new(partition, number / 3);
            let moved_bytes = if random(10) == 0 { 5_000_000 } else { 0 };
            record.attempts.push(AttemptRow {
                node: node as u32,
                slot: slot as u32,
                start_us,
                ran_us,
                wait_us: coarse(start_us.saturating_sub(random(1_000))),
                fetch_us: coarse(if moved_bytes > 0 { 40_000 + random(2_000) } else { 0 }),
                task,
                number: 1,
                kind: random(3) as u32,
                outcome: if random(1_000) == 0 { Outcome::Failed } else { Outcome::Done },
                moved_bytes,
                local_bytes: 5_000_000 - moved_bytes,
                more: Box::default(),
                is_part: false,
            });
            let name = format!("align-{}", (node * tasks / nodes) + number);
            let used = measured(40_000 + random(20_000), 100_000 + random(50_000));
            record.tasks.push(TaskRow { task, name, state: 3, used, ..TaskRow::default() });
        }
    }
    record.meta.tasks.total = tasks;
    record.meta.ended_us = record.attempts.iter().map(AttemptRow::end_us).max();
    record.sort();
    record
}

#[test]
fn an_attempt_takes_at_most_five_bytes() {
    let record = large(200_000);
    let attempts = Record { attempts: record.attempts.clone(), ..Record::default() };
    let mut names = Record { tasks: record.tasks.clone(), ..Record::default() };
    names.tasks.iter_mut().for_each(|task| task.used = Used::default());
    let usage = Record { tasks: record.tasks.clone(), ..Record::default() };
    let each = |record: &Record| record.write().unwrap().len() as f64 / 200_000.0;
    assert!(each(&attempts) <= 5.0, "{} bytes an attempt", each(&attempts));
    assert!(each(&names) <= 0.2, "{} bytes a name", each(&names));
    let usage = each(&usage) - each(&names);
    assert!(usage <= 2.5, "{usage} bytes a measured task");
    let file = record.write().unwrap();
    assert_eq!(Record::read(&file).unwrap(), record);
}

#[test]
fn the_usage_of_an_unknown_task_is_refused() {
    let task = |used| TaskRow { used, ..TaskRow::default() };
    let tasks = [task(Used::default()), task(measured(7, 9))];
    let blocks = usage::blocks(&tasks);
    let mut read = vec![TaskRow::default(); 2];
    assert_eq!((blocks.len(), usage::read(&blocks[0], 0, &mut read)), (1, Ok(())));
    assert_eq!(read, tasks);
    let unknown = RecordError::Malformed { at: 3, what: "the usage of an unknown task" };
    assert_eq!(usage::read(&blocks[0], 3, &mut read[..1]), Err(unknown));
}
