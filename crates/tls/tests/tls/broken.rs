//! Tests of servers broken in ways that occur in practice: each has its own cause, and mail without requirements is
//! sent encrypted whenever that is possible.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use stentor_tls::{
    Acceptor, Connector, Files, Identities, IdentityStore, PeerProof, PeerRequirement, ServerSettings, TlsError,
    TlsErrorCause, TlsSocket,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant};

use crate::kit::*;
use crate::openssl::{connect, rsa, s_server};
use crate::sockets::{later, read_some};

const NAME: &str = "mx.example.org";

/// A server that behaves like this on each connection.
async fn server<F: Future<Output = ()> + Send>(behave: impl Fn(TcpStream) -> F + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            behave(socket).await;
        }
    });
    addr
}

/// A server that sends these octets once the client has begun, and closes.
async fn sender(bytes: impl Into<Vec<u8>>) -> SocketAddr {
    let bytes = Arc::new(bytes.into());
    server(move |mut socket| {
        let bytes = bytes.clone();
        async move {
            let _ = socket.read(&mut [0; 5_000]).await;
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
            let _ = socket.read_to_end(&mut Vec::new()).await;
        }
    })
    .await
}

/// Our server, with the certificate of these files.
async fn with_files(files: &Files) -> SocketAddr {
    let identities = Identities::load(std::slice::from_ref(files), now()).unwrap();
    ours(Acceptor::new(ServerSettings::default(), IdentityStore::new(identities)).unwrap()).await
}

async fn ours(tls: Arc<Acceptor>) -> SocketAddr {
    server(move |socket| {
        let mut socket = TlsSocket::new(socket, tls.begin().unwrap());
        async move {
            if socket.handshake(later()).await.is_ok() {
                while !read_some(&mut socket, 100).await.unwrap_or_default().is_empty() {}
            }
        }
    })
    .await
}

/// A server with a certificate that was changed and then signed by the CA.
async fn signed(ca: &Ca, change: impl FnOnce(&mut CertificateParams)) -> SocketAddr {
    let mut params = server_params(&[NAME]);
    change(&mut params);
    with_files(&ca.sign("changed", &params)).await
}

async fn outcome(client: &Connector, requirement: &PeerRequirement, addr: SocketAddr) -> Result<PeerProof, TlsError> {
    let secured = client.begin(requirement, NAME, &addr.to_string())?;
    connect(addr, secured).await.map(|socket| socket.facts().unwrap().proven.clone())
}

/// Checks that verified mail is refused for this cause, while mail without requirements is sent encrypted with the
/// cause recorded.
async fn refused_only_if_verified(ca: &Ca, addr: SocketAddr, cause: TlsErrorCause, text: &str) {
    let client = ca.client();
    let error = outcome(&client, &by_ca(NAME), addr).await.unwrap_err();
    assert_eq!((error.cause, &*error.text), (cause, text));
    let PeerProof::Nothing(why) = outcome(&client, &unproven(), addr).await.unwrap() else { panic!("proven") };
    assert_eq!(why, error);
}

/// Checks that no mail can be encrypted, for this cause.
async fn refused_always(ca: &Ca, addr: SocketAddr, cause: TlsErrorCause) -> String {
    let client = ca.client();
    let errors = [outcome(&client, &by_ca(NAME), addr).await, outcome(&client, &unproven(), addr).await];
    let [strict, lax] = errors.map(Result::unwrap_err);
    assert_eq!((strict.cause, lax.cause), (cause, cause), "{strict} / {lax}");
    strict.to_string()
}

