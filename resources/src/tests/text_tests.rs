//! Amounts, requests and offers as texts and as bytes.

use proptest::prelude::*;

use super::{offer, request};
use crate::{
    Amount, AmountError, Name, Offer, OfferError, Policy, Request, RequestError, parse_coupling,
    parse_pool, parse_want,
};

fn units(text: &str) -> Result<u64, AmountError> {
    text.parse::<Amount>().map(Amount::units)
}

#[test]
fn amounts_are_exact() {
    assert_eq!(units("2"), Ok(20_000));
    assert_eq!(units("0.25"), Ok(2_500));
    assert_eq!(units("0.0001"), Ok(1));
    assert_eq!(units("1.50000"), Ok(15_000));
    assert_eq!(units("1_000"), Ok(10_000_000));
    assert_eq!(units("2GiB"), Ok((2 << 30) * 10_000));
    assert_eq!(units(" 1.5 KiB "), Ok(1536 * 10_000));
    assert_eq!(units("1.2345678k"), Ok(12_345_678));
    assert_eq!(units("900TiB"), Ok((900 << 40) * 10_000));
    assert_eq!(units("7B"), Ok(70_000));
    assert!(matches!(units("0.00001"), Err(AmountError::TooFine(_))));
    assert!(matches!(units("0.0000000000000000001"), Err(AmountError::TooFine(_))));
    assert!(matches!(units("99999999999999999999"), Err(AmountError::TooLarge(_))));
    assert!(matches!(units("2000TiB"), Err(AmountError::TooLarge(_))));
    for wrong in ["", "-1", "+1", ".5", "1.", "1e3", "GiB", "1 2", "x", "_1", "1__", "1XB", "1BB"] {
        assert!(matches!(units(wrong), Err(AmountError::NotAnAmount(_))), "{wrong}");
    }
}

#[test]
fn amounts_print_as_they_are_read() {
    let text = |text: &str| text.parse::<Amount>().unwrap();
    assert_eq!(text("2.50").to_string(), "2.5");
    assert_eq!(text("0.0001").to_string(), "0.0001");
    assert_eq!(text("2GiB").as_size(), "2GiB");
    assert_eq!(text("1536MiB").as_size(), "1536MiB");
    assert_eq!(text("1000").as_size(), "1000");
}

#[test]
fn measured_amounts_round_up_to_an_eighth_of_an_octave() {
    let rounded = |text: &str| text.parse::<Amount>().unwrap().rounded_up();
    assert_eq!(rounded("2GiB"), "2GiB".parse().unwrap());
    assert_eq!(rounded("2049MiB"), "2304MiB".parse().unwrap());
    assert_eq!(Amount::from_units(u64::MAX).rounded_up().units(), u64::MAX);
    assert_eq!(Amount::ZERO.rounded_up(), Amount::ZERO);
}

#[test]
fn requests_are_read_and_printed() {
    let both = |text: &str| request(text).to_string();
    assert_eq!(both(""), "cpus=1");
    assert_eq!(both("gpus=0.5"), "cpus=1, gpus=0.5");
    assert_eq!(both("memory=2048MiB,cpus=8 compact!"), "cpus=8 compact!, memory=2GiB");
    assert_eq!(both("cpus=all tight!"), "cpus=all");
    assert_eq!(both("label=b,label=a,label=b,cpus=2 scatter"), "cpus=2 scatter, label=a, label=b");
    let two = "cpus=1, gpus=1, weight=2 | cpus=8 tight";
    assert_eq!(both(two), two);
    assert!(request("cpus=1").is_one_cpu() && !request("cpus=1,label=x").is_one_cpu());
}

#[test]
fn bad_requests_have_clear_errors() {
    let error = |text: &str| text.parse::<Request>().unwrap_err().to_string();
    assert_eq!(error("cpus=0"), "cpus=0 asks for nothing; the smallest amount is 0.0001");
    assert!(error("memory=0GiB").ends_with("asks for nothing; the smallest amount is 1MiB or so"));
    assert_eq!(error("cpus=1,cpus=2"), "cpus is asked for twice; give one amount");
    assert_eq!(error("gpus=1,label=gpus"), "gpus is asked for twice; give one amount");
    assert!(error("cpus").starts_with("'cpus' is not a need such as"));
    assert!(error("cpus=").starts_with("'cpus=' is not a need"));
    assert!(error("cpus=2 dense").starts_with("'dense' is not a policy"));
    assert!(error("cpus=2 compact!!").starts_with("'compact!!' is not a policy"));
    assert!(error("g pus=2").starts_with("'g pus' is not a name of a resource"));
    assert!(error("label=two words").starts_with("'two words' is not a label"));
    assert!(error("cpus=1,weight=0").starts_with("'0' is not a weight"));
    assert_eq!(
        error("gpus=1|cpus=2|gpus=1,weight=3"),
        "variants 1 and 3 ask for the same; remove one of them"
    );
    let many: Vec<String> = (1..=9).map(|cpus| format!("cpus={cpus}")).collect();
    assert_eq!(error(&many.join("|")), "a request has at most 8 variants, and this one has 9");
    let long = format!("{}=1", "x".repeat(65));
    assert_eq!(error(&long), "a name has at most 64 characters, and this one has 65");
    assert!(matches!(Request::new(Vec::new()), Err(RequestError::Empty)));
}

