//! The end of a message: sends the content to each milter in turn and applies their changes.
//!
//! Promise: a milter that fails, refuses or discards changes nothing. A message that no milter changes is kept
//! without copying; a changed one is written again ([`crate::rewrite`]).
//!
//! Failure: the refusal; the content must then be dropped.

use std::fmt::Write as _;
use std::time::Duration;

use stentor_mail::copy_request::COPY_REQUEST_FIELD;
use stentor_mail::reply::Reply;
use stentor_smtp::server::EndOfData;
use tokio::time::Instant;

use crate::MilterRefusal;
use crate::chain::{Chain, MilterState, SessionMilter};
use crate::changes::{EnvelopeChanges, RecipientChange, shown};
use crate::connection::{Connection, MilterFailure};
use crate::milter::MilterResult;
use crate::protocol::{Change, Editor, Event, HeaderError, LineEnds, MilterReply};
use crate::rewrite::{Content, FIRST_BYTES, GROWTH_BYTES, Message, PIECE_BYTES, TOO_LARGE, next_chunk, unreadable};

/// Maximum changes of a milter other than body chunks, and their maximum octets.
const CHANGES_MAX: usize = 20_000;
const CHANGES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Total time of all milters for a message's content, however often they request more: clients wait ten minutes for
/// the reply (RFC 5321 section 4.5.3.2.6), and then send the message again.
const MESSAGE_TIME: Duration = Duration::from_mins(9);

/// The result of all milters for a message.
#[derive(Default)]
pub struct MilteredMessage {
    /// The changed message, if it has changed: the part that was not yet written to the [`Content`], with its size
    /// and facts.
    pub end: Option<EndOfData>,
    pub envelope: EnvelopeChanges,
    /// Milter that discards the message.
    pub discard: Option<String>,
    /// Description of the changes: `milter a: header, body; milter b: 1 recipient`. Empty: there are none.
    pub words: String,
}

/// Why a milter has not seen a message.
enum Trouble {
    Milter(MilterFailure),
    Ours(Reply),
}

impl From<MilterFailure> for Trouble {
    fn from(failed: MilterFailure) -> Trouble {
        Trouble::Milter(failed)
    }
}

/// Changes requested by one milter.
#[derive(Default)]
struct RequestedChanges {
    changes: Vec<Change>,
    bytes: usize,
    body: Option<NewBody>,
}

#[derive(Default)]
struct NewBody {
    ends: LineEnds,
    piece: Vec<u8>,
    bytes: u64,
}

/// Limits for one message, at all milters together.
#[derive(Clone, Copy)]
struct MessageLimits {
    /// Maximum size in octets.
    size_max: u64,
    /// When the milters must have decided.
    end: Instant,
}

impl Chain {
    /// Sends a complete message, of which the first `ours` fields were added by us. `size_max`: its maximum size.
    ///
    /// # Errors
    /// The refusal.
    pub async fn message<C: Content>(
        &mut self,
        content: &mut C,
        ours: usize,
        size_max: u64,
    ) -> Result<MilteredMessage, MilterRefusal> {
        self.tell_mail().await?;
        let mut miltered = MilteredMessage { discard: self.discard.take(), ..MilteredMessage::default() };
        if miltered.discard.is_some() {
            return Ok(miltered);
        }
        if let Some(MilterState::Failed(refusal)) =
            self.milters.iter().map(|one| &one.state).find(|state| matches!(state, MilterState::Failed(_)))
        {
            return Err(refusal.clone());
        }
        let ours_fails = |reply: Reply| MilterRefusal { reply, by: String::new() };
        let mut buffer = vec![0; FIRST_BYTES];
        let mut message = Message::read(content, ours, &mut buffer).map_err(ours_fails)?;
        let limits = MessageLimits { size_max, end: Instant::now() + MESSAGE_TIME };
        for one in self.milters.iter_mut().filter(|one| one.state == MilterState::Asked) {
            let mut requested = RequestedChanges::default();
            let shown = one.show(&self.macros, &message, content, &mut buffer, limits, &mut requested).await;
            one.log_shortened();
            let has_decided = one.take_decision();
            one.close_if_it_owes();
            let reply = match shown {
                Ok(reply @ (MilterReply::Continue | MilterReply::Accept | MilterReply::Skip)) => {
                    one.apply(requested, &mut message, content, &self.hostname, &mut miltered).map(|()| reply)
                }
                other => other,
            };
            let reply = match reply {
                Ok(reply) => Ok(reply),
                Err(Trouble::Milter(failed)) => Err(failed),
                Err(Trouble::Ours(reply)) => return Err(ours_fails(reply)),
            };
            content.forget();
            if reply.as_ref().is_ok_and(|reply| matches!(reply, MilterReply::Continue | MilterReply::Accept)) {
                one.milter.counters.count(MilterResult::Accept);
            }
            if has_decided && reply.is_ok() {
                one.succeeded();
            }
            miltered.discard = one.judge(reply)?;
            if miltered.discard.is_some() {
                return Ok(miltered);
            }
        }
        if message.has_new_header || message.has_new_body {
            let end = message.write(content, size_max, &mut buffer).await.map_err(ours_fails)?;
            miltered.end = Some(end);
        }
        Ok(miltered)
    }
}

