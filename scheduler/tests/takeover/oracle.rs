//! Properties of every run: each task ends once, no attempt starts twice, only lost outputs are
//! made again, and nothing is left in the end.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::{End, Event, RetryReason};
use proto::wire::message::Body;
use proto::work::Launch;
use proto::{Attempt, JobId, NodeId, ObjectId, TaskId, wire};

use crate::cluster::{Machine, Step};

#[derive(Default)]
pub(crate) struct Oracle {
    /// All tasks, with their parents: those from which they read output 0, and those they only
    /// follow.
    pub(crate) tasks: BTreeMap<TaskId, Vec<(TaskId, bool)>>,
    ended: BTreeMap<TaskId, (Attempt, End)>,
    /// Where attempts have started; those that died with their nodes are removed.
    launched: BTreeMap<(TaskId, Attempt), NodeId>,
    pub(crate) launches: BTreeMap<TaskId, u32>,
    finished: BTreeSet<(TaskId, Attempt)>,
    pub(crate) sizes: BTreeMap<ObjectId, u64>,
    /// Where objects were made, and under which incarnation.
    pub(crate) made: BTreeMap<ObjectId, (usize, u32)>,
    /// Objects that a home has declared to have no readers.
    pub(crate) freed: BTreeSet<ObjectId>,
    reopened: BTreeSet<TaskId>,
    /// Tasks that had ended and ran again.
    pub(crate) rebuilt: BTreeMap<TaskId, u32>,
    /// Tasks that run until they may end.
    pub(crate) endless: BTreeSet<TaskId>,
    jobs: BTreeMap<JobId, End>,
    /// Jobs with a present round that runs only some tasks again.
    partial: BTreeSet<JobId>,
    /// In how many rounds of their jobs tasks fail.
    pub(crate) fails: BTreeMap<TaskId, u32>,
    pub(crate) deaths: u32,
    wrong: Option<String>,
}

impl Oracle {
    fn wrong(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }
    pub(crate) fn verdict(&self) -> Step {
        self.wrong.clone().map_or(Ok(()), Err)
    }
    /// A task that ran at a home that was handed over continues there, unless it is made again.
    pub(crate) fn stopped(&mut self, node: NodeId, task: TaskId, attempt: Attempt) {
        if !self.reopened.contains(&task) {
            self.wrong(format!("{node} hands {task} over and stops {attempt}, which ran there"));
        }
    }
    pub(crate) fn died(&mut self, node: NodeId) {
        self.launched.retain(|_, other| *other != node);
        self.deaths += 1;
    }
    pub(crate) fn has_ended(&self, task: TaskId) -> bool {
        self.ended.contains_key(&task)
    }
    pub(crate) fn attempt_of(&self, task: TaskId) -> Option<Attempt> {
        self.ended.get(&task).map(|&(attempt, _)| attempt)
    }
    pub(crate) fn job_end(&self, job: JobId) -> Option<End> {
        self.jobs.get(&job).copied()
    }

    pub(crate) fn on_event(&mut self, node: NodeId, event: &Event, machines: &[Machine]) {
        match *event {
            Event::Committed { task, attempt, end, .. } => {
                let again = self.reopened.remove(&task);
                if let Some((before, _)) = self.ended.insert(task, (attempt, end))
                    && !again
                {
                    self.wrong(format!("{task} ended by {before} and again by {attempt}"));
                }
                if end == End::Done && !self.finished.contains(&(task, attempt)) {
                    self.wrong(format!("{task} is done by {attempt}, which finished nowhere"));
                }
            }
            Event::Replaced { task, attempt, why } => self.replaced(task, attempt, why, machines),
            Event::MissedWakeupRepaired { task } => {
                self.wrong(format!("{node} had to wake {task}"));
            }
            _ => {}
        }
    }

    fn replaced(&mut self, task: TaskId, attempt: Attempt, why: RetryReason, machines: &[Machine]) {
        if why == RetryReason::NotHeld
            && let Some(&node) = self.launched.get(&(task, attempt))
            && (self.finished.contains(&(task, attempt))
                || runs(&machines[node.0 as usize], (task, attempt)))
        {
            return self
                .wrong(format!("{task} is done again, and {attempt} runs, or ran, on {node}"));
        }
        if why == RetryReason::Round {
            if self.ended.get(&task).is_none_or(|&(_, end)| end == End::Done) {
                self.wrong(format!("{task} is retried, and was done or has not ended"));
            }
            self.reopened.insert(task);
            return;
        }
        let again = self.reopened.contains(&task) && why != RetryReason::Rebuilt;
        if !self.ended.contains_key(&task) || again {
            return;
        }
        if why != RetryReason::Rebuilt {
            return self.wrong(format!("{task} is done again after {attempt}: {why:?}"));
        }
        // A home that takes over in the middle knows only the first end.
        self.reopened.insert(task);
        *self.rebuilt.entry(task).or_default() += 1;
        let object = ObjectId { task, attempt, output: 0 };
        let Some(&(maker, incarnation)) = self.made.get(&object) else { return };
        let there = machines[maker].incarnation == incarnation
            && machines[maker].process.is_some()
            && machines[maker].objects.contains(&object);
        if there && !self.freed.contains(&object) {
            self.wrong(format!("{task} is done again, but n{maker} has what it made"));
        }
        let reads = |(child, parents): (&TaskId, &Vec<(TaskId, bool)>)| {
            let open = !self.ended.contains_key(child) || self.reopened.contains(child);
            parents.contains(&(task, true)) && open
        };
        if !self.tasks.iter().any(reads) {
            self.wrong(format!("{task} is done again, but no task needs its outputs"));
        }
    }

