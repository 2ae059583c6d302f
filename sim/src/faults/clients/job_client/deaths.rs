//! Clients that die while their job runs.

use node::Input;
use proto::{ClientId, Span};

use super::{Death, Stage};
use crate::faults::event_queue::{ExternalClient, SimEvent};
use crate::faults::world::World;

impl World {
    /// Ends the client's connections and discards its state.
    pub(super) fn client_dies(&mut self, index: usize) {
        self.tell(|| format!("client {index} dies"));
        self.count_fault("client-death");
        let who = ExternalClient::Job(index);
        let links: Vec<(usize, ClientId)> = self
            .clients
            .links
            .range((who, 0)..=(who, usize::MAX))
            .map(|(&(_, node), &client)| (node, client))
            .collect();
        for (node, client) in links {
            self.clients.links.remove(&(who, node));
            let life = self.clients.connections[&client].life;
            let at = self.now + self.dice.span(Span::ZERO, Span::from_millis(5));
            let input = Box::new(Input::ClientGone { client });
            self.schedule(at, SimEvent::Input { node, life, input });
        }
        let client = &mut self.clients.jobs[index];
        client.asks.clear();
        let death = std::mem::replace(&mut client.plan.death, Death::Never);
        if death == Death::Watching {
            // Another client attaches.
            let pause = self.dice.span(Span::ZERO, Span::from_millis(300));
            self.schedule(self.now + pause, SimEvent::Wake { who });
            return;
        }
        client.stage = Stage::Dead;
        if matches!(death, Death::AfterChunks(_)) {
            self.truth(index).abandoned = true;
        }
    }
}
