//! Types exchanged with the caller: effects, work, outcomes, reasons of an end.

use std::sync::Arc;

use smallvec::SmallVec;
use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{AddressId, ConnId, DomainId, MessageNo, Ms, SiteId, TxId};
use stentor_queue::site::Target;

/// Recipients of one transaction: inline for plain relay.
pub type Ids = SmallVec<[AddressId; 4]>;

/// A local address to send from: its place in `SchedConfig::sources`.
pub type SourceNo = u8;

/// What the caller is asked to do. Each is answered by the call named with it.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Look the domain's destination up; answer with [`crate::Scheduler::resolved`].
    Resolve { domain: DomainId },
    /// No longer waited for: its place is another domain's. An answer that comes all the same changes nothing.
    ForgetLookUp { domain: DomainId },
    /// Open a session to `target` from `source`; answer with `connected` (ready for MAIL) or `connect_failed`, in the end `closed`.
    Connect { conn: ConnId, site: SiteId, source: SourceNo, target: Target },
    /// Work waits for this idle connection; answer with `take_work`.
    Work { conn: ConnId },
    /// Say QUIT and close; answer with `closed`. No transaction is open on it (a connecting one is given up).
    Close { conn: ConnId },
    /// Others need the place of this silent connection: drop it at once, whatever it waits for, and answer as for one
    /// that timed out; or, if the end of some data (final dot, BDAT LAST) has been sent, answer with `stays`.
    GiveWay { conn: ConnId },
    /// The message has waited for so long that who sent it may want to know: for the recipients that are still pending
    /// and have NOTIFY=DELAY or none (RFC 3461 4.1). Once per message; no answer.
    Delayed { no: MessageNo },
    /// The fast lane is done with a list's post except for `pending` recipients. Once per message; no answer.
    FastDone { no: MessageNo, pending: u32 },
    /// The list's subscriber has been refused permanently for this many posts in a row since then. No answer.
    Suspend { list: Arc<str>, id: AddressId, posts: u32, since: Ms, text: Arc<str> },
    /// These posts wait for each of these recipients, who take mail again: send one digest instead. The recipients are
    /// reserved; answer per post with `removed` once their fate is durable, or with `unreserve`.
    Coalesce { list: Arc<str>, posts: Vec<MessageNo>, ids: Vec<AddressId> },
    /// Journal these recipients as bounced or expired together with the report, then call `bounced`; if the journal
    /// refuses, call `bounce_refused` and they come again.
    Bounce { no: MessageNo, failures: Vec<Failure> },
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
    /// Connection or patience lost before the end of the data: not delivered.
    Lost,
    /// Lost after the end of the data: perhaps delivered.
    LostAfterDot,
    /// Our own content cannot be read: nobody's failure out there, and perhaps readable later.
    Unreadable,
    /// A table that rewrites addresses on the way out has no usable answer for this one now: nobody's failure out there.
    Table,
    /// The session does not protect the message as its list or sender demands. Others go over it.
    Tls,
    /// Not sendable there, by our own judgement (5.6.x: SMTPUTF8 or 8-bit not offered; SIZE exceeded).
    Content,
}

/// What became of one recipient of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RcptOutcome {
    pub id: AddressId,
    pub stage: Stage,
    /// The deciding reply's code; 0 if there was none (`Connect`, `Lost`, `LostAfterDot`, `Unreadable`, `Table`, `Tls`, `Content`).
    pub code: u16,
    pub dsn: Option<Enhanced>,
    /// The reply or the error, one line. Share one `Arc` among the recipients of one reply.
    pub text: Arc<str>,
}

/// What is known of a session when a transaction in it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionSoFar {
    /// LMTP: a reply after the data for each recipient.
    pub is_lmtp: bool,
    /// An earlier transaction delivered to somebody.
    pub has_delivered: bool,
}

impl RcptOutcome {
    /// The host has taken the responsibility for this recipient's copy.
    pub fn is_delivered(&self) -> bool {
        self.stage == Stage::Final && (200..300).contains(&self.code)
    }
}

/// Why no session came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoSession {
    /// The network refused at once (ECONNREFUSED, EHOSTUNREACH): an early retry costs next to nothing.
    Unreachable,
    /// No answer in time, lost before it was ready, not SMTP, or it gave way.
    Failed,
    /// It cannot be encrypted, or the host is not proven, where that is required.
    Tls,
    /// It has not what all mail of the site must have, and what no retry gives it (REQUIRETLS, RFC 8689): where no host has, the
    /// mail fails with this code.
    Unfit { dsn: Enhanced },
    /// AUTH failed, or there was none that we have.
    Auth,
    /// The greeting, EHLO or HELO was answered with this code.
    Reply { code: u16, dsn: Option<Enhanced> },
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Reach {
    /// The host to take it.
    #[default]
    Connecting,
    Greeting,
    /// The reply to EHLO.
    Hello,
    /// A reply in a session.
    Reply,
}

impl Reach {
    /// As people read it.
    pub fn words(self) -> &'static str {
        match self {
            Reach::Connecting => "connecting",
            Reach::Greeting => "connected, waiting for the greeting",
            Reach::Hello => "connected, waiting for the reply to EHLO",
            Reach::Reply => "no reply from the host",
        }
    }
}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// We asked for it.
    Normal,
    /// The server answered a command with 421.
    Refused { text: Arc<str> },
    /// Reset, FIN in a transaction, time-out or protocol error.
    Lost { text: Arc<str> },
}

/// A recipient that will not be tried again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub id: AddressId,
    /// Whether the lifetime ran out (the last failure was temporary), else a permanent failure.
    pub expired: bool,
    /// Class 5 (RFC 3464 Status); for expiry the last temporary code or 4.4.7.
    pub dsn: Enhanced,
    /// The last reply's code, 0 if none.
    pub code: u16,
    /// The last reply or error (Diagnostic-Code).
    pub text: Arc<str>,
    /// The host that replied (Remote-MTA), if one did.
    pub host: Option<Arc<str>>,
}
