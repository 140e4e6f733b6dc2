//! `[acme]`: the certificates that the server obtains from a CA by itself, and how it proves control of their names.
//! It requests nothing without `names` and `agree_terms`.

use std::net::SocketAddr;
use std::path::PathBuf;

use stentor_http_client::Url;
use stentor_mail::address::normalise_domain;

use super::diagnose::Spot;
use super::raw::{Context, Section, more_addresses};
use super::settings::{self, Origin};

/// Let's Encrypt, whose certificates all common clients trust.
const DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Maximum names per certificate; no CA allows more.
const NAMES_MAX: usize = 100;
const CERTIFICATES_MAX: usize = 100;
const CONTACTS_MAX: usize = 10;

/// Settings of `[acme]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeConfig {
    pub directory: String,
    pub ca_file: Option<PathBuf>,
    pub contact: Vec<String>,
    /// Names of each certificate, as lower-case A-labels; if empty, the server contacts no CA.
    pub certificates: Vec<Vec<String>>,
    pub challenge: AcmeChallenge,
    pub http_listen: Vec<SocketAddr>,
    pub tls_listen: Vec<SocketAddr>,
    /// External account: its identifier and its key file.
    pub external: Option<(String, PathBuf)>,
    pub keep_key: bool,
}

/// How control of the names is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// HTTP on port 80.
    Http01,
    /// TLS-ALPN on port 443.
    TlsAlpn01,
}

/// Reads `[acme]`. With `has_https` the console's listeners answer `tls-alpn-01` as well; addresses in `others` are
/// already in use.
pub(super) fn read(section: Section<'_>, has_https: bool, others: &[SocketAddr]) -> AcmeConfig {
    let context = section.context;
    let directory = directory(&section);
    let ca_file = section.text("ca_file").map(|text| context.path(text.value));
    let contact = contact(&section);
    let certificates = certificates(&section);
    let words = [("http-01", AcmeChallenge::Http01), ("tls-alpn-01", AcmeChallenge::TlsAlpn01)];
    let challenge = section.choice("challenge", AcmeChallenge::Http01, &words);
    let is_on = !certificates.is_empty();
    let mut http_listen = more_addresses(&section, "http_listen", "0.0.0.0:80", others);
    if is_on && challenge == AcmeChallenge::Http01 && !section.has("http_listen") {
        http_listen = vec![SocketAddr::from(([0, 0, 0, 0], 80))];
    }
    let tls_listen = more_addresses(&section, "tls_listen", "0.0.0.0:443", others);
    if is_on && challenge == AcmeChallenge::TlsAlpn01 && tls_listen.is_empty() && !has_https {
        let message = "\"tls-alpn-01\" needs an HTTPS listener: set `tls_listen` in [acme], or `tls` and `listen` in \
            [http]; the CA connects to port 443";
        context.error(section.span_of("challenge"), message);
    }
    if is_on && challenge == AcmeChallenge::Http01 && http_listen.is_empty() {
        let message = "\"http-01\" needs an HTTP listener, and `http_listen` in [acme] is empty; the CA connects to \
            port 80";
        context.error(section.span_of("http_listen"), message);
    }
    if !section.flag("agree_terms", false) && is_on {
        let message = "`agree_terms` in [acme] must be true: this confirms that you have read and accept the CA's \
            terms of service";
        context.error(section.span_of("agree_terms"), message);
    }
    let external = external(&section);
    let keep_key = section.flag("keep_key", true);
    section.finish();
    AcmeConfig { directory, ca_file, contact, certificates, challenge, http_listen, tls_listen, external, keep_key }
}

fn directory(section: &Section<'_>) -> String {
    let text = section.text("directory");
    let value = text.as_ref().map_or(DIRECTORY, |text| text.value);
    section.effective("directory", Origin::Default, settings::quoted(value), settings::quoted(DIRECTORY));
    if let Some(text) = text {
        let why = match Url::parse(text.value) {
            Ok(url) if url.is_tls => None,
            Ok(_) => Some("it must begin with https://".to_owned()),
            Err(why) => Some(why),
        };
        if let Some(why) = why {
            section.context.error(text.span, format!("`directory` in [acme] is {:?}: {why}", text.value));
        }
    }
    value.to_owned()
}

fn contact(section: &Section<'_>) -> Vec<String> {
    let texts = section.texts("contact").unwrap_or_default();
    if texts.len() > CONTACTS_MAX {
        section.context.error(section.span_of("contact"), format!("more than {CONTACTS_MAX} addresses"));
    }
    let address = |text: Spot<&str>| {
        if stentor_mail::address::Address::parse(text.value.as_bytes(), false).is_err() {
            let message = format!(
                "{:?} is not a valid mail address; write, for instance, \"postmaster@example.org\"",
                text.value
            );
            section.context.error(text.span, message);
        }
        text.value.to_owned()
    };
    texts.into_iter().map(address).collect()
}

