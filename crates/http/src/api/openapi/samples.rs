//! One complete answer of each kind: the examples of the `OpenAPI` document. They are values of the real types, so they
//! always match the server's answers.

use std::any::type_name;

use serde::Serialize;
use serde_json::{Value, json};
use stentor_control::CauseRow;
use stentor_control::ComplaintView;
use stentor_control::address_view::{AddressView, HostsHistoryView, MailboxHistoryView};
use stentor_control::observe::{HostRow, Hosts, Mailqq, MailqqRow, PostReports};
use stentor_control::posts::{FailedRcptView, PostReport, WaitingAt};
use stentor_control::reply::ExportedRecipient;
use stentor_control::site_view::{CertificateView, HostView, PathView, SiteView, TlsView, WeakTlsView};
use stentor_control::users_view::{Share, UserRow, UsersView};
use stentor_control::{
    ActionResult, Ages, AgesRow, AttachmentView, DepartureView, EnvelopeView, ErrorCode, Fates, ListOverview,
    ListTable, MemberTable, MemberView, MessageView, PersonView, PostCounts, PostListView, PostRcptView, PostView,
    QuarantineList, QuarantinedMessage, QuarantinedView, QueueOnlyView, QueueSummary, RecipientState, RecipientView,
    SiteRow, StandingBounceView, Status, StuckReport, StuckRow, SuppressionList, SuppressionName, SuppressionView,
};
use stentor_domain_reports::dmarc::{DmarcSummary, DomainSums, MessageSums, SourceSums};
use stentor_push::webhooks::WebhookView;
use stentor_queue::cause::Cause;
use stentor_queue::queue_only::Scope;
use stentor_records::health::Condition;

use crate::api::answers::{Done, ErrorBody, InjectedMessage, InjectionResult, RefusedRcptView, WebhookList};
use crate::api::suppressions::{ImportResult, LineError};

/// The time used in examples.
const NOW: u64 = 1_790_000_000_000;
const ID: &str = "01A0D5C7B2F4";

/// A named type: a value with every field filled in, and a default with only the mandatory fields.
pub(in crate::api) struct Sample {
    pub name: &'static str,
    /// Name of the Rust type.
    pub kind: &'static str,
    pub full: Value,
    pub least: Value,
}

fn sample<T: Serialize + Default>(name: &'static str, full: &T) -> Sample {
    of(name, full, &T::default())
}

fn of<T: Serialize>(name: &'static str, full: &T, least: &T) -> Sample {
    let kind = type_name::<T>().rsplit("::").next().unwrap();
    Sample { name, kind, full: json!(full), least: json!(least) }
}

fn dmarc() -> DmarcSummary {
    let domain = "example.org".to_owned();
    let failed = MessageSums { messages: 205, rejected: 205, ..MessageSums::default() };
    let passed =
        MessageSums { messages: 18_312, passed: 18_102, dkim_passed: 18_090, spf_passed: 11_004, ..failed.clone() };
    DmarcSummary {
        domains: vec![DomainSums {
            domain: domain.clone(),
            reports: 42,
            reporters: 6,
            begin_s: NOW / 1_000 - 7 * 86_400,
            end_s: NOW / 1_000,
            policy: "reject".to_owned(),
            sums: passed,
        }],
        domains_total: 1,
        failed_sources: vec![SourceSums {
            domain,
            source: [203, 0, 113, 7].into(),
            sums: failed,
            dkim_domain: String::new(),
            envelope_from: "bulk.example.net".to_owned(),
        }],
        failed_sources_total: 1,
        ..DmarcSummary::default()
    }
}

