//! The secret of one attempt, by which its commands are known.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

const BYTES: usize = 16;

/// A random number that only the commands of one attempt have. It is never printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token([u8; BYTES]);

impl Token {
    /// `None` for bytes of another length.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The form in the environment of a command: hexadecimal digits.
    pub(crate) fn text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
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

/// Makes tokens from the random bytes of the system.
#[derive(Debug)]
pub(crate) struct TokenSource(File);

impl TokenSource {
    pub(crate) fn open() -> io::Result<Self> {
        File::open(Path::new("/dev/urandom")).map(Self)
    }

    pub(crate) fn draw(&self) -> io::Result<Token> {
        let mut bytes = [0; BYTES];
        (&self.0).read_exact(&mut bytes)?;
        Ok(Token(bytes))
    }
}
