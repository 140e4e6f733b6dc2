use super::*;
use crate::dns::{DnsQuestion, KnownAnswers};

/// Records by name: `_dmarc` TXT records, `A` for an address, `FAIL`.
fn evaluated(zone: &[(&str, &str)], author: &str, authenticated: &AuthenticatedDomains) -> DmarcResult {
    let mut answers = KnownAnswers::default();
    for _ in 0..20 {
        let inquiry = Inquiry::new(&answers);
        let result = dmarc(&inquiry, author, authenticated);
        let questions = inquiry.into_questions();
        match result {
            Ok(result) => return result,
            Err(Pending) => {
                for question in questions {
                    let answer = answer(zone, &question);
                    answers.add(question, answer);
                }
            }
        }
    }
    panic!("no end");
}

fn answer(zone: &[(&str, &str)], question: &DnsQuestion) -> RecordAnswer {
    let all: Vec<&str> = zone.iter().filter(|(name, _)| *name == &*question.name).map(|(_, data)| *data).collect();
    match (question.kind, all.first()) {
        (_, Some(&"FAIL")) => RecordAnswer::Failed,
        (RecordKind::A, Some(&"A")) => RecordAnswer::Addresses(vec!["192.0.2.1".parse().unwrap()]),
        (RecordKind::Txt, Some(_)) => RecordAnswer::Texts(all.iter().map(|text| text.as_bytes().into()).collect()),
        _ => RecordAnswer::Empty,
    }
}

fn spf(domain: &str) -> AuthenticatedDomains {
    AuthenticatedDomains { spf: Some(domain.to_owned()), ..AuthenticatedDomains::default() }
}

fn dkim(domain: &str) -> AuthenticatedDomains {
    AuthenticatedDomains { dkim: vec![domain.to_owned()], ..AuthenticatedDomains::default() }
}

#[test]
fn alignment_is_strict_or_relaxed() {
    let zone = [("_dmarc.example.com", "v=DMARC1; p=reject; aspf=s")];
    let result = |author: &str, of: &AuthenticatedDomains| evaluated(&zone, author, of).result;
    assert_eq!(result("example.com", &spf("example.com")), MethodResult::Pass);
    assert_eq!(result("example.com", &spf("mail.example.com")), MethodResult::Fail);
    assert_eq!(result("example.com", &dkim("mail.example.com")), MethodResult::Pass);
    assert_eq!(result("a.example.com", &dkim("b.example.com")), MethodResult::Pass);
    assert_eq!(result("example.com", &dkim("badexample.com")), MethodResult::Fail);
    assert_eq!(result("example.com", &dkim("com")), MethodResult::Fail);
    assert_eq!(result("example.org", &dkim("example.org")), MethodResult::None);
    // A subdomain that is an organization of its own.
    let apart = [zone[0], ("_dmarc.b.example.com", "v=DMARC1; psd=n")];
    assert_eq!(evaluated(&apart, "example.com", &dkim("b.example.com")).result, MethodResult::Fail);
}

#[test]
fn policies_of_domains_subdomains_and_names_that_do_not_exist() {
    let zone = [
        ("_dmarc.example.com", "v=DMARC1; p=none; sp=quarantine; np=reject"),
        ("real.example.com", "A"),
        ("_dmarc.own.example.com", "v=DMARC1; p=reject; t=y"),
        ("_dmarc.gov.test", "v=DMARC1; psd=y; p=reject; np=quarantine"),
    ];
    let nobody = AuthenticatedDomains::default();
    let result = |author: &str| evaluated(&zone, author, &nobody);
    assert_eq!(result("example.com").policy, Some(DmarcPolicy::None));
    assert_eq!(result("real.example.com").disposition(), DmarcPolicy::Quarantine);
    assert_eq!(result("none.example.com").disposition(), DmarcPolicy::Reject);
    let own = result("own.example.com");
    assert_eq!((own.policy, own.disposition()), (Some(DmarcPolicy::Reject), DmarcPolicy::None));
    assert_eq!(result("x.gov.test").disposition(), DmarcPolicy::Quarantine);
    assert_eq!(result("other.test").policy, None);
}

#[test]
fn a_dns_failure_is_never_a_fail() {
    let zone = [("_dmarc.example.com", "v=DMARC1; p=reject"), ("_dmarc.sub.example.com", "FAIL")];
    let result = evaluated(&zone, "sub.example.com", &AuthenticatedDomains::default());
    assert_eq!((result.result, result.disposition()), (MethodResult::TempError, DmarcPolicy::None));
    let unknown = AuthenticatedDomains { unknown: vec!["example.com".to_owned()], ..AuthenticatedDomains::default() };
    assert_eq!(evaluated(&zone, "example.com", &unknown).result, MethodResult::TempError);
    let other = AuthenticatedDomains { unknown: vec!["example.org".to_owned()], ..AuthenticatedDomains::default() };
    assert_eq!(evaluated(&zone, "example.com", &other).disposition(), DmarcPolicy::Reject);
}

