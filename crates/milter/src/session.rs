//! One connection to a milter, from the negotiation on.
//!
//! States: negotiating; before a message (behind [`Session::abort`]); in a message (from [`Session::mail`]); over (it was accepted,
//! refused or discarded, for this message or, before MAIL, for the connection): what it is told then does nothing. While an answer
//! [`Session::is_owed`] nothing more is to be told.
//!
//! Failure: an [`Error`]; the connection is to be closed.

use std::net::IpAddr;

use crate::answer::{Answer, Change, Verdict};
use crate::macros::{Macros, Stage};
use crate::options::{Actions, NEGOTIATE, Options, Protocol, offer};
use crate::wire::{CHUNK_BYTES_MAX, Error, Packets, packet, shown, text};

/// A client as a milter is told of it.
#[derive(Debug, Clone, Copy)]
pub struct Client<'a> {
    /// Its name, or its address in brackets.
    pub name: &'a str,
    pub address: IpAddr,
    pub port: u16,
}

/// What a milter has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The negotiation is over.
    Ready,
    Verdict(Verdict),
    /// Before the last verdict on a message.
    Change(Change),
    /// It works on its answer: its time begins anew.
    Progress,
}

/// What it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Options,
    Connect,
    Helo,
    Mail,
    Rcpt,
    Data,
    Header,
    EndOfHeader,
    Body,
    End,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Question::Options => "the negotiation",
            Question::Connect => "the connection",
            Question::Helo => "HELO",
            Question::Mail => "MAIL",
            Question::Rcpt => "RCPT",
            Question::Data => "DATA",
            Question::Header => "a header field",
            Question::EndOfHeader => "the end of the header",
            Question::Body => "the body",
            Question::End => "the end of the message",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    Message,
    Connection,
}

/// The message that it knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    None,
    Begun,
    /// Its last verdict was "continue": only then libmilter takes [`Session::quit_new`].
    Finished,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Session {
    output: Vec<u8>,
    packets: Packets,
    options: Option<Options>,
    owed: Option<Question>,
    over: Over,
    known: Known,
}

impl Session {
    /// A new connection, with the offer in the output.
    pub fn open() -> Session {
        let mut output = Vec::with_capacity(256);
        offer(&mut output);
        Session {
            output,
            packets: Packets::default(),
            options: None,
            owed: Some(Question::Options),
            over: Over::No,
            known: Known::None,
        }
    }

    /// What to write to the milter; to be cleared once it is written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether the milter is to say something before it is told more.
    pub fn is_owed(&self) -> bool {
        self.owed.is_some()
    }

    /// Whether it wants to hear nothing more, of this message or of this connection.
    pub fn is_over(&self) -> bool {
        self.over != Over::No
    }

    /// What was agreed, once it is ready.
    pub fn options(&self) -> Option<&Options> {
        self.options.as_ref()
    }

