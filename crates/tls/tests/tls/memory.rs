//! Tests of sessions in memory.

use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, proptest};
use stentor_tls::{MinVersion, PeerProof, PlainRead, ServerSettings, TlsErrorCause};

use crate::kit::*;

#[test]
fn octets_go_both_ways_and_the_facts_are_known() {
    let ca = Ca::new();
    for (min_version, version) in [(MinVersion::Tls12, "TLSv1.3"), (MinVersion::Tls13, "TLSv1.3")] {
        let settings = ServerSettings { min_version, ..ServerSettings::default() };
        let server = ca.server_with(&["mx.example.org"], settings);
        let (mut client, mut server) = session(&ca.client(), &server, &unproven(), "mx.example.org").unwrap();
        assert_eq!(client.write(b"EHLO a\r\n"), 8);
        assert_eq!(server.write(b"250 b\r\n"), 7);
        assert_eq!(pump(&mut client, &mut server).unwrap(), (b"250 b\r\n".to_vec(), b"EHLO a\r\n".to_vec()));
        let facts = client.facts().unwrap();
        assert_eq!(facts.version, version);
        assert_eq!((facts.cipher, facts.bits, facts.group), ("TLS_AES_128_GCM_SHA256", 128, "X25519"));
        assert_eq!(facts.proven, PeerProof::Ca("mx.example.org".into()));
        let peer = facts.peer.as_ref().unwrap();
        assert_eq!(peer.names, ["mx.example.org".into()]);
        assert_eq!((&*peer.subject, &*peer.issuer), ("mx.example.org", "Test CA"));
        assert!((peer.not_after - now() - 90 * DAY_S).abs() < 60);
        assert_eq!(server.facts().unwrap().server_name.as_deref(), Some("mx.example.org"));
        assert_eq!(client.exporter().unwrap(), server.exporter().unwrap());
        assert_eq!(client.server_end_point().unwrap(), server.server_end_point().unwrap());
        assert_eq!(*client.server_end_point().unwrap(), peer.sha256);
    }
}

#[test]
fn an_end_is_told_from_a_close() {
    let ca = Ca::new();
    let server = ca.server("mx.example.org");
    let (mut client, mut server) = session(&ca.client(), &server, &unproven(), "mx.example.org").unwrap();
    server.close();
    pump(&mut client, &mut server).unwrap();
    assert_eq!(client.read(&mut [0; 10]), PlainRead::Closed);
    assert_eq!(client.receive_end(), Ok(()));
    assert_eq!(server.receive_end().unwrap_err().cause, TlsErrorCause::UnexpectedEof);
    assert_eq!(server.write(b"x"), 0);
}

#[test]
fn garbage_in_a_session_ends_it_with_a_cause() {
    let ca = Ca::new();
    let server = ca.server("mx.example.org");
    let (mut client, mut server) = session(&ca.client(), &server, &unproven(), "mx.example.org").unwrap();
    client.write(b"MAIL FROM:<a@b>\r\n");
    let mut octets = sent(&mut client);
    *octets.last_mut().unwrap() ^= 1;
    let error = server.receive(&octets).unwrap_err();
    assert_eq!(error.cause, TlsErrorCause::Protocol);
    // The error is permanent, and the peer gets an alert.
    assert_eq!(server.receive(b"").unwrap_err(), error);
    let alert = sent(&mut server);
    assert_eq!(client.receive(&alert).unwrap_err().cause, TlsErrorCause::Alert(20));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Works however octets are split when written, transmitted and read.
    #[test]
    fn octets_arrive_whole_however_they_are_cut(
        writes in prop::collection::vec(1_usize..40_000, 1..8),
        piece in 1_usize..20_000,
        buffer in 1_usize..20_000,
    ) {
        static SETTINGS: std::sync::LazyLock<(Ca, std::sync::Arc<stentor_tls::Acceptor>)> = std::sync::LazyLock::new(|| {
            let ca = Ca::new();
            let server = ca.server("mx.example.org");
            (ca, server)
        });
        let (ca, server) = &*SETTINGS;
        let (mut client, mut server) = session(&ca.client(), server, &unproven(), "mx.example.org").unwrap();
        let (mut all, mut got) = (Vec::new(), Vec::new());
        for (n, octets) in writes.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..octets).map(|at| (at * 7 + n) as u8).collect();
            let mut at = 0;
            while at < bytes.len() {
                at += client.write(&bytes[at..]);
                let ciphertext = sent(&mut client);
                for part in ciphertext.chunks(piece) {
                    let mut taken = 0;
                    while taken < part.len() {
                        taken += server.receive(&part[taken..]).unwrap();
                        let mut into = vec![0; buffer];
                        while let PlainRead::Octets(octets) = server.read(&mut into) {
                            got.extend_from_slice(&into[..octets]);
                        }
                    }
                }
            }
            all.extend(bytes);
        }
        prop_assert!(all == got);
        server.rest();
        prop_assert_eq!(server.write(b"250 Ok\r\n"), 8);
        let reply = sent(&mut server);
        prop_assert_eq!(client.receive(&reply).unwrap(), reply.len());
    }
}
