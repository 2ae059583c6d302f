//! The bounds of this folder.

use proto::Span;

/// The maximum number of attempts launched in one step. No-ops take no slot, so the slots alone do
/// not bound it.
pub(super) const STEP_LAUNCHES_MAX: usize = 256;
/// Up to this number of tasks with failed fetches do not count against the tasks being staged.
pub(super) const STALLED_TASKS_MAX: usize = 64;
/// Inputs are fetched ahead while fewer tasks per slot than this could start at once.
pub(super) const AT_HAND_PER_SLOT_MIN: usize = 4;
pub(super) const AT_HAND_PER_SLOT_MAX: usize = 64;
/// The maximum number of tasks without space that one step skips.
pub(super) const STORE_BYPASS_SCAN_MAX: usize = 16;
/// The maximum number and minimum size of a ready task's inputs by which its queue indexes it.
pub(super) const INDEXED_INPUTS_MAX: usize = 16;
pub(super) const INDEXED_INPUT_BYTES_MIN: u64 = 1024;
/// A part of a gang that waits, is held or is locked lapses unless its leader renews it.
pub(super) const GANG_LAPSE: Span = Span::from_secs(10);
/// The leader of a gang renews the reservations of its parts at this interval.
pub(super) const GANG_RENEW: Span = Span::from_secs(3);
/// The number of gangs that one node gathers nodes for at the same time.
pub(super) const GANGS_LED_MAX: usize = 4;
