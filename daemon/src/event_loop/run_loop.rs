/*!
The loop that owns a node: collect inputs, handle them, write once, then carry out the effects.

```text
   streams ─▶ inbox ─┐                        ┌─▶ log on disk (one write a step)
   executor, sync ───┼─▶ handle ─▶ flush ─────┤
   timers ───────────┘      ▲                 └─▶ then: effects
                            └── ends of no-ops
```
The end of a launched no-op returns to the core before the write: no other process observes it.
*/

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::Executor;
use kvs::Batch;
use node::{Effect, Input, Node, SyncWish};
use proto::work::Launch;
use proto::{ClientId, Incarnation, NodeId, Span, Time, limits, wire};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use wire::link_frame::Body;

use crate::clock::Clock;
use crate::error::{NodeError, StartError};
use crate::event_loop::event_log_lines::log_line_of;
use crate::event_loop::group_commit::SyncThread;
use crate::event_loop::inbox::{Incoming, Local};
use crate::event_loop::stats;
use crate::events::{Bounds, EventLog};
use crate::lifecycle::assembly::delay_doubtful_end;
use crate::lifecycle::instance::{EndMark, MembersWriter};
use crate::lifecycle::{Members, StoreRecovery};
use crate::objects::data::SmallObjectChannel;
use crate::objects::{Transfers, output_removal};
use crate::rpc::replies::ReplySender;
use crate::rpc::service::Shared;
use crate::store::scrubber::ScrubPass;
use crate::store::{RocksStore, StoreError};

/// While a step has left this many inputs to the next one, the node reads no further frames.
const INPUTS_DEFERRED_MAX: usize = 4 * limits::STEP_INPUTS_MAX;
/// The minimum pause between two syncs of the log while no message of the node waits for one.
const SYNC_GAP_IDLE: Span = Span::from_millis(20);
/// The interval at which an ending node checks whether its commands have ended.
const FAREWELL_LOOKS: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Link {
    number: u64,
    incarnation: Incarnation,
    queue: mpsc::Sender<wire::LinkFrame>,
}

/// The progress of durability.
#[derive(Debug, Default)]
struct Durability {
    written_seq: u64,
    /// The batch up to which a sync is under way.
    asked_seq: u64,
    synced_seq: u64,
    synced_at: Time,
    /// A client has sent a request since the last sync began. It may wait for the next sync.
    client_waits: bool,
}

impl Durability {
    /// The earliest time of the next sync; `None` without unsynced writes or during a sync.
    fn due(&self, node: &Node) -> Option<Time> {
        let idle = self.asked_seq == self.synced_seq;
        let gap = match node.sync_wish() {
            _ if self.client_waits => Span::ZERO,
            SyncWish::Now => Span::ZERO,
            SyncWish::Soon => limits::SYNC_GAP,
            SyncWish::None => SYNC_GAP_IDLE,
        };
        (idle && self.written_seq > self.synced_seq).then(|| self.synced_at + gap)
    }
}

/// The reason why a loop has ended without an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoopEnd {
    /// The node received a stop request.
    Told,
    /// The cluster has declared this incarnation failed. The node may restart under the given
    /// incarnation or a later one; `None`: it has left permanently.
    Fenced { restart: Option<Incarnation> },
    /// The cluster knows this node up to that incarnation, with another directory.
    Late { known: Incarnation },
}

/// The shell of a node.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) shared: Arc<Shared>,
    pub(crate) node: Node,
    pub(crate) store: RocksStore,
    pub(crate) sync: SyncThread,
    pub(crate) clock: Clock,
    pub(crate) events: EventLog,
    pub(crate) transfers: Transfers,
    pub(crate) members: Members,
    pub(crate) mark: EndMark,
    pub(crate) refill: StoreRecovery,
    pub(crate) members_writer: MembersWriter,
    /// For results of work on other threads.
    pub(crate) local: mpsc::UnboundedSender<Local>,
    pub(crate) state: State,
}

/// The part of a loop's state that is empty at first.
#[derive(Debug, Default)]
pub(crate) struct State {
    links: BTreeMap<NodeId, Link>,
    clients: BTreeMap<ClientId, ReplySender>,
    durability: Durability,
    inputs: Vec<Input>,
    effects: Vec<Effect>,
    /// The effects that wait for the write of this step.
    held: Vec<Effect>,
    launches: Vec<Launch>,
    /// The last value sent to the executor.
    staged_room_bytes: Option<u64>,
    pending: Batch,
    pending_bytes: usize,
    waiting_for_events: Vec<oneshot::Sender<()>>,
    fenced: Option<Option<Incarnation>>,
    told_late_at: Time,
    measured: stats::Measured,
}

