//! `archive_to` of `[lists.NAME]`: who archives a list's posts.
//!
//! An archive is a next hop, which gets the posts for the list's own address, or an address at another server. The
//! first is out of reach for everybody else; an address is not, so addresses of this server are refused: a next hop
//! serves as well. Maildirs, mboxes and programs are services of `stentor-deliver`, since the server may not name files
//! and commands.
//!
//! Failure: everything wrong is an error at its entry.

use std::fmt;

use stentor_mail::address::Address;
use stentor_policy::{AddressClass, Policy, UNTRUSTED_CLIENT};
use stentor_rules::NextHop;

use super::diagnose::Spot;
use super::raw::Section;

const KEY: &str = "archive_to";
/// Maximum archives of a list: each costs a delivery of every post.
const ARCHIVES_MAX: usize = 16;
const SERVICES: &str = "Maildirs, mboxes and programs are services of stentor-deliver (docs/operate/local-delivery.md): \
    write \"pipe:NAME\"";

/// Where a list's posts are archived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveTarget {
    /// Hosts or a service, which get the posts for the list's address.
    Hop(NextHop),
    /// A recipient at another server.
    Address(Address),
}

impl fmt::Display for ArchiveTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArchiveTarget::Hop(hop) => hop.fmt(out),
            ArchiveTarget::Address(address) => address.fmt(out),
        }
    }
}

/// Reads `archive_to` of a list.
pub(super) fn read(section: &Section<'_>, smtp_port: u16) -> Vec<Spot<ArchiveTarget>> {
    let mut archives: Vec<Spot<ArchiveTarget>> = Vec::new();
    for text in section.texts(KEY).unwrap_or_default() {
        match target(text.value, smtp_port) {
            Ok(value) if archives.iter().any(|known| known.value == value) => {
                section.context.error(text.span, format!("{:?} appears twice in `{KEY}`", text.value));
            }
            Ok(value) => archives.push(Spot { value, span: text.span }),
            Err(why) => section.context.error(text.span, why),
        }
    }
    if let Some(more) = archives.get(ARCHIVES_MAX) {
        let message = format!("`{KEY}` has more than {ARCHIVES_MAX} entries; let one archive feed the others");
        section.context.error(more.span.clone(), message);
    }
    archives
}

fn target(text: &str, smtp_port: u16) -> Result<ArchiveTarget, String> {
    let is_of_service = ["/", "|", "~", "./", "maildir:", "mbox:", ":include:"];
    if is_of_service.iter().any(|begin| text.trim_start().starts_with(begin)) {
        return Err(format!("{text:?} is not a next hop or an address: {SERVICES}"));
    }
    // Next hops with `@` begin with a scheme: `lmtp:unix:/run/a@b`.
    let is_address = text.split_once('@').is_some_and(|(local, _)| local.starts_with('"') || !local.contains(':'));
    if is_address {
        let address = text.parse().map_err(|error| format!("{text:?} is not a valid mail address: {error}"))?;
        return Ok(ArchiveTarget::Address(address));
    }
    match NextHop::parse(text, smtp_port) {
        Ok(NextHop::Mx) => Err("\"mx\" is the list's own domain: name a next hop or an address".to_owned()),
        Ok(NextHop::Refuse(_)) => Err(format!("{text:?} archives nothing: name a next hop or an address")),
        Ok(hop) => Ok(ArchiveTarget::Hop(hop)),
        Err(error) => Err(format!("{error}; {SERVICES}")),
    }
}

/// Returns why an address cannot archive this list: posts would return to a list of this server, or anybody could
/// write to the archive.
pub(super) fn unfit(policy: &Policy, list: &str, address: &Address) -> Option<String> {
    match policy.rcpt(UNTRUSTED_CLIENT, address) {
        AddressClass::List(other) if *other == *list => {
            Some(format!("{address} is the list itself: its posts would return to it; name an archive"))
        }
        AddressClass::List(other) => Some(format!(
            "{address} is list `{other}`, not an archive: to pass posts on to it, add it to the subscribers"
        )),
        AddressClass::Bounces(other) => Some(format!("{address} is for bounces of list `{other}`; name an archive")),
        _ if policy.is_local_domain(address.domain()) => Some(format!(
            "{address} is an address of this server, to which anybody may write: name the next hop of the archive \
             itself. {SERVICES}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::config;

    fn list(archives: &str) -> String {
        format!(
            "[domains]\nlocal = [\"here.test\"]\n[hops]\ngate = \"192.0.2.1\"\n\
             [lists.news]\naddress = \"news@l.test\"\nsubscribers = \"/dev/null\"\narchive_to = {archives}\n\
             [lists.other]\naddress = \"other@l.test\"\nsubscribers = \"/dev/null\"\n"
        )
    }

    fn error(archive: &str) -> String {
        let text = list(&format!("[{archive:?}]"));
        let found = crate::check_text(std::path::Path::new("stentor.toml"), &text).unwrap_err();
        found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn archives_are_next_hops_or_addresses() {
        let text =
            "[\"pipe:inbox\", \"lmtp:127.0.0.1:8024\", \"hop:gate\", \"lmtp:unix:/run/a@b\", \"Archive@x.example\"]";
        let checked = config(&list(text));
        let shown = checked.lists[0].archives.iter().map(ToString::to_string);
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "lmtp:unix:/run/stentor-deliver/inbox.sock",
                "lmtp:127.0.0.1:8024",
                "hop:gate",
                "lmtp:unix:/run/a@b",
                "Archive@x.example"
            ]
        );
        // A hop that only an archive uses is used.
        assert_eq!(checked.unused(&[]), []);
        assert_eq!(config(&list("\"pipe:inbox\"")).lists[0].archives.len(), 1);
    }

    #[test]
    fn wrong_archives() {
        for (archive, why) in [
            ("maildir:/var/lib/inbox/news", "services of stentor-deliver"),
            ("/srv/news.mbox", "write \"pipe:NAME\""),
            ("|/usr/bin/x", "write \"pipe:NAME\""),
            ("news@L.test", "is the list itself"),
            ("other@l.test", "is list `other`, not an archive"),
            ("news-bounces@l.test", "is for bounces of list `news`"),
            ("archive@here.test", "is an address of this server"),
            ("archive@l.test", "is an address of this server"),
            ("hop:gaet", "there is no hop \"gaet\"; did you mean \"gate\"?"),
            ("mx", "is the list's own domain"),
            ("error: 550 5.1.1 no", "archives nothing"),
            ("a@b@", "is not a valid mail address"),
            ("", "the next hop is missing"),
        ] {
            assert!(error(archive).contains(why), "{archive}: {}", error(archive));
        }
        let twice = list("[\"pipe:inbox\", \"pipe:inbox\"]");
        let found = crate::check_text(std::path::Path::new("stentor.toml"), &twice).unwrap_err();
        assert!(found.iter().any(|error| error.to_string().contains("appears twice")), "{found:?}");
    }
}
