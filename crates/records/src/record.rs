//! One entry of a history or log. Text is borrowed from the line or block that was read.

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
    /// The Message-ID with its angle brackets; may be empty.
    pub message_id: &'a str,
    pub client_host: &'a str,
    pub client: Option<IpAddr>,
    /// `ESMTP`, `SMTP`, `local`, ...
    pub proto: &'a str,
    pub is_bulk: bool,
    /// As in [`Attempt`].
    pub is_of_stranger: bool,
    /// The list; empty if the message is not a list's post.
    pub list: &'a str,
    /// The matching policy rule, in words.
    pub policy: &'a str,
    /// Protocol and cipher of the client's session, empty without TLS.
    pub tls: &'a str,
    /// Recipients, as the client named them, whose mail goes to other addresses or is dropped: aliases, virtual users,
    /// recipients that a rule redirected, rewritten addresses. For a list's post also its subscribers of these kinds,
    /// and the lists within it.
    pub named: To<'a>,
    /// Actions of rules on the message, and for which recipients, in words.
    pub marks: &'a str,
    /// The sender that the client gave, if `from` differs; otherwise empty.
    pub orig_from: &'a str,
    /// The local user who submitted the message, or the authenticated user; otherwise empty.
    pub user: &'a str,
}

/// The fate of recipients at an attempt, or without one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stat {
    #[default]
    Sent,
    Deferred,
    Bounced,
    Expired,
    /// Removed by an operator.
    Removed,
    /// Sent with other posts in one digest.
    Coalesced,
    /// Quarantined by a rule or a milter.
    Quarantined,
    /// Released from the quarantine into the queue, as a message of its own.
    Released,
}

/// `proto` of a message that leaves the quarantine: it was accepted before, under another queue id.
pub const PROTO_RELEASED: &str = "quarantine";

/// Begins the note that a rule or a person holds a message, or has released it; who follows.
pub const HELD_BY: &str = "held by ";
pub const RELEASED_BY: &str = "released by ";

/// Begins the note about a bounce or complaint that came back by mail.
pub const REPORT: &str = "report: ";

/// An attempt, for recipients with the same outcome.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Attempt<'a> {
    /// When the attempt ended.
    pub at: Ms,
    pub id: &'a str,
    pub to: To<'a>,
    /// Envelope sender; also empty if the log does not have it here.
    pub from: &'a str,
    pub list: &'a str,
    /// The configured source address; empty: the default.
    pub source: &'a str,
    /// `esmtp`, `lmtp`, `local`, `bounce`, ...
    pub mailer: &'a str,
    /// The host that answered or failed; empty if none was reached.
    pub host: &'a str,
    pub ip: Option<IpAddr>,
    pub port: u16,
    /// Time from acceptance until now.
    pub delay_ms: u64,
    /// Duration of this attempt alone.
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
    /// How the transmitted content differed from the stored one.
    pub recoded: WireChanges,
    /// Whether this is a repetition, written by a start that could not know whether the first record was kept.
    pub is_repeated: bool,
    /// Whether an untrusted client handed the message in and no list sends it: anybody may have written `from`.
    pub is_of_stranger: bool,
    /// Set for a session or look-up that failed before any copy was tried: there is neither id nor recipient.
    pub unreached: Option<Box<Unreached<'a>>>,
}

/// How the content on the wire differs from the stored content.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct WireChanges {
    /// Converted to 7 bits, for a host without 8BITMIME.
    pub seven_bit: bool,
    /// Lines over 998 octets were folded, encoded or broken.
    pub lines: bool,
}

impl WireChanges {
    const ALL: [(&str, WireChanges); 4] = [
        ("", WireChanges { seven_bit: false, lines: false }),
        ("7bit", WireChanges { seven_bit: true, lines: false }),
        ("lines", WireChanges { seven_bit: false, lines: true }),
        ("7bit+lines", WireChanges { seven_bit: true, lines: true }),
    ];

