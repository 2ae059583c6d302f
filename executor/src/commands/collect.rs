//! The steps after a command has ended: its outcome, and its outputs.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::wire::{self, OutputForm};
use proto::work::{Captured, Launch, Outcome, Used};
use proto::{ObjectId, Span, limits};
use xxhash_rust::xxh3::Xxh3;

use crate::archive;
use crate::checkpoint;
use crate::commands::beside;
use crate::commands::captured::{OutputLoss, Printed, too_much};
use crate::commands::gang::{MemberTotals, add_used};
use crate::commands::names;
use crate::commands::stage::{OutputFile, Workspace};
use crate::error::reason;
use crate::executor::Shared;
use crate::inputs::deliver::ObjectWriter;
use crate::limits::{STOP_WAIT_MAX, STOP_WAIT_SHARE};
use crate::objects::{IncomingObject, ObjectKind};
use crate::private;
use crate::spawner::wire::Exit;
use crate::streams::Piece;

/// The outcome of an attempt with this end.
pub(crate) fn outcome(
    shared: &Shared,
    launch: &Launch,
    workspace: &Workspace,
    exit: &Exit,
    changed_input: Option<String>,
    printed: Printed,
    members: MemberTotals,
) -> Outcome {
    let node = shared.config.node;
    let mut error = exit_error(exit, launch, shared);
    if !error.is_empty()
        && let Some(wire::spec::Body::Command(command)) = &launch.spec.body
        && let Some(hint) = beside::hint(command, &workspace.directory, exit)
    {
        error = format!("{error}; {hint}");
    }
    if !members.failure.is_empty() {
        error = members.failure;
    }
    match printed.unkept {
        Some(OutputLoss::Full(text)) => error = text,
        Some(OutputLoss::Failed(reason)) if error.is_empty() => {
            error = format!("what it printed could not be kept on {node}: {reason}");
        }
        _ => {}
    }
    if let Some(text) = changed_input {
        error = if error.is_empty() { text } else { format!("{error}; {text}") };
    }
    let (mut output_sizes, mut output_sums) = (Vec::new(), Vec::new());
    let mut captured = printed.captured;
    if error.is_empty() {
        let mut notes = String::new();
        match collect(shared, launch, workspace, &mut notes) {
            Ok(made) => {
                (output_sizes, output_sums) = made.into_iter().unzip();
                tell(shared, launch, &notes, &mut captured);
            }
            Err(text) => {
                shared.objects.discard(launch.task, launch.attempt);
                error = text;
            }
        }
    }
    let stderr_tail = if error.is_empty() { Vec::new() } else { printed.stderr_tail };
    let mut used = Used { cpu_us: exit.cpu_us, max_rss_kib: exit.max_rss_kib };
    add_used(&mut used, members.used);
    Outcome {
        error,
        exit_code: exit_code(exit),
        stderr_tail,
        output_sizes,
        output_sums,
        captured,
        used,
        ..Outcome::default()
    }
}

/// The checkpoint of a command that may run again. If it cannot be kept, a failure says so.
pub(crate) fn with_checkpoint(
    launch: &Launch,
    workspace: &Workspace,
    exit: &Exit,
    mut outcome: Outcome,
) -> (Outcome, Option<Vec<u8>>) {
    if outcome.is_done() && !exit.signalled {
        return (outcome, None);
    }
    match checkpoint::of_ended(launch, &workspace.directory) {
        None => (outcome, None),
        Some(Ok(state)) => (outcome, Some(state)),
        Some(Err(why)) => {
            if !outcome.is_done() {
                outcome.error = format!("{}; {why}; the former checkpoint stays", outcome.error);
            }
            (outcome, None)
        }
    }
}

/// Adds what is odd about the outputs to the captured standard error of the attempt.
fn tell(shared: &Shared, launch: &Launch, notes: &str, captured: &mut Captured) {
    let (task, attempt, data) = (launch.task, launch.attempt, notes.as_bytes());
    if notes.is_empty() {
        return;
    }
    // Without space for it, the archive still has the notes.
    if shared.keep_pieces(&[Piece { task, attempt, stderr: true, carried: false, data }]).is_ok() {
        captured.add(true, data.len() as u64);
    }
}

