//! The planned use of one worker's cores, and the search for free times.

/// A worker's cores over time, in ns.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// By core: (start, end), ascending, without overlaps.
    lanes: Vec<Vec<(f64, f64)>>,
}

impl Timeline {
    pub(super) fn new(cores: u32) -> Self {
        Self { lanes: vec![Vec::new(); cores as usize] }
    }

    pub(super) fn cores(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// The earliest start from `from_ns` on with `cores` free cores for the whole length, also in
    /// gaps. The worker must have that many cores.
    pub(super) fn earliest_gap(&self, from_ns: f64, length_ns: f64, cores: u32) -> f64 {
        let mut start_ns = from_ns;
        loop {
            let fits = |lane: &&Vec<(f64, f64)>| is_free(lane, start_ns, length_ns);
            if self.lanes.iter().filter(fits).count() >= cores as usize {
                return start_ns;
            }
            let ends = self.lanes.iter().filter_map(|lane| next_end(lane, start_ns));
            start_ns = ends.fold(f64::INFINITY, f64::min);
        }
    }

    /// The earliest start from `from_ns` on after all planned tasks.
    pub(super) fn earliest_behind(&self, from_ns: f64, cores: u32) -> f64 {
        let mut ends: Vec<f64> = self.lanes.iter().map(|lane| last_end(lane)).collect();
        ends.sort_by(f64::total_cmp);
        from_ns.max(ends[cores as usize - 1])
    }

    /// Plans a task on the first free cores, and returns them.
    pub(super) fn take(&mut self, start_ns: f64, length_ns: f64, cores: u32) -> Vec<u32> {
        let mut taken = Vec::with_capacity(cores as usize);
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if taken.len() < cores as usize && is_free(lane, start_ns, length_ns) {
                let at = lane.partition_point(|&(start, _)| start <= start_ns);
                lane.insert(at, (start_ns, start_ns + length_ns));
                taken.push(number as u32);
            }
        }
        assert_eq!(taken.len(), cores as usize, "it was planned where it fits");
        taken
    }
}

fn is_free(lane: &[(f64, f64)], start_ns: f64, length_ns: f64) -> bool {
    let at = lane.partition_point(|&(start, _)| start <= start_ns);
    let before = at.checked_sub(1).is_none_or(|at| lane[at].1 <= start_ns);
    before && lane.get(at).is_none_or(|&(start, _)| start >= start_ns + length_ns)
}

fn next_end(lane: &[(f64, f64)], after_ns: f64) -> Option<f64> {
    lane.get(lane.partition_point(|&(_, end)| end <= after_ns)).map(|&(_, end)| end)
}

fn last_end(lane: &[(f64, f64)]) -> f64 {
    lane.last().map_or(0.0, |&(_, end)| end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_found_where_enough_cores_are_free_for_long_enough() {
        let mut timeline = Timeline::new(2);
        assert_eq!(timeline.take(0.0, 10.0, 1), [0]);
        assert_eq!(timeline.take(20.0, 10.0, 2), [0, 1]);
        assert_eq!(timeline.earliest_gap(0.0, 5.0, 1), 0.0);
        assert_eq!(timeline.earliest_gap(0.0, 5.0, 2), 10.0);
        assert_eq!(timeline.earliest_gap(0.0, 10.0, 2), 10.0);
        assert_eq!(timeline.earliest_gap(0.0, 20.0, 1), 0.0);
        assert_eq!(timeline.earliest_gap(0.0, 21.0, 1), 30.0);
        assert_eq!(timeline.earliest_gap(12.0, 9.0, 2), 30.0);
        assert_eq!(timeline.earliest_behind(3.0, 1), 30.0);
        assert_eq!(timeline.take(0.0, 20.0, 1), [1]);
        // A task of length 0 fits between two tasks that touch.
        assert_eq!(timeline.earliest_gap(20.0, 0.0, 2), 30.0);
        assert_eq!(timeline.earliest_gap(10.0, 0.0, 1), 10.0);
    }
}
