use std::sync::atomic::AtomicU64;

use stentor_config::keys::ApiToken;
use stentor_queue::ids::Ms;

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn config() -> HttpConfig {
    let token = |name: &str, read_only| ApiToken { name: name.into(), hash: keys::sha256(name.as_bytes()), read_only };
    HttpConfig {
        users: vec![("ann".to_owned(), keys::hash("a long password").unwrap())],
        tokens: vec![token("robot", false), token("reader", true)],
        session_ms: 1_000,
        ..HttpConfig::default()
    }
}

fn headers(pairs: &[(&'static str, String)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

fn at(ms: Ms) -> Clock {
    Clock::manual(Arc::new(AtomicU64::new(ms)))
}

fn caller(auth: &(Auth, HttpConfig), pairs: &[(&'static str, String)], now: Ms) -> Caller {
    auth.0.caller(&auth.1, &headers(pairs), (ADDRESS, 1).into(), &at(now))
}

#[test]
fn tokens_are_known_by_their_hash() {
    let auth = (Auth::default(), config());
    let bearer = |token: &str| caller(&auth, &[("authorization", format!("Bearer {token}"))], 0);
    let peer = bearer("robot").may_change(None).unwrap();
    assert_eq!(peer, Requester::Http { who: "token=robot".into(), address: ADDRESS });
    assert_eq!(bearer("reader").may_change(None).unwrap_err().status(), StatusCode::FORBIDDEN);
    for wrong in ["", "robots", "ann", "a long password"] {
        assert!(bearer(wrong).is_wrong);
        assert_eq!(bearer(wrong).may_change(None).unwrap_err().status(), StatusCode::UNAUTHORIZED);
    }
    let basic = caller(&auth, &[("authorization", "Basic robot".to_owned())], 0);
    assert!(basic.is_wrong);
    assert_eq!(caller(&auth, &[], 0).may_change(None).unwrap_err().status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_session_changes_things_with_its_own_form_until_it_ends() {
    let auth = (Auth::default(), config());
    let opened = auth.0.login(&auth.1, ADDRESS, "ann", "a long password".to_owned(), &at(0)).await.unwrap();
    let cookie = || ("cookie", format!("other=1; {COOKIE}={}", opened.id));
    let ann = caller(&auth, &[cookie()], 999);
    assert_eq!((ann.name(), ann.csrf()), (Some("ann"), Some(&*opened.session.csrf)));
    assert!(ann.may_change(Some(&opened.session.csrf)).is_ok());
    for csrf in [None, Some(""), Some("0"), Some(&*opened.id)] {
        assert_eq!(ann.may_change(csrf).unwrap_err().status(), StatusCode::FORBIDDEN);
    }
    let script = caller(&auth, &[cookie(), (CSRF_HEADER, opened.session.csrf.to_string())], 0);
    assert!(script.may_change(None).is_ok());
    assert_eq!(caller(&auth, &[cookie()], 1_000).login, None, "expired");
    auth.0.logout(&headers(&[cookie()]));
    assert_eq!(caller(&auth, &[cookie()], 0).login, None);
}

#[tokio::test(start_paused = true)]
async fn guessing_is_slowed() {
    let auth = (Auth::default(), config());
    for (user, password) in
        [("ann", "wrong"), ("bob", "a long password"), ("ann", ""), ("", ""), ("ann", "A long password")]
    {
        assert_eq!(
            auth.0.login(&auth.1, ADDRESS, user, password.to_owned(), &at(0)).await.unwrap_err(),
            LoginError::Wrong
        );
    }
    let right = || "a long password".to_owned();
    assert_eq!(auth.0.login(&auth.1, ADDRESS, "ann", right(), &at(0)).await.unwrap_err(), LoginError::Slow(1));
    assert!(
        auth.0.login(&auth.1, "192.0.2.1".parse().unwrap(), "ann", right(), &at(0)).await.is_ok(),
        "others do not wait"
    );
    assert!(auth.0.login(&auth.1, ADDRESS, "ann", right(), &at(1_000)).await.is_ok());
}

/// There are more guessers than places, each from its own address.
#[tokio::test(start_paused = true)]
async fn guessers_do_not_keep_out_who_is_at_home() {
    let auth = Arc::new(Auth::default());
    let config = Arc::new(config());
    let login = async |auth: Arc<Auth>, config: Arc<HttpConfig>, address: IpAddr, password: &str| {
        auth.login(&config, address, "ann", password.to_owned(), &at(0)).await.map(drop)
    };
    assert!(login(auth.clone(), config.clone(), ADDRESS, "a long password").await.is_ok());
    let guessers: Vec<_> = (0..200_u8)
        .map(|n| {
            let (auth, config) = (auth.clone(), config.clone());
            tokio::spawn(async move { login(auth, config, [198, 51, 100, n].into(), "wrong").await })
        })
        .collect();
    // Wait for all guessers: the line is full.
    while auth.strangers.place([192, 0, 2, 9].into()).is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(login(auth.clone(), config.clone(), ADDRESS, "a long password").await, Ok(()));
    let mut refused = [0, 0];
    for guesser in guessers {
        match guesser.await.unwrap() {
            Err(LoginError::Wrong) => refused[0] += 1,
            Err(LoginError::Slow(_)) => refused[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused[0] >= STRANGERS_WAITING_MAX && refused[1] > 0, "{refused:?}");
}

#[tokio::test]
async fn a_clock_that_is_set_changes_neither_waits_nor_sessions() {
    let (auth, clock) = (Auth::default(), Clock::start());
    let config = HttpConfig { session_ms: 60_000, ..config() };
    let opened = auth.login(&config, ADDRESS, "ann", "a long password".to_owned(), &clock).await.unwrap();
    for _ in 0..100 {
        auth.slow.lock().wrong(ADDRESS, "ann", clock.steady());
    }
    clock.follow(-10 * 3_600_000);
    let slow = auth.login(&config, ADDRESS, "ann", "a long password".to_owned(), &clock).await.unwrap_err();
    assert!(matches!(slow, LoginError::Slow(..=60)), "{slow}");
    clock.follow(20 * 3_600_000);
    let slow = auth.login(&config, ADDRESS, "ann", "a long password".to_owned(), &clock).await.unwrap_err();
    assert!(matches!(slow, LoginError::Slow(1..)), "{slow}");
    let cookie = [("cookie", format!("{COOKIE}={}", opened.id))];
    assert!(auth.caller(&config, &headers(&cookie), (ADDRESS, 1).into(), &clock).login.is_some());
}

#[test]
fn sessions_are_bounded() {
    let config = HttpConfig { session_ms: 1_000_000, ..config() };
    let (user, hash) = config.users[0].clone();
    let mut sessions = Sessions::default();
    let open = |n| sessions.open(&config, &user, &hash, n);
    let opened: Vec<NewSession> = (0..=sessions::SESSIONS_MAX as u64).map(open).collect();
    assert!(sessions.get(&config, &opened[0].id, 0).is_none());
    assert!(opened[1..].iter().all(|o| sessions.get(&config, &o.id, 0).is_some()));
}

#[tokio::test]
async fn what_a_reload_takes_away_ends_with_it() {
    let mut auth = (Auth::default(), config());
    let opened = auth.0.login(&auth.1, ADDRESS, "ann", "a long password".to_owned(), &at(0)).await.unwrap();
    let cookie = || ("cookie", format!("{COOKIE}={}", opened.id));
    let robot = || ("authorization", "Bearer robot".to_owned());
    assert!(caller(&auth, &[cookie()], 0).login.is_some() && caller(&auth, &[robot()], 0).login.is_some());
    auth.1.tokens.remove(0);
    assert!(caller(&auth, &[robot()], 0).is_wrong);
    auth.1.users[0].1 = keys::hash("another password").unwrap();
    assert_eq!(caller(&auth, &[cookie()], 0).login, None);
    auth.1.users.clear();
    assert_eq!(caller(&auth, &[cookie()], 0).login, None);
}

#[test]
fn hashes_are_checked_when_they_are_configured() {
    assert_eq!(keys::check_hash(&keys::hash("x").unwrap()), Ok(()));
    // Created in 2026 by argon2 0.5.
    let old = "$argon2id$v=19$m=19456,t=2,p=1$+wEaC+tY1DG2gS8J2LNVeg$XpRMRYfb86vUlm67JCyYfMvl9wzaYlnSWUUmPfNu4qw";
    assert!(keys::check_hash(old).is_ok() && keys::verify("correct horse", old) && !keys::verify("correct horsf", old));
    for bad in [
        "",
        "secret",
        "$argon2i$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g",
        "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ",
    ] {
        assert!(keys::check_hash(bad).is_err(), "{bad}");
    }
    assert_eq!(keys::unhex(&keys::hex(&keys::sha256(b"x"))), Some(keys::sha256(b"x")));
    assert_eq!(keys::unhex("zz"), None);
}
