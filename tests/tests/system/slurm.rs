//! A real Slurm on this host with private munge, controller and four node daemons, on private ports
//! and in a private directory. It starts one Starling node for each rank.

mod allocations;
mod daemons;

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::Value;
use starling_tests::{Ran, Running, Sandbox, binary, wait_until};

use self::daemons::{Programs, Slurm};
use crate::launchers::use_and_end;

/// The number of consecutive allocations that end by their time limit; `STARLING_TIME_LIMITS`
/// overrides it. Slurm counts limits in minutes.
const TIME_LIMITS: u32 = 1;
const NODES: u32 = 3;
/// The output file of an allocation.
const OUTPUT: &str = "allocation.out";
/// The bound for a limit of one minute. Slurm checks limits twice a minute, and waits for the
/// processes to end.
const LIMIT_MAX: Duration = Duration::from_secs(150);

#[test]
fn slurm_starts_a_node_a_rank() {
    let Some(programs) = Programs::find() else { return };
    let sandbox = Sandbox::new();
    let slurm = Slurm::start(&sandbox, &programs);
    let directory = sandbox.path("meet").display().to_string();
    let mut command = slurm.command("srun");
    command.args(["--nodes=4", "--ntasks=4"]).arg(binary());
    command.args(["node", "--rendezvous", &directory, "--slots", "1"]);
    let launcher = sandbox.start_command(command);
    use_and_end(&sandbox, &directory, 4, vec![launcher]);
    slurm.end();
}

#[test]
fn a_task_sees_the_allocation_of_slurm_unless_that_is_hidden() {
    let Some(programs) = Programs::find() else { return };
    let sandbox = Sandbox::new();
    let slurm = Slurm::start(&sandbox, &programs);
    let said = |directory: &str, more: &[&str]| {
        let cluster = Cluster::start(&sandbox, &slurm, directory, more);
        let script = "squeue --noheader --jobs \"$SLURM_JOB_ID\" --format 'allocation of %D nodes'
             srun --overlap --nodes=1 --ntasks=1 sh -c 'echo step $SLURM_JOB_ID.$SLURM_STEP_ID'
             env | grep -c '^SLURM'; starling=$1; $starling node list --json | wc -l";
        let program = binary().to_str().expect("a plain name");
        let submit = ["submit", "--wait", "--", "sh", "-c", script, "sh", program];
        // With a hidden allocation srun and squeue fail.
        let output = match more {
            [] => cluster.starling(&submit).ok().stdout,
            _ => cluster.starling(&submit).stdout,
        };
        let id = output.lines().next().expect("the number of the job").to_owned();
        let output = cluster.starling(&["job", "output", &id]).stdout;
        cluster.end();
        output
    };
    let seen = said("keeps", &[]);
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[0], "allocation of 3 nodes", "{seen}");
    assert!(lines[1].starts_with("step ") && lines[1].ends_with(".1"), "{seen}");
    assert_ne!(lines[2], "0", "{seen}");
    assert_eq!(lines[3], "1", "the program finds its cluster: {seen}");
    let hidden = said("hides", &["--slurm", "hide"]);
    assert!(hidden.lines().any(|line| line == "0"), "no variable of Slurm: {hidden}");
    assert!(!hidden.contains("step "), "{hidden}");
    slurm.end();
}

/// Consecutive allocations on one directory. The first ones end by their time limit while tasks
/// run, the last one when the job has ended.
#[test]
fn tasks_outlive_time_limits_of_slurm() {
    let Some(programs) = Programs::find() else { return };
    let asked = std::env::var("STARLING_TIME_LIMITS").ok().and_then(|text| text.parse().ok());
    let limits: u32 = asked.unwrap_or(TIME_LIMITS);
    let sandbox = Sandbox::new();
    let slurm = Slurm::start(&sandbox, &programs);
    sandbox.write("outlive.toml", workflow(&sandbox));
    let mut id = String::new();
    for allocation in 0..limits {
        let cluster = Cluster::start(&sandbox, &slurm, "meet", &[]);
        if allocation == 0 {
            let answer = cluster.starling(&["submit", "--file", "outlive.toml", "--json"]);
            answer.ok().json()["job"].as_str().expect("a job").clone_into(&mut id);
        }
        wait_until("all that outlive it run", || began(&sandbox, "long") == 4 * (allocation + 1));
        let ran = cluster.launcher.end_within(LIMIT_MAX);
        let said = fs::read_to_string(sandbox.path(OUTPUT)).unwrap_or_default();
        assert!(said.contains("DUE TO TIME LIMIT"), "{said} {ran:?}");
    }
    sandbox.write("last", "");
    let cluster = Cluster::start(&sandbox, &slurm, "meet", &[]);
    cluster.starling(&["job", "wait", &id]).ok();
    assert_blameless(&cluster, &id, limits);
    cluster.starling(&["job", "fetch", &id, "--output", "got"]).ok();
    let got = |file: &str| fs::read_to_string(sandbox.path("got").join(file)).expect("it is kept");
    assert_eq!(got("all"), (1..=20).fold(String::new(), |all, n| all + &format!("{n}\n")));
    for number in 1..=4 {
        assert_eq!(got(&format!("long-{number}")), format!("long {number}\n"));
    }
    assert_saved(&sandbox, limits);
    cluster.end();
    slurm.end();
}

