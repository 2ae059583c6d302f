/*!
Delivers the input files of a task into its directory. No ordinary write of the task may reach the
files of other tasks, kept objects, or the user's own files.

The first possible way of these is chosen, by the file system and the size of the file:

1. a *clone* (`FICLONE`): the task's own file, which shares its bytes until one side writes;
2. a *private copy*: for a file of the user up to [`PRIVATE_INPUT_BYTES_MAX`]; for an object up to
   that size if the node runs as root (root ignores mode bits); for any input with a name that the
   task also declares as an output;
3. a *link to one read-only copy on this node*: an object is such a copy; for a file of the user up
   to [`COPIED_INPUT_BYTES_MAX`] one is made. If the node runs as root and may make a mount
   namespace, the link is in a directory that is mounted read-only for commands. For a directory up
   to that size one is made on nodes without such a namespace;
4. a *link to the user's file or directory*, through a read-only mount where there is a namespace.

Size and modification time of linked files are compared after the attempt: see [`LinkedInput`].
*/

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use proto::ObjectId;

use crate::archive::{self, Modes};
use crate::error::reason;
use crate::executor::Shared;
use crate::inputs::mounts::{Mounted, Mounts};
use crate::inputs::shared_trees::{SharedTrees, TreeCopy};
use crate::inputs::survey::Difference;
use crate::inputs::tree::{FileState, GUARDED_ENTRIES_MAX, TooManyEntries, Tree, Trees};
use crate::limits::{COPIED_INPUT_BYTES_MAX, PRIVATE_INPUT_BYTES_MAX};
use crate::locks;
use crate::objects::{ObjectError, ObjectReader};

/// The number of characters at the end of a file's name that a link to it keeps.
const HELD_NAME_CHARS: usize = 48;

/// The means of this node to deliver inputs.
#[derive(Debug)]
pub(crate) struct DeliveryMethods {
    /// Clones work between files of the state directory; false once one was refused.
    clones: AtomicBool,
    /// Commands run as root: a mode without write bits does not stop them.
    is_root: bool,
    /// The directory of links to files that commands must not write to.
    held_dir: PathBuf,
    /// The directory is read-only for commands, including those of root.
    shielded: AtomicBool,
    held: AtomicU64,
    trees: Trees,
    mounts: Mounts,
    /// The process with the mount namespace of commands.
    spawner: AtomicU32,
}

impl DeliveryMethods {
    pub(crate) fn open(held_dir: &Path) -> io::Result<Self> {
        // Links of an earlier incarnation are useless.
        match fs::remove_dir_all(held_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => crate::private::own_dir(held_dir)?,
        }
        Ok(Self {
            clones: AtomicBool::new(true),
            is_root: rustix::process::geteuid().is_root(),
            held_dir: held_dir.to_owned(),
            shielded: AtomicBool::new(false),
            held: AtomicU64::new(0),
            trees: Trees::default(),
            mounts: Mounts::open(&held_dir.with_file_name("mounted"))?,
            spawner: AtomicU32::new(0),
        })
    }

    /// The directory that the spawner must shield; `None` if modes suffice, without root.
    pub(crate) fn to_shield(&self) -> Option<&Path> {
        self.is_root.then_some(&self.held_dir)
    }

    /// A new spawner; whether it has a namespace is not known yet.
    pub(crate) fn spawner_starts(&self) {
        self.shielded.store(false, Ordering::Relaxed);
        self.mounts.follow(None);
    }

    pub(crate) fn spawner_is(&self, process: u32) {
        self.spawner.store(process, Ordering::Relaxed);
    }

    /// The spawner has a mount namespace, in which links are read-only.
    pub(crate) fn spawner_shields(&self) {
        self.shielded.store(true, Ordering::Relaxed);
        self.mounts.follow(Some(self.spawner.load(Ordering::Relaxed)));
    }

    /// True if a directory of the user is mounted, and so need not be copied.
    pub(crate) fn may_mount(&self) -> bool {
        self.mounts.may_mount()
    }

