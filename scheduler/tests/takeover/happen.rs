//! The events of a cluster, in any order.

use proto::wire::message::Body;
use proto::work::{FetchError, Outcome};
use proto::{JobId, NodeId, ObjectId, Span, TaskId, wire};
use scheduler::{Out, Request};

use crate::cluster::{Cluster, Machine, Process, Step, brief, job_partition};

/// In the first rounds some retries name tasks.
const ROUNDS_NAMED: u32 = 3;

/// Some task of the job is not done.
fn may_retry(state: &wire::JobState) -> bool {
    let sum = state.sum.clone().unwrap_or_default();
    sum.failed + sum.skipped + sum.cancelled > 0
}

impl Cluster {
    /// One random event. Returns false if only the passing of time is left.
    pub(crate) fn happen(&mut self, faults: bool) -> bool {
        if faults && self.dice.chance(4) {
            self.strike();
        }
        if self.dice.chance(100) {
            self.register();
        }
        if self.dice.chance(100) {
            self.commit();
        }
        if !self.oracle.fails.is_empty() && self.dice.chance(20) {
            self.retry();
        }
        let up = self.up();
        let node = self.dice.pick(&up);
        let behind =
            self.machines[node].process.as_ref().is_some_and(|p| p.map.epoch < self.map.epoch);
        if behind && self.dice.chance(100) {
            self.follow_map(node);
            return true;
        }
        match self.dice.below(20) {
            0..9 => self.some_message(),
            9 => self.some_end(),
            10..13 => self.some_fetch(),
            13..18 => self.some_best_effort(),
            _ => {
                self.now = self.now + Span::from_micros(500);
                self.act(node);
                true
            }
        }
    }

