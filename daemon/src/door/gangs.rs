//! The gangs of the commands that reach this node: those of its own attempts, and those in a part
//! of a gang.

use std::collections::HashMap;
use std::sync::Arc;

use proto::work::GangNode;

use crate::door::attempts::Key;
use crate::door::token::Token;

/// The nodes of a gang, its first one first.
pub(crate) type Gang = Arc<[GangNode]>;

#[derive(Debug, Default)]
pub(super) struct Gangs(HashMap<Token, (Key, Gang)>);

impl Gangs {
    /// Commands with this token belong to the gang of an attempt.
    pub(super) fn admit(&mut self, token: Token, key: Key, gang: Gang) {
        self.0.insert(token, (key, gang));
    }
    pub(super) fn of_token(&self, token: Token) -> Option<(Key, Gang)> {
        self.0.get(&token).cloned()
    }
    pub(super) fn forget(&mut self, token: Token) {
        self.0.remove(&token);
    }
    /// The attempt has ended, or its part on this node has.
    pub(super) fn dismiss(&mut self, key: Key) {
        if !self.0.is_empty() {
            self.0.retain(|_, (of, _)| *of != key);
        }
    }
}
