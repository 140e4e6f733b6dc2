//! Checks that no client makes a milter be skipped for others, over real sockets.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stentor_mail::reply::Reply;
use stentor_milter::protocol::{DATA_BYTES_MAX, MilterSettings, OnFailure, Scope, ServiceAddress};
use stentor_milter::{ClientFacts, Content, MailFacts, MilterRefusal, MilteredMessage, Milters};
use stentor_smtp::server::MailFrom;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// What a milter does at the end of a message, or when it gets a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndAction {
    Accepts,
    Closes,
    Hangs,
}

/// A milter that fails at the ends of its first messages, then of those from `<bad@x.test>`.
struct Filter {
    fails: EndAction,
    failures_left: AtomicU32,
    accepted: AtomicU32,
    /// What it does with clients from now on, and their number.
    at_client: Mutex<EndAction>,
    clients: AtomicU32,
}

impl Filter {
    fn next(&self, is_bad: bool) -> EndAction {
        let left = self.failures_left.load(Ordering::SeqCst);
        self.failures_left.store(left.saturating_sub(1), Ordering::SeqCst);
        if is_bad || left > 0 {
            return self.fails;
        }
        self.accepted.fetch_add(1, Ordering::SeqCst);
        EndAction::Accepts
    }

    /// Like libmilter, it closes the connection after a packet that is too large.
    async fn serve(self: Arc<Self>, mut stream: UnixStream) -> io::Result<()> {
        let mut is_bad = false;
        loop {
            let length = stream.read_u32().await? as usize;
            if length > 1 + DATA_BYTES_MAX {
                return Ok(());
            }
            let mut packet = vec![0; length];
            stream.read_exact(&mut packet).await?;
            match packet[0] {
                b'O' => stream.write_all(&[0, 0, 0, 13, b'O', 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]).await?,
                b'D' | b'A' | b'K' => {}
                b'Q' => return Ok(()),
                b'E' => match self.next(is_bad) {
                    EndAction::Accepts => stream.write_all(&[0, 0, 0, 1, b'c']).await?,
                    EndAction::Closes => return Ok(()),
                    EndAction::Hangs => std::future::pending().await,
                },
                b'C' => {
                    self.clients.fetch_add(1, Ordering::SeqCst);
                    let action = *self.at_client.lock().expect("no panic");
                    match action {
                        EndAction::Accepts => stream.write_all(&[0, 0, 0, 1, b'c']).await?,
                        EndAction::Closes => return Ok(()),
                        EndAction::Hangs => std::future::pending().await,
                    }
                }
                command => {
                    if command == b'M' {
                        is_bad = packet.starts_with(b"M<bad@");
                    }
                    stream.write_all(&[0, 0, 0, 1, b'c']).await?;
                }
            }
        }
    }
}

struct World {
    filter: Arc<Filter>,
    milters: Milters,
    _folder: tempfile::TempDir,
}

/// A client with the address 192.0.2.n.
#[derive(Clone, Copy)]
struct Client {
    n: u8,
    is_trusted: bool,
}

impl World {
    fn new(fails: EndAction, failures: u32, on_failure: OnFailure) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("filter");
        let listener = UnixListener::bind(&path).expect("a new folder");
        let (accepted, clients) = (AtomicU32::new(0), AtomicU32::new(0));
        let at_client = Mutex::new(EndAction::Accepts);
        let filter = Arc::new(Filter { fails, failures_left: failures.into(), accepted, at_client, clients });
        let serving = filter.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        let settings = MilterSettings {
            name: "filter".to_owned(),
            place: ServiceAddress::Unix(path),
            scope: Scope { smtp: true, listeners: Vec::new(), local: true },
            on_unreachable: on_failure,
            on_timeout: on_failure,
            on_error: on_failure,
            connect_timeout_ms: 10_000,
            command_timeout_ms: 30_000,
            content_timeout_ms: 30_000,
            reuse: false,
            pipelining: false,
            daemon_name: "test".to_owned(),
        };
        World { filter, milters: Milters::new("mx.test", &[settings], None), _folder: folder }
    }

    fn accepted(&self) -> u32 {
        self.filter.accepted.load(Ordering::SeqCst)
    }

    /// A session up to MAIL, and, if there is content, its message.
    async fn session(
        &self,
        client: Client,
        sender: &str,
        content: Option<&[u8]>,
    ) -> Result<MilteredMessage, MilterRefusal> {
        let Client { n, is_trusted } = client;
        let address = [192, 0, 2, n].into();
        let facts = ClientFacts {
            address,
            counted_as: address,
            is_trusted,
            port: 1,
            name: None,
            listener: None,
            login: None,
            tls: None,
        };
        let session = self.milters.of(&facts).expect("it applies");
        let mail = MailFrom::parse(sender.as_bytes(), 1_000_000).expect("a sender");
        session.chain().await.mail(MailFacts { helo: "x", id: "1", mail: &mail }).await?;
        let mut result = Ok(MilteredMessage::default());
        if let Some(content) = content {
            let mut chain = session.chain().await;
            chain.data().await?;
            result = chain.message(&mut Octets(content), 0, 1_000_000).await;
        }
        session.over();
        result
    }

    async fn sends(&self, client: Client, sender: &str) -> bool {
        self.session(client, sender, Some(b"Subject: x\r\n\r\nx\r\n")).await.is_ok()
    }
}

struct Octets<'c>(&'c [u8]);

impl Content for Octets<'_> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.0[usize::try_from(at).expect("small")..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn hold(&mut self, _: usize) -> Result<(), Reply> {
        Ok(())
    }

    async fn write(&mut self, _: Vec<u8>) -> Result<(), Reply> {
        Ok(())
    }

    fn replace(&mut self, _: Vec<u8>) {}

    fn forget(&mut self) {}
}

