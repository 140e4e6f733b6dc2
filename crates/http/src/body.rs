//! Request bodies with a deadline: a slow client cannot hold a connection for long.
//!
//! Promise: the server waits for a body for [`GRACE`] in total, plus one second per [`BYTES_PER_S_MIN`] octets
//! received; without a login, [`STRANGER_GRACE`] in total and at most [`STRANGER_BYTES_MAX`] octets, enough for a login
//! form. Only waiting for the client counts, not our own reading. Login and permissions have been checked before.
//!
//! Failure: the body ends with an error, and [`BodyCutoff`] tells the responder to send 408 or 413 instead of the
//! handler's answer to a partial body.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::Stream;
use tokio::time::{Instant, Sleep, sleep};

const GRACE: Duration = Duration::from_secs(30);
const BYTES_PER_S_MIN: u64 = 4096;
const STRANGER_GRACE: Duration = Duration::from_secs(5);
const STRANGER_BYTES_MAX: u64 = 8192;

/// The status for a body that was cut short, if it was.
#[derive(Clone, Default)]
pub struct BodyCutoff(Arc<AtomicU16>);

impl BodyCutoff {
    pub fn status(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.0.load(Ordering::Relaxed)).ok()
    }

    /// Records the status and returns the stream's last item.
    fn because(&self, status: StatusCode) -> io::Error {
        self.0.store(status.as_u16(), Ordering::Relaxed);
        let kind =
            if status == StatusCode::REQUEST_TIMEOUT { io::ErrorKind::TimedOut } else { io::ErrorKind::FileTooLarge };
        kind.into()
    }
}

/// A stream of a channel's items, until its senders are dropped.
pub fn received<T>(mut channel: tokio::sync::mpsc::Receiver<T>) -> impl Stream<Item = T> {
    futures_util::stream::poll_fn(move |context| channel.poll_recv(context))
}

/// The body with a deadline.
pub fn in_time(body: Body, is_known: bool) -> (Body, BodyCutoff) {
    let late = BodyCutoff::default();
    let paced = PacedBody {
        octets: body.into_data_stream(),
        is_known,
        received: 0,
        waited: Duration::ZERO,
        waiting: None,
        late: late.clone(),
    };
    (Body::from_stream(paced), late)
}

struct PacedBody {
    octets: BodyDataStream,
    is_known: bool,
    received: u64,
    waited: Duration,
    /// Start of the current wait for data, and its timer.
    waiting: Option<(Instant, std::pin::Pin<Box<Sleep>>)>,
    late: BodyCutoff,
}

impl PacedBody {
    fn patience(&self) -> Duration {
        if self.is_known { GRACE + Duration::from_secs(self.received / BYTES_PER_S_MIN) } else { STRANGER_GRACE }
    }
}

impl Stream for PacedBody {
    type Item = io::Result<Bytes>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let this = &mut *self;
        if this.late.status().is_some() {
            return Poll::Ready(None);
        }
        match std::pin::Pin::new(&mut this.octets).poll_next(context) {
            Poll::Ready(next) => {
                if let Some((since, _)) = this.waiting.take() {
                    this.waited += since.elapsed();
                }
                this.received +=
                    next.as_ref().and_then(|next| next.as_ref().ok()).map_or(0, |bytes| bytes.len() as u64);
                if !this.is_known && this.received > STRANGER_BYTES_MAX {
                    return Poll::Ready(Some(Err(this.late.because(StatusCode::PAYLOAD_TOO_LARGE))));
                }
                Poll::Ready(next.map(|next| next.map_err(io::Error::other)))
            }
            Poll::Pending => {
                let left = this.patience().saturating_sub(this.waited);
                let (_, alarm) = this.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
                match alarm.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(this.late.because(StatusCode::REQUEST_TIMEOUT)))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    /// Reads an endless body in pieces of `piece` octets, one per `every`: returns the octets read before it was cut,
    /// and why.
    async fn cut(piece: usize, every: Duration, is_known: bool) -> (usize, Option<StatusCode>, Duration) {
        let (sender, pieces) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
        tokio::spawn(async move {
            while sender.send(Ok(Bytes::from(vec![b'x'; piece]))).await.is_ok() {
                sleep(every).await;
            }
        });
        let begin = Instant::now();
        let (body, late) = in_time(Body::from_stream(received(pieces)), is_known);
        let mut octets = body.into_data_stream();
        let mut taken = 0;
        while let Some(Ok(bytes)) = octets.next().await {
            taken += bytes.len();
            if begin.elapsed() > Duration::from_hours(1) {
                break;
            }
        }
        (taken, late.status(), begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_slowly_is_cut_and_who_keeps_up_is_not() {
        let second = Duration::from_secs(1);
        let (_, status, after) = cut(1, second, true).await;
        assert_eq!(status, Some(StatusCode::REQUEST_TIMEOUT));
        assert!(after < Duration::from_secs(32), "{after:?}");
        let (taken, status, _) = cut(8192, second, true).await;
        assert!(status.is_none() && taken > 3_000 * 8192, "{taken}");
        let (_, status, after) = cut(1, second, false).await;
        assert!(status == Some(StatusCode::REQUEST_TIMEOUT) && after < Duration::from_secs(7), "{after:?}");
        // Without a login, octets received do not extend the time.
        let (taken, status, _) = cut(4096, Duration::from_millis(1), false).await;
        assert_eq!((taken, status), (8192, Some(StatusCode::PAYLOAD_TOO_LARGE)));
    }
}
