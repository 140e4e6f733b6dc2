//! The incoming body of a message: its reserved memory, the fields before it, and its pieces, which go to the journal.
//!
//! Failure: without memory the body is refused. A piece that cannot be stored is noted, and the rest of the body is
//! dropped.

use std::io;
use std::sync::Arc;

use stentor_core::intake::{IntakeRefusal, Job};
use stentor_core::limits::Limit;
use stentor_core::memory::{PIECE_BYTES, Reservation};
use stentor_core::{Core, Settings, log};
use stentor_mail::received::{Trace, protocol, received, received_local};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_mail::stored_form::StoredForm;
use tokio::sync::oneshot;

use super::holdings::{Arrival, Pieces};
use super::{Origin, SmtpOrigin, Transaction};

/// Octets of a stored content read at a time.
const READ_PIECE_BYTES: usize = 64 * 1024;
/// Octets of a content searched in one turn.
const SEARCH_BYTES_MAX: usize = 8 * 1024;

impl Transaction {
    /// Whether [`Transaction::reserve`] will not wait.
    pub fn is_room(&self, core: &Core) -> bool {
        core.memory.is_plenty(self.mail.size)
    }

    /// Reserves memory for the body at DATA or the first BDAT; a trusted client waits for it.
    pub async fn reserve(&mut self, core: &Core) -> Result<(), Reply> {
        self.memory =
            if self.trusted { core.memory.reserve(self.mail.size).await } else { core.memory.begin(self.client) };
        if self.memory.is_some() {
            return Ok(());
        }
        let reply = Self::no_memory(core);
        log::refused(core, "DATA", "", &self.mail, self.by(), &reply);
        Err(reply)
    }

    /// Replaces [`Transaction::reserve`] if the body is already in memory: a holder of memory must not wait for more.
    pub fn reserved(&mut self, memory: Reservation) {
        self.memory = Some(memory);
    }

    /// Reserves memory for this many octets of the body.
    pub fn hold(&mut self, core: &Core, bytes: u64) -> Result<(), Reply> {
        let headers = [&self.author_header, &self.examined_header].into_iter().flatten().map(|header| header.bytes());
        let bytes = bytes + self.waiting.bytes() + self.authentication_bytes() + headers.sum::<u64>();
        let is_held = self.memory.as_mut().is_none_or(|memory| core.memory.hold(memory, bytes));
        if is_held { Ok(()) } else { Err(Self::no_memory(core)) }
    }

    fn no_memory(core: &Core) -> Reply {
        core.limits.hit(Limit::BodyMemory, core.clock.now());
        Reply::fixed(452, Enhanced::new(4, 3, 1), "Too many messages are being received, try again later")
    }

    /// The fields to put before the body, and the gathering rule told that a message is on its way.
    pub fn start_data(&mut self, core: &Arc<Core>, settings: &Settings, origin: SmtpOrigin<'_>) -> Vec<u8> {
        let SmtpOrigin { helo, is_esmtp, client, tls, is_authenticated } = origin;
        self.tls = tls;
        let protocol = protocol(self.mail.smtputf8, is_esmtp, tls.is_some(), is_authenticated);
        self.start_data_by(core, settings, Origin { helo, protocol, client })
    }

    /// The same for whatever the message came by.
    pub fn start_data_by(&mut self, core: &Arc<Core>, settings: &Settings, origin: Origin<'_>) -> Vec<u8> {
        let Origin { helo, protocol, client } = origin;
        self.begin_data(core, protocol);
        // For untrusted clients, no memory is allocated before the octets arrive.
        let expected = self.mail.size.filter(|_| self.trusted).unwrap_or(0).min(PIECE_BYTES) as usize;
        let mut prefix = Vec::with_capacity(expected + 512);
        self.wishes.write_fields(&mut prefix);
        let hostname = &settings.config.hostname;
        let (tls, now) = (self.tls, core.clock.now());
        let is_named = settings.config.auth.user_in_received;
        let user = self.submitted.as_ref().and_then(|submitted| submitted.user());
        let has_user = user.is_some();
        let user = user.filter(|_| is_named);
        let names_client = settings.config.auth.client_in_received || !has_user;
        let trace = Trace { helo, client, names_client, hostname, protocol, tls, user, id: &self.id, now };
        received(&trace, &mut prefix);
        self.waiting.begin(&settings.rules, prefix.len(), self.milters.is_some());
        self.stored_form = StoredForm::new(prefix.len());
        self.own_octets = prefix.len();
        self.begin_authentication(settings, helo, prefix.len());
        self.begin_examination(settings);
        prefix
    }

