//! Sends on a connection: the next transaction, in the form that the host accepts, and its content.

use std::time::Duration;

use stentor_core::Settings;
use stentor_core::assignment::Assignment;
use stentor_core::suppression::take_assignment;
use stentor_mail::reply::Enhanced;
use stentor_sched::Stage;
use stentor_smtp::client::{ClientError, TxRcpt, TxSpec};

use super::super::body::{self, BodyProgress, ContentError, Form};
use super::super::protection::Mail;
use super::super::{copies, dkim, generic, loops, merge, outcome, report_counts};
use super::{Connection, OUTPUT_BYTES_HIGH, OWN_FAILURE, PROGRESS_MS, UNREADABLE, UNSIGNED};

/// Domains whose reports count a session.
const COUNTED_DOMAINS_MAX: usize = 32;

impl Connection {
    /// Begins as many transactions as the session can take.
    pub(super) async fn begin(&mut self) {
        while self.is_ready && self.sending.is_none() && !self.smtp.is_closed() {
            if self.held.is_none() {
                self.held = self.again.pop_front();
            }
            if self.held.is_none() {
                if self.is_starved || self.signal.must_close() || !self.smtp.can_pipeline(0) || self.awaits_watcher() {
                    return;
                }
                let conn = self.conn;
                self.held = self.core.with(|hub, now| take_assignment(&self.core, hub, conn, now));
                self.is_starved = self.held.is_none();
            }
            let Some(mut assignment) = self.held.take() else { return };
            if let Err(error) = merge::render(&self.core, &mut assignment) {
                self.not_prepared(&assignment, error);
                continue;
            }
            if assignment.tried.is_none()
                && assignment.generic.is_none()
                && generic::applies(&self.settings, &self.target)
            {
                // While a table behind a socket is asked, nothing reads or writes for the open transactions.
                if !self.open.is_empty() && self.settings.tables.has_remote() {
                    self.held = Some(assignment);
                    return;
                }
                let rewritten = Box::pin(generic::rewrite(&self.core, &self.settings, &mut assignment)).await;
                if let Err(error) = rewritten {
                    self.not_prepared(&assignment, error);
                    continue;
                }
            }
            if !self.smtp.can_begin() && !self.smtp.can_pipeline(assignment.wire_size()) {
                self.held = Some(assignment);
                return;
            }
            if let Some(too_large) = self.begin_one(assignment).await {
                self.held = Some(too_large);
                return;
            }
            self.send_content();
        }
    }

    /// Begins a transaction. Returns it if it turns out too large to be pipelined behind the open ones.
    async fn begin_one(&mut self, mut assignment: Assignment) -> Option<Assignment> {
        if self.is_loop {
            let text = loops::text(&self.target, &self.settings.config.hostname);
            self.not_sendable(&assignment, loops::BOUNCED, &text);
            return None;
        }
        if let Some((dsn, text)) = self.lacks(&assignment) {
            let outcomes = outcome::same(&assignment, Stage::Tls, 0, dsn, &text);
            self.apply_outcomes(&assignment, &outcomes);
            return None;
        }
        // Boxed to keep each connection's task small.
        let (form, size) = match Box::pin(self.prepare(&mut assignment)).await {
            Ok(prepared) => prepared,
            Err(error) => {
                self.not_prepared(&assignment, error);
                return None;
            }
        };
        let spec = TxSpec {
            tx: assignment.work.tx.0,
            sender: assignment.wire_sender(),
            size,
            size_exact: true,
            eight_bit: assignment.eight_bit && !form.recoded.seven_bit,
            smtputf8: form.smtputf8,
            require_tls: self.requires_tls(&assignment),
            ret: assignment.ret,
            envid: assignment.envid.as_deref(),
        };
        let rcpts = assignment.positions().map(|position| {
            let params = assignment.params(position);
            TxRcpt {
                address: assignment.wire_address(position),
                notify: params.and_then(|p| p.notify),
                orcpt: params.and_then(|p| p.orcpt.as_deref()),
            }
        });
        match self.smtp.begin(&spec, rcpts, self.core.clock.steady()) {
            Ok(()) => {
                self.begun_any = true;
                self.count_for_reports(&assignment);
                self.sending = Some(BodyProgress::new(&assignment, form));
                assignment.recoded = form.recoded;
                self.open.push_back(assignment);
            }
            // After conversion it is too large to be pipelined: it is sent after those before it are done.
            Err(ClientError::NotReady) => return Some(assignment),
            Err(error) => {
                let text = error.to_string();
                self.not_sendable(&assignment, Enhanced::new(5, 6, 0), &text);
            }
        }
        None
    }

    /// Counts the session for the TLS reports of the domain whose mail it carries, once per domain.
    fn count_for_reports(&mut self, assignment: &Assignment) {
        if self.settings.config.tls_reports.is_none() || self.counted.len() >= COUNTED_DOMAINS_MAX {
            return;
        }
        if report_counts::is_tls_report(&self.settings, assignment.is_report, &assignment.sender) {
            return;
        }
        let address = assignment.positions().next().map_or("", |at| assignment.address(at));
        let domain = address.rsplit_once('@').map_or("", |(_, domain)| domain);
        if !self.counted.iter().any(|known| **known == *domain) {
            let found = report_counts::of_session(&self.target, &self.protection);
            let ends = report_counts::SessionEndpoints { target: &self.target, our_ip: self.our_ip };
            report_counts::count(&self.core, &self.settings, ends, domain, found.as_ref());
            self.counted.push(domain.into());
        }
    }

