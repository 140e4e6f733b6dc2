//! `stentor mailqq`: messages by number of recipients waiting.
//!
//! Largest first uses the store's index ([`Largest`]); oldest first is the order of the table. Other filters search the
//! messages, oldest first, for at most [`WALK_MAX`]; ages are narrowed by bisection.
//!
//! A subject is searched in the headers of messages that pass the other filters, without the lock, also within
//! [`WALK_MAX`].

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_control::problem::Problem;
use stentor_control::{Mailqq, MailqqOptions, MailqqRow, MailqqSort};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::{AddressId, DomainId, MessageId, MessageNo, Ms};
use stentor_queue::message::Message;
use stentor_queue::store::{EXACT_MAX, Largest};
use stentor_sched::{QueuePart, WaitingPlace};

use crate::causes::{Censuses, DatedCensus};
use crate::find::LOOKS_MAX;
use crate::{causes, find, report, suggestions};

/// Longest search of messages for one answer.
pub const WALK_MAX: Duration = Duration::from_millis(120);
/// Steps per hold of the lock; most are one message.
const STEPS: usize = 2_048;
/// Recipients that cost one step.
const RECIPIENTS_PER_STEP: usize = 8;
/// In a message with more recipients, the site's addresses are looked up instead of each recipient's place.
const RECIPIENTS_LOOKED_MAX: usize = 64;
/// Rows built per hold of the lock.
const ROWS_STEP: usize = 8;

/// The best of the offered messages.
struct Top {
    rows_max: usize,
    /// The key, the order of arrival, and the message.
    found: Vec<(u64, Reverse<u64>, MessageNo)>,
    seen: u64,
}

impl Top {
    fn new(rows_max: usize) -> Top {
        Top { rows_max, found: Vec::new(), seen: 0 }
    }

    fn push(&mut self, key: u64, no: MessageNo) {
        const SLACK: usize = 4_096;
        self.seen += 1;
        self.found.push((key, Reverse(self.seen), no));
        if self.found.len() >= 2 * self.rows_max + SLACK {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.rows_max > 0 && self.found.len() > self.rows_max {
            self.found.select_nth_unstable_by_key(self.rows_max - 1, |found| Reverse(*found));
        }
        self.found.truncate(self.rows_max);
    }

    fn numbers(mut self) -> Vec<MessageNo> {
        self.cut();
        self.found.sort_unstable_by_key(|found| Reverse(*found));
        self.found.into_iter().map(|(_, _, no)| no).collect()
    }
}

/// A message that passes the filters.
struct Candidate {
    no: MessageNo,
    id: MessageId,
    /// Matching recipients.
    count: u64,
    key: u64,
}

/// The filters.
struct Filter<'a> {
    options: &'a MailqqOptions,
    sender: Option<String>,
    at: Option<(WaitingPlace, Vec<DomainId>)>,
}

impl Filter<'_> {
    /// Whether a message matches, and the steps that took.
    fn check(&self, hub: &Hub, message: &Message) -> (bool, usize) {
        let envelope = message.envelope();
        let is_of_list = self.options.list.as_deref().is_none_or(|list| envelope.list == Some(list));
        let is_of_sender = self.sender.as_deref().is_none_or(|wanted| envelope.senders().match_pattern(wanted));
        if !is_of_list || !is_of_sender {
            return (false, 1);
        }
        self.at.as_ref().map_or((true, 1), |(at, domains)| has_any(hub, message, *at, domains))
    }

    /// The matching recipients of a message, or all if they cannot be counted, and the steps that took.
    fn recipients(&self, hub: &Hub, message: &Message) -> (u64, usize) {
        let pending = message.pending().len();
        match &self.at {
            None => (pending as u64, 0),
            Some((at, _)) => {
                let count = find::pending_at(hub, message, *at).unwrap_or(pending as u64);
                (count, pending.min(LOOKS_MAX) / RECIPIENTS_PER_STEP)
            }
        }
    }
}

/// Whether a message has recipients at a place that serves these domains, and the steps that took.
fn has_any(hub: &Hub, message: &Message, at: WaitingPlace, domains: &[DomainId]) -> (bool, usize) {
    let (pending, book) = (message.pending(), &hub.store.book);
    let mut looked = 0;
    let found = if pending.len() <= RECIPIENTS_LOOKED_MAX {
        pending.iter().any(|id| {
            looked += 1;
            book.try_domain(AddressId(id)).is_some_and(|domain| find::is_at(hub, domain, at))
        })
    } else {
        domains.iter().any(|domain| {
            looked += 1;
            book.addresses_of(*domain).iter().any(|id| {
                looked += 1;
                pending.contains(id)
            })
        })
    };
    (found, 1 + looked / RECIPIENTS_PER_STEP)
}

