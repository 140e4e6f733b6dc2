//! `stentor-quick-milter 127.0.0.1:PORT [hangs|slow|dies|garbage]`: a milter that is told everything and answers
//! "continue" at once, so that what a mail server itself does for a milter can be measured. With a word it does that
//! instead at the end of messages from `bad@...`. A thread for each connection; ends when it is killed.
//!
//! Failure: a connection that is not of the protocol is closed; the others go on.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

/// Of one packet: libmilter's own limit for a chunk of the body, and its command.
const PACKET_BYTES_MAX: usize = 65_536;
const READ_BYTES: usize = 64 * 1024;
/// Version 6, no action, every event, answered.
const OPTIONS: [u8; 17] = [0, 0, 0, 13, b'O', 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0];
const CONTINUE: [u8; 5] = [0, 0, 0, 1, b'c'];
/// How long one that is slow takes for each octet of its answer.
const SLOW: Duration = Duration::from_secs(1);

/// What it does with messages of a bad sender.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Never answers.
    Hangs,
    /// Answers octet by octet.
    Slow,
    /// Closes the connection.
    Dies,
    /// Says what is not of the protocol.
    Garbage,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (address, fault) = (args.next(), args.next());
    let fault = match fault.as_deref() {
        None => Some(None),
        Some("hangs") => Some(Some(Fault::Hangs)),
        Some("slow") => Some(Some(Fault::Slow)),
        Some("dies") => Some(Some(Fault::Dies)),
        Some("garbage") => Some(Some(Fault::Garbage)),
        Some(_) => None,
    };
    let (Some(address), Some(fault)) = (address, fault) else {
        eprintln!("usage: stentor-quick-milter ADDRESS:PORT [hangs|slow|dies|garbage]");
        return ExitCode::from(2);
    };
    let listener = match TcpListener::bind(&address) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("{address}: {error}");
            return ExitCode::FAILURE;
        }
    };
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || serve(stream, fault));
    }
    ExitCode::SUCCESS
}

fn serve(mut stream: TcpStream, fault: Option<Fault>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut waiting, mut answers) = (Vec::new(), Vec::new());
    let (mut buffer, mut is_bad) = (vec![0; READ_BYTES], false);
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        waiting.extend_from_slice(&buffer[..read]);
        let mut at = 0;
        while let Some((command, data, bytes)) = packet(&waiting[at..])? {
            at += bytes;
            if command == b'M' {
                is_bad = data.starts_with(b"<bad@");
            }
            match command {
                b'O' => answers.extend_from_slice(&OPTIONS),
                b'D' | b'A' | b'K' => {}
                b'Q' => return Ok(()),
                b'E' if is_bad && let Some(fault) = fault => return fail(stream, fault),
                _ => answers.extend_from_slice(&CONTINUE),
            }
        }
        waiting.drain(..at);
        stream.write_all(&answers)?;
        answers.clear();
    }
}

fn fail(mut stream: TcpStream, fault: Fault) -> io::Result<()> {
    match fault {
        Fault::Dies => Ok(()),
        Fault::Garbage => stream.write_all(&[b'?'; 1_000]),
        // Until the server closes it.
        Fault::Hangs => io::copy(&mut stream, &mut io::sink()).map(drop),
        Fault::Slow => CONTINUE.chunks(1).try_for_each(|octet| {
            std::thread::sleep(SLOW);
            stream.write_all(octet)
        }),
    }
}

/// The command and the data of the first packet, and the octets of the whole; `None`: it has not come yet.
fn packet(octets: &[u8]) -> io::Result<Option<(u8, &[u8], usize)>> {
    let Some((length, rest)) = octets.split_first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(1..=PACKET_BYTES_MAX).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(rest.get(..length).map(|packet| (packet[0], &packet[1..], 4 + length)))
}
