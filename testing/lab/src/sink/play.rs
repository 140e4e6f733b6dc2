//! Plays the rules of a behaviour's script ([`crate::script`]) instead of the session's own replies.

use super::session::{Effect, ReplySource, Session, State};
use crate::recorder::{CopyMeter, TransactionRecord};
use crate::script::{Stage, Step};
use std::sync::Arc;

/// Pause before each octet of a host that drips.
const DRIP_MS: u32 = 1000;

impl Session {
    /// Whether a rule takes this stage away from the session; `ordinary` is what the session would do, and is done
    /// where the rule says so or there is none.
    pub(super) fn scripted(&mut self, stage: Stage, line: &[u8], mut ordinary: impl FnMut(&mut Self)) -> ReplySource {
        if self.behaviour.script.is_empty() {
            ordinary(self);
            return ReplySource::Ordinary;
        }
        let behaviour = Arc::clone(&self.behaviour);
        match behaviour.script.iter().find(|rule| rule.fits(stage, line)) {
            None => {
                ordinary(self);
                ReplySource::Ordinary
            }
            Some(rule) => self.play(&rule.steps, ordinary),
        }
    }

    fn play(&mut self, steps: &[Step], mut ordinary: impl FnMut(&mut Self)) -> ReplySource {
        let mut played = ReplySource::Instead;
        for step in steps {
            match step {
                Step::Ok => {
                    ordinary(self);
                    played = ReplySource::Ordinary;
                }
                Step::Mute => {
                    let before = self.out.len();
                    ordinary(self);
                    self.out.truncate(before);
                    played = ReplySource::Ordinary;
                }
                Step::Spill => {}
                Step::Say(octets) => self.out.extend_from_slice(octets),
                Step::Drip => self.drip_ms = DRIP_MS,
                Step::PauseMs(ms) => self.delay_us += u64::from(*ms) * 1000,
                Step::FloodLine => self.end_with(Effect::FloodLine),
                Step::FloodLines => self.end_with(Effect::FloodLines),
                Step::Close => self.close(),
                Step::HalfClose => self.end_with(Effect::HalfClose),
                Step::Reset => self.end_with(Effect::Reset),
                Step::Hang => self.state = State::Deaf,
            }
        }
        played
    }

    fn end_with(&mut self, effect: Effect) {
        self.close();
        self.effect = Some(effect);
    }

    /// A chunk's octets are to be taken for commands: plays the rule and says so.
    pub(super) fn spills(&mut self) -> bool {
        let behaviour = Arc::clone(&self.behaviour);
        let rule = behaviour.script.iter().find(|rule| rule.fits(Stage::Bdat, b""));
        let Some(rule) = rule.filter(|rule| rule.steps.first() == Some(&Step::Spill)) else { return false };
        self.play(&rule.steps, |_| {});
        true
    }

    /// The reply to the message: one, or over LMTP one for each recipient (RFC 2033 4.2). What was carried out is
    /// recorded.
    pub(super) fn final_replies(&mut self, meter: &CopyMeter) {
        let recipients = std::mem::take(&mut self.tx.rcpts);
        let (mut kept, mut count) = (String::new(), 0);
        if self.behaviour.lmtp {
            for recipient in recipients.split_inclusive('\n') {
                if matches!(self.state, State::Deaf) {
                    break;
                }
                self.scripted(Stage::Dot, recipient.as_bytes(), |session| {
                    kept.push_str(recipient);
                    count += 1;
                    session.reply(250, "2.1.5 taken");
                });
            }
        } else {
            let in_all = self.tx.rcpt_count;
            self.scripted(Stage::Dot, recipients.as_bytes(), |session| {
                kept.push_str(&recipients);
                count = in_all;
                session.reply(250, "2.0.0 taken");
            });
        }
        if count > 0 {
            self.messages += 1;
            self.unanswered += count;
            self.recorder.taken(&TransactionRecord {
                site: self.host.site.no,
                connection: self.connection,
                transaction: self.transactions,
                sender: &self.tx.sender,
                recipients: &kept,
                recipient_count: count,
                meter,
            });
        }
        self.tx.rcpts = recipients;
    }
}
