//! The state of a cluster as OpenMetrics text, from the answers of its nodes.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use proto::wire::{ClusterMap, MemberPhase, NodeState};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The facts of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub version: String,
    /// Each node of the cluster; `None`: it did not answer.
    pub nodes: Vec<(u32, Option<NodeState>)>,
    pub map: ClusterMap,
    /// The numbers of jobs by the word of their state. Empty if they are not known: the family is
    /// left out.
    pub jobs: Vec<(&'static str, u64)>,
}

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter<u64>>;
type Sizes = Family<Labels, Gauge<f64, AtomicU64>>;

struct Writer {
    registry: Registry,
}

impl Writer {
    fn counts(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Counts {
        let family = Counts::default();
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family.clone()),
            None => self.registry.register(name, help, family.clone()),
        }
        family
    }

    fn sizes(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Sizes {
        let family = Sizes::default();
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family.clone()),
            None => self.registry.register(name, help, family.clone()),
        }
        family
    }
}

/// The metrics of a cluster.
#[must_use]
pub fn text(facts: &Facts) -> String {
    let mut writer = Writer { registry: Registry::with_prefix("starling") };
    cluster(&mut writer, facts);
    let up = writer.sizes("node_up", "1 if the node answers", None);
    for (node, state) in &facts.nodes {
        up.get_or_create(&of(*node)).set(f64::from(u8::from(state.is_some())));
    }
    let states: Vec<(u32, &NodeState)> =
        facts.nodes.iter().filter_map(|(node, state)| Some((*node, state.as_ref()?))).collect();
    tasks(&mut writer, &states);
    stealing(&mut writer, &states);
    data(&mut writer, &states);
    process(&mut writer, &states);
    kinds(&mut writer, &states);
    let mut text = String::new();
    // A String takes all that is written.
    let _ = encode(&mut text, &writer.registry);
    text
}

fn of(node: u32) -> Labels {
    vec![("node", format!("n{node}"))]
}

fn with(node: u32, key: &'static str, value: &str) -> Labels {
    vec![("node", format!("n{node}")), (key, escaped(value))]
}

/// The text of a user as the value of a label. The library writes values as they are.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

fn cluster(writer: &mut Writer, facts: &Facts) {
    let build = writer.sizes("build_info", "The version of the program that wrote this", None);
    build.get_or_create(&vec![("version", facts.version.clone())]).set(1.0);
    if !facts.jobs.is_empty() {
        let jobs = writer.sizes("jobs", "Jobs by state", None);
        for (state, number) in &facts.jobs {
            jobs.get_or_create(&vec![("state", (*state).to_owned())]).set(*number as f64);
        }
    }
    let members = writer.sizes("members", "Nodes by phase in the map", None);
    let phases = [
        ("joining", MemberPhase::Joining),
        ("up", MemberPhase::Up),
        ("down", MemberPhase::Down),
        ("leaving", MemberPhase::Leaving),
    ];
    for (word, phase) in phases {
        let number = facts.map.members.iter().filter(|member| member.phase() == phase).count();
        members.get_or_create(&vec![("phase", word.to_owned())]).set(number as f64);
    }
    let partitions = writer.sizes("partitions", "Partitions by state", None);
    let entries = &facts.map.partitions;
    let lost = entries.iter().filter(|entry| entry.lost).count();
    let active = entries.iter().filter(|entry| entry.active && !entry.lost).count();
    let states = [("active", active), ("lost", lost), ("waiting", entries.len() - active - lost)];
    for (word, number) in states {
        partitions.get_or_create(&vec![("state", word.to_owned())]).set(number as f64);
    }
    let epoch = writer.sizes("map_epoch", "The number of changes of the map", None);
    epoch.get_or_create(&Labels::new()).set(facts.map.epoch as f64);
}

