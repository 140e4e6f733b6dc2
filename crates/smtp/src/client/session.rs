//! The session: the expected replies, and the action on each one.
//!
//! Expected replies form one queue in the order of the commands. Those from `Mail` to `Content` belong to the front
//! transaction, which leaves the queue with its last reply. So several transactions can be in progress: the one at the
//! back is being written while the one in front is being answered.

mod auth;
mod replies;
mod secure;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use stentor_mail::Ms;
use stentor_mail::reply::Enhanced;

use super::caps::{Caps, Extensions};
use super::command::{write_mail, write_rcpt};
use super::reply_parser::{ParsedReply, ReplyParser, ReplyView};
use super::transaction::{Content, Flow, Transaction};
use super::types::{ClientConfig, ClientError, ClientEvent, RcptResult, RcptStage, TlsStage, TlsUse, TxRcpt, TxSpec};
use auth::Exchange;

/// Result vectors kept for reuse.
const SPARE_RESULTS_MAX: usize = 4;
/// Vectors with a larger capacity are not kept for reuse.
const SPARE_RESULTS_CAPACITY_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Greeting, EHLO, HELO, STARTTLS.
    Opening,
    /// The caller performs the TLS handshake.
    Securing,
    Authenticating,
    Ready,
    Quitting,
    Closed,
}

/// An expected reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedReply {
    Greeting,
    Ehlo,
    Helo,
    StartTls,
    /// A challenge or the end of AUTH.
    Auth,
    /// RSET: clears the server's side of a failed transaction before the next MAIL.
    Reset,
    Mail,
    /// This many more replies to RCPT.
    Rcpt(u32),
    Data,
    /// The reply to the content: after the dot, or to BDAT LAST.
    Content,
    Quit,
}

impl ExpectedReply {
    /// Describes the wait for the log: "timed out while ...".
    fn doing(self) -> &'static str {
        match self {
            Self::Greeting => "waiting for the greeting",
            Self::Ehlo => "sending EHLO",
            Self::Helo => "sending HELO",
            Self::StartTls => "sending STARTTLS",
            Self::Auth => "authenticating",
            Self::Reset => "sending RSET",
            Self::Mail => "sending MAIL FROM",
            Self::Rcpt(_) => "sending RCPT TO",
            Self::Data => "sending DATA",
            Self::Content => "waiting for the reply to the message",
            Self::Quit => "sending QUIT",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Greeting => "greeting",
            Self::Ehlo => "EHLO",
            Self::Helo => "HELO",
            Self::StartTls => "STARTTLS",
            Self::Auth => "AUTH",
            Self::Reset => "RSET",
            Self::Mail => "MAIL",
            Self::Rcpt(_) => "RCPT",
            Self::Data => "DATA",
            Self::Content => "end of data",
            Self::Quit => "QUIT",
        }
    }

    fn stage(self) -> RcptStage {
        match self {
            Self::Rcpt(_) => RcptStage::Rcpt,
            Self::Data => RcptStage::Data,
            Self::Content => RcptStage::Final,
            _ => RcptStage::Mail,
        }
    }
}

/// The client side of one connection; see [`super`].
pub struct ClientSession {
    config: Arc<ClientConfig>,
    /// The server's extensions, less those withheld.
    offered: Caps,
    caps: Caps,
    withheld: Extensions,
    phase: Phase,
    /// The caller's TLS requirement, and the current stage.
    tls: TlsUse,
    stage: TlsStage,
    /// Whether AUTH comes before the first transaction.
    authenticates: bool,
    /// AUTH in progress.
    auth: Option<Box<Exchange>>,
    parser: ReplyParser,
    /// The server's own name in its greeting.
    greeted_as: Box<str>,
    output: Vec<u8>,
    /// Without PIPELINING: commands waiting for the reply to the one before, and the offset of the next.
    held: Vec<u8>,
    held_at: usize,
    awaited: VecDeque<ExpectedReply>,
    transactions: VecDeque<Transaction>,
    events: VecDeque<ClientEvent>,
    /// When the wait for the front of `awaited`, or for the next push, began.
    since: Ms,
    /// The last transaction did not end with accepted content: RSET is needed before the next.
    dirty: bool,
    /// The server refused the last RSET.
    reset_refused: bool,
    /// A transaction got exactly one reply to each of its commands.
    in_step: bool,
    /// Content was accepted by BDAT.
    knows_bdat: bool,
    spare: Vec<Vec<RcptResult>>,
    /// The text of the last reply kept: the same refusal for many recipients is stored once.
    text: String,
    last_text: Arc<str>,
    /// Number of replies so far.
    replies: u64,
}

