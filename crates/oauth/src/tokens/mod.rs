//! Access tokens for smart hosts: cached in memory, requested when needed, by HTTPS from the configured endpoint (RFC
//! 6749).
//!
//! Promise: at most one request at a time per smart host, and none without a login that needs it. A request outlives
//! the session that started it, so that a rotated refresh token is never lost with a session. The file is synced before
//! the access token is used. Time is bounded: [`LOCK_MS_MAX`] for the file's lock, [`REQUEST_MS_MAX`] for the endpoint.
//! The states of a token: [`TokenKeeper`].
//!
//! Failure: an error text with advice and without secrets. A changed file is tried at once. If the file cannot be
//! written, a warning is logged, the new token is used from memory, and the write is retried. After a crash between
//! response and rename, the file has the previous token; if the endpoint no longer accepts it (`invalid_grant`),
//! somebody has to sign in again.

mod files;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_http_client::{Destination, HttpClient, RequestError, form};
use stentor_resolve::Resolver;
use stentor_sasl::Secret;
use stentor_tls::Roots;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout_at;

use self::files::Stamp;
use crate::answer::{ANSWER_BYTES_MAX, Fault, TokenError, TokenResponse};
use crate::keeper::{AccessToken, TokenDecision, TokenKeeper};
use crate::request::TokenRequest;
use crate::settings::{Credential, OauthGrant, SmartHost};

/// Timeout for the endpoint's addresses and its response.
const REQUEST_MS_MAX: u64 = 15_000;
/// Timeout for another process that holds the file: the longest duration of a refresh there.
const LOCK_MS_MAX: u64 = 20_000;
/// Timeout for a token, including all waits.
const TOKEN_MS_MAX: u64 = LOCK_MS_MAX + REQUEST_MS_MAX + 5_000;
/// Wait for running requests at the end of the process.
const SETTLE_MS_MAX: u64 = REQUEST_MS_MAX + 2_000;
/// Pause between two attempts to write a refresh token.
const WRITE_AGAIN_MS: u64 = 60_000;
/// The error after a panic in a request's task.
const PANICKED: &str = "internal error while requesting the access token; see the log";

/// A monotonic clock in milliseconds.
pub type Steady = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Resources for a token request.
#[derive(Clone, Copy)]
pub struct RequestContext<'m> {
    pub resolver: &'m Resolver,
    /// CA roots for token endpoints.
    pub roots: &'m Roots,
    /// The settings in force; tokens of other smart hosts are dropped.
    pub smart_hosts: &'m [SmartHost],
    pub steady: &'m Steady,
}

/// The tokens of all smart hosts.
#[derive(Default)]
pub struct Tokens {
    hosts: Mutex<HashMap<(String, u16), Host>>,
    counts: Arc<Counts>,
    /// Whether the process ends soon, so that an unwritten rotated refresh token would be lost.
    is_brief: bool,
}

#[derive(Default)]
struct Counts {
    refreshed: AtomicU64,
    failed: AtomicU64,
}

struct Host {
    grant: Arc<OauthGrant>,
    source: Arc<tokio::sync::Mutex<Source>>,
}

/// The state of one grant. Locked during use, which limits it to one request at a time.
struct Source {
    grant: Arc<OauthGrant>,
    /// The host's name for the log.
    host: String,
    counts: Arc<Counts>,
    keeper: TokenKeeper,
    /// Stamps of the files as last read or written.
    stamps: GrantStamps,
    unwritten: Option<Unwritten>,
    /// As set by [`Tokens::brief`].
    is_brief: bool,
}

/// A rotated refresh token that is not in its file yet.
struct Unwritten {
    token: Secret,
    try_at: u64,
}

/// Stamps of a grant's files; `None` if there is no such file, or it is inaccessible.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct GrantStamps {
    client_secret: Option<Stamp>,
    refresh_token: Option<Stamp>,
}

/// Resources for asking an endpoint.
struct Asker {
    resolver: Resolver,
    roots: Roots,
    steady: Steady,
}

/// The secrets of a request.
struct Credentials {
    client_secret: Option<Secret>,
    refresh: Option<files::TokenFile>,
}

impl Tokens {
    /// For a command: requests a token only if the refresh token's file can be replaced, as the endpoint may rotate it.
    pub fn brief() -> Tokens {
        Tokens { is_brief: true, ..Tokens::default() }
    }

    /// Waits for running requests at the end of the process, and tries once more to write unwritten tokens.
    pub async fn settle(&self) {
        let until = tokio::time::Instant::now() + Duration::from_millis(SETTLE_MS_MAX);
        let sources: Vec<_> = self.hosts.lock().drain().map(|(_, host)| host.source).collect();
        for source in sources {
            let Ok(mut source) = timeout_at(until, source.lock_owned()).await else { continue };
            let _ = tokio::task::spawn_blocking(move || source.write_unwritten(u64::MAX)).await;
        }
    }

