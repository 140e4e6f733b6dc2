//! Requests as lines: a written request reads back the same, and an invalid one is refused.

use super::*;

fn assert_round_trip(request: Request) {
    assert_eq!(Request::parse(request.to_line().as_bytes()), Ok(request));
}

#[test]
fn verbs_round_trip_as_requests() {
    let full = Selection {
        ids: vec![MessageId(45), MessageId(46)],
        sender: Some(String::new()),
        recipient: Some("@example.org".to_owned()),
        site: Some("mx.example.org".to_owned()),
        list: Some("news".to_owned()),
        subject: Some("A \"quoted\" word".to_owned()),
        age_s_min: Some(3600),
        age_s_max: Some(7200),
        as_of: Some(AsOf { next: 7, at: NOW }),
    };
    let all_then = Selection { as_of: full.as_of, ..Selection::default() };
    assert!(Request::parse(br#"{"v":1,"verb":"hold","as_of":"7.1"}"#).is_err(), "it is no selector");
    assert!(Request::parse(br#"{"v":1,"verb":"hold","list":"a","as_of":"7"}"#).is_err());
    assert!(Request::parse(br#"{"v":1,"verb":"bounce","list":"a","for_s":60,"as_of":"7.1"}"#).is_err());
    let refused = |line: &str| Request::parse(line.as_bytes()).is_err();
    assert!(refused(r#"{"v":1,"verb":"quarantine_release","subject":"a"}"#), "only headers of the queue are read");
    assert!(refused(r#"{"v":1,"verb":"bounce","subject":"a","for_s":60}"#), "mail that is to come has none yet");
    for selection in [Selection::default(), all_then, full] {
        for verb in Verb::ALL {
            for (dry_run, reason) in [(true, None), (false, Some("because".to_owned()))] {
                let mut selection = selection.clone();
                if verb == Verb::Resend {
                    continue;
                }
                if matches!(verb, Verb::QuarantineRelease | Verb::QuarantineDelete) {
                    (selection.site, selection.subject) = (None, None);
                }
                assert_round_trip(Request::Act { verb, selection, dry_run, reason });
            }
        }
        assert_round_trip(Request::Export { selection });
    }
    assert_round_trip(Request::Site { name: "mx.example".to_owned(), list: Some("news".to_owned()) });
    let selection = Selection { ids: vec!["00000000002D".parse().unwrap()], ..Selection::default() };
    assert_round_trip(Request::Act { verb: Verb::Resend, selection, dry_run: true, reason: Some("again".to_owned()) });
    assert!(refused(r#"{"v":1,"verb":"resend","list":"a"}"#) && refused(r#"{"v":1,"verb":"resend","all":true}"#));
    assert!(refused(r#"{"v":1,"verb":"resend","id":"00000000002d","list":"a"}"#));
    let one = Request::parse(br#"{"v":1,"verb":"hold","id":"00000000002d"}"#).unwrap();
    let selection = Selection { ids: vec!["00000000002D".parse().unwrap()], ..Selection::default() };
    assert_eq!(one, Request::Act { verb: Verb::Hold, selection, dry_run: false, reason: None });
}

#[test]
fn suspensions_round_trip_as_requests() {
    let text = || "dev".to_owned();
    for what in [
        Subject::List(text()),
        Subject::Sender("home.example".to_owned()),
        Subject::Site("mx.example".to_owned()),
        Subject::Subscriber { list: text(), address: "ann@home.example".to_owned() },
    ] {
        for (suspended, reason) in [(true, None), (false, Some("because".to_owned()))] {
            let (what, for_s) = (what.clone(), suspended.then_some(7_200));
            assert_round_trip(Request::Suspend { suspended, what, reason, for_s, dry_run: suspended });
        }
    }
    assert!(Request::parse(br#"{"v":1,"verb":"resume","list":"dev","dry_run":true}"#).is_err());
    for bad in
        ["", r#","sender":"a","site":"b""#, r#","subscriber":"a@b""#, r#","site":"a","for_s":0"#, r#","lists":"a""#]
    {
        assert!(Request::parse(format!(r#"{{"v":1,"verb":"suspend"{bad}}}"#).as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn queue_only_requests_round_trip() {
    for name in ["all", "class:bulk", "list:dev", "domain:x.example", "sender:", "client:10.0.0.0/8", "source:a"] {
        let scope = Scope::of_name(&format!("queue_only:{name}")).expect("a scope");
        for (is_on, for_s, dry_run) in [(true, None, false), (true, Some(7_200), true), (false, None, false)] {
            let reason = for_s.map(|_| "because".to_owned());
            assert_round_trip(Request::QueueOnly { scope: scope.clone(), is_on, for_s, dry_run, reason });
        }
    }
    for bad in [
        "",
        r#","list":"a","sender":"b""#,
        r#","class":"urgent""#,
        r#","all":true,"for_s":0"#,
        r#","all":true,"for_s":5,"end":true"#,
        r#","all":true,"end":true,"dry_run":true"#,
        r#","lists":"a""#,
    ] {
        assert!(Request::parse(format!(r#"{{"v":1,"verb":"queue_only"{bad}}}"#).as_bytes()).is_err(), "{bad}");
    }
    for (dry_run, reason) in [(true, None), (false, Some("because".to_owned()))] {
        assert_round_trip(Request::QueueRun { dry_run, reason });
    }
}

#[test]
fn standing_bounces_round_trip_as_requests() {
    for (standing, dry_run) in [(BounceTerm::For(7_200), false), (BounceTerm::For(1), true), (BounceTerm::End, false)] {
        let selection = Selection { sender: Some("@home.example".to_owned()), ..Selection::default() };
        assert_round_trip(Request::Bounce { selection, standing, dry_run, reason: Some("because".to_owned()) });
    }
    for bad in [
        r#""for_s":60"#,
        r#""for_s":60,"all":true"#,
        r#""for_s":60,"id":"00000000002D""#,
        r#""for_s":60,"recipient":"ann@home.example""#,
        r#""for_s":0,"list":"dev""#,
        r#""for_s":60,"sender":"""#,
        r#""for_s":60,"end":true,"list":"dev""#,
        r#""end":true,"dry_run":true,"list":"dev""#,
    ] {
        assert!(Request::parse(format!(r#"{{"v":1,"verb":"bounce",{bad}}}"#).as_bytes()).is_err(), "{bad}");
    }
    assert!(Request::parse(br#"{"v":1,"verb":"remove","list":"dev","for_s":60}"#).is_err());
}
