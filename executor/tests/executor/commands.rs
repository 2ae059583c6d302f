//! Real commands, from launch to outcome.

use std::fs;

use executor::CopiedRecords;

use crate::common::{Bench, input, launch, object, output, spec_of};
use proto::work::{Captured, Granted, GrantedPool};
use proto::{NodeId, Span, wire};

#[test]
fn a_command_prints_and_ends() {
    let mut bench = Bench::new();
    let outcome = bench.shell(1, "echo out; echo err >&2");
    assert!(outcome.is_done(), "{outcome:?}");
    assert_eq!((outcome.exit_code, outcome.stderr_tail), (0, vec![]));
    assert_eq!(bench.stdout(1), "out\n");
    assert_eq!(bench.printed(1, true), "err\n");
    assert_eq!(outcome.captured, Captured { stdout_bytes: 4, stderr_bytes: 4 });
    assert!(outcome.used.max_rss_kib > 0, "{:?}", outcome.used);
    bench.no_more_outcomes();
    assert_eq!(bench.executor.running(), 0);
}

#[test]
fn an_end_has_cpu_time_and_peak_memory() {
    let mut bench = Bench::new();
    // The shell waits for its child, which has the memory and uses the time.
    let eats = "sh -c 'x=$(head -c 100000000 /dev/zero | tr \\\\0 x); echo ${#x}'; exit 3";
    let used = bench.shell(1, eats).used;
    assert!(used.cpu_us > 10_000 && used.max_rss_kib > 90_000, "{used:?}");
}

