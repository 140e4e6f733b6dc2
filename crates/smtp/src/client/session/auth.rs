//! AUTH (RFC 4954): transfers the octets of a mechanism, which the caller runs.
//!
//! Limits: [`LINE_BYTES_MAX`] octets of a response, and [`CHALLENGES_MAX`] challenges, each in one reply line. A
//! challenge that is not base64, or one too many, is cancelled by `*`, and the session ends with the reply to that.
//!
//! The last octets sent are kept until their reply arrives, so that an error never repeats them, and then overwritten.

use std::hint::black_box;

use base64ct::{Base64, Encoding as _};
use stentor_mail::Ms;

use super::{ClientSession, ExpectedReply, Phase};
use crate::client::reply_parser::ReplyView;
use crate::client::types::{AuthRefusal, ClientError, ClientEvent, SaslOctets};

/// Longest AUTH command with an initial response, with its line end (RFC 5321 4.5.3.1.4). A longer response waits for
/// the first challenge (RFC 4954 section 4).
const COMMAND_BYTES_MAX: usize = 512;
/// Longest response as base64, with its line end (RFC 4954 section 4).
const LINE_BYTES_MAX: usize = 12_288;
/// Maximum number of challenges; no mechanism needs as many.
const CHALLENGES_MAX: u8 = 8;
/// Longest name of a mechanism (RFC 4422 section 3.1).
const MECHANISM_BYTES_MAX: usize = 20;
/// Shorter parts of a response are not hidden: they occur in any reply.
const HIDDEN_BYTES_MIN: usize = 3;

/// AUTH in progress.
#[derive(Default)]
pub(super) struct Exchange {
    /// The initial response, if too long for the command: it answers the first challenge.
    initial: Option<Vec<u8>>,
    /// The last octets sent.
    sent: Vec<u8>,
    challenges: u8,
    /// Why the exchange was cancelled, if it was.
    cancelled: Option<Box<str>>,
}

impl Exchange {
    /// Removes the last octets sent from a reply's text, in base64 and in plain form, and challenges completely.
    pub(super) fn hide(&self, code: u16, text: &mut String) {
        if code == 334 {
            text.clear();
        }
        let encoded = Base64::encode_string(&self.sent);
        // PLAIN has NULs between its parts, OAUTHBEARER control-A (RFC 7628 section 3.1).
        let parts = self.sent.split(|&b| b <= 1).filter_map(|part| std::str::from_utf8(part).ok());
        for secret in std::iter::once(encoded.as_str()).chain(parts) {
            if secret.len() >= HIDDEN_BYTES_MIN && text.contains(secret) {
                *text = text.replace(secret, "(hidden)");
            }
        }
        wipe(encoded.into_bytes());
    }

    fn keep(&mut self, sent: &[u8]) {
        wipe(std::mem::replace(&mut self.sent, sent.to_vec()));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        wipe(std::mem::take(&mut self.sent));
        wipe(self.initial.take().unwrap_or_default());
    }
}

/// Overwrites octets before they are freed.
fn wipe(mut octets: Vec<u8>) {
    octets.clear();
    octets.resize(octets.capacity(), 0);
    black_box(&octets);
}

impl ClientSession {
    /// Whether AUTH is in progress, so that the session's octets must not be shown.
    pub fn in_auth(&self) -> bool {
        self.auth.is_some()
    }

    /// Answers [`ClientEvent::Authenticate`]: begins a mechanism, with its initial response if it has one (an empty one
    /// is not the same as none).
    pub fn auth(&mut self, mechanism: &str, initial: Option<&[u8]>, now: Ms) -> Result<(), ClientError> {
        let is_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        let is_mechanism = (1..=MECHANISM_BYTES_MAX).contains(&mechanism.len()) && mechanism.bytes().all(is_name);
        let is_long = initial.is_some_and(|octets| Base64::encoded_len(octets) + 2 > LINE_BYTES_MAX);
        if self.phase != Phase::Authenticating || self.auth.is_some() || !is_mechanism || is_long {
            return Err(ClientError::NotReady);
        }
        let mut exchange = Box::<Exchange>::default();
        self.output.extend_from_slice(b"AUTH ");
        self.output.extend_from_slice(mechanism.as_bytes());
        if let Some(octets) = initial {
            let length = b"AUTH ".len() + mechanism.len() + 1 + Base64::encoded_len(octets) + 2;
            if length > COMMAND_BYTES_MAX {
                exchange.initial = Some(octets.to_vec());
            } else {
                self.output.push(b' ');
                exchange.keep(octets);
                if octets.is_empty() {
                    self.output.push(b'=');
                }
            }
        }
        self.auth = Some(exchange);
        self.send_kept(now);
        Ok(())
    }

