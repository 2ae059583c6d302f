//! The words of events.

use proto::event::{End, Reason, RetryReason};

pub(crate) fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::NoInput => "no input",
        Reason::SmallInputs => "small inputs",
        Reason::SmallLargest => "small largest input",
        Reason::BigHere => "big input here",
        Reason::BigElsewhere => "big input elsewhere",
        Reason::Pushed => "pushed",
        Reason::Stolen => "stolen",
        Reason::GivenBack => "given back",
        Reason::TooWide => "too wide for its home",
        Reason::Shifted => "waited too long",
        Reason::EarliestHere => "ends first here",
        Reason::EarliestElsewhere => "ends first there",
        Reason::OfferedAgain => "offered again",
        Reason::NotOffered => "not offered by its home",
        Reason::GangLed => "led by another node",
    }
}

pub(crate) fn end_word(end: End) -> &'static str {
    match end {
        End::Done => "done",
        End::Failed => "failed",
        End::Cancelled => "cancelled",
        End::Skipped => "skipped",
    }
}

pub(crate) fn retry_reason(why: RetryReason) -> &'static str {
    match why {
        RetryReason::HolderRestarted => "the node that held it restarted",
        RetryReason::NotHeld => "the node that should hold it did not know it",
        RetryReason::HomeRestarted => "its home restarted",
        RetryReason::Retry => "it failed and has retries left",
        RetryReason::InputReplaced => "one of its inputs was replaced",
        RetryReason::Lost => "the process that ran it died",
        RetryReason::HolderGone => "the node that held it died",
        RetryReason::Rebuilt => "what it had made was lost and still wanted",
        RetryReason::InputLost => "one of its inputs was lost and is made again",
        RetryReason::Recalled => "one of its inputs was made again with other bytes",
        RetryReason::Round => "its job is retried",
        RetryReason::Moved => "it was moved: its node ends or is drained",
        RetryReason::MemberGone => "another node of its gang died",
    }
}

/// The colour of an attempt: that of its kind, unless it failed.
pub(super) fn colour(kind: &str, end: End) -> &'static str {
    let sum = kind.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    lens::trace::event_colour(sum, end == End::Failed)
}
