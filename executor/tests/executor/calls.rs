//! Calls of functions in worker processes.

use std::collections::HashMap;
use std::fs;

use executor::ExecutorConfig;
use proto::work::{Granted, GrantedPool, Launch, Outcome};
use proto::{TaskId, codec, wire};

use crate::common::{Bench, input, is_alive, launch, object, output, wait_until};

const MODULE: &str = r#"
import os, signal, sys, time

def add(*numbers):
    return sum(numbers)

def number(value):
    return lambda: value

for value in range(300):
    globals()[f"number{value}"] = number(value)

def where():
    return os.getpid()

def say(out, err):
    print(out)
    print(err, file=sys.stderr)
    os.system("echo from a shell")

def fail(text):
    print("before it fails")
    raise ValueError(text)

def die(number):
    print("last words", flush=True)
    print("last error", file=sys.stderr, flush=True)
    os.kill(os.getpid(), number)

def leave(code):
    os._exit(code)

def sleep(seconds, mark=None):
    if mark:
        with open(mark, "w") as file:
            file.write(f"{os.getpid()}\n")
    time.sleep(seconds)

def endless():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pass

def much(mib):
    data = b"x" * (mib << 20)
    time.sleep(60)
    return len(data)

def text(count):
    return "x" * count

def length(text):
    return len(text)

def garbage():
    os.write(4, b"\xff" * 64)
    time.sleep(60)

def waits(mark, until):
    # Waits as for its own calls, without a slot.
    from starling._worker import context
    line = context._state["line"]
    call = line.worker.word[0]
    with open(mark, "a") as file:
        file.write("x")
    line.ask(call, {"ask": "open", "name": ""})
    line.rest(call, True)
    while not os.path.exists(until):
        line.read(0.01)
        if call in line.going:
            return "stuck" if line.going.pop(call) else "went on"
    return "ended"

def flood():
    while True:
        os.write(1, b"y" * 65536)
        time.sleep(0.001)
"#;

impl Bench {
    pub(crate) fn of_functions(change: impl FnOnce(&mut ExecutorConfig)) -> Self {
        let bench = Self::with(|config| {
            config.spawner_program = Some(std::env::current_exe().unwrap());
            change(config);
        });
        fs::write(bench.submit_dir.join("work.py"), MODULE).unwrap();
        bench
    }

    pub(crate) fn call(&self, local: u64, function: &str, args: &str) -> Launch {
        let runtime = wire::Runtime {
            directory: self.submit_dir.to_str().unwrap().to_owned(),
            ..Default::default()
        };
        let call = wire::Call {
            runtime: Some(runtime),
            body: format!("work:{function}").into_bytes().into(),
            body_codec: codec::TEXT.into(),
            codec: codec::JSON.into(),
            ..Default::default()
        };
        let spec = wire::Spec {
            kind: function.to_owned(),
            body: Some(wire::spec::Body::Call(call)),
            outputs: vec![output("result", "result")],
            ..Default::default()
        };
        Launch { payload: args.as_bytes().to_vec().into(), ..launch(local, spec) }
    }

    fn returned(&mut self, local: u64, function: &str, args: &str) -> String {
        let outcome = self.run(self.call(local, function, args));
        assert!(outcome.is_done(), "{outcome:?}");
        self.object(local, 0)
    }

    fn failed(&mut self, local: u64, function: &str, args: &str) -> Outcome {
        let outcome = self.run(self.call(local, function, args));
        assert!(!outcome.is_done(), "{outcome:?}");
        outcome
    }
}

pub(crate) fn with(launch: Launch, change: impl FnOnce(&mut wire::Spec)) -> Launch {
    let mut spec = (*launch.spec).clone();
    change(&mut spec);
    Launch { spec: spec.into(), ..launch }
}

