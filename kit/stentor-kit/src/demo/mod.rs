//! `stentor-kit demo`: the server beside a simulated Internet, one post, and what happened to it.
//!
//! Promise: the server is `stentor serve`, a separate process with its journal on disk; the lab sees only its SMTP. The
//! exit code is 0 only if every subscriber at a reachable site got exactly one intact copy.

mod post;
mod progress;
mod server;
mod summary;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stentor_lab::{Lab, LabError, Mode, Scenario};
use tokio::signal::unix::{self, SignalKind};

use crate::fail;
use server::Server;

const LIST_ADDRESS: &str = "demo@lists.demo.invalid";
/// How long the demo waits for the last reachable subscriber.
const PATIENCE: Duration = Duration::from_mins(2);

#[derive(Args)]
pub struct Options {
    /// Post this message (with its header) instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    message: Option<PathBuf>,
    /// Subscribers, one address per line; the lab serves their domains.
    #[arg(long, value_name = "FILE")]
    subscribers: Option<PathBuf>,
    /// Number of subscribers to generate.
    #[arg(long, default_value_t = 2_000, conflicts_with = "subscribers")]
    count: usize,
    /// Number of sites in the simulated Internet.
    #[arg(long, default_value_t = 200)]
    sites: usize,
    /// Seed of all random choices in the lab.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Percentage of sites that are dead or hang.
    #[arg(long, default_value_t = 2.0)]
    faulty_percent: f64,
    /// Mail server program [default: the one beside this program, or in PATH].
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
    /// Keep the server's data and log here instead of in a temporary folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("lab: {0}")]
    Lab(#[from] LabError),
    #[error("server: {0}")]
    Server(String),
    #[error("no subscribers left to post to")]
    NoSubscribers,
    #[error("{0}")]
    Post(String),
    #[error("the runtime could not be started: {0}")]
    Runtime(std::io::Error),
    #[error("{} is left from an earlier demo: remove it, or choose another folder", .0.display())]
    Kept(PathBuf),
    #[error("stopped by a signal; the server was stopped too")]
    Signal,
}

pub fn run(options: &Options) -> ExitCode {
    stentor_lab::descriptors::raise();
    let temporary = std::env::temp_dir().join(format!("stentor-demo-{}", std::process::id()));
    let folder = options.keep.clone().unwrap_or_else(|| temporary.clone());
    let result = make(&folder, options.keep.is_some()).and_then(|()| {
        let result = in_runtime(options, &folder);
        if options.keep.is_none() {
            // Ours alone, made a moment ago.
            let _ = std::fs::remove_dir_all(&temporary);
        }
        result
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&error.to_string()),
    }
}

fn in_runtime(options: &Options, folder: &Path) -> Result<bool, DemoError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(DemoError::Runtime)?;
    let result = runtime.block_on(async {
        let lab = Arc::new(Lab::start_with(scenario(options)?, Mode::Full).await?);
        tokio::select! {
            shown = show(options, folder, &lab) => shown,
            // What is dropped here stops the server.
            ended = signal() => Err(ended.map_or_else(DemoError::Runtime, |()| DemoError::Signal)),
        }
    });
    // Hosts that hang hold their tasks for minutes.
    runtime.shutdown_background();
    result
}

/// Until the first signal that ends a program.
async fn signal() -> std::io::Result<()> {
    let (mut interrupt, mut terminate, mut hangup) = (
        unix::signal(SignalKind::interrupt())?,
        unix::signal(SignalKind::terminate())?,
        unix::signal(SignalKind::hangup())?,
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

/// A temporary folder is new and ours alone; one to be kept holds no demo before.
fn make(folder: &Path, is_kept: bool) -> Result<(), DemoError> {
    let failed = |source| DemoError::File { path: folder.to_owned(), source };
    if !is_kept {
        return std::fs::DirBuilder::new().mode(0o700).create(folder).map_err(failed);
    }
    let data = folder.join("data");
    if data.exists() {
        return Err(DemoError::Kept(data));
    }
    std::fs::create_dir_all(folder).map_err(failed)
}

fn scenario(options: &Options) -> Result<Scenario, DemoError> {
    let text = include_str!("../../../../examples/lab/demo.toml")
        .replace("seed = 1\n", &format!("seed = {}\n", options.seed))
        .replace("sites = 200\n", &format!("sites = {}\n", options.sites))
        .replace("faulty_share = 0.02\n", &format!("faulty_share = {}\n", options.faulty_percent / 100.0));
    Ok(Scenario::parse(&text)?)
}

async fn show(options: &Options, folder: &Path, lab: &Arc<Lab>) -> Result<bool, DemoError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DemoError::File { path, source }
    };
    let people = post::subscribers(options.subscribers.as_deref(), options.count, lab.scenario())?;
    if people.is_empty() {
        return Err(DemoError::NoSubscribers);
    }
    let file = folder.join("subscribers");
    std::fs::write(&file, people.join("\n") + "\n").map_err(failed(&file))?;
    let wire = post::message(options.message.as_deref(), LIST_ADDRESS)?;
    let server = Server::start(options.server.as_deref(), folder, LIST_ADDRESS, lab.dns_addr(), lab.smtp_port())?;
    let reachable: Vec<&String> = people.iter().filter(|person| lab.scenario().is_reachable(person)).collect();
    println!(
        "stentor {}: {} subscribers at {} sites, {} of them at sites that can be reached",
        server.version,
        people.len(),
        lab.scenario().sites().len(),
        reachable.len()
    );
    let wire: Arc<[u8]> = wire.into();
    let id = lab.recorder().expect_message(wire.clone());
    let posted = post::post(server.address, LIST_ADDRESS, wire, lab.recorder()).await?;
    progress::watch(lab, &id, reachable.len() as u64, people.len() as u64, posted.dot_us, PATIENCE).await;
    let (status, queue) =
        (server.ask(&["status"])?, server.ask(&["queue", "--sites-max", &summary::SITES_MAX.to_string()])?);
    let facts = summary::Facts {
        server_pid: server.pid(),
        status: &status,
        lab,
        queue: &queue,
        id: &id,
        posted: &posted,
        reachable: &reachable,
        subscribers: people.len(),
    };
    Ok(summary::print(&facts))
}
