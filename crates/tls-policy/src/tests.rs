use proptest::prelude::*;

use super::*;

fn of(word: &str) -> Requirement {
    let pins = if word == "fingerprint" { vec![Fingerprint([7; 32])] } else { Vec::new() };
    Requirement::new(word, Vec::new(), pins).unwrap()
}

fn rule(key: &str, value: &str, word: &str) -> RuleInput {
    let if_key = |own: &str| (own == key).then(|| value.to_owned());
    RuleInput {
        domain: if_key("domain"),
        site: if_key("site"),
        list: if_key("list"),
        sender: if_key("sender"),
        requirement: of(word),
    }
}

fn policies() -> Policies {
    let rules = [
        rule("domain", "Bank.example", "verify"),
        rule("domain", ".bank.example", "encrypt"),
        rule("domain", ".old.bank.example", "none"),
        rule("domain", "old.example", "none"),
        rule("site", "google.com", "dane-only"),
        rule("site", ".l.google.com", "encrypt"),
        rule("list", "press", "may"),
        rule("list", "board", "encrypt"),
        rule("sender", "Boss@ours.example", "fingerprint"),
        rule("sender", "ours.example", "encrypt"),
        rule("sender", ".ours.example", "verify"),
    ];
    Policies::with_rules(of("dane"), rules).unwrap()
}

fn ask(domain: &str, hosts: &[&str], list: Option<&str>, sender: &str) -> String {
    let question = PostureQuery { domain, hosts, list, sender };
    let held = policies().held(&question);
    assert_eq!(policies().posture(&question), held.posture, "{held}");
    held.to_string()
}

fn asked(domain: &str) -> String {
    ask(domain, &[], None, "")
}

#[test]
fn the_most_specific_rule_of_a_kind_holds() {
    assert_eq!(asked("other.example"), "dane by [delivery] tls");
    assert_eq!(asked("bank.example"), "verify (hostname) by [[tls_policy]] domain = \"bank.example\"");
    assert_eq!(asked("a.b.bank.example"), "encrypt by [[tls_policy]] domain = \".bank.example\"");
    assert_eq!(asked("a.old.bank.example"), "none by [[tls_policy]] domain = \".old.bank.example\"");
    assert_eq!(asked("old.bank.example"), "encrypt by [[tls_policy]] domain = \".bank.example\"");
    assert_eq!(asked("notbank.example"), "dane by [delivery] tls");
}

#[test]
fn a_domain_goes_before_its_site_and_the_first_host_with_a_rule_speaks_for_the_site() {
    let site = |domain, hosts: &[&str]| ask(domain, hosts, None, "");
    assert_eq!(site("x.example", &["mx.google.com"]), "dane-only by [[tls_policy]] site = \"google.com\"");
    assert_eq!(site("x.example", &["google.com"]), "dane-only by [[tls_policy]] site = \"google.com\"");
    assert_eq!(
        site("x.example", &["mx.other", "aspmx.l.google.com", "mx.google.com"]),
        "encrypt by [[tls_policy]] site = \"l.google.com\""
    );
    assert_eq!(site("old.example", &["mx.google.com"]), "none by [[tls_policy]] domain = \"old.example\"");
    assert_eq!(site("x.example", &["mx.notgoogle.com"]), "dane by [delivery] tls");
}

#[test]
fn what_a_list_or_sender_demands_is_joined_with_what_the_domain_allows() {
    let mail = |domain, list, sender| ask(domain, &[], list, sender);
    assert_eq!(
        mail("x.example", Some("board"), "a@b.example"),
        "dane, never in clear: dane by [delivery] tls; encrypt by [[tls_policy]] list = \"board\""
    );
    assert_eq!(
        mail("old.example", Some("board"), ""),
        "encrypt: encrypt by [[tls_policy]] list = \"board\"; none by [[tls_policy]] domain = \"old.example\""
    );
    // A list can raise the requirement, but not lower it.
    assert_eq!(
        mail("x.example", Some("press"), ""),
        "dane: dane by [delivery] tls; may by [[tls_policy]] list = \"press\""
    );
    assert!(mail("x.example", None, "BOSS@ours.example").starts_with("fingerprint (07:07"));
    assert!(mail("x.example", None, "Ann@ours.example").starts_with("dane, never in clear"));
    assert!(mail("x.example", None, "ann@sub.ours.example").starts_with("verify (hostname): verify"));
    assert!(mail("x.example", Some("unknown"), "").starts_with("dane by "));
    assert_eq!(
        policies().posture(&PostureQuery { domain: "x", hosts: &[], list: Some("board"), sender: "" }).key(),
        "dane+encrypt"
    );
}

