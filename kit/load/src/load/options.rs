//! Options of `stentor-kit lab source`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::arrivals::Arrivals;
use super::content::{Content, Sizes};
use super::people::{Count, People};
use super::plan::{Pipelining, Plan};
use super::wire::Tls;
use crate::address::Sources;
use crate::output::OnceArgs;

const DEFAULT_MESSAGES: u64 = 1000;

#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// Targets, HOST:PORT, used in turn.
    #[arg(required = true)]
    pub target: Vec<String>,
    /// Number of concurrent connections.
    #[arg(long, default_value_t = 10)]
    pub connections: usize,
    /// Number of threads to share the connections; one saturates a server on two processors.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Total number of messages [default: 1000, or unlimited with --seconds].
    #[arg(long)]
    pub messages: Option<u64>,
    /// Begin no message after this many seconds.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Do not count the first N seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub warm_up: f64,
    /// Messages per session, then QUIT [default: unlimited].
    #[arg(long, value_name = "MESSAGES")]
    pub per_session: Option<u64>,
    /// Use one session per message.
    #[arg(long, conflicts_with = "per_session")]
    pub session_each: bool,
    /// Total number of sessions; with `--per-session` this is the number of messages.
    #[arg(long, conflicts_with = "messages")]
    pub sessions: Option<u64>,
    /// Message size in octets: 4096, 64K, uniform:1K-64K, lognormal:8K,1.2 (median, sigma; a third number is the cap).
    #[arg(long, alias = "size-bytes", default_value = "4096")]
    pub size: String,
    /// Send these files (converted to CRLF) in turn; for a folder or maildir, all files in it.
    #[arg(long, value_name = "PATH")]
    pub message: Vec<PathBuf>,
    /// Envelope sender.
    #[arg(long, default_value = "source@source.lab")]
    pub from: String,
    /// Recipients, used in turn.
    #[arg(long, default_value = "sink@sink.lab")]
    pub to: Vec<String>,
    /// A file of recipients instead of `--to`, one per line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "recipients"])]
    pub to_file: Option<PathBuf>,
    /// Draw recipients at random from this many.
    #[arg(long, value_name = "NUMBER", conflicts_with = "to")]
    pub recipients: Option<u64>,
    /// Number of domains of these recipients.
    #[arg(long, default_value_t = 200, requires = "recipients")]
    pub domains: u64,
    /// Recipients per message: a number, or a range to draw from (1-20).
    #[arg(long, default_value = "1")]
    pub recipients_per_message: String,
    /// Commands to send without waiting for a reply.
    #[arg(long, value_enum, default_value = "offered")]
    pub pipelining: Pipelining,
    /// Same as `--pipelining off`.
    #[arg(long)]
    pub no_pipelining: bool,
    /// Encrypt sessions; certificates are not verified.
    #[arg(long, value_enum, default_value = "off")]
    pub tls: Tls,
    /// Resume TLS sessions by ticket instead of a full handshake each.
    #[arg(long)]
    pub tls_resume: bool,
    /// Send no messages: QUIT after EHLO, counted as an accepted message.
    #[arg(long, requires = "session_each")]
    pub greet_only: bool,
    /// Use BDAT where offered.
    #[arg(long)]
    pub bdat: bool,
    /// Send RSET before each further message of a session.
    #[arg(long)]
    pub rset: bool,
    /// Send this many messages per second, however fast the server is (open loop).
    #[arg(long)]
    pub rate: Option<f64>,
    /// Use random (Poisson) arrivals instead of even spacing.
    #[arg(long, requires = "rate")]
    pub poisson: bool,
    /// With a rate: time after the end to still begin late messages.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    pub drain: f64,
    /// Connect from these addresses in turn: 127.0.0.2-127.0.0.50, or some with commas.
    #[arg(long, value_name = "ADDRESSES")]
    pub bind: Option<String>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Timeout for any single reply.
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub timeout: f64,
    /// Text to include in the Message-IDs.
    #[arg(long, default_value = "run")]
    pub run: String,
    #[command(flatten)]
    pub output: OnceArgs,
}

