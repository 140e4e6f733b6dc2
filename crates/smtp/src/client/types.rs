//! Inputs and outputs of a client session.

use std::fmt;

use stentor_mail::dsn::Ret;

use super::caps::{Caps, Extensions};
use super::mechanisms::OfferedMechanisms;
use super::reply_parser::{ParsedReply, ReplyError};

/// Settings of client sessions; shared by many.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Our name in EHLO: a domain or an address literal (RFC 5321 4.1.1.1).
    pub ehlo_name: String,
    /// Use LMTP (RFC 2033): LHLO, and one reply per accepted recipient after the content.
    pub lmtp: bool,
    /// Send content by BDAT where CHUNKING is offered (RFC 3030).
    pub use_chunking: bool,
    /// Send commands in groups where PIPELINING is offered (RFC 2920).
    pub pipelining: bool,
    /// Content up to this size follows MAIL and RCPT in one write if BDAT can be used.
    pub pipelined_body_bytes_max: u64,
    /// Maximum number of transactions in progress (see [`super::ClientSession::can_pipeline`]).
    pub transactions_in_flight_max: usize,
    /// Time for the 220 greeting, from the start of the session.
    pub greeting_ms: u64,
    /// Time for the reply to EHLO, LHLO or HELO.
    pub ehlo_ms: u64,
    /// Time for the reply to STARTTLS.
    pub starttls_ms: u64,
    /// Time for the TLS handshake.
    pub handshake_ms: u64,
    /// Time for each reply of AUTH.
    pub auth_ms: u64,
    /// Time for the reply to MAIL, and to RSET.
    pub mail_ms: u64,
    /// Time for the reply to each RCPT.
    pub rcpt_ms: u64,
    /// Time for the 354 to DATA.
    pub data_init_ms: u64,
    /// Time for the server to accept each piece of the content, from one push to the next.
    pub data_block_ms: u64,
    /// Time for the reply after the content.
    pub data_done_ms: u64,
    /// Time for the reply to QUIT.
    pub quit_ms: u64,
}

/// Timeouts of RFC 5321 4.5.3.2. It has none for TLS and AUTH; those are shorter, since on failure there are other
/// hosts, or mail goes in clear.
impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            ehlo_name: "localhost".to_owned(),
            lmtp: false,
            use_chunking: true,
            pipelining: true,
            pipelined_body_bytes_max: 64 * 1024,
            transactions_in_flight_max: 16,
            greeting_ms: 300_000,
            ehlo_ms: 300_000,
            starttls_ms: 120_000,
            handshake_ms: 60_000,
            auth_ms: 120_000,
            mail_ms: 300_000,
            rcpt_ms: 300_000,
            data_init_ms: 120_000,
            data_block_ms: 180_000,
            data_done_ms: 600_000,
            quit_ms: 5_000,
        }
    }
}

/// Whether a session must be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum TlsUse {
    /// STARTTLS is not sent.
    #[default]
    Never,
    /// By STARTTLS if it is offered; in clear if it is not, or if it is refused.
    IfOffered,
    /// By STARTTLS, or not at all.
    Required,
    /// The caller performed the handshake before the greeting (RFC 8314 section 3).
    Implicit,
}

/// The TLS stage of a session; kept when it ends, so that the caller knows at which stage a connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum TlsStage {
    /// In clear; STARTTLS was not sent.
    #[default]
    Clear,
    /// STARTTLS was sent; its reply has not arrived.
    Asked,
    /// In clear, since the server refused STARTTLS.
    Refused,
    /// The server expects the handshake.
    Handshake,
    /// Encrypted. The server has not replied within TLS: some refuse our side of the handshake only now.
    Hello,
    /// Encrypted, and the server has replied within TLS.
    Secured,
}

/// Why a session with optional encryption is in clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartTlsRefusal {
    /// STARTTLS is not offered.
    NotOffered,
    /// STARTTLS is offered and refused.
    Refused(ParsedReply),
}

impl fmt::Display for StartTlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOffered => f.write_str("STARTTLS is not offered"),
            Self::Refused(reply) => write!(f, "STARTTLS was refused: {reply}"),
        }
    }
}

/// Octets that a server sends within AUTH. Not shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslOctets(pub Vec<u8>);

impl fmt::Debug for SaslOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} octets)", self.0.len())
    }
}

