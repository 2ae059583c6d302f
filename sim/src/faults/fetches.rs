//! Fetches of objects between machines.

use node::Input;
use proto::Span;
use proto::work::{Fetch, FetchError};

use crate::faults::event_queue::SimEvent;
use crate::faults::world::World;

/// The share of attempts at an unreachable source after which the fetch fails.
const FETCH_GIVES_UP_PERMILLE: u64 = 20;

impl World {
    pub(super) fn fetch(&mut self, index: usize, fetch: Fetch) {
        self.tell(|| format!("n{index} fetches {:?} from {}", fetch.object, fetch.from));
        self.starve.on_fetch(self.now, index);
        let life = self.machines[index].life;
        let options = &self.network.options;
        let latency = self.dice.span(options.latency_min, options.latency_max).doubled();
        let at = self.now + latency + self.network.transfer(fetch.size_bytes);
        self.schedule(at, SimEvent::Fetched { node: index, life, fetch: Box::new(fetch) });
    }

    pub(crate) fn fetch_ended(&mut self, index: usize, fetch: Box<Fetch>) {
        let (object, number, from) = (fetch.object, fetch.number, fetch.from.0 as usize);
        let cut = self.network.is_cut(self.now, from, index)
            || self.network.is_cut(self.now, index, from);
        let source = &self.machines[from];
        let unreachable = !source.is_up() || cut || self.now < source.paused_until;
        if unreachable && !self.dice.chance(FETCH_GIVES_UP_PERMILLE) {
            // The shell of a node repeats its tries for a long time.
            let pause = self.dice.span(Span::from_millis(10), Span::from_millis(200));
            let life = self.machines[index].life;
            let what = SimEvent::Fetched { node: index, life, fetch };
            return self.schedule(self.now + pause, what);
        }
        let result = if unreachable {
            Err(FetchError::Unreachable(format!("n{from} is unreachable")))
        } else if !self.machines[from].objects.contains_key(&object) {
            Err(FetchError::NotThere)
        } else {
            self.machines[index].take(object, fetch.size_bytes, fetch.taken);
            Ok(())
        };
        self.tell(|| format!("n{index} fetched {object:?}: {result:?}"));
        self.starve.on_fetched(self.now, index);
        self.deliver(index, Input::Fetched { object, number, result });
    }
}
