//! One session of a source, without I/O: replies in, octets out.
//!
//! States: `waiting` has the expected replies, oldest first; when it is empty and the session is open, the next message
//! may begin. A message whose MAIL or all of whose recipients were refused is abandoned with RSET, or with an empty
//! body if the server sent 354 to a pipelined DATA regardless (RFC 2920 3.1). Nothing is allocated per message: buffers
//! keep their capacity.

use std::collections::VecDeque;
use std::io::{IoSlice, Write as _};

use super::content::Body;
use super::people::Choice;
use super::plan::{Pipelining, Plan};
use super::tally::{FailureKind, Step, Tally, Times};
use super::wire::Tls;

/// A message that is to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub number: u64,
    pub intended_ns: Option<u64>,
    pub begun_ns: u64,
}

/// Where further messages come from.
pub(super) trait Feed {
    fn next(&mut self, now_ns: u64, tally: &mut Tally) -> Option<Job>;
}

/// What a client needs while it handles a reply.
pub(super) struct Context<'a, F> {
    pub plan: &'a Plan,
    pub tally: &'a mut Tally,
    pub feed: &'a mut F,
    pub now_ns: u64,
}

/// What is to be done after a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// More replies are on their way.
    Wait,
    /// The handshake is to begin.
    Secure,
    /// The next message may begin.
    Ready,
    /// The session is over: its connection is to be closed.
    Close,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    job: Job,
    mail_ns: u64,
    recipients: u32,
    /// Of those how many have been asked for and taken.
    asked: u32,
    good: u32,
    choice: Choice,
    octets: u64,
    /// An error has been counted for the message itself.
    refused: bool,
    /// The empty body of a message that has no recipients.
    void: bool,
}

/// Octets on their way: commands, a body, commands behind it.
#[derive(Default, Debug)]
pub(super) struct Outgoing {
    head: Vec<u8>,
    body: Body,
    after: Vec<u8>,
    written: usize,
}

#[derive(Default, Debug)]
pub(super) struct Client {
    waiting: VecDeque<(Step, u64)>,
    pub out: Outgoing,
    pipelining: bool,
    chunking: bool,
    eight_bit: bool,
    starttls: bool,
    is_greeted: bool,
    is_secured: bool,
    said_helo: bool,
    current: Option<Current>,
    ahead: Option<Current>,
    /// Waits for the session to begin.
    pending: Option<Job>,
    /// Messages begun in this session.
    pub messages: u64,
    scratch: Vec<u8>,
}

impl Client {
    /// A new session on a connection that is being made, for this message.
    pub fn reset(&mut self, job: Option<Job>) {
        self.waiting.clear();
        self.out.clear();
        self.current = None;
        self.ahead = None;
        self.pending = job;
        self.messages = 0;
        self.said_helo = false;
        (self.is_greeted, self.is_secured) = (false, false);
        self.forget_offers();
    }

    fn forget_offers(&mut self) {
        (self.pipelining, self.chunking, self.eight_bit, self.starttls) = (false, false, false, false);
    }

    pub fn connected(&mut self, plan: &Plan, now_ns: u64) {
        let first = if plan.tls == Tls::Implicit { Step::Handshake } else { Step::Greeting };
        self.waiting.push_back((first, now_ns));
    }

    /// The handshake is over: what was offered in clear is forgotten (RFC 3207 section 4.2).
    pub fn secured(&mut self, tally: &mut Tally, now_ns: u64) {
        if let Some((step, since_ns)) = self.waiting.pop_front() {
            tally.step(step, since_ns, now_ns);
        }
        self.is_secured = true;
        self.forget_offers();
        if self.is_greeted {
            self.command(b"EHLO source.lab\r\n", Step::Ehlo, now_ns);
        } else {
            self.waiting.push_back((Step::Greeting, now_ns));
        }
    }

    /// The step whose reply is waited for.
    pub fn waits_for(&self) -> Option<Step> {
        self.waiting.front().map(|(step, _)| *step)
    }

    /// Messages that were given to this session and have no answer: they fail with it.
    pub fn open_messages(&self) -> u64 {
        u64::from(self.current.is_some()) + u64::from(self.ahead.is_some()) + u64::from(self.pending.is_some())
    }

