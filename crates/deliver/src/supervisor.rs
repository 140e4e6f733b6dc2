//! The supervisor: a socket per service, and a worker for each connection.
//!
//! Promise: per service at most `connections_max` workers; whoever comes beyond that waits in the socket's backlog. Only root and
//! the configured client are served (`SO_PEERCRED`, beside the sockets' mode 0660). The sockets' directory belongs to root, so that
//! nobody can put another file in a socket's place. A worker that dies by a signal is reported, and what it left behind is killed.
//! SIGTERM and SIGINT: no more connections; workers finish what they have begun. SIGHUP: the configuration is
//! read again; if it is good, workers end after the transaction that they have and the next ones have the new one. New services
//! and other limits take a restart.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config::Config;
use crate::guarded::{self, Unguarded};
use crate::{descendants, log, worker};

/// A thread waits for a connection and then for its worker: it needs little.
const STACK_BYTES: usize = 128 * 1024;
/// After an error of accept(2), such as no free descriptor.
const PAUSE: Duration = Duration::from_millis(200);
/// For which a stop waits for deliveries; longer than any program may run.
const STOP_PATIENCE: Duration = Duration::from_mins(10);

/// Why it cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Unguarded(#[from] Unguarded),
    #[error("{}: {error}", path.display())]
    Path { path: PathBuf, error: io::Error },
    #[error("another stentor-deliver serves {}", .0.display())]
    Running(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs until it is told to stop.
pub fn run(config: &Config, file: PathBuf, text: String) -> Result<(), StartError> {
    let folder = config.sockets.clone();
    let _lock = claim(&folder)?;
    descendants::adopt()?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let crew = Arc::new(Crew { workers: Mutex::default(), client: config.client.uid, file, text: Mutex::new(text) });
    let mut sockets = Vec::new();
    for name in config.services.keys() {
        let path = folder.join(format!("{name}.sock"));
        let listener = bind(&path, config.client.gid)?;
        sockets.push((path, name, Arc::new(listener)));
    }
    for (_, name, listener) in &sockets {
        for _ in 0..config.services[*name].connections_max {
            let (crew, listener, name) = (crew.clone(), listener.clone(), (*name).clone());
            // Ends with the process.
            drop(thread::Builder::new().stack_size(STACK_BYTES).spawn(move || crew.serve(&name, &listener))?);
        }
    }
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        match Config::read(&crew.file) {
            Ok((_, text)) => {
                *crew.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
                crew.ask_to_end();
            }
            Err(error) => log::error(&format!("the configuration stays as it is: {error}")),
        }
    }
    for (path, ..) in sockets {
        let _ = fs::remove_file(path);
    }
    crew.stop();
    Ok(())
}

/// The directory of the sockets, which nobody else may have in use.
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

/// A socket for root and the client's group.
fn bind(path: &Path, gid: u32) -> Result<UnixListener, StartError> {
    let wrong = |error| StartError::Path { path: path.into(), error };
    // One that a former process left; the directory is ours alone.
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
    /// Who may connect beside root.
    client: u32,
    file: PathBuf,
    /// The configuration in force, which workers are given.
    text: Mutex<String>,
}

impl Crew {
    /// One place for a worker: takes connections, one after the other.
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
            log::error(&format!("{name}: a connection of user {peer} was closed"));
            return Ok(());
        }
        let mut child = {
            // Nobody may take a worker for an orphan before it is known.
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut command = Command::new("/proc/self/exe");
            command.arg("--config").arg(&self.file).args([worker::ARGUMENT, name]);
            command.env(worker::TEXT, &*self.text.lock().unwrap_or_else(PoisonError::into_inner));
            let child = command.stdin(OwnedFd::from(stream)).stdout(Stdio::null()).spawn()?;
            workers.insert(Pid::from_child(&child));
            child
        };
        let pid = Pid::from_child(&child);
        let status = child.wait();
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        let status = status?;
        if status.code().is_none() {
            log::error(&format!("{name}: a worker ended: {status}; its connection is lost, the server tries again"));
            let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            descendants::end_orphans(|pid| workers.contains(&pid));
        }
        Ok(())
    }

    fn ask_to_end(&self) {
        for pid in self.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = kill_process(*pid, Signal::TERM);
        }
    }

    fn stop(&self) {
        let begun = Instant::now();
        self.ask_to_end();
        while begun.elapsed() < STOP_PATIENCE && !self.workers.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
