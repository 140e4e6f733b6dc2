//! The story of a message or a recipient: the history's records in order.

use std::collections::VecDeque;

use maud::{Markup, html};
use stentor_control::problem::Problem;
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::record::{Attempt, HELD_BY, Note, RELEASED_BY, REPORT, Record, Stat};

use super::format::{instant, message_link, number, plural, recipient_link, shown, span};

/// Maximum entries on one page about the message or recipient itself; the newest are kept.
const ENTRIES_MAX: usize = 300;
/// Maximum entries about failed sessions and look-ups for the recipient's domain, which do not displace other entries.
const FAILURES_MAX: usize = 100;
/// How many failures back an equal one is sought: the hosts of a site fail in turns.
const ALIKE_WITHIN: usize = 8;
/// Maximum recipients named for one attempt.
const NAMED_MAX: usize = 3;

pub struct Entry {
    pub at: Ms,
    /// The outcome for the mail: `good`, `bad`, `warn` or nothing.
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
    /// For a failed session or look-up: how often it was repeated, and the last time; 0 for everything else.
    times: u64,
    last: Ms,
}

impl Entry {
    /// The entry for a record; `None` if it does not concern mail.
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
                by: {
                    let given = if a.orig_from.is_empty() {
                        String::new()
                    } else {
                        format!(" (original sender <{}>)", a.orig_from)
                    };
                    match a.client {
                        Some(client) => format!("from <{}>{given}, by {client} ({})", a.from, a.proto),
                        None => format!("from <{}>{given} ({})", a.from, a.proto),
                    }
                },
                reply: [a.list, a.policy, a.marks]
                    .into_iter()
                    .filter(|text| !text.is_empty())
                    .collect::<Vec<_>>()
                    .join("; "),
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
                // A recipient's story names that recipient first.
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
            Record::Note(n) => {
                let to = n.to.iter().take(NAMED_MAX).map(|to| (*to).to_owned()).collect();
                let (tone, what) = event(n);
                Entry { reply: n.text.to_owned(), to, ..entry(n.at, tone, what, n.id) }
            }
            Record::Machine(_) => return None,
        })
    }

    /// Merges `later` into this entry if it is the same failure again; returns whether it did.
    fn takes(&mut self, later: &Entry) -> bool {
        let is_same = self.times > 0 && later.times > 0 && (&self.by, &self.reply) == (&later.by, &later.reply);
        if is_same {
            (self.times, self.last) = (self.times + later.times, later.last);
        }
        is_same
    }

    fn row(&self, names_messages: bool, zone: &Zone) -> Markup {
        // A recipient's page only counts the other recipients.
        let named = if names_messages { 1 } else { NAMED_MAX };
        let more = self.more + self.to.len().saturating_sub(named) as u64;
        html! {
            li {
                div.when { (instant(self.at, zone)) }
                div.what {
                    span.badge.(self.tone) { (self.what) } " "
                    @for (at, to) in self.to.iter().take(named).enumerate() { @if at > 0 { ", " } (recipient_link(to)) }
                    @if self.what == "accepted" { (plural(self.more, "recipient")) }
                    @else if self.times > 1 { (number(self.times)) " times until " (instant(self.last, zone)) }
                    @else if more > 0 { " and " (number(more)) " more" }
                    @if names_messages && !self.id.is_empty() { " (" (message_link(&self.id)) ")" }
                    @if !self.by.is_empty() || self.took_ms.is_some() {
                        div.quiet {
                            (shown(&self.by))
                            @if let Some(ms) = self.took_ms { " in " (span(ms)) }
                            @if !self.tls.is_empty() { ", " (shown(&self.tls)) }
                        }
                    }
                    @if !self.reply.is_empty() { div { (shown(&words(&self.reply))) } }
                }
            }
        }
    }
}

/// Formats a reply. For an action, formats the operator: `user=ann address=192.0.2.1` becomes "by user ann, address
/// 192.0.2.1".
fn words(reply: &str) -> String {
    let is_operator = ["user=", "token=", "uid="].iter().any(|kind| reply.starts_with(kind));
    if is_operator { format!("by {}", reply.replace(' ', ", ").replace('=', " ")) } else { reply.to_owned() }
}

