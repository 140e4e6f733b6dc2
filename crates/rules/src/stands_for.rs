//! Expands recipient addresses: virtual users, aliases of the configuration and of alias files, recursively.
//!
//! Order: a sender rewritten here (SRS) leads to the original sender, for delivery reports only. For any other
//! address the virtual tables come first, in their order. In a local domain then follow lists and aliases of the
//! configuration, then the alias files, then the implied addresses of the configuration: the postmaster, and the
//! owner of a list without one. Results are looked up again until there are no more. A postmaster who does not exist
//! or leads to nobody is replaced by the configured one (RFC 5321 section 4.5.1). An address among its own targets is
//! kept and not looked up again. Each address and each included file is followed once, so that two paths to it give
//! one copy; the first path determines whose alias a program is, and which `owner-NAME` gets its bounces.
//!
//! A program or file of an alias file becomes a recipient of its own, `NAME=TAG@domain`, for the delivery agent that
//! may run it. `/dev/null` has no recipient and counts as delivered at once.
//!
//! Failure: these defer the recipient, because a broken table must not bounce mail: a table or file that cannot be
//! read, a loop, nesting deeper than [`ALIAS_DEPTH_MAX`], more than [`ADDRESSES_MAX`] addresses or [`FOLLOWED_MAX`]
//! intermediate targets, and a malformed value. The recipient is deferred as a whole, since there is only one reply:
//! if the known targets got the message, the others would never get it, or the known ones twice. Targets that do not
//! exist are skipped and recorded; if none is left, the recipient is refused as unknown.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use stentor_addresses::{ExpansionTarget, FOLLOWED_MAX, Srs, TARGETS_MAX, parse, tag, tagged};
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::{ALIAS_DEPTH_MAX, AddressClass, Expansion, LocalTarget};
use stentor_tables::{IncludeError, Included};

use crate::address::Key;
use crate::addresses::extension;
use crate::book::Rulebook;
use crate::decision::{DecisionReason, MISCONFIGURED, PendingLookup, UNAVAILABLE};
use crate::explain::{Step, note};
use crate::facts::{Field, LookupResult, Subject, TableEntry, TableId, Tables};
use crate::hop::NextHop;
use crate::refusal::{ERROR, has_prefix, sendmail_error};
use crate::rule::Dialect;

/// Maximum addresses of one recipient, including intermediate ones.
pub const ADDRESSES_MAX: usize = TARGETS_MAX;
const UNKNOWN: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "No such list or address here");
/// Key of a table's catch-all.
const ANY: &str = "*";
/// A file that discards its mail.
const NULL: &str = "/dev/null";
/// Local part of RFC 5321 section 4.5.1, in any case.
const POSTMASTER: &str = "postmaster";

/// Reply to mail that is not a report. Otherwise anyone who knows an SRS address could reach its sender for weeks,
/// bypassing our relay rules.
const REPORTS_ONLY: Reply =
    Reply::fixed(550, Enhanced::new(5, 7, 1), "An SRS address accepts only delivery reports (null sender)");

/// An address to look up, and the circumstances.
#[derive(Debug, Clone, Copy)]
pub struct AddressQuery<'a> {
    pub address: &'a Address,
    /// Days since the Unix epoch.
    pub today: u64,
    /// Whether the mail has the null sender: only such mail is returned to a rewritten sender (SRS).
    pub is_report: bool,
}

/// Result of the tables for a recipient.
pub(crate) enum AddressOutcome {
    /// No entry: the policy decides.
    AsItIs,
    /// The domain is ours: for all clients.
    Ours(ExpandedAddress),
    /// The domain is not ours: only for clients that may relay there.
    Elsewhere(ExpandedAddress),
}

/// Expansion of an address, and its source.
pub(crate) struct ExpandedAddress {
    pub class: AddressClass,
    pub by: DecisionReason,
    /// Targets that do not exist.
    pub left_out: Vec<Address>,
}

/// Why the expansion ends early.
pub(crate) enum Stop {
    Pending,
    Refuse(Reply, String),
}

impl From<PendingLookup> for Stop {
    fn from(PendingLookup: PendingLookup) -> Stop {
        Stop::Pending
    }
}

/// Result of one lookup of an address.
enum Meaning {
    Itself,
    Nobody,
    List(Arc<str>),
    Bounces,
    /// A command to a list.
    Command,
    /// An alias of the configuration.
    Fixed(Arc<Expansion>),
    Refused(Reply, String),
    Targets(Targets),
}

