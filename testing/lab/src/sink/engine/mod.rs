//! A standalone sink of one of three models, to show what each costs: event loops, a bounded pool of threads, one
//! thread per connection. All share the session's code, the delays and the stores.
//!
//! Promise: when [`Sink::start`] returns, every address listens (unless the behaviour says otherwise). [`Sink::stop`]
//! closes every socket and ends every thread; messages waiting for a store are stored first. Connections delay each
//! other only through the machine's limits: a thread or descriptor that cannot be had is counted and reported.
//!
//! | model | waits in | a connection costs | beyond its limit |
//! |---|---|---|---|
//! | event | `epoll_wait`, one a loop | a descriptor and the session | descriptors: accepting pauses |
//! | pool | `recv`, one a worker | the same, and a worker while it is served | it waits, accepted, without a greeting |
//! | thread | `recv`, one a connection | the same, a thread and its stack | 421 and closed |

mod blocking;
mod event;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};
use stentor_records::histogram::Fine as Histogram;

use super::line::LINGER;
use super::session::Session;
use super::site::{Host, Schedule, SiteState};
use super::store::{Store, StoreOptions};
use super::{Listening, listen};
use crate::behaviour::{Behaviour, Connect};
use crate::error::LabError;
use crate::recorder::{Mode, Recorder};

/// How long accepting pauses when it failed (descriptors used up), so as not to spin.
const ACCEPT_PAUSE_US: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Model {
    /// One thread, or `--threads`, each with an event loop (epoll).
    Event,
    /// So many threads, each serving one connection after the other; what comes beyond waits.
    Pool,
    /// A thread for each connection.
    Thread,
}

/// What a sink is to be.
#[derive(Debug, Clone)]
pub struct SinkOptions {
    pub addresses: Vec<SocketAddr>,
    pub behaviour: Behaviour,
    pub mode: Mode,
    /// Copies are counted by recipient and by domain.
    pub by_recipient: bool,
    pub model: Model,
    /// Event loops, or workers of the pool.
    pub threads: usize,
    /// Stack of a thread of the pool or of a connection.
    pub stack_bytes: usize,
    pub store: Option<StoreOptions>,
    /// Threads that write files for the event loops.
    pub store_threads: usize,
    /// So many at once; further ones wait in the backlog. None: as many as there are descriptors.
    pub connections_max: Option<u64>,
    /// Other processes serve the same listening sockets.
    pub shared: bool,
}

impl SinkOptions {
    /// A good host with one event loop that counts and keeps nothing.
    pub fn new(address: SocketAddr) -> SinkOptions {
        SinkOptions {
            addresses: vec![address],
            behaviour: Behaviour::default(),
            mode: Mode::Counters,
            by_recipient: false,
            model: Model::Event,
            threads: 1,
            stack_bytes: 64 << 10,
            store: None,
            store_threads: 16,
            connections_max: None,
            shared: false,
        }
    }
}

/// What a model met, and what its store did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EngineCounters {
    /// Calls of accept that failed, as without descriptors.
    pub accept_failures: u64,
    /// Connections of the pool that wait for a worker now, and the most that did.
    pub waiting: u64,
    pub waiting_max: u64,
    /// Connections that got no thread, and why the first of them did not.
    pub threads_refused: u64,
    pub thread_refusal: Option<String>,
    pub stored: u64,
    pub stored_bytes: u64,
    pub store_failures: u64,
    pub store_failure: Option<String>,
    pub store_syncs: u64,
    pub store_batches: u64,
    /// From the end of data until it was stored: median, 99th percentile, longest.
    pub store_us: [u64; 3],
}

impl EngineCounters {
    /// Adds another sink's; the times have to be found from both sinks' together ([`Sink::store_times_us`]).
    pub fn add(&mut self, other: &EngineCounters) {
        self.accept_failures += other.accept_failures;
        self.waiting += other.waiting;
        self.waiting_max += other.waiting_max;
        self.threads_refused += other.threads_refused;
        self.thread_refusal = self.thread_refusal.take().or_else(|| other.thread_refusal.clone());
        self.stored += other.stored;
        self.stored_bytes += other.stored_bytes;
        self.store_failures += other.store_failures;
        self.store_failure = self.store_failure.take().or_else(|| other.store_failure.clone());
        self.store_syncs += other.store_syncs;
        self.store_batches += other.store_batches;
    }

    pub fn set_times(&mut self, times_us: &Histogram) {
        self.store_us = [times_us.percentile(0.5), times_us.percentile(0.99), times_us.greatest()];
    }
}

#[derive(Default)]
struct Counts {
    accept_failures: AtomicU64,
    waiting: AtomicU64,
    waiting_max: AtomicU64,
    threads_refused: AtomicU64,
    thread_refusal: parking_lot::Mutex<Option<String>>,
}

/// What all threads of a sink share.
struct Shared {
    recorder: Arc<Recorder>,
    hosts: Vec<Arc<Host>>,
    connect: Connect,
    store: Option<Store>,
    connections_max: u64,
    counts: Counts,
    stop: AtomicBool,
}

