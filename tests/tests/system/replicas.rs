//! Clusters with replicas lose nodes permanently or temporarily, and lose nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proto::JobId;
use rustix::process::{Pid, Signal, kill_process};
use starling_tests::{Instance, Ran, files_below, is_alive, wait_until};

use crate::cluster::{job, submit};

/// A tree of known size.
pub(crate) const TREE: &str = "uts:tree=tiny,duration=5ms";
pub(crate) const TREE_TASKS: u64 = 1732;

/// Writes keys until it is ended. Then it returns the number of acknowledged ones.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u32>,
}

impl Writer {
    /// Runs as long as `instance` does.
    fn start(instance: &Instance) -> Self {
        Self::start_in(instance.directory())
    }

    /// Writes to the instance of that directory.
    pub(crate) fn start_in(directory: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let directory = directory.display().to_string();
        let thread = std::thread::spawn(move || {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                let (key, value) = (format!("key-{written}"), format!("value-{written}"));
                let arguments = ["--dir", &directory, "kv", "insert", &key, &value];
                let mut command = std::process::Command::new(starling_tests::binary());
                let ran = command.args(arguments).output().expect("the program runs");
                assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
                written += 1;
            }
            written
        });
        Self { stop, thread }
    }

    pub(crate) fn end(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("every write was acknowledged")
    }
}

fn all_there(instance: &Instance, written: u32) {
    all_found(written, |arguments| instance.starling(arguments));
}

/// Looks up all keys of a [`Writer`].
pub(crate) fn all_found(written: u32, starling: impl Fn(&[&str]) -> Ran) {
    assert!(written > 0);
    for number in 0..written {
        let found = starling(&["kv", "lookup", &format!("key-{number}")]);
        let expected = format!("value-{number}");
        assert_eq!((found.code, found.stdout.as_str()), (0, &*expected), "{found:?}");
    }
}

fn done(instance: &Instance, id: &str) -> u64 {
    job(instance, id)["tasks"]["done"].as_u64().unwrap_or(0)
}

fn tree_is_whole(instance: &Instance, id: &str) {
    instance.starling(&["job", "wait", id, "--timeout", "120s"]).ok();
    let info = job(instance, id);
    assert_eq!(info["state"], "finished", "{info}");
    for (what, number) in [("total", TREE_TASKS), ("done", TREE_TASKS), ("failed", 0)] {
        assert_eq!(info["tasks"][what], number, "{what}: {info}");
    }
}

/// The home of a job in the first map.
fn first_home(job: &str, nodes: u32, copies: u32) -> u32 {
    let map = kvs::make_replicated_map(1, nodes, kvs::default_partitions(nodes), copies);
    let job = JobId(job.parse().expect("ids are numbers"));
    let partition = kvs::job_partition(job, map.partitions.len() as u32);
    map.partitions[partition.0 as usize].replicas[0]
}

fn state_of(instance: &Instance, node: u32) -> (String, u64) {
    let list = instance.json(&["node", "list"]);
    let nodes = list["nodes"].as_array().expect("a list of nodes");
    let Some(row) = nodes.iter().find(|row| row["id"] == node) else {
        return ("not there".to_owned(), 0);
    };
    (row["state"].as_str().unwrap_or_default().to_owned(), row["incarnation"].as_u64().unwrap_or(0))
}

#[test]
fn two_of_five_are_lost_permanently() {
    let mut instance = Instance::up_with_copies(5, 1, 3);
    instance.wait_for_copies();
    let writer = Writer::start(&instance);
    let id = submit(&instance, &["--file", TREE]);
    wait_until("the job gets on", || done(&instance, &id) >= 200);
    let home = first_home(&id, 5, 3);
    instance.kill(home);
    instance.kill((home + 1) % 5);
    tree_is_whole(&instance, &id);
    all_there(&instance, writer.end());
    wait_until("both are known to be down", || {
        [home, (home + 1) % 5].iter().all(|&node| state_of(&instance, node).0 == "down")
    });
    // Three nodes are enough for three replicas.
    instance.wait_for_copies();
    instance.down();
}

#[test]
fn every_node_is_killed_once_and_the_job_goes_on() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let writer = Writer::start(&instance);
    let id = submit(&instance, &["--file", TREE]);
    for node in [1, 0, 2] {
        instance.kill(node);
        instance.start_missing();
        instance.wait_for_copies();
    }
    tree_is_whole(&instance, &id);
    all_there(&instance, writer.end());
    instance.down();
}

