//! One thread of a source: an epoll, its connections, its share of the schedule.
//!
//! Sockets are registered once, edge-triggered; a reply costs one wait (shared by all ready sockets), one read and one
//! write. Replies are read into one buffer for all connections; a connection keeps only a partial line.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};
use rustls::ClientConfig;
use socket2::{Domain, Protocol, Socket, Type};

use super::arrivals::Schedule;
use super::client::{Client, Context, Feed, Job, Turn};
use super::shared::Shared;
use super::tally::{FailureKind, Step, Tally};
use super::wire::{self, Tls, Wire};

const READ_BYTES: usize = 64 << 10;
/// A longer reply ends the session.
const REPLY_BYTES_MAX: usize = 64 << 10;
const EVENTS: usize = 256;
/// How often time-outs and the stop are looked at.
const SWEEP_NS: u64 = 100_000_000;
/// After a connection that could not be made, its slot waits this long.
const PAUSE_NS: u64 = 20_000_000;
/// QUIT at the end of a run waits this long for its reply.
const QUIT_NS: u64 = 2_000_000_000;
const TIMED_OUT: &str = "timed out";
const IN: epoll::EventFlags = epoll::EventFlags::IN;
const OUT: epoll::EventFlags = epoll::EventFlags::OUT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Connecting,
    /// A reply is waited for.
    Busy,
    /// Between messages.
    Idle,
    /// Free, until the pause is over.
    Paused,
}

struct Slot {
    state: State,
    stream: Option<Wire>,
    client: Client,
    /// A line that has not come whole.
    partial: Vec<u8>,
    /// Of a reply whose last line has not come.
    reply_bytes: usize,
    /// Of the connection; an event of an earlier one is stale.
    generation: u32,
    since_ns: u64,
    deadline_ns: u64,
}

/// The messages of this worker.
struct Source<'a> {
    shared: &'a Shared<'a>,
    schedule: Option<Schedule>,
    end_ns: u64,
    drain_end_ns: u64,
    exhausted: bool,
}

pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    number: usize,
    epoll: rustix::fd::OwnedFd,
    slots: Vec<Slot>,
    free: Vec<usize>,
    idle: Vec<usize>,
    paused: usize,
    source: Source<'a>,
    tally: Tally,
    buffer: Vec<u8>,
    tls: Option<Arc<ClientConfig>>,
    next_sweep_ns: u64,
    sessions: usize,
}

