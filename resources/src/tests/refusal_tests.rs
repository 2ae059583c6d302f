//! The texts of refusals.

use super::{claim, pools, request};
use crate::Pools;

fn machine() -> Pools {
    let texts = ["cpus=2x4", "gpus/nvidia=[[a],[b]]", "memory=sum(8GiB)", "avx512"];
    pools(&texts, &["cpus[0]:gpus/nvidia[0]", "cpus[1]:gpus/nvidia[1]"])
}

fn why(pools: &Pools, text: &str) -> String {
    let refusal = pools.refusal(&request(text)).unwrap_or_else(|| panic!("{text} fits"));
    let permanent = pools.resolve(&request(text)).is_err();
    assert_eq!(refusal.is_permanent(), permanent, "{text}");
    format!("{}: {refusal}", if permanent { "never" } else { "now" })
}

#[test]
fn a_request_that_never_fits_names_each_obstacle() {
    let pools = machine();
    let never = |text| why(&pools, text);
    assert_eq!(never("cpus=9"), "never: cpus=9: the node has 8 in all");
    assert_eq!(never("gpus=2.5"), "never: gpus=2.5: the node has 2 in all");
    assert_eq!(never("memory=9GiB"), "never: memory=9GiB: the node has 8GiB in all");
    assert_eq!(never("fpgas=1"), "never: the node has no fpgas");
    assert_eq!(never("mem0ry=1"), "never: the node has no mem0ry; it has memory");
    assert_eq!(never("label=avx2"), "never: the node lacks the label avx2");
    assert_eq!(never("avx512=1"), "never: avx512 is a label of the node, without amount");
    assert_eq!(
        never("gpus=1,gpus/nvidia=1"),
        "never: gpus and gpus/nvidia are the same pool of this node"
    );
    assert_eq!(
        never("cpus=9,fpgas=1,label=x"),
        "never: the node lacks the label x, cpus=9: the node has 8 in all, the node has no fpgas"
    );
    assert_eq!(
        never("cpus=9|gpus=3"),
        "never: variant 1: cpus=9: the node has 8 in all; \
         variant 2: gpus=3: the node has 2 in all"
    );
    assert!(pools.refusal(&request("cpus=8,gpus=all,memory=8GiB,label=avx512")).is_none());
}

#[test]
fn a_request_that_does_not_fit_now_names_the_free_amounts() {
    let mut pools = machine();
    let _first = claim(&mut pools, "cpus=7,gpus=1,memory=7GiB").unwrap();
    let _second = claim(&mut pools, "cpus=0.5,gpus=0.75").unwrap();
    let now = |text| why(&pools, text);
    assert_eq!(now("cpus=2"), "now: cpus=2: 0.5 of 8 is free");
    assert_eq!(now("memory=2GiB,cpus=0.1"), "now: memory=2GiB: 1GiB of 8GiB is free");
    assert_eq!(now("gpus=0.5,cpus=0.1"), "now: gpus=0.5: 0.25 of 2 is free");
    assert_eq!(now("cpus=all"), "now: cpus=all: 0.5 of 8 is free");
    assert_eq!(
        now("cpus=9|gpus=1,cpus=0.1"),
        "now: variant 1: cpus=9: the node has 8 in all; \
         variant 2: gpus=1: 0.25 of 2 is free"
    );
}

#[test]
fn parts_of_several_indices_are_not_one_index() {
    let mut pools = pools(&["cpus=[0,1]"], &[]);
    let claims = ["cpus=0.75", "cpus=0.75"].map(|text| claim(&mut pools, text).unwrap());
    assert_eq!(
        why(&pools, "cpus=0.5"),
        "now: cpus=0.5: no index has enough free; the largest free part is 0.25"
    );
    claims.into_iter().for_each(|claim| pools.free(claim));
    assert!(pools.refusal(&request("cpus=2")).is_none());
}

#[test]
fn strict_policies_name_the_groups() {
    let mut pools = machine();
    let _one = claim(&mut pools, "cpus=1").unwrap();
    let _other = claim(&mut pools, "cpus=4 compact!").unwrap();
    let _third = claim(&mut pools, "cpus=1,gpus=1").unwrap();
    assert!(pools.refusal(&request("cpus=2 compact!")).is_none());
    assert_eq!(
        why(&pools, "cpus=2 scatter!"),
        "now: cpus=2 scatter!: it would have 1 group now, and 2 groups on the empty node"
    );
    let mut pools = super::pools(&["cpus=2x4"], &[]);
    let _all = ["cpus=4 scatter", "cpus=1"].map(|text| claim(&mut pools, text).unwrap());
    assert_eq!(
        why(&pools, "cpus=3 compact!"),
        "now: cpus=3 compact!: it would have 2 groups now, and 1 group on the empty node"
    );
}

#[test]
fn strict_needs_that_are_coupled_stay_together() {
    let mut pools = machine();
    let _gpu = claim(&mut pools, "cpus=1 compact!,gpus=1 compact!").unwrap();
    let _cpus = claim(&mut pools, "cpus=4 compact!").unwrap();
    assert_eq!(
        why(&pools, "cpus=1 compact!,gpus=1 compact!"),
        "now: the free groups of cpus, gpus are not near each other"
    );
    assert!(pools.refusal(&request("cpus=1,gpus=1")).is_none(), "the loose form does not wait");
}
