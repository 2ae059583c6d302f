//! Writes of tasks to their inputs, and outputs that are more than one file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proto::wire::{self, OutputForm};

use crate::common::{Bench, input, launch, object, output, spec_of};

fn form_of(key: &str, file: &str, form: OutputForm) -> wire::Output {
    wire::Output { form: form.into(), ..output(key, file) }
}

fn taken(key: &str, file: &str, form: OutputForm) -> wire::Input {
    wire::Input { key: key.into(), file: file.into(), form: form.into(), value: false }
}

fn outside(path: &str, file: &str) -> wire::External {
    wire::External { key: "e".into(), path: path.into(), file: file.into(), ..Default::default() }
}

/// Runs a maker of a directory `d` and of the files `part-*`, as task 1.
fn make(bench: &mut Bench) {
    let script = "mkdir -p d/sub; echo a > d/a; printf '#!/bin/sh\\necho ran\\n' > d/sub/run; \
                  chmod 755 d/sub/run; for i in 1 2 3; do echo $i > part-$i; done";
    let mut spec = spec_of(bench.command(&["sh", "-c", script]));
    spec.outputs =
        vec![form_of("d", "d", OutputForm::Directory), form_of("p", "part-*", OutputForm::Files)];
    let outcome = bench.run(launch(1, spec));
    assert_eq!(outcome.error, "");
}

#[test]
fn a_directory_and_a_pattern_go_from_task_to_task() {
    let mut bench = Bench::new();
    make(&mut bench);
    let script = "cat {in:d}/a; {in:d}/sub/run; cat $STARLING_INPUTS 2>/dev/null; \
                  echo more >> {in:d}/a; rm part-1";
    for local in [2, 3] {
        let mut spec = spec_of(bench.command(&["sh", "-c", script]));
        spec.inputs =
            vec![taken("d", "d", OutputForm::Directory), taken("p", "part-*", OutputForm::Files)];
        let mut launched = launch(local, spec);
        launched.inputs = vec![input(0, object(1, 0), 0), input(1, object(1, 1), 0)];
        let outcome = bench.run(launched);
        assert_eq!(outcome.error, "");
        assert_eq!(bench.stdout(local), "a\nran\n1\n2\n3\n", "task {local}");
    }
}

#[test]
fn a_missing_directory_and_an_empty_match_are_reported() {
    let mut bench = Bench::new();
    let mut error = |local: u64, script: &str, declared: wire::Output| {
        let mut spec = spec_of(bench.command(&["sh", "-c", script]));
        spec.outputs = vec![declared];
        bench.run(launch(local, spec)).error
    };
    let file = form_of("d", "d", OutputForm::Directory);
    assert!(error(1, "echo > d", file).contains("is not a directory; hint"));
    let pattern = form_of("p", "x-*", OutputForm::Files);
    assert!(error(2, "true", pattern.clone()).contains("matches no file; hint"));
    assert_eq!(error(3, "true", wire::Output { optional: true, ..pattern }), "");
    assert!(error(4, "echo > x-1", output("p", "x-*")).contains("glob = \"x-*\""));
}

/// What is odd about an output is said in the standard error of its attempt.
#[test]
fn an_odd_entry_of_a_directory_is_named_and_left_out() {
    let mut bench = Bench::new();
    let script = "echo own >&2; mkdir d; echo a > d/a; ln -s /no/where d/l; mkfifo d/pipe";
    let mut spec = spec_of(bench.command(&["sh", "-c", script]));
    spec.outputs = vec![form_of("d", "d", OutputForm::Directory)];
    let outcome = bench.run(launch(1, spec));
    let said = bench.printed(1, true);
    assert_eq!(outcome.error, "");
    assert_eq!(outcome.captured.stderr_bytes, said.len() as u64);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "own"), "{said}");
    assert!(lines[1].starts_with("starling: output 'd': 'l' stays a link to '/no/where'"));
    assert_eq!(lines[2], "starling: output 'd': 'pipe' is a FIFO: it is left out");
}

/// Files that match are odd in the same way; if no other file matches, there is no output.
#[test]
fn odd_files_that_match_are_left_out() {
    let mut bench = Bench::new();
    let mut run = |local: u64, script: &str| {
        let mut spec = spec_of(bench.command(&["sh", "-c", script]));
        spec.outputs = vec![form_of("p", "part-*", OutputForm::Files)];
        bench.run(launch(local, spec)).error
    };
    assert_eq!(run(1, "mkfifo part-1; echo 2 > part-2"), "");
    assert!(run(2, "mkfifo part-1").contains("matches no file"));
}

