use super::*;
use crate::civil::Zone;
use crate::record::To;

const NOW: Ms = 1_795_258_465_123;

fn accepted(id: &'static str, recipients: u64) -> Record<'static> {
    Record::Accepted(Accepted {
        at: NOW,
        id,
        from: "ann@home.example",
        size: 4_096,
        recipients,
        message_id: "<1@x>",
        client: Some("192.0.2.1".parse().unwrap()),
        proto: "ESMTP",
        policy: "relay: client network 192.0.2.0/24",
        ..Accepted::default()
    })
}

fn attempt<'a>(id: &'a str, to: &[&'a str], mailer: &'a str, stat: Stat, after: Ms) -> Record<'a> {
    let to: To<'a> = to.iter().copied().collect();
    let reply = if stat == Stat::Sent { "250 2.0.0 ok" } else { "no" };
    let (host, ip) =
        if mailer == "esmtp" { ("mx.example.org", Some("192.0.2.34".parse().unwrap())) } else { ("", None) };
    let (port, dsn) = (if ip.is_some() { 25 } else { 0 }, if stat == Stat::Sent { "2.0.0" } else { "4.4.1" });
    let at = NOW + after;
    Record::Attempt(Attempt {
        at,
        id,
        to,
        mailer,
        host,
        ip,
        port,
        dsn,
        stat,
        reply,
        delay_ms: after,
        ..Attempt::default()
    })
}

fn story(what: &str, records: &[Record<'_>]) -> MailTrace {
    let mut story = MailTrace::new(what);
    for record in records {
        story.add(record);
    }
    story
}

fn run() -> Vec<Record<'static>> {
    vec![
        accepted("Q1", 3),
        accepted("Q2", 1),
        attempt("Q1", &["a@x", "b@x"], "esmtp", Stat::Deferred, 1_000),
        attempt("Q1", &["c@y"], "esmtp", Stat::Sent, 1_500),
        attempt("Q1", &["a@x"], "esmtp", Stat::Sent, 120_000),
        attempt("Q1", &["b@x"], "esmtp", Stat::Bounced, 120_000),
        attempt("Q1", &["b@x"], "bounce", Stat::Bounced, 121_000),
        attempt("Q2", &["a@x"], "esmtp", Stat::Deferred, 1_000),
        Record::Refused(Refused { at: NOW, to: "A@X", reply: "450 4.2.1 later", step: "RCPT", ..Refused::default() }),
    ]
}

#[test]
fn a_message_is_told_by_its_id_with_all_its_recipients() {
    let story = story("q1", &run());
    assert_eq!(story.messages.len(), 1);
    let message = &story.messages[0];
    assert_eq!(message.sums, Sums { delivered: 2, bounced: 1, ..Sums::default() });
    assert_eq!((message.attempts.len(), message.pending()), (5, 0));
    let expected = "\
Q1  <1@x>
  2026-11-21 10:54:25.123  accepted: from <ann@home.example>, 4096 octets, 3 recipients, ESMTP from [192.0.2.1]
  policy      ordinary; relay: client network 192.0.2.0/24
  2026-11-21 10:54:26.123  deferred   a@x, b@x, 1.000 s after acceptance
              esmtp mx.example.org [192.0.2.34]:25, no TLS, xdelay 0.000 s: no (4.4.1)
  2026-11-21 10:54:26.623  sent       c@y, 1.500 s after acceptance
              esmtp mx.example.org [192.0.2.34]:25, no TLS, xdelay 0.000 s: 250 2.0.0 ok
";
    let text = story.text(&Zone::utc());
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with("              bounce: no (4.4.1)\n  state       2 delivered, 1 bounced\n\n"), "{text}");
}