struct Targets {
    all: Vec<ExpansionTarget>,
    /// The table, its key and place.
    by: String,
    key: String,
    /// The alias file that contains them.
    file: Option<TableId>,
    /// Owner of the alias.
    owner: Option<Address>,
    /// Extension that the lookup removed; it is added to each target.
    extension: String,
}

impl Targets {
    /// Whether they were found under the full name, including its detail.
    fn is_whole(&self, address: &Address) -> bool {
        extension(&address.unquoted(), &self.key).is_empty()
    }
}

/// The included file that contains the targets.
#[derive(Clone, Copy)]
struct File<'a> {
    path: &'a str,
    /// See [`Included::user`].
    user: Option<u32>,
}

struct Walk<'w, 's> {
    book: &'w Rulebook,
    tables: &'w dyn Tables,
    today: u64,
    is_report: bool,
    steps: &'w mut Option<&'s mut Vec<Step>>,
    found: Expansion,
    kept: HashSet<Address, FixedState>,
    left_out: Vec<Address>,
    /// Addresses being followed, outermost first, in lower case.
    path: Vec<String>,
    seen: HashSet<String, FixedState>,
    /// Included files that were followed, each with the table and user that included it.
    files: HashSet<(TableId, Option<u32>, String), FixedState>,
    /// Current nesting depth of included files.
    files_deep: usize,
    /// Intermediate targets so far, including repeated ones.
    followed: usize,
}

impl Rulebook {
    /// Looks up a recipient in the tables.
    pub(crate) fn here(
        &self,
        query: AddressQuery<'_>,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<AddressOutcome, Stop> {
        let address = query.address;
        let mut walk = Walk::new(self, query, tables, steps);
        let meaning = walk.meaning(address)?;
        let domain = address.domain();
        let by = match &meaning {
            Meaning::Itself | Meaning::List(_) | Meaning::Bounces | Meaning::Command => {
                return Ok(AddressOutcome::AsItIs);
            }
            Meaning::Nobody if self.policy.is_local_domain(domain) => return Ok(AddressOutcome::AsItIs),
            Meaning::Nobody => DecisionReason::Nobody(format!("nobody has {address}").into()),
            Meaning::Fixed(all) if !walk.needs_tables(all) => return Ok(AddressOutcome::AsItIs),
            Meaning::Fixed(_) => DecisionReason::Address(format!("alias {address}").into()),
            Meaning::Refused(_, by) => DecisionReason::Address(by.as_str().into()),
            Meaning::Targets(targets) => DecisionReason::Address(targets.by.as_str().into()),
        };
        let is_ours = matches!(meaning, Meaning::Nobody) || walk.is_ours(domain)?;
        let class = match meaning {
            Meaning::Nobody => AddressClass::Refuse(UNKNOWN),
            Meaning::Refused(reply, _) => AddressClass::Refuse(reply),
            meaning => {
                let key = address.as_str().to_lowercase();
                walk.seen.insert(key.clone());
                walk.path.push(key);
                walk.follow(address, meaning, None)?;
                walk.or_postmaster(address)?;
                if walk.found.is_empty() {
                    AddressClass::Refuse(UNKNOWN)
                } else {
                    AddressClass::Alias(Arc::new(std::mem::take(&mut walk.found)))
                }
            }
        };
        let meant = ExpandedAddress { class, by, left_out: walk.left_out };
        Ok(if is_ours { AddressOutcome::Ours(meant) } else { AddressOutcome::Elsewhere(meant) })
    }

    /// Expands an address that the server itself uses, such as a list's owner or the return address, to people and
    /// programs. Empty: nobody.
    ///
    /// # Errors
    /// A table's answer must be fetched first. The inner error: the table is unavailable.
    pub fn people(
        &self,
        query: AddressQuery<'_>,
        tables: &dyn Tables,
    ) -> Result<Result<Expansion, Reply>, PendingLookup> {
        let (address, steps) = (query.address, &mut None);
        let mut walk = Walk::new(self, query, tables, steps);
        match walk.expand(address.clone(), None).and_then(|()| walk.or_postmaster(address)) {
            Ok(()) => Ok(Ok(walk.found)),
            Err(Stop::Pending) => Err(PendingLookup),
            Err(Stop::Refuse(reply, _)) => Ok(Err(reply)),
        }
    }

