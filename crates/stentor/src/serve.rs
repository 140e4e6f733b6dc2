//! A running server: built from a configuration, stopped in order. Used by `stentor serve` and by the tests.
//!
//! Start: lock and replay the journal, rebuild queue and scheduler, then listen. Stop: refuse new connections, let open
//! transactions end in both directions, sync their results, release the journal. A failed start is reported with its
//! place and what to do; it has created at most the journal's folder and, once the ports for mail and HTTP are bound,
//! the server's own certificate and an empty registry.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_acme::ChallengeResponses;
use stentor_admin::operator::Operator;
use stentor_admin::quarantine::Links;
use stentor_admin::report;
use stentor_config::{Config, Diagnostic, Listener, Service};
use stentor_control::{Control, ControlServer};
use stentor_core::clock::Clock;
use stentor_core::committer::Committer;
use stentor_core::copies::CopyKeyError;
use stentor_core::hub::Hub;
use stentor_core::memory::MemoryGroup;
use stentor_core::name_servers;
use stentor_core::replay::{ReplayError, replay_heard, resume};
use stentor_core::security::{self, ListenerId, Security};
use stentor_core::sts;
use stentor_core::suppression;
use stentor_core::ticker;
use stentor_core::{Core, Parts, Settings};
use stentor_delivery::Tasks;
use stentor_dkim_rotation::{RotationError, RotationKeeper};
use stentor_history::History;
use stentor_http::Http;
use stentor_journal::{Journal, JournalError, RealDisk};
use stentor_logfiles::zone;
use stentor_logs::Logs;
use stentor_push::webhooks::Registry;
use stentor_queue::store::{DanglingAddressId, Store};
use stentor_registry::{AddressRegistry, OpenRegistryError};
use stentor_resolve::{Resolver, ResolverError};
use stentor_sched::Scheduler;
use stentor_sessions::{Listeners, StrangerThreads, bind};
use stentor_submission as submission;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use crate::acme;
use crate::certificates::Certificates;
use crate::state_files::LearnedState;

/// Total content kept in memory for first attempts.
const BODIES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Divisor of a memory limit that yields the share for such content.
const BODIES_PART: u64 = 12;
/// Interval at which a stop checks for open sessions and connections.
const STOP_POLL: Duration = Duration::from_millis(20);
/// Longest wait for running deliveries during a stop. A message past its end of data at this point may be delivered
/// again after the next start.
const STOP_DELIVERIES_MAX: Duration = Duration::from_mins(1);
/// Interval of checks whether to prepare a segment ahead of commits; using one wakes the thread at once.
const PREPARE_PAUSE: Duration = Duration::from_millis(50);
/// Pause after an I/O error: a broken disk must not be hammered.
const PREPARE_FAILED_PAUSE: Duration = Duration::from_millis(500);
/// Pause between attempts to prepare a segment while the disk is full.
const PREPARE_FULL_PAUSE: Duration = Duration::from_millis(250);

/// Pause between attempts to create the control socket on a full disk.
const CONTROL_RETRY: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot create the data directory {}: {source}", path.display())]
    DataDir { path: PathBuf, source: io::Error },
    #[error("cannot open the journal in {}: {source}", path.display())]
    Journal { path: PathBuf, source: JournalError },
    #[error("cannot read the journal in {}: {error}; nothing was changed", path.display())]
    Store { path: PathBuf, error: DanglingAddressId },
    #[error(transparent)]
    Registry(#[from] OpenRegistryError),
    #[error("cannot listen on {addr}: {source}{}", remedy(source))]
    Listen { addr: SocketAddr, source: io::Error },
    #[error(transparent)]
    DkimRotation(#[from] RotationError),
    #[error("TLS and logins: {0}")]
    Security(String),
    #[error("cannot set up the resolver: {0}")]
    Resolver(#[from] ResolverError),
    #[error("cannot open the log: {0}")]
    Log(io::Error),
    #[error("cannot open the history in {}: {source}; to run without a history, set [history] keep_days = 0", path.display())]
    History { path: PathBuf, source: io::Error },
    #[error("cannot create the control socket {}: {source}", path.display())]
    Control { path: PathBuf, source: io::Error },
    #[error(
        "cannot listen on {addr} for HTTP: {source}{}; to run without HTTP, set [http] listen = []",
        remedy(source)
    )]
    Http { addr: SocketAddr, source: io::Error },
    #[error("{}", lines(.0))]
    Tls(Vec<Diagnostic>),
    #[error("{}", lines(.0))]
    Dkim(Vec<Diagnostic>),
    #[error("{0}")]
    BounceRules(Box<Diagnostic>),
    #[error("key of return paths and unsubscribe links: {0}")]
    CopyKey(#[from] CopyKeyError),
    #[error("TLS for HTTP: {0}")]
    Https(stentor_tls::TlsError),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl StartError {
    /// Whether the cause is a file that the configuration names, with the line at fault.
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, StartError::BounceRules(_))
    }
}

