//! Tests of valid files, and the errors of invalid ones.

use proptest::prelude::*;

use super::*;
use crate::limits::Limit;

pub(crate) const HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AQEBAQEBAQEBAQEBAQEBAQ$Yf4vEnRjF1Gf5UN0m7TMJcpkJOm3Tk0eLMkHRHRYzQU";
pub(crate) const SCRAM: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

#[test]
fn a_file_is_read() {
    let text = format!(
        "# ours\n\n[Ann@example.org]\npassword = {HASH}\nscram={SCRAM}\n\
         send_as = ann@example.org, *-bounces@lists.example.org @news.example.org\n\
         messages_per_hour_max = 200\nrecipients_per_day_max = 0\nlocked = yes\n[bob@example.org]\n  password = {HASH}\n"
    );
    let users = parse(FileKind::Own, &text).unwrap();
    assert_eq!(users.len(), 2);
    let ann = users.get("ANN@EXAMPLE.ORG").unwrap();
    assert!(ann.is_locked && ann.scram.is_some() && ann.hash.is_some());
    assert_eq!((ann.send_as.len(), ann.line), (3, 3));
    let limits = OwnLimits([Limit::AtMost(200), Limit::Default, Limit::Default, Limit::AtMost(0)]);
    assert_eq!(ann.limits, limits);
    assert!(
        ann.owns(&"x-bounces@lists.example.org".parse().unwrap()) && !ann.owns(&"bob@example.org".parse().unwrap())
    );
    let bob = users.get("bob@example.org").unwrap();
    assert!(!bob.is_locked && bob.owns(&"bob@example.org".parse().unwrap()));
    assert_eq!(users.iter().map(|user| user.line).collect::<Vec<_>>(), [3, 10]);
    assert!(parse(FileKind::Own, "").unwrap().is_empty());
}

#[test]
fn each_error_has_its_line_and_what_to_do() {
    for (text, line, why, help) in [
        ("password = x\n", 1, "belongs to no user", "[NAME] above"),
        ("\n[ann@x.example]\n", 2, "no password", "stentor user passwd ann@x.example"),
        ("[a\u{7}]\npassword = HASH\n", 1, "not a valid user name", "choose another"),
        ("[a]b]\npassword = HASH\n", 1, "contains brackets", "choose another"),
        ("[ann]\npassword = HASH\n", 1, "has no address to send as", "send_as ="),
        ("[a@x.example]\npassword = HASH\npasword = y\n", 3, "unknown key \"pasword\"", "valid keys: password"),
        ("[a@x.example]\npassword = HASH\npassword = HASH\n", 3, "twice", "delete one"),
        ("[a@x.example]\npassword = secret\n", 2, "not a valid argon2id hash", "stentor user passwd"),
        ("[a@x.example]\nscram = SCRAM-SHA-1$x\n", 2, "not of the form", "stentor user passwd"),
        ("[a@x.example]\npassword = HASH\nsend_as = b\n", 3, "neither an address", "@DOMAIN"),
        ("[a@x.example]\npassword = HASH\nlocked = maybe\n", 3, "neither yes nor no", "yes or no"),
        ("[a@x.example]\npassword = HASH\nmessages_per_hour_max = many\n", 3, "not a number", "limit for all users"),
        ("[a@x.example]\npassword = HASH\n[A@x.example]\npassword = HASH\n", 3, "twice", "line 1"),
        ("[a@x.example\n", 1, "neither [NAME]", "#"),
        ("hello\n", 1, "neither [NAME]", "#"),
    ] {
        let faults = parse(FileKind::Own, &text.replace("HASH", HASH)).unwrap_err();
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        let fault = &faults[0];
        assert_eq!(fault.line, line, "{text}: {fault}");
        assert!(fault.why.contains(why) && fault.help.contains(help), "{text}: {fault}");
    }
}

#[test]
fn all_errors_are_reported_up_to_a_limit() {
    assert_eq!(parse(FileKind::Own, "a\nb\n[c]\n").unwrap_err().len(), 4);
    assert_eq!(parse(FileKind::Own, &"x\n".repeat(1_000)).unwrap_err().len(), FAULTS_MAX);
    let many = format!("[a@x.example]\npassword = {HASH}\nsend_as = {}", "b@x.example,".repeat(SEND_AS_MAX + 1));
    assert!(parse(FileKind::Own, &many).unwrap_err()[0].why.contains("more than 500"));
    let fault = parse_octets(FileKind::Own, b"# ok\n\xff").unwrap_err().remove(0);
    assert_eq!((fault.line, fault.why.as_str()), (2, "not valid UTF-8"));
}

#[test]
fn the_word_of_an_error_holds_no_hash() {
    let faults =
        parse(FileKind::Own, "[a@x.example]\npassword = $argon2id$topsecret\nscram = topsecret\n").unwrap_err();
    assert!(faults.iter().all(|fault| !fault.to_string().contains("topsecret")), "{faults:?}");
}

proptest! {
    #[test]
    fn any_text_is_users_or_errors(text in "([\\[\\]a-z@.= \n#*]|send_as|locked|password){0,80}") {
        match parse(FileKind::Own, &text) {
            Ok(users) => prop_assert!(users.iter().all(|user| user.hash.is_some() || user.scram.is_some())),
            Err(faults) => prop_assert!(!faults.is_empty() && faults.iter().all(|fault| fault.line as usize <= text.lines().count())),
        }
    }

    #[test]
    fn any_text_of_local_settings_is_users_or_errors(text in "([\\[\\]a-z= \n#]|send_as|locked|password){0,60}") {
        if let Ok(users) = parse(FileKind::DovecotOverrides, &text) {
            prop_assert!(users.iter().all(|user| user.hash.is_none() && user.scram.is_none()));
        }
    }

    #[test]
    fn any_octets_are_users_or_errors(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_octets(FileKind::Own, &octets);
    }
}

#[test]
fn limits_are_numbers_or_words() {
    let text = format!(
        "[a@x.example]\npassword = {HASH}\nmessages_per_hour_max = none\nmessages_per_day_max = default\n\
         recipients_per_hour_max = 0\n"
    );
    let users = parse(FileKind::Own, &text).unwrap();
    let wanted = OwnLimits([Limit::None, Limit::Default, Limit::AtMost(0), Limit::Default]);
    assert_eq!(users.get("a@x.example").unwrap().limits, wanted);
}

#[test]
fn what_is_said_of_dovecots_users_has_no_passwords() {
    let users = parse(FileKind::DovecotOverrides, "[ann]\nlocked = yes\n[bob]\nsend_as = @x.example\n[eve]\n").unwrap();
    let of = |name| users.get(name).unwrap();
    assert!(of("ann").is_locked && of("ann").send_as.is_empty() && users.len() == 3);
    assert!(of("bob").owns(&"any@x.example".parse().unwrap()) && !of("bob").is_locked);
    for key in ["password", "scram"] {
        let faults = parse(FileKind::DovecotOverrides, &format!("[ann]\nlocked = yes\n{key} = {HASH}\n")).unwrap_err();
        assert_eq!((faults.len(), faults[0].line), (1, 3));
        assert!(faults[0].why.contains("Dovecot keeps the passwords"), "{faults:?}");
    }
    assert!(parse(FileKind::DovecotOverrides, "[ann]\n[ann]\n").is_err());
}
