/*!
What the work of a node costs: a node serves its inputs one after another, and none of that is free.

Each step of a simulated node is charged for what it did: so many packets, messages of each kind,
tasks of a chunk, events, written batches, launches. Two prices stand beside each other for each of
these [`Part`]s: what the core itself took (real nodes, driven in one process, their time measured)
and what the shell around it takes (the store, the connections, the executor; from short real
runs). `starling bench calibrate` measures both and writes them to a dated file.
*/

use std::collections::BTreeMap;

use proto::wire::message::Body;
use proto::wire::{self, request};
use proto::{Span, limits};
use serde::{Deserialize, Serialize};

macro_rules! parts {
    ($($(#[$doc:meta])* $part:ident = $name:literal,)*) => {
        /// What a step is charged for.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(usize)]
        pub enum Part { $($(#[$doc])* $part,)* }

        impl Part {
            pub const ALL: &'static [Self] = &[$(Self::$part,)*];
            /// Its name in a file.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$part => $name,)* }
            }
        }
    };
}

parts! {
    /// One turn of the loop, whatever it does.
    Step = "step",
    PacketIn = "packet_in",
    PacketOut = "packet_out",
    /// Of packets, both ways; large batches cost more than small ones.
    KibiByte = "kib_of_packets",
    /// Probes, loads, hints, requests of thieves and what ends a steal.
    StealMessage = "message_steal",
    /// Tasks that are pushed or granted.
    Bundle = "message_bundle",
    Finished = "message_finished",
    Credits = "message_credits",
    JobCounts = "message_counts",
    OtherMessage = "message_other",
    Request = "request",
    /// A task of a chunk that a client submits.
    ChunkTask = "task_submitted",
    /// An attempt of this node ended.
    TaskEnd = "task_ended",
    /// A transfer to this node ended.
    Fetched = "fetch_ended",
    /// A sync of the log ended.
    Persisted = "sync_ended",
    /// Anything that happened to a task: submitted, queued, started, ended, committed.
    Event = "event",
    /// One batch to the log, and each KiB of it.
    Persist = "persist",
    PersistedKibiByte = "kib_of_batch",
    /// A task that takes a slot begins.
    Launch = "launch",
    Fetch = "fetch",
}

/// How often each part came up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Counts(pub [f32; Part::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0.0; Part::ALL.len()])
    }
}

impl Counts {
    pub fn add(&mut self, part: Part, number: f32) {
        self.0[part as usize] += number;
    }
    #[must_use]
    pub fn of(&self, part: Part) -> f32 {
        self.0[part as usize]
    }

    pub(crate) fn packet_in(&mut self, packet: &wire::Packet) {
        self.add(Part::PacketIn, 1.0);
        self.add(Part::KibiByte, packet_bytes(packet) as f32 / 1024.0);
        for bytes in &packet.reliable {
            self.add(part_of_field(field_of(bytes)), 1.0);
        }
        for message in &packet.best_effort {
            self.add(message.body.as_ref().map_or(Part::OtherMessage, part_of_best_effort), 1.0);
        }
    }

    pub(crate) fn packet_out(&mut self, packet: &wire::Packet) {
        self.add(Part::PacketOut, 1.0);
        self.add(Part::KibiByte, packet_bytes(packet) as f32 / 1024.0);
    }

    pub(crate) fn request(&mut self, request: &wire::Request) {
        self.add(Part::Request, 1.0);
        if let Some(request::Body::Submit(chunk)) = &request.body {
            self.add(Part::ChunkTask, chunk.tasks.len() as f32);
        }
    }
}

/// Of what makes a packet large; the frame and best-effort messages are a few bytes.
pub(crate) fn packet_bytes(packet: &wire::Packet) -> usize {
    packet.reliable.iter().map(bytes::Bytes::len).sum()
}

/// The field of `Message.body` that encoded bytes begin with: the kind, without decoding it.
fn field_of(bytes: &[u8]) -> u32 {
    match *bytes {
        [first, ..] if first < 0x80 => u32::from(first) >> 3,
        [first, second, ..] => (u32::from(first & 0x7f) | u32::from(second) << 7) >> 3,
        _ => 0,
    }
}

/// By the field numbers of `Message` in starling.proto.
fn part_of_field(field: u32) -> Part {
    match field {
        2 | 7 => Part::Bundle,
        3..=6 | 8..=10 => Part::StealMessage,
        11 => Part::Finished,
        13 => Part::Credits,
        16 => Part::JobCounts,
        _ => Part::OtherMessage,
    }
}

fn part_of_best_effort(body: &Body) -> Part {
    match body {
        Body::Push(_) | Body::StealGrant(_) => Part::Bundle,
        Body::StealProbe(_)
        | Body::StealLoad(_)
        | Body::StealHint(_)
        | Body::StealRequest(_)
        | Body::StealDone(_)
        | Body::TasksMoved(_)
        | Body::TasksMovedAck(_) => Part::StealMessage,
        Body::Finished(_) => Part::Finished,
        Body::Credits(_) => Part::Credits,
        Body::JobCounts(_) => Part::JobCounts,
        _ => Part::OtherMessage,
    }
}

/// Prices by name, nanoseconds.
pub type Prices = BTreeMap<String, f64>;

/// What real bytes take of a node, beside the network: files are made, filled and read.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ByteTimes {
    /// A task's output: the object, and each KiB of it.
    pub write_object_ns: f64,
    pub write_kib_ns: f64,
    /// A task's input.
    pub read_object_ns: f64,
    pub read_kib_ns: f64,
    /// An object that comes from another node, on top of its bytes.
    pub fetch_object_ns: f64,
    /// What comes in at one node of this machine from another: a card as fast as its loopback, file
    /// to file. Of no account to a simulated run, which is told its network; 0: not measured.
    pub loopback_bytes_per_s: f64,
}

impl ByteTimes {
    pub(crate) fn writing(&self, bytes: u64) -> Span {
        Span((self.write_object_ns + self.write_kib_ns * bytes as f64 / 1024.0) as u64)
    }
    pub(crate) fn reading(&self, bytes: u64) -> Span {
        Span((self.read_object_ns + self.read_kib_ns * bytes as f64 / 1024.0) as u64)
    }
    pub(crate) fn fetching(&self) -> Span {
        Span(self.fetch_object_ns as u64)
    }
}

/// A file of service times.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CostModel {
    pub schema: u32,
    /// When and on what this was measured; shown in every report.
    pub date: String,
    pub machine: String,
    /// Of the core alone.
    pub core_ns: Prices,
    /// Of the process around it, on top.
    pub shell_ns: Prices,
    /// From the start of a sync of the log to its end, and the pause before the next one.
    pub sync_ns: f64,
    pub sync_gap_ns: f64,
    /// From the moment a task is launched to its start, and from its end to the node's knowledge of
    /// it, together; no time of the loop.
    pub run_delay_ns: f64,
    /// A client's time for a task that it submits.
    pub client_task_ns: f64,
    /// Charged where bytes are real; nothing in files of before these were measured.
    #[serde(default)]
    pub bytes: ByteTimes,
    /// What each figure is and how it was had, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The file is none, or not one this version understands.
#[derive(Debug, thiserror::Error)]
pub enum CostModelError {
    #[error("not a file of service times: {0}; make one with 'starling bench calibrate -o FILE'")]
    Json(#[from] serde_json::Error),
    #[error("service times of schema {0}; make a new file with 'starling bench calibrate -o FILE'")]
    Schema(u32),
    #[error("'{0}' is no part of a step; make a new file with 'starling bench calibrate -o FILE'")]
    Part(String),
    #[error("{name} takes {given} ns: a time is a number of at least 0")]
    Time { name: String, given: f64 },
}

const SCHEMA: u32 = 1;
const BUILT_IN: &str = include_str!("costs.json");

impl Default for CostModel {
    /// The file this version was built with.
    fn default() -> Self {
        Self::parse(BUILT_IN).expect("the file in the source tree is right")
    }
}

impl CostModel {
    /// Nothing takes time but the tasks and the network.
    #[must_use]
    pub fn zero() -> Self {
        Self {
            schema: SCHEMA,
            date: String::new(),
            machine: "zero".to_owned(),
            core_ns: Prices::new(),
            shell_ns: Prices::new(),
            sync_ns: 0.0,
            sync_gap_ns: 0.0,
            run_delay_ns: 0.0,
            client_task_ns: 0.0,
            bytes: ByteTimes::default(),
            notes: Vec::new(),
        }
    }

    /// No price yet, but the pauses of a real node.
    #[must_use]
    pub fn unmeasured() -> Self {
        Self { sync_gap_ns: limits::SYNC_GAP.0 as f64, ..Self::zero() }
    }

    /// # Errors
    /// When the text is no file of service times.
    pub fn parse(text: &str) -> Result<Self, CostModelError> {
        let service: Self = serde_json::from_str(text)?;
        if service.schema != SCHEMA {
            return Err(CostModelError::Schema(service.schema));
        }
        let known = |name: &String| Part::ALL.iter().any(|part| part.name() == name);
        let mut names = service.core_ns.keys().chain(service.shell_ns.keys());
        if let Some(name) = names.find(|name| !known(name)) {
            return Err(CostModelError::Part(name.clone()));
        }
        let single = [
            ("sync_ns", service.sync_ns),
            ("sync_gap_ns", service.sync_gap_ns),
            ("run_delay_ns", service.run_delay_ns),
            ("client_task_ns", service.client_task_ns),
            ("bytes.write_object_ns", service.bytes.write_object_ns),
            ("bytes.write_kib_ns", service.bytes.write_kib_ns),
            ("bytes.read_object_ns", service.bytes.read_object_ns),
            ("bytes.read_kib_ns", service.bytes.read_kib_ns),
            ("bytes.fetch_object_ns", service.bytes.fetch_object_ns),
            ("bytes.loopback_bytes_per_s", service.bytes.loopback_bytes_per_s),
        ];
        let named = service.core_ns.iter().chain(&service.shell_ns);
        let all = named.map(|(name, &given)| (name.as_str(), given)).chain(single);
        for (name, given) in all {
            if !(given.is_finite() && given >= 0.0) {
                return Err(CostModelError::Time { name: name.to_owned(), given });
            }
        }
        Ok(service)
    }

    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and strings always serialise")
    }

    /// Date and machine in a line.
    #[must_use]
    pub fn label(&self) -> String {
        match self.date.is_empty() {
            true => self.machine.clone(),
            false => format!("{}, {}", self.date, self.machine),
        }
    }

    pub(crate) fn prices(&self) -> PriceList {
        let price = |part: &Part| {
            let of = |prices: &Prices| prices.get(part.name()).copied().unwrap_or(0.0);
            (of(&self.core_ns) + of(&self.shell_ns)) as f32
        };
        let mut prices = [0.0; Part::ALL.len()];
        for (at, part) in Part::ALL.iter().enumerate() {
            prices[at] = price(part);
        }
        PriceList(prices)
    }
}

/// By part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriceList([f32; Part::ALL.len()]);

impl PriceList {
    pub(crate) fn cost(&self, counts: &Counts) -> Span {
        let cost_ns: f32 = self.0.iter().zip(&counts.0).map(|(price, n)| price * n).sum();
        Span(cost_ns as u64)
    }
}

/// Prices that explain measured steps best: least squares over prices of at least 0, by coordinate
/// descent. Parts that never came up stay without a price.
#[must_use]
pub fn fit(steps: &[(Counts, f64)]) -> Prices {
    const N: usize = Part::ALL.len();
    const SWEEPS: usize = 2_000;
    let (mut gram, mut target) = ([[0.0_f64; N]; N], [0.0_f64; N]);
    for (counts, took_ns) in steps {
        // A step of a thousand tasks must not outweigh a thousand steps of one.
        let weight = 1.0 / took_ns.max(1_000.0);
        for a in 0..N {
            let of_a = f64::from(counts.0[a]);
            if of_a == 0.0 {
                continue;
            }
            target[a] += weight * of_a * took_ns;
            for (sum, of_b) in gram[a].iter_mut().zip(&counts.0) {
                *sum += weight * of_a * f64::from(*of_b);
            }
        }
    }
    let mut prices = [0.0_f64; N];
    for _ in 0..SWEEPS {
        for a in 0..N {
            if gram[a][a] > 0.0 {
                let others: f64 = (0..N).filter(|&b| b != a).map(|b| gram[a][b] * prices[b]).sum();
                prices[a] = ((target[a] - others) / gram[a][a]).max(0.0);
            }
        }
    }
    let named = Part::ALL.iter().zip(prices).filter(|(_, price)| *price > 0.0);
    named.map(|(part, price)| (part.name().to_owned(), price.round())).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn the_built_in_file_is_one_and_comes_back() {
        let service = CostModel::default();
        assert!(!service.date.is_empty() && !service.core_ns.is_empty());
        assert_eq!(CostModel::parse(&service.to_json()).unwrap(), service);
    }

    #[test]
    fn wrong_files_are_refused() {
        let refused = |service: &CostModel| CostModel::parse(&service.to_json()).unwrap_err();
        let mut service = CostModel::zero();
        service.core_ns.insert("tea".to_owned(), 1.0);
        assert!(refused(&service).to_string().contains("'tea' is no part"));
        let negative = CostModel { sync_ns: -1.0, ..CostModel::zero() };
        assert!(refused(&negative).to_string().contains("sync_ns takes -1 ns"));
        let bytes = ByteTimes { read_kib_ns: -2.0, ..ByteTimes::default() };
        let negative = CostModel { bytes, ..CostModel::zero() };
        assert!(refused(&negative).to_string().contains("bytes.read_kib_ns takes -2 ns"));
        assert!(refused(&CostModel { schema: 9, ..CostModel::zero() }).to_string().contains('9'));
        assert!(CostModel::parse("{}").is_err());
    }

    #[test]
    fn the_kind_of_an_encoded_message_is_read_off_its_first_bytes() {
        let part = |body: Body| {
            let bytes = wire::Message { body: Some(body) }.encode_to_vec();
            part_of_field(field_of(&bytes))
        };
        assert_eq!(part(Body::Push(wire::Push::default())), Part::Bundle);
        assert_eq!(part(Body::StealGrant(wire::StealGrant::default())), Part::Bundle);
        assert_eq!(part(Body::TasksMovedAck(wire::TasksMovedAck::default())), Part::StealMessage);
        assert_eq!(part(Body::Finished(wire::Finished::default())), Part::Finished);
        assert_eq!(part(Body::Credits(wire::Credits::default())), Part::Credits);
        assert_eq!(part(Body::JobCounts(wire::JobCounts::default())), Part::JobCounts);
        assert_eq!(part(Body::JobEnd(wire::JobEnd::default())), Part::OtherMessage);
    }

    #[test]
    fn a_fit_finds_the_prices_that_were_paid() {
        let mut dice = crate::SimRng::new(3);
        let paid = [(Part::Step, 900.0), (Part::PacketIn, 250.0), (Part::Event, 120.0)];
        let step = |_| {
            let mut counts = Counts::default();
            counts.add(Part::Step, 1.0);
            counts.add(Part::PacketIn, dice.below(4) as f32);
            counts.add(Part::Event, dice.below(50) as f32);
            let cost = paid.iter().map(|(part, price)| f64::from(counts.of(*part)) * price).sum();
            (counts, cost)
        };
        let prices = fit(&(0..500).map(step).collect::<Vec<_>>());
        assert_eq!(prices.len(), paid.len());
        for (part, price) in paid {
            let found = prices[part.name()];
            assert!((found - price).abs() <= 0.02 * price, "{}: {found}", part.name());
        }
    }
}
