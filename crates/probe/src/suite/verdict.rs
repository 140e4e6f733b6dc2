//! The conclusion, in words that follow from the figures.
//!
//! Rules: a difference is told when the medians differ by [`CLEAR_RATIO`] at least and the runs of the two do not overlap;
//! it is `sure` when even the worst run of the better is that much better than the best of the other. Otherwise it is said
//! that there is none. What is not durable is never recommended; it is the bound that storage could be brought to. Without
//! a figure there is no sentence.

use stentor_measure::Spread;

use super::figures::Figures;

/// Below this a difference decides nothing.
const CLEAR_RATIO: f64 = 1.1;
/// Of the bound without a disk: from here on the processor decides, not the disk.
const BOUND_SHARE: f64 = 0.7;
/// (greatest - least) / median of a figure's runs: up to the first it repeats well, above the second hardly at all.
const NOISE_LOW: f64 = 0.15;
const NOISE_HIGH: f64 = 0.5;
/// One sync in a hundred takes so many times the usual: the tail matters.
const TAIL_RATIO: f64 = 10.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sureness {
    /// The worst run of the better beats the best of the other clearly.
    Sure,
    /// The medians differ clearly, and the runs do not overlap.
    Likely,
    /// No clear difference.
    Open,
    /// Not a comparison.
    Fact,
}

impl Sureness {
    pub fn word(self) -> &'static str {
        match self {
            Sureness::Sure => "sure",
            Sureness::Likely => "likely",
            Sureness::Open => "no clear difference",
            Sureness::Fact => "measured",
        }
    }
}

/// A sentence or two of the conclusion.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    pub topic: &'static str,
    pub text: String,
    pub sureness: Sureness,
}

fn finding(topic: &'static str, sureness: Sureness, text: String) -> Finding {
    Finding { topic, text, sureness }
}

/// How a compares to b, which is not better.
fn compare(better: &Spread, other: &Spread) -> Sureness {
    let ratio = better.median / other.median.max(1e-9);
    if ratio < CLEAR_RATIO || (better.min <= other.max && better.runs > 1) {
        Sureness::Open
    } else if better.min / other.max.max(1e-9) >= CLEAR_RATIO && better.runs > 1 {
        Sureness::Sure
    } else {
        Sureness::Likely
    }
}

/// `12,345` or `3.2`.
fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn times(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0} times") } else { format!("{ratio:.1} times") }
}

type Of = fn(&Figures) -> Option<Spread>;

/// Places with this figure, best first.
fn ranked(all: &[Figures], of: Of) -> Vec<(&Figures, Spread)> {
    let durable = all.iter().filter(|figures| figures.is_durable);
    let mut ranked: Vec<_> = durable.filter_map(|figures| Some((figures, of(figures)?))).collect();
    ranked.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    ranked
}

/// Which place is best by a figure.
fn choice(topic: &'static str, all: &[Figures], of: Of, unit: &str, work: &str) -> Option<Finding> {
    let ranked = ranked(all, of);
    let (best, own) = ranked.first()?;
    let Some((second, next)) = ranked.get(1) else {
        let text = format!(
            "{}: {} {unit} {work}. It is the only durable place that was measured.",
            best.name,
            number(own.median)
        );
        return Some(finding(topic, Sureness::Fact, text));
    };
    let sureness = compare(own, next);
    let ratio = |other: &Spread| times(own.median / other.median.max(1e-9));
    let rest = |from: usize| {
        let others =
            ranked.iter().skip(from).map(|(figures, spread)| format!("{} as fast as {}", ratio(spread), figures.name));
        let others: Vec<String> = others.collect();
        if others.is_empty() { String::new() } else { format!(", {}", others.join(", ")) }
    };
    let text = if sureness == Sureness::Open {
        let equals = equals(&ranked);
        let names: Vec<String> =
            equals.iter().map(|(figures, s)| format!("{} ({})", figures.name, number(s.median))).collect();
        let others = rest(equals.len());
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(" {} is{}.", best.name, others.trim_start_matches(','))
        };
        format!(
            "{} cannot be told apart by {unit} {work}: their runs overlap or differ by less than 10 %. What else speaks for \
             one may decide.{others}",
            listed(names, "and")
        )
    } else {
        format!(
            "{}: {} {unit} {work} ({}-{}), {} as fast as {} ({}){}.",
            best.name,
            number(own.median),
            number(own.min),
            number(own.max),
            ratio(next),
            second.name,
            number(next.median),
            rest(2)
        )
    };
    Some(finding(topic, sureness, text))
}

