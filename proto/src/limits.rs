//! Every bound of Starling, named once.

use crate::time::Span;

mod copies;
mod hosts;
mod logs;
mod past;
mod shell;
mod versions;
pub use copies::*;
pub use hosts::*;
pub use logs::*;
pub use past::*;
pub use shell::*;
pub use versions::*;

// The map.
/// Partitions are a power of two, fixed when the cluster is made.
pub const PARTITIONS_DEFAULT: u32 = 1 << 12;
pub const PARTITIONS_MAX: u32 = 1 << 23;
/// At least this many partitions for each expected node.
pub const PARTITIONS_PER_NODE_MIN: u32 = 8;
pub const NODES_MAX: u32 = 1 << 20;
pub const SLOTS_MAX: u32 = 1 << 16;
/// Copies of a partition that may be wanted.
pub const COPIES_MAX: u32 = 5;
/// So often a process gives damaged records up and begins anew with those of others.
pub const STORE_REPLACEMENTS_MAX: u32 = 3;
/// Nodes that agree on the map.
pub const VOTERS_MAX: usize = 5;
/// Commands of one plan, and copies that are being made in the whole cluster at a time.
pub const PLAN_COMMANDS_MAX: usize = 256;
pub const PLAN_LEARNERS_MAX: usize = 256;
/// Homes that one plan hands over only for the sake of balance.
pub const PLAN_HANDOVERS_MAX: usize = 16;

// The group that agrees on the map.
/// A founder that alone has a vote, and nothing on its disk, waits for word of the others so long.
pub const BOOTSTRAP_TIMEOUT: Span = Span::from_secs(5);
pub const GROUP_HEARTBEAT: Span = Span::from_millis(250);
/// A follower that hears nothing begins an election after this, or up to twice as much.
pub const GROUP_ELECTION_AFTER: Span = Span::from_secs(1);
/// When the transport to the leader is seen to break, or nobody has led yet: up to so much.
pub const GROUP_ELECTION_SOON: Span = Span::from_millis(150);
/// A term is given so much, or up to twice that, where terms come to nothing because votes are slow
/// to be synced.
pub const GROUP_ELECTION_SLOW: Span = Span::from_secs(8);
/// Entries after which the log is cut off by a snapshot.
pub const GROUP_LOG_ENTRIES_MAX: u64 = 256;
/// Entries of one message, and proposals that one entry takes.
pub const GROUP_APPEND_ENTRIES_MAX: usize = 64;
pub const GROUP_ENTRY_COMMANDS_MAX: usize = 1024;
/// A snapshot on its way to a follower is not sent again before this.
pub const GROUP_SNAPSHOT_TIMEOUT: Span = Span::from_secs(2);
/// Who is to become a voter and has not caught up by then is given up for now.
pub const GROUP_LEARNER_TIMEOUT: Span = Span::from_secs(10);

// Who is there.
/// Each node probes one other in each period, and waits so long for its answer before it asks
/// others to try.
pub const PROBE_PERIOD: Span = Span::from_secs(1);
pub const PROBE_TIMEOUT: Span = Span::from_millis(300);
pub const PROBE_HELPERS: usize = 3;
/// A suspect that is not heard of for so long is dead; less when its transport broke.
pub const SUSPECT_FOR: Span = Span::from_secs(3);
pub const SUSPECT_LOST_FOR: Span = Span::from_millis(400);
/// A node that was late itself waits up to so many times longer.
pub const TIMEOUT_STRETCH_MAX: u64 = 4;
/// Lives shorter than this are counted when they end, over so long a time. After so many of them a
/// node has to be up for a while before it is taken for alive, twice as long after each further one
/// up to a bound. That bound is longer than a life that counts: else one could flap for ever.
pub const FLAP_UPTIME_SHORT: Span = Span::from_secs(10);
pub const FLAP_WINDOW: Span = Span::from_secs(600);
pub const FLAP_DEATHS_FREE: usize = 3;
pub const FLAP_DEATHS_KEPT: usize = 16;
pub const FLAP_WAIT_MIN: Span = Span::from_secs(1);
pub const FLAP_WAIT_MAX: Span = Span::from_secs(16);
const _: () = assert!(FLAP_WAIT_MAX.0 > FLAP_UPTIME_SHORT.0);
/// A proposal that the map does not show is made again; a newer map is asked for again.
pub const PROPOSE_AGAIN: Span = Span::from_millis(500);
pub const PROPOSALS_MAX: usize = 4096;

