//! Sends reports on TLS (RFC 8460) to domains that ask for them: once a day, by mail and by HTTPS.
//!
//! States: a day's counts ([`stentor_posture::tlsrpt::Counts`]) are closed at midnight (UTC); each domain's report is due at a moment of the
//! next four hours that follows from its name. Then the domain is asked where it wants it: nowhere, and the counts are dropped; or at up to five
//! places, each of which gets it. Where that fails it is tried again every hour, and given up at the end of the second day after the one that it is about: it has been tried for more than the 24 hours of 5.4 by then.
//!
//! Promise: a report has the same id however often it is made, so that one that is sent twice (a crash in between) is known for the same.
//! Mail for a report is not held to what the domain publishes (5.3, RFC 8689): a domain whose policy is broken is to hear of it. An HTTPS
//! place on this machine or in a private network gets nothing, as anybody may publish one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use stentor_config::{TlsReportsConfig, Url};
use stentor_engine::core::envelope::{NewEnvelope, To};
use stentor_engine::core::own::hand_in;
use stentor_engine::core::{Core, Settings};
use stentor_mail::address::Address;
use stentor_posture::Wish;
use stentor_posture::tlsrpt::{DAY_MS, MEDIA_TYPE, Place, Record, Report, Submitter, delay_ms, record_name};
use stentor_queue::ids::Ms;

use crate::outbound;

const PAUSE: Duration = Duration::from_secs(10);
const RETRY_MS: Ms = 3_600_000;
const POST_TIMEOUT: Duration = Duration::from_mins(1);
/// Reports that are made in one go; the next are a pause later.
const AT_ONCE: usize = 64;

/// A day's report for a domain.
type Key = (u64, String);

/// What is left of a report that could not be sent to all places.
struct Left {
    /// `None`: where it goes could not be looked up.
    places: Option<Vec<Place>>,
    next: Ms,
}

/// What came of a report.
enum Sent {
    /// It is where it was wanted, or nobody wanted it.
    Done,
    /// Not at these places yet; `None`: they could not be looked up.
    Later(Option<Vec<Place>>),
}

/// Sends what is due, as long as the server runs.
pub async fn send_when_due(core: Arc<Core>) {
    let mut left: HashMap<Key, Left> = HashMap::new();
    loop {
        let settings = core.settings();
        if let Some(config) = &settings.config.tls_reports {
            look(&core, &settings, config, &mut left).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn look(core: &Arc<Core>, settings: &Settings, config: &TlsReportsConfig, left: &mut HashMap<Key, Left>) {
    let now = core.clock.now();
    let due: Vec<Key> = {
        let mut counts = core.tls_counts.lock();
        let given_up = counts.give_up(now);
        if given_up > 0 {
            tracing::warn!(reports = given_up, "TLS reports could not be sent within two days; they are given up");
        }
        let is_due = |(day, domain): &(u64, &str)| (day + 1) * DAY_MS + delay_ms(domain) <= now;
        let key = |(day, domain): (u64, &str)| (day, domain.to_owned());
        let may = |key: &Key| left.get(key).is_none_or(|left| left.next <= now);
        counts.finished(now).filter(is_due).map(key).filter(may).take(AT_ONCE).collect()
    };
    left.retain(|(day, domain), _| core.tls_counts.lock().of(*day, domain).is_some());
    for key in due {
        let places = left.remove(&key).and_then(|left| left.places);
        match report(core, settings, config, &key, places).await {
            Sent::Done => core.tls_counts.lock().remove(key.0, &key.1),
            Sent::Later(places) => {
                left.insert(key, Left { places, next: now + RETRY_MS });
            }
        }
    }
}

/// Sends a report.
async fn report(
    core: &Arc<Core>,
    settings: &Settings,
    config: &TlsReportsConfig,
    (day, domain): &Key,
    places: Option<Vec<Place>>,
) -> Sent {
    let places = match places {
        Some(places) => places,
        None => match core.resolver.texts(&record_name(domain)).await {
            Err(why) => {
                tracing::debug!(domain, why, "where TLS reports go cannot be looked up");
                return Sent::Later(None);
            }
            Ok(texts) => match Record::of(texts.iter().map(Vec::as_slice)) {
                Record::Places(places) => places,
                Record::Absent => return Sent::Done,
                Record::Invalid(why) => {
                    tracing::info!(domain, %why, "the domain's record for TLS reports cannot be used; it gets none");
                    return Sent::Done;
                }
            },
        },
    };
    let (contact, from) = (config.contact.as_str(), config.from.as_str());
    let by = Submitter { hostname: &settings.config.hostname, organization: &config.organization, contact, from };
    let report = {
        let counts = core.tls_counts.lock();
        let Some(count) = counts.of(*day, domain) else { return Sent::Done };
        Report::new(domain, *day, count, by)
    };
    let mut failed = Vec::new();
    for place in places {
        let (to, sent) = match &place {
            Place::Mail(address) => (address.as_str(), by_mail(core, &report, address, by).await),
            Place::Https(url) => (url.as_str(), by_https(core, settings, &report, url).await),
        };
        match sent {
            Ok(()) => tracing::info!(domain, to, report = report.id, "TLS report sent"),
            Err(why) => {
                tracing::info!(domain, to, report = report.id, why, "the TLS report cannot be sent now");
                failed.push(place);
            }
        }
    }
    if failed.is_empty() { Sent::Done } else { Sent::Later(Some(failed)) }
}

async fn by_mail(core: &Arc<Core>, report: &Report, to: &str, by: Submitter<'_>) -> Result<(), String> {
    let address = Address::parse(to.as_bytes(), true).map_err(|error| error.to_string())?;
    let now = core.clock.now();
    let mut people = core.settings().people(&address, now).await.map_err(|refused| refused.to_string())?;
    let wish = Wish { require_tls: false, tls_required_no: true };
    for To { hop, .. } in &mut people {
        *hop = wish.hop(hop.as_deref()).map(Arc::from);
    }
    if people.is_empty() {
        return Err("nobody reads mail to this address".to_owned());
    }
    let (id, content) = (core.next_message_id(), core.next_content_id());
    let message_id = format!("<{id}.tls-report@{}>", by.hostname);
    let body = report.message(to, &message_id, now, by);
    let sender = by.from.to_owned();
    let envelope = NewEnvelope { sender, ..NewEnvelope::own(people, message_id, "TLS report") };
    hand_in(core, (id, content), body, envelope, Vec::new()).await.map_err(|refused| refused.to_string())
}

async fn by_https(core: &Arc<Core>, settings: &Settings, report: &Report, url: &str) -> Result<(), String> {
    let url = Url::parse(url)?;
    if !url.is_tls {
        return Err("it is no https: URL".to_owned());
    }
    let ips = match url.host.parse() {
        Ok(ip) => vec![ip],
        Err(_) => core.resolver.ips(&url.host).await?,
    };
    let may = |ip: &std::net::IpAddr| settings.config.dns.loopback_allowed || stentor_sts::is_public(*ip);
    let addresses: Vec<SocketAddr> = ips.into_iter().filter(may).map(|ip| (ip, url.port).into()).collect();
    if addresses.is_empty() {
        return Err("its addresses are of this machine or private".to_owned());
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("stentor/", env!("CARGO_PKG_VERSION"))));
    let body = Bytes::from(report.compressed());
    match outbound::post_at(&url, &addresses, headers, body, POST_TIMEOUT).await {
        Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
        Ok(answer) => Err(format!("it answers {}", answer.status)),
        Err(why) => Err(why),
    }
}