    /// Returns a token for a login: the cached one, or a new one.
    ///
    /// # Errors
    /// Why there is none now.
    pub async fn token(
        &self,
        context: RequestContext<'_>,
        host: &SmartHost,
        grant: &Arc<OauthGrant>,
    ) -> Result<AccessToken, String> {
        let until = tokio::time::Instant::now() + Duration::from_millis(TOKEN_MS_MAX);
        let source = timeout_at(until, self.source(context, host, grant).lock_owned()).await;
        let mut source =
            source.map_err(|_| "no access token: another login has been requesting one for too long".to_owned())?;
        source.follow(grant);
        if let TokenDecision::Use(token) = source.keeper.decision((context.steady)()) {
            return Ok(token);
        }
        let (resolver, roots) = (context.resolver.clone(), context.roots.clone());
        let asker = Asker { resolver, roots, steady: context.steady.clone() };
        // The request continues even if this session ends.
        let renewed = timeout_at(until, tokio::spawn(renew(source, asker))).await;
        let renewed = renewed.map_err(|_| "no access token: its files or the endpoint do not respond".to_owned())?;
        renewed.unwrap_or_else(|_| Err(PANICKED.to_owned()))
    }

    /// Records that a smart host refused the token of this generation. Returns whether another login is worthwhile.
    pub async fn refused(&self, host: &SmartHost, generation: u64, now: u64) -> bool {
        let Credential::Oauth(grant) = &host.credential else { return false };
        let source = {
            let hosts = self.hosts.lock();
            let known = hosts.get(&(host.host.clone(), host.port)).filter(|known| known.grant == *grant);
            known.map(|known| known.source.clone())
        };
        // Changed settings have another token.
        let Some(source) = source else { return false };
        source.lock().await.keeper.refused(generation, now)
    }

    /// Requests with and without a token, since the start.
    pub fn counts(&self) -> (u64, u64) {
        (self.counts.refreshed.load(Ordering::Relaxed), self.counts.failed.load(Ordering::Relaxed))
    }

    fn source(
        &self,
        context: RequestContext<'_>,
        host: &SmartHost,
        grant: &Arc<OauthGrant>,
    ) -> Arc<tokio::sync::Mutex<Source>> {
        let key = (host.host.clone(), host.port);
        let mut hosts = self.hosts.lock();
        if let Some(known) = hosts.get_mut(&key) {
            known.grant.clone_from(grant);
            return known.source.clone();
        }
        // Drop hosts that are no longer configured; one with a replaced grant may still have a refresh token to write.
        hosts.retain(|(name, port), _| {
            let credential = SmartHost::find(context.smart_hosts, name, *port).map(|host| &host.credential);
            matches!(credential, Some(Credential::Oauth(_)))
        });
        let source = Source {
            grant: grant.clone(),
            host: format!("{}:{}", host.host, host.port),
            counts: self.counts.clone(),
            keeper: TokenKeeper::default(),
            stamps: GrantStamps::default(),
            unwritten: None,
            is_brief: self.is_brief,
        };
        let source = Arc::new(tokio::sync::Mutex::new(source));
        hosts.insert(key, Host { grant: grant.clone(), source: source.clone() });
        source
    }

    /// Retries failed writes of refresh tokens. Called once a second.
    pub fn write_again(&self, now: u64) {
        let sources: Vec<_> = self.hosts.lock().values().map(|host| host.source.clone()).collect();
        for source in sources {
            // The holder of the lock is refreshing, and will write it.
            let Ok(mut source) = source.try_lock_owned() else { continue };
            if source.unwritten.as_ref().is_some_and(|unwritten| unwritten.try_at <= now) {
                drop(tokio::task::spawn_blocking(move || source.write_unwritten(now)));
            }
        }
    }
}

/// Requests a token, unless another session has got one meanwhile, or it is too early.
async fn renew(mut source: OwnedMutexGuard<Source>, asker: Asker) -> Result<AccessToken, String> {
    let decision = source.keeper.decision((asker.steady)());
    if let TokenDecision::Use(token) = decision {
        return Ok(token);
    }
    // Files are read on a blocking thread.
    let read = tokio::task::spawn_blocking(move || {
        let credentials = source.credentials(decision);
        (source, credentials)
    });
    let Ok((mut source, credentials)) = read.await else { return Err(PANICKED.to_owned()) };
    let credentials = credentials?;
    let asked_at = (asker.steady)();
    let asked = source.ask(&asker, &credentials).await;
    let now = (asker.steady)();
    let ended = tokio::task::spawn_blocking(move || match asked {
        Ok(answer) => source.issued(answer, credentials, asked_at, now),
        Err((refusal, retry_after_s)) => Err(source.failed(&refusal, retry_after_s, now)),
    });
    ended.await.unwrap_or_else(|_| Err(PANICKED.to_owned()))
}

