//! Header and body go to a milter without a wait for each answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stentor_harness::{Server, message, message_with, wait_until};

use super::script::{Milter, MilterAction, negotiated, says};
use super::{SENDER, TO, alone};

fn sends(server: &Server, subject: &str, code: u16) {
    let wire = message_with(&format!("{subject}@test"), &format!("Subject: {subject}\r\n"), "Hello\r\n");
    let _ = server.smtp().send(SENDER, &[TO], &wire).expect(code);
}

#[test]
fn a_milter_need_not_answer_a_field_before_the_body_comes() {
    // Its answers come all at once, behind the body. Who waits for each waits forever.
    let owed = AtomicUsize::new(0);
    let milter = Milter::start(move |command, _| match command {
        'L' | 'N' => {
            owed.fetch_add(1, Ordering::Relaxed);
            vec![MilterAction::Raw(Vec::new())]
        }
        'B' => vec![says('c', ""); owed.swap(0, Ordering::Relaxed) + 1],
        _ => Vec::new(),
    });
    let server = alone(&milter.config("late", "content_timeout_s = 60"));
    let _ = server.smtp().send(SENDER, &[TO], &message("late@test", "late")).expect(250);
    assert!(milter.commands().contains("NBE"), "{}", milter.commands());

    let one_by_one = "content_timeout_s = 0.3\npipelining = false";
    let server = alone(&milter.config("late", one_by_one));
    let _ = server.smtp().send(SENDER, &[TO], &message("late@test", "late")).expect(451);
    assert!(milter.commands().ends_with("TL") || milter.commands().ends_with("TLQ"), "{}", milter.commands());
}

/// A milter that refuses at a field, and of what it is told then answers all, or nothing until the next message.
fn refuses_at_a_field(answers_the_rest: bool) -> Milter {
    let has_refused = AtomicBool::new(false);
    Milter::start(move |command, data| match command {
        'O' | 'C' | 'H' | 'M' => {
            has_refused.store(false, Ordering::Relaxed);
            Vec::new()
        }
        'L' if data.starts_with(b"Subject\0bad") => {
            has_refused.store(true, Ordering::Relaxed);
            vec![says('r', "")]
        }
        _ if has_refused.load(Ordering::Relaxed) && !answers_the_rest => vec![MilterAction::Raw(Vec::new())],
        _ => Vec::new(),
    })
}

#[test]
fn an_early_decision_is_not_answered_by_what_follows() {
    for answers_the_rest in [false, true] {
        let milter = refuses_at_a_field(answers_the_rest);
        let server = alone(&milter.config("early", ""));
        let mut smtp = server.smtp();
        for (subject, code) in [("good", 250), ("bad", 550), ("good", 250), ("bad", 550), ("good", 250)] {
            let wire = message_with(&format!("{subject}@test"), &format!("Subject: {subject}\r\n"), "Hello\r\n");
            let _ = smtp.send(SENDER, &[TO], &wire).expect(code);
        }
        let commands = milter.commands();
        assert_eq!(commands.matches('O').count(), 2, "one connection is lost, and it is learnt: {commands}");
        let told: Vec<&str> = commands.split('M').collect();
        assert!(told[4].ends_with("LA") && !told[4].contains('N'), "told one thing at a time now: {commands}");
        // Another session's message, too.
        sends(&server, "bad", 550);
        sends(&server, "good", 250);
        assert_eq!(milter.commands().matches('O').count(), 4, "one for each session: {}", milter.commands());
    }
}

/// As many without a decision at MAIL, and MAIL is told with the first recipient.
const MAILS: usize = 100;