    /// Links a read-only file of this node for a task. If links are shielded, the task gets a
    /// symbolic link to a hard link in the shielded directory. Returns the path of that hard link.
    fn link(&self, source: &Path, target: &Path) -> io::Result<Option<PathBuf>> {
        if !self.shielded.load(Ordering::Relaxed) {
            // A hard link stays valid even if the object is deleted meanwhile.
            let linked = fs::hard_link(source, target);
            linked.or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Err(error),
                _ => symlink(source, target),
            })?;
            return Ok(None);
        }
        let number = self.held.fetch_add(1, Ordering::Relaxed);
        // The link has the same suffix as the file, because programs look at that.
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let skipped = name.chars().count().saturating_sub(HELD_NAME_CHARS);
        let end: String = name.chars().skip(skipped).collect();
        let held = self.held_dir.join(format!("{number}-{end}"));
        match fs::hard_link(source, &held) {
            Err(error) if locks::lacks_links(&error) => {
                // As without a shield: a change is detected when the attempt ends.
                return symlink(source, target).map(|()| None);
            }
            linked => linked?,
        }
        symlink(&held, target).inspect_err(|_| {
            let _ = fs::remove_file(&held);
        })?;
        Ok(Some(held))
    }

    /// Makes `target` a clone of a file. False: the file system cannot do that.
    fn clone(&self, source: &Path, target: &Path) -> io::Result<bool> {
        if !self.clones.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let from = File::open(source)?;
        let to = create(target, is_executable(&from.metadata()?))?;
        match rustix::fs::ioctl_ficlone(&to, &from) {
            Ok(()) => return Ok(true),
            // A file of another file system; files of this one may still be cloned.
            Err(rustix::io::Errno::XDEV) => {}
            Err(_) => self.clones.store(false, Ordering::Relaxed),
        }
        fs::remove_file(target)?;
        Ok(false)
    }
}

/// True if the node makes one copy of this user file for all its tasks.
pub(crate) fn is_copied_once(shared: &Shared, metadata: &Metadata) -> bool {
    metadata.is_file()
        && metadata.len() > PRIVATE_INPUT_BYTES_MAX
        && metadata.len() <= COPIED_INPUT_BYTES_MAX.min(shared.config.max_staged_bytes)
}

/// The target of a link in a task's directory.
#[derive(Clone, Debug)]
enum Linked {
    Object(ObjectId),
    /// The node's copy of this user file.
    Copy(PathBuf),
    /// The node's copy of this user directory.
    Tree(Arc<TreeCopy>),
    /// The file or directory of the user.
    Users,
}

/// A linked input, with its state before the attempt.
#[derive(Debug)]
pub(crate) struct LinkedInput {
    /// The name of the input in the task's declaration.
    name: String,
    linked: Linked,
    source: PathBuf,
    target: PathBuf,
    /// The link in the shielded directory; it is removed with this guard.
    held: Option<PathBuf>,
    before: FileState,
    /// The files of a directory.
    within: Option<Arc<Tree>>,
    /// The read-only mount that the task sees.
    mounted: Option<Mounted>,
}

impl LinkedInput {
    fn new(name: &str, linked: Linked, source: PathBuf, target: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(&source)?;
        let (name, target) = (name.to_owned(), target.to_owned());
        let (before, held) = (FileState::of(&metadata), None);
        Ok(Self { name, linked, source, target, held, before, within: None, mounted: None })
    }

    /// The guard of a file of this node that [`DeliveryMethods::link`] has linked.
    fn of_link(
        name: &str,
        linked: Linked,
        source: PathBuf,
        target: &Path,
        held: Option<PathBuf>,
    ) -> io::Result<Self> {
        let guard = Self::new(name, linked, source, target);
        if let (Err(_), Some(held)) = (&guard, &held) {
            let _ = fs::remove_file(held);
        }
        guard.map(|mut guard| {
            guard.held = held;
            guard
        })
    }

