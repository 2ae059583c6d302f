//! Queries of the ledger: names, listings, explanations.

use std::collections::BTreeSet;

use prost::Message as _;
use proto::limits::{OUTPUT_SUMS_PER_ANSWER_MAX, TASK_SIZES_REPORTED_MAX, TASKS_PER_ANSWER_MAX};
use proto::work::{Captured, Used};
use proto::{Attempt, JobId, LocalId, PartitionId, TaskId, codec, wire};

use super::records::Brief;
use super::records::{End, State};
use super::{Cell, Job, Ledger};
use crate::routing::partition_owners::Homes;

/// The maximum numbers of parents in the explanation of a skipped task, and of bytes of its
/// command.
const UNMET_PARENTS_REPORTED_MAX: usize = 4096;
const ARGV_SHOWN_BYTES_MAX: usize = 4096;
/// The maximum number of output names in an explanation of a task.
const OUTPUT_FILES_SHOWN_MAX: usize = 1_000;
/// A page of a list ends after the task with which its kept outputs and parents have this many
/// bytes.
const EXTRAS_PER_ANSWER_BYTES: usize = 1 << 20;
/// The maximum number of parents of a task in a list.
const PARENTS_LISTED_MAX: usize = 4096;

impl Ledger {
    /// The task's name: its own, or its spec's with `{i}` filled in.
    pub(crate) fn name(&self, task: TaskId) -> String {
        let index = task.local.index();
        let own = self.part(task).and_then(|part| part.segment(index)).and_then(|s| s.name(index));
        if let Some(name) = own {
            return name.to_owned();
        }
        let Some(brief) = self.brief(task) else { return String::new() };
        match (brief.name, self.spec_of(task.job, brief.spec)) {
            (Some(name), _) => name.into(),
            (None, Some(spec)) => proto::entry::expand(&spec.name, brief.entry),
            (None, None) => String::new(),
        }
    }

    fn spec_of(&self, job: JobId, number: u32) -> Option<&wire::Spec> {
        self.jobs.get(&job)?.specs.get(number as usize).map(AsRef::as_ref)
    }

    /// The data of a task that outlives its record in memory.
    pub(super) fn brief(&self, task: TaskId) -> Option<Brief> {
        let index = task.local.index();
        let segment = self.part(task)?.segment(index)?;
        let Some(cell) = segment.cell(index) else { return segment.brief(index) };
        Some(Brief {
            node: cell.holder,
            attempt: cell.attempt,
            spec: cell.spec,
            entry: cell.entry,
            exit_code: segment.side(index).map_or(0, |side| side.exit_code),
            name: None,
            times: segment.times(index),
            used: segment.used(index),
        })
    }

    pub(crate) fn task_state(&self, task: TaskId) -> Option<wire::TaskState> {
        use wire::TaskPhase as Phase;
        let index = task.local.index();
        let segment = self.part(task)?.segment(index)?;
        let state = segment.state(index);
        let phase = match state {
            State::Waiting => Phase::Waiting,
            State::Ready => Phase::Ready,
            State::Ended(End::Done) => Phase::TaskDone,
            State::Ended(End::Failed) => Phase::TaskFailed,
            State::Ended(End::Cancelled) => Phase::TaskCancelled,
            State::Ended(End::Skipped) => Phase::TaskSkipped,
        };
        let brief = self.brief(task)?;
        let has_result = matches!(state, State::Ended(End::Done | End::Failed));
        let ran = has_result || state == State::Ready;
        let captured = if has_result { segment.captured(index) } else { Captured::default() };
        let used = if has_result { brief.used } else { Used::default() };
        let submitted = self.jobs.get(&task.job)?.submitted;
        let ran_at = brief.times.since(submitted).filter(|_| has_result);
        let (started, ended) = ran_at.unwrap_or_default();
        Some(wire::TaskState {
            local: task.local.0,
            name: self.name(task),
            phase: phase as i32,
            attempt: brief.attempt.0,
            node: brief.node.0,
            exit_code: brief.exit_code,
            placed: ran,
            output_sizes: segment
                .side(index)
                .map(|side| side.output_sizes.as_slice())
                .filter(|sizes| sizes.len() <= TASK_SIZES_REPORTED_MAX)
                .unwrap_or_default()
                .to_vec(),
            entry: self.entry_of(task.job, &brief),
            stdout_bytes: captured.stdout_bytes,
            stderr_bytes: captured.stderr_bytes,
            started_ns: started.0,
            ended_ns: ended.0,
            output_sums: match state {
                State::Ended(End::Done) => segment.output_sums(index),
                _ => &[],
            }
            .iter()
            .copied()
            .take(TASK_SIZES_REPORTED_MAX)
            .collect(),
            sums_after: 0,
            kept: Vec::new(),
            parents: Vec::new(),
            cpu_us: used.cpu_us,
            max_rss_kib: used.max_rss_kib,
        })
    }

