/*!
That a directory has one user at a time.

A lock of the file system does that, where there is one. Where there is none (Lustre without flock,
AFS, some FUSE file systems) a *beat* stands in for it: a file that names the process and is written
again and again. A start that finds a beat of its own machine looks whether that process is there.
One that finds a beat of another machine watches whether it goes on. A node that finds another beat
in place of its own ends. So a second start is refused while the first node is well. A node that
slept for long enough and wakes may write until its next beat: that is said to the user.
*/

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use executor::locks::{self, Taken};
use proto::{Span, limits};

use super::{random_u64, temporary, write_synced};
use crate::error::StartError;

/// The file systems of one machine, as `statfs` tells them: ext, xfs, btrfs, tmpfs, zfs, overlayfs.
const LOCAL: [u64; 6] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x2FC1_2FC1, 0x794C_7630];

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0)
}

/// A directory is ours for as long as this lives.
#[derive(Debug)]
pub struct DirLock {
    path: PathBuf,
    /// The lock goes with the file, even when the process is killed.
    file: File,
    beat: Option<Heartbeat>,
    /// Why the file system's own lock does not protect the directory.
    missing: Option<io::Error>,
}

impl DirLock {
    /// Takes the lock `name` of a directory. A predecessor that was killed keeps it until the last
    /// of its threads is gone: it is waited for, a while.
    pub fn take(dir: &Path, name: &str) -> Result<Self, StartError> {
        let begun = Instant::now();
        loop {
            match Self::try_to_take(dir, name)? {
                Some(lock) => return Ok(lock),
                None if begun.elapsed() < duration(limits::STATE_LOCK_TIMEOUT) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                None => return Err(StartError::InUse { path: dir.to_path_buf() }),
            }
        }
    }

    /// As [`Self::take`], without waiting. `None`: another has it.
    pub fn try_to_take(dir: &Path, name: &str) -> Result<Option<Self>, StartError> {
        Self::try_with(dir, name, is_local, locks::take)
    }

    fn try_with(
        dir: &Path,
        name: &str,
        is_local: impl Fn(&File) -> bool,
        lock: impl Fn(&File) -> io::Result<Taken>,
    ) -> Result<Option<Self>, StartError> {
        let path = dir.join(name);
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(&path).map_err(|e| StartError::io("write", &path, e))?;
        let missing = match lock(&file).map_err(|e| StartError::io("lock", &path, e))? {
            Taken::Ours => None,
            Taken::NoLocks(error) => Some(error),
            Taken::Held => return Ok(None),
        };
        let path_of_beat = path.with_extension("beat");
        let beat = match missing.is_some() || !is_local(&file) {
            // Its file system may have had no locks.
            false if look(&path_of_beat)? => return Ok(None),
            false => {
                // What one that is gone has left; most often there is none.
                let _ = fs::remove_file(&path_of_beat);
                None
            }
            true => match Heartbeat::begin(&path_of_beat)? {
                None => return Ok(None),
                beat => beat,
            },
        };
        Ok(Some(Self { path, file, beat, missing }))
    }

    /// Whether the lock that this holds is still the one in the directory. When not, the directory
    /// was removed or replaced, and another process may use what is there now.
    #[must_use]
    pub fn is_there(&self) -> bool {
        if self.is_taken() {
            return false;
        }
        let (Ok(held), found) = (self.file.metadata(), fs::metadata(&self.path)) else {
            return true; // That says nothing about the directory.
        };
        match found {
            Ok(found) => (found.dev(), found.ino()) == (held.dev(), held.ino()),
            Err(e) => {
                let stale = e.kind() == io::ErrorKind::StaleNetworkFileHandle;
                !stale
                    && !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
        }
    }

    /// Whether another process has written its beat over ours.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.is_lost.load(Ordering::Relaxed))
    }

    /// What the directory lacks, where the file system has no locks.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.missing.as_ref().map(crate::error::reason)
    }
}

/// Whether no process has the lock `name` of a directory. False as well where that is not known.
pub(crate) fn is_free(dir: &Path, name: &str) -> bool {
    let path = dir.join(name);
    let Ok(file) = OpenOptions::new().write(true).open(&path) else { return false };
    match locks::take(&file) {
        Ok(Taken::Ours | Taken::NoLocks(_)) => {
            is_beaten(&path.with_extension("beat")).is_ok_and(|is_beaten| !is_beaten)
        }
        _ => false,
    }
}

