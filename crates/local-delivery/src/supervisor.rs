//! The supervisor: a socket per service, and a worker for each connection.
//!
//! Promise: each service has at most `connections_max` workers; further connections wait in the socket's backlog.
//! Only root and the configured client are served (`SO_PEERCRED`, in addition to the sockets' mode 0660). The
//! sockets' directory belongs to root, so that nobody else can replace a socket. A worker that dies by a signal is
//! logged, and its orphans are killed. A worker that continues for [`END_PATIENCE`] without its client, or after a
//! stop, is killed, so that no file system blocks its place forever. SIGTERM and SIGINT: no more connections are
//! accepted; workers finish their transactions. SIGHUP: the configuration is read again; if it is valid, workers end
//! after their present transaction, and new ones use the new configuration. New services and other limits need a
//! restart.
//!
//! Workers read the configuration in force from an in-memory file that is open here: the file on disk may be half
//! written, and an environment variable is limited to 128 KiB (`MAX_ARG_STRLEN`, execve(2)).

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, MemfdFlags, flock, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, kill_process, pidfd_open, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::Config;
use crate::guarded::{self, GuardError};
use crate::{descendants, log, worker};

/// Stack of a thread that only waits for a connection and then for its worker.
const STACK_BYTES: usize = 128 * 1024;
/// Pause after an error of accept(2), such as too many open files.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a delivery may continue when its client is gone, or after a stop: longer than the time limits of programs
/// and locks.
const END_PATIENCE: Duration = Duration::from_mins(10);
/// Interval of checks whether all workers have ended.
const LOOK: Duration = Duration::from_millis(20);
/// Time limit for the end of killed workers.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Descriptors per worker in this process: its connection, and the process itself.
const WORKER_FILES: u64 = 2;
/// All other descriptors: sockets, signals, texts of the configuration, and short-lived ones.
const OWN_FILES: u64 = 64;

/// Why the supervisor cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Unguarded(#[from] GuardError),
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("another stentor-deliver is already serving {}", .0.display())]
    Running(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs until it receives a signal to stop.
pub fn run(config: &Config, file: PathBuf, text: &str) -> Result<(), StartError> {
    let folder = config.sockets.clone();
    let _lock = claim(&folder)?;
    descendants::adopt()?;
    allow_files(config.services.values().map(|service| u64::from(service.connections_max)).sum());
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let text = Mutex::new(Arc::new(in_memory(text)?));
    let crew = Arc::new(Crew { workers: Mutex::default(), client: config.client.uid, file, text });
    let mut sockets = Vec::new();
    for name in config.services.keys() {
        let path = folder.join(format!("{name}.sock"));
        let listener = bind(&path, config.client.gid)?;
        sockets.push((path, name, Arc::new(listener)));
    }
    for (_, name, listener) in &sockets {
        for _ in 0..config.services[*name].connections_max {
            let (crew, listener, name) = (crew.clone(), listener.clone(), (*name).clone());
            // The thread ends with the process.
            drop(thread::Builder::new().stack_size(STACK_BYTES).spawn(move || crew.serve(&name, &listener))?);
        }
    }
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        let read = Config::read(&crew.file).map_err(|error| error.to_string());
        match read.and_then(|(_, text)| in_memory(&text).map_err(|error| error.to_string())) {
            Ok(text) => {
                *crew.text.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(text);
                crew.ask_to_end();
            }
            Err(error) => log::error(&format!("reload failed, keeping the previous configuration: {error}")),
        }
    }
    for (path, ..) in sockets {
        let _ = fs::remove_file(path);
    }
    crew.stop();
    Ok(())
}

/// Raises the limit of open files as far as permitted, if it is too low for this number of workers.
fn allow_files(workers: u64) {
    let needed = OWN_FILES + workers * WORKER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let wanted = maximum.map_or(needed, |maximum| maximum.min(needed));
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
            log::error(&format!(
                "the limit on open files is too low for {workers} workers and could not be raised: {error}"
            ));
        }
    }
}

/// Claims the directory of the sockets for this process alone.
fn claim(folder: &Path) -> Result<File, StartError> {
    let wrong = |error| StartError::Path { path: folder.into(), error };
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(wrong(error)),
        _ => {}
    }
    guarded::check(folder)?;
    let lock = File::open(folder).map_err(wrong)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| StartError::Running(folder.into()))?;
    Ok(lock)
}

/// Creates a socket for root and the client's group.
fn bind(path: &Path, gid: u32) -> Result<UnixListener, StartError> {
    let wrong = |error| StartError::Path { path: path.into(), error };
    // Left over from an earlier process; the directory is used by us alone.
    if fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
        fs::remove_file(path).map_err(wrong)?;
    }
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
    let listener = UnixListener::bind(path);
    rustix::process::umask(umask);
    let listener = listener.map_err(wrong)?;
    chown(path, None, Some(gid)).map_err(wrong)?;
    fs::set_permissions(path, PermissionsExt::from_mode(0o660)).map_err(wrong)?;
    Ok(listener)
}

