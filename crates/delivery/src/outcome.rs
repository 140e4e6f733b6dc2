//! Converts the replies of a transaction to outcomes, for the store, the scheduler and the log.

use std::sync::Arc;

use stentor_core::assignment::Assignment;
use stentor_core::hub::Hub;
use stentor_mail::reply::Enhanced;
use stentor_queue::event::Fate;
use stentor_queue::ids::MessageNo;
use stentor_queue::idset::IdSet;
use stentor_sched::{RcptOutcome, SessionSoFar, Stage};
use stentor_smtp::client::{RcptResult, RcptStage};

fn stage(stage: RcptStage) -> Stage {
    match stage {
        RcptStage::Local => Stage::Content,
        RcptStage::Mail => Stage::Mail,
        RcptStage::Rcpt => Stage::Rcpt,
        RcptStage::Data => Stage::Data,
        RcptStage::Final => Stage::Final,
        RcptStage::Lost => Stage::Lost,
        RcptStage::AfterDot => Stage::LostAfterDot,
    }
}

/// Whether the code is the client's own, since no host sent one.
fn is_unanswered(stage: RcptStage) -> bool {
    matches!(stage, RcptStage::Lost | RcptStage::AfterDot)
}

/// Returns one outcome per recipient, in the order of the transaction.
pub fn outcomes(assignment: &Assignment, results: &[RcptResult]) -> Vec<RcptOutcome> {
    let outcomes = assignment.positions().zip(results).map(|(position, result)| RcptOutcome {
        id: assignment.id_at(position),
        stage: stage(result.stage),
        code: if is_unanswered(result.stage) { 0 } else { result.reply.code },
        dsn: result.reply.enhanced,
        text: result.reply.text.clone(),
    });
    assignment.with_settled(outcomes)
}

/// Returns the same outcome for all undecided recipients: the content could not be sent, or the session never took it.
pub fn same(assignment: &Assignment, stage: Stage, code: u16, dsn: Enhanced, text: &str) -> Vec<RcptOutcome> {
    let text: Arc<str> = text.into();
    let outcome = |id| RcptOutcome { id, stage, code, dsn: Some(dsn), text: text.clone() };
    assignment.with_settled(assignment.positions().map(|position| outcome(assignment.id_at(position))))
}

/// Records the recipients to which these outcomes delivered the message. Repeating it changes nothing.
pub fn delivered(hub: &mut Hub, no: MessageNo, outcomes: &[RcptOutcome], now: u64) {
    let delivered: IdSet =
        outcomes.iter().filter(|outcome| outcome.is_delivered()).map(|outcome| outcome.id.0).collect();
    hub.outcome(no, Fate::Delivered, &delivered, now);
}

/// Records deliveries, then passes everything to the scheduler.
pub fn apply(
    hub: &mut Hub,
    conn: stentor_queue::ids::ConnId,
    assignment: &Assignment,
    outcomes: &[RcptOutcome],
    session: SessionSoFar,
    now: u64,
) {
    hub.handed_back(assignment.len());
    if !outcomes.iter().all(RcptOutcome::is_delivered) {
        // The remaining recipients wait for a clock, perhaps for days: the content is reread from the journal then.
        hub.bodies.forget(assignment.content);
    }
    hub.remember(assignment.begun, outcomes, session, now);
    delivered(hub, assignment.no, outcomes, now);
    hub.sched.work_done(&hub.store, conn, assignment.work.tx, outcomes, now);
}
