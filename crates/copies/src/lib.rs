//! What a copy has of its own: its return path (VERP), its unsubscribe link (RFC 8058), and further header fields.
//!
//! Promise: everything is computed from the message, the recipient and the server's [`CopyKey`] when the copy is sent,
//! so that nothing is stored per recipient. Whatever the values contain, a return path is a valid address and a field
//! is one line. Tags and tokens are sealed by the key: nobody else can create one or alter one for another recipient.
//!
//! [`CopySettings`] are configured for a list or sender; one message may ask for others ([`CopyRequest`]).
//!
//! Failure: a recipient whose address fits no return path gets the sender's own.

mod fields;
mod key;
mod mailbox;
mod merge;
mod request;
mod template;
mod unsubscribe;
mod verp;

pub use fields::{CopyFields, FieldError, FieldTemplate, without};
pub use key::{CopyKey, KEY_BYTES};
pub use mailbox::{NAME_BYTES_MAX, display_name};
pub use merge::{MERGE_TABLE_BYTES_MAX, MergeError, MergeRows, MergeTable};
pub use request::{CopyRequest, CopyRequestError, DsnTo, ListWeakened, REQUEST_BYTES_MAX, RequestItems};
pub use template::{CopyTemplateError, CopyValues};
pub use unsubscribe::{LINK_BASE_BYTES_MAX, Membership, TOKEN_DAYS, UNSUBSCRIBE_PATH};
use unsubscribe::{UNSUBSCRIBE_FIELDS, unsubscribe_fields};
pub use verp::{ReturnPath, SenderPath, VerpTemplate};

/// What the copies of a list's or sender's mail have of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopySettings {
    /// The return path; `None`: the sender's.
    pub verp: Option<VerpTemplate>,
    /// Whether copies have a one-click unsubscribe link.
    pub one_click: bool,
    pub fields: CopyFields,
}

/// What links and seals need of the server.
#[derive(Debug, Clone, Copy)]
pub struct Issuer<'a> {
    pub key: &'a CopyKey,
    /// `https://` and a host, without a final slash; `None`: copies have no link.
    pub link_base: Option<&'a str>,
    /// Since the Unix epoch.
    pub now_ms: u64,
}

/// What one copy has of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyParts {
    /// `None`: the sender's.
    pub return_path: Option<String>,
    /// Whole header lines with CRLF, ASCII.
    pub fields: Vec<u8>,
}

impl CopySettings {
    /// Whether all copies are equal.
    pub fn is_empty(&self) -> bool {
        self.verp.is_none() && !self.one_click && self.fields.is_empty()
    }

    /// Names of the header fields that copies have of their own.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        UNSUBSCRIBE_FIELDS.into_iter().filter(|_| self.one_click).chain(self.fields.names())
    }

    /// Returns what the copy for one recipient has of its own.
    pub fn render(&self, values: &CopyValues<'_>, issuer: Issuer<'_>) -> CopyParts {
        let return_path = self.verp.as_ref().and_then(|verp| verp.render(values, issuer.key));
        let mut fields = Vec::new();
        if let Some(base) = issuer.link_base.filter(|_| self.one_click)
            && let Some(token) = Membership::of(values).token(issuer.key, issuer.now_ms)
        {
            fields.extend_from_slice(unsubscribe_fields(base, &token).as_bytes());
        }
        self.fields.render(values, &mut fields);
        CopyParts { return_path, fields }
    }
}

impl CopyParts {
    /// Returns header lines without the fields that the copy has of its own; `None` if there are none of these.
    pub fn without_own(&self, header: &[u8]) -> Option<Vec<u8>> {
        let own: Vec<&[u8]> = fields::names(&self.fields).collect();
        fields::without(header, |name| own.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }
}

/// Whether a text is printable ASCII, as a field of a copy must be.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_with_everything() {
        let fields = CopyFields::new(vec![FieldTemplate::parse("Feedback-ID: {list}:x").unwrap()]).unwrap();
        let settings = CopySettings { verp: Some(VerpTemplate::tagged()), one_click: true, fields };
        let key = CopyKey::new(&[1; KEY_BYTES]);
        let values = CopyValues {
            sender: "news-bounces@l.example",
            membership_sender: "news-bounces@l.example",
            recipient: "ann@x.example",
            name: "",
            list: "news",
            message: "1",
        };
        let issuer = Issuer { key: &key, link_base: Some("https://l.example"), now_ms: 0 };
        let own = settings.render(&values, issuer);
        let text = String::from_utf8(own.fields.clone()).unwrap();
        let token = text.split("/unsubscribe/").nth(1).unwrap().split('>').next().unwrap();
        let membership = Membership::open(token, &key, 0).unwrap();
        assert_eq!(membership, Membership::List { list: "news".into(), recipient: "ann@x.example".into() });
        assert_eq!(
            text.replace(token, "T"),
            "List-Unsubscribe:\r\n <https://l.example/unsubscribe/T>\r\n\
             List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\nFeedback-ID: news:x\r\n"
        );
        assert!(own.return_path.as_deref().unwrap().ends_with("-ann=x.example@l.example"));
        assert_eq!(own.without_own(b"A: 1\r\nlist-unsubscribe: <x>,\r\n <y>\r\n").unwrap(), b"A: 1\r\n");
        assert_eq!(own.without_own(b"A: 1\r\n"), None);
        let none = settings.render(&values, Issuer { link_base: None, ..issuer });
        assert_eq!(none.fields, b"Feedback-ID: news:x\r\n", "nobody could follow the link");
        assert!(CopySettings::default().is_empty() && none.without_own(b"List-Unsubscribe: <x>\r\n").is_none());
    }
}
