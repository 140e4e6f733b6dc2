//! Sends daily reports to the domains that request them: TLS reports (RFC 8460) and DMARC reports (RFC 9990), by mail,
//! and those about TLS also by HTTPS.
//!
//! States: a day's counts ([`stentor_domain_reports::DailyCounts`]) are closed at midnight (UTC); each domain's report
//! becomes due at a time in the next four hours that is derived from its name. Then the domain's record is looked up:
//! it names no destination, and the counts are dropped; or up to five, each of which gets the report. A failed attempt
//! is repeated every hour, and given up two days after the day that it covers: more than the 24 hours of RFC 8460 5.4.
//! A destination that answers 4xx to a POST does not want this report. The finished destinations are stored with the
//! counts, so they survive a restart.
//!
//! Promise: the id of a report does not change when it is generated again, so receivers can recognise duplicates (after
//! a crash). An HTTPS destination on this machine or in a private network gets nothing, as anyone may publish one. Slow
//! web servers delay neither mail nor, except for their turn, each other: [`POSTS_MAX`] are contacted at a time, one
//! per domain ([`agenda`]). [`ReportKind`] has the differences between the kinds.

mod agenda;
mod dmarc;
mod tls;

use std::future::Future;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;
use stentor_config::{Config, ReportSenderConfig};
use stentor_core::envelope::{EnvelopeRcpt, NewEnvelope};
use stentor_core::own::{MessageIds, hand_in};
use stentor_core::{Core, Settings};
use stentor_domain_reports::{
    DAY_MS, DailyCounts, DayCount, DomainReport, ReportDestination, ReportForm, Submitter, delay_ms,
};
use stentor_http_client::Url;
use stentor_mail::address::Address;
use stentor_tls_policy::Wish;
use tokio::task::JoinSet;

use self::agenda::{Agenda, MailedReports, ReportKey};
pub use self::dmarc::DmarcKind;
pub use self::tls::TlsKind;
use crate::client::{PushClient, PushRequest};

const PAUSE: Duration = Duration::from_secs(10);
const POST_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum web servers contacted at a time.
const POSTS_MAX: usize = 8;
/// Maximum domains looked up in one round, the rest after a pause; and maximum look-ups at a time.
const LOOK_UPS_MAX: usize = 64;
const LOOK_UPS_AT_ONCE: usize = 8;

/// What differs between TLS and DMARC reports.
pub trait ReportKind: Send + Sync + 'static {
    type Count: DayCount;
    const FORM: ReportForm;
    /// The TLS that a report by mail requires.
    const WISH: Wish;

    /// The sender; `None`: no reports are sent.
    fn sender(config: &Config) -> Option<&ReportSenderConfig>;

    fn counts(core: &Core) -> &Mutex<DailyCounts<Self::Count>>;

    /// The same counts give the same report.
    fn report(domain: &str, day: u64, count: &Self::Count, by: Submitter<'_>) -> DomainReport;

    /// The destinations that the domain requests; `None`: look-up failed, try again later.
    fn destinations(core: &Core, report: &DomainReport) -> impl Future<Output = Option<Vec<ReportDestination>>> + Send;
}

/// Why a destination did not get the report.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReportFailure {
    /// Try again.
    Temporary(String),
    /// The destination gets no report for this day.
    Permanent(String),
}

/// The result of a POST.
struct PostOutcome {
    key: ReportKey,
    destination: ReportDestination,
    result: Result<(), ReportFailure>,
}

/// Sends the reports of one kind.
struct ReportSender<K> {
    kind: PhantomData<K>,
    client: Arc<PushClient>,
    agenda: Agenda,
    mailed: MailedReports,
    posts: JoinSet<PostOutcome>,
}

