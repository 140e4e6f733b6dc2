//! Variable envelope return paths: the recipient in the return path of its copy, so that a bounce says for whom it is
//! even if its text does not.
//!
//! A [`VerpTemplate`] renders the path, and reads it again when a bounce comes back. `{tag}` proves that this server
//! sent such a copy; without it anybody who knows the form can write one. If the sender is not known, a path may have
//! several readings, because texts of the template may also be in names: `a+b+c=x.example`.

use stentor_mail::address::Address;

use crate::key::{CopyKey, SealUse};
use crate::template::{CopyTemplateError, CopyValues, OWNER, Piece, Template, Value};

/// Names of forms.
const PLAIN: &str = "plain";
const TAGGED: &str = "tagged";
/// RFC 5321 section 4.5.3.1.1.
const LOCAL_BYTES_MAX: usize = 64;
/// Characters of a tag: 40 bits.
const TAG_CHARS: usize = 8;
/// Maximum readings of one path.
const READINGS_MAX: usize = 64;
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

/// A return path that has been read, and whose mail it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderPath {
    /// Envelope sender, in the case in which the path arrived.
    pub sender: String,
    pub path: ReturnPath,
}

/// Values in the local part of a return path.
#[derive(Clone, Copy, Default)]
struct PathValues<'p> {
    local: &'p str,
    tag: Option<&'p str>,
    user: &'p str,
    host: &'p str,
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

    /// Returns the form that a configuration or a message names: `plain`, `tagged`, or a template.
    ///
    /// # Errors
    /// The text is a template of another form.
    pub fn named(text: &str) -> Result<VerpTemplate, CopyTemplateError> {
        match text {
            PLAIN => Ok(VerpTemplate::plain()),
            TAGGED => Ok(VerpTemplate::tagged()),
            template => VerpTemplate::parse(template),
        }
    }

    /// Whether the text is a name of [`VerpTemplate::named`], not a template.
    pub fn is_named(text: &str) -> bool {
        [PLAIN, TAGGED].contains(&text)
    }

    /// Parses a template. It has `{local}` or `{local-owner}`, `{user}`, a text and `{host}`, perhaps `{tag}`, with
    /// texts between, and ends with `@{domain}`, so that a return path can be read again.
    ///
    /// # Errors
    /// The template has another form.
    pub fn parse(text: &str) -> Result<VerpTemplate, CopyTemplateError> {
        const FORM: CopyTemplateError = CopyTemplateError::Form(
            "a return path has `{local}` or `{local-owner}`, `{user}`, a text and `{host}`, and ends with `@{domain}`; \
             example: `{local}+{user}={host}@{domain}`",
        );
        let template = Template::parse(text)?;
        let [middle @ .., Piece::Text(at), Piece::Value(Value::Domain)] = &*template.pieces else { return Err(FORM) };
        if **at != *"@" || !has_readable_form(middle) {
            return Err(FORM);
        }
        Ok(VerpTemplate { template })
    }

    /// Whether the recipient is in the detail of the sender's address: such paths lead back to the sender without
    /// tables.
    pub fn is_detail(&self) -> bool {
        matches!(&*self.template.pieces, [Piece::Value(Value::Local), Piece::Text(text), ..] if text.starts_with('+'))
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
        let local = values.sender.rsplit_once('@').map_or("", |(local, _)| local);
        if self.template.has(Value::LocalOfOwner) && !local.ends_with(OWNER) {
            return None;
        }
        let tag = if self.template.has(Value::Tag) { tag(key, values.sender, values.recipient) } else { String::new() };
        let path = self.template.render(values, &tag);
        let local_bytes = path.rfind('@')?;
        (local_bytes <= LOCAL_BYTES_MAX && Address::parse(path.as_bytes(), false).is_ok()).then_some(path)
    }

    /// Reads a return path of this sender's mail. None if it is not one.
    pub fn read(&self, path: &Address, sender: &str, key: &CopyKey) -> Option<ReturnPath> {
        let mut found = None;
        self.each_reading(path, key, &mut |reading| {
            let is_senders = reading.sender.eq_ignore_ascii_case(sender);
            found = is_senders.then_some(reading.path);
            is_senders
        });
        found
    }

    /// Reads a return path of some sender at its domain: the proven reading, or else all, the likeliest first. Empty
    /// if it is not one.
    pub fn readings(&self, path: &Address, key: &CopyKey) -> Vec<SenderPath> {
        let mut all = Vec::new();
        self.each_reading(path, key, &mut |reading| {
            let is_proven = reading.path.is_proven;
            if is_proven {
                all.clear();
            }
            all.push(reading);
            is_proven
        });
        all
    }

    /// Visits up to [`READINGS_MAX`] readings until `visit` returns true. None of a path that [`VerpTemplate::render`]
    /// never makes: anybody can send mail to such addresses, and each reading may cost a seal.
    fn each_reading(&self, path: &Address, key: &CopyKey, visit: &mut dyn FnMut(SenderPath) -> bool) {
        if path.local().len() > LOCAL_BYTES_MAX {
            return;
        }
        // The form is checked by `parse`: the last two pieces are `@{domain}`.
        let Some((local, _)) = self.template.pieces.split_last_chunk::<2>() else { return };
        let end = if self.template.has(Value::LocalOfOwner) { OWNER } else { "" };
        let mut visit_values = |values: PathValues<'_>| {
            let sender = format!("{}{end}@{}", values.local, path.domain());
            let recipient = Address::parse(format!("{}@{}", values.user, values.host).as_bytes(), false);
            let (Ok(recipient), Ok(_)) = (recipient, Address::parse(sender.as_bytes(), false)) else { return false };
            let is_proven =
                values.tag.is_some_and(|seen| tag(key, &sender, recipient.as_str()).eq_ignore_ascii_case(seen));
            visit(SenderPath { sender, path: ReturnPath { recipient, is_proven } })
        };
        let mut left = READINGS_MAX;
        let mut visit = |values: PathValues<'_>| {
            left -= 1;
            visit_values(values) || left == 0
        };
        each_match(local, path.local(), PathValues::default(), &mut visit);
    }
}

