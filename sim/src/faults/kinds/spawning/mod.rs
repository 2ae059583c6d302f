//! A model of tasks that spawn tasks. The behaviour of an attempt follows from the task's number
//! and from the attempt, so a further attempt does other things than the first.

mod extras;
pub(crate) mod late;
mod mail;

use node::Input;
use proto::work::{Launch, Outcome, Turn, TurnAnswer};
use proto::{Attempt, Span, TaskId, wire};

pub(crate) use mail::draw_mail;

use crate::checkers::turns::Request;
use crate::checkers::turns::{born, yields};
use crate::checkers::{Violation, progress};
use crate::faults::event_queue::SimEvent;
use crate::faults::world::World;
use crate::state::expected::KIND_SPAWNING;
use crate::state::script::{DEPTH_BITS, Script, mix};

/// The most generations of one tree, and the most spawned tasks of one job.
const DEPTH_MAX: u64 = 4;
const SPAWNED_MAX: usize = 60;
/// The longest duration of a child, and of the pause between two turns.
const DURATION_MAX: Span = Span::from_millis(20);
/// The pause between a refused turn and the next one.
const REFUSED_PAUSE: Span = Span::from_millis(1);

/// A turn, and its children in the simulator's terms.
struct Planned {
    turn: Turn,
    request: Request,
}

impl World {
    /// A task that spawns others starts here.
    pub(crate) fn begin_script(&mut self, launch: &Launch) -> Option<Box<Script>> {
        if launch.spec.kind != KIND_SPAWNING {
            return None;
        }
        let truth = self.jobs.get(&launch.task.job)?.tasks.get(&launch.task.local)?;
        if !launch.spec.outputs.is_empty() && (truth.was_done || truth.ever_done()) {
            return None; // It makes its outputs again.
        }
        if launch.entry >> 63 == 1 {
            let verdict = born::on_launch(&mut self.turns, launch);
            self.judge(verdict);
        }
        let verdict = yields::on_launch(&self.turns, launch);
        self.judge(verdict);
        if let Some(resume) = &launch.resume {
            let verdict = self.turns.on_letters(launch.task, resume.seq, &resume.letters);
            self.judge(verdict);
        }
        Some(Box::new(Script::of(launch)))
    }

    /// The attempt has run for its duration. Returns true if it commits a turn now, and false if it
    /// ends.
    pub(crate) fn turn_due(&mut self, index: usize, task: TaskId, attempt: Attempt) -> bool {
        let running = self.machines[index].running.get(&(task, attempt));
        let Some(script) = running.and_then(|running| running.script.clone()) else { return false };
        if script.pending.is_some() {
            return true;
        }
        let is_last = script.steps >= script.steps_max();
        let Planned { turn, mut request } = self.plan_turn(task, attempt, &script, is_last);
        request.used = self.used_value(index, task.job);
        let by = (task, attempt, script.seq + 1);
        if !is_last && self.sends_refused(index, (task, attempt), &script, &turn) {
            return true;
        }
        let running = self.machines[index].running.get_mut(&(task, attempt));
        let Some(running) = running else { return false };
        if is_last {
            let mails = !request.events.is_empty() || !request.consumed.is_empty();
            let adds = !request.children.is_empty() || !request.sums.is_empty() || mails;
            if script.seq > 0 || adds {
                running.outcome.turn = adds.then(|| Box::new(turn.clone()));
                let state = self.turns.committed.get(&task).and_then(|turns| {
                    turns.get(&script.seq).and_then(|turn| turn.request.state.clone())
                });
                let state =
                    if running.outcome.turn.is_some() { request.state.clone() } else { state };
                self.turns.on_request(by, Request { state, ..request });
            }
            return false;
        }
        let script = running.script.as_mut().expect("looked at above");
        script.pending = Some(turn.verdict);
        script.consumes.clone_from(&turn.consumed);
        self.turns.on_request(by, request);
        self.tell(|| format!("n{index}: {task} attempt {attempt} makes turn {}: {turn:?}", by.2));
        self.deliver(index, Input::Turn { task, attempt, turn: Box::new(turn) });
        true
    }

