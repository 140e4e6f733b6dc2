//! Tables whose keys the operator chooses: domains, lists, aliases and routes.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use stentor_lists::commands::{CommandSettings, JoinPolicy, Language};
use stentor_lists::{FromRewriting, List, ListSettings, PostingPolicy};
use stentor_mail::address::{Address, normalise_domain};
use stentor_policy::AliasInput;

use super::addresses::{self, LocalDomains};
use super::archives::{self, ArchiveTarget};
use super::configuration::{DomainsConfig, ListConfig, ReportConfig, ReportTo};
use super::content::TABLE;
use super::diagnose::Spot;
use super::raw::{Context, Entry, Section};
use super::rules::{self, RuleTables, table_of_domains};
use super::sending::{self, FlowContext};
use super::settings::{self, Origin};

/// Maximum length of a list name, in characters of [`is_list_name`].
const LIST_NAME_BYTES_MAX: usize = 64;
const PRECEDENCE: &str = "list";
/// A month in seconds.
const REPORT_AFTER_S_MAX: f64 = 2_592_000.0;

pub(super) struct Tables {
    pub domains: Spot<DomainsConfig>,
    /// Position of `postmaster`, or else of `[domains]`.
    pub postmaster_span: Range<usize>,
    pub lists: Vec<ListSpot>,
    pub aliases: Vec<Spot<AliasInput>>,
    /// `relay` of `[domains]`, as written.
    pub relay: Vec<Spot<String>>,
    pub rules: RuleTables,
}

/// One list and the positions of its settings.
pub(super) struct ListSpot {
    pub value: ListConfig,
    pub address_span: Range<usize>,
    pub owner_span: Range<usize>,
    pub id_span: Range<usize>,
    pub archives: Vec<Spot<ArchiveTarget>>,
}

pub(super) fn read(top: &Section<'_>, hostname: &str, smtp_port: u16, flows: FlowContext<'_>) -> Tables {
    let (domains, postmaster_span, relay, virtual_tables) = domains(top.section("domains"));
    let lists_section = top.section("lists");
    let entries = lists_section.entries();
    let lists = entries.iter().filter_map(|entry| list(&lists_section, entry, flows, smtp_port)).collect();
    let aliases_section = top.section("aliases");
    let aliases = aliases_section.entries().iter().filter_map(|entry| alias(&aliases_section, entry)).collect();
    let mut rules = rules::read(top, &relay, smtp_port);
    let domain_tables = virtual_tables.iter().filter_map(|text| table_of_domains(top.context, &rules.tables, text));
    let own =
        LocalDomains { hostname, virtuals: &domains.value.virtuals, virtual_domain_tables: domain_tables.collect() };
    rules.addresses = addresses::read(top.section("addresses"), &rules.tables, own);
    Tables { domains, postmaster_span, lists, aliases, relay, rules }
}

/// Parses an address; reports an error if it is not valid.
fn address(context: &Context<'_>, text: &Spot<&str>) -> Option<Address> {
    match text.value.parse::<Address>() {
        Ok(address) => Some(address),
        Err(error) => {
            context.error(text.span.clone(), format!("{:?} is not a valid mail address: {error}", text.value));
            None
        }
    }
}

/// `[domains]`, the position of its postmaster, the values of `relay`, and the tables of `virtual`.
type Domains = (Spot<DomainsConfig>, Range<usize>, Vec<Spot<String>>, Vec<Spot<String>>);

fn domains(section: Section<'_>) -> Domains {
    let mut local = Vec::new();
    names(&section, section.texts("local").unwrap_or_default(), &mut local);
    let of_local = local.len();
    let is_table = |text: &Spot<&str>| text.value.starts_with(TABLE);
    let (tables, named): (Vec<_>, Vec<_>) =
        section.texts("virtual").unwrap_or_default().into_iter().partition(is_table);
    names(&section, named, &mut local);
    let virtuals = local.split_off(of_local);
    let postmaster = section.text("postmaster").and_then(|text| address(section.context, &text));
    let owned = |texts: Vec<Spot<&str>>| -> Vec<Spot<String>> {
        texts.into_iter().map(|text| Spot { value: text.value.to_owned(), span: text.span }).collect()
    };
    let (relay, tables) = (owned(section.texts("relay").unwrap_or_default()), owned(tables));
    let (span, postmaster_span) = (section.span.clone(), section.span_of("postmaster"));
    section.finish();
    (Spot { value: DomainsConfig { local, virtuals, postmaster }, span }, postmaster_span, relay, tables)
}

/// Reads domains and reports duplicates.
fn names(section: &Section<'_>, texts: Vec<Spot<&str>>, all: &mut Vec<String>) {
    for text in texts {
        match normalise_domain(text.value) {
            Ok(domain) if all.contains(&domain) => {
                section.context.error(text.span, format!("{:?} appears twice", text.value));
            }
            Ok(domain) => all.push(domain),
            Err(_) => section.context.error(text.span, format!("{:?} is not a domain", text.value)),
        }
    }
}

