use std::collections::BTreeMap;

use proto::LocalId;

use super::*;
use crate::record::MetaNode;

/// Two attempts that overlap by their clocks, a wide one, and one before the submission.
fn record() -> Record {
    let row = |slot, start_us, ran_us, task| AttemptRow {
        slot,
        start_us,
        ran_us,
        task: LocalId(task),
        number: 1,
        ..AttemptRow::default()
    };
    let mut record = Record::default();
    record.meta.submitted_us = 100;
    record.meta.nodes = vec![MetaNode { node: 0, slots: 3, ..MetaNode::default() }];
    record.meta.kinds = vec!["a".to_owned()];
    record.attempts = vec![row(0, 50, 100, 1), row(0, 140, 20, 2), row(1, 200, 10, 3)];
    record.attempts[2].more = [2].into();
    record.sort();
    record
}

/// Begin and end by track.
fn chrome_slices(record: &Record) -> Vec<(u64, u64, u64)> {
    let mut bytes = Vec::new();
    chrome(record, &mut bytes).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let events = json["traceEvents"].as_array().unwrap().clone();
    let slices = events.into_iter().filter(|event| event["ph"] == "X");
    slices
        .map(|event| {
            let number = |key: &str| event[key].as_u64().unwrap();
            (number("tid"), number("ts"), number("ts") + number("dur"))
        })
        .collect()
}

#[test]
fn slices_follow_the_submission_and_do_not_overlap() {
    let record = record();
    let slices = chrome_slices(&record);
    assert_eq!(slices, [(0, 0, 50), (0, 50, 60), (1, 100, 110), (2, 100, 110)]);
    let mut bytes = Vec::new();
    perfetto(&record, &mut bytes).unwrap();
    let mut open: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
    let events = perfetto::tests::slices_of(&bytes);
    assert_eq!(events.len(), 8);
    for (track, at, is_begin) in events {
        let (last, is_open) = open.insert(track, (at, is_begin)).unwrap_or((0, false));
        assert!(last <= at && is_open != is_begin, "track {track} at {at}");
    }
    assert!(open.values().all(|(_, is_open)| !is_open));
}

#[test]
fn a_trace_of_many_attempts_is_valid() {
    let record = crate::record::tests::large(4_000);
    assert_eq!(chrome_slices(&record).len(), 4_000);
}

#[test]
fn names_cannot_end_a_script_or_a_string() {
    let mut record = record();
    let name = "</script>\"&'";
    record.tasks = vec![crate::TaskRow {
        task: LocalId(1),
        name: name.to_owned(),
        ..crate::TaskRow::default()
    }];
    let mut bytes = Vec::new();
    chrome(&record, &mut bytes).unwrap();
    assert!(!bytes.contains(&b'<') && !bytes.contains(&b'&'));
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let slice = events.iter().find(|it| it["ph"] == "X" && it["name"] == name).unwrap();
    assert_eq!((&slice["cat"], slice["cname"].is_string()), (&"a".into(), true));
    let counters = events.iter().filter(|it| it["ph"] == "C" && it["name"] == "attempts");
    assert!(counters.count() > 0 && json["otherData"]["data_flows"] == 0);
}