impl Feed for Source<'_> {
    fn next(&mut self, now_ns: u64, tally: &mut Tally) -> Option<Job> {
        if self.exhausted {
            return None;
        }
        let intended_ns = match &mut self.schedule {
            None if now_ns >= self.end_ns => {
                self.exhausted = true;
                return None;
            }
            None => None,
            Some(schedule) => {
                if schedule.next().is_none() || now_ns >= self.drain_end_ns {
                    self.exhausted = true;
                    return None;
                }
                Some(schedule.take(now_ns)?)
            }
        };
        let number = self.shared.next.fetch_add(1, Relaxed);
        if number >= self.shared.plan.messages {
            self.exhausted = true;
            return None;
        }
        tally.begun(intended_ns, now_ns);
        Some(Job { number, intended_ns, begun_ns: now_ns })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<'a> Worker<'a> {
    pub fn new(shared: &'a Shared<'a>, number: usize) -> std::io::Result<Worker<'a>> {
        let (plan, threads) = (shared.plan, shared.threads);
        let connections = plan.connections / threads + usize::from(number < plan.connections % threads);
        let slot = |_| Slot {
            state: State::Free,
            stream: None,
            client: Client::default(),
            partial: Vec::new(),
            reply_bytes: 0,
            generation: 0,
            since_ns: 0,
            deadline_ns: u64::MAX,
        };
        let end_ns = plan.duration.map_or(u64::MAX, nanos);
        let source = Source {
            shared,
            schedule: plan.arrivals.schedule(plan.seed, number, threads, plan.duration),
            end_ns,
            drain_end_ns: end_ns.saturating_add(nanos(plan.drain)),
            exhausted: false,
        };
        Ok(Worker {
            shared,
            number,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            slots: (0..connections).map(slot).collect(),
            free: (0..connections).rev().collect(),
            idle: Vec::new(),
            paused: 0,
            source,
            tally: Tally { warm_up_ns: nanos(plan.warm_up), ..Tally::default() },
            buffer: vec![0; READ_BYTES],
            tls: if plan.tls == Tls::Off { None } else { Some(wire::config(plan.tls_resumes)?) },
            next_sweep_ns: SWEEP_NS,
            sessions: number,
        })
    }

    /// To the end of the work, or until it is stopped.
    pub fn run(mut self) -> std::io::Result<Tally> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut now_ns = self.shared.now_ns();
        loop {
            self.give_work(now_ns);
            if now_ns >= self.next_sweep_ns {
                self.sweep(now_ns);
            }
            if self.shared.stop.is_set() || (self.source.exhausted && self.is_quiet()) {
                break;
            }
            let timeout = Duration::from_nanos(self.wake_ns(now_ns).saturating_sub(now_ns));
            let timeout =
                Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: i64::from(timeout.subsec_nanos()) };
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let data = event.data.u64();
                let (at, generation) = ((data & 0xffff_ffff) as usize, (data >> 32) as u32);
                if self.slots[at].generation == generation && self.slots[at].stream.is_some() {
                    self.handle(at, event.flags);
                }
            }
            now_ns = self.shared.now_ns();
        }
        self.end(now_ns);
        Ok(self.tally)
    }

    fn is_quiet(&self) -> bool {
        self.free.len() + self.paused == self.slots.len()
    }

    fn wake_ns(&self, now_ns: u64) -> u64 {
        let can_begin = !self.idle.is_empty() || !self.free.is_empty();
        let next = self.source.schedule.as_ref().filter(|_| can_begin && !self.source.exhausted);
        let arrival = next.and_then(Schedule::next).unwrap_or(u64::MAX);
        let pause = if self.paused > 0 { now_ns + PAUSE_NS } else { u64::MAX };
        self.next_sweep_ns.min(arrival).min(pause)
    }

    /// Gives messages to idle sessions, then to new ones.
    fn give_work(&mut self, now_ns: u64) {
        if self.paused > 0 {
            self.end_pauses(now_ns);
        }
        while !self.source.exhausted && (!self.idle.is_empty() || !self.free.is_empty()) {
            let Some(job) = self.source.next(now_ns, &mut self.tally) else { break };
            if let Some(at) = self.idle.pop() {
                let slot = &mut self.slots[at];
                slot.state = State::Busy;
                slot.client.begin(self.shared.plan, job, now_ns);
                self.flush(at, now_ns);
            } else if let Some(at) = self.free.pop() {
                self.open(at, job, now_ns);
            }
        }
        if self.source.exhausted {
            for at in std::mem::take(&mut self.idle) {
                self.quit(at, now_ns);
            }
        }
    }

    fn end_pauses(&mut self, now_ns: u64) {
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            if slot.state == State::Paused && slot.deadline_ns <= now_ns {
                slot.state = State::Free;
                slot.deadline_ns = u64::MAX;
                self.paused -= 1;
                self.free.push(at);
            }
        }
    }

    fn open(&mut self, at: usize, job: Job, now_ns: u64) {
        let (plan, threads) = (self.shared.plan, self.shared.threads);
        let target = plan.targets[self.sessions % plan.targets.len()];
        let bind = plan.binds.get((at * threads + self.number) % plan.binds.len().max(1)).copied();
        self.sessions += threads;
        self.tally.sessions += 1;
        let slot = &mut self.slots[at];
        slot.generation = slot.generation.wrapping_add(1);
        slot.client.reset(Some(job));
        slot.partial.clear();
        slot.reply_bytes = 0;
        slot.state = State::Connecting;
        slot.since_ns = now_ns;
        slot.deadline_ns = now_ns.saturating_add(nanos(plan.timeout));
        let data = epoll::EventData::new_u64(u64::from(slot.generation) << 32 | at as u64);
        let flags = IN | OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let opened = connect(target, bind).and_then(|stream| {
            epoll::add(&self.epoll, &stream, data, flags)?;
            Ok(stream)
        });
        match opened {
            Ok(stream) => slot.stream = Some(Wire::Clear(stream)),
            Err(error) => self.lose(at, error.kind().to_string().as_str(), now_ns),
        }
    }

    fn handle(&mut self, at: usize, flags: epoll::EventFlags) {
        let now_ns = self.shared.now_ns();
        let gone = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        let slot = &mut self.slots[at];
        if slot.state == State::Connecting {
            let error = if gone {
                slot.stream.as_ref().and_then(|wire| wire.stream().take_error().ok().flatten())
            } else {
                None
            };
            if let Some(error) = error {
                return self.lose(at, error.kind().to_string().as_str(), now_ns);
            }
            slot.state = State::Busy;
            slot.client.connected(self.shared.plan, now_ns);
            self.tally.step(Step::Connect, slot.since_ns, now_ns);
            if self.shared.plan.tls == Tls::Implicit {
                self.secure(at, now_ns);
            }
        }
        if flags.contains(OUT) {
            self.more(at, now_ns);
        }
        if flags.contains(IN) || gone {
            self.read(at, gone, now_ns);
        }
    }

    /// Reads what there is. With `gone` until the end of the stream, else once unless the buffer was filled.
    fn read(&mut self, at: usize, gone: bool, now_ns: u64) {
        loop {
            let slot = &mut self.slots[at];
            let Some(wire) = &mut slot.stream else { return };
            let (came, is_clear) = (wire.read(&mut self.buffer), wire.is_clear());
            if wire.take_secured() {
                slot.client.secured(&mut self.tally, now_ns);
                self.flush(at, now_ns);
            }
            match came {
                Ok(0) => return self.lose(at, "closed", now_ns),
                Ok(length) => {
                    let turn = self.lines(at, length, now_ns);
                    self.act(at, turn, now_ns);
                    if is_clear && length < self.buffer.len() && !gone {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return self.lose(at, &error.to_string(), now_ns);
                }
                Err(error) => return self.lose(at, error.kind().to_string().as_str(), now_ns),
            }
        }
    }

    /// Handles the replies in the buffer.
    fn lines(&mut self, at: usize, length: usize, now_ns: u64) -> Turn {
        let Worker { slots, buffer, tally, source, shared, .. } = self;
        let Slot { client, partial, reply_bytes, deadline_ns, .. } = &mut slots[at];
        let is_joined = !partial.is_empty();
        if is_joined {
            partial.extend_from_slice(&buffer[..length]);
        }
        let joined = std::mem::take(partial);
        let mut rest: &[u8] = if is_joined { &joined } else { &buffer[..length] };
        let mut turn = Turn::Wait;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if client.waits_for() == Some(Step::Ehlo) {
                client.offer(shared.plan, line);
            }
            *reply_bytes += line.len() + 1;
            if line.get(3) == Some(&b'-') && *reply_bytes <= REPLY_BYTES_MAX {
                continue;
            }
            if *reply_bytes > REPLY_BYTES_MAX {
                return too_long(client, tally);
            }
            *reply_bytes = 0;
            // The next reply has its own time, however many are waited for.
            *deadline_ns = now_ns.saturating_add(shared.timeout_ns);
            let code = code_of(line);
            let mut context = Context { plan: shared.plan, tally, feed: source, now_ns };
            turn = if let Some(code) = code {
                client.reply(code, line, &mut context)
            } else {
                let step = client.waits_for().unwrap_or(Step::Rset);
                context.tally.error(step, FailureKind::Connection("no reply code".to_owned()), line);
                Turn::Close
            };
            if turn == Turn::Secure && !rest.is_empty() {
                context.tally.error(
                    Step::Starttls,
                    FailureKind::Connection("unencrypted octets after it".to_owned()),
                    rest,
                );
                turn = Turn::Close;
            }
            if matches!(turn, Turn::Close | Turn::Secure) {
                return turn;
            }
        }
        if rest.len() > REPLY_BYTES_MAX {
            return too_long(client, tally);
        }
        let rest = rest.to_vec();
        *partial = rest;
        turn
    }

    fn act(&mut self, at: usize, turn: Turn, now_ns: u64) {
        match turn {
            Turn::Wait => self.flush(at, now_ns),
            Turn::Secure => self.secure(at, now_ns),
            Turn::Ready => self.go_on(at, now_ns),
            Turn::Close => self.close(at, false, now_ns),
        }
    }

    /// Begins the handshake.
    fn secure(&mut self, at: usize, now_ns: u64) {
        let slot = &mut self.slots[at];
        let (Some(wire), Some(config)) = (slot.stream.take(), &self.tls) else { return };
        let host = wire.stream().peer_addr().map(|peer| peer.ip());
        match host.and_then(|host| wire.secure(config, host)) {
            Ok(wire) => slot.stream = Some(wire),
            Err(error) => self.lose(at, &error.to_string(), now_ns),
        }
    }

    /// The socket takes octets again.
    fn more(&mut self, at: usize, now_ns: u64) {
        let slot = &mut self.slots[at];
        if let Some(Err(error)) = slot.stream.as_mut().map(Wire::push) {
            return self.lose(at, error.kind().to_string().as_str(), now_ns);
        }
        if !slot.client.out.is_empty() {
            self.flush(at, now_ns);
        }
    }

    /// The session is between messages.
    fn go_on(&mut self, at: usize, now_ns: u64) {
        let plan = self.shared.plan;
        if !self.slots[at].client.may_go_on(plan) {
            return self.quit(at, now_ns);
        }
        let slot = &mut self.slots[at];
        if let Some(job) = self.source.next(now_ns, &mut self.tally) {
            slot.client.begin(plan, job, now_ns);
            self.flush(at, now_ns);
        } else if self.source.exhausted {
            self.quit(at, now_ns);
        } else {
            slot.state = State::Idle;
            slot.deadline_ns = u64::MAX;
            self.idle.push(at);
        }
    }

    fn quit(&mut self, at: usize, now_ns: u64) {
        let slot = &mut self.slots[at];
        slot.state = State::Busy;
        slot.client.quit(now_ns);
        self.flush(at, now_ns);
        if self.source.exhausted {
            let slot = &mut self.slots[at];
            slot.deadline_ns = slot.deadline_ns.min(now_ns + QUIT_NS);
        }
    }

    fn flush(&mut self, at: usize, now_ns: u64) {
        let plan = self.shared.plan;
        let slot = &mut self.slots[at];
        if slot.client.out.is_empty() {
            // What is waited for already keeps its deadline, whatever comes in the meantime.
            return;
        }
        slot.deadline_ns = now_ns.saturating_add(self.shared.timeout_ns);
        let Some(wire) = &mut slot.stream else { return };
        let mut writes = 0;
        while !slot.client.out.is_empty() {
            let slices = slot.client.out.slices(plan);
            match wire.write(&slices) {
                Ok(octets) => {
                    writes += 1;
                    slot.client.out.advance(octets, plan);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What the server said before it closed is still to be read.
                Err(_) => {
                    slot.client.out.clear();
                    return;
                }
            }
        }
        if writes > 1 {
            slot.client.written_late(self.shared.now_ns());
        }
    }

    /// The connection has failed: counted under what was waited for, and all its messages fail.
    fn lose(&mut self, at: usize, what: &str, now_ns: u64) {
        let slot = &mut self.slots[at];
        let could_not_connect = slot.state == State::Connecting;
        if slot.state == State::Idle {
            // Between messages a server may close.
            self.idle.retain(|idle| *idle != at);
        } else {
            let step = if could_not_connect { Step::Connect } else { slot.client.waits_for().unwrap_or(Step::Rset) };
            if step != Step::Quit {
                self.tally.error(step, FailureKind::Connection(what.to_owned()), b"");
            }
        }
        self.close(at, could_not_connect, now_ns);
    }

    fn close(&mut self, at: usize, pause: bool, now_ns: u64) {
        let slot = &mut self.slots[at];
        for _ in 0..slot.client.open_messages() {
            self.tally.failed(now_ns);
        }
        slot.stream = None;
        slot.client.reset(None);
        slot.partial.clear();
        if pause {
            slot.state = State::Paused;
            slot.deadline_ns = now_ns + PAUSE_NS;
            self.paused += 1;
        } else {
            slot.state = State::Free;
            slot.deadline_ns = u64::MAX;
            self.free.push(at);
        }
    }

    /// Time-outs, and what others look at.
    fn sweep(&mut self, now_ns: u64) {
        self.next_sweep_ns = now_ns + SWEEP_NS;
        for at in 0..self.slots.len() {
            let slot = &self.slots[at];
            if slot.deadline_ns <= now_ns && slot.state != State::Paused {
                self.lose(at, TIMED_OUT, now_ns);
            }
        }
        let backlog = self.source.schedule.as_mut().map_or(0, |schedule| schedule.backlog(now_ns));
        self.tally.second(now_ns).backlog = backlog;
        let watch = self.shared.watch;
        watch.backlog.store(backlog, Relaxed);
        let done = self.tally.accepted + self.tally.failed;
        watch.done.fetch_add(done - watch_before(&mut self.tally.reported, done), Relaxed);
    }

    /// The rest is accounted for.
    fn end(&mut self, now_ns: u64) {
        self.sweep(now_ns);
        for slot in &self.slots {
            self.tally.unfinished += slot.client.open_messages();
        }
        if let Some(schedule) = &mut self.source.schedule {
            let left = schedule.backlog(now_ns);
            let most = self.shared.plan.messages;
            self.tally.due = schedule.arrived().min(most);
            self.tally.never_begun = if self.shared.next.load(Relaxed) >= most { 0 } else { left };
            for _ in 0..self.tally.never_begun {
                let Some(intended_ns) = schedule.take(now_ns) else { break };
                self.tally.never(intended_ns, now_ns);
            }
        }
        let used = clock_gettime(ClockId::ThreadCPUTime);
        self.tally.cpu_s = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
    }
}

fn too_long(client: &Client, tally: &mut Tally) -> Turn {
    let step = client.waits_for().unwrap_or(Step::Rset);
    tally.error(step, FailureKind::Connection("reply too long".to_owned()), b"");
    Turn::Close
}

fn watch_before(reported: &mut u64, done: u64) -> u64 {
    std::mem::replace(reported, done)
}

/// The first three octets as a number.
fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3)?;
    digits.iter().try_fold(0, |code, byte| byte.is_ascii_digit().then(|| code * 10 + u16::from(byte - b'0')))
}

/// Begins to connect.
fn connect(target: SocketAddr, bind: Option<IpAddr>) -> std::io::Result<TcpStream> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(target), kind, Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if let Some(bind) = bind {
        socket.bind(&SocketAddr::new(bind, 0).into())?;
    }
    match socket.connect(&target.into()) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(error),
        _ => Ok(socket.into()),
    }
}
