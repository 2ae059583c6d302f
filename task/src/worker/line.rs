//! The way to the node: frames, requests, and the words that name the running call.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};

use super::wire::{self, AnswerRecord, Garbage};
use crate::call::Entry;
use crate::program::Body;

const PROTOCOL: u32 = 1;
/// The position of the call that a SIGINT is meant for.
const INTERRUPT_AT: u64 = 24;
/// The size of the resident set is read at most this often.
const MEMORY_EVERY_NS: u64 = 50_000_000;

/// Why a worker ends.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The node has gone, or wants no more calls.
    Stopped,
    Garbage(String),
}

impl From<Garbage> for Ended {
    fn from(Garbage(text): Garbage) -> Self {
        Self::Garbage(text)
    }
}

/// A function as the node has sent it.
pub(crate) type Function = Result<(&'static Entry, Arc<Body>), (&'static str, String)>;

/// The worker's side of its pipes.
#[derive(Debug)]
pub(crate) struct Line {
    input: File,
    output: File,
    words: File,
    buffer: Vec<u8>,
    records: VecDeque<(u8, Vec<u8>)>,
    out: Vec<u8>,
    pub(super) functions: HashMap<[u8; 16], Function>,
    pub(super) objects: PathBuf,
    /// SIGINT has come.
    interrupted: Arc<AtomicBool>,
    ended_calls: u64,
    /// Of the call that runs.
    start_ns: u64,
    /// The largest resident set, and when it was read.
    memory: (u64, u64),
    seq: u64,
    wanted: HashSet<u64>,
    answers: HashMap<u64, AnswerRecord>,
    /// Calls that have opened their job, and what they have not heard yet.
    news: HashMap<u64, Vec<AnswerRecord>>,
    /// Calls that may go on; `true`: their wait has failed.
    going: HashMap<u64, bool>,
}

