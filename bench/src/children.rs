//! CPU time of a process and of all processes it has started, as the kernel counts it.

use anyhow::Context;

/// The CPU time of a process, the children it has reaped, and its living descendants (with theirs),
/// in microseconds. The resolution is the kernel's clock tick.
pub(super) fn tree_cpu_us(pid: u32) -> anyhow::Result<f64> {
    let mut total = cpu_us(pid).with_context(|| format!("process {pid} cannot be read"))?;
    for child in children(pid) {
        // A child that has just ended is counted next time, with those that its parent has reaped.
        total += tree_cpu_us(child).unwrap_or(0.0);
    }
    Ok(total)
}

/// The CPU time of the process and of the children it has reaped, without living ones.
pub(super) fn cpu_us(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = parse_ticks(&stat).context("its times are not where they should be")?;
    Ok(ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64)
}

/// User and system time, own and of reaped children: fields 14 to 17.
fn parse_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may contain any characters, including spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let times: Vec<u64> =
        fields.split_whitespace().skip(11).take(4).map_while(|text| text.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads
        .filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    lists.iter().flat_map(|list| list.split_whitespace()).flat_map(str::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 200 0 0 11 22 33 44 20 0 1 0";
        assert_eq!(parse_ticks(stat), Some(110));
        assert_eq!(parse_ticks("7 (sh) S 1 7"), None);
        assert_eq!(parse_ticks(""), None);
    }

    #[test]
    fn this_process_can_be_read() {
        assert!(tree_cpu_us(std::process::id()).is_ok());
    }
}
