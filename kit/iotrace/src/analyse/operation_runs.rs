//! Runs of the same work at the same place, side by side.

use std::collections::BTreeSet;

use super::{Analysis, Group, Layer};
use crate::operation::{Access, FileState, Order, Path, Sync, Work};

/// All counted runs of one kind of operation.
#[derive(Clone)]
pub struct OperationRuns<'a> {
    /// `/srv ext4 on vda`.
    pub place: &'a str,
    /// `4 KiB`, and what else tells it from its neighbours; the system call of a program.
    pub work: String,
    pub runs: Vec<(&'a Analysis, &'a Group)>,
}

impl OperationRuns<'_> {
    pub fn label(&self) -> String {
        format!("{}, {}", self.place, self.work)
    }

    /// Calls of a program; else the work of the generator.
    pub fn is_program(&self) -> bool {
        self.runs.iter().any(|(_, group)| !group.class.is_empty())
    }

    /// The label, with what makes the figures doubtful.
    pub fn title(&self) -> String {
        let lost = if self.lost() > 0 { " (events lost)" } else { "" };
        format!("{}{lost}", self.label())
    }

    /// Events, in all runs.
    pub fn lost(&self) -> u64 {
        self.runs.iter().map(|(analysis, _)| analysis.lost_in_all()).sum()
    }

    /// One figure of each run that has operations.
    pub fn each(&self, figure: impl Fn(&Analysis, &Group) -> f64) -> Vec<f64> {
        self.runs.iter().filter(|(_, group)| !group.rows.is_empty()).map(|(a, group)| figure(a, group)).collect()
    }

    pub fn operations(&self) -> u64 {
        self.runs.iter().map(|(_, group)| group.rows.len() as u64).sum()
    }

    /// Nanoseconds of all operations, by layer, and as measured.
    pub fn layers(&self) -> [u64; Layer::COUNT] {
        let mut sums = [0; Layer::COUNT];
        for row in self.runs.iter().flat_map(|(_, group)| &group.rows) {
            for (sum, ns) in sums.iter_mut().zip(row.layers) {
                *sum += ns;
            }
        }
        sums
    }

    pub fn wall(&self) -> u64 {
        self.runs.iter().flat_map(|(_, group)| &group.rows).map(|row| row.wall_ns).sum()
    }

    /// The run whose operations took the median time.
    pub fn median_run(&self) -> Option<&Group> {
        let mut runs: Vec<&Group> = self.runs.iter().map(|(_, group)| *group).filter(|g| !g.rows.is_empty()).collect();
        runs.sort_by_key(|group| group.rows.iter().map(|row| row.wall_ns).sum::<u64>() / group.rows.len() as u64);
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

/// A program's calls that took less than this share of its time in calls are in the tables alone.
const CLASS_SHARE_MIN: f64 = 0.001;

/// Those worth a sentence and a picture: of a program not every call.
pub fn worth_telling<'a>(merged: &[OperationRuns<'a>]) -> Vec<OperationRuns<'a>> {
    let whole: u64 = merged.iter().map(OperationRuns::wall).sum();
    let is_worth = |one: &OperationRuns<'_>| {
        one.operations() > 0 && (!one.is_program() || one.wall() as f64 >= CLASS_SHARE_MIN * whole as f64)
    };
    merged.iter().filter(|one| is_worth(one)).cloned().collect()
}

/// In the order in which they were measured; of a program the calls that took longest first.
pub fn merge(analyses: &[Analysis]) -> Vec<OperationRuns<'_>> {
    let varies = WorkDifferences::of(analyses);
    let mut all: Vec<(Key<'_>, OperationRuns<'_>)> = Vec::new();
    for analysis in analyses {
        for group in &analysis.groups {
            let key =
                (analysis.name.as_str(), analysis.work, analysis.scope.as_str(), analysis.buffer_kib, &*group.class);
            if let Some((_, merged)) = all.iter_mut().find(|(known, _)| *known == key) {
                merged.runs.push((analysis, group));
            } else {
                let work = varies.label(analysis, group);
                all.push((key, OperationRuns { place: &analysis.name, work, runs: vec![(analysis, group)] }));
            }
        }
    }
    let mut all: Vec<OperationRuns<'_>> = all.into_iter().map(|(_, merged)| merged).collect();
    if all.iter().all(OperationRuns::is_program) {
        all.sort_by_key(|merged| std::cmp::Reverse(merged.wall()));
    }
    all
}

type Key<'a> = (&'a str, Option<Work>, &'a str, u32, &'a str);

/// What of a work has to be said to tell it from the others.
#[derive(Default)]
struct WorkDifferences {
    access: bool,
    order: bool,
    path: bool,
    sync: bool,
    file: bool,
    scope: bool,
    buffer: bool,
}

