use super::*;
use crate::cause::BounceCause::{self, *};
use proptest::prelude::*;

fn rules() -> BounceRules {
    BounceRules::built_in()
}

fn cause(rules: &BounceRules, text: &str) -> BounceCause {
    rules.classify(&BounceReply { text, ..BounceReply::default() }).cause
}

#[test]
fn common_replies_have_their_causes() {
    let rules = rules();
    for (text, wanted) in [
        ("550 5.1.1 <a@example.org>: Recipient address rejected: User unknown in local recipient table", NoMailbox),
        (
            "550-5.1.1 The email account that you tried to reach does not exist. Please try\n550 5.1.1 double-checking",
            NoMailbox,
        ),
        ("550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup", NoMailbox),
        ("552 5.2.2 The email account that you tried to reach is over quota", Full),
        ("452-4.2.2 The recipient's inbox is out of storage space", Full),
        ("550 5.2.1 The email account that you tried to reach is disabled", Disabled),
        ("550 5.1.2 <a@gone.example>: Recipient address rejected: Domain not found", NoHost),
        ("554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org", Reputation),
        (
            "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. part of their network is on our block list (S3150).",
            Reputation,
        ),
        ("550-5.7.26 Unauthenticated email from example.org is not accepted due to domain's DMARC policy", Policy),
        ("550 5.7.1 Message rejected as spam by Content Filtering.", Content),
        ("552 5.3.4 Message size exceeds fixed limit", Size),
        (
            "450 4.2.0 <a@example.org>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/",
            Greylisting,
        ),
        ("421 4.7.0 Too many connections from your IP address", Rate),
        ("530 5.7.0 Must issue a STARTTLS command first", Tls),
        ("connect to mx.example.org[192.0.2.1]:25: Connection timed out", Unreachable),
        ("554 5.4.6 Too many hops", HostTrouble),
        ("451 4.3.0 Temporary lookup failure", HostTrouble),
        ("550 flurble", Unknown),
    ] {
        let found = rules.classify(&BounceReply { text, ..BounceReply::default() });
        assert_eq!(found.cause, wanted, "{text}: rule {:?}", found.rule);
    }
}

#[test]
fn what_is_our_fault_never_counts_against_a_person() {
    let rules = rules();
    for text in [
        "554 5.7.1 <a@example.org>: Recipient address rejected: your address 192.0.2.1 is listed in bl.example.net",
        "550 5.7.1 user mailbox unavailable because your IP address is on our blacklist",
        "451 4.7.1 mailbox of user: rate limit exceeded for your domain",
        "550 5.7.1 user complaints: message detected as spam",
        "454 4.7.0 TLS not available, recipient a@example.org cannot be verified",
    ] {
        assert!(!cause(&rules, text).counts_against_person(), "{text}: {}", cause(&rules, text));
    }
}

#[test]
fn block_lists_are_named() {
    let rules = rules();
    let lists = |text| rules.classify(&BounceReply { text, ..BounceReply::default() }).block_lists;
    assert_eq!(lists("550 blocked using zen.spamhaus.org"), ["Spamhaus"]);
    assert_eq!(lists("550 Client host blocked using bl.unheard.example; see"), ["bl.unheard.example"]);
    assert!(lists("550 No such user").is_empty());
}

#[test]
fn conditions_must_all_hold_and_the_first_rule_decides() {
    let rules = BounceRules::parse(
        r#"
        [[rule]]
        name = "first"
        provider = ["example.net"]
        code = [550]
        enhanced = ["x.1.1"]
        text = ["odd words", "/z{3}/"]
        not = ["never"]
        cause = "policy"
        confidence = 80
        [[rule]]
        name = "second"
        text = ["/z{3}/"]
        cause = "full"
        confidence = 50
        "#,
    )
    .unwrap();
    let rule = |text, host| rules.classify(&BounceReply { text, host, ..BounceReply::default() }).rule;
    assert_eq!(rule("550 5.1.1 zzz", "mx.EXAMPLE.net"), "first");
    for (text, host) in [
        ("550 5.1.1 zzz", "mx.example.org"),
        ("551 5.1.1 zzz", "example.net"),
        ("550 5.1.2 zzz", "example.net"),
        ("550 5.1.1 zzz never", "example.net"),
    ] {
        assert_eq!(rule(text, host), "second", "{text} {host}");
    }
    assert_eq!(rule("550 5.1.1 nothing", "example.net"), "");
}

