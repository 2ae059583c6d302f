//! Random claims on small nodes, each compared with the slow model. The seeded bugs must be found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::brute_force::Book;
use crate::{
    Amount, Claim, Coupling, GroupRef, Mutant, Name, Offer, Policy, Pool, Pools, Quantity, Request,
    Shape, Variant, Want,
};

const SEEDS: u64 = 2_000;
const STEPS: usize = 40;

/// xorshift64*: the same numbers for a seed on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        high as usize % bound
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

fn name(text: &str) -> Name {
    Name::pool(text).unwrap()
}

fn random_offer(random: &mut Random) -> Offer {
    let mut pools = vec![Pool::label(Name::label("fast").unwrap())];
    let mut ends = Vec::new();
    for (text, most) in [("cpus", 4), ("gpus", 3)] {
        if text == "gpus" && random.chance(4) {
            continue;
        }
        let sizes: Vec<usize> = (0..=random.below(most)).map(|_| 1 + random.below(3)).collect();
        let mut number = 0;
        let groups = sizes.iter().map(|&size| {
            number += size;
            (number - size..number).map(|index| format!("{text}{index}")).collect()
        });
        pools.push(Pool::indexed(name(text), groups.collect()).unwrap());
        ends.extend((0..sizes.len()).map(|group| GroupRef { pool: name(text), group }));
    }
    let memory = Amount::from_units(1 + random.below(100_000) as u64);
    pools.push(Pool::sum(name("memory"), memory).unwrap());
    let mut couplings = Vec::new();
    if random.chance(2) {
        for (at, left) in ends.iter().enumerate() {
            for right in &ends[at + 1..] {
                if random.chance(3) {
                    let weight = random.pick(&[1, 2, 256]);
                    couplings.push(Coupling::new(left.clone(), right.clone(), weight));
                }
            }
        }
    }
    Offer::new(pools, couplings).unwrap()
}

fn random_want(random: &mut Random, pool: &str) -> Want {
    let quantity = match random.below(10) {
        0 => Quantity::All,
        1..3 => Quantity::Amount(Amount::from_units(random.pick(&[1, 2_500, 5_000, 7_500, 9_999]))),
        3 => Quantity::Amount(Amount::from_units(random.pick(&[12_500, 20_001, 27_500]))),
        _ => Quantity::Amount(Amount::whole(1 + random.below(5) as u64).unwrap()),
    };
    let shape = random.pick(&[Shape::Compact, Shape::Tight, Shape::Scatter]);
    Want::new(name(pool), quantity, Policy { shape, strict: random.chance(3) })
}

fn random_request(random: &mut Random) -> Request {
    if random.chance(5) {
        return Request::one_cpu();
    }
    let mut variants = Vec::new();
    for _ in 0..=random.below(2) {
        let mut wants = vec![random_want(random, "cpus")];
        for pool in ["gpus", "memory"] {
            if random.chance(2) {
                wants.push(random_want(random, pool));
            }
        }
        let label = if random.chance(10) { "slow" } else { "fast" };
        let labels = if random.chance(4) { vec![Name::label(label).unwrap()] } else { vec![] };
        variants.push(Variant::new(wants, labels, random.pick(&[1, 1, 2])).unwrap());
    }
    Request::new(variants.clone()).unwrap_or_else(|_| Request::new(variants[..1].to_vec()).unwrap())
}

/// The variants of a request in the order of trying.
fn by_weight(request: &Request) -> Vec<(usize, &Variant)> {
    let mut variants: Vec<_> = request.variants().iter().enumerate().collect();
    variants.sort_by_key(|(_, variant)| u16::MAX - variant.weight());
    variants
}

/// One seed: claims and frees in random order. An error names the difference from the model.
fn run(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let offer = random_offer(&mut random);
    let mut pools = Pools::with_mutant(offer.clone(), mutant);
    let mut twin = Pools::with_mutant(offer.clone(), mutant);
    let (fresh, empty) = (pools.clone(), Book::new(offer.clone()));
    let mut book = empty.clone();
    let mut claims: Vec<(Claim, Claim)> = Vec::new();
    for _ in 0..STEPS {
        if random.chance(3) && !claims.is_empty() {
            let (claim, same) = claims.swap_remove(random.below(claims.len()));
            book.enter(&claim, false)?;
            pools.free(claim);
            twin.free(same);
        } else {
            let request = random_request(&mut random);
            let claim = try_claim(&mut pools, &book, &empty, &request)
                .map_err(|error| format!("{request}: {error}"))?;
            let same = twin.resolve(&request).ok().and_then(|fit| twin.claim(&fit));
            if claim != same {
                return Err(format!("{request}: two equal nodes claim {claim:?} and {same:?}"));
            }
            if let Some(claim) = claim {
                book.enter(&claim, true).map_err(|error| format!("{request}: {error}"))?;
                claims.extend(same.map(|same| (claim, same)));
            }
        }
        for (at, pool) in offer.pools().iter().enumerate() {
            let (ours, theirs) = (pools.free_amount(&pool.name), book.free_amount(at));
            if ours != theirs {
                return Err(format!("{}: {ours:?} is free, and {theirs:?} should be", pool.name));
            }
        }
    }
    claims.into_iter().for_each(|(claim, _)| pools.free(claim));
    if pools == fresh { Ok(()) } else { Err("the freed node differs from the empty one".into()) }
}

fn try_claim(
    pools: &mut Pools,
    book: &Book,
    empty: &Book,
    request: &Request,
) -> Result<Option<Claim>, String> {
    let variants = by_weight(request);
    let fit = match pools.resolve(request) {
        Ok(fit) => fit,
        Err(refusal) if variants.iter().any(|(_, variant)| empty.fits(variant)) => {
            return Err(format!("refused permanently: {refusal}"));
        }
        Err(_) => return Ok(None),
    };
    if !variants.iter().any(|(_, variant)| empty.fits(variant)) {
        return Err("it is accepted and never fits".to_owned());
    }
    let expected = variants.iter().find(|(_, variant)| book.fits(variant));
    let (fits_now, refusal) = (pools.fits_now(&fit), pools.refusal(request));
    let claim = pools.claim(&fit);
    let got = claim.as_ref().map(|claim| usize::from(claim.variant()));
    if got != expected.map(|(number, _)| *number) {
        return Err(format!("claims {claim:?}, and {expected:?} fits"));
    }
    if fits_now != claim.is_some() || refusal.is_none() != claim.is_some() {
        return Err(format!("the refusal is {refusal:?} and the claim {claim:?}"));
    }
    if let (Some(claim), Some((_, variant))) = (&claim, expected)
        && !request.is_one_cpu()
    {
        book.check_choice(variant, claim)?;
    }
    Ok(claim)
}

#[test]
fn claims_agree_with_the_slow_model() {
    for seed in 0..SEEDS {
        run(seed, None).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn every_seeded_bug_is_found() {
    for mutant in Mutant::ALL {
        let is_found = |seed| {
            let run = catch_unwind(AssertUnwindSafe(|| run(seed, Some(mutant))));
            !matches!(run, Ok(Ok(())))
        };
        assert!((0..SEEDS).any(is_found), "no seed finds {}", mutant.name());
    }
}
