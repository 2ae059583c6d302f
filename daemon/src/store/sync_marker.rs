//! What a store must still have when it is opened again.
//!
//! RocksDB takes damage to the length of a record near the end of its log, or of its manifest, for
//! a write that a power cut tore, and drops that record and all after it without a word. Nothing in
//! these files tells the two apart. So after each sync a small file beside them says how far the
//! store had come by then, and what its manifest was. A store that has less is damaged; one that
//! has more was written to since.
//!
//! The mark itself is written over in place and not synced: it says only what was synced before, so
//! an old one is as true as a new one. It lies within one sector and is never torn.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use executor::locks::{self, Taken};

use super::{StoreError, from_io};

const FILE: &str = "SYNCED";
/// Sequence number, then number, length and checksum of the manifest, then a checksum of all that.
const BYTES: usize = 32;
/// More than RocksDB lets a manifest grow to, by far.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// The beginning of a manifest.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Manifest {
    number: u64,
    bytes: u64,
    checksum: u32,
}

/// The mark of an open store.
pub(super) struct Mark {
    db: PathBuf,
    file: File,
    /// By RocksDB's own count of changes, which goes on from one opening to the next.
    sequence: u64,
    manifest: Manifest,
    /// Of that beginning of the manifest.
    hasher: Hasher,
}

impl Mark {
    /// Before RocksDB opens the store, as that replaces the manifest: checks what it will read.
    pub(super) fn check(db: &Path) -> Result<Self, StoreError> {
        let path = db.join(FILE);
        let io = |error: std::io::Error| from_io(db, &error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        // Whoever has the store open writes there, and to the manifest.
        match locks::take(&file).map_err(io)? {
            Taken::Ours => {}
            Taken::Held => return Err(StoreError::InUse { path: db.to_path_buf() }),
            Taken::NoLocks(_) => {} // What protects the state directory protects the store.
        }
        let mut bytes = Vec::with_capacity(BYTES);
        (&file).take(BYTES as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
        let damaged = |reason: &str| StoreError::Damaged {
            path: db.to_path_buf(),
            reason: reason.to_owned(),
        };
        let (sequence, known) = match bytes.len() {
            0 => Default::default(), // Never synced.
            _ => decode(&bytes).ok_or_else(|| damaged("what its last sync wrote down"))?,
        };
        if known.bytes > 0 && current_manifest(db)? == Some(known.number) {
            let found = read_manifest(db, known.number, Hasher::new(), 0, known.bytes)?.0;
            if found != known {
                return Err(damaged("its manifest is not what the last sync left"));
            }
        }
        let (db, hasher) = (db.to_path_buf(), Hasher::new());
        Ok(Self { db, file, sequence, manifest: Manifest::default(), hasher })
    }

    /// That the store, as it was opened, has come as far as it had when it was last synced.
    pub(super) fn opened(&mut self, sequence: u64) -> Result<(), StoreError> {
        if sequence < self.sequence {
            let missing = self.sequence - sequence;
            let reason = format!("the last {missing} changes that were synced are not there");
            return Err(StoreError::Damaged { path: self.db.clone(), reason });
        }
        self.synced(self.sequence)
    }

    /// All changes up to `sequence` are on stable storage.
    pub(super) fn synced(&mut self, sequence: u64) -> Result<(), StoreError> {
        self.follow_manifest()?;
        self.sequence = self.sequence.max(sequence);
        let bytes = encode(self.sequence, self.manifest);
        self.file.write_all_at(&bytes, 0).map_err(|error| from_io(&self.db, &error))
    }

    /// The manifest, as far as the last sync has come.
    pub(super) fn manifest(&self) -> KnownManifest {
        KnownManifest { db: self.db.clone(), known: self.manifest }
    }

    /// Takes in what the manifest has more than at the last look. RocksDB may just be writing it.
    fn follow_manifest(&mut self) -> Result<(), StoreError> {
        let Some(number) = current_manifest(&self.db)? else { return Ok(()) };
        let path = manifest_path(&self.db, number);
        let bytes = match path.metadata() {
            Ok(metadata) => metadata.len(),
            // Another one has just taken its place.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(from_io(&self.db, &error)),
        };
        if (number, bytes) == (self.manifest.number, self.manifest.bytes) {
            return Ok(());
        }
        let is_same = number == self.manifest.number && bytes > self.manifest.bytes;
        let (hasher, from) = match is_same {
            true => (self.hasher.clone(), self.manifest.bytes),
            false => (Hasher::new(), 0),
        };
        let (manifest, hasher) = read_manifest(&self.db, number, hasher, from, bytes)?;
        // What the mark says must be there after a power cut too.
        let synced = File::open(&path).and_then(|file| file.sync_data());
        synced.map_err(|error| from_io(&self.db, &error))?;
        (self.manifest, self.hasher) = (manifest, hasher);
        Ok(())
    }
}

/// What a manifest must still be, to be looked at while syncs go on.
pub(super) struct KnownManifest {
    db: PathBuf,
    known: Manifest,
}

impl KnownManifest {
    /// RocksDB only ever adds to a manifest, or lets another one take its place.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.known.bytes == 0 {
            return Ok(());
        }
        let (number, bytes) = (self.known.number, self.known.bytes);
        let found = read_manifest(&self.db, number, Hasher::new(), 0, bytes);
        // Last, as it may have gone while it was read.
        if current_manifest(&self.db)? != Some(number) || found?.0 == self.known {
            return Ok(());
        }
        let reason = "its manifest is not what the last sync left".to_owned();
        Err(StoreError::Damaged { path: self.db.clone(), reason })
    }
}

