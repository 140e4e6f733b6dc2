//! What would happen to mail for one host now, as far as TLS is concerned: a session in which nothing is sent.
//!
//! Promise: the host is judged as a delivery judges it ([`Protection`]), by what this very session shows and not by what is
//! remembered. Every wait has a delivery's deadlines.
//!
//! Failure: whatever goes wrong is the verdict, in the words that a record would have.

use std::io;
use std::time::Duration;

use stentor_mail::client::{ClientError, ClientEvent, ClientSession, TlsStage, TlsUse, Unsecured};
use stentor_queue::ids::Ms;
use stentor_queue::site::{Endpoint, Target};
use stentor_sched::{Enhanced, NoSession};
use stentor_tls::Facts;
use tokio::io::Interest;

use super::ending::{for_site, no_session};
use super::opening::plain;
use super::protection::Protection;
use super::stream::Stream;
use crate::clock::Clock;
use crate::core::Settings;

const READ_BYTES: usize = 4 * 1024;
/// Without anything awaited a session has no deadline.
const FAR_MS: Ms = 3_600_000;

/// How mail would go to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goes {
    /// Encrypted, and the host has proven who it is.
    Proven,
    /// Encrypted; why nothing is proven.
    Encrypted(String),
    /// In clear, and why.
    Clear(String),
    /// Not now, and why.
    Not(String),
    /// Not at all: it lacks what REQUIRETLS demands. Where all hosts do, the mail is returned with this code.
    Unfit(Enhanced, String),
}

/// What one session has shown.
#[derive(Debug)]
pub struct HostCheck {
    pub is_connected: bool,
    /// The TLS that came to be.
    pub facts: Option<Box<Facts>>,
    /// Offered before TLS; `None`: not known, or TLS came first.
    pub offers_starttls: Option<bool>,
    /// Offered in the end.
    pub offers_require_tls: bool,
    pub goes: Goes,
}

/// Looks at the host.
pub async fn host(settings: &Settings, clock: &Clock, target: &Target) -> HostCheck {
    let mut check = HostCheck {
        is_connected: false,
        facts: None,
        offers_starttls: None,
        offers_require_tls: false,
        goes: Goes::Not("the session ended before it began".to_owned()),
    };
    match Probe::open(settings, clock, target, &mut check.is_connected).await {
        Ok(mut probe) => {
            let goes = probe.look(settings, target, &mut check).await;
            check.goes = goes;
            check.facts = probe.protection.take_facts();
        }
        Err(goes) => check.goes = goes,
    }
    check
}

/// No session: not now, or not at all, as the scheduler would hear it.
fn goes_not((why, error): (NoSession, Option<&ClientError>), target: &Target, text: String) -> Goes {
    match for_site(why, error, target) {
        NoSession::Unfit { dsn } => Goes::Unfit(dsn, text),
        _ => Goes::Not(text),
    }
}

struct Probe {
    clock: Clock,
    stream: Stream,
    smtp: ClientSession,
    protection: Protection,
    out_at: usize,
}

