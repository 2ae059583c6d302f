use super::*;

const MS: u64 = 1_000_000;

fn entry(node: u32, at_ms: u64, event: Event) -> Entry {
    Entry { node: NodeId(node), time: Time(at_ms * MS), event }
}

fn story() -> Vec<Entry> {
    let (task, attempt) = (TaskId::new(1, 7), Attempt::new(1, 2));
    let reason = Reason::Stolen;
    vec![
        entry(3, 1, Event::NodeStarted { node: NodeId(3), incarnation: 1, slots: 2 }),
        entry(3, 4, Event::Stolen { task, attempt, from: NodeId(0) }),
        entry(3, 5, Event::Queued { task, attempt, local_queue: false, reason, input_bytes: 9 }),
        entry(
            3,
            8,
            Event::Fetched { task, attempt, from: NodeId(1), bytes: 9, took: Span::from_millis(2) },
        ),
        entry(3, 9, Event::Started { task, attempt, slot: 1 }),
        entry(
            3,
            12,
            Event::Ended {
                task,
                attempt,
                end: End::Done,
                started: Time(9 * MS),
                moved_bytes: 9,
                local_bytes: 0,
            },
        ),
    ]
}

fn label(name: String) -> Label {
    Label { name, kind: "na\"me".to_owned() }
}

fn trace(entries: &[Entry]) -> Value {
    let labels = |task: TaskId| Some(label(format!("na\"me {}", task.local.0)));
    let mut writer = TraceWriter::new(Vec::new(), None, labels).unwrap();
    entries.iter().for_each(|entry| writer.push(entry).unwrap());
    serde_json::from_slice(&writer.finish().unwrap()).expect("valid JSON")
}