impl Source {
    /// Adopts a grant changed by a reload, which invalidates its tokens. An unwritten refresh token is kept if the file
    /// is the same.
    fn follow(&mut self, grant: &Arc<OauthGrant>) {
        if self.grant == *grant {
            return;
        }
        if self.grant.refresh_token_file != grant.refresh_token_file {
            (self.unwritten, self.stamps) = (None, GrantStamps::default());
        }
        // Generations continue, so that an old token is never mistaken for a new one.
        self.keeper.forget();
        self.grant = grant.clone();
    }

    fn seen_now(&self) -> GrantStamps {
        let stamp = |path: &Option<PathBuf>| path.as_deref().and_then(files::stamp);
        GrantStamps {
            client_secret: stamp(&self.grant.client_secret_file),
            refresh_token: stamp(&self.grant.refresh_token_file),
        }
    }

    /// Reads the credentials, or returns why no request is made now. Blocks.
    fn credentials(&mut self, decision: TokenDecision) -> Result<Credentials, String> {
        // Taken before reading, so that later changes are seen the next time.
        let stamps = self.seen_now();
        if let TokenDecision::Wait(why) = decision {
            if stamps == self.stamps {
                return Err(why);
            }
            self.keeper.retry();
        }
        let read = self.read(Instant::now() + Duration::from_millis(LOCK_MS_MAX));
        if self.unwritten.is_some() && stamps.refresh_token != self.stamps.refresh_token {
            tracing::info!(host = self.host, "refresh token file replaced; using it");
            self.unwritten = None;
        }
        self.stamps = stamps;
        // Not a failure of the endpoint: it was not asked, and the next login only checks the files.
        read.inspect_err(|why| tracing::warn!(host = self.host, "no access token: {why}"))
    }

    fn read(&self, until: Instant) -> Result<Credentials, String> {
        let client_secret = self.grant.client_secret_file.as_deref().map(files::read).transpose()?;
        let refresh = self.grant.refresh_token_file.as_deref().map(|path| files::open(path, until)).transpose()?;
        if let Some(file) = refresh.as_ref().filter(|_| self.is_brief) {
            file.can_be_replaced().map_err(|error| {
                format!(
                    "not requested: the endpoint may rotate the refresh token, but this user cannot replace its file \
                     ({error}); run this as the server's user"
                )
            })?;
        }
        Ok(Credentials { client_secret, refresh })
    }

    /// The refresh token to use: an unwritten one is newer than the file's.
    fn refresh_token<'s>(&'s self, credentials: &'s Credentials) -> Option<&'s Secret> {
        let unwritten = self.unwritten.as_ref().map(|unwritten| &unwritten.token);
        credentials.refresh.as_ref().map(|file| unwritten.unwrap_or(&file.line))
    }

    /// Asks the endpoint. The error includes its Retry-After.
    async fn ask(&self, asker: &Asker, credentials: &Credentials) -> Result<TokenResponse, (TokenError, Option<u64>)> {
        let endpoint = |text: String| (TokenError { fault: Fault::Endpoint, text }, None);
        let grant = &*self.grant;
        let until = tokio::time::Instant::now() + Duration::from_millis(REQUEST_MS_MAX);
        let refresh_token = self.refresh_token(credentials);
        let request = TokenRequest {
            client_id: &grant.client_id,
            client_secret: credentials.client_secret.as_ref(),
            refresh_token,
            scope: grant.scope.as_deref(),
        };
        let addresses = addresses(&asker.resolver, &grant.token_url.host, until).await.map_err(endpoint)?;
        let (host, port) = (&*grant.token_url.host, grant.token_url.port);
        let destination = Destination { host, port, addresses: Some(&addresses), allows_private: true, is_tls: true };
        let client = HttpClient::new(&asker.roots).map_err(|error| endpoint(format!("TLS: {error}")))?;
        let request = form(&grant.token_url.uri, request.form());
        let failed = |failure: RequestError| endpoint(failure.to_string());
        let answer = client.send(&destination, request, until).await.map_err(failed)?;
        let (status, retry_after_s) = (answer.status.as_u16(), answer.retry_after_s());
        let body = answer.read(ANSWER_BYTES_MAX, until).await.map_err(failed)?;
        let secrets = [credentials.client_secret.as_ref(), refresh_token].map(|one| one.map_or("", Secret::expose));
        TokenResponse::parse(status, &body, &secrets).map_err(|refusal| (refusal, retry_after_s))
    }

