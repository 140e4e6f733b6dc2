//! One server, a site of its own for every case, all at once.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use stentor_harness::{Builder, Server, Smtp, TestLab, dot_stuff, message_with};
use stentor_lab::{Arrival, Mode};

use super::judge::{self, Attempt, RunEvidence};
use super::{ANN, Case, Mail, SOME, Verdict};

/// Sessions that hand in mail.
const CLIENTS: usize = 8;
/// Recipients of [`Mail::Many`].
const MANY: usize = 20;
pub(super) const SENDER: &str = "me@sender.example";
/// The delivery log, in the server's folder.
const LOG: &str = "attempts.log";

/// How long is looked at what.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// From the last message handed in to the verdict. Loops that come later than that are not seen.
    pub watched: Duration,
    /// How long Stentor waits for each reply, in place of the minutes of RFC 5321 section 4.5.3.2.
    pub reply_timeout_s: u32,
}

impl Default for Options {
    /// The first 10 s of each host and those after them; on a busy machine a good host may take seconds to reply.
    fn default() -> Options {
        Options { watched: Duration::from_secs(30), reply_timeout_s: 8 }
    }
}

/// A message handed in.
pub(super) struct SubmittedMessage {
    pub case: usize,
    pub queue_id: String,
    pub message_id: String,
    pub to: Vec<String>,
}

/// Between two looks at cases that have not come to their end, and how many looks in a row may show no progress:
/// together the longest of a host's short pauses.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const LOOKS_MAX: u32 = 15;