/// A process in a group of its own counts, and is killed.
#[test]
fn memory_of_processes_outside_the_group_is_kept() {
    let mut bench = Bench::new();
    let pid = bench.directory.path().join("pid");
    let eats = "x=$(head -c 100000000 /dev/zero | tr \\\\0 x); sleep 60; echo ${#x}";
    let script = format!("setsid sh -c 'echo $$ > {pid}; {eats}' & wait", pid = pid.display());
    let mut launch = launch(1, spec_of(bench.command(&["sh", "-c", &script])));
    let (name, variable) = ("memory".to_owned(), "MEMORY".to_owned());
    let pool = GrantedPool { name, variable, units: (32 << 20) * 10_000, indices: vec![] };
    launch.granted = Some(Box::new(Granted { variant: 0, pools: vec![pool] }));
    let outcome = bench.run(launch);
    assert!(outcome.error.ends_with("of 32 MiB asked"), "{outcome:?}");
    assert!(outcome.used.max_rss_kib > 32 << 10, "{outcome:?}");
    let stat = || fs::read(format!("/proc/{}/stat", fs::read_to_string(&pid).unwrap().trim()));
    while stat().is_ok_and(|stat| !String::from_utf8_lossy(&stat).contains(") Z ")) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn failures_say_what_happened() {
    let mut bench = Bench::new();
    let outcome = bench.shell(1, "echo first; echo why it failed >&2; exit 3");
    assert_eq!((outcome.error.as_str(), outcome.exit_code), ("exited with code 3", 3));
    assert_eq!(outcome.stderr_tail, b"why it failed\n");

    let outcome = bench.shell(2, "kill -SEGV $$");
    assert_eq!(outcome.error, "killed by signal 11 (SIGSEGV)");
    assert_eq!(outcome.exit_code, 139);
    // When memory runs out, this is all that the kernel reports.
    let outcome = bench.shell(30, "kill -KILL $$");
    assert_eq!(outcome.error, "killed by signal 9 (SIGKILL; out of memory?)");
    let outcome = bench.shell(31, "sh -c 'kill -KILL $$'; exit $?");
    assert_eq!(outcome.error, "exited with code 137 (its command killed; out of memory?)");

    let spec = spec_of(bench.command(&["no-such-program", "x"]));
    let outcome = bench.run(launch(3, spec));
    assert_eq!(outcome.error, "command 'no-such-program' not found on n2");
    assert_eq!(outcome.exit_code, 127);

    let plain = bench.submit_dir.join("plain.txt");
    fs::write(&plain, "text").unwrap();
    let spec = spec_of(bench.command(&["./plain.txt"]));
    let outcome = bench.run(launch(4, spec));
    let error = format!("command '{}' cannot start on n2: permission denied", plain.display());
    assert_eq!(outcome.error, error);
    assert_eq!(outcome.exit_code, 126);

    let mut spec = spec_of(bench.command(&["true"]));
    spec.outputs = vec![output("n", "n1")];
    let outcome = bench.run(launch(5, spec));
    assert_eq!(outcome.error, "declared output 'n' (file n1) was not written");

    for (local, file, error) in [
        (6, "../x", "file name '../x' must not contain '..'"),
        (7, "/tmp/x", "file name '/tmp/x' must be relative"),
    ] {
        let mut spec = spec_of(bench.command(&["true"]));
        spec.outputs = vec![output("n", file)];
        assert_eq!(bench.run(launch(local, spec)).error, error);
    }
    let spec = spec_of(bench.command(&["cat", "{in:nothing}"]));
    let outcome = bench.run(launch(8, spec));
    assert_eq!(outcome.error, "placeholder {in:nothing}: the task has no input 'nothing'");
    let spec = spec_of(bench.command(&[]));
    assert_eq!(bench.run(launch(9, spec)).error, "the command is empty");
    let tasks = bench.state().join("tasks");
    bench.executor.stop();
    assert_eq!(fs::read_dir(&tasks).unwrap().count(), 0);
    bench.no_more_outcomes();
}

#[test]
fn inputs_and_outputs_are_files_of_the_task() {
    let mut bench = Bench::new();
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo one > {out:a}; echo two > sub/b"]));
    spec.outputs = vec![output("a", "a{i}.txt"), output("b", "sub/b")];
    let outcome = bench.run(launch(1, spec));
    assert_eq!((outcome.error.as_str(), outcome.output_sizes), ("", vec![4, 4]));
    assert_eq!(bench.object(1, 0), "one\n");

    fs::write(bench.submit_dir.join("outside.txt"), "three\n").unwrap();
    let script = "cat $STARLING_INPUTS > {out:all}; cat {in:k} - >&2; ls";
    let mut command = bench.command(&["sh", "-c", script]);
    command.stdin = "outside.txt".into();
    let mut spec = spec_of(command);
    let named = |key: &str, file: &str| wire::Input {
        key: key.into(),
        file: file.into(),
        ..Default::default()
    };
    spec.inputs = vec![named("k", "x/in.txt"), named("k", "y.txt")];
    spec.externals =
        vec![wire::External { key: "e".into(), path: "outside.txt".into(), ..Default::default() }];
    spec.outputs = vec![output("all", "all.txt")];
    let mut launched = launch(2, spec.clone());
    launched.inputs = vec![input(1, object(1, 1), 4), input(0, object(1, 0), 4)];
    let outcome = bench.run(launched.clone());
    assert_eq!((outcome.error.as_str(), outcome.output_sizes), ("", vec![14]));
    assert_eq!(bench.object(2, 0), "one\ntwo\nthree\n", "as the spec lists them");
    assert_eq!(bench.printed(2, true), "one\ntwo\nthree\n");
    assert_eq!(bench.stdout(2), "all.txt\noutside.txt\nx\ny.txt\n");

    fs::remove_file(bench.submit_dir.join("outside.txt")).unwrap();
    launched.task.local.0 = 3;
    let missing = bench.submit_dir.join("outside.txt");
    let outcome = bench.run(launched.clone());
    assert_eq!(outcome.error, format!("input file '{}' does not exist", missing.display()));

    bench.executor.discard(object(1, 0).task, object(1, 0).attempt);
    launched.task.local.0 = 4;
    let outcome = bench.run(launched);
    assert!(outcome.error.ends_with("is not on n2"), "{}", outcome.error);
}

#[test]
fn task_directories_are_empty_at_first_and_do_not_pile_up() {
    let mut bench = Bench::new();
    for local in 0..10 {
        assert!(
            bench.shell(local, "ls -A; [ {i} = 7 ] && touch file; mkdir -p left/over").is_done()
        );
        assert_eq!(bench.stdout(local), "");
    }
    let tasks = bench.state().join("tasks");
    crate::common::wait_until("used directories are gone", || {
        fs::read_dir(&tasks).unwrap().count() == 0
    });
    for local in 10..20 {
        assert!(bench.shell(local, "true").is_done());
    }
    assert!(fs::read_dir(&tasks).unwrap().count() <= 2, "empty ones are used again");
}

#[test]
fn odd_outputs_are_copied_and_inputs_stay_as_they_are() {
    let mut bench = Bench::new();
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo data > o"]));
    spec.outputs = vec![output("o", "o")];
    assert!(bench.run(launch(1, spec)).is_done());
    // An output that is a link to an input, one that is the input's own inode, and a directory.
    let mut spec = spec_of(bench.command(&["sh", "-c", "ln -s in soft; ln in hard; mv in moved"]));
    spec.inputs = vec![wire::Input { key: "in".into(), file: "in".into(), ..Default::default() }];
    spec.outputs = vec![output("m", "moved"), output("h", "hard")];
    let mut launched = launch(2, spec);
    launched.inputs = vec![input(0, object(1, 0), 5)];
    let outcome = bench.run(launched);
    assert_eq!((outcome.error.as_str(), outcome.output_sizes), ("", vec![5, 5]));
    assert_eq!((bench.object(1, 0), bench.object(2, 0)), ("data\n".into(), "data\n".into()));
    let mut spec = spec_of(bench.command(&["mkdir", "d"]));
    spec.outputs = vec![output("d", "d")];
    let outcome = bench.run(launch(3, spec));
    assert_eq!(
        outcome.error,
        "declared output 'd' (file d) is a directory; hint: declare { dir = \"d\" } (or --out d/)"
    );
}

#[test]
fn an_output_behind_a_linked_directory_is_not_the_tasks() {
    let mut bench = Bench::new();
    let data = bench.submit_dir.join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("mine.txt"), "mine").unwrap();
    let mut spec = spec_of(bench.command(&["true"]));
    spec.externals =
        vec![wire::External { key: "d".into(), path: "data".into(), ..Default::default() }];
    spec.outputs = vec![output("o", "data/mine.txt")];
    let outcome = bench.run(launch(1, spec));
    let expected = "'data/mine.txt' leads out of the task's directory: 'data' is a link";
    assert!(outcome.error.ends_with(expected), "{}", outcome.error);
    // A link that the command itself makes is found when its outputs are collected.
    let script = format!("ln -s {} d2", data.display());
    let mut spec = spec_of(bench.command(&["sh", "-c", &format!("rmdir d2; {script}")]));
    spec.outputs = vec![output("o", "d2/mine.txt")];
    let outcome = bench.run(launch(2, spec));
    assert!(outcome.error.ends_with("'d2' is a link"), "{}", outcome.error);
    assert_eq!(fs::read_to_string(data.join("mine.txt")).unwrap(), "mine");
}

