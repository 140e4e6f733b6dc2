//! DKIM signing of what is sent: which domains sign a copy, and the work that copies share.
//!
//! Promise: a copy is signed by the domain of its author, if the message comes from a trusted client, a user or this
//! server, and by the domain of its list. The nearest configured domain signs: `a.example.org` before `example.org`.
//! Domains with `every` sign it besides.
//! Mail of untrusted clients is never signed for its author: anyone can write any From.
//!
//! A body is hashed once for each form in which it is sent. At most [`TURNS_PER_CPU`] copies per CPU are signed at a
//! time ([`super::signing`]), and only these hold a header in memory; further copies wait in order.
//!
//! Failure: a copy that should be signed and cannot be is deferred by the caller. It is never sent unsigned, unless its
//! domain has no key yet: the server makes it, and its record is not in DNS.

use std::hash::BuildHasher;
use std::num::NonZero;
use std::sync::Arc;

use hashbrown::HashMap;
use lru::LruCache;
use parking_lot::Mutex;
use stentor_config::{DkimConfig, DkimDomain};
use stentor_dkim::BodyDigest;
use stentor_queue::ids::ContentId;
use stentor_records::record::WireChanges;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use crate::rotating_keys::RotatingKeys;
use crate::signing::SigningThreads;
pub use crate::signing::{DomainSigners, SigningFailure, SigningRequest};

/// Body hashes kept, about 200 octets each.
const BODIES_MAX: NonZero<usize> = NonZero::new(4_096).unwrap();
/// Copies per CPU being signed, having their header read, or waiting for an answer that is given together with others
/// ([`super::signing`]). With one turn per CPU a quarter of the CPU time was idle.
const TURNS_PER_CPU: usize = 12;
/// Usual domains that sign a copy: author's, list's, and one for complaints.
const SIGNING_USUAL: usize = 3;

/// The domains that sign, with their keys; replaced by a reload.
#[derive(Default)]
pub struct DkimDomains {
    domains: HashMap<Box<str>, DkimDomain, foldhash::fast::RandomState>,
    /// Names of those that sign all mail, sorted.
    every: Vec<Box<str>>,
}

impl DkimDomains {
    pub fn new(domains: Vec<DkimDomain>) -> DkimDomains {
        let every = domains.iter().filter(|one| one.config.every);
        let mut every: Vec<Box<str>> = every.map(|one| one.config.domain.as_str().into()).collect();
        every.sort_unstable();
        DkimDomains {
            domains: domains.into_iter().map(|one| (one.config.domain.as_str().into(), one)).collect(),
            every,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Returns the domains that sign a copy. `author`: the domain of From, if it may be signed for; `list`: the domain
    /// of the list's address. Both in ASCII and lower case.
    pub fn signing(&self, author: Option<&str>, list: Option<&str>) -> Vec<&DkimDomain> {
        let mut signing: Vec<&DkimDomain> = Vec::with_capacity(SIGNING_USUAL);
        let list = list.and_then(|domain| self.of_list(domain));
        let every = self.every.iter().filter_map(|name| self.domains.get(name));
        for found in author.and_then(|domain| self.of_author(domain)).into_iter().chain(list).chain(every) {
            if !signing.iter().any(|other| std::ptr::eq(*other, found)) {
                signing.push(found);
            }
        }
        signing
    }

    pub fn iter(&self) -> impl Iterator<Item = &DkimDomain> {
        self.domains.values()
    }

    /// Returns the domain that signs for an author.
    pub fn of_author(&self, domain: &str) -> Option<&DkimDomain> {
        self.nearest(domain, |config| config.authors)
    }

    /// Returns the domain that signs for a list.
    pub fn of_list(&self, domain: &str) -> Option<&DkimDomain> {
        self.nearest(domain, |config| config.lists)
    }

    fn nearest(&self, domain: &str, signs: impl Fn(&DkimConfig) -> bool) -> Option<&DkimDomain> {
        let mut name = domain;
        loop {
            let found = self.domains.get(name);
            if let Some(found) = found.filter(|found| found.config.covers(domain) && signs(&found.config)) {
                return Some(found);
            }
            (_, name) = name.split_once('.')?;
        }
    }
}

/// A body as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BodyForm {
    pub content: ContentId,
    pub recoded: WireChanges,
    /// Characters that cannot be converted are replaced.
    pub is_lossy: bool,
    /// Hash of the fields that precede the content, since a conversion depends on the header; 0 without one.
    prefix: u64,
}

impl BodyForm {
    pub fn new(content: ContentId, recoded: WireChanges, is_lossy: bool, prefix: &[u8]) -> BodyForm {
        let is_converted = recoded != WireChanges::default();
        let hash = |octets: &[u8]| foldhash::quality::FixedState::default().hash_one(octets);
        BodyForm { content, recoded, is_lossy, prefix: if is_converted { hash(prefix) } else { 0 } }
    }
}

/// A body's hash, made by the first copy that needs it while others wait.
pub type SharedDigest = Arc<OnceCell<BodyDigest>>;

/// The work of signing.
pub struct DkimWork {
    digests: Mutex<LruCache<BodyForm, SharedDigest, foldhash::fast::RandomState>>,
    turns: Semaphore,
    threads: SigningThreads,
    /// Keys that the server makes and replaces.
    pub rotating: RotatingKeys,
}

impl Default for DkimWork {
    fn default() -> DkimWork {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        DkimWork {
            digests: Mutex::new(LruCache::with_hasher(BODIES_MAX, foldhash::fast::RandomState::default())),
            turns: Semaphore::new(cpus * TURNS_PER_CPU),
            threads: SigningThreads::default(),
            rotating: RotatingKeys::default(),
        }
    }
}

impl DkimWork {
    /// Returns the keys with which a domain signs now: those that the server has made, once they are in use, else those
    /// that the configuration names. `None`: there are none, and mail is not signed.
    pub fn signers(&self, domain: &DkimDomain) -> Option<DomainSigners> {
        let own = domain.config.rotation.as_ref().and_then(|_| self.rotating.signers(&domain.config.domain));
        let signers = own.unwrap_or_else(|| domain.signers.clone());
        (!signers.is_empty()).then_some(DomainSigners { signers, expire_s: domain.config.expire_s })
    }

