//! Carries out the effects of a node one after another. A node may die between any two.

use kvs::{Batch, PageRequest};
use node::{Effect, Input};
use proto::event::{End, Event, Reason, RetryReason, Spared, Turned};
use proto::limits::CRASHES_MAX;
use proto::work::{Launch, LaunchInput};
use proto::{Attempt, Incarnation, JobId, NodeId, Span, TaskId, wire};

use crate::checkers::turns::yields;
use crate::checkers::{
    bound, calls, durable, inputs, known, once, order, poison, quiet, removal, rounds, stall,
};
use crate::faults::event_queue::SimEvent;
use crate::faults::options::Action;
use crate::faults::story_lines::packet_line;
use crate::faults::strikes::injection::Fault;
use crate::faults::world::World;
use crate::state::machine::{self, PendingCrash, Unsynced, cpus_of};

/// After a power cut, often at most one in `TORN_TAIL` of the unsynced writes remains.
const TORN_TAIL: usize = 5;

/// The longest read; reads do not wait for a sync.
const READ_MAX: Span = Span::from_millis(20);
/// The longest times on a slow machine. A longer delay would equal a failure.
const DRAGGED_SYNC_MAX: Span = Span::from_secs(20);
const DRAGGED_READ_MAX: Span = Span::from_secs(1);
const DRAGGED_PACKET_MAX: Span = Span::from_millis(300);
const KILL_RACES_PERMILLE: u64 = 200;

/// The removal of a job's printed output takes one to [`ERASE_STEPS`] of these steps. A process may
/// die meanwhile.
const ERASE_STEP: Span = Span::from_millis(100);
const ERASE_STEPS: u64 = 10;

/// The delay of a task that kills its process, while no process may die.
const POISON_WAITS: Span = Span::from_millis(200);

/// The facts that hold once the batch of a flush is written.
#[derive(Debug, Default)]
struct Facts {
    commits: Vec<Committed>,
    replaced: Vec<(TaskId, Attempt, RetryReason)>,
    ended: Vec<JobId>,
    removing: Vec<JobId>,
    crash_limits: Vec<((TaskId, Attempt), NodeId, u32)>,
    crashes: Vec<(TaskId, NodeId, u32)>,
    spared: Vec<(TaskId, (NodeId, u32), Spared)>,
    turns: Vec<(TurnNumber, TurnEffect)>,
}

/// A turn of an attempt, by its number.
type TurnNumber = (TaskId, Attempt, u64);
/// The verdict, the index of the first spawned task and the number of spawned tasks.
type TurnEffect = (Turned, u64, u64);

#[derive(Debug)]
struct Committed {
    task: TaskId,
    attempt: Attempt,
    end: End,
    node: NodeId,
    /// In the same flush, the home learned before this that the whole job is cancelled.
    heard: bool,
}

impl Facts {
    fn of(effects: &[Effect]) -> Self {
        let mut facts = Self::default();
        for effect in effects {
            match effect {
                &Effect::Trace(Event::Committed { task, attempt, end, node, .. }) => {
                    let heard = facts.removing.contains(&task.job);
                    facts.commits.push(Committed { task, attempt, end, node, heard });
                }
                &Effect::Trace(Event::Turned { task, attempt, seq, turn, first, spawned }) => {
                    facts.turns.push(((task, attempt, seq), (turn, first, spawned)));
                }
                Effect::Trace(Event::Removing { job }) => facts.removing.push(*job),
                Effect::Trace(Event::Replaced { task, attempt, why }) => {
                    facts.replaced.push((*task, *attempt, *why));
                }
                Effect::Trace(Event::JobEnded { job, .. }) => facts.ended.push(*job),
                &Effect::Trace(Event::CrashCounted { task, attempt, count, node, incarnation }) => {
                    facts.crashes.push((task, node, incarnation));
                    if count >= CRASHES_MAX {
                        facts.crash_limits.push(((task, attempt), node, incarnation));
                    }
                }
                &Effect::Trace(Event::Spared { task, node, incarnation, why, .. }) => {
                    facts.spared.push((task, (node, incarnation), why));
                }
                _ => {}
            }
        }
        facts
    }
}

