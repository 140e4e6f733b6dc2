//! The event-driven model: one or more threads, each with an epoll set, its connections and their timers.
//!
//! Promise: cheap. A reply to a command costs `epoll_wait`, `recv` and `send`, the first shared by all ready
//! connections; connections are edge-triggered, so that there are no redundant wake-ups or calls. No memory is
//! allocated per message; input is read into one buffer per loop.
//!
//! The event's data is a slot's number and serial; an event for a closed connection finds another serial. A loop never
//! blocks on a disk: separate threads write files and send the outcome back through [`Mailbox`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};

use super::super::line::{Line, Turn};
use super::super::session::COMMAND_BYTES_MAX;
use super::super::store::{Done, Job, StoreCompletion};
use super::{ACCEPT_PAUSE_US, LINGER, Shared, SinkOptions};
use crate::behaviour::Connect;

const READ_BYTES: usize = 64 << 10;
const EVENTS: usize = 256;
/// Data of the events that are no connection's; slots are numbered from 0.
const MAIL: u64 = u64::MAX;
const LISTENERS: u64 = u64::MAX - (1 << 20);
/// Serial of the timer that ends a pause of accepting.
const ACCEPT_AGAIN: (u32, u32) = (u32::MAX, u32::MAX);

/// All loops of a sink.
pub(super) struct Loops {
    threads: Vec<JoinHandle<()>>,
    mail: Vec<Arc<Mailbox>>,
    writers: Option<Arc<Writers>>,
    writer_threads: Vec<JoinHandle<()>>,
}

/// Outcomes on their way from the store's threads to a loop.
struct Mailbox {
    stored: Mutex<Vec<(u64, StoreCompletion)>>,
    wake: OwnedFd,
}

impl Mailbox {
    fn send(&self, token: u64, stored: StoreCompletion) {
        let mut waiting = self.stored.lock();
        waiting.push((token, stored));
        let is_first = waiting.len() == 1;
        drop(waiting);
        if is_first {
            self.nudge();
        }
    }

