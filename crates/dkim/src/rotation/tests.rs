//! Random lives of a rotation: name servers that get records late or one by one, caches outside that keep an absence,
//! DNS answers that are missing, crashes between any two effects, and a clock that is set back.

use proptest::prelude::*;

use super::*;

const HOUR_MS: Ms = 3_600_000;
const DAY_MS: Ms = 24 * HOUR_MS;
const START: Ms = 1_796_040_000_000;
const NEGATIVE_TTL_S: u32 = 7_200;
const NEGATIVE_TTL_MS: Ms = NEGATIVE_TTL_S as Ms * 1_000;
const TIMES: RotationTimes =
    RotationTimes { rotate_ms: 30 * DAY_MS, publish_wait_ms: HOUR_MS, keep_ms: 12 * DAY_MS, file_ms: 30 * DAY_MS };
const SERVERS: usize = 3;

fn pair(selector: &str, is_urgent: bool, now: Ms) -> KeyPair {
    KeyPair {
        selector: selector.to_owned(),
        rsa_record: format!("v=DKIM1; k=rsa; p=R{}", selector.replace('-', "x")),
        ed25519_record: format!("v=DKIM1; k=ed25519; p=E{}", selector.replace('-', "x")),
        phase: KeyPhase::Created,
        since: now,
        cache_ms: 0,
        is_urgent,
        has_files: true,
    }
}

fn seen(selector: &str, sighting: Sighting) -> KeyObservation {
    KeyObservation { selector: selector.to_owned(), sighting, cache_ms: NEGATIVE_TTL_MS }
}

fn committed(step: Step) -> KeyRotation {
    match step {
        Step::Commit(next) => next,
        other => panic!("{other:?}"),
    }
}

fn phases(rotation: &KeyRotation) -> Vec<KeyPhase> {
    rotation.pairs.iter().map(|pair| pair.phase).collect()
}

#[test]
fn a_pair_is_used_after_its_record_was_seen_and_caches_forgot_its_absence() {
    let empty = KeyRotation::default();
    assert_eq!(empty.next(TIMES, &[], START), Step::Create { is_urgent: false });
    let mut state = empty.with(pair("a", false, START));
    for unseen in [vec![], vec![seen("a", Sighting::Unknown(String::new()))], vec![seen("b", Sighting::Everywhere)]] {
        assert_eq!(state.next(TIMES, &unseen, START + 99 * DAY_MS), Step::Wait { until: None });
    }
    state = committed(state.next(TIMES, &[seen("a", Sighting::Missing("ns".to_owned()))], START));
    assert_eq!((state.pairs[0].phase, state.pairs[0].cache_ms), (KeyPhase::Created, NEGATIVE_TTL_MS));
    let everywhere = [seen("a", Sighting::Everywhere)];
    state = committed(state.next(TIMES, &everywhere, START + 5));
    assert_eq!(phases(&state), [KeyPhase::Published]);
    let end = START + 5 + NEGATIVE_TTL_MS;
    assert_eq!(state.next(TIMES, &everywhere, end - 1), Step::Wait { until: Some(end) });
    assert_eq!(state.next(TIMES, &[], end), Step::Wait { until: Some(end) }, "it must be seen again");
    let lost = committed(state.next(TIMES, &[seen("a", Sighting::Nowhere)], end));
    assert_eq!(phases(&lost), [KeyPhase::Created]);
    state = committed(state.next(TIMES, &everywhere, end));
    assert_eq!((state.in_use().map(|pair| &*pair.selector), state.pairs[0].since), (Some("a"), end));
    assert_eq!(state.next(TIMES, &[], end), Step::Wait { until: Some(end + TIMES.rotate_ms) });
    assert_eq!(state.next(TIMES, &[], end + TIMES.rotate_ms), Step::Create { is_urgent: false });
    assert_eq!(state.next(TIMES, &[], 0), Step::Wait { until: Some(end + TIMES.rotate_ms) }, "a clock set back");
}

