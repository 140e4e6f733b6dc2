//! The action on each reply.

use stentor_mail::Ms;

use super::{ClientSession, ExpectedReply, Phase};
use crate::client::caps::{Caps, Extensions, own_name};
use crate::client::reply_parser::{ParsedReply, ReplyView};
use crate::client::transaction::{Content, Flow};
use crate::client::types::{ClientError, ClientEvent, RcptStage, TlsStage};

impl ClientSession {
    /// Handles a complete reply.
    pub(super) fn reply(&mut self, reply: ReplyView<'_>, now: Ms) -> Result<(), ClientError> {
        self.replies += 1;
        if self.stage == TlsStage::Hello {
            self.stage = TlsStage::Secured;
        }
        let Some(&awaited) = self.awaited.front() else {
            let reply = self.keep(reply);
            let closing = reply.code == 421;
            return Err(if closing {
                ClientError::ServerClosing { at: "idle", reply }
            } else {
                ClientError::Unsolicited(reply)
            });
        };
        if awaited == ExpectedReply::Quit {
            self.awaited.clear();
            self.phase = Phase::Closed;
            self.events.push_back(ClientEvent::Closed { error: None });
            return Ok(());
        }
        if reply.code == 421 {
            let reply = self.keep(reply);
            return Err(ClientError::ServerClosing { at: awaited.name(), reply });
        }
        self.since = now;
        match awaited {
            ExpectedReply::Greeting | ExpectedReply::Ehlo | ExpectedReply::Helo => self.opening_reply(awaited, reply),
            ExpectedReply::StartTls => self.starttls_reply(reply),
            ExpectedReply::Auth => self.auth_reply(reply),
            ExpectedReply::Reset => {
                // Whatever it is, the reply to the following MAIL decides; but a 503 to that would be about the RSET.
                self.reset_refused = reply.code / 100 != 2;
                self.awaited.pop_front();
                self.release();
                Ok(())
            }
            ExpectedReply::Mail => self.mail_reply(reply),
            ExpectedReply::Rcpt(left) => self.rcpt_reply(reply, left),
            ExpectedReply::Data => self.data_reply(reply),
            ExpectedReply::Content => self.content_reply(reply),
            ExpectedReply::Quit => Ok(()),
        }
    }

    fn opening_reply(&mut self, awaited: ExpectedReply, reply: ReplyView<'_>) -> Result<(), ClientError> {
        let success = reply.code / 100 == 2;
        self.awaited.pop_front();
        match awaited {
            ExpectedReply::Greeting if success => {
                self.greeted_as = own_name(reply);
                self.say_first_hello();
            }
            // RFC 5321 3.2: a server without EHLO is old, not broken. LMTP has no HELO.
            ExpectedReply::Ehlo if reply.code / 100 == 5 && !self.config.lmtp => {
                self.say_hello(b"HELO ", ExpectedReply::Helo);
            }
            ExpectedReply::Ehlo | ExpectedReply::Helo if success => {
                self.offered = Caps::parse(reply, awaited == ExpectedReply::Ehlo);
                self.caps = self.offered.without(self.withheld);
                return self.greeted();
            }
            _ => {
                self.output.extend_from_slice(b"QUIT\r\n");
                let reply = self.keep(reply);
                return Err(ClientError::Refused { at: awaited.name(), reply });
            }
        }
        Ok(())
    }

    pub(super) fn say_first_hello(&mut self) {
        let verb: &[u8] = if self.config.lmtp { b"LHLO " } else { b"EHLO " };
        self.say_hello(verb, ExpectedReply::Ehlo);
    }

    /// Permits transactions to begin.
    pub(super) fn ready(&mut self) {
        self.phase = Phase::Ready;
        self.events.push_back(ClientEvent::Ready(self.caps.clone()));
    }

    fn say_hello(&mut self, verb: &[u8], awaited: ExpectedReply) {
        self.output.extend_from_slice(verb);
        self.output.extend_from_slice(self.config.ehlo_name.as_bytes());
        self.output.extend_from_slice(b"\r\n");
        self.awaited.push_back(awaited);
    }

    fn mail_reply(&mut self, reply: ReplyView<'_>) -> Result<(), ClientError> {
        let reset_refused = std::mem::take(&mut self.reset_refused);
        match reply.code / 100 {
            2 => {}
            3 => return Err(self.unexpected(ExpectedReply::Mail, reply)),
            5 if reset_refused => return Err(self.unexpected(ExpectedReply::Mail, reply)),
            _ => {
                let reply = self.keep(reply);
                let Some(transaction) = self.transactions.front_mut() else { return Ok(()) };
                let blames = blamed_at_mail(&reply, transaction.mail_uses);
                transaction.decide_blaming(&reply, RcptStage::Mail, blames);
                if !transaction.pipelined {
                    // The recipients were never sent.
                    self.held_at = self.held.len();
                    self.awaited.clear();
                    self.finish_front();
                    return Ok(());
                }
            }
        }
        self.awaited.pop_front();
        self.release();
        Ok(())
    }