#[test]
fn what_a_task_sees() {
    let mut bench = Bench::new();
    let script = "echo $STARLING_JOB_ID $STARLING_TASK_ID $STARLING_ATTEMPT $STARLING_ENTRY \
                  $STARLING_CPUS $STARLING_NODE $OMP_NUM_THREADS $MINE; \
                  [ \"$PWD\" = \"$STARLING_TASK_DIR\" ] && mktemp | grep -c \"^$TMPDIR/\"; \
                  [ \"$STARLING_OUT_n\" = \"$PWD/f\" ] && touch f && echo {task} {job}";
    let mut command = bench.command(&["sh", "-c", script]);
    command.env = vec![wire::Env { name: "MINE".into(), value: "m{i}".into() }];
    let mut spec = spec_of(command);
    spec.cpus = 3;
    spec.outputs = vec![output("n", "f")];
    let outcome = bench.run(launch(5, spec));
    assert_eq!(outcome.error, "");
    assert_eq!(bench.stdout(5), "1 0.5 1.1 7 3 2 3 m7\n1\n0.5 1\n");

    let mut command = bench.command(&["sh", "-c", "pwd; echo ${STARLING_KILL_GRACE_MS-none}"]);
    fs::create_dir(bench.submit_dir.join("there")).unwrap();
    command.cwd = "there".into();
    assert!(bench.run(launch(6, spec_of(command.clone()))).is_done());
    let there = bench.submit_dir.canonicalize().unwrap().join("there");
    assert_eq!(bench.stdout(6), format!("{}\nnone\n", there.display()));
    command.cwd = "nowhere".into();
    let outcome = bench.run(launch(7, spec_of(command.clone())));
    assert!(outcome.error.ends_with("nowhere' does not exist on n2"), "{}", outcome.error);
    fs::write(bench.submit_dir.join("plain"), "").unwrap();
    command.cwd = "plain".into();
    let outcome = bench.run(launch(8, spec_of(command)));
    assert!(outcome.error.ends_with("plain' is not a directory on n2"), "{}", outcome.error);
}

