//! What a part keeps for the clients of an open job.

use super::*;
use crate::limits::INLINE_HELD_BYTES_MAX;

fn inline(part: &OpenPart, index: u64) -> Option<&[u8]> {
    part.inline.get(&index).map(Vec::as_slice)
}

#[test]
fn small_values_are_those_of_the_last_end_until_their_release() {
    let mut part = OpenPart::default();
    part.add_end(1, "", b"first".to_vec());
    part.add_end(2, "", Vec::new());
    assert_eq!((inline(&part, 1), inline(&part, 2)), (Some(&b"first"[..]), None));
    part.add_end(1, "", Vec::new());
    assert_eq!((inline(&part, 1), part.inline_bytes), (None, 0));
    part.add_end(1, "failed", b"exception".to_vec());
    part.forget_inline(1);
    part.forget_inline(1);
    assert_eq!((inline(&part, 1), part.inline_bytes), (None, 0));
}

#[test]
fn small_values_are_bounded() {
    let mut part = OpenPart::default();
    part.add_end(1, "", vec![0; INLINE_HELD_BYTES_MAX]);
    part.add_end(2, "", vec![0]);
    assert_eq!((part.inline.len(), part.inline_bytes), (1, INLINE_HELD_BYTES_MAX));
    part.forget_inline(1);
    part.add_end(2, "", vec![0]);
    assert_eq!((part.inline.len(), part.inline_bytes), (1, 1));
}

#[test]
fn reasons_of_failures_are_bounded() {
    let mut part = OpenPart::default();
    part.add_end(1, &"e".repeat(INLINE_HELD_BYTES_MAX), Vec::new());
    part.add_end(2, "e", Vec::new());
    assert_eq!((part.errors.len(), part.errors_bytes), (1, INLINE_HELD_BYTES_MAX));
    part.add_end(1, "", Vec::new());
    assert_eq!((part.errors.len(), part.errors_bytes), (0, 0));
}
