//! Nodes in separate network namespaces on one bridge, with keys. Links are cut both ways and one
//! way, and heal. Jobs complete, each task counts once, and no acknowledged key is lost.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use starling_tests::{Foreground, Sandbox, Shape, skip, wait_until};

use crate::replicas::{TREE, TREE_TASKS, Writer, all_found};

const NODES: u32 = 5;
/// The duration of a cut between two nodes: longer than the failure timeout.
const CUT_FOR: Duration = Duration::from_secs(8);
/// A silent node is declared failed within 10 s, and its tasks run elsewhere. Three times that is
/// allowed for loaded machines.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// The direction in which a node loses packets.
#[derive(Clone, Copy, Debug)]
enum Way {
    In,
    Out,
    Both,
}

/// Namespaces and the bridge between them. They are removed when this is dropped.
struct Net {
    tag: u32,
}

impl Net {
    /// `None`, with a printed reason, if it cannot be created.
    fn make() -> Option<Self> {
        // Two runs on one machine must not share names.
        let net = Self { tag: std::process::id() % 50_000 };
        if let Err(reason) = net.try_to_make() {
            skip(&format!("no network namespaces: {reason}"));
            return None;
        }
        Some(net)
    }

    fn try_to_make(&self) -> Result<(), String> {
        let bridge = self.bridge();
        run(&format!("ip link add {bridge} type bridge"))?;
        run(&format!("ip addr add {}/24 dev {bridge}", self.address(254)))?;
        run(&format!("ip link set {bridge} up"))?;
        for node in 0..NODES {
            let (name, port, address) = (self.name(node), self.port(node), self.address(node + 1));
            run(&format!("ip netns add {name}"))?;
            run(&format!("ip link add {port} type veth peer name eth0 netns {name}"))?;
            run(&format!("ip link set {port} master {bridge} up"))?;
            run(&format!("ip -n {name} addr add {address}/24 dev eth0"))?;
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set eth0 up"))?;
            // The tables must exist before the first cut.
            run(&format!("ip netns exec {name} iptables -S"))?;
        }
        Ok(())
    }

    fn bridge(&self) -> String {
        format!("stb{}", self.tag)
    }
    fn name(&self, node: u32) -> String {
        format!("starling-test-{}-{node}", self.tag)
    }
    fn port(&self, node: u32) -> String {
        format!("stv{}x{node}", self.tag)
    }
    fn address(&self, last: u32) -> String {
        format!("10.{}.{}.{last}", 100 + self.tag / 250 % 100, self.tag % 250)
    }

    /// Drops packets in this direction between a node and `others`, or all packets without
    /// `others`.
    fn cut(&self, node: u32, way: Way, others: &[u32]) {
        let drop_packets = |chain: &str, side: &str| {
            let name = self.name(node);
            let rule = format!("ip netns exec {name} iptables -A {chain} -j DROP");
            if others.is_empty() {
                run(&rule).expect("a rule that was checked before");
            }
            for &other in others {
                let with = format!("{rule} {side} {}", self.address(other + 1));
                run(&with).expect("a rule that was checked before");
            }
        };
        if matches!(way, Way::In | Way::Both) {
            drop_packets("INPUT", "-s");
        }
        if matches!(way, Way::Out | Way::Both) {
            drop_packets("OUTPUT", "-d");
        }
    }

