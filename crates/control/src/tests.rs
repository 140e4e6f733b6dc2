//! Tests of requests by table and at random, replies in both directions, the socket with well-behaved and misbehaving
//! clients, and the tables.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stentor_queue::ids::{MessageId, Ms};
use stentor_queue::queue_only::Scope;
use stentor_records::civil::Zone;

use super::address_view::AddressView;
use super::causes::CauseRow;
use super::problem::*;
use super::protocol::*;
use super::recipient_view::{RecipientState, RecipientView};
use super::reply::*;
use super::selection::AsOf;
use super::site_view::{PathView, SiteView};
use super::{
    ActionResult, BounceTerm, Client, Control, ControlError, ControlServer, DeliverySetting, DkimRequest,
    DkimRotateOptions, HostsOptions, HostsQuery, ListChange, ListName, Mailqq, MailqqOptions, MailqqRow, MailqqSort,
    MemberOptions, MemberRemoval, NewList, NewMember, NewMembers, NewSuppression, NewSuppressions, Observe,
    PersonOptions, QuarantineOptions, ReportOptions, Requester, RosterRequest, RowKind, Selection, Sort,
    SuppressionName, SuppressionOptions, SuppressionRemoval, SuppressionRequest, Verb, View, render,
};
use crate::format::Width;
use crate::snapshot::{Snapshot, WatchOptions};

mod requests;

const NOW: Ms = 1_795_258_465_000;

fn refusal(line: &str) -> ErrorCode {
    Request::parse(line.as_bytes()).unwrap_err().code
}

#[test]
fn requests_about_lists_round_trip() {
    for request in [
        RosterRequest::Lists,
        RosterRequest::Show(ListName { name: "news".to_owned() }),
        RosterRequest::Create(NewList {
            name: "news".to_owned(),
            style: Some("announce".to_owned()),
            set: [("description".to_owned(), "All of it".to_owned())].into(),
            ..NewList::default()
        }),
        RosterRequest::Set(ListChange { unset: vec!["verp".to_owned()], ..ListChange::default() }),
        RosterRequest::Delete(ListName::default()),
        RosterRequest::Members(MemberOptions { list: "news".to_owned(), after: Some("a@b".to_owned()), rows_max: 7 }),
        RosterRequest::Add(NewMembers {
            members: vec![NewMember { name: Some("Ann".to_owned()), joined: Some(7), ..NewMember::default() }],
            again: true,
            ..NewMembers::default()
        }),
        RosterRequest::Remove(MemberRemoval { addresses: vec!["a@b".to_owned()], ..MemberRemoval::default() }),
        RosterRequest::SetDelivery(DeliverySetting { addresses: vec!["a@b".to_owned()], ..DeliverySetting::default() }),
        RosterRequest::Person(PersonOptions { address: "a@b".to_owned() }),
    ] {
        let request = Request::List(request);
        assert_eq!(Request::parse(request.to_line().as_bytes()), Ok(request));
    }
}

