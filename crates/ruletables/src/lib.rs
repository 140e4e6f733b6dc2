//! The tables that rules and routes ask: in the configuration, in files, behind sockets.
//!
//! Promise: a table in memory answers at once. One behind a socket is asked once for each key of a decision, which is then made
//! again with what it said; an alias's targets are asked about side by side. A file that is replaced is in force within a second or two; one that is broken leaves the version before in
//! force, across a reload too, and the log says file and line. One that cannot be read for a long time stops no other.
//!
//! Failure: a table that could not be read from the start, and one that does not answer, is unavailable: whoever asks defers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stentor_config::{TableConfig, TableSource};
use stentor_queue::ids::Ms;
use stentor_resolve::Asker;
use stentor_rules::{
    Answer, Asking, Dialect, Facts, Field, Found, Included, NotIncluded, Pending, Subject, TableId, Tables, find, keys,
    policy_request,
};
use stentor_strangers::{Answered, Greylist, GreylistSettings, Greylisted, Question};
use stentor_tablefiles::{FileTable, Refreshed, SLOW_MS};
use stentor_tables::socketmap::Reply;
use stentor_tables::{Reference, Report, Severity, Table};
use tokio::task::JoinSet;

use self::remote::{For, Remote};

pub mod remote;

/// Findings of one table that a line of the log has.
const FINDINGS_SHOWN_MAX: usize = 3;
/// Questions to tables behind sockets at a time, of one decision: each of a table's connections has some behind it.
const WANTED_MAX: usize = 256;
/// Tables behind sockets may take this for one decision, however many questions that are.
pub const REMOTE_DECISION_MAX: Duration = Duration::from_secs(30);
/// A table behind a socket must answer within this.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(5);

/// All tables, in the order of their numbers.
#[derive(Default)]
pub struct RuleTables(Vec<RuleTable>);

struct RuleTable {
    name: String,
    source: TableSource,
    dialect: Dialect,
    body: Body,
    /// `file:line` of the configuration.
    place: String,
    /// Why what is in force is not what its files say now.
    trouble: Arc<Mutex<Option<String>>>,
}

/// A table that is not what its files say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableTrouble<'t> {
    pub name: &'t str,
    /// `file:line` of the configuration.
    pub place: &'t str,
    pub why: String,
    /// The version before is in force; else what asks it is deferred.
    pub has_version: bool,
}

/// A table or policy service behind a socket.
#[derive(Clone, Copy)]
pub struct ServiceOfTable<'t> {
    pub name: &'t str,
    pub remote: &'t Arc<Remote>,
    pub is_policy_service: bool,
    /// Of a policy service: what it says if it does not answer.
    pub default_action: Option<&'t str>,
}

enum Body {
    /// With the places of its keys.
    Inline(Table, HashMap<String, String>),
    File(Arc<FileTable>),
    Remote(Arc<Remote>),
    /// With what it says if it does not answer.
    Service(Arc<Remote>, Option<String>),
    Broken(String),
}

impl RuleTables {
    /// Whether a look-up may have to wait for another server.
    pub fn has_remote(&self) -> bool {
        self.0.iter().any(|table| matches!(table.body, Body::Remote(_) | Body::Service(..)))
    }

    /// Whether rules may ask policy services.
    pub fn has_services(&self) -> bool {
        self.0.iter().any(|table| matches!(table.body, Body::Service(..)))
    }

    /// Opens all of a configuration. What `before` has stays open: connections, and the last good version of a file. Blocks.
    pub fn open(configs: &[TableConfig], before: Option<&RuleTables>) -> RuleTables {
        let open = |config: &TableConfig| {
            let same = before.and_then(|all| all.0.iter().find(|table| table.source == config.source));
            let kept = || same.map_or_else(Arc::default, |table| table.trouble.clone());
            let (body, trouble) = match same.map(|table| &table.body) {
                // One that could not be used is read at once, not when it is replaced.
                Some(Body::File(file)) if file.table().is_some() => (Body::File(file.clone()), kept()),
                Some(Body::Remote(remote)) => (Body::Remote(remote.clone()), kept()),
                Some(Body::Service(remote, default)) => (Body::Service(remote.clone(), default.clone()), kept()),
                _ => {
                    let (body, trouble) = body(config);
                    (body, Arc::new(Mutex::new(trouble)))
                }
            };
            RuleTable {
                name: config.name.clone(),
                source: config.source.clone(),
                dialect: config.dialect,
                body,
                place: config.place.clone(),
                trouble,
            }
        };
        RuleTables(configs.iter().map(open).collect())
    }

