//! Shared by the integration tests: the real `stentor` binary in its own folder, the lab around it, and a raw SMTP
//! client.
//!
//! Promise: every test has its own ports, data and lab, so that all run in parallel; nothing waits for a fixed time
//! where it can wait for an event; a wait longer than [`PATIENCE`] fails with the server's log. An `expect` here is an
//! assertion of the test that calls: its text is what the test relies on, and without it the test has failed.
//!
//! ```no_run
//! use stentor_harness::{Server, TestLab, message};
//! let lab = TestLab::start("[[site]]\nname = \"one.example\"\n");
//! let server = Server::builder().lab(&lab).list("news", &["ann@one.example"]).start();
//! let wire = message("1@test", "A post");
//! lab.recorder().expect_message(wire.clone().into());
//! server.smtp().send("me@home.example", &["news@lists.test"], &wire).expect(250);
//! lab.wait_clean("1@test", &["ann@one.example"]);
//! ```

// A reply that was asserted, a server that was started: calls for their effect are normal here.
#![allow(clippy::return_self_not_must_use)]
// Text is put together where it is read most easily, not where it is fastest.
#![allow(clippy::format_push_string, clippy::format_collect)]

mod binary;
mod cgroup;
mod client;
mod http;
mod lab;
mod load;
mod log;
mod loop_fs;
mod mail;
mod receiver;
mod server;
mod tracefs;

use std::time::Duration;

pub use binary::{stentor, stentor_deliver, stentor_kit, stentor_sendmail, target_dir};
pub use cgroup::MemoryCap;
pub use client::{Reply, Smtp};
pub use http::{Answer, Ask, exchange};
pub use lab::TestLab;
pub use load::{AcknowledgedMessage, Load, Mail};
pub use log::Log;
pub use loop_fs::{Kind, LoopFs, skipped};
pub use mail::{dot_stuff, message, message_with};
pub use receiver::{Received, Receiver};
pub use server::{Builder, Server};
pub use tracefs::tracefs;

/// How long anything is waited for before the test fails; far beyond what it takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits for what nothing tells: asks again until it holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
