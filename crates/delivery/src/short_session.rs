//! A session that sends no mail: it asks a host about recipients, or checks it.
//!
//! Promise: it is opened and secured like one that delivers. Every wait has the session's own deadlines; the caller's
//! may be shorter, and dropping the session closes it.

use std::io;

use stentor_config::SourceSettings;
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_core::live::Live;
use stentor_core::live::traffic::TappedSession;
use stentor_queue::ids::Ms;
use stentor_queue::site::{Endpoint, Target};
use stentor_sched::SourceNo;
use stentor_smtp::client::{ClientEvent, ClientSession};
use stentor_tls::SecuredSession;
use tokio::io::Interest;

use super::opening::{ConnectError, OpenConnection, Purpose, open};
use super::protection::Protection;
use super::stream::Stream;

const READ_BYTES: usize = 4 * 1024;
/// Longest sleep: a session that awaits nothing has no deadline.
const FAR_MS: Ms = 3_600_000;

/// Settings, clock and counters of a short session.
#[derive(Clone, Copy)]
pub(super) struct SessionContext<'c> {
    pub settings: &'c Settings,
    pub clock: &'c Clock,
    /// Counts octets and lets watchers follow sessions, in a server.
    pub live: Option<&'c Live>,
}

pub(super) struct ShortSession {
    pub target: Target,
    pub smtp: ClientSession,
    pub protection: Protection,
    clock: Clock,
    stream: Stream,
    out_at: usize,
    tap: Option<Box<TappedSession>>,
}

impl ShortSession {
    /// Connects from the first suitable source.
    pub async fn open(
        context: SessionContext<'_>,
        target: &Target,
        purpose: Purpose<'_>,
    ) -> Result<ShortSession, ConnectError> {
        let source = source_for(&context.settings.config.sending.sources, &target.addr);
        let OpenConnection { stream, smtp, protection } =
            open(context.settings, context.clock, source, target, purpose).await?;
        Ok(ShortSession {
            target: target.clone(),
            smtp,
            protection,
            clock: context.clock.clone(),
            stream,
            out_at: 0,
            tap: context.live.and_then(|live| live.traffic.of_host(&target.addr)),
        })
    }

    /// Performs the handshake that [`ClientEvent::StartTls`] requests. The session ends if it fails.
    pub async fn secure(&mut self, settings: &Settings) {
        // Cleartext octets followed the go-ahead.
        if self.smtp.is_closed() {
            return;
        }
        let stream = std::mem::replace(&mut self.stream, Stream::Gone);
        let deadline = self.clock.steady_instant(self.smtp.deadline());
        match self.protection.handshake(stream, settings, &self.target, deadline).await {
            Ok(stream) => {
                self.stream = stream;
                // This session state cannot fail here.
                let _ = self.smtp.secured(self.clock.steady());
            }
            Err(error) => self.smtp.tls_failed(&error.text),
        }
    }

    /// Returns the session's next event, or `None` after the last. `moved` is called each time octets were sent or
    /// received.
    pub async fn next(&mut self, live: Option<&Live>, moved: impl Fn(&ClientSession)) -> Option<ClientEvent> {
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
            moved(&self.smtp);
        }
    }

    /// Returns the TLS session, for channel bindings.
    pub fn secured(&self) -> Option<&SecuredSession> {
        self.stream.secured()
    }

    /// Ends the session in an orderly way.
    pub async fn quit(&mut self, live: Option<&Live>) {
        self.smtp.quit(self.clock.steady());
        while self.next(live, |_| ()).await.is_some() {}
    }

    /// Shows an event to the session's watchers.
    pub fn event(&self, text: &str) {
        if let Some(tap) = &self.tap {
            tap.event(self.clock.now(), text);
        }
    }

    /// Writes pending output, and waits for octets or the deadline.
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
                // The session's last event also has the error.
                let _ = self.smtp.receive(&buffer[..octets], self.clock.steady());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns the first source with an address of the target's family.
fn source_for(sources: &[SourceSettings], to: &Endpoint) -> SourceNo {
    let is_fit = |source: &SourceSettings| match to {
        Endpoint::Tcp(addr) | Endpoint::Tls(addr) if addr.is_ipv4() => source.v4.is_some(),
        Endpoint::Tcp(_) | Endpoint::Tls(_) => source.v6.is_some(),
        Endpoint::Unix(_) => true,
    };
    sources.iter().position(is_fit).unwrap_or(0) as SourceNo
}
