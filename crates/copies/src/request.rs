//! The copy request of one message: settings that replace those of its list or sender. It comes in the field
//! `X-Stentor-Copies`, or beside the message over HTTP.
//!
//! ```text
//! request = item *(";" item)
//! item    = "verp=" ("off" / verp) / "one_click" ["=" ("true" / "false")] / "field=" ("off" / field)
//!           / "dsn=" ("sender" / "path")
//! ```
//!
//! `verp` and `field` are those of the configuration ([`VerpTemplate::named`], [`FieldTemplate::parse`]), and may be
//! quoted strings. An item that is absent stays as configured; fields replace all configured ones.
//!
//! Promise: the stored text parses to the same request: the limit of a request is that of its stored text. It is parsed
//! for each copy, so nothing more is kept in memory per post.
//!
//! Failure: anything that is not understood refuses the message ([`CopyRequestError`]).

use std::fmt;

use crate::fields::{CopyFields, FieldError, FieldTemplate};
use crate::template::CopyTemplateError;
use crate::verp::VerpTemplate;
use crate::{CopySettings, is_printable};

/// Maximum octets of a request, as written and as stored: there, values are quoted and each item has a line.
pub const REQUEST_BYTES_MAX: usize = 8192;
const OFF: &str = "off";

/// An invalid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyRequestError {
    #[error("no items; example: verp=plain; one_click")]
    Empty,
    #[error("more than {REQUEST_BYTES_MAX} octets with each value in quotes")]
    TooLong,
    #[error("only printable ASCII is allowed")]
    Octets,
    #[error("`{0}` is not an item; items: verp, one_click, field, dsn")]
    Item(String),
    #[error("`{0}` is set twice")]
    Twice(&'static str),
    #[error("`{0}` needs a value")]
    NoValue(&'static str),
    #[error("`one_click` is true or false, not `{0}`")]
    Flag(String),
    #[error("`dsn` is sender or path, not `{0}`")]
    Dsn(String),
    #[error("a quoted value is not closed")]
    OpenQuote,
    #[error("unexpected text or quote at `{0}`: quote the whole value and put `;` after it")]
    Quote(String),
    #[error("`verp`: {0}, or plain, tagged or off")]
    Verp(CopyTemplateError),
    #[error("`field`: {0}")]
    Field(#[from] FieldError),
    #[error("`field`: {{mailbox}} is only for `copy_fields` of a list")]
    Names,
    #[error("`one_click` and `field` both set List-Unsubscribe; use one of them")]
    Unsubscribe,
}

/// A request that would change what a list's configuration gives its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListWeakened {
    #[error("the list has its own `verp`, which a post cannot change")]
    ReturnPath,
    #[error("the list has `one_click`, which a post cannot remove")]
    Link,
    #[error("the list has its own `copy_fields`, which a post cannot replace")]
    Fields,
    #[error("fields that begin with `List-` are the list's own; a post cannot set them")]
    ListField,
}

/// Where this server's own DSNs about failed copies go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DsnTo {
    /// To the message's sender, gathered.
    #[default]
    Sender,
    /// To the return path of the copy, one each, like those of other hosts.
    Path,
}

/// The parts of a request as they were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestItems {
    pub verp: Option<String>,
    pub one_click: Option<bool>,
    /// `Name: value` each.
    pub fields: Option<Vec<String>>,
    pub dsn: Option<DsnTo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum VerpRequest {
    AsConfigured,
    Off,
    Template(VerpTemplate),
}

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRequest {
    items: RequestItems,
    verp: VerpRequest,
    fields: Option<CopyFields>,
}

