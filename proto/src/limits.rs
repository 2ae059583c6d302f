//! The bounds of Starling, as named constants that all crates use.

use crate::time::Span;

mod copies;
mod door;
mod hosts;
mod logs;
mod open;
mod past;
mod requests;
mod shell;
mod turns;
mod versions;
mod views;
pub use copies::*;
pub use door::*;
pub use hosts::*;
pub use logs::*;
pub use open::*;
pub use past::*;
pub use requests::*;
pub use shell::*;
pub use turns::*;
pub use versions::*;
pub use views::*;

// The map.
/// The number of partitions is a power of two, fixed when the cluster is made.
pub const PARTITIONS_DEFAULT: u32 = 1 << 12;
pub const PARTITIONS_MAX: u32 = 1 << 23;
/// The minimum number of partitions for each expected node.
pub const PARTITIONS_PER_NODE_MIN: u32 = 8;
pub const NODES_MAX: u32 = 1 << 20;
pub const SLOTS_MAX: u32 = 1 << 16;
/// The maximum number of replicas of a partition.
pub const COPIES_MAX: u32 = 5;
/// How often a process may set damaged records aside and restart with the records of other nodes.
pub const STORE_REPLACEMENTS_MAX: u32 = 3;
/// The maximum number of voters.
pub const VOTERS_MAX: usize = 5;
/// The maximum number of commands in one plan, and of learners in the whole cluster.
pub const PLAN_COMMANDS_MAX: usize = 256;
pub const PLAN_LEARNERS_MAX: usize = 256;
/// The maximum number of hand-overs of primaries in one plan, if they only improve the balance.
pub const PLAN_HANDOVERS_MAX: usize = 16;

// The group that agrees on the map.
/// A founding node that is the only voter and has an empty disk waits this long for messages of
/// other nodes.
pub const BOOTSTRAP_TIMEOUT: Span = Span::from_secs(5);
pub const GROUP_HEARTBEAT: Span = Span::from_millis(250);
/// A follower without messages starts an election after this time, or up to twice as long.
pub const GROUP_ELECTION_AFTER: Span = Span::from_secs(1);
/// The maximum election delay after the connection to the leader broke, or before the first leader.
pub const GROUP_ELECTION_SOON: Span = Span::from_millis(150);
/// The maximum time of a term, up to doubled at random, if terms fail because votes sync slowly.
pub const GROUP_ELECTION_SLOW: Span = Span::from_secs(8);
/// The number of entries after which a snapshot replaces the log.
pub const GROUP_LOG_ENTRIES_MAX: u64 = 256;
/// The maximum number of entries in one message, and of proposals in one entry.
pub const GROUP_APPEND_ENTRIES_MAX: usize = 64;
pub const GROUP_ENTRY_COMMANDS_MAX: usize = 1024;
/// The leader repeats a snapshot to a follower no earlier than this.
pub const GROUP_SNAPSHOT_TIMEOUT: Span = Span::from_secs(2);
/// The leader gives up a new voter that has not caught up after this time.
pub const GROUP_LEARNER_TIMEOUT: Span = Span::from_secs(10);

// Failure detection.
/// Each node probes one other node per period. Without an answer within the timeout it asks
/// `PROBE_HELPERS` other nodes to probe that node.
pub const PROBE_PERIOD: Span = Span::from_secs(1);
pub const PROBE_TIMEOUT: Span = Span::from_millis(300);
pub const PROBE_HELPERS: usize = 3;
/// A suspect that sends nothing for this long is declared failed; less if its connection broke.
pub const SUSPECT_FOR: Span = Span::from_secs(3);
pub const SUSPECT_LOST_FOR: Span = Span::from_millis(400);
/// A node that was late itself multiplies its timeouts up to this factor.
pub const TIMEOUT_STRETCH_MAX: u64 = 4;
/// Flapping: incarnations shorter than `FLAP_UPTIME_SHORT` count when they end, within
/// `FLAP_WINDOW`. After `FLAP_DEATHS_FREE` of them a node must be up for `FLAP_WAIT_MIN` before the
/// map shows it as up. The wait doubles with each further one up to `FLAP_WAIT_MAX`. This maximum
/// exceeds `FLAP_UPTIME_SHORT`; otherwise a node could flap forever.
pub const FLAP_UPTIME_SHORT: Span = Span::from_secs(10);
pub const FLAP_WINDOW: Span = Span::from_secs(600);
pub const FLAP_DEATHS_FREE: usize = 3;
pub const FLAP_DEATHS_KEPT: usize = 16;
pub const FLAP_WAIT_MIN: Span = Span::from_secs(1);
pub const FLAP_WAIT_MAX: Span = Span::from_secs(16);
const _: () = assert!(FLAP_WAIT_MAX.0 > FLAP_UPTIME_SHORT.0);
/// The interval at which a node repeats proposals that the map does not show.
pub const PROPOSE_AGAIN: Span = Span::from_millis(500);
pub const PROPOSALS_MAX: usize = 4096;

