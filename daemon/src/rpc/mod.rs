//! Streams to clients and peers, and the stubs of the services; their messages are those of
//! [`proto::wire`].

pub(crate) mod addresses;
pub mod authorization;
mod kv_service;
pub(crate) mod links;
pub(crate) mod listen_addresses;
pub(crate) mod listener;
pub(crate) mod peers;
pub(crate) mod replies;
pub(crate) mod service;
pub(crate) mod tls_context;
pub(crate) mod unauthenticated;

mod stubs {
    #![expect(
        clippy::allow_attributes,
        clippy::too_many_lines,
        unused_qualifications,
        reason = "generated code"
    )]
    include!(concat!(env!("OUT_DIR"), "/starling.v1.rs"));
}

pub use stubs::*;
