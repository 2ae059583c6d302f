//! The bytes between a worker and its node: `docs/worker-protocol.md`.

/// A frame without its length.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;
/// Larger values are files.
pub(super) const INLINE_BYTES_MAX: usize = 64 << 10;
/// The last bytes of printed text that are sent.
pub(super) const PRINT_BYTES_MAX: u64 = 1_000_000;
/// One record of printed text.
pub(super) const PRINT_PART_BYTES: usize = 1 << 18;

pub(super) const FUNC: u8 = 1;
pub(super) const DROP: u8 = 2;
pub(super) const CALL: u8 = 3;
pub(super) const STOP: u8 = 4;
pub(super) const ANSWER: u8 = 5;
pub(super) const GO: u8 = 6;
pub(super) const HELLO: u8 = 65;
pub(super) const RESULT: u8 = 66;
pub(super) const PRINT: u8 = 67;
pub(super) const ASK: u8 = 69;
pub(super) const REST: u8 = 70;

const RECORD_HEAD_BYTES: usize = 5;
const VALUE_HEAD_BYTES: usize = 8;
const CALL_HEAD_BYTES: usize = 64;

/// The reason why bytes are no records.
#[derive(Debug)]
pub(super) struct Garbage(pub(super) String);

/// A value, or the path of a file that is the value.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Value {
    pub(super) is_path: bool,
    pub(super) slot: u16,
    pub(super) bytes: Vec<u8>,
}

/// A call that was received.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct CallRecord {
    pub(super) number: u64,
    pub(super) function: [u8; 16],
    pub(super) attempt: u64,
    pub(super) job: u64,
    pub(super) local: u64,
    /// The arguments, then the inputs.
    pub(super) values: Vec<Value>,
}

/// An answer of the node, or news.
#[derive(Debug)]
pub(super) struct AnswerRecord {
    pub(super) call: u64,
    /// 0: news.
    pub(super) seq: u64,
    pub(super) json: Vec<u8>,
    pub(super) data: Vec<u8>,
}

/// How a call has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Status {
    Ok = 0,
    Raised = 1,
    Refused = 2,
    Cancelled = 3,
}

/// Reads numbers and bytes one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Garbage> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(Garbage(format!("{count} bytes of a record are missing"))),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbage> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn u16(&mut self) -> Result<u16, Garbage> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Garbage> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Garbage> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn value(&mut self) -> Result<Value, Garbage> {
        let [how, _codec] = self.array()?;
        let (slot, length) = (self.u16()?, self.u32()? as usize);
        if how > 1 || length > INLINE_BYTES_MAX {
            return Err(Garbage(format!("a value of {length} bytes, form {how}")));
        }
        Ok(Value { is_path: how == 1, slot, bytes: self.bytes(length)?.to_vec() })
    }

    fn values(&mut self, count: u16) -> Result<Vec<Value>, Garbage> {
        let values = (0..count).map(|_| self.value()).collect::<Result<_, _>>()?;
        match self.0.len() {
            0 => Ok(values),
            rest => Err(Garbage(format!("{rest} bytes after the last value"))),
        }
    }
}

