//! Nodes on two machines: network namespaces with two interfaces each, names of their own, and a
//! launcher's variables. No node is told its address.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::link_cuts::run;
use rustix::process::Signal;
use starling_tests::{Ran, Running, Sandbox, binary, skip, wait_until};

const HOSTS: [&str; 2] = ["alpha", "beta"];
/// Two machines; they go when this is dropped.
struct Machines {
    tag: u32,
}

/// What is between them beside a network that works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Second {
    /// Another network that works.
    Works,
    /// Networks that others cannot reach, each of which is told first: one from which no answer
    /// comes, addresses of one link, and a bridge that both machines have.
    LeadsNowhere,
}

impl Machines {
    /// `None`, with a printed reason, where they cannot be made.
    fn make(second: Second) -> Option<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // Two runs on one machine must not share names.
        let machines = Self { tag: std::process::id() % 50_000 * 4 + count % 4 };
        let made = machines.try_to_make(second);
        made.map_err(|reason| skip(&format!("no network namespaces: {reason}"))).ok()?;
        Some(machines)
    }

    fn try_to_make(&self, second: Second) -> Result<(), String> {
        run("unshare --uts --pid --fork --kill-child --mount-proc true")?;
        let names = [self.name(0), self.name(1)];
        for name in &names {
            run(&format!("ip netns add {name}"))?;
            run(&format!("ip -n {name} link set lo up"))?;
        }
        if second == Second::LeadsNowhere {
            for (at, name) in names.iter().enumerate() {
                // Made first, so that it is told first; its other end leads back to this machine.
                run(&format!("ip -n {name} link add ib0 type veth peer name ib0x"))?;
                run(&format!("ip -n {name} link set ib0 up"))?;
                run(&format!("ip -n {name} link set ib0x up"))?;
                run(&format!("ip -n {name} addr add {}/24 dev ib0", self.address(8 + at, 1)))?;
                run(&format!("ip -n {name} addr add 169.254.7.{}/16 dev ib0", at + 1))?;
                run(&format!("ip -n {name} link add docker0 type bridge"))?;
                run(&format!("ip -n {name} link set ib0x master docker0"))?;
                run(&format!("ip -n {name} link set docker0 up"))?;
                run(&format!("ip -n {name} addr add 172.17.0.1/16 dev docker0"))?;
            }
        }
        self.join(0)?;
        match second {
            Second::Works => self.join(1)?,
            Second::LeadsNowhere => {
                for (at, name) in names.iter().enumerate() {
                    // No answer at all: a machine says nothing of addresses of other interfaces.
                    let ignore = "/proc/sys/net/ipv4/conf/all/arp_ignore";
                    let mut write = Command::new("ip");
                    write.args(["netns", "exec", name, "sh", "-c", "echo 1 > $0", ignore]);
                    let written = write.status().map_err(|error| error.to_string())?;
                    if !written.success() {
                        return Err(format!("{ignore} cannot be written"));
                    }
                    let there = self.address(9 - at, 0);
                    run(&format!("ip -n {name} route add {there}/24 dev eth0"))?;
                }
            }
        }
        Ok(())
    }

    /// A network between both.
    fn join(&self, number: usize) -> Result<(), String> {
        let [one, other] = [self.name(0), self.name(1)];
        let peer = format!("peer name eth{number} netns {other}");
        run(&format!("ip -n {one} link add eth{number} type veth {peer}"))?;
        for (at, name) in [one, other].iter().enumerate() {
            let address = self.address(number, at + 1);
            run(&format!("ip -n {name} addr add {address}/24 dev eth{number}"))?;
            run(&format!("ip -n {name} link set eth{number} up"))?;
        }
        Ok(())
    }

    fn name(&self, at: usize) -> String {
        format!("starling-host-{}-{at}", self.tag)
    }
    fn address(&self, network: usize, last: usize) -> String {
        format!("10.{}.{}.{last}", 200 + self.tag % 50, network)
    }

    /// A command on one of them.
    fn command(&self, at: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(at), "unshare", "--uts"]);
        // No process of the one is seen by the other.
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
        command.arg("echo $0 > /proc/sys/kernel/hostname && exec \"$@\"");
        command.arg(HOSTS[at]).arg(binary());
        command
    }

    /// The node of a rank, as `srun -N2` starts it.
    fn rank(&self, sandbox: &Sandbox, at: usize, more: &[&str]) -> Running {
        let mut command = self.command(at);
        for (name, value) in [
            ("SLURM_PROCID", at.to_string()),
            ("SLURM_NTASKS", "2".to_owned()),
            ("SLURM_NODELIST", HOSTS.join(",")),
            ("SLURM_JOB_ID", "7".to_owned()),
            ("SLURM_STEP_ID", "0".to_owned()),
        ] {
            command.env(name, value);
        }
        let meet = sandbox.path("meet");
        command.args(["node", "--slots", "1", "--rendezvous"]).arg(meet).args(more);
        sandbox.start_command(command)
    }

    /// A verb on the first of them, to its end.
    fn starling(&self, sandbox: &Sandbox, arguments: &[&str]) -> Ran {
        let mut command = self.command(0);
        command.arg("--dir").arg(sandbox.path("meet")).args(arguments);
        sandbox.start_command(command).end()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for at in 0..2 {
            let _ = run(&format!("ip netns del {}", self.name(at)));
        }
    }
}

