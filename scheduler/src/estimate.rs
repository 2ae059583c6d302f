//! How long tasks take: the mean of the completed ones, per kind (section 2.2.3).

use std::collections::BTreeMap;

use proto::{Span, wire};

#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    total_ns: u128,
    samples: u64,
}

impl Mean {
    fn add(&mut self, length: Span) {
        self.total_ns += u128::from(length.0);
        self.samples += 1;
    }
    fn value(self) -> Option<Span> {
        let mean_ns = self.total_ns.checked_div(u128::from(self.samples))?;
        Some(Span(u64::try_from(mean_ns).unwrap_or(u64::MAX)))
    }
}

/// Kinds beyond this many share the mean over all tasks.
const KINDS_MAX: usize = 4096;
/// Assumed while nothing is known at all.
const LENGTH_UNKNOWN: Span = Span::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Estimates {
    kinds: BTreeMap<String, Mean>,
    all: Mean,
}

impl Estimates {
    pub(crate) fn completed(&mut self, kind: &str, length: Span) {
        self.all.add(length);
        if let Some(mean) = self.kinds.get_mut(kind) {
            mean.add(length);
        } else if self.kinds.len() < KINDS_MAX {
            self.kinds.entry(kind.to_owned()).or_default().add(length);
        }
    }

    /// The mean of the kind; before any of it completed, what the task declares; else the mean of
    /// all.
    #[must_use]
    pub(crate) fn length(&self, spec: &wire::Spec, declared: Span) -> Span {
        if let Some(mean) = self.kinds.get(&spec.kind).copied().and_then(Mean::value) {
            return mean;
        }
        if declared > Span::ZERO {
            return declared;
        }
        self.all.value().unwrap_or(LENGTH_UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_then_declaration_then_all() {
        let spec = |kind: &str| wire::Spec { kind: kind.into(), ..Default::default() };
        let mut estimates = Estimates::default();
        assert_eq!(estimates.length(&spec("a"), Span::ZERO), LENGTH_UNKNOWN);
        estimates.completed("a", Span(10));
        estimates.completed("a", Span(20));
        assert_eq!(estimates.length(&spec("a"), Span(99)), Span(15));
        assert_eq!(estimates.length(&spec("b"), Span(99)), Span(99));
        assert_eq!(estimates.length(&spec("b"), Span::ZERO), Span(15));
    }
}