impl SessionMilter {
    /// After [`SessionMilter::show`]: closes a connection on which answers are still owed. A milter that decided
    /// before it had received everything gets one event at a time from then on, so that its connections can be kept.
    fn close_if_it_owes(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        if connection.session.is_cut_short() {
            self.milter.decides_early();
        }
        if connection.session.is_owed() {
            self.connection = None;
        }
    }

    /// Sends the message to the milter, up to its last reply.
    async fn show<C: Content>(
        &mut self,
        macros: &crate::protocol::Macros,
        message: &Message,
        content: &mut C,
        buffer: &mut Vec<u8>,
        limits: MessageLimits,
        requested: &mut RequestedChanges,
    ) -> Result<MilterReply, Trouble> {
        let (limit, end) = (self.milter.content_limit(), limits.end);
        if Instant::now() >= end {
            return Err(MilterFailure::late(MESSAGE_TIME).into());
        }
        let Some(connection) = &mut self.connection else { return Ok(MilterReply::Continue) };
        // It accepted the message earlier, so it does not want to see more.
        if connection.session.is_over() {
            return Ok(MilterReply::Continue);
        }
        let is_at_once = self.owes_data || self.milter.is_told_at_once();
        if std::mem::take(&mut self.owes_data) {
            connection.session.data(macros);
        }
        let waits = |session: &crate::protocol::MilterSession| session.is_full() || !is_at_once;
        let keeps_space = connection.session.keeps_space();
        for (name, value) in message.header.shown(keeps_space) {
            connection.session.header(name, &value);
            if waits(&connection.session)
                && let Some(reply) = connection.decision(limit, end).await?
            {
                return Ok(reply);
            }
        }
        connection.session.end_of_header(macros);
        let mut at = message.body_at;
        loop {
            if waits(&connection.session)
                && let Some(reply) = connection.decision(limit, end).await?
            {
                return Ok(reply);
            }
            if !connection.session.wants_body() {
                break;
            }
            let read = next_chunk(content, at, buffer).map_err(|error| Trouble::Ours(unreadable(&error)))?;
            if read == 0 {
                break;
            }
            at += read as u64;
            connection.session.body(&buffer[..read]);
        }
        if !connection.session.counts_right()
            && let Some(reply) = connection.decision(limit, end).await?
        {
            return Ok(reply);
        }
        connection.session.end(macros);
        final_verdict(connection, limit, content, limits, requested).await
    }

