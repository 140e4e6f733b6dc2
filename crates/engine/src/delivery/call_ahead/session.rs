//! One connection on which a host is asked about recipients, one after the other, and never sent content.
//!
//! Promise: every wait has the session's own deadlines; the caller's may be shorter, and dropping the session closes it.

use std::io;
use std::time::Duration;

use stentor_config::Source;
use stentor_mail::client::{ClientError, ClientEvent, ClientSession, RcptResult, TlsUse};
use stentor_queue::ids::Ms;
use stentor_queue::site::{Endpoint, Target};
use stentor_sched::SourceNo;
use tokio::io::Interest;

use super::super::protection::Protection;
use super::super::stream::Stream;
use crate::clock::Clock;
use crate::core::Settings;
use stentor_live::Live;
use stentor_live::traffic::Tapped;

const READ_BYTES: usize = 4 * 1024;
/// Without anything awaited a session has no deadline.
const FAR_MS: Ms = 3_600_000;

/// Called when a host has replied to a part of the question.
pub(super) type Heard<'h> = &'h (dyn Fn() + Sync);

/// What sessions need of the engine.
#[derive(Clone, Copy)]
pub(super) struct Engine<'e> {
    pub settings: &'e Settings,
    pub clock: &'e Clock,
    /// Who counts octets and watches sessions, in a server.
    pub live: Option<&'e Live>,
}

pub(super) struct Session {
    clock: Clock,
    pub target: Target,
    stream: Stream,
    smtp: ClientSession,
    out_at: usize,
    tap: Option<Box<Tapped>>,
    /// Recipients asked for, and those that were refused: hosts slow down and close where many are.
    pub asked: u32,
    pub refused: u32,
    /// Replies before the last question.
    replies: u64,
}

impl Session {
    /// Connects and greets. Why not, in words.
    pub async fn open(engine: Engine<'_>, target: &Target) -> Result<Session, String> {
        let settings = engine.settings;
        let (source_no, source) = source_for(&settings.config.sending.sources, &target.addr);
        let mut protection = Protection::of(settings, target, None).map_err(|error| error.to_string())?;
        let limit = Duration::from_millis(settings.config.delivery.connect_timeout_ms);
        let mut stream = match tokio::time::timeout(limit, Stream::open(&target.addr, source)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(super::super::opening::plain(&error)),
            Err(_) => return Err("Connection timed out".to_owned()),
        };
        if protection.tls() == TlsUse::Implicit {
            let now = engine.clock.steady() + settings.config.protection.handshake_timeout_ms;
            let made = protection.handshake(stream, settings, target, engine.clock.steady_instant(now)).await;
            stream = made.map_err(|error| format!("TLS failed: {error}"))?;
        }
        let mut smtp = ClientSession::new(settings.client_for(source_no, target), engine.clock.steady());
        // Addresses alone are asked for: where mail may go in clear, they may.
        smtp.protect(if protection.allows_clear() { TlsUse::Never } else { protection.tls() }, false);
        let mut session = Session {
            clock: engine.clock.clone(),
            target: target.clone(),
            stream,
            smtp,
            out_at: 0,
            tap: engine.live.and_then(|live| live.traffic.of_host(&target.addr)),
            asked: 0,
            refused: 0,
            replies: 0,
        };
        session.event(&format!("connected to {target} to ask for recipients"));
        loop {
            match session.next(engine.live, &|| ()).await {
                Some(ClientEvent::Ready(_)) => return Ok(session),
                Some(ClientEvent::Closed { error: Some(error) }) => return Err(error.to_string()),
                Some(ClientEvent::StartTls) => session.secure(&mut protection, settings).await,
                _ => return Err("the session ended before it began".to_owned()),
            }
        }
    }

    /// Makes the handshake. It ends the session if it fails.
    async fn secure(&mut self, protection: &mut Protection, settings: &Settings) {
        // Octets in clear came behind the go-ahead.
        if self.smtp.is_closed() {
            return;
        }
        let stream = std::mem::replace(&mut self.stream, Stream::Gone);
        let deadline = self.clock.steady_instant(self.smtp.deadline());
        match protection.handshake(stream, settings, &self.target, deadline).await {
            Ok(stream) => {
                self.stream = stream;
                // It waits for nothing else.
                let _ = self.smtp.secured(self.clock.steady());
            }
            Err(error) => self.smtp.tls_failed(&error.text),
        }
    }

