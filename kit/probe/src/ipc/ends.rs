//! Both ends of a connection.
//!
//! Echo: for each request of N octets the answer has N, until the connection closes. Take: octets arrive until the
//! asking side has closed its direction; the answer is their number, in 8 octets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use stentor_measure::counters::process_cpu;
use stentor_measure::{Histogram, Stop};

use super::{Between, Transport};

/// Sent one way before the clock begins: more than sockets and pipes buffer.
const START_BYTES: u64 = 16 << 20;
const START_WRITE_BYTES: usize = 64 << 10;

/// What the answering side does, with messages of so many octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    Echo(usize),
    Take(usize),
}

impl Work {
    /// `echo:4096`.
    pub fn parse(text: &str) -> Option<Work> {
        let (work, bytes) = text.split_once(':')?;
        let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0)?;
        match work {
            "echo" => Some(Work::Echo(bytes)),
            "take" => Some(Work::Take(bytes)),
            _ => None,
        }
    }

    fn to_text(self) -> String {
        match self {
            Work::Echo(bytes) => format!("echo:{bytes}"),
            Work::Take(bytes) => format!("take:{bytes}"),
        }
    }
}

/// What the asking side saw.
#[derive(Clone, Debug, Default)]
pub struct IpcMeasurement {
    /// Round trips, or octets that were taken.
    pub count: u64,
    pub seconds: f64,
    /// Nanoseconds of a round trip.
    pub latency: Histogram,
    /// Of both sides. None where the other side's cannot be read.
    pub cpu_s: Option<f64>,
}

/// One end: the same socket twice, or two pipes.
struct End {
    input: File,
    output: File,
}

impl End {
    fn of_socket(socket: OwnedFd) -> io::Result<End> {
        Ok(End { input: File::from(socket.try_clone()?), output: File::from(socket) })
    }

    /// No more goes out; the other side sees the end.
    fn close_output(self) -> io::Result<File> {
        match shutdown(&self.output, Shutdown::Write) {
            // A pipe ends when it is dropped.
            Ok(()) | Err(rustix::io::Errno::NOTSOCK) => Ok(self.input),
            Err(error) => Err(error.into()),
        }
    }
}

fn connected(transport: Transport) -> io::Result<(End, End)> {
    match transport {
        Transport::Tcp => {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let asking = TcpStream::connect(listener.local_addr()?)?;
            let (answering, _) = listener.accept()?;
            asking.set_nodelay(true)?;
            answering.set_nodelay(true)?;
            Ok((End::of_socket(asking.into())?, End::of_socket(answering.into())?))
        }
        Transport::Unix => {
            let (asking, answering) = UnixStream::pair()?;
            Ok((End::of_socket(asking.into())?, End::of_socket(answering.into())?))
        }
        Transport::Pipe => {
            let ((there_in, there_out), (back_in, back_out)) = (io::pipe()?, io::pipe()?);
            let file = |fd: OwnedFd| File::from(fd);
            let asking = End { input: file(back_in.into()), output: file(there_out.into()) };
            Ok((asking, End { input: file(there_in.into()), output: file(back_out.into()) }))
        }
    }
}

