//! Separate threads for the sessions of untrusted clients: a runtime of their own, so that no trusted client, delivery
//! or console waits in a task queue behind thousands of them. The kernel then shares the processors between the two
//! kinds of threads, not between the sessions.
//!
//! A socket is registered with the runtime that accepted it, so it moves before its session begins.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle, Runtime};

/// Processors per thread; the main runtime has one thread per processor, 2 to 8 (`crates/stentor/src/process.rs`).
const CPUS_PER_THREAD: usize = 2;
const THREADS_MAX: usize = 4;
/// Linux keeps at most 15 octets of a thread's name.
const THREAD_NAME: &str = "strangers";

/// Ends its sessions' threads when the last clone is dropped.
#[derive(Clone)]
pub struct StrangerThreads(Arc<Owned>);

struct Owned(Option<Runtime>);

impl StrangerThreads {
    pub fn start() -> io::Result<StrangerThreads> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads((processors / CPUS_PER_THREAD).clamp(1, THREADS_MAX))
            .thread_name(THREAD_NAME)
            .enable_all()
            .build()?;
        Ok(StrangerThreads(Arc::new(Owned(Some(runtime)))))
    }

    fn handle(&self) -> Option<&Handle> {
        self.0.0.as_ref().map(Runtime::handle)
    }

    /// Runs what `session` makes of the socket. A socket that cannot change over is closed.
    pub fn spawn<S: Future<Output = ()> + Send + 'static>(
        &self,
        socket: TcpStream,
        session: impl FnOnce(TcpStream) -> S + Send + 'static,
    ) {
        let (Some(handle), Ok(socket)) = (self.handle(), socket.into_std()) else { return };
        handle.spawn(async move {
            if let Ok(socket) = TcpStream::from_std(socket) {
                session(socket).await;
            }
        });
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Dropping a runtime within another one would block that, which tokio does not allow.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