    /// Whether MAIL uses REQUIRETLS, which requires that the host offers it within TLS. Reports use it where they can
    /// (RFC 8689 section 5), and mail that does not leave this machine need not.
    fn requires_tls(&self, assignment: &Assignment) -> bool {
        let is_offered = self.smtp.caps().require_tls() && self.protection.facts().is_some();
        let is_demanded = self.target.posture.as_deref().is_some_and(|host| host.posture.require_tls);
        assignment.require_tls && (is_demanded || is_offered)
    }

    /// Returns the requirement of the message's list or sender that this session lacks.
    fn lacks(&self, assignment: &Assignment) -> Option<(Enhanced, String)> {
        let domain = assignment.positions().next().map_or("", |at| assignment.wire_address(at));
        let domain = domain.rsplit_once('@').map_or("", |(_, domain)| domain);
        let list = (!assignment.list.is_empty()).then_some(&*assignment.list);
        let mail = Mail { domain, list, sender: &assignment.sender };
        self.protection.lacks_of_mail(&self.settings, &self.target, mail)
    }

    /// Returns the form for this host, and the octets in that form.
    async fn prepare(&mut self, assignment: &mut Assignment) -> Result<(Form, u64), ContentError> {
        body::load(&self.core, assignment)?;
        // Replaced keys and settings are used at once, also on open connections.
        let settings = self.core.settings();
        copies::render(&self.core, &settings, assignment)?;
        let form = Form::choose(&self.core, assignment, &self.smtp, self.settings.converts_eight_bit).await?;
        if dkim::applies(&settings, &self.target) {
            self.sign(&settings, assignment, form).await?;
        }
        Ok((form, BodyProgress::wire_size(&self.core, assignment, form).await?))
    }

    /// Signs a copy. The time until its turn is ours, and no silence of the host; what is pending for it is sent.
    async fn sign(&mut self, settings: &Settings, assignment: &mut Assignment, form: Form) -> Result<(), ContentError> {
        let core = self.core.clone();
        let mut signing = std::pin::pin!(dkim::sign(&core, settings, assignment, form));
        loop {
            tokio::select! {
                signed = &mut signing => return signed,
                () = tokio::time::sleep(Duration::from_millis(PROGRESS_MS)) => {
                    // An error of the socket recurs at the next write.
                    let _ = self.write();
                    let conn = self.conn;
                    core.with(|hub, now| hub.sched.progress(conn, now));
                }
            }
        }
    }

    /// Reports a transaction of which nothing was sent.
    pub(super) fn not_prepared(&mut self, assignment: &Assignment, error: ContentError) {
        match error {
            ContentError::Unfit(dsn, text) => self.not_sendable(assignment, dsn, &text),
            ContentError::Read(error) => {
                tracing::error!(message = %assignment.id, %error, "stored content could not be read; the message \
                    waits");
                let outcomes = outcome::same(assignment, Stage::Unreadable, 0, OWN_FAILURE, UNREADABLE);
                self.apply_outcomes(assignment, &outcomes);
            }
            ContentError::Signature(error) => {
                tracing::error!(message = %assignment.id, %error, "message could not be signed (DKIM); it waits");
                let outcomes = outcome::same(assignment, Stage::Signature, 0, OWN_FAILURE, UNSIGNED);
                self.apply_outcomes(assignment, &outcomes);
            }
            ContentError::Table(reply) => {
                let outcomes = generic::deferred(assignment, &reply);
                self.apply_outcomes(assignment, &outcomes);
            }
        }
    }

    pub(super) fn not_sendable(&mut self, assignment: &Assignment, dsn: Enhanced, text: &str) {
        let outcomes = outcome::same(assignment, Stage::Content, 0, dsn, text);
        self.apply_outcomes(assignment, &outcomes);
    }

    /// Moves content into the session's output, up to the mark at which the socket must accept some first.
    pub(super) fn send_content(&mut self) {
        let Some(outgoing) = &mut self.sending else { return };
        let Some(assignment) = self.open.back() else { return };
        while self.smtp.wants_body() && self.smtp.output().len() < OUTPUT_BYTES_HIGH {
            let now = self.core.clock.steady();
            let smtp = &mut self.smtp;
            let mut pushed = Ok(());
            let more = outgoing.next(&self.core, assignment, |bytes| pushed = smtp.push_body(bytes, now));
            match (more, pushed) {
                (Ok(true), Ok(())) => {}
                (Ok(false), _) => {
                    let _ = self.smtp.end_body(now);
                    self.sending = None;
                    return;
                }
                (Ok(true), Err(_)) => return,
                (Err(error), _) => {
                    // The rest of a content cannot be left out: the connection is dropped, and the message waits. No
                    // other content is in progress, since one that is not completely in memory is never pipelined.
                    tracing::error!(message = %assignment.id, ?error, "stored content could not be read; the message \
                        waits");
                    self.unreadable = Some(assignment.work.tx.0);
                    self.smtp.disconnected();
                    return;
                }
            }
        }
        if !self.smtp.wants_body() && self.smtp.can_begin() {
            self.sending = None;
        }
    }
}