    /// The changed file, by its name for the user. A copy with added entries is dropped.
    fn changed(&self, trees: &SharedTrees) -> Option<String> {
        if let Linked::Tree(copy) = &self.linked {
            match copy.difference() {
                Difference::None => {}
                Difference::Added => trees.forget(copy),
                Difference::Changed(inside) => {
                    return Some(self.source.join(inside).display().to_string());
                }
            }
        }
        if let (Linked::Tree(_), None) = (&self.linked, &self.within) {
            return None;
        }
        if let Some(within) = &self.within {
            return within.changed(&self.source).map(|path| path.display().to_string());
        }
        let now = |path: &Path| fs::metadata(path).ok().map(|metadata| FileState::of(&metadata));
        // The object may be deleted by now, and its link removed from the directory.
        let paths = [Some(&self.source), self.held.as_ref(), Some(&self.target)];
        let states = paths.map(|path| now(path?));
        let now = states.into_iter().flatten().find(|state| state.inode == self.before.inode);
        now.is_some_and(|now| now != self.before).then(|| self.name.clone())
    }
}

impl Drop for LinkedInput {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            let _ = fs::remove_file(held); // The next start removes it otherwise.
        }
    }
}

/// Checks after an attempt whether a task has changed its linked inputs. A changed copy is dropped,
/// so that the next reader gets a sound one. Returns the message for the user.
pub(crate) fn check(shared: &Shared, guards: &[LinkedInput]) -> Option<String> {
    let mut told = None;
    for guard in guards {
        let Some(name) = guard.changed(&shared.trees) else { continue };
        let what = match &guard.linked {
            Linked::Object(object) => {
                shared.objects.drop_changed(*object);
                "the node drops this copy of it"
            }
            Linked::Copy(source) => {
                shared.staged.forget(source);
                "the node drops its copy of it"
            }
            Linked::Tree(copy) => {
                shared.trees.forget(copy);
                "the node drops its copy of it"
            }
            Linked::Users => "it is not a copy",
        };
        let text = format!("input file '{name}' was changed while the task ran: {what}");
        told.get_or_insert(text);
    }
    told
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.permissions().mode() & 0o111 != 0
}

fn create(target: &Path, executable: bool) -> io::Result<File> {
    let mode = if executable { 0o755 } else { 0o644 };
    OpenOptions::new().write(true).create_new(true).mode(mode).open(target)
}

/// The destination of an input, and the names for it.
#[derive(Debug)]
pub(crate) struct InputTarget<'a> {
    /// The name of the input in the task's declaration.
    pub(crate) name: &'a str,
    pub(crate) target: &'a Path,
    /// The task declares an output of this name, so it will write there.
    pub(crate) is_output: bool,
}

/// A delivered input: its paths, and the guard that is compared later.
pub(crate) type Delivered = (Vec<PathBuf>, Option<LinkedInput>);

fn told(name: &str, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let other = format!("{{ file = \"{name}\", as = \"...\" }}");
            format!("two inputs have this name; give one another: {other}")
        }
        _ => reason(error),
    };
    format!("input file '{name}': {why}")
}

/// Copies a directory for a task. Links stay links.
fn copy_tree(source: &Path, target: &Path) -> io::Result<()> {
    let mut rest = vec![(source.to_owned(), target.to_owned())];
    while let Some((from, to)) = rest.pop() {
        fs::create_dir(&to)?;
        for entry in fs::read_dir(&from)? {
            let (entry, metadata) = entry.and_then(|it| it.metadata().map(|found| (it, found)))?;
            let to = to.join(entry.file_name());
            if metadata.is_dir() {
                rest.push((entry.path(), to));
            } else if metadata.is_symlink() {
                symlink(fs::read_link(entry.path())?, to)?;
            } else if metadata.is_file() {
                let mut to = create(&to, is_executable(&metadata))?;
                io::copy(&mut File::open(entry.path())?, &mut to)?;
            }
        }
    }
    Ok(())
}

fn too_many(name: &str) -> String {
    format!(
        "input directory '{name}' has more than {GUARDED_ENTRIES_MAX} entries: the node cannot \
         tell whether the task changes them; name the files instead, or pack them into one file"
    )
}

