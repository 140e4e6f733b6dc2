//! `stentor policy replay`: repeats the decisions of the last days under another configuration.
//!
//! The history supplies the client, sender and recipient of mail that was accepted, refused at RCPT, or discarded; for
//! redirected mail, the recipients that the client named ([`PastDecisions`]). Each is decided under the configuration
//! in force and under the new one; differences are listed, the most frequent first. Both configurations and their
//! tables are read in their present state. The history does not keep a client's name and HELO, so both treat them as
//! unknown.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use stentor_admin::past_decisions::{PastDecisions, PastRecipient};
use stentor_config::Config;
use stentor_control::format::{line, plural};
use stentor_core::Settings;
use stentor_mail::address::Address;
use stentor_reputation::ClientName;
use stentor_rules::{Rule, RuleId};
use stentor_sessions::{ClientProof, Speaker, Stranger};

use super::forwards;
use super::targets::{Target, targets};
use super::words::{because, because_of, outcome};
use crate::asking::{fail, load, load_by};
use crate::observe::input;
use crate::output::{done, print};

const DAY_MS: u64 = 86_400_000;

#[derive(Args)]
pub struct Options {
    #[command(subcommand)]
    what: ExplainCommand,
}

#[derive(Subcommand)]
enum ExplainCommand {
    /// Replay recent mail against a configuration that is not loaded yet; list the decisions that would change.
    Replay(Replay),
}

#[derive(Args)]
struct Replay {
    /// The new configuration.
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// The current configuration, whose history is read [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Days to replay.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=36_500))]
    days: u64,
    /// Number of changed decisions to list.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A decision that would change.
struct Change {
    asked: PastRecipient,
    times: u64,
    before: DecisionWords,
    after: DecisionWords,
}

/// Numbers of past decisions.
#[derive(Clone, Copy)]
struct ReplayCounts {
    changed: u64,
    all: u64,
    /// Not decided again: there are too many different ones.
    left_out: u64,
}

/// A configuration's decision, in words.
struct DecisionWords {
    words: String,
    /// Routes of the first addresses that the recipient expands to.
    targets: Vec<String>,
    because: String,
    /// `because` as the end of a sentence.
    because_of: String,
}

impl DecisionWords {
    /// Targets that the other decision lacks or routes elsewhere.
    fn led_elsewhere(&self, other: &DecisionWords) -> String {
        let of_other: HashSet<&String> = other.targets.iter().collect();
        let own = self.targets.iter().filter(|target| !of_other.contains(target));
        own.flat_map(|target| ["; ", target]).collect()
    }
}

pub fn run(options: &Options) -> ExitCode {
    let ExplainCommand::Replay(options) = &options.what;
    let (old, new) = match (load_by("--against", options.against.as_deref()), load(Some(&options.config))) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(code), _) | (_, Err(code)) => return code,
    };
    let mut past = PastDecisions::default();
    let lists: HashMap<&str, &Address> =
        old.lists.iter().map(|one| (&**one.list.name(), &one.list.settings().address)).collect();
    let since = input::now().saturating_sub(options.days * DAY_MS);
    let read = input::scan(&old.data_dir.join("history"), Some(since), None, &mut |record| past.record(record, &lists));
    if let Err(why) = read {
        return fail(&why);
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(replay(options, past, old, new)),
        Err(error) => fail(&format!("cannot start: {error}")),
    }
}

async fn replay(options: &Replay, past: PastDecisions, old: Config, new: Config) -> ExitCode {
    let (old, new) = (Settings::new(old, None), Settings::new(new, None));
    if old.rules.asks_name() || new.rules.asks_name() {
        eprintln!("stentor: rules use the client's name, which the history does not record; it is treated as unknown");
    }
    if old.rules.asks_dns() || new.rules.asks_dns() {
        eprintln!("stentor: DNS is not queried about past clients; rules that need it do not match");
    }
    for note in not_asked(&new) {
        eprintln!("stentor: {note}");
    }
    let (mut changes, mut changed) = (Vec::new(), 0);
    for (asked, times) in past.asked {
        let Ok(to) = asked.to.parse::<Address>() else { continue };
        let (mut before, mut after) = (decided(&old, &asked, &to).await, decided(&new, &asked, &to).await);
        if before.words == after.words {
            let (left, come) = (before.led_elsewhere(&after), after.led_elsewhere(&before));
            before.words += &left;
            after.words += &come;
        }
        if before.words != after.words {
            changed += times;
            changes.push(Change { asked, times, before, after });
        }
    }
    changes.sort_by(|a, b| {
        b.times.cmp(&a.times).then_with(|| (&a.asked.from, &a.asked.to).cmp(&(&b.asked.from, &b.asked.to)))
    });
    let left = changes.len().saturating_sub(usize::try_from(options.limit).unwrap_or(usize::MAX));
    changes.truncate(changes.len() - left);
    let counts = ReplayCounts { changed, all: past.all, left_out: past.left_out };
    let text = if options.json { as_json(&changes, counts) } else { as_text(&changes, left, counts) };
    done(print(&text))
}

