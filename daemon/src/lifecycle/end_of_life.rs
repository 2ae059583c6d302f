//! The known end of a node: it stops in order before.

use std::sync::Arc;
use std::time::Duration;

use proto::Time;
use resources::EndOfLife;

use crate::clock::Clock;
use crate::rpc::service::Shared;

/// The longest sleep of the timer before the node's end.
const TIMER_STEP: Duration = Duration::from_secs(10);

/// Stops the node in order just before its known end.
pub(super) async fn stop_before(end: EndOfLife, clock: Clock, shared: Arc<Shared>) {
    let at = Time(end.stops_at_ns());
    // The timer stands still while the machine is suspended.
    while clock.now() < at {
        let until = clock.instant(at).min(std::time::Instant::now() + TIMER_STEP);
        tokio::time::sleep_until(until.into()).await;
    }
    shared.log.line("its end is near: it stops");
    shared.stop.send_replace(true);
}