impl CopyRequest {
    /// # Errors
    /// A part is invalid, they exclude each other, or there is none.
    pub fn new(items: RequestItems) -> Result<CopyRequest, CopyRequestError> {
        let texts = || items.verp.iter().chain(items.fields.iter().flatten());
        if items == RequestItems::default() {
            return Err(CopyRequestError::Empty);
        }
        // Before anything is parsed or copied.
        if texts().map(String::len).sum::<usize>() > REQUEST_BYTES_MAX {
            return Err(CopyRequestError::TooLong);
        }
        if !texts().all(|text| is_printable(text)) {
            return Err(CopyRequestError::Octets);
        }
        let verp = match items.verp.as_deref() {
            None => VerpRequest::AsConfigured,
            Some(OFF) => VerpRequest::Off,
            Some(text) => VerpRequest::Template(VerpTemplate::named(text).map_err(CopyRequestError::Verp)?),
        };
        let parse = |texts: &Vec<String>| texts.iter().map(|text| FieldTemplate::parse(text)).collect::<Result<_, _>>();
        let fields = items.fields.as_ref().map(|texts| CopyFields::new(parse(texts)?)).transpose()?;
        if fields.as_ref().is_some_and(CopyFields::uses_names) {
            return Err(CopyRequestError::Names);
        }
        let request = CopyRequest { items, verp, fields };
        if request.field_value().len() > REQUEST_BYTES_MAX {
            return Err(CopyRequestError::TooLong);
        }
        if request.demands_link() && request.has_unsubscribe_field() {
            return Err(CopyRequestError::Unsubscribe);
        }
        Ok(request)
    }

    /// Returns the request of a message whose client asks for return paths in its MAIL command, to which DSNs go, too.
    /// Items in `own`, which the message itself asks for, hold.
    ///
    /// # Errors
    /// The template is invalid, or both together are too long.
    pub fn with_verp(own: Option<&CopyRequest>, template: &str) -> Result<CopyRequest, CopyRequestError> {
        let mut items = own.map(|own| own.items.clone()).unwrap_or_default();
        items.verp.get_or_insert_with(|| template.to_owned());
        items.dsn.get_or_insert(DsnTo::Path);
        CopyRequest::new(items)
    }

    /// Returns the request that changes nothing of what is configured for the sender, and has it apply.
    pub fn as_configured() -> CopyRequest {
        let items = RequestItems { dsn: Some(DsnTo::Sender), ..RequestItems::default() };
        CopyRequest { items, verp: VerpRequest::AsConfigured, fields: None }
    }

    /// Parses the value of a field, which may be folded.
    ///
    /// # Errors
    /// As [`CopyRequest::new`], and if the text has another form.
    pub fn parse(value: &[u8]) -> Result<CopyRequest, CopyRequestError> {
        if value.len() > REQUEST_BYTES_MAX {
            return Err(CopyRequestError::TooLong);
        }
        let text = stentor_mime::words::unfolded(value);
        let text = std::str::from_utf8(&text).map_err(|_| CopyRequestError::Octets)?.replace('\t', " ");
        if !is_printable(&text) {
            return Err(CopyRequestError::Octets);
        }
        let (mut items, mut rest) = (RequestItems::default(), text.trim());
        while !rest.is_empty() {
            let item = Item::parse(rest)?;
            rest = item.rest;
            item.add_to(&mut items)?;
        }
        CopyRequest::new(items)
    }

    /// Value of the field that is stored, one item a line, with the last line's end.
    pub fn field_value(&self) -> String {
        let RequestItems { verp, one_click, fields, dsn } = &self.items;
        let mut all: Vec<String> = Vec::new();
        all.extend(verp.iter().map(|text| format!("verp={}", quoted(text))));
        all.extend(one_click.iter().map(|is_on| format!("one_click={is_on}")));
        match fields.as_deref() {
            Some([]) => all.push(format!("field={OFF}")),
            texts => all.extend(texts.into_iter().flatten().map(|text| format!("field={}", quoted(text)))),
        }
        all.extend(dsn.iter().map(|to| format!("dsn={}", to.name())));
        all.join(";\r\n ") + "\r\n"
    }

    /// Whether each copy must have a one-click link.
    pub fn demands_link(&self) -> bool {
        self.items.one_click == Some(true)
    }

    /// Where DSNs about its copies go.
    pub fn dsn(&self) -> DsnTo {
        self.items.dsn.unwrap_or_default()
    }

    /// Whether its return paths begin with the sender's address and `+`, or it asks for none.
    pub fn is_detail(&self) -> bool {
        match &self.verp {
            VerpRequest::AsConfigured | VerpRequest::Off => true,
            VerpRequest::Template(template) => template.is_detail(),
        }
    }

    /// Whether it uses the name of a list.
    pub fn needs_list(&self) -> bool {
        self.fields.as_ref().is_some_and(CopyFields::uses_list)
    }

