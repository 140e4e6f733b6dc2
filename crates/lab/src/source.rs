//! A small load source: n connections hand in messages as fast as the server takes them.
//!
//! Promise: each message has a Message-ID of its own ([`Source::message_id`]) unless it is given whole; what is reported
//! as accepted was answered 250 after its end of data. A connection that fails is opened anew for the next message; a
//! failed message is counted, not repeated.

use crate::error::LabError;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use stentor_measure::Histogram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Replies longer than this end the connection.
const REPLY_BYTES_MAX: usize = 64 << 10;
const LINE_OCTETS: usize = 72;

/// What to send where.
#[derive(Debug, Clone)]
pub struct Source {
    pub target: SocketAddr,
    pub connections: u32,
    /// In all, over all connections.
    pub messages: u64,
    /// After this no message is begun any more.
    pub duration_max: Option<Duration>,
    /// Octets of a message, header included; what is shorter than the header is made as long as it.
    pub size_bytes: usize,
    /// One connection for many messages, or a session each.
    pub keep_open: bool,
    /// MAIL, RCPT and DATA in one write.
    pub pipelining: bool,
    pub sender: String,
    /// Used in turn.
    pub recipients: Vec<String>,
    pub recipients_per_message: usize,
    /// This message, as it goes over the wire (CRLF lines, not dot-stuffed), in place of a made one.
    pub message: Option<Arc<[u8]>>,
    /// Part of the Message-IDs, so that runs can be told apart.
    pub run: String,
    /// For any single reply.
    pub timeout: Duration,
}

impl Source {
    /// Ten connections, 1,000 messages of 4 KiB to one recipient, sessions kept open.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            connections: 10,
            messages: 1000,
            duration_max: None,
            size_bytes: 4096,
            keep_open: true,
            pipelining: true,
            sender: "source@source.lab".to_owned(),
            recipients: vec!["sink@sink.lab".to_owned()],
            recipients_per_message: 1,
            message: None,
            run: "run".to_owned(),
            timeout: Duration::from_mins(5),
        }
    }

    /// The Message-ID (without brackets) of the n-th message, from 0.
    pub fn message_id(&self, n: u64) -> String {
        format!("{}.{n}@source.lab", self.run)
    }

    /// The n-th message as it is sent, not dot-stuffed.
    pub fn message(&self, n: u64) -> Vec<u8> {
        if let Some(message) = &self.message {
            return message.to_vec();
        }
        let mut text = format!(
            "From: <{}>\r\nTo: undisclosed-recipients:;\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\nSubject: load\r\n\
             Message-ID: <{}>\r\n\r\n",
            self.sender,
            self.message_id(n)
        )
        .into_bytes();
        while text.len() < self.size_bytes {
            let left = self.size_bytes - text.len();
            let line = if left > LINE_OCTETS + 4 { LINE_OCTETS } else { left.saturating_sub(2) };
            text.extend(std::iter::repeat_n(b'x', line));
            text.extend_from_slice(b"\r\n");
        }
        text
    }

    fn envelope(&self, n: u64) -> (String, usize) {
        let mut text = format!("MAIL FROM:<{}>\r\n", self.sender);
        let count = self.recipients_per_message.max(1);
        for k in 0..count {
            let at = (n as usize).wrapping_mul(count).wrapping_add(k) % self.recipients.len();
            // Writing to a String cannot fail.
            let _ = write!(text, "RCPT TO:<{}>\r\n", self.recipients[at]);
        }
        text.push_str("DATA\r\n");
        (text, count)
    }

    /// Runs to the end. Errors only if there is nothing to send; what the server does wrong is in the report.
    pub async fn run(self) -> Result<SourceReport, LabError> {
        if self.recipients.is_empty() {
            return Err(LabError::Scenario("the source has no recipients".to_owned()));
        }
        let shared = Arc::new(Shared {
            source: self,
            next: AtomicU64::new(0),
            start: Instant::now(),
            report: Mutex::new(SourceReport::default()),
        });
        let start = shared.start;
        let mut tasks = JoinSet::new();
        for _ in 0..shared.source.connections.max(1) {
            tasks.spawn(work(Arc::clone(&shared)));
        }
        while tasks.join_next().await.is_some() {}
        let mut report = std::mem::take(&mut *shared.report.lock());
        report.seconds = start.elapsed().as_secs_f64();
        report.accepted_per_s = report.accepted as f64 / report.seconds.max(1e-9);
        Ok(report)
    }
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SourceReport {
    /// Messages answered 250 after their data.
    pub accepted: u64,
    /// Recipients of those messages answered 250.
    pub recipients: u64,
    /// Failed messages and refused recipients by what was said: "451 DATA", "550 RCPT", "connect: ...".
    pub errors: BTreeMap<String, u64>,
    pub seconds: f64,
    pub accepted_per_s: f64,
    /// From the final dot to its reply, microseconds.
    #[serde(skip)]
    pub final_us: Histogram,
    /// From MAIL to the final reply, microseconds; the session's opening and closing not included.
    #[serde(skip)]
    pub transaction_us: Histogram,
}

struct Shared {
    source: Source,
    next: AtomicU64,
    start: Instant,
    report: Mutex<SourceReport>,
}

