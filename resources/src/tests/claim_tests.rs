//! Claims by example.

use super::{claim, indices, pools, request};
use crate::{Amount, Claim, Name, Offer, Pool, Pools};

fn cpus(pools: &mut Pools, text: &str) -> String {
    match claim(pools, text) {
        Some(claim) => indices(pools, &claim, "cpus"),
        None => "none".to_owned(),
    }
}

#[test]
fn the_three_shapes_choose_groups() {
    let fresh = || pools(&["cpus=3x4"], &[]);
    assert_eq!(cpus(&mut fresh(), "cpus=6"), "0,1,2,4,5,6");
    assert_eq!(cpus(&mut fresh(), "cpus=6 tight"), "0,1,2,3,4,5");
    assert_eq!(cpus(&mut fresh(), "cpus=6 scatter"), "0,1,4,5,8,9");
    assert_eq!(cpus(&mut fresh(), "cpus=2 scatter"), "0,4");
}

#[test]
fn small_claims_fill_the_fullest_group_first() {
    let mut pools = pools(&["cpus=2x4"], &[]);
    let first = claim(&mut pools, "cpus=2").unwrap();
    assert_eq!(cpus(&mut pools, "cpus=1"), "2");
    assert_eq!(cpus(&mut pools, "cpus=4 compact!"), "4,5,6,7");
    pools.free(first);
    assert_eq!(cpus(&mut pools, "cpus=3"), "0,1,3");
    assert_eq!(cpus(&mut pools, ""), "none");
}

#[test]
fn compact_uses_more_groups_when_it_must_and_strict_waits() {
    let mut pools = pools(&["cpus=2x4"], &[]);
    let held = claim(&mut pools, "cpus=2 scatter").unwrap();
    assert_eq!(cpus(&mut pools, "cpus=4 compact!"), "none");
    let loose = claim(&mut pools, "cpus=4").unwrap();
    assert_eq!(indices(&pools, &loose, "cpus"), "1,2,5,6");
    pools.free(loose);
    pools.free(held);
    assert_eq!(cpus(&mut pools, "cpus=4 compact!"), "0,1,2,3");
}

#[test]
fn parts_share_an_index() {
    let mut pools = pools(&["cpus=[0-3]"], &[]);
    assert_eq!(cpus(&mut pools, "cpus=0.5"), "0");
    assert_eq!(cpus(&mut pools, "cpus=0.75"), "1");
    assert_eq!(cpus(&mut pools, "cpus=0.25"), "1", "the smallest part that is enough");
    assert_eq!(cpus(&mut pools, "cpus=1.5"), "2,0", "the part is the last one");
    assert_eq!(cpus(&mut pools, "cpus=1.1"), "none");
    assert_eq!(cpus(&mut pools, "cpus=1"), "3");
    assert_eq!(pools.free_amount(&Name::cpus()), Some(Amount::ZERO));
}

#[test]
fn parts_come_back_exactly() {
    let mut pools = pools(&["cpus=[0]"], &[]);
    let before = pools.clone();
    let parts: Vec<Claim> = (0..3).map(|_| claim(&mut pools, "cpus=0.3333").unwrap()).collect();
    assert_eq!(pools.free_amount(&Name::cpus()), Some(Amount::from_units(1)));
    assert!(claim(&mut pools, "cpus=0.0002").is_none());
    let last = claim(&mut pools, "cpus=0.0001").unwrap();
    parts.into_iter().chain([last]).for_each(|claim| pools.free(claim));
    assert_eq!(pools, before);
}

#[test]
fn all_is_the_whole_pool_or_nothing() {
    let mut pools = pools(&["cpus=2x2", "memory=sum(1GiB)"], &[]);
    let one = claim(&mut pools, "").unwrap();
    assert_eq!(cpus(&mut pools, "cpus=all"), "none");
    pools.free(one);
    let all = claim(&mut pools, "cpus=all,memory=all").unwrap();
    assert_eq!(indices(&pools, &all, "cpus"), "0,1,2,3");
    assert_eq!(all.pools()[1].amount(), "1GiB".parse().unwrap());
    assert!(claim(&mut pools, "cpus=0.1,memory=1").is_none());
    pools.free(all);
    assert!(claim(&mut pools, "cpus=4,memory=1GiB").is_some());
}

