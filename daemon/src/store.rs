//! A node's records on disk: RocksDB, one atomic write per batch.
//!
//! A record's key is its partition (u32, big-endian) followed by its key within the partition, so
//! what is written together lies together: ordered keys cost a sixth of scattered ones. Only what
//! goes to a new copy or is taken over is read while the node runs, by [`Reader`]s beside the loop
//! (the core has the rest in memory), hence no bloom filters and a small cache. So that damage to
//! the rest is found, too, a [`Scrubber`] reads all of it now and then.
//!
//! A value is followed by four bytes of a checksum of key and value. RocksDB has checksums of its
//! blocks and of its log; ours goes with the record from the loop to the loop, so that nothing in
//! between may exchange a byte or give one key the value of another.
//!
//! [`RocksStore::write`] puts a batch into the write-ahead log: it survives the death of the
//! process. [`Syncer::sync`] makes it survive a power cut. After a write or sync has failed, nobody
//! knows what is on disk: every later call answers [`StoreError::Stopped`] and the node must stop;
//! opening again tells what was kept. Recovery accepts a record that was cut short at the very
//! end of the log, which no sync had covered (see `mark`); any other damage is an error, never
//! skipped.

mod lock;
mod logs;
mod scrub;
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

/// Two of these may be filled at a time.
const WRITE_BUFFER_BYTES: usize = 8 << 20;
const WRITE_BUFFERS: i32 = 2;
/// The log is replayed at a start: this bounds how long that takes.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// The kernel is asked to write back this often, so that a sync finds little left to do.
const WRITE_BACK_BYTES: u64 = 1 << 20;
const CACHE_BYTES: usize = 4 << 20;
const READAHEAD_BYTES: usize = 2 << 20;
const OPEN_FILES_MAX: i32 = 128;

const CHECKSUM_BYTES: usize = 4;

/// Where the last batch's number is kept: after all records, those that are of no partition too.
const LAST_SEQ_KEY: &[u8] = b"\xff\xff\xff\xff\xff seq";

/// Why the store cannot be opened, or the node must stop.
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
    /// Whether nobody may rely any more on what is in the store: it could not be read, or what was
    /// written may not be there. Without room, permission or open files it is as good as it was.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Failed { .. } | Self::Stopped { .. })
    }
}

/// The log and the records of one node. One writer; any number of [`Syncer`]s and [`Reader`]s.
#[derive(Debug)]
pub struct RocksStore {
    shared: Arc<Shared>,
    /// Reused for each stored key and value.
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

/// How far a sync has come.
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
    /// Of this opening, 0 for none: each incarnation counts its batches from the start, and must
    /// not take a number of the one before for its own.
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
    /// Opens the store, making an empty one when the directory has none. Also tells the number of
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

    /// All records, by partition and then by key. Checksums are verified; an error ends the walk
    /// and means that this copy is lost.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, StoreError>> + '_ {
        let mut options = ReadOptions::default();
        options.set_readahead_size(READAHEAD_BYTES);
        self.shared.read(IteratorMode::Start, options, LAST_SEQ_KEY.to_vec())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Whether its lock holds on this machine only, as its file system has none.
    #[must_use]
    pub fn lacks_locks(&self) -> bool {
        self.shared.lacks_locks
    }

    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader { shared: Arc::clone(&self.shared) }
    }

    /// Writes a batch into the log, whole or not at all. It then survives the process, not the
    /// machine: that takes a sync.
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

    /// Removes all records of a partition whose key begins with `prefix`, however many, at the
    /// price of one write. Between two batches; a crash right after it does not bring them back.
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
    /// Some records of one partition, as of now.
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
    /// Waits until all that was written before the call is on stable storage, and tells the number
    /// of the last batch among it (0: none since the opening). Writing may go on meanwhile.
    pub fn sync(&self) -> Result<u64, StoreError> {
        let synced = self.make_durable()?;
        self.note(synced)?;
        Ok(synced.seq)
    }

    /// As [`Self::sync`], but for the mark of it, which [`Self::note`] writes: nothing that is told
    /// of a sync depends on its mark, and an old one is as true.
    pub(crate) fn make_durable(&self) -> Result<Synced, StoreError> {
        let seq = self.shared.last_seq.load(Ordering::Acquire);
        let sequence = self.shared.db.latest_sequence_number();
        self.shared.run(|db| db.flush_wal(true))?;
        Ok(Synced { seq, sequence })
    }

    /// Marks how far a sync has come.
    pub(crate) fn note(&self, synced: Synced) -> Result<(), StoreError> {
        let mut mark = self.shared.mark.lock().expect("nobody panics with the mark");
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

    /// Whether a record is what was written; its partition and its key in there.
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

/// The order in which writes go to the store: RocksDB looks for the place of a key from that of the
/// key before, so neighbours cost it less than keys at random. Those of one partition keep theirs.
fn by_partition(writes: &[Write]) -> Vec<(PartitionId, usize)> {
    let mut order: Vec<_> = writes.iter().map(|write| write.partition).zip(0..).collect();
    order.sort(); // Writes of tasks come in ordered runs, which this kind of sort only joins.
    order
}

fn checksum(stored_key: &[u8], value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64_with_seed(value, xxh3_64(stored_key)) as u32).to_le_bytes()
}

/// From the first record of a partition whose key begins with `prefix` to the first after them.
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
    // The default would also accept damage in the middle of the log and drop all after it.
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

/// RocksDB takes a directory without its `CURRENT` file for an empty one and would begin afresh.
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

/// The name of a file there in which records may be, if there is one.
pub(crate) fn file_of_records(path: &Path) -> std::io::Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(path)? {
        let file = PathBuf::from(entry?.file_name());
        if is_of_records(&file) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Of the files there in which records may be; 0 where there is no store.
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

/// This process, or all together, may open no more.
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

/// RocksDB tells kinds of IO errors apart only in its text, which is `strerror`'s.
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
