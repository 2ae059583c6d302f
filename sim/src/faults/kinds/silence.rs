//! Clients of open jobs that send life signs, and stop.

use proto::wire::open_request::What;
use proto::wire::request;
use proto::{JobId, Span, wire};
use scheduler::Mutant;

use crate::faults::clients::job_client::ClientPlan;
use crate::faults::options::WorldOptions;
use crate::rng::SimRng;

/// A separate random stream, so that other draws of a seed stay as they are.
const STREAM: u64 = 0x7369_6c65_6e63_6531;
/// The share of open jobs with such clients.
const SIGNS_PERMILLE: u64 = 400;
/// A client is silent after this time.
const SILENT_AFTER: Span = Span::from_secs(10);
/// The job of a client that stays silent is closed after this time.
const CLOSED_AFTER: Span = Span::from_secs(5);
/// The pause between two life signs.
pub(crate) const SIGN_INTERVAL: Span = Span::from_secs(2);
/// A client that has detached from its job closes it after this time.
pub(crate) const DETACHED_FOR: Span = Span::from_secs(20);

/// The behavior of a client that sends life signs.
#[derive(Clone, Copy, Debug)]
pub struct SilencePlan {
    /// Silence cancels the job.
    pub cancels: bool,
    pub end: SignsEnd,
}

/// How a client stops to send life signs once all tasks are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignsEnd {
    /// It closes the job.
    Closes,
    /// It falls silent, and never closes the job.
    FallsSilent,
    /// It detaches from the job, and closes it after [`DETACHED_FOR`].
    Detaches,
}

impl SilencePlan {
    pub(crate) fn settings(self) -> wire::Silence {
        let (after_ns, close_ns) = (SILENT_AFTER.0, CLOSED_AFTER.0);
        wire::Silence { after_ns, cancels: self.cancels, close_ns }
    }
}

/// Makes clients of open jobs send life signs. Without faults each closes its job at once, so that
/// the bound of its duration holds.
pub(crate) fn draw<'a>(world: &WorldOptions, plans: impl Iterator<Item = &'a mut ClientPlan>) {
    let mut dice = SimRng::new(world.seed ^ STREAM);
    let is_own = world.mutant.is_some_and(|it| it.is_among(&Mutant::OF_SILENCE));
    for open in plans.filter_map(|plan| plan.open.as_mut()) {
        let sends = dice.chance(if is_own { 1000 } else { SIGNS_PERMILLE });
        let cancels = dice.chance(500);
        let ends = [SignsEnd::Closes, SignsEnd::FallsSilent, SignsEnd::Detaches];
        let end = if world.faultless { SignsEnd::Closes } else { dice.pick(&ends) };
        open.silence = sends.then_some(SilencePlan { cancels, end });
    }
}

pub(crate) fn sign(job: JobId, detaches: bool) -> request::Body {
    let what = Some(What::Sign(wire::LifeSign { attachment: 0, detaches }));
    request::Body::Open(wire::OpenRequest { job: job.0, what })
}