#[test]
fn the_old_record_stays_until_nothing_signed_with_it_is_on_its_way() {
    let old = KeyPair { phase: KeyPhase::InUse, ..pair("a", false, START) };
    let new = KeyPair { phase: KeyPhase::Published, ..pair("b", false, START) };
    let both = KeyRotation { pairs: vec![old, new] };
    let everywhere = [seen("b", Sighting::Everywhere), seen("a", Sighting::Everywhere)];
    let at = START + TIMES.publish_wait_ms;
    let mut state = committed(both.next(TIMES, &everywhere, at));
    assert_eq!(phases(&state), [KeyPhase::Retired, KeyPhase::InUse]);
    assert_eq!(state.next(TIMES, &everywhere, at + 1), Step::Wait { until: Some(at + TIMES.keep_ms) });
    let needed = |state: &KeyRotation| state.records("x.example").iter().map(|need| need.needed).collect::<Vec<_>>();
    assert_eq!(needed(&state), [RecordUse::Keep; 4]);
    state = committed(state.next(TIMES, &everywhere, at + TIMES.keep_ms));
    assert_eq!(phases(&state), [KeyPhase::Removable, KeyPhase::InUse]);
    assert_eq!(needed(&state), [RecordUse::Remove, RecordUse::Remove, RecordUse::Keep, RecordUse::Keep]);
    let zone = state.zone("x.example");
    assert!(zone.starts_with("b._domainkey.x.example. IN TXT (") && zone.lines().count() == 4, "{zone}");
    assert!(zone.ends_with("; remove a._domainkey.x.example. TXT\n; remove a-ed25519._domainkey.x.example. TXT\n"));
    let gone = [seen("a", Sighting::Nowhere), seen("b", Sighting::Everywhere)];
    let later = at + TIMES.keep_ms + 1;
    let files = Step::RemoveFiles { selector: "a".to_owned() };
    let long = RotationTimes { rotate_ms: 999 * DAY_MS, ..TIMES };
    assert_eq!(state.next(TIMES, &gone, later), files);
    assert_eq!(state.next(long, &everywhere, at + TIMES.keep_ms + TIMES.file_ms), files, "the record stays");
    state = committed(state.without_files("a").next(TIMES, &gone, later));
    assert_eq!(state.pairs.len(), 1);
}

#[test]
fn a_compromised_pair_is_replaced_without_waiting() {
    let state = KeyRotation { pairs: vec![KeyPair { phase: KeyPhase::InUse, ..pair("a", false, START) }] };
    assert_eq!(state.request(true), Ok(Some(Step::Create { is_urgent: true })));
    let waiting = state.with(pair("b", false, START));
    assert_eq!(waiting.request(false), Ok(None));
    let mut state = committed(waiting.request(true).unwrap().unwrap());
    assert_eq!(state.request(true), Ok(None));
    assert_eq!(state.in_use().map(|pair| &*pair.selector), Some("a"), "until the new record is seen");
    let everywhere = [seen("b", Sighting::Everywhere)];
    state = committed(state.next(TIMES, &everywhere, START + 1));
    state = committed(state.next(TIMES, &everywhere, START + 1));
    assert_eq!(phases(&state), [KeyPhase::Removable, KeyPhase::InUse]);
    let many =
        KeyRotation { pairs: (0..PAIRS_MAX).map(|n| state.pairs[0].in_phase(KeyPhase::Removable, n as Ms)).collect() };
    assert_eq!(many.request(false), Err(TooManyPairs));
    assert_eq!(many.next(TIMES, &[], 0), Step::Wait { until: Some(TIMES.file_ms) });
}

#[test]
fn lost_keys_are_given_up_and_records_of_signed_mail_stay() {
    let used = KeyPair { phase: KeyPhase::InUse, ..pair("a", false, START) };
    let state = KeyRotation { pairs: vec![used, pair("b", false, START)] };
    let lost = state.abandoning(&state.pairs[1], START + 1);
    assert_eq!(phases(&lost), [KeyPhase::InUse, KeyPhase::Removable]);
    let lost = lost.abandoning(&lost.pairs[0], START + 1);
    assert_eq!(phases(&lost), [KeyPhase::Retired, KeyPhase::Removable]);
    assert_eq!(lost.next(TIMES, &[], START + 1), Step::Create { is_urgent: false });
}

#[test]
fn selectors_are_dates_and_never_used_twice() {
    assert_eq!(KeyRotation::new_selector(START, |_| false), "s20261130");
    assert_eq!(KeyRotation::new_selector(START, |taken| taken == "s20261130" || taken == "s20261130-2"), "s20261130-3");
}