    /// The questions of one decision.
    pub fn questions(&self) -> Questions<'_> {
        Questions { tables: self, stranger: None, asker: None, greylist: None, open: Mutex::default() }
    }

    /// The same with those who know more of an untrusted client.
    pub fn questions_about<'t>(
        &'t self,
        asker: Option<&'t Arc<Asker>>,
        greylist: Option<(&'t Mutex<Greylist>, GreylistSettings, Ms)>,
    ) -> Questions<'t> {
        Questions { asker: asker.map(AsRef::as_ref), greylist, ..self.questions() }
    }

    /// Whether a table answers at once, and what it says is known to change when its file is replaced.
    pub fn is_in_memory(&self, TableId(table): TableId) -> bool {
        self.0.get(usize::from(table)).is_some_and(|table| matches!(table.body, Body::Inline(..) | Body::File(_)))
    }

    /// Reads the files that were replaced, but for those that are being read. Blocks. `now`: of the steady clock; `replaced` is told
    /// of each table before the log is.
    pub fn refresh(&self, now: Ms, replaced: impl Fn(TableId)) {
        for (id, table) in self.0.iter().enumerate() {
            let Body::File(file) = &table.body else { continue };
            match file.refresh(now) {
                Refreshed::Same | Refreshed::Busy => {}
                Refreshed::Slow => {
                    let seconds = SLOW_MS / 1_000;
                    tracing::warn!(
                        table = table.name,
                        place = table.place,
                        "its files cannot be read in {seconds} s; it stays as it was until they are"
                    );
                }
                Refreshed::Replaced(report) => {
                    replaced(TableId(id as u16));
                    *table.trouble.lock() = None;
                    tracing::info!(
                        table = table.name,
                        place = table.place,
                        "the table was replaced{}",
                        in_words(": ", &report)
                    );
                }
                Refreshed::Kept(report) => {
                    *table.trouble.lock() = Some(in_words("", &report));
                    let then = if file.table().is_some() { "stays as it was" } else { "still cannot be used" };
                    tracing::error!(
                        table = table.name,
                        place = table.place,
                        "the table {then}{}",
                        in_words(": ", &report)
                    );
                }
            }
        }
    }

    /// Tables that are not what their files say, and why.
    pub fn troubles(&self) -> impl Iterator<Item = TableTrouble<'_>> {
        self.0.iter().filter_map(|table| {
            let why = match &table.body {
                Body::Broken(why) => Some(why.clone()),
                Body::File(file) if file.is_slow() => {
                    Some(format!("its files cannot be read in {} s", SLOW_MS / 1_000))
                }
                Body::File(_) => table.trouble.lock().clone(),
                Body::Inline(..) | Body::Remote(_) | Body::Service(..) => None,
            };
            let has_version = matches!(&table.body, Body::File(file) if file.table().is_some());
            Some(TableTrouble { name: &table.name, place: &table.place, why: why?, has_version })
        })
    }

    /// Those behind sockets.
    pub fn services(&self) -> impl Iterator<Item = ServiceOfTable<'_>> {
        self.0.iter().filter_map(|table| {
            let (remote, is_policy_service, default_action) = match &table.body {
                Body::Remote(remote) => (remote, false, None),
                Body::Service(remote, default) => (remote, true, default.as_deref()),
                Body::Inline(..) | Body::File(_) | Body::Broken(_) => return None,
            };
            Some(ServiceOfTable { name: &table.name, remote, is_policy_service, default_action })
        })
    }

    /// Whether there are files to look at.
    pub fn has_files(&self) -> bool {
        self.0.iter().any(|table| matches!(table.body, Body::File(_)))
    }

    /// Asks a policy service about a complete message, until the limit at most; without an answer its default action applies.
    pub async fn ask_at_end_of_data(
        &self,
        TableId(id): TableId,
        request: &str,
        whom: For,
        limit: tokio::time::Instant,
    ) -> Answer {
        let Some(RuleTable { name, body: Body::Service(remote, default), .. }) = self.0.get(usize::from(id)) else {
            return Answer::Unavailable("there is no such policy service".to_owned());
        };
        let reply = tokio::time::timeout_at(limit, remote.get(request.as_bytes(), whom)).await;
        let over = || Reply::Tempfail("time limit for this decision reached".to_owned());
        or_default(name, default.as_deref(), answer(reply.unwrap_or_else(|_| over()), ""))
    }
}

