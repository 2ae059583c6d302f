//! The bytes between a node and its workers: frames, records and values. The format is described in
//! `docs/worker-protocol.md`.

/// The maximum of a frame without its length.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Larger values are files.
pub(super) const INLINE_BYTES_MAX: usize = 64 << 10;
/// The slot of the arguments, which are no input.
pub(super) const ARGUMENTS: u16 = u16::MAX;

const FUNC: u8 = 1;
const DROP: u8 = 2;
const CALL: u8 = 3;
const STOP: u8 = 4;
const ANSWER: u8 = 5;
const GO: u8 = 6;
const FORK: u8 = 16;
const HELLO: u8 = 65;
const RESULT: u8 = 66;
const PRINT: u8 = 67;
const NOTE: u8 = 68;
const ASK: u8 = 69;
const REST: u8 = 70;
const FORKED: u8 = 80;
const REFUSED: u8 = 81;
const EXITED: u8 = 82;

const RESULT_HEAD_BYTES: usize = 40;
const VALUE_HEAD_BYTES: usize = 8;
const RECORD_HEAD_BYTES: usize = 5;

/// The identity of a function.
pub(super) type FunctionId = [u8; 16];

/// An argument, an input or a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Value<'a> {
    /// The bytes are the path of a file with the value.
    pub(super) is_path: bool,
    pub(super) codec: u8,
    pub(super) slot: u16,
    pub(super) bytes: &'a [u8],
}

/// The head of a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CallHead {
    pub(super) number: u64,
    pub(super) function: FunctionId,
    pub(super) attempt: u64,
    pub(super) job: u64,
    pub(super) local: u64,
    pub(super) limit_ns: u64,
    pub(super) cpu_thousandths: u32,
    pub(super) flags: u16,
}

/// Records for a worker, in frames.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) bytes: Vec<u8>,
    /// The start of the open frame; `None`: the next record begins one.
    frame: Option<usize>,
}

impl Outgoing {
    pub(super) fn function(&mut self, id: &FunctionId, value: &Value<'_>) {
        self.record(FUNC, |out| {
            out.extend_from_slice(id);
            push_value(out, value);
        });
    }

    pub(super) fn drop_function(&mut self, id: &FunctionId) {
        self.record(DROP, |out| out.extend_from_slice(id));
    }

    pub(super) fn call(&mut self, head: &CallHead, values: &[Value<'_>]) {
        self.record(CALL, |out| {
            out.extend_from_slice(&head.number.to_le_bytes());
            out.extend_from_slice(&head.function);
            for word in [head.attempt, head.job, head.local, head.limit_ns] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(&head.cpu_thousandths.to_le_bytes());
            out.extend_from_slice(&head.flags.to_le_bytes());
            let count = u16::try_from(values.len()).expect("the inputs of a call are bounded");
            out.extend_from_slice(&count.to_le_bytes());
            values.iter().for_each(|value| push_value(out, value));
        });
    }

    pub(super) fn stop(&mut self) {
        self.record(STOP, |_| {});
    }

    /// An answer to a request of a call; `seq` 0: news.
    pub(super) fn answer(&mut self, call: u64, seq: u64, json: &[u8], data: &[u8]) {
        self.record(ANSWER, |out| {
            out.extend_from_slice(&call.to_le_bytes());
            out.extend_from_slice(&seq.to_le_bytes());
            let length = u32::try_from(json.len()).expect("answers are bounded");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(json);
            out.extend_from_slice(data);
        });
    }

    /// A call that waited goes on; `is_stuck`: its wait has failed.
    pub(super) fn go_on(&mut self, call: u64, is_stuck: bool) {
        self.record(GO, |out| {
            out.extend_from_slice(&call.to_le_bytes());
            out.push(u8::from(is_stuck));
        });
    }

    /// Appends a record to the open frame, or to a new one if it does not fit.
    fn record(&mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut self.bytes;
        let before = out.len();
        // The length of a new frame, in case there is one.
        out.extend_from_slice(&[0; 4]);
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, kind]);
        body(out);
        let record_bytes = out.len() - start;
        write_length(out, start, record_bytes - RECORD_HEAD_BYTES);
        if let Some(frame) = self.frame {
            let frame_bytes = before - frame - 4 + record_bytes;
            if frame_bytes <= FRAME_BYTES_MAX {
                out.drain(before..start);
                write_length(out, frame, frame_bytes);
                return;
            }
        }
        write_length(out, before, record_bytes);
        self.frame = Some(before);
    }

    /// Takes all bytes; the next record begins a frame.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.frame = None;
        std::mem::take(&mut self.bytes)
    }
}

