//! Call-ahead's cache: answers, questions and their lines, without a host (`core::call_ahead`).

use std::sync::Arc;

use stentor_config::Config;
use stentor_core::Settings;
use stentor_core::call_ahead::{
    ANSWERING_MS, ASKED_MAX, AnswerReceiver, CacheLookup, CallAhead, CallAheadQuery, CallAheadResult, ConnectionPermit,
    EntryOutcome, FAILED_MAX, FailureScope, LINE_AFTER_FAILURE_MAX, LINE_MAX, LINE_OF_CLIENT_MAX, NEW_MAX, Names,
    PLACES_MAX, Places, QueryTicket, REPLYING_MS, ReasonTexts, Responsiveness, SITES_MAX,
};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::Ms;
use stentor_queue::site::{SiteLimits, SitePlan};

fn config() -> Config {
    stentor_config::without_file().unwrap()
}

fn refused() -> CallAheadResult {
    CallAheadResult::Refused(Reply::fixed(550, Enhanced::new(5, 1, 1), "no"), "550 no".into())
}

fn undecided() -> CallAheadResult {
    CallAheadResult::Undecided(ReasonTexts::plain("451 later"))
}

/// Asks about an unknown recipient.
fn ask(all: &Arc<CallAhead>, key: &str, now: Ms) -> (QueryTicket, AnswerReceiver) {
    match all.look(key, now) {
        CacheLookup::Ask(ticket, awaited) => (ticket, awaited),
        _ => panic!("{key} is known or asked for at {now}"),
    }
}

fn known(all: &Arc<CallAhead>, key: &str, now: Ms) -> Option<CallAheadResult> {
    match all.look(key, now) {
        CacheLookup::Known(answer) | CacheLookup::Refresh(answer, _) => Some(answer),
        CacheLookup::Wait(_) | CacheLookup::Ask(..) | CacheLookup::Crowded => None,
    }
}

#[test]
fn an_address_is_asked_for_once_and_the_others_hear_the_same() {
    let (all, config) = (Arc::new(CallAhead::default()), config());
    let (ticket, first) = ask(&all, "a@x", 0);
    let CacheLookup::Wait(second) = all.look("a@x", 0) else { panic!("asked twice") };
    ticket.answer(refused(), &config.call_ahead, 0);
    assert_eq!((first.borrow().clone(), second.borrow().clone()), (Some(refused()), Some(refused())));
    // A question that is given up is closed.
    drop(ask(&all, "b@x", 0));
    drop(ask(&all, "b@x", 0));
}

#[test]
fn each_answer_is_good_for_its_own_time() {
    let (all, config) = (Arc::new(CallAhead::default()), config());
    let times = &config.call_ahead;
    for (key, answer, ttl) in [
        ("a@x", CallAheadResult::Exists, times.positive_ttl_ms),
        ("b@x", refused(), times.negative_ttl_ms),
        ("c@x", undecided(), times.failure_ttl_ms),
    ] {
        ask(&all, key, 5).0.answer(answer.clone(), times, 5);
        assert_eq!(known(&all, key, 4 + ttl), Some(answer));
        drop(ask(&all, key, 5 + ttl));
    }
}

#[test]
fn who_exists_is_asked_for_again_and_only_a_refusal_changes_that() {
    let (all, config) = (Arc::new(CallAhead::default()), config());
    let times = &config.call_ahead;
    ask(&all, "a@x", 0).0.answer(CallAheadResult::Exists, times, 0);
    let at = times.positive_refresh_ms;
    assert!(matches!(all.look("a@x", at - 1), CacheLookup::Known(CallAheadResult::Exists)));
    let CacheLookup::Refresh(CallAheadResult::Exists, ticket) = all.look("a@x", at) else {
        panic!("not asked for again")
    };
    // Meanwhile, others neither ask nor wait.
    assert!(matches!(all.look("a@x", at), CacheLookup::Known(CallAheadResult::Exists)));
    ticket.answer(undecided(), times, at);
    assert!(matches!(all.look("a@x", at + times.failure_ttl_ms - 1), CacheLookup::Known(CallAheadResult::Exists)));
    let CacheLookup::Refresh(CallAheadResult::Exists, ticket) = all.look("a@x", at + times.failure_ttl_ms) else {
        panic!("again")
    };
    ticket.answer(refused(), times, at);
    assert_eq!((known(&all, "a@x", at), all.entries()), (Some(refused()), (0, 1)));
    all.forget_refusals();
    drop(ask(&all, "a@x", at));
}