/// Each maker says where it ran, beside bytes enough to need a connection of their own; the reader
/// needs all of them.
fn workflow(sandbox: &Sandbox) -> String {
    let read = sandbox.path("read").display().to_string();
    sandbox.write(
        "w.toml",
        format!(
            r#"
[[task]]
name = "make-{{i}}"
array = "1-8"
command = ["sh", "-c", "sleep 0.3; {{ head -c 3000000 /dev/zero; echo node=$STARLING_NODE; }} > {{out:big}}; echo $STARLING_NODE > {{out:small}}"]
outputs = {{ big = "big{{i}}", small = "small{{i}}" }}
[[task]]
name = "read"
command = ["sh", "-c", "cat {{in:big}} {{in:small}} | tr -d '\\0' > {read}.part && mv {read}.part {read}"]
inputs = {{ big = ["big1..8"], small = ["small1..8"] }}
"#
        ),
    );
    read
}

#[expect(clippy::print_stderr, reason = "a figure for a human")]
fn form_and_use(second: Second, more: &[&str]) {
    let Some(machines) = Machines::make(second) else { return };
    let sandbox = Sandbox::new();
    let read = workflow(&sandbox);
    let begun = Instant::now();
    let ranks = [0, 1].map(|at| machines.rank(&sandbox, at, more));
    let list = || machines.starling(&sandbox, &["node", "list", "--json"]);
    let mut nodes = serde_json::Value::Null;
    wait_until("both nodes are up", || {
        let ran = list();
        if ran.code == 0 {
            nodes = ran.json()["nodes"].take();
        }
        let all = nodes.as_array().map_or(&[][..], |all| all);
        all.len() == 2 && all.iter().all(|node| node["state"] == "up")
    });
    eprintln!("formed {:?} after the start", begun.elapsed());
    for at in 0..2 {
        assert_eq!(nodes[at]["host"], HOSTS[at], "{nodes}");
        let told = nodes[at]["addrs"].as_array().expect("a list").clone();
        let has = |network| {
            let with_port = format!("{}:", machines.address(network, at + 1));
            told.iter().any(|it| it.as_str().is_some_and(|it| it.starts_with(&with_port)))
        };
        assert!(has(0), "{nodes}");
        assert_eq!(has(1), second == Second::Works && more.is_empty(), "{nodes}");
        assert!(!told.iter().any(|it| it.to_string().contains("fe80")), "{nodes}");
        if second == Second::LeadsNowhere {
            assert!(told.len() >= 4, "{nodes}");
            assert!(!told[0].to_string().contains(&machines.address(0, at + 1)), "{nodes}");
        }
    }
    let table = machines.starling(&sandbox, &["node", "list"]).ok().stdout;
    assert!(HOSTS.iter().all(|host| table.contains(host)), "{table}");

    let submit = ["submit", "--file", "w.toml", "--wait", "--json"];
    machines.starling(&sandbox, &submit).ok();
    let read = fs::read_to_string(read).expect("the last task wrote it");
    for node in ["node=0", "node=1", "\n0\n", "\n1\n"] {
        assert!(read.contains(node), "what was made on both was read on one: {read:?}");
    }
    machines.starling(&sandbox, &["down"]).ok();
    for rank in ranks {
        rank.end().ok();
    }
}

#[test]
fn nodes_of_two_machines_find_each_other_by_any_network() {
    form_and_use(Second::Works, &[]);
}

#[test]
fn an_address_that_leads_nowhere_is_no_hindrance() {
    form_and_use(Second::LeadsNowhere, &[]);
}

/// Both machines have 172.17.0.1, and a node listens there at the same port.
#[test]
fn a_dead_node_is_not_mistaken_for_the_one_that_answers_at_an_address_of_both() {
    let Some(machines) = Machines::make(Second::LeadsNowhere) else { return };
    let sandbox = Sandbox::new();
    let [first, second] = [0, 1].map(|at| machines.rank(&sandbox, at, &["--listen", "auto:7000"]));
    let nodes = || {
        let ran = machines.starling(&sandbox, &["node", "list", "--json"]);
        let list = if ran.code == 0 { ran.json() } else { serde_json::Value::Null };
        list["nodes"].as_array().cloned().unwrap_or_default()
    };
    let states = || nodes().iter().map(|node| node["state"].clone()).collect::<Vec<_>>();
    wait_until("both nodes are up", || states() == ["up", "up"]);
    // Its address file stays.
    second.signal(Signal::KILL);
    drop(second.end());
    for _ in 0..3 {
        assert_eq!(states(), ["up", "down"]);
    }
    machines.starling(&sandbox, &["node", "stop", "n1"]).ok();
    assert_eq!(states(), ["up", "down"], "the other one goes on");
    wait_until("the other one has given it up", || nodes()[1]["given_up"] == true);
    machines.starling(&sandbox, &["down"]).ok();
    first.end().ok();
}

#[test]
fn a_node_listens_at_the_named_interfaces_alone() {
    form_and_use(Second::Works, &["--interface", "eth0"]);
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("d").display().to_string();
    let node = |more: &[&str]| {
        let mut arguments = vec!["--dir", &directory, "node"];
        arguments.extend(more);
        sandbox.starling(&arguments)
    };
    let ran = node(&["--interface", "hsn9"]).expect_code(4);
    assert!(ran.stderr.contains("'hsn9'") && ran.stderr.contains("lo (127.0.0.1)"), "{ran:?}");
    let ran = node(&["--interface", "10.0.0.0/99"]).expect_code(2);
    assert!(ran.stderr.contains("10.0.0.0/99"), "{ran:?}");
    let ran = node(&["--interface", "lo", "--listen", "127.0.0.1:0"]).expect_code(2);
    assert!(ran.stderr.contains("--interface"), "{ran:?}");
    let ran = node(&["--listen", "auto", "--insecure"]).expect_code(2);
    assert!(ran.stderr.contains("--insecure") && ran.stderr.contains("hint:"), "{ran:?}");
    assert!(!sandbox.path("d").exists(), "nothing was left behind");
}
