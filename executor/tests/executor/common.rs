//! A bench for executors: launches and their outcomes.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use executor::{AttemptOutcome, Executor, ExecutorConfig};
use proto::work::{Launch, LaunchInput, Outcome};
use proto::{Attempt, NodeId, ObjectId, Span, TaskId, wire};

/// A wait of this length has failed; no other test result depends on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Bench {
    pub(crate) executor: Executor,
    pub(crate) submit_dir: PathBuf,
    pub(crate) directory: tempfile::TempDir,
    outcomes: mpsc::Receiver<(TaskId, Attempt, Outcome)>,
    early: HashMap<TaskId, Outcome>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        // The test program itself is the spawner: its test `__spawner` runs it.
        Self::with(|config| config.spawner_program = Some(std::env::current_exe().unwrap()))
    }

    /// A bench with this output limit for each command.
    pub(crate) fn limited(captured_task_bytes: u64) -> Self {
        Self::with(|config| {
            config.spawner_program = Some(std::env::current_exe().unwrap());
            config.captured_task_bytes = captured_task_bytes;
        })
    }

    pub(crate) fn with(change: impl FnOnce(&mut ExecutorConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let submit_dir = directory.path().join("submit");
        fs::create_dir(&submit_dir).unwrap();
        let mut config = ExecutorConfig::new(directory.path().join("state"), NodeId(2), 4);
        config.kill_grace = Span::from_millis(200);
        change(&mut config);
        let (sender, outcomes) = mpsc::channel();
        let executor = Executor::start(config, move |ended| {
            for AttemptOutcome { task, attempt, outcome, .. } in ended {
                let _ = sender.send((task, attempt, outcome));
            }
        });
        let executor = executor.unwrap();
        Self { executor, submit_dir, directory, outcomes, early: HashMap::new() }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.directory.path().join("state").canonicalize().unwrap()
    }

    pub(crate) fn command(&self, argv: &[&str]) -> wire::Command {
        wire::Command {
            argv: argv.iter().map(|argument| argument.to_string()).collect(),
            submit_dir: self.submit_dir.to_str().unwrap().to_owned(),
            ..Default::default()
        }
    }

    /// Launches and waits.
    pub(crate) fn run(&mut self, launch: Launch) -> Outcome {
        let task = launch.task;
        self.executor.launch(launch);
        self.outcome(task)
    }

    pub(crate) fn shell(&mut self, local: u64, script: &str) -> Outcome {
        let spec = spec_of(self.command(&["sh", "-c", script]));
        self.run(launch(local, spec))
    }

    pub(crate) fn outcome(&mut self, task: TaskId) -> Outcome {
        if let Some(outcome) = self.early.remove(&task) {
            return outcome;
        }
        loop {
            let (other, _, outcome) = self.outcomes.recv_timeout(PATIENCE).expect("an outcome");
            if other == task {
                return outcome;
            }
            assert!(self.early.insert(other, outcome).is_none(), "{other} ended twice");
        }
    }

    pub(crate) fn next_outcome(&mut self) -> (TaskId, Attempt, Outcome) {
        self.outcomes.recv_timeout(PATIENCE).expect("an outcome")
    }

    pub(crate) fn no_more_outcomes(&self) {
        assert!(self.early.is_empty(), "{:?}", self.early);
        assert_eq!(self.outcomes.try_recv().ok(), None);
    }

    pub(crate) fn stdout(&self, local: u64) -> String {
        self.printed(local, false)
    }

    pub(crate) fn printed(&self, local: u64, stderr: bool) -> String {
        let task = TaskId::new(1, local);
        let pieces = self.executor.streams().read(task.job, &[task.local], stderr);
        let bytes: Vec<u8> = pieces.flat_map(|piece| piece.unwrap().data).collect();
        String::from_utf8(bytes).unwrap()
    }

    pub(crate) fn object(&self, local: u64, output: u32) -> String {
        let bytes = fs::read(self.executor.objects().file(object(local, output)).unwrap()).unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

pub(crate) fn object(local: u64, output: u32) -> ObjectId {
    ObjectId { task: TaskId::new(1, local), attempt: Attempt(1 << 32 | 1), output }
}

pub(crate) fn launch(local: u64, spec: wire::Spec) -> Launch {
    Launch {
        task: TaskId::new(1, local),
        attempt: Attempt(1 << 32 | 1),
        slot: 0,
        spec: spec.into(),
        settings: wire::JobSettings { real_data: true, ..Default::default() }.into(),
        entry: 7,
        duration: Span::ZERO,
        output_sizes: vec![],
        name: String::new(),
        payload: Default::default(),
        inputs: vec![],
        resume: None,
        granted: None,
        gang: Vec::new(),
    }
}

pub(crate) fn input(slot: u32, object: ObjectId, size_bytes: u64) -> LaunchInput {
    LaunchInput { slot, object, size_bytes }
}

pub(crate) fn spec_of(command: wire::Command) -> wire::Spec {
    let body = Some(wire::spec::Body::Command(command));
    wire::Spec { name: "t-{i}".into(), body, ..Default::default() }
}

pub(crate) fn output(key: &str, file: &str) -> wire::Output {
    wire::Output { key: key.into(), file: file.into(), ..Default::default() }
}

/// Waits until a condition holds; panics if it never does.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// True if a process runs (a zombie does not).
pub(crate) fn is_alive(pid: &str) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !text.rsplit_once(") ").unwrap().1.starts_with(['Z', 'X'])
}

pub(crate) fn read_pid(path: &Path) -> String {
    wait_until("a process id in a file", || {
        fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    });
    fs::read_to_string(path).unwrap().trim().to_owned()
}
