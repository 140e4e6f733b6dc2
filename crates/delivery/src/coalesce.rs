//! Performs `Effect::Coalesce`: sends posts that wait for subscribers who accept mail again as one digest.
//!
//! Promise: the digest's acceptance and the fate of its posts ("coalesced", into which queue id) are one batch, so no
//! subscriber gets a post twice or not at all. The posts are streamed twice, since a digest's header depends on all of
//! them; one piece is in memory at a time.
//!
//! Failure: if no digest can be made (a post is gone, unreadable or larger than the message limit, or the journal
//! refuses it), the recipients are released and get their posts one by one.

use std::sync::Arc;

use stentor_core::Core;
use stentor_core::audit::Audit;
use stentor_core::envelope::{EnvelopeRcpt, NewEnvelope};
use stentor_core::intake::{FateRecord, IntakeRefusal, Job};
use stentor_core::memory::PIECE_BYTES;
use stentor_core::own::{MessageIds, hand_in_last};
use stentor_core::route::Route;
use stentor_lists::permalink_in;
use stentor_mail::Class;
use stentor_mail::copy_request::StoredPrefix;
use stentor_mail::digest::{Digest, Form, Plan, Spec};
use stentor_mail::dsn::{Ret, format_date};
use stentor_mail::edited::HeaderEdit;
use stentor_queue::event::Fate;
use stentor_queue::ids::{AddressId, ContentId, MessageId, MessageNo};
use stentor_queue::idset::IdSet;
use stentor_tls_policy::Wish;
use tokio::sync::oneshot;

/// Octets read from a post at a time.
const CHUNK_BYTES: usize = 64 * 1024;

struct Post {
    no: MessageNo,
    id: MessageId,
    content: ContentId,
    /// Header fields put before the content on the wire.
    prefix: Vec<u8>,
    /// Octets of the content.
    size: u64,
    require_tls: bool,
}

