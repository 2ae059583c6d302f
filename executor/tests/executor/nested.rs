//! Calls that wait for their own calls, and calls on top of them.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use executor::{CallAnswer, CallAnswers, CallHost, CallRequest};
use proto::work::Launch;
use proto::{Attempt, JobId, TaskId, wire};

use crate::calls::with;
use crate::common::{Bench, wait_until};

/// Gives each call that asks the same job for its calls.
#[derive(Debug)]
struct Host {
    job: JobId,
    /// Calls that wait, or want to go on, in their order.
    rests: Mutex<Vec<(u64, bool)>>,
}

impl CallHost for Host {
    fn ask(&self, _: CallRequest, answers: CallAnswers) {
        let json = b"{}".to_vec();
        answers(CallAnswer { json, job: Some(self.job), ..CallAnswer::default() });
    }
    fn rests(&self, task: TaskId, _: Attempt, rests: bool) {
        self.rests.lock().unwrap().push((task.local.0, rests));
    }
    fn ended(&self, _: TaskId, _: Attempt) {}
}

struct Nested {
    bench: Bench,
    host: Arc<Host>,
    /// The waits of calls end when this file is there.
    until: PathBuf,
    /// Each start of a call that waits adds a byte.
    mark: PathBuf,
}

impl Nested {
    /// One slot. The tasks of the bench are those of job 1.
    fn with_calls_of(job: u64) -> Self {
        let host = Arc::new(Host { job: JobId(job), rests: Mutex::default() });
        let theirs: Arc<dyn CallHost> = host.clone();
        let bench = Bench::of_functions(|config| {
            config.slots = 1;
            config.host = Some(theirs);
        });
        let (until, mark) =
            (bench.directory.path().join("until"), bench.directory.path().join("mark"));
        Self { bench, host, until, mark }
    }

    fn waits(&self, local: u64) -> Launch {
        let args = format!("[{:?}, {:?}]", self.mark, self.until);
        self.bench.call(local, "waits", &args)
    }

    fn begin(&self, local: u64) {
        self.bench.executor.launch(self.waits(local));
    }

    /// A call that a call has submitted.
    fn of_a_call(&self, local: u64, function: &str, args: &str) -> Launch {
        with(self.bench.call(local, function, args), |spec| {
            let Some(wire::spec::Body::Call(call)) = &mut spec.body else { unreachable!() };
            call.nested = true;
        })
    }

    fn rests(&self) -> Vec<(u64, bool)> {
        self.host.rests.lock().unwrap().clone()
    }

    /// The number of starts of calls that wait.
    fn starts(&self) -> usize {
        fs::read(&self.mark).map_or(0, |bytes| bytes.len())
    }

    /// Ends all waits; what this call returned.
    fn returned(&mut self, local: u64) -> String {
        fs::write(&self.until, "").unwrap();
        let outcome = self.bench.outcome(TaskId::new(1, local));
        assert!(outcome.is_done(), "{outcome:?}");
        self.bench.object(local, 0)
    }
}

/// A process that crashes takes the calls below it along. After three times these are alone.
#[test]
fn a_crash_on_top_of_waiting_calls_does_not_repeat_without_end() {
    let mut nested = Nested::with_calls_of(1);
    nested.begin(1);
    nested.begin(2);
    wait_until("both wait", || nested.rests().len() == 2);
    for local in 10..20 {
        let crash = nested.of_a_call(local, "leave", "[7]");
        let outcome = nested.bench.run(crash);
        assert!(outcome.error.contains("exited with code 7"), "{outcome:?}");
    }
    assert!(nested.starts() <= 8, "{} starts of two calls", nested.starts());
    assert_eq!((nested.returned(1), nested.returned(2)), ("\"ended\"".into(), "\"ended\"".into()));
}

/// A call of a client cannot end a wait. It stays in the queue, and gives its slot back.
#[test]
fn waits_do_not_fail_because_a_call_that_nothing_waits_for_cannot_start() {
    let mut nested = Nested::with_calls_of(9);
    (1..=4).for_each(|local| nested.begin(local));
    wait_until("two wait", || nested.starts() == 2 && nested.rests().len() >= 2);
    wait_until("the others give their slots back", || nested.rests().len() == 4);
    // Each half second would start a process, and later end a wait.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(nested.starts(), 2, "{:?}", nested.rests());
    nested.bench.no_more_outcomes();
    for local in 1..=4 {
        assert_eq!(nested.returned(local), "\"ended\"");
    }
    let again = nested.rests().into_iter().filter(|(_, rests)| !rests);
    assert_eq!(again.count(), 2, "those that were queued want their slots again");
}

/// A call of a call that none of the waiting processes may run gets a process beyond the limit.
#[test]
fn a_call_that_others_may_wait_for_starts_beyond_the_limit() {
    let mut nested = Nested::with_calls_of(9);
    nested.begin(1);
    nested.begin(2);
    wait_until("both wait", || nested.rests().len() == 2);
    nested.begin(3);
    let child = nested.of_a_call(4, "add", "[1, 2]");
    let outcome = nested.bench.run(child);
    assert!(outcome.is_done(), "{outcome:?}");
    assert_eq!(nested.bench.object(4, 0), "3", "it comes before call 3");
    assert_eq!(nested.returned(3), "\"ended\"");
}
