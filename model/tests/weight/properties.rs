//! What must hold in every state.

use crate::settings::Options;
use crate::state::{PARTS, Records, State, WHOLE};
use crate::steps::Step;

impl State {
    pub(crate) fn has_ended(&self) -> bool {
        self.home.live.ended == self.home.live.round
    }

    /// Where the end is announced, no task is open, and nothing is in flight that opens one.
    pub(crate) fn is_quiet_at_the_end(&self) -> bool {
        let opens = |part: usize, records: &Records| {
            let granted = self.home.disk.granted[part] > self.parts[part].live.granted;
            let is_taken = |from: usize, number| records.taken[from] >= number;
            let flying = self.sent.iter().any(|it| it.to == part && !is_taken(it.from, it.number));
            let stored = self.parts.iter().flat_map(|from| &from.disk.outbox);
            let waiting = stored.filter(|it| it.to == part);
            records.is_open()
                || granted
                || flying
                || waiting.into_iter().any(|it| !is_taken(it.from, it.number))
        };
        !self.has_ended()
            || (0..PARTS).all(|part| {
                let this = &self.parts[part];
                !opens(part, &this.live) && !opens(part, &this.disk)
            })
    }

    /// Of the synced states: held, returned and in flight are together the issued weight.
    pub(crate) fn weight_is_exact(&self) -> bool {
        let mut sum = 0;
        for (at, part) in self.parts.iter().enumerate() {
            sum += part.disk.held + part.disk.returned;
            let is_taken = |to: usize, number: u8| self.parts[to].disk.taken[at] >= number;
            let outbox = part.disk.outbox.iter();
            sum += outbox.filter(|it| !is_taken(it.to, it.number)).map(|it| it.weight).sum::<u16>();
            let grants = self.home.disk.granted[at].saturating_sub(part.disk.granted);
            sum += WHOLE * u16::from(grants);
        }
        sum == self.home.disk.issued
    }

    pub(crate) fn open_has_weight(&self) -> bool {
        let has = |records: &Records| !records.is_open() || records.held > 0;
        self.parts.iter().all(|part| has(&part.live) && has(&part.disk))
    }

    /// Where nothing further comes by itself, the job has ended.
    pub(crate) fn ends_well(&self, options: &Options) -> bool {
        self.has_ended() && self.home.disk.ended == self.home.live.ended
            || Step::all()
                .into_iter()
                .filter(|step| step.comes_by_itself())
                .any(|step| self.after(options, step).is_some())
    }
}
