//! `/metrics` for Prometheus: text format 0.0.4, gathered on request.
//!
//! Promise: the number of series is bounded: label values come from closed sets, except for sites, of which the
//! [`SITES_MAX`] with most pending recipients are named and the rest summed, and for codes of refusals (100). Gathering
//! takes slices of the hub's lock, as `stentor queue` does. [`families`] has their names and HELP texts.

mod families;
mod process;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stentor_admin::health::reputation::{blocked_now, complaint_rows};
use stentor_admin::row_query::RowQuery;
use stentor_control::{ComplaintView, Status};
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_core::live::health::{Name, refuses_mail};
use stentor_core::measures::{Histogram, TLS_SESSIONS};
use stentor_push::webhooks::WebhookView;
use stentor_queue::cause::Cause;
use stentor_records::health::Severity;

use self::text::Text;
use super::Http;

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
    reputation(&mut text, &http.core);
    webhooks(&mut text, &http.webhooks.views());
    process::write(&mut text, status.started);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text.end()).into_response()
}

fn read(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn mail(text: &mut Text, core: &Core, status: &Status) {
    let measures = &core.measures;
    text.family("stentor_build_info");
    text.sample(&[("version", &status.version)], 1.0);
    text.value("stentor_messages_accepted_total", core.live.totals().accepted as f64);
    let fates = &status.recipients;
    text.value("stentor_recipients_acknowledged_total", fates.acknowledged as f64);
    text.family("stentor_recipients_total");
    for (outcome, count) in [
        ("delivered", fates.delivered),
        ("bounced", fates.bounced),
        ("expired", fates.expired),
        ("removed", fates.removed),
        ("coalesced", fates.coalesced),
    ] {
        text.sample(&[("outcome", outcome)], count as f64);
    }
    text.family("stentor_attempt_recipients_total");
    for (result, count) in [("sent", &measures.sent), ("deferred", &measures.deferred), ("bounced", &measures.bounced)]
    {
        text.sample(&[("result", result)], read(count));
    }
    text.value("stentor_connect_failures_total", read(&measures.connect_failures));
    text.family("stentor_host_sessions_total");
    for (tls, count) in TLS_SESSIONS.iter().zip(&measures.tls_sessions) {
        text.sample(&[("tls", tls)], read(count));
    }
    text.value("stentor_host_sessions_resumed_total", read(&measures.tls_resumed));
    text.value("stentor_host_tls_failures_total", read(&measures.tls_failures));
    text.family("stentor_refused_total");
    for ((code, dsn), count) in measures.refusals() {
        let dsn = dsn.map_or_else(String::new, |dsn| dsn.to_string());
        text.sample(&[("code", &code.to_string()), ("dsn", &dsn)], count as f64);
    }
    histogram(text, "stentor_attempt_duration_seconds", &measures.attempt, MICROSECONDS);
    histogram(text, "stentor_commit_wait_seconds", &measures.commit_wait, MICROSECONDS);
}

async fn queue(text: &mut Text, http: &Http) {
    let queue = http.operator.queue(&RowQuery::all(SITES_MAX)).await;
    text.value("stentor_queue_messages", queue.messages as f64);
    text.value("stentor_queue_held_messages", queue.held as f64);
    text.value("stentor_queue_content_bytes", queue.content_bytes as f64);
    let (load, bulk) = http.core.with(|hub, _| (hub.sched.load(), hub.store.pending_bulk()));
    let (messages, recipients) =
        http.core.with(|hub, _| (hub.store.quarantined_len(), hub.store.totals().fates.quarantined));
    text.value("stentor_quarantine_messages", messages as f64);
    // Not a counter: released recipients get another outcome.
    text.value("stentor_quarantine_recipients", recipients as f64);
    text.family("stentor_queue_recipients");
    text.sample(&[("class", "bulk")], bulk as f64);
    text.sample(&[("class", "ordinary")], queue.recipients.saturating_sub(bulk) as f64);
    let oldest = queue.oldest.map_or(0.0, |at| queue.now.saturating_sub(at) as f64 * MILLISECONDS);
    text.value("stentor_queue_oldest_age_seconds", oldest);
    text.family("stentor_queue_recipients_by_cause");
    for cause in Cause::ALL {
        let row = queue.causes.iter().find(|row| row.cause == cause.name());
        text.sample(&[("cause", cause.name())], row.map_or(0.0, |row| row.recipients as f64));
    }
    text.value(
        "stentor_queue_counted_age_seconds",
        queue.counted.map_or(-1.0, |at| queue.now.saturating_sub(at) as f64 * MILLISECONDS),
    );
    text.value("stentor_sites_waiting", (queue.sites_total - queue.domains_total) as f64);
    text.family("stentor_site_pending_recipients");
    let named: u64 = queue.sites.iter().map(|site| site.waiting).sum();
    for site in &queue.sites {
        text.sample(&[("site", &site.site)], site.waiting as f64);
    }
    text.sample(&[("site", OTHERS)], queue.recipients.saturating_sub(named) as f64);
    text.family("stentor_lane_connections");
    text.sample(&[("lane", "fast")], load.connections_fast as f64);
    text.sample(&[("lane", "slow")], load.connections_slow as f64);
    text.value("stentor_sites_in_line", load.wanting as f64);
    text.value("stentor_clocks", load.clocks as f64);
    text.value("stentor_lookups_waiting", load.look_ups_waiting as f64);
}

fn storage(text: &mut Text, core: &Core, status: &Status) {
    let measures = &core.measures;
    histogram(text, "stentor_sync_duration_seconds", &measures.sync, MICROSECONDS);
    histogram(text, "stentor_batch_messages", &measures.batch_messages, 1.0);
    text.value("stentor_journal_segments", status.journal_segments as f64);
    text.value("stentor_journal_content_bytes", status.content_bytes as f64);
    for (name, value) in [
        ("stentor_journal_syncs_total", status.journal_syncs),
        ("stentor_journal_batches_total", status.journal_batches),
        ("stentor_journal_written_bytes_total", status.journal_bytes),
        ("stentor_journal_moved_bytes_total", status.journal_bytes_moved),
        ("stentor_journal_abandoned_segments_total", status.journal_abandoned),
        ("stentor_journal_unprepared_segments_total", status.journal_unprepared),
        ("stentor_dns_queries_total", status.dns_queries),
        ("stentor_dns_failures_total", status.dns_failures),
        ("stentor_log_lines_lost_total", status.log_lines_lost),
        ("stentor_history_records_lost_total", status.history_lost),
    ] {
        text.value(name, value as f64);
    }
    let config = core.settings();
    let config = &config.config;
    text.value("stentor_disk_free_bytes", status.disk_free_bytes as f64);
    text.value("stentor_disk_reserve_bytes", config.journal.reserve_bytes as f64);
    text.value("stentor_streamed_bytes", status.streamed_bytes as f64);
    text.value("stentor_history_bytes", status.history_bytes as f64);
    text.value("stentor_addresses", status.addresses as f64);
    text.value("stentor_addresses_max", f64::from(config.journal.addresses_max));
    text.value("stentor_suspended", status.suspended_total as f64);
    text.value("stentor_standing_bounces", status.standing_bounces.len() as f64);
    text.value("stentor_queue_only", status.queue_only.len() as f64);
    text.value("stentor_standing_bounced_recipients_total", status.standing_bounced as f64);
    text.value("stentor_suppressions", status.suppressions as f64);
    text.value("stentor_suppressed_recipients_total", status.suppressed as f64);
    let is_ready = core.troubles().is_empty() && !status.stopping && !refuses_mail(&status.health);
    text.value("stentor_ready", f64::from(u8::from(is_ready)));
    for (family, severity) in
        [("stentor_health_problem", Severity::Problem), ("stentor_health_warning", Severity::Warning)]
    {
        text.family(family);
        for name in Name::ALL.iter().filter(|name| name.severity() == severity) {
            let there = status.health.iter().filter(|condition| condition.name == name.as_str()).count();
            text.sample(&[("name", name.as_str())], there as f64);
        }
    }
}

fn connections(text: &mut Text, core: &Core, status: &Status) {
    let settings = core.settings();
    let config = &settings.config;
    text.value("stentor_smtp_sessions", status.connections_in as f64);
    text.value("stentor_smtp_sessions_max", config.listen.sessions_max() as f64);
    text.value("stentor_delivery_connections", status.connections_out as f64);
    text.value("stentor_delivery_connections_max", f64::from(config.delivery.connections_max));
}

/// Certificates, labelled by their first names.
fn certificates(text: &mut Text, core: &Core) {
    if let Some(server) = core.security().tls() {
        text.family("stentor_certificate_end_timestamp_seconds");
        for identity in server.store().current().all().iter().take(CERTIFICATES_MAX) {
            let certificate = &identity.certificate;
            let name = certificate.names.first().unwrap_or(&certificate.subject);
            text.sample(&[("name", name)], certificate.not_after as f64);
        }
    }
    text.value("stentor_certificates_failing", read(&core.measures.certificates_failing));
}

/// Failures of clients, which anyone can cause.
fn security(text: &mut Text, core: &Core) {
    text.family("stentor_client_tls_failures_total");
    for (cause, count) in core.handshakes.counts() {
        text.sample(&[("cause", cause)], count as f64);
    }
    text.family("stentor_logins_refused_total");
    if let Some(auth) = core.security().auth() {
        for (reason, count) in auth.refusals() {
            text.sample(&[("reason", reason)], count as f64);
        }
    }
}

fn tokens(text: &mut Text, core: &Core) {
    let (issued, failed) = core.tokens.counts();
    text.family("stentor_token_requests_total");
    for (result, count) in [("issued", issued), ("failed", failed)] {
        text.sample(&[("result", result)], count as f64);
    }
}

fn call_ahead(text: &mut Text, core: &Core) {
    let counters = &core.call_ahead.counters;
    text.family("stentor_call_ahead_answers_total");
    for (answer, count) in
        [("exists", &counters.exists), ("refused", &counters.refused), ("undecided", &counters.undecided)]
    {
        text.sample(&[("answer", answer)], read(count));
    }
    text.value("stentor_call_ahead_known_total", read(&counters.known));
    let (exists, others) = core.call_ahead.entries();
    text.family("stentor_call_ahead_entries");
    text.sample(&[("answer", "exists")], exists as f64);
    text.sample(&[("answer", "other")], others as f64);
}

fn milters(text: &mut Text, core: &Core) {
    text.family("stentor_milter_results_total");
    for milter in &core.settings().milters {
        for (result, count) in milter.counters.read() {
            text.sample(&[("milter", &milter.settings.name), ("result", result)], count as f64);
        }
    }
}

fn dns_lists(text: &mut Text, core: &Core) {
    text.family("stentor_dns_list_questions_total");
    for (list, counts) in core.resolver().list_counts() {
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
    text.family("stentor_limit_hits_total");
    for limit in Limit::ALL {
        text.sample(&[("limit", limit.name())], core.limits.hits(*limit) as f64);
    }
}

/// Block lists, our reputation and complaints.
fn reputation(text: &mut Text, core: &Core) {
    type Field = fn(&ComplaintView) -> u64;
    let now = core.clock.now();
    text.family("stentor_block_list_replies_total");
    for (list, replies) in core.reputation_alarms.replies() {
        text.sample(&[("list", &list)], replies as f64);
    }
    text.family("stentor_blocked_replies");
    for alarm in blocked_now(core, now) {
        text.sample(&[("list", &alarm.list), ("source", &alarm.source)], alarm.replies as f64);
    }
    let rows = complaint_rows(core, now);
    let families: [(&str, Field); 2] =
        [("stentor_complaints", |row| row.complaints), ("stentor_complaint_deliveries", |row| row.delivered)];
    for (name, field) in families {
        text.family(name);
        for row in &rows {
            let labels = [("subject", &*row.subject), ("name", &row.name), ("window", &row.window)];
            text.sample(&labels, field(row) as f64);
        }
    }
}

fn webhooks(text: &mut Text, views: &[WebhookView]) {
    type Field = fn(&WebhookView) -> u64;
    let families: [(&str, Field); 5] = [
        ("stentor_webhook_enabled", |view| view.enabled.into()),
        ("stentor_webhook_events_total", |view| view.events),
        ("stentor_webhook_failures_total", |view| view.failures),
        ("stentor_webhook_lag_records", |view| view.lag_records),
        ("stentor_webhook_lost_total", |view| view.lost),
    ];
    for (name, field) in families {
        text.family(name);
        for view in views {
            text.sample(&[("webhook", &view.name)], field(view) as f64);
        }
    }
}

fn histogram<const N: usize>(text: &mut Text, name: &'static str, from: &Histogram<N>, unit: f64) {
    let (buckets, count, sum) = from.read();
    text.histogram(name, &buckets, count, sum, unit);
}