    /// The kept outputs of a spawned task. The client of the job knows those of all others.
    fn kept_files(&self, task: TaskId) -> Vec<wire::KeptFile> {
        let segment = self.part(task).and_then(|part| part.segment(task.local.index()));
        let brief = segment.filter(|segment| segment.is_spawned()).and_then(|_| self.brief(task));
        let Some(brief) = brief else { return Vec::new() };
        let Some(spec) = self.spec_of(task.job, brief.spec) else { return Vec::new() };
        let kept = (0..).zip(&spec.outputs).filter(|(_, declared)| declared.keep);
        kept.map(|(output, declared)| wire::KeptFile {
            output,
            file: proto::entry::expand(&declared.file, brief.entry),
            form: declared.form,
        })
        .collect()
    }

    /// The distinct parents of a task, ascending, as long as its home has its inputs.
    fn listed_parents(&self, task: TaskId) -> Vec<u64> {
        let parents = self.part(task).into_iter().flat_map(|part| part.parents(task.local.index()));
        let parents = parents.map(|(_, parent)| parent).take(PARENTS_LISTED_MAX);
        parents.collect::<BTreeSet<u64>>().into_iter().collect()
    }

    /// A page of the checksums of a done task's outputs, from this output on.
    pub(crate) fn output_sums(&self, task: TaskId, after: u32) -> Option<wire::TaskState> {
        let mut state = self.task_state(task)?;
        let is_done = state.phase() == wire::TaskPhase::TaskDone;
        let segment = self.part(task)?.segment(task.local.index())?;
        let sums = segment.output_sums(task.local.index()).iter().skip(after as usize);
        let page = sums.take(OUTPUT_SUMS_PER_ANSWER_MAX).filter(|_| is_done);
        (state.output_sums, state.sums_after) = (page.copied().collect(), after);
        Some(state)
    }

    /// The entry of a task of an array.
    fn entry_of(&self, job: JobId, brief: &Brief) -> Option<u64> {
        let is_of_array = proto::entry::is_template(&self.spec_of(job, brief.spec)?.name);
        is_of_array.then_some(brief.entry)
    }

