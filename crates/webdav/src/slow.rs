//! [`Prompt`]: a connection whose client has to take what is sent to it, within a limit of time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module header.
#[derive(Debug)]
pub(crate) struct Prompt<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits for the client.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Prompt<S> {
    /// A client may stop to read for this time.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, waiting: None }
    }

    /// The result of a write, or an error if it waits for too long.
    fn limited<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let limit = self.limit;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.limited(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limited(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_cut_off() {
        let (ours, mut theirs) = tokio::io::duplex(10);
        let mut ours = Prompt::new(ours, Duration::from_secs(60));
        let reader = tokio::spawn(async move {
            // Slow, but it reads.
            let mut byte = [0];
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(50)).await;
                theirs.read_exact(&mut byte).await.expect("it writes");
            }
            theirs
        });
        ours.write_all(&[7; 30]).await.expect("it is read");
        let theirs = reader.await.expect("it ends");
        let stopped = ours.write_all(&[7; 30]).await.expect_err("nobody reads");
        assert_eq!(stopped.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }
}