#[test]
fn mail_is_told_with_the_recipient_once_none_was_refused_for_long() {
    for (decision, answers_the_rest) in [('r', false), ('r', true), ('a', false), ('a', true)] {
        let (mails, bad) = (AtomicUsize::new(0), AtomicBool::new(false));
        let milter = Milter::start(move |command, data| match command {
            'M' => {
                let number = mails.fetch_add(1, Ordering::Relaxed);
                bad.store(data.starts_with(b"<bad@"), Ordering::Relaxed);
                match (bad.load(Ordering::Relaxed), number) {
                    (true, _) => vec![says(decision, "")],
                    // Who waits for this one waits forever.
                    (false, MAILS) => vec![MilterAction::Raw(Vec::new())],
                    (false, _) => Vec::new(),
                }
            }
            'R' if mails.load(Ordering::Relaxed) == MAILS + 1 => vec![says('c', ""), says('c', "")],
            'R' if bad.load(Ordering::Relaxed) && !answers_the_rest => vec![MilterAction::Raw(Vec::new())],
            _ => Vec::new(),
        });
        let server = alone(&milter.config("calm", "command_timeout_s = 60"));
        let mut smtp = server.smtp();
        for number in 0..=MAILS {
            smtp.send(SENDER, &[TO], &message(&format!("{number}@test"), "x")).expect(250);
        }
        // The refusal comes late, and is that of every recipient.
        let code = if decision == 'r' { 550 } else { 250 };
        smtp.cmd("MAIL FROM:<bad@home.example>").expect(250);
        smtp.cmd(&format!("RCPT TO:<{TO}>")).expect(code);
        smtp.cmd("RCPT TO:<eve@one.example>").expect(code);
        smtp.cmd("RSET").expect(250);
        smtp.send(SENDER, &[TO], &message("after@test", "x")).expect(250);
        // It is learnt.
        smtp.cmd("MAIL FROM:<bad@home.example>").expect(code);
        smtp.cmd("RSET").expect(250);
        smtp.send(SENDER, &[TO], &message("last@test", "x")).expect(250);
        let commands = milter.commands();
        assert_eq!(commands.matches('O').count(), 2, "one connection is lost: {commands}");
    }
}

#[test]
fn what_a_milter_decides_at_mail_counts_where_the_first_recipient_is_refused() {
    let mails = AtomicUsize::new(0);
    let milter = Milter::start(move |command, data| match command {
        // It wants to hear of recipients that we refuse.
        'O' => vec![negotiated(6, 0x1ff, 0x800)],
        'M' => {
            mails.fetch_add(1, Ordering::Relaxed);
            if data.starts_with(b"<bad@") { vec![says('d', "")] } else { Vec::new() }
        }
        _ => Vec::new(),
    });
    let rule = "[[rules]]\nrecipient = \"no@one.example\"\ndo = \"reject\"\n";
    let server = alone(&(milter.config("calm", "") + rule));
    let mut smtp = server.smtp();
    for number in 0..MAILS {
        smtp.send(SENDER, &[TO], &message(&format!("{number}@test"), "x")).expect(250);
    }
    smtp.cmd("MAIL FROM:<bad@home.example>").expect(250);
    smtp.cmd("RCPT TO:<no@one.example>").expect(550);
    smtp.cmd(&format!("RCPT TO:<{TO}>")).expect(250);
    smtp.cmd("DATA").expect(354);
    smtp.raw(&stentor_harness::dot_stuff(&message("gone@test", "x")));
    smtp.reply().expect(250);
    assert!(server.log().wait(&["discarded:", "milter calm"]).is_some());
}

#[test]
fn a_milter_whose_failure_is_ignored_is_tried_once_for_a_message() {
    // It takes the connection and says nothing.
    let milter = Milter::start(|_, _| vec![MilterAction::Stalls]);
    let server = alone(&milter.config("mute", "command_timeout_s = 0.3\ndefault_action = \"accept\""));
    let _ = server.smtp().send(SENDER, &[TO], &message("once@test", "x")).expect(250);
    // Its thread may be late to read what came.
    wait_until("it is asked", || !milter.commands().is_empty());
    assert_eq!(milter.commands(), "O");
}