    /// Checks that a list keeps what its configuration gives its copies.
    ///
    /// # Errors
    /// The request would take something away, or set one of the list's own fields.
    pub fn check_weakens_nothing(&self, configured: Option<&CopySettings>) -> Result<(), ListWeakened> {
        if self.fields.as_ref().is_some_and(CopyFields::has_list_field) {
            return Err(ListWeakened::ListField);
        }
        let Some(CopySettings { verp, one_click, fields }) = configured else { return Ok(()) };
        let is_other_path = match &self.verp {
            VerpRequest::AsConfigured => false,
            VerpRequest::Off => verp.is_some(),
            VerpRequest::Template(own) => verp.as_ref().is_some_and(|configured| configured != own),
        };
        if is_other_path {
            return Err(ListWeakened::ReturnPath);
        }
        if *one_click && self.items.one_click == Some(false) {
            return Err(ListWeakened::Link);
        }
        let is_field_lost = self.fields.is_some() && !fields.is_empty();
        if is_field_lost || self.demands_link() && fields.has_unsubscribe_field() {
            return Err(ListWeakened::Fields);
        }
        Ok(())
    }

    fn has_unsubscribe_field(&self) -> bool {
        self.fields.as_ref().is_some_and(CopyFields::has_unsubscribe_field)
    }

    /// Returns what the message's copies have of their own. Where the request and the configuration both set
    /// List-Unsubscribe, the request does.
    pub fn over(&self, configured: Option<&CopySettings>) -> CopySettings {
        let configured = configured.cloned().unwrap_or_default();
        let verp = match &self.verp {
            VerpRequest::AsConfigured => configured.verp,
            VerpRequest::Off => None,
            VerpRequest::Template(template) => Some(template.clone()),
        };
        let one_click = self.items.one_click.unwrap_or(configured.one_click && !self.has_unsubscribe_field());
        let fields = match &self.fields {
            Some(fields) => fields.clone(),
            None if one_click => configured.fields.without_unsubscribe(),
            None => configured.fields,
        };
        CopySettings { verp, one_click, fields }
    }
}

impl DsnTo {
    fn name(self) -> &'static str {
        match self {
            DsnTo::Sender => "sender",
            DsnTo::Path => "path",
        }
    }

    fn named(name: &str) -> Option<DsnTo> {
        [DsnTo::Sender, DsnTo::Path].into_iter().find(|to| to.name() == name)
    }
}

/// For logs: bounded, without the texts of fields.
impl fmt::Display for CopyRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("own copies:")?;
        match self.items.verp.as_deref() {
            None => {}
            Some(known) if known == OFF || VerpTemplate::is_named(known) => write!(out, " verp={known}")?,
            Some(_) => out.write_str(" verp=template")?,
        }
        self.items.one_click.iter().try_for_each(|is_on| write!(out, " one_click={is_on}"))?;
        self.items.fields.iter().try_for_each(|fields| write!(out, " fields={}", fields.len()))?;
        self.items.dsn.iter().try_for_each(|to| write!(out, " dsn={}", to.name()))
    }
}

/// An item of a request's text.
struct Item<'a> {
    name: &'a str,
    value: Option<String>,
    rest: &'a str,
}

