//! Variables of jobs: as rows, and as lines on each change.

use client::{Client, JobId, Variable};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::terminal_text::shown;

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

/// Prints the values of these variables, and each later one, until the job has ended. Lines have
/// the name before the value if there are several variables.
pub(crate) async fn follow(context: &Context, client: &Client, job: JobId, names: &[&str]) -> Done {
    end_with_reader();
    let mut watch = client.watch_variables(job);
    let mut told: Vec<Variable> = Vec::new();
    while let Some(all) = watch.next().await? {
        let is_new =
            |(at, now): (usize, &Variable)| told.get(at).is_none_or(|told| told.value != now.value);
        let mut now = find_all(&all, job, names)?;
        if context.output.json && now.iter().enumerate().any(is_new) {
            // Lines in JSON have the witness.
            now = find_all(&client.variables(job).await?, job, names)?;
        }
        for (_, variable) in now.iter().enumerate().filter(|it| is_new(*it)) {
            match names.len() {
                1 => print(context, variable.clone()).map(drop)?,
                _ => print_named(context, variable.clone())?,
            }
        }
        told = now;
    }
    Ok(Exit::Ok)
}

/// The variable of this name.
pub(crate) fn find(all: Vec<Variable>, job: JobId, name: &str) -> Result<Variable, Failure> {
    all.into_iter().find(|it| it.name == name).ok_or_else(|| {
        Failure::refused(format!("job {} has no variable '{name}'", job.0))
            .hint("declare it: starling submit --var NAME=RULE[:INITIAL]")
    })
}

fn find_all(all: &[Variable], job: JobId, names: &[&str]) -> Result<Vec<Variable>, Failure> {
    names.iter().map(|name| find(all.to_vec(), job, name)).collect()
}

/// Ends this process when nothing reads its output any more, as after `| head -n 1`. A later value
/// may never come.
pub(crate) fn end_with_reader() {
    std::thread::spawn(|| {
        let stdout = std::io::stdout();
        let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
        loop {
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                    std::process::exit(0)
                }
                Err(Errno::INTR) => {}
                _ => return, // There is no output at all.
            }
        }
    });
}

/// Prints the value of a variable, if it has one.
pub(crate) fn print(context: &Context, variable: Variable) -> Done {
    let has_value = variable.value.is_some();
    if context.output.json {
        heard(context.output.json(&VariableRow::from(variable)))?;
    } else if let Some(value) = &variable.value {
        // Programs get a text as it was set.
        heard(match context.output.is_table() {
            true => context.output.line(value),
            false => context.output.raw_line(value),
        })?;
    }
    Ok(if has_value { Exit::Ok } else { Exit::Failed })
}

/// A line of several variables. A text keeps its control characters only if programs read it.
fn print_named(context: &Context, variable: Variable) -> Result<(), Failure> {
    match &variable.value {
        Some(value) if !context.output.json => {
            let value = if context.output.is_table() { shown(value) } else { value.into() };
            heard(context.output.raw_line(&format!("{}\t{value}", variable.name)))
        }
        _ => print(context, variable).map(drop),
    }
}