impl World {
    pub(crate) fn carry_out(&mut self, index: usize, effects: Vec<Effect>) {
        // The facts hold as soon as the batch is written, even without the trace events.
        let mut facts = Some(Facts::of(&effects));
        // A step that reacts to a map uses that map.
        for effect in &effects {
            if let Effect::MapChanged(map) = effect {
                self.map_came(index, map);
            }
        }
        let doomed = self.machines[index].pending_crash.is_some();
        let last = if doomed { self.dice.index(effects.len() + 1) } else { effects.len() };
        for (at, effect) in effects.into_iter().enumerate() {
            if doomed && at == last {
                break;
            }
            let action = self.ask_hook(index, &effect);
            match action {
                Action::Carry | Action::CrashOther(_) => {}
                Action::Drop => continue,
                Action::Crash | Action::PowerCut if self.violation().is_some() => return,
                Action::Crash => return self.die_as(index, PendingCrash::Crash),
                Action::PowerCut => return self.die_as(index, PendingCrash::PowerCut),
            }
            if let Effect::Persist(batch) = effect {
                if self.write_fails(index) {
                    return;
                }
                self.persist(index, &batch, facts.take().unwrap_or_default());
            } else {
                self.carry(index, effect);
            }
            if let Action::CrashOther(other) = action
                && self.machines[other.0 as usize].is_up()
            {
                self.die_as(other.0 as usize, PendingCrash::Crash);
            }
            if self.violation().is_some() || !self.machines[index].is_up() {
                return;
            }
        }
        if doomed {
            return self.die(index);
        }
        // A flush without writes may still contain facts.
        if let Some(facts) = facts {
            let facts = self.valid(index, facts);
            self.learn(index, None, facts);
        }
    }

    fn ask_hook(&mut self, index: usize, effect: &Effect) -> Action {
        let now = self.now;
        match &mut self.effect_hook {
            Some(hook) => hook(now, NodeId(index as u32), effect),
            None => Action::Carry,
        }
    }

    fn persist(&mut self, index: usize, batch: &Batch, facts: Facts) {
        batch.cleared.iter().for_each(|&partition| self.note_emptied(index, partition));
        let machine = &mut self.machines[index];
        let stands = machine.disk.write_noting(batch);
        machine.last_seq = batch.seq;
        self.mix(batch.seq ^ (batch.writes.len() as u64) << 32);
        self.note_written(index, batch.seq, &stands);
        let facts = self.valid(index, facts);
        let commits: Vec<_> = facts.commits.iter().map(|c| (c.task, c.attempt)).collect();
        let turns: Vec<_> = facts.turns.iter().map(|(by, _)| *by).collect();
        self.note_facts(&stands, &commits, &turns, &facts.ended);
        self.learn(index, Some(batch.seq), facts);
        if !self.machines[index].syncing {
            self.begin_sync(index);
        }
    }

    /// Removes the facts about partitions that have another home now.
    fn valid(&self, index: usize, mut facts: Facts) -> Facts {
        let partitions = self.map.partitions.len() as u32;
        facts.commits.retain(|commit| self.speaks_for(index, commit.task.partition()));
        facts.crash_limits.retain(|((task, _), ..)| self.speaks_for(index, task.partition()));
        facts.crashes.retain(|(task, ..)| self.speaks_for(index, task.partition()));
        facts.turns.retain(|((task, ..), _)| self.speaks_for(index, task.partition()));
        facts.replaced.retain(|(task, ..)| self.speaks_for(index, task.partition()));
        facts.ended.retain(|&job| self.speaks_for(index, kvs::job_partition(job, partitions)));
        facts
    }

    /// Starts a sync. Only one runs at a time; it covers the earlier writes.
    pub(crate) fn begin_sync(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        machine.syncing = true;
        machine.syncs += 1;
        let (life, seq, number) = (machine.life, machine.last_seq, machine.syncs);
        let delay = self.dice.span(self.options.sync_min, self.options.sync_max);
        let delay = self.slowed_down(index, delay, DRAGGED_SYNC_MAX);
        self.schedule(self.now + delay, SimEvent::Synced { node: index, life, seq, number });
    }

