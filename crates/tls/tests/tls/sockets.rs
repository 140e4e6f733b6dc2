//! Tests of sessions over real sockets, both sides ours.

use std::io;
use std::sync::Arc;

use stentor_tls::{
    Acceptor, ClientCertificates, ClientSettings, Connector, Identities, IdentityStore, PeerProof, PeerRequirement,
    ServerSettings, TlsErrorCause, TlsSocket, WRITE_BYTES_MAX,
};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::{Duration, Instant};

use crate::kit::*;

/// A distant deadline: the awaited event happens, or the test runner reports a hanging test.
pub fn later() -> Instant {
    Instant::now() + Duration::from_mins(5)
}

pub async fn read_some<S: stentor_tls::RawSocket>(socket: &mut TlsSocket<S>, max: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; max];
    loop {
        match socket.try_read(&mut buffer) {
            Ok(octets) => return Ok(buffer[..octets].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.readable().await?,
            Err(error) => return Err(error),
        }
    }
}

pub async fn write_all<S: stentor_tls::RawSocket>(socket: &mut TlsSocket<S>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.try_write(bytes) {
            Ok(octets) => bytes = &bytes[octets..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
        }
    }
    socket.flush().await
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

/// Both ends, after the handshake.
async fn pair(
    client: &Connector,
    server: &Acceptor,
    requirement: &PeerRequirement,
) -> (TlsSocket<TcpStream>, TlsSocket<TcpStream>) {
    let (ours, theirs) = sockets().await;
    let mut ours = TlsSocket::new(ours, client.begin(requirement, "mx.example.org", "192.0.2.1:25").unwrap());
    let mut theirs = TlsSocket::new(theirs, server.begin().unwrap());
    let (a, b) = tokio::join!(ours.handshake(later()), theirs.handshake(later()));
    a.unwrap();
    b.unwrap();
    (ours, theirs)
}

#[tokio::test]
async fn what_is_written_arrives_over_tcp_and_unix() {
    let ca = Ca::new();
    let (client, server) = (ca.client(), ca.server("mx.example.org"));
    let (mut ours, mut theirs) = pair(&client, &server, &by_ca("mx.example.org")).await;
    write_all(&mut ours, b"EHLO a\r\n").await.unwrap();
    assert_eq!(read_some(&mut theirs, 100).await.unwrap(), b"EHLO a\r\n");
    ours.close().await.unwrap();
    assert_eq!(read_some(&mut theirs, 100).await.unwrap(), b"");
    assert!(!theirs.was_cut());

    let (a, b) = UnixStream::pair().unwrap();
    let mut ours = TlsSocket::new(a, client.begin(&unproven(), "mx.example.org", "unix").unwrap());
    let mut theirs = TlsSocket::new(b, server.begin().unwrap());
    let (one, other) = tokio::join!(ours.handshake(later()), theirs.handshake(later()));
    one.unwrap();
    other.unwrap();
    write_all(&mut theirs, b"250 b\r\n").await.unwrap();
    // A buffer of one octet: the rest is kept.
    let mut got = Vec::new();
    while got.len() < 7 {
        got.extend(read_some(&mut ours, 1).await.unwrap());
    }
    assert_eq!(got, b"250 b\r\n");
    drop(theirs);
    assert_eq!(read_some(&mut ours, 100).await.unwrap(), b"");
    assert!(ours.was_cut());
}

fn pattern(octets: usize) -> Vec<u8> {
    (0..octets).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Writes to a peer that does not read, until the socket is full; returns how much was accepted.
fn stuff(socket: &mut TlsSocket<TcpStream>, bytes: &[u8]) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match socket.try_write(&bytes[at..]) {
            Ok(octets) => at += octets,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                break;
            }
        }
    }
    at
}

