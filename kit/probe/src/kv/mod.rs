//! `stentor-kit probe kv`: the cost of keeping records in an embedded engine, and in our journal.
//!
//! Each case (engine, octets of a record, records of a transaction) starts with a new store: durable transactions of
//! inserts until `--records` or `--seconds` is reached, then look-ups in random order, then durable transactions of
//! deletes in random order. `engine` has the engines, `work` runs and times them, `report` makes tables.
//!
//! Promise: every look-up is compared with what was inserted; an engine that returns anything else is reported as
//! broken. Engines missing from this binary are listed as such.

mod engine;
mod report;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use stentor_measure::scratch::explain;
use stentor_measure::{MeasureError, OutputArgs, Place, Progress, Report, Scratch, Stop};

use crate::each_case;
use crate::trouble::{check_room, parse_bytes, parse_seconds, show_bytes};
use engine::Broken;
pub use engine::Kind;
use work::Case;

const RECORD_BYTES_MIN: u64 = 16;
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Of a transaction: what our journal takes in one batch with ease, and a fourth of its largest segment.
const TRANSACTION_BYTES_MAX: u64 = 256 << 20;
/// Room that a store may take beyond its records: freed pages, logs, segments.
const SPACE_FACTOR: u64 = 4;
const SPACE_MIB_MIN: u64 = 256;

#[derive(Args, Clone, Debug)]
pub struct KvArgs {
    /// Directory on the file system to measure.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Engines [default: all built in].
    #[arg(long, value_delimiter = ',', value_enum)]
    pub engines: Vec<Kind>,
    /// Record sizes in octets, separated by commas: 512,4K,64K.
    #[arg(long, value_delimiter = ',', default_value = "4K", value_parser = record_bytes, value_name = "BYTES")]
    pub record_bytes: Vec<u64>,
    /// Records per transaction.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub per_transaction: Vec<u64>,
    /// Maximum of records inserted in a case.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub records: u64,
    /// Maximum duration of each phase: inserts, look-ups, deletes.
    #[arg(long, alias = "time-max-s", default_value_t = 0.12, value_name = "SECONDS", value_parser = parse_seconds)]
    pub seconds: f64,
    #[command(flatten)]
    pub output: OutputArgs,
}

fn record_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if !(RECORD_BYTES_MIN..=RECORD_BYTES_MAX).contains(&bytes) {
        return Err("a record has 16 octets to 16M".to_owned());
    }
    Ok(bytes)
}

pub fn run(args: &KvArgs) -> Result<(), MeasureError> {
    crate::run_measure(&args.output, |stop, progress| measure(args, stop, progress))
}

/// Measures all cases that the options ask for.
pub fn measure(args: &KvArgs, stop: &Stop, progress: &mut Progress) -> Result<Report, MeasureError> {
    let cases = cases(args)?;
    let scratch = Scratch::make_or_explain(&args.directory)?;
    let place = Place::of(&args.directory).map_err(MeasureError::file(&args.directory))?;
    let largest = args.record_bytes.iter().max().copied().unwrap_or(0) * args.records;
    check_room(&place, SPACE_MIB_MIN + SPACE_FACTOR * (largest >> 20), "--records or --record-bytes")?;
    let device = place.device.clone();
    let mut report = report::begin(args, place);
    let all = each_case(&cases, Case::name, args.output.runs, &scratch, stop, progress, |case, folder| {
        work::run(case, args, folder, device.as_ref(), stop).map_err(|broken| failed(args, case, &broken))
    })?;
    report::fill(&mut report, &all);
    Ok(report)
}

fn failed(args: &KvArgs, case: &Case, broken: &Broken) -> MeasureError {
    if broken.is_full() {
        return explain(&args.directory, std::io::ErrorKind::StorageFull.into());
    }
    MeasureError::Refused(format!("{}: {broken}; exclude it with --engines", case.name()))
}

fn not_built_in(kind: Kind) -> String {
    format!("{} is not built in; build with: cargo build --release -p stentor-kit --features engines", kind.name())
}

fn cases(args: &KvArgs) -> Result<Vec<Case>, MeasureError> {
    let refused = |why: String| Err(MeasureError::Refused(why));
    if let Some(kind) = args.engines.iter().find(|kind| !kind.is_built_in()) {
        return refused(not_built_in(*kind));
    }
    let chosen = |kind: &Kind| kind.is_built_in() && (args.engines.is_empty() || args.engines.contains(kind));
    let mut cases = Vec::new();
    for &record_bytes in &args.record_bytes {
        for &per_transaction in &args.per_transaction {
            if record_bytes * per_transaction > TRANSACTION_BYTES_MAX {
                return refused(format!(
                    "{per_transaction} records of {} exceed 256M per transaction: choose smaller ones",
                    show_bytes(record_bytes)
                ));
            }
            let all = Kind::ALL.into_iter().filter(chosen);
            cases.extend(all.map(|kind| Case { kind, record_bytes, per_transaction }));
        }
    }
    Ok(cases)
}

fn time_max(args: &KvArgs) -> Duration {
    Duration::from_secs_f64(args.seconds)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: KvArgs,
    }

    fn args(line: &str) -> KvArgs {
        Line::parse_from(line.split_whitespace()).args
    }

    #[test]
    fn all_built_in_engines_by_default_and_refusals_with_a_remedy() {
        let built_in = Kind::ALL.into_iter().filter(|kind| kind.is_built_in()).count();
        assert_eq!(cases(&args("kv")).unwrap().len(), 3 * built_in);
        assert_eq!(cases(&args("kv --engines journal --record-bytes 512,4K --per-transaction 1")).unwrap().len(), 2);
        let said = |line: &str| cases(&args(line)).unwrap_err().to_string();
        assert!(said("kv --record-bytes 16M --per-transaction 100").contains("256M"));
        assert!(Line::try_parse_from(["kv", "--seconds", "0"]).is_err());
        for kind in Kind::ALL.into_iter().filter(|kind| !kind.is_built_in()) {
            assert_eq!(said(&format!("kv --engines {}", kind.name().to_ascii_lowercase())), not_built_in(kind));
        }
        assert!(not_built_in(Kind::Redb).ends_with("-p stentor-kit --features engines"));
        assert!(Line::try_parse_from(["kv", "--record-bytes", "3"]).is_err());
    }

    #[test]
    fn a_small_measurement_is_whole() {
        let home = tempfile::tempdir().unwrap();
        let line = format!("kv {} --records 40 --per-transaction 4 --runs 1 --seconds 60", home.path().display());
        let report = measure(&args(&line), &Stop::never(), &mut Progress::quiet()).unwrap();
        let json = report.to_json();
        let rows = json["tables"]["kv"].as_array().unwrap();
        let built_in = Kind::ALL.into_iter().filter(|kind| kind.is_built_in()).count();
        assert_eq!(rows.len(), 3 * built_in);
        assert!(rows.iter().all(|row| row["records_per_s"]["median"].as_f64().unwrap() > 0.0), "{json:#}");
        assert_eq!(json["tables"]["engines"].as_array().unwrap().len(), Kind::ALL.len());
        let spaces = json["tables"]["space"].as_array().unwrap();
        assert!(spaces.iter().all(|row| row["records"] == 40), "{spaces:#?}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
