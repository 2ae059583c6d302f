//! Nodes that a batch system starts when tasks wait for them, with a small PBS over a directory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use starling_tests::{Ran, Running, Sandbox, binary, has_python, repository, skip, wait_until};

/// A keeper, and a PBS with two machines.
struct Site {
    sandbox: Sandbox,
    directory: PathBuf,
    /// Links to the programs of PBS.
    programs: PathBuf,
}

impl Site {
    /// `None`, with a printed reason, if PBS cannot run. `submits`: the keeper may be the owner.
    fn start(submits: bool) -> Option<Self> {
        if !has_python() {
            skip("the small PBS needs python3");
            return None;
        }
        let sandbox = Sandbox::new();
        let (directory, programs) = (sandbox.path("cluster"), sandbox.path("bin"));
        fs::create_dir_all(&programs).expect("folders can be made");
        for name in ["qsub", "qstat", "qdel", "pbsdsh"] {
            let script = repository().join("tests/pbs/pbs.py");
            std::os::unix::fs::symlink(script, programs.join(name)).expect("links can be made");
        }
        let site = Self { sandbox, directory, programs };
        let up = ["up", "--nodes", "1", "--slots", "0"];
        match submits {
            true => site.starling(&up).ok(),
            false => site.sandbox.start_command(site.command(&up)).end().ok(),
        };
        Some(site)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.arg("--dir").arg(&self.directory).args(arguments);
        command
    }
    fn with_pbs(&self, mut command: Command) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command.env("FAKE_PBS_DIR", self.sandbox.path("pbs"));
        command
    }
    /// Starts `starling` on a machine that may submit.
    fn begin(&self, arguments: &[&str]) -> Running {
        self.sandbox.start_command(self.with_pbs(self.command(arguments)))
    }
    fn starling(&self, arguments: &[&str]) -> Ran {
        self.begin(arguments).end()
    }
    fn json(&self, arguments: &[&str]) -> Value {
        self.starling(&[arguments, &["--json"]].concat()).ok().json()
    }
    /// The batch jobs of PBS.
    fn batch_jobs(&self) -> Value {
        let text = fs::read_to_string(self.sandbox.path("pbs/jobs")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }
    fn number_of_batch_jobs(&self) -> usize {
        self.batch_jobs().as_object().map_or(0, serde_json::Map::len)
    }
    fn intents(&self, queue: &str) -> Vec<Value> {
        let info = self.json(&["alloc", "info", queue]);
        info["queue"]["intents"].as_array().expect("a list").clone()
    }
    fn nodes_up(&self) -> usize {
        let list = self.json(&["node", "list"]);
        let nodes = list["nodes"].as_array().expect("a list").iter();
        nodes.filter(|node| node["state"] == "up").count()
    }
    fn down(self) {
        self.starling(&["down"]).ok();
    }
}

const QUEUE: [&str; 10] = [
    "alloc",
    "add",
    "pbs",
    "--name",
    "quick",
    "--cpus",
    "2",
    "--idle-timeout",
    "3s",
    "--max-nodes",
];

#[test]
fn nodes_come_for_tasks_and_leave_when_they_are_idle() {
    let Some(site) = Site::start(true) else { return };
    let refused = site.starling(&["submit", "--cpus", "2", "--", "true"]).expect_code(4);
    assert!(refused.stderr.contains("keepers"), "{}", refused.stderr);
    site.starling(&[&QUEUE[..], &["2"]].concat()).ok();
    let wide = site.starling(&["submit", "--cpus", "3", "--", "true"]).expect_code(4);
    assert!(wide.stderr.contains("queue quick: its nodes offer cpus=2"), "{}", wide.stderr);
    site.starling(&["submit", "--cpus", "1", "--array", "1-50", "--wait", "--", "true"]).ok();
    let first = site.intents("quick").remove(0);
    assert_eq!(first["phase"], "running", "{first}");
    wait_until("the node has said its offer", || site.intents("quick")[0]["cpus"] == 2);
    wait_until("the nodes have left", || site.nodes_up() == 1);
    wait_until("their batch job has ended", || site.intents("quick")[0]["phase"] == "ended");
    let info = site.json(&["alloc", "info", "quick"]);
    assert_eq!(info["owner"]["owner"], "n0", "{info}");
    assert_eq!(info["queue"]["state"]["submissions"], site.number_of_batch_jobs(), "{info}");
    let text = site.starling(&["alloc", "info", "quick"]).ok().stdout;
    assert!(text.contains("1: ended, 1 node, batch job 1.fake: completed"), "{text}");
    assert!(site.starling(&["alloc", "log", "quick", "1"]).ok().stderr.is_empty());
    let unknown = site.starling(&["alloc", "log", "quick", "700"]).expect_code(4).stderr;
    assert!(unknown.contains("no allocation 700"), "{unknown}");
    let list = site.json(&["alloc", "list"]);
    assert_eq!(list["queues"][0]["state"], "active", "{list}");
    site.starling(&["alloc", "remove", "quick"]).ok();
    assert_eq!(site.json(&["alloc", "list"])["queues"], Value::Array(Vec::new()));
    site.down();
}

