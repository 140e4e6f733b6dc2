//! DATA and BDAT of a sink's session: from the command to the final reply.

use super::data::{DotScan, LineCheck};
use super::session::{ReplySource, Session, State};
use super::store::{Job, StoreCompletion};
use crate::behaviour::Action;
use crate::recorder::{CopyMeter, TransactionRecord};
use crate::script::Stage;
use std::sync::Arc;

/// A buffer larger than this is given back after its message.
const BODY_KEEP_BYTES_MAX: usize = 64 << 10;

impl Session {
    pub(super) fn begin_message(&mut self) {
        self.dots = DotScan::default();
        self.lines = LineCheck::default();
        self.meter.get_or_insert_with(Box::default).begin(&self.recorder);
        self.body.clear();
    }

    pub(super) fn data(&mut self, line: &[u8]) {
        if !self.tx.open || self.tx.bdat {
            if !self.tx.tried || self.tx.bdat {
                self.violation(if self.tx.bdat { "DATA behind BDAT" } else { "DATA without MAIL" }, line);
            }
            return self.reply(503, "5.5.1 bad sequence");
        }
        if self.tx.rcpt_count == 0 {
            return self.reply(554, "5.5.1 no valid recipients");
        }
        if self.data_refused() {
            return;
        }
        self.begin_message();
        self.state = State::Data;
        self.reply(354, "go on");
    }

    /// The fault at DATA; a reply ends the transaction.
    pub(super) fn data_refused(&mut self) -> bool {
        let struck = self.strikes(|b| &b.at_data);
        if struck && let Some(Action::Reply(code, _)) = &self.behaviour.at_data {
            self.count_refusal(*code);
            self.tx.open = false;
        }
        struck
    }

    pub(super) fn bdat(&mut self, bytes: u64, last: bool, line: &[u8], now_us: u64) {
        if !self.extended || self.behaviour.no_chunking {
            self.violation("BDAT unasked", line);
            // Its octets would be taken for commands.
            self.reply(500, "5.5.1 unknown command");
            return self.close();
        }
        if self.spills() {
            return;
        }
        let first = !self.tx.bdat;
        self.tx.bdat = true;
        if !self.tx.open {
            if !self.tx.tried {
                self.violation("BDAT without MAIL", line);
            }
            self.tx.spoiled = true;
        } else if first && self.tx.rcpt_count > 0 {
            self.begin_message();
            let before = self.out.len();
            if self.data_refused() {
                if matches!(self.state, State::Deaf) {
                    return;
                }
                // The refusal is the answer to this chunk, once its octets are gone.
                self.out.truncate(before);
                self.tx.spoiled = true;
            }
        } else if self.tx.rcpt_count == 0 {
            self.tx.spoiled = true;
        }
        self.state = State::Chunk { left: bytes, last };
        if bytes == 0 {
            self.state = State::Command;
            self.chunk_complete(last, now_us);
        }
    }

    pub(super) fn chunk_complete(&mut self, last: bool, now_us: u64) {
        let played = self.scripted(Stage::Bdat, b"", |session| session.take_chunk(last, now_us));
        if played == ReplySource::Instead {
            self.tx.spoiled = true;
            if last {
                self.reset();
                self.tx.tried = true;
            }
        }
    }

    fn take_chunk(&mut self, last: bool, now_us: u64) {
        if self.tx.spoiled {
            let refusal = match &self.behaviour.at_data {
                Some(Action::Reply(code, text)) if self.tx.faulty => (*code, text.clone()),
                _ => (554, "5.5.1 no valid recipients".to_owned()),
            };
            self.reply(refusal.0, &refusal.1);
            if last {
                self.reset();
                self.tx.tried = true;
            }
        } else if last {
            self.with_content(|_, lines, content| lines.finish(content));
            self.finish_message(now_us);
        } else {
            self.reply(250, "2.0.0 chunk taken");
        }
    }

