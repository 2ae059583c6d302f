/*!
Who may come in: the keys of an instance, the tokens by which other machines get them, and TLS.

The first node of an instance makes an authority (a key and a certificate that signs others) and one
certificate for each [`Role`]. Both sides of every connection show theirs; whoever has none that the
authority signed learns nothing and costs little. [`Keyring`] is the files, [`Bundle`] one of
them, [`Token`] how they get to a directory that is not shared, [`tls`] the settings of the
connections, [`dial`] the asking side of a gRPC channel.

It never decides what a role may do (the node does), and never listens.
*/

mod authority;
pub mod dial;
mod error;
mod files;
mod keyring;
pub mod tls;
mod token;

pub use authority::{Authority, Validity};
pub use dial::Dialer;
pub use error::KeyError;
pub use files::random_number;
pub use keyring::{Bundle, Keyring};
pub use token::{SECRET_BYTES, Token, Tokens};

/// What a certificate says of its owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// May read.
    Observer,
    /// May submit, cancel, write, change settings and stop nodes.
    Client,
    /// May speak for a node.
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

    /// The name that a certificate of this role is for.
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