#[test]
fn a_program_is_found_in_the_path_of_the_task_and_beside_the_submission() {
    use std::os::unix::fs::PermissionsExt;
    let mut bench = Bench::new();
    let bin = bench.submit_dir.join("bin");
    fs::create_dir(&bin).unwrap();
    let script = bin.join("hello-script");
    fs::write(&script, "#!/bin/sh\necho hello $1\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let spec = spec_of(bench.command(&["bin/hello-script", "a"]));
    assert!(bench.run(launch(1, spec)).is_done());
    assert_eq!(bench.stdout(1), "hello a\n");
    let mut command = bench.command(&["hello-script", "b"]);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    command.env = vec![wire::Env { name: "PATH".into(), value: path }];
    assert_eq!(bench.run(launch(2, spec_of(command.clone()))).error, "");
    assert_eq!(bench.stdout(2), "hello b\n");
    // A program that was found before and removed since is missing now.
    fs::remove_file(&script).unwrap();
    let outcome = bench.run(launch(3, spec_of(command)));
    assert_eq!(outcome.error, "command 'hello-script' not found on n2");
}

#[test]
fn much_output_is_kept_whole() {
    let mut bench = Bench::new();
    let outcome =
        bench.shell(1, "head -c 20000000 /dev/zero | tr '\\0' x; seq 1 100000 >&2; exit 1");
    assert_eq!(outcome.exit_code, 1);
    assert_eq!(outcome.stderr_tail.len(), proto::limits::STDERR_TAIL_BYTES);
    assert!(outcome.stderr_tail.ends_with(b"99999\n100000\n"));
    let printed = bench.stdout(1);
    assert_eq!(printed.len(), 20_000_000);
    let stderr_bytes = bench.printed(1, true).len() as u64;
    assert_eq!(outcome.captured, Captured { stdout_bytes: 20_000_000, stderr_bytes });
    assert!(printed.bytes().all(|byte| byte == b'x'));
    let lines = bench.printed(1, true);
    assert!(lines.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=100_000));
}

#[test]
fn a_command_that_prints_without_end_is_killed_at_its_limit() {
    let mut bench = Bench::limited(1 << 20);
    let outcome = bench.shell(1, "yes");
    let error = &outcome.error;
    assert!(error.starts_with("wrote 1.") && error.contains("; the limit is 1 MiB ("), "{error}");
    assert_eq!(outcome.captured, Captured { stdout_bytes: 1 << 20, stderr_bytes: 0 });
    assert_eq!(bench.stdout(1).len(), 1 << 20, "and it is there");
    // Both streams count, and a process that ignores SIGTERM is killed after its grace.
    let outcome = bench.shell(2, "trap '' TERM; (exec yes) & exec yes >&2");
    assert!(outcome.error.contains("the limit is 1 MiB"), "{outcome:?}");
    assert_eq!(outcome.captured.total_bytes(), 1 << 20);
    assert_eq!(outcome.exit_code, 137);
    // A command that has ended before its output was counted.
    let mut bench = Bench::limited(1000);
    let outcome = bench.shell(3, "head -c 2000 /dev/zero");
    let expected = "wrote 2.0 KiB of captured output; the limit is 1000 B (";
    assert!(outcome.error.starts_with(expected), "{outcome:?}");
    assert!(bench.shell(4, "head -c 1000 /dev/zero").is_done(), "no more than it may");
}

/// The maker has dropped its oldest pack: the keeper drops its copy of it before it checks the
/// space.
#[test]
fn a_copy_of_a_dropped_pack_makes_room_for_the_next() {
    let mut bench = Bench::new();
    assert!(bench.shell(1, "head -c 3000 /dev/zero | tr '\\0' x").is_done());
    let streams = bench.executor.streams();
    let data = streams.records_from(streams.packs()[0].0, 0).unwrap();
    bench.executor.set_captured_room(data.len() as u64 * 3 / 2);
    let part = |first, pack| CopiedRecords {
        maker: NodeId(7),
        store: 5,
        first,
        pack,
        offset: 0,
        data: &data,
    };
    let length = data.len() as u64;
    assert_eq!(bench.executor.keep_copy(&part(1, 1)).unwrap(), length);
    assert!(bench.executor.keep_copy(&part(1, 2)).is_err(), "two do not fit");
    assert_eq!(bench.executor.keep_copy(&part(2, 2)).unwrap(), length);
}

