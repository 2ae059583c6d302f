//! Checks of the directory, the disk, the clock and the limits of this machine.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use executor::locks::{self, Taken};
use rustix::process::{Resource, getrlimit};
use verb::errors::plain;
use verb::units::bytes;

use super::Check;

/// Less free space than this is a warning.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Fewer open files than this are a warning.
const FILES_MIN: u64 = 1024;
/// The hint for a machine or a control group with little memory.
const FREE_MEMORY: &str =
    "end other programs, raise the limit of the control group, or use another machine";
/// The clock of a file system may differ by this.
const CLOCK_DIFFERENCE_S: f64 = 2.0;

/// The instance's directory, or the nearest directory above it that exists.
fn existing(dir: &Path) -> PathBuf {
    let mut above = dir;
    while !above.is_dir() {
        match above.parent() {
            Some(parent) => above = parent,
            None => break,
        }
    }
    above.to_owned()
}

pub(super) fn directory(dir: &Path) -> Vec<Check> {
    let mut checks = Vec::new();
    let text = match dir.join("keys").is_dir() || dir.is_dir() {
        true => format!("{}: of this user, private", dir.display()),
        false => format!("{}: not there; 'starling up' makes it", dir.display()),
    };
    checks.push(Check::ok("directory", text));
    checks.extend(keys(dir));
    let place = existing(dir);
    let temporary = std::env::temp_dir();
    checks.push(disk(&place));
    if fs::metadata(&temporary).map(|it| it.dev()).ok()
        != fs::metadata(&place).map(|it| it.dev()).ok()
    {
        checks.push(disk(&temporary));
    }
    checks.extend(probe(&place));
    checks
}

/// Key files that other users could read.
fn keys(dir: &Path) -> Option<Check> {
    let entries = fs::read_dir(dir.join("keys")).ok()?;
    let is_open = |path: &PathBuf| {
        let is_secret = path.file_name().is_some_and(|name| name != "ca.pem");
        is_secret && fs::metadata(path).is_ok_and(|it| it.mode() & 0o077 != 0)
    };
    let open = entries.flatten().map(|entry| entry.path()).find(is_open);
    Some(match open {
        None => Check::ok("keys", "private"),
        Some(path) => Check::fail(
            "keys",
            format!("{}: other users may read it", path.display()),
            format!(
                "chmod 600 {}; if they have read it, begin with a new directory",
                path.display()
            ),
        ),
    })
}

fn disk(place: &Path) -> Check {
    let name = place.display();
    let Ok(system) = rustix::fs::statvfs(place) else {
        return Check::warn("disk", format!("{name}: cannot be asked"), "check the path");
    };
    let (free, all) = (system.f_bavail * system.f_frsize, system.f_blocks * system.f_frsize);
    let text = format!("{name}: {} of {} are free", bytes(free), bytes(all));
    let cure = "free some space, or name another directory with --dir or TMPDIR";
    match () {
        () if system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) => {
            Check::fail("disk", format!("{name}: it is read-only"), cure)
        }
        () if free == 0 => Check::fail("disk", text, cure),
        () if system.f_files > 0 && system.f_favail == 0 => {
            Check::fail("disk", format!("{name}: no file can be made: no inode is free"), cure)
        }
        () if free < FREE_BYTES_MIN => Check::warn("disk", text, cure),
        () => Check::ok("disk", text),
    }
}

/// Writes a file: permissions, locks, and the clock of the file system.
fn probe(place: &Path) -> Vec<Check> {
    let file = match tempfile::tempfile_in(place) {
        Ok(file) => file,
        Err(error) => {
            let text = format!("{}: cannot write there: {}", place.display(), plain(&error));
            return vec![Check::fail(
                "write",
                text,
                "name a directory that you may write to: --dir",
            )];
        }
    };
    let mut checks = vec![Check::ok("write", format!("{}: writable", place.display()))];
    checks.push(match locks::take(&file) {
        Ok(Taken::NoLocks(_)) => Check::warn(
            "locks",
            format!("{}: the file system has no locks", place.display()),
            "Starling works there; do not start one directory on two machines at once",
        ),
        Ok(_) => Check::ok("locks", "files can be locked"),
        Err(error) => Check::warn("locks", plain(&error), "use a local file system"),
    });
    checks.extend(clock(&file));
    checks
}

fn clock(file: &File) -> Option<Check> {
    let seconds = |at: SystemTime| {
        at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    };
    let written = seconds(file.metadata().ok()?.modified().ok()?);
    let difference = (client::now_ns() as f64 / 1e9 - written).abs();
    Some(match difference <= CLOCK_DIFFERENCE_S {
        true => Check::ok("clock", "agrees with the clock of the file system"),
        false => Check::warn(
            "clock",
            format!("differs from the clock of the file system by {difference:.1} s"),
            "synchronize the clocks (NTP); times of different nodes will not agree",
        ),
    })
}

pub(super) fn limits() -> Vec<Check> {
    let mut checks = Vec::new();
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    checks.push(match files < FILES_MIN {
        true => Check::warn("files", format!("{files} open files are allowed"), "ulimit -n 65536"),
        false => Check::ok("files", "enough open files are allowed"),
    });
    if let Some(free) = hardware::available_memory(&hardware::Machine::this()) {
        let text = format!("{} are available", bytes(free));
        checks.push(match free < 256 << 20 {
            true => Check::warn("memory", text, FREE_MEMORY),
            false => Check::ok("memory", text),
        });
    }
    if let Ok(job) = std::env::var("SLURM_JOB_ID") {
        checks.push(Check::ok("launcher", format!("in Slurm job {job}")));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::doctor::Level;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn readable_keys_and_unwritable_directories_are_found() {
        let root = tempfile::tempdir().unwrap();
        let level = |checks: &[Check], name: &str| {
            checks.iter().find(|check| check.check == name).map(|check| check.level)
        };
        assert_eq!(level(&directory(&root.path().join("no/such")), "write"), Some(Level::Ok));
        let keys = root.path().join("keys");
        fs::create_dir(&keys).unwrap();
        let key = keys.join("client.pem");
        for (mode, expected) in [(0o600, Level::Ok), (0o644, Level::Fail)] {
            fs::write(&key, "x").unwrap();
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(level(&directory(root.path()), "keys"), Some(expected), "{mode:o}");
        }
        assert_eq!(disk(Path::new("/proc")).level, Level::Fail);
        assert_eq!(probe(Path::new("/proc"))[0].level, Level::Fail);
    }
}
