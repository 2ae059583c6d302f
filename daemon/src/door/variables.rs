//! The variables of jobs, as the commands of this node see them. The core announces each change;
//! commands read the last one, and wait for the next one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use node::Input;
use proto::variable::{parse_sum, parse_value};
use proto::wire::{VarRule, VarValue};
use proto::{Attempt, JobId, TaskId, wire};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use wire::door_response::Body as Answered;

use crate::door::Door;
use crate::door::refusal::Refusal;
use crate::door::token::Token;
use crate::event_loop::inbox::Local;

/// A command waits this long for the home of its job to say which variables there are.
const VARIABLES_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// An attempt, and its job with the number of declared variables.
type Caller = ((TaskId, Attempt), (JobId, u32));

/// What this node knows of the variables of jobs.
#[derive(Debug)]
pub(super) struct Known {
    jobs: Mutex<State>,
    /// Counts the changes.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    jobs: HashMap<JobId, BTreeMap<u32, wire::Variable>>,
    /// The commands that set a variable, by ticket.
    sets: HashMap<u64, oneshot::Sender<bool>>,
    tickets: u64,
}

impl Default for Known {
    fn default() -> Self {
        Self { jobs: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Known {
    fn state(&self) -> MutexGuard<'_, State> {
        self.jobs.lock().expect("no holder of the variables panics")
    }

    /// The core knows another value.
    pub(super) fn changed(&self, job: JobId, variable: wire::Variable) {
        self.state().jobs.entry(job).or_default().insert(variable.index, variable);
        self.changes.send_modify(|count| *count += 1);
    }

    pub(super) fn forget(&self, job: JobId) {
        if self.state().jobs.remove(&job).is_some() {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    /// The core has taken a value, or not.
    pub(super) fn set(&self, ticket: u64, done: bool) {
        if let Some(sender) = self.state().sets.remove(&ticket) {
            let _ = sender.send(done); // The command may be gone.
        }
    }

    /// `None`: the home of the job has not announced all of the `declared` variables yet. Those
    /// that have changed may be known before the others.
    fn find(
        &self,
        (job, declared): (JobId, u32),
        name: &str,
    ) -> Option<Result<wire::Variable, Refusal>> {
        let state = self.state();
        let variables = state.jobs.get(&job)?;
        let has_name =
            |it: &&wire::Variable| it.declared.as_ref().is_some_and(|it| it.name == name);
        match variables.values().find(has_name) {
            Some(found) => Some(Ok(found.clone())),
            None if variables.len() < declared as usize => None,
            None => Some(Err(unknown(name))),
        }
    }
}

fn unknown(name: &str) -> Refusal {
    let text = format!("the job has no variable '{}'", name.escape_debug());
    Refusal::bad(text, "declare it: starling submit --var NAME=RULE[:INITIAL]")
}

impl Door {
    /// Waits until the variable is known here.
    async fn variable(&self, job: (JobId, u32), name: &str) -> Result<wire::Variable, Refusal> {
        let mut changes = self.variables.changes.subscribe();
        let found = async {
            loop {
                if let Some(found) = self.variables.find(job, name) {
                    return found;
                }
                let _ = changes.changed().await; // The sender lives as long as the door.
            }
        };
        timeout(VARIABLES_ANSWER_TIMEOUT, found).await.unwrap_or_else(|_| {
            let text = "the home of the job does not answer, so its variables are not known here";
            Err(Refusal::bad(text, "call again later"))
        })
    }

    /// The attempt of this token, and its job with the number of declared variables.
    fn job_with_variables(&self, token: Token, name: &str) -> Result<Caller, Refusal> {
        let (key, declared) = self.attempts().of_token(token)?;
        if declared > 0 { Ok((key, (key.0.job, declared))) } else { Err(unknown(name)) }
    }

    /// The value of a variable, or the first one that differs from the named one.
    pub(super) async fn get(&self, token: Token, get: wire::DoorGet) -> Result<Answered, Refusal> {
        let (_, job) = self.job_with_variables(token, &get.name)?;
        let mut changes = self.variables.changes.subscribe();
        let mut found = self.variable(job, &get.name).await?;
        if let Some(unlike) = get.unlike {
            while found.value == unlike.value {
                let _ = changes.changed().await;
                self.attempts().of_token(token)?; // The attempt may have ended.
                match self.variables.find(job, &get.name) {
                    Some(next) => found = next?,
                    None => return Err(Refusal::fenced()), // The round of the job has ended.
                }
            }
        }
        refuse_sum(&found, "its value is known outside of tasks: starling var get --job JOB NAME")?;
        Ok(Answered::Variable(Box::new(found)))
    }

    /// Sets a variable at once.
    pub(super) async fn set(&self, token: Token, set: wire::DoorSet) -> Result<Answered, Refusal> {
        let ((task, attempt), job) = self.job_with_variables(token, &set.name)?;
        let found = self.variable(job, &set.name).await?;
        refuse_sum(&found, "add to it: starling var add NAME NUMBER")?;
        let hint = "the rule and the type of a variable are declared with its job";
        let declared = found.declared.clone().unwrap_or_default();
        let value = parse_value(&declared, &set.value).map_err(|text| Refusal::bad(text, hint))?;
        let value = VarValue { witness: set.witness, ..value };
        proto::variable::check_value(&value).map_err(|text| Refusal::bad(text, hint))?;
        let (sender, taken) = oneshot::channel();
        let ticket = {
            let mut state = self.variables.state();
            state.tickets += 1;
            let ticket = state.tickets;
            state.sets.insert(ticket, sender);
            ticket
        };
        let (index, value) = (found.index, Box::new(value));
        let input = Input::SetVariable { task, attempt, index, value, ticket };
        let _ = self.inputs.send(Local::Input(input)); // If the run loop has ended, so does this.
        match taken.await {
            Ok(true) => {
                let known = self.variables.find(job, &set.name);
                known.unwrap_or(Ok(found)).map(|known| Answered::Variable(Box::new(known)))
            }
            Ok(false) | Err(_) => Err(Refusal::fenced()),
        }
    }

    /// Adds to a sum, with the next turn of the attempt.
    pub(super) async fn add(&self, token: Token, add: wire::DoorAdd) -> Result<Answered, Refusal> {
        let (_, job) = self.job_with_variables(token, &add.name)?;
        let found = self.variable(job, &add.name).await?;
        let declared = found.declared.clone().unwrap_or_default();
        let hint = match declared.rule() {
            VarRule::VarSum => "a sum is an integer: add whole numbers, in a smaller unit",
            _ => "'starling var set' sets variables of the other rules",
        };
        let number = parse_sum(&declared, &add.value).map_err(|text| Refusal::bad(text, hint))?;
        self.attempts().add(token, wire::VarSum::new(found.index, number.into()))?;
        Ok(Answered::Added(wire::DoorAdded {}))
    }
}

fn refuse_sum(found: &wire::Variable, hint: &'static str) -> Result<(), Refusal> {
    let declared = found.declared.as_ref();
    match declared.filter(|declared| declared.rule() == VarRule::VarSum) {
        Some(declared) => {
            let text =
                format!("the variable '{}' is a sum, which counts committed turns", declared.name);
            Err(Refusal::bad(text, hint))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(7);

    fn variable(index: u32, name: &str) -> wire::Variable {
        let declared = wire::VarDeclared { name: name.to_owned(), ..wire::VarDeclared::default() };
        wire::Variable { index, declared: Some(declared), ..wire::Variable::default() }
    }

    #[test]
    fn a_variable_is_unknown_only_after_all_have_been_announced() {
        let known = Known::default();
        let find = |name| known.find((JOB, 2), name);
        assert!(find("visited").is_none(), "the home has not answered");
        known.changed(JOB, variable(0, "best"));
        assert!(find("best").is_some_and(|found| found.is_ok()));
        assert!(find("visited").is_none(), "the job declares two, and one is known");
        known.changed(JOB, variable(1, "visited"));
        assert!(find("visited").is_some_and(|found| found.is_ok()));
        assert!(find("other").is_some_and(|found| found.is_err()));
        known.forget(JOB);
        assert!(find("best").is_none(), "the next round asks again");
    }
}
