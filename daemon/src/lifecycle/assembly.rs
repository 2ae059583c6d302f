//! The parts of an incarnation: its store, its executor and its limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::{AttemptOutcome, Doorway, Executor, ExecutorConfig};
use node::Input;
use proto::{Incarnation, NodeId, limits};
use scheduler::{Tuning, UNLIMITED_BYTES};
use tokio::sync::mpsc;

use crate::door::Door;
use crate::error::StartError;
use crate::event_loop::inbox::Local;
use crate::lifecycle::instance::{Instance, StateDir};
use crate::nested::NestedCalls;
use crate::objects::functions::StoredFunctions;
use crate::options::NodeOptions;
use crate::rpc::service::Shared;
use crate::store::{RocksStore, StoreError};

/// The share of a node's store for the captured output of all tasks, unless a limit is set.
const CAPTURED_STORE_PERCENT: u64 = 25;

/// The maximum time for which threads of the previous incarnation may keep the store open.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the store. Waits if the previous incarnation still has it open.
pub(crate) fn open_store(state: &StateDir) -> Result<RocksStore, StartError> {
    let start = Instant::now();
    loop {
        match RocksStore::open(state.db()) {
            Err(StoreError::InUse { .. }) if start.elapsed() < STORE_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => {
                let store = opened?.0;
                state.records_are_made()?;
                return Ok(store);
            }
        }
    }
}

pub(crate) fn start_executor(
    options: &NodeOptions,
    state: &StateDir,
    cluster: u64,
    local: mpsc::UnboundedSender<Local>,
) -> Result<(Executor, Arc<Door>), StartError> {
    let (door, lacks) = Door::open(state.path(), local.clone());
    if let Some(reason) = &lacks {
        let node = options.node;
        (options.say)(&format!("node {node}: warning: tasks cannot spawn tasks: {reason}"));
    }
    let door = Arc::new(door);
    let mut config = ExecutorConfig::new(state.path(), options.node, options.slots);
    config.spawner_program.clone_from(&options.spawner_program);
    config.mark = format!("{cluster:016x}-{:016x}", state.store());
    config.say = options.say;
    config.instance_dir = Some(options.dir.clone());
    config.doorway = lacks.is_none().then(|| Arc::clone(&door) as Arc<dyn Doorway>);
    let dir = options.dir.clone();
    config.host = Some(Arc::new(NestedCalls {
        dir: dir.clone(),
        door: Arc::clone(&door),
        results: state.path().join("results"),
        inputs: local.clone(),
        thread: Default::default(),
    }));
    config.functions = Some(Arc::new(StoredFunctions { dir }));
    config.hides_slurm = options.hides_slurm;
    let gpus = resources::Name::pool("gpus").ok();
    let offer = options.offer();
    let pools = offer.iter().flat_map(|offer| offer.pools());
    let of_gpus = pools.filter(|pool| gpus.as_ref().is_some_and(|gpus| gpus.covers(&pool.name)));
    config.gpu_pools = of_gpus.map(|pool| pool.name.to_string()).collect();
    config.pin_refusal = options.pin_refusal();
    config.captured_task_bytes = options.captured.task_bytes.unwrap_or(u64::MAX);
    let ends = Arc::clone(&door);
    let executor = Executor::start(config, move |mut ended| {
        ended.retain_mut(|it| ends.ended(it));
        let (doubted, clear): (Vec<_>, Vec<_>) =
            ended.into_iter().partition(|ended| !ended.doubt.is_zero());
        // If the run loop is gone the ends are not needed: its next incarnation places the tasks
        // again.
        if !clear.is_empty() {
            let _ = local.send(Local::Inputs(clear.into_iter().map(finished).collect()));
        }
        for ended in doubted {
            let _ = local.send(Local::Doubted(ended));
        }
    })?;
    Ok((executor, door))
}

/// Reports an end to the run loop once it is not in doubt any more. If the loop has ended by then,
/// it was told to stop, and so was the command.
pub(crate) fn delay_doubtful_end(local: &mpsc::UnboundedSender<Local>, ended: AttemptOutcome) {
    let local = local.clone();
    tokio::spawn(async move {
        tokio::time::sleep(ended.doubt).await;
        let _ = local.send(Local::Input(finished(ended)));
    });
}

fn finished(ended: AttemptOutcome) -> Input {
    let AttemptOutcome { task, attempt, outcome, .. } = ended;
    Input::Finished { task, attempt, outcome: Box::new(outcome) }
}

/// The limits of the store. Without given limits: the free space of the file system plus the node's
/// own files there, minus a reserve. Captured output gets a share of it.
pub(crate) fn limits_of_store(
    options: &NodeOptions,
    state: &StateDir,
    shared: &Shared,
) -> Result<Tuning, StartError> {
    let system = rustix::fs::statvfs(state.path())
        .map_err(|errno| StartError::io("read", state.path(), errno.into()))?;
    let tuning = options.tuning;
    let (_, own_bytes) = shared.executor.objects().totals();
    let printed_bytes = shared.executor.streams().size_bytes();
    let room_bytes = system.f_bavail.saturating_mul(system.f_frsize).saturating_add(own_bytes);
    let hard_bytes = match tuning.store_hard_bytes {
        UNLIMITED_BYTES => room_bytes / 100 * limits::STORE_HARD_PERCENT,
        told => told,
    };
    let captured_bytes = options.captured.node_bytes.unwrap_or_else(|| {
        // The share does not change with restarts.
        let grown = tuning.store_hard_bytes == UNLIMITED_BYTES;
        let all_bytes = hard_bytes.saturating_add(if grown { printed_bytes } else { 0 });
        all_bytes / 100 * CAPTURED_STORE_PERCENT
    });
    shared.executor.set_captured_room(captured_bytes);
    let soft_bytes = match tuning.store_soft_bytes {
        UNLIMITED_BYTES => hard_bytes / limits::STORE_HARD_PERCENT * limits::STORE_SOFT_PERCENT,
        told => told.min(hard_bytes),
    };
    Ok(Tuning { store_soft_bytes: soft_bytes, store_hard_bytes: hard_bytes, ..tuning })
}

/// The node's address file. Dropping this removes it.
pub(crate) struct AddressRegistration {
    pub(crate) instance: Instance,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// The next incarnation listens at the same address.
    pub(crate) goes_on: bool,
}

impl Drop for AddressRegistration {
    fn drop(&mut self) {
        if !self.goes_on {
            self.instance.remove_address(self.node, self.incarnation);
        }
    }
}
