//! One connection to a milter, from the negotiation on.
//!
//! States: negotiating; before a message (after [`MilterSession::abort`]); in a message (from [`MilterSession::mail`]);
//! over (accepted, refused or discarded, for this message or, before MAIL, for the connection), in which events have no
//! effect. While an answer [`MilterSession::is_owed`], no further event may be sent, with two exceptions. The first
//! recipient may follow MAIL immediately. DATA, header, end of header and body may be sent
//! [together](Session::is_full), and are answered in order. So may the end of the message once the connection
//! [counts right](Session::counts_right), that is, each event of its first message was answered once. Before that, the
//! end waits for all other answers, so that the last one is unambiguous.
//!
//! A milter that decides early, with answers still owed, may answer the rest (as rspamd does) or not (libmilter);
//! which of them is unknown. Such a connection cannot be used any more: [`MilterSession::is_cut_short`].
//!
//! Texts that do not fit into a packet are cut ([`MilterSession::take_shortened`]): clients choose their length, and a
//! milter would close the connection.
//!
//! Failure: an [`Error`]; the connection must be closed.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::protocol::answer::{Answer, Change, MilterReply};
use crate::protocol::command::Command;
use crate::protocol::macros::Macros;
use crate::protocol::options::{Actions, Options, Protocol, offer};
use crate::protocol::wire::{CHUNK_BYTES_MAX, Error, Packets, packet, shown, text, text_until};

/// Maximum answers owed at a time, and maximum octets waiting to be written. An answer has 5 octets, so the answers
/// to one write fit into any socket's buffer, and neither side waits for the other to read.
const OWED_MAX: usize = 64;
const OUTPUT_BYTES_MAX: usize = CHUNK_BYTES_MAX;
/// Octets reserved for a client's address behind its name.
const ADDRESS_BYTES: usize = 64;

/// A client, as sent to a milter.
#[derive(Debug, Clone, Copy)]
pub struct ClientIdentity<'a> {
    /// Client name, or its address in brackets.
    pub name: &'a str,
    pub address: IpAddr,
    pub port: u16,
}

/// Something that a milter sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The negotiation has ended.
    Ready,
    Reply(MilterReply),
    /// A change, before the last reply to a message.
    Change(Change),
    /// It is working on its answer: its timeout restarts.
    Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndScope {
    No,
    Message,
    Connection,
}

/// The message that the milter knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKnowledge {
    None,
    Begun,
    /// Its last reply was "continue": only then libmilter accepts [`MilterSession::quit_new`].
    Finished,
}

/// State of a connection; see the module documentation.
#[derive(Debug)]
pub struct MilterSession {
    output: Vec<u8>,
    packets: Packets,
    options: Option<Options>,
    /// Commands that it has not answered yet, in order.
    owed: VecDeque<Command>,
    /// It does not want more of this message's body.
    skips_body: bool,
    over: EndScope,
    known: MessageKnowledge,
    counts_right: bool,
    /// The first event that was not sent completely.
    shortened: Option<&'static str>,
    /// It has decided on a message, and nobody has asked yet.
    has_decided: bool,
}

impl MilterSession {
    /// A new connection, with the offer in the output.
    pub fn open() -> MilterSession {
        let mut output = Vec::with_capacity(256);
        offer(&mut output);
        MilterSession {
            output,
            packets: Packets::default(),
            options: None,
            owed: VecDeque::from([Command::Negotiate]),
            skips_body: false,
            over: EndScope::No,
            known: MessageKnowledge::None,
            counts_right: false,
            shortened: None,
            has_decided: false,
        }
    }

    /// Octets to write to the milter; the caller clears them after writing.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Whether the milter must answer before it gets more.
    pub fn is_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Whether so much content is pending that it must be written and answered first.
    pub fn is_full(&self) -> bool {
        self.owed.len() >= OWED_MAX || self.output.len() >= OUTPUT_BYTES_MAX
    }

    /// Whether it decided while more answers were owed: the connection must be closed.
    pub fn is_cut_short(&self) -> bool {
        self.is_over() && self.is_owed()
    }