pub(super) fn is_list_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    (1..=LIST_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// Default and largest value of `keep_posts_s`.
const KEEP_POSTS_S: u64 = 7 * 86_400;
const KEEP_POSTS_S_MAX: f64 = 90.0 * 86_400.0;

/// Reads `report_to` and `report_after_s`.
fn report(section: &Section<'_>) -> ReportConfig {
    let words =
        [("none", ReportTo::None), ("owner", ReportTo::Owner), ("poster", ReportTo::Poster), ("both", ReportTo::Both)];
    ReportConfig {
        to: section.choice("report_to", ReportTo::None, &words),
        after_ms: section.maybe_seconds("report_after_s", 1.0..=REPORT_AFTER_S_MAX),
    }
}

/// Reads `join` and `language` of a list whose members are in the registry: it takes commands.
fn commands(section: &Section<'_>) -> Option<CommandSettings> {
    let join = [("open", JoinPolicy::Open), ("closed", JoinPolicy::Closed)];
    let commands = CommandSettings {
        join: section.choice("join", JoinPolicy::Open, &join),
        language: section.choice("language", Language::English, &Language::ALL),
    };
    let has_file = section.text("subscribers").is_some();
    for key in ["join", "language"].into_iter().filter(|key| has_file && section.text(key).is_some()) {
        let message =
            format!("`{key}` has no effect: people join and leave by mail only if the list has no `subscribers` file");
        section.context.warn(section.span_of(key), message);
    }
    (!has_file).then_some(commands)
}

/// Values of `rewrite_from`.
const FROM_REWRITING: [(&str, FromRewriting); 3] =
    [("never", FromRewriting::Never), ("dmarc", FromRewriting::Dmarc), ("always", FromRewriting::Always)];

fn check_name(context: &Context<'_>, entry: &Entry<'_>) {
    let name = entry.key.as_str();
    if !is_list_name(name) {
        let message = format!(
            "{name:?} is not a valid list name: use at most {LIST_NAME_BYTES_MAX} of a-z, A-Z, 0-9, \
            - _ . +"
        );
        context.error(entry.key_span.clone(), message);
    }
}

fn list<'a>(lists: &Section<'a>, entry: &Entry<'a>, flows: FlowContext<'_>, smtp_port: u16) -> Option<ListSpot> {
    let section = lists.of_entry(entry)?;
    let context = section.context;
    let name = entry.key.as_str();
    check_name(context, entry);
    let own = section.required("address", &format!("{name}@lists.example.org"));
    let own = own.and_then(|text| address(context, &text));
    let subscribers = subscribers(&section);
    let bounces = section.text("bounces").map(|text| address(context, &text));
    let owner = section.text("owner").and_then(|text| address(context, &text));
    let list_id = section.text("list_id");
    let post = post(&section);
    let precedence = section.text("precedence").map_or(PRECEDENCE, |text| text.value);
    let description = section.text("description").map_or("", |text| text.value);
    let rewrite_from = section.choice("rewrite_from", FromRewriting::default(), &FROM_REWRITING);
    let archive = section.text("archive").map(|text| text.value.to_owned());
    let archived_at = section.text("archived_at").map(|text| text.value.to_owned());
    let archives = archives::read(&section, smtp_port);
    let flow = sending::list_flow(&section, flows);
    let report = report(&section);
    let keep_posts_ms = section.seconds("keep_posts_s", KEEP_POSTS_S, 0.0..=KEEP_POSTS_S_MAX);
    let commands = commands(&section);
    let spans = |key: &str| section.span_of(key);
    let (address_span, owner_span, id_span) = (spans("address"), spans("owner"), spans("list_id"));

    let list = own.and_then(|own| {
        let bounces = match bounces {
            Some(configured) => configured,
            None => default_bounces(context, name, &own, &address_span),
        };
        let default_id = format!("{name}.{}", own.domain());
        let list_id = list_id.map_or_else(|| default_id.clone(), |text| text.value.to_owned());
        let default_bounces = format!("{name}-bounces@{}", own.domain());
        derived(&section, "list_id", &list_id, &default_id);
        derived(&section, "precedence", precedence, PRECEDENCE);
        derived(&section, "bounces", bounces.as_ref().map_or("", Address::as_str), &default_bounces);
        let settings = ListSettings {
            name: name.into(),
            bounces: bounces?,
            owner,
            post: post?,
            list_id,
            precedence: (precedence != "none").then(|| precedence.to_owned()),
            description: description.to_owned(),
            archive,
            archived_at,
            rewrite_from,
            commands,
            address: own,
        };
        checked(&section, settings)
    });
    section.finish();
    Some(ListSpot {
        value: ListConfig {
            list: list?,
            subscribers,
            archives: archives.iter().map(|archive| archive.value.clone()).collect(),
            flow,
            report,
            keep_posts_ms,
        },
        address_span,
        owner_span,
        id_span,
        archives,
    })
}

