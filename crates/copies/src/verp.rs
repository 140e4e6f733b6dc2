//! Variable envelope return paths: the recipient in the return path of its copy, so that a bounce says for whom it is
//! even if its text does not.
//!
//! A [`VerpTemplate`] renders the path, and reads it again when a bounce comes back. `{tag}` proves that this server
//! sent such a copy; without it anybody who knows the form can write one.

use stentor_mail::address::Address;

use crate::key::{CopyKey, SealUse};
use crate::template::{CopyTemplateError, CopyValues, Piece, Template, Value};

/// RFC 5321 section 4.5.3.1.1.
const LOCAL_BYTES_MAX: usize = 64;
/// Characters of a tag: 40 bits.
const TAG_CHARS: usize = 8;
/// Digits of base 32 that survive a change of case and cannot be mistaken for each other.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Form of the return paths of a list's or sender's mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerpTemplate {
    template: Template,
}

/// A return path that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnPath {
    /// The recipient of the copy, in the case in which the path arrived.
    pub recipient: Address,
    /// Whether its tag proves that this server sent the copy.
    pub is_proven: bool,
}

impl VerpTemplate {
    /// Postfix's and Mailman's form: `{local}+{user}={host}@{domain}`.
    pub fn plain() -> VerpTemplate {
        VerpTemplate { template: fixed("+") }
    }

    /// The same with a tag: `{local}+{tag}-{user}={host}@{domain}`.
    pub fn tagged() -> VerpTemplate {
        VerpTemplate { template: fixed("+{tag}-") }
    }

    /// Parses a template. It begins with `{local}`, has `{user}`, a text and `{host}`, and ends with `@{domain}`, so
    /// that a return path can be read again.
    ///
    /// # Errors
    /// The template has another form.
    pub fn parse(text: &str) -> Result<VerpTemplate, CopyTemplateError> {
        const FORM: CopyTemplateError = CopyTemplateError::Form(
            "a return path has the form `{local}...{user}=...{host}@{domain}`; write, for instance, \
             `{local}+{user}={host}@{domain}`",
        );
        let template = Template::parse(text)?;
        let [Piece::Value(Value::Local), middle @ .., Piece::Text(at), Piece::Value(Value::Domain)] = &*template.pieces
        else {
            return Err(FORM);
        };
        let user = middle.iter().position(|piece| *piece == Piece::Value(Value::User)).ok_or(FORM)?;
        let [Piece::Value(Value::User), Piece::Text(between), Piece::Value(Value::Host)] = &middle[user..] else {
            return Err(FORM);
        };
        let before_is_fixed =
            matches!(&middle[..user], [Piece::Text(_)] | [Piece::Text(_), Piece::Value(Value::Tag), Piece::Text(_)]);
        let is_atom = |text: &str| !text.is_empty() && text.bytes().all(|byte| is_atext(byte) && byte != b'.');
        let texts = middle[..user].iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(&**text),
            Piece::Value(_) => None,
        });
        if **at != *"@" || !before_is_fixed || !is_atom(between) || !texts.into_iter().all(is_atom) {
            return Err(FORM);
        }
        Ok(VerpTemplate { template })
    }

    /// Whether the recipient is in the detail of the sender's address: such paths lead back to the sender without
    /// tables.
    pub fn is_detail(&self) -> bool {
        matches!(&*self.template.pieces, [_, Piece::Text(text), ..] if text.starts_with('+'))
    }

    /// Returns the return path of a copy; `None` if sender and recipient fit in none that is valid everywhere: a null
    /// sender, quoted or non-ASCII local parts, more than 64 octets (RFC 5321 section 4.5.3.1.1).
    pub fn render(&self, values: &CopyValues<'_>, key: &CopyKey) -> Option<String> {
        let is_plain = |address: &str| {
            let local = address.rsplit_once('@').map_or("", |(local, _)| local);
            // A dot-atom (RFC 5322 section 3.2.3).
            local.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atext))
        };
        // A domain literal is no part of a local part.
        let is_name = |address: &str| address.bytes().all(|byte| byte == b'@' || is_atext(byte));
        if !is_plain(values.sender) || !is_plain(values.recipient) || !is_name(values.recipient) {
            return None;
        }
        let tag = if self.template.has(Value::Tag) { tag(key, values.sender, values.recipient) } else { String::new() };
        let path = self.template.render(values, &tag);
        let local_bytes = path.rfind('@')?;
        (local_bytes <= LOCAL_BYTES_MAX && Address::parse(path.as_bytes(), false).is_ok()).then_some(path)
    }

    /// Reads a return path of this sender's mail. `None`: it is none.
    pub fn read(&self, path: &Address, sender: &str, key: &CopyKey) -> Option<ReturnPath> {
        let (sender_local, sender_domain) = sender.rsplit_once('@')?;
        if !path.domain().eq_ignore_ascii_case(sender_domain) {
            return None;
        }
        let mut rest = path.local();
        let (mut seen_tag, mut pieces) = (None, self.template.pieces.iter());
        let between = loop {
            match pieces.next()? {
                Piece::Value(Value::Local) => rest = strip(rest, sender_local)?,
                Piece::Text(text) => rest = strip(rest, text)?,
                Piece::Value(Value::Tag) => {
                    let (tag, behind) = rest.split_at_checked(TAG_CHARS)?;
                    (seen_tag, rest) = (Some(tag), behind);
                }
                // The form is checked by `parse`: user, text, host.
                Piece::Value(_) => match pieces.next()? {
                    Piece::Text(between) => break between,
                    Piece::Value(_) => return None,
                },
            }
        };
        let (user, host) = rest.rsplit_once(&**between)?;
        let recipient = Address::parse(format!("{user}@{host}").as_bytes(), false).ok()?;
        let is_proven = seen_tag.is_some_and(|seen| tag(key, sender, recipient.as_str()) == seen.to_ascii_lowercase());
        Some(ReturnPath { recipient, is_proven })
    }
}