fn opened(shared: &Shared, object: ObjectId) -> Result<(ObjectReader, u64), ObjectError> {
    shared.objects.sound(object, || shared.objects.open_object(object))
}

/// Delivers an object that is one file.
pub(crate) fn object(
    shared: &Shared,
    object: ObjectId,
    place: &InputTarget<'_>,
) -> Result<Delivered, String> {
    let &InputTarget { name, target, is_output } = place;
    let wrong = |error: ObjectError| match error {
        ObjectError::Absent(object) => {
            format!("input file '{name}': {object} is not on {}", shared.config.node)
        }
        _ => format!("input file '{name}': {error}"),
    };
    let io_wrong = |error: io::Error| told(name, &error);
    let size_bytes = shared.objects.size_bytes(object).unwrap_or(u64::MAX);
    let is_small = size_bytes <= PRIVATE_INPUT_BYTES_MAX;
    if is_output || (shared.means.is_root && is_small) {
        let (mut reader, _) = opened(shared, object).map_err(wrong)?;
        let mut to = create(target, reader.is_executable()).map_err(io_wrong)?;
        match reader.file() {
            Some(file) => io::copy(file, &mut to).map(drop),
            None => io::copy(&mut reader, &mut to).map(drop),
        }
        .map_err(io_wrong)?;
        return Ok((vec![target.to_owned()], None));
    }
    let file = || shared.objects.file(object);
    let source = shared.objects.sound(object, file).map_err(wrong)?;
    if shared.means.clone(&source, target).map_err(io_wrong)? {
        return Ok((vec![target.to_owned()], None));
    }
    let held = shared.means.link(&source, target).map_err(io_wrong)?;
    let linked = Linked::Object(object);
    let guard = LinkedInput::of_link(name, linked, source, target, held).map_err(io_wrong)?;
    if guard.before.size_bytes != size_bytes && size_bytes != u64::MAX {
        // The object was changed without a check, for example by a power failure.
        shared.objects.drop_changed(object);
        return Err(format!("input file '{name}': its object was damaged on this node"));
    }
    Ok((vec![target.to_owned()], Some(guard)))
}

/// Unpacks an object that is a directory.
pub(crate) fn directory(
    shared: &Shared,
    object: ObjectId,
    place: &InputTarget<'_>,
) -> Result<Delivered, String> {
    fs::create_dir(place.target).map_err(|error| told(place.name, &error))?;
    unpack(shared, object, place.name, place.target)?;
    Ok((vec![place.target.to_owned()], None))
}

/// Unpacks an object that stands for several files.
pub(crate) fn files(
    shared: &Shared,
    object: ObjectId,
    name: &str,
    directory: &Path,
) -> Result<Delivered, String> {
    let files = unpack(shared, object, name, directory)?;
    Ok((files.into_iter().map(|file| directory.join(file)).collect(), None))
}

fn unpack(
    shared: &Shared,
    object: ObjectId,
    name: &str,
    directory: &Path,
) -> Result<Vec<PathBuf>, String> {
    let (reader, _) =
        opened(shared, object).map_err(|error| format!("input file '{name}': {error}"))?;
    let reader = io::BufReader::with_capacity(proto::limits::PIECE_BYTES, reader);
    let unpacked = archive::unpack(reader, directory, Modes::Packed);
    Ok(unpacked.map_err(|error| told(name, &error))?.files)
}

