//! A bag as bytes: where it is in the tree, not the nodes themselves.
//!
//! ```text
//! format | root | levels above | index of the child, each | frames | (next child, left), each
//! ```
//!
//! All numbers are varints: most levels take three bytes or fewer. Loading makes the nodes on the
//! path again, which takes one node of work for each level.

use std::sync::Arc;

use crate::{Problem, Skeleton, TreeBag};

const FORMAT: u64 = 1;

/// The reason why saved bytes are not a bag of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    #[error("the saved bag ends too early")]
    Truncated,
    #[error("the saved bag has format {0}, which this version does not know")]
    Format(u64),
    #[error("the saved bag names a node at level {level} that the problem does not have")]
    NoNode { level: usize },
    #[error("the saved bag has bytes after its end")]
    Trailing,
}

impl<P: Problem, S: Skeleton> TreeBag<P, S> {
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        write_number(bytes, FORMAT);
        write_number(bytes, u64::from(self.root.is_some()));
        write_number(bytes, self.prefix.len() as u64);
        for index in &self.prefix {
            write_number(bytes, u64::from(*index));
        }
        write_number(bytes, self.frames.len() as u64);
        for frame in &self.frames {
            write_number(bytes, u64::from(frame.taken));
            write_number(bytes, u64::from(frame.left));
        }
    }

    pub(crate) fn read(problem: Arc<P>, skeleton: S, bytes: &[u8]) -> Result<Self, LoadError> {
        let mut rest = bytes;
        let rest = &mut rest;
        let format = read_number(rest)?;
        if format != FORMAT {
            return Err(LoadError::Format(format));
        }
        let mut bag = Self::empty(problem, skeleton);
        if read_number(rest)? != 0 {
            bag.root = Some(bag.problem.root());
        }
        let mut node = bag.problem.root();
        for level in 0..read_number(rest)? {
            let index = read_index(rest)?;
            let mut children = bag.problem.children(node);
            node = bag.child(&mut children, index).ok_or_else(|| no_node(level))?;
            bag.prefix.push(index);
        }
        let frames = read_number(rest)?;
        let mut node = Some(node);
        for frame in 0..frames {
            let level = bag.prefix.len() as u64 + frame;
            let (taken, left) = (read_index(rest)?, read_index(rest)?);
            let parent = node.take().ok_or_else(|| no_node(level))?;
            let bound = if S::BOUNDS { bag.problem.bound(&parent, P::GOAL.worst()) } else { 0 };
            let mut children = bag.problem.children(parent);
            let all = bag.problem.left(&children);
            if taken.checked_add(left).is_none_or(|end| end > all) {
                return Err(no_node(level));
            }
            // The next frame has the children of the child that was taken last.
            if taken > 0 {
                node = bag.child(&mut children, taken - 1);
            }
            bag.open(children, left, taken, bound);
        }
        if rest.is_empty() { Ok(bag) } else { Err(LoadError::Trailing) }
    }

    fn child(&self, children: &mut P::Children, index: u32) -> Option<P::Node> {
        if index >= self.problem.left(children) {
            return None;
        }
        self.problem.skip(children, index);
        self.problem.next(children)
    }
}

fn no_node(level: u64) -> LoadError {
    LoadError::NoNode { level: usize::try_from(level).unwrap_or(usize::MAX) }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn read_number(rest: &mut &[u8]) -> Result<u64, LoadError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(LoadError::Truncated)?;
        *rest = after;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has one bit of the number.
        if shift == 63 && bits > 1 {
            return Err(LoadError::Truncated);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(LoadError::Truncated)
}

fn read_index(rest: &mut &[u8]) -> Result<u32, LoadError> {
    u32::try_from(read_number(rest)?).map_err(|_| LoadError::NoNode { level: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_64_bits() {
        for number in [0, 0x7f, 0x80, u64::MAX] {
            let mut bytes = Vec::new();
            write_number(&mut bytes, number);
            assert_eq!(read_number(&mut bytes.as_slice()), Ok(number));
        }
        let with_last = |byte: u8| {
            let mut bytes = vec![0xff_u8; 9];
            bytes.push(byte);
            read_number(&mut bytes.as_slice())
        };
        assert_eq!(with_last(0x01), Ok(u64::MAX));
        for wrong in [0x02, 0x7f, 0x81, 0xff] {
            assert_eq!(with_last(wrong), Err(LoadError::Truncated), "{wrong}");
        }
    }
}
