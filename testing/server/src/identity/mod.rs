//! `stentor doctor mail` beside a lab with its own DNS and web servers: each fault of [`FAULTS`] is one change to a
//! good domain and must be the only finding; a domain of [`GOOD`] must have none.

mod cases;

use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;
use stentor_harness::{Server, TestLab, stentor};

pub use self::cases::{FAULTS, GOOD};
use crate::web::Web;

const DAY_S: u64 = 86_400;

const CONFIG: &str = r#"
hostname = "mail.example.org"
data_dir = "data"
client_networks = ["127.0.0.1"]
[listen]
smtp = ["127.0.0.1:0"]
[http]
listen = []
[dns]
servers = ["@DNS@"]
loopback_allowed = true
timeout_ms = 3000
[delivery]
tls_ca_file = "ca.pem"
sts_port = @WEB@
sts_private_allowed = true
[sources.out]
address = "203.0.113.7"
[lists.news]
address = "news@example.org"
subscribers = "news.subscribers"
[domains]
local = ["example.org"]
[aliases]
"dmarc@example.org" = "reports@elsewhere.example"
[[dkim]]
domain = "example.org"
selector = "s1"
key = "rsa.pem"
"#;

/// Lines `NAME KIND VALUE`.
const ZONE: &str = "\
7.113.0.203.in-addr.arpa PTR mail.example.org
mail.example.org A 203.0.113.7
mail.example.org TXT v=spf1 a -all
example.org MX 10 mail.example.org
example.org TXT v=spf1 ip4:203.0.113.7 include:_spf.example.net -all
example.org TXT site-verification=1
_spf.example.net TXT v=spf1 ip4:198.51.100.0/24 ~all
s1._domainkey.example.org TXT @RSA@
_dmarc.example.org TXT v=DMARC1; p=reject; rua=mailto:dmarc@example.org,mailto:org@reports.example
example.org._report._dmarc.reports.example TXT v=DMARC1
_mta-sts.example.org TXT v=STSv1; id=1
mta-sts.example.org A 127.0.0.1
_smtp._tls.example.org TXT v=TLSRPTv1; rua=mailto:tls@example.org
lists.example.org A 127.0.0.1
";

const MESSAGE: &str = "\
From: Ann <ann@example.org>
To: news@example.org
Subject: News
Date: Mon, 30 Nov 2026 10:00:00 +0000
Message-ID: <1@example.org>
List-Unsubscribe: <https://lists.example.org:@WEB@/unsubscribe/1>, <mailto:news-leave@example.org>
List-Unsubscribe-Post: List-Unsubscribe=One-Click

Hello
";

const POLICY: &str = "version: STSv1\r\nmode: enforce\r\nmx: *.example.org\r\nmax_age: 604800\r\n";

/// A domain, its configuration, and the world around it.
pub struct World {
    zone: String,
    config: String,
    message: String,
    policy: String,
    /// Name in the certificate of the unsubscribe link's host.
    certificate: String,
    /// DMARC reports that were kept.
    reports: Vec<String>,
}

impl World {
    fn good() -> World {
        World {
            zone: ZONE.to_owned(),
            config: CONFIG.to_owned(),
            message: MESSAGE.to_owned(),
            policy: POLICY.to_owned(),
            certificate: "lists.example.org".to_owned(),
            reports: Vec::new(),
        }
    }

    /// Replaces a part of the zone.
    fn zone(&mut self, from: &str, to: &str) {
        replace(&mut self.zone, from, to);
    }

    fn add(&mut self, line: &str) {
        self.zone += &format!("{line}\n");
    }

    fn config(&mut self, from: &str, to: &str) {
        replace(&mut self.config, from, to);
    }

    /// Keeps a DMARC report on a day some days ago: messages from an address, of which some pass.
    fn report(&mut self, days_ago: u64, source: &str, messages: u64, passing: u64) {
        let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let begin_s = (now_s / DAY_S - days_ago) * DAY_S;
        let row = |messages: u64, result: &str| {
            format!(
                "<record><row><source_ip>{source}</source_ip><count>{messages}</count><policy_evaluated>\
                 <disposition>none</disposition><dkim>{result}</dkim><spf>fail</spf></policy_evaluated></row>\
                 <identifiers><header_from>example.org</header_from></identifiers><auth_results/></record>"
            )
        };
        self.reports.push(format!(
            "<feedback><report_metadata><org_name>Receiver</org_name><report_id>{}</report_id><date_range>\
             <begin>{begin_s}</begin><end>{}</end></date_range></report_metadata><policy_published>\
             <domain>example.org</domain><p>none</p></policy_published>{}{}</feedback>",
            self.reports.len(),
            begin_s + DAY_S - 1,
            row(passing, "pass"),
            row(messages - passing, "fail")
        ));
    }

    fn message(&mut self, from: &str, to: &str) {
        replace(&mut self.message, from, to);
    }
}

fn replace(text: &mut String, from: &str, to: &str) {
    assert!(text.contains(from), "{from:?} is not in {text}");
    *text = text.replace(from, to);
}

