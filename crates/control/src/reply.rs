//! The server's answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;
use stentor_records::health::Condition;

use super::address_view::AddressView;
use super::ages::Ages;
use super::causes::CauseRow;
use super::dkim_view::DkimRecords;
use super::doctor::Doctor;
use super::format::{plural, span};
use super::list_view::{ListTable, MemberTable, PersonView};
use super::observe::{Hosts, Mailqq, PostReports};
use super::post_view::PostView;
use super::problem::{ErrorCode, Problem};
use super::quarantine_view::{QuarantineList, QuarantinedMessage};
use super::queue_only_view::QueueOnlyView;
use super::recipient_view::RecipientView;
use super::selection::ActionResult;
use super::site_view::SiteView;
use super::standing_view::StandingBounceView;
use super::suppression_view::SuppressionList;
use super::users_view::UsersView;
use super::verify_view::VerifyView;

/// Recipients by fate. `acknowledged` is always the sum of the others.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Fates {
    pub acknowledged: u64,
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
    pub removed: u64,
    pub quarantined: u64,
    pub coalesced: u64,
    pub pending: u64,
}

/// An operator's action in progress.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ActionView {
    /// Its verb.
    pub verb: String,
    /// The author, as in the audit record.
    pub who: String,
    /// When it began.
    pub since: Ms,
    /// Recipients done so far.
    pub recipients: u64,
}

/// The server at a glance. Counters are since the start unless they are levels.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Status {
    /// The server's version.
    pub version: String,
    pub hostname: String,
    /// Process id.
    pub pid: u32,
    pub now: Ms,
    /// When the server started.
    pub started: Ms,
    /// The server is stopping.
    pub stopping: bool,
    /// Messages queued now.
    pub messages: u64,
    /// Of these, held by rules or operators.
    #[serde(default)]
    pub held: u64,
    /// Addresses in the address book.
    pub addresses: u64,
    /// Recipients, over the life of the store.
    pub recipients: Fates,
    /// Sessions of clients.
    pub connections_in: u64,
    /// Connections to hosts.
    pub connections_out: u64,
    /// Segments of the journal.
    pub journal_segments: u64,
    /// Syncs of the journal.
    pub journal_syncs: u64,
    /// Batches of the journal.
    pub journal_batches: u64,
    /// Octets written to the journal.
    pub journal_bytes: u64,
    /// Segments given up since the start because a write or sync failed.
    pub journal_abandoned: u64,
    /// Octets of content that cleaning has copied.
    pub journal_bytes_moved: u64,
    /// Segments that a commit had to create itself.
    pub journal_unprepared: u64,
    /// Checkpoints since the start.
    #[serde(default)]
    pub journal_checkpoints: u64,
    /// A checkpoint is being written.
    #[serde(default)]
    pub journal_checkpoint_running: bool,
    /// Octets of large bodies in the journal whose message is not accepted yet.
    pub streamed_bytes: u64,
    /// Their maximum so far.
    pub streamed_bytes_peak: u64,
    /// Octets of live content in the journal.
    pub content_bytes: u64,
    /// Free space on the journal's file system.
    pub disk_free_bytes: u64,
    /// The longest wait of an outcome to become durable since the start, including batch and sync.
    pub outcome_sync_ms_max: u64,
    /// Queries sent to name servers.
    pub dns_queries: u64,
    /// Failed lookups.
    pub dns_failures: u64,
    /// Lost log lines.
    pub log_lines_lost: u64,
    /// Records that the history failed to store, since the start.
    #[serde(default)]
    pub history_lost: u64,
    /// Octets of the history's files.
    #[serde(default)]
    pub history_bytes: u64,
    /// The longest hold of the queue's lock since the last `status`.
    pub lock_held_us_max: u64,
    /// Its place in the source.
    pub lock_held_at: String,
    /// Suspended subjects: `list:NAME`, `sender:DOMAIN`, `site:NAME`, `subscriber:LIST:ADDRESS`; at most 100.
    pub suspended: Vec<String>,
    /// Number of all suspended subjects.
    pub suspended_total: u64,
    /// When entries of `suspended` expire, if they do.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub suspended_until: BTreeMap<String, Ms>,
    /// Why entries of `suspended` were suspended, if a reason was given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub suspended_reasons: BTreeMap<String, String>,
    /// Standing bounces in force.
    pub standing_bounces: Vec<StandingBounceView>,
    /// Recipients bounced by standing bounces since the start.
    pub standing_bounced: u64,
    /// Suppressions in the registry.
    pub suppressions: u64,
    /// Recipients removed since the start because they were suppressed.
    pub suppressed: u64,
    /// Queue-only scopes, set by operators and by the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_only: Vec<QueueOnlyView>,
    /// The operator's action in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<ActionView>,
    /// When the unfinished run of the queue began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_run_since: Option<Ms>,
    /// Webhooks that receive or accept nothing, each with the reason.
    pub webhooks_troubled: Vec<String>,
    /// Changed keys that a reload skipped because they need a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart_pending: Vec<String>,
    /// Number of local users' messages in the submission folder.
    pub submissions: u64,
    /// Those refused temporarily.
    pub submissions_deferred: u64,
    /// When the oldest was submitted.
    pub submissions_oldest: Option<Ms>,
    /// Why the folder cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submissions_unusable: Option<String>,
    /// Current problems: first those that refuse mail, then other problems, then warnings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<Condition>,
    /// Configured addresses for SMTP and HTTP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listening: Vec<SocketAddr>,
}

