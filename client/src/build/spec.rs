//! The description that several tasks share.

use std::sync::Arc;
use std::time::Duration;

use proto::wire;
use proto::wire::spec::Body;
use workloads::{CpuPin, CrashLimit, Needs, Notice};

use crate::ClientError;

/// What tasks do, and what they need: any number of tasks share one. A clone is cheap.
///
/// Texts are templates: `{i}` becomes the `entry` of each task. Arguments, variables and paths of a
/// command may also have `{job}`, `{task}`, `{in:NAME}` and `{out:NAME}`, the paths of its inputs
/// and outputs.
///
/// ```
/// use starling_client::TaskSpec;
/// let count = TaskSpec::command(["sh", "-c", "wc -w < {in:text} > {out:words}"])
///     .name("count-{i}")
///     .input("text", "text.txt")
///     .output("words", "words-{i}");
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct TaskSpec {
    pub(crate) spec: Arc<wire::Spec>,
    /// Its needs were given: a task on several nodes does not hold whole ones.
    pub(crate) has_needs: bool,
}

impl TaskSpec {
    /// A command: its program and its arguments. It runs in a directory of its own, with its inputs
    /// in it. The task is done when the command ends with exit code 0 and has written its outputs.
    #[must_use]
    pub fn command<T: Into<String>>(argv: impl IntoIterator<Item = T>) -> Self {
        let argv: Vec<String> = argv.into_iter().map(Into::into).collect();
        let program = argv.first().map_or("", |program| program.as_str());
        let kind = program.rsplit('/').next().unwrap_or_default().to_owned();
        let body = Body::Command(wire::Command { argv, ..wire::Command::default() });
        Self::new(kind, body)
    }

    /// A task that does nothing. Its outputs have the sizes that its task names, and no content
    /// that means anything.
    #[must_use]
    pub fn noop() -> Self {
        Self::new("noop".to_owned(), Body::Noop(wire::Noop {}))
    }

    /// A task that sleeps for the `duration_ns` of its task.
    #[must_use]
    pub fn sleep() -> Self {
        Self::new("sleep".to_owned(), Body::Sleep(wire::Sleep {}))
    }

    /// A task that uses a CPU for the `duration_ns` of its task.
    #[must_use]
    pub fn spin() -> Self {
        Self::new("spin".to_owned(), Body::Spin(wire::Spin {}))
    }

    fn new(kind: String, body: Body) -> Self {
        let spec = wire::Spec { name: kind.clone(), kind, cpus: 1, ..wire::Spec::default() };
        Self { spec: Arc::new(wire::Spec { body: Some(body), ..spec }), has_needs: false }
    }

    fn with(mut self, change: impl FnOnce(&mut wire::Spec)) -> Self {
        change(Arc::make_mut(&mut self.spec));
        self
    }

    fn with_command(self, change: impl FnOnce(&mut wire::Command)) -> Self {
        self.with(|spec| {
            if let Some(Body::Command(command)) = &mut spec.body {
                change(command);
            }
        })
    }

