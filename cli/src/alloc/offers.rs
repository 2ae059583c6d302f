//! Tasks that no present node can run, and that nodes of an allocation queue could.

use allocation::ClassDemand;
use client::Client;
use proto::wire::{self, MemberPhase};
use resources::{Amount, Name, Request, Totals};
use verb::errors::Failure;
use verb::units::number_of;
use workloads::Graph;

use crate::alloc::demand;
use crate::alloc::records::{QueueRecord, Records};
use crate::alloc::show::state_of;
use crate::views::submission::check_fit;

/// Lets tasks wait for nodes of a queue, if no present node offers what they ask for. Refuses a
/// task that neither a node nor a queue can run.
pub(crate) async fn await_nodes(client: &Client, graph: &mut Graph) -> Result<(), Failure> {
    let present = present(&client.raw().map());
    if !graph.specs().iter().any(|spec| present.lack(spec)) {
        return Ok(());
    }
    let queues = Records::new(client)?.queues().await?;
    let serves = |spec: &wire::Spec| {
        let class = class_of(spec);
        class.is_none_or(|class| queues.iter().any(|queue| refusal(queue, &class).is_none()))
    };
    if let Some(failure) = refused(&queues, graph.specs(), |spec| present.lack(spec)) {
        return Err(failure);
    }
    graph.await_nodes(|spec| present.lack(spec) && !queues.is_empty() && serves(spec));
    check_fit(graph, present.widest)
}

/// The offers of the nodes in the map, those that are joining included.
fn present(map: &wire::ClusterMap) -> Offers {
    let members = map.members.iter().filter(|member| {
        member.phase() != MemberPhase::Removed && member.slots > 0 && !member.keeper
    });
    Offers::of(members.filter_map(offer))
}

pub(super) fn offer(member: &wire::Member) -> Option<Totals> {
    match member.offer.is_empty() {
        true => Some(Totals::cpus(member.slots)),
        false => Totals::decode(&member.offer).ok(),
    }
}

/// What one task of a spec asks for. A home refuses a request that is not valid.
fn class_of(spec: &wire::Spec) -> Option<ClassDemand> {
    demand::class_of(&wire::ClassDemand {
        request: spec.request.clone(),
        cpus: spec.cpus,
        time_request_ns: spec.time_request_ns,
        tasks: 1,
        work_ns: 0,
        nodes: spec.nodes,
    })
}

/// Why no node of the queue can run such a task.
fn refusal(queue: &QueueRecord, class: &ClassDemand) -> Option<String> {
    queue.config.refusal(&queue.learned(), class)
}

/// The first task that no present node and no queue can run. Without queues the homes refuse it.
fn refused<'s>(
    queues: &[QueueRecord],
    specs: impl IntoIterator<Item = &'s wire::Spec>,
    is_lacking: impl Fn(&wire::Spec) -> bool,
) -> Option<Failure> {
    for spec in specs.into_iter().filter(|spec| !queues.is_empty() && is_lacking(spec)) {
        let Some(class) = class_of(spec) else { continue };
        let why = |queue: &QueueRecord| {
            Some(format!("queue {}: {}", queue.config.name, refusal(queue, &class)?))
        };
        let refusals: Option<Vec<String>> = queues.iter().map(why).collect();
        if let Some(refusals) = refusals {
            let (name, asked) = (&spec.name, class.text());
            let text = format!("task '{name}': no node and no queue can run what asks for {asked}");
            return Some(Failure::refused(text).hint(refusals.join("; ")));
        }
    }
    None
}

/// The lines of `task explain` about the queues, for a task that no present node can run.
pub(crate) async fn explain(
    client: &Client,
    needs: &wire::ClassDemand,
) -> Result<Vec<String>, Failure> {
    let Some(class) = demand::class_of(needs) else { return Ok(Vec::new()) };
    let queues = Records::new(client)?.queues().await?;
    Ok(queues.iter().map(|queue| line(queue, &class)).collect())
}

fn line(queue: &QueueRecord, class: &ClassDemand) -> String {
    let name = &queue.config.name;
    if let Some(why) = refusal(queue, class) {
        return format!("queue {name} cannot bring a node for it: {why}");
    }
    match state_of(queue) {
        "paused" => {
            format!("queue {name} is paused: 'starling alloc resume {name}' lets it ask for nodes")
        }
        "resting" => format!(
            "queue {name} rests after a failure: {}; see 'starling alloc info {name}'",
            queue.state.last_error
        ),
        _ => {
            let wanted = number_of(u64::from(queue.state.wanted_nodes), "node");
            format!(
                "it waits for queue {name}, which wants {wanted}: 'starling alloc explain {name}'"
            )
        }
    }
}

/// The different offers of nodes.
#[derive(Debug)]
struct Offers {
    all: Vec<Totals>,
    /// The most cpus of one node.
    widest: u32,
}

impl Offers {
    fn of(offers: impl Iterator<Item = Totals>) -> Self {
        let mut all: Vec<Totals> = Vec::new();
        for offer in offers.map(|offer| offer.with_end(None)) {
            if !all.contains(&offer) {
                all.push(offer);
            }
        }
        let cpus = |(name, amount): (&Name, Amount)| {
            let whole = u32::try_from(amount.whole_part()).unwrap_or(u32::MAX);
            (*name == Name::cpus()).then_some(whole)
        };
        let widest = all.iter().flat_map(Totals::pools).filter_map(cpus).max().unwrap_or(0);
        Self { all, widest }
    }