fn lines(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Binds the sockets for clients.
fn sockets(config: &Config) -> Result<Vec<(tokio::net::TcpListener, ListenerId)>, StartError> {
    let all = config.listen.listeners().enumerate();
    all.map(|(index, (service, &Listener { address: addr, .. }))| match bind(addr) {
        Ok(socket) => Ok((socket, ListenerId { service, index })),
        Err(source) => Err(StartError::Listen { addr, source }),
    })
    .collect()
}

async fn bind_http(config: &Config) -> Result<Vec<tokio::net::TcpListener>, StartError> {
    stentor_http::bind(&config.http.listen).await.map_err(|(addr, source)| StartError::Http { addr, source })
}

/// Advice for an address that cannot be bound.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root or CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrInUse => "; another program listens there: `ss -ltnp` shows which",
        io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
        _ => "",
    }
}

pub struct Server {
    pub core: Arc<Core>,
    /// Addresses of the listeners, with the ports that the system chose.
    pub addresses: Vec<SocketAddr>,
    /// As `addresses`, with the service at each.
    pub services: Vec<(SocketAddr, Service)>,
    listeners: Listeners,
    stop: watch::Sender<bool>,
    submissions: tokio::task::JoinHandle<()>,
    learned: LearnedState,
    committer: JoinHandle<Journal>,
    preparing: Arc<std::sync::atomic::AtomicBool>,
    preparer: JoinHandle<()>,
    webhooks: Arc<Registry>,
    links: Arc<Links>,
    pub(crate) certificates: Arc<Certificates>,
    /// Notified by a reload.
    pub(crate) acme: Arc<Notify>,
    /// Bound sockets that are not served yet.
    http_sockets: Vec<tokio::net::TcpListener>,
    /// Addresses of the console.
    pub http_addresses: Vec<SocketAddr>,
    http_stop: watch::Sender<bool>,
    control: Option<(watch::Sender<bool>, tokio::task::JoinHandle<()>)>,
}

/// Builds the core over the replayed store; nothing runs yet.
fn build_core(
    settings: &Arc<Settings>,
    clock: &Clock,
    journal: &mut Journal,
    store: Store,
    addresses: &[SocketAddr],
    memory_limit: Option<u64>,
) -> Result<Arc<Core>, StartError> {
    let bodies = memory_limit.map_or(BODIES_BYTES_MAX, |limit| BODIES_BYTES_MAX.min((limit / BODIES_PART) as usize));
    let mut sched = Scheduler::new(settings.sched.clone(), clock.now());
    settings.give_rules(None, &mut sched);
    settings.give_queue_only(&mut sched, clock.now());
    Ok(Core::new(Parts {
        clock: clock.clone(),
        hub: Hub::new(store, sched, bodies),
        reader: journal.reader(),
        log: Logs::start(&settings.config.log, &settings.config.hostname).map_err(StartError::Log)?,
        history: history(settings, clock)?,
        resolver: Resolver::new(settings.resolver(addresses))?,
        next_content_id: journal.next_content_id(),
        actor: Arc::new(Tasks::new(Handle::current())),
        registry: Arc::new(open_registry(settings, clock)?),
        settings: settings.clone(),
        memory_limit,
    }))
}

fn start_committer(core: &Arc<Core>, journal: Journal) -> Result<JoinHandle<Journal>, StartError> {
    let committer = Committer::new(core.clone(), journal);
    let thread = std::thread::Builder::new().name("committer".to_owned());
    thread.spawn(move || committer.run()).map_err(StartError::Thread)
}