    fn rcpt_reply(&mut self, reply: ReplyView<'_>, left: u32) -> Result<(), ClientError> {
        let kept = match reply.code / 100 {
            2 => None,
            3 => return Err(self.unexpected(ExpectedReply::Rcpt(left), reply)),
            _ => Some(self.keep(reply)),
        };
        let Some(transaction) = self.transactions.front_mut() else { return Ok(()) };
        match kept {
            None => transaction.rcpt_accepted(reply.code),
            Some(kept) => transaction.rcpt_refused(kept),
        }
        if left > 1 {
            self.awaited[0] = ExpectedReply::Rcpt(left - 1);
        } else {
            transaction.rcpts_done();
            let (flow, accepted) = (transaction.flow, transaction.accepted);
            self.awaited.pop_front();
            match flow {
                Flow::ChunkNow | Flow::DataNow => {}
                Flow::NoContent => self.finish_front(),
                _ if accepted == 0 => self.finish_front(),
                Flow::DataLater => self.write_data(),
                Flow::ChunkLater => {
                    if let Some(mut transaction) = self.transactions.pop_front() {
                        self.write_bdat(&mut transaction);
                        self.transactions.push_front(transaction);
                    }
                }
            }
        }
        self.release();
        Ok(())
    }

    fn data_reply(&mut self, reply: ReplyView<'_>) -> Result<(), ClientError> {
        let refused = matches!(reply.code / 100, 4 | 5);
        let none_accepted = self.transactions.front().is_none_or(|t| t.accepted == 0);
        // RFC 2033 4.2: without a recipient LMTP's DATA fails, and no reply follows the dot.
        if !refused && (reply.code / 100 != 3 || (none_accepted && self.config.lmtp)) {
            return Err(self.unexpected(ExpectedReply::Data, reply));
        }
        self.awaited.pop_front();
        if refused {
            let reply = self.keep(reply);
            if let Some(transaction) = self.transactions.front_mut() {
                let early = transaction.flow == Flow::DataNow && reply.refuses_sequence();
                let blames = if early { Extensions::PIPELINING } else { Extensions::NONE };
                transaction.decide_blaming(&reply, RcptStage::Data, blames);
            }
            self.finish_front();
            return Ok(());
        }
        self.awaited.push_front(ExpectedReply::Content);
        if let Some(transaction) = self.transactions.front_mut() {
            transaction.content = if none_accepted { Content::Ended } else { Content::Open };
        }
        if none_accepted {
            // RFC 2920 3.1: the server requests content although it refused all recipients; there is none.
            self.output.extend_from_slice(b".\r\n");
        }
        Ok(())
    }

    fn content_reply(&mut self, reply: ReplyView<'_>) -> Result<(), ClientError> {
        let Some(transaction) = self.transactions.front() else { return Ok(()) };
        let open = transaction.content == Content::Open;
        if reply.code / 100 == 3 || (open && reply.code / 100 == 2) {
            return Err(self.unexpected(ExpectedReply::Content, reply));
        }
        let reply = self.keep(reply);
        let Some(transaction) = self.transactions.front_mut() else { return Ok(()) };
        let is_chunk = transaction.flow.is_chunk();
        if is_chunk && reply.refuses_command() && transaction.accepted > 0 && !transaction.has_answers() {
            if !self.knows_bdat {
                // A server without BDAT reads the content as commands.
                return Err(ClientError::ChunkingRefused(reply));
            }
            // This server knows BDAT, and may have accepted later transactions: their replies count.
            if !self.config.lmtp {
                transaction.decide_blaming(&reply, RcptStage::Final, Extensions::CHUNKING);
            }
        }
        if open && transaction.flow != Flow::ChunkNow {
            transaction.decide_rest(&reply, RcptStage::Final);
            return Err(ClientError::RefusedInBody(reply));
        }
        if self.config.lmtp && transaction.accepted > 0 {
            transaction.lmtp_final(reply);
            if transaction.accepted > 0 {
                return Ok(());
            }
        } else {
            transaction.decide_rest(&reply, RcptStage::Final);
        }
        self.awaited.pop_front();
        if open {
            transaction.answered = true;
        } else {
            self.finish_front();
        }
        Ok(())
    }

    pub(super) fn unexpected(&mut self, awaited: ExpectedReply, reply: ReplyView<'_>) -> ClientError {
        ClientError::Unexpected { to: awaited.name(), reply: self.keep(reply) }
    }
}

/// Returns the extensions used by MAIL that a refusal may be about: those named in its text, or all.
fn blamed_at_mail(reply: &ParsedReply, uses: Extensions) -> Extensions {
    const NAMES: [(&str, Extensions); 6] = [
        ("SIZE", Extensions::SIZE),
        ("BODY", Extensions::EIGHT_BIT_MIME),
        ("8BITMIME", Extensions::EIGHT_BIT_MIME),
        ("SMTPUTF8", Extensions::SMTPUTF8),
        ("RET", Extensions::DSN),
        ("ENVID", Extensions::DSN),
    ];
    if !reply.refuses_parameter() {
        return Extensions::NONE;
    }
    let words = || reply.text.split(|c: char| !c.is_ascii_alphanumeric());
    let is_named = |name: &str| words().any(|word| word.eq_ignore_ascii_case(name));
    let named = NAMES.iter().filter(|(name, _)| is_named(name)).fold(Extensions::NONE, |all, (_, one)| all.and(*one));
    if named.any_of(uses) { uses.without(uses.without(named)) } else { uses }
}
