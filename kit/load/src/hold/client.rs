//! The connections of `stentor-kit lab hold` in one process.
//!
//! States of a connection: connecting → greeting → idle → (EHLO once) → envelope → data → idle; or gone, with the
//! reason counted.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::{Domain, Protocol, Socket, Type};
use stentor_measure::{Histogram, Stop};

use super::Work;
use super::ways::Ways;

const EVENTS: usize = 512;
const READ_BYTES: usize = 4096;
/// Waits for events are not longer, so that Ctrl-C is seen.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A phase ends if nothing at all happens for so long.
const PATIENCE: Duration = Duration::from_secs(30);
const BODY_LINE: &[u8] = b"0123456789012345678901234567890123456789012345678901234567890123456789\r\n";
/// Where in the body the message's number is.
const ID_DIGITS: std::ops::Range<usize> = 13..23;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Connecting,
    Greeting,
    Idle,
    Ehlo,
    /// MAIL, RCPT and DATA are sent; so many replies are still to come.
    Envelope(u8),
    Body,
}

struct Held {
    socket: OwnedFd,
    state: State,
    extended: bool,
    /// An incomplete reply line: its length, and what it began with.
    line_len: usize,
    line: [u8; 4],
    begun: Instant,
}

/// What happens to a phase by one event.
enum Step {
    Nothing,
    Greeted,
    Sent,
}

pub(super) struct Client {
    epoll: OwnedFd,
    held: Vec<Option<Held>>,
    buffer: Vec<u8>,
    body: Vec<u8>,
    /// What went wrong, and how often.
    pub errors: BTreeMap<String, u64>,
    /// Messages that went with their connection.
    broken: u64,
    /// Connections that went before they were greeted.
    refused: u64,
    /// Of messages, from the first command to the last reply.
    pub times_us: Histogram,
}