/// A table's body, and why it cannot be used yet.
fn body(config: &TableConfig) -> (Body, Option<String>) {
    let TableConfig { name, source, place, .. } = config;
    let log = |why: &str| tracing::error!(table = name, place, "the table cannot be used: {why}");
    let named = match source {
        TableSource::Inline(entries) => {
            let table = Table::inline(entries.iter().map(|(key, value, _)| (key.as_bytes(), value.as_bytes())));
            let places = entries.iter().map(|(key, _, place)| (key.to_lowercase(), place.clone()));
            return (Body::Inline(table, places.collect()), None);
        }
        TableSource::Named(named) => named,
        TableSource::Service(service) => {
            let remote = Remote::policy_service(service.place.clone(), Duration::from_millis(service.timeout_ms));
            return (Body::Service(Arc::new(remote), service.default_action.clone()), None);
        }
    };
    match named.reference() {
        Ok(Reference::Socketmap(endpoint)) => {
            (Body::Remote(Arc::new(Remote::socketmap(endpoint, REMOTE_TIMEOUT))), None)
        }
        Ok(reference) => {
            let (file, report) = FileTable::open(reference);
            let trouble = file.table().is_none().then(|| in_words("", &report));
            match &trouble {
                Some(why) => log(why),
                None if !report.diagnostics.is_empty() => {
                    tracing::warn!(table = name, place, "the table has doubtful lines{}", in_words(": ", &report));
                }
                None => {}
            }
            (Body::File(Arc::new(file)), trouble)
        }
        Err(error) => {
            let why = error.to_string();
            log(&why);
            (Body::Broken(why), None)
        }
    }
}

/// The first findings of a load, errors before warnings.
fn in_words(before: &str, report: &Report) -> String {
    let warnings = report.diagnostics.iter().filter(|found| found.severity() != Severity::Error);
    let mut words = String::new();
    for (n, found) in report.errors().chain(warnings).take(FINDINGS_SHOWN_MAX).enumerate() {
        words.push_str(if n == 0 { before } else { "; " });
        words.push_str(&found.to_string());
    }
    words
}

/// What one decision asks, and what is known so far.
pub struct Questions<'t> {
    tables: &'t RuleTables,
    /// Who asks the DNS.
    asker: Option<&'t Asker>,
    /// The client whose mail they are about, if it is not trusted.
    stranger: Option<IpAddr>,
    /// With its settings and the time.
    greylist: Option<(&'t Mutex<Greylist>, GreylistSettings, Ms)>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    asking: Asking,
    /// What sockets have answered, by table and key.
    known: HashMap<(u16, String), Answer>,
    /// What the last decision lacked.
    wanted: Vec<Wanted>,
}

/// A table, a key of it, and for whom it is asked.
#[derive(Clone, PartialEq, Eq)]
struct Wanted {
    table: u16,
    key: String,
    whom: For,
}

impl Questions<'_> {
    /// About the mail of a client that is not trusted; `None`: of another.
    #[must_use]
    pub fn of_stranger(mut self, client: Option<IpAddr>) -> Self {
        self.stranger = client;
        self
    }

    /// Decides again and again, each time with the answers that it lacked before. What has no answer when the time of a decision is over
    /// is unavailable, as if its own had been: a service's default action counts, and nobody waits longer.
    pub async fn settle<T>(&self, mut decide: impl FnMut(&Self) -> Result<T, Pending>) -> T {
        let limit = tokio::time::Instant::now() + REMOTE_DECISION_MAX;
        let dns_until = self.asker.map(Asker::until);
        loop {
            if let Ok(decided) = decide(self) {
                return decided;
            }
            if let (Some(asker), Some(until)) = (self.asker, dns_until) {
                asker.fetch(until).await;
            }
            if tokio::time::timeout_at(limit, self.fetch()).await.is_err() {
                self.give_up();
            }
        }
    }

    /// Nothing that the last decision lacked will be known.
    fn give_up(&self) {
        let mut open = self.open.lock();
        for Wanted { table, key, .. } in std::mem::take(&mut open.wanted) {
            let why = || Answer::Unavailable("time limit for this decision reached".to_owned());
            open.known.entry((table, key)).or_insert_with(why);
        }
    }

    /// Asks what the last decision lacked, all of it at once.
    pub async fn fetch(&self) {
        let wanted = self.open.lock().wanted.clone();
        let mut asked = JoinSet::new();
        for Wanted { table, key, whom } in wanted {
            let body = self.tables.0.get(usize::from(table)).map(|table| &table.body);
            let Some(Body::Remote(remote) | Body::Service(remote, _)) = body else { continue };
            let remote = remote.clone();
            asked.spawn(async move {
                let reply = remote.get(key.as_bytes(), whom).await;
                (table, key, reply)
            });
        }
        while let Some(answered) = asked.join_next().await {
            // A look-up does not panic, and nobody aborts it.
            let Ok((table, key, reply)) = answered else { continue };
            let answer = answer(reply, &key);
            self.open.lock().known.insert((table, key), answer);
        }
        self.open.lock().wanted.clear();
    }
}