    /// Applies its changes, all or none. If a header has so many fields that this is too much work, the client is to
    /// blame: otherwise anybody could disable the milter by such messages.
    fn apply<C: Content>(
        &mut self,
        requested: RequestedChanges,
        message: &mut Message,
        content: &mut C,
        hostname: &str,
        miltered: &mut MilteredMessage,
    ) -> Result<(), Trouble> {
        let keeps_space = self.connection.as_ref().is_some_and(|connection| connection.session.keeps_space());
        let mut envelope = EnvelopeChanges::default();
        let mut editor = (!requested.changes.is_empty()).then(|| Editor::new(message.header.clone(), keeps_space));
        for change in &requested.changes {
            envelope.take(change, hostname)?;
            if let Some(editor) = &mut editor {
                editor.apply(change).map_err(|error| match error {
                    HeaderError::TooLarge => MilterFailure::broken(error).into(),
                    HeaderError::TooManySteps => Trouble::Ours(TOO_LARGE),
                })?;
            }
        }
        let header = editor.map(Editor::finish);
        let has_new_header = header.as_ref().is_some_and(|header| *header != message.header);
        let words = words(&envelope, has_new_header, requested.body.is_some());
        if let Some(header) = header {
            message.header = header;
            message.has_new_header |= has_new_header;
        }
        if let Some(body) = requested.body {
            content.replace(body.piece);
            message.body_at = 0;
            message.has_new_body = true;
        }
        if envelope.quarantine.is_some() {
            self.milter.counters.count(MilterResult::Quarantine);
        }
        let all = &mut miltered.envelope;
        all.sender = envelope.sender.or(all.sender.take());
        all.recipients.extend(envelope.recipients);
        let name = &self.milter.settings.name;
        let quarantine = envelope.quarantine.map(|reason| format!("milter {name}: {reason}"));
        all.quarantine = all.quarantine.take().or(quarantine);
        if !words.is_empty() {
            self.milter.counters.count(MilterResult::Change);
            let and = if miltered.words.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(miltered.words, "{and}milter {}: {words}", self.milter.settings.name);
        }
        Ok(())
    }
}

/// Receives the answers to the end of a message, up to the last reply.
async fn final_verdict<C: Content>(
    connection: &mut Connection,
    limit: Duration,
    content: &mut C,
    limits: MessageLimits,
    requested: &mut RequestedChanges,
) -> Result<MilterReply, Trouble> {
    loop {
        match connection.event(limit, limits.end).await? {
            // An answer to the content.
            Some(Event::Reply(MilterReply::Continue | MilterReply::Skip)) if connection.session.is_owed() => {}
            Some(Event::Reply(reply)) => return Ok(reply),
            Some(Event::Progress) => {}
            Some(Event::Change(Change::Body(octets))) => {
                let body = requested.body.get_or_insert_default();
                body.ends.push(&octets, &mut body.piece);
                body.bytes += octets.len() as u64;
                if body.bytes > limits.size_max.saturating_add(GROWTH_BYTES) {
                    return Err(MilterFailure::broken("it sent a body that exceeds the message size limit").into());
                }
                if body.piece.len() >= PIECE_BYTES {
                    content.write(std::mem::take(&mut body.piece)).await.map_err(Trouble::Ours)?;
                }
            }
            Some(Event::Change(change)) => requested.add(change)?,
            Some(Event::Ready) | None => return Err(MilterFailure::broken("unexpected answer").into()),
        }
    }
}

impl RequestedChanges {
    fn add(&mut self, change: Change) -> Result<(), MilterFailure> {
        self.bytes += match &change {
            Change::AddHeader { name, value }
            | Change::ChangeHeader { name, value, .. }
            | Change::InsertHeader { name, value, .. } => name.len() + value.len(),
            Change::AddRecipient { to: text, params } | Change::Sender { from: text, params } => {
                text.len() + params.len()
            }
            Change::DeleteRecipient(text) | Change::Quarantine(text) | Change::Body(text) => text.len(),
        };
        // It is for clients, was removed before, and is never sent on.
        if !change.sets_field(COPY_REQUEST_FIELD) {
            self.changes.push(change);
        }
        if self.changes.len() > CHANGES_MAX || self.bytes > CHANGES_BYTES_MAX {
            return Err(MilterFailure::broken("it requested too many changes"));
        }
        Ok(())
    }
}