    /// The same for a message of a local user.
    pub fn start_local_data(&mut self, core: &Arc<Core>, settings: &Settings, uid: u32) -> Vec<u8> {
        self.begin_data(core, "local");
        let mut prefix = Vec::new();
        self.wishes.write_fields(&mut prefix);
        received_local(&settings.config.hostname, uid, &self.id, core.clock.now(), &mut prefix);
        self.waiting.begin(&settings.rules, prefix.len(), self.milters.is_some());
        self.stored_form = StoredForm::new(prefix.len());
        self.own_octets = prefix.len();
        self.begin_authentication(settings, "", prefix.len());
        self.begin_examination(settings);
        prefix
    }

    fn begin_data(&mut self, core: &Arc<Core>, protocol: &'static str) {
        self.protocol = protocol;
        // Nobody's commit waits for who may send slowly on purpose.
        self.arrival = self.trusted.then(|| Arrival::new(core));
        if let Some(traced) = &mut self.traced {
            traced.data();
        }
    }

    /// Searches, rewrites and stores a piece of a body that is too large to be held.
    pub async fn piece(&mut self, core: &Arc<Core>, settings: &Settings, bytes: Vec<u8>, size_max: u64) {
        if self.failed.is_some() {
            return;
        }
        self.search(&bytes).await;
        self.scan_for_authentication(&bytes);
        self.push_examined(&bytes);
        let bytes = self.stored_form.push(bytes, false);
        // Its header is not known yet.
        let bytes = self.edit(core, settings).push(bytes, false);
        match self.canonical_header(settings, bytes, false).await {
            // The whole piece may be the beginning of a field.
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => {
                self.note_author_of(&bytes);
                self.store_piece(core, bytes, size_max).await;
            }
            Err(_) => self.failed = Some(IntakeRefusal::Table),
        }
    }

    /// Searches the next octets of the content for rules' patterns, in turns with the other sessions of these threads.
    pub(super) async fn search(&mut self, octets: &[u8]) {
        if !self.waiting.is_searching() {
            return;
        }
        for turn in octets.chunks(SEARCH_BYTES_MAX) {
            self.waiting.push(turn);
            tokio::task::yield_now().await;
        }
    }

    /// Adds the recipients' merge values ([`stentor_copies::MergeTable`]).
    pub fn merge(&mut self, values: Vec<u8>) {
        self.merge = values;
    }

    /// Stores the message and the merge values behind it, except for the rest of these, which replaces `last`.
    ///
    /// # Errors
    /// A piece cannot be stored.
    pub(super) async fn store_values(
        &mut self,
        core: &Arc<Core>,
        settings: &Settings,
        last: &mut Vec<u8>,
    ) -> Result<(), IntakeRefusal> {
        let mut values = std::mem::take(&mut self.merge);
        let rest = values.split_off(values.len() - values.len().min(PIECE_BYTES as usize));
        let size_max = settings.config.message_size_bytes_max + values.len() as u64 + rest.len() as u64;
        for octets in [std::mem::replace(last, rest), values] {
            for piece in octets.chunks(PIECE_BYTES as usize) {
                self.store_piece(core, piece.to_vec(), size_max).await;
                if let Some(refused) = self.failed {
                    return Err(refused);
                }
            }
        }
        Ok(())
    }

    /// Stores a piece; waits until it is written, so that one piece at a time is in memory.
    pub(super) async fn store_piece(&mut self, core: &Arc<Core>, bytes: Vec<u8>, size_max: u64) {
        let Some(memory) = &mut self.memory else { return };
        if !core.memory.stream(memory, bytes.len() as u64, size_max).await {
            core.limits.hit(Limit::StreamedBytes, core.clock.now());
            self.failed = Some(IntakeRefusal::Crowded);
            return;
        }
        let pieces = self.pieces.get_or_insert_with(|| Pieces::new(core));
        pieces.stored += bytes.len() as u64;
        let content = pieces.content;
        // The committer does not wait for a large body.
        self.arrival = None;
        let (answer, ticket) = oneshot::channel();
        core.intake.push(Job::Piece { content, bytes, answer });
        self.failed = match ticket.await {
            Ok(Ok(())) => None,
            Ok(Err(refused)) => Some(refused),
            Err(_) => Some(IntakeRefusal::Stopping),
        };
    }

    /// Reads the content in pieces, at most `bytes_max` octets of it.
    ///
    /// # Errors
    /// Stored pieces cannot be read.
    pub(super) fn read_content(
        &self,
        core: &Core,
        last: &[u8],
        bytes_max: usize,
        mut sink: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut left = bytes_max;
        if let Some(pieces) = &self.pieces {
            let (mut at, mut piece) = (0, vec![0; READ_PIECE_BYTES]);
            while left > 0 && at < pieces.stored {
                let wanted = left.min(READ_PIECE_BYTES).min((pieces.stored - at) as usize);
                // The last piece is not written yet.
                let read = core.reader.read_begun(pieces.content.0, at, &mut piece[..wanted])?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                sink(&piece[..read]);
                (at, left) = (at + read as u64, left - read);
            }
        }
        sink(&last[..last.len().min(left)]);
        Ok(())
    }
}
