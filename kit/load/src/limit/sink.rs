//! A minimal sink: one thread, one epoll, reads no more of a command than its verb.
//!
//! It accepts everything and counts. For strictness, faults or contents use `stentor-kit lab sink`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

use memchr::memmem::Finder;
use rustix::event::{Timespec, epoll};
use rustix::time::{ClockId, clock_gettime};

use super::store::{Keep, Store};

const READ_BYTES: usize = 128 << 10;
const LINE_BYTES_MAX: usize = 8 << 10;
const EVENTS: usize = 256;
const LOOK_EVERY_NS: i64 = 50_000_000;
const LISTENER: u64 = u64::MAX;
const END: &[u8] = b"\r\n.\r\n";
const GREETING: &[u8] = b"220 floor.lab ESMTP\r\n";
const EHLO: &[u8] =
    b"250-floor.lab\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-CHUNKING\r\n250 SIZE 0\r\n";

/// What has come so far; may be read at any time.
#[derive(Debug)]
pub struct Counters {
    pub messages: AtomicU64,
    /// Recipients of those.
    pub copies: AtomicU64,
    pub connections: AtomicU64,
    /// When the last message was taken, nanoseconds after `start`.
    pub last_ns: AtomicU64,
    pub start: Instant,
}

/// A running one. Dropped, it ends.
#[derive(Debug)]
pub struct FloorSink {
    pub address: SocketAddr,
    pub counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Ended>>>,
}

/// What it cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    pub cpu_s: f64,
    pub syncs: u64,
}

impl FloorSink {
    /// Listens at `address` (port 0: a free one).
    pub fn start(address: SocketAddr, keep: &Keep) -> io::Result<FloorSink> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        // Connections inherit it.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(4096)?;
        let listener: TcpListener = socket.into();
        let store = match keep {
            Keep::Nothing => None,
            Keep::Each(folder) | Keep::Group(folder) => Some(Store::make(folder)?),
        };
        let address = listener.local_addr()?;
        let zero = AtomicU64::default;
        let counters = Arc::new(Counters {
            messages: zero(),
            copies: zero(),
            connections: zero(),
            last_ns: zero(),
            start: Instant::now(),
        });
        let stop = Arc::new(AtomicBool::new(false));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
        let server = Server {
            epoll,
            listener,
            peers: Vec::new(),
            free: Vec::new(),
            waiting: Vec::new(),
            store,
            syncs_each: matches!(keep, Keep::Each(_)),
            counters: Arc::clone(&counters),
            buffer: vec![0; READ_BYTES],
        };
        let thread_stop = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("floor-sink".to_owned()).spawn(move || server.run(&thread_stop))?;
        Ok(FloorSink { address, counters, stop, thread: Some(thread) })
    }

    /// Ends it. An error is one of the disk, which ended it before.
    pub fn finish(mut self) -> io::Result<Ended> {
        self.end()
    }

    fn end(&mut self) -> io::Result<Ended> {
        self.stop.store(true, Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(io::Error::other("the sink's thread failed")),
            None => Ok(Ended::default()),
        }
    }
}

