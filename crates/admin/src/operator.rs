//! Carries out operators' verbs on the running server. Answers come from memory; long counts are done in slices, so
//! that the queue's lock is never held for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use stentor_control::format::{plural, span};
use stentor_control::problem::Problem;
use stentor_control::protocol::SUSPENDED_SHOWN_MAX;
use stentor_control::reply::ActionView;
use stentor_control::snapshot::{Snapshot, WatchOptions};
use stentor_control::view::Subject;
use stentor_control::{
    ChangeScope, Control, ControlReply, DkimRequest, EnvelopeView, ErrorCode, HostsOptions, MessageView, Observe, Part,
    PostReport, PostReports, QueueSummary, ReportOptions, Request, Requester, RosterRequest, RowKind, Selection,
    Status, StuckReport, TrafficOptions, Verb, View,
};
use stentor_core::limits::Limit;
use stentor_core::{Core, log};
use stentor_queue::ids::{AddressId, MessageId, Ms};
use stentor_queue::message::Message;
use stentor_queue::store::Store;
use stentor_records::civil::Zone;
use stentor_records::now::TrafficLine;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use crate::depth::Depths;
use crate::health::reputation;
use crate::made_lists::ListEdit;
use crate::row_query::RowQuery;
use crate::views::{fates, holder, message_fates, recipient};
use crate::watch::{Overviews, Watch, traffic};
use crate::{
    ages, depth, dkim, doctor, holds, lists, made_lists, posts, quarantine, report, site, users, verbs, verify, waiting,
};

/// Maximum watchers at the control socket.
const WATCHERS_MAX: usize = 8;

/// Recipients of a message described per hold of the lock.
const RECIPIENTS_STEP: usize = 256;

/// Requests of verbs to the whole process.
#[derive(Debug)]
pub enum Demand {
    /// Reload, with a channel for the outcome if somebody waits for it.
    Reload(Option<oneshot::Sender<ReloadOutcome>>),
    Stop,
}

/// The outcome of a reload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReloadOutcome {
    /// In force, except for these changed keys, which need a restart; the warnings of the new configuration, each with
    /// its place.
    InForce { kept: Vec<String>, warnings: Vec<String> },
    /// The configuration has errors, each with its place; the old one stays in force.
    Refused(Vec<String>),
    /// The server was started without a file.
    NoFile,
}

impl From<ReloadOutcome> for ControlReply {
    fn from(reloaded: ReloadOutcome) -> ControlReply {
        let done = |text: String| ControlReply::done(text, None);
        let with = |text: String, warnings: Vec<String>| [vec![text], warnings].concat().join("\n");
        match reloaded {
            ReloadOutcome::NoFile => done("no configuration file to reload; logs reopened".to_owned()),
            ReloadOutcome::InForce { kept, warnings } if kept.is_empty() => {
                done(with("configuration reloaded".to_owned(), warnings))
            }
            ReloadOutcome::InForce { kept, warnings } => {
                let text = format!(
                    "configuration reloaded, except for changed keys that need a restart: {}; until then the server \
                     uses the old values",
                    kept.join("; ")
                );
                ControlReply::error(ErrorCode::NeedsRestart, with(text, warnings))
            }
            ReloadOutcome::Refused(errors) => ControlReply::error(
                ErrorCode::BadConfiguration,
                format!("the configuration has errors; the old one stays in force\n{}", errors.join("\n")),
            ),
        }
    }
}

pub struct Operator {
    core: Arc<Core>,
    started: Ms,
    demands: mpsc::UnboundedSender<Demand>,
    sessions: Box<dyn Fn() -> usize + Send + Sync>,
    /// Returns webhooks that receive or accept nothing, each with the reason.
    webhooks_troubled: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Data shared by all watchers.
    pub overviews: Arc<Overviews>,
    /// Allows one request that changes mail at a time ([`ChangeScope::Mail`]).
    acting: Mutex<()>,
    /// Allows one change of a list at a time.
    listing: Mutex<()>,
    /// Limits watchers, so that others find the control socket free.
    watching: Semaphore,
}

