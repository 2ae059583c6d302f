//! Patience: a task with several variants waits for the preferred one before it takes another.
//!
//! The preferred variants are those up to the first one that some present node offers, in the order
//! of [`Request::preferred`]. The tasks of a class take the others once tasks of the class have
//! waited in the queues of this node for its patience, without a break.

use std::time::Duration;

use proto::{Span, Time};
use resources::{Fit, Request};

use crate::holder::Holder;
use crate::holder::queues::classes::Class;
use crate::holder::queues::ready_queue::PLAIN;
use crate::holder::slots::Need;
use crate::routing::partition_owners::Homes;
use crate::{Mutant, Scheduler};

/// The variants that tasks of a class take at first, and how long they take no other.
#[derive(Debug)]
pub(crate) struct Patience {
    length: Span,
    /// The preferred variants.
    request: Request,
    /// The same for this node; `None`: it offers none of them.
    fit: Option<Fit>,
    /// For each kind of node of the map: whether it offers one of them.
    kinds: Vec<bool>,
    /// `None`: it is over, and all variants are open while tasks of the class are here.
    until: Option<Time>,
}

impl Patience {
    /// `None`: all variants are open at once. `fit`: of the whole request on this node.
    pub(crate) fn of(
        now: Time,
        request: &Request,
        fit: Option<&Fit>,
        homes: &Homes,
    ) -> Option<Self> {
        let length = Span(u64::try_from(request.patience().as_nanos()).unwrap_or(u64::MAX));
        if length == Span::ZERO {
            return None;
        }
        let order = request.preferred();
        let is_offered = |variants: &[usize]| {
            let request = request.among(variants);
            request.is_some_and(|it| {
                let kinds = homes.kinds().iter().enumerate();
                let mut present = kinds.filter(|(kind, _)| homes.is_kind_present(*kind));
                present.any(|(_, kind)| kind.fits(&it))
            })
        };
        let first = (1..order.len()).find(|&count| is_offered(&order[..count]))?;
        let preferred = request.among(&order[..first])?;
        Some(Self {
            length,
            fit: fit.and_then(|fit| fit.among(&order[..first])),
            kinds: homes.kinds().iter().map(|kind| kind.fits(&preferred)).collect(),
            request: preferred,
            until: Some(now + length),
        })
    }

    /// Whether tasks take the preferred variants alone.
    pub(crate) fn lasts(&self) -> bool {
        self.until.is_some()
    }
    pub(crate) fn fit(&self) -> Option<&Fit> {
        self.fit.as_ref()
    }
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }
    pub(crate) fn fits_kind(&self, kind: usize) -> bool {
        self.kinds.get(kind).copied().unwrap_or(false)
    }
    pub(crate) fn ends_at(&self) -> Option<Time> {
        self.until
    }

    /// A task of the class arrives, the only one here.
    pub(crate) fn begin(&mut self, now: Time) {
        self.until = Some(now + self.length);
    }
    /// All variants are open while tasks of the class are here.
    pub(crate) fn end(&mut self) {
        self.until = None;
    }
    /// Returns whether it ends now.
    pub(crate) fn tick(&mut self, now: Time) -> bool {
        let ends = self.ends_at().is_some_and(|end| end <= now);
        if ends {
            self.end();
        }
        ends
    }
    /// The offers of the nodes have changed. The wait goes on if it is for the same variants.
    pub(crate) fn goes_on_as(&mut self, former: &Self) {
        if self.request == former.request {
            self.until = former.until;
        }
    }
}

impl Holder {
    /// A task of a class arrives.
    pub(crate) fn note_arrival(&mut self, class: u64) {
        if class == PLAIN || self.classes.get(class).is_none_or(|it| it.patience().is_none()) {
            return;
        }
        let is_staged = || self.staging.values().any(|staged| staged.class == class);
        let others = self.local.has_class(class) || self.shared.has_class(class) || is_staged();
        let now = self.life.now();
        let Some(patience) = self.classes.patience_mut(class) else { return };
        if self.mutant == Some(Mutant::PatienceIgnored) {
            patience.end();
        } else if !others {
            patience.begin(now);
        }
    }

    /// A victim has given a task of a class away. `waited`: its patience was over there. A node
    /// without the preferred variant gets only such tasks.
    pub(crate) fn note_stolen_here(&mut self, class: u64, waited: bool) {
        if class == PLAIN {
            return;
        }
        let patience = self.classes.patience_mut(class);
        if let Some(patience) = patience.filter(|patience| waited || patience.fit.is_none()) {
            patience.end();
        }
    }

    /// Whether the patience of a class with patience is over.
    pub(crate) fn has_waited(&self, class: u64) -> bool {
        let known = if class == PLAIN { None } else { self.classes.get(class) };
        known.and_then(Class::patience).is_some_and(|patience| !patience.lasts())
    }

    /// Whether tasks of a class wait for a variant that this node does not offer.
    pub(crate) fn waits_for_others(&self, class: u64) -> bool {
        class != PLAIN && matches!(self.need_of_class(class), Need::NotYet)
    }
}

impl Scheduler {
    /// The reason why tasks of a class wait here for nodes that offer their preferred variant.
    pub(crate) fn explain_patience(&self, class: &Class) -> Option<String> {
        let patience = class.patience().filter(|it| it.lasts() && it.fit().is_none())?;
        let homes = self.routing.homes();
        let mut staying = homes.staying();
        let node = staying.find(|&node| patience.fits_kind(homes.kind_of(node)));
        let node = node.map_or_else(String::new, |node| format!(", as node {node} offers it"));
        let preferred = patience.request();
        let opens = self.explain_opening(class)?;
        Some(format!("it waits for {preferred}{node}; {opens}"))
    }

    /// When the tasks of a class may take further variants, if that is to come.
    pub(crate) fn explain_opening(&self, class: &Class) -> Option<String> {
        let left = class.patience()?.ends_at()?.since(self.holder.life().now());
        let left = Duration::from_millis(left.0 / Span::from_millis(1).0);
        Some(format!("another variant is open in {left:?}"))
    }
}
