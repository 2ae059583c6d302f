//! The client against real nodes in this process.

mod common;

use std::time::Duration;

use bytes::Bytes;
use starling_client::{
    Cas, Client, ClientError, ClientOptions, Dialer, Instance, JobId, JobPhase, Keyring, KvKind,
    KvNumber, KvOp, KvStatus, LocalId, NodeId, PartitionId, Placement, SubmitOptions,
};

use self::common::{cluster, start, stop};

#[tokio::test]
async fn keys_are_written_compared_and_removed() {
    let (_dir, nodes, client) = cluster(2).await;
    let kv = client.kv();
    assert_eq!(kv.lookup(b"k").await.unwrap(), None);
    let first = kv.insert(b"k", b"one").await.unwrap();
    let second = kv.append(b"k", b"+two").await.unwrap();
    assert!(second > first);
    let value = kv.lookup(b"k").await.unwrap().unwrap();
    assert_eq!((&value.bytes[..], value.version), (&b"one+two"[..], second));

    let conflict = kv.cas(b"k", Some(b"other"), b"new").await.unwrap();
    assert_eq!(conflict, Cas::Conflict { present: Some(value) });
    let conflict = kv.cas(b"k", None, b"new").await.unwrap();
    assert!(matches!(conflict, Cas::Conflict { present: Some(_) }));
    let swapped = kv.cas(b"k", Some(b"one+two"), b"new").await.unwrap();
    assert!(matches!(swapped, Cas::Swapped { version } if version > second));
    let absent = kv.cas(b"other", Some(b"x"), b"y").await.unwrap();
    assert_eq!(absent, Cas::Conflict { present: None });

    assert!(kv.remove(b"k").await.unwrap());
    assert!(!kv.remove(b"k").await.unwrap());
    stop(nodes);
}

#[tokio::test]
async fn numbered_writes_happen_once_and_outlive_forgotten_clients() {
    let (_dir, nodes, client) = cluster(2).await;
    // More clients than a partition remembers: the later ones need a ticket.
    let clients = 2 + proto::limits::KV_NUMBERED_CLIENTS_MAX;
    for number in 0..clients {
        let kv = client.kv().numbered().unwrap();
        kv.append(b"list", format!("{number};").as_bytes()).await.unwrap();
    }
    let all: String = (0..clients).map(|number| format!("{number};")).collect();
    let found = client.kv().lookup(b"list").await.unwrap().unwrap();
    assert_eq!(found.bytes, all);

    let kv = client.kv().numbered().unwrap();
    let key = |number: u32| format!("key-{number}").into_bytes();
    let ops = (0..200).flat_map(|n| {
        [KvOp::new(KvKind::Append, &key(n), b"x"), KvOp::new(KvKind::Lookup, &key(n), b"")]
    });
    let results = kv.each(ops.collect()).await.unwrap();
    assert!(results.iter().skip(1).step_by(2).all(|result| result.value == "x"));

    // The ticket of another partition is refused.
    let number = |sequence, ticket| KvNumber { client: 5, sequence, ticket };
    let given = |number| client.kv().with_number(number);
    let refused = given(number(8, u64::MAX)).append(b"own", b"x").await.unwrap_err();
    let ClientError::Forgotten { ticket, .. } = refused else { panic!("{refused:?}") };
    let given = given(number(9, ticket));
    let [first, second] = [given.append(b"own", b"x").await, given.append(b"own", b"x").await];
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(client.kv().lookup(b"own").await.unwrap().unwrap().bytes, "x");
    stop(nodes);
}

/// Each is new to a partition that has forgotten clients already.
#[tokio::test]
async fn many_clients_that_write_once_lose_nothing() {
    let (_dir, nodes, client) = cluster(2).await;
    let mut writers = tokio::task::JoinSet::new();
    let clients = 5 * proto::limits::KV_NUMBERED_CLIENTS_MAX;
    for number in 0..clients {
        let kv = client.kv().numbered().unwrap();
        writers.spawn(async move { kv.append(b"log", format!("{number};").as_bytes()).await });
    }
    for written in writers.join_all().await {
        written.unwrap();
    }
    let found = client.kv().lookup(b"log").await.unwrap().unwrap();
    let lines = String::from_utf8(found.bytes.to_vec()).unwrap();
    let mut written: Vec<usize> =
        lines.split_terminator(';').map(|number| number.parse().unwrap()).collect();
    written.sort_unstable();
    assert_eq!(written, (0..clients).collect::<Vec<_>>());
    // An answer that is too long to keep: the write is not repeated, and gets no new number.
    let number = KvNumber { client: 5, sequence: 1, ticket: 0 };
    let given = client.kv().with_number(number);
    let long = vec![b'x'; 2 * proto::limits::KV_ANSWER_KEPT_BYTES];
    let ops =
        || vec![KvOp::new(KvKind::Append, b"own", &long), KvOp::new(KvKind::Lookup, b"own", b"")];
    given.batch(ops()).await.unwrap();
    let again = given.batch(ops()).await.unwrap_err();
    assert!(matches!(again, ClientError::AnswerUnkept(_)), "{again:?}");
    stop(nodes);
}

