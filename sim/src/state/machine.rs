//! One simulated machine: a node, its disk, and a model of its executor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use node::{Input, Node};
use proto::work::{Captured, Granted, Launch, Outcome, Stay, Stored};
use proto::{Attempt, Incarnation, JobId, ObjectId, Span, TaskId, Time, limits, wire};

use super::clock::{Clock, TRUE_PACE};
use super::disk::{Disk, FlippedRecord};
use super::expected::{KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_POISON, notice_ns};
use super::script::Script;

/// The pause of a machine by its user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause {
    pub(crate) is_asked: bool,
    /// The node has answered: from then on it starts nothing.
    pub(crate) holds: bool,
}

/// The slots of an attempt: none for a no-op that writes nothing.
pub(crate) fn cpus_of(launch: &Launch) -> u32 {
    let noop = matches!(launch.spec.body, Some(wire::spec::Body::Noop(_)));
    if noop && !launch.settings.real_data { 0 } else { launch.spec.cpus.max(1) }
}

/// An attempt in a slot.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub slot: u32,
    pub cpus: u32,
    /// It kills its node.
    pub poison: bool,
    /// Its command gets a signal before an end, and has not got it.
    pub awaits_signal: bool,
    /// It ends only when it is killed.
    pub hangs: bool,
    pub outcome: Outcome,
    pub objects: Vec<(ObjectId, u64)>,
    pub stays: Vec<(ObjectId, Stay)>,
    /// Of a task that commits turns.
    pub script: Option<Box<Script>>,
    pub granted: Option<Box<Granted>>,
}

/// The kind of death of a machine at its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingCrash {
    /// The process dies; its writes remain.
    Crash,
    /// Unsynced writes are lost.
    PowerCut,
    /// The process ends itself because the cluster declared it failed.
    Fenced,
    /// An orderly stop.
    Stopped,
}

/// The commits of one unsynced batch. A power cut may undo them.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub seq: u64,
    pub commits: Vec<(TaskId, Attempt)>,
    pub turns: Vec<(TaskId, Attempt, u64)>,
    pub ended: Vec<JobId>,
    /// Jobs that this node recorded as cancelled before any other node.
    pub removing: Vec<JobId>,
}

#[derive(Debug)]
pub(crate) struct Machine {
    /// `None` while it is down.
    pub node: Option<Node>,
    pub disk: Disk,
    /// The store number. Each disk has another one.
    pub store: u64,
    /// The number passed to its node. A new disk knows no earlier numbers.
    pub incarnation: u32,
    /// The number of its processes so far.
    pub life: u32,
    /// It never returns.
    pub is_lost: bool,
    /// Its last process reported too few copies of some data on this disk.
    pub lacked_copies: bool,
    /// It joined later, or its first disk was replaced.
    pub is_late: bool,
    /// How often it discarded its records.
    pub renewals: u32,
    /// The previous disk and its number. The map may still name it.
    pub put_aside: Option<(u64, Disk)>,
    pub flipped: Option<FlippedRecord>,
    /// It left the cluster in order.
    pub has_left: bool,
    pub slots: u32,
    pub inbox: VecDeque<Input>,
    pub step_scheduled: bool,
    pub timer_at: Option<Time>,
    pub timer_queued: bool,
    pub paused_until: Time,
    pub clock: Clock,
    /// The pace of its clock, in thousandths of true time.
    pub pace: u64,
    /// The factor for the times of its steps and launches.
    pub slowness: u64,
    /// The factor for the times of its syncs, steps and packets.
    pub slow_down: u64,
    pub running: BTreeMap<(TaskId, Attempt), Running>,
    /// The parts of gangs that have begun and not ended, as its executor was told.
    pub parts: BTreeSet<(TaskId, Attempt)>,
    pub(crate) pause: Pause,
    /// Before its last step its node knew that it is drained.
    pub(crate) knows_of_drain: bool,
    /// The contents of its object store. Files survive both a crash and a power cut.
    pub objects: BTreeMap<ObjectId, u64>,
    /// Objects that are copies in memory only.
    pub in_memory: BTreeSet<ObjectId>,
    /// Jobs with printed output of tasks on this machine.
    pub printed: BTreeSet<JobId>,
    /// The attributes in file names: copies of other nodes' objects, and the stay of all other
    /// files.
    pub copies: BTreeSet<ObjectId>,
    pub stays: BTreeMap<ObjectId, Stay>,
    pub pending_crash: Option<PendingCrash>,
    /// Its last incarnation, and the end of that as far as the next one can know.
    pub former: (Incarnation, wire::LifeEnd),
    /// Attempts of other homes that the process was ordered to drop.
    pub dismissed: BTreeSet<(TaskId, Attempt)>,
    /// Launches that were decided before a dismissal, and when.
    pub decided: BTreeMap<(TaskId, Attempt), Time>,
    pub unsynced: Vec<Unsynced>,
    /// The last batch of this incarnation, and whether a sync runs.
    pub last_seq: u64,
    pub syncing: bool,
    /// The number of started syncs.
    pub syncs: u64,
    pub launches: u64,
    pub packets_sent: u64,
    /// Packets with membership messages.
    pub membership_sent: u64,
}

