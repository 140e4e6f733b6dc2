//! One list's settings, validated.

use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_mail::headers::FORMER_LIST_ID;
use stentor_mime::field;

use crate::author::{FromRewriting, ListAuthor, PostAuthor, append_rewritten};
use crate::commands::{CommandSettings, JoinPolicy, ListCommand};
use crate::fields::{append, is_archive_url, is_list_id, mailto, mailto_with, phrase};
use crate::permalink::{PermalinkTemplate, append_archived_at};

/// Longest description of a list.
pub const DESCRIPTION_CHARS_MAX: usize = 500;

/// Fields of every list, then those of lists that take commands.
const OWN_FIELDS: [&str; 9] = [
    LIST_ID,
    LIST_POST,
    LIST_OWNER,
    LIST_ARCHIVE,
    PRECEDENCE,
    LIST_HELP,
    LIST_SUBSCRIBE,
    LIST_UNSUBSCRIBE,
    LIST_UNSUBSCRIBE_POST,
];
/// Number of the fields of every list.
const PLAIN_FIELDS: usize = 5;
const LIST_ID: &str = "List-Id";
const LIST_POST: &str = "List-Post";
const LIST_OWNER: &str = "List-Owner";
const LIST_ARCHIVE: &str = "List-Archive";
const PRECEDENCE: &str = "Precedence";
const LIST_HELP: &str = "List-Help";
const LIST_SUBSCRIBE: &str = "List-Subscribe";
const LIST_UNSUBSCRIBE: &str = "List-Unsubscribe";
/// Never set here: it is for links, which only copies have.
const LIST_UNSUBSCRIBE_POST: &str = "List-Unsubscribe-Post";

/// The header fields that a list may set itself; a post's own must not stay beside them (RFC 2369 section 3).
/// `takes_commands`: any list that the post may reach takes commands.
pub fn own_fields(takes_commands: bool) -> &'static [&'static str] {
    if takes_commands { &OWN_FIELDS } else { &OWN_FIELDS[..PLAIN_FIELDS] }
}

/// Who may post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostingPolicy {
    Anyone,
    /// Only subscribers.
    Members,
    /// Only these addresses.
    Named(Vec<Address>),
}

/// A list's settings before they are checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSettings {
    pub name: Arc<str>,
    pub address: Address,
    /// Envelope sender of every copy: the address for bounces.
    pub bounces: Address,
    pub owner: Option<Address>,
    pub post: PostingPolicy,
    /// RFC 2919 identifier without angle brackets.
    pub list_id: String,
    /// Value of `Precedence`; `None` omits the field.
    pub precedence: Option<String>,
    /// Phrase of `List-Id`; may be empty.
    pub description: String,
    /// URL of `List-Archive`.
    pub archive: Option<String>,
    /// Template of a post's permalink, for `Archived-At`.
    pub archived_at: Option<String>,
    pub rewrite_from: FromRewriting,
    /// Set for a list that people join and leave by commands.
    pub commands: Option<CommandSettings>,
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ListError {
    /// The setting's name, as in [`ListSettings`].
    pub setting: &'static str,
    pub message: String,
}

/// A list with valid settings, and its header fields prebuilt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    settings: ListSettings,
    fields: Vec<u8>,
    permalinks: Option<PermalinkTemplate>,
}

/// Parts of a post on which the fields of its copies depend.
#[derive(Debug, Clone, Copy, Default)]
pub struct PostFields<'a> {
    /// Fields that were removed from it, because lists set them.
    pub removed: &'a [u8],
    /// Its author, if the list's address may replace it in From.
    pub author: Option<PostAuthor<'a>>,
    /// Value of its Message-ID.
    pub message_id: Option<&'a str>,
}

