//! One login in progress.
//!
//! States: begun -> (challenges) -> done or refused; after that no input is accepted. The delays ([`crate::brakes`])
//! are checked both before a password or proof is checked and after: many attempts at the same time reveal no more than
//! one after the other. A client that must wait by then gets that reply, whether the password was right or wrong.

use std::sync::Arc;
use std::time::Duration;

use stentor_records::escape::is_trap;
use stentor_sasl::{Credentials, Mechanism, SaslError, ServerExchange, ServerStep, peek_user};
use stentor_users::{SendAs, canonical_name};
use tokio::time::Instant;

use crate::brakes::AttemptOrigin;
use crate::channel::Channel;
use crate::dovecot;
use crate::login::{Login, Rights};
use crate::refusal::LoginRefusal;
use crate::refusals::RefusedLogin;
use crate::shared::{AuthenticatorState, Source};
use crate::source::{OwnUsers, WatchedFile};

/// The reply to a wrong guess takes a multiple of this time, so that its duration does not reveal the work done.
const WRONG_PAUSE: Duration = Duration::from_millis(500);
/// Maximum characters of a name in a log line.
const NAME_CHARS_MAX: usize = 64;

/// The result of a step.
#[derive(Debug)]
pub enum Step {
    /// A challenge for the client to answer.
    Challenge(Vec<u8>),
    Done(Login),
    Refused(LoginRefusal),
}

/// An exchange; drop it to cancel.
pub struct Exchange {
    shared: Arc<AuthenticatorState>,
    mechanism: Mechanism,
    channel: Channel,
    /// The canonical user name, once known.
    user: Option<String>,
    /// A password was checked.
    has_checked: bool,
    state: State,
}

enum State {
    Own(Box<ServerExchange>),
    Dovecot(Option<dovecot::Request>),
    Refused(LoginRefusal),
    Ended,
}

impl Exchange {
    pub(crate) fn new(
        shared: Arc<AuthenticatorState>,
        mechanism: Mechanism,
        channel: Channel,
        offers_plus: bool,
    ) -> Exchange {
        let state = match &shared.source {
            Source::Own(_) => {
                let nonce = crate::random::nonce();
                State::Own(Box::new(ServerExchange::new(mechanism, channel.bindings.clone(), offers_plus, &nonce)))
            }
            Source::Dovecot(..) => State::Dovecot(None),
        };
        Exchange { shared, mechanism, channel, user: None, has_checked: false, state }
    }

