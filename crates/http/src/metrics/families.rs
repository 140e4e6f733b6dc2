//! The families of metrics: names, labels and HELP texts. A test makes the table of docs/operate/metrics.md of them;
//! `STENTOR_UPDATE=1 cargo test -p stentor-http metrics` rewrites it.

pub(super) struct Family {
    pub name: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// Stands for a name that is not in the table; tests fail for it.
const UNKNOWN: Family = gauge("", &[], "");

pub(super) fn family(name: &str) -> &'static Family {
    let family = FAMILIES.iter().find(|family| family.name == name);
    debug_assert!(family.is_some(), "{name} is not in the table");
    family.unwrap_or(&UNKNOWN)
}

type Labels = &'static [&'static str];

const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: "counter", labels, help }
}

const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: "gauge", labels, help }
}

const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: "histogram", labels, help }
}

/// All families, in the order of the page.
const FAMILIES: &[Family] = &[
    gauge("stentor_build_info", &["version"], "Version of the running server; always 1."),
    counter("stentor_messages_accepted_total", &[], "Messages accepted since the server started."),
    counter(
        "stentor_recipients_acknowledged_total",
        &[],
        "Recipients accepted for delivery since the journal was created.",
    ),
    counter("stentor_recipients_total", &["outcome"], "Recipients by final outcome since the journal was created."),
    counter(
        "stentor_attempt_recipients_total",
        &["result"],
        "Recipients of attempts since the server started, by result; `deferred` includes those that a failed session or lookup deferred.",
    ),
    counter("stentor_connect_failures_total", &[], "Sessions with hosts that could not be opened."),
    counter(
        "stentor_host_sessions_total",
        &["tls"],
        "Sessions opened with hosts, by their TLS: `proven`, `unproven`, `clear`, `none` (on purpose).",
    ),
    counter("stentor_host_sessions_resumed_total", &[], "Resumed TLS sessions with hosts."),
    counter(
        "stentor_host_tls_failures_total",
        &[],
        "Sessions with hosts in which TLS failed, or was required and not available.",
    ),
    counter(
        "stentor_client_tls_failures_total",
        &["cause"],
        "Failed TLS handshakes of clients, by cause (docs/operate/tls.md#why-did-a-handshake-fail).",
    ),
    counter(
        "stentor_logins_refused_total",
        &["reason"],
        "Refused logins of clients since the source of users was configured, by reason: `wrong`, `locked`, `identity`, `protocol`, `mechanism`, `slow` (had to wait after wrong ones), `crowded`, `unavailable`.",
    ),
    counter("stentor_refused_total", &["code", "dsn"], "Refusals sent to clients, by reply code and enhanced code."),
    histogram(
        "stentor_attempt_duration_seconds",
        &[],
        "Duration of a transaction with a host, from its assignment to the last reply.",
    ),
    histogram(
        "stentor_commit_wait_seconds",
        &[],
        "Time that a client waits for its 250, from the end of data to the commit.",
    ),
    gauge("stentor_queue_messages", &[], "Queued messages."),
    gauge("stentor_queue_held_messages", &[], "Messages held by operators and rules."),
    gauge("stentor_queue_content_bytes", &[], "Octets of queued messages."),
    gauge("stentor_quarantine_messages", &[], "Messages in the quarantine."),
    gauge("stentor_quarantine_recipients", &[], "Recipients in the quarantine."),
    gauge("stentor_queue_recipients", &["class"], "Pending recipients, by class."),
    gauge(
        "stentor_queue_recipients_by_cause",
        &["cause"],
        "Pending recipients, by cause (docs/operate/waiting.md); all 0 during the first count of a large queue.",
    ),
    gauge(
        "stentor_queue_counted_age_seconds",
        &[],
        "Age of the count of causes and sites; -1 during the first count of a large queue.",
    ),
    gauge("stentor_queue_oldest_age_seconds", &[], "Age of the oldest queued message; 0 if there is none."),
    gauge("stentor_sites_waiting", &[], "Sites with pending recipients."),
    gauge(
        "stentor_site_pending_recipients",
        &["site"],
        "Pending recipients of the sites with the most; the rest is under `(others)`.",
    ),
    gauge("stentor_lane_connections", &["lane"], "Connections to hosts, by the scheduler's lane."),
    gauge("stentor_sites_in_line", &[], "Sites waiting for a free connection."),
    gauge("stentor_clocks", &[], "Retry clocks that hold back recipients, mailboxes or senders."),
    gauge("stentor_lookups_waiting", &[], "Domains waiting for other lookups to finish."),
    histogram("stentor_sync_duration_seconds", &[], "Duration of a journal commit, including its sync."),
    histogram("stentor_batch_messages", &[], "Messages per commit; commits without messages are not counted."),
    gauge("stentor_journal_segments", &[], "Segments of the journal."),
    gauge("stentor_journal_content_bytes", &[], "Octets of live content in the journal."),
    counter("stentor_journal_syncs_total", &[], "Syncs of the journal."),
    counter("stentor_journal_batches_total", &[], "Batches of the journal."),
    counter("stentor_journal_written_bytes_total", &[], "Octets written to the journal."),
    counter("stentor_journal_moved_bytes_total", &[], "Octets of content copied by cleaning."),
    counter("stentor_journal_abandoned_segments_total", &[], "Segments abandoned after a failed write or sync."),
    counter("stentor_journal_unprepared_segments_total", &[], "Segments that a commit had to create itself."),
    counter("stentor_dns_queries_total", &[], "Queries sent to name servers."),
    counter("stentor_dns_failures_total", &[], "Failed lookups."),
    counter("stentor_log_lines_lost_total", &[], "Lost log lines."),
    counter("stentor_history_records_lost_total", &[], "Records that could not be written to the history."),
    gauge("stentor_history_bytes", &[], "Octets of the history's files."),
    gauge("stentor_disk_free_bytes", &[], "Free space on the journal's file system."),
    gauge("stentor_disk_reserve_bytes", &[], "Free space below which new mail gets 452."),
    gauge("stentor_streamed_bytes", &[], "Octets of large bodies whose message is not accepted yet."),
    gauge("stentor_addresses", &[], "Addresses in the address book."),
    gauge("stentor_addresses_max", &[], "Maximum number of addresses in the address book."),
    gauge("stentor_suspended", &[], "Suspended lists, senders, sites and subscribers."),
    gauge(
        "stentor_standing_bounces",
        &[],
        "Standing bounces in force: new mail in their scope is bounced instead of tried.",
    ),
    gauge("stentor_queue_only", &[], "Queue-only scopes, set by operators or in the configuration."),
    counter("stentor_standing_bounced_recipients_total", &[], "Recipients bounced by standing bounces."),
    gauge("stentor_suppressions", &[], "Suppressions of addresses and domains in the registry."),
    counter(
        "stentor_suppressed_recipients_total",
        &[],
        "Recipients removed when their copy was to be sent, since they are suppressed.",
    ),
    gauge("stentor_ready", &[], "1 if mail is accepted."),
    gauge("stentor_health_problem", &["name"], "Current problems of the server, by name (docs/operate/health.md)."),
    gauge("stentor_health_warning", &["name"], "Current warnings of the server, by name."),
    gauge("stentor_smtp_sessions", &[], "Open sessions of clients."),
    gauge("stentor_smtp_sessions_max", &[], "Maximum number of client sessions."),
    gauge("stentor_delivery_connections", &[], "Open connections to hosts."),
    gauge("stentor_delivery_connections_max", &[], "Maximum number of connections to hosts in the fast lane."),
    gauge(
        "stentor_certificate_end_timestamp_seconds",
        &["name"],
        "Expiry of a certificate of this server, in seconds since the Unix epoch, by its first name; at most 100.",
    ),
    gauge("stentor_certificates_failing", &[], "Certificates whose last request to the CA failed."),
    counter(
        "stentor_token_requests_total",
        &["result"],
        "Requests for access tokens for smart hosts (`oauth`), by result: `issued`, `failed`.",
    ),
    counter("stentor_call_ahead_answers_total", &["answer"], "Call-ahead answers about recipients of relay domains."),
    counter("stentor_call_ahead_known_total", &[], "Recipients of relay domains answered from the call-ahead cache."),
    gauge("stentor_call_ahead_entries", &["answer"], "Cached answers about recipients of relay domains."),
    counter(
        "stentor_milter_results_total",
        &["milter", "result"],
        "Results of milters for recipients and messages, and their failures, since their configuration last changed.",
    ),
    counter(
        "stentor_dns_list_questions_total",
        &["list", "result"],
        "Lookups of untrusted clients in DNS lists, by list and result; the resolver's cache answers some.",
    ),
    counter("stentor_limit_hits_total", &["limit"], "Limit hits, by limit (docs/operate/metrics.md#limits)."),
    gauge("process_start_time_seconds", &[], "Start time, in seconds since the Unix epoch."),
    counter("process_cpu_seconds_total", &[], "Processor time in seconds, user and system."),
    gauge("process_virtual_memory_bytes", &[], "Virtual memory size."),
    gauge("process_resident_memory_bytes", &[], "Resident memory size."),
    gauge("process_open_fds", &[], "Open file descriptors."),
    gauge("process_max_fds", &[], "Maximum number of open file descriptors."),
    counter("stentor_block_list_replies_total", &["list"], "Host replies that name a block list."),
    gauge(
        "stentor_blocked_replies",
        &["list", "source"],
        "Replies about our reputation since an alarm began, by block list (or provider) and source address; absent without an alarm.",
    ),
    gauge(
        "stentor_complaints",
        &["subject", "name", "window"],
        "Proven complaints in a window (`24h`, `30d`) about a `list`, `sender` domain or `provider`; the 20 with most of each kind.",
    ),
    gauge(
        "stentor_complaint_deliveries",
        &["subject", "name", "window"],
        "Delivered copies behind `stentor_complaints`, for the rate.",
    ),
    gauge("stentor_webhook_enabled", &["webhook"], "1 if events are sent to the endpoint."),
    counter("stentor_webhook_events_total", &["webhook"], "Events accepted by the endpoint."),
    counter("stentor_webhook_failures_total", &["webhook"], "Requests that the endpoint did not accept."),
    gauge("stentor_webhook_lag_records", &["webhook"], "History records not yet sent to the endpoint."),
    counter(
        "stentor_webhook_lost_total",
        &["webhook"],
        "Events deleted from the history before they were sent, or dropped after refusals.",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::generated::{GeneratedFile, check};

    const HEAD: &str = "| name | type | labels | meaning |\n|---|---|---|---|\n";

    /// A HELP text for the page: a path to a page becomes a link.
    fn meaning(help: &str) -> String {
        let Some((before, rest)) = help.split_once("docs/operate/") else { return help.to_owned() };
        let end = rest.find([')', ',', ';', ' ']).unwrap_or(rest.len());
        let (page, after) = rest.split_at(end);
        let (name, anchor) = page.split_at(page.find('#').unwrap_or(page.len()));
        let (name, target) = if name == "metrics.md" { ("below", anchor) } else { (name, page) };
        format!("{before}[{name}]({target}){after}")
    }

    fn row(family: &Family) -> String {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |\n", family.name, family.kind, labels.join(", "), meaning(family.help))
    }

    #[test]
    fn each_family_is_written() {
        let source = [include_str!("mod.rs"), include_str!("process.rs")].concat();
        let quoted = source.split('"').skip(1).step_by(2);
        let used: BTreeSet<&str> =
            quoted.filter(|name| name.starts_with("stentor_") || name.starts_with("process_")).collect();
        assert_eq!(used, FAMILIES.iter().map(|family| family.name).collect());
    }

    #[test]
    fn the_page_has_the_help_texts() {
        check(&GeneratedFile { path: "../../docs/operate/metrics.md", filter: "metrics" }, |page| {
            let (before, rest) = page.split_once(HEAD).expect("the table of metrics");
            let (_, after) = rest.split_once("\n\n").expect("text after the table");
            let rows: String = FAMILIES.iter().map(row).collect();
            format!("{before}{HEAD}{rows}\n{after}")
        });
    }
}
