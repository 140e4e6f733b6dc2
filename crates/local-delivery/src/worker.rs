//! A worker: one connection, LMTP (RFC 2033), one delivery at a time.
//!
//! Promise: each recipient's reply is written as soon as its delivery has ended, with the result. A recipient whose
//! address is already in a `Delivered-To` field is refused with 5.4.6; for a program or file of an alias the first
//! such field is ignored. The worker ends with its connection; on SIGTERM, or without its supervisor, it finishes the
//! present transaction and closes with 421. Files included by alias files are searched for at most [`SEARCH_MAX`],
//! for [`HURRIED_SEARCH_MAX`] if the worker should end, and not at all if the client is gone.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::process::{Pid, getppid};
use stentor_mail::Ms;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_smtp::server::{EndOfData, NOT_OFFERED, RcptTo, ServerConfig, ServerSession, Step};

use crate::agent::{self, UniqueNames};
use crate::config::{Agent, Config, ConfigError, DeliveryService};
use crate::descendants;
use crate::recipient::{DeliveryEnvelope, LocalRecipient};
use crate::spool::Spool;

/// Argument that makes a process a worker; the service's name follows.
pub const ARGUMENT: &str = "--worker";
/// Environment variable with the path from which a worker reads the configuration's text.
pub const TEXT: &str = "STENTOR_DELIVER_CONFIG";
const READ_BYTES: usize = 64 * 1024;
/// Longer than Stentor keeps an idle connection (5 s), so that the client closes it.
const IDLE_MS: u64 = 60_000;
const DATA_MS: u64 = 300_000;
/// Interval at which a waiting worker checks whether it should end: a signal may arrive just before it waits.
const LOOK_MS: u64 = 500;
/// Time limit of the search in included files for a recipient.
const SEARCH_MAX: Duration = Duration::from_secs(20);
const HURRIED_SEARCH_MAX: Duration = Duration::from_secs(2);

const OK: Reply = Reply::fixed(250, Enhanced::new(2, 1, 0), "Ok");
const TAKEN: Reply = Reply::fixed(250, Enhanced::new(2, 1, 5), "Ok");
const LOOP: Reply =
    Reply::fixed(554, Enhanced::new(5, 4, 6), "Mail loop: already delivered to this address (Delivered-To)");
const NO_TAG: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "Not a program or file of an alias (NAME=TAG)");
const CLOSING: Reply = Reply::fixed(421, Enhanced::new(4, 3, 2), "Shutting down");

/// Reads the supervisor's configuration in force, because the file itself may be half written.
pub fn config(file: &Path) -> Result<Config, ConfigError> {
    let wrong = |error| ConfigError::Read { path: file.into(), error };
    let missing = || io::Error::other("workers can be started only by a running stentor-deliver");
    let place = std::env::var_os(TEXT).ok_or_else(|| wrong(missing()))?;
    Config::parse(file, &std::fs::read_to_string(place).map_err(wrong)?)
}

/// Serves the connection on standard input.
pub fn run(config: &Config, name: &str) -> io::Result<()> {
    let service =
        config.services.get(name).ok_or_else(|| io::Error::other(format!("service {name} no longer exists")))?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    // Without a terminal, programs cannot open /dev/tty.
    let _ = rustix::process::setsid();
    descendants::adopt()?;
    let must_end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, must_end.clone())?;
    let descriptor: OwnedFd = io::stdin().as_fd().try_clone_to_owned()?;
    // A program has its own standard input, and inherits no other descriptors.
    rustix::io::fcntl_setfd(io::stdin(), rustix::io::FdFlags::CLOEXEC)?;
    close_fds::set_fds_cloexec(3, &[]);
    Worker::new(config, service, UnixStream::from(descriptor), must_end).serve()
}

/// Result of waiting for the client.
enum WaitResult {
    Input,
    Nothing,
    /// The connection is closed, because the supervisor wants the worker to end.
    End,
}

