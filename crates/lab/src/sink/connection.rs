//! One connection of a sink: the session's octets to and from the socket, with the behaviour's delays.
//!
//! Promise: cheap. Input is read into one buffer per thread and parsed there; a connection itself holds only the unparsed
//! rest (less than a command line) and replies on their way. No timer exists unless a delay asks for one. The task ends
//! when the client has gone or the behaviour says so; replies that could not be written are counted by the session.

use super::session::{COMMAND_BYTES_MAX, Effect, Session};
use crate::recorder::Recorder;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const READ_BYTES: usize = 64 << 10;
/// How long a closing sink still reads, so that the kernel does not answer pipelined input with RST and lose our reply.
const LINGER: Duration = Duration::from_secs(2);
const ENDLESS_PAUSE: Duration = Duration::from_millis(10);

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES + COMMAND_BYTES_MAX + 2].into());
}

struct Batch {
    due_us: u64,
    bytes: Vec<u8>,
    effect: Option<Effect>,
}

pub(super) struct Connection<'a> {
    pub stream: TcpStream,
    pub session: Session,
    pub recorder: &'a Recorder,
    carry: Vec<u8>,
    queue: VecDeque<Batch>,
    at_end: bool,
}

impl<'a> Connection<'a> {
    pub fn new(stream: TcpStream, session: Session, recorder: &'a Recorder) -> Self {
        Self { stream, session, recorder, carry: Vec::new(), queue: VecDeque::new(), at_end: false }
    }

    /// Until the connection is over. Errors of the socket are the client's business and end it as well.
    pub async fn run(mut self) -> io::Result<()> {
        loop {
            if self.send().await? {
                return Ok(());
            }
            let Some(due_us) = self.queue.front().map(|batch| batch.due_us) else {
                if self.at_end {
                    return Ok(());
                }
                self.read().await?;
                continue;
            };
            let now_us = self.recorder.now_us();
            if due_us <= now_us {
                continue;
            }
            let due = Instant::now() + Duration::from_micros(due_us - now_us);
            if self.at_end {
                sleep_until(due).await;
                continue;
            }
            tokio::select! {
                biased;
                () = sleep_until(due) => {}
                read = self.read() => read?,
            }
        }
    }

    /// Reads once and lets the session have it. Cancel-safe: nothing is read unless this completes.
    async fn read(&mut self) -> io::Result<()> {
        let Self { stream, session, recorder, carry, .. } = self;
        let count = poll_fn(|context| {
            BUFFER.with_borrow_mut(|buffer| {
                let held = carry.len();
                let mut into = ReadBuf::new(&mut buffer[held..held + READ_BYTES]);
                match Pin::new(&mut *stream).poll_read(context, &mut into) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Ready(Ok(())) => {}
                }
                let count = into.filled().len();
                if count > 0 {
                    buffer[..held].copy_from_slice(carry);
                    let input = &buffer[..held + count];
                    let used = session.process(input, recorder.now_us());
                    carry.clear();
                    carry.extend_from_slice(&input[used..]);
                }
                Poll::Ready(Ok(count))
            })
        })
        .await?;
        self.at_end = count == 0;
        Ok(())
    }

    /// Writes what is due, and queues what the session has said meanwhile. True when the connection is over.
    async fn send(&mut self) -> io::Result<bool> {
        let behaviour = self.session.behaviour();
        let rtt_us = u64::from(behaviour.rtt_ms) * 1000;
        let trickle = Duration::from_millis(u64::from(behaviour.trickle_ms));
        let delay_us = std::mem::take(&mut self.session.delay_us) + rtt_us;
        let effect = self.session.effect.take();
        if delay_us == 0 && self.queue.is_empty() {
            if !self.session.out.is_empty() {
                write(&mut self.stream, &self.session.out, trickle).await?;
                self.session.out.clear();
                self.session.unanswered = 0;
            }
            return self.carry_out(effect).await;
        }
        if !self.session.out.is_empty() || effect.is_some() {
            let last_due = self.queue.back().map_or(0, |batch| batch.due_us);
            let due_us = (self.recorder.now_us() + delay_us).max(last_due);
            self.queue.push_back(Batch { due_us, bytes: std::mem::take(&mut self.session.out), effect });
        }
        while let Some(batch) = self.queue.front() {
            if batch.due_us > self.recorder.now_us() {
                return Ok(false);
            }
            write(&mut self.stream, &batch.bytes, trickle).await?;
            let effect = batch.effect;
            self.queue.pop_front();
            if self.carry_out(effect).await? {
                return Ok(true);
            }
        }
        self.session.unanswered = 0;
        Ok(false)
    }

    async fn carry_out(&mut self, effect: Option<Effect>) -> io::Result<bool> {
        match effect {
            None => return Ok(false),
            Some(Effect::Reset) => socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))?,
            Some(Effect::Endless) => loop {
                self.stream.write_all(&b"250-and there is more to say\r\n".repeat(32)).await?;
                sleep(ENDLESS_PAUSE).await;
            },
            Some(Effect::Close) => {
                self.stream.shutdown().await?;
                let drain = async { while !self.at_end && self.read().await.is_ok() {} };
                // Over time the client has had its chance; the copies below were answered.
                let _ = timeout(LINGER, drain).await;
            }
        }
        Ok(true)
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8], trickle: Duration) -> io::Result<()> {
    if trickle.is_zero() {
        return stream.write_all(bytes).await;
    }
    for byte in bytes {
        sleep(trickle).await;
        stream.write_all(std::slice::from_ref(byte)).await?;
    }
    Ok(())
}
