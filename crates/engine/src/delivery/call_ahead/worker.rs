//! A worker of a site: takes questions out of its line and puts them over one connection, which it opens when there is one to put.
//!
//! States: waiting for a place among all connections -> asking -> idle (the connection is kept for [`IDLE_MS`]) -> ended.
//!
//! Failure: a connection that is lost is replaced once for the question at hand; if no host of the site opens a session, or the sender is
//! refused, the site is left alone for `failure_ttl_s`, and all in its line hear why.

use std::sync::Arc;
use std::time::Duration;

use stentor_mail::client::ClientError;
use stentor_queue::ids::Ms;
use stentor_queue::site::Target;
use tokio::sync::Notify;

use super::session::{Engine, Session};
use super::{answer_of, late, short};
use crate::core::Core;
use crate::core::call_ahead::{Answer, Question, Words};
use crate::core::limits::Limit;

/// How long a connection without questions is kept.
const IDLE_MS: u64 = 2_000;
/// Questions over one connection, and refusals: Postfix slows a client down after ten errors, and closes after twenty.
const ASKED_MAX: u32 = 100;
const REFUSED_MAX: u32 = 8;
/// Time for one host while others are left.
const HOST_MS_MAX: Ms = 10_000;
const NOT_REACHED: &str = "its mail server cannot be reached";
const REPLY_CLOSING: u16 = 421;

/// Serves a site until nobody asks any more.
pub(super) async fn work(core: Arc<Core>, site: Arc<str>, wake: Arc<Notify>) {
    // The semaphore is never closed.
    let _place = core.call_ahead.connections.acquire().await;
    let sites = &core.call_ahead.sites;
    let mut session: Option<Session> = None;
    loop {
        if let Some(question) = sites.next(&site) {
            if let Some(spent) = session.take_if(|session| is_spent(session)) {
                end(&core, spent).await;
            }
            serve(&core, &site, &mut session, question).await;
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
}

fn is_spent(session: &Session) -> bool {
    session.asked >= ASKED_MAX || session.refused >= REFUSED_MAX
}

/// Nobody waits for the end of a connection, but this site's next question, which another worker may take.
async fn end(core: &Arc<Core>, session: Session) {
    let quit = session.quit(Some(&core.live));
    let _ = tokio::time::timeout(Duration::from_millis(IDLE_MS), quit).await;
}

/// Puts one question when its turn comes.
async fn serve(core: &Arc<Core>, site: &str, session: &mut Option<Session>, question: Question) {
    let Question { address, plan, settings, ticket, deadline } = question;
    let (sites, config, clock) = (&core.call_ahead.sites, &settings.config.call_ahead, &core.clock);
    let Some(at) = sites.turn(site, config.questions_per_second_max, deadline, clock.steady()) else {
        core.limits.hit(Limit::CallAheadQuestions, clock.now());
        return ticket.answer(Answer::Undecided(late(&settings)), config, clock.steady());
    };
    tokio::time::sleep_until(clock.steady_instant(at)).await;
    let engine = Engine { settings: &settings, clock, live: Some(&core.live) };
    let asked = answer(engine, session, &plan.targets, &address, deadline).await;
    let now = clock.steady();
    match asked {
        Ok(found) => {
            sites.recover(site);
            ticket.answer(found, config, now);
        }
        Err(words) => {
            tracing::info!(site, "recipients cannot be asked for: {}", words.log);
            for other in sites.fail(site, now + config.failure_ttl_ms, &words) {
                other.ticket.answer(Answer::Undecided(words.clone()), config, now);
            }
            ticket.answer(Answer::Undecided(words), config, now);
        }
    }
}

/// Asks about a recipient, over the session that there is, else over a new one with the first host that opens one. `Err`: nobody at this
/// site can be asked for, for this reason.
pub(super) async fn answer(
    engine: Engine<'_>,
    session: &mut Option<Session>,
    targets: &[Target],
    address: &str,
    deadline: Ms,
) -> Result<Answer, Words> {
    if let Some(mut kept) = session.take() {
        let asked = in_time(engine, deadline, put(engine, &mut kept, address)).await;
        match asked {
            // It may have been closed for being idle.
            Some(Err(_)) => {}
            Some(Ok(answer)) => {
                *session = Some(kept);
                return answer;
            }
            None => return Ok(Answer::Undecided(late(engine.settings))),
        }
    }
    let mut words = Words::plain(NOT_REACHED);
    for (n, target) in targets.iter().enumerate() {
        let left = deadline.saturating_sub(engine.clock.steady());
        let is_last = n + 1 == targets.len();
        let until = engine.clock.steady() + if is_last { left } else { HOST_MS_MAX.min(left / 2) };
        let fresh = async {
            let mut opened = Session::open(engine, target).await?;
            let answer = put(engine, &mut opened, address).await.map_err(|error| error.to_string())?;
            Ok::<_, String>((opened, answer))
        };
        match in_time(engine, until, fresh).await {
            Some(Ok((opened, answer))) => {
                *session = Some(opened);
                return answer;
            }
            Some(Err(why)) => words = Words::new(NOT_REACHED, format!("{target}: {}", short(&why))),
            None => words = Words::new(NOT_REACHED, format!("{target}: no answer in time")),
        }
    }
    Err(words)
}

async fn in_time<T>(engine: Engine<'_>, until: Ms, what: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout_at(engine.clock.steady_instant(until), what).await.ok()
}

/// Puts the question over a session; its end if that came first.
async fn put(engine: Engine<'_>, session: &mut Session, address: &str) -> Result<Result<Answer, Words>, ClientError> {
    let result = session.ask(engine.live, &engine.settings.config.call_ahead.sender, address).await?;
    // The host closes: of the recipient it says nothing.
    if result.reply.code == REPLY_CLOSING {
        return Err(ClientError::ServerClosing { at: "RCPT", reply: result.reply });
    }
    Ok(answer_of(&session.target, &result))
}