    /// A page of the job's tasks homed here, in the order of their ids.
    pub(crate) fn list(&self, query: &wire::TasksQuery) -> wire::TaskStates {
        let limit = match query.limit as usize {
            0 => TASKS_PER_ANSWER_MAX,
            limit => limit.min(TASKS_PER_ANSWER_MAX),
        };
        let Some(job) = self.jobs.get(&JobId(query.job)) else {
            return wire::TaskStates { tasks: Vec::new(), end: true };
        };
        let from = if query.from_start { 0 } else { query.after.saturating_add(1) };
        let start = LocalId(from).partition();
        let ids = job.parts.from(start).flat_map(|(partition, part)| {
            let first = if partition == start { LocalId(from).index() } else { 0 };
            let indices = part.indices().filter(move |&index| index >= first);
            indices.map(move |index| LocalId::new(partition, index))
        });
        let mut ids = ids.map(|local| TaskId { job: JobId(query.job), local });
        let (mut tasks, mut extra_bytes) = (Vec::new(), 0);
        for task in ids.by_ref().take(limit) {
            let Some(mut state) = self.task_state(task) else { continue };
            if query.kept {
                state.kept = self.kept_files(task);
                extra_bytes += state.kept.iter().map(|kept| kept.encoded_len()).sum::<usize>();
            }
            if query.parents {
                state.parents = self.listed_parents(task);
                extra_bytes += size_of_val(&*state.parents);
            }
            tasks.push(state);
            if extra_bytes >= EXTRAS_PER_ANSWER_BYTES {
                break;
            }
        }
        wire::TaskStates { tasks, end: ids.next().is_none() }
    }

    /// Explains the state of the task according to its record. `waits`: although it is ready, its
    /// home cannot place it now. `runs`: its holder has started it.
    pub(crate) fn explain(
        &self,
        task: TaskId,
        (waits, runs): (bool, bool),
    ) -> Option<wire::Explanation> {
        const PARENTS_NAMED_MAX: usize = 16;
        let state = self.task_state(task)?;
        let job = self.jobs.get(&task.job)?;
        let (mut lines, mut missing_parents) = (Vec::new(), Vec::new());
        let mut unmet_parents = Vec::new();
        let Some(cell) = self.cell(task) else {
            return Some(self.explain_without_record(task, state));
        };
        if !job.visible {
            let text = "its job has not begun: the submission is under way, or it waits for a job";
            lines.push(text.into());
        }
        match cell.state {
            State::Waiting if cell.missing > 0 => {
                missing_parents = self.missing_parents(task).take(PARENTS_NAMED_MAX).collect();
                lines.extend(self.explain_missing(task, &missing_parents));
                lines.extend(self.explain_wait(task));
                lines.extend(self.explain_mail_wait(task));
            }
            State::Waiting if !job.visible => {}
            State::Waiting => lines.push(self.explain_release(task).unwrap_or_else(|| {
                let soon = if waits { "" } else { "; it is about to be placed" };
                format!("all its dependencies are met{soon}")
            })),
            State::Ready => {
                let (attempt, holder) = (cell.attempt, cell.holder);
                let holder = format!("node {holder} (incarnation {})", cell.holder_incarnation.0);
                lines.push(match runs || cell.has_started() {
                    true => format!("attempt {attempt} has started on {holder}"),
                    false => format!("it is ready; attempt {attempt} is held by {holder}"),
                });
            }
            State::Ended(end) => {
                if matches!(end, End::Skipped | End::Cancelled) {
                    unmet_parents =
                        self.missing_parents(task).take(UNMET_PARENTS_REPORTED_MAX).collect();
                }
                lines.push(match end {
                    // No node has run it.
                    End::Skipped => match self.skipped_for(task.job) {
                        Some(other) => format!(
                            "it ended: skipped; its job waited for job {other}, which did not \
                             succeed"
                        ),
                        None => "it ended: skipped".to_owned(),
                    },
                    _ => format!(
                        "it ended: {}, attempt {}, on node {}",
                        format!("{end:?}").to_lowercase(),
                        cell.attempt,
                        cell.holder
                    ),
                });
            }
        }
        lines.extend(self.explain_family(task));
        let (argv, stream_files) = (self.argv(task), self.stream_files(task));
        let task = Some(state);
        let output_files = output_files(job, cell);
        Some(wire::Explanation {
            unbegun: !job.visible,
            task,
            lines,
            missing_parents,
            unmet_parents,
            argv,
            output_files,
            stream_files,
            ..Default::default()
        })
    }