// Slow nodes.
/// A node measures each peer's acknowledgements in windows of this length, with at most
/// `SLOW_SAMPLES_MAX` samples.
pub const SLOW_WINDOW: Span = Span::from_secs(1);
pub const SLOW_SAMPLES_MAX: usize = 32;
/// The maximum number of messages to one peer that await a timed acknowledgement.
pub const SLOW_AWAITED_MAX: usize = 64;
/// A window of a peer is slow if half of its acknowledgements take `SLOW_FACTOR` times as long as
/// those of other peers, and at least `SLOW_ACK_MIN`.
pub const SLOW_FACTOR: u64 = 5;
pub const SLOW_ACK_MIN: Span = Span::from_millis(50);
/// After this number of slow windows without a good one in between, a node reports the peer as
/// slow.
pub const SLOW_WINDOWS: u32 = 5;
/// A slow node is probed once per window, unless a probe younger than this timeout is outstanding.
/// It is well once good answers outnumber late ones by `SLOW_WELL_ANSWERS`. `SLOW_PROBES_LOST_MAX`
/// lost answers in a row reset the count.
pub const SLOW_PROBE_TIMEOUT: Span = Span::from_secs(5);
pub const SLOW_WELL_ANSWERS: u32 = 30;
pub const SLOW_PROBES_LOST_MAX: u32 = 2;
/// The leader declares a node slow, or well, after reports of `SLOW_REPORTS_MIN` other nodes, or of
/// all that can report if they are fewer. A report counts for `SLOW_REPORT_KEPT`.
pub const SLOW_REPORTS_MIN: usize = 2;
pub const SLOW_REPORT_KEPT: Span = Span::from_secs(3);
pub const SLOW_REPORTS_KEPT_MAX: usize = 4096;
pub const MAP_ASK_AGAIN: Span = Span::from_millis(300);
/// The leader sends each change to at most this number of members without a vote. The others
/// receive it from members.
pub const MAP_UPDATES_SENT_MAX: usize = 64;
/// The number of commands that a node keeps for members with an older map.
pub const MAP_COMMANDS_KEPT_MAX: usize = 1024;

// Frames.
/// The largest message that a node decodes, in bytes. It is checked before memory is allocated.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of an object in one piece of a transfer.
pub const PIECE_BYTES: usize = 1 << 20;
/// The maximum number of reliable messages in one packet, and of unacknowledged messages on a link.
pub const PACKET_MESSAGES_MAX: usize = 256;
pub const LINK_WINDOW_MESSAGES: usize = 1024;
/// A packet accepts no further message once it has this many bytes.
pub const PACKET_BYTES_MAX: usize = 2 << 20;
/// Larger messages between nodes are sent in fragments of this size, up to the maximum.
pub const FRAGMENT_BYTES: usize = 2 << 20;
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// A command fails after this number of crashes. From `CRASHES_ALONE_MIN` crashes on, no other task
/// runs beside it.
pub const CRASHES_MAX: u8 = 3;
pub const CRASHES_ALONE_MIN: u8 = CRASHES_MAX - 1;
/// The largest crash limit that a task may set, and the value for no limit.
pub const CRASH_LIMIT_MAX: u32 = 1000;
pub const CRASHES_UNLIMITED: u32 = u32::MAX;
/// A home waits this long after the death of a task's holder before it looks for witnesses. Nodes
/// that die within this span of each other are not witnesses of each other's deaths.
pub const WITNESSES_ASKED_AFTER: Span = Span::from_secs(2);
/// The interval between a home's queries to witnesses, and the time after which it stops them.
pub const WITNESSES_ASKED_INTERVAL: Span = Span::from_millis(500);
pub const WITNESSES_TIMEOUT: Span = Span::from_secs(3);
/// A node that died within this span before counts among the possible witnesses of a death.
pub const DEATHS_TOGETHER: Span = Span::from_secs(20);
/// A task with two deaths counted apart rests up to this long before it starts again. The maximum
/// doubles each time, at most `CRASHED_TASK_BACKOFF_DOUBLINGS_MAX` times.
pub const CRASHED_TASK_BACKOFF: Span = Span::from_secs(2);
pub const CRASHED_TASK_BACKOFF_DOUBLINGS_MAX: usize = 3;
/// The maximum number of witnesses that a home asks.
pub const WITNESSES_MAX: usize = 32;
/// The number of remembered deaths of one task, of earlier incarnations of one node, and of ends of
/// incarnations.
pub const DEATHS_KEPT_MAX: usize = 16;
pub const INCARNATIONS_KEPT_MAX: usize = 4;
pub const INCARNATION_ENDS_KEPT_MAX: usize = 1024;
/// The number of remembered peers without a session, with which only best-effort messages were
/// exchanged.
pub const PEERS_KEPT_MAX: usize = 16;
/// How often a finished task may run again because its outputs are lost, and how often a task may
/// find its inputs lost.
pub const REBUILDS_MAX: u8 = 64;
pub const INPUT_LOSSES_MAX: u8 = 32;
/// The maximum number of messages that are kept after a gap.
pub const LINK_REORDER_MESSAGES_MAX: usize = 1024;
pub const RETRANSMIT_AFTER: Span = Span::from_millis(300);
pub const RETRANSMIT_AFTER_MAX: Span = Span::from_secs(5);
/// The additional delay per peer that a node queries at the same time, since answers are handled
/// one by one.
pub const RETRANSMIT_PER_PEER: Span = Span::from_micros(50);

