//! Helpers shared by the delivery tests, on top of the harness.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stentor_harness::{Builder, Server, TestLab, message, wait_until};

use crate::report::Report;

/// The sender of the tests' messages; reports come back to the lab's site of that domain.
pub const SENDER: &str = "ann@sender.example";

/// The site of [`SENDER`], for a scenario.
pub const SENDER_SITE: &str = "[[site]]\nname = 'sender.example'\n";

/// Quick retries; a name server has so long that only those that never answer run out of it.
pub fn builder(lab: &TestLab) -> Builder {
    Server::builder().lab(lab).fast_retry().set("dns.timeout_ms", "3000").set("dns.attempts", "2")
}

/// A server without a world around it: no name is found.
pub fn bare() -> Builder {
    Server::builder().set("dns.timeout_ms", "300").set("dns.attempts", "1")
}

/// Hands in a message with this Message-ID that copies are compared with; the queue id.
#[track_caller]
pub fn post(server: &Server, lab: &TestLab, to: &[&str], id: &str) -> String {
    let wire = message(id, "A test");
    lab.recorder().expect_message(wire.clone().into());
    server.smtp().send(SENDER, to, &wire).expect(250).queue_id()
}

/// Hands in a message without waiting for replies to parameters: `from` and `to` are whole arguments of MAIL and RCPT.
#[track_caller]
pub fn post_with(server: &Server, from: &str, to: &[&str], wire: &[u8]) {
    let mut smtp = server.smtp();
    smtp.cmd(&format!("MAIL FROM:{from}")).expect(250);
    for to in to {
        smtp.cmd(&format!("RCPT TO:{to}")).expect(250);
    }
    smtp.cmd("DATA").expect(354);
    smtp.raw(&stentor_harness::dot_stuff(wire));
    smtp.reply().expect(250);
}

/// What became of recipients over the life of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fates {
    pub acknowledged: u64,
    pub delivered: u64,
    pub bounced: u64,
    pub expired: u64,
    pub pending: u64,
}

/// `stentor status`; the sum holds whenever one looks.
#[track_caller]
pub fn fates(server: &Server) -> Fates {
    let recipients = data(server.operator_json(&["status"]).remove(0))["recipients"].clone();
    let number = |name: &str| recipients[name].as_u64().unwrap_or_else(|| panic!("{name} in {recipients}"));
    let parts = ["delivered", "bounced", "expired", "removed", "quarantined", "coalesced", "pending"];
    let sum: u64 = parts.iter().map(|part| number(part)).sum();
    assert_eq!(number("acknowledged"), sum, "acknowledged is the sum of {recipients}");
    Fates {
        acknowledged: sum,
        delivered: number("delivered"),
        bounced: number("bounced"),
        expired: number("expired"),
        pending: number("pending"),
    }
}

/// The content of a reply line.
pub fn data(line: Value) -> Value {
    if line["data"].is_null() { line } else { line["data"].clone() }
}

#[track_caller]
pub fn wait_fates(server: &Server, what: &str, mut holds: impl FnMut(Fates) -> bool) -> Fates {
    let mut last = None;
    wait_until(&format!("{what}: {:?}", fates(server)), || {
        let now = fates(server);
        last = Some(now);
        holds(now)
    });
    last.expect("asked at least once")
}

/// Waits until nothing is pending.
#[track_caller]
pub fn drained(server: &Server) -> Fates {
    wait_fates(server, "nothing is pending", |fates| fates.pending == 0)
}

/// Waits for the first message to this recipient, which must be a report.
#[track_caller]
pub fn report_to(lab: &TestLab, recipient: &str) -> Report {
    lab.wait(&format!("a report to {recipient}"), |recorder| !recorder.copies_to(recipient).is_empty());
    let copy = lab.recorder().copies_to(recipient).remove(0);
    assert_eq!(&*copy.sender, "", "reports have the null sender");
    Report::parse(&copy.body.expect("the lab keeps bodies"))
}

/// Writes a program that may be run at once. The writing is another process's: a child that another test forks
/// meanwhile would have the file open for writing, and nobody could run it (ETXTBSY).
#[track_caller]
pub fn install(program: &Path, text: &str) {
    let source = program.with_extension("source");
    std::fs::write(&source, text).expect("the folder can be written");
    let installed = Command::new("install").args(["-m", "755"]).arg(&source).arg(program).status();
    assert!(installed.is_ok_and(|status| status.success()), "the folder can be written");
    std::fs::remove_file(source).expect("it is ours");
}

/// An address at which nothing listens.
pub fn closed_address() -> SocketAddr {
    ([127, 0, 0, 1], closed_port()).into()
}

/// A port at which nothing listens.
pub fn closed_port() -> u16 {
    /// Below those that the system gives to connections and to listeners without a port of their own: one that it has
    /// given once and is free again may be the next one's by the time it is used.
    const PORTS: std::ops::Range<u32> = 10_000..32_000;
    static TAKEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    loop {
        let next = std::process::id() + TAKEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let port = (PORTS.start + next % (PORTS.end - PORTS.start)) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
