//! Agreement with what others published. The reference data are not part of the project: where they
//! are absent a test says so and passes. `docs/agreement.md` has the tables and what they mean.

mod data;
mod dslab;
mod estee;
mod hetero;
mod instances;
mod simgrid;
mod stg;