#[test]
fn guesses_do_not_push_out_who_exists() {
    let (all, mut config) = (Arc::new(CallAhead::default()), config());
    config.call_ahead.cache_entries_max = 10;
    ask(&all, "a@x", 0).0.answer(CallAheadResult::Exists, &config.call_ahead, 0);
    for n in 0..100 {
        ask(&all, &format!("guess{n}@x"), 0).0.answer(refused(), &config.call_ahead, 0);
    }
    assert_eq!((known(&all, "a@x", 1), all.entries()), (Some(CallAheadResult::Exists), (1, 10)));
    assert_eq!(known(&all, "guess99@x", 1), Some(refused()));
    drop(ask(&all, "guess0@x", 1));
}

#[test]
fn who_is_named_stays_though_a_host_takes_any_address() {
    let (all, mut config) = (Arc::new(CallAhead::default()), config());
    config.call_ahead.cache_entries_max = 10;
    let exists = |key: &str| ask(&all, key, 0).0.answer(CallAheadResult::Exists, &config.call_ahead, 0);
    exists("a@x");
    for n in 0..100 {
        exists(&format!("joe+{n}@x"));
        assert_eq!((known(&all, "a@x", 1), n), (Some(CallAheadResult::Exists), n));
    }
    assert_eq!(all.entries(), (10, 0));
    drop(ask(&all, "joe+90@x", 1));
    drop(ask(&all, "joe+0@x", 1));
}

#[test]
fn an_answer_that_comes_again_takes_one_place() {
    let (all, mut config) = (Arc::new(CallAhead::default()), config());
    let times = &mut config.call_ahead;
    (times.cache_entries_max, times.positive_refresh_ms) = (3, 1);
    for key in ["a@x", "b@x"] {
        ask(&all, key, 0).0.answer(CallAheadResult::Exists, times, 0);
    }
    for now in 1..10 {
        let CacheLookup::Refresh(_, ticket) = all.look("b@x", now) else { panic!("not asked for again") };
        ticket.answer(CallAheadResult::Exists, times, now);
    }
    assert_eq!((known(&all, "a@x", 9), all.entries()), (Some(CallAheadResult::Exists), (2, 0)));
}

#[test]
fn no_more_questions_are_open_than_there_may_be() {
    let all = Arc::new(CallAhead::default());
    let open: Vec<_> = (0..ASKED_MAX).map(|n| ask(&all, &format!("{n}@x"), 0)).collect();
    assert!(matches!(all.look("more@x", 0), CacheLookup::Crowded));
    drop(open);
    drop(ask(&all, "more@x", 0));
}

struct World {
    all: Arc<CallAhead>,
    settings: Arc<Settings>,
}

impl World {
    fn new() -> World {
        let settings = Arc::new(Settings::new(stentor_config::without_file().unwrap(), None));
        World { all: Arc::default(), settings }
    }

    fn enter(&self, site: &str, address: &str, now: Ms) -> EntryOutcome {
        self.enter_for([192, 0, 2, 1], site, address, now)
    }

    fn enter_for(&self, client: [u8; 4], site: &str, address: &str, now: Ms) -> EntryOutcome {
        let CacheLookup::Ask(ticket, _) = self.all.look(&format!("{address}>{site}"), now) else { panic!("known") };
        let limits = SiteLimits::default();
        let plan = SitePlan { key: site.into(), targets: Vec::new(), mixes_domains: false, limits, ttl_s: 60 };
        let settings = self.settings.clone();
        let (client, plan) = (client.into(), Arc::new(plan));
        let names = Names { stored: address.into(), generic: None };
        let question = CallAheadQuery { client, names, plan, settings, ticket, deadline: now + 1_000 };
        self.all.sites.enter(question, 2, now)
    }

    /// Whether a worker must be started.
    fn starts(&self, address: &str) -> bool {
        matches!(self.enter("mx", address, 0), EntryOutcome::Waits(Some(_)))
    }
}

