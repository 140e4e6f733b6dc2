//! A worker of a site: takes questions from its line and asks them over one connection, which it opens when needed.
//!
//! States: waiting for a place among all connections -> asking -> idle (the connection is kept for [`IDLE_MS`]) ->
//! ended. For a new connection it waits for a place again.
//!
//! Failure: a connection that is lost is replaced once for the current question. If no host of the site opens a session
//! within [`HOST_MS`], or the sender is refused, the site is not asked for `failure_ttl_s`, and all waiting questions
//! get the reason, unless the site recently replied to other questions. [`HOST_MS`] applies whatever time the question
//! has left. A question that times out, or whose session the host ends, is undecided and does not affect other
//! questions: a client might have chosen a recipient that is slow to answer.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use stentor_core::Core;
use stentor_core::call_ahead::{CallAheadQuery, CallAheadResult, ConnectionPermit, FailureScope, Names, ReasonTexts};
use stentor_core::limits::Limit;
use stentor_queue::ids::Ms;
use stentor_queue::site::Target;
use stentor_smtp::client::ClientError;
use tokio::sync::Notify;

use super::super::short_session::SessionContext;
use super::session::{ReplyCallback, Session};
use super::{answer_of, late, short};

/// How long a connection without questions is kept.
const IDLE_MS: u64 = 2_000;
/// Questions and refusals per connection: Postfix slows a client down after ten errors, and disconnects after twenty.
const ASKED_MAX: u32 = 100;
const REFUSED_MAX: u32 = 8;
/// Time for a host to open a session, and then to reply to MAIL.
const HOST_MS: Ms = 15_000;
const NOT_REACHED: &str = "its mail server is unreachable";
const REPLY_CLOSING: u16 = 421;

/// Starts a worker for a site.
pub(super) fn start(core: Arc<Core>, site: Arc<str>, wake: Arc<Notify>) {
    drop(tokio::spawn(work(core, site, wake)));
}

/// Serves a site until there are no more questions.
async fn work(core: Arc<Core>, site: Arc<str>, wake: Arc<Notify>) {
    let (sites, places) = (&core.call_ahead.sites, &core.call_ahead.places);
    let mut session: Option<Session> = None;
    let mut permit: Option<ConnectionPermit<'_>> = None;
    loop {
        if let Some(spent) = session.take_if(|session| is_spent(session)) {
            end(&core, spent).await;
            permit = None;
        }
        let held = match permit.take() {
            Some(held) => permit.insert(held),
            None => permit.insert(places.take(sites.responsiveness(&site, core.clock.steady())).await),
        };
        if let Some(question) = sites.next(&site) {
            if serve(&core, &site, &mut session, held, question).await.is_break() {
                break;
            }
            // Without a session, others may take the place first.
            permit = permit.filter(|_| session.is_some());
            continue;
        }
        let is_woken = tokio::time::timeout(Duration::from_millis(IDLE_MS), wake.notified()).await.is_ok();
        sites.awake(&site);
        if is_woken {
            continue;
        }
        if let Some(session) = session.take() {
            end(&core, session).await;
        }
        if sites.leave(&site) {
            return;
        }
    }
    if let Some(session) = session {
        end(&core, session).await;
    }
}

fn is_spent(session: &Session) -> bool {
    session.asked >= ASKED_MAX || session.refused >= REFUSED_MAX
}

/// Ends a connection. Only this site's next question could wait for that, and another worker may take it.
async fn end(core: &Arc<Core>, session: Session) {
    let quit = session.quit(Some(&core.live));
    let _ = tokio::time::timeout(Duration::from_millis(IDLE_MS), quit).await;
}

/// Asks one question when its turn comes. `Break`: the worker has left the site.
async fn serve(
    core: &Arc<Core>,
    site: &Arc<str>,
    session: &mut Option<Session>,
    permit: &ConnectionPermit<'_>,
    question: CallAheadQuery,
) -> ControlFlow<()> {
    let (plan, settings) = (question.plan.clone(), question.settings.clone());
    let (config, clock, sites) = (&settings.config.call_ahead, &core.clock, &core.call_ahead.sites);
    let mut deadline = question.deadline;
    if permit.is_on_trial() {
        // Waiting for the place may have used up the deadline; a site that never gets to reply would stay on trial for
        // ever.
        deadline = deadline.max(clock.steady() + config.timeout_ms);
    }
    let Some(at) = sites.turn(site, config.questions_per_second_max, deadline, clock.steady()) else {
        core.limits.hit(Limit::CallAheadQuestions, clock.now());
        undecided(core, question, late(&settings));
        return ControlFlow::Continue(());
    };
    tokio::time::sleep_until(clock.steady_instant(at)).await;
    let context = SessionContext { settings: &settings, clock, live: Some(&core.live) };
    let names = question.names.clone();
    let heard = || {
        if permit.is_on_trial() {
            permit.pass();
            if let Some(wake) = sites.heard(site, clock.steady()) {
                start(core.clone(), site.clone(), wake);
            }
        }
    };
    let mut asked = Box::pin(ask(context, session, &plan.targets, &names, deadline, &heard));
    let (question, outcome) = if let Some(outcome) = in_time(context, deadline, &mut asked).await {
        (Some(question), outcome)
    } else {
        // A session is being opened: the next question needs it.
        undecided(core, question, late(&settings));
        (None, asked.await)
    };
    settle(core, site, question, outcome, config.failure_ttl_ms)
}

