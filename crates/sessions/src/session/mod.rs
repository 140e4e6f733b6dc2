//! One client's connection: moves bytes between the socket and the session's state machine, and handles its events.
//!
//! Promise: an untrusted client has at most [`STRANGER_READ_BYTES`] unread and `OUTPUT_BYTES_MAX` unsent here, besides
//! its body, which has a budget (`stentor_core::memory`). Nothing more is read while it does not read its replies.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use stentor_auth::{Exchange, Login};
use stentor_core::limits::Limit;
use stentor_core::live::health::ClientKind;
use stentor_core::live::traffic::TappedSession;
use stentor_core::security::{ListenerId, Security};
use stentor_core::{Core, Settings};
use stentor_mail::reply::{Enhanced, OwnLimit, Reply};
use stentor_milter::{ClientFacts, SessionMilters};
use stentor_policy::counted_as;
use stentor_reputation::{ClientBehaviour, ClientName, Event};
use stentor_resolve::Asker;
use stentor_rules::{SessionFacts, TlsFacts};
use stentor_smtp::server::{MailFrom, RcptTo, ServerSession, Step, Xclient, XclientName};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::judge::{ClientProof, Speaker, Stranger};
use super::open_sessions::{Admitted, Counted, PoolLimits};
use super::socket::{Acks, DetachedSocket, Socket};
use super::transaction::{SmtpOrigin, Transaction};

mod login;
mod secure;

/// Octets read at once; one buffer per thread serves all sessions, so that an idle session holds none.
const READ_BYTES: usize = 64 * 1024;

/// Octets read at once from an untrusted client: bounds what it can make us hold while it does not read its replies.
const STRANGER_READ_BYTES: usize = 8 * 1024;
/// Time for a client to receive the close of TLS.
const SHUTDOWN_MAX: Duration = Duration::from_secs(10);
/// How often a slow untrusted client is checked: others may need its place.
const CROWD_POLL: Duration = Duration::from_secs(5);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

pub struct Session {
    core: Arc<Core>,
    settings: Arc<Settings>,
    security: Arc<Security>,
    /// Listener that accepted the connection.
    listener: ListenerId,
    stream: Socket,
    acks: Acks,
    smtp: ServerSession,
    client: IpAddr,
    port: u16,
    /// Our own address on this connection.
    server: Option<SocketAddr>,
    /// The client's name, looked up if a rule or milter uses it.
    name: ClientName<String>,
    trusted: bool,
    /// The user logged in, here or at the proxy.
    login: Option<Box<str>>,
    /// The login, if it was here.
    account: Option<Box<Login>>,
    /// AUTH in progress.
    exchange: Option<Box<Exchange>>,
    /// The name in the client's certificate that makes it trusted.
    proven: Option<Box<str>>,
    /// Why the client's certificate does not make it trusted.
    unproven: Option<Box<str>>,
    /// The connection comes through a proxy.
    is_proxied: bool,
    /// Asks the DNS about the client; created if a rule uses it.
    asker: Option<Arc<Asker>>,
    /// The client's past behaviour.
    behaviour: ClientBehaviour,
    stop: watch::Receiver<bool>,
    /// When an untrusted client is disconnected, once a stop is known.
    grace_until: Option<Instant>,
    transaction: Option<Box<Transaction>>,
    /// The milters for its mail, from its first message on.
    milters: Option<SessionMilters>,
    /// Its place, released on drop.
    admitted: Admitted,
    /// Sessions that the descriptors permit.
    sessions_max: usize,
    /// The session runs on the threads of untrusted clients.
    is_apart: bool,
    /// Watchers of this client's sessions.
    tap: Option<Box<TappedSession>>,
}

/// Reply to an idle session whose place another client gets.
const DISPLACED: &[u8] = b"421 4.3.2 Too many connections, try again later\r\n";
/// Time for an untrusted client to end its transaction after a stop.
const STOP_GRACE: Duration = Duration::from_secs(10);

