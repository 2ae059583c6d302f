//! Tasks that hold several nodes at once.

use starling_tests::{Instance, binary, wait_until};

use crate::cluster::submit;

/// The explanation of the only task of a job.
fn explained(instance: &Instance, job: &str) -> String {
    let tasks = instance.json(&["task", "list", job]);
    let id = tasks["tasks"][0]["id"].as_str().expect("an id").to_owned();
    instance.starling(&["task", "explain", job, &id]).ok().stdout
}

/// A gang that had two nodes of two slots for at least two seconds.
fn has_slots_of_both_nodes(instance: &Instance, job: &str) {
    let is_of_both = |busy: &serde_json::Value| busy.as_f64().is_some_and(|busy_s| busy_s >= 8.0);
    let info = instance.json(&["job", "info", job]);
    assert!(is_of_both(&info["work_s"]), "{info}");
    instance.starling(&["report", job, "-o", "gang.srr"]).ok();
    for report in
        [instance.json(&["report", job]), instance.json(&["report", "--from", "gang.srr"])]
    {
        assert!(is_of_both(&report["busy_s"]), "{report}");
        assert_eq!(report["attempts"], 1, "{report}");
        let nodes = report["per_node"].as_array().expect("a list");
        let busy = nodes.iter().filter(|it| it["busy_s"].as_f64() >= Some(4.0));
        assert_eq!(busy.count(), 2, "{report}");
    }
    let past = instance.json(&["job", "info", "--from", "gang.srr"]);
    assert_eq!(past["work_s"], info["work_s"], "{past}");
}

#[test]
fn a_gang_runs_alone_on_its_nodes_and_names_them() {
    let instance = Instance::up(3, 2);
    let sandbox = instance.sandbox();
    let (narrow, gang) = (sandbox.path("narrow"), sandbox.path("gang"));
    let note = format!("echo $STARLING_NODE $(date +%s%N) >> {}", narrow.display());
    let narrow_job =
        submit(&instance, &["--array", "1-60", "--", "sh", "-c", &format!("sleep 0.2; {note}")]);
    let command = format!(
        "echo $STARLING_NODES; cat $STARLING_NODEFILE $STARLING_HOSTFILE; echo $(date +%s%N) > {0}; \
         sleep 2; echo $(date +%s%N) >> {0}",
        gang.display()
    );
    let job = submit(&instance, &["--nodes", "2", "--", "sh", "-c", &command]);
    instance.starling(&["job", "wait", &job]).ok();
    instance.starling(&["job", "wait", &narrow_job]).ok();
    let output = instance.starling(&["job", "output", &job]).ok().stdout;
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines.contains(&"2"), "{output}");
    assert_eq!(lines.iter().filter(|line| line.contains("127.0.0.1")).count(), 2, "{output}");
    // Tasks that ended while the gang ran were on the third node.
    let times = std::fs::read_to_string(&gang).expect("it ran");
    let times: Vec<u64> = times.lines().map(|line| line.parse().expect("a time")).collect();
    let ends = std::fs::read_to_string(&narrow).expect("they ran");
    let inside: std::collections::BTreeSet<&str> = ends
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, at)| (times[0]..times[1]).contains(&at.parse().expect("a time")))
        .map(|(node, _)| node)
        .collect();
    assert!(inside.len() <= 1, "they ran beside the gang on {inside:?}");
    has_slots_of_both_nodes(&instance, &job);
    instance.down();
}

#[test]
fn a_gang_runs_again_after_the_death_of_a_member() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let sandbox = instance.sandbox();
    let (runs, go) = (sandbox.path("runs"), sandbox.path("go"));
    let command = format!(
        "echo $STARLING_NODE >> {}; [ -e {} ] || exec sleep 600",
        runs.display(),
        go.display()
    );
    let job =
        submit(&instance, &["--nodes", "2", "--crash-limit", "1", "--", "sh", "-c", &command]);
    let ran = || std::fs::read_to_string(&runs).unwrap_or_default();
    wait_until("the gang runs", || ran().lines().count() == 1);
    let first: u32 = ran().trim().parse().expect("a node");
    // Of two nodes after the first one the gang has the next.
    let member = (first + 1) % 3;
    std::fs::write(&go, "").expect("a file");
    instance.kill(member);
    instance.starling(&["job", "wait", &job]).ok();
    assert_eq!(ran().lines().count(), 2, "{}", ran());
    let why = explained(&instance, &job);
    assert!(why.contains("another node of its gang died"), "{why}");
    instance.start_missing();
    instance.down();
}

#[test]
fn a_gang_larger_than_the_cluster_waits_and_says_so() {
    let instance = Instance::up(3, 1);
    let job = submit(&instance, &["--nodes", "4", "--", "true"]);
    let mut why = String::new();
    wait_until("it is explained", || {
        why = explained(&instance, &job);
        why.contains("it needs 4 nodes at once, and 3 of the 3 nodes")
    });
    instance.starling(&["submit", "--wait", "--nodes", "3", "--", "true"]).ok();
    instance.starling(&["job", "cancel", &job]).ok();
    instance.down();
}

