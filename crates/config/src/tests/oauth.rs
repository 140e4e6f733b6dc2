//! Tests of `oauth` in `[smart_hosts]`.

use stentor_oauth::Credential;

use super::*;

const HEAD: &str = "[smart_hosts.\"relay.example:587\"]\nuser = \"ann@x.example\"\n";

#[test]
fn grants_are_read() {
    let text = "oauth = { token_url = \"https://oauth2.googleapis.com/token\", client_id = \"1.apps\", client_secret_file = \"s\", \
                refresh_token_file = \"/r\", scope = \"https://mail.google.com/\" }\n";
    let read = config(&format!("{HEAD}{text}"));
    let host = read.protection.smart_host("relay.example", 587).unwrap();
    assert!(host.is_token, "without `kind`");
    let Credential::Oauth(grant) = &host.credential else { panic!("{host:?}") };
    assert_eq!((grant.token_url.host.as_str(), grant.token_url.port), ("oauth2.googleapis.com", 443));
    assert_eq!((grant.client_id.as_str(), grant.scope.as_deref()), ("1.apps", Some("https://mail.google.com/")));
    assert!(grant.client_secret_file.as_deref().is_some_and(|path| path.ends_with("s")));
    assert_eq!(grant.refresh_token_file.as_deref(), Some(Path::new("/r")));
    // A section of its own, with the client's own credentials.
    let text = "kind = \"token\"\nmechanisms = [\"XOAUTH2\"]\n[smart_hosts.\"relay.example:587\".oauth]\ntoken_url = \"https://x/?p=policy\"\n\
                client_id = \"c\"\nclient_secret_file = \"s\"\n";
    let read = config(&format!("{HEAD}{text}"));
    let host = read.protection.smart_host("relay.example", 587).unwrap();
    let Credential::Oauth(grant) = &host.credential else { panic!("{host:?}") };
    assert_eq!((grant.token_url.uri.query(), &grant.refresh_token_file), (Some("p=policy"), &None));
}

#[test]
fn grants_are_checked() {
    let oauth = "oauth = { token_url = \"https://x/\", client_id = \"c\", refresh_token_file = \"r\" }\n";
    for (text, expected) in [
        (
            "oauth = { token_url = \"http://x/\", client_id = \"c\", refresh_token_file = \"r\" }\n",
            "stentor.toml:3:23: `token_url` in [smart_hosts.relay.example:587.oauth] is not https",
        ),
        (
            "oauth = { token_url = \"x\", client_id = \"c\\u00e9\", refresh_token_file = \"r\", scope = \"\" }\n",
            "stentor.toml:3:23: `token_url` in [smart_hosts.relay.example:587.oauth]: it must begin with",
        ),
        (
            "oauth = { token_url = \"https://x/\", client_id = \"c\\u00e9\", refresh_token_file = \"r\" }\n",
            "stentor.toml:3:49: `client_id` in [smart_hosts.relay.example:587.oauth] must be printable ASCII",
        ),
        (
            "oauth = { token_url = \"https://x/\", client_id = \"c\", refresh_token_file = \"r\", scope = \"\" }\n",
            "stentor.toml:3:88: `scope` in [smart_hosts.relay.example:587.oauth] must be printable ASCII",
        ),
        (
            "oauth = { token_url = \"https://x/\", client_id = \"c\" }\n",
            "stentor.toml:3:1: `refresh_token_file` is missing in [smart_hosts.relay.example:587.oauth]; set it, or \
             set `client_secret_file`",
        ),
        ("oauth = { client_id = \"c\", refresh_token_file = \"r\" }\n", "stentor.toml:3:1: `token_url` is missing"),
        (
            "oauth = { token_url = \"https://x/\", client_id = \"c\", refresh_token = \"r\" }\n",
            "unknown key `refresh_token` in [smart_hosts.relay.example:587.oauth]; did you mean `refresh_token_file`?",
        ),
        ("oauth = \"https://x/\"\n", "stentor.toml:3:9: `smart_hosts.relay.example:587.oauth` must be a table"),
        (
            &format!("{oauth}secret_file = \"x\"\n"),
            "exactly one of `secret_file`, `secret_command` and `oauth` is \
            needed in",
        ),
        (
            &format!("{oauth}kind = \"password\"\n"),
            "stentor.toml:4:8: `oauth` in [smart_hosts.relay.example:587] needs kind = \"token\": leave `kind` out",
        ),
        (&format!("{oauth}mechanisms = [\"PLAIN\"]\n"), "stentor.toml:4:14: `oauth` needs OAUTHBEARER or XOAUTH2"),
    ] {
        let found = findings(&format!("{HEAD}{text}"));
        assert!(found.contains(expected), "{expected}: {found}");
        assert!(!found.contains("needs kind") || text.contains("kind"), "{found}");
    }
}
