//! The post, its recipients, and submitting it: a client like any other.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use stentor_lab::{Recorder, Scenario, crlf};
use stentor_lists::subscribers::{self, Occurrence};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::DemoError;

/// The built-in post.
const MESSAGE: &[u8] = include_bytes!("../../../../examples/demo.eml");

/// When the post went in, on the recorder's clock.
pub struct PostTiming {
    /// The final dot was sent.
    pub dot_us: u64,
    /// The 250 had come.
    pub accepted_us: u64,
    pub octets: usize,
}

/// The user's own subscribers (bad lines are said and skipped), or made-up ones.
pub fn subscribers(file: Option<&Path>, count: usize, scenario: &Scenario) -> Result<Vec<String>, DemoError> {
    let Some(path) = file else { return Ok(scenario.subscribers(count)) };
    let failed = |source| DemoError::File { path: path.to_owned(), source };
    let mut input = std::fs::File::open(path).map_err(failed)?;
    let mut people = Vec::new();
    let mut known = std::collections::HashSet::new();
    let report = subscribers::read(&mut input, &mut |subscriber| {
        if !known.insert(subscriber.address.to_owned()) {
            return Occurrence::Again;
        }
        people.push(subscriber.address.to_owned());
        Occurrence::First
    })
    .map_err(failed)?;
    for bad in &report.bad_lines {
        println!("{}: {bad}", path.display());
    }
    people.retain(|person| {
        let is_served = scenario.map_address(person).is_some();
        if !is_served {
            println!("{person}: skipped, the lab cannot serve this domain");
        }
        is_served
    });
    Ok(people)
}

/// The user's own message or the built-in one, as it goes over the wire.
pub fn message(file: Option<&Path>, to: &str) -> Result<Vec<u8>, DemoError> {
    if let Some(path) = file {
        let text = std::fs::read(path).map_err(|source| DemoError::File { path: path.to_owned(), source })?;
        return Ok(crlf(&text));
    }
    let text = String::from_utf8_lossy(MESSAGE).replace("LIST-ADDRESS", to);
    Ok(crlf(text.as_bytes()))
}

/// Hands the message in over SMTP.
pub async fn post(server: SocketAddr, to: &str, wire: Arc<[u8]>, recorder: &Recorder) -> Result<PostTiming, DemoError> {
    dialogue(server, to, &wire, recorder).await.map_err(|error| DemoError::Post(format!("posting: {error}")))
}

async fn dialogue(server: SocketAddr, to: &str, wire: &[u8], recorder: &Recorder) -> io::Result<PostTiming> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    expect(&mut input, 220).await?;
    let body = if wire.is_ascii() { "" } else { " BODY=8BITMIME" };
    let mail = format!("MAIL FROM:<author@example.org>{body}");
    for (command, code) in
        [("EHLO author.example.org", 250), (&mail, 250), (&format!("RCPT TO:<{to}>"), 250), ("DATA", 354)]
    {
        output.write_all(format!("{command}\r\n").as_bytes()).await?;
        expect(&mut input, code).await?;
    }
    let mut stuffed = Vec::with_capacity(wire.len() + 1024);
    for line in wire.split_inclusive(|byte| *byte == b'\n') {
        if line.first() == Some(&b'.') {
            stuffed.push(b'.');
        }
        stuffed.extend_from_slice(line);
    }
    stuffed.extend_from_slice(b".\r\n");
    output.write_all(&stuffed).await?;
    let dot_us = recorder.now_us();
    expect(&mut input, 250).await?;
    let accepted_us = recorder.now_us();
    output.write_all(b"QUIT\r\n").await?;
    Ok(PostTiming { dot_us, accepted_us, octets: wire.len() })
}

/// Reads a reply, of one line or several, with this code.
async fn expect<R: tokio::io::AsyncRead + Unpin>(input: &mut BufReader<R>, code: u16) -> io::Result<()> {
    const LINE_BYTES_MAX: u64 = 4096;
    loop {
        let mut line = String::new();
        if input.take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !line.starts_with(&code.to_string()) {
            return Err(io::Error::other(line.trim_end().to_owned()));
        }
        if line.as_bytes().get(3) != Some(&b'-') {
            return Ok(());
        }
    }
}