/// The meaning of a refusal of AUTH (RFC 4954 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthRefusal {
    /// 535: user, password or token is wrong.
    Credentials,
    /// 454, or another 4xx: temporary.
    Temporary,
    /// 534: the mechanism is too weak for this user.
    TooWeak,
    /// 432: the password must be changed first.
    PasswordTransition,
    /// 530, 538: TLS is required.
    NeedsTls,
    /// 504: the mechanism is not supported after all.
    Mechanism,
    /// 500, 501, 503: the command was not understood.
    Syntax,
    /// Another 5xx.
    Other,
}

impl AuthRefusal {
    pub(super) fn of(code: u16) -> Self {
        match code {
            535 => Self::Credentials,
            534 => Self::TooWeak,
            432 => Self::PasswordTransition,
            530 | 538 => Self::NeedsTls,
            504 => Self::Mechanism,
            500 | 501 | 503 => Self::Syntax,
            400..=499 => Self::Temporary,
            _ => Self::Other,
        }
    }
}

/// A transaction to begin; borrows, since the session keeps only counts.
#[derive(Debug, Clone, Copy)]
pub struct TxSpec<'a> {
    /// The caller's number for the transaction, returned in [`ClientEvent::Done`].
    pub tx: u64,
    /// Reverse-path without angle brackets; empty for the null reverse-path.
    pub sender: &'a str,
    /// Octets of the content as pushed (RFC 1870 counts the same way: CRLF is two, stuffed dots are not counted).
    pub size: u64,
    /// Whether `size` is exact. An estimate (say, of content converted while it is sent) rules out BDAT.
    pub size_exact: bool,
    /// The content holds octets over 127: BODY=8BITMIME. A server without it gets no such transaction: convert first.
    pub eight_bit: bool,
    /// The message or one of its addresses needs SMTPUTF8 (RFC 6531).
    pub smtputf8: bool,
    /// RFC 8689: only for a server that offers REQUIRETLS over TLS; any other gets no such transaction. The caller must
    /// know whether the server has proven its identity.
    pub require_tls: bool,
    /// RFC 3461 RET, passed on where DSN is offered.
    pub ret: Option<Ret>,
    /// RFC 3461 ENVID as xtext, passed on where DSN is offered.
    pub envid: Option<&'a str>,
}

/// A recipient of a transaction to begin.
#[derive(Debug, Clone, Copy, Default)]
pub struct TxRcpt<'a> {
    /// Forward-path without angle brackets.
    pub address: &'a str,
    /// RFC 3461 NOTIFY as bits: 1 NEVER, 2 SUCCESS, 4 FAILURE, 8 DELAY. Passed on where DSN is offered.
    pub notify: Option<u8>,
    /// RFC 3461 ORCPT as on the wire (`rfc822;xtext`), passed on where DSN is offered.
    pub orcpt: Option<&'a str>,
}

impl<'a> TxRcpt<'a> {
    /// Creates a recipient without parameters.
    pub fn new(address: &'a str) -> Self {
        Self { address, ..Self::default() }
    }
}

/// The stage a recipient reached: the command that its final reply was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RcptStage {
    /// Nothing was sent: the server lacks a feature that the message needs. The reply is made here (5xx).
    Local,
    /// The reply to MAIL, or 421 before that.
    Mail,
    /// The reply to RCPT.
    Rcpt,
    /// The reply to DATA.
    Data,
    /// The reply after the content. 2xx: delivered.
    Final,
    /// The connection was lost before all of the content was sent: certainly not delivered. The reply is made here
    /// (4xx).
    Lost,
    /// All of the content was sent, but its reply never came: perhaps delivered (RFC 1047). The reply is made here
    /// (4xx).
    AfterDot,
}

/// The outcome for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RcptResult {
    /// The final reply.
    pub reply: ParsedReply,
    /// The stage of that reply.
    pub stage: RcptStage,
    /// Extensions that the server offers and may have refused with this reply: nothing was delivered, and the recipient
    /// may be retried without these (see [`super::ClientSession::withhold`]). Usually none.
    pub blames: Extensions,
}

impl RcptResult {
    /// Whether the server took responsibility for this recipient's copy.
    pub fn is_delivered(&self) -> bool {
        self.stage == RcptStage::Final && self.reply.is_success()
    }
}