// Submission.
pub const CHUNK_TASKS_MAX: usize = 4096;
/// The maximum size of one `Children` or `Parents` list in a chunk; longer lists span several
/// chunks.
pub const CHUNK_EDGES_MAX: usize = 32_768;
pub const CHUNK_BYTES_MAX: usize = 4 << 20;
/// The maximum number of unacknowledged chunks of a client per node.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 16;
pub const TASK_SLOTS_MAX: u32 = 1 << 24;
/// Staged chunks of a job without messages from its client are dropped after this.
pub const STAGED_JOB_TTL: Span = Span::from_secs(600);
/// A client retries after this if its request needs a job that is not committed yet.
pub const STAGED_RETRY_AFTER: Span = Span::from_millis(10);
pub const NAME_BYTES_MAX: usize = 1024;
/// The maximum size of one entry of a list of commands, and of all entries that are in memory.
pub const LIST_ENTRY_BYTES_MAX: usize = 128 << 10;
pub const LIST_MEMORY_BYTES_MAX: usize = 64 << 20;
/// The maximum size of one argument of a command (`MAX_ARG_STRLEN` of Linux), and of all together.
pub const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;
pub const ARGUMENTS_BYTES_MAX: usize = 1 << 20;
/// The maximum number of entries of a list that are submitted and not ended.
pub const LIST_ENTRIES_AHEAD_MAX: usize = 8192;
/// The maximum number of ended entries that wait for the output of an earlier one.
pub const LIST_ENTRIES_HELD_MAX: usize = 1 << 16;
/// The maximum size of a line of a job log, and its maximum number of rows.
pub const JOBLOG_LINE_BYTES_MAX: usize = 8 << 20;
pub const JOBLOG_ROWS_MAX: usize = 1 << 26;
/// The maximum size of one task description. A chunk must hold a description and one task.
pub const SPEC_BYTES_MAX: usize = 2 << 20;
/// The maximum size of a workflow file after decompression.
pub const WORKFLOW_BYTES_MAX: u64 = 8 << 30;
/// The maximum size of one line in line-based formats, and of one name or value.
pub const WORKFLOW_LINE_BYTES_MAX: usize = 32 << 20;
pub const WORKFLOW_WORD_BYTES_MAX: usize = 1 << 20;
/// The maximum size of one task in JSON. The reader keeps the whole task in memory.
pub const WORKFLOW_ELEMENT_BYTES_MAX: u64 = 32 << 20;
/// The maximum size of a TOML file. The reader needs several times the text in memory.
pub const WORKFLOW_TOML_BYTES_MAX: u64 = 256 << 20;
/// The nesting depth of subgraphs in a DOT file.
pub const DOT_DEPTH_MAX: usize = 64;
/// The nesting depth of elements in an XML file.
pub const XML_DEPTH_MAX: usize = 256;
/// A workflow in a client's memory. The paper simulates 128M tasks.
pub const GRAPH_TASKS_MAX: usize = 1 << 27;
pub const GRAPH_EDGES_MAX: usize = 1 << 28;
/// A generated workflow that is only computed; its tasks are never stored.
pub const IMPLICIT_TASKS_MAX: u64 = 1 << 36;
/// A workflow for a simulated global scheduler. Some of these compare all ready tasks at each step.
pub const GLOBAL_TASKS_MAX: usize = 1 << 20;

