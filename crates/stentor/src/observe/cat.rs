//! `stentor queue cat ID`: prints a queued message as stored. Octets are unchanged, except that terminal control
//! sequences are escaped on a terminal.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use stentor_control::{Client, ControlError, Part, Request, protocol};
use stentor_queue::ids::MessageId;
use stentor_records::escape::{printable, without_traps};

use crate::asking::{ServerArgs, streamed};

/// Longer lines are cut on a terminal.
const LINE_BYTES_MAX: usize = 16 * 1024;

#[derive(Args)]
pub struct Options {
    /// The queue id.
    id: MessageId,
    /// Print the body instead of the header; recorded as an operator's action.
    #[arg(long)]
    body: bool,
    /// Print header and body; recorded as an operator's action.
    #[arg(long, conflicts_with = "body")]
    all: bool,
    #[command(flatten)]
    server: ServerArgs,
}

pub fn run(options: &Options) -> ExitCode {
    let socket = match options.server.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    let part = match (options.body, options.all) {
        (true, _) => Part::Body,
        (_, true) => Part::All,
        _ => Part::Header,
    };
    let mut out = Output { out: io::stdout().lock(), is_escaped: io::stdout().is_terminal(), line: Vec::new() };
    let asked = Client::connect(&socket).and_then(|mut client| {
        client.ask_lines(&Request::Cat { id: options.id, part }, &mut |line| {
            if options.server.json {
                return writeln!(io::stdout(), "{}", without_traps(line));
            }
            protocol::content_of(line).map_or(Ok(()), |piece| out.piece(&piece))
        })
    });
    let ended = out.end().map_err(ControlError::Output);
    let asked = asked.map_err(|error| match error {
        ControlError::Refused(problem) => ControlError::Refused(options.server.left(options.id, problem)),
        error => error,
    });
    streamed(&options.server, asked.and(ended))
}

struct Output<W> {
    out: W,
    is_escaped: bool,
    /// The current line, if escaping is on.
    line: Vec<u8>,
}

impl<W: Write> Output<W> {
    fn piece(&mut self, piece: &[u8]) -> io::Result<()> {
        if !self.is_escaped {
            return self.out.write_all(piece);
        }
        for part in piece.split_inclusive(|octet| *octet == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.write_line()?;
            }
        }
        Ok(())
    }

    fn write_line(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // Tabs are harmless.
        let text = String::from_utf8_lossy(line);
        let parts: Vec<String> = text.split('\t').map(|part| printable(part, 4 * LINE_BYTES_MAX)).collect();
        writeln!(self.out, "{}", parts.join("\t"))
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_line()?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(is_escaped: bool, pieces: &[&[u8]]) -> Vec<u8> {
        let mut output = Output { out: Vec::new(), is_escaped, line: Vec::new() };
        for piece in pieces {
            output.piece(piece).unwrap();
        }
        output.end().unwrap();
        output.out
    }

    #[test]
    fn octets_are_as_stored_and_harmless_on_a_terminal() {
        let pieces: [&[u8]; 3] = [b"A: \x1b[2J\xff\r", b"\n\tb\r\n", b"\xc3\xa9 end"];
        assert_eq!(shown(false, &pieces), pieces.concat());
        let text = String::from_utf8(shown(true, &pieces)).unwrap();
        assert!(!text.contains('\u{1b}') && text.ends_with("\n\tb\n\u{e9} end\n"), "{text:?}");
        let long = vec![b'x'; 3 * LINE_BYTES_MAX];
        assert_eq!(shown(true, &[&long]).len(), LINE_BYTES_MAX + 1);
    }
}
