//! Contents of a batch, at the smallest segments that the configuration allows and at others: the real committer over a
//! simulated disk, without clients or hosts.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use stentor_core::clock::Clock;
use stentor_core::committer::Committer;
use stentor_core::envelope::{AcceptanceFacts, EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use stentor_core::hub::{Act, Hub};
use stentor_core::intake::{IntakeRefusal, Job, Submission, Ticket, Turn};
use stentor_core::replay::replay_heard;
use stentor_core::{Actor, Core, Parts, Settings};
use stentor_delivery::bounce;
use stentor_journal::{Options, SimDisk};
use stentor_logs::Logs;
use stentor_mail::Class;
use stentor_mail::dsn::Ret;
use stentor_mail::reply::Enhanced;
use stentor_queue::event::{Event, Fate};
use stentor_queue::ids::{MessageId, MessageNo};
use stentor_queue::idset::IdSet;
use stentor_queue::slices::Paging;
use stentor_queue::store::Store;
use stentor_registry::AddressRegistry;
use stentor_resolve::Resolver;
use stentor_sched::{FailedRcpt, SchedConfig, Scheduler};
use tokio::sync::oneshot;

const START_MS: u64 = 1_800_000_000_000;
const MIB: u64 = 1024 * 1024;

struct Nobody;

impl Actor for Nobody {
    fn act(&self, _: &Arc<Core>, _: Act) {}
}

struct Bench {
    core: Arc<Core>,
    time: Arc<AtomicU64>,
    committer: Committer,
}

impl Bench {
    /// As a server with this configuration starts.
    fn configured(disk: &SimDisk, segment_bytes: u64) -> Bench {
        let settings = settings(segment_bytes);
        let options = settings.journal(7);
        Bench::start(disk, settings, options).unwrap()
    }

    fn start(disk: &SimDisk, settings: Arc<Settings>, options: Options) -> Result<Bench, String> {
        let paging = if options.segment_bytes < MIB {
            Paging { ids_shift: 2, messages_shift: 2, quarantine_shift: 24, kept_bytes_min: 0 }
        } else {
            Paging::default()
        };
        let opened = replay_heard(Arc::new(disk.clone()), options, Store::with_paging(paging), &mut |_| ());
        let (mut journal, store, _) = opened.map_err(|error| error.to_string())?;
        let time = Arc::new(AtomicU64::new(START_MS));
        let core = Core::new(Parts {
            clock: Clock::manual(time.clone()),
            resolver: Resolver::new(settings.resolver(&[])).unwrap(),
            settings,
            hub: Hub::new(store, Scheduler::new(SchedConfig::default(), 1), 0),
            reader: journal.reader(),
            log: Logs::off(),
            history: stentor_history::History::off(),
            next_content_id: journal.next_content_id(),
            actor: Arc::new(Nobody),
            registry: Arc::new(AddressRegistry::in_memory().map_err(|error| error.to_string())?),
            memory_limit: None,
        });
        Ok(Bench { committer: Committer::new(core.clone(), journal), core, time })
    }

    /// One turn; whether its batch was written.
    fn turn(&mut self) -> bool {
        let Turn::Commit(jobs) = self.core.intake.next(Some(Duration::ZERO)) else { return true };
        let jobs = self.committer.admit(jobs);
        self.committer.turn(jobs)
    }

    /// Turns until the ticket resolves; no batch may be refused.
    fn answer<T>(&mut self, mut ticket: Ticket<T>) -> Result<T, IntakeRefusal> {
        for _ in 0..100 {
            assert!(self.turn(), "a batch was refused");
            if let Ok(answer) = ticket.try_recv() {
                return answer;
            }
        }
        panic!("not answered in a hundred turns");
    }

    fn post(&self, envelope: NewEnvelope, body: Vec<u8>) -> (MessageId, Ticket<()>) {
        let (answer, ticket) = oneshot::channel();
        let (first, content, size) = (self.core.next_message_id(), self.core.next_content_id(), body.len() as u64);
        let (last, envelopes, fate_records) = (Arc::new(body), vec![envelope], Vec::new());
        let submission =
            Submission { first, content, last, size, merge_bytes: 0, envelopes, fate_records, assigned: None };
        self.core.intake.push(Job::Accept { submission, answer });
        (first, ticket)
    }

    /// A large body goes in by pieces, as a session's does.
    fn post_large(&mut self, envelope: NewEnvelope, body: &[u8]) -> MessageId {
        let (first, content, size) = (self.core.next_message_id(), self.core.next_content_id(), body.len() as u64);
        let mut pieces = body.chunks(256 * 1024);
        let last = Arc::new(pieces.next_back().unwrap_or_default().to_vec());
        for piece in pieces {
            let (answer, ticket) = oneshot::channel();
            self.core.intake.push(Job::Piece { content, bytes: piece.to_vec(), answer });
            self.answer(ticket).unwrap();
        }
        let (answer, ticket) = oneshot::channel();
        let (envelopes, fate_records) = (vec![envelope], Vec::new());
        let submission =
            Submission { first, content, last, size, merge_bytes: 0, envelopes, fate_records, assigned: None };
        self.core.intake.push(Job::Accept { submission, answer });
        self.answer(ticket).unwrap();
        first
    }

    fn no_of(&self, id: MessageId) -> MessageNo {
        self.core.with(|hub, _| hub.store.no_of(id)).expect("it is queued")
    }

    /// Bounces some of a message's recipients; whether it is over after some turns, none of whose batches may be
    /// refused.
    fn bounce(&mut self, no: MessageNo, failures: Vec<FailedRcpt>) {
        let mut bouncing = pin!(bounce(self.core.clone(), no, failures));
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            if bouncing.as_mut().poll(&mut context) == Poll::Ready(()) {
                while self.core.with(|hub, _| hub.outcomes.is_waiting()) {
                    assert!(self.turn(), "a batch was refused");
                }
                return;
            }
            assert!(self.turn(), "a batch was refused");
        }
        panic!("the report is not stored after a hundred turns");
    }
}