fn history(node: &Node) -> Bounds {
    let (bytes, age) = node.history();
    Bounds { bytes, age }
}

impl Loop {
    /// Runs until a stop request or fencing. Then all acknowledged writes are durable.
    pub(crate) async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Incoming>,
        mut local: mpsc::UnboundedReceiver<Local>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<LoopEnd, NodeError> {
        let mut incoming = Vec::with_capacity(limits::STEP_INPUTS_MAX);
        let mut own = Vec::with_capacity(limits::STEP_INPUTS_MAX);
        let mut timer = pin!(tokio::time::sleep_until(self.clock.instant(Time::ZERO).into()));
        loop {
            if *stop.borrow_and_update() {
                return self.end().await;
            }
            self.step()?;
            if let Some(restart) = self.state.fenced {
                self.shared.executor.stop(); // At once, because its tasks run elsewhere.
                self.note_end(self.mark.fenced());
                self.events.flush().map_err(|error| self.events_error(error))?;
                return Ok(LoopEnd::Fenced { restart });
            }
            let wake = self.wake();
            if !self.state.inputs.is_empty() {
                tokio::task::yield_now().await; // Other tasks of this thread may read and write.
            } else {
                if let Some(wake) = wake {
                    timer.as_mut().reset(self.clock.instant(wake).into());
                }
                tokio::select! {
                    biased;
                    _ = stop.changed() => {}
                    _ = local.recv_many(&mut own, limits::STEP_INPUTS_MAX) => {}
                    _ = inbox.recv_many(&mut incoming, limits::STEP_INPUTS_MAX) => {}
                    () = &mut timer, if wake.is_some() => {}
                }
            }
            while own.len() < limits::STEP_INPUTS_MAX
                && let Ok(item) = local.try_recv()
            {
                own.push(item);
            }
            while incoming.len() < limits::STEP_INPUTS_MAX
                && self.state.inputs.len() < INPUTS_DEFERRED_MAX
                && let Ok(item) = inbox.try_recv()
            {
                incoming.push(item);
            }
            for item in own.drain(..) {
                self.take_local(item)?;
            }
            for item in incoming.drain(..) {
                self.take(item);
            }
        }
    }

    /// The next time at which the node has work without an input.
    fn wake(&self) -> Option<Time> {
        let deadlines = [
            self.node.deadline(),
            self.events.flush_due(),
            self.events.prune_due(history(&self.node)),
            self.transfers.deadline(),
            self.state.durability.due(&self.node),
        ];
        deadlines.into_iter().flatten().min()
    }

    fn take_local(&mut self, item: Local) -> Result<(), NodeError> {
        match item {
            Local::Input(input) => self.state.inputs.push(input),
            Local::Inputs(inputs) => self.state.inputs.extend(inputs),
            Local::Doubted(ended) => delay_doubtful_end(&self.local, ended),
            Local::Read(page) => {
                let page = page.map_err(|error| self.store_error(error))?;
                self.state.inputs.push(Input::Read(page));
            }
            Local::Synced(result) => {
                let seq = result.map_err(|error| self.store_error(error))?;
                let durability = &mut self.state.durability;
                durability.synced_at = self.clock.now();
                // The sync may include later writes than those it was requested for.
                durability.synced_seq = seq;
                durability.asked_seq = seq;
                self.state.inputs.push(Input::Persisted { seq });
            }
            Local::Scrubbed(result) => self.scrubbed(result)?,
        }
        Ok(())
    }

    fn scrubbed(&mut self, result: Result<ScrubPass, StoreError>) -> Result<(), NodeError> {
        match result {
            Ok(pass) => {
                self.members.scrubbed(pass);
                let ScrubPass { records, bytes, took } = pass;
                let took_s = took.as_secs_f64();
                let read = format!("read all {records} records ({bytes} bytes) in {took_s:.1} s");
                self.shared.log.line(&format!("{read}: nothing damaged"));
            }
            Err(error) if error.is_loss() => return Err(self.store_error(error)),
            // If the error matters, the next write fails and reports it.
            Err(error) => self.shared.log.line(&format!("cannot read all records: {error}")),
        }
        Ok(())
    }

