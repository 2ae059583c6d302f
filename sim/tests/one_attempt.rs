//! Tasks make other bytes in each attempt and run again after losses. The final results must come
//! from one attempt of each task.

use proto::marks::{self, Mark};
use proto::wire;

const SEEDS: u64 = 150;

#[test]
fn no_job_ends_with_bytes_of_two_attempts() {
    let _ = marks::take();
    let (mut done, mut failed) = (0, 0);
    for seed in 1..=SEEDS {
        let world = sim::scenarios::bytes::made_again(seed, None)
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        let state: &wire::JobState = world.told(0).expect("its client was told");
        let sum = state.sum.clone().unwrap_or_default();
        done += u64::from(sum.failed == 0);
        failed += u64::from(sum.failed > 0);
    }
    let gone = marks::take();
    let times = |mark: Mark| u64::from(gone[mark as usize]);
    assert!(times(Mark::OtherBytes) > SEEDS, "outputs are seldom made again");
    assert!(times(Mark::ReaderRecalled) > SEEDS / 2, "readers are seldom recalled");
    assert!(done > failed * 10, "{done} jobs ended well, {failed} did not");
}

#[test]
fn what_was_done_stays_done_although_its_further_run_fails() {
    let _ = marks::take();
    let mut failed = 0;
    for seed in 1..=SEEDS {
        let world = sim::scenarios::bytes::fetched_and_made_again(seed, None)
            .unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        let state: &wire::JobState = world.told(0).expect("its client was told");
        let sum = state.sum.clone().unwrap_or_default();
        failed += u64::from(sum.failed > 0);
        let said = |failure: &wire::Failure| failure.error.contains("is not deterministic");
        assert_eq!(sum.failed > 0, sum.failures.iter().any(said), "{:?}", sum.failures);
    }
    let gone = marks::take();
    let times = |mark: Mark| u64::from(gone[mark as usize]);
    assert_eq!(times(Mark::ReaderRecalled), 0, "a reader of fetched results runs again");
    assert!(times(Mark::EarlierEndCounts) > SEEDS, "tasks seldom run again without a result");
    assert!(failed > SEEDS / 2, "tasks seldom wait for lost outputs: {failed}");
}
