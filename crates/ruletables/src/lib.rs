//! Tables of rules and routes: in the configuration, in files, behind sockets.
//!
//! Promise: a table in memory answers immediately. A table behind a socket is queried once for each key of a
//! decision, which is then made again with the answers; an alias's targets are looked up in parallel. A replaced file
//! is in force within a second or two. If it is broken, the old version stays in force, even across a reload, and
//! file and line are logged. A file that cannot be read for a long time does not block others.
//!
//! Failure: a table that has never been read, or that does not answer, is unavailable: the caller defers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stentor_config::{TableConfig, TableSource};
use stentor_queue::ids::Ms;
use stentor_reputation::{Answered, Greylist, GreylistSettings, Greylisted, Question, Triplet};
use stentor_resolve::Asker;
use stentor_rules::{
    Dialect, Facts, Field, LookupBuffers, LookupResult, PendingLookup, Subject, TableEntry, TableId, Tables, find,
    keys, policy_request,
};
use stentor_tablefiles::{FileTable, SLOW_MS, TableRefresh};
use stentor_tables::socketmap::SocketmapReply;
use stentor_tables::{IncludeError, Included, LoadReport, Reference, Severity, Table};
use tokio::task::JoinSet;

use self::remote::{For, Remote};

pub mod remote;

/// Maximum findings of one table in a log line.
const FINDINGS_SHOWN_MAX: usize = 3;
/// Maximum parallel queries of one decision to tables behind sockets; several share a connection.
const WANTED_MAX: usize = 256;
/// Time limit for all lookups behind sockets of one decision.
pub const REMOTE_DECISION_MAX: Duration = Duration::from_secs(30);
/// Timeout of a lookup behind a socket.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(5);

/// All tables; a table's number is its index.
#[derive(Default)]
pub struct RuleTables(Vec<RuleTable>);

struct RuleTable {
    name: String,
    source: TableSource,
    dialect: Dialect,
    body: Body,
    /// `file:line` in the configuration.
    place: String,
    /// Why the version in force differs from the files.
    trouble: Arc<Mutex<Option<String>>>,
}

/// A table that does not match its files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableTrouble<'t> {
    pub name: &'t str,
    /// `file:line` in the configuration.
    pub place: &'t str,
    pub why: String,
    /// Whether an old version is in force; otherwise lookups defer.
    pub has_version: bool,
}

/// A table or policy service behind a socket.
#[derive(Clone, Copy)]
pub struct ServiceOfTable<'t> {
    pub name: &'t str,
    pub remote: &'t Arc<Remote>,
    pub is_policy_service: bool,
    /// For a policy service, the action if it does not answer.
    pub default_action: Option<&'t str>,
}

enum Body {
    /// A table and the positions of its keys.
    Inline(Table, HashMap<String, String>),
    File(Arc<FileTable>),
    Remote(Arc<Remote>),
    /// A policy service, and the action if it does not answer.
    Service(Arc<Remote>, Option<String>),
    Broken(String),
}

impl RuleTables {
    /// Whether a lookup may have to wait for another server.
    pub fn has_remote(&self) -> bool {
        self.0.iter().any(|table| matches!(table.body, Body::Remote(_) | Body::Service(..)))
    }

    /// Whether rules may query policy services.
    pub fn has_services(&self) -> bool {
        self.0.iter().any(|table| matches!(table.body, Body::Service(..)))
    }

