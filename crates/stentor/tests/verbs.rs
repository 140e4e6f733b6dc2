//! Tests the operator's verbs, from the control socket to the journal and back through a restart: the real server in
//! this process, with the lab as the Internet.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor::serve::Server;
use stentor_admin::operator::Operator;
use stentor_config::Config;
use stentor_control::{
    ActionResult, Client, ControlError, ControlReply, ErrorCode, MessageView, RecipientState, Request,
};
use stentor_control::{Selection, Verb, View};
use stentor_core::Settings;
use stentor_journal::{Journal, RealDisk};
use stentor_lab::{Lab, Mode, Scenario};
use stentor_queue::event::{Event, Fate};

const PATIENCE: Duration = Duration::from_secs(90);
/// Nothing listens at `down`; reports go to `home`; `slow` pauses after the data.
const SCENARIO: &str = r#"
[[site]]
name = "home.example"
[[site]]
name = "down.example"
behaviour = { connect = "refuse" }
[[site]]
name = "slow.example"
behaviour = { dot_delay_ms = 1500, at_dot = "451 4.3.0 not now" }
[[site]]
name = "later.example"
behaviour = { greylist_ms = 100 }
"#;

struct World {
    runtime: tokio::runtime::Runtime,
    lab: Lab,
    folder: tempfile::TempDir,
    server: Option<Server>,
}

impl World {
    fn start() -> World {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let lab = runtime.block_on(Lab::start_with(Scenario::parse(SCENARIO).unwrap(), Mode::Bodies)).unwrap();
        let mut world = World { runtime, lab, folder: tempfile::tempdir().unwrap(), server: None };
        world.run();
        world
    }

