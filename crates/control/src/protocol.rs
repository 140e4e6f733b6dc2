//! Requests and replies of the control socket: one JSON object a line, version 1 (`docs/operate/control-protocol.md`).
//!
//! A request gets one reply, written as one line or, when it has many rows, as several: all but the last say
//! `"more":true`, and [`Assembler`] puts them together again. All instants are milliseconds since the Unix epoch.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::MessageId;

use super::observe::Observe;
use super::problem::{ErrorCode, Problem};
use super::selection::{self, Parsed, Selection, Verb};
pub use super::wire::{
    Assembler, content_line, content_of, envelope_line, envelope_of, snapshot_line, snapshot_of, to_lines,
    traffic_line, traffic_of,
};
use crate::VERSION;

/// A request with its line end.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
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

/// The longest suspension that ends by itself: a year.
pub const SUSPENDED_S_MAX: u64 = 366 * 86_400;

/// Suspended lists, sites and so on that `status` names.
pub const SUSPENDED_SHOWN_MAX: usize = 100;

/// The verbs of this version.
pub const VERBS: [&str; 25] = [
    "status",
    "doctor",
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
    "cat",
    "traffic",
    "ages",
];
/// Recipients in one `envelope` line.
pub const EXPORTED_PER_LINE_MAX: usize = 500;

/// An operator's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Status,
    /// What the server finds wrong with itself.
    Doctor,
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
    /// Live data: read only.
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
        /// Seconds after which it ends by itself.
        for_s: Option<u64>,
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
    /// A message's content as `content` lines.
    Cat {
        id: MessageId,
        part: Part,
    },
}

/// What of a message is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Up to the empty line.
    #[default]
    Header,
    /// What follows it.
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
    for_s: Option<u64>,
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
        match self.for_s {
            Some(_) if !suspended => return Err("for_s is for suspend".to_owned()),
            Some(0) => return Err("for_s is at least 1".to_owned()),
            Some(for_s) if for_s > SUSPENDED_S_MAX => return Err(format!("for_s is at most {SUSPENDED_S_MAX}")),
            _ => {}
        }
        Ok(Request::Suspend { suspended, what, reason: self.reason, for_s: self.for_s })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressArguments {
    address: String,
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
            "doctor" => plain(Request::Doctor),
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
            "cat" => {
                let CatArguments { id, part } = CatArguments::deserialize(&fields).map_err(wrong)?;
                let id = id.parse().map_err(|e| bad(format!("cat: {e}")))?;
                Ok(Request::Cat { id, part })
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
            "watch" | "mailqq" | "hosts" | "report" | "traffic" | "ages" => {
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
            Request::Doctor => serde_json::json!({"v": VERSION, "verb": "doctor"}),
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
            Request::Cat { id, part } => {
                serde_json::json!({"v": VERSION, "verb": "cat", "id": id.to_string(), "part": part.name()})
            }
            Request::Flush { site: None } => serde_json::json!({"v": VERSION, "verb": "flush"}),
            Request::Flush { site: Some(site) } => {
                serde_json::json!({"v": VERSION, "verb": "flush", "site": site})
            }
            Request::Site { name } => serde_json::json!({"v": VERSION, "verb": "site", "name": name}),
            Request::Suspend { suspended, what, reason, for_s } => {
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
                if let Some(for_s) = for_s {
                    fields["for_s"] = (*for_s).into();
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