    fn some_message(&mut self) -> bool {
        let alive = |&&(_, to): &&(usize, usize)| self.machines[to].process.is_some();
        // A node sends nothing to a new incarnation that it has not heard.
        let knows = |&&(from, to): &&(usize, usize)| {
            let heard = self.machines[from].process.as_ref().map(|p| p.heard.get(&to).copied());
            let incarnation = self.machines[to].incarnation;
            incarnation == 1 || heard == Some(Some(incarnation))
        };
        let some = self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(key, _)| key);
        let mut some: Vec<_> = some.filter(alive).filter(knows).copied().collect();
        // A restarted node greets the others until they have heard it.
        let up = self.up();
        let unheard = |&from: &usize, &to: &usize| {
            let process = self.machines[to].process.as_ref().expect("it is up");
            let incarnation = self.machines[from].incarnation;
            from != to && incarnation > 1 && process.heard.get(&from) != Some(&incarnation)
        };
        for from in &up {
            some.extend(up.iter().filter(|to| unheard(from, to)).map(|&to| (*from, to)));
        }
        if some.is_empty() {
            return false;
        }
        let (from, to) = self.dice.pick(&some);
        self.deliver(from, to);
        true
    }

    fn some_best_effort(&mut self) -> bool {
        if self.best_effort.is_empty() {
            return false;
        }
        let at = self.dice.index(self.best_effort.len());
        let (from, to, body) = self.best_effort.swap_remove(at);
        let now = self.now;
        // The first packet of an incarnation announces it.
        let incarnation = self.machines[from].incarnation;
        let heard =
            |process: &Process| incarnation == 1 || process.heard.get(&from) == Some(&incarnation);
        if !self.machines[to].process.as_ref().is_some_and(heard) {
            return true;
        }
        if self.dice.chance(self.weather.best_effort_permille)
            && let Some(process) = &mut self.machines[to].process
        {
            let mut out = Out::default();
            process.scheduler.on_message(now, NodeId(from as u32), body, &mut out);
            self.finish_step(to, out);
        }
        true
    }

    fn some_end(&mut self) -> bool {
        let ends = |task: &TaskId| !self.oracle.endless.contains(task);
        let running = |machine: &Machine| {
            let process = machine.process.as_ref();
            process.is_some_and(|process| process.running.keys().any(|(task, _)| ends(task)))
        };
        let busy: Vec<usize> =
            (0..self.machines.len()).filter(|&node| running(&self.machines[node])).collect();
        if busy.is_empty() {
            return false;
        }
        let node = self.dice.pick(&busy);
        let machine = &mut self.machines[node];
        let process = machine.process.as_mut().expect("it is busy");
        let incarnation = machine.incarnation;
        let all = process.running.keys().copied();
        let all: Vec<_> = all.filter(|(task, _)| !self.oracle.endless.contains(task)).collect();
        let (task, attempt) = self.dice.pick(&all);
        let launch = process.running.remove(&(task, attempt)).expect("picked");
        let fails = self.oracle.fails.get(&task).is_some_and(|&n| launch.settings.round < n);
        let output_sizes = if fails { Vec::new() } else { launch.output_sizes.clone() };
        for (output, &size_bytes) in (0u32..).zip(&output_sizes) {
            let object = ObjectId { task, attempt, output };
            machine.objects.insert(object);
            self.oracle.sizes.insert(object, size_bytes);
            self.oracle.made.insert(object, (node, incarnation));
        }
        self.oracle.finished(task, attempt);
        let exit_code = i32::from(fails);
        let error = if fails { "it fails".to_owned() } else { String::new() };
        let outcome = Outcome { output_sizes, exit_code, error, ..Outcome::default() };
        let mut out = Out::default();
        let now = self.now;
        process.scheduler.on_finished(now, task, attempt, outcome.into(), &mut out);
        self.finish_step(node, out);
        true
    }

    fn some_fetch(&mut self) -> bool {
        let fetching = |machine: &Machine| {
            machine.process.as_ref().is_some_and(|process| !process.fetching.is_empty())
        };
        let busy: Vec<usize> =
            (0..self.machines.len()).filter(|&node| fetching(&self.machines[node])).collect();
        if busy.is_empty() {
            return false;
        }
        let node = self.dice.pick(&busy);
        let process = self.machines[node].process.as_mut().expect("it is busy");
        let at = self.dice.index(process.fetching.len());
        let fetch = process.fetching.swap_remove(at);
        let from = &self.machines[fetch.from.0 as usize];
        let is_up = from.process.is_some();
        let result = match from.objects.contains(&fetch.object) {
            true if is_up || self.weather.objects_survive => Ok(()),
            false if is_up => Err(FetchError::NotThere),
            _ => Err(FetchError::Unreachable(format!("{} is down", fetch.from))),
        };
        if result.is_ok() {
            self.machines[node].objects.insert(fetch.object);
        }
        self.tell(|| format!("n{node} fetched {:?} from {}: {result:?}", fetch.object, fetch.from));
        let mut out = Out::default();
        let now = self.now;
        let process = self.machines[node].process.as_mut().expect("it is busy");
        process.scheduler.on_fetched(now, fetch.object, fetch.number, result, &mut out);
        self.finish_step(node, out);
        true
    }

    fn strike(&mut self) {
        let up = self.up();
        let down: Vec<usize> = (0..self.machines.len()).filter(|&node| !self.is_up(node)).collect();
        match self.dice.below(3) {
            0 if self.weather.deaths > 0 && up.len() > 1 => {
                self.weather.deaths -= 1;
                let node = self.dice.pick(&up);
                self.kill(node);
            }
            1 if !down.is_empty() && self.weather.returns => {
                let node = self.dice.pick(&down);
                self.start(node);
            }
            _ if self.weather.handovers > 0 => {
                self.weather.handovers -= 1;
                let partition = self.dice.index(self.map.partitions.len());
                self.move_home(partition);
            }
            _ => {}
        }
    }

    /// Retries an ended job with its tasks that are not done: with all of them, or with some.
    fn retry(&mut self) {
        let may = |state: &&wire::JobState| state.ended_ns != 0 && may_retry(state);
        let Some(state) = self.jobs.values().rfind(may).cloned() else { return };
        let job = JobId(state.job);
        let partition = job_partition(job, self.weather.partitions);
        let home = self.primary(partition.0 as usize);
        let round = state.round() + 1;
        let named = round < ROUNDS_NAMED && self.dice.chance(300);
        let some = self.oracle.tasks.keys().filter(|task| task.job == job);
        let some: Vec<u64> = some.map(|task| task.local.0).collect();
        let locals = match named {
            true => (0..=self.dice.below(5)).map(|_| self.dice.pick(&some)).collect(),
            false => Vec::new(),
        };
        let retry = wire::JobRetry { job: job.0, round, locals, ..Default::default() };
        self.oracle.retried(job, named);
        for _ in 0..1 + self.dice.below(2) {
            self.request(home, Request::Retry(retry.clone()));
        }
    }

    /// Lets time pass to the next deadline of any node.
    fn wait(&mut self) {
        let now = self.now;
        let deadlines = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        let next = deadlines.filter_map(|process| process.scheduler.deadline(now)).min();
        self.now = next.unwrap_or(now + Span::from_secs(1)).max(now + Span::from_micros(1));
        for node in self.up() {
            self.act(node);
        }
    }

    /// All submitted jobs have ended, and nothing is left of them anywhere.
    fn is_over(&self) -> bool {
        let ended = self.jobs.values().all(|state| state.ended_ns != 0 && !may_retry(state));
        ended
            && self.commits.is_empty()
            && self.queues.iter().all(|(&(_, to), queue)| queue.is_empty() || !self.is_up(to))
            && self.machines.iter().filter_map(|machine| machine.process.as_ref()).all(|process| {
                process.map.epoch == self.map.epoch
                    && process.fetching.is_empty()
                    && !process.scheduler.census().has_parked
            })
    }

    /// Moves all homes away from this node.
    pub(crate) fn spare(&mut self, node: usize) {
        for partition in 0..self.map.partitions.len() {
            if self.primary(partition) == node {
                self.move_home(partition);
            }
        }
        for _ in 0..1_000 {
            self.register();
            for node in 0..self.machines.len() {
                self.follow_map(node);
            }
        }
    }

    /// Runs until nothing is left to do, except for endless tasks.
    pub(crate) fn drain(&mut self) {
        for _ in 0..1_000 {
            for _ in 0..50 {
                self.happen(false);
            }
            if self.is_drained() {
                return;
            }
        }
        panic!("it does not calm down: {}", self.describe());
    }
    fn is_drained(&self) -> bool {
        let only_endless = |machine: &Machine| {
            machine.process.as_ref().is_none_or(|process| {
                let held = process.scheduler.census().held;
                held.iter().all(|(task, _)| self.oracle.endless.contains(task))
                    && process.fetching.is_empty()
            })
        };
        let copies = |body: &Body| matches!(body, Body::Copies(_) | Body::Locate(_));
        self.commits.is_empty()
            && self.queues.values().all(std::collections::VecDeque::is_empty)
            && !self.best_effort.iter().any(|(_, _, body)| copies(body))
            && self.machines.iter().all(only_endless)
    }

    pub(crate) fn runs_on(&self, node: usize) -> bool {
        self.machines[node].process.as_ref().is_some_and(|process| !process.running.is_empty())
    }
    /// Whether some live node has the object and it has not been freed.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        let has =
            |machine: &Machine| machine.process.is_some() && machine.objects.contains(&object);
        self.machines.iter().any(has) && !self.oracle.freed.contains(&object)
    }

    /// Runs with faults as long as there are any, then without, to the end.
    pub(crate) fn live(&mut self) -> Step {
        let trouble = 500 + self.dice.below(4_000);
        for _ in 0..trouble {
            self.happen(true);
            self.oracle.verdict()?;
        }
        self.weather.deaths = 0;
        self.weather.handovers = 0;
        for node in 0..self.machines.len() {
            if !self.is_up(node) && self.weather.returns && self.dice.chance(500) {
                self.start(node);
            }
        }
        let mut idle = 0;
        for _ in 0..400_000 {
            self.oracle.verdict()?;
            if self.is_over() {
                return self.oracle.at_the_end(&self.machines);
            }
            if !self.dice.chance(3) && self.happen(false) {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle > 20 {
                self.wait();
            }
        }
        Err(format!("it does not end: {}", self.describe()))
    }

    fn describe(&self) -> String {
        let mut text = String::new();
        for (job, state) in &self.jobs {
            text += &format!("{job} {:?} sum {:?}; ", state.phase(), state.sum);
        }
        for (node, machine) in self.machines.iter().enumerate() {
            if let Some(process) = &machine.process {
                let state = process.scheduler.node_state(self.now);
                let census = process.scheduler.census();
                text += &format!(
                    "\nn{node} map {}/{} serves {:?}: {} waiting, {} ready, {} running, {} \
                     fetching; believes {:?}; holds {:?}",
                    process.map.epoch,
                    self.map.epoch,
                    process.serves,
                    state.waiting,
                    state.ready_local + state.ready_shared,
                    state.running,
                    process.fetching.len(),
                    census.believed,
                    census.held,
                );
            }
        }
        for (key, queue) in self.queues.iter().filter(|(_, queue)| !queue.is_empty()) {
            text += &format!("\n{key:?}: {} messages, first {}", queue.len(), brief(&queue[0]));
        }
        text
    }
}