/// Those that the best cannot be told from, itself included.
fn equals<'r, 'f>(ranked: &'r [(&'f Figures, Spread)]) -> &'r [(&'f Figures, Spread)] {
    let Some((_, best)) = ranked.first() else { return ranked };
    let count = ranked[1..].iter().take_while(|(_, spread)| compare(best, spread) == Sureness::Open).count();
    &ranked[..=count]
}

/// The conclusion in a few words: where, and with which settings. Only what is clear is advised.
pub fn summary(all: &[Figures]) -> Option<String> {
    let names = |of: Of| {
        let ranked = ranked(all, of);
        listed(equals(&ranked).iter().map(|(figures, _)| figures.name.clone()).collect(), "or")
    };
    let (log, files) = (names(log_rate), names(files_rate));
    let place = match (log.as_str(), files.as_str()) {
        ("", "") => return None,
        ("", files) => format!("Put a queue of files on {files}."),
        (log, "") => format!("Put a queue in one log on {log}."),
        (log, files) if log == files => format!("Put the queue on {log}, whether it is one log or files."),
        (log, files) => format!("Put a queue in one log on {log}, a queue of files on {files}."),
    };
    let settings = advice(all);
    let doubt = match noise(all) {
        Some(noise) if noise.median > NOISE_HIGH => {
            "The figures vary too much between runs to decide; as far as they go: "
        }
        _ => "",
    };
    let settings = if settings.is_empty() { String::new() } else { format!(" Then {}.", settings.join("; ")) };
    Some(format!("{doubt}{place}{settings}"))
}

/// Settings that make a clear difference where they would be used.
fn advice(all: &[Figures]) -> Vec<&'static str> {
    let clear = |better: Option<Spread>, other: Option<Spread>| {
        better.zip(other).is_some_and(|(better, other)| compare(&better, &other) != Sureness::Open)
    };
    let mut settings = Vec::new();
    if let Some((place, rate)) = ranked(all, log_rate).first() {
        if clear(place.recycled, place.growing) {
            settings.push("recycle the log's segments");
        }
        if clear(place.journal_many.or(place.recycled_many), Some(*rate)) {
            settings.push("let many messages share a sync");
        }
    }
    if let Some((place, _)) = ranked(all, files_rate).first() {
        if clear(place.files, place.files_hashed) {
            settings.push("keep the directories of queue files flat");
        }
        if clear(place.files_hashed, place.files) {
            settings.push("hash the directories of queue files");
        }
        if clear(place.files_reused, place.files) {
            settings.push("overwrite queue files in place of making new ones");
        }
        if clear(place.files_many, place.files) {
            settings.push("let several processes work on queue files");
        }
    }
    settings
}