/// Whether values can be read from the local part of a return path: each once and with texts between, `{user}` not at
/// the beginning and `{host}` after it.
fn has_readable_form(middle: &[Piece]) -> bool {
    let count = |wanted: &[Value]| {
        middle.iter().filter(|piece| matches!(piece, Piece::Value(value) if wanted.contains(value))).count()
    };
    let is_known = |piece: &Piece| match piece {
        Piece::Text(text) => !text.is_empty() && text.bytes().all(|byte| is_atext(byte) && byte != b'.'),
        Piece::Value(value) => {
            matches!(value, Value::Local | Value::LocalOfOwner | Value::User | Value::Host | Value::Tag)
        }
    };
    let Some(user) = middle.iter().position(|piece| *piece == Piece::Value(Value::User)) else { return false };
    user > 0
        && matches!(&middle[user..], [_, Piece::Text(_), Piece::Value(Value::Host), ..])
        && count(&[Value::Local, Value::LocalOfOwner]) == 1
        && count(&[Value::User]) == 1
        && count(&[Value::Host]) == 1
        && count(&[Value::Tag]) <= 1
        && middle.iter().all(is_known)
        && middle.windows(2).all(|two| !matches!(two, [Piece::Value(_), Piece::Value(_)]))
}

/// Visits the values with which pieces make a text, until `visit` returns true. Returns whether it did.
fn each_match<'p>(
    pieces: &[Piece],
    text: &'p str,
    values: PathValues<'p>,
    visit: &mut dyn FnMut(PathValues<'p>) -> bool,
) -> bool {
    let Some((piece, pieces)) = pieces.split_first() else { return text.is_empty() && visit(values) };
    let value = match piece {
        Piece::Text(own) => return strip(text, own).is_some_and(|text| each_match(pieces, text, values, visit)),
        Piece::Value(Value::Tag) => {
            let Some((tag, text)) = text.split_at_checked(TAG_CHARS) else { return false };
            if !tag.bytes().all(|byte| DIGITS.contains(&byte.to_ascii_lowercase())) {
                return false;
            }
            return each_match(pieces, text, PathValues { tag: Some(tag), ..values }, visit);
        }
        Piece::Value(value) => *value,
    };
    let with = |text: &'p str| match value {
        Value::User => PathValues { user: text, ..values },
        Value::Host => PathValues { host: text, ..values },
        _ => PathValues { local: text, ..values },
    };
    let Some(Piece::Text(next)) = pieces.first() else {
        return !text.is_empty() && each_match(pieces, "", with(text), visit);
    };
    let is_end = |end: &usize| text.get(*end..).is_some_and(|rest| strip(rest, next).is_some());
    let mut ends: Vec<usize> = (1..text.len()).filter(is_end).collect();
    // The first `+` starts the detail, as in Mailman. Other separators are more likely in the sender (mlmmj's
    // `list+bounces-12-ann=x.example`) than in the recipient, so the last one is tried first; hosts contain none.
    let is_first = value == Value::Host || value != Value::User && next.starts_with('+');
    if !is_first {
        ends.reverse();
    }
    ends.into_iter().any(|end| each_match(pieces, &text[end..], with(&text[..end]), visit))
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
            "{local}+{local-owner}-{user}={host}@{domain}",
            "b+{user}={host}@{domain}",
            "{user}={host}+{local}@{domain}",
            "{local}+{user}={host}=@{domain}",
        ] {
            assert!(VerpTemplate::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(VerpTemplate::parse("{local}+{tag}-{user}={host}@{domain}").unwrap(), VerpTemplate::tagged());
    }

    fn readings(template: &VerpTemplate, path: &str) -> Vec<(String, String, bool)> {
        let read = template.readings(&path.parse().unwrap(), &key()).into_iter();
        read.map(|read| (read.sender, read.path.recipient.to_string(), read.path.is_proven)).collect()
    }

    fn reading(sender: &str, recipient: &str, is_proven: bool) -> (String, String, bool) {
        (sender.to_owned(), recipient.to_owned(), is_proven)
    }

    /// Mailman's `VERP_REGEXP`: `^(?P<bounces>[^+]+?)\+(?P<local>[^=]+)=(?P<domain>[^@]+)@.*$`.
    fn mailman(path: &str) -> Option<[&str; 3]> {
        let (bounces, rest) = path.split_once('+')?;
        let (local, rest) = rest.split_once('=')?;
        let (domain, _) = rest.split_once('@')?;
        (![bounces, local, domain].contains(&"")).then_some([bounces, local, domain])
    }

    #[test]
    fn managers_parse_their_forms() {
        let plain = path(&VerpTemplate::plain(), "ann+a@x.example").unwrap();
        assert_eq!(mailman(&plain).unwrap(), ["news-bounces", "ann+a", "x.example"]);
        assert_eq!(readings(&VerpTemplate::plain(), &plain)[0], reading(SENDER, "ann+a@x.example", false));
        let mlmmj = VerpTemplate::parse("{local}-{user}={host}@{domain}").unwrap();
        let sender = "talk+bounces-12@l.example";
        let values = |sender| CopyValues {
            sender,
            membership_sender: sender,
            recipient: "ann-b@x.example",
            name: "",
            list: "",
            message: "",
        };
        let rendered = mlmmj.render(&values(sender), &key()).unwrap();
        assert_eq!(rendered, "talk+bounces-12-ann-b=x.example@l.example");
        assert!(readings(&mlmmj, &rendered).contains(&reading(sender, "ann-b@x.example", false)));
        // Sympa: `bounce+user==a==host==list@domain`; its sender is `list-owner`.
        let sympa = VerpTemplate::parse("bounce+{user}==a=={host}=={local-owner}@{domain}").unwrap();
        assert!(!sympa.is_detail());
        let rendered = sympa.render(&values("news-owner@l.example"), &key()).unwrap();
        assert_eq!(rendered, "bounce+ann-b==a==x.example==news@l.example");
        assert_eq!(readings(&sympa, &rendered), [reading("news-owner@l.example", "ann-b@x.example", false)]);
        assert_eq!(sympa.render(&values("news@l.example"), &key()), None, "Sympa knows no list of this name");
    }

    #[test]
    fn a_tag_tells_readings_apart() {
        let template = VerpTemplate::parse("{local}-{tag}-{user}={host}@{domain}").unwrap();
        let rendered = path(&template, "a-b=c@x.example").unwrap();
        assert_eq!(readings(&template, &rendered), [reading(SENDER, "a-b=c@x.example", true)]);
        assert_eq!(readings(&template, &rendered.replace("a-b", "a-d")).iter().filter(|read| read.2).count(), 0);
        assert_eq!(readings(&VerpTemplate::plain(), "news@l.example"), []);
        let many = format!("a{}=x.example@l.example", "+a".repeat(26));
        assert_eq!(readings(&VerpTemplate::plain(), &many).len(), 26);
    }

    /// Addresses that nothing was ever sent from cost nothing.
    #[test]
    fn what_no_copy_has_is_not_read() {
        let longest = format!("a+{}=x.example", "b".repeat(LOCAL_BYTES_MAX - 12));
        assert_eq!(longest.len(), LOCAL_BYTES_MAX);
        assert_eq!(readings(&VerpTemplate::plain(), &format!("{longest}@l.example")).len(), 1);
        assert_eq!(readings(&VerpTemplate::plain(), &format!("{longest}e@l.example")), []);
        for (tag, count) in [("0123456z", 1), ("ZZZZZZZZ", 1), ("0123456u", 0), ("0123 567", 0), ("i0000000", 0)] {
            let Ok(path) = format!("a+{tag}-b=x.example@l.example").parse::<Address>() else { continue };
            assert_eq!(VerpTemplate::tagged().readings(&path, &key()).len(), count, "{tag}");
        }
    }

    proptest! {
        #[test]
        fn each_reading_renders_the_path(local in "(b\\+)?[a+=-]{1,30}={1,2}a{1,3}(==[a+=-]{1,9})?") {
            let Ok(path) = format!("{local}@l.example").parse::<Address>() else { return Ok(()) };
            for form in ["{local}-{user}={host}@{domain}", "b+{user}=={host}=={local-owner}@{domain}"] {
                let template = VerpTemplate::parse(form).unwrap();
                let all = template.readings(&path, &key());
                prop_assert!(all.len() <= READINGS_MAX);
                for SenderPath { sender, path: read } in &all {
                    let recipient = read.recipient.as_str();
                    let values =
                        CopyValues { sender, membership_sender: sender, recipient, name: "", list: "", message: "" };
                    let rendered = template.render(&values, &key()).unwrap_or_default();
                    prop_assert!(rendered.eq_ignore_ascii_case(path.as_str()), "{} {}: {}", sender, recipient, rendered);
                    prop_assert!(!read.is_proven);
                }
            }
        }

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
