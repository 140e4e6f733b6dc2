//! Read-only verbs: `watch`, `mailqq`, `hosts`, `report`; their arguments and answers.
//!
//! Arguments are strict, so that a misspelt one does not silently mean "all".

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::{MessageId, Ms};

use super::address_view::HostsHistoryView;
use super::causes::CauseRow;
use super::site_view::{HostView, WeakTlsView};
use crate::posts::PostReport;
use crate::snapshot::WatchOptions;
use crate::snapshot::{INTERVAL_MS_MAX, INTERVAL_MS_MIN};
use crate::view::{ROWS_DEFAULT, ROWS_MAX, Subject, View};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Observe {
    /// Sends snapshots until the peer leaves, or the requested number.
    Watch(WatchOptions),
    /// Messages by number of waiting recipients.
    Mailqq(MailqqOptions),
    /// Sites with their hosts.
    Hosts(HostsOptions),
    /// Outcomes of posts.
    Report(ReportOptions),
    /// Pending recipients by site and age.
    Ages(View),
    /// Commands and replies of sessions, until the peer leaves.
    Traffic(TrafficOptions),
}

/// The sessions to follow: those of a site, or of a client.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum TrafficOptions {
    /// The site as `queue` names it, or a domain that it serves.
    Site(String),
    Client(IpAddr),
}

/// The arguments as in the request.
#[derive(Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct TrafficArguments {
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
}

/// Moves the fields of these names out.
fn split(fields: Value, names: &[&str]) -> (Value, Value) {
    let Value::Object(fields) = fields else { return (fields, Value::Null) };
    let (own, shared): (Map<_, _>, Map<_, _>) =
        fields.into_iter().partition(|(name, _)| names.contains(&name.as_str()));
    (own.into(), shared.into())
}

/// Parses a verb's fields as its arguments.
fn arguments<T: DeserializeOwned>(fields: Value) -> Result<T, String> {
    serde_json::from_value(fields).map_err(|error| error.to_string())
}

impl Observe {
    /// Parses a verb and its arguments.
    ///
    /// # Errors
    /// The error in the arguments.
    pub fn parse(verb: &str, fields: Value) -> Result<Observe, String> {
        let view = |fields: Value, subject: Subject| {
            let view: View = arguments(fields)?;
            view.check(subject).map(|()| view)
        };
        match verb {
            "watch" => {
                let options: WatchOptions = arguments(fields)?;
                if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&options.interval_ms) {
                    return Err(format!("interval_ms must be from {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}"));
                }
                Ok(Observe::Watch(options))
            }
            "mailqq" => mailqq(fields),
            "hosts" => {
                let (page, shared) = split(fields, &["offset", "name", "waiting", "failing"]);
                let page: HostsQuery = arguments(page)?;
                Ok(Observe::Hosts(HostsOptions { view: view(shared, Subject::Hosts)?, page }))
            }
            "ages" => Ok(Observe::Ages(view(fields, Subject::Ages)?)),
            "traffic" => match arguments(fields)? {
                TrafficArguments { site: Some(site), client: None } => Ok(Observe::Traffic(TrafficOptions::Site(site))),
                TrafficArguments { site: None, client: Some(ip) } => Ok(Observe::Traffic(TrafficOptions::Client(ip))),
                _ => Err("exactly one of site and client is required".to_owned()),
            },
            _ => {
                let (post, shared) = split(fields, &["id"]);
                let Post { id } = arguments(post)?;
                if let Some(id) = &id {
                    id.parse::<MessageId>().map_err(|error| format!("id: {error}"))?;
                }
                Ok(Observe::Report(ReportOptions { id, view: view(shared, Subject::Report)? }))
            }
        }
    }

    /// The request's verb and fields.
    pub fn to_json(&self) -> (&'static str, Map<String, Value>) {
        // Plain structs with string keys: serialising them cannot fail.
        let object = |value: serde_json::Result<Value>| match value {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        match self {
            Observe::Watch(options) => ("watch", object(serde_json::to_value(options))),
            Observe::Mailqq(options) => ("mailqq", object(serde_json::to_value(options))),
            Observe::Hosts(HostsOptions { view, page }) => {
                let mut fields = object(serde_json::to_value(page));
                fields.extend(view.to_json());
                ("hosts", fields)
            }
            Observe::Report(ReportOptions { id, view }) => {
                let mut fields = object(serde_json::to_value(Post { id: id.clone() }));
                fields.extend(view.to_json());
                ("report", fields)
            }
            Observe::Ages(view) => ("ages", view.to_json()),
            Observe::Traffic(options) => ("traffic", object(serde_json::to_value(options))),
        }
    }
}

