//! Requests for DKIM signatures, and the threads that make them, one for each CPU.
//!
//! Promise: sessions go on while their copies are signed, in the order of the requests. A thread takes the next request
//! without being woken while any waits, and never are more threads at work than there are CPUs. Callers limit how many
//! requests wait.
//!
//! The threads start with the first request and end when this is dropped. Failure: if they cannot be started, the
//! request fails, and the next one tries again.

use std::num::NonZero;
use std::sync::Arc;
use std::{io, thread};

use crossbeam_channel::{Receiver, Sender, unbounded};
use stentor_config::DkimDomain;
use stentor_dkim::{BodyDigest, SignError, Signer, Times};
use tokio::sync::{OnceCell, oneshot};

/// Answers given together: the first one wakes a worker of the runtime, and the others find it awake. A wake-up for
/// each took 5 % of the CPU time of a signed copy.
const ANSWERS_MAX: usize = 4;

/// A copy to be signed.
pub struct SigningRequest {
    pub header: Vec<u8>,
    pub body: BodyDigest,
    pub signers: Vec<DomainSigners>,
    /// Seconds since 1970.
    pub now_s: u64,
    /// Until when a signature that the copy already has must be valid, or it gets a new one.
    pub valid_until_s: u64,
}

/// The keys of one domain.
pub struct DomainSigners {
    pub signers: Arc<[Signer]>,
    pub expire_s: Option<u64>,
}

impl From<&DkimDomain> for DomainSigners {
    fn from(domain: &DkimDomain) -> DomainSigners {
        DomainSigners { signers: domain.signers.clone(), expire_s: domain.config.expire_s }
    }
}

/// Why a copy was not signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningFailure {
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("no thread for signatures can be started: {0}")]
    Thread(std::io::Error),
    #[error("the server is stopping")]
    Stopping,
}

impl SigningRequest {
    /// Returns the signature fields; empty if the copy already has valid ones.
    ///
    /// # Errors
    /// The copy cannot be signed.
    pub fn sign(&self) -> Result<Vec<u8>, SignError> {
        let SigningRequest { header, body, now_s, .. } = self;
        let mut signed = Vec::new();
        for DomainSigners { signers, expire_s } in &self.signers {
            // A new signature that would not last as long either is made once the old one has lost half of its time.
            let until_s = expire_s.map_or(self.valid_until_s, |s| self.valid_until_s.min(now_s + s / 2));
            let missing = |one: &&Signer| !stentor_dkim::is_signed_by(header, *body, one, until_s);
            let signers: Vec<Signer> = signers.iter().filter(missing).cloned().collect();
            if !signers.is_empty() {
                let times = Times { signed: *now_s, expires: expire_s.map(|s| now_s + s) };
                signed.extend(stentor_dkim::sign(header, *body, &signers, times)?);
            }
        }
        Ok(signed)
    }
}

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
