//! Tests of the scheduler as a whole: messages and requests go in, effects come out.

mod captured_tests;
mod credit_tests;
mod death_evidence_tests;
pub(crate) mod earliest_finish_tests;
mod failover_tests;
mod hand_over_tests;
mod job_cleanup_tests;
mod job_history_tests;
mod job_rounds_tests;
mod lost_inputs_tests;
mod notices_tests;
mod open_tests;
mod pause_tests;
mod placement_tests;
mod recall_tests;
mod reconcile_tests;
mod resources_tests;
mod resting_tests;
mod staging_tests;
mod stall_probe_tests;
mod start_permission_tests;
pub(crate) mod test_nodes;
mod thief_tests;
mod throttle_tests;
mod turn_mutant_tests;
mod turns_tests;
mod variables_tests;