#[test]
fn pools_are_read_and_printed() {
    let both = |text: &str| parse_pool(text).unwrap().to_string();
    assert_eq!(both("gpus=[[0,1],[2,3]]"), "gpus=[[0-1],[2-3]]");
    assert_eq!(both("gpus = [ a , \"b c\" ]"), "gpus=[a,\"b c\"]");
    assert_eq!(both("cpus=[0-7]"), "cpus=[0-7]");
    assert_eq!(both("cpus=[0-3,8,10-11]"), "cpus=[0-3,8,10-11]");
    assert_eq!(both("cpus=range(1-3)"), "cpus=[1-3]");
    assert_eq!(both("cpus=2x3"), "cpus=[[0-2],[3-5]]");
    assert_eq!(both("cpus=4"), "cpus=[0-3]");
    assert_eq!(both("gpus=[GPU-1f-2,\"0-7\"]"), "gpus=[GPU-1f-2,\"0-7\"]");
    assert_eq!(both("licences=sum(2.5)"), "licences=sum(2.5)");
    assert_eq!(both("memory=64GiB"), "memory=sum(64GiB)");
    assert_eq!(both("x=[01,02]"), "x=[01,02]");
    for text in ["gpus=[a,\"b c\",0,1,2,7]", "cpus=[[0-3],[4-7],[9]]", "memory=sum(3GiB)"] {
        assert_eq!(parse_pool(&both(text)), parse_pool(text));
    }
}

#[test]
fn bad_offers_have_clear_errors() {
    let error = |text: &str| parse_pool(text).unwrap_err().to_string();
    let no_pool = [
        "gpus",
        "gpus=",
        "gpus=[",
        "gpus=[0",
        "gpus=[0,]",
        "gpus=[[0],1]",
        "gpus=[[0]",
        "gpus=x",
        "gpus=[0]]",
        "gpus=1.5",
        "gpus=range(3)",
        "gpus=range(3-1)",
        "cpus=[7-0]",
        "gpus=[a\"b\"]",
        "gpus=[[[0]]]",
    ];
    for wrong in no_pool {
        assert!(error(wrong).contains("is not a pool: write NAME=4"), "{wrong}: {}", error(wrong));
    }
    assert_eq!(error("gpus=[0,1,0]"), "gpus lists '0' twice");
    assert_eq!(error("gpus=[]"), "gpus has nothing in it; leave it out");
    assert_eq!(error("gpus=[[0],[]]"), "gpus has nothing in it; leave it out");
    assert_eq!(error("x=sum(0)"), "x has nothing in it; leave it out");
    assert_eq!(error("cpus=sum(4)"), "cpus is a list, not a sum: a task gets cpus by number");
    assert!(error("memory=[0,1]").starts_with("memory is a sum"));
    assert!(error("x=[\"a,b\"]").starts_with("'a,b' is not a name of an index"));
    for huge in
        ["x=range(0-4096)", "x=[0-4000,5000-6000]", "x=9999999", "x=64x65", "x=[0-4294967295]"]
    {
        assert!(error(huge).starts_with("a node has at most 4096 indices of a pool"), "{huge}");
    }
    assert!(error("x=65x1").starts_with("a node has at most 64 groups of a pool"));
    assert!(error("2x=[0]").starts_with("'2x' is not a name of a resource"));
}

