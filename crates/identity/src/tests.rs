//! A good domain without findings, and changes to it that are found.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use stentor_dkim::{Algorithm, Signer, SigningKey};
use stentor_domain_reports::dmarc::{
    AggregateReport, DmarcSums, PublishedPolicy, ReportDisposition, ReportRow, RowCount,
};
use stentor_tls_policy::sts::StsPolicy;

use super::*;

const MESSAGE: &str = "From: Ann <ann@example.org>\r\nTo: news@example.org\r\nDate: Mon, 30 Nov 2026 10:00:00 +0000\r\n\
    Message-ID: <1@example.org>\r\nList-Id: <news.example.org>\r\n\
    List-Unsubscribe: <https://example.org/u/1>, <mailto:u@example.org>\r\n\
    List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n\r\nHello\r\n";

/// Rounds after which the questions of an examination must have ended.
const ROUNDS_MAX: usize = 40;

/// Zone, web servers and message of one domain.
struct World {
    /// Lines `NAME KIND VALUE`.
    zone: Vec<String>,
    policy: Result<StsPolicy, String>,
    page: Result<u16, String>,
    message: String,
    signer: Signer,
    return_path: String,
    /// Domains with keys that the server makes.
    rotating: Vec<&'static str>,
    lists: Vec<String>,
    /// Names whose queries fail.
    failing: Vec<String>,
    /// Where reports are kept, an address that does not exist, and sums of reports.
    kept_at: Option<&'static str>,
    unknown: &'static str,
    reports: DmarcSums,
}

impl World {
    fn good() -> World {
        let key = Arc::new(SigningKey::generate(Algorithm::RsaSha256).unwrap().key);
        let signer = Signer { domain: "example.org".into(), selector: "s1".into(), key };
        let zone = format!(
            "7.113.0.203 PTR mail.example.org\nmail.example.org A 203.0.113.7\nmail.example.org TXT v=spf1 a -all\n\
             example.org MX mail.example.org\nexample.org TXT v=spf1 ip4:203.0.113.7 include:_spf.example.net -all\n\
             example.org TXT other=1\n_spf.example.net TXT v=spf1 ip4:198.51.100.0/24 ~all\n\
             s1._domainkey.example.org TXT {}\n\
             _dmarc.example.org TXT v=DMARC1; p=reject; rua=mailto:dmarc@example.org,mailto:x@reports.example\n\
             example.org._report._dmarc.reports.example TXT v=DMARC1\n_mta-sts.example.org TXT v=STSv1; id=1\n\
             _smtp._tls.example.org TXT v=TLSRPTv1; rua=mailto:tls@example.org",
            signer.key.record()
        );
        World {
            zone: zone.lines().map(str::to_owned).collect(),
            policy: StsPolicy::parse(b"version: STSv1\nmode: enforce\nmx: mail.example.org\nmax_age: 86400\n")
                .map_err(|error| error.to_string()),
            page: Ok(200),
            message: MESSAGE.to_owned(),
            signer,
            return_path: "example.org".to_owned(),
            rotating: Vec::new(),
            lists: vec!["bl.example".to_owned()],
            failing: Vec::new(),
            kept_at: None,
            unknown: "",
            reports: DmarcSums::default(),
        }
    }

    /// Adds a daily report with messages from an address; `passing` of them pass.
    fn report(mut self, day: u64, source: &str, messages: u64, passing: u64) -> World {
        let row = |is_spf_aligned, messages| RowCount {
            messages,
            row: ReportRow {
                source: source.parse().unwrap(),
                disposition: ReportDisposition::None,
                is_dkim_aligned: false,
                is_spf_aligned,
                reasons: Vec::new(),
                header_from: "example.org".to_owned(),
                envelope_from: None,
                dkim: Vec::new(),
                spf: None,
            },
        };
        let policy =
            PublishedPolicy { domain: "example.org".to_owned(), policy: "none".to_owned(), ..Default::default() };
        let (begin_s, rows) = (day * 86_400, vec![row(true, passing), row(false, messages - passing)]);
        self.reports.add(&AggregateReport { begin_s, end_s: begin_s + 86_399, policy, rows, ..Default::default() });
        self
    }

