//! Tasks that ask for more than is free.

use std::time::Duration;

use super::{HOME, JOB};
use crate::Mutant;
use crate::{ClientPlan, Draft, NodeOffers, SimRng, Violation, World, WorldOptions};
use proto::{JobId, PartitionId, Span};
use resources::Request;

/// A task asks for both GPUs of the only node, behind a few of many tasks that ask for half of one.
/// It starts long before these have ended.
pub(crate) fn small_requests_pass_a_large_one(mutant: Option<Mutant>) -> Result<(), Violation> {
    const LARGE: Span = Span::from_millis(777);
    let mut options = WorldOptions::healthy(12, 1, 4);
    (options.offers, options.mutant) = (NodeOffers::Equal, mutant);
    let mut world = World::new(options);
    let request = |text: &str| text.parse::<Request>().expect("it is a request").encode();
    let mut draft = Draft::bag(200, Span::from_millis(400));
    for (at, task) in draft.tasks.iter_mut().enumerate() {
        task.request = request("gpus=0.5");
        // They end one after another, so that both GPUs are never free by chance.
        task.duration = Span::from_millis(400 + 61 * (at as u64 % 7));
    }
    (draft.tasks[8].request, draft.tasks[8].duration) = (request("gpus=2"), LARGE);
    let held: Vec<PartitionId> = world.partitions_of(HOME.0 as usize).into_iter().take(1).collect();
    world.add_job(draft.submission(&mut SimRng::new(7), JobId(JOB), &held), ClientPlan::simple());
    // 200 tasks of half a second, four at a time, take 25 s.
    world.run_for(Span::from_secs(12));
    let job = world.expected_job(JobId(JOB));
    let large = job.tasks.values().find(|task| task.duration == LARGE);
    if large.is_none_or(|task| task.commits.is_empty()) {
        let text = "a task that asks for both GPUs has not ended after 12 s".to_owned();
        return Err(Violation::new("starve", text));
    }
    world.must_end()?;
    Ok(())
}

/// Short tasks prefer both GPUs of one node; several nodes offer another variant. The node with the
/// GPUs gets through all of them within their patience.
pub(crate) fn tasks_wait_for_the_variant_of_another_node(
    mutant: Option<Mutant>,
) -> Result<(), Violation> {
    let mut options = WorldOptions::healthy(13, 5, 4);
    (options.offers, options.mutant) = (NodeOffers::Mixed, mutant);
    let mut world = World::new(options);
    let request: Request = "gpus=2, label=fast | licences=3".parse().expect("it is a request");
    let request = request.with_patience(Duration::from_secs(1)).encode();
    let mut draft = Draft::bag(8, Span::from_millis(50));
    draft.tasks.iter_mut().for_each(|task| task.request.clone_from(&request));
    let held: Vec<PartitionId> = world.partitions_of(1).into_iter().take(1).collect();
    world.add_job(draft.submission(&mut SimRng::new(7), JobId(JOB), &held), ClientPlan::simple());
    world.must_end()?;
    Ok(())
}
