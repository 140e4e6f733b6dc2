//! The best place, and the conclusion in a few words.

use stentor_measure::Spread;

use super::super::figures::Figures;
use super::caveats::vary_too_much;
use super::words::{listed, number, sentence, times};
use super::{CLEAR_RATIO, Finding, Sureness, compare, finding};

type Of = fn(&Figures) -> Option<Spread>;

/// Places with this figure, best first.
fn ranked(all: &[Figures], of: Of) -> Vec<(&Figures, Spread)> {
    let durable = all.iter().filter(|figures| figures.is_durable);
    let mut ranked: Vec<_> = durable.filter_map(|figures| Some((figures, of(figures)?))).collect();
    ranked.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    ranked
}

/// What a message sees that comes alone.
fn log_rate(figures: &Figures) -> Option<Spread> {
    figures.journal.or(figures.recycled)
}

fn files_rate(figures: &Figures) -> Option<Spread> {
    figures.files_many.or(figures.files)
}

/// Those that are best for a log: by a sync each, and where that decides nothing by twenty writers that share syncs.
fn log_places(all: &[Figures]) -> Vec<&Figures> {
    let ranked = ranked(all, log_rate);
    let equal = equals(&ranked);
    let grouped = equal.iter().filter_map(|(figures, _)| figures.grouped);
    let best = grouped.max_by(|a, b| a.median.total_cmp(&b.median));
    let keeps_up = |figures: &Figures| match (best, figures.grouped) {
        (Some(best), Some(own)) => compare(&best, &own) == Sureness::Open,
        _ => true,
    };
    equal.iter().map(|(figures, _)| *figures).filter(|figures| keeps_up(figures)).collect()
}

/// Of equals, one with the fewest device writes, which vary less than rates do.
pub fn best_for_log(all: &[Figures]) -> Option<&Figures> {
    let places = log_places(all);
    fewest(&places, |f| f.recycled_writes).first().or(places.first()).copied()
}

pub fn best_for_files(all: &[Figures]) -> Option<&Figures> {
    let places = files_places(all);
    fewest(&places, |f| f.file_writes).first().or(places.first()).copied()
}

fn files_places(all: &[Figures]) -> Vec<&Figures> {
    equals(&ranked(all, files_rate)).iter().map(|(figures, _)| *figures).collect()
}

/// Those that take the fewest device writes, if they are fewer than all.
fn fewest<'f>(places: &[&'f Figures], writes: Of) -> Vec<&'f Figures> {
    let counts = || places.iter().filter_map(|place| Some((*place, writes(place)?.median)));
    let least = counts().map(|(_, count)| count).fold(f64::INFINITY, f64::min);
    let few: Vec<&Figures> =
        counts().filter(|(_, count)| *count <= least * CLEAR_RATIO).map(|(place, _)| place).collect();
    if few.len() < places.len() { few } else { Vec::new() }
}

/// The place that is clearly faster with twenty writers, if it is not among those that are best for one.
fn better_under_load(all: &[Figures]) -> Option<(&Figures, Spread, &Figures, Spread)> {
    let places = log_places(all);
    let one = best_for_log(all)?;
    let alone = one.grouped?;
    let (busy, rate) = ranked(all, |figures| figures.grouped).into_iter().next()?;
    let is_among = places.iter().any(|place| place.name == busy.name);
    (!is_among && compare(&rate, &alone) != Sureness::Open).then_some((busy, rate, one, alone))
}

/// Where to put a queue, and what speaks against the simple answer.
pub fn choices(all: &[Figures]) -> Vec<Finding> {
    let files = "of a queue file, file and directory synced";
    let found = [
        choice("Queue in one log (Stentor)", all, log_rate, "records/s", "of 4 KiB with a sync each"),
        under_load(all),
        choice("Queue of files (Postfix, Exim, qmail)", all, files_rate, "cycles/s", files),
    ];
    found.into_iter().flatten().collect()
}

fn under_load(all: &[Figures]) -> Option<Finding> {
    if let Some((busy, rate, one, alone)) = better_under_load(all) {
        let text = format!(
            "The two ways to measure contradict: with twenty writers through one committer {} is {} as fast as {} ({} and {} \
             records/s), which is best with a sync each. A queue that is busy is better on {}.",
            busy.name,
            times(rate.median / alone.median.max(1e-9)),
            one.name,
            number(rate.median),
            number(alone.median),
            busy.name
        );
        return Some(finding("Under load", compare(&rate, &alone), text));
    }
    let ranked = ranked(all, log_rate);
    let (equal, left) = (equals(&ranked), log_places(all));
    if left.len() == equal.len() {
        return None;
    }
    let names = listed(left.iter().map(|figures| figures.name.clone()).collect(), "and");
    let rates =
        equal.iter().filter_map(|(figures, _)| Some(format!("{} {}", figures.name, number(figures.grouped?.median))));
    let text = format!(
        "With twenty writers through one committer {names} can be told from the others ({} records/s).",
        listed(rates.collect(), "and")
    );
    Some(finding("Under load", Sureness::Likely, text))
}

