//! Random small jobs. Shapes, sizes, placements and chunk boundaries are random.

use proto::{JobId, LocalId, PartitionId, Span, wire};
use workloads::{Graph, Placement, Plan};

use crate::checkers::calls;
use crate::rng::SimRng;
use crate::state::expected::{
    KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_PLAIN, KIND_POISON, KIND_SPAWNING,
};

/// The share of partitions with lists of edges that span chunks.
const SCATTERED_PERMILLE: u64 = 150;
/// One in this many first tasks with a single output stands for a file.
const UPLOADED_OF: u64 = 4;

/// A job as its client sends it.
#[derive(Clone, Debug)]
pub struct Submission {
    pub chunks: Vec<wire::Chunk>,
    pub commit: wire::JobCommit,
}

impl Submission {
    /// A graph as the real client would send it.
    #[must_use]
    pub fn of_graph(
        graph: &Graph,
        job: JobId,
        placement: Placement,
        homes: &[Vec<PartitionId>],
    ) -> Self {
        let plan = Plan::new(graph, job, placement, homes);
        let chunks = plan.chunks().collect();
        let commit = plan.commit(graph.name(), 0, wire::JobSettings::default());
        Self { chunks, commit }
    }
}

/// One task before it has an id.
#[derive(Clone, Debug)]
pub struct DraftTask {
    pub kind: &'static str,
    /// It is a command, or a call of a function, and not a sleep.
    pub command: bool,

    pub cpus: u32,
    pub retries: u32,
    pub duration: Span,
    pub output_sizes: Vec<u64>,
    /// Keeps all its outputs.
    pub keep: bool,
    /// It stands for a file that the client has uploaded to its home, and to every node with its
    /// records. The home runs it.
    pub upload: bool,
    /// Empty: cpus alone.
    pub request: Vec<u8>,
    pub priority: i32,
    /// Zero: none.
    pub time_request: Span,
    /// Nodes that it holds at once; 0 and 1: one.
    pub nodes: u32,
    /// The signal of a command before an end.
    pub notice: Option<wire::Notice>,
}

/// A graph before it is cut into partitions and chunks.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub tasks: Vec<DraftTask>,
    /// (parent, child, output): output 0 is order only, k+1 is output k.
    pub edges: Vec<(usize, usize, u32)>,
}

/// The limits and failure rates for the jobs of a seed.
#[derive(Clone, Debug)]
pub struct JobMix {
    pub tasks_max: u64,
    pub duration_max: Span,
    pub output_bytes_max: u64,
    pub failing_permille: u64,
    pub flaky_permille: u64,
    pub order_only_permille: u64,
    /// The share of tasks with kept outputs.
    pub kept_permille: u64,
    pub cpus_max: u32,
}

impl Draft {
    /// `n` independent tasks.
    #[must_use]
    pub fn bag(n: usize, duration: Span) -> Self {
        let task = DraftTask {
            kind: KIND_PLAIN,
            command: false,
            cpus: 1,
            retries: 0,
            duration,
            output_sizes: Vec::new(),
            keep: false,
            upload: false,
            request: Vec::new(),
            priority: 0,
            time_request: Span::ZERO,
            nodes: 0,
            notice: None,
        };
        Self { tasks: vec![task; n], edges: Vec::new() }
    }
    /// `n` tasks one after another, with outputs of `bytes`.
    #[must_use]
    pub fn chain(n: usize, duration: Span, bytes: u64) -> Self {
        let mut draft = Self::bag(n, duration);
        for task in &mut draft.tasks {
            task.output_sizes = vec![bytes];
        }
        draft.edges = (1..n).map(|child| (child - 1, child, 1)).collect();
        draft
    }
    /// One root and `n - 1` children.
    #[must_use]
    pub fn fan_out(n: usize, duration: Span, bytes: u64) -> Self {
        let mut draft = Self::chain(n, duration, bytes);
        draft.edges = (1..n).map(|child| (0, child, 1)).collect();
        draft
    }
    /// `n - 1` parents and one child.
    #[must_use]
    pub fn fan_in(n: usize, duration: Span, bytes: u64) -> Self {
        let mut draft = Self::chain(n, duration, bytes);
        draft.edges = (0..n - 1).map(|parent| (parent, n - 1, 1)).collect();
        draft
    }

    /// Makes all its tasks commands.
    #[must_use]
    pub fn commands(mut self) -> Self {
        self.tasks.iter_mut().for_each(|task| task.command = true);
        self
    }
    /// Makes these tasks kill their node.
    #[must_use]
    pub fn with_poison(mut self, tasks: &[usize]) -> Self {
        for &task in tasks {
            self.tasks[task].kind = KIND_POISON;
        }
        self.commands()
    }