#[test]
fn a_gang_that_waits_names_its_nodes() {
    let instance = Instance::up(2, 1);
    let busy = submit(&instance, &["--", "sleep", "600"]);
    wait_until("it runs", || explained(&instance, &busy).contains("runs on node"));
    let job = submit(&instance, &["--nodes", "2", "--", "true"]);
    wait_until("it is explained", || {
        let why = explained(&instance, &job);
        why.contains("it needs 2 nodes at once: it holds n") && why.contains("waits for n")
    });
    instance.starling(&["job", "cancel", &busy]).ok();
    instance.starling(&["job", "wait", &job]).ok();
    instance.down();
}

#[test]
fn a_gang_chooses_no_paused_node() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    instance.starling(&["node", "pause", "1"]).ok();
    for _ in 0..3 {
        let command = "cat $STARLING_HOSTFILE >&2; echo $STARLING_NODE";
        let job = submit(&instance, &["--wait", "--nodes", "2", "--", "sh", "-c", command]);
        let ran_on = instance.starling(&["job", "output", &job]).ok().stdout;
        assert_ne!(ran_on.trim(), "1", "it is paused");
    }
    instance.starling(&["node", "pause", "2"]).ok();
    let job = submit(&instance, &["--nodes", "2", "--", "true"]);
    wait_until("it is explained", || {
        explained(&instance, &job).contains("2 of the 3 nodes that fit are paused")
    });
    instance.starling(&["node", "resume", "2"]).ok();
    instance.starling(&["job", "wait", &job]).ok();
    instance.down();
}

#[test]
fn a_member_that_leaves_waits_for_the_gang() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let (runs, go) = (instance.sandbox().path("runs"), instance.sandbox().path("go"));
    let command = format!(
        "echo $STARLING_NODE >> {}; until [ -e {} ]; do sleep 0.1; done",
        runs.display(),
        go.display()
    );
    let job = submit(&instance, &["--nodes", "3", "--", "sh", "-c", &command]);
    let ran = || std::fs::read_to_string(&runs).unwrap_or_default();
    wait_until("the gang runs", || ran().lines().count() == 1);
    let first: u32 = ran().trim().parse().expect("a node");
    let member = (first + 1) % 3;
    let mut drain = instance.start(&["node", "drain", &format!("n{member}")]);
    wait_until("the member leaves", || {
        let nodes = instance.json(&["node", "list"]);
        let all = nodes["nodes"].as_array().expect("a list").clone();
        all.iter().any(|node| node["id"] == member && node["state"] == "leaving")
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!drain.has_ended(), "it has left before the gang ended");
    std::fs::write(&go, "").expect("a file");
    instance.starling(&["job", "wait", &job]).ok();
    drain.end().ok();
    assert_eq!(ran().lines().count(), 1, "{}", ran());
    instance.down();
}

#[test]
fn a_gang_cannot_give_its_nodes_back_and_go_on() {
    let instance = Instance::up(2, 1);
    let program = binary().display();
    let script = format!("id=$({program} spawn -- true) && {program} await $id");
    let job = submit(&instance, &["--nodes", "2", "--", "sh", "-c", &script]);
    instance.starling(&["job", "wait", &job]).expect_code(1);
    let said = instance.starling(&["job", "output", &job, "--stderr"]).stdout;
    assert!(said.contains("a task on several nodes cannot give them back"), "{said}");
    instance.down();
}

#[test]
fn a_command_of_a_list_holds_several_nodes() {
    let sandbox = starling_tests::Sandbox::new();
    let script = "echo {} on $STARLING_NODES: $($STARLING_RSH n0 'echo n$STARLING_NODE')";
    let run = |nodes: &str| {
        let flags = ["run", "--nodes", "2", "--slots", "1", "--task-nodes", nodes];
        sandbox.starling(&[&flags[..], &["--", "sh", "-c", script, ":::", "a", "b"]].concat())
    };
    let ran = run("2").ok();
    let mut lines: Vec<&str> = ran.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["a on 2: n0", "b on 2: n0"], "{}", ran.stderr);
    let refused = run("3").expect_code(4).stderr;
    assert!(refused.contains("needs 3 nodes at once, the cluster of this run has 2"), "{refused}");
    run("0").expect_code(2);
}

#[test]
fn the_nodes_of_a_gang_that_runs_are_shown_as_running() {
    let instance = Instance::up(3, 2);
    let go = instance.sandbox().path("go");
    let command = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let job = submit(&instance, &["--nodes", "2", "--", "sh", "-c", &command]);
    let running = || {
        let nodes = instance.json(&["node", "list"]);
        let nodes = nodes["nodes"].as_array().expect("there are nodes").clone();
        let mut running: Vec<u64> =
            nodes.iter().map(|node| node["running"].as_u64().expect("a count")).collect();
        running.sort_unstable();
        running
    };
    wait_until("two of three nodes run it", || running() == [0, 1, 1]);
    std::fs::write(&go, "").expect("there is room");
    instance.starling(&["job", "wait", &job]).ok();
    wait_until("no node runs it", || running() == [0, 0, 0]);
    instance.down();
}
