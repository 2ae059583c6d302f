/*!
Authentication: the keys of an instance, the tokens for machines without them, and TLS. Clients and
nodes use it for all connections.

The first node of an instance creates an authority (a key, and a certificate that signs others) and
one certificate for each [`Role`]. Both sides of every connection present one. A peer without a
certificate of the authority learns nothing and costs little.

* [`Keyring`] is the key directory, and [`Bundle`] one of its files.
* [`Token`] transfers keys to machines that do not share the directory.
* [`tls`] has the connection settings, and [`dial`] the client side of a gRPC channel.
* [`race`] chooses one of several addresses; [`interfaces`] lists the addresses of this machine.
* [`once`] creates a file exactly once among several processes.
* [`random`], [`to_hex`] and [`from_hex`] make secrets and their texts.

This crate never decides on the permissions of a role (the node does), and never listens.
*/

mod authority;
pub mod dial;
mod error;
mod files;
pub mod interfaces;
mod keyring;
pub mod once;
pub mod race;
pub mod tls;
mod token;

pub use authority::{Authority, Validity};
pub use dial::Dialer;
pub use error::KeyError;
pub use files::{from_hex, random, random_number, to_hex};
pub use keyring::{Bundle, Keyring};
pub use token::{SECRET_BYTES, Token, Tokens};

/// The permissions class in a certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// May read.
    Observer,
    /// May submit, cancel, write, change settings and stop nodes.
    Client,
    /// May act as a node.
    Node,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Observer, Self::Client, Self::Node];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Observer => "observer",
            Self::Client => "client",
            Self::Node => "node",
        }
    }

    /// The host name in a certificate of this role.
    pub(crate) fn host(self) -> &'static str {
        match self {
            Self::Observer => "observer.starling",
            Self::Client => "client.starling",
            Self::Node => "node.starling",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
