//! Tests of requirements: fingerprints, names, DANE, and the resumption of sessions under each.

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use sha2::{Digest as _, Sha256, Sha512};
use std::sync::Arc;
use stentor_tls::{
    Acceptor, ClientSettings, Connector, PeerProof, PeerRequirement, PinnedHash, Roots, ServerSettings, TlsErrorCause,
    TlsaRecord, TlsaUse,
};
use stentor_tls::{Files, Identities, IdentityStore, TlsError};

use crate::kit::*;

const NAME: &str = "mx.example.org";

/// Result of one handshake.
fn shake(client: &Connector, server: &Acceptor, requirement: &PeerRequirement) -> Result<PeerProof, TlsError> {
    session(client, server, requirement, NAME).map(|(client, _)| proven(&client))
}

fn of_files(files: &Files) -> Arc<Acceptor> {
    let identities = Identities::load(std::slice::from_ref(files), now()).unwrap();
    Acceptor::new(ServerSettings::default(), IdentityStore::new(identities)).unwrap()
}

fn chain(files: &Files) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(&files.chain).unwrap().map(Result::unwrap).collect()
}

fn key_of(der: &CertificateDer<'_>) -> Vec<u8> {
    use rustls::server::ParsedCertificate;
    ParsedCertificate::try_from(der).unwrap().subject_public_key_info().to_vec()
}

fn tlsa(usage: u8, selector: u8, matching: u8, of: &CertificateDer<'_>) -> TlsaRecord {
    let selected = if selector == 0 { of.to_vec() } else { key_of(of) };
    let data = match matching {
        1 => Sha256::digest(&selected).to_vec(),
        2 => Sha512::digest(&selected).to_vec(),
        _ => selected,
    };
    TlsaRecord { usage, selector, matching, data: data.into() }
}

fn dane(records: &[TlsaRecord]) -> PeerRequirement {
    PeerRequirement::Dane { records: records.to_vec(), names: names(&[NAME, "example.org"]) }
}

#[test]
fn the_name_may_be_one_of_several_or_below_a_domain() {
    let ca = Ca::new();
    let server = ca.server_with(&[NAME, "*.wild.example", "192.0.2.7"], ServerSettings::default());
    let client = ca.client();
    let prove = |wanted: &[&str]| shake(&client, &server, &PeerRequirement::Ca { names: names(wanted) });
    for (wanted, by) in [
        (&["example.net", NAME][..], NAME),
        (&["MX.Example.ORG"], "MX.Example.ORG"),
        (&[".example.org"], ".example.org"),
        (&["a.wild.example"], "a.wild.example"),
        (&[".wild.example"], ".wild.example"),
        (&["192.0.2.7"], "192.0.2.7"),
    ] {
        assert_eq!(prove(wanted), Ok(PeerProof::Ca(by.into())), "{wanted:?}");
    }
    for wanted in
        [&["example.org"][..], &["a.b.wild.example"], &["wild.example"], &[".org.example"], &["192.0.2.8"], &[]]
    {
        assert_eq!(prove(wanted).unwrap_err().cause, TlsErrorCause::WrongName, "{wanted:?}");
    }
}

#[test]
fn a_certificate_in_the_file_of_cas_is_trusted_as_it_is() {
    let ca = Ca::new();
    let folder = tempfile::tempdir().unwrap();
    let identities = Identities::self_signed(folder.path(), NAME, now()).unwrap();
    let server = Acceptor::new(ServerSettings::default(), IdentityStore::new(identities)).unwrap();
    let roots = Roots::from_file(&folder.path().join(stentor_tls::SELF_SIGNED_FILE)).unwrap();
    let client = Connector::new(ClientSettings { roots, ..ClientSettings::default() });
    assert_eq!(shake(&client, &server, &by_ca(NAME)), Ok(PeerProof::Ca(NAME.into())));
    assert_eq!(shake(&client, &server, &by_ca("other.example")).unwrap_err().cause, TlsErrorCause::WrongName);
    assert_eq!(shake(&ca.client(), &server, &by_ca(NAME)).unwrap_err().cause, TlsErrorCause::SelfSigned);
}