    fn replace(mut self, from: &str, to: &str) -> World {
        let before = self.zone.join("\n");
        assert!(before.contains(from), "{from}");
        self.zone = before.replace(from, to).lines().map(str::to_owned).collect();
        self
    }

    fn add(mut self, line: &str) -> World {
        self.zone.push(line.to_owned());
        self
    }

    fn answer(&self, question: &LookupQuestion) -> LookupAnswer {
        let values = |name: &str, kind: &str| -> Vec<String> {
            let start = format!("{name} {kind} ");
            self.zone.iter().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect()
        };
        match question {
            LookupQuestion::Texts(name) | LookupQuestion::Addresses(name) | LookupQuestion::Mx(name)
                if self.failing.contains(name) =>
            {
                LookupAnswer::Failed("SERVFAIL".to_owned())
            }
            LookupQuestion::Texts(name) => {
                LookupAnswer::Texts(values(name, "TXT").into_iter().map(String::into_bytes).collect())
            }
            LookupQuestion::Addresses(name) => {
                LookupAnswer::Addresses(values(name, "A").iter().map(|value| value.parse().unwrap()).collect())
            }
            LookupQuestion::Mx(name) => LookupAnswer::Mx(values(name, "MX")),
            LookupQuestion::Names(address) => {
                let IpAddr::V4(v4) = address else { panic!("{address}") };
                let [a, b, c, d] = v4.octets();
                LookupAnswer::Names(values(&format!("{d}.{c}.{b}.{a}"), "PTR"))
            }
            LookupQuestion::Policy(_) => LookupAnswer::Policy(self.policy.clone()),
            LookupQuestion::Page(_) => LookupAnswer::Page(self.page.clone()),
        }
    }

    /// Keys of the findings.
    fn found(&self) -> String {
        let sources = [Source { address: "203.0.113.7".parse().unwrap(), helo: "mail.example.org".to_owned() }];
        let message = Rendered::new(self.message.as_bytes(), 1_800_000_000);
        let signers = [&self.signer];
        let host_names = ["mail.example.org".to_owned()];
        let is_unknown_here = |address: &str| address == self.unknown;
        let reports = ReceivedReports {
            address: self.kept_at,
            host_names: &host_names,
            is_unknown_here: &is_unknown_here,
            recent: &self.reports,
            policy: &self.reports,
        };
        let identity = DomainIdentity {
            domain: "example.org",
            return_paths: std::slice::from_ref(&self.return_path),
            sources: &sources,
            signers: if self.rotating.is_empty() { &signers } else { &[] },
            rotating: &self.rotating,
            message: Some(&message),
            reports: Some(reports),
        };
        let mut found = self.examined(|lookups| examine_source(&sources[0], &self.lists, lookups));
        found.extend(self.examined(|lookups| examine_domain(&identity, lookups)));
        let counted = found.iter().fold(HashMap::<&str, usize>::new(), |mut all, finding| {
            assert!(!finding.what.is_empty() && !finding.next.is_empty(), "{finding:?}");
            *all.entry(finding.check.key()).or_default() += 1;
            all
        });
        let mut keys: Vec<&str> = counted.into_keys().collect();
        keys.sort_unstable();
        keys.join(" ")
    }

    fn examined(&self, judge: impl Fn(&Lookups) -> Vec<IdentityFinding>) -> Vec<IdentityFinding> {
        let mut lookups = Lookups::default();
        for _ in 0..ROUNDS_MAX {
            let found = judge(&lookups);
            let wanted = lookups.take_wanted();
            if wanted.is_empty() {
                return found;
            }
            for question in wanted {
                let answer = self.answer(&question);
                lookups.add(question, answer);
            }
        }
        panic!("the questions do not end");
    }
}