/// Suspensions that `status` shows, with the ends and reasons of those that have one, and the number of all.
struct Suspensions {
    shown: Vec<String>,
    ends: BTreeMap<String, Ms>,
    reasons: BTreeMap<String, String>,
    total: u64,
}

impl Suspensions {
    fn of(store: &Store) -> Suspensions {
        let shown: Vec<String> = store.suspended().take(SUSPENDED_SHOWN_MAX).map(str::to_owned).collect();
        let end = |what: &String| Some((what.clone(), store.suspended_until(what)?));
        let reason = |what: &String| Some((what.clone(), store.suspended_reason(what)?.to_owned()));
        let (ends, reasons) = (shown.iter().filter_map(end).collect(), shown.iter().filter_map(reason).collect());
        Suspensions { shown, ends, reasons, total: store.suspended_len() as u64 }
    }
}

/// The operator's action in progress.
fn action(core: &Core) -> Option<ActionView> {
    core.live.action.now().map(|action| ActionView {
        verb: action.verb.to_owned(),
        who: action.who,
        since: action.since,
        recipients: action.recipients,
    })
}

impl Operator {
    pub fn new(
        core: Arc<Core>,
        demands: mpsc::UnboundedSender<Demand>,
        sessions: Box<dyn Fn() -> usize + Send + Sync>,
        webhooks_troubled: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    ) -> Operator {
        Operator {
            started: core.clock.now(),
            core,
            demands,
            sessions,
            webhooks_troubled,
            overviews: Arc::default(),
            acting: Mutex::new(()),
            listing: Mutex::new(()),
            watching: Semaphore::new(WATCHERS_MAX),
        }
    }