// Credits, hand-over, stealing.
/// The maximum number of edges in one `Credit`. A larger fan-out is sent as several credits, as the
/// link's window permits.
pub const CREDIT_EDGES_MAX: usize = 8192;
/// The maximum number of tasks in one bundle (a push or a grant).
pub const BUNDLE_TASKS_MAX: usize = 8192;
pub const COMPLETIONS_MAX: usize = 1024;
/// The number of nodes that a thief probes first is at most this. It halves with each failure, down
/// to the minimum.
pub const STEAL_NEIGHBOURS_MAX: usize = 32;
pub const STEAL_NEIGHBOURS_MIN: usize = 4;
/// The largest number of neighbours that a user may set.
pub const STEAL_NEIGHBOURS_SET_MAX: u32 = 4096;
/// The longest wait or interval that a user may set.
pub const TUNED_SPAN_MAX: Span = Span::from_secs(86_400);
/// The shape parameters of the gamma distribution of assumed task durations.
pub const LENGTH_SHAPE_MIN: f64 = 1e-3;
pub const LENGTH_SHAPE_MAX: f64 = 1e6;
/// The default maximum wait of a dedicated task in FLDS (`tt`).
pub const WAIT_MAX_DEFAULT: Span = Span::from_secs(10);
/// Objects of at least this size measure the bandwidth of the sending node. `RATES_KEPT_MAX` bounds
/// the number of nodes with a remembered bandwidth.
pub const RATE_OBJECT_BYTES_MIN: u64 = 64 << 10;
pub const RATES_KEPT_MAX: usize = 4096;
/// The number of measured bandwidths, and of measured task kinds, in an answer about the node.
pub const ESTIMATES_REPORTED_MAX: usize = 64;
/// FLDS counts the tasks that ended within this window, and checks its queue at this interval.
pub const THROUGHPUT_WINDOW: Span = Span::from_secs(10);
pub const MONITOR_INTERVAL: Span = Span::from_millis(100);
/// The maximum number of tasks that a monitor moves from the local to the shared queue in one step.
pub const STEP_SHIFTS_MAX: usize = 4096;
/// ADAPTIVE compares transfers with work over this window. It keeps a policy for at least as long,
/// doubled with each change up to the maximum.
pub const ADAPT_WINDOW: Span = Span::from_secs(2);
pub const ADAPT_DWELL_MAX: Span = Span::from_secs(128);
/// A node sends its load to a peer at most this often. A received load counts for `LOAD_KEPT`.
pub const LOAD_INTERVAL: Span = Span::from_millis(10);
pub const LOAD_KEPT: Span = Span::from_secs(10);
/// The number of remembered peer loads on a node that has not placed tasks with inputs yet.
pub const LOADS_KEPT_IDLE_MAX: usize = 7;
/// The maximum number of copies of one object that placement considers.
pub const PLACEMENT_COPIES_MAX: usize = 8;
/// The default size of the cache for copies of objects from other nodes.
pub const CACHE_BYTES_DEFAULT: u64 = 6 << 30;
/// The maximum number of tasks that a victim examines and keeps while it fills one grant.
pub const STEAL_SCAN_MAX: usize = 1024;
/// The maximum number of tasks per slot that a thief requests while it still has tasks.
pub const STEAL_AHEAD_PER_SLOT: usize = 2;
pub const STEAL_INTERVAL_START: Span = Span::from_millis(1);
/// The steal interval above which a thief becomes dormant until a hint arrives (the paper's
/// schedulers stop).
pub const STEAL_INTERVAL_BOUND: Span = Span::from_millis(1024);
/// The timeout of steal probes and requests.
pub const STEAL_TIMEOUT: Span = Span::from_millis(500);
/// How far the clocks of two nodes may differ, where one judges when the other ends.
pub const CLOCKS_APART_MAX: Span = Span::from_millis(1000);
/// A thief that holds tasks of a submitted but not yet visible job steals nothing for this long.
/// The time grows with the cluster size in units of [`COUNTS_NODES`].
pub const COMMIT_WAIT: Span = Span::from_millis(100);
/// A node with more shared tasks than slots sends hints to peers, with an interval that grows up to
/// the maximum.
pub const HINT_INTERVAL_START: Span = Span::from_millis(2);
pub const HINT_INTERVAL_MAX: Span = Span::from_secs(1);
pub const HINT_PEERS: usize = 2;

