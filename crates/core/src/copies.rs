//! Which mail has copies of its own, and the key that seals their return paths and links.
//!
//! Promise: mail of lists and senders without such settings costs one look at an empty table. The key
//! (`copies.key` in the data directory) is created at the first start, since any message may ask for copies of its own,
//! and read again at each reload.
//!
//! Failure: without a usable key the server does not start, and a reload changes nothing: copies would leave without
//! their links.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use stentor_config::Config;
use stentor_copies::{
    CopyKey, CopyParts, CopyRequest, CopySettings, CopyValues, Issuer, Membership, SenderPath, VerpTemplate,
};
use stentor_mail::address::Address;
use stentor_queue::ids::Ms;

use super::secret_key;

const FILE: &str = "copies.key";
/// Minimum interval between two warnings about copies without their link.
const UNLINKED_EVERY_MS: Ms = 3_600_000;

/// The key file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct CopyKeyError {
    path: PathBuf,
    source: io::Error,
}

/// The server cannot give copies what a message asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`one_click` needs `link_base` in [http] of this server")]
pub struct NoLinkBase;

/// The settings of all copies, in force until the next reload.
#[derive(Default)]
pub struct CopyRules {
    lists: HashMap<Arc<str>, CopySettings, FixedState>,
    /// By the sender's domain.
    senders: HashMap<Box<str>, CopySettings, FixedState>,
    /// Names of all lists by their bounce addresses in lower case.
    bounces: HashMap<Box<str>, Arc<str>, FixedState>,
    link_base: Option<String>,
    key: Option<CopyKey>,
    /// When a copy without the link that its message asked for was last logged.
    unlinked_at: AtomicU64,
}

impl CopyRules {
    pub fn new(config: &Config) -> CopyRules {
        let lists = config.lists.iter().filter(|list| !list.flow.copies.is_empty());
        let lists = lists.map(|list| (list.list.name().clone(), list.flow.copies.clone()));
        let senders = config.sending.senders.iter().filter(|(_, flow)| !flow.copies.is_empty());
        let senders = senders.map(|(domain, flow)| (domain.as_str().into(), flow.copies.clone()));
        let bounces = config
            .lists
            .iter()
            .map(|list| (list.list.settings().bounces.as_str().to_ascii_lowercase().into(), list.list.name().clone()));
        CopyRules {
            lists: lists.collect(),
            senders: senders.collect(),
            bounces: bounces.collect(),
            link_base: config.http.link_base.clone(),
            key: None,
            unlinked_at: AtomicU64::new(0),
        }
    }

    /// Reads the key, and creates it if there is none. Blocks.
    ///
    /// # Errors
    /// There is no usable key, and none can be created.
    pub fn read_key(&mut self, data_dir: &Path) -> Result<(), CopyKeyError> {
        let path = data_dir.join(FILE);
        let key = secret_key::read_or_create(&path).map_err(|source| CopyKeyError { path, source })?;
        self.key = Some(CopyKey::new(&key));
        Ok(())
    }

    /// Returns the settings for mail of a list, or else of a sender; `None`: all copies are equal.
    pub fn of(&self, list: &str, sender: &str) -> Option<&CopySettings> {
        if !list.is_empty() {
            return self.lists.get(list);
        }
        if self.senders.is_empty() {
            return None;
        }
        let (_, domain) = sender.rsplit_once('@')?;
        self.senders.get(domain).filter(|_| may_have_own("", sender))
    }

    /// Returns the list whose bounces come to this address. Only the list's own mail has its return paths: their tags
    /// prove that a person got it.
    pub fn list_of_bounces(&self, sender: &str) -> Option<&Arc<str>> {
        self.bounces.get(&*sender.to_ascii_lowercase())
    }