fn exit_code(exit: &Exit) -> i32 {
    if exit.signal == 0 { exit.code } else { 128 + exit.signal }
}

/// One line with the reason why this end is a failure; empty if it is none.
fn exit_error(exit: &Exit, launch: &Launch, shared: &Shared) -> String {
    let node = shared.config.node;
    if !exit.failure.is_empty() {
        let program = &exit.program;
        return match exit.code {
            127 => format!("command '{program}' not found on {node}"),
            _ => format!("command '{program}' cannot start on {node}: {}", exit.failure),
        };
    }
    if exit.timed_out {
        let limit_s = Span(launch.spec.time_limit_ns).as_secs_f64();
        return format!("exceeded its time limit of {limit_s} s and was killed");
    }
    if exit.memory_bytes > 0 {
        return crate::commands::resources::too_much_memory(exit.memory_bytes, launch);
    }
    if exit.printed_too_much_bytes > 0 {
        return too_much(exit.printed_too_much_bytes, shared.print_limit_bytes());
    }
    match (exit.signal, exit.code) {
        (0, 0) => String::new(),
        // The code with which a shell reports a killed command.
        (0, 137) => String::from("exited with code 137 (its command killed; out of memory?)"),
        (0, code) => format!("exited with code {code}"),
        (signal, _) => format!("killed by signal {signal}{}", signal_name(signal)),
    }
}

/// The time in which a node learns of the death of another one.
const GANG_DOUBT: Duration = Duration::from_secs(5);

/// The time for which this end stays in doubt, because it may be part of a stop of the whole node.
/// A command that handles a signal may end with any code. Then the doubt lasts for a share of its
/// run time.
///
/// A command of a gang may fail because another node has died, and that is known a little later.
pub(crate) fn doubt(is_gang: bool, outcome: &Outcome, exit: &Exit, ran: Duration) -> Duration {
    let most = Duration::from_nanos(STOP_WAIT_MAX.0);
    let is_clear = exit.timed_out
        || exit.memory_bytes > 0
        || exit.printed_too_much_bytes > 0
        || !exit.failure.is_empty();
    match outcome.exit_code {
        _ if is_clear || outcome.is_done() => Duration::ZERO,
        _ if is_gang => GANG_DOUBT,
        // SIGHUP, SIGINT, SIGTERM.
        129 | 130 | 143 => most,
        _ => most.min(ran / STOP_WAIT_SHARE),
    }
}

pub(crate) fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        // The node did not send it, else the outcome would not be needed.
        9 => " (SIGKILL; out of memory?)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        14 => " (SIGALRM)",
        15 => " (SIGTERM)",
        _ => "",
    }
}

/// Moves the declared outputs into the object store. Returns the size and the checksum of each.
fn collect(
    shared: &Shared,
    launch: &Launch,
    workspace: &Workspace,
    notes: &mut String,
) -> Result<Vec<(u64, u64)>, String> {
    let mut made = Vec::with_capacity(workspace.outputs.len());
    for (index, output) in workspace.outputs.iter().enumerate() {
        let object = ObjectId {
            task: launch.task,
            attempt: launch.attempt,
            output: u32::try_from(index).expect("outputs are far fewer than 2^32"),
        };
        let file = output.path.strip_prefix(&workspace.directory).unwrap_or(&output.path);
        let shown = format!("declared output '{}' (file {})", output.key, file.display());
        let declared = &launch.spec.outputs[index];
        let note = |odd: &str| {
            notes.push_str(&format!("starling: output '{}': {odd}\n", file.display()));
        };
        let collected = collect_one(shared, workspace, output, object, declared, note)
            .and_then(|size_bytes| Ok((size_bytes, checksum(shared, object)?)));
        made.push(collected.map_err(|why| format!("{shown} {why}"))?);
    }
    Ok(made)
}

