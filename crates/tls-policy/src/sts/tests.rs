//! Tests of the cache's states, as in the table in `cache.rs`.

use super::*;

const DAY: u64 = REFRESH_MS;
const START: u64 = 1_800_000_000_000;

fn policy(max_age_s: u64) -> StsPolicy {
    StsPolicy { mode: StsMode::Enforce, max_age_s, mx: vec!["mx.a.test".to_owned()] }
}

fn id(id: &str) -> Record {
    Record::Id(id.to_owned())
}

fn failure(why: &str) -> FetchFailure {
    FetchFailure { kind: FetchFailureKind::Fetch, why: why.to_owned() }
}

fn wanted(id: &str, has_failed: bool) -> PolicyFetch {
    PolicyFetch { domain: "a.test".to_owned(), id: id.to_owned(), has_failed }
}

fn with_policy() -> Cache {
    let mut cache = Cache::default();
    assert_eq!(cache.consult("a.test", Some(&id("1")), START), PolicyLookup::Fetch(wanted("1", false)));
    cache.fetched("a.test", "1".to_owned(), Ok(policy(10 * 86_400)), START);
    cache
}

fn is_used(consulted: &PolicyLookup) -> bool {
    match consulted {
        PolicyLookup::Use(policy) => policy.is_some(),
        PolicyLookup::Fetch(wanted) => panic!("fetch {wanted:?}"),
    }
}

#[test]
fn without_a_record_there_is_no_policy_and_nothing_is_kept() {
    let mut cache = Cache::default();
    for record in [Some(Record::Absent), Some(Record::Invalid(RecordError::NoId)), None] {
        assert!(!is_used(&cache.consult("a.test", record.as_ref(), START)));
    }
    assert!(cache.is_empty() && !cache.take_changed());
}

#[test]
fn the_same_id_is_not_fetched_again() {
    let mut cache = with_policy();
    assert!(cache.take_changed() && !cache.take_changed());
    assert!(is_used(&cache.consult("a.test", Some(&id("1")), START + 9 * DAY)));
}

#[test]
fn a_record_that_is_gone_or_broken_takes_no_policy_away() {
    let mut cache = with_policy();
    for record in [Some(Record::Absent), Some(Record::Invalid(RecordError::Several)), None] {
        assert!(is_used(&cache.consult("a.test", record.as_ref(), START + 9 * DAY)));
        assert!(!is_used(&cache.consult("a.test", record.as_ref(), START + 10 * DAY)), "it is over");
    }
}

#[test]
fn another_id_is_fetched_and_a_failure_keeps_the_old_policy() {
    let mut cache = with_policy();
    let now = START + DAY;
    assert_eq!(cache.consult("a.test", Some(&id("2")), now), PolicyLookup::Fetch(wanted("2", false)));
    cache.fetched("a.test", "2".to_owned(), Err(failure("404")), now);
    assert!(cache.live("a.test", now).is_some());
    assert!(is_used(&cache.consult("a.test", Some(&id("2")), now + RETRY_MS - 1)), "not again so soon");
    assert!(is_used(&cache.consult("a.test", Some(&id("3")), now + 1)), "nor for one more id");
    // Long afterwards the failure is still known, even if nothing else is cached.
    assert!(cache.due(now + 2 * RETRY_MS, 10).is_empty());
    let later = now + 2 * RETRY_MS;
    assert_eq!(cache.consult("a.test", Some(&id("2")), later), PolicyLookup::Fetch(wanted("2", true)));
    cache.fetched("b.test", "1".to_owned(), Err(failure("404")), now);
    assert!(cache.due(later, 10).is_empty());
    assert!(matches!(cache.consult("b.test", Some(&id("9")), later), PolicyLookup::Fetch(wanted) if wanted.has_failed));
    assert_eq!(cache.about("a.test").1, Some(&failure("404")));
    cache.fetched("a.test", "2".to_owned(), Ok(policy(86_400)), now + RETRY_MS);
    assert_eq!(cache.about("a.test").0.map(|kept| &*kept.id), Some("2"));
    assert_eq!(cache.about("a.test").1, None);
}