impl Shared {
    /// A session for a connection just accepted at the host of that number.
    fn session(&self, host: usize, now_us: u64) -> Session {
        let number = self.recorder.counters.connections.fetch_add(1, Relaxed) + 1;
        let mut session = Session::new(Arc::clone(&self.hosts[host]), Arc::clone(&self.recorder), number, now_us);
        session.store_bytes_max = self.store.as_ref().map_or(0, Store::bytes_max);
        session
    }

    fn is_over(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

enum Running {
    Event(event::Loops),
    Blocking(blocking::Threads),
    /// Nothing is accepted; the sockets are kept as they are.
    Silent,
}

/// See the module's text.
pub struct Sink {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    running: Running,
    /// Of [`Connect::NeverAccept`]: the listeners with what fills their backlogs.
    _kept: Vec<Listening>,
}

impl Sink {
    /// Listens (port 0: any) and serves. Raises the limit of descriptors as far as it may.
    pub fn start(options: &SinkOptions) -> Result<Sink, LabError> {
        crate::descriptors::raise();
        Sink::serve(options, Sink::listen(options)?)
    }

    /// A socket for each address.
    pub fn listen(options: &SinkOptions) -> Result<Vec<Listening>, LabError> {
        options.behaviour.check().map_err(LabError::Scenario)?;
        let one = |&address: &SocketAddr| {
            let failed = |source| LabError::Listen { address, source };
            let one = listen(address, options.behaviour.connect).map_err(failed)?;
            one.listener.set_nonblocking(options.model == Model::Event).map_err(failed)?;
            Ok(one)
        };
        options.addresses.iter().map(one).collect()
    }

    /// Serves at sockets that are listened on already.
    pub fn serve(options: &SinkOptions, listening: Vec<Listening>) -> Result<Sink, LabError> {
        let connect = options.behaviour.connect;
        let site = Arc::new(SiteState::new(0, 0, None));
        let behaviour = Arc::new(options.behaviour.clone());
        let mut hosts = Vec::new();
        for one in &listening {
            hosts.push(Arc::new(Host {
                name: "sink.lab".to_owned(),
                no: 0,
                address: one.address()?,
                schedule: Schedule { base: Arc::clone(&behaviour), windows: Vec::new() },
                site: Arc::clone(&site),
            }));
        }
        let addresses = hosts.iter().map(|host| host.address).collect();
        let shared = Arc::new(Shared {
            recorder: Arc::new(Recorder::new(options.mode).by_recipient(options.by_recipient)),
            hosts,
            connect,
            store: options.store.as_ref().map(Store::open).transpose().map_err(LabError::Store)?,
            connections_max: options.connections_max.unwrap_or(u64::MAX),
            counts: Counts::default(),
            stop: AtomicBool::new(false),
        });
        let (running, kept) = match connect {
            Connect::Refuse => (Running::Silent, Vec::new()),
            Connect::NeverAccept => (Running::Silent, listening),
            Connect::Accept | Connect::Reset => {
                let listeners: Vec<TcpListener> = listening.into_iter().map(|one| one.listener).collect();
                let running = match options.model {
                    Model::Event => Running::Event(event::Loops::start(&shared, listeners, options)?),
                    Model::Pool | Model::Thread => {
                        Running::Blocking(blocking::Threads::start(&shared, listeners, options)?)
                    }
                };
                (running, Vec::new())
            }
        };
        Ok(Sink { addresses, shared, running, _kept: kept })
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.shared.recorder
    }

    pub fn met(&self) -> EngineCounters {
        let counts = &self.shared.counts;
        let mut met = EngineCounters {
            accept_failures: counts.accept_failures.load(Relaxed),
            waiting: counts.waiting.load(Relaxed),
            waiting_max: counts.waiting_max.load(Relaxed),
            threads_refused: counts.threads_refused.load(Relaxed),
            thread_refusal: counts.thread_refusal.lock().clone(),
            ..EngineCounters::default()
        };
        if let Some(store) = &self.shared.store {
            let meter = &store.meter;
            met.stored = meter.stored.load(Relaxed);
            met.stored_bytes = meter.bytes.load(Relaxed);
            met.store_failures = meter.failed.load(Relaxed);
            met.store_failure = meter.first_failure();
            met.store_syncs = meter.syncs.load(Relaxed);
            met.store_batches = meter.batches.load(Relaxed);
            met.set_times(&meter.times_us());
        }
        met
    }

    /// From the end of data until it was stored.
    pub fn store_times_us(&self) -> Histogram {
        self.shared.store.as_ref().map(|store| store.meter.times_us()).unwrap_or_default()
    }

    /// Closes everything and waits until it is closed; what it has met can still be asked for. Dropping it does the
    /// same.
    pub fn close(&mut self) {
        self.shared.stop.store(true, Relaxed);
        match &mut self.running {
            Running::Event(loops) => loops.end(),
            Running::Blocking(threads) => threads.end(),
            Running::Silent => {}
        }
    }

    /// [`Sink::close`].
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.close();
    }
}