#[tokio::test]
async fn many_operations_go_to_their_partitions_and_come_back_in_order() {
    let (_dir, nodes, client) = cluster(3).await;
    let kv = client.kv();
    let key = |number: u32| format!("key-{number}").into_bytes();
    let inserts = (0..500).map(|n| KvOp::new(KvKind::Insert, &key(n), &key(n + 1))).collect();
    kv.each(inserts).await.unwrap();
    let mut ops: Vec<_> = (0..500).map(|n| KvOp::new(KvKind::Lookup, &key(n), b"")).collect();
    // Two operations on one key happen in their order.
    ops.push(KvOp::new(KvKind::Remove, &key(7), b""));
    ops.push(KvOp::new(KvKind::Lookup, &key(7), b""));
    let results = kv.each(ops).await.unwrap();
    for (number, result) in (0..500).zip(&results) {
        assert_eq!(result.value, Bytes::from(key(number + 1)), "key-{number}");
    }
    assert_eq!(results[501].status, KvStatus::Absent);

    let apart = vec![KvOp::new(KvKind::Insert, b"a", b""), KvOp::new(KvKind::Insert, b"b", b"")];
    let refused = kv.batch(apart).await.unwrap_err();
    assert_eq!(refused.to_string(), "the keys of one batch lie in different partitions");
    let refused = kv.insert(b"", b"x").await.unwrap_err();
    assert_eq!(refused.to_string(), "the key is empty");
    stop(nodes);
}

#[tokio::test]
async fn a_watcher_sees_changes_and_removal() {
    let (_dir, nodes, client) = cluster(1).await;
    let kv = client.kv();
    let before = kv.insert(b"k", b"before").await.unwrap();
    let mut watch = kv.watch(b"k", before);
    kv.insert(b"k", b"after").await.unwrap();
    let (value, version) = watch.next().await.unwrap();
    assert_eq!(value.unwrap().bytes, "after");
    assert!(version > before);
    kv.remove(b"k").await.unwrap();
    let (value, _) = watch.next().await.unwrap();
    assert_eq!(value, None);
    stop(nodes);
}

#[tokio::test]
async fn job_numbers_are_handed_out_once() {
    let (dir, nodes, first) = cluster(2).await;
    let second = Client::connect(dir.path()).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..10 {
        let (a, b) = tokio::join!(first.next_job(), second.next_job());
        taken.extend([a.unwrap().0, b.unwrap().0]);
    }
    taken.sort_unstable();
    assert_eq!(taken, (1..=20).collect::<Vec<u64>>());
    stop(nodes);
}

#[tokio::test]
async fn a_repeated_submission_changes_nothing() {
    let (_dir, nodes, client) = cluster(3).await;
    let graph = workloads::generate("pipeline:tasks=3000,length=3").unwrap();
    for placement in [Placement::Hash, Placement::Graph] {
        let options = SubmitOptions { placement, ..SubmitOptions::default() };
        let plan = client.plan(&graph, &options).await.unwrap();
        let job = client.submit_plan(&plan, &options).await.unwrap().job;
        assert_eq!(client.submit_plan(&plan, &options).await.unwrap().job, job);
        let end = client.wait_job(job, |_| {}).await.unwrap();
        assert_eq!((end.phase, end.total, end.edges), (JobPhase::Finished, 3000, 2000));
        assert_eq!(end.counts.executions, 3000);
        let mut ids = Vec::new();
        client.tasks(job, |task| ids.push(task.id)).await.unwrap();
        ids.sort_unstable();
        let mut planned: Vec<LocalId> = (0..3000).map(|task| plan.local_id(task)).collect();
        planned.sort_unstable();
        assert_eq!(ids, planned, "every task is listed once");
    }
    let jobs = client.jobs(Duration::from_secs(30)).await.unwrap();
    assert_eq!(jobs.jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), [1, 2]);
    stop(nodes);
}

/// All clients submit one job at the same time.
#[tokio::test]
async fn clients_that_submit_the_same_job_at_once_submit_it_once() {
    const CLIENTS: usize = 8;
    let (dir, nodes, first) = cluster(3).await;
    for (job, placement) in [(71, Placement::Hash), (72, Placement::Graph)] {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let client = Client::connect(dir.path()).await.unwrap();
            all.spawn(async move {
                let graph = workloads::generate("pipeline:tasks=3000,length=3").unwrap();
                let job = Some(JobId(job));
                let options = SubmitOptions { placement, job, ..SubmitOptions::default() };
                client.submit(&graph, options).await.map(|handle| handle.job)
            });
        }
        while let Some(submitted) = all.join_next().await {
            assert_eq!(submitted.unwrap().unwrap(), JobId(job));
        }
        let end = first.wait_job(JobId(job), |_| {}).await.unwrap();
        assert_eq!((end.phase, end.total), (JobPhase::Finished, 3000));
        let sum = end.counts;
        assert_eq!((sum.done, sum.executions, sum.failed), (3000, 3000, 0));
    }
    // The number is taken: another job under it is refused, and changes nothing.
    let other = workloads::generate("bag:tasks=40").unwrap();
    let options = SubmitOptions { job: Some(JobId(71)), ..SubmitOptions::default() };
    let refused = first.submit(&other, options).await.unwrap_err();
    assert!(matches!(refused, ClientError::Refused(_)), "{refused:?}");
    assert_eq!(refused.to_string(), "job 71 exists already and is another one");
    let end = first.job(JobId(71)).await.unwrap();
    assert_eq!((end.total, end.counts.executions), (3000, 3000));
    let jobs = first.jobs(Duration::from_secs(30)).await.unwrap();
    assert_eq!(jobs.jobs.iter().map(|job| job.id.0).collect::<Vec<_>>(), [71, 72]);
    stop(nodes);
}