/// The certificate for `names`, then those of `[[acme.certificates]]`.
fn certificates(section: &Section<'_>) -> Vec<Vec<String>> {
    #[cfg(test)]
    section.note("certificates", "tables of `names`", None);
    let context = section.context;
    let mut all = Vec::new();
    if let Some(texts) = section.texts("names") {
        all.push((section.span_of("names"), names(context, texts)));
    }
    for table in section.tables("certificates") {
        match table.texts("names") {
            Some(texts) => all.push((table.span_of("names"), names(context, texts))),
            None => context
                .error(table.span.clone(), "`names` is missing; add, for instance, names = [\"mail.example.org\"]"),
        }
        table.finish();
    }
    if all.len() > CERTIFICATES_MAX {
        context.error(section.span_of("certificates"), format!("more than {CERTIFICATES_MAX} certificates"));
    }
    // The files are named after the first name.
    for (at, (span, names)) in all.iter().enumerate() {
        if all[..at].iter().any(|(_, before)| !names.is_empty() && before.first() == names.first()) {
            context.error(span.clone(), format!("two certificates have the same first name {:?}", names[0]));
        }
    }
    all.into_iter().map(|(_, names)| names).filter(|names| !names.is_empty()).collect()
}

fn names(context: &Context<'_>, texts: Vec<Spot<&str>>) -> Vec<String> {
    let mut names = Vec::with_capacity(texts.len());
    for text in texts {
        let name = normalise_domain(text.value).ok().filter(|name| !name.starts_with('[') && name.contains('.'));
        let why = match &name {
            _ if text.value.starts_with("*.") => {
                Some("a wildcard needs a DNS challenge, which is not supported; list each host")
            }
            None => Some("it must be the full name of a host, such as \"mail.example.org\""),
            Some(name) if names.contains(name) => Some("it appears twice"),
            Some(_) if names.len() == NAMES_MAX => Some("a certificate has at most 100 names"),
            Some(_) => None,
        };
        match why {
            Some(why) => context.error(text.span, format!("{:?} in [acme]: {why}", text.value)),
            None => names.extend(name),
        }
    }
    names
}

fn external(section: &Section<'_>) -> Option<(String, PathBuf)> {
    let id = section.text("eab_kid").map(|text| text.value.to_owned());
    let file = section.text("eab_key_file").map(|text| section.context.path(text.value));
    if id.is_some() != file.is_some() {
        let message = "`eab_kid` and `eab_key_file` in [acme] must be set together: the CA issues both";
        section.context.error(section.span_of(if id.is_some() { "eab_kid" } else { "eab_key_file" }), message);
    }
    id.zip(file)
}

#[cfg(test)]
mod tests {
    use crate::tests::{config, findings};

    #[test]
    fn certificates_are_asked_for_where_everything_is_said() {
        assert_eq!(config("").acme.certificates, Vec::<Vec<String>>::new());
        assert_eq!(config("").acme.http_listen, []);
        let read = config(
            "[acme]\nnames = [\"Mail.Example.ORG\", \"mx.b\u{fc}cher.example\"]\nagree_terms = true\ncontact = \"postmaster@example.org\"\n\
             [[acme.certificates]]\nnames = \"lists.example.org\"\n",
        );
        assert_eq!(
            read.acme.certificates,
            [vec!["mail.example.org", "mx.xn--bcher-kva.example"], vec!["lists.example.org"]]
        );
        assert_eq!(read.acme.http_listen, ["0.0.0.0:80".parse().unwrap()]);
        assert!(read.acme.tls_listen.is_empty() && read.acme.keep_key && read.warnings.is_empty());
        let tls = "[acme]\nnames = \"mx.example.org\"\nagree_terms = true\nchallenge = \"tls-alpn-01\"\n";
        assert!(findings(tls).contains("set `tls_listen` in [acme]"));
        let with_console = format!("{tls}[http]\ntls = true\n");
        assert_eq!((findings(&with_console), config(&with_console).acme.http_listen), (String::new(), Vec::new()));
        let found = findings(
            "[acme]\nnames = [\"*.example.org\", \"localhost\", \"[192.0.2.1]\", \"a.example\", \"A.example\"]\ndirectory = \"http://ca.example/\"\n\
             contact = \"nobody\"\neab_kid = \"1\"\nhttp_listen = [\"127.0.0.1:25\", \"127.0.0.1:8025\"]\n[listen]\nsmtp = [\"127.0.0.1:25\"]\n\
             [[acme.certificates]]\nnames = [\"a.example\"]\n[[acme.certificates]]\n",
        );
        for expected in [
            "\"*.example.org\" in [acme]: a wildcard needs a DNS challenge",
            "\"localhost\" in [acme]: it must be the full name",
            "\"[192.0.2.1]\" in [acme]: it must be the full name",
            "\"A.example\" in [acme]: it appears twice",
            "it must begin with https://",
            "\"nobody\" is not a valid mail address",
            "must be set together",
            "\"127.0.0.1:25\" appears twice",
            "\"127.0.0.1:8025\" appears twice",
            "`agree_terms` in [acme] must be true",
            "two certificates have the same first name \"a.example\"",
            "`names` is missing",
        ] {
            assert!(found.contains(expected), "{expected}: {found}");
        }
        let nowhere = "[acme]\nnames = \"mx.example.org\"\nagree_terms = true\nhttp_listen = []\n";
        assert!(findings(nowhere).contains("`http_listen` in [acme] is empty"));
    }
}
