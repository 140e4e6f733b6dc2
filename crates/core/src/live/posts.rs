//! Progress of each post: recipients by fate, and how soon after acceptance they were delivered.
//!
//! Promise: a post is a list's message, or one to at least [`RECIPIENTS_MIN`] recipients. It is followed from its
//! acceptance; each recipient's fate is counted where the store learns of it (`Hub`), once. A running post costs 1.2
//! KiB with a short subject, and at most 4 KiB more for its first failures. An outcome costs a look-up and two
//! additions, under the lock that recording the outcome takes anyway. At most [`POSTS_MAX`] are kept: finished ones are
//! dropped first, the oldest first.
//!
//! After a restart the fates of unfinished posts come from the store, and the times of earlier deliveries from a file
//! that is written once a minute and at a stop ([`Posts::write_times`]); finished posts are forgotten (the history has
//! them).

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use parking_lot::Mutex;
use stentor_mail::heading::Heading;
use stentor_queue::event::{Fate, Tally};
use stentor_queue::ids::{ContentId, MessageId, MessageNo, Ms};
use stentor_queue::message::Message;
use stentor_sched::FailedRcpt;

use super::histogram::Histogram;

/// Number of posts that are remembered.
pub const POSTS_MAX: usize = 4_096;
/// A message without a list is followed from this number of recipients on.
pub const RECIPIENTS_MIN: u64 = 100;
/// Number of failed recipients that are kept of a post: the history has all.
pub const FAILURES_MAX: usize = 10;
/// Characters kept of a failed recipient's last reply.
const REPLY_CHARS_MAX: usize = 200;
/// Number of posts with notes that are on their way to the journal.
const NOTED_MAX: usize = 1_024;

/// One post.
pub struct Post {
    pub id: MessageId,
    pub no: MessageNo,
    /// The list; empty if the post has none.
    pub list: String,
    pub sender: String,
    pub size: u64,
    pub accepted: Ms,
    pub total: u64,
    /// The reverse-path with which the post arrived, if it wants a report.
    pub poster: Option<String>,
    /// Subject and author; unset, for a large post or one from before the start, until somebody has read them.
    pub heading: OnceLock<Arc<Heading>>,
    /// Set if the post was running when the server started: recipients that had their fate before.
    pub before_start: Option<u64>,
    fates: [AtomicU64; 6],
    /// The first recipients that bounced or expired since the start.
    failures: Mutex<Vec<PostFailure>>,
    /// Milliseconds from acceptance to delivery.
    pub times: Histogram,
    fast_done: AtomicU64,
    finished: AtomicU64,
    last_outcome: AtomicU64,
    /// Whether its report was sent or is not wanted.
    pub is_reported: AtomicBool,
}

/// A recipient that bounced or expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostFailure {
    pub address: Box<str>,
    pub is_expired: bool,
    /// The last reply or error.
    pub reply: Box<str>,
    pub at: Ms,
}

impl PostFailure {
    pub fn new(address: &str, failure: &FailedRcpt, at: Ms) -> PostFailure {
        let reply: String = failure.reply().chars().take(REPLY_CHARS_MAX).collect();
        PostFailure { address: address.into(), is_expired: failure.expired, reply: reply.into(), at }
    }
}

fn index(fate: Fate) -> usize {
    match fate {
        Fate::Delivered => 0,
        Fate::Bounced => 1,
        Fate::Expired => 2,
        Fate::Removed => 3,
        Fate::Quarantined => 4,
        Fate::Coalesced => 5,
    }
}

impl Post {
    /// Creates a post. `is_new`: it was accepted just now.
    fn new(no: MessageNo, message: &Message, noted: PostNotes, is_new: bool) -> Post {
        let (envelope, tally) = (message.envelope(), message.tally());
        let post = Post {
            id: message.id(),
            no,
            list: envelope.list.unwrap_or_default().to_owned(),
            sender: envelope.sender.to_owned(),
            size: envelope.size,
            accepted: message.accepted(),
            total: message.total(),
            poster: noted.poster,
            heading: noted.heading.map_or_else(OnceLock::new, OnceLock::from),
            before_start: (!is_new).then(|| tally.sum()),
            fates: Default::default(),
            failures: Mutex::default(),
            times: Histogram::default(),
            fast_done: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            last_outcome: AtomicU64::new(0),
            is_reported: AtomicBool::new(!is_new),
        };
        let Tally { delivered, bounced, expired, removed, quarantined, coalesced } = tally;
        for (count, known) in post.fates.iter().zip([delivered, bounced, expired, removed, quarantined, coalesced]) {
            count.store(known, Ordering::Relaxed);
        }
        post
    }

    /// Creates a post for a queued message that was not followed.
    pub fn queued(no: MessageNo, message: &Message) -> Post {
        Post::new(no, message, PostNotes::default(), false)
    }

