//! Frames of the door: the length of a message in four bytes (little endian), then the message.

use std::io;

use prost::Message;
use proto::limits;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Reads a message of this length, which is checked before memory is taken.
pub(crate) async fn read<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin),
    length: u32,
) -> io::Result<M> {
    if length as usize > limits::DOOR_FRAME_BYTES_MAX {
        let most = limits::DOOR_FRAME_BYTES_MAX;
        let text = format!("a message of {length} bytes, at most {most} are read");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await?;
    M::decode(&body[..]).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads the length of the next message; `None` at the end of the connection.
pub(crate) async fn length(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<u32>> {
    let mut head = [0; 4];
    match stream.read_exact(&mut head).await {
        Ok(_) => Ok(Some(u32::from_le_bytes(head))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Message,
) -> io::Result<()> {
    let body = message.encode_to_vec();
    let length = u32::try_from(body.len()).expect("answers are far below 4 GiB");
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await
}
