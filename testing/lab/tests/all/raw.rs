//! A raw SMTP client for tests: sends given octets and reads whole replies.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stentor_lab::{Behaviour, Mode, Model, Recorder, Sink, SinkOnly, SinkOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Beyond this a reply is held to be missing; generous, since it is waited for in full only where a test fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long silence is listened to where silence is expected.
const SILENCE: Duration = Duration::from_millis(150);

pub struct Raw {
    pub stream: TcpStream,
    input: Vec<u8>,
}

thread_local! {
    /// What the sinks of this test's thread are; none: tasks of the test's runtime.
    static MODEL: Cell<Option<Model>> = const { Cell::new(None) };
}

/// From now on this thread's sinks are of the model.
pub fn choose(model: Option<Model>) {
    MODEL.set(model);
}

pub enum AnySink {
    Tasks(SinkOnly),
    Model(Sink),
}

impl AnySink {
    pub fn address(&self) -> SocketAddr {
        match self {
            AnySink::Tasks(sink) => sink.address(),
            AnySink::Model(sink) => sink.addresses()[0],
        }
    }

    pub fn recorder(&self) -> &Arc<Recorder> {
        match self {
            AnySink::Tasks(sink) => sink.recorder(),
            AnySink::Model(sink) => sink.recorder(),
        }
    }

    pub async fn stop(self) {
        match self {
            AnySink::Tasks(sink) => sink.stop().await,
            AnySink::Model(sink) => sink.stop(),
        }
    }
}

pub fn sink(behaviour: &str) -> AnySink {
    let behaviour = Behaviour::parse(behaviour).expect("valid behaviour");
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let Some(model) = MODEL.get() else {
        return AnySink::Tasks(SinkOnly::start(address, behaviour, Mode::Bodies).expect("starts"));
    };
    let options = SinkOptions { behaviour, mode: Mode::Bodies, model, threads: 8, ..SinkOptions::new(address) };
    AnySink::Model(Sink::start(&options).expect("starts"))
}

impl Raw {
    /// Connects without reading the greeting.
    pub async fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).await.expect("connects")
    }

    pub async fn try_connect(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self { stream: TcpStream::connect(address).await?, input: Vec::new() })
    }

    /// Connects, reads the greeting and says EHLO.
    pub async fn open(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address).await;
        assert!(raw.reply().await.starts_with("220 "));
        assert!(raw.ask("EHLO client.example\r\n").await.starts_with("250"));
        raw
    }

    pub async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("written");
    }

    /// The next whole reply, lines joined by "|"; "closed" or "reset" if there is none.
    pub async fn reply(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.next()).await.expect("a reply in time")
    }

    async fn next(&mut self) -> String {
        let mut lines = Vec::new();
        loop {
            while let Some(end) = self.input.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                let line = String::from_utf8(line).expect("UTF-8").trim_end().to_owned();
                let more = line.as_bytes().get(3) == Some(&b'-');
                lines.push(line);
                if !more {
                    return lines.join("|");
                }
                assert!(lines.len() < 1000, "endless reply");
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) => return "closed".to_owned(),
                Ok(_) => {}
                Err(_) => return "reset".to_owned(),
            }
        }
    }

    pub async fn ask(&mut self, text: &str) -> String {
        self.send(text).await;
        self.reply().await
    }

    /// Nothing comes for a while.
    pub async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(SILENCE, self.next()).await.is_err()
    }

    /// One whole transaction step by step; the first refusal, or the final reply.
    pub async fn deliver(&mut self, recipient: &str, message: &str) -> String {
        for (line, good) in [
            ("MAIL FROM:<s@source.example>\r\n".to_owned(), "250"),
            (format!("RCPT TO:<{recipient}>\r\n"), "250"),
            ("DATA\r\n".to_owned(), "354"),
        ] {
            let reply = self.ask(&line).await;
            if !reply.starts_with(good) {
                return reply;
            }
        }
        self.ask(&format!("{message}.\r\n")).await
    }
}
