//! The causes why a pending recipient waits: the event that must happen before its copy goes. Each recipient has
//! exactly one cause at a time; if several apply, the one that lasts longest.

/// Why a pending recipient waits; see the module's head. The order is that of [`Cause::ALL`]: ours first, then the name
/// service, hosts, replies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Cause {
    /// Nothing keeps it back: it goes as soon as its turn comes.
    #[default]
    Ready,
    /// It is in a transaction.
    Sending,
    /// It failed for good, or an operator's standing bounce covers it; its report is being written.
    Reporting,
    /// An operator or a rule holds the message.
    Held,
    /// An operator suspended its site, list or sender.
    Suspended,
    /// An operator or the configuration keeps it in the queue until that ends or the queue is run.
    QueueOnly,
    /// Our own limits: connections, transactions or messages per time.
    OwnLimit,
    /// The look-up of its domain has not been answered yet.
    LookUp,
    /// The look-up of its domain failed temporarily.
    Dns,
    /// The configuration has no usable route for its mail: a route back to this server or without a host, or a deferral
    /// by a rule.
    Routing,
    /// A connection to it is being made, and none has failed.
    Connecting,
    /// ECONNREFUSED by all hosts that could be tried.
    Refused,
    /// No route to the host or its network.
    Unreachable,
    /// The connection timed out.
    TimedOut,
    /// The host accepts connections but does not greet.
    NoGreeting,
    /// The host has greeted, but keeps connections waiting.
    Silent,
    /// The connection was lost before the data was accepted.
    Lost,
    /// 421, at any stage.
    Busy,
    /// Another refusal at the greeting or at EHLO.
    Greeting,
    /// The session cannot be encrypted, or the host's identity not proven, where that is required.
    Tls,
    /// A smart host refuses our login, or offers no mechanism that we support.
    Auth,
    /// A reply about how much we send at a time.
    Rate,
    /// 4xx that says that the recipient is greylisted (RFC 6647).
    Greylisted,
    /// A reply that names a block list with us or a part of the message on it.
    BlockListed,
    /// 4.2.2 (RFC 3463 section 3.3).
    MailboxFull,
    /// Another 4.2.x: the mailbox is disabled, or takes no mail at the moment.
    Mailbox,
    /// 4xx at MAIL: the host defers the sender, or us.
    Sender,
    /// Another 4xx at RCPT.
    Recipient,
    /// 4xx to DATA or to the data.
    Message,
    /// One of our tables, for routes or outgoing addresses, cannot be queried or has an unusable entry.
    Table,
    /// Our own stored content cannot be read.
    Unreadable,
    /// The copy could not be signed with DKIM.
    Unsigned,
}

impl Cause {
    pub const ALL: [Cause; 32] = [
        Cause::Ready,
        Cause::Sending,
        Cause::Reporting,
        Cause::Held,
        Cause::Suspended,
        Cause::QueueOnly,
        Cause::OwnLimit,
        Cause::LookUp,
        Cause::Dns,
        Cause::Routing,
        Cause::Connecting,
        Cause::Refused,
        Cause::Unreachable,
        Cause::TimedOut,
        Cause::NoGreeting,
        Cause::Silent,
        Cause::Lost,
        Cause::Busy,
        Cause::Greeting,
        Cause::Tls,
        Cause::Auth,
        Cause::Rate,
        Cause::Greylisted,
        Cause::BlockListed,
        Cause::MailboxFull,
        Cause::Mailbox,
        Cause::Sender,
        Cause::Recipient,
        Cause::Message,
        Cause::Table,
        Cause::Unreadable,
        Cause::Unsigned,
    ];

    /// Name for machines: in JSON, and as a metric's label.
    pub fn name(self) -> &'static str {
        self.texts().0
    }

    /// Text for people.
    pub fn words(self) -> &'static str {
        self.texts().1
    }

    pub fn of_name(name: &str) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// Whether the recipient is on its way: nothing failed and nobody stopped it.
    pub fn is_moving(self) -> bool {
        matches!(self, Cause::Ready | Cause::Sending | Cause::Reporting | Cause::LookUp)
    }

    /// Whether it is kept on purpose: no retry clock brings its next try.
    pub fn is_kept(self) -> bool {
        matches!(self, Cause::Held | Cause::Suspended | Cause::QueueOnly)
    }

    /// Whether it is neither kept nor in a transaction: it has a next try, or goes as soon as its turn comes.
    pub fn is_tried_next(self) -> bool {
        !self.is_kept() && !matches!(self, Cause::Sending | Cause::Reporting)
    }

    /// Whether something other than its turn, a local limit or a connection being made keeps it back.
    pub fn is_blocked(self) -> bool {
        !self.is_moving() && !matches!(self, Cause::OwnLimit | Cause::Connecting)
    }

    /// Whether it is blocked, and not by an operator.
    pub fn has_failed(self) -> bool {
        self.is_blocked() && !self.is_kept()
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Cause::Ready => ("ready", "ready to send"),
            Cause::Sending => ("sending", "being delivered"),
            Cause::Reporting => ("reporting", "bounced, DSN pending"),
            Cause::Held => ("held", "held"),
            Cause::Suspended => ("suspended", "suspended by an operator"),
            Cause::QueueOnly => ("queue_only", "queue-only"),
            Cause::OwnLimit => ("own_limit", "local limit"),
            Cause::LookUp => ("look_up", "DNS lookup in progress"),
            Cause::Dns => ("dns", "DNS lookup failed"),
            Cause::Routing => ("routing", "no usable route"),
            Cause::Connecting => ("connecting", "connecting"),
            Cause::Refused => ("refused", "connection refused"),
            Cause::Unreachable => ("unreachable", "host unreachable"),
            Cause::TimedOut => ("timed_out", "connection timed out"),
            Cause::NoGreeting => ("no_greeting", "no greeting"),
            Cause::Silent => ("silent", "host responds slowly"),
            Cause::Lost => ("lost", "connection lost"),
            Cause::Busy => ("busy", "host busy (421)"),
            Cause::Greeting => ("greeting", "refused at the greeting"),
            Cause::Tls => ("tls", "not protected as required (TLS)"),
            Cause::Auth => ("auth", "login refused (AUTH)"),
            Cause::Rate => ("rate", "rate limited by the host"),
            Cause::Greylisted => ("greylisted", "greylisted"),
            Cause::BlockListed => ("block_listed", "on a block list"),
            Cause::MailboxFull => ("mailbox_full", "mailbox full"),
            Cause::Mailbox => ("mailbox", "mailbox unavailable"),
            Cause::Sender => ("sender", "sender deferred (4xx at MAIL)"),
            Cause::Recipient => ("recipient", "recipient deferred (4xx at RCPT)"),
            Cause::Message => ("message", "message deferred (4xx at DATA)"),
            Cause::Table => ("table", "table unusable"),
            Cause::Unreadable => ("unreadable", "stored content unreadable"),
            Cause::Unsigned => ("unsigned", "DKIM signing failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_listed_once_and_in_order() {
        assert!(Cause::ALL.is_sorted_by(|a, b| a < b));
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            assert_eq!(Cause::of_name(cause.name()), Some(cause));
        }
        assert_eq!(Cause::Unsigned as usize + 1, Cause::ALL.len());
        assert_eq!(Cause::of_name("weather"), None);
    }

    #[test]
    fn the_manual_has_each_in_their_order() {
        let page = include_str!("../../../docs/operate/waiting.md");
        let named = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name));
        assert!(named.eq(Cause::ALL.iter().map(|cause| cause.name())));
    }
}
