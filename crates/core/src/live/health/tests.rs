use stentor_mail::reply::Enhanced;

use super::*;

fn words(what: &str) -> ConditionTexts {
    ConditionTexts::new(what, "do something")
}

fn at(s: Ms) -> Moment {
    Moment { now: 1_790_000_000_000 + s * 1_000, steady: s * 1_000 }
}

fn counted(successes: u64, failures: u64) -> Observation {
    let tally = ServiceTally { successes, failures, why: String::new() };
    Observation::counted(Name::Dns, "", &tally, words("no name server answers"))
}

fn state(name: Name) -> Observation {
    Observation::holds(name, "", words(name.as_str()))
}

/// Seconds at which each condition was raised and ended, with one observation a second.
fn run(seconds: Ms, mut see: impl FnMut(Ms) -> Vec<Observation>) -> Vec<(Ms, bool, String)> {
    let mut ledger = Ledger::default();
    let mut changes = Vec::new();
    for s in 0..seconds {
        changes.extend(ledger.observe(at(s), see(s)).into_iter().map(|change| match change {
            ConditionChange::Raised(condition) => (s, true, condition.title()),
            ConditionChange::Ended(condition) => (s, false, condition.title()),
        }));
    }
    changes
}

#[test]
fn one_failed_look_up_is_none_and_two_without_a_success_are() {
    assert_eq!(run(600, |s| vec![counted(5, u64::from(s > 10))]), []);
    let failing = run(100, |s| vec![counted(5 + u64::from(s >= 50), s.saturating_sub(9).min(30))]);
    assert_eq!(failing, [(12, true, "dns".to_owned()), (50, false, "dns".to_owned())]);
    // A success in between.
    assert_eq!(run(600, |s| vec![counted(s / 2, s.div_ceil(2))]), []);
    // The second failure comes much later.
    assert_eq!(run(600, |s| vec![counted(1, u64::from(s > 10) + u64::from(s > 200))]), []);
}

#[test]
fn a_state_has_to_last_and_its_end_too() {
    let holds = |from: Ms, to: Ms| {
        move |s: Ms| if (from..to).contains(&s) { vec![state(Name::CertificateFile)] } else { Vec::new() }
    };
    assert_eq!(run(60, holds(10, 14)), [], "both files are replaced within seconds");
    let expected = [(15, true, "certificate_file".to_owned()), (30, false, "certificate_file".to_owned())];
    assert_eq!(run(60, holds(10, 30)), expected);
    // Full, with moments in between: one condition.
    let full =
        run(120, |s| if (10..60).contains(&s) && s % 10 > 0 { vec![state(Name::MemoryFull)] } else { Vec::new() });
    assert_eq!(full.len(), 2, "{full:?}");
}

#[test]
fn a_condition_refuses_mail_only_as_long_as_it_is_observed_to() {
    let mut ledger = Ledger::default();
    for s in 0..60 {
        // It fails until 20, is probed well from then on, and fails again at 40.
        let failures = if s < 20 { s } else { 20 + u64::from(s >= 40) };
        let tally = ServiceTally { failures, ..ServiceTally::default() };
        let may_work = (30..40).contains(&s) || s >= 50;
        let milter = Observation::counted(Name::Milter, "m", &tally, words("milter")).refusing(!may_work);
        ledger.observe(at(s), vec![milter]);
        if s > 5 {
            assert_eq!(ledger.conditions().len(), 1, "nothing shows that it works");
            assert_eq!(refuses_mail(&ledger.conditions()), !may_work, "{s}");
        }
    }
}

#[test]
fn what_clients_are_answered_is_forgotten_when_nobody_asks_any_more() {
    let tally = |s: Ms| ServiceTally { successes: 1, failures: s.min(20), why: String::new() };
    let seen = run(2_000, |s| vec![Observation::counted(Name::RecipientsDeferred, "", &tally(s), words("x"))]);
    assert_eq!(seen.iter().map(|(_, is_raised, _)| *is_raised).collect::<Vec<_>>(), [true, false]);
    assert_eq!(seen[1].0, 20 + 20);
}