    /// Whether addresses of a domain may be expanded: the domain is local, or a relay domain for which virtual tables
    /// are consulted. An unavailable table counts as having none.
    ///
    /// # Errors
    /// A table's answer must be fetched first.
    pub fn stands_here(&self, domain: &str, tables: &dyn Tables) -> Result<bool, PendingLookup> {
        let key = Key::new(&format!("@{domain}"));
        if self.has_own(domain) || self.addresses.virtual_domains.contains(domain) {
            return Ok(true);
        }
        let has_virtual = !self.addresses.virtual_tables.is_empty();
        if has_virtual && self.relay_domains.find(&key).is_some() {
            return Ok(true);
        }
        let relay_tables = if has_virtual { &self.relay_domains.tables[..] } else { &[] };
        for table in relay_tables {
            if self.has_domain(*table, domain, tables, &mut None)?.unwrap_or_default() {
                return Ok(true);
            }
        }
        let Ok(address) = format!("{POSTMASTER}@{domain}").parse::<Address>() else { return Ok(false) };
        let query = AddressQuery { address: &address, today: 0, is_report: false };
        match Walk::new(self, query, tables, &mut None).is_ours(domain) {
            Ok(is_ours) => Ok(is_ours),
            Err(Stop::Pending) => Err(PendingLookup),
            Err(Stop::Refuse(..)) => Ok(false),
        }
    }

    /// Whether a table has the domain as a key, or a parent domain with a leading dot; the inner error is the reason
    /// why it is unavailable.
    ///
    /// # Errors
    /// Its answer must be fetched first.
    pub(crate) fn has_domain(
        &self,
        table: TableId,
        domain: &str,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Result<bool, String>, PendingLookup> {
        let name = self.table_name(table);
        let (place, answer, result) = match tables.ask(table, Field::Recipient, Subject::Name(domain)) {
            // A catch-all would make all domains local.
            LookupResult::Found(found) if found.key == ANY => {
                (found.place, format!("{ANY} is not a domain"), Ok(false))
            }
            LookupResult::Found(found) => (found.place, format!("has {}", found.key), Ok(true)),
            LookupResult::NotFound => (String::new(), format!("has no {domain}"), Ok(false)),
            LookupResult::Pending => return Err(PendingLookup),
            LookupResult::Unavailable(why) => {
                let why = format!("table {name} unavailable: {why}");
                (String::new(), why.clone(), Err(why))
            }
        };
        note(steps, || (format!("domains of {name}"), place, answer));
        Ok(result)
    }

    /// The new sender of mail forwarded to these recipients, if it must be rewritten: their hosts would not accept
    /// the original sender's domain from us (SPF), and reports must return through this server.
    pub fn forwarder<'a>(
        &self,
        sender: &str,
        mut to: impl Iterator<Item = &'a Address>,
        today: u64,
    ) -> Option<Address> {
        let srs = self.addresses.srs.as_ref()?;
        let sender: Address = sender.parse().ok()?;
        let is_ours =
            |domain: &str| self.policy.is_local_domain(domain) || self.addresses.alias_domains.contains(domain);
        if is_ours(sender.domain()) || sender.has_route_syntax() || to.all(|to| is_ours(to.domain())) {
            return None;
        }
        // A sender that would become too long is not rewritten.
        srs.forward(sender.local(), sender.domain(), today).parse().ok()
    }
}

impl<'w, 's> Walk<'w, 's> {
    fn new(
        book: &'w Rulebook,
        query: AddressQuery<'_>,
        tables: &'w dyn Tables,
        steps: &'w mut Option<&'s mut Vec<Step>>,
    ) -> Self {
        Walk {
            book,
            tables,
            today: query.today,
            is_report: query.is_report,
            steps,
            found: Expansion::default(),
            kept: HashSet::default(),
            left_out: Vec::new(),
            path: Vec::new(),
            seen: HashSet::default(),
            files: HashSet::default(),
            files_deep: 0,
            followed: 0,
        }
    }