/// Runs two readers of one input. The first appends to it, and the second counts its bytes.
fn append(bench: &mut Bench, size_bytes: u64) -> [String; 2] {
    let script = format!("head -c {size_bytes} /dev/zero > {{out:o}}");
    let mut spec = spec_of(bench.command(&["sh", "-c", &script]));
    spec.outputs = vec![wire::Output { keep: true, ..output("o", "o") }];
    assert_eq!(bench.run(launch(1, spec)).error, "");
    ["chmod u+w in; echo more >> in", "wc -c < in"].map(|script| {
        let local = if script.starts_with("wc") { 3 } else { 2 };
        let mut spec = spec_of(bench.command(&["sh", "-c", script]));
        spec.inputs = vec![taken("in", "in", OutputForm::File)];
        let mut launched = launch(local, spec);
        launched.inputs = vec![input(0, object(1, 0), size_bytes)];
        let error = bench.run(launched).error;
        if error.is_empty() { bench.stdout(local).trim().to_owned() } else { error }
    })
}

/// If the file is the task's own, the task may write to it. If it is a link, the task fails, and
/// the changed object is never read.
#[test]
fn what_a_task_writes_to_an_input_stays_with_it() {
    for size_bytes in [1000, 3 << 20] {
        let mut bench = Bench::new();
        let [writer, reader] = append(&mut bench, size_bytes);
        if writer.contains("input file 'in' was changed") {
            assert!(
                reader.contains("was changed on the disk of this node"),
                "it is to come again: {reader}"
            );
            assert!(bench.executor.objects().file(object(1, 0)).is_err());
        } else {
            // It was its own copy, or the write was refused.
            assert_eq!(reader, size_bytes.to_string(), "{writer}");
            let kept = bench.executor.objects().file(object(1, 0)).unwrap();
            assert_eq!(fs::metadata(kept).unwrap().len(), size_bytes);
        }
    }
}

#[test]
fn the_users_file_is_not_written_to() {
    for (size, script) in [(9, "echo x > in"), (9, "echo x >> in"), (2 << 20, "echo x > in")] {
        let mut bench = Bench::new();
        let file = bench.submit_dir.join("mine");
        fs::write(&file, vec![b'u'; size]).unwrap();
        for local in [1, 2] {
            let script = format!("wc -c < in; chmod u+w in; {script}");
            let mut spec = spec_of(bench.command(&["sh", "-c", &script]));
            spec.externals = vec![outside("mine", "in")];
            let outcome = bench.run(launch(local, spec));
            assert_eq!(bench.stdout(local).trim(), size.to_string(), "{}", outcome.error);
            assert_eq!(fs::read(&file).unwrap(), vec![b'u'; size]);
            let refused = bench.printed(local, true).contains("ead-only file system");
            assert!(outcome.is_done() || refused || outcome.error.contains("'in' was changed"));
        }
    }
}

#[test]
fn an_output_of_the_name_of_an_input_is_the_tasks() {
    let mut bench = Bench::new();
    let file = bench.submit_dir.join("mine");
    fs::write(&file, vec![b'u'; 2 << 20]).unwrap();
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo trimmed > mine"]));
    spec.externals = vec![outside("mine", "")];
    spec.outputs = vec![output("o", "mine")];
    assert_eq!(bench.run(launch(1, spec)).error, "");
    assert_eq!(bench.object(1, 0), "trimmed\n");
    assert_eq!(fs::metadata(&file).unwrap().len(), 2 << 20);
}

#[test]
fn a_file_in_a_directory_of_the_user_that_changes_is_named() {
    let mut bench = Bench::new();
    let directory = bench.submit_dir.join("data");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("a"), "a").unwrap();
    let mut run = |local: u64, script: &str| {
        let mut spec = spec_of(bench.command(&["sh", "-c", script]));
        spec.externals = vec![outside("data", "")];
        bench.run(launch(local, spec)).error
    };
    // Refused in a mount, or by the modes of a copy; root changes a copy that no other task gets. A
    // file that root adds to a copy fails nothing.
    let deeds = ["echo new > data/b", ": > data/a", "rm data/a", "echo more >> data/a"];
    for (local, deed) in (1..).zip(deeds) {
        let error = run(local, &format!("ls data; cat data/a; {deed}"));
        let adds = deed.ends_with("data/b");
        assert!(adds || !error.is_empty(), "a change fails in any case");
        let named = &deed[deed.len() - 6..];
        let is_named = error.contains(&format!("{named}' was changed while the task ran"));
        assert!(error.is_empty() || is_named || error.contains("exited with code"), "{error}");
        assert_eq!(fs::read_to_string(directory.join("a")).unwrap(), "a");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }
    for local in 1..=4 {
        assert_eq!(bench.stdout(local), "a\na", "no task sees the deed of another");
    }
}