impl List {
    /// Checks the settings and builds the header fields; reports every error.
    pub fn new(mut settings: ListSettings) -> Result<Self, Vec<ListError>> {
        let mut errors = Vec::new();
        let mut fail = |setting, message: String| errors.push(ListError { setting, message });
        if !is_list_id(&settings.list_id) {
            let message = format!(
                "`{}` is not a valid list identifier (RFC 2919); use one such as `news.example.org`",
                settings.list_id.escape_debug()
            );
            fail("list_id", message);
        }
        if let Some(word) = &settings.precedence
            && (word.is_empty()
                || word.len() > 30
                || !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
        {
            fail(
                "precedence",
                format!("`{}` is not a single word of letters, digits and hyphens", word.escape_debug()),
            );
        }
        if settings.description.chars().count() > DESCRIPTION_CHARS_MAX {
            fail("description", format!("the description is longer than {DESCRIPTION_CHARS_MAX} characters"));
        }
        if settings.description.chars().any(char::is_control) {
            fail("description", "the description contains a line break or another control character".to_owned());
        }
        if let Some(url) = settings.archive.as_ref().filter(|url| !is_archive_url(url)) {
            fail("archive", format!("`{}` is not an http, https or ftp URL", url.escape_debug()));
        }
        let permalinks = settings.archived_at.as_deref().map(PermalinkTemplate::parse).transpose();
        let permalinks = permalinks.unwrap_or_else(|error| {
            fail("archived_at", error.to_string());
            None
        });
        if let Some(owner) = &settings.owner
            && owner.as_str().eq_ignore_ascii_case(settings.address.as_str())
        {
            let message =
                format!("the owner `{owner}` is the list itself: name a person, who gets its bounces and reports");
            fail("owner", message);
        }
        if settings.post == PostingPolicy::Named(Vec::new()) {
            fail("post", "nobody may post: name at least one address, or use \"members\" or \"anyone\"".to_owned());
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        settings.list_id.make_ascii_lowercase();
        let fields = fields_of(&settings);
        Ok(Self { settings, fields, permalinks })
    }

    pub fn settings(&self) -> &ListSettings {
        &self.settings
    }

    pub fn name(&self) -> &Arc<str> {
        &self.settings.name
    }

    /// Returns the header fields that precede every copy of a post: whole lines with CRLF, folded.
    pub fn header_fields(&self) -> &[u8] {
        &self.fields
    }

    /// Returns the URL at which the archive shows a post with this Message-ID.
    pub fn permalink(&self, message_id: &str) -> Option<String> {
        self.permalinks.as_ref()?.of(message_id)
    }

    /// Returns `Archived-At` of a post with this Message-ID, a whole line, or nothing. Posts keep those of other lists
    /// (RFC 5064 section 2.3).
    pub fn archived_at_field(&self, message_id: Option<&str>) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(url) = message_id.and_then(|id| self.permalink(id)) {
            append_archived_at(&mut out, &url);
        }
        out
    }

    /// Returns the header fields that precede every copy of a post. The list's own fields replace those that were
    /// removed from it; of the others the first of each name is kept. A `List-Id` is kept under another name, since the
    /// list that set it recognises its posts by it. If the list's address is to be in From, its field is among them,
    /// at the end; the post's must then be left out of the content.
    pub fn copy_fields(&self, post: PostFields<'_>) -> Vec<u8> {
        let mut out = self.fields.clone();
        out.extend_from_slice(&self.archived_at_field(post.message_id));
        for whole in field::lines(post.removed) {
            let Some((name, _)) = field::split(whole) else { continue };
            if name.eq_ignore_ascii_case(LIST_ID.as_bytes()) {
                out.extend_from_slice(FORMER_LIST_ID.as_bytes());
                out.extend_from_slice(&whole[name.len()..]);
            } else if name.eq_ignore_ascii_case(LIST_UNSUBSCRIBE_POST.as_bytes()) && self.settings.commands.is_some() {
                // It belongs to the List-Unsubscribe that the list's own replaces (RFC 8058 section 3.1).
            } else if !names(&out).any(|known| known.eq_ignore_ascii_case(name)) {
                out.extend_from_slice(whole);
            }
        }
        out.extend_from_slice(&self.author_fields(post.author));
        out
    }

    /// Returns the fields of copies that have the list's address in From, or nothing.
    pub fn author_fields(&self, author: Option<PostAuthor<'_>>) -> Vec<u8> {
        let mut out = Vec::new();
        let is_rewritten = |author: &PostAuthor<'_>| match self.settings.rewrite_from {
            FromRewriting::Never => false,
            FromRewriting::Dmarc => author.is_refused,
            FromRewriting::Always => true,
        };
        if let Some(author) = author.filter(is_rewritten) {
            let list = ListAuthor { name: &self.settings.name, address: &self.settings.address };
            append_rewritten(author, list, &mut out);
        }
        out
    }
}