/// Settings that also decide about mail but cannot be evaluated for past mail.
fn not_asked(settings: &Settings) -> Vec<String> {
    let named = |is: fn(&Rule) -> bool| {
        let rules = settings.rules.rules.iter().enumerate().filter(|(_, rule)| is(rule));
        rules.map(|(at, _)| settings.rules.rule_name(RuleId::new(at))).collect::<Vec<_>>().join(", ")
    };
    let services = named(|rule| rule.when.asks_service());
    let contents = named(Rule::waits);
    let milters: Vec<&str> = settings.milters.iter().map(|milter| &*milter.settings.name).collect();
    let notes = [
        (services, "policy services are asked only in a client's session; not asked by "),
        (contents, "the history stores no message content; not evaluated: "),
        (milters.join(", "), "milters cannot be asked about past mail; skipped: "),
    ];
    notes.into_iter().filter(|(names, _)| !names.is_empty()).map(|(names, what)| format!("{what}{names}")).collect()
}

async fn decided(settings: &Settings, asked: &PastRecipient, to: &Address) -> DecisionWords {
    let speaker = Speaker {
        client: asked.client,
        name: ClientName::Unknown,
        helo: "",
        may_relay: asked.may_relay,
        proof: ClientProof::None,
        session: None,
        stranger: Stranger::UNKNOWN,
    };
    let mut decided = super::decide(settings, speaker, &asked.from, to).await;
    forwards::follow(settings, &mut decided, false).await;
    let targets = targets(settings, speaker, &mut decided).await.shown;
    let (rules, decision) = (&settings.rules, &decided.decision);
    let words = std::iter::once(outcome(rules, decision)).chain(decided.words(rules)).collect::<Vec<_>>().join(", ");
    let route = because(rules, decision);
    DecisionWords {
        words,
        targets: targets.iter().filter_map(Target::led_to).collect(),
        because: rules.shown(&decision.why) + &route,
        because_of: because_of(rules, &decision.why) + &route,
    }
}

fn as_text(changes: &[Change], left: usize, counts: ReplayCounts) -> String {
    let ReplayCounts { changed, all, left_out } = counts;
    let mut out = String::new();
    line(&mut out, format_args!("{changed} of {} would change", plural(all, "decision")));
    for Change { asked: PastRecipient { client, from, to, .. }, times, before, after } in changes {
        line(&mut out, format_args!("{times:>7}  client {client}, from <{from}> to <{to}>"));
        line(&mut out, format_args!("         now: {} ({})", before.words, before.because));
        line(&mut out, format_args!("         new: {}, {}", after.words, after.because_of));
    }
    if left > 0 {
        line(&mut out, format_args!("... and {left} more; --limit"));
    }
    if left_out > 0 {
        line(
            &mut out,
            format_args!("{} of the history not replayed: too many different ones", plural(left_out, "decision")),
        );
    }
    out
}

fn as_json(changes: &[Change], counts: ReplayCounts) -> String {
    let ReplayCounts { changed, all, left_out } = counts;
    let changes: Vec<_> = changes
        .iter()
        .map(|change| {
            let PastRecipient { client, from, to, .. } = &change.asked;
            json!({
                "client": client, "from": from, "to": to, "times": change.times,
                "before": change.before.words, "was_because": change.before.because,
                "after": change.after.words, "because": change.after.because,
            })
        })
        .collect();
    format!("{}\n", json!({ "decisions": all, "changed": changed, "left_out": left_out, "changes": changes }))
}