#[test]
fn a_good_domain_has_no_findings() {
    assert_eq!(World::good().found(), "");
    // Another order, white space, and what receivers ignore.
    let spelt = World::good()
        .replace("ip4:203.0.113.7 include:_spf.example.net -all", " mx  include:_spf.example.net x=y ~all")
        .replace("v=DMARC1; p=reject;", "v=DMARC1 ;p = Reject ; x=y;")
        .replace("; p=MII", "; s=email; t=s; p= M II");
    assert_eq!(spelt.found(), "");
    let below = World { return_path: "bounces.example.org".to_owned(), ..World::good() }
        .add("bounces.example.org TXT v=spf1 redirect=example.org")
        .add("bounces.example.org A 203.0.113.7");
    assert_eq!(below.found(), "");
    let rotating = World { rotating: vec!["example.org"], ..World::good() };
    assert_eq!(rotating.replace("s1._domainkey.example.org TXT", "x.example TXT").found(), "");
}

/// A change to the zone of a good domain, and the finding.
struct SeededFault {
    from: &'static str,
    to: &'static str,
    key: &'static str,
}

#[test]
fn each_fault_is_found_alone() {
    const SPF: &str = "ip4:203.0.113.7 include:_spf.example.net -all";
    let fault = |from, to, key| SeededFault { from, to, key };
    for SeededFault { from, to, key } in [
        fault("7.113.0.203 PTR mail.example.org", "", "ptr_missing"),
        fault("PTR mail.example.org", "PTR other.example.org", "ptr_unconfirmed"),
        fault(
            "mail.example.org A 203.0.113.7",
            "mail.example.org A 203.0.113.8",
            "helo_address ptr_unconfirmed spf_source",
        ),
        fault("mail.example.org TXT v=spf1 a -all", "", "spf_helo"),
        fault(SPF, "-all", "spf_source"),
        fault(SPF, "ip4:203.0.113.7 +all", "spf_pass_all"),
        fault(SPF, "ip4:0.0.0.0/1 ip4:203.0.113.7 -all", "spf_pass_all"),
        fault(SPF, "ip4:203.0.113.7", "spf_open"),
        fault(SPF, "ip4:203.0.113.7 ?all", "spf_open"),
        fault(SPF, "ipv4:203.0.113.7 -all", "spf_syntax"),
        fault(SPF, "ip4:203.0.113.7 include:none.example -all", "spf_include"),
        fault(SPF, "ip4:203.0.113.7 include:example.org -all", "spf_loop"),
        fault(SPF, "ip4:203.0.113.7 a:n1.example a:n2.example a:n3.example -all", "spf_void"),
        fault(SPF, "ip4:203.0.113.7 ptr -all", "spf_ptr"),
        fault("example.org TXT other=1", "example.org TXT v=spf1 -all", "spf_several"),
        fault("; p=MII", "; p=MIJ", "dkim_key"),
        fault("k=rsa", "k=ed25519", "dkim_type"),
        fault("k=rsa", "k=rsa; t=y", "dkim_testing"),
        fault("k=rsa", "k=rsa; h=sha1", "dkim_hash"),
        fault("k=rsa", "k=rsa; s=tlsrpt", "dkim_service"),
        fault("k=rsa", "k=rsa; x=1", "dkim_tag"),
        fault("v=DKIM1", "v=DKIM2", "dkim_syntax"),
        fault("s1._domainkey.example.org TXT", "s2._domainkey.example.org TXT", "dkim_missing"),
        fault("_dmarc.example.org TXT v=DMARC1", "_dmarc.example.org TXT v=DMARC2", "dmarc_missing"),
        fault("p=reject", "p=maybe", "dmarc_syntax"),
        fault("p=reject", "p=none", "dmarc_policy"),
        fault("p=reject", "p=reject; t=y", "dmarc_test"),
        fault("rua=mailto:dmarc@example.org,mailto:x@reports.example", "x=y", "dmarc_reports"),
        fault("rua=mailto:dmarc@example.org,", "rua=dmarc@example.org,", "dmarc_rua"),
        fault("example.org._report._dmarc.reports.example TXT v=DMARC1", "", "dmarc_external"),
        fault("example.org MX mail.example.org", "", "mx_missing"),
        fault("example.org MX mail.example.org", "example.org MX ", "mx_null"),
        fault(
            "example.org MX mail.example.org",
            "example.org MX mail.example.org\nexample.org MX no.example",
            "mx_host sts_mx",
        ),
        fault("_mta-sts.example.org TXT v=STSv1; id=1", "", "sts_missing"),
        fault("v=STSv1; id=1", "v=STSv1; id=", "sts_record"),
        fault("_smtp._tls.example.org TXT v=TLSRPTv1; rua=mailto:tls@example.org", "", "tlsrpt_missing"),
        fault("v=TLSRPTv1; rua=mailto:tls@example.org", "v=TLSRPTv1; rua=tls@example.org", "tlsrpt_record"),
    ] {
        assert_eq!(World::good().replace(from, to).found(), key, "{from} -> {to}");
    }
    let listed = World::good().add("7.113.0.203.bl.example A 127.0.0.2");
    assert_eq!(listed.found(), "block_list");
    let many = (0..11).map(|n| format!(" a:h{n}.example")).collect::<Vec<_>>().concat();
    let mut many = World::good().replace(SPF, &format!("ip4:203.0.113.7{many} -all"));
    for n in 0..11 {
        many = many.add(&format!("h{n}.example A 192.0.2.1"));
    }
    assert_eq!(many.found(), "spf_lookups");
}

