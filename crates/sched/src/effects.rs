//! Types exchanged with the caller: effects, work, outcomes and close reasons.

use std::sync::Arc;

use smallvec::SmallVec;
use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{AddressId, ConnId, DomainId, MessageNo, Ms, SiteId, TxId};
use stentor_queue::site::Target;

/// Recipients of one transaction: inline for plain relay.
pub type Ids = SmallVec<[AddressId; 4]>;

/// A local address to send from: its index in `SchedConfig::sources`.
pub type SourceNo = u8;

/// A request to the caller. Each is answered by the call named with it.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Look the domain's destination up; answer with [`crate::Scheduler::resolved`].
    Resolve { domain: DomainId },
    /// Drop a look-up: its place goes to another domain. An answer that still comes changes nothing.
    ForgetLookUp { domain: DomainId },
    /// Open a session to `target` from `source`; answer with `connected` (ready for MAIL) or `connect_failed`, and in
    /// the end with `closed`.
    Connect { conn: ConnId, site: SiteId, source: SourceNo, target: Target },
    /// Work waits for this idle connection; answer with `take_work`.
    Work { conn: ConnId },
    /// Say QUIT and close; answer with `closed`. No transaction is open on it (a connecting one is given up).
    Close { conn: ConnId },
    /// Drop this silent connection at once, whatever it waits for, because others need its place; answer as for a
    /// time-out. If the end of some data (final dot, BDAT LAST) has been sent, answer with `stays` instead.
    GiveWay { conn: ConnId },
    /// Notify the sender of the delay, for the recipients that are still pending and have NOTIFY=DELAY or no NOTIFY
    /// (RFC 3461 4.1). Once per message; no answer.
    Delayed { no: MessageNo },
    /// The fast lane has finished a list's post except for `pending` recipients. Once per message; no answer.
    FastDone { no: MessageNo, pending: u32 },
    /// Suspend a list's subscriber who has been refused permanently for this many posts in a row since then. No answer.
    Suspend { list: Arc<str>, id: AddressId, posts: u32, since: Ms, text: Arc<str> },
    /// Send one digest in place of these posts, which wait for each of these recipients, who take mail again. The
    /// recipients are reserved; answer per post with `removed` once their fate is durable, or with `unreserve`.
    Coalesce { list: Arc<str>, posts: Vec<MessageNo>, ids: Vec<AddressId> },
    /// Journal these recipients as bounced or expired together with the report, then call `bounced`. If the journal
    /// refuses, call `bounce_refused`, and they come again.
    Bounce { no: MessageNo, failures: Vec<FailedRcpt> },
}

/// One transaction: the recipients share MAIL and the content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Work {
    pub tx: TxId,
    pub no: MessageNo,
    pub ids: Ids,
}

/// Where in the session a recipient's outcome was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Stage {
    /// No session: refused, unreachable, timed out.
    Connect,
    /// The banner or EHLO/HELO was refused.
    Greeting,
    Mail,
    Rcpt,
    /// The reply to DATA itself.
    Data,
    /// The reply to the final dot, BDAT LAST, or LMTP's reply for this recipient.
    Final,
    /// Connection lost, or given up by us, before the end of the data: not delivered.
    Lost,
    /// Lost after the end of the data: perhaps delivered.
    LostAfterDot,
    /// Our own copy of the content cannot be read: not the host's failure, and perhaps readable later.
    Unreadable,
    /// The copy could not be signed with DKIM: not the host's failure, and perhaps possible later.
    Signature,
    /// A table that rewrites outgoing addresses has no usable answer for this one now: not the host's failure.
    Table,
    /// The session does not protect the message as its list or sender requires. Other messages may use the session.
    Tls,
    /// The content cannot be sent there, by our own judgement (5.6.x: SMTPUTF8 or 8-bit not offered; SIZE exceeded).
    Content,
}

/// The outcome of one recipient of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RcptOutcome {
    pub id: AddressId,
    pub stage: Stage,
    /// The deciding reply's code; 0 if there was none (`Connect`, `Lost`, `LostAfterDot`, `Unreadable`,
    /// `Signature`, `Table`, `Tls`, `Content`).
    pub code: u16,
    pub dsn: Option<Enhanced>,
    /// The reply or the error, one line. Share one `Arc` among the recipients of one reply.
    pub text: Arc<str>,
}

/// State of a session when a transaction in it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionSoFar {
    /// LMTP: after the data there is one reply per recipient.
    pub is_lmtp: bool,
    /// An earlier transaction delivered at least one copy.
    pub has_delivered: bool,
}

impl RcptOutcome {
    /// Whether the host has taken responsibility for this recipient's copy.
    pub fn is_delivered(&self) -> bool {
        self.stage == Stage::Final && (200..300).contains(&self.code)
    }
}

/// Why no session was established.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoSession {
    /// The network refused at once (ECONNREFUSED, EHOSTUNREACH): an early retry costs next to nothing.
    Unreachable,
    /// No answer in time, lost before the session was ready, not SMTP, or it gave way.
    Failed,
    /// The connection cannot be encrypted, or the host's identity not proven, where that is required.
    Tls,
    /// The host lacks something that all mail of the site requires and that no retry provides (REQUIRETLS, RFC 8689).
    /// If every host lacks it, the mail fails with this code.
    Unfit { dsn: Enhanced },
    /// AUTH failed, or the host offers no mechanism that we support.
    Auth,
    /// The greeting, EHLO or HELO was answered with this code.
    Reply { code: u16, dsn: Option<Enhanced> },
}

/// The step that a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionStep {
    /// The host to accept the connection.
    #[default]
    Connecting,
    Greeting,
    /// The reply to EHLO.
    Hello,
    /// A reply in a session.
    Reply,
}

impl SessionStep {
    /// Text for people.
    pub fn words(self) -> &'static str {
        match self {
            SessionStep::Connecting => "connecting",
            SessionStep::Greeting => "connected, waiting for the greeting",
            SessionStep::Hello => "connected, waiting for the reply to EHLO",
            SessionStep::Reply => "no reply from the host",
        }
    }
}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// We closed it on purpose.
    Normal,
    /// The server answered a command with 421.
    Refused { text: Arc<str> },
    /// Reset, FIN in a transaction, time-out or protocol error.
    Lost { text: Arc<str> },
}

/// A recipient that will not be tried again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedRcpt {
    pub id: AddressId,
    /// Whether the lifetime ran out (the last failure was temporary); otherwise it is a permanent failure.
    pub expired: bool,
    /// Class 5 (RFC 3464 Status); on expiry the last temporary code or 4.4.7.
    pub dsn: Enhanced,
    /// The last reply's code, 0 if none.
    pub code: u16,
    /// The last reply or error (Diagnostic-Code).
    pub text: Arc<str>,
    /// The host that replied (Remote-MTA), if any.
    pub host: Option<Arc<str>>,
}

impl FailedRcpt {
    /// Returns the reply as received, including its enhanced code unless we added that; or the error.
    pub fn reply(&self) -> String {
        let dsn = self.dsn;
        match (dsn.class, dsn.subject, dsn.detail) {
            _ if self.code == 0 => self.text.to_string(),
            (_, 0, 0) | (4, 4, 7) => format!("{} {}", self.code, self.text),
            _ => format!("{} {dsn} {}", self.code, self.text),
        }
    }
}
