//! Periodic reading of all of a node's records, to find damage while other nodes still have
//! replicas. The core keeps in memory the records that it serves, so a replica on disk is otherwise
//! never read.
//!
//! A pass takes a bounded share of the disk and of a CPU, and may take hours. Damage is reported to
//! the run loop like a page that cannot be read.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::spawn_blocking;

use crate::clock::duration;
use crate::event_loop::inbox::Local;
use crate::store::{Piece, Scrubber, StoreError};
use proto::Span;

/// The scrubber reads at most this many bytes per second, in pieces of this size. It rests at least
/// `SCRUB_REST_FACTOR` times as long as a piece took.
const SCRUB_BYTES_PER_S: u64 = 8 << 20;
const SCRUB_PIECE_BYTES: usize = 1 << 20;
const SCRUB_REST_FACTOR: u32 = 3;
/// A damaged piece is read again after this delay, and counts if it is still damaged.
const SCRUB_RECHECK_AFTER: Span = Span::from_secs(1);

/// The result of one pass over the store.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct ScrubPass {
    pub(crate) records: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

/// Receives a finding of the first look, which the second look may not confirm.
type LogLine = Box<dyn Fn(&str) + Send + Sync>;

/// Reads a store periodically.
pub(crate) struct Scrub {
    pub(crate) scrubber: Scrubber,
    /// From the start of a pass to the start of the next.
    pub(crate) every: Duration,
    /// Determines the start of the first pass, so that the nodes of a cluster read at different
    /// times.
    pub(crate) seed: u64,
    pub(crate) say: LogLine,
}

impl Scrub {
    /// Continues until damage is found or the run loop ends.
    pub(crate) async fn keep_on(mut self, local: UnboundedSender<Local>) {
        // All records were read at the start of the node.
        tokio::time::sleep(first_wait(self.every, self.seed)).await;
        loop {
            let start = Instant::now();
            let result = self.pass().await;
            let is_over = result.as_ref().is_err_and(StoreError::is_loss);
            if local.send(Local::Scrubbed(result)).is_err() || is_over {
                return;
            }
            tokio::time::sleep(self.every.saturating_sub(start.elapsed())).await;
        }
    }

    async fn pass(&mut self) -> Result<ScrubPass, StoreError> {
        let start = Instant::now();
        let mut pass = ScrubPass::default();
        self.surely(Scrubber::begin).await?;
        loop {
            let piece_start = Instant::now();
            let read = |scrubber: &mut Scrubber| scrubber.piece(SCRUB_PIECE_BYTES);
            let Piece { records, bytes, is_last } = self.surely(read).await?;
            pass.records += records;
            pass.bytes += bytes;
            if is_last {
                pass.took = start.elapsed();
                return Ok(pass);
            }
            tokio::time::sleep(rest(bytes, piece_start.elapsed())).await;
        }
    }

    /// Looks a second time before a complete replica is given up.
    async fn surely<T: Send + 'static>(
        &mut self,
        look: impl Fn(&mut Scrubber) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.once(look.clone()).await {
            Err(error) if error.is_loss() => {
                (self.say)(&format!("{error}; it is looked at again"));
                tokio::time::sleep(duration(SCRUB_RECHECK_AFTER)).await;
                self.once(move |scrubber| {
                    scrubber.look_at_the_disk();
                    look(scrubber)
                })
                .await
            }
            result => result,
        }
    }

    /// On another thread, like all file reads.
    async fn once<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&mut Scrubber) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let mut scrubber = self.scrubber.clone();
        let looked = spawn_blocking(move || {
            let result = look(&mut scrubber);
            (result, scrubber)
        });
        let (result, scrubber) = looked.await.expect("reading does not panic");
        self.scrubber = scrubber;
        result
    }
}

/// Between half of the interval and all of it.
fn first_wait(every: Duration, seed: u64) -> Duration {
    every.mul_f64(0.5 + (seed >> 11) as f64 / (1_u64 << 54) as f64)
}