/// No task has failed, and no end of a node counted against a task.
fn assert_blameless(cluster: &Cluster<'_>, id: &str, limits: u32) {
    let tasks = cluster.starling(&["task", "list", id, "--json"]).ok().json();
    let tasks = tasks["tasks"].as_array().expect("a list");
    assert_eq!(tasks.len(), 4 + 2 + 20 + 1);
    assert!(tasks.iter().all(|task| task["state"] == "done"), "{tasks:?}");
    let long = |task: &&Value| task["name"].as_str().is_some_and(|name| name.starts_with("long"));
    for task in tasks.iter().filter(long) {
        let name = task["name"].as_str().expect("a name");
        let explained = cluster.starling(&["task", "explain", id, name]).ok().stdout;
        assert!(!explained.contains(": counted crash "), "{explained}");
        let spared = explained.matches("stopped in order").count();
        assert_eq!(spared, limits as usize, "{explained}");
    }
}

/// Tasks that save their work on SIGTERM continued from there.
fn assert_saved(sandbox: &Sandbox, limits: u32) {
    for number in 1..=2 {
        let text = fs::read_to_string(sandbox.path(&format!("save-{number}"))).expect("it ran");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.dedup(); // Slurm and the node may both send SIGTERM: then it saves twice.
        let mut saved = "0";
        for pair in lines.chunks(2) {
            assert_eq!(pair[0], format!("from {saved}"), "{text}");
            saved = pair.get(1).map_or(saved, |line| &line["at ".len()..]);
        }
        assert_eq!(lines.len() as u32, 2 * limits + 1, "{text}");
        assert_ne!(saved, "0", "{text}");
    }
}

/// The number of starts of tasks with that name.
fn began(sandbox: &Sandbox, name: &str) -> u32 {
    let text = fs::read_to_string(sandbox.path("began")).unwrap_or_default();
    text.lines().filter(|line| *line == name).count() as u32
}

/// Long tasks that end only in the last allocation, some of which save their work. Also short tasks
/// with results that are needed at the end.
fn workflow(sandbox: &Sandbox) -> String {
    let path = |name: &str| sandbox.path(name).display().to_string();
    let (last, began, save) = (path("last"), path("began"), path("save"));
    let mut text = String::new();
    let mut task = |name: &str, array: &str, script: &str, rest: &str| {
        let _ = writeln!(
            text,
            "[[task]]\nname='{name}-{{i}}'\narray='{array}'\n\
             command=['sh','-c','''\n{script}''']\n{rest}"
        );
    };
    let wait = format!("until [ -e {last} ]; do sleep 0.2; n=$((n+1)); done");
    task(
        "long",
        "1-4",
        &format!("echo long >> {began}\n{wait}\necho long {{i}} > {{out:o}}"),
        "outputs={o={file='long-{i}',keep=true}}",
    );
    let saves = format!(
        "n=$(cat {save}d-{{i}} || echo 0); echo from $n >> {save}-{{i}}\n\
         trap 'echo $n > {save}d-{{i}}; echo at $n >> {save}-{{i}}; exit 1' TERM\n{wait}"
    );
    task("save", "1-2", &saves, "");
    task("short", "1-20", "sleep 4; echo {i} > {out:o}", "outputs={o='short-{i}'}");
    text + "[[task]]\nname='all'\ncommand=['sh','-c','sort -n short-* > all']\n\
            inputs={s=['short-1..20']}\nafter=['long-1']\noutputs={all={file='all',keep=true}}\n"
}

/// A Slurm allocation with a Starling node on each of its nodes.
struct Cluster<'a> {
    sandbox: &'a Sandbox,
    directory: String,
    launcher: Running,
}

impl<'a> Cluster<'a> {
    fn start(sandbox: &'a Sandbox, slurm: &Slurm, directory: &str, more: &[&str]) -> Self {
        let directory = sandbox.path(directory).display().to_string();
        let script = format!(
            "#!/bin/sh\nexec srun --ntasks={NODES} {} node --rendezvous {directory} --slots 3 {}\n",
            binary().display(),
            more.join(" ")
        );
        let script = sandbox.write("allocation.sh", script);
        let output = sandbox.path(OUTPUT);
        let mut command = slurm.command("sbatch");
        command.args(["--wait", "--time=1", &format!("--nodes={NODES}"), "--ntasks-per-node=1"]);
        command.arg("--cpus-per-task=2").arg("--output").arg(&output).arg(script);
        let launcher = sandbox.start_command(command);
        let cluster = Self { sandbox, directory, launcher };
        wait_until("all nodes are up", || {
            let ran = cluster.starling(&["node", "list", "--json"]);
            let is_up = |node: &Value| node["state"] == "up";
            ran.code == 0 && {
                let list = ran.json();
                let nodes = list["nodes"].as_array().expect("a list of nodes");
                nodes.len() as u32 == NODES && nodes.iter().all(is_up)
            }
        });
        cluster
    }

    fn starling(&self, arguments: &[&str]) -> Ran {
        self.sandbox.starling(&[&["--dir", &self.directory][..], arguments].concat())
    }

    fn end(self) {
        self.starling(&["down"]).ok();
        self.launcher.end().ok();
    }
}