impl Status {
    /// The state of the submission folder, in words.
    pub fn submissions_in_words(&self) -> String {
        let deferred = match self.submissions_deferred {
            0 => String::new(),
            some => format!(" ({some} deferred)"),
        };
        let age = self.submissions_oldest.map(|at| format!(", the oldest for {}", span(self.now.saturating_sub(at))));
        let waiting = plural(self.submissions, "message");
        format!("{waiting} in the submission folder{deferred}{}", age.unwrap_or_default())
    }
}

/// The reply to `stentor queue`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QueueSummary {
    pub hostname: String,
    pub now: Ms,
    /// The part of the queue in words; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Messages queued.
    pub messages: u64,
    /// Pending recipients.
    pub recipients: u64,
    /// Messages held by operators and rules.
    pub held: u64,
    /// Octets of queued messages.
    pub content_bytes: u64,
    /// When the oldest queued message was accepted.
    pub oldest: Option<Ms>,
    pub oldest_id: Option<String>,
    /// Number of all sites, and domains without one, with pending recipients; `sites` may hold fewer.
    pub sites_total: u64,
    /// Number of domains without a site, included in the total.
    pub domains_total: u64,
    /// Why all recipients wait; the rows add up to those pending at `counted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// When causes and sites were counted; `None` while a large queue is counted for the first time.
    pub counted: Option<Ms>,
    /// Lists with most recipients first, at most 200; as old as `counted`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<ListRow>,
    /// Sites with most recipients first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteRow>,
}

/// One list of [`QueueSummary`].
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ListRow {
    /// The list's name; empty for mail that belongs to no list.
    pub list: String,
    /// Pending recipients.
    pub waiting: u64,
    pub messages: u64,
    /// The earliest next attempt of its recipients; `None` if some wait for no clock.
    pub next_try: Option<Ms>,
    /// When the oldest message was accepted.
    pub oldest: Option<Ms>,
    /// Why they wait; the rows add up to `waiting`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
}

/// One site of [`QueueSummary`].
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SiteRow {
    /// The MX host names or the route; a domain without a site.
    pub site: String,
    /// A domain that has not been looked up, or whose look-up failed: its hosts are unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unresolved: bool,
    /// Pending recipients there.
    pub waiting: u64,
    pub messages: u64,
    pub connections: u64,
    /// The earliest next attempt of its recipients; `None` if some wait for no clock.
    pub next_try: Option<Ms>,
    /// The last reply or error behind most of them; empty if there was none.
    pub last_reply: String,
    /// When the oldest message there was accepted.
    pub oldest: Option<Ms>,
    /// Why they wait; the rows add up to `waiting`. Empty while a large queue is counted for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// Advice for the operator; only in `queue_stuck`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// The reply to `stentor queue --stuck`. Gathered in slices: rows are of slightly different instants.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct StuckReport {
    pub hostname: String,
    pub now: Ms,
    /// The part of the queue in words; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// After a start or a large post, counting is unfinished and the counts are too low.
    pub is_counting: bool,
    /// Number of recipients with pending messages; 0 if there are no rows of recipients.
    pub recipients_total: u64,
    /// Number of sites, and domains without one, with pending recipients.
    pub sites_total: u64,
    /// Number of domains without a site, included in the total.
    pub domains_total: u64,
    /// When sites were counted; `None` while a large queue is counted for the first time.
    pub counted: Option<Ms>,
    /// Recipients with most messages first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<StuckRow>,
    /// Sites with most recipients first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteRow>,
}