#[test]
fn couplings_join_groups_that_exist() {
    let couple = |text: &str| {
        let pools = ["cpus=2x2", "gpus=[[a],[b]]", "memory=sum(9)"];
        let pools = pools.iter().map(|text| parse_pool(text).unwrap()).collect();
        let couplings = text.split(';').map(parse_coupling).collect::<Result<_, _>>()?;
        Offer::new(pools, couplings).map(|offer| offer.couplings()[0].to_string())
    };
    assert_eq!(couple("gpus[0]:cpus[1]"), Ok("cpus[1]:gpus[0]".to_owned()));
    assert_eq!(couple("cpus[0]:cpus[1]=7"), Ok("cpus[0]:cpus[1]=7".to_owned()));
    let error = |text: &str| couple(text).unwrap_err().to_string();
    assert!(error("cpus[2]:gpus[0]").starts_with("there is no group cpus[2]"));
    assert!(error("cpus[0]:memory[0]").starts_with("there is no group memory[0]"));
    assert_eq!(error("cpus[0]:cpus[0]"), "cpus[0] is coupled with itself");
    assert_eq!(error("cpus[0]:gpus[0];gpus[0]:cpus[0]=3"), "cpus[0] and gpus[0] are coupled twice");
    for wrong in
        ["cpus[0]", "cpus:gpus", "cpus[0]:gpus[0]=0", "cpus[0]:gpus[0]=x", "cpus[x]:gpus[0]"]
    {
        assert!(matches!(couple(wrong), Err(OfferError::CouplingSyntax(_))), "{wrong}");
    }
    let twice = ["x=[0]", "x=[1]"].map(|text| parse_pool(text).unwrap());
    assert_eq!(Offer::new(twice.to_vec(), vec![]).unwrap_err().to_string(), "x is given twice");
}

#[test]
fn names_of_pools_become_variables() {
    let name = |text: &str| Name::pool(text).unwrap();
    assert_eq!(name("gpus/nvidia").variable(), "gpus_nvidia");
    assert!(name("gpus").covers(&name("gpus/nvidia")) && !name("gpus").covers(&name("gpus2")));
    assert!(Name::pool("gpus_nvidia").is_err(), "two pools would have one variable");
    assert!(Name::label("host:n-1.a_b").is_ok());
}

#[test]
fn equal_requests_have_equal_bytes() {
    let bytes = |text: &str| request(text).encode();
    assert_eq!(bytes("cpus=1"), Vec::<u8>::new());
    assert_eq!(bytes("gpus=1,cpus=2.0,label=a"), bytes("label=a,label=a,cpus=2,gpus=1 compact"));
    assert_ne!(bytes("cpus=2"), bytes("cpus=2 compact!"));
    // The documented bytes: a variant with a want of the pool "cpus" and 20,000 units.
    let want = [b"\x0a\x04cpus\x10".as_slice(), &[0xa0, 0x9c, 0x01]].concat();
    let expected = [&[0x0a, 12, 0x0a, 10], want.as_slice()].concat();
    assert_eq!(bytes("cpus=2"), expected);
}

#[test]
fn damaged_bytes_are_refused() {
    assert!(Request::decode(&[0xff; 9]).is_err());
    assert!(Request::decode(&vec![0; crate::limits::REQUEST_BYTES_MAX + 1]).is_err());
    assert!(Offer::decode(&[0x0a, 0xff]).is_err());
    let bytes = request("cpus=2 tight!,label=x|gpus=all").encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(read) = Request::decode(&damaged) {
                assert_eq!(Request::decode(&read.encode()), Ok(read));
            }
        }
    }
}

#[test]
fn offers_keep_their_bytes() {
    let offer = offer(
        &["cpus=2x4", "gpus/nvidia=[[GPU-a],[GPU-b]]", "memory=sum(1GiB)", "avx512"],
        &["cpus[0]:gpus/nvidia[1]", "cpus[0]:cpus[1]=9"],
    );
    assert_eq!(Offer::decode(&offer.encode()), Ok(offer));
}

proptest! {
    #[test]
    fn every_amount_survives_its_text(units in any::<u64>()) {
        let amount = Amount::from_units(units);
        prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        prop_assert_eq!(amount.as_size().parse(), Ok(amount));
        let rounded = amount.rounded_up();
        prop_assert!(rounded >= amount);
        prop_assert!(u128::from(rounded.units()) * 8 <= u128::from(units) * 9 + 8);
        prop_assert_eq!(rounded.rounded_up(), rounded);
    }

    #[test]
    fn no_text_makes_the_readers_fail(text in "[a-z0-9=\\[\\],\"!|. ()-]{0,40}") {
        let _ = parse_pool(&text);
        let _ = parse_want(&text);
        let _ = parse_coupling(&text);
        let _ = text.parse::<Policy>();
        if let Ok(request) = text.parse::<Request>() {
            prop_assert_eq!(request.to_string().parse(), Ok(request.clone()));
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
    }
}
