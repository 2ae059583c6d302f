//! The sums of the reports of all partitions of a job.

use proto::variable::add_sums;
use proto::wire;

/// The number of failures that the record of a job names.
const FAILURES_KEPT_PER_JOB: usize = 64;

/// Adds a report to the sum.
pub(super) fn add(sum: &mut wire::PartitionCount, count: &wire::PartitionCount) {
    sum.done += count.done;
    sum.failed += count.failed;
    sum.cancelled += count.cancelled;
    sum.skipped += count.skipped;
    sum.executions += count.executions;
    sum.spawned += count.spawned;
    sum.submitted += count.submitted;
    sum.held_bytes += count.held_bytes;
    sum.turns += count.turns;
    sum.events += count.events;
    sum.events_dropped += count.events_dropped;
    sum.keeps |= count.keeps;
    add_sums(&mut sum.sums, &count.sums, 1);
    sum.work_ns += count.work_ns;
    sum.produced_bytes += count.produced_bytes;
    sum.moved_bytes += count.moved_bytes;
    sum.local_bytes += count.local_bytes;
    sum.captured_bytes = sum.captured_bytes.saturating_add(count.captured_bytes);
    sum.inputs += count.inputs;
    sum.inputs_local += count.inputs_local;
    sum.inputs_copied += count.inputs_copied;
    sum.last_finish_ns = sum.last_finish_ns.max(count.last_finish_ns);
    if count.first_start_ns != 0 {
        let known = if sum.first_start_ns == 0 { u64::MAX } else { sum.first_start_ns };
        sum.first_start_ns = known.min(count.first_start_ns);
    }
    for failure in &count.failures {
        let known = sum.failures.iter().any(|other| other.local == failure.local);
        if !known && sum.failures.len() < FAILURES_KEPT_PER_JOB {
            sum.failures.push(failure.clone());
        }
    }
    if sum.lost.is_empty() {
        sum.lost.clone_from(&count.lost);
    }
    if sum.spawn_chain.is_empty() {
        sum.spawn_chain.clone_from(&count.spawn_chain);
    }
    if sum.cancelled_by.is_empty() {
        sum.cancelled_by.clone_from(&count.cancelled_by);
    }
}

/// Subtracts an earlier report from the sum; extremes and failures only grow.
pub(super) fn subtract(sum: &mut wire::PartitionCount, count: &wire::PartitionCount) {
    sum.done -= count.done;
    sum.failed -= count.failed;
    sum.cancelled -= count.cancelled;
    sum.skipped -= count.skipped;
    sum.executions = sum.executions.saturating_sub(count.executions);
    sum.spawned = sum.spawned.saturating_sub(count.spawned);
    sum.submitted = sum.submitted.saturating_sub(count.submitted);
    sum.held_bytes = sum.held_bytes.saturating_sub(count.held_bytes);
    sum.turns = sum.turns.saturating_sub(count.turns);
    sum.events = sum.events.saturating_sub(count.events);
    sum.events_dropped = sum.events_dropped.saturating_sub(count.events_dropped);
    add_sums(&mut sum.sums, &count.sums, -1);
    sum.work_ns = sum.work_ns.saturating_sub(count.work_ns);
    sum.produced_bytes = sum.produced_bytes.saturating_sub(count.produced_bytes);
    sum.moved_bytes = sum.moved_bytes.saturating_sub(count.moved_bytes);
    sum.local_bytes = sum.local_bytes.saturating_sub(count.local_bytes);
    sum.captured_bytes = sum.captured_bytes.saturating_sub(count.captured_bytes);
    sum.inputs = sum.inputs.saturating_sub(count.inputs);
    sum.inputs_local = sum.inputs_local.saturating_sub(count.inputs_local);
    sum.inputs_copied = sum.inputs_copied.saturating_sub(count.inputs_copied);
}
