//! Separate threads for the sessions of untrusted clients, with a runtime for each role of listeners. No trusted
//! client, user, delivery or console waits in a task queue behind thousands of untrusted sessions, and no user who logs
//! in waits behind outside mail. The kernel then shares the processors between the kinds of threads, not between the
//! sessions. Within a runtime clients take turns ([`Turns`]). A session that logs in moves to the trusted runtime.
//!
//! A socket is registered with the runtime that accepted it, so it moves before its session begins.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use stentor_config::Role;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

use super::turns::Turns;

/// Processors per thread; the main runtime has one thread per processor, 2 to 8 (`crates/stentor/src/process.rs`).
const CPUS_PER_THREAD: usize = 2;
const THREADS_MAX: usize = 4;

/// The threads of all roles. They and their sessions end when the last clone is dropped.
#[derive(Clone)]
pub struct StrangerThreads {
    strangers: Threads,
    logins: Threads,
}

/// The threads of one role.
#[derive(Clone)]
struct Threads {
    runtime: Arc<RuntimeGuard>,
    turns: Turns,
}

struct RuntimeGuard(Option<Runtime>);

impl StrangerThreads {
    pub fn start() -> io::Result<StrangerThreads> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (processors / CPUS_PER_THREAD).clamp(1, THREADS_MAX);
        // Linux keeps at most 15 octets of a thread's name.
        Ok(StrangerThreads {
            strangers: Threads::start("strangers", threads)?,
            logins: Threads::start("logins", threads)?,
        })
    }

    /// Runs the session that `session` makes from the socket. A socket that cannot change runtimes is closed.
    pub fn spawn<S: Future<Output = ()> + Send + 'static>(
        &self,
        role: Role,
        client: IpAddr,
        socket: TcpStream,
        session: impl FnOnce(TcpStream) -> S + Send + 'static,
    ) {
        let threads = match role {
            Role::Relay => &self.strangers,
            Role::Users => &self.logins,
        };
        let (Some(handle), Ok(socket)) = (threads.handle(), socket.into_std()) else { return };
        let session = async move {
            if let Ok(socket) = TcpStream::from_std(socket) {
                session(socket).await;
            }
        };
        handle.spawn(threads.turns.run(client, session));
    }
}

impl Threads {
    fn start(name: &str, threads: usize) -> io::Result<Threads> {
        let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()?;
        Ok(Threads { runtime: Arc::new(RuntimeGuard(Some(runtime))), turns: Turns::new(threads) })
    }

    fn handle(&self) -> Option<&Handle> {
        self.runtime.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        // Dropping a runtime within another one would block, which tokio does not allow.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