    fn take(&mut self, item: Incoming) {
        let state = &mut self.state;
        match item {
            Incoming::Packet(packet) => state.inputs.push(Input::Packet(packet)),
            Incoming::Requests { client, requests } => {
                // Frames of a disconnected client may still arrive here.
                if state.clients.contains_key(&client) {
                    state.durability.client_waits = true;
                    state.inputs.extend(requests.into_iter().map(|request| {
                        let request = Box::new(request);
                        Input::Request { client, request }
                    }));
                }
            }
            Incoming::ClientUp { client, replies } => _ = state.clients.insert(client, replies),
            Incoming::ClientDown { client } => {
                if state.clients.remove(&client).is_some() {
                    state.inputs.push(Input::ClientGone { client });
                }
            }
            Incoming::LinkUp { peer, incarnation, link: number, queue } => {
                // A delayed stream of an earlier incarnation must not replace the present one.
                let newest = state.links.get(&peer).is_none_or(|it| it.incarnation <= incarnation);
                if newest {
                    let link = Link { number, incarnation, queue };
                    if state.links.insert(peer, link).is_some() {
                        SmallObjectChannel::lost(&self.shared, peer);
                    }
                    let file = self.shared.addresses.read(peer);
                    if self.members.up(peer, incarnation, file) {
                        let map = Box::new(self.members.map().clone());
                        state.inputs.push(Input::MapCommitted { map });
                    }
                    state.inputs.push(Input::PeerConnected { peer });
                }
            }
            Incoming::LinkDown { peer, link } => {
                if state.links.get(&peer).is_some_and(|it| it.number == link) {
                    state.links.remove(&peer);
                    self.members.down(peer);
                    SmallObjectChannel::lost(&self.shared, peer);
                    state.inputs.push(Input::PeerLost { peer });
                }
            }
            Incoming::Wants { from, wanted } => {
                wanted.into_iter().for_each(|wanted| self.transfers.want(from, wanted));
            }
            Incoming::File { task, copy, awaited } => {
                let answer = match copy {
                    true => self.node.has_replica(task.local.partition()).then_some(true),
                    false => self.node.awaits_file(task),
                };
                let _ = awaited.send(answer); // The requester may be gone.
            }
            Incoming::Kept { task } => state.inputs.push(Input::Files { tasks: vec![task] }),
            Incoming::FlushEvents(flushed) => state.waiting_for_events.push(flushed),
        }
    }

    /// Handles all queued inputs, writes once, then carries out the effects.
    fn step(&mut self) -> Result<(), NodeError> {
        for _ in 0..limits::STEP_GENERATIONS_MAX {
            let now = self.clock.now();
            self.transfers.take_due(now, &mut self.state.inputs);
            for input in self
                .state
                .inputs
                .drain(..crate::event_loop::step_batch::batch_len(&self.state.inputs))
            {
                self.node.handle(now, input);
            }
            if self.node.deadline().is_some_and(|deadline| deadline <= now) {
                self.node.handle(now, Input::Timer);
            }
            self.node.flush(now, &mut self.state.effects);
            self.sort(now);
            if self.state.inputs.is_empty() || self.state.pending_bytes >= limits::STEP_WRITE_BYTES
            {
                break;
            }
        }
        self.write()?;
        let now = self.clock.now();
        let mut held = std::mem::take(&mut self.state.held);
        for effect in held.drain(..) {
            self.act(now, effect)?;
        }
        self.share_store();
        self.launch();
        self.tell_late(now);
        self.state.held = held;
        self.ask();
        self.flush_events(now)
    }

    /// Carries out effects that have no outside effect at once. Holds the others until the write.
    fn sort(&mut self, now: Time) {
        let state = &mut self.state;
        for effect in state.effects.drain(..) {
            match effect {
                Effect::Persist(batch) => {
                    let bytes = |write: &kvs::Write| {
                        write.key.len() + write.value.as_ref().map_or(0, Vec::len)
                    };
                    state.pending_bytes += batch.writes.iter().map(bytes).sum::<usize>();
                    if state.pending.seq == 0 {
                        state.pending = batch;
                    } else {
                        state.pending.absorb(batch);
                    }
                }
                Effect::Trace(event) => {
                    let stall = |job| self.node.blocker_of(job).map(|stall| &*stall.event);
                    if let Some(text) = log_line_of(&event, stall) {
                        self.shared.log.line(&text);
                    }
                    self.events.push(now, &event);
                }
                Effect::Launch(launch) => match Executor::run_inline(&launch) {
                    Some(outcome) => {
                        let (task, attempt, outcome) =
                            (launch.task, launch.attempt, Box::new(outcome));
                        state.inputs.push(Input::Finished { task, attempt, outcome });
                    }
                    None => state.held.push(Effect::Launch(launch)),
                },
                Effect::Measure => {
                    let (cpu_ns, peak_rss_bytes) = state.measured.at(now);
                    state.inputs.push(Input::Measured { cpu_ns, peak_rss_bytes });
                }
                Effect::Fetch(fetch) if Transfers::is_free(&fetch) => {
                    let (object, number, result) = (fetch.object, fetch.number, Ok(()));
                    state.inputs.push(Input::Fetched { object, number, result });
                }
                other => state.held.push(other),
            }
        }
    }