/// Events of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// Encryption is optional, and the session continues in clear.
    Unsecured(StartTlsRefusal),
    /// The server expects the handshake; see [`super::ClientSession::secured`].
    StartTls,
    /// These mechanisms are offered; see [`super::ClientSession::auth`].
    Authenticate(OfferedMechanisms),
    /// A challenge of the mechanism; see [`super::ClientSession::respond`].
    Challenge(SaslOctets),
    /// The server accepted our identity; [`ClientEvent::Ready`] follows. A mechanism that also proves the server's
    /// identity may not be finished: see [`super::ClientSession::decline_auth`].
    Authenticated,
    /// Greeted; transactions may begin.
    Ready(Caps),
    /// A transaction has ended.
    Done {
        /// [`TxSpec::tx`].
        tx: u64,
        /// One per recipient, in the order in which they were given. Return the vector to
        /// [`super::ClientSession::recycle`] to save an allocation.
        results: Vec<RcptResult>,
    },
    /// The last event. The socket must be closed.
    Closed {
        /// `None` after QUIT.
        error: Option<ClientError>,
    },
}

/// Why a session ended or refused a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The input is not a reply.
    #[error("{0}")]
    Reply(#[from] ReplyError),
    /// An unsolicited reply.
    #[error("unsolicited reply: {0}")]
    Unsolicited(ParsedReply),
    /// A reply with a code that is invalid for its command.
    #[error("unexpected reply to {to}: {reply}")]
    Unexpected {
        /// The command that it answered.
        to: &'static str,
        /// The reply.
        reply: ParsedReply,
    },
    /// Greeting, EHLO or HELO refused.
    #[error("refused at {at}: {reply}")]
    Refused {
        /// The refused command.
        at: &'static str,
        /// The reply.
        reply: ParsedReply,
    },
    /// 421: the server closes the connection (RFC 5321 3.8).
    #[error("server closed the session at {at}: {reply}")]
    ServerClosing {
        /// The command in progress.
        at: &'static str,
        /// The reply.
        reply: ParsedReply,
    },
    /// A refusal before all of the content was sent: the session cannot return to commands.
    #[error("refused in the middle of the content: {0}")]
    RefusedInBody(ParsedReply),
    /// BDAT was refused although CHUNKING is offered: its content may have been read as commands, so no later reply can
    /// be trusted. Transactions in progress may be retried by DATA over another connection.
    #[error("BDAT was offered but refused: {0}")]
    ChunkingRefused(ParsedReply),
    /// STARTTLS is required and not offered.
    #[error("TLS is required but STARTTLS is not offered")]
    TlsNotOffered,
    /// STARTTLS is required, offered and refused.
    #[error("TLS is required but STARTTLS was refused: {0}")]
    TlsRefused(ParsedReply),
    /// Cleartext octets after the 220 to STARTTLS: an attacker wants them taken for the server's replies within TLS.
    #[error("unencrypted octets after the reply to STARTTLS")]
    Injected,
    /// The handshake, or TLS later, failed.
    #[error("TLS failed: {0}")]
    Tls(Box<str>),
    /// AUTH was refused.
    #[error("AUTH refused: {reply}")]
    Auth {
        /// The meaning of the refusal.
        why: AuthRefusal,
        /// The reply; octets sent in AUTH are removed from it.
        reply: ParsedReply,
    },
    /// AUTH is required but impossible, or the server failed in it.
    #[error("cannot log in: {0}")]
    NoAuth(Box<str>),
    /// No reply, or no progress, for as long as RFC 5321 4.5.3.2 allows.
    #[error("timed out while {0}")]
    TimedOut(&'static str),
    /// The connection was lost.
    #[error("lost connection while {0}")]
    Disconnected(&'static str),
    /// The caller gave up while transactions were open.
    #[error("given up while {0}")]
    GivenUp(&'static str),
    /// An address or parameter that cannot be written safely. Nothing was sent; the session continues.
    #[error("address or parameter with forbidden characters")]
    BadAddress,
    /// A transaction without recipients. Nothing was sent; the session continues.
    #[error("no recipients")]
    NoRecipients,
    /// The call does not fit the state. Nothing was sent; the session continues.
    #[error("not possible in this state")]
    NotReady,
    /// Content with a lone CR or LF, or with a NUL sent by DATA; it must not be sent.
    #[error("content that cannot be sent safely (a bare CR or LF, or a NUL)")]
    UnsafeContent,
    /// The content's length differs from the declared one.
    #[error("content size differs from the declared size")]
    SizeMismatch,
}