fn fixed(middle: &str) -> Template {
    let text = format!("{{local}}{middle}{{user}}={{host}}@{{domain}}");
    Template::parse(&text).expect("our own template")
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(prefix.len())?;
    begin.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// RFC 5321 section 4.1.2, with dots.
fn is_atext(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&byte)
}

/// Seals sender and recipient, without regard to case: some hosts change it.
fn tag(key: &CopyKey, sender: &str, recipient: &str) -> String {
    use hmac::Mac as _;
    let (sender, recipient) = (sender.to_ascii_lowercase(), recipient.to_ascii_lowercase());
    let seal = key.seal(SealUse::Verp, &[sender.as_bytes(), b"\0", recipient.as_bytes()]).finalize().into_bytes();
    let bits = seal.iter().take(5).fold(0_u64, |bits, octet| bits << 8 | u64::from(*octet));
    (0..TAG_CHARS).map(|at| char::from(DIGITS[(bits >> (35 - 5 * at) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENDER: &str = "news-bounces@l.example";

    fn key() -> CopyKey {
        CopyKey::new(&[7; 32])
    }

    fn path(template: &VerpTemplate, recipient: &str) -> Option<String> {
        template.render(
            &CopyValues { sender: SENDER, membership_sender: SENDER, recipient, name: "", list: "news", message: "1" },
            &key(),
        )
    }

    #[test]
    fn a_return_path_names_its_recipient() {
        assert_eq!(path(&VerpTemplate::plain(), "ann@x.example").unwrap(), "news-bounces+ann=x.example@l.example");
        let tagged = path(&VerpTemplate::tagged(), "Ann+a=b@x.example").unwrap();
        assert!(tagged.starts_with("news-bounces+") && tagged.ends_with("-Ann+a=b=x.example@l.example"), "{tagged}");
        let read = |text: &str| VerpTemplate::tagged().read(&text.parse().unwrap(), SENDER, &key());
        let ann: Address = "Ann+a=b@x.example".parse().unwrap();
        assert_eq!(read(&tagged), Some(ReturnPath { recipient: ann, is_proven: true }));
        assert!(read(&tagged.to_ascii_uppercase()).unwrap().is_proven, "hosts may change the case");
        let forged = tagged.replace("Ann", "Bob");
        assert!(!read(&forged).unwrap().is_proven);
        let other = CopyKey::new(&[8; 32]);
        assert!(!VerpTemplate::tagged().read(&tagged.parse().unwrap(), SENDER, &other).unwrap().is_proven);
        assert_eq!(read("news-bounces@l.example"), None);
        assert_eq!(read("other+00000000-ann=x.example@l.example"), None);
        assert_eq!(read("news-bounces+00000000-ann=x.example@m.example"), None);
        let plain = VerpTemplate::plain().read(&"news-bounces+a=x.example@l.example".parse().unwrap(), SENDER, &key());
        assert!(!plain.unwrap().is_proven, "without a tag nothing is proven");
    }

    #[test]
    fn recipients_that_do_not_fit_have_the_senders_path() {
        let long = format!("{}@x.example", "a".repeat(40));
        for recipient in ["\"a b\"@x.example", "a@[192.0.2.1]", "\u{fc}@x.example", &long, "a"] {
            assert_eq!(path(&VerpTemplate::tagged(), recipient), None, "{recipient}");
        }
        let values =
            CopyValues { sender: "", membership_sender: "", recipient: "a@x.example", name: "", list: "", message: "" };
        assert_eq!(VerpTemplate::plain().render(&values, &key()), None);
    }

    #[test]
    fn templates_of_managers() {
        let mlmmj = VerpTemplate::parse("{local}-{user}={host}@{domain}").unwrap();
        assert_eq!(path(&mlmmj, "ann@x.example").unwrap(), "news-bounces-ann=x.example@l.example");
        let sympa = VerpTemplate::parse("{local}+{user}==a=={host}@{domain}").unwrap();
        let rendered = path(&sympa, "ann@x.example").unwrap();
        assert_eq!(rendered, "news-bounces+ann==a==x.example@l.example");
        assert_eq!(sympa.read(&rendered.parse().unwrap(), SENDER, &key()).unwrap().recipient.as_str(), "ann@x.example");
        for wrong in [
            "",
            "{user}",
            "{local}+{user}{host}@{domain}",
            "{local}{user}={host}@{domain}",
            "{local}+{host}={user}@{domain}",
            "{local}+{user}={host}@{host}",
            "{local}+{user}={host}x@{domain}",
            "{local} {user}={host}@{domain}",
            "{local}+{list}{user}={host}@{domain}",
            "{local}+{tag}{user}={host}@{domain}",
        ] {
            assert!(VerpTemplate::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(VerpTemplate::parse("{local}+{tag}-{user}={host}@{domain}").unwrap(), VerpTemplate::tagged());
    }

    proptest! {
        #[test]
        fn what_is_rendered_is_read(user in "[a-z0-9=+.-]{1,20}", host in "[a-z]{1,8}(\\.[a-z-]{1,8}){0,2}") {
            let recipient = format!("{user}@{host}");
            prop_assume!(recipient.parse::<Address>().is_ok_and(|parsed| parsed.as_str() == recipient));
            for template in [VerpTemplate::plain(), VerpTemplate::tagged()] {
                if let Some(path) = path(&template, &recipient) {
                    let read = template.read(&path.parse().unwrap(), SENDER, &key()).unwrap();
                    prop_assert_eq!(read.recipient.as_str(), &recipient);
                }
            }
        }
    }
}
