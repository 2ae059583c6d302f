//! The contender: the same bytes over raw connections, encrypted if those of the nodes are.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use proto::{ObjectId, limits};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use security::{Keyring, Role, tls};

use super::{Case, JOB, objects_dir};

/// The TLS configurations of both sides: the certificate of the cluster's nodes.
#[derive(Clone)]
pub(super) struct Secrets {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Secrets {
    pub(super) fn of_cluster(dir: &Path) -> anyhow::Result<Self> {
        let bundle = Keyring::of_instance(dir).read(Role::Node)?;
        let client = tls::client(&bundle, tls::DATA)?;
        Ok(Self { client, server: tls::server(&bundle, tls::DATA)? })
    }
}

/// Reads ahead as a node does. TLS alone reads only a quarter of a record from the kernel at a
/// time.
struct Ahead(BufReader<TcpStream>);

impl Ahead {
    fn new(socket: TcpStream) -> Self {
        Self(BufReader::with_capacity(limits::DATA_BUFFER_BYTES, socket))
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Ahead {
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

/// One end of a connection.
enum Wire {
    Plain(TcpStream),
    Client(Box<StreamOwned<ClientConnection, Ahead>>),
    Server(Box<StreamOwned<ServerConnection, Ahead>>),
}

impl Wire {
    /// Both ends of a new connection, after the greeting.
    fn pair(secrets: Option<&Secrets>) -> anyhow::Result<(Self, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let out = TcpStream::connect(listener.local_addr()?)?;
        let back = listener.accept()?.0;
        out.set_nodelay(true)?;
        back.set_nodelay(true)?;
        let Some(secrets) = secrets else { return Ok((Self::Plain(out), Self::Plain(back))) };
        let asks = ClientConnection::new(secrets.client.clone(), tls::node_name())?;
        let mut asks = StreamOwned::new(asks, Ahead::new(back));
        let gives = ServerConnection::new(secrets.server.clone())?;
        let mut gives = StreamOwned::new(gives, Ahead::new(out));
        std::thread::scope(|scope| -> io::Result<()> {
            let greeting = scope.spawn(|| greet(&mut gives, &[1]));
            greet(&mut asks, &[2])?;
            greeting.join().expect("it does not panic")
        })?;
        Ok((Self::Server(Box::new(gives)), Self::Client(Box::new(asks))))
    }

    fn send_file(&mut self, file: &mut File, buffer: &mut [u8]) -> io::Result<()> {
        if let Self::Plain(socket) = self {
            return io::copy(file, socket).map(drop); // By sendfile.
        }
        loop {
            match file.read(buffer)? {
                0 => return Ok(()),
                count => self.write_all(&buffer[..count])?,
            }
        }
    }
}

/// One byte in each direction: then the handshake is over, and its tickets have arrived.
fn greet(end: &mut (impl Read + Write), byte: &[u8]) -> io::Result<()> {
    end.write_all(byte)?;
    end.flush()?;
    end.read_exact(&mut [0])
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Client(stream) => stream.read(buffer),
            Self::Server(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
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

/// Open raw connections with a thread at each end. Each turn is an empty request and the bytes in
/// return, from files into files if there is a directory.
pub(super) struct Raw {
    turns: Vec<(mpsc::Sender<()>, mpsc::Receiver<io::Result<()>>)>,
    target: Option<PathBuf>,
}

impl Raw {
    pub(super) fn open(
        case: Case,
        dir: Option<&Path>,
        secrets: Option<&Secrets>,
    ) -> anyhow::Result<Self> {
        let source = dir.map(objects_dir);
        let target = dir.map(|dir| dir.join("raw"));
        let mut turns = Vec::new();
        for at in 0..case.connections() {
            let (out, mut back) = Wire::pair(secrets)?;
            let mine: Vec<ObjectId> =
                case.objects().into_iter().skip(at).step_by(case.connections()).collect();
            let (source, target, theirs) = (source.clone(), target.clone(), mine.clone());
            let (begin, begins) = mpsc::channel();
            let (end, ends) = mpsc::channel();
            std::thread::spawn(move || send(out, case, &theirs, source.as_deref()));
            std::thread::spawn(move || {
                for () in begins {
                    if end.send(receive(&mut back, case, &mine, target.as_deref())).is_err() {
                        return;
                    }
                }
            });
            turns.push((begin, ends));
        }
        Ok(Self { turns, target })
    }

    pub(super) fn turn(&self) -> anyhow::Result<Duration> {
        if let Some(target) = &self.target {
            std::fs::create_dir_all(target)?;
        }
        let start = Instant::now();
        for (begin, _) in &self.turns {
            begin.send(()).context("a raw connection ended")?;
        }
        for (_, end) in &self.turns {
            end.recv().context("a raw connection ended")??;
        }
        let took = start.elapsed();
        if let Some(target) = &self.target {
            std::fs::remove_dir_all(target)?;
        }
        Ok(took)
    }
}

/// Sends its objects at each request, until the other side closes the connection.
fn send(mut out: Wire, case: Case, objects: &[ObjectId], source: Option<&Path>) -> io::Result<()> {
    let mut buffer = vec![7; limits::DATA_BUFFER_BYTES];
    loop {
        out.read_exact(&mut [0])?;
        for object in objects {
            if let Some(source) = source {
                out.send_file(&mut File::open(source_of(source, *object))?, &mut buffer)?;
                continue;
            }
            let mut rest = case.size_bytes;
            while rest > 0 {
                let count = rest.min(buffer.len() as u64) as usize;
                out.write_all(&buffer[..count])?;
                rest -= count as u64;
            }
        }
        out.flush()?;
    }
}

pub(super) fn source_of(source: &Path, object: ObjectId) -> PathBuf {
    let (local, attempt) = (object.task.local, object.attempt.0);
    let name = format!("{}.{}-{attempt:x}-0-kept", local.partition().0, local.index());
    source.join(format!("{:016x}", JOB.0)).join(name)
}

fn receive(
    back: &mut Wire,
    case: Case,
    objects: &[ObjectId],
    target: Option<&Path>,
) -> io::Result<()> {
    back.write_all(&[1])?;
    back.flush()?;
    let mut buffer = vec![0; limits::DATA_BUFFER_BYTES];
    for object in objects {
        let path = target.map(|target| target.join(object.task.local.0.to_string()));
        let mut file = path.as_ref().map(File::create).transpose()?;
        let mut rest = case.size_bytes;
        while rest > 0 {
            let count = rest.min(buffer.len() as u64) as usize;
            let came = back.read(&mut buffer[..count])?;
            if came == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(file) = &mut file {
                file.write_all(&buffer[..came])?;
            }
            rest -= came as u64;
        }
        // All of them together would not fit; a node deletes each batch as well.
        if let Some(path) = path.filter(|_| case.batch() < case.at_once) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}
