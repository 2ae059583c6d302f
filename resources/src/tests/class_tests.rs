//! Classes: numbers of equal requests.

use super::request;
use crate::{ClassId, Request, class_of_bytes};

/// The number travels between nodes and versions.
#[test]
fn the_class_of_a_request_never_changes() {
    let class = |request: &Request| class_of_bytes(&request.encode());
    assert_eq!(class(&Request::one_cpu()), ClassId(0x2d06_8005_38d3_94c2), "xxh3 of no bytes");
    assert_eq!(class(&request("cpus=2,gpus=1")), class(&request("gpus=1,cpus=2")));
    assert_ne!(class(&request("cpus=2")), class(&request("cpus=2 tight")));
}