#[test]
fn a_node_without_room_for_output_kills_what_prints() {
    let mut bench = Bench::new();
    bench.executor.set_captured_room(1 << 20);
    let outcome = bench.shell(1, "yes");
    let error = &outcome.error;
    let expected = " of captured output; the limit is 1 MiB";
    assert!(error.starts_with("wrote ") && error.contains(expected), "{error}");
    assert!(bench.executor.streams().size_bytes() <= 1 << 20);
    assert!(
        outcome.captured.stdout_bytes >= bench.stdout(1).len() as u64,
        "the oldest may have gone"
    );
    assert!(bench.shell(2, "true").is_done(), "one that prints nothing needs none");
}

#[test]
fn a_time_limit_ends_a_command_that_ignores_the_warning() {
    let mut bench = Bench::new();
    let mut spec = spec_of(bench.command(&["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]));
    spec.time_limit_ns = 100_000_000;
    let outcome = bench.run(launch(1, spec));
    assert_eq!(outcome.error, "exceeded its time limit of 0.1 s and was killed");
    assert_eq!(outcome.exit_code, 137);
}

/// A command that counts its signals, with one of USR1 this long before its limit.
fn counts_signals(bench: &Bench, before_ns: u64) -> wire::Spec {
    let text = "trap 'echo told' USR1; echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.2; done";
    let mut command = bench.command(&["sh", "-c", text]);
    command.notice = Some(Box::new(wire::Notice { signal: 10, before_ns }));
    spec_of(command)
}

#[test]
fn a_command_is_told_once_before_its_limit() {
    let mut bench = Bench::new();
    let mut spec = counts_signals(&bench, 4_500_000_000);
    spec.time_limit_ns = 5_000_000_000;
    let key = object(1, 0);
    bench.executor.launch(launch(1, spec));
    std::thread::sleep(std::time::Duration::from_millis(900));
    // Its node is drained as well: it has been told already.
    bench.executor.give_notice(key.task, key.attempt);
    let outcome = bench.outcome(key.task);
    assert!(outcome.is_done(), "{outcome:?}");
    assert_eq!(bench.stdout(1), "ready\ntold\n");
}

#[test]
fn a_command_is_told_when_its_node_says_so_and_only_then() {
    let mut bench = Bench::new();
    let key = object(1, 0);
    bench.executor.launch(launch(1, counts_signals(&bench, 1_000_000_000)));
    bench.executor.launch(launch(2, counts_signals(&bench, 1_000_000_000)));
    std::thread::sleep(std::time::Duration::from_millis(500));
    for _ in 0..3 {
        bench.executor.give_notice(key.task, key.attempt);
    }
    for local in [1, 2] {
        let outcome = bench.outcome(object(local, 0).task);
        assert!(outcome.is_done(), "{outcome:?}");
    }
    assert_eq!(bench.stdout(1), "ready\ntold\n");
    assert_eq!(bench.stdout(2), "ready\n");
}

#[test]
fn many_commands_each_end_once() {
    let mut bench = Bench::new();
    for local in 0..300 {
        let spec = spec_of(bench.command(&["sh", "-c", "echo $STARLING_TASK_ID; exit {i}"]));
        let mut launched = launch(local, spec);
        launched.entry = local % 3;
        bench.executor.launch(launched);
    }
    for local in 0..300 {
        let outcome = bench.outcome(object(local, 0).task);
        assert_eq!(outcome.exit_code, (local % 3) as i32);
        assert_eq!(bench.stdout(local), format!("0.{local}\n"));
    }
    bench.no_more_outcomes();
}

/// Some use a spare directory, others get a new one. One has no program, one no working directory,
/// one is a sleep. A crowd of them ends while one is killed.
#[test]
fn what_is_launched_together_ends_each_in_its_own_way() {
    let mut bench = Bench::new();
    // Spare directories for some of them.
    (100..104).for_each(|local| assert!(bench.shell(local, "true").is_done()));
    let of = |bench: &Bench, script: &str| spec_of(bench.command(&["sh", "-c", script]));
    let mut launches: Vec<_> =
        (0..20).map(|n| launch(n, of(&bench, &format!("echo {n}; exit {}", n % 2)))).collect();
    launches.push(launch(20, spec_of(bench.command(&["no-such-program"]))));
    let nowhere = wire::Command { cwd: "nowhere".into(), ..bench.command(&["true"]) };
    launches.push(launch(21, spec_of(nowhere)));
    let body = Some(wire::spec::Body::Sleep(Default::default()));
    launches.push(launch(22, wire::Spec { body, ..Default::default() }));
    launches.push(launch(23, of(&bench, "exec sleep 600")));
    bench.executor.launch_all(launches.into_iter());
    bench.executor.kill(object(23, 0).task, object(23, 0).attempt);
    for local in 0..20 {
        let outcome = bench.outcome(object(local, 0).task);
        assert_eq!(u64::try_from(outcome.exit_code), Ok(local % 2), "{outcome:?}");
        assert_eq!(bench.stdout(local), format!("{local}\n"));
    }
    let errors = [20, 21].map(|local| bench.outcome(object(local, 0).task).error);
    assert!(errors[0].contains("not found") && errors[1].contains("nowhere"), "{errors:?}");
    assert!(bench.outcome(object(22, 0).task).is_done());
    crate::common::wait_until("all have ended", || bench.executor.running() == 0);
    bench.no_more_outcomes();
}

#[test]
fn inputs_keep_the_order_of_the_list_wherever_they_come_from() {
    let mut bench = Bench::new();
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo a > {out:a}; echo b > {out:b}"]));
    spec.outputs = vec![output("a", "a"), output("b", "b")];
    assert_eq!(bench.run(launch(1, spec)).error, "");

    let script = r#"cat {in:k}; cat $STARLING_INPUTS; cat $STARLING_IN_k;
                    xargs cat < "$STARLING_INPUTS_FILE"; xargs -0 cat < "$STARLING_INPUTS_FILE0"; cat "$@""#;
    let mut spec = spec_of(bench.command(&["sh", "-c", script, "sh", "{in:k}"]));
    spec.inputs = ["a", "b"]
        .map(|file| wire::Input { key: "k".into(), file: file.into(), ..Default::default() })
        .into();
    for (file, place) in [("head", 1), ("middle", 2), ("middle", 2), ("tail", 0)] {
        fs::write(bench.submit_dir.join(file), format!("{file}\n")).unwrap();
        let (key, path) = ("k".into(), file.into());
        spec.externals.push(wire::External { key, path, place, ..Default::default() });
    }
    let mut launched = launch(2, spec);
    launched.inputs = vec![input(1, object(1, 1), 2), input(0, object(1, 0), 2)];
    assert_eq!(bench.run(launched).error, "");
    let once = "head\na\nmiddle\nmiddle\nb\ntail\n";
    assert_eq!(bench.stdout(2), once.repeat(6));
}

#[test]
fn a_task_without_inputs_has_empty_lists() {
    let mut bench = Bench::new();
    let script = "cat $STARLING_INPUTS_FILE $STARLING_INPUTS_FILE0; echo \"[$STARLING_INPUTS]\"";
    let spec = spec_of(bench.command(&["sh", "-ec", script]));
    assert_eq!(bench.run(launch(1, spec)).error, "");
    assert_eq!(bench.stdout(1), "[]\n");
}

#[test]
fn more_inputs_than_the_kernel_takes_in_one_variable() {
    let mut bench = Bench::new();
    // The variable with the list is too short for it, so its content names no readable file.
    let script = "cat $STARLING_INPUTS || cat $STARLING_IN_all || wc -l < $STARLING_INPUTS_FILE";
    let mut spec = spec_of(bench.command(&["sh", "-c", script]));
    let mut objects = Vec::new();
    for output in 0..3000 {
        let kind = executor::ObjectKind::Made;
        let store = bench.executor.objects();
        let incoming = store.create_incoming(object(1, output), kind).unwrap();
        incoming.commit().unwrap();
        let file = format!("input-{output}");
        spec.inputs.push(wire::Input { key: "all".into(), file, ..Default::default() });
        objects.push(input(output, object(1, output), 0));
    }
    let mut launched = launch(2, spec);
    launched.inputs = objects;
    assert_eq!(bench.run(launched).error, "");
    assert_eq!(bench.stdout(2).trim(), "3000");
    let told = bench.printed(2, true);
    assert!(told.contains("read-STARLING_INPUTS_FILE: Not a directory"), "{told}");
}

#[test]
fn a_copy_in_memory_is_a_file_for_a_command_and_bytes_for_others() {
    let mut bench = Bench::new();
    bench.executor.objects().keep_copy(object(1, 0), b"as sent", 7).unwrap();
    let mut read = launch(
        2,
        wire::Spec { body: Some(wire::spec::Body::Noop(wire::Noop {})), ..Default::default() },
    );
    read.inputs = vec![input(0, object(1, 0), 7)];
    assert_eq!(bench.run(read).error, "");
    let mut spec = spec_of(bench.command(&["cat", "{in:copy}"]));
    spec.inputs.push(wire::Input { key: "copy".into(), file: "copy".into(), ..Default::default() });
    let mut printed = launch(3, spec);
    printed.inputs = vec![input(0, object(1, 0), 7)];
    assert_eq!(bench.run(printed).error, "");
    assert_eq!(bench.stdout(3), "as sent");
}

#[test]
fn synthetic_work_moves_real_bytes() {
    let mut bench = Bench::new();
    let body = |body| wire::Spec {
        body: Some(body),
        outputs: vec![output("o", "o"), output("p", "p")],
        ..Default::default()
    };
    let mut launched = launch(1, body(wire::spec::Body::Noop(wire::Noop {})));
    launched.output_sizes = vec![3_000_001, 0];
    let outcome = bench.run(launched);
    assert_eq!((outcome.error.as_str(), outcome.output_sizes), ("", vec![3_000_001, 0]));
    let bytes = fs::read(bench.executor.objects().file(object(1, 0)).unwrap()).unwrap();
    let mut expected = vec![0; 3_000_001];
    executor::pattern(object(1, 0), 0, &mut expected);
    assert!(bytes == expected);
    for (local, body) in [
        (2, body(wire::spec::Body::Sleep(wire::Sleep {}))),
        (3, body(wire::spec::Body::Spin(wire::Spin {}))),
    ] {
        let mut launched = launch(local, body);
        launched.duration = Span::from_millis(5);
        launched.output_sizes = vec![9, 8];
        launched.inputs = vec![input(0, object(1, 0), 3_000_001)];
        assert_eq!(bench.run(launched.clone()).output_sizes, [9, 8]);
        assert_eq!(bench.executor.objects().size_bytes(object(local, 0)), Some(9));
        launched.task.local.0 += 10;
        launched.inputs[0].size_bytes -= 1;
        let error = bench.run(launched).error;
        assert!(error.ends_with("has 3000001 bytes instead of 3000000"), "{error}");
    }
}

#[test]
fn a_failing_start_of_the_spawner_fails_commands_with_the_reason() {
    let mut bench = Bench::with(|config| config.spawner_program = Some("/no/such/starling".into()));
    let outcome = bench.shell(1, "true");
    let expected =
        "cannot start the spawner process on n2: /no/such/starling: no such file or directory";
    assert_eq!(outcome.error, expected);
    assert_eq!(bench.shell(2, "true").error, expected, "tried again");
    let mut bench = Bench::with(|config| config.spawner_program = Some("/bin/false".into()));
    let outcome = bench.shell(1, "true");
    assert!(outcome.error.starts_with("the spawner process of n2 ended"), "{}", outcome.error);
}

#[test]
fn an_object_that_cannot_be_kept_fails_the_attempt_with_the_reason() {
    let mut bench = Bench::new();
    let objects = bench.state().join("objects");
    fs::remove_dir_all(&objects).unwrap();
    fs::write(&objects, "in the way").unwrap();
    let mut spec = spec_of(bench.command(&["touch", "f"]));
    spec.outputs = vec![output("n", "f")];
    let error = bench.run(launch(1, spec)).error;
    let expected =
        "declared output 'n' (file f) cannot be kept: cannot keep object j1/0.1 output 0";
    assert!(error.starts_with(expected) && error.ends_with("not a directory"), "{error}");
    let spec = wire::Spec {
        body: Some(wire::spec::Body::Noop(wire::Noop {})),
        outputs: vec![output("n", "f")],
        ..Default::default()
    };
    let error = bench.run(launch(2, spec)).error;
    assert!(error.starts_with("cannot write object j1/0.2 output 0"), "{error}");
}

#[test]
fn output_that_cannot_be_kept_fails_the_attempt() {
    let mut bench = Bench::new();
    let streams = bench.state().join("streams");
    fs::remove_dir_all(&streams).unwrap();
    let outcome = bench.shell(1, "echo lost");
    let expected = "what it printed could not be kept on n2: no such file or directory";
    assert_eq!(outcome.error, expected);
    assert!(outcome.captured.is_none(), "what was not kept is not counted");
    assert!(bench.shell(2, "true").is_done(), "one that prints nothing loses nothing");
}
