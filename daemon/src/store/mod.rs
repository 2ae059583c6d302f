//! A node's records on disk: RocksDB, one atomic write per batch.
//!
//! A record's key is its partition (u32, big-endian) followed by its key within the partition. So
//! records that are written together are neighbours: ordered keys cost a sixth of scattered ones.
//! While the node runs, [`Reader`]s on other threads read only records for a new replica or a
//! take-over. The core has the rest in memory, hence no bloom filters and a small cache. A
//! [`Scrubber`] reads all records periodically, to find damage to the rest.
//!
//! Four bytes with a checksum of key and value follow each value. RocksDB has checksums of its
//! blocks and of its log. This one accompanies the record from the run loop to the disk and back.
//! So it also detects a change in between, or the value of another key.
//!
//! [`RocksStore::write`] puts a batch into the write-ahead log, where it survives a crash of the
//! process. After [`Syncer::sync`] it survives a power failure. After a failed write or sync the
//! content of the disk is unknown. Every later call returns [`StoreError::Stopped`] and the node
//! must stop; the next opening finds the records that were kept. Recovery accepts a truncated
//! record at the very end of the log, which no sync had covered (see `mark`). Any other damage is
//! an error and never skipped.

mod lock;
mod logs;
mod scrub;
pub(crate) mod scrubber;
mod sync_marker;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kvs::{Batch, Page, PageRequest, Record, Write, keys};
use proto::PartitionId;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRecoveryMode, Direction, IteratorMode,
    LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};
use sync_marker::Mark;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use scrub::{Piece, Scrubber};

/// Up to two of these buffers may be filled at a time.
const WRITE_BUFFER_BYTES: usize = 8 << 20;
const WRITE_BUFFERS: i32 = 2;
/// The log is replayed at a start; this bounds the time for that.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// The kernel is asked to write back after this number of bytes, so that a sync finds little left.
const WRITE_BACK_BYTES: u64 = 1 << 20;
const CACHE_BYTES: usize = 4 << 20;
const READAHEAD_BYTES: usize = 2 << 20;
const OPEN_FILES_MAX: i32 = 128;

const CHECKSUM_BYTES: usize = 4;

/// The key of the last batch's number: after all records, including those without a partition.
const LAST_SEQ_KEY: &[u8] = b"\xff\xff\xff\xff\xff seq";

/// The reason why the store cannot be opened, or the node must stop.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "the store {path} is in use by another process: stop that node, or use another directory"
    )]
    InUse { path: PathBuf },
    #[error("no permission for the store {path} ({reason}): check its owner and mode")]
    NoPermission { path: PathBuf, reason: String },
    #[error("no space is left for the store {path}: free some and start the node again")]
    NoSpace { path: PathBuf },
    #[error(
        "too many files are open for the store {path}: raise the limit (ulimit -n) and start the \
         node again"
    )]
    NoFiles { path: PathBuf },
    #[error("the store {path} is damaged ({reason})")]
    Damaged { path: PathBuf, reason: String },
    #[error("the store {path} failed ({reason}): see the machine's log and start the node again")]
    Failed { path: PathBuf, reason: String },
    #[error("the store {path} has failed before: the node must stop and start again")]
    Stopped { path: PathBuf },
}

impl StoreError {
    /// True if the content of the store is unreliable: it could not be read, or written records may
    /// be missing. A lack of space, permission or open files does not affect the content.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Failed { .. } | Self::Stopped { .. })
    }
}

/// The log and the records of one node. One writer; any number of [`Syncer`]s and [`Reader`]s.
#[derive(Debug)]
pub struct RocksStore {
    shared: Arc<Shared>,
    /// Buffers reused for each stored key and value.
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Reads records, from any thread.
#[derive(Clone, Debug)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// Makes written batches durable, from any thread.
#[derive(Clone, Debug)]
pub struct Syncer {
    shared: Arc<Shared>,
}

/// The progress of a sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synced {
    /// The last batch.
    pub(crate) seq: u64,
    /// By RocksDB's own count.
    sequence: u64,
}