#[test]
fn rules_that_cannot_be_taken_are_all_named() {
    let mut two = rule("domain", "a.example", "may");
    two.list = Some("x".to_owned());
    let rules = [
        rule("domain", "a.example", "may"),
        rule("domain", "A.example", "none"),
        two,
        rule("domain", "a b", "may"),
        rule("sender", "x@", "may"),
        rule("none of them", "", "may"),
    ];
    let errors = Policies::with_rules(of("may"), rules).unwrap_err();
    assert_eq!(errors.len(), 5, "{errors:?}");
    assert_eq!(errors[0].to_string(), "there is already a rule for domain `A.example`");
    assert!(matches!(errors[1], RuleError::Keys { rule: 2 }) && matches!(errors[4], RuleError::Keys { rule: 5 }));
}

#[test]
fn words_and_what_belongs_to_them() {
    for strength in Strength::ALL {
        assert_eq!(of(strength.name()).strength(), strength);
        assert_eq!(Strength::parse(strength.name()), Some(strength));
    }
    assert!(Strength::ALL.is_sorted());
    let names = || vec![PeerName::Nexthop];
    assert!(matches!(Requirement::new("secure", vec![], vec![]), Err(RequirementError::Unknown(_))));
    assert_eq!(Requirement::new("may", names(), vec![]), Err(RequirementError::NamesNotWanted(Strength::May)));
    assert_eq!(Requirement::new("fingerprint", vec![], vec![]), Err(RequirementError::FingerprintsMissing));
    let many = vec![PeerName::Nexthop; 65];
    assert_eq!(Requirement::new("verify", many, vec![]), Err(RequirementError::TooMany));
    assert_eq!(Requirement::new("verify", names(), vec![]).unwrap().to_string(), "verify (nexthop)");
}

#[test]
fn most_mail_has_the_site_that_it_always_had() {
    assert_eq!(Posture::from(of("may")).key(), "");
    assert_eq!(Posture::from(of("none")).key(), "none");
}

fn posture() -> impl Strategy<Value = Posture> {
    (0..Strength::ALL.len(), 0..Strength::ALL.len(), any::<bool>()).prop_map(|(a, b, require_tls)| {
        let other = Posture { require_tls, ..of(Strength::ALL[b].name()).into() };
        Posture::from(of(Strength::ALL[a].name())).join(other)
    })
}

proptest! {
    #[test]
    fn joining_never_weakens_and_its_order_does_not_matter(a in posture(), b in posture()) {
        let both = a.clone().join(b.clone());
        prop_assert!(both.floor >= a.floor.max(b.floor) && both.floor >= both.requirement.floor());
        prop_assert!(both.requirement.strength() >= a.requirement.strength().max(b.requirement.strength()));
        prop_assert_eq!(both.require_tls, a.require_tls || b.require_tls);
        prop_assert!(!both.allows_clear() || (a.allows_clear() && b.allows_clear()));
        prop_assert_eq!(&both, &b.clone().join(a.clone()));
        prop_assert_eq!(both.key() == a.key(), both == a);
    }

    #[test]
    fn any_question_has_an_answer_with_a_reason(
        domain in "[a-z.]{0,20}", host in "[a-z.]{0,20}", list in proptest::option::of("[a-z]{0,8}"), sender in "\\PC{0,20}",
    ) {
        let held = policies().held(&PostureQuery { domain: &domain, hosts: &[&host], list: list.as_deref(), sender: &sender });
        prop_assert!(!held.reasons.is_empty());
        prop_assert_eq!(held.posture.requirement.strength(), held.reasons[0].requirement.strength());
    }
}