#[tokio::test]
async fn certificates_that_prove_nothing() {
    let ca = Ca::new();
    let addr = signed(&ca, |params| params.not_after = moment(1_700_000_000)).await;
    let text = "the certificate of mx.example.org expired on 2023-11-14";
    refused_only_if_verified(&ca, addr, TlsErrorCause::Expired, text).await;

    let addr =
        signed(&ca, |params| (params.not_before, params.not_after) = (moment(4_000_000_000), moment(4_000_100_000)))
            .await;
    let text = "the certificate of mx.example.org is not valid before 2096-10-02";
    refused_only_if_verified(&ca, addr, TlsErrorCause::NotYetValid, text).await;

    let addr = with_files(&ca.sign("other", &server_params(&["www.example.org", "*.example.com"]))).await;
    let text = "the certificate is for www.example.org, *.example.com, not for mx.example.org";
    refused_only_if_verified(&ca, addr, TlsErrorCause::WrongName, text).await;

    let addr = with_files(&ca.sign("nameless", &server_params(&[]))).await;
    let text = "the certificate is for no name, not for mx.example.org";
    refused_only_if_verified(&ca, addr, TlsErrorCause::WrongName, text).await;

    let addr = with_files(&Ca::new().sign("foreign", &server_params(&[NAME]))).await;
    let text = "the certificate's issuer, Test CA, is not trusted";
    refused_only_if_verified(&ca, addr, TlsErrorCause::UnknownIssuer, text).await;

    let addr = signed(&ca, |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]).await;
    let text = "the certificate is for another purpose";
    refused_only_if_verified(&ca, addr, TlsErrorCause::BadCertificate, text).await;
}

#[tokio::test]
async fn certificates_that_lead_nowhere() {
    let ca = Ca::new();
    let folder = tempfile::tempdir().unwrap();
    let identities = Identities::self_signed(folder.path(), NAME, now()).unwrap();
    let addr = ours(Acceptor::new(ServerSettings::default(), IdentityStore::new(identities)).unwrap()).await;
    let text = "the certificate of mx.example.org is self-signed";
    refused_only_if_verified(&ca, addr, TlsErrorCause::SelfSigned, text).await;

    // As created by `openssl req -x509`: it declares itself a CA.
    let addr = with_files(&rsa(&ca, 2048)).await;
    refused_only_if_verified(&ca, addr, TlsErrorCause::SelfSigned, text).await;

    // An intermediate CA that the server does not send.
    let (middle_key, mut middle) = (key(), ca_params("Middle CA"));
    middle.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let middle = rcgen::CertifiedIssuer::signed_by(middle, middle_key, &ca.issuer).unwrap();
    let leaf_key = key();
    let leaf = server_params(&[NAME]).signed_by(&leaf_key, &middle).unwrap();
    let files = Files { chain: ca.path("lone.pem"), key: ca.path("lone.key") };
    write_private(&files.key, &pem("PRIVATE KEY", leaf_key.serialized_der()));
    std::fs::write(&files.chain, pem("CERTIFICATE", leaf.der())).unwrap();
    let text = "the certificate's issuer, Middle CA, is not trusted, and the peer sent no intermediate certificate";
    refused_only_if_verified(&ca, with_files(&files).await, TlsErrorCause::UnknownIssuer, text).await;

    std::fs::write(&files.chain, pem("CERTIFICATE", leaf.der()) + &pem("CERTIFICATE", middle.der())).unwrap();
    let how = outcome(&ca.client(), &by_ca(NAME), with_files(&files).await).await;
    assert_eq!(how, Ok(PeerProof::Ca(NAME.into())));
}

/// A version 1 certificate without extensions: it proves nothing, but its key can be used.
#[tokio::test]
async fn a_certificate_of_version_1() {
    let ca = Ca::new();
    let files = Files { chain: ca.path("v1.pem"), key: ca.path("v1.key") };
    let run = |args: &[&str]| {
        let status = std::process::Command::new("openssl").args(args).current_dir(ca.folder.path()).output().unwrap();
        assert!(status.status.success(), "{status:?}");
    };
    run(&[
        "req",
        "-new",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "v1.key",
        "-out",
        "v1.csr",
        "-subj",
        "/CN=mx.example.org",
    ]);
    run(&["x509", "-req", "-in", "v1.csr", "-signkey", "v1.key", "-out", "v1.pem", "-days", "3"]);
    for version in ["-tls1_2", "-tls1_3"] {
        let peer = s_server(&files, &[version]);
        let text = "the certificate of mx.example.org is self-signed";
        let client = ca.client();
        let how = outcome(&client, &unproven(), peer.addr).await.unwrap();
        assert_eq!(how, PeerProof::Nothing(TlsError::new(TlsErrorCause::SelfSigned, text)), "{version}");
        assert!(outcome(&client, &by_ca(NAME), peer.addr).await.is_err());
    }
}

