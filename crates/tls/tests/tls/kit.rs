//! Test certificates, and sessions without sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use stentor_tls::{
    Acceptor, ClientSettings, Connector, Files, Identities, IdentityStore, PeerProof, PeerRequirement, PlainRead,
    Roots, SecuredSession, ServerSettings, TlsError,
};
use time::OffsetDateTime;

pub const DAY_S: i64 = 86_400;

pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

pub fn moment(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap()
}

/// A CA, and a folder for its certificates.
pub struct Ca {
    pub issuer: CertifiedIssuer<'static, KeyPair>,
    pub folder: tempfile::TempDir,
}

pub fn pem(label: &str, der: &[u8]) -> String {
    use base64ct::{Base64, Encoding as _};
    let text = Base64::encode_string(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = moment(now() - 10 * DAY_S);
    params.not_after = moment(now() + 100 * DAY_S);
    params
}

pub fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

/// Parameters of a server's certificate, which can be changed before signing.
pub fn server_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names.clone()).unwrap();
    params.distinguished_name.push(DnType::CommonName, names.first().map_or("nobody", |name| name));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = moment(now() - DAY_S);
    params.not_after = moment(now() + 90 * DAY_S);
    params
}

impl Ca {
    pub fn new() -> Ca {
        let issuer = CertifiedIssuer::self_signed(ca_params("Test CA"), key()).unwrap();
        let ca = Ca { issuer, folder: tempfile::tempdir().unwrap() };
        std::fs::write(ca.path("ca.pem"), pem("CERTIFICATE", ca.issuer.der())).unwrap();
        ca
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn roots(&self) -> Roots {
        Roots::from_file(&self.path("ca.pem")).unwrap()
    }

    /// Signs and writes a chain (with the CA) and its key.
    pub fn sign(&self, file: &str, params: &CertificateParams) -> Files {
        let key = key();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = Files { chain: self.path(&format!("{file}.pem")), key: self.path(&format!("{file}.key")) };
        write_private(&files.key, &pem("PRIVATE KEY", key.serialized_der()));
        let chain = pem("CERTIFICATE", certificate.der()) + &pem("CERTIFICATE", self.issuer.der());
        std::fs::write(&files.chain, chain).unwrap();
        files
    }

    pub fn server(&self, name: &str) -> Arc<Acceptor> {
        self.server_with(&[name], ServerSettings::default())
    }

    pub fn server_with(&self, names: &[&str], settings: ServerSettings) -> Arc<Acceptor> {
        let store = IdentityStore::new(Identities::load(&[self.sign(names[0], &server_params(names))], now()).unwrap());
        Acceptor::new(settings, store).unwrap()
    }

    pub fn client(&self) -> Arc<Connector> {
        Connector::new(ClientSettings { roots: self.roots(), ..ClientSettings::default() })
    }
}

pub fn write_private(path: &Path, text: &str) {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

pub fn names(names: &[&str]) -> Vec<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

pub fn unproven() -> PeerRequirement {
    PeerRequirement::Encrypted { names: names(&["mx.example.org"]) }
}

pub fn by_ca(name: &str) -> PeerRequirement {
    PeerRequirement::Ca { names: names(&[name]) }
}

/// All pending output.
pub fn sent(secured: &mut SecuredSession) -> Vec<u8> {
    let mut all = Vec::new();
    secured
        .send(|pieces| {
            for piece in pieces {
                all.extend_from_slice(piece);
            }
            Ok(pieces.iter().map(|piece| piece.len()).sum())
        })
        .unwrap();
    all
}

/// Moves octets both ways until there are no more; returns the plain ones received on each side.
pub fn pump(client: &mut SecuredSession, server: &mut SecuredSession) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    loop {
        let (from_client, from_server) = (sent(client), sent(server));
        if from_client.is_empty() && from_server.is_empty() {
            return Ok((to_client, to_server));
        }
        deliver(server, &from_client, &mut to_server)?;
        deliver(client, &from_server, &mut to_client)?;
    }
}

pub fn deliver(secured: &mut SecuredSession, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), TlsError> {
    loop {
        let taken = secured.receive(bytes)?;
        bytes = &bytes[taken..];
        let mut buffer = [0; 1000];
        while let PlainRead::Octets(octets) = secured.read(&mut buffer) {
            plain.extend_from_slice(&buffer[..octets]);
        }
        if bytes.is_empty() {
            return Ok(());
        }
    }
}

/// A session between both, with a complete handshake.
pub fn session(
    client: &Connector,
    server: &Acceptor,
    requirement: &PeerRequirement,
    name: &str,
) -> Result<(SecuredSession, SecuredSession), TlsError> {
    let (mut client, mut server) = (client.begin(requirement, name, "192.0.2.1:25")?, server.begin()?);
    pump(&mut client, &mut server)?;
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

pub fn proven(secured: &SecuredSession) -> PeerProof {
    secured.facts().unwrap().proven.clone()
}
