//! GPUs of recorded machines.

use super::{Tree, couplings, deciding, pool};

/// A GPU with its files below `/proc`, `/dev` and `/sys/bus/pci`.
fn nvidia(tree: Tree, address: &str, minor: u32, uuid: &str, numa: i32) -> Tree {
    let text = format!(
        "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 100\nGPU UUID: \t {uuid}\n\
         Bus Location: \t {address}\nDevice Minor: \t {minor}"
    );
    tree.file(&format!("/proc/driver/nvidia/gpus/{address}/information"), &text)
        .file(&format!("/dev/nvidia{minor}"), "")
        .file(&format!("/sys/bus/pci/devices/{address}/numa_node"), &numa.to_string())
}

fn four_nvidia() -> Tree {
    let gpus = [
        ("0000:07:00.0", 0, "GPU-aa", 1),
        ("0000:0f:00.0", 1, "GPU-ab", 1),
        ("0000:47:00.0", 2, "GPU-ba", 0),
        ("0000:87:00.0", 3, "GPU-bb", 0),
    ];
    gpus.into_iter().fold(Tree::two_sockets("0-7"), |tree, (address, minor, uuid, numa)| {
        nvidia(tree, address, minor, uuid, numa)
    })
}

#[test]
fn gpus_are_grouped_and_coupled_by_numa_node() {
    let found = four_nvidia().detect();
    assert_eq!(pool(&found, "gpus/nvidia"), "gpus/nvidia=[[GPU-ba,GPU-bb],[GPU-aa,GPU-ab]]");
    assert_eq!(couplings(&found), "cpus[0]:gpus/nvidia[0] cpus[1]:gpus/nvidia[1]");
    assert_eq!(found.pools[1].numa, [Some(0), Some(1)]);
    assert!(found.notices.is_empty());
}

#[test]
fn one_gpu_is_coupled_with_the_cpus_of_its_node() {
    let found = nvidia(Tree::two_sockets("0-7"), "0000:07:00.0", 0, "GPU-aa", 1).detect();
    assert_eq!(pool(&found, "gpus/nvidia"), "gpus/nvidia=[GPU-aa]");
    assert_eq!(couplings(&found), "cpus[1]:gpus/nvidia[0]");
}

#[test]
fn a_machine_without_numa_nodes_has_no_couplings() {
    let tree = Tree::new().cpus("0-3", "0-3");
    let tree = nvidia(tree, "0000:07:00.0", 0, "GPU-aa", -1);
    let found = nvidia(tree, "0000:08:00.0", 1, "GPU-ab", -1).detect();
    assert_eq!(pool(&found, "gpus/nvidia"), "gpus/nvidia=[GPU-aa,GPU-ab]");
    assert_eq!(couplings(&found), "");
    assert_eq!(found.offer.pools().len(), 2);
}

#[test]
fn a_gpu_that_cannot_be_opened_is_not_offered() {
    let tree = four_nvidia();
    std::fs::remove_file(tree.path("/dev/nvidia1")).unwrap();
    let found = tree.detect();
    assert_eq!(pool(&found, "gpus/nvidia"), "gpus/nvidia=[[GPU-ba,GPU-bb],[GPU-aa]]");
    assert_eq!(found.notices, ["1 of 4 gpus/nvidia cannot be opened"]);
}

#[test]
fn a_gpu_without_a_uuid_has_its_number() {
    let tree = nvidia(Tree::new().cpus("0", "0"), "0000:07:00.0", 0, "GPU-??????", -1);
    assert_eq!(pool(&tree.detect(), "gpus/nvidia"), "gpus/nvidia=[0]");
}

#[test]
fn the_variable_names_the_gpus() {
    let by = |names| four_nvidia().variable("CUDA_VISIBLE_DEVICES", names).detect();
    let found = by("3,0");
    assert_eq!(pool(&found, "gpus/nvidia"), "gpus/nvidia=[[3],[0]]");
    assert_eq!(deciding(&found, "gpus/nvidia"), "CUDA_VISIBLE_DEVICES");
    assert_eq!(pool(&by("GPU-ab,GPU-bb"), "gpus/nvidia"), "gpus/nvidia=[[GPU-bb],[GPU-ab]]");
    assert_eq!(pool(&by("0,-1,2"), "gpus/nvidia"), "gpus/nvidia=[0]", "the list ends at -1");
    assert_eq!(pool(&by("0,4,2"), "gpus/nvidia"), "gpus/nvidia=[0]", "there is no GPU 4");
    for none in ["", "-1", "NoDevFiles"] {
        assert_eq!(pool(&by(none), "gpus/nvidia"), "none", "{none}");
    }
    let twice = by("1,1");
    assert_eq!(pool(&twice, "gpus/nvidia"), "gpus/nvidia=[1]");
    assert_eq!(twice.notices, ["CUDA_VISIBLE_DEVICES lists 1 twice"]);
}