    /// The server at a glance.
    pub async fn status(&self) -> Status {
        let core = &self.core;
        core.refresh_space().await;
        let counters = &core.counters;
        let (journal, dns) = (core.journal(), core.resolver().counters());
        let (messages, addresses, recipients, connections_out, stopping) = core
            .with(|hub, _| (hub.store.len(), hub.store.book.len(), fates(hub), hub.connections(), hub.is_stopping()));
        let (held, lock_held_at) = core.held.take();
        let suspensions = core.with(|hub, _| Suspensions::of(&hub.store));
        let submissions = core.submissions.lock().clone();
        let settings = core.settings();
        let (standing_bounces, in_passing) =
            core.with(|hub, _| (verbs::standing_bounces(hub), hub.sched.bounced_in_passing()));
        let (queue_only, queue_run_since) =
            core.with(|hub, now| (verbs::queue_only_views(hub, &settings, now), hub.sched.queue_run_since()));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: settings.config.hostname.clone(),
            pid: std::process::id(),
            now: core.clock.now(),
            started: self.started,
            stopping,
            messages: messages as u64,
            held: core.with(|hub, _| hub.store.held()) as u64,
            addresses: addresses as u64,
            recipients,
            connections_in: (self.sessions)() as u64,
            connections_out: connections_out as u64,
            journal_segments: journal.space.segments as u64,
            journal_syncs: journal.statistics.syncs,
            journal_batches: journal.statistics.batches,
            journal_bytes: journal.statistics.bytes_written,
            journal_abandoned: journal.statistics.abandoned,
            journal_bytes_moved: journal.statistics.bytes_moved,
            journal_unprepared: journal.statistics.unprepared,
            journal_checkpoints: journal.statistics.checkpoints,
            journal_checkpoint_running: journal.is_checkpointing,
            streamed_bytes: core.memory.streamed(),
            streamed_bytes_peak: core.memory.streamed_peak(),
            content_bytes: journal.space.live_content_bytes,
            disk_free_bytes: journal.space.free_disk_bytes,
            outcome_sync_ms_max: counters.outcome_sync_ms_max.load(Ordering::Relaxed),
            dns_queries: dns.queries,
            dns_failures: dns.failures,
            log_lines_lost: core.log.dropped(),
            history_lost: core.history.status().dropped,
            history_bytes: core.history.status().bytes,
            lock_held_us_max: held.as_micros() as u64,
            lock_held_at,
            suspended: suspensions.shown,
            suspended_total: suspensions.total,
            suspended_until: suspensions.ends,
            suspended_reasons: suspensions.reasons,
            standing_bounces,
            standing_bounced: in_passing + counters.standing_bounced.load(Ordering::Relaxed),
            suppressions: core.registry.len() as u64,
            suppressed: counters.suppressed.load(Ordering::Relaxed),
            queue_only,
            action: action(core),
            queue_run_since,
            webhooks_troubled: (self.webhooks_troubled)(),
            restart_pending: settings.config.restart_pending.clone(),
            submissions: submissions.waiting,
            submissions_deferred: submissions.deferred,
            submissions_oldest: submissions.oldest,
            submissions_unusable: submissions.unusable,
            health: core.live.health.conditions(),
            listening: settings.config.listening().map(|(_, address)| address).collect(),
        }
    }

    /// The queue in total, by site and by list; or the totals of a part.
    pub async fn queue(&self, query: &RowQuery) -> QueueSummary {
        let Depths { rows: sites, sites_total, domains_total, causes, counted, lists } =
            depth::sites(&self.core, &self.overviews.causes, query).await;
        // Only totals of a part come from the count.
        let part = counted.as_ref().filter(|_| !query.part.is_all()).map(|counted| &counted.census);
        self.core.with(|hub, now| {
            let oldest = match part {
                None => hub.store.oldest().map(|(_, message)| message),
                Some(part) => {
                    let all = part.lists.values().filter_map(|tally| hub.store.message(tally.oldest?));
                    all.min_by_key(|message| message.accepted())
                }
            };
            QueueSummary {
                hostname: self.core.settings().config.hostname.clone(),
                now,
                part: query.words.clone(),
                messages: part.map_or(hub.store.len() as u64, |part| part.total.messages),
                recipients: part.map_or(hub.store.pending(), |part| part.total.recipients()),
                held: part.map_or(hub.store.held() as u64, |part| part.held),
                content_bytes: part.map_or(hub.store.octets(), |part| part.octets),
                oldest: oldest.map(Message::accepted),
                oldest_id: oldest.map(|message| message.id().to_string()),
                sites_total,
                domains_total,
                causes,
                counted: counted.as_ref().map(|counted| counted.at),
                lists,
                sites,
            }
        })
    }

    async fn queue_of(&self, view: &View) -> ControlReply {
        let query = match RowQuery::of(&self.core, view, Subject::Queue) {
            Ok(query) => query,
            Err(problem) => return ControlReply::Error(problem),
        };
        let mut queue = self.queue(&query).await;
        match view.by {
            Some(RowKind::List) => queue.sites.clear(),
            Some(_) => queue.lists.clear(),
            None => {}
        }
        match lists::unknown(&self.core, view.list.as_deref()).filter(|_| queue.recipients == 0) {
            Some(problem) => ControlReply::Error(problem),
            None => ControlReply::Queue(queue),
        }
    }

    async fn stuck(&self, view: &View) -> Result<StuckReport, Problem> {
        let query = RowQuery::of(&self.core, view, Subject::Stuck)?;
        depth::stuck(&self.core, &self.overviews.causes, &query, view.by).await
    }

    /// A queued message with its pending recipients after `after`, in the order of their numbers.
    pub async fn show(&self, id: MessageId, after: Option<AddressId>, recipients_max: usize) -> ControlReply {
        let settings = self.core.settings();
        let shown = self.core.with(|hub, now| {
            let (no, message) = hub.store.no_of(id).and_then(|no| Some((no, hub.store.message(no)?)))?;
            let envelope = message.envelope();
            let pending = message.pending();
            let behind = after.map_or_else(|| pending.iter(), |after| pending.iter_from(after.0));
            let recipients: Vec<u32> = behind.take(recipients_max).collect();
            let view = MessageView {
                id: message.id().to_string(),
                now,
                sender: envelope.sender.to_owned(),
                given_sender: envelope.given_sender.map(str::to_owned),
                subject: None,
                list: envelope.list.map(str::to_owned),
                class: message.class().name().to_owned(),
                size: envelope.size,
                accepted: message.accepted(),
                expires: (!message.is_held()).then(|| message.accepted() + settings.lifetime_ms(message)),
                held: message.is_held(),
                held_by: if message.is_held() { holder(message).to_owned() } else { String::new() },
                // A rule holds a message from its acceptance on.
                held_since: message.held_by().map(|_| message.accepted()),
                origin: envelope.origin.to_owned(),
                message_id: envelope.message_id.to_owned(),
                fates: message_fates(message),
                recipients: Vec::with_capacity(recipients.len()),
            };
            Some((view, no, recipients, message.content(), envelope.message_id_at))
        });
        let Some((mut view, no, recipients, content, message_id_at)) = shown else {
            if self.core.with(|hub, _| hub.store.in_quarantine(id).is_some()) {
                let text = format!("message {id} is in the quarantine: `stentor quarantine show {id}`");
                return ControlReply::error(ErrorCode::NotFound, text);
            }
            return ControlReply::error(ErrorCode::NotFound, format!("no message {id} is in the queue"));
        };
        for part in recipients.chunks(RECIPIENTS_STEP) {
            self.core.with(|hub, now| {
                // Recipients served since are omitted.
                let Some(pending) = hub.store.message(no).map(Message::pending) else { return };
                let part = part.iter().filter(|id| pending.contains(**id));
                view.recipients.extend(part.map(|id| recipient(hub, no, AddressId(*id), now)));
            });
            tokio::task::yield_now().await;
        }
        if view.held
            && view.held_since.is_none()
            && let Some(hold) = holds::by_operator(&self.core, id, view.accepted).await
        {
            (view.held_by, view.held_since) = (hold.by, Some(hold.since));
        }
        let heading = report::headings(&self.core, &[id]).await.pop().flatten();
        view.subject = heading.map(|heading| heading.subject.clone());
        if let Some(at) = message_id_at {
            view.message_id = self.core.message_id(content, at);
        }
        ControlReply::Message(Box::new(view))
    }

    /// Answers verbs that change nothing.
    async fn observe(&self, observe: Observe) -> Result<ControlReply, Problem> {
        let (core, censuses) = (&self.core, &self.overviews.causes);
        match observe {
            Observe::Watch(_) | Observe::Traffic(_) => {
                Ok(ControlReply::error(ErrorCode::Failed, "a watch is a stream"))
            }
            Observe::Mailqq(options) => {
                let mailqq = waiting::mailqq(core, censuses, &options).await?;
                match lists::unknown(core, options.list.as_deref()).filter(|_| mailqq.rows.is_empty()) {
                    Some(problem) => Err(problem),
                    None => Ok(ControlReply::Mailqq(Box::new(mailqq))),
                }
            }
            Observe::Ages(view) => {
                let query = RowQuery::of(core, &view, Subject::Ages)?;
                Ok(ControlReply::Ages(Box::new(ages::ages(core, censuses, &query).await?)))
            }
            Observe::Hosts(HostsOptions { view, page }) => {
                let query = RowQuery::of(core, &view, Subject::Hosts)?;
                Ok(ControlReply::Hosts(Box::new(waiting::hosts(core, censuses, &query, &page).await?)))
            }
            Observe::Report(options) => self.report(options).await,
        }
    }

    async fn report(&self, ReportOptions { id, view }: ReportOptions) -> Result<ControlReply, Problem> {
        let core = &self.core;
        let (hostname, now) = (core.settings().config.hostname.clone(), core.clock.now());
        let is_all = id.is_none() && view.list.is_none();
        let rows: Vec<PostReport> = match id.as_deref().map(str::parse) {
            Some(Ok(id)) => report::post(core, id, view.rows_max, &Zone::utc()).await.into_iter().collect(),
            // Parsing was checked before.
            Some(Err(_)) => Vec::new(),
            None => report::posts_with_causes(core, &self.overviews.causes, &view).await,
        };
        match id {
            Some(id) if rows.is_empty() => Err(Problem::new(
                ErrorCode::NotFound,
                format!("{id} is neither queued nor among the latest posts; try `stentor trace {id}`"),
            )),
            _ => {
                if let Some(problem) = lists::unknown(core, view.list.as_deref()).filter(|_| rows.is_empty()) {
                    return Err(problem);
                }
                let complaints = if is_all { reputation::complaint_rows(core, now) } else { Vec::new() };
                Ok(ControlReply::Posts(Box::new(PostReports { hostname, now, rows, complaints })))
            }
        }
    }

    async fn answer(&self, request: Request, peer: Requester) -> ControlReply {
        match request {
            Request::Status => ControlReply::Status(Box::new(self.status().await)),
            Request::Doctor => {
                let status = self.status().await;
                ControlReply::Doctor(Box::new(doctor::examine(&self.core, &self.overviews.causes, &status).await))
            }
            Request::Users => ControlReply::Users(Box::new(users::view(&self.core))),
            Request::Queue(view) => self.queue_of(&view).await,
            Request::QueueStuck(view) => match self.stuck(&view).await {
                Ok(stuck) => ControlReply::Stuck(Box::new(stuck)),
                Err(problem) => ControlReply::Error(problem),
            },
            Request::QueueShow { id, recipients_max } => self.show(id, None, recipients_max as usize).await,
            Request::Address { address } => verbs::address(&self.core, &address).await,
            Request::Verify { address, from } => verify::verify(&self.core, &from, &address).await,
            Request::PostShow(options) => match posts::show(&self.core, &options).await {
                Ok(post) => ControlReply::Post(Box::new(post)),
                Err(problem) => ControlReply::Error(problem),
            },
            Request::Quarantine(options) => quarantine::list(&self.core, &options).await,
            Request::QuarantineCopy { id, to, reason } => quarantine::copy(&self.core, id, &to, reason, &peer).await,
            Request::QuarantineShow { id } => quarantine::show(&self.core, id, &peer).await,
            Request::Flush { site, dry_run } => verbs::flush(&self.core, &self.overviews.causes, site, dry_run).await,
            Request::Site { name, list } => site::view(&self.core, &self.overviews.causes, &name, list).await,
            Request::Suspend { what, dry_run: true, .. } => verbs::suspend_dry_run(&self.core, what, &peer).await,
            Request::Suspend { suspended, what, reason, for_s, .. } => {
                verbs::suspend(&self.core, suspended, what, reason, for_s, &peer).await
            }
            Request::Act {
                verb: verb @ (Verb::QuarantineRelease | Verb::QuarantineDelete),
                selection,
                dry_run,
                reason,
            } => quarantine::act(&self.core, verb, &selection, dry_run, reason, &peer).await,
            Request::Act { verb: Verb::Resend, selection, dry_run, reason } => {
                posts::resend(&self.core, &selection, dry_run, reason, &peer).await
            }
            Request::Act { verb, selection, dry_run, reason } => {
                verbs::act(&self.core, verb, &selection, dry_run, reason, &peer).await
            }
            Request::Bounce { selection, standing, dry_run, reason } => {
                verbs::bounce(&self.core, &selection, standing, dry_run, reason, &peer).await
            }
            Request::QueueOnly { scope, is_on, for_s, dry_run, reason } => {
                verbs::queue_only(&self.core, scope, is_on, for_s, dry_run, reason, &peer).await
            }
            Request::Dkim(request) => dkim::answer(&self.core, request).await,
            Request::QueueRun { dry_run, reason } => verbs::run_queue(&self.core, dry_run, reason, &peer).await,
            Request::Suppression(request) => verbs::suppressions(&self.core, request, &peer).await,
            Request::List(request) => self.lists(request, &peer).await.unwrap_or_else(ControlReply::Error),
            Request::Observe(observe) => self.observe(observe).await.unwrap_or_else(ControlReply::Error),
            Request::Export { .. } => ControlReply::error(ErrorCode::Failed, "an export is a stream"),
            Request::Cat { .. } => ControlReply::error(ErrorCode::Failed, "a content is a stream"),
            Request::Reload => self.reload().await,
            Request::Stop => self.stop(),
        }
    }

    async fn lists(&self, request: RosterRequest, peer: &Requester) -> Result<ControlReply, Problem> {
        let core = &self.core;
        match request {
            RosterRequest::Lists => made_lists::table(core, None),
            RosterRequest::Show(list) => made_lists::table(core, Some(&list.name)),
            RosterRequest::Create(new) => {
                let members = core.registry.member_count(&new.name);
                let former = format!(", with {} of a former list of this name", plural(members, "member"));
                let former = if members == 0 { "" } else { &former };
                let domain = new.address.rsplit_once('@').map_or("", |(_, domain)| domain).to_ascii_lowercase();
                let is_new = !core.settings().policy.is_local_domain(&domain);
                let local = format!("; {domain} is a local domain from now on: its other addresses are refused");
                let local = if is_new { &local } else { "" };
                let text = format!("list {} takes posts at {}{former}{local}", new.name, new.address);
                self.edit_list(|| ListEdit::create(core, new), &text).await
            }
            RosterRequest::Set(change) => {
                let text = format!("list {} changed", change.name);
                self.edit_list(|| ListEdit::set(core, change), &text).await
            }
            RosterRequest::Delete(list) => {
                let text = format!("list {} deleted", list.name);
                self.edit_list(|| ListEdit::delete(core, list), &text).await
            }
            RosterRequest::Members(options) => verbs::members::table(core, options).await,
            RosterRequest::Add(new) => verbs::members::add(core, new, peer).await,
            RosterRequest::Remove(removal) => verbs::members::remove(core, removal, peer).await,
            RosterRequest::SetDelivery(setting) => verbs::members::set_delivery(core, setting, peer).await,
            RosterRequest::Person(options) => verbs::members::person(core, options).await,
        }
    }

    /// Writes a list's file and reloads. If that is refused, the file is as before.
    async fn edit_list(
        &self,
        edit: impl FnOnce() -> Result<ListEdit, Problem>,
        text: &str,
    ) -> Result<ControlReply, Problem> {
        let _turn = self.listing.lock().await;
        let edit = edit()?;
        let settings = self.core.settings();
        let data_dir = settings.config.data_dir.clone();
        tokio::task::block_in_place(|| edit.check(&settings))?;
        // Small files; other requests have threads of their own.
        tokio::task::block_in_place(|| edit.write(&data_dir))?;
        match self.reload().await {
            ControlReply::Error(problem) if problem.code != ErrorCode::NeedsRestart => {
                tokio::task::block_in_place(|| edit.undo(&data_dir))?;
                Err(Problem { text: format!("nothing was changed: {}", problem.text), ..problem })
            }
            _ if edit.is_deletion() => {
                let members = made_lists::delete_members(&self.core, &edit.name).await?;
                Ok(ControlReply::done(format!("{text}, with {}", plural(members, "member")), Some(members)))
            }
            _ => Ok(ControlReply::done(text, None)),
        }
    }

    fn audit(&self, verb: &str, detail: &str, peer: &Requester) {
        log::audit_note(&self.core, verb, &verbs::who(peer), detail);
    }

    /// Waits for the outcome, so that the caller learns whether the configuration is in force.
    async fn reload(&self) -> ControlReply {
        let (answer, outcome) = oneshot::channel();
        if self.demands.send(Demand::Reload(Some(answer))).is_ok()
            && let Ok(reloaded) = outcome.await
        {
            return reloaded.into();
        }
        ControlReply::error(ErrorCode::Failed, "the server is stopping")
    }

    fn stop(&self) -> ControlReply {
        match self.demands.send(Demand::Stop) {
            Ok(()) => ControlReply::done("stopping once open transactions have ended", None),
            Err(_) => ControlReply::error(ErrorCode::Failed, "the server is stopping"),
        }
    }
}