#[test]
fn an_attempt_is_one_complete_event_in_its_slot() {
    let trace = trace(&story());
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| -> Vec<&Value> {
        events.iter().filter(|event| event["ph"] == phase).collect()
    };
    let expected = json!({
        "ph": "X", "name": "na\"me 7", "cat": "na\"me", "cname": "generic_work", "pid": 3, "tid": 1,
        "ts": 8000.0, "dur": 3000.0,
        "args": {
            "job": 1, "task": "0.7", "attempt": "1.2", "end": "done", "reason": "stolen",
            "queued_us": 4000.0, "moved_bytes": 9, "local_bytes": 0,
        },
    });
    assert_eq!(of("X")[0], &expected);
    assert_eq!((of("X").len(), &of("X")[1]["name"]), (2, &json!("is stolen from")));
    let instants: Vec<_> = of("i").iter().map(|event| event["name"].clone()).collect();
    assert_eq!(instants, ["node started", "steal"]);
    assert_eq!((&of("b")[0]["ts"], &of("e")[0]["ts"]), (&json!(5000.0), &json!(7000.0)));
    let names: Vec<_> = of("M").iter().map(|event| event["args"].clone()).collect();
    let expected = [
        json!({"name": "node 3"}),
        json!({"sort_index": 3}),
        json!({"name": "slot 1"}),
        json!({"name": "moves to other nodes"}),
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_wide_task_is_drawn_on_all_its_slots() {
    let mut story = story();
    let (task, attempt) = (TaskId::new(1, 7), Attempt::new(1, 2));
    story.insert(5, entry(3, 9, Event::Widened { task, attempt, slot: 4 }));
    let trace = trace(&story);
    let events = trace["traceEvents"].as_array().unwrap();
    let drawn = events.iter().filter(|event| event["ph"] == "X" && event["cat"] != "move");
    let drawn: Vec<_> = drawn.map(|it| (&it["tid"], &it["args"]["slots"])).collect();
    assert_eq!(drawn, [(&json!(4), &json!(2)), (&json!(1), &json!(2))]);
}

#[test]
fn a_node_is_named_once_and_each_start_of_it_told_once() {
    let started =
        |incarnation| entry(3, 1, Event::NodeStarted { node: NodeId(3), incarnation, slots: 2 });
    let trace = trace(&[started(1), started(1), started(2)]);
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((count("process_name"), count("node started")), (1, 2));
}

#[test]
fn a_start_before_the_submission_is_at_its_time() {
    let mut writer = TraceWriter::new(Vec::new(), Some(Time(9 * MS)), |_| None).unwrap();
    let event = Event::NodeStarted { node: NodeId(3), incarnation: 1, slots: 2 };
    writer.push(&entry(3, 1, event)).unwrap();
    let trace: Value = serde_json::from_slice(&writer.finish().unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let start = events.iter().find(|event| event["name"] == "node started").unwrap();
    assert_eq!(start["ts"], 0.0);
}

#[test]
fn an_empty_run_is_valid_json() {
    assert_eq!(trace(&[])["traceEvents"], json!([]));
}

#[test]
fn nothing_is_kept_of_what_has_ended() {
    let mut writer = TraceWriter::new(Vec::new(), None, |_| None).unwrap();
    story().iter().for_each(|entry| writer.push(entry).unwrap());
    assert!(writer.pending.is_empty());
}

/// A task runs on a node from `from_ms` to `to_ms`, after 1 ms in its queue.
fn runs(node: u32, index: u64, (from_ms, to_ms): (u64, u64)) -> [Entry; 3] {
    let (task, attempt, end) = (TaskId::new(1, index), Attempt::new(1, 1), End::Done);
    let (reason, started) = (Reason::NoInput, Time(from_ms * MS));
    let queued = Event::Queued { task, attempt, local_queue: false, reason, input_bytes: 0 };
    let ended = Event::Ended { task, attempt, end, started, moved_bytes: 0, local_bytes: 0 };
    [
        entry(node, from_ms - 1, queued),
        entry(node, from_ms, Event::Started { task, attempt, slot: index as u32 }),
        entry(node, to_ms, ended),
    ]
}

fn written(mut entries: Vec<Entry>, edges: Edges) -> (String, FlowCounts) {
    entries.sort_by_key(|entry| entry.time);
    let labels = |task: TaskId| Some(label(format!("</script>&'\" {}", task.local.0)));
    let mut writer = TraceWriter::new(Vec::new(), Some(Time(0)), labels).unwrap().with_edges(edges);
    entries.iter().for_each(|entry| writer.push(entry).unwrap());
    let counts = writer.flow_counts();
    (String::from_utf8(writer.finish().unwrap()).unwrap(), counts)
}

/// Checks that each flow begins and ends inside a slice, and that its beginning is first. Returns
/// the flows as pairs of tracks.
fn check_flows(events: &[Value]) -> Vec<(u64, u64)> {
    let at = |event: &Value| event["ts"].as_f64().unwrap();
    let is_in_a_slice = |event: &Value| {
        events.iter().filter(|it| it["ph"] == "X").any(|slice| {
            let same = |key: &str| slice[key] == event[key];
            let end = at(slice) + slice["dur"].as_f64().unwrap();
            same("pid") && same("tid") && (at(slice)..=end).contains(&at(event))
        })
    };
    let of =
        |phase: &str| -> Vec<&Value> { events.iter().filter(|it| it["ph"] == phase).collect() };
    let (begins, ends) = (of("s"), of("f"));
    assert_eq!(begins.len(), ends.len());
    let ids: std::collections::BTreeSet<u64> =
        begins.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), begins.len(), "each flow has its own id");
    for (begin, end) in begins.iter().zip(&ends) {
        assert_eq!((&begin["id"], &begin["cat"]), (&end["id"], &end["cat"]));
        assert!(at(begin) <= at(end), "{begin} {end}");
        assert!(is_in_a_slice(begin) && is_in_a_slice(end), "{begin} {end}");
        assert_eq!(end["bp"], "e");
    }
    let track = |it: &Value| it["tid"].as_u64().unwrap();
    begins.iter().zip(&ends).map(|(begin, end)| (track(begin), track(end))).collect()
}

fn local(index: u64) -> proto::LocalId {
    TaskId::new(1, index).local
}

#[test]
fn data_flows_from_parents_to_children() {
    // By its clock, task 4 started before the end of its parent 1, and task 5 before its start.
    let spans = [(0, 1, (2, 5)), (1, 2, (3, 6)), (0, 3, (9, 12)), (1, 4, (4, 7)), (1, 5, (1, 8))];
    let entries = spans.iter().flat_map(|&(node, index, span)| runs(node, index, span)).collect();
    let mut edges = Edges::default();
    edges.add(local(3), [local(1), local(2)]);
    edges.add(local(4), [local(1)]);
    edges.add(local(5), [local(1), local(99)]);
    let (text, counts) = written(entries, edges);
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(check_flows(events), [(1, 4), (1, 3), (2, 3)]);
    let expected = FlowCounts { data: 3, unmatched: 2, ..FlowCounts::default() };
    assert_eq!(counts, expected);
    assert_eq!(trace["otherData"]["data_flows"], 3);
}

#[test]
fn moves_flow_from_the_node_that_was_left() {
    let (text, counts) = written(story(), Edges::default());
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(check_flows(events), [(u64::from(SLOT_MOVES), 1)]);
    let begin = events.iter().find(|event| event["ph"] == "s").unwrap();
    assert_eq!((&begin["pid"], &begin["ts"]), (&json!(0), &json!(4000.0)));
    assert_eq!((counts.moves, counts.data), (1, 0));
}

#[test]
fn the_number_of_flows_is_bounded() {
    let mut edges = Edges::default();
    edges.add(local(2), [local(1)]);
    edges.add(local(2), (100..FLOWS_MAX as u64 + 106).map(local));
    let entries = [runs(0, 1, (2, 3)), runs(0, 2, (5, 6)), runs(0, 1, (7, 8)), runs(0, 2, (9, 9))];
    let (_, counts) = written(entries.concat(), edges);
    assert_eq!((counts.data, counts.left_out), (2, 7));
}

#[test]
fn counters_are_never_negative_and_end_at_zero() {
    let (task, attempt) = (TaskId::new(1, 7), Attempt::new(1, 2));
    let mut entries = story();
    entries.extend(runs(3, 8, (2, 20)));
    // Ends without a beginning, revoked in the queue, and twice in one.
    entries.push(runs(0, 9, (2, 3))[2]);
    entries.extend([runs(0, 7, (5, 6))[0], runs(0, 7, (5, 6))[0]]);
    entries.push(entry(0, 5, Event::Dismissed { task, attempt: Attempt::new(1, 1) }));
    entries.push(entry(0, 6, Event::Dismissed { task, attempt }));
    entries.extend(&runs(5, 10, (5, 6))[..2]);
    for incarnation in [1, 2] {
        let started = Event::NodeStarted { node: NodeId(5), incarnation, slots: 1 };
        entries.push(entry(5, 8 * u64::from(incarnation - 1), started));
    }
    let (text, _) = written(entries, Edges::default());
    let trace: Value = serde_json::from_str(&text).unwrap();
    let mut last = std::collections::BTreeMap::new();
    let mut most = 0;
    for event in trace["traceEvents"].as_array().unwrap().iter().filter(|it| it["ph"] == "C") {
        let number = |key: &str| event["args"][key].as_u64().expect("not negative");
        let numbers = (number("running"), number("queued"));
        most = most.max(numbers.0);
        last.insert(event["pid"].as_u64().unwrap(), numbers);
    }
    assert_eq!(most, 2);
    assert_eq!(last.into_iter().collect::<Vec<_>>(), [(0, (0, 0)), (3, (0, 0)), (5, (0, 0))]);
}

#[test]
fn names_cannot_end_a_script_or_a_string() {
    let (text, _) = written(runs(0, 1, (2, 3)).to_vec(), Edges::default());
    assert!(!text.contains(['<', '&']) && text.contains(r#"\u003c/script\u003e\u0026'\" 1"#));
    let trace: Value = serde_json::from_str(&text).unwrap();
    let slice = trace["traceEvents"].as_array().unwrap().iter().find(|it| it["ph"] == "X");
    assert_eq!(slice.unwrap()["name"], "</script>&'\" 1");
}
