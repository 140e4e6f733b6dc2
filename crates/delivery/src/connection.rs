//! One outgoing connection: a client session, its socket, and the transactions that the scheduler gives it.
//!
//! The task ends when the session does. The scheduler gets exactly one answer for every transaction taken, even if the
//! connection is lost in the middle: the session reports what it knew. A connection without work waits for the
//! scheduler's signal; the scheduler decides when an idle one is closed.
//!
//! If a host refuses an extension that it offers, the transaction, or the rest of it, is repeated without the
//! extension. This happens in the same session while its replies can still be told apart, otherwise (BDAT) over one new
//! connection that replaces this one. There are at most [`TRIES_MAX`] tries and one more connection; the scheduler only
//! gets the final outcome. The cause is remembered for the host ([`stentor_core::host_knowledge`]).

mod logging_in;
mod securing;
mod sending;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use stentor_core::assignment::{Assignment, EarlierTries};
use stentor_core::hub::Signal;
use stentor_core::live::traffic::TappedSession;
use stentor_core::log::AttemptTarget;
use stentor_core::suppression::take_assignment;
use stentor_core::{Core, Settings, log};
use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{ConnId, Ms};
use stentor_queue::site::Target;
use stentor_sched::{CloseReason, NoSession, RcptOutcome, SessionSoFar, SourceNo, Stage};
use stentor_smtp::client::{
    ClientError, ClientEvent, ClientSession, Extensions, OfferedMechanisms, RcptResult, RcptStage, SaslOctets,
};

use super::body::BodyProgress;
use super::connect_progress::ConnectProgress;
use super::ending::{close_reason, dsn, for_site, no_session, said, tls_word};
use super::loops::{self, LoopAction, leads_back};
use super::opening::{ConnectError, OpenConnection, open_in_time, place};
use super::outcome;
use super::protection::Protection;
use super::report_counts::{self, PolicyViolation, SessionEndpoints};
use super::stream::{Stream, tls_error};

const READ_BYTES: usize = 32 * 1024;
/// Minimum interval between progress reports to the scheduler; well under the silence after which a host changes lanes.
const PROGRESS_MS: Ms = 500;
/// Tries of one transaction over a connection: enough for a host that refuses two extensions, one after the other.
const TRIES_MAX: u8 = 3;
/// Octets of pending output above which further content waits for the socket.
const OUTPUT_BYTES_HIGH: usize = 128 * 1024;

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Performs `Effect::Connect`.
pub async fn connect(core: Arc<Core>, conn: ConnId, source: SourceNo, target: Target, signal: Arc<Signal>) {
    let settings = core.settings();
    let begun = core.clock.now();
    match open_in_time(&core, &settings, source, &target, &signal, None).await {
        Ok(OpenConnection { stream, smtp, protection }) => {
            let our_ip = report_counts::our_ip(&stream);
            let connection = Connection {
                smtp,
                conn,
                target,
                signal,
                stream,
                protection,
                pending: None,
                login: None,
                token: None,
                has_new_token: false,
                settings,
                open: VecDeque::new(),
                again: VecDeque::new(),
                held: None,
                sending: None,
                unreadable: None,
                unfit: None,
                is_loop: false,
                counted: Vec::new(),
                out_at: 0,
                is_ready: false,
                was_ready: false,
                is_second: false,
                tls_failed: None,
                begun_any: false,
                answered: false,
                is_starved: false,
                is_alive: false,
                has_delivered: false,
                is_closed_by_host: false,
                source,
                begun,
                progress_at: core.clock.steady(),
                way: ConnectProgress::begin(core.clock.steady()),
                tap: None,
                tap_generation: 0,
                our_ip,
                core: core.clone(),
            };
            connection.run().await;
            core.with(|hub, _| hub.connection_gone(conn));
        }
        Err(error) => {
            let requested = RequestedConnection { conn, source, target: &target, begun };
            connect_failed(&core, &settings, requested, &error).await;
        }
    }
}

/// A connection that the scheduler requested.
#[derive(Clone, Copy)]
struct RequestedConnection<'a> {
    conn: ConnId,
    source: SourceNo,
    target: &'a Target,
    begun: Ms,
}