fn write_length(out: &mut [u8], at: usize, length: usize) {
    let length = u32::try_from(length).expect("records are bounded");
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}

fn push_value(out: &mut Vec<u8>, value: &Value<'_>) {
    out.extend_from_slice(&[u8::from(value.is_path), value.codec]);
    out.extend_from_slice(&value.slot.to_le_bytes());
    let length = u32::try_from(value.bytes.len()).expect("inline values are bounded");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value.bytes);
}

/// The bytes of a value in a record.
pub(super) fn value_bytes(value: &Value<'_>) -> usize {
    VALUE_HEAD_BYTES + value.bytes.len()
}

/// The end of a call as the worker reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Ok,
    Raised,
    Refused,
    Cancelled,
    Died,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ResultRecord<'a> {
    pub(super) call: u64,
    pub(super) status: Status,
    pub(super) values: Vec<Value<'a>>,
}

/// A record from a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FromWorker<'a> {
    Hello(&'a [u8]),
    Result(ResultRecord<'a>),
    Print {
        call: u64,
        stderr: bool,
        lost: u64,
        data: &'a [u8],
    },
    Note {
        call: u64,
        text: &'a [u8],
    },
    /// A request of a call: JSON, and bytes.
    Ask {
        call: u64,
        seq: u64,
        json: &'a [u8],
        data: &'a [u8],
    },
    /// A call waits for its calls, or wants to go on.
    Rest {
        call: u64,
        rests: bool,
    },
}

/// A packet from a zygote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FromZygote<'a> {
    Hello(&'a [u8]),
    Forked {
        seq: u64,
        pid: i32,
    },
    Refused {
        seq: u64,
        text: &'a [u8],
    },
    /// `status` is that of `waitpid`.
    Exited {
        pid: i32,
        status: i32,
    },
}

/// The other side sent bytes that break the protocol: the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed(pub(super) &'static str);

/// The bytes from a worker, divided into frames.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    buffer: Vec<u8>,
    start: usize,
}

impl Incoming {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        } else if self.start >= FRAME_BYTES_MAX {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame without its length.
    pub(super) fn frame(&mut self) -> Result<Option<Vec<u8>>, Malformed> {
        let rest = &self.buffer[self.start..];
        let Some((head, body)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(Malformed("a frame above 1 MiB"));
        }
        let Some(frame) = body.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.start += 4 + length;
        Ok(Some(frame))
    }
}

/// The records of a frame.
pub(super) fn records(frame: &[u8]) -> impl Iterator<Item = Result<FromWorker<'_>, Malformed>> {
    let mut rest = frame;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let split = split_record(rest);
        rest = split.map_or(&[], |(_, _, rest)| rest);
        Some(split.and_then(|(kind, body, _)| of_worker(kind, body)))
    })
}

fn split_record(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), Malformed> {
    let outside = Malformed("a record outside its frame");
    let (head, rest) = bytes.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or(outside)?;
    let [a, b, c, d, kind] = *head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    let (body, rest) = rest.split_at_checked(length).ok_or(outside)?;
    Ok((kind, body, rest))
}

fn of_worker(kind: u8, body: &[u8]) -> Result<FromWorker<'_>, Malformed> {
    let mut at = Reader(body);
    Ok(match kind {
        HELLO => FromWorker::Hello(body),
        RESULT => FromWorker::Result(result(body)?),
        PRINT => {
            let (call, stream, lost) = (at.u64()?, at.u8()?, at.u64()?);
            if !(1..=2).contains(&stream) {
                return Err(Malformed("an unknown stream"));
            }
            FromWorker::Print { call, stderr: stream == 2, lost, data: at.0 }
        }
        NOTE => {
            let call = at.u64()?;
            FromWorker::Note { call, text: at.0 }
        }
        ASK => {
            let (call, seq, length) = (at.u64()?, at.u64()?, at.u32()? as usize);
            let json = at.take(length)?;
            FromWorker::Ask { call, seq, json, data: at.0 }
        }
        REST => FromWorker::Rest { call: at.u64()?, rests: at.u8()? != 0 },
        _ => return Err(Malformed("a record of an unknown kind")),
    })
}

