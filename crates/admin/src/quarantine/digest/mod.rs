//! Digests for recipients with quarantined mail: what is new since the last one, with links to release it.
//!
//! Promise: at each time of `digest_at` every recipient in a local domain gets at most [`PARTS_MAX`] digests of
//! [`ROWS_MAX`] messages: those that came since the last digest and are still held. After a restart an unfinished run
//! continues ([`state`]). Digests are our own mail from the null sender: no rule or milter is applied to them, so none
//! is quarantined, and nothing bounces.
//!
//! States of a run: the messages are chosen and durable -> digests and the progress are stored, recipient by recipient
//! -> the messages count as announced. Memory: some octets for each quarantined message, and the rows of
//! [`RECIPIENTS_AT_ONCE`] recipients.
//!
//! Failure: a storage error stops the run; it continues at the next check. An unreadable message is a row without
//! subject. Without a key for links ([`super::link`]) digests have none.

mod state;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use stentor_config::{Config, DigestConfig};
use stentor_core::Core;
use stentor_core::envelope::{EnvelopeRcpt, NewEnvelope};
use stentor_core::own::{MessageIds, hand_in};
use stentor_core::route::Route;
use stentor_mail::address::Address;
use stentor_queue::ids::{AddressId, MessageId, Ms};
use stentor_queue::message::Message;

use self::state::{Run, State};
use self::text::{DigestFrame, Row, mail};
use super::link::{LinkSubject, Links};
use super::own::why;
use super::{Place, STEPS_MAX, seen};

/// Interval of checks for due digests and interrupted runs.
const PAUSE: Duration = Duration::from_secs(15);
/// Maximum messages per digest, and digests per recipient at one time.
const ROWS_MAX: usize = 100;
const PARTS_MAX: usize = 10;
/// Recipients whose rows are gathered in one walk through the quarantine.
const RECIPIENTS_AT_ONCE: usize = 1_000;
/// Messages gathered per hold of the lock.
const GATHERED_AT_ONCE: usize = 16;
/// Maximum digests sent again after a crash.
const PROGRESS_EVERY: usize = 16;
/// Maximum message rows cached for later recipients.
const ROWS_KEPT_MAX: usize = 4_096;
const DAY_MS: Ms = 86_400_000;

