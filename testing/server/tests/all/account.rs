//! What must hold after any crash: acknowledged = delivered + bounced + expired + removed + quarantined + pending; each
//! acknowledged recipient has its copy, octet for octet; duplicates occur only around a crash, and only of the newest
//! copies.

use std::collections::HashMap;
use std::time::Duration;

use stentor_harness::{AcknowledgedMessage, Builder, Load, Mail, Server, TestLab, wait_until};

use crate::kit::{SENDER, builder, fates};

/// One in seventeen is larger than a piece of the journal.
pub const MAIL: Mail = Mail { sender: SENDER, sites: 6, large_one_in: 17, large_lines: 9000 };

/// So many clients send at a time, one message each: a batch accepts no more.
pub const CLIENTS: usize = 8;

/// An outcome that the server knew of is durable with the batch that is built next, behind the one being written: when
/// the acceptances of a third batch are logged, it is. (Its line is in the log after it was decided, the line of an
/// acceptance when its batch was durable.) Older outcomes must not come again, however slow disk and machine are.
const ACCEPTED_SINCE_MAX: usize = 2 * CLIENTS;

/// The end of one life of the server.
pub struct Crash {
    /// By the recorder's clock: no copy of that life comes after it, but for what was on its way.
    pub at_us: u64,
    /// Recipients (each is of one message) whose copy the server knew to be delivered, as far as its log was written,
    /// and how many messages were accepted since.
    known: HashMap<String, usize>,
}

impl Crash {
    /// Of a server that was just killed.
    pub fn of(at_us: u64, server: &Server) -> Crash {
        let (mut known, mut accepted) = (HashMap::new(), 0);
        for line in server.log().whole().iter().rev() {
            if line.contains(", nrcpts=") {
                accepted += 1;
            } else if line.contains(", stat=Sent") {
                let to = line.split(": to=").nth(1).and_then(|rest| rest.split(", from=").next()).unwrap_or_default();
                for address in to.split(',') {
                    known.insert(address.trim_matches(['<', '>']).to_owned(), accepted);
                }
            }
        }
        Crash { at_us, known }
    }
}

pub fn six_sites() -> TestLab {
    let sites: String = (0..6)
        .map(|n| {
            format!("[[site]]\nname = 's{n}.example'\nbehaviour = {{ rtt_ms = {}, dot_delay_ms = {} }}\n", n, n * 3)
        })
        .collect();
    TestLab::start_with(&sites, stentor_lab::Mode::Full)
}

/// Small segments and frequent checkpoints: recycling is part of what is cut.
pub fn under_load(lab: &TestLab) -> Builder {
    builder(lab).set("journal.segment_bytes", "1048576").set("journal.batch_bytes_max", "524288")
}

/// The delays of a test; the seed is in its output, and `STENTOR_SEED` repeats it.
pub fn delays() -> fastrand::Rng {
    let seed = std::env::var("STENTOR_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("STENTOR_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Kills the server so often under load, then judges.
pub fn killed(lab: &TestLab, server: &mut Server, rounds: usize) {
    let mut rng = delays();
    let load = Load::start(server, lab.recorder(), CLIENTS, MAIL);
    let mut crashes = Vec::new();
    for round in 0..rounds {
        let before = load.taken();
        wait_until("the load goes on", || load.taken() > before + 20);
        std::thread::sleep(Duration::from_millis(rng.u64(0..300)));
        let at_us = lab.recorder().now_us();
        server.kill();
        crashes.push(Crash::of(at_us, server));
        println!("round {round}: killed with {} messages taken", load.taken());
        server.start_again();
        load.moved(server);
    }
    let taken = load.end();
    judge(lab, server, &taken, &crashes).unwrap_or_else(|what| panic!("{what}"));
}

/// Compares what was acknowledged with what became of it. An error says what
/// was lost, damaged or repeated without need; nothing is waited for once something is known to be lost.
pub fn judge(lab: &TestLab, server: &Server, taken: &[AcknowledgedMessage], crashes: &[Crash]) -> Result<(), String> {
    let acknowledged: u64 = taken.iter().map(|message| message.people.len() as u64).sum();
    // More than the clients know of: a crash between the sync and the 250.
    let found = fates(server);
    if found.acknowledged < acknowledged {
        return Err(format!("{acknowledged} were acknowledged, the store knows of {found:?}"));
    }
    wait_until("nothing is pending", || fates(server).pending == 0);
    let found = fates(server);
    if (found.bounced, found.expired) != (0, 0) {
        return Err(format!("nothing has failed, and yet: {found:?}"));
    }
    for message in taken {
        let audit = lab.recorder().audit(&message.id, message.people.iter().map(String::as_str));
        if !audit.missing.is_empty() || audit.damaged > 0 || audit.unexpected > 0 {
            return Err(format!("{}, acknowledged: {audit:?}", message.id));
        }
    }
    let stats = lab.stats().sinks;
    if stats.damaged > 0 {
        return Err(format!("damaged: {:?}", lab.recorder().damaged()));
    }
    repeats(lab, taken, crashes)?;
    lab.assert_no_violations();
    Ok(())
}

/// How long after a crash a sink may still read what was written before it.
const RECORDED_US_MAX: u64 = 10_000_000;

/// Copies that came twice came around a crash; either the server did not know of the first one (its transaction was
/// past the end of data, the host's answer on its way), or its outcome was among the last.
fn repeats(lab: &TestLab, taken: &[AcknowledgedMessage], crashes: &[Crash]) -> Result<(), String> {
    let mut copies = lab.recorder().copies();
    copies.sort_by(|a, b| (&a.message_id, &a.recipient, a.at_us).cmp(&(&b.message_id, &b.recipient, b.at_us)));
    let (mut unanswered, mut unsynced, mut since_max) = (0, 0, 0);
    for pair in copies.windows(2) {
        let [first, again] = pair else { unreachable!("windows of two") };
        if (&first.message_id, &first.recipient) != (&again.message_id, &again.recipient) {
            continue;
        }
        // The copy may be recorded after the crash: what was written is read by the sink all the same, on a busy
        // machine seconds later.
        let between = |crash: &&Crash| crash.at_us <= again.at_us && first.at_us <= crash.at_us + RECORDED_US_MAX;
        if !crashes.iter().any(|crash| between(&crash)) {
            return Err(format!("{} to {} came twice without a crash between", first.message_id, first.recipient));
        }
        let lives = crashes.iter().filter(|crash| crash.at_us <= again.at_us);
        let Some(since) = lives.filter_map(|crash| crash.known.get(&*first.recipient).copied()).max() else {
            unanswered += 1;
            continue;
        };
        unsynced += 1;
        since_max = since_max.max(since);
        if since > ACCEPTED_SINCE_MAX {
            return Err(format!(
                "{} to {} was known to be delivered, {since} messages were accepted after that, and yet it came again",
                first.message_id, first.recipient
            ));
        }
    }
    println!(
        "{} messages acknowledged, {} copies; repeated: {unanswered} whose answer was on its way, {unsynced} whose outcome \
         was not synced, at most {since_max} messages accepted after it",
        taken.len(),
        copies.len(),
    );
    Ok(())
}
