//! What must hold whatever happens: each task ends once, no attempt starts twice, only what was
//! lost is done again, and nothing is left in the end.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::{Again, End, Event};
use proto::work::Launch;
use proto::{Attempt, JobId, NodeId, ObjectId, TaskId};

use crate::cluster::{Machine, Step};

#[derive(Default)]
pub(crate) struct Oracle {
    /// All tasks, with their parents: those whose output 0 they read, and those they only follow.
    pub(crate) tasks: BTreeMap<TaskId, Vec<(TaskId, bool)>>,
    ended: BTreeMap<TaskId, (Attempt, End)>,
    /// Where attempts have started; those that died with their nodes are taken out.
    launched: BTreeMap<(TaskId, Attempt), NodeId>,
    pub(crate) launches: BTreeMap<TaskId, u32>,
    finished: BTreeSet<(TaskId, Attempt)>,
    pub(crate) sizes: BTreeMap<ObjectId, u64>,
    /// Where objects were made.
    pub(crate) made: BTreeSet<(usize, ObjectId)>,
    jobs: BTreeMap<JobId, End>,
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
    pub(crate) fn died(&mut self, node: NodeId) {
        self.launched.retain(|_, other| *other != node);
        self.deaths += 1;
    }
    pub(crate) fn job_end(&self, job: JobId) -> Option<End> {
        self.jobs.get(&job).copied()
    }

    pub(crate) fn on_event(&mut self, node: NodeId, event: &Event, machines: &[Machine]) {
        match *event {
            Event::Committed { task, attempt, end, .. } => {
                if let Some((before, _)) = self.ended.insert(task, (attempt, end)) {
                    self.wrong(format!("{task} ended by {before} and again by {attempt}"));
                }
                if end == End::Done && !self.finished.contains(&(task, attempt)) {
                    self.wrong(format!("{task} is done by {attempt}, which finished nowhere"));
                }
            }
            Event::Replaced { task, attempt, why } => self.replaced(task, attempt, why, machines),
            Event::Woken { task } => self.wrong(format!("{node} had to wake {task}")),
            _ => {}
        }
    }

    fn replaced(&mut self, task: TaskId, attempt: Attempt, _: Again, _: &[Machine]) {
        if self.ended.contains_key(&task) {
            self.wrong(format!("{task} is done again after {attempt}"));
        }
    }

    pub(crate) fn job_ended(&mut self, job: JobId, end: End) {
        if let Some(before) = self.jobs.insert(job, end).filter(|&before| before != end) {
            self.wrong(format!("{job} ended as {before:?}, then as {end:?}"));
        }
        let open = self.tasks.keys().find(|t| t.job == job && !self.ended.contains_key(t)).copied();
        if let Some(task) = open {
            self.wrong(format!("{job} ended, but {task} did not"));
        }
    }

    pub(crate) fn launched(&mut self, node: NodeId, launch: &Launch, objects: &BTreeSet<ObjectId>) {
        let (task, attempt) = (launch.task, launch.attempt);
        *self.launches.entry(task).or_default() += 1;
        // A thief that dies before anybody heard of its theft may have started what the victim then
        // takes back.
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
