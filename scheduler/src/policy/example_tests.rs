//! The example of CONTRIBUTING.md, "Add a policy": its code, and that the text shows this code.

mod stay {
    use proto::Time;
    use proto::event::Reason;

    use crate::Scheduler;
    use crate::holder::task::Work;
    use crate::policy::{Decision, Order, Rules};

    /// Every task runs on the node that owns it.
    pub(crate) const STAY: Rules = Rules {
        decide: stay,
        stays: Reason::BigHere,
        goes: Reason::BigElsewhere,
        threshold: None,
        order: Order::Bytes,
        sends_load: false,
        shares_local_queue: false,
        steals_proportionally: false,
        monitors_queue: false,
        empties_local_queue: false,
        adapts: false,
    };

    fn stay(_: &Scheduler, _: Time, _: &Work) -> Decision {
        Decision::Local
    }
}

use proto::{Time, wire};

use crate::holder::task::Work;
use crate::policy::Rules;
use crate::tests::earliest_finish_tests;
use crate::tests::test_nodes;
use crate::{Decision, Policy, Tuning};

const TEXT: &str = include_str!("../../../CONTRIBUTING.md");
const CODE: &str = include_str!("example_tests.rs");
const NAMES: &str = include_str!("../../../proto/src/policy.rs");

fn decide(rules: Rules, work: &Work) -> Decision {
    let homes = test_nodes::homes(0, (0..4).map(test_nodes::member).collect(), &[0, 1, 2, 3]);
    let owner = test_nodes::scheduler(0, 4, Tuning::default(), homes);
    (rules.decide)(&owner, Time(0), work)
}

#[test]
fn the_policy_of_the_example_keeps_each_task_on_its_owner() {
    let far = wire::InputAt { node: 1, size_bytes: 1 << 40, consumers: 1, ..Default::default() };
    let reader = earliest_finish_tests::work(vec![far], 1);
    assert!(matches!(decide(Rules::of(Policy::Mdl), &reader), Decision::Push(_)));
    for work in [reader, earliest_finish_tests::work(Vec::new(), 1)] {
        assert_eq!(decide(stay::STAY, &work), Decision::Local);
    }
}

/// Every line of code that the text shows is a line that is compiled and tested here.
#[test]
fn the_text_shows_the_code_of_the_example() {
    let (_, section) = TEXT.split_once("## Add a policy").expect("CONTRIBUTING.md has the section");
    let section = section.split("\n## ").next().expect("at least one");
    let blocks: Vec<&str> = section.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), 3, "the name, the rules, the row");
    let lines = |block: usize| {
        let (code, _) = blocks[block].split_once("```").expect("the block ends");
        code.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    let has = |source: &str, line: &str| source.lines().any(|it| it.trim() == line);
    let missing = |source: &str, block| lines(block).into_iter().find(|line| !has(source, line));
    assert_eq!(missing(NAMES, 0), None, "in proto/src/policy.rs");
    assert_eq!(missing(CODE, 1), None, "in this file");
    assert_eq!(lines(2), ["Policy::Stay => STAY,"]);
    let rules = include_str!("rules.rs");
    assert!(has(rules, "Policy::Eft => EFT,"), "a row of the match looks like this");
}
