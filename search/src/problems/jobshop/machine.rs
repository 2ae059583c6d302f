//! One machine: the operations have heads (earliest starts) and tails (least times after their
//! ends), and must not overlap.

/// An operation on a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    pub(crate) head: i64,
    pub(crate) duration: i64,
    pub(crate) tail: i64,
}

impl Window {
    /// The same, seen from the end of time.
    pub(crate) fn reversed(self) -> Self {
        Self { head: self.tail, duration: self.duration, tail: self.head }
    }
}

/// The length of Jackson's preemptive schedule: of all sets of operations, the greatest sum of the
/// least head, all durations and the least tail.
pub(crate) fn jackson(windows: &[Window]) -> i64 {
    let by_tail = by_tail(windows);
    let mut most = 0;
    for from in windows {
        let mut sum = 0;
        for &at in by_tail.iter().filter(|&&at| windows[at].head >= from.head) {
            sum += windows[at].duration;
            most = most.max(from.head + sum + windows[at].tail);
        }
    }
    most
}

/// Calls `after(operation, set)` where an operation must come after all of a set, because the
/// schedule would be longer than `limit` if another operation of them came last.
pub(crate) fn find_last(windows: &[Window], limit: i64, mut after: impl FnMut(usize, u64)) {
    let by_tail = by_tail(windows);
    for (last, window) in windows.iter().enumerate() {
        let mut found = 0;
        for from in windows {
            let least = from.head.min(window.head);
            let (mut sum, mut set) = (window.duration, 0);
            for &at in &by_tail {
                if at == last || windows[at].head < from.head {
                    continue;
                }
                sum += windows[at].duration;
                set |= 1 << at;
                if least + sum + windows[at].tail > limit {
                    found |= set;
                }
            }
        }
        if found != 0 {
            after(last, found);
        }
    }
}

/// The least end of a set of operations, one after the other, each not before its head.
pub(crate) fn end_of(windows: &[Window], set: u64) -> i64 {
    let mut members: Vec<&Window> =
        windows.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, w)| w).collect();
    members.sort_unstable_by_key(|window| window.head);
    members.iter().fold(0, |end, window| end.max(window.head) + window.duration)
}

/// The operations by decreasing tail.
fn by_tail(windows: &[Window]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by_key(|&at| -windows[at].tail);
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::problems::brute::permutations;

    fn windows() -> impl Strategy<Value = Vec<Window>> {
        let window = (0_i64..20, 1_i64..10, 0_i64..20).prop_map(|(head, duration, tail)| Window {
            head,
            duration,
            tail,
        });
        proptest::collection::vec(window, 1..6)
    }

    fn length(windows: &[Window], order: &[usize]) -> i64 {
        let (mut end, mut length) = (0_i64, 0);
        for &at in order {
            end = end.max(windows[at].head) + windows[at].duration;
            length = length.max(end + windows[at].tail);
        }
        length
    }

    proptest! {
        #[test]
        fn no_order_is_shorter_than_jacksons_bound(windows in windows()) {
            let orders = permutations(windows.len());
            let least = orders.iter().map(|order| length(&windows, order)).min().unwrap();
            prop_assert!(jackson(&windows) <= least);
            prop_assert_eq!(
                jackson(&windows),
                jackson(&windows.iter().map(|window| window.reversed()).collect::<Vec<_>>())
            );
        }

        #[test]
        fn all_orders_within_the_limit_have_the_found_ones_last(
            windows in windows(),
            more in 0_i64..8,
        ) {
            let orders = permutations(windows.len());
            let least = orders.iter().map(|order| length(&windows, order)).min().unwrap();
            let limit = least + more;
            let within = |order: &&Vec<usize>| length(&windows, order) <= limit;
            let mut found = Vec::new();
            find_last(&windows, limit, |last, set| found.push((last, set)));
            for order in orders.iter().filter(within) {
                for &(last, set) in &found {
                    let place = order.iter().position(|&at| at == last).unwrap();
                    let after = order[place..].iter().all(|at| set >> at & 1 == 0);
                    prop_assert!(after, "{last} is not after {set:b} in {order:?}");
                }
            }
        }
    }

    #[test]
    fn a_set_ends_at_the_sum_of_its_durations_or_later() {
        let window = |head, duration| Window { head, duration, tail: 0 };
        let windows = [window(5, 2), window(0, 3), window(1, 1)];
        assert_eq!(end_of(&windows, 0b000), 0);
        assert_eq!(end_of(&windows, 0b110), 4);
        assert_eq!(end_of(&windows, 0b111), 7);
    }
}