    /// Follows an address to its final targets.
    fn expand(&mut self, address: Address, owner: Option<&Address>) -> Result<(), Stop> {
        let key = address.as_str().to_lowercase();
        if self.path.last() == Some(&key) {
            return self.keep(address, owner);
        }
        if let Some(begin) = self.path.iter().position(|step| *step == key) {
            let way = self.path[begin..].join(" -> ");
            return Err(self.wrong(format!("loop: {way} -> {key}")));
        }
        if !self.seen.insert(key.clone()) {
            return Ok(());
        }
        if self.path.len() >= ALIAS_DEPTH_MAX {
            return Err(self.wrong(format!("aliases are nested more than {ALIAS_DEPTH_MAX} deep at {address}")));
        }
        if self.seen.len() > ADDRESSES_MAX {
            return Err(self.wrong(format!("more than {ADDRESSES_MAX} addresses")));
        }
        let meaning = self.meaning(&address)?;
        self.path.push(key);
        let followed = self.follow(&address, meaning, owner);
        self.path.pop();
        followed
    }

    /// Follows all items in order. Those after a pending one are followed too, so that all missing answers are
    /// fetched together.
    fn each<T>(
        &mut self,
        all: impl Iterator<Item = T>,
        mut follow: impl FnMut(&mut Self, T) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut is_pending = false;
        for one in all {
            match follow(self, one) {
                Err(Stop::Pending) => is_pending = true,
                other => other?,
            }
        }
        if is_pending { Err(Stop::Pending) } else { Ok(()) }
    }

    fn follow(&mut self, address: &Address, meaning: Meaning, owner: Option<&Address>) -> Result<(), Stop> {
        match meaning {
            Meaning::Itself => self.add(address.clone(), owner),
            Meaning::Nobody | Meaning::Bounces | Meaning::Command | Meaning::Refused(..) => {
                self.leave_out(address.clone());
            }
            Meaning::List(name) => self.list(name),
            Meaning::Fixed(all) => {
                all.lists.iter().for_each(|name| self.list(name.clone()));
                self.count(all.everyone().count())?;
                self.each(all.everyone(), |walk, to| walk.expand(to.clone(), owner))?;
            }
            Meaning::Targets(targets) => {
                let sender = targets.owner.as_ref().or(owner);
                self.count(targets.all.len())?;
                self.each(targets.all.iter(), |walk, target| walk.target(address, target, &targets, sender, None))?;
            }
        }
        Ok(())
    }

    fn target(
        &mut self,
        of: &Address,
        target: &ExpansionTarget,
        targets: &Targets,
        owner: Option<&Address>,
        within: Option<File<'_>>,
    ) -> Result<(), Stop> {
        match (target, targets.file) {
            (ExpansionTarget::Address(text), _) => {
                let to = self.book.named(text, &targets.extension).ok_or_else(|| self.no_address(text, &targets.by))?;
                self.expand(to, owner)
            }
            (ExpansionTarget::Domain(domain), None) => {
                let text = format!("{}@{domain}", of.local());
                let to = self.book.named(&text, "").ok_or_else(|| self.no_address(&text, &targets.by))?;
                self.expand(to, owner)
            }
            (ExpansionTarget::Final(text), _) => {
                let to = self.book.named(text, "").ok_or_else(|| self.no_address(text, &targets.by))?;
                self.keep(to, owner)
            }
            (ExpansionTarget::Include(path), Some(file)) => self.include(of, file, path, targets, owner, within),
            (ExpansionTarget::File(path), Some(_)) if path == NULL => {
                self.found.has_null = true;
                Ok(())
            }
            (ExpansionTarget::Program(text), Some(_)) => {
                self.program(of, target, format!("|{text}"), targets, owner, within)
            }
            (ExpansionTarget::File(path), Some(_)) => self.program(of, target, path.clone(), targets, owner, within),
            (
                ExpansionTarget::Domain(_)
                | ExpansionTarget::Include(_)
                | ExpansionTarget::Program(_)
                | ExpansionTarget::File(_),
                _,
            ) => Err(self.wrong(format!("{}: only addresses are allowed here", targets.by))),
        }
    }

    /// The recipient address that gives the delivery agent a program or file.
    fn program(
        &mut self,
        of: &Address,
        target: &ExpansionTarget,
        text: String,
        targets: &Targets,
        owner: Option<&Address>,
        within: Option<File<'_>>,
    ) -> Result<(), Stop> {
        let name = format!("{}{}", targets.key.to_lowercase(), extension(of.local(), &targets.key));
        let local = tagged(&name, &tag(target, within.map(|file| file.path)).unwrap_or_default());
        let Ok(address) = format!("{local}@{}", of.domain()).parse::<Address>() else {
            return Err(self.wrong(format!("{}: this alias's name cannot be used for a program or file", targets.by)));
        };
        if self.kept.len() >= ADDRESSES_MAX {
            return Err(self.wrong(format!("more than {ADDRESSES_MAX} addresses")));
        }
        let hop = &self.book.addresses.programs;
        note(self.steps, || {
            (
                text.clone(),
                String::new(),
                format!("delivered by {} as {address}", hop.as_deref().unwrap_or(&NextHop::Mx)),
            )
        });
        if self.kept.insert(address.clone()) {
            self.found.programs.push(LocalTarget { address, text, owner: owner.cloned() });
        }
        Ok(())
    }