    /// Explains an ended task of which only a brief is left.
    fn explain_without_record(&self, task: TaskId, state: wire::TaskState) -> wire::Explanation {
        let text = "it ended; its record has left memory, the event log has its history";
        let mut lines = vec![text.to_owned()];
        lines.extend(self.explain_family(task));
        wire::Explanation {
            task: Some(state),
            lines,
            argv: self.argv(task),
            stream_files: self.stream_files(task),
            ..Default::default()
        }
    }

    /// The edges without an end of their parent. A task that awaits others misses these as well, as
    /// does one that waits for an event.
    fn explain_missing(&self, task: TaskId, parents: &[u64]) -> Option<String> {
        let cell = self.cell(task)?;
        let others = self.open_awaited(task).count() + usize::from(self.suspended(task).is_some());
        let missing = (cell.missing as usize).saturating_sub(others);
        let named: Vec<_> = parents.iter().map(|&p| LocalId(p).to_string()).collect();
        let more = if missing > named.len() { ", ..." } else { "" };
        let (slots, named) = (cell.slots, named.join(", "));
        (missing > 0)
            .then(|| format!("it waits for {missing} of {slots} dependencies: {named}{more}"))
    }

    /// The files to which the command of a task prints; empty if it prints to none.
    fn stream_files(&self, task: TaskId) -> Vec<String> {
        let brief = self.brief(task);
        let spec = brief.as_ref().and_then(|brief| self.spec_of(task.job, brief.spec));
        let Some(wire::spec::Body::Command(command)) = spec.and_then(|spec| spec.body.as_ref())
        else {
            return Vec::new();
        };
        if command.stdout.is_empty() && command.stderr.is_empty() {
            return Vec::new();
        }
        let Some(brief) = brief else { return Vec::new() };
        let name = |template: &String| {
            let (job, local) = (task.job.0.to_string(), task.local.to_string());
            let entry = self.entry_of(task.job, &brief);
            let text = proto::entry::expand_without_files(template, &job, &local, entry);
            let text = text.replace("%{INSTANCE_ID}", &brief.attempt.to_string());
            match matches!(text.as_str(), "" | "none") || text.starts_with('/') {
                true => text,
                false => format!("{}/{text}", command.submit_dir),
            }
        };
        [&command.stdout, &command.stderr].map(name).to_vec()
    }

    /// What the task asks for.
    pub(crate) fn needs(&self, task: TaskId) -> Option<wire::ClassDemand> {
        self.spec(task).map(|spec| needs_of(spec))
    }

    /// Adds to the explanation of a task what it asks for, also after its end.
    pub(crate) fn tell_asked(&self, task: TaskId, told: &mut wire::Explanation) {
        let brief = self.brief(task);
        let spec = brief.and_then(|brief| self.spec_of(task.job, brief.spec));
        if let Some(spec) = spec {
            told.asked = Some(needs_of(spec));
            (told.priority, told.rank) = (spec.priority, spec.rank);
        }
    }

    /// The command of a task, with the array entry filled in, cut to `ARGV_SHOWN_BYTES_MAX`. Of a
    /// call: its function, if that is a text.
    fn argv(&self, task: TaskId) -> Vec<String> {
        let Some(brief) = self.brief(task) else { return Vec::new() };
        let Some(spec) = self.spec_of(task.job, brief.spec) else { return Vec::new() };
        let command = match &spec.body {
            Some(wire::spec::Body::Command(command)) => command,
            Some(wire::spec::Body::Call(call)) if call.body_codec == u32::from(codec::TEXT) => {
                let function = call.body.get(..ARGV_SHOWN_BYTES_MAX).unwrap_or(&call.body);
                return vec![String::from_utf8_lossy(function).into_owned()];
            }
            _ => return Vec::new(),
        };
        let entry = self.entry_of(task.job, &brief);
        let mut room_bytes = ARGV_SHOWN_BYTES_MAX;
        let mut argv = Vec::new();
        for argument in &command.argv {
            let mut text = entry
                .map_or_else(|| argument.clone(), |entry| proto::entry::expand(argument, entry));
            if text.len() > room_bytes {
                text.truncate(text.floor_char_boundary(room_bytes));
                argv.push(text + "...");
                break;
            }
            room_bytes -= text.len();
            argv.push(text);
        }
        argv
    }

