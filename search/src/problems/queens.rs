//! The number of ways to place N queens on a board of N x N, none of which attacks another.

use crate::Problem;
use crate::problems::ProblemError;

/// A board of this size takes years.
const SIZE_MAX: u32 = 20;

/// A board.
#[derive(Clone, Copy, Debug)]
pub struct Queens {
    size: u32,
}

/// A board with queens in its first rows, as seen from the next row.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The columns that have a queen.
    columns: u32,
    /// The columns that a queen attacks along one diagonal or the other.
    left: u32,
    right: u32,
}

/// The boards with one queen more.
#[derive(Clone, Copy, Debug)]
pub struct Children {
    board: Node,
    /// The columns of the next row that are free and not tried yet.
    free: u32,
}

impl Queens {
    pub fn new(size: u32) -> Self {
        Self { size: size.min(SIZE_MAX) }
    }

    pub fn named(argument: &str) -> Result<Self, ProblemError> {
        let size = argument.parse().ok().filter(|size| (1..=SIZE_MAX).contains(size));
        size.map(Self::new).ok_or_else(|| {
            ProblemError::name(
                format!("'{argument}' is no size of a board"),
                format!("give a number from 1 to {SIZE_MAX}: queens:13"),
            )
        })
    }

    fn all(&self) -> u32 {
        (1 << self.size) - 1
    }
}

impl Problem for Queens {
    type Node = Node;
    type Children = Children;

    fn root(&self) -> Node {
        Node { columns: 0, left: 0, right: 0 }
    }

    #[inline]
    fn children(&self, board: Node) -> Children {
        Children { board, free: self.all() & !(board.columns | board.left | board.right) }
    }

    #[inline]
    fn next(&self, children: &mut Children) -> Option<Node> {
        if children.free == 0 {
            return None;
        }
        let column = children.free & children.free.wrapping_neg();
        children.free ^= column;
        let Node { columns, left, right } = children.board;
        Some(Node {
            columns: columns | column,
            left: (left | column) << 1,
            right: (right | column) >> 1,
        })
    }

    #[inline]
    fn left(&self, children: &Children) -> u32 {
        children.free.count_ones()
    }

    /// 1 for a board that is full.
    #[inline]
    fn value(&self, board: &Node) -> Option<i64> {
        (board.columns == self.all()).then_some(1)
    }
}