async fn grace_over(stop: &mut watch::Receiver<bool>, until: Option<Instant>) {
    if let Some(until) = until {
        return tokio::time::sleep_until(until).await;
    }
    // The sender is only dropped after the stop.
    let _ = stop.wait_for(|stop| *stop).await;
    tokio::time::sleep(STOP_GRACE).await;
}

/// A connection that was accepted.
pub struct ClientConnection {
    pub stream: TcpStream,
    pub listener: ListenerId,
    /// The client, which a proxy may have named.
    pub peer: SocketAddr,
}

impl ClientConnection {
    pub fn client(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }
}

/// A session's place among all sessions.
pub struct SessionPlace {
    pub admitted: Admitted,
    /// Sessions that there are descriptors for.
    pub sessions_max: usize,
}

/// What ended a read.
enum Input {
    Some,
    Closed,
    TimedOut,
    Stopping,
    /// The login has ended.
    LoginEnded,
    /// Another client has taken its place.
    Displaced,
}

/// Why a session stops reading commands.
enum TalkEnd {
    Closed,
    /// The client is now trusted, and its session continues elsewhere.
    Trusted,
}

/// A session on its way to other threads.
pub struct MovedSession {
    session: Session,
    stream: DetachedSocket,
}

impl MovedSession {
    /// Continues on the caller's runtime.
    pub async fn run(self) {
        let MovedSession { mut session, stream } = self;
        session.is_apart = false;
        let ended = match stream.attach() {
            Ok(stream) => {
                session.stream = stream;
                session.talk().await.map(drop)
            }
            Err(error) => Err(error),
        };
        session.end(ended);
    }
}

impl Session {
    pub fn new(
        core: Arc<Core>,
        settings: Arc<Settings>,
        connection: ClientConnection,
        trusted: bool,
        place: SessionPlace,
        stop: watch::Receiver<bool>,
    ) -> Session {
        let ClientConnection { stream, listener, peer } = connection;
        let SessionPlace { admitted, sessions_max } = place;
        let client = peer.ip().to_canonical();
        let mut smtp = ServerSession::new(settings.smtp.clone(), trusted, core.clock.steady());
        if settings.config.listen.xclient_clients.iter().any(|proxies| proxies.contains(&client)) {
            smtp.allow_xclient();
        }
        let tap = core.live.traffic.of_client(client);
        if let Some(tap) = &tap {
            tap.event(core.clock.now(), &format!("connection from {client}"));
        }
        let mut session = Session {
            server: stream.local_addr().ok(),
            security: core.security(),
            listener,
            core,
            settings,
            stream: Socket::Clear(stream),
            acks: Acks::default(),
            smtp,
            client,
            port: peer.port(),
            name: ClientName::Unknown,
            trusted,
            login: None,
            account: None,
            exchange: None,
            proven: None,
            unproven: None,
            is_proxied: false,
            asker: None,
            behaviour: ClientBehaviour::NOTHING,
            stop,
            grace_until: None,
            transaction: None,
            milters: None,
            admitted,
            sessions_max,
            is_apart: false,
            tap,
        };
        session.offer();
        session
    }

    /// Runs until either side closes. Errors of the socket end the session: the client keeps what was not acknowledged.
    pub async fn run(mut self) {
        let begun = match self.begin().await {
            Ok(true) => self.talk().await.map(drop),
            other => other.map(drop),
        };
        self.end(begun);
    }

    /// Runs on the threads of untrusted clients. If the client becomes trusted, the session is returned and continues
    /// with [`MovedSession::run`].
    pub async fn run_apart(mut self) -> Option<MovedSession> {
        self.is_apart = true;
        let end = match self.begin().await {
            Ok(true) => self.talk().await,
            other => other.map(|_| TalkEnd::Closed),
        };
        let ended = match end {
            Ok(TalkEnd::Trusted) => match self.stream.detach() {
                Ok(stream) => return Some(MovedSession { session: self, stream }),
                Err(error) => Err(error),
            },
            other => other.map(drop),
        };
        self.end(ended);
        None
    }

