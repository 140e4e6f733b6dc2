//! A running contestant: started here in its own folder, control group and port, or already running.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use stentor_measure::guardian::Guarded;
use stentor_measure::usage::{Group, SyncCount, Tree, signal};
use stentor_measure::{Guardian, MeasureError, Place, Stop};

use super::definition::{Definition, Values};
use crate::load;

const LOOK_EVERY: Duration = Duration::from_millis(20);
const GREETING_S_MAX: u64 = 5;
const END_S_MAX: f64 = 30.0;
const TAIL_BYTES: usize = 800;

/// What all contestants of a comparison share.
pub(super) struct Surroundings<'a> {
    pub sink: SocketAddr,
    pub stentor: String,
    pub counts_syncs: bool,
    pub stop: &'a Stop,
}

pub(super) struct Running {
    pub name: String,
    pub target: SocketAddr,
    pub tree: Tree,
    pub syncs: Option<SyncCount>,
    pub place: Option<Place>,
    stop: Vec<String>,
    child: Option<Child>,
    folder: PathBuf,
    /// None where there is no shell.
    _guarded: Option<Guarded>,
}

impl Running {
    /// Starts it within `folder`, which is its own, or finds one that runs already.
    pub fn start(
        definition: &Definition,
        folder: &Path,
        with_sync: bool,
        around: &Surroundings<'_>,
    ) -> Result<Running, MeasureError> {
        if definition.start.is_empty() {
            return given(definition, around);
        }
        fs::create_dir(folder).map_err(MeasureError::file(folder))?;
        let values = Values {
            dir: folder.display().to_string(),
            port: free_port()?.to_string(),
            sink_host: around.sink.ip().to_string(),
            sink_port: around.sink.port().to_string(),
            stentor: around.stentor.clone(),
        };
        write_files(definition, folder, with_sync, &values)?;
        prepare(definition, folder, &values)?;
        let place = Place::of(folder).map_err(MeasureError::file(folder))?;
        let device = place.device.as_ref().map(|device| device.number.as_str());
        // Without control groups (no root) the process tree is walked.
        let group = Group::make(&definition.name, device).ok();
        let syncs = around.counts_syncs.then(|| SyncCount::new(folder.join("syncs")));
        let command = command(definition, with_sync, &values, group.as_ref(), syncs.as_ref());
        let child = spawn(&command, definition, folder)?;
        let guarded = Guardian::shared().and_then(|guardian| guardian.guard(&format!("kill -9 -{}", child.id()))).ok();
        let tree = group.map_or(Tree::Processes(child.id()), Tree::Group);
        let targets = load::targets(&[values.fill(&definition.target)]).map_err(MeasureError::Refused)?;
        let mut running = Running {
            name: definition.name.clone(),
            target: targets[0],
            tree,
            syncs,
            place: Some(place),
            stop: definition.stop.iter().map(|word| values.fill(word)).collect(),
            child: Some(child),
            folder: folder.to_owned(),
            _guarded: guarded,
        };
        running.wait_ready(definition.ready_s_max, around.stop)?;
        Ok(running)
    }