pub(in crate::api) fn all() -> Vec<Sample> {
    let refusal = ErrorBody::new(ErrorCode::NotFound, "no message 01A0D5C7B2F4 is in the queue", Vec::new());
    let refused = vec![RefusedRcptView {
        address: "gone@example.org".to_owned(),
        reply: "550 5.1.1 No such address here".to_owned(),
    }];
    let messages = vec![InjectedMessage { id: ID.to_owned(), recipients: 3 }];
    let injected = InjectionResult { text: format!("Ok: queued as {ID}"), messages, refused };
    vec![
        sample("Status", &status()),
        sample("Queue", &queue()),
        sample("Ages", &ages()),
        sample("Stuck", &stuck()),
        sample("Message", &message()),
        sample("Address", &address()),
        sample("Site", &site()),
        sample(
            "Mailqq",
            &Mailqq {
                rows: vec![MailqqRow { list: Some("news".to_owned()), causes: causes(), ..MailqqRow::default() }],
                ..Mailqq::default()
            },
        ),
        sample("Hosts", &hosts()),
        sample("Posts", &posts()),
        sample("Post", &post()),
        sample("Dmarc", &dmarc()),
        sample("Envelope", &envelope()),
        sample(
            "Quarantine",
            &QuarantineList {
                rows: vec![quarantined()],
                next: Some("01A0D5C7B2F4".to_owned()),
                ..QuarantineList::default()
            },
        ),
        sample(
            "Quarantined",
            &QuarantinedMessage {
                message: quarantined(),
                fields: vec![("Subject".to_owned(), "You have won".to_owned())],
                attachments: vec![AttachmentView { name: "prize.zip".to_owned(), ..AttachmentView::default() }],
                limit: Some("too much text".to_owned()),
                ..QuarantinedMessage::default()
            },
        ),
        sample("Suppressions", &suppressions()),
        sample("Lists", &ListTable { rows: vec![list()] }),
        sample("Members", &members()),
        sample("Person", &person()),
        sample("Imported", &imported()),
        sample("Users", &users()),
        sample("Counted", &counted()),
        sample("Done", &Done { text: "list news is suspended".to_owned(), count: Some(1) }),
        sample("Injected", &injected),
        of(
            "Webhooks",
            &WebhookList { webhooks: vec![webhook()] },
            &WebhookList { webhooks: vec![WebhookView::default()] },
        ),
        of("Error", &refusal, &refusal),
    ]
}

fn suppressions() -> SuppressionList {
    let next = Some(SuppressionName::of("@example.net", "list:news"));
    SuppressionList { now: NOW, entries: 1, remarks: Vec::new(), rows: vec![suppression()], next }
}

fn list() -> ListOverview {
    ListOverview {
        name: "news".to_owned(),
        address: "news@lists.example.org".to_owned(),
        owner: "ann@example.org".to_owned(),
        post: "members".to_owned(),
        members: Some(1),
        members_in: "registry".to_owned(),
        is_made: true,
        keys: [("verp".to_owned(), "\"tagged\"".to_owned())].into(),
    }
}

fn member() -> MemberView {
    MemberView {
        list: "news".to_owned(),
        address: "bob@example.net".to_owned(),
        name: "Bob".to_owned(),
        delivery: "mail".to_owned(),
        joined: NOW,
        source: "import news.txt".to_owned(),
    }
}

fn members() -> MemberTable {
    MemberTable { now: NOW, members: 1, rows: vec![member()], next: Some("bob@example.net".to_owned()) }
}

fn person() -> PersonView {
    PersonView {
        now: NOW,
        address: "bob@example.net".to_owned(),
        memberships: vec![member()],
        files: vec!["staff".to_owned()],
        departures: vec![DepartureView {
            list: "talk".to_owned(),
            joined: NOW,
            joined_source: "import talk.txt".to_owned(),
            left: NOW,
            reason: "unsubscribe".to_owned(),
            source: "one-click".to_owned(),
        }],
        suppressions: vec![suppression()],
    }
}

fn imported() -> ImportResult {
    ImportResult {
        entries: 2,
        changed: 1,
        ended: 1,
        errors_total: 1,
        errors: vec![LineError { line: 3, text: "\"nobody\": address has no domain".to_owned() }],
        remarks: vec!["there is no list nws; did you mean news?".to_owned()],
    }
}

fn suppression() -> SuppressionView {
    SuppressionView {
        subject: "@example.net".to_owned(),
        scope: "list:news".to_owned(),
        reason: "bounce".to_owned(),
        source: "uid=0(root) pid=4711".to_owned(),
        note: "closed".to_owned(),
        since: NOW - 86_400_000,
        expires: Some(NOW + 86_400_000),
    }
}