/// What a note reports: its tone, and the event.
fn event(note: &Note<'_>) -> (&'static str, &'static str) {
    match note.text {
        text if !note.to.is_empty() && text.starts_with(REPORT) => ("warn", "report"),
        _ if !note.to.is_empty() => ("", "discarded"),
        text if text.starts_with(HELD_BY) => ("warn", "held"),
        text if text.starts_with(RELEASED_BY) => ("", "released"),
        _ => ("", "note"),
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
        Stat::Quarantined => ("warn", "quarantined"),
        Stat::Released => ("", "released from the quarantine"),
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

/// Collects the entries that a page shows of a history.
#[derive(Default)]
pub struct StoryEntries {
    own: VecDeque<Entry>,
    failures: VecDeque<Entry>,
    /// Whether older entries were left out.
    is_cut: bool,
}

impl StoryEntries {
    pub fn add(&mut self, entry: Entry) {
        let is_failure = entry.times > 0;
        if is_failure && self.failures.iter_mut().rev().take(ALIKE_WITHIN).any(|before| before.takes(&entry)) {
            return;
        }
        let (entries, max) = if is_failure { (&mut self.failures, FAILURES_MAX) } else { (&mut self.own, ENTRIES_MAX) };
        if entries.len() == max {
            entries.pop_front();
            self.is_cut = true;
        }
        entries.push_back(entry);
    }

    /// All entries in order of time.
    fn in_order(self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.own.into_iter().chain(self.failures).collect();
        all.sort_by_key(|entry| entry.at);
        all
    }

    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.failures.is_empty()
    }
}

/// The story with its heading; `names_messages`: it covers several messages.
pub fn panel(story: Result<StoryEntries, Problem>, names_messages: bool, zone: &Zone) -> Markup {
    html! {
        section.panel aria-labelledby="story" {
            h2 #story { "History" }
            @match story {
                Err(problem) => p.empty { (shown(&problem.text)) },
                Ok(story) if story.is_empty() => p.empty { "The history has no matching records." },
                Ok(story) => {
                    @if story.is_cut { p.quiet { "Older events are omitted; " code { "stentor trace" } " prints all." } }
                    div.scroll role="region" aria-label="Events, oldest first" tabindex="0" {
                        ol.story { @for entry in &story.in_order() { (entry.row(names_messages, zone)) } }
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(at: Ms, unreached: bool, reply: &str) -> Entry {
        let base = Attempt { at, id: "1", reply, ..Attempt::default() };
        let attempt = if unreached { Attempt { unreached: Some(Box::default()), ..base } } else { base };
        Entry::of(&Record::Attempt(attempt), "ann@a.example").expect("it is about mail")
    }

    #[test]
    fn failures_of_a_domain_leave_the_recipients_own_events() {
        let mut story = StoryEntries::default();
        story.add(attempt(0, false, "451 later"));
        for at in 1..=1_000 {
            story.add(attempt(at, true, &format!("error {at}")));
        }
        story.add(attempt(2_000, false, "250 ok"));
        assert!(story.is_cut);
        let all = story.in_order();
        assert_eq!(all.len(), FAILURES_MAX + 2);
        let replies = [&all[0], &all[1], &all[all.len() - 1]].map(|entry| entry.reply.as_str());
        assert_eq!(replies, ["451 later", "error 901", "250 ok"]);
    }

    #[test]
    fn the_same_failure_again_is_one_entry_and_the_newest_stay() {
        let mut story = StoryEntries::default();
        for at in 0..50 {
            story.add(attempt(at, true, if at % 2 == 0 { "refused" } else { "timed out" }));
        }
        assert_eq!(story.failures.iter().map(|entry| entry.times).collect::<Vec<_>>(), [25, 25]);
        let mut story = StoryEntries::default();
        for at in 0..ENTRIES_MAX as Ms + 5 {
            story.add(attempt(at, false, "451"));
        }
        assert_eq!((story.own.len(), story.own[0].at, story.is_cut), (ENTRIES_MAX, 5, true));
    }
}
