//! Sends lines as datagrams: to a syslog daemon of this host, or to journald.
//!
//! The socket is opened with the first line and, after the daemon restarted, again for the line that failed. A daemon
//! that does not read delays the log's thread by at most [`SEND_MS_MAX`]; then the line is lost and counted.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::time::Duration;

use crate::settings::SyslogTo;

use super::lost::{Lost, count_lines};

const SEND_MS_MAX: u64 = 200;

enum Form {
    Syslog,
    /// `KEY=value` lines, systemd's native protocol: <https://systemd.io/JOURNAL_NATIVE_PROTOCOL>.
    Journald,
}

enum Open {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

pub struct Socket {
    to: SyslogTo,
    form: Form,
    open: Option<Open>,
    datagram: Vec<u8>,
}

impl Socket {
    pub fn syslog(to: SyslogTo) -> Socket {
        Socket { to, form: Form::Syslog, open: None, datagram: Vec::new() }
    }

    pub fn journald(path: PathBuf) -> Socket {
        Socket { to: SyslogTo::Unix(path), form: Form::Journald, open: None, datagram: Vec::new() }
    }

    pub fn close(&mut self) {
        self.open = None;
    }

    /// Sends one datagram per line; after the first failure the others are not tried.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.fill(&rest[..end]);
            let sent = self.try_send().or_else(|_| {
                self.close();
                self.try_send()
            });
            if let Err(error) = sent {
                self.close();
                return Err((error, count_lines(rest)));
            }
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    fn fill(&mut self, line: &[u8]) {
        self.datagram.clear();
        if let Form::Journald = self.form {
            // Lines contain no control characters, so a value can never end early.
            self.datagram.extend_from_slice(b"SYSLOG_IDENTIFIER=stentor\nSYSLOG_FACILITY=2\nPRIORITY=6\nMESSAGE=");
        }
        self.datagram.extend_from_slice(line);
        if let Form::Journald = self.form {
            self.datagram.push(b'\n');
        }
    }

    fn try_send(&mut self) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(Open::new(&self.to)?),
        };
        match open {
            Open::Unix(socket) => socket.send(&self.datagram)?,
            Open::Udp(socket) => socket.send(&self.datagram)?,
        };
        Ok(())
    }
}

impl Open {
    fn new(to: &SyslogTo) -> io::Result<Open> {
        let patience = Some(Duration::from_millis(SEND_MS_MAX));
        match to {
            SyslogTo::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_write_timeout(patience)?;
                Ok(Open::Unix(socket))
            }
            SyslogTo::Udp(address) => {
                let any: SocketAddr = if address.is_ipv4() {
                    ([127, 0, 0, 1], 0).into()
                } else {
                    (std::net::Ipv6Addr::LOCALHOST, 0).into()
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_write_timeout(patience)?;
                Ok(Open::Udp(socket))
            }
        }
    }
}