    fn heal(&self) {
        for node in 0..NODES {
            run(&format!("ip netns exec {} iptables -F", self.name(node))).expect("ours");
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for node in 0..NODES {
            let _ = run(&format!("ip netns del {}", self.name(node)));
        }
        let _ = run(&format!("ip link del {}", self.bridge()));
    }
}

/// Runs a command; its arguments have no blanks.
pub(crate) fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// A cluster with a node in each namespace.
fn up(net: &Net) -> Foreground {
    let mut shape = Shape::new(NODES, 1, 3);
    for node in 0..NODES {
        let place = format!("ip netns exec {}", net.name(node));
        shape.place.insert(node, place.split(' ').map(str::to_owned).collect());
        let listen = format!("{}:0", net.address(node + 1));
        shape.flags.insert(node, vec!["--listen".to_owned(), listen]);
    }
    Foreground::up(Sandbox::new(), shape)
}

fn submit(cluster: &Foreground) -> String {
    let submitted = cluster.json(&["submit", "--file", TREE]);
    submitted["job"].as_str().expect("jobs have ids").to_owned()
}

/// Each task is done, and counts once.
fn must_be_whole(cluster: &Foreground, id: &str) {
    cluster.starling(&["job", "wait", id, "--timeout", "110s"]).ok();
    let info = cluster.json(&["job", "info", id]);
    for (what, number) in [("total", TREE_TASKS), ("done", TREE_TASKS), ("failed", 0)] {
        assert_eq!(info["tasks"][what], number, "{what}: {info}");
    }
}

fn incarnations(cluster: &Foreground) -> Vec<Option<u64>> {
    (0..NODES).map(|node| cluster.seen(node).map(|seen| seen.incarnation)).collect()
}

/// Cuts nodes off from others until they are declared failed; then they return. Without `others`,
/// they are cut off from all nodes and from us. Returns the time until they were declared failed.
fn give_up_and_take_back(
    net: &Net,
    cluster: &Foreground,
    nodes: &[u32],
    way: Way,
    others: &[u32],
) -> Duration {
    let before = incarnations(cluster);
    let id = submit(cluster);
    for &node in nodes {
        net.cut(node, way, others);
    }
    let since = Instant::now();
    let mut last = Duration::ZERO;
    for &node in nodes {
        let is_given_up = || cluster.seen(node).is_some_and(|seen| seen.is_given_up);
        wait_until("a silent node is given up", is_given_up);
        last = since.elapsed();
    }
    net.heal();
    for &node in nodes {
        wait_until("it starts again", || {
            let now = cluster.seen(node).filter(|seen| seen.is_up);
            now.map(|seen| seen.incarnation) > before[node as usize]
        });
    }
    cluster.wait_for_copies();
    must_be_whole(cluster, &id);
    let after = incarnations(cluster);
    for node in (0..NODES).filter(|node| !nodes.contains(node)) {
        let node = node as usize;
        assert_eq!(after[node], before[node], "n{node} was never away");
    }
    last
}

/// Returns the time from the cut until the silent node's task has started elsewhere. Each node runs
/// one task, which waits. The tasks end after the cut, so the silent node cannot report its end.
fn runs_elsewhere(net: &Net, cluster: &Foreground, silent: u32) -> Duration {
    let began = |number: u32| {
        let text = fs::read_to_string(cluster.sandbox().path(&format!("began-{number}")));
        let lines = text.unwrap_or_default();
        lines.lines().filter_map(|line| line.parse().ok()).collect::<Vec<u32>>()
    };
    let path = cluster.sandbox().path("").display().to_string();
    let script = format!(
        "echo $STARLING_NODE >> {path}began-{{i}}; while ! test -e {path}go; do sleep 0.05; done"
    );
    let array = format!("1-{NODES}");
    let submitted = cluster.json(&["submit", "--array", &array, "--", "sh", "-c", &script]);
    let id = submitted["job"].as_str().expect("jobs have ids").to_owned();
    wait_until("each node runs a task", || (1..=NODES).all(|number| began(number).len() == 1));
    let held = (1..=NODES).find(|&number| began(number) == [silent]).expect("one slot each");
    let incarnation = cluster.seen(silent).map(|seen| seen.incarnation);
    net.cut(silent, Way::Both, &[]);
    let since = Instant::now();
    cluster.sandbox().write("go", "");
    wait_until("its task runs elsewhere", || began(held).len() > 1);
    let took = since.elapsed();
    assert_ne!(began(held)[1], silent, "it was cut off");
    cluster.starling(&["job", "wait", &id, "--timeout", "110s"]).ok();
    net.heal();
    wait_until("it starts again", || {
        let now = cluster.seen(silent).filter(|seen| seen.is_up);
        now.map(|seen| seen.incarnation) > incarnation
    });
    cluster.wait_for_copies();
    let info = cluster.json(&["job", "info", &id]);
    assert_eq!(info["tasks"]["done"], NODES, "{info}");
    took
}

#[test]
fn cut_links_lose_nothing_and_do_nothing_twice() {
    let Some(net) = Net::make() else { return };
    let cluster = up(&net);
    let took = runs_elsewhere(&net, &cluster, 1);
    eprintln!("what a silent node ran had begun elsewhere after {took:.1?}");
    assert!(took <= NOTICED_WITHIN, "{took:?}");
    let writer = Writer::start_in(cluster.directory());
    // The last two can reach each other, and we can reach them.
    for (nodes, way, others) in [
        (&[1][..], Way::Both, &[][..]),
        (&[2], Way::In, &[]),
        (&[3], Way::Out, &[]),
        (&[0, 4], Way::Both, &[1, 2, 3]),
    ] {
        let took = give_up_and_take_back(&net, &cluster, nodes, way, others);
        eprintln!("n{nodes:?} cut off ({way:?}): given up after {took:.1?}");
        assert!(took <= NOTICED_WITHIN, "{took:?}");
    }
    // Two nodes without a connection are reached by all others: neither is declared failed.
    let before = incarnations(&cluster);
    for way in [Way::Both, Way::In] {
        let id = submit(&cluster);
        net.cut(1, way, &[3]);
        std::thread::sleep(CUT_FOR);
        assert_eq!(incarnations(&cluster), before, "{way:?} between two nodes");
        net.heal();
        must_be_whole(&cluster, &id);
    }
    let written = writer.end();
    all_found(written, |arguments| cluster.starling(arguments));
    let commits = cluster.commits();
    assert!(commits.len() as u64 > TREE_TASKS, "{} commits in the logs", commits.len());
    let twice: Vec<_> = commits.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "counted twice: {twice:?}");
    for node in 0..NODES {
        // Keys are required from every client, also on a private network.
        let said = fs::read_to_string(cluster.directory().join(format!("nodes/{node}/state/log")));
        assert!(said.is_ok_and(|text| text.contains("listens on 10.")), "n{node}");
    }
}