    /// The targets of an included file, unless they have been followed.
    fn include(
        &mut self,
        of: &Address,
        table: TableId,
        path: &str,
        targets: &Targets,
        owner: Option<&Address>,
        within: Option<File<'_>>,
    ) -> Result<(), Stop> {
        let user = within.and_then(|file| file.user);
        if !self.files.insert((table, user, path.to_owned())) {
            return Ok(());
        }
        if self.files_deep >= ALIAS_DEPTH_MAX {
            return Err(self.wrong(format!("{path}: included files are nested more than {ALIAS_DEPTH_MAX} deep")));
        }
        let file = self.included(table, path, user)?;
        self.count(file.targets.len())?;
        self.files_deep += 1;
        let within = Some(File { path, user: file.user });
        let followed = self.each(file.targets.iter(), |walk, target| walk.target(of, target, targets, owner, within));
        self.files_deep -= 1;
        followed
    }

    fn included(&mut self, table: TableId, path: &str, user: Option<u32>) -> Result<Arc<Included>, Stop> {
        match self.tables.include(table, path, user) {
            Some(Ok(file)) => {
                let count = file.targets.len();
                note(self.steps, || (":include:".to_owned(), path.to_owned(), format!("{count} targets")));
                Ok(file)
            }
            Some(Err(why @ IncludeError::Unreadable { .. })) => Err(self.unavailable(why.to_string())),
            Some(Err(IncludeError::Malformed(why))) => Err(self.wrong(why)),
            None => Err(self.unavailable(format!("{path} was not read with the alias file"))),
        }
    }

    /// Counts targets to follow, including repeated ones, which take time, too.
    fn count(&mut self, targets: usize) -> Result<(), Stop> {
        self.followed += targets;
        if self.followed > FOLLOWED_MAX {
            return Err(self.wrong(format!("more than {FOLLOWED_MAX} targets, including those of included files")));
        }
        Ok(())
    }

    /// One lookup of an address.
    fn meaning(&mut self, address: &Address) -> Result<Meaning, Stop> {
        let (book, domain) = (self.book, address.domain());
        let is_ours = book.policy.is_local_domain(domain);
        let own = &book.addresses;
        if let Some(srs) = own.srs.as_ref().filter(|srs| srs.is_ours(address.local(), domain)) {
            return Ok(self.rewritten(srs, address));
        }
        let has_names = book.has_names(domain);
        for table in &own.virtual_tables {
            let dialect = book.dialect(*table);
            if dialect == Dialect::Virtusertable && !is_ours {
                continue;
            }
            let subject = Subject::Mailbox { address: address.as_str(), is_local: has_names };
            if let Some(found) = self.ask("virtual", *table, subject)? {
                return self.virtual_user(*table, address, &found);
            }
        }
        // A full name in an alias file takes precedence over an alias of the configuration for the address without
        // its detail.
        let is_implied = is_ours && book.policy.is_implied(address);
        let is_by_base = is_ours && book.policy.is_by_base(address);
        if has_names
            && (is_implied || is_by_base)
            && let Some(targets) = self.alias(address)?
            && (is_implied || targets.is_whole(address))
        {
            return Ok(Meaning::Targets(targets));
        }
        let local = if is_ours { Some(book.policy.rcpt(std::net::Ipv4Addr::LOCALHOST.into(), address)) } else { None };
        match local {
            Some(AddressClass::List(name)) => return Ok(Meaning::List(name)),
            Some(AddressClass::Bounces(_)) => return Ok(Meaning::Bounces),
            Some(AddressClass::Command { .. }) => return Ok(Meaning::Command),
            Some(AddressClass::Alias(all)) => return Ok(Meaning::Fixed(all)),
            Some(AddressClass::Relay | AddressClass::Refuse(_)) | None => {}
        }
        if has_names && let Some(targets) = self.alias(address)? {
            return Ok(Meaning::Targets(targets));
        }
        Ok(if is_ours || self.is_ours(domain)? {
            self.postmaster(address).map_or(Meaning::Nobody, Meaning::Targets)
        } else {
            Meaning::Itself
        })
    }

