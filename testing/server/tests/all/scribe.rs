//! A mail host that accepts everything and records it command by command: for what the lab's recorder does not keep
//! (parameters of MAIL and RCPT, the order of commands, whether BDAT was used).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use stentor_harness::wait_until;

struct Script {
    /// Lines of the reply to EHLO.
    offers: Vec<String>,
    /// What is said to a command that begins so, instead of the usual.
    answers: Vec<(String, String)>,
}

pub struct Scribe {
    pub address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    peers: Arc<Mutex<Vec<IpAddr>>>,
    contents: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Scribe {
    /// Its threads end with the test's process.
    pub fn start(offers: &[&str], answers: &[(&str, &str)]) -> Scribe {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let answers = answers.iter().map(|&(command, reply)| (command.to_owned(), reply.to_owned())).collect();
        let script = Arc::new(Script { offers: offers.iter().map(|&offer| offer.to_owned()).collect(), answers });
        let writer = lines.clone();
        let peers = Arc::new(Mutex::new(Vec::new()));
        let callers = peers.clone();
        let contents = Arc::new(Mutex::new(Vec::new()));
        let taken = contents.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (lines, script, taken) = (writer.clone(), script.clone(), taken.clone());
                let peer = stream.peer_addr().map(|peer| peer.ip());
                callers.lock().expect("nobody panics with it").extend(peer.ok());
                // A client that hangs up is no matter.
                std::thread::spawn(move || drop(serve(stream, &lines, &taken, &script)));
            }
        });
        Scribe { address, lines, peers, contents }
    }

    /// The route to it, as a configuration names it.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("nobody panics with it").clone()
    }

    /// Who has connected, in order.
    pub fn peers(&self) -> Vec<IpAddr> {
        self.peers.lock().expect("nobody panics with it").clone()
    }

    /// The content of each transaction, in order.
    pub fn contents(&self) -> Vec<Vec<u8>> {
        self.contents.lock().expect("nobody panics with it").clone()
    }

    /// Lines that begin so.
    pub fn heard(&self, start: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.starts_with(start)).collect()
    }

    /// Waits for a line that begins so.
    #[track_caller]
    pub fn wait(&self, start: &str) -> String {
        wait_until(&format!("{start} at the host"), || !self.heard(start).is_empty());
        self.heard(start).remove(0)
    }
}

fn serve(
    stream: TcpStream,
    lines: &Mutex<Vec<String>>,
    contents: &Mutex<Vec<Vec<u8>>>,
    script: &Script,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let say =
        |stream: &mut BufReader<TcpStream>, text: &str| stream.get_mut().write_all(format!("{text}\r\n").as_bytes());
    let note = |line: &str| lines.lock().expect("nobody panics with it").push(line.to_owned());
    let keep = |content: Vec<u8>| contents.lock().expect("nobody panics with it").push(content);
    let (mut recipients, mut is_lmtp, mut chunks) = (0, false, Vec::new());
    say(&mut stream, "220 scribe ESMTP")?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        note(line);
        let verb = line.split_whitespace().next().unwrap_or_default();
        if verb == "BDAT" {
            let size = line.split(' ').nth(1).and_then(|size| size.parse().ok()).unwrap_or(0);
            let mut chunk = vec![0; size];
            stream.read_exact(&mut chunk)?;
            chunks.append(&mut chunk);
            if line.ends_with(" LAST") {
                keep(std::mem::take(&mut chunks));
            }
        }
        is_lmtp |= verb == "LHLO";
        let told = script.answers.iter().find(|(command, _)| line.starts_with(command.as_str()));
        let reply = told.map_or_else(
            || match verb {
                "EHLO" | "LHLO" => {
                    let offers = script.offers.iter().map(|o| format!("250-{o}\r\n")).collect::<String>();
                    format!("250-scribe\r\n{offers}250 HELP")
                }
                "DATA" => "354 go on".to_owned(),
                "QUIT" => "221 bye".to_owned(),
                _ => "250 2.0.0 ok".to_owned(),
            },
            |(_, reply)| reply.clone(),
        );
        say(&mut stream, &reply)?;
        match verb {
            "MAIL" => recipients = 0,
            "RCPT" if reply.starts_with('2') => recipients += 1,
            "DATA" if reply.starts_with('3') => {
                let (mut line, mut content) = (Vec::new(), Vec::new());
                while line != b".\r\n" {
                    content.extend_from_slice(line.strip_prefix(b".").unwrap_or(&line));
                    line.clear();
                    if stream.read_until(b'\n', &mut line)? == 0 {
                        return Ok(());
                    }
                }
                keep(content);
                note(".");
                for _ in 0..if is_lmtp { recipients } else { 1 } {
                    say(&mut stream, "250 2.0.0 taken")?;
                }
            }
            "QUIT" => return Ok(()),
            _ => {}
        }
    }
}
