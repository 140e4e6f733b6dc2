//! `stentor-kit probe suite`: all storage measurements at several places, side by side on one page.
//!
//! Places are given directories or, with `--loop`, temporary file systems on loop devices (`stentor_measure::loopfs`).
//! Each part (log, fs, kv, raw) covers all places before the next one begins, so that other load on the machine affects
//! all of them; `ipc` needs no place and is measured once.
//!
//! A part that fails at a place (no space, an engine that breaks) is left out and named, and the others continue; the
//! command then ends with an error, after its page. With `--out` each part is written as soon as it is measured.
//!
//! `plan` has the selection, `parts` measures it, `figures` takes from the parts' tables what stands side by side,
//! `report` has tables and charts over all places, `caveats` how far they can be trusted, `page` the HTML file.
//!
//! Promise: however it ends, nothing stays mounted or attached: on Ctrl-C we clean up, on kill -9 the guardian.

mod caveats;
mod figures;
mod page;
mod parts;
mod plan;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use stentor_measure::loopfs::{Kind, LoopFs, LoopOptions, SIZE_MIB_MIN};
use stentor_measure::output::check_folder;
use stentor_measure::{BackgroundLoad, Guardian, MeasureError, OutputArgs, Place, Progress, Report, Stop};

use figures::Figures;
use parts::{Part, Parts};
use plan::Plan;

const LOOP_MIB: u64 = 768;
const PAGE_NAME: &str = "probe-suite.html";

#[derive(Args, Clone, Debug)]
pub struct SuiteArgs {
    /// Directories to measure [default: the current one, without --loop].
    #[arg(value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Make file systems on loop devices and measure them (root).
    #[arg(long = "loop")]
    pub on_loop: bool,
    /// File systems for --loop.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "ext4,xfs,btrfs,tmpfs")]
    pub file_systems: Vec<Kind>,
    /// Folder for the files of the loop devices, on the disk to be used.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub loop_dir: PathBuf,
    /// Size of each file system.
    #[arg(long, default_value_t = LOOP_MIB, value_parser = clap::value_parser!(u64).range(SIZE_MIB_MIN..=1 << 20))]
    pub loop_mib: u64,
    /// Mount options on loop devices (not tmpfs): noatime.
    #[arg(long, value_name = "OPTIONS")]
    pub mount_options: Option<String>,
    /// Limit writes per second on each loop device, to emulate a slow disk (control groups version 1).
    #[arg(long, value_name = "WRITES_PER_S", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub throttle: Option<u32>,
    /// Measure more and longer.
    #[arg(long)]
    pub thorough: bool,
    /// File for the page [default: in the folder of --out, or the current one].
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// A place and what was measured there.
pub struct PlaceMeasurement {
    /// `ext4`, `ext4 (loop)` beside directories, or the directory.
    pub name: String,
    pub place: Place,
    pub parts: Parts,
    /// Where in `--out` its parts are written: `ext4`, `srv-mail`.
    folder: String,
}

/// All of it.
pub struct Suite {
    pub places: Vec<PlaceMeasurement>,
    pub ipc: Option<Report>,
    pub figures: Vec<Figures>,
    pub on_loop: bool,
    /// What could not be measured: where, what, why.
    pub failures: Vec<String>,
}

pub fn run(args: &SuiteArgs) -> Result<(), MeasureError> {
    let stop = Stop::on_signals().map_err(MeasureError::Output)?;
    let mut progress = args.output.progress();
    let (suite, report) = measure_all(args, &stop, &mut progress)?;
    progress.clear();
    let path = page_path(args);
    let written = page::of(&suite, &report).and_then(|page| fs::write(&path, page).map_err(MeasureError::file(&path)));
    args.output.finish(&report)?;
    written?;
    if !args.output.quiet {
        eprintln!("the page is {}", path.display());
    }
    match suite.failures.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(MeasureError::Refused(format!(
            "{} of the parts could not be measured; the report covers the others: {first}",
            suite.failures.len()
        ))),
    }
}

fn measure_all(args: &SuiteArgs, stop: &Stop, progress: &mut Progress) -> Result<(Suite, Report), MeasureError> {
    check(args)?;
    let mut report = report::begin(args);
    let background = BackgroundLoad::begin();
    let guardian = Guardian::shared().map_err(MeasureError::file("sh"))?;
    let loops = loops(args, &guardian, stop, progress)?;
    let mut places = Vec::new();
    for fs in &loops {
        let name = fs.kind.name();
        let name = if args.directories.is_empty() { name.to_owned() } else { format!("{name} (loop)") };
        places.push(at(name, &fs.path(), &places)?);
    }
    let plain =
        if args.directories.is_empty() && !args.on_loop { vec![PathBuf::from(".")] } else { args.directories.clone() };
    for directory in plain {
        places.push(at(directory.display().to_string(), &directory, &places)?);
    }
    let plan = Plan { runs: args.output.runs, thorough: args.thorough };
    let (count, mut done) = (Part::ALL.len() * places.len() + 1, 0);
    let mut failures = Vec::new();
    for part in Part::ALL {
        for measured in &mut places {
            done += 1;
            progress.part(&format!("part {done} of {count}: {} on {}", part.name(), measured.name));
            let directory = measured.place.directory.display().to_string();
            let outcome = part.measure(plan, &directory, stop, progress);
            if let Some(report) = or_failure(outcome, &measured.name, part.name(), &mut failures)? {
                if let Err(error) = write_part(args, &measured.folder, &report) {
                    failures.push(format!("{} on {} is missing in the files: {error}", part.name(), measured.name));
                }
                measured.parts.put(part, report);
            }
        }
    }
    progress.part(&format!("part {count} of {count}: ipc"));
    let outcome = crate::ipc::measure(&plan.ipc()?, stop, progress);
    let ipc = or_failure(outcome, "this machine", "ipc", &mut failures)?;
    if let Some(report) = &ipc
        && let Err(error) = write_part(args, "", report)
    {
        failures.push(format!("ipc is missing in the files: {error}"));
    }
    if places.iter().all(|measured| measured.parts.all().next().is_none()) {
        return Err(MeasureError::Refused(failures.swap_remove(0)));
    }
    progress.part("removing the file systems");
    drop(loops);
    let figures = places.iter().map(|one| figures::of(&one.name, &one.place, &one.parts)).collect();
    let on_loop = args.on_loop;
    let suite = Suite { places, ipc, figures, on_loop, failures };
    background.end(&mut report.machine);
    report::fill(&mut report, &suite);
    Ok((suite, report))
}

