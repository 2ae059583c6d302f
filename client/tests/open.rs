//! Open jobs through the client against real nodes in this process.

mod common;

use std::collections::BTreeMap;

use starling_client::{
    ClientError, EndsPosition, JobId, JobPhase, LocalId, NewTask, OpenOptions, Openness, Parent,
    PartitionId, TaskSpec, Verdict,
};

use self::common::{cluster, stop};

/// A no-op with outputs of this number.
fn noop(outputs: usize, inputs: usize) -> TaskSpec {
    let output = |spec: TaskSpec, k| spec.output(&format!("o{k}"), &format!("o{k}"));
    let input = |spec: TaskSpec, k| spec.input(&format!("i{k}"), &format!("i{k}"));
    let spec = (0..outputs).fold(TaskSpec::noop().name("t{i}"), output);
    (0..inputs).fold(spec, input)
}

fn after(parents: &[LocalId]) -> NewTask {
    let order = |&task: &LocalId| Parent { task, output: None };
    NewTask { parents: parents.iter().map(order).collect(), ..NewTask::default() }
}

#[tokio::test]
async fn tasks_of_a_chain_are_named_before_they_are_stored_and_all_ends_are_told() {
    let (_dir, nodes, client) = cluster(2).await;
    let job = client.open_job(OpenOptions::default()).await.unwrap();
    let spec = noop(0, 0);
    let mut last = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..3_000 {
        let id = job.append(&spec, after(&last)).unwrap();
        last = vec![id];
        ids.push(id);
    }
    job.flush().await.unwrap();
    let state = client.wait_submitted(job.id()).await.unwrap();
    assert_eq!((state.total, state.openness), (3_000, Openness::Open));
    // A second handle names tasks of the first one, which have ended.
    let other = client.join_job(job.id()).await.unwrap();
    let id = other.append(&spec, after(&ids[..10])).unwrap();
    assert!(!ids.contains(&id));
    other.close().await.unwrap();
    let end = client.wait_job(job.id(), |_| {}).await.unwrap();
    assert_eq!((end.phase, end.total), (JobPhase::Finished, 3_001));

    let mut ends = BTreeMap::new();
    let mut watch = client.watch_ends(job.id(), EndsPosition::default());
    while let Some(batch) = watch.next().await.unwrap() {
        ends.extend(batch.into_iter().map(|end| (end.task, end.verdict)));
    }
    assert_eq!(ends.len(), 3_001);
    assert!(ends.values().all(|verdict| *verdict == Verdict::Done));
    let mut again = client.watch_ends(job.id(), watch.position().clone());
    assert_eq!(again.next().await.unwrap(), None, "nothing is told twice");
    stop(nodes);
}

#[tokio::test]
async fn ends_are_told_while_the_job_is_open() {
    let (_dir, nodes, client) = cluster(2).await;
    let job = client.open_job(OpenOptions::default()).await.unwrap();
    let mut watch = client.watch_ends(job.id(), EndsPosition::default());
    let spec = noop(1, 0);
    let sized = NewTask { output_sizes: vec![7], ..NewTask::default() };
    let first = job.append(&spec, sized).unwrap();
    let batch = watch.next().await.unwrap().unwrap();
    assert_eq!((batch.len(), batch[0].task, &batch[0].output_sizes[..]), (1, first, &[7][..]));
    let read = Parent { task: first, output: Some(0) };
    let reader = NewTask { parents: vec![read], ..NewTask::default() };
    let second = job.append(&noop(0, 1), reader).unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap()[0].task, second);
    let held = async || client.job(job.id()).await.unwrap().counts.held_bytes;
    while held().await != 7 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    job.release(&[first, second]).await.unwrap();
    while held().await != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    job.close().await.unwrap();
    assert_eq!(watch.next().await.unwrap(), None);
    stop(nodes);
}

#[tokio::test]
async fn an_edge_to_a_task_that_never_comes_skips_its_child_at_the_close() {
    let (_dir, nodes, client) = cluster(2).await;
    let job = client.open_job(OpenOptions::default()).await.unwrap();
    let spec = noop(0, 0);
    let absent: Vec<LocalId> =
        (0..client.partitions()).map(|it| LocalId::new(PartitionId(it), 1 << 30)).collect();
    for parent in &absent {
        job.append(&spec, after(&[*parent])).unwrap();
    }
    job.append(&spec, NewTask::default()).unwrap();
    job.close().await.unwrap();
    let end = client.wait_job(job.id(), |_| {}).await.unwrap();
    let sum = end.counts;
    assert_eq!((sum.done, sum.skipped), (1, absent.len() as u64));
    stop(nodes);
}

#[tokio::test]
async fn wrong_uses_are_refused_and_change_nothing() {
    let (_dir, nodes, client) = cluster(1).await;
    let unknown = client.join_job(JobId(99)).await.unwrap_err();
    assert!(matches!(unknown, ClientError::UnknownJob(JobId(99))), "{unknown:?}");
    let job = client.open_job(OpenOptions::default()).await.unwrap();
    let spec = noop(0, 0);
    let outside = LocalId::new(PartitionId(client.partitions()), 0);
    let refused = job.append(&spec, after(&[outside])).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(_)), "{refused:?}");
    job.append(&spec, NewTask::default()).unwrap(); // The handle still works.
    job.close().await.unwrap();
    job.append(&spec, NewTask::default()).unwrap();
    let closed = job.flush().await.unwrap_err().to_string();
    assert!(closed.contains("is closed"), "{closed}");
    assert!(job.append(&spec, NewTask::default()).is_err(), "the first error stays");
    let end = client.wait_job(job.id(), |_| {}).await.unwrap();
    assert_eq!((end.phase, end.total), (JobPhase::Finished, 1));
    stop(nodes);
}