// Who is slow.
/// Acknowledgements of each peer are looked at in windows of this length, so many of each.
pub const SLOW_WINDOW: Span = Span::from_secs(1);
pub const SLOW_SAMPLES_MAX: usize = 32;
/// Messages on their way to one peer whose acknowledgements are timed.
pub const SLOW_AWAITED_MAX: usize = 64;
/// A window of a peer is slow when half of its acknowledgements take so many times longer than
/// those of the other peers, and at least this long.
pub const SLOW_FACTOR: u64 = 5;
pub const SLOW_ACK_MIN: Span = Span::from_millis(50);
/// After so many slow windows without a good one a node gives its word that the peer is slow.
pub const SLOW_WINDOWS: u32 = 5;
/// Who is slow is probed once in each window, unless a probe is under way that is younger than
/// this; after so many more good answers than late ones it is well, and after so many in a row that
/// are missing it begins anew.
pub const SLOW_PROBE_TIMEOUT: Span = Span::from_secs(5);
pub const SLOW_WELL_ANSWERS: u32 = 30;
pub const SLOW_PROBES_LOST_MAX: u32 = 2;
/// A node counts as slow, or as well, on the word of so many others where there are as many that
/// can tell; a word counts for so long, and so many are kept.
pub const SLOW_REPORTS_MIN: usize = 2;
pub const SLOW_REPORT_KEPT: Span = Span::from_secs(3);
pub const SLOW_REPORTS_KEPT_MAX: usize = 4096;
pub const MAP_ASK_AGAIN: Span = Span::from_millis(300);
/// Members without a vote that the leader tells of each change; more hear of it from others.
pub const MAP_UPDATES_SENT_MAX: usize = 64;
/// Commands that a node keeps for those whose map is older.
pub const MAP_COMMANDS_KEPT_MAX: usize = 1024;

