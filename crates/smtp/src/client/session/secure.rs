//! STARTTLS (RFC 3207): when it is sent, and the meaning of its replies.

use stentor_mail::Ms;

use super::{ClientSession, ExpectedReply, Phase};
use crate::client::caps::Caps;
use crate::client::reply_parser::{ReplyParser, ReplyView};
use crate::client::types::{ClientError, ClientEvent, StartTlsRefusal, TlsStage, TlsUse};

impl ClientSession {
    /// Sets the use of TLS, and whether AUTH comes before the first transaction. Must be called before the greeting is
    /// received; without it a session uses neither.
    pub fn protect(&mut self, tls: TlsUse, authenticates: bool) {
        self.tls = tls;
        self.authenticates = authenticates;
        if tls == TlsUse::Implicit {
            self.stage = TlsStage::Hello;
        }
    }

    /// Returns the current stage of TLS.
    pub fn tls_stage(&self) -> TlsStage {
        self.stage
    }

    /// Whether octets are now sent and received within TLS.
    pub fn is_secured(&self) -> bool {
        matches!(self.stage, TlsStage::Hello | TlsStage::Secured)
    }

    /// Notes that the handshake requested by [`ClientEvent::StartTls`] has succeeded: EHLO is sent again. Everything
    /// received in clear is forgotten (RFC 3207 section 4.2).
    pub fn secured(&mut self, now: Ms) -> Result<(), ClientError> {
        if self.phase != Phase::Securing {
            return Err(ClientError::NotReady);
        }
        self.parser = ReplyParser::new();
        (self.offered, self.caps) = (Caps::default(), Caps::default());
        self.output.clear();
        self.phase = Phase::Opening;
        self.stage = TlsStage::Hello;
        self.since = now;
        self.say_first_hello();
        Ok(())
    }

    /// Notes that the handshake, or TLS later, has failed: the session is over, and nothing more may be sent over its
    /// connection.
    pub fn tls_failed(&mut self, why: &str) {
        self.output.clear();
        self.lost(ClientError::Tls(why.into()));
    }

    /// Handles the server's reply to EHLO or HELO.
    pub(super) fn greeted(&mut self) -> Result<(), ClientError> {
        match self.stage {
            TlsStage::Secured => {}
            TlsStage::Clear if self.tls == TlsUse::Never => {}
            TlsStage::Clear if self.caps.starttls() => {
                self.output.extend_from_slice(b"STARTTLS\r\n");
                self.awaited.push_back(ExpectedReply::StartTls);
                self.stage = TlsStage::Asked;
                return Ok(());
            }
            TlsStage::Clear if self.tls == TlsUse::Required => {
                self.output.extend_from_slice(b"QUIT\r\n");
                return Err(ClientError::TlsNotOffered);
            }
            _ => self.events.push_back(ClientEvent::Unsecured(StartTlsRefusal::NotOffered)),
        }
        self.begin_auth()
    }

    pub(super) fn starttls_reply(&mut self, reply: ReplyView<'_>) -> Result<(), ClientError> {
        match reply.code {
            220 => {
                self.awaited.pop_front();
                self.phase = Phase::Securing;
                self.stage = TlsStage::Handshake;
                self.events.push_back(ClientEvent::StartTls);
                Ok(())
            }
            // The session continues as before (RFC 3207 section 4.1).
            400..=599 => {
                self.awaited.pop_front();
                self.stage = TlsStage::Refused;
                let reply = self.keep(reply);
                if self.tls == TlsUse::Required {
                    self.output.extend_from_slice(b"QUIT\r\n");
                    return Err(ClientError::TlsRefused(reply));
                }
                self.events.push_back(ClientEvent::Unsecured(StartTlsRefusal::Refused(reply)));
                self.begin_auth()
            }
            // Neither a go-ahead nor a refusal: it is unknown how the server reads on.
            _ => Err(self.unexpected(ExpectedReply::StartTls, reply)),
        }
    }
}
