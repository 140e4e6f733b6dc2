//! Checks whether the TLSA records of our own host names (RFC 7672) match the certificates that clients get at port 25,
//! and will match the next ones. A renewal that changes the key, or any renewal if a record pins the certificate
//! itself, can stop the mail of every sender that uses DANE.
//!
//! Promise: one query for each name, a bounded number of them in parallel and within a few seconds. Records are judged
//! as senders judge them. Only a validating name server on loopback is trusted to say that they are authentic.
//!
//! Failure: if no name server answers, there are no findings here; `check` reports that.

use std::time::Duration;

use stentor_acme::{CertificateStatus, NextKey, certificate_file};
use stentor_config::keys::hex;
use stentor_config::{Config, Listener};
use stentor_control::doctor::{Finding as Note, Severity};
use stentor_control::format::span;
use stentor_core::Settings;
use stentor_resolve::Resolver;
use stentor_tls::{Identities, Identity, TlsaRecord};
use stentor_tls_policy::dane::{Answer, SecurityStatus, owner, usable};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The port of MX hosts.
const PORT: u16 = 25;
/// Maximum names queried.
const NAMES_MAX: usize = 100;
/// Time limit for all answers.
const WAIT: Duration = Duration::from_secs(3);

/// A certificate that clients get for a name.
struct ServedCertificate<'a> {
    identity: &'a Identity,
    next: NextKey,
    /// When the next certificate comes, in words.
    when: String,
}

/// The TLSA records of a name.
struct TlsaRecords<'a> {
    host: &'a str,
    answer: &'a Answer<Vec<Vec<u8>>>,
    /// Whether the name servers validate and are on loopback.
    is_validated: bool,
}

/// Our certificates, as served now and in future.
pub struct OwnCertificates<'a> {
    pub config: &'a Config,
    pub identities: &'a Identities,
    /// Certificates from a CA.
    pub views: &'a [CertificateStatus],
    /// Seconds since 1970.
    pub now: i64,
}

/// Problems with our records. Blocks.
pub fn notes(ours: &OwnCertificates<'_>) -> Vec<Note> {
    let &OwnCertificates { config, identities, now, .. } = ours;
    if config.listen.smtp.is_empty() {
        return Vec::new();
    }
    let names = names(config, identities);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string());
    let asked = runtime.and_then(|runtime| runtime.block_on(ask(config, &names)));
    let Ok((is_validated, answers)) = asked else { return Vec::new() };
    let of_name = |(host, answer): (&String, &Answer<_>)| {
        let all = identities.candidates(Some(host.as_str()));
        let served: Vec<ServedCertificate<'_>> = all.map(|identity| ours.served(identity, host)).collect();
        let published = TlsaRecords { host, answer, is_validated };
        judge(&published, &served, has_starttls(&config.listen.smtp), now)
    };
    names.iter().zip(&answers).flat_map(of_name).collect()
}

/// Whether senders find STARTTLS: at port 25, or at the ports that may receive its traffic if nobody listens there.
fn has_starttls(listeners: &[Listener]) -> bool {
    let mut public = listeners.iter().filter(|listener| listener.address.port() == PORT).peekable();
    match public.peek() {
        Some(_) => public.all(|listener| listener.tls.has_starttls()),
        None => listeners.iter().any(|listener| listener.tls.has_starttls()),
    }
}