    /// Makes this share of plain tasks, and at least the first, fail until the job is retried.
    #[must_use]
    pub fn mended_later(mut self, dice: &mut SimRng, permille: u64) -> Self {
        let plain = |task: &&mut DraftTask| task.kind == KIND_PLAIN && !task.upload;
        for (at, task) in self.tasks.iter_mut().filter(plain).enumerate() {
            if at == 0 || dice.chance(permille) {
                task.kind = KIND_MENDED;
            }
        }
        self
    }

    /// Makes this share of plain tasks without outputs, and at least the first, spawn tasks.
    #[must_use]
    pub fn with_spawning(mut self, dice: &mut SimRng, permille: u64) -> Self {
        let plain = |task: &&mut DraftTask| {
            task.kind == KIND_PLAIN && !task.upload && !task.command && task.output_sizes.is_empty()
        };
        for (at, task) in self.tasks.iter_mut().filter(plain).enumerate() {
            if at == 0 || dice.chance(permille) {
                task.kind = KIND_SPAWNING;
            }
        }
        self
    }

    /// Whether some tasks spawn others.
    #[must_use]
    pub fn spawns(&self) -> bool {
        self.tasks.iter().any(|task| task.kind == KIND_SPAWNING)
    }

    /// Makes this share of plain tasks with outputs spawn tasks.
    #[must_use]
    pub fn with_spawning_outputs(mut self, dice: &mut SimRng, permille: u64) -> Self {
        let plain = |task: &&mut DraftTask| {
            let has_outputs = !task.output_sizes.is_empty() && !task.keep;
            task.kind == KIND_PLAIN && !task.upload && !task.command && has_outputs
        };
        for task in self.tasks.iter_mut().filter(plain) {
            if dice.chance(permille) {
                task.kind = KIND_SPAWNING;
            }
        }
        self
    }

    /// A random shape.
    #[must_use]
    pub fn random(dice: &mut SimRng, job_mix: &JobMix) -> Self {
        let n = 1 + dice.index(job_mix.tasks_max as usize);
        let mut draft = Self::default();
        for _ in 0..n {
            let task = random_task(dice, job_mix);
            let keep = task.duration.0 % 1000 < job_mix.kept_permille;
            let is_small = task.kind == KIND_PLAIN && task.cpus == 1;
            let is_file = is_small && task.output_sizes.len() == 1;
            let upload = is_file && (task.duration.0 / 1000).is_multiple_of(UPLOADED_OF);
            draft.tasks.push(DraftTask { keep, upload, ..task });
        }
        let pairs: Vec<(usize, usize)> = match dice.below(6) {
            0 => Vec::new(),
            1 => (1..n).map(|child| (child - 1, child)).collect(),
            2 => (1..n).map(|child| (0, child)).collect(),
            3 => (0..n - 1).map(|parent| (parent, n - 1)).collect(),
            4 => {
                let degree = 2 + dice.index(3);
                (1..n).map(|child| ((child - 1) / degree, child)).collect()
            }
            _ => layered(dice, n),
        };
        for (parent, child) in pairs {
            let outputs = draft.tasks[parent].output_sizes.len() as u32;
            let orders = outputs == 0 || dice.chance(job_mix.order_only_permille);
            let output = if orders { 0 } else { 1 + dice.below(outputs.into()) as u32 };
            draft.edges.push((parent, child, output));
            draft.tasks[child].upload = false;
            // Two outputs may join the same pair twice: two slots, one parent.
            if outputs > 1 && dice.chance(50) {
                draft.edges.push((parent, child, 1 + output % outputs));
            }
        }
        draft
    }

    /// Cuts the graph into chunks over `partitions`, in runs of random length.
    #[must_use]
    pub fn submission(
        &self,
        dice: &mut SimRng,
        job: JobId,
        partitions: &[PartitionId],
    ) -> Submission {
        let locals = self.place(dice, partitions);
        let slots = self.slots();
        let mut used: Vec<PartitionId> = locals.iter().map(|local| local.partition()).collect();
        used.sort_unstable();
        used.dedup();
        let mut chunks = Vec::new();
        let mut totals = Vec::new();
        for partition in used {
            let mut members: Vec<usize> =
                (0..self.tasks.len()).filter(|&t| locals[t].partition() == partition).collect();
            members.sort_unstable_by_key(|&task| locals[task].index());
            let own = self.cut(dice, job, partition, &members, &locals, &slots);
            totals.push(wire::PartitionTotal {
                partition: partition.0,
                chunks: own.len() as u32,
                tasks: members.len() as u64,
            });
            chunks.extend(own);
        }
        let real_data = dice.chance(400) || self.tasks.iter().any(|task| task.upload);
        let commit = wire::JobCommit {
            job: job.0,
            name: format!("job-{job}"),
            submitted_ns: 0,
            // Real data takes disk space, and no-ops with outputs take a slot.
            settings: Some(wire::JobSettings { real_data, ..Default::default() }),
            partitions: totals,
            edges: self.edges.len() as u64,
            openness: 0,
            ..Default::default()
        };
        Submission { chunks, commit }
    }

