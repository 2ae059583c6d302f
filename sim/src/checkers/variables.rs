//! *Variables*: a value that a node has heard only improves, and an attempt has set it with its
//! witness. The value at the home of a job only improves while the home stays. At the end, the
//! value of a job is as good as each value that a committed turn rested on.
//! A sum has what committed turns have added, each once.

use std::collections::{BTreeMap, BTreeSet};

use proto::variable::improves;
use proto::wire::{self, VarDeclared, VarRule, VarSum, VarValue};
use proto::{JobId, TaskId};

use super::turns::Turns;
use super::{Jobs, Verdict, Violation};

const NAME: &str = "variables";

/// The places of the variables of a job.
pub(crate) const BEST: u32 = 0;
pub(crate) const NOTE: u32 = 1;
pub(crate) const SUM: u32 = 2;

/// An incarnation of a node.
pub(crate) type Life = (usize, u32);

/// The record of all values.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// The numbers and texts that attempts have set.
    set: BTreeSet<(JobId, i64)>,
    /// What incarnations of nodes have heard.
    known: BTreeMap<(Life, JobId, u32), VarValue>,
    /// The values at the homes of jobs after their last steps.
    at_homes: BTreeMap<(Life, JobId), Vec<wire::Variable>>,
}

/// The variables of all jobs of a world.
pub(crate) fn declared(number: u64) -> Vec<VarDeclared> {
    let best = if number & 1 == 0 { VarRule::VarMin } else { VarRule::VarMax };
    let of = |(name, rule): (&str, VarRule)| VarDeclared {
        name: name.to_owned(),
        rule: rule as i32,
        ..VarDeclared::default()
    };
    [("best", best), ("note", VarRule::VarLast), ("sum", VarRule::VarSum)].map(of).to_vec()
}

/// A value of the variables [`BEST`] and [`NOTE`].
pub(crate) fn value(index: u32, number: i64) -> VarValue {
    let text = if index == NOTE { witness(number) } else { Vec::new() };
    VarValue { number, text, witness: witness(number), ..VarValue::default() }
}

