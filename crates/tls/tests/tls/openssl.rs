//! Tests with OpenSSL's programs as peers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use stentor_tls::{
    Acceptor, Connector, Files, HandshakeFacts, MinVersion, PeerProof, PeerRequirement, SecuredSession, ServerSettings,
    TlsError, TlsSocket,
};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::*;
use crate::sockets::{later, read_some, write_all};

/// `openssl s_server` on a port chosen by the system; killed when dropped.
pub struct Peer {
    child: Child,
    pub addr: SocketAddr,
    _stdin: ChildStdin,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn s_server(files: &Files, args: &[&str]) -> Peer {
    let mut child = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-rev", "-cert"])
        .arg(&files.chain)
        .arg("-key")
        .arg(&files.key)
        .arg("-cert_chain")
        .arg(&files.chain)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is installed");
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let addr = loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "s_server did not start");
        if let Some(addr) = line.strip_prefix("ACCEPT ") {
            break addr.trim().parse().unwrap();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    let stdin = child.stdin.take().unwrap();
    Peer { child, addr, _stdin: stdin }
}

/// A session with a server, with a complete handshake.
pub async fn connect(addr: SocketAddr, secured: SecuredSession) -> Result<TlsSocket<TcpStream>, TlsError> {
    let mut socket = TlsSocket::new(TcpStream::connect(addr).await.unwrap(), secured);
    socket.handshake(later()).await.map(|()| socket)
}

/// Has a line reversed by `s_server -rev`, so that tickets after the handshake have arrived, too.
async fn talk(client: &Connector, addr: SocketAddr, requirement: &PeerRequirement) -> Result<HandshakeFacts, TlsError> {
    let secured = client.begin(requirement, "mx.example.org", &addr.to_string())?;
    let mut socket = connect(addr, secured).await?;
    write_all(&mut socket, b"abcd\n").await.unwrap();
    assert_eq!(read_some(&mut socket, 100).await.unwrap(), b"dcba\n");
    let facts = socket.facts().unwrap().clone();
    socket.close().await.unwrap();
    Ok(facts)
}

#[tokio::test]
async fn sessions_with_s_server_are_made_and_resumed() {
    let ca = Ca::new();
    let files = ca.sign("mx", &server_params(&["mx.example.org"]));
    for (args, version, cipher) in [
        (&["-tls1_3"][..], "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        (&["-tls1_2"], "TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        (
            &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
            "TLSv1.2",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        ),
        (&["-tls1_2", "-no_ticket"], "TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ] {
        let (peer, client) = (s_server(&files, args), ca.client());
        for round in 0..4 {
            for requirement in [unproven(), by_ca("mx.example.org")] {
                let facts = talk(&client, peer.addr, &requirement).await.unwrap();
                assert_eq!((facts.version, facts.cipher), (version, cipher));
                // The first handshake under each requirement is a full one, whatever the other requirement left.
                assert_eq!(facts.resumed, round > 0, "{args:?} {requirement:?}");
                assert_eq!(facts.proven, PeerProof::Ca("mx.example.org".into()));
                assert_eq!(&*facts.peer.unwrap().subject, "mx.example.org");
            }
        }
        assert_eq!(client.hosts(), 2);
    }
}

/// Our server for this number of sessions: each gets a greeting and its line back.
async fn serve(server: Arc<Acceptor>, sessions: usize) -> (SocketAddr, tokio::task::JoinHandle<Vec<HandshakeFacts>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut all = Vec::new();
        for _ in 0..sessions {
            let (socket, _) = listener.accept().await.unwrap();
            let mut socket = TlsSocket::new(socket, server.begin().unwrap());
            socket.handshake(later()).await.unwrap();
            write_all(&mut socket, b"220 ready\r\n").await.unwrap();
            let line = read_some(&mut socket, 1_000).await.unwrap();
            write_all(&mut socket, &line).await.unwrap();
            all.push(socket.facts().unwrap().clone());
            let _ = socket.close().await;
            while !read_some(&mut socket, 1_000).await.unwrap_or_default().is_empty() {}
        }
        all
    });
    (addr, task)
}

fn s_client(addr: SocketAddr, ca: &Ca, args: &[&str]) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &addr.to_string(), "-servername", "mx.example.org", "-verify_return_error"])
        .args(["-verify_hostname", "mx.example.org", "-CAfile"])
        .arg(ca.path("ca.pem"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"NOOP line\n").unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let _ = child.wait();
    drop(stdin);
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_client_verifies_us_and_resumes() {
    let ca = Ca::new();
    for (version, args) in [("TLSv1.3", &[][..]), ("TLSv1.2", &["-tls1_2"])] {
        let server = ca.server_with(&["mx.example.org", "*.example.net"], ServerSettings::default());
        let (addr, served) = serve(server, 3).await;
        let kept = ca.path("session");
        let kept = kept.to_str().unwrap();
        for (round, args) in
            [[args, &["-sess_out", kept]].concat(), [args, &["-sess_in", kept]].concat(), args.to_vec()]
                .iter()
                .enumerate()
        {
            let output = tokio::task::block_in_place(|| s_client(addr, &ca, args));
            assert!(output.contains("220 ready"), "{output}");
            assert!(output.contains("NOOP line"), "{output}");
            assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
            let kind = if round == 1 { format!("Reused, {version}") } else { format!("New, {version}") };
            assert!(output.contains(&kind), "{kind}: {output}");
        }
        let served = served.await.unwrap();
        assert_eq!(served.iter().map(|facts| facts.resumed).collect::<Vec<_>>(), [false, true, false]);
        assert!(served.iter().all(|facts| facts.version == version));
        assert_eq!(served[0].server_name.as_deref(), Some("mx.example.org"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_version_is_a_setting() {
    let ca = Ca::new();
    let settings = ServerSettings { min_version: MinVersion::Tls13, ..ServerSettings::default() };
    let server = ca.server_with(&["mx.example.org"], settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let client = tokio::task::spawn_blocking(move || s_client(addr, &ca, &["-tls1_2"]));
    let (socket, _) = listener.accept().await.unwrap();
    let mut socket = TlsSocket::new(socket, server.begin().unwrap());
    let error = socket.handshake(later()).await.unwrap_err();
    assert_eq!(error.cause, stentor_tls::TlsErrorCause::NoSharedVersion);
    drop(socket);
    let output = client.await.unwrap();
    assert!(output.contains("New, (NONE), Cipher is (NONE)"), "{output}");
}

/// An RSA certificate, which rcgen cannot create here.
pub fn rsa(ca: &Ca, bits: u32) -> Files {
    let files = Files { chain: ca.path(&format!("rsa{bits}.pem")), key: ca.path(&format!("rsa{bits}.key")) };
    let status = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=mx.example.org"])
        .args(["-addext", "subjectAltName=DNS:mx.example.org", "-newkey", &format!("rsa:{bits}"), "-keyout"])
        .arg(&files.key)
        .arg("-out")
        .arg(&files.chain)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    files
}