impl WorkDifferences {
    fn of(analyses: &[Analysis]) -> WorkDifferences {
        let Some(first) = analyses.first() else { return WorkDifferences::default() };
        let mut varies = WorkDifferences::default();
        for one in analyses {
            varies.scope |= one.scope != first.scope;
            varies.buffer |= one.buffer_kib != first.buffer_kib;
            if let (Some(a), Some(b)) = (one.work, first.work) {
                varies.access |= a.access != b.access;
                varies.order |= a.order != b.order;
                varies.path |= a.path != b.path;
                varies.sync |= a.sync != b.sync;
                varies.file |= a.file != b.file;
            }
        }
        varies
    }

    fn label(&self, analysis: &Analysis, group: &Group) -> String {
        let mut words = Vec::new();
        match analysis.work {
            None => words.push(group.class.clone()),
            Some(work) => {
                words.push(octets(work.size));
                let mut say = |whether: bool, word: &str| words.extend(whether.then(|| word.to_owned()));
                say(self.access, access(work.access));
                say(self.order, order(work.order));
                say(self.path, path(work.path));
                say(self.sync && work.access == Access::Write, sync(work.sync));
                say(self.file, file(work.file));
            }
        }
        words.extend(self.scope.then(|| format!("scope {}", analysis.scope)));
        words.extend(self.buffer.then(|| format!("{} KiB buffer", analysis.buffer_kib)));
        words.join(" ")
    }
}

/// Names that tell them apart, as short as that allows.
pub fn labels(merged: &[OperationRuns<'_>]) -> Vec<String> {
    // One place, or one work: said once, in the title.
    let alike = |of: fn(&OperationRuns<'_>) -> String| merged.iter().map(of).all(|name| name == of(&merged[0]));
    match (alike(|one| one.place.to_owned()), alike(|one| one.work.clone())) {
        (true, _) => merged.iter().map(|one| one.work.clone()).collect(),
        (false, true) => places(merged),
        (false, false) => {
            places(merged).iter().zip(merged).map(|(place, one)| format!("{place}, {}", one.work)).collect()
        }
    }
}

/// `ext4 on vda`, or with the directory where that says the same of two.
fn places(merged: &[OperationRuns<'_>]) -> Vec<String> {
    let count = |names: BTreeSet<String>| names.len();
    let is_clear = count(merged.iter().map(|one| short(one.place)).collect())
        == count(merged.iter().map(|one| one.place.to_owned()).collect());
    merged.iter().map(|one| if is_clear { short(one.place) } else { one.place.to_owned() }).collect()
}

/// `ext4 on vda` of `/srv/mail ext4 on vda`.
fn short(place: &str) -> String {
    let words: Vec<&str> = place.split(' ').collect();
    match words.as_slice() {
        [.., file_system, "on", device] => format!("{file_system} on {device}"),
        _ => place.to_owned(),
    }
}

pub fn octets(size: u32) -> String {
    match size {
        size if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Write => "write",
        Access::Read => "read",
    }
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Sequential => "sequential",
        Order::Random => "random",
    }
}

fn path(path: Path) -> &'static str {
    match path {
        Path::Buffered => "buffered",
        Path::Direct => "direct",
    }
}

fn sync(sync: Sync) -> &'static str {
    match sync {
        Sync::None => "no sync",
        Sync::Fsync => "fsync",
        Sync::Fdatasync => "fdatasync",
        Sync::Dsync => "O_DSYNC",
    }
}

fn file(file: FileState) -> &'static str {
    match file {
        FileState::New => "new file",
        FileState::Growing => "growing",
        FileState::Preallocated => "preallocated",
        FileState::Recycled => "recycled",
    }
}

/// `4 KiB write, fdatasync, growing file`: the work in full.
pub fn in_full(work: &Work) -> String {
    let mut words = vec![octets(work.size), order(work.order).to_owned(), access(work.access).to_owned()];
    words.extend((work.path == Path::Direct).then(|| "direct".to_owned()));
    words.extend((work.access == Access::Write).then(|| sync(work.sync).to_owned()));
    words.push(file(work.file).to_owned());
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&'static str]) -> Vec<String> {
        let merged: Vec<OperationRuns<'_>> = names
            .iter()
            .enumerate()
            .map(|(at, place)| OperationRuns { place, work: format!("{} KiB", 4 << (at / 2)), runs: Vec::new() })
            .collect();
        labels(&merged)
    }

    #[test]
    fn labels_are_short_as_long_as_they_differ() {
        let two = ["/srv/a ext4 on vda", "/mnt xfs on loop1"];
        assert_eq!(named(&two), ["ext4 on vda", "xfs on loop1"]);
        assert_eq!(named(&[two[0], two[1], two[0], two[1]])[2..], ["ext4 on vda, 8 KiB", "xfs on loop1, 8 KiB"]);
        let alike = ["/srv/a ext4 on vda", "/srv/b ext4 on vda"];
        assert_eq!(named(&alike), alike);
        assert_eq!(named(&[two[0], two[0], two[0]]), ["4 KiB", "4 KiB", "8 KiB"]);
        assert_eq!(named(&["dd if=/dev/zero"]), ["4 KiB"]);
    }
}
