//! Tasks that ask for resources, on nodes that offer them.

use std::fs;

use starling_tests::{Instance, Ran, Sandbox};

const UP: [&str; 6] =
    ["--slots", "2", "--resource", "gpus=[g0,g1]", "--resource", "licences=sum(3)"];

fn up(flags: &[&str]) -> Instance {
    Instance::up_with_flags(1, &[&UP[..], flags].concat())
}

/// Submits a shell command with these needs and waits for its end.
fn run(instance: &Instance, needs: &[&str], command: &str) -> Ran {
    let mut arguments = vec!["submit", "--wait", "--timeout", "60s"];
    arguments.extend(needs);
    arguments.extend(["--", "sh", "-c", command]);
    instance.starling(&arguments)
}

fn text(sandbox: &Sandbox, name: &str) -> String {
    fs::read_to_string(sandbox.path(name)).unwrap_or_default().trim().to_owned()
}

#[test]
fn commands_see_the_resources_that_they_were_given() {
    let instance = up(&[]);
    let sandbox = instance.sandbox();
    let print = |name: &str| {
        let path = sandbox.path(name);
        format!(
            "echo \"$CUDA_VISIBLE_DEVICES/$STARLING_RESOURCE_gpus/$STARLING_RESOURCE_licences/\
             $STARLING_VARIANT\" > {}",
            path.display()
        )
    };
    let needs = ["--gpus", "2", "--resource", "licences=1.5"];
    run(&instance, &needs, &print("both")).ok();
    assert_eq!(text(sandbox, "both"), "g0,g1/g0,g1/1.5/0");
    run(&instance, &[], &format!("[ -n \"${{CUDA_VISIBLE_DEVICES+set}}\" ] && {}", print("none")))
        .ok();
    assert_eq!(text(sandbox, "none"), "///", "it asked for no GPU");
    let needs = ["--variant", "gpus=2, licences=5", "--variant", "gpus=0.5"];
    run(&instance, &needs, &print("variant")).ok();
    assert_eq!(text(sandbox, "variant"), "g0/g0//1");
    let cpus = sandbox.path("cpus");
    let list = format!("echo \"$STARLING_CPUS $STARLING_CPUS_LIST\" > {}", cpus.display());
    run(&instance, &["--cpus", "all"], &list).ok();
    let cpus = text(sandbox, "cpus");
    assert!(cpus.starts_with("2 ") && cpus.split(',').count() == 2, "{cpus}");
    instance.down();
}

#[test]
fn a_request_that_no_node_offers_is_refused_with_the_offers() {
    let instance = up(&["--label", "slow"]);
    let refused = run(&instance, &["--gpus", "3"], "true").expect_code(4);
    assert!(refused.stderr.contains("no node offers that: n0 offers cpus=2"), "{}", refused.stderr);
    let refused = run(&instance, &["--label", "fast"], "true").expect_code(4);
    assert!(refused.stderr.contains("label=slow"), "{}", refused.stderr);
    run(&instance, &["--gpus", "0.00001"], "true").expect_code(2);
    run(&instance, &["--label", "a b"], "true").expect_code(2);
    run(&instance, &["--cpus", "0.5"], "true").expect_code(2);
    run(&instance, &["--label", "slow"], "true").ok();
    instance.down();
}

#[test]
fn a_task_goes_to_the_node_with_its_label() {
    let instance = Instance::up_with_flags(1, &["--slots", "2", "--label", "first"]);
    let up = ["up", "--nodes", "2", "--slots", "2", "--label", "second"];
    instance.starling(&up).ok();
    for (label, node) in [("first", "0"), ("second", "1")] {
        let path = instance.sandbox().path(label);
        let command = format!("echo $STARLING_NODE >> {}", path.display());
        run(&instance, &["--label", label, "--array", "1-6"], &command).ok();
        let nodes = text(instance.sandbox(), label);
        assert_eq!(nodes.lines().collect::<Vec<_>>(), [node; 6], "label {label}");
    }
    instance.down();
}

