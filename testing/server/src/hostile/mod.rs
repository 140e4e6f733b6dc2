//! Hostile receivers: hosts of the lab that answer anything at any stage, and the required outcome for each.
//!
//! [`receivers`] is the table: a host's script (`stentor_lab::script`) and the end that mail to it must come to,
//! written down beforehand. [`pages`] makes docs/design/hostile-receivers.md of it. A [`Case`] is a receiver in one of
//! its settings: one message or many, with a healthy host behind it or without, over SMTP or LMTP. [`run`] gives each
//! case a site of its own, hands in its mail at one server, watches, and judges by the lab's recorder and by the
//! server's own log and queue:
//!
//! - each recipient has an outcome: exactly one copy at the host that accepted it, a DSN, or a next try in the future;
//! - connections to the hostile host: 4 in the first 10 s, 2 in any later 10 s, for one message; one more for each
//!   further message, and for each recipient of a host that takes one per transaction. A host that refuses TCP
//!   connections is tried after 1, 2, 4, 8 ... s;
//! - 16 KiB of log for a message.

mod cpu;
mod judge;
mod page;
mod run;
mod table;

pub use cpu::{Cpu, Paired, cpu_of_each, paired};
pub use judge::Verdict;
pub use page::pages;
pub use run::{Options, run};
pub use table::receivers;

/// What becomes of a recipient at a site with a hostile host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// The hostile host takes it all the same.
    Taken,
    /// It is delivered over another connection: by the hostile host if it has no other, else by whichever is asked.
    Again,
    /// The host has failed: the next one takes it; without one it waits for the host's clock.
    Next,
    /// The next host takes it; without one it is returned to the sender.
    NextOrReturned,
    /// It waits behind a clock, whichever hosts there are.
    Waits,
    /// It is returned to the sender.
    Returned,
    /// The connection was lost behind the end of the data: it waits, and may be delivered twice (RFC 1047).
    Unsure,
    /// The same where the host has kept the copy.
    UnsureKept,
    /// Some have their copies; the others wait behind a clock.
    Dealt,
}

/// What is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mail {
    Plain,
    /// To `ann@` alone; all else is to `some@` too.
    One,
    /// Of 200 KB, of which a host has read a part when it answers.
    Large,
    EightBit,
    /// To an address beyond ASCII.
    Utf8,
    /// To 20 recipients.
    Many,
    /// With RET, ENVID and NOTIFY.
    Dsn,
    /// A first message to `some@` alone, whom the host refuses, so that RSET comes before the next.
    FirstRefused,
}

/// Over which protocols a receiver makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolScope {
    Both,
    Smtp,
    Lmtp,
}

/// One hostile host.
#[derive(Debug, Clone)]
pub struct Receiver {
    pub id: String,
    pub stage: &'static str,
    /// What the host does, in words.
    pub does: String,
    /// Keys of the lab's behaviour beside the script.
    pub keys: &'static str,
    /// Mail to it goes over TLS that proves the host, or not at all; the healthy host has such.
    pub is_verified: bool,
    pub script: Vec<String>,
    pub mail: Mail,
    pub over: ProtocolScope,
    pub end: End,
    /// Of `some@`, where it is another one.
    pub some: Option<End>,
    /// Over LMTP, where it is another one.
    pub lmtp: Option<End>,
}

/// A receiver in one setting.
#[derive(Debug, Clone)]
pub struct Case {
    pub receiver: Receiver,
    pub messages: usize,
    /// 1, or 2: a healthy one behind it.
    pub hosts: usize,
    pub lmtp: bool,
}

impl Case {
    /// Also the domain.
    pub fn name(&self) -> String {
        let protocol = if self.lmtp { "lmtp" } else { "smtp" };
        format!("{}.{}m{}h.{protocol}.hostile.example", self.receiver.id, self.messages, self.hosts)
    }

    /// What becomes of this recipient, by its local part.
    pub fn end_of(&self, local: &str) -> End {
        let receiver = &self.receiver;
        match (receiver.some, receiver.lmtp) {
            (Some(end), _) if local == SOME => end,
            (_, Some(end)) if self.lmtp => end,
            _ => receiver.end,
        }
    }
}

/// Whom most rules are about, and whom some are about.
pub const ANN: &str = "ann";
pub const SOME: &str = "some";

/// The receivers in these settings; what makes no sense over a protocol is left out.
pub fn cases(receivers: &[Receiver], messages: usize, hosts: usize, lmtp: bool) -> Vec<Case> {
    let wanted = if lmtp { ProtocolScope::Lmtp } else { ProtocolScope::Smtp };
    let fitting = receivers.iter().filter(|r| r.over == ProtocolScope::Both || r.over == wanted);
    fitting.map(|receiver| Case { receiver: receiver.clone(), messages, hosts, lmtp }).collect()
}