#[test]
fn a_policy_that_was_never_there_does_not_stop_mail() {
    let mut cache = Cache::default();
    assert!(matches!(cache.consult("a.test", Some(&id("1")), START), PolicyLookup::Fetch(_)));
    cache.fetched("a.test", "1".to_owned(), Err(failure("no route")), START);
    assert!(!is_used(&cache.consult("a.test", Some(&id("1")), START + 1)));
    assert!(!cache.take_changed(), "failures are not written");
}

#[test]
fn what_is_used_is_refreshed_once_a_day_and_what_fails_once_an_hour() {
    let mut cache = with_policy();
    assert!(cache.due(START + DAY - 1, 10).is_empty());
    assert_eq!(cache.due(START + DAY, 10), [wanted("1", false)]);
    cache.fetched("a.test", "1".to_owned(), Err(failure("down")), START + DAY);
    assert!(cache.due(START + DAY + 30 * 60_000, 10).is_empty());
    assert_eq!(cache.due(START + DAY + 3_600_000, 10), [wanted("1", true)]);
    cache.fetched("a.test", "1".to_owned(), Ok(policy(10 * 86_400)), START + 2 * DAY);
    assert!(cache.due(START + 2 * DAY + 1, 10).is_empty());
    // There has been no use for a week.
    assert!(cache.due(START + 11 * DAY, 10).is_empty());
}

#[test]
fn a_short_policy_is_refreshed_before_it_is_over() {
    let mut cache = Cache::default();
    cache.fetched("a.test", "1".to_owned(), Ok(policy(3600)), START);
    assert!(cache.due(START + 1_799_999, 10).is_empty());
    assert_eq!(cache.due(START + 1_800_000, 10).len(), 1);
    assert!(cache.due(START + 3_600_000, 10).is_empty() && cache.is_empty(), "what is over is forgotten");
}

#[test]
fn it_survives_a_restart_and_a_damaged_file_is_known() {
    let mut cache = with_policy();
    cache.fetched("b.test", "1".to_owned(), Err(failure("x")), START);
    let text = write(&cache.policies());
    let (read, damaged) = Cache::read(text.as_bytes()).unwrap();
    assert_eq!((read.about("a.test").0, damaged), (cache.about("a.test").0, None));
    assert_eq!(read.len(), 1);
    for (text, error) in [
        ("", CacheError::Head),
        ("stentor mta-sts 2\n", CacheError::Head),
        (&text[..text.len() - 3], CacheError::Line(2)),
        (&text.replace("enforce", "maybe"), CacheError::Line(2)),
    ] {
        assert_eq!(Cache::read(text.as_bytes()).unwrap_err(), error, "{text}");
    }
    assert!(Cache::read(b"stentor mta-sts 1\n").unwrap().0.is_empty());
}

#[test]
fn a_line_that_cannot_be_read_takes_no_other_policy_away() {
    let mut cache = with_policy();
    cache.fetched("b.test", "1".to_owned(), Ok(policy(86_400)), START);
    cache.fetched("c.test", "1".to_owned(), Ok(policy(86_400)), START);
    let mut file = write(&cache.policies()).into_bytes();
    // Invalid UTF-8 in the second of three lines.
    let at = file.iter().enumerate().filter(|(_, octet)| **octet == b'\n').nth(1).unwrap().0;
    file[at + 4] = 0xff;
    let (read, damaged) = Cache::read(&file).unwrap();
    assert_eq!((read.len(), damaged), (2, Some(CacheError::Line(3))));
}

fn long_policy(octets: usize) -> StsPolicy {
    StsPolicy { mx: vec!["m".repeat(octets)], ..policy(100 * 86_400) }
}

