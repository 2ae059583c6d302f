//! The variables of a job: values that its tasks share.

use std::str::FromStr;

use proto::JobId;
use proto::variable::{parse_declared, rule_name, text_of};
use proto::wire::{self, VarRule, request};

use crate::call::name_unknown;
use crate::records::JobRecords;
use crate::{Client, ClientError};

/// The declaration of a variable: `NAME=RULE[:INITIAL]`.
///
/// The rule is `min`, `max`, `last` or `sum`. The values of `min,real` and `max,real` are reals.
///
/// ```
/// let best: starling_client::DeclaredVariable = "best=min:1000".parse().unwrap();
/// assert_eq!(best.name(), "best");
/// assert!("best=least".parse::<starling_client::DeclaredVariable>().is_err());
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct DeclaredVariable {
    record: wire::VarDeclared,
}

impl FromStr for DeclaredVariable {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse_declared(text).map(|record| Self { record })
    }
}

impl DeclaredVariable {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.record.name
    }
    pub(crate) fn records(all: &[Self]) -> Vec<wire::VarDeclared> {
        all.iter().map(|one| one.record.clone()).collect()
    }
}

/// A variable of a job, with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Variable {
    /// The name within the job.
    pub name: String,
    /// `min`, `max`, `last` or `sum`.
    pub rule: &'static str,
    /// `None`: no task has set it yet.
    pub value: Option<String>,
    /// The bytes that prove the value.
    pub witness: Vec<u8>,
}

impl Variable {
    /// From the form of messages.
    #[doc(hidden)]
    #[must_use]
    pub fn of_record(record: &wire::Variable) -> Self {
        let declared = record.declared.clone().unwrap_or_default();
        let value = match record.sum {
            Some(sum) => Some(sum.sum().to_string()),
            None => record.value.as_ref().map(|value| text_of(&declared, value)),
        };
        let is_sum = declared.rule() == VarRule::VarSum;
        Self {
            rule: rule_name(declared.rule()),
            value: if is_sum { value.or_else(|| Some("0".to_owned())) } else { value },
            witness: record.value.as_ref().map(|it| it.witness.clone()).unwrap_or_default(),
            name: declared.name,
        }
    }
}

/// The values of all variables of a job, on each change until the job ends.
#[derive(Debug)]
pub struct VariablesWatch {
    records: JobRecords,
}

impl VariablesWatch {
    /// The present values without their witnesses, then those after each change; `None` after the
    /// end of the job.
    ///
    /// # Errors
    /// [`ClientError::UnknownJob`], or its home does not answer for the client's timeout.
    pub async fn next(&mut self) -> Result<Option<Vec<Variable>>, ClientError> {
        let state = self.records.next().await?;
        let of_record = |record: &wire::Variable| Variable {
            witness: Vec::new(),
            ..Variable::of_record(record)
        };
        Ok(state.map(|state| state.variables.iter().map(of_record).collect()))
    }
}

impl Client {
    /// The variables of a job, running or ended.
    ///
    /// # Errors
    /// [`ClientError::UnknownJob`]: there is no such job. Otherwise its home does not answer.
    pub async fn variables(&self, job: JobId) -> Result<Vec<Variable>, ClientError> {
        let state = self.job_record(job).await?;
        Ok(state.variables.iter().map(Variable::of_record).collect())
    }

    /// Follows the variables of a job to its end.
    #[must_use]
    pub fn watch_variables(&self, job: JobId) -> VariablesWatch {
        VariablesWatch { records: self.watch_records(job) }
    }

    /// Sets a variable of a running job. A value that is no better than the known one changes
    /// nothing.
    ///
    /// # Errors
    /// [`ClientError::Refused`]: the job has ended, or has no such variable, or it is a sum, or the
    /// value does not fit it. [`ClientError::UnknownJob`]: there is no such job.
    pub async fn set_variable(
        &self,
        job: JobId,
        name: &str,
        value: &str,
        witness: Vec<u8>,
    ) -> Result<(), ClientError> {
        let write =
            wire::VarWrite { job: job.0, name: name.to_owned(), value: value.to_owned(), witness };
        let home = kvs::job_partition(job, self.partitions());
        let answer = self.ask_home(home, request::Body::SetVariable(write)).await;
        answer.map(drop).map_err(|error| name_unknown(error, job, None))
    }
}
