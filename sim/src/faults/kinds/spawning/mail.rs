//! Events between tasks: children report to their parents with their last turn, and tasks send
//! others of their job something now and then.
//!
//! Events are drawn by hashes with a number of their own, so the rest of a run stays as it is.

use proto::wire::mail_name::Task as Named;
use proto::work::Turn;
use proto::{Attempt, Span, TaskId, wire};

use crate::checkers::turns::Request;
use crate::checkers::turns::mail::number_of;
use crate::faults::world::World;
use crate::rng::SimRng;
use crate::state::expected::KIND_SPAWNING;
use crate::state::script::{Script, mix};

/// The longest wait for an event that may not come.
const WAIT_MAX: Span = Span::from_millis(200);
/// One in this many turns waits for an event.
const WAITS_OF: u64 = 3;
/// The most bytes of an event beside its number.
const PADDING_MAX: u64 = 40;

/// Worlds with tasks that spawn others and send each other events, from a stream of their own.
const MAIL_PERMILLE: u64 = 500;
const MAIL_STREAM: u64 = 0x6d61_696c_626f_7865;

/// The number from which a seed's events are drawn, if it has some.
pub(crate) fn draw_mail(seed: u64) -> Option<u64> {
    let mut dice = SimRng::new(seed.rotate_left(24) ^ MAIL_STREAM);
    dice.chance(MAIL_PERMILLE).then(|| dice.number())
}

/// Whether a child reports to its parent with its last turn.
fn reports(child: u64) -> bool {
    mix(child, 11).is_multiple_of(2)
}

fn name(task: Named) -> wire::MailName {
    wire::MailName { task: Some(task) }
}

impl World {
    /// Adds events to a turn, and letters that it consumes; makes some turns wait for a letter.
    pub(super) fn add_mail(
        &self,
        (task, attempt): (TaskId, Attempt),
        script: &Script,
        is_last: bool,
        (turn, request): (&mut Turn, &mut Request),
    ) {
        let Some(seed) = self.options.mail else { return };
        let dice = mix(mix(mix(seed, script.own), attempt.0), script.seq + 1);
        consume(dice, script, turn, request);
        let event = |at: u64, is_report: bool| mix(dice, at) << 1 | u64::from(is_report);
        if dice >> 8 & 1 == 1
            && let Some(to) = self.pick_receiver(task, mix(dice, 2), script)
        {
            request.events.push((to, event(3, false)));
            if dice >> 9 & 1 == 1 {
                request.events.push((to, event(4, false)));
            }
        }
        if is_last && script.is_child && reports(script.own) {
            request.events.push((name(Named::Parent(true)), event(5, true)));
        }
        let data = |number: u64| {
            let padding = number % PADDING_MAX;
            [&number.to_le_bytes()[..], &vec![7; padding as usize]].concat()
        };
        let events = request.events.iter();
        let events = events.map(|(to, it)| wire::TurnEvent { to: Some(*to), data: data(*it) });
        turn.events = events.collect();
        let may_wait = !is_last && !script.keeps_nodes && !script.yields();
        if may_wait && (dice >> 16).is_multiple_of(WAITS_OF) {
            (turn.verdict, turn.awaits) = (wire::TurnVerdict::TurnWait, Vec::new());
            turn.mail_wait = Some(self.mail_wait(task, dice >> 24, script, turn));
        }
    }

    /// A wait without a limit of time is for reports that will come.
    fn mail_wait(&self, task: TaskId, dice: u64, script: &Script, turn: &Turn) -> wire::MailWait {
        let consumed = turn.consumed.iter().filter_map(|number| script.letters.get(number));
        let consumed = consumed.filter(|it| number_of(&it.data) & 1 == 1).count();
        let timeout = match dice & 3 {
            0 => Some(0),
            1 => Some(mix(dice, 1) % WAIT_MAX.0),
            _ if self.turns.reports_due(task, reports) > consumed => None,
            _ => Some(mix(dice, 2) % WAIT_MAX.0),
        };
        let from = (timeout.is_some() && script.is_child && dice >> 2 & 1 == 1)
            .then(|| name(Named::Parent(true)));
        wire::MailWait { from, timeout_ns: timeout }
    }

    /// The parent, a child, or a submitted task.
    fn pick_receiver(&self, task: TaskId, dice: u64, script: &Script) -> Option<wire::MailName> {
        match dice & 3 {
            0 if script.is_child => Some(name(Named::Parent(true))),
            1 if script.children > 0 => Some(name(Named::Child((dice >> 8) % script.children))),
            _ => {
                let job = self.jobs.get(&task.job).filter(|job| !job.is_open)?;
                let others = job.tasks.iter().filter(|(local, other)| {
                    other.kind == KIND_SPAWNING && !other.spawned && **local != task.local
                });
                let others: Vec<u64> = others.map(|(local, _)| local.0).take(8).collect();
                let at = (dice >> 8) as usize;
                let to = (!others.is_empty()).then(|| others[at % others.len()]);
                to.map(|local| name(Named::Local(local)))
            }
        }
    }
}

/// Takes the first letters, or the first of one sender.
fn consume(dice: u64, script: &Script, turn: &mut Turn, request: &mut Request) {
    let letters = &script.letters;
    let count = match dice & 3 {
        0 => letters.len() / 2,
        1 => 0,
        _ => letters.len(),
    };
    turn.consumed = letters.keys().copied().take(count).collect();
    if count == 0
        && dice >> 4 & 1 == 1
        && let Some(last) = letters.values().next_back()
    {
        let first = letters.values().find(|letter| letter.from == last.from);
        turn.consumed.extend(first.map(|letter| letter.number));
    }
    let consumed = turn.consumed.iter().map(|number| number_of(&letters[number].data));
    request.consumed = consumed.collect();
}