// Frames.
/// The largest message a node decodes, bytes; checked before memory is taken.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of an object in one piece of a transfer.
pub const PIECE_BYTES: usize = 1 << 20;
/// Reliable messages one packet may carry, and how many may be unacknowledged on a link.
pub const PACKET_MESSAGES_MAX: usize = 256;
pub const LINK_WINDOW_MESSAGES: usize = 1024;
/// A packet takes no further message once it has this many bytes.
pub const PACKET_BYTES_MAX: usize = 2 << 20;
/// Larger messages between nodes travel in fragments of this size, up to the maximum.
pub const FRAGMENT_BYTES: usize = 2 << 20;
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// A command with which what ran it has died so often fails; and from so many deaths on nothing
/// else runs beside it.
pub const CRASHES_MAX: u8 = 3;
pub const CRASHES_ALONE_MIN: u8 = CRASHES_MAX - 1;
/// The largest limit that a task may set for itself, and what stands for none.
pub const CRASH_LIMIT_MAX: u32 = 1000;
pub const CRASHES_UNLIMITED: u32 = u32::MAX;
/// So long after a home has noticed the death of what ran a task it asks others after it: nodes
/// that die within this span of each other are not witnesses of each other's deaths.
pub const WITNESSES_ASKED_AFTER: Span = Span::from_secs(2);
/// How often it asks, and for how long it waits for witnesses.
pub const WITNESSES_ASKED_INTERVAL: Span = Span::from_millis(500);
pub const WITNESSES_TIMEOUT: Span = Span::from_secs(3);
/// Nodes that were seen to die within this span count as nodes that might have lived.
pub const DEATHS_TOGETHER: Span = Span::from_secs(20);
/// A task with two deaths that were counted apart rests for up to so long, and each time for up
/// to twice as long, before it starts again.
pub const CRASHED_TASK_BACKOFF: Span = Span::from_secs(2);
pub const CRASHED_TASK_BACKOFF_DOUBLINGS_MAX: usize = 3;
/// How many other nodes are asked at most.
pub const WITNESSES_MAX: usize = 32;
/// Deaths that are remembered of one task, former lives of one node, and ends of lives.
pub const DEATHS_KEPT_MAX: usize = 16;
pub const INCARNATIONS_KEPT_MAX: usize = 4;
pub const INCARNATION_ENDS_KEPT_MAX: usize = 1024;
/// Peers without a session (only best-effort messages were exchanged) that a node remembers.
pub const PEERS_KEPT_MAX: usize = 16;
/// How often a task that was done is done again because what it made is lost, and how often a
/// task may find inputs lost.
pub const REBUILDS_MAX: u8 = 64;
pub const INPUT_LOSSES_MAX: u8 = 32;
/// Messages that arrived ahead of a gap and are kept.
pub const LINK_REORDER_MESSAGES_MAX: usize = 1024;
pub const RETRANSMIT_AFTER: Span = Span::from_millis(300);
pub const RETRANSMIT_AFTER_MAX: Span = Span::from_secs(5);
/// And so much longer for each peer that is asked at the same time: answers are taken one by one.
pub const RETRANSMIT_PER_PEER: Span = Span::from_micros(50);

// Submission.
pub const CHUNK_TASKS_MAX: usize = 4096;
/// Entries of one `Children` or `Parents` list in a chunk; longer lists span chunks.
pub const CHUNK_EDGES_MAX: usize = 32_768;
pub const CHUNK_BYTES_MAX: usize = 4 << 20;
/// Chunks a client keeps unanswered per node.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 16;
pub const TASK_SLOTS_MAX: u32 = 1 << 24;
/// Staged chunks of a job whose client went silent are dropped after this.
pub const STAGED_JOB_TTL: Span = Span::from_secs(600);
/// A client that asks too early for what needs a committed job tries again after this.
pub const STAGED_RETRY_AFTER: Span = Span::from_millis(10);
pub const NAME_BYTES_MAX: usize = 1024;
/// One description, shared by any number of alike tasks; a chunk must hold one and its task.
pub const SPEC_BYTES_MAX: usize = 2 << 20;
/// A workflow file, after decompression.
pub const WORKFLOW_BYTES_MAX: u64 = 8 << 30;
/// One line of it, where lines matter, and one name or value.
pub const WORKFLOW_LINE_BYTES_MAX: usize = 32 << 20;
pub const WORKFLOW_WORD_BYTES_MAX: usize = 1 << 20;
/// One task of a JSON text: its reader keeps the whole task in memory.
pub const WORKFLOW_ELEMENT_BYTES_MAX: u64 = 32 << 20;
/// A TOML file: its reader keeps the whole text, and several times as much, in memory.
pub const WORKFLOW_TOML_BYTES_MAX: u64 = 256 << 20;
/// Subgraphs of a DOT file inside one another.
pub const DOT_DEPTH_MAX: usize = 64;
/// Elements of an XML file inside one another.
pub const XML_DEPTH_MAX: usize = 256;
/// A workflow in a client's memory; 128M tasks are what the paper simulates.
pub const GRAPH_TASKS_MAX: usize = 1 << 27;
pub const GRAPH_EDGES_MAX: usize = 1 << 28;
/// A generator's workflow that is only calculated with: no task of it is ever stored.
pub const IMPLICIT_TASKS_MAX: u64 = 1 << 36;
/// A workflow for a scheduler that sees everything: some of them compare all ready tasks each time.
pub const GLOBAL_TASKS_MAX: usize = 1 << 20;