impl Line {
    /// Greets the node.
    pub(super) fn new(input: File, output: File, words: File) -> io::Result<Self> {
        // A worker that leads a session has its own group already.
        let _ = rustix::process::setpgid(None, None);
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&interrupted))?;
        let objects = std::env::var_os("STARLING_WORKER_OBJECTS").unwrap_or_default().into();
        let mut line = Self {
            input,
            output,
            words,
            buffer: Vec::new(),
            records: VecDeque::new(),
            out: Vec::new(),
            functions: HashMap::new(),
            objects,
            interrupted,
            ended_calls: 0,
            start_ns: 0,
            memory: (0, 0),
            seq: 0,
            wanted: HashSet::new(),
            answers: HashMap::new(),
            news: HashMap::new(),
            going: HashMap::new(),
        };
        // From here on the node sees that this worker names its calls.
        line.name_call(0, now_ns());
        let hello = json!({
            "protocol": PROTOCOL,
            "language": "rust",
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
        });
        line.send(&wire::record(wire::HELLO, &[hello.to_string().as_bytes()]))?;
        Ok(line)
    }

    // Words.

    /// The call that runs, and its start.
    pub(super) fn name_call(&mut self, call: u64, start_ns: u64) {
        self.start_ns = start_ns;
        let mut bytes = [0; 24];
        for (at, number) in [call, start_ns, self.ended_calls].iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&number.to_le_bytes());
        }
        // Without the words the node takes the oldest call for the one that runs.
        let _ = self.words.write_all_at(&bytes, 0);
    }

    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    pub(super) fn count_call(&mut self) {
        self.ended_calls += 1;
    }

    /// Whether the node wants this call to end.
    pub(crate) fn is_unwanted(&self, call: u64) -> bool {
        let mut bytes = [0; 8];
        let read = self.words.read_exact_at(&mut bytes, INTERRUPT_AT);
        read.is_ok() && u64::from_le_bytes(bytes) == call
    }

    /// Whether SIGINT has come since the last question. Its call is in the words.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) && self.interrupted.swap(false, Ordering::Acquire)
    }

    // Frames.

    /// The next record; `None`: none has come within this time, or a signal has.
    pub(crate) fn next(&mut self, most: Option<Duration>) -> Result<Option<(u8, Vec<u8>)>, Ended> {
        loop {
            if let Some(record) = self.records.pop_front() {
                return Ok(Some(record));
            }
            if let Some(length) = wire::whole_frame(&self.buffer)? {
                self.records.extend(wire::records(&self.buffer[4..length])?);
                self.buffer.drain(..length);
                continue;
            }
            if self.flush().is_err() {
                return Err(Ended::Stopped);
            }
            if let Some(most) = most
                && !self.is_readable(most)
            {
                return Ok(None);
            }
            let mut more = [0; 1 << 16];
            match self.input.read(&mut more) {
                Ok(0) => return Err(Ended::Stopped),
                Ok(count) => self.buffer.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
                Err(_) => return Err(Ended::Stopped),
            }
        }
    }

    fn is_readable(&self, most: Duration) -> bool {
        let mut fds = [PollFd::new(&self.input, PollFlags::IN)];
        let time = Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        rustix::event::poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
    }

    /// Keeps a record for the node until the worker reads or sends something.
    pub(super) fn append(&mut self, record: &[u8]) {
        if self.out.len() + record.len() > wire::FRAME_BYTES_MAX {
            // A node that has gone is noticed by the next read.
            let _ = self.flush();
        }
        self.out.extend_from_slice(record);
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.out.is_empty() {
            return Ok(());
        }
        let mut frame = Vec::with_capacity(4 + self.out.len());
        frame.extend_from_slice(&(self.out.len() as u32).to_le_bytes());
        frame.append(&mut self.out);
        self.output.write_all(&frame)
    }

    fn send(&mut self, record: &[u8]) -> io::Result<()> {
        self.append(record);
        self.flush()
    }

    /// Does what a record asks that is no CALL.
    pub(super) fn take(&mut self, kind: u8, body: &[u8]) -> Result<(), Ended> {
        match kind {
            wire::FUNC => {
                let (id, value) = wire::function(body)?;
                self.functions.insert(id, super::run::function(&value));
            }
            wire::DROP => {
                let id = body.try_into();
                self.functions.remove::<[u8; 16]>(&id.map_err(|_| Garbage("DROP".to_owned()))?);
            }
            wire::STOP => {
                // What was done so far is sent; a node that has gone does not want it.
                let _ = self.flush();
                return Err(Ended::Stopped);
            }
            wire::ANSWER => self.answered(wire::answer(body)?),
            wire::GO => {
                let (call, is_stuck) = wire::go(body)?;
                self.going.insert(call, is_stuck);
            }
            kind => return Err(Ended::Garbage(format!("a record of kind {kind}"))),
        }
        Ok(())
    }

    // Requests.

    fn answered(&mut self, answer: AnswerRecord) {
        match answer.seq {
            0 => {
                if let Some(news) = self.news.get_mut(&answer.call) {
                    news.push(answer);
                }
            }
            seq if self.wanted.contains(&seq) => {
                self.answers.insert(seq, answer);
            }
            _ => {
                // Its call has ended; a file that came with it is not read.
                let fields: Value = serde_json::from_slice(&answer.json).unwrap_or_default();
                if let Some(path) = fields["path"].as_str() {
                    let _ = std::fs::remove_file(path);
                }
            }
        }
    }

    /// Sends a request, and returns its number.
    pub(crate) fn ask(&mut self, call: u64, fields: &Value, data: &[u8]) -> Result<u64, Ended> {
        self.seq += 1;
        let json = fields.to_string();
        let mut head = Vec::with_capacity(20);
        head.extend_from_slice(&call.to_le_bytes());
        head.extend_from_slice(&self.seq.to_le_bytes());
        head.extend_from_slice(&(json.len() as u32).to_le_bytes());
        self.wanted.insert(self.seq);
        let record = wire::record(wire::ASK, &[&head, json.as_bytes(), data]);
        self.send(&record).map_err(|_| Ended::Stopped)?;
        Ok(self.seq)
    }

    /// The answer to a request, once it is here.
    pub(crate) fn answer(&mut self, seq: u64) -> Option<(Value, Vec<u8>)> {
        let answer = self.answers.remove(&seq)?;
        self.wanted.remove(&seq);
        let fields: Value = serde_json::from_slice(&answer.json).unwrap_or_default();
        let data = match fields["path"].as_str() {
            None => answer.data,
            Some(path) => {
                let read = std::fs::read(path);
                let _ = std::fs::remove_file(path);
                match read {
                    Ok(data) => data,
                    Err(error) => return Some((unread(path, &error), Vec::new())),
                }
            }
        };
        Some((fields, data))
    }

    /// The answer to this request is not waited for any more.
    pub(crate) fn unask(&mut self, seq: u64) {
        self.wanted.remove(&seq);
    }

    /// The call wants to hear of the ends of its calls.
    pub(crate) fn listen(&mut self, call: u64) {
        self.news.entry(call).or_default();
    }

    pub(crate) fn heard(&mut self, call: u64) -> Vec<(Value, Vec<u8>)> {
        let news = self.news.get_mut(&call).map(std::mem::take).unwrap_or_default();
        let fields = |news: AnswerRecord| {
            (serde_json::from_slice(&news.json).unwrap_or_default(), news.data)
        };
        news.into_iter().map(fields).collect()
    }

    /// The call waits without a slot, or wants to go on.
    pub(crate) fn rest(&mut self, call: u64, rests: bool) -> Result<(), Ended> {
        let record = wire::record(wire::REST, &[&call.to_le_bytes(), &[u8::from(rests)]]);
        self.send(&record).map_err(|_| Ended::Stopped)
    }

    /// Whether the call has its slot. A GO that fails a wait may have crossed the end of the wait:
    /// it is no slot, and another GO follows.
    pub(crate) fn has_slot(&mut self, call: u64) -> bool {
        self.going.remove(&call) == Some(false)
    }

    pub(crate) fn is_stuck(&mut self, call: u64) -> bool {
        self.going.get(&call) == Some(&true) && self.going.remove(&call).is_some()
    }

    pub(super) fn forget_call(&mut self, call: u64) {
        self.news.remove(&call);
        self.going.remove(&call);
    }

    // Printed text.

    /// Sends what a call has printed, and empties both files.
    pub(super) fn printed(&mut self, call: u64) {
        // A call that has closed its streams has printed nothing that can be read.
        let _ = io::stdout().flush();
        self.printed_in(call, 1, rustix::stdio::stdout());
        self.printed_in(call, 2, rustix::stdio::stderr());
    }

    fn printed_in(&mut self, call: u64, stream: u8, fd: BorrowedFd<'_>) {
        let Ok(size) = rustix::fs::fstat(fd).map(|is| u64::try_from(is.st_size).unwrap_or(0))
        else {
            return;
        };
        if size == 0 {
            return;
        }
        let mut at = size.saturating_sub(wire::PRINT_BYTES_MAX);
        let mut lost = at;
        let mut part = vec![0; wire::PRINT_PART_BYTES];
        while at < size {
            let Ok(count @ 1..) = rustix::io::pread(fd, &mut part[..], at) else { break };
            let (call, lost_now) = (call.to_le_bytes(), lost.to_le_bytes());
            let record = wire::record(wire::PRINT, &[&call, &[stream], &lost_now, &part[..count]]);
            self.append(&record);
            at += count as u64;
            lost = 0;
        }
        let _ = rustix::fs::ftruncate(fd, 0);
    }

    /// The largest resident set so far, in bytes.
    pub(super) fn memory_bytes(&mut self, now_ns: u64) -> u64 {
        let (bytes, read_ns) = self.memory;
        if bytes > 0 && now_ns < read_ns + MEMORY_EVERY_NS {
            return bytes;
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        self.memory = (kib.unwrap_or(0) * 1024, now_ns);
        self.memory.0
    }
}

