use proto::LocalId;
use proto::work::Used;

use super::*;
use crate::attempt::AttemptRow;
use crate::failures::Example;
use crate::record::tests::large;
use crate::record::{MetaNode, TaskRow};

/// HTML, a mark of direction, and a forged line of a report.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\u{202e}\nstate        finished";

/// A run of two tasks with hostile names; one failed.
fn record() -> Record {
    let mut record = Record::default();
    let meta = &mut record.meta;
    meta.schema = 1;
    meta.job = "j5".to_owned();
    meta.name = HOSTILE.to_owned();
    meta.state = "failed".to_owned();
    meta.kinds = vec!["</script><script>alert(2)</script>".to_owned()];
    meta.nodes = vec![MetaNode { node: 0, slots: 2, host: HOSTILE.to_owned() }];
    meta.submitted_us = 1_000;
    meta.ended_us = Some(101_000);
    meta.tasks = Tasks { total: 2, done: 1, failed: 1, ..Tasks::default() };
    let example = Example {
        task: "0.1".to_owned(),
        name: HOSTILE.to_owned(),
        error: HOSTILE.to_owned(),
        stderr: HOSTILE.to_owned(),
        ..Example::default()
    };
    let key = FailureKey { text: HOSTILE.to_owned(), exit_code: 3, kind: HOSTILE.to_owned() };
    let mut group = FailureGroup::of(example, None);
    group.tasks = 300;
    meta.failures = vec![(key, group)];
    for (task, outcome) in [(0, Outcome::Done), (1, Outcome::Failed)] {
        record.attempts.push(AttemptRow {
            slot: task as u32,
            start_us: 11_000,
            ran_us: 50_000,
            task: LocalId(task),
            number: 1,
            outcome,
            ..AttemptRow::default()
        });
        let (name, task) = (HOSTILE.to_owned(), LocalId(task));
        record.tasks.push(TaskRow { task, name, state: 3, ..TaskRow::default() });
    }
    record
}

fn hash(bytes: &[u8]) -> String {
    format!("h{}", bytes.len())
}

#[test]
fn names_of_users_are_text_everywhere() {
    let mut record = record();
    record.meta.job = HOSTILE.to_owned();
    record.meta.kinds[0].push_str(HOSTILE);
    let file = record.write().unwrap();
    let report = Report::of(&record);
    let page = report.to_page(&file, None, &hash);
    assert!(!page.contains("<img") && !page.contains("<script>alert"), "{page}");
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;\\u{202e}"));
    assert_eq!(page.matches("</script>").count(), 2, "the record and the script");
    let text = report.to_text();
    assert!(!text.contains('\u{202e}'), "{text}");
    let states: Vec<&str> = text.lines().filter(|line| line.starts_with("state")).collect();
    assert_eq!(states, ["state        failed"], "{text}");
    assert!(text.contains("\\u{202e}\\nstate        finished"), "{text}");
    assert!(report.to_csv().lines().count() == 3, "{}", report.to_csv());
    let comparison = Comparison::of(&report, &report).to_text();
    assert!(comparison.contains("median length"), "{comparison}");
    assert!(!comparison.contains('\u{202e}'), "{comparison}");
    assert!(!comparison.contains("\nstate"), "{comparison}");
    assert!(!report.to_csv().contains('\u{202e}'), "{}", report.to_csv());
    for outside in ["http:", "https:", "src=\"", "@import", "url(", "fetch(", "XMLHttp"] {
        assert!(!page.contains(outside), "the page needs no network: {outside}");
    }
}

#[test]
fn a_page_without_script_has_the_figures() {
    let record = record();
    let page = Report::of(&record).to_page(&[], None, &hash);
    let text = page.split("<script").next().unwrap();
    for figure in ["1 of 2 done, 1 failed", "100.0 ms", "300 alike", "50.0 %", "exit code 3"] {
        assert!(text.contains(figure), "{figure}");
    }
    let size = page.len();
    assert!(page.find("1 of 2 done").unwrap() < 7_000 && size < 60_000, "{size}");
}