/// The pause after reading this number of bytes. It bounds the bytes per second, and the share of
/// time even on a slow disk.
fn rest(bytes: u64, took: Duration) -> Duration {
    let allowed = Duration::from_secs_f64(bytes as f64 / SCRUB_BYTES_PER_S as f64);
    allowed.saturating_sub(took).max(took * SCRUB_REST_FACTOR)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use kvs::{Batch, Write};
    use proto::PartitionId;
    use tokio::sync::mpsc::{self, UnboundedReceiver};

    use super::*;
    use crate::store::RocksStore;

    const EVERY: Duration = Duration::from_millis(40);
    const PATIENCE: Duration = Duration::from_secs(20);

    /// All records in one table.
    fn stored(dir: &Path) -> (RocksStore, PathBuf) {
        let (mut store, _) = RocksStore::open(dir).unwrap();
        let put = |number: u32| {
            let (partition, key) = (PartitionId(number % 5), number.to_be_bytes().to_vec());
            Write { partition, key, value: Some(vec![7; 900]) }
        };
        let writes = (0..100).map(put).collect();
        store.write(&Batch { seq: 1, cleared: Vec::new(), writes }).unwrap();
        store.scrubber().begin().unwrap();
        let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut tables = paths.filter(|path| path.extension().is_some_and(|end| end == "sst"));
        (store, tables.next().unwrap())
    }

    fn flip(path: &Path) {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (at, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }

    async fn next(told: &mut UnboundedReceiver<Local>) -> Result<ScrubPass, StoreError> {
        match tokio::time::timeout(PATIENCE, told.recv()).await {
            Ok(Some(Local::Scrubbed(result))) => result,
            other => panic!("nothing was told of a pass: {other:?}"),
        }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn a_sound_store_is_read_again_and_again() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (store, _) = stored(dir.path());
            let say: LogLine = Box::new(|line| panic!("nothing is wrong: {line}"));
            let scrub = Scrub { scrubber: store.scrubber(), every: EVERY, seed: 0, say };
            let (local, mut told) = mpsc::unbounded_channel();
            let task = tokio::spawn(scrub.keep_on(local));
            let first = next(&mut told).await.unwrap();
            assert_eq!(first.records, 100);
            assert!(first.bytes > 90_000, "{first:?}");
            let second = next(&mut told).await.unwrap();
            assert_eq!((second.records, second.bytes), (first.records, first.bytes));
            drop(told);
            tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
        });
    }

    #[test]
    fn damage_found_twice_is_reported_once() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (store, table) = stored(dir.path());
            flip(&table);
            let said = Arc::new(Mutex::new(Vec::new()));
            let lines = Arc::clone(&said);
            let say: LogLine = Box::new(move |line| lines.lock().unwrap().push(line.to_owned()));
            let scrub = Scrub { scrubber: store.scrubber(), every: EVERY, seed: 0, say };
            let (local, mut told) = mpsc::unbounded_channel();
            let task = tokio::spawn(scrub.keep_on(local));
            let error = next(&mut told).await.unwrap_err();
            assert!(error.is_loss() && error.to_string().contains("checksum"), "{error}");
            tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
            let said = said.lock().unwrap();
            assert!(said.len() == 1 && said[0].contains("looked at again"), "{said:?}");
        });
    }

    #[test]
    fn what_is_sound_at_the_second_look_is_no_damage() {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            let (store, table) = stored(dir.path());
            flip(&table);
            let say: LogLine = Box::new(move |_| flip(&table)); // This restores the byte.
            let scrub = Scrub { scrubber: store.scrubber(), every: EVERY, seed: 0, say };
            let (local, mut told) = mpsc::unbounded_channel();
            tokio::spawn(scrub.keep_on(local));
            assert_eq!(next(&mut told).await.unwrap().records, 100);
        });
    }

    #[test]
    fn reading_takes_a_bounded_share_of_the_time() {
        let (mebibytes, ms) = (|number: u64| number << 20, Duration::from_millis);
        assert_eq!(rest(mebibytes(8), ms(0)), ms(1000));
        assert_eq!(rest(mebibytes(8), ms(200)), ms(800));
        assert_eq!(rest(mebibytes(8), ms(400)), ms(1200), "a slow disk rests as well");
        let every = Duration::from_secs(86_400);
        assert_eq!(first_wait(every, 0), every / 2);
        let most = first_wait(every, u64::MAX);
        assert!(most > every * 9 / 10 && most <= every, "{most:?}");
    }
}
