//! Pools, labels and couplings of the user.

use super::{Tree, couplings, pools};
use crate::{Settings, detect};

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn own_pools_replace_detected_ones() {
    let tree = Tree::two_sockets("0-7").variable("CUDA_VISIBLE_DEVICES", "0,1");
    let settings = Settings {
        resources: texts(&["gpus=[[0,1],[2,3]]", "licences=sum(100)", "memory=1GiB"]),
        labels: texts(&["avx512", "submit/slurm", "avx512"]),
        couplings: texts(&["cpus[0]:gpus[1],cpus[1]:gpus[0]=64"]),
        ..Settings::default()
    };
    let found = tree.detect_with(&settings);
    let expected = [
        "avx512",
        "cpus=[[0-1,4-5],[2-3,6-7]]",
        "gpus=[[0-1],[2-3]]",
        "licences=sum(100)",
        "memory=sum(1GiB)",
        "submit/slurm",
    ];
    assert_eq!(pools(&found), expected);
    assert_eq!(couplings(&found), "cpus[0]:gpus[1] cpus[1]:gpus[0]=64");
    assert_eq!(found.couplings_source, "--coupling");
    let sources: Vec<&str> = found.pools.iter().map(|found| found.source.as_str()).collect();
    let expected =
        ["--label", "/proc/self/status", "--resource", "--resource", "--resource", "--label"];
    assert_eq!(sources, expected);
}

#[test]
fn an_own_pool_of_one_vendor_leaves_the_others() {
    let tree = Tree::new()
        .cpus("0", "0")
        .variable("CUDA_VISIBLE_DEVICES", "0,1")
        .variable("ROCR_VISIBLE_DEVICES", "0");
    let settings = Settings { resources: texts(&["gpus/amd=[7]"]), ..Settings::default() };
    let found = tree.detect_with(&settings);
    assert_eq!(pools(&found), ["cpus=[0]", "gpus/amd=[7]", "gpus/nvidia=[0-1]"]);
}

#[test]
fn an_empty_pool_hides_what_is_found() {
    let tree = Tree::new()
        .cpus("0", "0")
        .variable("CUDA_VISIBLE_DEVICES", "0,1")
        .variable("ROCR_VISIBLE_DEVICES", "0");
    let with = |text: &str| {
        let settings = Settings { resources: texts(&[text]), ..Settings::default() };
        pools(&tree.detect_with(&settings))
    };
    assert_eq!(with("gpus=[]"), ["cpus=[0]"]);
    assert_eq!(with("gpus/nvidia=[]"), ["cpus=[0]", "gpus/amd=[0]"]);
    let settings = Settings { resources: texts(&["cpus=[]"]), ..Settings::default() };
    assert!(detect(&tree.machine(), &settings).is_err(), "a node has cpus");
}

#[test]
fn wrong_settings_are_refused() {
    let tree = Tree::two_sockets("0-7");
    let error = |settings: Settings| detect(&tree.machine(), &settings).unwrap_err().to_string();
    let resources = |list: &[&str]| Settings { resources: texts(list), ..Settings::default() };
    assert_eq!(error(resources(&["gpus=[0]", "gpus=[1]"])), "gpus is given twice");
    assert!(error(resources(&["gpus"])).starts_with("'gpus' is not a pool"));
    let label = Settings { labels: texts(&["cpus"]), ..Settings::default() };
    assert_eq!(error(label), "label cpus is the name of a pool of this node; choose another label");
    let blank = Settings { labels: texts(&["two words"]), ..Settings::default() };
    assert!(error(blank).starts_with("'two words' is not a label"));
    let coupling = Settings { couplings: texts(&["cpus[0]:gpus[0]"]), ..Settings::default() };
    assert!(error(coupling).starts_with("there is no group gpus[0]"));
}

#[test]
fn nodes_of_a_batch_job_are_a_group() {
    let tree = Tree::new().cpus("0", "0").variable("PBS_JOBID", "12[3].server");
    assert_eq!(pools(&tree.detect_with(&Settings::default())), ["cpus=[0]", "group:12-3-.server"]);
    let empty = Tree::new().cpus("0", "0").variable("SLURM_JOB_ID", "");
    assert_eq!(pools(&empty.detect_with(&Settings::default())), ["cpus=[0]"]);
    let own = Settings { labels: texts(&["group:mine"]), ..Settings::default() };
    assert_eq!(pools(&tree.detect_with(&own)), ["cpus=[0]", "group:mine"]);
}