// Reports and watchers.
pub const COUNTS_INTERVAL: Span = Span::from_millis(100);
/// In clusters with more nodes than this, a home reports proportionally less often, because one
/// node, the job's home, receives the reports of all nodes.
pub const COUNTS_NODES: usize = 1000;
/// At this interval waiting tasks ask the homes of their missing parents, in turn, at most
/// `RECONCILE_TASKS_MAX` at a time. Every credit found this way was lost, which should never
/// happen.
pub const RECONCILE_INTERVAL: Span = Span::from_secs(10);
pub const RECONCILE_TASKS_MAX: usize = 1024;
/// The number of rounds in a row that may skip a partition because its home changed within the
/// previous interval.
pub const RECONCILE_SKIPS_MAX: u32 = 3;
/// The maximum number of missing parents in the query of one task in one round.
pub const RECONCILE_PARENTS_MAX: usize = 8;
/// A home queries a job without reports for `STALL_AFTER`, and again after the interval, at most
/// `STALL_JOBS_PER_LOOK_MAX` jobs at a time. The job has stalled if no answer reports a running
/// task.
pub const STALL_AFTER: Span = Span::from_secs(30);
pub const STALL_LOOK_INTERVAL: Span = Span::from_secs(10);
pub const STALL_JOBS_PER_LOOK_MAX: usize = 64;
/// A node that misses this number of queries in a row counts as silent.
pub const STALL_SILENT_ROUNDS: u32 = 2;
/// The maximum numbers of records that a home examines for one answer, of parents that it looks up,
/// and of tasks in its query to each holder.
pub const STALL_SCAN_MAX: usize = 1 << 18;
pub const STALL_PARENTS_SCAN_MAX: usize = 64;
pub const STALL_ASKED_PER_HOLDER_MAX: usize = 8;
/// A task that waits for its home to record its start keeps its slot for at most this long.
pub const START_ASK_TIMEOUT: Span = Span::from_secs(1);
/// The wait doubles after each late answer, at most this many times.
pub const START_ASK_DOUBLED_MAX: u32 = 3;
/// After it has lost its slot, the holder repeats the request at this interval, to the present
/// home.
pub const START_ASK_AGAIN: Span = Span::from_secs(5);
/// A part of a gang that waits, is held or is locked lapses unless its leader renews it.
pub const GANG_LAPSE: Span = Span::from_secs(10);
/// The leader of a gang renews the reservations of its parts at this interval.
pub const GANG_RENEW: Span = Span::from_secs(3);
/// Gangs that one node gathers nodes for at the same time.
pub const GANGS_LED_MAX: usize = 4;
/// The nodes of a gang.
pub const GANG_NODES_MAX: u32 = 1024;
/// A message that reached a wrong home is sent again after this delay, or when the map changes. The
/// delay doubles with each failure for that partition, at most `PARKED_RETRY_DOUBLED_MAX` times.
pub const PARKED_RETRY_AFTER: Span = Span::from_millis(50);
pub const PARKED_RETRY_DOUBLED_MAX: u32 = 4;
/// The maximum numbers of edges credited, and of newly visible tasks handled, in one step of a
/// node.
pub const STEP_EDGES_MAX: usize = 65_536;
pub const STEP_TASKS_MAX: usize = 16_384;
/// The maximum numbers of tasks of cancelled jobs ended in one step, and of tasks in one cancel
/// request.
pub const STEP_CANCELS_MAX: usize = 4096;
pub const CANCEL_TASKS_MAX: usize = 4096;
/// The maximum number of attempts launched in one step. No-ops take no slot, so the slots alone do
/// not bound it.
pub const STEP_LAUNCHES_MAX: usize = 256;
/// The maximum number of queue entries removed in one step; most of them may be outdated.
pub const STEP_POPS_MAX: usize = 4096;
/// A failed fetch is repeated after a delay that doubles up to the maximum, at most
/// `FETCH_TRIES_MAX` times.
pub const FETCH_RETRY_START: Span = Span::from_millis(50);
pub const FETCH_RETRY_MAX: Span = Span::from_secs(5);
pub const FETCH_TRIES_MAX: u32 = 64;
/// The number of tries if another node can make the object again.
pub const FETCH_TRIES_REBUILT_MAX: u32 = 8;
/// A node believes that an object is lost after this number of denials by its producer. Before each
/// denial counts, the object's home must have answered that it knows no copy. A leaving node's
/// objects may be known elsewhere only later.
pub const FETCH_ABSENCES_MAX: u32 = 4;
/// The number of tries while a copy is known that may become available.
pub const FETCH_TRIES_COPY_KNOWN_MAX: u32 = 256;
pub const FAILURES_KEPT_PER_PARTITION: usize = 4;
pub const FAILURES_KEPT_PER_JOB: usize = 64;
pub const STDERR_TAIL_BYTES: usize = 2048;
pub const ERROR_BYTES_MAX: usize = 4096;
/// The number of tasks and edge ends of ended chunks that a node keeps in memory for queries.
pub const RETIRED_WEIGHT_MAX: usize = 1 << 16;
/// The same for jobs with tasks that may run again.
pub const KEPT_WEIGHT_MAX: usize = 1 << 20;
/// The maximum numbers of rounds of a job, and of tasks that a retry may name.
pub const ROUNDS_MAX: usize = 1000;
pub const RETRY_TASKS_MAX: usize = 4096;
pub const TASKS_PER_ANSWER_MAX: usize = 4096;
/// The maximum numbers of parents in the explanation of a skipped task, and of bytes of its
/// command.
pub const UNMET_PARENTS_REPORTED_MAX: usize = 4096;
pub const ARGV_SHOWN_BYTES_MAX: usize = 4096;
/// The maximum number of output sizes in a task's state.
pub const TASK_SIZES_REPORTED_MAX: usize = 64;
pub const WATCHERS_MAX: usize = 4096;

