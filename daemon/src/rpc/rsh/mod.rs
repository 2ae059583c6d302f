/*!
`starling rsh`: commands of a gang's task on the other nodes of the gang.

```text
starling rsh ─▶ door of its node ─▶ call ─▶ [another node] serve ─▶ run ─▶ executor
                                       └─▶ [this node] run ─▶ executor
```
`names` finds the node. `parts` has the parts of gangs on this node: a command starts only in a part
that has begun, and ends with it. A command also ends with its caller: each side of a call notices
that the other has gone.
*/

mod call;
mod names;
mod parts;
mod run;

use std::sync::Arc;
use std::time::Duration;

use executor::MemberTotals;
use proto::work::{GangNode, Used};
use proto::{Attempt, NodeId, TaskId, wire};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use wire::rsh_input::Body as In;
use wire::rsh_output::Body as Out;

use crate::limits::RSH_QUEUE_PIECES;
use crate::rpc::service::Shared;

pub(crate) use call::call;
pub(crate) use names::find;
pub(crate) use parts::Parts;

/// The standard input of a command. The command ends when this does, but not with its `end`.
pub(crate) type Inputs = mpsc::Receiver<In>;
/// The output of a command, and at last its end.
pub(crate) type Outputs = mpsc::Sender<Out>;

/// The exit code of a command that could not be started or watched, as of other remote shells.
pub(crate) const CODE_LOST: i32 = 255;

/// The first message of a call comes within this time.
const FIRST_TIMEOUT: Duration = Duration::from_secs(5);

/// The end of a command that did not run, or that could not be watched to its end.
fn lost(failure: impl Into<String>) -> Out {
    let end = wire::RshEnd { code: CODE_LOST, failure: failure.into(), ..Default::default() };
    Out::End(end)
}

fn totals_of(end: &wire::RshEnd) -> MemberTotals {
    let used = Used { cpu_us: end.cpu_us, max_rss_kib: end.max_rss_kib };
    MemberTotals { used, failure: end.attempt_failure.clone() }
}

/// Adds the totals of further commands to an end.
fn with_totals(end: wire::RshEnd, more: MemberTotals) -> wire::RshEnd {
    let mut totals = totals_of(&end);
    totals.add(more);
    let MemberTotals { used: Used { cpu_us, max_rss_kib }, failure: attempt_failure } = totals;
    wire::RshEnd { attempt_failure, cpu_us, max_rss_kib, ..end }
}

/// Serves a call of another node.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    mut incoming: Streaming<wire::RshInput>,
) -> Result<mpsc::Receiver<Out>, Status> {
    let first = tokio::time::timeout(FIRST_TIMEOUT, incoming.message());
    let first = first.await.map_err(|_| Status::deadline_exceeded("no command in time"))??;
    let Some(In::Start(start)) = first.and_then(|input| input.body) else {
        return Err(Status::invalid_argument("the first message names no command"));
    };
    let (inputs_sender, inputs) = mpsc::channel(RSH_QUEUE_PIECES);
    let (outputs, outputs_receiver) = mpsc::channel(RSH_QUEUE_PIECES);
    tokio::spawn(async move {
        // The queue ends with the call.
        while let Ok(Some(wire::RshInput { body: Some(body) })) = incoming.message().await {
            if inputs_sender.send(body).await.is_err() {
                return;
            }
        }
    });
    tokio::spawn(run::run(Arc::clone(shared), *start, inputs, outputs));
    Ok(outputs_receiver)
}

/// The attempt of a command.
pub(crate) fn key_of(start: &wire::RshStart) -> (TaskId, Attempt) {
    (TaskId::new(start.job, start.task), Attempt(start.attempt))
}

pub(crate) fn to_records(gang: &[GangNode]) -> Vec<wire::RshNode> {
    let record = |node: &GangNode| wire::RshNode {
        node: node.node.0,
        host: node.host.clone(),
        address: node.address.clone(),
        cpus: node.cpus,
    };
    gang.iter().map(record).collect()
}

fn of_records(nodes: Vec<wire::RshNode>) -> Vec<GangNode> {
    let node = |record: wire::RshNode| GangNode {
        node: NodeId(record.node),
        host: record.host,
        address: record.address,
        cpus: record.cpus,
    };
    nodes.into_iter().map(node).collect()
}