    fn wait_ready(&mut self, most_s: f64, stop: &Stop) -> Result<(), MeasureError> {
        let begin = Instant::now();
        loop {
            if stop.is_set() {
                return Err(MeasureError::Stopped);
            }
            if greets(self.target) {
                return Ok(());
            }
            let has_ended = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
            if has_ended || begin.elapsed().as_secs_f64() > most_s {
                let what = if has_ended { "has ended" } else { "sends no greeting" };
                let (name, target, said) = (&self.name, self.target, tail(&self.folder.join("output")));
                return Err(MeasureError::Refused(format!("{name} {what} at {target}; its output: {said}")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Ends what was started here; a second time it does nothing.
    pub fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let [program, arguments @ ..] = self.stop.as_slice() {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = command.status();
        } else {
            for pid in self.tree.pids().into_iter().filter(|pid| self.syncs.is_none() || *pid != child.id()) {
                signal(pid, Signal::TERM);
            }
        }
        let begin = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if begin.elapsed().as_secs_f64() > END_S_MAX {
                for pid in self.tree.pids() {
                    signal(pid, Signal::KILL);
                }
                let _ = child.kill();
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // What is left in the group ends with it.
        self.tree = Tree::Unknown;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// One that runs already.
fn given(definition: &Definition, around: &Surroundings<'_>) -> Result<Running, MeasureError> {
    let targets = load::targets(std::slice::from_ref(&definition.target)).map_err(MeasureError::Refused)?;
    let tree = match (&definition.cgroup, definition.pid) {
        (Some(path), _) => Tree::Group(Group::open(path).map_err(MeasureError::file(path))?),
        (None, Some(pid)) if Path::new(&format!("/proc/{pid}")).exists() => Tree::Processes(pid),
        (None, Some(pid)) => return Err(MeasureError::Refused(format!("{}: no process {pid}", definition.name))),
        (None, None) => Tree::Unknown,
    };
    let place = match &definition.queue {
        Some(queue) => Some(Place::of(queue).map_err(MeasureError::file(queue))?),
        None => None,
    };
    let pids = tree.pids();
    let mut syncs = None;
    if around.counts_syncs && !pids.is_empty() {
        let file = std::env::temp_dir().join(format!("stentor-probe-{}-{}", std::process::id(), definition.name));
        let mut count = SyncCount::new(file);
        count.watch(&pids).map_err(MeasureError::file("perf"))?;
        syncs = Some(count);
    }
    let mut running = Running {
        name: definition.name.clone(),
        target: targets[0],
        tree,
        syncs,
        place,
        stop: Vec::new(),
        child: None,
        folder: PathBuf::new(),
        _guarded: None,
    };
    running.wait_ready(definition.ready_s_max, around.stop)?;
    Ok(running)
}

fn write_files(definition: &Definition, folder: &Path, with_sync: bool, values: &Values) -> Result<(), MeasureError> {
    let mut files = definition.files.clone();
    if let Some(nosync) = definition.nosync.as_ref().filter(|_| !with_sync) {
        files.extend(nosync.files.clone());
    }
    for (name, text) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(MeasureError::file(parent))?;
        }
        fs::write(&path, values.fill(text.trim_start_matches('\n'))).map_err(MeasureError::file(&path))?;
    }
    Ok(())
}

fn prepare(definition: &Definition, folder: &Path, values: &Values) -> Result<(), MeasureError> {
    if definition.prepare.is_empty() {
        return Ok(());
    }
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &definition.prepare]).current_dir(folder).envs(values.environment()).stdin(Stdio::null());
    let done = command.output().map_err(MeasureError::file("/bin/sh"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        return Err(MeasureError::Refused(format!("{}: its preparation failed: {said}", definition.name)));
    }
    Ok(())
}

/// The command with what counts it around: perf is outside of the group.
fn command(
    definition: &Definition,
    with_sync: bool,
    values: &Values,
    group: Option<&Group>,
    syncs: Option<&SyncCount>,
) -> Vec<String> {
    let nosync = definition.nosync.as_ref().filter(|nosync| !with_sync && !nosync.start.is_empty());
    let words = nosync.map_or(&definition.start, |nosync| &nosync.start);
    let mut command: Vec<String> = words.iter().map(|word| values.fill(word)).collect();
    let environment = environment(definition, with_sync, values);
    if !environment.is_empty() {
        // Not for the shell and perf: what is preloaded is the contestant's alone.
        let pairs = environment.into_iter().map(|(name, value)| format!("{name}={value}"));
        command = std::iter::once("/usr/bin/env".to_owned()).chain(pairs).chain(command).collect();
    }
    if let Some(group) = group {
        let mut steps: Vec<String> =
            group.entries().iter().map(|path| format!("echo $$ > {}", path.display())).collect();
        steps.push("exec \"$@\"".to_owned());
        let shell = ["/bin/sh".to_owned(), "-c".to_owned(), steps.join(" && "), "enter".to_owned()];
        command = shell.into_iter().chain(command).collect();
    }
    syncs.map_or(command.clone(), |syncs| syncs.wrap(&command))
}

fn environment(definition: &Definition, with_sync: bool, values: &Values) -> Vec<(String, String)> {
    let mut all = definition.environment.clone();
    if let Some(nosync) = definition.nosync.as_ref().filter(|_| !with_sync) {
        all.extend(nosync.environment.clone());
    }
    all.into_iter().map(|(name, value)| (name, values.fill(&value))).collect()
}

fn spawn(command: &[String], definition: &Definition, folder: &Path) -> Result<Child, MeasureError> {
    let output = folder.join("output");
    let file = fs::File::create(&output).map_err(MeasureError::file(&output))?;
    let errors = file.try_clone().map_err(MeasureError::file(&output))?;
    let mut child = Command::new(&command[0]);
    // A group of its own: Ctrl-C is ours, and we end it in order.
    child.args(&command[1..]).current_dir(folder).stdin(Stdio::null()).stdout(file).stderr(errors).process_group(0);
    child.spawn().map_err(|error| MeasureError::Refused(format!("{}: {}: {error}", definition.name, command[0])))
}

fn greets(target: SocketAddr) -> bool {
    let Ok(stream) = TcpStream::connect_timeout(&target, Duration::from_secs(GREETING_S_MAX)) else { return false };
    if stream.set_read_timeout(Some(Duration::from_secs(GREETING_S_MAX))).is_err() {
        return false;
    }
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).is_ok() && line.starts_with("220")
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16, MeasureError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| MeasureError::Refused(format!("no free port: {error}")))
}

/// The end of what it wrote.
fn tail(path: &Path) -> String {
    let text = fs::read(path).unwrap_or_default();
    let end = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_BYTES)..]).trim().to_owned();
    if end.is_empty() { "nothing".to_owned() } else { end }
}