// Replicas of partitions.
/// The number and bytes of changes that a replica keeps in memory for replicas that lag.
pub const COPY_RECENT_CHANGES: usize = 256;
pub const COPY_RECENT_BYTES: usize = 1 << 20;
/// The same for all replicas of a node together.
pub const COPY_RECENT_CHANGES_ALL: usize = 1 << 16;
pub const COPY_RECENT_BYTES_ALL: usize = 16 << 20;
/// A snapshot transfer sends pages of this size, one at a time for each replica. One node sends at
/// most `COPIES_FILLING_MAX` snapshots at a time.
pub const COPY_PAGE_BYTES: usize = 256 << 10;
pub const COPIES_FILLING_MAX: usize = 8;
/// The maximum number of queries about replicas that one node keeps until it can answer them.
pub const COPY_ASKS_MAX: usize = 1 << 16;
/// The number of steps waiting for replicas above which a node accepts no further writes.
pub const STEPS_HELD_MAX: usize = 4096;
pub const STEPS_HELD_RETRY: Span = Span::from_millis(100);
/// After its lease requests a primary may answer reads for this long.
pub const LEASE: Span = Span::from_millis(300);
/// The other members promise nothing to another primary for this long after the request. Clocks may
/// differ in speed by a tenth.
pub const LEASE_GIVEN: Span = Span::from_millis(375);

/// A change refused by a replica of a partition that has another primary by now is settled by that
/// primary or by the map. If that takes longer than this, the node restarts, which settles it.
pub const REFUSAL_TIMEOUT: Span = Span::from_secs(5);
/// A node logs at this interval which of its partitions have waited this long for activation.
pub const ACTIVATION_LATE: Span = Span::from_secs(10);

// The key-value store.
pub const KEY_BYTES_MAX: usize = 64 << 10;
pub const VALUE_BYTES_MAX: usize = 8 << 20;
pub const KV_OPS_MAX: usize = 65_536;
/// The number of clients of one partition with remembered batches, and of batches for each.
pub const KV_NUMBERED_CLIENTS_MAX: usize = 128;
pub const KV_NUMBERS_MAX: usize = 16;
/// The share of the memory for keys and values that batch numbers may take. Above it answers are
/// not kept, and a partition remembers fewer clients by the factor `KV_NUMBERED_SCARCE`.
pub const KV_NUMBERS_SHARE: u64 = 8;
pub const KV_NUMBERED_SCARCE: usize = 8;
/// An answer of a numbered batch above this size is not kept; the store remembers only the number.
pub const KV_ANSWER_KEPT_BYTES: usize = 4 << 10;
/// The maximum size of a line of operations as JSON, where any byte of a key or value may be
/// escaped. `KV_LINES_AHEAD_BYTES` bounds such lines read ahead of their answers.
pub const KV_LINE_BYTES_MAX: usize = 6 * (2 * VALUE_BYTES_MAX + KEY_BYTES_MAX) + 1024;
pub const KV_LINES_AHEAD_BYTES: usize = 1 << 20;
/// The number of lookups sent ahead of their answers, which may be long.
pub const KV_LOOKUPS_AHEAD_MAX: usize = 64;
/// Bytes of all values in one batch's answer; the rest of a frame is for keys and framing.
pub const KV_REPLY_BYTES_MAX: usize = 12 << 20;
/// The memory for keys, values and their overhead on one node.
pub const KV_NODE_BYTES_MAX: u64 = 8 << 30;