#[test]
fn all_are_killed_and_come_back_in_another_order() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    instance.starling(&["kv", "insert", "bird", "starling"]).ok();
    let id = submit(&instance, &["--file", TREE]);
    wait_until("the job gets on", || done(&instance, &id) >= 100);
    for node in [2, 0, 1] {
        instance.kill(node);
    }
    instance.start_missing();
    tree_is_whole(&instance, &id);
    instance.wait_for_copies();
    assert_eq!(instance.starling(&["kv", "lookup", "bird"]).stdout, "starling");
    instance.down();
}

/// A node that is stopped until it is declared failed changes nothing when it continues.
#[test]
fn a_node_that_slept_comes_back_as_another() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let (pid, incarnation) = instance.address(1).expect("it runs");
    let send = |signal| {
        let pid = Pid::from_raw(i32::try_from(pid).expect("pids are small")).expect("not 0");
        kill_process(pid, signal).expect("it is there");
    };
    let id = submit(&instance, &["--file", TREE]);
    let writer = Writer::start(&instance);
    send(Signal::STOP);
    wait_until("it is given up", || state_of(&instance, 1).0 == "down");
    instance.starling(&["kv", "insert", "bird", "starling"]).ok();
    send(Signal::CONT);
    wait_until("it is there again", || {
        let (state, now) = state_of(&instance, 1);
        state == "up" && now > incarnation
    });
    assert_eq!(instance.address(1).map(|(now, _)| now), Some(pid), "the same process");
    tree_is_whole(&instance, &id);
    all_there(&instance, writer.end());
    assert_eq!(instance.starling(&["kv", "lookup", "bird"]).stdout, "starling");
    instance.wait_for_copies();
    instance.down();
}

#[test]
fn a_node_that_lost_its_disk_is_replicated_again() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let id = submit(&instance, &["--file", TREE]);
    let writer = Writer::start(&instance);
    for node in 0..3 {
        instance.kill(node);
        fs::remove_dir_all(instance.directory().join(format!("nodes/{node}/state"))).expect("ours");
        instance.start_missing();
        instance.wait_for_copies();
    }
    tree_is_whole(&instance, &id);
    all_there(&instance, writer.end());
    instance.down();
}

/// Flips the bits of a byte in the middle of a node's newest records. The node must move its
/// replicas aside and start with new ones.
pub(crate) fn damage_records(instance: &Instance, node: u32) {
    let db = instance.directory().join(format!("nodes/{node}/state/db"));
    let logs = fs::read_dir(&db).expect("a store").flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let log = logs.max_by_key(|path| fs::metadata(path).map_or(0, |it| it.len())).expect("a log");
    let mut bytes = fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&log, bytes).expect("ours");
}

#[test]
fn a_damaged_copy_is_given_up_loudly() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    for number in 0..20 {
        let key = format!("key-{number}");
        instance.starling(&["kv", "insert", &key, &format!("value-{number}")]).ok();
    }
    instance.wait_for_copies();
    instance.kill(0);
    damage_records(&instance, 0);
    instance.start_missing();
    instance.wait_for_copies();
    let said = fs::read_to_string(instance.directory().join("nodes/0/node.log")).expect("a log");
    assert!(said.contains("gives its copies up") && said.contains("damaged"), "{said}");
    assert!(instance.directory().join("nodes/0/state/db.damaged").exists());
    instance.kill(1);
    all_there(&instance, 20);
    instance.down();
}

#[test]
fn a_cluster_reports_its_possible_replication() {
    let instance = Instance::up_with_copies(2, 1, 1);
    let up = |arguments: &[&str]| {
        let mut all = vec!["up"];
        all.extend(arguments);
        instance.starling(&all)
    };
    let other = up(&["--replicas", "2"]).expect_code(4);
    assert!(other.stderr.contains("--replicas 1"), "{other:?}");
    up(&[]).ok();
    instance.down();
    let sandbox = starling_tests::Sandbox::new();
    let run = |replicas: &str| {
        sandbox.starling(&["run", "bag:tasks=3", "--nodes", "2", "--replicas", replicas])
    };
    assert!(run("0").expect_code(2).stderr.contains("--replicas"));
    let many = run("3").expect_code(2);
    assert!(many.stderr.contains("2 nodes cannot keep 3 copies"), "{many:?}");
    run("2").ok();
}

