//! The models with blocking threads: a bounded pool, and one thread per connection.
//!
//! One thread per address accepts. The pool's threads take connections from a queue: while all are busy, new ones wait
//! there, accepted but without a greeting. The other model starts a thread for each; if that fails, the client gets
//! 421, and the reason is kept. A thread started without a free mapping for its stack's guard kills the process (Rust's
//! runtime has no other answer), so their number is kept below `vm.max_map_count`.
//!
//! Stop: listeners and connections are shut down, which wakes all blocked threads, and all threads are joined.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};

use super::super::line::{Line, Turn};
use super::super::session::COMMAND_BYTES_MAX;
use super::{ACCEPT_PAUSE_US, LINGER, Model, Shared, SinkOptions};
use crate::behaviour::Connect;

/// Smaller than the event loop's, since each thread has one.
const READ_BYTES: usize = 16 << 10;

const MAP_LIMIT: &str = "/proc/sys/vm/max_map_count";
const MAP_LIMIT_DEFAULT: usize = 65_530;
/// Mappings of a thread: its stack, the one that overflows of it are handled on, and a guard page each.
const MAPS_PER_THREAD: usize = 4;
/// Of the rest of the process, heaps of threads included.
const MAPS_SPARE: usize = 2048;

/// A connection for a worker: its socket, its host's number, its number in [`Open`].
type WaitingConnection = (Arc<OwnedFd>, usize, u64);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<WaitingConnection>,
    over: bool,
}

/// Connections that must be woken up at the end, and how many threads serve one each.
#[derive(Default)]
struct Open {
    sockets: HashMap<u64, Arc<OwnedFd>>,
    next: u64,
    threads: usize,
}

struct Common {
    shared: Arc<Shared>,
    queue: Mutex<Queue>,
    came: Condvar,
    open: Mutex<Open>,
    ended: Condvar,
    stack_bytes: usize,
    /// More threads than that are not started.
    threads_max: usize,
    map_limit: usize,
}

pub(super) struct Threads {
    common: Arc<Common>,
    listeners: Vec<Arc<TcpListener>>,
    acceptors: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
}

impl Threads {
    pub fn start(shared: &Arc<Shared>, listeners: Vec<TcpListener>, options: &SinkOptions) -> io::Result<Threads> {
        let limit = std::fs::read_to_string(MAP_LIMIT).ok().and_then(|text| text.trim().parse().ok());
        let map_limit: usize = limit.unwrap_or(MAP_LIMIT_DEFAULT);
        let common = Arc::new(Common {
            shared: Arc::clone(shared),
            queue: Mutex::default(),
            came: Condvar::new(),
            open: Mutex::default(),
            ended: Condvar::new(),
            stack_bytes: options.stack_bytes,
            threads_max: map_limit.saturating_sub(MAPS_SPARE) / MAPS_PER_THREAD,
            map_limit,
        });
        let mut threads = Threads { common, listeners: Vec::new(), acceptors: Vec::new(), workers: Vec::new() };
        if options.model == Model::Pool {
            for _ in 0..options.threads.max(1) {
                let own = Arc::clone(&threads.common);
                let builder = Builder::new().name("worker".to_owned()).stack_size(options.stack_bytes);
                threads.workers.push(builder.spawn(move || own.work())?);
            }
        }
        let model = options.model;
        for (host, listener) in listeners.into_iter().enumerate() {
            let listener = Arc::new(listener);
            let (own, common) = (Arc::clone(&listener), Arc::clone(&threads.common));
            threads.listeners.push(listener);
            let builder = Builder::new().name("acceptor".to_owned());
            threads.acceptors.push(builder.spawn(move || common.accept(&own, host, model))?);
        }
        Ok(threads)
    }