/// Two tasks that together ask for more than the node has run one after the other, and a task that
/// exceeds its own limit dies alone.
#[test]
fn memory_is_kept() {
    let instance = Instance::up_with_flags(1, &["--slots", "2", "--resource", "memory=1GiB"]);
    let sandbox = instance.sandbox();
    let own = sandbox.path("own");
    // `mkdir` fails while another one runs.
    let alone = format!("mkdir {0} && sleep 0.3 && rmdir {0}", own.display());
    run(&instance, &["--memory", "600MiB", "--array", "1-4"], &alone).ok();
    let eats = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 20; echo ${#x}";
    let failed = run(&instance, &["--memory", "32MiB"], eats).expect_code(1);
    assert!(failed.stderr.contains("MiB of 32 MiB asked"), "{}", failed.stderr);
    let list = instance.json(&["task", "list", "last"]);
    let peak_bytes = list["tasks"][0]["max_rss_bytes"].as_u64().expect("a command ran");
    assert!(peak_bytes > 32 << 20 && list["tasks"][0]["cpu_s"].as_f64() > Some(0.0), "{list}");
    instance.starling(&["report", "last", "-o", "memory.srr"]).ok();
    let past = instance.json(&["task", "list", "last", "--from", "memory.srr"]);
    let kept = past["tasks"][0]["max_rss_bytes"].as_u64().expect("the record has it");
    assert!((peak_bytes..=peak_bytes / 64 * 65).contains(&kept), "{kept} of {peak_bytes}");
    let report = instance.json(&["report", "--from", "memory.srr"]);
    assert_eq!(report["kinds"][0]["used"]["memory_max_bytes"], kept, "{report}");
    // In a process group of its own.
    let apart = format!("setsid sh -c '{}' & wait", eats.replace('\'', "'\\''"));
    let failed = run(&instance, &["--memory", "32MiB"], &apart).expect_code(1);
    assert!(failed.stderr.contains("MiB of 32 MiB asked"), "{}", failed.stderr);
    instance.down();
}

/// Each way to start commands pins them to the cpus that they were given.
#[test]
fn pinned_commands_run_on_their_own_cpus() {
    let instance = Instance::up_with_flags(1, &["--slots", "1"]);
    let sandbox = instance.sandbox();
    let script = "sed -n 's/^Cpus_allowed_list:\\t//p' /proc/self/status; \
                  echo $STARLING_CPUS_LIST $STARLING_PIN";
    let is_pinned = |printed: &str| {
        let mut lines = printed.lines();
        let (allowed, given) = (lines.next().unwrap_or_default(), lines.next());
        !allowed.is_empty() && given == Some(format!("{allowed} taskset").as_str())
    };
    let to = |name: &str| format!("{{ {script}; }} > {}", sandbox.path(name).display());
    run(&instance, &["--pin", "taskset"], &to("submitted")).ok();
    assert!(is_pinned(&text(sandbox, "submitted")), "{}", text(sandbox, "submitted"));
    let file = sandbox.path("w.toml");
    let task = "[[task]]\nname = \"a\"\npin = \"taskset\"\ncommand = [\"sh\", \"-c\", '''";
    fs::write(&file, format!("{task}{}''']\n", to("filed"))).unwrap();
    let file = file.display().to_string();
    instance.starling(&["submit", "--wait", "--timeout", "60s", "--file", &file]).ok();
    assert!(is_pinned(&text(sandbox, "filed")), "{}", text(sandbox, "filed"));
    run(&instance, &["--pin", "numa"], "true").expect_code(2);
    instance.down();
}

#[test]
fn a_node_with_more_slots_than_cpus_pins_nothing() {
    let instance = Instance::up_with_flags(1, &["--slots", "900"]);
    let refused = run(&instance, &["--pin", "omp"], "true").expect_code(1);
    assert!(refused.stderr.contains("the node has 900 slots, and knows"), "{}", refused.stderr);
    run(&instance, &[], "true").ok();
    instance.down();
}

#[test]
fn a_node_takes_first_what_it_prefers() {
    let flags = ["--slots", "1", "--label", "fast", "--prefer", "fast:any"];
    let instance = Instance::up_with_flags(1, &flags);
    let order = instance.sandbox().path("order");
    let append = |word: &str| format!("echo {word} >> {}", order.display());
    instance.starling(&["node", "pause", "0"]).ok();
    instance.starling(&["submit", "--array", "1-4", "--", "sh", "-c", &append("plain")]).ok();
    let labelled = ["submit", "--label", "fast", "--", "sh", "-c", &append("fast")];
    instance.starling(&labelled).ok();
    instance.starling(&["node", "resume", "0"]).ok();
    instance.starling(&["job", "wait", "all", "--timeout", "60s"]).ok();
    let ran = fs::read_to_string(&order).unwrap();
    assert_eq!(ran.split_whitespace().collect::<Vec<_>>()[0], "fast", "{ran}");
    assert_eq!(ran.lines().count(), 5, "{ran}");
    instance.down();
}

/// A task with two variants: the FPGA of node 1, or a cpu of any node.
#[test]
fn a_task_waits_for_its_preferred_variant() {
    let instance = Instance::up_with_flags(1, &["--slots", "2"]);
    let fpga = ["up", "--nodes", "2", "--slots", "2", "--resource", "fpgas=[f0]"];
    instance.starling(&fpga).ok();
    let ran = |name: &str, patience: &str| -> Vec<String> {
        let path = instance.sandbox().path(name);
        let command = format!("echo $STARLING_NODE/$STARLING_VARIANT >> {}", path.display());
        let either = ["--variant", "fpgas=1", "--variant", "cpus=1", "--patience", patience];
        run(&instance, &[&either[..], &["--array", "1-4"]].concat(), &command).ok();
        text(instance.sandbox(), name).lines().map(str::to_owned).collect()
    };
    assert_eq!(ran("patient", "50s"), ["1/0"; 4]);
    let held = ["submit", "--resource", "fpgas=1", "--", "sleep", "600"];
    let held = instance.starling(&held).ok();
    let waits = ["--variant", "fpgas=1", "--variant", "cpus=1", "--patience", "55s"];
    let waiting = instance.starling(&[&["submit"], &waits[..], &["--", "true"]].concat()).ok();
    let waiting = waiting.stdout.split_whitespace().next().unwrap().to_owned();
    let explained = instance.starling(&["task", "explain", &waiting, "true"]).ok().stdout;
    assert!(explained.contains("another variant is open in"), "{explained}");
    assert!(ran("other", "300ms").iter().all(|line| line.ends_with("/1")));
    assert!(ran("at-once", "0s").iter().all(|line| line.ends_with("/1")));
    instance.starling(&["job", "cancel", held.stdout.split_whitespace().next().unwrap()]).ok();
    instance.starling(&["job", "wait", &waiting, "--timeout", "60s"]).ok();
    let wrong = run(&instance, &["--cpus", "1", "--patience", "1s"], "true").expect_code(4);
    assert!(wrong.stderr.contains("only one"), "{}", wrong.stderr);
    let gang = [&["--nodes", "2"], &waits[..]].concat();
    let wrong = run(&instance, &gang, "true").expect_code(4);
    assert!(wrong.stderr.contains("several nodes has no patience"), "{}", wrong.stderr);
    instance.down();
}

#[test]
fn a_variant_runs_its_own_command() {
    let instance = up(&[]);
    let sandbox = instance.sandbox();
    let say = |word: &str, name: &str| {
        format!(
            "[\"sh\", \"-c\", \"echo {word} $STARLING_VARIANT > {}\"]",
            sandbox.path(name).display()
        )
    };
    let task = |name: &str, needs: &str| {
        format!(
            "[[task]]\nname = \"{name}\"\ncommand = {}\n{needs}\npatience = \"0s\"\n\
             variants = [{{ needs = \"cpus=1\", command = {} }}]\n",
            say("first", name),
            say("second", name)
        )
    };
    let both = format!("{}{}", task("gpu", "gpus = 1"), task("cpu", "gpus = 9"));
    let file = sandbox.write("w.toml", &both).display().to_string();
    instance.starling(&["submit", "--wait", "--timeout", "60s", "--file", &file]).ok();
    assert_eq!((text(sandbox, "gpu"), text(sandbox, "cpu")), ("first 0".into(), "second 1".into()));
    instance.down();
}

#[test]
fn the_highest_rank_of_a_priority_starts_first() {
    let instance = Instance::up_with_flags(1, &["--slots", "1"]);
    let order = instance.sandbox().path("order");
    instance.starling(&["node", "pause", "0"]).ok();
    for flags in [&[][..], &["--rank", "2"], &["--rank", "9"], &["--priority", "1"]] {
        let word = format!("echo '{}' >> {}", flags.join(" "), order.display());
        let submit = [&["submit"], flags, &["--", "sh", "-c", &word]].concat();
        instance.starling(&submit).ok();
    }
    instance.starling(&["node", "resume", "0"]).ok();
    instance.starling(&["job", "wait", "all", "--timeout", "60s"]).ok();
    let ran = fs::read_to_string(&order).unwrap();
    let ran: Vec<&str> = ran.lines().map(str::trim).collect();
    assert_eq!(ran, ["--priority 1", "--rank 9", "--rank 2", ""]);
    instance.down();
}

#[test]
fn waiting_tasks_outlast_a_start_without_their_resource() {
    let instance = Instance::up_with_flags(1, &["--slots", "1", "--resource", "fpgas=[0]"]);
    instance.starling(&["submit", "--resource", "fpgas=1", "--", "sleep", "600"]).ok();
    instance.starling(&["submit", "--resource", "fpgas=1", "--array", "1-3", "--", "true"]).ok();
    instance.starling(&["job", "cancel", "1"]).ok();
    instance.starling(&["node", "pause", "0"]).ok();
    instance.starling(&["submit", "--resource", "fpgas=1", "--name", "late", "--", "true"]).ok();
    instance.starling(&["down"]).ok();
    instance.starling(&["up", "--resource", "fpgas=[]"]).ok();
    let explained = instance.starling(&["task", "explain", "3", "late"]).ok().stdout;
    assert!(explained.contains("no node that is there offers it"), "{explained}");
    let refused = instance.starling(&["up", "--resource", "fpgas=[0]"]).expect_code(4);
    assert!(refused.stderr.contains("n0 runs with --resource fpgas=[]"), "{}", refused.stderr);
    instance.starling(&["down"]).ok();
    instance.starling(&["up", "--resource", "fpgas=[0]"]).ok();
    instance.starling(&["job", "wait", "3", "--timeout", "60s"]).ok();
    instance.down();
}

#[test]
fn what_an_ended_task_asked_for_is_told() {
    let instance = up(&[]);
    let variants = ["--variant", "gpus=2, licences=5", "--variant", "gpus=0.5"];
    run(&instance, &[&variants[..], &["--priority", "3"]].concat(), "true").ok();
    let info = instance.json(&["task", "info", "last"]);
    let request = serde_json::json!(["cpus=1, gpus=2, licences=5", "cpus=1, gpus=0.5"]);
    assert_eq!(info["request"], request, "{info}");
    assert_eq!(info["priority"], 3, "{info}");
    let told = instance.starling(&["task", "info", "last"]).ok().stdout;
    let line = "\nasked for: cpus=1, gpus=2, licences=5 | cpus=1, gpus=0.5; priority 3\n";
    assert!(told.contains(line), "{told}");
    run(&instance, &[], "true").ok();
    let told = instance.starling(&["task", "info", "last"]).ok().stdout;
    assert!(told.contains("\nasked for: cpus=1; priority 0\n"), "{told}");
    instance.down();
}