    /// Opens all tables of a configuration. Connections and the last good versions of files are taken over from
    /// `before`. Blocks.
    pub fn open(configs: &[TableConfig], before: Option<&RuleTables>) -> RuleTables {
        let open = |config: &TableConfig| {
            let same = before.and_then(|all| all.0.iter().find(|table| table.source == config.source));
            let kept = || same.map_or_else(Arc::default, |table| table.trouble.clone());
            let (body, trouble) = match same.map(|table| &table.body) {
                // A file that could not be used is read immediately, not only when it is replaced.
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

    /// The lookups of one decision.
    pub fn questions(&self) -> Questions<'_> {
        Questions { tables: self, stranger: None, asker: None, greylist: None, open: Mutex::default() }
    }

    /// As [`Self::questions`], with DNS queries and greylisting for untrusted clients.
    pub fn questions_about<'t>(
        &'t self,
        asker: Option<&'t Arc<Asker>>,
        greylist: Option<(&'t Mutex<Greylist>, GreylistSettings, Ms)>,
    ) -> Questions<'t> {
        Questions { asker: asker.map(AsRef::as_ref), greylist, ..self.questions() }
    }

    /// Whether a table answers immediately and its answers only change when its file is replaced.
    pub fn is_in_memory(&self, TableId(table): TableId) -> bool {
        self.0.get(usize::from(table)).is_some_and(|table| matches!(table.body, Body::Inline(..) | Body::File(_)))
    }

    /// Reads the files that were replaced, except those being read. Blocks. `now` is a monotonic time; `replaced` is
    /// called with each table before it is logged.
    pub fn refresh(&self, now: Ms, replaced: impl Fn(TableId)) {
        for (id, table) in self.0.iter().enumerate() {
            let Body::File(file) = &table.body else { continue };
            match file.refresh(now) {
                TableRefresh::Same | TableRefresh::Busy => {}
                TableRefresh::Slow => {
                    let seconds = SLOW_MS / 1_000;
                    tracing::warn!(
                        table = table.name,
                        place = table.place,
                        "reading the table's files takes more than {seconds} s; its previous contents stay in use"
                    );
                }
                TableRefresh::Replaced(report) => {
                    replaced(TableId(id as u16));
                    *table.trouble.lock() = None;
                    tracing::info!(
                        table = table.name,
                        place = table.place,
                        "table replaced{}",
                        in_words(": ", &report)
                    );
                }
                TableRefresh::Kept(report) => {
                    *table.trouble.lock() = Some(in_words("", &report));
                    let then = if file.table().is_some() {
                        "could not be replaced, the old contents stay in use"
                    } else {
                        "still cannot be used"
                    };
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

    /// Tables that do not match their files, and why.
    pub fn troubles(&self) -> impl Iterator<Item = TableTrouble<'_>> {
        self.0.iter().filter_map(|table| {
            let why = match &table.body {
                Body::Broken(why) => Some(why.clone()),
                Body::File(file) if file.is_slow() => {
                    Some(format!("reading its files takes more than {} s", SLOW_MS / 1_000))
                }
                Body::File(_) => table.trouble.lock().clone(),
                Body::Inline(..) | Body::Remote(_) | Body::Service(..) => None,
            };
            let has_version = matches!(&table.body, Body::File(file) if file.table().is_some());
            Some(TableTrouble { name: &table.name, place: &table.place, why: why?, has_version })
        })
    }

    /// Tables and services behind sockets.
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

    /// Whether any table is a file.
    pub fn has_files(&self) -> bool {
        self.0.iter().any(|table| matches!(table.body, Body::File(_)))
    }

    /// Queries a policy service about a complete message, within the time limit; without an answer its default action
    /// applies.
    pub async fn ask_at_end_of_data(
        &self,
        TableId(id): TableId,
        request: &str,
        whom: For,
        limit: tokio::time::Instant,
    ) -> LookupResult {
        let Some(RuleTable { name, body: Body::Service(remote, default), .. }) = self.0.get(usize::from(id)) else {
            return LookupResult::Unavailable("there is no such policy service".to_owned());
        };
        let reply = tokio::time::timeout_at(limit, remote.get(request.as_bytes(), whom)).await;
        let over = || SocketmapReply::Tempfail("time limit for this decision reached".to_owned());
        or_default(name, default.as_deref(), answer(reply.unwrap_or_else(|_| over()), ""))
    }
}

/// A table's body, and why it cannot be used yet.
fn body(config: &TableConfig) -> (Body, Option<String>) {
    let TableConfig { name, source, place, .. } = config;
    let log = |why: &str| tracing::error!(table = name, place, "the table cannot be used: {why}");
    let named = match source {
        TableSource::Inline(entries) => {
            let table = Table::inline(entries.iter().map(|entry| (entry.key.as_bytes(), entry.value.as_bytes())));
            let places = entries.iter().map(|entry| (entry.key.to_lowercase(), entry.place.clone()));
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
                    tracing::warn!(table = name, place, "doubtful lines in the table{}", in_words(": ", &report));
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
fn in_words(before: &str, report: &LoadReport) -> String {
    let warnings = report.diagnostics.iter().filter(|found| found.severity() != Severity::Error);
    let mut words = String::new();
    for (n, found) in report.errors().chain(warnings).take(FINDINGS_SHOWN_MAX).enumerate() {
        words.push_str(if n == 0 { before } else { "; " });
        words.push_str(&found.to_string());
    }
    words
}

/// Lookups of one decision, and the answers so far.
pub struct Questions<'t> {
    tables: &'t RuleTables,
    /// Resolver for DNS queries.
    asker: Option<&'t Asker>,
    /// The untrusted client whose mail is decided on, if it is one.
    stranger: Option<IpAddr>,
    /// Greylist, its settings and the time.
    greylist: Option<(&'t Mutex<Greylist>, GreylistSettings, Ms)>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    asking: LookupBuffers,
    /// Answers from sockets, by table and key.
    known: HashMap<(u16, String), LookupResult>,
    /// Lookups that the last decision lacked.
    requests: Vec<LookupRequest>,
}

/// A pending lookup: table, key, and on whose behalf.
#[derive(Clone, PartialEq, Eq)]
struct LookupRequest {
    table: u16,
    key: String,
    whom: For,
}

impl Questions<'_> {
    /// Sets the untrusted client; `None`: the client is trusted.
    #[must_use]
    pub fn of_stranger(mut self, client: Option<IpAddr>) -> Self {
        self.stranger = client;
        self
    }

    /// Repeats a decision, each time with the answers that it lacked. Lookups without an answer within the time limit
    /// are unavailable, as after their own timeout: a service's default action applies, and nothing waits any longer.
    pub async fn settle<T>(&self, mut decide: impl FnMut(&Self) -> Result<T, PendingLookup>) -> T {
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

    /// Marks all missing answers as unavailable.
    fn give_up(&self) {
        let mut open = self.open.lock();
        for LookupRequest { table, key, .. } in std::mem::take(&mut open.requests) {
            let why = || LookupResult::Unavailable("time limit for this decision reached".to_owned());
            open.known.entry((table, key)).or_insert_with(why);
        }
    }

    /// Fetches all answers that the last decision lacked, in parallel.
    pub async fn fetch(&self) {
        let requests = self.open.lock().requests.clone();
        let mut asked = JoinSet::new();
        for LookupRequest { table, key, whom } in requests {
            let body = self.tables.0.get(usize::from(table)).map(|table| &table.body);
            let Some(Body::Remote(remote) | Body::Service(remote, _)) = body else { continue };
            let remote = remote.clone();
            asked.spawn(async move {
                let reply = remote.get(key.as_bytes(), whom).await;
                (table, key, reply)
            });
        }
        while let Some(answered) = asked.join_next().await {
            // Lookups do not panic and are never aborted.
            let Ok((table, key, reply)) = answered else { continue };
            let answer = answer(reply, &key);
            self.open.lock().known.insert((table, key), answer);
        }
        self.open.lock().requests.clear();
    }
}

/// The answer of a policy service, or its default action if it did not answer.
fn or_default(service: &str, default: Option<&str>, answer: LookupResult) -> LookupResult {
    match answer {
        LookupResult::Unavailable(why) => {
            tracing::warn!(service, "policy service {service}: {why}");
            default.map_or(LookupResult::Unavailable(why), |default| found(default.to_owned()))
        }
        other => other,
    }
}

fn found(value: String) -> LookupResult {
    LookupResult::Found(TableEntry { value, key: String::new(), place: String::new() })
}

/// Converts a reply for a key.
fn answer(reply: SocketmapReply, key: &str) -> LookupResult {
    match reply {
        SocketmapReply::Found(value) => {
            let value = String::from_utf8_lossy(&value).into_owned();
            LookupResult::Found(TableEntry { value, key: key.to_owned(), place: String::new() })
        }
        SocketmapReply::NotFound => LookupResult::NotFound,
        SocketmapReply::Tempfail(why) => LookupResult::Unavailable(why),
    }
}

impl Open {
    /// Records a lookup, whose answer the next decision will have.
    fn want(&mut self, request: LookupRequest) -> LookupResult {
        if self.requests.len() < WANTED_MAX && !self.requests.contains(&request) {
            self.requests.push(request);
        }
        LookupResult::Pending
    }
}

impl Tables for Questions<'_> {
    fn dns(&self, question: &Question) -> Option<Answered> {
        self.asker.map_or_else(|| Some(Answered::nobody()), |asker| asker.known(question))
    }

    fn ask_service(&self, id: TableId, facts: &Facts<'_>) -> LookupResult {
        let service = self.tables.0.get(usize::from(id.0));
        let Some((RuleTable { name, body: Body::Service(_, default), .. }, request)) =
            service.zip(policy_request(facts))
        else {
            return LookupResult::Unavailable("there is no such policy service".to_owned());
        };
        let mut open = self.open.lock();
        match open.known.get(&(id.0, request.clone())) {
            // The key was the request, which must not be shown.
            Some(LookupResult::Found(answer)) => found(answer.value.clone()),
            Some(other) => or_default(name, default.as_deref(), other.clone()),
            None => {
                let whom = if facts.is_trusted { For::Trusted(facts.client) } else { For::Stranger(facts.client) };
                open.want(LookupRequest { table: id.0, key: request, whom })
            }
        }
    }

    fn greylisted(&self, client: IpAddr, sender: &str, recipient: &str) -> Option<Greylisted> {
        let (greylist, settings, now) = &self.greylist?;
        Some(greylist.lock().ask(settings, &Triplet { client, sender, recipient }, *now))
    }

    fn include(&self, id: TableId, path: &str, user: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>> {
        match &self.tables.0.get(usize::from(id.0))?.body {
            Body::File(file) => file.table()?.included(path, user),
            _ => None,
        }
    }

    fn ask(&self, id: TableId, field: Field, subject: Subject<'_>) -> LookupResult {
        let Some(table) = self.tables.0.get(usize::from(id.0)) else {
            return LookupResult::Unavailable("there is no such table".to_owned());
        };
        let mut open = self.open.lock();
        match &table.body {
            Body::Broken(why) => LookupResult::Unavailable(why.clone()),
            Body::Inline(inline, places) => {
                let place = |key: &str| places.get(key).cloned().unwrap_or_default();
                find(id, inline, table.dialect, field, subject, &mut open.asking, place)
            }
            Body::File(file) => match file.table() {
                Some(version) => find(id, &version, table.dialect, field, subject, &mut open.asking, |_| String::new()),
                None => LookupResult::Unavailable(table.trouble.lock().clone().unwrap_or_default()),
            },
            Body::Service(..) => LookupResult::Unavailable("it is a policy service, not a table".to_owned()),
            Body::Remote(_) => {
                for key in keys(table.dialect, field, subject, table.dialect.asks_remote_parts()) {
                    match open.known.get(&(id.0, key.text.clone())).cloned() {
                        Some(LookupResult::NotFound) => {}
                        Some(LookupResult::Found(TableEntry { value, place, .. })) => {
                            let value = key.filled(table.dialect, value);
                            return LookupResult::Found(TableEntry { value, key: key.text, place });
                        }
                        Some(answer) => return answer,
                        None => {
                            let whom = self.stranger.map_or(For::Us, For::Stranger);
                            return open.want(LookupRequest { table: id.0, key: key.text, whom });
                        }
                    }
                }
                LookupResult::NotFound
            }
        }
    }
}
