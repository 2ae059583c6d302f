/*!
Read-only mounts of the user's large files and directories, visible only to commands of this node.

They are in the mount namespace of the spawner, where one thread of the node makes them. Their mount
points are in a file system of memory that only this namespace has. So a command that another
spawner starts later finds no file there, instead of an empty one.
*/

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proto::Span;
use rustix::fs::StatVfsMountFlags;
use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind_recursive, mount_remount, unmount,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A mount that takes longer is given up: its file system does not answer.
const MOUNT_TIMEOUT: Span = Span::from_secs(10);

/// The number of bytes at the end of a name that its mount point keeps.
const POINT_NAME_BYTES: usize = 48;

enum Order {
    Mount { source: PathBuf, point: PathBuf, answer: SyncSender<io::Result<()>> },
    Unmount(PathBuf),
}

/// The mounts of one node.
#[derive(Debug)]
pub(crate) struct Mounts {
    root: PathBuf,
    /// Reaches the thread in the namespace of the spawner, if there is one.
    thread: Mutex<Option<Sender<Order>>>,
    number: AtomicU64,
}

/// A mount, which is removed with this value.
#[derive(Debug)]
pub(crate) struct Mounted {
    point: PathBuf,
    orders: Sender<Order>,
}

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        &self.point
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Without its spawner the mount is gone already.
        let _ = self.orders.send(Order::Unmount(std::mem::take(&mut self.point)));
    }
}

impl Mounts {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        crate::private::own_dir(root)?;
        let (thread, number) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { root: root.to_owned(), thread, number })
    }

    /// The commands run in the namespace of this process from now on; `None`: in none of their own.
    pub(crate) fn follow(&self, spawner: Option<u32>) {
        let started = spawner.and_then(|spawner| start(spawner, &self.root).ok());
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = started;
    }

    /// True if the commands run in a namespace of their own, so that mounts may work.
    pub(crate) fn may_mount(&self) -> bool {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Mounts a file or directory read-only; `None` if this node cannot.
    pub(crate) fn mount(&self, source: &Path) -> Option<Mounted> {
        let orders = self.thread.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let mut name = OsString::from(self.number.fetch_add(1, Ordering::Relaxed).to_string());
        // Programs look at the suffix.
        if let Some(own) = source.file_name().filter(|own| own.len() <= POINT_NAME_BYTES) {
            name.push("-");
            name.push(own);
        } else if let Some(suffix) = source.extension().filter(|it| it.len() <= POINT_NAME_BYTES) {
            name.push(".");
            name.push(suffix);
        }
        let (answer, answered) = sync_channel(1);
        let (point, from) = (self.root.join(name), fs::canonicalize(source).ok()?);
        let order = Order::Mount { source: from, point: point.clone(), answer };
        orders.send(order).ok()?;
        // From here on the mount point is removed in any case.
        let mounted = Mounted { point, orders };
        let result = answered.recv_timeout(Duration::from_nanos(MOUNT_TIMEOUT.0)).ok()?;
        result.is_ok().then_some(mounted)
    }
}

/// The namespace of the threads that start commands. In the own one, mounts would be visible
/// everywhere.
fn namespace_of(spawner: u32) -> io::Result<File> {
    let own = fs::metadata("/proc/thread-self/ns/mnt")?.ino();
    for thread in fs::read_dir(format!("/proc/{spawner}/task"))? {
        let namespace = File::open(thread?.path().join("ns/mnt"))?;
        if namespace.metadata()?.ino() != own {
            return Ok(namespace);
        }
    }
    Err(io::ErrorKind::Unsupported.into())
}

fn start(spawner: u32, root: &Path) -> io::Result<Sender<Order>> {
    let namespace = namespace_of(spawner)?;
    let (orders, taken) = channel();
    let (ready, is_ready) = sync_channel(1);
    let root = root.to_owned();
    std::thread::Builder::new().name("mounts".to_owned()).spawn(move || {
        let entered = enter(&namespace, &root);
        let is_entered = entered.is_ok();
        let _ = ready.send(entered);
        if is_entered {
            serve(&taken);
        }
    })?;
    is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
    Ok(orders)
}

#[expect(unsafe_code, reason = "the call may be unsafe for what shares file descriptors")]
fn leave_shared_directory() -> rustix::io::Result<()> {
    // SAFETY: only root and working directory of this thread become its own; descriptors stay.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
}

/// Takes this thread into a namespace, and makes room for mount points there.
fn enter(namespace: &File, root: &Path) -> io::Result<()> {
    leave_shared_directory()?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("starling", root, "tmpfs", flags, Some(c"mode=0755,size=16m"))?;
    Ok(())
}

fn serve(orders: &Receiver<Order>) {
    for order in orders {
        match order {
            Order::Mount { source, point, answer } => {
                let mounted = mount_read_only(&source, &point);
                if mounted.is_err() {
                    remove(&point);
                }
                let _ = answer.send(mounted); // After the timeout nothing waits.
            }
            Order::Unmount(point) => remove(&point),
        }
    }
}

fn mount_read_only(source: &Path, point: &Path) -> io::Result<()> {
    let before = fs::metadata(source)?;
    match before.is_dir() {
        true => fs::create_dir(point)?,
        false => drop(File::create_new(point)?),
    }
    mount_bind_recursive(source, point)?;
    // Flags of the file system stay, because some must not be removed.
    let old = rustix::fs::statvfs(point)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (is_set, flag) in [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        flags.set(flag, old.contains(is_set));
    }
    mount_remount(point, flags, "")?;
    let after = fs::metadata(point)?;
    let is_read_only = rustix::fs::statvfs(point)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    if !is_read_only || (before.dev(), before.ino()) != (after.dev(), after.ino()) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(())
}

/// Removes a mount and its empty mount point.
fn remove(point: &Path) {
    let _ = unmount(point, UnmountFlags::DETACH); // There may be none.
    // Both refuse a mount point in use, so nothing of the user is removed.
    let _ = fs::remove_dir(point).or_else(|_| fs::remove_file(point));
}