impl SourceArgs {
    /// What they ask for; a refusal says what to do.
    pub fn plan(&self) -> Result<Plan, String> {
        let mut plan = Plan::new(targets(&self.target)?);
        plan.binds = self.bind.as_deref().map_or(Ok(Vec::new()), binds)?;
        plan.connections = self.connections;
        plan.threads = self.threads;
        plan.duration = self.seconds.map(|s| seconds(s, "--seconds")).transpose()?;
        plan.warm_up = seconds(self.warm_up, "--warm-up")?;
        plan.drain = seconds(self.drain, "--drain")?;
        plan.timeout = seconds(self.timeout, "--timeout")?;
        plan.messages_per_session = if self.session_each { Some(1) } else { self.per_session };
        plan.messages = match (self.messages, self.sessions) {
            (Some(messages), _) => messages,
            (None, Some(sessions)) => sessions.saturating_mul(plan.messages_per_session.unwrap_or(1)),
            (None, None) if self.seconds.is_some() => u64::MAX,
            (None, None) => DEFAULT_MESSAGES,
        };
        if self.sessions.is_some() && plan.messages_per_session.is_none() {
            return Err("--sessions needs --per-session or --session-each".to_owned());
        }
        plan.pipelining = if self.no_pipelining { Pipelining::Off } else { self.pipelining };
        (plan.tls, plan.tls_resumes, plan.greets_only) = (self.tls, self.tls_resume, self.greet_only);
        plan.chunking = self.bdat;
        plan.rset = self.rset;
        plan.sender.clone_from(&self.from);
        plan.seed = self.seed;
        plan.recipients_per_message = Count::parse(&self.recipients_per_message)?;
        plan.people = self.people()?;
        plan.arrivals = match self.rate {
            None => Arrivals::WhenFree,
            Some(rate) if self.poisson => Arrivals::Poisson(rate),
            Some(rate) => Arrivals::Constant(rate),
        };
        if self.run.bytes().any(|byte| byte <= b' ' || byte >= 127 || b"<>@".contains(&byte)) {
            return Err(format!("--run {:?}: part of a Message-ID; use letters and digits", self.run));
        }
        plan.content = self.content(&self.run)?;
        plan.check()?;
        Ok(plan)
    }

    pub(super) fn content(&self, run: &str) -> Result<Content, String> {
        if self.message.is_empty() {
            Ok(Content::made(Sizes::parse(&self.size)?, &self.from, run))
        } else {
            Content::from_paths(&self.message)
        }
    }

    fn people(&self) -> Result<People, String> {
        if let Some(recipients) = self.recipients {
            if recipients == 0 || self.domains == 0 {
                return Err("--recipients and --domains must be at least 1".to_owned());
            }
            return Ok(People::Random { recipients, domains: self.domains });
        }
        let Some(path) = &self.to_file else { return Ok(People::List(self.to.clone())) };
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        Ok(People::List(lines.map(str::to_owned).collect()))
    }
}

pub(crate) fn seconds(value: f64, option: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(value).map_err(|_| format!("{option} {value}: not a time; give seconds, such as 2.5"))
}

pub(crate) fn targets(names: &[String]) -> Result<Vec<SocketAddr>, String> {
    let one = |name: &String| {
        let mut found =
            name.to_socket_addrs().map_err(|error| format!("{name}: {error}; give a target as HOST:PORT"))?;
        found.next().ok_or_else(|| format!("{name} has no address"))
    };
    names.iter().map(one).collect()
}

/// `127.0.0.2-127.0.0.50`, `127.0.0.2,127.0.0.9`.
fn binds(text: &str) -> Result<Vec<IpAddr>, String> {
    let parts = text.split(',').map(|part| part.trim().parse::<Sources>().map(|sources| sources.0));
    Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
}