#[test]
fn long_policies_do_not_fill_memory_and_make_no_short_ones_go() {
    let mut cache = with_policy();
    for n in 0..2_000 {
        let held = cache.fetched(&format!("{n}.evil.test"), "1".to_owned(), Ok(long_policy(60_000)), START);
        assert!(held.is_some(), "used, kept or not");
        let octets: usize = cache.policies().iter().map(|(_, kept)| kept.policy.mx[0].len()).sum();
        assert!(octets <= OCTETS_MAX, "{n}: {octets}");
    }
    assert!(cache.live("a.test", START).is_some());
    assert!(cache.len() > 400, "{}", cache.len());
    // Replaced entries are not counted twice.
    let before = cache.len();
    for _ in 0..1_000 {
        cache.fetched("a.test", "2".to_owned(), Ok(long_policy(50_000)), START);
        cache.fetched("a.test", "3".to_owned(), Ok(policy(86_400)), START);
    }
    assert!(cache.len() + 50 > before && cache.live("a.test", START).is_some());
}

#[test]
fn failures_take_the_place_of_no_policy() {
    let mut cache = Cache::default();
    for n in 0..DOMAINS_MAX - 10 {
        cache.fetched(&format!("{n}.test"), "1".to_owned(), Ok(policy(100_000)), START);
    }
    for n in 0..100 {
        cache.fetched(&format!("{n}.evil.test"), "1".to_owned(), Err(failure("slow")), START + n);
    }
    assert_eq!(cache.policies().len(), DOMAINS_MAX - 10);
    assert!(cache.len() <= DOMAINS_MAX);
    assert!(cache.about("99.evil.test").1.is_some() && cache.about("0.evil.test").1.is_none());
    // All have policies, and there is no room for failures.
    for n in 90..100 {
        cache.fetched(&format!("{n}.evil.test"), "1".to_owned(), Ok(policy(100_000)), START);
    }
    cache.fetched("more.test", "1".to_owned(), Err(failure("slow")), START);
    assert_eq!((cache.policies().len(), cache.len()), (DOMAINS_MAX, DOMAINS_MAX));
    assert!(cache.about("more.test").1.is_none());
}

#[test]
fn what_is_over_first_is_refreshed_first_and_what_failed_last() {
    let mut cache = Cache::default();
    for (domain, days) in [("failed", 2), ("late", 9), ("early", 3), ("soon", 4)] {
        cache.fetched(domain, "1".to_owned(), Ok(policy(days * 86_400)), START);
    }
    cache.fetched("failed", "1".to_owned(), Err(failure("slow")), START + 1);
    let due = |limit, cache: &mut Cache| -> Vec<String> {
        cache.due(START + DAY, limit).into_iter().map(|wanted| wanted.domain).collect()
    };
    assert_eq!(due(10, &mut cache), ["early", "soon", "late", "failed"]);
    assert_eq!(due(2, &mut cache), ["early", "soon"]);
}

#[test]
fn a_clock_that_was_far_ahead_keeps_no_policy_alive() {
    let mut cache = Cache::default();
    cache.fetched("a.test", "1".to_owned(), Ok(policy(86_400)), START + 300 * DAY);
    assert!(cache.live("a.test", START).is_none());
}

#[test]
fn it_has_a_limit_and_what_is_over_first_goes_first() {
    let mut cache = Cache::default();
    for n in 0..DOMAINS_MAX as u64 {
        cache.fetched(&format!("{n}.test"), "1".to_owned(), Ok(policy(100_000 + n)), START);
    }
    cache.fetched("new.test", "1".to_owned(), Ok(policy(1)), START);
    assert_eq!(cache.len(), DOMAINS_MAX - DOMAINS_MAX / 16 + 1);
    assert!(cache.live("0.test", START).is_none() && cache.live("65535.test", START).is_some());
    assert!(cache.live("new.test", START).is_some());
}

#[test]
fn a_policy_that_is_over_at_once_is_not_fetched_for_every_message() {
    let mut cache = Cache::default();
    cache.fetched("a.test", "1".to_owned(), Ok(policy(0)), START);
    assert!(!is_used(&cache.consult("a.test", Some(&id("1")), START)));
    assert!(matches!(cache.consult("a.test", Some(&id("1")), START + RETRY_MS), PolicyLookup::Fetch(_)));
}