    fn write(&mut self) -> Result<(), NodeError> {
        let pending = std::mem::take(&mut self.state.pending);
        self.state.pending_bytes = 0;
        if pending.seq > 0 {
            self.store.write(&pending).map_err(|error| self.store_error(error))?;
            self.state.durability.written_seq = pending.seq;
        }
        let durability = &mut self.state.durability;
        if durability.due(&self.node).is_some_and(|due| due <= self.clock.now()) {
            durability.asked_seq = durability.written_seq;
            durability.client_waits = false;
            self.sync.request();
        }
        Ok(())
    }

    /// Logs the partitions that this node activates too slowly.
    fn tell_late(&mut self, now: Time) {
        if now.since(self.state.told_late_at) >= limits::ACTIVATION_LATE
            && let Some(late) = self.node.late_activations(now)
        {
            self.state.told_late_at = now;
            self.shared.log.line(&late);
        }
    }

    /// Passes to the executor the space that the core leaves for files copied from elsewhere.
    fn share_store(&mut self) {
        let room_bytes = self.node.shared_files_bytes_max();
        if self.state.staged_room_bytes.replace(room_bytes) != Some(room_bytes) {
            self.shared.executor.set_staged_room(room_bytes);
        }
    }

    /// Starts the launches collected in this step.
    fn launch(&mut self) {
        if !self.state.launches.is_empty() {
            self.shared.executor.launch_all(self.state.launches.drain(..));
        }
    }

    fn act(&mut self, now: Time, effect: Effect) -> Result<(), NodeError> {
        let says = matches!(effect, Effect::Send { .. } | Effect::Reply { .. });
        if !(says || matches!(effect, Effect::Launch(_))) {
            self.launch(); // This effect may concern an earlier launch.
        }
        let executor = &self.shared.executor;
        match effect {
            Effect::Send { to, packet } => self.send(to, *packet),
            Effect::Reply { client, response } => self.reply(client, *response),
            Effect::Launch(launch) => {
                if let Some(launch) = self.go_on(launch) {
                    self.state.launches.push(*launch);
                }
            }
            Effect::TurnAnswer { task, attempt, answer } => {
                self.answer_turn(task, attempt, answer);
            }
            Effect::Part(change) => self.shared.change_part(change),
            Effect::GoesOn { task, attempt } => executor.go_on_call(task, attempt),
            Effect::Variable { job, variable } => {
                self.shared.door.variable_changed(job, *variable);
            }
            Effect::VariablesForgotten { job } => self.shared.door.forget_variables(job),
            Effect::VariableSet { ticket, done } => self.shared.door.variable_set(ticket, done),
            Effect::Mailbox { ticket, refused } => {
                self.shared.door.mailbox_answered(ticket, refused);
            }
            Effect::Kill { task, attempt } => self.kill(task, attempt),
            Effect::Notice { task, attempt } => executor.give_notice(task, attempt),
            Effect::Discard { task, attempt } => executor.discard(task, attempt),
            Effect::Evict { objects } => {
                for object in objects {
                    executor.objects().discard_object(object);
                }
            }
            Effect::Forget { job } => {
                self.kill_parked(job);
                // Nothing waits for the removal. Later files may be of a job that comes now.
                let objects = executor.objects().clone();
                let listed = objects.list_to_forget(job);
                let directories = executor.uploads().set_aside(job);
                tokio::task::spawn_blocking(move || {
                    objects.remove_listed(job, &listed);
                    directories.iter().for_each(|path| executor::Uploads::remove(path));
                });
            }
            Effect::Erase { job, number } => {
                output_removal::begin(job, number, &self.shared, &self.local);
            }
            Effect::Fetch(fetch) => self.transfers.begin(now, &fetch),
            Effect::Damaged { partition, what } => {
                let reason = format!("a record of {partition}: {what}");
                let path = self.store.path().to_path_buf();
                return Err(self.store_error(StoreError::Damaged { path, reason }));
            }
            Effect::Fenced { restart } => self.state.fenced = Some(restart),
            Effect::MapChanged(map) => self.map_changed(&map)?,
            Effect::Read(request) => {
                // On another thread: a page may be long, and the disk slow.
                let (reader, local) = (self.store.reader(), self.local.clone());
                tokio::task::spawn_blocking(move || {
                    // Fails only if the run loop has ended.
                    let _ = local.send(Local::Read(reader.page(&request)));
                });
            }
            Effect::Persist(_) | Effect::Trace(_) | Effect::Measure => {
                unreachable!("carried out when sorted")
            }
        }
        Ok(())
    }