/// Before its first node a queue may have any pool. Afterwards the offer of that node decides.
#[test]
fn a_queue_learns_what_its_first_node_offers() {
    let Some(site) = Site::start(true) else { return };
    let add = ["alloc", "add", "pbs", "--name", "q", "--idle-timeout", "3s", "--max-nodes", "1"];
    site.starling(&add).ok();
    let refused = |flag: &str, value: &str| {
        site.starling(&["submit", flag, value, "--", "true"]).expect_code(4).stderr
    };
    let label = refused("--label", "nolabel");
    assert!(label.contains("queue q: its cpus and pools are not known yet: "), "{label}");
    site.starling(&["submit", "--memory", "10MiB", "--wait", "--", "true"]).ok();
    let cpus = || site.json(&["alloc", "info", "q"])["queue"]["state"]["cpus"].as_u64();
    wait_until("the owner has learned the offer", || cpus() > Some(0));
    wait_until("the node has left", || site.nodes_up() == 1);
    let cpus = cpus().expect("it is known");
    let wide = refused("--cpus", &(cpus + 1).to_string());
    let offer = format!("queue q: its nodes offer cpus={cpus}, ");
    assert!(wide.contains(&offer) && wide.contains("memory="), "{wide}");
    let missing = refused("--resource", "fpgas=1");
    assert!(missing.contains("the node has no fpgas"), "{missing}");
    let all = cpus.to_string();
    let whole = ["submit", "--cpus", &all, "--memory", "10MiB", "--wait", "--", "true"];
    site.starling(&whole).ok();
    site.down();
}

#[test]
fn an_owner_that_dies_before_the_job_id_leaves_one_submission() {
    let Some(site) = Site::start(false) else { return };
    site.starling(&[&QUEUE[..], &["1"]].concat()).ok();
    let job = site.starling(&["submit", "--cpus", "1", "--array", "1-4", "--", "true"]).ok().stdout;
    // The batch job is queued, does not start, and its id does not come.
    site.sandbox.write("pbs/stopped", "");
    site.sandbox.write("pbs/slow", "20");
    let owner = site.begin(&["alloc", "tick"]);
    wait_until("there is a batch job", || site.number_of_batch_jobs() == 1);
    owner.signal(Signal::KILL);
    owner.end();
    assert_eq!(site.intents("quick")[0]["phase"], "intended");
    fs::remove_file(site.sandbox.path("pbs/slow")).expect("it is there");
    let other = site.json(&["alloc", "tick"]);
    assert_eq!(other["sites"][0]["done"], false, "the lease of the dead owner holds: {other}");
    let adopted = || {
        std::thread::sleep(Duration::from_secs(2));
        site.starling(&["alloc", "tick"]).ok();
        site.intents("quick")[0]["phase"] == "queued"
    };
    wait_until("another owner adopts the batch job", adopted);
    assert_eq!(site.intents("quick")[0]["job"], "1.fake");
    fs::remove_file(site.sandbox.path("pbs/stopped")).expect("it is there");
    site.starling(&["job", "wait", job.trim()]).ok();
    assert_eq!(site.number_of_batch_jobs(), 1);
    site.down();
}

