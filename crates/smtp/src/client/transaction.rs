//! One transaction in progress: each recipient's reply, and how much of the content has been sent.

use std::sync::Arc;

use super::body::BodyWriter;
use super::caps::Extensions;
use super::reply_parser::ParsedReply;
use super::types::{RcptResult, RcptStage, TxSpec};

/// The order in which commands and content are sent; see the module documentation of [`super`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// MAIL, RCPT and BDAT with its content, without waiting.
    ChunkNow,
    /// BDAT once a recipient is accepted.
    ChunkLater,
    /// DATA in one group with MAIL and RCPT.
    DataNow,
    /// DATA once a recipient is accepted.
    DataLater,
    /// No content: only the replies to RCPT are wanted.
    NoContent,
}

impl Flow {
    pub(super) fn is_chunk(self) -> bool {
        matches!(self, Self::ChunkNow | Self::ChunkLater)
    }
}

/// Progress of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Not yet requested, or never.
    Waiting,
    /// Being pushed.
    Open,
    /// All of it, including its end, is in the output.
    Ended,
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) tx: u64,
    pub(super) flow: Flow,
    /// Its commands are sent without waiting for replies.
    pub(super) pipelined: bool,
    /// The extensions that MAIL uses.
    pub(super) mail_uses: Extensions,
    pub(super) content: Content,
    pub(super) writer: BodyWriter,
    /// Declared octets of the content.
    pub(super) size: u64,
    /// Octets of the content still to be pushed (BDAT).
    pub(super) left: u64,
    /// Recipients accepted at RCPT and not refused since.
    pub(super) accepted: u32,
    /// The content was accepted for a recipient: the server's side of the transaction has ended properly.
    pub(super) delivered: bool,
    /// The reply to the content came while it was still being pushed; the transaction ends with its last octet.
    pub(super) answered: bool,
    /// One result per recipient; see [`undecided`] and [`is_accepted`] for those without a final reply.
    results: Vec<RcptResult>,
    /// The recipient of the next reply to RCPT; later, of LMTP's next reply to the content.
    cursor: usize,
}

/// Whether there is no reply yet.
fn undecided(result: &RcptResult) -> bool {
    result.reply.code == 0
}

/// Whether the recipient was accepted at RCPT and waits for the reply to the content.
fn is_accepted(result: &RcptResult) -> bool {
    result.stage == RcptStage::Rcpt && result.reply.is_success()
}

impl Transaction {
    pub(super) fn new(spec: &TxSpec<'_>, flow: Flow, pipelined: bool, results: Vec<RcptResult>) -> Self {
        debug_assert!(results.is_empty(), "buffers are recycled empty");
        Self {
            tx: spec.tx,
            flow,
            pipelined,
            mail_uses: Extensions::NONE,
            content: Content::Waiting,
            writer: BodyWriter::default(),
            size: spec.size,
            left: spec.size,
            accepted: 0,
            delivered: false,
            answered: false,
            results,
            cursor: 0,
        }
    }

    /// Adds a recipient that is sent. The extensions used by its RCPT are to blame until its reply says otherwise.
    pub(super) fn add(&mut self, uses: Extensions) {
        let reply = ParsedReply { code: 0, enhanced: None, text: Arc::default() };
        self.results.push(RcptResult { reply, stage: RcptStage::Lost, blames: uses });
    }

    /// Adds a recipient that is not sent.
    pub(super) fn add_decided(&mut self, reply: ParsedReply) {
        self.results.push(RcptResult { reply, stage: RcptStage::Local, blames: Extensions::NONE });
    }

    /// Whether all of the content was sent, so that the server may have accepted it.
    pub(super) fn content_is_out(&self) -> bool {
        self.content == Content::Ended
    }

    /// Whether a recipient has its reply to the content (LMTP sends one for each).
    pub(super) fn has_answers(&self) -> bool {
        self.results.iter().any(|result| result.stage == RcptStage::Final)
    }

    /// Records a 2xx reply to RCPT for the next recipient.
    pub(super) fn rcpt_accepted(&mut self, code: u16) {
        if let Some(result) = self.next(undecided) {
            result.reply.code = code;
            result.stage = RcptStage::Rcpt;
            result.blames = Extensions::NONE;
            self.accepted += 1;
        }
    }

    /// Records a refusal of RCPT for the next recipient.
    pub(super) fn rcpt_refused(&mut self, reply: ParsedReply) {
        let pipelined = self.pipelined;
        if let Some(result) = self.next(undecided) {
            let mut blames = Extensions::NONE;
            if reply.refuses_parameter() {
                blames = result.blames;
            } else if pipelined && reply.refuses_sequence() {
                blames = Extensions::PIPELINING;
            }
            *result = RcptResult { reply, stage: RcptStage::Rcpt, blames };
        }
    }

    /// Resets the cursor after the last reply to RCPT: LMTP's replies to the content begin at the first recipient.
    pub(super) fn rcpts_done(&mut self) {
        self.cursor = 0;
    }

    /// Records LMTP's reply to the content for the next accepted recipient (RFC 2033 4.2).
    pub(super) fn lmtp_final(&mut self, reply: ParsedReply) {
        let success = reply.is_success();
        if let Some(result) = self.next(is_accepted) {
            *result = RcptResult { reply, stage: RcptStage::Final, blames: Extensions::NONE };
            self.accepted -= 1;
            self.delivered |= success;
        }
    }

    /// Records the same reply for all recipients without a final one.
    pub(super) fn decide_rest(&mut self, reply: &ParsedReply, stage: RcptStage) {
        self.decide_blaming(reply, stage, Extensions::NONE);
    }

    /// Records the same refusal for all recipients without a final reply; one of `blames` may be its cause.
    pub(super) fn decide_blaming(&mut self, reply: &ParsedReply, stage: RcptStage, blames: Extensions) {
        self.delivered |= self.accepted > 0 && stage == RcptStage::Final && reply.is_success();
        for result in &mut self.results {
            if undecided(result) || is_accepted(result) {
                *result = RcptResult { reply: reply.clone(), stage, blames };
            }
        }
        self.accepted = 0;
    }

    /// Returns the results; all recipients have one.
    pub(super) fn into_results(self) -> Vec<RcptResult> {
        let may_be_accepted = self.flow == Flow::NoContent;
        debug_assert!(
            self.results.iter().all(|result| !undecided(result) && (may_be_accepted || !is_accepted(result)))
        );
        self.results
    }

    /// Returns the next result from the cursor for which `wanted` holds; moves the cursor past it.
    fn next(&mut self, wanted: fn(&RcptResult) -> bool) -> Option<&mut RcptResult> {
        let at = self.cursor + self.results[self.cursor..].iter().position(wanted)?;
        self.cursor = at + 1;
        self.results.get_mut(at)
    }
}