#[test]
fn a_run_survives_the_loss_of_one_of_its_processes() {
    let sandbox = starling_tests::Sandbox::new();
    let arguments =
        ["run", TREE, "--nodes", "3", "--slots", "1", "--processes", "--replicas", "2", "--json"];
    let mut running = sandbox.start(&arguments);
    let own = running.pid();
    let nodes = || -> Vec<u32> {
        let path = format!("/proc/{own}/task/{own}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().map(|word| word.parse().expect("a pid")).collect()
    };
    wait_until("its nodes run", || nodes().len() == 3);
    // Normally the run is in progress by then. A loss before that is survived as well.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) && !running.has_ended() {
        std::thread::sleep(Duration::from_millis(50));
    }
    if let Some(&victim) = nodes().get(1).filter(|_| !running.has_ended()) {
        let pid = Pid::from_raw(i32::try_from(victim).expect("pids are small")).expect("not 0");
        kill_process(pid, Signal::KILL).expect("it runs");
        wait_until("it is gone", || !is_alive(victim));
    }
    let ran = running.end().ok();
    let seen = ran.json();
    assert_eq!(seen["tasks"]["done"], TREE_TASKS, "{seen}");
}

#[test]
fn nodes_come_and_go_while_a_job_runs() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let writer = Writer::start(&instance);
    let id = submit(&instance, &["--file", TREE]);
    let list = instance.json(&["node", "list"]);
    let by = list["nodes"][1]["addr"].as_str().expect("an address").to_owned();
    let newcomer = instance.start(&["node", "--join", &by, "--slots", "1"]);
    wait_until("there are four", || state_of(&instance, 3).0 == "up");
    instance.wait_for_copies();
    instance.starling(&["node", "drain", "n1", "--timeout", "120s"]).ok();
    wait_until("it has ended", || instance.address(1).is_none());
    instance.wait_for_copies();
    tree_is_whole(&instance, &id);
    all_there(&instance, writer.end());
    let last = instance.starling(&["node", "drain", "n0", "n2", "n3"]).expect_code(4);
    assert!(last.stderr.contains("no node would stay"), "{last:?}");
    // A node that has left is not started again, and a later node belongs to the instance.
    let list = instance.json(&["node", "list"]);
    let ids: Vec<u64> = list["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| row["id"].as_u64())
        .collect();
    assert_eq!(ids, [0, 2, 3], "{list}");
    let up = instance.json(&["up"]);
    assert_eq!(up["started"], serde_json::json!([]), "{up}");
    newcomer.signal(Signal::TERM);
    newcomer.end().ok();
    let up = instance.json(&["up"]);
    assert_eq!(up["started"], serde_json::json!([3]), "{up}");
    instance.wait_for_copies();
    instance.down();
}

#[test]
fn a_drain_that_leaves_too_few_to_confirm_a_change_is_refused() {
    let instance = Instance::up_with_copies(3, 1, 3);
    instance.wait_for_copies();
    let refused = instance.starling(&["node", "drain", "n1", "n2"]).expect_code(4);
    assert!(refused.stderr.contains("1 node would stay, and 2 have to"), "{refused:?}");
    assert_eq!(state_of(&instance, 1).0, "up");
    instance.down();
}

/// Homes move to a newcomer, and away from a draining node, while long commands run everywhere.
/// None of the commands is stopped.
#[test]
fn what_runs_goes_on_while_homes_move() {
    const TASKS: u64 = 12;
    let instance = Instance::up_with_copies(2, 6, 2);
    instance.wait_for_copies();
    let directory = instance.sandbox().path("").display().to_string();
    let text = "[[task]]\nname='t{i}'\narray='1-12'\noutputs={o='o{i}'}\n\
         command=['sh','-c','echo {i} >> DIR/ran; while ! test -e DIR/go; do sleep 0.05; done; \
         echo {i} > o{i}']\n";
    instance.sandbox().write("w.toml", text.replace("DIR", &directory));
    let id = submit(&instance, &["--file", "w.toml"]);
    let ran = || fs::read_to_string(instance.sandbox().path("ran")).unwrap_or_default();
    wait_until("all run", || ran().lines().count() as u64 == TASKS);
    let homes = |node: usize| instance.json(&["node", "list"])["nodes"][node]["homes"].as_u64();
    let by = instance.json(&["node", "list"])["nodes"][0]["addr"].as_str().expect("one").to_owned();
    let newcomer = instance.start(&["node", "--join", &by, "--slots", "1"]);
    wait_until("it is home of its share", || homes(2) >= homes(0).map(|homes| homes - 1));
    let drain = instance.start(&["node", "drain", "n1", "--timeout", "100s"]);
    wait_until("the leaving node is home of no partition", || homes(1) == Some(0));
    assert_eq!(ran().lines().count() as u64, TASKS, "none has run again: {}", ran());
    instance.sandbox().write("go", "");
    drain.end().ok();
    instance.starling(&["job", "wait", &id]).ok();
    assert_eq!(job(&instance, &id)["tasks"]["done"], TASKS);
    assert_eq!(ran().lines().count() as u64, TASKS, "each has run once: {}", ran());
    instance.down();
    drop(newcomer);
}