#[tokio::test]
async fn versions_and_ciphers_that_are_not_ours() {
    let ca = Ca::new();
    let files = rsa(&ca, 2048);
    for args in [&["-tls1", "-cipher", "DEFAULT@SECLEVEL=0"][..], &["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]] {
        let peer = s_server(&files, args);
        refused_always(&ca, peer.addr, TlsErrorCause::NoSharedVersion).await;
    }
    // RSA key exchange, and CBC.
    let peer = s_server(&files, &["-tls1_2", "-cipher", "AES128-SHA"]);
    refused_always(&ca, peer.addr, TlsErrorCause::NoSharedCipher).await;
    // A group that we do not support.
    let peer = s_server(&files, &["-tls1_3", "-groups", "X448"]);
    refused_always(&ca, peer.addr, TlsErrorCause::NoSharedCipher).await;
}

#[tokio::test]
async fn signatures_that_are_wrong_or_weak() {
    let ca = Ca::new();
    // Another key than that of the certificate.
    let files = ca.sign("mx", &server_params(&[NAME]));
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.chain).unwrap().map(Result::unwrap).collect();
    let other = ca.sign("other", &server_params(&[NAME]));
    let key = PrivateKeyDer::from_pem_file(&other.key).unwrap();
    let addr = mismatched(chain, key).await;
    refused_always(&ca, addr, TlsErrorCause::BadSignature).await;

    let weak = rsa(&ca, 1024);
    let peer = s_server(&weak, &["-cipher", "DEFAULT@SECLEVEL=0"]);
    // With verification, it is already refused for its issuer.
    assert_eq!(outcome(&ca.client(), &unproven(), peer.addr).await.unwrap_err().cause, TlsErrorCause::BadSignature);
    assert!(outcome(&ca.client(), &by_ca(NAME), peer.addr).await.is_err());
}

/// Plain rustls, which signs with any key that it is given.
async fn mismatched(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> SocketAddr {
    #[derive(Debug)]
    struct Fixed(Arc<rustls::sign::CertifiedKey>);
    impl rustls::server::ResolvesServerCert for Fixed {
        fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = provider.key_provider.load_private_key(key).unwrap();
    let key = Arc::new(rustls::sign::CertifiedKey::new(chain, key));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Fixed(key)));
    let config = Arc::new(config);
    server(move |mut socket| {
        let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
        async move {
            let mut buffer = [0; 5_000];
            while let Ok(octets) = socket.read(&mut buffer).await
                && octets > 0
            {
                let _ = tls.read_tls(&mut &buffer[..octets]);
                let _ = tls.process_new_packets();
                let mut out = Vec::new();
                while tls.wants_write() {
                    tls.write_tls(&mut out).unwrap();
                }
                let _ = socket.write_all(&out).await;
            }
        }
    })
    .await
}

fn alert(number: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, number]
}