/// The checksum of an output. The task's home compares it when the task runs again, and transfers
/// use it too.
pub(crate) fn checksum(shared: &Shared, object: ObjectId) -> Result<u64, String> {
    let (mut reader, size_bytes) = shared.objects.open_object(object).map_err(keep)?;
    let piece_bytes = limits::PIECE_BYTES.min(size_bytes as usize + 1);
    let (mut sum, mut buffer) = (Xxh3::new(), vec![0; piece_bytes]);
    loop {
        match io::Read::read(&mut reader, &mut buffer) {
            Ok(0) => break,
            Ok(count) => sum.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {}", reason(&error))),
        }
    }
    shared.objects.note_checksum(object, sum.digest());
    Ok(sum.digest())
}

fn collect_one(
    shared: &Shared,
    workspace: &Workspace,
    output: &OutputFile,
    object: ObjectId,
    declared: &wire::Output,
    note: impl FnMut(&str),
) -> Result<u64, String> {
    let kind = ObjectKind::of_output(declared);
    if declared.form() == OutputForm::Files {
        return pack_files(shared, workspace, output, object, declared, note);
    }
    // The command may have replaced a directory by a link. Files behind such a link are not the
    // task's.
    if let Ok(inside) = output.path.strip_prefix(&workspace.directory) {
        names::no_link_above(&workspace.directory, inside)?;
    }
    let metadata = match fs::symlink_metadata(&output.path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(not_written(output));
        }
        Err(error) => return Err(format!("cannot be read: {}", reason(&error))),
    };
    if declared.form() == OutputForm::Directory {
        return pack_directory(shared, &output.path, object, kind, note);
    }
    if output.path.is_dir() {
        let name = output.path.file_name().unwrap_or_default().to_string_lossy();
        return Err(format!(
            "is a directory; hint: declare {{ dir = \"{name}\" }} (or --out {name}/)"
        ));
    }
    if metadata.is_file() && !is_shared_file(&metadata) {
        return shared.objects.adopt(&output.path, object, kind).map_err(keep);
    }
    copy(shared, &output.path, object, kind)
}

fn not_written(output: &OutputFile) -> String {
    let name = output.path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(['*', '?', '[']) {
        return format!(
            "was not written; hint: for a pattern declare {{ glob = \"{name}\" }} (or --out 'glob:{name}')"
        );
    }
    String::from("was not written")
}

fn pack_directory(
    shared: &Shared,
    directory: &Path,
    object: ObjectId,
    kind: ObjectKind,
    note: impl FnMut(&str),
) -> Result<u64, String> {
    if !directory.is_dir() {
        return Err(String::from("is not a directory; hint: declare { file = ... }"));
    }
    let mut incoming = shared.objects.create_incoming(object, kind).map_err(keep)?;
    let packed = archive::pack_directory(directory, buffered(&mut incoming));
    let packed = packed.map_err(|why| format!("cannot be kept: {why}"))?;
    packed.notes.iter().map(String::as_str).for_each(note);
    incoming.commit().map_err(keep)
}

/// Packs the files that match a pattern.
fn pack_files(
    shared: &Shared,
    workspace: &Workspace,
    output: &OutputFile,
    object: ObjectId,
    declared: &wire::Output,
    note: impl FnMut(&str),
) -> Result<u64, String> {
    let root = &workspace.directory;
    let pattern = output.path.strip_prefix(root).unwrap_or(&output.path).to_string_lossy();
    let mut found = archive::matching(root, &pattern)?;
    // Inputs are not outputs of the task.
    let is_own = |path: &PathBuf| !workspace.inputs.contains(&root.join(path));
    found.files.retain(is_own);
    found.directories.retain(is_own);
    let kind = ObjectKind::of_output(declared);
    let mut incoming = shared.objects.create_incoming(object, kind).map_err(keep)?;
    let packed = archive::pack(root, &found, buffered(&mut incoming))
        .map_err(|why| format!("cannot be kept: {why}"))?;
    if packed.entries == 0 && !declared.optional {
        return Err(match found.directories.first() {
            Some(first) => {
                let name = archive::shown(first);
                format!("matches only directories; hint: declare {{ dir = \"{name}\" }}")
            }
            None => "matches no file; hint: declare it with optional = true if there may be none"
                .to_owned(),
        });
    }
    packed.notes.iter().map(String::as_str).for_each(note);
    incoming.commit().map_err(keep)
}