struct Shared {
    db: DB,
    path: PathBuf,
    /// The last batch since the opening; 0 for none. Each incarnation counts its batches from the
    /// start, and must not mistake a number of the previous one for its own.
    last_seq: AtomicU64,
    mark: Mutex<Mark>,
    failed: AtomicBool,
    lacks_locks: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("path", &self.path)
            .field("last_seq", &self.last_seq)
            .finish()
    }
}

impl RocksStore {
    /// Opens the store, or makes an empty one if the directory has none. Returns also the number of
    /// the last batch in it, 0 for none.
    pub fn open(path: impl AsRef<Path>) -> Result<(Self, u64), StoreError> {
        let path = path.as_ref().to_owned();
        executor::private::own_dir(&path).map_err(|error| from_io(&path, &error))?;
        refuse_half_a_store(&path)?;
        let mut mark = Mark::check(&path)?;
        logs::check(&path)?;
        let lacks_locks = lock::fit(&path).map_err(|error| from_io(&path, &error))?.is_some();
        let db = DB::open(&options(), &path).map_err(|error| from_rocksdb(&path, &error))?;
        let last_seq = match db.get(LAST_SEQ_KEY).map_err(|error| from_rocksdb(&path, &error))? {
            None => 0,
            Some(bytes) => u64::from_le_bytes(bytes.try_into().map_err(|_| {
                StoreError::Damaged { path: path.clone(), reason: "its last batch".to_owned() }
            })?),
        };
        mark.opened(db.latest_sequence_number())?;
        let (last_written, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let mark = Mutex::new(mark);
        let shared = Shared { db, path, last_seq: last_written, mark, failed, lacks_locks };
        Ok((Self { shared: Arc::new(shared), key: Vec::new(), value: Vec::new() }, last_seq))
    }

    /// All records, by partition and then by key. Verifies checksums. An error ends the iteration
    /// and means that this replica is lost.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, StoreError>> + '_ {
        let mut options = ReadOptions::default();
        options.set_readahead_size(READAHEAD_BYTES);
        self.shared.read(IteratorMode::Start, options, LAST_SEQ_KEY.to_vec())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// True if its lock works on this machine only, because its file system has none.
    #[must_use]
    pub fn lacks_locks(&self) -> bool {
        self.shared.lacks_locks
    }

    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { shared: Arc::clone(&self.shared) }
    }

    /// Writes a batch into the log atomically. It then survives a crash of the process. To survive
    /// one of the machine it must be synced.
    pub fn write(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let bytes: usize = batch
            .writes
            .iter()
            .map(|write| {
                24 + CHECKSUM_BYTES + write.key.len() + write.value.as_ref().map_or(0, Vec::len)
            })
            .sum();
        let mut to_write = WriteBatch::with_capacity_bytes(64 + bytes);
        for &partition in &batch.cleared {
            let (from, to) = prefix_range(partition, b"");
            to_write.delete_range(from, to);
        }
        for (_, at) in by_partition(&batch.writes) {
            let write = &batch.writes[at];
            let is_of_node = write.partition == keys::META_PARTITION;
            assert!(is_of_node || write.partition.0 < proto::limits::PARTITIONS_MAX, "{write:?}");
            self.key.clear();
            self.key.extend_from_slice(&write.partition.0.to_be_bytes());
            self.key.extend_from_slice(&write.key);
            match &write.value {
                Some(value) => {
                    self.value.clear();
                    self.value.extend_from_slice(value);
                    self.value.extend_from_slice(&checksum(&self.key, value));
                    to_write.put(&self.key, &self.value);
                }
                None if keys::is_whole_job(&write.key) => {
                    let (from, to) = prefix_range(write.partition, &write.key);
                    to_write.delete_range(from, to);
                }
                None => to_write.delete(&self.key),
            }
        }
        to_write.put(LAST_SEQ_KEY, batch.seq.to_le_bytes());
        self.shared.write(to_write)?;
        self.shared.last_seq.store(batch.seq, Ordering::Release);
        Ok(())
    }

    /// Removes all records of a partition with keys that begin with `prefix`, at the cost of one
    /// write. Must be called between two batches. A crash right after it does not restore the
    /// records.
    pub fn remove_prefix(
        &mut self,
        partition: PartitionId,
        prefix: &[u8],
    ) -> Result<(), StoreError> {
        let (from, to) = prefix_range(partition, prefix);
        let mut to_write = WriteBatch::default();
        to_write.delete_range(from, to);
        self.shared.write(to_write)
    }