    /// Releases its resources.
    fn end(mut self, ended: io::Result<()>) {
        if let Err(error) = ended {
            tracing::debug!(client = %self.client, %error, "session ended");
        }
        drop(self.transaction.take());
        if let Some(tap) = &self.tap {
            tap.event(self.core.clock.now(), "closed");
        }
    }

    /// Proceeds to the greeting. Returns whether the session continues.
    async fn begin(&mut self) -> io::Result<bool> {
        self.count(Event::Connection);
        if self.security.is_implicit(self.listener) {
            let place = self.admitted.place();
            let is_apart = self.is_apart;
            tokio::select! {
                biased;
                done = Box::pin(self.become_secured()) => done?,
                () = place.lost(), if is_apart => return Ok(false),
            }
        }
        // Boxed like others below: its future would enlarge each session that waits for a command.
        Box::pin(self.before_greeting()).await;
        if !self.stream.is_secured() && self.stream.has_input() && !self.may_be_early() {
            // RFC 5321 section 4.3.1: the client waits for the greeting.
            self.core.early.sent_away(self.client, self.core.clock.steady());
            self.core.measures.refused(554, Some(Enhanced::new(5, 5, 0)));
            self.smtp.output().clear();
            self.smtp.output().extend_from_slice(b"554 5.5.0 Wait for the greeting\r\n");
            self.flush().await?;
            return Ok(false);
        }
        Ok(true)
    }

    async fn talk(&mut self) -> io::Result<TalkEnd> {
        loop {
            match self.smtp.step(self.core.clock.steady()) {
                Step::Flush => self.flush().await?,
                Step::NeedInput => {
                    self.hold_body();
                    self.flush().await?;
                    if self.is_apart && self.trusted {
                        return Ok(TalkEnd::Trusted);
                    }
                    match self.read().await? {
                        Input::Some => {}
                        Input::Closed => return Ok(TalkEnd::Closed),
                        Input::TimedOut => self.smtp.timed_out(),
                        Input::LoginEnded => {
                            login::ENDED.write_to(self.smtp.output());
                            return self.close().await.map(|()| TalkEnd::Closed);
                        }
                        Input::Stopping => {
                            self.smtp.output().extend_from_slice(b"421 4.3.2 Service is closing\r\n");
                            return self.flush().await.map(|()| TalkEnd::Closed);
                        }
                        Input::Displaced => {
                            // One attempt to send the reason: other clients wait for its place.
                            let _ = self.stream.try_write_last(DISPLACED);
                            return Ok(TalkEnd::Closed);
                        }
                    }
                }
                Step::Close => return self.close().await.map(|()| TalkEnd::Closed),
                Step::Reset => self.reset(),
                Step::Refused { reply, size } => {
                    if let Some(transaction) = self.transaction.take() {
                        transaction.refused(&self.core, self.client, &reply, size);
                    }
                }
                step => self.answer(step).await?,
            }
        }
    }