#[test]
fn workers_are_started_as_questions_come_and_no_more_than_there_may_be() {
    let world = World::new();
    let sites = &world.all.sites;
    // One worker at first; another for the waiting questions once the host is known to reply, and no third.
    assert!(world.starts("a") && !world.starts("b"));
    assert!(sites.heard("mx", 0).is_some() && sites.heard("mx", 0).is_none() && !world.starts("c"));
    assert!(!sites.leave("mx"));
    let first = |question: Option<CallAheadQuery>| question.map(|question| question.names.stored.to_string());
    assert_eq!(first(sites.next("mx")).as_deref(), Some("a"));
    while sites.next("mx").is_some() {}
    // One worker is idle: it takes the next question.
    assert!(!world.starts("d"));
    sites.awake("mx");
    assert_eq!(first(sites.next("mx")).as_deref(), Some("d"));
    assert!(sites.leave("mx") && sites.leave("mx"));
    assert!(world.starts("e") && world.starts("f"), "it is known to reply");
}

#[test]
fn a_site_that_fails_is_not_asked_for_a_time() {
    let world = World::new();
    let sites = &world.all.sites;
    assert!(world.starts("a") && !world.starts("b") && !world.starts("c"));
    let why = ReasonTexts::plain("connection refused");
    let mut first = sites.next("mx");
    let FailureScope::Site(others) = sites.fail("mx", &mut first, &why, 0, 100) else { panic!("it answers nobody") };
    assert!(first.is_some());
    assert_eq!(others.len(), 2);
    drop(others);
    assert!(sites.leave("mx"));
    assert!(matches!(world.enter("mx", "b", 99), EntryOutcome::Failing(_, words) if words == why));
    assert!(matches!(world.enter("mx", "b", 100), EntryOutcome::Waits(Some(_))));
}

#[test]
fn a_site_that_answers_one_worker_does_not_fail_for_another() {
    let world = World::new();
    let sites = &world.all.sites;
    assert!(world.starts("a"));
    sites.replied("mx", 0);
    assert!(world.starts("b"));
    let (first, mut second) = (sites.next("mx"), sites.next("mx"));
    drop(first);
    let why = ReasonTexts::plain("421 too many connections");
    let (now, until) = (ANSWERING_MS - 1, ANSWERING_MS + 100);
    assert!(matches!(sites.fail("mx", &mut second, &why, now, until), FailureScope::Worker));
    // No further worker is tried; the remaining one has the question.
    assert!(!world.starts("c"));
    let mut given_back = sites.next("mx");
    assert_eq!(given_back.as_ref().map(|question| &*question.names.stored), Some("b"));
    assert!(matches!(sites.fail("mx", &mut given_back, &why, now, until), FailureScope::Question));
    let mut last = sites.next("mx");
    assert!(
        matches!(sites.fail("mx", &mut last, &why, ANSWERING_MS, until), FailureScope::Site(_)),
        "its last reply is too old"
    );
}

#[test]
fn clients_take_turns() {
    let world = World::new();
    let sites = &world.all.sites;
    for n in 0..LINE_OF_CLIENT_MAX {
        assert!(matches!(world.enter("mx", &format!("guess{n}"), 0), EntryOutcome::Waits(_)));
    }
    assert!(matches!(world.enter("mx", "guess", 0), EntryOutcome::Full(_)));
    let others = [([192, 0, 2, 2], "ann"), ([192, 0, 2, 2], "bob"), ([192, 0, 2, 3], "eve")];
    for (client, address) in others {
        assert!(matches!(world.enter_for(client, "mx", address, 0), EntryOutcome::Waits(_)));
    }
    let order: Vec<_> = std::iter::from_fn(|| sites.next("mx")).map(|next| next.names.stored.to_string()).collect();
    assert_eq!(order[..6], ["guess0", "ann", "eve", "guess1", "bob", "guess2"]);
    assert_eq!(order.len(), LINE_OF_CLIENT_MAX + others.len());
}

#[test]
fn questions_are_put_one_after_the_other_or_not_in_time() {
    let world = World::new();
    assert!(world.starts("a"));
    let turn = |deadline, now| world.all.sites.turn("mx", 10, deadline, now);
    assert_eq!((turn(1_000, 0), turn(1_000, 0), turn(1_000, 0)), (Some(0), Some(100), Some(200)));
    assert_eq!((turn(300, 0), turn(301, 0), turn(5_000, 2_000)), (None, Some(300), Some(2_000)));
}