    fn nudge(&self) {
        // Only a counter at its limit refuses, and then the loop is awake anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// Threads that block on the disk for the loops.
struct Writers {
    shared: Arc<Shared>,
    waiting: Mutex<(VecDeque<(Job, Done)>, bool)>,
    came: Condvar,
}

impl Writers {
    fn put(&self, job: Job, done: Done) {
        self.waiting.lock().0.push_back((job, done));
        self.came.notify_one();
    }

    fn work(&self) {
        loop {
            let mut waiting = self.waiting.lock();
            let (job, done) = loop {
                match waiting.0.pop_front() {
                    Some(next) => break next,
                    None if waiting.1 => return,
                    None => self.came.wait(&mut waiting),
                }
            };
            drop(waiting);
            if let Some(store) = &self.shared.store {
                store.put(job, done);
            }
        }
    }
}

impl Loops {
    pub fn start(shared: &Arc<Shared>, listeners: Vec<TcpListener>, options: &SinkOptions) -> io::Result<Loops> {
        let mut loops = Loops { threads: Vec::new(), mail: Vec::new(), writers: None, writer_threads: Vec::new() };
        if shared.store.as_ref().is_some_and(super::Store::blocks) {
            let writers =
                Arc::new(Writers { shared: Arc::clone(shared), waiting: Mutex::default(), came: Condvar::new() });
            for _ in 0..options.store_threads.max(1) {
                let own = Arc::clone(&writers);
                let thread = std::thread::Builder::new().name("writer".to_owned());
                loops.writer_threads.push(thread.spawn(move || own.work())?);
            }
            loops.writers = Some(writers);
        }
        let listeners = Arc::new(listeners);
        let threads = options.threads.max(1);
        for _ in 0..threads {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let mail = Arc::new(Mailbox { stored: Mutex::default(), wake });
            // A process that is full would take the one wake-up that another has room for.
            let exclusive = threads > 1 && !options.shared;
            let mut own = Loop::new(shared, &listeners, &mail, loops.writers.clone(), exclusive)?;
            loops.mail.push(mail);
            loops.threads.push(std::thread::Builder::new().name("sink".to_owned()).spawn(move || own.run())?);
        }
        Ok(loops)
    }

    pub fn end(&mut self) {
        for mail in &self.mail {
            mail.nudge();
        }
        for thread in self.threads.drain(..) {
            // A panic has been reported already.
            let _ = thread.join();
        }
        if let Some(writers) = &self.writers {
            writers.waiting.lock().1 = true;
            writers.came.notify_all();
        }
        for thread in self.writer_threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One connection.
struct Slot {
    socket: OwnedFd,
    line: Line,
    serial: u32,
    /// The kernel may have input that was not asked for yet.
    readable: bool,
    /// The client has ended or failed: read until that is seen.
    hung_up: bool,
    watches_writing: bool,
    storing: bool,
    /// Closed for writing; input is thrown away.
    lingers: bool,
    /// The earliest timer that is set, to not set it again; 0 = none.
    timer_us: u64,
}

struct Loop {
    shared: Arc<Shared>,
    listeners: Arc<Vec<TcpListener>>,
    mail: Arc<Mailbox>,
    writers: Option<Arc<Writers>>,
    /// There are other loops: only one is to wake up for a new connection.
    exclusive: bool,
    epoll: OwnedFd,
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<u32>,
    serial: u32,
    timers: BinaryHeap<Reverse<(u64, (u32, u32))>>,
    accepting: bool,
    buffer: Box<[u8]>,
}

fn token(slot: u32, serial: u32) -> u64 {
    u64::from(serial) << 32 | u64::from(slot)
}

impl Loop {
    fn new(
        shared: &Arc<Shared>,
        listeners: &Arc<Vec<TcpListener>>,
        mail: &Arc<Mailbox>,
        writers: Option<Arc<Writers>>,
        exclusive: bool,
    ) -> io::Result<Loop> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &mail.wake, EventData::new_u64(MAIL), EventFlags::IN | EventFlags::ET)?;
        let mut own = Loop {
            shared: Arc::clone(shared),
            listeners: Arc::clone(listeners),
            mail: Arc::clone(mail),
            writers,
            exclusive,
            epoll,
            slots: Vec::new(),
            free: Vec::new(),
            serial: 0,
            timers: BinaryHeap::new(),
            accepting: false,
            buffer: vec![0; READ_BYTES + COMMAND_BYTES_MAX + 2].into(),
        };
        own.watch_listeners()?;
        Ok(own)
    }

    fn watch_listeners(&mut self) -> io::Result<()> {
        let flags = if self.exclusive { EventFlags::IN | EventFlags::EXCLUSIVE } else { EventFlags::IN };
        for (at, listener) in self.listeners.iter().enumerate() {
            epoll::add(&self.epoll, listener, EventData::new_u64(LISTENERS + at as u64), flags)?;
        }
        self.accepting = true;
        Ok(())
    }

    fn run(&mut self) {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        while !self.shared.is_over() {
            let timeout = self.timers.peek().and_then(|Reverse((due_us, _))| {
                let left_us = due_us.saturating_sub(self.shared.recorder.now_us());
                Timespec::try_from(Duration::from_micros(left_us)).ok()
            });
            let count = match epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // Only a broken set fails, and then nothing can be served.
                Err(_) => return,
            };
            let now_us = self.shared.recorder.now_us();
            for event in &events[..count] {
                let (flags, data) = (event.flags, event.data.u64());
                if data == MAIL {
                    self.take_mail(now_us);
                } else if data >= LISTENERS {
                    self.accept((data - LISTENERS) as usize, now_us);
                } else {
                    self.serve(data, flags, now_us);
                }
            }
            self.fire(now_us);
        }
    }

    /// One connection; further ones are told of again, together with what else has happened.
    fn accept(&mut self, host: usize, now_us: u64) {
        if self.shared.recorder.counters.open.load(Relaxed) >= self.shared.connections_max {
            return self.pause_accepting(now_us);
        }
        let socket = match accept_with(&self.listeners[host], SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
            Err(_) => {
                self.shared.counts.accept_failures.fetch_add(1, Relaxed);
                return self.pause_accepting(now_us);
            }
        };
        if self.shared.connect == Connect::Reset {
            self.shared.recorder.counters.connections.fetch_add(1, Relaxed);
            return reset(&socket);
        }
        self.serial = self.serial.wrapping_add(1) & 0x7fff_ffff;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        let data = EventData::new_u64(token(slot, self.serial));
        if epoll::add(&self.epoll, &socket, data, EventFlags::IN | EventFlags::RDHUP | EventFlags::ET).is_err() {
            // The limit of watches; the client sees its connection closed.
            self.shared.counts.accept_failures.fetch_add(1, Relaxed);
            self.free.push(slot);
            return;
        }
        self.slots[slot as usize] = Some(Box::new(Slot {
            socket,
            line: Line::new(self.shared.session(host, now_us)),
            serial: self.serial,
            readable: false,
            hung_up: false,
            watches_writing: false,
            storing: false,
            lingers: false,
            timer_us: 0,
        }));
        self.go_on(slot, now_us);
    }

    fn pause_accepting(&mut self, now_us: u64) {
        if self.accepting {
            self.accepting = false;
            for listener in self.listeners.iter() {
                // It was added; if it cannot be taken out, it is only told of too often.
                let _ = epoll::delete(&self.epoll, listener);
            }
            self.timers.push(Reverse((now_us + ACCEPT_PAUSE_US, ACCEPT_AGAIN)));
        }
    }

    fn slot(&mut self, data: u64) -> Option<(u32, &mut Slot)> {
        let number = data as u32;
        let slot = self.slots.get_mut(number as usize)?.as_deref_mut()?;
        (slot.serial == (data >> 32) as u32).then_some((number, slot))
    }

    fn serve(&mut self, data: u64, flags: EventFlags, now_us: u64) {
        let Some((number, slot)) = self.slot(data) else { return };
        let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        slot.readable |= flags.intersects(EventFlags::IN | ends);
        slot.hung_up |= flags.intersects(ends);
        if flags.contains(EventFlags::OUT) && slot.watches_writing {
            self.go_on(number, now_us);
        } else {
            self.read_on(number, now_us);
        }
    }

    fn take_mail(&mut self, now_us: u64) {
        let mut count = [0; 8];
        // Reads the counter to zero; that it was zero already is as good.
        let _ = rustix::io::read(&self.mail.wake, &mut count);
        let all = std::mem::take(&mut *self.mail.stored.lock());
        for (data, stored) in all {
            let Some((number, slot)) = self.slot(data) else { continue };
            slot.storing = false;
            slot.line.stored(stored, now_us);
            self.go_on(number, now_us);
        }
    }

    fn fire(&mut self, now_us: u64) {
        while let Some(Reverse((due_us, (number, serial)))) = self.timers.peek().copied() {
            if due_us > now_us {
                return;
            }
            self.timers.pop();
            if (number, serial) == ACCEPT_AGAIN {
                if self.watch_listeners().is_err() {
                    self.timers.push(Reverse((now_us + ACCEPT_PAUSE_US, ACCEPT_AGAIN)));
                }
                continue;
            }
            let Some((number, slot)) = self.slot(token(number, serial)) else { continue };
            if slot.timer_us == due_us {
                slot.timer_us = 0;
                if slot.lingers {
                    self.close(number);
                } else {
                    self.go_on(number, now_us);
                }
            }
        }
    }

    /// Does what the line wants, then reads what there is.
    fn go_on(&mut self, number: u32, now_us: u64) {
        if self.turn(number, now_us) {
            self.read_on(number, now_us);
        }
    }

    /// Reads until there is nothing more, or until what was read must be dealt with first.
    fn read_on(&mut self, number: u32, now_us: u64) {
        loop {
            let Some(slot) = self.slots[number as usize].as_deref_mut() else { return };
            if !slot.readable || slot.storing || slot.watches_writing {
                return;
            }
            let held = if slot.lingers { 0 } else { slot.line.held() };
            match recv(&slot.socket, &mut self.buffer[held..held + READ_BYTES], RecvFlags::empty()) {
                Err(Errno::AGAIN) => slot.readable = false,
                Err(Errno::INTR) => {}
                Err(_) => return self.close(number),
                Ok((_, 0)) if slot.lingers => return self.close(number),
                Ok(_) if slot.lingers => {}
                Ok((_, count)) => {
                    // Less than was asked for: all that there is, unless the end is behind it.
                    slot.readable = count == READ_BYTES || slot.hung_up && count > 0;
                    slot.line.input(&mut self.buffer, count, now_us);
                    if !self.turn(number, now_us) {
                        return;
                    }
                }
            }
        }
    }

    /// False if the connection is gone.
    fn turn(&mut self, number: u32, now_us: u64) -> bool {
        let Some(slot) = self.slots[number as usize].as_deref_mut() else { return false };
        let socket = &slot.socket;
        let write = |bytes: &[u8]| send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map_err(Into::into);
        let turn = match slot.line.turn(now_us, write) {
            Ok(turn) => turn,
            Err(_) => Turn::Close,
        };
        let watches = turn == Turn::Writable;
        if watches != slot.watches_writing {
            slot.watches_writing = watches;
            let both = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            let flags = if watches { both | EventFlags::OUT } else { both };
            // It is in the set; told anew of what holds already, so nothing is missed.
            let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(token(number, slot.serial)), flags);
        }
        match turn {
            Turn::Read | Turn::Writable => {}
            Turn::ReadUntil(due_us) | Turn::Wait(due_us) => self.set_timer(number, due_us),
            Turn::Store => self.store(number),
            Turn::Linger | Turn::HalfClose => {
                slot.lingers = true;
                slot.readable = true;
                if shutdown(socket, Shutdown::Write).is_err() {
                    self.close(number);
                    return false;
                }
                if turn == Turn::Linger {
                    self.set_timer(number, now_us + LINGER.as_micros() as u64);
                }
            }
            // Sinks of this kind speak no TLS.
            Turn::Close | Turn::Secure(_) => {
                self.close(number);
                return false;
            }
            Turn::Reset => {
                reset(socket);
                self.close(number);
                return false;
            }
        }
        true
    }

    fn set_timer(&mut self, number: u32, due_us: u64) {
        let Some(slot) = self.slots[number as usize].as_deref_mut() else { return };
        if slot.timer_us == 0 || due_us < slot.timer_us || slot.lingers {
            slot.timer_us = due_us;
            self.timers.push(Reverse((due_us, (number, slot.serial))));
        }
    }

    fn store(&mut self, number: u32) {
        let Some(slot) = self.slots[number as usize].as_deref_mut() else { return };
        slot.storing = true;
        let job = slot.line.session.take_job();
        let data = token(number, slot.serial);
        let mail = Arc::clone(&self.mail);
        let done: Done = Box::new(move |stored| mail.send(data, stored));
        match (&self.writers, &self.shared.store) {
            (Some(writers), _) => writers.put(job, done),
            (None, Some(store)) => store.put(job, done),
            // A session stores only where there is a store.
            (None, None) => self.close(number),
        }
    }

    /// Closing takes the socket out of the set.
    fn close(&mut self, number: u32) {
        if self.slots[number as usize].take().is_some() {
            self.free.push(number);
        }
    }
}

fn reset(socket: &OwnedFd) {
    // Failing that, it is closed all the same.
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