    /// Names of the domains without keys: those that the server makes are not in use yet.
    pub fn domains_without_keys(&self, domains: &DkimDomains) -> Vec<String> {
        let without = domains.iter().filter(|one| self.signers(one).is_none());
        without.map(|one| one.config.domain.clone()).collect()
    }

    /// Returns the place of a body's hash.
    pub fn digest(&self, form: BodyForm) -> SharedDigest {
        self.digests.lock().get_or_insert(form, SharedDigest::default).clone()
    }

    /// Waits for a copy's turn, which lasts until the permit is dropped. Taken before its header is read.
    ///
    /// # Errors
    /// The server is stopping.
    pub async fn turn(&self) -> Result<SemaphorePermit<'_>, SigningFailure> {
        self.turns.acquire().await.map_err(|_| SigningFailure::Stopping)
    }

    /// Returns the signature fields of a copy; empty if it already has valid ones. Called within its
    /// [turn](Self::turn).
    ///
    /// # Errors
    /// The copy cannot be signed.
    pub async fn sign(&self, request: SigningRequest) -> Result<Vec<u8>, SigningFailure> {
        self.threads.sign(request).await
    }
}

#[cfg(test)]
mod tests {
    use stentor_config::DkimRotation;
    use stentor_dkim::{Algorithm, MessageHash, SignError, Signer, SigningKey};

    use super::*;

    fn domain(name: &str, change: impl FnOnce(&mut DkimConfig)) -> DkimDomain {
        let mut config = DkimConfig {
            domain: name.to_owned(),
            keys: Vec::new(),
            rotation: None,
            subdomains: true,
            authors: true,
            lists: true,
            every: false,
            expire_s: None,
        };
        change(&mut config);
        let key = Arc::new(SigningKey::generate(Algorithm::Ed25519Sha256).unwrap().key);
        DkimDomain { config, signers: [Signer { domain: name.into(), selector: "s".into(), key }].into() }
    }

