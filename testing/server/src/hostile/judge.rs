//! Checks that a case had its specified outcome, within the limits.

use std::collections::HashMap;

use super::{Case, End, Mail};

/// Connections to a host within its first 10 s, and within any 10 s later, for one message; each further message may
/// cost one.
const FIRST_MAX: usize = 4;
const LATER_MAX: usize = 2;
const WINDOW_MS: u64 = 10_000;
/// For one message at one host.
const LOG_BYTES_MAX: usize = 16 << 10;

/// An attempt of one recipient, as the log has it.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    pub mx: String,
    pub stat: String,
    pub reply: String,
}

impl std::fmt::Display for Attempt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at {}: {}", self.stat, self.mx, self.reply)
    }
}

/// What a run has left behind, by case where nothing else is said.
pub(super) struct RunEvidence {
    /// When connections to the hostile host came, milliseconds.
    pub visits: Vec<Vec<u64>>,
    /// When connections to it did not come about, by the server's log.
    pub unmet: Vec<Vec<u64>>,
    pub log_bytes: Vec<usize>,
    /// Queue id, Message-ID, recipients.
    pub posted: Vec<Vec<(String, String, Vec<String>)>>,
    /// Hosts that took a copy, by Message-ID and recipient.
    pub copies: HashMap<(String, String), Vec<u32>>,
    /// By queue id and recipient.
    pub attempts: HashMap<(String, String), Vec<Attempt>>,
    /// The next try of recipients that wait.
    pub waiting: HashMap<String, Option<u64>>,
    pub now_ms: u64,
    /// Breaches of protocol, which only hosts that behave report.
    pub violations: Vec<Vec<String>>,
}

impl RunEvidence {
    pub fn new(cases: usize) -> RunEvidence {
        RunEvidence {
            visits: vec![Vec::new(); cases],
            unmet: vec![Vec::new(); cases],
            log_bytes: vec![0; cases],
            posted: vec![Vec::new(); cases],
            copies: HashMap::new(),
            attempts: HashMap::new(),
            waiting: HashMap::new(),
            now_ms: 0,
            violations: vec![Vec::new(); cases],
        }
    }
}

/// What is to be said of a case.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub case: String,
    pub receiver: String,
    pub messages: usize,
    /// Most connections in the first 10 s, in any later 10 s, beyond those that each of its deliveries and further
    /// messages may have.
    pub first: usize,
    pub later: usize,
    pub log_bytes: usize,
    /// Empty: it went as documented.
    pub problems: Vec<String>,
}

pub(super) fn judge(no: usize, case: &Case, evidence: &RunEvidence) -> Verdict {
    let mut times =
        if evidence.visits[no].is_empty() { evidence.unmet[no].clone() } else { evidence.visits[no].clone() };
    times.sort_unstable();
    let begin = times.first().copied().unwrap_or_default();
    let first = times.iter().filter(|at| **at < begin + WINDOW_MS).count();
    let later: Vec<u64> = times.iter().copied().filter(|at| *at >= begin + WINDOW_MS).collect();
    let within = |from: u64| later.iter().filter(|at| (from..from + WINDOW_MS).contains(at)).count();
    let later = later.iter().map(|at| within(*at)).max().unwrap_or_default();
    let posted = &evidence.posted[no];
    let mut problems = evidence.violations[no].clone();
    let mut further = posted.len() - 1;
    // Each of its connections delivers, and over SMTP the content goes to that recipient alone.
    if case.receiver.mail == Mail::Many && !case.lmtp {
        further += posted.iter().map(|(_, _, to)| to.len()).sum::<usize>();
    }
    if first > FIRST_MAX + further || later > LATER_MAX + further {
        problems.push(format!("{first} connections in the first 10 s, {later} in 10 s later"));
    }
    if evidence.log_bytes[no] > LOG_BYTES_MAX * posted.len() {
        problems.push(format!("{} octets of log", evidence.log_bytes[no]));
    }
    if times.is_empty() {
        problems.push("the host was never tried".to_owned());
    }
    for (queue_id, message_id, to) in posted {
        for to in to {
            let local = to.split_once('@').map_or("", |(local, _)| local);
            let end = case.end_of(local);
            if let Err(why) = check(end, case, (queue_id, message_id, to), evidence) {
                problems.push(format!("{local}: not {end:?}: {why}"));
            }
        }
    }
    problems.sort();
    problems.dedup();
    problems.truncate(4);
    Verdict {
        case: case.name(),
        receiver: case.receiver.id.clone(),
        messages: posted.len(),
        first: first.saturating_sub(further),
        later: later.saturating_sub(further),
        log_bytes: evidence.log_bytes[no],
        problems,
    }
}

fn check(end: End, case: &Case, mail: (&str, &str, &str), evidence: &RunEvidence) -> Result<(), String> {
    let (hosts, is_one_of_many) = (case.hosts, case.messages > 1);
    let (queue_id, message_id, to) = mail;
    let attempts = evidence.attempts.get(&(queue_id.to_owned(), to.to_owned()));
    let last = attempts.and_then(|attempts| attempts.last());
    let stat = last.map_or("", |attempt| attempt.stat.as_str());
    let copies = evidence.copies.get(&(message_id.to_owned(), to.to_owned())).map_or(&[][..], Vec::as_slice);
    let next_try = evidence.waiting.get(to).copied();
    let what = || {
        let last = last.map_or("no attempt".to_owned(), Attempt::to_string);
        let next = next_try
            .map(|next| next.map(|at| i64::try_from(at).unwrap_or(0) - i64::try_from(evidence.now_ms).unwrap_or(0)));
        format!("{last}; copies at hosts {copies:?}; next try in {next:?} ms")
    };
    // A later message may still wait for the same mailbox, so that waiting is asked of those alone whose end it is.
    let sent =
        |host: u32| stat == "Sent" && copies == [host] && last.is_some_and(|a| a.mx == format!("mx{}", host + 1));
    let waits = stat != "Sent" && stat != "Bounced" && next_try.flatten().is_some_and(|at| at > evidence.now_ms);
    let returned = stat == "Bounced" && copies.is_empty();
    let fine = match (end, hosts) {
        (End::Taken, _) => sent(0),
        (End::Again, hosts) => sent(0) || hosts == 2 && sent(1),
        (End::Next | End::NextOrReturned, 2) => sent(1),
        (End::NextOrReturned | End::Returned, _) => returned,
        (End::Next | End::Waits | End::Unsure, _) => waits && copies.is_empty(),
        (End::Dealt, _) => sent(0) || waits && copies.is_empty(),
        (End::UnsureKept, _) => waits && copies.iter().all(|host| *host == 0) && !copies.is_empty(),
    };
    // Of many messages some never meet the host, as it has failed before, or stood behind one whose connection was
    // lost.
    let fine = fine || is_one_of_many && (waits || hosts == 2 && sent(1));
    if fine { Ok(()) } else { Err(what()) }
}
