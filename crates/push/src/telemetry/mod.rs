//! OpenTelemetry spans, if configured: the reception of a message and each attempt to deliver it.
//!
//! Promise: without `otlp_endpoint` the cost is one check of an empty cell. With it, one message in `sample_one_in` has
//! spans, as does every message submitted with a sampled `traceparent`. Creating a span never waits: the queue is
//! bounded, and spans that do not fit are dropped and counted (limit `trace_queue`).
//!
//! No state is kept about a sampled message: whether it is sampled, its trace and its first span's id all follow from
//! its queue id, so that attempts days and restarts later join the same trace. The exception is messages with a
//! client's parent, of which [`CARRIED_MAX`] are kept in memory.

mod export;
mod span;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use stentor_core::Core;
use stentor_core::assignment::Assignment;
use stentor_core::limits::Limit;
use stentor_core::observer::{Observer, Receiving, TraceParent};
use stentor_mail::reply::Reply;
use stentor_queue::ids::{MessageId, Ms};
use stentor_queue::site::Target;
use stentor_sched::RcptOutcome;
use tokio::sync::mpsc;

pub use self::span::trace_parent;

use crate::client::PushClient;

use self::span::{Kind, Span, Value};

/// Maximum spans waiting for the collector.
const QUEUE_MAX: usize = 4_096;
/// Maximum messages with a client's trace.
const CARRIED_MAX: usize = 10_000;
const NANOS_PER_MS: u64 = 1_000_000;

/// Creates spans for events.
pub struct Tracer {
    sample_one_in: u64,
    hostname: String,
    queue: mpsc::Sender<Span>,
    carried: Mutex<TraceParents>,
}

#[derive(Default)]
struct TraceParents {
    all: HashMap<MessageId, TraceParent>,
    order: VecDeque<MessageId>,
}

/// The trace of a message's spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Context {
    trace: [u8; 16],
    /// Id of the acceptance's span, the parent of all others.
    root: [u8; 8],
    parent: Option<[u8; 8]>,
}

/// A message being received.
struct IncomingMessage {
    id: MessageId,
    queue: mpsc::Sender<Span>,
    context: Context,
    began_ns: u64,
    since: Instant,
    data: Option<Duration>,
    end: Option<Duration>,
    by: &'static str,
}

/// Starts the export, if the configuration names a collector.
pub(crate) fn start(core: &Arc<Core>, client: Arc<PushClient>) {
    let settings = core.settings();
    let Some(endpoint) = settings.config.telemetry.endpoint.clone() else { return };
    let hostname = settings.config.hostname.clone();
    let (queue, spans) = mpsc::channel(QUEUE_MAX);
    let sample_one_in = settings.config.telemetry.sample_one_in;
    let tracer = Tracer { sample_one_in, hostname: hostname.clone(), queue, carried: Mutex::default() };
    if core.observer.set(Box::new(tracer)).is_ok() {
        tokio::spawn(export::Exporter { core: core.clone(), client, hostname }.run(endpoint, spans));
    }
}

impl Tracer {
    /// The context of a message, if it is sampled.
    fn context(&self, id: MessageId) -> Option<Context> {
        let parent = self.carried.lock().all.get(&id).copied();
        let is_sampled = || mixed(id.0).is_multiple_of(self.sample_one_in);
        if parent.is_none() && !is_sampled() {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(format!("{} {id}", self.hostname)).into();
        let (mut trace, mut root) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&digest[..16]);
        root.copy_from_slice(&digest[16..24]);
        Some(Context {
            trace: parent.map_or(trace, |parent| parent.trace),
            root,
            parent: parent.map(|parent| parent.span),
        })
    }

    /// Adds a message to the client's trace.
    fn carry(&self, id: MessageId, parent: TraceParent) {
        if !parent.is_sampled {
            return;
        }
        let mut carried = self.carried.lock();
        if carried.all.insert(id, parent).is_none() {
            carried.order.push_back(id);
        }
        if carried.order.len() > CARRIED_MAX
            && let Some(oldest) = carried.order.pop_front()
        {
            carried.all.remove(&oldest);
        }
    }
}

impl Observer for Tracer {
    fn begin(
        &self,
        id: MessageId,
        by: &'static str,
        parent: Option<TraceParent>,
        now: Ms,
    ) -> Option<Box<dyn Receiving>> {
        if let Some(parent) = parent {
            self.carry(id, parent);
        }
        let context = self.context(id)?;
        let (began_ns, since) = (now * NANOS_PER_MS, Instant::now());
        Some(Box::new(IncomingMessage {
            id,
            queue: self.queue.clone(),
            context,
            began_ns,
            since,
            data: None,
            end: None,
            by,
        }))
    }

