//! Clients that submit mail until stopped, across server restarts, and record what was acknowledged: the account that a
//! crash is checked against.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use stentor_lab::Recorder;

use crate::{PATIENCE, Server, dot_stuff, message_with};

/// A message that was acknowledged.
pub struct AcknowledgedMessage {
    pub id: String,
    pub people: Vec<String>,
}

/// What the clients send.
#[derive(Clone, Copy)]
pub struct Mail {
    /// The envelope sender.
    pub sender: &'static str,
    /// Recipients are at `s0.example` to `sN.example`.
    pub sites: usize,
    /// Every so many-th message has this many lines (of about 20 octets); the others have up to 50.
    pub large_one_in: usize,
    pub large_lines: usize,
}

#[derive(Default)]
struct Account {
    taken: Vec<AcknowledgedMessage>,
    /// Answers to MAIL, RCPT and the end of data that were not what was hoped for, and how often.
    refused: BTreeMap<String, usize>,
    /// Message-IDs whose end of data was answered with a refusal.
    refused_ids: Vec<String>,
}

struct Shared {
    stop: AtomicBool,
    address: Mutex<SocketAddr>,
    account: Mutex<Account>,
    recorder: Arc<Recorder>,
    mail: Mail,
}

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<std::thread::JoinHandle<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Load {
    pub fn start(server: &Server, recorder: &Arc<Recorder>, clients: usize, mail: Mail) -> Load {
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            address: Mutex::new(server.address()),
            account: Mutex::default(),
            recorder: recorder.clone(),
            mail,
        });
        let client = |client| {
            let shared = shared.clone();
            std::thread::spawn(move || {
                let mut n = 0;
                while !shared.stop.load(Ordering::Relaxed) {
                    // However it ends: the next session is tried soon, also if nobody listens.
                    if session(client, &mut n, &shared).is_none() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            })
        };
        let clients = (0..clients).map(client).collect();
        Load { shared, clients }
    }

    /// Where the server listens now.
    pub fn moved(&self, server: &Server) {
        *lock(&self.shared.address) = server.address();
    }

    /// Messages acknowledged so far.
    pub fn taken(&self) -> usize {
        lock(&self.shared.account).taken.len()
    }

    /// Refusals so far, by their text.
    pub fn refused(&self) -> BTreeMap<String, usize> {
        lock(&self.shared.account).refused.clone()
    }

    /// Message-IDs that were refused after their data so far.
    pub fn refused_ids(&self) -> Vec<String> {
        lock(&self.shared.account).refused_ids.clone()
    }

    /// Ends the clients; everything that was acknowledged.
    pub fn end(self) -> Vec<AcknowledgedMessage> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().expect("clients do not panic");
        }
        std::mem::take(&mut lock(&self.shared.account).taken)
    }
}

/// Messages over one connection, for as long as it holds.
fn session(client: usize, n: &mut usize, shared: &Shared) -> Option<()> {
    let address = *lock(&shared.address);
    let mail = shared.mail;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_nodelay(true).ok()?;
    let mut said = Vec::new();
    let mut expect = |stream: &mut TcpStream, code: &str| {
        let line = reply(stream, &mut said)?;
        if line.starts_with(code) {
            return Some(true);
        }
        *lock(&shared.account).refused.entry(line).or_default() += 1;
        Some(false)
    };
    if !expect(&mut stream, "220")? {
        return None;
    }
    stream.write_all(b"EHLO load.example\r\n").ok()?;
    if !expect(&mut stream, "250")? {
        return None;
    }
    while !shared.stop.load(Ordering::Relaxed) {
        *n += 1;
        let id = format!("load{client}.{n}@test");
        let people: Vec<String> =
            (0..=*n % 3).map(|k| format!("c{client}n{n}k{k}@s{}.example", (*n + k) % mail.sites)).collect();
        let large = (*n).is_multiple_of(mail.large_one_in);
        let lines = if large { mail.large_lines } else { 1 + *n % 50 };
        let wire = message_with(&id, "", &format!("line of {id}\r\n..\r\n").repeat(lines));
        let mut commands = format!("MAIL FROM:<{}>\r\n", mail.sender);
        for to in &people {
            commands.push_str(&format!("RCPT TO:<{to}>\r\n"));
        }
        commands.push_str("DATA\r\n");
        stream.write_all(commands.as_bytes()).ok()?;
        if !expect(&mut stream, "250")? {
            return None;
        }
        for _ in 0..people.len() {
            if !expect(&mut stream, "250")? {
                return None;
            }
        }
        if !expect(&mut stream, "354")? {
            return None;
        }
        shared.recorder.expect_message(wire.clone().into());
        stream.write_all(&dot_stuff(&wire)).ok()?;
        if !expect(&mut stream, "250")? {
            lock(&shared.account).refused_ids.push(id);
            return None;
        }
        lock(&shared.account).taken.push(AcknowledgedMessage { id, people });
    }
    Some(())
}

/// The last line of the next reply, if it comes whole.
fn reply(stream: &mut TcpStream, said: &mut Vec<u8>) -> Option<String> {
    loop {
        while let Some(end) = said.iter().position(|octet| *octet == b'\n') {
            let line: Vec<u8> = said.drain(..=end).collect();
            if line.get(3) == Some(&b' ') {
                return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(n) => said.extend_from_slice(&buffer[..n]),
        }
    }
}
