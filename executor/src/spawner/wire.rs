//! The protocol between a node and its spawner: prost messages behind a length of four bytes.

use prost::Message;
use proto::limits;

/// Node to spawner; exactly one field is set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SpawnerRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) start: Option<Start>,
    /// The number of a command that must end.
    #[prost(uint64, optional, tag = "2")]
    pub(crate) kill: Option<u64>,
    /// The node asks for a sign of life.
    #[prost(bool, tag = "3")]
    pub(crate) ping: bool,
    /// A command begins to wait without a slot, or goes on.
    #[prost(message, optional, tag = "4")]
    pub(crate) waiting: Option<Waiting>,
    /// The number of a command that gets its signal now, unless it has got it.
    #[prost(uint64, optional, tag = "5")]
    pub(crate) notice: Option<u64>,
}

/// Time in which a command waits does not count towards its time limit.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Waiting {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(bool, tag = "2")]
    pub(crate) waits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Start {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(bytes = "vec", repeated, tag = "2")]
    pub(crate) argv: Vec<Vec<u8>>,
    /// `NAME=value`, on top of the spawner's own environment.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(crate) environment: Vec<Vec<u8>>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) cwd: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) submit_dir: Vec<u8>,
    /// Empty: `/dev/null`.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) stdin: Vec<u8>,
    /// Empty: a pipe to the node.
    #[prost(bytes = "vec", tag = "21")]
    pub(crate) stdout: Vec<u8>,
    /// Empty: a pipe to the node.
    #[prost(bytes = "vec", tag = "22")]
    pub(crate) stderr: Vec<u8>,
    /// 0: none.
    #[prost(uint64, tag = "7")]
    pub(crate) time_limit_ns: u64,
    /// `STARLING_MARK=...`, by which processes outside the command's group are found. Empty: none.
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) mark: Vec<u8>,
    /// A command that prints more is killed.
    #[prost(uint64, tag = "9")]
    pub(crate) print_limit_bytes: u64,
    /// The numbers of further descriptors of the program. The node sends the descriptors themselves
    /// with the first byte of this order.
    #[prost(uint32, repeated, tag = "10")]
    pub(crate) fds: Vec<u32>,
    /// A command is killed if its processes have more resident memory. 0: none.
    #[prost(uint64, tag = "20")]
    pub(crate) memory_limit_bytes: u64,
    /// The memory of all commands with this word counts against the limit of each. Empty: that of
    /// the command alone.
    #[prost(bytes = "vec", tag = "26")]
    pub(crate) memory_group: Vec<u8>,
    /// The command gets this signal once, before an end. 0: none.
    #[prost(int32, tag = "23")]
    pub(crate) notice_signal: i32,
    /// How long before its time limit.
    #[prost(uint64, tag = "24")]
    pub(crate) notice_before_ns: u64,
    /// The command runs on these cpus alone. None: on those of the node.
    #[prost(uint32, repeated, tag = "25")]
    pub(crate) cpus: Vec<u32>,
}

/// Spawner to node; one field is set, or none as a sign of life.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Report {
    #[prost(message, optional, tag = "1")]
    pub(crate) output: Option<Output>,
    #[prost(message, optional, tag = "2")]
    pub(crate) exit: Option<Exit>,
    /// The first report: the shielded directory is read-only for commands.
    #[prost(bool, tag = "3")]
    pub(crate) shielded: bool,
}

/// Output of a running command.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Output {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(bool, tag = "2")]
    pub(crate) stderr: bool,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Exit {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(sint32, tag = "2")]
    pub(crate) code: i32,
    /// 0: none.
    #[prost(int32, tag = "3")]
    pub(crate) signal: i32,
    /// The reason why it could not start; empty if it did.
    #[prost(string, tag = "4")]
    pub(crate) failure: String,
    /// The program that could not start.
    #[prost(string, tag = "5")]
    pub(crate) program: String,
    #[prost(bool, tag = "6")]
    pub(crate) timed_out: bool,
    /// Output that was not sent before.
    #[prost(bytes = "vec", tag = "7")]
    pub(crate) stdout: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    pub(crate) stderr: Vec<u8>,
    /// The printed bytes, if they exceed the limit; otherwise 0.
    #[prost(uint64, tag = "9")]
    pub(crate) printed_too_much_bytes: u64,
    /// The resident memory for which the command was killed; 0: it was not.
    #[prost(uint64, tag = "20")]
    pub(crate) memory_bytes: u64,
    /// CPU time of its processes, as far as they were waited for.
    #[prost(uint64, tag = "21")]
    pub(crate) cpu_us: u64,
    /// The peak of its resident memory; 0: not known.
    #[prost(uint64, tag = "22")]
    pub(crate) max_rss_kib: u64,
    /// It got its signal before an end.
    #[prost(bool, tag = "23")]
    pub(crate) signalled: bool,
}

/// Appends a message as a frame.
pub(crate) fn encode(out: &mut Vec<u8>, message: &impl Message) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    message.encode(out).expect("a vector grows as needed");
    let length = u32::try_from(out.len() - start - 4).expect("a frame is far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// The other side sent bytes that are no frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedFrame;

/// Divides a stream of bytes into messages.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    start: usize,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start >= 64 << 10 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes all complete messages.
    pub(crate) fn take<M: Message + Default>(
        &mut self,
        out: &mut Vec<M>,
    ) -> Result<(), MalformedFrame> {
        loop {
            let rest = &self.buffer[self.start..];
            let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(()) };
            let length = u32::from_le_bytes(*head) as usize;
            if length > limits::FRAME_BYTES_MAX {
                return Err(MalformedFrame);
            }
            if body.len() < length {
                return Ok(());
            }
            out.push(M::decode(&body[..length]).map_err(|_| MalformedFrame)?);
            self.start += 4 + length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_wherever_the_bytes_break() {
        let mut bytes = Vec::new();
        for number in 0..50 {
            let data = vec![7; number as usize * 11];
            let output = Some(Output { number, stderr: true, data });
            encode(&mut bytes, &Report { output, ..Report::default() });
        }
        for step in [1, 3, 64, 100_000] {
            let (mut frames, mut reports) = (Frames::default(), Vec::<Report>::new());
            for piece in bytes.chunks(step) {
                frames.push(piece);
                frames.take(&mut reports).unwrap();
            }
            let numbers = reports.iter().map(|report| report.output.as_ref().unwrap().number);
            assert!(numbers.eq(0..50), "in steps of {step}");
        }
    }

    #[test]
    fn garbage_is_refused_before_memory_is_taken() {
        let mut frames = Frames::default();
        frames.push(&u32::MAX.to_le_bytes());
        assert_eq!(frames.take(&mut Vec::<Report>::new()), Err(MalformedFrame));
        let mut frames = Frames::default();
        frames.push(&[1, 0, 0, 0, 0xff]);
        assert_eq!(frames.take(&mut Vec::<Report>::new()), Err(MalformedFrame));
    }
}