    /// What the host says of a recipient; the session's end if that came first.
    pub async fn ask(
        &mut self,
        engine: Engine<'_>,
        address: &str,
        heard: Heard<'_>,
    ) -> Result<RcptResult, ClientError> {
        self.asked += 1;
        self.replies = self.smtp.replies();
        let sender = &engine.settings.config.call_ahead.sender;
        self.smtp.verify(self.asked.into(), sender, address, self.clock.steady())?;
        let mut result = None;
        loop {
            match self.next(engine.live, heard).await {
                Some(ClientEvent::Done { results, .. }) => {
                    result = results.into_iter().next();
                    // A session that has ended says so next.
                    if !self.smtp.is_closed() {
                        break;
                    }
                }
                Some(ClientEvent::Closed { error: Some(error) }) => return Err(error),
                Some(
                    ClientEvent::Ready(_)
                    | ClientEvent::Unsecured(_)
                    | ClientEvent::StartTls
                    | ClientEvent::Authenticate(_)
                    | ClientEvent::Challenge(_)
                    | ClientEvent::Authenticated,
                ) => {}
                Some(ClientEvent::Closed { error: None }) | None => break,
            }
        }
        let result = result.ok_or(ClientError::Disconnected("sending RCPT TO"))?;
        self.refused += u32::from(!result.reply.is_success());
        Ok(result)
    }

    /// Whether nothing of the first question has a reply, not even its MAIL.
    pub fn is_silent(&self) -> bool {
        self.smtp.replies() == self.replies
    }

    /// Whether it was MAIL of the first question that ended the session in this way.
    pub fn failed_at_mail(&self, error: &ClientError) -> bool {
        match error {
            // This recipient cannot even be asked for.
            ClientError::BadAddress | ClientError::NoRecipients | ClientError::NotReady => false,
            // The reply in the error is counted.
            ClientError::ServerClosing { .. } | ClientError::Unexpected { .. } => {
                self.smtp.replies() <= self.replies + 1
            }
            _ => self.is_silent(),
        }
    }

    /// Ends the session as it should be.
    pub async fn quit(mut self, live: Option<&Live>) {
        self.smtp.quit(self.clock.steady());
        while self.next(live, &|| ()).await.is_some() {}
    }

    async fn next(&mut self, live: Option<&Live>, heard: Heard<'_>) -> Option<ClientEvent> {
        loop {
            if let Some(event) = self.smtp.poll_event() {
                return Some(event);
            }
            if self.smtp.is_closed() {
                return None;
            }
            if self.exchange(live).await.is_err() {
                self.smtp.disconnected();
            }
            if !self.is_silent() {
                heard();
            }
        }
    }

    /// Writes what there is, and waits for octets or the deadline.
    async fn exchange(&mut self, live: Option<&Live>) -> io::Result<()> {
        self.write(live)?;
        let is_written = self.smtp.output().is_empty();
        let interest = if is_written { Interest::READABLE } else { Interest::READABLE | Interest::WRITABLE };
        let now = self.clock.steady();
        let deadline = self.clock.steady_instant(self.smtp.deadline().min(now + FAR_MS));
        tokio::select! {
            ready = self.stream.ready(interest) => {
                if ready?.is_readable() {
                    self.read(live)?;
                }
            }
            () = tokio::time::sleep_until(deadline) => {
                self.smtp.timed_out(self.clock.steady());
            }
        }
        Ok(())
    }

    fn write(&mut self, live: Option<&Live>) -> io::Result<()> {
        while self.out_at < self.smtp.output().len() {
            match self.stream.try_write(&self.smtp.output()[self.out_at..]) {
                Ok(octets) => {
                    if let Some(tap) = &mut self.tap {
                        tap.client(self.clock.now(), &self.smtp.output()[self.out_at..self.out_at + octets]);
                    }
                    self.out_at += octets;
                    live.inspect(|live| live.sent(octets));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.smtp.output().clear();
        self.out_at = 0;
        Ok(())
    }

    fn read(&mut self, live: Option<&Live>) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => self.smtp.disconnected(),
            Ok(octets) => {
                live.inspect(|live| live.received(octets));
                if let Some(tap) = &mut self.tap {
                    tap.server(self.clock.now(), &buffer[..octets]);
                }
                // An error is in the session's last event as well.
                let _ = self.smtp.receive(&buffer[..octets], self.clock.steady());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn event(&self, text: &str) {
        if let Some(tap) = &self.tap {
            tap.event(self.clock.now(), text);
        }
    }
}

/// The first source with an address of the target's family.
fn source_for<'s>(sources: &'s [Source], to: &Endpoint) -> (SourceNo, Option<&'s Source>) {
    let is_fit = |source: &Source| match to {
        Endpoint::Tcp(addr) if addr.is_ipv4() => source.v4.is_some(),
        Endpoint::Tcp(_) => source.v6.is_some(),
        Endpoint::Unix(_) => true,
    };
    let fit = sources.iter().position(is_fit).unwrap_or(0);
    (fit as SourceNo, sources.get(fit))
}
