//! The files that `[tls]` and `[delivery] tls_ca_file` name: read at the start, at a reload and by `stentor check`; what is wrong with
//! them is reported at the place of their key.

use std::path::PathBuf;

use stentor_tls::{ClientCertificates, Identities, Part, Roots, ServerSettings};

use super::checked::Config;
use super::diagnose::{Diagnostic, Severity};
use super::tls::{Place, TlsConfig, Unverified};

/// Names of certificates that a warning has.
const NAMES_SHOWN_MAX: usize = 5;

impl Config {
    /// What is wrong, at the places of the keys that name the files.
    pub fn certificate_errors(&self, errors: Vec<stentor_tls::IdentityError>) -> Vec<Diagnostic> {
        let diagnostic = |error: stentor_tls::IdentityError| {
            let place = self.tls.place(error.index, error.part);
            TlsConfig::diagnostic(self.file.as_deref(), place, Severity::Error, format!("{error}; {}", error.next))
        };
        errors.into_iter().map(diagnostic).collect()
    }

    /// What of the certificates will not last, or not work for everybody.
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
                let place = self.tls.place(index, part);
                found.push(TlsConfig::diagnostic(self.file.as_deref(), place, Severity::Warning, message));
            }
        }
        found
    }

    /// No certificate covers `hostname`, by which clients of the listeners with TLS know this server: the MX record names it, and so does
    /// a user's mail program (RFC 6125 6.4, RFC 9525 6.3).
    fn unnamed_host(&self, identities: &Identities) -> Option<Diagnostic> {
        let has_tls = self.listen.listeners().any(|(_, listener)| listener.tls.is_possible());
        let names: Vec<&str> =
            identities.all().iter().flat_map(|one| one.certificate.names.iter().map(|name| &**name)).collect();
        // Those without names have a warning of their own.
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
        let place = self.tls.place(0, Part::Chain);
        Some(TlsConfig::diagnostic(self.file.as_deref(), place, Severity::Warning, message))
    }

    /// How TLS is spoken with clients, by SMTP's listeners.
    ///
    /// # Errors
    /// The file of CAs cannot be used.
    pub fn tls_server(&self) -> Result<ServerSettings, Box<Diagnostic>> {
        let tls = &self.tls;
        let roots = match &tls.client_ca_file {
            None => Roots::none(),
            Some(named) => self.roots(named)?,
        };
        let client_certificates = match tls.client_unverified {
            Unverified::Refuse => ClientCertificates::Verify(roots),
            Unverified::Ignore if tls.client_ca_file.is_some() || !tls.client_certificates.is_empty() => {
                ClientCertificates::Ask(roots)
            }
            Unverified::Ignore => ClientCertificates::Never,
        };
        Ok(ServerSettings { min_version: tls.min_version, client_certificates, ..ServerSettings::default() })
    }

    /// The CAs that may prove hosts, where a file has them: nothing stands for those of the system.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn host_roots(&self) -> Result<Option<Roots>, Box<Diagnostic>> {
        self.protection.ca_file.as_ref().map(|named| self.roots(named)).transpose()
    }

    fn roots(&self, (path, place): &(PathBuf, Place)) -> Result<Roots, Box<Diagnostic>> {
        let diagnostic =
            |message| Box::new(TlsConfig::diagnostic(self.file.as_deref(), *place, Severity::Error, message));
        Roots::from_file(path).map_err(|error| diagnostic(error.to_string()))
    }

    /// An error about all of `[tls]`.
    pub fn tls_diagnostic(&self, message: String) -> Diagnostic {
        TlsConfig::diagnostic(self.file.as_deref(), (0, 0), Severity::Error, message)
    }

    /// The folder of accounts at CAs, of their certificates and keys.
    pub fn acme_folder(&self) -> PathBuf {
        self.data_dir.join("acme")
    }

    /// The folder of the certificate that the server makes for itself.
    pub fn tls_folder(&self) -> PathBuf {
        self.data_dir.join("tls")
    }
}
