//! A milter that does what a test says, and writes down what it is told. Its packets are made here, so that a mistake
//! of the server's own codec is seen.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What it does when it is told something.
#[derive(Debug, Clone)]
pub enum MilterAction {
    Says(u8, Vec<u8>),
    Raw(Vec<u8>),
    /// Says nothing more, and keeps the connection open.
    Stalls,
    /// Says that it works on it, again and again without a pause.
    Floods,
    Closes,
}

pub fn says(command: char, data: impl AsRef<[u8]>) -> MilterAction {
    MilterAction::Says(u8::try_from(command).expect("ASCII"), data.as_ref().to_vec())
}

/// Texts, each with its NUL.
pub fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.bytes().chain([0])).collect()
}

/// A number, then texts.
pub fn indexed(index: u32, rest: &[&str]) -> Vec<u8> {
    [index.to_be_bytes().to_vec(), texts(rest)].concat()
}

/// What it was told: the command, and its data.
pub type MilterCommand = (char, Vec<u8>);

/// What a test says; an empty answer is "continue".
type Script = dyn Fn(char, &[u8]) -> Vec<MilterAction> + Send + Sync;

/// Listens until the test ends.
pub struct Milter {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<MilterCommand>>>,
}

/// As libmilter negotiates for a filter with all callbacks and actions.
pub fn everything() -> MilterAction {
    negotiated(6, 0x1ff, 0)
}

pub fn negotiated(version: u32, actions: u32, protocol: u32) -> MilterAction {
    says('O', [version, actions, protocol].map(u32::to_be_bytes).concat())
}

impl Milter {
    pub fn start(script: impl Fn(char, &[u8]) -> Vec<MilterAction> + Send + Sync + 'static) -> Milter {
        Milter::on("127.0.0.1:0".parse().expect("an address"), script)
    }

    pub fn on(
        address: SocketAddr,
        script: impl Fn(char, &[u8]) -> Vec<MilterAction> + Send + Sync + 'static,
    ) -> Milter {
        let listener = TcpListener::bind(address).expect("the port is free");
        let milter = Milter { address: listener.local_addr().expect("it is bound"), heard: Arc::default() };
        let (heard, script): (_, Arc<Script>) = (milter.heard.clone(), Arc::new(script));
        // Ends with the process: nobody is left to connect.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heard, script) = (heard.clone(), script.clone());
                std::thread::spawn(move || serve(stream, &heard, &*script));
            }
        });
        milter
    }

    /// Lines of configuration for it.
    pub fn config(&self, name: &str, more: &str) -> String {
        format!("[[milters]]\nname = \"{name}\"\naddress = \"inet:{}\"\n{more}\n", self.address)
    }

    pub fn heard(&self) -> Vec<MilterCommand> {
        self.heard.lock().expect("no test panics there").clone()
    }

    /// The commands alone, without macros.
    pub fn commands(&self) -> String {
        self.heard().into_iter().map(|(command, _)| command).filter(|command| *command != 'D').collect()
    }

    /// The data of each of these commands as text, NULs as `|`.
    pub fn told(&self, command: char) -> Vec<String> {
        let all = self.heard().into_iter().filter(|(own, _)| *own == command);
        all.map(|(_, data)| String::from_utf8_lossy(&data).replace('\0', "|")).collect()
    }
}

fn serve(mut stream: TcpStream, heard: &Mutex<Vec<MilterCommand>>, script: &Script) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut packet = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut packet)?;
        let (command, data) = (char::from(packet[0]), packet[1..].to_vec());
        heard.lock().expect("no test panics there").push((command, data.clone()));
        if matches!(command, 'D' | 'A' | 'K') {
            continue;
        }
        if command == 'Q' {
            return Ok(());
        }
        let mut does = script(command, &data);
        if does.is_empty() {
            does.push(if command == 'O' { everything() } else { says('c', "") });
        }
        for one in does {
            match one {
                MilterAction::Says(command, data) => {
                    let length = u32::try_from(data.len() + 1).expect("a packet").to_be_bytes();
                    stream.write_all(&[&length[..], &[command], &data].concat())?;
                }
                MilterAction::Raw(octets) => stream.write_all(&octets)?,
                MilterAction::Stalls => {
                    let mut rest = Vec::new();
                    // Until the server gives up.
                    stream.read_to_end(&mut rest)?;
                    return Ok(());
                }
                MilterAction::Floods => loop {
                    stream.write_all(&[0, 0, 0, 1, b'p'].repeat(10_000))?;
                },
                MilterAction::Closes => return Ok(()),
            }
        }
    }
}