impl Item<'_> {
    fn parse(text: &str) -> Result<Item<'_>, CopyRequestError> {
        let (name, behind) = text.split_at(text.find(['=', ';']).unwrap_or(text.len()));
        let name = name.trim();
        let Some(value) = behind.strip_prefix('=').map(str::trim_start) else {
            return Ok(Item { name, value: None, rest: behind.trim_start_matches(';').trim_start() });
        };
        if let Some(text) = value.strip_prefix('"') {
            let (value, behind) = unquoted(text).ok_or(CopyRequestError::OpenQuote)?;
            let behind = behind.trim_start();
            let rest = if behind.is_empty() { Some("") } else { behind.strip_prefix(';') };
            let rest = rest.ok_or_else(|| CopyRequestError::Quote(behind.to_owned()))?.trim_start();
            return Ok(Item { name, value: Some(value), rest });
        }
        let (value, rest) = value.split_once(';').unwrap_or((value, ""));
        let value = value.trim_end();
        if value.contains('"') {
            return Err(CopyRequestError::Quote(value.to_owned()));
        }
        Ok(Item { name, value: Some(value.to_owned()), rest: rest.trim_start() })
    }

    fn add_to(self, items: &mut RequestItems) -> Result<(), CopyRequestError> {
        let value = |name| self.value.clone().filter(|text| !text.is_empty()).ok_or(CopyRequestError::NoValue(name));
        match self.name {
            "verp" if items.verp.is_some() => return Err(CopyRequestError::Twice("verp")),
            "verp" => items.verp = Some(value("verp")?),
            "one_click" if items.one_click.is_some() => return Err(CopyRequestError::Twice("one_click")),
            "one_click" => match self.value.as_deref() {
                None | Some("true") => items.one_click = Some(true),
                Some("false") => items.one_click = Some(false),
                Some(other) => return Err(CopyRequestError::Flag(other.to_owned())),
            },
            "field" => {
                let text = value("field")?;
                let is_off = text == OFF;
                let is_second = items.fields.is_some();
                let fields = items.fields.get_or_insert_default();
                // `off` stands alone.
                if is_second && (is_off || fields.is_empty()) {
                    return Err(CopyRequestError::Twice("field"));
                }
                fields.extend(Some(text).filter(|_| !is_off));
            }
            "dsn" if items.dsn.is_some() => return Err(CopyRequestError::Twice("dsn")),
            "dsn" => {
                let name = value("dsn")?;
                items.dsn = Some(DsnTo::named(&name).ok_or(CopyRequestError::Dsn(name))?);
            }
            other => return Err(CopyRequestError::Item(other.to_owned())),
        }
        Ok(())
    }
}