fn settings(segment_bytes: u64) -> Arc<Settings> {
    let mut config = stentor_config::without_file().unwrap();
    "mx.stentor.example".clone_into(&mut config.hostname);
    config.journal.segment_bytes = segment_bytes;
    config.journal.batch_bytes_max = (4 * MIB).min(segment_bytes / 2);
    config.dns.servers = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 53))];
    Arc::new(Settings::new(config, None))
}

fn envelope(recipients: EnvelopeRecipients, list: Option<&str>) -> NewEnvelope {
    NewEnvelope {
        sender: "s@d1.example".to_owned(),
        class: Class::Ordinary,
        list: list.map(str::to_owned),
        recipients,
        prefix: Vec::new(),
        eight_bit: false,
        smtputf8: false,
        ret: Some(Ret::Full),
        envid: None,
        origin: "127.0.0.1".to_owned(),
        message_id: String::new(),
        message_id_at: None,
        is_report: false,
        given_sender: None,
        held_by: None,
        require_tls: false,
        is_transactional: false,
        is_archive: false,
        is_quarantined: false,
        taken: AcceptanceFacts::local(""),
    }
}

fn to(addresses: impl Iterator<Item = String>) -> EnvelopeRecipients {
    EnvelopeRecipients::Addresses(addresses.map(|text| EnvelopeRcpt::plain(text.parse().unwrap())).collect())
}

fn body(len: usize) -> Vec<u8> {
    let mut bytes = b"Subject: campaign\r\n\r\n".to_vec();
    bytes.extend((bytes.len()..len).map(|at| if at % 70 > 67 { b"\r\n"[at % 70 - 68] } else { b'x' }));
    bytes
}

/// Everybody who is pending is refused with this text.
fn failures(bench: &Bench, no: MessageNo, text: &str) -> Vec<FailedRcpt> {
    let pending = bench.core.with(|hub, _| hub.store.message(no).unwrap().pending().clone());
    let failure = |id| FailedRcpt {
        id: stentor_queue::ids::AddressId(id),
        expired: false,
        dsn: Enhanced::new(5, 7, 1),
        code: 550,
        text: text.into(),
        host: Some("mx.receiver.example".into()),
    };
    pending.iter().map(failure).collect()
}

