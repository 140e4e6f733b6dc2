//! Runs one command in several processes to exceed the descriptor limit.
//!
//! Members are this same program with the same arguments and [`NUMBER`] in their environment. Each shares one Unix
//! socket with the process that the user started (which only adds up and reports), as its standard input: listening
//! sockets and orders, one per line, go down; results, one JSON object per line, come up.
//!
//! Promise: no member outlives its command. A member ends when its socket closes, because the command dismissed it or
//! died. Members are in process groups of their own, so that Ctrl-C reaches only the command, which then collects their
//! results. A member that dies is reported as [`CrewMessage::Gone`] with the reason, once, after everything it had
//! sent.

use std::io::{self, BufRead, BufReader, BufWriter, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stentor_measure::Stop;

use crate::error::LoadError;

/// In a member's environment: which one it is, from 0, and of how many: `1/4`.
const NUMBER: &str = "STENTOR_LAB_PROCESS";
/// More are a mistake.
const PROCESSES_MAX: u64 = 256;
/// Descriptors in one message; the kernel takes 253.
const SOCKETS_AT_ONCE: usize = 200;
/// A member that has closed its socket is ending; after so long it is killed.
const END_MOST: Duration = Duration::from_secs(10);
/// Words that wait to be taken up; who says more waits.
const WAITING_MAX: usize = 1024;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Descriptors that a process has for connections, if it needs so many for other things; the limit is raised as far as
/// it may.
pub fn descriptors(others: u64) -> u64 {
    stentor_lab::descriptors::raise().saturating_sub(others)
}

/// How many processes so many connections need where each has `room`; `asked` for says otherwise.
pub fn processes(connections: Option<u64>, asked: Option<u16>, room: u64) -> Result<usize, LoadError> {
    let connections = connections.unwrap_or(0);
    let needed = connections.div_ceil(room.max(1)).max(1);
    let count = asked.map_or(needed, u64::from);
    if room == 0 || count < needed || count > PROCESSES_MAX {
        return Err(LoadError::refused(format!(
            "{connections} connections need as many descriptors, but a process here has only {room}: this needs \
             {needed} processes (at most {PROCESSES_MAX}); raise the hard limit (ulimit -Hn), which needs \
             CAP_SYS_RESOURCE"
        )));
    }
    Ok(count as usize)
}

/// The part of member `number` of so many members in `whole`.
pub fn share(whole: u64, number: usize, members: usize) -> u64 {
    whole / members as u64 + u64::from((number as u64) < whole % members as u64)
}

/// Which member this process is, from 0, and of how many; none in the command itself.
pub fn place() -> Option<(usize, usize)> {
    let text = std::env::var(NUMBER).ok()?;
    let (number, members) = text.split_once('/')?;
    Some((number.parse().ok()?, members.parse().ok()?))
}

/// What came from a member.
#[derive(Debug)]
pub enum CrewMessage<T> {
    Word(T),
    /// It has ended, as the text says. Expected after [`Crew::dismiss`] only.
    Gone(String),
}

struct Member {
    child: Child,
    channel: UnixStream,
    is_gone: bool,
}

/// The members, as the command sees them. Dropped, those that are left are killed.
pub struct Crew<T> {
    members: Vec<Member>,
    said: Receiver<(usize, Option<T>)>,
}

impl<T: DeserializeOwned + Send + 'static> Crew<T> {
    /// Starts `count` members, each of which gets all of the sockets.
    pub fn start(count: usize, sockets: &[BorrowedFd<'_>]) -> io::Result<Crew<T>> {
        let (tell, said) = sync_channel(WAITING_MAX);
        let mut crew = Crew { members: Vec::new(), said };
        for number in 0..count {
            let (channel, theirs) = UnixStream::pair()?;
            // Also if the program's file has been replaced since.
            let mut command = Command::new("/proc/self/exe");
            command.arg0("stentor-kit").args(std::env::args_os().skip(1)).env(NUMBER, format!("{number}/{count}"));
            command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).process_group(0);
            let child = command.spawn()?;
            drop(command);
            crew.members.push(Member { child, channel: channel.try_clone()?, is_gone: false });
            for batch in sockets.chunks(SOCKETS_AT_ONCE) {
                hand_over(&channel, batch)?;
            }
            let tell: SyncSender<(usize, Option<T>)> = tell.clone();
            std::thread::Builder::new().name("crew".to_owned()).spawn(move || hear(number, channel, &tell))?;
        }
        Ok(crew)
    }

    /// The process number of a member.
    pub fn pid(&self, number: usize) -> u32 {
        self.members[number].child.id()
    }

    /// The next that a member has said; none if nothing came in that time, or if all are gone.
    pub fn next(&mut self, most: Duration) -> Option<(usize, CrewMessage<T>)> {
        if self.is_empty() {
            return None;
        }
        match self.said.recv_timeout(most) {
            Ok((number, Some(word))) => Some((number, CrewMessage::Word(word))),
            Ok((number, None)) => {
                let member = &mut self.members[number];
                member.is_gone = true;
                Some((number, CrewMessage::Gone(fate(&mut member.child))))
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// All are gone.
    pub fn is_empty(&self) -> bool {
        self.members.iter().all(|member| member.is_gone)
    }

    /// A line for all. One that cannot be told is about to be gone.
    pub fn order(&self, line: &str) {
        for mut channel in self.members.iter().map(|member| &member.channel) {
            let _ = writeln!(channel, "{line}");
        }
    }

    /// All are to say what is left to say, and to end.
    pub fn dismiss(&self) {
        for member in &self.members {
            // One that has gone needs no telling.
            let _ = member.channel.shutdown(Shutdown::Write);
        }
    }
}

impl<T> Drop for Crew<T> {
    fn drop(&mut self) {
        for member in self.members.iter_mut().filter(|member| !member.is_gone) {
            // It may just have ended; then there is only to wait.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

fn hand_over(channel: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_AT_ONCE))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::other("too many sockets in one message"));
    }
    sendmsg(channel, &[IoSlice::new(b"+")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// To the end of what a member says.
fn hear<T: DeserializeOwned>(number: usize, channel: UnixStream, tell: &SyncSender<(usize, Option<T>)>) {
    for line in BufReader::new(channel).split(b'\n').map_while(Result::ok) {
        // Half a line is what a member was killed in.
        let Ok(word) = serde_json::from_slice(&line) else { break };
        if tell.send((number, Some(word))).is_err() {
            return;
        }
    }
    // The command may be over.
    let _ = tell.send((number, None));
}

fn fate(child: &mut Child) -> String {
    let begun = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.to_string(),
            Ok(None) if begun.elapsed() > END_MOST => {
                let _ = child.kill();
            }
            Ok(None) => {}
            Err(error) => return error.to_string(),
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The command, as a member sees it.
pub struct Post {
    out: BufWriter<UnixStream>,
}

impl Post {
    pub fn open() -> io::Result<Post> {
        let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Post { out: BufWriter::new(channel) })
    }

    /// The sockets that the command listens on. Before [`Post::orders`].
    pub fn sockets(&self, count: usize) -> io::Result<Vec<OwnedFd>> {
        let mut sockets = Vec::new();
        while sockets.len() < count {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_AT_ONCE))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = recvmsg(self.out.get_ref().as_fd(), &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
            if got.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    sockets.extend(fds);
                }
            }
        }
        Ok(sockets)
    }

    /// Lines from the command; `stop` is set when there will be no more.
    pub fn orders(&self, stop: &Stop) -> io::Result<Receiver<String>> {
        let (tell, orders) = channel();
        let (channel, stop) = (self.out.get_ref().try_clone()?, stop.clone());
        std::thread::Builder::new().name("orders".to_owned()).spawn(move || {
            for line in BufReader::new(channel).lines().map_while(Result::ok) {
                // Nobody may want it any more.
                let _ = tell.send(line);
            }
            stop.set();
        })?;
        Ok(orders)
    }

    /// One word. An error means that the command is gone.
    pub fn say(&mut self, word: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, word)?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_processes_as_the_connections_need() {
        assert_eq!(processes(None, None, 10).ok(), Some(1));
        assert_eq!(processes(Some(10), None, 10).ok(), Some(1));
        assert_eq!(processes(Some(11), None, 10).ok(), Some(2));
        assert_eq!(processes(Some(11), Some(5), 10).ok(), Some(5));
        for (connections, asked, room) in [(Some(21), Some(2), 10), (Some(257), None, 1), (Some(1), None, 0)] {
            assert!(processes(connections, asked, room).is_err());
        }
    }

    #[test]
    fn shares_add_up() {
        for (whole, members) in [(60_000, 4), (7, 3), (2, 5), (0, 2)] {
            let shares: Vec<u64> = (0..members).map(|number| share(whole, number, members)).collect();
            assert_eq!(shares.iter().sum::<u64>(), whole);
            assert!(shares[0] - shares[members - 1] <= 1);
        }
    }
}
