//! Private files that appear atomically, used by the keyring and the tokens.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};

use crate::{KeyError, once};

/// The maximum size of a key file.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Random bytes that cannot be guessed.
///
/// # Errors
/// The system returns no random numbers.
pub fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| KeyError::Make("the system gives no random numbers".to_owned()))?;
    Ok(bytes)
}

/// A random number that cannot be guessed.
///
/// # Errors
/// The system returns no random numbers.
pub fn random_number() -> Result<u64, KeyError> {
    random().map(u64::from_le_bytes)
}

/// Two hexadecimal digits for each byte.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text of exactly `2 * N` hexadecimal digits; `None` for another text.
#[must_use]
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = text.len() == 2 * N && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(is_hex.then(|| &text[2 * at..2 * at + 2])?, 16).ok()?;
    }
    Some(bytes)
}

pub(crate) fn make_private_dir(path: &Path) -> Result<(), KeyError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    // A umask removes bits, and a set-group-id parent directory adds one.
    let made = made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)));
    made.map_err(|error| KeyError::io("create", path, error))
}

/// Reads a file that only its owner can read.
pub(crate) fn read_private(path: &Path) -> Result<String, KeyError> {
    let failed = |error| KeyError::io("read", path, error);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Mode { path: path.to_path_buf(), mode });
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// Writes a complete, synced file beside `path`, under a unique name.
fn write_beside(path: &Path, text: &str) -> Result<PathBuf, KeyError> {
    let name = path.file_name().expect("a file of ours has a name").to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", to_hex(&random::<8>()?)));
    let written = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside); // The file may not exist.
        KeyError::io("write", path, error)
    })?;
    Ok(beside)
}

pub(crate) fn sync_parent(path: &Path) -> Result<(), KeyError> {
    let parent = path.parent().expect("a file of ours lies in a directory");
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|error| KeyError::io("sync", parent, error))
}

/// Writes a file unless it exists already.
pub(crate) fn create_once(path: &Path, text: &str) -> Result<(), KeyError> {
    if path.exists() {
        return Ok(()); // Without a write, because the directory may be read-only.
    }
    let beside = write_beside(path, text)?;
    match once::give_name(&beside, path) {
        Ok(()) => sync_parent(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(KeyError::io("write", path, error)),
    }
}

/// Replaces a file atomically.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), KeyError> {
    let beside = write_beside(path, text)?;
    fs::rename(&beside, path).map_err(|error| {
        let _ = fs::remove_file(&beside);
        KeyError::io("write", path, error)
    })?;
    sync_parent(path)
}
