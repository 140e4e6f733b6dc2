//! Kept messages in a real browser (`testing/server/browser/quarantine.mjs`): a corpus of markup in every place that a
//! page shows, on the console's pages, on recipients' pages and in their digests. This file sends it, and has the
//! server.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stentor_harness::{Server, TestLab, skipped, stentor, wait_until};

use crate::console::{PASSWORD, browser_tests, chromium, missing, password_hash};
use crate::kit::{SENDER, builder};
use crate::virtual_users::with;

const OWN: &str = "ann@one.example";
/// Where it is told apart: 60 pages a minute are for one recipient.
const RECIPIENTS: usize = 4;
const BOUNDARY: &str = "parts";
/// Whose text is what it seems, in many lines and a wide script.
const PLAIN: &str = "Subject: Invitation to the general meeting of the society on Thursday, with an agenda of some length\r\n\
    From: Ann Example <ann.example@an-institute-with-a-name.example>\r\nDate: Mon, 23 Nov 2026 10:00:00 +0000\r\n\
    Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\nDear all,\r\n\r\nplease come. 请查收附件中的发票\r\n";

fn own(number: usize) -> String {
    format!("r{}@one.example", number % RECIPIENTS)
}

fn base64(octets: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in octets.chunks(3) {
        let bits = three.iter().enumerate().fold(0u32, |bits, (at, octet)| bits | u32::from(*octet) << (16 - 8 * at));
        for at in 0..4 {
            let letter = char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]);
            out.push(if at <= three.len() { letter } else { '=' });
        }
    }
    out
}

/// A payload in every place: subject, name of the author, names of files, text, HTML; bare where a line can have it,
/// encoded where not.
fn message(number: usize, payload: &str) -> Vec<u8> {
    let word = format!("=?utf-8?B?{}?=", base64(payload.as_bytes()));
    let is_bare = number.is_multiple_of(2) && !payload.contains(['\r', '\n', '\0']);
    let subject = if is_bare { payload.to_owned() } else { word.clone() };
    let percent: String = payload.bytes().map(|octet| format!("%{octet:02X}")).collect();
    // Charsets in which the same octets mean another thing.
    let charset =
        ["utf-8", "utf-7", "iso-2022-jp", "gb18030", "utf-16", "x-unknown", "\"<script>xss()</script>\""][number % 7];
    let body = base64(payload.as_bytes());
    let part = |kind: &str| {
        format!(
            "--{BOUNDARY}\r\nContent-Type: {kind}; charset={charset}\r\nContent-Transfer-Encoding: base64\r\n\r\n{body}\r\n"
        )
    };
    let file = format!(
        "--{BOUNDARY}\r\nContent-Type: image/svg+xml; name*=utf-8''{percent}\r\nContent-Disposition: attachment; filename*=utf-8''{percent}\r\n\r\n<svg onload=xss()>\r\n\
         --{BOUNDARY}\r\nContent-Type: {}; name=\"a\"\r\nContent-Disposition: attachment\r\n\r\nx\r\n",
        if is_bare { payload.replace(['"', '\u{1b}'], "") } else { "text/<b>".to_owned() },
    );
    format!(
        "From: {word} <a@source.example>\r\nSubject: {subject}\r\nX-Kind: {}\r\nX-{}: {subject}\r\nMIME-Version: 1.0\r\n\
         Content-Type: multipart/mixed; boundary={BOUNDARY}\r\n\r\n{payload}\r\n{}{}{file}--{BOUNDARY}--\r\n",
        number % 8,
        if is_bare { "<img/src/onerror=xss()>" } else { "Other" },
        part("text/plain"),
        part("text/html"),
    )
    .replace('\0', "")
    .split_inclusive('\n')
    .flat_map(|line| if line.ends_with("\r\n") { line.to_owned() } else { line.replace('\n', "\r\n") }.into_bytes())
    .collect()
}