/// Builds a list, or reports what is wrong with its settings.
fn checked(section: &Section<'_>, settings: ListSettings) -> Option<Arc<List>> {
    let list = List::new(settings);
    for error in list.as_ref().err().into_iter().flatten() {
        section.context.error(section.span_of(error.setting), error.message.clone());
    }
    list.ok().map(Arc::new)
}

/// Reads the path of the subscribers file, and warns if the file is unreadable.
fn subscribers(section: &Section<'_>) -> Option<PathBuf> {
    let text = section.text("subscribers")?;
    let context = section.context;
    let path = context.path(text.value);
    if let Some(FileProblem { why, next }) = unreadable(context, &path) {
        let message = format!(
            "subscribers file `{}` cannot be read: {why}; {next}. Until then, posts go to the subscribers last \
             read, or get 451 if there are none",
            path.display()
        );
        // An unreadable file of one list must not stop the mail of others.
        context.warn(text.span, message);
    }
    Some(path)
}

/// Records a key whose default follows from other keys.
fn derived(section: &Section<'_>, key: &str, value: &str, default: &str) {
    section.effective(key, Origin::Default, settings::quoted(value), settings::quoted(default));
}

fn default_bounces(context: &Context<'_>, name: &str, own: &Address, span: &Range<usize>) -> Option<Address> {
    let text = format!("{name}-bounces@{}", own.domain());
    let bounces = text.parse().ok();
    if bounces.is_none() {
        context.error(span.clone(), format!("`{text}` is not a valid mail address; set `bounces` of list `{name}`"));
    }
    bounces
}

/// Why a file cannot be opened for reading, and the remedy.
struct FileProblem {
    why: String,
    next: &'static str,
}

/// Opens the file on a thread of its own, which is left behind if the file system hangs. The files of other lists are
/// then not opened: one thread is enough.
fn unreadable(context: &Context<'_>, path: &Path) -> Option<FileProblem> {
    let wait = context.file_wait.get();
    if wait.is_zero() {
        return None;
    }
    let (opened, result) = mpsc::channel();
    let (file, since) = (path.to_owned(), Instant::now());
    let opening = move || {
        // Nobody waits any more if it took too long.
        _ = opened.send(stentor_lists::subscribers::open(&file).err());
    };
    let started = thread::Builder::new().name("subscribers".to_owned()).spawn(opening);
    let error = match started.map(|_| result.recv_timeout(wait)) {
        Ok(Ok(error)) => error?,
        Ok(Err(_)) => {
            context.file_wait.set(Duration::ZERO);
            let why = "its file system does not respond".to_owned();
            return Some(FileProblem { why, next: "see that it is mounted; the files of later lists were not tried" });
        }
        Err(error) => error,
    };
    context.file_wait.set(wait.saturating_sub(since.elapsed()));
    let next = match error.kind() {
        io::ErrorKind::NotFound => "create it (it may be empty), or correct the path",
        io::ErrorKind::InvalidInput => "name a file",
        _ => "make it readable for the server's user",
    };
    Some(FileProblem { why: error.to_string(), next })
}

fn post(section: &Section<'_>) -> Option<PostingPolicy> {
    let Some(texts) = section.texts("post") else { return Some(PostingPolicy::Anyone) };
    match texts.as_slice() {
        [one] if one.value == "anyone" => return Some(PostingPolicy::Anyone),
        [one] if one.value == "members" => return Some(PostingPolicy::Members),
        [one] if !one.value.contains('@') => {
            let message = format!(
                "`post`{} is {:?}; it must be \"anyone\", \"members\" or an array of addresses",
                section.place(),
                one.value
            );
            section.context.error(one.span.clone(), message);
            return None;
        }
        _ => {}
    }
    let named: Vec<Option<Address>> = texts.iter().map(|text| address(section.context, text)).collect();
    named.into_iter().collect::<Option<Vec<Address>>>().map(PostingPolicy::Named)
}

fn alias<'a>(section: &Section<'a>, entry: &Entry<'a>) -> Option<Spot<AliasInput>> {
    section.keep_entry(entry, || settings::value(entry.value));
    let key = Spot { value: entry.key.as_str(), span: entry.key_span.clone() };
    let own = address(section.context, &key);
    let texts = section.texts_of(entry);
    if texts.is_empty() && entry.value.as_array().is_none_or(|items| !items.is_empty()) {
        return None; // neither a string nor an array of strings, which was reported
    }
    let targets: Vec<Option<Address>> = texts.iter().map(|text| address(section.context, text)).collect();
    let targets = targets.into_iter().collect::<Option<Vec<Address>>>()?;
    Some(Spot { value: AliasInput { address: own?, targets }, span: entry.key_span.clone() })
}