// Credits, hand-over, stealing.
/// Edges of one `Credit`; a longer fan-out goes out in several, as the link's window allows.
pub const CREDIT_EDGES_MAX: usize = 8192;
/// Tasks of one bundle (a push or a grant).
pub const BUNDLE_TASKS_MAX: usize = 8192;
pub const COMPLETIONS_MAX: usize = 1024;
/// Nodes that a thief asks at first, at most; with each failure half as many, but so many at least.
pub const STEAL_NEIGHBOURS_MAX: usize = 32;
pub const STEAL_NEIGHBOURS_MIN: usize = 4;
/// Neighbours that somebody may ask for by number.
pub const STEAL_NEIGHBOURS_SET_MAX: u32 = 4096;
/// The longest wait or interval that a node may be tuned to.
pub const TUNED_SPAN_MAX: Span = Span::from_secs(86_400);
/// Shapes of the gamma law that lengths of tasks may be assumed to follow.
pub const LENGTH_SHAPE_MIN: f64 = 1e-3;
pub const LENGTH_SHAPE_MAX: f64 = 1e6;
/// What FLDS lets a dedicated task wait (`tt`), unless told otherwise.
pub const WAIT_MAX_DEFAULT: Span = Span::from_secs(10);
/// Objects from here on tell how fast a node sends, and of how many nodes that is kept.
pub const RATE_OBJECT_BYTES_MIN: u64 = 64 << 10;
pub const RATES_KEPT_MAX: usize = 4096;
/// So many of these, and of the kinds of tasks that were measured, a node tells who asks.
pub const ESTIMATES_REPORTED_MAX: usize = 64;
/// FLDS counts the tasks that ended within this window, and looks at its queue this often.
pub const THROUGHPUT_WINDOW: Span = Span::from_secs(10);
pub const MONITOR_INTERVAL: Span = Span::from_millis(100);
/// Tasks that a monitor moves from the local to the shared queue in one step.
pub const STEP_SHIFTS_MAX: usize = 4096;
/// ADAPTIVE weighs transfers against work over this long; it stays with a policy at least so long,
/// doubled with each change up to the maximum.
pub const ADAPT_WINDOW: Span = Span::from_secs(2);
pub const ADAPT_DWELL_MAX: Span = Span::from_secs(128);
/// A node tells a peer of its load at most this often, and what it was told counts so long.
pub const LOAD_INTERVAL: Span = Span::from_millis(10);
pub const LOAD_KEPT: Span = Span::from_secs(10);
/// Peers whose load a node remembers before it has placed any task with inputs.
pub const LOADS_KEPT_IDLE_MAX: usize = 7;
/// Copies of one object that placing looks at.
pub const PLACEMENT_COPIES_MAX: usize = 8;
/// Copies of objects made elsewhere that one node keeps, unless told otherwise.
pub const CACHE_BYTES_DEFAULT: u64 = 6 << 30;
/// Tasks a victim looks at, and keeps, while it fills one grant.
pub const STEAL_SCAN_MAX: usize = 1024;
/// A thief that is not dry yet looks for so many tasks per slot at most.
pub const STEAL_AHEAD_PER_SLOT: usize = 2;
pub const STEAL_INTERVAL_START: Span = Span::from_millis(1);
/// The bound after which a thief goes quiet until a hint wakes it (the paper's schedulers stop).
pub const STEAL_INTERVAL_BOUND: Span = Span::from_millis(1024);
/// Probes and requests that stay unanswered are given up after this.
pub const STEAL_TIMEOUT: Span = Span::from_millis(500);
/// A thief with tasks of a submitted job that is not visible yet steals nothing for so long, and
/// that much longer in clusters of more than [`COUNTS_NODES`].
pub const COMMIT_WAIT: Span = Span::from_millis(100);
/// A node with more shared work than slots hints peers, backing off up to the maximum.
pub const HINT_INTERVAL_START: Span = Span::from_millis(2);
pub const HINT_INTERVAL_MAX: Span = Span::from_secs(1);
pub const HINT_PEERS: usize = 2;