// Execution.
/// The number of tasks per slot that may fetch inputs before they take a slot. If fetches are
/// longer than `LONG_FETCH`, few share the bandwidth; otherwise many hide the latency.
pub const STAGING_PER_SLOT: usize = 2;
pub const STAGING_PER_SLOT_MAX: usize = 8;
pub const STAGING_MIN: usize = 4;
/// Up to this number of tasks with failed fetches do not count against the tasks being staged.
pub const STALLED_TASKS_MAX: usize = 64;
/// The additional number of tasks per slot with inputs that wait for a free source.
pub const WAITING_PER_SLOT_MAX: usize = 4;
pub const LONG_FETCH: Span = Span::from_millis(10);
/// The maximum time that an idle node waits for a choice of ready tasks if its first fetches are
/// long.
pub const GATHER_MAX: Span = Span::from_millis(100);
/// The number of completions reported to other homes that a node remembers for the next home.
pub const ENDS_REMEMBERED_MAX: usize = 1024;
/// A task with all inputs here that has waited for a slot this long, and for `OFFER_AGAIN_FETCHES`
/// fetch times, returns to its queue.
pub const OFFER_AGAIN_AFTER: Span = Span::from_secs(1);
pub const OFFER_AGAIN_FETCHES: u64 = 4;
/// Inputs are fetched ahead while fewer tasks per slot than this could start at once.
pub const AT_HAND_PER_SLOT_MIN: usize = 4;
pub const AT_HAND_PER_SLOT_MAX: usize = 64;
/// The kernel's bound on one string of an environment (MAX_ARG_STRLEN).
pub const ENVIRONMENT_STRING_BYTES_MAX: usize = 128 << 10;
/// The total size of path lists in all `STARLING_IN_` or `STARLING_OUT_` variables of a command.
pub const ENVIRONMENT_LISTS_BYTES_MAX: usize = 64 << 10;
/// The total size of the texts that replace lists which do not fit into those variables.
pub const ENVIRONMENT_NOTICES_BYTES_MAX: usize = 256 << 10;
pub const OBJECT_BYTES_MAX_DEFAULT: u64 = 1 << 40;
/// Between SIGTERM and SIGKILL of a command that is to end.
pub const KILL_GRACE: Span = Span::from_secs(2);
/// How long a node waits for its own stop before it counts a command as failed. For a command that
/// was not ended by a signal, the maximum is also this share of its running time.
pub const STOP_WAIT_MAX: Span = Span::from_secs(1);
pub const STOP_WAIT_SHARE: u32 = 8;
/// The maximum size of the arguments of a call in its task.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 10;
/// A worker process without calls, or the process that forks such workers, ends after this time.
pub const WORKER_IDLE_TIME: Span = Span::from_secs(60);
/// While a node waits for a command, it queries a silent spawner at this interval.
pub const SPAWNER_PROBE_INTERVAL: Span = Span::from_secs(1);
/// A spawner that answers no query for this long hangs, and the node replaces it.
pub const SPAWNER_TIMEOUT: Span = Span::from_secs(10);
/// The time that a spawner has to end its commands at its own stop.
pub const SPAWNER_EXIT_TIMEOUT: Span = Span::from_secs(10);
/// The interval at which a node checks that its state directory is still the one that it has
/// locked.
pub const STATE_CHECK_INTERVAL: Span = Span::from_secs(1);
/// The number of failed checks in a row after which the state directory counts as removed.
pub const STATE_GONE_CHECKS: u32 = 2;