    pub(crate) fn refused(
        shared: Arc<AuthenticatorState>,
        mechanism: Mechanism,
        channel: Channel,
        refusal: LoginRefusal,
    ) -> Exchange {
        Exchange { shared, mechanism, channel, user: None, has_checked: false, state: State::Refused(refusal) }
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Handles a response; the first is AUTH's initial response, `None` if there is none (`=` is an empty one).
    pub async fn step(&mut self, response: Option<&[u8]>) -> Step {
        let begun = Instant::now();
        let shared = self.shared.clone();
        let result = match (std::mem::replace(&mut self.state, State::Ended), &shared.source) {
            _ if shared.source.file().is_retired() => Err(LoginRefusal::Unavailable),
            (State::Own(server), Source::Own(users)) => self.own(server, users, response).await,
            (State::Dovecot(request), Source::Dovecot(link, overrides)) => {
                self.dovecot(request, link, overrides, response).await
            }
            (State::Refused(refusal), _) => Err(refusal),
            _ => Err(LoginRefusal::Protocol(SaslError::OutOfOrder)),
        };
        match result {
            // The configuration was replaced: no user is known here any more, which is not the client's fault.
            _ if shared.source.file().is_retired() => self.refuse(LoginRefusal::Unavailable, begun).await,
            Ok(step) => step,
            Err(refusal) => self.refuse(refusal, begun).await,
        }
    }

    async fn own(
        &mut self,
        mut server: Box<ServerExchange>,
        users: &OwnUsers,
        response: Option<&[u8]>,
    ) -> Result<Step, LoginRefusal> {
        // This step checks a proof.
        self.check_brakes()?;
        let mut step = server.step(response).map_err(LoginRefusal::Protocol)?;
        if let ServerStep::Keys { user } = step {
            self.knows_user(&user);
            // A name without a canonical form belongs to nobody.
            let name = self.user.clone().unwrap_or(user);
            self.check_brakes()?;
            step = ServerStep::Challenge(server.keys(users.scram_keys(&name)).map_err(LoginRefusal::Protocol)?);
        }
        match step {
            ServerStep::Challenge(octets) => {
                self.state = State::Own(server);
                Ok(Step::Challenge(octets))
            }
            ServerStep::Password(credentials) => self.check(users, &credentials).await,
            ServerStep::Done { authzid, .. } => self.log_in(users, authzid.as_deref()),
            ServerStep::Token(_) | ServerStep::Keys { .. } => Err(LoginRefusal::Mechanism),
        }
    }

    async fn check(&mut self, users: &OwnUsers, given: &Credentials) -> Result<Step, LoginRefusal> {
        self.knows_user(&given.user);
        self.check_brakes()?;
        let user = self.user.as_deref().and_then(|name| users.get(name));
        let is_familiar = self
            .user
            .as_deref()
            .is_some_and(|name| self.shared.brakes.lock().is_familiar(self.channel.client.ip(), name));
        self.has_checked = true;
        let is_right = self.shared.checks.is_right(user, &given.password, is_familiar, &|| self.shared.now()).await;
        let is_right = is_right.map_err(|_| LoginRefusal::Crowded)?;
        // Others may have guessed wrong meanwhile: the reply must not distinguish a wrong password from the right one.
        self.check_brakes()?;
        if !is_right {
            return Err(LoginRefusal::Wrong);
        }
        self.log_in(users, given.authzid.as_deref())
    }

    /// Completes the login of a user who has authenticated.
    fn log_in(&mut self, users: &OwnUsers, authzid: Option<&str>) -> Result<Step, LoginRefusal> {
        self.check_brakes()?;
        let user = self.user.as_deref().and_then(|name| users.get(name)).ok_or(LoginRefusal::Wrong)?;
        // Checked first, so that the reply does not reveal a right password.
        if user.is_locked {
            return Err(LoginRefusal::Locked);
        }
        if authzid.is_some_and(|other| canonical_name(other).as_deref() != Ok(&*user.name)) {
            return Err(LoginRefusal::Identity);
        }
        let rights = Rights::File { user: user.clone(), users: users.file.watch() };
        Ok(self.done(Login { user: user.name.clone(), mechanism: self.mechanism, rights }))
    }

    async fn dovecot(
        &mut self,
        request: Option<dovecot::Request>,
        link: &dovecot::Link,
        overrides: &WatchedFile,
        response: Option<&[u8]>,
    ) -> Result<Step, LoginRefusal> {
        if self.user.is_none()
            && let Some(user) = response.and_then(|octets| peek_user(self.mechanism, octets))
        {
            self.knows_user(&user);
        }
        self.check_brakes()?;
        let (mut request, answer) = match request {
            None => link.begin(self.mechanism, &self.channel, response).await,
            Some(mut request) => {
                let answer = request.go_on(response.unwrap_or_default()).await;
                (request, answer)
            }
        };
        if !matches!(answer, dovecot::Answer::Challenge(_) | dovecot::Answer::Unavailable) {
            self.check_brakes()?;
        }
        match answer {
            dovecot::Answer::Challenge(octets) => {
                request.keep();
                self.state = State::Dovecot(Some(request));
                Ok(Step::Challenge(octets))
            }
            dovecot::Answer::Done { user, send_as, limits } => {
                self.knows_user(&user);
                self.check_brakes()?;
                self.let_in(user, send_as, limits, overrides)
            }
            dovecot::Answer::Wrong => Err(LoginRefusal::Wrong),
            dovecot::Answer::Locked => Err(LoginRefusal::Locked),
            dovecot::Answer::Unavailable => Err(LoginRefusal::Unavailable),
        }
    }

    /// Completes a login that Dovecot accepted, with the user's data from it.
    fn let_in(
        &self,
        user: String,
        send_as: Vec<SendAs>,
        limits: dovecot::GivenLimits,
        overrides: &WatchedFile,
    ) -> Result<Step, LoginRefusal> {
        let user: Arc<str> = self.user.clone().unwrap_or(user).into();
        if let Some(wrong) = limits.wrong {
            let user = shown(&user);
            tracing::warn!(
                %user,
                "Dovecot's field {}{wrong} is not a number, `none` or `default`; the limit of [auth] applies",
                dovecot::FIELD_PREFIX
            );
        }
        let limits = limits.own;
        let rights = Rights::Given { send_as: send_as.into(), limits, overrides: overrides.watch() };
        let login = Login { user, mechanism: self.mechanism, rights };
        if !login.is_valid() {
            return Err(LoginRefusal::Locked);
        }
        self.shared.usage.lock().heard(&login.user, limits, self.shared.now());
        Ok(self.done(login))
    }

    fn knows_user(&mut self, name: &str) {
        self.user = canonical_name(name).ok();
    }

    fn who(&self) -> AttemptOrigin<'_> {
        // Whether Dovecot knows a user is unknown before it accepts, so its names count as unknown ones.
        let is_known = match (&self.shared.source, self.user.as_deref()) {
            (Source::Own(users), Some(name)) => users.get(name).is_some(),
            _ => false,
        };
        AttemptOrigin { client: self.channel.client.ip(), user: self.user.as_deref(), is_known }
    }