/// A change to a good domain, and the only check that must report it.
pub struct SeededFault {
    pub check: &'static str,
    change: fn(&mut World),
}

/// A change after which the domain is as good as before.
pub struct GoodDomain {
    pub name: &'static str,
    change: fn(&mut World),
}

/// Key files, and their records.
struct Key {
    file: &'static str,
    pem: Vec<u8>,
    token: &'static str,
    record: String,
}

/// Makes a key with `stentor dkim new`.
fn key(file: &'static str, token: &'static str, kind: &str) -> Key {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(stentor());
    command.args(["dkim", "new", "example.org", kind, "--dir"]).arg(folder.path());
    let output = command.output().expect("the binary can be run");
    let zone = String::from_utf8(output.stdout).expect("text");
    let record = zone.split('"').skip(1).step_by(2).collect();
    let pem = std::fs::read(folder.path().join("example.org.s1.pem")).expect("the key was made");
    Key { file, pem, token, record }
}

/// What all examinations share.
struct Surroundings {
    web: Web,
    keys: [Key; 3],
}

impl Surroundings {
    fn new() -> Surroundings {
        let web = Web::start();
        for domain in ["example.org", "lists.example.org"] {
            web.publish(domain, POLICY);
        }
        let keys = [
            key("rsa.pem", "@RSA@", "--rsa"),
            key("other.pem", "@OTHER@", "--rsa"),
            key("ed.pem", "@ED@", "--ed25519"),
        ];
        Surroundings { web, keys }
    }

    /// Names of the checks that find something, each once.
    fn found(&self, world: &World) -> Vec<String> {
        let web = &self.web;
        for domain in ["example.org", "lists.example.org"] {
            web.put(domain, "policy", &world.policy);
        }
        web.certify_as("lists.example.org", &world.certificate);
        let lab = TestLab::start(&self.scenario(&world.zone));
        let port = web.port.to_string();
        let mut builder = Server::builder()
            .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
            .file("news.subscribers", b"bob@elsewhere.example\n")
            .file("post.eml", world.message.replace("@WEB@", &port).as_bytes());
        for key in &self.keys {
            builder = builder.file(key.file, &key.pem);
        }
        let server = builder.prepare();
        let config = world.config.replace("@DNS@", &lab.dns().to_string()).replace("@WEB@", &port);
        server.write("stentor.toml", config.as_bytes());
        let folder = server.path("data/dmarc_received");
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        for (number, report) in world.reports.iter().enumerate() {
            std::fs::write(folder.join(format!("{number}.xml.gz")), report).expect("the folder can be written");
        }
        let message = server.path("post.eml").display().to_string();
        let arguments = ["doctor", "mail", "--json", "--message", &message, "--blocklist", "bl.example"];
        let output = server.operator(&arguments);
        let report: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        let findings = report["findings"].as_array().expect("findings");
        let has_fault = findings.iter().any(|finding| finding["severity"] == "problem");
        assert_eq!(output.status.code(), Some(i32::from(has_fault)), "{report:#}");
        assert_eq!(report["ok"], !has_fault);
        let found = findings.iter().filter(|finding| finding["severity"] != "fine");
        let mut checks: Vec<String> = found.filter_map(|finding| finding["id"].as_str()).map(str::to_owned).collect();
        checks.sort_unstable();
        checks.dedup();
        checks
    }

    fn scenario(&self, zone: &str) -> String {
        let mut text = "[[site]]\nname = 'elsewhere.example'\n".to_owned();
        for line in zone.lines().filter(|line| !line.is_empty()) {
            let mut words = line.splitn(3, ' ');
            let [name, kind, value] = std::array::from_fn(|_| words.next().unwrap_or_default());
            let value = self.keys.iter().fold(value.to_owned(), |value, key| value.replace(key.token, &key.record));
            text += &format!("[[record]]\nname = {name:?}\ntype = {kind:?}\nvalue = {value:?}\n");
        }
        text
    }
}

/// Faults that were not found, and findings that are wrong.
#[derive(Debug, Default)]
pub struct Outcome {
    pub missed: Vec<String>,
    pub wrong: Vec<String>,
}

/// Examines all domains.
pub fn run() -> Outcome {
    let (surroundings, mut outcome) = (Surroundings::new(), Outcome::default());
    for (at, fault) in FAULTS.iter().enumerate() {
        let mut world = World::good();
        (fault.change)(&mut world);
        let found = surroundings.found(&world);
        if !found.iter().any(|check| check == fault.check) {
            outcome.missed.push(format!("{} (case {at}): {found:?}", fault.check));
        }
        let others = found.iter().filter(|check| *check != fault.check);
        outcome.wrong.extend(others.map(|check| format!("{check}, for {} (case {at})", fault.check)));
    }
    for good in GOOD {
        let mut world = World::good();
        (good.change)(&mut world);
        let found = surroundings.found(&world);
        outcome.wrong.extend(found.iter().map(|check| format!("{check}, for a good domain: {}", good.name)));
    }
    outcome
}
