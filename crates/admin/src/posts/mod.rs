//! Kept posts: who has a post, who waits for it, who missed it and why; resends; expiry.
//!
//! Promise: counts and recipients come from the journal's fold ([`stentor_queue::store::KeptPost`]), so they are the
//! same after kills and restarts. Only the replies of those that missed it come from the history, which may have lost
//! the last seconds before a power cut: such a recipient has no reply here.
//!
//! Failure: a post that is no longer kept is not found; the answer names the key and the history.

mod expiry;
mod resend;

use std::collections::HashMap;
use std::sync::Arc;

use stentor_control::problem::Problem;
use stentor_control::{
    ErrorCode, PostCounts, PostListView, PostOptions, PostRcptView, PostState, PostView, RecipientState,
};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_history::{Reader, ScanControl};
use stentor_queue::event::Fate;
use stentor_queue::ids::{AddressId, MessageId, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::store::KeptPost;
use stentor_records::record::{Record, Stat};

use crate::report;
use crate::views;

pub use expiry::end_when_due;
pub use resend::resend;

/// Recipients described per hold of the lock.
const ROWS_STEP: usize = 256;

/// Recipients of one message in the same state.
struct Part {
    /// The post, for its list and for the fate of those that missed it.
    post: MessageId,
    list: String,
    /// The message that they wait for; `None`: they missed the post.
    message: Option<MessageId>,
    ids: IdSet,
}

/// One kept post, with a page of its recipients.
///
/// # Errors
/// It is not kept.
pub async fn show(core: &Arc<Core>, options: &PostOptions) -> Result<PostView, Problem> {
    let found = core.with(|hub, now| {
        let post = hub.store.post(options.id)?;
        let message = post.message();
        let mut view = PostView {
            id: message.id().to_string(),
            now,
            accepted: message.accepted(),
            size: message.size(),
            ..PostView::default()
        };
        let mut parts = Vec::new();
        for post in posts_of(hub, post)? {
            let list = list_view(hub, post);
            view.counts.add(&list.counts);
            parts.extend(parts_of(hub, post, options.state));
            view.lists.push(list);
        }
        Some((view, parts))
    });
    let Some((mut view, parts)) = found else { return Err(not_kept(options.id)) };
    let page = page_of(parts, options);
    view.next = page.next;
    for part in &page.parts {
        view.recipients.extend(rows(core, part).await);
    }
    let messages = messages_of(core, &view);
    view.recipients = with_replies(core, &messages, view.accepted, std::mem::take(&mut view.recipients)).await;
    let heading = report::headings(core, &[options.id]).await.pop().flatten();
    view.subject = heading.map(|heading| heading.subject.clone()).unwrap_or_default();
    Ok(view)
}

/// The posts to subscribers with the content of a kept post, without copies for archives. `None` if there are none.
fn posts_of<'a>(hub: &'a Hub, post: &KeptPost) -> Option<Vec<&'a KeptPost>> {
    let all = hub.store.posts_with(post.message().content());
    let posts: Vec<&KeptPost> = all.filter(|post| !post.message().envelope().is_archive).collect();
    (!posts.is_empty()).then_some(posts)
}

fn not_kept(id: MessageId) -> Problem {
    let text = format!(
        "{id} is not a kept post (`keep_posts_s` of its list says how long one is kept); try `stentor trace {id}`"
    );
    Problem::new(ErrorCode::NotFound, text)
}

/// Queue ids of all messages of a post.
fn messages_of(core: &Arc<Core>, view: &PostView) -> Vec<String> {
    core.with(|hub, _| {
        let posts = view.lists.iter().filter_map(|list| hub.store.post(list.id.parse().ok()?));
        posts.flat_map(|post| post.messages().map(|id| id.to_string()).collect::<Vec<_>>()).collect()
    })
}

fn list_view(hub: &Hub, post: &KeptPost) -> PostListView {
    let (facts, missed) = (post.facts(), post.missed().len() as u64);
    let (expired, dropped) = (facts.expired.len() as u64, facts.dropped.len() as u64);
    PostListView {
        id: post.message().id().to_string(),
        list: post.message().list().unwrap_or_default().to_owned(),
        kept_until: facts.until,
        counts: PostCounts {
            total: facts.total,
            delivered: hub.store.delivered_of_post(post),
            waiting: hub.store.waiting_for_post(post),
            missed,
            bounced: missed.saturating_sub(expired + dropped),
            expired,
            dropped,
            removed: facts.removed,
            coalesced: facts.coalesced,
        },
        resends: facts.resends.iter().map(ToString::to_string).collect(),
    }
}

/// The recipients of a post to list: those that missed it first.
fn parts_of(hub: &Hub, post: &KeptPost, state: Option<PostState>) -> Vec<Part> {
    let list = post.message().list().unwrap_or_default();
    let part =
        |message, ids: &IdSet| Part { post: post.message().id(), list: list.to_owned(), message, ids: ids.clone() };
    let missed = (state != Some(PostState::Waiting)).then(|| part(None, post.missed()));
    let waiting = post.messages().filter(|_| state != Some(PostState::Missed)).filter_map(|id| {
        let message = hub.store.no_of(id).and_then(|no| hub.store.message(no))?;
        Some(part(Some(id), message.pending()))
    });
    missed.into_iter().chain(waiting).collect()
}