    /// Handles an issued token: writes a new refresh token before it is used. Blocks.
    fn issued(
        &mut self,
        answer: TokenResponse,
        credentials: Credentials,
        asked_at: u64,
        now: u64,
    ) -> Result<AccessToken, String> {
        let rotated = answer.refresh_token.clone().filter(|new| Some(new) != self.refresh_token(&credentials));
        let to_write = rotated.or_else(|| self.unwritten.take().map(|unwritten| unwritten.token));
        if let (Some(token), Some(file)) = (to_write, &credentials.refresh) {
            self.write(file, token, now);
        }
        // The file is locked up to here.
        drop(credentials);
        if self.is_brief && self.unwritten.is_some() {
            return Err(
                "the endpoint rotated the refresh token, but its file could not be replaced: sign in again".to_owned()
            );
        }
        let secret = answer.access_token.map_err(|refusal| self.failed(&refusal, None, now))?;
        self.counts.refreshed.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            host = self.host,
            expires_in_s = answer.expires_in_s,
            "new access token from {}",
            self.grant.token_url.host
        );
        Ok(self.keeper.issued(secret, answer.expires_in_s, asked_at))
    }

    fn write(&mut self, file: &files::TokenFile, token: Secret, now: u64) {
        match file.replace(&token) {
            Ok(()) => {
                self.unwritten = None;
                self.stamps.refresh_token = self.seen_now().refresh_token;
                tracing::info!(host = self.host, "the endpoint rotated the refresh token; its file was updated");
            }
            Err(error) => {
                let path = self.grant.refresh_token_file.as_deref().unwrap_or(Path::new(""));
                tracing::warn!(
                    host = self.host,
                    "the endpoint rotated the refresh token, but {} cannot be replaced: {error}; the new token is \
                     only in memory, and lost when the server stops: make the server's user the owner of the file and \
                     its directory",
                    path.display()
                );
                self.unwritten = Some(Unwritten { token, try_at: now.saturating_add(WRITE_AGAIN_MS) });
            }
        }
    }

    /// Retries the write. Blocks.
    fn write_unwritten(&mut self, now: u64) {
        let Some(path) = self.grant.refresh_token_file.clone() else { return };
        let is_replaced = self.seen_now().refresh_token != self.stamps.refresh_token;
        let Some(unwritten) = &mut self.unwritten else { return };
        unwritten.try_at = now.saturating_add(WRITE_AGAIN_MS);
        // The operator's file is newer: the next login uses it.
        if is_replaced {
            return;
        }
        let token = unwritten.token.clone();
        if let Ok(file) = files::open(&path, Instant::now()) {
            self.write(&file, token, now);
        }
    }

    /// Counts and logs a failure. Returns why there is no token, with [`Source::advice`].
    fn failed(&mut self, refusal: &TokenError, retry_after_s: Option<u64>, now: u64) -> String {
        let (host, why) = (&self.grant.token_url.host, refusal.text.trim_end_matches('.'));
        let text = format!("no access token from {host}: {why}{}", self.advice(refusal.fault));
        let mut octets = [0; 4];
        // Retries also work without random numbers, but hosts that fail together then retry together.
        let chance =
            getrandom::fill(&mut octets).map_or(0.5, |()| f64::from(u32::from_ne_bytes(octets)) / f64::from(u32::MAX));
        self.keeper.failed(&TokenError { fault: refusal.fault, text: text.clone() }, retry_after_s, now, chance);
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(host = self.host, "{text}");
        text
    }

    /// Advice to append to the error; empty if nobody here can help.
    fn advice(&self, fault: Fault) -> String {
        let grant = &*self.grant;
        let file = |path: Option<&PathBuf>| path.map(|path| path.display().to_string());
        match (fault, file(grant.refresh_token_file.as_ref()), file(grant.client_secret_file.as_ref())) {
            (Fault::Grant, Some(file), _) => format!("; sign in again and write the new refresh token to {file}"),
            (Fault::Client, _, Some(file)) => format!("; check client_id and the secret in {file}"),
            (Fault::Client | Fault::Grant, ..) => "; check client_id and the client's permissions".to_owned(),
            (Fault::Scope, ..) => "; check scope".to_owned(),
            (Fault::Request | Fault::Endpoint, ..) => String::new(),
        }
    }
}

async fn addresses(resolver: &Resolver, host: &str, until: tokio::time::Instant) -> Result<Vec<IpAddr>, String> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![ip]);
    }
    let found = timeout_at(until, resolver.ips(host)).await;
    found.unwrap_or_else(|_| Err("no answer in time".to_owned())).map_err(|why| format!("{host}: {why}"))
}

#[cfg(test)]
mod tests;
