//! The compared policies, as flags.

use proto::Policy;

use super::point::Point;

/// A policy with the parameters of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    pub(super) label: &'static str,
    flags: &'static [&'static str],
}

/// The default without any flag.
pub(super) const DEFAULT: Choice = Choice { label: "default", flags: &[] };
pub(super) const FLDS: Choice =
    Choice { label: "FLDS", flags: &["--policy", Policy::Flds.name(), "--order", "bytes"] };
pub(super) const MDL: Choice =
    Choice { label: "MDL", flags: &["--policy", Policy::Mdl.name(), "--order", "bytes"] };
pub(super) const MLB: Choice =
    Choice { label: "MLB", flags: &["--policy", Policy::Mlb.name(), "--order", "bytes"] };
pub(super) const RLDS: Choice =
    Choice { label: "RLDS", flags: &["--policy", Policy::Rlds.name(), "--order", "bytes"] };
pub(super) const ADAPTIVE: Choice =
    Choice { label: "ADAPTIVE", flags: &["--policy", Policy::Adaptive.name(), "--order", "bytes"] };
pub(super) const EFT: Choice = Choice { label: "EFT", flags: &["--policy", Policy::Eft.name()] };

/// The default is the same with a third order.
pub(super) const EFT_BYTES: Choice =
    Choice { label: "EFT, bytes", flags: &["--policy", Policy::Eft.name(), "--order", "bytes"] };
pub(super) const EFT_URGENCY: Choice = Choice {
    label: "EFT, urgency",
    flags: &["--policy", Policy::Eft.name(), "--order", "urgency"],
};

pub(super) const ALL: [Choice; 8] =
    [FLDS, MDL, MLB, RLDS, ADAPTIVE, EFT_BYTES, EFT_URGENCY, DEFAULT];

impl Choice {
    /// With the paper's t = 0.5, and its tt for the experiment; the default takes neither.
    pub(super) fn on(self, point: Point, wait_max: &str) -> Point {
        match self.flags {
            [] => point,
            flags => point.with(flags).with(&["--threshold", "0.5", "--wait-max", wait_max]),
        }
    }
}
