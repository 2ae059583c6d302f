//! Key-value operations: single and batched, beside an installed Redis.

use std::time::Instant;

use bytes::Bytes;
use client::{Client, Kv, KvKind, KvOp};

use super::other_stores::redis::Redis;
use super::{Cluster, KvArgs, Report, Resolved, Round};

/// The load of one measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    kind: KvKind,
    operations: u64,
    /// Operations sent together; 1 is unbatched.
    batch: u32,
    callers: u32,
    value_bytes: u32,
    /// The keys of a batch share a partition, so that the batch is one atomic step.
    one_partition: bool,
}

pub(super) async fn run(args: &KvArgs) -> anyhow::Result<Report> {
    let resolved = args.setting.resolve(1, 1, 200_000);
    let mut report = Report::new("kv", resolved);
    let redis = Redis::find();
    match &redis {
        Some(_) => report.note(
            "redis: memory only, and with a log synced before the answer, which is what ours does",
        ),
        None => report.note("no redis-server and redis-benchmark on PATH: no comparison"),
    }
    let (batch, callers) = (args.batch, args.callers);
    report.note(format!(
        "{callers} callers at a time, values of {} bytes; batches of {batch}: keys at random, or \
         all of one partition (atomic)",
        args.value_bytes
    ));
    let cluster = Cluster::start(resolved).await?;
    for _ in 0..resolved.rounds {
        let mut round = ours(cluster.client(), resolved, args).await?;
        if let Some(redis) = &redis {
            let theirs = tokio::task::block_in_place(|| redis.measure(resolved.tasks, args))?;
            compare(&mut round, &theirs);
        }
        report.add(round);
    }
    Ok(report)
}

async fn ours(client: &Client, resolved: Resolved, args: &KvArgs) -> anyhow::Result<Round> {
    let load = |kind, batch, one_partition| Load {
        kind,
        operations: if batch == 1 { (resolved.tasks / 10).max(1) } else { resolved.tasks },
        batch,
        callers: args.callers,
        value_bytes: args.value_bytes,
        one_partition,
    };
    let batch = args.batch;
    let measures = [
        ("insert_per_s", load(KvKind::Insert, 1, false)),
        ("lookup_per_s", load(KvKind::Lookup, 1, false)),
        ("insert_batched_per_s", load(KvKind::Insert, batch, false)),
        ("lookup_batched_per_s", load(KvKind::Lookup, batch, false)),
        ("insert_atomic_batch_per_s", load(KvKind::Insert, batch, true)),
        ("lookup_atomic_batch_per_s", load(KvKind::Lookup, batch, true)),
    ];
    let mut round = Round::new();
    for (name, load) in measures {
        round.push((name, per_second(client, load).await?));
    }
    Ok(round)
}

/// Ratios of Starling's rate to the other's.
fn compare(round: &mut Round, theirs: &Round) {
    let pairs = [
        ("insert_per_s", "redis_set_per_s", "insert_over_redis"),
        ("lookup_per_s", "redis_get_per_s", "lookup_over_redis"),
        ("insert_batched_per_s", "redis_set_batched_per_s", "insert_batched_over_redis"),
        ("lookup_batched_per_s", "redis_get_batched_per_s", "lookup_batched_over_redis"),
        ("insert_per_s", "redis_synced_set_per_s", "insert_over_redis_synced"),
        (
            "insert_batched_per_s",
            "redis_synced_set_batched_per_s",
            "insert_batched_over_redis_synced",
        ),
    ];
    let of = |round: &Round, name| {
        round.iter().find(|(other, _)| *other == name).map_or(f64::NAN, |(_, value)| *value)
    };
    let ratios: Vec<_> = pairs
        .iter()
        .map(|&(our, their, ratio)| (ratio, of(round, our) / of(theirs, their)))
        .collect();
    round.extend(theirs.iter().copied());
    round.extend(ratios);
}

/// Operations per second of these callers, each with one pending request at any time.
async fn per_second(client: &Client, load: Load) -> anyhow::Result<f64> {
    // Keys are made before the clock starts: they are not the store's work.
    let mut prepared: Vec<Vec<Vec<KvOp>>> = vec![Vec::new(); load.callers as usize];
    for (at, batch) in batches(client.partitions(), load).into_iter().enumerate() {
        prepared[at % load.callers as usize].push(batch);
    }
    let total: usize = prepared.iter().flatten().map(Vec::len).sum();
    let start = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for batches in prepared {
        let kv = client.kv();
        callers.spawn(call(kv, load, batches));
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

async fn call(kv: Kv, load: Load, batches: Vec<Vec<KvOp>>) -> anyhow::Result<()> {
    for operations in batches {
        let expected = operations.len();
        let results = match load.one_partition || load.batch == 1 {
            true => kv.batch(operations).await?,
            false => kv.each(operations).await?,
        };
        anyhow::ensure!(results.len() == expected, "not one result for each operation");
    }
    Ok(())
}

/// Complete batches of different keys. Lookups use the keys of inserts of the same shape.
fn batches(partitions: u32, load: Load) -> Vec<Vec<KvOp>> {
    let size = load.batch as usize;
    let wanted = (load.operations as usize / size).max(1);
    let value = match load.kind {
        KvKind::Insert => Bytes::from(vec![b'v'; load.value_bytes as usize]),
        _ => Bytes::new(),
    };
    let mut open: Vec<Vec<KvOp>> = vec![Vec::new(); partitions as usize];
    let mut batches = Vec::with_capacity(wanted);
    for number in 0_u64.. {
        if batches.len() == wanted {
            break;
        }
        let key = format!("bench-{size}-{}-{number}", load.one_partition).into_bytes();
        // Batches of any keys share one list; those of one partition have a list for each.
        let at = match load.one_partition {
            true => kvs::key_partition(&key, partitions).0 as usize,
            false => 0,
        };
        let (key, value) = (key.into(), value.clone());
        open[at].push(KvOp { kind: load.kind, key, value, expected: None });
        if open[at].len() == size {
            batches.push(std::mem::take(&mut open[at]));
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_batches_lie_in_one_partition_and_no_key_comes_twice() {
        let load = Load {
            kind: KvKind::Lookup,
            operations: 120,
            batch: 10,
            callers: 1,
            value_bytes: 5,
            one_partition: true,
        };
        let batches = batches(8, load);
        assert_eq!(batches.len(), 12);
        let mut keys = std::collections::BTreeSet::new();
        for batch in &batches {
            let partition = kvs::key_partition(&batch[0].key, 8);
            assert!(batch.iter().all(|op| kvs::key_partition(&op.key, 8) == partition));
            assert!(batch.iter().all(|op| op.value.is_empty()));
            keys.extend(batch.iter().map(|op| op.key.clone()));
        }
        assert_eq!(keys.len(), 120);
    }
}
