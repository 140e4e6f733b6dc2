//! The server's self-signed certificate, so that STARTTLS is available from the first start.
//!
//! One file contains certificate and key; it is written to a temporary file, synced and renamed, so both always
//! match. The key is kept when the certificate is renewed or gets another name, so that a TLSA record `3 1 1` still
//! matches.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::pki_types::PrivateKeyDer;
use time::OffsetDateTime;

use super::file::identity;
use super::{DAY_S, Identities, Identity};
use crate::pem::{self, read};

/// File name in the folder given by the caller.
pub const SELF_SIGNED_FILE: &str = "self-signed.pem";

const VALID_DAYS: i64 = 730;
/// Days before expiry from which it is renewed, earlier than [`super::ENDS_SOON_DAYS`] warns.
const RENEW_DAYS: i64 = 60;
/// The start is backdated, because clocks of others may be slow.
const BACKDATED_S: i64 = DAY_S;

impl Identities {
    /// The certificate in this folder, created or renewed if necessary. If it cannot be written it is only used by
    /// this process: a full disk must not prevent a start.
    pub fn self_signed(folder: &Path, host: &str, now: i64) -> io::Result<Identities> {
        let path = folder.join(SELF_SIGNED_FILE);
        let old = match existing(&path) {
            Ok(identity) if is_good(&identity, host, now) => return whole(identity),
            Ok(_) => read(&path).ok().and_then(|(text, _)| pem::key(&text).ok()),
            Err(why) => {
                if let Some(why) = why {
                    tracing::warn!(file = %path.display(), %why, "the self-signed certificate is unusable; creating a \
                        new one");
                }
                None
            }
        };
        let text = make(host, now, old.as_ref()).map_err(io::Error::other)?;
        match write(folder, &path, &text) {
            Ok(()) => tracing::info!(
                path = %path.display(),
                "created a self-signed certificate: it encrypts but proves no identity; for a CA certificate see [acme]"
            ),
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "the self-signed certificate could not be saved; the \
                    next start will create another");
            }
        }
        whole(parse(text.as_bytes()).map_err(io::Error::other)?)
    }
}

impl Identities {
    /// The certificate from an earlier start in this folder, whatever its dates.
    pub fn self_signed_before(folder: &Path) -> Result<Option<Identities>, String> {
        match existing(&folder.join(SELF_SIGNED_FILE)) {
            Ok(identity) => Ok(Identities::new(vec![identity])),
            Err(None) => Ok(None),
            Err(Some(why)) => Err(why),
        }
    }
}

fn whole(identity: Identity) -> io::Result<Identities> {
    Identities::new(vec![identity]).ok_or_else(|| io::Error::other("no certificate"))
}

fn is_good(identity: &Identity, host: &str, now: i64) -> bool {
    let certificate = &identity.certificate;
    let is_named = certificate.subject.eq_ignore_ascii_case(&common_name(host));
    is_named && certificate.not_before <= now && certificate.not_after - now > RENEW_DAYS * DAY_S
}

/// The error is `None` if there is no file.
fn existing(path: &Path) -> Result<Identity, Option<String>> {
    if matches!(path.try_exists(), Ok(false)) {
        return Err(None);
    }
    let (text, _) = read(path).map_err(|error| Some(pem::unreadable(&error)))?;
    parse(&text).map_err(Some)
}

fn parse(text: &[u8]) -> Result<Identity, String> {
    identity(pem::certificates(text)?, pem::key(text)?).map_err(|failure| failure.why)
}

/// A common name of at most 64 characters (RFC 5280 appendix A.1); subjectAltName has the full name.
fn common_name(host: &str) -> String {
    const COMMON_NAME_CHARS_MAX: usize = 64;
    host.chars().take(COMMON_NAME_CHARS_MAX).collect()
}

fn make(host: &str, now: i64, key: Option<&PrivateKeyDer<'_>>) -> Result<String, rcgen::Error> {
    let kept = key.and_then(|key| KeyPair::from_der_and_sign_algo(key, &PKCS_ECDSA_P256_SHA256).ok());
    let key = match kept {
        Some(key) => key,
        None => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
    };
    // A host whose name is not a valid DNS name still gets a certificate.
    let names = vec![host.to_owned()];
    let mut params = CertificateParams::new(names).or_else(|_| CertificateParams::new(Vec::new()))?;
    params.distinguished_name.push(DnType::CommonName, common_name(host));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.not_before = moment(now - BACKDATED_S);
    params.not_after = moment(now + VALID_DAYS * DAY_S);
    let certificate = params.self_signed(&key)?;
    Ok(pem::write("CERTIFICATE", certificate.der()) + &pem::write("PRIVATE KEY", key.serialized_der()))
}

pub(super) fn moment(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let aside = path.with_extension("new");
    // Left over from an interrupted start.
    let _ = fs::remove_file(&aside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    fs::File::open(folder)?.sync_all()
}