    async fn answer(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::Mail(_) if *self.stop.borrow() => {
                self.smtp.answer(Reply::fixed(421, Enhanced::new(4, 3, 2), "Service is closing"));
            }
            Step::Mail(mail) => self.answer_mail(mail).await,
            Step::Rcpt(rcpt) => self.answer_rcpt(rcpt).await,
            Step::Client(said) => Box::pin(self.becomes(&said)).await,
            Step::Unknown { line, reply } => {
                let reply = Box::pin(self.milters_on_unknown(&line)).await.unwrap_or(reply);
                self.smtp.answer(reply);
            }
            Step::Data => self.answer_data().await?,
            Step::Piece(bytes) => {
                if let Some(transaction) = &mut self.transaction {
                    let size_max = self.settings.smtp.size_max;
                    transaction.piece(&self.core, &self.settings, bytes, size_max).await;
                }
            }
            Step::EndOfData(end) => {
                let reply = match self.transaction.take() {
                    Some(transaction) => {
                        Box::pin(transaction.end(&self.core, &self.settings, Some(&self.stream), end)).await
                    }
                    None => Reply::fixed(503, Enhanced::new(5, 5, 1), "MAIL first"),
                };
                let intake = &self.core.live.health.intake;
                intake.messages.answered(&reply, self.whom());
                self.smtp.answer(reply);
            }
            Step::StartTls => Box::pin(self.start_tls()).await?,
            Step::Auth { mechanism, initial } => Box::pin(self.authenticate(&mechanism, initial)).await,
            Step::AuthResponse(response) => Box::pin(self.respond(Some(&response))).await,
            Step::AuthCancelled => self.exchange = None,
            Step::NeedInput | Step::Flush | Step::Reset | Step::Refused { .. } | Step::Close => {}
        }
        Ok(())
    }

    async fn answer_mail(&mut self, mail: MailFrom) {
        self.count(Event::Message);
        let begun = Transaction::begin(&self.core, mail, self.client, self.trusted, self.login.as_deref());
        let begun = begun.and_then(|begun| self.submits(begun));
        let reply = match begun {
            Ok(transaction) if self.settings.milters.is_empty() => {
                self.transaction = Some(transaction);
                Reply::fixed(250, Enhanced::new(2, 1, 0), "Ok")
            }
            Ok(transaction) => Box::pin(self.filtered(transaction)).await,
            Err(reply) => reply,
        };
        self.smtp.answer(reply);
    }

    async fn answer_rcpt(&mut self, rcpt: RcptTo) {
        self.count(Event::Recipient);
        if self.asker.is_none() && self.settings.rules.asks_dns() {
            let limit = Duration::from_millis(self.settings.config.listen.dns_timeout_ms);
            self.asker = Some(Arc::new(self.core.resolver().asker(limit)));
        }
        let mechanism = self.mechanism();
        let reply = match &mut self.transaction {
            Some(transaction) => {
                let session = SessionFacts {
                    client_port: self.port,
                    server: self.server,
                    is_esmtp: self.smtp.is_esmtp(),
                    login: self.login.as_deref(),
                    mechanism,
                    tls: secure::tls_facts(&self.stream, self.is_proxied, self.proven.is_some()),
                    size: None,
                    instance: "",
                };
                let speaker = Speaker {
                    client: self.client,
                    name: self.name.as_deref(),
                    helo: self.smtp.helo(),
                    may_relay: self.trusted,
                    proof: match (&self.login, &self.proven, &self.unproven) {
                        (Some(user), ..) => ClientProof::Login(user),
                        (None, Some(name), _) => ClientProof::Certificate(name),
                        (None, None, Some(why)) => ClientProof::Ignored(why),
                        (None, None, None) => ClientProof::None,
                    },
                    session: self.settings.tables.has_services().then_some(&session),
                    stranger: Stranger {
                        behaviour: self.behaviour,
                        asker: self.asker.as_ref(),
                        greylist: Some(&self.core.greylist),
                    },
                };
                transaction.rcpt(&self.core, &self.settings, speaker, rcpt).await
            }
            None => Reply::fixed(503, Enhanced::new(5, 5, 1), "MAIL first"),
        };
        let intake = &self.core.live.health.intake;
        intake.recipients.answered(&reply, self.whom());
        self.smtp.answer(reply);
    }

    /// Handles the beginning of a body.
    async fn answer_data(&mut self) -> io::Result<()> {
        // Replies that are already due must not wait for memory.
        if self.trusted && self.transaction.as_ref().is_some_and(|transaction| !transaction.is_room(&self.core)) {
            self.flush().await?;
        }
        let Some(transaction) = &mut self.transaction else {
            self.smtp.answer(Reply::fixed(503, Enhanced::new(5, 5, 1), "MAIL first"));
            return Ok(());
        };
        let mut ready = transaction.reserve(&self.core).await;
        if ready.is_ok() && self.milters.is_some() {
            ready = Box::pin(transaction.filter_data(&self.core)).await;
        }
        match ready {
            Ok(()) => {
                let origin = SmtpOrigin {
                    helo: self.smtp.helo(),
                    is_esmtp: self.smtp.is_esmtp(),
                    client: self.client,
                    tls: secure::words(&self.stream),
                    is_authenticated: self.smtp.is_authenticated(),
                };
                let prefix = transaction.start_data(&self.core, &self.settings, origin);
                self.smtp.begin_data(prefix);
            }
            Err(reply) => self.smtp.answer(reply),
        }
        Ok(())
    }

    async fn look_up_name(&mut self) {
        if self.settings.rules.needs_name() {
            self.name = self.core.resolver().client_name(self.client).await.into();
        }
    }

    /// Handles a client named by a proxy: the session is judged and counted for it from now on. Facts about an earlier
    /// client with another address are dropped.
    async fn becomes(&mut self, said: &Xclient) {
        let client = said.address.unwrap_or(self.client).to_canonical();
        let login = match &said.login {
            Some(login) => Some(login.clone()).filter(|login| !login.is_empty()),
            None => self.login.take().filter(|_| said.address.is_none()),
        };
        let trusted = self.settings.policy.is_trusted(client) || login.is_some();
        let who = Counted { client, trusted, is_proxy: false };
        if let Err((limit, reply)) = self.admitted.change(who, self.limits()) {
            self.core.limits.hit(limit, self.core.clock.now());
            return self.smtp.answer(reply);
        }
        (self.client, self.port) = (client, said.port.unwrap_or_default());
        (self.trusted, self.login, self.milters, self.asker) = (trusted, login, None, None);
        self.account = None;
        if said.address.is_some() {
            // Certificate and TLS are the proxy's.
            (self.proven, self.unproven, self.is_proxied) = (None, None, true);
            self.behaviour = ClientBehaviour::NOTHING;
            self.count(Event::Connection);
        }
        match &said.name {
            Some(XclientName::Is(name)) => self.name = ClientName::Is(name.to_string()),
            Some(XclientName::None) => self.name = ClientName::Nameless,
            Some(XclientName::Unknown) => self.name = ClientName::Unknown,
            None if said.address.is_some() => {
                self.name = ClientName::Unknown;
                self.look_up_name().await;
            }
            None => {}
        }
        self.smtp.become_client(said, trusted, self.core.clock.steady());
        // Its own address and certificate decide about offers and required logins.
        self.offer();
    }

    /// Shows the milters a new message.
    async fn filtered(&mut self, mut transaction: Box<Transaction>) -> Reply {
        if self.milters.is_none() {
            if self.name == ClientName::Unknown {
                self.name = self.core.resolver().client_name(self.client).await.into();
            }
            let tls = secure::tls_facts(&self.stream, self.is_proxied, self.proven.is_some()).map(
                |TlsFacts { version, cipher, bits, certificate }| {
                    let certificate = certificate.map(|(subject, issuer)| (subject.to_owned(), issuer.to_owned()));
                    stentor_milter::ClientTls { version, cipher, bits, certificate }
                },
            );
            self.milters = self.settings.milters.of(&ClientFacts {
                address: self.client,
                counted_as: counted_as(self.client),
                is_trusted: self.trusted,
                port: self.port,
                name: self.name.clone().is(),
                listener: self.server,
                login: self.login.as_deref().map(|login| (login.to_owned(), self.mechanism())),
                tls,
            });
            if self.milters.is_some() {
                self.smtp.tell_unknown();
            }
        }
        if let Some(milters) = &self.milters
            && let Err(reply) = transaction.filtered_by(&self.core, milters.clone(), self.smtp.helo()).await
        {
            return reply;
        }
        self.transaction = Some(transaction);
        Reply::fixed(250, Enhanced::new(2, 1, 0), "Ok")
    }

    /// Returns the milters' refusal of a command unknown to SMTP, if they refuse it.
    async fn milters_on_unknown(&self, line: &[u8]) -> Option<Reply> {
        let refusal = self.milters.as_ref()?.chain().await.unknown(line).await.err()?;
        let (client, by) = (self.client, &refusal.by);
        tracing::info!(%client, command = %line.escape_ascii(), reply = %refusal.reply, "{by} refused an unknown \
            command");
        Some(refusal.reply)
    }

    /// Reserves memory for a body's octets so far; if there is none, the body is refused.
    fn hold_body(&mut self) {
        let Some(bytes) = self.smtp.body_bytes() else { return };
        let Some(transaction) = &mut self.transaction else { return };
        if let Err(reply) = transaction.hold(&self.core, bytes as u64) {
            let size = self.smtp.refuse_body(reply.clone());
            if let Some(transaction) = self.transaction.take() {
                transaction.refused(&self.core, self.client, &reply, size);
            }
        }
    }

    fn reset(&mut self) {
        self.transaction = None;
    }

    /// Returns the kind of client, for the server's health.
    fn whom(&self) -> ClientKind {
        match (&self.login, self.trusted) {
            (Some(_), _) => ClientKind::User,
            (None, true) => ClientKind::Trusted,
            (None, false) => ClientKind::Stranger,
        }
    }

    /// Counts an action of the client, if rules use it.
    fn count(&mut self, event: Event) {
        if self.settings.rules.counts_clients() {
            let now = self.core.clock.steady();
            self.behaviour.counts = self.core.rates.lock().count(counted_as(self.client), event, now);
        }
    }

    /// Looks up the client's name if a rule uses it, while an untrusted client waits for the greeting, which programs
    /// that only send spam do not. The wait ends early if others need its place, or if the client speaks.
    async fn before_greeting(&mut self) {
        let delay_ms = self.settings.config.listen.greet_delay_ms;
        let is_delayed = delay_ms > 0
            && !self.trusted
            && !self.listener.service.is_for_users()
            && !self.smtp.allows_xclient()
            && !self.is_crowded();
        let until = self.core.clock.steady_instant(self.core.clock.steady() + delay_ms);
        let mut stop = self.stop.clone();
        let (stream, client) = (&mut self.stream, self.client);
        let wait = async {
            if is_delayed {
                tokio::select! {
                    _ = stream.readable() => {}
                    () = tokio::time::sleep_until(until) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            }
        };
        let resolver = self.settings.rules.needs_name().then(|| self.core.resolver());
        let named = async {
            match resolver {
                Some(resolver) => Some(resolver.client_name(client).await),
                None => None,
            }
        };
        let (name, ()) = tokio::join!(named, wait);
        if let Some(name) = name {
            self.name = name.into();
        }
    }

    /// Whether a rule decides about clients that speak first: an untrusted client is then only marked as one.
    fn may_be_early(&mut self) -> bool {
        let has_rule = self.settings.rules.sees_early();
        self.behaviour.is_early = Some(has_rule && !self.trusted);
        has_rule
    }

    /// Counts the state machine's refusals, including those passed to it.
    fn count_refusals(&mut self) {
        for refused in self.smtp.take_refusals() {
            self.core.measures.refused(refused.code, refused.enhanced);
            let limit = match refused.limit {
                Some(OwnLimit::Recipients) => Limit::RecipientsPerMessage,
                Some(OwnLimit::Errors) => Limit::Errors,
                Some(OwnLimit::MessageSize) => Limit::MessageSize,
                None => continue,
            };
            self.core.limits.hit(limit, self.core.clock.now());
        }
    }

    /// Writes all output. A client that does not read it in time is disconnected.
    async fn flush(&mut self) -> io::Result<()> {
        self.send(Socket::try_write).await
    }

    /// Sends the replies with the given write function.
    async fn send(&mut self, write: impl Fn(&mut Socket, &[u8]) -> io::Result<usize>) -> io::Result<()> {
        self.count_refusals();
        if self.smtp.output().is_empty() {
            return Ok(());
        }
        // Before the client can learn of its transaction: from then on nobody takes its place.
        if !self.trusted {
            self.admitted.set_busy(self.transaction.is_some());
        }
        let deadline = self.core.clock.steady_instant(self.smtp.write_deadline(self.core.clock.steady()));
        let mut at = 0;
        while at < self.smtp.output().len() {
            match write(&mut self.stream, &self.smtp.output()[at..]) {
                Ok(n) => {
                    if let Some(tap) = &mut self.tap {
                        tap.server(self.core.clock.now(), &self.smtp.output()[at..at + n]);
                    }
                    at += n;
                    self.core.live.sent(n);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::time::timeout_at(deadline, self.stream.writable())
                        .await
                        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                }
                Err(error) => return Err(error),
            }
        }
        // Octets that are encrypted but not sent yet count as well.
        tokio::time::timeout_at(deadline, self.stream.flush())
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        self.smtp.sent();
        self.acks = Acks::Delayed;
        Ok(())
    }

    /// Whether other untrusted clients need this one's connection or memory.
    fn is_crowded(&self) -> bool {
        !self.trusted && (self.admitted.is_crowded(self.limits()) || self.core.memory.is_crowded())
    }

    /// Returns the limits of its role's pool.
    fn limits(&self) -> PoolLimits {
        PoolLimits::new(&self.settings, self.sessions_max, self.listener.service.role())
    }

    /// Reads once into the state machine.
    async fn read(&mut self) -> io::Result<Input> {
        let bytes_max = if self.trusted { READ_BYTES } else { STRANGER_READ_BYTES };
        loop {
            // A steady flow of octets does not postpone the end.
            if !self.trusted && *self.stop.borrow() {
                let until = *self.grace_until.get_or_insert_with(|| Instant::now() + STOP_GRACE);
                if until <= Instant::now() {
                    return Ok(Input::Stopping);
                }
            }
            if self.account.as_ref().is_some_and(|login| !login.is_valid()) {
                return Ok(Input::LoginEnded);
            }
            if self.is_crowded() {
                self.smtp.hurry();
            }
            let deadline = self.core.clock.steady_instant(self.smtp.deadline());
            let look_again = if self.trusted { deadline } else { deadline.min(Instant::now() + CROWD_POLL) };
            let read = READ_BUFFER.with_borrow_mut(|buffer| match self.stream.try_read(&mut buffer[..bytes_max]) {
                Ok(n) => {
                    self.core.live.received(n);
                    if let Some(tap) = &mut self.tap {
                        tap.client(self.core.clock.now(), &buffer[..n]);
                    }
                    secure::receive(&mut self.smtp, &mut buffer[..n]);
                    Ok(n)
                }
                Err(error) => Err(error),
            });
            match read {
                Ok(0) => return Ok(Input::Closed),
                Ok(_) => {
                    if self.acks == Acks::Delayed {
                        self.acks = Acks::Owed;
                    }
                    return Ok(Input::Some);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.acks == Acks::Owed && self.smtp.is_midway() {
                self.acks = Acks::AtOnce;
                self.stream.acknowledge();
            }
            // A stop never ends a trusted client's transaction; an untrusted client's has a grace period.
            let may_stop = self.transaction.is_none();
            let has_grace = !may_stop && !self.trusted;
            let may_be_displaced = may_stop && !self.trusted;
            let mut stop = self.stop.clone();
            tokio::select! {
                biased;
                ready = self.stream.readable() => ready?,
                _ = self.stop.wait_for(|stop| *stop), if may_stop => return Ok(Input::Stopping),
                () = grace_over(&mut stop, self.grace_until), if has_grace => return Ok(Input::Stopping),
                () = login::ended(self.account.as_deref()) => return Ok(Input::LoginEnded),
                () = self.admitted.lost(), if may_be_displaced => return Ok(Input::Displaced),
                () = tokio::time::sleep_until(look_again) => {
                    if deadline <= Instant::now() {
                        return Ok(Input::TimedOut);
                    }
                }
            }
        }
    }

    /// Sends the last reply, then reads a little: closing a socket with unread octets resets the connection, and the
    /// client may lose the reply.
    async fn close(&mut self) -> io::Result<()> {
        const DRAIN_READS_MAX: usize = 16;
        self.send(Socket::try_write_last).await?;
        if tokio::time::timeout(SHUTDOWN_MAX, self.stream.close()).await.is_err() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut sink = [0u8; 4096];
        for _ in 0..DRAIN_READS_MAX {
            match self.stream.discard(&mut sink) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
        }
        Ok(())
    }
}
