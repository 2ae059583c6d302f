//! One simulated machine: a node, its disk, and a model of its executor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use node::{Input, Node};
use proto::work::{Captured, Launch, Outcome, Stay, Stored};
use proto::{Attempt, Incarnation, JobId, ObjectId, Span, TaskId, Time, limits, wire};

use crate::checkers::bound::cpus_of;
use crate::clock::{Clock, TRUE_PACE};
use crate::disk::Disk;
use crate::disk_faults::FlippedRecord;
use crate::expected::{KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_POISON};

/// An attempt in a slot.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    pub slot: u32,
    pub cpus: u32,
    /// It kills its node.
    pub poison: bool,
    pub outcome: Outcome,
    pub objects: Vec<(ObjectId, u64)>,
    pub stays: Vec<(ObjectId, Stay)>,
}

/// How a machine will die at its next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingCrash {
    /// The process dies; what was written stays.
    Crash,
    /// What was not synced is gone.
    PowerCut,
    /// It ends by itself, as it was told that it is taken for dead.
    Fenced,
    /// It was told to stop.
    Stopped,
}

/// What a power cut may take back: the commits of one batch that is not synced yet.
#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub seq: u64,
    pub commits: Vec<(TaskId, Attempt)>,
    pub ended: Vec<JobId>,
    /// Jobs that it was the first to call cancelled.
    pub removing: Vec<JobId>,
}

#[derive(Debug)]
pub(crate) struct Machine {
    /// `None` while it is down.
    pub node: Option<Node>,
    pub disk: Disk,
    /// Of its disk: another one has another number.
    pub store: u64,
    /// As its node was told; what its disk was made with knows of no earlier ones.
    pub incarnation: u32,
    /// Counts its processes.
    pub life: u32,
    /// It never comes back.
    pub is_lost: bool,
    /// Its last process had said that of what lies here there are too few copies.
    pub lacked_copies: bool,
    /// It was not among the first, or its disk is not the first that it had.
    pub is_late: bool,
    /// How often it gave its records up.
    pub renewals: u32,
    /// The disk that it had before, and its number: the map may not have heard yet.
    pub put_aside: Option<(u64, Disk)>,
    pub flipped: Option<FlippedRecord>,
    /// It has left the cluster as it should.
    pub has_left: bool,
    pub slots: u32,
    pub inbox: VecDeque<Input>,
    pub step_scheduled: bool,
    pub timer_at: Option<Time>,
    pub timer_queued: bool,
    pub paused_until: Time,
    pub clock: Clock,
    /// Of its clock, in thousandths of true time.
    pub pace: u64,
    /// Its steps and launches take this many times as long.
    pub slowness: u64,
    /// Its syncs, its steps and its network take this many times as long.
    pub slow_down: u64,
    pub running: BTreeMap<(TaskId, Attempt), Running>,
    /// What its object store holds; files survive both a crash and a power cut.
    pub objects: BTreeMap<ObjectId, u64>,
    /// Of these, copies that lie in no file.
    pub in_memory: BTreeSet<ObjectId>,
    /// Jobs of which it has what tasks printed.
    pub printed: BTreeSet<JobId>,
    /// As the names of the files say: other copies, and what becomes of all else.
    pub copies: BTreeSet<ObjectId>,
    pub stays: BTreeMap<ObjectId, Stay>,
    pub pending_crash: Option<PendingCrash>,
    /// Its last life, and how that ended as far as the next one can tell.
    pub former: (Incarnation, wire::LifeEnd),
    /// Attempts of other homes that its process was told to let go.
    pub dismissed: BTreeSet<(TaskId, Attempt)>,
    /// Launches that it decided on when they were not dismissed.
    pub decided: BTreeSet<(TaskId, Attempt)>,
    pub unsynced: Vec<Unsynced>,
    /// The last batch of this incarnation, and whether a sync is under way.
    pub last_seq: u64,
    pub syncing: bool,
    /// How many have begun.
    pub syncs: u64,
    pub launches: u64,
    pub packets_sent: u64,
    /// About who is there.
    pub membership_sent: u64,
}

impl Machine {
    /// What was on its disk is there no more.
    pub(crate) fn change_disk(&mut self, store: u64) {
        let store_before = std::mem::replace(&mut self.store, store);
        self.put_aside = Some((store_before, std::mem::take(&mut self.disk)));
        self.unsynced.clear();
        self.flipped = None;
    }

    /// The disk of this number, as far as it is remembered.
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
            objects: BTreeMap::new(),
            printed: BTreeSet::new(),
            copies: BTreeSet::new(),
            stays: BTreeMap::new(),
            in_memory: BTreeSet::new(),
            pending_crash: None,
            dismissed: BTreeSet::new(),
            decided: BTreeSet::new(),
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
    /// It runs, or will again.
    pub(crate) fn may_run(&self) -> bool {
        !self.is_lost && !self.has_left
    }
    pub(crate) fn local(&self, now: Time) -> Time {
        self.clock.shows(now)
    }
    /// An object has come. A small copy stays in memory; what is taken over for good does not.
    /// `for_good`: and what becomes of it.
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
    /// What was made here has come.
    pub(crate) fn made(&mut self, objects: Vec<(ObjectId, u64)>, stays: Vec<(ObjectId, Stay)>) {
        for (object, size_bytes) in objects {
            self.objects.insert(object, size_bytes);
            self.in_memory.remove(&object);
            self.copies.remove(&object);
        }
        self.stays.extend(stays);
    }
    pub(crate) fn let_go(&mut self, object: &ObjectId) {
        self.objects.remove(object);
        self.in_memory.remove(object);
        self.copies.remove(object);
        self.stays.remove(object);
    }
    /// As [`Self::let_go`], of all that are meant.
    pub(crate) fn let_go_of(&mut self, is_meant: impl Fn(&ObjectId, u64) -> bool) {
        let meant = self.objects.iter().filter(|&(object, &bytes)| is_meant(object, bytes));
        let gone: Vec<ObjectId> = meant.map(|(&object, _)| object).collect();
        gone.iter().for_each(|object| self.let_go(object));
    }
    /// What the next process finds.
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
    /// What dies with the process.
    pub(crate) fn forget_process(&mut self) {
        for object in std::mem::take(&mut self.in_memory) {
            self.objects.remove(&object);
        }
        self.node = None;
        self.inbox.clear();
        self.running.clear();
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

/// What an attempt that ends well prints: some print nothing.
pub(crate) fn printed_by(attempt: Attempt) -> Captured {
    Captured { stdout_bytes: attempt.0 % 5, stderr_bytes: attempt.0 / 5 % 3 }
}

/// What the executor will report, and what the attempt leaves in the object store.
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
    Running { slot: launch.slot, cpus: cpus_of(launch), poison, outcome, objects, stays }
}
