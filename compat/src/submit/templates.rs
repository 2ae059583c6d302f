//! Paths with the placeholders of HyperQueue.

use std::path::Path;

use client::JobId;
use verb::errors::Failure;

use crate::args::SubmitArgs;

const KNOWN: [&str; 6] = ["JOB_ID", "TASK_ID", "INSTANCE_ID", "CWD", "SUBMIT_DIR", "SERVER_UID"];
const REMOVED: &str = ":rm-if-finished";

pub(crate) struct Paths {
    /// Absolute; placeholders of the task are left.
    pub(crate) cwd: String,
    pub(crate) stdout: Option<String>,
    pub(crate) stderr: Option<String>,
    pub(crate) removes_stdout: bool,
    pub(crate) removes_stderr: bool,
    pub(crate) stream: Option<String>,
}

impl Paths {
    pub(crate) fn of(
        args: &SubmitArgs,
        here: &str,
        job: JobId,
        server: &str,
    ) -> Result<Self, Failure> {
        let cwd = args.cwd.as_deref().unwrap_or(here);
        if cwd.contains("%{CWD}") {
            return Err(Failure::usage(
                "Working directory path cannot contain the working directory placeholder \
                 `%{CWD}`.",
            ));
        }
        let fill = |text: &str, cwd: &str| {
            text.replace("%{JOB_ID}", &job.0.to_string())
                .replace("%{SERVER_UID}", server)
                .replace("%{SUBMIT_DIR}", here)
                .replace("%{CWD}", cwd)
        };
        let cwd = Path::new(here).join(fill(cwd, "")).display().to_string();
        let path = |given: &Option<String>, ending: &str| {
            let given = given.as_deref().unwrap_or_default();
            let (given, removes) = match given.strip_suffix(REMOVED) {
                Some(path) => (path, true),
                None => (given, false),
            };
            let path = match given {
                "none" => None,
                _ if args.stream.is_some() => None,
                "" => Some(format!("%{{CWD}}/job-%{{JOB_ID}}/%{{TASK_ID}}.{ending}")),
                path => Some(path.to_owned()),
            };
            let absolute =
                |path: String| Path::new(&cwd).join(fill(&path, &cwd)).display().to_string();
            (path.map(absolute), removes)
        };
        let (stdout, removes_stdout) = path(&args.stdout, "stdout");
        let (stderr, removes_stderr) = path(&args.stderr, "stderr");
        let stream = args.stream.as_ref().map(|dir| Path::new(here).join(fill(dir, &cwd)));
        let stream = stream.map(|dir| dir.display().to_string());
        Ok(Self { cwd, stdout, stderr, removes_stdout, removes_stderr, stream })
    }
}

/// Placeholders that are not known, and files that tasks would share.
pub(crate) fn warnings(args: &SubmitArgs) -> Vec<String> {
    let mut out = Vec::new();
    let all = [
        ("log path", &args.stream),
        ("stdout path", &args.stdout),
        ("stderr path", &args.stderr),
        ("working directory path", &args.cwd),
    ];
    for (what, path) in all {
        let unknown: Vec<&str> = names(path.as_deref().unwrap_or_default())
            .into_iter()
            .filter(|name| !KNOWN.contains(name))
            .collect();
        let word = if unknown.len() == 1 { "placeholder" } else { "placeholders" };
        if !unknown.is_empty() {
            out.push(format!("Found unknown {word} `{}` in {what}", unknown.join(", ")));
        }
    }
    let is_array = args.array.is_some() || args.each_line.is_some() || args.from_json.is_some();
    let differs = |path: &str| path.contains("%{TASK_ID}");
    for (stream, path) in [("stdout", &args.stdout), ("stderr", &args.stderr)] {
        let Some(path) = path.as_deref().filter(|path| is_array && *path != "none") else {
            continue;
        };
        let in_cwd = args.cwd.as_deref().is_some_and(differs) && !path.starts_with('/');
        if !path.is_empty() && !path.starts_with(':') && !differs(path) && !in_cwd {
            out.push(format!(
                "You have submitted an array job, but the `{stream}` path does not contain the \
                 task ID placeholder. Consider adding `%{{TASK_ID}}` to the `--{stream}` value."
            ));
        }
    }
    out
}

/// The names of placeholders.
fn names(text: &str) -> Vec<&str> {
    let parts = text.split("%{").skip(1);
    parts.filter_map(|part| part.split_once('}')).map(|(name, _)| name).collect()
}