/// A link in a directory may lead out of what is mounted.
#[test]
fn a_file_behind_a_link_in_a_directory_of_the_user_is_compared() {
    let mut bench = Bench::new();
    let directory = bench.submit_dir.join("data");
    fs::create_dir(&directory).unwrap();
    fs::write(bench.submit_dir.join("other"), "a").unwrap();
    std::os::unix::fs::symlink(bench.submit_dir.join("other"), directory.join("l")).unwrap();
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo more >> data/l"]));
    spec.externals = vec![outside("data", "")];
    let error = bench.run(launch(1, spec)).error;
    assert!(error.contains("data/l' was changed while the task ran"), "{error}");
}

/// As root with mounts, commands cannot write to large inputs, whatever the number of files.
#[test]
fn large_inputs_of_the_user_are_mounted_read_only() {
    let mut bench = Bench::new();
    let (directory, file) = (bench.submit_dir.join("data"), bench.submit_dir.join("large.bin"));
    fs::create_dir_all(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/a"), "a").unwrap();
    fs::File::create(&file).unwrap().set_len((64 << 20) + 1).unwrap();
    let script = "cat data/sub/a; wc -c < large.bin; \
                  echo x >> data/sub/a; echo x >> large.bin; rm data/sub/a; true";
    // After the first command the node knows whether it may mount.
    assert_eq!(bench.run(launch(9, spec_of(bench.command(&["true"])))).error, "");
    for local in [1, 2] {
        let mut spec = spec_of(bench.command(&["sh", "-c", script]));
        spec.externals = vec![outside("data", ""), outside("large.bin", "")];
        let error = bench.run(launch(local, spec)).error;
        if !bench.printed(local, true).contains("ead-only file system") {
            assert!(error.contains("was changed while the task ran"), "{error}");
            eprintln!("skipped: this node may not mount");
            return;
        }
        assert_eq!(error, "");
        assert_eq!(bench.stdout(local), "a67108865\n");
        assert_eq!(fs::read_to_string(directory.join("sub/a")).unwrap(), "a");
        assert_eq!(fs::metadata(&file).unwrap().len(), (64 << 20) + 1);
    }
}

#[test]
fn a_directory_that_is_an_output_too_is_the_tasks() {
    let mut bench = Bench::new();
    let directory = bench.submit_dir.join("data");
    fs::create_dir_all(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/a"), "a").unwrap();
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo x >> data/sub/a"]));
    spec.externals = vec![outside("data", "")];
    spec.outputs = vec![form_of("o", "data", OutputForm::Directory)];
    assert_eq!(bench.run(launch(1, spec)).error, "");
    assert_eq!(fs::read_to_string(directory.join("sub/a")).unwrap(), "a");
}

#[test]
fn a_change_in_a_directory_with_many_files_is_found() {
    let mut bench = Bench::new();
    let directory = bench.submit_dir.join("data");
    fs::create_dir(&directory).unwrap();
    for number in 0..4200 {
        fs::write(directory.join(number.to_string()), "same").unwrap();
    }
    let mut spec = spec_of(bench.command(&["sh", "-c", "echo more >> data/4100"]));
    spec.externals = vec![outside("data", "")];
    let error = bench.run(launch(1, spec)).error;
    let is_intact = fs::read_to_string(directory.join("4100")).unwrap() == "same";
    assert!(!error.is_empty(), "it fails in any case");
    assert!(is_intact || error.contains("data/4100' was changed while the task ran"), "{error}");
}

#[test]
fn an_x_bit_survives() {
    let mut bench = Bench::new();
    let script = "printf '#!/bin/sh\\necho ran\\n' > p; chmod 755 p; cp -p p q; ln -s q l";
    let mut spec = spec_of(bench.command(&["sh", "-c", script]));
    spec.outputs = vec![output("p", "p"), output("l", "l")];
    assert_eq!(bench.run(launch(1, spec)).error, "");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o111;
    let store = bench.executor.objects().clone();
    for number in 0..2 {
        let (reader, _) = store.open_object(object(1, number)).unwrap();
        assert!(reader.is_executable());
        assert_ne!(mode(&store.file(object(1, number)).unwrap()), 0);
    }
    // A copy from another node, first in memory.
    store.keep_copy_as(object(9, 0), b"#!/bin/sh\necho ran\n", 0, true).unwrap();
    assert!(store.open_object(object(9, 0)).unwrap().0.is_executable());
    let mut spec = spec_of(bench.command(&["sh", "-c", "./a; ./b"]));
    spec.inputs = vec![taken("a", "a", OutputForm::File), taken("b", "b", OutputForm::File)];
    let mut launched = launch(2, spec);
    launched.inputs = vec![input(0, object(1, 0), 19), input(1, object(9, 0), 19)];
    assert_eq!(bench.run(launched).error, "");
    assert_eq!(bench.stdout(2), "ran\nran\n");
    assert_ne!(mode(&store.file(object(9, 0)).unwrap()), 0);
}