/// An archive has many short pieces, which are written together.
fn buffered(incoming: &mut IncomingObject) -> io::BufWriter<ObjectWriter<'_>> {
    io::BufWriter::with_capacity(limits::PIECE_BYTES, ObjectWriter(incoming))
}

/// An output with further names (such as a hard link to an input) must not become read-only.
fn is_shared_file(metadata: &fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::nlink(metadata) > 1
}

fn keep(error: crate::ObjectError) -> String {
    format!("cannot be kept: {error}")
}

/// Copies the target of a link into an object.
fn copy(shared: &Shared, path: &Path, object: ObjectId, kind: ObjectKind) -> Result<u64, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {}", reason(&error));
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(String::from("is not a file"));
    }
    let mut file = fs::File::open(path).map_err(unreadable)?;
    let mut incoming = shared.objects.create_incoming(object, kind).map_err(keep)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    incoming.set_executable(mode & 0o111 != 0).map_err(keep)?;
    let mut buffer = vec![0; limits::PIECE_BYTES];
    loop {
        match io::Read::read(&mut file, &mut buffer).map_err(unreadable)? {
            0 => return incoming.commit().map_err(keep),
            count => incoming.write(&buffer[..count]).map_err(keep)?,
        }
    }
}

/// Removes a task's directory; another thread removes one that is not empty.
pub(crate) fn clean_up(shared: &Shared, workspace: &Workspace) {
    let gone = match &workspace.spare {
        Some(spare) => shared.spare_dirs.give_back(spare),
        None => fs::remove_dir(&workspace.directory).is_ok(),
    };
    if gone {
        return;
    }
    let directory = workspace.directory.clone();
    let started = shared.pool.run(move || {
        let _ = private::remove_tree(&directory);
    });
    if started.is_err() {
        let _ = private::remove_tree(&workspace.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_a_node_stop_may_have_caused_is_not_a_failure_yet() {
        let doubted = |error: &str, exit: &Exit, ran_s: u64| {
            let (error, exit_code) = (error.to_owned(), exit_code(exit));
            let outcome = Outcome { error, exit_code, ..Outcome::default() };
            doubt(false, &outcome, exit, Duration::from_secs(ran_s)).as_millis()
        };
        let signal = |signal| Exit { signal, ..Exit::default() };
        let code = |code| Exit { code, ..Exit::default() };
        let failed = Outcome { error: "e".into(), exit_code: 1, ..Outcome::default() };
        let of_gang = |outcome: &Outcome| doubt(true, outcome, &code(1), Duration::ZERO);
        assert_eq!(of_gang(&failed), GANG_DOUBT);
        assert_eq!(of_gang(&Outcome::default()), Duration::ZERO);
        assert_eq!(doubted("", &code(0), 100), 0);
        assert_eq!([doubted("e", &signal(15), 0), doubted("e", &code(143), 0)], [1000, 1000]);
        assert_eq!([doubted("e", &code(1), 2), doubted("e", &signal(11), 2)], [250, 250]);
        assert_eq!([doubted("e", &code(0), 100), doubted("e", &code(1), 0)], [1000, 0]);
        let timed_out = Exit { timed_out: true, ..signal(15) };
        let unstarted = Exit { failure: "no".to_owned(), ..code(126) };
        assert_eq!([doubted("e", &timed_out, 100), doubted("e", &unstarted, 100)], [0, 0]);
    }
}