impl Probe {
    async fn open(settings: &Settings, clock: &Clock, target: &Target, is_connected: &mut bool) -> Result<Probe, Goes> {
        let no_tls = |text: String| goes_not((NoSession::Tls, None), target, text);
        let mut protection = Protection::of(settings, target, None).map_err(|error| no_tls(error.to_string()))?;
        let source_no = settings.config.sending.sources.iter().position(|source| match &target.addr {
            Endpoint::Tcp(addr) if addr.is_ipv4() => source.v4.is_some(),
            Endpoint::Tcp(_) => source.v6.is_some(),
            Endpoint::Unix(_) => true,
        });
        let source_no = source_no.unwrap_or(0);
        let source = settings.config.sending.sources.get(source_no);
        let limit = Duration::from_millis(settings.config.delivery.connect_timeout_ms);
        let mut stream = match tokio::time::timeout(limit, Stream::open(&target.addr, source)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Goes::Not(plain(&error))),
            Err(_) => return Err(Goes::Not("Connection timed out".to_owned())),
        };
        *is_connected = true;
        if protection.tls() == TlsUse::Implicit {
            let deadline = clock.steady_instant(clock.steady() + settings.config.protection.handshake_timeout_ms);
            let made = protection.handshake(stream, settings, target, deadline).await;
            stream = made.map_err(|error| no_tls(format!("TLS failed: {error}")))?;
        }
        let mut smtp = ClientSession::new(settings.client_for(source_no as u8, target), clock.steady());
        smtp.protect(protection.tls(), false);
        Ok(Probe { clock: clock.clone(), stream, smtp, protection, out_at: 0 })
    }

    /// Goes as far as a session that is ready for mail.
    async fn look(&mut self, settings: &Settings, target: &Target, check: &mut HostCheck) -> Goes {
        let mut in_clear = None;
        loop {
            match self.next().await {
                Some(ClientEvent::Unsecured(why)) => {
                    check.offers_starttls = Some(matches!(why, Unsecured::Refused(_)));
                    in_clear = Some(why.to_string());
                }
                Some(ClientEvent::StartTls) => {
                    check.offers_starttls = Some(true);
                    self.secure(settings, target).await;
                }
                Some(ClientEvent::Ready(_)) => {
                    check.offers_require_tls = self.smtp.caps().require_tls() && self.smtp.is_secured();
                    let goes = self.goes(target, check.offers_require_tls, in_clear);
                    self.smtp.quit(self.clock.steady());
                    while self.next().await.is_some() {}
                    return goes;
                }
                Some(ClientEvent::Closed { error }) => {
                    match error {
                        Some(ClientError::TlsNotOffered) => check.offers_starttls = Some(false),
                        Some(ClientError::TlsRefused(_)) => check.offers_starttls = Some(true),
                        _ => {}
                    }
                    let (error, stage) = (error.as_ref(), self.smtp.tls_stage());
                    let why = error.map_or_else(|| "the session ended before it began".to_owned(), ToString::to_string);
                    let is_tls = matches!(stage, TlsStage::Asked | TlsStage::Handshake | TlsStage::Hello);
                    if is_tls && self.protection.allows_clear() {
                        return Goes::Clear(why);
                    }
                    return goes_not((no_session(error, stage), error), target, why);
                }
                Some(_) => {}
                None => return Goes::Not("the session ended before it began".to_owned()),
            }
        }
    }

    fn goes(&self, target: &Target, has_require_tls: bool, in_clear: Option<String>) -> Goes {
        if let Some((dsn, why)) = self.protection.lacks_of_site(target, has_require_tls) {
            return Goes::Unfit(dsn, why);
        }
        match self.protection.facts() {
            Some(facts) if facts.proven.is_proven() => Goes::Proven,
            Some(facts) => Goes::Encrypted(facts.proven.to_string()),
            None => Goes::Clear(in_clear.unwrap_or_else(|| "TLS is not used with this host".to_owned())),
        }
    }

    /// Makes the handshake. It ends the session if it fails.
    async fn secure(&mut self, settings: &Settings, target: &Target) {
        if self.smtp.is_closed() {
            return;
        }
        let stream = std::mem::replace(&mut self.stream, Stream::Gone);
        let deadline = self.clock.steady_instant(self.smtp.deadline());
        match self.protection.handshake(stream, settings, target, deadline).await {
            Ok(stream) => {
                self.stream = stream;
                // It waits for nothing else.
                let _ = self.smtp.secured(self.clock.steady());
            }
            Err(error) => self.smtp.tls_failed(&error.text),
        }
    }

    async fn next(&mut self) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.smtp.poll_event() {
                return Some(event);
            }
            if self.smtp.is_closed() {
                return None;
            }
            if self.exchange().await.is_err() {
                self.smtp.disconnected();
            }
        }
    }

    /// Writes what there is, and waits for octets or the deadline.
    async fn exchange(&mut self) -> io::Result<()> {
        while self.out_at < self.smtp.output().len() {
            match self.stream.try_write(&self.smtp.output()[self.out_at..]) {
                Ok(octets) => self.out_at += octets,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let is_written = self.out_at == self.smtp.output().len();
        if is_written {
            self.smtp.output().clear();
            self.out_at = 0;
        }
        let interest = if is_written { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        let deadline = self.smtp.deadline().min(self.clock.steady() + FAR_MS);
        tokio::select! {
            ready = self.stream.ready(interest) => {
                if ready?.is_readable() {
                    self.read()?;
                }
            }
            () = tokio::time::sleep_until(self.clock.steady_instant(deadline)) => {
                self.smtp.timed_out(self.clock.steady());
            }
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => self.smtp.disconnected(),
            // An error is in the session's last event as well.
            Ok(octets) => drop(self.smtp.receive(&buffer[..octets], self.clock.steady())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
