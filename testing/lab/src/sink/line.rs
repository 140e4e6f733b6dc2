//! The next action for one connection: the session's replies with the behaviour's delays, without any I/O. All models
//! of the sink and the lab's own tasks drive this; they differ in how they wait.
//!
//! Promise: replies leave in order, none before it is due. A connection without delays keeps nothing here; its replies
//! are written from the session's own buffer.
//!
//! The owner passes input ([`Line::input`]), asks for the next action ([`Line::turn`]), performs it, and asks again.

use super::session::{Effect, Session};
use crate::tls::Tls;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// How long a closing sink still reads, so that the kernel does not answer pipelined input with RST and lose our reply.
pub(super) const LINGER: Duration = Duration::from_secs(2);
const ENDLESS_PAUSE_US: u64 = 10_000;
const ENDLESS_LINES: usize = 32;
/// A flood comes in pieces of this size, one in so many microseconds at most, so that a reader that keeps up does not
/// take the thread from the others.
const FLOOD_BYTES: usize = 64 << 10;
const FLOOD_PAUSE_US: u64 = 1000;
/// Length of the line that floods.
const FLOOD_LINE_BYTES: usize = 10_000_000;

/// What the owner must do before it asks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Wait for input.
    Read,
    /// Wait for input, or for this time.
    ReadUntil(u64),
    /// The client has said its last word; wait for this time.
    Wait(u64),
    /// Wait until the socket takes more.
    Writable,
    /// Store [`Session::take_job`], say how it went to [`Line::stored`]; input waits until then.
    Store,
    /// It is over: close.
    Close,
    /// Over: close for writing, throw input away until the client closes or its time is up. A plain close would have
    /// the kernel answer pipelined input with RST, and our last reply be lost.
    Linger,
    /// Over: close for writing, throw input away until the client closes, however long that takes.
    HalfClose,
    /// Over: close with RST.
    Reset,
    /// The client begins a handshake; [`Session::within_tls`] once it is made.
    Secure(Tls),
}

struct Batch {
    due_us: u64,
    bytes: Vec<u8>,
    effect: Option<Effect>,
    /// Octets of a flood that are out.
    flooded: usize,
}

pub(super) struct Line {
    pub session: Session,
    /// Input that the session could not use yet: less than a command line, or what came while a message was stored.
    carry: Vec<u8>,
    queue: VecDeque<Batch>,
    /// Octets of the first batch, or of the session's replies, that are written.
    sent: usize,
    at_end: bool,
}

impl Line {
    pub fn new(session: Session) -> Line {
        Line { session, carry: Vec::new(), queue: VecDeque::new(), sent: 0, at_end: false }
    }

    /// How many octets [`Line::input`] wants before the new ones.
    pub fn held(&self) -> usize {
        self.carry.len()
    }

    /// `buffer` has room for [`Line::held`] octets and then `count` new ones; none means that the client has ended.
    pub fn input(&mut self, buffer: &mut [u8], count: usize, now_us: u64) {
        if count == 0 {
            self.at_end = true;
            return;
        }
        let held = self.carry.len();
        buffer[..held].copy_from_slice(&self.carry);
        let input = &buffer[..held + count];
        let used = self.session.process(input, now_us);
        self.carry.clear();
        self.carry.extend_from_slice(&input[used..]);
    }

    /// How storing went; the session goes on with what has come meanwhile.
    pub fn stored(&mut self, outcome: super::store::StoreCompletion, now_us: u64) {
        self.session.stored(outcome, now_us);
        let held = std::mem::take(&mut self.carry);
        let used = self.session.process(&held, now_us);
        self.carry.extend_from_slice(&held[used..]);
    }