    /// Name in logs; empty if there is no difference.
    pub fn name(self) -> &'static str {
        WireChanges::ALL.iter().find(|(_, recoded)| *recoded == self).map_or("", |(name, _)| name)
    }

    /// The inverse of `name`. An unknown name counts as no difference.
    pub fn named(name: &str) -> WireChanges {
        WireChanges::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(WireChanges::default, |(_, recoded)| *recoded)
    }

    /// Text for people.
    pub fn text(self) -> &'static str {
        match self {
            WireChanges { seven_bit: false, lines: false } => "",
            WireChanges { seven_bit: true, lines: false } => "converted to 7 bits",
            WireChanges { seven_bit: false, lines: true } => "lines over 998 octets re-encoded",
            WireChanges { seven_bit: true, lines: true } => "converted to 7 bits, lines over 998 octets re-encoded",
        }
    }
}

/// The recipients that waited for a session or look-up that failed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Unreached<'a> {
    /// The site; empty if the look-up failed.
    pub site: &'a str,
    /// Recipients deferred by the failure; 0 if another host of the site could still be tried.
    pub waiting: u64,
    /// Domains whose mail waited, with the number of those recipients; the largest first. Incomplete if there are many.
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
    /// For a whole message: octets as far as they were read, and recipients.
    pub size: u64,
    pub recipients: u64,
    /// What refused it, in words: a rule with its place, a table, a next hop's reply; empty if the reply says it.
    pub policy: &'a str,
    /// For a whole message: the Message-ID with its angle brackets, if the header had arrived.
    pub message_id: &'a str,
    /// For a whole message: its recipients as the client named them, up to a limit.
    pub named: To<'a>,
    /// The local user who submitted it; otherwise empty.
    pub user: &'a str,
}

/// The subject of a note.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Topic {
    /// The server itself.
    #[default]
    Server,
    /// A host that could not be reached before any copy was tried.
    Delivery,
    /// A rule's decision other than accepting or refusing.
    Policy,
    /// An operator's action, and who did it.
    Audit,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Note<'a> {
    pub at: Ms,
    /// The message's queue id; empty if the note concerns no message.
    pub id: &'a str,
    pub text: &'a str,
    pub topic: Topic,
    /// Whether the message is finished: none of its recipients is pending.
    pub is_end: bool,
    /// Recipients whose mail was accepted and dropped, as the client named them; with [`REPORT`], the recipient whom
    /// the report is about.
    pub to: To<'a>,
    /// Message-ID of such mail, with its angle brackets.
    pub message_id: &'a str,
}

/// Load of machine and server since the previous sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Machine {
    pub at: Ms,
    /// Interval that the rates below cover.
    pub interval_ms: u64,
    /// Share of all processors' time that was not idle, 0 to 1.
    pub cpu: f32,
    pub load_1m: f32,
    pub memory_used_bytes: u64,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
    /// Share of the time in which the busiest disk was busy, 0 to 1.
    pub disk_busy: f32,
    pub net_in_bytes: u64,
    pub net_out_bytes: u64,
    /// The server's own share: processor time over the interval (may exceed 1), memory, octets to and from the disk.
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
    /// Whether the message leaves the quarantine: it was counted when it arrived.
    pub fn is_release(&self) -> bool {
        self.proto == PROTO_RELEASED
    }
}

impl Attempt<'_> {
    /// Whether this is a fate of recipients separate from attempts: given up (`bounce`), removed (`operator`), sent
    /// with others in one message (`digest`) or quarantined (`quarantine`). If a log has both on one line, like other
    /// MTAs' logs, it is read as two records.
    pub fn is_fate_alone(&self) -> bool {
        matches!(self.mailer, "bounce" | "operator" | "digest" | "quarantine")
    }

    /// Whether this is a fate of which the sender is notified. Recipients that stay in the quarantine to the end are
    /// given up silently.
    pub fn is_given_up(&self) -> bool {
        self.mailer == "bounce"
    }

    /// Whether this is a failed look-up: no host is known.
    pub fn is_look_up(&self) -> bool {
        self.mailer == "dns"
    }

    /// Number of recipients concerned: those named, or those that a failed session or look-up deferred.
    pub fn recipients(&self) -> u64 {
        self.unreached.as_ref().map_or(self.to.len() as u64, |unreached| unreached.waiting)
    }
}

/// The address's domain: the text after the last `@`; empty if there is none.
pub fn domain(address: &str) -> &str {
    address.rfind('@').map_or("", |at| &address[at + 1..])
}