    /// Whether this session may take another message.
    pub fn may_go_on(&self, plan: &Plan) -> bool {
        plan.messages_per_session.is_none_or(|most| self.messages < most)
    }

    pub fn quit(&mut self, now_ns: u64) {
        self.command(b"QUIT\r\n", Step::Quit, now_ns);
    }

    /// A message's first commands. The session is ready.
    pub fn begin(&mut self, plan: &Plan, job: Job, now_ns: u64) {
        let mut current = self.start(plan, job, now_ns);
        if plan.rset && self.messages > 1 {
            self.command(b"RSET\r\n", Step::Rset, now_ns);
            if !self.pipelining {
                self.current = Some(current);
                return;
            }
        }
        self.mail(plan, &mut current, now_ns, false);
        self.current = Some(current);
        if self.pipelining && self.chunking {
            self.content(plan, now_ns);
        }
    }

    fn start(&mut self, plan: &Plan, job: Job, now_ns: u64) -> Current {
        self.messages += 1;
        let recipients = plan.recipients_per_message.of(plan.seed, job.number);
        let choice = plan.people.choose(plan.seed, job.number, recipients);
        Current { job, mail_ns: now_ns, recipients, asked: 0, good: 0, choice, octets: 0, refused: false, void: false }
    }

    fn command(&mut self, line: &[u8], step: Step, now_ns: u64) {
        self.out.head.extend_from_slice(line);
        self.waiting.push_back((step, now_ns));
    }

    /// MAIL, and with pipelining all that may follow it; behind the body if it is for the next message.
    fn mail(&mut self, plan: &Plan, current: &mut Current, now_ns: u64, is_ahead: bool) {
        let out = if is_ahead { &mut self.out.after } else { &mut self.out.head };
        let has_8bit = self.eight_bit && plan.content.has_8bit(current.job.number);
        out.extend_from_slice(b"MAIL FROM:<");
        out.extend_from_slice(plan.sender.as_bytes());
        out.extend_from_slice(if has_8bit { b"> BODY=8BITMIME\r\n" } else { b">\r\n" });
        self.waiting.push_back((Step::Mail, now_ns));
        if !self.pipelining {
            return;
        }
        for k in 0..current.recipients {
            rcpt(plan, current.choice, k, out);
            self.waiting.push_back((Step::Rcpt, now_ns));
        }
        current.asked = current.recipients;
        if !self.chunking {
            out.extend_from_slice(b"DATA\r\n");
            self.waiting.push_back((Step::Data, now_ns));
        }
    }

    /// The message itself, by BDAT or after 354.
    fn content(&mut self, plan: &Plan, now_ns: u64) {
        let Some(current) = &mut self.current else { return };
        let number = current.job.number;
        if self.chunking {
            self.scratch.clear();
            let (body, octets) = plan.content.put(plan.seed, number, false, &mut self.scratch);
            // Writing to a Vec cannot fail.
            let _ = write!(self.out.head, "BDAT {octets} LAST\r\n");
            self.out.head.extend_from_slice(&self.scratch);
            self.out.body = body;
            current.octets = octets as u64;
        } else {
            let (body, octets) = plan.content.put(plan.seed, number, true, &mut self.out.head);
            self.out.body = body;
            current.octets = octets as u64;
        }
        self.waiting.push_back((Step::Final, now_ns));
    }

    /// All of the output has been written only now: the final reply is waited for from here on.
    pub fn written_late(&mut self, now_ns: u64) {
        for (step, sent) in &mut self.waiting {
            if *step == Step::Final {
                *sent = now_ns;
            }
        }
    }

    /// A line of EHLO's reply.
    pub fn offer(&mut self, plan: &Plan, line: &[u8]) {
        let word = line.get(4..).unwrap_or_default().trim_ascii();
        self.pipelining |= word.eq_ignore_ascii_case(b"PIPELINING") && plan.pipelining != Pipelining::Off;
        self.chunking |= word.eq_ignore_ascii_case(b"CHUNKING") && plan.chunking;
        self.starttls |= word.eq_ignore_ascii_case(b"STARTTLS");
        self.eight_bit |= word.eq_ignore_ascii_case(b"8BITMIME");
    }