    fn config(&self) -> Config {
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"data\"\nclient_networks = [\"127.0.0.1\"]\n\
             [listen]\nsmtp = [\"127.0.0.1:0\"]\n\
             [http]\nlisten = []\n[journal]\nsegment_bytes = 2097152\nbatch_bytes_max = 1048576\nreserve_bytes = 0\n\
             [dns]\nservers = [\"{}\"]\nloopback_allowed = true\n\
             [delivery]\nsmtp_port = {}\n\
             [retry]\nrecipient_min_s = 600\nbounce_gather_ms = 50\n",
            self.lab.dns_addr(),
            self.lab.smtp_port()
        );
        let path = self.folder.path().join("stentor.toml");
        std::fs::write(&path, text).unwrap();
        stentor_config::check(&path).unwrap_or_else(|wrong| panic!("{}", wrong[0]))
    }

    fn run(&mut self) {
        let config = self.config();
        let server = self.runtime.block_on(async {
            let mut server = Server::start(config).await.unwrap();
            let (demands, _) = tokio::sync::mpsc::unbounded_channel();
            let operator =
                Operator::new(server.core.clone(), demands, server.sessions_counter(), server.webhooks_troubled());
            server.listen_control(Arc::new(operator)).unwrap();
            server
        });
        self.server = Some(server);
    }

    fn stop(&mut self) {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.stop());
    }

    fn restart(&mut self) {
        self.stop();
        self.run();
    }

    fn post(&self, from: &str, to: &[&str]) -> String {
        let mut stream = BufReader::new(TcpStream::connect(self.server.as_ref().unwrap().addresses[0]).unwrap());
        let mut say = |text: &str, code: &str| {
            stream.get_mut().write_all(text.as_bytes()).unwrap();
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                assert!(line.starts_with(code), "{text:?}: {line}");
                if line.as_bytes()[3] == b' ' {
                    return;
                }
            }
        };
        say("", "220");
        say("EHLO client.test\r\n", "250");
        say(&format!("MAIL FROM:<{from}>\r\n"), "250");
        for to in to {
            say(&format!("RCPT TO:<{to}>\r\n"), "250");
        }
        say("DATA\r\n", "354");
        let id = fastrand::u64(..);
        say(&format!("Message-ID: <{id}@test>\r\nSubject: x\r\n\r\nA line\r\n.\r\n"), "250");
        self.export().into_iter().find(|m| m["message_id"] == format!("<{id}@test>")).unwrap()["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn client(&self) -> Client {
        Client::connect(&self.folder.path().join("data/control.sock")).unwrap()
    }

    fn act(&self, verb: Verb, selection: &Selection, dry_run: bool) -> ActionResult {
        let request =
            Request::Act { verb, selection: selection.clone(), dry_run, reason: Some("no such project".into()) };
        match self.client().ask(&request).unwrap() {
            ControlReply::Counted(counted) => *counted,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a dry run, then the action, and checks that both agree. Returns messages, recipients, in flight.
    fn counts(&self, verb: Verb, selection: &Selection) -> [u64; 3] {
        let of = |c: ActionResult| [c.messages.unwrap(), c.count.unwrap(), c.in_flight.unwrap()];
        let dry = of(self.act(verb, selection, true));
        let done = of(self.act(verb, selection, false));
        assert_eq!(dry, done, "{verb:?}");
        done
    }

    fn export(&self) -> Vec<serde_json::Value> {
        let mut lines = Vec::new();
        let request = Request::Export { selection: Selection::default() };
        let mut keep = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["reply"] == "envelope" {
                lines.push(line["data"].clone());
            }
            Ok(())
        };
        assert!(matches!(self.client().ask_lines(&request, &mut keep), Ok(ControlReply::Counted(_))));
        lines
    }

    fn show(&self, id: &str) -> Option<MessageView> {
        match self.client().ask(&Request::QueueShow { id: id.parse().unwrap(), recipients_max: 100 }) {
            Ok(ControlReply::Message(message)) => Some(*message),
            Err(ControlError::Refused(problem)) if problem.code == ErrorCode::NotFound => None,
            other => panic!("{other:?}"),
        }
    }

    fn fates(&self) -> BTreeMap<&'static str, u64> {
        let Ok(ControlReply::Status(status)) = self.client().ask(&Request::Status) else { panic!("no status") };
        let fates = status.recipients;
        let sum = fates.delivered + fates.bounced + fates.expired + fates.removed + fates.pending;
        assert_eq!(fates.acknowledged, sum);
        [
            ("delivered", fates.delivered),
            ("bounced", fates.bounced),
            ("removed", fates.removed),
            ("pending", fates.pending),
        ]
        .into_iter()
        .collect()
    }

    fn wait_state(&self, id: &str, state: RecipientState) {
        wait("a state", || {
            self.show(id).is_some_and(|m| !m.recipients.is_empty() && m.recipients.iter().all(|r| r.state == state))
        });
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn by_id(id: &str) -> Selection {
    Selection { ids: vec![id.parse().unwrap()], ..Selection::default() }
}

/// Verbs with their operators, and fates with theirs.
type AuditTrail = (Vec<(String, String)>, Vec<(Fate, String)>);

/// The verbs, fates and operators that the journal recorded.
fn audit(config: Config, folder: &Path) -> AuditTrail {
    let disk = RealDisk::open(&folder.join("data/journal")).unwrap();
    let (mut verbs, mut fates) = (Vec::new(), Vec::new());
    Journal::open(Arc::new(disk), Settings::new(config, None).journal(1), &mut |record| {
        match Event::decode(record.payload).map_err(|e| format!("{e}: {:02x?}", record.payload))? {
            Event::Verb { who, verb, detail, at } => {
                assert!(who.starts_with("uid=") && who.contains(" pid=") && at > 0, "{who}");
                assert!(detail.contains("no such project") && detail.contains("\"recipients\":"), "{detail}");
                verbs.push((verb.to_owned(), detail.to_owned()));
            }
            Event::Outcome { fate, by: Some(by), .. } => fates.push((fate, by.to_owned())),
            _ => {}
        }
        Ok(())
    })
    .unwrap();
    (verbs, fates)
}

#[test]
fn a_hold_survives_a_restart_and_ends_with_the_release() {
    let mut world = World::start();
    // Greylisted with a clock of ten minutes: only a requeue retries it.
    let id = world.post("ann@home.example", &["bob@later.example"]);
    world.wait_state(&id, RecipientState::Deferred);
    let held = Selection { sender: Some("@HOME.example".into()), ..Selection::default() };
    assert_eq!(world.counts(Verb::Hold, &held), [1, 1, 0]);
    assert_eq!(world.counts(Verb::Hold, &held), [0, 0, 0], "it is held already");
    world.wait_state(&id, RecipientState::Held);
    world.counts(Verb::Requeue, &held);
    world.restart();
    world.wait_state(&id, RecipientState::Held);
    let Ok(ControlReply::Queue(queue)) = world.client().ask(&Request::Queue(View::rows(5))) else { panic!("no queue") };
    assert_eq!((queue.held, queue.recipients), (1, 1));
    assert_eq!((world.export()[0]["held"].as_bool(), world.lab.recorder().copies().len()), (Some(true), 0));
    assert_eq!(world.counts(Verb::Release, &by_id(&id)), [1, 1, 0]);
    wait("the delivery", || {
        // The lab may greylist it again; then it waits for its clock.
        world.act(Verb::Requeue, &by_id(&id), false);
        world.show(&id).is_none()
    });
    assert_eq!(world.fates()["delivered"], 1);
    world.stop();
    let (verbs, _) = audit(world.config(), world.folder.path());
    let names: Vec<&str> = verbs.iter().map(|(verb, _)| verb.as_str()).collect();
    assert_eq!((names[0], names.contains(&"release")), ("hold", true));
    assert!(verbs[0].1.contains("@HOME.example"));
}

#[test]
fn removed_and_bounced_recipients_end_by_the_operator() {
    let mut world = World::start();
    let to = ["a@down.example", "b@down.example", "c@down.example"];
    let id = world.post("ann@home.example", &to);
    let quiet = world.post("", &["d@down.example"]);
    wait("the site", || world.show(&id).is_some_and(|m| m.recipients.iter().all(|r| r.site.contains("down"))));
    let exported = world.export();
    assert_eq!((exported.len(), exported[0]["recipients"].as_array().unwrap().len()), (2, 3));
    assert_eq!(exported[0]["recipients"][0]["address"], "a@down.example");

    let narrow = Selection {
        recipient: Some("a@down.example".into()),
        site: Some(exported[0]["recipients"][0]["site"].as_str().unwrap().into()),
        age_s_max: Some(3600),
        ..Selection::default()
    };
    for nobody in [
        Selection { age_s_min: Some(3600), ..narrow.clone() },
        Selection { recipient: Some("zoe@nowhere.example".into()), ..narrow.clone() },
        Selection { sender: Some("a@b.example".into()), ..narrow.clone() },
    ] {
        assert_eq!(world.counts(Verb::Remove, &nobody), [0, 0, 0]);
    }
    for unknown in [
        Selection { site: Some("mars".into()), ..Selection::default() },
        Selection { list: Some("news".into()), ..narrow.clone() },
    ] {
        let request = Request::Act { verb: Verb::Remove, selection: unknown, dry_run: false, reason: None };
        assert!(matches!(world.client().ask(&request), Err(ControlError::Refused(p)) if p.code == ErrorCode::NotFound));
    }
    assert_eq!(world.fates()["pending"], 4, "nothing was changed");

    assert_eq!(world.counts(Verb::Remove, &narrow), [1, 1, 0]);
    assert_eq!((world.fates()["removed"], world.fates()["pending"]), (1, 3));
    let rest = Selection { recipient: Some("@down.example".into()), ..Selection::default() };
    assert_eq!(world.counts(Verb::Bounce, &rest), [2, 3, 0]);
    assert!(world.show(&id).is_none() && world.show(&quiet).is_none());
    wait("the report", || world.lab.recorder().copies_to("ann@home.example").len() == 1);
    let report = world.lab.recorder().copies_to("ann@home.example").remove(0);
    let report = String::from_utf8_lossy(&report.body.expect("kept")).into_owned();
    assert!(report.contains("no such project"), "the sender is told why: {report}");
    wait("the end", || world.fates()["pending"] == 0);
    let fates = world.fates();
    assert_eq!(
        (fates["removed"], fates["bounced"], fates["delivered"]),
        (1, 3, 1),
        "one report, none to the null sender"
    );
    world.restart();
    assert_eq!(world.fates(), fates, "what is replayed is what was");
    world.stop();
    let (verbs, ended) = audit(world.config(), world.folder.path());
    assert_eq!(verbs.iter().filter(|(verb, _)| verb == "bounce").count(), 2, "an audit record in each batch");
    let by_whom = |fate| ended.iter().filter(|(f, by)| *f == fate && by.starts_with("uid=")).count();
    assert_eq!((by_whom(Fate::Removed), by_whom(Fate::Bounced)), (1, 2));
}

/// Thousands of ids in each of thousands of batches would exceed the mail itself and the size of a batch.
#[test]
fn the_audit_record_of_one_messages_bounce_has_its_id_alone() {
    let mut world = World::start();
    let ids: Vec<String> = (0..3).map(|n| world.post("", &[&format!("u{n}@down.example")])).collect();
    let chosen = Selection { ids: ids.iter().map(|id| id.parse().unwrap()).collect(), ..Selection::default() };
    assert_eq!(world.counts(Verb::Bounce, &chosen), [3, 3, 0]);
    world.stop();
    let (verbs, _) = audit(world.config(), world.folder.path());
    let named: Vec<usize> =
        verbs.iter().map(|(_, detail)| ids.iter().filter(|id| detail.contains(*id)).count()).collect();
    assert_eq!(named, [1, 1, 1], "{verbs:?}");
}

#[test]
fn what_is_in_a_transaction_is_removed_when_that_has_ended() {
    let mut world = World::start();
    let id = world.post("ann@home.example", &["bob@slow.example"]);
    world.wait_state(&id, RecipientState::InFlight);
    assert_eq!(world.counts(Verb::Remove, &by_id(&id)), [1, 0, 1]);
    wait("the removal", || world.show(&id).is_none());
    assert_eq!((world.fates()["removed"], world.fates()["delivered"]), (1, 0));
    world.stop();
    let (verbs, ended) = audit(world.config(), world.folder.path());
    assert_eq!((verbs.len(), ended.len()), (1, 1));
}