#[test]
fn sightings_need_every_server_and_exactly_our_record() {
    let pair = pair("a", false, START);
    let text = |text: &str| Ok(vec![TextRecord { text: text.as_bytes().to_vec(), ttl_s: 60 }]);
    let whole = |server: &str| ServerTexts {
        server: server.to_owned(),
        rsa: text(&pair.rsa_record),
        ed25519: text(&pair.ed25519_record),
    };
    let of = |servers: &[ServerTexts]| sight(&pair, servers, 30);
    assert_eq!(of(&[whole("a"), whole("b")]).sighting, Sighting::Everywhere);
    assert_eq!(of(&[whole("a")]).cache_ms, 30_000);
    assert!(matches!(of(&[]).sighting, Sighting::Unknown(_)));
    let silent = ServerTexts { ed25519: Err("no answer".to_owned()), ..whole("c") };
    assert_eq!(of(&[whole("a"), silent.clone()]).sighting, Sighting::Unknown("c: no answer".to_owned()));
    let empty = ServerTexts { rsa: Ok(Vec::new()), ed25519: Ok(Vec::new()), ..whole("d") };
    assert_eq!(of(&[empty.clone(), empty.clone()]).sighting, Sighting::Nowhere);
    assert_eq!(
        of(&[silent.clone(), empty.clone()]).sighting,
        Sighting::Missing("d has no record for the RSA key".to_owned())
    );
    let half = ServerTexts { rsa: Ok(Vec::new()), ..whole("e") };
    assert_eq!(of(&[whole("a"), half]).sighting, Sighting::Missing("e has no record for the RSA key".to_owned()));
    let other = ServerTexts { rsa: text("v=DKIM1; p=AAAA"), ..whole("f") };
    let observed = of(&[other]);
    assert_eq!(
        (observed.sighting, observed.cache_ms),
        (Sighting::Missing("f has another record for the RSA key".to_owned()), 60_000)
    );
    let twice = ServerTexts { rsa: Ok([text(&pair.rsa_record).unwrap(), text("x").unwrap()].concat()), ..whole("g") };
    assert_eq!(of(&[twice]).sighting, Sighting::Missing("g has several records for the RSA key".to_owned()));
}

/// Something that happens outside of the machine.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Real time passes, and so does the clock.
    Pass(Ms),
    /// The clock is set back.
    SetBack(Ms),
    /// The clock is set right again, while the server runs.
    SetRight,
    /// The operator gives one server the zone that is wanted now.
    Publish(usize),
    /// Somebody outside looks for the successor's record at a server and keeps an absence.
    OutsideQuery(usize),
    /// The server takes steps; it crashes after so many effects. `silent`: a name server that does not answer.
    Run {
        silent: Option<usize>,
        effects: usize,
    },
    Request {
        is_urgent: bool,
    },
    /// Mail is signed.
    Send,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..40 * HOUR_MS).prop_map(Event::Pass),
        1 => (20 * DAY_MS..45 * DAY_MS).prop_map(Event::Pass),
        1 => (0..60 * DAY_MS).prop_map(Event::SetBack),
        1 => Just(Event::SetRight),
        6 => (0..SERVERS).prop_map(Event::Publish),
        3 => (0..SERVERS).prop_map(Event::OutsideQuery),
        8 => (prop::option::weighted(0.2, 0..SERVERS), 0..6_usize)
            .prop_map(|(silent, effects)| Event::Run { silent, effects }),
        1 => any::<bool>().prop_map(|is_urgent| Event::Request { is_urgent }),
        3 => Just(Event::Send),
    ]
}

struct SignedMail {
    selector: String,
    expires: Ms,
}

/// An absence in a cache outside.
struct CachedAbsence {
    selector: String,
    expires: Ms,
}

/// Everything that outlives a crash, and the world around it.
struct World {
    durable: KeyRotation,
    files: Vec<String>,
    /// Selectors at each name server.
    servers: [Vec<String>; SERVERS],
    cached: Vec<CachedAbsence>,
    mail: Vec<SignedMail>,
    real: Ms,
    behind: Ms,
    requested: Option<bool>,
}

impl World {
    fn new() -> World {
        World {
            durable: KeyRotation::default(),
            files: Vec::new(),
            servers: Default::default(),
            cached: Vec::new(),
            mail: Vec::new(),
            real: START,
            behind: 0,
            requested: None,
        }
    }

    fn now(&self) -> Ms {
        self.real - self.behind
    }

    fn observe(&self, silent: Option<usize>) -> Vec<KeyObservation> {
        let text = |record: &str| vec![TextRecord { text: record.as_bytes().to_vec(), ttl_s: 60 }];
        let server = |at: usize, pair: &KeyPair| {
            let has = self.servers[at].contains(&pair.selector);
            let answer = |record: &str| match silent {
                Some(silent) if silent == at => Err("no answer".to_owned()),
                _ if has => Ok(text(record)),
                _ => Ok(Vec::new()),
            };
            ServerTexts { server: at.to_string(), rsa: answer(&pair.rsa_record), ed25519: answer(&pair.ed25519_record) }
        };
        let all = |pair: &KeyPair| (0..SERVERS).map(|at| server(at, pair)).collect::<Vec<_>>();
        self.durable.pairs.iter().map(|pair| sight(pair, &all(pair), NEGATIVE_TTL_S)).collect()
    }

