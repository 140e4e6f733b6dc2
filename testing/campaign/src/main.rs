//! `stentor-campaign --seconds N [--seed S] [--json]`: runs for that time and reports. `--seed S` alone replays that
//! seed.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use stentor_campaign::{CURRENT, Cut, Failure, Figures, MUTATIONS, Mutation, Shared, campaign, find, full_disk, run};

/// Cuts the power of a simulated disk under the real queue, at every write and sync.
#[derive(Parser)]
struct Arguments {
    /// Wall time to run for; without it, one seed with all its cuts
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed, or the one to replay
    #[arg(long)]
    seed: Option<u64>,
    /// Only this cut of the seed
    #[arg(long, requires = "seed")]
    cut: Option<u64>,
    /// What is forgotten at that cut
    #[arg(long, default_value_t = 0)]
    variant: u64,
    /// In place of cuts, a disk that refuses each operation in turn: EIO, ENOSPC, EDQUOT; once, some times, for a while
    #[arg(long, conflicts_with = "cut")]
    full_disk: bool,
    /// Only the summary, as a line of JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let plain = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let [seed, cut, variant] = [0, 1, 2].map(|at: usize| CURRENT[at].load(Ordering::Relaxed));
        eprintln!("panic in --seed {seed} --cut {cut} --variant {variant}");
        plain(info);
    }));
    let mut figures = Figures::default();
    let result = Shared::new()
        .map_err(|what| Failure { seed: 0, cut: None, variant: 0, what })
        .and_then(|shared| work(&shared, &arguments, &mut figures));
    let failure = result.err();
    if !arguments.json {
        print(&figures, failure.is_none());
    }
    println!("{}", serde_json::json!({ "workload": "queue.campaign", "figures": figures, "failure": failure }));
    let Some(failure) = failure else { return ExitCode::SUCCESS };
    let cut = failure.cut.map(|cut| format!(" --cut {cut} --variant {}", failure.variant)).unwrap_or_default();
    eprintln!("{}\nreplay: stentor-campaign --seed {}{cut}", failure.what, failure.seed);
    ExitCode::FAILURE
}

fn print(figures: &Figures, is_fine: bool) {
    println!(
        "{} seeds, {} cuts ({} within one write of an acknowledgement), {} faults, {} verbs, mutations caught {} of {}, \
         largest window of repeats {}, copies repeated {}, verify right of {} sound and {} spoilt stores: {}",
        figures.seeds,
        figures.cuts,
        figures.cuts_near_acknowledgement,
        figures.faults,
        figures.verbs,
        figures.mutations_caught,
        figures.mutations,
        figures.repeat_window_max,
        figures.repeated_copies,
        figures.verified_sound,
        figures.verified_damaged,
        if is_fine { "nothing lost" } else { "FAILED" },
    );
    if figures.refused_runs > 0 {
        println!(
            "{} runs with a disk that refused; mail was refused for {} ms at most after it did not any more",
            figures.refused_runs, figures.recovery_ms_max
        );
    }
}

fn work(shared: &Shared, arguments: &Arguments, figures: &mut Figures) -> Result<(), Failure> {
    let first = arguments.seed.unwrap_or_else(|| {
        // Any number will do; it is printed if it matters.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() * 1000)
    });
    let (seeds, end) = match arguments.seconds {
        Some(seconds) => (u64::MAX, Instant::now() + Duration::from_secs(seconds)),
        None => (1, Instant::now() + Duration::from_hours(24)),
    };
    if arguments.full_disk {
        for seed in (first..).take(usize::try_from(seeds).unwrap_or(usize::MAX)) {
            full_disk(shared, seed, figures, &mut || Instant::now() < end)?;
            if Instant::now() >= end {
                break;
            }
        }
        return Ok(());
    }
    if let Some(at) = arguments.cut {
        let cut = Cut { at, variant: arguments.variant };
        let done = run(shared, first, Some(cut), Mutation::None);
        let done = done.map_err(|what| Failure { seed: first, cut: Some(at), variant: cut.variant, what })?;
        (figures.seeds, figures.cuts, figures.faults) = (1, done.cuts, done.faults.total());
        figures.repeat_window_max = done.window;
        return Ok(());
    }
    if arguments.seconds.is_none() {
        return campaign(shared, first, figures, &mut || true);
    }
    for mutation in MUTATIONS {
        figures.mutations += 1;
        if find(shared, mutation, first).is_some() {
            figures.mutations_caught += 1;
        } else {
            let what = format!("{mutation:?} was not found: the checks do not bite");
            return Err(Failure { seed: first, cut: None, variant: 0, what });
        }
    }
    let mut seed = first;
    while Instant::now() < end {
        campaign(shared, seed, figures, &mut || Instant::now() < end)?;
        seed += 1;
    }
    Ok(())
}
