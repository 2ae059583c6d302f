//! Reading the queues, listing their batch jobs, and comparing the two.

use crate::batch::Row;
use crate::intent::{Intent, Outcome, Phase};
use crate::limits::{LISTED_EVERY_MS, OPEN_MAX, QUEUES_MAX, RUNNING_LISTED_EVERY_MS};
use crate::owner::{Effect, Owner, Queue, Round, Then, Wait, parsed};
use crate::{QueueConfig, keys};

impl Round {
    /// Reads all queues with their open intents, one key after another.
    pub(super) fn read_queues(&mut self) -> Result<Option<Effect>, String> {
        if self.names.is_none() {
            let key = keys::QUEUES.to_owned();
            let Some(value) = self.seen.get(&key) else { return Ok(Some(self.read(key))) };
            let mut names: Vec<String> = parsed(&key, value.as_deref())?.unwrap_or_default();
            names.truncate(QUEUES_MAX);
            names.reverse(); // The last one is read next.
            self.names = Some(names);
        }
        loop {
            if let Some(effect) = self.read_intents()? {
                return Ok(Some(effect));
            }
            let Some(name) = self.names.as_ref().and_then(|names| names.last()).cloned() else {
                return Ok(None);
            };
            let (of_queue, of_state) = (keys::queue(&name), keys::state(&name));
            let Some(queue) = self.seen.get(&of_queue) else {
                return Ok(Some(self.read(of_queue)));
            };
            let Some(state) = self.seen.get(&of_state) else {
                return Ok(Some(self.read(of_state)));
            };
            let config: Option<QueueConfig> = parsed(&of_queue, queue.as_deref())?;
            let state = parsed(&of_state, state.as_deref())?.unwrap_or_default();
            self.names.as_mut().and_then(Vec::pop);
            if let Some(config) = config {
                let intents = Default::default();
                self.queues.push(Queue { config, state, intents, is_changed: false, next: None });
            }
        }
    }

    /// Reads the intents of the last queue, up to the first number without one.
    fn read_intents(&mut self) -> Result<Option<Effect>, String> {
        while let Some(queue) = self.queues.last_mut().filter(|queue| queue.next.is_none()) {
            let last = queue.intents.keys().next_back().copied();
            let number = last.map_or_else(|| queue.state.settled(), |last| last + 1);
            if queue.intents.len() >= OPEN_MAX {
                queue.next = Some(u64::MAX); // Nothing is submitted before these are over.
                continue;
            }
            let key = keys::intent(&queue.config.name, number);
            let Some(value) = self.seen.get(&key) else { return Ok(Some(self.read(key))) };
            match parsed::<Intent>(&key, value.as_deref())? {
                Some(intent) => _ = queue.intents.insert(number, intent),
                None => queue.next = Some(number),
            }
        }
        Ok(None)
    }
}

impl Queue {
    /// The offer of its first node.
    pub(super) fn learn(&mut self) {
        let mut offers = self.intents.values().map(|intent| &intent.offer);
        let first = offers.find(|offer| !offer.is_empty());
        if let Some(offer) = first.filter(|_| self.state.offer.is_empty()) {
            (self.state.cpus, self.state.offer) = (offer.cpus(), offer.clone());
            self.is_changed = true;
        }
    }

    /// Counts what has happened to one of its intents.
    pub(super) fn note(&mut self, now_ms: u64, outcome: &Outcome) {
        match outcome {
            Outcome::Quiet => return,
            Outcome::Succeeded => self.state.succeed(),
            Outcome::Failed(why) => self.state.fail(now_ms, why),
            Outcome::Unknown => {}
        }
        self.is_changed = true;
    }

    /// Counts the intents that are over and come before all open ones.
    pub(super) fn settle(&mut self) {
        while let Some(intent) = self.intents.get(&self.state.settled()) {
            if intent.phase.is_open() {
                return;
            }
            match intent.phase {
                Phase::Unknown => self.state.unknown += 1,
                Phase::Refused => self.state.refusals += 1,
                _ => self.state.ended += 1,
            }
            self.state.duplicates += u64::from(intent.duplicates);
            self.state.settled = self.state.settled() + 1;
            self.is_changed = true;
        }
    }
}

impl Owner {
    /// Lists the batch jobs if something is expected and the last listing is old enough.
    pub(super) fn list(&self, now_ms: u64, round: &mut Round) -> Option<Effect> {
        if round.listing.is_some() || round.list_failed {
            return None;
        }
        if round.lists {
            round.waits_for = Some(Wait::List);
            return Some(Effect::List);
        }
        round.queues.iter_mut().for_each(Queue::learn);
        let own = round.queues.iter().filter(|queue| queue.config.system == self.site);
        let mut open = own.flat_map(|queue| queue.intents.values().map(|intent| intent.phase));
        let every = match open.clone().any(Phase::is_expected) {
            true => LISTED_EVERY_MS,
            false if open.any(|phase| phase == Phase::Running) => RUNNING_LISTED_EVERY_MS,
            false => return None,
        };
        if now_ms < round.lease.listed_ms.saturating_add(every) {
            return None;
        }
        let mut lease = round.lease.taken(&self.name, self.incarnation, now_ms);
        (lease.listed_ms, lease.listings) = (now_ms, lease.listings + 1);
        Some(round.swap(keys::owner(self.site), &lease.clone(), Then::Lists(lease)))
    }

    /// Writes the next intent that the listing changes, or of which the end is to be counted.
    pub(super) fn compare(&self, round: &mut Round) -> Option<Effect> {
        let listing = round.listing.take();
        let begin = round.compared.unwrap_or((0, 0));
        let mut found = None;
        'all: for (at, queue) in round.queues.iter().enumerate().skip(begin.0) {
            if queue.config.system != self.site {
                continue;
            }
            let first = if at == begin.0 { begin.1 } else { 0 };
            for (&number, intent) in queue.intents.range(first..) {
                let after = |(listed_ms, rows): &(u64, Vec<Row>)| {
                    intent.after(rows, *listed_ms, self.mutant)
                };
                let changed = intent.judged().or_else(|| listing.as_ref().and_then(after));
                if let Some((changed, outcome)) = changed {
                    found = Some((at, number, changed, outcome));
                    break 'all;
                }
            }
        }
        round.listing = listing;
        let Some((at, number, changed, outcome)) = found else {
            round.compared = Some((usize::MAX, 0));
            return None;
        };
        round.compared = Some((at, number + 1));
        let key = keys::intent(&round.queues[at].config.name, number);
        let then = Then::Intent(at, Box::new(changed.clone()), outcome);
        Some(round.swap(key, &changed, then))
    }
}
