//! Sums up a transaction's outcomes: their findings about host, sender and message.

use std::sync::Arc;

use super::cause::of_outcome;
use super::verdict::{Judge, Verdict};
use crate::effects::{RcptOutcome, Stage};
use crate::reasons::HostReply;

const REPLY_SERVICE_NOT_AVAILABLE: u16 = 421;

/// Counts of outcomes, and the first outcome of each kind.
#[derive(Default)]
pub struct Findings<'a> {
    pub refused: Option<&'a RcptOutcome>,
    pub rate: Option<&'a RcptOutcome>,
    pub limited: Option<&'a RcptOutcome>,
    pub lost: Option<&'a RcptOutcome>,
    pub sender: Option<&'a RcptOutcome>,
    pub message: Option<&'a RcptOutcome>,
    /// Outcomes other than "too many recipients".
    pub taken: usize,
    pub too_many: usize,
    pub delivered: usize,
    /// Recipients that got a fate.
    pub decided: usize,
    /// Recipients that got a fate or a clock.
    pub answered: usize,
}

impl<'a> Findings<'a> {
    pub fn of(results: &'a [RcptOutcome], judge: Judge) -> Findings<'a> {
        let mut found = Findings::default();
        for outcome in results {
            found.taken += 1;
            let verdict = judge.verdict(outcome);
            found.decided += usize::from(verdict.is_final());
            found.answered += usize::from(!matches!(
                verdict,
                Verdict::Host
                    | Verdict::Rate
                    | Verdict::TooMany
                    | Verdict::SessionLimit
                    | Verdict::Lost
                    | Verdict::LostAfterDot
            ));
            match verdict {
                Verdict::Delivered => found.delivered += 1,
                Verdict::Host => found.refused = found.refused.or(Some(outcome)),
                Verdict::Rate => found.rate = found.rate.or(Some(outcome)),
                Verdict::SessionLimit => found.limited = found.limited.or(Some(outcome)),
                Verdict::Lost => found.lost = found.lost.or(Some(outcome)),
                Verdict::LostAfterDot => {
                    found.lost = found.lost.or(Some(outcome));
                    found.message = found.message.or(Some(outcome));
                }
                Verdict::Sender => found.sender = found.sender.or(Some(outcome)),
                Verdict::Message | Verdict::Unreadable => found.message = found.message.or(Some(outcome)),
                Verdict::TooMany => {
                    found.taken -= 1;
                    found.too_many += 1;
                }
                Verdict::Refused | Verdict::Fail | Verdict::Mailbox | Verdict::Recipient => {}
            }
        }
        // The host left among its replies to the content (LMTP): the other recipients may have their copies too. Each
        // retry would deliver one more copy and so get no clock, at the price of sending the content to all.
        if found.delivered > 0 {
            let leaves = found.limited.filter(|outcome| outcome.code == REPLY_SERVICE_NOT_AVAILABLE);
            found.message = found.message.or(found.refused).or(found.lost).or(leaves);
        }
        found
    }
}

pub fn reply_to(outcome: &RcptOutcome, host: &Arc<str>) -> HostReply {
    let is_own = matches!(outcome.stage, Stage::Unreadable | Stage::Signature | Stage::Table);
    let host = Some(host.clone()).filter(|_| !is_own);
    HostReply { code: outcome.code, dsn: outcome.dsn, text: outcome.text.clone(), cause: of_outcome(outcome), host }
}
