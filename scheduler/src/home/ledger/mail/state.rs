//! The letters of one part, in memory.

use std::collections::BTreeMap;

use proto::limits::MAILBOX_EVENTS_MAX;
use proto::{LocalId, PartitionId, Span, Time, wire};

/// The maximum bytes of the letters in one mailbox.
const MAILBOX_BYTES_MAX: usize = 1 << 20;

/// The bytes of the letters that a home gives to a task at once, if there are several.
const LETTER_BYTES_AT_ONCE_MAX: usize = 64 << 10;

/// The number of letters that a home gives to a task at once.
const LETTERS_AT_ONCE_MAX: usize = 64;

/// A letter takes this much more room than its bytes.
const LETTER_OVERHEAD: usize = 32;
/// Events of turns that run beside each other may fill a mailbox up to this many times its size.
const OVERFULL: usize = 4;
/// The letters on the way to one partition, and their bytes, from which on turns are refused.
const OUTBOX_LETTERS_MAX: usize = 100_000;
const OUTBOX_BYTES_MAX: usize = 16 << 20;

/// The letters of one job in one partition: the mailboxes of its tasks, and what they have sent to
/// other partitions.
#[derive(Debug, Default)]
pub(crate) struct PartMail {
    /// The last number of a record.
    pub(super) last: u64,
    /// Letters up to this number are synced: their receivers may read them.
    pub(super) synced: u64,
    /// By the index of the receiver.
    pub(super) boxes: BTreeMap<u64, Mailbox>,
    /// The receivers of letters that are not synced, by number.
    pub(super) fresh: BTreeMap<u64, u64>,
    pub(super) outboxes: BTreeMap<PartitionId, Outbox>,
    /// By partition, the last letter that came from it.
    pub(super) taken: BTreeMap<PartitionId, u64>,
    pub(super) events: u64,
    pub(super) dropped: u64,
}

/// The letters that a task has not consumed, by number.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    pub(super) letters: BTreeMap<u64, wire::Letter>,
    bytes: usize,
}

/// The letters to one partition that its home has not stored, by their sequence.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The last letter.
    pub(super) sent: u64,
    pub(super) letters: BTreeMap<u64, (u64, wire::Letter)>,
    bytes: usize,
    /// When they are sent next, and the pause after that.
    pub(super) due: Option<(Time, Span)>,
}

impl Mailbox {
    pub(super) fn insert(&mut self, letter: wire::Letter) {
        self.bytes += letter.data.len() + LETTER_OVERHEAD;
        self.letters.insert(letter.number, letter);
    }
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let removed = self.letters.remove(&number);
        self.bytes -= removed.as_ref().map_or(0, |letter| letter.data.len() + LETTER_OVERHEAD);
        removed.is_some()
    }
    /// Whether it takes no further event of this size.
    pub(super) fn is_full(&self, bytes: usize) -> bool {
        self.letters.len() >= MAILBOX_EVENTS_MAX
            || self.bytes + bytes + LETTER_OVERHEAD > MAILBOX_BYTES_MAX
    }
    /// Whether it takes nothing at all until its task consumes something.
    pub(super) fn is_overfull(&self) -> bool {
        self.letters.len() >= OVERFULL * MAILBOX_EVENTS_MAX
            || self.bytes >= OVERFULL * MAILBOX_BYTES_MAX
    }
}

impl Outbox {
    pub(super) fn insert(&mut self, sequence: u64, number: u64, letter: wire::Letter) {
        self.sent = self.sent.max(sequence);
        self.bytes += letter.data.len() + LETTER_OVERHEAD;
        self.letters.insert(sequence, (number, letter));
    }
    /// Removes the letters up to this one. Returns the numbers of their records.
    pub(super) fn remove_up_to(&mut self, last: u64) -> Vec<u64> {
        let rest = self.letters.split_off(&last.saturating_add(1));
        let gone = std::mem::replace(&mut self.letters, rest);
        let bytes = |(_, letter): &(u64, wire::Letter)| letter.data.len() + LETTER_OVERHEAD;
        self.bytes -= gone.values().map(bytes).sum::<usize>();
        gone.into_values().map(|(number, _)| number).collect()
    }
    pub(super) fn is_full(&self) -> bool {
        self.letters.len() >= OUTBOX_LETTERS_MAX || self.bytes >= OUTBOX_BYTES_MAX
    }
}

impl PartMail {
    /// The first letters that the task may read, from one sender or from all.
    pub(super) fn readable(&self, index: u64, from: Option<LocalId>) -> Vec<wire::Letter> {
        let letters = self.boxes.get(&index).into_iter().flat_map(|own| own.letters.values());
        let (mut chosen, mut bytes) = (Vec::new(), 0);
        let readable = letters.take_while(|letter| letter.number <= self.synced);
        for letter in readable.filter(|it| from.is_none_or(|from| it.from == from.0)) {
            bytes += letter.data.len();
            let is_too_much = bytes > LETTER_BYTES_AT_ONCE_MAX && !chosen.is_empty();
            if chosen.len() == LETTERS_AT_ONCE_MAX || is_too_much {
                break;
            }
            chosen.push(letter.clone());
        }
        chosen
    }
    /// Whether there is such a letter.
    pub(super) fn has_letter(&self, index: u64, from: Option<LocalId>) -> bool {
        let letters = self.boxes.get(&index).into_iter().flat_map(|own| own.letters.values());
        let mut readable = letters.take_while(|letter| letter.number <= self.synced);
        readable.any(|letter| from.is_none_or(|from| letter.from == from.0))
    }
    /// The record of the numbers.
    pub(super) fn head(&self) -> wire::MailRecord {
        let cursor = |(&PartitionId(partition), number)| wire::MailCursor { partition, number };
        let sent = self.outboxes.iter().map(|(to, outbox)| cursor((to, outbox.sent)));
        wire::MailRecord {
            last: self.last,
            taken: self.taken.iter().map(|(from, &last)| cursor((from, last))).collect(),
            sent: sent.collect(),
            events: self.events,
            dropped: self.dropped,
            ..wire::MailRecord::default()
        }
    }
}