    /// Whether no node has what a task asks for.
    fn lack(&self, spec: &wire::Spec) -> bool {
        if spec.request.is_empty() {
            return spec.cpus.max(1) > self.widest;
        }
        // A home refuses a request that is not valid.
        let request = Request::decode(&spec.request).ok();
        request.is_some_and(|request| !self.all.iter().any(|offer| offer.fits(&request)))
    }
}

#[cfg(test)]
mod tests {
    use allocation::{QueueState, System};

    use super::*;

    fn queue(labels: &[&str], paused: bool) -> QueueRecord {
        let config = serde_json::json!({
            "name": "q", "system": System::Slurm, "time_limit_s": 600, "max_nodes_per_alloc": 1,
            "backlog": 1, "idle_timeout_s": 60, "labels": labels, "paused": paused,
        });
        let config = serde_json::from_value(config).expect("a queue");
        QueueRecord { config, state: QueueState::default(), intents: Vec::new() }
    }

    #[test]
    fn what_no_node_offers_is_found() {
        let offers = Offers::of([Totals::cpus(2), Totals::cpus(4), Totals::cpus(4)].into_iter());
        assert_eq!((offers.all.len(), offers.widest), (2, 4));
        let wide = |cpus| wire::Spec { cpus, ..Default::default() };
        assert!(offers.lack(&wide(5)) && !offers.lack(&wide(4)));
        let request = "gpus=1".parse::<Request>().expect("a request").encode();
        assert!(offers.lack(&wire::Spec { request, ..Default::default() }));
        assert!(Offers::of(std::iter::empty()).lack(&wide(1)), "keepers alone");
    }

    /// A node that joins has its slots in the map before it answers a client.
    #[test]
    fn joining_nodes_count() {
        let joining = wire::Member {
            phase: MemberPhase::Joining as i32,
            slots: 2,
            ..wire::Member::default()
        };
        let keeper = wire::Member { keeper: true, ..wire::Member::default() };
        let map = wire::ClusterMap { members: vec![keeper, joining], ..Default::default() };
        assert_eq!(present(&map).widest, 2);
    }

    #[test]
    fn a_refusal_names_the_label_and_the_queues() {
        let request = "label=nolabel".parse::<Request>().expect("a request").encode();
        let spec = wire::Spec { name: "t".into(), request, cpus: 1, ..Default::default() };
        let refused = |queues: &[QueueRecord]| refused(queues, [&spec], |_| true);
        let failure = refused(&[queue(&["other"], false)]).expect("no node of it has the label");
        let text = failure.render();
        assert!(text.contains("nolabel") && text.contains("queue q: "), "{text}");
        assert!(refused(&[]).is_none(), "the homes refuse it");
        assert!(refused(&[queue(&["other"], false), queue(&["nolabel"], true)]).is_none());
    }

    /// Whether a queue without a node yet serves a task is not known. Its first node shows it, also
    /// before the owner has noted that.
    #[test]
    fn what_a_queue_does_not_name_is_not_known_before_its_first_node() {
        let spec = |text: &str, time_s: u64| {
            let request = text.parse::<Request>().expect("a request").encode();
            let time_request_ns = time_s * 1_000_000_000;
            wire::Spec { name: "t".into(), request, time_request_ns, ..Default::default() }
        };
        let said = |queue: QueueRecord, spec: &wire::Spec| {
            refused(&[queue], [spec], |_| true).map(|failure| failure.render())
        };
        let memory = spec("cpus=2, memory=10MiB", 0);
        assert_eq!(said(queue(&[], false), &memory), None);
        let long = said(queue(&[], false), &spec("cpus=1", 3600)).expect("too long");
        assert!(long.contains("what asks for cpus=1, 3600 s"), "{long}");
        assert!(long.contains("queue q: they ask for 3600 s: more time"), "{long}");
        let intent = serde_json::json!({
            "number": 1, "name": "n", "system": System::Slurm, "nodes": 1, "phase": "running",
            "made_ms": 1, "offer": {"pools": {"cpus": "2"}},
        });
        let intent = || serde_json::from_value(intent.clone()).expect("an intent");
        let known = || QueueRecord { intents: vec![intent()], ..queue(&[], false) };
        let lacks = said(known(), &memory).expect("there is no memory");
        assert!(lacks.contains("its nodes offer cpus=2: the node has no memory"), "{lacks}");
        assert_eq!(said(known(), &spec("cpus=2", 0)), None);
        assert!(said(known(), &spec("cpus=3", 0)).is_some());
    }

    #[test]
    fn an_explanation_says_what_a_queue_does() {
        let class = ClassDemand {
            request: "label=a".parse().expect("a request"),
            time_ms: 0,
            tasks: 1,
            work_ms: 0,
            nodes: 1,
        };
        let line = |labels: &[&str], paused| line(&queue(labels, paused), &class);
        assert!(line(&["a"], false).starts_with("it waits for queue q, which wants 0 nodes"));
        assert!(line(&["a"], true).starts_with("queue q is paused: 'starling alloc resume q'"));
        assert!(line(&["b"], true).starts_with("queue q cannot bring a node for it: "));
    }
}
