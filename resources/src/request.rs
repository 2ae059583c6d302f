//! Requests: the needs of a task.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::amount::{Amount, AmountError};
use crate::limits::{LABELS_MAX, POOLS_MAX, VARIANT_WEIGHT_MAX, VARIANTS_MAX};
use crate::name::{Name, NameError};

/// The choice of groups of an indexed pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Shape {
    /// The fewest groups; indices evenly from each.
    #[default]
    Compact,
    /// The fewest groups; as many indices as possible from the first, then from the next.
    Tight,
    /// The most groups; indices evenly from each.
    Scatter,
}

/// A shape, and whether the task waits for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Policy {
    pub shape: Shape,
    /// The claim has as many groups, and as strong couplings, as on the empty node; otherwise the
    /// task waits.
    pub strict: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Quantity {
    Amount(Amount),
    /// The whole pool.
    All,
}

/// The need of one pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Want {
    pub pool: Name,
    pub quantity: Quantity,
    pub policy: Policy,
}

/// One way to run a task: amounts and labels that one node must have.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Variant {
    /// Sorted by the names of the pools; one of them is `cpus`.
    wants: Vec<Want>,
    /// Sorted.
    labels: Vec<Name>,
    weight: u16,
}

/// The needs of a task: one variant or several, of which one is chosen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    variants: Vec<Variant>,
    /// How long a task waits for the first variant that the cluster offers before it takes another.
    /// Zero with one variant.
    patience: Duration,
}

#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum RequestError {
    #[error(transparent)]
    Amount(#[from] AmountError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("'{0}' is not a need such as cpus=2, gpus=0.5 or cpus='8 compact!'")]
    Syntax(String),
    #[error(
        "'{0}' is not a policy: compact, tight and scatter exist, and their strict forms compact!, \
         tight! and scatter!"
    )]
    Policy(String),
    #[error("{0}=0 asks for nothing; the smallest amount is {least}", least = least(.0))]
    Zero(Name),
    #[error("{0} is asked for twice; give one amount")]
    Twice(Name),
    #[error("'{0}' is not a weight of a variant: whole numbers from 1 to {VARIANT_WEIGHT_MAX}")]
    Weight(String),
    #[error("a request has no variant")]
    Empty,
    #[error("variants {0} and {1} ask for the same; remove one of them")]
    SameVariants(usize, usize),
    #[error("a request has at most {most} {things}, and this one has {count}")]
    TooMany { things: &'static str, count: usize, most: usize },
}

/// The smallest amount of a pool that a task asks for. A command needs more bytes than one.
fn least(pool: &Name) -> &'static str {
    if pool.is_bytes() { "1MiB or so" } else { "0.0001" }
}

impl Request {
    /// Whether no variant asks for a part of a cpu. A slot runs one task, so that a node with slots
    /// takes no other request.
    #[must_use]
    pub fn has_whole_cpus(&self) -> bool {
        let is_part = |want: &Want| match want.quantity {
            Quantity::Amount(amount) => want.pool == Name::cpus() && amount.fraction() > 0,
            Quantity::All => false,
        };
        !self.variants().iter().any(|variant| variant.wants().iter().any(is_part))
    }
}

impl Want {
    #[must_use]
    pub fn new(pool: Name, quantity: Quantity, policy: Policy) -> Self {
        // The whole pool has every group.
        let policy = if quantity == Quantity::All { Policy::default() } else { policy };
        Self { pool, quantity, policy }
    }

    fn cpus(amount: Amount) -> Self {
        Self::new(Name::cpus(), Quantity::Amount(amount), Policy::default())
    }
}

impl Variant {
    /// A variant without an amount of `cpus` asks for one cpu.
    pub fn new(
        mut wants: Vec<Want>,
        mut labels: Vec<Name>,
        weight: u16,
    ) -> Result<Self, RequestError> {
        if !(1..=VARIANT_WEIGHT_MAX).contains(&weight) {
            return Err(RequestError::Weight(weight.to_string()));
        }
        if !wants.iter().any(|want| want.pool == Name::cpus()) {
            wants.push(Want::cpus(Amount::ONE));
        }
        check_count("amounts", wants.len(), POOLS_MAX)?;
        check_count("labels", labels.len(), LABELS_MAX)?;
        wants.sort();
        labels.sort();
        labels.dedup();
        if let Some(want) =
            wants.iter().find(|want| want.quantity == Quantity::Amount(Amount::ZERO))
        {
            return Err(RequestError::Zero(want.pool.clone()));
        }
        if let Some(pair) = wants.windows(2).find(|pair| pair[0].pool == pair[1].pool) {
            return Err(RequestError::Twice(pair[0].pool.clone()));
        }
        if let Some(both) = labels.iter().find(|&label| wants.iter().any(|w| w.pool == *label)) {
            return Err(RequestError::Twice(both.clone()));
        }
        Ok(Self { wants, labels, weight })
    }

