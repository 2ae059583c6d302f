//! The requests of tasks that a node knows, each prepared for this node and for the kinds of nodes
//! of the map.

use std::collections::BTreeMap;

use proto::{NodeId, Span, Time, wire};
use resources::{Fit, Request, Totals, class_of_bytes};

use crate::holder::life::notices::notice_of;
use crate::holder::life::{Life, time_request};
use crate::holder::queues::patience::Patience;
use crate::holder::queues::ready_queue::PLAIN;
use crate::holder::slots::{Need, Slots};
use crate::holder::task::Work;
use crate::routing::partition_owners::{Homes, takes_work};

/// The number of requests that a node keeps prepared. Beyond it, those without queued tasks are
/// prepared again when they are needed.
const CLASSES_KNOWN_MAX: usize = 512;

/// Marks the number of a request, so that it differs from a number of cpus.
const OF_REQUEST: u64 = 1 << 63;
/// Marks the class of gangs with a request: their tasks do not start from the queues.
const OF_GANG: u64 = 1 << 62;

/// Whether tasks of the class need several nodes at once.
pub(crate) fn is_gang_class(class: u64) -> bool {
    class & (OF_REQUEST | OF_GANG) == OF_REQUEST | OF_GANG
}

/// The class of a task: its number of cpus, or the number of its request.
pub(crate) fn class_of(spec: &wire::Spec) -> u64 {
    let (nodes, of_gang) = match spec.nodes {
        0 | 1 => (&[][..], 0),
        _ => (&spec.nodes.to_le_bytes()[..], OF_GANG),
    };
    let numbered = |bytes: &[u8]| OF_REQUEST | of_gang | class_of_bytes(bytes).0 & !OF_GANG;
    let (time, moves) = (time_request(spec).0, notice_of(spec).is_some());
    match (spec.request.is_empty(), time) {
        (true, 0) if nodes.is_empty() => u64::from(spec.cpus.max(1)),
        (false, 0) if nodes.is_empty() => numbered(&spec.request),
        (..) => {
            let cpus = if spec.request.is_empty() { spec.cpus.max(1) } else { 0 };
            let (cpus, time) = (cpus.to_le_bytes(), time.to_le_bytes());
            let moves = if moves { &[1][..] } else { &[] };
            numbered(&[&spec.request[..], &cpus, &time, nodes, moves].concat())
        }
    }
}

/// The class by which a task is queued: tasks without a request share one queue. Those of several
/// cpus leave it if they did not fit.
pub(crate) fn queue_class_of(spec: &wire::Spec) -> u64 {
    match spec.request.is_empty() && time_request(spec) == Span::ZERO && spec.nodes <= 1 {
        true => PLAIN,
        false => class_of(spec),
    }
}

/// A request in use.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) request: Request,
    /// The time request; zero without one.
    pub(crate) time: Span,
    /// Its tasks are moved when their node is drained.
    moves: bool,
    /// Prepared for this node; `None`: it never fits here.
    pub(crate) fit: Option<Fit>,
    /// For each kind of node of the map: whether the request fits an empty one.
    kinds: Vec<bool>,
    /// What its tasks may take before their patience is over; `None`: everything, at once.
    patience: Option<Box<Patience>>,
}

impl Class {
    fn new(
        (class, request): (u64, Request),
        (time, moves): (Span, bool),
        (now, slots, homes): (Time, &Slots, &Homes),
    ) -> Self {
        // Records of earlier versions were not checked when they were spawned.
        let is_whole = request.has_whole_cpus();
        let fit = slots.resolve(&request).filter(|_| is_whole);
        let kinds = homes.kinds().iter().map(|kind| is_whole && kind.fits(&request)).collect();
        let waits = is_whole && !is_gang_class(class);
        let patience = Patience::of(now, &request, fit.as_ref(), homes).filter(|_| waits);
        Self { request, time, moves, fit, kinds, patience: patience.map(Box::new) }
    }
    /// The needs on this node; never, if the rest of its life is too short.
    pub(crate) fn need(&self, life: Life) -> Need<'_> {
        let Some(fit) = self.fit.as_ref().filter(|_| self.is_admitted(life)) else {
            return Need::Never;
        };
        match self.lasting_patience() {
            Some(patience) => patience.fit().map_or(Need::NotYet, Need::Fit),
            None => Need::Fit(fit),
        }
    }
    fn lasting_patience(&self) -> Option<&Patience> {
        self.patience().filter(|patience| patience.lasts())
    }
    /// The variants that its tasks may take now.
    pub(crate) fn open_request(&self) -> &Request {
        self.lasting_patience().map_or(&self.request, Patience::request)
    }
    /// Whether a node of a kind offers a variant that its tasks may take now.
    pub(crate) fn fits_kind_now(&self, kind: usize) -> bool {
        match self.lasting_patience() {
            Some(patience) => patience.fits_kind(kind),
            None => self.fits_kind(kind),
        }
    }
    /// Whether a node of a kind offers the variant that is preferred among the offered ones.
    pub(crate) fn is_preferred_on(&self, kind: usize) -> bool {
        match &self.patience {
            Some(patience) => patience.fits_kind(kind),
            None => self.fits_kind(kind),
        }
    }
    pub(crate) fn patience(&self) -> Option<&Patience> {
        self.patience.as_deref()
    }
    /// Whether its tasks may start here as far as the life of this node is concerned.
    pub(crate) fn is_admitted(&self, life: Life) -> bool {
        life.admits(self.time, self.moves)
    }
    pub(crate) fn fits_kind(&self, kind: usize) -> bool {
        self.kinds.get(kind).copied().unwrap_or(false)
    }
}

