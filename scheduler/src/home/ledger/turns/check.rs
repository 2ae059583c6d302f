//! Checks a turn before it has any effect. The error is one line for the task that made it.

use std::collections::BTreeSet;

use proto::limits::{
    CHILD_KEY_BYTES_MAX, CHILD_KEYS_MAX, CHUNK_EDGES_MAX, TURN_AWAITS_MAX, TURN_BYTES_MAX,
    TURN_SPAWNS_MAX, TURN_STATE_BYTES_MAX, VARIABLES_MAX,
};
use proto::wire::{self, TurnVerdict};

use super::state::TaskTurns;
use crate::home::ledger::mail::check_events;
use crate::home::requests::{check_nodes, check_shape, distinct_requests};

/// The maximum number of ranges of children of one task.
const CHILD_RANGES_MAX: usize = 1 << 16;

/// Refuses a turn that exceeds a limit or contradicts itself. The holder checks it as well.
pub(crate) fn check_turn(turn: &wire::Turn) -> Result<(), String> {
    let state_bytes = turn.state.as_ref().map_or(0, Vec::len);
    if state_bytes > TURN_STATE_BYTES_MAX {
        return Err(format!(
            "the state has {state_bytes} bytes, more than {TURN_STATE_BYTES_MAX}; hint: keep the \
             bulk in an output or a file"
        ));
    }
    if turn.awaits.len() > TURN_AWAITS_MAX {
        return Err(format!("a task may await at most {TURN_AWAITS_MAX} tasks at once"));
    }
    if !turn.awaits.is_empty() && turn.verdict() != TurnVerdict::TurnWait {
        return Err("only a turn that waits names tasks to wait for".to_owned());
    }
    if prost::Message::encoded_len(turn) > TURN_BYTES_MAX {
        return Err(format!("a turn may have at most {TURN_BYTES_MAX} bytes"));
    }
    check_events(turn)?;
    let of_sum = |sum: &wire::VarSum| sum.variable as usize;
    if turn.sums.len() > VARIABLES_MAX || turn.sums.iter().any(|it| of_sum(it) >= VARIABLES_MAX) {
        return Err(format!("a job has at most {VARIABLES_MAX} variables"));
    }
    let Some(spawned) = &turn.spawned else { return Ok(()) };
    if turn.verdict() == TurnVerdict::TurnFailed && !spawned.tasks.is_empty() {
        return Err("an attempt that fails spawns nothing".to_owned());
    }
    check_spawned(spawned)
}

fn check_spawned(spawned: &wire::Spawned) -> Result<(), String> {
    let tasks = spawned.tasks.len();
    if tasks > TURN_SPAWNS_MAX {
        return Err(format!(
            "a turn may spawn at most {TURN_SPAWNS_MAX} tasks; hint: commit between them"
        ));
    }
    if spawned.tasks.iter().any(|task| task.spec as usize >= spawned.specs.len()) {
        return Err("a spawned task names a description that is not in the turn".to_owned());
    }
    let late = spawned.inputs.iter().map(|input| input.child.len()).sum::<usize>();
    if spawned.edges.len().saturating_add(late) > CHUNK_EDGES_MAX {
        return Err(format!("a turn may have at most {CHUNK_EDGES_MAX} edges"));
    }
    spawned.specs.iter().try_for_each(check_nodes)?;
    for spec in distinct_requests(&spawned.specs) {
        check_shape(spec)?;
    }
    let mut slots = vec![0; tasks];
    let mut filled = BTreeSet::new();
    for edge in &spawned.edges {
        let (parent, child) = (edge.parent as usize, edge.child as usize);
        // Edges lead from earlier tasks to later ones, so there is no cycle.
        if child >= tasks || parent >= child || !filled.insert((child, edge.slot)) {
            return Err("an edge between spawned tasks is malformed".to_owned());
        }
        slots[child] += 1;
    }
    for input in &spawned.inputs {
        if input.child.len() != input.slot.len() {
            return Err("the columns of edges from earlier children differ in length".to_owned());
        }
        for (&child, &slot) in input.child.iter().zip(&input.slot) {
            if child as usize >= tasks || !filled.insert((child as usize, slot)) {
                return Err("an edge from an earlier child is malformed".to_owned());
            }
            slots[child as usize] += 1;
        }
    }
    let fits = |(at, task): (usize, &wire::Task)| {
        let last = filled.range((at, 0)..=(at, u32::MAX)).next_back();
        task.slots == slots[at] && last.is_none_or(|&(_, slot)| slot < task.slots)
    };
    if !spawned.tasks.iter().enumerate().all(fits) {
        return Err("the input slots of a spawned task do not match its edges".to_owned());
    }
    Ok(())
}

/// Refuses a further range of children: each turn records all of them.
pub(super) fn check_ranges(before: Option<&TaskTurns>) -> Result<(), String> {
    match before.map_or(0, |turns| turns.children.len()) < CHILD_RANGES_MAX {
        true => Ok(()),
        false => Err(format!(
            "a task may spawn in at most {CHILD_RANGES_MAX} turns; hint: spawn more tasks a turn"
        )),
    }
}

/// Refuses names of children that are too long, too many, or taken.
pub(super) fn check_keys(
    spawned: &wire::Spawned,
    before: Option<&TaskTurns>,
) -> Result<(), String> {
    let known = |key: &str| before.is_some_and(|turns| turns.keys.contains_key(key));
    let count = before.map_or(0, |turns| turns.keys.len());
    if count + spawned.keys.len() > CHILD_KEYS_MAX {
        return Err(format!("a task may name at most {CHILD_KEYS_MAX} children"));
    }
    let mut fresh = BTreeSet::new();
    for named in &spawned.keys {
        if named.key.is_empty() || named.key.len() > CHILD_KEY_BYTES_MAX {
            return Err(format!("the name of a child has 1 to {CHILD_KEY_BYTES_MAX} bytes"));
        }
        if named.task as usize >= spawned.tasks.len() {
            return Err("a name belongs to no spawned task".to_owned());
        }
        if known(&named.key) || !fresh.insert(named.key.as_str()) {
            return Err(format!("the task already has a child named '{}'", named.key));
        }
    }
    Ok(())
}