#[tokio::test]
async fn a_large_write_waits_and_is_whole_in_the_end() {
    let ca = Ca::new();
    let (mut ours, mut theirs) = pair(&ca.client(), &ca.server("mx.example.org"), &unproven()).await;
    socket2::SockRef::from(ours.socket()).set_send_buffer_size(100_000).unwrap();
    socket2::SockRef::from(theirs.socket()).set_recv_buffer_size(100_000).unwrap();
    let bytes = pattern(32_000_000);
    let taken = stuff(&mut ours, &bytes);
    assert!(taken < 8_000_000, "{taken} octets are somewhere, {WRITE_BYTES_MAX} of them in memory of ours at most");
    let reader = async {
        let mut got = Vec::new();
        while got.len() < bytes.len() {
            got.extend(read_some(&mut theirs, 50_000).await.unwrap());
        }
        got
    };
    let (written, got) = tokio::join!(write_all(&mut ours, &bytes[taken..]), reader);
    written.unwrap();
    assert!(got == bytes);
}

#[tokio::test]
async fn who_waits_for_a_reply_still_sends_what_is_encrypted() {
    let ca = Ca::new();
    let (mut ours, mut theirs) = pair(&ca.client(), &ca.server("mx.example.org"), &unproven()).await;
    socket2::SockRef::from(ours.socket()).set_send_buffer_size(50_000).unwrap();
    let bytes = pattern(8_000_000);
    let taken = stuff(&mut ours, &bytes);
    assert!(ours.secured().wants_send());
    let reader = async {
        let mut got = 0;
        while got < taken {
            got += read_some(&mut theirs, 50_000).await.unwrap().len();
        }
        write_all(&mut theirs, b"250 Ok\r\n").await.unwrap();
    };
    // Only `readable` is called, so it must send the rest.
    let (reply, ()) = tokio::join!(read_some(&mut ours, 100), reader);
    assert_eq!(reply.unwrap(), b"250 Ok\r\n");
}

#[tokio::test]
async fn a_session_goes_on_while_the_certificate_is_replaced() {
    let ca = Ca::new();
    let store =
        IdentityStore::new(Identities::load(&[ca.sign("old", &server_params(&["mx.example.org"]))], now()).unwrap());
    let server = Acceptor::new(ServerSettings::default(), store.clone()).unwrap();
    let client = ca.client();
    let (mut ours, mut theirs) = pair(&client, &server, &unproven()).await;
    let old = ours.facts().unwrap().peer.clone().unwrap().sha256;
    // Another one is between its hello and its end.
    let mut begun = server.begin().unwrap();
    store.replace(Identities::load(&[ca.sign("new", &server_params(&["mx.example.org"]))], now()).unwrap());
    let mut other = Connector::new(ClientSettings::default()).begin(&unproven(), "mx.example.org", "a").unwrap();
    pump(&mut other, &mut begun).unwrap();
    assert_eq!(other.facts().unwrap().peer.as_ref().unwrap().sha256, old);
    assert_eq!(*other.server_end_point().unwrap(), old);
    assert_eq!(begun.server_end_point(), other.server_end_point());
    write_all(&mut ours, b"NOOP\r\n").await.unwrap();
    assert_eq!(read_some(&mut theirs, 100).await.unwrap(), b"NOOP\r\n");
    let (next, _) = pair(&Connector::new(ClientSettings::default()), &server, &unproven()).await;
    assert_ne!(next.facts().unwrap().peer.as_ref().unwrap().sha256, old);
}