/// The known requests by class. Boxed, because most nodes never have any.
#[derive(Debug, Default)]
pub(crate) struct Classes(
    #[expect(clippy::box_collection, reason = "a word of each node instead of three")]
    Option<Box<BTreeMap<u64, Class>>>,
);

impl Classes {
    pub(crate) fn get(&self, class: u64) -> Option<&Class> {
        self.0.as_ref()?.get(&class)
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Class)> {
        let known = self.0.iter().flat_map(|known| known.iter());
        known.map(|(&class, it)| (class, it))
    }
    /// Prepares the request of a task, or its cpus as one. `keep`: the classes that are queued
    /// here.
    pub(crate) fn note(
        &mut self,
        work: &Work,
        at: (Time, &Slots, &Homes),
        keep: impl Fn(u64) -> bool,
    ) {
        let known = self.0.get_or_insert_default();
        let class = class_of(&work.spec);
        if known.contains_key(&class) {
            return;
        }
        if known.len() >= CLASSES_KNOWN_MAX {
            known.retain(|&class, _| keep(class));
        }
        let request = match work.spec.request.is_empty() {
            true => Some(Request::cpus(work.cpus())),
            false => work.request(),
        };
        let Some(request) = request else { return };
        let limits = (work.time_request(), notice_of(&work.spec).is_some());
        known.insert(class, Class::new((class, request), limits, at));
    }
    /// The patience of a class, if a part of its variants waits for it.
    pub(crate) fn patience_mut(&mut self, class: u64) -> Option<&mut Patience> {
        self.0.as_mut()?.get_mut(&class)?.patience.as_deref_mut()
    }
    /// The first end of a class's patience.
    pub(crate) fn next_opening(&self) -> Option<Time> {
        self.all().filter_map(|(_, class)| class.patience()?.ends_at()).min()
    }
    /// Ends the patience of classes that have waited until now. Returns whether some has.
    pub(crate) fn open(&mut self, now: Time) -> bool {
        let known = self.0.iter_mut().flat_map(|known| known.values_mut());
        let waiting = known.filter_map(|class| class.patience.as_deref_mut());
        waiting.filter_map(|patience| patience.tick(now).then_some(())).count() > 0
    }
    /// The offers in the map have changed.
    pub(crate) fn rematch(&mut self, at: (Time, &Slots, &Homes)) {
        for (&number, class) in self.0.iter_mut().flat_map(|known| known.iter_mut()) {
            let limits = (class.time, class.moves);
            let former = class.patience.take();
            *class = Class::new((number, class.request.clone()), limits, at);
            if let (Some(own), Some(former)) = (class.patience.as_mut(), former) {
                own.goes_on_as(&former);
            }
        }
    }
}

/// The kinds of nodes: nodes with equal offers are one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    offers: Vec<Totals>,
    /// Whether some node of the kind takes work.
    present: Vec<bool>,
    /// The kind of each node, by its number. A member without an offer offers its slots as cpus.
    of_node: Vec<u16>,
}

impl Kinds {
    pub(crate) fn of(map: &wire::ClusterMap) -> Self {
        let mut kinds = Self::default();
        let mut known: BTreeMap<(&[u8], u32), u16> = BTreeMap::new();
        for member in &map.members {
            let fresh = u16::try_from(kinds.offers.len()).unwrap_or(u16::MAX);
            let kind = *known.entry((&member.offer, member.slots)).or_insert(fresh);
            if usize::from(kind) == kinds.offers.len() {
                let offer = Totals::decode(&member.offer).ok().filter(|_| !member.offer.is_empty());
                kinds.offers.push(offer.unwrap_or_else(|| Totals::cpus(member.slots)));
                kinds.present.push(false);
            }
            if let Some(present) = kinds.present.get_mut(usize::from(kind)) {
                *present |= takes_work(member) && !member.paused;
            }
            kinds.of_node.push(kind);
        }
        kinds
    }
    pub(crate) fn all(&self) -> &[Totals] {
        &self.offers
    }
    /// Whether some node of a kind takes work.
    pub(crate) fn is_present(&self, kind: usize) -> bool {
        self.present.get(kind).copied().unwrap_or(false)
    }
    pub(crate) fn of_node(&self, node: NodeId) -> usize {
        self.of_node.get(node.0 as usize).map_or(usize::MAX, |&kind| kind.into())
    }
    pub(crate) fn offer_of(&self, node: NodeId) -> Option<&Totals> {
        self.offers.get(self.of_node(node))
    }
}
