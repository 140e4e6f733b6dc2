//! The conditions by name, and the rule by which each begins and ends.
//!
//! Goal: a problem is reported in every view within 15 s, without false alarms. So a state that may be momentary (a
//! certificate's two files are replaced one after the other, a daemon restarts) must hold for some seconds, and a
//! service must fail twice without a success in between.

use stentor_queue::ids::Ms;
use stentor_records::health::Severity;

const MINUTE_MS: Ms = 60_000;
const NEVER: Ms = Ms::MAX;

/// When a condition begins and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConditionRule {
    /// Number of failures without a success in between. A state that holds counts once a second.
    pub failures_min: u64,
    /// How long the streak must last, from the first failure on.
    pub holds_ms: Ms,
    /// A shorter streak is forgotten after this time without another failure.
    pub suspects_ms: Ms,
    /// How long it must be well before the condition ends.
    pub clears_ms: Ms,
    /// How long it is shown without any evidence.
    pub forgets_ms: Ms,
}

/// The rule for a lasting state.
const fn state(holds_ms: Ms, clears_ms: Ms) -> ConditionRule {
    ConditionRule { failures_min: 1, holds_ms, suspects_ms: MINUTE_MS, clears_ms, forgets_ms: NEVER }
}

/// The rule for a service that is contacted again while it fails.
const ASKED: ConditionRule =
    ConditionRule { failures_min: 2, holds_ms: 2_000, suspects_ms: MINUTE_MS, clears_ms: 0, forgets_ms: NEVER };
/// The rule for replies to clients. Nobody probes on our behalf, and a load balancer may send nothing more, so it is
/// soon forgotten.
const ANSWERED: ConditionRule =
    ConditionRule { failures_min: 3, holds_ms: 3_000, suspects_ms: 5 * MINUTE_MS, clears_ms: 0, forgets_ms: 20_000 };

macro_rules! names {
    ($($(#[$doc:meta])* $variant:ident: $name:literal, $severity:ident, $refuses:literal, $rule:expr;)*) => {
        /// A kind of condition.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Name { $($(#[$doc])* $variant,)* }

        impl Name {
            pub const ALL: &'static [Name] = &[$(Name::$variant,)*];

            /// Name in JSON, metrics and logs.
            pub fn as_str(self) -> &'static str {
                match self { $(Name::$variant => $name,)* }
            }

            pub fn severity(self) -> Severity {
                match self { $(Name::$variant => Severity::$severity,)* }
            }

            /// Whether new mail is refused because of it, unless the configuration decides.
            pub fn refuses_mail(self) -> bool {
                match self { $(Name::$variant => $refuses,)* }
            }

            pub fn rule(self) -> ConditionRule {
                match self { $(Name::$variant => $rule,)* }
            }
        }
    };
}

names! {
    /// Free space is below the reserve.
    DiskFull: "disk_full", Problem, true, state(0, 2_000);
    /// The control group's memory limit is near.
    MemoryFull: "memory_full", Problem, true, state(2_000, 5_000);
    AddressBookFull: "address_book_full", Problem, true, state(0, 2_000);
    /// A batch could not be written or synced.
    Journal: "journal", Problem, true, ConditionRule { failures_min: 1, holds_ms: 0, suspects_ms: MINUTE_MS, clears_ms: 30_000, forgets_ms: NEVER };
    /// Each RCPT of trusted clients and users was answered with 4xx.
    RecipientsDeferred: "recipients_deferred", Problem, true, ANSWERED;
    /// Each message was answered with 4xx after its data.
    MessagesDeferred: "messages_deferred", Problem, true, ANSWERED;
    /// Each RCPT or message of untrusted clients was answered with 4xx. They must not be able to stop all mail, so it
    /// is only a warning.
    UntrustedDeferred: "untrusted_deferred", Warning, false, ANSWERED;
    Milter: "milter", Problem, true, ASKED;
    PolicyService: "policy_service", Problem, true, ASKED;
    /// A table behind a socket does not answer.
    TableService: "table_service", Problem, false, ASKED;
    /// Descriptors or memory are used up at one side of the listeners.
    NotAccepting: "not_accepting", Problem, true, state(3_000, 3_000);
    /// Clients are turned away with 421 at one side of the listeners.
    ConnectionsFull: "connections_full", Problem, true, state(5_000, 5_000);
    /// A certificate in force has expired, or is not valid yet.
    Certificate: "certificate", Problem, false, state(0, 0);
    CertificateEnds: "certificate_ends", Warning, false, state(0, 0);
    /// The files of a certificate or its key cannot be used; those read before stay in force.
    CertificateFile: "certificate_file", Problem, false, state(5_000, 0);
    /// A record of a DKIM key that the server makes is not in DNS.
    DkimRecord: "dkim_record", Warning, false, state(0, 0);
    /// DKIM keys cannot be made, stored or published.
    DkimRotation: "dkim_rotation", Problem, false, state(0, 0);
    UsersFile: "users_file", Problem, false, state(4_000, 0);
    Dovecot: "dovecot", Problem, false, state(4_000, 0);
    /// A table's file is broken or unreadable.
    TableFile: "table_file", Problem, false, state(4_000, 0);
    /// A list's file of subscribers cannot be read, or its contents are not in force.
    SubscribersFile: "subscribers_file", Problem, false, state(4_000, 0);
    Dns: "dns", Problem, false, ASKED;
    /// No host can be reached.
    Network: "network", Problem, false, state(3_000, 0);
    Clock: "clock", Problem, false, state(0, 5_000);
    /// A log's destination does not accept lines.
    Log: "log", Problem, false, state(1_000, 5_000);
    History: "history", Problem, false, state(0, 2_000);
    /// Changes of the registry are refused.
    Registry: "registry", Problem, false, state(0, 0);
    SubmissionFolder: "submission_folder", Problem, false, state(3_000, 0);
    /// Hosts refuse our mail because of a block list, or because of our reputation with them.
    Blocked: "blocked", Problem, false, state(0, 10_000);
    /// A complaint rate has reached `complaints_per_10000_alarm`, where large providers limit senders.
    Complaints: "complaints", Problem, false, state(0, 0);
    /// A complaint rate has reached `complaints_per_10000_warn`, below which large providers ask senders to stay.
    ComplaintsRising: "complaints_rising", Warning, false, state(0, 0);
    Webhook: "webhook", Problem, false, state(8_000, 0);
}
