//! *Poison*: a task that kills its node takes at most so many incarnations with it as are allowed,
//! and then fails; each further one has been counted apart. What merely ran beside it does not
//! fail; and no death is counted that a majority of the other nodes did not live through.

use std::collections::BTreeMap;

use proto::limits::CRASHES_MAX;
use proto::{Attempt, NodeId, Span, TaskId, Time};

use super::{Jobs, Verdict, Violation, known};

const NAME: &str = "poison";

/// So many deaths by a task may escape its homes, each by a death of a home at that moment.
const UNRECORDED_MAX: usize = 2;

/// Homes ask for witnesses some time after a death: nodes that live for so long have lived through
/// it.
const LIVED_THROUGH: Span = Span::from_millis(500);

/// One process of a machine.
#[derive(Debug)]
struct IncarnationSpan {
    incarnation: u32,
    from: Time,
    to: Option<Time>,
    /// It ended as it was told to.
    stopped: bool,
}

/// When which incarnation lived, by machine.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    lives: BTreeMap<usize, Vec<IncarnationSpan>>,
    /// When those that were let in later were members for the first time.
    came: BTreeMap<usize, Option<Time>>,
    /// From when until when the map took which machine for dead.
    given_up: BTreeMap<usize, Vec<(Time, Option<Time>)>>,
    /// When who left had handed over all that it had.
    left: BTreeMap<usize, Time>,
}

impl Incarnations {
    pub(crate) fn begin(&mut self, machine: usize, incarnation: u32, now: Time) {
        let lives = self.lives.entry(machine).or_default();
        lives.push(IncarnationSpan { incarnation, from: now, to: None, stopped: false });
    }
    pub(crate) fn end(&mut self, machine: usize, now: Time, stopped: bool) {
        let life = self.lives.get_mut(&machine).and_then(|lives| lives.last_mut());
        if let Some(life) = life.filter(|life| life.to.is_none()) {
            (life.to, life.stopped) = (Some(now), stopped);
        }
    }

    pub(crate) fn joins(&mut self, machine: usize) {
        self.came.insert(machine, None);
    }
    /// It has left the cluster in order: its end is no death.
    pub(crate) fn leaves(&mut self, machine: usize, now: Time) {
        self.left.entry(machine).or_insert(now);
    }
    /// The map takes it for dead.
    pub(crate) fn goes(&mut self, machine: usize, now: Time) {
        self.given_up.entry(machine).or_default().push((now, None));
    }
    /// The map has it as a member.
    pub(crate) fn comes(&mut self, machine: usize, now: Time) {
        if let Some((_, until)) = self.given_up.get_mut(&machine).and_then(|all| all.last_mut()) {
            until.get_or_insert(now);
        }
        if let Some(came) = self.came.get_mut(&machine) {
            came.get_or_insert(now);
        }
    }

    fn of(&self, (node, incarnation): (NodeId, u32)) -> Option<&IncarnationSpan> {
        let lives = self.lives.get(&(node.0 as usize))?;
        lives.iter().rev().find(|life| life.incarnation == incarnation)
    }

    /// One that was let in and has not come yet is none of the cluster's nodes.
    fn is_member(&self, machine: usize, at: Time) -> bool {
        self.came.get(&machine).is_none_or(|came| came.is_some_and(|came| came <= at))
    }
    /// Nor is one that the cluster has given up, though its process may run.
    fn is_given_up(&self, machine: usize, at: Time) -> bool {
        let mut given_up = self.given_up.get(&machine).into_iter().flatten();
        given_up.any(|&(from, to)| from <= at && to.is_none_or(|to| to > at))
    }

    /// Of the other machines that ran when that one died: how many, and how many ran on.
    fn witnesses(
        &self,
        node: NodeId,
        died_at: Time,
        counts: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let others = self.lives.iter().filter(|(machine, _)| **machine != node.0 as usize);
        let others = others.filter(|(machine, _)| counts(**machine));
        let at_that_time = |life: &&IncarnationSpan| {
            life.from <= died_at && life.to.is_none_or(|to| to >= died_at)
        };
        let there = others
            .filter_map(|(machine, lives)| lives.iter().find(at_that_time).map(|it| (machine, it)));
        let has_left = |machine: &usize| self.left.get(machine).is_some_and(|&at| at > died_at);
        let ran_on = |life: &IncarnationSpan| life.to.is_none_or(|to| to > died_at + LIVED_THROUGH);
        let there: Vec<(&usize, &IncarnationSpan)> = there.collect();
        let lived = there.iter().filter(|&&(machine, life)| ran_on(life) || has_left(machine));
        (there.len(), lived.count())
    }
}

