//! What follows when nodes die, outputs are lost, or a further run makes other bytes.

pub(in crate::home::ledger) mod crashes;
pub(in crate::home::ledger) mod earlier;
pub(in crate::home::ledger) mod lineage;
pub(crate) mod recall;
mod transferred;
