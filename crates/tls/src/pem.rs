//! PEM files with chains and keys.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use base64ct::{Base64, Encoding as _};
use rustls::pki_types::pem::{Error, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Maximum size of a file of certificates or keys; a bundle of all public CAs has a quarter of a million octets.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

const LINE_CHARS: usize = 64;

pub(crate) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| explain(&error))?;
    if found.is_empty() {
        return Err("it has no certificate: \"-----BEGIN CERTIFICATE-----\" is missing".to_owned());
    }
    Ok(found)
}

pub(crate) fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    match PrivateKeyDer::from_pem_slice(text) {
        Ok(key) => Ok(key),
        Err(Error::NoItemsFound) if has(text, b"ENCRYPTED PRIVATE KEY") || has(text, b"Proc-Type: 4,ENCRYPTED") => {
            Err("its key is encrypted; decrypt it with `openssl pkey`".to_owned())
        }
        Err(Error::NoItemsFound) => Err("it has no private key: \"-----BEGIN PRIVATE KEY-----\" is missing".to_owned()),
        Err(error) => Err(explain(&error)),
    }
}

fn has(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

fn explain(error: &Error) -> String {
    match error {
        Error::MissingSectionEnd { end_marker } => {
            format!("a section does not end: \"-----END {}-----\" is missing", end_marker.escape_ascii())
        }
        Error::IllegalSectionStart { line } => {
            format!("the line \"{}\" does not begin a section", line[..line.len().min(LINE_CHARS)].escape_ascii())
        }
        Error::Base64Decode(_) => "a section is not base64".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

/// Formats a PEM section.
pub(crate) fn write(label: &str, der: &[u8]) -> String {
    let encoded = Base64::encode_string(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_CHARS));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

/// Reads a file completely; returns it with its mode.
pub(crate) fn read(path: &Path) -> io::Result<(Vec<u8>, u32)> {
    // Opening a pipe would block until there is a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let file = File::open(path)?;
    let meta = file.metadata()?;
    if meta.len() > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} octets")));
    }
    let mut bytes = Vec::with_capacity(meta.len() as usize + 1);
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok((bytes, meta.mode()))
}

/// Why a file cannot be read.
pub(crate) fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
