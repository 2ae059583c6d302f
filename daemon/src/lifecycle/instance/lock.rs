/*!
Ensures that a directory has one user at a time.

A lock of the file system ensures this, where there is one. Some file systems have none (Lustre
without flock, AFS, some FUSE file systems). There a *beat* replaces it: a file that names the
process and is rewritten periodically. A start that finds a beat of its own machine checks whether
that process exists. If the beat is of another machine, the start watches whether it changes. A node
that finds another process's beat in place of its own ends. So a second start is refused while the
first node works. A node that was suspended for too long may write until its next beat; the user is
warned of that.
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
use proto::Span;

use super::{random_u64, temporary, write_synced};
use crate::error::StartError;
use crate::limits::LOCK_HEARTBEAT_TIMEOUT;

/// How long a node waits for the state directory of a predecessor that is just ending.
const STATE_LOCK_TIMEOUT: Span = Span::from_secs(1);

/// The interval at which a process writes a heartbeat into its directory, for file systems that may
/// have no locks.
const LOCK_HEARTBEAT_INTERVAL: Span = Span::from_secs(2);
/// If two processes begin heartbeats at the same time, the one that remains after this has the
/// directory.
const LOCK_HEARTBEAT_SETTLE_TIME: Span = Span::from_millis(250);
/// How often a process restarts a heartbeat that it wrote too slowly.
const LOCK_HEARTBEAT_STARTS_MAX: u32 = 3;

/// File systems of one machine, by their `statfs` numbers: ext, xfs, btrfs, tmpfs, zfs, overlayfs.
const LOCAL: [u64; 6] = [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x2FC1_2FC1, 0x794C_7630];

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0)
}

/// Exclusive use of a directory while this value lives.
#[derive(Debug)]
pub struct DirLock {
    path: PathBuf,
    /// The kernel frees the lock with the file, even if the process is killed.
    file: File,
    beat: Option<Heartbeat>,
    /// The reason why the file system's own lock does not protect the directory.
    missing: Option<io::Error>,
}

impl DirLock {
    /// Takes the lock `name` of a directory. A killed predecessor keeps it until the last of its
    /// threads is gone, so the call waits up to `STATE_LOCK_TIMEOUT`.
    pub fn take(dir: &Path, name: &str) -> Result<Self, StartError> {
        let begun = Instant::now();
        loop {
            match Self::try_to_take(dir, name)? {
                Some(lock) => return Ok(lock),
                None if begun.elapsed() < duration(STATE_LOCK_TIMEOUT) => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                None => return Err(StartError::InUse { path: dir.to_path_buf() }),
            }
        }
    }

    /// As [`Self::take`], without waiting. `None`: another process holds the lock.
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
            // The file system may have had no locks when the beat was written.
            false if look(&path_of_beat)? => return Ok(None),
            false => {
                // Removes the beat of a process that is gone. Usually there is none.
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

    /// True if the held lock is still the one in the directory. Otherwise the directory was removed
    /// or replaced, and another process may use the present one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        if self.is_taken() {
            return false;
        }
        let (Ok(held), found) = (self.file.metadata(), fs::metadata(&self.path)) else {
            return true; // This error proves nothing about the directory.
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

    /// True if another process has replaced this beat by its own.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.beat.as_ref().is_some_and(|beat| beat.is_lost.load(Ordering::Relaxed))
    }

    /// The reason why the file system has no locks, if so.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.missing.as_ref().map(crate::error::reason)
    }
}

/// True if no process holds the lock `name` of a directory. False also if that is unknown.
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

/// True if no other machine can access the file. An unknown file system may be shared.
fn is_local(file: &File) -> bool {
    // The kernel's numbers have 32 bits; for some of them the highest bit is extended as a sign.
    let kind = |found: rustix::fs::StatFs| found.f_type as u64 & 0xFFFF_FFFF;
    rustix::fs::fstatfs(file).is_ok_and(|found| LOCAL.contains(&kind(found)))
}

/// The process that writes a beat.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Owner {
    /// The boot of the machine, and the namespace of its processes.
    machine: String,
    pid: u32,
    /// The start time of the process by the kernel's clock, because process ids are reused.
    begun: String,
    /// A random number of this lock.
    number: u64,
    beats: u64,
}

impl Owner {
    fn this() -> Result<Self, StartError> {
        let pid = std::process::id();
        let begun = begun(pid).unwrap_or_default();
        Ok(Self { machine: machine(), pid, begun, number: random_u64()?, beats: 0 })
    }

    /// Removes this beat, unless another process's beat replaced it.
    fn withdraw(&self, path: &Path) {
        if Self::read(path).is_ok_and(|now| now.is_some_and(|now| now.number == self.number)) {
            let _ = fs::remove_file(path);
        }
    }

    /// Reads a beat; `None` if there is none. An unreadable beat is an error: its writer may be
    /// alive.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read_to_string(path) {
            Ok(text) => Ok(Self::of_text(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::read`], with retries for `LOCK_HEARTBEAT_TIMEOUT`. A file on a network file
    /// system may be unreadable for a moment after a replacement or while its server does not
    /// answer.
    fn read_soon(path: &Path) -> io::Result<Option<Self>> {
        let since = Instant::now();
        loop {
            match Self::read(path) {
                Err(_) if since.elapsed() < duration(LOCK_HEARTBEAT_TIMEOUT) => {
                    std::thread::sleep(duration(LOCK_HEARTBEAT_SETTLE_TIME));
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

    /// Writes the beat under a temporary name. This is the slow part of a beat.
    fn write_apart(&self, path: &Path) -> Result<TemporaryFile, StartError> {
        let Self { machine, pid, begun, number, beats } = self;
        let text = format!("{machine} {pid} {begun} {number} {beats}\n");
        let apart = TemporaryFile(temporary(path)?);
        write_synced(&apart.0, text.as_bytes())?;
        Ok(apart)
    }
}

/// A complete file under a temporary name. It is removed unless it gets its final name.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Renames the file. The directory is not synced: a beat has no meaning after a crash of its
    /// machine.
    fn give_name(self, path: &Path) -> Result<(), StartError> {
        fs::rename(&self.0, path).map_err(|e| StartError::io("write", path, e))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The boot of this machine and the namespace of its processes; a container has its own.
fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let text = format!("{}-{}", boot.trim(), pids.display());
    text.replace(char::is_whitespace, "")
}

/// The start time of a process; `None` if it does not exist, or is dead and not reaped.
fn begun(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    let begun = words.nth(18)?;
    (!["Z", "X"].contains(&state)).then(|| begun.to_owned())
}

/// True if there is a beat with a living writer. An error: its state is unknown.
fn is_beaten(path: &Path) -> io::Result<bool> {
    match Owner::read_soon(path)? {
        Some(owner) => lives(path, &owner),
        None => Ok(false),
    }
}

/// As [`is_beaten`], for a start, which is refused if the state is unknown.
fn look(path: &Path) -> Result<bool, StartError> {
    is_beaten(path).map_err(|error| StartError::io("read", path, error))
}

/// True if the writer of a beat lives, as far as this machine can see; `None` for another machine.
fn is_seen_to_live(owner: &Owner) -> Option<bool> {
    (owner.machine == machine()).then(|| begun(owner.pid).as_deref() == Some(&owner.begun))
}

/// True if the writer of a beat lives. A writer on another machine is watched for
/// `LOCK_HEARTBEAT_TIMEOUT`.
fn lives(path: &Path, owner: &Owner) -> io::Result<bool> {
    if let Some(lives) = is_seen_to_live(owner) {
        return Ok(lives);
    }
    let since = Instant::now();
    while since.elapsed() < duration(LOCK_HEARTBEAT_TIMEOUT) {
        std::thread::sleep(duration(LOCK_HEARTBEAT_SETTLE_TIME));
        match Owner::read_soon(path)? {
            None => return Ok(false), // The writer has just ended.
            Some(now) if now != *owner => return Ok(true),
            Some(_) => {}
        }
    }
    Ok(false)
}

/// The beat of this process, rewritten by a thread.
#[derive(Debug)]
struct Heartbeat {
    path: PathBuf,
    number: u64,
    /// Another process has taken the directory.
    is_lost: Arc<AtomicBool>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// `None`: the directory is in use.
    fn begin(path: &Path) -> Result<Option<Self>, StartError> {
        Self::begin_with(path, |apart, path| apart.give_name(path))
    }

    /// Of two processes that begin at once the later rename wins, and the other process sees that
    /// after `LOCK_HEARTBEAT_SETTLE_TIME`. So no rename may follow its check by more than that: a
    /// later one is withdrawn.
    fn begin_with(
        path: &Path,
        name: impl Fn(TemporaryFile, &Path) -> Result<(), StartError>,
    ) -> Result<Option<Self>, StartError> {
        let settled = duration(LOCK_HEARTBEAT_SETTLE_TIME);
        for _ in 0..LOCK_HEARTBEAT_STARTS_MAX {
            if look(path)? {
                return Ok(None);
            }
            let owner = Owner::this()?;
            let apart = owner.write_apart(path)?;
            // The write may have taken long.
            let since = Instant::now();
            if look(path)? {
                return Ok(None);
            }
            name(apart, path)?;
            if since.elapsed() > settled {
                owner.withdraw(path);
                // A process that lost its beat to this one writes it again.
                std::thread::sleep(duration(LOCK_HEARTBEAT_INTERVAL) + settled);
                continue;
            }
            std::thread::sleep(settled);
            return match Owner::read_soon(path) {
                Ok(Some(now)) if now.number == owner.number => Self::go_on(path, owner).map(Some),
                Ok(_) => Ok(None), // Another process began at the same time and renamed later.
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
            let every = duration(LOCK_HEARTBEAT_INTERVAL);
            while ended.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                match Owner::read(&theirs) {
                    Ok(Some(now)) if now.number != owner.number => {
                        return lost.store(true, Ordering::Relaxed);
                    }
                    // A beat that is unreadable now may be readable at the next turn.
                    _ => {}
                }
                owner.beats += 1;
                // If nothing can be written, the node ends by the failure of its other writes.
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
        dead.begun = "1".to_owned(); // The process id was given to another process.
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
            std::thread::sleep(duration(LOCK_HEARTBEAT_INTERVAL));
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
                std::thread::sleep(2 * duration(LOCK_HEARTBEAT_SETTLE_TIME));
                goes_on.write(&theirs).unwrap();
                std::thread::sleep(4 * duration(LOCK_HEARTBEAT_SETTLE_TIME));
                make_unreadable(&theirs);
                goes_on.beats += 1;
            }
            std::thread::sleep(2 * duration(LOCK_HEARTBEAT_SETTLE_TIME));
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
        // Another process begins between the check and the rename of this one.
        let others = std::cell::RefCell::new(None);
        let slow = |apart: TemporaryFile, path: &Path| {
            if others.borrow().is_none() {
                *others.borrow_mut() = begin(path);
                std::thread::sleep(duration(LOCK_HEARTBEAT_SETTLE_TIME));
            }
            apart.give_name(path)
        };
        let ours = Heartbeat::begin_with(&path, slow).unwrap();
        let other = others.into_inner().unwrap();
        assert!(ours.is_none() && !other.is_lost.load(Ordering::Relaxed));
        let always = |apart: TemporaryFile, path: &Path| {
            std::thread::sleep(2 * duration(LOCK_HEARTBEAT_SETTLE_TIME));
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
