//! An SMTP client that sends whatever a test wants, valid or not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use crate::{PATIENCE, dot_stuff};

/// A server's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    /// What follows the code in each line.
    pub lines: Vec<String>,
}

impl Reply {
    /// Asserts the code.
    #[track_caller]
    pub fn expect(self, code: u16) -> Reply {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Asserts code and enhanced code (`550 5.7.1`).
    #[track_caller]
    pub fn expect_text(self, start: &str) -> Reply {
        assert!(self.to_string().starts_with(start), "not {start}: {self:?}");
        self
    }

    /// The queue id of `250 2.0.0 Ok: queued as ID`.
    #[track_caller]
    pub fn queue_id(&self) -> String {
        let last = self.lines.last().and_then(|line| line.rsplit_once("queued as "));
        last.unwrap_or_else(|| panic!("no queue id: {self:?}")).1.to_owned()
    }
}

impl std::fmt::Display for Reply {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.code, self.lines.join(" / "))
    }
}

pub struct Smtp {
    stream: BufReader<TcpStream>,
}

impl Smtp {
    /// Connects without reading the greeting.
    pub fn connect(server: SocketAddr) -> Smtp {
        Smtp::over(TcpStream::connect(server).expect("the server listens"))
    }

    /// Connects from another address of 127.0.0.0/8.
    pub fn connect_from(server: SocketAddr, from: IpAddr) -> Smtp {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.bind(SocketAddr::new(from, 0)).expect("all of 127.0.0.0/8 is local");
            socket.connect(server).await.expect("the server listens").into_std().expect("a stream")
        });
        stream.set_nonblocking(false).expect("a socket can block");
        Smtp::over(stream)
    }

    fn over(stream: TcpStream) -> Smtp {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_nodelay(true).expect("an option can be set");
        Smtp { stream: BufReader::new(stream) }
    }

    /// Reads the greeting and says EHLO.
    pub fn greeted(mut self) -> Smtp {
        self.reply().expect(220);
        self.cmd("EHLO client.example").expect(250);
        self
    }

    /// Reads one reply; panics if the server closes instead.
    #[track_caller]
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("a reply, not the end of the connection")
    }

    /// Reads one reply; `None` if the server has closed or reset the connection.
    #[track_caller]
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut reply = Reply { code: 0, lines: Vec::new() };
        loop {
            let mut line = Vec::new();
            match self.stream.read_until(b'\n', &mut line) {
                Ok(0) => return None,
                Err(error) => {
                    assert!(error.kind() != std::io::ErrorKind::WouldBlock, "the server is silent; so far {reply:?}");
                    return None;
                }
                Ok(_) => {}
            }
            let text = String::from_utf8(line).expect("replies here are UTF-8");
            let text = text.strip_suffix("\r\n").unwrap_or_else(|| panic!("not a line: {text:?}"));
            assert!(text.len() >= 4 && text.is_char_boundary(4), "not a reply: {text:?}");
            reply.code = text[..3].parse().unwrap_or_else(|_| panic!("not a reply: {text:?}"));
            reply.lines.push(text[4..].to_owned());
            match &text[3..4] {
                " " => return Some(reply),
                "-" => {}
                _ => panic!("not a reply: {text:?}"),
            }
        }
    }

    /// Sends octets as they are.
    #[track_caller]
    pub fn raw(&mut self, octets: &[u8]) {
        self.stream.get_mut().write_all(octets).expect("the server reads");
    }

    /// Sends octets as they are; the server may have closed by now.
    pub fn try_raw(&mut self, octets: &[u8]) -> bool {
        self.stream.get_mut().write_all(octets).is_ok()
    }

    /// Sends one command and reads its reply.
    #[track_caller]
    pub fn cmd(&mut self, command: &str) -> Reply {
        self.raw(format!("{command}\r\n").as_bytes());
        self.reply()
    }

    /// One whole transaction of a message with CRLF lines; every step must succeed but the last, whose reply it
    /// returns.
    #[track_caller]
    pub fn send(&mut self, from: &str, to: &[&str], message: &[u8]) -> Reply {
        self.begin(from, to);
        self.raw(&dot_stuff(message));
        self.reply()
    }

    /// A transaction up to 354.
    #[track_caller]
    pub fn begin(&mut self, from: &str, to: &[&str]) {
        let eight_bit = if from.is_ascii() && to.iter().all(|to| to.is_ascii()) { "" } else { " SMTPUTF8" };
        self.cmd(&format!("MAIL FROM:<{from}> BODY=8BITMIME{eight_bit}")).expect(250);
        for to in to {
            self.cmd(&format!("RCPT TO:<{to}>")).expect(250);
        }
        self.cmd("DATA").expect(354);
    }

    /// Everything until the server closes (a reset counts as closing).
    #[track_caller]
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        if let Err(error) = self.stream.read_to_end(&mut rest) {
            assert!(error.kind() != std::io::ErrorKind::WouldBlock, "the server does not close");
        }
        String::from_utf8_lossy(&rest).into_owned()
    }

    pub fn quit(mut self) {
        self.cmd("QUIT").expect(221);
        assert_eq!(self.rest(), "");
    }

    /// Ends our direction.
    pub fn shutdown_write(&mut self) {
        // A server that has closed already is as good.
        let _ = self.stream.get_ref().shutdown(std::net::Shutdown::Write);
    }
}