/// Reports a failed connection to the scheduler, the traffic log, TLS reports and the log.
async fn connect_failed(
    core: &Arc<Core>,
    settings: &Settings,
    requested: RequestedConnection<'_>,
    error: &ConnectError,
) {
    let RequestedConnection { conn, source, target, begun } = requested;
    let tls_failure = error.tls();
    let word = tls_failure.map_or_else(String::new, |error| format!("failed:{}", error.cause.key()));
    let why = for_site(error.why(), None, tls_failure, target);
    let (text, violation) = (error.text(target), tls_failure.map(PolicyViolation::of));
    let tally = core.with(|hub, now| {
        hub.connection_gone(conn);
        hub.connect_failed(conn, why, &text, now)
    });
    if matches!(why, NoSession::Reply { .. }) {
        log::session_refused(core, &via(settings, source, target, &word), &text);
    }
    let unreached = tally.count(core).await;
    if let Some(tap) = core.live.traffic.of_host(&target.addr) {
        tap.event(core.clock.now(), &format!("connection to {} failed: {text}", place(target)));
    }
    if let Some(violation) = &violation {
        let our_ip = report_counts::source_ip(settings.config.sending.sources.get(usize::from(source)), target);
        let endpoints = SessionEndpoints { target, our_ip };
        report_counts::count_unreached(core, settings, endpoints, &unreached, violation);
    }
    log::connect_failed(core, &via(settings, source, target, &word), begun, dsn(why), &text, &unreached);
}

/// Returns the target of a transaction or a failed connection, for the log.
fn via<'a>(settings: &'a Settings, source: SourceNo, target: &'a Target, tls: &'a str) -> AttemptTarget<'a> {
    let source = settings.config.sending.sources.get(usize::from(source)).map_or("", |source| source.name.as_str());
    AttemptTarget { target, source, tls, has_delivered: false }
}

struct Connection {
    core: Arc<Core>,
    source: SourceNo,
    /// Our own address on this connection.
    our_ip: Option<std::net::IpAddr>,
    settings: Arc<Settings>,
    conn: ConnId,
    target: Target,
    signal: Arc<Signal>,
    stream: Stream,
    /// TLS requirements, and the session's TLS.
    protection: Protection,
    /// The step that the session waits for.
    pending: Option<SetupStep>,
    /// AUTH in progress.
    login: Option<Box<stentor_sasl::ClientExchange>>,
    /// Generation of the access token that was sent.
    token: Option<u64>,
    /// This connection replaces one on which an access token was refused, at most once per attempt.
    has_new_token: bool,
    smtp: ClientSession,
    /// Transactions begun, oldest first.
    open: VecDeque<Assignment>,
    /// Transactions to retry before any others, without the refused extension.
    again: VecDeque<Assignment>,
    /// A transaction that was taken, but is too large to be pipelined behind the open ones.
    held: Option<Assignment>,
    /// The content of the newest open transaction, while it is being sent.
    sending: Option<BodyProgress>,
    /// The transaction whose content could not be read to its end: the connection ends with it, by our own fault.
    unreadable: Option<u64>,
    /// Domains whose TLS reports already count this session.
    counted: Vec<Box<str>>,
    /// Requirement of all mail of the site that the host lacks, so that the session cannot be used.
    unfit: Option<(Enhanced, String)>,
    /// The host is this server: mail passed to it is returned.
    is_loop: bool,
    out_at: usize,
    is_ready: bool,
    /// The scheduler knows that the host has greeted us.
    was_ready: bool,
    /// This connection replaces one on which BDAT was refused.
    is_second: bool,
    /// This connection replaces one on which TLS failed, for this reason: at most once per attempt, whatever is
    /// remembered of the host.
    tls_failed: Option<&'static str>,
    /// Whether a transaction was begun in this session, and whether one ended with replies for all its recipients.
    begun_any: bool,
    answered: bool,
    /// The scheduler had no work; it will signal.
    is_starved: bool,
    /// Octets were sent to or received from the host since the last progress report.
    is_alive: bool,
    /// A transaction delivered to at least one recipient.
    has_delivered: bool,
    /// The host closed TLS with a close notification.
    is_closed_by_host: bool,
    /// When the connection was requested.
    begun: Ms,
    /// Time of the last progress report to the scheduler.
    progress_at: Ms,
    /// Progress towards a session, while the scheduler knows of none.
    way: ConnectProgress,
    /// The session's watchers, as of this generation.
    tap: Option<Box<TappedSession>>,
    tap_generation: u64,
}