    /// Sends requests for small objects: one step's requests to a node go together.
    fn ask(&mut self) {
        for (from, wanted) in self.transfers.take_asks() {
            let link = self.state.links.get(&from);
            let asks = self.shared.small_objects.ask(from, wanted);
            let frame = wire::LinkFrame { body: Some(Body::SmallObjectRequests(asks.clone())) };
            match link.is_some_and(|link| link.queue.try_send(frame).is_ok()) {
                true => SmallObjectChannel::watch(&self.shared, from, asks),
                false => SmallObjectChannel::give_up(&self.shared, from, &asks.objects),
            }
        }
    }

    /// Sends a packet, or drops it if the queue is full: the core repeats unacknowledged messages.
    fn send(&mut self, to: NodeId, packet: wire::Packet) {
        let frame = wire::LinkFrame { body: Some(Body::Packet(packet)) };
        if let Some(link) = self.state.links.get(&to)
            && let Err(TrySendError::Full(_)) = link.queue.try_send(frame)
        {
            self.shared.log.refusal(&format!("dropped a packet: node {} reads too slowly", to.0));
        }
    }

    fn reply(&mut self, client: ClientId, mut response: wire::Response) {
        self.members.fill_in(&mut response);
        self.refill.fill_in(&mut response);
        self.tell_trouble(&mut response);
        if let Some(replies) = self.state.clients.get(&client)
            && !replies.send(response)
        {
            self.shared.log.refusal("disconnected a client: its queue of unread replies is full");
            self.state.clients.remove(&client);
            self.state.inputs.push(Input::ClientGone { client });
        }
    }

    /// Adds to the explanation of a task that this node holds why the node starts no command.
    fn tell_trouble(&self, response: &mut wire::Response) {
        let Some(wire::response::Body::Explanation(told)) = &mut response.body else { return };
        let is_held_here = told.task.as_ref().is_some_and(|task| {
            let waits =
                matches!(task.phase(), wire::TaskPhase::Ready | wire::TaskPhase::RunningTask);
            waits && task.placed && NodeId(task.node) == self.shared.identity.node
        });
        if is_held_here {
            told.lines.extend(self.shared.executor.spawner_trouble());
        }
    }

    fn flush_events(&mut self, now: Time) -> Result<(), NodeError> {
        let waiting = std::mem::take(&mut self.state.waiting_for_events);
        let flushed =
            if waiting.is_empty() { self.events.flush_if_due(now) } else { self.events.flush() };
        flushed.map_err(|error| self.events_error(error))?;
        for flushed in waiting {
            let _ = flushed.send(()); // The requester may be gone.
        }
        let node = &self.node;
        self.events.prune(now, history(node), || node.history_floor(now));
        Ok(())
    }

    /// Ends in order: commands get `KILL_GRACE` to end, nothing more starts, no event is lost, and
    /// the log is synced. The other nodes learn that this is no failure.
    async fn end(mut self) -> Result<LoopEnd, NodeError> {
        self.note_end(self.mark.stopped());
        // A batch system asks the commands to end as well, which does not count as their failure.
        let has_failed =
            |input: &Input| matches!(input, Input::Finished { outcome, .. } if !outcome.is_done());
        self.state.inputs.retain(|input| !has_failed(input));
        self.state.inputs.insert(0, Input::Stop);
        self.step()?;
        self.shared.executor.ask_all_to_end();
        let patience = Instant::now() + Duration::from_nanos(limits::KILL_GRACE.0);
        while self.shared.executor.runs_commands() && Instant::now() < patience {
            tokio::time::sleep(FAREWELL_LOOKS).await;
        }
        self.shared.executor.stop();
        self.shared.lines.close();
        self.events.flush().map_err(|error| self.events_error(error))?;
        self.store.sync().map_err(|error| self.store_error(error))?;
        Ok(LoopEnd::Told)
    }

    /// Without the note the tasks that end with this incarnation are only checked twice.
    fn note_end(&self, noted: Result<(), StartError>) {
        if let Err(error) = noted {
            self.shared.log.line(&format!("the end of this incarnation is not recorded: {error}"));
        }
    }

    pub(crate) fn store_error(&self, error: StoreError) -> NodeError {
        NodeError::Store { node: self.shared.identity.node, error }
    }

    fn events_error(&self, error: std::io::Error) -> NodeError {
        let (node, path) = (self.shared.identity.node, self.events.dir().to_path_buf());
        NodeError::EventLog { node, path, error }
    }
}