    fn learn(&mut self, index: usize, seq: Option<u64>, facts: Facts) {
        // An attempt that ends in this step is rebuilt only after its end. (A task replaced for
        // another reason may still end by the same attempt.)
        let is_new = |&(task, attempt, why): &(TaskId, Attempt, RetryReason)| {
            let is_end = |it: &Committed| (it.task, it.attempt) == (task, attempt);
            matches!(why, RetryReason::Rebuilt | RetryReason::Recalled)
                && facts.commits.iter().any(is_end)
        };
        let (after, before): (Vec<_>, Vec<_>) = facts.replaced.into_iter().partition(is_new);
        for (task, _, why) in before {
            if self.options.faultless {
                self.judge(rounds::on_made_again(task, why));
            }
            let verdict = once::on_replaced(&mut self.jobs, task, why);
            self.judge(verdict);
        }
        for (task, death, why) in facts.spared {
            let why = Some(why).filter(|_| self.can_ask(index, task.partition()));
            let (jobs, lives) = (&mut self.jobs, &self.lives);
            let verdict = poison::on_spared(jobs, lives, (self.now, task), death, why);
            self.judge(verdict);
        }
        for (task, node, incarnation) in facts.crashes {
            self.judge(poison::on_crash_counted(&self.lives, task, (node, incarnation)));
        }
        let by_crashes: Vec<_> = facts.crash_limits.iter().map(|(by, ..)| *by).collect();
        for (task, node, incarnation) in facts.crash_limits {
            let counts = !self.homes_move();
            let killer = self.injection.killer_of(node.0 as usize, incarnation);
            let of = (node, incarnation);
            let verdict = poison::on_crash_limit(&mut self.jobs, task, of, killer, counts);
            self.judge(verdict);
        }
        let mut turns = Vec::new();
        for (by, made) in facts.turns {
            let verdict = self.turns.on_turned(&mut self.jobs, by, made);
            self.judge(verdict);
            turns.push(by);
        }
        let mut commits = Vec::new();
        for Committed { task, attempt, end, node, heard } in facts.commits {
            let verdict = once::on_committed(&mut self.jobs, self.now, task, attempt, end, node);
            self.judge(verdict);
            let by = (task, attempt);
            self.judge(self.check_moves(by, end, by_crashes.contains(&by)));
            if self.only_succeeds(task) && !by_crashes.contains(&by) {
                self.judge(yields::on_committed(task, end));
            }
            let known = self.jobs.get(&task.job).is_some_and(|job| job.heard.contains(&index));
            let known = known && !self.homes_move();
            self.judge(removal::on_committed(task, end, heard || known));
            commits.push((task, attempt));
        }
        for (task, _, why) in after {
            let verdict = once::on_replaced(&mut self.jobs, task, why);
            self.judge(verdict);
        }
        let mut removing = facts.removing;
        let jobs = &mut self.jobs;
        removing.retain(|job| jobs.get_mut(job).is_some_and(|job| job.heard.insert(index)));
        let machine = &mut self.machines[index];
        if let Some(seq) = seq {
            machine.unsynced.push(Unsynced { seq, commits, turns, ended: facts.ended, removing });
        }
    }

    fn carry(&mut self, index: usize, effect: Effect) {
        match effect {
            Effect::Persist(_) => unreachable!("handled by the caller"),
            Effect::Send { to, packet } => self.send(index, to.0 as usize, packet),
            Effect::Reply { client, response } => self.reply(index, client, response),
            Effect::Launch(launch) => self.launch(index, &launch),
            Effect::Part(change) => self.part_changed(index, change),
            Effect::TurnAnswer { task, attempt, answer } => {
                self.turn_answered(index, task, attempt, answer);
            }
            Effect::Variable { job, variable } => self.variable_heard(index, job, &variable),
            Effect::VariablesForgotten { job } => {
                self.variables.on_forgotten((index, self.machines[index].life), job);
            }
            Effect::VariableSet { .. } | Effect::GoesOn { .. } | Effect::Mailbox { .. } => {}
            Effect::Notice { task, attempt } => self.command_told(index, task, attempt),
            Effect::Kill { task, attempt } => {
                self.tell(|| format!("n{index} kills {task} attempt {attempt}"));
                let was_running = self.machines[index].running.remove(&(task, attempt));
                if let Some(running) = &was_running {
                    self.starve.on_ended(self.now, index, running.cpus);
                    self.note_free_resources(index);
                }
                if was_running.is_some() && self.dice.chance(KILL_RACES_PERMILLE) {
                    // Its end was already scheduled.
                    let outcome = Box::new(Self::killed_outcome());
                    self.deliver(index, Input::Finished { task, attempt, outcome });
                }
            }
            Effect::Fetch(fetch) => self.fetch(index, fetch),
            Effect::Discard { task, attempt } => {
                self.tell(|| format!("n{index} discards {task} attempt {attempt}"));
                self.machines[index]
                    .drop_objects(|object, _| (object.task, object.attempt) == (task, attempt));
            }
            Effect::Evict { objects } => {
                for object in objects {
                    self.tell(|| format!("n{index} lets {object:?} go"));
                    self.machines[index].drop_object(&object);
                }
            }
            Effect::Measure => self.measure(index),
            Effect::Read(request) => self.read(index, request),
            // The core deletes its own state.
            Effect::Forget { .. } => {}
            Effect::Erase { job, number } => {
                let takes = ERASE_STEP.0 * (1 + (job.0 + index as u64) % ERASE_STEPS);
                let life = self.machines[index].life;
                let erased = SimEvent::Erased { node: index, life, job, number };
                self.schedule(self.now + Span(takes), erased);
            }
            Effect::Damaged { partition, what } => {
                unreachable!("n{index} has a damaged record of {partition}: {what}")
            }
            Effect::Fenced { restart } => self.fenced(index, restart),
            Effect::MapChanged(_) => {} // Handled above.
            Effect::Trace(event) => self.traced(index, event),
        }
    }