async fn work(shared: Arc<Shared>) {
    let source = &shared.source;
    let mut client: Option<Client> = None;
    let mut report = SourceReport::default();
    loop {
        let n = shared.next.fetch_add(1, Relaxed);
        if n >= source.messages || source.duration_max.is_some_and(|most| shared.start.elapsed() >= most) {
            break;
        }
        let mut open = match client.take() {
            Some(open) => open,
            None => match Client::open(source).await {
                Ok(open) => open,
                Err(failure) => {
                    report.count(failure);
                    continue;
                }
            },
        };
        match open.send(source, n, &mut report).await {
            Err(failure) => report.count(failure),
            Ok(()) if source.keep_open => client = Some(open),
            Ok(()) => open.quit().await,
        }
    }
    if let Some(open) = client {
        open.quit().await;
    }
    shared.report.lock().merge(&report);
}

impl SourceReport {
    fn count(&mut self, failure: String) {
        *self.errors.entry(failure).or_insert(0) += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.recipients += other.recipients;
        self.final_us.merge(&other.final_us);
        self.transaction_us.merge(&other.transaction_us);
        for (what, count) in &other.errors {
            *self.errors.entry(what.clone()).or_insert(0) += count;
        }
    }
}

struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    timeout: Duration,
}

type Failure = String;

impl Client {
    async fn open(source: &Source) -> Result<Self, Failure> {
        let connect = tokio::time::timeout(source.timeout, TcpStream::connect(source.target));
        let failed = |error: io::Error| format!("connect: {}", error.kind());
        let stream = connect.await.map_err(|_| "connect: timed out".to_owned())?.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut client = Self { stream, input: Vec::new(), timeout: source.timeout };
        client.expect(220, "greeting").await?;
        client.write(b"EHLO source.lab\r\n").await?;
        client.expect(250, "EHLO").await?;
        Ok(client)
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).await.map_err(|e| format!("write: {}", e.kind()))
    }

    async fn expect(&mut self, code: u16, stage: &str) -> Result<(), Failure> {
        match self.reply().await? {
            got if got == code => Ok(()),
            got => Err(format!("{got} {stage}")),
        }
    }

    /// The code of the next reply.
    async fn reply(&mut self) -> Result<u16, Failure> {
        loop {
            let mut at = 0;
            while let Some(end) = memchr::memchr(b'\n', &self.input[at..]) {
                let line = &self.input[at..at + end];
                at += end + 1;
                if line.get(3).is_none_or(|&b| b != b'-') {
                    let code = line.get(..3).and_then(|c| std::str::from_utf8(c).ok()).and_then(|c| c.parse().ok());
                    self.input.drain(..at);
                    return code.ok_or_else(|| "reply without a code".to_owned());
                }
            }
            if self.input.len() > REPLY_BYTES_MAX {
                return Err("reply too long".to_owned());
            }
            let read = tokio::time::timeout(self.timeout, self.stream.read_buf(&mut self.input));
            match read.await {
                Err(_) => return Err("read: timed out".to_owned()),
                Ok(Err(error)) => return Err(format!("read: {}", error.kind())),
                Ok(Ok(0)) => return Err("read: closed".to_owned()),
                Ok(Ok(_)) => {}
            }
        }
    }

    /// One transaction. A refusal of the message ends the connection, for simplicity.
    async fn send(&mut self, source: &Source, n: u64, report: &mut SourceReport) -> Result<(), Failure> {
        let (envelope, count) = source.envelope(n);
        let start = Instant::now();
        if source.pipelining {
            self.write(envelope.as_bytes()).await?;
        }
        let mut good = 0;
        for (at, line) in envelope.split_inclusive("\r\n").enumerate() {
            if !source.pipelining {
                self.write(line.as_bytes()).await?;
            }
            match (at, self.reply().await?) {
                (0, 250) => {}
                (0, code) => return Err(format!("{code} MAIL")),
                (at, 250 | 251) if at <= count => good += 1,
                (at, code) if at <= count => report.count(format!("{code} RCPT")),
                (_, 354) => {}
                (_, code) => return Err(format!("{code} DATA")),
            }
        }
        let mut data = stuff(&source.message(n));
        data.extend_from_slice(b".\r\n");
        self.write(&data).await?;
        let dot = Instant::now();
        self.expect(250, "end of data").await?;
        report.final_us.add(dot.elapsed().as_micros() as u64);
        report.transaction_us.add(start.elapsed().as_micros() as u64);
        report.accepted += 1;
        report.recipients += good;
        Ok(())
    }

    async fn quit(mut self) {
        // What it says to QUIT changes nothing any more.
        if self.write(b"QUIT\r\n").await.is_ok() {
            let _ = self.reply().await;
        }
    }
}

/// Doubles the dots at line starts (RFC 5321 4.5.2); ends with CRLF.
fn stuff(message: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(message.len() + 16);
    for line in message.split_inclusive(|&b| b == b'\n') {
        if line.first() == Some(&b'.') {
            data.push(b'.');
        }
        data.extend_from_slice(line);
    }
    if !data.ends_with(b"\r\n") {
        data.extend_from_slice(b"\r\n");
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_size_and_id() {
        let mut source = Source::new(SocketAddr::from(([127, 0, 0, 1], 25)));
        for size in [300, 1000, 4095, 4096, 4097, 70_000] {
            source.size_bytes = size;
            let message = source.message(7);
            assert!(message.len().abs_diff(size) <= 1, "{size}: {}", message.len());
            assert!(message.ends_with(b"\r\n"));
            assert_eq!(crate::message_id_of(&message), source.message_id(7));
        }
    }

    #[test]
    fn dots_are_stuffed() {
        assert_eq!(stuff(b".\r\na.\r\n..b"), b"..\r\na.\r\n...b\r\n");
        assert_eq!(stuff(b""), b"\r\n");
    }
}
