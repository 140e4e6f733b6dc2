//! Results of a load: counts, times by step, errors by code and step, seconds. One per worker, then added up.

use std::collections::BTreeMap;

use stentor_measure::Histogram;

const NS_PER_S: u64 = 1_000_000_000;
/// Longer runs have their later seconds in the last row.
const SECONDS_MAX: usize = 7 * 24 * 3600;
const EXAMPLE_BYTES_MAX: usize = 120;

/// A command and its reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    Connect,
    Greeting,
    Ehlo,
    Starttls,
    /// From the first octet of ours to the last of it.
    Handshake,
    Mail,
    Rcpt,
    Data,
    /// From the end of the data (the write of its last octets) to its reply.
    Final,
    Rset,
    Quit,
}

impl Step {
    pub const ALL: [Step; 11] = [
        Step::Connect,
        Step::Greeting,
        Step::Ehlo,
        Step::Starttls,
        Step::Handshake,
        Step::Mail,
        Step::Rcpt,
        Step::Data,
        Step::Final,
        Step::Rset,
        Step::Quit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Step::Connect => "connect",
            Step::Greeting => "greeting",
            Step::Ehlo => "EHLO",
            Step::Starttls => "STARTTLS",
            Step::Handshake => "TLS handshake",
            Step::Mail => "MAIL",
            Step::Rcpt => "RCPT",
            Step::Data => "DATA",
            Step::Final => "end of data",
            Step::Rset => "RSET",
            Step::Quit => "QUIT",
        }
    }
}

/// Why something failed: the step, and the reply's code or what the connection did.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Failure {
    pub step: Step,
    pub what: FailureKind,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FailureKind {
    Code(u16),
    /// `connection refused`, `closed`, `timed out`.
    Connection(String),
}

/// How often, and the first reply of the kind.
#[derive(Clone, Default, Debug)]
pub struct Failed {
    pub count: u64,
    pub example: String,
}

/// One second of a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Second {
    /// Messages that work was begun on.
    pub begun: u64,
    pub accepted: u64,
    pub failed: u64,
    pub octets: u64,
    /// Sum and greatest, of the messages that were answered in this second.
    pub service_ns: u64,
    pub service_max_ns: u64,
    pub response_ns: u64,
    pub response_max_ns: u64,
    /// Messages that were due and not begun, at its end. With a rate alone.
    pub backlog: u64,
}

/// Times are nanoseconds.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Messages answered 2xx after their data.
    pub accepted: u64,
    /// Their recipients that were not refused.
    pub recipients: u64,
    /// Messages that were begun and not accepted.
    pub failed: u64,
    /// Begun and neither, when it was stopped.
    pub unfinished: u64,
    /// Due by the schedule and never begun.
    pub never_begun: u64,
    /// By the schedule.
    pub due: u64,
    /// Octets of accepted messages.
    pub octets: u64,
    pub sessions: u64,
    pub steps: [Histogram; Step::ALL.len()],
    /// From MAIL to the final reply.
    pub transaction: Histogram,
    /// From the moment that a connection was given to it (which may have to be opened) to the final reply.
    pub service: Histogram,
    /// From the scheduled arrival to the final reply; of messages that were never begun, to the end: the least that it
    /// would have been. With a rate alone.
    pub response: Histogram,
    /// How late messages were begun. With a rate alone.
    pub behind: Histogram,
    pub errors: BTreeMap<Failure, Failed>,
    pub seconds: Vec<Second>,
    /// CPU time of the threads that sent.
    pub cpu_s: f64,
    /// From the start (or the end of the warm-up) to the last reply.
    pub elapsed_s: f64,
    pub(super) warm_up_ns: u64,
    pub(super) last_ns: u64,
    /// What a worker has told its watchers.
    pub(super) reported: u64,
}

/// When a message was to come, was begun and said MAIL, in nanoseconds from the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub intended: Option<u64>,
    pub begun: u64,
    pub mail: u64,
}

impl Tally {
    pub(super) fn second(&mut self, now_ns: u64) -> &mut Second {
        let at = ((now_ns / NS_PER_S) as usize).min(SECONDS_MAX - 1);
        if at >= self.seconds.len() {
            self.seconds.resize(at + 1, Second::default());
        }
        &mut self.seconds[at]
    }

    fn is_counted(&mut self, now_ns: u64) -> bool {
        self.last_ns = self.last_ns.max(now_ns);
        now_ns >= self.warm_up_ns
    }

    pub(super) fn step(&mut self, step: Step, sent_ns: u64, now_ns: u64) {
        if self.is_counted(now_ns) {
            self.steps[step as usize].add(now_ns.saturating_sub(sent_ns));
        }
    }