    fn place(&self, dice: &mut SimRng, partitions: &[PartitionId]) -> Vec<LocalId> {
        let run_max = dice.pick(&[1, 4, 16, 256]);
        let mut next = vec![0u64; partitions.len()];
        let mut locals = Vec::with_capacity(self.tasks.len());
        while locals.len() < self.tasks.len() {
            let at = dice.index(partitions.len());
            let run = 1 + dice.index(run_max);
            for _ in 0..run.min(self.tasks.len() - locals.len()) {
                locals.push(LocalId::new(partitions[at], next[at]));
                next[at] += 1;
            }
        }
        locals
    }

    /// The child's slot of each edge, with objects first.
    fn slots(&self) -> Vec<u32> {
        let mut next = vec![0u32; self.tasks.len()];
        let mut slots = vec![0u32; self.edges.len()];
        for orders in [false, true] {
            for (edge, &(_, child, output)) in self.edges.iter().enumerate() {
                if (output == 0) == orders {
                    slots[edge] = next[child];
                    next[child] += 1;
                }
            }
        }
        slots
    }

    fn cut(
        &self,
        dice: &mut SimRng,
        job: JobId,
        partition: PartitionId,
        members: &[usize],
        locals: &[LocalId],
        slots: &[u32],
    ) -> Vec<wire::Chunk> {
        let chunk_max = dice.pick(&[1, 5, 20, 200]);
        let mut chunks: Vec<wire::Chunk> = Vec::new();
        let mut at = 0;
        while at < members.len() {
            let len = (1 + dice.index(chunk_max)).min(members.len() - at);
            let mut chunk = wire::Chunk {
                job: job.0,
                partition: partition.0,
                number: chunks.len() as u32,
                first: at as u64,
                ..wire::Chunk::default()
            };
            for &task in &members[at..at + len] {
                self.add(&mut chunk, task, locals, slots);
            }
            chunks.push(chunk);
            at += len;
        }
        if dice.chance(SCATTERED_PERMILLE) {
            scatter(dice, &mut chunks);
        }
        chunks
    }

    fn add(&self, chunk: &mut wire::Chunk, task: usize, locals: &[LocalId], slots: &[u32]) {
        let draft = &self.tasks[task];
        let mut parents: Vec<(u32, u64, u32)> = Vec::new();
        let mut children = wire::Children { index: locals[task].index(), ..Default::default() };
        for (edge, &(parent, child, output)) in self.edges.iter().enumerate() {
            if child == task {
                parents.push((slots[edge], locals[parent].0, output));
            }
            if parent == task {
                children.child.push(locals[child].0);
                children.slot.push(slots[edge]);
                children.output.push(output);
            }
        }
        parents.sort_unstable();
        let objects = parents.iter().filter(|(_, _, output)| *output > 0).count();
        let mut spec = draft.spec(objects);
        let mut payload = Vec::new();
        // Every second command is a call, with arguments of its own. Calls have no requests.
        let may_call = draft.command && draft.notice.is_none() && draft.request.is_empty();
        if may_call && task % 2 == 1 {
            spec.body = Some(wire::spec::Body::Call(wire::Call::default()));
            payload = calls::payload_of(task as u64);
        }
        let known = chunk.specs.iter().position(|other| *other == spec);
        let index = known.unwrap_or_else(|| {
            chunk.specs.push(spec);
            chunk.specs.len() - 1
        });
        chunk.tasks.push(wire::Task {
            spec: index as u32,
            entry: task as u64,
            duration_ns: draft.duration.0,
            slots: parents.len() as u32,
            output_sizes: draft.output_sizes.clone(),
            name: String::new(),
            urgency: 0,
            release_ns: 0,
            payload,
            ..wire::Task::default()
        });
        if !children.child.is_empty() {
            chunk.children.push(children);
        }
        if !parents.is_empty() {
            chunk.parents.push(wire::Parents {
                index: locals[task].index(),
                first_slot: 0,
                parent: parents.iter().map(|(_, parent, _)| *parent).collect(),
                output: Vec::new(),
            });
        }
    }
}

