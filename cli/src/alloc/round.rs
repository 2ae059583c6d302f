//! One round of an owner, with real keys and real commands.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use allocation::backend::{Place, job_script, node_script};
use allocation::{Effect, Input, Lease, Owner, Submission, System, keys};
use client::{Cas, Client, ClientError};
use verb::errors::Failure;
use verb::units::now_ns;

use crate::alloc::records::Records;
use crate::alloc::{calls, demand};

pub(super) fn now_ms() -> u64 {
    now_ns() / 1_000_000
}

/// The identity of an owner.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) name: String,
    pub(super) incarnation: u32,
}

/// The site of an owner, and its ways to the cluster.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) system: System,
    identity: Identity,
    client: Client,
    records: Records,
    owner: Owner,
    program: PathBuf,
    dir: PathBuf,
}

impl Site {
    pub(super) fn new(
        client: &Client,
        dir: &Path,
        system: System,
        identity: Identity,
    ) -> Result<Self, Failure> {
        let records = Records::new(client)?;
        let cluster = cluster_name(client);
        let owner = Owner::new(system, &identity.name, identity.incarnation, &cluster);
        let (client, dir) = (client.clone(), dir.to_owned());
        Ok(Self { system, identity, client, records, owner, program: program()?, dir })
    }

    pub(super) fn holds_lease(&self) -> bool {
        self.owner.holds_lease()
    }

    /// Whether the batch system has a queue, and no other owner.
    pub(super) async fn is_needed(&self) -> Result<bool, Failure> {
        if !self.records.has_queue_of(self.system).await? {
            return Ok(false);
        }
        let lease = self.records.lease(self.system).await?.unwrap_or_default();
        let Identity { name, incarnation } = &self.identity;
        Ok(!lease.is_valid(now_ms()) || lease.is_of(name, *incarnation))
    }

    /// One round. `log` gets what it does.
    pub(super) async fn round(&mut self, log: &mut (dyn FnMut(&str) + Send)) {
        let mut input = Input::Begin(demand::of(&self.client).await);
        let mut effects = Vec::new();
        loop {
            self.owner.handle(now_ms(), input, &mut effects);
            let mut next = None;
            for effect in effects.drain(..) {
                match effect {
                    Effect::Log(line) => log(&line),
                    Effect::End => return,
                    other => next = Some(other),
                }
            }
            let Some(effect) = next else { return };
            input = self.carry_out(effect).await;
        }
    }

    async fn carry_out(&self, effect: Effect) -> Input {
        let kv = self.records.kv();
        let failed = |error: ClientError| Input::Failed(error.to_string());
        match effect {
            Effect::Read { key } => match kv.lookup(key.as_bytes()).await {
                Ok(value) => Input::Value(value.map(|value| value.bytes.to_vec())),
                Err(error) => failed(error),
            },
            Effect::Swap { key, expected, value } => {
                match kv.cas(key.as_bytes(), expected.as_deref(), &value).await {
                    Ok(Cas::Swapped { .. }) => Input::Written,
                    Ok(Cas::Conflict { .. }) => Input::Conflict,
                    Err(error) => failed(error),
                }
            }
            Effect::Remove { key } => {
                let number = key.rsplit_once("/a/").and_then(|(_, number)| number.parse().ok());
                let queue = key.strip_prefix("alloc/").and_then(|key| key.split('/').next());
                if let Some((number, queue)) = number.zip(queue) {
                    let _ = std::fs::remove_dir_all(folder(&self.dir, queue, number));
                }
                match kv.remove(key.as_bytes()).await {
                    Ok(_) => Input::Written,
                    Err(error) => failed(error),
                }
            }
            Effect::List => self.list().await,
            Effect::Submit(submission) => self.submit(&submission).await,
            Effect::Log(_) | Effect::End => Input::Failed("it needs no answer".to_owned()),
        }
    }

    async fn list(&self) -> Input {
        match calls::run(&self.system.list()).await {
            Ok(ran) if ran.is_ok => match self.system.rows(&ran.stdout) {
                Ok(rows) => Input::Listed(rows),
                Err(why) => Input::Failed(why),
            },
            Ok(ran) => Input::Failed(ran.why()),
            Err(why) => Input::Failed(why),
        }
    }

    async fn submit(&self, submission: &Submission) -> Input {
        let place = place(&self.program, &self.dir, &submission.queue.name, submission.number);
        if let Err(error) = write_scripts(submission, &place) {
            return Input::Refused(format!("cannot write {}: {error}", place.folder));
        }
        match calls::run(&self.system.submit(submission, &place)).await {
            Ok(ran) if ran.is_ok => match self.system.job_id(&ran.stdout) {
                Ok(job) => Input::Submitted(job),
                Err(why) => Input::Failed(why),
            },
            Ok(ran) => Input::Refused(ran.why()),
            Err(why) => Input::Failed(why),
        }
    }

    /// Ends the lease, so that another owner need not wait.
    pub(super) async fn give_up_lease(&self) -> Result<(), Failure> {
        let Identity { name, incarnation } = &self.identity;
        let over = |lease: Option<&Lease>| {
            let own = lease.filter(|lease| lease.is_of(name, *incarnation));
            Ok(own.map(|lease| Lease { until_ms: 0, ..lease.clone() }))
        };
        self.records.change(&keys::owner(self.system), over).await.map(drop)
    }
}

/// This program, for batch jobs.
pub(super) fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::lost(format!("this program has no path: {error}")))
}

/// A short name of the cluster, for the names of batch jobs.
pub(super) fn cluster_name(client: &Client) -> String {
    format!("{:08x}", client.raw().map().cluster >> 32)
}

/// The folder of an allocation, with its scripts and its output.
pub(super) fn folder(dir: &Path, queue: &str, number: u64) -> PathBuf {
    dir.join("alloc").join(queue).join(number.to_string())
}

pub(super) fn place(program: &Path, dir: &Path, queue: &str, number: u64) -> Place {
    Place {
        program: program.display().to_string(),
        directory: verb::path_templates::escape(dir).display().to_string(),
        folder: folder(dir, queue, number).display().to_string(),
    }
}

pub(super) fn write_scripts(submission: &Submission, place: &Place) -> std::io::Result<()> {
    let folder = Path::new(&place.folder);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::write(place.job_script(), job_script(submission, place))?;
    std::fs::write(place.node_script(), node_script(submission, place))
}
