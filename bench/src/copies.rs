//! The replicated store beside etcd and Redis with as many copies, each as durable as it can be
//! configured. The callers, keys and values are the same, and the contenders take turns.
//!
//! An answered write is durable as follows. Starling: all replicas have synced it. etcd: a majority
//! of its members have synced it. Redis: the primary has synced it and all replicas have it
//! (`WAIT`); each syncs its log before it acknowledges. Only Starling encrypts, unless told
//! otherwise.

use std::sync::Arc;
use std::time::Instant;

use client::Kv;

use super::latencies::Latencies;
use super::other_stores::etcd::{Etcd, EtcdSession};
use super::other_stores::redis_copies::{RedisCopies, RedisSession};
use super::report::Report;
use super::{Cluster, KvArgs, Resolved, Round};

/// The share of operations by a single caller, which show the latency.
const ALONE_SHARE: u64 = 50;

/// One caller's connection to a store.
pub(super) enum Session {
    Ours(Kv),
    Etcd(EtcdSession),
    Redis(RedisSession),
}

impl Session {
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Ours(kv) => kv.insert(key, value).await.map(drop).map_err(Into::into),
            Self::Etcd(session) => session.put(key, value).await,
            Self::Redis(session) => session.set(key, value).await,
        }
    }

    async fn lookup(&mut self, key: &[u8]) -> anyhow::Result<usize> {
        match self {
            Self::Ours(kv) => Ok(kv.lookup(key).await?.map_or(0, |value| value.bytes.len())),
            Self::Etcd(session) => session.range(key).await,
            Self::Redis(session) => session.get(key).await,
        }
    }
}

/// A running store.
enum Contender<'a> {
    Ours(&'a Cluster),
    Etcd(Etcd),
    Redis(RedisCopies),
}

/// The names of its figures.
struct Names {
    insert: [&'static str; 3],
    insert_alone: [&'static str; 2],
    lookup: [&'static str; 2],
}

const OURS: Names = Names {
    insert: ["insert_per_s", "insert_p50_us", "insert_p99_us"],
    insert_alone: ["insert_alone_p50_us", "insert_alone_p99_us"],
    lookup: ["lookup_per_s", "lookup_p50_us"],
};
const ETCD: Names = Names {
    insert: ["etcd_insert_per_s", "etcd_insert_p50_us", "etcd_insert_p99_us"],
    insert_alone: ["etcd_insert_alone_p50_us", "etcd_insert_alone_p99_us"],
    lookup: ["etcd_lookup_per_s", "etcd_lookup_p50_us"],
};
const REDIS: Names = Names {
    insert: ["redis_insert_per_s", "redis_insert_p50_us", "redis_insert_p99_us"],
    insert_alone: ["redis_insert_alone_p50_us", "redis_insert_alone_p99_us"],
    lookup: ["redis_lookup_per_s", "redis_lookup_p50_us"],
};

impl Contender<'_> {
    fn names(&self) -> &'static Names {
        match self {
            Self::Ours(_) => &OURS,
            Self::Etcd(_) => &ETCD,
            Self::Redis(_) => &REDIS,
        }
    }

    async fn session(&self) -> anyhow::Result<Session> {
        Ok(match self {
            Self::Ours(cluster) => Session::Ours(cluster.client().kv()),
            Self::Etcd(etcd) => Session::Etcd(etcd.session().await?),
            Self::Redis(redis) => Session::Redis(redis.session().await?),
        })
    }
}

pub(super) async fn run(args: &KvArgs) -> anyhow::Result<Report> {
    let resolved = args.setting.resolve(args.setting.replicas, 1, 20_000);
    // The contenders are separate processes too.
    let resolved = Resolved { processes: true, ..resolved };
    let mut report = Report::new("kv", resolved);
    let copies = resolved.replicas;
    report.note(format!(
        "{copies} copies; {} callers at a time, each with one operation under way, values of {} \
         bytes; 'alone': one caller",
        args.callers, args.value_bytes
    ));
    let cluster = Cluster::start(resolved).await?;
    let mut contenders = vec![Contender::Ours(&cluster)];
    match Etcd::start(copies).await? {
        Some(etcd) => contenders.push(Contender::Etcd(etcd)),
        None => report.note("no etcd on PATH: no comparison with it"),
    }
    match RedisCopies::start(copies).await? {
        Some(redis) => contenders.push(Contender::Redis(redis)),
        None => report.note("no redis-server on PATH: no comparison with it"),
    }
    for number in 0..resolved.rounds {
        let mut round = Round::new();
        for contender in &contenders {
            round.extend(measure(contender, resolved, args, number).await?);
        }
        compare(&mut round);
        report.add(round);
    }
    Ok(report)
}

/// Ratios of Starling's figures to the others'.
fn compare(round: &mut Round) {
    let of = |name: &str| round.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
    let ratio = |ours: &str, theirs: &str| Some(of(ours)? / of(theirs)?);
    let ratios = [
        ("insert_over_etcd", ratio(OURS.insert[0], ETCD.insert[0])),
        ("insert_over_redis", ratio(OURS.insert[0], REDIS.insert[0])),
        ("lookup_over_etcd", ratio(OURS.lookup[0], ETCD.lookup[0])),
        ("lookup_over_redis", ratio(OURS.lookup[0], REDIS.lookup[0])),
        ("insert_alone_p50_over_etcd", ratio(OURS.insert_alone[0], ETCD.insert_alone[0])),
        ("insert_alone_p50_over_redis", ratio(OURS.insert_alone[0], REDIS.insert_alone[0])),
    ];
    round.extend(ratios.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))));
}

