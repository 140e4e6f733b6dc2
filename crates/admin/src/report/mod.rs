//! Delivery reports: outcomes of a post, its speed, and where the rest waits: for `stentor report`, the console, and as
//! mail to the list's owner or the poster.
//!
//! Promise: fates are the store's ([`stentor_core::live::posts`]); times are counted since the server's start, and a
//! report says so if part of the post came earlier. Where the rest waits is looked up on request, in slices, for all
//! pending recipients.

mod mail;
mod words;

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::{HashMap, HashSet};
use stentor_control::causes::summary;
use stentor_control::view::Subject;
use stentor_control::{FailedRcptView, PostReport, Sort, Timeline, View, WaitingAt};
use stentor_core::Core;
use stentor_core::live::posts::{Post, PostFailure};
use stentor_mail::heading::{Heading, LOOKED_BYTES_MAX};
use stentor_queue::cause::Cause;
use stentor_queue::event::Fate;
use stentor_queue::ids::{ContentId, MessageId, MessageNo, Ms};
use stentor_queue::message::Message;
use stentor_queue::store::KeptPost;
use stentor_records::civil::Zone;
use stentor_sched::{CauseCount, WaitingPlace};

use crate::causes;
use crate::causes::Censuses;
use crate::views::{self, reply};

/// Recipients examined per hold of the lock.
const WAITING_STEP: usize = 4_096;
/// Default number of places shown for one post.
const PLACES_DEFAULT: u32 = 10;

/// A report row without the places where the rest waits.
fn view(post: &Post, now: Ms) -> PostReport {
    let fate = |fate| post.fate(fate);
    let times = post.times.read();
    let found = times.percentiles();
    let mut report = PostReport {
        id: post.id.to_string(),
        list: post.list.clone(),
        sender: post.sender.clone(),
        subject: post.heading.get().map(|heading| heading.subject.clone()),
        size: post.size,
        accepted: post.accepted,
        now,
        total: post.total,
        delivered: fate(Fate::Delivered),
        bounced: fate(Fate::Bounced),
        expired: fate(Fate::Expired),
        removed: fate(Fate::Removed),
        quarantined: fate(Fate::Quarantined),
        coalesced: fate(Fate::Coalesced),
        pending: 0,
        held: false,
        fast_done: post.fast_done(),
        finished: post.finished(),
        before_start: post.before_start,
        timeline: Timeline {
            count: found.count,
            p50_ms: found.p50,
            p90_ms: found.p90,
            p95_ms: found.p95,
            p99_ms: found.p99,
            p100_ms: found.max,
        },
        waiting: Vec::new(),
        failed: Vec::new(),
        sites_more: 0,
        text: String::new(),
    };
    // Fates are read one by one while they change: compute the rest from the total.
    report.pending = report.total.saturating_sub(report.decided());
    // The text names no time while the places are unknown.
    report.text = words::of(&report, "", &Zone::utc());
    report
}

/// Posts of one list, or of all; newest first, unless another order is requested.
pub fn posts(core: &Core, asked: &View) -> Vec<PostReport> {
    let now = core.clock.now();
    let all = core.live.posts.newest();
    let chosen = all.iter().filter(|post| asked.list.as_ref().is_none_or(|list| post.list == *list));
    let rows_max = asked.rows_max.unwrap_or(Subject::Report.default_rows()) as usize;
    let Some(sort) = asked.sort else { return chosen.take(rows_max).map(|post| view(post, now)).collect() };
    let mut rows: Vec<PostReport> = chosen.map(|post| view(post, now)).collect();
    let first = |rank: fn(&PostReport) -> u64| move |row: &PostReport| Reverse(rank(row));
    match sort {
        Sort::Age => rows.sort_by_key(|row| row.accepted),
        Sort::Failures => rows.sort_by_key(first(|row| row.bounced + row.expired)),
        Sort::Name => rows.sort_by(|a, b| a.list.cmp(&b.list)),
        _ => rows.sort_by_key(first(|row| row.pending)),
    }
    rows.truncate(rows_max);
    rows
}

/// As [`posts`], with what the remaining recipients wait for.
pub async fn posts_with_causes(core: &Arc<Core>, censuses: &Arc<Censuses>, asked: &View) -> Vec<PostReport> {
    let mut rows = posts(core, asked);
    for row in rows.iter_mut().filter(|row| row.subject.is_none()) {
        row.subject = subject_of(core, &row.id).await;
    }
    let counted = censuses.get(core).await;
    for row in rows.iter_mut().filter(|row| row.pending > 0) {
        core.with(|hub, now| {
            let Some(no) = row.id.parse().ok().and_then(|id| hub.store.no_of(id)) else { return };
            row.held = hub.store.message(no).is_some_and(Message::is_held);
            let why = summary(&causes::of_message(hub, counted.as_deref(), no, None, now));
            row.text = words::of(row, &why, &Zone::utc());
        });
        tokio::task::yield_now().await;
    }
    rows
}

/// One message, tracked as a post or queued, with at most `places_max` places where the rest waits; times in words are
/// of the zone.
pub async fn post(core: &Arc<Core>, id: MessageId, places_max: Option<u32>, zone: &Zone) -> Option<PostReport> {
    let post = core.live.posts.get(id).or_else(|| {
        core.with(|hub, _| {
            let no = hub.store.no_of(id)?;
            Some(Arc::new(Post::queued(no, hub.store.message(no)?)))
        })
    })?;
    let mut report = view(&post, core.clock.now());
    report.failed = post.failures().into_iter().map(failed_view).collect();
    if report.subject.is_none() {
        report.subject = subject_of(core, &report.id).await;
    }
    if report.pending > 0 {
        let places_max = places_max.unwrap_or(PLACES_DEFAULT) as usize;
        (report.waiting, report.sites_more) = waiting(core, post.no, id, places_max).await;
        report.held = core.with(|hub, _| hub.store.message(post.no).is_some_and(Message::is_held));
        report.text = words::of(&report, "", zone);
    }
    Some(report)
}