#[test]
fn fingerprints_of_certificate_and_key() {
    let ca = Ca::new();
    let mut params = server_params(&["elsewhere.example"]);
    params.not_after = moment(now() - DAY_S);
    params.not_before = moment(now() - 2 * DAY_S);
    let files = ca.sign("mx", &params);
    let (server, leaf) = (of_files(&files), chain(&files)[0].clone());
    let client = Connector::new(ClientSettings::default());
    let (certificate, key) = (Sha256::digest(&leaf).into(), Sha256::digest(key_of(&leaf)).into());
    for fits in [PinnedHash::Certificate(certificate), PinnedHash::PublicKey(key), PinnedHash::Either(key)] {
        let wanted = vec![PinnedHash::Certificate([7; 32]), fits];
        assert_eq!(shake(&client, &server, &PeerRequirement::Fingerprint(wanted)), Ok(PeerProof::Fingerprint));
    }
    for not in [PinnedHash::Certificate(key), PinnedHash::PublicKey(certificate), PinnedHash::Either([7; 32])] {
        let error = shake(&client, &server, &PeerRequirement::Fingerprint(vec![not])).unwrap_err();
        assert_eq!(error.cause, TlsErrorCause::WrongFingerprint);
    }
}

#[test]
fn dane_ee_ignores_names_and_dates() {
    let ca = Ca::new();
    let mut params = server_params(&["elsewhere.example"]);
    (params.not_before, params.not_after) = (moment(now() - 9 * DAY_S), moment(now() - 3 * DAY_S));
    let files = ca.sign("mx", &params);
    let (server, chain) = (of_files(&files), chain(&files));
    let client = Connector::new(ClientSettings::default());
    for selector in 0..2 {
        for matching in 0..3 {
            let fits = tlsa(3, selector, matching, &chain[0]);
            let other = tlsa(3, selector, matching, &chain[1]);
            let all = dane(&[other.clone(), fits]);
            assert_eq!(shake(&client, &server, &all), Ok(PeerProof::Dane(TlsaUse::EndEntity)), "{selector} {matching}");
            // Usage 3 refers to the certificate itself, usage 2 does not.
            let error = shake(&client, &server, &dane(&[other])).unwrap_err();
            assert_eq!(error.cause, TlsErrorCause::NoTlsaMatch);
            let error = shake(&client, &server, &dane(&[tlsa(2, selector, matching, &chain[0])])).unwrap_err();
            // A complete certificate in the record is tried as the anchor.
            let is_tried = (selector, matching) == (0, 0);
            assert_eq!(error.cause, if is_tried { TlsErrorCause::Expired } else { TlsErrorCause::NoTlsaMatch });
        }
    }
    // Usages 0 and 1 are not for mail; hashes of a wrong length are ignored.
    let mut short = tlsa(3, 1, 1, &chain[0]);
    short.data = short.data[..31].into();
    for record in [tlsa(1, 1, 1, &chain[0]), tlsa(0, 0, 1, &chain[1]), short] {
        assert!(!record.is_usable());
        assert_eq!(shake(&client, &server, &dane(&[record])).unwrap_err().cause, TlsErrorCause::NoTlsaMatch);
    }
}

#[test]
fn dane_ta_needs_chain_name_and_dates() {
    let ca = Ca::new();
    let good = ca.sign("mx", &server_params(&[NAME]));
    let anchor = chain(&good)[1].clone();
    let client = Connector::new(ClientSettings::default());
    for selector in 0..2 {
        for matching in 0..3 {
            let requirement = dane(&[tlsa(2, selector, matching, &anchor)]);
            let how = shake(&client, &of_files(&good), &requirement);
            assert_eq!(how, Ok(PeerProof::Dane(TlsaUse::TrustAnchor)), "{selector} {matching}");
        }
    }
    let by_domain = ca.sign("domain", &server_params(&["example.org"]));
    let ta = dane(&[tlsa(2, 0, 1, &anchor)]);
    assert_eq!(shake(&client, &of_files(&by_domain), &ta), Ok(PeerProof::Dane(TlsaUse::TrustAnchor)));
    let elsewhere = ca.sign("elsewhere", &server_params(&["elsewhere.example"]));
    assert_eq!(shake(&client, &of_files(&elsewhere), &ta).unwrap_err().cause, TlsErrorCause::WrongName);
    let mut params = server_params(&[NAME]);
    (params.not_before, params.not_after) = (moment(now() - 9 * DAY_S), moment(now() - 3 * DAY_S));
    assert_eq!(shake(&client, &of_files(&ca.sign("old", &params)), &ta).unwrap_err().cause, TlsErrorCause::Expired);
    // Without other names the common name counts.
    let mut params = server_params(&[]);
    params.distinguished_name.push(rcgen::DnType::CommonName, NAME);
    let common = of_files(&ca.sign("common", &params));
    assert_eq!(shake(&client, &common, &ta), Ok(PeerProof::Dane(TlsaUse::TrustAnchor)));
    assert_eq!(shake(&ca.client(), &common, &by_ca(NAME)).unwrap_err().cause, TlsErrorCause::WrongName);
    // A CA that is only in the chain has not signed anything.
    let other = Ca::new();
    let foreign = other.sign("foreign", &server_params(&[NAME]));
    let mixed = pem("CERTIFICATE", &chain(&foreign)[0]) + &pem("CERTIFICATE", &anchor);
    std::fs::write(&foreign.chain, mixed).unwrap();
    assert_eq!(shake(&client, &of_files(&foreign), &ta).unwrap_err().cause, TlsErrorCause::UnknownIssuer);
}