fn undecided(core: &Core, question: CallAheadQuery, words: ReasonTexts) {
    let CallAheadQuery { settings, ticket, .. } = question;
    ticket.answer(CallAheadResult::Undecided(words), &settings.config.call_ahead, core.clock.steady());
}

/// Answers a question with its outcome, if it is still open, and updates its site.
fn settle(
    core: &Core,
    site: &str,
    mut question: Option<CallAheadQuery>,
    outcome: Outcome,
    failure_ms: Ms,
) -> ControlFlow<()> {
    let (sites, now) = (&core.call_ahead.sites, core.clock.steady());
    let words = match outcome {
        Outcome::Said(answer) => {
            sites.replied(site, now);
            if let Some(CallAheadQuery { settings, ticket, .. }) = question {
                ticket.answer(answer, &settings.config.call_ahead, now);
            }
            return ControlFlow::Continue(());
        }
        Outcome::Unsaid(words) => {
            sites.unheard(site, now, &words);
            words
        }
        Outcome::Down(words) => match sites.fail(site, &mut question, &words, now, now + failure_ms) {
            FailureScope::Site(others) => {
                tracing::info!(site, "call-ahead failed: {}", words.log);
                for other in others.into_iter().chain(question) {
                    undecided(core, other, words.clone());
                }
                // The place goes to others; the next worker serves questions that arrived meanwhile.
                return if sites.leave(site) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            FailureScope::Worker => {
                tracing::info!(site, "call-ahead uses fewer connections: {}", words.log);
                return ControlFlow::Break(());
            }
            FailureScope::Question => words,
        },
    };
    if let Some(question) = question {
        undecided(core, question, words);
    }
    ControlFlow::Continue(())
}

/// The outcome of a question.
pub(super) enum Outcome {
    /// A host replied to it.
    Said(CallAheadResult),
    /// No host replied, for this reason, which does not affect other questions.
    Unsaid(ReasonTexts),
    /// No recipient can be asked about at this site, for this reason.
    Down(ReasonTexts),
}

/// Asks about a recipient until the deadline, over the current session or else over a new one with the first host that
/// opens one. Each host has its own time to do so.
pub(super) async fn ask(
    context: SessionContext<'_>,
    session: &mut Option<Session>,
    targets: &[Target],
    names: &Names,
    deadline: Ms,
    heard: ReplyCallback<'_>,
) -> Outcome {
    if let Some(mut kept) = session.take() {
        match in_time(context, deadline, put(context, &mut kept, names, heard)).await {
            Some(Ok(Ok(answer))) => {
                *session = Some(kept);
                return Outcome::Said(answer);
            }
            // The session may have been closed for being idle, or may not accept another sender.
            Some(_) => {}
            None => return Outcome::Unsaid(late(context.settings)),
        }
    }
    let failed = |target: &Target, why: &str| ReasonTexts::new(NOT_REACHED, format!("{target}: {}", short(why)));
    let (mut down, mut unsaid) = (ReasonTexts::plain(NOT_REACHED), None);
    for target in targets {
        let opened = in_time(context, context.clock.steady() + HOST_MS, Session::open(context, target)).await;
        let mut opened = match opened.unwrap_or_else(|| Err("no answer in time".to_owned())) {
            Ok(opened) => opened,
            Err(why) => {
                down = failed(target, &why);
                continue;
            }
        };
        let begun = context.clock.steady();
        if begun >= deadline {
            *session = Some(opened);
            return Outcome::Unsaid(late(context.settings));
        }
        match in_time(context, deadline, put(context, &mut opened, names, heard)).await {
            Some(Ok(said)) => {
                *session = Some(opened);
                return said.map_or_else(Outcome::Down, Outcome::Said);
            }
            Some(Err(error)) if opened.failed_at_mail(&error) => down = failed(target, &error.to_string()),
            Some(Err(error)) => unsaid = Some(failed(target, &error.to_string())),
            None if opened.is_silent() && deadline - begun >= HOST_MS => {
                return Outcome::Down(failed(target, "no reply to MAIL"));
            }
            None => return Outcome::Unsaid(late(context.settings)),
        }
    }
    unsaid.map_or(Outcome::Down(down), Outcome::Unsaid)
}

async fn in_time<T>(context: SessionContext<'_>, until: Ms, what: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(context.clock.steady_instant(until), what).await.ok()
}

/// Asks the question over a session. An error is the end of the session, if that came first.
async fn put(
    context: SessionContext<'_>,
    session: &mut Session,
    names: &Names,
    heard: ReplyCallback<'_>,
) -> Result<Result<CallAheadResult, ReasonTexts>, ClientError> {
    let address = names.at(session.target()).to_owned();
    let result = session.ask(context, &address, heard).await?;
    // The host is closing; this says nothing about the recipient.
    if result.reply.code == REPLY_CLOSING {
        return Err(ClientError::ServerClosing { at: "RCPT", reply: result.reply });
    }
    Ok(answer_of(session.target(), &result))
}