/// A newcomer makes some inputs of the last task and some kept outputs, and leaves before that task
/// may start. The gate takes two slots, so it never runs there.
#[test]
fn what_lies_on_a_node_that_leaves_is_handed_over() {
    const MAKERS: u64 = 30;
    let instance = Instance::up_with_copies(2, 2, 2);
    instance.wait_for_copies();
    let list = instance.json(&["node", "list"]);
    let by = list["nodes"][0]["addr"].as_str().expect("an address").to_owned();
    let newcomer = instance.start(&["node", "--join", &by, "--slots", "1"]);
    wait_until("there are three", || state_of(&instance, 2).0 == "up");
    instance.wait_for_copies();
    // Tasks start only when no home moves, because their runs are counted.
    wait_until("homes move no more", || {
        let list = instance.json(&["node", "list"]);
        let homes: Vec<u64> = (0..3).filter_map(|n| list["nodes"][n]["homes"].as_u64()).collect();
        let (least, most) = (homes.iter().min(), homes.iter().max());
        homes.len() == 3 && most.zip(least).is_some_and(|(most, least)| most - least <= 1)
    });
    let directory = instance.sandbox().path("").display().to_string();
    let inputs: Vec<String> = (1..=MAKERS).map(|number| format!("x{number}='x{number}'")).collect();
    let text = "[[task]]\nname='gate'\ncpus=2\noutputs={g='g'}\n\
         command=['sh','-c','while ! test -e DIR/go; do sleep 0.05; done; echo > g']\n\
         [[task]]\nname='make-{i}'\narray='1-30'\noutputs={x='x{i}',k={file='k{i}',keep=true}}\n\
         command=['sh','-c','echo {i} >> DIR/ran; head -c 100000 /dev/zero > x{i}; \
         echo {i} > k{i}; sleep 0.1']\n\
         [[task]]\nname='last'\ninputs={g='g',ALL}\n\
         command=['sh','-c','test $(cat $STARLING_INPUTS | wc -c) = 3000001']\n";
    let text = text.replace("DIR", &directory).replace("ALL", &inputs.join(","));
    instance.sandbox().write("w.toml", text);
    let id = submit(&instance, &["--file", "w.toml"]);
    let done = || job(&instance, &id)["tasks"]["done"].as_u64();
    wait_until("all is made", || done() == Some(MAKERS));
    let stored = instance.json(&["node", "info", "n2"])["data"]["bytes_stored"].as_u64();
    assert!(stored > Some(100_000), "the newcomer has made nothing: {stored:?}");
    instance.starling(&["node", "drain", "n2", "--timeout", "60s"]).ok();
    newcomer.end().expect_code(3);
    instance.sandbox().write("go", "");
    instance.starling(&["job", "wait", &id]).ok();
    let end = job(&instance, &id);
    assert_eq!(end["tasks"]["done"], MAKERS + 2, "{end}");
    let ran = fs::read_to_string(instance.sandbox().path("ran")).expect("tasks wrote it");
    assert_eq!(ran.lines().count() as u64, MAKERS, "each has run once: {ran}");
    let out = instance.sandbox().path("out");
    instance.starling(&["job", "fetch", &id, "-o", &out.display().to_string()]).ok();
    for number in 1..=MAKERS {
        let kept = fs::read_to_string(out.join(format!("k{number}"))).expect("it was fetched");
        assert_eq!(kept, format!("{number}\n"));
    }
    instance.down();
}

/// A task that runs twice, and the files of its commands.
struct Zombie {
    instance: Instance,
    /// One line for each start of a command: "node attempt".
    began: PathBuf,
    go: PathBuf,
}