#[test]
fn alignment_of_both_methods_is_known_and_the_record_with_it() {
    let zone = [("_dmarc.example.com", "v=DMARC1; p=reject; adkim=s; rua=mailto:a@example.com")];
    let both = AuthenticatedDomains { dkim: vec!["a.example.com".to_owned()], ..spf("b.example.com") };
    let found = evaluated(&zone, "example.com", &both);
    assert_eq!((found.result, found.is_spf_aligned, found.is_dkim_aligned), (MethodResult::Pass, true, false));
    let record = found.record.unwrap();
    assert_eq!(
        (&*record.policy.domain, record.requests_reports, record.policy.is_dkim_strict),
        ("example.com", true, true)
    );
    // A failed look-up about one method does not undo the other.
    let failing = [zone[0], ("_dmarc.b.example.com", "FAIL")];
    let both = AuthenticatedDomains { dkim: vec!["example.com".to_owned()], ..spf("b.example.com") };
    let found = evaluated(&failing, "example.com", &both);
    assert_eq!((found.result, found.is_spf_aligned, found.is_dkim_aligned), (MethodResult::Pass, false, true));
    assert_eq!(evaluated(&failing, "example.com", &spf("b.example.com")).result, MethodResult::TempError);
}

/// The addresses that get reports about a domain, and those that refuse; or `failed`.
fn destinations(zone: &[(&str, &str)], domain: &str) -> String {
    let mut search = DestinationSearch::new(domain);
    for _ in 0..20 {
        match search.step() {
            DestinationStep::Ask(questions) => {
                for question in questions {
                    let answer = answer(zone, &question);
                    search.answer(question, answer);
                }
            }
            DestinationStep::Failed => return "failed".to_owned(),
            DestinationStep::Found(DestinationChoice { permitted, refused }) => {
                let permitted: Vec<String> = permitted.into_iter().map(|one| one.address).collect();
                return format!("{} / {}", permitted.join(" "), refused.join(" "));
            }
        }
    }
    panic!("no end");
}

#[test]
fn reports_leave_an_organization_only_if_the_other_permits_it() {
    let record = "v=DMARC1; p=none; rua=mailto:a@example.com,mailto:b@mail.example.com,mailto:c@agency.test";
    let own = ("_dmarc.example.com", record);
    let permit = |text| ("example.com._report._dmarc.agency.test", text);
    let of = |permits: &[(&str, &str)]| destinations(&[&[own], permits].concat(), "example.com");
    // Another host of the same organization needs no permission.
    assert_eq!(of(&[]), "a@example.com b@mail.example.com / c@agency.test");
    assert_eq!(of(&[permit("v=DMARC1")]), "a@example.com b@mail.example.com c@agency.test / ");
    assert_eq!(of(&[permit("v=spf1"), permit("v=DMARC1;")]), "a@example.com b@mail.example.com c@agency.test / ");
    assert_eq!(of(&[permit("v=DMARC2")]), "a@example.com b@mail.example.com / c@agency.test");
    // The other may name another of its addresses, but not somebody else's.
    let named = permit("v=DMARC1; rua=mailto:d@Agency.test!1k");
    assert_eq!(of(&[named]), "a@example.com b@mail.example.com d@Agency.test / ");
    let elsewhere = permit("v=DMARC1; rua=mailto:victim@example.net");
    assert_eq!(of(&[elsewhere]), "a@example.com b@mail.example.com / c@agency.test");
    let many: Vec<String> = (1..=5).map(|n| format!("mailto:{n}@agency.test")).collect();
    let many = format!("v=DMARC1; rua={}", many.join(","));
    let five = "a@example.com b@mail.example.com 1@agency.test 2@agency.test 3@agency.test / ";
    assert_eq!(destinations(&[own, permit(&many)], "example.com"), five);
    assert_eq!(of(&[permit("FAIL")]), "failed");
    // A subdomain that is an organization of its own.
    let apart = ("_dmarc.mail.example.com", "v=DMARC1; psd=n");
    assert_eq!(of(&[apart]), "a@example.com / b@mail.example.com c@agency.test");
    assert_eq!(destinations(&[], "example.com"), " / ");
    assert_eq!(destinations(&[own, own], "example.com"), " / ", "several records are none");
    let to_itself = [("_dmarc.sub.example.com", "v=DMARC1; rua=mailto:x@example.com"), own];
    assert_eq!(destinations(&to_itself, "sub.example.com"), "x@example.com / ");
}