#[test]
fn faults_of_messages_are_found() {
    let message = |from: &str, to: &str| World { message: MESSAGE.replace(from, to), ..World::good() }.found();
    assert_eq!(message("Date:", "X-Date:"), "message_field");
    assert_eq!(message("From: Ann <ann@example.org>", "From: Ann <ann@example.org>, b@example.org"), "message_from");
    assert_eq!(message("From: Ann <ann@example.org>", "From: ann@example.com"), "message_from");
    assert_eq!(message("List-Id: <news.example.org>\r\n", ""), "list_id");
    assert_eq!(message("https://example.org/u/1", "mailto:v@example.org"), "one_click");
    assert_eq!(message("List-Unsubscribe-Post:", "X-Post:"), "one_click");
    assert_eq!(message("List-Unsubscribe: ", "X-Unsubscribe: "), "unsubscribe");
    assert_eq!(World { page: Err("TLS".to_owned()), ..World::good() }.found(), "unsubscribe_link");
    assert_eq!(World { page: Ok(503), ..World::good() }.found(), "unsubscribe_link");
    let large = World { message: MESSAGE.to_owned() + &"x".repeat(25_000_000), ..World::good() };
    assert_eq!(large.found(), "message_size");
}

#[test]
fn alignment_is_checked() {
    let mut other = World::good();
    other.signer.domain = "example.net".into();
    let other = other.replace("s1._domainkey.example.org", "s1._domainkey.example.net");
    assert_eq!(other.found(), "dkim_alignment");
    let path = |name: &str| World { return_path: name.to_owned(), ..World::good() };
    let away = path("example.net").add("example.net TXT v=spf1 ip4:203.0.113.7 -all").add("example.net A 192.0.2.1");
    assert_eq!(away.found(), "spf_alignment");
    let strict = path("b.example.org")
        .add("b.example.org TXT v=spf1 ip4:203.0.113.7 -all")
        .add("b.example.org A 192.0.2.1")
        .replace("p=reject", "p=reject; aspf=s");
    assert_eq!(strict.found(), "spf_alignment");
}

#[test]
fn reports_that_do_not_come_here_are_found() {
    let kept_at = |address| World { kept_at: Some(address), ..World::good() };
    assert_eq!(kept_at("DMARC@example.org").found(), "");
    assert_eq!(kept_at("other@example.org").found(), "dmarc_rua_other");
    let unknown = World { unknown: "dmarc@example.org", ..World::good() };
    assert_eq!(unknown.found(), "dmarc_rua_unknown");
    assert_eq!(World { unknown: "dmarc@example.org", ..kept_at("other@example.org") }.found(), "dmarc_rua_unknown");
    // The domain's mail goes to another server, which may know the address.
    let elsewhere = World { unknown: "dmarc@example.org", ..World::good() }
        .replace("example.org MX mail.example.org", "example.org MX mx.example.net")
        .replace("_smtp._tls", "mx.example.net A 192.0.2.1\n_smtp._tls");
    assert_eq!(World { policy: sts_for("mx.example.net"), ..elsewhere }.found(), "");
}

