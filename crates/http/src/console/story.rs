//! The story of a message or a recipient: the history's records in order.

use maud::{Markup, html};
use stentor_control::problem::Problem;
use stentor_queue::ids::Ms;
use stentor_stats::record::{Attempt, Record, Stat};

use super::format::{instant, message_link, number, plural, recipient_link, shown, span};

/// Entries of one page.
pub const ENTRIES_MAX: usize = 300;
/// Recipients of one attempt that are named.
const NAMED_MAX: usize = 3;

pub struct Entry {
    pub at: Ms,
    /// What it says of the mail: `good`, `bad`, `warn` or nothing.
    tone: &'static str,
    what: &'static str,
    id: String,
    to: Vec<String>,
    more: u64,
    /// Host and reply, or who and how.
    by: String,
    reply: String,
    took_ms: Option<u64>,
    tls: String,
    /// Of a session or lookup that failed: how often in the same way, and the last time; 0 for all else.
    times: u64,
    last: Ms,
}

impl Entry {
    /// `None`: it is not about mail.
    pub fn of(record: &Record<'_>, key: &str) -> Option<Entry> {
        let entry = |at, tone, what, id: &str| Entry {
            at,
            tone,
            what,
            id: id.to_owned(),
            to: Vec::new(),
            more: 0,
            by: String::new(),
            reply: String::new(),
            took_ms: None,
            tls: String::new(),
            times: 0,
            last: at,
        };
        Some(match record {
            Record::Accepted(a) => Entry {
                by: match a.client {
                    Some(client) => format!("from <{}>, by {client} ({})", a.from, a.proto),
                    None => format!("from <{}> ({})", a.from, a.proto),
                },
                reply: [a.list, a.policy].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "),
                more: a.recipients,
                tls: a.tls.to_owned(),
                ..entry(a.at, "", "accepted", a.id)
            },
            Record::Attempt(a) if a.unreached.is_some() => {
                let what = if a.is_look_up() { "lookup failed" } else { "connection failed" };
                Entry { by: host(a), reply: a.reply.to_owned(), times: 1, ..entry(a.at, "warn", what, "") }
            }
            Record::Attempt(a) => {
                let (tone, what) = outcome(a);
                let is_wanted = |to: &&&str| to.eq_ignore_ascii_case(key);
                // A recipient's story names that one first.
                let first = a.to.iter().filter(is_wanted).chain(a.to.iter().filter(|to| !is_wanted(to)));
                let to: Vec<String> = first.take(NAMED_MAX).map(|to| (*to).to_owned()).collect();
                Entry {
                    more: (a.to.len() - to.len()) as u64,
                    to,
                    by: host(a),
                    reply: a.reply.to_owned(),
                    took_ms: (!a.is_fate_alone()).then_some(a.xdelay_ms),
                    tls: a.tls.to_owned(),
                    ..entry(a.at, tone, what, a.id)
                }
            }
            Record::Refused(r) => Entry {
                by: r.client.map_or_else(String::new, |client| format!("from <{}>, by {client}", r.from)),
                reply: r.reply.to_owned(),
                to: Some(r.to).filter(|to| !to.is_empty()).map(str::to_owned).into_iter().collect(),
                ..entry(r.at, "bad", "refused", "")
            },
            Record::Note(n) => Entry { reply: n.text.to_owned(), ..entry(n.at, "", "note", n.id) },
            Record::Machine(_) => return None,
        })
    }

    /// Whether `later` is the same failure again, which this entry then stands for too.
    pub fn takes(&mut self, later: &Entry) -> bool {
        let is_same = self.times > 0 && later.times > 0 && (&self.by, &self.reply) == (&later.by, &later.reply);
        if is_same {
            (self.times, self.last) = (self.times + later.times, later.last);
        }
        is_same
    }

    fn row(&self, names_messages: bool) -> Markup {
        html! {
            li {
                div.when { (instant(self.at)) }
                div.what {
                    span.badge.(self.tone) { (self.what) } " "
                    @for (at, to) in self.to.iter().enumerate() { @if at > 0 { ", " } (recipient_link(to)) }
                    @if self.what == "accepted" { (plural(self.more, "recipient")) }
                    @else if self.times > 1 { (number(self.times)) " times until " (instant(self.last)) }
                    @else if self.more > 0 { " and " (number(self.more)) " more" }
                    @if names_messages && !self.id.is_empty() { " (" (message_link(&self.id)) ")" }
                    @if !self.by.is_empty() || self.took_ms.is_some() {
                        div.quiet {
                            (shown(&self.by))
                            @if let Some(ms) = self.took_ms { " in " (span(ms)) }
                            @if !self.tls.is_empty() { ", " (shown(&self.tls)) }
                        }
                    }
                    @if !self.reply.is_empty() { div { (shown(&self.reply)) } }
                }
            }
        }
    }
}

fn outcome(attempt: &Attempt<'_>) -> (&'static str, &'static str) {
    match attempt.stat {
        Stat::Sent => ("good", "delivered"),
        Stat::Deferred => ("warn", "deferred"),
        Stat::Bounced if attempt.is_fate_alone() => ("bad", "bounced"),
        Stat::Bounced => ("bad", "rejected (permanent)"),
        Stat::Expired => ("bad", "expired"),
        Stat::Removed => ("", "removed"),
        Stat::Coalesced => ("", "sent in a digest"),
    }
}

fn host(attempt: &Attempt<'_>) -> String {
    match (attempt.host, attempt.ip) {
        ("", None) => String::new(),
        ("", Some(ip)) => format!("at {ip}"),
        (host, None) => format!("at {host}"),
        (host, Some(ip)) => format!("at {host} [{ip}]"),
    }
}

/// The story with its heading; `names_messages`: it is about more than one.
pub fn panel(story: Result<(Vec<Entry>, bool), Problem>, names_messages: bool) -> Markup {
    html! {
        section.panel aria-labelledby="story" {
            h2 #story { "History" }
            @match story {
                Err(problem) => p.empty { (shown(&problem.text)) },
                Ok((entries, _)) if entries.is_empty() => p.empty { "The history has no records of it." },
                Ok((entries, is_cut)) => {
                    div.scroll role="region" aria-label="Events, oldest first" tabindex="0" {
                        ol.story { @for entry in &entries { (entry.row(names_messages)) } }
                    }
                    @if is_cut { p.quiet { "There are more; " code { "stentor trace" } " prints all." } }
                },
            }
        }
    }
}