// Reports and watchers.
pub const COUNTS_INTERVAL: Span = Span::from_millis(100);
/// In clusters of more nodes than this a home reports that much less often: the home of a job is
/// one node, and hears all of them.
pub const COUNTS_NODES: usize = 1000;
/// Waiting tasks ask their missing parents' homes this often, so many at a time, by turns. What is
/// found so was lost: nothing should be.
pub const RECONCILE_INTERVAL: Span = Span::from_secs(10);
pub const RECONCILE_TASKS_MAX: usize = 1024;
/// So many rounds in a row leave out what concerns a partition whose home has changed within the
/// interval before.
pub const RECONCILE_SKIPS_MAX: u32 = 3;
/// Missing parents asked for per waiting task and round.
pub const RECONCILE_PARENTS_MAX: usize = 8;
/// A job of which its home has heard nothing for so long is asked about, and again after the
/// interval, so many jobs each time; it has stalled when nobody says that something of it runs.
pub const STALL_AFTER: Span = Span::from_secs(30);
pub const STALL_LOOK_INTERVAL: Span = Span::from_secs(10);
pub const STALL_JOBS_PER_LOOK_MAX: usize = 64;
/// Who has not answered so often in a row is silent.
pub const STALL_SILENT_ROUNDS: u32 = 2;
/// Records that a home looks through for one answer, parents whose ends it looks up, and tasks it
/// asks each holder about.
pub const STALL_SCAN_MAX: usize = 1 << 18;
pub const STALL_PARENTS_SCAN_MAX: usize = 64;
pub const STALL_ASKED_PER_HOLDER_MAX: usize = 8;
/// A task that waits for its home to know that it starts keeps its slot for so long.
pub const START_ASK_TIMEOUT: Span = Span::from_secs(1);
/// Twice as long after each answer that came too late, so often at most.
pub const START_ASK_DOUBLED_MAX: u32 = 3;
/// Without its slot it looks so often whether its home is another one by now, and asks that one.
pub const START_ASK_AGAIN: Span = Span::from_secs(5);
/// What was sent to a node that is not home is sent again after this, or when the map changes; and
/// twice as long after each time that something for that partition came back, so often at most.
pub const PARKED_RETRY_AFTER: Span = Span::from_millis(50);
pub const PARKED_RETRY_DOUBLED_MAX: u32 = 4;
/// Edges told, and newly visible tasks looked at, in one step of a node.
pub const STEP_EDGES_MAX: usize = 65_536;
pub const STEP_TASKS_MAX: usize = 16_384;
/// Tasks of cancelled jobs that end in one step, and those that one request may name.
pub const STEP_CANCELS_MAX: usize = 4096;
pub const CANCEL_TASKS_MAX: usize = 4096;
/// Attempts launched in one step; no-ops take no slot, so slots alone do not bound them.
pub const STEP_LAUNCHES_MAX: usize = 256;
/// Entries of queues that one step takes out, most of which may be out of date.
pub const STEP_POPS_MAX: usize = 4096;
/// A fetch that fails is tried again after a delay that doubles up to the maximum, so many times.
pub const FETCH_RETRY_START: Span = Span::from_millis(50);
pub const FETCH_RETRY_MAX: Span = Span::from_secs(5);
pub const FETCH_TRIES_MAX: u32 = 64;
/// So often where another node can make the object again.
pub const FETCH_TRIES_REBUILT_MAX: u32 = 8;
/// So often a maker answers that it has no such object, each time after its home has said that
/// nobody else has it, before that is believed: what a node that leaves had may be known elsewhere
/// a little later.
pub const FETCH_ABSENCES_MAX: u32 = 4;
/// As long as a copy is known that may come after all.
pub const FETCH_TRIES_COPY_KNOWN_MAX: u32 = 256;
pub const FAILURES_KEPT_PER_PARTITION: usize = 4;
pub const FAILURES_KEPT_PER_JOB: usize = 64;
pub const STDERR_TAIL_BYTES: usize = 2048;
pub const ERROR_BYTES_MAX: usize = 4096;
/// Tasks and ends of edges of ended chunks that a node keeps for those who ask about them.
pub const RETIRED_WEIGHT_MAX: usize = 1 << 16;
/// The same, of jobs of which tasks may be run again.
pub const KEPT_WEIGHT_MAX: usize = 1 << 20;
/// Rounds of a job, and tasks that one of them may name.
pub const ROUNDS_MAX: usize = 1000;
pub const RETRY_TASKS_MAX: usize = 4096;
pub const TASKS_PER_ANSWER_MAX: usize = 4096;
/// Parents that an explanation of a skipped task names, and bytes that it shows of a command.
pub const UNMET_PARENTS_REPORTED_MAX: usize = 4096;
pub const ARGV_SHOWN_BYTES_MAX: usize = 4096;
/// Outputs of a task whose sizes are told with its state.
pub const TASK_SIZES_REPORTED_MAX: usize = 64;
pub const WATCHERS_MAX: usize = 4096;