    /// If a postmaster leads to nobody, follows the configured one.
    fn or_postmaster(&mut self, address: &Address) -> Result<(), Stop> {
        match self.found.is_empty().then(|| self.postmaster(address)).flatten() {
            Some(targets) => self.follow(address, Meaning::Targets(targets), None),
            None => Ok(()),
        }
    }

    /// The postmaster of a domain without one: the configuration's, else that of the alias files.
    fn postmaster(&mut self, address: &Address) -> Option<Targets> {
        let base = address.without_detail();
        if !base.as_ref().unwrap_or(address).local().eq_ignore_ascii_case(POSTMASTER) {
            return None;
        }
        let own = &self.book.addresses;
        let is_other = |to: &Address| !to.as_str().eq_ignore_ascii_case(address.as_str());
        let of_files = || self.book.named(POSTMASTER, "").filter(|_| !own.alias_tables.is_empty());
        let to = self.book.policy.postmaster().cloned().or_else(of_files).filter(is_other)?;
        // One that leads back to itself does not count.
        if self.path.contains(&to.as_str().to_lowercase()) {
            return None;
        }
        let by = format!("postmaster of {}", address.domain());
        note(self.steps, || (by.clone(), String::new(), format!("not configured; default: {to}")));
        let (all, key, extension) = (vec![ExpansionTarget::Address(to.to_string())], String::new(), String::new());
        Some(Targets { all, by, key, file: None, owner: None, extension })
    }

    /// The original sender of an address rewritten here.
    fn rewritten(&mut self, srs: &Srs, address: &Address) -> Meaning {
        let by = format!("SRS address {address}");
        let back = srs.reverse(address.local(), self.today);
        let is_report = self.is_report;
        note(self.steps, || {
            let answer = match &back {
                Ok(sender) if is_report => sender.clone(),
                Ok(_) => "refused: the mail has a sender, so it is not a delivery report".to_owned(),
                Err(error) => format!("refused: {error}"),
            };
            ("SRS".to_owned(), String::new(), answer)
        });
        match back {
            Ok(_) if !is_report => Meaning::Refused(REPORTS_ONLY, by),
            Ok(sender) => {
                let all = vec![ExpansionTarget::Address(sender)];
                Meaning::Targets(Targets {
                    all,
                    by,
                    key: String::new(),
                    file: None,
                    owner: None,
                    extension: String::new(),
                })
            }
            Err(error) => {
                Meaning::Refused(Reply::new(550, Enhanced::new(5, 7, 1), format!("Invalid SRS address: {error}")), by)
            }
        }
    }

    fn virtual_user(&mut self, table: TableId, address: &Address, found: &TableEntry) -> Result<Meaning, Stop> {
        let by = self.by(table, found);
        let value = found.value.trim();
        let is_postfix = self.book.dialect(table) == Dialect::Virtual;
        if !is_postfix && has_prefix(value, ERROR) {
            return Ok(Meaning::Refused(sendmail_error(&value[ERROR.len()..]), by));
        }
        let all = parse(value).map_err(|error| self.wrong(format!("{by}: {error}")))?;
        let extension = if is_postfix { extension(address.local(), &found.key) } else { String::new() };
        Ok(Meaning::Targets(Targets { all, by, key: String::new(), file: None, owner: None, extension }))
    }

    /// Entry of the alias files for a name.
    fn alias(&mut self, address: &Address) -> Result<Option<Targets>, Stop> {
        let book = self.book;
        // Names in alias files do not have the quotes of an address.
        let name = address.unquoted();
        for table in &book.addresses.alias_tables {
            let subject = Subject::Mailbox { address: &name, is_local: true };
            let Some(found) = self.ask("aliases", *table, subject)? else { continue };
            let by = self.by(*table, &found);
            let all = parse(&found.value).map_err(|error| self.wrong(format!("{by}: {error}")))?;
            let owner = self.owner(*table, &found.key, address.domain())?;
            return Ok(Some(Targets { all, by, key: found.key, file: Some(*table), owner, extension: String::new() }));
        }
        Ok(None)
    }