impl Machine {
    /// Replaces the disk by an empty one.
    pub(crate) fn change_disk(&mut self, store: u64) {
        let store_before = std::mem::replace(&mut self.store, store);
        self.put_aside = Some((store_before, std::mem::take(&mut self.disk)));
        self.unsynced.clear();
        self.flipped = None;
    }

    /// The disk with this store number, as far as it is still stored.
    pub(crate) fn disk_of(&self, store: u64) -> &Disk {
        match &self.put_aside {
            Some((before, disk)) if *before == store && self.store != store => disk,
            _ => &self.disk,
        }
    }

    pub(crate) fn new(slots: u32, slowness: u64) -> Self {
        Self {
            node: None,
            disk: Disk::default(),
            store: 1,
            incarnation: 0,
            former: (Incarnation(0), wire::LifeEnd::LifeDied),
            life: 0,
            is_lost: false,
            lacked_copies: false,
            is_late: false,
            renewals: 0,
            put_aside: None,
            flipped: None,
            has_left: false,
            slots,
            inbox: VecDeque::new(),
            step_scheduled: false,
            timer_at: None,
            timer_queued: false,
            paused_until: Time::ZERO,
            clock: Clock::new(Time::ZERO, Span::ZERO, TRUE_PACE),
            pace: TRUE_PACE,
            slowness,
            slow_down: 1,
            running: BTreeMap::new(),
            parts: BTreeSet::new(),
            pause: Pause::default(),
            knows_of_drain: false,
            objects: BTreeMap::new(),
            printed: BTreeSet::new(),
            copies: BTreeSet::new(),
            stays: BTreeMap::new(),
            in_memory: BTreeSet::new(),
            pending_crash: None,
            dismissed: BTreeSet::new(),
            decided: BTreeMap::new(),
            unsynced: Vec::new(),
            last_seq: 0,
            syncing: false,
            syncs: 0,
            launches: 0,
            packets_sent: 0,
            membership_sent: 0,
        }
    }
    pub(crate) fn is_up(&self) -> bool {
        self.node.is_some()
    }
    /// True if it runs or will run again.
    pub(crate) fn may_run(&self) -> bool {
        !self.is_lost && !self.has_left
    }
    pub(crate) fn local(&self, now: Time) -> Time {
        self.clock.shows(now)
    }
    /// Stores a fetched object. A small copy remains in memory, but a permanent take-over does not.
    /// `for_good`: the stay of a permanent take-over.
    pub(crate) fn take(&mut self, object: ObjectId, size_bytes: u64, for_good: Option<Stay>) {
        let is_new = self.objects.insert(object, size_bytes).is_none();
        if let Some(stay) = for_good {
            self.in_memory.remove(&object);
            self.copies.remove(&object);
            self.stays.insert(object, stay);
        } else if is_new && size_bytes <= limits::SMALL_OBJECT_BYTES {
            self.in_memory.insert(object);
        } else if is_new {
            self.copies.insert(object);
        }
    }
    /// Stores the outputs of an attempt that ended here.
    pub(crate) fn made(&mut self, objects: Vec<(ObjectId, u64)>, stays: Vec<(ObjectId, Stay)>) {
        for (object, size_bytes) in objects {
            self.objects.insert(object, size_bytes);
            self.in_memory.remove(&object);
            self.copies.remove(&object);
        }
        self.stays.extend(stays);
    }
    pub(crate) fn drop_object(&mut self, object: &ObjectId) {
        self.objects.remove(object);
        self.in_memory.remove(object);
        self.copies.remove(object);
        self.stays.remove(object);
    }
    /// Like [`Self::drop_object`], for all objects that match.
    pub(crate) fn drop_objects(&mut self, is_meant: impl Fn(&ObjectId, u64) -> bool) {
        let meant = self.objects.iter().filter(|&(object, &bytes)| is_meant(object, bytes));
        let gone: Vec<ObjectId> = meant.map(|(&object, _)| object).collect();
        gone.iter().for_each(|object| self.drop_object(object));
    }
    /// The files that the next process finds.
    pub(crate) fn stored(&self, is_file: impl Fn(&ObjectId) -> bool) -> Vec<Stored> {
        let files = self.objects.iter().filter(|(object, _)| is_file(object));
        let stored = |(&object, &size_bytes): (&ObjectId, &u64)| Stored {
            object,
            size_bytes,
            stay: self.stays.get(&object).copied().unwrap_or_default(),
            copy: self.copies.contains(&object),
        };
        files.map(stored).collect()
    }
    /// Discards everything that ends with the process.
    pub(crate) fn forget_process(&mut self) {
        for object in std::mem::take(&mut self.in_memory) {
            self.objects.remove(&object);
        }
        self.node = None;
        self.inbox.clear();
        self.running.clear();
        self.parts.clear();
        self.pause = Pause::default();
        self.dismissed.clear();
        self.decided.clear();
        self.step_scheduled = false;
        self.timer_at = None;
        self.timer_queued = false;
        self.paused_until = Time::ZERO;
        self.pending_crash = None;
        self.last_seq = 0;
        self.syncing = false;
    }
}