// Copies of partitions.
/// Changes that a copy keeps at hand for others that lag, and their bytes.
pub const COPY_RECENT_CHANGES: usize = 256;
pub const COPY_RECENT_BYTES: usize = 1 << 20;
/// Of all copies of a node together.
pub const COPY_RECENT_CHANGES_ALL: usize = 1 << 16;
pub const COPY_RECENT_BYTES_ALL: usize = 16 << 20;
/// Records that fill a new copy travel in pages of this size, one at a time for each copy; so many
/// copies are filled at a time by one node.
pub const COPY_PAGE_BYTES: usize = 256 << 10;
pub const COPIES_FILLING_MAX: usize = 8;
/// Questions about copies that one node keeps until it can answer them.
pub const COPY_ASKS_MAX: usize = 1 << 16;
/// Steps that wait for copies before a node takes no further requests that write.
pub const STEPS_HELD_MAX: usize = 4096;
pub const STEPS_HELD_RETRY: Span = Span::from_millis(100);
/// A primary answers reads so long after it asked those who keep copies of its partitions.
pub const LEASE: Span = Span::from_millis(300);
/// And they promise nothing to another primary for so long after they were asked: clocks may run
/// by a tenth faster or slower than each other's.
pub const LEASE_GIVEN: Span = Span::from_millis(375);

/// What a copy has refused of a partition that has another home by now is settled by that home, or
/// by the map. If it is not after this time the node starts again, which settles it.
pub const REFUSAL_TIMEOUT: Span = Span::from_secs(5);
/// A partition that a node has tried to serve for so long is told of in its log, this often.
pub const ACTIVATION_LATE: Span = Span::from_secs(10);

