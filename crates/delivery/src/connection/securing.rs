//! TLS of a connection: the handshake, what the session's end reveals about TLS, and what is remembered for the host
//! ([`stentor_core::host_knowledge`]). A reply read within TLS is a reply; only a lost connection, an alert or a broken
//! record is a failure of TLS.

use stentor_smtp::client::{ClientError, StartTlsRefusal, TlsStage};

use super::super::ending::{TlsProgress, is_of_tls, tls_word};
use super::super::opening::closed;
use super::super::protection::ClearReason;
use super::super::stream::Stream;
use super::Connection;

impl Connection {
    /// Performs the handshake that the host expects. The session ends if it fails.
    pub(super) async fn secure(&mut self) {
        // Cleartext octets followed the go-ahead.
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
                // This session state cannot fail here.
                let _ = self.smtp.secured(self.core.clock.steady());
            }
            Err(error) => self.smtp.tls_failed(&error.text),
        }
    }

    /// Returns how far TLS has progressed, to interpret the session's end.
    pub(super) fn tls_progress(&self) -> TlsProgress {
        TlsProgress { stage: self.smtp.tls_stage(), is_closed_by_host: self.is_closed_by_host }
    }

    /// Remembers that TLS failed, if it ended the session and this mail can do without it, so that the next connection
    /// starts in clear. Returns whether it did.
    pub(super) fn give_up_tls(&mut self, error: &ClientError) -> bool {
        let is_tls = is_of_tls(error, self.tls_progress());
        let is_ours = matches!(error, ClientError::GivenUp(_)) || self.signal.must_close();
        if !is_tls || is_ours || self.tls_failed.is_some() || !self.protection.allows_clear() {
            return false;
        }
        let why = tls_word(error, self.protection.broken());
        tracing::info!(
            host = %self.target.host, address = %self.target.addr,
            "{error}; mail to this host is temporarily sent unencrypted, as TLS is not required"
        );
        if let Some(tap) = &self.tap {
            tap.event(self.core.clock.now(), &error.to_string());
        }
        self.core.measures.tls_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.core.known.tls_failed(&self.target.host, &self.target.addr, why, self.core.clock.steady());
        self.tls_failed = Some(why);
        true
    }

    /// Continues the session in clear. A refusal of STARTTLS is remembered for minutes, so that it is not tried on
    /// every connection.
    pub(super) fn unsecured(&mut self, why: &StartTlsRefusal) {
        if let StartTlsRefusal::Refused(_) = why {
            let (known, now) = (&self.core.known, self.core.clock.steady());
            known.tls_failed(&self.target.host, &self.target.addr, ClearReason::Refused.word(), now);
        }
        self.protection.unsecured(why);
    }

    /// Forgets TLS failures of the host, since it replied within TLS. The handshake alone is not enough: a host may
    /// refuse our side of it only afterwards (RFC 8446 section 4.4.2.4).
    pub(super) fn note_tls_works(&self) {
        let tls = self.tls_progress();
        if tls.stage == TlsStage::Secured || tls.stage == TlsStage::Hello && tls.is_closed_by_host {
            self.core.known.tls_worked(&self.target.host, &self.target.addr);
        }
    }

    /// Records the session's TLS state for its host.
    pub(super) fn see_tls(&self) {
        if self.target.addr.ip().is_some() {
            let host = self.target.host.trim_end_matches('.');
            self.core.tls_seen.saw(host, self.protection.facts(), self.protection.text(), self.core.clock.now());
        }
    }

    /// Notes a requirement of all mail of the site that the session lacks. Returns whether there is one, so that no
    /// mail may go.
    pub(super) fn note_unfit(&mut self) -> bool {
        self.unfit = self.protection.lacks_of_site(&self.target, self.smtp.caps().require_tls());
        if self.unfit.is_some() {
            self.see_tls();
        }
        self.unfit.is_some()
    }
}
