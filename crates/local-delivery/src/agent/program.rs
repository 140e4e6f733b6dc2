//! Delivery to a program: the message on its standard input, its exit code as the answer.
//!
//! Promise: the program is started without a shell, with exactly the arguments, environment and descriptors (0, 1 and
//! 2) that are listed here, in a session without a terminal, and not as root unless the configuration permits it.
//! When [`deliver`] returns, neither it nor any process started by it is left: remaining processes are killed when it
//! ends or, with [`Background::Wait`], when the time limit is reached. An exit code of 0 counts whatever happens to
//! the others. At most `output_bytes_max` octets of its output are kept; the rest is read and dropped, so that the
//! program never blocks on output.

use std::fs;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process_group, pidfd_open};
use stentor_mail::reply::{Enhanced, Reply};

use super::exit_code;
use crate::account::PasswdEntry;
use crate::config::{Background, Program};
use crate::descendants;
use crate::log;
use crate::recipient::{DeliveryEnvelope, Field};
use crate::spool::Spool;
use crate::template::without_escape;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const SHELL: &str = "/bin/sh";
/// Octets written at a time, the capacity of a pipe.
const PIECE_BYTES: usize = 64 * 1024;
/// Interval of checks whether background processes have ended.
const LOOK: Duration = Duration::from_millis(5);

/// The command with the envelope's values, or the refusal if one does not fit.
pub fn arguments(program: &Program, envelope: &DeliveryEnvelope<'_>) -> Result<Vec<String>, Reply> {
    let values = program.arguments.iter().map(|argument| argument.argument(envelope));
    let values: Result<Vec<String>, _> = values.collect();
    let values =
        values.map_err(|error| Reply::new(550, Enhanced::new(5, 1, 3), format!("Bad address: its value {error}")))?;
    if values.iter().any(|value| value.contains('\0')) {
        return Err(Reply::fixed(550, Enhanced::new(5, 1, 3), "Bad address: its value contains a NUL"));
    }
    Ok(values)
}

/// Runs the program for one recipient. `start` precedes the message.
pub fn deliver(
    program: &Program,
    account: &PasswdEntry,
    envelope: &DeliveryEnvelope<'_>,
    start: &[u8],
    spool: &mut Spool,
) -> Result<String, Reply> {
    let arguments = arguments(program, envelope)?;
    if account.uid == 0 && !program.allow_root {
        return Err(Reply::fixed(550, Enhanced::new(5, 7, 1), "Programs are not run as root"));
    }
    let mut run = Run::start(program, account, envelope, &arguments).map_err(|error| {
        descendants::end();
        log::error(&format!("{}: could not be started as {}: {error}", arguments[0], account.name));
        Reply::new(451, Enhanced::new(4, 3, 5), "Command could not be started")
    })?;
    let deadline = Instant::now() + program.timeout;
    let ended = run.wait(program.timeout, start, spool);
    let is_good = matches!(&ended, Ok(Some(status)) if status.success());
    if is_good && program.background == Background::Wait && !run.rest_ends(deadline) {
        // The program has accepted the message; a retry would deliver it twice.
        let seconds = program.timeout.as_secs();
        log::error(&format!("{}: its child processes did not end within {seconds} s and were killed", arguments[0]));
    }
    if !descendants::end() {
        log::error(&format!("{}: a child process could not be killed", arguments[0]));
    }
    let output = &run.output[..];
    match ended {
        Ok(Some(status)) => match (status.code(), status.signal()) {
            (Some(0), _) => Ok(format!("Delivered to command {}", arguments[0])),
            (Some(code), _) => Err(exit_code::refusal(code, output, &program.defer_exit_codes)),
            (None, signal) => {
                Err(exit_code::broken(&format!("ended by signal {}", signal.unwrap_or_default()), output))
            }
        },
        Ok(None) => Err(exit_code::broken(&format!("timed out after {} s", program.timeout.as_secs()), output)),
        Err(error) => Err(Reply::new(451, Enhanced::new(4, 3, 0), format!("Command: {error}"))),
    }
}