struct Worker<'a> {
    service: &'a DeliveryService,
    hostname: &'a str,
    stream: UnixStream,
    session: ServerSession,
    sender: String,
    recipients: Vec<LocalRecipient>,
    /// The content being received.
    spool: Option<Spool>,
    spool_error: Option<io::Error>,
    /// Number of deliveries so far, for unique names.
    delivered: u64,
    must_end: Arc<AtomicBool>,
    /// A worker has another parent once its supervisor was killed.
    supervisor: Option<Pid>,
}

impl<'a> Worker<'a> {
    fn new(
        config: &'a Config,
        service: &'a DeliveryService,
        stream: UnixStream,
        must_end: Arc<AtomicBool>,
    ) -> Worker<'a> {
        let limits = ServerConfig {
            hostname: config.hostname.clone(),
            lmtp: true,
            size_max: config.message_size_bytes_max,
            command_timeout_ms: IDLE_MS,
            data_timeout_ms: DATA_MS,
            ..ServerConfig::default()
        };
        Worker {
            service,
            hostname: &config.hostname,
            stream,
            session: ServerSession::new(Arc::new(limits), true, now()),
            sender: String::new(),
            recipients: Vec::new(),
            spool: None,
            spool_error: None,
            delivered: 0,
            must_end,
            supervisor: getppid(),
        }
    }

    fn serve(mut self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut has_spoken = false;
        loop {
            match self.session.step(now()) {
                Step::NeedInput => {
                    match self.flush() {
                        // A client that only tests the connection, as `stentor check` does, disconnects before the
                        // greeting.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !has_spoken => return Ok(()),
                        flushed => flushed?,
                    }
                    match self.await_input()? {
                        WaitResult::Input => {}
                        WaitResult::Nothing => continue,
                        WaitResult::End => return Ok(()),
                    }
                    match self.stream.read(&mut buffer) {
                        Ok(0) => return Ok(()),
                        Ok(count) => {
                            has_spoken = true;
                            self.session.receive(&buffer[..count]);
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
                Step::Flush => self.flush()?,
                Step::Mail(_) if must_end(&self.must_end, self.supervisor) => self.session.answer(CLOSING),
                Step::Mail(mail) => {
                    self.forget();
                    mail.path.as_str().clone_into(&mut self.sender);
                    self.session.answer(OK);
                }
                Step::Rcpt(rcpt) => self.recipient(&rcpt),
                // TLS and AUTH are not offered.
                Step::Client(_) | Step::StartTls | Step::Auth { .. } | Step::AuthResponse(_) => {
                    self.session.answer(NOT_OFFERED);
                }
                Step::AuthCancelled => {}
                Step::Unknown { reply, .. } => self.session.answer(reply),
                Step::Data => {
                    self.spool = Some(Spool::default());
                    self.session.begin_data(Vec::new());
                }
                Step::Piece(piece) => self.keep(&piece),
                Step::EndOfData(end) => self.deliver(&end)?,
                Step::Reset | Step::Refused { .. } => self.forget(),
                Step::Close => return self.flush(),
            }
        }
    }

    /// Waits for input, for at most [`LOOK_MS`].
    fn await_input(&mut self) -> io::Result<WaitResult> {
        if must_end(&self.must_end, self.supervisor) && !self.session.in_transaction() {
            CLOSING.write_to(self.session.output());
            self.flush()?;
            return Ok(WaitResult::End);
        }
        let left = self.session.deadline().saturating_sub(now());
        if left == 0 {
            self.session.timed_out();
            return Ok(WaitResult::Nothing);
        }
        let left = left.min(LOOK_MS);
        let patience =
            Timespec { tv_sec: (left / 1000).cast_signed(), tv_nsec: ((left % 1000) * 1_000_000).cast_signed() };
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut fds, Some(&patience)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(WaitResult::Nothing),
            Ok(_) => Ok(WaitResult::Input),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(self.session.output())?;
        self.session.sent();
        Ok(())
    }

    fn forget(&mut self) {
        self.recipients.clear();
        (self.spool, self.spool_error) = (None, None);
    }

    fn recipient(&mut self, rcpt: &RcptTo) {
        let (orcpt, delimiter) = (rcpt.orcpt.as_deref(), self.service.delimiter);
        let recipient = match self.service.agent {
            Agent::Aliases(_) => LocalRecipient::of_alias(&rcpt.address, orcpt, delimiter),
            _ => Some(LocalRecipient::new(&rcpt.address, orcpt, delimiter)),
        };
        let Some(recipient) = recipient else { return self.session.answer(NO_TAG) };
        let envelope = DeliveryEnvelope { sender: &self.sender, recipient: &recipient, is_marked: false };
        let begun = Instant::now();
        let is_over = || is_over(begun, must_end(&self.must_end, self.supervisor), &self.stream);
        match agent::admit(self.service, &envelope, &is_over) {
            Ok(()) => {
                self.recipients.push(recipient);
                self.session.answer(TAKEN);
            }
            Err(reply) => self.session.answer(reply),
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if let Some(spool) = self.spool.as_mut().filter(|_| self.spool_error.is_none())
            && let Err(error) = spool.push(piece)
        {
            self.spool_error = Some(error);
        }
    }

    /// Delivers to all recipients, one after the other.
    fn deliver(&mut self, end: &EndOfData) -> io::Result<()> {
        self.keep(&end.last);
        if let Some(spool) = &mut self.spool
            && let Err(error) = spool.finish()
        {
            self.spool_error = Some(error);
        }
        let recipients = std::mem::take(&mut self.recipients);
        for recipient in &recipients {
            let reply = self.reply(recipient, end);
            self.session.answer(reply);
            self.flush()?;
        }
        self.forget();
        Ok(())
    }

    fn reply(&mut self, recipient: &LocalRecipient, end: &EndOfData) -> Reply {
        let is_own = |address: &String| address.eq_ignore_ascii_case(&recipient.address);
        let marks = end.facts.delivered_to.iter();
        // The server itself adds the alias's field to its copy.
        let is_marked = !recipient.tag.is_empty() && marks.clone().next().is_some_and(is_own);
        if marks.skip(usize::from(is_marked)).any(is_own) {
            return LOOP;
        }
        let (Some(spool), None) = (&mut self.spool, &self.spool_error) else {
            return Reply::fixed(452, Enhanced::new(4, 3, 1), "No space for the message");
        };
        self.delivered += 1;
        let envelope = DeliveryEnvelope { sender: &self.sender, recipient, is_marked };
        let (names, begun) = (UniqueNames { host: self.hostname, number: self.delivered }, Instant::now());
        let is_over = || is_over(begun, must_end(&self.must_end, self.supervisor), &self.stream);
        agent::deliver(self.service, &envelope, spool, names, &is_over)
    }
}

fn must_end(is_asked_to: &AtomicBool, supervisor: Option<Pid>) -> bool {
    is_asked_to.load(Ordering::Relaxed) || getppid() != supervisor
}

/// Whether a search has exceeded its time, or its client has closed the connection.
fn is_over(begun: Instant, must_end: bool, client: &UnixStream) -> bool {
    let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(client, PollFlags::empty())];
    let is_gone = matches!(poll(&mut fds, Some(&nothing)), Ok(1..));
    is_gone || begun.elapsed() > if must_end { HURRIED_SEARCH_MAX } else { SEARCH_MAX }
}

fn now() -> Ms {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as Ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looks_whether_somebody_listens_is_no_error() {
        let text = "client = \"root\"\n[services.x]\nkind = \"maildir\"\npath = \"~/Maildir\"\n";
        let config = Config::parse(Path::new("x.toml"), text).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let worker = Worker::new(&config, &config.services["x"], ours, Arc::default());
        assert!(worker.serve().is_ok());
    }

    #[test]
    fn a_search_is_over_when_its_time_is_or_its_client_is_gone() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (now, before) = (Instant::now(), Instant::now().checked_sub(HURRIED_SEARCH_MAX));
        assert!(!is_over(now, false, &ours));
        assert!(before.is_none_or(|begun| is_over(begun, true, &ours)));
        assert!(Instant::now().checked_sub(SEARCH_MAX).is_none_or(|begun| is_over(begun, false, &ours)));
        drop(theirs);
        assert!(is_over(now, false, &ours));
        let own = AtomicBool::new(false);
        assert!(!must_end(&own, getppid()) && must_end(&own, None));
    }
}
