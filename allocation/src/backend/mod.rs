//! The commands, the outputs and the scripts of batch systems.

mod pbs;
mod script;
mod slurm;

pub use script::{ALLOCATION_VARIABLE, Place, job_script, node_script};

use crate::batch::Row;
use crate::{Submission, System};

/// A program with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    pub program: &'static str,
    pub arguments: Vec<String>,
}

impl Call {
    fn new(program: &'static str, arguments: &[&str]) -> Self {
        Self { program, arguments: arguments.iter().map(|&it| it.to_owned()).collect() }
    }
    /// For people.
    #[must_use]
    pub fn line(&self) -> String {
        let words = self.arguments.iter().map(|word| script::quoted(word));
        std::iter::once(self.program.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }
}

impl System {
    /// The program that a machine has if it may submit.
    #[must_use]
    pub fn submitter(self) -> &'static str {
        match self {
            Self::Slurm => "sbatch",
            Self::Pbs => "qsub",
        }
    }
    /// A call that succeeds where this machine may submit.
    #[must_use]
    pub fn version(self) -> Call {
        match self {
            Self::Slurm => Call::new("sbatch", &["--version"]),
            Self::Pbs => Call::new("qstat", &["--version"]),
        }
    }
    /// All batch jobs of the user that the batch system knows.
    #[must_use]
    pub fn list(self) -> Call {
        match self {
            Self::Slurm => slurm::list(),
            Self::Pbs => pbs::list(),
        }
    }
    /// The answer to [`Self::list`].
    pub fn rows(self, output: &str) -> Result<Vec<Row>, String> {
        match self {
            Self::Slurm => slurm::rows(output),
            Self::Pbs => pbs::rows(output),
        }
    }
    #[must_use]
    pub fn submit(self, submission: &Submission, place: &Place) -> Call {
        match self {
            Self::Slurm => slurm::submit(submission, place),
            Self::Pbs => pbs::submit(submission, place),
        }
    }
    /// The answer to [`Self::submit`].
    pub fn job_id(self, output: &str) -> Result<String, String> {
        let line = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let line = line.unwrap_or_default();
        let id = match self {
            Self::Slurm => line.split(';').next().unwrap_or_default(),
            Self::Pbs => line,
        };
        let is_id = id.starts_with(|c: char| c.is_ascii_digit())
            && id.len() <= 128
            && id.chars().all(|c| c.is_ascii_alphanumeric() || "._-[]".contains(c));
        match is_id {
            true => Ok(id.to_owned()),
            false => Err(format!("'{line}' is no job id")),
        }
    }
    #[must_use]
    pub fn cancel(self, job: &str) -> Call {
        match self {
            Self::Slurm => Call::new("scancel", &[job]),
            Self::Pbs => Call::new("qdel", &[job]),
        }
    }
    /// A call that checks a submission. Slurm starts nothing; PBS holds the batch job, which has to
    /// be cancelled.
    #[must_use]
    pub fn check(self, submission: &Submission, place: &Place) -> Call {
        let mut call = self.submit(submission, place);
        let flag = match self {
            Self::Slurm => "--test-only",
            Self::Pbs => "-h",
        };
        call.arguments.insert(0, flag.to_owned());
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_read_and_other_answers_are_not() {
        assert_eq!(System::Slurm.job_id("12;main\n"), Ok("12".into()));
        assert_eq!(System::Pbs.job_id("warning: slow\n12.server\n"), Ok("12.server".into()));
        assert!(System::Slurm.job_id("").is_err() && System::Pbs.job_id("no; rm -r").is_err());
        assert_eq!(System::Pbs.cancel("12.s").line(), "qdel 12.s");
    }
}
