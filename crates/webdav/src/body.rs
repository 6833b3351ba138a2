//! Contents of answers. The first part is there before the status is sent, so that a failure in it
//! has the right status. A later failure cuts the answer off, which clients notice.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use crate::outcome::Outcome;

/// Bytes that are read before the status is sent.
const AHEAD: usize = 256 << 10;

/// See the module header.
pub(crate) struct Content {
    ahead: VecDeque<Bytes>,
    /// `None`: it is over, and must not be asked again.
    rest: Option<BoxStream<'static, io::Result<Bytes>>>,
    outcome: Arc<Outcome>,
    /// Its place among the answers under way.
    place: Option<OwnedSemaphorePermit>,
}

impl Content {
    /// Keeps a place until everything was sent.
    pub(crate) fn keep(&mut self, place: OwnedSemaphorePermit) {
        self.place = Some(place);
    }

    /// Some text, or nothing.
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let ahead = if text.is_empty() { VecDeque::new() } else { VecDeque::from([text]) };
        Self { ahead, rest: None, outcome: Arc::default(), place: None }
    }

    /// What a stream has. `None`: its first part failed, for a reason that the outcome has.
    pub(crate) async fn of(mut stream: BoxStream<'static, io::Result<Bytes>>, outcome: &Arc<Outcome>) -> Option<Self> {
        let (mut ahead, mut length, mut is_over) = (VecDeque::new(), 0, false);
        while length < AHEAD && !is_over {
            match stream.next().await {
                Some(Ok(part)) => {
                    length += part.len();
                    ahead.push_back(part);
                }
                Some(Err(_)) => return None,
                None => is_over = true,
            }
        }
        if outcome.failure().is_some() {
            return None;
        }
        Some(Self { ahead, rest: (!is_over).then_some(stream), outcome: outcome.clone(), place: None })
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(part) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let part = match rest.poll_next_unpin(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(part))) if self.outcome.failure().is_none() => {
                return Poll::Ready(Some(Ok(Frame::data(part))));
            }
            Poll::Ready(Some(Ok(_))) => None,
            Poll::Ready(Some(Err(error))) => Some(Err(error)),
            Poll::Ready(None) => None,
        };
        self.rest = None;
        match self.outcome.failure() {
            Some(status) => Poll::Ready(Some(Err(io::Error::other(status.to_string())))),
            None => Poll::Ready(part),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match self.rest {
            None => SizeHint::with_exact(self.ahead.iter().map(|part| part.len() as u64).sum()),
            Some(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream::iter;
    use http::StatusCode;
    use http_body_util::BodyExt;

    fn parts(count: usize, last: io::Result<Bytes>) -> BoxStream<'static, io::Result<Bytes>> {
        let part = Bytes::from(vec![7; 100 << 10]);
        iter((0..count).map(move |_| Ok(part.clone())).chain([last])).boxed()
    }

    #[tokio::test]
    async fn failures_are_never_the_end_of_an_answer() {
        let outcome = Arc::new(Outcome::default());
        let whole = Content::of(parts(5, Ok(Bytes::from_static(b"end"))), &outcome).await.expect("it is whole");
        assert_eq!(whole.collect().await.expect("whole").to_bytes().len(), 5 * (100 << 10) + 3);
        // Early, so the status can say it; late; and one that the stream passes over.
        let failed = || Err(io::Error::other("failed"));
        assert!(Content::of(parts(2, failed()), &outcome).await.is_none());
        let late = Content::of(parts(5, failed()), &outcome).await.expect("it begins well");
        assert!(late.collect().await.is_err());
        let passed_over = Content::of(parts(5, Ok(Bytes::new())), &outcome).await.expect("it begins well");
        outcome.fail(StatusCode::INTERNAL_SERVER_ERROR);
        assert!(passed_over.collect().await.is_err());
        assert!(Content::of(parts(1, Ok(Bytes::new())), &outcome).await.is_none());
    }
}