    /// Sends a turn that must be refused, if this one is to follow such a turn.
    fn sends_refused(
        &mut self,
        index: usize,
        (task, attempt): (TaskId, Attempt),
        script: &Script,
        turn: &Turn,
    ) -> bool {
        let Some(extra) = self.extra(mix(script.own, attempt.0), script.seq + 9) else {
            return false;
        };
        if script.refused_seq == script.seq + 1 {
            return false;
        }
        let key = script.key.as_deref();
        let bad = extras::refused(extra, task, turn, script.children, key);
        let Some(bad) = bad else { return false };
        let running = self.machines[index].running.get_mut(&(task, attempt));
        let Some(script) = running.and_then(|running| running.script.as_mut()) else {
            return false;
        };
        (script.pending, script.is_refused) = (Some(bad.verdict), true);
        script.refused_seq = script.seq + 1;
        self.tell(|| format!("n{index}: {task} attempt {attempt} makes a bad turn: {bad:?}"));
        self.deliver(index, Input::Turn { task, attempt, turn: Box::new(bad) });
        true
    }

    /// A number for more than turns without names, edges and refusals, where the seed has them.
    fn extra(&self, own: u64, salt: u64) -> Option<u64> {
        self.options.more_turns.map(|seed| mix(mix(seed, own), salt))
    }

    fn plan_turn(&self, task: TaskId, attempt: Attempt, script: &Script, is_last: bool) -> Planned {
        let dice = mix(mix(script.own, attempt.0), script.seq + 3);
        let room = script.depth() < DEPTH_MAX
            && self.turns.wanted.get(&task.job).copied().unwrap_or(0) < SPAWNED_MAX;
        let count = if room { dice >> 8 & 3 } else { 0 };
        let child = |at: u64| {
            let own = mix(dice, at) >> DEPTH_BITS << DEPTH_BITS;
            1 << 63 | own | (script.depth() + 1)
        };
        let children: Vec<u64> = (0..count).map(child).collect();
        let duration = |child: &u64| Span(mix(*child, 5) % DURATION_MAX.0);
        let durations: Vec<Span> = children.iter().map(duration).collect();
        let tasks = children.iter().zip(&durations).map(|(&entry, duration)| wire::Task {
            entry,
            duration_ns: duration.0,
            ..wire::Task::default()
        });
        let spec = wire::Spec {
            kind: KIND_SPAWNING.to_owned(),
            name: "child".to_owned(),
            cpus: 1,
            body: Some(wire::spec::Body::Sleep(wire::Sleep {})),
            ..wire::Spec::default()
        };
        let spawned =
            wire::Spawned { specs: vec![spec], tasks: tasks.collect(), ..wire::Spawned::default() };
        let all = script.children + count;
        let extra = self.extra(dice, 0);
        let mut awaits = self.pick_awaited(task, dice, all);
        awaits.extend(extra.and_then(|extra| extras::unknown_task(extra, task, self.partitions())));
        let verdict = match dice & 3 {
            _ if is_last => wire::TurnVerdict::TurnDone,
            _ if script.keeps_nodes => wire::TurnVerdict::TurnMore,
            _ if script.yields() => wire::TurnVerdict::TurnYield,
            0 | 1 if !awaits.is_empty() => wire::TurnVerdict::TurnWait,
            2 => wire::TurnVerdict::TurnYield,
            _ => wire::TurnVerdict::TurnMore,
        };
        let mut state = vec![script.steps + 1];
        state.extend(dice.to_le_bytes());
        let awaits = if verdict == wire::TurnVerdict::TurnWait { awaits } else { Vec::new() };
        let sums = self.sums_of_turn((task, attempt), script.seq + 1);
        let mut request = Request {
            children,
            durations,
            state: Some(state.clone()),
            sums: sums.clone(),
            ..Request::default()
        };
        let mut turn =
            Turn { verdict, spawned, awaits, state: Some(state), sums, ..Turn::default() };
        self.add_mail((task, attempt), script, is_last, (&mut turn, &mut request));
        if let Some(extra) = extra {
            // A lost output of a task that has spawned others ends its job as lost.
            let with_outputs = self.injection.options().left_away == 0;
            extras::enrich(extra, &mut turn, &mut request, with_outputs);
        }
        if let Some(number) = self.options.late_inputs {
            let earlier = self.turns.kept_until(task, script.seq);
            late::add(mix(number, dice), &mut turn, &mut request, &earlier);
        }
        Planned { turn, request }
    }

