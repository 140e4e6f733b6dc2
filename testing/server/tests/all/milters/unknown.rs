//! Commands that SMTP does not know.

use stentor_harness::message;

use super::script::{Milter, negotiated, says};
use super::{SENDER, TO, alone};

#[test]
fn milters_hear_of_unknown_commands_once_they_know_the_client() {
    let milter = Milter::start(|command, data| match command {
        'U' if data.starts_with(b"EVIL") => vec![says('y', "554 5.7.1 Never say that\0")],
        _ => Vec::new(),
    });
    let server = alone(&milter.config("curious", ""));
    let mut smtp = server.smtp();
    smtp.cmd("EVIL before").expect(500);
    assert_eq!(milter.commands(), "", "it does not know the client yet");
    smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
    smtp.cmd("MIAL x").expect(500);
    let reply = smtp.cmd("EVIL twin").expect(554);
    assert!(reply.lines.join(" ").contains("Never say that"), "{reply:?}");
    // Known and not offered is not unknown.
    smtp.cmd("EXPN list").expect(502);
    smtp.cmd("RSET").expect(250);
    let _ = smtp.send(SENDER, &[TO], &message("unknown@test", "still taken")).expect(250);
    smtp.cmd("EVIL after").expect(554);
    assert_eq!(milter.told('U'), ["MIAL x|", "EVIL twin|", "EVIL after|"]);
    server.wait_log(&["milter curious refused an unknown command", "EVIL twin"]);
}

#[test]
fn who_does_not_want_unknown_commands_hears_of_none() {
    // SMFIP_NOUNKNOWN, and a version that has none.
    for (version, protocol) in [(6, 0x100), (2, 0)] {
        let milter = Milter::start(move |command, _| match command {
            'O' => vec![negotiated(version, 0, protocol)],
            _ => Vec::new(),
        });
        let server = alone(&milter.config("busy", ""));
        let mut smtp = server.smtp();
        smtp.cmd(&format!("MAIL FROM:<{SENDER}>")).expect(250);
        smtp.cmd("MIAL x").expect(500);
        assert_eq!(milter.told('U').len(), 0, "{}", milter.commands());
    }
}
