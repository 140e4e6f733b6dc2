//! One outgoing connection: a client session, its socket, and the transactions that the scheduler gives it.
//!
//! The task ends when the session does. Every transaction taken is answered to the scheduler exactly once, also when
//! the connection is lost in the middle: the session reports what it knew. A connection that has no work waits for the
//! scheduler's signal; the scheduler decides when an idle one is closed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stentor_mail::client::{ClientError, ClientEvent, ClientSession, RcptResult, TxRcpt, TxSpec};
use stentor_queue::ids::{ConnId, Ms};
use stentor_queue::sched::{CloseReason, Dsn, RcptOutcome, SourceNo, Stage};
use stentor_queue::site::Target;
use tokio::net::{TcpSocket, TcpStream};

use super::assignment::Assignment;
use super::body::{ContentError, Outgoing};
use super::outcome;
use crate::core::hub::Signal;
use crate::core::log::Via;
use crate::core::{Core, Settings, log};

const READ_BYTES: usize = 32 * 1024;
/// How often the scheduler is told that a host is alive; well under the silence that changes lanes.
const PROGRESS_MS: Ms = 500;
/// Octets of output after which more content waits for the socket.
const OUTPUT_BYTES_HIGH: usize = 128 * 1024;

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Carries out `Effect::Connect`.
pub async fn connect(core: Arc<Core>, conn: ConnId, source: SourceNo, target: Target, signal: Arc<Signal>) {
    let settings = core.settings();
    let begun = core.clock.now();
    let patience = Duration::from_millis(settings.config.delivery.connect_timeout_ms);
    let opened = tokio::select! {
        opened = tokio::time::timeout(patience, open(&settings, source, &target)) => opened,
        why = closed(&signal) => Ok(Err(io::Error::other(why))),
    };
    let failed = match opened {
        Ok(Ok(stream)) => {
            core.counters.connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = stream.set_nodelay(true);
            let client = settings.client_for(source, &target);
            let smtp = ClientSession::new(client, core.clock.now());
            let connection = Connection {
                smtp,
                conn,
                target,
                signal,
                stream,
                settings,
                open: VecDeque::new(),
                held: None,
                sending: None,
                out_at: 0,
                is_ready: false,
                is_starved: false,
                is_alive: false,
                source,
                begun,
                progress_at: begun,
                core: core.clone(),
            };
            connection.run().await;
            core.with(|hub, _| hub.connection_gone(conn));
            return;
        }
        Ok(Err(error)) => plain(&error),
        Err(_) => "Connection timed out".to_owned(),
    };
    log::connect_failed(&core, &via(&settings, source, &target), begun, &failed);
    core.with(|hub, now| {
        hub.connection_gone(conn);
        hub.connect_failed(conn, &failed, now);
    });
}

/// Where a transaction or a failed connection went, for the log.
fn via<'a>(settings: &'a Settings, source: SourceNo, target: &'a Target) -> Via<'a> {
    let source = settings.config.sending.sources.get(usize::from(source)).map_or("", |source| source.name.as_str());
    Via { target, source }
}

/// Connects. That we are out of descriptors is not the host's fault: it is tried again when some may be free.
async fn open(settings: &Settings, source: SourceNo, target: &Target) -> io::Result<TcpStream> {
    const PAUSE: Duration = Duration::from_millis(200);
    loop {
        match open_from(settings, source, target).await {
            Err(error) if is_out_of_descriptors(&error) => tokio::time::sleep(PAUSE).await,
            opened => return opened,
        }
    }
}

/// From the source's address of the target's family. One without such an address cannot reach it: another address, which the
/// system would choose, is not what the operator wants to be seen with.
async fn open_from(settings: &Settings, source: SourceNo, target: &Target) -> io::Result<TcpStream> {
    let Some(source) = settings.config.sending.sources.get(usize::from(source)) else {
        return TcpStream::connect(target.addr).await;
    };
    let local = if target.addr.is_ipv4() { source.v4.map(IpAddr::V4) } else { source.v6.map(IpAddr::V6) };
    let Some(local) = local else {
        let family = if target.addr.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(io::Error::other(format!("source {} has no {family} address", source.name)));
    };
    let socket = if target.addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(target.addr).await
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE))
}