impl Client {
    /// `first`: the number of its first message, so that no two processes send the same.
    pub fn new(size_bytes: usize, first: u64) -> io::Result<Client> {
        let mut body = format!("Message-ID: <{first:010}.hold@source.lab>\r\nSubject: held\r\n\r\n").into_bytes();
        while body.len() < size_bytes {
            body.extend_from_slice(BODY_LINE);
        }
        body.extend_from_slice(b".\r\n");
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Client {
            epoll,
            held: Vec::new(),
            buffer: vec![0; READ_BYTES],
            body,
            errors: BTreeMap::new(),
            broken: 0,
            refused: 0,
            times_us: Histogram::default(),
        })
    }

    fn connect(&mut self, from: Option<SocketAddr>, to: SocketAddr) -> io::Result<()> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(from) = from {
            // The same port may be used towards another target.
            socket.set_reuse_address(true)?;
            socket.bind(&from.into())?;
        }
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        let socket = OwnedFd::from(socket);
        let number = self.held.len() as u64;
        // Edge-triggered writing tells that it is connected, and nothing more as long as the server reads.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(number), flags)?;
        let begun = Instant::now();
        let held = Held { socket, state: State::Connecting, extended: false, line_len: 0, line: [0; 4], begun };
        self.held.push(Some(held));
        Ok(())
    }

    fn fail(&mut self, why: String) {
        *self.errors.entry(why).or_default() += 1;
    }

    fn lose(&mut self, number: usize, why: &str) {
        if let Some(held) = self.held[number].take() {
            let when = match held.state {
                State::Connecting => {
                    self.refused += 1;
                    "connecting"
                }
                State::Greeting => {
                    self.refused += 1;
                    "before the greeting"
                }
                State::Idle => "while idle",
                State::Ehlo | State::Envelope(_) | State::Body => {
                    self.broken += 1;
                    "while sending"
                }
            };
            self.fail(format!("{why}, {when}"));
        }
    }

    fn say(&mut self, number: usize, bytes: &[u8]) {
        let Some(held) = &self.held[number] else { return };
        match send(&held.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) if count == bytes.len() => {}
            // Some kilobytes into an empty buffer: a server that does not read is what this does not measure.
            Ok(_) => self.lose(number, "the server stopped reading"),
            Err(error) => self.lose(number, &io::Error::from(error).kind().to_string()),
        }
    }

    /// Begins a message over an idle connection; false if it is not idle.
    fn begin(&mut self, number: usize) -> bool {
        let Some(held) = self.held[number].as_mut().filter(|held| held.state == State::Idle) else { return false };
        held.begun = Instant::now();
        if held.extended {
            self.envelope(number);
        } else {
            held.state = State::Ehlo;
            self.say(number, b"EHLO source.lab\r\n");
        }
        true
    }

    fn envelope(&mut self, number: usize) {
        if let Some(held) = &mut self.held[number] {
            held.state = State::Envelope(3);
            self.say(number, b"MAIL FROM:<hold@source.lab>\r\nRCPT TO:<sink@sink.lab>\r\nDATA\r\n");
        }
    }

    /// Takes what there is; at most one [`Step`] comes of it, as nothing is pipelined beyond a reply that is waited
    /// for.
    fn serve(&mut self, number: usize, flags: EventFlags) -> Step {
        let Some(held) = &mut self.held[number] else { return Step::Nothing };
        if held.state == State::Connecting {
            if let Err(error) = rustix::net::sockopt::socket_error(&held.socket).unwrap_or_else(Err) {
                self.lose(number, &io::Error::from(error).kind().to_string());
                return Step::Nothing;
            }
            if !flags.contains(EventFlags::OUT) {
                return Step::Nothing;
            }
            held.state = State::Greeting;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let step = self.read(number, &mut buffer);
        self.buffer = buffer;
        step
    }

    fn read(&mut self, number: usize, buffer: &mut [u8]) -> Step {
        let mut step = Step::Nothing;
        loop {
            let Some(held) = &self.held[number] else { return step };
            match recv(&held.socket, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::AGAIN) => return step,
                Err(Errno::INTR) => {}
                Err(error) => self.lose(number, &io::Error::from(error).kind().to_string()),
                Ok((_, 0)) => self.lose(number, "closed by the server"),
                Ok((_, count)) => {
                    for &octet in &buffer[..count] {
                        match self.octet(number, octet) {
                            Step::Nothing => {}
                            some => step = some,
                        }
                    }
                }
            }
        }
    }

    /// One octet of the replies.
    fn octet(&mut self, number: usize, octet: u8) -> Step {
        let Some(held) = &mut self.held[number] else { return Step::Nothing };
        if octet != b'\n' {
            if let Some(place) = held.line.get_mut(held.line_len) {
                *place = octet;
            }
            held.line_len += 1;
            return Step::Nothing;
        }
        held.line_len = 0;
        if held.line[3] == b'-' {
            return Step::Nothing;
        }
        let code = held.line.first_chunk::<3>().copied().unwrap_or_default();
        self.reply(number, code)
    }

    fn reply(&mut self, number: usize, code: [u8; 3]) -> Step {
        let Some(held) = &mut self.held[number] else { return Step::Nothing };
        match (held.state, &code) {
            (State::Greeting, b"220") => {
                held.state = State::Idle;
                return Step::Greeted;
            }
            (State::Ehlo, b"250") => {
                held.extended = true;
                self.envelope(number);
            }
            (State::Envelope(left @ 2..), b"250") => held.state = State::Envelope(left - 1),
            (State::Envelope(1), b"354") => {
                held.state = State::Body;
                self.number_body();
                let body = std::mem::take(&mut self.body);
                self.say(number, &body);
                self.body = body;
            }
            (State::Body, b"250") => {
                held.state = State::Idle;
                self.times_us.add(held.begun.elapsed().as_micros() as u64);
                return Step::Sent;
            }
            _ => self.lose(number, &format!("answered {}", String::from_utf8_lossy(&code).escape_debug())),
        }
        Step::Nothing
    }

    /// Each message has a Message-ID of its own: the number in the body is counted up.
    fn number_body(&mut self) {
        for digit in self.body[ID_DIGITS].iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }

    /// With RST: an orderly end would leave each connection's port in `TIME_WAIT` for a minute, and the next run
    /// without.
    pub fn close_all(&mut self) {
        for held in self.held.drain(..).flatten() {
            // Failing that, it is closed all the same.
            let _ = socket2::SockRef::from(&held.socket).set_linger(Some(Duration::ZERO));
        }
    }

    pub fn open_now(&self) -> u64 {
        self.held.iter().flatten().filter(|held| !matches!(held.state, State::Connecting | State::Greeting)).count()
            as u64
    }

    /// Waits once and deals with what came.
    fn turn(&mut self, most: Duration, mut stepped: impl FnMut(Step)) -> io::Result<usize> {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS];
        let most = Timespec::try_from(most).ok();
        let count = match epoll::wait(&self.epoll, &mut events[..], most.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            let (flags, data) = (event.flags, event.data.u64());
            stepped(self.serve(data as usize, flags));
        }
        Ok(count)
    }

    /// Whoever is closed by the server meanwhile is counted.
    pub fn keep(&mut self, most: Duration) -> io::Result<()> {
        self.turn(most.min(LOOK_EVERY), |_| {})?;
        Ok(())
    }

    /// Opens all connections of the work, so many at a time; `look` hears how many are open. True if there was no port
    /// left before that.
    pub fn open_all(
        &mut self,
        work: &Work,
        ways: &mut Ways,
        stop: &Stop,
        look: &mut dyn FnMut(u64),
    ) -> io::Result<bool> {
        let (mut begun, mut greeted, mut lost, mut ran_out) = (0, 0_u64, 0, false);
        let mut last = Instant::now();
        while !stop.is_set() {
            while begun < work.connections && !ran_out && begun - greeted - lost < work.opening {
                let Some((from, to)) = ways.next() else {
                    ran_out = true;
                    break;
                };
                match self.connect(from, to) {
                    Ok(()) => begun += 1,
                    // Another program's port: the next one will do.
                    Err(error) if from.is_some() && error.kind() == io::ErrorKind::AddrInUse => {}
                    Err(error) => {
                        self.fail(format!("{error}, connecting"));
                        ran_out = error.kind() == io::ErrorKind::AddrNotAvailable;
                        if !ran_out {
                            begun += 1;
                            lost += 1;
                        }
                    }
                }
            }
            if greeted + lost >= begun && (begun >= work.connections || ran_out) {
                break;
            }
            let before = self.refused;
            let seen = self.turn(LOOK_EVERY, |step| greeted += u64::from(matches!(step, Step::Greeted)))?;
            lost += self.refused - before;
            if seen > 0 {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                self.fail(format!("no answer for {} s; gave up", PATIENCE.as_secs()));
                break;
            }
            look(greeted);
        }
        Ok(ran_out)
    }

    /// Sends the messages of the work, so many at a time; `look` hears how many are accepted. How many were.
    pub fn send_all(&mut self, work: &Work, stop: &Stop, look: &mut dyn FnMut(u64)) -> io::Result<u64> {
        let (mut sent, mut begun, mut at) = (0_u64, 0_u64, 0);
        let mut last = Instant::now();
        while !stop.is_set() && sent + self.broken < work.messages {
            let mut skipped = 0;
            while begun < work.messages && begun - sent - self.broken < work.active && skipped < self.held.len() {
                let is_idle = self.begin(at);
                at = (at + 1) % self.held.len();
                begun += u64::from(is_idle);
                skipped += usize::from(!is_idle);
            }
            let seen = self.turn(LOOK_EVERY, |step| sent += u64::from(matches!(step, Step::Sent)))?;
            if seen > 0 {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE || self.held.iter().all(Option::is_none) {
                self.fail("no further answer".to_owned());
                break;
            }
            look(sent);
        }
        Ok(sent)
    }
}
