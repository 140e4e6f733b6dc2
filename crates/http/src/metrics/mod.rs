//! `/metrics` for Prometheus: text format 0.0.4, gathered on request.
//!
//! Promise: the number of series is bounded: label values come from closed sets, except for sites, of which the
//! [`SITES_MAX`] with most pending recipients are named and the rest summed, and for codes of refusals (100). Gathering
//! takes slices of the hub's lock, as `stentor queue` does. Every name is in docs/operate/metrics.md; a test compares.

mod process;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stentor_admin::row_query::RowQuery;
use stentor_control::Status;
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_core::live::health::{Name, refuses_mail};
use stentor_core::measures::{Histogram, TLS_SESSIONS};
use stentor_queue::cause::Cause;
use stentor_records::health::Severity;

use self::text::Text;
use super::Http;
use stentor_core::block_lists::BlockListStats;
use stentor_push::webhooks::WebhookView;

/// Maximum sites with their own series.
pub const SITES_MAX: usize = 20;
/// Maximum certificates with their own series.
const CERTIFICATES_MAX: usize = 100;
/// Label of the sum of all other sites.
pub const OTHERS: &str = "(others)";
const MICROSECONDS: f64 = 1e-6;
const MILLISECONDS: f64 = 1e-3;

pub fn router() -> Router<Http> {
    Router::new().route("/metrics", get(metrics))
}

async fn metrics(State(http): State<Http>) -> Response {
    let mut text = Text::default();
    let status = http.operator.status().await;
    mail(&mut text, &http.core, &status);
    queue(&mut text, &http).await;
    storage(&mut text, &http.core, &status);
    connections(&mut text, &http.core, &status);
    certificates(&mut text, &http.core);
    security(&mut text, &http.core);
    tokens(&mut text, &http.core);
    call_ahead(&mut text, &http.core);
    milters(&mut text, &http.core);
    dns_lists(&mut text, &http.core);
    limits(&mut text, &http.core);
    block_lists(&mut text, &http.core.block_lists.all());
    webhooks(&mut text, &http.webhooks.views());
    process::write(&mut text, status.started);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.end()).into_response()
}