    /// Whether it answered each event of a whole message exactly once. If it sent more, its answer to the body would
    /// be taken for the one to the end.
    pub fn counts_right(&self) -> bool {
        self.counts_right
    }

    /// Whether it does not want more events, of this message or of this connection.
    pub fn is_over(&self) -> bool {
        self.over != EndScope::No
    }

    /// Whether it wants refused recipients.
    pub fn wants_refused(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.leaves_out(Protocol::RCPT_REJ))
    }

    /// Whether unread octets have arrived; before a command is sent, these are more than was owed.
    pub fn has_more(&self) -> bool {
        !self.packets.is_empty()
    }

    /// The first event since the last call that was longer than a packet, so that the milter got only its beginning.
    pub fn take_shortened(&mut self) -> Option<&'static str> {
        self.shortened.take()
    }

    /// Whether it has decided on a message since the last call: by a reply of its own, not one about the connection.
    pub fn take_decision(&mut self) -> bool {
        std::mem::take(&mut self.has_decided)
    }

    /// Adds octets received from the milter.
    pub fn receive(&mut self, octets: &[u8]) {
        self.packets.receive(octets);
    }

    /// The next event. `None`: no answer is owed, or more octets are needed.
    ///
    /// # Errors
    /// The milter violates the protocol.
    pub fn poll(&mut self) -> Result<Option<Event>, Error> {
        let Some(&told) = self.owed.front() else { return Ok(None) };
        let Some((command, data)) = self.packets.next()? else { return Ok(None) };
        if told == Command::Negotiate {
            if command != told.facts().octet {
                return Err(Error::Unexpected(told.facts().name, shown(command)));
            }
            self.options = Some(Options::read(data)?);
            self.owed.clear();
            return Ok(Some(Event::Ready));
        }
        match Answer::read(command, data)? {
            Answer::Progress => Ok(Some(Event::Progress)),
            Answer::Change(change) if told == Command::EndOfMessage => {
                self.check(&change)?;
                Ok(Some(Event::Change(change)))
            }
            Answer::Change(_) => Err(Error::Unexpected(told.facts().name, shown(command))),
            Answer::Reply(reply) => {
                let fits = match reply {
                    MilterReply::Skip => told == Command::Body,
                    MilterReply::Discard => !matches!(told, Command::Connect | Command::Helo | Command::Unknown),
                    _ => true,
                };
                if !fits {
                    return Err(Error::Unexpected(told.facts().name, reply.name().to_owned()));
                }
                self.owed.pop_front();
                self.conclude(told, &reply);
                Ok(Some(Event::Reply(reply)))
            }
        }
    }

    /// Checks that a change was announced in the negotiation.
    fn check(&self, change: &Change) -> Result<(), Error> {
        let (any_of, name): (&[Actions], _) = match change {
            // sendmail accepts ADDHDRS for insertions, too; CHGHDRS allows any change of a header.
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

    fn conclude(&mut self, told: Command, reply: &MilterReply) {
        let is_early = matches!(told, Command::Connect | Command::Helo);
        match reply {
            MilterReply::Accept if is_early => self.over = EndScope::Connection,
            // Other recipients may be accepted, and a message does not need an unknown command.
            MilterReply::Refuse(_) if is_early || matches!(told, Command::Rcpt | Command::Unknown) => {}
            // Between messages there is nothing to accept.
            MilterReply::Accept if told == Command::Unknown && self.known != MessageKnowledge::Begun => {}
            MilterReply::Accept | MilterReply::Discard | MilterReply::Refuse(_) => {
                (self.over, self.has_decided) = (EndScope::Message, true);
            }
            MilterReply::Skip => self.skips_body = true,
            MilterReply::Continue => {}
        }
        if told == Command::EndOfMessage {
            (self.over, self.has_decided) = (EndScope::Message, true);
            self.counts_right = self.packets.is_empty();
            self.known =
                if *reply == MilterReply::Continue { MessageKnowledge::Finished } else { MessageKnowledge::None };
        }
    }

    fn leaves_out(&self, flag: Protocol) -> bool {
        self.options.as_ref().is_none_or(|options| options.leaves_out(flag))
    }

    /// Sends an event, unless the milter declined it or all further events. `data` writes the packet ([`packet`]) and
    /// returns whether all of the event fits.
    fn tell(&mut self, command: Command, macros: Option<&Macros>, data: impl FnOnce(&mut Vec<u8>, usize) -> bool) {
        let is_content =
            |told: &Command| matches!(told, Command::Data | Command::Header | Command::EndOfHeader | Command::Body);
        let may_wait = is_content(&command) || command == Command::EndOfMessage && self.counts_right;
        let follows_mail = command == Command::Rcpt && self.owed.iter().all(|told| *told == Command::Mail);
        debug_assert!(
            self.owed.is_empty() || follows_mail || (may_wait && self.owed.iter().all(is_content)),
            "answers are pending for {:?}",
            self.owed
        );
        let facts = command.facts();
        // The end of a message does not affect events between messages.
        let is_between =
            command == Command::Unknown && self.over == EndScope::Message && self.known != MessageKnowledge::Begun;
        if (self.is_over() && !is_between) || facts.flags.is_some_and(|(no, _)| self.leaves_out(no)) {
            return;
        }
        let mut is_complete = true;
        if let (Some(stage), Some(macros), Some(options)) = (facts.stage, macros, &self.options) {
            is_complete = macros.write(facts.octet, options.symbols(stage), &mut self.output);
        }
        is_complete &= packet(&mut self.output, facts.octet, data);
        if !is_complete {
            self.shortened.get_or_insert(facts.name);
        }
        if !facts.flags.is_some_and(|(_, no_reply)| self.leaves_out(no_reply)) {
            self.owed.push_back(command);
        }
    }

    pub fn connect(&mut self, client: ClientIdentity<'_>, macros: &Macros) {
        self.tell(Command::Connect, Some(macros), |out, end| {
            let is_complete = text_until(out, client.name.as_bytes(), end - ADDRESS_BYTES);
            out.push(if client.address.is_ipv4() { b'4' } else { b'6' });
            out.extend_from_slice(&client.port.to_be_bytes());
            text(out, client.address.to_string().as_bytes());
            is_complete
        });
    }

    pub fn helo(&mut self, name: &str, macros: &Macros) {
        self.tell(Command::Helo, Some(macros), |out, end| text_until(out, name.as_bytes(), end));
    }

    /// Sends an unknown SMTP command; allowed at any time except within the content.
    pub fn unknown(&mut self, line: &[u8]) {
        self.tell(Command::Unknown, None, |out, end| text_until(out, line, end));
    }

    /// Begins a message. `args`: the sender in angle brackets, then the parameters.
    pub fn mail(&mut self, args: &[&str], macros: &Macros) {
        debug_assert!(self.known == MessageKnowledge::None, "the message before has not ended");
        if !self.is_over() {
            self.known = MessageKnowledge::Begun;
        }
        self.tell(Command::Mail, Some(macros), |out, end| arguments(out, args, end));
    }

    /// Sends a recipient; arguments as in [`MilterSession::mail`].
    pub fn rcpt(&mut self, args: &[&str], macros: &Macros) {
        self.tell(Command::Rcpt, Some(macros), |out, end| arguments(out, args, end));
    }

    pub fn data(&mut self, macros: &Macros) {
        self.tell(Command::Data, Some(macros), |_, _| true);
    }

    /// Whether it wants the fields of the header with the space after the colon.
    pub fn keeps_space(&self) -> bool {
        self.leaves_out(Protocol::HDR_LEADSPC)
    }

    /// Sends a field, whose end is cut off if it is longer than a packet. It is not cut at the end of a line: a short
    /// first line would hide the rest.
    pub fn header(&mut self, name: &[u8], value: &[u8]) {
        self.tell(Command::Header, None, |out, end| {
            // The value needs at least its NUL.
            let is_complete = text_until(out, name, end - 1);
            text_until(out, value, end) && is_complete
        });
    }

    pub fn end_of_header(&mut self, macros: &Macros) {
        self.tell(Command::EndOfHeader, Some(macros), |_, _| true);
    }

    /// Whether it wants the body, or more of it.
    pub fn wants_body(&self) -> bool {
        !self.is_over() && !self.skips_body && !self.leaves_out(Protocol::NOBODY)
    }

    /// Sends a part of the body, of at most [`CHUNK_BYTES_MAX`] octets.
    pub fn body(&mut self, octets: &[u8]) {
        debug_assert!(octets.len() <= CHUNK_BYTES_MAX);
        self.tell(Command::Body, None, |out, _| {
            out.extend_from_slice(octets);
            true
        });
    }

    /// Ends the message: changes and the last reply follow.
    pub fn end(&mut self, macros: &Macros) {
        self.tell(Command::EndOfMessage, Some(macros), |_, _| true);
    }

    /// Whether a message has begun and not ended.
    pub fn is_in_message(&self) -> bool {
        self.known == MessageKnowledge::Begun
    }

    /// The message is over, whatever became of it; another may begin.
    pub fn abort(&mut self) {
        debug_assert!(self.owed.is_empty());
        if self.known == MessageKnowledge::Begun {
            packet(&mut self.output, b'A', |_, _| {});
        }
        self.known = MessageKnowledge::None;
        self.skips_body = false;
        if self.over == EndScope::Message {
            self.over = EndScope::No;
        }
    }

    /// Ends the connection.
    pub fn quit(&mut self) {
        packet(&mut self.output, b'Q', |_, _| {});
    }

    /// Ends the client's session and keeps the connection for another. `false`: this is not possible; use
    /// [`MilterSession::quit`].
    pub fn quit_new(&mut self) -> bool {
        let may = self.known == MessageKnowledge::Finished && self.owed.is_empty() && self.packets.is_empty();
        if may {
            packet(&mut self.output, b'K', |_, _| {});
            self.known = MessageKnowledge::None;
            self.over = EndScope::No;
            self.skips_body = false;
        }
        may
    }
}

/// Appends an address and its parameters. A parameter that does not fit is left out: half of it would mean something
/// else. Returns whether all is complete.
fn arguments(out: &mut Vec<u8>, all: &[&str], end: usize) -> bool {
    let Some((address, parameters)) = all.split_first() else { return true };
    let mut is_complete = text_until(out, address.as_bytes(), end);
    for parameter in parameters {
        let fits = out.len() + parameter.len() < end;
        if fits {
            text(out, parameter.as_bytes());
        }
        is_complete &= fits;
    }
    is_complete
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(actions: u32, protocol: u32) -> Vec<u8> {
        [6, actions, protocol].iter().flat_map(|number: &u32| number.to_be_bytes()).collect()
    }

    fn answer(session: &mut MilterSession, command: u8, data: &[u8]) -> Result<Option<Event>, Error> {
        let mut octets = Vec::new();
        packet(&mut octets, command, |out, _| out.extend_from_slice(data));
        session.receive(&octets);
        session.poll()
    }

    fn ready(actions: u32, protocol: u32) -> MilterSession {
        let mut session = MilterSession::open();
        assert_eq!(answer(&mut session, b'O', &numbers(actions, protocol)), Ok(Some(Event::Ready)));
        session.output().clear();
        session
    }

    fn sent(session: &mut MilterSession) -> String {
        let octets = std::mem::take(session.output());
        let mut packets = Packets::default();
        packets.receive(&octets);
        let mut shown = String::new();
        while let Ok(Some((command, _))) = packets.next() {
            shown.push(char::from(command));
        }
        shown
    }

    fn go_on(session: &mut MilterSession) {
        if session.is_owed() {
            assert_eq!(answer(session, b'c', b""), Ok(Some(Event::Reply(MilterReply::Continue))));
        }
    }

    const CLIENT: ClientIdentity<'static> =
        ClientIdentity { name: "[::1]", address: IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), port: 25 };

    fn message(session: &mut MilterSession) -> String {
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

    /// A refused client, name or recipient is no decision on a message: it shows nothing about the end of the data.
    #[test]
    fn only_replies_that_end_a_message_are_decisions() {
        let none = Macros::default();
        let mut session = ready(0, 0);
        session.connect(CLIENT, &none);
        assert!(answer(&mut session, b'r', b"").is_ok() && !session.take_decision());
        session.helo("h", &none);
        assert!(answer(&mut session, b'r', b"").is_ok() && !session.take_decision());
        session.mail(&["<>"], &none);
        go_on(&mut session);
        session.rcpt(&["<a@x.test>"], &none);
        assert!(answer(&mut session, b'r', b"").is_ok() && !session.take_decision());
        session.data(&none);
        go_on(&mut session);
        assert!(!session.take_decision());
        session.end(&none);
        go_on(&mut session);
        assert!(session.take_decision() && !session.take_decision(), "once");
        session.abort();
        session.mail(&["<>"], &none);
        assert!(answer(&mut session, b'r', b"").is_ok() && session.take_decision(), "refused at MAIL");
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

    /// The commands sent, and the length of the longest packet's data.
    fn sent_lengths(session: &mut MilterSession) -> (String, usize) {
        let (mut commands, mut longest) = (String::new(), 0);
        let output = std::mem::take(session.output());
        let mut rest = &output[..];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            commands.push(char::from(after[0]));
            longest = longest.max(length - 1);
            rest = &after[length..];
        }
        (commands, longest)
    }

    /// Sends one event.
    type SendEvent<'e> = Box<dyn Fn(&mut MilterSession) + 'e>;

    /// `mi_rd_cmd` of libmilter takes 65,535 octets behind the command, and closes the connection above.
    #[test]
    fn no_event_exceeds_a_packet_however_long_its_text() {
        let none = Macros::default();
        let long = "x".repeat(70_000);
        let mut large = Macros::default();
        for name in ["i", "mail_addr", "auth_authen", "rcpt_addr"] {
            large.set(name, long.as_str());
        }
        large.set("auth_type", "PLAIN");
        let events: [(&str, &str, usize, SendEvent<'_>); 9] = [
            ("C", "the connection", 65_535, Box::new(|to| to.connect(ClientIdentity { name: &long, ..CLIENT }, &none))),
            ("H", "HELO", 65_535, Box::new(|to| to.helo(&long, &none))),
            ("M", "MAIL", 65_535, Box::new(|to| to.mail(&[&long, "SIZE=1"], &none))),
            ("R", "RCPT", 65_535, Box::new(|to| to.rcpt(&["<a@x.test>", &long], &none))),
            ("U", "an unknown command", 65_535, Box::new(|to| to.unknown(long.as_bytes()))),
            ("L", "a header field", 65_535, Box::new(|to| to.header(b"To", long.as_bytes()))),
            ("L", "a header field", 65_535, Box::new(|to| to.header(long.as_bytes(), long.as_bytes()))),
            ("DM", "MAIL", 100, Box::new(|to| to.mail(&["<a@x.test>"], &large))),
            ("DR", "RCPT", 100, Box::new(|to| to.rcpt(&["<a@x.test>"], &large))),
        ];
        for (commands, name, longest, event) in events {
            let mut session = ready(0, 0);
            event(&mut session);
            let (sent, length) = sent_lengths(&mut session);
            // A macro that is too long is left out; the others are sent.
            assert!(commands.ends_with(&sent) && length <= longest, "{name}: {sent} {length}");
            assert_eq!(session.take_shortened(), Some(name));
            assert_eq!(session.take_shortened(), None, "once");
        }
        let mut session = ready(0, 0);
        session.body(&vec![b'x'; CHUNK_BYTES_MAX]);
        assert_eq!(sent_lengths(&mut session), ("B".to_owned(), 65_535));
        assert_eq!(session.take_shortened(), None);
    }

    #[test]
    fn what_is_cut_keeps_its_form() {
        let none = Macros::default();
        let mut session = ready(0, 0);
        // The longest value that fits: name and value with their NULs.
        let value = vec![b'v'; 65_535 - b"To\0\0".len()];
        session.header(b"To", &value);
        assert_eq!(session.take_shortened(), None);
        go_on(&mut session);
        let whole = std::mem::take(session.output());
        session.header(b"To", &[&value[..], b"more"].concat());
        assert_eq!(session.take_shortened(), Some("a header field"));
        assert_eq!(*session.output(), whole, "its beginning, with the NUL");
        go_on(&mut session);
        session.output().clear();
        let name = vec![b'n'; 65_535];
        session.header(&name, b"v");
        assert!(session.output().ends_with(b"n\0\0"), "libmilter wants two texts");
        let mut session = ready(0, 0);
        session.rcpt(&["<a@x.test>", &"x".repeat(65_535), "NOTIFY=NEVER"], &none);
        assert_eq!(session.output()[4..], *b"R<a@x.test>\0NOTIFY=NEVER\0", "a parameter is whole or left out");
        // NULs are removed before the length counts.
        let mut session = ready(0, 0);
        session.helo(&"x\0".repeat(40_000), &none);
        assert_eq!(session.take_shortened(), None);
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
        assert_eq!(answer(&mut session, b'a', b""), Ok(Some(Event::Reply(MilterReply::Accept))));
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
        let mut session = MilterSession::open();
        assert!(answer(&mut session, b'c', b"").is_err());
        let mut session = ready(0, 0);
        let _ = message(&mut session);
        assert_eq!(answer(&mut session, b'h', b"A\0b\0"), Err(Error::NotAnnounced("ADDHEADER")));
        let mut session = ready(Actions::ADDHDRS.bits(), 0);
        let _ = message(&mut session);
        assert!(matches!(answer(&mut session, b'i', b"\0\0\0\0A\0b\0"), Ok(Some(Event::Change(_)))));
        assert!(answer(&mut session, b'b', b"x").is_err());
    }

    #[test]
    fn an_unknown_command_is_told_and_refusing_it_refuses_no_message() {
        let mut session = ready(0, 0);
        session.mail(&["<>"], &Macros::default());
        go_on(&mut session);
        session.output().clear();
        session.unknown(b"MIAL x");
        assert_eq!(session.output()[4..], *b"UMIAL x\0");
        assert!(matches!(answer(&mut session, b'r', b""), Ok(Some(Event::Reply(MilterReply::Refuse(_))))));
        assert!(!session.is_over());
        session.unknown(b"MIAL");
        assert!(answer(&mut session, b'd', b"").is_err(), "there is nothing to discard");
        let mut session = ready(0, 0);
        session.unknown(b"MIAL");
        assert!(answer(&mut session, b'a', b"").is_ok() && !session.is_over());
        let mut session = ready(0, 0);
        let _ = message(&mut session);
        go_on(&mut session);
        session.unknown(b"MIAL");
        assert_eq!(sent(&mut session), "U", "after a message");
        go_on(&mut session);
        session.abort();
        session.mail(&["<>"], &Macros::default());
        assert!(answer(&mut session, b'a', b"").is_ok());
        assert_eq!(sent(&mut session), "M");
        session.unknown(b"MIAL");
        assert_eq!(sent(&mut session), "", "it wants to hear no more of this message");
        let mut session = ready(0, Protocol::NOUNKNOWN.bits());
        session.unknown(b"MIAL");
        assert!(session.output().is_empty() && !session.is_owed());
    }

    #[test]
    fn content_is_told_at_once_and_answered_in_order() {
        let none = Macros::default();
        let mut session = ready(0, 0);
        session.header(b"A", b"b");
        session.header(b"B", b"c");
        session.end_of_header(&none);
        session.body(b"x");
        assert_eq!((sent(&mut session).as_str(), session.is_full()), ("LLNB", false));
        for command in [b'c', b'c', b'c'] {
            assert_eq!(answer(&mut session, command, b""), Ok(Some(Event::Reply(MilterReply::Continue))));
        }
        assert!(session.is_owed() && session.wants_body());
        assert_eq!(answer(&mut session, b's', b""), Ok(Some(Event::Reply(MilterReply::Skip))));
        assert!(!session.is_owed() && !session.wants_body(), "it has seen enough");
        session.abort();
        assert!(session.wants_body(), "of that message");
        for _ in 1..OWED_MAX {
            session.header(b"A", b"b");
        }
        assert!(!session.is_full());
        session.header(b"A", b"b");
        assert!(session.is_full());
    }

    #[test]
    fn the_end_is_told_with_the_content_where_answers_are_known_to_be_counted() {
        let none = Macros::default();
        let mut session = ready(0, 0);
        let _ = message(&mut session);
        assert!(!session.counts_right());
        go_on(&mut session);
        assert!(session.counts_right());
        session.abort();
        session.mail(&["<>"], &none);
        go_on(&mut session);
        session.data(&none);
        session.header(b"A", b"b");
        session.end_of_header(&none);
        session.body(b"x");
        session.end(&none);
        assert_eq!(sent(&mut session), "MTLNBE");
        for _ in 0..4 {
            go_on(&mut session);
            assert!(session.is_owed());
        }
        assert!(matches!(answer(&mut session, b'r', b""), Ok(Some(Event::Reply(MilterReply::Refuse(_))))));
        assert!(!session.is_owed() && session.counts_right());

        let mut session = ready(0, 0);
        let _ = message(&mut session);
        session.receive(&[0, 0, 0, 1, b'c', 0, 0, 0, 1, b'r']);
        assert_eq!(session.poll(), Ok(Some(Event::Reply(MilterReply::Continue))));
        assert!(!session.counts_right(), "it has said more than it owed");
    }

    #[test]
    fn a_decision_while_answers_are_owed_ends_the_connection() {
        let mut session = ready(0, 0);
        session.mail(&["<>"], &Macros::default());
        go_on(&mut session);
        session.header(b"A", b"b");
        session.header(b"B", b"c");
        assert!(!session.is_cut_short());
        assert_eq!(answer(&mut session, b'a', b""), Ok(Some(Event::Reply(MilterReply::Accept))));
        assert!(session.is_cut_short() && !session.quit_new());
        let mut session = ready(0, Protocol::NR_HDR.bits());
        session.header(b"A", b"b");
        session.end_of_header(&Macros::default());
        assert!(answer(&mut session, b'a', b"").is_ok());
        assert!(session.is_over() && !session.is_cut_short(), "nothing more was owed");
    }

    /// The result of a milter's octets: events, then whether it failed.
    fn events(octets: &[u8], cut: usize) -> (Vec<Event>, Option<Error>, bool) {
        let mut session = ready(Actions::ALL.bits(), 0);
        let _ = message(&mut session);
        let mut all = Vec::new();
        for part in octets.chunks(cut) {
            session.receive(part);
            loop {
                match session.poll() {
                    Ok(Some(event)) => all.push(event),
                    Ok(None) => break,
                    Err(error) => return (all, Some(error), session.is_owed()),
                }
            }
        }
        (all, None, session.is_owed())
    }

    proptest! {
        #[test]
        fn what_a_milter_says_is_the_same_however_it_is_cut(
            said in proptest::collection::vec(
                ("[cadstr4yphmib+2eqf?]", prop::sample::select(vec![&b""[..], b"A\0b\0", b"\0\0\0\x01A\0b\0", b"550 x\0"])),
                0..6,
            ),
            garbage in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..9),
            cut in 1usize..50,
        ) {
            let mut octets = Vec::new();
            for (command, data) in said {
                packet(&mut octets, command.as_bytes()[0], |out, _| out.extend_from_slice(data));
            }
            octets.extend(garbage);
            let (all, error, is_owed) = events(&octets, usize::MAX);
            let (last, before) = all.split_last().map_or((None, &all[..]), |(last, before)| (Some(last), before));
            prop_assert!(before.iter().all(|event| matches!(event, Event::Change(_) | Event::Progress)), "{all:?}");
            prop_assert_eq!(is_owed, !matches!(last, Some(Event::Reply(_))), "one reply, the last");
            prop_assert_eq!(events(&octets, cut), (all, error, is_owed));
        }
    }
}