#[test]
fn a_second_batch_job_of_an_allocation_ends_at_once() {
    let Some(site) = Site::start(false) else { return };
    site.starling(&[&QUEUE[..], &["1"]].concat()).ok();
    let hold = site.sandbox.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.1; done", hold.display());
    let line = ["submit", "--cpus", "1", "--", "sh", "-c", &script];
    let job = site.starling(&line).ok().stdout;
    site.starling(&["alloc", "tick"]).ok();
    wait_until("a node works", || {
        site.intents("quick")[0]["phase"] == "running" && site.nodes_up() == 2
    });
    let mut again = Command::new(site.programs.join("qsub"));
    again.arg(site.directory.join("alloc/quick/1/job.sh"));
    site.sandbox.start_command(site.with_pbs(again)).end().ok();
    wait_until("the second one has ended", || site.batch_jobs()["2.fake"]["job_state"] == "F");
    let info = site.json(&["alloc", "info", "quick"]);
    assert_eq!((&info["duplicates"], site.nodes_up()), (&1.into(), 2), "{info}");
    fs::write(hold, "").expect("a file");
    site.starling(&["job", "wait", job.trim()]).ok();
    site.down();
}

#[test]
fn a_batch_system_that_refuses_makes_the_queue_rest() {
    let Some(site) = Site::start(false) else { return };
    let add = [&QUEUE[..], &["1", "--", "-q", "nosuch"]].concat();
    site.starling(&add).ok();
    let refused = site.starling(&["alloc", "dry-run", "quick"]).expect_code(4).stderr;
    assert!(refused.contains("Unknown queue"), "{refused}");
    site.starling(&["submit", "--cpus", "1", "--", "true"]).ok();
    let ticked = site.json(&["alloc", "tick"]);
    let log = ticked["sites"][0]["log"].to_string();
    assert!(log.contains("was refused: qsub: Unknown queue"), "{ticked}");
    let info = site.json(&["alloc", "info", "quick"]);
    assert_eq!(info["queue"]["state"]["failures"], 1, "{info}");
    let why = site.starling(&["alloc", "explain", "quick"]).ok().stdout;
    assert!(why.contains("wants 1 node") && why.contains("cpus=1: 1 tasks"), "{why}");
    site.starling(&["alloc", "pause", "quick"]).ok();
    assert_eq!(site.json(&["alloc", "list"])["queues"][0]["state"], "paused");
    site.starling(&["alloc", "resume", "quick"]).ok();
    site.starling(&["alloc", "remove", "quick"]).ok();
    site.starling(&[&QUEUE[..], &["1"]].concat()).ok();
    let checked = site.starling(&["alloc", "dry-run", "quick"]).ok().stdout;
    assert!(checked.contains("held and cancelled"), "{checked}");
    site.down();
}