/// Names that clients may use: that of the host, and those of the certificates.
fn names(config: &Config, identities: &Identities) -> Vec<String> {
    let of_certificates = identities.all().iter().flat_map(|identity| &identity.certificate.names);
    let is_host = |name: &&str| !name.starts_with("*.") && name.parse::<std::net::IpAddr>().is_err();
    let mut names = vec![config.hostname.to_ascii_lowercase()];
    for name in of_certificates.map(|name| &**name).filter(is_host) {
        if names.len() < NAMES_MAX && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether the name servers validate, and their answers for each name.
async fn ask(config: &Config, names: &[String]) -> Result<(bool, Vec<Answer<Vec<Vec<u8>>>>), String> {
    let resolver = Resolver::new(Settings::resolver_of(config, &[])).map_err(|error| error.to_string())?;
    let late = || format!("no answer within {} s", WAIT.as_secs());
    let is_signed = timeout(WAIT, resolver.validates_root()).await.map_err(|_| late())??;
    let mut asking = JoinSet::new();
    for (at, name) in names.iter().cloned().enumerate() {
        let resolver = resolver.clone();
        asking.spawn(async move {
            let answer = timeout(WAIT, resolver.tlsa_of(&name, PORT)).await;
            (at, answer.unwrap_or_else(|_| Answer::Failed(late())))
        });
    }
    let mut answers: Vec<_> = names.iter().map(|_| Answer::Failed(late())).collect();
    while let Some(answered) = asking.join_next().await {
        if let Ok((at, answer)) = answered {
            answers[at] = answer;
        }
    }
    Ok((is_signed && resolver.validates(), answers))
}

impl OwnCertificates<'_> {
    /// The certificate served for a host, with its renewal.
    fn served<'i>(&self, identity: &'i Identity, host: &str) -> ServedCertificate<'i> {
        let folder = self.config.acme_folder();
        let is_it = |view: &&CertificateStatus| match &identity.files {
            Some(files) => files.chain == folder.join(certificate_file(&view.names)),
            // The server's own certificate is served until one is obtained.
            None => view.names.iter().any(|name| name == host),
        };
        match self.views.iter().find(is_it) {
            Some(view) => {
                let in_ms = u64::try_from(view.due_s - self.now).unwrap_or_default().saturating_mul(1_000);
                let when = if in_ms == 0 { "now".to_owned() } else { format!("in {}", span(in_ms)) };
                ServedCertificate { identity, next: view.next_key.clone(), when }
            }
            // The self-signed certificate keeps its key. For other files that is assumed: the next key cannot be known
            // here.
            None => ServedCertificate {
                identity,
                next: NextKey::Kept,
                when: format!("before {}", identity.certificate.ends_on()),
            },
        }
    }
}

impl ServedCertificate<'_> {
    /// The TLSA record for its key.
    fn record(&self) -> String {
        format!("3 1 1 {}", hex(&self.identity.certificate.key_sha256))
    }

    fn is_proven_by(&self, record: &TlsaRecord, host: &str, now: i64) -> bool {
        self.identity.is_proven_by(record, host, now)
    }

    /// Whether a record will match the next certificate. A record for a CA is assumed to: the issuer does not change
    /// with the key.
    fn will_be_proven_by(&self, record: &TlsaRecord, host: &str, now: i64) -> bool {
        let is_now = self.is_proven_by(record, host, now);
        match &self.next {
            _ if record.usage == 2 => is_now,
            NextKey::Kept => is_now && record.selector == 1,
            NextKey::Made(key) => record.is_of_key(key),
            NextKey::New => false,
        }
    }

    /// Steps to take before the next certificate comes.
    fn advice(&self, records: &[TlsaRecord], published: &TlsaRecords<'_>, now: i64) -> String {
        let publish = |record: &str| format!("publish {} in addition to the others", published.line(record));
        match &self.next {
            NextKey::Made(key) => {
                format!(
                    "{} now: the next key already exists; remove the old records when it is in use",
                    publish(&TlsaRecord::of_key(key).to_string())
                )
            }
            NextKey::Kept => {
                format!("{}: the key stays the same when the certificate is renewed", publish(&self.record()))
            }
            NextKey::New => {
                let has_key =
                    |record: &TlsaRecord| record.selector == 1 && self.is_proven_by(record, published.host, now);
                let keep = "set `keep_key = true` in [acme] to keep the key when the certificate is renewed";
                if records.iter().any(has_key) {
                    keep.to_owned()
                } else {
                    format!("{keep}, and {}", publish(&self.record()))
                }
            }
        }
    }
}

impl TlsaRecords<'_> {
    /// A record in zone-file form.
    fn line(&self, record: &str) -> String {
        format!("`{}. IN TLSA {record}`", owner(PORT, self.host))
    }

    fn note(&self, severity: Severity, what: &str, next: impl Into<String>) -> Note {
        Note::new(severity, format!("TLSA records of {}: {what}", owner(PORT, self.host)), next)
    }
}