    pub(super) fn begun(&mut self, intended_ns: Option<u64>, now_ns: u64) {
        self.second(now_ns).begun += 1;
        if let Some(intended) = intended_ns
            && now_ns >= self.warm_up_ns
        {
            self.behind.add(now_ns - intended);
        }
    }

    /// It was due, and is not begun any more: if it were left out, the slower the server, the better it would look.
    pub(super) fn never(&mut self, intended_ns: u64, now_ns: u64) {
        if now_ns >= self.warm_up_ns {
            let waited_ns = now_ns.saturating_sub(intended_ns);
            self.response.add(waited_ns);
            self.behind.add(waited_ns);
        }
    }

    pub(super) fn accepted(&mut self, times: Times, recipients: u32, octets: u64, now_ns: u64) {
        let service = now_ns.saturating_sub(times.begun);
        let response = times.intended.map(|intended| now_ns.saturating_sub(intended));
        let second = self.second(now_ns);
        second.accepted += 1;
        second.octets += octets;
        second.service_ns += service;
        second.service_max_ns = second.service_max_ns.max(service);
        second.response_ns += response.unwrap_or(0);
        second.response_max_ns = second.response_max_ns.max(response.unwrap_or(0));
        if self.is_counted(now_ns) {
            self.accepted += 1;
            self.recipients += u64::from(recipients);
            self.octets += octets;
            self.service.add(service);
            self.transaction.add(now_ns.saturating_sub(times.mail));
            if let Some(response) = response {
                self.response.add(response);
            }
        }
    }

    pub(super) fn failed(&mut self, now_ns: u64) {
        self.second(now_ns).failed += 1;
        if self.is_counted(now_ns) {
            self.failed += 1;
        }
    }

    pub(super) fn error(&mut self, step: Step, what: FailureKind, line: &[u8]) {
        let failed = self.errors.entry(Failure { step, what }).or_default();
        failed.count += 1;
        if failed.example.is_empty() {
            let text = String::from_utf8_lossy(&line[..line.len().min(EXAMPLE_BYTES_MAX)]);
            failed.example = text.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        }
    }

    /// Accepted messages per second: overall, and in the best second of the clock after the warm-up. The last second
    /// may not be a whole one, and then what came in it is the least that a whole one would have had.
    pub fn rates(&self) -> (f64, f64) {
        let overall = self.accepted as f64 / self.elapsed_s.max(1e-9);
        let counted = self.seconds.iter().skip(self.warm_up_ns.div_ceil(NS_PER_S) as usize);
        let peak = counted.map(|second| second.accepted).max().unwrap_or(0) as f64;
        (overall, peak.max(overall))
    }

    pub(super) fn merge(&mut self, other: &Tally) {
        self.accepted += other.accepted;
        self.recipients += other.recipients;
        self.failed += other.failed;
        self.unfinished += other.unfinished;
        self.never_begun += other.never_begun;
        self.due += other.due;
        self.octets += other.octets;
        self.sessions += other.sessions;
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            mine.merge(theirs);
        }
        self.transaction.merge(&other.transaction);
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        self.behind.merge(&other.behind);
        for (failure, failed) in &other.errors {
            let mine = self.errors.entry(failure.clone()).or_default();
            mine.count += failed.count;
            if mine.example.is_empty() {
                mine.example.clone_from(&failed.example);
            }
        }
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Second::default());
        }
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.merge(theirs);
        }
        self.cpu_s += other.cpu_s;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.warm_up_ns = self.warm_up_ns.max(other.warm_up_ns);
    }
}

impl Second {
    fn merge(&mut self, other: &Second) {
        self.begun += other.begun;
        self.accepted += other.accepted;
        self.failed += other.failed;
        self.octets += other.octets;
        self.service_ns += other.service_ns;
        self.service_max_ns = self.service_max_ns.max(other.service_max_ns);
        self.response_ns += other.response_ns;
        self.response_max_ns = self.response_max_ns.max(other.response_max_ns);
        self.backlog += other.backlog;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_best_second_after_the_warm_up() {
        let mut tally = Tally { warm_up_ns: NS_PER_S / 2, ..Tally::default() };
        // 9 while it warms up, then 3, 0, 5 in a second that is not whole.
        for (second, messages) in [(0, 9), (1, 3), (3, 5)] {
            let times = Times { intended: None, begun: 0, mail: 0 };
            (0..messages).for_each(|_| tally.accepted(times, 1, 1, second * NS_PER_S + NS_PER_S / 4));
        }
        let mut all = Tally::default();
        all.merge(&tally);
        all.elapsed_s = 2.75;
        assert_eq!(all.accepted, 8);
        assert!((all.rates().1 - 5.0).abs() < 1e-9, "{:?}", all.rates());
    }
}