    /// Writes what is due. `write` takes what it can, as a socket does; its other errors mean that the client is gone.
    pub fn turn(&mut self, now_us: u64, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<Turn> {
        let behaviour = self.session.behaviour();
        let trickle_us = self.session.trickle_us();
        let rtt_us = u64::from(behaviour.rtt_ms) * 1000;
        let says_nothing = self.session.out.is_empty() && self.session.effect.is_none();
        // Kept for the reply, where that comes later than its command, as from a store.
        let delay_us = if says_nothing { 0 } else { std::mem::take(&mut self.session.delay_us) + rtt_us };
        if delay_us == 0 && trickle_us == 0 && self.queue.is_empty() {
            while self.sent < self.session.out.len() {
                match put(&mut write, &self.session.out[self.sent..])? {
                    0 => return Ok(Turn::Writable),
                    count => self.sent += count,
                }
            }
            if self.sent > 0 {
                self.sent = 0;
                self.session.replies_written();
            }
            if self.session.effect.is_none() {
                return Ok(self.next());
            }
        }
        self.enqueue(now_us, delay_us, trickle_us);
        while let Some(batch) = self.queue.front_mut() {
            if batch.due_us > now_us {
                return Ok(if self.at_end { Turn::Wait(batch.due_us) } else { Turn::ReadUntil(batch.due_us) });
            }
            if self.sent < batch.bytes.len() {
                let end = if trickle_us == 0 { batch.bytes.len() } else { self.sent + 1 };
                match put(&mut write, &batch.bytes[self.sent..end])? {
                    0 => return Ok(Turn::Writable),
                    count => self.sent += count,
                }
                batch.due_us = if trickle_us == 0 { batch.due_us } else { now_us + trickle_us };
                continue;
            }
            self.sent = 0;
            match batch.effect {
                None => {
                    self.queue.pop_front();
                }
                Some(Effect::Endless) => {
                    if batch.bytes.is_empty() {
                        batch.bytes = b"250-and there is more to say\r\n".repeat(ENDLESS_LINES);
                    }
                    batch.due_us = now_us + ENDLESS_PAUSE_US;
                }
                Some(Effect::FloodLine) if batch.flooded >= FLOOD_LINE_BYTES => {
                    (batch.bytes, batch.effect) = (b"\r\n".to_vec(), Some(Effect::Close));
                }
                Some(effect @ (Effect::FloodLine | Effect::FloodLines)) => {
                    if batch.bytes.is_empty() {
                        let line =
                            if effect == Effect::FloodLine { "250 x" } else { "250-and there is more to say\r\n" };
                        batch.bytes = line.repeat(FLOOD_BYTES / line.len()).into_bytes();
                    }
                    batch.flooded += batch.bytes.len();
                    batch.due_us = now_us + FLOOD_PAUSE_US;
                }
                Some(Effect::Secure(kind)) => {
                    self.queue.pop_front();
                    self.session.replies_written();
                    return Ok(Turn::Secure(kind));
                }
                Some(effect) => return Ok(self.over(effect)),
            }
        }
        self.session.replies_written();
        Ok(self.next())
    }

    fn enqueue(&mut self, now_us: u64, delay_us: u64, trickle_us: u64) {
        if self.session.out.is_empty() && self.session.effect.is_none() {
            return;
        }
        let last_due = self.queue.back().map_or(0, |batch| batch.due_us);
        let mut due_us = (now_us + delay_us).max(last_due);
        let effect = self.session.effect.take();
        // What never ends is a batch of its own: its octets are said again and again.
        let apart = matches!(effect, Some(Effect::Endless | Effect::FloodLine | Effect::FloodLines));
        if !self.session.out.is_empty() {
            due_us += trickle_us;
            let bytes = std::mem::take(&mut self.session.out);
            self.queue.push_back(Batch { due_us, bytes, effect: if apart { None } else { effect }, flooded: 0 });
        } else if !apart {
            self.queue.push_back(Batch { due_us, bytes: Vec::new(), effect, flooded: 0 });
        }
        if apart {
            self.queue.push_back(Batch { due_us, bytes: Vec::new(), effect, flooded: 0 });
        }
    }

    fn over(&mut self, effect: Effect) -> Turn {
        self.session.replies_written();
        match effect {
            Effect::Reset => Turn::Reset,
            Effect::HalfClose if !self.at_end => Turn::HalfClose,
            Effect::Close if !self.at_end => Turn::Linger,
            _ => Turn::Close,
        }
    }

    fn next(&self) -> Turn {
        if self.session.stores() {
            Turn::Store
        } else if self.at_end {
            Turn::Close
        } else {
            Turn::Read
        }
    }
}

/// 0: it takes nothing now.
fn put(write: &mut impl FnMut(&[u8]) -> io::Result<usize>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            other => return other,
        }
    }
}