/// Steps that a session waits for before its first transaction.
enum SetupStep {
    Handshake,
    Login(OfferedMechanisms),
    Challenge(Vec<u8>),
    LoggedIn,
}

/// The end of the session, with its error if there was one.
struct SessionEnd {
    error: Option<ClientError>,
}

impl Connection {
    async fn run(mut self) {
        self.look_for_watchers();
        loop {
            if let Some(SessionEnd { error }) = self.events() {
                if self.reconnect(error.as_ref()).await {
                    continue;
                }
                self.finish(error).await;
                return;
            }
            if let Some(pending) = self.pending.take() {
                Box::pin(self.prepare_session(pending)).await;
                continue;
            }
            let is_empty = self.open.is_empty() && self.again.is_empty() && self.held.is_none();
            if self.signal.must_close() && is_empty {
                let now = self.core.clock.steady();
                self.smtp.quit(now);
            }
            if self.signal.must_give_way() {
                self.give_way();
            }
            if self.tap_generation != self.core.live.traffic.generation() && self.is_between() {
                self.look_for_watchers();
            }
            self.begin().await;
            self.send_content();
            self.report_progress();
            if let Err(error) = self.exchange().await {
                tracing::debug!(host = %self.target.host, %error, "connection lost");
                match tls_error(&error) {
                    Some(error) => {
                        self.protection.has_broken(error);
                        self.smtp.tls_failed(&error.text);
                    }
                    None => self.smtp.disconnected(),
                }
            }
        }
    }

    /// Performs a step that the session waits for before its first transaction.
    async fn prepare_session(&mut self, pending: SetupStep) {
        match pending {
            SetupStep::Handshake => self.secure().await,
            SetupStep::Login(offered) => self.log_in(offered).await,
            SetupStep::Challenge(octets) => self.respond(octets).await,
            SetupStep::LoggedIn => {
                if let Some(Err(error)) = self.login.take().map(|login| login.finish()) {
                    self.smtp.decline_auth(&error.to_string(), self.core.clock.steady());
                }
            }
        }
    }

    /// Whether no transaction is open and nothing is on its way to the host.
    fn is_between(&mut self) -> bool {
        let is_empty = self.open.is_empty() && self.again.is_empty() && self.held.is_none() && self.sending.is_none();
        is_empty && self.is_ready && self.smtp.in_flight() == 0 && self.smtp.output().is_empty()
    }

    /// Whether a new watcher waits for the open transactions to end. Nothing new begins until then.
    fn awaits_watcher(&mut self) -> bool {
        let traffic = &self.core.live.traffic;
        let generation = traffic.generation();
        if self.tap_generation == generation {
            return false;
        }
        if traffic.is_watched(&self.target.addr) {
            // It came after the last look: without a transaction that could end, nothing would wake this session again.
            if self.is_between() {
                self.look_for_watchers();
                return false;
            }
            return true;
        }
        (self.tap_generation, self.tap) = (generation, None);
        false
    }

    /// Updates the session's watchers after watchers have come or gone.
    fn look_for_watchers(&mut self) {
        let traffic = &self.core.live.traffic;
        self.tap_generation = traffic.generation();
        self.tap = traffic.of_host(&self.target.addr);
        if let Some(tap) = &self.tap {
            let what = if self.is_ready { "session with" } else { "connected to" };
            tap.event(self.core.clock.now(), &format!("{what} {}", place(&self.target)));
        }
    }

    /// Gives this silent connection's slot to others. After the end of some data has been sent the connection stays
    /// open: closing it would deliver the message twice.
    fn give_way(&mut self) {
        if self.smtp.has_data_out() {
            self.signal.stays();
            let conn = self.conn;
            self.core.with(|hub, now| hub.sched.stays(conn, now));
        } else {
            self.smtp.quit(self.core.clock.steady());
        }
    }