/// Every so many writes and syncs a cut.
const CUT_STEP: u64 = 2;
const CUTS_MAX: u64 = 150;
const SETTLING_TURNS: usize = 40;

/// Cuts between the writes and syncs of a store in which many messages end at once, so that their outcomes go in
/// several batches: before a content's segment is used again, the outcome that ended it must be durable.
#[test]
fn no_content_goes_before_the_outcome_that_ended_it() {
    let options = Options {
        segment_bytes: 8 * 4096,
        batch_bytes_max: 3 * 4096,
        spare_segments: 2,
        reserve_segments: 0,
        checkpoint_bytes_min: 16 * 4096,
        seed: 7,
        ..Options::default()
    };
    let mut operations = 1;
    let mut cut_within = 0;
    loop {
        let disk = SimDisk::new(operations);
        let mut bench = Bench::start(&disk, settings(MIB), options.clone()).unwrap();
        let everybody = || to((0..20).map(|n| format!("r{n}@d2.example")));
        let posted: Vec<_> = (0..40).map(|_| bench.post(envelope(everybody(), None), body(1_500))).collect();
        let mut ids = Vec::new();
        for (id, ticket) in posted {
            bench.answer(ticket).unwrap();
            ids.push(id);
        }
        // A checkpoint, so that the contents lie in segments that may be used again.
        for _ in 0..SETTLING_TURNS {
            bench.turn();
        }
        bench.core.with(|hub, now| {
            // All end at once, behind some hundred outcomes that end none.
            let nos: Vec<MessageNo> = ids.iter().filter_map(|id| hub.store.no_of(*id)).collect();
            let everybody = hub.store.message(nos[0]).unwrap().pending().clone();
            for id in &everybody {
                for no in &nos {
                    hub.outcome(*no, Fate::Delivered, &IdSet::one(id), now);
                }
            }
        });
        disk.cut_at(disk.operations() + operations);
        while !disk.is_cut() && bench.core.with(|hub, _| hub.outcomes.is_waiting()) {
            bench.turn();
        }
        let left = bench.core.with(|hub, _| hub.outcomes.is_waiting());
        if !disk.is_cut() || operations > CUTS_MAX {
            break;
        }
        cut_within += u64::from(left);
        drop(bench);
        let again = Bench::start(&disk.crash(), settings(MIB), options.clone());
        let again = again.unwrap_or_else(|error| panic!("cut at operation {operations} behind the outcomes: {error}"));
        again.core.with(|hub, _| {
            let contents: Vec<u64> = hub.store.live_contents().map(|content| content.0).collect();
            assert!(contents.iter().all(|content| again.core.reader.len(*content).is_some()));
        });
        operations += CUT_STEP;
    }
    assert!(cut_within > 4, "the outcomes went in {cut_within} writes and syncs: too few to cut between them");
}

#[test]
fn a_report_that_returns_the_largest_message_is_stored_with_the_smallest_segments() {
    let mut bench = Bench::configured(&SimDisk::new(1), MIB);
    let id = bench.post_large(envelope(to(std::iter::once("r@d2.example".to_owned())), None), &body(1_046_500));
    let no = bench.no_of(id);
    let failures = failures(&bench, no, "no such user");
    bench.bounce(no, failures);
    bench.core.with(|hub, _| {
        assert!(hub.store.no_of(id).is_none(), "its recipient has its fate");
        let sizes: Vec<u64> = hub.store.messages().map(|(_, message)| message.envelope().size).collect();
        assert!(matches!(sizes[..], [size] if size > 1_046_500), "the report returns all of it: {sizes:?}");
    });
}