/// The length of the frame at the start of these bytes, with its head; `None`: it is not whole.
pub(super) fn whole_frame(bytes: &[u8]) -> Result<Option<usize>, Garbage> {
    let Some((head, _)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    match length {
        0..=FRAME_BYTES_MAX => Ok((bytes.len() >= 4 + length).then_some(4 + length)),
        _ => Err(Garbage(format!("a frame of {length} bytes"))),
    }
}

/// The records of a frame without its head: kinds and bodies.
pub(super) fn records(frame: &[u8]) -> Result<Vec<(u8, Vec<u8>)>, Garbage> {
    let (mut reader, mut found) = (Reader(frame), Vec::new());
    while !reader.0.is_empty() {
        let length = reader.u32()? as usize;
        let [kind] = reader.array()?;
        found.push((kind, reader.bytes(length)?.to_vec()));
    }
    Ok(found)
}

pub(super) fn function(body: &[u8]) -> Result<([u8; 16], Value), Garbage> {
    let mut reader = Reader(body);
    let id = reader.array()?;
    let mut values = reader.values(1)?;
    values.pop().map(|value| (id, value)).ok_or_else(|| Garbage("a function is missing".to_owned()))
}

pub(super) fn call(body: &[u8]) -> Result<CallRecord, Garbage> {
    let mut reader = Reader(body);
    let number = reader.u64()?;
    let function = reader.array()?;
    let (attempt, job, local) = (reader.u64()?, reader.u64()?, reader.u64()?);
    // The limit of time, the cpus and the flags: the node enforces them.
    reader.bytes(CALL_HEAD_BYTES - 50)?;
    let count = reader.u16()?;
    let values = reader.values(count)?;
    match values.is_empty() {
        true => Err(Garbage("a call without arguments".to_owned())),
        false => Ok(CallRecord { number, function, attempt, job, local, values }),
    }
}

pub(super) fn answer(body: &[u8]) -> Result<AnswerRecord, Garbage> {
    let mut reader = Reader(body);
    let (call, seq, length) = (reader.u64()?, reader.u64()?, reader.u32()? as usize);
    let json = reader.bytes(length)?.to_vec();
    Ok(AnswerRecord { call, seq, json, data: reader.0.to_vec() })
}

/// The call that goes on, and whether its wait has failed.
pub(super) fn go(body: &[u8]) -> Result<(u64, bool), Garbage> {
    let mut reader = Reader(body);
    let call = reader.u64()?;
    let [is_stuck] = reader.array()?;
    Ok((call, is_stuck != 0))
}

/// A record of these pieces.
pub(super) fn record(kind: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let mut out = Vec::with_capacity(RECORD_HEAD_BYTES + length);
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.push(kind);
    pieces.iter().for_each(|piece| out.extend_from_slice(piece));
    out
}

/// A RESULT with one value, which is JSON.
pub(super) fn result(
    call: u64,
    (start_ns, end_ns): (u64, u64),
    memory_bytes: u64,
    status: Status,
    (is_path, bytes): (bool, &[u8]),
) -> Vec<u8> {
    let mut head = Vec::with_capacity(40 + VALUE_HEAD_BYTES);
    for number in [call, start_ns, end_ns, memory_bytes] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    head.extend_from_slice(&[status as u8, 0]);
    head.extend_from_slice(&1_u16.to_le_bytes());
    head.extend_from_slice(&0_u32.to_le_bytes());
    head.extend_from_slice(&[u8::from(is_path), proto::codec::JSON]);
    head.extend_from_slice(&0_u16.to_le_bytes());
    head.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    record(RESULT, &[&head, bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![0, 3, 7, 0];
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
        out
    }

    fn call_of(values: &[Vec<u8>]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend_from_slice(&5_u64.to_le_bytes());
        body.extend_from_slice(&[9; 16]);
        for number in [2_u64, 3, 4, 1000] {
            body.extend_from_slice(&number.to_le_bytes());
        }
        body.extend_from_slice(&1000_u32.to_le_bytes());
        body.extend_from_slice(&0_u16.to_le_bytes());
        body.extend_from_slice(&(values.len() as u16).to_le_bytes());
        values.iter().for_each(|value| body.extend_from_slice(value));
        body
    }

    #[test]
    fn a_call_is_read_as_the_page_says() {
        let found = call(&call_of(&[value(b"[1]"), value(b"2")])).unwrap();
        assert_eq!((found.number, found.function), (5, [9; 16]));
        assert_eq!((found.attempt, found.job, found.local), (2, 3, 4));
        let values: Vec<_> = found.values.iter().map(|it| (it.slot, &it.bytes[..])).collect();
        assert_eq!(values, [(7, &b"[1]"[..]), (7, b"2")]);
    }

    #[test]
    fn damaged_bytes_are_garbage_and_no_panic() {
        let whole = call_of(&[value(b"[1]")]);
        for length in 0..whole.len() {
            assert!(call(&whole[..length]).is_err(), "{length}");
        }
        assert!(call(&call_of(&[])).is_err());
        assert!(call(&[whole.clone(), vec![0]].concat()).is_err());
        assert!(whole_frame(&u32::MAX.to_le_bytes()).is_err());
        assert_eq!(whole_frame(&[1, 0, 0]).unwrap(), None);
        assert_eq!(whole_frame(&[1, 0, 0, 0, 9, 9]).unwrap(), Some(5));
        let two = [record(STOP, &[]), record(GO, &[b"ab", b"c"])].concat();
        assert_eq!(records(&two).unwrap(), [(STOP, vec![]), (GO, b"abc".to_vec())]);
        assert!(records(&two[..two.len() - 1]).is_err());
        assert!(answer(&[0; 19]).is_err() && go(&[0; 8]).is_err() && function(&[0; 20]).is_err());
    }
}