    fn check_brakes(&self) -> Result<(), LoginRefusal> {
        match self.shared.brakes.lock().wait_ms(self.who(), self.shared.now()) {
            Some(wait_ms) => Err(LoginRefusal::Slow(wait_ms.div_ceil(1_000))),
            None => Ok(()),
        }
    }

    fn done(&self, login: Login) -> Step {
        self.shared.brakes.lock().right(self.channel.client.ip(), &login.user);
        let user = shown(&login.user);
        tracing::info!(%user, client = %self.channel.client.ip(), mechanism = %self.mechanism, "logged in");
        Step::Done(login)
    }

    async fn refuse(&self, refusal: LoginRefusal, begun: Instant) -> Step {
        if refusal.is_wrong_guess() {
            self.shared.brakes.lock().wrong(self.who(), self.shared.now());
        }
        let user = shown(self.user.as_deref().unwrap_or("?"));
        let refused = RefusedLogin { user, client: self.channel.client.ip(), mechanism: self.mechanism, refusal };
        self.shared.refusals.refused(refused, self.shared.now());
        if refusal.is_wrong_guess() || self.has_checked {
            let over = (begun.elapsed().as_nanos() % WRONG_PAUSE.as_nanos()) as u64;
            tokio::time::sleep(WRONG_PAUSE.saturating_sub(Duration::from_nanos(over))).await;
        }
        Step::Refused(refusal)
    }
}

/// A name as one word for a log line, so that it cannot imitate another field, as `x client=192.0.2.1` would.
fn shown(name: &str) -> String {
    let plain = |c: char| if is_trap(c) || c.is_whitespace() || c == '"' { '?' } else { c };
    name.chars().take(NAME_CHARS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_log_line() {
        assert_eq!(shown("ann@example.org"), "ann@example.org");
        assert_eq!(shown("x client=192.0.2.1\u{2028}y\t\"z\""), "x?client=192.0.2.1?y??z?");
        assert_eq!(shown(&"x".repeat(1_000)).len(), NAME_CHARS_MAX);
    }
}