    #[test]
    fn the_nearest_domain_signs() {
        let domains = DkimDomains::new(vec![
            domain("example.org", |_| {}),
            domain("lists.example.org", |config| config.authors = false),
            domain("x.example", |config| config.subdomains = false),
            domain("every.example", |config| (config.every, config.lists, config.authors) = (true, false, false)),
        ]);
        let signing = |author, list| {
            let all = domains.signing(author, list);
            all.iter().map(|one| one.config.domain.as_str()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(signing(Some("example.org"), None), "example.org every.example");
        assert_eq!(signing(Some("a.b.example.org"), None), "example.org every.example");
        assert_eq!(signing(Some("lists.example.org"), None), "example.org every.example");
        assert_eq!(signing(Some("a.example"), Some("lists.example.org")), "lists.example.org every.example");
        assert_eq!(
            signing(Some("example.org"), Some("lists.example.org")),
            "example.org lists.example.org every.example"
        );
        assert_eq!(signing(Some("example.org"), Some("example.org")), "example.org every.example");
        assert_eq!(signing(Some("a.x.example"), Some("anexample.org")), "every.example");
        assert_eq!(signing(None, None), "every.example");
    }

    #[tokio::test]
    async fn a_copy_is_signed_once_by_each_key() {
        let work = DkimWork::default();
        let domains = DkimDomains::new(vec![domain("example.org", |_| {})]);
        let mut message = MessageHash::default();
        message.push(b"From: a@example.org\r\n\r\nHi\r\n");
        let (header, body) = message.finish();
        let signers = || domains.signing(Some("example.org"), None).into_iter().map(DomainSigners::from).collect();
        let request = |header: &[u8]| SigningRequest {
            header: header.to_vec(),
            body,
            signers: signers(),
            now_s: 9,
            valid_until_s: 100,
        };
        let signed = work.sign(request(&header)).await.unwrap();
        assert!(signed.starts_with(b"DKIM-Signature: v=1; a=ed25519-sha256;"));
        let again = work.sign(request(&[&signed[..], &header].concat())).await.unwrap();
        assert!(again.is_empty(), "signed already");
        let stale = [&signed[..], b"Subject: new\r\n", &header].concat();
        assert!(!work.sign(request(&stale)).await.unwrap().is_empty(), "the old signature no longer covers it");
        assert!(matches!(work.sign(request(b"To: x\r\n")).await, Err(SigningFailure::Sign(SignError::NoFrom))));
    }

    #[tokio::test]
    async fn a_signature_that_expires_too_soon_is_renewed() {
        let work = DkimWork::default();
        let mut message = MessageHash::default();
        message.push(b"From: a@example.org\r\n\r\nHi\r\n");
        let (header, body) = message.finish();
        // One key, so that only the times differ.
        let one = domain("example.org", |_| {});
        let request = |header: &[u8], expire_s, now_s, valid_until_s| {
            let signers = vec![DomainSigners { signers: one.signers.clone(), expire_s }];
            SigningRequest { header: header.to_vec(), body, signers, now_s, valid_until_s }
        };
        let signed = work.sign(request(&header, Some(60), 9, 1_000)).await.unwrap();
        assert!(String::from_utf8(signed.clone()).unwrap().contains("t=9; x=69;"));
        let signed = [&signed[..], &header].concat();
        let renews = async |expire_s, now_s, valid_until_s| {
            !work.sign(request(&signed, expire_s, now_s, valid_until_s)).await.unwrap().is_empty()
        };
        assert!(!renews(None, 10, 68).await && renews(None, 10, 69).await, "it must last until then");
        assert!(!renews(Some(60), 38, 1_000).await, "a new one would expire too");
        assert!(renews(Some(60), 39, 1_000).await, "less than half of its time is left");
        assert!(!renews(Some(60), 39, 50).await, "but that is enough");
    }

    #[test]
    fn keys_that_the_server_makes_sign_once_they_are_in_use() {
        let work = DkimWork::default();
        let fixed = domain("example.org", |_| {});
        assert_eq!(work.signers(&fixed).unwrap().signers, fixed.signers);
        let (rotate_ms, publish_wait_ms, retire_wait_ms) = (1, 1, 1);
        let rotation = DkimRotation { rotate_ms, publish_wait_ms, retire_wait_ms, publish_command: Vec::new() };
        let moving = domain("x.example", |config| config.rotation = Some(rotation));
        let made = DkimDomain { signers: Arc::new([]), ..moving.clone() };
        assert!(work.signers(&made).is_none());
        let all = DkimDomains::new(vec![made.clone(), fixed.clone()]);
        assert_eq!(work.domains_without_keys(&all), ["x.example"]);
        assert_eq!(work.signers(&moving).unwrap().signers, moving.signers, "the file's key until then");
        work.rotating.use_signers("x.example", fixed.signers.clone());
        for domain in [&made, &moving] {
            assert_eq!(work.signers(domain).unwrap().signers, fixed.signers);
        }
        work.rotating.retain(|_| false);
        assert!(work.signers(&made).is_none());
    }

    #[test]
    fn hashes_are_shared_by_copies_in_the_same_form() {
        let work = DkimWork::default();
        let form = |content, seven_bit, prefix: &[u8]| {
            work.digest(BodyForm::new(ContentId(content), WireChanges { seven_bit, lines: false }, false, prefix))
        };
        let first = form(1, false, b"a");
        assert!(Arc::ptr_eq(&first, &form(1, false, b"b")), "a prefix does not change an unconverted body");
        assert!(!Arc::ptr_eq(&first, &form(2, false, b"a")) && !Arc::ptr_eq(&first, &form(1, true, b"a")));
        assert!(!Arc::ptr_eq(&form(1, true, b"a"), &form(1, true, b"b")));
        for content in 10..10 + 2 * BODIES_MAX.get() as u64 {
            form(content, false, b"");
        }
        assert_eq!(work.digests.lock().len(), BODIES_MAX.get());
    }
}
