//! A variable of a job as a row.

use client::Variable;
use serde::Serialize;

/// A variable in JSON.
#[derive(Serialize)]
pub(crate) struct VariableRow {
    name: String,
    rule: &'static str,
    value: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    witness: String,
}

impl From<Variable> for VariableRow {
    fn from(it: Variable) -> Self {
        let witness = String::from_utf8_lossy(&it.witness).into_owned();
        Self { name: it.name, rule: it.rule, value: it.value, witness }
    }
}