#[test]
fn a_message_id_finds_its_messages_and_a_recipient_only_what_concerns_it() {
    let by_message_id = story("1@x", &run());
    assert_eq!(by_message_id.ids().collect::<Vec<_>>(), ["Q1", "Q2"]);
    assert_eq!(by_message_id.messages[1].state(), "1 deferred so far");
    let by_recipient = story("<a@X>", &run());
    assert_eq!(by_recipient.ids().collect::<Vec<_>>(), ["Q1", "Q2"]);
    let message = &by_recipient.messages[0];
    assert_eq!(message.accepted.as_ref().unwrap().size, 4_096);
    assert_eq!((message.attempts.len(), message.attempts[0].others), (2, 1));
    assert_eq!(message.state(), "1 delivered");
    assert_eq!(by_recipient.refusals.len(), 1);
    assert!(story("nobody@x", &run()).is_empty());
    assert_eq!(story("Q3", &[attempt("Q3", &["a@x"], "esmtp", Stat::Sent, 1)]).messages[0].state(), "1 delivered");
}

#[test]
fn a_domain_is_told_by_its_own_recipients() {
    let mut by_domain = MailTrace::new("Y");
    by_domain.mark_pending("Q1", "d@y");
    for record in &run() {
        by_domain.add(record);
    }
    by_domain.finish();
    let [message] = &by_domain.messages[..] else { panic!("{by_domain:?}") };
    let told: Vec<&str> = message.attempts.iter().flat_map(|attempt| attempt.to.iter().map(String::as_str)).collect();
    assert_eq!((told, message.sums), (vec!["c@y"], Sums { delivered: 1, ..Sums::default() }));
}