    /// Sender of an alias's copies: `owner-NAME`, if there is such an alias.
    fn owner(&mut self, table: TableId, name: &str, domain: &str) -> Result<Option<Address>, Stop> {
        if name.get(..6).is_some_and(|begin| begin.eq_ignore_ascii_case("owner-")) {
            return Ok(None);
        }
        let Some(owner) = self.book.named(&format!("owner-{name}@{domain}"), "") else { return Ok(None) };
        let subject = Subject::Mailbox { address: owner.as_str(), is_local: true };
        Ok(self.ask("aliases", table, subject)?.map(|_| owner))
    }

    fn ask(&mut self, what: &str, table: TableId, subject: Subject<'_>) -> Result<Option<TableEntry>, Stop> {
        let name = self.book.table_name(table);
        let key = if let Subject::Mailbox { address, .. } = subject { address } else { "" };
        let (place, answer, result) = match self.tables.ask(table, Field::Recipient, subject) {
            LookupResult::Found(found) => {
                (found.place.clone(), format!("{}: {}", found.key, found.value), Ok(Some(found)))
            }
            LookupResult::NotFound => (String::new(), format!("has nothing for {key}"), Ok(None)),
            LookupResult::Pending => return Err(Stop::Pending),
            LookupResult::Unavailable(why) => {
                let why = format!("table {name} unavailable: {why}");
                (String::new(), why.clone(), Err(Stop::Refuse(UNAVAILABLE, why)))
            }
        };
        note(self.steps, || (format!("{what} {name}"), place, answer));
        result
    }

    /// Whether a domain is ours, or a key of a table in Postfix's format.
    fn is_ours(&mut self, domain: &str) -> Result<bool, Stop> {
        let book = self.book;
        if book.policy.is_local_domain(domain) {
            return Ok(true);
        }
        if domain.starts_with('[') {
            return Ok(false);
        }
        for table in &book.addresses.virtual_tables {
            if book.dialect(*table) == Dialect::Virtual {
                let subject = Subject::Mailbox { address: domain, is_local: false };
                if self.ask("virtual domains of", *table, subject)?.is_some() {
                    return Ok(true);
                }
            }
        }
        for table in &book.addresses.virtual_domain_tables {
            match book.has_domain(*table, domain, self.tables, self.steps)? {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(why) => return Err(Stop::Refuse(UNAVAILABLE, why)),
            }
        }
        Ok(false)
    }

    /// Whether the targets of a configured alias must be looked up in tables.
    fn needs_tables(&self, all: &Expansion) -> bool {
        !self.book.addresses.virtual_tables.is_empty()
            || all.everyone().any(|to| {
                self.book.policy.is_local_domain(to.domain()) || self.book.addresses.alias_domains.contains(to.domain())
            })
    }

    /// Adds an address that is not looked up again.
    fn keep(&mut self, address: Address, owner: Option<&Address>) -> Result<(), Stop> {
        if self.is_ours(address.domain())? {
            self.leave_out(address);
        } else {
            self.add(address, owner);
        }
        Ok(())
    }

    fn add(&mut self, address: Address, owner: Option<&Address>) {
        if !self.kept.insert(address.clone()) {
            return;
        }
        let Some(owner) = owner else { return self.found.addresses.push(address) };
        match self.found.owned.iter_mut().find(|(there, _)| there == owner) {
            Some((_, all)) => all.push(address),
            None => self.found.owned.push((owner.clone(), vec![address])),
        }
    }

    fn list(&mut self, name: Arc<str>) {
        if !self.found.lists.contains(&name) {
            self.found.lists.push(name);
        }
    }

    fn leave_out(&mut self, address: Address) {
        note(self.steps, || (address.to_string(), String::new(), "skipped: unknown address".to_owned()));
        self.left_out.push(address);
    }

    fn by(&self, table: TableId, found: &TableEntry) -> String {
        let (name, key, place) = (self.book.table_name(table), &found.key, &found.place);
        if place.is_empty() { format!("table {name}, {key}") } else { format!("table {name}, {key} ({place})") }
    }

    fn no_address(&mut self, text: &str, by: &str) -> Stop {
        self.wrong(format!("{by}: {text:?} is not a valid mail address"))
    }

    fn wrong(&mut self, why: String) -> Stop {
        note(self.steps, || ("addresses".to_owned(), String::new(), why.clone()));
        Stop::Refuse(MISCONFIGURED, why)
    }

    fn unavailable(&mut self, why: String) -> Stop {
        note(self.steps, || ("addresses".to_owned(), String::new(), why.clone()));
        Stop::Refuse(UNAVAILABLE, why)
    }
}
