//! The global schedulers, one file each.

mod b_level;
mod dls;
mod estee;
mod etf;
mod greedy_transfer;
mod heft;
mod mcp;
mod min_min;
mod random;
mod single;
mod t_level;
mod work_stealing;

use super::view::{Scheduler, View};
pub use dls::Dls;
pub use heft::Heft;
pub use min_min::MinMin;

/// The reading of an algorithm, where implementations differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reading {
    /// The paper that introduced it.
    #[default]
    Printed,
    /// DSLab's reading (`dslab-dag`). Our tests compare with its published makespans.
    Dslab,
}

/// All schedulers, by their names for users.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SchedulerName {
    BLevel,
    TLevel,
    Dls,
    Mcp,
    Etf,
    Heft,
    MinMin,
    Random,
    Single,
    WorkStealing,
    BLevelGt,
    TLevelGt,
    McpGt,
    RandomGt,
    BLevelEstee,
    TLevelEstee,
    DlsEstee,
    McpEstee,
    EtfEstee,
    TLevelGtEstee,
}

impl SchedulerName {
    pub const ALL: [Self; 20] = [
        Self::BLevel,
        Self::TLevel,
        Self::Dls,
        Self::Mcp,
        Self::Etf,
        Self::Heft,
        Self::MinMin,
        Self::Random,
        Self::Single,
        Self::WorkStealing,
        Self::BLevelGt,
        Self::TLevelGt,
        Self::McpGt,
        Self::RandomGt,
        Self::BLevelEstee,
        Self::TLevelEstee,
        Self::DlsEstee,
        Self::McpEstee,
        Self::EtfEstee,
        Self::TLevelGtEstee,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BLevel => "blevel",
            Self::TLevel => "tlevel",
            Self::Dls => "dls",
            Self::Mcp => "mcp",
            Self::Etf => "etf",
            Self::Heft => "heft",
            Self::MinMin => "min-min",
            Self::Random => "random",
            Self::Single => "single",
            Self::WorkStealing => "ws",
            Self::BLevelGt => "blevel-gt",
            Self::TLevelGt => "tlevel-gt",
            Self::McpGt => "mcp-gt",
            Self::RandomGt => "random-gt",
            Self::BLevelEstee => "blevel-estee",
            Self::TLevelEstee => "tlevel-estee",
            Self::DlsEstee => "dls-estee",
            Self::McpEstee => "mcp-estee",
            Self::EtfEstee => "etf-estee",
            Self::TLevelGtEstee => "tlevel-gt-estee",
        }
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// True if the scheduler depends on the seed.
    #[must_use]
    pub fn draws(self) -> bool {
        matches!(
            self,
            Self::Random
                | Self::WorkStealing
                | Self::BLevelGt
                | Self::TLevelGt
                | Self::McpGt
                | Self::RandomGt
                | Self::TLevelGtEstee
        )
    }

    #[must_use]
    pub fn make(self) -> Box<dyn Scheduler> {
        use estee::{Estee, Rule};
        use greedy_transfer::{GreedyTransfer, Order};
        match self {
            Self::BLevel => Box::new(b_level::BLevel),
            Self::TLevel => Box::new(t_level::TLevel),
            Self::Dls => Box::new(Dls::default()),
            Self::Mcp => Box::new(mcp::Mcp),
            Self::Etf => Box::new(etf::Etf),
            Self::Heft => Box::new(Heft::default()),
            Self::MinMin => Box::new(MinMin::default()),
            Self::Random => Box::new(random::Random),
            Self::Single => Box::new(single::Single::default()),
            Self::WorkStealing => Box::new(work_stealing::WorkStealing::default()),
            Self::BLevelGt => Box::new(GreedyTransfer::new(Order::BLevel)),
            Self::TLevelGt => Box::new(GreedyTransfer::new(Order::TLevel)),
            Self::McpGt => Box::new(GreedyTransfer::new(Order::Alap)),
            Self::RandomGt => Box::new(GreedyTransfer::new(Order::Random)),
            Self::BLevelEstee => Box::new(Estee::new(Rule::BLevel)),
            Self::TLevelEstee => Box::new(Estee::new(Rule::TLevel)),
            Self::DlsEstee => Box::new(Estee::new(Rule::Dls)),
            Self::McpEstee => Box::new(Estee::new(Rule::Mcp)),
            Self::EtfEstee => Box::new(Estee::new(Rule::Etf)),
            Self::TLevelGtEstee => Box::new(GreedyTransfer::new(Order::EsteeTLevel)),
        }
    }
}

/// B-levels of mean lengths without transfers: the *static level* of the literature.
fn static_levels(view: &View<'_>) -> Vec<f64> {
    let run = |task: usize| view.estimates.mean_run_ns(view.problem, task);
    super::b_levels(view.problem, run, |_| 0.0)
}

/// B-levels of estimated lengths without transfers.
fn b_levels(view: &View<'_>) -> Vec<f64> {
    super::b_levels(view.problem, |task| view.estimates.length_ns(task), |_| 0.0)
}

/// T-levels of estimated lengths without transfers.
fn t_levels(view: &View<'_>) -> Vec<f64> {
    super::t_levels(view.problem, |task| view.estimates.length_ns(task), |_| 0.0)
}

/// The estimated transfer time of an object, as the mean over all pairs of workers.
fn mean_carry(view: &View<'_>, object: u32) -> f64 {
    if !view.problem.objects[object as usize].travels {
        return 0.0;
    }
    view.wiring.mean_ns(view.problem.workers.len(), view.estimates.bytes(object))
}
