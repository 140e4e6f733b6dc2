//! Requests and replies of the control socket: one JSON object a line, version 1 (`docs/operate/control-protocol.md`).
//!
//! A request gets one reply, written as one line or, when it has many rows, as several: all but the last say
//! `"more":true`, and [`Assembler`] puts them together again. All instants are milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::{MessageId, Ms};

use super::address_view::AddressView;
use super::observe::{Hosts, Mailqq, Observe, Posts};
use super::selection::{self, Counted, Parsed, Selection, Verb};
use super::site_view::SiteView;
pub use super::wire::{Assembler, envelope_line, envelope_of, snapshot_line, snapshot_of, to_lines};

/// The protocol's version, in every request and reply. Fields may be added within a version; readers skip unknown ones.
pub const VERSION: u64 = 1;
/// A request with its line end.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Rows of one line of a reply.
pub const ROWS_PER_LINE_MAX: usize = 200;
/// Rows asked for, unless the request says otherwise.
pub const SITES_DEFAULT: u32 = 50;
pub const RECIPIENTS_DEFAULT: u32 = 1_000;
/// The most recipients of one answer; `export` has all.
pub const RECIPIENTS_MAX: u32 = 10_000;

/// The most rows of each kind of `queue_stuck`, and how many unless the request says otherwise.
pub const STUCK_MAX: u32 = 1_000;
pub const STUCK_DEFAULT: u32 = 20;
/// The same on the command line.
pub const STUCK_DEFAULT_TEXT: &str = "20";

/// Suspended lists, sites and so on that `status` names.
pub const SUSPENDED_SHOWN_MAX: usize = 100;

/// The verbs of this version.
pub const VERBS: [&str; 21] = [
    "status",
    "queue",
    "queue_stuck",
    "queue_show",
    "mailqq",
    "hosts",
    "watch",
    "report",
    "address",
    "flush",
    "site",
    "suspend",
    "resume",
    "reload",
    "stop",
    "hold",
    "release",
    "remove",
    "bounce",
    "requeue",
    "export",
];
/// Recipients in one `envelope` line.
pub const EXPORTED_PER_LINE_MAX: usize = 500;

/// What the operator wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Status,
    /// The queue in sum and by site, the sites with most recipients first.
    Queue {
        sites_max: u32,
    },
    /// The recipients with most messages waiting, and the sites with most recipients.
    QueueStuck {
        rows_max: u32,
    },
    /// One message and its recipients that are still pending.
    QueueShow {
        id: MessageId,
        recipients_max: u32,
    },
    /// What is known of one address.
    Address {
        address: String,
    },
    /// What goes on: read only.
    Observe(Observe),
    /// Tries everything, or one site, at once: clocks are wound back.
    Flush {
        site: Option<String>,
    },
    /// One site: what waits there and why.
    Site {
        name: String,
    },
    /// Stops all mail of a list or a sender, to a site or of a list to a subscriber, or lets it go again; journaled.
    Suspend {
        suspended: bool,
        what: Subject,
        reason: Option<String>,
    },
    /// As `SIGHUP`.
    Reload,
    /// As `SIGTERM`: a graceful stop.
    Stop,
    /// A verb on mail, journaled; or what it would be about.
    Act {
        verb: Verb,
        selection: Selection,
        dry_run: bool,
        reason: Option<String>,
    },
    /// The queue as `envelope` lines.
    Export {
        selection: Selection,
    },
}

