//! The figures that stand side by side: some for each place, from the parts' tables.

use stentor_measure::{Place, Report, Spread};

use super::parts::Parts;
use super::plan::{MANY, RECORD_BYTES, WRITERS};

/// A figure is missing where its part was not measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Figures {
    /// `ext4`, or a directory.
    pub name: String,
    /// False for what a power cut takes away, as tmpfs: only a bound.
    pub is_durable: bool,
    /// Records/s of 4 KiB, a sync after each: into a growing file, a recycled one, Stentor's journal.
    pub growing: Option<Spread>,
    pub recycled: Option<Spread>,
    pub journal: Option<Spread>,
    /// The same with a sync after a hundred.
    pub recycled_many: Option<Spread>,
    pub journal_many: Option<Spread>,
    /// Twenty writers: each with syncs of its own, and through one committer that waits as Stentor's; device writes a
    /// record.
    pub alone: Option<Spread>,
    pub grouped: Option<Spread>,
    pub alone_writes: Option<Spread>,
    pub grouped_writes: Option<Spread>,
    pub sync_p50_us: Option<Spread>,
    pub sync_p99_us: Option<Spread>,
    /// Device writes of a commit.
    pub growing_writes: Option<Spread>,
    pub recycled_writes: Option<Spread>,
    /// Cycles/s of queue files: nothing synced, the file, file and directory; and of the latter: with reused files,
    /// with hashed directories, by twenty processes.
    pub files_unsynced: Option<Spread>,
    pub files_file: Option<Spread>,
    pub files: Option<Spread>,
    pub files_reused: Option<Spread>,
    pub files_hashed: Option<Spread>,
    pub files_many: Option<Spread>,
    pub file_writes: Option<Spread>,
    /// Durable inserts/s of 4 KiB by engine, one a transaction and a hundred.
    pub engines: Vec<(String, Option<Spread>, Option<Spread>)>,
    /// MiB/s in calls of 1 MiB.
    pub write_sync_mib: Option<Spread>,
    pub read_mib: Option<Spread>,
}

fn table_figure(report: Option<&Report>, table: &str, keys: &[(&str, &str)], column: &str) -> Option<Spread> {
    report?.tables.iter().find(|one| one.name == table)?.figure(keys, column)
}

pub fn of(name: &str, place: &Place, parts: &Parts) -> Figures {
    let log = |way: &str, file: &str, per_sync: &str, table: &str, column: &str| {
        let keys = [("per_sync", per_sync), ("record_bytes", RECORD_BYTES), ("file", file), ("way", way)];
        let report = if way == "journal" { &parts.journal } else { &parts.log };
        table_figure(report.as_ref(), table, &keys, column)
    };
    let rate = |way: &str, file: &str, per_sync: &str| {
        log(way, file, per_sync, "cost", "syncs_per_s").map(|spread| {
            let records: f64 = per_sync.parse().unwrap_or(1.0);
            Spread { median: spread.median * records, min: spread.min * records, max: spread.max * records, ..spread }
        })
    };
    let group = |table: &str, column: &str| {
        let keys = [("writers", WRITERS), ("record_bytes", RECORD_BYTES), ("file", "recycled"), ("way", "pwrite")];
        table_figure(parts.log.as_ref(), table, &keys, column)
    };
    let files = |names: &str, depth: &str, processes: &str, sync: &str, column: &str| {
        let keys = [("names", names), ("hash_depth", depth), ("processes", processes), ("sync", sync)];
        table_figure(parts.fs.as_ref(), "cycles", &keys, column)
    };
    let cycles =
        |names: &str, depth: &str, processes: &str, sync: &str| files(names, depth, processes, sync, "cycles_per_s");
    let raw = |column: &str| table_figure(parts.raw.as_ref(), "rates", &[("block_bytes", "1048576")], column);
    Figures {
        name: name.to_owned(),
        is_durable: !matches!(place.file_system.as_str(), "tmpfs" | "ramfs"),
        growing: rate("pwrite", "growing", "1"),
        recycled: rate("pwrite", "recycled", "1"),
        journal: rate("journal", "segments", "1"),
        recycled_many: rate("pwrite", "recycled", MANY),
        journal_many: rate("journal", "segments", MANY),
        alone: group("group", "alone_records_per_s"),
        grouped: group("group", "paced_records_per_s"),
        alone_writes: group("group-cost", "alone_device_writes_per_record"),
        grouped_writes: group("group-cost", "paced_device_writes_per_record"),
        sync_p50_us: log("journal", "segments", "1", "log", "sync_p50_us")
            .or_else(|| log("pwrite", "recycled", "1", "log", "sync_p50_us")),
        sync_p99_us: log("journal", "segments", "1", "log", "sync_p99_us")
            .or_else(|| log("pwrite", "recycled", "1", "log", "sync_p99_us")),
        growing_writes: log("pwrite", "growing", "1", "cost", "device_writes_per_commit"),
        recycled_writes: log("pwrite", "recycled", "1", "cost", "device_writes_per_commit"),
        files_unsynced: cycles("new", "0", "1", "none"),
        files_file: cycles("new", "0", "1", "file"),
        files: cycles("new", "0", "1", "both"),
        files_reused: cycles("reused", "0", "1", "both"),
        files_hashed: cycles("new", "1", "1", "both"),
        files_many: cycles("new", "0", WRITERS, "both"),
        file_writes: files("new", "0", "1", "both", "device_writes_per_file"),
        engines: engines(parts),
        write_sync_mib: raw("write_sync_mib_per_s"),
        read_mib: raw("read_mib_per_s"),
    }
}

fn engines(parts: &Parts) -> Vec<(String, Option<Spread>, Option<Spread>)> {
    crate::kv::Kind::ALL
        .into_iter()
        .filter(|kind| kind.is_built_in())
        .map(|kind| {
            let rate = |lot: &str| {
                let keys = [("engine", kind.name()), ("step", "insert"), ("per_transaction", lot)];
                table_figure(parts.kv.as_ref(), "kv", &keys, "records_per_s")
            };
            (kind.name().to_owned(), rate("1"), rate(MANY))
        })
        .collect()
}
