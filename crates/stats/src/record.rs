//! One entry of a history or log. Text borrows from the line or block that it was read from.

use std::net::IpAddr;

use smallvec::SmallVec;

/// Milliseconds since the Unix epoch.
pub type Ms = u64;

/// Recipients of one attempt; most have one.
pub type To<'a> = SmallVec<[&'a str; 4]>;

#[derive(Clone, PartialEq, Debug)]
pub enum Record<'a> {
    Accepted(Accepted<'a>),
    Attempt(Attempt<'a>),
    Refused(Refused<'a>),
    /// An operator's action, or a message of the server itself.
    Note(Note<'a>),
    Machine(Machine),
}

/// A message was accepted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Accepted<'a> {
    pub at: Ms,
    /// Queue id.
    pub id: &'a str,
    /// Envelope sender, empty for the null path.
    pub from: &'a str,
    /// Octets as received; 0 if the log does not say.
    pub size: u64,
    /// Recipients after expansion.
    pub recipients: u64,
    /// With its angle brackets; may be empty.
    pub message_id: &'a str,
    pub client_host: &'a str,
    pub client: Option<IpAddr>,
    /// `ESMTP`, `SMTP`, `local`, ...
    pub proto: &'a str,
    pub is_bulk: bool,
    /// Empty if it is no list's post.
    pub list: &'a str,
    /// The matching policy rule, in words.
    pub policy: &'a str,
    /// Protocol and cipher of the client's session, empty without TLS.
    pub tls: &'a str,
    /// Recipients as the client named them that get their mail under other addresses, or not at all: aliases, virtual users, those
    /// that a rule redirected, those whose address was rewritten. Of a list's post also its subscribers of these kinds, and the lists
    /// within it.
    pub named: To<'a>,
    /// What rules did with the message and for which recipients, in words.
    pub marks: &'a str,
    /// The sender that the client gave, where `from` is another one; empty otherwise.
    pub orig_from: &'a str,
    /// The user of this machine who submitted it, or who has logged in; empty otherwise.
    pub user: &'a str,
}

/// The fate of recipients at one attempt, or without one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stat {
    #[default]
    Sent,
    Deferred,
    Bounced,
    Expired,
    /// By an operator.
    Removed,
    /// Went with other posts in one digest.
    Coalesced,
    /// Kept by a rule or a milter.
    Quarantined,
    /// Out of the quarantine into the queue, as a message of its own.
    Released,
}

/// How a message came that leaves the quarantine: it was accepted before, under another queue id.
pub const PROTO_RELEASED: &str = "quarantine";

/// An attempt, for recipients with the same outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Attempt<'a> {
    /// When it ended.
    pub at: Ms,
    pub id: &'a str,
    pub to: To<'a>,
    /// Envelope sender; empty also where the log does not say it here.
    pub from: &'a str,
    pub list: &'a str,
    /// The configured source that it was sent from; empty: the default.
    pub source: &'a str,
    /// `esmtp`, `lmtp`, `local`, `bounce`, ...
    pub mailer: &'a str,
    /// The host that answered or failed; empty if none was reached.
    pub host: &'a str,
    pub ip: Option<IpAddr>,
    pub port: u16,
    /// From acceptance until now.
    pub delay_ms: u64,
    /// This attempt alone.
    pub xdelay_ms: u64,
    pub stat: Stat,
    /// RFC 3463; may be empty.
    pub dsn: &'a str,
    /// The host's reply or our reason.
    pub reply: &'a str,
    pub tls: &'a str,
    /// Octets of the message; 0 if the log does not say.
    pub size: u64,
    pub is_bulk: bool,
    /// How the content differed from what is stored.
    pub recoded: Recoded,
    /// Recorded a second time, by a start that could not know whether the first one was kept.
    pub is_repeated: bool,
    /// A session or look-up that failed before any copy was tried: there is neither id nor recipient.
    pub unreached: Option<Box<Unreached<'a>>>,
}

/// How a content differs on the wire from what is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Recoded {
    /// Made 7-bit, for a host without 8BITMIME.
    pub seven_bit: bool,
    /// Lines over 998 octets were folded, encoded or broken.
    pub lines: bool,
}

impl Recoded {
    const ALL: [(&str, Recoded); 4] = [
        ("", Recoded { seven_bit: false, lines: false }),
        ("7bit", Recoded { seven_bit: true, lines: false }),
        ("lines", Recoded { seven_bit: false, lines: true }),
        ("7bit+lines", Recoded { seven_bit: true, lines: true }),
    ];

    /// As logs have it; empty if there is no difference.
    pub fn name(self) -> &'static str {
        Recoded::ALL.iter().find(|(_, recoded)| *recoded == self).map_or("", |(name, _)| name)
    }

    /// What logs call so. A name that is not known is no difference.
    pub fn named(name: &str) -> Recoded {
        Recoded::ALL.iter().find(|(known, _)| *known == name).map_or_else(Recoded::default, |(_, recoded)| *recoded)
    }

    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Recoded { seven_bit: false, lines: false } => "",
            Recoded { seven_bit: true, lines: false } => "converted to 7 bits",
            Recoded { seven_bit: false, lines: true } => "lines over 998 octets re-encoded",
            Recoded { seven_bit: true, lines: true } => "converted to 7 bits, lines over 998 octets re-encoded",
        }
    }
}