    fn attempt(&self, core: &Core, assignment: &Assignment, outcomes: &[RcptOutcome], target: &Target) {
        let Some(context) = self.context(assignment.id) else { return };
        let failed = outcomes.iter().find(|outcome| !outcome.is_delivered());
        let sent = outcomes.iter().filter(|outcome| outcome.is_delivered()).count();
        let attributes = vec![
            ("stentor.queue_id", Value::Text(assignment.id.to_string())),
            ("server.address", Value::Text(target.host.to_string())),
            (
                "network.peer.address",
                Value::Text(target.addr.ip().map_or_else(|| target.addr.to_string(), |ip| ip.to_string())),
            ),
            ("server.port", Value::Number(target.addr.port().into())),
            ("stentor.recipients", Value::Number(outcomes.len() as u64)),
            ("stentor.recipients.sent", Value::Number(sent as u64)),
        ];
        let span = Span {
            trace: context.trace,
            id: fresh(),
            parent: Some(context.root),
            name: "deliver",
            kind: Kind::Client,
            start_ns: assignment.begun * NANOS_PER_MS,
            end_ns: core.clock.now() * NANOS_PER_MS,
            attributes,
            error: failed.map(|outcome| format!("{} {}", outcome.code, outcome.text)),
        };
        push(&self.queue, core, span);
    }
}

impl Receiving for IncomingMessage {
    fn data(&mut self) {
        self.data = Some(self.since.elapsed());
    }

    fn end_of_data(&mut self) {
        self.end = Some(self.since.elapsed());
    }

    fn answered(self: Box<Self>, core: &Core, size: u64, reply: &Reply) {
        let now = self.since.elapsed();
        let at = |offset: Duration| self.began_ns + offset.as_nanos() as u64;
        let context = self.context;
        let error = (reply.code >= 400).then(|| reply.text.to_string());
        let attributes = vec![
            ("stentor.queue_id", Value::Text(self.id.to_string())),
            ("network.protocol.name", Value::Text(self.by.to_owned())),
            ("stentor.reply_code", Value::Number(reply.code.into())),
            ("messaging.message.body.size", Value::Number(size)),
        ];
        let span = |name, id, parent, kind, start, end, attributes, error| Span {
            trace: context.trace,
            id,
            parent,
            name,
            kind,
            start_ns: at(start),
            end_ns: at(end),
            attributes,
            error,
        };
        let root = span("accept", context.root, context.parent, Kind::Server, Duration::ZERO, now, attributes, error);
        let mut spans = vec![root];
        let below = Some(context.root);
        let mut child = |name, start, end| {
            spans.push(span(name, fresh(), below, Kind::Internal, start, end, Vec::new(), None));
        };
        let end = self.end.unwrap_or(now);
        if let Some(data) = self.data {
            child("receive", data, end);
        }
        if self.end.is_some() {
            child("commit", end, now);
        }
        for span in spans {
            push(&self.queue, core, span);
        }
    }
}

fn push(queue: &mpsc::Sender<Span>, core: &Core, span: Span) {
    if queue.try_send(span).is_err() {
        core.limits.hit(Limit::TraceQueue, core.clock.now());
    }
}

/// A unique span id.
fn fresh() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}

/// Spreads queue ids evenly, since they grow with time (`SplitMix64`).
fn mixed(id: u64) -> u64 {
    let mut x = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(sample_one_in: u64) -> Tracer {
        let (queue, _) = mpsc::channel(1);
        Tracer { sample_one_in, hostname: "mx.test".to_owned(), queue, carried: Mutex::default() }
    }

    #[test]
    fn one_message_in_so_many_is_sampled_and_always_the_same() {
        let (one, other) = (tracer(100), tracer(100));
        let sampled = (1..=100_000).filter(|id| one.context(MessageId(*id)).is_some()).count();
        assert!((700..1_300).contains(&sampled), "{sampled}");
        assert!((1..1_000).all(|id| one.context(MessageId(id)) == other.context(MessageId(id))));
        assert!((1..1_000).all(|id| tracer(1).context(MessageId(id)).is_some()));
    }

    #[test]
    fn the_clients_trace_goes_on() {
        let tracer = tracer(1_000_000_000);
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = trace_parent(text).unwrap();
        tracer.carry(MessageId(7), parent);
        let context = tracer.context(MessageId(7)).unwrap();
        assert_eq!((context.trace, context.parent), (parent.trace, Some(parent.span)));
        tracer.carry(MessageId(8), TraceParent { is_sampled: false, ..parent });
        assert_eq!(tracer.context(MessageId(8)), None);
        for id in 0..2 * CARRIED_MAX as u64 {
            tracer.carry(MessageId(id), parent);
        }
        let carried = tracer.carried.lock();
        assert!(carried.all.len() == CARRIED_MAX && carried.order.len() == CARRIED_MAX);
    }
}