#[test]
fn coupled_groups_are_claimed_together() {
    let texts = ["cpus=2x4", "gpus=[[a,b],[c,d]]"];
    let couplings = ["cpus[0]:gpus[1]", "cpus[1]:gpus[0]"];
    let mut node = pools(&texts, &couplings);
    let first = claim(&mut node, "cpus=2,gpus=1").unwrap();
    assert_eq!(indices(&node, &first, "cpus"), "0,1");
    assert_eq!(indices(&node, &first, "gpus"), "c");
    let second = claim(&mut node, "cpus=4,gpus=1").unwrap();
    assert_eq!(indices(&node, &second, "cpus"), "4,5,6,7");
    assert_eq!(indices(&node, &second, "gpus"), "a");
    let mut plain = pools(&texts, &[]);
    let first = claim(&mut plain, "cpus=2,gpus=1").unwrap();
    assert_eq!(indices(&plain, &first, "gpus"), "a");
}

#[test]
fn the_strongest_coupling_wins() {
    let couplings = ["cpus[0]:gpus[0]=64", "cpus[1]:gpus[1]=128"];
    let mut node = pools(&["cpus=2x4", "gpus=[[a],[b]]"], &couplings);
    let first = claim(&mut node, "cpus=2,gpus=1").unwrap();
    assert_eq!(
        (indices(&node, &first, "cpus"), indices(&node, &first, "gpus")),
        ("4,5".to_owned(), "b".to_owned())
    );
    let mut node = pools(&["cpus=4x2"], &["cpus[0]:cpus[1]", "cpus[2]:cpus[3]"]);
    let _held = claim(&mut node, "cpus=1").unwrap();
    let pair = claim(&mut node, "cpus=4 compact!").unwrap();
    assert_eq!(indices(&node, &pair, "cpus"), "4,5,6,7");
    assert_eq!(cpus(&mut node, "cpus=3 compact!"), "1,2,3");
}

#[test]
fn strict_needs_wait_for_the_groups_that_are_near_each_other() {
    let near = ["cpus[0]:gpus[0]", "cpus[1]:gpus[1]", "cpus[2]:gpus[2]", "cpus[3]:gpus[0]=1000"];
    for (couplings, waits) in [(&near[3..], false), (&near[..], true)] {
        let mut node = pools(&["cpus=[[0-3],[4-7],[8-11],[x]]", "gpus=3x2"], couplings);
        let first = claim(&mut node, "cpus=1,gpus=2").unwrap();
        assert_eq!(indices(&node, &first, "cpus") + &indices(&node, &first, "gpus"), "x0,1");
        let mut groups: Vec<Claim> =
            (0..3).map(|_| claim(&mut node, "cpus=4 compact!").unwrap()).collect();
        let _last = groups.pop();
        groups.into_iter().for_each(|claim| node.free(claim));
        // Free: four cpus in each of the groups 0 and 1; two gpus in each of the groups 1 and 2.
        let text = "cpus=8 compact!,gpus=4 compact!";
        assert_eq!(claim(&mut node, text).is_none(), waits);
    }
}

#[test]
fn the_heaviest_variant_that_fits_is_chosen() {
    let mut pools = pools(&["cpus=8", "gpus=[a]"], &[]);
    let text = "cpus=6|cpus=1,gpus=1,weight=5|cpus=2";
    let fit = pools.resolve(&request(text)).unwrap();
    let mut variants = Vec::new();
    while let Some(claim) = pools.claim(&fit) {
        variants.push(claim.variant());
    }
    assert_eq!(variants, [1, 0], "one cpu is left");
    assert!(!pools.fits_now(&fit));
}

#[test]
fn a_general_name_finds_its_kinds() {
    let mut node = pools(&["cpus=4", "gpus/amd=[a]", "gpus/nvidia=[b,c]"], &[]);
    let one = claim(&mut node, "gpus=1").unwrap();
    assert_eq!(indices(&node, &one, "gpus/amd"), "a");
    let two = claim(&mut node, "gpus=2").unwrap();
    assert_eq!(indices(&node, &two, "gpus/nvidia"), "b,c", "the first kind is too small");
}