/// What hardly varies, however busy the machine is.
pub fn device_writes(all: &[Figures]) -> Option<Finding> {
    let counted = |of: Of| -> Option<String> {
        let mut counts: Vec<(f64, &str)> =
            ranked(all, of).iter().map(|(f, count)| (count.median, f.name.as_str())).collect();
        counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut by_count: Vec<(String, Vec<String>)> = Vec::new();
        for (count, name) in counts {
            let count = number(count);
            match by_count.last_mut().filter(|(last, _)| *last == count) {
                Some((_, names)) => names.push(name.to_owned()),
                None => by_count.push((count, vec![name.to_owned()])),
            }
        }
        let texts = by_count.into_iter().map(|(count, names)| format!("{count} on {}", listed(names, "and")));
        Some(texts.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
    };
    let logs = counted(|f| f.recycled_writes).map(|text| format!("a commit into a recycled log takes: {text}"));
    let files =
        counted(|f| f.file_writes).map(|text| format!("a queue file that is synced with its directory: {text}"));
    let both: Vec<String> = [logs, files].into_iter().flatten().collect();
    if both.is_empty() {
        return None;
    }
    let text = format!(
        "{}. On a disk that is slow by the write these decide, however busy this machine was.",
        sentence(&both.join("; "))
    );
    Some(finding("Device writes", Sureness::Fact, text))
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

/// Where to put something.
struct Where {
    names: Vec<String>,
    /// Not one of those that were measured is clearly better.
    is_open: bool,
    /// Of several those with the fewest device writes, if not all of them.
    fewest: Vec<String>,
}

impl Where {
    fn of(places: &[&Figures], all: &[(&Figures, Spread)], writes: Of) -> Option<Where> {
        let named =
            |places: &[&Figures]| -> Vec<String> { places.iter().map(|figures| figures.name.clone()).collect() };
        let names = named(places);
        let is_open = names.len() > 1 && names.len() == all.len();
        (!names.is_empty()).then(|| Where { names, is_open, fewest: named(&fewest(places, writes)) })
    }

    /// `ext4 or xfs, of which xfs takes the fewest device writes`.
    fn names(&self) -> String {
        let names = listed(self.names.clone(), "or");
        if self.fewest.is_empty() {
            return names;
        }
        let takes = if self.fewest.len() == 1 { "takes" } else { "take" };
        format!("{names}, of which {} {takes} the fewest device writes", listed(self.fewest.clone(), "and"))
    }

    fn clause(&self, what: &str) -> String {
        let names = self.names();
        if self.is_open {
            format!("for {what} no place is clearly faster ({names})")
        } else {
            format!("put {what} on {names}")
        }
    }
}

/// The conclusion in a few words: where, and with which settings. Only what is clear is advised.
pub fn summary(all: &[Figures]) -> Option<String> {
    let (by_log, by_files) = (ranked(all, log_rate), ranked(all, files_rate));
    let log = Where::of(&log_places(all), &by_log, |f| f.recycled_writes);
    let files = Where::of(&files_places(all), &by_files, |f| f.file_writes);
    let is_only = all.iter().filter(|figures| figures.is_durable).count() == 1;
    let place = match (log, files) {
        (None, None) => return None,
        (Some(one), _) | (_, Some(one)) if is_only => {
            format!("the only durable place that was measured is {}", one.names[0])
        }
        (Some(log), Some(files)) if log.names == files.names && !log.is_open => {
            format!("put the queue on {}, whether it is one log or files", log.names())
        }
        (Some(log), Some(files)) => {
            format!("{}; {}", log.clause("a queue in one log"), files.clause("a queue of files"))
        }
        (Some(log), None) => log.clause("a queue in one log"),
        (None, Some(files)) => files.clause("a queue of files"),
    };
    let load = better_under_load(all)
        .map_or(String::new(), |(busy, ..)| format!(" If it is busy, one log is better on {}.", busy.name));
    let settings = advice(all);
    let settings = if settings.is_empty() { String::new() } else { format!(" Then {}.", settings.join("; ")) };
    if vary_too_much(all) {
        return Some(format!(
            "The figures vary too much between runs to decide; as far as they go: {place}.{load}{settings}"
        ));
    }
    Some(format!("{}.{load}{settings}", sentence(&place)))
}

/// Settings that make a clear difference where they would be used.
fn advice(all: &[Figures]) -> Vec<&'static str> {
    let clear = |better: Option<Spread>, other: Option<Spread>| {
        better.zip(other).is_some_and(|(better, other)| compare(&better, &other) != Sureness::Open)
    };
    let mut settings = Vec::new();
    if let Some(place) = best_for_log(all) {
        if clear(place.recycled, place.growing) {
            settings.push("recycle the log's segments");
        }
        if clear(place.journal_many.or(place.recycled_many), log_rate(place)) {
            settings.push("let many messages share a sync");
        }
    }
    if let Some(place) = best_for_files(all) {
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
