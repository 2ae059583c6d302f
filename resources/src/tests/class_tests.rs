//! Classes: numbers for requests in use.

use super::request;
use crate::limits::CLASSES_MAX;
use crate::{ClassIndex, Classes, Request};

#[test]
fn one_cpu_has_the_number_0_without_an_entry_of_its_own() {
    let mut classes = Classes::default();
    assert_eq!(classes.acquire(&Request::one_cpu()), ClassIndex::ONE_CPU);
    assert_eq!(classes.acquire(&request("cpus=1")), ClassIndex::ONE_CPU);
    classes.release(ClassIndex::ONE_CPU);
    assert_eq!((classes.len(), classes.is_empty()), (1, false));
    assert_eq!(classes.request(ClassIndex::ONE_CPU), Some(&Request::one_cpu()));
}

#[test]
fn equal_requests_share_a_number_until_the_last_use_ends() {
    let mut classes = Classes::default();
    let first = classes.acquire(&request("cpus=2,gpus=1"));
    assert_eq!(classes.acquire(&request("gpus=1,cpus=2")), first);
    assert_eq!(classes.find(request("gpus=1,cpus=2").class()), Some(first));
    classes.release(first);
    assert!(classes.request(first).is_some());
    classes.release(first);
    assert_eq!(classes.request(first), None);
    assert_eq!(classes.acquire(&request("cpus=3")), first, "the number is free again");
}

#[test]
fn requests_beyond_the_bound_share_the_rest() {
    let mut classes = Classes::default();
    let of = |cpus: usize| request(&format!("cpus={}", cpus + 1));
    let numbers: Vec<ClassIndex> = (0..CLASSES_MAX).map(|n| classes.acquire(&of(n))).collect();
    assert!(!numbers.contains(&ClassIndex::REST) && classes.len() == CLASSES_MAX);
    assert_eq!(classes.acquire(&of(CLASSES_MAX)), ClassIndex::REST);
    classes.release(ClassIndex::REST);
    classes.release(numbers[7]);
    assert_eq!(classes.acquire(&of(CLASSES_MAX)), numbers[7]);
}

/// The number travels between nodes and versions.
#[test]
fn the_id_of_a_request_never_changes() {
    assert_eq!(Request::one_cpu().class().0, 0x2d06_8005_38d3_94c2, "xxh3 of no bytes");
    assert_ne!(request("cpus=2").class(), request("cpus=2 tight").class());
}