#[test]
fn requests_round_trip() {
    let id = MessageId(77);
    for request in [
        Request::Status,
        Request::Queue(View::rows(7)),
        Request::QueueStuck(View { by: Some(RowKind::Site), list: Some("news".to_owned()), ..View::rows(9) }),
        Request::QueueShow { id, recipients_max: 3 },
        Request::Address { address: "a@example.org".to_owned() },
        Request::Flush { site: None, dry_run: false },
        Request::Flush { site: Some("mx.\"example\"".to_owned()), dry_run: true },
        Request::Quarantine(QuarantineOptions { rows_max: 7, ..QuarantineOptions::default() }),
        Request::Quarantine(QuarantineOptions {
            selection: Selection { recipient: Some("@example.org".to_owned()), ..Selection::default() },
            rows_max: 9,
            after: Some(id),
        }),
        Request::QuarantineShow { id },
        Request::QuarantineCopy { id, to: "me@example.org".to_owned(), reason: Some("a look".to_owned()) },
        Request::Suppression(SuppressionRequest::Add(NewSuppressions {
            entries: vec![NewSuppression { subject: "a@b".to_owned(), expires: Some(7), ..NewSuppression::default() }],
            source: Some("import".to_owned()),
            known_lists_only: true,
        })),
        Request::Suppression(SuppressionRequest::Remove(SuppressionRemoval {
            entries: vec![SuppressionName::of("a@b", "everything")],
            reason: Some("a mistake".to_owned()),
        })),
        Request::Suppression(SuppressionRequest::List(SuppressionOptions {
            after: Some(SuppressionName::of("a@b", "list:news")),
            ..SuppressionOptions::default()
        })),
        Request::Dkim(DkimRequest::Records { domain: Some("example.org".to_owned()) }),
        Request::Dkim(DkimRequest::Records { domain: None }),
        Request::Dkim(DkimRequest::Rotate(DkimRotateOptions {
            domain: "example.org".to_owned(),
            now: true,
            reason: Some("a leak".to_owned()),
        })),
        Request::Reload,
        Request::Stop,
    ] {
        let line = request.to_line();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(Request::parse(line.trim_end().as_bytes()), Ok(request));
    }
    let defaults = Request::parse(br#"{"v":1,"verb":"queue"}"#);
    assert_eq!(defaults, Ok(Request::Queue(View::default())));
    let defaults = Request::parse(br#"{"verb":"queue_show","id":"00000000002d","v":1}"#);
    assert_eq!(defaults, Ok(Request::QueueShow { id, recipients_max: RECIPIENTS_DEFAULT }));
}

#[test]
fn bad_requests_are_told_why() {
    let table = [
        ("", ErrorCode::BadRequest),
        ("[]", ErrorCode::BadRequest),
        ("{", ErrorCode::BadRequest),
        (r#"{"verb":"queue"}"#, ErrorCode::BadRequest),
        (r#"{"v":1}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":7}"#, ErrorCode::BadRequest),
        (r#"{"v":2,"verb":"queue"}"#, ErrorCode::BadVersion),
        (r#"{"v":"1","verb":"queue"}"#, ErrorCode::BadVersion),
        (r#"{"v":1,"verb":"dance"}"#, ErrorCode::UnknownVerb),
        (r#"{"v":1,"verb":"queue","sites":3}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"queue","sites_max":-1}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"flush","sit":"x"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"stop","now":true}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"queue_show"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"quarantine","rows_max":0}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"quarantine","site":"mx"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"quarantine_release","site":"mx"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"quarantine_show"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"suppress"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"suppress","entries":[{"subjct":"a@b"}]}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"unsuppress","entries":[]}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"suppressions","rows_max":1001}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"members","list":"a","rows_max":1001}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"member_add","list":"a","members":[]}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"list_create","name":"a"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"lists","name":"a"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"dkim_rotate"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"dkim_records","domian":"a.b"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"quarantine_copy","id":"0CX8M4H00000"}"#, ErrorCode::BadRequest),
        (r#"{"v":1,"verb":"queue_show","id":"../../etc"}"#, ErrorCode::BadRequest),
    ];
    for (line, code) in table {
        assert_eq!(refusal(line), code, "{line}");
    }
    for verb in Verb::ALL.map(Verb::name) {
        for arguments in [
            "",
            r#","id":[]"#,
            r#","id":"x""#,
            r#","sendr":"a@b""#,
            r#","all":true,"sender":"a@b""#,
            r#","all":false"#,
            r#","age_s_min":-1"#,
            r#","dry_run":1,"all":true"#,
        ] {
            let line = format!(r#"{{"v":1,"verb":"{verb}"{arguments}}}"#);
            assert_eq!(refusal(&line), ErrorCode::BadRequest, "{line}");
        }
    }
    assert_eq!(refusal(r#"{"v":1,"verb":"export","dry_run":true}"#), ErrorCode::BadRequest);
    // One answer is held in memory.
    let line = |rows| format!(r#"{{"v":1,"verb":"queue_show","id":"00000000002d","recipients_max":{rows}}}"#);
    assert!(Request::parse(line(RECIPIENTS_MAX).as_bytes()).is_ok());
    assert_eq!(refusal(&line(RECIPIENTS_MAX + 1)), ErrorCode::BadRequest);
    let long = format!(r#"{{"v":1,"verb":"bounce","all":true,"reason":"{}"}}"#, "x".repeat(501));
    assert_eq!(refusal(&long), ErrorCode::BadRequest);
    let deep = "[".repeat(REQUEST_BYTES_MAX);
    assert_eq!(refusal(&deep), ErrorCode::BadRequest, "nesting is bounded");
}

#[test]
fn random_octets_and_mutations_never_panic() {
    let mut rng = fastrand::Rng::with_seed(3);
    let seed = br#"{"v":1,"verb":"queue_show","id":"00000000002d","recipients_max":5}"#;
    for _ in 0..20_000 {
        let mut line = seed.to_vec();
        for _ in 0..rng.usize(1..6) {
            let i = rng.usize(..line.len());
            line[i] = rng.u8(..);
        }
        let _ = Request::parse(&line);
        let _ = Assembler::default().push(&String::from_utf8_lossy(&line));
        let noise: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
        let _ = Request::parse(&noise);
    }
}

fn causes() -> Vec<CauseRow> {
    vec![CauseRow {
        cause: "greylisted".to_owned(),
        words: "greylisted".to_owned(),
        since: None,
        recipients: 10,
        next_try: Some(NOW + 90_000),
        last_reply: "451 4.7.1 greylisted".to_owned(),
    }]
}

fn summary(sites: usize) -> QueueSummary {
    let row = |i: usize| SiteRow {
        is_unresolved: false,
        site: format!("mx{i}.example.org"),
        waiting: 10,
        messages: 2,
        connections: 1,
        next_try: Some(NOW + 90_000),
        last_reply: "451 4.7.1 greylisted".to_owned(),
        oldest: Some(NOW - 60_000),
        causes: causes(),
        action: String::new(),
    };
    QueueSummary {
        part: String::new(),
        hostname: "mx.example.com".to_owned(),
        now: NOW,
        messages: 12,
        recipients: 3456,
        held: 0,
        content_bytes: 1_258_291,
        oldest: Some(NOW - 7_980_000),
        oldest_id: Some("00000000002D".to_owned()),
        sites_total: sites as u64,
        domains_total: 0,
        causes: causes(),
        counted: Some(NOW - 9_000),
        lists: vec![ListRow {
            list: "users".to_owned(),
            waiting: 10,
            messages: 1,
            causes: causes(),
            ..ListRow::default()
        }],
        sites: (0..sites).map(row).collect(),
    }
}

fn stuck(rows: usize) -> StuckReport {
    let row = |i: usize| StuckRow {
        state: RecipientView { address: format!("user{i}@example.org"), ..RecipientView::default() },
        messages: 9_000 - i as u64,
        oldest: Some(NOW - 86_400_000),
        oldest_id: Some("00000000002D".to_owned()),
        action: "wait".to_owned(),
    };
    let sites = summary(rows).sites;
    let hostname = "mx.example.com".to_owned();
    StuckReport {
        part: String::new(),
        hostname,
        now: NOW,
        is_counting: true,
        recipients_total: 30,
        sites_total: 9,
        domains_total: 0,
        counted: None,
        recipients: (0..rows).map(row).collect(),
        sites,
    }
}

fn view(recipients: usize) -> MessageView {
    let states = [RecipientState::Waiting, RecipientState::InFlight, RecipientState::Deferred];
    let row = |i: usize| RecipientView {
        address: format!("user{i}@example.org"),
        site: "mx.example.org".to_owned(),
        state: states[i % 3],
        cause: "greylisted".to_owned(),
        words: "greylisted".to_owned(),
        since: None,
        next_try: Some(NOW + 720_000),
        last_reply: "451 later".to_owned(),
    };
    MessageView {
        id: "00000000002D".to_owned(),
        now: NOW,
        sender: "list-bounces@example.com".to_owned(),
        given_sender: None,
        subject: Some("A post".to_owned()),
        list: Some("users".to_owned()),
        class: "bulk".to_owned(),
        size: 4096,
        accepted: NOW - 7_980_000,
        expires: Some(NOW + 420_000_000),
        held: false,
        held_by: String::new(),
        held_since: None,
        origin: "192.0.2.1".to_owned(),
        message_id: "<1@example.com>".to_owned(),
        fates: Fates { acknowledged: 2000, delivered: 1990, bounced: 3, pending: 7, ..Fates::default() },
        recipients: (0..recipients).map(row).collect(),
    }
}

#[test]
fn replies_round_trip_in_one_or_several_lines() {
    let done = || ControlReply::done("flushed", Some(3));
    let address = AddressView { id: 7, lists: vec!["l".to_owned()], ..AddressView::default() };
    let counted = ActionResult { count: Some(2), messages: Some(1), ..ActionResult::default() };
    let table = [
        (ControlReply::Status(Box::default()), 1),
        (ControlReply::Queue(summary(0)), 1),
        (ControlReply::Queue(summary(200)), 2),
        (ControlReply::Queue(summary(201)), 3),
        (ControlReply::Message(Box::new(view(1001))), 7),
        (ControlReply::Address(Box::new(address)), 1),
        (ControlReply::Site(Box::default()), 1),
        (done(), 1),
        (ControlReply::Done { text: "added".to_owned(), count: Some(1), remarks: vec!["x".to_owned()] }, 1),
        (ControlReply::Counted(Box::new(counted)), 1),
        (ControlReply::error(ErrorCode::NotFound, "no such message\r\n"), 1),
    ];
    for (reply, count) in table {
        let lines = to_lines(reply.clone());
        assert_eq!(lines.len(), count);
        let mut assembler = Assembler::default();
        for (i, line) in lines.iter().enumerate() {
            assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
            let got = assembler.push(line).unwrap();
            assert_eq!(got, (i + 1 == count).then(|| reply.clone()));
        }
    }
    let rows = to_lines(ControlReply::Queue(summary(1)));
    assert!(Assembler::default().push(&rows[1]).is_err(), "rows without their head");
    let newer = rows[0].replace("\"v\":1", "\"v\":2");
    assert!(Assembler::default().push(&newer).is_err());
}

#[test]
fn readers_survive_a_newer_server() {
    let line = r#"{"v":1,"ok":true,"more":false,"x":1,"reply":"queue","data":{"messages":3,"mood":"good"}}"#;
    match Assembler::default().push(line).unwrap() {
        Some(ControlReply::Queue(queue)) => assert_eq!(queue.messages, 3),
        other => panic!("{other:?}"),
    }
    let line = r#"{"v":1,"ok":false,"more":false,"reply":"error","data":{"code":"tired","text":"zzz"}}"#;
    let problem = Problem::new(ErrorCode::Other, "zzz");
    assert_eq!(Assembler::default().push(line), Ok(Some(ControlReply::Error(problem))));
}

/// A server double that answers from memory and knows one message.
struct Double;

/// Envelopes in the double's export: more than a socket's buffers hold.
const EXPORTED: usize = 10_000;

impl Control for Double {
    async fn export(&self, _: Selection, lines: tokio::sync::mpsc::Sender<Vec<EnvelopeView>>) -> ControlReply {
        for n in 0..EXPORTED {
            let id = format!("{n:012}");
            if lines.send(vec![EnvelopeView { id, ..EnvelopeView::default() }]).await.is_err() {
                break;
            }
        }
        ControlReply::done("all", None)
    }

    async fn handle(&self, request: Request, peer: Requester) -> ControlReply {
        match request {
            Request::Status => match peer {
                Requester::Process { uid, .. } => {
                    ControlReply::Status(Box::new(Status { pid: uid, ..Status::default() }))
                }
                Requester::Http { .. } => ControlReply::error(ErrorCode::Failed, "not by this double"),
            },
            Request::Queue(view) => ControlReply::Queue(summary(view.rows_max.unwrap_or(1) as usize)),
            Request::QueueStuck(view) => ControlReply::Stuck(Box::new(stuck(view.rows_max.unwrap_or(1) as usize))),
            Request::QueueShow { id: MessageId(77), .. } => ControlReply::Message(Box::new(view(500))),
            Request::QueueShow { .. } => ControlReply::error(ErrorCode::NotFound, "no such message"),
            Request::Address { address } => {
                ControlReply::Address(Box::new(AddressView { address, ..AddressView::default() }))
            }
            Request::Flush { site, .. } => ControlReply::done(site.unwrap_or_default(), None),
            Request::Observe(Observe::Mailqq(options)) => {
                ControlReply::Mailqq(Box::new(mailqq(options.rows_max as usize)))
            }
            Request::Act { .. }
            | Request::Export { .. }
            | Request::Doctor
            | Request::Users
            | Request::Cat { .. }
            | Request::Verify { .. }
            | Request::Observe(_)
            | Request::Site { .. }
            | Request::PostShow(_)
            | Request::Quarantine(_)
            | Request::QuarantineShow { .. }
            | Request::QuarantineCopy { .. }
            | Request::Suppression(_)
            | Request::Dkim(_)
            | Request::List(_)
            | Request::Bounce { .. }
            | Request::QueueOnly { .. }
            | Request::QueueRun { .. }
            | Request::Suspend { .. } => ControlReply::error(ErrorCode::Failed, "not by this double"),
            Request::Reload | Request::Stop => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                ControlReply::done("slowly", None)
            }
        }
    }
}

fn mailqq(rows: usize) -> Mailqq {
    let row = |i: usize| MailqqRow {
        id: format!("{i:012}"),
        pending: 9_000 - i as u64,
        in_flight: u64::from(i == 0),
        size: 4_096,
        accepted: NOW - 60_000,
        sender: "news-bounces@example.org\u{1b}[2J".to_owned(),
        list: Some("news".to_owned()),
        ..MailqqRow::default()
    };
    Mailqq { now: NOW, messages: 7, recipients: 63_000, rows: (0..rows).map(row).collect(), ..Mailqq::default() }
}

#[test]
fn verbs_that_look_survive_the_wire() {
    let watch = WatchOptions { interval_ms: 250, list: Some("news".to_owned()), ..WatchOptions::default() };
    let narrow = MailqqOptions { sort: MailqqSort::Age, site: Some("mx".to_owned()), ..MailqqOptions::default() };
    let view = View { sort: Some(Sort::NextTry), site: Some("mx".to_owned()), ..View::default() };
    let page = HostsQuery { failing: true, name: Some("a".to_owned()), offset: 20, waiting: false };
    let hosts = HostsOptions { view: view.clone(), page };
    let report = ReportOptions { id: Some("00000000002D".to_owned()), ..ReportOptions::default() };
    for observe in [
        Observe::Watch(watch),
        Observe::Mailqq(narrow),
        Observe::Hosts(hosts),
        Observe::Report(report),
        Observe::Report(ReportOptions::default()),
        Observe::Ages(view),
    ] {
        let request = Request::Observe(observe);
        assert_eq!(Request::parse(request.to_line().as_bytes()), Ok(request));
    }
    for bad in [
        r#""watch","interval_ms":1"#,
        r#""watch","lists":"a""#,
        r#""mailqq","rows_max":1001"#,
        r#""mailqq","rows_max":0"#,
        r#""hosts","rows_max":0"#,
        r#""ages","by":"list""#,
        r#""mailqq","after":"what""#,
        r#""hosts","sort":"size""#,
        r#""report","id":"""#,
    ] {
        assert!(Request::parse(format!(r#"{{"v":1,"verb":{bad}}}"#).as_bytes()).is_err(), "{bad}");
    }
    let ages = Request::parse(br#"{"v":1,"verb":"queue","by":"age"}"#).unwrap();
    assert_eq!(ages, Request::Observe(Observe::Ages(View { by: Some(RowKind::Age), ..View::default() })));
    let reply = ControlReply::Mailqq(Box::new(mailqq(450)));
    let lines = to_lines(reply.clone());
    assert_eq!(lines.len(), 4);
    let mut assembler = Assembler::default();
    let last = lines.iter().filter_map(|line| assembler.push(line.trim_end()).unwrap()).last();
    assert_eq!(last, Some(reply));
    let text = render::reply(&ControlReply::Mailqq(Box::new(mailqq(2))), &Zone::utc());
    assert!(
        text.contains("      9000  000000000000*        4096") && text.contains("63000  in all, 7 messages"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    let snapshot = Snapshot { now: NOW, verdict: "idle".to_owned(), ..Snapshot::default() };
    let line = snapshot_line(snapshot.clone());
    assert_eq!(snapshot_of(line.trim_end()).map(|found| *found), Some(snapshot));
}

/// Serves a [`Double`] in a temporary directory while `test` (blocking) runs, then stops it.
fn with_server(test: impl FnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { ControlServer::bind(&path).unwrap() });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = runtime.spawn(server.serve(Arc::new(Double), async {
        let _ = stopped.await;
    }));
    test(&path);
    stop.send(()).unwrap();
    runtime.block_on(serving).unwrap();
    assert!(!path.exists(), "the socket goes with the server");
}

#[test]
fn a_client_asks_many_things_over_one_connection() {
    with_server(|path| {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = Client::connect(path).unwrap();
        assert_eq!(client.ask(&Request::Queue(View::rows(1000))).unwrap(), ControlReply::Queue(summary(1000)));
        let mut lines = Vec::new();
        let asked = Request::QueueStuck(View::rows(450));
        assert_eq!(client.ask(&asked).unwrap(), ControlReply::Stuck(Box::new(stuck(450))), "in several lines");
        let show = Request::QueueShow { id: MessageId(77), recipients_max: 500 };
        let mut keep = |line: &str| {
            lines.push(line.to_owned());
            Ok(())
        };
        assert_eq!(client.ask_lines(&show, &mut keep).unwrap(), ControlReply::Message(Box::new(view(500))));
        assert_eq!(lines.len(), 4);
        assert!(lines[0].contains("\"more\":true") && lines[3].contains("\"more\":false"));
        match client.ask(&Request::QueueShow { id: MessageId(1), recipients_max: 1 }) {
            Err(ControlError::Refused(problem)) => assert_eq!(problem.code, ErrorCode::NotFound),
            other => panic!("{other:?}"),
        }
        match client.ask(&Request::Status).unwrap() {
            ControlReply::Status(status) => {
                assert_eq!(status.pid, rustix::process::geteuid().as_raw(), "the peer is known");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn nonsense_is_answered_and_the_connection_goes_on() {
    with_server(|path| {
        let mut stream = StdStream::connect(path).unwrap();
        // Several requests in one write, one of them split, each answered in turn.
        stream.write_all(b"what\n{\"v\":1,\"verb\":\"hold\"}\n\n{\"v\":1,\"verb\":\"flush\",").unwrap();
        stream.write_all(b"\"site\":\"mx\"}\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        for expected in ["bad_request", "name a selector", "bad_request", "\"reply\":\"done\""] {
            let line = lines.next().unwrap().unwrap();
            assert!(line.contains(expected), "{line}");
        }
    });
}

#[test]
fn an_endless_line_and_too_many_connections_are_refused() {
    with_server(|path| {
        let mut stream = StdStream::connect(path).unwrap();
        let _ = stream.write_all(&vec![b'x'; REQUEST_BYTES_MAX * 2]);
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("too_large"), "{line}");

        let mut held: Vec<Client> = Vec::new();
        for _ in 0..super::server::CONNECTIONS_MAX {
            let mut client = Client::connect(path).unwrap();
            // The previous connection may still be closing; an answer shows that this one has a place.
            if client.ask(&Request::Status).is_err() {
                continue;
            }
            held.push(client);
        }
        let mut last = None;
        while held.len() < super::server::CONNECTIONS_MAX + 1 {
            let mut client = Client::connect(path).unwrap();
            match client.ask(&Request::Status) {
                Ok(_) => held.push(client),
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        assert!(matches!(&last, Some(ControlError::Refused(p)) if p.code == ErrorCode::Busy), "{last:?}");
        held.truncate(1);
        held[0].ask(&Request::Status).unwrap();
    });
}

#[test]
fn a_stop_lets_the_answer_out_and_closes_idle_connections() {
    let idle = std::cell::Cell::new(None);
    with_server(|path| {
        idle.set(Some(StdStream::connect(path).unwrap()));
        let mut client = Client::connect(path).unwrap();
        client.ask(&Request::Stop).unwrap();
        // Requested but not yet answered when the server stops.
        let mut stream = StdStream::connect(path).unwrap();
        stream.write_all(Request::Queue(View::rows(1)).to_line().as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains("queue"));
    });
    let mut rest = Vec::new();
    idle.take().unwrap().read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn the_socket_of_the_living_is_left_alone_that_of_the_dead_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let path = dir.path().join("control.sock");
    let kind = |path: &Path| ControlServer::bind(path).err().map(|e| e.kind());

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let living = ControlServer::bind(&path).unwrap();
    assert_eq!(kind(&path), Some(std::io::ErrorKind::AddrInUse));
    drop(living);
    assert!(!path.exists());

    fs::write(&path, "precious").unwrap();
    assert_eq!(kind(&path), Some(std::io::ErrorKind::AddrInUse));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert!(kind(&dir.path().join("x".repeat(120))).is_some());
    let nobody = Client::connect(&PathBuf::from("/nonexistent/control.sock")).err().unwrap();
    assert!(nobody.to_string().contains("/nonexistent/control.sock"));
}

#[test]
fn the_queue_as_a_table() {
    let mut queue = summary(2);
    (queue.sites_total, queue.domains_total) = (9, 3);
    queue.sites[1].next_try = None;
    queue.sites[1].last_reply = String::new();
    let expected = "\
mx.example.com: 12 messages (1.2 MiB), 3456 recipients waiting
oldest: 00000000002D, accepted 2h13m ago
counted 9s ago
       10  greylisted, next try 2m

 waiting    msgs conns next try  site                                why
      10       2     1       2m  mx0.example.org                     451 4.7.1 greylisted
      10       2     1      now  mx1.example.org                     greylisted
... and 4 more sites
... and 3 more unresolved domains
";
    assert_eq!(render::reply(&ControlReply::Queue(queue), &Zone::utc()), expected);
    let by_list = render::queue_by_list(&summary(1), Width::LEAST);
    assert!(by_list.contains(" waiting    msgs   oldest next try  list                      why\n"), "{by_list}");
    assert!(
        by_list.contains("      10       1        -      now  users                     greylisted\n"),
        "{by_list}"
    );
    let empty = QueueSummary { hostname: "mx".to_owned(), ..QueueSummary::default() };
    assert_eq!(render::queue(&empty, Width::LEAST), "mx: the queue is empty\n");
}

#[test]
fn a_message_as_a_table() {
    let expected = "\
00000000002D  4.0 KiB  bulk, list users
  accepted    2026-11-21 08:41:25 UTC (2h13m ago), expires in 4d20h
  from        <list-bounces@example.com> by 192.0.2.1
  subject     A post
  message-id  <1@example.com>
  recipients  2000: 1990 delivered, 3 bounced, 7 pending

state     next try  recipient                                   why
waiting        12m  user0@example.org                           451 later
in flight        -  user1@example.org                           451 later
deferred       12m  user2@example.org                           451 later
... and 4 more recipients
";
    assert_eq!(render::reply(&ControlReply::Message(Box::new(view(3))), &Zone::utc()), expected);
}

#[test]
fn a_wide_terminal_shows_more_and_a_pipe_all() {
    let (reason, site) = ("450 4.7.1 ".to_owned() + &"z".repeat(300), "mx.".repeat(20) + "example");
    let mut queue = summary(1);
    (queue.sites[0].last_reply, queue.sites[0].site) = (reason.clone(), site.clone());
    let text = |width| render::reply_in(&ControlReply::Queue(queue.clone()), &Zone::utc(), width);
    let longest = |text: String| text.lines().map(|line| line.chars().count()).max();
    assert_eq!(longest(text(Width::of_terminal(80))), Some(100));
    assert_eq!(longest(text(Width::of_terminal(180))), Some(180));
    let whole = text(Width::UNCUT);
    assert!(whole.contains(&reason) && whole.contains(&site), "{whole}");
}

#[test]
fn stuck_mail_is_shown_in_the_order_of_the_answer() {
    let mut late = stuck(2);
    late.recipients[1].state.last_reply = "452 4.2.2 full".to_owned();
    late.recipients[1].state.words = "mailbox full".to_owned();
    late.recipients[0].state.words = "greylisted".to_owned();
    let text = render::reply(&ControlReply::Stuck(Box::new(late)), &Zone::utc());
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    let order = [
        "mx0.",
        "mx1.",
        "7 more sites",
        "user0@",
        "greylisted\n                            -> wait",
        "user1@",
        "452 4.2.2 full",
        "28 more recipients",
    ];
    assert!(order.iter().map(|what| at(what)).is_sorted(), "{text}");
}

#[test]
fn tables_keep_their_width_and_no_terminal_is_written_to() {
    let evil = "\u{1b}[2J\r\n".repeat(50) + &"é".repeat(200);
    let mut queue = summary(1);
    queue.hostname.clone_from(&evil);
    queue.oldest_id = Some(evil.clone());
    queue.sites[0] = SiteRow { site: evil.clone(), last_reply: evil.clone(), ..queue.sites[0].clone() };
    let mut message = view(1);
    for field in
        [&mut message.id, &mut message.sender, &mut message.class, &mut message.origin, &mut message.message_id]
    {
        field.clone_from(&evil);
    }
    message.list = Some(evil.clone());
    message.recipients[0].address.clone_from(&evil);
    message.recipients[0].last_reply.clone_from(&evil);
    let status = Status { hostname: evil.clone(), version: evil.clone(), log_lines_lost: 1, ..Status::default() };
    for reply in
        [ControlReply::Queue(queue), ControlReply::Message(Box::new(message)), ControlReply::Status(Box::new(status))]
    {
        let text = render::reply(&reply, &Zone::utc());
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        for line in text.lines() {
            assert!(line.chars().count() <= Width::LEAST.columns(), "{line}");
        }
    }
    assert!(!render::reply(&ControlReply::error(ErrorCode::Failed, evil), &Zone::utc()).contains('\u{1b}'));
}

#[test]
fn a_site_and_an_address_are_told_in_whole_words() {
    let text = |reply: &ControlReply, width| render::reply_in(reply, &Zone::utc(), width);
    let path = PathView {
        connections: 2,
        connections_max: 1,
        messages_per_minute_max: Some(1),
        transactions_per_connection_max: Some(20),
        ..PathView::default()
    };
    let site = SiteView { site: "mx.example".to_owned(), paths: vec![path], ..SiteView::default() };
    let shown = text(&ControlReply::Site(Box::new(site)), Width::LEAST);
    assert!(shown.contains("2 connections open (limit 1, 0 silent), 0 transactions in flight"), "{shown}");
    assert!(shown.contains("limits: 20 messages per connection, 1 message per minute\n"), "{shown}");
    let failed = format!("the name server answered ServFail for {}", "x".repeat(100));
    let pending = RecipientView {
        state: RecipientState::Deferred,
        cause: "dns".to_owned(),
        words: "DNS lookup failed".to_owned(),
        last_reply: failed.clone(),
        ..RecipientView::default()
    };
    let address = AddressView {
        address: "bob@dnsfail.example".to_owned(),
        domain: "dnsfail.example".to_owned(),
        pending: Some(pending),
        ..AddressView::default()
    };
    let shown = text(&ControlReply::Address(Box::new(address)), Width::UNCUT);
    assert!(shown.contains("  domain    dnsfail.example, DNS lookup failed\n") && shown.contains(&failed), "{shown}");
    assert!(!shown.contains("xdelay") && !shown.contains("within"), "what was never measured is left out: {shown}");
}
