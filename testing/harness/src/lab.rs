//! A lab with its own runtime, for tests without `async`.

use std::net::SocketAddr;
use std::sync::Arc;

use stentor_lab::{Lab, LabStats, Mode, Recorder, Scenario};

use crate::PATIENCE;

pub struct TestLab {
    // In this order: the lab closes its sockets before its runtime ends.
    lab: Lab,
    runtime: tokio::runtime::Runtime,
}

impl TestLab {
    /// Starts a scenario (TOML, see docs/kit/lab.md), keeping every copy with its octets.
    pub fn start(scenario: &str) -> TestLab {
        TestLab::start_with(scenario, Mode::Bodies)
    }

    /// Sites without faults, one domain each: `one.example`, `two.example` ...
    pub fn sites(names: &[&str]) -> TestLab {
        let text: String = names.iter().map(|name| format!("[[site]]\nname = \"{name}\"\n")).collect();
        TestLab::start(&text)
    }

    pub fn start_with(scenario: &str, mode: Mode) -> TestLab {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be started");
        let scenario = Scenario::parse(scenario).expect("the test's scenario is right");
        let lab = runtime.block_on(Lab::start_with(scenario, mode)).expect("the lab starts");
        TestLab { lab, runtime }
    }

    pub fn dns(&self) -> SocketAddr {
        self.lab.dns_addr()
    }

    pub fn smtp_port(&self) -> u16 {
        self.lab.smtp_port()
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        self.lab.recorder()
    }

    pub fn scenario(&self) -> &Arc<Scenario> {
        self.lab.scenario()
    }

    pub fn stats(&self) -> LabStats {
        self.lab.stats()
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Waits until `done` holds, looking again whenever a sink has done something.
    pub fn wait(&self, what: &str, done: impl FnMut(&Recorder) -> bool) {
        let recorder = self.recorder();
        let came = self.runtime.block_on(recorder.wait_for(PATIENCE, done));
        assert!(came, "waited in vain: {what}; lab: {:?}; damaged: {:?}", self.stats(), recorder.damaged());
    }

    /// Waits for this many copies in all.
    pub fn wait_copies(&self, copies: u64) {
        self.wait(&format!("{copies} copies"), |recorder| recorder.stats().recipients >= copies);
    }

    /// Waits until every one of `recipients` has a copy of the message, and asserts that each has exactly one, intact
    /// if an original was registered, that nobody else has one, and that no sink saw a breach of protocol.
    pub fn wait_clean(&self, id: &str, recipients: &[&str]) {
        self.wait(&format!("copies of {id}"), |r| r.audit(id, recipients.iter().copied()).missing.is_empty());
        let audit = self.recorder().audit(id, recipients.iter().copied());
        let copies = || {
            let copies = self.recorder().copies();
            copies
                .iter()
                .filter(|copy| &*copy.message_id == id)
                .map(|copy| copy.recipient.to_string())
                .collect::<Vec<_>>()
        };
        assert!(audit.is_clean(), "{id}: {audit:?}; copies: {:?}; damaged: {:?}", copies(), self.recorder().damaged());
        self.assert_no_violations();
    }

    /// No sink saw a breach of protocol by its client.
    pub fn assert_no_violations(&self) {
        let violations = self.recorder().violations();
        assert!(violations.is_empty(), "{violations:?}");
    }

    /// The octets of the only copy for this recipient.
    pub fn body_for(&self, recipient: &str) -> Vec<u8> {
        let copies = self.recorder().copies_to(recipient);
        assert_eq!(copies.len(), 1, "{recipient}: {copies:?}");
        copies[0].body.as_ref().expect("the lab keeps bodies").to_vec()
    }
}