fn result(body: &[u8]) -> Result<ResultRecord<'_>, Malformed> {
    let mut at = Reader(body);
    let head = at.take(RESULT_HEAD_BYTES)?;
    let mut head = Reader(head);
    let call = head.u64()?;
    head.take(24)?; // The times, and the largest resident set.
    let status = match head.u8()? {
        0 => Status::Ok,
        1 => Status::Raised,
        2 => Status::Refused,
        3 => Status::Cancelled,
        4 => Status::Died,
        _ => return Err(Malformed("an unknown status")),
    };
    head.u8()?;
    let count = head.u16()?;
    let values = (0..count).map(|_| at.value()).collect::<Result<_, _>>()?;
    match at.0.is_empty() {
        true => Ok(ResultRecord { call, status, values }),
        false => Err(Malformed("bytes after the values of a result")),
    }
}

/// A packet from a zygote is one record.
pub(super) fn zygote_packet(bytes: &[u8]) -> Result<FromZygote<'_>, Malformed> {
    let (kind, body, rest) = split_record(bytes)?;
    if !rest.is_empty() {
        return Err(Malformed("bytes after the record of a packet"));
    }
    let mut at = Reader(body);
    Ok(match kind {
        HELLO => FromZygote::Hello(body),
        FORKED => FromZygote::Forked { seq: at.u64()?, pid: at.i32()? },
        REFUSED => FromZygote::Refused { seq: at.u64()?, text: at.0 },
        EXITED => FromZygote::Exited { pid: at.i32()?, status: at.i32()? },
        _ => return Err(Malformed("a packet of an unknown kind")),
    })
}

/// The packet that asks a zygote for a worker.
pub(super) fn fork_packet(seq: u64, variables: &[(String, String)]) -> Vec<u8> {
    let mut body = seq.to_le_bytes().to_vec();
    let value = |(name, value): &(String, String)| (name.clone(), value.as_str().into());
    let variables: serde_json::Map<_, _> = variables.iter().map(value).collect();
    let fields = serde_json::json!({ "env": variables });
    body.extend_from_slice(fields.to_string().as_bytes());
    let length = u32::try_from(body.len()).expect("it is short");
    let mut packet = length.to_le_bytes().to_vec();
    packet.push(FORK);
    packet.extend_from_slice(&body);
    packet
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or(Malformed("a record with a short body"))?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }
    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array()?))
    }
    fn value(&mut self) -> Result<Value<'a>, Malformed> {
        let (how, codec, slot) = (self.u8()?, self.u8()?, self.u16()?);
        let length = u32::from_le_bytes(self.array()?) as usize;
        if how > 1 {
            return Err(Malformed("a value that is neither inline nor a file"));
        }
        Ok(Value { is_path: how == 1, codec, slot, bytes: self.take(length)? })
    }
}

#[cfg(test)]
mod tests {
    use proto::codec;

    use super::*;