/// Arguments are strict, so that a misspelt one does not silently mean "all".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueArguments {
    #[serde(default = "sites_default")]
    sites_max: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StuckArguments {
    #[serde(default = "stuck_default")]
    rows_max: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowArguments {
    id: String,
    #[serde(default = "recipients_default")]
    recipients_max: u32,
}

/// What can be suspended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A list's name.
    List(String),
    /// A sender's domain.
    Sender(String),
    /// A site as `stentor queue` names it, or a domain that is at it.
    Site(String),
    Subscriber {
        list: String,
        address: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteArguments {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuspendArguments {
    list: Option<String>,
    sender: Option<String>,
    site: Option<String>,
    subscriber: Option<String>,
    reason: Option<String>,
}

impl SuspendArguments {
    fn request(self, suspended: bool) -> Result<Request, String> {
        let what = match (self.list, self.sender, self.site, self.subscriber) {
            (Some(list), None, None, None) => Subject::List(list),
            (None, Some(sender), None, None) => Subject::Sender(sender),
            (None, None, Some(site), None) => Subject::Site(site),
            (Some(list), None, None, Some(address)) => Subject::Subscriber { list, address },
            _ => return Err("one of list, sender, site, or list with subscriber is expected".to_owned()),
        };
        if self.reason.as_ref().is_some_and(|reason| reason.len() > selection::REASON_BYTES_MAX) {
            return Err(format!("the reason is longer than {} octets", selection::REASON_BYTES_MAX));
        }
        Ok(Request::Suspend { suspended, what, reason: self.reason })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressArguments {
    address: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushArguments {
    site: Option<String>,
}

fn sites_default() -> u32 {
    SITES_DEFAULT
}

fn stuck_default() -> u32 {
    STUCK_DEFAULT
}

fn recipients_default() -> u32 {
    RECIPIENTS_DEFAULT
}

impl Request {
    /// Reads one line.
    ///
    /// # Errors
    /// The problem to be sent back.
    pub fn parse(line: &[u8]) -> Result<Request, Problem> {
        let bad = |text: String| Problem::new(ErrorCode::BadRequest, text);
        let mut fields: Map<String, Value> =
            serde_json::from_slice(line).map_err(|e| bad(format!("a JSON object is expected: {e}")))?;
        match fields.remove("v") {
            Some(Value::Number(v)) if v.as_u64() == Some(VERSION) => {}
            Some(v) => {
                let text = format!("protocol version {v} is not spoken here, only {VERSION}");
                return Err(Problem::new(ErrorCode::BadVersion, text));
            }
            None => return Err(bad(format!("\"v\":{VERSION} is missing"))),
        }
        let Some(Value::String(verb)) = fields.remove("verb") else {
            return Err(bad("\"verb\" is missing or not a string".to_owned()));
        };
        let fields = Value::Object(fields);
        let wrong = |e: serde_json::Error| bad(format!("{verb}: {e}"));
        let plain = |request: Request| {
            NoArguments::deserialize(&fields).map_err(wrong)?;
            Ok(request)
        };
        match verb.as_str() {
            "status" => plain(Request::Status),
            "reload" => plain(Request::Reload),
            "stop" => plain(Request::Stop),
            "queue" => {
                let QueueArguments { sites_max } = QueueArguments::deserialize(&fields).map_err(wrong)?;
                Ok(Request::Queue { sites_max })
            }
            "queue_stuck" => {
                let StuckArguments { rows_max } = StuckArguments::deserialize(&fields).map_err(wrong)?;
                if rows_max > STUCK_MAX {
                    return Err(bad(format!("queue_stuck: rows_max is at most {STUCK_MAX}")));
                }
                Ok(Request::QueueStuck { rows_max })
            }
            "queue_show" => {
                let a = ShowArguments::deserialize(&fields).map_err(wrong)?;
                let id = a.id.parse().map_err(|e| bad(format!("queue_show: {e}")))?;
                if a.recipients_max > RECIPIENTS_MAX {
                    return Err(bad(format!("queue_show: recipients_max is at most {RECIPIENTS_MAX}")));
                }
                Ok(Request::QueueShow { id, recipients_max: a.recipients_max })
            }
            "address" => {
                let AddressArguments { address } = AddressArguments::deserialize(&fields).map_err(wrong)?;
                Ok(Request::Address { address })
            }
            "flush" => {
                let FlushArguments { site } = FlushArguments::deserialize(&fields).map_err(wrong)?;
                Ok(Request::Flush { site })
            }
            "site" => {
                let SiteArguments { name } = SiteArguments::deserialize(&fields).map_err(wrong)?;
                Ok(Request::Site { name })
            }
            "suspend" | "resume" => {
                let arguments = SuspendArguments::deserialize(&fields).map_err(wrong)?;
                arguments.request(verb == "suspend").map_err(|why| bad(format!("{verb}: {why}")))
            }
            "watch" | "mailqq" | "hosts" | "report" => {
                Observe::parse(&verb, fields).map(Request::Observe).map_err(|why| bad(format!("{verb}: {why}")))
            }
            "export" => Ok(Request::Export { selection: selection::parse(&verb, &fields, false)?.selection }),
            name => {
                if let Some(verb) = Verb::ALL.into_iter().find(|verb| verb.name() == name) {
                    let Parsed { selection, dry_run, reason } = selection::parse(name, &fields, true)?;
                    return Ok(Request::Act { verb, selection, dry_run, reason });
                }
                let text = format!("unknown verb; known are {}", VERBS.join(", "));
                Err(Problem::new(ErrorCode::UnknownVerb, text))
            }
        }
    }

    /// One line, with its end.
    pub fn to_line(&self) -> String {
        let mut line = match self {
            Request::Status => serde_json::json!({"v": VERSION, "verb": "status"}),
            Request::Queue { sites_max } => serde_json::json!({"v": VERSION, "verb": "queue", "sites_max": sites_max}),
            Request::QueueStuck { rows_max } => {
                serde_json::json!({"v": VERSION, "verb": "queue_stuck", "rows_max": rows_max})
            }
            Request::QueueShow { id, recipients_max } => {
                let id = id.to_string();
                serde_json::json!({"v": VERSION, "verb": "queue_show", "id": id, "recipients_max": recipients_max})
            }
            Request::Address { address } => {
                serde_json::json!({"v": VERSION, "verb": "address", "address": address})
            }
            Request::Flush { site: None } => serde_json::json!({"v": VERSION, "verb": "flush"}),
            Request::Flush { site: Some(site) } => {
                serde_json::json!({"v": VERSION, "verb": "flush", "site": site})
            }
            Request::Site { name } => serde_json::json!({"v": VERSION, "verb": "site", "name": name}),
            Request::Suspend { suspended, what, reason } => {
                let verb = if *suspended { "suspend" } else { "resume" };
                let mut fields = serde_json::json!({"v": VERSION, "verb": verb});
                match what {
                    Subject::List(list) => fields["list"] = list.as_str().into(),
                    Subject::Sender(domain) => fields["sender"] = domain.as_str().into(),
                    Subject::Site(site) => fields["site"] = site.as_str().into(),
                    Subject::Subscriber { list, address } => {
                        fields["list"] = list.as_str().into();
                        fields["subscriber"] = address.as_str().into();
                    }
                }
                if let Some(reason) = reason {
                    fields["reason"] = reason.as_str().into();
                }
                fields
            }
            Request::Observe(observe) => observe.to_json(),
            Request::Reload => serde_json::json!({"v": VERSION, "verb": "reload"}),
            Request::Stop => serde_json::json!({"v": VERSION, "verb": "stop"}),
            Request::Export { selection } => {
                let mut fields = selection.to_json();
                fields.insert("v".to_owned(), VERSION.into());
                fields.insert("verb".to_owned(), "export".into());
                Value::Object(fields)
            }
            Request::Act { verb, selection, dry_run, reason } => {
                let mut fields = selection.to_json();
                fields.insert("v".to_owned(), VERSION.into());
                fields.insert("verb".to_owned(), verb.name().into());
                if *dry_run {
                    fields.insert("dry_run".to_owned(), true.into());
                }
                if let Some(reason) = reason {
                    fields.insert("reason".to_owned(), reason.as_str().into());
                }
                Value::Object(fields)
            }
        }
        .to_string();
        line.push('\n');
        line
    }
}

/// The class of a refusal; in JSON in snake case.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    BadRequest,
    BadVersion,
    UnknownVerb,
    /// Reserved for verbs that are planned.
    NotInThisVersion,
    /// No such message or site.
    NotFound,
    TooLarge,
    /// Too many connections.
    Busy,
    Forbidden,
    /// It was tried and did not work.
    Failed,
    /// From a newer server.
    #[serde(other)]
    Other,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Problem {
    pub code: ErrorCode,
    pub text: String,
}

impl Problem {
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Problem {
        Problem { code, text: text.into() }
    }
}

/// What became of recipients. `acknowledged` is the sum of the others, always.
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

/// The server at a glance. Counters are since the start unless they are levels.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Status {
    pub version: String,
    pub hostname: String,
    pub pid: u32,
    pub now: Ms,
    pub started: Ms,
    pub stopping: bool,
    /// Messages queued now.
    pub messages: u64,
    /// Addresses in the address book.
    pub addresses: u64,
    /// Recipients, over the life of the store.
    pub recipients: Fates,
    pub connections_in: u64,
    pub connections_out: u64,
    pub journal_segments: u64,
    pub journal_syncs: u64,
    pub journal_batches: u64,
    pub journal_bytes: u64,
    /// Segments given up since the start because a write or sync failed.
    pub journal_abandoned: u64,
    /// Octets of content that cleaning has copied.
    pub journal_bytes_moved: u64,
    /// Segments that a commit had to make itself.
    pub journal_unprepared: u64,
    /// Checkpoints since the start, and whether one is being written.
    #[serde(default)]
    pub journal_checkpoints: u64,
    #[serde(default)]
    pub journal_checkpoint_running: bool,
    /// Octets of large bodies in the journal whose message is not accepted yet, and the most that there ever were.
    pub streamed_bytes: u64,
    pub streamed_bytes_peak: u64,
    pub content_bytes: u64,
    pub disk_free_bytes: u64,
    /// The longest that an outcome has waited to be durable since the start, batch and sync included.
    pub outcome_sync_ms_max: u64,
    pub dns_queries: u64,
    pub dns_failures: u64,
    pub log_lines_lost: u64,
    /// Records that the history could not keep, since the start.
    #[serde(default)]
    pub history_lost: u64,
    /// What its files occupy.
    #[serde(default)]
    pub history_bytes: u64,
    /// The longest that the queue's lock was held since the last `status`, and where in the source.
    pub lock_held_us_max: u64,
    pub lock_held_at: String,
    /// What gets no mail out: `list:NAME`, `sender:DOMAIN`, `site:NAME`, `subscriber:LIST:ADDRESS`; at most
    /// [`SUSPENDED_SHOWN_MAX`] of them.
    pub suspended: Vec<String>,
    pub suspended_total: u64,
    /// Webhooks that are sent nothing or take nothing, each with why.
    pub webhooks_troubled: Vec<String>,
}

/// `stentor queue`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct QueueSummary {
    pub hostname: String,
    pub now: Ms,
    pub messages: u64,
    /// Pending recipients.
    pub recipients: u64,
    /// Messages that an operator holds.
    pub held: u64,
    pub content_bytes: u64,
    /// When the oldest queued message was accepted, and its queue id.
    pub oldest: Option<Ms>,
    pub oldest_id: Option<String>,
    /// All sites with pending recipients; `sites` may hold fewer.
    pub sites_total: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteRow>,
}

/// One site of [`QueueSummary`].
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct SiteRow {
    /// The MX host names or the route; a domain that is not resolved yet.
    pub site: String,
    /// Pending recipients there.
    pub waiting: u64,
    pub messages: u64,
    pub connections: u64,
    /// When the site is tried next; `None`: as soon as a connection is free.
    pub next_try: Option<Ms>,
    /// The last reply or error that held mail up; empty if none did.
    pub last_reply: String,
    /// When the oldest message in line there was accepted.
    pub oldest: Option<Ms>,
    /// Of `queue_stuck`: what the operator may do, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// `stentor queue --stuck`. Gathered in slices: rows are of slightly different instants.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Stuck {
    pub hostname: String,
    pub now: Ms,
    /// A start or a large post is still being counted: the counts are too low.
    pub is_counting: bool,
    /// Sites with pending recipients.
    pub sites_total: u64,
    /// Most messages first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<StuckRow>,
    /// Most recipients first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteRow>,
}

/// A recipient that messages wait for, as its oldest message sees it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct StuckRow {
    #[serde(flatten)]
    pub state: RecipientView,
    /// Messages that wait for it.
    pub messages: u64,
    /// When the oldest of them was accepted, and its queue id.
    pub oldest: Option<Ms>,
    pub oldest_id: Option<String>,
    /// What the operator may do, in words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// `stentor queue show ID`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MessageView {
    pub id: String,
    pub now: Ms,
    /// Empty for the null path.
    pub sender: String,
    pub list: Option<String>,
    /// `ordinary` or `bulk`.
    pub class: String,
    /// Octets at the wire.
    pub size: u64,
    pub accepted: Ms,
    pub expires: Option<Ms>,
    /// An operator holds it: it is not tried and does not expire.
    pub held: bool,
    /// The client's address, or `local`.
    pub origin: String,
    pub message_id: String,
    pub fates: Fates,
    /// Those pending, at most as many as asked for; `fates.pending` counts all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<RecipientView>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum RecipientState {
    /// Not tried yet, or due.
    #[default]
    Waiting,
    InFlight,
    /// A clock holds it until `next_try`.
    Deferred,
    /// An operator holds the message.
    Held,
    #[serde(other)]
    Other,
}

/// One pending recipient of a message.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct RecipientView {
    pub address: String,
    pub site: String,
    pub state: RecipientState,
    pub next_try: Option<Ms>,
    pub last_reply: String,
}

/// One line of `export`: a message, or more recipients of the one before.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct EnvelopeView {
    pub id: String,
    /// More recipients of the line before; the rest is repeated.
    pub continued: bool,
    pub held: bool,
    pub sender: String,
    pub list: Option<String>,
    pub class: String,
    pub size: u64,
    pub accepted: Ms,
    pub origin: String,
    pub message_id: String,
    pub envid: Option<String>,
    /// `full`, `headers` (RFC 3461 RET).
    pub ret: Option<String>,
    pub eight_bit: bool,
    pub smtputf8: bool,
    pub is_report: bool,
    pub fates: Fates,
    /// Pending ones.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orcpt: Option<String>,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Status(Box<Status>),
    Queue(QueueSummary),
    Stuck(Box<Stuck>),
    Message(Box<MessageView>),
    Address(Box<AddressView>),
    Site(Box<SiteView>),
    Mailqq(Box<Mailqq>),
    Hosts(Box<Hosts>),
    Posts(Box<Posts>),
    /// It has been done, or begun; `count` says for how many, where that means something.
    Done {
        text: String,
        count: Option<u64>,
    },
    /// As `Done`, of a verb that acts on mail.
    Counted(Box<Counted>),
    Error(Problem),
}

impl Reply {
    pub fn error(code: ErrorCode, text: impl Into<String>) -> Reply {
        Reply::Error(Problem::new(code, text))
    }
}