    /// Whether a copy that should have a link has none, because a reload removed `link_base` after its message was
    /// accepted, and the log has not said so within the hour.
    pub fn is_unlinked_news(&self, settings: &CopySettings, now: Ms) -> bool {
        if !settings.one_click || self.link_base.is_some() {
            return false;
        }
        let before = self.unlinked_at.load(Ordering::Relaxed);
        (before == 0 || now.abs_diff(before) >= UNLINKED_EVERY_MS)
            && self.unlinked_at.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether this server can give copies what a message asks for.
    ///
    /// # Errors
    /// They need links, and `link_base` is not set.
    pub fn check(&self, request: &CopyRequest) -> Result<(), NoLinkBase> {
        if request.demands_link() && self.link_base.is_none() { Err(NoLinkBase) } else { Ok(()) }
    }

    /// Returns the form of return paths of senders at the domain of an address, and the key that seals them.
    pub fn sender_paths(&self, address: &Address) -> Option<(&VerpTemplate, &CopyKey)> {
        if self.senders.is_empty() || is_forwarded(address.local()) {
            return None;
        }
        Some((self.senders.get(address.domain())?.verp.as_ref()?, self.key.as_ref()?))
    }

    /// Returns the reading of a return path that its tag proves, whatever is configured now.
    pub fn proven_reading(&self, path: &Address) -> Option<SenderPath> {
        let key = self.key.as_ref().filter(|_| path.local().contains('+'))?;
        VerpTemplate::tagged().readings(path, key).into_iter().find(|reading| reading.path.is_proven)
    }

    /// Returns what the copy for one recipient has of its own.
    pub fn render(&self, settings: &CopySettings, values: &CopyValues<'_>, now: Ms) -> CopyParts {
        let Some(key) = &self.key else { return CopyParts::default() };
        settings.render(values, Issuer { key, link_base: self.link_base.as_deref(), now_ms: now })
    }

    /// Returns the return path of the copy for one recipient, if it is not the sender.
    pub fn return_path(&self, settings: &CopySettings, values: &CopyValues<'_>) -> Option<String> {
        settings.verp.as_ref()?.render(values, self.key.as_ref()?)
    }

    /// Verifies the token of an unsubscribe link.
    pub fn membership(&self, token: &str, now: Ms) -> Option<Membership> {
        Membership::open(token, self.key.as_ref()?, now)
    }

    pub fn key(&self) -> Option<&CopyKey> {
        self.key.as_ref()
    }
}

/// Whether copies of a list's or sender's mail may have anything of their own: not those of the null sender, and not
/// forwarded ones.
pub fn may_have_own(list: &str, sender: &str) -> bool {
    !list.is_empty() || sender.rsplit_once('@').is_some_and(|(local, _)| !is_forwarded(local))
}

/// Whether mail with this local part of a sender was forwarded (SRS). A return path within it could not be read again.
fn is_forwarded(local: &str) -> bool {
    let begin = local.as_bytes().get(..4);
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(b"SRS0") || begin.eq_ignore_ascii_case(b"SRS1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> CopyRules {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("news.subscribers"), "").unwrap();
        let file = folder.path().join("stentor.toml");
        std::fs::write(&file, text).unwrap();
        CopyRules::new(&stentor_config::check(&file).unwrap())
    }

    #[test]
    fn copies_are_settled_by_list_or_senders_domain() {
        let rules = rules(
            "[http]\nlink_base = \"https://l.example\"\n\
             [lists.news]\naddress = \"news@l.example\"\nsubscribers = \"news.subscribers\"\none_click = true\n\
             [senders.\"shop.example\"]\nverp = \"plain\"\n[senders.\"plain.example\"]\nshare = 2\n",
        );
        assert!(rules.of("news", "news-bounces@l.example").unwrap().one_click);
        assert!(rules.of("", "a@shop.example").unwrap().verp.is_some());
        assert!(rules.of("other", "a@shop.example").is_none() && rules.of("", "a@plain.example").is_none());
        for own in ["news-bounces@l.example", "NEWS-Bounces@L.example"] {
            assert_eq!(rules.list_of_bounces(own).map(|list| &**list), Some("news"), "{own}");
        }
        for other in ["", "news@l.example", "news-bounces+a@l.example", "news-bounces@shop.example"] {
            assert_eq!(rules.list_of_bounces(other), None, "{other}");
        }
        assert!(rules.of("", "").is_none() && rules.of("", "SRS0=x=y=z=a@shop.example").is_none());
    }

    #[test]
    fn links_need_an_address_of_this_server() {
        let request = |text: &str| CopyRequest::parse(text.as_bytes()).unwrap();
        assert_eq!(CopyRules::default().check(&request("verp=plain; one_click")), Err(NoLinkBase));
        assert_eq!(CopyRules::default().check(&request("verp=plain; one_click=false")), Ok(()));
        assert_eq!(rules("[http]\nlink_base = \"https://l.example\"\n").check(&request("one_click")), Ok(()));
        assert!(may_have_own("news", "") && may_have_own("", "a@x") && !may_have_own("", ""));
        assert!(!may_have_own("", "srs0=x=y=z=a@shop.example"));
        // Accepted, then `link_base` was removed.
        let (linked, unlinked) = (request("one_click").over(None), CopyRules::default());
        assert!(unlinked.is_unlinked_news(&linked, 1) && !unlinked.is_unlinked_news(&linked, UNLINKED_EVERY_MS));
        assert!(unlinked.is_unlinked_news(&linked, 1 + UNLINKED_EVERY_MS));
        assert!(!CopyRules::default().is_unlinked_news(&CopySettings::default(), 1));
        assert!(!rules("[http]\nlink_base = \"https://l.example\"\n").is_unlinked_news(&linked, 1));
    }

    #[test]
    fn the_key_is_made_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut rules = CopyRules::default();
        assert!(rules.key.is_none() && !folder.path().join(FILE).exists());
        let address: Address = "a+b=c.example@x.example".parse().unwrap();
        assert!(rules.sender_paths(&address).is_none());
        rules.senders.insert("x.example".into(), CopySettings::default());
        rules.read_key(folder.path()).unwrap();
        assert!(rules.sender_paths(&address).is_none(), "they have no return paths");
        rules.senders.get_mut("x.example").unwrap().verp = Some(VerpTemplate::plain());
        assert!(rules.sender_paths(&address).is_some());
        for other in ["a+b=c.example@y.example", "SRS0+a=b=c.example=d@x.example"] {
            assert!(rules.sender_paths(&other.parse().unwrap()).is_none(), "{other}");
        }
        let first = std::fs::read(folder.path().join(FILE)).unwrap();
        rules.read_key(folder.path()).unwrap();
        assert!(rules.key.is_some() && std::fs::read(folder.path().join(FILE)).unwrap() == first);
        std::fs::write(folder.path().join(FILE), "short").unwrap();
        assert!(rules.read_key(folder.path()).unwrap_err().to_string().contains("remove the file"));
    }
}
