//! Injected faults of a study: nodes that die and restart, and nodes that freeze.
//!
//! The victims are drawn before the run. Only they keep a disk, because only they must recover from
//! one. They are struck at random times after the client knows that the job is accepted. The latest
//! time is the total work divided by all slots.

use std::sync::Arc;

use kvs::Batch;
use node::Mutant;
use node::{Config, Input, Node};
use proto::work::Stored;
use proto::{Incarnation, NodeId, Span, wire};
use scheduler::Tuning;

use super::SimulationOptions;
use super::cluster::Cluster;
use super::event_queue::ScalingEvent;
use crate::checkers::Violation;
use crate::rng::SimRng;

/// The number of faults and their durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeFailures {
    /// Processes that die between two steps. Their writes remain, and they restart.
    pub kills: u32,
    pub restart_after: Span,
    /// Processes with an event loop that pauses. Tasks in slots continue.
    pub pauses: u32,
    pub pause: Span,
}

impl Default for NodeFailures {
    fn default() -> Self {
        let second = Span::from_secs(1);
        Self { kills: 0, restart_after: second, pauses: 0, pause: second }
    }
}

/// An invalid fault specification.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeFailureError {
    #[error("'{0}' is no fault: known are kill=N, pause=N, back=DURATION and for=DURATION")]
    Unknown(String),
    #[error("{key}={value}: {why}")]
    Value { key: String, value: String, why: String },
}

impl NodeFailures {
    #[must_use]
    pub fn none(&self) -> bool {
        self.kills == 0 && self.pauses == 0
    }

    /// Parses `kill=2,pause=1`; also `back=5s` (until a killed node restarts) and `for=2s` (the
    /// length of a pause).
    ///
    /// # Errors
    /// The invalid part of the specification.
    pub fn parse(
        text: &str,
        span: impl Fn(&str) -> Result<Span, String>,
    ) -> Result<Self, NodeFailureError> {
        let mut node_failures = Self::default();
        for part in text.split(',') {
            let unknown = || NodeFailureError::Unknown(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let wrong = |why: String| NodeFailureError::Value {
                key: key.to_owned(),
                value: value.to_owned(),
                why,
            };
            let number = || value.parse::<u32>().map_err(|error| wrong(error.to_string()));
            match key {
                "kill" => node_failures.kills = number()?,
                "pause" => node_failures.pauses = number()?,
                "back" => node_failures.restart_after = span(value).map_err(wrong)?,
                "for" => node_failures.pause = span(value).map_err(wrong)?,
                _ => return Err(unknown()),
            }
        }
        Ok(node_failures)
    }
}

/// The faults of one run.
#[derive(Debug)]
pub(super) struct FailureState {
    node_failures: NodeFailures,
    dice: SimRng,
    /// The nodes that die, then the nodes that freeze. No node is struck twice.
    victims: Vec<u32>,
    map: Arc<wire::ClusterMap>,
    slots: u32,
    tuning: Tuning,
    mutant: Option<Mutant>,
}

impl FailureState {
    /// # Errors
    /// When there are fewer nodes than faults.
    pub(super) fn new(
        options: &SimulationOptions,
        map: &Arc<wire::ClusterMap>,
    ) -> Result<Self, Violation> {
        let node_failures = options.node_failures;
        // A separate stream, so that a run without faults has the same other draws.
        let mut dice = SimRng::new(options.seed ^ 0x6d69_7368_6170_7321);
        let wanted = node_failures.kills.saturating_add(node_failures.pauses) as usize;
        if wanted > options.nodes as usize {
            let text = format!("{wanted} faults for {} nodes: each strikes another", options.nodes);
            return Err(Violation::new("faults", text));
        }
        let mut victims = Vec::with_capacity(wanted);
        while victims.len() < wanted {
            let node = dice.index(options.nodes as usize) as u32;
            if !victims.contains(&node) {
                victims.push(node);
            }
        }
        let (map, slots, tuning) = (Arc::clone(map), options.slots, options.tuning);
        Ok(Self { node_failures, dice, victims, map, slots, tuning, mutant: options.mutant })
    }