/// Starts the tasks that act at certain times: checks, reports, expiries and digests.
fn start_timed_work(core: &Arc<Core>, links: &Arc<Links>) {
    tokio::spawn(core.clone().watch_limits());
    tokio::spawn(stentor_admin::health::watch(core.clone()));
    tokio::spawn(stentor_core::complaints::follow(core.clone()));
    tokio::spawn(ticker::run(core.clone(), report::due));
    tokio::spawn(stentor_admin::quarantine::expire(core.clone()));
    tokio::spawn(stentor_admin::posts::end_when_due(core.clone()));
    tokio::spawn(stentor_admin::quarantine::send_when_due(core.clone(), links.clone()));
    tokio::spawn(stentor_delivery::resume_when_over(core.clone()));
    tokio::spawn(suppression::delete_expired(core.clone()));
}

/// Watches memory even without a limit: one may be set while the server runs.
fn start_memory_watch(core: &Arc<Core>, group: MemoryGroup, limit: Option<u64>) {
    if let Some(bytes) = limit {
        tracing::info!(bytes, body_bytes_max = core.body_bytes_max, "the control group limits memory");
    }
    tokio::spawn(core.clone().watch_memory(group));
}

/// Reads the subscriber files. Until that is done, posts wait at RCPT.
fn read_lists(core: &Arc<Core>) {
    core.lists.remove_unconfigured(core);
    let core = core.clone();
    tokio::spawn(async move { core.lists.refresh_configured(&core).await });
}

fn read_settings(config: Config) -> Result<Settings, StartError> {
    let mut settings = Settings::new(config, None);
    for warning in settings.read_dkim_keys().map_err(StartError::Dkim)? {
        tracing::warn!("{warning}");
    }
    settings.read_bounce_rules().map_err(StartError::BounceRules)?;
    Ok(settings)
}

/// Starts the tasks that follow files, keys and name servers.
async fn keep_current(core: &Arc<Core>, certificates: &Arc<Certificates>) -> Result<(), StartError> {
    tokio::spawn(security::watch(core.clone()));
    tokio::spawn(certificates.clone().keep(core.clone()));
    tokio::spawn(RotationKeeper::start(core.clone()).await?.run());
    tokio::spawn(name_servers::follow(core.clone()));
    Ok(())
}

impl Server {
    /// Starts everything.
    pub async fn start(config: Config) -> Result<Server, StartError> {
        let clock = Clock::start();
        let mut settings = read_settings(config)?;
        let mut accepted = submission::AcceptedIds::ask(settings.config.submission.folder.as_deref());
        let (mut journal, store) = open(&settings, &clock, &mut |record| accepted.hear(record))?;
        // Bind the ports for mail and HTTP before anything is written or mail is tried; those of [acme] need
        // certificates.
        let sockets = sockets(&settings.config)?;
        let http_sockets = bind_http(&settings.config).await?;
        settings.read_copy_key()?;
        let settings = Arc::new(settings);
        let config = &settings.config;
        let certificates = Certificates::start(config).map_err(StartError::Tls)?;
        settings.read_roots().map_err(|diagnostic| StartError::Tls(vec![*diagnostic]))?;
        let (stop, stopping) = watch::channel(false);
        let answers = ChallengeResponses::new(certificates.store.clone());
        acme::listen(config, &certificates, &answers, &stopping)
            .map_err(|(addr, source)| StartError::Listen { addr, source })?;
        let services: Vec<_> =
            sockets.iter().filter_map(|(socket, at)| Some((socket.local_addr().ok()?, at.service))).collect();
        let addresses: Vec<SocketAddr> = services.iter().map(|(address, _)| *address).collect();
        let security = Security::open(config, &certificates.store, None, &clock).map_err(StartError::Security)?;
        let group = MemoryGroup::of_this_process();
        let memory_limit = group.as_ref().and_then(MemoryGroup::limit_bytes);
        let core = build_core(&settings, &clock, &mut journal, store, &addresses, memory_limit)?;
        core.replace_security(Arc::new(security));
        let acme_reloaded = Arc::new(Notify::new());
        tokio::spawn(acme::keep(core.clone(), answers, acme_reloaded.clone()));
        keep_current(&core, &certificates).await?;
        let learned = LearnedState::start(&core);
        tokio::spawn(sts::keep_fresh(core.clone()));
        let preparing = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let preparer = prepare(&journal, preparing.clone()).map_err(StartError::Thread)?;
        let committer = start_committer(&core, journal)?;
        submission::recover(&core, &mut accepted);
        resume(&core);
        tokio::spawn(core.clone().tick());
        let webhooks = stentor_push::start(&core);
        let links = Arc::new(Links::load(&settings.config.data_dir));
        start_timed_work(&core, &links);
        if let Some(group) = group {
            start_memory_watch(&core, group, memory_limit);
        }
        read_lists(&core);
        let submissions = tokio::spawn(submission::run(core.clone(), accepted, stopping.clone()));
        let listeners = Listeners::new(core.clone(), StrangerThreads::start().map_err(StartError::Thread)?, stopping);
        core.live.count_sessions(listeners.session_counts());
        for (socket, at) in sockets {
            tokio::spawn(listeners.clone().serve(socket, at));
        }
        Ok(Server {
            core,
            addresses,
            services,
            listeners,
            stop,
            submissions,
            learned,
            committer,
            preparing,
            preparer,
            webhooks,
            links,
            certificates,
            acme: acme_reloaded,
            http_sockets,
            http_addresses: Vec::new(),
            http_stop: watch::Sender::new(false),
            control: None,
        })
    }

