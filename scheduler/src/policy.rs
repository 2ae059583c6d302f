//! Policies and the decision of Algorithm 1.

/// The scheduling policies of the paper, section 2.2.2. They differ in the threshold `t` alone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Policy {
    /// Maximised load balancing: t = ∞, every ready task may be stolen.
    Mlb,
    /// Maximised data locality: t = 0, every task with input bytes stays with its data.
    Mdl,
    /// Rigid load-balancing and data-locality segregation: `t` between the two.
    Rlds { threshold: f64 },
}

impl Policy {
    /// The `t` of Algorithm 1.
    #[must_use]
    pub fn threshold(self) -> f64 {
        match self {
            Self::Mlb => f64::INFINITY,
            Self::Mdl => 0.0,
            Self::Rlds { threshold } => threshold,
        }
    }
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mlb => "mlb",
            Self::Mdl => "mdl",
            Self::Rlds { .. } => "rlds",
        }
    }
}
