//! Seeded bugs (mutants) of a cluster. Each inverts one decision, to prove that the simulator's
//! checkers find it: `starling check --mutant NAME` must fail. A real node never sets one.

// The list of a mutant determines the tests that must find it.
proto::mutants! {
    /// A seeded bug of a machine in the fault world, or of its node.
    Mutant, or Node(node::Mutant);

    /// Mutants of machines: their clocks and their processes.
    OF_MACHINES by Simulator {
        /// The clock of a machine stops while the machine is suspended.
        ClockStandsStill "clock-stands-still",
        /// A restarted process keeps the number of its earlier incarnation.
        RestartUnnoticed "restart-unnoticed",
    }
}

impl Mutant {
    pub(crate) const fn of_scheduler(mutant: scheduler::Mutant) -> Self {
        Self::Node(node::Mutant::Scheduler(mutant))
    }

    pub(crate) fn is_among(self, list: &[scheduler::Mutant]) -> bool {
        matches!(self, Self::Node(node::Mutant::Scheduler(mutant)) if list.contains(&mutant))
    }

    /// The mutant as a node gets it; `None`: a machine has the bug, and no node.
    pub(crate) const fn of_node(self) -> Option<node::Mutant> {
        match self {
            Self::Node(mutant) => Some(mutant),
            Self::ClockStandsStill | Self::RestartUnnoticed => None,
        }
    }
}

impl From<scheduler::Mutant> for Mutant {
    fn from(mutant: scheduler::Mutant) -> Self {
        Self::of_scheduler(mutant)
    }
}