impl Drop for FloorSink {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

struct Server {
    epoll: rustix::fd::OwnedFd,
    listener: TcpListener,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    /// Whose replies wait for the sync.
    waiting: Vec<usize>,
    store: Option<Store>,
    syncs_each: bool,
    counters: Arc<Counters>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Command,
    /// So many octets of the end have come.
    Data(usize),
    /// So many octets are to come; whether it is the last chunk.
    Chunk(u64, bool),
    Closing,
}

struct Peer {
    stream: TcpStream,
    state: State,
    partial: Vec<u8>,
    out: Vec<u8>,
    recipients: u64,
}

impl Server {
    fn run(mut self, stop: &AtomicBool) -> io::Result<Ended> {
        let mut events = Vec::with_capacity(EVENTS);
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY_NS };
        while !stop.load(Relaxed) {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    at => self.serve(at as usize)?,
                }
            }
            self.commit()?;
        }
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_s = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        Ok(Ended { cpu_s, syncs: self.store.map_or(0, |store| store.syncs) })
    }

    fn accept(&mut self) {
        let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
        while let Ok(stream) = rustix::net::accept_with(&self.listener, flags) {
            let stream = TcpStream::from(stream);
            let at = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            if epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(at as u64), flags).is_err() {
                self.free.push(at);
                continue;
            }
            self.counters.connections.fetch_add(1, Relaxed);
            let mut peer =
                Peer { stream, state: State::Command, partial: Vec::new(), out: GREETING.to_vec(), recipients: 0 };
            peer.flush();
            self.peers[at] = Some(peer);
        }
    }

    fn serve(&mut self, at: usize) -> io::Result<()> {
        let Server { peers, buffer, counters, store, .. } = self;
        let Some(Some(peer)) = peers.get_mut(at) else { return Ok(()) };
        let mut finished = 0;
        loop {
            match peer.stream.read(buffer) {
                Ok(length) if length > 0 => {
                    let batch = store.as_mut().map(|store| &mut store.batch);
                    finished += peer.feed(&buffer[..length], counters, batch);
                    if self.syncs_each && finished > 0 {
                        for _ in 0..finished {
                            store.as_mut().map_or(Ok(()), Store::commit)?;
                        }
                        finished = 0;
                    }
                    if length < buffer.len() {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => {
                    peers[at] = None;
                    self.free.push(at);
                    return Ok(());
                }
            }
        }
        if finished > 0 && store.is_some() {
            self.waiting.push(at);
        } else {
            self.answer(at);
        }
        Ok(())
    }

    fn answer(&mut self, at: usize) {
        let Some(Some(peer)) = self.peers.get_mut(at) else { return };
        peer.flush();
        if peer.state == State::Closing && peer.out.is_empty() {
            self.peers[at] = None;
            self.free.push(at);
        }
    }

    /// One sync for all messages that have come since the last.
    fn commit(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if let Some(store) = &mut self.store {
            store.commit()?;
        }
        for at in std::mem::take(&mut self.waiting) {
            self.answer(at);
        }
        Ok(())
    }
}

impl Peer {
    fn flush(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(octets) if octets == self.out.len() => self.out.clear(),
                Ok(octets) => drop(self.out.drain(..octets)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Full: the next event goes on. Gone: the next read says so.
                Err(_) => return,
            }
        }
    }

    /// How many messages are complete now.
    fn feed(&mut self, mut input: &[u8], counters: &Counters, mut batch: Option<&mut Vec<u8>>) -> u64 {
        let mut finished = 0;
        while !input.is_empty() {
            match self.state {
                State::Command => input = self.line(input, counters, &mut finished),
                State::Data(matched) => {
                    let (used, state) = data_end(input, matched);
                    if let Some(batch) = &mut batch {
                        batch.extend_from_slice(&input[..used]);
                    }
                    input = &input[used..];
                    self.state = state;
                    if state == State::Command {
                        self.taken(counters);
                        finished += 1;
                    }
                }
                State::Chunk(left, is_last) => {
                    let used = (input.len() as u64).min(left);
                    if let Some(batch) = &mut batch {
                        batch.extend_from_slice(&input[..used as usize]);
                    }
                    input = &input[used as usize..];
                    self.state = State::Chunk(left - used, is_last);
                    if left == used {
                        finished += self.chunk_end(is_last, counters);
                    }
                }
                State::Closing => return finished,
            }
        }
        finished
    }

    fn chunk_end(&mut self, is_last: bool, counters: &Counters) -> u64 {
        self.state = State::Command;
        if is_last {
            self.taken(counters);
        } else {
            self.out.extend_from_slice(b"250 go on\r\n");
        }
        u64::from(is_last)
    }

    fn taken(&mut self, counters: &Counters) {
        self.out.extend_from_slice(b"250 2.0.0 taken\r\n");
        counters.last_ns.store(counters.start.elapsed().as_nanos() as u64, Relaxed);
        counters.messages.fetch_add(1, Relaxed);
        counters.copies.fetch_add(self.recipients, Relaxed);
        self.recipients = 0;
    }

    /// One line; the rest of the input.
    fn line<'a>(&mut self, input: &'a [u8], counters: &Counters, finished: &mut u64) -> &'a [u8] {
        let Some(end) = memchr::memchr(b'\n', input) else {
            self.partial.extend_from_slice(input);
            if self.partial.len() > LINE_BYTES_MAX {
                self.state = State::Closing;
            }
            return b"";
        };
        let (line, rest) = input.split_at(end + 1);
        if self.partial.is_empty() {
            self.command(line);
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(line);
            self.command(&whole);
            whole.clear();
            self.partial = whole;
        }
        if let State::Chunk(0, is_last) = self.state {
            *finished += self.chunk_end(is_last, counters);
        }
        rest
    }

    fn command(&mut self, line: &[u8]) {
        let mut verb = [b' '; 4];
        for (to, from) in verb.iter_mut().zip(line) {
            *to = from.to_ascii_uppercase();
        }
        let reply: &[u8] = match &verb {
            b"RCPT" => {
                self.recipients += 1;
                b"250 2.1.5 ok\r\n"
            }
            b"MAIL" | b"RSET" | b"HELO" => {
                self.recipients = 0;
                b"250 2.1.0 ok\r\n"
            }
            b"DATA" if self.recipients == 0 => b"554 5.5.1 no recipients\r\n",
            b"DATA" => {
                self.state = State::Data(2);
                b"354 go\r\n"
            }
            b"BDAT" => self.bdat(line),
            b"EHLO" => EHLO,
            b"NOOP" => b"250 ok\r\n",
            b"QUIT" => {
                self.state = State::Closing;
                b"221 bye\r\n"
            }
            _ => b"502 5.5.1 unknown\r\n",
        };
        self.out.extend_from_slice(reply);
    }

    fn bdat(&mut self, line: &[u8]) -> &'static [u8] {
        let text = std::str::from_utf8(line).unwrap_or_default();
        let mut words = text.split_ascii_whitespace().skip(1);
        match words.next().and_then(|size| size.parse().ok()) {
            Some(size) => {
                self.state = State::Chunk(size, words.next().is_some_and(|word| word.eq_ignore_ascii_case("LAST")));
                b""
            }
            None => b"501 5.5.4 no size\r\n",
        }
    }
}