/// The printed output of a successful attempt; some attempts print nothing.
pub(crate) fn printed_by(attempt: Attempt) -> Captured {
    Captured { stdout_bytes: attempt.0 % 5, stderr_bytes: attempt.0 / 5 % 3 }
}

/// The outcome that the executor will report, and the outputs of the attempt.
pub(crate) fn run(launch: &Launch, input_missing: bool) -> Running {
    let fails = input_missing
        || match launch.spec.kind.as_str() {
            KIND_FAILING => true,
            KIND_MENDED => launch.settings.round == 0,
            KIND_FLAKY => (launch.attempt.0 ^ launch.task.local.0).count_ones().is_multiple_of(2),
            _ => false,
        };
    let (outcome, objects) = if fails {
        let error = "exit code 3".to_string();
        (Outcome { error, exit_code: 3, ..Outcome::default() }, Vec::new())
    } else {
        let declared = launch.spec.outputs.iter().map(|output| output.size_bytes);
        let mut sizes: Vec<u64> = declared.collect();
        for (size, &real) in sizes.iter_mut().zip(&launch.output_sizes) {
            *size = real;
        }
        let object = |(output, &size): (usize, &u64)| {
            let (task, attempt) = (launch.task, launch.attempt);
            (ObjectId { task, attempt, output: output as u32 }, size)
        };
        let objects = sizes.iter().enumerate().map(object).collect();
        let captured = printed_by(launch.attempt);
        (Outcome { output_sizes: sizes, captured, ..Outcome::default() }, objects)
    };
    let poison = launch.spec.kind == KIND_POISON;
    let is_upload = matches!(launch.spec.body, Some(wire::spec::Body::Upload(_)));
    let stay = |&(object, _): &(ObjectId, u64)| {
        let output = &launch.spec.outputs[object.output as usize];
        (object, Stay::of_output(output, is_upload))
    };
    let stays = objects.iter().map(stay).collect();
    let (slot, cpus) = (launch.slot, cpus_of(launch));
    let granted = launch.granted.clone();
    let awaits_signal = notice_ns(&launch.spec).is_some();
    Running {
        slot,
        cpus,
        poison,
        awaits_signal,
        hangs: false,
        outcome,
        objects,
        stays,
        script: None,
        granted,
    }
}
