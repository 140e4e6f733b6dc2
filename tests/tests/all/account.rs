//! What must hold after a crash, whatever caused it: acknowledged = delivered + bounced + expired + removed +
//! quarantined + pending; each acknowledged recipient has its copy, octet by octet what was handed in; a copy comes twice
//! only around a crash, and only the newest ones do.

use std::time::Duration;

use stentor_tests::{Builder, Load, Mail, Server, Taken, TestLab, wait_until};

use crate::kit::{SENDER, builder, fates};

/// One in seventeen is larger than a piece of the journal.
pub const MAIL: Mail = Mail { sender: SENDER, sites: 6, large_one_in: 17, large_lines: 9000 };

/// A repeated copy is one of the last before the crash: of the messages that were begun after it, no more than these were
/// acknowledged before the crash. An outcome rides with the first batch after it, so a handful is expected (hosts
/// answer late, the machine is busy); an outcome that is not journaled is behind hundreds.
const ACKNOWLEDGED_SINCE_MAX: usize = 300;

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
    let load = Load::start(server, lab.recorder(), 8, MAIL);
    let mut crashes = Vec::new();
    for round in 0..rounds {
        let before = load.taken();
        wait_until("the load goes on", || load.taken() > before + 20);
        std::thread::sleep(Duration::from_millis(rng.u64(0..300)));
        crashes.push(lab.recorder().now_us());
        server.kill();
        println!("round {round}: killed with {} messages taken", load.taken());
        server.start_again();
        load.moved(server);
    }
    let taken = load.end();
    judge(lab, server, &taken, &crashes).unwrap_or_else(|what| panic!("{what}"));
}

/// Compares what was acknowledged with what became of it. `crashes` are times of the recorder's clock. An error says what
/// was lost, damaged or repeated without need; nothing is waited for once something is known to be lost.
pub fn judge(lab: &TestLab, server: &Server, taken: &[Taken], crashes: &[u64]) -> Result<(), String> {
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

/// Copies that came twice came around a crash.
fn repeats(lab: &TestLab, taken: &[Taken], crashes: &[u64]) -> Result<(), String> {
    let mut copies = lab.recorder().copies();
    copies.sort_by(|a, b| (&a.message_id, &a.recipient, a.at_us).cmp(&(&b.message_id, &b.recipient, b.at_us)));
    let (mut repeated, mut oldest_us, mut since_max) = (0, 0, 0);
    for pair in copies.windows(2) {
        let [first, again] = pair else { unreachable!("windows of two") };
        if (&first.message_id, &first.recipient) != (&again.message_id, &again.recipient) {
            continue;
        }
        repeated += 1;
        let name = format!("{} to {}", first.message_id, first.recipient);
        // The copy may be recorded a little after the crash: what was written is read by the sink all the same.
        let crash = crashes.iter().copied().find(|crash| *crash <= again.at_us && first.at_us <= crash + 2_000_000);
        let crash = crash.ok_or_else(|| format!("{name} came twice without a crash between"))?;
        // Of several crashes the one that followed the first copy tells how old its outcome was.
        let crash = crashes.iter().copied().find(|crash| *crash >= first.at_us).unwrap_or(crash);
        let since = taken.iter().filter(|m| m.begun_us > first.at_us && m.acknowledged_us < crash).count();
        (oldest_us, since_max) = (oldest_us.max(crash.saturating_sub(first.at_us)), since_max.max(since));
        if since > ACKNOWLEDGED_SINCE_MAX {
            return Err(format!("{name} came twice, {since} messages were acknowledged after its first copy"));
        }
    }
    println!(
        "{} messages acknowledged, {} copies, {repeated} repeated; the oldest {} ms before its crash, {since_max} messages \
         acknowledged in between",
        taken.len(),
        copies.len(),
        oldest_us / 1000
    );
    Ok(())
}