    /// A whole reply; `line` is its last line.
    pub fn reply<F: Feed>(&mut self, code: u16, line: &[u8], context: &mut Context<'_, F>) -> Turn {
        let Some((step, sent_ns)) = self.waiting.pop_front() else {
            // It speaks unasked, which is 421 before it closes.
            context.tally.error(Step::Rset, FailureKind::Code(code), line);
            return Turn::Close;
        };
        context.tally.step(step, sent_ns, context.now_ns);
        let is_good = code / 100 == 2 || (step == Step::Data && code == 354);
        let is_asked_again = step == Step::Ehlo && !self.said_helo;
        if !is_good && !is_asked_again && !self.hopeless(step) {
            context.tally.error(step, FailureKind::Code(code), line);
        }
        if code == 421 && step != Step::Quit {
            return Turn::Close;
        }
        match step {
            Step::Connect => Turn::Wait,
            Step::Greeting if is_good => {
                self.is_greeted = true;
                self.say(b"EHLO source.lab\r\n", Step::Ehlo, context.now_ns)
            }
            Step::Starttls if is_good => {
                self.waiting.push_back((Step::Handshake, context.now_ns));
                Turn::Secure
            }
            Step::Ehlo => self.after_ehlo(is_good, context),
            Step::Mail => self.after_mail(is_good, context),
            Step::Rcpt => self.after_rcpt(is_good, context),
            Step::Data => self.after_data(is_good, context),
            Step::Final => self.after_final(is_good, context),
            Step::Rset => self.after_rset(is_good, context),
            Step::Greeting | Step::Starttls | Step::Handshake | Step::Quit => Turn::Close,
        }
    }

    /// What is refused after the message as a whole is no error of its own.
    fn hopeless(&self, step: Step) -> bool {
        matches!(step, Step::Rcpt | Step::Data | Step::Final) && self.current.is_some_and(|c| c.refused)
    }

    fn say(&mut self, line: &[u8], step: Step, now_ns: u64) -> Turn {
        self.command(line, step, now_ns);
        Turn::Wait
    }

    fn after_ehlo<F: Feed>(&mut self, is_good: bool, context: &mut Context<'_, F>) -> Turn {
        if !is_good && !self.said_helo {
            self.said_helo = true;
            return self.say(b"HELO source.lab\r\n", Step::Ehlo, context.now_ns);
        }
        if !is_good {
            return Turn::Close;
        }
        if context.plan.tls == Tls::Starttls && !self.is_secured {
            if self.starttls {
                return self.say(b"STARTTLS\r\n", Step::Starttls, context.now_ns);
            }
            context.tally.error(Step::Starttls, FailureKind::Connection("not offered".to_owned()), b"");
            return Turn::Close;
        }
        match self.pending.take() {
            None => Turn::Ready,
            Some(job) if context.plan.greets_only => {
                self.messages += 1;
                let times = Times { intended: job.intended_ns, begun: job.begun_ns, mail: context.now_ns };
                context.tally.accepted(times, 0, 0, context.now_ns);
                Turn::Ready
            }
            Some(job) => {
                self.begin(context.plan, job, context.now_ns);
                Turn::Wait
            }
        }
    }

    fn after_mail<F: Feed>(&mut self, is_good: bool, context: &mut Context<'_, F>) -> Turn {
        let Some(current) = &mut self.current else { return Turn::Close };
        current.refused |= !is_good;
        match (is_good, self.pipelining) {
            (_, true) => Turn::Wait,
            (false, false) => self.give_up(context),
            (true, false) => self.ask(context),
        }
    }

    /// Without pipelining: the next recipient, or the data.
    fn ask<F: Feed>(&mut self, context: &mut Context<'_, F>) -> Turn {
        let Some(current) = &mut self.current else { return Turn::Close };
        if current.asked < current.recipients {
            rcpt(context.plan, current.choice, current.asked, &mut self.out.head);
            current.asked += 1;
            self.waiting.push_back((Step::Rcpt, context.now_ns));
            return Turn::Wait;
        }
        if current.good == 0 {
            return self.give_up(context);
        }
        if self.chunking {
            self.content(context.plan, context.now_ns);
            return Turn::Wait;
        }
        self.say(b"DATA\r\n", Step::Data, context.now_ns)
    }