/// The list; see the module's documentation.
///
/// # Errors
/// There is no such site, or the sender is not a valid address.
pub async fn mailqq(core: &Arc<Core>, censuses: &Arc<Censuses>, options: &MailqqOptions) -> Result<Mailqq, Problem> {
    let at = match &options.site {
        Some(name) => {
            let found = core.with(|hub, _| {
                let (at, _) = find::find_at(hub, name)?;
                let domains = match at {
                    WaitingPlace::Site(site) => hub.sched.domains_at(site).collect(),
                    WaitingPlace::Domain(domain) => vec![domain],
                };
                Some((at, domains))
            });
            Some(found.ok_or_else(|| suggestions::unknown_site(core, name))?)
        }
        None => None,
    };
    let sender = options.sender.as_deref().map(find::pattern).transpose()?;
    let filter = Filter { options, sender, at };
    let is_narrow =
        options.list.is_some() || options.sender.is_some() || options.subject.is_some() || filter.at.is_some();
    let is_part = options.age_s_min.is_some() || options.age_s_max.is_some() || options.after.is_some();
    let mut answer = Mailqq { hostname: core.settings().config.hostname.clone(), ..Mailqq::default() };
    let rows_max = options.rows_max as usize;
    let numbers = if !is_narrow && !is_part && options.sort == MailqqSort::Count {
        largest(core, rows_max).await
    } else if !is_narrow && !is_part && options.sort == MailqqSort::Age {
        core.with(|hub, _| hub.store.messages().take(rows_max).map(|(no, _)| no).collect())
    } else {
        walk(core, &filter, &mut answer).await
    };
    let at = filter.at.as_ref().map(|(at, _)| *at);
    let counted = censuses.of(core, &QueuePart { list: None, at }).await;
    for part in numbers.chunks(ROWS_STEP) {
        core.with(|hub, now| {
            answer.rows.extend(part.iter().filter_map(|no| row(hub, counted.as_deref(), *no, at, now)));
        });
        tokio::task::yield_now().await;
    }
    let ids: Vec<MessageId> = answer.rows.iter().filter_map(|row| row.id.parse().ok()).collect();
    for (row, heading) in answer.rows.iter_mut().zip(report::headings(core, &ids).await) {
        row.subject = heading.map(|heading| heading.subject.clone());
    }
    core.with(|hub, now| {
        answer.now = now;
        answer.messages = hub.store.len() as u64;
        answer.recipients = hub.store.pending();
        answer.octets = hub.store.octets();
    });
    Ok(answer)
}

fn row(
    hub: &Hub,
    counted: Option<&DatedCensus>,
    no: MessageNo,
    at: Option<WaitingPlace>,
    now: Ms,
) -> Option<MailqqRow> {
    let message = hub.store.message(no)?;
    let envelope = message.envelope();
    Some(MailqqRow {
        id: message.id().to_string(),
        pending: message.pending().len() as u64,
        here: at.and_then(|at| find::pending_at(hub, message, at)),
        total: message.total(),
        in_flight: hub.sched.in_flight(no) as u64,
        held: message.is_held(),
        size: envelope.size,
        accepted: message.accepted(),
        sender: envelope.sender.to_owned(),
        given_sender: envelope.given_sender.map(str::to_owned),
        subject: None,
        list: envelope.list.map(str::to_owned),
        class: message.class().name().to_owned(),
        causes: causes::of_message(hub, counted, no, at, now),
    })
}