    fn traced(&mut self, index: usize, event: Event) {
        match event {
            Event::Stalled { task, stall, home, holder, quiet } => {
                let said = stall::Stalled { task, stall, home, holder };
                self.stalled.push(said);
                if !self.options.stalls {
                    self.judge(stall::on_stalled(&self.jobs, &said, quiet));
                }
            }
            Event::MissedWakeupRepaired { task } => self.judge(quiet::on_missed_wakeup(task)),
            Event::Dismissed { task, attempt } => {
                self.machines[index].dismissed.insert((task, attempt));
            }
            // The steal was in transit at the dismissal. Or the home has since died and forgotten a
            // later attempt that no other node knew.
            Event::Stolen { task, attempt, .. } => {
                self.machines[index].dismissed.remove(&(task, attempt));
            }
            // An earlier home sent it before another dismissed it, and is home again.
            Event::Queued { task, attempt, reason: Reason::Pushed, .. } if self.homes_move() => {
                self.machines[index].dismissed.remove(&(task, attempt));
            }
            Event::Started { task, attempt, .. } => {
                let now = self.now;
                let machine = &mut self.machines[index];
                if !machine.dismissed.contains(&(task, attempt)) {
                    machine.decided.insert((task, attempt), now);
                }
            }
            _ => {}
        }
        self.trace_event(index, &event);
    }

    /// Removes a job's printed output, unless the process died meanwhile.
    pub(crate) fn erased(&mut self, index: usize, life: u32, job: JobId, number: u64) {
        let machine = &mut self.machines[index];
        if machine.life == life && machine.node.is_some() {
            machine.printed.remove(&job);
            self.deliver(index, Input::Erased { job, number });
        }
    }

    /// Reports CPU time as if the node was always busy.
    fn measure(&mut self, index: usize) {
        let (cpu_ns, peak_rss_bytes) = (self.now.0, 1 << 20);
        self.deliver(index, Input::Measured { cpu_ns, peak_rss_bytes });
    }

    fn read(&mut self, index: usize, request: PageRequest) {
        if request.after.is_none() {
            self.note_read(index, request.partition);
        }
        if self.read_fails(index, &request) {
            return;
        }
        let bytes = request.bytes.min(self.options.page_bytes_max);
        let page = self.machines[index].disk.page(&PageRequest { bytes, ..request });
        // Many small pages must not take long enough to count as a stall.
        let takes = self.dice.span(Span::ZERO, self.options.sync_max.min(READ_MAX));
        let at = self.now + self.slowed_down(index, takes, DRAGGED_READ_MAX);
        let (life, input) = (self.machines[index].life, Box::new(Input::Read(page)));
        self.schedule(at, SimEvent::Input { node: index, life, input });
    }

    fn send(&mut self, from: usize, to: usize, packet: Box<wire::Packet>) {
        if packet.membership.is_empty() {
            self.machines[from].packets_sent += 1;
        } else {
            self.machines[from].membership_sent += 1;
        }
        self.mix(packet.first_seq ^ packet.ack << 20 ^ (packet.reliable.len() as u64) << 40);
        if self.trace.is_told() {
            self.tell(|| format!("n{from} -> n{to} {}", packet_line(&packet)));
        }
        let arrivals = self.network.arrivals(&mut self.dice, self.now, from, to);
        let slower =
            if self.machines[to].slow_down > self.machines[from].slow_down { to } else { from };
        for at in arrivals.into_iter().flatten() {
            let at = self.now + self.slowed_down(slower, at.since(self.now), DRAGGED_PACKET_MAX);
            self.schedule(at, SimEvent::Packet { to, packet: packet.clone() });
        }
    }

