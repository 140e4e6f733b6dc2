//! The settings worth using at the best place, and the meaning of its figures.

use stentor_measure::Spread;

use super::super::figures::Figures;
use super::words::{number, sentence, times};
use super::{CLEAR_RATIO, Finding, Sureness, compare, finding};

/// Of the bound without a disk: from here on the processor decides, not the disk.
const BOUND_SHARE: f64 = 0.7;
/// One sync in a hundred takes so many times the usual: the tail matters.
const TAIL_RATIO: f64 = 10.0;

/// What is said of a log.
pub fn of_log(place: &Figures, all: &[Figures]) -> Vec<Finding> {
    let name = &place.name;
    let one = place.journal.or(place.recycled);
    let many = if place.journal.is_some() { place.journal_many } else { place.recycled_many };
    let found = [
        segments(place),
        setting("Records a sync", name, (many, "a hundred records a sync"), (one, "one"), "records/s"),
        group_commit(place),
        bound(place, all),
        tail(place),
        engines(place),
        setting(
            "Log or files",
            name,
            (place.grouped, "one log for twenty writers"),
            (place.files_many, "a file a message by twenty processes"),
            "messages/s",
        ),
    ];
    found.into_iter().flatten().collect()
}

/// What is said of a queue of files.
pub fn of_files(place: &Figures) -> Vec<Finding> {
    let name = &place.name;
    let against = |topic, with: Option<Spread>, what: &'static str, instead: &'static str| {
        setting(topic, name, (with, what), (place.files, instead), "cycles/s")
    };
    let found = [
        against("Hashed directories", place.files_hashed, "hashed directories", "flat ones"),
        against("Reused queue files", place.files_reused, "overwriting existing files", "new files"),
        against("Processes", place.files_many, "twenty processes", "one"),
        price(place),
    ];
    found.into_iter().flatten().collect()
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
    let mut found = setting(
        "Group commit",
        &place.name,
        (place.grouped, "twenty writers through one committer"),
        (place.alone, "a file and syncs of its own for each"),
        "records/s",
    )?;
    if let (Some(alone), Some(grouped)) = (place.alone_writes, place.grouped_writes)
        && alone.median >= grouped.median * CLEAR_RATIO
    {
        let (grouped, alone) = (number(grouped.median), number(alone.median));
        found.text = format!("{} A record takes {grouped} device writes in place of {alone}.", found.text);
    }
    Some(found)
}

/// What it costs that mail survives a power cut.
fn price(place: &Figures) -> Option<Finding> {
    let (unsynced, file, both) = (place.files_unsynced?, place.files_file?, place.files?);
    let found = setting(
        "Price of durability",
        &place.name,
        (Some(unsynced), "nothing synced"),
        (Some(both), "file and directory synced"),
        "cycles/s",
    )?;
    let mut text = found.text;
    if found.sureness != Sureness::Open {
        text.push_str(" What is said to be fast without a sync is no measure.");
    }
    if compare(&file, &both) != Sureness::Open {
        text = format!("{text} Syncing the directory too costs {}.", times(file.median / both.median.max(1e-9)));
    }
    Some(Finding { text, ..found })
}

/// How far the disk is from no disk.
fn bound(place: &Figures, all: &[Figures]) -> Option<Finding> {
    let memory = all.iter().find(|figures| !figures.is_durable)?;
    let rate = |figures: &Figures| figures.journal.or(figures.recycled);
    let (own, most) = (rate(place)?, rate(memory)?);
    let share = |own: f64, most: f64| own / most.max(1e-9);
    let (least, greatest) = (share(own.min, most.max), share(own.max, most.min));
    let what = if least >= BOUND_SHARE {
        "the processor decides here, a faster disk would bring little"
    } else if greatest < BOUND_SHARE {
        "the rest is the disk's: a faster one, or more records a sync, would bring up to that"
    } else {
        "whether the disk or the processor decides differs from run to run"
    };
    let percent = |share: f64| number(share * 100.0);
    let range = if own.runs > 1 { format!(" ({}-{})", percent(least), percent(greatest)) } else { String::new() };
    let text = format!(
        "{} reaches {} %{range} of what {} does, which is in memory and not durable ({} and {} records/s): {what}.",
        place.name,
        percent(share(own.median, most.median)),
        memory.name,
        number(own.median),
        number(most.median)
    );
    Some(finding("Bound", Sureness::Fact, text))
}

fn tail(place: &Figures) -> Option<Finding> {
    let (usual, rare) = (place.sync_p50_us?, place.sync_p99_us?);
    let what = if rare.min >= usual.max * TAIL_RATIO {
        let ratio = times(rare.median / usual.median.max(1e-9));
        format!("{ratio} the usual: a server must not have one thread wait for it alone")
    } else if rare.max < usual.min * TAIL_RATIO {
        "a short tail".to_owned()
    } else {
        "how long the tail is differs from run to run".to_owned()
    };
    let range = |spread: &Spread| {
        let has = spread.runs > 1 && spread.max >= spread.min * CLEAR_RATIO;
        if has { format!(" ({}-{})", number(spread.min), number(spread.max)) } else { String::new() }
    };
    let text = format!(
        "A sync on {} takes {} us{}, one in a hundred {} us{} or more: {what}.",
        place.name,
        number(usual.median),
        range(&usual),
        number(rare.median),
        range(&rare)
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