fn manifest_path(db: &Path, number: u64) -> PathBuf {
    db.join(format!("MANIFEST-{number:06}"))
}

/// The manifest that counts; `None`: no store was made yet.
fn current_manifest(db: &Path) -> Result<Option<u64>, StoreError> {
    let text = match std::fs::read(db.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(from_io(db, &error)),
    };
    let text = String::from_utf8_lossy(&text);
    let number = text.trim_end().strip_prefix("MANIFEST-").and_then(|digits| digits.parse().ok());
    number.map(Some).ok_or_else(|| StoreError::Damaged {
        path: db.to_path_buf(),
        reason: "its CURRENT names no manifest".to_owned(),
    })
}

/// Adds the bytes `from..to` of a manifest to what is known of it; fewer if it has fewer.
fn read_manifest(
    db: &Path,
    number: u64,
    mut hasher: Hasher,
    from: u64,
    to: u64,
) -> Result<(Manifest, Hasher), StoreError> {
    let to = to.min(MANIFEST_BYTES_MAX);
    let read = || {
        let file = File::open(manifest_path(db, number))?;
        let (mut at, mut block) = (from, [0; 1 << 14]);
        while at < to {
            let wanted = block.len().min((to - at) as usize);
            let read = file.read_at(&mut block[..wanted], at)?;
            if read == 0 {
                break;
            }
            hasher.update(&block[..read]);
            at += read as u64;
        }
        let checksum = hasher.clone().finalize();
        Ok((Manifest { number, bytes: at, checksum }, hasher))
    };
    read().map_err(|error: std::io::Error| from_io(db, &error))
}

fn encode(sequence: u64, manifest: Manifest) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes[8..16].copy_from_slice(&manifest.number.to_le_bytes());
    bytes[16..24].copy_from_slice(&manifest.bytes.to_le_bytes());
    bytes[24..28].copy_from_slice(&manifest.checksum.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..28]);
    bytes[28..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u64, Manifest)> {
    let (rest, checksum) = bytes.split_last_chunk::<4>()?;
    if bytes.len() != BYTES || crc32fast::hash(rest) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (sequence, rest) = rest.split_first_chunk()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (length, checksum) = rest.split_first_chunk()?;
    let manifest = Manifest {
        number: u64::from_le_bytes(*number),
        bytes: u64::from_le_bytes(*length),
        checksum: u32::from_le_bytes(checksum.try_into().ok()?),
    };
    Some((u64::from_le_bytes(*sequence), manifest))
}
