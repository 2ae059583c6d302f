//! *Poison*: a task that kills its node ends at most the allowed number of incarnations, and then
//! fails. Each further death was counted apart. A task that ran beside it does not fail. No death
//! counts unless a majority of the other nodes lived through it. Without other faults, no death is
//! counted apart if most other nodes certainly lived through it.

use std::collections::BTreeMap;

use proto::event::Spared;
use proto::limits::{CRASHES_MAX, INCARNATIONS_KEPT_MAX};
use proto::wire::LifeEnd;
use proto::{Attempt, NodeId, Span, TaskId, Time};

use super::{Jobs, Verdict, Violation, known};

const NAME: &str = "poison";

/// The number of deaths that its homes may miss, each because a home died at that moment.
const UNRECORDED_MAX: usize = 2;

/// Homes query witnesses some time after a death. A node that lives this long afterwards has lived
/// through it.
const LIVED_THROUGH: Span = Span::from_millis(500);

/// Two nodes that run for this span without a fault have exchanged packets that name both
/// incarnations.
const MEET_WITHIN: Span = Span::from_secs(5);

/// One process of a machine.
#[derive(Debug)]
struct IncarnationSpan {
    incarnation: u32,
    from: Time,
    to: Option<Time>,
    end: LifeEnd,
}

/// The times of all incarnations, by machine.
#[derive(Debug, Default)]
pub(crate) struct Incarnations {
    lives: BTreeMap<usize, Vec<IncarnationSpan>>,
    /// Homes may move, so all nodes exchange packets all the time.
    homes_move: bool,
    /// From this time on only tasks end processes, and no fault cuts the network; `Time::MAX`:
    /// there are faults.
    calm_from: Time,
    /// The time at which each machine that joins later became a member; `None`: not yet.
    came: BTreeMap<usize, Option<Time>>,
    /// The times at which the map listed a machine as failed.
    given_up: BTreeMap<usize, Vec<(Time, Option<Time>)>>,
    /// The time at which a draining machine had handed all its data over.
    left: BTreeMap<usize, Time>,
}

impl Incarnations {
    pub(crate) fn new(homes_move: bool) -> Self {
        Self { homes_move, ..Self::default() }
    }
    pub(crate) fn begin(&mut self, machine: usize, incarnation: u32, now: Time) {
        let lives = self.lives.entry(machine).or_default();
        lives.push(IncarnationSpan { incarnation, from: now, to: None, end: LifeEnd::LifeDied });
    }
    pub(crate) fn end(&mut self, machine: usize, now: Time, end: LifeEnd) {
        let life = self.lives.get_mut(&machine).and_then(|lives| lives.last_mut());
        if let Some(life) = life.filter(|life| life.to.is_none()) {
            (life.to, life.end) = (Some(now), end);
        }
    }
    /// See [`Self::calm_from`].
    pub(crate) fn calm_from(&mut self, from: Time) {
        self.calm_from = from;
    }

    pub(crate) fn joins(&mut self, machine: usize) {
        self.came.insert(machine, None);
    }
    /// The machine has left the cluster in order: its end is no death.
    pub(crate) fn leaves(&mut self, machine: usize, now: Time) {
        self.left.entry(machine).or_insert(now);
    }
    /// The map lists the machine as failed.
    pub(crate) fn goes(&mut self, machine: usize, now: Time) {
        self.given_up.entry(machine).or_default().push((now, None));
    }
    /// The map lists the machine as a member.
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

    /// True if the machine is a member. A machine that joins later is none before that.
    fn is_member(&self, machine: usize, at: Time) -> bool {
        self.came.get(&machine).is_none_or(|came| came.is_some_and(|came| came <= at))
    }
    /// True if the cluster declared the machine failed, though its process may run.
    fn is_given_up(&self, machine: usize, at: Time) -> bool {
        let mut given_up = self.given_up.get(&machine).into_iter().flatten();
        given_up.any(|&(from, to)| from <= at && to.is_none_or(|to| to > at))
    }

    /// The map has removed the machine. Its process ends when it receives that map.
    fn has_left(&self, machine: usize, at: Time) -> bool {
        self.left.get(&machine).is_some_and(|&left| left <= at)
    }

    /// The number of other machines that have ever run, and the number of those that certainly
    /// lived through that death and could answer until now. `None`: it is certain of no machine.
    fn certain_witnesses(&self, death: (NodeId, u32), now: Time) -> Option<(usize, usize)> {
        let dead = death.0.0 as usize;
        let life = self.of(death).filter(|life| life.end == LifeEnd::LifeDied)?;
        let died_at = life.to?;
        let since = Time(died_at.0.checked_sub(MEET_WITHIN.0)?);
        let is_there = |machine: usize| {
            let is_given_up = |at| self.is_given_up(machine, at);
            self.is_member(machine, since) && !is_given_up(since) && !is_given_up(now)
        };
        let later = self.lives[&dead].iter().filter(|life| life.from >= died_at).count();
        if since < life.from.max(self.calm_from)
            || !is_there(dead)
            || later >= INCARNATIONS_KEPT_MAX
        {
            return None;
        }
        let others = self.lives.iter().filter(|&(&machine, _)| machine != dead);
        let others: Vec<_> = others.filter(|&(&it, _)| !self.has_left(it, died_at)).collect();
        let runs_on = |other: &IncarnationSpan| other.from <= since && other.to.is_none();
        // Nodes announce themselves when they start. Packets of an earlier time may be lost.
        let has_met = |other: &IncarnationSpan| {
            self.homes_move || other.incarnation == 1 || self.calm_from <= life.from.max(other.from)
        };
        let lived = others.iter().filter(|(machine, lives)| {
            let other = lives.last().filter(|other| runs_on(other) && has_met(other));
            is_there(**machine) && other.is_some()
        });
        Some((others.len(), lived.count()))
    }

