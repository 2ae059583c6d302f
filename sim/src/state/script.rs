//! The progress of an attempt that spawns tasks. What it does follows from the task's number.

use std::collections::BTreeMap;

use proto::wire;
use proto::work::Launch;

/// The lowest bits of a task's own number are the number of its ancestors.
pub(crate) const DEPTH_BITS: u32 = 4;

/// The progress of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// The task's own number.
    pub(crate) own: u64,
    /// Another task has spawned it.
    pub(crate) is_child: bool,
    /// The last committed turn.
    pub(crate) seq: u64,
    /// The number of turns before the last, as the state has it.
    pub(crate) steps: u8,
    /// The number of children so far.
    pub(crate) children: u64,
    /// The name of a child.
    pub(crate) key: Option<String>,
    /// The turn that waits for its answer.
    pub(crate) pending: Option<wire::TurnVerdict>,
    /// The waiting turn must be refused.
    pub(crate) is_refused: bool,
    /// The number of the turn that was refused last, plus one.
    pub(crate) refused_seq: u64,
    /// A task on several nodes cannot give them back and go on.
    pub(crate) keeps_nodes: bool,
    /// The letters that it has read and not consumed, by number.
    pub(crate) letters: BTreeMap<u64, wire::Letter>,
    /// The numbers of those that the waiting turn consumes.
    pub(crate) consumes: Vec<u64>,
}

pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Script {
    pub(crate) fn of(launch: &Launch) -> Self {
        let is_child = launch.entry >> 63 == 1;
        let own = match is_child {
            true => launch.entry,
            false => mix(launch.task.job.0, launch.task.local.0) >> DEPTH_BITS << DEPTH_BITS,
        };
        let resume = launch.resume.as_deref();
        let last = resume.and_then(|resume| resume.children.last());
        let mut script = Self {
            own,
            is_child,
            seq: resume.map_or(0, |resume| resume.seq),
            steps: resume.and_then(|it| it.state.as_ref()?.first().copied()).unwrap_or(0),
            children: last.map_or(0, |last| last.ordinal + u64::from(last.count)),
            key: resume.and_then(|resume| Some(resume.keys.first()?.key.clone())),
            pending: None,
            is_refused: false,
            refused_seq: 0,
            keeps_nodes: launch.spec.nodes > 1,
            letters: BTreeMap::new(),
            consumes: Vec::new(),
        };
        let letters = resume.into_iter().flat_map(|resume| resume.letters.iter().cloned());
        script.read(letters);
        script
    }
    pub(crate) fn read(&mut self, letters: impl Iterator<Item = wire::Letter>) {
        self.letters.extend(letters.map(|letter| (letter.number, letter)));
    }
    /// The attempt has made the turn that ends it, and awaits the answer.
    pub(crate) fn gives_slot_back(&self) -> bool {
        use wire::TurnVerdict::{TurnWait, TurnYield};
        matches!(self.pending, Some(TurnWait | TurnYield))
    }
    pub(crate) fn depth(&self) -> u64 {
        self.own & ((1 << DEPTH_BITS) - 1)
    }
    /// Whether the task often gives its slot back.
    pub(crate) fn yields(&self) -> bool {
        mix(self.own, 1).is_multiple_of(6)
    }
    pub(crate) fn steps_max(&self) -> u8 {
        if self.yields() { 5 } else { (mix(self.own, 2) % 4) as u8 }
    }
}