/// A text as a quoted string (RFC 5322 section 3.2.4).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Splits a quoted string after its opening quote into its content and the rest; none if it is not closed.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            char => value.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> CopyRequest {
        CopyRequest::parse(text.as_bytes()).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    fn why(text: &str) -> String {
        CopyRequest::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn items_are_read_however_they_are_folded() {
        let request =
            parsed(" verp=plain;\r\n\tone_click ; field=\"Feedback-ID: {message};\\\"x\\\"\";field=X-A: b;\r\n");
        let settings = request.over(None);
        assert_eq!((settings.verp, settings.one_click), (Some(VerpTemplate::plain()), true));
        assert_eq!(settings.fields.names().collect::<Vec<_>>(), ["Feedback-ID", "X-A"]);
        assert_eq!(request.to_string(), "own copies: verp=plain one_click=true fields=2");
        let template = parsed("verp={local}-{user}={host}@{domain}");
        assert!(!template.is_detail() && parsed("verp=tagged").is_detail() && parsed("verp=off").is_detail());
        assert!(parsed("field=X-A: {list}").needs_list());
        assert_eq!(parsed("field=off").over(None), CopySettings::default());
        let configured = CopySettings { verp: Some(VerpTemplate::plain()), ..CopySettings::default() };
        let unchanged = CopyRequest::as_configured();
        assert_eq!(unchanged.over(Some(&configured)), configured);
        assert_eq!(CopyRequest::parse(unchanged.field_value().as_bytes()), Ok(unchanged));
    }

    #[test]
    fn the_messages_own_form_precedes_its_clients() {
        const FORM: &str = "{local}-{user}={host}@{domain}";
        let of_client = CopyRequest::with_verp(None, FORM).unwrap();
        assert_eq!(of_client.over(None).verp, Some(VerpTemplate::parse(FORM).unwrap()));
        let asked = |own: &str| CopyRequest::with_verp(Some(&parsed(own)), FORM).unwrap().over(None);
        assert_eq!((asked("one_click").verp, asked("one_click").one_click), (of_client.over(None).verp, true));
        assert_eq!((asked("verp=tagged").verp, asked("verp=off").verp), (Some(VerpTemplate::tagged()), None));
        assert_eq!((of_client.dsn(), parsed("verp=plain").dsn()), (DsnTo::Path, DsnTo::Sender));
        assert_eq!(CopyRequest::with_verp(Some(&parsed("dsn=sender")), FORM).unwrap().dsn(), DsnTo::Sender);
        assert_eq!(of_client.to_string(), "own copies: verp=template dsn=path");
        let longest = parsed(&format!("field=X-A: {}", "y".repeat(REQUEST_BYTES_MAX - 20)));
        assert_eq!(CopyRequest::with_verp(Some(&longest), FORM), Err(CopyRequestError::TooLong));
    }

    #[test]
    fn invalid_requests_name_the_item() {
        for (text, wanted) in [
            ("", "no items"),
            ("verp", "`verp` needs a value"),
            ("verp=", "`verp` needs a value"),
            ("verp=plain verp=plain", "`verp`: a return path has `{local}`"),
            ("verp=plain; verp=off", "`verp` is set twice"),
            ("verp=loud", "or plain, tagged or off"),
            ("one_click=yes", "`one_click` is true or false, not `yes`"),
            ("one-click", "`one-click` is not an item; items: verp, one_click, field, dsn"),
            ("dsn", "`dsn` needs a value"),
            ("dsn=owner", "`dsn` is sender or path, not `owner`"),
            ("dsn=path; dsn=sender", "`dsn` is set twice"),
            (";", "`` is not an item"),
            ("field=\"X-A: b", "not closed"),
            ("field=\"X-A: b\" one_click", "quote at `one_click`: quote"),
            ("field=X-A: \"b\"", "quote the whole value"),
            ("field=Subject: x", "`Subject` cannot be set"),
            ("field=X-Stentor-Copies: verp=off", "cannot be set"),
            ("field=X-A: b; field=off", "`field` is set twice"),
            ("field=off; field=X-A: b", "`field` is set twice"),
            ("field=To: {mailbox}", "{mailbox} is only for"),
            ("one_click; field=List-Unsubscribe: <x>", "`one_click` and `field` both set"),
            ("verp=pl\u{e4}in", "printable ASCII"),
            ("field=X-A: \u{7f}", "printable ASCII"),
        ] {
            assert!(why(text).contains(wanted), "{text}: {}", why(text));
        }
        assert!(why(&format!("field=X-A: {}", "x".repeat(REQUEST_BYTES_MAX))).contains("8192 octets"));
        assert!(why(&" ;".repeat(REQUEST_BYTES_MAX + 1)).contains("8192 octets"));
        assert_eq!(CopyRequest::parse(b"verp=\xff"), Err(CopyRequestError::Octets));
    }

    #[test]
    fn a_request_replaces_what_it_names() {
        let fields = |text: &str| CopyFields::new(vec![FieldTemplate::parse(text).unwrap()]).unwrap();
        let configured = CopySettings { verp: Some(VerpTemplate::tagged()), one_click: true, fields: fields("X-A: b") };
        let over = |text: &str| parsed(text).over(Some(&configured));
        assert_eq!(over("verp=off"), CopySettings { verp: None, ..configured.clone() });
        assert_eq!(over("one_click=false"), CopySettings { one_click: false, ..configured.clone() });
        assert_eq!(over("field=X-B: c"), CopySettings { fields: fields("X-B: c"), ..configured.clone() });
        let own = over("field=List-Unsubscribe: <x>");
        assert!(!own.one_click && own.fields.has_unsubscribe_field());
        let with_field = CopySettings { one_click: false, fields: fields("List-Unsubscribe: <x>"), ..configured };
        let linked = parsed("one_click").over(Some(&with_field));
        assert!(linked.one_click && linked.fields.is_empty());
    }

    /// What cannot be stored and read again is refused, not accepted.
    #[test]
    fn the_limit_is_that_of_the_stored_text() {
        let fields = |count: usize, text: &str| RequestItems {
            fields: Some((0..count).map(|n| format!("X-{n:02}: {text}")).collect()),
            ..RequestItems::default()
        };
        // `field="X-00: ` and the end are 16 octets.
        for (text, room) in [("x", 8176), ("\\", 4088), ("\"", 4088)] {
            let fits = CopyRequest::new(fields(1, &text.repeat(room))).unwrap();
            assert_eq!(fits.field_value().len(), REQUEST_BYTES_MAX, "{text}");
            assert_eq!(CopyRequest::parse(fits.field_value().as_bytes()).as_ref(), Ok(&fits));
            assert_eq!(CopyRequest::new(fields(1, &text.repeat(room + 1))), Err(CopyRequestError::TooLong), "{text}");
        }
        assert_eq!(CopyRequest::new(fields(16, &"\"".repeat(248))), Err(CopyRequestError::TooLong));
        let unquoted = format!("field=X-A: {}", "\\".repeat(4091));
        assert_eq!(CopyRequest::parse(unquoted.as_bytes()), Err(CopyRequestError::TooLong));
    }

    #[test]
    fn a_post_weakens_nothing_of_its_list() {
        let fields = |text: &str| CopyFields::new(vec![FieldTemplate::parse(text).unwrap()]).unwrap();
        let paths = CopySettings { verp: Some(VerpTemplate::tagged()), ..CopySettings::default() };
        let links = CopySettings { one_click: true, ..CopySettings::default() };
        let own = CopySettings { fields: fields("X-A: b"), ..CopySettings::default() };
        let mailto = CopySettings { fields: fields("List-Unsubscribe: <mailto:x>"), ..CopySettings::default() };
        let none = CopySettings::default();
        for (request, configured, wanted) in [
            ("verp=off", &paths, Err(ListWeakened::ReturnPath)),
            ("verp=plain", &paths, Err(ListWeakened::ReturnPath)),
            ("verp=tagged", &paths, Ok(())),
            ("verp={local}+{tag}-{user}={host}@{domain}", &paths, Ok(())),
            ("verp=off", &links, Ok(())),
            ("one_click=false", &links, Err(ListWeakened::Link)),
            ("one_click=false", &paths, Ok(())),
            ("one_click", &mailto, Err(ListWeakened::Fields)),
            ("one_click", &own, Ok(())),
            ("field=off", &own, Err(ListWeakened::Fields)),
            ("field=X-B: c", &own, Err(ListWeakened::Fields)),
            ("field=X-B: c", &links, Ok(())),
            ("field=list-unsubscribe: <x>", &links, Err(ListWeakened::ListField)),
            ("field=List-Owner: <x>", &none, Err(ListWeakened::ListField)),
        ] {
            assert_eq!(parsed(request).check_weakens_nothing(Some(configured)), wanted, "{request}");
        }
        let archive = parsed("field=List-Archive: <x>").check_weakens_nothing(None);
        assert_eq!(archive, Err(ListWeakened::ListField), "a list without settings");
    }

    proptest! {
        /// Up to and over the limit, with characters that are longer when stored.
        #[test]
        fn the_stored_text_of_long_requests_is_read_again(
            fields in proptest::collection::vec(("[\\\\\"; x]{1,3}", 0..3_000_usize), 1..5),
        ) {
            let texts = fields.iter().enumerate().map(|(n, (text, times))| format!("X-{n}: {}", text.repeat(*times)));
            let items = RequestItems { fields: Some(texts.collect()), ..RequestItems::default() };
            match CopyRequest::new(items) {
                Ok(request) => {
                    let stored = request.field_value();
                    prop_assert!(stored.len() <= REQUEST_BYTES_MAX);
                    prop_assert_eq!(CopyRequest::parse(stored.as_bytes()), Ok(request));
                }
                Err(why) => prop_assert_eq!(why, CopyRequestError::TooLong),
            }
        }

        /// What is stored is the request, on short lines.
        #[test]
        fn the_stored_text_is_read_again(
            verp in prop_oneof![Just(None), Just(Some("off")), Just(Some("tagged")), Just(Some("{local}+{user}={host}@{domain}"))],
            one_click in any::<Option<bool>>(),
            fields in proptest::option::of(proptest::collection::vec("[ -z|~]{0,30}", 0..4)),
            dsn in proptest::option::of(prop_oneof![Just(DsnTo::Sender), Just(DsnTo::Path)]),
        ) {
            let fields = fields.map(|all| all.iter().enumerate().map(|(n, text)| format!("X-{n}: {text}")).collect());
            let items = RequestItems { verp: verp.map(str::to_owned), one_click, fields, dsn };
            if let Ok(request) = CopyRequest::new(items) {
                let stored = request.field_value();
                prop_assert!(stored.ends_with("\r\n") && stored.lines().all(|line| line.len() < 120));
                prop_assert_eq!(CopyRequest::parse(stored.as_bytes()), Ok(request));
            }
        }

        #[test]
        fn parsing_never_panics(value in proptest::collection::vec(any::<u8>(), 0..60), text in "[a-z=;\" \\\\{}]{0,30}") {
            let _ = CopyRequest::parse(&value);
            let _ = CopyRequest::parse(text.as_bytes());
        }
    }
}
