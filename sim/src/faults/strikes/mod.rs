//! What goes wrong in the fault world: the faults, and the changes of members.

pub(crate) mod disk_faults;
pub(crate) mod growth;
pub(crate) mod injection;
pub(crate) mod membership_churn;
pub(crate) mod permanent_loss;