/// The answer of a policy service; its default action if it gives none.
fn or_default(service: &str, default: Option<&str>, answer: Answer) -> Answer {
    match answer {
        Answer::Unavailable(why) => {
            tracing::warn!(service, "policy service {service}: {why}");
            default.map_or(Answer::Unavailable(why), |default| found(default.to_owned()))
        }
        other => other,
    }
}

fn found(value: String) -> Answer {
    Answer::Found(Found { value, key: String::new(), place: String::new() })
}

/// What a reply says of a key.
fn answer(reply: Reply, key: &str) -> Answer {
    match reply {
        Reply::Found(value) => {
            let value = String::from_utf8_lossy(&value).into_owned();
            Answer::Found(Found { value, key: key.to_owned(), place: String::new() })
        }
        Reply::NotFound => Answer::NotFound,
        Reply::Tempfail(why) => Answer::Unavailable(why),
    }
}

impl Open {
    /// Notes a question, whose answer the next decision has.
    fn want(&mut self, wanted: Wanted) -> Answer {
        if self.wanted.len() < WANTED_MAX && !self.wanted.contains(&wanted) {
            self.wanted.push(wanted);
        }
        Answer::Pending
    }
}

impl Tables for Questions<'_> {
    fn dns(&self, question: &Question) -> Option<Answered> {
        self.asker.map_or_else(|| Some(Answered::nobody()), |asker| asker.known(question))
    }

    fn ask_service(&self, id: TableId, facts: &Facts<'_>) -> Answer {
        let service = self.tables.0.get(usize::from(id.0));
        let Some((RuleTable { name, body: Body::Service(_, default), .. }, request)) =
            service.zip(policy_request(facts))
        else {
            return Answer::Unavailable("there is no such policy service".to_owned());
        };
        let mut open = self.open.lock();
        match open.known.get(&(id.0, request.clone())) {
            // The key was the request: nobody is shown that.
            Some(Answer::Found(answer)) => found(answer.value.clone()),
            Some(other) => or_default(name, default.as_deref(), other.clone()),
            None => {
                let whom = if facts.is_trusted { For::Trusted(facts.client) } else { For::Stranger(facts.client) };
                open.want(Wanted { table: id.0, key: request, whom })
            }
        }
    }

    fn greylisted(&self, client: IpAddr, sender: &str, recipient: &str) -> Option<Greylisted> {
        let (greylist, settings, now) = &self.greylist?;
        Some(greylist.lock().ask(settings, (client, sender, recipient), *now))
    }

    fn include(&self, id: TableId, path: &str, user: Option<u32>) -> Option<Result<Arc<Included>, NotIncluded>> {
        match &self.tables.0.get(usize::from(id.0))?.body {
            Body::File(file) => file.table()?.included(path, user),
            _ => None,
        }
    }

    fn ask(&self, id: TableId, field: Field, subject: Subject<'_>) -> Answer {
        let Some(table) = self.tables.0.get(usize::from(id.0)) else {
            return Answer::Unavailable("there is no such table".to_owned());
        };
        let mut open = self.open.lock();
        let asked = (table.dialect, field, subject);
        match &table.body {
            Body::Broken(why) => Answer::Unavailable(why.clone()),
            Body::Inline(inline, places) => {
                find((id, inline), asked, &mut open.asking, |key| places.get(key).cloned().unwrap_or_default())
            }
            Body::File(file) => match file.table() {
                Some(version) => find((id, &version), asked, &mut open.asking, |_| String::new()),
                None => Answer::Unavailable(table.trouble.lock().clone().unwrap_or_default()),
            },
            Body::Service(..) => Answer::Unavailable("it is a policy service, not a table".to_owned()),
            Body::Remote(_) => {
                for key in keys(table.dialect, field, subject, table.dialect.asks_remote_parts()) {
                    match open.known.get(&(id.0, key.text.clone())).cloned() {
                        Some(Answer::NotFound) => {}
                        Some(Answer::Found(Found { value, place, .. })) => {
                            let value = key.filled(table.dialect, value);
                            return Answer::Found(Found { value, key: key.text, place });
                        }
                        Some(answer) => return answer,
                        None => {
                            let whom = self.stranger.map_or(For::Us, For::Stranger);
                            return open.want(Wanted { table: id.0, key: key.text, whom });
                        }
                    }
                }
                Answer::NotFound
            }
        }
    }
}
