//! Allocations that the owner submits to a real Slurm.

use starling_tests::{Sandbox, binary, wait_until};

use super::daemons::{Programs, Slurm};

#[test]
fn slurm_starts_nodes_for_tasks() {
    let Some(programs) = Programs::find() else { return };
    let sandbox = Sandbox::new();
    let slurm = Slurm::start(&sandbox, &programs);
    let directory = sandbox.path("cluster").display().to_string();
    let starling = |arguments: &[&str]| {
        let mut command = slurm.command(binary());
        command.args(["--dir", &directory]).args(arguments);
        sandbox.start_command(command).end()
    };
    starling(&["up", "--nodes", "1", "--slots", "0"]).ok();
    let add = ["alloc", "add", "slurm", "--name", "p", "--cpus", "2", "--backlog", "2"];
    let limits = ["--max-nodes", "2", "--time-limit", "1h", "--idle-timeout", "3s"];
    starling(&[&add[..], &limits].concat()).ok();
    let checked = starling(&["alloc", "dry-run", "p"]).ok().stdout;
    assert!(checked.contains("to start at"), "{checked}");
    // Two of them fill a node for most of its life.
    let tasks = ["submit", "--cpus", "1", "--time-request", "50m", "--array", "1-4", "--wait"];
    starling(&[&tasks[..], &["--", "sleep", "8"]].concat()).ok();
    let info = || starling(&["alloc", "info", "p", "--json"]).ok().json();
    let told = info();
    let intents = told["queue"]["intents"].as_array().expect("a list");
    let started = intents.iter().filter(|intent| intent["started_ms"].as_u64() > Some(0)).count();
    assert_eq!(started, 2, "{told}");
    assert_eq!(told["queue"]["state"]["submissions"], 2, "{told}");
    wait_until("the batch jobs have ended", || {
        let told = info();
        let intents = told["queue"]["intents"].as_array().expect("a list").clone();
        intents.iter().all(|intent| intent["phase"] == "ended" && intent["how"] == "completed")
    });
    starling(&["alloc", "remove", "p"]).ok();
    starling(&["down"]).ok();
    slurm.end();
}

/// The variables of Slurm name fewer cpus than the node finds: what the node offers counts.
#[test]
fn a_queue_of_slurm_learns_what_its_node_offers() {
    let Some(programs) = Programs::find() else { return };
    let sandbox = Sandbox::new();
    let slurm = Slurm::start(&sandbox, &programs);
    let directory = sandbox.path("cluster").display().to_string();
    let starling = |arguments: &[&str]| {
        let mut command = slurm.command(binary());
        command.args(["--dir", &directory]).args(arguments);
        sandbox.start_command(command).end()
    };
    starling(&["up", "--nodes", "1", "--slots", "0"]).ok();
    let add = ["alloc", "add", "slurm", "--name", "q", "--idle-timeout", "3s", "--max-nodes", "1"];
    starling(&add).ok();
    starling(&["submit", "--memory", "10MiB", "--wait", "--", "true"]).ok();
    let info = || starling(&["alloc", "info", "q", "--json"]).ok().json();
    let cpus = || info()["queue"]["state"]["cpus"].as_u64();
    wait_until("the owner has learned the offer", || cpus() > Some(0));
    wait_until("its batch job has ended", || info()["queue"]["intents"][0]["phase"] == "ended");
    let cpus = cpus().expect("it is known");
    let wide = (cpus + 1).to_string();
    let refused = starling(&["submit", "--cpus", &wide, "--", "true"]).expect_code(4).stderr;
    assert!(refused.contains(&format!("its nodes offer cpus={cpus}, ")), "{refused}");
    starling(&["submit", "--cpus", &cpus.to_string(), "--wait", "--", "true"]).ok();
    starling(&["alloc", "remove", "q"]).ok();
    starling(&["down"]).ok();
    slurm.end();
}