    /// Number of recipients with this fate.
    pub fn fate(&self, fate: Fate) -> u64 {
        self.fates[index(fate)].load(Ordering::Relaxed)
    }

    /// Keeps a recipient that bounced or expired, if it is one of the first.
    pub fn add_failure(&self, failure: PostFailure) {
        let mut failures = self.failures.lock();
        if failures.len() < FAILURES_MAX {
            failures.push(failure);
        }
    }

    /// The first recipients that bounced or expired since the start, at most [`FAILURES_MAX`].
    pub fn failures(&self) -> Vec<PostFailure> {
        self.failures.lock().clone()
    }

    pub fn decided(&self) -> u64 {
        self.fates.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    pub fn pending(&self) -> u64 {
        self.total.saturating_sub(self.decided())
    }

    /// When only stragglers were left, or when the last recipient had its fate.
    pub fn fast_done(&self) -> Option<Ms> {
        Some(self.fast_done.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    pub fn finished(&self) -> Option<Ms> {
        Some(self.finished.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    pub fn last_outcome(&self) -> Option<Ms> {
        Some(self.last_outcome.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    /// Restores times from before the start; `before_start` counts the deliveries without one.
    fn recall(&mut self, times: Times) {
        self.fast_done.store(times.fast_done, Ordering::Relaxed);
        self.last_outcome.store(times.last_outcome, Ordering::Relaxed);
        self.times.restore(times.filled.into_iter(), times.max);
        let timed = self.times.read().count();
        self.before_start = Some(self.fate(Fate::Delivered).saturating_sub(timed));
    }

    fn count(&self, fate: Fate, recipients: u64, now: Ms) {
        self.fates[index(fate)].fetch_add(recipients, Ordering::Relaxed);
        self.last_outcome.store(now, Ordering::Relaxed);
        if fate == Fate::Delivered {
            self.times.add(now.saturating_sub(self.accepted), u32::try_from(recipients).unwrap_or(u32::MAX));
        }
    }
}

/// Details that the session accepting a post knows and the queue does not.
#[derive(Clone, Default)]
pub struct PostNotes {
    /// The reverse-path with which the post arrived, if it wants a report.
    pub poster: Option<String>,
    pub heading: Option<Arc<Heading>>,
}

#[derive(Default)]
struct Table {
    /// Posts in order of acceptance.
    order: VecDeque<Arc<Post>>,
    by_id: HashMap<MessageId, Arc<Post>>,
}

/// All known posts, shared by readers and the hub.
#[derive(Default)]
pub struct Posts {
    table: Mutex<Table>,
    noted: Mutex<VecDeque<(ContentId, PostNotes)>>,
    /// Times from before the start, until the queue names their posts.
    recalled: Mutex<HashMap<MessageId, Times>>,
}

/// A post's times, as kept over a restart.
struct Times {
    fast_done: u64,
    last_outcome: u64,
    max: u64,
    filled: Vec<(usize, u32)>,
}

impl Times {
    /// Reads `id fast_done last_outcome max bucket:count...`, separated by tabs.
    fn read(line: &str) -> Option<(MessageId, Times)> {
        let mut fields = line.split('\t');
        let mut next = || fields.next()?.parse::<u64>().ok();
        let (id, fast_done, last_outcome, max) = (next()?, next()?, next()?, next()?);
        let filled = fields.map(|field| {
            let (bucket, count) = field.split_once(':')?;
            Some((bucket.parse().ok()?, count.parse().ok()?))
        });
        Some((MessageId(id), Times { fast_done, last_outcome, max, filled: filled.collect::<Option<_>>()? }))
    }
}

impl Posts {
    /// Writes the times of all running posts, one per line that begins with `post` and a tab.
    pub fn write_times(&self, out: &mut String) {
        for post in self.newest().iter().filter(|post| post.finished().is_none()) {
            let (fast_done, last) = (post.fast_done().unwrap_or(0), post.last_outcome().unwrap_or(0));
            // Writing to a string cannot fail.
            let _ = write!(out, "post\t{}\t{fast_done}\t{last}\t{}", post.id.0, post.times.max());
            for (bucket, count) in post.times.filled() {
                let _ = write!(out, "\t{bucket}:{count}");
            }
            out.push('\n');
        }
    }

    /// Restores the output of [`Posts::write_times`] from before the start, from a text that may have other lines. Call
    /// it before posts are followed. Returns the number of malformed lines.
    pub fn recall_times(&self, text: &str) -> usize {
        let lines = text.lines().filter_map(|line| line.strip_prefix("post\t")).take(POSTS_MAX);
        let mut recalled = self.recalled.lock();
        lines.filter(|line| Times::read(line).map(|(id, times)| recalled.insert(id, times)).is_none()).count()
    }

    /// The posts, newest first.
    pub fn newest(&self) -> Vec<Arc<Post>> {
        self.table.lock().order.iter().rev().cloned().collect()
    }

    /// Lists' posts whose report may still be due.
    pub fn unreported(&self) -> Vec<Arc<Post>> {
        let is_open = |post: &&Arc<Post>| !post.is_reported.load(Ordering::Relaxed) && !post.list.is_empty();
        self.table.lock().order.iter().filter(is_open).cloned().collect()
    }

    pub fn get(&self, id: MessageId) -> Option<Arc<Post>> {
        self.table.lock().by_id.get(&id).cloned()
    }

    /// Notes details of a post that is on its way to the journal.
    pub fn note(&self, content: ContentId, noted: PostNotes) {
        let mut all = self.noted.lock();
        if all.len() == NOTED_MAX {
            all.pop_front();
        }
        all.push_back((content, noted));
    }

    fn noted(&self, content: ContentId) -> PostNotes {
        // Several lists may share a content, and the oldest note goes first. Notes of the posts that arrive now are
        // last.
        let all = self.noted.lock();
        all.iter().rev().find(|(of, _)| *of == content).map(|(_, noted)| noted.clone()).unwrap_or_default()
    }

    /// Records that the fast lane has finished the post.
    pub fn fast_done(&self, id: MessageId, now: Ms) {
        if let Some(post) = self.get(id) {
            post.fast_done.store(now, Ordering::Relaxed);
        }
    }

    /// Adds a post. Returns the one that was dropped for it, if any.
    fn keep(&self, post: Arc<Post>) -> Option<Arc<Post>> {
        let mut table = self.table.lock();
        table.by_id.insert(post.id, post.clone());
        table.order.push_back(post);
        if table.order.len() <= POSTS_MAX {
            return None;
        }
        let at = table.order.iter().position(|post| post.finished().is_some()).unwrap_or(0);
        let gone = table.order.remove(at)?;
        table.by_id.remove(&gone.id);
        Some(gone)
    }
}

/// The hub's part: posts being delivered, by number.
#[derive(Default)]
pub struct RunningPosts {
    posts: Arc<Posts>,
    by_no: HashMap<MessageNo, Arc<Post>, foldhash::fast::FixedState>,
}

impl RunningPosts {
    pub fn posts(&self) -> Arc<Posts> {
        self.posts.clone()
    }

    /// Follows a message that became durable (`is_new`), or is live at the start.
    pub fn follow(&mut self, no: MessageNo, message: &Message, is_new: bool) {
        if message.is_report() || message.subscribers_list().is_none() && message.total() < RECIPIENTS_MIN {
            return;
        }
        let noted = if is_new { self.posts.noted(message.content()) } else { PostNotes::default() };
        let mut post = Post::new(no, message, noted, is_new);
        if !is_new && let Some(times) = self.posts.recalled.lock().remove(&post.id) {
            post.recall(times);
        }
        let post = Arc::new(post);
        self.by_no.insert(no, post.clone());
        if let Some(gone) = self.posts.keep(post) {
            self.by_no.remove(&gone.no);
        }
    }

    /// Counts recipients of a message that got their fate; `is_last`: all have theirs now.
    pub fn record_fate(&mut self, no: MessageNo, fate: Fate, recipients: u64, is_last: bool, now: Ms) {
        if self.by_no.is_empty() {
            return;
        }
        let Some(post) = self.by_no.get(&no) else { return };
        post.count(fate, recipients, now);
        if is_last {
            post.finished.store(now.max(1), Ordering::Relaxed);
            self.by_no.remove(&no);
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_mail::Class;
    use stentor_mail::reply::Enhanced;
    use stentor_queue::event::{Accept, Event};
    use stentor_queue::ids::AddressId;
    use stentor_queue::store::{EventEffect, Store};

    use super::*;

    fn accept(id: u64, list: Option<&str>, recipients: u32) -> Accept {
        Accept {
            size: 10,
            class: Class::Bulk,
            list: list.map(str::to_owned),
            recipients: (0..recipients).collect(),
            ..Accept::bare(MessageId(id), 1_000)
        }
    }

    fn follow(store: &mut Store, running: &mut RunningPosts, accept: Accept) -> MessageNo {
        let EventEffect::New(no) = store.apply(Event::Accept(Box::new(accept))) else { panic!("not new") };
        running.follow(no, store.message(no).expect("it is there"), true);
        no
    }

    #[test]
    fn a_post_is_followed_to_its_end() {
        let (mut store, mut running) = (Store::new(), RunningPosts::default());
        let posts = running.posts();
        let heading = Arc::new(Heading { subject: "A post".into(), ..Heading::default() });
        let poster = Some("ann@one.example".to_owned());
        posts.note(ContentId(1), PostNotes { poster, heading: Some(heading.clone()) });
        let no = follow(&mut store, &mut running, accept(1, Some("news"), 10));
        follow(&mut store, &mut running, accept(2, None, 99));
        follow(&mut store, &mut running, accept(3, None, 100));
        assert_eq!(posts.newest().iter().map(|post| post.id.0).collect::<Vec<_>>(), [3, 1]);
        running.record_fate(no, Fate::Delivered, 7, false, 1_500);
        running.record_fate(no, Fate::Bounced, 2, false, 2_000);
        let post = posts.get(MessageId(1)).expect("it is followed");
        assert_eq!((post.fate(Fate::Delivered), post.pending(), post.finished()), (7, 1, None));
        assert_eq!((post.poster.as_deref(), post.heading.get()), (Some("ann@one.example"), Some(&heading)));
        assert_eq!(posts.get(MessageId(3)).expect("it is followed").heading.get(), None);
        running.record_fate(no, Fate::Delivered, 1, true, 3_000);
        assert_eq!((post.pending(), post.finished(), running.by_no.len()), (0, Some(3_000), 1));
        let times = post.times.read();
        assert_eq!((times.count(), times.max), (8, 2_000));
        assert!((470..=530).contains(&times.percentile(50.0)), "{}", times.percentile(50.0));
    }

    #[test]
    fn the_first_failures_are_kept_with_their_replies() {
        let (mut store, mut running) = (Store::new(), RunningPosts::default());
        follow(&mut store, &mut running, accept(1, Some("news"), 20));
        let post = running.posts().get(MessageId(1)).expect("it is followed");
        let failure = |code: u16, text: String| FailedRcpt {
            id: AddressId(0),
            expired: code == 0,
            dsn: Enhanced::new(5, 1, 1),
            code,
            text: text.into(),
            host: None,
        };
        post.add_failure(PostFailure::new("a@one.example", &failure(550, "no such user".to_owned()), 7));
        post.add_failure(PostFailure::new("b@one.example", &failure(0, "é".repeat(300)), 8));
        let kept = post.failures();
        assert_eq!((&*kept[0].reply, kept[0].is_expired, kept[0].at), ("550 5.1.1 no such user", false, 7));
        assert_eq!((kept[1].reply.chars().count(), kept[1].is_expired), (REPLY_CHARS_MAX, true));
        for _ in 0..20 {
            post.add_failure(kept[0].clone());
        }
        assert_eq!(post.failures().len(), FAILURES_MAX);
    }

    #[test]
    fn times_outlive_a_restart() {
        let (mut store, mut running) = (Store::new(), RunningPosts::default());
        let no = follow(&mut store, &mut running, accept(1, Some("news"), 10));
        running.record_fate(no, Fate::Delivered, 4, false, 1_500);
        store.record_fate(no, Fate::Delivered, &(0..4).collect(), None, 1_500, &mut Vec::new());
        let mut text = String::from("other\tline\n");
        running.posts().write_times(&mut text);
        // Delivered after the file was written, but before the process ended.
        store.record_fate(no, Fate::Delivered, &(4..6).collect(), None, 9_000, &mut Vec::new());
        let mut again = RunningPosts::default();
        assert_eq!(again.posts().recall_times(&(text + "post\tx\npost\t7\t1\n")), 2);
        again.follow(no, store.message(no).expect("it is there"), false);
        let post = again.posts().get(MessageId(1)).expect("it is followed");
        assert_eq!((post.times.read().count(), post.times.read().max), (4, 500));
        assert_eq!((post.before_start, post.last_outcome(), post.fate(Fate::Delivered)), (Some(2), Some(1_500), 6));
        again.record_fate(no, Fate::Delivered, 4, true, 3_000);
        assert_eq!(post.times.read().count(), 8);
    }

    #[test]
    fn the_table_is_bounded_and_finished_posts_go_first() {
        let (mut store, mut running) = (Store::new(), RunningPosts::default());
        let second = (1..=POSTS_MAX as u64 + 2).map(|id| follow(&mut store, &mut running, accept(id, Some("l"), 1)));
        let numbers: Vec<MessageNo> = second.collect();
        let posts = running.posts();
        assert_eq!((posts.newest().len(), running.by_no.len()), (POSTS_MAX, POSTS_MAX));
        assert!(posts.get(MessageId(1)).is_none() && posts.get(MessageId(3)).is_some());
        running.record_fate(numbers[9], Fate::Delivered, 1, true, 3_000);
        follow(&mut store, &mut running, accept(9_999, Some("l"), 1));
        assert!(posts.get(MessageId(10)).is_none() && posts.get(MessageId(3)).is_some());
    }
}