fn users() -> UsersView {
    let share = |used, max| Share { used, max };
    let row = UserRow {
        user: "ann@example.org".to_owned(),
        locked: true,
        messages_hour: share(12, Some(100)),
        messages_day: share(40, Some(1_000)),
        recipients_hour: share(30, Some(500)),
        recipients_day: share(70, Some(5_000)),
    };
    UsersView { source: "users".to_owned(), users_total: 1, rows: vec![row], now: NOW, ..UsersView::default() }
}

fn quarantined() -> QuarantinedView {
    QuarantinedView {
        list: Some("news".to_owned()),
        recipients: vec!["ann@example.org".to_owned()],
        ..QuarantinedView::default()
    }
}

fn fates() -> Fates {
    let (delivered, bounced, pending) = (990, 3, 7);
    Fates { acknowledged: 1_000, delivered, bounced, pending, ..Fates::default() }
}

fn status() -> Status {
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: "mx.example.org".to_owned(),
        pid: 4711,
        now: NOW,
        started: NOW - 86_400_000,
        messages: 2,
        held: 2,
        addresses: 1_000,
        recipients: fates(),
        connections_in: 1,
        connections_out: 4,
        disk_free_bytes: 50_000_000_000,
        suspended: vec!["list:news".to_owned()],
        suspended_total: 1,
        suspended_until: [("list:news".to_owned(), NOW + 7_200_000)].into(),
        suspended_reasons: [("list:news".to_owned(), "its owner is away".to_owned())].into(),
        standing_bounces: vec![StandingBounceView {
            sender: Some("@example.net".to_owned()),
            until: NOW + 7_200_000,
            reason: "account closed".to_owned(),
            ..StandingBounceView::default()
        }],
        standing_bounced: 12,
        suppressions: 1_204,
        suppressed: 31,
        queue_only: vec![QueueOnlyView {
            section: Some("weekend".to_owned()),
            until: Some(NOW + 7_200_000),
            reason: "maintenance".to_owned(),
            ..QueueOnlyView::new(&Scope::Domain("example.net".to_owned()), None, "")
        }],
        action: None,
        queue_run_since: Some(NOW - 2_000),
        webhooks_troubled: vec!["archive: disabled".to_owned()],
        health: vec![Condition {
            name: "milter".to_owned(),
            subject: "rspamd".to_owned(),
            since: NOW - 12_000,
            refuses_mail: true,
            what: "milter rspamd (inet:127.0.0.1:11332) fails: no connection: Connection refused; mail is deferred"
                .to_owned(),
            next: "start it or correct its `address`; it is asked again by itself".to_owned(),
            ..Condition::default()
        }],
        ..Status::default()
    }
}

fn site_row() -> SiteRow {
    SiteRow {
        is_unresolved: true,
        site: "mx.example.net".to_owned(),
        waiting: 7,
        messages: 1,
        connections: 1,
        next_try: Some(NOW + 60_000),
        last_reply: "connection refused".to_owned(),
        oldest: Some(NOW - 60_000),
        causes: causes(),
        action: String::new(),
    }
}

fn causes() -> Vec<CauseRow> {
    vec![CauseRow {
        cause: Cause::Refused.name().to_owned(),
        words: Cause::Refused.words().to_owned(),
        since: Some(NOW - 8_000),
        recipients: 7,
        next_try: Some(NOW + 60_000),
        last_reply: "connection refused".to_owned(),
    }]
}

fn queue() -> QueueSummary {
    QueueSummary {
        hostname: "mx.example.org".to_owned(),
        now: NOW,
        messages: 1,
        recipients: 7,
        content_bytes: 2_048,
        oldest: Some(NOW - 60_000),
        oldest_id: Some(ID.to_owned()),
        sites_total: 1,
        causes: causes(),
        counted: Some(NOW),
        sites: vec![site_row()],
        ..QueueSummary::default()
    }
}

