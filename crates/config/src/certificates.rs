//! The files named in `[tls]` and in `tls_ca_file` of `[delivery]`. They are read at start, at a reload and by
//! `stentor check`; errors point to the key that names the file.

use std::path::PathBuf;

use stentor_tls::{ClientCertificates, Identities, Part, Roots, ServerSettings};

use super::configuration::Config;
use super::diagnose::{Diagnostic, FilePosition, Severity};
use super::tls::{CaFile, TlsConfig, UnverifiedClients};

/// Maximum certificate names listed in a warning.
const NAMES_SHOWN_MAX: usize = 5;

impl Config {
    /// Reports errors in the files at the keys that name them.
    pub fn certificate_errors(&self, errors: Vec<stentor_tls::IdentityError>) -> Vec<Diagnostic> {
        let diagnostic = |error: stentor_tls::IdentityError| {
            let position = self.tls.position(error.index, error.part);
            TlsConfig::diagnostic(self.file.as_deref(), position, Severity::Error, format!("{error}; {}", error.next))
        };
        errors.into_iter().map(diagnostic).collect()
    }

    /// Warns of certificates that expire soon or will not work for all clients.
    pub fn certificate_warnings(&self, identities: &Identities) -> Vec<Diagnostic> {
        let mut found: Vec<Diagnostic> = self.unnamed_host(identities).into_iter().collect();
        for (index, identity) in identities.all().iter().enumerate() {
            let Some(files) = &identity.files else { continue };
            for warning in &identity.warnings {
                let (part, file) = match warning {
                    stentor_tls::Warning::KeyReadable { .. } => (Part::Key, &files.key),
                    _ => (Part::Chain, &files.chain),
                };
                let message = format!("{}: {warning}", file.display());
                let position = self.tls.position(index, part);
                found.push(TlsConfig::diagnostic(self.file.as_deref(), position, Severity::Warning, message));
            }
        }
        found
    }

    /// Warns if no certificate covers `hostname`, the name that the MX record and users' mail programs connect to
    /// (RFC 6125 6.4, RFC 9525 6.3).
    fn unnamed_host(&self, identities: &Identities) -> Option<Diagnostic> {
        let has_tls = self.listen.listeners().any(|(_, listener)| listener.tls.is_possible());
        let names: Vec<&str> =
            identities.all().iter().flat_map(|one| one.certificate.names.iter().map(|name| &**name)).collect();
        // Certificates without names have a warning of their own.
        if !has_tls || names.is_empty() || identities.has_name(&self.hostname) {
            return None;
        }
        let host = &self.hostname;
        let more = names.len().saturating_sub(NAMES_SHOWN_MAX);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let named = names.iter().take(NAMES_SHOWN_MAX).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let message = format!(
            "no certificate covers `hostname` `{host}`: clients that verify it will refuse the connection; names covered: {named}{more}. \
             Get a certificate with the subjectAltName `{host}`, or set `hostname` to a covered name"
        );
        let position = self.tls.position(0, Part::Chain);
        Some(TlsConfig::diagnostic(self.file.as_deref(), position, Severity::Warning, message))
    }

    /// TLS settings of the SMTP listeners.
    ///
    /// # Errors
    /// The file of CAs cannot be used.
    pub fn tls_server(&self) -> Result<ServerSettings, Box<Diagnostic>> {
        let tls = &self.tls;
        let roots = match &tls.client_ca_file {
            None => Roots::none(),
            Some(file) => self.roots(file)?,
        };
        let client_certificates = match tls.client_unverified {
            UnverifiedClients::Refuse => ClientCertificates::Verify(roots),
            UnverifiedClients::Ignore if tls.client_ca_file.is_some() || !tls.client_certificates.is_empty() => {
                ClientCertificates::Ask(roots)
            }
            UnverifiedClients::Ignore => ClientCertificates::Never,
        };
        Ok(ServerSettings { min_version: tls.min_version, client_certificates, ..ServerSettings::default() })
    }

    /// The CAs in `tls_ca_file`, which replace those of the system; `None` if it is not set.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn host_roots(&self) -> Result<Option<Roots>, Box<Diagnostic>> {
        self.protection.ca_file.as_ref().map(|file| self.roots(file)).transpose()
    }

    fn roots(&self, file: &CaFile) -> Result<Roots, Box<Diagnostic>> {
        let diagnostic =
            |message| Box::new(TlsConfig::diagnostic(self.file.as_deref(), file.named_at, Severity::Error, message));
        Roots::from_file(&file.path).map_err(|error| diagnostic(error.to_string()))
    }

    /// An error about `[tls]` as a whole.
    pub fn tls_diagnostic(&self, message: String) -> Diagnostic {
        TlsConfig::diagnostic(self.file.as_deref(), FilePosition::default(), Severity::Error, message)
    }

    /// Folder of ACME accounts, certificates and keys.
    pub fn acme_folder(&self) -> PathBuf {
        self.data_dir.join("acme")
    }

    /// Folder of the DKIM keys that the server makes.
    pub fn dkim_folder(&self) -> PathBuf {
        self.data_dir.join("dkim")
    }

    /// Folder of the server's self-signed certificate.
    pub fn tls_folder(&self) -> PathBuf {
        self.data_dir.join("tls")
    }
}
