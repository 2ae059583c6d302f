//! One of three disks fills up. Its node stops and states the reason, no acknowledged data are
//! lost, and the other nodes continue.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use starling_tests::{Foreground, Sandbox, Shape, skip, wait_until};

use crate::replicas::{TREE, TREE_TASKS, Writer, all_found};

/// A file system of limited size in memory. It is unmounted when dropped.
pub(crate) struct SmallDisk {
    // Removed after it is unmounted.
    dir: tempfile::TempDir,
}

impl SmallDisk {
    const BYTES: u32 = 48 << 20;

    /// `None`, with a printed reason, if mounting is not permitted.
    pub(crate) fn mount() -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("starling-disk-").tempdir();
        let dir = dir.expect("a temporary directory");
        let size = format!("size={}", Self::BYTES);
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &size, "starling-test"]).arg(dir.path());
        match command.output() {
            Ok(output) if output.status.success() => Some(Self { dir }),
            Ok(output) => {
                skip(&format!("no tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim()));
                None
            }
            Err(error) => {
                skip(&format!("no tmpfs: mount: {error}"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
    fn ballast(&self) -> PathBuf {
        self.dir.path().join("ballast")
    }

    /// Writes until the disk is full.
    pub(crate) fn fill(&self) {
        let mut file = File::create(self.ballast()).expect("the disk is not full yet");
        let (mut size, block) = (1 << 20, vec![7_u8; 1 << 20]);
        while size > 0 {
            match file.write(&block[..size]) {
                Ok(written) if written > 0 => {}
                _ => size /= 2,
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a node of a failed test may still run for a moment.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).output();
    }
}

#[test]
fn a_full_disk_stops_its_node_and_costs_nothing_else() {
    let Some(disk) = SmallDisk::mount() else { return };
    let mut shape = Shape::new(3, 1, 2);
    let state = disk.dir.path().join("state").display().to_string();
    shape.flags.insert(1, vec!["--state-dir".to_owned(), state]);
    let mut cluster = Foreground::up(Sandbox::new(), shape);
    let writer = Writer::start_in(cluster.directory());
    let submitted = cluster.json(&["submit", "--file", TREE]);
    let id = submitted["job"].as_str().expect("jobs have ids").to_owned();
    disk.fill();
    wait_until("the node with the full disk has stopped", || !cluster.is_running(1));
    let said = cluster.said(1);
    assert!(said.to_lowercase().contains("no space"), "{said}");
    cluster.starling(&["job", "wait", &id, "--timeout", "100s"]).ok();
    let info = cluster.json(&["job", "info", &id]);
    assert_eq!(info["tasks"]["done"], TREE_TASKS, "{info}");
    let written = writer.end();
    all_found(written, |arguments| cluster.starling(arguments));
    assert!(cluster.is_running(0) && cluster.is_running(2), "the others go on");
    // With free space it returns with its records, which are as good as any replica.
    disk.make_room();
    cluster.start_node(1);
    // Two of the three must agree on the next death, so this node's vote is needed.
    wait_until("it votes again", || {
        (0..3).all(|node| cluster.seen(node).is_some_and(|seen| seen.is_up && seen.votes))
    });
    cluster.wait_for_copies();
    cluster.kill(0);
    all_found(written, |arguments| cluster.starling(arguments));
    drop(cluster);
}

/// Not even the log of the node can be written there.
#[test]
fn a_new_cluster_on_a_full_disk_is_refused_in_words() {
    let Some(disk) = SmallDisk::mount() else { return };
    disk.fill();
    let sandbox = Sandbox::new();
    let dir = disk.path().join("new").display().to_string();
    let ran = sandbox.starling(&["up", "--dir", &dir]).expect_code(4);
    assert!(ran.stderr.to_lowercase().contains("no space"), "{}", ran.stderr);
}