fn recipient() -> RecipientView {
    RecipientView {
        address: "ann@example.net".to_owned(),
        site: "mx.example.net".to_owned(),
        state: RecipientState::Deferred,
        cause: Cause::Refused.name().to_owned(),
        words: Cause::Refused.words().to_owned(),
        since: Some(NOW - 8_000),
        next_try: Some(NOW + 60_000),
        last_reply: "connection refused".to_owned(),
    }
}

fn ages() -> Ages {
    let row = AgesRow { site: "mx.example.org".to_owned(), recipients: 1, ..AgesRow::default() };
    Ages {
        hostname: "mx.example.org".to_owned(),
        now: NOW,
        part: "of list news".to_owned(),
        recipients: 1,
        counted: Some(NOW),
        sites_total: 1,
        minutes: vec![5],
        rows: vec![row],
        ..Ages::default()
    }
}

fn stuck() -> StuckReport {
    let row = StuckRow {
        state: recipient(),
        messages: 3,
        oldest: Some(NOW - 60_000),
        oldest_id: Some(ID.to_owned()),
        action: String::new(),
    };
    let (recipients, sites) = (vec![row], vec![site_row()]);
    StuckReport {
        hostname: "mx.example.org".to_owned(),
        now: NOW,
        sites_total: 1,
        recipients,
        sites,
        ..StuckReport::default()
    }
}

fn message() -> MessageView {
    MessageView {
        id: ID.to_owned(),
        now: NOW,
        sender: "news-bounces@lists.example.org".to_owned(),
        given_sender: None,
        subject: Some("News of November".to_owned()),
        list: Some("news".to_owned()),
        class: "bulk".to_owned(),
        size: 2_048,
        accepted: NOW - 60_000,
        expires: Some(NOW + 431_940_000),
        held: false,
        held_by: String::new(),
        held_since: None,
        origin: "192.0.2.1".to_owned(),
        message_id: "<1@example.org>".to_owned(),
        fates: fates(),
        recipients: vec![recipient()],
    }
}

fn address() -> AddressView {
    AddressView {
        address: "ann@example.net".to_owned(),
        now: NOW,
        here: Vec::new(),
        id: 17,
        domain: "example.net".to_owned(),
        site: Some("mx.example.net".to_owned()),
        lists: vec!["news".to_owned()],
        suspended: vec!["news".to_owned()],
        suspended_reasons: [("news".to_owned(), "asked for it".to_owned())].into(),
        suppressions: vec![suppression()],
        messages_total: 1,
        messages: vec![ID.to_owned()],
        pending: Some(recipient()),
        mailbox: MailboxHistoryView {
            last_seen: Some(NOW - 86_400_000),
            last: "delivered".to_owned(),
            deliveries: 12,
            xdelay_ms: Some(180),
            refusals: 0,
            refused_since: Some(NOW),
        },
        hosts: HostsHistoryView {
            last_success: Some(NOW - 86_400_000),
            last_failure: Some(NOW - 60_000),
            answered: 40,
            failed: 2,
            xdelay_ms: Some(200),
            p99_ms: Some(900),
            connections: 4,
        },
    }
}

fn weak_tls() -> WeakTlsView {
    let session = "clear:timeout".to_owned();
    WeakTlsView { session, at: NOW - 86_400_000, host: "mx.example.net".to_owned() }
}

