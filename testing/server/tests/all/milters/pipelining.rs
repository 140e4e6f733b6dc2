//! Header and body go to a milter without a wait for each answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use stentor_harness::{Server, message, message_with};

use super::script::{Does, Milter, says};
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
            vec![Does::Raw(Vec::new())]
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
        _ if has_refused.load(Ordering::Relaxed) && !answers_the_rest => vec![Does::Raw(Vec::new())],
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