/// Runs the cases at one server and judges each. On a busy machine some take longer than what is watched: they are
/// waited for as long as further ones come to their end. A case that has come to its end is tried again later, and may
/// be in flight at the next look.
pub fn run(cases: &[Case], options: Options) -> Vec<Verdict> {
    let world = World::start(cases, "", options);
    let posted = world.post_all(cases);
    std::thread::sleep(options.watched);
    let mut verdicts: Vec<Option<Verdict>> = vec![None; cases.len()];
    let mut looks = 0;
    loop {
        let evidence = world.look(cases, &posted);
        let mut has_progress = false;
        for (no, verdict) in verdicts.iter_mut().enumerate() {
            if verdict.as_ref().is_none_or(|verdict| !verdict.problems.is_empty()) {
                let new = judge::judge(no, &cases[no], &evidence);
                has_progress |= new.problems.is_empty();
                *verdict = Some(new);
            }
        }
        looks = if has_progress { 0 } else { looks + 1 };
        let is_over = verdicts.iter().flatten().all(|verdict| verdict.problems.is_empty());
        if is_over || looks >= LOOKS_MAX {
            return verdicts.into_iter().flatten().collect();
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Lab and server.
pub(super) struct World {
    pub lab: TestLab,
    pub server: Server,
}

impl World {
    /// `sites` are further sites of the scenario.
    pub fn start(cases: &[Case], sites: &str, options: Options) -> World {
        let lab = TestLab::start_with(&scenario(cases, sites), Mode::Full);
        let server = configured(&lab, cases, options).start();
        World { lab, server }
    }

    /// Hands in all mail of all cases, a session to each thread.
    pub fn post_all(&self, cases: &[Case]) -> Vec<SubmittedMessage> {
        let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
        let share = numbered.len().div_ceil(CLIENTS).max(1);
        std::thread::scope(|scope| {
            let post = |cases| self.post_some(cases);
            let threads: Vec<_> = numbered.chunks(share).map(|cases| scope.spawn(move || post(cases))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("mail is taken")).collect()
        })
    }

    fn post_some(&self, cases: &[(usize, &Case)]) -> Vec<SubmittedMessage> {
        let mut client = self.server.smtp();
        let mut posted = Vec::new();
        for (no, case) in cases {
            let is_first_apart = case.receiver.mail == Mail::FirstRefused;
            for n in 0..case.messages + usize::from(is_first_apart) {
                let locals: Vec<String> = match case.receiver.mail {
                    Mail::FirstRefused if n == 0 => vec![SOME.into()],
                    Mail::FirstRefused | Mail::One | Mail::Large => vec![ANN.into()],
                    Mail::Utf8 => vec!["\u{e4}nn".into()],
                    Mail::Many => (0..MANY).map(|n| format!("u{n}")).collect(),
                    Mail::Plain | Mail::EightBit | Mail::Dsn => vec![ANN.into(), SOME.into()],
                };
                let to = locals.iter().map(|local| format!("{local}@{}", case.name())).collect();
                let message_id = format!("{n}.{}", case.name());
                let queue_id = hand_in(&mut client, case.receiver.mail, &to, &message_id);
                posted.push(SubmittedMessage { case: *no, queue_id, message_id, to });
            }
        }
        client.quit();
        posted
    }

    /// What lab and server know now.
    pub fn look(&self, cases: &[Case], posted: &[SubmittedMessage]) -> RunEvidence {
        let scenario = self.lab.scenario();
        let case_of_site: HashMap<u32, usize> = scenario
            .sites()
            .iter()
            .enumerate()
            .filter_map(|(site, of)| {
                cases.iter().position(|case| case.name() == of.name).map(|case| (site as u32, case))
            })
            .collect();
        let arrivals: Vec<Arrival> = self.lab.recorder().arrivals();
        let hosts: HashMap<u64, u32> = arrivals.iter().map(|arrival| (arrival.connection, arrival.host)).collect();
        let case_of_id: HashMap<&str, usize> = posted.iter().map(|one| (one.queue_id.as_str(), one.case)).collect();
        let mut evidence = RunEvidence::new(cases.len());
        for arrival in arrivals.iter().filter(|arrival| arrival.host == 0) {
            if let Some(case) = case_of_site.get(&arrival.site) {
                evidence.visits[*case].push(arrival.at_us / 1000);
            }
        }
        for copy in self.lab.recorder().copies() {
            let host = hosts.get(&copy.connection).copied().unwrap_or_default();
            evidence.copies.entry((copy.message_id.to_string(), copy.recipient.to_string())).or_default().push(host);
        }
        for one in posted {
            evidence.posted[one.case].push((one.queue_id.clone(), one.message_id.clone(), one.to.clone()));
        }
        self.read_log(cases, &case_of_id, &mut evidence);
        self.read_queue(&mut evidence);
        for violation in self.lab.recorder().violations() {
            if let Some(case) = case_of_site.get(&violation.site) {
                evidence.violations[*case]
                    .push(format!("{} at a host that behaves: {}", violation.kind, violation.detail));
            }
        }
        evidence
    }

    fn read_log(&self, cases: &[Case], case_of_id: &HashMap<&str, usize>, evidence: &mut RunEvidence) {
        let names: HashMap<String, usize> = cases.iter().enumerate().map(|(no, case)| (case.name(), no)).collect();
        let text = std::fs::read_to_string(self.server.path(LOG)).expect("the server writes its log");
        let own = self.server.log().lines();
        for line in text.lines().map(str::to_owned).chain(own) {
            let Ok(value) = serde_json::from_str::<Value>(&line) else {
                // What the program says of itself names the host, if anything.
                if let Some((_, no)) = names.iter().find(|(name, _)| line.contains(name.as_str())) {
                    evidence.log_bytes[*no] += line.len() + 1;
                }
                continue;
            };
            let host = value["relay"]["host"].as_str().unwrap_or_default().trim_end_matches('.');
            let by_host = host.split_once('.').and_then(|(mx, name)| Some((mx, *names.get(name)?)));
            let by_id = value["id"].as_str().and_then(|id| case_of_id.get(id));
            let Some(no) = by_id.copied().or(by_host.map(|(_, no)| no)) else { continue };
            evidence.log_bytes[no] += line.len() + 1;
            if value["event"] != "attempt" {
                continue;
            }
            let mx = by_host.map(|(mx, _)| mx.to_owned()).unwrap_or_default();
            let Some(id) = value["id"].as_str() else {
                let reply = value["reply"].as_str().unwrap_or_default();
                // Those that came about are counted by the lab.
                if mx == "mx1" && (reply.contains("refused") || reply.contains("timed out")) {
                    evidence.unmet[no].push(millis(value["time"].as_str().unwrap_or_default()));
                }
                continue;
            };
            for to in value["to"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let stat = value["stat"].as_str().unwrap_or_default().to_owned();
                let reply = value["reply"].as_str().unwrap_or_default().to_owned();
                let attempts = evidence.attempts.entry((id.to_owned(), to.to_owned())).or_default();
                attempts.push(Attempt { mx: mx.clone(), stat, reply });
            }
        }
    }

    fn read_queue(&self, evidence: &mut RunEvidence) {
        let stuck = self.server.ask(&["stuck", "-n", "1000"]).expect("the server answers");
        evidence.now_ms = stuck["now"].as_u64().unwrap_or_default();
        for row in stuck["stuck_recipients"].as_array().into_iter().flatten() {
            let address = row["address"].as_str().unwrap_or_default().to_owned();
            evidence.waiting.insert(address, row["next_try"].as_u64());
        }
    }
}

/// Milliseconds of the day of an RFC 3339 time.
fn millis(time: &str) -> u64 {
    let number = |range: std::ops::Range<usize>| time.get(range).and_then(|digits| digits.parse::<u64>().ok());
    let parts = [number(11..13), number(14..16), number(17..19), number(20..23)].map(Option::unwrap_or_default);
    ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1000 + parts[3]
}

fn scenario(cases: &[Case], sites: &str) -> String {
    let mut text = format!("[[site]]\nname = 'sender.example'\n{sites}");
    for case in cases {
        let lmtp = if case.lmtp { "lmtp = true, " } else { "" };
        let keys = if case.receiver.keys.is_empty() { String::new() } else { format!("{}, ", case.receiver.keys) };
        let rules: Vec<String> = case.receiver.script.iter().map(|rule| format!("'{rule}'")).collect();
        let name = case.name();
        text.push_str(&format!("[[site]]\nname = '{name}'\n[[site.host]]\nname = 'mx1.{name}'\npreference = 10\n"));
        text.push_str(&format!("behaviour = {{ {keys}{lmtp}script = [{}] }}\n", rules.join(", ")));
        if case.hosts > 1 {
            let tls = if case.receiver.is_verified { "tls = 'good', " } else { "" };
            text.push_str(&format!(
                "[[site.host]]\nname = 'mx2.{name}'\npreference = 20\nbehaviour = {{ {lmtp}{tls}rtt_ms = 0 }}\n"
            ));
        }
    }
    text
}

/// The shipped clocks; replies are waited for as the options say.
fn configured(lab: &TestLab, cases: &[Case], options: Options) -> Builder {
    let stages = ["greeting", "ehlo", "tls", "mail", "rcpt", "data_init", "data_block", "data_done", "connect"];
    let timeout = options.reply_timeout_s.to_string();
    let mut builder = stages
        .iter()
        .fold(Server::builder().lab(lab), |builder, stage| {
            builder.set(&format!("delivery.{stage}_timeout_s"), &timeout)
        })
        .set("classes.ordinary_networks", "[\"127.0.0.1\"]")
        .set("log.attempts", &format!("{LOG:?}"))
        .set("log.format", "\"json\"");
    let verified: Vec<String> = cases
        .iter()
        .filter(|case| case.receiver.is_verified)
        .map(|case| format!("{{ domain = '{}', require = 'verify' }}", case.name()))
        .collect();
    if !verified.is_empty() {
        builder = builder
            .file("ca.pem", stentor_lab::tls::ca_pem().as_bytes())
            .set("delivery.tls_ca_file", "\"ca.pem\"")
            .set("tls_policy", &format!("[{}]", verified.join(", ")));
    }
    for case in cases.iter().filter(|case| case.lmtp) {
        let name = case.name();
        let host = |mx: usize| format!("lmtp:mx{mx}.{name}:{}", lab.smtp_port());
        let hosts: Vec<String> = (1..=case.hosts).map(host).collect();
        builder = builder.route(&name, &hosts.iter().map(String::as_str).collect::<Vec<_>>());
    }
    builder
}

/// One message; its queue id.
fn hand_in(client: &mut Smtp, mail: Mail, to: &Vec<String>, message_id: &str) -> String {
    let (mut parameters, mut of_rcpt, mut fields, mut body) = ("", "", "Subject: x\r\n", "Hello,\r\n.dot\r\nbye\r\n");
    let large;
    match mail {
        Mail::Plain | Mail::One | Mail::Many | Mail::FirstRefused => {}
        Mail::Large => {
            large = body.repeat(10_000);
            body = &large;
        }
        Mail::Utf8 => parameters = " BODY=8BITMIME SMTPUTF8",
        Mail::Dsn => (parameters, of_rcpt) = (" RET=HDRS ENVID=e1", " NOTIFY=FAILURE,DELAY"),
        Mail::EightBit => {
            parameters = " BODY=8BITMIME";
            fields =
                "MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n";
            body = "gr\u{fc}n\r\n";
        }
    }
    client.cmd(&format!("MAIL FROM:<{SENDER}>{parameters}")).expect(250);
    for to in to {
        client.cmd(&format!("RCPT TO:<{to}>{of_rcpt}")).expect(250);
    }
    client.cmd("DATA").expect(354);
    client.raw(&dot_stuff(&message_with(message_id, fields, body)));
    client.reply().expect(250).queue_id()
}
