//! Variables of the job, as calls see them. A worker has a connection of its own for them, which
//! starts with the first use.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use client::{Client, Variable};
use proto::JobId;
use tokio::runtime::Runtime;

use crate::{Error, Result};

/// A variable that the calls of a job share. Its rule decides which of two values stays.
#[derive(Clone, Debug)]
pub struct Var {
    name: String,
    job: Arc<OfJob>,
}

/// The connection of this process.
struct Connection {
    runtime: Runtime,
    client: Client,
    jobs: HashMap<u64, Arc<OfJob>>,
}

/// The variables of one job.
#[derive(Debug)]
struct OfJob {
    job: JobId,
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Seen {
    values: Option<Vec<Variable>>,
    /// No more values come.
    lost: Option<Error>,
}

static CONNECTION: Mutex<Option<Connection>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Var {
    pub(crate) fn of_job(job: u64, name: &str) -> Result<Self> {
        let of_job = {
            let mut connection = lock(&CONNECTION);
            if connection.is_none() {
                *connection = Some(Connection::new()?);
            }
            connection.as_mut().map(|it| it.job(job))
        };
        let of_job = of_job.ok_or(Error::Interrupted)?;
        let var = Self { name: name.to_owned(), job: of_job };
        var.look(|_| ())?;
        Ok(var)
    }

    /// The value that the worker knows; `None`: none was set. It costs no message, and it may be
    /// older than what another call has just set.
    ///
    /// # Errors
    /// The value is no `T`, or no more values come.
    pub fn get<T: FromStr>(&self) -> Result<Option<T>> {
        let parsed = self.look(|variable| {
            let parse = |text: &String| text.parse::<T>().map_err(|_| text.clone());
            variable.value.as_ref().map(parse).transpose()
        })?;
        parsed.map_err(|text| Error::Value {
            what: format!("the variable {}", self.name),
            text: format!("{text} is not of the type {}", std::any::type_name::<T>()),
        })
    }

    /// Sets the variable. The home of the job has the value when this returns; a value that is no
    /// better than the known one changes nothing.
    ///
    /// # Errors
    /// The value does not fit the variable, or its home does not answer.
    pub fn set(&self, value: impl Display) -> Result<()> {
        self.set_with(value, &[])
    }

    /// As [`Self::set`], with bytes that prove the value, such as the solution of that cost.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_with(&self, value: impl Display, witness: &[u8]) -> Result<()> {
        let (client, runtime) = match &*lock(&CONNECTION) {
            Some(connection) => (connection.client.clone(), connection.runtime.handle().clone()),
            None => return Err(Error::Interrupted),
        };
        let value = value.to_string();
        let set = client.set_variable(self.job.job, &self.name, &value, witness.to_vec());
        Ok(runtime.block_on(set)?)
    }

    fn look<T>(&self, see: impl FnOnce(&Variable) -> T) -> Result<T> {
        let mut seen = lock(&self.job.seen);
        while seen.values.is_none() && seen.lost.is_none() {
            seen = self.job.changed.wait(seen).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(lost) = &seen.lost {
            return Err(lost.clone());
        }
        let all = seen.values.as_deref().unwrap_or_default();
        let found = all.iter().find(|variable| variable.name == self.name).ok_or_else(|| {
            Error::Program(format!(
                "the job has no variable '{}': ClusterOptions::variables declares it",
                self.name
            ))
        })?;
        Ok(see(found))
    }
}

impl Connection {
    fn new() -> Result<Self> {
        let dir = std::env::var_os("STARLING_DIR").map(PathBuf::from);
        let dir = dir.ok_or_else(|| {
            Error::Program("the node of this worker did not name its directory".to_owned())
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("variables")
            .enable_all()
            .build()
            .map_err(|error| Error::Program(format!("no thread for variables: {error}")))?;
        let client = runtime.block_on(Client::connect(&dir))?;
        Ok(Self { runtime, client, jobs: HashMap::new() })
    }

    fn job(&mut self, job: u64) -> Arc<OfJob> {
        // Those of jobs that have ended are not needed any more.
        self.jobs.retain(|_, it| lock(&it.seen).lost.is_none());
        if let Some(found) = self.jobs.get(&job) {
            return Arc::clone(found);
        }
        let of_job =
            Arc::new(OfJob { job: JobId(job), seen: Mutex::default(), changed: Condvar::new() });
        self.jobs.insert(job, Arc::clone(&of_job));
        let (client, theirs) = (self.client.clone(), Arc::clone(&of_job));
        self.runtime.spawn(async move {
            let mut watch = client.watch_variables(JobId(job));
            loop {
                let next = watch.next().await;
                let mut seen = lock(&theirs.seen);
                match next {
                    Ok(Some(values)) => seen.values = Some(values),
                    Ok(None) => seen.lost = Some(Error::Program(format!("job {job} has ended"))),
                    Err(error) => seen.lost = Some(error.into()),
                }
                let has_ended = seen.lost.is_some();
                drop(seen);
                theirs.changed.notify_all();
                if has_ended {
                    return;
                }
            }
        });
        of_job
    }
}