fn sts_for(host: &str) -> Result<StsPolicy, String> {
    let text = format!("version: STSv1\nmode: enforce\nmx: {host}\nmax_age: 86400\n");
    StsPolicy::parse(text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn reported_failures_of_own_mail_are_found() {
    const OWN: &str = "203.0.113.7";
    let failed = World::good().report(1, OWN, 1_000, 900);
    assert_eq!(failed.found(), "dmarc_own_source");
    let without_record = World::good().replace("v=DMARC1; p=reject", "v=DMARC2; p=reject").report(1, OWN, 1_000, 900);
    assert!(without_record.found().contains("dmarc_own_source"), "{}", without_record.found());
    // Few of many, few at all, of others, and an address that only the host's name has.
    assert_eq!(World::good().report(1, OWN, 1_000, 980).found(), "");
    assert_eq!(World::good().report(1, OWN, 9, 0).found(), "");
    assert_eq!(World::good().report(1, "192.0.2.1", 1_000, 0).found(), "");
    let by_name = World::good().add("mail.example.org A 203.0.113.9").report(1, "::ffff:203.0.113.9", 20, 0);
    assert!(by_name.found().contains("dmarc_own_source"), "{}", by_name.found());
    let failing = World { failing: vec!["mail.example.org".to_owned()], ..World::good() };
    assert_eq!(failing.report(1, OWN, 1_000, 0).found(), "unchecked");
}

#[test]
fn a_policy_can_be_raised_after_a_month_without_failures() {
    let reports = |days: u64, messages, passing| {
        let none = World::good().replace("p=reject", "p=none");
        (0..days).fold(none, |world, day| world.report(day, "192.0.2.1", messages, passing))
    };
    assert_eq!(reports(30, 1_000, 995).found(), "dmarc_raise");
    assert_eq!(reports(29, 1_000, 1_000).found(), "dmarc_policy");
    assert_eq!(reports(30, 1_000, 994).found(), "dmarc_policy");
    assert_eq!(reports(30, 3, 3).found(), "dmarc_policy");
    assert_eq!((0..40).fold(World::good(), |world, day| world.report(day, "192.0.2.1", 9, 9)).found(), "");
}

/// A name server that fails is never a fault of the domain.
#[test]
fn failures_are_not_faults() {
    let names = [
        "example.org",
        "_dmarc.example.org",
        "_mta-sts.example.org",
        "mail.example.org",
        "_spf.example.net",
        "s1._domainkey.example.org",
        "_smtp._tls.example.org",
        "7.113.0.203.bl.example",
        "example.org._report._dmarc.reports.example",
    ];
    for name in names {
        let failing = World { failing: vec![name.to_owned()], ..World::good() };
        assert_eq!(failing.found(), "unchecked", "{name}");
    }
    let all = World { failing: names.map(str::to_owned).to_vec(), ..World::good() };
    assert_eq!(all.found(), "unchecked");
    let refused = World::good().add("7.113.0.203.bl.example A 127.255.255.254");
    assert_eq!(refused.found(), "unchecked");
}

/// Records of others cost a bounded number of questions.
#[test]
fn hostile_records_are_bounded() {
    let chain = World::good().replace("ip4:198.51.100.0/24 ~all", "include:i0.example ~all");
    let chain = (0..100).fold(chain, |chain, n| {
        let next = n + 1;
        chain
            .add(&format!("i{n}.example TXT v=spf1 include:i{next}.example include:i{next}.example a:{n}.example -all"))
    });
    assert_eq!(chain.found(), "spf_lookups");
    let terms = (0..500).map(|n| format!(" a:h{n}.example")).collect::<Vec<_>>().concat();
    let wide = World::good().replace("ip4:198.51.100.0/24 ~all", &format!("{terms} ~all"));
    assert_eq!(wide.found(), "spf_lookups spf_void");
}