/// The workers of all services.
struct Crew {
    workers: Mutex<HashSet<Pid>>,
    /// User that may connect, besides root.
    client: u32,
    file: PathBuf,
    /// Text of the configuration in force.
    text: Mutex<Arc<File>>,
}

/// Creates an unnamed in-memory file with this text.
fn in_memory(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("stentor-deliver.toml", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file)
}

impl Crew {
    /// Serves one worker slot: accepts connections, one after the other.
    fn serve(&self, name: &str, listener: &UnixListener) {
        loop {
            let served = listener.accept().and_then(|(stream, _)| self.work(name, stream));
            if let Err(error) = served {
                log::error(&format!("{name}: {error}"));
                thread::sleep(PAUSE);
            }
        }
    }

    fn work(&self, name: &str, stream: UnixStream) -> io::Result<()> {
        let peer = socket_peercred(&stream)?.uid.as_raw();
        if peer != 0 && peer != self.client {
            log::error(&format!("{name}: closed a connection from user {peer}: not allowed"));
            return Ok(());
        }
        let client = stream.try_clone()?;
        // Kept open until the worker has ended, since it may read late.
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut child = {
            // A worker must not be taken for an orphan before it is registered.
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut command = Command::new("/proc/self/exe");
            command.arg("--config").arg(&self.file).args([worker::ARGUMENT, name]);
            command.env(worker::TEXT, format!("/proc/{}/fd/{}", std::process::id(), text.as_raw_fd()));
            let child = command.stdin(OwnedFd::from(stream)).stdout(Stdio::null()).spawn()?;
            workers.insert(Pid::from_child(&child));
            child
        };
        let pid = Pid::from_child(&child);
        let status = ended(&mut child, &client, END_PATIENCE).or_else(|_| child.wait());
        drop(client);
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        let status = status?;
        if status.code().is_none() {
            log::error(&format!("{name}: a worker ended: {status}; its connection was lost, the server will retry"));
            let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            descendants::end_orphans(|pid| workers.contains(&pid));
        }
        Ok(())
    }

    fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        for pid in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = kill_process(*pid, signal);
        }
    }

    fn stop(&self) {
        self.ask_to_end();
        if !self.have_ended(END_PATIENCE) {
            self.signal(Signal::KILL);
            self.have_ended(KILL_PATIENCE);
        }
    }

    /// Waits for the end of all workers, for at most this time.
    fn have_ended(&self, patience: Duration) -> bool {
        let begun = Instant::now();
        while !self.workers.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            if begun.elapsed() >= patience {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }
}

/// Waits for the end of a worker. It is killed if it continues for this time after its client has closed the
/// connection, since it may be blocked forever.
fn ended(worker: &mut Child, client: &UnixStream, patience: Duration) -> io::Result<ExitStatus> {
    let end = pidfd_open(Pid::from_child(worker), PidfdFlags::empty())?;
    let mut gone: Option<Instant> = None;
    loop {
        let left = gone.map(|at| patience.saturating_sub(at.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            log::error(&format!("worker {}: still running after its client disconnected; killed", worker.id()));
            worker.kill()?;
            return worker.wait();
        }
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() });
        // A closed connection is always reported.
        let mut fds = vec![PollFd::new(&end, PollFlags::IN)];
        fds.extend(gone.is_none().then(|| PollFd::new(client, PollFlags::empty())));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let is_set = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        if is_set(0) {
            return worker.wait();
        }
        if is_set(1) {
            gone = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_worker_outlives_its_client_for_a_while_only() {
        let (client, server) = UnixStream::pair().unwrap();
        let mut worker = Command::new("sleep").arg("100000").spawn().unwrap();
        drop(client);
        let status = ended(&mut worker, &server, Duration::from_millis(10)).unwrap();
        assert_eq!(status.signal(), Some(9));
        let mut worker = Command::new("true").spawn().unwrap();
        assert!(ended(&mut worker, &server, END_PATIENCE).unwrap().success(), "it has ended by itself");
    }

    /// A text that exceeds the limit of an environment variable.
    #[test]
    fn a_long_text_reaches_another_process() {
        let text = format!("# {}\n", "long ".repeat(100_000));
        let file = in_memory(&text).unwrap();
        let place = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        for _ in 0..2 {
            let read = Command::new("cat").arg(&place).output().unwrap();
            assert!(read.status.success() && read.stdout == text.as_bytes());
        }
    }

    #[test]
    fn a_client_that_waits_has_its_worker() {
        let (_client, server) = UnixStream::pair().unwrap();
        let mut worker = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        assert_eq!(ended(&mut worker, &server, Duration::ZERO).unwrap().code(), Some(3));
    }

    #[test]
    fn the_limit_of_files_is_raised_as_far_as_it_may_be() {
        let former = getrlimit(Resource::Nofile);
        let workers = former.current.unwrap_or(1 << 20);
        allow_files(workers);
        let raised = getrlimit(Resource::Nofile).current;
        assert_eq!(raised, former.maximum.map(|maximum| maximum.min(OWN_FILES + workers * WORKER_FILES)).or(raised));
    }
}
