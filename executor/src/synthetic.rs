//! Work without a command: no-ops, sleeps and spins, with virtual or real data, and the files of
//! submitters.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proto::work::{Launch, Outcome};
use proto::{ObjectId, limits, wire};

use wire::spec::Body;

use crate::error::reason;
use crate::executor::Shared;
use crate::objects::{ObjectKind, ObjectName};
use crate::table::Phase;

pub(crate) fn run_inline(launch: &Launch) -> Option<Outcome> {
    let at_once = match &launch.spec.body {
        Some(Body::Noop(_)) => true,
        Some(Body::Sleep(_) | Body::Spin(_)) => launch.duration.0 == 0,
        Some(Body::Command(_) | Body::Call(_) | Body::Upload(_)) => false,
        None => return Some(failure("the task has no body")),
    };
    (at_once && !moves_bytes(launch)).then(|| done(launch))
}

/// Starts a sleep, a spin, or a task that reads and writes real bytes.
pub(crate) fn launch(shared: &Arc<Shared>, launch: Launch) {
    let key = (launch.task, launch.attempt);
    let cancelled = Arc::new(AtomicBool::new(false));
    shared.table.insert(key, Phase::Inside(cancelled.clone()));
    let duration = Duration::from_nanos(launch.duration.0);
    let sleeps = matches!(launch.spec.body, Some(Body::Sleep(_)));
    if sleeps && !moves_bytes(&launch) {
        let theirs = shared.clone();
        shared.timer.after(duration, move || theirs.finish(key, done(&launch)));
        return;
    }
    let theirs = shared.clone();
    let started = shared.pool.run(move || {
        if let Err(error) = read_inputs(&theirs, &launch) {
            return theirs.finish(key, failure(&error));
        }
        if sleeps {
            let later = theirs.clone();
            theirs.timer.after(duration, move || write_later(&later, launch, cancelled));
            return;
        }
        if matches!(launch.spec.body, Some(Body::Upload(_))) {
            let declared = launch.spec.outputs.first().map_or(0, |output| output.size_bytes);
            let size_bytes = launch.output_sizes.first().copied().unwrap_or(declared);
            let outcome = theirs.uploads.run(&theirs.objects, key, size_bytes, &cancelled);
            return theirs.finish(key, outcome);
        }
        if matches!(launch.spec.body, Some(Body::Spin(_))) {
            spin(duration, &cancelled);
        }
        write_and_finish(&theirs, &launch, &cancelled);
    });
    report_no_thread(shared, key, started);
}

fn write_later(shared: &Arc<Shared>, launch: Launch, cancelled: Arc<AtomicBool>) {
    let key = (launch.task, launch.attempt);
    let theirs = shared.clone();
    let started = shared.pool.run(move || write_and_finish(&theirs, &launch, &cancelled));
    report_no_thread(shared, key, started);
}

fn report_no_thread(shared: &Shared, key: crate::table::Key, started: std::io::Result<()>) {
    if let Err(error) = started {
        let text = format!("cannot start a thread on {}: {}", shared.config.node, reason(&error));
        shared.finish(key, failure(&text));
    }
}

fn write_and_finish(shared: &Shared, launch: &Launch, cancelled: &AtomicBool) {
    let outcome = match write_outputs(shared, launch, cancelled) {
        Ok(()) => done(launch),
        Err(error) => failure(&error),
    };
    if !outcome.is_done() {
        shared.objects.discard(launch.task, launch.attempt);
    }
    shared.finish((launch.task, launch.attempt), outcome);
}

/// True if bytes must be read or written, not only counted.
fn moves_bytes(launch: &Launch) -> bool {
    let has_data = !launch.inputs.is_empty() || !launch.spec.outputs.is_empty();
    launch.settings.real_data && has_data
}

fn output_size_bytes(launch: &Launch, output: usize) -> u64 {
    let declared = launch.spec.outputs[output].size_bytes;
    launch.output_sizes.get(output).copied().unwrap_or(declared)
}

fn done(launch: &Launch) -> Outcome {
    let outputs = 0..launch.spec.outputs.len();
    let output_sizes = outputs.map(|output| output_size_bytes(launch, output)).collect();
    Outcome { output_sizes, ..Outcome::default() }
}