    /// As [`Syncer::sync`].
    pub fn sync(&self) -> Result<u64, StoreError> {
        self.syncer().sync()
    }

    #[must_use]
    pub fn syncer(&self) -> Syncer {
        Syncer { shared: self.shared.clone() }
    }
}

impl Reader {
    /// The present records of one partition that `request` selects.
    pub fn page(&self, request: &PageRequest) -> Result<Page, StoreError> {
        let (mut from, to) = prefix_range(request.partition, b"");
        if let Some(after) = &request.after {
            from.extend_from_slice(after);
            from.push(0); // The first key after it.
        }
        let mode = IteratorMode::From(&from, Direction::Forward);
        Page::fill(request, self.shared.read(mode, ReadOptions::default(), to))
    }
}

impl Syncer {
    /// Waits until all earlier writes are on stable storage, and returns the number of the last
    /// batch among them (0: none since the opening). Writes may continue meanwhile.
    pub fn sync(&self) -> Result<u64, StoreError> {
        let synced = self.make_durable()?;
        self.note(synced)?;
        Ok(synced.seq)
    }

    /// As [`Self::sync`], without writing its mark, which [`Self::note`] does. The results of a
    /// sync do not depend on its mark, because an older mark is valid too.
    pub(crate) fn make_durable(&self) -> Result<Synced, StoreError> {
        let seq = self.shared.last_seq.load(Ordering::Acquire);
        let sequence = self.shared.db.latest_sequence_number();
        self.shared.run(|db| db.flush_wal(true))?;
        Ok(Synced { seq, sequence })
    }

    /// Writes the mark of a sync.
    pub(crate) fn note(&self, synced: Synced) -> Result<(), StoreError> {
        let mut mark = self.shared.mark.lock().expect("no thread panics with the mark");
        let noted = mark.synced(synced.sequence);
        noted.inspect_err(|_| self.shared.failed.store(true, Ordering::Release))
    }
}

impl Shared {
    fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        self.run(|db| db.write_opt(batch, &WriteOptions::default()))
    }

    fn read(
        &self,
        mode: IteratorMode<'_>,
        mut options: ReadOptions,
        end: Vec<u8>,
    ) -> impl Iterator<Item = Result<Record, StoreError>> + '_ {
        options.set_verify_checksums(true);
        options.fill_cache(false);
        options.set_iterate_upper_bound(end);
        self.db.iterator_opt(mode, options).map(move |item| {
            let (key, value) = item.map_err(|error| from_rocksdb(&self.path, &error))?;
            self.record(&key, value.into_vec())
        })
    }

    fn record(&self, stored: &[u8], mut value: Vec<u8>) -> Result<Record, StoreError> {
        let (partition, key) = self.check(stored, &value)?;
        value.truncate(value.len() - CHECKSUM_BYTES);
        Ok(Record { partition, key: key.to_vec(), value })
    }

    /// Checks a stored record against its checksum. Returns its partition, and its key within it.
    fn check<'a>(
        &self,
        stored: &'a [u8],
        value: &[u8],
    ) -> Result<(PartitionId, &'a [u8]), StoreError> {
        let damaged = |reason: String| StoreError::Damaged { path: self.path.clone(), reason };
        let (partition, key) = keys::parse_stored(stored)
            .ok_or_else(|| damaged(format!("a key of {} bytes", stored.len())))?;
        match value.split_last_chunk::<CHECKSUM_BYTES>() {
            Some((value, sum)) if checksum(stored, value) == *sum => Ok((partition, key)),
            _ => Err(damaged(format!(
                "a record of {partition} and its checksum do not fit together"
            ))),
        }
    }

    fn run(
        &self,
        operation: impl FnOnce(&DB) -> Result<(), rocksdb::Error>,
    ) -> Result<(), StoreError> {
        if self.failed.load(Ordering::Acquire) {
            return Err(StoreError::Stopped { path: self.path.clone() });
        }
        operation(&self.db).map_err(|error| {
            self.failed.store(true, Ordering::Release);
            from_rocksdb(&self.path, &error)
        })
    }
}