struct Page {
    parts: Vec<Part>,
    next: Option<u64>,
}

/// Cuts the requested page out of all recipients.
fn page_of(parts: Vec<Part>, options: &PostOptions) -> Page {
    let (rows_max, mut skip) = (options.rows_max as usize, options.offset as usize);
    let (mut chosen, mut rows, mut has_more) = (Vec::new(), 0, false);
    for part in parts {
        let len = part.ids.len();
        if skip >= len {
            skip -= len;
            continue;
        }
        let ids: IdSet = part.ids.iter().skip(skip).take(rows_max - rows).collect();
        has_more |= skip + ids.len() < len;
        (skip, rows) = (0, rows + ids.len());
        if !ids.is_empty() {
            chosen.push(Part { ids, ..part });
        }
    }
    Page { parts: chosen, next: has_more.then(|| options.offset + rows as u64) }
}

/// Describes recipients; those that have the post meanwhile, or miss it no longer, are left out.
async fn rows(core: &Arc<Core>, part: &Part) -> Vec<PostRcptView> {
    let ids: Vec<u32> = part.ids.iter().collect();
    let mut rows = Vec::with_capacity(ids.len());
    for some in ids.chunks(ROWS_STEP) {
        core.with(|hub, now| rows.extend(some.iter().filter_map(|id| row(hub, part, *id, now))));
        tokio::task::yield_now().await;
    }
    rows
}

fn row(hub: &Hub, part: &Part, id: u32, now: Ms) -> Option<PostRcptView> {
    let (list, address) = (part.list.clone(), AddressId(id));
    if let Some(message) = part.message {
        let no = hub.store.no_of(message)?;
        hub.store.message(no).filter(|message| message.pending().contains(id))?;
        let view = views::recipient(hub, no, address, now);
        let reply = if view.last_reply.is_empty() { view.words } else { view.last_reply };
        let state = state_name(view.state).to_owned();
        return Some(PostRcptView { address: view.address, list, state, reply, at: None, next_try: view.next_try });
    }
    let post = hub.store.post(part.post).filter(|post| post.missed().contains(id))?;
    let state = match post.fate_of(id) {
        Fate::Expired => "expired",
        Fate::Removed => "removed",
        _ => "bounced",
    };
    let address = hub.store.book.text(address).to_owned();
    Some(PostRcptView { address, list, state: state.to_owned(), ..PostRcptView::default() })
}

fn state_name(state: RecipientState) -> &'static str {
    match state {
        RecipientState::InFlight => "in_flight",
        RecipientState::Deferred => "deferred",
        RecipientState::Held => "held",
        RecipientState::Suspended => "suspended",
        RecipientState::QueueOnly => "queue_only",
        RecipientState::Waiting | RecipientState::Other => "waiting",
    }
}

/// Adds the last replies of recipients that missed the post, as far as the history has them.
async fn with_replies(core: &Core, messages: &[String], accepted: Ms, rows: Vec<PostRcptView>) -> Vec<PostRcptView> {
    let is_missed = |row: &PostRcptView| row.reply.is_empty();
    if !core.history.is_on() || !rows.iter().any(is_missed) {
        return rows;
    }
    let (history, folder) = (core.history.clone(), core.settings().config.data_dir.join("history"));
    let (messages, mut known) = (messages.to_vec(), rows.clone());
    let read = tokio::task::spawn_blocking(move || {
        history.flush();
        let places = known.iter().enumerate().filter(|(_, row)| is_missed(row));
        let places: HashMap<String, usize> = places.map(|(at, row)| (row.address.clone(), at)).collect();
        let keys: Vec<&str> = messages.iter().map(String::as_str).collect();
        let read = Reader::open(&folder).and_then(|reader| {
            reader.find_any(&keys, accepted, Ms::MAX, &mut |record| {
                if let Record::Attempt(attempt) = record
                    && matches!(attempt.stat, Stat::Bounced | Stat::Expired | Stat::Removed)
                    && keys.contains(&attempt.id)
                {
                    for at in attempt.to.iter().filter_map(|to| places.get(*to)) {
                        (known[*at].reply, known[*at].at) = (attempt.reply.to_owned(), Some(attempt.at));
                    }
                }
                ScanControl::Continue(())
            })
        });
        if let Err(error) = read {
            tracing::debug!(%error, "post show: the history cannot be read");
        }
        known
    });
    read.await.unwrap_or(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_over_all_parts() {
        let part = |message: Option<u64>, ids: std::ops::Range<u32>| Part {
            post: MessageId(1),
            list: "news".to_owned(),
            message: message.map(MessageId),
            ids: ids.collect(),
        };
        let all = || vec![part(None, 0..5), part(Some(1), 10..10), part(Some(2), 20..27)];
        let (mut seen, mut offset, mut pages) = (Vec::new(), 0, 0);
        loop {
            let options = PostOptions { rows_max: 3, offset, ..PostOptions::new(MessageId(1)) };
            let page = page_of(all(), &options);
            seen.extend(page.parts.iter().flat_map(|part| part.ids.iter().collect::<Vec<_>>()));
            pages += 1;
            match page.next {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!((pages, seen), (4, (0..5).chain(20..27).collect::<Vec<u32>>()));
    }
}