const GOOD: &str = "<good@x.test>";
const BAD: &str = "<bad@x.test>";
// Two untrusted clients and a trusted one.
const ANN: Client = Client { n: 1, is_trusted: false };
const BOB: Client = Client { n: 2, is_trusted: false };
const OURS: Client = Client { n: 3, is_trusted: true };

#[tokio::test]
async fn a_field_longer_than_a_packet_is_no_failure() {
    let world = World::new(EndAction::Closes, 0, OnFailure::Tempfail);
    let folded = format!("From: z@z.example\r\nX-Long: {}\r\n\r\nx\r\n", "x\r\n ".repeat(24_000));
    let to = "Member <member00001@club.example>,\r\n ".repeat(2_000);
    let recipients = format!("To: {to}b@x.test\r\n\r\nx\r\n");
    let name = format!("{}: x\r\n\r\nx\r\n", "N".repeat(70_000));
    for content in [folded, recipients, name] {
        let shown = world.session(ANN, GOOD, Some(content.as_bytes())).await.expect("it is shown");
        assert!(shown.end.is_none(), "the message itself stays");
    }
    assert_eq!(world.accepted(), 3);
}

/// With either action: mail of others is neither refused nor accepted unchecked.
#[tokio::test(start_paused = true)]
async fn a_client_whose_mail_breaks_the_milter_affects_only_itself() {
    for (fails, on_failure) in [
        (EndAction::Closes, OnFailure::Tempfail),
        (EndAction::Closes, OnFailure::Accept),
        (EndAction::Hangs, OnFailure::Tempfail),
        (EndAction::Hangs, OnFailure::Accept),
    ] {
        let world = World::new(fails, 0, on_failure);
        for n in 0..20 {
            for _ in 0..5 {
                assert_eq!(world.sends(ANN, BAD).await, on_failure == OnFailure::Accept);
            }
            assert!(world.sends(BOB, GOOD).await && world.sends(OURS, GOOD).await);
            assert_eq!(world.accepted(), 2 * (n + 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_untrusted_clients_never_pause_it_for_trusted_ones() {
    let world = World::new(EndAction::Closes, 0, OnFailure::Tempfail);
    for n in 1..20 {
        assert!(!world.sends(Client { n, is_trusted: false }, BAD).await);
    }
    assert!(!world.sends(Client { n: 100, is_trusted: false }, GOOD).await, "paused for them");
    assert!(world.sends(Client { n: 1, is_trusted: true }, GOOD).await, "whatever the address");
}

/// Address probes, or spam that ends at RCPT.
#[tokio::test(start_paused = true)]
async fn sessions_without_a_message_do_not_postpone_the_recovery() {
    for fails in [EndAction::Closes, EndAction::Hangs] {
        let world = World::new(fails, 3, OnFailure::Tempfail);
        for client in [ANN, ANN, BOB] {
            assert!(!world.sends(client, GOOD).await);
        }
        assert!(!world.sends(BOB, GOOD).await, "paused");
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..100 {
            assert!(world.session(ANN, GOOD, None).await.is_ok(), "its last session gave its trial back");
        }
        assert!(world.sends(BOB, GOOD).await && world.sends(ANN, GOOD).await);
        assert_eq!(world.accepted(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_milter_that_is_down_is_found_by_one_connection_and_found_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let world = World::new(EndAction::Closes, 0, OnFailure::Tempfail);
    let mut settings = world.milters.iter().next().expect("one").settings.clone();
    let place = folder.path().join("later");
    settings.place = ServiceAddress::Unix(place.clone());
    let world = World { milters: Milters::new("mx.test", &[settings], None), ..world };
    let why = async |world: &World, client| world.session(client, GOOD, None).await.err().expect("it is down").by;
    assert!(why(&world, ANN).await.contains("no connection"));
    assert!(why(&world, BOB).await.contains("skipped"));
    assert!(why(&world, OURS).await.contains("no connection"), "trusted clients find out themselves");
    let listener = UnixListener::bind(&place).expect("a new folder");
    let filter = world.filter.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(filter.clone().serve(stream));
        }
    });
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(world.sends(BOB, GOOD).await && world.sends(ANN, GOOD).await && world.sends(OURS, GOOD).await);
}

/// A milter that has begun to fail on every client: each session finds out by one attempt, or by a second one with a
/// new connection if the milter closed the first, and it counts.
#[tokio::test(start_paused = true)]
async fn failures_of_reused_connections_count_and_are_bounded() {
    for (action, attempts, kind) in [(EndAction::Hangs, 1, "timeout"), (EndAction::Closes, 2, "error")] {
        let world = World::new(action, 0, OnFailure::Tempfail);
        let mut settings = world.milters.iter().next().expect("one").settings.clone();
        settings.reuse = true;
        let world = World { milters: Milters::new("mx.test", &[settings], None), ..world };
        // As many idle connections as sessions at a time.
        let sent = tokio::join!(
            world.sends(ANN, GOOD),
            world.sends(BOB, GOOD),
            world.sends(OURS, GOOD),
            world.sends(OURS, GOOD)
        );
        assert_eq!(sent, (true, true, true, true));
        assert!(world.sends(OURS, GOOD).await);
        let milter = world.milters.iter().next().expect("one");
        let failures = || milter.counters.read().find(|(name, _)| *name == kind).map(|(_, count)| count);
        assert_eq!((world.filter.clients.swap(0, Ordering::SeqCst), failures()), (5, Some(0)));
        *world.filter.at_client.lock().expect("no panic") = action;
        assert!(!world.sends(OURS, GOOD).await);
        assert_eq!((world.filter.clients.load(Ordering::SeqCst), failures()), (attempts, Some(1)));
    }
}
