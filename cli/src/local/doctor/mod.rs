//! `starling doctor`: checks of this machine and of the instance, each with a cure.

mod bundle;
mod machine;
mod nodes;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::settings::KEYS;

use crate::common::settings_file;

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Write the checks, the settings and the logs of the nodes into a compressed tar file, without
    /// keys
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Check {
    check: &'static str,
    level: Level,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<String>,
}

impl Check {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), cure: None }
    }

    fn warn(check: &'static str, text: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, text: text.into(), cure: Some(cure.into()) }
    }

    fn fail(check: &'static str, text: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { level: Level::Fail, ..Self::warn(check, text, cure) }
    }

    /// A failed check with the reason and the hint of an error.
    fn of(check: &'static str, failure: Failure) -> Self {
        Self { check, level: Level::Fail, text: failure.message, cure: failure.hint }
    }
}

#[derive(Serialize)]
struct Report<'c> {
    version: &'static str,
    healthy: bool,
    checks: &'c [Check],
}

pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Done {
    let mut checks = vec![Check::ok("version", env!("CARGO_PKG_VERSION"))];
    checks.extend(settings(context));
    let dir = context.dir();
    match &dir {
        Ok(dir) => checks.extend(machine::directory(dir)),
        Err(failure) => {
            let failure =
                Failure { hint: failure.hint.clone(), ..Failure::refused(&failure.message) };
            checks.push(Check::of("directory", failure));
        }
    }
    checks.extend(machine::limits());
    if let Ok(dir) = &dir {
        checks.extend(nodes::checks(context, dir)?);
    }
    let healthy = checks.iter().all(|check| check.level != Level::Fail);
    let report = Report { version: env!("CARGO_PKG_VERSION"), healthy, checks: &checks };
    if let Some(path) = &args.bundle {
        bundle::write(context, path, &report, dir.as_deref().ok())?;
    }
    match context.output.json {
        true => context.output.json(&report)?,
        false => print(context, &checks)?,
    }
    if let Some(path) = &args.bundle {
        context.output.note(&format!("written to {}; it has no keys", path.display()));
    }
    Ok(if healthy { Exit::Ok } else { Exit::Failed })
}

fn print(context: &Context, checks: &[Check]) -> Result<(), Failure> {
    for check in checks {
        let level = match check.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        context.output.line(&format!("{level}  {:10} {}", check.check, check.text))?;
        if let Some(cure) = &check.cure {
            context.output.line(&format!("      {:10} cure: {cure}", ""))?;
        }
    }
    Ok(())
}

/// Settings that a verb would refuse.
fn settings(context: &Context) -> Vec<Check> {
    let mut checks = Vec::new();
    for (key, built_in) in KEYS {
        if let Some((value, origin)) = context.settings.get(key)
            && value != built_in
            && let Err(failure) = settings_file::check_value(key, value)
        {
            let text = format!("{origin}: {}", failure.message);
            checks.push(Check::of("settings", Failure { message: text, ..failure }));
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok("settings", "all are well-formed"));
    }
    checks
}