/// What the system says, without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

async fn closed(signal: &Signal) -> &'static str {
    loop {
        if signal.must_close() {
            return "given up";
        }
        if signal.must_give_way() {
            return "gave way after a long silence";
        }
        signal.signalled().await;
    }
}

struct Connection {
    core: Arc<Core>,
    source: SourceNo,
    settings: Arc<Settings>,
    conn: ConnId,
    target: Target,
    signal: Arc<Signal>,
    stream: TcpStream,
    smtp: ClientSession,
    /// Transactions begun, oldest first.
    open: VecDeque<Assignment>,
    /// Taken, but too large to be pipelined behind those that are open.
    held: Option<Assignment>,
    /// The content of the newest open transaction, while it is being sent.
    sending: Option<Outgoing>,
    out_at: usize,
    is_ready: bool,
    /// The scheduler had nothing; it will signal.
    is_starved: bool,
    /// Octets went to or came from the host since the scheduler last heard.
    is_alive: bool,
    /// When the connection was asked for.
    begun: Ms,
    /// When the scheduler last heard that the host is alive.
    progress_at: Ms,
}

impl Connection {
    async fn run(mut self) {
        loop {
            if let Some(reason) = self.events() {
                self.finish(&reason);
                return;
            }
            if self.signal.must_close() && self.open.is_empty() && self.held.is_none() {
                let now = self.core.clock.now();
                self.smtp.quit(now);
            }
            if self.signal.must_give_way() {
                self.give_way();
            }
            self.begin();
            self.send_content();
            self.tell_progress();
            if let Err(error) = self.exchange().await {
                tracing::debug!(host = %self.target.host, %error, "connection lost");
                self.smtp.disconnected();
            }
        }
    }

    /// Others need this silent connection's place. Once the end of some data is out it stays: cutting there delivers
    /// twice.
    fn give_way(&mut self) {
        if self.smtp.has_data_out() {
            self.signal.stays();
            let conn = self.conn;
            self.core.with(|hub, now| hub.sched.stays(conn, now));
        } else {
            self.smtp.quit(self.core.clock.now());
        }
    }

    /// A host that answers or takes content in the middle of a transaction is not silent; the scheduler hears of it
    /// now and then. It sees the end of transactions anyway.
    fn tell_progress(&mut self) {
        let now = self.core.clock.now();
        if std::mem::take(&mut self.is_alive) && !self.open.is_empty() && now >= self.progress_at + PROGRESS_MS {
            self.progress_at = now;
            let conn = self.conn;
            self.core.with(|hub, now| hub.sched.progress(conn, now));
        }
    }

