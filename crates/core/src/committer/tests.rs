//! What a committer answers when a batch is durable and when it is refused, over a log in memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stentor_history::History;
use stentor_journal::{CommitError, Log, VolatileLog};
use stentor_logs::Logs;
use stentor_queue::ids::{ContentId, MessageId};
use stentor_queue::store::Store;
use stentor_registry::AddressRegistry;
use stentor_resolve::Resolver;
use stentor_sched::{SchedConfig, Scheduler};
use tokio::sync::oneshot;

use super::Committer;
use crate::clock::Clock;
use crate::envelope::{EnvelopeRcpt, NewEnvelope};
use crate::hub::{Act, Hub};
use crate::intake::{IntakeRefusal, Job, Submission, Ticket, Turn};
use crate::replay;
use crate::{Actor, Core, Parts, Settings};

const START_MS: u64 = 1_800_000_000_000;

struct Nobody;

impl Actor for Nobody {
    fn act(&self, _: &Arc<Core>, _: Act) {}
}

struct Bench {
    core: Arc<Core>,
    committer: Committer<VolatileLog>,
}

impl Bench {
    fn new() -> Bench {
        let mut config = stentor_config::without_file().expect("the defaults");
        config.dns.servers = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 53))];
        let settings = Arc::new(Settings::new(config, None));
        let mut log = VolatileLog::new(1024 * 1024);
        let core = Core::new(Parts {
            clock: Clock::manual(Arc::new(AtomicU64::new(START_MS))),
            resolver: Resolver::new(settings.resolver(&[])).expect("a resolver"),
            settings,
            hub: Hub::new(Store::new(), Scheduler::new(SchedConfig::default(), 1), 0),
            reader: log.reader(),
            log: Logs::off(),
            history: History::off(),
            next_content_id: log.next_content_id(),
            actor: Arc::new(Nobody),
            registry: Arc::new(AddressRegistry::in_memory().expect("a registry")),
            memory_limit: None,
        });
        Bench { committer: Committer::new(core.clone(), log), core }
    }

    fn post(&self, to: &[&str], body: &[u8]) -> (MessageId, ContentId, Ticket<()>) {
        let all = to.iter().map(|to| EnvelopeRcpt::plain(to.parse().expect("an address"))).collect();
        let envelopes = vec![NewEnvelope::own(all, "<1@a.example>".to_owned(), "a test")];
        let (first, content) = (self.core.next_message_id(), self.core.next_content_id());
        let (answer, ticket) = oneshot::channel();
        let (size, last) = (body.len() as u64, Arc::new(body.to_vec()));
        let submission = Submission {
            first,
            content,
            last,
            size,
            merge_bytes: 0,
            envelopes,
            fate_records: Vec::new(),
            assigned: None,
        };
        self.core.intake.push(Job::Accept { submission, answer });
        (first, content, ticket)
    }

    /// Writes one batch. Returns whether the log took it.
    fn turn(&mut self) -> bool {
        let Turn::Commit(jobs) = self.core.intake.next(Some(Duration::ZERO)) else { return true };
        let jobs = self.committer.admit(jobs);
        self.committer.turn(jobs)
    }

    fn has(&self, id: MessageId) -> bool {
        self.core.with(|hub, _| hub.store.no_of(id).is_some())
    }
}

#[test]
fn what_is_answered_is_in_the_log() {
    let mut bench = Bench::new();
    let (id, content, mut ticket) = bench.post(&["ann@a.example", "bob@b.example"], b"Subject: x\r\n\r\nhello\r\n");
    assert!(ticket.try_recv().is_err() && !bench.has(id), "nothing is promised before a commit");
    assert!(bench.turn());
    assert_eq!(ticket.try_recv(), Ok(Ok(())));
    let mut octets = [0; 64];
    let read = bench.core.reader.read_at(content.0, 0, &mut octets).expect("the content");
    assert_eq!(&octets[..read], b"Subject: x\r\n\r\nhello\r\n");
    let mut again = Store::new();
    bench.committer.log().replay(&mut |record| Ok(replay::apply(&mut again, record)?)).expect("sound records");
    let no = again.no_of(id).expect("the message");
    assert_eq!(again.message(no).map(|message| message.pending().len()), Some(2));
}

#[test]
fn a_refused_batch_leaves_nothing_and_the_next_one_is_taken() {
    let refusals = [
        (CommitError::Full(io::ErrorKind::StorageFull.into()), IntakeRefusal::Full, 452),
        (
            CommitError::Io { file: "seg".to_owned(), offset: 0, source: io::ErrorKind::Other.into() },
            IntakeRefusal::Io,
            451,
        ),
    ];
    for (error, expected, code) in refusals {
        let mut bench = Bench::new();
        bench.committer.log().fail(error);
        let (id, content, mut ticket) = bench.post(&["ann@a.example"], b"Subject: x\r\n\r\nhello\r\n");
        assert!(!bench.turn(), "{expected}");
        assert_eq!(ticket.try_recv(), Ok(Err(expected)));
        assert_eq!(expected.reply().code, code);
        assert!(!bench.has(id) && bench.core.reader.len(content.0).is_none(), "{expected}");
        let mut records = 0;
        let count = &mut |_: stentor_journal::Record<'_>| {
            records += 1;
            Ok(())
        };
        bench.committer.log().replay(count).expect("no records");
        assert_eq!(records, 0, "{expected}");
        bench.core.disk_full.store(false, Ordering::Relaxed);
        let (id, _, mut ticket) = bench.post(&["ann@a.example"], b"Subject: x\r\n\r\nagain\r\n");
        assert!(bench.turn() && ticket.try_recv() == Ok(Ok(())) && bench.has(id), "{expected}");
    }
}