#[test]
fn a_function_returns_a_value_and_its_worker_is_used_again() {
    let mut bench = Bench::of_functions(|_| {});
    assert_eq!(bench.returned(1, "add", "[1, 2, 39]"), "42");
    let first = bench.returned(2, "where", "[]");
    assert_eq!(bench.returned(3, "where", "[]"), first, "one worker serves calls one by one");
    assert_eq!(bench.returned(4, "add", r#"{"args": [1], "kwargs": {}}"#), "1");
    bench.no_more_outcomes();
    let left: Vec<_> = fs::read_dir(bench.state().join("tasks")).unwrap().collect();
    assert!(left.is_empty(), "a call makes no directory: {left:?}");
}

#[test]
fn results_are_inputs_of_other_calls_small_and_large() {
    let mut bench = Bench::of_functions(|_| {});
    for (local, count) in [(1, 10), (2, 100_000), (3, 2_000_000)] {
        let outcome = bench.run(bench.call(local, "text", &format!("[{count}]")));
        assert_eq!(outcome.output_sizes, [count + 2], "{outcome:?}");
        let mut call = bench.call(10 + local, "length", r#"[{"$slot": 0}]"#);
        call.inputs = vec![input(0, object(local, 0), count + 2)];
        let call = with(call, |spec| {
            spec.inputs = vec![wire::Input { value: true, ..Default::default() }];
        });
        let outcome = bench.run(call);
        assert!(outcome.is_done(), "{outcome:?}");
        assert_eq!(bench.object(10 + local, 0), count.to_string());
    }
    let left = fs::read_dir(bench.state().join("results")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["worker.zip"], "large results are adopted");
}

/// A worker keeps 256 functions; a function that it has dropped is sent again.
#[test]
fn a_worker_serves_more_functions_than_it_keeps() {
    let mut bench = Bench::of_functions(|config| config.slots = 1);
    for (local, value) in (0..300).chain([0, 1, 299]).enumerate() {
        let returned = bench.returned(local as u64, &format!("number{value}"), "[]");
        assert_eq!(returned, value.to_string());
    }
}

#[test]
fn a_worker_ends_where_another_runtime_needs_its_place() {
    let mut bench = Bench::of_functions(|config| config.slots = 1);
    let first = bench.returned(1, "where", "[]");
    let call = with(bench.call(2, "where", "[]"), |spec| {
        let Some(wire::spec::Body::Call(call)) = &mut spec.body else { unreachable!() };
        let variable = wire::Env { name: "OTHER".to_owned(), value: "yes".to_owned() };
        call.runtime.as_mut().unwrap().env.push(variable);
    });
    assert!(bench.run(call).is_done());
    assert_ne!(bench.object(2, 0), first);
    wait_until("the first worker ends", || !is_alive(&first));
}

#[test]
fn printed_text_belongs_to_its_call() {
    let mut bench = Bench::of_functions(|_| {});
    bench.returned(1, "say", r#"["one", "two"]"#);
    bench.returned(2, "say", r#"["three", "four"]"#);
    assert_eq!(bench.stdout(1), "one\nfrom a shell\n");
    assert_eq!((bench.printed(1, true), bench.printed(2, true)), ("two\n".into(), "four\n".into()));
}

#[test]
fn a_raised_exception_fails_its_call_with_type_text_and_traceback() {
    let mut bench = Bench::of_functions(|_| {});
    let outcome = bench.failed(1, "fail", r#"["no such thing"]"#);
    assert_eq!(outcome.error, "ValueError: no such thing");
    assert_eq!(bench.stdout(1), "before it fails\n");
    let traceback = bench.printed(1, true);
    assert!(traceback.contains("in fail") && traceback.contains("work.py"), "{traceback}");
    assert!(!outcome.stderr_tail.is_empty());
    assert_eq!(bench.returned(2, "add", "[1]"), "1", "the worker lives on");
    let outcome = bench.failed(3, "absent", "[]");
    assert!(outcome.error.contains("absent"), "{outcome:?}");
    assert!(!outcome.lost);
}

#[test]
fn a_crash_fails_its_call_alone_with_the_signal_and_the_last_words() {
    let mut bench = Bench::of_functions(|_| {});
    let outcome = bench.failed(1, "die", "[11]");
    assert_eq!(outcome.error, "its worker was killed by signal 11 (SIGSEGV)");
    assert_eq!((outcome.exit_code, outcome.lost), (139, false));
    assert_eq!(bench.stdout(1), "last words\n");
    assert!(bench.printed(1, true).starts_with("last error\n"));
    let outcome = bench.failed(2, "leave", "[3]");
    assert_eq!(outcome.error, "its worker exited with code 3 during the call");
    let outcome = bench.failed(3, "die", "[9]");
    assert!(outcome.lost, "a SIGKILL may come from elsewhere: {outcome:?}");
    assert_eq!(bench.returned(4, "add", "[7]"), "7");
}

#[test]
fn a_time_limit_interrupts_and_then_kills() {
    let mut bench = Bench::of_functions(|_| {});
    let worker = bench.returned(1, "where", "[]");
    let limited = |launch| with(launch, |spec| spec.time_limit_ns = 100_000_000);
    let outcome = bench.run(limited(bench.call(2, "sleep", "[60]")));
    assert_eq!(outcome.error, "exceeded its time limit of 0.1 s and was interrupted");
    assert_eq!(bench.returned(3, "where", "[]"), worker, "it lives on after SIGINT");
    let outcome = bench.run(limited(bench.call(4, "endless", "[]")));
    let text = "exceeded its time limit of 0.1 s and was interrupted, then killed";
    assert_eq!(outcome.error, text);
    assert_ne!(bench.returned(5, "where", "[]"), worker);
}

#[test]
fn too_much_memory_and_too_much_text_end_the_call() {
    let mut bench = Bench::of_functions(|config| config.captured_task_bytes = 1 << 20);
    let mut call = bench.call(1, "much", "[400]");
    let memory = GrantedPool {
        name: "memory".to_owned(),
        variable: "MEMORY".to_owned(),
        units: (200 << 20) * 10_000,
        indices: Vec::new(),
    };
    call.granted = Some(Box::new(Granted { variant: 0, pools: vec![memory] }));
    let outcome = bench.run(call);
    assert!(outcome.error.starts_with("memory: "), "{outcome:?}");
    assert!(outcome.error.ends_with(" of 200 MiB asked"), "{outcome:?}");
    let outcome = bench.run(bench.call(2, "flood", "[]"));
    assert!(outcome.error.contains("the limit is 1 MiB"), "{outcome:?}");
}

#[test]
fn garbage_on_the_pipe_fails_the_call() {
    let mut bench = Bench::of_functions(|_| {});
    let outcome = bench.failed(1, "garbage", "[]");
    assert_eq!(outcome.error, "the worker broke its protocol: a frame above 1 MiB");
    assert_eq!(bench.returned(2, "add", "[1]"), "1");
}

#[test]
fn a_killed_call_leaves_its_worker_to_others() {
    let mut bench = Bench::of_functions(|config| config.slots = 1);
    let mark = bench.submit_dir.join("mark");
    // Without the kill the second call waits for longer than any test.
    let args = format!("[100000, {:?}]", mark.to_str().unwrap());
    bench.executor.launch(bench.call(1, "sleep", &args));
    let pid = crate::common::read_pid(&mark);
    bench.executor.kill(TaskId::new(1, 1), object(1, 0).attempt);
    assert_eq!(bench.returned(2, "where", "[]"), pid);
    bench.no_more_outcomes();
}

#[test]
fn a_stop_leaves_no_worker_behind() {
    let mut bench = Bench::of_functions(|_| {});
    let idle = bench.returned(1, "where", "[]");
    let mark = bench.submit_dir.join("mark");
    bench.executor.launch(bench.call(2, "sleep", &format!("[60, {:?}]", mark.to_str().unwrap())));
    let busy = crate::common::read_pid(&mark);
    bench.executor.stop();
    wait_until("the workers end", || !is_alive(&idle) && !is_alive(&busy));
}

#[test]
fn a_runtime_that_cannot_start_fails_its_calls() {
    let mut bench = Bench::of_functions(|_| {});
    let runtime = |argv: &[&str], preload: &[&str]| wire::Runtime {
        argv: argv.iter().map(|it| (*it).to_owned()).collect(),
        preload: preload.iter().map(|it| (*it).to_owned()).collect(),
        ..Default::default()
    };
    for (local, runtime, expected) in [
        (1, runtime(&["no-such-python", "{worker}"], &[]), "no-such-python"),
        (2, runtime(&["false"], &[]), "code 1"),
        (3, runtime(&[], &["no_such_module"]), "no_such_module"),
    ] {
        let call = with(bench.call(local, "add", "[1]"), |spec| {
            let Some(wire::spec::Body::Call(call)) = &mut spec.body else { unreachable!() };
            call.runtime = Some(runtime);
        });
        let outcome = bench.run(call);
        assert!(outcome.error.contains(expected), "{outcome:?}");
    }
}

/// A worker in another language, which is started without a zygote.
#[test]
fn a_worker_in_perl_runs_its_own_functions() {
    let mut bench = Bench::of_functions(|_| {});
    let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/workers/worker.pl");
    let call = with(bench.call(1, "add", "[20, 22]"), |spec| {
        let Some(wire::spec::Body::Call(call)) = &mut spec.body else { unreachable!() };
        call.runtime = Some(wire::Runtime {
            argv: vec!["perl".to_owned(), worker.to_owned()],
            direct: true,
            ..Default::default()
        });
        call.body = "$_[0] + $_[1]".as_bytes().to_vec().into();
    });
    let outcome = bench.run(call);
    assert!(outcome.is_done(), "{outcome:?}");
    assert_eq!(bench.object(1, 0), "42");
}

/// Workers are killed at random; each call that was lost is launched again.
#[test]
fn ten_thousand_calls_are_right_though_workers_are_killed() {
    const CALLS: u64 = 10_000;
    let mut bench = Bench::of_functions(|_| {});
    let mut attempts: HashMap<u64, u64> = HashMap::new();
    let (mut next, mut running, mut kills, mut lost) = (1, 0, 0, 0);
    let mut queue: Vec<u64> = Vec::new();
    let mut done = 0;
    while done < CALLS {
        assert!(lost < CALLS, "{done} are done");
        while running < 4 && (next <= CALLS || !queue.is_empty()) {
            let local = queue.pop().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            let attempt = attempts.entry(local).and_modify(|it| *it += 1).or_insert(1);
            let mut call = bench.call(local, "add", &format!("[{local}, 1]"));
            call.attempt = proto::Attempt(*attempt);
            bench.executor.launch(call);
            running += 1;
        }
        if done / 300 > kills {
            kills += u64::from(kill_one_worker(&bench, kills as usize));
        }
        let (task, attempt, outcome) = bench.next_outcome();
        running -= 1;
        let local = task.local.0;
        if outcome.lost {
            lost += 1;
            queue.push(local);
            continue;
        }
        assert!(outcome.is_done(), "{outcome:?}");
        let result = proto::ObjectId { task, attempt, output: 0 };
        let path = bench.executor.objects().file(result).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), (local + 1).to_string());
        bench.executor.discard(task, attempt);
        done += 1;
    }
    assert!(kills > 20, "{kills} kills, {lost} lost");
    bench.no_more_outcomes();
}

/// Kills one of the workers, found by their directory for results. False if there is none.
fn kill_one_worker(bench: &Bench, which: usize) -> bool {
    let needle = format!("STARLING_WORKER_OBJECTS={}", bench.state().join("results").display());
    let mut workers = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let Ok(pid) = name.parse::<i32>() else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let is_one = environment.split(|byte| *byte == 0).any(|it| it == needle.as_bytes());
        // The leader of its own group, and no zygote: that has a socket at 3, not a pipe.
        let third = fs::read_link(entry.path().join("fd/3")).unwrap_or_default();
        if is_one && third.to_string_lossy().starts_with("pipe:") {
            workers.push(pid);
        }
    }
    workers.get(which % workers.len().max(1)).is_some_and(|pid| {
        let pid = rustix::process::Pid::from_raw(*pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok()
    })
}
