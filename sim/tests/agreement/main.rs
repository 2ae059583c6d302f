//! Comparison with published results. The reference data are not part of the project: if they are
//! absent, a test prints that and passes. `docs/agreement.md` has the tables and their discussion.

mod data;
mod dslab;
mod estee;
mod hetero;
mod instances;
mod simgrid;
mod stg;
