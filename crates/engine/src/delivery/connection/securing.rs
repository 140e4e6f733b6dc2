//! TLS of a connection: the handshake, what the session's end says of TLS, and what is remembered of it for the host
//! ([`crate::core::known`]). A reply read within TLS is a reply; only a broken connection, an alert or a broken record is a failure of TLS.

use stentor_mail::client::{ClientError, TlsStage, Unsecured};

use super::super::ending::{TlsProgress, is_of_tls, tls_word};
use super::super::opening::closed;
use super::super::protection::InClear;
use super::super::stream::Stream;
use super::Connection;

impl Connection {
    /// Makes the handshake that the host expects. It ends the session if it fails.
    pub(super) async fn secure(&mut self) {
        // Octets in clear came behind the go-ahead.
        if self.smtp.is_closed() {
            return;
        }
        let stream = std::mem::replace(&mut self.stream, Stream::Gone);
        let deadline = self.core.clock.steady_instant(self.smtp.deadline());
        let made = tokio::select! {
            made = self.protection.handshake(stream, &self.settings, &self.target, deadline) => made,
            _ = closed(&self.signal) => return self.smtp.quit(self.core.clock.steady()),
        };
        match made {
            Ok(stream) => {
                self.stream = stream;
                self.is_alive = true;
                if let Some(tap) = &self.tap {
                    tap.event(self.core.clock.now(), self.protection.text());
                }
                // It waits for nothing else.
                let _ = self.smtp.secured(self.core.clock.steady());
            }
            Err(error) => self.smtp.tls_failed(&error.text),
        }
    }

    /// How far the session has come with TLS, for what its end means.
    pub(super) fn tls_progress(&self) -> TlsProgress {
        TlsProgress { stage: self.smtp.tls_stage(), is_closed_by_host: self.is_closed_by_host }
    }

    /// If the session ended by TLS, which this mail does without, remembers that of the host, so that the next connection is
    /// in clear from its beginning. Whether it did.
    pub(super) fn give_up_tls(&mut self, error: &ClientError) -> bool {
        let is_tls = is_of_tls(error, self.tls_progress());
        let is_ours = matches!(error, ClientError::GivenUp(_)) || self.signal.must_close();
        if !is_tls || is_ours || self.tls_failed.is_some() || !self.protection.allows_clear() {
            return false;
        }
        let why = tls_word(error, self.protection.broken());
        tracing::info!(
            host = %self.target.host, address = %self.target.addr,
            "{error}; mail goes to this host in clear for a while, as nothing demands more"
        );
        if let Some(tap) = &self.tap {
            tap.event(self.core.clock.now(), &error.to_string());
        }
        self.core.measures.tls_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.core.known.tls_failed((&self.target.host, &self.target.addr), why, self.core.clock.steady());
        self.tls_failed = Some(why);
        true
    }

    /// The session goes in clear. That STARTTLS is refused is remembered for minutes: nobody has to refuse it again and again.
    pub(super) fn unsecured(&mut self, why: &Unsecured) {
        if let Unsecured::Refused(_) = why {
            let host = (&*self.target.host, &self.target.addr);
            self.core.known.tls_failed(host, InClear::Refused.word(), self.core.clock.steady());
        }
        self.protection.unsecured(why);
    }

    /// The host has replied within TLS: what was remembered of it is over. The handshake alone shows less, since a host may refuse our
    /// side of it only then (RFC 8446 section 4.4.2.4).
    pub(super) fn note_tls_works(&self) {
        let tls = self.tls_progress();
        if tls.stage == TlsStage::Secured || tls.stage == TlsStage::Hello && tls.is_closed_by_host {
            self.core.known.tls_worked((&self.target.host, &self.target.addr));
        }
    }

    /// What TLS the session has is shown with its host.
    pub(super) fn see_tls(&self) {
        if self.target.addr.ip().is_some() {
            let host = self.target.host.trim_end_matches('.');
            self.core.tls_seen.saw(host, self.protection.facts(), self.protection.text(), self.core.clock.now());
        }
    }

    /// Notes what the session lacks of what all mail of its site demands; whether it lacks anything, so that none may go.
    pub(super) fn note_unfit(&mut self) -> bool {
        self.unfit = self.protection.lacks_of_site(&self.target, self.smtp.caps().require_tls());
        if self.unfit.is_some() {
            self.see_tls();
        }
        self.unfit.is_some()
    }
}
