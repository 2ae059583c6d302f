//! Calls the node of a part.

use std::sync::Arc;
use std::time::Duration;

use proto::{NodeId, wire};
use security::dial::explain;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use wire::rsh_input::Body as In;

use super::{Inputs, Outputs, lost, run};
use crate::limits::RSH_QUEUE_PIECES;
use crate::rpc::peers;
use crate::rpc::service::Shared;

/// A node that does not answer a call within this time does not run the command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a command on a node. Its end is the last output. The command ends when `inputs` do, or when
/// the outputs are not wanted.
pub(crate) async fn call(
    shared: Arc<Shared>,
    to: NodeId,
    start: wire::RshStart,
    inputs: Inputs,
    outputs: Outputs,
) {
    if to == shared.identity.node {
        return run::run(shared, start, inputs, outputs).await;
    }
    let end = match begin(&shared, to, start).await {
        Ok((queue, answers)) => match pass(queue, answers, inputs, &outputs).await {
            Ok(()) => return,
            Err(reason) => reason,
        },
        Err(reason) => reason,
    };
    let _ = outputs.send(lost(format!("node {to}: {end}"))).await;
}

type Queue = mpsc::Sender<wire::RshInput>;

async fn begin(
    shared: &Shared,
    to: NodeId,
    start: wire::RshStart,
) -> Result<(Queue, Streaming<wire::RshOutput>), String> {
    let address = shared.addresses.read(to).ok_or("it has not said where it listens")?;
    let mut client = peers::connect(Some(to), &address.address, &shared.tls.dialer()).await?;
    let (queue, queued) = mpsc::channel(RSH_QUEUE_PIECES);
    let first = wire::RshInput { body: Some(In::Start(Box::new(start))) };
    queue.try_send(first).map_err(|error| error.to_string())?;
    let answers = client.rsh(ReceiverStream::new(queued));
    let answers = tokio::time::timeout(ANSWER_TIMEOUT, answers);
    let answers = answers.await.map_err(|_| "no answer in time")?;
    Ok((queue, answers.map_err(|status| explain(&status))?.into_inner()))
}

/// Passes the streams of a call, until its end has come.
async fn pass(
    queue: Queue,
    mut answers: Streaming<wire::RshOutput>,
    mut inputs: Inputs,
    outputs: &Outputs,
) -> Result<(), String> {
    // With the end of this future the queue ends, and so does the command.
    let send = async {
        while let Some(body) = inputs.recv().await {
            if queue.send(wire::RshInput { body: Some(body) }).await.is_err() {
                std::future::pending::<()>().await; // The answers end as well, with a reason.
            }
        }
    };
    let receive = async {
        while let Some(output) = answers.message().await.map_err(|status| explain(&status))? {
            let Some(body) = output.body else { continue };
            let is_end = matches!(body, wire::rsh_output::Body::End(_));
            if outputs.send(body).await.is_err() || is_end {
                return Ok(());
            }
        }
        Err("the call ended before the command".to_owned())
    };
    tokio::select! {
        () = send => Ok(()), // The caller has gone.
        () = outputs.closed() => Ok(()),
        received = receive => received,
    }
}