#[test]
fn the_variable_counts_without_any_file() {
    let tree = Tree::new().cpus("0-3", "0-3").variable("CUDA_VISIBLE_DEVICES", "2,3");
    assert_eq!(pool(&tree.detect(), "gpus/nvidia"), "gpus/nvidia=[2-3]");
}

#[test]
fn parts_of_a_gpu_have_names_from_the_variable() {
    let names = "MIG-GPU-ba/1/0,MIG-GPU-ab/2/0,MIG-41b36014-7b1c";
    let found = four_nvidia().variable("CUDA_VISIBLE_DEVICES", names).detect();
    let expected = "gpus/nvidia=[[MIG-41b36014-7b1c],[MIG-GPU-ba/1/0],[MIG-GPU-ab/2/0]]";
    assert_eq!(pool(&found, "gpus/nvidia"), expected);
    assert_eq!(couplings(&found), "cpus[0]:gpus/nvidia[1] cpus[1]:gpus/nvidia[2]");
    let divided = four_nvidia().file("/proc/driver/nvidia/capabilities/gpu2/mig/gi1/access", "");
    assert!(divided.detect().notices[0].starts_with("1 of the GPUs are divided into parts (MIG)"));
}

#[test]
fn amd_gpus_are_found_in_the_topology() {
    let dir = "/sys/class/kfd/kfd/topology/nodes";
    let gpu = |location: u32, minor: u32, id: u64| {
        format!(
            "cpu_cores_count 0\nsimd_count 440\nlocation_id {location}\ndomain 0\n\
            drm_render_minor {minor}\nunique_id {id}"
        )
    };
    let tree = Tree::two_sockets("0-7").files(&[
        (&format!("{dir}/0/properties"), "cpu_cores_count 4\nsimd_count 0\nlocation_id 0"),
        (&format!("{dir}/10/properties"), &gpu(0xc100, 129, 0)),
        (&format!("{dir}/2/properties"), &gpu(0x2908, 128, 0x00ab)),
        (&format!("{dir}/3/properties"), ""),
        ("/dev/dri/renderD128", ""),
        ("/dev/dri/renderD129", ""),
        ("/sys/bus/pci/devices/0000:29:01.0/numa_node", "1"),
        ("/sys/bus/pci/devices/0000:c1:00.0/numa_node", "0"),
    ]);
    let found = tree.detect();
    assert_eq!(pool(&found, "gpus/amd"), "gpus/amd=[[1],[GPU-00000000000000ab]]");
    assert_eq!(couplings(&found), "cpus[0]:gpus/amd[0] cpus[1]:gpus/amd[1]");
    let chosen = tree.variable("ROCR_VISIBLE_DEVICES", "1").detect();
    assert_eq!(pool(&chosen, "gpus/amd"), "gpus/amd=[1]");
}

#[test]
fn intel_gpus_are_cards_that_are_not_in_the_processor() {
    let card = |tree: Tree, card: &str, address: &str, vendor: &str, render: &str| {
        let device = format!("/sys/devices/pci0000:00/{address}");
        tree.file(&format!("{device}/vendor"), vendor)
            .file(&format!("{device}/drm/{render}/dev"), "226:0")
            .file(&format!("/sys/bus/pci/devices/{address}/numa_node"), "0")
            .file(&format!("/dev/dri/{render}"), "")
            .link(
                &format!("/sys/class/drm/{card}/device"),
                &format!("../../../devices/pci0000:00/{address}"),
            )
    };
    let tree = Tree::new().cpus("0-3", "0-3");
    let tree = card(tree, "card0", "0000:00:02.0", "0x8086", "renderD128");
    let tree = card(tree, "card1", "0000:3a:00.0", "0x8086", "renderD129");
    let tree = card(tree, "card2", "0000:18:00.0", "0x8086", "renderD130");
    let tree = card(tree, "card3", "0000:19:00.0", "0x1002", "renderD131");
    let tree =
        tree.file("/sys/class/drm/card1-DP-1/status", "off").file("/sys/class/drm/version", "1");
    assert_eq!(pool(&tree.detect(), "gpus/intel"), "gpus/intel=[0-1]");
    let chosen = tree.variable("ZE_AFFINITY_MASK", "0.0,0.1").detect();
    assert_eq!(pool(&chosen, "gpus/intel"), "gpus/intel=[0.0,0.1]");
}