    #[must_use]
    pub fn wants(&self) -> &[Want] {
        &self.wants
    }

    #[must_use]
    pub fn labels(&self) -> &[Name] {
        &self.labels
    }

    /// Of the variants that fit now, the one with the largest weight is chosen.
    #[must_use]
    pub fn weight(&self) -> u16 {
        self.weight
    }

    fn asks_the_same(&self, other: &Self) -> bool {
        self.wants == other.wants && self.labels == other.labels
    }
}

impl Request {
    pub fn new(variants: Vec<Variant>) -> Result<Self, RequestError> {
        check_count("variants", variants.len(), VARIANTS_MAX)?;
        if variants.is_empty() {
            return Err(RequestError::Empty);
        }
        for (later, variant) in variants.iter().enumerate() {
            let same = variants[..later].iter().position(|other| other.asks_the_same(variant));
            if let Some(earlier) = same {
                return Err(RequestError::SameVariants(earlier + 1, later + 1));
            }
        }
        Ok(Self { variants, patience: Duration::ZERO })
    }

    /// With this patience. One variant has no later one to wait for.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        let patience = if self.variants.len() > 1 { patience } else { Duration::ZERO };
        Self { patience, ..self }
    }

    /// The request of a task that asks for nothing.
    #[must_use]
    pub fn one_cpu() -> Self {
        Self::of_cpus(Amount::ONE)
    }

    /// The request of a number of cpus alone.
    #[must_use]
    pub fn cpus(count: u32) -> Self {
        Self::of_cpus(Amount::count(count.max(1) as usize))
    }

    fn of_cpus(amount: Amount) -> Self {
        let wants = vec![Want::cpus(amount)];
        let variants = vec![Variant { wants, labels: Vec::new(), weight: 1 }];
        Self { variants, patience: Duration::ZERO }
    }

    #[must_use]
    pub fn is_one_cpu(&self) -> bool {
        let [Variant { wants, labels, weight: 1 }] = &self.variants[..] else { return false };
        let [want] = &wants[..] else { return false };
        labels.is_empty() && *want == Want::cpus(Amount::ONE)
    }

    #[must_use]
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The positions of the variants in the order in which they are preferred: by weight, then as
    /// they are written.
    #[must_use]
    pub fn preferred(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        order.sort_by_key(|&at| u16::MAX - self.variants[at].weight);
        order
    }

    /// The request of these variants alone, by position; `None`: of none.
    #[must_use]
    pub fn among(&self, variants: &[usize]) -> Option<Self> {
        let kept = self.variants.iter().enumerate().filter(|(at, _)| variants.contains(at));
        let variants: Vec<Variant> = kept.map(|(_, variant)| variant.clone()).collect();
        (!variants.is_empty()).then_some(Self { variants, patience: Duration::ZERO })
    }
}

pub(crate) fn check_count(
    things: &'static str,
    count: usize,
    most: usize,
) -> Result<(), RequestError> {
    match count > most {
        true => Err(RequestError::TooMany { things, count, most }),
        false => Ok(()),
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = match self.shape {
            Shape::Compact => "compact",
            Shape::Tight => "tight",
            Shape::Scatter => "scatter",
        };
        write!(f, "{shape}{}", if self.strict { "!" } else { "" })
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quantity {
            Quantity::All => write!(f, "{}=all", self.pool)?,
            Quantity::Amount(amount) if self.pool.is_bytes() => {
                write!(f, "{}={}", self.pool, amount.as_size())?;
            }
            Quantity::Amount(amount) => write!(f, "{}={amount}", self.pool)?,
        }
        match self.policy == Policy::default() {
            true => Ok(()),
            false => write!(f, " {}", self.policy),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, want) in self.wants.iter().enumerate() {
            write!(f, "{}{want}", if at > 0 { ", " } else { "" })?;
        }
        for label in &self.labels {
            write!(f, ", label={label}")?;
        }
        match self.weight {
            1 => Ok(()),
            weight => write!(f, ", weight={weight}"),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, variant) in self.variants.iter().enumerate() {
            write!(f, "{}{variant}", if at > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}
