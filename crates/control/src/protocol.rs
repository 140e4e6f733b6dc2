//! Requests and replies of the control socket: one JSON object a line, version 1 (`docs/operate/control-protocol.md`).
//!
//! A request gets one reply, written as one line or, if it has many rows, as several: all but the last have
//! `"more":true`, and [`Assembler`] joins them. All instants are milliseconds since the Unix epoch.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::MessageId;
use stentor_queue::queue_only::Scope;

use super::observe::Observe;
use super::problem::{ErrorCode, Problem};
use super::selection::{self, ActionArguments, BounceTerm, STANDING_S_MAX, Selection, Verb};
pub use super::wire::{
    Assembler, content_line, content_of, envelope_line, envelope_of, snapshot_line, snapshot_of, to_lines,
    traffic_line, traffic_of,
};
use crate::VERSION;
use crate::dkim_view::DkimRequest;
use crate::list_view::RosterRequest;
use crate::post_view::PostOptions;
use crate::quarantine_view::QuarantineOptions;
use crate::suppression_view::SuppressionRequest;
use crate::view::{self, RowKind, View};

/// Maximum octets of a request with its line end.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
pub const RECIPIENTS_DEFAULT: u32 = 1_000;
/// Maximum recipients of one answer; `export` has all.
pub const RECIPIENTS_MAX: u32 = 10_000;

/// Maximum suspended lists, sites and so on that `status` names.
pub const SUSPENDED_SHOWN_MAX: usize = 100;

/// The verbs of this version.
pub const VERBS: [&str; 51] = [
    "status",
    "doctor",
    "users",
    "queue",
    "queue_stuck",
    "queue_show",
    "mailqq",
    "hosts",
    "watch",
    "report",
    "address",
    "verify",
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
    "cat",
    "traffic",
    "ages",
    "queue_only",
    "queue_run",
    "quarantine",
    "quarantine_show",
    "quarantine_copy",
    "quarantine_release",
    "quarantine_delete",
    "resend",
    "post_show",
    "suppress",
    "unsuppress",
    "suppressions",
    "dkim_records",
    "dkim_rotate",
    "lists",
    "list_show",
    "list_create",
    "list_set",
    "list_delete",
    "members",
    "member_add",
    "member_remove",
    "member_set",
    "member_show",
];
/// Maximum recipients in one `envelope` line.
pub const EXPORTED_PER_LINE_MAX: usize = 500;

/// An operator's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Status,
    /// The problems that the server finds with itself.
    Doctor,
    /// Submissions of users and their limits.
    Users,
    /// The queue in total, by site and by list.
    Queue(View),
    /// The recipients with most messages waiting, and the sites.
    QueueStuck(View),
    /// One message and its pending recipients.
    QueueShow {
        id: MessageId,
        recipients_max: u32,
    },
    /// The final recipients of mail to an address.
    Verify {
        address: String,
        /// The envelope sender; empty for the null path.
        from: String,
    },
    /// Everything known about one address.
    Address {
        address: String,
    },
    /// Live data, read only.
    Observe(Observe),
    /// Tries everything, or one site, at once: retry clocks end.
    Flush {
        site: Option<String>,
        dry_run: bool,
    },
    /// One site: its waiting mail and why it waits; only one list's mail, if `list` is set.
    Site {
        name: String,
        list: Option<String>,
    },
    /// Suspends or resumes all mail of a list or a sender, to a site, or of a list to a subscriber; journaled.
    Suspend {
        suspended: bool,
        what: Subject,
        reason: Option<String>,
        /// Seconds until it expires.
        for_s: Option<u64>,
        /// For a suspension: only count waiting mail.
        dry_run: bool,
    },
    /// Starts or ends queue-only mode for a scope; journaled.
    QueueOnly {
        scope: Scope,
        is_on: bool,
        /// Seconds until it expires.
        for_s: Option<u64>,
        dry_run: bool,
        reason: Option<String>,
    },
    /// Tries the present queue once, queue-only or not; the audit record is journaled.
    QueueRun {
        dry_run: bool,
        reason: Option<String>,
    },
    /// Reloads the configuration, as `SIGHUP` does.
    Reload,
    /// Stops gracefully, as `SIGTERM` does.
    Stop,
    /// A verb on mail, journaled; or a dry run.
    Act {
        verb: Verb,
        selection: Selection,
        dry_run: bool,
        reason: Option<String>,
    },
    /// Starts or ends a standing bounce of waiting and arriving mail; journaled.
    Bounce {
        selection: Selection,
        standing: BounceTerm,
        dry_run: bool,
        reason: Option<String>,
    },
    /// The queue as `envelope` lines.
    Export {
        selection: Selection,
    },
    /// One kept post and a page of its recipients.
    PostShow(PostOptions),
    /// Messages in the quarantine.
    Quarantine(QuarantineOptions),
    /// One quarantined message, decoded.
    QuarantineShow {
        id: MessageId,
    },
    /// Sends a copy of a quarantined message to another address; the message stays.
    QuarantineCopy {
        id: MessageId,
        to: String,
        reason: Option<String>,
    },
    /// Adds, removes or lists suppressions.
    Suppression(SuppressionRequest),
    /// Makes, changes or shows lists and their members.
    List(RosterRequest),
    /// DKIM keys that the server makes.
    Dkim(DkimRequest),
    /// A message's content as `content` lines.
    Cat {
        id: MessageId,
        part: Part,
    },
}

