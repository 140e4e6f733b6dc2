//! Tests of listeners: `[listen] smtp`, `smtps`, `submission`.

use super::*;

const USERS: &str = "[auth]\nusers = \"users\"\n";

/// `address tls auth` of all listeners, with their keys.
fn shown(text: &str) -> Vec<String> {
    let read = config(text);
    let one = |(service, listener): (Service, &Listener)| {
        format!("{} {} {:?} {:?}", service.name(), listener.address, listener.tls, listener.auth)
    };
    read.listen.listeners().map(one).collect()
}

#[test]
fn an_address_alone_has_what_its_key_says() {
    let text = "[listen]\nsmtp = \"127.0.0.1:25\"\nsmtps = [\"127.0.0.1:465\"]\n\
                submission = [{ address = \"127.0.0.1:587\" }]\n";
    assert_eq!(
        shown(&format!("{text}{USERS}")),
        [
            "smtp 127.0.0.1:25 StartTls None",
            "smtps 127.0.0.1:465 Implicit Required",
            "submission 127.0.0.1:587 Required Required",
        ]
    );
    assert_eq!(shown(""), ["smtp 127.0.0.1:2525 StartTls None"]);
}

#[test]
fn a_table_says_what_is_other() {
    let text = "[listen]\nsmtp = [\"127.0.0.1:25\", { address = \"10.0.0.1:2525\", tls = \"none\" }, \
                { address = \"[::1]:25\", tls = \"implicit\", auth = \"offered\" }]\n\
                submission = { address = \"10.0.0.1:587\", tls = \"starttls\", auth = \"none\" }\n";
    assert_eq!(
        shown(&format!("{text}{USERS}")),
        [
            "smtp 127.0.0.1:25 StartTls None",
            "smtp 10.0.0.1:2525 None None",
            "smtp [::1]:25 Implicit Offered",
            "submission 10.0.0.1:587 StartTls None",
        ]
    );
    // An array of tables is equivalent.
    let tables = "[[listen.smtp]]\naddress = \"127.0.0.1:25\"\n\
                  [[listen.smtp]]\naddress = \"127.0.0.1:26\"\ntls = \"required\"\n";
    assert_eq!(shown(tables), ["smtp 127.0.0.1:25 StartTls None", "smtp 127.0.0.1:26 Required None"]);
}