#[test]
fn each_name_is_raised_within_fifteen_seconds_and_ends() {
    for name in Name::ALL {
        let seen = run(120, |s| if (20..70).contains(&s) { vec![state(*name)] } else { Vec::new() });
        assert_eq!(seen.len(), 2, "{name:?} {seen:?}");
        assert!(seen[0].0 - 20 <= 10, "{name:?} is raised after {} s", seen[0].0 - 20);
        assert!(seen[1].0 - 70 <= 30, "{name:?} ends after {} s", seen[1].0 - 70);
    }
    let mut names: Vec<_> = Name::ALL.iter().map(|name| name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), Name::ALL.len());
}

fn chance(rng: &mut fastrand::Rng, one_in: u32) -> bool {
    rng.u32(..one_in) == 0
}

/// A day on which the server is well: packets are lost, milters restart, hosts come and go, greylisting defers.
#[test]
fn nothing_is_said_during_a_day_on_which_all_is_well() {
    for seed in 0..2 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut dns, mut milter, mut rcpt) = ((0, 0), (0, 0), (0, 0));
        let mut restart: u64 = 0;
        let health = Health::default();
        let mut changes = Vec::new();
        for s in 0..86_400 {
            // A probe every five seconds; one in ten thousand is lost together with its retry.
            if s % 5 == 0 {
                if chance(&mut rng, 10_000) { dns.1 += 1 } else { dns.0 += 1 }
            }
            // Constant sessions; the milter fails one in fifty, and is restarted for a second once an hour.
            restart = if chance(&mut rng, 3_600) { 1 } else { restart.saturating_sub(1) };
            milter.0 += u64::from(restart == 0) * rng.u64(1..20);
            milter.1 += if restart > 0 { rng.u64(1..20) } else { u64::from(chance(&mut rng, 50)) };
            // Occasionally a recipient is deferred; the others are accepted.
            rcpt.1 += u64::from(chance(&mut rng, 4_000));
            rcpt.0 += u64::from(chance(&mut rng, 4));
            if chance(&mut rng, 2) {
                health.reach.reached([192, 0, 2, rng.u8(..100)].into(), s * 1_000);
            }
            let dead = reach::UnreachableHost {
                host: [198, 51, 100, rng.u8(..50)].into(),
                is_unroutable: false,
                why: "timed out",
            };
            health.reach.unreached(dead, s * 1_000);
            let tally = |(successes, failures)| ServiceTally { successes, failures, why: String::new() };
            let mut seen = vec![
                Observation::counted(Name::Dns, "", &tally(dns), words("dns")),
                Observation::counted(Name::Milter, "rspamd", &tally(milter), words("milter")),
                Observation::counted(Name::RecipientsDeferred, "", &tally(rcpt), words("rcpt")),
            ];
            // Files are replaced in two steps, Dovecot is restarted, the connections are full for a moment.
            for (name, lasts, one_in) in [
                (Name::CertificateFile, 2, 900),
                (Name::TableFile, 2, 300),
                (Name::Dovecot, 3, 1_800),
                (Name::ConnectionsFull, 3, 600),
            ] {
                if s % one_in < lasts {
                    seen.push(state(name));
                }
            }
            seen.extend(health.reach.trouble(s * 1_000).map(|why| Observation::holds(Name::Network, "", words(&why))));
            changes.extend(health.observe(at(s), seen));
        }
        assert_eq!(changes, [], "seed {seed}");
    }
}

#[test]
fn reports_last_until_they_are_taken_back() {
    let health = Health::default();
    health.report(Name::UsersFile, "users", Some(words("users: line 3")));
    let changes: Vec<_> = (0..10).flat_map(|s| health.observe(at(s), Vec::new())).collect();
    assert!(
        matches!(changes.as_slice(), [ConditionChange::Raised(condition)] if condition.what == "users: line 3"),
        "{changes:?}"
    );
    health.report(Name::UsersFile, "users", Some(words("users: line 4")));
    assert_eq!(health.observe(at(10), Vec::new()), []);
    assert_eq!(health.conditions()[0].what, "users: line 4", "the words follow");
    health.report_all(Name::UsersFile, []);
    assert!(matches!(health.observe(at(11), Vec::new()).as_slice(), [ConditionChange::Ended(_)]));
    assert!(health.conditions().is_empty());
}