    /// The nodes that will need their disk again.
    pub(super) fn killable_nodes(&self) -> &[u32] {
        &self.victims[..self.node_failures.kills as usize]
    }
}

impl Cluster<'_, '_> {
    /// Schedules the faults once the job is accepted.
    pub(super) fn schedule_failures(&mut self) {
        let killable_nodes = self.failure_state.node_failures.kills as usize;
        for (at, victim) in std::mem::take(&mut self.failure_state.victims).into_iter().enumerate()
        {
            let strikes_at = self.now + Span(self.failure_state.dice.below(self.area.0.max(1)));
            let what = if at < killable_nodes {
                ScalingEvent::Die(victim)
            } else {
                ScalingEvent::Freeze(victim)
            };
            self.queue.push(strikes_at, what);
        }
    }

    /// Ends the process between two steps: its earlier decisions have been carried out.
    pub(super) fn die(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if machine.busy_until > self.now {
            let at = machine.busy_until;
            return self.queue.push(at, ScalingEvent::Die(index as u32));
        }
        self.struck.kills += 1;
        machine.stop();
        let at = self.now + self.failure_state.node_failures.restart_after;
        self.queue.push(at, ScalingEvent::Start(index as u32));
    }

    /// Restarts a node from its disk.
    pub(super) fn start_again(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        machine.incarnation += 1;
        let disk = machine.disk.as_mut().expect("a node that dies has a disk");
        // A store is synced when it is opened, so recovery can rely on its records.
        disk.sync(0);
        let map = Arc::clone(&self.failure_state.map);
        let config = Config {
            incarnation: Incarnation(machine.incarnation),
            slots: self.failure_state.slots,
            tuning: self.failure_state.tuning,
            seed: self.failure_state.dice.number(),
            mutant: self.failure_state.mutant,
            ..Config::new(NodeId(index as u32), map)
        };
        match Node::recover(config, disk.records(), self.now) {
            Ok(node) => machine.node = node,
            Err(error) => {
                return self.break_off("durable", format!("n{index} cannot recover: {error}"));
            }
        }
        machine.up = true;
        machine.busy_until = self.now;
        let stored = |(&object, held): (&_, &super::machine::StoredObject)| Stored {
            object,
            size_bytes: held.size_bytes,
            stay: false.into(),
            copy: held.copy,
        };
        let mut objects: Vec<Stored> = machine.objects.iter().map(stored).collect();
        objects.sort_unstable_by_key(|stored| stored.object);
        self.deliver(index, Input::Stored { objects });
        // A client that watched the job there sends its request again.
        self.client.watch_again(self.now, index as u32, &mut self.sent);
        self.send_requests();
    }

    pub(super) fn freeze(&mut self, index: usize) {
        self.struck.pauses += 1;
        let machine = &mut self.machines[index];
        machine.busy_until =
            machine.busy_until.max(self.now) + self.failure_state.node_failures.pause;
    }

    /// Writes a batch to the disk of a node that will die.
    pub(super) fn write(&mut self, index: usize, batch: &Batch) {
        if let Some(disk) = &mut self.machines[index].disk {
            disk.write(batch);
        }
    }
}

/// The injected faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InjectedFailures {
    pub kills: u32,
    pub pauses: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NodeFailures, NodeFailureError> {
        let seconds = |text: &str| {
            let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
            number.map(Span::from_secs).ok_or_else(|| "too many seconds".to_owned())
        };
        NodeFailures::parse(text, seconds)
    }

    #[test]
    fn a_spec_is_parsed_and_an_error_has_a_position() {
        let second = Span::from_secs(1);
        let two = NodeFailures { kills: 2, restart_after: second, pauses: 1, pause: second };
        assert_eq!(parse("kill=2,pause=1"), Ok(two));
        let slow =
            NodeFailures { restart_after: Span::from_secs(5), pause: Span::from_secs(3), ..two };
        assert_eq!(parse("kill=2,pause=1,back=5s,for=3s"), Ok(slow));
        assert!(parse("kill=two").unwrap_err().to_string().starts_with("kill=two: "));
        assert!(parse("kill=1,burn=2").unwrap_err().to_string().starts_with("'burn=2' is no"));
        assert!(parse("").unwrap_err().to_string().starts_with("'' is no fault"));
        assert!(parse("back=1h").is_err());
    }
}
