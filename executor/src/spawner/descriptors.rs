//! Descriptors that the node sends with a start order, for the program that it starts.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The maximum of descriptors of one order.
pub(crate) const FDS_MAX: usize = 8;
/// The lowest number of a received descriptor here: above all numbers in programs.
const FD_MIN: i32 = 32;

/// The further descriptors of a program, each with its number there.
pub(super) type Others = Vec<(OwnedFd, i32)>;

/// The descriptors that have arrived, and belong to no order so far.
#[derive(Debug, Default)]
pub(super) struct Received(VecDeque<OwnedFd>);

impl Received {
    /// Reads bytes from the node, and the descriptors that came with them.
    pub(super) fn read(&mut self, socket: &UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    self.0.push_back(rustix::io::fcntl_dupfd_cloexec(&fd, FD_MIN)?);
                }
            }
        }
        Ok(message.bytes)
    }

    /// The descriptors of an order, which came before its last byte.
    pub(super) fn take(&mut self, numbers: &[u32]) -> io::Result<Others> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a malformed request");
        let one = |number: &u32| {
            let number = i32::try_from(*number).ok().filter(|number| *number < FD_MIN);
            Ok((self.0.pop_front().ok_or_else(malformed)?, number.ok_or_else(malformed)?))
        };
        numbers.iter().map(one).collect()
    }
}

/// Sends bytes with descriptors, and waits until all of them are sent.
pub(crate) fn send_with(
    socket: impl AsFd + Copy,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(fds.len() <= FDS_MAX, "an order has few descriptors");
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let mut sent = 0;
    while sent < bytes.len() {
        let slices = [IoSlice::new(&bytes[sent..])];
        match sendmsg(socket, &slices, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        ancillary.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (node, spawner) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        send_with(&node, b"plain", &[]).unwrap();
        send_with(&node, b"with two", &[file.as_fd(), file.as_fd()]).unwrap();
        let (mut received, mut buffer, mut count) = (Received::default(), [0; 64], 0);
        while count < 13 {
            count += received.read(&spawner, &mut buffer[count..]).unwrap();
        }
        assert_eq!(&buffer[..13], b"plainwith two");
        let others = received.take(&[3, 4]).unwrap();
        let mut theirs = std::fs::File::from(others.into_iter().next().unwrap().0);
        file.write_all(b"seen").unwrap();
        theirs.rewind().unwrap();
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "seen");
        assert!(received.take(&[3]).is_err(), "there are no more");
    }
}