/// Rules whose reasons are payloads too, since a page shows them; and one for the rest.
fn rules(payloads: &[String]) -> String {
    let ours = payloads.iter().filter(|text| !text.contains(|c: char| c.is_control() || c == '\'')).step_by(9).take(8);
    let one = |(at, text): (usize, &String)| {
        format!("[[rules]]\nname = '{text}'\nheader = 'X-Kind: /^{at}$/'\ndo = 'quarantine {text}'\n")
    };
    ours.enumerate().map(one).collect::<String>()
        + "[[rules]]\nrecipient = '@one.example'\nnot = { header = 'X-Kind: /^[0-7]$/' }\ndo = 'quarantine Looks like an invitation'\n"
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// In the order in which they came.
fn ids(server: &Server) -> Vec<String> {
    let mut ids = Vec::new();
    for line in server.operator_json(&["quarantine", "list", "--limit", "1000"]) {
        let rows = line.get("data").cloned().unwrap_or(line);
        ids.extend(rows.as_array().into_iter().flatten().filter_map(|row| row["id"].as_str().map(str::to_owned)));
    }
    ids
}

/// The digests that have come to an address: links and HTML.
fn digests(lab: &TestLab, to: &str) -> (Vec<String>, Vec<String>) {
    let (mut links, mut pages) = (Vec::new(), Vec::new());
    for copy in lab.recorder().copies_to(to).into_iter().filter(|copy| copy.sender.is_empty()) {
        let text = String::from_utf8_lossy(&copy.body.expect("kept")).into_owned();
        links.extend(text.lines().filter_map(|line| {
            let link = line.trim().strip_prefix("Release: <https://q.test")?.strip_suffix('>')?;
            Some(link.to_owned())
        }));
        let html = text
            .split_once("\r\nContent-Type: text/html; charset=utf-8\r\n")
            .and_then(|(_, part)| part.split_once("\r\n\r\n"));
        pages.push(html.expect("a part of HTML").1.split("\r\n--=_").next().unwrap_or_default().to_owned());
    }
    (links, pages)
}

#[test]
fn kept_messages_in_a_browser() {
    if let Some(why) = missing() {
        return skipped(why);
    }
    let payloads = texts(
        &serde_json::from_slice(&fs::read(browser_tests().join("payloads.json")).expect("a file")).expect("JSON"),
    );
    assert!(payloads.len() > 100);
    let lab = TestLab::start("[[site]]\nname = 'one.example'\nrelay = true\n[[site.host]]\nname = 'mx.one.example'\n");
    let mut server = with(
        builder(&lab)
            .set("http.listen", "[\"127.0.0.1:0\"]")
            .set("http.password_hash", &format!("{:?}", password_hash()))
            .set("domains.relay", "[\"one.example\"]")
            .set("quarantine.digest_at", "\"00:00\"")
            .set("quarantine.link_base", "\"https://q.test\""),
        &[],
        &rules(&payloads),
    );
    for (number, payload) in payloads.iter().enumerate() {
        server.smtp().send(SENDER, &[&own(number)], &message(number, payload)).expect(250);
    }
    server.smtp().send(SENDER, &[OWN], PLAIN.as_bytes()).expect(250);
    let ids = ids(&server);
    assert_eq!(ids.len(), payloads.len() + 1, "all are kept, each for a reason that is a payload");
    crate::quarantine_digest::make_due(&mut server);
    crate::quarantine_digest::done(&server);
    let all = |to: &str, count: usize| {
        wait_until("the digest", || digests(&lab, to).0.len() == count);
        digests(&lab, to)
    };
    let (plain, _) = all(OWN, 1);
    let mut links = vec![String::new(); payloads.len()];
    let mut pages = Vec::new();
    for first in 0..RECIPIENTS {
        let own_ones: Vec<usize> = (first..payloads.len()).step_by(RECIPIENTS).collect();
        let (found, html) = all(&own(first), own_ones.len());
        own_ones.iter().zip(found).for_each(|(number, link)| links[*number] = link);
        pages.extend(html);
    }
    let corpus = json!({
        "payloads": payloads, "ids": ids, "links": links, "digests": pages, "plain": ids.last(), "plainLink": plain[0],
    });
    server.write("corpus.json", corpus.to_string().as_bytes());
    let output = Command::new("node")
        .arg("quarantine.mjs")
        .current_dir(browser_tests())
        .env("STENTOR_URL", format!("http://{}", server.http_address()))
        .env("STENTOR_BIN", stentor())
        .env("STENTOR_PASSWORD", PASSWORD)
        .env("STENTOR_CORPUS", server.path("corpus.json"))
        .env("STENTOR_SHOTS", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/browser"))
        .env("CHROMIUM", chromium())
        .output()
        .expect("node can be run");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    let result: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("a result");
    assert_eq!(
        (&result["scripts"], &result["requests"], &result["markup"]),
        (&0.into(), &0.into(), &0.into()),
        "{result}"
    );
    assert!(result["shown"].as_u64() > Some(2 * payloads.len() as u64), "{result}");
}
