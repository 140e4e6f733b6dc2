//! Notices about posts that [`super::examination`] holds: to the owner of the list, or to the postmaster for a list
//! without an owner and for mail of a sender.
//!
//! Promise: each reader gets one notice a post, with all that was found. The number is limited
//! ([`stentor_core::hold_notices`]). It is mail of our own: from the null sender, marked as automatic (RFC 3834),
//! signed like other mail, and neither held nor examined.
//!
//! Failure: it is sent once the post is durable, so a crash, a full disk or a slow table can lose it, but not the post.
//! That is logged; `stentor status` still counts the held mail.

use std::fmt::Write as _;
use std::time::Duration;

use stentor_core::intake::{AssignedId, AssignedIds};
use stentor_core::own::NoticeText;
use stentor_core::{Core, Settings};
use stentor_mail::address::Address;
use stentor_records::escape::printable;
use stentor_records::record::domain;

use super::Transaction;
use super::examination::UnfitPost;

/// How long readers are looked up and the notices stored: the client waits for its reply meanwhile.
const NOTICES_WAIT: Duration = Duration::from_secs(10);
/// Octets of a name or reason that others may choose.
const TEXT_BYTES_MAX: usize = 500;
/// Octets of a permalink; with its indent it is a line of a message.
const URL_BYTES_MAX: usize = 900;
/// Messages and findings in a notice.
const MESSAGES_MAX: usize = 20;
const FINDINGS_MAX: usize = 20;

/// The notices about held posts of a message, until it is durable.
pub(super) struct PendingHoldNotices {
    posts: Vec<UnfitPost>,
    /// Sender as the client gave it.
    sender: String,
    ids: AssignedIds,
}

/// The posts of one message that one reader is notified of.
struct PostsOfReader<'a> {
    reader: Address,
    posts: Vec<&'a UnfitPost>,
    /// Earlier posts without a notice.
    posts_unreported: u64,
}

impl Transaction {
    /// Prepares the notices; queue ids are known once the message is durable.
    pub(super) fn pending_notices(&mut self, posts: Vec<UnfitPost>) -> Option<PendingHoldNotices> {
        if posts.is_empty() {
            return None;
        }
        let ids = self.assigned.get_or_insert_default().clone();
        Some(PendingHoldNotices { posts, sender: self.mail.path.as_str().to_owned(), ids })
    }
}

impl PendingHoldNotices {
    /// Sends the notices: the message is durable.
    pub(super) async fn send(self, core: &Core, settings: &Settings) {
        let sent = async {
            for posts in self.by_reader(core, settings) {
                self.notify_reader(core, settings, posts).await;
            }
        };
        if tokio::time::timeout(NOTICES_WAIT, Box::pin(sent)).await.is_err() {
            tracing::warn!("notice of a held post not sent within {} s", NOTICES_WAIT.as_secs());
        }
    }

    /// The notices that are due.
    fn by_reader(&self, core: &Core, settings: &Settings) -> Vec<PostsOfReader<'_>> {
        let mut all: Vec<PostsOfReader<'_>> = Vec::new();
        let mut notices = core.hold_notices.lock();
        for post in &self.posts {
            let Some(reader) = reader(settings, post) else { continue };
            let flow = name(post, &self.sender);
            let key = format!("{}{flow}", if post.list.is_some() { "list:" } else { "sender:" });
            let Some(posts_unreported) = notices.take_notice(&key, core.clock.now()) else { continue };
            match all.iter_mut().find(|of| of.reader == reader) {
                Some(of) => {
                    of.posts.push(post);
                    of.posts_unreported += posts_unreported;
                }
                None => all.push(PostsOfReader { reader, posts: vec![post], posts_unreported }),
            }
        }
        all
    }

    async fn notify_reader(&self, core: &Core, settings: &Settings, of: PostsOfReader<'_>) {
        let to = match settings.people(&of.reader, core.clock.now()).await {
            Ok(to) if to.is_empty() => {
                return tracing::warn!(reader = %of.reader, "notice of a held post not sent: the address delivers to \
                    nobody; set `owner` of the list, or `postmaster` in [domains]");
            }
            Ok(to) => to,
            Err(refused) => {
                return tracing::warn!(reader = %of.reader, %refused, "notice of a held post not sent");
            }
        };
        let ids = self.ids.get().map_or(&[][..], Vec::as_slice);
        let notice = NoticeText {
            to,
            named: vec![of.reader.clone()],
            subject: subject(&self.sender, &of.posts),
            what: "notice of a held post",
            word: "held",
            text: &text(&self.sender, &of, ids),
        };
        if let Err(refused) = notice.hand_in(core).await {
            tracing::warn!(reader = %of.reader, %refused, "notice of a held post not stored");
        }
    }
}

/// The owner of the list, else the postmaster: of the list's domain, or of this host for a sender's mail.
fn reader(settings: &Settings, post: &UnfitPost) -> Option<Address> {
    let list = post.list.as_ref().and_then(|list| settings.list(list)).map(|list| list.settings());
    let owner = list.and_then(|list| list.owner.clone());
    let domain = list.map_or(&*settings.config.hostname, |list| list.address.domain());
    owner.or_else(|| format!("postmaster@{domain}").parse().ok())
}