/// A recipient with waiting messages, in the state of its oldest message.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct StuckRow {
    #[serde(flatten)]
    pub state: RecipientView,
    /// Number of messages waiting for it.
    pub messages: u64,
    /// When the oldest of them was accepted.
    pub oldest: Option<Ms>,
    pub oldest_id: Option<String>,
    /// Advice for the operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// The reply to `stentor queue show ID`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MessageView {
    pub id: String,
    pub now: Ms,
    /// Empty for the null path.
    pub sender: String,
    /// The sender that the client gave, if `sender` differs: for a post, its author.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_sender: Option<String>,
    /// The decoded subject; empty if there is none, `None` if the message is no longer stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub list: Option<String>,
    /// `ordinary` or `bulk`.
    pub class: String,
    /// Octets as transmitted.
    pub size: u64,
    pub accepted: Ms,
    /// When it expires; null while held.
    pub expires: Option<Ms>,
    /// An operator or a rule holds it: it is not tried and does not expire.
    pub held: bool,
    /// The rule with its place and text, or the operator with the reason given; `an operator` if the history does not
    /// have the hold.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub held_by: String,
    /// When that began; absent if the history does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Ms>,
    /// The client's address, or `local`.
    pub origin: String,
    pub message_id: String,
    pub fates: Fates,
    /// Pending recipients, at most the requested number; `fates.pending` counts all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<RecipientView>,
}

/// One line of `export`: a message, or more recipients of the previous one.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct EnvelopeView {
    pub id: String,
    /// More recipients of the previous line; the other fields are repeated.
    pub continued: bool,
    /// An operator or a rule holds it.
    pub held: bool,
    pub sender: String,
    /// The sender that the client gave, if `sender` differs: for a post, its author.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_sender: Option<String>,
    /// The decoded subject; empty if there is none, `None` if the message is no longer stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    pub list: Option<String>,
    /// `ordinary` or `bulk`.
    pub class: String,
    pub size: u64,
    pub accepted: Ms,
    /// The client's address, or `local`.
    pub origin: String,
    pub message_id: String,
    /// ENVID (RFC 3461).
    pub envid: Option<String>,
    /// `full` or `headers` (RFC 3461 RET).
    pub ret: Option<String>,
    /// Its content is 8-bit.
    pub eight_bit: bool,
    /// It needs SMTPUTF8.
    pub smtputf8: bool,
    /// It is a delivery status notification.
    pub is_report: bool,
    pub fates: Fates,
    /// Pending recipients.
    pub recipients: Vec<ExportedRecipient>,
}

/// One pending recipient of [`EnvelopeView`].
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ExportedRecipient {
    #[serde(flatten)]
    pub state: RecipientView,
    /// NOTIFY bits (RFC 3461): 1 NEVER, 2 SUCCESS, 4 FAILURE, 8 DELAY.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<u8>,
    /// ORCPT (RFC 3461).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orcpt: Option<String>,
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlReply {
    Status(Box<Status>),
    Queue(QueueSummary),
    Stuck(Box<StuckReport>),
    Message(Box<MessageView>),
    Address(Box<AddressView>),
    Verified(Box<VerifyView>),
    Ages(Box<Ages>),
    Site(Box<SiteView>),
    Mailqq(Box<Mailqq>),
    Hosts(Box<Hosts>),
    Posts(Box<PostReports>),
    Post(Box<PostView>),
    Doctor(Box<Doctor>),
    Users(Box<UsersView>),
    Quarantine(Box<QuarantineList>),
    Quarantined(Box<QuarantinedMessage>),
    Suppressions(Box<SuppressionList>),
    DkimRecords(Box<DkimRecords>),
    Lists(Box<ListTable>),
    Members(Box<MemberTable>),
    Person(Box<PersonView>),
    /// The request was carried out, or begun; `count` is the number affected, if that applies. `remarks`: doubts, also
    /// in the text.
    Done {
        text: String,
        count: Option<u64>,
        remarks: Vec<String>,
    },
    /// As `Done`, for a verb that acts on mail.
    Counted(Box<ActionResult>),
    Error(Problem),
}

impl ControlReply {
    /// The request was carried out, or begun.
    pub fn done(text: impl Into<String>, count: Option<u64>) -> ControlReply {
        ControlReply::Done { text: text.into(), count, remarks: Vec::new() }
    }

    pub fn error(code: ErrorCode, text: impl Into<String>) -> ControlReply {
        ControlReply::Error(Problem::new(code, text))
    }
}