impl Zombie {
    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.began).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The first attempt waits for permission to end, and writes unique output. `asleep`: its node
    /// is still stopped then. Returns the job and the attempts in order.
    fn run(&self, asleep: bool) -> (String, Vec<String>) {
        fs::write(&self.began, "").expect("ours");
        let _ = fs::remove_file(&self.go);
        let id = submit(&self.instance, &["--file", "zombie.toml"]);
        wait_until("it has begun", || self.lines().len() == 1);
        let node: u32 = self.lines()[0].split(' ').next().and_then(|n| n.parse().ok()).expect("n");
        let (pid, incarnation) = self.instance.address(node).expect("it runs");
        let send = |signal| {
            let pid = Pid::from_raw(i32::try_from(pid).expect("pids are small")).expect("not 0");
            kill_process(pid, signal).expect("it is there");
        };
        send(Signal::STOP);
        wait_until("it is given up", || state_of(&self.instance, node).0 == "down");
        self.instance.starling(&["job", "wait", &id, "--timeout", "110s"]).ok();
        let written = |name: &str| {
            let tasks = self.instance.directory().join(format!("nodes/{node}/state/tasks"));
            files_below(&tasks).iter().any(|path| path.ends_with(name))
        };
        if asleep {
            fs::write(&self.go, "").expect("ours");
            wait_until("the zombie has written all of it", || written("written"));
        } else {
            assert!(written("began-to-write"), "the zombie is in the middle of it");
        }
        send(Signal::CONT);
        wait_until("it is there again", || {
            let (state, now) = state_of(&self.instance, node);
            state == "up" && now > incarnation
        });
        fs::write(&self.go, "").expect("ours");
        self.instance.wait_for_copies();
        let attempts = self.lines();
        let zombie = attempts[0].split(' ').nth(1).expect("an attempt").to_owned();
        // A kept output that was complete before the node continued stays on its disk. Nodes do not
        // query the home about outputs of an earlier incarnation.
        let may_stay = |path: &PathBuf| asleep && path.to_string_lossy().ends_with("-kept");
        let state = self.instance.directory().join(format!("nodes/{node}/state"));
        let has_it = |path: &PathBuf| {
            fs::read(path)
                .is_ok_and(|text| text.starts_with(format!("attempt {zombie}\n").as_bytes()))
        };
        let left = || files_below(&state).into_iter().filter(has_it).find(|path| !may_stay(path));
        wait_until("what the zombie wrote is gone", || left().is_none());
        (id, attempts)
    }
}

/// A node is stopped until it is declared failed, and its task runs elsewhere with another result.
/// Its command ends while it is stopped. Only the counted output remains. `STARLING_ZOMBIES=100`
/// sets the number of repetitions.
#[test]
fn an_attempt_that_ended_while_its_node_was_suspended_is_discarded() {
    zombies(true);
}

/// The command runs until its node continues, and ends with the old incarnation.
#[test]
fn an_attempt_that_outlived_the_suspension_of_its_node_is_discarded() {
    zombies(false);
}

fn zombies(asleep: bool) {
    let rounds = std::env::var("STARLING_ZOMBIES").ok().and_then(|text| text.parse().ok());
    let instance = Instance::up_with_copies(3, 1, 2);
    let (began, go) = (instance.sandbox().path("began"), instance.sandbox().path("go"));
    let text = "[[task]]\nname='a'\noutputs={k={file='k',keep=true},x='x'}\n\
         command=['sh','-c','echo attempt $STARLING_ATTEMPT > k; cp k x; touch began-to-write; \
         echo $STARLING_NODE $STARLING_ATTEMPT >> BEGAN; \
         if [ $(wc -l < BEGAN) = 1 ]; then while ! test -e GO; do sleep 0.05; done; fi; \
         head -c 300000 /dev/zero >> k; touch written']\n";
    let text = text.replace("BEGAN", &began.display().to_string());
    instance.sandbox().write("zombie.toml", text.replace("GO", &go.display().to_string()));
    let zombie = Zombie { instance, began, go };
    for round in 0..rounds.unwrap_or(1_u32) {
        zombie.instance.wait_for_copies();
        let (id, attempts) = zombie.run(asleep);
        assert_eq!(attempts.len(), 2, "{attempts:?}");
        let instance = &zombie.instance;
        let list = instance.json(&["task", "list", &id]);
        let counted = list["tasks"][0]["attempt"].as_str().expect("an attempt");
        assert_eq!(attempts[1].split(' ').nth(1), Some(counted), "{attempts:?}");
        let out = instance.sandbox().path(&format!("out-{round}"));
        instance.starling(&["job", "fetch", &id, "-o", &out.display().to_string()]).ok();
        let kept = fs::read(out.join("k")).expect("it was fetched");
        assert_eq!(kept.len(), 300_000 + format!("attempt {counted}\n").len());
        assert!(kept.starts_with(format!("attempt {counted}\n").as_bytes()), "of the other one");
        let info = job(instance, &id);
        for (what, number) in [("total", 1), ("done", 1), ("failed", 0), ("cancelled", 0)] {
            assert_eq!(info["tasks"][what], number, "{what}: {info}");
        }
    }
    zombie.instance.down();
}