fn check(args: &SuiteArgs) -> Result<(), MeasureError> {
    let refused = |why: &str| Err(MeasureError::Refused(why.to_owned()));
    if !args.on_loop && (args.throttle.is_some() || args.mount_options.is_some()) {
        return refused("--throttle and --mount-options need --loop");
    }
    if args.file_systems.is_empty() {
        return refused("--file-systems: give at least one of ext4, xfs, btrfs, tmpfs");
    }
    if args.on_loop && !rustix::process::geteuid().is_root() {
        return refused("--loop mounts file systems, which needs root: run it with sudo, or give directories instead");
    }
    for directory in &args.directories {
        if !directory.is_dir() {
            return Err(MeasureError::Refused(format!("{} is not a directory; create it first", directory.display())));
        }
    }
    // Before minutes of measuring, not after.
    let path = page_path(args);
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(PathBuf::from("."), PathBuf::from);
    if !folder.is_dir() {
        return Err(MeasureError::Refused(format!("{}: its folder does not exist; create it first", path.display())));
    }
    check_folder(&folder)
}

fn page_path(args: &SuiteArgs) -> PathBuf {
    match (&args.page, &args.output.out) {
        (Some(path), _) => path.clone(),
        (None, Some(folder)) => folder.join(PAGE_NAME),
        (None, None) => PathBuf::from(PAGE_NAME),
    }
}

fn loops(
    args: &SuiteArgs,
    guardian: &std::sync::Arc<Guardian>,
    stop: &Stop,
    progress: &mut Progress,
) -> Result<Vec<LoopFs>, MeasureError> {
    let mut made: Vec<LoopFs> = Vec::new();
    if !args.on_loop {
        return Ok(made);
    }
    for &kind in &args.file_systems {
        if made.iter().any(|fs| fs.kind == kind) {
            continue;
        }
        progress.part(&format!("creating {} of {} MiB", kind.name(), args.loop_mib));
        let disk = kind != Kind::Tmpfs;
        let options = LoopOptions {
            kind,
            size_mib: args.loop_mib,
            mount_options: args.mount_options.clone().filter(|_| disk),
            writes_per_s_max: args.throttle.filter(|_| disk),
        };
        made.push(LoopFs::make(&options, &args.loop_dir, guardian, stop)?);
    }
    Ok(made)
}

fn at(name: String, directory: &Path, others: &[PlaceMeasurement]) -> Result<PlaceMeasurement, MeasureError> {
    let place = Place::of(directory).map_err(MeasureError::file(directory))?;
    let mut folder = folder_name(&name);
    while others.iter().any(|other| other.folder == folder) {
        folder.push('-');
    }
    Ok(PlaceMeasurement { name, place, parts: Parts::default(), folder })
}

/// `/srv/mail` as `srv-mail`.
fn folder_name(name: &str) -> String {
    let plain = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let plain = plain.collect::<Vec<_>>().join("-");
    if plain.is_empty() { "here".to_owned() } else { plain }
}

/// A part that failed is remembered; an end by a signal ends all.
fn or_failure(
    outcome: Result<Report, MeasureError>,
    place: &str,
    part: &str,
    failures: &mut Vec<String>,
) -> Result<Option<Report>, MeasureError> {
    match outcome {
        Ok(report) => Ok(Some(report)),
        Err(MeasureError::Stopped) => Err(MeasureError::Stopped),
        Err(error) => {
            failures.push(format!("{part} on {place}: {error}"));
            Ok(None)
        }
    }
}

/// JSON, CSV and pictures of a part, in a folder of its place below `--out`.
fn write_part(args: &SuiteArgs, folder: &str, report: &Report) -> Result<(), MeasureError> {
    let Some(out) = &args.output.out else { return Ok(()) };
    let output = OutputArgs { out: Some(out.join(folder)), ..args.output.clone() };
    output.write(report).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_folders_of_their_own() {
        assert_eq!(
            ["ext4", "ext4 (loop)", "/srv/mail", "."].map(folder_name),
            ["ext4", "ext4-loop", "srv-mail", "here"]
        );
        let here = Path::new(".");
        let first = at("/a/b".to_owned(), here, &[]).unwrap();
        assert_eq!(at("a-b".to_owned(), here, &[first]).unwrap().folder, "a-b-");
    }

    #[test]
    fn what_fails_is_named_and_a_signal_ends_all() {
        let mut failures = Vec::new();
        let full = Err(MeasureError::Refused("no room".to_owned()));
        assert!(or_failure(full, "xfs", "kv", &mut failures).unwrap().is_none());
        assert_eq!(failures, ["kv on xfs: no room"]);
        assert!(or_failure(Err(MeasureError::Stopped), "xfs", "kv", &mut failures).is_err());
    }
}