#[derive(Debug, thiserror::Error)]
enum DigestError {
    #[error("cannot use the digest state in the data directory: {0}")]
    File(#[from] io::Error),
    #[error("cannot store a digest: {0}")]
    Store(String),
}

/// Sends due digests while the server runs.
pub async fn send_when_due(core: Arc<Core>, links: Arc<Links>) {
    let mut known = None;
    loop {
        if core.settings().config.quarantine.digest.is_some()
            && let Err(error) = look(&core, &links, &mut known).await
        {
            tracing::warn!(%error, "could not send quarantine digests; will retry");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One check of the clock. `known` is the state, once it has been read.
async fn look(core: &Arc<Core>, links: &Arc<Links>, known: &mut Option<State>) -> Result<(), DigestError> {
    let settings = core.settings();
    let Some(digest) = &settings.config.quarantine.digest else { return Ok(()) };
    let now = core.clock.now();
    let Some(due) = digest.last_due(now) else { return Ok(()) };
    let folder = settings.config.data_dir.clone();
    let state = if let Some(state) = known {
        state
    } else {
        let from = folder.clone();
        let found = block(move || State::load(&from)).await?;
        // The first digest is sent at the next configured time, not at once.
        let state = found.unwrap_or_else(|| State { last: due, ..State::default() });
        save(&state, &folder).await?;
        known.insert(state)
    };
    // The clock was set back.
    state.last = state.last.min(now);
    if state.run.is_none() {
        if due <= state.last {
            return Ok(());
        }
        let (mut named, mut of) = (Vec::new(), Vec::new());
        for id in kept(core).await {
            if state.named.binary_search(&id).is_ok() { named.push(id) } else { of.push(id) }
        }
        let begun = State { last: state.last, named, run: Some(Run { due, of, after: None }) };
        save(&begun, &folder).await?;
        *state = begun;
    }
    let Some(run) = &mut state.run else { return Ok(()) };
    let context = DigestContext { core, links, config: &settings.config, digest };
    let sent = carry_out(&context, run).await?;
    let mut named = [state.named.as_slice(), run.of.as_slice()].concat();
    named.sort_unstable();
    let done = State { last: run.due, named, run: None };
    save(&done, &folder).await?;
    if sent > 0 {
        tracing::info!(digests = sent, "quarantine digests sent");
    }
    *state = done;
    Ok(())
}

async fn block<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

async fn save(state: &State, folder: &std::path::Path) -> io::Result<()> {
    let (state, folder) = (state.clone(), folder.to_owned());
    block(move || state.save(&folder)).await
}

/// All quarantined messages, ascending.
async fn kept(core: &Arc<Core>) -> Vec<MessageId> {
    let mut all: Vec<MessageId> = Vec::new();
    loop {
        let found = core.with(|hub, _| {
            let ids = hub.store.quarantined(all.last().copied()).take(STEPS_MAX).map(Message::id);
            ids.collect::<Vec<_>>()
        });
        let is_last = found.len() < STEPS_MAX;
        all.extend(found);
        if is_last {
            return all;
        }
        tokio::task::yield_now().await;
    }
}

/// What the digests of a run are made with.
struct DigestContext<'a> {
    core: &'a Arc<Core>,
    links: &'a Arc<Links>,
    config: &'a Config,
    digest: &'a DigestConfig,
}

/// The messages announced to a recipient.
#[derive(Default)]
struct Announcement {
    of: Vec<MessageId>,
    more: usize,
}

/// Sends the rest of a run; returns the number of digests stored.
async fn carry_out(context: &DigestContext<'_>, run: &mut Run) -> Result<usize, DigestError> {
    let DigestContext { core, config, digest, .. } = *context;
    let (mut sent, mut rows) = (0, Rows::default());
    loop {
        let next = gather(core, run).await;
        let Some(last) = next.keys().next_back().copied() else { return Ok(sent) };
        let mut unsaved = 0;
        for (id, announcement) in next {
            let Some(to) = recipient(core, digest, id) else { continue };
            let stored = send(context, &mut rows, to, announcement).await;
            if stored.is_ok() {
                (sent, unsaved, run.after) = (sent + 1, unsaved + 1, Some(id));
            }
            if unsaved == PROGRESS_EVERY || stored.is_err() && unsaved > 0 {
                save_progress(run, config.data_dir.clone()).await?;
                unsaved = 0;
            }
            stored?;
        }
        run.after = Some(last);
        save_progress(run, config.data_dir.clone()).await?;
    }
}

async fn save_progress(run: &Run, folder: PathBuf) -> io::Result<()> {
    let (due, after) = (run.due, run.after);
    match after {
        Some(after) => block(move || Run::save_progress(due, after, &folder)).await,
        None => Ok(()),
    }
}

/// The next recipients of a run, with their quarantined messages.
async fn gather(core: &Arc<Core>, run: &Run) -> BTreeMap<u32, Announcement> {
    let mut next: BTreeMap<u32, Announcement> = BTreeMap::new();
    for part in run.of.chunks(GATHERED_AT_ONCE) {
        core.with(|hub, _| {
            for message in part.iter().filter_map(|id| hub.store.in_quarantine(*id)) {
                let all = message.pending();
                let ids = run.after.map_or_else(|| all.iter(), |after| all.iter_from(after));
                for id in ids {
                    if next.len() == RECIPIENTS_AT_ONCE && next.keys().next_back().is_some_and(|last| id > *last) {
                        break;
                    }
                    let announced = next.entry(id).or_default();
                    if announced.of.len() < ROWS_MAX * PARTS_MAX {
                        announced.of.push(message.id());
                    } else {
                        announced.more += 1;
                    }
                    if next.len() > RECIPIENTS_AT_ONCE {
                        next.pop_last();
                    }
                }
            }
        });
        tokio::task::yield_now().await;
    }
    next
}

/// The recipient of a digest, with the next hop of the quarantined mail if that has its own; `None` if the recipient is
/// not local or opted out.
fn recipient(core: &Arc<Core>, digest: &DigestConfig, id: u32) -> Option<EnvelopeRcpt> {
    let entry = core.with(|hub, _| hub.store.book.entry(AddressId(id)).to_owned());
    let text = core.with(|hub, _| hub.store.book.text(AddressId(id)).to_owned());
    let address = Address::parse(text.as_bytes(), true).ok()?;
    let is_wanted = core.settings().rules.is_ours(&address) && digest.is_for(&text);
    let route = Route::of_entry(&entry, &text);
    is_wanted.then(|| EnvelopeRcpt { route, ..EnvelopeRcpt::plain(address) })
}

/// Cached rows of messages with several recipients.
#[derive(Default)]
struct Rows(HashMap<MessageId, (Row, Ms)>);

impl Rows {
    /// The row and its expiry. `None`: the message has left the quarantine.
    async fn of(&mut self, core: &Arc<Core>, id: MessageId, expire_ms: Ms) -> Option<(Row, Ms)> {
        let found = core.with(|hub, _| {
            let message = hub.store.in_quarantine(id)?;
            let place = Place::of(message);
            let row = Row {
                id: id.to_string(),
                from: message.sender().to_owned(),
                date: message.accepted(),
                why: why(message.quarantined_by()).to_owned(),
                ..Row::default()
            };
            Some((row, place))
        });
        let (mut row, place) = found?;
        if let Some(known) = self.0.get(&id) {
            return Some(known.clone());
        }
        if let Ok(seen) = seen(core, place, true).await {
            let from = seen.field("from");
            row.from = if from.is_empty() { row.from } else { from };
            row.subject = seen.field("subject");
        }
        let all = (row.clone(), row.date.saturating_add(expire_ms));
        if self.0.len() == ROWS_KEPT_MAX {
            self.0.clear();
        }
        self.0.insert(id, all.clone());
        Some(all)
    }
}

/// Sends the digests of one recipient.
async fn send(
    context: &DigestContext<'_>,
    rows: &mut Rows,
    to: EnvelopeRcpt,
    announcement: Announcement,
) -> Result<(), DigestError> {
    let DigestContext { core, links, config, digest } = *context;
    let recipient = to.address.as_str().to_owned();
    let mut all = Vec::with_capacity(announcement.of.len());
    for id in announcement.of {
        if let Some((mut row, expires)) = rows.of(core, id, config.quarantine.expire_ms).await {
            row.link = link(links, digest, LinkSubject { message: id, expires, recipient: recipient.clone() }).await;
            all.push(row);
        }
    }
    let contact =
        digest.contact.as_ref().map_or_else(|| format!("postmaster@{}", to.address.domain()), ToString::to_string);
    let parts = all.len().div_ceil(ROWS_MAX);
    for (at, part) in all.chunks(ROWS_MAX).enumerate() {
        let ids = MessageIds::next(core);
        let around = DigestFrame {
            hostname: &config.hostname,
            recipient: &recipient,
            contact: &contact,
            part: (at + 1, parts),
            more: if at + 1 == parts { announcement.more } else { 0 },
            expire_days: config.quarantine.expire_ms / DAY_MS,
        };
        let name = format!("{}.quarantine@{}", ids.message, config.hostname);
        let body = mail(&around, part, &name, core.clock.now());
        let own = NewEnvelope::own(vec![to.clone()], format!("<{name}>"), "digest of the quarantine");
        let envelope = NewEnvelope { eight_bit: !body.is_ascii(), ..own };
        let stored = hand_in(core, ids, body, envelope, Vec::new()).await;
        stored.map_err(|refused| DigestError::Store(refused.to_string()))?;
    }
    Ok(())
}

/// The link for a recipient to release a message, if links are sent.
async fn link(links: &Arc<Links>, digest: &DigestConfig, ticket: LinkSubject) -> Option<String> {
    let (base, links) = (digest.link_base.clone()?, links.clone());
    match block(move || links.seal(&ticket)).await {
        Ok(token) => Some(format!("{base}/kept/{token}")),
        Err(error) => {
            tracing::warn!(%error, "quarantine digest sent without links");
            None
        }
    }
}