impl Control for Operator {
    async fn handle(&self, request: Request, peer: Requester) -> ControlReply {
        let changes = request.changes();
        // Verbs on mail log their result themselves, and suppressions may be many.
        if changes != ChangeScope::Nothing
            && !matches!(request, Request::Act { .. } | Request::Suppression(_) | Request::List(_))
        {
            tracing::info!(who = verbs::who(&peer), ?request, "operator");
        }
        // Journaled changes are announced when they take effect.
        match &request {
            Request::Flush { site, dry_run: false } => self.audit("flush", site.as_deref().unwrap_or_default(), &peer),
            Request::Dkim(DkimRequest::Rotate(options)) => self.audit("dkim_rotate", &options.domain, &peer),
            Request::List(RosterRequest::Create(new)) => self.audit("list_create", &new.name, &peer),
            Request::List(RosterRequest::Set(change)) => self.audit("list_set", &change.name, &peer),
            Request::List(RosterRequest::Delete(list)) => self.audit("list_delete", &list.name, &peer),
            Request::Reload => self.audit("reload", "", &peer),
            Request::Stop => self.audit("stop", "", &peer),
            _ => {}
        }
        let turn = if changes == ChangeScope::Mail { Some(self.acting.lock().await) } else { None };
        let reply = self.answer(request, peer).await;
        drop(turn);
        if changes != ChangeScope::Nothing {
            self.overviews.causes.changed();
        }
        reply
    }

