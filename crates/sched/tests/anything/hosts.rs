//! Hosts that answer anything. A reply is drawn anew each time; or it depends on the message or recipient, which always
//! gets the same one; or a number of transactions of each connection succeed first. At random times a host changes its
//! behaviour, and in most worlds it ends as a good host.

use stentor_mail::reply::Enhanced;
use stentor_queue::ids::{AddressId, Ms};
use stentor_sched::{CloseReason, NoSession, RcptOutcome, Stage, Work};

const CODES: [u16; 28] = [
    0, 200, 220, 250, 251, 252, 299, 354, 399, 421, 450, 451, 452, 454, 455, 499, 500, 501, 503, 521, 530, 550, 551,
    552, 553, 554, 556, 599,
];
const TEXTS: [&str; 8] = [
    "",
    "later",
    "rate limited",
    "too many recipients",
    "mailbox full",
    "too many messages in this session",
    "too many messages",
    "please reconnect",
];
const DSNS: [Option<Enhanced>; 9] = [
    None,
    Some(Enhanced::new(2, 0, 0)),
    Some(Enhanced::new(4, 2, 2)),
    Some(Enhanced::new(4, 5, 3)),
    Some(Enhanced::new(4, 7, 1)),
    Some(Enhanced::new(5, 1, 1)),
    Some(Enhanced::new(5, 2, 2)),
    Some(Enhanced::new(5, 5, 3)),
    Some(Enhanced::new(5, 3, 2)),
];

/// How a session begins.
#[derive(Clone, Copy, Debug)]
pub enum Welcome {
    Session,
    None(NoSession),
}