#[test]
fn a_node_without_cpus_runs_nothing() {
    let node = pools(&["memory=sum(1GiB)"], &[]);
    assert!(node.resolve(&request("")).is_err());
    assert_eq!(node.resolve(&request("")).unwrap_err().to_string(), "the node has no cpus");
}

#[test]
fn many_groups_are_chosen_without_comparing_all_sets() {
    let couplings: Vec<String> = (0..32).map(|at| format!("cpus[{at}]:gpus[{at}]")).collect();
    let couplings: Vec<&str> = couplings.iter().map(String::as_str).collect();
    let mut node = pools(&["cpus=32x8", "gpus=32x1"], &couplings);
    let wide = claim(&mut node, "cpus=80 compact!,gpus=10 compact!").unwrap();
    let groups = |text: String, size: usize| {
        let numbers = text.split(',').map(|index| index.parse::<usize>().unwrap() / size);
        let mut groups: Vec<usize> = numbers.collect();
        groups.dedup();
        groups
    };
    let of_cpus = groups(indices(&node, &wide, "cpus"), 8);
    assert_eq!(of_cpus.len(), 10);
    assert_eq!(of_cpus, groups(indices(&node, &wide, "gpus"), 1));
    let before = node.clone();
    let more = claim(&mut node, "cpus=20 scatter,gpus=1.5").unwrap();
    node.free(more);
    assert_eq!(node, before);
}

#[test]
fn a_node_with_fewer_slots_keeps_the_names_of_its_first_cpus() {
    let names = |offer: &Offer| {
        let pools = Pools::new(offer.clone());
        let all = offer.pool(&Name::cpus()).and_then(Pool::amount).map_or(0, Amount::whole_part);
        (0..all as u16)
            .flat_map(|at| pools.indices(&Claim::Cpu(at), &Name::cpus()).pop())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let groups = vec![vec!["4".to_owned(), "6".to_owned()], vec!["5".to_owned(), "7".to_owned()]];
    let offer = Offer::new(vec![Pool::indexed(Name::cpus(), groups).unwrap()], vec![]).unwrap();
    assert_eq!(names(&offer.with_cpus(3).unwrap()), ["4", "6", "5"]);
    assert_eq!(names(&offer.with_cpus(5).unwrap()), ["0", "1", "2", "3", "4"]);
    assert_eq!(offer.with_cpus(4), None);
}

#[test]
fn a_rested_claim_gets_its_own_devices_again() {
    let mut pools = pools(&["cpus=[0-3]", "gpus=[a,b,c]", "memory=sum(10)"], &[]);
    let text = "cpus=2, gpus=1.5, memory=4";
    let first = claim(&mut pools, text).unwrap();
    let had = indices(&pools, &first, "gpus");
    let half = claim(&mut pools, "cpus=1, gpus=0.5").unwrap();
    let rested = pools.rest(first);
    let other = claim(&mut pools, "cpus=1, gpus=1").unwrap();
    assert_eq!(indices(&pools, &other, "gpus"), "a", "it was that of the first");
    assert_eq!(pools.claim_again(&rested), None, "another has its device");
    pools.free(other);
    let again = pools.claim_again(&rested).unwrap();
    assert_eq!(indices(&pools, &again, "gpus"), had);
    assert_eq!(indices(&pools, &again, "cpus"), "0,1", "those that are free");
    assert_eq!(pools.free_amount(&Name::memory()).unwrap().whole_part(), 6);
    pools.free(half);
    pools.free(again);
    assert_eq!(pools, super::pools(&["cpus=[0-3]", "gpus=[a,b,c]", "memory=sum(10)"], &[]));
}

#[test]
fn a_rested_sum_waits_for_its_amount() {
    let mut pools = pools(&["cpus=[0-3]", "memory=sum(10)"], &[]);
    let first = claim(&mut pools, "memory=6").unwrap();
    let rested = pools.rest(first);
    let other = claim(&mut pools, "memory=5").unwrap();
    assert_eq!(pools.claim_again(&rested), None);
    pools.free(other);
    let again = pools.claim_again(&rested).unwrap();
    pools.free(again);
}
