//! Which messages outlive the incarnation that they were meant for, or must be seen first.

use proto::wire::message::Body;

/// Whether a message still means something to a peer that has restarted. What concerns tasks that
/// the old incarnation held does not: their homes place them again.
pub(crate) fn survives_restart(body: &Body) -> bool {
    match body {
        Body::Finished(_)
        | Body::Credits(_)
        | Body::CreditQuery(_)
        | Body::Recall(_)
        | Body::Recalled(_)
        | Body::Visible(_)
        | Body::Counts(_)
        | Body::Cancel(_)
        | Body::NotHeld(_)
        | Body::JobEnd(_)
        | Body::Copies(_)
        | Body::Consumed(_)
        | Body::Unwanted(_) => true,
        Body::Push(_)
        | Body::StealProbe(_)
        | Body::StealLoad(_)
        | Body::StealHint(_)
        | Body::StealRequest(_)
        | Body::StealGrant(_)
        | Body::StealDone(_)
        // Told again by the thief itself, in its order.
        | Body::Moved(_)
        | Body::MovedReply(_)
        | Body::Stale(_)
        | Body::Holding(_)
        | Body::Locate(_)
        | Body::Located(_)
        // Who leaves asks again.
        | Body::HandOver(_)
        // The home of the job asks again.
        | Body::PartAsk(_)
        | Body::PartTell(_)
        | Body::StallAsk(_)
        | Body::Pulse(_)
        | Body::DeathAsk(_)
        | Body::DeathTell(_)
        // What the old incarnation owed the new one tells from its records.
        | Body::NotHome(_)
        // Another incarnation is another copy: the map says what it is to be sent.
        | Body::Replicate(_)
        | Body::Replicated(_)
        | Body::CopyAsks(_)
        | Body::CopyAnswers(_)
        | Body::LeaseAsk(_)
        | Body::LeaseGiven(_)
        | Body::SlowProbe(_)
        | Body::SlowProbed(_)
        | Body::Fragment(_) => false,
    }
}

/// Whether nothing that the peer has sent may be acknowledged before it has seen this message: it
/// says that something of that was not taken.
pub(super) fn gives_back(body: &Body) -> bool {
    match body {
        Body::NotHome(_) => true,
        Body::Replicated(told) => !told.refused.is_empty(),
        _ => false,
    }
}