fn failure(error: &str) -> Outcome {
    Outcome { error: error.to_owned(), ..Outcome::default() }
}

/// Uses a CPU until the time is over or the attempt is killed.
fn spin(duration: Duration, cancelled: &AtomicBool) {
    let start = Instant::now();
    while start.elapsed() < duration && !cancelled.load(Ordering::Acquire) {
        for _ in 0..64 {
            std::hint::spin_loop();
        }
    }
}

/// Reads every input to its end: its bytes must be here, in the promised number.
fn read_inputs(shared: &Shared, launch: &Launch) -> Result<(), String> {
    if !launch.settings.real_data {
        return Ok(());
    }
    let mut buffer = vec![0; limits::PIECE_BYTES];
    for input in &launch.inputs {
        let name = ObjectName(input.object);
        let (store, object) = (&shared.objects, input.object);
        let opened = store.sound(object, || store.open_object(object));
        let (mut file, _) = opened.map_err(|error| format!("input {}: {error}", input.slot))?;
        let mut size_bytes = 0;
        loop {
            let count = file.read(&mut buffer);
            match count.map_err(|error| format!("cannot read {name}: {}", reason(&error)))? {
                0 => break,
                count => size_bytes += count as u64,
            }
        }
        if size_bytes != input.size_bytes {
            let expected = input.size_bytes;
            return Err(format!("{name} has {size_bytes} bytes instead of {expected}"));
        }
    }
    Ok(())
}

fn write_outputs(shared: &Shared, launch: &Launch, cancelled: &AtomicBool) -> Result<(), String> {
    if !launch.settings.real_data {
        return Ok(());
    }
    let mut buffer = Vec::new();
    for output in 0..launch.spec.outputs.len() {
        let object = ObjectId {
            task: launch.task,
            attempt: launch.attempt,
            output: u32::try_from(output).expect("outputs are far fewer than 2^32"),
        };
        let size_bytes = output_size_bytes(launch, output);
        let kind = ObjectKind::of_output(&launch.spec.outputs[output]);
        let incoming = shared.objects.create_incoming(object, kind);
        let mut incoming = incoming.map_err(|error| error.to_string())?;
        let mut offset = 0;
        while offset < size_bytes {
            if cancelled.load(Ordering::Acquire) {
                return Err(String::from("killed"));
            }
            let count = (size_bytes - offset).min(limits::PIECE_BYTES as u64);
            buffer.resize(usize::try_from(count).expect("a piece fits memory"), 0);
            pattern(object, offset, &mut buffer);
            incoming.write(&buffer).map_err(|error| error.to_string())?;
            offset += count;
        }
        incoming.commit().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Fills `buffer` with the bytes that a synthetic task writes at `offset` of this output. They
/// depend only on the object's id, so every copy can be checked.
///
/// # Panics
/// When `offset` is not a multiple of 8.
pub fn pattern(object: ObjectId, offset: u64, buffer: &mut [u8]) {
    assert!(offset.is_multiple_of(8), "a pattern is made of words of 8 bytes");
    let ObjectId { task, attempt, output } = object;
    let seed = [task.job.0, task.local.0, attempt.0, u64::from(output)]
        .into_iter()
        .fold(0x5354_4152_4c49_4e47, |seed, word| mix(seed ^ word));
    for (index, word) in buffer.chunks_mut(8).enumerate() {
        let bytes = mix(seed ^ (offset / 8 + index as u64)).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
}

/// A bijection that spreads every input bit over the word (multiply and xor-shift, twice).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 31)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ (word >> 32)
}

#[cfg(test)]
mod tests {
    use proto::{Attempt, TaskId};

    use super::*;

    #[test]
    fn a_pattern_is_the_same_in_whatever_pieces_it_is_made() {
        let object = ObjectId { task: TaskId::new(1, 2), attempt: Attempt(3), output: 4 };
        let mut whole = vec![0; 1003];
        pattern(object, 0, &mut whole);
        let mut pieces = vec![0; 1003];
        for (index, piece) in pieces.chunks_mut(64).enumerate() {
            pattern(object, index as u64 * 64, piece);
        }
        assert_eq!(whole, pieces);
        let mut other = vec![0; 1003];
        pattern(ObjectId { output: 5, ..object }, 0, &mut other);
        assert_ne!(whole, other);
    }
}