/// Who waited for a session or look-up that failed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Unreached<'a> {
    /// Empty if the look-up failed.
    pub site: &'a str,
    /// Recipients deferred by it; 0 if another host of the site could still be tried.
    pub waiting: u64,
    /// Domains whose mail waited, and how many of those recipients were there; the largest first. Not all, if there are many.
    pub domains: Vec<(&'a str, u64)>,
}

/// Mail that was refused, at any stage.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Refused<'a> {
    pub at: Ms,
    pub client: Option<IpAddr>,
    pub from: &'a str,
    pub to: &'a str,
    pub reply: &'a str,
    /// The command that was refused: `CONNECT`, `MAIL`, `RCPT`, `DATA`, or `.` for a whole message.
    pub step: &'a str,
    /// Of a whole message: octets as far as they were looked at, and recipients.
    pub size: u64,
    pub recipients: u64,
    /// What decided, in words: a rule with its place, a table, what a next hop said; empty where the reply says it.
    pub policy: &'a str,
    /// Of a whole message: the Message-ID with its angle brackets, if its header had come.
    pub message_id: &'a str,
    /// Of a whole message: its recipients as the client named them, as many as are kept.
    pub named: To<'a>,
    /// The user of this machine who submitted it; empty otherwise.
    pub user: &'a str,
}

/// The subject of a note.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Topic {
    /// The server itself.
    #[default]
    Server,
    /// A host that could not be reached, before any copy was tried.
    Delivery,
    /// A rule's decision other than accepting and refusing.
    Policy,
    /// An operator's action, and who did it.
    Audit,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Note<'a> {
    pub at: Ms,
    /// Empty if it concerns no message.
    pub id: &'a str,
    pub text: &'a str,
    pub topic: Topic,
    /// The message is finished: nothing of it is pending.
    pub is_end: bool,
    /// Recipients whose mail was taken and dropped, as the client named them.
    pub to: To<'a>,
    /// Of such mail, with its angle brackets.
    pub message_id: &'a str,
}

/// Load of machine and server since the previous sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Machine {
    pub at: Ms,
    /// The time that the rates below cover.
    pub interval_ms: u64,
    /// Share of all processors' time that was not idle, 0 to 1.
    pub cpu: f32,
    pub load_1m: f32,
    pub memory_used_bytes: u64,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// Share of the time in which the busiest disk had something to do, 0 to 1.
    pub disk_busy: f32,
    pub net_in_bytes: u64,
    pub net_out_bytes: u64,
    /// The server's own: processors' time over the interval (may exceed 1), memory, octets to and from the disk.
    pub own_cpu: f32,
    pub own_memory_bytes: u64,
    pub own_read_bytes: u64,
    pub own_written_bytes: u64,
    /// Pending recipients, and connections in both directions, at the end of the interval.
    pub pending: u64,
    pub connections_in: u32,
    pub connections_out: u32,
}

impl Record<'_> {
    pub fn at(&self) -> Ms {
        match self {
            Record::Accepted(r) => r.at,
            Record::Attempt(r) => r.at,
            Record::Refused(r) => r.at,
            Record::Note(r) => r.at,
            Record::Machine(r) => r.at,
        }
    }
}

impl Accepted<'_> {
    /// Whether it leaves the quarantine: it has been counted when it came.
    pub fn is_release(&self) -> bool {
        self.proto == PROTO_RELEASED
    }
}

impl Attempt<'_> {
    /// Fates of recipients, separate from attempts: given up (`bounce`), removed (`operator`), sent with others in
    /// one message (`digest`) or kept (`quarantine`). Where a log has both in one line, as other MTAs' do, it is read as two records.
    pub fn is_fate_alone(&self) -> bool {
        matches!(self.mailer, "bounce" | "operator" | "digest" | "quarantine")
    }

    /// Whether it is such a fate of recipients whose sender is told. Who is in the quarantine to the end is given up silently.
    pub fn is_given_up(&self) -> bool {
        self.mailer == "bounce"
    }

    /// Whether it is a look-up that failed: no host is known.
    pub fn is_look_up(&self) -> bool {
        self.mailer == "dns"
    }

    /// The recipients that it was about: those that it names, or those that a failed session or look-up deferred.
    pub fn recipients(&self) -> u64 {
        self.unreached.as_ref().map_or(self.to.len() as u64, |unreached| unreached.waiting)
    }
}

/// The text after the last `@`; empty if there is none.
pub fn domain(address: &str) -> &str {
    address.rfind('@').map_or("", |at| &address[at + 1..])
}