#[derive(Debug, thiserror::Error)]
enum NoDigest {
    #[error("list {0} is no longer configured")]
    NoList(Arc<str>),
    #[error("{0}")]
    Form(#[from] stentor_mail::digest::DigestError),
    #[error("a post could not be read: {0}")]
    Read(#[from] std::io::Error),
    #[error("it would exceed the message size limit")]
    TooLarge,
    #[error("{0}")]
    Refused(#[from] IntakeRefusal),
}

/// Performs the effect; see the module documentation.
pub async fn coalesce(core: Arc<Core>, list: Arc<str>, posts: Vec<MessageNo>, ids: Vec<AddressId>) {
    let set: IdSet = ids.iter().map(|id| id.0).collect();
    let found: Vec<Post> = core.with(|hub, _| {
        let post = |no: &MessageNo| {
            let message = hub.store.message(*no)?;
            let envelope = message.envelope();
            Some(Post {
                no: *no,
                id: message.id(),
                content: message.content(),
                prefix: StoredPrefix::split(envelope.prefix).sent.to_vec(),
                size: envelope.size - envelope.prefix.len() as u64,
                require_tls: envelope.require_tls,
            })
        };
        posts.iter().filter_map(post).collect()
    });
    let done = digest(&core, &list, &found, &ids, &set).await;
    match done {
        Ok(id) => {
            tracing::info!(digest = %id, list = %list, posts = found.len(), recipients = ids.len(), "posts coalesced \
                into a digest");
        }
        Err(why) => {
            tracing::warn!(list = %list, posts = found.len(), recipients = ids.len(), %why, "digest failed; \
                delivering posts one by one");
            core.with(|hub, now| found.iter().for_each(|post| hub.sched.unreserve(&hub.store, post.no, &set, now)));
        }
    }
}

async fn digest(
    core: &Arc<Core>,
    name: &Arc<str>,
    posts: &[Post],
    ids: &[AddressId],
    set: &IdSet,
) -> Result<MessageId, NoDigest> {
    let settings = core.settings();
    let list = settings.list(name).ok_or_else(|| NoDigest::NoList(name.clone()))?;
    let is_plain = settings.list_flow(name).is_some_and(|flow| flow.plain_digest);
    let (id, now) = (core.next_message_id(), core.clock.now());
    let (date, message_id) = (format_date(now), format!("{id}.digest@{}", settings.config.hostname));
    let address = list.settings().address.as_str();
    let spec = Spec {
        list: name,
        address,
        date: &date,
        message_id: &message_id,
        archive: list.settings().archive.as_deref(),
        form: if is_plain { Form::Plain } else { Form::Mime },
    };
    let mut first_pass = Digest::new(&id.to_string());
    for post in posts {
        first_pass.begin_post(permalink_in(&post.prefix));
        read(core, post, |bytes| first_pass.push(bytes)).await?;
    }
    let plan = first_pass.plan(&spec)?;
    if plan.size() > settings.config.message_size_bytes_max {
        return Err(NoDigest::TooLarge);
    }
    let content = core.next_content_id();
    let last = match write(core, &plan, posts, content).await {
        Ok(last) => last,
        Err(why) => {
            core.intake.push(Job::Drop { content });
            return Err(why);
        }
    };
    let wish = Wish { require_tls: posts.iter().any(|post| post.require_tls), tls_required_no: false };
    let recipients = core.with(|hub, _| {
        let book = &hub.store.book;
        // Text instead of ids: an id is only certain to mean the same address within the batch that uses it.
        ids.iter().filter_map(|id| recipient(book.text(*id), book.entry(*id), wish)).collect()
    });
    let envelope = NewEnvelope {
        sender: list.settings().bounces.as_str().to_owned(),
        class: Class::Bulk,
        list: Some(name.to_string()),
        prefix: list.header_fields().to_vec(),
        eight_bit: plan.eight_bit(),
        smtputf8: false,
        ret: Some(Ret::Headers),
        is_report: false,
        require_tls: wish.require_tls,
        ..NewEnvelope::own(recipients, format!("<{message_id}>"), "digest of waiting posts")
    };
    let audit = || Audit { at: now, who: id.to_string(), verb: "coalesce", detail: "{}".to_owned() };
    let record =
        |post: &Post| FateRecord { message: post.id, fate: Fate::Coalesced, ids: set.clone(), audit: Some(audit()) };
    let fate_records = posts.iter().map(record).collect();
    hand_in_last(core, MessageIds { message: id, content }, last, plan.size(), envelope, fate_records).await?;
    Ok(id)
}

/// Returns a recipient of the digest, routed as the posts would have been: an entry has one next hop, shared by all
/// posts that wait for it. The route also contains the posts' TLS wish, which the digest's own replaces. `None`: the
/// entry is no longer in use.
fn recipient(text: &str, entry: &str, wish: Wish) -> Option<EnvelopeRcpt> {
    let route = Route { wish, ..Route::of_entry(entry, text) };
    Some(EnvelopeRcpt { route, ..EnvelopeRcpt::plain(text.parse().ok()?) })
}

/// Writes the digest into the journal, in pieces; returns the rest for the last one.
async fn write(core: &Arc<Core>, plan: &Plan, posts: &[Post], content: ContentId) -> Result<Vec<u8>, NoDigest> {
    let mut out = Vec::new();
    for (number, post) in posts.iter().enumerate() {
        out.extend_from_slice(plan.before(number));
        let mut writer = plan.post();
        writer.push(&post.prefix, &mut out);
        let mut edit = HeaderEdit::without_author(&post.prefix);
        let mut at = 0;
        while at < post.size {
            let mut chunk = vec![0; CHUNK_BYTES.min((post.size - at) as usize)];
            let read = core.reader.read_at(post.content.0, at, &mut chunk)?;
            if read == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            at += read as u64;
            chunk.truncate(read);
            writer.push(&edited(&mut edit, chunk, at == post.size), &mut out);
            if out.len() as u64 >= PIECE_BYTES {
                piece(core, content, std::mem::take(&mut out)).await?;
            }
        }
        writer.finish(&mut out);
    }
    out.extend_from_slice(plan.end());
    Ok(out)
}

async fn piece(core: &Arc<Core>, content: ContentId, bytes: Vec<u8>) -> Result<(), IntakeRefusal> {
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::Piece { content, bytes, answer });
    ticket.await.unwrap_or(Err(IntakeRefusal::Stopping))
}

/// Octets of a post's content without fields that those before it replace.
fn edited(edit: &mut Option<HeaderEdit>, octets: Vec<u8>, is_last: bool) -> Vec<u8> {
    match edit {
        Some(edit) => edit.push(octets, is_last),
        None => octets,
    }
}

/// Passes a post to the digest as it is on the wire.
async fn read(core: &Arc<Core>, post: &Post, mut show: impl FnMut(&[u8])) -> std::io::Result<()> {
    show(&post.prefix);
    let mut edit = HeaderEdit::without_author(&post.prefix);
    let mut at = 0;
    while at < post.size {
        let mut chunk = vec![0; CHUNK_BYTES.min((post.size - at) as usize)];
        let read = core.reader.read_at(post.content.0, at, &mut chunk)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        at += read as u64;
        chunk.truncate(read);
        show(&edited(&mut edit, chunk, at == post.size));
        // A large post must not monopolize the thread.
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_the_next_hop_of_its_posts_and_its_own_wish() {
        let required = Wish { require_tls: true, tls_required_no: false };
        for (text, hop, wish, wanted) in [
            ("ann@a.test", "", Wish::default(), ""),
            ("ann@a.test", ">hop:slow", Wish::default(), "hop:slow"),
            ("\">@\"@a.test", ">10.0.0.5:25", Wish::default(), "10.0.0.5:25"),
            ("ann@a.test", ">tls:optional 10.0.0.5:25", Wish::default(), "10.0.0.5:25"),
            ("ann@a.test", ">tls:optional", Wish::default(), ""),
            ("ann@a.test", ">tls:require hop:slow", required, "tls:require hop:slow"),
            ("ann@a.test", "", required, "tls:require"),
        ] {
            let to = recipient(text, &format!("{text}{hop}"), wish).unwrap();
            assert_eq!((to.address.as_str(), to.route.to_string().as_str()), (text, wanted));
        }
        assert!(recipient("", "", Wish::default()).is_none());
    }
}