/// A home counts a death against a task.
pub(crate) fn on_crash_counted(
    lives: &Incarnations,
    task: TaskId,
    death: (NodeId, u32),
) -> Verdict {
    let (node, incarnation) = death;
    // A node that others have given up may go on for a while.
    let Some((life, died_at)) = lives.of(death).and_then(|life| Some((life, life.to?))) else {
        return Ok(());
    };
    if life.stopped {
        let text = format!(
            "that {node}'s incarnation {incarnation} was stopped in order counts against {task}"
        );
        return Err(Violation::new(NAME, text));
    }
    let is_there = |machine| !lives.is_given_up(machine, died_at);
    let is_member = |machine| is_there(machine) && lives.is_member(machine, died_at);
    let (others, lived) = lives.witnesses(node, died_at, is_member);
    // A newcomer that has started may have heard of it before the map shows the newcomer.
    let (all, all_lived) = lives.witnesses(node, died_at, is_there);
    // One that the map had given up may have lived, and may be back when it is asked.
    let (running, ran_on) = lives.witnesses(node, died_at, |_| true);
    let too_few = |others: usize, lived: usize| others > 0 && lived * 2 <= others;
    if too_few(others, lived) && too_few(all, all_lived) && too_few(running, ran_on) {
        let text = format!(
            "the death of {node}'s incarnation {incarnation} counts against {task}, and only \
             {lived} of {others} other nodes lived through it"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A home counts one apart.
pub(crate) fn on_spared(jobs: &mut Jobs, task: TaskId, death: (NodeId, u32)) -> Verdict {
    known(jobs, NAME, task)?.spared.insert(death);
    Ok(())
}

/// A task has killed the node that ran it. What a node other than its home starts is not written
/// down before there has been a death: if its home dies, too, before it has heard and that is
/// durable, the first death has no witness, nor the next one under the next home.
pub(crate) fn on_kill(
    jobs: &mut Jobs,
    (task, attempt): (TaskId, Attempt),
    (node, incarnation): (NodeId, u32),
    by_home: bool,
) -> Verdict {
    let truth = known(jobs, NAME, task)?;
    truth.kills.push(((attempt.0 >> 32) as u32, by_home));
    let pairs = || truth.kills.windows(2).map(|two| (two[0], two[1]));
    let unwitnessed =
        pairs().take_while(|&((first, by_home), (second, _))| !by_home && first != second);
    // Who had taken it just before a power cut of its home may start it after others have.
    let late = pairs().filter(|&((first, _), (second, _))| second < first);
    let more = unwitnessed.count() + late.count();
    let allowed = usize::from(CRASHES_MAX) + truth.spared.len() + more.min(UNRECORDED_MAX);
    if truth.kills.len() > allowed {
        let text = format!(
            "{task} has killed {} incarnations, the last one {node}'s {incarnation}; {allowed} are \
             allowed, {} of them as they were counted apart",
            truth.kills.len(),
            truth.spared.len()
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A home fails a task because too many have died with it, this one the last. `counts`: whom it
/// takes for dead has died; a node that others have given up may go on for a while. The word that
/// the attempt has ended, or does not start after all, may have died with its node.
pub(crate) fn on_crash_limit(
    jobs: &mut Jobs,
    (task, attempt): (TaskId, Attempt),
    (node, incarnation): (NodeId, u32),
    killer: Option<TaskId>,
    counts: bool,
) -> Verdict {
    let truth = known(jobs, NAME, task)?;
    truth.failed_by_crashes = true;
    let by_other = killer.filter(|&killer| killer != task);
    let is_unheard = truth.finished.contains_key(&attempt) || !truth.launched.contains(&attempt);
    if let Some(killer) = by_other.filter(|_| counts && !is_unheard) {
        let text = format!(
            "{task} fails for the death of {node}'s incarnation {incarnation}, which {killer} had \
             killed"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}
