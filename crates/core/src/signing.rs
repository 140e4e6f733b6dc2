//! DKIM signing threads, one per CPU, and the requests they serve.
//!
//! Promise: requests are signed in order, on at most one thread per CPU, and no session blocks meanwhile. A busy thread
//! takes the next request without a wake-up. Callers limit the number of waiting requests.
//!
//! Threads start with the first request and end when [`SigningThreads`] is dropped. Failure: if they cannot be started,
//! the request fails and the next one tries again.

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
    #[error("cannot start a signing thread: {0}")]
    Thread(io::Error),
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

/// Starts the signing threads and passes requests to them.
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

#[cfg(test)]
mod tests {
    use stentor_dkim::{Algorithm, MessageHash, SigningKey};
    use tokio::task::JoinSet;

    use super::*;

    /// More requests than threads, so that answers are given together.
    #[tokio::test]
    async fn each_of_many_requests_gets_its_own_answer() {
        let mut message = MessageHash::default();
        message.push(b"From: a@example.org\r\n\r\nHi\r\n");
        let (header, body) = message.finish();
        let key = Arc::new(SigningKey::generate(Algorithm::Ed25519Sha256).unwrap().key);
        let signers: Arc<[Signer]> = [Signer { domain: "example.org".into(), selector: "s".into(), key }].into();
        let threads = Arc::new(SigningThreads::default());
        let mut requests = JoinSet::new();
        for n in 0..200 {
            let is_signable = n % 3 > 0;
            let signers = vec![DomainSigners { signers: signers.clone(), expire_s: None }];
            let header = if is_signable { header.clone() } else { b"To: x\r\n".to_vec() };
            let request = SigningRequest { header, body, signers, now_s: n, valid_until_s: 1_000 };
            let threads = threads.clone();
            requests.spawn(async move { (n, is_signable, threads.sign(request).await) });
        }
        while let Some(answered) = requests.join_next().await {
            let (n, is_signable, answer) = answered.unwrap();
            match answer {
                Ok(fields) => {
                    let text = String::from_utf8(fields).unwrap();
                    assert!(is_signable && text.contains(&format!("t={n};")), "{n}: {text}");
                }
                Err(failure) => {
                    assert!(
                        !is_signable && matches!(failure, SigningFailure::Sign(SignError::NoFrom)),
                        "{n}: {failure}"
                    );
                }
            }
        }
    }
}
