//! A connection for asking a host about recipients, one after the other, without sending content.

use stentor_core::live::Live;
use stentor_queue::site::Target;
use stentor_smtp::client::{ClientError, ClientEvent, ClientSession, RcptResult, TlsUse};

use super::super::opening::Purpose;
use super::super::short_session::{SessionContext, ShortSession};

/// Called when a host has replied to part of a question.
pub(super) type ReplyCallback<'h> = &'h (dyn Fn() + Sync);

pub(super) struct Session {
    short: ShortSession,
    /// Recipients asked about, and refusals among them: hosts slow down or close a connection with many.
    pub asked: u32,
    pub refused: u32,
    /// Replies before the last question.
    replies: u64,
}

impl Session {
    /// Connects and greets. The error says why not.
    pub async fn open(context: SessionContext<'_>, target: &Target) -> Result<Session, String> {
        let mut session =
            ShortSession::open(context, target, Purpose::Ask).await.map_err(|error| error.text(target))?;
        if session.protection.allows_clear() {
            // Only addresses are sent: they may go in clear where mail may.
            session.smtp.protect(TlsUse::Never, false);
        }
        session.event(&format!("connected to {target} for call-ahead"));
        loop {
            match session.next(context.live, |_| ()).await {
                Some(ClientEvent::Ready(_)) => return Ok(Session { short: session, asked: 0, refused: 0, replies: 0 }),
                Some(ClientEvent::Closed { error: Some(error) }) => return Err(error.to_string()),
                Some(ClientEvent::StartTls) => session.secure(context.settings).await,
                _ => return Err("the session ended before it began".to_owned()),
            }
        }
    }

    pub fn target(&self) -> &Target {
        &self.short.target
    }

    /// Asks about a recipient. An error is the end of the session, if that came first.
    pub async fn ask(
        &mut self,
        context: SessionContext<'_>,
        address: &str,
        heard: ReplyCallback<'_>,
    ) -> Result<RcptResult, ClientError> {
        self.asked += 1;
        self.replies = self.short.smtp.replies();
        let sender = &context.settings.config.call_ahead.sender;
        self.short.smtp.verify(self.asked.into(), sender, address, context.clock.steady())?;
        let mut result = None;
        loop {
            match self.next(context.live, heard).await {
                Some(ClientEvent::Done { results, .. }) => {
                    result = results.into_iter().next();
                    // A session that has ended reports that next.
                    if !self.short.smtp.is_closed() {
                        break;
                    }
                }
                Some(ClientEvent::Closed { error: Some(error) }) => return Err(error),
                Some(
                    ClientEvent::Ready(_)
                    | ClientEvent::Unsecured(_)
                    | ClientEvent::StartTls
                    | ClientEvent::Authenticate(_)
                    | ClientEvent::Challenge(_)
                    | ClientEvent::Authenticated,
                ) => {}
                Some(ClientEvent::Closed { error: None }) | None => break,
            }
        }
        let result = result.ok_or(ClientError::Disconnected("sending RCPT TO"))?;
        self.refused += u32::from(!result.reply.is_success());
        Ok(result)
    }

    /// Whether the host has sent no reply to the question, not even to MAIL.
    pub fn is_silent(&self) -> bool {
        self.short.smtp.replies() == self.replies
    }

    /// Whether the session ended at MAIL of the question, with this error.
    pub fn failed_at_mail(&self, error: &ClientError) -> bool {
        match error {
            // The question about this recipient cannot be sent at all.
            ClientError::BadAddress | ClientError::NoRecipients | ClientError::NotReady => false,
            // The reply in the error is counted.
            ClientError::ServerClosing { .. } | ClientError::Unexpected { .. } => {
                self.short.smtp.replies() <= self.replies + 1
            }
            _ => self.is_silent(),
        }
    }

    /// Ends the session in an orderly way.
    pub async fn quit(mut self, live: Option<&Live>) {
        self.short.quit(live).await;
    }

    async fn next(&mut self, live: Option<&Live>, heard: ReplyCallback<'_>) -> Option<ClientEvent> {
        let replies = self.replies;
        let moved = |smtp: &ClientSession| {
            if smtp.replies() != replies {
                heard();
            }
        };
        self.short.next(live, moved).await
    }
}
