//! Bodies in a session: DATA (RFC 5321 section 4.1.1.4) and BDAT (RFC 3030 section 2).

use stentor_mail::reply::{Enhanced, Reply};

use super::super::dots::ScanResult;
use super::super::{Step, replies};
use super::{CHUNK_BYTES_MIN, Question, ServerSession, State};

impl ServerSession {
    /// Handles a DATA command.
    pub(super) fn data_command(&mut self) -> Option<Step> {
        // RFC 2920 section 3.1: DATA is the last command of a group. Input after it may be a body, and must not become
        // commands when we refuse it.
        if !self.input.is_empty() {
            self.close_with(&replies::EARLY_DATA);
            return None;
        }
        if !self.open {
            return self.error(&self.mail_first());
        }
        if self.recipients == 0 {
            return self.error(&replies::NO_RECIPIENTS);
        }
        self.state = State::Asked(Question::Data);
        Some(Step::Data)
    }

    /// Handles a BDAT command. Its octets follow whatever we reply, and the reply comes after them.
    pub(super) fn bdat_command(&mut self, size: u64, last: bool) -> Option<Step> {
        let refused = if !self.open {
            Some(self.mail_first())
        } else if self.recipients == 0 {
            Some(replies::NO_RECIPIENTS)
        } else {
            None
        };
        self.timer.restart();
        if let Some(reply) = refused {
            self.timer.body(&self.config);
            self.state = State::Swallow { left: size, reply };
            return None;
        }
        if size >= CHUNK_BYTES_MIN {
            self.unproductive = self.unproductive.saturating_sub(1);
        }
        if self.incoming.is_some() {
            self.state = State::Chunk { size, left: size, last };
            return None;
        }
        self.state = State::Asked(Question::Chunk { size, last });
        Some(Step::Data)
    }

    /// Returns why there is no transaction.
    fn mail_first(&self) -> Reply {
        if self.security.wants_tls() { replies::TLS_FIRST } else { replies::MAIL_FIRST }
    }

    /// Takes octets of DATA.
    pub(super) fn data(&mut self) -> Option<Step> {
        let Some(incoming) = &mut self.incoming else { return self.lost() };
        if let Some(piece) = incoming.full_piece(&self.config) {
            return Some(Step::Piece(piece));
        }
        let rest = self.input.rest();
        if rest.is_empty() {
            return Some(Step::NeedInput);
        }
        let (taken, found) = incoming.data(&self.config, rest);
        self.input.consume(taken.count);
        self.timer.progress(&self.config, taken.count);
        match found {
            ScanResult::More => {}
            ScanResult::End => self.state = State::DataEnd,
            ScanResult::Violation => self.state = State::Broken,
        }
        if taken.dropped {
            // The caller forgets it now; the client is told at the end.
            return self.refused();
        }
        None
    }

    /// Takes octets of a BDAT chunk.
    pub(super) fn chunk(&mut self) -> Option<Step> {
        let (State::Chunk { size, left, last }, Some(incoming)) = (&mut self.state, &mut self.incoming) else {
            return self.lost();
        };
        if let Some(piece) = incoming.full_piece(&self.config) {
            return Some(Step::Piece(piece));
        }
        if *left == 0 {
            if *last {
                self.state = State::DataEnd;
                return None;
            }
            let reply = Reply::new(250, Enhanced::new(2, 0, 0), format!("{size} octets received"));
            self.state = State::Command;
            self.say(&reply, false);
            return None;
        }
        let rest = self.input.rest();
        if rest.is_empty() {
            return Some(Step::NeedInput);
        }
        let part = &rest[..rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
        let taken = incoming.chunk(&self.config, part);
        *left -= taken.count as u64;
        let left = *left;
        self.input.consume(taken.count);
        self.timer.progress(&self.config, taken.count);
        if taken.dropped {
            let reply = incoming.dropped().cloned().unwrap_or(replies::TOO_BIG);
            let step = self.refused();
            self.incoming = None;
            self.state = State::Swallow { left, reply };
            return step;
        }
        None
    }

    /// Discards the octets of an unwanted chunk.
    pub(super) fn swallow(&mut self) -> Option<Step> {
        let State::Swallow { left, reply } = &mut self.state else { return self.lost() };
        if *left == 0 {
            let reply = std::mem::replace(reply, replies::OK);
            self.state = State::Command;
            // Not counted as an error: a client that pipelines chunks after a refused one does nothing wrong.
            self.say(&reply, false);
            return None;
        }
        let available = self.input.rest().len();
        if available == 0 {
            return Some(Step::NeedInput);
        }
        let count = available.min(usize::try_from(*left).unwrap_or(usize::MAX));
        *left -= count as u64;
        self.input.consume(count);
        self.timer.progress(&self.config, count);
        None
    }

    /// Ends the body.
    pub(super) fn end(&mut self) -> Option<Step> {
        let Some(incoming) = self.incoming.take() else { return self.lost() };
        let size = incoming.size();
        match incoming.end() {
            Ok(end) => {
                self.state = State::Asked(Question::End);
                Some(Step::EndOfData(end))
            }
            Err(reply) => {
                self.state = State::Command;
                let was_open = std::mem::take(&mut self.open);
                let recipients = if self.config.lmtp { self.recipients.max(1) } else { 1 };
                for _ in 0..recipients {
                    self.say(&reply, !self.trusted);
                }
                was_open.then_some(Step::Refused { reply, size })
            }
        }
    }

    /// Tells the caller to forget the transaction, since its body was just dropped.
    fn refused(&mut self) -> Option<Step> {
        let incoming = self.incoming.as_ref()?;
        let (reply, size) = (incoming.dropped().cloned()?, incoming.size());
        std::mem::take(&mut self.open).then_some(Step::Refused { reply, size })
    }

    /// Handles an expected body that is missing; unreachable from the states above. Ends the session rather than the
    /// process.
    fn lost(&mut self) -> Option<Step> {
        debug_assert!(false, "no body in state {:?}", self.state);
        self.close_with(&Reply::fixed(421, Enhanced::new(4, 3, 0), "Internal error, closing"));
        None
    }
}

#[cfg(test)]
mod size {
    use super::super::super::body::IncomingBody;
    use super::*;

    #[test]
    fn a_session_is_small() {
        // Thousands of sessions may be idle; a body's state is boxed and exists only while one is received.
        assert!(size_of::<ServerSession>() <= 320, "{}", size_of::<ServerSession>());
        assert!(size_of::<IncomingBody>() <= 512, "{}", size_of::<IncomingBody>());
    }
}