#[tokio::test]
async fn a_client_may_show_a_certificate() {
    let ca = Ca::new();
    let other = Ca::new();
    let show = |ca: &Ca| {
        let files = [ca.sign("client", &server_params(&["client.example.net"]))];
        let identity = Identities::load(&files, now()).unwrap().all()[0].clone();
        Connector::new(ClientSettings { identity: Some(identity), ..ClientSettings::default() })
    };
    let with = |client_certificates| {
        ca.server_with(&["mx.example.org"], ServerSettings { client_certificates, ..ServerSettings::default() })
    };
    let (ask, verify) = (with(ClientCertificates::Ask(ca.roots())), with(ClientCertificates::Verify(ca.roots())));
    for server in [&ask, &verify] {
        let (_, theirs) = pair(&show(&ca), server, &unproven()).await;
        assert_eq!(theirs.facts().unwrap().proven, PeerProof::Ca("client.example.net".into()));
        let (_, theirs) = pair(&ca.client(), server, &unproven()).await;
        let PeerProof::Nothing(why) = &theirs.facts().unwrap().proven else { panic!("proven by nothing") };
        assert_eq!(why.cause, TlsErrorCause::NoCertificate);
    }
    let (_, theirs) = pair(&show(&other), &ask, &unproven()).await;
    let facts = theirs.facts().unwrap();
    let PeerProof::Nothing(why) = &facts.proven else { panic!("proven by another's CA") };
    assert_eq!(why.cause, TlsErrorCause::UnknownIssuer);
    assert_eq!(&*facts.peer.as_ref().unwrap().subject, "client.example.net");

    let (a, b) = sockets().await;
    let mut ours = TlsSocket::new(a, show(&other).begin(&unproven(), "mx.example.org", "a").unwrap());
    let mut theirs = TlsSocket::new(b, verify.begin().unwrap());
    let (_, refused) = tokio::join!(ours.handshake(later()), theirs.handshake(later()));
    assert_eq!(refused.unwrap_err().cause, TlsErrorCause::UnknownIssuer);
    // With TLS 1.3 the client notices it when it reads.
    drop(theirs);
    let error = read_some(&mut ours, 100).await.unwrap_err();
    assert_eq!(stentor_tls::TlsError::from(error).cause, TlsErrorCause::Alert(46));
}

#[tokio::test]
async fn a_client_that_speaks_plain_text_is_told_from_others() {
    let ca = Ca::new();
    let server = ca.server("mx.example.org");
    let (client, theirs) = sockets().await;
    client.try_write(b"EHLO client\r\nMAIL FROM:<a@b>\r\n").unwrap();
    let error = TlsSocket::new(theirs, server.begin().unwrap()).handshake(later()).await.unwrap_err();
    assert_eq!(error.cause, TlsErrorCause::NotTls);
    assert_eq!(error.to_string(), "the peer does not speak TLS: it sent \"EHLO client\"");
}

/// hyper requires these.
#[tokio::test]
async fn it_reads_and_writes_as_tokio_does() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
    let ca = Ca::new();
    let (mut ours, mut theirs) = pair(&ca.client(), &ca.server("mx.example.org"), &unproven()).await;
    let bytes = Arc::new(pattern(3_000_000));
    let sent = bytes.clone();
    let writer = tokio::spawn(async move {
        ours.write_all(&sent).await.unwrap();
        ours.close().await.unwrap();
        let mut reply = Vec::new();
        ours.read_to_end(&mut reply).await.unwrap();
        reply
    });
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).await.unwrap();
    assert!(got == *bytes);
    theirs.write_all(b"thanks").await.unwrap();
    AsyncWriteExt::shutdown(&mut theirs).await.unwrap();
    assert_eq!(writer.await.unwrap(), b"thanks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_was_emptied_is_asked_again_when_there_is_more() {
    use stentor_tls::RawSocket;

    /// Octets arrive one by one: no wakeup may be lost between a read and the next arrival.
    const OCTETS: usize = 20_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (other, _) = listener.accept().await.unwrap();
    one.set_nodelay(true).unwrap();
    let writer = tokio::spawn(async move {
        for sent in 0..OCTETS {
            while one.try_write(b"x").is_err() {
                one.writable().await.unwrap();
            }
            if sent % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
    });
    let mut came = 0;
    let mut buffer = [0; 64];
    loop {
        match RawSocket::try_read(&other, &mut buffer) {
            Ok(0) => break,
            Ok(octets) => {
                came += octets;
                if octets < buffer.len() {
                    // Known without a system call, unless more has been announced meanwhile.
                    let again = RawSocket::try_read(&other, &mut buffer);
                    match again {
                        Ok(0) => break,
                        Ok(octets) => came += octets,
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::timeout_at(later(), other.readable()).await.unwrap().unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    writer.await.unwrap();
    assert_eq!(came, OCTETS);
}