#[test]
fn faults_of_a_file_are_named() {
    let rule = |body: &str| format!("[[rule]]\nname = \"a\"\n{body}");
    let good = "cause = \"full\"\nconfidence = 5\n";
    for (text, wanted) in [
        ("[[rule]]\nname = 5".to_owned(), "not a rules file"),
        (rule(good), "has no condition"),
        (rule(&format!("text = [\"/(/\"]\n{good}")), "unclosed group"),
        (rule(&format!("text = [\"/x*/\"]\n{good}")), "matches every text"),
        (rule(&format!("enhanced = [\"5.1\"]\n{good}")), "is not a code such as"),
        (rule(&format!("code = [200]\n{good}")), "is not from 400 to 599"),
        (rule("code = [550]\ncause = \"unknown\"\nconfidence = 5"), "must not be \"unknown\""),
        (rule("code = [550]\ncause = \"full\"\nconfidence = 0"), "is not from 1 to 100"),
        (rule("code = [550]\ncause = \"full\"\nconfidence = 300"), "`confidence` 300 is not from 1 to 100"),
        (rule("code = [550]\ncause = \"fuller\"\nconfidence = 5"), "did you mean \"full\"?"),
        (rule("code = [550]\ncause = \"nomailbox\"\nconfidence = 5"), "did you mean \"no_mailbox\"?"),
        (rule("code = [550]\ncause = \"zebra\"\nconfidence = 5"), "is not one of no_mailbox, full,"),
        (rule(&format!("provider = [\"not a domain\"]\n{good}")), "\"not a domain\" is not a domain such as"),
        (rule(&format!("provider = [\"@example.net\"]\n{good}")), "is not a domain such as"),
        (rule(&format!("text = 5\n{good}")), "expected a string or a list of strings"),
        (rule(&format!("code = [550]\nkode = 5\n{good}")), "kode"),
        (format!("{0}{0}", rule(&format!("code = [550]\n{good}"))), "a name of its own"),
    ] {
        let error = BounceRules::parse(&text).unwrap_err();
        assert!(error.to_string().contains(wanted), "{wanted}: {error}");
    }
    for (text, line) in [
        (format!("\n\n{}", rule(good)), 4),
        (format!("{}\n{}", rule(&format!("code = [550]\n{good}")), "[[rule]]\nname = \"b\"\nkode = 1\n"), 9),
        ("\n[[block_list]]\nname = \"x\"\ntext = [\"\"]".to_owned(), 3),
        (rule("code = [550]\ncause = \"fuller\"\nconfidence = 5"), 4),
        (rule("code = [550]\ncause = \"full\"\nconfidence = 500"), 5),
        (rule(&format!("provider = [\n\"a.example\",\n\"b c\"]\n{good}")), 5),
    ] {
        assert_eq!(BounceRules::parse(&text).unwrap_err().line(), line, "{text}");
    }
    let long = " ".repeat(FILE_BYTES_MAX + 1);
    assert_eq!(BounceRules::parse(&long).unwrap_err(), BounceRuleError::TooLarge);
}

#[test]
fn own_rules_go_before_the_built_in_ones_or_replace_them() {
    let own = "[[rule]]\nname = \"own\"\nprovider = [\"example.net\", \"192.0.2.1\"]\ntext = \"no such user\"\n\
               cause = \"policy\"\nconfidence = 5\n[[block_list]]\nname = \"Own\"\ntext = \"zyx\"\n";
    let found = |rules: &BounceRules, host: &str| {
        rules.classify(&BounceReply { text: "550 5.1.1 No such user", host, ..BounceReply::default() }).cause
    };
    let (replaced, extended) = (BounceRules::parse(own), BounceRules::parse(&format!("extends = true\n{own}")));
    let (replaced, extended) = (replaced.unwrap(), extended.unwrap());
    assert_eq!((found(&replaced, "mx.example.net"), found(&replaced, "mx.example.org")), (Policy, Unknown));
    assert_eq!((found(&extended, "mx.example.net"), found(&extended, "mx.example.org")), (Policy, NoMailbox));
    assert_eq!((replaced.len(), extended.len()), (1, rules().len() + 1));
    assert!(extended.has_block_list("Own") && extended.has_block_list("Spamhaus"));
    assert!(!replaced.has_block_list("Spamhaus"));
}

proptest! {
    #[test]
    fn any_reply_is_classified(text in any::<String>(), host in any::<String>()) {
        let rules = BounceRules::parse("[[rule]]\nname = \"a\"\ntext = [\"a\"]\ncause = \"full\"\nconfidence = 9").unwrap();
        let found = rules.classify(&BounceReply { text: &text, host: &host, ..BounceReply::default() });
        prop_assert_eq!(found.confidence > 0, found.cause != Unknown);
    }
}
