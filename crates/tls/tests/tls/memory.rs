//! Sessions in memory.

use stentor_tls::{Cause, How, MinVersion, Plain, ServerSettings};

use crate::kit::*;

#[test]
fn octets_go_both_ways_and_the_facts_are_known() {
    let ca = Ca::new();
    for (min_version, version) in [(MinVersion::Tls12, "TLSv1.3"), (MinVersion::Tls13, "TLSv1.3")] {
        let settings = ServerSettings { min_version, ..ServerSettings::default() };
        let server = ca.server_with(&["mx.example.org"], settings);
        let (mut client, mut server) = session(&ca.client(), &server, &any(), "mx.example.org").unwrap();
        assert_eq!(client.write(b"EHLO a\r\n"), 8);
        assert_eq!(server.write(b"250 b\r\n"), 7);
        assert_eq!(pump(&mut client, &mut server).unwrap(), (b"250 b\r\n".to_vec(), b"EHLO a\r\n".to_vec()));
        let facts = client.facts().unwrap();
        assert_eq!(facts.version, version);
        assert_eq!((facts.cipher, facts.bits, facts.group), ("TLS_AES_256_GCM_SHA384", 256, "X25519"));
        assert_eq!(facts.proven, How::Ca("mx.example.org".into()));
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
    let (mut client, mut server) = session(&ca.client(), &server, &any(), "mx.example.org").unwrap();
    server.close();
    pump(&mut client, &mut server).unwrap();
    assert_eq!(client.read(&mut [0; 10]), Plain::Closed);
    assert_eq!(client.receive_end(), Ok(()));
    assert_eq!(server.receive_end().unwrap_err().cause, Cause::UnexpectedEof);
    assert_eq!(server.write(b"x"), 0);
}