    /// The parents for which the task waits.
    pub(crate) fn awaited(&self, task: TaskId) -> impl Iterator<Item = LocalId> + '_ {
        self.missing_parents(task).map(LocalId)
    }

    /// Whether the task waits for this parent.
    pub(crate) fn lacks(&self, task: TaskId, parent: LocalId) -> bool {
        let waits = self.state(task) == Some(State::Waiting);
        waits && self.missing_parents(task).any(|missing| missing == parent.0)
    }

    fn missing_parents(&self, task: TaskId) -> impl Iterator<Item = u64> + '_ {
        let index = task.local.index();
        let part = self.part(task);
        let segment = part.and_then(|part| part.segment(index));
        let parents = part.into_iter().flat_map(move |part| part.parents(index));
        let open = parents.filter(move |&(slot, _)| {
            segment.is_some_and(|s| !s.is_input_slot_filled(index, slot))
        });
        open.map(|(_, parent)| parent)
    }

    /// The attempt by which the task is done, and how many bytes that attempt printed.
    pub(crate) fn captured(&self, task: TaskId) -> Option<(Attempt, Captured)> {
        let index = task.local.index();
        let segment = self.part(task)?.segment(index)?;
        let cell = segment.cell(index)?;
        let is_done = cell.state == State::Ended(End::Done);
        is_done.then(|| (cell.attempt, segment.captured(index)))
    }

    /// The reports that are due, per job, with the parts that have changed.
    pub(crate) fn due_reports(&mut self, now: proto::Time, homes: &Homes) -> Vec<wire::JobCounts> {
        let (incarnation, mutant) = (self.incarnation.0, self.mutant);
        let mut reports = Vec::new();
        for &job_id in &self.live {
            let Some(job) = self.jobs.get_mut(&job_id) else { continue };
            if job.report_at.is_none_or(|at| at > now) {
                continue;
            }
            job.report_at = None;
            let mut partitions = Vec::new();
            for (partition, part) in job.parts.take_changed() {
                // Versions of a later home are larger than all versions of an earlier one.
                let term = homes.term(partition).unwrap_or(incarnation);
                let version_floor = u64::from(term) << 32;
                part.count.version = (part.count.version + 1).max(version_floor);
                part.count.round = part.round;
                partitions.push(numbered(partition, part.report(mutant)));
            }
            if !partitions.is_empty() {
                let removing = job.cancelled;
                reports.push(wire::JobCounts { job: job_id.0, partitions, removing, question: 0 });
            }
        }
        reports
    }

    pub(crate) fn next_report(&self) -> Option<proto::Time> {
        self.live_jobs().filter_map(|(_, job)| job.report_at).min()
    }
}

fn needs_of(spec: &wire::Spec) -> wire::ClassDemand {
    wire::ClassDemand {
        request: spec.request.clone(),
        cpus: spec.cpus,
        time_request_ns: spec.time_request_ns,
        tasks: 1,
        work_ns: 0,
        nodes: spec.nodes,
    }
}

/// The names of a task's outputs, with the array entry filled in.
fn output_files(job: &Job, cell: &Cell) -> Vec<String> {
    let spec = job.specs.get(cell.spec as usize);
    let outputs = spec.into_iter().flat_map(|spec| &spec.outputs).take(OUTPUT_FILES_SHOWN_MAX);
    outputs.map(|output| proto::entry::expand(&output.file, cell.entry)).collect()
}

fn numbered(partition: PartitionId, count: wire::PartitionCount) -> wire::PartitionCount {
    wire::PartitionCount { partition: partition.0, ..count }
}