#[test]
fn the_figures_of_all_forms_agree() {
    let record = large(8_000);
    let report = Report::of(&record);
    let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert!(report.to_json().starts_with("{\"schema\":1,"));
    assert_eq!(json["attempts"], 8_000);
    assert_eq!(report.to_csv().lines().count(), 8_001);
    let kinds: u64 = report.kinds.iter().map(|kind| kind.attempts).sum();
    let nodes: u64 = report.per_node.iter().map(|node| node.attempts).sum();
    assert_eq!((kinds, nodes), (8_000, 8_000));
    let all: f64 = report.causes.seconds.all().iter().sum();
    let whole = report.slots as f64 * report.makespan_s;
    assert!((all / whole - 1.0).abs() < 1e-9, "{all} of {whole}");
    let busy = report.causes.seconds.working + report.causes.seconds.lost;
    assert!((busy / whole - report.utilization).abs() < 0.005, "{busy} {}", report.utilization);
    let series: f64 = report.causes.series.iter().map(|it| it.working + it.lost).sum();
    assert!(series > 0.0);
}

#[test]
fn missing_nodes_are_named_and_their_slots_are_unknown() {
    let mut record = record();
    record.meta.nodes.push(MetaNode { node: 7, slots: 2, ..MetaNode::default() });
    let why = "no answer".to_owned();
    record.meta.missing = vec![Missing { node: 7, why }];
    let report = Report::of(&record);
    let text = report.to_text();
    assert!(text.contains("missing      n7: no answer"), "{text}");
    assert!(text.contains("utilization  at least "), "{text}");
    assert!((report.causes.seconds.unknown - 0.2).abs() < 1e-9);
    assert_eq!(report.slots, 4);
}

#[test]
fn neighbours_that_share_a_link_are_named_together() {
    let mut record = record();
    record.meta.links = vec![MetaLink { from: 0, to: 4, objects: 1, bytes: 9, took_us: 1 }];
    let page = |record: &Record| Report::of(record).to_page(&[], None, &hash);
    assert!(page(&record).contains("<td>n0</td><td>n4</td>"));
    record.meta.link_level = 2;
    assert!(page(&record).contains("<td>n0-n3</td><td>n4-n7</td>"));
    assert!(Report::of(&record).to_json().contains("\"link_level\":2"));
}

#[test]
fn two_runs_are_compared() {
    let (one, mut other) = (record(), record());
    other.meta.ended_us = Some(201_000);
    let comparison = Comparison::of(&Report::of(&one), &Report::of(&other));
    let makespan = &comparison.figures[0];
    assert_eq!(makespan.cells(), ["makespan", "100.0 ms", "200.0 ms", "-50.0 %"]);
    let text = comparison.to_text();
    assert!(text.contains("makespan") && text.contains("-50.0 %"), "{text}");
    let page = Report::of(&one).to_page(&[], Some(&comparison), &hash);
    assert!(page.contains("-50.0 %"));
}

#[test]
fn an_empty_record_is_reported() {
    let record = Record::default();
    let report = Report::of(&record);
    assert!(report.to_page(&[], None, &hash).ends_with("</html>\n"));
    assert!(report.to_text().contains("0 of 0 done"));
}

#[test]
fn kinds_show_what_their_commands_used() {
    let mut record = Record::default();
    record.meta.kinds = ["align", "sleep"].map(str::to_owned).to_vec();
    let task = |index| LocalId::new(proto::PartitionId(1), index);
    let attempt = |index: u64, number, kind| AttemptRow {
        task: task(index),
        number,
        kind,
        start_us: u64::from(number) * 10_000_000,
        ran_us: 2_000_000,
        more: Box::new([7]),
        ..AttemptRow::default()
    };
    record.attempts = vec![attempt(0, 1, 0), attempt(0, 2, 0), attempt(1, 1, 0), attempt(2, 1, 1)];
    let row = |index, cpu_us, max_rss_kib| TaskRow {
        task: task(index),
        state: 3,
        used: Used { cpu_us, max_rss_kib },
        ..TaskRow::default()
    };
    record.tasks = vec![row(0, 3_000_000, 100), row(1, 1_000_000, 300), row(2, 0, 0)];
    record.sort();
    let report = Report::of(&record);
    let of = |kind: &str| report.kinds.iter().find(|row| row.kind == kind).unwrap().used.clone();
    assert_eq!(of("sleep"), None);
    let used = of("align").unwrap();
    assert_eq!((used.tasks, used.cpu_s, used.cpu_share), (2, 4.0, 0.5), "two slots of two seconds");
    assert_eq!((used.memory_p50_bytes, used.memory_max_bytes), (100 << 10, 300 << 10));
    let text = report.to_text();
    assert!(text.contains("most memory") && text.contains("300.0 KiB"), "{text}");
    record.tasks.iter_mut().for_each(|task| task.used = Used::default());
    assert!(!Report::of(&record).to_text().contains("memory"));
}
