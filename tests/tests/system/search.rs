//! `starling search`: results, errors, and searches that end early.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use starling_tests::{Sandbox, wait_until};

#[test]
fn a_count_is_the_same_on_any_number_of_slots() {
    let sandbox = Sandbox::new();
    for slots in ["1", "2", "5"] {
        let ran = sandbox.starling(&["search", "queens:8", "--slots", slots, "--json"]).ok();
        let found = ran.json();
        assert_eq!(found["schema"], 1);
        assert_eq!(found["problem"], "queens:8");
        assert_eq!(found["result"], 92);
        assert_eq!(found["proved"], true);
        assert_eq!(found["nodes"], 2057);
        assert_eq!(found["depth"], 8);
        let count = |name: &str| found[name].as_u64().expect("a count");
        assert_eq!(count("pieces"), count("splits") + 1);
        for name in ["leaves", "pruned", "efficiency", "wall_s", "cpu_s"] {
            assert!(found[name].is_number(), "{name}: {found}");
        }
        assert!(found["witness"].as_array().is_some_and(Vec::is_empty));
    }
    let tiny = sandbox.starling(&["search", "uts:tiny", "--json"]).ok().json();
    assert_eq!((&tiny["result"], &tiny["leaves"]), (&1732.into(), &1050.into()));
    let work = "gsssa:w_r=3000,w_i=5000,b=0.1,g=100";
    let work = sandbox.starling(&["search", work, "--json"]).ok().json();
    assert_eq!(work["result"], 8000);
    let text = sandbox.starling(&["search", "queens:6"]).ok();
    assert!(text.stdout.contains("4 (proved)"), "{}", text.stdout);
}

#[test]
fn an_interrupt_ends_a_search_with_its_counts() {
    let sandbox = Sandbox::new();
    let running = sandbox.start(&["search", "queens:20", "--slots", "2", "--json"]);
    // Its threads show that it runs and that the handlers of signals are installed.
    let threads = format!("/proc/{}/task", running.pid());
    wait_until("the slots run", || {
        fs::read_dir(&threads).is_ok_and(|threads| threads.count() >= 3)
    });
    running.signal(Signal::INT);
    let found = running.end().expect_code(130).json();
    assert_eq!(found["proved"], false);
    assert!(found["result"].is_number(), "the count so far: {found}");
}

#[test]
fn a_timeout_ends_a_search_with_its_counts() {
    let sandbox = Sandbox::new();
    let arguments = ["search", "queens:20", "--slots", "1", "--timeout", "200ms", "--json"];
    let found = sandbox.start(&arguments).end_within(Duration::from_secs(30)).expect_code(124);
    let found = found.json();
    assert_eq!(found["proved"], false);
    assert!(found["nodes"].as_u64() > Some(0), "{found}");
}

#[test]
fn problems_that_do_not_exist_are_refused() {
    let sandbox = Sandbox::new();
    for (problem, part) in [
        ("nothing", "there is no problem 'nothing'"),
        ("chess:8", "there is no problem 'chess'"),
        ("", "there is no problem ''"),
        ("uts", "there is no UTS tree ''"),
        ("uts:T9", "there is no UTS tree 'T9'"),
        ("queens:0", "'0' is no size of a board"),
        ("queens:21", "'21' is no size of a board"),
        ("queens:-3", "'-3' is no size of a board"),
        ("queens:many", "'many' is no size of a board"),
        ("gsssa:", "'' is no parameter of gsssa"),
        ("gsssa:w_r=1,w_i=1,b=2,g=1", "describe no tree"),
        ("gsssa:w_r=1,w_i=1,b=nan,g=1", "describe no tree"),
        ("gsssa:w_r=1,w_i=1,b=0.5", "describe no tree"),
        ("gsssa:w_r=99999999999999999999,g=1", "is no parameter"),
    ] {
        let ran = sandbox.starling(&["search", problem, "--json"]).expect_code(2);
        let lines: Vec<&str> = ran.stderr.lines().collect();
        let [error, hint] = lines[..] else { panic!("{problem}: {}", ran.stderr) };
        assert!(error.starts_with("error: ") && error.contains(part), "{problem}: {error}");
        assert!(hint.starts_with("hint: "), "{problem}: {hint}");
        assert!(ran.stdout.is_empty());
    }
    sandbox.starling(&["search", "queens:4", "--slots", "0"]).expect_code(2);
    // It does not run on a cluster.
    sandbox.starling(&["search", "queens:4", "--nodes", "2"]).expect_code(2);
}
