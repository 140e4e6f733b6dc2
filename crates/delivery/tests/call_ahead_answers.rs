//! Converting next hops' replies to answers, and answers to replies for clients.

use stentor_config::UnverifiedAction;
use stentor_core::call_ahead::{CallAheadResult, ReasonTexts};
use stentor_delivery::call_ahead::{NO_HOST, answer_of, planned, refusal};
use stentor_mail::reply::Enhanced;
use stentor_queue::cause::Cause;
use stentor_queue::site::{Endpoint, Resolution, Target};
use stentor_smtp::client::{Extensions, ParsedReply, RcptResult, RcptStage};

fn said(stage: RcptStage, code: u16, enhanced: Option<(u8, u16, u16)>) -> String {
    let target = Target {
        preference: 0,
        host: "mx.inner".into(),
        addr: Endpoint::by_port(([192, 0, 2, 1], 25)),
        lmtp: false,
        posture: None,
    };
    let enhanced = enhanced.map(|(class, subject, detail)| Enhanced::new(class, subject, detail));
    let reply = ParsedReply { code, enhanced, text: "words".into() };
    match answer_of(&target, &RcptResult { reply, stage, blames: Extensions::NONE }) {
        Ok(CallAheadResult::Exists) => "exists".to_owned(),
        Ok(CallAheadResult::Refused(reply, log)) => format!("refused: {log} => {} {:?}", reply.code, reply.enhanced),
        Ok(CallAheadResult::Undecided(words)) => format!("undecided: {}", words.log),
        Err(words) => format!("site: {}", words.log),
    }
}

#[test]
fn only_a_refusal_of_the_recipient_refuses_it() {
    assert_eq!(said(RcptStage::Rcpt, 250, None), "exists");
    assert!(said(RcptStage::Rcpt, 550, None).starts_with("refused: mx.inner [192.0.2.1] said 550 words"));
    for (code, enhanced) in [(550, (5, 1, 1)), (554, (5, 1, 1)), (550, (5, 4, 1)), (501, (5, 1, 3)), (550, (5, 0, 0))] {
        assert!(said(RcptStage::Rcpt, code, Some(enhanced)).starts_with("refused"), "{code} {enhanced:?}");
    }
    for (code, enhanced) in [
        (450, Some((4, 1, 1))),
        (451, None),
        (554, Some((5, 7, 1))),
        (503, None),
        (501, Some((5, 5, 4))),
        (554, Some((5, 3, 0))),
        (554, None),
        (554, Some((5, 0, 0))),
        (550, Some((5, 1, 8))),
        (550, Some((5, 2, 1))),
        (552, Some((5, 2, 2))),
        (552, Some((5, 1, 1))),
        (552, None),
        (521, None),
    ] {
        assert!(said(RcptStage::Rcpt, code, enhanced).starts_with("undecided"), "{code} {enhanced:?}");
    }
    assert!(
        said(RcptStage::Mail, 550, Some((5, 7, 1)))
            .starts_with("site: mx.inner [192.0.2.1] said 550 5.7.1 words to MAIL")
    );
    assert!(said(RcptStage::Lost, 421, Some((4, 4, 2))).starts_with("undecided"));
}

#[test]
fn a_failure_defers_or_accepts_and_the_client_learns_of_no_host() {
    let answer =
        CallAheadResult::Undecided(ReasonTexts::new("its mail server is unreachable", "mx.inner [10.0.0.1]: refused"));
    let (reply, log) = refusal(answer.clone(), UnverifiedAction::Defer).unwrap();
    assert_eq!(reply.to_string(), "450 4.1.1 The recipient could not be verified: its mail server is unreachable");
    assert_eq!(&*log, "mx.inner [10.0.0.1]: refused");
    assert_eq!(refusal(answer, UnverifiedAction::Accept), None);
    assert_eq!(refusal(CallAheadResult::Exists, UnverifiedAction::Defer), None);
}

#[test]
fn a_refusal_keeps_its_code() {
    let target = Target {
        preference: 0,
        host: "mx.inner".into(),
        addr: Endpoint::by_port(([192, 0, 2, 1], 25)),
        lmtp: false,
        posture: None,
    };
    let heard = |code, enhanced| {
        let reply = ParsedReply { code, enhanced, text: "No such user".into() };
        let result = RcptResult { reply, stage: RcptStage::Rcpt, blames: Extensions::NONE };
        refusal(answer_of(&target, &result).unwrap(), UnverifiedAction::Accept).unwrap().0.to_string()
    };
    let told = "The recipient's mail server refused it:";
    assert_eq!(heard(550, None), format!("550 5.1.1 {told} 550 No such user"));
    let moved = Some(Enhanced::new(5, 1, 6));
    assert_eq!(heard(551, moved), format!("551 5.1.6 {told} 551 5.1.6 No such user"));
}

#[test]
fn a_domain_that_gets_no_mail_is_refused_and_one_that_cannot_be_looked_up_is_not() {
    for (dsn, text) in
        [((5, 1, 2), "the domain x.y does not exist"), ((5, 1, 10), "x.y does not accept mail (null MX)")]
    {
        let dsn = Enhanced::new(dsn.0, dsn.1, dsn.2);
        let answer = planned(Resolution::Permanent { dsn, text: text.to_owned() }).unwrap_err();
        for on_failure in [UnverifiedAction::Accept, UnverifiedAction::Defer] {
            let (reply, log) = refusal(answer.clone(), on_failure).unwrap();
            assert_eq!((reply.to_string(), &*log), (format!("550 {dsn} {NO_HOST}"), text));
        }
    }
    let answer =
        planned(Resolution::Temporary { cause: Cause::Dns, dsn: Enhanced::new(4, 4, 3), text: "SERVFAIL".to_owned() })
            .unwrap_err();
    assert_eq!(refusal(answer, UnverifiedAction::Accept), None);
}