#[test]
fn dane_ta_with_the_anchor_in_the_record_only() {
    let ca = Ca::new();
    let files = ca.sign("mx", &server_params(&[NAME]));
    let whole = chain(&files);
    std::fs::write(&files.chain, pem("CERTIFICATE", &whole[0])).unwrap();
    let (server, client) = (of_files(&files), Connector::new(ClientSettings::default()));
    for selector in 0..2 {
        let how = shake(&client, &server, &dane(&[tlsa(2, selector, 0, &whole[1])]));
        assert_eq!(how, Ok(PeerProof::Dane(TlsaUse::TrustAnchor)), "{selector}");
        assert!(shake(&client, &server, &dane(&[tlsa(2, selector, 1, &whole[1])])).is_err());
        let other = Ca::new();
        let other = chain(&other.sign("x", &server_params(&[NAME])))[1].clone();
        assert!(shake(&client, &server, &dane(&[tlsa(2, selector, 0, &other)])).is_err());
    }
}

/// Each pair of a record and a certificate takes at least one signature: with 100 of each a handshake blocked a
/// thread that handles mail for half a second.
#[test]
fn dane_tries_few_anchors_of_many() {
    let ca = Ca::new();
    let files = ca.sign("mx", &server_params(&[NAME]));
    let anchor = chain(&files)[1].clone();
    let (server, client) = (of_files(&files), Connector::new(ClientSettings::default()));
    for selector in 0..2 {
        let others = |count: usize| -> Vec<TlsaRecord> {
            (0..count).map(|_| tlsa(2, selector, 0, Ca::new().issuer.der())).collect()
        };
        let few = [others(5), vec![tlsa(2, 0, 1, &anchor)]].concat();
        assert_eq!(shake(&client, &server, &dane(&few)), Ok(PeerProof::Dane(TlsaUse::TrustAnchor)), "{selector}");
        let many = [others(20), vec![tlsa(2, 0, 1, &anchor)]].concat();
        let error = shake(&client, &server, &dane(&many)).unwrap_err();
        assert!(
            error.cause == TlsErrorCause::NoTlsaMatch && error.text.contains("more than 16 combinations"),
            "{error}"
        );
        // A record for the certificate itself needs no signature.
        let own = [others(20), vec![tlsa(3, 1, 1, &chain(&files)[0])]].concat();
        assert_eq!(shake(&client, &server, &dane(&own)), Ok(PeerProof::Dane(TlsaUse::EndEntity)));
    }
}

#[test]
fn nothing_is_resumed_under_another_requirement() {
    let ca = Ca::new();
    let (client, server) = (ca.client(), ca.server(NAME));
    let resumed = |requirement: &PeerRequirement, name: &str| {
        let (client, _) = session(&client, &server, requirement, name).unwrap();
        client.facts().unwrap().resumed
    };
    assert!(!resumed(&unproven(), NAME));
    assert!(resumed(&unproven(), NAME));
    assert!(!resumed(&by_ca(NAME), NAME));
    assert!(resumed(&by_ca(NAME), NAME));
    assert!(!resumed(&PeerRequirement::Encrypted { names: Vec::new() }, NAME));
    assert!(!resumed(&unproven(), "other.example.org"));
    assert!(resumed(&unproven(), NAME));
    // The proof of the first session is inherited.
    let (client, _) = session(&client, &server, &by_ca(NAME), NAME).unwrap();
    assert_eq!(proven(&client), PeerProof::Ca(NAME.into()));
}

/// Many simultaneous connections to a host, twice: in the second round all of them find a ticket.
#[test]
fn several_connections_at_once_resume() {
    let ca = Ca::new();
    let (client, server) = (ca.client(), ca.server(NAME));
    let begin = |count| -> usize {
        let mut all: Vec<_> =
            (0..count).map(|_| (client.begin(&unproven(), NAME, "a").unwrap(), server.begin().unwrap())).collect();
        for (ours, theirs) in &mut all {
            pump(ours, theirs).unwrap();
        }
        all.iter().filter(|(ours, _)| ours.facts().unwrap().resumed).count()
    };
    assert_eq!(begin(4), 0);
    assert_eq!(begin(8), 8);
    assert_eq!(begin(8), 8);
}