fn read(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn mail(text: &mut Text, core: &Core, status: &Status) {
    let measures = &core.measures;
    text.family("stentor_build_info", "gauge", "Version of the running server; always 1.");
    text.sample(&[("version", &status.version)], 1.0);
    text.counter(
        "stentor_messages_accepted_total",
        "Messages accepted since the server started.",
        core.live.totals().accepted as f64,
    );
    let fates = &status.recipients;
    text.counter(
        "stentor_recipients_acknowledged_total",
        "Recipients accepted for delivery since the journal was created.",
        fates.acknowledged as f64,
    );
    text.family("stentor_recipients_total", "counter", "Outcomes of recipients since the journal was created.");
    for (outcome, count) in [
        ("delivered", fates.delivered),
        ("bounced", fates.bounced),
        ("expired", fates.expired),
        ("removed", fates.removed),
        ("coalesced", fates.coalesced),
    ] {
        text.sample(&[("outcome", outcome)], count as f64);
    }
    text.family(
        "stentor_attempt_recipients_total",
        "counter",
        "Recipients of attempts, failed sessions and failed lookups since the server started, by result.",
    );
    for (result, count) in [("sent", &measures.sent), ("deferred", &measures.deferred), ("bounced", &measures.bounced)]
    {
        text.sample(&[("result", result)], read(count));
    }
    text.counter("stentor_connect_failures_total", "Failed connections to hosts.", read(&measures.connect_failures));
    text.family("stentor_host_sessions_total", "counter", "Sessions with hosts, by TLS state.");
    for (tls, count) in TLS_SESSIONS.iter().zip(&measures.tls_sessions) {
        text.sample(&[("tls", tls)], read(count));
    }
    text.counter(
        "stentor_host_sessions_resumed_total",
        "Resumed TLS sessions with hosts.",
        read(&measures.tls_resumed),
    );
    text.counter(
        "stentor_host_tls_failures_total",
        "Failed TLS handshakes and failed STARTTLS with hosts.",
        read(&measures.tls_failures),
    );
    text.family("stentor_refused_total", "counter", "Refusals sent to clients, by reply code and enhanced code.");
    for ((code, dsn), count) in measures.refusals() {
        let dsn = dsn.map_or_else(String::new, |dsn| dsn.to_string());
        text.sample(&[("code", &code.to_string()), ("dsn", &dsn)], count as f64);
    }
    histogram(
        text,
        "stentor_attempt_duration_seconds",
        "Duration of a transaction with a host, from its assignment to the last reply.",
        &measures.attempt,
        MICROSECONDS,
    );
    histogram(
        text,
        "stentor_commit_wait_seconds",
        "Time a client waits for its 250, from the end of data to the commit.",
        &measures.commit_wait,
        MICROSECONDS,
    );
}

async fn queue(text: &mut Text, http: &Http) {
    let queue = http.operator.queue(&RowQuery::all(SITES_MAX)).await;
    text.gauge("stentor_queue_messages", "Messages queued.", queue.messages as f64);
    text.gauge("stentor_queue_held_messages", "Messages held by an operator.", queue.held as f64);
    text.gauge("stentor_queue_content_bytes", "Octets of queued messages.", queue.content_bytes as f64);
    let (load, bulk) = http.core.with(|hub, _| (hub.sched.load(), hub.store.pending_bulk()));
    let (messages, recipients) =
        http.core.with(|hub, _| (hub.store.quarantined_len(), hub.store.totals().fates.quarantined));
    text.gauge("stentor_quarantine_messages", "Messages in the quarantine.", messages as f64);
    // Not a counter: released recipients get another outcome.
    text.gauge("stentor_quarantine_recipients", "Recipients in the quarantine.", recipients as f64);
    text.family("stentor_queue_recipients", "gauge", "Recipients pending, by class.");
    text.sample(&[("class", "bulk")], bulk as f64);
    text.sample(&[("class", "ordinary")], queue.recipients.saturating_sub(bulk) as f64);
    let oldest = queue.oldest.map_or(0.0, |at| queue.now.saturating_sub(at) as f64 * MILLISECONDS);
    text.gauge("stentor_queue_oldest_age_seconds", "Age of the oldest queued message; 0 if there is none.", oldest);
    text.family(
        "stentor_queue_recipients_by_cause",
        "gauge",
        "Recipients pending, by cause of the wait; all 0 during the first count of a large queue.",
    );
    for cause in Cause::ALL {
        let row = queue.causes.iter().find(|row| row.cause == cause.name());
        text.sample(&[("cause", cause.name())], row.map_or(0.0, |row| row.recipients as f64));
    }
    text.gauge(
        "stentor_queue_counted_age_seconds",
        "Age of the count of causes and sites; -1 during the first count of a large queue.",
        queue.counted.map_or(-1.0, |at| queue.now.saturating_sub(at) as f64 * MILLISECONDS),
    );
    text.gauge(
        "stentor_sites_waiting",
        "Sites with recipients pending.",
        (queue.sites_total - queue.domains_total) as f64,
    );
    text.family(
        "stentor_site_pending_recipients",
        "gauge",
        "Recipients pending at the largest sites; the rest under (others).",
    );
    let named: u64 = queue.sites.iter().map(|site| site.waiting).sum();
    for site in &queue.sites {
        text.sample(&[("site", &site.site)], site.waiting as f64);
    }
    text.sample(&[("site", OTHERS)], queue.recipients.saturating_sub(named) as f64);
    text.family("stentor_lane_connections", "gauge", "Connections to hosts, by the scheduler's lane.");
    text.sample(&[("lane", "fast")], load.connections_fast as f64);
    text.sample(&[("lane", "slow")], load.connections_slow as f64);
    text.gauge("stentor_sites_in_line", "Sites waiting for a free connection.", load.wanting as f64);
    text.gauge("stentor_clocks", "Retry clocks of recipients, mailboxes and senders.", load.clocks as f64);
    text.gauge("stentor_lookups_waiting", "Domains waiting for a free lookup.", load.look_ups_waiting as f64);
}

fn storage(text: &mut Text, core: &Core, status: &Status) {
    let measures = &core.measures;
    histogram(
        text,
        "stentor_sync_duration_seconds",
        "Duration of a journal commit, with its sync.",
        &measures.sync,
        MICROSECONDS,
    );
    histogram(
        text,
        "stentor_batch_messages",
        "Messages per commit, without empty commits.",
        &measures.batch_messages,
        1.0,
    );
    text.gauge("stentor_journal_segments", "Segments of the journal.", status.journal_segments as f64);
    text.gauge("stentor_journal_content_bytes", "Octets of live content in the journal.", status.content_bytes as f64);
    for (name, help, value) in [
        ("stentor_journal_syncs_total", "Syncs of the journal.", status.journal_syncs),
        ("stentor_journal_batches_total", "Batches of the journal.", status.journal_batches),
        ("stentor_journal_written_bytes_total", "Octets written to the journal.", status.journal_bytes),
        ("stentor_journal_moved_bytes_total", "Octets of content copied by cleaning.", status.journal_bytes_moved),
        (
            "stentor_journal_abandoned_segments_total",
            "Segments abandoned after a failed write or sync.",
            status.journal_abandoned,
        ),
        ("stentor_journal_unprepared_segments_total", "Segments created during a commit.", status.journal_unprepared),
        ("stentor_dns_queries_total", "Queries sent to name servers.", status.dns_queries),
        ("stentor_dns_failures_total", "Failed lookups.", status.dns_failures),
        ("stentor_log_lines_lost_total", "Log lines lost.", status.log_lines_lost),
        ("stentor_history_records_lost_total", "Records lost to the history.", status.history_lost),
    ] {
        text.counter(name, help, value as f64);
    }
    let config = core.settings();
    let config = &config.config;
    text.gauge("stentor_disk_free_bytes", "Free space on the journal's file system.", status.disk_free_bytes as f64);
    text.gauge(
        "stentor_disk_reserve_bytes",
        "Free space below which new mail gets 452.",
        config.journal.reserve_bytes as f64,
    );
    text.gauge("stentor_streamed_bytes", "Octets of large bodies being received.", status.streamed_bytes as f64);
    text.gauge("stentor_history_bytes", "Octets of the history's files.", status.history_bytes as f64);
    text.gauge("stentor_addresses", "Addresses in the address book.", status.addresses as f64);
    text.gauge(
        "stentor_addresses_max",
        "Maximum number of addresses in the address book.",
        f64::from(config.journal.addresses_max),
    );
    text.gauge("stentor_suspended", "Suspended lists, senders, sites and subscribers.", status.suspended_total as f64);
    text.gauge(
        "stentor_standing_bounces",
        "Standing bounces: new mail in their scope is bounced instead of tried.",
        status.standing_bounces.len() as f64,
    );
    text.gauge(
        "stentor_queue_only",
        "Queue-only scopes, set by operators and by the configuration.",
        status.queue_only.len() as f64,
    );
    text.counter(
        "stentor_standing_bounced_recipients_total",
        "Recipients bounced by standing bounces.",
        status.standing_bounced as f64,
    );
    let is_ready = core.troubles().is_empty() && !status.stopping && !refuses_mail(&status.health);
    text.gauge("stentor_ready", "1 if mail is accepted.", f64::from(u8::from(is_ready)));
    for (family, severity, help) in [
        ("stentor_health_problem", Severity::Problem, "Current problems, by name (docs/operate/health.md)."),
        ("stentor_health_warning", Severity::Warning, "Current warnings, by name."),
    ] {
        text.family(family, "gauge", help);
        for name in Name::ALL.iter().filter(|name| name.severity() == severity) {
            let there = status.health.iter().filter(|condition| condition.name == name.as_str()).count();
            text.sample(&[("name", name.as_str())], there as f64);
        }
    }
}

fn connections(text: &mut Text, core: &Core, status: &Status) {
    let settings = core.settings();
    let config = &settings.config;
    text.gauge("stentor_smtp_sessions", "Sessions of clients.", status.connections_in as f64);
    text.gauge("stentor_smtp_sessions_max", "Maximum number of client sessions.", config.listen.sessions_max() as f64);
    text.gauge("stentor_delivery_connections", "Connections to hosts.", status.connections_out as f64);
    text.gauge(
        "stentor_delivery_connections_max",
        "Maximum number of connections to hosts in the fast lane.",
        f64::from(config.delivery.connections_max),
    );
}

/// Certificates, labelled by their first names.
fn certificates(text: &mut Text, core: &Core) {
    if let Some(server) = core.security().tls() {
        text.family("stentor_certificate_end_timestamp_seconds", "gauge", "Expiry time of a server certificate.");
        for identity in server.store().current().all().iter().take(CERTIFICATES_MAX) {
            let certificate = &identity.certificate;
            let name = certificate.names.first().unwrap_or(&certificate.subject);
            text.sample(&[("name", name)], certificate.not_after as f64);
        }
    }
    text.gauge(
        "stentor_certificates_failing",
        "Certificates whose last request to the CA failed.",
        read(&core.measures.certificates_failing),
    );
}

/// Failures of clients, which anyone can cause.
fn security(text: &mut Text, core: &Core) {
    text.family("stentor_client_tls_failures_total", "counter", "Failed TLS handshakes of clients, by cause.");
    for (cause, count) in core.handshakes.counts() {
        text.sample(&[("cause", cause)], count as f64);
    }
    text.family("stentor_logins_refused_total", "counter", "Refused client logins, by reason.");
    if let Some(auth) = core.security().auth() {
        for (reason, count) in auth.refusals() {
            text.sample(&[("reason", reason)], count as f64);
        }
    }
}

fn tokens(text: &mut Text, core: &Core) {
    let (issued, failed) = core.tokens.counts();
    text.family("stentor_token_requests_total", "counter", "Requests for access tokens for smart hosts, by result.");
    for (result, count) in [("issued", issued), ("failed", failed)] {
        text.sample(&[("result", result)], count as f64);
    }
}

fn call_ahead(text: &mut Text, core: &Core) {
    let counters = &core.call_ahead.counters;
    text.family("stentor_call_ahead_answers_total", "counter", "Call-ahead answers about recipients of relay domains.");
    for (answer, count) in
        [("exists", &counters.exists), ("refused", &counters.refused), ("undecided", &counters.undecided)]
    {
        text.sample(&[("answer", answer)], read(count));
    }
    text.counter(
        "stentor_call_ahead_known_total",
        "Recipients of relay domains answered from the call-ahead cache.",
        read(&counters.known),
    );
    let (exists, others) = core.call_ahead.entries();
    text.family("stentor_call_ahead_entries", "gauge", "Call-ahead answers in the cache.");
    text.sample(&[("answer", "exists")], exists as f64);
    text.sample(&[("answer", "other")], others as f64);
}

fn milters(text: &mut Text, core: &Core) {
    text.family(
        "stentor_milter_results_total",
        "counter",
        "Milter verdicts and failures since the current configuration was loaded.",
    );
    for milter in core.settings().filters.milters() {
        for (result, count) in milter.counters.read() {
            text.sample(&[("milter", &milter.settings.name), ("result", result)], count as f64);
        }
    }
}

fn dns_lists(text: &mut Text, core: &Core) {
    text.family(
        "stentor_dns_list_questions_total",
        "counter",
        "DNS list queries by rules about untrusted clients, by list and result; includes answers from the resolver's \
         cache.",
    );
    for (list, counts) in core.resolver.list_counts() {
        for (result, count) in [
            ("listed", counts.found),
            ("not_listed", counts.not_found),
            ("unanswered", counts.unanswered),
            ("skipped", counts.skipped),
        ] {
            text.sample(&[("list", &list), ("result", result)], count as f64);
        }
    }
}

fn limits(text: &mut Text, core: &Core) {
    text.family(
        "stentor_limit_hits_total",
        "counter",
        "Times a limit was hit; docs/operate/metrics.md names the setting that raises each.",
    );
    for limit in Limit::ALL {
        text.sample(&[("limit", limit.name())], core.limits.hits(*limit) as f64);
    }
}

fn block_lists(text: &mut Text, all: &[(String, BlockListStats)]) {
    text.family("stentor_block_list_replies_total", "counter", "Host replies that name a block list.");
    for (list, named) in all {
        text.sample(&[("list", list)], named.replies as f64);
    }
}

fn webhooks(text: &mut Text, views: &[WebhookView]) {
    type Field = fn(&WebhookView) -> u64;
    let families: [(&str, &str, &str, Field); 5] = [
        ("stentor_webhook_enabled", "gauge", "1 if events are sent to the endpoint.", |view| view.enabled.into()),
        ("stentor_webhook_events_total", "counter", "Events accepted by the endpoint.", |view| view.events),
        ("stentor_webhook_failures_total", "counter", "Requests not accepted by the endpoint.", |view| view.failures),
        ("stentor_webhook_lag_records", "gauge", "History records not yet sent to the endpoint.", |view| {
            view.lag_records
        }),
        ("stentor_webhook_lost_total", "counter", "Events removed from the history before they were sent.", |view| {
            view.lost
        }),
    ];
    for (name, kind, help, field) in families {
        text.family(name, kind, help);
        for view in views {
            text.sample(&[("webhook", &view.name)], field(view) as f64);
        }
    }
}

fn histogram<const N: usize>(text: &mut Text, name: &'static str, help: &str, from: &Histogram<N>, unit: f64) {
    let (buckets, count, sum) = from.read();
    text.histogram(name, help, &buckets, count, sum, unit);
}
