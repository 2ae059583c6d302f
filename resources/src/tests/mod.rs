//! Tests of the whole crate: texts, bytes, classes, and claims against a slow model.

mod brute_force;
mod claim_tests;
mod class_tests;
mod random_claims;
mod refusal_tests;
mod text_tests;

use crate::{Claim, Offer, Pools, Request, parse_coupling, parse_pool};

/// An offer by the texts of its pools, couplings and labels.
fn offer(pools: &[&str], couplings: &[&str]) -> Offer {
    let pool = |text: &&str| match text.contains('=') {
        true => parse_pool(text).unwrap(),
        false => crate::Pool::label(crate::Name::label(text).unwrap()),
    };
    let couplings = couplings.iter().map(|text| parse_coupling(text).unwrap());
    Offer::new(pools.iter().map(pool).collect(), couplings.collect()).unwrap()
}

fn pools(texts: &[&str], couplings: &[&str]) -> Pools {
    Pools::new(offer(texts, couplings))
}

fn request(text: &str) -> Request {
    text.parse().unwrap()
}

fn claim(pools: &mut Pools, text: &str) -> Option<Claim> {
    let fit = pools.resolve(&request(text)).unwrap_or_else(|why| panic!("{text}: {why}"));
    pools.claim(&fit)
}

/// The indices of a claim: `0,1`.
fn indices(pools: &Pools, claim: &Claim, pool: &str) -> String {
    pools.indices(claim, &crate::Name::pool(pool).unwrap()).join(",")
}
