//! The names of tasks inside a task: children by their ordinals, other tasks of the job by id.

use std::str::FromStr;

use client::TaskRef;
use proto::{LocalId, limits};

/// `0`, `2-5`, `all`, `3.17` or `JOB/3.17`; several are separated by commas.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Handles(Vec<Part>);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    All,
    Children { first: u64, last: u64 },
    Task { job: Option<u64>, local: LocalId },
}

impl FromStr for Handles {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(str::parse).collect::<Result<Vec<Part>, String>>().map(Self)
    }
}

impl FromStr for Part {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no handle: write 0 or 2-5 for children, 3.17 for a task of the job, \
                 or all"
            )
        };
        if text == "all" {
            return Ok(Self::All);
        }
        if let Some((job, local)) = text.split_once('/') {
            let job = job.strip_prefix('j').unwrap_or(job).parse().map_err(|_| wrong())?;
            return Ok(Self::Task { job: Some(job), local: local.parse().map_err(|_| wrong())? });
        }
        if text.contains('.') {
            return Ok(Self::Task { job: None, local: text.parse().map_err(|_| wrong())? });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        Ok(Self::Children { first, last })
    }
}

/// The handles of a call, and whether all children are among them. `own_job`: the job of the task
/// that calls.
pub(crate) fn resolve(
    parts: &[Handles],
    own_job: Option<&str>,
) -> Result<(Vec<TaskRef>, bool), String> {
    let (mut handles, mut all) = (Vec::new(), false);
    for part in parts.iter().flat_map(|Handles(parts)| parts) {
        match *part {
            Part::All => all = true,
            Part::Children { first, last } if last - first >= limits::TURN_AWAITS_MAX as u64 => {
                return Err(format!("{first}-{last}: more than {} tasks", limits::TURN_AWAITS_MAX));
            }
            Part::Children { first, last } => {
                handles.extend((first..=last).map(TaskRef::Child));
            }
            Part::Task { job: Some(job), local } if own_job != Some(job.to_string().as_str()) => {
                let own = own_job.unwrap_or("unknown");
                return Err(format!("task {job}/{local} is of another job; this is job {own}"));
            }
            Part::Task { local, .. } => handles.push(TaskRef::Task(local)),
        }
    }
    Ok((handles, all))
}

/// The text of a handle.
#[cfg(test)]
fn text(handle: &TaskRef) -> String {
    match handle {
        TaskRef::Child(child) => child.to_string(),
        TaskRef::Task(local) => local.to_string(),
    }
}

/// The text of the children of one call.
pub(crate) fn range_text(first: u64, count: u64) -> String {
    match count {
        0 | 1 => first.to_string(),
        count => format!("{first}-{}", first + count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(texts: &[&str]) -> Result<(Vec<String>, bool), String> {
        let parts: Vec<Handles> =
            texts.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let (handles, all) = resolve(&parts, Some("7"))?;
        Ok((handles.iter().map(text).collect(), all))
    }

    #[test]
    fn handles_name_children_and_tasks_of_the_job() {
        let of = |texts: &[&str]| resolved(texts).unwrap();
        assert_eq!(of(&["0", "2-4,9"]).0, ["0", "2", "3", "4", "9"]);
        assert_eq!(of(&["3.17", "7/0.1", "j7/0.2"]).0, ["3.17", "0.1", "0.2"]);
        assert_eq!(of(&["all"]), (vec![], true));
        assert_eq!(of(&[]), (vec![], false));
        for bad in ["", "x", "4-2", "1-", "-1", "1.", "8/", "1,,2"] {
            assert!(resolved(&[bad]).unwrap_err().contains("is no handle"), "{bad}");
        }
        assert!(resolved(&["8/0.1"]).unwrap_err().contains("of another job; this is job 7"));
        assert!(resolved(&["0-18446744073709551615"]).unwrap_err().contains("more than"));
    }

    #[test]
    fn a_range_is_a_handle() {
        assert_eq!((range_text(4, 1), range_text(4, 3)), ("4".to_owned(), "4-6".to_owned()));
    }
}