fn tasks(writer: &mut Writer, states: &[(u32, &NodeState)]) {
    let slots = writer.sizes("slots", "Slots of the node", None);
    let running = writer.sizes("running_tasks", "Tasks that run", None);
    let waiting = writer.sizes("waiting_tasks", "Tasks that wait for parents or inputs", None);
    let ready = writer.sizes("ready_tasks", "Tasks in a ready queue", None);
    let rate = writer.sizes(
        "ended_tasks_rate",
        "Tasks that ended lately in a second, while there was work",
        None,
    );
    let ended = writer.counts("ended_attempts", "Attempts of tasks that ended on the node", None);
    let stalled = writer.sizes("stalled_jobs", "Jobs of this home without progress", None);
    let stalls = writer.counts("stalls", "Jobs that were found without progress", None);
    for &(node, state) in states {
        let member = state.member.clone().unwrap_or_default();
        slots.get_or_create(&of(node)).set(f64::from(member.slots));
        running.get_or_create(&of(node)).set(state.running as f64);
        waiting.get_or_create(&of(node)).set(state.waiting as f64);
        ready.get_or_create(&with(node, "queue", "local")).set(state.ready_local as f64);
        ready.get_or_create(&with(node, "queue", "shared")).set(state.ready_shared as f64);
        rate.get_or_create(&of(node)).set(state.tasks_per_s);
        ended.get_or_create(&with(node, "outcome", "done")).inc_by(state.attempts_done);
        ended.get_or_create(&with(node, "outcome", "failed")).inc_by(state.attempts_failed);
        stalled.get_or_create(&of(node)).set(state.stalled_jobs as f64);
        stalls.get_or_create(&of(node)).inc_by(state.stalls);
    }
}

fn stealing(writer: &mut Writer, states: &[(u32, &NodeState)]) {
    let requests = writer.counts("steal_requests", "Attempts to steal", None);
    let steals = writer.counts("steals", "Attempts to steal that got tasks", None);
    let stolen = writer.counts("stolen_tasks", "Tasks that this node stole", None);
    let pushes = writer.counts("pushed_tasks", "Tasks that this home pushed to other nodes", None);
    let messages = writer.counts("messages", "Messages that this node sent", None);
    let repairs = writer.counts("missed_wakeups_repaired", "Missed wake-ups found", None);
    for &(node, state) in states {
        requests.get_or_create(&of(node)).inc_by(state.steals_tried);
        steals.get_or_create(&of(node)).inc_by(state.steals_won);
        stolen.get_or_create(&of(node)).inc_by(state.steals_tasks);
        pushes.get_or_create(&of(node)).inc_by(state.pushes);
        messages.get_or_create(&of(node)).inc_by(state.messages);
        repairs.get_or_create(&of(node)).inc_by(state.reconciler_wakeups);
    }
}

fn data(writer: &mut Writer, states: &[(u32, &NodeState)]) {
    let bytes = Some(Unit::Bytes);
    let read = writer.counts("input", "Bytes of inputs by source", bytes.clone());
    let reads = writer.counts("input_reads", "Reads of inputs by source", None);
    let evicted = writer.counts("evicted", "Bytes of evicted copies", bytes.clone());
    let stored = writer.sizes("stored", "Bytes of objects on the node", bytes.clone());
    let copies = writer.sizes("copies", "Copies of objects of other nodes", None);
    let lacking =
        writer.sizes("lacking_copies", "Tasks with outputs here and on too few other nodes", None);
    let bandwidth =
        writer.sizes("transfer_bytes_per_second", "Measured rate of transfers to the node", None);
    let scrubs = writer.counts("scrub_passes", "Complete reads of all records", None);
    for &(node, state) in states {
        read.get_or_create(&with(node, "source", "local")).inc_by(state.bytes_read_local);
        read.get_or_create(&with(node, "source", "remote")).inc_by(state.bytes_moved);
        let fetched =
            state.inputs.saturating_sub(state.inputs_local).saturating_sub(state.inputs_copied);
        reads.get_or_create(&with(node, "source", "local")).inc_by(state.inputs_local);
        reads.get_or_create(&with(node, "source", "copy")).inc_by(state.inputs_copied);
        reads.get_or_create(&with(node, "source", "remote")).inc_by(fetched);
        evicted.get_or_create(&of(node)).inc_by(state.evicted_bytes);
        let made = state.stored_bytes.saturating_sub(state.copied_bytes);
        stored.get_or_create(&with(node, "class", "made")).set(made as f64);
        stored.get_or_create(&with(node, "class", "copies")).set(state.copied_bytes as f64);
        copies.get_or_create(&of(node)).set(state.copies as f64);
        lacking.get_or_create(&of(node)).set(state.lacking_copies as f64);
        bandwidth.get_or_create(&of(node)).set(state.bandwidth_bytes_per_s);
        scrubs.get_or_create(&of(node)).inc_by(state.scrub_passes);
    }
}