/// Sends due reports while the server runs.
pub async fn send_when_due<K: ReportKind>(core: Arc<Core>, client: Arc<PushClient>) {
    let kind = PhantomData::<K>;
    let mut sender = ReportSender {
        kind,
        client,
        agenda: Agenda::default(),
        mailed: MailedReports::default(),
        posts: JoinSet::new(),
    };
    loop {
        let settings = core.settings();
        if let Some(config) = K::sender(&settings.config) {
            sender.send_due(&core, &settings, config).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl<K: ReportKind> ReportSender<K> {
    async fn send_due(&mut self, core: &Arc<Core>, settings: &Settings, config: &ReportSenderConfig) {
        while let Some(joined) = self.posts.try_join_next() {
            // A task that panicked is tried again later.
            if let Ok(PostOutcome { key, destination, result }) = joined {
                self.agenda.post_ended(&key);
                self.record_result(core, &key, &destination, result);
            }
        }
        let by = submitter(settings, config);
        self.find_destinations(core, by).await;
        for (key, address) in self.agenda.mail(core.clock.now()) {
            let Some(report) = generate::<K>(core, &key, by) else { continue };
            let sent = self.by_mail(core, settings, &report, &address, by).await;
            self.record_result(core, &key, &ReportDestination::Mail(address), sent);
        }
        let free = POSTS_MAX.saturating_sub(self.posts.len());
        for (key, url) in self.agenda.begin_posts(core.clock.now(), free) {
            let Some(report) = generate::<K>(core, &key, by) else { continue };
            let loopback_allowed = settings.config.dns.loopback_allowed;
            let (core, client) = (core.clone(), self.client.clone());
            self.posts.spawn(async move {
                let result = match resolve_url(&core, loopback_allowed, &url).await {
                    Ok((url, addresses)) => by_https(&client, &report, &url, &addresses).await,
                    Err(why) => Err(ReportFailure::Temporary(why)),
                };
                PostOutcome { key, destination: ReportDestination::Https(url), result }
            });
        }
    }

    /// Looks up the destinations of due reports, new ones first.
    async fn find_destinations(&mut self, core: &Arc<Core>, by: Submitter<'_>) {
        let now = core.clock.now();
        let mut due: Vec<ReportKey> = {
            let mut counts = K::counts(core).lock();
            let given_up = counts.give_up(now);
            if given_up > 0 {
                tracing::warn!(reports = given_up, "{}s not sent within two days; dropped", K::FORM.name());
            }
            self.agenda.retain(|key| counts.of(key.day, &key.domain).is_some());
            let is_due = |(day, domain): &(u64, &str)| (day + 1) * DAY_MS + delay_ms(domain) <= now;
            let key = |(day, domain): (u64, &str)| ReportKey { day, domain: domain.to_owned() };
            let is_new = |key: &ReportKey| !self.agenda.is_known(key);
            counts.finished(now).filter(is_due).map(key).filter(is_new).take(LOOK_UPS_MAX).collect()
        };
        due.extend(self.agenda.to_look_up(now).take(LOOK_UPS_MAX - due.len()).cloned());
        let look_up = |key: ReportKey| async move {
            let report = generate::<K>(core, &key, by)?;
            let destinations = K::destinations(core, &report).await;
            Some((key, destinations))
        };
        let mut found = stream::iter(due).map(look_up).buffer_unordered(LOOK_UPS_AT_ONCE);
        while let Some(found) = found.next().await {
            let Some((key, destinations)) = found else { continue };
            let Some(mut destinations) = destinations else {
                self.agenda.not_looked_up(key, core.clock.now());
                continue;
            };
            let mut counts = K::counts(core).lock();
            let Some(count) = counts.of(key.day, &key.domain) else { continue };
            destinations.retain(|destination| !count.done().contains(&destination.uri()));
            if destinations.is_empty() {
                counts.remove(key.day, &key.domain);
            } else {
                self.agenda.looked_up(key, destinations);
            }
        }
    }

    /// Records the result of an attempt.
    fn record_result(
        &mut self,
        core: &Core,
        key: &ReportKey,
        destination: &ReportDestination,
        sent: Result<(), ReportFailure>,
    ) {
        let (domain, to, what) = (&key.domain, destination.uri(), K::FORM.name());
        match sent {
            Ok(()) => tracing::info!(domain, to, "{what} sent"),
            Err(ReportFailure::Temporary(why)) => {
                tracing::info!(domain, to, why, "the {what} could not be sent; will retry");
                return self.agenda.failed(key, destination, core.clock.now());
            }
            Err(ReportFailure::Permanent(why)) => {
                tracing::info!(domain, to, why, "{what} not sent to this destination");
            }
        }
        self.agenda.done(key, destination);
        let mut counts = K::counts(core).lock();
        if self.agenda.is_done(key) {
            counts.remove(key.day, domain);
        } else {
            counts.set_done(key.day, domain, &to);
        }
    }

    async fn by_mail(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        report: &DomainReport,
        to: &str,
        by: Submitter<'_>,
    ) -> Result<(), ReportFailure> {
        let address =
            Address::parse(to.as_bytes(), true).map_err(|error| ReportFailure::Permanent(error.to_string()))?;
        let now = core.clock.now();
        let is_local = settings.policy.is_local_domain(address.domain());
        if let Some(why) = self.mailed.refusal(&address, &report.domain, is_local, now) {
            return Err(ReportFailure::Permanent(why.to_owned()));
        }
        let readers = settings
            .readers_of(&address, now)
            .await
            .map_err(|refused| ReportFailure::Temporary(refused.to_string()))?;
        let mut people: Vec<EnvelopeRcpt> = readers.people.into_iter().map(|reader| reader.to).collect();
        for to in &mut people {
            to.route.wish = K::WISH;
        }
        if people.is_empty() {
            return Err(ReportFailure::Temporary("no mailbox receives mail for this address".to_owned()));
        }
        let (id, content) = (core.next_message_id(), core.next_content_id());
        let message_id = format!("<{id}.{}@{}>", K::FORM.word(), by.hostname);
        let body = report.message(to, &message_id, now, by);
        let sender = by.from.to_owned();
        let envelope = NewEnvelope { sender, ..NewEnvelope::own(people, message_id, K::FORM.name()) };
        let taken = hand_in(core, MessageIds { message: id, content }, body, envelope, Vec::new()).await;
        taken.map_err(|refused| ReportFailure::Temporary(refused.to_string()))?;
        self.mailed.count(&address);
        Ok(())
    }
}

fn submitter<'a>(settings: &'a Settings, config: &'a ReportSenderConfig) -> Submitter<'a> {
    let (contact, from) = (config.contact.as_str(), config.from.as_str());
    Submitter { hostname: &settings.config.hostname, organization: &config.organization, contact, from }
}

/// Generates the report; `None` if it is given up.
fn generate<K: ReportKind>(core: &Core, key: &ReportKey, by: Submitter<'_>) -> Option<DomainReport> {
    let count = K::counts(core).lock().shared(key.day, &key.domain)?;
    Some(K::report(&key.domain, key.day, &count, by))
}

async fn by_https(
    client: &PushClient,
    report: &DomainReport,
    url: &Url,
    addresses: &[IpAddr],
) -> Result<(), ReportFailure> {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(report.form.media_type()));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
    let body = Bytes::from(report.compressed());
    let request = PushRequest { url, addresses: Some(addresses), headers, body, timeout: POST_TIMEOUT };
    let answer = client.send(request).await;
    result_of_status(answer.map_err(ReportFailure::Temporary)?.status)
}

/// The URL, and its addresses that may be contacted.
async fn resolve_url(core: &Core, loopback_allowed: bool, url: &str) -> Result<(Url, Vec<IpAddr>), String> {
    let url = Url::parse(url)?;
    if !url.is_tls {
        return Err("it is not an https: URL".to_owned());
    }
    let ips = match url.host.parse() {
        Ok(ip) => vec![ip],
        Err(_) => core.resolver().ips(&url.host).await?,
    };
    let may = |ip: &IpAddr| loopback_allowed || stentor_http_client::is_public(*ip);
    let addresses: Vec<IpAddr> = ips.into_iter().filter(may).collect();
    if addresses.is_empty() {
        return Err("it resolves only to local or private addresses".to_owned());
    }
    Ok((url, addresses))
}

/// A refusal is permanent unless the status says that the fault is the server's.
fn result_of_status(status: u16) -> Result<(), ReportFailure> {
    match status {
        200..300 => Ok(()),
        400..500 => Err(ReportFailure::Permanent(format!("it answered {status}"))),
        _ => Err(ReportFailure::Temporary(format!("it answered {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_refuses_a_report_is_not_asked_again() {
        assert_eq!((result_of_status(200), result_of_status(204)), (Ok(()), Ok(())));
        for status in [400, 404, 410, 499] {
            assert!(matches!(result_of_status(status), Err(ReportFailure::Permanent(_))), "{status}");
        }
        for status in [301, 500, 503] {
            assert!(matches!(result_of_status(status), Err(ReportFailure::Temporary(_))), "{status}");
        }
    }
}