/// `a`, `a or b`, `a, b or c`.
fn listed(mut names: Vec<String>, and: &str) -> String {
    let Some(last) = names.pop() else { return String::new() };
    if names.is_empty() { last } else { format!("{} {and} {last}", names.join(", ")) }
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn log_rate(figures: &Figures) -> Option<Spread> {
    figures.journal.or(figures.recycled)
}

fn files_rate(figures: &Figures) -> Option<Spread> {
    figures.files_many.or(figures.files)
}

/// Whether a setting is worth it, at one place.
fn setting(
    topic: &'static str,
    place: &str,
    (with, what): (Option<Spread>, &str),
    (without, instead): (Option<Spread>, &str),
    unit: &str,
) -> Option<Finding> {
    let (with, without) = (with?, without?);
    let said = |a: &Spread, b: &Spread| format!("{} and {} {unit}", number(a.median), number(b.median));
    if compare(&with, &without) != Sureness::Open {
        let ratio = times(with.median / without.median.max(1e-9));
        let text = format!(
            "{} on {place}: {ratio} as many {unit} as with {instead} ({}).",
            sentence(what),
            said(&with, &without)
        );
        return Some(finding(topic, compare(&with, &without), text));
    }
    if compare(&without, &with) != Sureness::Open {
        let ratio = times(without.median / with.median.max(1e-9));
        let text = format!("Not {what} on {place}: with {instead} {ratio} as many {unit} ({}).", said(&without, &with));
        return Some(finding(topic, compare(&without, &with), text));
    }
    let text = format!("{} or {instead} on {place}: no clear difference ({}).", sentence(what), said(&with, &without));
    Some(finding(topic, Sureness::Open, text))
}

/// All that can be said.
pub fn findings(all: &[Figures]) -> Vec<Finding> {
    let mut found = vec![
        choice("Queue in one log (Stentor)", all, log_rate, "records/s", "of 4 KiB with a sync each"),
        choice(
            "Queue of files (Postfix, Exim, qmail)",
            all,
            files_rate,
            "cycles/s",
            "of a queue file, file and directory synced",
        ),
    ];
    // What is said of a log is of the place that is best for one, and so with files.
    if let Some((place, _)) = ranked(all, log_rate).first() {
        found.push(segments(place));
        found.push(group_commit(place));
        found.push(bound(place, all));
        found.push(tail(place));
        found.push(engines(place));
        found.push(log_or_files(place));
    }
    if let Some((place, _)) = ranked(all, files_rate).first() {
        let name = &place.name;
        found.push(setting(
            "Hashed directories",
            name,
            (place.files_hashed, "hashed directories"),
            (place.files, "flat ones"),
            "cycles/s",
        ));
        found.push(setting(
            "Reused queue files",
            name,
            (place.files_reused, "overwriting existing files"),
            (place.files, "new files"),
            "cycles/s",
        ));
        found.push(setting("Processes", name, (place.files_many, "four processes"), (place.files, "one"), "cycles/s"));
        found.push(price(place));
    }
    found.into_iter().flatten().collect()
}

fn segments(place: &Figures) -> Option<Finding> {
    let mut found = setting(
        "Segments",
        &place.name,
        (place.recycled, "recycled segments"),
        (place.growing, "a growing file"),
        "commits/s",
    )?;
    if let (Some(growing), Some(recycled)) = (place.growing_writes, place.recycled_writes)
        && growing.median >= recycled.median * CLEAR_RATIO
    {
        found.text = format!(
            "{} A commit takes {} device writes in place of {}: the file's size needs none.",
            found.text,
            number(recycled.median),
            number(growing.median)
        );
    }
    Some(found)
}

fn group_commit(place: &Figures) -> Option<Finding> {
    let mut text = String::new();
    let mut sureness = Sureness::Fact;
    if let (Some(many), Some(one)) = (place.journal_many.or(place.recycled_many), log_rate(place)) {
        text = format!(
            "A hundred records a sync are {} as many records/s as one on {} ({} and {}).",
            times(many.median / one.median.max(1e-9)),
            place.name,
            number(many.median),
            number(one.median)
        );
        sureness = compare(&many, &one);
    }
    if let (Some(grouped), Some(alone)) = (place.grouped, place.alone) {
        let (better, worse, first) =
            if grouped.median >= alone.median { (grouped, alone, true) } else { (alone, grouped, false) };
        let how = match (compare(&better, &worse), first) {
            (Sureness::Open, _) => "as fast through one committer as each with syncs of its own".to_owned(),
            (_, true) => format!("{} as fast through one committer", times(better.median / worse.median.max(1e-9))),
            (_, false) => format!(
                "{} as fast each with a file and syncs of its own",
                times(better.median / worse.median.max(1e-9))
            ),
        };
        let space = if text.is_empty() { "" } else { " " };
        text = format!(
            "{text}{space}Twenty writers are {how} ({} grouped, {} alone).",
            number(grouped.median),
            number(alone.median)
        );
        sureness = if sureness == Sureness::Fact { compare(&better, &worse) } else { sureness };
    }
    (!text.is_empty()).then(|| finding("Group commit", sureness, text))
}

/// What the one log is worth against a file a message.
fn log_or_files(place: &Figures) -> Option<Finding> {
    let (log, files) = (place.journal_many.or(place.grouped).or(place.recycled_many)?, files_rate(place)?);
    let sureness = compare(&log, &files);
    let text = if sureness == Sureness::Open {
        format!(
            "One log is no faster than files on {} ({} records/s, {} cycles/s).",
            place.name,
            number(log.median),
            number(files.median)
        )
    } else {
        format!(
            "One log with group commit takes {} as many messages of 4 KiB a second on {} as files take ({} and {}), before \
             anything else that a server does.",
            times(log.median / files.median.max(1e-9)),
            place.name,
            number(log.median),
            number(files.median)
        )
    };
    Some(finding("Log or files", sureness, text))
}

/// What it costs that mail survives a power cut.
fn price(place: &Figures) -> Option<Finding> {
    let (unsynced, file, both) = (place.files_unsynced?, place.files_file?, place.files?);
    let mut text = format!(
        "Unsynced, {} does {} as many cycles/s of queue files as with file and directory synced ({} and {}): what is said \
         to be fast without a sync is no measure.",
        place.name,
        times(unsynced.median / both.median.max(1e-9)),
        number(unsynced.median),
        number(both.median)
    );
    if compare(&file, &both) != Sureness::Open {
        text = format!("{text} Syncing the directory too costs {}.", times(file.median / both.median.max(1e-9)));
    }
    Some(finding("Price of durability", compare(&unsynced, &both), text))
}

/// How far the disk is from no disk.
fn bound(place: &Figures, all: &[Figures]) -> Option<Finding> {
    let memory = all.iter().find(|figures| !figures.is_durable)?;
    let (own, most) = (log_rate(place)?, log_rate(memory)?);
    let share = own.median / most.median.max(1e-9);
    let what = if share >= BOUND_SHARE {
        "the processor decides here, a faster disk would bring little"
    } else {
        "the rest is the disk's: a faster one, or more records a sync, would bring up to that"
    };
    let text = format!(
        "{} reaches {} % of what {} does, which is in memory and not durable ({} and {} records/s): {what}.",
        place.name,
        number(share * 100.0),
        memory.name,
        number(own.median),
        number(most.median)
    );
    Some(finding("Bound", Sureness::Fact, text))
}

fn tail(place: &Figures) -> Option<Finding> {
    let (usual, rare) = (place.sync_p50_us?, place.sync_p99_us?);
    let ratio = rare.median / usual.median.max(1e-9);
    let text = format!(
        "A sync on {} takes {} us, one in a hundred {} us or more ({}).",
        place.name,
        number(usual.median),
        number(rare.median),
        if ratio >= TAIL_RATIO {
            format!("{} the usual: a server must not have one thread wait for it alone", times(ratio))
        } else {
            "a short tail".to_owned()
        }
    );
    Some(finding("Latency", Sureness::Fact, text))
}

fn engines(place: &Figures) -> Option<Finding> {
    let (_, journal, _) = place.engines.iter().find(|(name, ..)| name == "journal")?;
    let journal = (*journal)?;
    let others = place.engines.iter().filter(|(name, ..)| name != "journal");
    let others = others.filter_map(|(name, one, _)| Some((name, (*one)?)));
    let (name, best) = others.max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let text = if compare(&journal, &best) != Sureness::Open {
        let ratio = times(journal.median / best.median.max(1e-9));
        format!(
            "Our journal makes {ratio} as many records durable a second as {name}, the best of the other engines, on {}",
            place.name
        )
    } else if compare(&best, &journal) != Sureness::Open {
        let ratio = times(best.median / journal.median.max(1e-9));
        format!("{name} makes {ratio} as many records durable a second as our journal on {}", place.name)
    } else {
        format!("Our journal and {name}, the best of the other engines, cannot be told apart on {}", place.name)
    };
    let sureness = match compare(&journal, &best) {
        Sureness::Open => compare(&best, &journal),
        clear => clear,
    };
    let text = format!("{text} ({} and {}, one a transaction).", number(journal.median), number(best.median));
    Some(finding("Engines", sureness, text))
}

/// (greatest - least) / median of the main figures of durable places, over all of them; none without repetition.
fn noise(all: &[Figures]) -> Option<Spread> {
    let figures = all.iter().filter(|figures| figures.is_durable);
    let main = figures.flat_map(|f| [f.growing, f.recycled, f.journal, f.files, f.files_many, f.grouped]);
    let repeated = main.flatten().filter(|spread| spread.runs > 1 && spread.median > 0.0);
    Spread::of(repeated.map(|spread| (spread.max - spread.min) / spread.median))
}

/// How much the figures can be trusted, and what they are not.
pub fn caveats(all: &[Figures], on_loop: bool, busy: bool) -> Vec<String> {
    let mut said = Vec::new();
    match noise(all) {
        None => said.push(
            "Each figure is from a single run: nothing is known of how well it repeats. Give --runs 3.".to_owned(),
        ),
        Some(noise) => {
            let how = if noise.median <= NOISE_LOW {
                "they repeat well"
            } else if noise.median <= NOISE_HIGH {
                "they repeat roughly; differences below that say nothing"
            } else {
                "they hardly repeat: measure again with more --runs, --thorough, on a quiet machine, before deciding anything"
            };
            said.push(format!(
                "Between its runs a figure varies by {:.0} % of its median (half of the figures by less, the worst by {:.0} %): {how}.",
                noise.median * 100.0,
                noise.max * 100.0
            ));
        }
    }
    if busy {
        said.push("The machine was busy: all rates are too low, and those with more syncs suffer more.".to_owned());
    }
    if on_loop {
        said.push(
            "The file systems are in files of one disk behind loop devices: they compare with each other; on a disk of its own \
             each would be faster, since a flush here is an fsync of its file."
                .to_owned(),
        );
    }
    if all.iter().any(|figures| !figures.is_durable) {
        said.push(
            "What lies in memory (tmpfs) does not survive a power cut: it is the bound, not a choice.".to_owned(),
        );
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Option<Spread> {
        noisy(median, 0.02)
    }

    /// As the fields want it.
    #[allow(clippy::unnecessary_wraps)]
    fn noisy(median: f64, part: f64) -> Option<Spread> {
        Some(Spread { median, min: median * (1.0 - part), max: median * (1.0 + part), runs: 3 })
    }

    fn place(name: &str, journal: f64, files: f64) -> Figures {
        Figures {
            name: name.to_owned(),
            is_durable: name != "tmpfs",
            journal: spread(journal),
            files: spread(files),
            ..Figures::default()
        }
    }

    fn text(all: &[Figures], topic: &str) -> (String, Sureness) {
        let found = findings(all).into_iter().find(|finding| finding.topic.starts_with(topic));
        found.map_or((String::new(), Sureness::Fact), |finding| (finding.text, finding.sureness))
    }

    #[test]
    fn the_fastest_durable_place_is_chosen_and_never_memory() {
        let all = [place("xfs", 5000.0, 900.0), place("ext4", 8000.0, 700.0), place("tmpfs", 90_000.0, 50_000.0)];
        let (log, sureness) = text(&all, "Queue in one log");
        assert!(log.starts_with("ext4: 8,000 records/s") && log.contains("1.6 times as fast as xfs (5,000)"), "{log}");
        assert_eq!(sureness, Sureness::Sure);
        let (files, _) = text(&all, "Queue of files");
        assert!(files.starts_with("xfs: 900 cycles/s"), "{files}");
        assert!(findings(&all).iter().all(|finding| !finding.text.starts_with("tmpfs")));
    }

    #[test]
    fn what_overlaps_is_no_difference() {
        let mut all = [place("xfs", 5000.0, 900.0), place("ext4", 5600.0, 700.0), place("btrfs", 1000.0, 100.0)];
        all[0].journal = noisy(5000.0, 0.1);
        all[1].journal = noisy(5600.0, 0.1);
        let (log, sureness) = text(&all, "Queue in one log");
        assert_eq!(sureness, Sureness::Open);
        assert!(
            log.contains("ext4 (5,600) and xfs (5,000) cannot be told apart")
                && log.contains("5.6 times as fast as btrfs"),
            "{log}"
        );
        assert_eq!(summary(&all).unwrap(), "Put a queue in one log on ext4 or xfs, a queue of files on xfs.");
        (all[0].files, all[1].files) = (noisy(900.0, 0.9), noisy(900.0, 0.9));
        all[2].files = noisy(900.0, 0.9);
        all[2].journal = noisy(1000.0, 0.9);
        assert!(summary(&all).unwrap().starts_with("The figures vary too much"), "{:?}", summary(&all));
        // Clear medians whose extremes come near.
        all[0].journal = noisy(4600.0, 0.09);
        all[1].journal = noisy(5600.0, 0.09);
        assert_eq!(text(&all, "Queue in one log").1, Sureness::Likely);
    }

    #[test]
    fn settings_follow_the_numbers_both_ways() {
        let mut one = place("ext4", 5000.0, 1000.0);
        one.recycled = spread(14_000.0);
        one.growing = spread(7000.0);
        (one.growing_writes, one.recycled_writes) = (spread(3.9), spread(1.0));
        let (segments, sureness) = text(&[one.clone()], "Segments");
        assert!(segments.contains("2.0 times as many commits/s as with a growing file"), "{segments}");
        assert!(segments.contains("1.0 device writes in place of 3.9") && sureness == Sureness::Sure, "{segments}");
        (one.recycled, one.growing) = (one.growing, one.recycled);
        assert!(text(&[one.clone()], "Segments").0.starts_with("Not recycled segments"), "{one:?}");
        one.growing = one.recycled;
        assert!(text(&[one.clone()], "Segments").0.contains("no clear difference"));
        one.files_hashed = spread(500.0);
        let (hashed, _) = text(&[one.clone()], "Hashed");
        assert!(hashed.starts_with("Not hashed directories on ext4: with flat ones 2.0 times"), "{hashed}");
        one.growing = None;
        assert_eq!(text(&[one], "Segments").0, "");
    }

    #[test]
    fn only_what_is_clear_is_advised() {
        let mut one = place("ext4", 5000.0, 1000.0);
        (one.recycled, one.growing) = (spread(14_000.0), spread(7000.0));
        (one.files_hashed, one.files_reused) = (spread(500.0), spread(1010.0));
        assert_eq!(
            summary(&[one.clone(), place("tmpfs", 9e9, 9e9)]).unwrap(),
            "Put the queue on ext4, whether it is one log or files. Then recycle the log's segments; keep the directories of \
             queue files flat."
        );
        assert_eq!(summary(&[place("tmpfs", 1.0, 1.0)]), None);
    }

    #[test]
    fn the_bound_says_who_decides() {
        let memory = place("tmpfs", 10_000.0, 1.0);
        assert!(text(&[place("ext4", 9000.0, 1.0), memory.clone()], "Bound").0.contains("90 %"));
        assert!(text(&[place("ext4", 9000.0, 1.0), memory.clone()], "Bound").0.contains("processor decides"));
        assert!(text(&[place("ext4", 500.0, 1.0), memory], "Bound").0.contains("the rest is the disk's"));
    }

    #[test]
    fn how_sure_follows_from_the_spread() {
        let said = |part: f64| {
            let mut one = place("ext4", 1.0, 1.0);
            (one.journal, one.files) = (noisy(100.0, part), noisy(100.0, part));
            caveats(&[one], false, false).join(" ")
        };
        assert!(said(0.02).contains("repeat well") && said(0.15).contains("roughly") && said(0.4).contains("hardly"));
        let mut once = place("ext4", 1.0, 1.0);
        (once.journal, once.files) = (Some(Spread::once(5.0)), None);
        assert!(caveats(&[once], true, true).join(" ").contains("single run"));
        assert!(caveats(&[place("tmpfs", 1.0, 1.0)], true, true).len() == 4);
    }

    #[test]
    fn without_figures_nothing_is_said() {
        assert!(findings(&[Figures { is_durable: true, ..Figures::default() }]).is_empty());
        assert!(findings(&[]).is_empty());
    }

    #[test]
    fn group_commit_and_engines_are_compared() {
        let mut one = place("ext4", 1000.0, 100.0);
        one.journal_many = spread(50_000.0);
        (one.grouped, one.alone) = (spread(20_000.0), spread(2000.0));
        let (group, _) = text(&[one.clone()], "Group");
        assert!(
            group.contains("50 times as many") && group.contains("10 times as fast through one committer"),
            "{group}"
        );
        assert!(text(&[one.clone()], "Log or files").0.contains("500 times"));
        one.engines = vec![
            ("journal".to_owned(), spread(1000.0), None),
            ("redb".to_owned(), spread(200.0), None),
            ("SQLite".to_owned(), spread(500.0), None),
        ];
        assert!(text(&[one.clone()], "Engines").0.contains("2.0 times as many records durable a second as SQLite"));
        one.engines[0].1 = spread(100.0);
        assert!(text(&[one], "Engines").0.starts_with("SQLite makes 5.0 times"));
    }
}
