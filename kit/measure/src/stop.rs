//! Ctrl-C: a flag that long work checks, so that everything is cleaned up before exit.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once by SIGINT, SIGTERM or SIGHUP. The second signal of a kind ends the process at once.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that is never set from outside.
    pub fn never() -> Stop {
        Stop(Arc::new(AtomicBool::new(false)))
    }

    /// From now on the signals set it.
    pub fn on_signals() -> io::Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            // Order matters: the first sees the flag as it was before this signal.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Stop(flag))
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