    fn value(slot: u16, bytes: &[u8]) -> Value<'_> {
        Value { is_path: false, codec: codec::JSON, slot, bytes }
    }

    #[test]
    fn a_call_has_these_bytes() {
        let head = CallHead {
            number: 1,
            function: *b"0123456789abcdef",
            attempt: 2,
            job: 3,
            local: 4,
            limit_ns: 5,
            cpu_thousandths: 1000,
            flags: 0,
        };
        let mut out = Outgoing::default();
        out.call(&head, &[value(ARGUMENTS, b"[1]")]);
        let mut golden = vec![80, 0, 0, 0, 75, 0, 0, 0, 3];
        golden.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        golden.extend_from_slice(b"0123456789abcdef");
        for word in 2..=5_u8 {
            golden.extend_from_slice(&[word, 0, 0, 0, 0, 0, 0, 0]);
        }
        golden.extend_from_slice(&[0xe8, 3, 0, 0, 0, 0, 1, 0]);
        golden.extend_from_slice(&[0, 3, 0xff, 0xff, 3, 0, 0, 0, b'[', b'1', b']']);
        assert_eq!(out.take(), golden);
    }

    #[test]
    fn records_share_frames_up_to_the_limit() {
        let bytes = vec![7; 400 << 10];
        let mut out = Outgoing::default();
        for id in 0..5_u8 {
            out.function(&[id; 16], &value(0, &bytes));
        }
        let mut incoming = Incoming::default();
        incoming.push(&out.take());
        let mut counts = Vec::new();
        while let Some(frame) = incoming.frame().unwrap() {
            let (mut rest, mut count) = (&frame[..], 0);
            while !rest.is_empty() {
                let (kind, body, more) = split_record(rest).unwrap();
                assert_eq!((kind, body.len()), (FUNC, 16 + 8 + bytes.len()));
                (rest, count) = (more, count + 1);
            }
            counts.push(count);
        }
        assert_eq!(counts, [2, 2, 1]);
    }

    /// A result of call 9 with one value, as a worker sends it.
    fn result_bytes() -> Vec<u8> {
        let mut body = vec![9, 0, 0, 0, 0, 0, 0, 0];
        body.extend_from_slice(&[0; 24]);
        body.extend_from_slice(&[1, 0, 1, 0, 0, 0, 0, 0]);
        body.extend_from_slice(&[0, 3, 2, 0, 2, 0, 0, 0, b'{', b'}']);
        let mut frame = vec![55, 0, 0, 0, 50, 0, 0, 0, RESULT];
        frame.extend_from_slice(&body);
        frame
    }

    #[test]
    fn a_result_is_read_wherever_its_bytes_break() {
        let bytes = result_bytes();
        for step in [1, 2, 7, 100] {
            let (mut incoming, mut found) = (Incoming::default(), 0);
            for piece in bytes.repeat(3).chunks(step) {
                incoming.push(piece);
                while let Some(frame) = incoming.frame().unwrap() {
                    let all: Vec<_> = records(&frame).collect::<Result<_, _>>().unwrap();
                    let expected = ResultRecord {
                        call: 9,
                        status: Status::Raised,
                        values: vec![value(2, b"{}")],
                    };
                    assert_eq!(all, [FromWorker::Result(expected)]);
                    found += 1;
                }
            }
            assert_eq!(found, 3, "in steps of {step}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        let mut incoming = Incoming::default();
        incoming.push(&u32::MAX.to_le_bytes());
        assert!(incoming.frame().is_err());
        let good = &result_bytes()[4..];
        let first = |bytes: &[u8]| records(bytes).next().unwrap().map(|_| ());
        assert!(first(good).is_ok());
        for cut in 1..good.len() {
            assert!(first(&good[..cut]).is_err(), "cut at {cut}");
        }
        for (at, wrong) in [(4, 200), (0, 51), (5 + 32, 9), (5 + 40, 2), (5 + 34, 2)] {
            let mut bytes = good.to_vec();
            bytes[at] = wrong;
            assert!(first(&bytes).is_err(), "byte {at} is {wrong}");
        }
        assert!(
            first(&[17, 0, 0, 0, PRINT, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0])
                .is_err()
        );
        assert!(zygote_packet(&[1, 0, 0, 0, FORKED, 0]).is_err());
        assert!(zygote_packet(&[]).is_err());
    }

    #[test]
    fn zygote_packets_have_these_bytes() {
        assert_eq!(fork_packet(7, &[]), *b"\x12\0\0\0\x10\x07\0\0\0\0\0\0\0{\"env\":{}}");
        let devices = fork_packet(7, &[("A".to_owned(), "1,2".to_owned())]);
        assert!(devices.ends_with(b"{\"env\":{\"A\":\"1,2\"}}"));
        let exited = [8, 0, 0, 0, EXITED, 5, 0, 0, 0, 9, 0, 0, 0];
        assert_eq!(zygote_packet(&exited), Ok(FromZygote::Exited { pid: 5, status: 9 }));
    }
}