    fn launch(&mut self, index: usize, launch: &Launch) {
        let (task, attempt) = (launch.task, launch.attempt);
        self.tell(|| {
            let (slot, lasts) = (launch.slot, launch.duration);
            format!("n{index} launches {task} attempt {attempt} in slot {slot} for {lasts:?}")
        });
        self.mix(task.local.0 ^ attempt.0);
        match known(&mut self.jobs, "order", task) {
            Ok(truth) => _ = truth.launched.insert(attempt),
            Err(violation) => return self.judge(Err(violation)),
        }
        let node = NodeId(index as u32);
        let home = self.home(task.partition().0);
        let machine = &self.machines[index];
        // Where homes move, a launch waits for replicas and may predate the dismissal. Steps are
        // released in order, so the attempt is killed right after its launch.
        let key = (task, attempt);
        let waited = self.homes_move() && machine.decided.contains_key(&key);
        let launched = removal::Launched {
            task,
            // Where homes move, a launch may have waited for replicas since before that.
            at_home: home == index && !self.homes_move(),
            home_heard: self.jobs[&task.job].heard.contains(&home) && !self.homes_move(),
            dismissed: machine.dismissed.contains(&key) && !waited,
            healed: self.injection.ends_at(),
            now: self.now,
        };
        self.judge(removal::on_launch(&self.jobs[&task.job], &launched));
        self.plan_drain(index, launch);
        let script = self.begin_script(launch);
        let claimed = self.check_claims(index, launch).and_then(|()| self.check_patience(launch));
        let claimed = claimed.and_then(|()| self.check_gang(index, launch));
        let claimed = claimed.and_then(|()| self.check_launch(launch));
        let claimed = claimed.and_then(|()| self.check_pause(index, launch));
        let machine = &mut self.machines[index];
        machine.launches += 1;
        let job = &self.jobs[&task.job];
        let verdict = order::on_launch(job, launch)
            .and_then(|()| calls::on_launch(launch))
            .and_then(|()| inputs::on_launch(job, launch, node, &machine.objects))
            .and_then(|()| bound::on_launch(launch, node, machine.slots, &machine.running))
            .and(claimed);
        let absent = |input: &LaunchInput| !machine.objects.contains_key(&input.object);
        let missing = launch.inputs.iter().any(absent);
        let mut running = machine::run(launch, missing);
        running.script = script.filter(|_| running.outcome.is_done());
        let (seed, permille) = (self.options.seed, self.options.varies_permille);
        let sums = self.bytes.on_launch(&mut self.jobs, launch, seed, permille);
        if running.outcome.is_done() {
            running.outcome.output_sums = sums;
        }
        let seq = running.script.as_ref().map(|script| script.seq);
        machine.running.insert((task, attempt), running);
        let (life, slowness) = (machine.life, machine.slowness * machine.slow_down);
        self.judge(verdict);
        if let Some(seq) = seq {
            self.set_variables(index, (task, attempt), seq + 1);
        }
        let cpus = cpus_of(launch);
        let verdict = self.starve.on_launch(self.now, index, (task, attempt), cpus);
        self.note_free_resources(index);
        // A scenario may block the events that would end the wait.
        if self.effect_hook.is_none() {
            self.judge(verdict);
        }
        let overhead = self.dice.span(Span::ZERO, self.options.launch_max);
        let at = self.now + launch.duration + Span(overhead.0 * slowness);
        self.schedule(at, SimEvent::Ended { node: index, life, task, attempt });
    }

    pub(crate) fn attempt_ended(&mut self, index: usize, task: TaskId, attempt: Attempt) {
        if self.machines[index].running.get(&(task, attempt)).is_some_and(|it| it.poison) {
            return self.killed_by(index, task, attempt);
        }
        if self.command_hangs(index, task, attempt) || self.turn_due(index, task, attempt) {
            return;
        }
        let machine = &mut self.machines[index];
        let Some(running) = machine.running.remove(&(task, attempt)) else { return };
        machine.made(running.objects, running.stays);
        // An attempt that no home knows may end after its job is forgotten.
        if self.jobs.get(&task.job).is_some_and(|job| !job.may_be_forgotten) {
            machine.printed.insert(task.job);
        }
        self.starve.on_ended(self.now, index, running.cpus);
        self.note_free_resources(index);
        if let Ok(truth) = known(&mut self.jobs, "once", task) {
            *truth.finished.entry(attempt).or_default() |= running.outcome.is_done();
        }
        self.deliver(index, Input::Finished { task, attempt, outcome: Box::new(running.outcome) });
    }