    /// Opens the control socket. On a full disk the server runs without it and retries, so that waiting mail does not
    /// depend on it.
    pub fn listen_control<C: Control>(&mut self, control: Arc<C>) -> Result<(), StartError> {
        let path = self.core.settings().config.control.socket.clone();
        let (stop, mut stopping) = watch::channel(false);
        let bound = match ControlServer::bind(&path) {
            Ok(server) => Some(server),
            Err(source) if is_full(&source) => {
                tracing::warn!(%source, path = %path.display(), "cannot create the control socket: no space; will \
                    retry");
                None
            }
            Err(source) => return Err(StartError::Control { path, source }),
        };
        let task = tokio::spawn(async move {
            let server = if let Some(server) = bound {
                server
            } else {
                tokio::select! {
                    server = bind_when_there_is_room(&path) => server,
                    // A dropped sender means the same.
                    _ = stopping.wait_for(|stop| *stop) => return,
                }
            };
            let stopped = async move { drop(stopping.wait_for(|stop| *stop).await) };
            server.serve(control, stopped).await;
        });
        self.control = Some((stop, task));
        Ok(())
    }

    /// Serves the HTTP listeners.
    pub fn listen_http(&mut self, operator: Arc<Operator>) -> Result<(), StartError> {
        let settings = self.core.settings();
        let tls = settings.config.http.tls.then(|| self.certificates.https(&settings.config));
        let tls = tls.transpose().map_err(StartError::Https)?;
        let http = Http::new(self.core.clone(), operator, self.webhooks.clone(), self.links.clone(), zone::local());
        let sockets = std::mem::take(&mut self.http_sockets);
        self.http_addresses = stentor_http::serve(sockets, tls.as_ref(), &http, &self.http_stop.subscribe());
        Ok(())
    }

    /// Returns a function that lists webhooks that receive or accept nothing.
    pub fn webhooks_troubled(&self) -> Box<dyn Fn() -> Vec<String> + Send + Sync> {
        let webhooks = self.webhooks.clone();
        Box::new(move || webhooks.troubled())
    }

    /// Returns a counter of open sessions that outlives the server.
    pub fn sessions_counter(&self) -> Box<dyn Fn() -> usize + Send + Sync> {
        self.listeners.sessions_counter()
    }

    /// Stops in order; returns when all acknowledged mail and every outcome is on the disk.
    pub async fn stop(self) {
        let _ = self.stop.send(true);
        while self.listeners.sessions() > 0 {
            tokio::time::sleep(STOP_POLL).await;
        }
        let _ = self.submissions.await;
        self.core.with(|hub, _| hub.stop());
        let waiting = async {
            while self.core.with(|hub, _| hub.connections()) > 0 {
                tokio::time::sleep(STOP_POLL).await;
            }
        };
        if tokio::time::timeout(STOP_DELIVERIES_MAX, waiting).await.is_err() {
            tracing::warn!("deliveries interrupted at the shutdown time limit; some mail may be delivered twice");
        }
        // Saving a rotated refresh token is worth a few seconds.
        self.core.tokens.settle().await;
        let _ = self.http_stop.send(true);
        if let Some((stop, task)) = self.control {
            let _ = stop.send(true);
            let _ = task.await;
        }
        self.core.intake.stop();
        self.preparing.store(false, std::sync::atomic::Ordering::Relaxed);
        let registry = self.core.registry.clone();
        let threads = tokio::task::spawn_blocking(move || {
            self.learned.save();
            registry.close();
            let journal = self.committer.join();
            let _ = self.preparer.join();
            journal
        });
        if !matches!(threads.await, Ok(Ok(_))) {
            tracing::error!("the committer failed");
        }
        self.core.log.flush();
        self.core.history.sync();
    }
}

