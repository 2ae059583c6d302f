/*!
The live page of a cluster: a server for browsers on loopback.

* [`Source`] has the answers: a running cluster, or run records. The server never knows which.
* [`Guard`] refuses requests: of other sites, under other names, and without the token.
* [`serve`] answers requests; [`assets`] has the page, which `web/app` has the sources of.
* [`metrics`] writes the state of all nodes as OpenMetrics text.

Requests that change the cluster are refused unless [`Settings::allow_changes`] is set, and each of
them names its object again as a confirmation. This crate never connects to a node.
*/

pub mod assets;
mod changes;
mod guard;
pub mod metrics;
mod server;
mod source;

pub use guard::{Guard, Token};
pub use server::{Settings, serve};
pub use source::{Answer, Body, Change, Problem, ProblemKind, Question, Source, TaskFilter};