/// One reply to one recipient.
type RecipientReply = (Stage, u16, Option<Enhanced>, &'static str);

#[derive(Clone, Copy, Debug)]
enum Manner {
    Good,
    /// Each reply is drawn at random.
    Random,
    /// Everybody gets the same reply.
    Same(RecipientReply),
    /// One message in this many gets the reply; the others are delivered.
    Message(u64, RecipientReply),
    /// One recipient in this many gets the reply.
    Recipient(u32, RecipientReply),
    /// This many transactions of a connection are delivered; the next one gets the reply.
    After(u32, RecipientReply),
    /// This many recipients of a transaction are delivered; the others get the reply.
    Deals(usize, RecipientReply),
    /// No connection gets a session.
    Refuses(NoSession),
    /// Each session is closed at once.
    Slams,
}

pub struct Host {
    manner: Manner,
    next: Vec<(Ms, Manner)>,
    /// Whether replies come without delay.
    is_instant: bool,
}

fn said(rng: &mut fastrand::Rng) -> RecipientReply {
    let stage = match rng.u32(0..20) {
        0..4 => Stage::Mail,
        4..10 => Stage::Rcpt,
        10..12 => Stage::Data,
        12..16 => Stage::Final,
        16 | 17 => Stage::Lost,
        18 => Stage::LostAfterDot,
        _ => Stage::Content,
    };
    // Codes that large receivers use are more frequent than the others.
    let code =
        if rng.bool() { [421, 450, 451, 452, 552, 550][rng.usize(0..6)] } else { CODES[rng.usize(0..CODES.len())] };
    let text = TEXTS[rng.usize(0..TEXTS.len())];
    match stage {
        Stage::Lost | Stage::LostAfterDot | Stage::Content => (stage, 0, None, text),
        _ => (stage, code, DSNS[rng.usize(0..DSNS.len())], text),
    }
}

/// A host that leaves after the data: 421 or no reply at all.
fn leaves(rng: &mut fastrand::Rng) -> RecipientReply {
    [(Stage::Final, 421, None, "closing"), (Stage::Lost, 0, None, "reset"), (Stage::LostAfterDot, 0, None, "reset")]
        [rng.usize(0..3)]
}

fn no_session(rng: &mut fastrand::Rng) -> NoSession {
    match rng.u32(0..5) {
        0 => NoSession::Unreachable,
        4 => NoSession::Tls,
        1 => NoSession::Failed,
        2 => NoSession::Reply { code: [421, 521, 554, 450][rng.usize(0..4)], dsn: None },
        _ => NoSession::Reply { code: CODES[rng.usize(1..CODES.len())], dsn: DSNS[rng.usize(0..DSNS.len())] },
    }
}

fn manner(rng: &mut fastrand::Rng) -> Manner {
    match rng.u32(0..18) {
        0 | 1 => Manner::Good,
        2..5 => Manner::Random,
        5..8 => Manner::Same(said(rng)),
        8 | 9 => Manner::Message(rng.u64(1..4), said(rng)),
        10 | 11 => Manner::Recipient(rng.u32(1..4), said(rng)),
        12 | 13 => Manner::After(rng.u32(0..4), said(rng)),
        14 => Manner::Refuses(no_session(rng)),
        15 | 16 => Manner::Deals(rng.usize(1..3), leaves(rng)),
        _ => Manner::Slams,
    }
}

impl Host {
    /// Creates a host that becomes good at `good_at`.
    pub fn new(rng: &mut fastrand::Rng, start: Ms, good_at: Ms) -> Host {
        let mut next: Vec<(Ms, Manner)> = (0..rng.usize(0..4))
            .map(|_| {
                let within = if rng.bool() { 60_000 } else { 4 * 3_600_000 };
                (start + rng.u64(1..within), manner(rng))
            })
            .filter(|(at, _)| *at < good_at)
            .collect();
        next.push((good_at, Manner::Good));
        next.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        Host { manner: manner(rng), next, is_instant: rng.u32(0..3) == 0 }
    }

    fn at(&mut self, now: Ms) -> Manner {
        while let Some((_, manner)) = self.next.pop_if(|(at, _)| *at <= now) {
            self.manner = manner;
        }
        self.manner
    }

    pub fn delay_ms(&mut self, rng: &mut fastrand::Rng) -> Ms {
        match rng.u32(0..40) {
            _ if self.is_instant => 0,
            0 => rng.u64(1..120_000),
            _ => rng.u64(0..300),
        }
    }

    pub fn welcome(&mut self, now: Ms, rng: &mut fastrand::Rng) -> Welcome {
        match self.at(now) {
            Manner::Refuses(why) => Welcome::None(why),
            Manner::Random if rng.u32(0..3) == 0 => Welcome::None(no_session(rng)),
            _ => Welcome::Session,
        }
    }

    /// Whether and why the connection is closed although no command was sent.
    pub fn slams(&mut self, now: Ms, rng: &mut fastrand::Rng) -> Option<CloseReason> {
        match self.at(now) {
            Manner::Slams => Some(close(rng)),
            Manner::Random if rng.u32(0..8) == 0 => Some(close(rng)),
            _ => None,
        }
    }

    /// The host's answer to a transaction: one outcome per recipient or fewer, and whether the connection ends with it.
    pub fn answer(
        &mut self,
        work: &Work,
        message: u64,
        done: u32,
        now: Ms,
        rng: &mut fastrand::Rng,
    ) -> (Vec<RcptOutcome>, Option<CloseReason>) {
        let manner = self.at(now);
        let good: RecipientReply = (Stage::Final, 250, None, "ok");
        let one = said(rng);
        let mut outcomes: Vec<RcptOutcome> = Vec::new();
        for (at, id) in work.ids.iter().enumerate() {
            let (stage, code, dsn, text) = match manner {
                Manner::Random if rng.u32(0..4) == 0 => good,
                Manner::Random if rng.bool() => one,
                Manner::Random => said(rng),
                Manner::Same(said) => said,
                Manner::Message(n, said) if message.is_multiple_of(n) => said,
                Manner::Recipient(n, said) if id.0.is_multiple_of(n) => said,
                Manner::After(n, said) if done > n => said,
                Manner::Deals(n, said) if at >= n => said,
                _ => good,
            };
            outcomes.push(RcptOutcome { id: *id, stage, code, dsn, text: text.into() });
        }
        // 421 ends the session and the connection, also for recipients without a final reply.
        let fatal = |o: &RcptOutcome| o.code == 421 || matches!(o.stage, Stage::Lost | Stage::LostAfterDot);
        let end = outcomes.iter().position(fatal);
        let why = end.map(|at| {
            let last = outcomes[at].clone();
            for outcome in &mut outcomes[at..] {
                *outcome = RcptOutcome { id: outcome.id, ..last.clone() };
            }
            if last.code == 421 {
                CloseReason::Refused { text: last.text }
            } else {
                CloseReason::Lost { text: last.text }
            }
        });
        let is_random = matches!(manner, Manner::Random);
        if is_random && rng.u32(0..10) == 0 {
            outcomes.truncate(rng.usize(0..=outcomes.len()));
        }
        (outcomes, why.or_else(|| (is_random && rng.u32(0..6) == 0).then(|| close(rng))))
    }

    /// Outcomes of a transaction that was open behind the one that ended the connection.
    pub fn left_open(why: &CloseReason, work: &Work, rng: &mut fastrand::Rng) -> Vec<RcptOutcome> {
        let (stage, code) = match why {
            CloseReason::Refused { .. } => (Stage::Mail, 421),
            _ if rng.bool() => (Stage::Lost, 0),
            _ => (Stage::LostAfterDot, 0),
        };
        let one = |id: &AddressId| RcptOutcome { id: *id, stage, code, dsn: None, text: "gone".into() };
        if rng.u32(0..4) == 0 { Vec::new() } else { work.ids.iter().map(one).collect() }
    }
}

fn close(rng: &mut fastrand::Rng) -> CloseReason {
    match rng.u32(0..2) {
        0 => CloseReason::Refused { text: TEXTS[rng.usize(0..TEXTS.len())].into() },
        _ => CloseReason::Lost { text: "reset".into() },
    }
}