impl ClientSession {
    /// Creates a session on a new connection; it waits for the greeting.
    pub fn new(config: Arc<ClientConfig>, now: Ms) -> Self {
        Self {
            config,
            offered: Caps::default(),
            caps: Caps::default(),
            withheld: Extensions::NONE,
            phase: Phase::Opening,
            tls: TlsUse::Never,
            stage: TlsStage::Clear,
            authenticates: false,
            auth: None,
            parser: ReplyParser::new(),
            greeted_as: Box::default(),
            output: Vec::new(),
            held: Vec::new(),
            held_at: 0,
            awaited: VecDeque::from([ExpectedReply::Greeting]),
            transactions: VecDeque::new(),
            events: VecDeque::new(),
            since: now,
            dirty: false,
            reset_refused: false,
            in_step: false,
            knows_bdat: false,
            spare: Vec::new(),
            text: String::new(),
            last_text: Arc::default(),
            replies: 0,
        }
    }

    /// Treats these extensions as not offered from now on.
    pub fn withhold(&mut self, extensions: Extensions) {
        self.withheld = self.withheld.and(extensions);
        self.caps = self.offered.without(self.withheld);
    }

    /// Undoes [`Self::withhold`].
    pub fn restore(&mut self, extensions: Extensions) {
        self.withheld = self.withheld.without(extensions);
        self.caps = self.offered.without(self.withheld);
    }

    /// Whether the server uses this name for itself, in its greeting or in its reply to EHLO.
    pub fn calls_itself(&self, name: &str) -> bool {
        let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        [&self.greeted_as, &self.offered.peer_name].iter().any(|own| !own.is_empty() && plain(own) == plain(name))
    }

    /// Ends a session without open transactions: no mail may be sent to this server.
    pub fn refuse(&mut self, enhanced: Enhanced, why: &str) {
        debug_assert!(self.transactions.is_empty(), "a transaction is open");
        self.output.extend_from_slice(b"QUIT\r\n");
        let reply = ParsedReply::made_here(451, enhanced, why);
        self.lost(ClientError::Refused { at: "greeting", reply });
    }

    /// Returns the number of complete replies so far, to distinguish a server that replies from one that sends single
    /// octets.
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Whether content is sent by BDAT, which counts octets, rather than DATA.
    pub fn uses_chunks(&self) -> bool {
        self.config.use_chunking && self.caps.chunking
    }

    /// Returns bytes for the server. The caller writes them and clears the buffer.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Returns the server's extensions; empty before [`ClientEvent::Ready`].
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Whether [`ClientEvent::Closed`] was reported; nothing more happens after that.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Returns the number of transactions begun and not yet done.
    pub fn in_flight(&self) -> usize {
        self.transactions.len()
    }

    /// Whether all of a transaction's content has been sent and its final reply is outstanding: closing the connection
    /// now may cause a duplicate delivery (RFC 1047).
    pub fn has_data_out(&self) -> bool {
        self.transactions.iter().any(Transaction::content_is_out)
    }

    /// Whether a transaction may begin if none is open.
    pub fn can_begin(&self) -> bool {
        self.phase == Phase::Ready && self.transactions.is_empty() && self.awaited.is_empty()
    }

    /// Whether a transaction with content of `size` octets may begin now, even while replies to earlier ones are
    /// outstanding. That needs PIPELINING and CHUNKING, and content small enough to follow in one write. The first
    /// transaction of a connection goes alone. Some servers offer PIPELINING but drop a command after another: replies
    /// to the next transaction would then be taken for the missing ones, and mail for delivered.
    pub fn can_pipeline(&self, size: u64) -> bool {
        self.can_begin()
            || (self.phase == Phase::Ready
                && self.in_step
                && self.flow(size, true) == Flow::ChunkNow
                && self.transactions.len() < self.config.transactions_in_flight_max
                && self.transactions.back().is_none_or(|t| t.flow == Flow::ChunkNow && t.content == Content::Ended))
    }