// The key-value store.
pub const KEY_BYTES_MAX: usize = 64 << 10;
pub const VALUE_BYTES_MAX: usize = 8 << 20;
pub const KV_OPS_MAX: usize = 65_536;
/// Clients of one partition whose numbered batches it remembers, and batches of each.
pub const KV_NUMBERED_CLIENTS_MAX: usize = 128;
pub const KV_NUMBERS_MAX: usize = 16;
/// Of the memory for keys and values, what numbers of batches may take; above it answers are not
/// kept, and this many times fewer clients for a partition.
pub const KV_NUMBERS_SHARE: u64 = 8;
pub const KV_NUMBERED_SCARCE: usize = 8;
/// An answer of a numbered batch above this size is not remembered, only that it was given.
pub const KV_ANSWER_KEPT_BYTES: usize = 4 << 10;
/// A line of operations as JSON, where any byte of a key or a value may be escaped; and how much of
/// such lines is read ahead of their answers.
pub const KV_LINE_BYTES_MAX: usize = 6 * (2 * VALUE_BYTES_MAX + KEY_BYTES_MAX) + 1024;
pub const KV_LINES_AHEAD_BYTES: usize = 1 << 20;
/// And of lookups, whose answers may be long.
pub const KV_LOOKUPS_AHEAD_MAX: usize = 64;
/// Bytes of all values in one batch's answer; the rest of a frame is for keys and framing.
pub const KV_REPLY_BYTES_MAX: usize = 12 << 20;
/// Keys, values and their overhead that one node keeps in memory.
pub const KV_NODE_BYTES_MAX: u64 = 8 << 30;

// Execution.
/// Tasks whose inputs are being fetched before a slot is taken, per slot: where a fetch takes
/// longer than this, few at a time share the line; else many hide the latency.
pub const STAGING_PER_SLOT: usize = 2;
pub const STAGING_PER_SLOT_MAX: usize = 8;
pub const STAGING_MIN: usize = 4;
/// Tasks whose fetches have failed are held apart: so many keep no other task from being staged.
pub const STALLED_TASKS_MAX: usize = 64;
/// And so many more whose inputs wait for a source that is free to give them.
pub const WAITING_PER_SLOT_MAX: usize = 4;
pub const LONG_FETCH: Span = Span::from_millis(10);
/// An idle node with long fetches ahead of it waits so long at most for more tasks to choose from.
pub const GATHER_MAX: Span = Span::from_millis(100);
/// Ends told to other homes that a node repeats for the next one.
pub const ENDS_REMEMBERED_MAX: usize = 1024;
/// A task whose inputs are here, and that has waited for a slot for so long and for so many
/// fetches, goes back to its queue.
pub const OFFER_AGAIN_AFTER: Span = Span::from_secs(1);
pub const OFFER_AGAIN_FETCHES: u64 = 4;
/// Inputs are fetched ahead while fewer tasks than this, per slot, could start at once.
pub const AT_HAND_PER_SLOT_MIN: usize = 4;
pub const AT_HAND_PER_SLOT_MAX: usize = 64;
/// The kernel's bound on one string of an environment (MAX_ARG_STRLEN).
pub const ENVIRONMENT_STRING_BYTES_MAX: usize = 128 << 10;
/// Lists of paths in all `STARLING_IN_` or `STARLING_OUT_` variables of a command together.
pub const ENVIRONMENT_LISTS_BYTES_MAX: usize = 64 << 10;
/// What stands in those variables in place of lists that do not fit, together.
pub const ENVIRONMENT_NOTICES_BYTES_MAX: usize = 256 << 10;
pub const OBJECT_BYTES_MAX_DEFAULT: u64 = 1 << 40;
/// Between SIGTERM and SIGKILL of a command that is to end.
pub const KILL_GRACE: Span = Span::from_secs(2);
/// How long a node waits at most for its own stop before it believes that a command failed; of a
/// command that no signal has ended such a share of the time that it ran.
pub const STOP_WAIT_MAX: Span = Span::from_secs(1);
pub const STOP_WAIT_SHARE: u32 = 8;
/// A node asks its silent spawner this often whether it goes on, while it waits for a command.
pub const SPAWNER_PROBE_INTERVAL: Span = Span::from_secs(1);
/// A spawner that says nothing for so long, though it is asked, hangs: another takes its place.
pub const SPAWNER_TIMEOUT: Span = Span::from_secs(10);
/// How long a spawner that is told to end may take to end its commands.
pub const SPAWNER_EXIT_TIMEOUT: Span = Span::from_secs(10);
/// A node looks this often whether its state directory is still the one that it has locked.
pub const STATE_CHECK_INTERVAL: Span = Span::from_secs(1);
/// So many looks in a row have to find the state directory gone.
pub const STATE_GONE_CHECKS: u32 = 2;