async fn measure(
    contender: &Contender<'_>,
    resolved: Resolved,
    args: &KvArgs,
    round: u32,
) -> anyhow::Result<Round> {
    let names = contender.names();
    let load = |what, callers, operations| Load {
        what,
        callers,
        operations,
        value_bytes: args.value_bytes as usize,
        round,
    };
    let alone = (resolved.tasks / ALONE_SHARE).max(1);
    let insert = load(Benchmark::Insert, args.callers, resolved.tasks).run(contender).await?;
    let lookup = load(Benchmark::Lookup, args.callers, resolved.tasks).run(contender).await?;
    let insert_alone = load(Benchmark::InsertAlone, 1, alone).run(contender).await?;
    Ok(vec![
        (names.insert[0], insert.per_s),
        (names.insert[1], insert.percentile_us(50.0)),
        (names.insert[2], insert.percentile_us(99.0)),
        (names.insert_alone[0], insert_alone.percentile_us(50.0)),
        (names.insert_alone[1], insert_alone.percentile_us(99.0)),
        (names.lookup[0], lookup.per_s),
        (names.lookup[1], lookup.percentile_us(50.0)),
    ])
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Benchmark {
    Insert,
    InsertAlone,
    /// Looks up keys that were inserted in the same round.
    Lookup,
}

#[derive(Clone, Copy)]
struct Load {
    what: Benchmark,
    callers: u32,
    operations: u64,
    value_bytes: usize,
    round: u32,
}

/// The measurements of all callers together.
struct Measured {
    per_s: f64,
    latencies: Latencies,
}

impl Measured {
    fn percentile_us(&self, percent: f64) -> f64 {
        self.latencies.percentile(percent).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
    }
}

impl Load {
    async fn run(self, contender: &Contender<'_>) -> anyhow::Result<Measured> {
        let mut sessions = Vec::new();
        for _ in 0..self.callers {
            sessions.push(contender.session().await?);
        }
        let value: Arc<[u8]> = vec![b'v'; self.value_bytes].into();
        let start = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for (caller, session) in (0_u64..).zip(sessions) {
            callers.spawn(self.call(caller, session, Arc::clone(&value)));
        }
        let mut latencies = Latencies::default();
        while let Some(called) = callers.join_next().await {
            latencies.extend(&called??);
        }
        let per_s = latencies.calls() as f64 / start.elapsed().as_secs_f64();
        Ok(Measured { per_s, latencies })
    }

    async fn call(
        self,
        caller: u64,
        mut session: Session,
        value: Arc<[u8]>,
    ) -> anyhow::Result<Latencies> {
        let mut latencies = Latencies::default();
        for number in (caller..self.operations).step_by(self.callers as usize) {
            let group = if self.what == Benchmark::InsertAlone { "alone" } else { "all" };
            let key = format!("bench-{group}-{}-{number}", self.round).into_bytes();
            let start = Instant::now();
            if self.what == Benchmark::Lookup {
                let bytes = session.lookup(&key).await?;
                anyhow::ensure!(bytes == self.value_bytes, "a value of {bytes} bytes came back");
            } else {
                session.insert(&key, &value).await?;
            }
            latencies.record(start.elapsed());
        }
        Ok(latencies)
    }
}
