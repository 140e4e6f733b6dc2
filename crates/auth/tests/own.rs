//! Tests of logins against a users file: each mechanism, guesses, locks, limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stentor_auth::{Authenticator, Channel, Counts, Login, LoginRefusal, Settings, Step, SubmissionCounts};
use stentor_sasl::{
    Bindings, ClientCapabilities, ClientCredentials, ClientExchange, Mechanism, MechanismChoice, Mechanisms, SaslError,
    choose,
};
use stentor_users::{FileKind, Limits, change, password};
use tokio::time::Instant;

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
    auth: Authenticator,
}

fn set(path: &Path, key: &str, value: Option<&str>) {
    change(FileKind::Own, path, |document| document.set("ann@example.org", key, value)).unwrap();
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    // The minimum of iterations: these tests derive keys all the time.
    let hash = password::hash("pencil", &[1; 16]).unwrap();
    let scram = stentor_sasl::ScramKeys::new("pencil", &[2; 16], 4_096).unwrap().to_string();
    change(FileKind::Own, &path, |document| {
        document.add("ann@example.org")?;
        document.set("ann@example.org", "password", Some(&hash))?;
        document.set("ann@example.org", "scram", Some(&scram))?;
        document.set("ann@example.org", "send_as", Some("ann@example.org, @lists.example.org"))
    })
    .unwrap();
    let settings = Settings::Users { path: path.clone(), secret: [7; 32] };
    let begun = Instant::now();
    let auth =
        Authenticator::open(&settings, Counts::default(), 1, move || begun.elapsed().as_millis() as u64).unwrap();
    Place { _folder: folder, path, auth }
}

fn channel(client: &str, bindings: Bindings) -> Channel {
    Channel {
        client: format!("{client}:4711").parse().unwrap(),
        local: "192.0.2.25:587".parse().unwrap(),
        is_secured: true,
        bindings,
    }
}

fn tls() -> Bindings {
    Bindings { exporter: Some([3; 32]), end_point: Some(vec![4; 32]) }
}

/// Logs in as our own client would, with or without an initial response.
async fn log_in_by(
    auth: &Authenticator,
    choice: &MechanismChoice,
    user: &str,
    secret: &str,
    channel: Channel,
    at_once: bool,
) -> Step {
    let account = ClientCredentials { user: user.to_owned(), secret: secret.into(), host: String::new(), port: 587 };
    let mut client = ClientExchange::new(choice, account, "client-nonce-of-some-length").unwrap();
    let mut exchange = auth.begin(choice.mechanism, channel, Mechanisms::all());
    let initial = client.initial();
    let mut step = exchange.step(initial.as_deref().filter(|_| at_once)).await;
    let mut is_initial_due = initial.is_some() && !at_once;
    loop {
        match step {
            Step::Challenge(octets) if is_initial_due => {
                assert_eq!(octets, b"");
                is_initial_due = false;
                step = exchange.step(initial.as_deref()).await;
            }
            Step::Challenge(octets) => {
                let response = client.respond(&octets).unwrap();
                step = exchange.step(Some(&response)).await;
            }
            Step::Done(login) => {
                client.finish().unwrap();
                return Step::Done(login);
            }
            Step::Refused(refusal) => return Step::Refused(refusal),
        }
    }
}

async fn log_in(auth: &Authenticator, mechanism: Mechanism, user: &str, secret: &str, client: &str) -> Step {
    let bindings = if mechanism == Mechanism::ScramSha256Plus { tls() } else { Bindings::default() };
    let choice = MechanismChoice::of(mechanism, &bindings);
    log_in_by(auth, &choice, user, secret, channel(client, bindings), true).await
}

fn done(step: Step) -> Login {
    match step {
        Step::Done(login) => login,
        other => panic!("{other:?}"),
    }
}