/// The order in which writes go to the store. RocksDB searches the place of a key from that of the
/// previous one, so neighbours cost less than random keys. Writes of one partition keep their
/// order.
fn by_partition(writes: &[Write]) -> Vec<(PartitionId, usize)> {
    let mut order: Vec<_> = writes.iter().map(|write| write.partition).zip(0..).collect();
    order.sort(); // Writes of tasks come in ordered runs, which this sort only merges.
    order
}

fn checksum(stored_key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64_with_seed(value, xxh3_64(stored_key)) as u32).to_le_bytes()
}

/// From the first record of a partition with a key that begins with `prefix` to the first record
/// after them.
fn prefix_range(partition: PartitionId, prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
    assert!(partition.0 < proto::limits::PARTITIONS_MAX, "{partition}");
    let from = keys::stored(partition, prefix);
    let to = keys::after_prefix(&from).expect("a partition's first byte is never 0xff");
    (from, to)
}

fn options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    blocks.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_max_write_buffer_number(WRITE_BUFFERS);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_max_background_jobs(2);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_max_total_wal_size(LOG_BYTES_MAX);
    options.set_wal_bytes_per_sync(WRITE_BACK_BYTES);
    options.set_bytes_per_sync(WRITE_BACK_BYTES);
    // The default would also accept damage in the middle of the log and drop everything after it.
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_paranoid_checks(true);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_max_manifest_file_size(4 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

/// RocksDB takes a directory without a `CURRENT` file for an empty store and would start a new one.
fn refuse_half_a_store(path: &Path) -> Result<(), StoreError> {
    if path.join("CURRENT").exists() {
        return Ok(());
    }
    match file_of_records(path).map_err(|error| from_io(path, &error))? {
        None => Ok(()),
        Some(file) => {
            let reason = format!("there is {} but no CURRENT", file.display());
            Err(StoreError::Damaged { path: path.to_owned(), reason })
        }
    }
}

fn is_of_records(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "sst" || extension == "log")
}

/// The name of a file that may contain records, if there is one.
pub(crate) fn file_of_records(path: &Path) -> std::io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(path)? {
        let file = PathBuf::from(entry?.file_name());
        if is_of_records(&file) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// The bytes of the files that may contain records; 0 if there is no store.
pub(crate) fn bytes_of_records(path: &Path) -> std::io::Result<u64> {
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut bytes: u64 = 0;
    for entry in entries {
        let entry = entry?;
        if is_of_records(Path::new(&entry.file_name())) {
            bytes = bytes.saturating_add(entry.metadata()?.len());
        }
    }
    Ok(bytes)
}

/// The limit on open files of this process or of the system is reached.
fn lacks_files(number: i32) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].iter().any(|errno| errno.raw_os_error() == number)
}

fn from_io(path: &Path, error: &std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::NoPermission { path, reason: error.to_string() }
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::NoSpace { path },
        _ if error.raw_os_error().is_some_and(lacks_files) => StoreError::NoFiles { path },
        _ => StoreError::Failed { path, reason: error.to_string() },
    }
}

/// RocksDB distinguishes kinds of IO errors only in its text, which is that of `strerror`.
fn from_rocksdb(path: &Path, error: &rocksdb::Error) -> StoreError {
    let path = path.to_owned();
    let reason = error.to_string();
    let says = |text: &str| reason.contains(text);
    match error.kind() {
        rocksdb::ErrorKind::Corruption => StoreError::Damaged { path, reason },
        _ if says("lock hold by current process") => StoreError::InUse { path },
        _ if says("LOCK: Resource temporarily unavailable") => StoreError::InUse { path },
        _ if says("No space left on device") => StoreError::NoSpace { path },
        _ if says("Disk quota exceeded") => StoreError::NoSpace { path },
        _ if says("Too many open files") => StoreError::NoFiles { path },
        _ if says("Permission denied") => StoreError::NoPermission { path, reason },
        _ if says("Read-only file system") => StoreError::NoPermission { path, reason },
        _ => StoreError::Failed { path, reason },
    }
}

#[cfg(test)]
mod tests;