#[test]
fn what_is_wrong_is_named_where_it_stands() {
    let text = "[listen]
smtp = [{ address = \"127.0.0.1:25\", tls = \"starttsl\" }, 25]
smtps = [{ tls = \"implicit\" }, { address = \"127.0.0.1\" }]
submission = [{ address = \"127.0.0.1:25\", port = 587 }]
starttls = false
smtp_auth = true
tls = \"none\"
[auth]
users = \"users\"
";
    let expected = "\
stentor.toml:2:43: `tls` in [listen.smtp.1] is \"starttsl\"; it must be one of \"none\", \"starttls\", \"required\", \"implicit\"; did you mean \"starttls\"?
stentor.toml:2:57: `smtp` in [listen] must hold strings or tables, not a whole number
stentor.toml:3:10: `address` is missing in [listen.smtps.1]; add, for instance, address = \"0.0.0.0:465\"
stentor.toml:3:44: \"127.0.0.1\" is not an address and port; write, for instance, \"0.0.0.0:465\" or \"[::]:465\"
stentor.toml:4:27: \"127.0.0.1:25\" appears twice
stentor.toml:4:43: unknown key `port` in [listen.submission.1]; valid keys: `address`, `tls`, `auth`
stentor.toml:5:1: unknown key `starttls` in [listen]; TLS is set per listener: smtp = [{ address = \"0.0.0.0:25\", \
    tls = \"none\" }] disables STARTTLS
stentor.toml:6:1: unknown key `smtp_auth` in [listen]; AUTH is set per listener: smtp = [{ address = \"0.0.0.0:25\", auth = \"offered\" }]
stentor.toml:7:1: unknown key `tls` in [listen]; TLS is set per listener: smtp = [{ address = \"0.0.0.0:25\", tls = \
    \"none\" }] disables STARTTLS";
    assert_eq!(findings(text).trim_end(), expected);
    assert!(findings("[listen]\nsmtp = []\n").contains("`smtp` in [listen] is empty"));
}

#[test]
fn where_nobody_could_log_in_is_an_error() {
    let listener = |key: &str, more: &str| format!("[listen]\n{key} = {{ address = \"127.0.0.1:26\"{more} }}\n");
    let no_source = listener("smtp", ", auth = \"offered\"");
    assert_eq!(
        findings(&no_source).trim_end(),
        "stentor.toml:2:43: nobody can log in there: set `users` or `dovecot` in [auth], or write auth = \"none\""
    );
    assert_eq!(findings(&format!("{no_source}{USERS}")), "");
    let in_clear = listener("submission", ", tls = \"none\"");
    let found = findings(&format!("{in_clear}{USERS}"));
    assert!(
        found.starts_with("stentor.toml:2:48: nobody can log in there: AUTH without TLS is only for `clear_networks`"),
        "{found}"
    );
    assert_eq!(findings(&format!("{in_clear}{USERS}clear_networks = \"10.0.0.0/8\"\n")), "");
    assert_eq!(findings(&listener("submission", ", tls = \"none\", auth = \"none\"")), "");
    // A certificate replaces a login if TLS is available.
    let certificates = "[tls]\nclient_ca_file = \"ca.pem\"\nclient_certificates = [\"app.example\"]\n";
    let required = listener("smtp", ", tls = \"implicit\", auth = \"required\"");
    assert_eq!(findings(&format!("{required}{certificates}")), "");
    let in_clear = listener("smtp", ", tls = \"none\", auth = \"required\"");
    assert!(findings(&format!("{in_clear}{certificates}")).contains("nobody can log in there"));
    // A default only causes a warning.
    let warned = findings(&listener("submission", ""));
    assert!(warned.contains("warning: `submission` of [listen]: nobody can log in there"), "{warned}");
}

#[test]
fn an_address_of_all_interfaces_leaves_its_port_to_no_other() {
    let both =
        |one: &str, other: &str| findings(&format!("[listen]\nsmtp = [{one:?}]\nsubmission = [{other:?}]\n{USERS}"));
    let found = both("0.0.0.0:587", "10.0.0.1:587");
    assert!(found.starts_with("stentor.toml:3:15: \"10.0.0.1:587\" and \"0.0.0.0:587\" conflict"), "{found}");
    assert!(both("[::1]:587", "[::]:587").contains(" conflict: "));
    for (one, other) in [("0.0.0.0:587", "[::]:587"), ("0.0.0.0:25", "10.0.0.1:587"), ("10.0.0.1:587", "10.0.0.2:587")]
    {
        assert_eq!(both(one, other), "", "{one} {other}");
    }
}

#[test]
fn a_public_port_25_that_requires_tls_is_doubtful() {
    let listener = |address: &str, more: &str| format!("[listen]\nsmtp = {{ address = \"{address}\"{more} }}\n");
    let found = findings(&listener("0.0.0.0:25", ", tls = \"required\""));
    assert!(found.starts_with("stentor.toml:2:40: warning: mail servers without TLS cannot deliver"), "{found}");
    assert!(findings(&listener("[::]:25", ", tls = \"implicit\"")).contains("warning: mail servers without TLS"));
    for address in ["127.0.0.1:25", "10.1.2.3:25", "[fd00::1]:25", "0.0.0.0:2525"] {
        assert_eq!(findings(&listener(address, ", tls = \"required\"")), "", "{address}");
    }
    assert_eq!(findings(&listener("0.0.0.0:25", ", tls = \"starttls\"")), "");
    assert_eq!(findings(&(listener("0.0.0.0:25", ", tls = \"required\", auth = \"required\"") + USERS)), "");
}

#[test]
fn listeners_are_shown_as_they_are_written() {
    let text = "[listen]\nsmtp = [{ address = \"127.0.0.1:25\", tls = \"starttls\" }, \
                { address = \"127.0.0.1:26\", auth = \"offered\", tls = \"none\" }]\n\
                [auth]\nusers = \"users\"\nclear_networks = \"10.0.0.0/8\"\n";
    let (_, settings) = check_text_noting(Path::new("/e/stentor.toml"), text).unwrap();
    let listen: Vec<_> = settings.iter().filter(|setting| setting.section.starts_with("listen")).collect();
    let smtp = listen.iter().find(|setting| setting.key == "smtp").unwrap();
    let value = "[\"127.0.0.1:25\", { address = \"127.0.0.1:26\", tls = \"none\", auth = \"offered\" }]";
    assert_eq!((smtp.value.as_deref(), smtp.is_changed()), (Some(value), true));
    assert!(listen.iter().all(|setting| setting.section == "listen"), "{listen:?}");
}

#[test]
fn a_reload_changes_what_is_offered_and_no_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stentor.toml");
    let text = |smtp: &str, submission: &str| {
        format!("[listen]\nsmtp = {smtp}\nsubmission = {submission}\n[auth]\nusers = \"users\"\n")
    };
    let (plain, two) = ("\"127.0.0.1:25\"", "[\"127.0.0.1:25\", \"127.0.0.1:26\"]");
    fs::write(&path, text(plain, "\"127.0.0.1:587\"")).unwrap();
    let in_force = check(&path).unwrap();
    let offered = "{ address = \"127.0.0.1:25\", auth = \"offered\" }";
    fs::write(&path, text(offered, "\"127.0.0.1:587\"")).unwrap();
    let (changed, kept) = check_again(&path, &in_force).unwrap();
    assert_eq!((kept.as_slice(), changed.listen.smtp[0].auth), (&[][..], ListenerAuth::Offered));
    // If the address changes, too, everything waits for a restart and is named.
    fs::write(&path, text(two, "{ address = \"127.0.0.1:587\", tls = \"implicit\" }")).unwrap();
    let (again, kept) = check_again(&path, &changed).unwrap();
    assert_eq!(kept, ["[listen] smtp", "[listen] submission"]);
    assert_eq!(again.listen, changed.listen);
    fs::write(&path, text(plain, "\"127.0.0.1:587\"")).unwrap();
    let (back, kept) = check_again(&path, &again).unwrap();
    assert_eq!((kept.as_slice(), back.listen == in_force.listen), (&[][..], true));
}
