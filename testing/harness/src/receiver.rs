//! An HTTP server that records requests and answers as the test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::{PATIENCE, wait_until};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// What it was answered.
    pub status: u16,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Listens until the test ends.
pub struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// `status` says what the request of this number, counted from 0, is answered.
    pub fn start(status: impl Fn(usize) -> u16 + Send + Sync + 'static) -> Receiver {
        Receiver::start_with_body(move |number, _| status(number))
    }

    /// As [`Receiver::start`]; `status` also gets the request's body.
    pub fn start_with_body(status: impl Fn(usize, &[u8]) -> u16 + Send + Sync + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = received.clone();
        // Ends with the process: nobody is left to connect.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away midway is killed by a test.
                let _ = serve(stream, &kept, &status);
            }
        });
        Receiver { address, received }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All that came.
    pub fn all(&self) -> Vec<Received> {
        self.received.lock().expect("no test panics there").clone()
    }

    /// Those that were answered 2xx.
    pub fn taken(&self) -> Vec<Received> {
        self.all().into_iter().filter(|received| received.status / 100 == 2).collect()
    }

    #[track_caller]
    pub fn wait(&self, what: &str, mut holds: impl FnMut(&[Received]) -> bool) {
        wait_until(what, || holds(&self.all()));
    }
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<Received>>, status: &dyn Fn(usize, &[u8]) -> u16) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let status = {
        let mut kept = kept.lock().expect("no test panics there");
        let status = status(kept.len(), &body);
        kept.push(Received { path, headers, body, status });
        status
    };
    let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    reader.into_inner().write_all(answer.as_bytes())
}
