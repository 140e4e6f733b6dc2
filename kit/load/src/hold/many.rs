//! Holds connections in several processes: each opens, sends on and keeps its share; all synchronize between phases.
//!
//! Orders: `open RUN`, `send`; a dismissed process closes its connections and reports. If one dies, its connections are
//! lost, and the report says so; the others continue.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stentor_measure::{Histogram, Progress, Stop};

use super::client::Client;
use super::{HoldArgs, Outcome, Point, Work, say_open, say_sent, wait, ways};
use crate::crew::{Crew, CrewMessage, Post};
use crate::error::LoadError;
use crate::procfs::ProcessUsage;

/// How often a process says how far it is, and waits for an order.
const SAY_EVERY: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Ready(ProcessUsage),
    /// So many are open, or sent, by now.
    Now(u64),
    Opened(OpenReport),
    Sent(u64),
    End(End),
}

#[derive(Serialize, Deserialize, Clone, Copy)]
struct OpenReport {
    open: u64,
    ran_out: bool,
    used: ProcessUsage,
}

#[derive(Serialize, Deserialize)]
struct End {
    alive: u64,
    errors: BTreeMap<String, u64>,
    times_us: Histogram,
}

/// What is known of one process.
#[derive(Default)]
struct MemberState {
    ready: Option<ProcessUsage>,
    now: u64,
    opened: Option<OpenReport>,
    sent: Option<u64>,
    end: Option<End>,
    is_gone: bool,
}

struct Together<'a> {
    crew: Crew<Word>,
    members: Vec<MemberState>,
    warnings: Vec<String>,
    stop: &'a Stop,
    is_dismissed: bool,
}

impl Together<'_> {
    /// Until each process has said so much, or is gone. `look` hears the sum of how far they are.
    fn until(&mut self, said: impl Fn(&MemberState) -> bool, mut look: impl FnMut(u64)) {
        while !self.members.iter().all(|member| member.is_gone || said(member)) {
            if self.stop.is_set() {
                // What they have is told, and no more is done.
                self.dismiss();
            }
            self.hear(SAY_EVERY);
            look(self.members.iter().map(|member| member.now).sum());
        }
    }

    fn dismiss(&mut self) {
        if !std::mem::replace(&mut self.is_dismissed, true) {
            self.crew.dismiss();
        }
    }

    fn hear(&mut self, most: Duration) {
        let Some((number, said)) = self.crew.next(most) else { return };
        let member = &mut self.members[number];
        match said {
            CrewMessage::Word(Word::Ready(used)) => member.ready = Some(used),
            CrewMessage::Word(Word::Now(now)) => member.now = now,
            CrewMessage::Word(Word::Opened(opened)) => {
                (member.opened, member.now) = (Some(opened), 0);
            }
            CrewMessage::Word(Word::Sent(sent)) => member.sent = Some(sent),
            CrewMessage::Word(Word::End(end)) => member.end = Some(end),
            CrewMessage::Gone(why) => {
                member.is_gone = true;
                if member.end.is_none() {
                    let pid = self.crew.pid(number);
                    let text = format!("process {} (PID {pid}) died: {why}; its connections were closed", number + 1);
                    self.warnings.push(text);
                }
            }
        }
    }
}

/// One run, by `count` processes.
pub(super) fn together(
    args: &HoldArgs,
    count: usize,
    stop: &Stop,
    progress: &mut Progress,
    run: u32,
) -> Result<Outcome, LoadError> {
    let members = (0..count).map(|_| MemberState::default()).collect();
    let crew = Crew::start(count, &[])?;
    let mut all = Together { crew, members, warnings: Vec::new(), stop, is_dismissed: false };
    all.until(|member| member.ready.is_some(), |_| ());
    let mut before = Point::now(args.pid);
    for used in all.members.iter().filter_map(|member| member.ready.as_ref()) {
        before.client.add(used);
    }
    let begun = Instant::now();
    all.crew.order(&format!("open {run}"));
    all.until(|member| member.opened.is_some(), |open| say_open(progress, open, args));
    let open_s = begun.elapsed().as_secs_f64();
    let mut held = Point::now(args.pid);
    let opened: Vec<OpenReport> = all.members.iter().filter_map(|member| member.opened).collect();
    for opened in &opened {
        held.client.add(&opened.used);
    }
    let begun = Instant::now();
    all.crew.order("send");
    all.until(|member| member.sent.is_some(), |sent| say_sent(progress, sent, args));
    let send_s = begun.elapsed().as_secs_f64();
    wait(args, stop, |left| {
        all.hear(left.min(SAY_EVERY));
        Ok(!all.crew.is_empty())
    })?;
    all.dismiss();
    // Each is heard out.
    all.until(|member| member.is_gone, |_| ());
    let mut outcome = Outcome {
        processes: count,
        opened: opened.iter().map(|opened| opened.open).sum(),
        open_s,
        sent: all.members.iter().filter_map(|member| member.sent).sum(),
        send_s,
        before,
        held,
        ran_out: opened.iter().any(|opened| opened.ran_out),
        warnings: all.warnings,
        ..Outcome::default()
    };
    for end in all.members.into_iter().filter_map(|member| member.end) {
        outcome.alive += end.alive;
        outcome.times_us.merge(&end.times_us);
        for (error, count) in end.errors {
            *outcome.errors.entry(error).or_default() += count;
        }
    }
    Ok(outcome)
}

/// The part of one process.
pub(super) fn work(args: &HoldArgs, number: usize, members: usize) -> Result<(), LoadError> {
    let mut post = Post::open()?;
    let stop = Stop::never();
    let orders = post.orders(&stop)?;
    stentor_lab::descriptors::raise();
    post.say(&Word::Ready(ProcessUsage::own()))?;
    let run = orders.recv().ok().and_then(|order| order.strip_prefix("open ")?.parse().ok()).unwrap_or(0);
    let (work, mut ways) = (Work::of(args, number, members, run), ways(args, number, members));
    let mut client = Client::new(args.size_bytes as usize, work.first)?;
    let mut said = Instant::now();
    let mut look = |post: &mut Post, now: u64| {
        if said.elapsed() > SAY_EVERY {
            said = Instant::now();
            // That the command is gone, `stop` says.
            let _ = post.say(&Word::Now(now));
        }
    };
    let ran_out = client.open_all(&work, &mut ways, &stop, &mut |open| look(&mut post, open))?;
    post.say(&Word::Opened(OpenReport { open: client.open_now(), ran_out, used: ProcessUsage::own() }))?;
    wait_for_order(&mut client, &orders, &stop)?;
    let sent = client.send_all(&work, &stop, &mut |sent| look(&mut post, sent))?;
    post.say(&Word::Sent(sent))?;
    while !stop.is_set() {
        client.keep(SAY_EVERY)?;
    }
    let alive = client.open_now();
    client.close_all();
    let end = End { alive, errors: std::mem::take(&mut client.errors), times_us: std::mem::take(&mut client.times_us) };
    Ok(post.say(&Word::End(end))?)
}

fn wait_for_order(client: &mut Client, orders: &Receiver<String>, stop: &Stop) -> io::Result<()> {
    while !stop.is_set() && orders.try_recv() == Err(TryRecvError::Empty) {
        client.keep(SAY_EVERY)?;
    }
    Ok(())
}
