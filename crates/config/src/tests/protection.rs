//! Tests of `[delivery] tls` and `[[tls_policy]]`.

use super::*;

#[test]
fn what_domains_publish_is_held_to_unless_another_word_says_so() {
    assert_eq!(without_file().unwrap().protection.policies.default_requirement().to_string(), "sts");
    let own = config("[delivery]\ntls = \"may\"\nsts_port = 8443\nsts_private_allowed = true\n");
    assert_eq!(own.protection.policies.default_requirement().to_string(), "may");
    assert_eq!((own.protection.sts_port, own.protection.sts_allows_private), (8443, true));
    let found =
        findings("[delivery]\ntls = \"dane\"\n[[tls_policy]]\ndomain = \"a.example\"\nrequire = \"dane-only\"\n");
    assert_eq!(found, "");
    let found = findings(
        "[[tls_policy]]\nlist = \"nwes\"\nrequire = \"encrypt\"\n[[tls_policy]]\ndomain = \"a.example\"\nrequire = \"verify\"\nnames = [\"hostnme\"]\n",
    );
    for expected in
        ["stentor.toml:2:8: there is no list \"nwes\"", "\"hostnme\" is neither hostname, nexthop or dot-nexthop"]
    {
        assert!(found.contains(expected), "{expected}: {found}");
    }
    for (key, word) in [("sender", "none"), ("sender", "may")] {
        let found = findings(&format!("[[tls_policy]]\n{key} = \"a.example\"\nrequire = \"{word}\"\n"));
        assert!(
            found.starts_with(&format!("stentor.toml:3:11: \"{word}\" has no effect for a list or sender")),
            "{found}"
        );
    }
    let none = "[[tls_policy]]\ndomain = \"a.example\"\nrequire = \"none\"\n";
    assert_eq!(findings(none), "");
    let demand = "[[tls_policy]]\nsender = \"law.example\"\nrequire = \"encrypt\"\n";
    let found = findings(&[none, demand].concat());
    let expected = "stentor.toml:1:1: warning: TLS is never used there except with `smtps:` hosts: mail for which \
        sender = \"law.example\" requires encrypt waits";
    assert!(found.starts_with(expected) && found.lines().count() == 1, "{found}");
    let found = findings(&["[delivery]\ntls = \"none\"\n", demand].concat());
    assert!(found.starts_with("stentor.toml:2:7: warning: TLS is never used there "), "{found}");
}
