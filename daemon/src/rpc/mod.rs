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
pub(crate) mod rsh;
pub(crate) mod service;
pub(crate) mod tls_context;
pub(crate) mod unauthenticated;

/// The maximum number of data connections that a node serves.
const DATA_CONNECTIONS_MAX: usize = 512;
/// The maximum number of RPC connections of one node.
const CONNECTIONS_MAX: usize = 4096;
/// Of these, the connections of clients and observers, which leave the rest to nodes.
const CLIENT_CONNECTIONS_MAX: usize = 3072;

/// The maximum number of connections served at a time. Values below the default are for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Connections for calls.
    pub connections: usize,
    /// Of these, the connections of clients and observers.
    pub client_connections: usize,
    /// Connections on which objects are sent.
    pub data_connections: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            client_connections: CLIENT_CONNECTIONS_MAX,
            data_connections: DATA_CONNECTIONS_MAX,
        }
    }
}

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