/// Problems with the records of one name.
fn judge(published: &TlsaRecords<'_>, all: &[ServedCertificate<'_>], has_starttls: bool, now: i64) -> Vec<Note> {
    let (security, data) = match published.answer {
        Answer::Absent => return Vec::new(),
        Answer::Failed(why) => {
            let what = format!("lookup failed ({why}): senders that use DANE will delay their mail");
            return vec![published.note(Severity::Warning, &what, "check the zone's name servers and its DNSSEC")];
        }
        Answer::Found(security, data) => (*security, data),
    };
    if published.is_validated && security == SecurityStatus::Insecure {
        let what = "not secured by DNSSEC, so senders ignore them";
        return vec![published.note(Severity::Warning, what, "sign the zone")];
    }
    // Without a validating name server it is unknown whether senders use the records at all: a warning only.
    let (severity, doubt) = match security {
        SecurityStatus::Secure => (Severity::Problem, ""),
        SecurityStatus::Insecure => {
            (Severity::Warning, " if the records are secured by DNSSEC, which the name servers in [dns] do not report")
        }
    };
    let waits = format!("senders that use DANE will delay their mail{doubt}");
    if !has_starttls {
        let what = format!("`smtp` in [listen] offers no STARTTLS: {waits}");
        return vec![published.note(severity, &what, "offer STARTTLS, or remove the records")];
    }
    let (records, unusable) = usable(data.iter().map(Vec::as_slice));
    let records: Vec<TlsaRecord> = records
        .into_iter()
        .map(|record| {
            let (usage, selector, matching) = record.numbers();
            TlsaRecord { usage, selector, matching, data: record.data }
        })
        .collect();
    let of_one = |served: &ServedCertificate<'_>| {
        let publish = |record: &str| format!("publish {}", published.line(record));
        if records.is_empty() {
            let what = format!("none of the {unusable} is usable for mail, so the server is not authenticated");
            return Some(published.note(Severity::Warning, &what, publish(&served.record())));
        }
        if !records.iter().any(|record| served.is_proven_by(record, published.host, now)) {
            let what = format!("none matches the certificate in use ({}): {waits}", served.record());
            return Some(published.note(severity, &what, publish(&served.record())));
        }
        if records.iter().any(|record| served.will_be_proven_by(record, published.host, now)) {
            return None;
        }
        let what = format!("none will match the next certificate, due {}: then {waits}", served.when);
        Some(published.note(Severity::Warning, &what, served.advice(&records, published, now)))
    };
    let mut notes: Vec<Note> = all.iter().filter_map(of_one).collect();
    notes.dedup();
    notes
}

#[cfg(test)]
mod tests {
    use stentor_config::{ListenerTls, Service};

    use super::*;

    const HOST: &str = "mx.example.org";
    const NOW: i64 = 1_800_000_000;

    fn data(record: &TlsaRecord) -> Vec<u8> {
        [&[record.usage, record.selector, record.matching][..], &record.data].concat()
    }

    fn found(security: SecurityStatus, records: &[&TlsaRecord]) -> Answer<Vec<Vec<u8>>> {
        Answer::Found(security, records.iter().map(|record| data(record)).collect())
    }

    /// A test scene: judges records against the server's self-signed certificate.
    struct Scene {
        identities: Identities,
        _folder: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Scene {
            let folder = tempfile::tempdir().unwrap();
            let identities = Identities::self_signed(folder.path(), HOST, NOW).unwrap();
            Scene { identities, _folder: folder }
        }

        fn hash(&self, selector: u8) -> TlsaRecord {
            let certificate = &self.identities.all()[0].certificate;
            let hash = if selector == 0 { certificate.sha256 } else { certificate.key_sha256 };
            TlsaRecord { usage: 3, selector, matching: 1, data: hash.into() }
        }

        fn said(&self, answer: &Answer<Vec<Vec<u8>>>, is_validated: bool, next: NextKey) -> Vec<Note> {
            let served = ServedCertificate { identity: &self.identities.all()[0], next, when: "in 9d".to_owned() };
            judge(&TlsaRecords { host: HOST, answer, is_validated }, &[served], true, NOW)
        }
    }

