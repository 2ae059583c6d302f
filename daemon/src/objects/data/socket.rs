//! The byte stream of a data connection, encrypted or not, for one thread that may block.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;

use proto::limits;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

/// An encrypted record has up to 16 KiB, and the TLS library reads only a quarter of that at a
/// time.
const READ_AHEAD_BYTES: usize = 128 << 10;

/// A socket that is read in large pieces.
#[derive(Debug)]
pub(super) struct BufferedSocket(BufReader<TcpStream>);

impl BufferedSocket {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self(BufReader::with_capacity(READ_AHEAD_BYTES, socket))
    }
}

impl Read for BufferedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for BufferedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }
    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.get_mut().write_vectored(slices)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

#[derive(Debug)]
pub(super) enum DataStream {
    Plain(TcpStream),
    /// The requesting side.
    Client(Box<StreamOwned<ClientConnection, BufferedSocket>>),
    /// The sending side.
    Server(Box<StreamOwned<ServerConnection, BufferedSocket>>),
}

impl DataStream {
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Client(stream) => stream.sock.0.get_ref(),
            Self::Server(stream) => stream.sock.0.get_ref(),
        }
    }

    /// Sends the rest of a file. Without encryption the bytes never pass through this process.
    pub(super) fn send_file(&mut self, file: &mut File, size_bytes: u64) -> io::Result<()> {
        match self {
            Self::Plain(socket) => hand_over(socket, file, size_bytes),
            Self::Client(_) | Self::Server(_) => copy(self, file, size_bytes),
        }
    }
}

/// Sends a file to the socket within the kernel.
fn hand_over(socket: &TcpStream, file: &File, size_bytes: u64) -> io::Result<()> {
    let mut rest = size_bytes;
    while rest > 0 {
        let count = usize::try_from(rest.min(1 << 30)).expect("a gibibyte fits memory");
        match rustix::fs::sendfile(socket, file, None, count) {
            Ok(0) => return Err(io::ErrorKind::InvalidData.into()), // The file was truncated.
            Ok(sent) => rest -= sent as u64,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn copy(wire: &mut DataStream, file: &mut File, size_bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; limits::DATA_BUFFER_BYTES.min(size_bytes as usize)];
    let mut rest = size_bytes;
    while rest > 0 {
        let count = rest.min(buffer.len() as u64) as usize;
        file.read_exact(&mut buffer[..count])?;
        wire.write_all(&buffer[..count])?;
        rest -= count as u64;
    }
    Ok(())
}

impl Read for DataStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Client(stream) => stream.write(bytes),
            Self::Server(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Client(stream) => stream.flush(),
            Self::Server(stream) => stream.flush(),
        }
    }
}
