//! Standard input and output as one stream. Both block: a session does one thing after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes taken at once.
const STEP: usize = 64 << 10;

/// The standard streams of this process.
#[derive(Debug)]
pub struct StandardStreams {
    buffer: Vec<u8>,
}

impl Default for StandardStreams {
    fn default() -> Self {
        Self { buffer: vec![0; STEP] }
    }
}

impl AsyncRead for StandardStreams {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let step = into.remaining().min(STEP);
        let read = rustix::io::retry_on_intr(|| rustix::io::read(io::stdin(), &mut self.buffer[..step]));
        // The library would read on after an error, for ever: it is the end.
        let count = read.unwrap_or(0);
        into.put_slice(&self.buffer[..count]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StandardStreams {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(io::stdout(), bytes))?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