    /// Takes steps until there is nothing to do, or the process crashes after `effects` effects.
    fn run(&mut self, silent: Option<usize>, mut effects: usize) {
        let mut crashed = || {
            effects = effects.saturating_sub(1);
            effects == 0
        };
        for _ in 0..20 {
            let observed = self.observe(silent);
            let step = match self.requested.take().map(|is_urgent| self.durable.request(is_urgent)) {
                Some(Ok(Some(step))) => step,
                _ => self.durable.next(TIMES, &observed, self.now()),
            };
            if !matches!(step, Step::Wait { .. }) && crashed() {
                return;
            }
            match step {
                Step::Create { is_urgent } => {
                    let taken = |selector: &str| {
                        self.files.iter().any(|file| file == selector) || self.durable.pair(selector).is_some()
                    };
                    let selector = KeyRotation::new_selector(self.now(), taken);
                    self.files.push(selector.clone());
                    if crashed() {
                        return;
                    }
                    let next = self.durable.with(pair(&selector, is_urgent, self.now()));
                    self.commit(next);
                }
                Step::Commit(next) => self.commit(next),
                Step::RemoveFiles { selector } => {
                    self.files.retain(|file| *file != selector);
                    if crashed() {
                        return;
                    }
                    let next = self.durable.without_files(&selector);
                    self.commit(next);
                }
                Step::Wait { .. } => return,
            }
        }
        panic!("steps without end: {:?}", self.durable);
    }

    fn commit(&mut self, next: KeyRotation) {
        let before = std::mem::replace(&mut self.durable, next);
        let of = |phase: KeyPhase| self.durable.pairs.iter().filter(move |pair| pair.phase == phase);
        assert!(of(KeyPhase::InUse).count() <= 1);
        assert!(of(KeyPhase::Created).count() + of(KeyPhase::Published).count() <= 1);
        assert!(before.in_use().is_none() || self.durable.in_use().is_some(), "a domain that signs goes on signing");
        for pair in &self.durable.pairs {
            let was = before.pair(&pair.selector).map(|pair| pair.phase);
            if pair.phase == KeyPhase::InUse && was != Some(KeyPhase::InUse) {
                assert!(self.servers.iter().all(|server| server.contains(&pair.selector)), "not published");
                let stale = |cached: &CachedAbsence| cached.selector == pair.selector && cached.expires > self.real;
                assert!(pair.is_urgent || !self.cached.iter().any(stale), "a cache outside has its absence");
            }
            if pair.phase == KeyPhase::Removable && was == Some(KeyPhase::Retired) {
                let on_its_way = |mail: &SignedMail| mail.selector == pair.selector && mail.expires > self.real;
                assert!(!self.mail.iter().any(on_its_way), "mail signed with it is on its way");
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Pass(ms) => self.real += ms,
            Event::SetBack(ms) => self.behind += ms,
            Event::SetRight => {
                self.behind = 0;
                let next = self.durable.after_jump(self.now());
                self.commit(next);
            }
            Event::Publish(at) => {
                let needs = self.durable.records("x.example");
                let wanted = needs.iter().filter(|need| need.needed != RecordUse::Remove);
                self.servers[at] = wanted.map(|need| need.pair.clone()).collect();
            }
            Event::OutsideQuery(at) => {
                if let Some(pair) = self.durable.successor().filter(|pair| !self.servers[at].contains(&pair.selector)) {
                    let expires = self.real + NEGATIVE_TTL_MS;
                    self.cached.push(CachedAbsence { selector: pair.selector.clone(), expires });
                }
            }
            Event::Run { silent, effects } => self.run(silent, if effects == 0 { 1_000 } else { effects }),
            Event::Request { is_urgent } => self.requested = Some(is_urgent),
            Event::Send => {
                if let Some(pair) = self.durable.in_use() {
                    assert!(self.files.contains(&pair.selector), "the key in use was lost");
                    assert!(self.servers.iter().all(|server| server.contains(&pair.selector)), "signed, not published");
                    let expires = self.real + TIMES.keep_ms;
                    self.mail.push(SignedMail { selector: pair.selector.clone(), expires });
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_life_signs_too_early_or_loses_a_key(events in prop::collection::vec(event(), 1..200)) {
        let mut world = World::new();
        for event in events {
            world.take(event);
        }
    }

    /// Whatever happened before, an operator who publishes what is wanted gets a new pair in use, and the old one goes.
    #[test]
    fn every_rotation_ends(events in prop::collection::vec(event(), 0..60)) {
        let mut world = World::new();
        for event in events {
            world.take(event);
        }
        world.take(Event::SetRight);
        for _ in 0..40 {
            world.run(None, 1_000);
            (0..SERVERS).for_each(|at| world.take(Event::Publish(at)));
            world.take(Event::Pass(20 * DAY_MS));
        }
        world.run(None, 1_000);
        let state = &world.durable;
        let newest = state.in_use().map(|pair| pair.since);
        prop_assert!(newest.is_some_and(|since| since + 80 * DAY_MS > world.real), "{state:?}");
        prop_assert!(state.pairs.len() <= 4, "{state:?}");
        for file in &world.files {
            let is_known = state.pair(file).is_some();
            prop_assert!(is_known || !world.servers.iter().any(|server| server.contains(file)), "{file}");
        }
    }
}