// Objects in the core.
/// Nodes report copies of objects of at least this size to the home of the producers.
pub const COPY_REPORTED_BYTES_MIN: u64 = 256 << 10;
/// The maximum numbers of objects with known copies at one home, and of copies of each.
pub const LOCATED_OBJECTS_MAX: usize = 1 << 16;
pub const COPIES_PER_OBJECT_MAX: usize = 128;
/// The maximum number of simultaneous downloads of one object from one source; further readers
/// wait.
pub const DOWNLOADS_PER_OBJECT_SOURCE_MAX: usize = 2;
/// The same for all objects of one home together.
pub const DOWNLOADS_PER_SOURCE_MAX: usize = 3;
/// The maximum number of wanted objects that a home examines when a source becomes free.
pub const LOCATED_WANTED_SCAN_MAX: usize = 64;
pub const READERS_WAITING_PER_OBJECT_MAX: usize = 1024;
/// A node that gets no answer about an object's location asks the producing node after this.
pub const LOCATE_TIMEOUT: Span = Span::from_secs(2);
/// The timeout grows with the transfer time of the object by this factor, up to
/// `LOCATE_TIMEOUT_MAX`, because readers queue for a source.
pub const LOCATE_MOVES: u64 = 4;
/// If the home has announced a later answer, the node repeats its query this many times before it
/// asks the producing node.
pub const LOCATE_WAITS: u32 = 8;
pub const LOCATE_TIMEOUT_MAX: Span = Span::from_secs(300);
/// The maximum number of copies named to the node that a task is sent to.
pub const COPIES_NAMED_MAX: usize = 8;
/// A full store without active tasks waits this long for readers on other nodes to free space.
pub const STORE_FULL_TIMEOUT: Span = Span::from_secs(10);
/// If the next task does not fit into the full store, later tasks may overtake it for this long or
/// `STORE_BYPASSES_MIN` times, whichever takes longer. Then they wait.
pub const STORE_BYPASS_TIME: Span = Span::from_secs(10);
pub const STORE_BYPASSES_MIN: u32 = 16;
/// The maximum number of tasks without space that one step skips.
pub const STORE_BYPASS_SCAN_MAX: usize = 16;
/// The number of tasks without space that a node has offered to other nodes and remembers. It
/// offers each task once.
pub const OFFERED_TASKS_MAX: usize = 1024;
/// The maximum number of objects of ended jobs that one step frees.
pub const STEP_EVICTIONS_MAX: usize = 1024;
/// The maximum number of objects in one message about copies or readers.
pub const OBJECTS_PER_MESSAGE_MAX: usize = 4096;
/// The maximum number of attempts with outputs that a leaving node transfers at a time. It offers
/// each to one node `HANDOVER_TRIES_MAX` times before the next one. Nodes without space are asked
/// again after `HANDOVER_PAUSE`.
pub const HANDOVERS_AT_A_TIME_MAX: usize = 256;
pub const HANDOVER_TRIES_MAX: u32 = 4;
pub const HANDOVER_PAUSE: Span = Span::from_secs(2);
/// The maximum number of tasks at a time that wait for copies of their outputs before they end.
/// Further tasks keep their slots until it is their turn.
pub const COPIES_FIRST_MAX: usize = 256;
/// Grace period before a lost copy of an output is made elsewhere, in case the failed node returns
/// with its disk. Nodes that reported no space are asked again after the same delay, doubled at
/// most `COPY_DOUBLINGS_MAX` times.
pub const COPY_RETURN_TIMEOUT: Span = Span::from_secs(10);
pub const COPY_DOUBLINGS_MAX: u32 = 6;
/// The maximum number and minimum size of a ready task's inputs by which its queue indexes it.
pub const INDEXED_INPUTS_MAX: usize = 16;
pub const INDEXED_INPUT_BYTES_MIN: u64 = 1024;
/// Inputs of a task with at least this number of input slots are fetched as they are made, if
/// smaller than `COPY_REPORTED_BYTES_MIN`. The other constants bound these fetches and their queue.
pub const WIDE_FAN_IN_SLOTS_MIN: u32 = 64;
pub const FETCHES_AHEAD_IN_FLIGHT_MAX: usize = 32;
pub const FETCHES_AHEAD_WAITING_MAX: usize = 1 << 20;

const _: () = assert!(PARTITIONS_DEFAULT.is_power_of_two());
const _: () = assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX);
const _: () = assert!(CHUNK_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(SPEC_BYTES_MAX < CHUNK_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(STEP_INPUTS_UNWEIGHED * FRAME_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(STEP_INPUT_BYTES + FRAME_BYTES_MAX < MESSAGE_BYTES_MAX / 2);
const _: () = assert!(PACKET_BYTES_MAX + FRAGMENT_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(FRAGMENT_BYTES * LINK_WINDOW_MESSAGES > MESSAGE_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX <= KV_REPLY_BYTES_MAX);
const _: () = assert!(KV_REPLY_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PIECE_BYTES < FRAME_BYTES_MAX);
const _: () =
    assert!(SMALL_OBJECTS_FRAME_BYTES + SMALL_OBJECT_BYTES as usize <= FRAME_BYTES_MAX / 2);
const _: () = assert!(STEAL_INTERVAL_START.0 < STEAL_INTERVAL_BOUND.0);