// Data in the core.
/// Copies of objects from this size on are told to the home of their maker.
pub const COPY_REPORTED_BYTES_MIN: u64 = 256 << 10;
/// Objects whose copies one home keeps track of, and copies of each.
pub const LOCATED_OBJECTS_MAX: usize = 1 << 16;
pub const COPIES_PER_OBJECT_MAX: usize = 128;
/// Nodes that one source gives an object out to at a time; further askers wait.
pub const DOWNLOADS_PER_OBJECT_SOURCE_MAX: usize = 2;
/// And all objects of one home together.
pub const DOWNLOADS_PER_SOURCE_MAX: usize = 3;
/// Objects that a home looks at, of those that somebody waits for, when a source gets free.
pub const LOCATED_WANTED_SCAN_MAX: usize = 64;
pub const READERS_WAITING_PER_OBJECT_MAX: usize = 1024;
/// Who asked where an object lies and hears nothing goes to its maker after this.
pub const LOCATE_TIMEOUT: Span = Span::from_secs(2);
/// And after so many times of what moving the object takes, up to the bound: two askers share a
/// source, and those after them wait for these.
pub const LOCATE_MOVES: u64 = 4;
/// When its home has said that it will hear more it asks again so often, and goes to the maker
/// then.
pub const LOCATE_WAITS: u32 = 8;
pub const LOCATE_TIMEOUT_MAX: Span = Span::from_secs(300);
/// Copies named to the node that a task is sent to.
pub const COPIES_NAMED_MAX: usize = 8;
/// A full store with nothing under way waits so long for readers elsewhere to make room.
pub const STORE_FULL_TIMEOUT: Span = Span::from_secs(10);
/// The next task, if a full store has no room for it, is passed by others for so long, or so often
/// if that takes longer; then they wait until it has.
pub const STORE_BYPASS_TIME: Span = Span::from_secs(10);
pub const STORE_BYPASSES_MIN: u32 = 16;
/// Tasks without room that one step looks past.
pub const STORE_BYPASS_SCAN_MAX: usize = 16;
/// Tasks without room here that a node offers to others and remembers: each node does so once.
pub const OFFERED_TASKS_MAX: usize = 1024;
/// Objects of ended jobs that one step lets go of.
pub const STEP_EVICTIONS_MAX: usize = 1024;
/// Objects of one message about copies or readers.
pub const OBJECTS_PER_MESSAGE_MAX: usize = 4096;
/// Attempts whose outputs a node that leaves hands over at a time. Each is offered to the same node
/// so often before another one is asked; who had no room is asked again after a pause.
pub const HANDOVERS_AT_A_TIME_MAX: usize = 256;
pub const HANDOVER_TRIES_MAX: u32 = 4;
pub const HANDOVER_PAUSE: Span = Span::from_secs(2);
/// Outputs that are copied before their tasks end: of so many tasks at a time. Those of more keep
/// their slots until it is their turn.
pub const COPIES_FIRST_MAX: usize = 256;
/// Who had a copy and has died may come back with it; after so long another node gets one. Nodes
/// that had no room are asked again after as long, then after twice as long, and so on so often.
pub const COPY_RETURN_TIMEOUT: Span = Span::from_secs(10);
pub const COPY_DOUBLINGS_MAX: u32 = 6;
/// Inputs of a ready task by which its queue knows it, and from which size on.
pub const INDEXED_INPUTS_MAX: usize = 16;
pub const INDEXED_INPUT_BYTES_MIN: u64 = 1024;
/// Inputs of a task with at least so many dependencies travel as they are made, up to this size
/// each, so many at a time; and how many may wait for that.
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