/// The answer in the place of one with a file that cannot be read.
fn unread(path: &str, error: &io::Error) -> Value {
    json!({ "error": "Unread", "text": format!("{path}: {error}") })
}

/// Nanoseconds of the clock that the node uses for starts and ends.
pub(super) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (s, ns) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    s.unwrap_or(0) * 1_000_000_000 + ns.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;
    use crate::Error;
    use crate::call::{Arguments, Call};
    use crate::cx::Cx;

    /// A worker's line, with the node's ends of its pipes.
    fn line(words: File) -> (Line, File, File) {
        let [input, output] = [(); 2].map(|()| rustix::pipe::pipe().unwrap());
        let line = Line::new(input.0.into(), output.1.into(), words).unwrap();
        (line, input.1.into(), output.0.into())
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_of_its_answer() {
        let (mut line, _to, _from) = line(tempfile::tempfile().unwrap());
        let seq = line.ask(3, &json!({ "ask": "fetch" }), &[]).unwrap();
        let json = json!({ "path": "/no/such/file" }).to_string().into_bytes();
        line.answered(AnswerRecord { call: 3, seq, json, data: Vec::new() });
        let (fields, _) = line.answer(seq).unwrap();
        assert!(fields["text"].as_str().unwrap().starts_with("/no/such/file: "), "{fields}");
        assert!(fields["error"].is_string());
    }

    #[test]
    fn a_go_that_fails_a_wait_and_crosses_its_end_is_no_slot() {
        let (mut line, _to, _from) = line(tempfile::tempfile().unwrap());
        line.going.insert(7, true);
        assert!(!line.has_slot(7));
        line.going.insert(7, false);
        assert!(line.has_slot(7));
        assert!(!line.has_slot(7), "each GO counts once");
    }

    #[test]
    fn a_call_that_waits_for_an_answer_ends_at_a_cancel() {
        static ENTRY: Entry = Entry::new("f", |_, _| Ok(Vec::new()));
        let words = tempfile::tempfile().unwrap();
        words.write_all_at(&7_u64.to_le_bytes(), INTERRUPT_AT).unwrap();
        // The node lives, and never answers.
        let (line, _to, _from) = line(words);
        let line = Rc::new(RefCell::new(line));
        let body =
            serde_json::from_value(json!({ "name": "f", "hash": "", "stamp": [0, 0, 0, 0, 0] }));
        let mut cx = Cx::new(Rc::clone(&line), 7, (1, 2, 3), 1, Arc::new(body.unwrap()));
        let spawned = cx.spawn(Call::<u64>::new(&ENTRY, Arguments::default()));
        assert!(matches!(spawned, Err(Error::Interrupted)));
        assert!(line.borrow().wanted.is_empty());
    }
}