    pub(crate) fn synced(&mut self, index: usize, seq: u64, number: u64) {
        let machine = &mut self.machines[index];
        if number != machine.syncs {
            return; // A later sync replaced it.
        }
        machine.disk.sync(seq);
        machine.unsynced.retain(|unsynced| unsynced.seq > seq);
        machine.syncing = false;
        if machine.last_seq > seq {
            self.begin_sync(index);
        }
        self.deliver(index, Input::Persisted { seq });
    }

    /// A task kills the process that runs it.
    fn killed_by(&mut self, index: usize, task: TaskId, attempt: Attempt) {
        if self.is_unbearable(Fault::Crash) {
            let (at, life) = (self.now + POISON_WAITS, self.machines[index].life);
            return self.schedule(at, SimEvent::Ended { node: index, life, task, attempt });
        }
        self.tell(|| format!("n{index} is killed by {task}"));
        self.count_fault("poison");
        let (node, incarnation) = (NodeId(index as u32), self.machines[index].incarnation);
        let by_home = self.home(task.partition().0) == index;
        let by = (node, incarnation);
        let verdict = poison::on_kill(&mut self.jobs, (task, attempt), by, by_home);
        self.judge(verdict);
        self.injection.note_killer((index, incarnation), task);
        self.die_as(index, PendingCrash::Crash);
    }

    fn die_as(&mut self, index: usize, pending_crash: PendingCrash) {
        self.machines[index].pending_crash = Some(pending_crash);
        self.die(index);
    }

    /// Ends the process now.
    pub(crate) fn die(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        let pending_crash = machine.pending_crash.take().expect("only a doomed machine dies");
        let state = machine.node.as_ref().map(|node| node.state(self.now));
        machine.lacked_copies = state.is_some_and(|state| state.lacking_copies > 0);
        let end = match pending_crash {
            PendingCrash::PowerCut => wire::LifeEnd::LifeRebooted,
            PendingCrash::Fenced => wire::LifeEnd::LifeFenced,
            PendingCrash::Stopped => wire::LifeEnd::LifeStopped,
            PendingCrash::Crash => wire::LifeEnd::LifeDied,
        };
        machine.former = (Incarnation(machine.incarnation), end);
        self.lives.end(index, self.now, end);
        let machine = &mut self.machines[index];
        machine.forget_process();
        self.acked.forget(index);
        let machine = &mut self.machines[index];
        self.starve.on_up(self.now, index, false);
        let mut lost = Vec::new();
        if pending_crash == PendingCrash::PowerCut {
            let unsynced = machine.unsynced.len();
            assert_eq!(unsynced, machine.disk.unsynced(), "one entry for each write");
            let kept = match self.dice.below(4) {
                0 | 1 => 0,
                2 => self.dice.index(unsynced / TORN_TAIL + 1),
                _ => self.dice.index(unsynced + 1),
            };
            let machine = &mut self.machines[index];
            machine.disk.power_cut_keeping(kept);
            lost = machine.unsynced.split_off(kept);
            machine.unsynced.clear();
        } else {
            machine.disk.crash();
        }
        self.tell(|| format!("n{index} dies: {pending_crash:?}, {} batches lost", lost.len()));
        self.mix(0xdead ^ index as u64);
        if self.homes_move() {
            lost.clear(); // The next home decides which tasks are lost.
        }
        for unsynced in lost.into_iter().rev() {
            for by in unsynced.turns {
                let verdict = self.turns.on_undone(&mut self.jobs, by);
                self.judge(verdict);
            }
            for (task, attempt) in unsynced.commits {
                self.judge(durable::on_task_undone(&self.jobs, task, attempt));
                once::undo(&mut self.jobs, task, attempt);
            }
            for job in unsynced.removing {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.heard.remove(&index);
                }
            }
            for job in unsynced.ended {
                self.judge(durable::on_end_undone(&self.jobs, job));
            }
        }
        self.break_transports(index, pending_crash);
        let pause = self.dice.around(self.injection.options().restart_mean);
        self.schedule(self.now + pause, SimEvent::Start { node: index });
    }
}