/// The requested part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Up to the empty line.
    #[default]
    Header,
    /// Everything after the empty line.
    Body,
    All,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Header => "header",
            Part::Body => "body",
            Part::All => "all",
        }
    }
}

/// No arguments. Strict, so that a misspelt one does not silently mean "all".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowArguments {
    /// Queue id.
    id: String,
    /// Maximum number of recipients returned (default 1000, at most 10000).
    #[serde(default = "recipients_default")]
    recipients_max: u32,
}

/// A subject of suspension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    /// A list's name.
    List(String),
    /// A sender's domain.
    Sender(String),
    /// A site as `stentor queue` names it, or a domain that it serves.
    Site(String),
    Subscriber {
        list: String,
        address: String,
    },
}

impl Subject {
    fn to_json(&self) -> Map<String, Value> {
        let fields = match self {
            Subject::List(list) => vec![("list", list)],
            Subject::Sender(domain) => vec![("sender", domain)],
            Subject::Site(site) => vec![("site", site)],
            Subject::Subscriber { list, address } => vec![("list", list), ("subscriber", address)],
        };
        fields.into_iter().map(|(name, value)| (name.to_owned(), value.as_str().into())).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SiteArguments {
    /// A site as `stentor queue` names it, or a domain that it serves.
    name: String,
    /// Mail of this list only.
    list: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuspendArguments {
    /// All posts of this list; with `subscriber`, only those to one subscriber.
    list: Option<String>,
    /// All mail from this domain.
    sender: Option<String>,
    /// All mail to this site.
    site: Option<String>,
    /// An address; needs `list`.
    subscriber: Option<String>,
    /// Recorded in the journal's audit record.
    reason: Option<String>,
    /// The suspension expires after this many seconds.
    for_s: Option<u64>,
    /// Only count the waiting recipients that it would stop.
    #[serde(default)]
    dry_run: bool,
}

impl SuspendArguments {
    fn request(self, suspended: bool) -> Result<Request, String> {
        let what = match (self.list, self.sender, self.site, self.subscriber) {
            (Some(list), None, None, None) => Subject::List(list),
            (None, Some(sender), None, None) => Subject::Sender(sender),
            (None, None, Some(site), None) => Subject::Site(site),
            (Some(list), None, None, Some(address)) => Subject::Subscriber { list, address },
            _ => return Err("exactly one of list, sender, site, or list with subscriber is required".to_owned()),
        };
        selection::check_reason(self.reason.as_deref())?;
        match self.for_s {
            Some(_) if !suspended => return Err("for_s is only valid for suspend".to_owned()),
            _ if self.dry_run && !suspended => return Err("dry_run is only valid for suspend".to_owned()),
            Some(0) => return Err("for_s must be at least 1".to_owned()),
            Some(for_s) if for_s > STANDING_S_MAX => return Err(format!("for_s must be at most {STANDING_S_MAX}")),
            _ => {}
        }
        let SuspendArguments { reason, for_s, dry_run, .. } = self;
        Ok(Request::Suspend { suspended, what, reason, for_s, dry_run })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueOnlyArguments {
    /// All mail.
    #[serde(default)]
    all: bool,
    /// Mail of one class: `ordinary` or `bulk`.
    class: Option<String>,
    /// Posts of this list.
    list: Option<String>,
    /// Recipients at this domain.
    domain: Option<String>,
    /// Mail of this envelope sender: an address, `@domain`, or empty for the null sender.
    sender: Option<String>,
    /// Mail received from this address, network or local user.
    client: Option<String>,
    /// Mail that can leave only from this configured source.
    source: Option<String>,
    /// Seconds until it expires.
    for_s: Option<u64>,
    /// End queue-only mode.
    #[serde(default)]
    end: bool,
    /// Only count the waiting recipients in its scope.
    #[serde(default)]
    dry_run: bool,
    /// Recorded in the journal's audit record, and shown.
    reason: Option<String>,
}

impl QueueOnlyArguments {
    fn request(self) -> Result<Request, String> {
        selection::check_reason(self.reason.as_deref())?;
        let named = [
            ("all", self.all.then(String::new)),
            ("class", self.class),
            ("list", self.list),
            ("domain", self.domain),
            ("sender", self.sender),
            ("client", self.client),
            ("source", self.source),
        ];
        let mut given = named.into_iter().filter_map(|(kind, value)| Some((kind, value?)));
        let (Some((kind, value)), None) = (given.next(), given.next()) else {
            return Err("exactly one of all, class, list, domain, sender, client or source is required".to_owned());
        };
        let scope = Scope::of_parts(kind, &value).ok_or_else(|| format!("{kind} cannot be {value:?}"))?;
        match self.for_s {
            Some(_) if self.end => return Err("for_s and end cannot be used together".to_owned()),
            Some(for_s) if !(1..=STANDING_S_MAX).contains(&for_s) => {
                return Err(format!("for_s must be from 1 to {STANDING_S_MAX}"));
            }
            _ => {}
        }
        if self.end && self.dry_run {
            return Err("dry_run cannot be used with end".to_owned());
        }
        let Self { for_s, dry_run, reason, .. } = self;
        Ok(Request::QueueOnly { scope, is_on: !self.end, for_s, dry_run, reason })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueRunArguments {
    /// Only count the recipients, without trying them.
    #[serde(default)]
    dry_run: bool,
    /// Recorded in the journal's audit record.
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifyArguments {
    address: String,
    #[serde(default)]
    from: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressArguments {
    address: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdArgument {
    id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyArguments {
    /// The queue id.
    id: String,
    /// Recipient of the copy.
    to: String,
    /// Reason, for the audit record.
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatArguments {
    id: String,
    #[serde(default)]
    part: Part,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlushArguments {
    /// A site's name, as in the queue.
    site: Option<String>,
    /// Only count the recipients that would be tried.
    #[serde(default)]
    dry_run: bool,
}

fn acting(selection: &Selection, dry_run: bool, reason: Option<&str>) -> Map<String, Value> {
    let mut fields = selection.to_json();
    fields.extend(dry_run.then(|| ("dry_run".to_owned(), true.into())));
    fields.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
    fields
}

fn recipients_default() -> u32 {
    RECIPIENTS_DEFAULT
}

fn bad(text: String) -> Problem {
    Problem::new(ErrorCode::BadRequest, text)
}

/// Splits a request into its verb and its other fields.
fn verb_and_fields(line: &[u8]) -> Result<(String, Value), Problem> {
    let mut fields: Map<String, Value> =
        serde_json::from_slice(line).map_err(|e| bad(format!("not a JSON object: {e}")))?;
    match fields.remove("v") {
        Some(Value::Number(v)) if v.as_u64() == Some(VERSION) => {}
        Some(v) => {
            let text = format!("protocol version {v} is not supported, only {VERSION}");
            return Err(Problem::new(ErrorCode::BadVersion, text));
        }
        None => return Err(bad(format!("\"v\":{VERSION} is missing"))),
    }
    match fields.remove("verb") {
        Some(Value::String(verb)) => Ok((verb, Value::Object(fields))),
        _ => Err(bad("\"verb\" is missing or not a string".to_owned())),
    }
}

/// Parses a verb's fields as its arguments.
fn arguments<T: DeserializeOwned>(verb: &str, fields: Value) -> Result<T, Problem> {
    serde_json::from_value(fields).map_err(|e| bad(format!("{verb}: {e}")))
}

fn view(verb: &str, fields: Value, subject: view::Subject) -> Result<View, Problem> {
    let view: View = arguments(verb, fields)?;
    view.check(subject).map_err(|why| bad(format!("{verb}: {why}")))?;
    Ok(view)
}

impl Request {
    /// Parses one line.
    ///
    /// # Errors
    /// The problem to send back.
    pub fn parse(line: &[u8]) -> Result<Request, Problem> {
        let (verb, fields) = verb_and_fields(line)?;
        let plain = |request: Request| arguments::<NoArguments>(&verb, fields.clone()).map(|NoArguments {}| request);
        match verb.as_str() {
            "status" => plain(Request::Status),
            "doctor" => plain(Request::Doctor),
            "users" => plain(Request::Users),
            "reload" => plain(Request::Reload),
            "stop" => plain(Request::Stop),
            "flush" => {
                let FlushArguments { site, dry_run } = arguments(&verb, fields)?;
                Ok(Request::Flush { site, dry_run })
            }
            "queue_only" => {
                let arguments: QueueOnlyArguments = arguments(&verb, fields)?;
                arguments.request().map_err(|why| bad(format!("{verb}: {why}")))
            }
            "queue_run" => {
                let QueueRunArguments { dry_run, reason } = arguments(&verb, fields)?;
                selection::check_reason(reason.as_deref()).map_err(|why| bad(format!("{verb}: {why}")))?;
                Ok(Request::QueueRun { dry_run, reason })
            }
            "suspend" | "resume" => {
                let arguments: SuspendArguments = arguments(&verb, fields)?;
                arguments.request(verb == "suspend").map_err(|why| bad(format!("{verb}: {why}")))
            }
            "export" => Ok(Request::Export { selection: selection::parse(&verb, &fields, false)?.selection }),
            name => match Verb::ALL.into_iter().find(|verb| verb.name() == name) {
                Some(verb) => {
                    let ActionArguments { selection, dry_run, reason, standing } =
                        selection::parse(name, &fields, true)?;
                    Ok(match standing {
                        None => Request::Act { verb, selection, dry_run, reason },
                        Some(standing) => Request::Bounce { selection, standing, dry_run, reason },
                    })
                }
                None => Request::look(&verb, fields),
            },
        }
    }

    /// Parses a read-only verb.
    fn look(verb: &str, fields: Value) -> Result<Request, Problem> {
        match verb {
            "queue" => match view(verb, fields, view::Subject::Queue)? {
                view if view.by == Some(RowKind::Age) => Ok(Request::Observe(Observe::Ages(view))),
                view => Ok(Request::Queue(view)),
            },
            "queue_stuck" => Ok(Request::QueueStuck(view(verb, fields, view::Subject::Stuck)?)),
            "queue_show" => {
                let ShowArguments { id, recipients_max } = arguments(verb, fields)?;
                let id = id.parse().map_err(|e| bad(format!("{verb}: {e}")))?;
                if recipients_max > RECIPIENTS_MAX {
                    return Err(bad(format!("{verb}: recipients_max must be at most {RECIPIENTS_MAX}")));
                }
                Ok(Request::QueueShow { id, recipients_max })
            }
            "address" => {
                let AddressArguments { address } = arguments(verb, fields)?;
                Ok(Request::Address { address })
            }
            "verify" => {
                let VerifyArguments { address, from } = arguments(verb, fields)?;
                Ok(Request::Verify { address, from })
            }
            "cat" => {
                let CatArguments { id, part } = arguments(verb, fields)?;
                Ok(Request::Cat { id: id.parse().map_err(|e| bad(format!("{verb}: {e}")))?, part })
            }
            "post_show" => {
                PostOptions::of_json(fields).map(Request::PostShow).map_err(|why| bad(format!("{verb}: {why}")))
            }
            "quarantine" => {
                let options = QuarantineOptions::of_json(verb, fields);
                options.map(Request::Quarantine).map_err(|why| bad(format!("{verb}: {why}")))
            }
            "quarantine_show" => {
                let IdArgument { id } = arguments(verb, fields)?;
                Ok(Request::QuarantineShow { id: id.parse().map_err(|e| bad(format!("{verb}: {e}")))? })
            }
            "quarantine_copy" => {
                let CopyArguments { id, to, reason } = arguments(verb, fields)?;
                selection::check_reason(reason.as_deref()).map_err(|why| bad(format!("{verb}: {why}")))?;
                let id = id.parse().map_err(|e| bad(format!("{verb}: {e}")))?;
                Ok(Request::QuarantineCopy { id, to, reason })
            }
            "site" => {
                let SiteArguments { name, list } = arguments(verb, fields)?;
                Ok(Request::Site { name, list })
            }
            "watch" | "mailqq" | "hosts" | "report" | "traffic" | "ages" => {
                Observe::parse(verb, fields).map(Request::Observe).map_err(|why| bad(format!("{verb}: {why}")))
            }
            _ => Request::of_group(verb, &fields),
        }
    }

    /// Parses a verb about suppressions, lists or DKIM.
    fn of_group(verb: &str, fields: &Value) -> Result<Request, Problem> {
        let suppression =
            SuppressionRequest::of_json(verb, fields.clone()).map(|parsed| parsed.map(Request::Suppression));
        let list = || RosterRequest::of_json(verb, fields.clone()).map(|parsed| parsed.map(Request::List));
        let dkim = || DkimRequest::of_json(verb, fields.clone()).map(|parsed| parsed.map(Request::Dkim));
        let Some(parsed) = suppression.or_else(list).or_else(dkim) else {
            let text = format!("unknown verb; valid verbs: {}", VERBS.join(", "));
            return Err(Problem::new(ErrorCode::UnknownVerb, text));
        };
        parsed.map_err(|why| bad(format!("{verb}: {why}")))
    }

    /// Formats one line, with its end.
    #[allow(clippy::too_many_lines, reason = "one short arm for each verb")]
    pub fn to_line(&self) -> String {
        let text = |name: &str, value: &str| Map::from_iter([(name.to_owned(), value.into())]);
        let (verb, mut fields) = match self {
            Request::Status => ("status", Map::new()),
            Request::Doctor => ("doctor", Map::new()),
            Request::Users => ("users", Map::new()),
            Request::Reload => ("reload", Map::new()),
            Request::Stop => ("stop", Map::new()),
            Request::Queue(view) => ("queue", view.to_json()),
            Request::QueueStuck(view) => ("queue_stuck", view.to_json()),
            Request::QueueShow { id, recipients_max } => {
                let mut fields = text("id", &id.to_string());
                fields.insert("recipients_max".to_owned(), (*recipients_max).into());
                ("queue_show", fields)
            }
            Request::Address { address } => ("address", text("address", address)),
            Request::Verify { address, from } => {
                let mut fields = text("address", address);
                fields.extend((!from.is_empty()).then(|| ("from".to_owned(), from.as_str().into())));
                ("verify", fields)
            }
            Request::PostShow(options) => ("post_show", options.to_json()),
            Request::Quarantine(options) => ("quarantine", options.to_json()),
            Request::QuarantineShow { id } => ("quarantine_show", text("id", &id.to_string())),
            Request::QuarantineCopy { id, to, reason } => {
                let mut fields = text("id", &id.to_string());
                fields.insert("to".to_owned(), to.as_str().into());
                fields.extend(reason.as_ref().map(|reason| ("reason".to_owned(), reason.as_str().into())));
                ("quarantine_copy", fields)
            }
            Request::Suppression(request) => (request.verb(), request.to_json()),
            Request::Dkim(request) => (request.verb(), request.to_json()),
            Request::List(request) => (request.verb(), request.to_json()),
            Request::Cat { id, part } => {
                let mut fields = text("id", &id.to_string());
                fields.insert("part".to_owned(), part.name().into());
                ("cat", fields)
            }
            Request::Flush { site, dry_run } => {
                let mut fields = site.as_deref().map_or_else(Map::new, |site| text("site", site));
                fields.extend(dry_run.then(|| ("dry_run".to_owned(), true.into())));
                ("flush", fields)
            }
            Request::Site { name, list } => {
                let mut fields = text("name", name);
                fields.extend(list.iter().map(|list| ("list".to_owned(), list.as_str().into())));
                ("site", fields)
            }
            Request::Suspend { suspended, what, reason, for_s, dry_run } => {
                let mut fields = what.to_json();
                fields.extend(reason.iter().map(|reason| ("reason".to_owned(), reason.as_str().into())));
                fields.extend(for_s.iter().map(|for_s| ("for_s".to_owned(), (*for_s).into())));
                fields.extend(dry_run.then(|| ("dry_run".to_owned(), true.into())));
                (if *suspended { "suspend" } else { "resume" }, fields)
            }
            Request::QueueOnly { scope, is_on, for_s, dry_run, reason } => {
                let (kind, value) = scope.parts();
                let value = if *scope == Scope::All { true.into() } else { value.into() };
                let mut fields = Map::from_iter([(kind.to_owned(), value)]);
                fields.extend((!is_on).then(|| ("end".to_owned(), true.into())));
                fields.extend(for_s.iter().map(|for_s| ("for_s".to_owned(), (*for_s).into())));
                fields.extend(dry_run.then(|| ("dry_run".to_owned(), true.into())));
                fields.extend(reason.iter().map(|reason| ("reason".to_owned(), reason.as_str().into())));
                ("queue_only", fields)
            }
            Request::QueueRun { dry_run, reason } => {
                let mut fields = Map::new();
                fields.extend(dry_run.then(|| ("dry_run".to_owned(), true.into())));
                fields.extend(reason.iter().map(|reason| ("reason".to_owned(), reason.as_str().into())));
                ("queue_run", fields)
            }
            Request::Observe(observe) => observe.to_json(),
            Request::Export { selection } => ("export", selection.to_json()),
            Request::Act { verb, selection, dry_run, reason } => {
                (verb.name(), acting(selection, *dry_run, reason.as_deref()))
            }
            Request::Bounce { selection, standing, dry_run, reason } => {
                let mut fields = acting(selection, *dry_run, reason.as_deref());
                match standing {
                    BounceTerm::For(for_s) => fields.insert("for_s".to_owned(), (*for_s).into()),
                    BounceTerm::End => fields.insert("end".to_owned(), true.into()),
                };
                (Verb::Bounce.name(), fields)
            }
        };
        fields.insert("v".to_owned(), VERSION.into());
        fields.insert("verb".to_owned(), verb.into());
        format!("{}\n", Value::Object(fields))
    }
}
