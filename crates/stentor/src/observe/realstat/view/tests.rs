use ratatui::Terminal;
use ratatui::backend::TestBackend;
use stentor_control::snapshot::SiteNow;
use stentor_control::{CauseRow, Snapshot, WatchOptions};
use stentor_queue::cause::Cause;
use stentor_records::now::EventNow;

use super::*;
use crate::observe::realstat::feed::News;

fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
    terminal.draw(|frame| draw(frame, app)).expect("it is drawn");
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(row).collect()
}

fn app() -> App {
    let mut app = App::new(WatchOptions::default());
    let mut s = Snapshot {
        now: 36_000_000,
        interval_ms: 1_000,
        verdict: "idle: the queue is empty".to_owned(),
        ..Snapshot::default()
    };
    (s.since.delivered, s.since.failed, s.queue.bulk) = (12_345, 7, 10_000_000);
    s.connections.fast_max = 800;
    s.causes = [
        (Cause::Ready, 700, None),
        (Cause::Refused, 9_000_000, Some(36_720_000)),
        (Cause::Unreadable, 999_270, Some(36_030_000)),
        (Cause::Held, 20, None),
        (Cause::Recipient, 10, Some(40_000_000)),
    ]
    .map(|(cause, recipients, next_try)| CauseRow {
        cause: cause.name().to_owned(),
        words: cause.words().to_owned(),
        recipients,
        next_try,
        ..CauseRow::default()
    })
    .into();
    s.by_pending = vec![SiteNow {
        site: "mx.one.example".to_owned(),
        waiting: 990_000,
        last_reply: "451 evil\u{1b}[2J".to_owned(),
        lane: "clock".to_owned(),
        next_try: Some(36_720_000),
        ..SiteNow::default()
    }];
    s.events = vec![EventNow {
        at: 36_000_000,
        kind: "connect_failed".to_owned(),
        text: "mx1.dead.example: Connection refused".to_owned(),
        times: 7,
    }];
    app.news(News::Snapshot(Box::new(s)));
    app
}

#[test]
fn everything_fits_eighty_by_twenty_four() {
    let mut app = app();
    let rows = screen(&app, 80, 24);
    let all = rows.join("\n");
    for wanted in [
        "delivered 12,345/s",
        "44,442,000/h",
        "failed    7.0/s",
        "waiting 10,000,000 (10,000,000 bulk)",
        "waiting for      recipients next try",
        "refused           9,000,000      12m   sync   no batch",
        "unreadable          999,270      30s   cpu ",
        "ready to send           700      now   memory ",
        "2 other causes           30            disk ",
        "0 of 800",
        "cpu",
        "disk",
        "idle: the queue is empty",
        "   12m backing off mx.one.example 451 evil",
        "10:00:00 connect failed mx1.dead.example: Connection refused (7 times)",
        "q quit",
    ] {
        assert!(all.contains(wanted), "{wanted}\n{all}");
    }
    assert!(rows[0].starts_with("stentor realstat") && rows[23].starts_with("q quit"), "{all}");
    // With enough space all are shown.
    let all = screen(&app, 80, 50).join("\n");
    for wanted in ["held                     20        -", "4xx at RCPT              10    1h07m"] {
        assert!(all.contains(wanted), "{wanted}\n{all}");
    }
    app.view = View::Sites;
    let all = screen(&app, 80, 24).join("\n");
    assert!(all.contains("990,000") && all.contains("451 evil") && !all.contains('\u{1b}'), "{all}");
    app.shows_help = true;
    assert!(screen(&app, 80, 24).join("\n").contains("hold the row's messages"));
}

#[test]
fn any_size_is_drawn() {
    let mut app = app();
    for view in [View::Rates, View::Sites, View::Messages] {
        app.view = view;
        for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60), (300, 3)] {
            app.shows_help = height % 2 == 1;
            screen(&app, width, height);
        }
    }
}

#[test]
fn what_is_old_refused_or_asked_is_seen() {
    let mut app = app();
    app.tick(14_000);
    let all = screen(&app, 80, 24).join("\n");
    assert!(all.contains("STALE for 14s: no answer yet") && all.contains("12,345/s"), "{all}");
    app.news(News::Lost("no server answers".to_owned()));
    assert!(screen(&app, 80, 24)[0].contains("STALE for 14s: no server answers"));
    app.news(News::Refused("no site dead.exmple; did you mean mx1.dead.example?".to_owned()));
    assert!(screen(&app, 80, 24)[23].contains("did you mean mx1.dead.example?"));
    let act = stentor_control::Request::Flush { site: None, dry_run: false };
    app.confirm = Some(PendingAction { question: 1, title: "Try it now".to_owned(), act, count: None });
    assert!(screen(&app, 80, 24).join("\n").contains("counting"));
    app.news(News::Counted(1, Ok("671 recipients of 12 messages".to_owned())));
    let all = screen(&app, 80, 24).join("\n");
    assert!(
        all.contains("Try it now?")
            && all.contains("affects 671 recipients of 12 messages.")
            && all.contains("y: confirm")
    );
}

#[test]
fn charts_are_braille_or_ascii() {
    let mut app = app();
    let braille = |rows: &[String]| rows.join("").chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
    assert!(braille(&screen(&app, 80, 24)) > 4);
    app.is_utf8 = false;
    let rows = screen(&app, 80, 24);
    assert!(braille(&rows) == 0 && rows.iter().all(|row| row.is_ascii()), "{rows:?}");
}

#[test]
fn actions_are_in_words() {
    let said = |kind: &str, text: &str| {
        let event = EventNow { kind: kind.to_owned(), text: text.to_owned(), ..EventNow::default() };
        tables::event_text(&event)
    };
    let suspend = r#"suspend by uid=0(root) pid=7: {"reason":null,"what":"site:mx.example"}"#;
    assert_eq!(said("audit", suspend), "suspend by root: site mx.example");
    let hold = r#"hold by user=ann address=192.0.2.1: {"ids":["A","B"],"recipients":3}"#;
    assert_eq!(said("audit", hold), "hold by ann: ids A B, recipients 3");
    for (kind, text) in [("audit", "flush by uid=0: "), ("audit", "x"), ("deferred", "a: {}")] {
        assert_eq!(said(kind, text), text);
    }
}

#[test]
fn sites_have_room_for_their_reasons() {
    let mut app = app();
    let Some(s) = app.snapshot.as_mut() else { panic!("it is shown") };
    (s.sites_total, s.domains_total) = (3, 2);
    s.by_pending[0].last_reply = "452 4.2.2 mailbox full, try again".to_owned();
    s.by_pending.push(SiteNow {
        site: "dnsfail.example".to_owned(),
        waiting: 363,
        lane: "unknown".to_owned(),
        waits_for: "DNS lookup failed".to_owned(),
        ..SiteNow::default()
    });
    app.view = View::Sites;
    let all = screen(&app, 80, 24).join("\n");
    for wanted in [
        "2 of 1 site and 2 unresolved domains",
        "452 4.2.2 mailbox full, try",
        "unresolved  dnsfail.example DNS lookup failed",
    ] {
        assert!(all.contains(wanted), "{wanted}\n{all}");
    }
}