#[test]
fn lines_and_sites_are_bounded() {
    let world = World::new();
    for n in 0..LINE_MAX {
        let client = [192, 0, 2, (n % 8) as u8];
        assert!(matches!(world.enter_for(client, "mx", &n.to_string(), 0), EntryOutcome::Waits(_)));
    }
    assert!(matches!(world.enter_for([192, 0, 2, 9], "mx", "more", 0), EntryOutcome::Full(_)));
    // Failing sites are kept until the failure expires, and no longer.
    for n in 1..SITES_MAX {
        let site = format!("mx{n}");
        assert!(matches!(world.enter(&site, "a", 0), EntryOutcome::Waits(_)));
        let mut question = world.all.sites.next(&site);
        drop(world.all.sites.fail(&site, &mut question, &ReasonTexts::plain("down"), 0, 100));
        assert!(world.all.sites.leave(&site));
    }
    assert!(matches!(world.enter("another", "a", 99), EntryOutcome::Full(_)));
    assert!(matches!(world.enter("another", "a", 100), EntryOutcome::Waits(_)));
}

/// Takes as many places as sites of this responsiveness may have.
fn all_places(places: &Places, responsiveness: Responsiveness) -> Vec<ConnectionPermit<'_>> {
    std::iter::from_fn(|| place(places, responsiveness)).collect()
}

/// Returns a place, if one is free now.
fn place(places: &Places, responsiveness: Responsiveness) -> Option<ConnectionPermit<'_>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(places.take(responsiveness)).poll(&mut context) {
        std::task::Poll::Ready(place) => Some(place),
        std::task::Poll::Pending => None,
    }
}

#[test]
fn sites_that_do_not_answer_leave_places_to_those_that_do() {
    let places = Places::default();
    let failed = all_places(&places, Responsiveness::Failed);
    let mut new = all_places(&places, Responsiveness::New);
    assert_eq!((failed.len(), new.len()), (FAILED_MAX, NEW_MAX));
    // The first reply of a new site makes room for another.
    new[0].pass();
    assert!(!new[0].is_on_trial() && new[1].is_on_trial());
    new.extend(place(&places, Responsiveness::New));
    assert_eq!(new.len(), NEW_MAX + 1);
    let replying = all_places(&places, Responsiveness::Replying);
    assert_eq!(replying.len(), PLACES_MAX - FAILED_MAX - NEW_MAX - 1);
    drop(failed);
    assert!(place(&places, Responsiveness::Replying).is_some());
}

#[test]
fn a_site_stands_as_it_answered_last() {
    let world = World::new();
    let sites = &world.all.sites;
    let why = ReasonTexts::plain("no answer in time");
    let responsiveness = |now| sites.responsiveness("mx", now);
    assert!(world.starts("a"));
    assert_eq!(responsiveness(0), Responsiveness::New);
    sites.unheard("mx", 0, &why);
    assert_eq!(responsiveness(0), Responsiveness::Failed, "it is asked, but after new ones");
    sites.replied("mx", 0);
    drop(sites.next("mx"));
    assert!(sites.leave("mx"));
    // A site's state outlives its workers.
    assert_eq!(
        (responsiveness(REPLYING_MS - 1), responsiveness(REPLYING_MS)),
        (Responsiveness::Replying, Responsiveness::New)
    );
    let at = REPLYING_MS - 1;
    assert!(matches!(world.enter("mx", "b", at), EntryOutcome::Waits(Some(_))));
    let mut question = sites.next("mx");
    assert!(matches!(sites.fail("mx", &mut question, &why, at, at + 100), FailureScope::Site(_)));
    assert!(sites.leave("mx"));
    for n in 0..LINE_AFTER_FAILURE_MAX {
        let starts = matches!(world.enter("mx", &n.to_string(), at + 100), EntryOutcome::Waits(Some(_)));
        assert_eq!((responsiveness(at + 100), starts), (Responsiveness::Failed, n == 0));
    }
    assert!(matches!(world.enter("mx", "more", at + 100), EntryOutcome::Full(_)));
}

#[test]
fn sites_that_reply_are_forgotten_before_the_line_is_refused() {
    let world = World::new();
    for n in 0..SITES_MAX {
        let site = format!("mx{n}");
        assert!(matches!(world.enter(&site, "a", 0), EntryOutcome::Waits(_)));
        drop(world.all.sites.next(&site));
        world.all.sites.replied(&site, 0);
        assert!(world.all.sites.leave(&site));
    }
    assert_eq!(world.all.sites.responsiveness("mx1", 1), Responsiveness::Replying);
    assert!(matches!(world.enter("another", "a", 1), EntryOutcome::Waits(_)));
}
