/*!
Tokens: each gives the keys once, for a limited time, to a machine that does not share the
directory.

A token consists of a secret and the fingerprint of the authority. The joining machine checks the
fingerprint inside TLS before it sends the secret. So neither an eavesdropper nor an impostor learns
the secret. The node stores a hash of the secret and the expiry time in a file. Of several joining
machines, the one for which the node removes this file receives the keys.
*/

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use rustls::pki_types::UnixTime;
use serde::{Deserialize, Serialize};

use crate::KeyError;
use crate::files::{
    create_once, from_hex, make_private_dir, random, read_private, sync_parent, to_hex,
};

/// The maximum number of unused tokens.
const TOKENS_MAX: usize = 64;

pub const SECRET_BYTES: usize = 32;

/// The text for the joining machine: 128 hexadecimal characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    secret: [u8; SECRET_BYTES],
    pub(crate) fingerprint: [u8; 32],
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&to_hex(&self.secret))?;
        f.write_str(&to_hex(&self.fingerprint))
    }
}

impl std::str::FromStr for Token {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let wrong = KeyError::Token("it has 128 hexadecimal characters");
        let Some((secret, fingerprint)) = text.trim().split_at_checked(2 * SECRET_BYTES) else {
            return Err(wrong);
        };
        match (from_hex(secret), from_hex(fingerprint)) {
            (Some(secret), Some(fingerprint)) => Ok(Self { secret, fingerprint }),
            _ => Err(wrong),
        }
    }
}

impl Token {
    #[must_use]
    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }
}

#[derive(Serialize, Deserialize)]
struct Promise {
    until_s: u64,
}

/// The unused tokens of an instance.
#[derive(Clone, Debug)]
pub struct Tokens {
    dir: PathBuf,
}

impl Tokens {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The file name is a hash, so a copy of the directory contains no secret, and no comparison
    /// depends on a secret.
    fn path(&self, secret: &[u8; SECRET_BYTES]) -> PathBuf {
        self.dir.join(to_hex(digest(&SHA256, secret).as_ref()))
    }

    /// Creates a token. `fingerprint` is the authority's.
    pub fn make(&self, fingerprint: [u8; 32], life: Duration) -> Result<Token, KeyError> {
        make_private_dir(&self.dir)?;
        let count = self.sweep()?;
        if count >= TOKENS_MAX {
            return Err(KeyError::TooManyTokens { count });
        }
        let token = Token { secret: random()?, fingerprint };
        let promise = Promise { until_s: UnixTime::now().as_secs() + life.as_secs() };
        let text = serde_json::to_string(&promise).expect("a number always serialises");
        create_once(&self.path(&token.secret), &text)?;
        Ok(token)
    }

    /// Removes expired tokens and counts the others.
    fn sweep(&self) -> Result<usize, KeyError> {
        let failed = |error| KeyError::io("read", &self.dir, error);
        let mut count = 0;
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if holds(&path) {
                count += 1;
            } else {
                let _ = fs::remove_file(&path); // Another process may have removed it.
            }
        }
        Ok(count)
    }

    /// Redeems a secret: true for the first caller with a valid, unexpired one.
    #[must_use]
    pub fn redeem(&self, secret: &[u8; SECRET_BYTES]) -> bool {
        let path = self.path(secret);
        let in_time = holds(&path);
        // The removal decides the winner, also on a shared file system, and must be durable.
        fs::remove_file(&path).is_ok() && sync_parent(&path).is_ok() && in_time
    }
}

fn holds(path: &std::path::Path) -> bool {
    let promise = read_private(path).ok().and_then(|it| serde_json::from_str::<Promise>(&it).ok());
    promise.is_some_and(|it| UnixTime::now().as_secs() < it.until_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_once_and_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::new(dir.path().join("tokens"));
        let token = tokens.make([7; 32], Duration::from_secs(60)).unwrap();
        let read: Token = format!(" {token}\n").parse().unwrap();
        assert_eq!(read, token);
        let mut forged = *token.secret();
        forged[0] ^= 1;
        assert!(!tokens.redeem(&forged));
        let redeemed = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| tokens.redeem(token.secret()))).collect();
            threads.into_iter().map(|it| it.join().unwrap()).filter(|it| *it).count()
        });
        assert_eq!(redeemed, 1);
        let late = tokens.make([7; 32], Duration::ZERO).unwrap();
        assert!(!tokens.redeem(late.secret()));
    }

    #[test]
    fn tokens_are_bounded_and_those_that_ended_make_room() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::new(dir.path().to_path_buf());
        for _ in 0..TOKENS_MAX {
            tokens.make([7; 32], Duration::ZERO).unwrap();
        }
        for _ in 0..TOKENS_MAX {
            tokens.make([7; 32], Duration::from_secs(60)).unwrap();
        }
        let error = tokens.make([7; 32], Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, KeyError::TooManyTokens { count } if count == TOKENS_MAX));
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for text in ["", "abc", &"g".repeat(128), &"a".repeat(127), &"é".repeat(64)] {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