/// Whether no other machine can have the file. A file system that is not known may be shared.
fn is_local(file: &File) -> bool {
    // The kernel's numbers have 32 bits; of some the highest is taken for a sign.
    let kind = |found: rustix::fs::StatFs| found.f_type as u64 & 0xFFFF_FFFF;
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&kind(found)))
}

/// The process that writes a beat.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Owner {
    /// The machine, since it was started, and the processes that can be seen there.
    machine: String,
    pid: u32,
    /// When the process began, by the kernel's clock: numbers of processes are used again.
    begun: String,
    /// Drawn for this lock.
    number: u64,
    beats: u64,
}

impl Owner {
    fn this() -> Result<Self, StartError> {
        let pid = std::process::id();
        let begun = begun(pid).unwrap_or_default();
        Ok(Self { machine: machine(), pid, begun, number: random_u64()?, beats: 0 })
    }

    /// Takes its beat back, unless another's is there.
    fn withdraw(&self, path: &Path) {
        if Self::read(path).is_ok_and(|now| now.is_some_and(|now| now.number == self.number)) {
            let _ = fs::remove_file(path);
        }
    }

    /// `None`: there is no beat. One that cannot be read is an error: its writer may live.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::of_text(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::read`]. On a network a file cannot be read for a moment when it was replaced, or
    /// when its server does not answer: that is tried again for a while.
    fn read_soon(path: &Path) -> io::Result<Option<Self>> {
        let since = Instant::now();
        loop {
            match Self::read(path) {
                Err(_) if since.elapsed() < duration(limits::LOCK_HEARTBEAT_TIMEOUT) => {
                    std::thread::sleep(duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
                }
                found => return found,
            }
        }
    }

    fn of_text(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(Self {
            machine: words.next()?.to_owned(),
            pid: words.next()?.parse().ok()?,
            begun: words.next()?.to_owned(),
            number: words.next()?.parse().ok()?,
            beats: words.next()?.parse().ok()?,
        })
    }

    fn write(&self, path: &Path) -> Result<(), StartError> {
        self.write_apart(path)?.give_name(path)
    }

    /// The slow part: all but the name.
    fn write_apart(&self, path: &Path) -> Result<TemporaryFile, StartError> {
        let Self { machine, pid, begun, number, beats } = self;
        let text = format!("{machine} {pid} {begun} {number} {beats}\n");
        let apart = TemporaryFile(temporary(path)?);
        write_synced(&apart.0, text.as_bytes())?;
        Ok(apart)
    }
}

/// A whole file under another name; it goes unless it gets its own.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// The directory is not synced: a beat means nothing after its machine has gone down.
    fn give_name(self, path: &Path) -> Result<(), StartError> {
        fs::rename(&self.0, path).map_err(|e| StartError::io("write", path, e))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The boot of this machine and its numbering of processes: a container has one of its own.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = format!("{}-{}", boot.trim(), pids.display());
    text.replace(char::is_whitespace, "")
}

/// When a process began; `None`: it is not there, or dead and not reaped.
fn begun(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    let begun = words.nth(18)?;
    (!["Z", "X"].contains(&state)).then(|| begun.to_owned())
}

/// Whether there is a beat whose writer lives. An error: nothing is known of it.
fn is_beaten(path: &Path) -> io::Result<bool> {
    match Owner::read_soon(path)? {
        Some(owner) => lives(path, &owner),
        None => Ok(false),
    }
}

/// As [`is_beaten`], for a start: it is refused where nothing is known.
fn look(path: &Path) -> Result<bool, StartError> {
    is_beaten(path).map_err(|error| StartError::io("read", path, error))
}

/// Whether the writer of a beat is there, where that can be seen; `None`: on another machine.
fn is_seen_to_live(owner: &Owner) -> Option<bool> {
    (owner.machine == machine()).then(|| begun(owner.pid).as_deref() == Some(&owner.begun))
}

/// Whether the writer of a beat is there. That of another machine is watched for a while.
fn lives(path: &Path, owner: &Owner) -> io::Result<bool> {
    if let Some(lives) = is_seen_to_live(owner) {
        return Ok(lives);
    }
    let since = Instant::now();
    while since.elapsed() < duration(limits::LOCK_HEARTBEAT_TIMEOUT) {
        std::thread::sleep(duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
        match Owner::read_soon(path)? {
            None => return Ok(false), // It has just ended.
            Some(now) if now != *owner => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
}

/// A beat of ours, kept up by a thread.
#[derive(Debug)]
struct Heartbeat {
    path: PathBuf,
    number: u64,
    /// Another has taken the directory.
    is_lost: Arc<AtomicBool>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// `None`: the directory is in use.
    fn begin(path: &Path) -> Result<Option<Self>, StartError> {
        Self::begin_with(path, |apart, path| apart.give_name(path))
    }

    /// Of two that begin at once the later rename wins, and the other sees that when it has waited.
    /// So no rename may come later than that after its look: one that did is taken back.
    fn begin_with(
        path: &Path,
        name: impl Fn(TemporaryFile, &Path) -> Result<(), StartError>,
    ) -> Result<Option<Self>, StartError> {
        let settled = duration(limits::LOCK_HEARTBEAT_SETTLE_TIME);
        for _ in 0..limits::LOCK_HEARTBEAT_STARTS_MAX {
            if look(path)? {
                return Ok(None);
            }
            let owner = Owner::this()?;
            let apart = owner.write_apart(path)?;
            // Writing may have taken long.
            let since = Instant::now();
            if look(path)? {
                return Ok(None);
            }
            name(apart, path)?;
            if since.elapsed() > settled {
                owner.withdraw(path);
                // One that has lost its beat to ours writes it again.
                std::thread::sleep(duration(limits::LOCK_HEARTBEAT_INTERVAL) + settled);
                continue;
            }
            std::thread::sleep(settled);
            return match Owner::read_soon(path) {
                Ok(Some(now)) if now.number == owner.number => Self::go_on(path, owner).map(Some),
                Ok(_) => Ok(None), // Another began at the same time, and was later.
                Err(error) => Err(StartError::io("read", path, error)),
            };
        }
        Err(StartError::io("write in time", path, io::ErrorKind::TimedOut.into()))
    }

    fn go_on(path: &Path, mut owner: Owner) -> Result<Self, StartError> {
        let is_lost = Arc::new(AtomicBool::new(false));
        let (end, ended) = mpsc::channel::<()>();
        let (lost, number, theirs) = (Arc::clone(&is_lost), owner.number, path.to_owned());
        let beat = move || {
            let every = duration(limits::LOCK_HEARTBEAT_INTERVAL);
            while ended.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                match Owner::read(&theirs) {
                    Ok(Some(now)) if now.number != owner.number => {
                        return lost.store(true, Ordering::Relaxed);
                    }
                    // One that cannot be read may be back at the next beat.
                    _ => {}
                }
                owner.beats += 1;
                // Where nothing can be written the node ends by its other writes.
                let _ = owner.write(&theirs);
            }
        };
        let thread = std::thread::Builder::new().name("beat".to_owned()).spawn(beat);
        let thread = Some(thread.map_err(StartError::Thread)?);
        Ok(Self { path: path.to_owned(), number, is_lost, end: Some(end), thread })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if Owner::read(&self.path).is_ok_and(|now| now.is_some_and(|it| it.number == self.number)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(path: &Path) -> Option<Heartbeat> {
        Heartbeat::begin(path).unwrap()
    }

    #[test]
    fn a_beat_keeps_a_second_one_out_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        let first = begin(&path).unwrap();
        assert!(begin(&path).is_none(), "its process lives: it is ours");
        drop(first);
        assert!(!path.exists());
        assert!(begin(&path).is_some());
    }

    #[test]
    fn the_beat_of_a_dead_process_of_this_machine_is_taken_over_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        let mut dead = Owner::this().unwrap();
        dead.begun = "1".to_owned(); // Its number was given to another process.
        dead.write(&path).unwrap();
        assert_eq!(is_seen_to_live(&dead), Some(false), "it is not watched");
        assert!(begin(&path).is_some());
    }

    #[test]
    fn the_beat_of_another_machine_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        let mut there = Owner::this().unwrap();
        there.machine = "another".to_owned();
        there.write(&path).unwrap();
        assert_eq!(is_seen_to_live(&there), None);
        let (theirs, mut goes_on) = (path.clone(), there.clone());
        let writer = std::thread::spawn(move || {
            std::thread::sleep(duration(limits::LOCK_HEARTBEAT_INTERVAL));
            goes_on.beats += 1;
            goes_on.write(&theirs).unwrap();
        });
        assert!(begin(&path).is_none(), "it goes on");
        writer.join().unwrap();
        assert!(begin(&path).is_some(), "it stands still");
    }

    /// A link to itself cannot be read, and a rename replaces it.
    fn make_unreadable(path: &Path) {
        let link = path.with_extension("link");
        std::os::unix::fs::symlink(path.file_name().unwrap(), &link).unwrap();
        fs::rename(&link, path).unwrap();
        assert!(Owner::read(path).is_err());
    }

    #[test]
    fn a_beat_that_cannot_be_read_for_a_moment_keeps_a_second_one_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        let mut there = Owner::this().unwrap();
        there.machine = "another".to_owned();
        make_unreadable(&path);
        // It cannot be read at first, and once more while it is watched.
        let (theirs, mut goes_on) = (path.clone(), there);
        let writer = std::thread::spawn(move || {
            for _ in 0..2 {
                std::thread::sleep(2 * duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
                goes_on.write(&theirs).unwrap();
                std::thread::sleep(4 * duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
                make_unreadable(&theirs);
                goes_on.beats += 1;
            }
            std::thread::sleep(2 * duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
            goes_on.write(&theirs).unwrap();
        });
        assert!(begin(&path).is_none(), "it goes on");
        writer.join().unwrap();
    }

    #[test]
    fn where_a_beat_cannot_be_read_nothing_is_begun() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        fs::write(dir.path().join("lock"), "").unwrap();
        make_unreadable(&path);
        let error = Heartbeat::begin(&path).unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("lock.beat"), "{error}");
        assert!(!is_free(dir.path(), "lock"));
        assert!(path.is_symlink(), "it is left alone");
    }

    #[test]
    fn a_process_that_finds_another_beat_in_place_of_its_own_has_lost() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        let ours = begin(&path).unwrap();
        Owner::this().unwrap().write(&path).unwrap();
        while !ours.is_lost.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(ours);
        assert!(path.exists(), "it is the other's");
    }

    #[test]
    fn a_beat_that_comes_too_late_after_the_look_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock.beat");
        // Another has begun between our look and our rename.
        let others = std::cell::RefCell::new(None);
        let slow = |apart: TemporaryFile, path: &Path| {
            if others.borrow().is_none() {
                *others.borrow_mut() = begin(path);
                std::thread::sleep(duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
            }
            apart.give_name(path)
        };
        let ours = Heartbeat::begin_with(&path, slow).unwrap();
        let other = others.into_inner().unwrap();
        assert!(ours.is_none() && !other.is_lost.load(Ordering::Relaxed));
        let always = |apart: TemporaryFile, path: &Path| {
            std::thread::sleep(2 * duration(limits::LOCK_HEARTBEAT_SETTLE_TIME));
            apart.give_name(path)
        };
        drop((ours, other));
        let error = Heartbeat::begin_with(&path, always).unwrap_err().to_string();
        assert!(error.contains("in time"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn on_a_file_system_that_may_be_shared_a_lock_has_a_beat() {
        let dir = tempfile::tempdir().unwrap();
        let shared = |_: &File| false;
        let none = |_: &File| Ok(Taken::NoLocks(io::ErrorKind::Unsupported.into()));
        let first = DirLock::try_with(dir.path(), "lock", shared, locks::take).unwrap().unwrap();
        assert!(first.missing().is_none());
        assert!(DirLock::try_with(dir.path(), "lock", shared, none).unwrap().is_none());
        drop(first);
        assert!(DirLock::try_with(dir.path(), "lock", shared, none).unwrap().is_some());
        assert!(!dir.path().join("lock.beat").exists());
        assert!(!is_local(&File::open("/proc/self/stat").unwrap()), "it is not known");
    }

    #[test]
    fn a_lock_that_is_held_is_not_free() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirLock::take(dir.path(), "lock").unwrap();
        assert!(lock.is_there() && lock.missing().is_none());
        assert!(!is_free(dir.path(), "lock"));
        assert!(matches!(DirLock::take(dir.path(), "lock"), Err(StartError::InUse { .. })));
        drop(lock);
        assert!(is_free(dir.path(), "lock"));
        assert!(!is_free(dir.path(), "other"), "there is none");
        let beat = begin(&dir.path().join("lock.beat")).unwrap();
        assert!(DirLock::try_to_take(dir.path(), "lock").unwrap().is_none(), "one without locks");
        assert!(!is_free(dir.path(), "lock"));
        drop(beat);
        assert!(DirLock::try_to_take(dir.path(), "lock").unwrap().is_some());
    }
}
