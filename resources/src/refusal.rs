//! The reason why a request does not fit a node, now or ever.

use std::fmt;

use crate::amount::Amount;
use crate::name::Name;
use crate::request::Want;

/// One obstacle. The first five are permanent; the others end when claims are freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The node has no such pool; `similar` is a pool with nearly the same name.
    NoPool {
        pool: Name,
        similar: Option<Name>,
    },
    NoLabel {
        label: Name,
    },
    /// An amount of a pool that has none.
    IsLabel {
        pool: Name,
    },
    TooMuch {
        want: Want,
        total: Amount,
    },
    /// Two names that mean one pool of this node.
    SamePool {
        one: Name,
        other: Name,
    },
    Taken {
        want: Want,
        free: Amount,
        total: Amount,
    },
    /// The free amount is large enough, but not the free parts of its indices.
    InParts {
        want: Want,
        largest: Amount,
    },
    /// More groups than a strict policy accepts, or fewer with `scatter!`.
    Groups {
        want: Want,
        now: usize,
        best: usize,
    },
    /// The free groups of strict needs are not near each other.
    Apart {
        pools: Vec<Name>,
    },
}

/// The obstacles of one variant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VariantRefusal {
    /// Its position in the request, from 0.
    pub variant: u8,
    pub reasons: Vec<Reason>,
}

/// The obstacles of all variants of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub variants: Vec<VariantRefusal>,
}

impl Reason {
    /// True if the request never fits this node.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::NoPool { .. }
            | Self::NoLabel { .. }
            | Self::IsLabel { .. }
            | Self::TooMuch { .. }
            | Self::SamePool { .. } => true,
            Self::Taken { .. }
            | Self::InParts { .. }
            | Self::Groups { .. }
            | Self::Apart { .. } => false,
        }
    }
}

impl Refusal {
    /// True if no variant ever fits this node.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.variants.iter().all(|variant| variant.reasons.iter().any(Reason::is_permanent))
    }
}

/// An amount of a pool, as bytes where it is bytes.
fn shown(pool: &Name, amount: Amount) -> String {
    if pool.is_bytes() { amount.as_size() } else { amount.to_string() }
}

fn groups(count: usize) -> String {
    format!("{count} group{}", if count == 1 { "" } else { "s" })
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPool { pool, similar: None } => write!(f, "the node has no {pool}"),
            Self::NoPool { pool, similar: Some(similar) } => {
                write!(f, "the node has no {pool}; it has {similar}")
            }
            Self::NoLabel { label } => write!(f, "the node lacks the label {label}"),
            Self::IsLabel { pool } => write!(f, "{pool} is a label of the node, without amount"),
            Self::TooMuch { want, total } => {
                write!(f, "{want}: the node has {} in all", shown(&want.pool, *total))
            }
            Self::SamePool { one, other } => {
                write!(f, "{one} and {other} are the same pool of this node")
            }
            Self::Taken { want, free, total } => {
                let (free, total) = (shown(&want.pool, *free), shown(&want.pool, *total));
                write!(f, "{want}: {free} of {total} is free")
            }
            Self::InParts { want, largest: Amount::ZERO } => {
                write!(f, "{want}: no index has enough free")
            }
            Self::InParts { want, largest } => {
                write!(f, "{want}: no index has enough free; the largest free part is {largest}")
            }
            Self::Groups { want, now, best } => {
                let (now, best) = (groups(*now), groups(*best));
                write!(f, "{want}: it would have {now} now, and {best} on the empty node")
            }
            Self::Apart { pools } => {
                let pools: Vec<&str> = pools.iter().map(Name::as_str).collect();
                write!(f, "the free groups of {} are not near each other", pools.join(", "))
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, variant) in self.variants.iter().enumerate() {
            f.write_str(if at > 0 { "; " } else { "" })?;
            if self.variants.len() > 1 {
                write!(f, "variant {}: ", variant.variant + 1)?;
            }
            for (at, reason) in variant.reasons.iter().enumerate() {
                write!(f, "{}{reason}", if at > 0 { ", " } else { "" })?;
            }
        }
        Ok(())
    }
}
