//! The console in a real browser: `testing/server/browser/run.mjs` watches a run of the lab, performs actions and
//! visits every page, wide and narrow, light and dark, with axe-core. This file has the lab, the server and its
//! configuration.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stentor_harness::{Server, TestLab, message, skipped, stentor, stentor_kit};

/// Two healthy sites, one that says "later" in HTML, some that are down, one with a name as long as names may be.
const SCENARIO: &str = "[[generate]]\nsites = 12\nhosts = [3, 3]\nbehaviour = { connect = 'refuse' }\n\
    [[site]]\nname = 'one.example'\n[[site]]\nname = 'two.example'\n\
    [[site]]\nname = 'later.example'\nbehaviour = { at_rcpt = '451 4.7.1 <b>Later</b><script>alert(1)</script>' }\n\
    [[site]]\nname = 'dead.example'\nbehaviour = { connect = 'refuse' }\n\
    [[site]]\nname = 'the-department-of-long-names.an-institute-with-a-name.and-a-subdomain-that-is-no-shorter.example'\n\
    behaviour = { at_rcpt = '452 4.2.2 The mailbox is full; see https://support.an-institute-with-a-name.example/mail/quota/exceeded/what-to-do-about-it?lang=en' }\n";
const LONG: &str = "somebody.with.a.very.long.first.and.last.name@the-department-of-long-names.an-institute-with-a-name.and-a-subdomain-that-is-no-shorter.example";
/// Sites that are down, with a subscriber each.
const DOWN: usize = 12;
/// Recipients of a message that fills more than one page.
const MANY: usize = 150;
/// Subject and author in encoded words, with what a page must not take for markup.
const POST: &str = "Subject: =?utf-8?Q?Gr=C3=BC=C3=9Fe_an_alle?= <b>x</b>\r\nFrom: =?utf-8?B?QW5uIMOWLg==?= <ann@home.example>\r\n\
    Message-ID: <post@test>\r\n\r\nHello\r\n";
/// Subscribers who cannot be served.
const WAITING_OF_A_POST: usize = 13 + DOWN;
pub const PASSWORD: &str = "correct horse battery staple";

pub fn browser_tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("browser")
}

/// Why there is no browser to test with, if so.
pub fn missing() -> Option<&'static str> {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success());
    if !runs("node") {
        return Some("node is missing (testing/install.sh)");
    }
    if !runs(&chromium()) {
        return Some("chromium is missing (testing/install.sh)");
    }
    let modules = browser_tests().join("node_modules/playwright-core");
    (!modules.exists()).then_some("playwright-core is missing (testing/install.sh)")
}

pub fn chromium() -> String {
    std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned())
}

pub fn password_hash() -> String {
    let mut command = Command::new(stentor()).arg("http-password").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut hash = command.as_mut().expect("the binary can be run").stdin.take().expect("it is piped");
    writeln!(hash, "{PASSWORD}").expect("it reads a line");
    drop(hash);
    let output = command.expect("it runs").wait_with_output().expect("it ends");
    String::from_utf8(output.stdout).expect("a hash is text").trim().to_owned()
}

/// A DMARC report with more sources than a page shows at first, some with names as long as names may be, and with what
/// a page must not take for markup.
fn keep_reports(server: &Server) {
    let long = LONG.replace('@', ".");
    let row = |number: usize| {
        let name = ["other.example", &*long, "&lt;script&gt;alert(1)&lt;/script&gt;"][number % 3];
        let source =
            if number == 0 { "2001:db8:1234:5678:9abc:def0:1234:5678".to_owned() } else { format!("192.0.2.{number}") };
        format!(
            "<record><row><source_ip>{source}</source_ip><count>123456</count><policy_evaluated><disposition>none\
             </disposition><dkim>fail</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>{long}\
             </header_from><envelope_from>{name}</envelope_from></identifiers><auth_results><dkim><domain>{name}</domain>\
             <result>fail</result></dkim></auth_results></record>"
        )
    };
    let rows: String = (0..60).map(row).collect();
    let report = format!(
        "<feedback><report_metadata><org_name>Receiver</org_name><report_id>1</report_id><date_range><begin>1700000000\
         </begin><end>1700086399</end></date_range></report_metadata><policy_published><domain>{long}</domain>\
         <p>quarantine</p></policy_published>{rows}</feedback>"
    );
    let folder = server.path("data/dmarc_received");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    std::fs::write(folder.join("1.xml.gz"), report).expect("the folder can be written");
}

#[test]
fn the_console_in_a_browser() {
    if let Some(why) = missing() {
        return skipped(why);
    }
    let lab = TestLab::start(SCENARIO);
    let readers = |site: &str, count: u32| (0..count).map(|n| format!("reader{n}@{site}")).collect::<Vec<_>>();
    let subscribers = [
        readers("one.example", 40),
        readers("two.example", 30),
        readers("later.example", 6),
        readers("dead.example", 6),
    ];
    let down = (1..=DOWN).map(|n| format!("reader@site-{n:04}.example"));
    let subscribers: Vec<String> = subscribers.concat().into_iter().chain(down).collect();
    let subscribers: Vec<&str> = subscribers.iter().map(String::as_str).chain([LONG]).collect();
    let mut server = Server::builder()
        .lab(&lab)
        .list("news", &subscribers)
        .set("hostname", "\"mail.lists.an-institute.example\"")
        .set("http.listen", "[\"127.0.0.1:0\"]")
        .set("http.password_hash", &format!("{:?}", password_hash()))
        // What waits shall wait until the browser has seen it.
        .set("retry.host_min_s", "600")
        .set("retry.recipient_min_s", "600")
        .set("retry.mailbox_min_s", "600")
        .set("retry.site_min_s", "600")
        .set("webhooks.crm.url", "\"http://127.0.0.1:9/hooks/secret-key\"")
        .set("webhooks.crm.secret", "\"0123456789abcdef0123456789abcdef\"")
        .prepare();
    keep_reports(&server);
    // A zone that no chart and no page may take for UTC.
    let mut command = server.command();
    command.env("TZ", "IST-5:30");
    server.start_as(command);
    let many = readers("dead.example", MANY as u32);
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    server.smtp().send("writer@home.example", &many, &message("many@test", "For many")).expect(250);
    server.smtp().send("writer@home.example", &["news@lists.test"], POST.as_bytes()).expect(250);
    let line = server.wait_log(&["console at http://"]);
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).expect("an address");
    let shots = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/browser");
    let output = Command::new("node")
        .arg("run.mjs")
        .current_dir(browser_tests())
        .env("STENTOR_URL", url.trim_end_matches('/'))
        .env("STENTOR_BIN", stentor())
        .env("STENTOR_KIT_BIN", stentor_kit())
        .env("STENTOR_CONFIG", server.config())
        .env("STENTOR_SMTP", server.address().to_string())
        .env("STENTOR_PASSWORD", PASSWORD)
        .env("STENTOR_WAITING", (MANY + WAITING_OF_A_POST).to_string())
        .env("STENTOR_WAITING_OF_A_POST", WAITING_OF_A_POST.to_string())
        .env("STENTOR_SHOTS", shots)
        .env("CHROMIUM", chromium())
        .output()
        .expect("node can be run");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    let result: serde_json::Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a result");
    assert!(result["checks"].as_u64() > Some(100) && result["faults"] == 0, "{result}");
}