/// Whether octets, inodes or quota ran out, as for the journal.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Retries after any error; each new kind of error is logged once.
async fn bind_when_there_is_room(path: &Path) -> ControlServer {
    let mut last = None;
    loop {
        tokio::time::sleep(CONTROL_RETRY).await;
        match ControlServer::bind(path) {
            Ok(server) => {
                tracing::info!(path = %path.display(), "control socket created");
                return server;
            }
            Err(source) if last != Some(source.kind()) && !is_full(&source) => {
                tracing::warn!(%source, path = %path.display(), "cannot create the control socket");
                last = Some(source.kind());
            }
            Err(_) => {}
        }
    }
}

/// The history, or none if it is switched off.
fn history(settings: &Settings, clock: &Clock) -> Result<History, StartError> {
    let Some(config) = settings.history(clock.clone()) else { return Ok(History::off()) };
    let path = config.dir.clone();
    History::start(config).map_err(|source| StartError::History { path, source })
}

/// Opens the journal and folds it into the store. `hear` receives every record.
fn open(settings: &Settings, clock: &Clock, hear: &mut dyn FnMut(&[u8])) -> Result<(Journal, Store), StartError> {
    let path = settings.config.data_dir.join("journal");
    let failed = |source| StartError::Journal { path: path.clone(), source };
    let disk = RealDisk::open(&path).map_err(|error| match error {
        JournalError::Io { source, .. } if !path.is_dir() => StartError::DataDir { path: path.clone(), source },
        other => failed(other),
    })?;
    let begun = clock.now();
    let options = settings.journal(fastrand::u64(..));
    let (journal, store, report) =
        replay_heard(Arc::new(disk), options, Store::new(), hear).map_err(|error| match error {
            ReplayError::Journal(source) => failed(source),
            ReplayError::Store(error) => StartError::Store { path: path.clone(), error },
        })?;
    if store.book.reused_early() > 0 {
        let times = store.book.reused_early();
        tracing::error!(times, "ids of forgotten addresses were reused too early; this is a bug, please report it");
    }
    let totals = store.totals();
    tracing::info!(
        ms = clock.now() - begun,
        records = report.records,
        messages = store.len(),
        pending = store.pending(),
        acknowledged = totals.acknowledged,
        addresses = store.book.len(),
        "journal replayed"
    );
    Ok((journal, store))
}

/// Opens the registry and reads its entries.
fn open_registry(settings: &Settings, clock: &Clock) -> Result<AddressRegistry, OpenRegistryError> {
    let begun = clock.now();
    let registry = AddressRegistry::open(&settings.config.data_dir)?;
    tracing::info!(ms = clock.now() - begun, suppressions = registry.len(), "registry read");
    Ok(registry)
}

/// Keeps a segment ready, so that no commit has to create one, and reads what cleaning will copy.
fn prepare(journal: &Journal, on: Arc<std::sync::atomic::AtomicBool>) -> io::Result<JoinHandle<()>> {
    let (preparer, cleaner) = (journal.preparer(), journal.cleaner());
    std::thread::Builder::new().name("segments".to_owned()).spawn(move || {
        let mut not_before = Instant::now();
        while on.load(std::sync::atomic::Ordering::Relaxed) {
            if Instant::now() >= not_before {
                if let Err(error) = preparer.prepare() {
                    tracing::warn!(%error, "cannot prepare a segment ahead");
                    not_before = Instant::now() + PREPARE_FAILED_PAUSE;
                } else if preparer.is_out_of_room() {
                    not_before = Instant::now() + PREPARE_FULL_PAUSE;
                }
            }
            // Preparing comes first: a commit without a ready segment waits; cleaning can wait.
            if !cleaner.read() {
                cleaner.wait(PREPARE_PAUSE);
            }
        }
    })
}
