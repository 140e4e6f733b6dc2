//! Negotiation with a milter: the version, the changes that it may request, the events that it wants, and the macros.

use crate::protocol::macros::{MacroStage, STAGES, names};
use crate::protocol::wire::{Error, packet, take_text, take_u32};

/// Code of `SMFIC_OPTNEG`.
pub(crate) const NEGOTIATE: u8 = b'O';
/// Version offered.
const VERSION: u32 = 6;
/// Oldest version supported.
const VERSION_MIN: u32 = 2;
/// First version with `SMFIC_UNKNOWN` and `SMFIC_DATA`.
const VERSION_UNKNOWN: u32 = 3;
const VERSION_DATA: u32 = 4;

/// Defines a set of flags, with the names and bits of libmilter's mfdef.h.
macro_rules! flags {
    ($(#[$about:meta])* $name:ident { $($(#[$what:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name(u32);

        impl $name {
            $($(#[$what])* pub const $flag: Self = Self($bit);)*
            /// All flags.
            pub const ALL: Self = Self(0 $(| $bit)*);

            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Whether all of `other` is in this set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }
    };
}

flags! {
    /// `SMFIF_*`: changes that a milter may request.
    Actions {
        ADDHDRS = 0x1;
        CHGBODY = 0x2;
        ADDRCPT = 0x4;
        DELRCPT = 0x8;
        CHGHDRS = 0x10;
        QUARANTINE = 0x20;
        CHGFROM = 0x40;
        ADDRCPT_PAR = 0x80;
        /// It requests macros by name.
        SETSYMLIST = 0x100;
    }
}

flags! {
    /// `SMFIP_*`: events that a milter does not want (`NO*`) or does not answer (`NR_*`), and its capabilities.
    /// Packet sizes (`SMFIP_MDS_*`) are not offered: libmilter only knows them if it was
    /// built with them, so every packet is limited to [`crate::protocol::DATA_BYTES_MAX`].
    Protocol {
        NOCONNECT = 0x1;
        NOHELO = 0x2;
        NOMAIL = 0x4;
        NORCPT = 0x8;
        NOBODY = 0x10;
        NOHDRS = 0x20;
        NOEOH = 0x40;
        NR_HDR = 0x80;
        NOUNKNOWN = 0x100;
        NODATA = 0x200;
        /// It may answer a chunk of the body with "skip the rest".
        SKIP = 0x400;
        /// It receives refused recipients, too.
        RCPT_REJ = 0x800;
        NR_CONN = 0x1000;
        NR_HELO = 0x2000;
        NR_MAIL = 0x4000;
        NR_RCPT = 0x8000;
        NR_DATA = 0x1_0000;
        NR_UNKN = 0x2_0000;
        NR_EOH = 0x4_0000;
        NR_BODY = 0x8_0000;
        /// It receives and sends the space after a field's colon.
        HDR_LEADSPC = 0x10_0000;
    }
}

/// Negotiated options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub actions: Actions,
    pub protocol: Protocol,
    /// Requested macros of each stage, which replace the usual ones.
    symbols: [Option<Vec<Box<str>>>; STAGES],
}

impl Options {
    /// Whether it does not want this event.
    pub fn leaves_out(&self, flag: Protocol) -> bool {
        self.protocol.has(flag)
    }

    /// The macros sent before a stage's event.
    pub fn symbols(&self, stage: MacroStage) -> impl Iterator<Item = &str> {
        let own = self.symbols[stage as usize].as_ref();
        let usual = own.is_none().then(|| stage.usual().iter().copied());
        own.into_iter().flatten().map(AsRef::as_ref).chain(usual.into_iter().flatten())
    }

    /// Parses a milter's answer.
    pub(crate) fn read(mut data: &[u8]) -> Result<Options, Error> {
        let mut number = || take_u32(&mut data).ok_or(Error::Malformed("option negotiation"));
        let (version, actions, protocol) = (number()?, number()?, number()?);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Error::Version(version));
        }
        let (actions, mut protocol) = (Actions(actions), Protocol(protocol));
        if !Actions::ALL.has(actions) {
            return Err(Error::NotOffered(format!("actions {:#x}", actions.0 & !Actions::ALL.0)));
        }
        if !Protocol::ALL.has(protocol) {
            return Err(Error::NotOffered(format!("protocol {:#x}", protocol.0 & !Protocol::ALL.0)));
        }
        if version < VERSION_DATA {
            protocol.0 |= Protocol::NODATA.0;
        }
        if version < VERSION_UNKNOWN {
            protocol.0 |= Protocol::NOUNKNOWN.0;
        }
        let mut symbols = [const { None }; STAGES];
        while !data.is_empty() {
            let malformed = || Error::Malformed("list of macros");
            let stage = take_u32(&mut data).ok_or_else(malformed)?;
            let list = take_text(&mut data).ok_or_else(malformed)?;
            let stage = MacroStage::from_wire(stage).ok_or_else(malformed)?;
            symbols[stage as usize] = Some(names(list));
        }
        Ok(Options { actions, protocol, symbols })
    }
}

/// Offers all options.
pub(crate) fn offer(out: &mut Vec<u8>) {
    packet(out, NEGOTIATE, |out, _| {
        for number in [VERSION, Actions::ALL.0, Protocol::ALL.0] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(numbers: [u32; 3], more: &[u8]) -> Vec<u8> {
        let mut data: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        data.extend_from_slice(more);
        data
    }

    #[test]
    fn the_offer_is_that_of_version_six() {
        let mut out = Vec::new();
        offer(&mut out);
        assert_eq!(out, [0, 0, 0, 13, b'O', 0, 0, 0, 6, 0, 0, 1, 0xff, 0, 0x1f, 0xff, 0xff]);
    }

    #[test]
    fn symbols_replace_those_of_their_stage() {
        let lists = [&1u32.to_be_bytes()[..], b"{tls_version}, j\0", &3u32.to_be_bytes(), b"\0"].concat();
        let options = Options::read(&answer([6, 0x111, 0x10_0400], &lists)).unwrap();
        assert_eq!(options.symbols(MacroStage::Helo).collect::<Vec<_>>(), ["tls_version", "j"]);
        assert_eq!(options.symbols(MacroStage::Rcpt).count(), 0);
        assert_eq!(options.symbols(MacroStage::Eoh).collect::<Vec<_>>(), ["i"]);
        assert!(options.actions.has(Actions::CHGHDRS) && !options.actions.has(Actions::ADDRCPT));
    }

    #[test]
    fn what_was_not_offered_is_refused() {
        for version in [0, 1, 7, u32::MAX] {
            assert_eq!(Options::read(&answer([version, 0, 0], b"")), Err(Error::Version(version)));
        }
        assert!(matches!(Options::read(&answer([6, 0x200, 0], b"")), Err(Error::NotOffered(_))));
        assert!(matches!(Options::read(&answer([6, 0, 0x1000_0000], b"")), Err(Error::NotOffered(_))));
        assert!(Options::read(b"\0\0\0\x06").is_err());
        assert!(Options::read(&answer([6, 0, 0], b"\0\0\0\x07j\0")).is_err());
        assert!(Options::read(&answer([6, 0, 0], b"\0\0\0\x01j")).is_err());
        let old = Options::read(&answer([2, 1, 0], b"")).unwrap();
        assert!(old.leaves_out(Protocol::NODATA) && old.leaves_out(Protocol::NOUNKNOWN));
    }
}