#[test]
fn wrong_queues_are_named() {
    let Some(site) = Site::start(false) else { return };
    let wrong = |arguments: &[&str], code: i32, text: &str| {
        let said = site.starling(arguments).expect_code(code).stderr;
        assert!(said.contains(text), "{arguments:?}: {said}");
    };
    wrong(&["alloc", "add", "lsf"], 2, "slurm and pbs are known");
    wrong(&["alloc", "add", "pbs", "--time-limit", "soon"], 2, "soon");
    wrong(&["alloc", "add", "pbs", "--time-limit", "5s"], 2, "from one minute");
    wrong(&["alloc", "add", "pbs", "--name", "a b"], 2, "no name of a queue");
    wrong(&["alloc", "add", "pbs", "--resource", "gpus"], 2, "gpus");
    let add = |flags: &[&'static str]| [&["alloc", "add", "pbs"][..], flags].concat();
    let more = add(&["--max-nodes-per-alloc", "5", "--max-nodes", "2"]);
    wrong(&more, 2, "all allocations have at most 2");
    let longer = add(&["--node-time-limit", "2h", "--time-limit", "1h"]);
    wrong(&longer, 2, "longer than that of their allocation");
    wrong(&add(&["--idle-timeout", "0s"]), 2, "longer than 0 s");
    wrong(&["alloc", "info", "nosuch"], 4, "there is no queue 'nosuch'");
    wrong(&["alloc", "remove", "nosuch"], 4, "'starling alloc add' makes one");
    site.starling(&add(&["--cpus", "2", "--resource", "gpus=[]"])).ok();
    wrong(&["alloc", "add", "pbs", "--name", "pbs"], 4, "there is a queue 'pbs' already");
    wrong(&["alloc", "log", "pbs"], 4, "has had no allocation yet");
    wrong(&["submit", "--gpus", "1", "--", "true"], 4, "queue pbs: its nodes offer cpus=2");
    wrong(&["submit", "--label", "nolabel", "--", "true"], 4, "the node lacks the label nolabel");
    let long = ["submit", "--time-request", "2h", "--", "true"];
    wrong(&long, 4, "no queue can run what asks for cpus=1, 7200 s");
    wrong(&long, 4, "queue pbs: they ask for 7200 s: more time than its time limit");
    site.starling(&["alloc", "pause", "pbs"]).ok();
    site.starling(&["submit", "--", "true"]).ok();
    let explained = site.starling(&["task", "explain", "last"]).ok().stdout;
    assert!(explained.contains("queue pbs is paused: 'starling alloc resume pbs'"), "{explained}");
    site.down();
}

/// The command line of HyperQueue: its queues are queues of Starling, and their nodes its workers.
#[test]
fn queues_of_the_front_bring_workers() {
    let Some(site) = Site::start(true) else { return };
    let hq = |words: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("hq").arg("--server-dir").arg(&site.directory).args(words);
        site.sandbox.start_command(site.with_pbs(command)).end()
    };
    let json = |words: &[&str]| -> Value {
        let text = hq(&[&["--output-mode=json"], words].concat()).ok().stdout;
        serde_json::from_str(&text).expect("it is JSON")
    };
    let refused = |words: &[&str]| hq(words).expect_code(2).stderr;
    let add = ["alloc", "add", "pbs", "--time-limit=00:10:00", "--cpus=1x2", "--idle-timeout=1m"];
    let limit = refused(&[&add[..], &["--worker-time-limit=1h"]].concat());
    assert!(limit.contains("Worker time limit cannot be larger"), "{limit}");
    let backlog = refused(&[&add[..], &["--backlog", "0"]].concat());
    assert!(backlog.contains("Backlog has to be at least 1"), "{backlog}");
    let cpus = refused(&["alloc", "add", "pbs", "--time-limit=1h", "--cpus=foo"]);
    assert!(cpus.contains("is not a pool"), "{cpus}");
    let made = hq(&[&add[..], &["--name", "fast", "--worker-time-limit=5m"]].concat()).ok().stdout;
    assert_eq!(made, "Allocation queue 1 successfully created\n");
    assert_eq!(site.number_of_batch_jobs(), 1, "a dry run: held, and cancelled");
    let list = json(&["alloc", "list"]);
    assert_eq!((&list[0]["id"], &list[0]["name"]), (&1.into(), &"fast".into()), "{list}");
    assert_eq!((&list[0]["timelimit"], &list[0]["state"]), (&"10m".into(), &"Active".into()));

    hq(&["submit", "--cpus=2", "--wait", "true"]).ok();
    let running = json(&["alloc", "info", "1", "--filter=running"]);
    let id = running[0]["id"].as_str().expect("it runs").to_owned();
    let running = || json(&["worker", "list"]).as_array().is_some_and(|list| list.len() == 1);
    wait_until("the map shows the node", running);
    let worker = &json(&["worker", "list"])[0];
    assert_eq!(worker["allocation"]["id"], id, "{worker}");
    assert_eq!(worker["configuration"]["time_limit"], 300.0, "{worker}");
    hq(&["alloc", "pause", "1"]).ok();
    assert_eq!(json(&["alloc", "list"])[0]["state"], "Paused");
    let kept = hq(&["alloc", "remove", "1"]).expect_code(4).stderr;
    assert!(kept.contains("Allocation queue has running jobs"), "{kept}");
    hq(&["alloc", "remove", "1", "--force"]).ok();
    assert_eq!(json(&["alloc", "list"]), Value::Array(Vec::new()));
    hq(&["alloc", "add", "pbs", "--time-limit=1h", "--no-dry-run"]).ok();
    site.starling(&["alloc", "remove", "hq-2"]).ok();
    assert_eq!(json(&["alloc", "list"]), Value::Array(Vec::new()), "not by the front");
    hq(&["alloc", "remove", "2"]).ok();
    let gone = hq(&["alloc", "info", "1"]).expect_code(4).stderr;
    assert!(gone.contains("Allocation queue 1 not found"), "{gone}");
    let states = site.batch_jobs();
    assert!(states[&id]["state"] != "R", "the batch job is cancelled: {states}");
    site.down();
}