    /// Reports progress to the scheduler now and then: a host that answers or accepts content in the middle of a
    /// transaction is not silent. The scheduler sees the end of transactions anyway.
    fn report_progress(&mut self) {
        let now = self.core.clock.steady();
        if std::mem::take(&mut self.is_alive) && !self.open.is_empty() && now >= self.progress_at + PROGRESS_MS {
            self.progress_at = now;
            let conn = self.conn;
            self.core.with(|hub, now| hub.sched.progress(conn, now));
        }
        self.report_way(now);
    }

    /// Reports a host that is slow before the session begins.
    fn report_way(&mut self, now: Ms) {
        if self.was_ready {
            return;
        }
        self.way.see(self.smtp.replies(), now);
        if let Some((reach, waited_ms)) = self.way.tell(now) {
            let conn = self.conn;
            self.core.with(|hub, now| hub.sched.reached(conn, reach, waited_ms, now));
        }
    }

    /// Replaces an ended session's connection within the same attempt, if a new one can be opened, and returns whether
    /// it did. There are three reasons: BDAT was refused (once, since later replies can no longer be matched to
    /// commands); TLS failed and mail may go in clear; or an access token was refused and there is another.
    async fn reconnect(&mut self, error: Option<&ClientError>) -> bool {
        let is_refused = matches!(error, Some(ClientError::ChunkingRefused(_))) && !self.is_second;
        let begins_anew = is_refused || error.is_some_and(|error| self.give_up_tls(error));
        if !begins_anew && !self.replace_refused_token(error).await {
            return false;
        }
        self.is_second |= is_refused;
        match open_in_time(&self.core, &self.settings, self.source, &self.target, &self.signal, self.tls_failed).await {
            Ok(OpenConnection { stream, smtp, protection }) => {
                (self.stream, self.smtp, self.protection, self.out_at) = (stream, smtp, protection, 0);
                (self.is_ready, self.begun_any, self.answered) = (false, false, false);
                self.is_closed_by_host = false;
                if let Some(tap) = &mut self.tap {
                    tap.restart();
                    tap.event(self.core.clock.now(), "connected again");
                }
                true
            }
            Err(_) => false,
        }
    }

    /// Handles the session's events. `Some` ends the session.
    fn events(&mut self) -> Option<SessionEnd> {
        while let Some(event) = self.smtp.poll_event() {
            match event {
                ClientEvent::Unsecured(why) => self.unsecured(&why),
                ClientEvent::StartTls => {
                    self.pending = Some(SetupStep::Handshake);
                    return None;
                }
                ClientEvent::Authenticate(offered) => {
                    self.pending = Some(SetupStep::Login(offered));
                    return None;
                }
                ClientEvent::Challenge(SaslOctets(octets)) => {
                    self.pending = Some(SetupStep::Challenge(octets));
                    return None;
                }
                ClientEvent::Authenticated => {
                    self.pending = Some(SetupStep::LoggedIn);
                    return None;
                }
                ClientEvent::Ready(_) if self.note_unfit() => self.smtp.quit(self.core.clock.steady()),
                ClientEvent::Ready(_) if self.is_loop_to_defer() => {
                    let text = loops::text(&self.target, &self.settings.config.hostname);
                    self.smtp.refuse(loops::DEFERRED, &text);
                }
                ClientEvent::Ready(_) => {
                    self.is_ready = true;
                    self.note_tls_works();
                    self.protection.count(&self.core.measures);
                    self.see_tls();
                    if std::mem::replace(&mut self.was_ready, true) {
                        continue;
                    }
                    let conn = self.conn;
                    let (transactions, recipients) = (self.smtp.caps().transactions_max, self.smtp.caps().rcpts_max);
                    self.core.with(|hub, now| {
                        hub.sched.connected(conn, now);
                        if transactions.is_some() || recipients.is_some() {
                            hub.sched.limits_offered(conn, transactions, recipients);
                        }
                    });
                }
                ClientEvent::Done { tx, results } => self.done(tx, results),
                ClientEvent::Closed { error } => {
                    if let Some(error) = &error {
                        self.note(error);
                        self.note_tls_works();
                    }
                    return Some(SessionEnd { error });
                }
            }
        }
        None
    }

