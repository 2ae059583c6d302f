//! The requests of clients to the scheduler, and its answers.

use std::collections::BTreeSet;

use proto::limits::GANG_NODES_MAX;
use proto::wire::open_request::What;
use proto::wire::response;
use proto::work::Captured;
use proto::{Attempt, ClientId, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

use crate::holder::task::{Work, is_upload};
use crate::home::errors::unknown_task;
pub(crate) use crate::home::errors::{busy, not_yet, refused, unknown_job, wrong_home};
use crate::home::jobs::Watched;
use crate::home::ledger::{Job, State, check_places};
use crate::output::{Answer, Out};
use crate::{Homes, Scheduler};

/// The explanation when no node can run a task.
pub(crate) const KEEPERS_ALONE: &str =
    "all nodes are keepers (--slots 0), which run nothing: start a node that has slots";

/// A request that the scheduler answers.
#[derive(Debug)]
pub enum Request {
    Submit(wire::Chunk),
    Commit(wire::JobCommit),
    Job(wire::JobQuery),
    /// Answered on each change until the job ends.
    WatchJob(wire::JobQuery),
    Jobs,
    Tasks(wire::TasksQuery),
    Explain(wire::TaskQuery),
    Cancel(wire::Cancel),
    Tune(wire::Tuning),
    Retry(wire::JobRetry),
    Forget(wire::JobForget),
    /// About an open job.
    Open(wire::OpenRequest),
    /// Answered on each end of a task until the job ends.
    WatchEnds(wire::EndsQuery),
    SetVariable(wire::VarWrite),
}

impl Request {
    /// The partitions with the homes that must answer the request. Empty if every node can answer
    /// it.
    #[must_use]
    pub fn partitions(&self, homes: &Homes) -> Vec<PartitionId> {
        let of_job = |job: u64| vec![homes.job_partition(JobId(job))];
        match self {
            Self::Submit(chunk) => vec![PartitionId(chunk.partition)],
            Self::Commit(commit) => of_job(commit.job),
            Self::Job(query) | Self::WatchJob(query) => of_job(query.job),
            Self::Explain(query) => vec![LocalId(query.local).partition()],
            Self::Retry(retry) => of_job(retry.job),
            Self::Forget(forget) => of_job(forget.job),
            Self::SetVariable(write) => of_job(write.job),
            Self::Cancel(cancel) if cancel.locals.is_empty() => of_job(cancel.job),
            Self::Cancel(cancel) => {
                cancel.locals.iter().map(|&local| LocalId(local).partition()).collect()
            }
            Self::Open(request) => match &request.what {
                Some(What::Release(wire::ReleaseOutputs { partition, .. })) => {
                    vec![PartitionId(*partition)]
                }
                Some(What::CountOpen(query)) => vec![PartitionId(query.partition)],
                Some(What::Reserve(_) | What::Close(_) | What::Sign(_)) | None => {
                    of_job(request.job)
                }
            },
            Self::WatchEnds(query) => vec![PartitionId(query.partition)],
            Self::Jobs | Self::Tasks(_) | Self::Tune(_) => Vec::new(),
        }
    }
}

impl Scheduler {
    /// Answers one request. A watch gets a further answer on each change.
    pub fn on_request(
        &mut self,
        now: Time,
        client: ClientId,
        id: u64,
        request: Request,
        out: &mut Out,
    ) {
        let answer = match request {
            Request::Submit(chunk) if chunk.open => {
                match self.append(now, (client, id), chunk, out) {
                    Some(answer) => answer,
                    None => return, // It follows.
                }
            }
            Request::Submit(chunk) => self.submit(now, chunk, out),
            Request::Open(request) => self.on_open_request(now, request, out),
            Request::WatchEnds(query) => match self.watch_ends((client, id), query, out) {
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Request::Commit(commit) => self.commit(now, commit, out),
            Request::Job(query) => match self.home.jobs.ask(query, out) {
                Some(state) => state.map(response::Body::Job).map_err(refused),
                None => Err(unknown_job(query.job)),
            },
            Request::Retry(retry) => self.retry_job(now, &retry, out),
            Request::Forget(forget) => self.forget_job(now, forget, out),
            Request::WatchJob(query) => {
                match self.home.jobs.watch(JobId(query.job), client, id, out) {
                    Watched::Answered => return,
                    Watched::Unknown => Err(unknown_job(query.job)),
                    Watched::Forgotten(text) => Err(refused(text)),
                    Watched::TooMany => {
                        Err(busy(format!("job {} is watched by too many", query.job)))
                    }
                }
            }
            Request::Jobs => {
                let jobs = self.home.jobs.summaries().collect();
                Ok(response::Body::Jobs(wire::JobStates { jobs }))
            }
            Request::Tasks(query) => Ok(response::Body::Tasks(self.list(&query))),
            Request::Explain(query) => self.explain(&query),
            Request::Cancel(cancel) => self.cancel(now, &cancel, out),
            Request::Tune(change) => self.tune(&change, out),
            Request::SetVariable(write) => self.write_variable(&write, out),
        };
        let mut response = wire::Response { id, ..Default::default() };
        match answer {
            Ok(body) => response.body = Some(body),
            Err(error) => response.error = Some(error),
        }
        out.answers.push(Answer { client, response });
    }

    /// Changes the policy settings of this node.
    fn tune(
        &mut self,
        change: &wire::Tuning,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        let tuning =
            self.options.tuning.with(change).map_err(|error| refused(error.to_string()))?;
        self.retune(tuning, out);
        self.home.jobs.retain_soon();
        Ok(response::Body::Accepted(wire::Accepted {}))
    }

    pub fn forget_client(&mut self, client: ClientId) {
        self.home.jobs.forget_client(client);
        if let Some(open_jobs) = &mut self.home.open_jobs {
            open_jobs.forget_client(client);
        }
    }

    fn submit(
        &mut self,
        now: Time,
        chunk: wire::Chunk,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        if !self.routing.homes().is_mine(PartitionId(chunk.partition)) {
            return Err(wrong_home(chunk.partition));
        }
        self.check_chunk(&chunk)?;
        match self.home.ledger.accept_chunk(now, chunk, out) {
            Ok(_) => Ok(response::Body::Accepted(wire::Accepted {})),
            Err(error) => Err(refused(error.to_string())),
        }
    }

    /// Refuses a chunk with tasks that no node can run, or with edges that lead nowhere.
    pub(crate) fn check_chunk(&self, chunk: &wire::Chunk) -> Result<(), wire::Error> {
        let widest = self.routing.homes().slots_max().max(self.options.slots);
        chunk.specs.iter().try_for_each(check_nodes).map_err(refused)?;
        for spec in distinct_requests(&chunk.specs) {
            self.check_request(spec)?;
        }
        let is_wide = |spec: &&wire::Spec| {
            spec.request.is_empty() && spec.cpus > widest && !spec.awaits_nodes
        };
        if let Some(spec) = chunk.specs.iter().find(is_wide) {
            if self.routing.homes().any_unknown() {
                return Err(busy("some nodes have not said yet how many slots they have".into()));
            }
            if self.routing.homes().all_keep() {
                return Err(refused(KEEPERS_ALONE.into()));
            }
            let text = format!(
                "task '{}' needs {} cpus and the widest node has {widest}",
                spec.name, spec.cpus
            );
            return Err(refused(text));
        }
        check_places(chunk, self.routing.homes().partitions())
            .map_err(|error| refused(error.to_string()))
    }

    fn commit(
        &mut self,
        now: Time,
        commit: wire::JobCommit,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        if self.routing.homes().job_home(JobId(commit.job)) != self.options.me {
            return Err(wrong_home(u32::MAX));
        }
        match self.home.jobs.commit(now, commit, self.routing.homes(), out) {
            Ok(()) => Ok(response::Body::Accepted(wire::Accepted {})),
            Err(text) => Err(refused(text)),
        }
    }

    fn retry_job(
        &mut self,
        now: Time,
        retry: &wire::JobRetry,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        if self.routing.homes().job_home(JobId(retry.job)) != self.options.me {
            return Err(wrong_home(u32::MAX));
        }
        match self.home.jobs.retry(now, retry, self.routing.homes(), out) {
            Some(state) => state.map(response::Body::Job).map_err(refused),
            None => Err(unknown_job(retry.job)),
        }
    }

    fn forget_job(
        &mut self,
        now: Time,
        forget: wire::JobForget,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        if self.routing.homes().job_home(JobId(forget.job)) != self.options.me {
            return Err(wrong_home(u32::MAX));
        }
        match self.home.jobs.forget(now, forget, self.routing.homes(), out) {
            Some(Ok(())) => Ok(response::Body::Accepted(wire::Accepted {})),
            Some(Err(text)) => Err(refused(text)),
            None => Err(unknown_job(forget.job)),
        }
    }

    /// A page of task states. Tasks that this node runs are shown as running. After the last page
    /// come remote tasks that run here: their homes know only the holder.
    fn list(&self, query: &wire::TasksQuery) -> wire::TaskStates {
        let mut states = self.home.ledger.list(query);
        for state in &mut states.tasks {
            let task = TaskId::new(query.job, state.local);
            self.mark_running(task, state);
        }
        if states.end {
            let running = self.holder.running().iter().filter(|(task, _)| task.job.0 == query.job);
            let remote_tasks =
                running.filter(|(task, _)| !self.routing.homes().is_mine(task.partition()));
            let mut remote_tasks: Vec<_> = remote_tasks
                .map(|(task, running)| self.remote_task_state(*task, running.attempt()))
                .collect();
            remote_tasks.sort_unstable_by_key(|state| state.local);
            states.tasks.extend(remote_tasks);
        }
        states
    }

    /// The state of a remote task that this node holds.
    fn remote_task_state(&self, task: TaskId, attempt: Attempt) -> wire::TaskState {
        let mut state = wire::TaskState {
            local: task.local.0,
            phase: wire::TaskPhase::Ready as i32,
            attempt: attempt.0,
            node: self.options.me.0,
            placed: true,
            ..Default::default()
        };
        self.mark_running(task, &mut state);
        state
    }

    fn mark_running(&self, task: TaskId, state: &mut wire::TaskState) {
        if self
            .holder
            .running()
            .get(&task)
            .is_some_and(|running| running.attempt().0 == state.attempt)
        {
            state.set_phase(wire::TaskPhase::RunningTask);
        }
    }

    /// The attempt by which a task homed here is done, and how many bytes that attempt printed.
    #[must_use]
    pub fn captured(&self, task: TaskId) -> Option<(Attempt, Captured)> {
        self.home.ledger.captured(task)
    }

    /// Whether a job has ended; `None` if this node does not know the job.
    #[must_use]
    pub fn has_ended(&self, job: JobId) -> Option<bool> {
        self.home.ledger.job(job).map(Job::has_ended)
    }

    /// Whether this node has chunks of a job and has not received its commit.
    #[must_use]
    pub fn is_uncommitted(&self, job: JobId) -> bool {
        self.home.ledger.job(job).is_some_and(|job| !job.is_visible())
    }

    /// Whether only kept outputs of a job are still needed; `None` if this node does not know the
    /// job.
    #[must_use]
    pub fn is_over(&self, job: JobId) -> Option<bool> {
        let ended = self.has_ended(job)?;
        Some(ended && !self.home.ledger.keeps_data(job))
    }

    /// The cause that blocks a stalled job, at the job's home.
    #[must_use]
    pub fn blocker_of(&self, job: JobId) -> Option<&wire::Stall> {
        self.home.jobs.blocker_of(job)
    }

    /// Whether a task is live here that stands for an uploaded file; `None` if this node is not its
    /// home.
    #[must_use]
    pub fn awaits_file(&self, task: TaskId) -> Option<bool> {
        let here = || {
            let live = self.has_ended(task.job) == Some(false);
            live && self.home.ledger.spec(task).is_some_and(|spec| is_upload(spec))
        };
        self.routing.homes().is_home_of(task).then(here)
    }

    /// Whether this node has a replica of the partition.
    #[must_use]
    pub fn has_replica(&self, partition: PartitionId) -> bool {
        self.routing.homes().has_replica(self.options.me, partition)
    }

    /// Explains why the task is where it is. This node answers as the task's home, its holder, or
    /// both.
    fn explain(&self, query: &wire::TaskQuery) -> Result<response::Body, wire::Error> {
        let task = TaskId { job: JobId(query.job), local: LocalId(query.local) };
        if query.sums_after > 0 {
            let task = self.home.ledger.output_sums(task, query.sums_after);
            let explanation = wire::Explanation { task, ..Default::default() };
            return Ok(response::Body::Explanation(explanation));
        }
        let throttled = self.home.ledger.throttled_by(task);
        let waits = throttled.is_some() || self.home.awaiting_wide_node.contains(&task);
        let runs = self.holder.running().contains_key(&task);
        let mut explanation = match self.home.ledger.explain(task, (waits, runs)) {
            Some(explanation) => explanation,
            None if self.holds(task) => {
                let running = self.holder.running().get(&task).map(|running| running.attempt());
                let task = self.remote_task_state(task, running.unwrap_or_default());
                wire::Explanation { task: Some(task), ..Default::default() }
            }
            None => return Err(unknown_task(task)),
        };
        if let Some(state) = &mut explanation.task {
            self.mark_running(task, state);
        }
        let held_here = match self.home.ledger.state(task) {
            Some(State::Ready) => {
                self.home.ledger.cell(task).is_some_and(|c| c.holder() == self.options.me)
            }
            Some(_) => false,
            None => self.holds(task),
        };
        if self.home.awaiting_wide_node.contains(&task) {
            explanation.lines.push(self.explain_awaiting_wide_node(task));
            explanation.awaits_node = self.home.ledger.needs(task);
        }
        if let Some(at_most) = throttled {
            let text = format!("it waits: at most {at_most} tasks of its job run at once");
            explanation.lines.push(text);
        }
        if held_here {
            explanation.lines.push(self.explain_held(task));
            explanation.lines.extend(self.explain_pause(task));
            explanation.lines.extend(self.explain_lengths(task));
        }
        explanation.holders = self.holders_of_result(task);
        self.home.ledger.tell_asked(task, &mut explanation);
        Ok(response::Body::Explanation(explanation))
    }

    /// Whether this node has the task of another home: queued, staged or running.
    #[must_use]
    pub fn holds(&self, task: TaskId) -> bool {
        self.holder.remote_tasks().contains_key(&task)
            || self.holder.staging().contains_key(&task)
            || self.holder.running().contains_key(&task)
    }

    /// Explains why no present node can run the task.
    pub(crate) fn explain_awaiting_wide_node(&self, task: TaskId) -> String {
        let work = self.home.ledger.work(task);
        let cpus = work.as_ref().map_or(1, |work| work.cpus());
        let request = work.as_ref().and_then(Work::request);
        let ends = work.as_ref().and_then(|work| self.explain_end(work));
        let lacks = work.as_ref().and_then(|work| self.explain_lack(work));
        let is_bound = work.is_some_and(|work| work.is_bound());
        match self.routing.homes().all_keep() {
            true => KEEPERS_ALONE.to_owned(),
            false if is_bound => {
                "its home is a keeper until a node that works is filled".to_owned()
            }
            false if let Some(ends) = ends => ends,
            false if let Some(lacks) = lacks => lacks,
            false if request.is_some() => {
                let asked = request.map_or_else(String::new, |request| request.to_string());
                format!("it waits for {asked}: no node that is there offers it")
            }
            false => format!("it needs {cpus} cpus, and no node that is there has that many slots"),
        }
    }

    /// Checks whether some member offers the request of a task.
    fn check_request(&self, spec: &wire::Spec) -> Result<(), wire::Error> {
        let request = check_shape(spec).map_err(refused)?;
        if spec.awaits_nodes {
            return Ok(());
        }
        let mut members = self.routing.homes().not_removed();
        let fits = |node: NodeId| {
            let offer = self
                .routing
                .homes()
                .offer_of(node)
                .filter(|_| self.routing.homes().slots_of(node) > 0);
            offer.is_some_and(|offer| offer.fits(&request))
        };
        if members.any(fits) {
            return Ok(());
        }
        if self.routing.homes().any_unknown() {
            return Err(busy("some nodes have not said yet what they offer".into()));
        }
        match self.routing.homes().all_keep() {
            true => Err(refused(KEEPERS_ALONE.into())),
            false => Err(refused(format!("task '{}': {}", spec.name, self.no_offer(&request)))),
        }
    }
    /// The reason why a task with a request waits here, if it does.
    pub(crate) fn explain_request_of(&self, task: TaskId) -> Option<String> {
        let is_here = !self.holder.running().contains_key(&task) && self.is_queued_here(task);
        let work = self.work_here(task).filter(|work| is_here && work.has_request());
        work.and_then(|work| self.explain_request(&work))
    }
    /// Whether this node holds the task and has not started it.
    fn is_queued_here(&self, task: TaskId) -> bool {
        let own = self.home.ledger.cell(task).is_some_and(|cell| cell.is_held_by(self.options.me));
        own || self.holder.remote_tasks().contains_key(&task)
            || self.holder.staging().contains_key(&task)
    }
    /// The work of a task that this node holds.
    pub(crate) fn work_here(&self, task: TaskId) -> Option<Work> {
        let staged = self.holder.staging().get(&task).map(|staged| staged.work().clone());
        let remote = || self.holder.remote_tasks().get(&task).map(|remote| remote.work.clone());
        staged.or_else(remote).or_else(|| self.home.ledger.work(task))
    }

    fn explain_pause(&self, task: TaskId) -> Option<String> {
        let is_paused = self.holder.slots().is_paused();
        let waits = is_paused && !self.holder.running().contains_key(&task);
        let me = self.options.me;
        let text = "is paused: it starts nothing before 'starling node resume'";
        waits.then(|| format!("node {me} {text}"))
    }

    fn explain_held(&self, task: TaskId) -> String {
        let me = self.options.me;
        if self.holder.running().contains_key(&task) {
            return format!("it runs on node {me} now");
        }
        if let Some(staged) = self.holder.staging().get(&task) {
            return match staged.missing().len() {
                0 => {
                    let place = match staged.work().inputs.is_empty() {
                        true => format!("it is next on node {me}"),
                        false => format!("its inputs are on node {me}"),
                    };
                    let why = self.explain_gang(task).or_else(|| self.explain_short(staged.work()));
                    let why = why.unwrap_or_else(|| "it waits for a free slot there".into());
                    format!("{place}; {why}")
                }
                n => format!("node {me} is fetching {n} of its inputs from other nodes"),
            };
        }
        let work = self.work_here(task);
        let lack = work.as_ref().and_then(|work| self.explain_lack(work));
        let short = || work.as_ref().and_then(|work| self.explain_short(work));
        if let Some(why) = lack.or_else(short) {
            return format!("it is queued on node {me}; {why}");
        }
        format!(
            "it is queued on node {me}: {} tasks in LReadyQ, {} in SReadyQ, {} of {} slots are busy",
            self.holder.local().len(),
            self.holder.shared().len(),
            self.holder.slots().busy(),
            self.holder.slots().total(),
        )
    }

    /// The measured durations on which this node's estimates rest.
    fn explain_lengths(&self, task: TaskId) -> Vec<String> {
        let me = self.options.me;
        let sentence = |which: String, spread: [Span; 4]| {
            let [mean, deviation, median, high] = spread.map(Span::as_secs_f64);
            format!(
                "{which} that ended on node {me} took {mean:.3} s on the average (deviation \
                 {deviation:.3} s), half of them about {median:.3} s or less, 95 % about \
                 {high:.3} s or less"
            )
        };
        let remote = self.holder.remote_tasks().get(&task).map(|remote| &remote.work.spec);
        let spec = remote.or_else(|| self.home.ledger.spec(task));
        let kind = spec.map(|spec| spec.kind.as_str()).filter(|kind| !kind.is_empty());
        let of_kind = kind.and_then(|kind| {
            let spread = self.policy.estimates().spread_of(kind)?;
            Some(sentence(format!("tasks of its kind, '{kind}',"), spread))
        });
        let of_all =
            self.policy.estimates().spread().map(|spread| sentence("tasks".into(), spread));
        of_kind.into_iter().chain(of_all).collect()
    }

    /// The configured policy, and the policy that ADAPTIVE applies now.
    pub(crate) fn policy_text(&self) -> String {
        let (set, holds) = (self.options.tuning.policy, self.policy());
        if set == holds {
            set.name().to_owned()
        } else {
            format!("{} ({})", set.name(), holds.name())
        }
    }

    /// This node's state for clients. The shell adds the fields that only it knows.
    #[must_use]
    pub fn node_state(&self, now: Time) -> wire::NodeState {
        let mut state = wire::NodeState {
            ready_local: self.holder.local().len() as u64,
            ready_shared: self.holder.shared().len() as u64,
            running: (self.holder.running().len() + self.parts_of_others()) as u64,
            waiting: self.home.ledger.waiting(),
            steals_tried: self.stats.steals_tried,
            steals_won: self.stats.steals_won,
            steals_tasks: self.stats.steals_tasks,
            pushes: self.stats.pushes,
            reconciler_wakeups: self.home.ledger.wakeups(),
            stalls: self.home.jobs.stalls().0,
            stalled_jobs: self.home.jobs.stalls().1,
            policy: self.policy_text(),
            tuning: Some(self.options.tuning.to_wire()),
            tasks_per_s: self.policy.tasks_per_s(now),
            attempts_done: self.stats.attempts_done,
            attempts_failed: self.stats.attempts_failed,
            ..Default::default()
        };
        self.policy.estimates().fill_state(&mut state);
        self.data_state(&mut state);
        state
    }
}

/// The specs with requests, without repetitions.
pub(crate) fn distinct_requests(specs: &[wire::Spec]) -> impl Iterator<Item = &wire::Spec> {
    let mut known = BTreeSet::new();
    let with_request = specs.iter().filter(|spec| !spec.request.is_empty());
    with_request.filter(move |spec| known.insert((&spec.request[..], spec.awaits_nodes)))
}

/// Checks the number of nodes that a task holds at once.
pub(crate) fn check_nodes(spec: &wire::Spec) -> Result<(), String> {
    let (name, nodes) = (&spec.name, spec.nodes);
    if nodes > GANG_NODES_MAX {
        let most = GANG_NODES_MAX;
        return Err(format!("task '{name}' needs {nodes} nodes at once, at most {most} are given"));
    }
    Ok(())
}

/// The request of a task. An error: the request is malformed, whatever the nodes offer.
pub(crate) fn check_shape(spec: &wire::Spec) -> Result<resources::Request, String> {
    let wrong = |error: String| format!("task '{}': {error}", spec.name);
    let request = resources::Request::decode(&spec.request)
        .map_err(|error| wrong(format!("its request is damaged: {error}")))?;
    if !request.has_whole_cpus() {
        return Err(wrong(format!("it asks for {request}; cpus are whole numbers")));
    }
    Ok(request)
}
