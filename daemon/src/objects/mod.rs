//! Transfer of bytes between nodes: objects, uploaded files, printed output.

pub(crate) mod captured;
pub(crate) mod copies;
pub(crate) mod data;
pub(crate) mod functions;
pub(crate) mod output_removal;
pub(crate) mod transfer;
pub(crate) mod upload;
pub(crate) mod upload_search;

pub(crate) use transfer::Transfers;
