//! The commands that a milter answers (`SMFIC_*`): one line each, with all properties of the command.

use crate::protocol::macros::MacroStage;
use crate::protocol::options::{NEGOTIATE, Protocol};

/// A command, which the milter answers unless agreed otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Negotiate,
    Connect,
    Helo,
    Mail,
    Rcpt,
    Data,
    Header,
    EndOfHeader,
    Body,
    EndOfMessage,
    /// A command that SMTP does not know.
    Unknown,
}

/// Properties of a command.
pub(crate) struct Facts {
    /// Code on the wire.
    pub octet: u8,
    /// Name in errors.
    pub name: &'static str,
    /// Flags by which a milter does not want it, or does not answer it. There are none for the negotiation and the
    /// end of a message.
    pub flags: Option<(Protocol, Protocol)>,
    /// Stage of the macros sent before it.
    pub stage: Option<MacroStage>,
}

impl Command {
    pub fn facts(self) -> Facts {
        use Protocol as P;
        let facts = |octet, name, flags, stage| Facts { octet, name, flags, stage };
        match self {
            Command::Negotiate => facts(NEGOTIATE, "the negotiation", None, None),
            Command::Connect => {
                facts(b'C', "the connection", Some((P::NOCONNECT, P::NR_CONN)), Some(MacroStage::Connect))
            }
            Command::Helo => facts(b'H', "HELO", Some((P::NOHELO, P::NR_HELO)), Some(MacroStage::Helo)),
            Command::Mail => facts(b'M', "MAIL", Some((P::NOMAIL, P::NR_MAIL)), Some(MacroStage::Mail)),
            Command::Rcpt => facts(b'R', "RCPT", Some((P::NORCPT, P::NR_RCPT)), Some(MacroStage::Rcpt)),
            Command::Data => facts(b'T', "DATA", Some((P::NODATA, P::NR_DATA)), Some(MacroStage::Data)),
            Command::Header => facts(b'L', "a header field", Some((P::NOHDRS, P::NR_HDR)), None),
            Command::EndOfHeader => {
                facts(b'N', "the end of the header", Some((P::NOEOH, P::NR_EOH)), Some(MacroStage::Eoh))
            }
            Command::Body => facts(b'B', "the body", Some((P::NOBODY, P::NR_BODY)), None),
            Command::Unknown => facts(b'U', "an unknown command", Some((P::NOUNKNOWN, P::NR_UNKN)), None),
            Command::EndOfMessage => facts(b'E', "the end of the message", None, Some(MacroStage::Eom)),
        }
    }
}