    /// The name of the tasks in lists. Default: the program.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        self.with(|spec| name.clone_into(&mut spec.name))
    }

    /// Tasks of one kind are expected to take about as long. Default: the program.
    #[must_use]
    pub fn kind(self, kind: &str) -> Self {
        self.with(|spec| kind.clone_into(&mut spec.kind))
    }

    /// The next input: an output of a parent, which lies as `file` in the directory of the command.
    /// Several inputs may share a `name`; `{in:NAME}` is then all their paths.
    #[must_use]
    pub fn input(self, name: &str, file: &str) -> Self {
        let (key, file) = (name.to_owned(), file.to_owned());
        self.with(|spec| spec.inputs.push(wire::Input { key, file, ..wire::Input::default() }))
    }

    /// A file that all nodes see, such as one of a shared file system. The command reads it as
    /// `file` in its own directory. `path` must be absolute: [`crate::GraphBuilder::finish`] checks
    /// that.
    #[must_use]
    pub fn external(self, name: &str, path: &str, file: &str) -> Self {
        let (key, path, file) = (name.to_owned(), path.to_owned(), file.to_owned());
        self.with(|spec| {
            spec.externals.push(wire::External { key, path, file, ..wire::External::default() });
        })
    }

    /// The next output: `file` in the directory of the command, or below it. Outputs are numbered
    /// from 0 in the order of these calls. The bytes are freed when the last child that reads them
    /// has ended; see [`Self::kept_output`].
    #[must_use]
    pub fn output(self, name: &str, file: &str) -> Self {
        self.with_output(name, file, false)
    }

    /// As [`Self::output`], and its bytes stay after the end of the job, until the job is forgotten
    /// with its results. An open job keeps no outputs after its end.
    ///
    /// Only [`crate::Client::read_output`] and [`crate::Client::fetch_output`] read them;
    /// `starling job fetch` lists only what `starling` submitted.
    #[must_use]
    pub fn kept_output(self, name: &str, file: &str) -> Self {
        self.with_output(name, file, true)
    }

    fn with_output(self, name: &str, file: &str, keep: bool) -> Self {
        let (key, file) = (name.to_owned(), file.to_owned());
        let output = wire::Output { key, file, keep, ..wire::Output::default() };
        self.with(|spec| spec.outputs.push(output))
    }

    /// The slots that each task takes while it runs. Default: 1. It replaces [`Self::needs`].
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.has_needs = true;
        self.with(|spec| {
            spec.cpus = cpus.max(1);
            spec.memory_bytes = 0;
            spec.request.clear();
        })
    }

    /// The resources that each task takes while it runs, as `starling submit` takes them: amounts
    /// of cpus, memory, GPUs and pools. It replaces [`Self::cpus`].
    ///
    /// # Errors
    /// [`ClientError::Refused`] has the reason why there is no such request.
    pub fn needs(mut self, needs: &Needs) -> Result<Self, ClientError> {
        let needs = needs.request().map_err(ClientError::Refused)?;
        self.has_needs = true;
        Ok(self.with(|spec| {
            spec.cpus = needs.cpus;
            spec.memory_bytes = needs.memory_bytes;
            spec.request = needs.request;
        }))
    }

    /// The task holds this number of nodes at once, and its needs are of each. Without needs it
    /// holds whole nodes. The command runs on the first; `STARLING_NODEFILE` names all.
    #[must_use]
    pub fn nodes(self, nodes: u32) -> Self {
        let whole = Needs { cpus: "all".to_owned(), ..Needs::default() };
        let (has_needs, is_gang) = (self.has_needs, nodes > 1);
        self.with(|spec| {
            spec.nodes = if is_gang { nodes } else { 0 };
            if !has_needs {
                let whole = whole.request().ok().filter(|_| is_gang);
                spec.request = whole.map(|whole| whole.request).unwrap_or_default();
            }
        })
    }

    /// The tasks are accepted even if no present node can run them, and wait for one that joins.
    #[must_use]
    pub fn awaits_nodes(self) -> Self {
        self.with(|spec| spec.awaits_nodes = true)
    }

    /// The number of further attempts after a failed one. Default: 0.
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        self.with(|spec| spec.retries = retries)
    }

    /// The crashes after which a task fails. Default: 0, see [`CrashLimit`].
    #[must_use]
    pub fn crash_limit(self, CrashLimit(limit): CrashLimit) -> Self {
        self.with(|spec| spec.crash_limit = limit)
    }

    /// A task starts only on nodes that live at least this long. 0, the default: on all nodes.
    #[must_use]
    pub fn time_request(self, length: Duration) -> Self {
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.with(|spec| spec.time_request_ns = length_ns)
    }

    /// An attempt that takes longer is killed and fails. 0, the default: no limit.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.with(|spec| spec.time_limit_ns = limit_ns)
    }

    /// The command gets this signal before its time limit ends, before its node ends, and at once
    /// when its node is drained: once in each attempt. No effect on a task that is no command.
    #[must_use]
    pub fn signal(self, notice: Notice) -> Self {
        self.with_command(|command| command.notice = Some(Box::new(notice.to_wire())))
    }

    /// The command is pinned to the cpus that its attempt has. No effect on a task that is none.
    #[must_use]
    pub fn pin(self, pin: CpuPin) -> Self {
        self.with_command(|command| command.set_pin(pin.to_wire()))
    }

    /// Of tasks of one priority, the one with the highest rank starts first on each node. Default:
    /// 0, the nodes rank the task; these go last.
    #[must_use]
    pub fn rank(self, rank: u32) -> Self {
        self.with(|spec| spec.rank = rank)
    }

    /// Attempts that run by this variant of the needs, counted from 0, run this command instead of
    /// the task's. Nothing changes for tasks that are no commands.
    #[must_use]
    pub fn variant_command<T: Into<String>>(
        self,
        variant: u32,
        argv: impl IntoIterator<Item = T>,
    ) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        self.with_command(|command| {
            command.variants.retain(|own| own.variant != variant);
            command.variants.push(wire::VariantCommand { variant, argv });
        })
    }

    /// The task with the highest priority starts first on each node. Default: 0.
    #[must_use]
    pub fn priority(self, priority: i32) -> Self {
        self.with(|spec| spec.priority = priority)
    }

    /// A variable of the command's environment. No effect on a task that is no command.
    #[must_use]
    pub fn env(self, name: &str, value: &str) -> Self {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.with_command(|command| command.env.push(wire::Env { name, value }))
    }

    /// The working directory of the command. Default: a directory of its own. No effect on a task
    /// that is no command.
    #[must_use]
    pub fn cwd(self, path: &str) -> Self {
        self.with_command(|command| path.clone_into(&mut command.cwd))
    }

    /// The file that the command reads as its standard input. Default: nothing. No effect on a task
    /// that is no command.
    #[must_use]
    pub fn stdin(self, path: &str) -> Self {
        self.with_command(|command| path.clone_into(&mut command.stdin))
    }

    /// Relative [`Self::cwd`] and [`Self::stdin`] begin at this absolute directory. No effect on a
    /// task that is no command.
    #[must_use]
    pub fn submit_dir(self, path: &str) -> Self {
        self.with_command(|command| path.clone_into(&mut command.submit_dir))
    }

    pub(crate) fn inputs(&self) -> usize {
        self.spec.inputs.len()
    }

    pub(crate) fn outputs(&self) -> usize {
        self.spec.outputs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_on_several_nodes_holds_whole_ones_unless_it_says_what_it_needs() {
        let asked = |spec: TaskSpec| {
            let spec = spec.spec.as_ref().clone();
            (spec.nodes, spec.cpus, spec.request)
        };
        let spec = || TaskSpec::command(["true"]);
        let whole = Needs { cpus: "all".to_owned(), ..Needs::default() };
        let request = whole.request().expect("it is a request").request;
        assert!(!request.is_empty());
        assert_eq!(asked(spec().nodes(3)), (3, 1, request));
        assert_eq!(asked(spec().nodes(3).cpus(2)), (3, 2, Vec::new()));
        assert_eq!(asked(spec().cpus(1).nodes(3)), (3, 1, Vec::new()));
        assert_eq!(asked(spec().nodes(3).nodes(1)), (0, 1, Vec::new()));
    }
}