    /// The number of other machines that ran when that one died, and the number of those that
    /// continued.
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
    // A node that was declared failed may run on for some time.
    let Some((life, died_at)) = lives.of(death).and_then(|life| Some((life, life.to?))) else {
        return Ok(());
    };
    if life.end == LifeEnd::LifeStopped {
        let text = format!(
            "that {node}'s incarnation {incarnation} was stopped in order counts against {task}"
        );
        return Err(Violation::new(NAME, text));
    }
    let is_there =
        |machine| !lives.is_given_up(machine, died_at) && !lives.has_left(machine, died_at);
    let is_member = |machine| is_there(machine) && lives.is_member(machine, died_at);
    let (others, lived) = lives.witnesses(node, died_at, is_member);
    // A newcomer that has started may know of the death before the map lists the newcomer.
    let (all, all_lived) = lives.witnesses(node, died_at, is_there);
    // A node that was declared failed may have lived, and may be back when it is queried.
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

/// A home counts one apart; `why` if it still is the home, and could ask the others.
pub(crate) fn on_spared(
    jobs: &mut Jobs,
    lives: &Incarnations,
    (now, task): (Time, TaskId),
    death: (NodeId, u32),
    why: Option<Spared>,
) -> Verdict {
    known(jobs, NAME, task)?.spared.insert(death);
    let Some((others, lived)) = lives.certain_witnesses(death, now) else { return Ok(()) };
    if why == Some(Spared::Apart) && lived * 2 > others {
        let (node, incarnation) = death;
        let text = format!(
            "the death of {node}'s incarnation {incarnation} is counted apart for {task}, and \
             {lived} of {others} other nodes lived through it"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A task has killed its node. Before the first death, starts on nodes other than the home are not
/// recorded. The home may also die before it has recorded the first death durably. Then this death
/// has no witness, and neither has the next one under the next home.
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
    // A node that got the task just before a power cut of its home may start it later than others.
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

/// A home fails a task because too many incarnations have died with it. `counts`: this death must
/// be real. A node that was declared failed may run on for some time. The report that the attempt
/// ended, or does not start, may have been lost with its node.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{JobId, LocalId, PartitionId};

    const DEAD: (NodeId, u32) = (NodeId(2), 1);

    fn seconds(seconds: u64) -> Time {
        Time(Span::from_secs(seconds).0)
    }

    /// Three machines run from the beginning, and node 2 fails after 20 s.
    fn three(end: LifeEnd) -> Incarnations {
        let mut lives = Incarnations::new(true);
        (0..3).for_each(|machine| lives.begin(machine, 1, Time(0)));
        lives.end(2, seconds(20), end);
        lives
    }

    /// Node 0 had handed over all that it had, and its process had not heard yet that it may end
    /// (seed 22056872).
    #[test]
    fn a_node_that_the_map_has_removed_need_not_live_on() {
        let task = TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) };
        for (removed, expected) in [(Some(19), true), (Some(21), true), (None, false)] {
            let mut lives = three(LifeEnd::LifeDied);
            lives.end(0, seconds(20) + Span::from_millis(3), LifeEnd::LifeFenced);
            if let Some(at) = removed {
                lives.leaves(0, seconds(at));
            }
            assert_eq!(on_crash_counted(&lives, task, DEAD).is_ok(), expected, "{removed:?}");
        }
    }

    #[test]
    fn witnesses_are_certain_where_nothing_else_was_broken() {
        let now = seconds(25);
        let witnesses = |lives: &Incarnations| lives.certain_witnesses(DEAD, now);
        let mut lives = three(LifeEnd::LifeDied);
        assert_eq!(witnesses(&lives), Some((2, 2)));
        lives.calm_from(seconds(18));
        assert_eq!(witnesses(&lives), None, "there were faults shortly before");
        lives.calm_from(seconds(14));
        assert_eq!(witnesses(&lives), Some((2, 2)));
        (lives.homes_move, lives.lives.get_mut(&1).expect("it runs")[0].incarnation) = (false, 2);
        assert_eq!(witnesses(&lives), Some((2, 1)), "their packets may have been lost");
        assert_eq!(witnesses(&three(LifeEnd::LifeRebooted)), None);
        let mut lives = three(LifeEnd::LifeDied);
        lives.end(1, seconds(22), LifeEnd::LifeDied);
        lives.begin(1, 2, seconds(23));
        assert_eq!(witnesses(&lives), Some((2, 1)), "the next incarnation knows nothing");
        lives.leaves(1, seconds(20));
        assert_eq!(witnesses(&lives), Some((1, 1)));
        lives.goes(0, seconds(21));
        assert_eq!(witnesses(&lives), Some((1, 0)));
    }
}