/// Describes the changes.
fn words(envelope: &EnvelopeChanges, has_new_header: bool, has_new_body: bool) -> String {
    let mut words = Vec::new();
    if has_new_header {
        words.push("header changed".to_owned());
    }
    if has_new_body {
        words.push("body replaced".to_owned());
    }
    if let Some(sender) = &envelope.sender {
        words.push(format!("sender <{}>", shown(sender.as_str().as_bytes())));
    }
    let added = envelope.recipients.iter().filter(|change| matches!(change, RecipientChange::Add(_))).count();
    for (count, what) in [(added, "added"), (envelope.recipients.len() - added, "removed")] {
        match count {
            0 => {}
            1 => words.push(format!("1 recipient {what}")),
            _ => words.push(format!("{count} recipients {what}")),
        }
    }
    if let Some(reason) = &envelope.quarantine {
        words.push(format!("quarantine: {reason}"));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use crate::protocol::{MilterSettings, OnFailure, Scope, ServiceAddress};
    use stentor_smtp::server::MailFrom;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{UnixListener, UnixStream};

    use super::*;
    use crate::ClientFacts;
    use crate::chain::MailFacts;
    use crate::milter::Milter;

    fn local_client() -> ClientFacts {
        let address = [127, 0, 0, 1].into();
        let counted_as = address;
        ClientFacts {
            address,
            counted_as,
            is_trusted: true,
            port: 1,
            name: None,
            listener: None,
            login: None,
            tls: None,
        }
    }

    struct Octets(&'static [u8]);

    impl Content for Octets {
        fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
            let rest = &self.0[usize::try_from(at).expect("small")..];
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }

        fn hold(&mut self, _: usize) -> Result<(), Reply> {
            Ok(())
        }

        async fn write(&mut self, _: Vec<u8>) -> Result<(), Reply> {
            Ok(())
        }

        fn replace(&mut self, _: Vec<u8>) {}

        fn forget(&mut self) {}
    }

    /// A milter that at the end of a message requests more time every two minutes and never answers.
    async fn works_for_ever(mut stream: UnixStream) -> io::Result<()> {
        loop {
            let mut packet = vec![0; stream.read_u32().await? as usize];
            stream.read_exact(&mut packet).await?;
            match packet[0] {
                b'O' => stream.write_all(&[0, 0, 0, 13, b'O', 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]).await?,
                b'D' | b'A' => {}
                b'E' => loop {
                    tokio::time::sleep(Duration::from_mins(2)).await;
                    stream.write_all(&[0, 0, 0, 1, b'p']).await?;
                },
                _ => stream.write_all(&[0, 0, 0, 1, b'c']).await?,
            }
        }
    }

    /// A milter that refuses every message at its end. With `extra` it answers the body twice.
    async fn refuses(mut stream: UnixStream, extra: bool) -> io::Result<()> {
        loop {
            let mut packet = vec![0; stream.read_u32().await? as usize];
            stream.read_exact(&mut packet).await?;
            match packet[0] {
                b'O' => stream.write_all(&[0, 0, 0, 13, b'O', 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0]).await?,
                b'D' | b'A' => {}
                b'B' if extra => stream.write_all(&[0, 0, 0, 1, b'c', 0, 0, 0, 1, b'c']).await?,
                b'E' => stream.write_all(&[0, 0, 0, 1, b'r']).await?,
                _ => stream.write_all(&[0, 0, 0, 1, b'c']).await?,
            }
        }
    }

    /// A milter that inserts a hundred fields.
    async fn inserts(mut stream: UnixStream) -> io::Result<()> {
        loop {
            let mut packet = vec![0; stream.read_u32().await? as usize];
            stream.read_exact(&mut packet).await?;
            match packet[0] {
                b'O' => stream.write_all(&[0, 0, 0, 13, b'O', 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0]).await?,
                b'D' | b'A' => {}
                b'E' => {
                    stream.write_all(&b"\0\0\0\x09i\0\0\0\x01N\0v\0".repeat(100)).await?;
                    stream.write_all(&[0, 0, 0, 1, b'c']).await?;
                }
                _ => stream.write_all(&[0, 0, 0, 1, b'c']).await?,
            }
        }
    }

    fn milter(folder: &std::path::Path, name: &str, on_failure: OnFailure) -> Arc<Milter> {
        milter_of(&folder.join(name), on_failure, works_for_ever)
    }

    fn milter_of<F>(
        path: &std::path::Path,
        on_failure: OnFailure,
        serve: impl Fn(UnixStream) -> F + Send + 'static,
    ) -> Arc<Milter>
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = UnixListener::bind(path).expect("a new folder");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
        let path = path.to_owned();
        Arc::new(Milter::new(MilterSettings {
            name: path.to_string_lossy().into_owned(),
            place: ServiceAddress::Unix(path),
            scope: Scope { smtp: true, listeners: Vec::new(), local: true },
            on_unreachable: on_failure,
            on_timeout: on_failure,
            on_error: on_failure,
            connect_timeout_ms: 10_000,
            command_timeout_ms: 30_000,
            content_timeout_ms: 300_000,
            reuse: false,
            pipelining: true,
            daemon_name: "test".to_owned(),
        }))
    }

    /// The end of the second message on a connection is sent together with its content.
    #[tokio::test]
    async fn the_last_answer_is_that_to_the_end_of_the_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let client = local_client();
        for (extra, code) in [(false, 550), (true, 451)] {
            let path = folder.path().join(extra.to_string());
            let milter = milter_of(&path, OnFailure::Tempfail, move |stream| refuses(stream, extra));
            let mut chain = Chain::new(vec![milter], &client, "mx.test");
            for _ in 0..3 {
                let mail = MailFrom::parse(b"<a@x.test>", 1_000).expect("a sender");
                if let Err(refusal) = chain.mail(MailFacts { helo: "x", id: "1", mail: &mail }).await {
                    assert!(extra && refusal.reply.code == code, "left alone after its failure");
                    continue;
                }
                chain.data().await.expect("it goes on");
                let said = chain.message(&mut Octets(b"Received: ours\r\nA: b\r\n\r\nc\r\n"), 1, 1_000).await;
                assert_eq!(said.err().map(|refusal| refusal.reply.code), Some(code), "{extra}");
            }
        }
    }

    /// Such messages must not disable a milter.
    #[tokio::test]
    async fn a_header_of_too_many_fields_is_no_failure_of_the_milter() {
        let folder = tempfile::tempdir().expect("a folder");
        let client = local_client();
        let milter = milter_of(&folder.path().join("m"), OnFailure::Accept, inserts);
        let long: &'static [u8] = [b"A: b\r\n".repeat(10_000).as_slice(), b"\r\nc\r\n"].concat().leak();
        for (content, code) in [
            (long, Some(552)),
            (long, Some(552)),
            (long, Some(552)),
            (long, Some(552)),
            (&b"A: b\r\n\r\nc\r\n"[..], None),
        ] {
            let mut chain = Chain::new(vec![milter.clone()], &client, "mx.test");
            let mail = MailFrom::parse(b"<a@x.test>", 1_000).expect("a sender");
            chain.mail(MailFacts { helo: "x", id: "1", mail: &mail }).await.expect("it goes on");
            chain.data().await.expect("it goes on");
            let said = chain.message(&mut Octets(content), 0, 1_000_000).await;
            assert_eq!(said.as_ref().err().map(|refusal| refusal.reply.code), code);
            assert!(said.is_err() || said.is_ok_and(|miltered| miltered.words.contains("header changed")));
        }
    }

    /// The clock is paused: it advances when all tasks are idle.
    #[tokio::test(start_paused = true)]
    async fn all_milters_share_the_time_that_clients_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let client = local_client();
        for (last, code) in [(OnFailure::Accept, None), (OnFailure::Tempfail, Some(451))] {
            let milters = [("a", OnFailure::Accept), ("b", OnFailure::Accept), ("c", last)];
            let named = |(name, on_failure)| milter(folder.path(), &format!("{name}{}", code.is_some()), on_failure);
            let mut chain = Chain::new(milters.map(named).into(), &client, "mx.test");
            let mail = MailFrom::parse(b"<a@x.test>", 1_000).expect("a sender");
            chain.mail(MailFacts { helo: "x", id: "1", mail: &mail }).await.expect("they go on");
            let begun = Instant::now();
            let said = chain.message(&mut Octets(b"Received: ours\r\nA: b\r\n\r\nc\r\n"), 1, 1_000).await;
            assert_eq!(begun.elapsed().as_secs(), MESSAGE_TIME.as_secs());
            assert_eq!(said.as_ref().err().map(|refusal| refusal.reply.code), code);
            if let Err(refusal) = said {
                assert!(refusal.by.ends_with("skipped: other milters used the 9 minutes for all"), "{}", refusal.by);
            }
        }
    }
}