/// Until the other side has closed.
fn answer(mut end: End, work: Work) -> io::Result<()> {
    match work {
        Work::Echo(bytes) => {
            let mut buffer = vec![0; bytes];
            loop {
                match end.input.read_exact(&mut buffer) {
                    Ok(()) => end.output.write_all(&buffer)?,
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        }
        Work::Take(bytes) => {
            let mut buffer = vec![0; bytes];
            let mut taken = 0_u64;
            loop {
                match end.input.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(more) => taken += more as u64,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            end.output.write_all(&taken.to_le_bytes())
        }
    }
}

/// The other process: a socket is standard input alone, pipes are both.
pub fn answer_on_standard_input(work: Work) -> io::Result<()> {
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    answer(End { input, output }, work)
}

/// Who answers; ends when the connection does.
enum Peer {
    Process(Child),
    Thread(Option<JoinHandle<io::Result<()>>>),
}

impl Peer {
    fn start(end: End, between: Between, work: Work) -> io::Result<Peer> {
        if between == Between::Threads {
            return Ok(Peer::Thread(Some(std::thread::spawn(move || answer(end, work)))));
        }
        let mut command = crate::rerun::command("ipc");
        command.args(["--answer", &work.to_text()]);
        let child = command.stdin(Stdio::from(end.input)).stdout(Stdio::from(end.output)).spawn()?;
        Ok(Peer::Process(child))
    }

    /// Processor time of this process and the other. The scheduler counts nanoseconds, of a process with one thread.
    fn cpu(&self) -> Option<Duration> {
        let theirs = match self {
            Peer::Thread(_) => Duration::ZERO,
            Peer::Process(child) => {
                let text = std::fs::read_to_string(format!("/proc/{}/schedstat", child.id())).ok()?;
                Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?)
            }
        };
        Some(process_cpu() + theirs)
    }

    /// After the connection was closed.
    fn join(mut self) -> io::Result<()> {
        match &mut self {
            Peer::Process(child) => match child.wait()? {
                status if status.success() => Ok(()),
                status => Err(io::Error::other(format!("the answering process failed: {status}"))),
            },
            Peer::Thread(thread) => {
                let outcome = thread.take().map_or(Ok(Ok(())), JoinHandle::join);
                outcome.unwrap_or_else(|_| Err(io::Error::other("the answering thread panicked")))
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only after an error: nothing is left behind.
        if let Peer::Process(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Connects, works for so long, and waits for the other side's end.
pub fn measure(
    transport: Transport,
    between: Between,
    work: Work,
    time: Duration,
    stop: &Stop,
) -> io::Result<IpcMeasurement> {
    let (mut asking, answering) = connected(transport)?;
    let peer = Peer::start(answering, between, work)?;
    let mut measurement = IpcMeasurement::default();
    match work {
        Work::Echo(bytes) => {
            let mut buffer = vec![b'x'; bytes];
            // The first one waits for the other side's start.
            round_trip(&mut asking, &mut buffer)?;
            let (cpu, begin) = (peer.cpu(), Instant::now());
            while measurement.count == 0 || (begin.elapsed() < time && !stop.is_set()) {
                let sent = Instant::now();
                round_trip(&mut asking, &mut buffer)?;
                measurement.latency.add(sent.elapsed().as_nanos() as u64);
                measurement.count += 1;
            }
            measurement.seconds = begin.elapsed().as_secs_f64();
            measurement.cpu_s = used(&peer, cpu);
            drop(asking.close_output()?);
        }
        Work::Take(bytes) => {
            let buffer = vec![b'x'; bytes];
            let start = vec![b'x'; START_WRITE_BYTES];
            // More than any buffer between the two, so that the other side has begun when the clock does.
            let mut sent = 0_u64;
            while sent < START_BYTES {
                asking.output.write_all(&start)?;
                sent += START_WRITE_BYTES as u64;
            }
            let (cpu, begin, before) = (peer.cpu(), Instant::now(), sent);
            while sent == before || (begin.elapsed() < time && !stop.is_set()) {
                asking.output.write_all(&buffer)?;
                sent += bytes as u64;
            }
            // Of a process that has ended nothing can be read: before the end, with what is still in the buffers.
            let cpu_used = used(&peer, cpu);
            let mut taken = [0; 8];
            asking.close_output()?.read_exact(&mut taken)?;
            measurement.seconds = begin.elapsed().as_secs_f64();
            measurement.cpu_s = cpu_used;
            if u64::from_le_bytes(taken) != sent {
                return Err(io::Error::other("octets were lost between the two ends"));
            }
            measurement.count = sent - before;
        }
    }
    peer.join()?;
    Ok(measurement)
}

fn used(peer: &Peer, before: Option<Duration>) -> Option<f64> {
    Some(peer.cpu()?.saturating_sub(before?).as_secs_f64())
}

fn round_trip(end: &mut End, buffer: &mut [u8]) -> io::Result<()> {
    end.output.write_all(buffer)?;
    end.input.read_exact(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_talk_over_every_transport() {
        let stop = Stop::never();
        for transport in [Transport::Tcp, Transport::Unix, Transport::Pipe] {
            for bytes in [1, 32, 65536, 1 << 20] {
                let time = Duration::ZERO;
                let echo = measure(transport, Between::Threads, Work::Echo(bytes), time, &stop).unwrap();
                assert_eq!((echo.count, echo.latency.count()), (1, 1));
                let take = measure(transport, Between::Threads, Work::Take(bytes.max(32)), time, &stop).unwrap();
                assert_eq!(take.count, bytes.max(32) as u64, "{transport:?}");
            }
        }
    }

    #[test]
    fn work_is_told_to_the_other_process() {
        for work in [Work::Echo(32), Work::Take(65536)] {
            assert_eq!(Work::parse(&work.to_text()), Some(work));
        }
        assert_eq!(["echo", "echo:", "echo:0", "x:1"].map(Work::parse), [None; 4]);
    }
}
