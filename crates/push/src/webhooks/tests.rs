use stentor_bounces::BounceRules;
use stentor_config::{Kind, WebhookFormat};
use stentor_history::Position;
use stentor_http_client::Url;
use stentor_records::record::{Accepted, Attempt, Machine, Note, Record, Refused, Stat, Topic};

use super::event::event;
use super::*;

fn config(events: &[Kind], lists: &[&str]) -> WebhookConfig {
    WebhookConfig {
        name: "hook".to_owned(),
        url: Url::parse("http://127.0.0.1/").unwrap(),
        secret: "0123456789abcdef".to_owned(),
        format: WebhookFormat::Events,
        authorization_file: None,
        enabled: true,
        senders: Vec::new(),
        events: events.to_vec(),
        lists: lists.iter().map(|list| (*list).to_owned()).collect(),
        batch_max: 1,
        batch_wait_ms: 0,
        timeout_ms: 1,
    }
}

fn behind(record: u64) -> Position {
    Position { file: 1, record, offset: 0 }
}

#[test]
fn records_become_the_events_that_are_asked_for() {
    let attempt = |stat, list| {
        let to = ["ann@one.example", "bob@one.example"].into_iter().collect();
        Record::Attempt(Attempt {
            at: 42,
            id: "A",
            from: "me@x",
            to,
            stat,
            list,
            reply: "250 ok",
            ..Attempt::default()
        })
    };
    let all = config(&Kind::FINAL, &[]);
    let sent = event(&all, &attempt(Stat::Sent, "news"), behind(8)).unwrap();
    assert_eq!(
        sent,
        serde_json::json!({
            "id": "7-42", "type": "delivered", "at": 42, "message": "A", "sender": "me@x", "list": "news",
            "recipients": ["ann@one.example", "bob@one.example"], "reply": "250 ok", "delay_ms": 0, "xdelay_ms": 0,
        })
    );
    assert_eq!(event(&all, &attempt(Stat::Expired, ""), behind(1)).unwrap()["type"], "expired");
    // A host's refusal, and then the record that gives the recipient up.
    for (mailer, is_final) in [("esmtp", false), ("bounce", true)] {
        let record = Record::Attempt(Attempt { stat: Stat::Bounced, mailer, ..Attempt::default() });
        assert_eq!(event(&all, &record, behind(1)).unwrap().get("final").is_some(), is_final, "{mailer}");
    }
    assert_eq!(event(&all, &attempt(Stat::Deferred, ""), behind(1)), None);
    let news = config(&[Kind::Delivered, Kind::Refused, Kind::Accepted], &["news"]);
    assert!(event(&news, &attempt(Stat::Sent, "news"), behind(1)).is_some());
    assert_eq!(event(&news, &attempt(Stat::Sent, "talk"), behind(1)), None);
    let accepted = Record::Accepted(Accepted { at: 1, id: "A", recipients: 3, list: "news", ..Accepted::default() });
    assert_eq!(event(&news, &accepted, behind(1)).unwrap()["recipients_total"], 3);
    let refused = Record::Refused(Refused { to: "gone@one.example", ..Refused::default() });
    assert_eq!(event(&news, &refused, behind(1)), None, "of no list");
    let refusals = config(&[Kind::Refused], &[]);
    assert_eq!(event(&refusals, &refused, behind(1)).unwrap()["recipients"][0], "gone@one.example");
    assert_eq!(event(&all, &Record::Machine(Machine::default()), behind(1)), None);
}

fn report(line: &str) -> Record<'_> {
    Record::Note(Note { at: 42, id: "R", text: line, topic: Topic::Policy, ..Note::default() })
}

const OF_SENDER: &str = "report: sender=<news-bounces@l.example>, to=<ann@one.example>, proven, action=failed, \
                         cause=no_mailbox, rule=none, from=l.example, confidence=95, dsn=<5.1.1>, post=<1@l.example>, \
                         campaign=<9f86b50d-5711-41c8-ab03-bc91c43d711b>: 550 5.1.1 gone";