fn process(writer: &mut Writer, states: &[(u32, &NodeState)]) {
    let cpu = Family::<Labels, Counter<f64, AtomicU64>>::default();
    writer.registry.register_with_unit(
        "node_cpu",
        "CPU time of the node's process, without the commands of tasks",
        Unit::Seconds,
        cpu.clone(),
    );
    let peak = writer.sizes(
        "node_peak_resident_memory",
        "Peak memory of the node's process",
        Some(Unit::Bytes),
    );
    let policy = writer.sizes("policy_info", "The scheduling policy of the node", None);
    let incarnation = writer.sizes("node_incarnation", "Starts of the node", None);
    for &(node, state) in states {
        cpu.get_or_create(&of(node)).inc_by(state.cpu_ns as f64 / 1e9);
        peak.get_or_create(&of(node)).set(state.peak_rss_bytes as f64);
        policy.get_or_create(&with(node, "policy", &state.policy)).set(1.0);
        let member = state.member.clone().unwrap_or_default();
        incarnation.get_or_create(&of(node)).set(f64::from(member.incarnation));
    }
}

fn kinds(writer: &mut Writer, states: &[(u32, &NodeState)]) {
    let measured = writer.sizes("measured_tasks", "Tasks of a kind that were measured", None);
    let length =
        writer.sizes("task_length", "Estimated length of the tasks of a kind", Some(Unit::Seconds));
    for &(node, state) in states {
        for kind in &state.kinds {
            measured.get_or_create(&with(node, "kind", &kind.kind)).set(kind.tasks as f64);
            let lengths =
                [("mean", kind.mean_ns), ("median", kind.median_ns), ("p95", kind.high_ns)];
            for (word, ns) in lengths {
                let mut labels = with(node, "kind", &kind.kind);
                labels.push(("statistic", word.to_owned()));
                length.get_or_create(&labels).set(ns as f64 / 1e9);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proto::wire::{KindLength, Member, PartitionEntry};

    use super::*;

    fn facts() -> Facts {
        let kind = KindLength {
            kind: "odd \"name\" \\ with\na line".to_owned(),
            tasks: 7,
            mean_ns: 2_000_000_000,
            ..KindLength::default()
        };
        let state = NodeState {
            member: Some(Member { slots: 4, incarnation: 2, ..Member::default() }),
            running: 3,
            steals_tried: 9,
            cpu_ns: 1_500_000_000,
            bytes_moved: 5,
            inputs: 4,
            inputs_local: 1,
            inputs_copied: 1,
            policy: "mdl".to_owned(),
            kinds: vec![kind],
            ..NodeState::default()
        };
        let active = PartitionEntry { active: true, ..PartitionEntry::default() };
        let lost = PartitionEntry { lost: true, active: true, ..PartitionEntry::default() };
        let partitions = vec![active, lost, PartitionEntry::default()];
        Facts {
            version: "0.1.0".to_owned(),
            nodes: vec![(0, Some(state)), (1, None)],
            map: ClusterMap { epoch: 12, partitions, ..ClusterMap::default() },
            jobs: vec![("running", 1)],
        }
    }

    /// Reads the text by the rules of OpenMetrics: the samples by name, with their labels.
    fn read(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
        let mut samples: BTreeMap<String, Vec<(String, f64)>> = BTreeMap::new();
        let mut kinds: BTreeMap<String, String> = BTreeMap::new();
        let mut family = String::new();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"# EOF"));
        for line in &lines[..lines.len() - 1] {
            if let Some(rest) = line.strip_prefix("# ") {
                let words: Vec<&str> = rest.splitn(3, ' ').collect();
                assert!(matches!(words[0], "HELP" | "TYPE" | "UNIT"), "{line}");
                words[1].clone_into(&mut family);
                if words[0] == "TYPE" {
                    let known = kinds.insert(words[1].to_owned(), words[2].to_owned());
                    assert_eq!(known, None, "{line}: a family comes once");
                }
                if words[0] == "UNIT" {
                    assert!(family.ends_with(&format!("_{}", words[2])), "{line}");
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').expect("labels end");
            assert!(name.starts_with(&family), "{line}: it is of the family before it");
            match kinds.get(&family).map(String::as_str) {
                Some("counter") => assert_eq!(name, format!("{family}_total")),
                Some("gauge") => assert_eq!(name, family),
                other => panic!("{line}: {other:?}"),
            }
            let value = value.parse().expect("it is a number");
            samples.entry(name.to_owned()).or_default().push((labels.to_owned(), value));
        }
        samples
    }

    #[test]
    fn the_text_is_open_metrics_and_has_the_figures() {
        let samples = read(&text(&facts()));
        let of = |name: &str, labels: &str| {
            let all = samples.get(name).unwrap_or_else(|| panic!("no {name}"));
            all.iter().find(|it| it.0 == labels).map(|it| it.1)
        };
        assert_eq!(of("starling_node_up", "node=\"n0\""), Some(1.0));
        assert_eq!(of("starling_node_up", "node=\"n1\""), Some(0.0));
        assert_eq!(of("starling_slots", "node=\"n0\""), Some(4.0));
        assert_eq!(of("starling_slots", "node=\"n1\""), None, "a silent node has no zeros");
        assert_eq!(of("starling_steal_requests_total", "node=\"n0\""), Some(9.0));
        assert_eq!(of("starling_node_cpu_seconds_total", "node=\"n0\""), Some(1.5));
        assert_eq!(of("starling_input_bytes_total", "node=\"n0\",source=\"remote\""), Some(5.0));
        assert_eq!(of("starling_input_reads_total", "node=\"n0\",source=\"remote\""), Some(2.0));
        assert_eq!(of("starling_partitions", "state=\"active\""), Some(1.0));
        assert_eq!(of("starling_partitions", "state=\"lost\""), Some(1.0));
        assert_eq!(of("starling_jobs", "state=\"running\""), Some(1.0));
        assert_eq!(of("starling_map_epoch", ""), Some(12.0));
    }

    #[test]
    fn names_of_users_cannot_add_lines() {
        let text = text(&facts());
        assert!(text.contains(r#"kind="odd \"name\" \\ with\na line""#), "{text}");
    }

    #[test]
    fn the_board_asks_for_metrics_that_exist() {
        let samples = read(&text(&facts()));
        let board = include_str!("../../docs/grafana/starling.json");
        let board: serde_json::Value = serde_json::from_str(board).expect("it is JSON");
        let mut asked = 0;
        for panel in board["panels"].as_array().expect("there are panels") {
            for target in panel["targets"].as_array().expect("a panel asks") {
                let expression = target["expr"].as_str().expect("it has an expression");
                let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let words = expression.split(|letter| !is_part(letter));
                for name in words.filter(|word| word.starts_with("starling_")) {
                    assert!(samples.contains_key(name), "{name} in {expression}");
                    asked += 1;
                }
            }
        }
        assert!(asked >= 20, "{asked}");
    }
}
