//! `stentor demo`: the server and a simulated Internet in one process, one post, and what became of it.
//!
//! Promise: the server is the one that `stentor serve` runs, on a journal on the disk; the lab knows nothing of it but
//! its SMTP. The exit code is 0 only if every subscriber at a site that can be reached got exactly one intact copy.

mod post;
mod progress;
mod summary;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use stentor_lab::{Lab, LabError, Mode, Scenario};

use crate::cli::{fail, start_logging};
use crate::config::{self, LogLevel};
use crate::operator::Operator;
use crate::serve::{Server, StartError};

/// The list's own name; the lab does not serve this domain, so that nobody's subscribers are in it.
const HOSTNAME: &str = "lists.demo.invalid";
const LIST_ADDRESS: &str = "demo@lists.demo.invalid";
/// How long the demo waits for the last reachable subscriber.
const PATIENCE: Duration = Duration::from_mins(2);
/// Name of the lab's threads, by which its CPU time is told from the server's (at most 15 octets).
const LAB_THREAD: &str = "lab";

#[derive(Args)]
pub struct Options {
    /// Post this message (a whole mail, with its header) instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    message: Option<PathBuf>,
    /// These subscribers, one address a line; their domains are served by the lab.
    #[arg(long, value_name = "FILE")]
    subscribers: Option<PathBuf>,
    /// Subscribers to make up.
    #[arg(long, default_value_t = 2_000, conflicts_with = "subscribers")]
    count: usize,
    /// Sites of the simulated Internet.
    #[arg(long, default_value_t = 200)]
    sites: usize,
    /// Decides everything that is random in the lab.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Share of sites that are dead or hang, in percent.
    #[arg(long, default_value_t = 2.0)]
    faulty_percent: f64,
    /// Keep the server's data and log here instead of in a temporary folder.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the lab: {0}")]
    Lab(#[from] LabError),
    #[error("the demo's configuration: {0}")]
    Config(String),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("no subscriber is left to post to")]
    NoSubscribers,
    #[error("{0}")]
    Post(String),
    #[error("the runtime cannot be started: {0}")]
    Runtime(std::io::Error),
}

pub fn run(options: &Options) -> ExitCode {
    crate::process::raise_descriptor_limit();
    start_logging(LogLevel::Error);
    let temporary = std::env::temp_dir().join(format!("stentor-demo-{}", std::process::id()));
    let folder = options.keep.clone().unwrap_or_else(|| temporary.clone());
    let result = in_runtimes(options, &folder);
    if options.keep.is_none() {
        // Ours alone, made a moment ago.
        let _ = std::fs::remove_dir_all(&temporary);
    }
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&error.to_string()),
    }
}

/// The lab has threads of its own, as the Internet has machines of its own.
fn in_runtimes(options: &Options, folder: &Path) -> Result<bool, DemoError> {
    let lab_runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(LAB_THREAD)
        .enable_all()
        .build()
        .map_err(DemoError::Runtime)?;
    let runtime = crate::process::runtime().map_err(DemoError::Runtime)?;
    let scenario = scenario(options)?;
    let lab = lab_runtime.block_on(async { lab_runtime.spawn(Lab::start_with(scenario, Mode::Full)).await });
    let lab = Arc::new(lab.map_err(|error| DemoError::Post(error.to_string()))??);
    let result = runtime.block_on(show(options, folder, &lab));
    // Hosts that hang would hold an orderly stop up for minutes; what is on the disk is of no use any more.
    runtime.shutdown_background();
    lab_runtime.shutdown_background();
    result
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
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    let people = post::subscribers(options.subscribers.as_deref(), options.count, lab.scenario())?;
    if people.is_empty() {
        return Err(DemoError::NoSubscribers);
    }
    let file = folder.join("subscribers");
    std::fs::write(&file, people.join("\n") + "\n").map_err(failed(&file))?;
    let wire = post::message(options.message.as_deref(), LIST_ADDRESS)?;
    let mut server = Server::start(configuration(folder, lab)?).await?;
    let settings = server.core.settings();
    for name in settings.list_names() {
        let loaded = server.core.lists.refresh(&server.core, &name).await;
        loaded.map_err(|reply| DemoError::Post(reply.to_string()))?;
    }
    let (demands, _demanded) = tokio::sync::mpsc::unbounded_channel();
    let operator = Arc::new(Operator::new(server.core.clone(), demands, server.sessions_counter()));
    server.listen_control(operator.clone())?;
    let reachable: Vec<&String> = people.iter().filter(|person| lab.scenario().is_reachable(person)).collect();
    println!(
        "stentor {}: {} subscribers at {} sites, {} of them at sites that can be reached",
        env!("CARGO_PKG_VERSION"),
        people.len(),
        lab.scenario().sites().len(),
        reachable.len()
    );
    let wire: Arc<[u8]> = wire.into();
    let id = lab.recorder().expect_message(wire.clone());
    let posted = post::post(server.addresses[0], LIST_ADDRESS, wire, lab.recorder()).await?;
    progress::watch(lab, &id, reachable.len() as u64, people.len() as u64, posted.dot_us, PATIENCE).await;
    let queue = operator.queue(usize::MAX).await;
    let facts = summary::Facts {
        server: &server,
        lab,
        queue: &queue,
        id: &id,
        posted: &posted,
        reachable: &reachable,
        subscribers: people.len(),
    };
    Ok(summary::print(&facts))
}

/// As shipped, but for where the lab is.
fn configuration(folder: &Path, lab: &Lab) -> Result<config::Config, DemoError> {
    let port = free_port().map_err(DemoError::Runtime)?;
    let text = format!(
        "hostname = \"{HOSTNAME}\"\ndata_dir = \"data\"\n\
         [http]\nlisten = []\n[listen]\nsmtp = [\"127.0.0.1:{port}\"]\n\
         [lists.demo]\naddress = \"{LIST_ADDRESS}\"\nsubscribers = \"subscribers\"\n\
         owner = \"owner@example.org\"\npost = \"anyone\"\n\
         [dns]\nservers = [\"{}\"]\nloopback_allowed = true\n\
         [delivery]\nsmtp_port = {}\n\
         [log]\nattempts = \"attempts.log\"\n",
        lab.dns_addr(),
        lab.smtp_port()
    );
    let path = folder.join("stentor.toml");
    std::fs::write(&path, &text).map_err(|source| DemoError::File { path: path.clone(), source })?;
    config::check(&path).map_err(|diagnostics| {
        DemoError::Config(diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    })
}

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.local_addr()?.port())
}