#[test]
fn reports_become_events_of_their_manager() {
    let mut of_sender = config(&[Kind::Report], &["news"]);
    of_sender.senders = vec!["l.example".to_owned()];
    assert_eq!(
        event(&of_sender, &report(OF_SENDER), behind(8)).unwrap(),
        serde_json::json!({
            "id": "7-42", "type": "report", "at": 42, "message": "R", "sender": "news-bounces@l.example",
            "recipients": ["ann@one.example"], "kind": "bounce", "action": "failed", "cause": "no_mailbox",
            "proven": true, "repeated": false, "confidence": 95, "dsn": "5.1.1", "message_id": "<1@l.example>",
            "campaign": "9f86b50d-5711-41c8-ab03-bc91c43d711b", "reply": "550 5.1.1 gone",
        })
    );
    let of_list = "report: list=news, to=<a@b.example>, unproven, action=complained, cause=content, rule=none: abuse";
    let complaint = event(&of_sender, &report(of_list), behind(8)).unwrap();
    assert_eq!((&complaint["kind"], &complaint["proven"]), (&"complaint".into(), &false.into()));
    assert_eq!((&complaint["list"], complaint.get("dsn")), (&"news".into(), None));
    let other = config(&[Kind::Report], &["talk"]);
    assert_eq!(event(&other, &report(of_list), behind(8)), None);
    assert_eq!(event(&config(&Kind::FINAL, &[]), &report(OF_SENDER), behind(8)), None, "only if selected");
    // The filter is for all events.
    let of_domain = WebhookConfig { lists: Vec::new(), events: Kind::FINAL.to_vec(), ..of_sender };
    let attempt = |from| Record::Attempt(Attempt { from, ..Attempt::default() });
    assert!(event(&of_domain, &attempt("x@l.example"), behind(1)).is_some());
    assert_eq!(event(&of_domain, &attempt("x@m.example"), behind(1)), None);
    assert_eq!(event(&of_domain, &attempt(""), behind(1)), None);
}

#[test]
fn listmonk_gets_only_faults_of_the_person() {
    let config = WebhookConfig { format: WebhookFormat::Listmonk, ..config(&Kind::OF_LISTMONK, &[]) };
    let rules = BounceRules::shared_built_in();
    let sent =
        |record: &Record<'_>| listmonk::event(&config, rules, record, behind(8)).map(|event| event["body"].clone());
    let body = sent(&report(OF_SENDER)).unwrap();
    assert_eq!(
        (&body["email"], &body["type"], &body["source"]),
        (&"ann@one.example".into(), &"hard".into(), &"stentor".into())
    );
    assert_eq!(body["campaign_uuid"], "9f86b50d-5711-41c8-ab03-bc91c43d711b");
    let meta: serde_json::Value = serde_json::from_str(body["meta"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&meta["id"], &meta["cause"], &meta["message_id"]),
        (&"7-42".into(), &"no_mailbox".into(), &"1@l.example".into())
    );
    for (from, to, wanted) in [
        ("", "", Some("hard")),
        ("no_mailbox", "full", Some("soft")),
        ("<5.1.1>", "<4.1.1>", Some("soft")),
        ("action=failed", "action=complained", Some("complaint")),
        (", proven", ", unproven", None),
        (", proven, action=failed", ", repeated, action=complained", None),
        ("action=failed", "action=delayed", None),
        ("no_mailbox", "reputation", None),
        ("no_mailbox", "content", None),
        ("no_mailbox", "unreachable", None),
        ("no_mailbox", "unknown", None),
    ] {
        let line = OF_SENDER.replace(from, to);
        let line = if from.is_empty() { OF_SENDER } else { &line };
        assert_eq!(sent(&report(line)).map(|body| body["type"].clone()), wanted.map(Into::into), "{from} {to}");
    }
    let invalid = OF_SENDER.replace("9f86b50d-", "9f86b50d:");
    assert_eq!(sent(&report(&invalid)).unwrap().get("campaign_uuid"), None);
    let given_up = |stat, dsn, reply| {
        let to = ["ann@one.example"].into_iter().collect();
        Record::Attempt(Attempt { stat, dsn, reply, to, mailer: "bounce", from: "x@l.example", ..Attempt::default() })
    };
    let kind = |record: &Record<'_>| sent(record).map(|body| body["type"].clone());
    assert_eq!(kind(&given_up(Stat::Bounced, "5.1.1", "550 5.1.1 User unknown")), Some("hard".into()));
    assert_eq!(kind(&given_up(Stat::Expired, "4.2.2", "452 4.2.2 Mailbox full")), Some("soft".into()));
    assert_eq!(kind(&given_up(Stat::Bounced, "5.7.1", "554 5.7.1 Your address is listed by Spamhaus")), None);
    assert_eq!(kind(&given_up(Stat::Expired, "4.4.1", "connection timed out")), None);
    let attempt = Attempt { mailer: "esmtp", stat: Stat::Bounced, ..Attempt::default() };
    assert_eq!(kind(&Record::Attempt(attempt)), None, "its record of the end follows");
}

#[test]
fn signatures_are_what_others_compute() {
    // `printf '1790000000.{}' | openssl dgst -sha256 -hmac 0123456789abcdef`
    let expected = "t=1790000000,v1=3d02334942fff50e279f641c1b104ff5f49380d94ff307bb92b1e03f5aee6ff0";
    assert_eq!(signature("0123456789abcdef", 1_790_000_000, b"{}"), expected);
}

#[test]
fn positions_survive_and_nonsense_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("webhooks/hook.position");
    assert_eq!(position::read(&path), None);
    for record in [7, 8] {
        position::write(&path, behind(record)).unwrap();
        assert_eq!(position::read(&path), Some(behind(record)));
    }
    std::fs::write(&path, "x").unwrap();
    assert_eq!(position::read(&path), None);
}