#[test]
fn what_refuses_mail_is_the_headline() {
    let mut ledger = Ledger::default();
    for s in 0..20 {
        let mut seen = vec![state(Name::CertificateEnds), state(Name::Dns)];
        if s > 5 {
            seen.push(state(Name::DiskFull));
        }
        ledger.observe(at(s), seen);
    }
    let conditions = ledger.conditions();
    let names: Vec<_> = conditions.iter().map(|condition| condition.name.as_str()).collect();
    assert_eq!(names, ["disk_full", "dns", "certificate_ends"]);
    assert_eq!(headline(&conditions).as_deref(), Some("PROBLEM: refusing mail: disk_full (and 2 more)"));
    assert!(refuses_mail(&conditions) && !refuses_mail(&conditions[1..]));
    assert_eq!(headline(&conditions[2..]), None, "a warning is no headline");
    assert_eq!(conditions[0].since, at(6).now);
}

#[test]
fn conditions_are_bounded() {
    let mut ledger = Ledger::default();
    for s in 0..10 {
        let many = (0..5_000).map(|n| Observation::holds(Name::TableFile, format!("t{n}"), words("broken")));
        ledger.observe(at(s), many.collect());
    }
    assert_eq!(ledger.conditions().len(), SUBJECTS_MAX);
}

#[test]
fn deliberate_refusals_are_no_trouble_of_ours() {
    let replies = Replies::default();
    let answered = |reply: &Reply, whom| {
        replies.answered(reply, whom);
        (replies.known.read().failures, replies.untrusted.read().failures)
    };
    for (code, enhanced) in [
        (450, Enhanced::new(4, 7, 1)),
        (450, Enhanced::new(4, 2, 0)),
        (450, Enhanced::new(4, 1, 1)),
        (452, Enhanced::new(4, 5, 3)),
        (550, Enhanced::new(5, 1, 1)),
    ] {
        let reply = Reply::fixed(code, enhanced, "Greylisted, try again later");
        assert_eq!(answered(&reply, ClientKind::Stranger), (0, 0), "{reply}");
        assert_eq!(answered(&reply, ClientKind::User), (0, 0), "{reply}");
    }
    assert_eq!(answered(&Reply::plain(450, "Later"), ClientKind::Stranger), (0, 0));
    let unverified = Reply::fixed(450, Enhanced::new(4, 1, 1), "The recipient could not be verified");
    assert_eq!(answered(&unverified, ClientKind::Trusted), (0, 0));
    let greylisted = Reply::fixed(450, Enhanced::new(4, 2, 0), "Greylisted");
    assert_eq!(answered(&greylisted, ClientKind::Trusted), (1, 0), "a rule that defers everybody");
    let table = Reply::fixed(451, Enhanced::new(4, 3, 0), "A table cannot be asked");
    assert_eq!(answered(&table, ClientKind::User), (2, 0));
    assert_eq!(answered(&table, ClientKind::Stranger), (2, 1));
    assert_eq!(replies.untrusted.read().why, "451 4.3.0 A table cannot be asked");
    replies.answered(&Reply::fixed(250, Enhanced::new(2, 1, 5), "Ok"), ClientKind::Stranger);
    assert_eq!((replies.known.read().successes, replies.untrusted.read().successes), (1, 1));
}

#[test]
fn untrusted_clients_never_stop_mail() {
    let (mut ledger, replies) = (Ledger::default(), Replies::default());
    for s in 0..40 {
        if s < 10 {
            replies
                .answered(&Reply::fixed(451, Enhanced::new(4, 3, 0), "A table cannot be asked"), ClientKind::Stranger);
        }
        let (known, untrusted) = (replies.known.read(), replies.untrusted.read());
        ledger.observe(
            at(s),
            vec![
                Observation::counted(Name::RecipientsDeferred, "", &known, words("x")),
                Observation::counted(Name::UntrustedDeferred, "recipients", &untrusted, words("x")),
            ],
        );
        let conditions = ledger.conditions();
        assert!(!refuses_mail(&conditions));
        assert_eq!(conditions.len(), usize::from((3..29).contains(&s)), "{s}");
    }
}