    /// Whether it is to be told of recipients that were refused.
    pub fn wants_refused(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.leaves_out(Protocol::RCPT_REJ))
    }

    /// Whether it has said something that nobody has looked at: before a question is written, more than was owed.
    pub fn has_more(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Takes octets of the milter.
    pub fn receive(&mut self, octets: &[u8]) {
        self.packets.receive(octets);
    }

    /// The next thing that it said. `None`: nothing is owed, or more octets are needed.
    ///
    /// # Errors
    /// It does not keep to the protocol.
    pub fn poll(&mut self) -> Result<Option<Event>, Error> {
        let Some(question) = self.owed else { return Ok(None) };
        let Some((command, data)) = self.packets.next()? else { return Ok(None) };
        if question == Question::Options {
            if command != NEGOTIATE {
                return Err(Error::Unexpected(question.name(), shown(command)));
            }
            self.options = Some(Options::read(data)?);
            self.owed = None;
            return Ok(Some(Event::Ready));
        }
        match Answer::read(command, data)? {
            Answer::Progress => Ok(Some(Event::Progress)),
            Answer::Change(change) if question == Question::End => {
                self.check(&change)?;
                Ok(Some(Event::Change(change)))
            }
            Answer::Change(_) => Err(Error::Unexpected(question.name(), shown(command))),
            Answer::Verdict(verdict) => {
                let fits = match verdict {
                    Verdict::Skip => question == Question::Body,
                    Verdict::Discard => !matches!(question, Question::Connect | Question::Helo),
                    _ => true,
                };
                if !fits {
                    return Err(Error::Unexpected(question.name(), verdict.name().to_owned()));
                }
                self.owed = None;
                self.conclude(question, &verdict);
                Ok(Some(Event::Verdict(verdict)))
            }
        }
    }

    /// Whether a change was announced in the negotiation.
    fn check(&self, change: &Change) -> Result<(), Error> {
        let (any_of, name): (&[Actions], _) = match change {
            // sendmail takes ADDHDRS for an insertion too; CHGHDRS allows whatever changes a header.
            Change::AddHeader { .. } => (&[Actions::ADDHDRS], "ADDHEADER"),
            Change::InsertHeader { .. } => (&[Actions::ADDHDRS, Actions::CHGHDRS], "INSHEADER"),
            Change::ChangeHeader { .. } => (&[Actions::CHGHDRS], "CHGHEADER"),
            Change::Body(_) => (&[Actions::CHGBODY], "REPLBODY"),
            Change::AddRecipient { params, .. } if params.is_empty() => {
                (&[Actions::ADDRCPT, Actions::ADDRCPT_PAR], "ADDRCPT")
            }
            Change::AddRecipient { .. } => (&[Actions::ADDRCPT_PAR], "ADDRCPT_PAR"),
            Change::DeleteRecipient(_) => (&[Actions::DELRCPT], "DELRCPT"),
            Change::Sender { .. } => (&[Actions::CHGFROM], "CHGFROM"),
            Change::Quarantine(_) => (&[Actions::QUARANTINE], "QUARANTINE"),
        };
        let announced = self.options.as_ref().map_or(Actions::default(), |options| options.actions);
        if any_of.iter().any(|action| announced.has(*action)) { Ok(()) } else { Err(Error::NotAnnounced(name)) }
    }

    fn conclude(&mut self, question: Question, verdict: &Verdict) {
        let is_early = matches!(question, Question::Connect | Question::Helo);
        match verdict {
            Verdict::Accept if is_early => self.over = Over::Connection,
            // Other recipients may be taken.
            Verdict::Refuse(_) if is_early || question == Question::Rcpt => {}
            Verdict::Accept | Verdict::Discard | Verdict::Refuse(_) => self.over = Over::Message,
            Verdict::Continue | Verdict::Skip => {}
        }
        if question == Question::End {
            self.over = Over::Message;
            self.known = if *verdict == Verdict::Continue { Known::Finished } else { Known::None };
        }
    }

    fn leaves_out(&self, flag: Protocol) -> bool {
        self.options.as_ref().is_none_or(|options| options.leaves_out(flag))
    }

    fn macros(&mut self, stage: Stage, macros: &Macros) {
        if let Some(options) = &self.options {
            macros.write(stage, options.symbols(stage), &mut self.output);
        }
    }

    /// Tells it of an event, unless it does not want to hear of it, or of nothing more.
    fn tell(
        &mut self,
        (question, command): (Question, u8),
        (no, no_reply): (Protocol, Protocol),
        macros: Option<(Stage, &Macros)>,
        data: impl FnOnce(&mut Vec<u8>),
    ) {
        debug_assert!(self.owed.is_none(), "it owes an answer to {:?}", self.owed);
        if self.is_over() || self.leaves_out(no) {
            return;
        }
        if let Some((stage, macros)) = macros {
            self.macros(stage, macros);
        }
        packet(&mut self.output, command, data);
        if !self.leaves_out(no_reply) {
            self.owed = Some(question);
        }
    }

    pub fn connect(&mut self, client: Client<'_>, macros: &Macros) {
        let flags = (Protocol::NOCONNECT, Protocol::NR_CONN);
        self.tell((Question::Connect, b'C'), flags, Some((Stage::Connect, macros)), |out| {
            text(out, client.name.as_bytes());
            out.push(if client.address.is_ipv4() { b'4' } else { b'6' });
            out.extend_from_slice(&client.port.to_be_bytes());
            text(out, client.address.to_string().as_bytes());
        });
    }

    pub fn helo(&mut self, name: &str, macros: &Macros) {
        let flags = (Protocol::NOHELO, Protocol::NR_HELO);
        self.tell((Question::Helo, b'H'), flags, Some((Stage::Helo, macros)), |out| text(out, name.as_bytes()));
    }

    /// A message begins. `args`: the sender in angle brackets, then the parameters.
    pub fn mail(&mut self, args: &[&str], macros: &Macros) {
        debug_assert!(self.known == Known::None, "the message before has not ended");
        if !self.is_over() {
            self.known = Known::Begun;
        }
        let flags = (Protocol::NOMAIL, Protocol::NR_MAIL);
        self.tell((Question::Mail, b'M'), flags, Some((Stage::Mail, macros)), |out| {
            for arg in args {
                text(out, arg.as_bytes());
            }
        });
    }

    /// A recipient, as [`Session::mail`].
    pub fn rcpt(&mut self, args: &[&str], macros: &Macros) {
        let flags = (Protocol::NORCPT, Protocol::NR_RCPT);
        self.tell((Question::Rcpt, b'R'), flags, Some((Stage::Rcpt, macros)), |out| {
            for arg in args {
                text(out, arg.as_bytes());
            }
        });
    }

    pub fn data(&mut self, macros: &Macros) {
        let flags = (Protocol::NODATA, Protocol::NR_DATA);
        self.tell((Question::Data, b'T'), flags, Some((Stage::Data, macros)), |_| {});
    }

    /// Whether it wants the fields of the header with the space behind their colons.
    pub fn keeps_space(&self) -> bool {
        self.leaves_out(Protocol::HDR_LEADSPC)
    }

    pub fn header(&mut self, name: &[u8], value: &[u8]) {
        self.tell((Question::Header, b'L'), (Protocol::NOHDRS, Protocol::NR_HDR), None, |out| {
            text(out, name);
            text(out, value);
        });
    }

    pub fn end_of_header(&mut self, macros: &Macros) {
        let flags = (Protocol::NOEOH, Protocol::NR_EOH);
        self.tell((Question::EndOfHeader, b'N'), flags, Some((Stage::Eoh, macros)), |_| {});
    }

    /// Whether it wants the body.
    pub fn wants_body(&self) -> bool {
        !self.is_over() && !self.leaves_out(Protocol::NOBODY)
    }

    /// A part of the body, of at most [`CHUNK_BYTES_MAX`] octets.
    pub fn body(&mut self, octets: &[u8]) {
        debug_assert!(octets.len() <= CHUNK_BYTES_MAX);
        let flags = (Protocol::NOBODY, Protocol::NR_BODY);
        self.tell((Question::Body, b'B'), flags, None, |out| out.extend_from_slice(octets));
    }

    /// The end of the message: changes and the last verdict follow.
    pub fn end(&mut self, macros: &Macros) {
        // No flag leaves it out.
        let always = Protocol::from_bits(1 << 31);
        self.tell((Question::End, b'E'), (always, always), Some((Stage::Eom, macros)), |_| {});
    }

    /// The message is over, whatever became of it; another may begin.
    pub fn abort(&mut self) {
        debug_assert!(self.owed.is_none());
        if self.known == Known::Begun {
            packet(&mut self.output, b'A', |_| {});
        }
        self.known = Known::None;
        if self.over == Over::Message {
            self.over = Over::No;
        }
    }

    /// The connection ends.
    pub fn quit(&mut self) {
        packet(&mut self.output, b'Q', |_| {});
    }

    /// The client's session ends, and the connection is kept for another's. `false`: it cannot be, and [`Session::quit`] remains.
    pub fn quit_new(&mut self) -> bool {
        let may = self.known == Known::Finished && self.owed.is_none() && self.packets.is_empty();
        if may {
            packet(&mut self.output, b'K', |_| {});
            self.known = Known::None;
            self.over = Over::No;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(actions: u32, protocol: u32) -> Vec<u8> {
        [6, actions, protocol].iter().flat_map(|number: &u32| number.to_be_bytes()).collect()
    }

    fn answer(session: &mut Session, command: u8, data: &[u8]) -> Result<Option<Event>, Error> {
        let mut octets = Vec::new();
        packet(&mut octets, command, |out| out.extend_from_slice(data));
        session.receive(&octets);
        session.poll()
    }

    fn ready(actions: u32, protocol: u32) -> Session {
        let mut session = Session::open();
        assert_eq!(answer(&mut session, b'O', &numbers(actions, protocol)), Ok(Some(Event::Ready)));
        session.output().clear();
        session
    }

    fn sent(session: &mut Session) -> String {
        let octets = std::mem::take(session.output());
        let mut packets = Packets::default();
        packets.receive(&octets);
        let mut shown = String::new();
        while let Ok(Some((command, _))) = packets.next() {
            shown.push(char::from(command));
        }
        shown
    }

    fn go_on(session: &mut Session) {
        if session.is_owed() {
            assert_eq!(answer(session, b'c', b""), Ok(Some(Event::Verdict(Verdict::Continue))));
        }
    }

    const CLIENT: Client<'static> =
        Client { name: "[::1]", address: IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), port: 25 };

    fn message(session: &mut Session) -> String {
        let none = Macros::default();
        session.mail(&["<>"], &none);
        go_on(session);
        session.rcpt(&["<a@x.test>"], &none);
        go_on(session);
        session.data(&none);
        go_on(session);
        session.header(b"A", b"b");
        go_on(session);
        session.end_of_header(&none);
        go_on(session);
        session.body(b"body");
        go_on(session);
        session.end(&none);
        sent(session)
    }

    #[test]
    fn all_events_are_told_in_their_form() {
        let mut session = ready(0, 0);
        session.connect(CLIENT, &Macros::default());
        assert_eq!(session.output()[4..], *b"C[::1]\x006\0\x19::1\0");
        go_on(&mut session);
        assert_eq!(sent(&mut session), "C");
        session.helo("h", &Macros::default());
        go_on(&mut session);
        assert_eq!(sent(&mut session), "H");
        assert_eq!(message(&mut session), "MRTLNBE");
        go_on(&mut session);
        session.abort();
        assert_eq!(message(&mut session), "MRTLNBE", "after the end no abort is needed");
        assert_eq!(answer(&mut session, b'p', b""), Ok(Some(Event::Progress)));
        go_on(&mut session);
        assert!(session.quit_new());
        assert_eq!(sent(&mut session), "K");
    }

    #[test]
    fn what_it_does_not_want_is_left_out_and_what_it_does_not_answer_is_not_waited_for() {
        let protocol = Protocol::NOMAIL.bits() | Protocol::NOHDRS.bits() | Protocol::NR_BODY.bits();
        let mut session = ready(0, protocol);
        assert_eq!(message(&mut session), "RTNBE");
        session = ready(0, Protocol::NOBODY.bits());
        assert!(!session.wants_body());
    }

    #[test]
    fn an_early_end_leaves_out_the_rest() {
        let none = Macros::default();
        let mut session = ready(0, 0);
        session.mail(&["<>"], &none);
        assert_eq!(answer(&mut session, b'a', b""), Ok(Some(Event::Verdict(Verdict::Accept))));
        session.rcpt(&["<a@x.test>"], &none);
        session.data(&none);
        assert_eq!((sent(&mut session).as_str(), session.is_owed()), ("M", false));
        assert!(!session.quit_new(), "libmilter does not take it then");
        session.abort();
        assert_eq!(sent(&mut session), "A");
        session.mail(&["<>"], &none);
        assert_eq!(sent(&mut session), "M");
        go_on(&mut session);
        session.rcpt(&["<a@x.test>"], &none);
        assert!(answer(&mut session, b'r', b"").is_ok());
        session.rcpt(&["<b@x.test>"], &none);
        assert_eq!(sent(&mut session), "RR", "another recipient may be taken");
        let mut session = ready(0, 0);
        session.connect(CLIENT, &none);
        assert!(answer(&mut session, b'a', b"").is_ok());
        session.mail(&["<>"], &none);
        session.abort();
        session.mail(&["<>"], &none);
        assert_eq!(sent(&mut session), "C");
    }

    #[test]
    fn an_answer_must_fit_its_question() {
        let none = Macros::default();
        for (command, data) in [(b's', &b""[..]), (b'd', b""), (b'h', b"A\0b\0"), (b'O', b""), (b'?', b""), (b'f', b"")]
        {
            let mut session = ready(Actions::ALL.bits(), 0);
            session.connect(CLIENT, &none);
            assert!(answer(&mut session, command, data).is_err(), "{}", char::from(command));
        }
        let mut session = Session::open();
        assert!(answer(&mut session, b'c', b"").is_err());
        let mut session = ready(0, 0);
        let _ = message(&mut session);
        assert_eq!(answer(&mut session, b'h', b"A\0b\0"), Err(Error::NotAnnounced("ADDHEADER")));
        let mut session = ready(Actions::ADDHDRS.bits(), 0);
        let _ = message(&mut session);
        assert!(matches!(answer(&mut session, b'i', b"\0\0\0\0A\0b\0"), Ok(Some(Event::Change(_)))));
        assert!(answer(&mut session, b'b', b"x").is_err());
    }

    proptest! {
        #[test]
        fn any_octets_are_taken_without_a_panic_and_held_within_bounds(
            octets in proptest::collection::vec(prop_oneof![Just(0u8), 0u8..20, any::<u8>()], 0..400),
            cut in 1usize..50,
        ) {
            let mut session = ready(Actions::ALL.bits(), 0);
            let _ = message(&mut session);
            for part in octets.chunks(cut) {
                session.receive(part);
                while let Ok(Some(_)) = session.poll() {}
            }
        }
    }
}
