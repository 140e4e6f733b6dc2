//! An HTTP client that sends whatever a test wants, one request per connection.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::{PATIENCE, Server};

/// An answer, whole.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{self:?}\n{}", self.text());
        self
    }
}

/// A request being put together.
pub struct Ask {
    to: SocketAddr,
    head: String,
    has_host: bool,
    body: Vec<u8>,
}

impl Server {
    /// Where the console is; the configuration must have `http.listen`.
    #[track_caller]
    pub fn http_address(&self) -> SocketAddr {
        let line = self.wait_log(&["console at http://"]);
        let text = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    }

    pub fn http(&self, method: &str, path: &str) -> Ask {
        let head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        Ask { to: self.http_address(), head, has_host: false, body: Vec::new() }
    }

    #[track_caller]
    pub fn http_get(&self, path: &str) -> Answer {
        self.http("GET", path).send()
    }
}

impl Ask {
    pub fn header(mut self, name: &str, value: &str) -> Ask {
        self.has_host |= name.eq_ignore_ascii_case("host");
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    pub fn token(self, token: &str) -> Ask {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub fn body(mut self, kind: &str, octets: &[u8]) -> Ask {
        self.body = octets.to_vec();
        self.header("Content-Type", kind)
    }

    pub fn json(self, value: &Value) -> Ask {
        self.body("application/json", value.to_string().as_bytes())
    }

    /// The request as octets.
    fn octets(mut self) -> Vec<u8> {
        if !self.has_host {
            let _ = write!(self.head, "Host: {}\r\n", self.to);
        }
        let mut octets = format!("{}Content-Length: {}\r\n\r\n", self.head, self.body.len()).into_bytes();
        octets.extend_from_slice(&self.body);
        octets
    }

    #[track_caller]
    pub fn send(self) -> Answer {
        let to = self.to;
        exchange(to, &self.octets())
    }
}

/// Sends octets, reads to the end, and takes the answer apart.
#[track_caller]
pub fn exchange(to: SocketAddr, octets: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(to).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket has time-outs");
    // A refusal may come before all is read.
    let _ = stream.write_all(octets);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else { panic!("no answer ({read:?}): {}", String::from_utf8_lossy(&answer)) };
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = answer.split_off(end + 4);
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if is_chunked { unchunked(&body) } else { body };
    Answer { status: status.unwrap_or_else(|| panic!("{head}")), headers, body }
}

/// RFC 9112 section 7.1.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk has a size");
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let size = size.expect("a chunk's size is a number");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
}
