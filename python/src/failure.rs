//! Errors of the client library as exceptions of `starling._errors`.

use client::ClientError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pub(crate) fn cluster_error(error: &ClientError) -> PyErr {
    let text = match error.hint() {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    };
    named("ClusterError", text)
}

/// The error of a read of a result: a node that answers has it no more, or cannot be asked.
pub(crate) fn fetch_error(error: &ClientError) -> PyErr {
    match error {
        ClientError::Refused(text) => named("ResultLost", text.clone()),
        _ => cluster_error(error),
    }
}

pub(crate) fn closed() -> PyErr {
    named("ClientClosed", "the client is closed".to_owned())
}

fn named(class: &str, text: String) -> PyErr {
    Python::attach(|py| {
        let found = py.import("starling._errors").and_then(|module| module.getattr(class));
        match found.and_then(|class| class.call1((text.as_str(),))) {
            Ok(error) => PyErr::from_value(error),
            Err(_) => PyRuntimeError::new_err(text),
        }
    })
}