/// How much of the input belongs to the message, and what is then waited for. `matched` octets of the end had come
/// before.
fn data_end(input: &[u8], matched: usize) -> (usize, State) {
    // The end may lie across two reads: what had matched is laid before the first octets.
    if matched > 0 {
        let mut seam = [0; 2 * END.len()];
        seam[..matched].copy_from_slice(&END[..matched]);
        let fresh = input.len().min(END.len());
        seam[matched..matched + fresh].copy_from_slice(&input[..fresh]);
        let found = memchr::memmem::find(&seam[..matched + fresh], END);
        if let Some(at) = found {
            return (at + END.len() - matched, State::Command);
        }
    }
    if let Some(at) = FINDER.with(|finder| finder.find(input)) {
        return (at + END.len(), State::Command);
    }
    let mut tail = Vec::with_capacity(2 * END.len());
    if input.len() < END.len() {
        tail.extend_from_slice(&END[..matched]);
    }
    tail.extend_from_slice(&input[input.len().saturating_sub(END.len())..]);
    let matched = (0..END.len()).rev().find(|length| tail.ends_with(&END[..*length])).unwrap_or(0);
    (input.len(), State::Data(matched))
}

thread_local! {
    static FINDER: Finder<'static> = Finder::new(END);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_data_is_found_however_it_is_cut() {
        for message in [".\r\n", "a\r\n.\r\n", "\r\n..\r\na\r\n.b\r\n\r.\r\n.\r\n", "\r\n\r\n.\r\n"] {
            let stream = format!("{message}NEXT");
            for first in 0..message.len() {
                for second in first..message.len() {
                    let mut state = State::Data(2);
                    let mut taken = 0;
                    for part in [&stream[..first], &stream[first..second], &stream[second..]] {
                        let State::Data(matched) = state else { panic!("ended early") };
                        if !part.is_empty() {
                            let (used, next) = data_end(part.as_bytes(), matched);
                            taken += used;
                            state = next;
                        }
                    }
                    assert!(state == State::Command && taken == message.len(), "{message:?} {first} {second} {taken}");
                }
            }
        }
    }
}