#[tokio::test]
async fn a_job_is_followed_across_a_restart_of_its_nodes() {
    let (dir, nodes, client) = cluster(2).await;
    let graph = workloads::generate("bag:tasks=40,duration=20ms").unwrap();
    let job = client.submit(&graph, SubmitOptions::default()).await.unwrap().job;
    let mut watch = client.watch_job(job);
    watch.next().await.unwrap().expect("it runs");
    stop(nodes);
    let nodes = start(dir.path(), 2);
    let mut last = None;
    while let Some(state) = watch.next().await.unwrap() {
        last = Some(state);
    }
    let last = last.expect("the job ended after the restart");
    assert_eq!((last.phase, last.counts.done), (JobPhase::Finished, 40));
    stop(nodes);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let (_dir, nodes, client) = cluster(1).await;
    let unknown = client.job(JobId(99)).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no job 99");
    let unknown = client.wait_job(JobId(99), |_| {}).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no job 99");
    let task = LocalId::new(PartitionId(3), 4);
    let unknown = client.explain(JobId(99), task).await.unwrap_err();
    assert_eq!(unknown.to_string(), "job 99: no task 3.4");
    let unknown = client.cancel(JobId(99), &[]).await.unwrap_err();
    assert_eq!(unknown.to_string(), "no job 99");
    stop(nodes);
}

#[tokio::test]
async fn a_failed_connection_has_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = Client::connect(dir.path()).await.unwrap_err();
    assert!(matches!(nowhere, ClientError::NoInstance { .. }));
    assert!(nowhere.hint().is_some());

    let nodes = start(dir.path(), 1);
    let address = nodes[0].address().to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let strange = Keyring::of_instance(elsewhere.path()).prepare().unwrap();
    let strange = Dialer::new(&strange).unwrap();
    let wrong = Client::connect_address(&address, strange).await.unwrap_err();
    assert!(wrong.to_string().contains("belongs to another cluster"), "{wrong}");
    let plain = Client::connect_address(&address, Dialer::insecure()).await.unwrap_err();
    assert!(matches!(plain, ClientError::ClusterUnreachable(_)), "{plain}");
    let dialer = Instance::new(dir.path()).dialer().unwrap();
    let client = Client::connect_address(&address, dialer).await.unwrap();
    client.kv().insert(b"k", b"v").await.unwrap();
    stop(nodes);

    let options = ClientOptions { request_timeout: Duration::from_millis(50) };
    let stopped = Client::connect_with(dir.path(), options).await.unwrap_err();
    assert!(matches!(stopped, ClientError::ClusterUnreachable(_)), "{stopped}");
}

#[tokio::test]
async fn a_silent_node_does_not_delay_one_that_answers() {
    let (dir, mut nodes, client) = cluster(2).await;
    drop(client);
    let first = nodes.remove(0);
    first.request_stop();
    first.join().expect("the node stops well");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!(
        r#"{{"format":1,"node":0,"incarnation":1,"address":"{}","pid":1,"slots":2}}"#,
        silent.local_addr().unwrap()
    );
    std::fs::write(dir.path().join("nodes/0/address.json"), address).unwrap();
    let client = Client::connect(dir.path()).await.expect("the other one answers");
    assert_eq!(client.nodes(), [NodeId(0), NodeId(1)]);
    stop(nodes);
}

#[tokio::test]
async fn a_node_at_the_address_of_another_is_not_mistaken_for_it() {
    let (dir, mut nodes, _) = cluster(2).await;
    let path = dir.path().join("nodes/1/address.json");
    let text = std::fs::read_to_string(&path).unwrap();
    stop(vec![nodes.pop().unwrap()]);
    // As if node 1 was killed and its address given to the first node.
    let ours = Instance::new(dir.path()).address(0).unwrap().address;
    let theirs = serde_json::from_str::<serde_json::Value>(&text).unwrap()["address"].clone();
    std::fs::write(&path, text.replace(theirs.as_str().unwrap(), &ours)).unwrap();

    let client = Client::connect(dir.path()).await.unwrap();
    let patience = Duration::from_secs(5);
    for (node, state) in client.node_states(patience).await {
        assert_eq!(state.is_ok(), node == NodeId(0), "{node}: {state:?}");
    }
    client.stop_node(NodeId(1), false).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(client.node_state(NodeId(0), patience).await.is_ok(), "the first node goes on");
    stop(nodes);
}
