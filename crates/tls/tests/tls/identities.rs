//! Tests of certificates and keys from files, the self-signed one, and those for ACME.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, CertifiedIssuer, KeyIdMethod, SerialNumber};
use stentor_tls::{
    Acceptor, ClientSettings, Connector, Files, Identities, Identity, IdentityStore, IdentityWatch, Part, RenewalId,
    SELF_SIGNED_FILE, SecuredSession, ServerSettings, Source, Warning, WatchOutcome, bundle_key,
};

use crate::kit::*;

fn why(files: &Files) -> (Part, String) {
    let errors = Identities::load(std::slice::from_ref(files), now()).unwrap_err();
    (errors[0].part, errors[0].why.clone())
}

#[test]
fn each_mistake_is_named_with_its_file() {
    let ca = Ca::new();
    let good = ca.sign("good", &server_params(&["a.example"]));
    let other = ca.sign("other", &server_params(&["b.example"]));
    let with = |chain: &str, key: &str| Files { chain: ca.path(chain), key: ca.path(key) };
    fs::write(ca.path("empty.pem"), "").unwrap();
    fs::write(ca.path("cut.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    fs::write(ca.path("letters.pem"), "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n").unwrap();
    fs::write(ca.path("nonsense.pem"), pem("CERTIFICATE", b"nonsense")).unwrap();
    fs::write(ca.path("nonsense.key"), pem("PRIVATE KEY", b"nonsense")).unwrap();
    fs::write(ca.path("locked.key"), pem("ENCRYPTED PRIVATE KEY", b"nonsense")).unwrap();
    for (chain, key, part, text) in [
        ("none.pem", "good.key", Part::Chain, "there is no such file"),
        ("good.pem", "none.key", Part::Key, "there is no such file"),
        (".", "good.key", Part::Chain, "it is not a file"),
        ("empty.pem", "good.key", Part::Chain, "it has no certificate: \"-----BEGIN CERTIFICATE-----\" is missing"),
        ("good.key", "good.key", Part::Chain, "it has no certificate: \"-----BEGIN CERTIFICATE-----\" is missing"),
        ("cut.pem", "good.key", Part::Chain, "a section does not end: \"-----END CERTIFICATE-----\" is missing"),
        ("letters.pem", "good.key", Part::Chain, "a section is not base64"),
        ("nonsense.pem", "good.key", Part::Chain, "its first certificate is not X.509"),
        ("good.pem", "good.pem", Part::Key, "it has no private key: \"-----BEGIN PRIVATE KEY-----\" is missing"),
        ("good.pem", "locked.key", Part::Key, "its key is encrypted; decrypt it with `openssl pkey`"),
        ("good.pem", "nonsense.key", Part::Key, "unsupported key type; use RSA of 2,048 to 8,192 bits, ECDSA, Ed25519"),
        ("good.pem", "other.key", Part::Key, "the key does not belong to the certificate for a.example"),
    ] {
        assert_eq!(why(&with(chain, key)), (part, text.to_owned()), "{chain} {key}");
    }
    let all = [good, with("none.pem", "x"), other, with("good.pem", "none.key")];
    let errors = Identities::load(&all, now()).unwrap_err();
    assert_eq!(errors.iter().map(|error| error.index).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(errors[0].to_string(), format!("{}: there is no such file", ca.path("none.pem").display()));
    assert!(Identities::load(&[], now()).is_err());
}

#[test]
fn what_will_not_last_is_warned_of() {
    let ca = Ca::new();
    let warnings =
        |files: &Files| Identities::load(std::slice::from_ref(files), now()).unwrap().all()[0].warnings.clone();
    let until = |days: i64| {
        let mut params = server_params(&["a.example"]);
        params.not_after = moment(now() + days * DAY_S);
        ca.sign("until", &params)
    };
    assert_eq!(warnings(&until(20)), []);
    assert!(matches!(warnings(&until(10))[..], [Warning::EndsSoon { .. }]));
    let mut params = server_params(&["a.example"]);
    (params.not_before, params.not_after) = (moment(now() - 9 * DAY_S), moment(now() - 3 * DAY_S));
    assert!(matches!(warnings(&ca.sign("old", &params))[..], [Warning::Expired { .. }]));
    (params.not_before, params.not_after) = (moment(now() + DAY_S), moment(now() + 30 * DAY_S));
    assert!(matches!(warnings(&ca.sign("new", &params))[..], [Warning::NotYetValid { .. }]));
    let files = until(30);
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(warnings(&files), [Warning::KeyReadable { mode: 0o644 }]);
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(warnings(&files), []);
    assert_eq!(warnings(&ca.sign("nameless", &server_params(&[]))), [Warning::Nameless]);
    let whole = fs::read_to_string(&files.chain).unwrap();
    let leaf = &whole[..whole.find("-----END").unwrap() + "-----END CERTIFICATE-----\n".len()];
    fs::write(&files.chain, leaf).unwrap();
    assert_eq!(warnings(&files), [Warning::NoIntermediate]);
    // There is no certificate between it and a root.
    fs::write(ca.path("roots.pem"), &whole[leaf.len()..]).unwrap();
    let of = |ca_files| {
        let source = Source { ca_files, ..source(vec![files.clone()], Vec::new(), Path::new("")) };
        source.found(now()).unwrap().unwrap().all()[0].warnings.clone()
    };
    assert_eq!(of(vec![ca.path("none.pem")]), [Warning::NoIntermediate]);
    assert_eq!(of(vec![ca.path("none.pem"), ca.path("roots.pem")]), []);
    fs::write(&files.chain, [leaf, leaf].concat()).unwrap();
    assert_eq!(warnings(&files), [Warning::Order]);
}

/// The name in the certificate that a client requesting this name gets.
fn shown(server: &Acceptor, asked: &str) -> String {
    let client = Connector::new(ClientSettings::default());
    let (client, _) = session(&client, server, &unproven(), asked).unwrap();
    client.facts().unwrap().peer.as_ref().unwrap().names[0].to_string()
}

#[test]
fn the_name_that_is_asked_for_chooses() {
    let ca = Ca::new();
    let sign = |file: &str, names: &[&str]| ca.sign(file, &server_params(names));
    let files = [
        sign("first", &["mx.example.org", "smtp.example.org"]),
        sign("wild", &["*.example.net", "example.net"]),
        sign("exact", &["mail.example.net"]),
    ];
    let identities = Identities::load(&files, now()).unwrap();
    for (name, has_one) in [
        ("MX.example.org.", true),
        ("a.example.net", true),
        ("a.b.example.net", false),
        ("net", false),
        ("unknown.example", false),
    ] {
        assert_eq!(identities.has_name(name), has_one, "{name}");
    }
    let server = Acceptor::new(ServerSettings::default(), IdentityStore::new(identities)).unwrap();
    for (asked, is_shown) in [
        ("smtp.example.org", "mx.example.org"),
        ("a.example.net", "*.example.net"),
        ("A.Example.Net", "*.example.net"),
        ("example.net", "*.example.net"),
        ("mail.example.net", "mail.example.net"),
        ("a.b.example.net", "mx.example.org"),
        ("unknown.example", "mx.example.org"),
        // Not sent: addresses are not server names.
        ("192.0.2.1", "mx.example.org"),
    ] {
        assert_eq!(shown(&server, asked), is_shown, "{asked}");
    }
}

#[test]
fn one_is_made_at_the_first_start_and_renewed_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("tls");
    let make = |host: &str, now: i64| Identities::self_signed(&within, host, now).unwrap().all()[0].clone();
    let first = make("mx.example.org", now());
    assert!(first.is_self_made());
    assert_eq!(first.certificate.names, ["mx.example.org".into()]);
    assert!(first.certificate.is_self_issued);
    assert_eq!(fs::metadata(within.join(SELF_SIGNED_FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(make("mx.example.org", now()).certificate, first.certificate);
    let renewed = make("mx.example.org", first.certificate.not_after - 30 * DAY_S);
    assert_ne!(renewed.certificate.sha256, first.certificate.sha256);
    assert_eq!(renewed.certificate.key_sha256, first.certificate.key_sha256);
    assert!(renewed.certificate.not_after > first.certificate.not_after);
    let renamed = make("mail.example.org", now());
    assert_eq!(renamed.certificate.names, ["mail.example.org".into()]);
    assert_eq!(renamed.certificate.key_sha256, first.certificate.key_sha256);
    fs::write(within.join(SELF_SIGNED_FILE), "broken").unwrap();
    let again = make("mail.example.org", now());
    assert_ne!(again.certificate.key_sha256, first.certificate.key_sha256);
    // A name that no certificate can contain.
    assert!(make("mx_1 \u{fc}", now()).certificate.names.is_empty());
}

#[test]
fn an_acme_server_gets_its_answer_and_others_do_not() {
    let ca = Ca::new();
    let settings = ServerSettings { alpn: vec![b"http/1.1".to_vec()], acme: true, ..ServerSettings::default() };
    let server = ca.server_with(&["mx.example.org"], settings);
    let ask = |alpn: &[&[u8]]| -> Result<(SecuredSession, SecuredSession), stentor_tls::TlsError> {
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let client = Connector::new(ClientSettings { alpn, ..ClientSettings::default() });
        session(&client, &server, &unproven(), "mx.example.org")
    };
    assert!(ask(&[b"acme-tls/1"]).is_err());
    server.store().put_challenge("MX.example.org", &[7; 32]).unwrap();
    let (client, _) = ask(&[b"acme-tls/1"]).unwrap();
    let facts = client.facts().unwrap();
    assert_eq!(facts.alpn.as_deref(), Some(&b"acme-tls/1"[..]));
    assert!(facts.peer.as_ref().unwrap().is_self_issued);
    for alpn in [&[&b"http/1.1"[..]][..], &[b"http/1.1", b"acme-tls/1"], &[]] {
        let (client, _) = ask(alpn).unwrap();
        assert_eq!(&*client.facts().unwrap().peer.as_ref().unwrap().issuer, "Test CA");
    }
    server.store().remove_challenge("mx.example.org");
    assert!(ask(&[b"acme-tls/1"]).is_err());
}

fn source(files: Vec<Files>, obtained: Vec<PathBuf>, folder: &Path) -> Source {
    Source { files, obtained, ca_files: Vec::new(), own: (folder.to_owned(), "mx.example.org".to_owned()) }
}

/// Writes both to one file, as the server does; returns the certificate's hash.
fn obtain(from: &Files, path: &Path) -> [u8; 32] {
    let key = bundle_key(&fs::read(&from.key).unwrap()).unwrap();
    let (identity, text) = Identity::bundle(&fs::read(&from.chain).unwrap(), &key).unwrap();
    let again = Identity::from_bundle(text.as_bytes()).unwrap();
    assert_eq!(again.certificate, identity.certificate);
    fs::write(path, text).unwrap();
    identity.certificate.sha256
}

#[test]
fn one_that_was_obtained_takes_the_place_of_the_own() {
    let ca = Ca::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mx.pem");
    let of = |identities: &Identities| identities.all().iter().map(|one| one.certificate.sha256).collect::<Vec<_>>();
    let source = source(Vec::new(), vec![path.clone()], folder.path());
    let mut watch = IdentityWatch::new(source.clone(), now());
    assert!(source.load(now()).unwrap().all()[0].is_self_made());
    let files = ca.sign("mx", &server_params(&["mx.example.org"]));
    for name in ["mx", "new"] {
        let hash = obtain(&ca.sign(name, &server_params(&["mx.example.org"])), &path);
        assert!(matches!(watch.look(now()), WatchOutcome::Same));
        let WatchOutcome::Replaced(found) = watch.look(now()) else { panic!("it has rested") };
        assert_eq!(of(&found), [hash]);
        assert!(!found.all()[0].is_self_made());
    }
    // Configured files take precedence, and a damaged one here is not an error.
    let both = Source { files: vec![files], ..source.clone() };
    assert_eq!(both.load(now()).unwrap().all().len(), 2);
    fs::write(&path, "damaged").unwrap();
    assert_eq!(both.load(now()).unwrap().all().len(), 1);
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    let WatchOutcome::Replaced(own) = watch.look(now()) else { panic!("it has rested") };
    assert!(own.all()[0].is_self_made());
    // A key of another certificate.
    let (a, b) = (ca.sign("a", &server_params(&["a.example"])), ca.sign("b", &server_params(&["b.example"])));
    let key = bundle_key(&fs::read(&b.key).unwrap()).unwrap();
    assert!(Identity::bundle(&fs::read(&a.chain).unwrap(), &key).unwrap_err().contains("the key does not"));
}

#[test]
fn a_ca_is_told_which_certificate_is_meant() {
    // The example in RFC 9773 section 4.1.
    let identifier = "69885b6b87464041e1b37b847ba0ae2cde01c8d4";
    let octets = (0..20).map(|at| u8::from_str_radix(&identifier[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut params = ca_params("Test CA");
    params.key_identifier_method = KeyIdMethod::PreSpecified(octets);
    let issuer = CertifiedIssuer::self_signed(params, key()).unwrap();
    let key = key();
    let renewal_id = |params: &CertificateParams| {
        let leaf = params.signed_by(&key, &issuer).unwrap();
        Identity::bundle(pem("CERTIFICATE", leaf.der()).as_bytes(), &key.serialize_der()).unwrap().0.renewal_id()
    };
    let mut params = server_params(&["a.example"]);
    params.serial_number = Some(SerialNumber::from_slice(&[0x87, 0x65, 0x43, 0x21]));
    assert_eq!(renewal_id(&params), None);
    params.use_authority_key_identifier_extension = true;
    let id = RenewalId { issuer_key: "aYhba4dGQEHhs3uEe6CuLN4ByNQ".to_owned(), serial: "AIdlQyE".to_owned() };
    assert_eq!(renewal_id(&params), Some(id));
}

#[test]
fn files_that_are_replaced_are_read_once_they_rest() {
    let ca = Ca::new();
    let (files, new) =
        (ca.sign("mx", &server_params(&["mx.example.org"])), ca.sign("new", &server_params(&["mx.example.org"])));
    let mut watch = IdentityWatch::new(source(vec![files.clone()], Vec::new(), files.key.parent().unwrap()), now());
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    // Only the chain: the mismatch is reported once.
    fs::rename(&new.chain, &files.chain).unwrap();
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    let WatchOutcome::Broken(errors) = watch.look(now()) else { panic!("it has rested") };
    assert_eq!((errors[0].index, errors[0].part), (0, Part::Key));
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    fs::rename(&new.key, &files.key).unwrap();
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    assert!(matches!(watch.look(now()), WatchOutcome::Replaced(_)));
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    fs::remove_file(&files.key).unwrap();
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
    assert!(matches!(watch.look(now()), WatchOutcome::Broken(_)));
    assert!(matches!(watch.look(now()), WatchOutcome::Same));
}

#[test]
fn the_one_that_the_server_makes_is_renewed_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let first = Identities::self_signed(folder.path(), "mx.example.org", now()).unwrap().all()[0].certificate.clone();
    let mut watch = IdentityWatch::new(source(Vec::new(), Vec::new(), folder.path()), now());
    assert!(matches!(watch.look(now() + 60), WatchOutcome::Same));
    let WatchOutcome::Replaced(same) = watch.look(now() + DAY_S) else { panic!("an hour has passed") };
    assert_eq!(same.all()[0].certificate, first);
    let WatchOutcome::Replaced(renewed) = watch.look(first.not_after - 20 * DAY_S) else { panic!("it ends soon") };
    assert!(renewed.all()[0].certificate.not_after > first.not_after);
    assert_eq!(renewed.all()[0].certificate.key_sha256, first.key_sha256);
}