    /// Begins a transaction: writes MAIL, RCPT and any commands that may follow at once to the output.
    ///
    /// On an error nothing was written and the session is unchanged. If the server lacks a feature that the message
    /// needs (SIZE, 8BITMIME, SMTPUTF8), nothing is written either: the result is `Done` with [`RcptStage::Local`]
    /// results.
    pub fn begin<'a>(
        &mut self,
        spec: &TxSpec<'_>,
        rcpts: impl IntoIterator<Item = TxRcpt<'a>>,
        now: Ms,
    ) -> Result<(), ClientError> {
        if !(self.can_begin() || (spec.size_exact && self.can_pipeline(spec.size))) {
            return Err(ClientError::NotReady);
        }
        self.begin_by(self.flow(spec.size, spec.size_exact), spec, rcpts, now)
    }

    /// Asks whether the server would accept mail for an address: MAIL and RCPT, without content. The answer is
    /// [`ClientEvent::Done`] with one result; [`RcptStage::Rcpt`] with 2xx means yes. RSET precedes the next
    /// transaction.
    ///
    /// On an error nothing was written and the session is unchanged.
    pub fn verify(&mut self, tx: u64, sender: &str, address: &str, now: Ms) -> Result<(), ClientError> {
        if !self.can_begin() {
            return Err(ClientError::NotReady);
        }
        let spec = TxSpec {
            tx,
            sender,
            size: 0,
            size_exact: true,
            eight_bit: false,
            smtputf8: !address.is_ascii(),
            require_tls: false,
            ret: None,
            envid: None,
        };
        self.begin_by(Flow::NoContent, &spec, std::iter::once(TxRcpt::new(address)), now)
    }

    fn begin_by<'a>(
        &mut self,
        flow: Flow,
        spec: &TxSpec<'_>,
        rcpts: impl IntoIterator<Item = TxRcpt<'a>>,
        now: Ms,
    ) -> Result<(), ClientError> {
        let pipelined = self.pipelines();
        // After a transaction with an unknown end, RSET is essential. If all its recipients or its BDAT had been
        // refused, the next MAIL would be a 503, and the next recipients would get their copy under the previous sender
        // (RFC 3030 section 2 requires it). It shares the round trip with the commands around it.
        let reset = self.dirty || !self.transactions.is_empty();
        let mut transaction = Transaction::new(spec, flow, pipelined, self.spare.pop().unwrap_or_default());
        if let Some(refusal) = self.refusal(spec) {
            let count = rcpts.into_iter().map(|_| transaction.add_decided(refusal.clone())).count();
            if count == 0 {
                return Err(ClientError::NoRecipients);
            }
            self.done(transaction);
            return Ok(());
        }
        debug_assert!(pipelined || self.held_at == self.held.len(), "a transaction begun while commands are held");
        let out = if pipelined { &mut self.output } else { &mut self.held };
        if !pipelined {
            out.clear();
            self.held_at = 0;
        }
        let mark = out.len();
        if reset {
            out.extend_from_slice(b"RSET\r\n");
        }
        // Without content there is no size to declare.
        let sizeless = (flow == Flow::NoContent).then(|| self.caps.without(Extensions::SIZE));
        let sent = write_envelope(spec, rcpts, sizeless.as_ref().unwrap_or(&self.caps), &mut transaction, out);
        let sent = match sent {
            Ok(0) => {
                out.truncate(mark);
                self.done(transaction);
                return Ok(());
            }
            Ok(sent) => sent,
            Err(error) => {
                out.truncate(mark);
                return Err(error);
            }
        };
        if self.awaited.is_empty() {
            self.since = now;
        }
        if reset {
            self.awaited.push_back(ExpectedReply::Reset);
        }
        self.awaited.extend([ExpectedReply::Mail, ExpectedReply::Rcpt(sent)]);
        self.dirty = true;
        match flow {
            Flow::ChunkNow => self.write_bdat(&mut transaction),
            Flow::DataNow => self.write_data(),
            Flow::ChunkLater | Flow::DataLater | Flow::NoContent => {}
        }
        self.transactions.push_back(transaction);
        self.release();
        Ok(())
    }

    /// Whether the newest transaction waits for (more of) its content.
    pub fn wants_body(&self) -> bool {
        self.transactions.back().is_some_and(|t| t.content == Content::Open)
    }

    /// Adds a piece of the content to the output. An error ends the session: the message must not be sent.
    pub fn push_body(&mut self, bytes: &[u8], now: Ms) -> Result<(), ClientError> {
        let Some(transaction) = self.transactions.back_mut().filter(|t| t.content == Content::Open) else {
            return Err(ClientError::NotReady);
        };
        self.since = now;
        let chunk = transaction.flow.is_chunk();
        if chunk {
            let Some(left) = transaction.left.checked_sub(bytes.len() as u64) else {
                return self.fail(ClientError::SizeMismatch);
            };
            transaction.left = left;
        }
        if transaction.writer.push(bytes, !chunk, &mut self.output).is_err() {
            return self.fail(ClientError::UnsafeContent);
        }
        Ok(())
    }

    /// Notes that the content is complete.
    pub fn end_body(&mut self, now: Ms) -> Result<(), ClientError> {
        let Some(transaction) = self.transactions.back_mut().filter(|t| t.content == Content::Open) else {
            return Err(ClientError::NotReady);
        };
        if transaction.writer.check_end().is_err() {
            return self.fail(ClientError::UnsafeContent);
        }
        if transaction.flow.is_chunk() {
            if transaction.left > 0 {
                return self.fail(ClientError::SizeMismatch);
            }
        } else {
            if !transaction.writer.at_line_start() {
                self.output.extend_from_slice(b"\r\n");
            }
            self.output.extend_from_slice(b".\r\n");
        }
        transaction.content = Content::Ended;
        // Only the last awaited reply is for this content: earlier ones keep their clock.
        if self.awaited.len() <= 1 {
            self.since = now;
        }
        if transaction.answered {
            self.finish_front();
        }
        Ok(())
    }

    /// Processes bytes from the server. An error is also in the [`ClientEvent::Closed`] that ends the session.
    pub fn receive(&mut self, bytes: &[u8], now: Ms) -> Result<(), ClientError> {
        match self.phase {
            Phase::Closed => return Ok(()),
            // Cleartext after the 220: RFC 3207 section 6, CVE-2021-38371.
            Phase::Securing => return self.fail(ClientError::Injected),
            _ => {}
        }
        let mut parser = std::mem::take(&mut self.parser);
        parser.push(bytes);
        let result = loop {
            match parser.next_reply() {
                Ok(Some(reply)) => {
                    if let Err(error) = self.reply(reply, now) {
                        break self.fail(error);
                    }
                    match self.phase {
                        Phase::Closed => break Ok(()),
                        Phase::Securing if !parser.is_empty() => break self.fail(ClientError::Injected),
                        _ => {}
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break self.fail(error.into()),
            }
        };
        self.parser = parser;
        result
    }

    /// Returns when [`Self::timed_out`] must be called; [`Ms::MAX`] while nothing is awaited.
    pub fn deadline(&self) -> Ms {
        let config = &self.config;
        let wait = match self.awaited.front() {
            _ if self.phase == Phase::Closed => return Ms::MAX,
            _ if self.phase == Phase::Securing => config.handshake_ms,
            _ if self.wants_body() => config.data_block_ms,
            None => return Ms::MAX,
            Some(ExpectedReply::Greeting) => config.greeting_ms,
            Some(ExpectedReply::Ehlo | ExpectedReply::Helo) => config.ehlo_ms,
            Some(ExpectedReply::StartTls) => config.starttls_ms,
            Some(ExpectedReply::Auth) => config.auth_ms,
            Some(ExpectedReply::Reset | ExpectedReply::Mail) => config.mail_ms,
            Some(ExpectedReply::Rcpt(_)) => config.rcpt_ms,
            Some(ExpectedReply::Data) => config.data_init_ms,
            Some(ExpectedReply::Content) => config.data_done_ms,
            Some(ExpectedReply::Quit) => config.quit_ms,
        };
        self.since.saturating_add(wait)
    }

    /// Ends the session if its deadline has passed; returns whether it did.
    pub fn timed_out(&mut self, now: Ms) -> bool {
        let late = self.phase != Phase::Closed && now >= self.deadline();
        if late {
            self.lost(ClientError::TimedOut(self.doing()));
        }
        late
    }

    /// Notes that the connection is gone: end of file, reset, or an error on writing.
    pub fn disconnected(&mut self) {
        self.lost(ClientError::Disconnected(self.doing()));
    }

    /// Sends QUIT. If transactions are open it abandons them instead, and the connection must be closed at once.
    pub fn quit(&mut self, now: Ms) {
        if self.phase == Phase::Closed || self.phase == Phase::Quitting {
            return;
        }
        if self.phase != Phase::Ready || !self.transactions.is_empty() {
            return self.lost(ClientError::GivenUp(self.doing()));
        }
        self.output.extend_from_slice(b"QUIT\r\n");
        self.awaited.push_back(ExpectedReply::Quit);
        self.phase = Phase::Quitting;
        self.since = now;
    }

    /// Returns a vector of results for reuse.
    pub fn recycle(&mut self, mut results: Vec<RcptResult>) {
        if self.spare.len() < SPARE_RESULTS_MAX && results.capacity() <= SPARE_RESULTS_CAPACITY_MAX {
            results.clear();
            self.spare.push(results);
        }
    }

    fn pipelines(&self) -> bool {
        self.config.pipelining && self.caps.pipelining
    }

    fn flow(&self, size: u64, exact: bool) -> Flow {
        let now = self.pipelines();
        if !(self.uses_chunks() && exact) {
            return if now { Flow::DataNow } else { Flow::DataLater };
        }
        if now && size <= self.config.pipelined_body_bytes_max { Flow::ChunkNow } else { Flow::ChunkLater }
    }

    /// Returns why this server can never accept this message.
    fn refusal(&self, spec: &TxSpec<'_>) -> Option<ParsedReply> {
        let made = |code, (class, subject, detail), text| {
            Some(ParsedReply::made_here(code, Enhanced::new(class, subject, detail), text))
        };
        if (spec.smtputf8 && !self.caps.smtputf8) || (!spec.smtputf8 && !spec.sender.is_ascii()) {
            return made(550, (5, 6, 7), "SMTPUTF8 is needed but the host does not offer it");
        }
        if spec.eight_bit && !self.caps.eight_bit_mime {
            return made(554, (5, 6, 3), "8BITMIME is needed but the host does not offer it");
        }
        if spec.require_tls && !(self.is_secured() && self.caps.require_tls()) {
            return made(550, (5, 7, 30), "REQUIRETLS is needed but the host does not offer it over TLS");
        }
        match self.caps.size {
            Some(max) if max > 0 && spec.size > max => made(552, (5, 3, 4), "message exceeds the host's size limit"),
            _ => None,
        }
    }

    fn write_bdat(&mut self, transaction: &mut Transaction) {
        use std::io::Write as _;
        let _ = write!(self.output, "BDAT {} LAST\r\n", transaction.size);
        self.awaited.push_back(ExpectedReply::Content);
        transaction.content = Content::Open;
    }

    fn write_data(&mut self) {
        self.output.extend_from_slice(b"DATA\r\n");
        self.awaited.push_back(ExpectedReply::Data);
    }

    /// Without PIPELINING: sends the next command.
    fn release(&mut self) {
        let rest = &self.held[self.held_at..];
        if let Some(end) = memchr::memchr(b'\n', rest) {
            self.output.extend_from_slice(&rest[..=end]);
            self.held_at += end + 1;
        }
    }

    /// Describes the session's current wait, for the text of an error.
    fn doing(&self) -> &'static str {
        match self.awaited.front() {
            _ if self.wants_body() => "sending the message",
            _ if self.phase == Phase::Securing => "negotiating TLS",
            _ if self.phase == Phase::Authenticating => "authenticating",
            Some(awaited) => awaited.doing(),
            None => "idle",
        }
    }

    /// Copies a reply; shares the text with the previous one if they are equal.
    fn keep(&mut self, reply: ReplyView<'_>) -> ParsedReply {
        self.text.clear();
        reply.text_into(&mut self.text);
        if let Some(exchange) = &self.auth {
            exchange.hide(reply.code, &mut self.text);
        }
        if *self.last_text != *self.text {
            self.last_text = Arc::from(self.text.as_str());
        }
        ParsedReply { code: reply.code, enhanced: reply.enhanced(), text: Arc::clone(&self.last_text) }
    }

    /// Finishes the front transaction, which has its last reply.
    fn finish_front(&mut self) {
        if let Some(transaction) = self.transactions.pop_front() {
            self.dirty = !transaction.delivered;
            self.in_step |= self.awaited.is_empty();
            self.knows_bdat |= transaction.delivered && transaction.flow.is_chunk();
            self.done(transaction);
        }
    }

    fn done(&mut self, transaction: Transaction) {
        let tx = transaction.tx;
        self.events.push_back(ClientEvent::Done { tx, results: transaction.into_results() });
    }

    fn fail(&mut self, error: ClientError) -> Result<(), ClientError> {
        self.lost(error.clone());
        Err(error)
    }

    /// Ends the session: every open transaction gets its results, followed by `Closed`.
    fn lost(&mut self, error: ClientError) {
        if self.phase == Phase::Closed {
            return;
        }
        let stage = self.awaited.front().map_or(RcptStage::Mail, |awaited| awaited.stage());
        let mut front = true;
        while let Some(mut transaction) = self.transactions.pop_front() {
            let newest = self.transactions.is_empty();
            match &error {
                ClientError::ServerClosing { reply, .. } => {
                    // The server did not process transactions after the front one.
                    transaction.decide_rest(reply, if front { stage } else { RcptStage::Mail });
                }
                ClientError::ChunkingRefused(reply) if front => {
                    transaction.decide_blaming(reply, RcptStage::Final, Extensions::CHUNKING);
                }
                // It also used BDAT, or it could not have begun: refused like the first, or read as commands.
                ClientError::ChunkingRefused(_) => {
                    let reply = ParsedReply::made_here(421, Enhanced::new(4, 4, 2), &error.to_string());
                    transaction.decide_blaming(&reply, RcptStage::Lost, Extensions::CHUNKING);
                }
                ClientError::UnsafeContent | ClientError::SizeMismatch if newest => {
                    let reply = ParsedReply::made_here(554, Enhanced::new(5, 6, 0), &error.to_string());
                    transaction.decide_rest(&reply, RcptStage::Local);
                }
                _ => {
                    let reply = ParsedReply::made_here(421, Enhanced::new(4, 4, 2), &error.to_string());
                    let out = transaction.content_is_out();
                    transaction.decide_rest(&reply, if out { RcptStage::AfterDot } else { RcptStage::Lost });
                }
            }
            front = false;
            self.done(transaction);
        }
        let quitting = self.phase == Phase::Quitting;
        self.phase = Phase::Closed;
        self.awaited.clear();
        self.end_auth();
        self.events.push_back(ClientEvent::Closed { error: if quitting { None } else { Some(error) } });
    }
}