    fn after_rcpt<F: Feed>(&mut self, is_good: bool, context: &mut Context<'_, F>) -> Turn {
        let is_last = self.waits_for() != Some(Step::Rcpt);
        let Some(current) = &mut self.current else { return Turn::Close };
        current.good += u32::from(is_good);
        if !self.pipelining {
            return self.ask(context);
        }
        if is_last && current.good == 0 {
            // What follows from it (503 or 554 to DATA) is no error of its own.
            current.refused = true;
        }
        Turn::Wait
    }

    fn after_data<F: Feed>(&mut self, is_good: bool, context: &mut Context<'_, F>) -> Turn {
        let Some(current) = &mut self.current else { return Turn::Close };
        if !is_good {
            return self.give_up(context);
        }
        if current.refused || current.good == 0 {
            current.void = true;
            return self.say(b".\r\n", Step::Final, context.now_ns);
        }
        self.content(context.plan, context.now_ns);
        let goes_ahead = context.plan.pipelining == Pipelining::Ahead && self.pipelining;
        if goes_ahead
            && self.may_go_on(context.plan)
            && let Some(job) = context.feed.next(context.now_ns, context.tally)
        {
            let mut ahead = self.start(context.plan, job, context.now_ns);
            self.mail(context.plan, &mut ahead, context.now_ns, true);
            self.ahead = Some(ahead);
        }
        Turn::Wait
    }

    fn after_final<F: Feed>(&mut self, is_good: bool, context: &mut Context<'_, F>) -> Turn {
        let Some(current) = self.current.take() else { return Turn::Close };
        if !self.out.is_empty() && self.ahead.is_none() {
            // Answered before all of it was written: nothing can be said in order any more.
            context.tally.failed(context.now_ns);
            return Turn::Close;
        }
        if is_good && !current.void && current.good > 0 {
            let times = Times { intended: current.job.intended_ns, begun: current.job.begun_ns, mail: current.mail_ns };
            context.tally.accepted(times, current.good, current.octets, context.now_ns);
        } else {
            context.tally.failed(context.now_ns);
            if self.chunking {
                // After a refused BDAT the transaction may still be open (RFC 3030 4.2).
                return self.say(b"RSET\r\n", Step::Rset, context.now_ns);
            }
        }
        self.current = self.ahead.take();
        if self.current.is_some() { Turn::Wait } else { Turn::Ready }
    }

    /// The message has failed and its end of data is not waited for: the transaction is ended.
    fn give_up<F: Feed>(&mut self, context: &mut Context<'_, F>) -> Turn {
        self.current = None;
        context.tally.failed(context.now_ns);
        self.say(b"RSET\r\n", Step::Rset, context.now_ns)
    }

    fn after_rset<F: Feed>(&mut self, is_good: bool, context: &mut Context<'_, F>) -> Turn {
        if !is_good {
            return Turn::Close;
        }
        match self.current.take() {
            Some(mut current) if self.waiting.is_empty() => {
                // It waited for this RSET.
                self.mail(context.plan, &mut current, context.now_ns, false);
                self.current = Some(current);
                Turn::Wait
            }
            None if self.waiting.is_empty() => Turn::Ready,
            current => {
                self.current = current;
                Turn::Wait
            }
        }
    }
}

fn rcpt(plan: &Plan, choice: Choice, k: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"RCPT TO:<");
    plan.people.put(choice, k, out);
    out.extend_from_slice(b">\r\n");
}

impl Outgoing {
    pub fn clear(&mut self) {
        self.head.clear();
        self.after.clear();
        self.body = Body::None;
        self.written = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.after.is_empty() && self.body == Body::None
    }

    /// What is left, for one write.
    pub fn slices<'a>(&'a self, plan: &'a Plan) -> [IoSlice<'a>; 4] {
        let [text, tail] = plan.content.slices(self.body);
        let mut skip = self.written;
        [&self.head[..], text, tail, &self.after[..]].map(|slice| {
            let from = skip.min(slice.len());
            skip -= from;
            IoSlice::new(&slice[from..])
        })
    }

    /// So much has been written; whether that was all.
    pub fn advance(&mut self, octets: usize, plan: &Plan) -> bool {
        self.written += octets;
        let [text, tail] = plan.content.slices(self.body);
        let is_all = self.written >= self.head.len() + text.len() + tail.len() + self.after.len();
        if is_all {
            self.clear();
        }
        is_all
    }
}
