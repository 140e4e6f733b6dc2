//! The threads that sign copies with DKIM, one for each CPU, so that no session waits for a signature of another.
//!
//! Promise: copies are signed in the order of their requests. A thread takes the next request without being woken while
//! any waits, and never are more threads at work than there are CPUs. Callers limit how many requests wait.
//!
//! The threads start with the first request and end when this is dropped. Failure: if they cannot be started, the
//! request fails, and the next one tries again.

use std::num::NonZero;
use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, unbounded};
use stentor_dkim::SignError;
use tokio::sync::{OnceCell, oneshot};

use crate::dkim::{SigningFailure, SigningRequest};

/// Answers given together: the first one wakes a worker of the runtime, and the others find it awake. A wake-up for
/// each took 5 % of the CPU time of a signed copy.
const ANSWERS_MAX: usize = 4;

struct SigningJob {
    request: SigningRequest,
    answer: oneshot::Sender<Result<Vec<u8>, SignError>>,
}

/// See the module.
#[derive(Default)]
pub struct SigningThreads(OnceCell<Sender<SigningJob>>);

impl SigningThreads {
    /// Returns the signature fields of a copy; empty if it already has valid ones.
    ///
    /// # Errors
    /// The copy cannot be signed, or no thread can be started.
    pub async fn sign(&self, request: SigningRequest) -> Result<Vec<u8>, SigningFailure> {
        let jobs = self.0.get_or_try_init(async || start()).await.map_err(SigningFailure::Thread)?;
        let (answer, signed) = oneshot::channel();
        jobs.send(SigningJob { request, answer }).map_err(|_| SigningFailure::Stopping)?;
        signed.await.map_err(|_| SigningFailure::Stopping)?.map_err(SigningFailure::Sign)
    }
}

fn start() -> io::Result<Sender<SigningJob>> {
    let (jobs, waiting) = unbounded();
    for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
        let waiting = waiting.clone();
        thread::Builder::new().name("dkim".to_owned()).spawn(move || run(&waiting))?;
    }
    Ok(jobs)
}

fn run(waiting: &Receiver<SigningJob>) {
    let mut signed = Vec::with_capacity(ANSWERS_MAX);
    for SigningJob { request, answer } in waiting {
        signed.push((answer, request.sign()));
        if signed.len() >= ANSWERS_MAX || waiting.is_empty() {
            // A session that has ended meanwhile needs no answer.
            signed.drain(..).for_each(|(answer, fields)| drop(answer.send(fields)));
        }
    }
}