    #[test]
    fn records_are_compared_with_the_certificate_that_serves() {
        let scene = Scene::new();
        let (own, other) = (scene.hash(1), TlsaRecord::of_key(b"another"));
        let kept = |answer: &_, is_validated| scene.said(answer, is_validated, NextKey::Kept);
        assert!(kept(&Answer::Absent, true).is_empty());
        assert!(kept(&found(SecurityStatus::Secure, &[&other, &own]), true).is_empty());
        let problem = kept(&found(SecurityStatus::Secure, &[&other]), true).remove(0);
        assert_eq!(problem.severity, Severity::Problem);
        let what = format!("TLSA records of _25._tcp.{HOST}: none matches the certificate in use ({own}): senders");
        assert!(problem.what.starts_with(&what), "{}", problem.what);
        assert_eq!(problem.next, format!("publish `_25._tcp.{HOST}. IN TLSA {own}`"));
        // No name server here validates them.
        let doubted = kept(&found(SecurityStatus::Insecure, &[&other]), false).remove(0);
        assert!(
            doubted.severity == Severity::Warning && doubted.what.contains("if the records are secured"),
            "{doubted:?}"
        );
        let ignored = kept(&found(SecurityStatus::Insecure, &[&other]), true).remove(0);
        assert!(ignored.what.contains("not secured by DNSSEC, so senders ignore them"), "{ignored:?}");
        let failed = kept(&Answer::Failed("SERVFAIL".to_owned()), true).remove(0);
        assert!(failed.what.contains("lookup failed (SERVFAIL)"), "{failed:?}");
        let pkix = TlsaRecord { usage: 1, ..own.clone() };
        let unusable = kept(&found(SecurityStatus::Secure, &[&pkix]), true).remove(0);
        assert!(unusable.what.contains("none of the 1 is usable for mail"), "{unusable:?}");
    }

    #[test]
    fn records_that_the_next_certificate_breaks_are_named_before() {
        let scene = Scene::new();
        let (key, certificate) = (scene.hash(1), scene.hash(0));
        let said = |records: &[&TlsaRecord], next| scene.said(&found(SecurityStatus::Secure, records), true, next);
        let made = NextKey::Made(b"the next".to_vec());
        let next = TlsaRecord::of_key(b"the next");
        assert!(said(&[&key, &next], made.clone()).is_empty() && said(&[&key], NextKey::Kept).is_empty());
        for (records, next_key, advice) in [
            (vec![&key], made, format!("publish `_25._tcp.{HOST}. IN TLSA {next}` in addition to the others now:")),
            (
                vec![&key],
                NextKey::New,
                "set `keep_key = true` in [acme] to keep the key when the certificate is renewed".to_owned(),
            ),
            (vec![&certificate], NextKey::New, "set `keep_key = true` in [acme]".to_owned()),
            (
                vec![&certificate],
                NextKey::Kept,
                format!("publish `_25._tcp.{HOST}. IN TLSA {key}` in addition to the others: the key"),
            ),
        ] {
            let note = said(&records, next_key).remove(0);
            assert_eq!(note.severity, Severity::Warning);
            assert!(note.what.contains("none will match the next certificate, due in 9d: then"), "{note:?}");
            assert!(note.next.starts_with(&advice), "{note:?}");
        }
    }

    #[test]
    fn records_without_tls_keep_mail_back() {
        let scene = Scene::new();
        let answer = found(SecurityStatus::Secure, &[&scene.hash(1)]);
        let published = TlsaRecords { host: HOST, answer: &answer, is_validated: true };
        let note = judge(&published, &[], false, NOW).remove(0);
        assert!(note.severity == Severity::Problem && note.what.contains("offers no STARTTLS"), "{note:?}");
    }

    #[test]
    fn what_is_at_port_25_counts_if_anything_is() {
        let at = |address: &str, tls| Listener { tls, ..Service::Smtp.listener(address.parse().unwrap()) };
        let (clear, starttls) = (ListenerTls::None, ListenerTls::StartTls);
        for (listeners, expected) in [
            (&[at("192.0.2.1:25", starttls), at("10.0.0.1:2525", clear)][..], true),
            (&[at("192.0.2.1:25", starttls), at("[2001:db8::1]:25", clear)], false),
            (&[at("192.0.2.1:25", ListenerTls::Implicit), at("10.0.0.1:2525", starttls)], false),
            // Port 25 is forwarded to one of them.
            (&[at("10.0.0.1:2525", ListenerTls::Required), at("10.0.0.1:2526", clear)], true),
        ] {
            assert_eq!(has_starttls(listeners), expected, "{listeners:?}");
        }
    }
}