    pub(super) fn finish_message(&mut self, now_us: u64) {
        self.behaviour = Arc::clone(self.host.schedule.at(now_us));
        let mut meter = self.meter.take().unwrap_or_default();
        meter.finish(&self.recorder);
        let undeclared = self.tx.saw_eight_bit && !self.tx.eight_bit && !self.tx.smtputf8;
        if undeclared {
            self.violation("8-bit data without BODY=8BITMIME", self.tx.sender.as_bytes());
        }
        if self.tx.size.is_some_and(|size| meter.len() > size) {
            self.violation("message larger than its SIZE", self.tx.sender.as_bytes());
        }
        let size_max = self.behaviour.size_bytes_max;
        let is_too_large = size_max > 0 && meter.len() > size_max;
        if self.store_bytes_max > 0 && !is_too_large && self.body.len() <= self.store_bytes_max && self.will_keep() {
            self.state = State::Storing;
            self.meter = Some(meter);
            return;
        }
        self.work(|b| b.dot_delay_ms);
        if is_too_large || self.store_bytes_max > 0 && self.body.len() > self.store_bytes_max {
            self.refuse_mail(552, "5.3.4 message too large");
        } else {
            self.final_reply(&meter);
        }
        self.meter = Some(meter);
        self.reset();
    }

    /// Whether the message at its end is one that [`Session::final_reply`] keeps.
    fn will_keep(&self) -> bool {
        match &self.behaviour.at_dot {
            Some(Action::Reply(..)) if self.tx.faulty => false,
            Some(_) if self.tx.faulty => self.behaviour.dot_keeps,
            _ => true,
        }
    }

    /// The message at its end waits for the store.
    pub(super) fn stores(&self) -> bool {
        matches!(self.state, State::Storing)
    }

    /// What is to be stored; its buffers come back with [`Session::stored`].
    pub(super) fn take_job(&mut self) -> Job {
        let mut job = Job { body: std::mem::take(&mut self.body), envelope: Vec::new() };
        job.envelope.extend_from_slice(self.tx.sender.as_bytes());
        job.envelope.push(b'\n');
        job.envelope.extend_from_slice(self.tx.rcpts.as_bytes());
        job
    }

    /// How storing went: the final reply.
    pub(super) fn stored(&mut self, completion: StoreCompletion, _now_us: u64) {
        let StoreCompletion { outcome, job } = completion;
        if job.body.capacity() <= BODY_KEEP_BYTES_MAX {
            self.body = job.body;
        }
        self.state = State::Command;
        self.work(|b| b.dot_delay_ms);
        let meter = self.meter.take().unwrap_or_default();
        match outcome {
            Ok(()) => self.final_reply(&meter),
            Err(error) if error.is_full() => self.refuse_mail(452, "4.3.1 no room to store it"),
            Err(_) => self.refuse_mail(451, "4.3.0 it cannot be stored"),
        }
        self.meter = Some(meter);
        self.reset();
    }

    pub(super) fn final_reply(&mut self, meter: &CopyMeter) {
        if self.behaviour.lmtp || !self.behaviour.script.is_empty() {
            return self.final_replies(meter);
        }
        let struck = self.strikes(|b| &b.at_dot);
        let kept = match &self.behaviour.at_dot {
            _ if !struck => true,
            Some(Action::Reply(code, _)) => {
                self.count_refusal(*code);
                false
            }
            _ => self.behaviour.dot_keeps,
        };
        if kept {
            self.messages += 1;
            self.unanswered += self.tx.rcpt_count;
            self.recorder.taken(&TransactionRecord {
                site: self.host.site.no,
                connection: self.connection,
                transaction: self.transactions,
                sender: &self.tx.sender,
                recipients: &self.tx.rcpts,
                recipient_count: self.tx.rcpt_count,
                meter,
            });
        }
        if !struck {
            self.reply(250, "2.0.0 taken");
        }
    }
}
