//! The secret of one attempt, by which its commands are known.

use std::fmt;

use proto::limits::DOOR_TOKEN_BYTES;
use security::KeyError;

/// A random number that only the commands of one attempt have. It is never printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; DOOR_TOKEN_BYTES]);

impl Token {
    /// # Errors
    /// The system returns no random numbers.
    pub(crate) fn draw() -> Result<Self, KeyError> {
        security::random().map(Self)
    }

    /// `None` for bytes of another length.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The form in the environment of a command: hexadecimal digits.
    pub(crate) fn text(self) -> String {
        security::to_hex(&self.0)
    }

    #[cfg(test)]
    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.to_vec()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}