    /// Works off what the session has to say. `Some` ends the connection.
    fn events(&mut self) -> Option<CloseReason> {
        while let Some(event) = self.smtp.poll_event() {
            match event {
                ClientEvent::Ready(_) => {
                    self.is_ready = true;
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
                ClientEvent::Closed { error } => return Some(close_reason(error)),
            }
        }
        None
    }

    /// A transaction is over: mostly the oldest, but one that the session refused by itself is done at once.
    fn done(&mut self, tx: u64, results: Vec<RcptResult>) {
        let Some(at) = self.open.iter().position(|assignment| assignment.work.tx.0 == tx) else { return };
        let Some(assignment) = self.open.remove(at) else { return };
        if at == self.open.len() {
            // It was the newest, whose content would be on its way.
            self.sending = None;
        }
        let outcomes = outcome::outcomes(&assignment, &results);
        self.smtp.recycle(results);
        self.settle(&assignment, &outcomes);
    }

    /// Tells queue, scheduler and log; takes the next transaction under the same lock where one may begin at once.
    fn settle(&mut self, assignment: &Assignment, outcomes: &[RcptOutcome]) {
        self.core.counters.transactions.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let conn = self.conn;
        let wants_more = self.held.is_none() && self.smtp.can_begin() && !self.signal.must_close();
        let next = self.core.with(|hub, now| {
            outcome::settle(hub, conn, assignment, outcomes, now);
            wants_more.then(|| Assignment::take(hub, conn, now)).flatten()
        });
        if wants_more {
            self.is_starved = next.is_none();
            self.held = next;
        }
        log::attempt(&self.core, assignment, outcomes, &via(&self.settings, self.source, &self.target));
        if !self.smtp.caps().dsn {
            super::bounce::relayed(&self.core, assignment, outcomes, &self.target.host);
        }
    }

    /// Begins as many transactions as the session can take.
    fn begin(&mut self) {
        while self.is_ready && self.sending.is_none() && !self.smtp.is_closed() {
            if self.held.is_none() {
                if self.is_starved || self.signal.must_close() || !self.smtp.can_pipeline(0) {
                    return;
                }
                let conn = self.conn;
                self.held = self.core.with(|hub, now| Assignment::take(hub, conn, now));
                self.is_starved = self.held.is_none();
            }
            let Some(assignment) = self.held.take() else { return };
            if !self.smtp.can_begin() && !self.smtp.can_pipeline(assignment.size) {
                self.held = Some(assignment);
                return;
            }
            if let Some(too_large) = self.begin_one(assignment) {
                self.held = Some(too_large);
                return;
            }
            self.send_content();
        }
    }

    /// Gives the transaction back if it turns out too large to go behind those that are open.
    fn begin_one(&mut self, assignment: Assignment) -> Option<Assignment> {
        let caps = self.smtp.caps();
        let seven_bit = assignment.eight_bit && !caps.eight_bit_mime;
        if seven_bit && !self.settings.converts_eight_bit {
            let text = "the host does not take 8-bit content and conversion is off";
            self.not_sendable(&assignment, Dsn::new(5, 6, 3), text);
            return None;
        }
        let size = match Outgoing::wire_size(&self.core, &assignment, seven_bit) {
            Ok(size) => size,
            Err(ContentError::Convert(text)) => {
                self.not_sendable(&assignment, Dsn::new(5, 6, 3), &text);
                return None;
            }
            Err(ContentError::Read(error)) => {
                tracing::error!(message = %assignment.id, %error, "a stored content cannot be read");
                let outcomes =
                    outcome::same(&assignment, Stage::Lost, 0, Dsn::new(4, 3, 0), "stored content unreadable");
                self.settle(&assignment, &outcomes);
                return None;
            }
        };
        let spec = TxSpec {
            tx: assignment.work.tx.0,
            sender: &assignment.sender,
            size,
            size_exact: true,
            eight_bit: assignment.eight_bit && !seven_bit,
            smtputf8: assignment.needs_smtputf8(),
            ret: assignment.ret.map(super::ret),
            envid: assignment.envid.as_deref(),
        };
        let rcpts = (0..assignment.len()).map(|position| {
            let params = assignment.params(position);
            TxRcpt {
                address: assignment.address(position),
                notify: params.and_then(|p| p.notify),
                orcpt: params.and_then(|p| p.orcpt.as_deref()),
            }
        });
        match self.smtp.begin(&spec, rcpts, self.core.clock.now()) {
            Ok(()) => {
                self.sending = Some(Outgoing::new(&assignment, seven_bit));
                self.open.push_back(assignment);
            }
            // Larger now that it is converted than what may be pipelined: it goes when those before it are through.
            Err(ClientError::NotReady) => return Some(assignment),
            Err(error) => {
                let text = error.to_string();
                self.not_sendable(&assignment, Dsn::new(5, 6, 0), &text);
            }
        }
        None
    }

    fn not_sendable(&mut self, assignment: &Assignment, dsn: Dsn, text: &str) {
        let outcomes = outcome::same(assignment, Stage::Content, 0, dsn, text);
        self.settle(assignment, &outcomes);
    }

    /// Moves content into the session's output, up to the mark at which the socket must take some first.
    fn send_content(&mut self) {
        let Some(outgoing) = &mut self.sending else { return };
        let Some(assignment) = self.open.back() else { return };
        while self.smtp.wants_body() && self.smtp.output().len() < OUTPUT_BYTES_HIGH {
            let now = self.core.clock.now();
            let smtp = &mut self.smtp;
            let mut pushed = Ok(());
            let more = outgoing.next(&self.core, assignment, |bytes| pushed = smtp.push_body(bytes, now));
            match (more, pushed) {
                (Ok(true), Ok(())) => {}
                (Ok(false), _) => {
                    let _ = self.smtp.end_body(now);
                    self.sending = None;
                    return;
                }
                (Ok(true), Err(_)) => return,
                (Err(error), _) => {
                    // The rest of a content cannot be left out: the connection is dropped, the message waits.
                    tracing::error!(message = %assignment.id, %error, "a content could not be sent");
                    self.smtp.disconnected();
                    return;
                }
            }
        }
        if !self.smtp.wants_body() && self.smtp.can_begin() {
            self.sending = None;
        }
    }

    /// Writes what is to be written, and waits for something to read, room to write, work or a deadline. One of these
    /// is enough: the caller comes back.
    async fn exchange(&mut self) -> io::Result<()> {
        if self.smtp.is_closed() {
            return Ok(());
        }
        self.write()?;
        if self.open.len() > self.smtp.in_flight() {
            // The session has refused one without asking the host: its event waits.
            return Ok(());
        }
        if self.sending.is_some() && self.smtp.wants_body() && self.smtp.output().is_empty() {
            // A host that takes all at once must not keep the thread.
            tokio::task::yield_now().await;
            return Ok(());
        }
        loop {
            if self.read()? {
                return Ok(());
            }
            let deadline = self.smtp.deadline();
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
                () = tokio::time::sleep_until(self.core.clock.instant(deadline.min(FAR_MS + self.core.clock.now()))) => {
                    self.smtp.timed_out(self.core.clock.now());
                    return Ok(());
                }
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while self.out_at < self.smtp.output().len() {
            match self.stream.try_write(&self.smtp.output()[self.out_at..]) {
                Ok(n) => {
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

    /// Reads what is there; whether there was anything.
    fn read(&mut self) -> io::Result<bool> {
        READ_BUFFER.with_borrow_mut(|buffer| match self.stream.try_read(buffer) {
            Ok(0) => {
                self.smtp.disconnected();
                Ok(true)
            }
            Ok(n) => {
                self.is_alive = true;
                self.core.live.received(n);
                // An error is in the session's last event as well.
                let _ = self.smtp.receive(&buffer[..n], self.core.clock.now());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// The session is over. What was taken and not begun goes back.
    fn finish(mut self, reason: &CloseReason) {
        let text = match reason {
            CloseReason::Normal => "closed",
            CloseReason::Refused { text } | CloseReason::Lost { text } => text,
        };
        for assignment in self.held.take().into_iter().chain(std::mem::take(&mut self.open)) {
            let outcomes = outcome::same(&assignment, Stage::Lost, 0, Dsn::new(4, 4, 2), text);
            log::attempt(&self.core, &assignment, &outcomes, &via(&self.settings, self.source, &self.target));
            let conn = self.conn;
            self.core.with(|hub, now| outcome::settle(hub, conn, &assignment, &outcomes, now));
        }
        if !self.is_ready {
            log::connect_failed(&self.core, &via(&self.settings, self.source, &self.target), self.begun, text);
        }
        let (conn, is_ready) = (self.conn, self.is_ready);
        self.core.with(|hub, now| {
            if is_ready {
                hub.sched.closed(&hub.store, conn, reason, now);
            } else {
                let why = match reason {
                    CloseReason::Normal => "the session ended before it began",
                    CloseReason::Refused { text } | CloseReason::Lost { text } => text,
                };
                hub.connect_failed(conn, why, now);
            }
        });
    }
}

/// An idle session has no deadline of its own: the scheduler closes it.
const FAR_MS: Ms = 24 * 3_600_000;

fn close_reason(error: Option<ClientError>) -> CloseReason {
    match error {
        None => CloseReason::Normal,
        Some(error @ (ClientError::ServerClosing { .. } | ClientError::Refused { .. })) => {
            CloseReason::Refused { text: error.to_string().into() }
        }
        Some(error) => CloseReason::Lost { text: error.to_string().into() },
    }
}