    /// Notes whether the host is this server. Returns whether it must therefore not be used.
    fn is_loop_to_defer(&mut self) -> bool {
        let (conn, preference) = (self.conn, self.target.preference);
        let Some(way) = self.core.with(|hub, _| hub.sched.way_of(conn, preference)) else { return false };
        let found = leads_back(&self.settings, &self.target, &self.smtp, way);
        if found.is_some() {
            let hostname = &self.settings.config.hostname;
            tracing::warn!(host = %self.target.host, address = %self.target.addr, "{}", loops::text(&self.target, hostname));
        }
        self.is_loop = found == Some(LoopAction::ForGood);
        found == Some(LoopAction::Here)
    }

    /// Ends a transaction: usually the oldest, but one that the session itself refuses ends at once.
    fn done(&mut self, tx: u64, results: Vec<RcptResult>) {
        let Some(at) = self.open.iter().position(|assignment| assignment.work.tx.0 == tx) else { return };
        let Some(assignment) = self.open.remove(at) else { return };
        if at == self.open.len() {
            // It was the newest, whose content would be in progress.
            self.sending = None;
        }
        let is_lost = |result: &RcptResult| matches!(result.stage, RcptStage::Lost | RcptStage::AfterDot);
        let is_own = |result: &RcptResult| result.stage == RcptStage::Local;
        if !self.answered && !results.iter().any(is_lost) && !results.iter().all(is_own) {
            self.answered = true;
            self.core.known.answered(&self.target.addr, self.core.clock.steady());
        }
        self.prove(&assignment, &results);
        if let Some(assignment) = self.try_again(assignment, &results) {
            let outcomes = if self.unreadable == Some(tx) {
                outcome::same(&assignment, Stage::Unreadable, 0, OWN_FAILURE, UNREADABLE)
            } else {
                outcome::outcomes(&assignment, &results)
            };
            self.smtp.recycle(results);
            self.apply_outcomes(&assignment, &outcomes);
        }
    }

    /// Checks whether the extensions left out of this try were the cause. If so, that is remembered for the host;
    /// otherwise they are used again.
    fn prove(&mut self, assignment: &Assignment, results: &[RcptResult]) {
        // A refused BDAT needs no proof.
        let blamed = assignment.tried.as_ref().map(|tried| tried.blamed.without(Extensions::CHUNKING));
        let Some(blamed) = blamed.filter(|blamed| !blamed.is_empty()) else { return };
        let is_further = |result: &RcptResult| {
            matches!(result.stage, RcptStage::Data | RcptStage::Final) && result.blames.is_empty()
        };
        if results.iter().any(is_further) {
            self.remember(blamed);
        } else {
            self.smtp.restore(blamed);
        }
    }

    fn remember(&self, refused: Extensions) {
        let host = &self.target.host;
        tracing::info!(
            %host, address = %self.target.addr,
            "{refused}: offered but refused; temporarily disabled for this host"
        );
        self.core.known.refused(&self.target.addr, refused, self.core.clock.steady());
    }