/// The messages with most waiting recipients; of equal ones the older.
async fn largest(core: &Arc<Core>, rows_max: usize) -> Vec<MessageNo> {
    let begun = Instant::now();
    let (mut top, mut walk) = (Top::new(rows_max), Largest::default());
    loop {
        let (mut least, mut count) = (usize::MAX, 0);
        let step = core.with(|hub, _| {
            hub.store.largest_step(&mut walk, STEPS, |no, message| {
                least = message.pending().len();
                count += 1;
                top.push(least as u64, no);
            })
        });
        let is_full = top.found.len() >= rows_max;
        match step {
            None => break,
            // All later ones have fewer recipients, or as many and are younger.
            Some(true) if is_full => break,
            Some(false) if is_full && count > 0 && least <= EXACT_MAX => break,
            Some(_) if begun.elapsed() > WALK_MAX => break,
            Some(_) => tokio::task::yield_now().await,
        }
    }
    let mut numbers = top.numbers();
    let mut bounds = core.with(|hub, _| hub.store.number_bounds());
    // Messages with one recipient are not in the index: take the oldest.
    while numbers.len() < rows_max && bounds.0 != bounds.1 && begun.elapsed() < WALK_MAX {
        core.with(|hub, _| {
            let mut last = bounds.1.wrapping_sub(1);
            for (steps, (no, message)) in hub.store.messages_between(bounds.0, bounds.1).enumerate() {
                if message.pending().len() == 1 {
                    numbers.push(no);
                }
                if numbers.len() == rows_max || steps + 1 == STEPS {
                    last = no.0;
                    break;
                }
            }
            bounds.0 = last.wrapping_add(1);
        });
        tokio::task::yield_now().await;
    }
    numbers
}

/// Searches the messages, oldest first.
async fn walk(core: &Arc<Core>, filter: &Filter<'_>, answer: &mut Mailqq) -> Vec<MessageNo> {
    let (begun, options) = (Instant::now(), filter.options);
    let mut top = Top::new(options.rows_max as usize);
    let (mut messages, mut recipients, mut looked_at) = (0, 0, 0);
    let mut bounds = core.with(|hub, now| bounds(hub, options, now));
    let mut last_seen: Option<MessageId> = None;
    let subject = options.subject.as_deref().map(str::to_lowercase);
    while bounds.0 != bounds.1 && begun.elapsed() < WALK_MAX {
        let mut found: Vec<Candidate> = Vec::new();
        core.with(|hub, _| {
            let mut steps = STEPS;
            let mut last = bounds.1.wrapping_sub(1);
            for (no, message) in hub.store.messages_between(bounds.0, bounds.1) {
                let (is_meant, cost) = filter.check(hub, message);
                looked_at += 1;
                if is_meant {
                    let (count, looks) = filter.recipients(hub, message);
                    steps = steps.saturating_sub(looks);
                    found.push(Candidate { no, id: message.id(), count, key: key(message, count, options.sort) });
                }
                steps = steps.saturating_sub(cost);
                if steps == 0 {
                    last = no.0;
                    last_seen = Some(message.id());
                    break;
                }
            }
            bounds.0 = last.wrapping_add(1);
        });
        if let Some(text) = &subject {
            let ids: Vec<MessageId> = found.iter().map(|meant| meant.id).collect();
            let mut has_it = report::headings(core, &ids).await.into_iter();
            found.retain(|_| report::is_about(has_it.next().flatten().as_ref(), text));
        }
        for Candidate { no, count, key, .. } in found {
            messages += 1;
            recipients += count;
            top.push(key, no);
        }
        tokio::task::yield_now().await;
    }
    answer.matching_messages = Some(messages);
    answer.matching_recipients = Some(recipients);
    answer.looked_at = looked_at;
    answer.stopped_after = last_seen.filter(|_| bounds.0 != bounds.1).map(|id| id.to_string());
    top.numbers()
}

fn key(message: &Message, recipients: u64, sort: MailqqSort) -> u64 {
    match sort {
        MailqqSort::Count => recipients,
        // They come oldest first.
        MailqqSort::Age => 0,
        MailqqSort::Size => message.size(),
    }
}

/// The range of message numbers to search.
fn bounds(hub: &Hub, options: &MailqqOptions, now: u64) -> (u32, u32) {
    let (mut from, mut until) = hub.store.number_bounds();
    if let Some(age_s) = options.age_s_max {
        let at = now.saturating_sub(age_s.saturating_mul(1_000));
        from = hub.store.first_where(from, until, |message| message.accepted() >= at);
    }
    if let Some(age_s) = options.age_s_min {
        let at = now.saturating_sub(age_s.saturating_mul(1_000));
        until = hub.store.first_where(from, until, |message| message.accepted() > at);
    }
    if let Some(Ok(after)) = options.after.as_deref().map(str::parse::<MessageId>) {
        let no = hub.store.no_of(after).map(|no| no.0.wrapping_add(1));
        let no = no.unwrap_or_else(|| hub.store.first_where(from, until, |message| message.id() > after));
        // Only narrow: both bounds may already exclude each other.
        if no.wrapping_sub(from) <= until.wrapping_sub(from) {
            from = no;
        }
    }
    (from, until)
}
