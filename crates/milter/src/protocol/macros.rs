//! Macros: values sent to a milter before an event. Names here have no braces; on the wire, names of several letters
//! have them.

use crate::protocol::wire::{packet, text};

/// Code of `SMFIC_MACRO`.
const MACROS: u8 = b'D';
/// Maximum macros of one stage that a milter may request.
const SYMBOLS_MAX: usize = 100;

/// Octets of a macro beside its name and value: two braces and two NULs.
const MACRO_BYTES: usize = 4;

/// Number of stages with macros (`SMFIM_*`).
pub(crate) const STAGES: usize = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacroStage {
    Connect,
    Helo,
    Mail,
    Rcpt,
    Data,
    /// End of the message.
    Eom,
    /// End of the header.
    Eoh,
}

impl MacroStage {
    pub(crate) fn from_wire(number: u32) -> Option<MacroStage> {
        use MacroStage::{Connect, Data, Eoh, Eom, Helo, Mail, Rcpt};
        [Connect, Helo, Mail, Rcpt, Data, Eom, Eoh].get(usize::try_from(number).ok()?).copied()
    }

    /// Macros for a milter that requests none: Postfix's defaults, and those about the client.
    pub(crate) fn usual(self) -> &'static [&'static str] {
        match self {
            MacroStage::Connect => &[
                "j",
                "daemon_name",
                "daemon_addr",
                "daemon_port",
                "v",
                "_",
                "client_addr",
                "client_name",
                "client_port",
                "client_ptr",
            ],
            MacroStage::Helo => &["tls_version", "cipher", "cipher_bits", "cert_subject", "cert_issuer"],
            MacroStage::Mail => {
                &["i", "auth_type", "auth_authen", "auth_author", "mail_addr", "mail_host", "mail_mailer"]
            }
            MacroStage::Rcpt => &["i", "rcpt_addr", "rcpt_host", "rcpt_mailer"],
            MacroStage::Data | MacroStage::Eom | MacroStage::Eoh => &["i"],
        }
    }
}

/// Values of macros. Macros without a value are not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Macros(Vec<(&'static str, Box<str>)>);

impl Macros {
    /// Sets or replaces a value.
    pub fn set(&mut self, name: &'static str, value: impl Into<Box<str>>) {
        let value = value.into();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name, value)),
        }
    }

    /// Removes a value.
    pub fn unset(&mut self, name: &str) {
        self.0.retain(|(known, _)| *known != name);
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    /// Writes the macros of a command's stage, if any of them has a value. A macro that does not fit into the packet is
    /// left out, since a filter would take half of a value for the whole. Returns whether all were written.
    pub(crate) fn write<'a>(&self, command: u8, names: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) -> bool {
        let mut known = names.filter_map(|name| Some((name, self.get(name)?))).peekable();
        if known.peek().is_none() {
            return true;
        }
        packet(out, MACROS, |out, end| {
            let mut is_complete = true;
            out.push(command);
            for (name, value) in known {
                if out.len() + name.len() + value.len() + MACRO_BYTES > end {
                    is_complete = false;
                    continue;
                }
                if name.len() > 1 {
                    text(out, format!("{{{name}}}").as_bytes());
                } else {
                    text(out, name.as_bytes());
                }
                text(out, value.as_bytes());
            }
            is_complete
        })
    }
}

/// The names in a milter's list, separated by spaces or commas.
pub(crate) fn names(list: &[u8]) -> Vec<Box<str>> {
    let words = list.split(|octet| matches!(octet, b' ' | b',' | b'\t')).filter(|word| !word.is_empty());
    let bare = |word: &[u8]| {
        let word = word.strip_prefix(b"{").and_then(|word| word.strip_suffix(b"}")).unwrap_or(word);
        String::from_utf8_lossy(word).into()
    };
    words.take(SYMBOLS_MAX).map(bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire::DATA_BYTES_MAX;

    #[test]
    fn only_what_is_known_is_sent() {
        let mut macros = Macros::default();
        macros.set("i", "old");
        macros.set("i", "4Q2x");
        macros.set("mail_addr", "a@x.test");
        macros.set("rcpt_addr", "b@x.test");
        let mut out = Vec::new();
        macros.write(b'M', MacroStage::Mail.usual().iter().copied(), &mut out);
        assert_eq!(&out[4..], b"DMi\x004Q2x\0{mail_addr}\0a@x.test\0");
        out.clear();
        macros.unset("i");
        macros.write(b'T', ["i"].into_iter(), &mut out);
        assert!(out.is_empty());
    }

    #[test]
    fn a_macro_that_does_not_fit_is_left_out() {
        let mut macros = Macros::default();
        macros.set("i", "4Q2x");
        macros.set("mail_addr", "x".repeat(DATA_BYTES_MAX));
        macros.set("mail_host", "x.test");
        let mut out = Vec::new();
        assert!(!macros.write(b'M', MacroStage::Mail.usual().iter().copied(), &mut out));
        assert_eq!(&out[4..], b"DMi\x004Q2x\0{mail_host}\0x.test\0");
        let names = "M{mail_addr}\0\0".len();
        macros.set("mail_addr", "x".repeat(DATA_BYTES_MAX - names));
        out.clear();
        assert!(macros.write(b'M', ["mail_addr"].into_iter(), &mut out));
        assert_eq!(out.len(), 4 + 1 + DATA_BYTES_MAX, "the longest that fits");
    }
}