    fn via(&self) -> AttemptTarget<'_> {
        let via = via(&self.settings, self.source, &self.target, self.protection.text());
        AttemptTarget { has_delivered: self.has_delivered, ..via }
    }

    /// Keeps recipients for another try if their refusal may be about an extension; returns the transaction if there
    /// are none.
    fn try_again(&mut self, mut assignment: Assignment, results: &[RcptResult]) -> Option<Assignment> {
        let blamed = results.iter().fold(Extensions::NONE, |all, result| all.and(result.blames));
        let tries = assignment.tried.as_ref().map_or(1, |tried| tried.tries);
        if blamed.is_empty() || tries >= TRIES_MAX {
            return Some(assignment);
        }
        let blames = assignment.positions().zip(results).filter(|(_, result)| !result.blames.is_empty());
        let open = blames.map(|(position, _)| position as u32).collect();
        let outcomes = outcome::outcomes(&assignment, results);
        // Recipients that have their copy do not wait for the next try: a crash during it would deliver to them twice.
        self.core.with(|hub, now| outcome::delivered(hub, assignment.no, &outcomes, now));
        assignment.tried = Some(Box::new(EarlierTries { tries: tries + 1, blamed, outcomes, open }));
        self.smtp.withhold(blamed);
        self.again.push_back(assignment);
        None
    }

    /// Notes what the end of a session reveals about the host's extensions.
    fn note(&self, error: &ClientError) {
        let is_loss = matches!(
            error,
            ClientError::Reply(_)
                | ClientError::Unsolicited(_)
                | ClientError::Unexpected { .. }
                | ClientError::TimedOut(_)
                | ClientError::Disconnected(_)
        );
        if matches!(error, ClientError::ChunkingRefused(_)) {
            self.remember(Extensions::CHUNKING);
        } else if is_loss && self.begun_any && !self.answered && self.unreadable.is_none() {
            let host = &self.target.host;
            if self.core.known.lost(&self.target.addr, self.core.clock.steady()) {
                tracing::info!(
                    %host, address = %self.target.addr,
                    "{error} again; PIPELINING and CHUNKING temporarily disabled for this host"
                );
            }
        }
    }

    fn session_so_far(&self) -> SessionSoFar {
        SessionSoFar { is_lmtp: self.target.lmtp, has_delivered: self.has_delivered }
    }

    /// Reports outcomes to queue, scheduler and log. Takes the next transaction under the same lock if one may begin at
    /// once.
    fn apply_outcomes(&mut self, assignment: &Assignment, outcomes: &[RcptOutcome]) {
        self.core.counters.transactions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (conn, session) = (self.conn, self.session_so_far());
        let is_free = self.held.is_none() && self.again.is_empty();
        let wants_more = is_free && self.smtp.can_begin() && !self.signal.must_close();
        let next = self.core.with(|hub, now| {
            outcome::apply(hub, conn, assignment, outcomes, session, now);
            wants_more.then(|| take_assignment(&self.core, hub, conn, now)).flatten()
        });
        if wants_more {
            self.is_starved = next.is_none();
            self.held = next;
        }
        log::attempt(&self.core, assignment, outcomes, &self.via());
        self.has_delivered |= outcomes.iter().any(RcptOutcome::is_delivered);
        if !self.smtp.caps().dsn {
            super::bounce::relayed(&self.core, assignment, outcomes, &self.target.host);
        }
    }

    /// Writes pending output, and waits for one event: readable, writable, work or a deadline. The caller repeats this.
    async fn exchange(&mut self) -> io::Result<()> {
        if self.smtp.is_closed() {
            return Ok(());
        }
        self.write()?;
        if self.open.len() > self.smtp.in_flight() {
            // The session refused a transaction without asking the host: its event is waiting.
            return Ok(());
        }
        if self.sending.is_some() && self.smtp.wants_body() && self.smtp.output().is_empty() {
            // A host that accepts everything at once must not monopolize the thread.
            tokio::task::yield_now().await;
            return Ok(());
        }
        loop {
            if self.read()? {
                return Ok(());
            }
            let deadline = self.smtp.deadline().min(if self.was_ready { Ms::MAX } else { self.way.due() });
            let interest = if self.out_at < self.smtp.output().len() {
                tokio::io::Interest::READABLE | tokio::io::Interest::WRITABLE
            } else {
                tokio::io::Interest::READABLE
            };
            tokio::select! {
                biased;
                ready = self.stream.ready(interest) => {
                    if ready?.is_writable() {
                        self.write()?;
                        if self.smtp.output().is_empty() {
                            return self.read().map(drop);
                        }
                    }
                }
                () = self.signal.signalled() => {
                    self.is_starved = false;
                    return Ok(());
                }
                () = tokio::time::sleep_until(self.core.clock.steady_instant(deadline.min(FAR_MS + self.core.clock.steady()))) => {
                    self.smtp.timed_out(self.core.clock.steady());
                    return Ok(());
                }
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while self.out_at < self.smtp.output().len() {
            match self.stream.try_write(&self.smtp.output()[self.out_at..]) {
                Ok(n) => {
                    if let Some(tap) = &mut self.tap {
                        let now = self.core.clock.now();
                        if self.smtp.in_auth() {
                            tap.client(now, HIDDEN);
                        } else {
                            tap.client(now, &self.smtp.output()[self.out_at..self.out_at + n]);
                        }
                    }
                    self.out_at += n;
                    self.core.live.sent(n);
                    self.is_alive = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.smtp.output().clear();
        self.out_at = 0;
        Ok(())
    }

    /// Reads what has arrived. Returns whether there was anything.
    fn read(&mut self) -> io::Result<bool> {
        READ_BUFFER.with_borrow_mut(|buffer| match self.stream.try_read(buffer) {
            Ok(0) => {
                self.is_closed_by_host = self.stream.has_host_closed_tls();
                self.smtp.disconnected();
                Ok(true)
            }
            Ok(n) => {
                self.core.live.received(n);
                if let Some(tap) = &mut self.tap {
                    let shown = if self.smtp.in_auth() { HIDDEN } else { &buffer[..n] };
                    tap.server(self.core.clock.now(), shown);
                }
                let replies = self.smtp.replies();
                // The session's last event also has the error.
                let _ = self.smtp.receive(&buffer[..n], self.core.clock.steady());
                // A single octet now and then is not a sign of life.
                self.is_alive |= self.smtp.replies() > replies;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Ends the connection. Transactions taken but not begun are returned to the scheduler.
    async fn finish(mut self, error: Option<ClientError>) {
        let refused = no_session(error.as_ref(), self.tls_progress());
        let is_tls = refused == NoSession::Tls;
        let refused = for_site(refused, error.as_ref(), self.protection.failed(), &self.target);
        let refused = self.unfit.as_ref().map_or(refused, |(dsn, _)| NoSession::Unfit { dsn: *dsn });
        let said = said(error.as_ref()).cloned();
        if is_tls {
            self.core.measures.tls_failures.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if let Some(error) = &error {
                self.protection.has_failed(tls_word(error, self.protection.broken()));
            }
        }
        self.stream.close().await;
        let error = error.filter(|_| self.unreadable.is_none());
        let text = &*match &self.unfit {
            Some((_, text)) => text.clone(),
            None => error.as_ref().map_or_else(|| "closed".to_owned(), ToString::to_string),
        };
        let reason = close_reason(error);
        if let Some(tap) = &self.tap {
            tap.event(self.core.clock.now(), text);
        }
        let left = std::mem::take(&mut self.again).into_iter().chain(std::mem::take(&mut self.open));
        for assignment in left.chain(self.held.take()) {
            let outcomes = outcome::same(&assignment, Stage::Lost, 0, Enhanced::new(4, 4, 2), text);
            log::attempt(&self.core, &assignment, &outcomes, &self.via());
            let (conn, session) = (self.conn, self.session_so_far());
            self.core.with(|hub, now| outcome::apply(hub, conn, &assignment, &outcomes, session, now));
        }
        let (conn, was_ready) = (self.conn, self.was_ready);
        let is_before_mail = !self.begun_any && !matches!(reason, CloseReason::Normal);
        let tally = self.core.with(|hub, now| {
            if was_ready {
                return hub.closed(conn, &reason, is_before_mail, now);
            }
            let why = match (&said, &reason) {
                _ if self.unfit.is_some() => text,
                (Some(reply), _) => &reply.text,
                (None, CloseReason::Normal) => "the session ended before it began",
                (None, CloseReason::Refused { text } | CloseReason::Lost { text }) => text,
            };
            Some(hub.connect_failed(conn, refused, why, now))
        });
        if let Some(tally) = tally {
            let unreached = tally.count(&self.core).await;
            if is_tls {
                let found = self.protection.broken().map_or_else(PolicyViolation::not_offered, PolicyViolation::of);
                let ends = SessionEndpoints { target: &self.target, our_ip: self.our_ip };
                report_counts::count_unreached(&self.core, &self.settings, ends, &unreached, &found);
            }
            let (dsn, text) = if was_ready {
                (BEFORE_MAIL, &*format!("session ended before MAIL: {text}"))
            } else {
                (dsn(refused), text)
            };
            log::connect_failed(&self.core, &self.via(), self.begun, dsn, text, &unreached);
        }
    }
}

/// Replaces AUTH data where sessions are watched.
const HIDDEN: &[u8] = b"(AUTH)\r\n";

/// Code of a session that the host ended before any command (RFC 3463 section 3.5: bad connection).
const BEFORE_MAIL: &str = "4.4.2";
const UNREADABLE: &str = "stored content unreadable";
const UNSIGNED: &str = "DKIM signature could not be made";
const OWN_FAILURE: Enhanced = Enhanced::new(4, 3, 0);

/// An idle session has no deadline of its own: the scheduler closes it.
const FAR_MS: Ms = 24 * 3_600_000;