    /// Answers [`ClientEvent::Challenge`].
    pub fn respond(&mut self, octets: &[u8], now: Ms) -> Result<(), ClientError> {
        let is_long = Base64::encoded_len(octets) + 2 > LINE_BYTES_MAX;
        match &mut self.auth {
            Some(exchange) if self.awaited.is_empty() && !is_long => exchange.keep(octets),
            _ => return Err(ClientError::NotReady),
        }
        self.send_kept(now);
        Ok(())
    }

    /// Ends AUTH, and the session with it: in place of [`Self::auth`] or [`Self::respond`], or after
    /// [`ClientEvent::Authenticated`] if the server has not proven its identity.
    pub fn decline_auth(&mut self, why: &str, now: Ms) {
        match &mut self.auth {
            Some(exchange) if self.awaited.is_empty() => {
                exchange.cancelled = Some(why.into());
                self.output.extend_from_slice(b"*\r\n");
                self.awaited.push_back(ExpectedReply::Auth);
                self.since = now;
            }
            None if matches!(self.phase, Phase::Authenticating | Phase::Ready) && self.transactions.is_empty() => {
                // These may include `Ready`.
                self.events.clear();
                self.output.extend_from_slice(b"QUIT\r\n");
                self.lost(ClientError::NoAuth(why.into()));
            }
            _ => {}
        }
    }

    /// Begins AUTH, if it is used, once TLS is settled.
    pub(super) fn begin_auth(&mut self) -> Result<(), ClientError> {
        if !self.authenticates {
            self.ready();
            return Ok(());
        }
        let mechanisms = self.caps.mechanisms();
        if mechanisms.is_empty() {
            self.output.extend_from_slice(b"QUIT\r\n");
            return Err(ClientError::NoAuth("the host does not offer AUTH".into()));
        }
        self.phase = Phase::Authenticating;
        self.events.push_back(ClientEvent::Authenticate(mechanisms));
        Ok(())
    }

    pub(super) fn auth_reply(&mut self, reply: ReplyView<'_>) -> Result<(), ClientError> {
        let Some(exchange) = &mut self.auth else { return Ok(()) };
        match reply.code {
            334 if exchange.cancelled.is_none() => {
                self.awaited.pop_front();
                self.challenge(reply);
                Ok(())
            }
            235 if exchange.cancelled.is_none() && exchange.initial.is_none() => {
                self.awaited.pop_front();
                self.end_auth();
                self.events.push_back(ClientEvent::Authenticated);
                self.ready();
                Ok(())
            }
            400..=599 => {
                let cancelled = exchange.cancelled.take();
                self.output.extend_from_slice(b"QUIT\r\n");
                let reply = self.keep(reply);
                Err(match cancelled {
                    Some(why) => ClientError::NoAuth(why),
                    None => ClientError::Auth { why: AuthRefusal::of(reply.code), reply },
                })
            }
            _ => Err(self.unexpected(ExpectedReply::Auth, reply)),
        }
    }

    fn challenge(&mut self, reply: ReplyView<'_>) {
        let now = self.since;
        let Some(exchange) = &mut self.auth else { return };
        exchange.challenges += 1;
        if let Some(initial) = exchange.initial.take() {
            // The server cannot be refusing the response, which was not sent yet.
            exchange.keep(&initial);
            wipe(initial);
            return self.send_kept(now);
        }
        let mut lines = reply.lines();
        let text = lines.next().unwrap_or_default().trim_ascii();
        let octets = std::str::from_utf8(text).ok().and_then(|text| Base64::decode_vec(text).ok());
        match octets {
            _ if exchange.challenges > CHALLENGES_MAX => self.decline_auth("too many challenges", now),
            Some(octets) if lines.next().is_none() => {
                self.events.push_back(ClientEvent::Challenge(SaslOctets(octets)));
            }
            _ => self.decline_auth("a challenge is not base64", now),
        }
    }

    /// Sends the exchange's octets, as base64, with the end of the line.
    fn send_kept(&mut self, now: Ms) {
        let Some(exchange) = &self.auth else { return };
        let encoded = Base64::encode_string(&exchange.sent);
        self.output.extend_from_slice(encoded.as_bytes());
        wipe(encoded.into_bytes());
        self.output.extend_from_slice(b"\r\n");
        self.awaited.push_back(ExpectedReply::Auth);
        self.since = now;
    }

    /// Ends AUTH. All octets sent are overwritten, including those still waiting to be sent.
    pub(super) fn end_auth(&mut self) {
        if self.auth.take().is_some() {
            let rest = self.output.clone();
            wipe(std::mem::replace(&mut self.output, rest));
        }
    }
}