fn names(fields: &[u8]) -> impl Iterator<Item = &[u8]> {
    field::lines(fields).filter_map(|whole| field::split(whole).map(|(name, _)| name))
}

fn fields_of(list: &ListSettings) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut id = if list.description.trim().is_empty() { Vec::new() } else { phrase(&list.description) };
    id.push(format!("<{}>", list.list_id));
    append(&mut out, LIST_ID, &id);
    append(&mut out, LIST_POST, &[mailto(&list.address)]);
    if let Some(owner) = &list.owner {
        append(&mut out, LIST_OWNER, &[mailto(owner)]);
    }
    if let Some(url) = &list.archive {
        append(&mut out, LIST_ARCHIVE, &[format!("<{url}>")]);
    }
    if let Some(word) = &list.precedence {
        append(&mut out, PRECEDENCE, std::slice::from_ref(word));
    }
    if list.commands.is_some() {
        let commands = [
            (LIST_HELP, ListCommand::Request, "?subject=help"),
            (LIST_SUBSCRIBE, ListCommand::Join, ""),
            (LIST_UNSUBSCRIBE, ListCommand::Leave, ""),
        ];
        let is_closed = list.commands.is_some_and(|commands| commands.join == JoinPolicy::Closed);
        for (name, command, query) in commands.into_iter().filter(|(name, ..)| !(is_closed && *name == LIST_SUBSCRIBE))
        {
            if let Some(address) = command.address(&list.address) {
                append(&mut out, name, &[mailto_with(&address, query)]);
            }
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings() -> ListSettings {
        ListSettings {
            name: "news".into(),
            address: "news@lists.example.org".parse().unwrap(),
            bounces: "news-bounces@lists.example.org".parse().unwrap(),
            owner: Some("ann@people.example".parse().unwrap()),
            post: PostingPolicy::Anyone,
            list_id: "News.lists.example.org".into(),
            precedence: Some("list".into()),
            description: "All the news".into(),
            archive: Some("https://lists.example.org/news/".into()),
            archived_at: None,
            rewrite_from: FromRewriting::Dmarc,
            commands: None,
        }
    }

    #[test]
    fn header_fields_of_a_list() {
        let list = List::new(settings()).unwrap();
        let expected = "List-Id: \"All the news\" <news.lists.example.org>\r\n\
                        List-Post: <mailto:news@lists.example.org>\r\n\
                        List-Owner: <mailto:ann@people.example>\r\n\
                        List-Archive: <https://lists.example.org/news/>\r\n\
                        Precedence: list\r\n";
        assert_eq!(std::str::from_utf8(list.header_fields()).unwrap(), expected);
        assert!(names(list.header_fields()).eq(own_fields(false).iter().map(|name| name.as_bytes())));
        assert!(OWN_FIELDS.iter().all(|name| stentor_mail::edited::LIST_FIELDS.contains(name)));
    }

    #[test]
    fn a_list_that_takes_commands_names_their_addresses() {
        let fields = |join| {
            let commands = Some(CommandSettings { join, ..CommandSettings::default() });
            let list = List::new(ListSettings { commands, ..settings() }).unwrap();
            let taken =
                b"List-Unsubscribe: <https://x.example>\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n";
            let post = PostFields { removed: taken, author: None, message_id: None };
            assert_eq!(list.copy_fields(post), list.header_fields());
            String::from_utf8(list.header_fields().to_vec()).unwrap()
        };
        let (help, leave) = (
            "List-Help: <mailto:news-request@lists.example.org?subject=help>\r\n",
            "List-Unsubscribe: <mailto:news-leave@lists.example.org>\r\n",
        );
        let join = "List-Subscribe: <mailto:news-join@lists.example.org>\r\n";
        assert!(fields(JoinPolicy::Open).ends_with(&format!("Precedence: list\r\n{help}{join}{leave}")));
        assert!(fields(JoinPolicy::Closed).ends_with(&format!("Precedence: list\r\n{help}{leave}")));
    }

    #[test]
    fn a_list_is_not_its_own_owner() {
        let owner = Some("News@Lists.example.org".parse().unwrap());
        let errors = List::new(ListSettings { owner, ..settings() }).unwrap_err();
        assert_eq!(errors.iter().map(|error| error.setting).collect::<Vec<_>>(), ["owner"]);
        assert!(errors[0].message.contains("is the list itself"), "{errors:?}");
    }

    #[test]
    fn fields_of_another_list_give_way() {
        let list = List::new(ListSettings { archive: None, ..settings() }).unwrap();
        let own = String::from_utf8(list.header_fields().to_vec()).unwrap();
        for (taken, behind) in [
            ("", ""),
            ("List-Id: Parent\r\n <p.example>\r\n", "X-Original-List-Id: Parent\r\n <p.example>\r\n"),
            ("LIST-ID : <p.example>\r\nlist-post: <x>\r\n", "X-Original-List-Id : <p.example>\r\n"),
            (
                "List-Id: <p.example>\r\nList-Id: <q.example>\r\n",
                "X-Original-List-Id: <p.example>\r\nX-Original-List-Id: <q.example>\r\n",
            ),
            ("precedence: bulk\r\nPrecedence: junk\r\nList-Owner: <x>\r\n", ""),
            ("List-Archive: <1>\r\nLIST-ARCHIVE: <2>\r\n", "List-Archive: <1>\r\n"),
            ("List-Help: <h\u{f6}>\r\n", "List-Help: <h\u{f6}>\r\n"),
        ] {
            let post = PostFields { removed: taken.as_bytes(), ..PostFields::default() };
            let got = String::from_utf8(list.copy_fields(post)).unwrap();
            assert_eq!(got, format!("{own}{behind}"), "{taken}");
        }
    }

    #[test]
    fn each_post_has_its_permalink() {
        let archived_at = Some("https://lists.example.org/news/{message_id}/".into());
        let list = List::new(ListSettings { archived_at, ..settings() }).unwrap();
        let fields = |message_id| {
            let fields = list.copy_fields(PostFields { message_id, ..PostFields::default() });
            String::from_utf8(fields[list.header_fields().len()..].to_vec()).unwrap()
        };
        assert_eq!(
            fields(Some("<1/2@x.example>")),
            "Archived-At: <https://lists.example.org/news/1%2F2@x.example/>\r\n"
        );
        assert_eq!((fields(None), fields(Some("<..>"))), (String::new(), String::new()));
    }

    #[test]
    fn from_is_rewritten_where_it_must_be() {
        let copy = |rewrite_from, is_refused| {
            let list = List::new(ListSettings { rewrite_from, ..settings() }).unwrap();
            let author = PostAuthor { from: b"From: Ann <a@x.example>\r\n", has_reply_to: true, is_refused };
            let fields = list.copy_fields(PostFields { author: Some(author), ..PostFields::default() });
            String::from_utf8(fields[list.header_fields().len()..].to_vec()).unwrap()
        };
        let lists = "From: \"Ann via news\" <news@lists.example.org>\r\nX-Original-From: Ann <a@x.example>\r\n";
        for (rewriting, is_refused, wanted) in [
            (FromRewriting::Never, true, ""),
            (FromRewriting::Dmarc, false, ""),
            (FromRewriting::Dmarc, true, lists),
            (FromRewriting::Always, false, lists),
        ] {
            assert_eq!(copy(rewriting, is_refused), wanted, "{rewriting:?} {is_refused}");
        }
    }

    #[test]
    fn the_fewest_fields() {
        let settings =
            ListSettings { owner: None, precedence: None, description: " ".into(), archive: None, ..settings() };
        let list = List::new(settings).unwrap();
        assert_eq!(
            list.header_fields(),
            b"List-Id: <news.lists.example.org>\r\nList-Post: <mailto:news@lists.example.org>\r\n"
        );
    }

    #[test]
    fn every_wrong_setting_is_reported() {
        let wrong = ListSettings {
            list_id: "news\r\nBcc: x".into(),
            precedence: Some("a b".into()),
            description: "a\r\nBcc: x@y".into(),
            archive: Some("news".into()),
            archived_at: Some("https://lists.example.org/".into()),
            post: PostingPolicy::Named(Vec::new()),
            ..settings()
        };
        let errors = List::new(wrong).unwrap_err();
        let settings: Vec<&str> = errors.iter().map(|error| error.setting).collect();
        assert_eq!(settings, ["list_id", "precedence", "description", "archive", "archived_at", "post"]);
        assert!(errors[0].message.starts_with("`news\\r\\nBcc: x` is not a valid list identifier"));
    }
}
