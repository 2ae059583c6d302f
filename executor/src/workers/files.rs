//! The descriptors that a worker and its node share: two pipes, two files for printed text, and the
//! page that names the running call.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, ftruncate, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};

/// The size of the page that names the running call.
const WORD_PAGE_BYTES: u64 = 4096;
/// The position of the call that the next SIGINT is meant for.
const INTERRUPT_AT: u64 = 24;

/// The numbers of the descriptors in the worker, in the order of [`TheirEnds::fds`].
pub(super) const NUMBERS: [u32; 5] = [3, 4, 1, 2, 5];

/// The node's ends.
#[derive(Debug)]
pub(super) struct WorkerFiles {
    pub(super) to_worker: OwnedFd,
    pub(super) from_worker: OwnedFd,
    stdout: File,
    stderr: File,
    words: File,
}

/// The worker's ends, which the node closes once they are sent.
#[derive(Debug)]
pub(super) struct TheirEnds {
    input: OwnedFd,
    output: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    words: OwnedFd,
}

impl TheirEnds {
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 5] {
        let Self { input, output, stdout, stderr, words } = self;
        [input.as_fd(), output.as_fd(), stdout.as_fd(), stderr.as_fd(), words.as_fd()]
    }
}

impl WorkerFiles {
    pub(super) fn new() -> io::Result<(Self, TheirEnds)> {
        let (input, to_worker) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from_worker, output) = pipe_with(PipeFlags::CLOEXEC)?;
        for fd in [&to_worker, &from_worker] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        let stdout = memfd_create(c"starling-stdout", MemfdFlags::CLOEXEC)?;
        let stderr = memfd_create(c"starling-stderr", MemfdFlags::CLOEXEC)?;
        for fd in [&stdout, &stderr] {
            fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::APPEND)?;
        }
        let words = memfd_create(c"starling-words", MemfdFlags::CLOEXEC)?;
        ftruncate(&words, WORD_PAGE_BYTES)?;
        let files = Self {
            to_worker,
            from_worker,
            stdout: File::from(stdout.try_clone()?),
            stderr: File::from(stderr.try_clone()?),
            words: File::from(words.try_clone()?),
        };
        Ok((files, TheirEnds { input, output, stdout, stderr, words }))
    }

    /// The call that the worker runs by its own account; 0: none. `None`: it has never written its
    /// fields.
    pub(super) fn running(&self) -> Option<u64> {
        let mut bytes = [0; 24];
        self.words.read_exact_at(&mut bytes, 0).ok()?;
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let (call, _) = bytes.split_first_chunk::<8>()?;
        Some(u64::from_le_bytes(*call))
    }

    /// Names the call that the next SIGINT is meant for.
    pub(super) fn name_interrupted(&self, call: u64) -> io::Result<()> {
        self.words.write_all_at(&call.to_le_bytes(), INTERRUPT_AT)
    }

    /// The number of printed bytes that the worker has not sent.
    pub(super) fn printed_bytes(&self) -> u64 {
        let length = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
        length(&self.stdout) + length(&self.stderr)
    }

    /// The last printed bytes, of stdout and stderr, at most `most` each.
    pub(super) fn printed(&self, most: usize) -> [Vec<u8>; 2] {
        [&self.stdout, &self.stderr].map(|file| {
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            let from = length.saturating_sub(most as u64);
            let mut bytes = vec![0; usize::try_from(length - from).unwrap_or(0)];
            match file.read_exact_at(&mut bytes, from) {
                Ok(()) => bytes,
                Err(_) => Vec::new(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_node_sees_the_words_and_the_printed_text_of_a_worker() {
        let (files, theirs) = WorkerFiles::new().unwrap();
        assert_eq!(files.running(), None);
        let words = File::from(theirs.words);
        words.write_all_at(&7_u64.to_le_bytes(), 0).unwrap();
        files.name_interrupted(7).unwrap();
        let mut named = [0; 8];
        words.read_exact_at(&mut named, 24).unwrap();
        assert_eq!((files.running(), named), (Some(7), 7_u64.to_le_bytes()));
        words.write_all_at(&0_u64.to_le_bytes(), 0).unwrap();
        words.write_all_at(&1_u64.to_le_bytes(), 16).unwrap();
        assert_eq!(files.running(), Some(0));
        let mut stderr = File::from(theirs.stderr);
        stderr.write_all(b"one ").unwrap();
        stderr.write_all(b"two").unwrap();
        assert_eq!(files.printed_bytes(), 7);
        assert_eq!(files.printed(5), [b"".to_vec(), b"e two".to_vec()]);
    }
}