/// A failed session, or without a host a failed look-up, with the recipients that waited.
fn unreached<'a>(host: &'a str, domains: &[(&'a str, u64)], after: Ms) -> Record<'a> {
    let waiting = domains.iter().map(|(_, waiting)| waiting).sum();
    let unreached = crate::record::Unreached { site: host, waiting, domains: domains.to_vec() };
    Record::Attempt(Attempt {
        at: NOW + after,
        mailer: if host.is_empty() { "dns" } else { "esmtp" },
        host,
        ip: (!host.is_empty()).then(|| "192.0.2.35".parse().unwrap()),
        port: if host.is_empty() { 0 } else { 25 },
        dsn: "4.4.1",
        stat: Stat::Deferred,
        reply: if host.is_empty() { "SERVFAIL" } else { "Connection refused" },
        unreached: Some(Box::new(unreached)),
        ..Attempt::default()
    })
}

#[test]
fn failed_sessions_stand_between_acceptance_and_fate() {
    let records = [
        unreached("mx.y", &[("y", 9)], 0),
        accepted("Q1", 2),
        attempt("Q1", &["a@x"], "esmtp", Stat::Sent, 500),
        unreached("mx.y", &[("Y", 2), ("z", 5)], 1_000),
        unreached("mx.x", &[("x", 1)], 1_500),
        unreached("mx2.y", &[("y", 0)], 1_900),
        unreached("mx.y", &[("y", 3)], 61_000),
        attempt("Q1", &["c@y"], "esmtp", Stat::Sent, 120_000),
        unreached("mx.y", &[("y", 4)], 130_000),
    ];
    let mut told = MailTrace::new("Q1");
    for record in &records[1..] {
        told.add(record);
    }
    told.finish();
    let text = told.text(&Zone::utc());
    let expected = "\
  2026-11-21 10:54:25.623  sent       a@x, 0.500 s after acceptance
              esmtp mx.example.org [192.0.2.34]:25, no TLS, xdelay 0.000 s: 250 2.0.0 ok
  2026-11-21 10:54:26.123  connection for y failed 2 times, last 2026-11-21 10:55:26.123; 7 recipients were waiting
              esmtp mx.y [192.0.2.35]:25, xdelay 0.000 s: Connection refused (4.4.1)
  2026-11-21 10:54:27.023  connection for y failed; no recipient was deferred
              esmtp mx2.y [192.0.2.35]:25, xdelay 0.000 s: Connection refused (4.4.1)
  2026-11-21 10:56:25.123  sent       c@y, 120.000 s after acceptance
";
    let expected = expected.replace("120.000 s", "2 min 0 s");
    assert!(text.contains(&expected), "{text}");
    // A recipient that was never tried: the server says where it waits.
    let mut waits = MailTrace::new("d@y");
    waits.mark_pending("Q1", "d@y");
    for record in &records {
        waits.add(record);
    }
    waits.add(&unreached("", &[("y", 4)], 140_000));
    waits.finish();
    let times: Vec<_> = waits.messages[0].attempts.iter().map(|entry| (entry.stat, entry.at - NOW)).collect();
    assert_eq!(times, [("connect_failed", 0), ("connect_failed", 1_900), ("lookup_failed", 140_000)], "{waits:?}");
    assert!(waits.text(&Zone::utc()).contains("lookup of y failed; 4 recipients were waiting"));
    assert_eq!(waits.messages[0].state(), "no host has replied yet");
    "held by rule 1 (stentor.toml:5)".clone_into(&mut waits.messages[0].held);
    assert_eq!(waits.messages[0].state(), "held by rule 1 (stentor.toml:5)");
    // Nothing but its domain is known.
    let unknown = |what: &str| {
        let mut story = MailTrace::new(what);
        for record in &records {
            story.add(record);
        }
        story.finish();
        (story.messages.len(), story.unreached.len())
    };
    assert_eq!((unknown("nobody@z"), unknown("z"), unknown("w")), ((0, 1), (0, 1), (0, 0)));
}

#[test]
fn what_is_too_much_is_counted_and_the_sums_still_hold() {
    let names: Vec<String> = (0..1_000).map(|n| format!("u{n}@x")).collect();
    let mut story = MailTrace::new("Q1");
    story.add(&accepted("Q1", 1_001));
    for name in &names {
        story.add(&attempt("Q1", &[name], "esmtp", Stat::Sent, 1));
        story.add(&attempt("Q1", &[name], "esmtp", Stat::Sent, 2));
    }
    let message = &story.messages[0];
    assert_eq!((message.attempts.len(), message.attempts_left_out), (ATTEMPTS_MAX, 1_800));
    assert_eq!(message.sums, Sums { delivered: 1_000, untried: 1, ..Sums::default() });
    assert!(serde_json::to_string(&story).unwrap().contains("\"delivered\":1000"));
}

#[test]
fn nothing_from_the_network_reaches_the_terminal_unescaped() {
    let evil = "x\r\n\u{1b}[31m\u{202e}\\";
    let mut story = MailTrace::new("Q1");
    let Record::Accepted(mut a) = accepted("Q1", 1) else { unreachable!() };
    (a.from, a.message_id, a.client_host, a.proto, a.policy, a.list, a.tls) =
        (evil, evil, evil, evil, evil, evil, evil);
    story.add(&Record::Accepted(a));
    let Record::Attempt(mut a) = attempt("Q1", &[evil], "esmtp", Stat::Sent, 1) else { unreachable!() };
    (a.host, a.reply, a.dsn, a.source, a.tls, a.mailer) = (evil, evil, evil, evil, evil, evil);
    story.add(&Record::Attempt(a));
    story.add(&Record::Note(Note { at: NOW, id: "Q1", text: evil, ..Note::default() }));
    let text = story.text(&Zone::utc());
    assert_eq!(text.lines().count(), 8);
    assert!(text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "{text:?}");
}

#[test]
fn messages_that_are_left_out_count_once() {
    let ids: Vec<String> = (0..MESSAGES_MAX + 3).map(|n| format!("Q{n}")).collect();
    let mut story = MailTrace::new("ann@x");
    for _ in 0..3 {
        for id in &ids {
            story.add(&attempt(id, &["ann@x"], "esmtp", Stat::Deferred, 1));
        }
    }
    // A message that is shown after all.
    story.leave_out("Q7");
    story.finish();
    assert_eq!((story.messages.len(), story.messages_left_out), (MESSAGES_MAX, 3));
}

/// A rule sends the same mail for one address to two servers.
#[test]
fn copies_for_one_address_end_by_themselves() {
    let mut taken = accepted("Q1", 2);
    if let Record::Accepted(taken) = &mut taken {
        taken.marks = "a@x: copied to mx:b.example by rule 1 (stentor.toml:9)";
    }
    let tries = |stats: &[Stat]| {
        let tries = stats.iter().map(|stat| attempt("Q1", &["a@x"], "esmtp", *stat, 1_000));
        let records: Vec<_> = [taken.clone()].into_iter().chain(tries).collect();
        story("Q1", &records).messages[0].state()
    };
    assert_eq!(tries(&[Stat::Sent]), "1 delivered, 1 with no finished attempt");
    assert_eq!(tries(&[Stat::Sent, Stat::Deferred]), "1 delivered, 1 deferred so far");
    assert_eq!(tries(&[Stat::Deferred, Stat::Sent, Stat::Sent]), "2 delivered");
    assert_eq!(tries(&[Stat::Sent, Stat::Deferred, Stat::Bounced]), "1 delivered, 1 bounced");
    // A third one would be a repetition.
    assert_eq!(tries(&[Stat::Sent, Stat::Sent, Stat::Sent]), "2 delivered");
    // For recipients with one copy each, a second end is a repetition.
    let twice = [
        accepted("Q1", 2),
        attempt("Q1", &["a@x"], "esmtp", Stat::Sent, 1),
        attempt("Q1", &["a@x"], "esmtp", Stat::Sent, 2),
    ];
    assert_eq!(story("Q1", &twice).messages[0].state(), "1 delivered, 1 with no finished attempt");
}

/// Another recipient's copy has ended, and this one's record is the first one's.
#[test]
fn a_copy_that_waits_keeps_its_message_open() {
    let mut taken = accepted("Q1", 2);
    if let Record::Accepted(taken) = &mut taken {
        taken.marks = "a@x: copied to mx:b.example by rule 1 (stentor.toml:9)";
    }
    let of_recipient = |pending: u64| {
        let mut story = MailTrace::new("a@x");
        for _ in 0..pending {
            story.mark_pending("Q1", "a@x");
        }
        story.add(&taken);
        story.add(&attempt("Q1", &["a@x"], "esmtp", Stat::Sent, 1_000));
        story.finish();
        story.messages[0].state()
    };
    assert_eq!(of_recipient(1), "1 delivered, 1 with no finished attempt");
    assert_eq!(of_recipient(0), "1 delivered");
}

/// Also for a recipient whose first attempt comes after the release.
#[test]
fn holds_and_releases_stand_between_the_attempts() {
    let note = |after, text| Record::Note(Note { at: NOW + after, id: "Q1", text, ..Note::default() });
    let records = [
        accepted("Q1", 2),
        note(0, "held by rule 1 (stentor.toml:5)"),
        note(5_000, "released by uid 0 (root)"),
        attempt("Q1", &["ann@x"], "esmtp", Stat::Deferred, 6_000),
        attempt("Q1", &["bob@y"], "esmtp", Stat::Sent, 7_000),
        note(8_000, "held by uid 0 (root): a complaint"),
    ];
    for (what, sent) in [("Q1", true), ("ann@x", false)] {
        let mut story = MailTrace::new(what);
        story.expect("Q1");
        for record in &records {
            story.add(record);
        }
        story.finish();
        let text = story.text(&Zone::utc());
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
        let parts = ["accepted: ", "held by rule 1", "released by", "deferred", "held by uid 0 (root): a complaint"];
        let places = parts.map(at);
        assert!(places.is_sorted(), "{what}: {text}");
        assert_eq!(text.contains("bob@y"), sent, "{what}: {text}");
    }
}

#[test]
fn mail_refused_or_dropped_as_a_whole_is_found_by_recipient_and_message_id() {
    let records = [
        unreached("mx.y", &[("y", 9)], 0),
        Record::Refused(Refused {
            at: NOW,
            from: "ann@home.example",
            reply: "550 5.7.1 no",
            step: ".",
            recipients: 2,
            message_id: "<2@x>",
            named: ["bob@y", "cid@y"].into_iter().collect(),
            user: "uid 1000 (ann)",
            ..Refused::default()
        }),
        Record::Note(Note {
            at: NOW,
            id: "Q9",
            text: "discarded: ...",
            to: ["bob@y"].into_iter().collect(),
            message_id: "<3@x>",
            is_end: true,
            ..Note::default()
        }),
    ];
    let told = |what: &str, records: &[Record<'_>]| {
        let mut story = story(what, records);
        story.finish();
        story.text(&Zone::utc())
    };
    let refused = "refused at the end of the data: from <ann@home.example> to <bob@y>, <cid@y>, by uid 1000 (ann): 550 5.7.1 no\n";
    for what in ["BOB@y", "cid@y", "<2@x>", "2@x"] {
        let text = told(what, &records[..2]);
        assert!(text.contains(refused) && text.contains("Message-ID: <2@x>"), "{what}: {text}");
        assert!(!text.contains("Connection refused"), "{text}");
    }
    assert!(told("dan@z", &records).is_empty());
    let tempfail = Refused { at: NOW, to: "eve@y", reply: "450 4.7.1 later", step: "RCPT", ..Refused::default() };
    let text = told("eve@y", &[Record::Refused(tempfail)]);
    assert!(text.contains("  deferred at RCPT: from <> to <eve@y>,: 450 4.7.1 later"), "{text}");
    let text = told("<3@X>", &records);
    assert!(text.starts_with("Q9  <3@x>\n  discarded   bob@y\n"), "{text}");
}

/// Quarantined mail waits for no host, whatever fails meanwhile.
#[test]
fn mail_in_the_quarantine_has_no_failures_of_other_mail() {
    let records = [
        accepted("Q1", 1),
        unreached("mx.y", &[("y", 9)], 500),
        attempt("Q1", &["c@y"], "quarantine", Stat::Quarantined, 1_000),
        unreached("mx.y", &[("y", 9)], 2_000),
        attempt("Q1", &["c@y"], "operator", Stat::Removed, 3_000),
    ];
    let mut story = story("Q1", &records);
    story.finish();
    let stats: Vec<_> = story.messages[0].attempts.iter().map(|attempt| attempt.stat).collect();
    assert_eq!((stats, story.messages[0].state()), (vec!["quarantined", "removed"], "1 removed".to_owned()));
}

#[test]
fn a_sender_is_the_one_that_the_client_gave_and_the_one_of_the_envelope() {
    let post = Record::Accepted(Accepted {
        id: "P1",
        from: "news-bounces@lists.example",
        orig_from: "Ann@home.example",
        list: "news",
        recipients: 1,
        ..Accepted::default()
    });
    let copy = Record::Attempt(Attempt {
        from: "news-bounces@lists.example",
        ..match attempt("P1", &["a@x"], "esmtp", Stat::Sent, 1_000) {
            Record::Attempt(attempt) => attempt,
            _ => unreachable!(),
        }
    });
    for sender in ["ann@home.example", "home.example", "@home.example", "news-bounces@lists.example"] {
        let mut story = MailTrace::of_sender(sender);
        for record in [&post, &copy] {
            assert!(story.is_about(&post), "{sender}");
            story.add(record);
        }
        assert_eq!(story.messages[0].sums.delivered, 1, "{sender}");
    }
    for other in ["bob@home.example", "example", ""] {
        assert!(!MailTrace::of_sender(other).is_about(&post), "{other}");
    }
}

#[test]
fn a_domain_may_be_written_with_its_at_sign() {
    for what in ["x", "@x", "@X"] {
        let story = story(what, &run());
        assert_eq!(story.messages.len(), 2, "{what}");
    }
}

#[test]
fn of_some_fates_nothing_else_is_left() {
    let mut story = story("x", &run());
    story.unreached.push(Try::default());
    story.only(&["bounced".to_owned()]);
    assert_eq!((story.messages.len(), story.refusals.len(), story.unreached.len()), (1, 0, 0));
    let mut story = self::story("x", &run());
    story.only(&["expired".to_owned()]);
    assert!(story.is_empty());
}

#[test]
fn since_a_time_the_state_of_a_message_is_that_of_all_its_attempts() {
    let since = |what: &str, after: Ms| {
        let mut story = MailTrace::new(what).since(NOW + after);
        for record in &run() {
            story.add(record);
        }
        story.finish();
        story
    };
    let told = since("Q1", 120_500);
    let [message] = &told.messages[..] else { panic!("{told:?}") };
    assert_eq!((message.state().as_str(), message.attempts.len(), message.earlier), ("2 delivered, 1 bounced", 1, 4));
    let text = told.text(&Zone::utc());
    assert!(text.contains("\n  earlier     4 records before 2026-11-21 10:56:25.623\n"), "{text}");
    // The message has no record that new: it is older, and a part of its records must not give it a state.
    assert!(since("Q1", 200_000).is_empty());
    let of_recipient = since("a@x", 60_000);
    assert_eq!(of_recipient.ids().collect::<Vec<_>>(), ["Q1"]);
    assert_eq!((of_recipient.messages[0].state().as_str(), of_recipient.refusals.len()), ("1 delivered", 0));
    // The server says that it is pending.
    let mut pending = MailTrace::new("Q2").since(NOW + 200_000);
    pending.mark_pending("Q2", "a@x");
    for record in &run() {
        pending.add(record);
    }
    pending.finish();
    assert_eq!(pending.messages[0].state(), "1 deferred so far");
}

/// If there are too many messages, the last ones with something to show are kept.
#[test]
fn behind_many_older_messages_a_state_is_whole_or_says_that_it_is_not() {
    let mut story = MailTrace::new("x.test").since(NOW + 1_000);
    let bounced = |id: &str, story: &mut MailTrace| {
        story.add(&attempt(id, &["a@x.test"], "esmtp", Stat::Bounced, 500));
    };
    let sent = |id: &str, story: &mut MailTrace| {
        story.add(&attempt(id, &["b@x.test"], "esmtp", Stat::Sent, 2_000));
    };
    bounced("FIRST", &mut story);
    for number in 0..OLDER_MAX {
        bounced(&format!("O{number}"), &mut story);
    }
    bounced("LAST", &mut story);
    sent("LAST", &mut story);
    // Tried once more before that time, like other deferred mail.
    story.add(&attempt("FIRST", &["b@x.test"], "esmtp", Stat::Deferred, 900));
    sent("FIRST", &mut story);
    story.finish();
    let states: Vec<_> =
        story.messages.iter().map(|message| (&*message.id, message.state(), message.is_earlier_unknown)).collect();
    let wanted = [("LAST", "1 delivered, 1 bounced", false), ("FIRST", "1 delivered", true)];
    assert_eq!(states, wanted.map(|(id, state, is_unknown)| (id, state.to_owned(), is_unknown)));
    assert!(
        story.text(&Zone::utc()).contains("\n  earlier     unknown: too many records before 2026-11-21 10:54:26.123")
    );
}

#[test]
fn messages_stand_in_the_order_of_acceptance() {
    let at = |record: Record<'static>, after: Ms| match record {
        Record::Accepted(r) => Record::Accepted(Accepted { at: NOW + after, ..r }),
        other => other,
    };
    let mut story = MailTrace::new("a@x");
    story.mark_pending("Q3", "a@x");
    for record in [
        at(accepted("Q1", 1), 0),
        at(accepted("Q2", 1), 1),
        at(accepted("Q3", 1), 2),
        attempt("Q2", &["a@x"], "esmtp", Stat::Sent, 10),
        attempt("Q1", &["a@x"], "esmtp", Stat::Sent, 20),
    ] {
        story.add(&record);
    }
    story.finish();
    assert_eq!(story.ids().collect::<Vec<_>>(), ["Q1", "Q2", "Q3"]);
}

/// Mail of others between a message's acceptance and its first attempt.
#[test]
fn an_acceptance_is_kept_for_a_message_that_is_expected_and_its_loss_is_said() {
    for is_expected in [true, false] {
        let mut story = MailTrace::new("a@x.test");
        if is_expected {
            story.expect("LATE");
        }
        story.add(&accepted("LATE", 1));
        for number in 0..=RECENT_MAX {
            let id: &'static str = Box::leak(format!("O{number}").into_boxed_str());
            story.add(&accepted(id, 1));
        }
        story.add(&attempt("LATE", &["a@x.test"], "esmtp", Stat::Sent, 2_000));
        story.finish();
        assert_eq!(story.messages[0].accepted.is_some(), is_expected);
        let text = story.text(&Zone::utc());
        assert_eq!(text.contains("or over 20,000 messages before its first attempt"), !is_expected, "{text}");
    }
}