fn refused(step: Step) -> LoginRefusal {
    match step {
        Step::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

const OFFERED: [Mechanism; 4] =
    [Mechanism::ScramSha256Plus, Mechanism::ScramSha256, Mechanism::Plain, Mechanism::Login];

#[tokio::test(start_paused = true)]
async fn each_mechanism_lets_in_who_has_the_password() {
    let place = place();
    for mechanism in OFFERED {
        let bindings = if mechanism == Mechanism::ScramSha256Plus { tls() } else { Bindings::default() };
        for at_once in [true, false] {
            let channel = channel("192.0.2.1", bindings.clone());
            let choice = MechanismChoice::of(mechanism, &bindings);
            let step = log_in_by(&place.auth, &choice, "Ann@Example.org", "pencil", channel, at_once).await;
            let login = done(step);
            assert_eq!((&**login.user(), login.mechanism()), ("ann@example.org", mechanism));
            assert!(
                login.owns(&"x@lists.example.org".parse().unwrap()) && !login.owns(&"x@example.org".parse().unwrap())
            );
        }
    }
    for mechanism in [Mechanism::OauthBearer, Mechanism::Xoauth2, Mechanism::CramMd5] {
        let step = place.auth.begin(mechanism, channel("192.0.2.1", tls()), Mechanisms::all()).step(Some(b"x")).await;
        assert_eq!(refused(step), LoginRefusal::Mechanism);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_wrong_and_who_does_not_exist_are_told_the_same() {
    let place = place();
    for (n, mechanism) in OFFERED.into_iter().enumerate() {
        let client = format!("192.0.2.{n}");
        for (user, secret) in
            [("ann@example.org", "pen"), ("nobody@example.org", "pencil"), ("ann@example.org", "pencils")]
        {
            let refusal = refused(log_in(&place.auth, mechanism, user, secret, &client).await);
            assert_eq!(
                refusal.reply().to_string(),
                "535 5.7.8 Authentication credentials invalid",
                "{mechanism} {user}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn plus_is_offered_with_tls_and_its_absence_is_noticed() {
    let place = place();
    let (clear, secured) = (channel("192.0.2.1", Bindings::default()), channel("192.0.2.1", tls()));
    assert_eq!(place.auth.mechanisms(&clear).to_string(), "SCRAM-SHA-256 PLAIN LOGIN");
    assert_eq!(place.auth.mechanisms(&secured).to_string(), "SCRAM-SHA-256-PLUS SCRAM-SHA-256 PLAIN LOGIN");
    // An attacker has removed it from the list that the client sees.
    let bindings = tls();
    let capabilities =
        ClientCapabilities { is_token: false, allowed: Mechanisms::all(), is_protected: true, bindings: &bindings };
    let choice = choose(Mechanisms::parse("SCRAM-SHA-256 PLAIN"), &capabilities).unwrap();
    let step = log_in_by(&place.auth, &choice, "ann@example.org", "pencil", secured, true).await;
    assert_eq!(refused(step), LoginRefusal::Protocol(SaslError::Downgraded));
    let step = log_in_by(&place.auth, &choice, "ann@example.org", "pencil", clear, true).await;
    assert_eq!(&**done(step).user(), "ann@example.org");
}

#[tokio::test(start_paused = true)]
async fn guesses_are_slowed_and_a_right_one_in_between_is_not_said() {
    let place = place();
    for n in 0..5 {
        let refusal = refused(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "wrong", "192.0.2.1").await);
        assert_eq!(refusal, LoginRefusal::Wrong, "{n}");
    }
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        let refusal = refused(log_in(&place.auth, mechanism, "ann@example.org", "pencil", "192.0.2.1").await);
        assert!(matches!(refusal, LoginRefusal::Slow(1)), "{refusal:?}");
        assert!(refusal.reply().is_temporary());
    }
    // Others do not wait, and the delayed client can log in later.
    done(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "192.0.2.2").await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    done(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "192.0.2.1").await);
    assert_eq!(place.auth.users().1.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_tries_at_a_time_are_no_more_than_one_after_the_other() {
    let place = place();
    let all: Vec<_> = (0..100)
        .map(|n| {
            let auth = place.auth.clone();
            let secret = if n == 99 { "pencil".to_owned() } else { format!("guess {n}") };
            tokio::spawn(async move {
                refused_or_done(&log_in(&auth, Mechanism::ScramSha256, "ann@example.org", &secret, "192.0.2.1").await)
            })
        })
        .collect();
    let mut wrong = 0;
    for one in all {
        wrong += usize::from(one.await.unwrap() == Some(LoginRefusal::Protocol(SaslError::Wrong)));
    }
    assert!(wrong <= 6, "{wrong} were looked at");
}

fn refused_or_done(step: &Step) -> Option<LoginRefusal> {
    match step {
        Step::Refused(refusal) => Some(*refusal),
        _ => None,
    }
}

/// A client that supports binding and says that the server does not: legitimate if the operator disabled the bound
/// mechanism, otherwise an attack.
#[tokio::test(start_paused = true)]
async fn a_client_that_could_bind_is_judged_by_what_was_offered() {
    let place = place();
    let log_in = async |offered: Mechanisms| {
        let bindings = tls();
        let capabilities =
            ClientCapabilities { is_token: false, allowed: Mechanisms::all(), is_protected: true, bindings: &bindings };
        let choice = choose(Mechanisms::parse("SCRAM-SHA-256 PLAIN"), &capabilities).unwrap();
        let account = ClientCredentials {
            user: "ann@example.org".to_owned(),
            secret: "pencil".into(),
            host: String::new(),
            port: 587,
        };
        let mut client = ClientExchange::new(&choice, account, "client-nonce-of-some-length").unwrap();
        let mut exchange = place.auth.begin(choice.mechanism, channel("192.0.2.1", tls()), offered);
        let Step::Challenge(challenge) = exchange.step(client.initial().as_deref()).await else { return None };
        let Step::Challenge(proof) = exchange.step(client.respond(&challenge).as_deref().ok()).await else {
            return None;
        };
        Some(exchange.step(client.respond(&proof).as_deref().ok()).await)
    };
    done(log_in(Mechanisms::parse("SCRAM-SHA-256 PLAIN")).await.expect("it goes on"));
    assert!(log_in(Mechanisms::all()).await.is_none(), "possible attack");
}

/// After a change of the configuration the refusal is not a guess, and the client must not ask the user for another
/// password.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_older_than_the_configuration_is_asked_to_come_again() {
    let place = place();
    let mut half = place.auth.begin(Mechanism::Login, channel("192.0.2.1", tls()), Mechanisms::all());
    assert!(matches!(half.step(None).await, Step::Challenge(_)));
    place.auth.retire();
    assert_eq!(refused(half.step(Some(b"ann@example.org")).await), LoginRefusal::Unavailable);
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        let refusal = refused(log_in(&place.auth, mechanism, "ann@example.org", "pencil", "192.0.2.1").await);
        assert_eq!(refusal, LoginRefusal::Unavailable);
        assert!(refusal.reply().is_temporary() && !refusal.is_wrong_guess());
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_locks_a_user_out_by_guessing() {
    let place = place();
    done(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "198.51.100.1").await);
    for n in 0..30 {
        let client = format!("192.0.2.{n}");
        let _ = log_in(&place.auth, Mechanism::Plain, "ann@example.org", "wrong", &client).await;
    }
    let elsewhere = refused(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "203.0.113.1").await);
    assert!(matches!(elsewhere, LoginRefusal::Slow(_)), "{elsewhere:?}");
    done(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "198.51.100.1").await);
}

#[tokio::test(start_paused = true)]
async fn a_lock_a_new_password_and_a_removal_end_logins() {
    let place = place();
    let log_in =
        || async { done(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "192.0.2.1").await) };
    let sender = "ann@example.org".parse().unwrap();
    let other = |password: &str| password::hash(password, &[9; 16]).unwrap();
    let own = password::hash("pencil", &[1; 16]).unwrap();
    let changes: [(&str, String, Option<&str>); 2] =
        [("locked", "yes".to_owned(), None), ("password", other("pens"), Some(&own))];
    for (key, value, back) in changes {
        let login = log_in().await;
        let ended = tokio::spawn({
            let login = login.clone();
            async move { login.ended().await }
        });
        assert!(login.is_valid() && login.owns(&sender));
        set(&place.path, key, Some(&value));
        place.auth.refresh().await;
        ended.await.unwrap();
        assert!(!login.is_valid() && !login.owns(&sender));
        set(&place.path, key, back);
        place.auth.refresh().await;
    }
    let login = log_in().await;
    set(&place.path, "messages_per_hour_max", Some("1"));
    place.auth.refresh().await;
    assert!(login.is_valid(), "other changes end nothing");
    assert_eq!(login.limits(&Limits::default()).messages_per_hour_max, Some(1));
    change(FileKind::Own, &place.path, |document| document.remove("ann@example.org")).unwrap();
    place.auth.refresh().await;
    login.ended().await;
}

#[tokio::test(start_paused = true)]
async fn a_locked_users_password_cannot_be_told_from_a_wrong_one() {
    let place = place();
    set(&place.path, "locked", Some("yes"));
    place.auth.refresh().await;
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        let refusal = refused(log_in(&place.auth, mechanism, "ann@example.org", "pencil", "192.0.2.1").await);
        assert_eq!(refusal, LoginRefusal::Locked);
        let wrong = refused(log_in(&place.auth, mechanism, "ann@example.org", "pen", "192.0.2.1").await);
        assert_eq!((wrong.reply(), wrong.is_wrong_guess()), (refusal.reply(), refusal.is_wrong_guess()), "{wrong:?}");
    }
    // Nor by asking to act as another user, nor by delays.
    let plain = async |message: &[u8], client: &str| {
        let mut exchange = place.auth.begin(Mechanism::Plain, channel(client, tls()), Mechanisms::all());
        refused(exchange.step(Some(message)).await).reply()
    };
    for password in ["pencil", "pen"] {
        let message = format!("bob@example.org\0ann@example.org\0{password}");
        assert_eq!(plain(message.as_bytes(), "192.0.2.2").await, LoginRefusal::Wrong.reply(), "{password}");
    }
    let mut replies = Vec::new();
    for password in ["pencil", "pen"] {
        let other = self::place();
        set(&other.path, "locked", Some("yes"));
        other.auth.refresh().await;
        let mut codes = Vec::new();
        for _ in 0..8 {
            let refusal =
                refused(log_in(&other.auth, Mechanism::Plain, "ann@example.org", password, "192.0.2.3").await);
            codes.push(refusal.reply().code);
        }
        replies.push(codes);
    }
    assert!(replies[0].contains(&454), "it has to wait: {replies:?}");
    assert_eq!(replies[0], replies[1]);
}

#[tokio::test(start_paused = true)]
async fn nobody_acts_as_somebody_else() {
    let place = place();
    let plain = async |message: &[u8]| {
        place.auth.begin(Mechanism::Plain, channel("192.0.2.1", tls()), Mechanisms::all()).step(Some(message)).await
    };
    done(plain(b"Ann@example.org\0ann@example.org\0pencil").await);
    assert_eq!(refused(plain(b"bob@example.org\0ann@example.org\0pencil").await), LoginRefusal::Identity);
    assert!(matches!(refused(plain(b"nonsense").await), LoginRefusal::Protocol(_)));
}

#[tokio::test(start_paused = true)]
async fn limits_are_those_of_the_user() {
    let place = place();
    set(&place.path, "messages_per_hour_max", Some("2"));
    set(&place.path, "recipients_per_day_max", Some("3"));
    place.auth.refresh().await;
    let login = done(log_in(&place.auth, Mechanism::Plain, "ann@example.org", "pencil", "192.0.2.1").await);
    let taken = |n: usize, mut take: Box<dyn FnMut() -> bool>| (0..n).filter(|_| take()).count();
    let (auth, one) = (place.auth.clone(), login.clone());
    assert_eq!(taken(5, Box::new(move || auth.take_message(&one, &Limits::default()).is_ok())), 2);
    let (auth, one) = (place.auth.clone(), login.clone());
    assert_eq!(taken(5, Box::new(move || auth.take_recipient(&one, &Limits::default()).is_ok())), 3);
    place.auth.give_back(&login, 1, 1, 0);
    let user: Arc<str> = "ann@example.org".into();
    let wanted = SubmissionCounts { messages_hour: 1, messages_day: 1, recipients_hour: 2, recipients_day: 2 };
    assert_eq!(place.auth.amounts(&user), wanted);
}

/// Many concurrent guesses, the right one last: by then the client must wait, and gets the same reply for right and
/// wrong ones.
#[tokio::test(start_paused = true)]
async fn guesses_at_the_same_time_are_answered_alike() {
    const GUESSES: usize = 20;
    let place = place();
    for mechanism in [Mechanism::Plain, Mechanism::ScramSha256] {
        let client = if mechanism == Mechanism::Plain { "192.0.2.7" } else { "192.0.2.8" };
        let mut begun = Vec::new();
        for n in 0..GUESSES {
            let secret = if n + 1 == GUESSES { "pencil" } else { "wrong" };
            let account = ClientCredentials {
                user: "ann@example.org".to_owned(),
                secret: secret.into(),
                host: String::new(),
                port: 587,
            };
            let choice = MechanismChoice::of(mechanism, &Bindings::default());
            let mut peer = ClientExchange::new(&choice, account, "client-nonce-of-some-length").unwrap();
            let mut exchange = place.auth.begin(mechanism, channel(client, Bindings::default()), Mechanisms::all());
            let mut response = peer.initial().unwrap();
            if mechanism == Mechanism::ScramSha256 {
                // All get their challenge before the first proof is sent.
                let Step::Challenge(challenge) = exchange.step(Some(&response)).await else { panic!("no challenge") };
                response = peer.respond(&challenge).unwrap();
            }
            begun.push((exchange, response));
        }
        let mut tried = Vec::new();
        for (mut exchange, response) in begun {
            tried.push(tokio::spawn(async move { exchange.step(Some(&response)).await }));
            // Keep this order.
            tokio::task::yield_now().await;
        }
        let mut refusals = Vec::new();
        for one in tried {
            refusals.push(refused(one.await.unwrap()));
        }
        let is_wrong = |refusal: &&LoginRefusal| refusal.is_wrong_guess();
        assert!(refusals.iter().filter(is_wrong).count() <= 6, "{mechanism}: {refusals:?}");
        assert!(
            matches!(refusals[GUESSES - 2..], [LoginRefusal::Slow(_), LoginRefusal::Slow(_)]),
            "{mechanism}: {refusals:?}"
        );
    }
}