/// The name of the list, or of the sender.
fn name<'a>(post: &'a UnfitPost, sender: &'a str) -> &'a str {
    post.list.as_deref().unwrap_or_else(|| domain(sender))
}

fn subject(sender: &str, posts: &[&UnfitPost]) -> String {
    let first = posts.first().map_or("", |post| name(post, sender));
    let more = if posts.len() > 1 { format!(" and {} more", posts.len() - 1) } else { String::new() };
    format!("{}{more}: post held", printable(first, 80))
}

/// Writing into a string cannot fail.
fn text(sender: &str, of: &PostsOfReader<'_>, ids: &[AssignedId]) -> String {
    let shown = |text: &str| printable(text, TEXT_BYTES_MAX);
    let mut out = format!(
        "A post from <{}> was accepted but is held: Gmail, Yahoo or Outlook.com\r\n\
         would refuse it by their published rules. It will not be sent until it is released.\r\n",
        shown(sender)
    );
    let mut messages = Vec::new();
    for post in &of.posts {
        let what = if post.list.is_some() { "List" } else { "Mail from" };
        let _ = write!(out, "\r\n{what} {}:\r\n", name(post, sender));
        for one in post.findings.iter().take(FINDINGS_MAX) {
            let (subject, why, next) = (shown(&one.subject), shown(&one.what), shown(&one.next));
            let _ = write!(out, "\r\n  - {subject}: {why} ({})\r\n    next: {next}\r\n", one.check.key());
        }
        let more = post.findings.len().saturating_sub(FINDINGS_MAX);
        if more > 0 {
            let _ = write!(out, "\r\n  and {more} more, which are in the log\r\n");
        }
        if let Some(permalink) = &post.permalink {
            let _ = write!(
                out,
                "\r\n  Once released, the archive shows it at\r\n  {}\r\n",
                printable(permalink, URL_BYTES_MAX)
            );
        }
        messages.extend(ids.iter().filter(|one| one.is_held && one.list.as_deref() == post.list.as_deref()));
    }
    out.push_str("\r\nCorrect the fault or accept it, then release or remove the post:\r\n\r\n");
    for AssignedId { id, .. } in messages.iter().take(MESSAGES_MAX) {
        let _ = write!(
            out,
            "    stentor queue show {id}\r\n    stentor release --id {id}\r\n    stentor remove --id {id}\r\n\r\n"
        );
    }
    let more = messages.len().saturating_sub(MESSAGES_MAX);
    if more > 0 {
        let noun = if more == 1 { "message" } else { "messages" };
        let _ = write!(out, "and {more} more {noun}: `stentor mailqq` lists them.\r\n\r\n");
    }
    if of.posts_unreported > 0 {
        let posts = if of.posts_unreported == 1 { "post has" } else { "posts have" };
        let _ = write!(
            out,
            "{} more {posts} been held since the last notice: `stentor mailqq` lists them.\r\n\r\n",
            of.posts_unreported
        );
    }
    out.push_str("`stentor doctor mail` repeats these checks.\r\n");
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stentor_identity::{Check, IdentityFinding};
    use stentor_queue::ids::MessageId;

    use super::*;

    fn unfit(list: Option<&str>, findings: usize) -> UnfitPost {
        let finding = IdentityFinding {
            check: Check::SpfMissing,
            subject: "example.org".to_owned(),
            what: "the domain has no SPF\r\nrecord".to_owned(),
            next: "publish one".to_owned(),
        };
        let permalink = list.map(|list| format!("https://l.example/{list}/1@x"));
        UnfitPost { list: list.map(Arc::from), findings: vec![finding; findings], permalink }
    }

    #[test]
    fn a_notice_has_each_finding_and_the_commands_for_each_message() {
        let id = |id, list: Option<&str>, is_held| AssignedId {
            id: MessageId(id),
            recipients: 1,
            list: list.map(Into::into),
            is_held,
        };
        let ids = [id(1, Some("news"), true), id(2, None, false), id(3, Some("dev"), true), id(4, Some("news"), true)];
        let (news, other) = (unfit(Some("news"), 1), unfit(None, FINDINGS_MAX + 2));
        let of = PostsOfReader {
            reader: "owner@example.org".parse().unwrap(),
            posts: vec![&news, &other],
            posts_unreported: 7,
        };
        let text = text("ann\u{7}@shop.example", &of, &ids);
        for part in [
            "A post from <ann\\x07@shop.example> was accepted but",
            "List news:\r\n\r\n  - example.org: the domain has no SPF\\x0d\\x0arecord (spf_missing)\r\n    next: publish one",
            "Once released, the archive shows it at\r\n  https://l.example/news/1@x\r\n",
            "Mail from shop.example:",
            "and 2 more, which are in the log",
            "stentor release --id 000000000001\r\n",
            "stentor remove --id 000000000004\r\n",
            "7 more posts have been held since the last notice",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("000000000002") && !text.contains("000000000003"), "{text}");
        assert!(text.split("\r\n").all(|line| line.len() < 998 && !line.contains(['\r', '\n'])), "{text}");
        assert_eq!(subject("ann@shop.example", &of.posts), "news and 1 more: post held");
        assert_eq!(subject("ann@shop.example", &[&other]), "shop.example: post held");
    }
}