    pub fn end(&mut self) {
        for listener in &self.listeners {
            // Linux wakes up accept so, with EINVAL.
            let _ = shutdown(listener, Shutdown::Both);
        }
        for thread in self.acceptors.drain(..) {
            // A panic has been reported already; so below.
            let _ = thread.join();
        }
        self.common.queue.lock().over = true;
        self.common.came.notify_all();
        let mut open = self.common.open.lock();
        for socket in open.sockets.values() {
            // The client may have gone.
            let _ = shutdown(socket, Shutdown::Both);
        }
        while open.threads > 0 {
            self.common.ended.wait(&mut open);
        }
        drop(open);
        for thread in self.workers.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Common {
    fn accept(self: &Arc<Self>, listener: &TcpListener, host: usize, model: Model) {
        loop {
            if self.open.lock().sockets.len() as u64 >= self.shared.connections_max && !self.shared.is_over() {
                std::thread::sleep(Duration::from_micros(ACCEPT_PAUSE_US));
                continue;
            }
            let socket = match accept_with(listener, SocketFlags::CLOEXEC) {
                _ if self.shared.is_over() => return,
                Ok(socket) => Arc::new(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // Another process that serves the same sockets has ended, and so will this one.
                Err(Errno::INVAL) => return,
                Err(_) => {
                    self.shared.counts.accept_failures.fetch_add(1, Relaxed);
                    std::thread::sleep(Duration::from_micros(ACCEPT_PAUSE_US));
                    continue;
                }
            };
            if self.shared.connect == Connect::Reset {
                self.shared.recorder.counters.connections.fetch_add(1, Relaxed);
                reset(&socket);
                continue;
            }
            let mut open = self.open.lock();
            open.next += 1;
            let number = open.next;
            open.sockets.insert(number, Arc::clone(&socket));
            drop(open);
            if model == Model::Pool {
                self.hand_over((socket, host, number));
            } else {
                self.spawn(&socket, host, number);
            }
        }
    }

    fn hand_over(&self, connection: WaitingConnection) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(connection);
        let waiting = queue.waiting.len() as u64;
        drop(queue);
        let counts = &self.shared.counts;
        counts.waiting.store(waiting, Relaxed);
        counts.waiting_max.fetch_max(waiting, Relaxed);
        self.came.notify_one();
    }

    fn spawn(self: &Arc<Self>, socket: &Arc<OwnedFd>, host: usize, number: u64) {
        let mut open = self.open.lock();
        if open.threads >= self.threads_max {
            drop(open);
            let (limit, most) = (self.map_limit, self.threads_max);
            return self.refuse(socket, number, &format!("vm.max_map_count of {limit} has room for {most} threads"));
        }
        open.threads += 1;
        drop(open);
        let (common, own) = (Arc::clone(self), Arc::clone(socket));
        let builder = Builder::new().name("session".to_owned()).stack_size(self.stack_bytes);
        let spawned = builder.spawn(move || {
            common.serve(&own, host);
            common.forget(number);
            // Closed before the end is told.
            drop(own);
            common.thread_ends();
        });
        if let Err(error) = spawned {
            self.thread_ends();
            self.refuse(socket, number, &error.to_string());
        }
    }

    /// The connection is closed by its last owner, whether the client hears of it or not.
    fn refuse(&self, socket: &OwnedFd, number: u64, why: &str) {
        let counts = &self.shared.counts;
        counts.threads_refused.fetch_add(1, Relaxed);
        counts.thread_refusal.lock().get_or_insert_with(|| why.to_owned());
        let _ = send(socket, b"421 4.3.2 no thread for you\r\n", SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        self.forget(number);
    }

    fn forget(&self, number: u64) {
        self.open.lock().sockets.remove(&number);
    }

    fn thread_ends(&self) {
        let mut open = self.open.lock();
        open.threads -= 1;
        if open.threads == 0 {
            self.ended.notify_all();
        }
    }

    fn work(&self) {
        loop {
            let mut queue = self.queue.lock();
            let (socket, host, number) = loop {
                if queue.over {
                    return;
                }
                match queue.waiting.pop_front() {
                    Some(next) => break next,
                    None => self.came.wait(&mut queue),
                }
            };
            self.shared.counts.waiting.store(queue.waiting.len() as u64, Relaxed);
            drop(queue);
            self.serve(&socket, host);
            self.forget(number);
        }
    }

    fn serve(&self, socket: &OwnedFd, host: usize) {
        let mut buffer = vec![0; READ_BYTES + COMMAND_BYTES_MAX + 2];
        let now_us = self.shared.recorder.now_us();
        let mut line = Line::new(self.shared.session(host, now_us));
        // An error means that the client is gone; what it has not read is counted by the session.
        let _ = self.converse(socket, &mut line, &mut buffer);
    }

    fn converse(&self, socket: &OwnedFd, line: &mut Line, buffer: &mut [u8]) -> io::Result<()> {
        let recorder = &self.shared.recorder;
        while !self.shared.is_over() {
            let now_us = recorder.now_us();
            match line.turn(now_us, |bytes| Ok(send(socket, bytes, SendFlags::NOSIGNAL)?))? {
                Turn::Read => read(socket, line, buffer, recorder.now_us())?,
                Turn::ReadUntil(due_us) => {
                    if wait(socket, PollFlags::IN, due_us - now_us)? {
                        read(socket, line, buffer, recorder.now_us())?;
                    }
                }
                Turn::Wait(due_us) => {
                    if wait(socket, PollFlags::empty(), due_us - now_us)? {
                        return Ok(());
                    }
                }
                Turn::Writable => drop(wait(socket, PollFlags::OUT, u64::MAX)?),
                Turn::Store => {
                    let Some(store) = &self.shared.store else { return Ok(()) };
                    let stored = store.put_and_wait(line.session.take_job());
                    line.stored(stored, recorder.now_us());
                }
                // Sinks of this kind speak no TLS.
                Turn::Close | Turn::Secure(_) => return Ok(()),
                Turn::Reset => {
                    reset(socket);
                    return Ok(());
                }
                Turn::HalfClose => {
                    shutdown(socket, Shutdown::Write)?;
                    while !self.shared.is_over() && recv(socket, &mut *buffer, RecvFlags::empty())?.1 > 0 {}
                    return Ok(());
                }
                Turn::Linger => {
                    shutdown(socket, Shutdown::Write)?;
                    return drain(socket, buffer);
                }
            }
        }
        Ok(())
    }
}

fn read(socket: &OwnedFd, line: &mut Line, buffer: &mut [u8], now_us: u64) -> io::Result<()> {
    let held = line.held();
    loop {
        match recv(socket, &mut buffer[held..held + READ_BYTES], RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok((_, count)) => {
                line.input(buffer, count, now_us);
                return Ok(());
            }
        }
    }
}

/// Throws away what comes, until the client closes or its time is up.
fn drain(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<()> {
    let end = Instant::now() + LINGER;
    loop {
        let left_us = end.saturating_duration_since(Instant::now()).as_micros() as u64;
        if left_us == 0
            || !wait(socket, PollFlags::IN, left_us)?
            || recv(socket, &mut *buffer, RecvFlags::empty())?.1 == 0
        {
            return Ok(());
        }
    }
}

/// Whether something has come of it; also that the connection is gone.
fn wait(socket: &OwnedFd, what: PollFlags, most_us: u64) -> io::Result<bool> {
    let most = Duration::from_micros(most_us.min(u64::from(u32::MAX) * 1000));
    let most = Timespec::try_from(most).ok();
    match poll(&mut [PollFd::new(socket, what)], most.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn reset(socket: &OwnedFd) {
    // Failing that, it is closed all the same.
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