/// Leaves out pending output, which may hold a password.
impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession")
            .field("phase", &self.phase)
            .field("stage", &self.stage)
            .field("awaited", &self.awaited)
            .field("transactions", &self.transactions)
            .field("events", &self.events)
            .field("caps", &self.caps)
            .finish_non_exhaustive()
    }
}

/// Writes MAIL and RCPT; returns the number of RCPT commands written.
fn write_envelope<'a>(
    spec: &TxSpec<'_>,
    rcpts: impl IntoIterator<Item = TxRcpt<'a>>,
    caps: &Caps,
    transaction: &mut Transaction,
    out: &mut Vec<u8>,
) -> Result<u32, ClientError> {
    transaction.mail_uses = write_mail(spec, caps, out)?;
    let (mut sent, mut any) = (0, false);
    for rcpt in rcpts {
        any = true;
        if !spec.smtputf8 && !rcpt.address.is_ascii() {
            let text = "SMTPUTF8 is needed for this address but the host does not offer it";
            transaction.add_decided(ParsedReply::made_here(553, Enhanced::new(5, 6, 7), text));
        } else if let Ok(uses) = write_rcpt(&rcpt, spec.smtputf8, caps, out) {
            transaction.add(uses);
            sent += 1;
        } else {
            let text = "the address has characters that cannot be sent";
            transaction.add_decided(ParsedReply::made_here(553, Enhanced::new(5, 1, 3), text));
        }
    }
    if any { Ok(sent) } else { Err(ClientError::NoRecipients) }
}
