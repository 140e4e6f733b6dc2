//! The simulated Internet on 127.0.0.0/8: a DNS server, SMTP sinks that behave well or badly, a recorder of every copy,
//! and scenarios. For tests, benchmarks and `stentor-kit demo`; never part of the mail path.
//!
//! Its SMTP server is its own, strict and independent of `stentor-mail`, so that the two cannot share a mistake. All
//! randomness follows from the scenario's seed.
//!
//! ```no_run
//! # async fn example() -> Result<(), stentor_lab::LabError> {
//! use stentor_lab::{Lab, Scenario};
//! let lab = Lab::start(Scenario::parse("[[generate]]\nsites = 200\nrtt_ms = [10, 200]")?).await?;
//! let people = lab.scenario().subscribers(2000);
//! println!("DNS at {}, port 25 is {}", lab.dns_addr(), lab.smtp_port());
//! // ... let the server under test send message <id@x> to them ...
//! lab.recorder().wait_for_copies(2000, std::time::Duration::from_secs(60)).await;
//! assert!(lab.recorder().audit("id@x", people.iter().map(String::as_str)).is_clean());
//! # Ok(()) }
//! ```

mod behaviour;
pub mod cli;
pub mod descriptors;
mod dns;
mod error;
mod lab;
pub mod recorder;
pub mod scenario;
pub mod script;
mod sink;
pub mod tls;
mod wire_text;

pub use behaviour::{Action, Behaviour, Connect, Fate, GreylistBy};
pub use dns::DnsStats;
pub use error::LabError;
pub use lab::{Lab, LabStats};
pub use recorder::{Arrival, Audit, Mode, Recorder, Stats, Verdict, message_id_of};
pub use scenario::Scenario;
pub use sink::engine::{EngineCounters, Model, Sink, SinkOptions};
pub use sink::store::{MESSAGE_RECORD, StoreAs, StoreOptions, Sync, read_journal};
pub use sink::{Listening, SinkOnly};
pub use tls::Tls;
pub use wire_text::crlf;
