//! The files that `[tls]` names: read at the start, at a reload and by `stentor check`; what is wrong with them is reported at the
//! place of their key.

use std::path::PathBuf;

use stentor_tls::{ClientCertificates, Identities, Part, Roots, ServerSettings};

use super::checked::Config;
use super::diagnose::{Diagnostic, Severity};
use super::tls::{TlsConfig, Unverified};

impl Config {
    /// What is wrong, at the places of the keys that name the files.
    pub fn certificate_errors(&self, errors: Vec<stentor_tls::IdentityError>) -> Vec<Diagnostic> {
        let diagnostic = |error: stentor_tls::IdentityError| {
            let place = self.tls.place(error.index, error.part);
            TlsConfig::diagnostic(self.file.as_deref(), place, Severity::Error, error.to_string())
        };
        errors.into_iter().map(diagnostic).collect()
    }

    /// What of the certificates will not last, or not work for everybody.
    pub fn certificate_warnings(&self, identities: &Identities) -> Vec<Diagnostic> {
        let mut found = Vec::new();
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

    /// How TLS is spoken with clients, by SMTP's listeners.
    ///
    /// # Errors
    /// The file of CAs cannot be used.
    pub fn tls_server(&self) -> Result<ServerSettings, Box<Diagnostic>> {
        let tls = &self.tls;
        let roots = match &tls.client_ca {
            None => Roots::none(),
            Some((path, place)) => Roots::from_file(path).map_err(|error| {
                TlsConfig::diagnostic(self.file.as_deref(), *place, Severity::Error, error.to_string())
            })?,
        };
        let client_certificates = match tls.client_unverified {
            Unverified::Refuse => ClientCertificates::Verify(roots),
            Unverified::Ignore if tls.client_ca.is_some() || !tls.client_certificates.is_empty() => {
                ClientCertificates::Ask(roots)
            }
            Unverified::Ignore => ClientCertificates::Never,
        };
        Ok(ServerSettings { min_version: tls.min_version, client_certificates, ..ServerSettings::default() })
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