impl DraftTask {
    fn spec(&self, objects: usize) -> wire::Spec {
        let input = |k: usize| wire::Input {
            key: format!("in{k}"),
            file: format!("f{k}"),
            ..wire::Input::default()
        };
        let output = |k: usize| wire::Output {
            key: format!("out{k}"),
            file: format!("g{k}"),
            keep: self.keep,
            ..wire::Output::default()
        };
        wire::Spec {
            kind: self.kind.to_string(),
            name: "t{i}".to_string(),
            cpus: self.cpus,
            retries: self.retries,
            request: self.request.clone(),
            priority: self.priority,
            time_request_ns: self.time_request.0,
            nodes: self.nodes,
            body: Some(match (self.command, self.upload) {
                (true, _) => wire::spec::Body::Command(wire::Command {
                    notice: self.notice.map(Box::new),
                    ..Default::default()
                }),
                (false, true) => wire::spec::Body::Upload(wire::Upload {}),
                (false, false) => wire::spec::Body::Sleep(wire::Sleep {}),
            }),
            inputs: (0..objects).map(input).collect(),
            outputs: (0..self.output_sizes.len()).map(output).collect(),
            ..Default::default()
        }
    }
}

/// Moves the ends of some lists of edges to later chunks, as for a list too long for one chunk.
fn scatter(dice: &mut SimRng, chunks: &mut Vec<wire::Chunk>) {
    let Some(last) = chunks.last() else { return };
    let after = last.first + last.tasks.len() as u64;
    chunks.push(wire::Chunk {
        number: chunks.len() as u32,
        first: after,
        job: last.job,
        partition: last.partition,
        ..wire::Chunk::default()
    });
    for at in 0..chunks.len() - 1 {
        let mut children = Vec::new();
        for list in chunks[at].children.iter_mut().filter(|list| list.child.len() > 1) {
            if dice.chance(500) {
                let keep = 1 + dice.index(list.child.len() - 1);
                children.push(wire::Children {
                    index: list.index,
                    child: list.child.split_off(keep),
                    slot: list.slot.split_off(keep),
                    output: list.output.split_off(keep),
                });
            }
        }
        let mut parents = Vec::new();
        for list in chunks[at].parents.iter_mut().filter(|list| list.parent.len() > 1) {
            if dice.chance(500) {
                let keep = 1 + dice.index(list.parent.len() - 1);
                parents.push(wire::Parents {
                    index: list.index,
                    first_slot: list.first_slot + keep as u32,
                    parent: list.parent.split_off(keep),
                    output: Vec::new(),
                });
            }
        }
        let later = at + 1 + dice.index(chunks.len() - at - 1);
        chunks[later].children.extend(children);
        chunks[later].parents.extend(parents);
    }
}

fn random_task(dice: &mut SimRng, job_mix: &JobMix) -> DraftTask {
    let (kind, retries) = if dice.chance(job_mix.failing_permille) {
        (KIND_FAILING, dice.below(2) as u32)
    } else if dice.chance(job_mix.flaky_permille) {
        (KIND_FLAKY, dice.below(4) as u32)
    } else {
        (KIND_PLAIN, dice.below(2) as u32)
    };
    let outputs = dice.pick(&[0, 1, 1, 1, 2]);
    let bytes_max = dice.pick(&[0, 1000, job_mix.output_bytes_max]);
    DraftTask {
        kind,
        command: false,
        cpus: 1 + dice.below(job_mix.cpus_max.into()) as u32,
        retries,
        duration: dice.span(Span::ZERO, job_mix.duration_max),
        output_sizes: (0..outputs).map(|_| dice.between(0, bytes_max)).collect(),
        keep: false,
        upload: false,
        request: Vec::new(),
        priority: 0,
        time_request: Span::ZERO,
        nodes: 0,
        notice: None,
    }
}

fn layered(dice: &mut SimRng, n: usize) -> Vec<(usize, usize)> {
    let width = 1 + dice.index(8);
    let mut pairs = Vec::new();
    for child in width..n {
        let layer = child / width * width;
        let parents = dice.index(3) + 1;
        for _ in 0..parents {
            let parent = layer - width + dice.index(width);
            if !pairs.contains(&(parent, child)) {
                pairs.push((parent, child));
            }
        }
    }
    pairs
}