fn failed_view(PostFailure { address, is_expired, reply, at }: PostFailure) -> FailedRcptView {
    let fate = if is_expired { "expired" } else { "bounced" };
    FailedRcptView { address: address.into(), fate: fate.to_owned(), at, reply: reply.into() }
}

async fn subject_of(core: &Arc<Core>, id: &str) -> Option<String> {
    let heading = headings(core, &[id.parse().ok()?]).await.pop()??;
    Some(heading.subject.clone())
}

/// Whether a message's subject contains a text, which is in lower case.
pub fn is_about(heading: Option<&Arc<Heading>>, text: &str) -> bool {
    heading.is_some_and(|heading| heading.subject.to_lowercase().contains(text))
}

/// Subject and author of messages: as noted when a post was accepted, else from the stored content; `None` if neither
/// is available any more.
pub async fn headings(core: &Arc<Core>, ids: &[MessageId]) -> Vec<Option<Arc<Heading>>> {
    let (mut found, mut wanted) = (Vec::with_capacity(ids.len()), Vec::new());
    for (at, id) in ids.iter().enumerate() {
        let post = core.live.posts.get(*id);
        let known = post.as_ref().and_then(|post| post.heading.get().cloned());
        if known.is_none() {
            let content = core.with(|hub, _| {
                let queued = hub.store.no_of(*id).and_then(|no| hub.store.message(no));
                queued.or_else(|| hub.store.post(*id).map(KeptPost::message)).map(Message::content)
            });
            wanted.extend(content.map(|content| (at, content, post)));
        }
        found.push(known);
    }
    if wanted.is_empty() {
        return found;
    }
    let reader = core.reader.clone();
    let read = move |(at, content, post): (usize, ContentId, Option<Arc<Post>>)| {
        let mut bytes = vec![0; LOOKED_BYTES_MAX];
        let len = reader.read_at(content.0, 0, &mut bytes).ok()?;
        let heading = Arc::new(Heading::of(&bytes[..len]));
        // Another call may have set it meanwhile.
        let _ = post.map(|post| post.heading.set(heading.clone()));
        Some((at, heading))
    };
    let all = tokio::task::spawn_blocking(move || wanted.into_iter().filter_map(read).collect::<Vec<_>>()).await;
    for (at, heading) in all.unwrap_or_default() {
        found[at] = Some(heading);
    }
    found
}

/// Where a post's recipients wait, and why: one row per place and cause, most recipients first, and the total number of
/// places.
async fn waiting(core: &Arc<Core>, no: MessageNo, id: MessageId, places_max: usize) -> (Vec<WaitingAt>, u64) {
    let mut places: HashMap<(WaitingPlace, Cause), CauseCount> = HashMap::new();
    let mut after = None;
    loop {
        let is_last = core.with(|hub, now| {
            if hub.store.message(no).is_none_or(|message| message.id() != id) {
                return true;
            }
            let book = &hub.store.book;
            hub.sched.causes_of(&hub.store, no, &mut after, WAITING_STEP, now, |address, site, count| {
                let place = site.map_or_else(|| WaitingPlace::Domain(book.domain(address)), WaitingPlace::Site);
                places.entry((place, count.cause)).and_modify(|all| all.add(count)).or_insert(count);
            })
        });
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_unstable_by_key(|((place, cause), count)| (Reverse(count.recipients), *place, *cause));
    let more: HashSet<WaitingPlace> = places.iter().skip(1).map(|((place, _), _)| *place).collect();
    places.truncate(places_max);
    core.with(|hub, now| {
        let row = |((place, cause), count): &((WaitingPlace, Cause), CauseCount)| WaitingAt {
            site: views::place_name(hub, *place).to_owned(),
            recipients: count.recipients,
            cause: cause.name().to_owned(),
            words: views::kept(hub, *cause, count.keeper, hub.store.message(no))
                .unwrap_or_else(|| views::words(*cause, count.attempt, count.failed_with(), now)),
            since: count.attempt.map(|attempt| attempt.since),
            in_flight: *cause == Cause::Sending,
            last_reply: reply(hub.sched.reply_behind(count).cloned()),
            next_try: count.next_try,
        };
        (places.iter().map(row).collect(), more.len() as u64)
    })
}

/// Called once a second: mails due reports.
pub fn due(core: &Arc<Core>, now: Ms) {
    let settings = core.settings();
    for post in core.live.posts.unreported() {
        let Some(config) = settings.list_report(&post.list).filter(|config| config.is_wanted()) else {
            post.is_reported.store(true, Ordering::Relaxed);
            continue;
        };
        let is_quiet = post.fast_done().is_some() || post.finished().is_some();
        let is_due = match config.after_ms {
            None => is_quiet,
            Some(after_ms) => post.finished().is_some() || now >= post.accepted + after_ms,
        };
        if is_due && !post.is_reported.swap(true, Ordering::Relaxed) {
            tokio::spawn(mail::send(core.clone(), post, config.to));
        }
    }
}
