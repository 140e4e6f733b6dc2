//! Reports local subscribers and owners of lists who do not exist, for `stentor check`: their domain is local, but
//! there is no such list, alias, virtual user or mailbox. Posts to such subscribers are returned to the list's owner if
//! there is one; mail to such an owner is lost.
//!
//! Promise: subscribers are looked up as for a post, only those in local domains, at most [`LOOK_UPS_MAX`] per list and
//! for [`LOOK_UPS_WAIT`] in all; skipped ones are reported. A table that cannot be queried has its own finding.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use stentor_config::settings::Settings as Positions;
use stentor_config::{Diagnostic, FilePosition, Severity};
use stentor_control::format::plural;
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_lists::subscribers::{self, Occurrence, Subscriber};
use stentor_mail::address::Address;
use tokio::time::{Instant, timeout_at};

/// Maximum local subscribers looked up per list.
const LOOK_UPS_MAX: usize = 10_000;
/// Time limit for all look-ups, since tables behind sockets may be slow.
const LOOK_UPS_WAIT: Duration = Duration::from_secs(10);
/// Maximum subscribers named per list.
const SHOWN_MAX: usize = 20;

/// The findings that the module describes. `positions` locates the keys of the configuration.
pub(crate) async fn unknown(settings: &Settings, positions: &Positions) -> Vec<Diagnostic> {
    let until = Instant::now() + LOOK_UPS_WAIT;
    let mut found = Vec::new();
    for list in &settings.config.lists {
        let own = list.list.settings();
        let owner = own.owner.as_ref();
        // Members in the registry were checked when they joined.
        let path = list.subscribers.as_deref().unwrap_or(Path::new(""));
        let mut members = Members { settings, domains: HashMap::new(), path, owner, found: &mut found };
        let is_in_time = timeout_at(until, async {
            members.look().await;
            match owner {
                Some(owner) => members.is_unknown(owner).await,
                None => false,
            }
        });
        let Ok(is_unknown) = is_in_time.await else {
            members.report(0, "not all local subscribers were checked: lookups timed out".to_owned());
            break;
        };
        if let Some(owner) = owner.filter(|_| is_unknown) {
            let section = format!("lists.{}", own.name);
            let FilePosition { line, column } = positions.position(&section, "owner").unwrap_or_default();
            let message = format!(
                "list {}: owner {owner} does not exist on this server, so bounce reports are lost; set `owner` to an \
                 address that someone reads",
                own.name
            );
            let file = settings.config.file.clone().unwrap_or_default();
            found.push(Diagnostic { file, line, column, severity: Severity::Warning, message });
        }
    }
    found
}

/// The subscribers of one list.
struct Members<'a> {
    settings: &'a Settings,
    /// Whether each domain is local.
    domains: HashMap<Box<str>, bool>,
    path: &'a Path,
    owner: Option<&'a Address>,
    found: &'a mut Vec<Diagnostic>,
}

impl Members<'_> {
    fn report(&mut self, line: u64, message: String) {
        let (file, line) = (self.path.to_owned(), line as usize);
        self.found.push(Diagnostic { file, line, column: 0, severity: Severity::Warning, message });
    }

    async fn look(&mut self) {
        // A pipe or device has no end; an unreadable file has its own finding.
        if !self.path.is_file() {
            return;
        }
        let mut all: Vec<(u64, Box<str>)> = Vec::new();
        let mut visit = |subscriber: Subscriber<'_>| {
            all.push((subscriber.line, subscriber.address.into()));
            Occurrence::First
        };
        if File::open(self.path).and_then(|mut file| subscribers::read(&mut file, &mut visit)).is_err() {
            return;
        }
        let (mut looked, mut unknown) = (0, 0_u64);
        for (line, text) in all {
            let Ok(address) = text.parse::<Address>() else { continue };
            if !self.is_here(&address).await {
                continue;
            }
            looked += 1;
            if looked > LOOK_UPS_MAX {
                self.report(0, format!("only the first {LOOK_UPS_MAX} local subscribers were looked up"));
                break;
            }
            if !self.is_nobody(&address).await {
                continue;
            }
            unknown += 1;
            if unknown <= SHOWN_MAX as u64 {
                let posts = match self.owner {
                    Some(owner) => format!("posts to it bounce to the list's owner, {owner}"),
                    None => "posts to it are dropped: the list has no `owner`".to_owned(),
                };
                let what = "does not exist on this server: no such list, alias, virtual user or mailbox";
                self.report(line, format!("{address} {what}; {posts}"));
            }
        }
        if let Some(more) = unknown.checked_sub(SHOWN_MAX as u64).filter(|more| *more > 0) {
            self.report(0, format!("and {} that do not exist on this server", plural(more, "more local subscriber")));
        }
    }

    async fn is_unknown(&mut self, address: &Address) -> bool {
        self.is_here(address).await && self.is_nobody(address).await
    }

    /// Whether a local address exists; only such subscribers are looked up, as for a post.
    async fn is_here(&mut self, address: &Address) -> bool {
        let domain = address.domain();
        if let Some(known) = self.domains.get(domain) {
            return *known;
        }
        let rules = &self.settings.rules;
        let is_here = if rules.has_domains_in_tables() {
            let tables = self.settings.tables.questions();
            tables.settle(|tables| rules.stands_here(domain, tables)).await
        } else {
            rules.own_domains().any(|own| own == domain)
        };
        self.domains.insert(domain.into(), is_here);
        is_here
    }

    async fn is_nobody(&self, address: &Address) -> bool {
        let readers = self.settings.found_at(address, Clock::start().now()).await;
        readers.is_ok_and(|readers| readers.is_nobody())
    }
}