fn site() -> SiteView {
    let host = HostView {
        host: "mx.example.net".to_owned(),
        address: "192.0.2.25:25".to_owned(),
        failures: 1,
        next_try: Some(NOW + 60_000),
        last_reply: "connection refused".to_owned(),
        attempt: "connecting for 8s".to_owned(),
        since: Some(NOW - 8_000),
        tls: Some(TlsView {
            session: "TLSv1.3:TLS_AES_256_GCM_SHA384:verified".to_owned(),
            at: NOW - 60_000,
            proven: "proven for mx.example.net by a CA".to_owned(),
            certificate: Some(CertificateView {
                names: vec!["mx.example.net".to_owned()],
                issuer: "Example CA".to_owned(),
                ends: "2027-01-31".to_owned(),
                sha256: "5f".repeat(32),
                key_sha256: "1c".repeat(32),
            }),
            weakest: Some(weak_tls()),
        }),
        ..HostView::default()
    };
    let path = PathView {
        source: "main".to_owned(),
        connections_max: 20,
        transactions_per_connection_max: Some(100),
        recipients_per_transaction_max: Some(100),
        messages_per_minute_max: Some(600),
        paused_until: Some(NOW + 60_000),
        hosts: vec![host],
        ..PathView::default()
    };
    SiteView {
        site: "mx.example.net".to_owned(),
        now: NOW,
        messages: 1,
        waits_for: "connection refused".to_owned(),
        waiting: 7,
        causes: causes(),
        next_try: Some(NOW + 60_000),
        last_reply: "connection refused".to_owned(),
        suspended_until: Some(NOW + 7_200_000),
        suspended_reason: Some("being moved".to_owned()),
        weakest_tls: Some(weak_tls()),
        paths: vec![path],
        ..SiteView::default()
    }
}

fn hosts() -> Hosts {
    let row = HostRow {
        site: "mx.example.net".to_owned(),
        weakest_tls: Some(weak_tls()),
        hosts: vec![HostView::default()],
        causes: causes(),
        ..HostRow::default()
    };
    Hosts { now: NOW, sites_total: 1, matching: 1, rows: vec![row], ..Hosts::default() }
}

fn post() -> PostView {
    let counts = PostCounts {
        total: 1_000,
        delivered: 990,
        waiting: 7,
        missed: 3,
        bounced: 2,
        expired: 1,
        ..PostCounts::default()
    };
    let list = PostListView {
        id: ID.to_owned(),
        list: "news".to_owned(),
        counts,
        resends: vec![ID.to_owned()],
        ..PostListView::default()
    };
    let missed = PostRcptView {
        address: "gone@example.org".to_owned(),
        state: "bounced".to_owned(),
        at: Some(NOW),
        next_try: Some(NOW),
        ..PostRcptView::default()
    };
    PostView {
        id: ID.to_owned(),
        now: NOW,
        counts,
        lists: vec![list],
        recipients: vec![missed],
        next: Some(50),
        ..PostView::default()
    }
}

fn posts() -> PostReports {
    let (waiting, failed) = (vec![WaitingAt::default()], vec![FailedRcptView::default()]);
    let id = ID.to_owned();
    let row = PostReport { id, total: 1_000, delivered: 993, pending: 7, waiting, failed, ..PostReport::default() };
    PostReports { now: NOW, rows: vec![row], complaints: vec![ComplaintView::default()], ..PostReports::default() }
}

fn envelope() -> EnvelopeView {
    EnvelopeView {
        id: ID.to_owned(),
        sender: "ann@example.org".to_owned(),
        list: Some("news".to_owned()),
        class: "bulk".to_owned(),
        size: 2_048,
        accepted: NOW - 60_000,
        origin: "192.0.2.1".to_owned(),
        message_id: "<1@example.org>".to_owned(),
        envid: Some("QQ314159".to_owned()),
        ret: Some("headers".to_owned()),
        fates: fates(),
        recipients: vec![ExportedRecipient {
            state: recipient(),
            notify: Some(4),
            orcpt: Some("rfc822;ann@example.net".to_owned()),
        }],
        ..EnvelopeView::default()
    }
}

fn counted() -> ActionResult {
    ActionResult {
        text: "would remove: 7 recipients of 1 message".to_owned(),
        count: Some(7),
        messages: Some(1),
        in_flight: Some(0),
        unchanged: Some(0),
        kept: Some(2),
        dry_run: Some(true),
        as_of: None,
    }
}

fn webhook() -> WebhookView {
    WebhookView {
        name: "archive".to_owned(),
        lists: vec!["news".to_owned()],
        senders: vec!["example.net".to_owned()],
        format: "events".to_owned(),
        enabled: true,
        events: 990,
        batches: 12,
        failures: 2,
        lag_records: 40,
        lost: 0,
        last_success: Some(NOW - 60_000),
        failing_since: Some(NOW - 30_000),
        last_error: "it answered 500".to_owned(),
    }
}