/// A running program.
struct Run {
    child: Child,
    /// Dropped once everything is written or the program has closed it.
    stdin: Option<ChildStdin>,
    /// Dropped once all writers have closed it.
    printed: Option<PipeReader>,
    output: Vec<u8>,
    output_bytes_max: usize,
}

impl Run {
    fn start(
        program: &Program,
        account: &PasswdEntry,
        envelope: &DeliveryEnvelope<'_>,
        arguments: &[String],
    ) -> io::Result<Run> {
        let (printed, writer) = io::pipe()?;
        let mut command = Command::new(&arguments[0]);
        command.args(&arguments[1..]).env_clear().envs(environment(program, account, envelope));
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        command.process_group(0).current_dir(directory(program, account));
        if geteuid().is_root() {
            // This also removes all supplementary groups.
            command.uid(account.uid).gid(account.gid);
        } else if geteuid().as_raw() != account.uid {
            return Err(io::Error::other("only root can run programs as another user"));
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let run = Run {
            child,
            stdin,
            printed: Some(printed),
            output: Vec::new(),
            output_bytes_max: program.output_bytes_max,
        };
        if let Some(stdin) = &run.stdin {
            ioctl_fionbio(stdin, true)?;
        }
        if let Some(printed) = &run.printed {
            ioctl_fionbio(printed, true)?;
        }
        Ok(run)
    }

    /// Writes the program's input and reads its output until it ends. `None` if it timed out and was killed.
    fn wait(&mut self, timeout: Duration, start: &[u8], spool: &mut Spool) -> io::Result<Option<ExitStatus>> {
        let ended = self.exchange(timeout, start, spool);
        self.stdin = None;
        let group = Pid::from_child(&self.child);
        if !matches!(ended, Ok(true)) {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.kill();
        }
        let status = self.child.wait()?;
        // Reads the rest of its output. A background process may still write.
        while self.output.len() < self.output_bytes_max && matches!(self.read(), Ok(Some(1..))) {}
        // If there is an exit code, the program ended before it could be killed, so the code counts.
        ended.map(|in_time| (in_time || status.code().is_some()).then_some(status))
    }

    /// Whether the program ended within its time.
    fn exchange(&mut self, timeout: Duration, start: &[u8], spool: &mut Spool) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let mut input = Input { source: start.chain(spool.reader()?), piece: vec![0; PIECE_BYTES], at: 0, filled: 0 };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let [is_over, has_printed, can_write] = self.ready(end.as_fd(), left)?;
            if is_over {
                return Ok(true);
            }
            if has_printed && self.read()?.is_none() {
                self.printed = None;
            }
            if can_write
                && let Some(stdin) = &mut self.stdin
                && !input.write(stdin)?
            {
                self.stdin = None;
            }
        }
    }

    /// Waits until the program has ended, written output, or accepts input.
    fn ready(&self, end: BorrowedFd<'_>, patience: Duration) -> io::Result<[bool; 3]> {
        // A missing descriptor is replaced by one that adds no event.
        let mut fds = vec![PollFd::from_borrowed_fd(end, PollFlags::IN)];
        let printed = self.printed.as_ref().map(|printed| {
            fds.push(PollFd::from_borrowed_fd(printed.as_fd(), PollFlags::IN));
            fds.len() - 1
        });
        let stdin = self.stdin.as_ref().map(|stdin| {
            fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
            fds.len() - 1
        });
        let patience = Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
        match poll(&mut fds, Some(&patience)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok([false; 3]),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        Ok([is_ready(Some(0)), is_ready(printed), is_ready(stdin)])
    }

    /// Waits for background processes to end, and drops their output. Returns false if the time ran out.
    fn rest_ends(&mut self, deadline: Instant) -> bool {
        while descendants::are_there() {
            if Instant::now() >= deadline {
                return false;
            }
            while matches!(self.read(), Ok(Some(1..))) {}
            thread::sleep(LOOK);
        }
        true
    }

    /// Reads available output, up to one piece; returns its length, or `None` at the end.
    fn read(&mut self) -> io::Result<Option<usize>> {
        let Some(printed) = &mut self.printed else { return Ok(None) };
        let mut piece = [0; 4096];
        match printed.read(&mut piece) {
            Ok(0) => Ok(None),
            Ok(count) => {
                let kept = count.min(self.output_bytes_max.saturating_sub(self.output.len()));
                self.output.extend_from_slice(&piece[..kept]);
                Ok(Some(count))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }
}

/// Remaining input.
struct Input<R> {
    source: R,
    piece: Vec<u8>,
    at: usize,
    filled: usize,
}

impl<R: Read> Input<R> {
    /// Writes what the program accepts; returns `false` when everything is written or the program has closed its
    /// input.
    fn write(&mut self, stdin: &mut ChildStdin) -> io::Result<bool> {
        if self.at == self.filled {
            (self.at, self.filled) = (0, self.source.read(&mut self.piece)?);
            if self.filled == 0 {
                return Ok(false);
            }
        }
        match stdin.write(&self.piece[self.at..self.filled]) {
            Ok(count) => {
                self.at += count;
                Ok(true)
            }
            // A program need not read the message.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Working directory: the configured one, else the user's home, else the root.
fn directory<'a>(program: &'a Program, account: &'a PasswdEntry) -> &'a Path {
    match &program.directory {
        Some(directory) => directory,
        None if account.act(account.gid, || fs::metadata(account.home.join("."))).is_ok() => &account.home,
        None => Path::new("/"),
    }
}

/// All environment variables of a program. Values from the envelope only contain characters that are harmless in a
/// shell, and no path out of a folder.
fn environment(program: &Program, account: &PasswdEntry, envelope: &DeliveryEnvelope<'_>) -> Vec<(String, String)> {
    let fields = [
        ("SENDER", Field::Sender),
        ("RECIPIENT", Field::Recipient),
        ("ORIGINAL_RECIPIENT", Field::OriginalRecipient),
        ("USER", Field::User),
        ("EXTENSION", Field::Extension),
        ("DOMAIN", Field::Domain),
    ];
    let value = |field| harmless(&without_escape(field, envelope.field(field)));
    let fields = fields.map(|(name, field)| (name.to_owned(), value(field)));
    let fixed = [
        ("HOME", account.home.display().to_string()),
        ("LOGNAME", account.name.clone()),
        ("SHELL", SHELL.to_owned()),
        ("PATH", PATH.to_owned()),
    ];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value));
    let own = program.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    fields.into_iter().chain(fixed).chain(own).collect()
}

/// As in Postfix's local(8), every other character becomes `_`.
fn harmless(value: &str) -> String {
    let is_harmless = |c: char| c.is_ascii_alphanumeric() || "!@%-_=+:,./".contains(c);
    value.chars().map(|c| if is_harmless(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::config::{Agent, Config};
    use crate::recipient::LocalRecipient;

    #[test]
    fn what_a_program_says_in_its_last_moment_counts() {
        let account = PasswdEntry::of(geteuid().as_raw()).unwrap().expect("the user of this test");
        let recipient = LocalRecipient::new(&"ann@x.test".parse().unwrap(), None, None);
        let envelope = DeliveryEnvelope { sender: "", recipient: &recipient, is_marked: false };
        for (name, code) in [("true", 0), ("false", 1)] {
            let text = format!(
                "client = \"root\"\n[services.x]\nkind = \"program\"\nuser = \"nobody\"\ncommand = [\"/bin/{name}\"]\n"
            );
            let mut config = Config::parse(Path::new("deliver.toml"), &text).unwrap();
            let Agent::Program(program) = config.services.remove("x").unwrap().agent else { panic!("a program") };
            let mut spool = Spool::default();
            spool.finish().unwrap();
            let mut run = Run::start(&program, &account, &envelope, &[format!("/bin/{name}")]).unwrap();
            // It has exited, but this is only noticed after its time limit.
            let pid = Pid::from_child(&run.child);
            waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
            let status = run.wait(Duration::ZERO, b"", &mut spool).unwrap();
            assert_eq!(status.and_then(|status| status.code()), Some(code), "{name}");
        }
    }
}
