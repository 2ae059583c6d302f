//! The flags of a node's life: when it ends, and when it leaves by itself.

use clap::Args;
use resources::EndOfLife;

use crate::errors::Failure;
use crate::units::{Timespan, now_ns};

/// The script of an allocation sets this to the end of its batch job, in seconds since the epoch.
pub const ENDS_AT_VARIABLE: &str = "STARLING_ENDS_AT";

#[derive(Args, Clone, Debug, Default)]
pub struct LifeArgs {
    /// The node ends after this time: tasks with a time request start only where they can end, and
    /// the node leaves in order before [default: the end of the batch job, if known]
    #[arg(long, value_name = "DURATION", conflicts_with = "ends_at")]
    time_limit: Option<Timespan>,
    /// As --time-limit, by the clock: seconds since 1970, or 2026-11-27T10:00:00 in UTC
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ends_at: Option<u64>,
    /// A node without work for this long leaves in order. The last one stays
    #[arg(long, value_name = "DURATION")]
    idle_timeout: Option<Timespan>,
}

/// The life of the nodes of one start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LifePlan {
    pub end: Option<EndOfLife>,
    /// The time limit that the end is of, if a flag gives one.
    pub limit: Option<std::time::Duration>,
    pub idle: Option<std::time::Duration>,
}

impl LifeArgs {
    /// Whether the end of the nodes is given by the clock.
    pub fn gives_end(&self) -> bool {
        self.ends_at.is_some()
    }
    /// Whether it is given how long the nodes live.
    pub fn gives_time_limit(&self) -> bool {
        self.time_limit.is_some()
    }
    /// Whether it is given how long a node waits for work.
    pub fn gives_idle_timeout(&self) -> bool {
        self.idle_timeout.is_some()
    }

    pub fn resolve(&self) -> Result<LifePlan, Failure> {
        let now_ns = now_ns();
        let read = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let limit = self.time_limit.map(|limit| limit.0.as_nanos() as u64);
        let told = limit.map(|limit| now_ns.saturating_add(limit));
        let told = told.or_else(|| self.ends_at.map(seconds_ns));
        let is_task = std::env::var_os(client::DOOR_VARIABLE).is_some();
        let found = if is_task { None } else { end_of_batch_job(read, now_ns) };
        if let Some(at) = told.filter(|&at| at <= now_ns) {
            let ago = (now_ns - at) / 1_000_000_000;
            return Err(Failure::usage(format!("the node would have ended {ago} s ago")));
        }
        let found = found.filter(|&at| at > now_ns);
        let end = told.or(found).map(|at| EndOfLife::of_life(now_ns, at));
        let (limit, idle) = (self.time_limit.map(|it| it.0), self.idle_timeout.map(|it| it.0));
        Ok(LifePlan { end, limit, idle })
    }
}

impl LifePlan {
    /// The failure of a run with nodes of this life that have ended; `None` before their end.
    #[must_use]
    pub fn over(&self, now_ns: u64) -> Option<Failure> {
        self.end.filter(|end| now_ns >= end.leaves_at_ns())?;
        let text = match self.limit {
            Some(limit) => {
                let limit_s = limit.as_secs_f64();
                format!("the time limit of the run's nodes ({limit_s} s) is over")
            }
            None => "the known end of the run's nodes has come".to_owned(),
        };
        let hint = "--task-time-limit limits each command of a list, time_limit in a workflow file \
                    each task";
        Some(Failure::lost(text).hint(hint))
    }

    /// The flags by which another process gets the same life.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let end = self.end.map(|end| end.at_ns().div_ceil(1_000_000_000).to_string());
        let idle = self.idle.map(|idle| format!("{}ns", idle.as_nanos()));
        let pair = |name: &str, value: Option<String>| value.map(|value| [name.to_owned(), value]);
        let pairs = [pair("--ends-at", end), pair("--idle-timeout", idle)];
        pairs.into_iter().flatten().flatten().collect()
    }
}

fn seconds_ns(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000)
}

/// The end of the batch job in nanoseconds since the epoch, as far as its environment shows it. PBS
/// and OAR give a walltime alone, which then counts from the start of the node.
fn end_of_batch_job(read: impl Fn(&str) -> Option<String>, now_ns: u64) -> Option<u64> {
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok().filter(|&it| it > 0);
    let at = number(ENDS_AT_VARIABLE).or_else(|| number("SLURM_JOB_END_TIME"));
    let walltime = || number("OAR_JOB_WALLTIME_SECONDS").or_else(|| number("PBS_WALLTIME"));
    at.map(seconds_ns).or_else(|| Some(now_ns.saturating_add(seconds_ns(walltime()?))))
}

/// Seconds since 1970, or a date and a time of the day in UTC.
fn parse_time(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let wrong = || format!("'{text}' is neither seconds since 1970 nor 2026-11-27T10:00:00");
    let (day, time) = text.trim_end_matches('Z').split_once(['T', ' ']).ok_or_else(wrong)?;
    let numbers = |text: &str, at: char| -> Option<Vec<u64>> {
        text.split(at).map(|part| part.parse().ok()).collect()
    };
    match (numbers(day, '-').as_deref(), numbers(time, ':').as_deref()) {
        (Some(&[year, month, day]), Some(&[hour, minute, second]))
            if (1970..=2200).contains(&year)
                && (1..=12).contains(&month)
                && (1..=31).contains(&day)
                && hour < 24
                && minute < 60
                && second < 60 =>
        {
            Ok(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
        }
        _ => Err(wrong()),
    }
}

/// Days from 1970 to a date.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // The year begins in March, so that the leap day is its last day.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(parse_time("1796000000"), Ok(1_796_000_000));
        assert_eq!(parse_time("1970-01-01T00:00:00"), Ok(0));
        assert_eq!(parse_time("2000-02-29T12:00:00Z"), Ok(951_825_600));
        assert_eq!(parse_time("2026-11-27 10:00:00"), Ok(1_795_773_600));
        for wrong in ["", "tomorrow", "2026-13-01T00:00:00", "2026-11-27", "-5"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_end_of_a_run_is_told_when_it_has_come() {
        let limit = Some(std::time::Duration::from_millis(2500));
        let end = Some(EndOfLife::of_life(0, 2_500_000_000));
        let limited = LifePlan { end, limit, idle: None };
        assert!(limited.over(1_000_000_000).is_none());
        let text = limited.over(2_500_000_000).unwrap().render();
        let expected =
            "error: the time limit of the run's nodes (2.5 s) is over\nhint: --task-time";
        assert!(text.starts_with(expected), "{text}");
        let told = LifePlan { limit: None, ..limited }.over(u64::MAX).unwrap();
        assert!(told.message.contains("known end"), "{}", told.message);
        assert!(LifePlan::default().over(u64::MAX).is_none());
    }

    #[test]
    fn the_end_is_found_in_the_environment() {
        let with = |name: &'static str, value: &'static str| {
            end_of_batch_job(move |asked| (asked == name).then(|| value.to_owned()), 7)
        };
        assert_eq!(with("SLURM_JOB_END_TIME", "100"), Some(100_000_000_000));
        assert_eq!(with(ENDS_AT_VARIABLE, "100"), Some(100_000_000_000));
        assert_eq!(with("OAR_JOB_WALLTIME_SECONDS", "60"), Some(60_000_000_007));
        assert_eq!(with("PBS_WALLTIME", "60"), Some(60_000_000_007));
        assert_eq!(with("SLURM_JOB_END_TIME", "soon"), None);
    }
}
