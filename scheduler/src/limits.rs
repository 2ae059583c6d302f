//! The bounds of this crate.

use proto::Span;

/// A home waits this long after the death of a task's holder before it looks for witnesses. Nodes
/// that die within this span of each other are not witnesses of each other's deaths.
pub(crate) const WITNESSES_ASKED_AFTER: Span = Span::from_secs(2);
/// The maximum number of tasks in one bundle (a push or a grant).
pub(crate) const BUNDLE_TASKS_MAX: usize = 8192;
pub(crate) const COMPLETIONS_MAX: usize = 1024;
pub(crate) const COUNTS_INTERVAL: Span = Span::from_millis(100);
/// In clusters with more nodes than this, a home reports proportionally less often, because one
/// node, the job's home, receives the reports of all nodes.
pub(crate) const COUNTS_NODES: usize = 1000;
/// At this interval waiting tasks ask the homes of their missing parents, in turn, at most
/// `RECONCILE_TASKS_MAX` at a time. Every credit found this way was lost, which should never
/// happen.
pub(crate) const RECONCILE_INTERVAL: Span = Span::from_secs(10);
pub(crate) const RECONCILE_TASKS_MAX: usize = 1024;
/// The number of rounds in a row that may skip a partition because its home changed within the
/// previous interval.
pub(crate) const RECONCILE_SKIPS_MAX: u32 = 3;
/// A home queries a job without reports for `STALL_AFTER`, and again after the interval, at most
/// `STALL_JOBS_PER_LOOK_MAX` jobs at a time. The job has stalled if no answer reports a running
/// task.
pub(crate) const STALL_AFTER: Span = Span::from_secs(30);
pub(crate) const STALL_LOOK_INTERVAL: Span = Span::from_secs(10);
pub(crate) const STALL_JOBS_PER_LOOK_MAX: usize = 64;
/// The home of a waiting job asks about the other jobs at this interval, some at a time.
pub(crate) const AFTER_ASK_INTERVAL: Span = Span::from_secs(10);
pub(crate) const AFTER_ASKED_PER_ROUND_MAX: usize = 256;
/// A task that waits for its home to record its start keeps its slot for at most this long.
pub(crate) const START_ASK_TIMEOUT: Span = Span::from_secs(1);
/// A message that reached a wrong home is sent again after this delay, or when the map changes. The
/// delay doubles with each failure for that partition, at most `PARKED_RETRY_DOUBLED_MAX` times.
pub(crate) const PARKED_RETRY_AFTER: Span = Span::from_millis(50);
pub(crate) const PARKED_RETRY_DOUBLED_MAX: u32 = 4;
/// The maximum number of queue entries removed in one step; most of them may be outdated.
pub(crate) const STEP_POPS_MAX: usize = 4096;
/// A failed fetch is repeated after a delay that doubles up to the maximum, at most
/// `FETCH_TRIES_MAX` times.
pub(crate) const FETCH_RETRY_START: Span = Span::from_millis(50);
pub(crate) const FETCH_RETRY_MAX: Span = Span::from_secs(5);
pub(crate) const FETCH_TRIES_MAX: u32 = 64;
/// The number of tries if another node can make the object again.
pub(crate) const FETCH_TRIES_REBUILT_MAX: u32 = 8;
/// A node believes that an object is lost after this number of denials by its producer. Before each
/// denial counts, the object's home must have answered that it knows no copy. A leaving node's
/// objects may be known elsewhere only later.
pub(crate) const FETCH_ABSENCES_MAX: u32 = 4;
/// The number of tasks per slot that may fetch inputs before they take a slot. If fetches are
/// longer than `LONG_FETCH`, few share the bandwidth; otherwise many hide the latency.
pub(crate) const STAGING_PER_SLOT: usize = 2;
pub(crate) const STAGING_PER_SLOT_MAX: usize = 8;
pub(crate) const STAGING_MIN: usize = 4;
/// The additional number of tasks per slot with inputs that wait for a free source.
pub(crate) const WAITING_PER_SLOT_MAX: usize = 4;
pub(crate) const LONG_FETCH: Span = Span::from_millis(10);
/// The maximum time that an idle node waits for a choice of ready tasks if its first fetches are
/// long.
pub(crate) const GATHER_MAX: Span = Span::from_millis(100);
/// Nodes report copies of objects of at least this size to the home of the producers.
pub(crate) const COPY_REPORTED_BYTES_MIN: u64 = 256 << 10;
/// If the home has announced a later answer, the node repeats its query this many times before it
/// asks the producing node.
pub(crate) const LOCATE_WAITS: u32 = 8;
pub(crate) const LOCATE_TIMEOUT_MAX: Span = Span::from_secs(300);
/// A full store without active tasks waits this long for readers on other nodes to free space.
pub(crate) const STORE_FULL_TIMEOUT: Span = Span::from_secs(10);
/// If the next task does not fit into the full store, later tasks may overtake it for this long or
/// `STORE_BYPASSES_MIN` times, whichever takes longer. Then they wait.
pub(crate) const STORE_BYPASS_TIME: Span = Span::from_secs(10);
pub(crate) const STORE_BYPASSES_MIN: u32 = 16;
/// The maximum number of objects of ended jobs that one step frees.
pub(crate) const STEP_EVICTIONS_MAX: usize = 1024;
/// The maximum number of objects in one message about copies or readers.
pub(crate) const OBJECTS_PER_MESSAGE_MAX: usize = 4096;
/// Inputs of a task with at least this number of input slots are fetched as they are made, if
/// smaller than `COPY_REPORTED_BYTES_MIN`. The other constants bound these fetches and their queue.
pub(crate) const WIDE_FAN_IN_SLOTS_MIN: u32 = 64;
pub(crate) const FETCHES_AHEAD_IN_FLIGHT_MAX: usize = 32;
pub(crate) const FETCHES_AHEAD_WAITING_MAX: usize = 1 << 20;
/// The interval between removals while more jobs remain, and between two portions of requests to
/// forget jobs.
pub(crate) const HISTORY_MORE_INTERVAL: Span = Span::from_millis(100);
/// The number of forgotten jobs in one portion of repeated requests.
pub(crate) const FORGOTTEN_PER_BATCH: usize = 50;
/// A node that has only uploads of a job asks whether the job exists if no upload has arrived for
/// this long. A client needs less time to upload the other files and to commit.
pub(crate) const UPLOADS_QUERIED_AFTER: Span = Span::from_secs(24 * 3600);
/// A holder repeats an unanswered turn after this time, and a home an unanswered query for awaited
/// tasks.
pub(crate) const TURN_AGAIN: Span = Span::from_secs(1);
pub(crate) const AWAIT_AGAIN: Span = Span::from_secs(5);
/// Each repetition of a turn, or of a query for awaited tasks, waits twice as long, up to this.
pub(crate) const REPEAT_MAX: Span = Span::from_secs(60);
/// How often a finished task may run again because its outputs are lost, and how often a task may
/// find its inputs lost.
pub(crate) const REBUILDS_MAX: u8 = 64;
pub(crate) const INPUT_LOSSES_MAX: u8 = 32;
/// The number of tasks and edge ends of ended chunks that a node keeps in memory for queries.
pub(crate) const RETIRED_WEIGHT_MAX: usize = 1 << 16;
/// The timeout of steal probes and requests.
pub(crate) const STEAL_TIMEOUT: Span = Span::from_millis(500);
/// A thief that holds tasks of a submitted but not yet visible job steals nothing for this long.
/// The time grows with the cluster size in units of [`COUNTS_NODES`].
pub(crate) const COMMIT_WAIT: Span = Span::from_millis(100);
/// The maximum number of tasks at a time that wait for copies of their outputs before they end.
/// Further tasks keep their slots until it is their turn.
pub(crate) const COPIES_FIRST_MAX: usize = 256;
/// A home sends late edges to the homes of their parents again after this time.
pub(crate) const LATE_EDGES_AGAIN: Span = Span::from_secs(1);
/// The maximum bytes of small values of calls that one part keeps in memory for the clients of its
/// job; and the same again of error texts. Further ones are not kept.
pub(crate) const INLINE_HELD_BYTES_MAX: usize = 64 << 20;
/// Each repetition of late edges, or of a request for weight, waits twice as long. This is the
/// maximum number of doublings.
pub(crate) const REPEAT_DOUBLINGS_MAX: u32 = 6;
