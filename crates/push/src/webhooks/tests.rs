use stentor_config::Kind;
use stentor_history::Position;
use stentor_http_client::Url;
use stentor_records::record::{Accepted, Attempt, Machine, Record, Refused, Stat};

use super::event::event;
use super::*;

fn config(events: &[Kind], lists: &[&str]) -> WebhookConfig {
    WebhookConfig {
        name: "hook".to_owned(),
        url: Url::parse("http://127.0.0.1/").unwrap(),
        secret: "0123456789abcdef".to_owned(),
        enabled: true,
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