    fn turned_away(&self) {
        self.core.limits.hit(Limit::ControlConnections, self.core.clock.now());
    }

    fn reader_stalled(&self, waited: Duration) {
        let waited = span(waited.as_millis() as u64);
        tracing::warn!("control socket: closed a connection whose client did not read the reply for {waited}");
    }

    async fn export(&self, selection: Selection, lines: mpsc::Sender<Vec<EnvelopeView>>) -> ControlReply {
        verbs::export(&self.core, &selection, lines).await
    }

    async fn traffic(
        &self,
        options: TrafficOptions,
        peer: Requester,
        lines: mpsc::Sender<Vec<TrafficLine>>,
    ) -> ControlReply {
        traffic(&self.core, options, &verbs::who(&peer), lines).await
    }

    async fn cat(&self, id: MessageId, part: Part, peer: Requester, pieces: mpsc::Sender<Vec<u8>>) -> ControlReply {
        verbs::cat(&self.core, id, part, &peer, pieces).await
    }

    async fn watch(&self, options: WatchOptions, snapshots: mpsc::Sender<Snapshot>) -> ControlReply {
        let Ok(_place) = self.watching.try_acquire() else {
            return ControlReply::error(ErrorCode::Busy, format!("{WATCHERS_MAX} watchers already"));
        };
        let mut watch = match Watch::begin(self.core.clone(), self.overviews.clone(), options) {
            Ok(watch) => watch,
            Err(problem) => return ControlReply::Error(problem),
        };
        let (mut sent, count) = (0, watch.options().count);
        while count == 0 || sent < count {
            let snapshot = tokio::select! {
                () = snapshots.closed() => break,
                snapshot = watch.next() => snapshot,
            };
            if snapshots.send(snapshot).await.is_err() {
                break;
            }
            sent += 1;
        }
        ControlReply::done("end of stream", Some(sent))
    }
}