#[test]
fn a_report_of_a_thousand_long_replies_is_stored_with_the_smallest_segments() {
    let mut bench = Bench::configured(&SimDisk::new(1), MIB);
    let everybody = to((0..1_000).map(|n| format!("r{n}@d2.example")));
    let id = bench.post_large(envelope(everybody, None), &body(3_000));
    let no = bench.no_of(id);
    let failures = failures(&bench, no, &"a very long story ".repeat(100));
    bench.bounce(no, failures);
    bench.core.with(|hub, _| {
        assert!(hub.store.no_of(id).is_none(), "all have their fate");
        let sizes: Vec<u64> = hub.store.messages().map(|(_, message)| message.envelope().size).collect();
        assert!(
            matches!(sizes[..], [size] if size < MIB),
            "one report, and no more of the replies than is of use: {sizes:?}"
        );
    });
}

#[test]
fn what_no_batch_holds_is_refused_for_good_and_takes_nothing_along() {
    let mut bench = Bench::configured(&SimDisk::new(1), MIB);
    // Every other address of ten million: a bitmap of 1.25 MiB.
    let ids: IdSet = (0..10_000_000).step_by(2).collect();
    let (answer, list) = oneshot::channel();
    let job = Job::List { name: "huge".to_owned(), stamp: String::new(), ids: ids.clone(), pin: None, answer };
    bench.core.intake.push(job);
    let (_, beside) = bench.post(envelope(to(std::iter::once("r@d2.example".to_owned())), None), body(300));
    assert_eq!(bench.answer(list), Err(IntakeRefusal::TooLarge));
    assert_eq!(bench.answer(beside), Ok(()));
    // One that a reload has removed while a post to it was on its way.
    let (_, gone) = bench.post(envelope(EnvelopeRecipients::List, Some("gone")), body(300));
    assert_eq!(bench.answer(gone), Err(IntakeRefusal::ListGone), "it would go to nobody");
    // One that was stored while segments were larger.
    bench.core.with(|hub, _| hub.apply(Event::ListVersion { name: "huge", version: 1, stamp: "", ids }));
    let (_, post) = bench.post(envelope(EnvelopeRecipients::List, Some("huge")), body(300));
    let (_, beside) = bench.post(envelope(to(std::iter::once("r@d2.example".to_owned())), None), body(300));
    assert_eq!(bench.answer(post), Err(IntakeRefusal::TooLarge));
    assert_eq!(bench.answer(beside), Ok(()));
    assert_eq!(IntakeRefusal::TooLarge.reply().code, 552);
}

fn intern_subscribers(bench: &mut Bench) -> IdSet {
    let mut ids = IdSet::new();
    for chunk in 0..12 {
        let addresses: Vec<String> =
            (0..2_048).map(|n| format!("subscriber-{chunk}-{n}@list-of-many.example")).collect();
        let (answer, ticket) = oneshot::channel();
        bench.core.intake.push(Job::Intern { addresses, answer });
        for id in bench.answer(ticket).unwrap().ids {
            ids.insert(id.0);
        }
    }
    ids
}

/// Pushes a job of any kind and size; some are larger than a batch can be.
fn push_job(bench: &mut Bench, rng: &mut Rng, ids: &IdSet, round: u32) -> Ticket<()> {
    match rng.u8(0..6) {
        0 => {
            let (answer, ticket) = oneshot::channel();
            let some = ids.iter().filter(|_| rng.bool()).collect();
            let (name, stamp) = (format!("l{}", rng.u8(0..3)), String::new());
            bench.core.intake.push(Job::List { name, stamp, ids: some, pin: None, answer });
            ticket
        }
        1 | 2 => {
            let name = format!("l{}", rng.u8(0..3));
            bench.post(envelope(EnvelopeRecipients::List, Some(&name)), body(rng.usize(100..200_000))).1
        }
        3 => {
            let mut large = envelope(to((0..rng.usize(1..60)).map(|n| format!("r{n}@d2.example"))), None);
            large.prefix = vec![b'x'; rng.usize(0..bench.committer.log().batch_bytes_max())];
            bench.post(large, body(300)).1
        }
        _ => {
            let some = to((0..rng.usize(1..600)).map(|n| format!("r{n}-{round}@d2.example")));
            bench.post(envelope(some, None), body(rng.usize(100..262_144))).1
        }
    }
}