#[tokio::test]
async fn servers_that_end_the_handshake() {
    let ca = Ca::new();
    let text = refused_always(&ca, sender("").await, TlsErrorCause::UnexpectedEof).await;
    assert_eq!(text, "the peer closed the connection during the TLS handshake");
    let closes = server(|socket| async move { drop(socket) }).await;
    let error = outcome(&ca.client(), &unproven(), closes).await.unwrap_err();
    // Unread data turns the close into a reset.
    assert!(
        matches!(
            error.cause,
            TlsErrorCause::UnexpectedEof
                | TlsErrorCause::Io(std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe)
        ),
        "{error:?}"
    );
    let resets = server(|mut socket| async move {
        let _ = socket.read(&mut [0; 5_000]).await;
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    refused_always(&ca, resets, TlsErrorCause::Io(std::io::ErrorKind::ConnectionReset)).await;
    refused_always(&ca, sender(alert(40)).await, TlsErrorCause::NoSharedCipher).await;
    refused_always(&ca, sender(alert(70)).await, TlsErrorCause::NoSharedVersion).await;
    let text = refused_always(&ca, sender(alert(80)).await, TlsErrorCause::Alert(80)).await;
    assert_eq!(text, "the peer ended TLS with alert internal_error (80)");
    // It closes TLS before the handshake.
    refused_always(&ca, sender(vec![21, 3, 3, 0, 2, 1, 0]).await, TlsErrorCause::UnexpectedEof).await;
}

#[tokio::test]
async fn servers_that_send_something_else() {
    let ca = Ca::new();
    let text = refused_always(&ca, sender("454 4.7.0 TLS not available\r\nmore").await, TlsErrorCause::NotTls).await;
    assert_eq!(text, "the peer does not speak TLS: it sent \"454 4.7.0 TLS not available\"");
    refused_always(&ca, sender("HTTP/1.1 400 Bad Request\r\n\r\n").await, TlsErrorCause::NotTls).await;
    refused_always(&ca, sender(vec![0xff; 100]).await, TlsErrorCause::NotTls).await;
    // A TLS record with invalid content, one with an invalid length, and a truncated hello.
    refused_always(&ca, sender([&[22, 3, 3, 0, 50][..], &[0xab; 50]].concat()).await, TlsErrorCause::Protocol).await;
    refused_always(
        &ca,
        sender([&[22, 3, 3, 0xff, 0xff][..], &vec![2; 70_000]].concat()).await,
        TlsErrorCause::Protocol,
    )
    .await;
    refused_always(&ca, sender([22, 3, 3, 0, 100, 2, 0, 0, 96, 3, 3]).await, TlsErrorCause::UnexpectedEof).await;
    // Encrypted octets before there is a key.
    refused_always(&ca, sender([&[23, 3, 3, 0, 50][..], &[0xab; 50]].concat()).await, TlsErrorCause::Protocol).await;
}

/// It times out immediately: the clock of the test advances while all tasks wait.
#[tokio::test(start_paused = true)]
async fn servers_that_say_nothing_more() {
    let ca = Ca::new();
    for begin in [&b""[..], &[22, 3, 3, 0, 100, 2, 0, 0, 96, 3, 3]] {
        let silent = server(move |mut socket| async move {
            let _ = socket.write_all(begin).await;
            let _ = socket.read_to_end(&mut Vec::new()).await;
        })
        .await;
        let secured = ca.client().begin(&unproven(), NAME, "silent").unwrap();
        let mut socket = TlsSocket::new(TcpStream::connect(silent).await.unwrap(), secured);
        let error = socket.handshake(Instant::now() + Duration::from_secs(30)).await.unwrap_err();
        assert_eq!(error, TlsError::new(TlsErrorCause::Timeout, "the TLS handshake was not completed in time"));
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_of_ours() {
    let ca = Ca::new();
    let files = ca.sign("mx", &server_params(&[NAME]));
    let wants = ca.path("ca.pem");
    let args = ["-tls1_3", "-Verify", "1", "-CAfile", wants.to_str().unwrap()];
    let peer = s_server(&files, &args);
    let secured = ca.client().begin(&unproven(), NAME, "a").unwrap();
    // With TLS 1.3 the handshake is complete for us before the peer checks the certificate.
    let mut socket = connect(peer.addr, secured).await.unwrap();
    let error = TlsError::from(read_some(&mut socket, 100).await.unwrap_err());
    assert_eq!(error.cause, TlsErrorCause::Alert(116), "{error}");
    assert!(error.to_string().contains("certificate_required"));
}
