/*!
Views of a job from its events, and the record of a run.

* [`Lens`] reads the events of one node or of all nodes, and makes a [`View`]: counts, kinds,
  utilization, failures, data moved. Its memory is bounded for a job of any length.
* [`View::merge`] joins the views of parts. The order and the grouping do not matter.
* [`Causes`] divides the time of all slots by cause; [`eta`] gives the end of a job as a range.
* [`Record`] is a run as a file: [`Record::write`] and [`Record::read`], described in
  `docs/run-record.md`.
* [`Report`] shows a record as text, JSON, tables or one page; [`trace`] as a trace.
* [`terminal_text`] makes foreign text safe for a terminal.

This crate does no IO, reads no clock, and iterates no map in random order.
*/

pub mod attempt;
pub mod causes;
pub mod collect;
pub mod eta;
pub mod failures;
pub mod groups;
pub mod histogram;
pub mod join;
mod limits;
pub mod record;
pub mod report;
pub mod series;
pub mod terminal_text;
pub mod trace;
pub mod view;

pub use attempt::{AttemptRow, Outcome};
pub use causes::Causes;
pub use collect::{Collector, KindNumbers};
pub use failures::{FailureGroup, FailureKey};
pub use join::Joiner;
pub use record::{Meta, Record, RecordError, TaskRow};
pub use report::Report;
pub use view::{Lens, Sampling, View};