/// Whatever waits for the committer, at any size of segments: no batch is refused, and every job is answered.
#[test]
fn no_batch_is_ever_too_large() {
    for (seed, segment_bytes) in [(1, MIB), (2, MIB + 4096), (3, 3 * MIB / 2), (4, 16 * MIB)] {
        let mut rng = Rng::with_seed(seed);
        let mut bench = Bench::configured(&SimDisk::new(seed), segment_bytes);
        let ids = intern_subscribers(&mut bench);
        let (mut tickets, mut answered, mut refused) = (Vec::new(), 0, 0);
        for round in 0..80u32 {
            for _ in 0..rng.usize(0..5) {
                tickets.push(push_job(&mut bench, &mut rng, &ids, round));
            }
            bench.core.with(|hub, now| {
                let nos: Vec<MessageNo> = hub.store.messages().map(|(no, _)| no).collect();
                for no in nos {
                    let pending = hub.store.message(no).unwrap().pending();
                    let some: IdSet = pending.iter().filter(|_| rng.u8(0..3) == 0).collect();
                    if !some.is_empty() && rng.bool() {
                        hub.outcome(no, Fate::Delivered, &some, now);
                    }
                }
            });
            assert!(bench.turn(), "seed {seed}, round {round}: a batch was refused");
            tickets.retain_mut(|ticket: &mut Ticket<()>| match ticket.try_recv() {
                Ok(answer) => {
                    refused += u32::from(answer == Err(IntakeRefusal::TooLarge));
                    assert!(
                        matches!(answer, Ok(()) | Err(IntakeRefusal::TooLarge | IntakeRefusal::ListGone)),
                        "seed {seed}: {answer:?}"
                    );
                    answered += 1;
                    false
                }
                Err(_) => true,
            });
        }
        for ticket in tickets {
            assert!(
                matches!(bench.answer(ticket), Ok(()) | Err(IntakeRefusal::TooLarge | IntakeRefusal::ListGone)),
                "seed {seed}"
            );
            answered += 1;
        }
        let checkpoints = bench.committer.log().statistics().checkpoints;
        assert!(
            answered > 50 && refused > 0 && checkpoints > 0,
            "{answered} answered, {refused} refused, {checkpoints}"
        );
    }
}

#[test]
fn what_is_in_the_quarantine_expires_silently_by_a_clock_that_has_been_watched() {
    const DAY_MS: u64 = 86_400_000;
    let mut bench = Bench::configured(&SimDisk::new(1), 64 * MIB);
    let kept = |bench: &Bench| bench.core.with(|hub, _| (hub.store.quarantined_len(), hub.store.totals().fates));
    let sweep = |bench: &mut Bench| {
        let core = bench.core.clone();
        let mut sweeping = pin!(stentor_admin::quarantine::sweep(&core));
        while sweeping.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending {
            assert!(bench.turn(), "a batch was refused");
        }
    };
    for (n, days) in [(0, 20), (1, 9), (2, 0)] {
        let recipients = to([format!("r{n}@x.example")].into_iter());
        let envelope =
            NewEnvelope { is_quarantined: true, held_by: Some("rule 1".into()), ..envelope(recipients, None) };
        let (_, ticket) = bench.post(envelope, body(1_000));
        bench.answer(ticket).unwrap();
        bench.time.fetch_add(days * DAY_MS, Ordering::Relaxed);
    }
    assert_eq!(kept(&bench).0, 3);
    bench.time.fetch_add(2 * DAY_MS, Ordering::Relaxed);
    // Whoever has just set the clock may have set it wrongly.
    sweep(&mut bench);
    assert_eq!(kept(&bench).0, 3);
    bench.time.fetch_add(600_000, Ordering::Relaxed);
    sweep(&mut bench);
    let (left, fates) = kept(&bench);
    assert_eq!((left, fates.expired, fates.quarantined), (2, 1, 2));
    assert!(bench.core.with(|hub, _| hub.store.is_empty() && hub.store.is_balanced()), "nobody is told");
}