    /// Children, and sometimes a submitted task without parents: nothing that waits for this task.
    /// A home refuses a wait for a task that it does not have, and it may not have received all
    /// tasks of an open job yet.
    fn pick_awaited(&self, task: TaskId, dice: u64, children: u64) -> Vec<wire::TaskRef> {
        use wire::task_ref::Task::{Child, Local};
        let mut named = Vec::new();
        if children > 0 {
            named.push(Child(dice % children));
            named.push(Child(children - 1));
        }
        let job = self.jobs.get(&task.job).filter(|job| !job.is_open);
        let free = job.into_iter().flat_map(|job| &job.tasks).filter(|(local, other)| {
            let is_plain = other.kind != KIND_SPAWNING && !other.spawned;
            is_plain && other.slots.is_empty() && **local != task.local
        });
        let free: Vec<u64> = free.map(|(local, _)| local.0).take(8).collect();
        if !free.is_empty() && dice >> 16 & 1 == 1 {
            named.push(Local(free[dice as usize % free.len()]));
        }
        named.dedup();
        named.into_iter().map(|task| wire::TaskRef { task: Some(task) }).collect()
    }

    /// The core answers a turn.
    pub(crate) fn turn_answered(
        &mut self,
        index: usize,
        task: TaskId,
        attempt: Attempt,
        answer: TurnAnswer,
    ) {
        self.tell(|| format!("n{index}: {task} attempt {attempt} is answered {answer:?}"));
        let running = self.machines[index].running.get_mut(&(task, attempt));
        let Some(running) = running else { return };
        let Some(script) = running.script.as_mut() else { return };
        let Some(verdict) = script.pending.take() else { return };
        let is_refused = std::mem::take(&mut script.is_refused);
        match answer {
            TurnAnswer::Refused(_) if is_refused => {
                let (at, life) = (self.now + REFUSED_PAUSE, self.machines[index].life);
                self.schedule(at, SimEvent::Ended { node: index, life, task, attempt });
            }
            TurnAnswer::Committed(_) if is_refused => {
                let text = format!("{task}: a bad turn of attempt {attempt} is committed");
                self.judge(Err(Violation::new("turns", text)));
            }
            TurnAnswer::Committed(commit) => {
                let goes_on = verdict == wire::TurnVerdict::TurnMore || commit.awaited.is_some();
                if !goes_on {
                    script.pending = Some(verdict); // The attempt is ended next.
                    return;
                }
                script.seq = commit.seq;
                script.steps += 1;
                script.children += u64::from(commit.count);
                let consumed = std::mem::take(&mut script.consumes);
                script.letters.retain(|number, _| !consumed.contains(number));
                script.read(commit.letters.iter().cloned());
                let pause = Span(mix(script.own, commit.seq) % DURATION_MAX.0);
                let verdict = self.turns.on_answered(task, &commit);
                self.judge(verdict);
                self.set_variables(index, (task, attempt), commit.seq + 1);
                let (at, life) = (self.now + pause, self.machines[index].life);
                self.schedule(at, SimEvent::Ended { node: index, life, task, attempt });
            }
            TurnAnswer::Fenced => {
                if let Some(running) = self.machines[index].running.remove(&(task, attempt)) {
                    self.starve.on_ended(self.now, index, running.cpus);
                    self.note_free_resources(index);
                }
            }
            TurnAnswer::Refused(error) => {
                let text = format!("{task}: a turn of attempt {attempt} is refused: {error}");
                self.judge(Err(Violation::new("turns", text)));
            }
        }
    }

    pub(crate) fn is_spawning(&self, task: TaskId) -> bool {
        let truth = self.jobs.get(&task.job).and_then(|job| job.tasks.get(&task.local));
        truth.is_some_and(|truth| truth.kind == KIND_SPAWNING)
    }

    /// Whether the task spawns and ends well, unless its nodes die.
    pub(crate) fn only_succeeds(&self, task: TaskId) -> bool {
        let Some(job) = self.jobs.get(&task.job).filter(|_| self.is_spawning(task)) else {
            return false;
        };
        job.tasks.get(&task.local).is_some_and(|truth| !progress::may_lack_inputs(job, truth))
    }

    /// A killed attempt reports nothing that it has spawned.
    pub(crate) fn killed_outcome() -> Outcome {
        let (error, exit_code) = ("killed".to_string(), 137);
        Outcome { error, exit_code, ..Outcome::default() }
    }
}