    pub(crate) fn on_body(&mut self, body: &Body) {
        let Body::FreeObjects(unwanted) = body else { return };
        let object = |object: &wire::Object| ObjectId {
            task: TaskId::new(object.job, object.task),
            attempt: Attempt(object.attempt),
            output: object.output,
        };
        self.freed.extend(unwanted.objects.iter().map(object));
    }

    pub(crate) fn job_ended(&mut self, job: JobId, end: End) {
        if let Some(before) = self.jobs.insert(job, end).filter(|&before| before != end) {
            self.wrong(format!("{job} ended as {before:?}, then as {end:?}"));
        }
        let open = self.tasks.keys().find(|t| t.job == job && !self.ended.contains_key(t)).copied();
        if let Some(task) = open {
            self.wrong(format!("{job} ended, but {task} did not"));
        }
        let parent_failed = |(parent, _): &(TaskId, bool)| {
            self.ended.get(parent).is_some_and(|&(_, end)| end != End::Done)
        };
        let skipped = |(task, parents): &(&TaskId, &Vec<(TaskId, bool)>)| {
            let end = self.ended.get(task).map(|&(_, end)| end);
            task.job == job
                && !self.partial.contains(&job)
                && end == Some(End::Skipped)
                && !parents.iter().any(parent_failed)
        };
        if let Some(task) = self.tasks.iter().find(skipped).map(|(&task, _)| task) {
            self.wrong(format!("{job} ended, and {task} is skipped for no parent's sake"));
        }
    }
    /// A further round of the job was requested.
    pub(crate) fn retried(&mut self, job: JobId, partial: bool) {
        self.jobs.remove(&job);
        self.partial.remove(&job);
        self.partial.extend(partial.then_some(job));
    }
    /// The number of tasks of a job that are done.
    pub(crate) fn done(&self, job: JobId) -> usize {
        let done =
            |(task, (_, end)): &(&TaskId, &(Attempt, End))| task.job == job && *end == End::Done;
        self.ended.iter().filter(done).count()
    }

    pub(crate) fn launched(&mut self, node: NodeId, launch: &Launch, objects: &BTreeSet<ObjectId>) {
        let (task, attempt) = (launch.task, launch.attempt);
        *self.launches.entry(task).or_default() += 1;
        // A thief that dies before any node knew of its theft may have started a task that the
        // victim then takes back.
        if self.launched.insert((task, attempt), node).is_some() {
            self.wrong(format!("{task} attempt {attempt} starts twice, now on {node}"));
        }
        if let Some(input) = launch.inputs.iter().find(|input| !objects.contains(&input.object)) {
            self.wrong(format!("{task} starts on {node} without {:?}", input.object));
        }
        let parents = self.tasks.get(&task).cloned().unwrap_or_default();
        for (parent, _) in parents {
            let done = |attempt: &&(TaskId, Attempt)| attempt.0 == parent;
            if !self.finished.iter().any(|finished| done(&finished)) {
                self.wrong(format!("{task} starts before {parent}"));
            }
        }
    }
    pub(crate) fn finished(&mut self, task: TaskId, attempt: Attempt) {
        self.finished.insert((task, attempt));
    }

    pub(crate) fn at_the_end(&self, machines: &[Machine]) -> Step {
        if let Some(task) = self.tasks.keys().find(|task| !self.ended.contains_key(task)) {
            return Err(format!("all jobs have ended, but {task} has not"));
        }
        for (node, machine) in machines.iter().enumerate() {
            let Some(process) = &machine.process else { continue };
            let census = process.scheduler.census();
            if let Some((task, attempt)) = process.running.keys().next() {
                return Err(format!("all is over, but {task} {attempt} runs on n{node}"));
            }
            if let Some((task, attempt)) = census.held.first().or_else(|| census.in_transit.first())
            {
                return Err(format!("all is over, but n{node} holds {task} {attempt}"));
            }
            if let Some(object) = machine.objects.first() {
                return Err(format!("all is over, but n{node} keeps {object:?}"));
            }
        }
        Ok(())
    }
}

fn runs(machine: &Machine, attempt: (TaskId, Attempt)) -> bool {
    machine.process.as_ref().is_some_and(|process| process.running.contains_key(&attempt))
}