fn witness(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

impl Variables {
    /// An attempt sets a variable.
    pub(crate) fn on_set(&mut self, job: JobId, number: i64) {
        self.set.insert((job, number));
    }

    /// The best number that this incarnation of a node has heard.
    pub(crate) fn best(&self, life: Life, job: JobId) -> Option<i64> {
        Some(self.known.get(&(life, job, BEST))?.number)
    }

    /// A node drops what it knows of a job.
    pub(crate) fn on_forgotten(&mut self, life: Life, job: JobId) {
        self.known.retain(|&(by, of, _), _| (by, of) != (life, job));
    }

    /// A node has made a step. `values`: of a job that is homed there.
    pub(crate) fn on_home_step(
        &mut self,
        life: Life,
        job: JobId,
        values: Option<&[wire::Variable]>,
    ) -> Verdict {
        let Some(values) = values else {
            // Another node may become the home, and this one again later.
            self.at_homes.remove(&(life, job));
            return Ok(());
        };
        let before = self.at_homes.entry((life, job)).or_default();
        if before == values {
            return Ok(());
        }
        for (before, now) in before.iter().zip(values) {
            let rule = now.declared.as_ref().map_or(VarRule::VarSum, VarDeclared::rule);
            let Some(value) = &before.value else { continue };
            if improves(rule, now.value.as_ref(), value) {
                let text = format!("n{}: {job}: the home keeps {now:?} after {before:?}", life.0);
                return Err(Violation::new(NAME, text));
            }
        }
        *before = values.to_vec();
        Ok(())
    }

    /// A node hears of a value.
    pub(crate) fn on_heard(&mut self, life: Life, job: JobId, it: &wire::Variable) -> Verdict {
        let Some(value) = &it.value else { return Ok(()) };
        let wrong = |what: &str| {
            let text = format!("n{}: variable {} of {job} {what}: {it:?}", life.0, it.index);
            Err(Violation::new(NAME, text))
        };
        if !self.set.contains(&(job, value.number)) {
            return wrong("has a value that no attempt has set");
        }
        if value.witness != witness(value.number) {
            return wrong("has a value without its witness");
        }
        let rule = it.declared.as_ref().map_or(VarRule::VarSum, VarDeclared::rule);
        let before = self.known.get(&(life, job, it.index));
        if before.is_some_and(|before| improves(rule, Some(value), before)) {
            return wrong("has become worse");
        }
        self.known.insert((life, job, it.index), value.clone());
        Ok(())
    }
}

/// Checks the values that clients have received at the ends of jobs. `number`: of the declarations.
pub(crate) fn on_end(number: u64, jobs: &Jobs, turns: &Turns) -> Verdict {
    let best = &declared(number)[BEST as usize];
    for job in jobs.values() {
        let Some(told) = job.told.as_ref().filter(|it| it.phase() != wire::JobPhase::Lost) else {
            continue;
        };
        let of_job = |task: &&TaskId| task.job == job.job;
        let committed = turns.committed.iter().filter(|(task, _)| of_job(task));
        if told.variables.is_empty() {
            // The job was forgotten, or cancelled before its commit.
            if job.may_be_forgotten || committed.count() == 0 {
                continue;
            }
            let text = format!("{}: it has committed turns, and no variables", job.job);
            return Err(Violation::new(NAME, text));
        }
        let mut sum = 0;
        for (task, turn) in committed.flat_map(|(task, all)| all.values().map(move |it| (task, it)))
        {
            sum += turn.request.sums.iter().map(VarSum::sum).sum::<i128>();
            let Some(used) = turn.request.used else { continue };
            let last = told.variables[BEST as usize].value.as_ref();
            if improves(best.rule(), last, &value(BEST, used)) {
                let text = format!("{task}: a committed turn knew {used}, the last is {last:?}");
                return Err(Violation::new(NAME, text));
            }
        }
        let last = told.variables[SUM as usize].sum.map_or(0, |it| it.sum());
        if last != sum {
            let text = format!("{}: committed turns have added {sum}, the sum is {last}", job.job);
            return Err(Violation::new(NAME, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(7);

    fn heard(index: u32, value: VarValue) -> wire::Variable {
        let declared = declared(0).into_iter().nth(index as usize);
        wire::Variable { index, declared, value: Some(value), sum: None }
    }

    #[test]
    fn values_improve_and_have_witnesses_of_attempts() {
        let mut all = Variables::default();
        for number in 3..=5 {
            all.on_set(JOB, number);
        }
        let mut hear = |life, value| all.on_heard((life, 1), JOB, &heard(BEST, value));
        assert!(hear(0, value(BEST, 4)).is_ok());
        assert!(hear(0, value(BEST, 5)).is_err(), "it is worse");
        assert!(hear(1, value(BEST, 5)).is_ok(), "another node hears of it later");
        assert!(hear(0, value(BEST, 2)).is_err(), "no attempt has set it");
        assert!(hear(0, VarValue { witness: vec![], ..value(BEST, 3) }).is_err());
        assert_eq!(all.best((0, 1), JOB), Some(4));
    }

    #[test]
    fn a_home_keeps_the_best_value_while_it_stays() {
        let mut all = Variables::default();
        let mut step = |number: Option<i64>| {
            let values = number.map(|number| [heard(BEST, value(BEST, number))]);
            all.on_home_step((0, 1), JOB, values.as_ref().map(|it| &it[..]))
        };
        assert!(step(Some(4)).is_ok());
        assert!(step(Some(3)).is_ok());
        assert!(step(Some(4)).is_err(), "it is worse");
        assert!(step(None).is_ok());
        assert!(step(Some(4)).is_ok(), "another home was between");
    }
}