/// Delivers a file or directory of the user.
pub(crate) fn external(
    shared: &Shared,
    source: &Path,
    metadata: &Metadata,
    place: &InputTarget<'_>,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<LinkedInput>, String> {
    let &InputTarget { name, target, is_output } = place;
    let wrong = |error: io::Error| told(name, &error);
    if metadata.is_file() {
        if metadata.dev() == shared.device && shared.means.clone(source, target).map_err(wrong)? {
            return Ok(None);
        }
        if is_output || metadata.len() <= PRIVATE_INPUT_BYTES_MAX {
            let mut from = File::open(source).map_err(wrong)?;
            let mut to = create(target, is_executable(metadata)).map_err(wrong)?;
            io::copy(&mut from, &mut to).map_err(wrong)?;
            return Ok(None);
        }
        // Without space for a copy, the file itself is linked.
        if is_copied_once(shared, metadata)
            && let Ok(staged) = shared.staged.get(source, &is_wanted)
        {
            let copy = staged.path();
            let held = shared.means.link(&copy, target).map_err(wrong)?;
            let linked = Linked::Copy(source.to_owned());
            return LinkedInput::of_link(name, linked, copy, target, held).map(Some).map_err(wrong);
        }
    }
    if !metadata.is_file() && !metadata.is_dir() {
        return symlink(source, target).map(|()| None).map_err(wrong); // A pipe or a device.
    }
    if is_output && metadata.is_dir() {
        return copy_tree(source, target).map(|()| None).map_err(wrong);
    }
    let mounted = shared.means.mounts.mount(source);
    if metadata.is_dir()
        && mounted.is_none()
        && let Some(copy) = shared.trees.get(source, &is_wanted)
    {
        return tree_copy(source, copy, place).map(Some);
    }
    let within = match (metadata.is_dir(), &mounted) {
        (false, _) => None,
        (true, Some(_)) => {
            let links = Tree::of_links(source).map_err(|TooManyEntries| too_many(name))?;
            Some(Arc::new(links))
        }
        (true, None) => {
            Some(shared.means.trees.read(source).map_err(|TooManyEntries| too_many(name))?)
        }
    };
    symlink(mounted.as_ref().map_or(source, Mounted::path), target).map_err(wrong)?;
    let guard = LinkedInput::new(name, Linked::Users, source.to_owned(), target);
    guard.map_err(wrong).map(|mut guard| {
        guard.within = within;
        guard.mounted = mounted;
        Some(guard)
    })
}

/// Links the node's copy of a directory. Files behind links that lead out of it are compared.
fn tree_copy(
    source: &Path,
    copy: Arc<TreeCopy>,
    place: &InputTarget<'_>,
) -> Result<LinkedInput, String> {
    let &InputTarget { name, target, .. } = place;
    let wrong = |error: io::Error| told(name, &error);
    let within = match copy.leads_out() {
        true => Some(Tree::of_links(source).map_err(|TooManyEntries| too_many(name))?),
        false => None,
    };
    symlink(copy.path(), target).map_err(wrong)?;
    let guard = LinkedInput::new(name, Linked::Tree(copy), source.to_owned(), target);
    let mut guard = guard.map_err(wrong)?;
    guard.within = within.map(Arc::new);
    Ok(guard)
}

/// Links the node's copy of a staged file.
pub(crate) fn staged(
    shared: &Shared,
    source: &Path,
    copy: &Path,
    place: &InputTarget<'_>,
) -> Result<Option<LinkedInput>, String> {
    let &InputTarget { name, target, is_output } = place;
    let wrong = |error: io::Error| told(name, &error);
    if shared.means.clone(copy, target).map_err(wrong)? {
        return Ok(None);
    }
    let metadata = fs::metadata(copy).map_err(wrong)?;
    if is_output || (shared.means.is_root && metadata.len() <= PRIVATE_INPUT_BYTES_MAX) {
        let mut from = File::open(copy).map_err(wrong)?;
        let mut to = create(target, is_executable(&metadata)).map_err(wrong)?;
        io::copy(&mut from, &mut to).map_err(wrong)?;
        return Ok(None);
    }
    let held = shared.means.link(copy, target).map_err(wrong)?;
    let linked = Linked::Copy(source.to_owned());
    LinkedInput::of_link(name, linked, copy.to_owned(), target, held).map(Some).map_err(wrong)
}

/// Writes bytes into an object.
pub(crate) struct ObjectWriter<'o>(pub(crate) &'o mut crate::objects::IncomingObject);

impl Write for ObjectWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
