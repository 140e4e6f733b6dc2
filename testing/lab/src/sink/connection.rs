//! One connection of a sink as a tokio task: performs what its [`Line`] asks for.
//!
//! Promise: cheap. Input is read into one buffer per thread and parsed there. A timer exists only if there is a delay.
//! The task ends when the client has gone or the behaviour says so; the session counts replies that could not be
//! written.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::line::{LINGER, Line, Turn};
use super::session::{COMMAND_BYTES_MAX, Session};
use super::wire::Wire;
use crate::recorder::Recorder;

const READ_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES + COMMAND_BYTES_MAX + 2].into());
}

pub(super) struct Connection<'a> {
    stream: Wire,
    line: Line,
    recorder: &'a Recorder,
}

impl<'a> Connection<'a> {
    pub fn new(stream: TcpStream, session: Session, recorder: &'a Recorder) -> Self {
        Self { stream: Wire::Clear(stream), line: Line::new(session), recorder }
    }

    /// Until the connection is over. Errors of the socket are the client's business and end it as well.
    pub async fn run(mut self) -> io::Result<()> {
        loop {
            let now_us = self.recorder.now_us();
            match self.line.turn(now_us, |bytes| self.stream.try_write(bytes))? {
                Turn::Read => drop(self.read().await?),
                Turn::ReadUntil(due_us) => {
                    let due = Instant::now() + Duration::from_micros(due_us - now_us);
                    tokio::select! {
                        biased;
                        () = sleep_until(due) => {}
                        read = self.read() => drop(read?),
                    }
                }
                Turn::Wait(due_us) => sleep_until(Instant::now() + Duration::from_micros(due_us - now_us)).await,
                Turn::Writable => self.stream.writable().await?,
                // Sinks of this kind have no store, so that this cannot be; the client would get no answer.
                Turn::Store | Turn::Close => return Ok(()),
                Turn::Reset => return self.stream.reset(),
                Turn::Secure(kind) => {
                    if !self.stream.secure(kind, self.line.session.host_name()).await? {
                        return Ok(());
                    }
                    self.line.session.within_tls();
                }
                Turn::HalfClose => {
                    self.stream.shutdown().await?;
                    while self.read().await? > 0 {}
                    return Ok(());
                }
                Turn::Linger => {
                    self.stream.shutdown().await?;
                    let drain = async { while self.read().await.is_ok_and(|count| count > 0) {} };
                    // Over time the client has had its chance; the copies below were answered.
                    let _ = timeout(LINGER, drain).await;
                    return Ok(());
                }
            }
        }
    }

    /// Reads once and lets the session have it. Cancel-safe: nothing is read unless this completes.
    async fn read(&mut self) -> io::Result<usize> {
        let Self { stream, line, recorder } = self;
        poll_fn(|context| {
            BUFFER.with_borrow_mut(|buffer| {
                let held = line.held();
                let mut into = ReadBuf::new(&mut buffer[held..held + READ_BYTES]);
                match stream.poll_read(context, &mut into) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(())) => {}
                }
                let count = into.filled().len();
                line.input(buffer, count, recorder.now_us());
                Poll::Ready(Ok(count))
            })
        })
        .await
    }
}