fn mailqq(fields: Value) -> Result<Observe, String> {
    let options: MailqqOptions = arguments(fields)?;
    if !(1..=ROWS_MAX).contains(&options.rows_max) {
        return Err(format!("rows_max must be from 1 to {ROWS_MAX}"));
    }
    if let Some(after) = &options.after {
        after.parse::<MessageId>().map_err(|error| format!("after: {error}"))?;
    }
    Ok(Observe::Mailqq(options))
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum MailqqSort {
    /// Most pending recipients first.
    #[default]
    #[value(alias = "waiting")]
    Count,
    /// Oldest first.
    Age,
    /// Most octets first.
    Size,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct MailqqOptions {
    /// count (default), age or size.
    pub sort: MailqqSort,
    /// Number of rows (default 20, at most 1000).
    pub rows_max: u32,
    /// Posts of this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    /// An exact address, empty for the null path, or `@domain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// With recipients at this site: its name, or a domain that it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Part of the decoded subject, ignoring case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Minimum age since acceptance, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s_min: Option<u64>,
    /// Maximum age in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_s_max: Option<u64>,
    /// Only messages after this queue id, where the previous answer stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

impl MailqqOptions {
    /// Whether there is a filter.
    pub fn is_narrow(&self) -> bool {
        let names = [&self.list, &self.sender, &self.site, &self.subject];
        names.into_iter().any(Option::is_some) || self.age_s_min.is_some() || self.age_s_max.is_some()
    }
}

impl Default for MailqqOptions {
    fn default() -> MailqqOptions {
        MailqqOptions {
            sort: MailqqSort::Count,
            rows_max: ROWS_DEFAULT,
            list: None,
            sender: None,
            site: None,
            subject: None,
            age_s_min: None,
            age_s_max: None,
            after: None,
        }
    }
}

/// The reply to `stentor mailqq`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Mailqq {
    pub hostname: String,
    pub now: Ms,
    /// Messages in the queue.
    pub messages: u64,
    /// Pending recipients in the queue.
    pub recipients: u64,
    /// Octets of queued messages.
    pub octets: u64,
    /// Matching messages among those examined; `None` without a filter.
    pub matching_messages: Option<u64>,
    /// Pending recipients of these messages.
    pub matching_recipients: Option<u64>,
    /// The search ran out of time: the answer covers the oldest messages, up to this queue id.
    pub stopped_after: Option<String>,
    /// Number of messages examined.
    pub looked_at: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<MailqqRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MailqqRow {
    pub id: String,
    /// Pending recipients.
    pub pending: u64,
    /// Pending recipients at the requested site; `None` if none is requested, or there are too many to count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<u64>,
    /// Original number of recipients.
    pub total: u64,
    /// Recipients in transactions now.
    pub in_flight: u64,
    /// An operator or a rule holds it.
    pub held: bool,
    /// Octets as transmitted.
    pub size: u64,
    pub accepted: Ms,
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
    /// Why its recipients wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
}

/// A page of `hosts`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HostsOptions {
    pub view: View,
    pub page: HostsQuery,
}

/// The arguments that only `hosts` accepts.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct HostsQuery {
    /// Number of rows to skip at the beginning.
    pub offset: u64,
    /// Only sites whose name, or a host's name, contains this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only sites with pending recipients.
    pub waiting: bool,
    /// Only sites with a host whose last attempt failed.
    pub failing: bool,
}

/// The reply to `stentor hosts`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Hosts {
    pub hostname: String,
    pub now: Ms,
    /// The part of the queue in words; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Sites known since the start.
    pub sites_total: u64,
    /// Number of sites that match the filters.
    pub matching: u64,
    /// Rows skipped at the beginning.
    pub offset: u64,
    /// When they were counted; `None` while a large queue is counted for the first time.
    pub counted: Option<Ms>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<HostRow>,
}

#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct HostRow {
    pub site: String,
    /// Pending recipients.
    pub waiting: u64,
    /// Why they wait; the rows add up to `waiting`. Empty while a large queue is counted for the first time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseRow>,
    /// Messages with recipients here.
    pub messages: u64,
    pub connections: u64,
    /// `fast`, `connecting`, `slow`, `clock`, `suspended`; `unknown` for a domain without hosts.
    pub lane: String,
    /// Why mail waits, in words; empty if nothing prevents delivery.
    pub waits_for: String,
    pub next_try: Option<Ms>,
    pub last_reply: String,
    /// Latency of the last answers; 0 if there were none.
    pub latency_ms: u64,
    /// Number of domains at the site.
    pub domains: u64,
    /// The domain with most pending recipients.
    pub domain: String,
    /// History of this domain's hosts.
    pub history: HostsHistoryView,
    /// The weakest TLS of a session in thirty days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weakest_tls: Option<WeakTlsView>,
    pub hosts: Vec<HostView>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReportOptions {
    /// Only this message.
    pub id: Option<String>,
    pub view: View,
}

/// The arguments that only `report` accepts.
#[derive(Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Post {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// The reply to `stentor report`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostReports {
    pub hostname: String,
    pub now: Ms,
    /// Newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<PostReport>,
    /// Complaint rates of lists, sender domains and providers with complaints; omitted in a report on one post.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<ComplaintView>,
}

/// Complaints about delivered copies of one name in a window.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ComplaintView {
    /// `list`, `sender` (domain) or `provider` (organizational domain of the hosts that took the mail).
    pub subject: String,
    /// The list, domain or provider.
    pub name: String,
    /// `24h` or `30d`.
    pub window: String,
    /// Delivered copies.
    pub delivered: u64,
    /// Complaints of people who got a copy; the rate is their share of the delivered copies.
    pub complaints: u64,
    /// Complaints that prove no copy; not in the rate.
    pub unproven: u64,
}
